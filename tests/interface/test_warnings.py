"""Warnings of useless fits: whom they reach, and that they follow from what is public alone."""

import re
import warnings

import numpy as np
import pytest
from sklearn.base import clone, is_classifier
from sklearn.pipeline import make_pipeline

from skdpadmm import (
    DPAdmmHuberRegressor,
    DPAdmmLasso,
    DPAdmmRidge,
    DPFedElasticNet,
    DPFedLogisticRegression,
    DPFedRidge,
)
from skdpadmm.algorithms._algorithm import serves
from skdpadmm.algorithms._registry import ALGORITHMS
from skdpadmm.exceptions import PrivacyWarning, UndeclaredBoundsWarning, WeakSignalWarning
from skdpadmm.model_selection import DPGridSearchCV
from tests.interface.registry import DEFAULTS, ROWS, plan_of

BOUNDED = {"feature_bounds": (-1, 1), "target_bounds": (-3, 3)}


def warned(action, *args, **more):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        action(*args, **more)
    return [(w.category, str(w.message)) for w in caught if issubclass(w.category, PrivacyWarning)]


def declared(row, **changed):
    names = row.make().get_params()
    known = {k: v for k, v in BOUNDED.items() if k in names}
    # Of rates they are declared.
    known |= {"target_bounds": row.estimator.target_bounds} if row.is_rate else {}
    return row.make(**known | changed)


@pytest.mark.parametrize("name", ROWS)
def test_what_is_not_declared_is_warned_of_once_and_what_is_declared_never(name):
    row = ROWS[name]
    # With so many records the default estimates one scale for all columns, where it can.
    ((category, text),) = warned(plan_of, row.make(), 20_000, 3)
    assert category is UndeclaredBoundsWarning
    assert text.startswith("Pass feature_bounds=(lower, upper)")
    assert len(text.split()) <= 45
    knows_target = is_classifier(row.estimator) or row.is_rate
    assert ("target_bounds=(lower, upper)" in text) != knows_target
    assert not warned(plan_of, declared(row), 20_000, 3)
    of_rows = {"feature_bounds": None, "row_norm": 1.0}
    assert not warned(plan_of, declared(row, **of_rows), 20_000, 3)
    assert not warned(plan_of, row.make(epsilon=float("inf")), 20, 3)


@pytest.mark.parametrize("name", DEFAULTS)
def test_a_fit_warns_as_its_plan_does_whatever_the_data(name):
    row, fits = ROWS[name], []
    for seed, unit in ((0, 1.0), (1, 1e6)):
        X, y = row.data(seed=seed)
        fits.append(warned(row.make(epsilon=0.1).fit, X * unit, y))
    assert fits[0] == fits[1]
    assert [category for category, _ in fits[0]] == [UndeclaredBoundsWarning, WeakSignalWarning]
    if row.family == "central":
        assert fits[0] == warned(plan_of, row.make(epsilon=0.1), 60, 3)


def test_a_warning_points_at_the_line_of_the_user_and_has_its_class_in_a_search_too():
    model, (X, y) = DPAdmmRidge(epsilon=0.1), ROWS["ridge"].data()
    search = DPGridSearchCV(model, {"alpha": [1.0]}, score_bounds=(-4, 0))
    plan = search.plan(len(X), X.shape[1])
    assert {plan: plan.warnings[0][1]}[plan] is UndeclaredBoundsWarning
    for each in (model, make_pipeline(model), search):
        with pytest.warns(UndeclaredBoundsWarning) as caught:
            each.fit(X, y)
        assert {w.filename for w in caught if issubclass(w.category, PrivacyWarning)} == {__file__}


def test_bounds_of_some_columns_are_not_enough_and_a_private_scale_is():
    model = DPAdmmRidge(feature_bounds={"age": (0, 120)}, target_bounds=(0, 1))
    for scale, n_samples in ((None, 20_000), ("auto", 1000), ("auto", 20_000)):
        ((_, text),) = warned(model.set_params(scale=scale).plan, n_samples, 3)
        assert "range of 2 columns" in text
        assert ("one scale is estimated for all" in text) == (
            (scale, n_samples) == ("auto", 20_000)
        )
    # Who asks for one scale says that there is one, and a single column has no other.
    for scale, n_features in (("private", 3), ("auto", 2)):
        assert not warned(model.set_params(scale=scale).plan, 20_000, n_features)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize(("Model", "weight"), [(DPAdmmLasso, 1.0), (DPFedElasticNet, 0.5)])
def test_a_penalty_that_sets_all_to_zero_is_warned_of_and_none_that_may_not(
    Model, weight, fit_intercept
):
    lower, upper = (1.0, 2.0) if fit_intercept else (-0.5, 0.5)
    bounds = {"feature_bounds": np.array([[lower, -1.0], [upper, 1.0]]), "target_bounds": (-2, 2)}
    X = np.column_stack([np.full(20_000, upper), np.ones(20_000)])
    X[::2] = lower, -1.0
    y = np.where(X[:, 1] > 0, 2.0, -2.0)
    for alpha in (2.001 / weight, 1.99 / weight):
        model = Model(alpha=alpha, fit_intercept=fit_intercept, **bounds)
        found = [line for line in warned(model.plan, 20_000, 2) if "Every" in line[1]]
        exact = model.set_params(epsilon=float("inf")).fit(X, y)
        assert bool(found) == (not exact.coef_.any()) == (alpha > 2 / weight)
        assert not found or "below 2:" in found[0][1]
    # Where no range of columns is declared, any penalty may leave some.
    for unknown in ({"row_norm": 50.0}, {"scale": "private"}):
        model = Model(alpha=99.0, target_bounds=(-2, 2), **unknown)
        assert not warned(model.plan, 20_000, 2)


