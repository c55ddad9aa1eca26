"""
The errors of the best attack
=============================

A guarantee is a curve: whoever tries to tell which of two neighbouring data sets a model comes from
has false positives and false negatives, and cannot have few of both. Two guarantees with the same
epsilon can differ.
"""

# %%
import matplotlib.pyplot as plt
import numpy as np

from skdpadmm.privacy import GaussianDP, LaplaceDP, compose, gaussian_mu

DELTA, alpha = 1e-5, np.linspace(0, 1, 201)
one = GaussianDP(gaussian_mu(1.0, DELTA))
guarantees = {
    "Gaussian noise, epsilon 1 at delta 1e-5": one,
    "Laplace noise, epsilon 1": LaplaceDP(1.0),
    "two fits with Gaussian noise": compose(one, one),
}
fig, ax = plt.subplots(figsize=(6, 4.6), layout="constrained")
for name, guarantee in guarantees.items():
    ax.plot(alpha, guarantee.trade_off(alpha), label=name)
    accuracy = guarantee.attack_accuracy()
    print(f"{name:42} epsilon {guarantee.epsilon(DELTA):.2f}, right at most {accuracy:.1%}")
ax.plot(alpha, 1 - alpha, "k:", label="a guess")
ax.set(xlabel="false positives", ylabel="false negatives, at least")
ax.legend()
plt.show()
