"""A fitted estimator holds what its report says has been released, and says what it is."""

from __future__ import annotations

import pickle
import struct

import numpy as np
import pytest
from sklearn.base import is_classifier

from skdpadmm import (
    DPAdmmElasticNet,
    DPAdmmHuberRegressor,
    DPAdmmLasso,
    DPAdmmLinearSVC,
    DPAdmmLogisticRegression,
    DPAdmmRidge,
)

ESTIMATORS = [
    DPAdmmElasticNet,
    DPAdmmHuberRegressor,
    DPAdmmLasso,
    DPAdmmLinearSVC,
    DPAdmmLogisticRegression,
    DPAdmmRidge,
]
LEARNED = {"coef_", "intercept_", "n_iter_", "privacy_", "n_features_in_"}


def data(estimator, dtype=np.float64):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 3)).astype(dtype)
    y = np.arange(40) % 2 if is_classifier(estimator()) else rng.standard_normal(40)
    return X, y


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("epsilon", [1.0, np.inf])
def test_nothing_is_stored_but_parameters_and_what_was_released(estimator, epsilon):
    model = estimator(epsilon=epsilon).fit(*data(estimator))
    more = {"classes_"} if is_classifier(model) else set()
    if estimator is DPAdmmLogisticRegression:
        # Functions of the plan and of what was released.
        more |= {"_derivative_bound", "_doubt", "_score_variance"}
    assert set(vars(model)) == set(model.get_params()) | LEARNED | more


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("random_state", [None, 0])
def test_no_value_of_a_canary_row_is_in_the_pickle(estimator, dtype, random_state):
    X, y = data(estimator, dtype)
    canary = np.array([0.1234567890123, -0.9876543210987, 0.5432109876543], dtype=dtype)
    X[7] = canary
    if not is_classifier(estimator()):
        y[7] = 0.7654321098765
    content = pickle.dumps(estimator(random_state=random_state).fit(X, y))
    for value in [*canary, *([] if is_classifier(estimator()) else [y[7]])]:
        for layout in ("<d", ">d", "<f", ">f"):
            assert struct.pack(layout, value) not in content


def test_fits_with_equal_seeds_and_other_budgets_share_no_noise(watch):
    X, y = data(DPAdmmRidge)
    drawn = []
    for epsilon in (1.0, 1.0001):
        with watch() as tap:
            DPAdmmRidge(epsilon=epsilon, random_state=0).fit(X, y)
        drawn.append(tap.noise())
    # 400 pairs of independent entries: a correlation of .3 is six standard errors away.
    assert abs(np.corrcoef(*drawn)[0, 1]) < 0.3


def test_a_seeded_fit_repeats_and_is_marked_as_a_simulation():
    X, y = data(DPAdmmRidge)
    for seed in (0, np.random.RandomState(0), np.random.default_rng(0)):
        model = DPAdmmRidge(random_state=seed).fit(X, y)
        assert model.privacy_.simulation
        assert "SIMULATION" in repr(model.privacy_)
    again = [DPAdmmRidge(random_state=3).fit(X, y).coef_ for _ in range(2)]
    np.testing.assert_array_equal(*again)


def test_an_unseeded_fit_is_fresh_and_no_simulation():
    X, y = data(DPAdmmRidge)
    models = [DPAdmmRidge().fit(X, y) for _ in range(2)]
    assert not np.array_equal(models[0].coef_, models[1].coef_)
    assert not models[0].privacy_.simulation
    assert "SIMULATION" not in repr(models[0].privacy_)


def test_no_generator_is_stored_beside_the_parameter_that_the_user_passed():
    X, y = data(DPAdmmRidge)
    model = DPAdmmRidge(random_state=0).fit(X, y)
    content = pickle.dumps(model)
    for word in (b"Philox", b"PCG64", b"MT19937", b"Generator", b"Engine", b"Gate"):
        assert word not in content


def test_the_report_of_epsilon_inf_says_not_private():
    model = DPAdmmRidge(epsilon=np.inf).fit(*data(DPAdmmRidge))
    assert "not private" in repr(model.privacy_)
    assert model.privacy_.epsilon() == np.inf


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_the_report_states_observer_unit_relation_budget_and_assumptions(estimator):
    model = estimator(epsilon=0.7, delta=1e-4, neighboring="zero_out").fit(*data(estimator))
    report = model.privacy_
    assert report.epsilon() == pytest.approx(0.7, rel=1e-6)
    assert report.epsilon() <= 0.7 * (1 + 1e-9)
    text = repr(report)
    for phrase in ("model", "record", "zero", "0.7", "0.0001", "pipeline"):
        assert phrase in text
    assert "<table" in report._repr_html_()
    assert report.to_dict()["delta"] == 1e-4


def test_fits_with_equal_seeds_and_other_declared_bounds_share_no_noise(watch):
    X, y = data(DPAdmmRidge)
    drawn = []
    for bounds in ((-5, 5), (-7, 7)):
        with watch() as tap:
            DPAdmmRidge(feature_bounds=bounds, random_state=0).fit(X, y)
        drawn.append(tap.noise())
    assert abs(np.corrcoef(*drawn)[0, 1]) < 0.3


def test_the_plan_prints_what_the_report_will_assume():
    plan = DPAdmmRidge().plan(40, 3)
    assert "targets are clipped to [-3, 3]" in repr(plan)
    assert plan.assumptions == DPAdmmRidge().fit(*data(DPAdmmRidge)).privacy_.assumptions
    declared = DPAdmmRidge(feature_bounds=(-5, 5), target_bounds=(-9, 9)).plan(40, 3)
    assert "not declared" not in repr(declared)
    far = DPAdmmRidge(feature_bounds=(1e9, 1e9 + 1), delta=1e-7).plan(10**6, 3)
    assert "times the noise, to cover rounding errors" in repr(far)
    with pytest.warns(UserWarning, match="Got delta"):
        weak = DPAdmmRidge(delta=0.5).plan(40, 3)
    assert "Got delta=0.5" in repr(weak)
