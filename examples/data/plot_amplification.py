"""
Amplification by iteration
==========================

Every step of gradient ADMM adds noise, and no step after a record's own increases the distance
between two iterates. If only the last iterate is released, the noise of all later steps hides the
record. The effect can be computed without data.
"""

# %%
# One pass over 300 records, each used in one step whose noise equals its sensitivity. Kappa is step
# size times penalty weight: a large kappa hides more, and shortens the steps.
import matplotlib.pyplot as plt
import numpy as np

from skdpadmm import DPAdmmLasso
from skdpadmm.algorithms import GradientADMM
from skdpadmm.privacy import (
    AmplifiedIteration,
    GaussianDP,
    amplification_constant,
    mixture_of_slots,
    single_use_mu,
)

DELTA, N, RATIO = 1e-6, 300, 1.0
by_position = {
    f"ADMM, kappa {kappa:g}": AmplifiedIteration(RATIO, amplification_constant(kappa)).slots(
        np.arange(N), N
    )
    for kappa in (0.3, 1.0, 10.0)
}
by_position["gradient descent"] = single_use_mu(RATIO, N)
fig, ax = plt.subplots()
for name, mu in by_position.items():
    epsilons = [GaussianDP(float(value)).epsilon(DELTA) for value in mu]
    ax.loglog(np.arange(N, 0, -1), epsilons, label=name)
    random = mixture_of_slots(mu).epsilon(DELTA)
    print(f"{name:18} first {epsilons[0]:.3f}, last {epsilons[-1]:.2f}, random {random:.2f}")
ax.invert_xaxis()
ax.set_yticks([0.3, 1, 3], [0.3, 1, 3])
ax.minorticks_off()
ax.set(xlabel="steps from a record's own to the end", ylabel=f"epsilon at delta {DELTA:g}")
ax.set_title("Early records are protected best")
ax.legend()
plt.show()

# %%
# The last records have few steps after them. If the order is secret, the guarantee is the mean of
# delta over positions. That is the budget of a plan, which also shows the worst position.
for passes in (1, 3, 10):
    model = DPAdmmLasso(alpha=0.01, algorithm=GradientADMM(passes=passes), delta=DELTA)
    path = model.set_params(feature_bounds=(-1, 1), target_bounds=(-1, 1)).plan(N, 5).releases[-1]
    worst = path.view().worst_cases[0].epsilon(DELTA)
    print(f"{passes:2} passes: {path.guarantee.epsilon(DELTA):.2f}, at the worst {worst:.2f}")
