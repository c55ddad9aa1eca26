"""
Secure aggregation by secret sharing
====================================

Agents split each message into random shares, so that others learn the sum of all messages and
nothing else. Each adds a part of the noise, and the noise of all who are not in league hides it.
"""

# %%
# The same noise, three observers: messages in the open, four peers in league, and the public.
import matplotlib.pyplot as plt
import numpy as np

from skdpadmm import DPDecentralizedClassifier
from skdpadmm.algorithms import SecretSharingGradientDescent
from skdpadmm.privacy import GaussianDP

known = {"classes": [0, 1], "feature_bounds": (-1, 1), "topology": "erdos-renyi", "n_agents": 20}
model = DPDecentralizedClassifier(
    epsilon=1.0, algorithm=SecretSharingGradientDescent(), coalition=4, conditioning=None, **known
)
plan = model.plan(n_samples=10_000, n_features=5)
print(plan)

# %%
path = plan.releases[-1]
own = path.sensitivities[0] / path.agent_noise_std[0] * np.sqrt(len(path.sensitivities))
for name, mu in {
    "messages in the open": own,
    "four peers in league": plan.guarantee("peer").mu,
    "the public, who sees models": plan.guarantee("model").mu,
}.items():
    print(f"{name:30} epsilon {GaussianDP(mu).epsilon(1e-5):6.2f}")

# %%
# Sums cost less accuracy at the same epsilon than messages that neighbours can read.
rng = np.random.default_rng(0)


def rows(n):
    X = rng.uniform(-1, 1, (n, 5))
    return X, (X @ np.linspace(1, -1, 5) + 0.3 * rng.logistic(size=n) > 0).astype(int)


X, y = rows(10_000)
X_test, y_test = rows(20_000)
epsilons = [0.1, 0.3, 1.0, 3.0]
fig, ax = plt.subplots(figsize=(6.6, 4.2), layout="constrained")
for algorithm in ("secret-sharing-gradient-descent", "multi-step-admm", "randomized-admm"):
    model = DPDecentralizedClassifier(algorithm=algorithm, max_iter=50, **known)
    found = [model.set_params(epsilon=e).fit(X, y).score(X_test, y_test) for e in epsilons]
    ax.semilogx(epsilons, found, "o-", label=algorithm)
ax.axhline(max(y_test.mean(), 1 - y_test.mean()), color="0.4", linestyle=":", label="constant")
ax.set(xlabel="epsilon", ylabel="accuracy on held-out rows")
ax.legend()
plt.show()
