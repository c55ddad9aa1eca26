"""
Constant, private, not private
==============================

How much does privacy cost here? Three scores answer: of a model that knows nothing, of a private
one, and of one without noise. Breast cancer has 569 rows, which is little for 30 columns.
"""

# %%
# Ranges of the columns come from what they are: no nucleus of a human cell is 100 micrometres
# across, and concavity or symmetry are shares. Values outside are clipped.
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
# The plan says what will be released, and with how much noise, before any data is read.
model = DPAdmmLogisticRegression(epsilon=1.0, delta=1e-5, classes=[0, 1], feature_bounds=(0, upper))
print(model.plan(n_samples=len(X), n_features=30))

# %%
model.fit(X, y)
exact = make_pipeline(StandardScaler(), LogisticRegression())
scores = {
    "constant": DummyClassifier().fit(X, y).score(X_test, y_test),
    "private, epsilon 1": model.score(X_test, y_test),
    "not private": exact.fit(X, y).score(X_test, y_test),
}
fig, ax = plt.subplots(figsize=(6.4, 2.2), layout="constrained")
bars = ax.barh(list(scores), list(scores.values()))
ax.bar_label(bars, fmt="%.2f", padding=3)
ax.set(xlabel="accuracy on held-out rows", xlim=(0, 1.1))
plt.show()
