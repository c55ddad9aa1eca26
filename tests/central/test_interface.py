"""The estimators as scikit-learn users meet them: pipelines, grids, names, parameters, errors."""

from __future__ import annotations

import inspect
import io
import math
import os
import pickle
import re
import subprocess
import sys
from contextlib import redirect_stderr
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone, is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.utils._param_validation import InvalidParameterError

import skdpadmm
from skdpadmm import (
    DPAdmmElasticNet,
    DPAdmmHuberRegressor,
    DPAdmmLasso,
    DPAdmmLinearSVC,
    DPAdmmLogisticRegression,
    DPAdmmRidge,
    _fitting,
)
from skdpadmm.algorithms import ConsensusADMM
from skdpadmm.preprocessing import BoundedScaler

ESTIMATORS = [
    DPAdmmRidge,
    DPAdmmLasso,
    DPAdmmElasticNet,
    DPAdmmHuberRegressor,
    DPAdmmLogisticRegression,
    DPAdmmLinearSVC,
]
INVALID_EVERYWHERE = {
    "epsilon": [0, -1.0, math.nan, "1", None],
    "delta": [0, 1, 0.0, 1.0, -1e-5, math.nan, None],
    "neighboring": ["replace-one", "add_remove", "", None],
    "fit_intercept": ["yes", None, 2],
    "algorithm": [3, None, object()],
    "max_iter": [0, -1, 1.5, "100", None],
    "scale": ["auto", "public", True],
    "conditioning": ["public", "none", True, 1],
    "sampler": ["floating_point", "OpenDP", None],
    "n_jobs": ["2", 1.5],
    "ledger": [3, True, b"study.db"],
    "verbose": [-1, "yes", None],
}
INVALID = {
    DPAdmmRidge: {"alpha": [-1e-9, -1, math.nan, math.inf, "1", None]},
    DPAdmmLasso: {"alpha": [-1e-9, -1, math.nan, math.inf, "1", None]},
    DPAdmmElasticNet: {
        "alpha": [-1e-9, -1, math.nan, math.inf, None],
        "l1_ratio": [-0.1, 1.1, math.nan, "half", None],
    },
    DPAdmmHuberRegressor: {
        "alpha": [-1e-9, math.nan, None],
        "huber_threshold": [0, -1.0, math.nan, math.inf, "1", None],
    },
    DPAdmmLinearSVC: {
        "C": [0, -1.0, math.nan, None],
        "smoothing": [0, -1.0, math.nan, math.inf, None],
        "classes": ["ab", 3],
    },
    DPAdmmLogisticRegression: {
        "C": [0, -1.0, math.nan, "1", None],
        "l1_ratio": [-0.1, 1.1, math.nan, "half", None],
        "classes": ["ab", 3],
    },
}
CHECKED_IN_FIT = {"feature_bounds", "target_bounds", "random_state"}
CASES = [
    pytest.param(cls, name, value, id=f"{cls.__name__}-{name}={value!r:.12}")
    for cls in ESTIMATORS
    for name, values in (INVALID_EVERYWHERE | INVALID[cls]).items()
    for value in values
]


@pytest.fixture
def regression():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(200, 3))
    return X, X @ [1.0, -1.0, 0.5]


@pytest.fixture
def classification():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(300, 3))
    return X, (X @ [1.0, -1.0, 0.5] + 0.3 * rng.normal(size=300) > 0).astype(int)


@pytest.fixture(params=ESTIMATORS, ids=lambda cls: cls.__name__)
def estimator(request):
    return request.param()


def plan_of(model, n_samples, n_features):
    if is_classifier(model):
        return model.plan(n_samples, n_features, n_classes=2)
    return model.plan(n_samples, n_features)


def test_every_parameter_of_a_constructor_has_its_case_here():
    for cls in ESTIMATORS:
        names = set(inspect.signature(cls).parameters)
        assert names == set(INVALID_EVERYWHERE | INVALID[cls]) | (CHECKED_IN_FIT & names)


@pytest.mark.parametrize(("cls", "name", "value"), CASES)
def test_an_invalid_parameter_is_named(cls, name, value, classification):
    model = cls(**{name: value})
    message = f"The '{name}' parameter of {cls.__name__} must be"
    with pytest.raises(InvalidParameterError, match=message):
        model.fit(*classification)
    with pytest.raises(InvalidParameterError, match=message):
        plan_of(model, 100, 3)
    assert set(vars(model)) == set(inspect.signature(cls).parameters)


