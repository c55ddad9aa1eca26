"""
Secure aggregation by secret sharing
====================================

Agents split each message into random shares, so that others learn the sum of all messages and
nothing else. Each agent adds a part of the noise; the noise of all who do not collude hides it.
"""

# %%
# The plan has three observers: an eavesdropper, four peers who collude, and the public.
import matplotlib.pyplot as plt
import numpy as np

from skdpadmm import DPDecentralizedClassifier
from skdpadmm.algorithms import SecretSharingGradientDescent

known = {"classes": [0, 1], "feature_bounds": (-1, 1), "topology": "erdos-renyi", "n_agents": 20}
model = DPDecentralizedClassifier(
    epsilon=1.0, algorithm=SecretSharingGradientDescent(), coalition=4, **known
)
model.plan(n_samples=10_000, n_features=5)

# %%
# At the same epsilon, sums cost less accuracy than messages that neighbours can read.
rng = np.random.default_rng(0)


def rows(n):
    X = rng.uniform(-1, 1, (n, 5))
    return X, (X @ np.linspace(1, -1, 5) + 0.3 * rng.logistic(size=n) > 0).astype(int)


X, y = rows(10_000)
X_test, y_test = rows(20_000)
epsilons = [0.1, 0.3, 1.0, 3.0]
fig, ax = plt.subplots()
for algorithm in ("secret-sharing-gradient-descent", "multi-step-admm", "randomized-admm"):
    model = DPDecentralizedClassifier(algorithm=algorithm, max_iter=50, **known)
    found = [model.set_params(epsilon=e).fit(X, y).score(X_test, y_test) for e in epsilons]
    ax.semilogx(epsilons, found, "o-", label=algorithm)
ax.axhline(max(y_test.mean(), 1 - y_test.mean()), color="0.4", linestyle=":", label="constant")
ax.set_xticks(epsilons, epsilons)
ax.minorticks_off()
ax.set(xlabel="epsilon", ylabel="accuracy on held-out rows")
ax.set_title("Hidden messages need less noise")
ax.legend()
plt.show()
