"""
Survival in discrete time
=========================

A hazard is a logistic regression with a row for each month in which a person is at risk. All rows
of a person are protected together.
"""

# %%
# Half of 10,000 people get a treatment that halves the odds of an event in each of twelve months,
# and in each month a few leave the study. The rows are made here, so the odds ratios are known.
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from scipy.special import expit
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from skdpadmm import DPAdmmLogisticRegression
from skdpadmm.inference import summary
from skdpadmm.preprocessing import PublicTableTransformer

rng, n, n_months = np.random.default_rng(0), 10_000, 12
treated, age = rng.random(n) < 0.5, rng.uniform(30, 80, n)
months, person = np.meshgrid(np.arange(1.0, n_months + 1), np.arange(n))
score = -2.5 - 0.05 * months + 0.03 * (age[person] - 55) + np.log(0.5) * treated[person]
event = score + rng.logistic(size=score.shape) > 0
leaves = rng.random(score.shape) < 0.02
at_risk = np.cumsum(event | leaves, axis=1) - (event | leaves) == 0

# %%
# ``persons`` gives every person the same weight, so every person needs the same number of rows:
# with fewer rows each would count more. Rows after the end are all alike, with labels that
# alternate. A column of their own absorbs them, and the other odds ratios stay those of the months
# at risk. This also hides how many months a person was at risk.
periods = pd.DataFrame({
    "month": np.where(at_risk, months, 6.5).ravel(),
    "age": np.where(at_risk, age[person], 55.0).ravel(),
    "treated": (at_risk & treated[person]).ravel(),
    "ended": ~at_risk.ravel(),
})  # fmt: skip
happened = np.where(at_risk, event, months % 2 == 0).ravel()

schema = {"month": (1, n_months), "age": (30, 80), "treated": bool, "ended": bool}
model = DPAdmmLogisticRegression(
    C=1e6,
    epsilon=3.0,
    classes=[False, True],
    feature_bounds=(-1, 1),
    max_rows_per_person=n_months,
    intervals=True,
    random_state=0,
)
private = make_pipeline(PublicTableTransformer(schema), model)
private.fit(periods, happened, dpadmmlogisticregression__persons=person.ravel())
summary(private)

# %%
# The true odds ratios are 0.95 for a month, 1.03 for a year of age, and 0.5 for the treatment.
# Survival follows from the hazards of the table; the dashed lines are a fit without privacy, of the
# months at risk alone.
exact = make_pipeline(PublicTableTransformer(schema), LogisticRegression(C=1e6))
exact.fit(periods[~periods["ended"]], happened[~periods["ended"]])
new = pd.DataFrame({"month": np.tile(np.arange(1.0, 13), 2), "age": 55.0})
new["treated"], new["ended"] = np.repeat([False, True], 12), False
log_odds = new.assign(intercept=1.0).to_numpy(float) @ summary(private).estimate
curves = {"epsilon 3": expit(log_odds), "without privacy": exact.predict_proba(new)[:, 1]}
figure, ax = plt.subplots()
for (label, hazards), style in zip(curves.items(), ("-", "--"), strict=True):
    for arm, name in enumerate(("control", "treated")):
        survival = np.append(1.0, np.cumprod(1 - hazards[12 * arm : 12 * arm + 12]))
        ax.step(range(13), survival, style, color=f"C{arm}", where="post", label=f"{name}, {label}")
ax.set(xlabel="month", ylabel="share without an event", title="Survival at age 55")
ax.legend()
plt.show()