@pytest.mark.parametrize("random_state", ["seed", -1, 2**32, 1.5])
def test_what_is_no_random_state_is_refused(estimator, random_state, classification):
    with pytest.raises(ValueError, match="cannot be used to seed the noise"):
        estimator.set_params(random_state=random_state).fit(*classification)
    assert not hasattr(estimator, "n_features_in_")


def test_opendp_takes_no_seed(estimator, classification):
    with pytest.raises(ValueError, match="expected random_state=None"):
        estimator.set_params(sampler="opendp", random_state=0).fit(*classification)


@pytest.mark.parametrize("name", ["feature_bounds", "target_bounds"])
@pytest.mark.parametrize("bounds", [(1, -1), 3.0, (0, math.inf), ("a", "b")])
def test_wrong_bounds_are_refused_by_fit_and_by_plan(name, bounds, regression):
    model = DPAdmmRidge(**{name: bounds})
    with pytest.raises(ValueError, match=f"Got {name}"):
        model.fit(*regression)
    with pytest.raises(ValueError, match=f"Got {name}"):
        model.plan(100, 3)


def test_constructors_are_keyword_only_and_only_assign(estimator):
    cls = type(estimator)
    parameters = inspect.signature(cls).parameters.values()
    assert all(p.kind is p.KEYWORD_ONLY for p in parameters)
    marker = object()
    odd = cls(**{p.name: marker for p in parameters})
    assert vars(odd) == {p.name: marker for p in parameters}


def test_sample_weights_are_refused(estimator, classification):
    X, y = classification
    with pytest.raises(TypeError, match="sample_weight"):
        estimator.fit(X, y, sample_weight=np.ones(len(y)))


@pytest.mark.parametrize("delta", [1 / 200, 0.1])
def test_a_delta_of_at_least_one_over_n_warns(delta, regression):
    with pytest.warns(
        UserWarning, match=r"Got delta=.* n_samples=200, expected delta < 1 / n_samp"
    ):
        DPAdmmRidge(delta=delta, random_state=0).fit(*regression)
    with pytest.warns(UserWarning, match="Got delta="):
        DPAdmmRidge(delta=delta).plan(200, 3)
    DPAdmmRidge(delta=delta, epsilon=math.inf).fit(*regression)  # says nothing


# Knobs that other estimators set.


def test_a_model_works_at_the_end_of_a_pipeline(classification):
    X, y = classification
    pipeline = make_pipeline(
        BoundedScaler(lower=-1, upper=1), DPAdmmLogisticRegression(epsilon=10, random_state=0)
    )
    assert pipeline.fit(X, y).score(X, y) > 0.7
    assert pipeline.predict_proba(X).shape == (300, 2)
    assert pipeline[-1].privacy_.epsilon() == pytest.approx(10, rel=1e-6)


def test_a_grid_over_budgets_includes_the_limit_without_privacy(regression):
    grid = {"epsilon": [0.1, 10.0, math.inf]}
    search = GridSearchCV(DPAdmmRidge(random_state=0), grid, cv=3, error_score="raise")
    search.fit(*regression)
    assert search.best_params_ == {"epsilon": math.inf}
    assert search.best_score_ > 0.99


def test_a_grid_reaches_the_knobs_of_an_algorithm_object(regression):
    model = make_pipeline(DPAdmmRidge(algorithm=ConsensusADMM(), random_state=0, epsilon=10.0))
    grid = {"dpadmmridge__algorithm__step_size": [1e-6, 0.5]}
    search = GridSearchCV(model, grid, cv=3, error_score="raise").fit(*regression)
    assert search.best_params_ == {"dpadmmridge__algorithm__step_size": 0.5}
    plan = search.best_estimator_[-1].plan(200, 3)
    assert plan.settings.step_size == 0.5


def test_a_knob_of_a_string_is_an_error_that_says_what_to_do(regression):
    for name in ("algorithm__step_size", "algorithm__relaxation"):
        with pytest.raises(
            ValueError, match=rf"^Got {name} with algorithm='consensus-admm', expec"
        ):
            DPAdmmRidge().set_params(**{name: 0.5})
    search = GridSearchCV(DPAdmmRidge(), {"algorithm__step_size": [0.1, 1.0]}, cv=2)
    with pytest.raises(ValueError, match="Pass an object first"):
        search.fit(*regression)
    both = DPAdmmRidge().set_params(algorithm=ConsensusADMM(), algorithm__step_size=0.5)
    assert both.algorithm.step_size == 0.5


