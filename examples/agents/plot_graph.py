"""
Agents on a graph
=================

Without a server, agents send messages to their neighbours. The budget holds against an eavesdropper
on every edge. So the graph changes how well agents learn, not how well they are protected.
"""

# %%
# Graphs of 25 agents. The larger the spectral gap, the faster agents agree: each exchange leaves at
# most ``1 - gap`` of their disagreement.
import matplotlib.pyplot as plt
import numpy as np

from skdpadmm import DPDecentralizedRegressor
from skdpadmm.inspection import TopologyDisplay
from skdpadmm.network import mixing_matrix, resolve_topology

graphs = {name: resolve_topology(name, np.arange(25)) for name in ("complete", "torus", "ring")}
fig, axes = plt.subplots(1, 3, figsize=(7.6, 3))
for ax, (name, graph) in zip(axes, graphs.items(), strict=True):
    TopologyDisplay.from_estimator(graph, ax=ax)
    ax.set_title(f"{name}, gap {mixing_matrix(graph).spectral_gap:.2f}")
plt.show()

# %%
# Each agent has its own part of the space.
rng = np.random.default_rng(0)
agents = np.repeat(np.arange(25), 200)
X = rng.uniform(-1, 1, (len(agents), 4))
X[:, 0] = np.clip(X[:, 0] / 4 + np.linspace(-0.75, 0.75, 25)[agents], -1, 1)
y = X @ [1.0, -1.0, 0.5, 0.0] + rng.normal(0, 0.3, len(agents))

# %%
# More rounds at the same epsilon mean more noise in each, but bring agents closer to each other.
rounds = [2, 5, 10, 30]
fig, ax = plt.subplots()
for name, graph in graphs.items():
    model = DPDecentralizedRegressor(
        epsilon=2.0, feature_bounds=(-1, 1), target_bounds=(-3, 3), topology=graph.adjacency
    )
    apart = [model.set_params(max_iter=k).fit(X, y, agents=agents).consensus_error_ for k in rounds]
    ax.semilogy(rounds, apart, "o-", label=name)
ax.set(xlabel="rounds", ylabel="distance from the average model")
ax.set_title("Agents on a ring agree more slowly")
ax.legend()
plt.show()

# %%
# The report of the last fit. On a ring a peer sees little of what an eavesdropper sees.
model.privacy_
