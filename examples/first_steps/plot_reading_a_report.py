"""
Reading a report
================

What a fit will cost is known before it sees data, and what it did cost is in its report. Epsilon is
also a limit of attacks: how often the best one is right, and which errors it has to make.
"""

# %%
# Rows of four hospitals, with public bounds.

import numpy as np
from matplotlib import pyplot as plt

from skdpadmm import DPFedRidge
from skdpadmm.inspection import TradeOffDisplay
from skdpadmm.privacy import GaussianDP, gaussian_mu, round_up

rng = np.random.default_rng(0)
X = rng.uniform(-1, 1, (2000, 2))
y = X @ [1.0, 0.5] + rng.normal(scale=0.2, size=2000)
hospital = rng.choice(["east", "north", "south", "west"], 2000)

# %%
# The plan, before data: who will see what, and how accurate an attack on one row can be at most. In
# a notebook it is drawn: agents, server and world, with the epsilon at each arrow.
model = DPFedRidge(epsilon=2.0, feature_bounds=(-1, 1), target_bounds=(-2, 2))
sizes = dict(zip(*np.unique(hospital, return_counts=True), strict=True))
print(model.plan(n_samples=2000, n_features=2, agent_sizes=sizes))

# %%
# The report, after the fit.
model.fit(X, y, agents=hospital)
print(model.privacy_)

# %%
# The same as a table. Whoever knows all but one row, and two values that it may have, is right half
# of the time by a guess, and at most so often after seeing what was released.
frame = model.privacy_.to_frame()
print(frame[["observer", "epsilon", "attack_accuracy"]].to_string(index=False))

# %%
# What epsilon means, by the same figure, at delta=1e-5.
for epsilon in (0.1, 0.5, 1.0, 2.0, 4.0, 8.0):
    accuracy = GaussianDP(gaussian_mu(epsilon, 1e-5)).attack_accuracy()
    print(f"epsilon={epsilon:<4} right at most {round_up(100 * accuracy)} % of the time")

# %%
# No attack is below the curve of its observer: one with few false positives has many false
# negatives.
TradeOffDisplay.from_estimator(model)
plt.show()

# %%
# A section for a model card.
print(model.privacy_.to_markdown())
