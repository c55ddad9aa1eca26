"""
Hospitals that keep their rows
==============================

Forty hospitals train one model through a server. How much noise they need depends on what the
server sees and on whether hospitals trust each other: alone, each has to hide its rows by itself.
"""

# %%
# Hospitals of very different sizes; labels say who owns each row.
import matplotlib.pyplot as plt
import numpy as np

from skdpadmm import DPAdmmLogisticRegression, DPFedLogisticRegression
from skdpadmm.algorithms import FederatedADMM
from skdpadmm.network import agent_sizes

rng, n = np.random.default_rng(0), 8_000


def rows(n):
    X = rng.uniform(-1, 1, size=(n, 8))
    return X, (X @ np.linspace(2, -2, 8) + rng.logistic(size=n) > 0).astype(int)


X, y = rows(n)
X_test, y_test = rows(10_000)
sizes = agent_sizes("quantity", n_samples=n, n_agents=40)
hospitals = np.repeat([f"hospital {k:02d}" for k in range(40)], sizes)
known = {"classes": [0, 1], "feature_bounds": (-1, 1), "delta": 1e-6}

# %%
# ``adversary`` names the observer against whom the budget holds: a server that sees every message,
# one that sees only their sums (secure aggregation), or the public, who sees the model. Against a
# server that sees every message, hospitals share noise that cancels in sums.
DPFedLogisticRegression(epsilon=1.0, adversary="server", **known).plan(
    n_samples=n, n_features=8, agent_sizes=sizes
)

# %%
# Accuracy with each of them, with hospitals that share no noise (``edge_noise=0``), and with a
# curator who holds all rows. Start with the most trust you
# can justify; the plan shows how much more noise less trust would need.
epsilons = [0.06, 0.2, 0.6, 2.0]
fig, ax = plt.subplots()
fits = {"curator": DPAdmmLogisticRegression(**known)} | {
    f'adversary="{name}"': DPFedLogisticRegression(adversary=name, max_iter=25, **known)
    for name in ("model", "sums", "server")
}
alone = FederatedADMM(edge_noise=0)
fits["server, no shared noise"] = DPFedLogisticRegression(algorithm=alone, max_iter=25, **known)
for name, model in fits.items():
    owners = {} if name == "curator" else {"agents": hospitals}
    scores = [
        [model.set_params(epsilon=e).fit(X, y, **owners).score(X_test, y_test) for _ in range(3)]
        for e in epsilons
    ]
    ax.semilogx(epsilons, np.mean(scores, axis=1), "o-", label=name)
ax.set_xticks(epsilons, epsilons)
ax.minorticks_off()
ax.set(xlabel="epsilon", ylabel="accuracy, mean of 3 fits")
ax.set_title("Hospitals that trust nobody lose accuracy")
ax.legend()
plt.show()
