"""
A model for each agent
======================

Agents want different models and have few rows each. A personalised model is pulled towards the
models of similar agents, and more strongly if its agent has few rows. Similarities are public.
"""

# %%
# Twenty-five agents with 10 to 100 rows; the target of each is a direction in the plane.
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
# Local models use an agent's own rows alone. "At home" an agent fits its own rows again, beside the
# released models of its neighbours. That model never leaves the agent, so it spends no budget.
epsilons = [0.1, 1.0, 10.0]
curves = {"at home": [], "released": [], "local, private": []}
for epsilon in epsilons:
    alone = DPPersonalizedClassifier(epsilon=epsilon, algorithm="local-models", **known)
    alone.set_params(similarity=model.similarity).fit(X, y, agents=owner)
    model.set_params(epsilon=epsilon).fit(X, y, agents=owner)
    home = model.local_models(X, y, agents=owner)
    curves["at home"].append(accuracy([home[a].coef_[0] for a in range(n_agents)]))
    curves["released"].append(accuracy(model.coef_per_agent_[:, 0]))
    curves["local, private"].append(accuracy(alone.coef_per_agent_[:, 0]))
exact = accuracy(model.set_params(epsilon=np.inf).fit(X, y, agents=owner).coef_per_agent_[:, 0])

# %%
fig, ax = plt.subplots()
ax.axhline(exact, color="0.3", linestyle="--", label="not private")
for name, scores in curves.items():
    ax.semilogx(epsilons, scores, "o-", label=name)
ax.set(xlabel="epsilon", ylabel="mean accuracy of agents")
ax.set_title("At home, a small epsilon is enough")
ax.legend()
plt.show()
