"""scikit-learn's own checks, as far as they apply to a search."""

from __future__ import annotations

import pytest
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

from skdpadmm import DPAdmmLogisticRegression, DPAdmmRidge
from skdpadmm.model_selection import DPGridSearchCV, DPRandomizedSearchCV
from skdpadmm.preprocessing import BoundedScaler

PIPELINE = make_pipeline(BoundedScaler(), DPAdmmLogisticRegression(max_iter=3))
RIDGE = DPAdmmRidge(max_iter=3)
GRID = DPGridSearchCV(PIPELINE, {"dpadmmlogisticregression__C": [0.1, 1.0]})
RANDOM = DPRandomizedSearchCV(RIDGE, {"alpha": [0.1, 9.0]}, n_iter=2, score_bounds=(-9, 0))
# The checks have a few rows, of which a fifth validates.
pytestmark = pytest.mark.filterwarnings("ignore:Got scores with noise:UserWarning")


@parametrize_with_checks([GRID])
def test_estimator_check_of_scikit_learn(estimator, check):
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks([RANDOM])
def test_estimator_check_of_scikit_learn_of_the_other_search(estimator, check):
    check(estimator)
