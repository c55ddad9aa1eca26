"""
Tables with categories and missing values
=========================================

A public schema maps numbers, categories and missing values to [-1, 1]. Nothing is learned before
the private fit, so ``privacy_`` covers the whole pipeline.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline

from skdpadmm import DPAdmmLogisticRegression
from skdpadmm.preprocessing import PublicTableTransformer, Range

rng, n = np.random.default_rng(0), 5_000
table = pd.DataFrame(
    {"age": rng.uniform(18, 90, n), "income": np.exp(rng.normal(10, 1, n))}
    | {"city": rng.choice(["Oslo", "Bergen", "Bodø", None], n), "smoker": rng.random(n) < 0.3}
)
score = (table["age"] - 54) / 15 - 1.5 * (np.log(table["income"]) - 10) + 2 * table["smoker"]
score += table["city"].map({"Oslo": -1.5, "Bergen": 1.0}).astype(float).fillna(0.0)
y = (score + rng.logistic(size=n) > 0).to_numpy(dtype=int)
table.loc[rng.random(n) < 0.2, "income"] = np.nan
train, test, y_train, y_test = train_test_split(table, y, random_state=0)
train.head()

# %%
# Codes and zeros in place of strings and missing values make a private fit useless. Rows are
# clipped to a norm, so an income of 20,000 leaves nothing of the other columns.
codes, test_codes = (pd.get_dummies(rows, columns=["city"]).fillna(0.0) for rows in (train, test))
model = DPAdmmLogisticRegression(epsilon=1.0, delta=1e-5, classes=[0, 1])
naive = model.fit(codes, y_train).score(test_codes, y_test)

# %%
# A schema states what each column can contain, from its meaning and never from the data.
schema = {
    "age": (0, 120),
    "income": Range(1_000, 1_000_000, log=True, missing="middle"),
    "city": ["Oslo", "Bergen", "Bodø"],
    "smoker": bool,
}
pipeline = make_pipeline(PublicTableTransformer(schema), model.set_params(feature_bounds=(-1, 1)))
scores = {"constant": max(y_test.mean(), 1 - y_test.mean()), "without a schema": naive}
scores["private"] = pipeline.fit(train, y_train).score(test, y_test)
report = pipeline[-1].privacy_
pipeline.set_params(dpadmmlogisticregression__epsilon=float("inf")).fit(train, y_train)
scores["not private"] = pipeline.score(test, y_test)

# %%
fig, ax = plt.subplots()
bars = ax.barh(list(scores), list(scores.values()), color=["C3", "C3", "C0", "C3"])
ax.bar_label(bars, fmt="%.2f", padding=3)
ax.set(xlabel="accuracy on held-out rows", xlim=(0, 1), title="The schema makes the difference")
ax.invert_yaxis()
plt.show()

# %%
# The report of the private fit:
report
