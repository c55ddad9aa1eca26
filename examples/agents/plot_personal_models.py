"""
A model for each agent
======================

Agents look for different things, and have few rows each. A personalised model is pulled towards
those of similar agents: the more, the fewer rows its agent has. Similarities are public.
"""

# %%
# Twenty-five agents with 10 to 100 rows, whose targets are directions in the plane.
import matplotlib.pyplot as plt
import numpy as np

from skdpadmm import DPPersonalizedClassifier
from skdpadmm.network import angle_similarity

rng, n_agents = np.random.default_rng(0), 25
targets = rng.standard_normal((n_agents, 2))
owner = np.repeat(np.arange(n_agents), rng.integers(10, 101, n_agents))
X = rng.uniform(-1, 1, (len(owner), 2))
y = np.where(np.einsum("ij,ij->i", X, targets[owner]) > 0, 1, -1)
y = np.where(rng.random(len(y)) < 0.05, -y, y)
X_test = rng.uniform(-1, 1, (n_agents, 200, 2))
y_test = np.where(np.einsum("aij,aj->ai", X_test, targets) > 0, 1, -1)
known = {"classes": [-1, 1], "feature_bounds": (-1, 1), "fit_intercept": False, "alpha": 0.04}
model = DPPersonalizedClassifier(similarity=angle_similarity(targets), trade_off=10.0, **known)


def accuracy(coefs):
    found = np.where(np.einsum("aij,aj->ai", X_test, np.asarray(coefs)) > 0, 1, -1)
    return (found == y_test).mean()


# %%
# Local models learn from own rows alone. "at home" is what an agent makes of its own rows and the
# released models of its neighbours; it stays there, so it costs nothing.
epsilons = [0.1, 1.0, 10.0]
curves = {"local, private": [], "personalised, released": [], "personalised, at home": []}
for epsilon in epsilons:
    alone = DPPersonalizedClassifier(epsilon=epsilon, algorithm="local-models", **known)
    alone.set_params(similarity=model.similarity).fit(X, y, agents=owner)
    model.set_params(epsilon=epsilon).fit(X, y, agents=owner)
    home = model.local_models(X, y, agents=owner)
    curves["local, private"].append(accuracy(alone.coef_per_agent_[:, 0]))
    curves["personalised, released"].append(accuracy(model.coef_per_agent_[:, 0]))
    curves["personalised, at home"].append(accuracy([home[a].coef_[0] for a in range(n_agents)]))
exact = accuracy(model.set_params(epsilon=np.inf).fit(X, y, agents=owner).coef_per_agent_[:, 0])

# %%
fig, ax = plt.subplots(figsize=(6.6, 4.2), layout="constrained")
for name, scores in curves.items():
    ax.semilogx(epsilons, scores, "o-", label=name)
ax.axhline(exact, color="0.3", linestyle="--", label="personalised, not private")
ax.set(xlabel="epsilon", ylabel="mean accuracy on clean rows of each agent")
ax.legend()
plt.show()
