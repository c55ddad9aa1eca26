"""
A study under one budget
========================

Every fit spends its own epsilon. A ledger composes them, and refuses a fit that would exceed the
limit before it reads data.
"""

# %%
# The ledger is a file; every estimator takes its path.
from pathlib import Path
from tempfile import mkdtemp

import matplotlib.pyplot as plt
import numpy as np

from skdpadmm import DPAdmmLasso, DPAdmmRidge
from skdpadmm.inspection import PrivacyLedgerDisplay
from skdpadmm.ledger import PrivacyBudgetExceeded, PrivacyLedger
from skdpadmm.model_selection import DPGridSearchCV

rng = np.random.default_rng(0)
X = rng.uniform(-1, 1, size=(5_000, 6))
y = X @ [1.0, -1.0, 0.5, 0.0, 0.0, 0.0] + rng.normal(0, 0.3, 5_000)
path = str(Path(mkdtemp()) / "study.db")
PrivacyLedger(path).limit(2.0, 1e-5)

# %%
# First a private search. Its epsilon covers all trials, the choice and the noisy score.
known = {"feature_bounds": (-1, 1), "target_bounds": (-4, 4), "delta": 1e-5}
search = DPGridSearchCV(
    DPAdmmLasso(**known), {"alpha": [0.001, 0.03, 1.0]}, epsilon=1.0, delta=1e-5,
    score_bounds=(-4, 0), refit=False, ledger=path,
)  # fmt: skip
print(search.fit(X, y).best_params_)

# %%
# Then the model to publish, with the parameters that the search chose, and a second one.
lasso = DPAdmmLasso(**known, **search.best_params_, epsilon=1.0, ledger=path).fit(X, y)
ridge = DPAdmmRidge(**known, epsilon=0.5, ledger=path).fit(X, y)
PrivacyLedger(path)

# %%
# One more would exceed the limit. It is refused: nothing is read or spent.
try:
    DPAdmmRidge(**known, epsilon=2.0, ledger=path).fit(X, y)
except PrivacyBudgetExceeded as refused:
    print(refused)

# %%
fig, ax = plt.subplots(figsize=(5.6, 4.6))
PrivacyLedgerDisplay.from_ledger(PrivacyLedger(path), ax=ax)
ax.set(title="Three fits below the limit", xticks=range(4))
plt.show()
