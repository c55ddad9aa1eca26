"""scikit-learn's own checks, as far as they apply to a search."""

from __future__ import annotations

import pytest
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

from skdpadmm import DPAdmmLogisticRegression
from skdpadmm.model_selection import DPGridSearchCV
from skdpadmm.preprocessing import BoundedScaler

PIPELINE = make_pipeline(BoundedScaler(), DPAdmmLogisticRegression(max_iter=3))
GRID = DPGridSearchCV(PIPELINE, {"dpadmmlogisticregression__C": [0.1, 1.0]})
# The checks have a few rows, of which a fifth validates.
pytestmark = pytest.mark.filterwarnings("ignore:Got scores with noise:UserWarning")


@parametrize_with_checks([GRID])
def test_estimator_check_of_scikit_learn(estimator, check):
    check(estimator)