@pytest.mark.parametrize("Model", [DPAdmmRidge, DPFedRidge])
@pytest.mark.parametrize("half_width", [1e-3, 0.7])
def test_a_penalty_is_warned_of_that_takes_more_than_half_of_an_evenly_spread_column(
    Model, half_width
):
    X = np.column_stack([np.linspace(-half_width, half_width, 5_000), np.full(5_000, 50.0)])
    public = {"feature_bounds": ([-half_width, -99.0], [half_width, 99.0])}
    for share in (0.45, 0.55):
        alpha = 5_000 * half_width**2 / 3 * (1 - share) / share
        model = Model(alpha=alpha, target_bounds=(-5, 5), **public)
        found = warned(model.plan, 5_000, 2)
        assert bool(found) == (share < 0.5)
        assert not found or "suppresses 1 of 2 columns" in found[0][1]
        exact = model.set_params(epsilon=float("inf"), max_iter=2_000).fit(X, X[:, 0] / half_width)
        assert exact.coef_[0] * half_width == pytest.approx(share, abs=0.01)
    # Where no range of columns is declared, none is known to be too narrow.
    assert not warned(Model(alpha=1e9, target_bounds=(-5, 5), row_norm=1.0).plan, 5_000, 2)


@pytest.mark.parametrize(
    ("model", "unit"),
    [
        (DPAdmmRidge(**BOUNDED), "records"),
        (DPFedRidge(n_agents=10, adversary="server", **BOUNDED), "records"),
        (DPFedRidge(n_agents=60, adversary="server", privacy_unit="agent", **BOUNDED), "agents"),
        (DPFedRidge(n_agents=10, adversary="model", privacy_unit="agent", **BOUNDED), "agents"),
    ],
)
def test_what_a_weak_signal_asks_for_is_enough_and_little_more_than_that(model, unit):
    ((category, text),) = warned(model.plan, 60, 3)
    assert category is WeakSignalWarning
    (count,) = map(int, re.findall(rf"(\d+) {unit}", text))
    (epsilon,) = map(float, re.findall(r"epsilon=(\d+\.?\d*)", text))
    for factor, expected in ((1.1, "fair"), (0.85, "weak")):
        n = int(count * factor)
        more = {} if unit == "records" else {"n_agents": n}
        assert clone(model).set_params(**more).plan(max(n, 60), 3).signal.word == expected
        closer = clone(model).set_params(epsilon=epsilon * factor)
        assert closer.plan(60, 3).signal.word == expected


def test_few_hospitals_as_units_are_warned_of_and_an_observer_of_less_helps():
    model = DPFedLogisticRegression(
        n_agents=4, privacy_unit="agent", adversary="server", feature_bounds=(-1, 1), classes=[0, 1]
    )
    ((category, text),) = warned(model.plan, 569, 30)
    assert category is WeakSignalWarning
    (gain,) = re.findall(r'adversary="model" \(signal ([\d.]+)\)', text)
    plan = model.set_params(adversary="model").plan(569, 30)
    assert plan.signal.strength == pytest.approx(float(gain), rel=0.06)
    assert f"signal: {plan.signal}" in repr(plan)


def test_a_search_warns_of_its_plans_once_and_its_trials_are_silent():
    X, y = ROWS["ridge"].data(n=200)
    search = DPGridSearchCV(DPAdmmRidge(max_iter=5), {"alpha": [0.1, 1.0]}, score_bounds=(-9, 0))
    found = warned(search.fit, X, y)
    assert found == warned(search.plan, 200, 3)
    assert len(found) == len(set(found))
    assert sum("Pass feature_bounds" in text for _, text in found) == 1


def test_the_threshold_of_huber_does_not_depend_on_the_unit_of_the_target():
    X, y = ROWS["huber"].data(n=3000)
    plans, scores = [], []
    for yen in (1.0, 150.0):
        model = DPAdmmHuberRegressor(
            feature_bounds=(-1, 1), target_bounds=(-6 * yen, 6 * yen), random_state=0
        )
        plans.append(model.plan(*X.shape))
        scores.append(model.fit(X, yen * y).score(X, yen * y))
    assert plans[0].facts.loss.threshold == pytest.approx(plans[1].facts.loss.threshold)
    assert plans[0].releases == plans[1].releases
    assert scores == pytest.approx([max(scores)] * 2, abs=0.02)
    assert min(scores) > 0.7


@pytest.mark.parametrize("name", ["ridge", "fed ridge", "network", "personal"])
def test_an_unknown_algorithm_is_refused_with_the_names_that_fit(name):
    row = ROWS[name]
    with pytest.raises(ValueError, match="algorithm='admm'") as refused:
        plan_of(row.make(algorithm="admm"), 100, 3)
    fitting = {known for known, kind in ALGORITHMS.items() if serves(kind, row.family)}
    assert set(re.findall(r"'([a-z-]+-[a-z-]+)'", str(refused.value))) == fitting


def test_a_stream_warns_with_its_first_records_alone():
    X, y = ROWS["stream"].data()
    model = ROWS["stream"].make()
    ((category, _),) = warned(model.partial_fit, X, y)
    assert category is UndeclaredBoundsWarning
    assert not warned(model.partial_fit, X, y)
