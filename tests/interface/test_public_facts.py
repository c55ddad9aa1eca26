"""What a fit says, and what it accepts, follows from public facts and not from values of data."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Binarizer, FunctionTransformer, Normalizer

from skdpadmm import DPAdmmLogisticRegression, DPAdmmRidge, DPFedRidge
from skdpadmm.algorithms import GradientADMM
from skdpadmm.model_selection import DPGridSearchCV

RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, (30, 2))
STREAM = {"algorithm": GradientADMM(schedule="stream"), "random_state": 0}
SHORT = {"max_iter": 2, "random_state": 0}


def test_declared_classes_are_never_warned_of_however_many_are_seen():
    # scikit-learn warns of more distinct labels than half of the records.
    model = DPAdmmLogisticRegression(classes=range(20), **SHORT)
    search = DPGridSearchCV(model, {"C": [0.1, 1.0]}, epsilon=1e4, random_state=0)
    y = np.arange(30) % 16
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.fit(X, y)
        search.fit(X, y)


def test_a_stream_refuses_bounds_that_swap_columns():
    model = DPAdmmRidge(feature_bounds=([-1, -10], [1, 10]), **STREAM).partial_fit(X, X[:, 0])
    coef = model.coef_.copy()
    with pytest.raises(ValueError, match="parameters"):
        model.set_params(feature_bounds=([-10, -1], [10, 1])).partial_fit(X, X[:, 0])
    np.testing.assert_array_equal(model.coef_, coef)


def search_over(*steps, model=None):
    model = DPAdmmRidge(**SHORT) if model is None else model
    name = type(model).__name__.lower()
    grid = {f"{name}__alpha": [0.1, 1.0]}
    return DPGridSearchCV(
        make_pipeline(*steps, model), grid, epsilon=1e4, score_bounds=(-4, 0), random_state=0
    )


class Centred(Normalizer):
    def transform(self, X, copy=None):
        return X - X.mean(axis=0)


@pytest.mark.parametrize(
    "step",
    [
        FunctionTransformer(lambda X: X - X.mean(0)),
        FunctionTransformer(np.add, kw_args={"x2": 1}),
        FunctionTransformer(np.frompyfunc(float, 1, 1)),
        Centred(),
        ColumnTransformer([("all", FunctionTransformer(np.sort), [0, 1])], sparse_threshold=0),
        make_pipeline(Binarizer(), FunctionTransformer(np.cumsum)),
    ],
    ids=lambda step: type(step).__name__,
)
def test_a_private_search_refuses_transformers_not_known_to_act_on_each_row_by_itself(step):
    search = search_over(step)
    with pytest.raises(ValueError, match="each row by itself"):
        search.fit(X, X[:, 0])
    assert not hasattr(search, "best_estimator_")


@pytest.mark.parametrize("partition", ["sorted", lambda X, y: np.arange(len(y)) % 3])
def test_a_private_search_refuses_owners_that_depend_on_labels(partition):
    model = DPFedRidge(partition=partition, adversary="model", **SHORT)
    with pytest.raises(ValueError, match="labels of all rows"):
        search_over(Normalizer(), model=model).fit(X, X[:, 0])


def assumptions(model):
    return " ".join(model.fit(X, X[:, 0]).privacy_.assumptions)


def test_the_report_defines_the_null_record_of_zero_out_and_of_nothing_else():
    assert "counts as absent" in assumptions(DPAdmmRidge(neighboring="zero_out", **SHORT))
    assert "counts as absent" not in assumptions(DPAdmmRidge(**SHORT))
