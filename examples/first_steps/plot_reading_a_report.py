"""
Reading a report
================

The plan shows what a fit will cost before it sees data; the report shows what it did cost. Both
state epsilon as a limit on attacks: how often the best one is right.
"""

# %%
# Rows of four hospitals, with public bounds.
import numpy as np
from matplotlib import pyplot as plt

from skdpadmm import DPFedRidge
from skdpadmm.inspection import TradeOffDisplay

rng = np.random.default_rng(0)
X = rng.uniform(-1, 1, (2000, 2))
y = X @ [1.0, 0.5] + rng.normal(scale=0.2, size=2000)
hospital = rng.choice(["east", "north", "south", "west"], 2000)

# %%
# The plan, before data: what each observer will see. The budget holds against the one in bold.
model = DPFedRidge(epsilon=2.0, feature_bounds=(-1, 1), target_bounds=(-2, 2))
sizes = dict(zip(*np.unique(hospital, return_counts=True), strict=True))
model.plan(n_samples=2000, n_features=2, agent_sizes=sizes)

# %%
# The report, after the fit. Its assumptions are for a data protection officer.
model.fit(X, y, agents=hospital)
model.privacy_

# %%
# The same as a table. An attacker who knows every row but one, and the two values it may have, is
# right half of the time by a coin flip, and at most this often after the fit.
model.privacy_.to_frame()[["observer", "epsilon", "attack_accuracy"]]

# %%
# No attack lies below the curve of its observer: few false positives mean many false negatives.
TradeOffDisplay.from_estimator(model).ax_.set_title("The server can learn the most")
plt.show()
