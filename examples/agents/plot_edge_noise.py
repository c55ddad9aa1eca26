"""
Noise that neighbours share
===========================

On a graph every message is seen, so each needs enough noise to hide a record by itself. If two
neighbours share a part of it, which one adds and the other subtracts, most of it cancels in the
average model.
"""

# %%
# 64 agents with 50 rows each, on a random graph in which everybody has four neighbours.
import matplotlib.pyplot as plt
import numpy as np

from skdpadmm import DPDecentralizedClassifier
from skdpadmm.algorithms import DecentralizedGradientDescent
from skdpadmm.network import honest_messages, resolve_topology

rng, slopes = np.random.default_rng(0), np.linspace(-2, 2, 20)


def rows(n):
    X = rng.uniform(-1, 1, size=(n, 20))
    return X, (X @ slopes + rng.logistic(size=n) > 0).astype(int)


X, y = rows(3_200)
X_test, y_test = rows(10_000)
agents = np.repeat(np.arange(64), 50)
known = {"classes": [0, 1], "feature_bounds": (-1, 1), "penalty": None, "topology": "regular"}

# %%
# The plan states how well the neighbours hide each message, and what that rests on. The budget
# holds against an eavesdropper who knows what one agent knows; ``coalition`` allows for more.
shared = DecentralizedGradientDescent()
DPDecentralizedClassifier(algorithm=shared, **known).plan(3_200, 20, agent_sizes=[50] * 64)

# %%
# Accuracy with and without shared noise, at the same epsilon.
epsilons = [0.5, 1.0, 2.0, 4.0]
fig, ax = plt.subplots()
for label, ratio in {"neighbours share noise": "auto", "independent noise": 0}.items():
    algorithm = DecentralizedGradientDescent(edge_noise=ratio)
    model = DPDecentralizedClassifier(algorithm=algorithm, **known)
    scores = [
        [model.set_params(epsilon=e).fit(X, y, agents=agents).score(X_test, y_test) for _ in "ab"]
        for e in epsilons
    ]
    ax.semilogx(epsilons, np.mean(scores, axis=1), "o-", label=label)
best = np.mean((X_test @ slopes > 0) == y_test)
ax.axhline(best, color="0.6", linestyle="--", label="the true model")
ax.set_xticks(epsilons, epsilons)
ax.minorticks_off()
ax.set(xlabel="epsilon", ylabel="accuracy, mean of 2 fits")
ax.set_title("Noise that neighbours share cancels")
ax.legend()
plt.show()

# %%
# Colluders know what they share. Drawn is the noise of an agent relative to independent noise, at
# the worst coalition. On a ring two colluders isolate an agent; a complete graph only loses them.
fig, ax = plt.subplots()
for name in ("complete", "hypercube", "regular", "ring"):
    graph, counts = resolve_topology(name, np.arange(16)), range(8)
    ax.plot(counts, [honest_messages(graph, k, 100.0) ** -0.5 for k in counts], "o-", label=name)
ax.set(xlabel="agents that collude, of 16", ylabel="noise of an agent", ylim=(0, 1.05))
ax.set_title("Sparse graphs protect against few colluders")
ax.legend()
plt.show()
