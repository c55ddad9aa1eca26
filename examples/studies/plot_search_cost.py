"""
What did my grid search cost?
=============================

``GridSearchCV`` of scikit-learn works, but every fit in it spends budget. The cost of all fits
follows from the sizes of the folds. Exact scores of private rows are outside every guarantee.
"""

# %%
# Five folds, three candidates and a refit are sixteen fits. Do not stratify: such folds depend on
# labels.
import matplotlib.pyplot as plt
import numpy as np
from sklearn.model_selection import GridSearchCV, KFold

from skdpadmm import DPAdmmLogisticRegression
from skdpadmm.model_selection import DPGridSearchCV, search_cost

rng = np.random.default_rng(0)
X = rng.uniform(-1, 1, size=(5_000, 4))
y = (X @ [2.0, -1.0, 0.5, 0.0] + rng.logistic(size=5_000) > 0).astype(int)
model = DPAdmmLogisticRegression(epsilon=0.5, classes=[0, 1], feature_bounds=(-1, 1), max_iter=20)
grid = {"C": [1e-5, 1e-2, 1.0]}
search = GridSearchCV(model, grid, cv=KFold(5, shuffle=True, random_state=0))
search_cost(search.fit(X, y), n_samples=5_000)

# %%
# A private search has a total budget, which includes its scores.
private = DPGridSearchCV(model, grid, epsilon=1.0, delta=1e-5).fit(X, y)
print(private.best_params_, f"noisy score {private.best_score_:.3f}")
private.privacy_

# %%
# More candidates cost more in total, or leave less for each trial.
counts = [1, 2, 4, 8]
ordinary = []
for n in counts:
    candidates = {"C": np.geomspace(1e-5, 1, n)}
    folds = KFold(5, shuffle=True, random_state=0)
    search = GridSearchCV(model, candidates, cv=folds).fit(X, y)
    ordinary.append(search_cost(search, n_samples=5_000).epsilon(delta=1e-5))
    plan = DPGridSearchCV(model, candidates, epsilon=1.0, delta=1e-5).plan(5_000, 4)
    print(f"{n} candidates: a trial of DPGridSearchCV has epsilon {plan.trial_epsilon:.2f}")
fig, ax = plt.subplots()
ax.plot(counts, ordinary, "o-", label="GridSearchCV, each fit at 0.5")
ax.axhline(1.0, color="C1", label="DPGridSearchCV")
ax.set(xlabel="candidates", ylabel="total epsilon", ylim=(0, None))
ax.set_title("Each candidate spends more, or gets less")
ax.legend()
plt.show()
