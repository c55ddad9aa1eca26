"""
What did my grid search cost?
=============================

``GridSearchCV`` of scikit-learn works, and every fit in it spends budget. What all of them cost
together follows from the sizes of folds. Exact scores of private rows are outside of any guarantee.
"""

# %%
# Five folds, three candidates, and a refit: sixteen fits. Folds must not be stratified, because
# such folds depend on labels.
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
print(search_cost(search.fit(X, y), n_samples=5_000))

# %%
# A search with a budget of its own costs what it says, scores included.
private = DPGridSearchCV(model, grid, epsilon=1.0, delta=1e-5)
print(private.plan(n_samples=5_000, n_features=4))
private.fit(X, y)
print(private.best_params_, f"noisy score {private.best_score_:.3f}")

# %%
# More candidates cost more in total, or leave less for each trial.
counts = [1, 2, 4, 8]
ordinary, within = [], []
for n in counts:
    candidates = {"C": np.geomspace(1e-5, 1, n)}
    folds = KFold(5, shuffle=True, random_state=0)
    search = GridSearchCV(model, candidates, cv=folds).fit(X, y)
    ordinary.append(search_cost(search, n_samples=5_000).epsilon(delta=1e-5))
    plan = DPGridSearchCV(model, candidates, epsilon=1.0, delta=1e-5).plan(5_000, 4)
    within.append(plan.trial_epsilon)
fig, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
left.plot(counts, ordinary, "o-")
left.set(xlabel="candidates", ylabel="total epsilon", title="GridSearchCV, each fit at .5")
right.plot(counts, within, "o-")
right.set(xlabel="candidates", ylabel="epsilon of a trial", ylim=(0, 1))
right.set_title("DPGridSearchCV, 1 in total")
plt.show()