@pytest.mark.parametrize("values", [np.arange(5, 20, 5), np.array([5, 10], dtype=np.int32)])
def test_a_grid_of_integers_of_numpy_works(values, regression):
    search = GridSearchCV(
        DPAdmmRidge(random_state=0), {"max_iter": values}, cv=2, error_score="raise"
    )
    assert search.fit(*regression).best_params_["max_iter"] in values


def test_numbers_of_numpy_give_the_plan_of_plain_ones(classification):
    f, i = np.float64, np.int64
    numpy = DPAdmmLogisticRegression(
        C=f(2), l1_ratio=f(0.5), epsilon=f(2), delta=f(1e-6), max_iter=i(20),
        fit_intercept=np.bool_(True), random_state=i(3),
    )  # fmt: skip
    plain = DPAdmmLogisticRegression(
        C=2.0, l1_ratio=0.5, epsilon=2.0, delta=1e-6, max_iter=20, random_state=3
    )
    assert numpy.plan(i(300), i(3), i(2)) == plain.plan(300, 3, 2)
    X, y = classification
    np.testing.assert_array_equal(numpy.fit(X, y).coef_, plain.fit(X, y).coef_)


def test_knobs_are_checked_whatever_the_budget(regression):
    for epsilon in (1.0, math.inf):
        model = DPAdmmRidge(epsilon=epsilon, algorithm=ConsensusADMM(relaxation=1.0))
        with pytest.raises(ValueError, match=r"Got relaxation=1\.0"):
            model.fit(*regression)
        with pytest.raises(ValueError, match="Got algorithm='admm'"):
            DPAdmmRidge(epsilon=epsilon, algorithm="admm").fit(*regression)


def test_fitting_leaves_parameters_and_the_algorithm_object_alone(classification):
    algorithm = ConsensusADMM(step_size=0.3)
    classes, bounds = [0, 1], (np.full(3, -1.0), np.ones(3))
    model = DPAdmmLogisticRegression(
        algorithm=algorithm, classes=classes, feature_bounds=bounds, random_state=0
    )
    before = {name: id(value) for name, value in model.get_params(deep=False).items()}
    model.fit(*classification)
    assert {name: id(value) for name, value in model.get_params(deep=False).items()} == before
    assert vars(algorithm) == vars(ConsensusADMM(step_size=0.3))


def test_clone_and_pickle_keep_what_they_should(estimator, classification):
    X, y = classification
    estimator.set_params(algorithm=ConsensusADMM(step_size=0.3), random_state=0).fit(X, y)
    fresh = clone(estimator)
    assert not hasattr(fresh, "coef_")
    assert fresh.algorithm is not estimator.algorithm
    assert fresh.get_params()["algorithm__step_size"] == 0.3
    np.testing.assert_array_equal(fresh.fit(X, y).coef_, estimator.coef_)
    loaded = pickle.loads(pickle.dumps(estimator))
    np.testing.assert_array_equal(loaded.predict(X), estimator.predict(X))
    assert loaded.privacy_ == estimator.privacy_


def test_cross_validation_works(classification):
    X, y = classification
    scores = cross_val_score(DPAdmmLogisticRegression(epsilon=20, random_state=0), X, y, cv=3)
    assert scores.mean() > 0.6


# Column names.


def test_column_names_are_kept_and_checked(regression):
    X, y = regression
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    model = DPAdmmRidge(random_state=0).fit(frame, y)
    assert list(model.feature_names_in_) == ["a", "b", "c"]
    np.testing.assert_array_equal(model.coef_, DPAdmmRidge(random_state=0).fit(X, y).coef_)
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(frame[["c", "b", "a"]])


def test_bounds_by_column_name_are_bounds_by_position(regression):
    X, y = regression
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    by_name = DPAdmmRidge(feature_bounds={"c": (-2, 1), "a": (-1, 3), "b": (-1, 1)}, random_state=0)
    by_position = DPAdmmRidge(feature_bounds=([-1, -1, -2], [3, 1, 1]), random_state=0)
    np.testing.assert_array_equal(by_name.fit(frame, y).coef_, by_position.fit(X, y).coef_)
    with pytest.raises(ValueError, match=r"Got feature_bounds for columns \['c'\]"):
        by_name.fit(frame.rename(columns={"c": "d"}), y)
    with pytest.raises(ValueError, match="expected X to be a DataFrame"):
        by_name.fit(X, y)


