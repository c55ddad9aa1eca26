"""
What does privacy cost?
=======================

Compare three scores: a constant model, the private one, and one without noise. Breast cancer has
569 rows, which is few for 30 columns.
"""

# %%
# Take the ranges of columns from their meaning: the nucleus of a human cell is smaller than
# 100 micrometres, and concavity and symmetry are ratios. Values outside are clipped.
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skdpadmm import DPAdmmLogisticRegression

nucleus = np.array([50, 64, 400, 8000, 1, 1, 1, 1, 1, 1])
upper = np.concatenate([nucleus, nucleus / 6, nucleus])
X, X_test, y, y_test = train_test_split(*load_breast_cancer(return_X_y=True), random_state=0)

# %%
# The plan shows what a fit will release, and with how much noise, before any data is read.
model = DPAdmmLogisticRegression(epsilon=1.0, delta=1e-5, classes=[0, 1], feature_bounds=(0, upper))
model.plan(n_samples=len(X), n_features=30)

# %%
model.fit(X, y)
exact = make_pipeline(StandardScaler(), LogisticRegression())
scores = {
    "not private": exact.fit(X, y).score(X_test, y_test),
    "epsilon 1": model.score(X_test, y_test),
    "constant": DummyClassifier().fit(X, y).score(X_test, y_test),
}
fig, ax = plt.subplots()
bars = ax.barh(list(scores), list(scores.values()), color=["C3", "C0", "C3"])
ax.bar_label(bars, fmt="%.2f", padding=3)
ax.set(title="Epsilon 1 costs a few percent", xlabel="accuracy on held-out rows", xlim=(0, 1.12))
plt.show()

# %%
# The report of the fit:
model.privacy_
