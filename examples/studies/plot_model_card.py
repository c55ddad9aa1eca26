"""
Export and a model card
=======================

A fitted model becomes a plain scikit-learn estimator, for tools such as ONNX or skops, and its
report becomes a section of a model card.
"""

# %%
import matplotlib.pyplot as plt
import numpy as np

from skdpadmm import DPAdmmRidge
from skdpadmm.inspection import PrivacyReportDisplay

rng = np.random.default_rng(0)
X = rng.uniform(-1, 1, size=(3_000, 3))
y = X @ [1.0, -0.5, 0.0] + rng.normal(0, 0.2, 3_000)
model = DPAdmmRidge(epsilon=1.0, feature_bounds=(-1, 1), target_bounds=(-2, 2)).fit(X, y)

# %%
# The same coefficients, and nothing else.
plain = model.to_sklearn()
print(plain, plain.coef_.round(2), np.array_equal(plain.predict(X), model.predict(X)))

# %%
# Text for the card, in Markdown.
print(model.privacy_.to_markdown())

# %%
# A picture for the card: epsilon against each observer.
PrivacyReportDisplay.from_estimator(model)
plt.show()
