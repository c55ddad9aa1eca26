"""
Learning from a stream
======================

Records arrive in pieces and each is used once, in a step whose noise hides a whole record. At the
same epsilon, a stream needs many more records than one fit of all stored records.
"""

# %%
# Two classes, and ranges of columns that are known before any record. The test rows are public.
import numpy as np
from matplotlib import pyplot as plt
from sklearn.base import clone

from skdpadmm import DPAdmmLogisticRegression
from skdpadmm.algorithms import GradientADMM

rng, n_records = np.random.default_rng(0), 15_000
X = rng.uniform(-1, 1, size=(n_records + 5_000, 5))
y = (X @ [2.0, -2.0, 1.0, 0.0, 0.0] + 0.5 * rng.logistic(size=len(X)) > 0).astype(int)
X_test, y_test = X[n_records:], y[n_records:]
batch = DPAdmmLogisticRegression(epsilon=1.0, classes=[0, 1], feature_bounds=(-1, 1))

# %%
# You may read the model after each piece: the guarantee holds against an observer of all states.
sizes = np.unique(np.geomspace(500, n_records, 8).astype(int))
stream_scores, batch_scores = [], []
for seed in range(2):
    stream = clone(batch).set_params(
        algorithm=GradientADMM(schedule="stream", horizon=n_records), random_state=seed
    )
    scores = []
    for piece in np.split(np.arange(n_records), sizes)[:-1]:
        stream.partial_fit(X[piece], y[piece])
        scores.append(stream.score(X_test, y_test))
    stream_scores.append(scores)
    stored = clone(batch).set_params(random_state=seed)
    batch_scores.append([stored.fit(X[:n], y[:n]).score(X_test, y_test) for n in sizes])

# %%
fig, ax = plt.subplots()
for name, found in (("one fit of stored records", batch_scores), ("stream", stream_scores)):
    ax.plot(sizes, 100 * np.mean(found, axis=0), marker="o", label=name)
ax.axhline(100 * max(y_test.mean(), 1 - y_test.mean()), color="0.35", ls=":", label="constant")
ax.set(xscale="log", xlabel="records so far", ylabel="accuracy in percent")
ax.set_title("A stream needs many more records")
ax.legend()
plt.show()

# %%
# The report of the stream:
stream.privacy_
