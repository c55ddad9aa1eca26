"""
Rare classes: public weights
============================

Of 10,000 generated records 5 % are positive. Balanced accuracy counts both classes alike: it is .5
for a model that never says "positive". The frequencies of labels in private data are private, so
the weights come from a prevalence that is public, such as that of an earlier study.
"""

# %%
# Weights are ``1 / (n_classes * prevalence)``, as "balanced" would make them from the labels.
# Nothing is tuned, neither for the weights nor without them.

import numpy as np
from matplotlib import pyplot as plt
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score

from skdpadmm import DPAdmmLogisticRegression

PREVALENCE, EPSILONS, SEEDS = 0.05, [0.1, 0.3, 1.0, 3.0], range(2)
WEIGHTS = {0: 1 / (2 * (1 - PREVALENCE)), 1: 1 / (2 * PREVALENCE)}
X, y = make_classification(
    20_000, 10, n_informative=6, weights=[1 - PREVALENCE], class_sep=0.8, random_state=1
)
X, X_test, y, y_test = X[:10_000] / 5, X[10_000:] / 5, y[:10_000], y[10_000:]

# %%
# Each fit spends epsilon on all of its records. A record of the rare class can change more, so a
# weighted fit adds more noise.
fig, ax = plt.subplots(layout="constrained")
for label, weights in {"with weights": WEIGHTS, "without": None}.items():
    model = DPAdmmLogisticRegression(classes=[0, 1], feature_bounds=(-1, 1), class_weight=weights)
    scores = [
        [
            balanced_accuracy_score(
                y_test, model.set_params(epsilon=eps, random_state=seed).fit(X, y).predict(X_test)
            )
            for seed in SEEDS
        ]
        for eps in EPSILONS
    ]
    (line,) = ax.semilogx(EPSILONS, np.mean(scores, axis=1), "o-", label=label)
    exact = LogisticRegression(C=np.inf, class_weight=weights).fit(X, y).predict(X_test)
    exact = balanced_accuracy_score(y_test, exact)
    ax.axhline(exact, color=line.get_color(), linestyle=":", label=f"not private, {label}")
    print(f"{label}: {np.mean(scores, axis=1).round(3).tolist()}, not private {exact:.3f}")
ax.set(xlabel="epsilon", ylabel="balanced accuracy on held-out rows", title="5 % positives")
ax.legend()
plt.show()
