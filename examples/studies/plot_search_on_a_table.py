"""
Private search on a table
=========================

The search takes text, categories and missing values as they are. Its plan shows what it will spend
before it sees a row, and its report what it did spend.
"""

# %%
# A table with a city, free text, and missing ages.
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.compose import ColumnTransformer
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from skdpadmm import DPAdmmLogisticRegression, privacy_report
from skdpadmm.inspection import TradeOffDisplay
from skdpadmm.model_selection import DPGridSearchCV
from skdpadmm.preprocessing import PublicTableTransformer, Range

rng = np.random.default_rng(0)
age, city = rng.uniform(20, 80, 4000), rng.choice(["Oslo", "Bergen", "Tromso"], 4000)
y = (age + 20 * (city == "Oslo") + rng.normal(0, 5, 4000) > 55).astype(int)
table = pd.DataFrame({"age": age, "city": city, "note": np.where(y, "went again", "went once")})
table.loc[::50, "age"] = np.nan

# %%
# The transformers learn nothing: all they use is public.
public = PublicTableTransformer(
    {"age": Range(0, 120, missing=50), "city": ["Bergen", "Oslo", "Tromso"]}
)
columns = ColumnTransformer(
    [
        ("public", public, ["age", "city"]),
        ("note", HashingVectorizer(n_features=8), "note"),
    ],
    sparse_threshold=0,
)
model = DPAdmmLogisticRegression(classes=[0, 1], feature_bounds=(-1, 1), max_iter=20)
pipeline = Pipeline([("columns", columns), ("model", model)])

# %%
# The plan needs the names of the columns and no data.
search = DPGridSearchCV(pipeline, {"model__C": [0.01, 1.0]}, epsilon=2.0, delta=1e-5)
search.plan(n_samples=len(table), columns=list(table.columns))

# %%
search.fit(table, y)
print(f"{search.best_params_}, noisy score {search.best_score_:.3f}")
privacy_report(search)

# %%
# Attacks on one row make these errors, even if they use the scores, the choice and the model.
TradeOffDisplay.from_estimator(search).ax_.set_title("One curve for search and model")
plt.show()

# %%
# A pipeline whose scaler learns from the rows has no guarantee.
numbers = table[["age"]].fillna(50.0)
privacy_report(make_pipeline(StandardScaler(), model).fit(numbers, y))
