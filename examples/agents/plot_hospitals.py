"""
Hospitals that keep their rows
==============================

Forty hospitals train one model through a server. Who sees what decides how much noise is needed:
against a server that sees each message, every hospital hides its rows alone.
"""

# %%
# Hospitals of very different sizes; labels say who owns each row.
import matplotlib.pyplot as plt
import numpy as np

from skdpadmm import DPAdmmLogisticRegression, DPFedLogisticRegression
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
# One mechanism, three observers: "server" sees every message, "sums" their sums (by secure
# aggregation), "model" what comes out. The budget is spent against the one that ``adversary``
# names, and the plan has the epsilon against each.
print("epsilon against    server    sums   model")
for adversary in ("server", "sums", "model"):
    plan = DPFedLogisticRegression(epsilon=1.0, adversary=adversary, **known).plan(
        n_samples=n, n_features=8, agent_sizes=sizes
    )
    seen = [plan.guarantee(observer).epsilon(1e-6) for observer in ("server", "sums", "model")]
    print(f"spent against {adversary:8}" + "".join(f"{value:8.3f}" for value in seen))

# %%
# What each costs in accuracy, beside a curator who holds all rows.
epsilons = [0.1, 0.3, 1.0, 3.0]
fig, ax = plt.subplots(figsize=(6.6, 4.2), layout="constrained")
models = {f'adversary="{name}"': {"adversary": name} for name in ("server", "sums", "model")}
for name, choices in models.items():
    model = DPFedLogisticRegression(max_iter=25, **known, **choices)
    scores = [
        model.set_params(epsilon=epsilon).fit(X, y, agents=hospitals).score(X_test, y_test)
        for epsilon in epsilons
    ]
    ax.semilogx(epsilons, scores, "o-", label=name)
curator = DPAdmmLogisticRegression(**known)
scores = [curator.set_params(epsilon=e).fit(X, y).score(X_test, y_test) for e in epsilons]
ax.semilogx(epsilons, scores, "k--", label="a trusted curator")
ax.set(xlabel="epsilon", ylabel="accuracy on held-out rows")
ax.legend()
plt.show()
