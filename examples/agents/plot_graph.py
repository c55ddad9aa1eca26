"""
Agents on a graph
=================

Without a server agents talk to their neighbours. The budget is against an eavesdropper on every
edge, so the graph changes what they learn, and not what others learn of them.
"""

# %%
# Graphs of 25 agents. The spectral gap says how fast they agree: after each exchange at most
# ``1 - gap`` of their disagreement is left.
import matplotlib.pyplot as plt
import numpy as np

from skdpadmm import DPDecentralizedRegressor
from skdpadmm.inspection import plot_network
from skdpadmm.network import mixing_matrix, resolve_topology

graphs = {name: resolve_topology(name, np.arange(25)) for name in ("complete", "torus", "ring")}
fig, axes = plt.subplots(1, 3, figsize=(9, 3.2), layout="constrained")
for ax, (name, graph) in zip(axes, graphs.items(), strict=True):
    plot_network(graph, ax=ax)
    ax.set_title(f"{name}, gap {mixing_matrix(graph).spectral_gap:.3f}")
plt.show()

# %%
# Rows of agents differ: each has its own part of the space.
rng = np.random.default_rng(0)
agents = np.repeat(np.arange(25), 200)
X = rng.uniform(-1, 1, (len(agents), 4))
X[:, 0] = np.clip(X[:, 0] / 4 + np.linspace(-0.75, 0.75, 25)[agents], -1, 1)
y = X @ [1.0, -1.0, 0.5, 0.0] + rng.normal(0, 0.3, len(agents))
X_test = rng.uniform(-1, 1, (5_000, 4))
y_test = X_test @ [1.0, -1.0, 0.5, 0.0]

# %%
# More rounds at the same epsilon: each has more noise, and agents come closer to each other.
rounds = [2, 5, 10, 30]
fig, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
for name, graph in graphs.items():
    model = DPDecentralizedRegressor(
        epsilon=2.0, feature_bounds=(-1, 1), target_bounds=(-3, 3), topology=graph.adjacency
    )
    scores, apart = [], []
    for k in rounds:
        model.set_params(max_iter=k).fit(X, y, agents=agents)
        scores.append(model.score(X_test, y_test))
        apart.append(model.consensus_error_)
    left.plot(rounds, scores, "o-", label=name)
    right.semilogy(rounds, apart, "o-", label=name)
left.set(xlabel="rounds", ylabel="R2 of the average model")
right.set(xlabel="rounds", ylabel="distance of agents from the average")
left.legend()
plt.show()
print(model.privacy_)
