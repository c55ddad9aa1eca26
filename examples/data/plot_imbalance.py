"""
Rare classes
============

Of 10,000 generated records, 5 % are positive. A model that never predicts "positive" has a balanced
accuracy of .5. Class frequencies of private data are private, so take the weights from a public
prevalence, such as that of an earlier study.
"""

# %%
# Weights are ``1 / (n_classes * prevalence)``, as "balanced" would compute from the labels.
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
# A record of the rare class can change the model more, so a weighted fit adds more noise.
fig, ax = plt.subplots()
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
    ax.axhline(exact, color=line.get_color(), linestyle=":", label=f"not private, {label}", lw=1)
    print(f"{label}: {np.mean(scores, axis=1).round(3).tolist()}, not private {exact:.3f}")
ax.set_xticks(EPSILONS, EPSILONS)
ax.minorticks_off()
ax.set(xlabel="epsilon", ylabel="balanced accuracy")
ax.set_title("Public weights find the rare class")
ax.legend()
plt.show()
