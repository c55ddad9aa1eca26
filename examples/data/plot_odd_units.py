"""
Declaring the range of a target
===============================

Without a declared range, a target in yen is clipped to [-3, 3] and the model is useless. You get a
warning before data is read.
"""

# %%
# Rents of flats, in yen, by size and distance from the station.
import warnings

import matplotlib.pyplot as plt
import numpy as np

from skdpadmm import DPAdmmHuberRegressor, DPAdmmRidge

rng, n = np.random.default_rng(0), 4_000
X = np.column_stack([rng.uniform(15, 120, n), rng.uniform(50, 3_000, n)])  # square metres, metres
y = 30_000 + 2_500 * X[:, 0] - 20 * X[:, 1] + rng.normal(0, 20_000, n)
X, X_test, y, y_test = X[:3_000], X[3_000:], y[:3_000], y[3_000:]

# %%
# Without any range:
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    raw = DPAdmmRidge(epsilon=1.0).fit(X, y)
print(f"{caught[0].category.__name__}: {caught[0].message}")

# %%
# With ranges from the meaning of the columns:
bounds = np.array([[0, 0], [200, 5_000]])  # all lower bounds, then all upper ones
known = {"feature_bounds": bounds, "target_bounds": (0, 1_000_000)}
scores = {
    "nothing declared": raw.score(X_test, y_test),
    "ranges declared": DPAdmmRidge(epsilon=1.0, **known).fit(X, y).score(X_test, y_test),
    "the same, Huber": DPAdmmHuberRegressor(epsilon=1.0, **known).fit(X, y).score(X_test, y_test),
    "not private": DPAdmmRidge(epsilon=float("inf"), **known).fit(X, y).score(X_test, y_test),
}
print("\n".join(f"{name:20}{score:8.2f}" for name, score in scores.items()))

# %%
# A range ten times too wide costs little.
widths = np.geomspace(0.3, 300, 10)
found = []
for width in widths:
    model = DPAdmmRidge(epsilon=1.0, feature_bounds=known["feature_bounds"])
    model.set_params(target_bounds=(0, 350_000 * width))
    found.append(np.mean([model.fit(X, y).score(X_test, y_test) for _ in range(5)]))
fig, ax = plt.subplots()
ax.semilogx(widths, found, "o-")
ax.axhline(0, color="0.4", linestyle=":")
ax.set(xlabel="declared range / largest rent", ylabel="R2, mean of 5 fits", ylim=(-1, 1))
ax.set_title("Ten times too wide is good enough")
plt.show()