def test_bounds_of_more_columns_than_there_are_is_an_error_of_the_plan():
    model = DPAdmmRidge(feature_bounds=dict.fromkeys("abcd", (0, 1)))
    with pytest.raises(ValueError, match="Got feature_bounds"):
        model.plan(n_samples=100, n_features=3)


# Plans.


@pytest.fixture
def plans(monkeypatch):
    """The plans that pass through the gate while fitting."""
    seen = []

    class Spy(_fitting.Gate):
        def __init__(self, plan, noise):
            seen.append(plan)
            super().__init__(plan, noise)

    monkeypatch.setattr(_fitting, "Gate", Spy)
    return seen


SETTINGS = [
    {},
    {"feature_bounds": (-1, 2), "fit_intercept": False},
    {"epsilon": 0.1, "delta": 1e-8, "neighboring": "zero_out", "max_iter": 7},
    {"algorithm": ConsensusADMM(relaxation=0.8, record_step="linearized", step_size=0.1)},
    {"feature_bounds": {"b": (1e6, 1e6 + 1), "a": (-1, 1)}},
    {"feature_bounds": {"c": (1e9, 1e9 + 3), "b": (1e6, 1e6 + 1), "a": (-1, 1.1)}},
]


@pytest.mark.parametrize("parameters", SETTINGS, ids=str)
def test_the_plan_before_any_data_is_the_plan_inside_fit(estimator, parameters, plans):
    rng = np.random.default_rng(1)
    X = pd.DataFrame(rng.normal(size=(123, 3)), columns=["a", "b", "c"])
    y = rng.integers(2, size=123)
    estimator.set_params(random_state=0, **parameters).fit(X, y)
    assert plans == [plan_of(estimator, 123, 3)]
    assert plans[0].digest() == plan_of(estimator, 123, 3).digest()


def test_the_plan_does_not_depend_on_the_values_in_the_data(estimator, plans):
    rng = np.random.default_rng(2)
    y = np.tile([0, 1], 50)
    for X in (rng.normal(size=(100, 3)), 1e300 * rng.normal(size=(100, 3)), np.zeros((100, 3))):
        estimator.set_params(random_state=0).fit(X, y)
    estimator.fit(sparse.csr_matrix(X), y[::-1])
    assert plans[1:] == plans[:-1]


def test_a_classifier_needs_to_know_the_number_of_classes_to_plan():
    with pytest.raises(ValueError, match=r"^Got n_classes=None and classes=None, expected one"):
        DPAdmmLogisticRegression().plan(100, 3)
    declared = DPAdmmLogisticRegression(classes=["x", "y", "z"]).plan(100, 3)
    assert declared == DPAdmmLogisticRegression().plan(100, 3, n_classes=3)
    assert declared.releases[-1].shape == (4, 3)


@pytest.mark.parametrize(("n_samples", "n_features"), [(0, 3), (-5, 3), (100, 0), (100, -1)])
def test_a_plan_for_data_without_rows_or_columns_is_refused(estimator, n_samples, n_features):
    with pytest.raises(ValueError, match=r"n_samples|n_features"):
        plan_of(estimator, n_samples, n_features)


# Bad data and failures.

BAD_X = {
    "NaN": lambda X: np.where(X == X[0, 0], np.nan, X),
    "inf": lambda X: np.where(X == X[0, 0], np.inf, X),
    "sparse NaN": lambda X: sparse.csr_matrix(np.where(X == X[0, 0], np.nan, X)),
    "one dimension": lambda X: X[:, 0],
    "three dimensions": lambda X: X[:, :, None],
    "no columns": lambda X: X[:, :0],
    "no rows": lambda X: X[:0],
    "a row too few": lambda X: X[1:],
    "strings": lambda X: np.full(X.shape, "a"),
    "complex": lambda X: X + 1j,
    "text": lambda X: "data",
    "None": lambda X: None,
}
BAD_Y = {
    "NaN": lambda y: np.where(np.arange(len(y)) == 0, np.nan, y.astype(float)),
    "two columns": lambda y: np.column_stack([y, y]),
    "too long": lambda y: np.append(y, 0),
    "None": lambda y: None,
    "complex": lambda y: y + 1j,
}


