"""
Learning from a stream
======================

Records arrive in pieces and each is used once. With noise that cancels in sums of gradients, a
stream is nearly as accurate as one fit of all stored records. Steps with independent noise need
many more records.
"""

# %%
# Two classes, and ranges of columns that are known before any record. The test rows are public.
import pickle

import numpy as np
from matplotlib import pyplot as plt
from sklearn.base import clone

from skdpadmm import DPAdmmLogisticRegression
from skdpadmm.algorithms import GradientADMM

rng, n_records = np.random.default_rng(0), 15_000
X = rng.uniform(-1, 1, size=(n_records + 5_000, 5))
y = (X @ [2.0, -2.0, 1.0, 0.0, 0.0] + 0.5 * rng.logistic(size=len(X)) > 0).astype(int)
X_test, y_test = X[n_records:], y[n_records:]
stored = DPAdmmLogisticRegression(epsilon=1.0, classes=[0, 1], feature_bounds=(-1, 1))

# %%
# You may read the model after each piece: the guarantee holds against an observer of all states.
sizes = np.unique(np.geomspace(500, n_records, 8).astype(int))
pieces = np.split(np.arange(n_records), sizes)[:-1]
algorithms = {
    "stream, dual averaging": "dual-averaging",
    "stream, gradient ADMM": GradientADMM(schedule="stream", horizon=n_records),
}
scores = {name: [] for name in ("one fit of stored records", *algorithms)}
for seed in range(2):
    for name, algorithm in algorithms.items():
        stream = clone(stored).set_params(algorithm=algorithm, random_state=seed)
        scores[name].append(
            [stream.partial_fit(X[piece], y[piece]).score(X_test, y_test) for piece in pieces]
        )
    fits = [clone(stored).set_params(random_state=seed).fit(X[:n], y[:n]) for n in sizes]
    scores["one fit of stored records"].append([fit.score(X_test, y_test) for fit in fits])

# %%
fig, ax = plt.subplots()
for name, found in scores.items():
    ax.plot(sizes, 100 * np.mean(found, axis=0), marker="o", label=name)
ax.axhline(100 * max(y_test.mean(), 1 - y_test.mean()), color="0.35", ls=":", label="constant")
ax.set(xscale="log", xlabel="records so far", ylabel="accuracy in percent")
ax.set_title("Noise that cancels makes streams accurate")
ax.legend()
plt.show()

# %%
# A pickle has no private values. The stream that is loaded continues with a new block of noise and
# the same guarantee.
stream = clone(stored).set_params(algorithm="dual-averaging")
stream.partial_fit(X[:1000], y[:1000])
loaded = pickle.loads(pickle.dumps(stream)).partial_fit(X[1000:2000], y[1000:2000])
print(loaded.privacy_.epsilon() <= 1.0, loaded.n_samples_seen_)

# %%
# The report of the stream:
loaded.privacy_
