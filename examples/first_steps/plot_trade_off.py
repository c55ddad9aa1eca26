"""
Trade-off curves
================

A guarantee is a curve. An attack that tells two neighbouring data sets apart makes false positives
and false negatives, and cannot make few of both. Guarantees with the same epsilon can differ.
"""

# %%
import matplotlib.pyplot as plt
import numpy as np

from skdpadmm.privacy import GaussianDP, LaplaceDP, compose, gaussian_mu

DELTA, alpha = 1e-5, np.linspace(0, 1, 201)
one = GaussianDP(gaussian_mu(1.0, DELTA))
guarantees = {
    "Gaussian noise, epsilon 1": one,
    "two such fits": compose(one, one),
    "Laplace noise, epsilon 1": LaplaceDP(1.0),
}
fig, ax = plt.subplots()
ax.plot(alpha, 1 - alpha, ":", color="0.4", label="coin flip")
for name, guarantee in guarantees.items():
    ax.plot(alpha, guarantee.trade_off(alpha), label=name)
    accuracy = guarantee.attack_accuracy()
    print(f"{name:26} epsilon {guarantee.epsilon(DELTA):.2f}, right at most {accuracy:.1%}")
ax.set(xlabel="false positives", ylabel="false negatives, at least")
ax.set_title("Laplace and Gaussian noise differ at epsilon 1")
ax.legend()
plt.show()