@pytest.mark.parametrize(
    "spoil",
    [
        *(pytest.param((f, None), id=f"X {name}") for name, f in BAD_X.items()),
        *(pytest.param((None, f), id=f"y {name}") for name, f in BAD_Y.items()),
    ],
)
def test_bad_data_stores_nothing_and_leaves_an_earlier_fit_intact(
    estimator, spoil, classification, plans
):
    X, y = classification
    bad_X, bad_y = (f or (lambda same: same) for f in spoil)
    parameters = set(vars(estimator))
    with pytest.raises((ValueError, TypeError)):
        estimator.fit(bad_X(X), bad_y(y))
    assert set(vars(estimator)) == parameters
    with pytest.raises(NotFittedError):
        estimator.predict(X)
    assert not plans  # no noise was drawn, nothing was spent

    estimator.fit(pd.DataFrame(X, columns=["a", "b", "c"]), y)
    before = dict(vars(estimator))
    with pytest.raises((ValueError, TypeError)):
        estimator.fit(bad_X(X), bad_y(y))
    assert vars(estimator) == before
    assert all(vars(estimator)[name] is before[name] for name in before)


def test_a_failure_in_the_middle_of_an_iteration_stores_nothing(
    estimator, classification, monkeypatch
):
    X, y = classification
    fitted = clone(estimator).set_params(random_state=0).fit(X, y)
    before = dict(vars(fitted))

    def fail(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(_fitting.Gate, "release", fail)
    for model in (estimator, fitted):
        with pytest.raises(KeyboardInterrupt):
            model.fit(X[:, :2], y)
    assert vars(fitted) == before
    assert set(vars(estimator)) == set(inspect.signature(type(estimator)).parameters)


def test_strings_are_no_target_of_a_regression(regression):
    X, y = regression
    with pytest.raises(ValueError, match=r"could not convert|dtype"):
        DPAdmmRidge().fit(X, np.where(y > 0, "high", "low"))


def test_an_error_about_data_shows_no_data(classification):
    X, y = classification
    secret = 271828
    with pytest.raises(ValueError, match="not among classes") as caught:
        DPAdmmLogisticRegression(classes=[0, 1]).fit(X, np.where(y == 1, secret, 0))
    assert str(secret) not in str(caught.value)
    assert caught.value.__context__ is None
    words = np.where(y == 1, "top secret", "no")
    with pytest.raises(ValueError, match="not among classes") as caught:
        DPAdmmLogisticRegression(classes=["yes", "no"]).fit(X, words)
    assert "secret" not in str(caught.value)


def test_one_class_is_an_error_where_classes_are_not_declared(classification):
    X, y = classification
    with pytest.raises(ValueError, match=r"^Got y with one class, expected at least 2 classes\."):
        DPAdmmLogisticRegression().fit(X, np.zeros_like(y))
    with pytest.raises(ValueError, match=r"^Got classes=\[4, 4\], expected at least 2 classes"):
        DPAdmmLogisticRegression(classes=[4, 4]).fit(X, y)


def test_a_continuous_target_is_no_class(regression):
    with pytest.raises(ValueError, match="Unknown label type"):
        DPAdmmLogisticRegression().fit(*regression)


# What a fit says.


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_the_progress_bar_counts_iterations_and_says_nothing_else(
    estimator, n_jobs, classification
):
    def bar(X, y):
        text = io.StringIO()
        with redirect_stderr(text):
            estimator.set_params(verbose=1, max_iter=7, n_jobs=n_jobs, random_state=0).fit(X, y)
        # What is left without clock times and rates.
        lines = re.split(r"[\r\n]+", text.getvalue())
        return {re.sub(r"\[.*\]", "", line).strip() for line in lines}

    X, y = classification
    name = type(estimator).__name__
    pattern = re.compile(rf"^({name}: +\d+%\|.*\| \d/7)?$")
    lines = bar(X, y)
    assert all(pattern.match(line) for line in lines)
    assert any(line.endswith("7/7") for line in lines)
    assert all(pattern.match(line) for line in bar(1e3 * X, 1 - y))


def test_a_quiet_fit_prints_nothing(estimator, classification, capfd):
    estimator.set_params(random_state=0).fit(*classification)
    assert capfd.readouterr() == ("", "")


@pytest.mark.slow
def test_the_checks_of_scikit_learn_pass_with_the_array_api_enabled():
    root = Path(skdpadmm.__file__).parent.parent
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "tests/test_common.py"],
        cwd=root,
        env={**os.environ, "SCIPY_ARRAY_API": "1", "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout[-3000:]
