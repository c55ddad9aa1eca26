"""
Scikit-learn's tools on a private model
=======================================

Calibration, stacking, permutation importance and partial dependence work on private estimators. The
report shows what they do to the guarantee.
"""

# %%
# Private rows to fit the model, and public ones to inspect it.
import matplotlib.pyplot as plt
import numpy as np
from sklearn.calibration import CalibratedClassifierCV
from sklearn.inspection import PartialDependenceDisplay, permutation_importance

from skdpadmm import DPAdmmLogisticRegression, privacy_report

rng = np.random.default_rng(0)


def rows(n):
    X = rng.uniform(-1, 1, size=(n, 4))
    return X, (X @ [2.0, -1.0, 0.5, 0.0] + rng.logistic(size=n) > 0).astype(int)


X, y = rows(5_000)
X_public, y_public = rows(1_000)
model = DPAdmmLogisticRegression(epsilon=1.0, classes=[0, 1], feature_bounds=(-1, 1)).fit(X, y)

# %%
# On public rows these tools spend no budget: they only use the released model.
importance = permutation_importance(model, X_public, y_public, n_repeats=5, random_state=0)
print(importance.importances_mean.round(3))
fig, axes = plt.subplots(1, 2, sharey=True)
PartialDependenceDisplay.from_estimator(model, X_public, [0, 3], ax=axes)
fig.suptitle("Column 0 matters, column 3 does not", weight="bold")
plt.show()

# %%
# Calibration on the private rows learns without noise, and the report says so.
calibrated = CalibratedClassifierCV(model, cv=3).fit(X, y)
privacy_report(calibrated)
