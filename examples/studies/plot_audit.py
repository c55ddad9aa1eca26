"""
Auditing another library
========================

An audit fits a mechanism many times on two neighbouring data sets and tries to tell them apart. If
it is right too often, the claimed epsilon is wrong. Here the noise is calibrated to a range that is
too small, an error that was found in practice.
"""

# %%
# Anything with ``fit``, ``coef_`` and a claimed ``epsilon`` can be audited.
import matplotlib.pyplot as plt
import numpy as np
from sklearn.base import BaseEstimator

from skdpadmm.audit import audit


class NoisyMean(BaseEstimator):
    """The mean of a column in [0, 1], with Laplace noise; a factor below 1 is a bug."""

    def __init__(self, epsilon=1.0, factor=1.0, random_state=None):
        self.epsilon = epsilon
        self.factor = factor
        self.random_state = random_state

    def fit(self, X, y=None):
        rng = np.random.default_rng(self.random_state)
        scale = self.factor / (len(X) * self.epsilon)
        self.coef_ = np.clip(X, 0, 1).mean(axis=0) + rng.laplace(0, scale, X.shape[1])
        return self


# %%
# Neighbouring data sets at the ends of the range. The claim is pure epsilon: delta is 0.
rows, other = np.zeros((10, 1)), np.zeros((10, 1))
other[0] = 1.0
labels = np.zeros(10)
factors = [0.25, 0.5, 0.75, 1.0, 2.0]
found = []
for factor in factors:
    report = audit(
        NoisyMean(epsilon=1.0, factor=factor), method="black-box", delta=0.0, n_runs=1_000,
        neighbors=((rows, labels), (other, labels)), random_state=0,
    )  # fmt: skip
    found.append(report.lower_bound)
    print(f"noise times {factor:<5} {report.verdict}")

# %%
fig, ax = plt.subplots()
ax.plot(factors, 1 / np.array(factors), "k:", label="true epsilon")
ax.plot(factors, found, "o-", label="lower bound of the audit")
ax.axhline(1.0, color="C1", linestyle="--", label="claim")
ax.set(xlabel="noise / noise that the claim needs", ylabel="epsilon")
ax.set_title("The audit finds noise that is too small")
ax.legend()
plt.show()
