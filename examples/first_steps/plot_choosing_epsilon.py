"""
Choosing epsilon
================

Decide how accurate an attack you can accept, then see what that epsilon does to accuracy. Draw the
curve from public or simulated rows: choosing epsilon from a curve of the private rows would itself
leak information.
"""

# %%
# What epsilon means for a person: the best attack on one row is right at most this often.
import matplotlib.pyplot as plt
import numpy as np

from skdpadmm import DPAdmmRidge
from skdpadmm.inspection import PrivacyUtilityDisplay
from skdpadmm.privacy import GaussianDP, gaussian_mu, round_up

for epsilon in (0.1, 0.5, 1, 2, 4, 8):
    accuracy = GaussianDP(gaussian_mu(epsilon, 1e-5)).attack_accuracy()
    print(f"epsilon {epsilon:<4} an attack is right at most {round_up(100 * accuracy)} %")

# %%
# What it costs in accuracy, on simulated rows. Simulate the size of the private data too: ten times
# as many rows reach the same accuracy at about a tenth of the epsilon.
rng = np.random.default_rng(0)


def rows(n):
    X = rng.uniform(-1, 1, size=(n, 10))
    return X, X @ np.linspace(1, -1, 10) + rng.normal(0, 0.5, n)


X_test, y_test = rows(5_000)
model = DPAdmmRidge(delta=1e-5, feature_bounds=(-1, 1), target_bounds=(-4, 4))
fig, ax = plt.subplots()
for n in (500, 5_000, 50_000):
    X, y = rows(n)
    PrivacyUtilityDisplay.from_estimator(
        model, X, y, X_test=X_test, y_test=y_test, epsilons=(0.03, 0.1, 0.3, 1, 3, 10), n_seeds=3,
        ax=ax, name=f"{n:,} rows", plot_baselines=n == 50_000,
    )  # fmt: skip
ax.set(title="More rows need less epsilon", ylim=(-0.6, 1))
ax.legend(fontsize=9, loc="lower right")
plt.show()
