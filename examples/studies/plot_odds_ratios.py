"""
Odds ratios with confidence intervals
=====================================

A private logistic regression on a table, with odds ratios in the units of its columns.
"""

# %%
# The rows are made here, so the true odds ratios are known. The schema comes from the code book,
# not from the data; the category that it leaves out is the reference.
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.pipeline import make_pipeline

from skdpadmm import DPAdmmLogisticRegression
from skdpadmm.inference import summary
from skdpadmm.inspection import CoefficientDisplay
from skdpadmm.preprocessing import PublicTableTransformer

rng, n = np.random.default_rng(0), 20_000
table = pd.DataFrame({"age": rng.uniform(20, 80, n), "visits": rng.poisson(2, n)})
table["smoker"] = rng.random(n) < 0.3
table["region"] = rng.choice(["north", "south", "west"], n)
score = 0.03 * (table["age"] - 50) + 0.1 * table["visits"] + 0.7 * table["smoker"]
score -= 0.4 * (table["region"] == "west") + 0.5
y = score + rng.logistic(size=n) > 0

schema = {"age": (20, 80), "visits": (0, 10), "smoker": bool, "region": ["south", "west"]}
model = DPAdmmLogisticRegression(
    epsilon=3.0, C=1e6, classes=[False, True], feature_bounds=(-1, 1), intervals=True
)

# %%
# Before any data is read the plan states what intervals cost and how wide they will be.
model.plan(n_samples=n, n_features=5)

# %%
# The fit spends epsilon 3 once, for the model and its intervals together.
pipeline = make_pipeline(PublicTableTransformer(schema), model).fit(table, y)
summary(pipeline)

# %%
# The forest plot, with the true odds ratios as crosses.
display = CoefficientDisplay.from_estimator(pipeline)
display.ax_.plot(np.exp([0.03, 0.1, 0.7, 0.0, -0.4]), range(5), "x", label="truth")
display.ax_.set_title("Odds ratios at epsilon 3")
display.ax_.legend(loc="lower right")
plt.show()
