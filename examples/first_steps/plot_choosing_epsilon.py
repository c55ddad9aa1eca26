"""
Choosing epsilon
================

Accuracy against epsilon, on public or simulated rows that resemble the private ones. The curve is a
choice about private rows only if it is not drawn from them.
"""

# %%
# What an epsilon means for a person: how often the best attack on one row is right, at most.
import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import Ridge

from skdpadmm import DPAdmmRidge
from skdpadmm.inspection import PrivacyUtilityDisplay
from skdpadmm.privacy import GaussianDP, gaussian_mu, round_up

for epsilon in (0.1, 0.5, 1, 2, 4, 8):
    accuracy = GaussianDP(gaussian_mu(epsilon, 1e-5)).attack_accuracy()
    print(
        f"epsilon {epsilon:<4} an attack is right at most {round_up(100 * accuracy)} % of the time"
    )

# %%
# What it costs in accuracy: rows that are made as one believes the private ones to be. With ten
# times as many of them the curve starts at a tenth of the epsilon.
rng = np.random.default_rng(0)


def rows(n):
    X = rng.uniform(-1, 1, size=(n, 10))
    return X, X @ np.linspace(1, -1, 10) + rng.normal(0, 0.5, n)


X_test, y_test = rows(5_000)
model = DPAdmmRidge(delta=1e-5, feature_bounds=(-1, 1), target_bounds=(-4, 4))
epsilons = [0.03, 0.1, 0.3, 1.0, 3.0, 10.0]
fig, ax = plt.subplots(figsize=(6.4, 4.4), layout="constrained")
for n in (500, 5_000, 50_000):
    X, y = rows(n)
    display = PrivacyUtilityDisplay.from_estimator(
        model, X, y, X_test=X_test, y_test=y_test, epsilons=epsilons, n_seeds=3, ax=ax,
        name=f"{n:,} rows", plot_baselines=n == 50_000,
    )  # fmt: skip
ax.set_ylim(-0.2, 1)
plt.show()

# %%
# The line without privacy is scikit-learn's.
print(f"Ridge, not private: {Ridge().fit(X, y).score(X_test, y_test):.3f}")
