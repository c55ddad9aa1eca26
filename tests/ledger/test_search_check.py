"""A search that cannot be paid for is refused before its first fit."""

from __future__ import annotations

import math
from types import MappingProxyType

import numpy as np
import pandas as pd
import pytest
from scipy.stats import uniform
from sklearn.base import BaseEstimator
from sklearn.ensemble import BaggingRegressor
from sklearn.linear_model import Ridge
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    GroupShuffleSplit,
    KFold,
    LeaveOneOut,
    RandomizedSearchCV,
    RepeatedKFold,
    ShuffleSplit,
)
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, PolynomialFeatures

from skdpadmm import DPAdmmLogisticRegression, DPAdmmRidge, DPFedRidge
from skdpadmm.ledger import LedgerError, PrivacyBudgetExceeded, PrivacyLedger
from skdpadmm.model_selection import DPGridSearchCV, DPRandomizedSearchCV, search_cost
from skdpadmm.preprocessing import RowNormClipper
from skdpadmm.privacy import GaussianDP, gaussian_mu

# Few rows, so that scores are nearly all noise: what they cost is what is asked here.
pytestmark = pytest.mark.filterwarnings("ignore:.*choices are nearly random")

X = np.random.default_rng(0).normal(size=(61, 3))
y = X @ np.array([1.0, -1.0, 0.5])
labels = np.where(y > 0, "yes", "no")
DELTA = 1e-6


# Where the fits of a test would be counted.
HERE = {"ledger": ""}


@pytest.fixture(autouse=True)
def here(path):
    HERE["ledger"] = str(path)


@pytest.fixture
def ledger(path):
    return PrivacyLedger(path)


def ridge(**parameters):
    bounds = {"feature_bounds": (-3, 3), "target_bounds": (-5, 5)}
    return DPAdmmRidge(delta=DELTA, **bounds, **HERE, **parameters)


def by_hand(epsilons):
    """Mu of fits of which each spends all of its budget."""
    return math.hypot(*(gaussian_mu(epsilon, DELTA) for epsilon in epsilons))


@pytest.mark.parametrize("cv", [3, 5])
@pytest.mark.parametrize("refit", [True, False])
def test_candidates_times_folds_and_the_refit_are_counted(ledger, cv, refit):
    search = GridSearchCV(
        ridge(), {"epsilon": [0.1, 0.5, 1.0], "alpha": [0.1, 1.0]}, cv=cv, refit=refit
    )
    cost = ledger.check(search, X, y)
    # The refit may be any candidate: the dearest counts.
    fits = [0.1, 0.5, 1.0] * 2 * cv + [1.0] * refit
    assert cost.mu == pytest.approx(by_hand(fits), rel=1e-6)


@pytest.mark.parametrize(
    ("cv", "n_fits"),
    [
        (RepeatedKFold(n_splits=2, n_repeats=3, random_state=0), 6),
        (ShuffleSplit(4, test_size=0.5), 4),
        (LeaveOneOut(), 61),
        ([(np.arange(40), np.arange(40, 61)), (np.arange(30), np.arange(30, 61))], 2),
        ([(np.arange(61) < 40, np.arange(61) >= 40)], 1),
    ],
)
def test_every_splitter_is_asked_for_its_folds(ledger, cv, n_fits):
    search = GridSearchCV(ridge(), {"epsilon": [0.5]}, cv=cv, refit=False)
    assert ledger.check(search, X, y).mu == pytest.approx(by_hand([0.5] * n_fits), rel=1e-6)


def test_splitters_that_need_groups_get_them(ledger):
    groups = np.arange(61) % 7
    search = GridSearchCV(ridge(), {"epsilon": [0.5]}, cv=GroupKFold(3), refit=False)
    assert ledger.check(search, X, y, groups).mu == pytest.approx(by_hand([0.5] * 3), rel=1e-6)


def test_groups_that_are_drawn_in_fit_need_a_seed(ledger):
    groups = np.r_[np.zeros(30), np.arange(1, 32)]
    for seed in (None, 0, np.random.RandomState(0)):
        cv = GroupShuffleSplit(2, test_size=0.5, random_state=seed)
        search = GridSearchCV(ridge(), {"epsilon": [0.5]}, cv=cv, refit=False)
        if seed is None:
            with pytest.raises(ValueError, match="expected a random_state: groups"):
                ledger.check(search, X, y, groups)
        else:
            cost = ledger.check(search, X, y, groups)
            assert cost.mu == pytest.approx(by_hand([0.5] * 2), rel=1e-6)


def test_a_generator_of_folds_stays_where_it_is(ledger):
    sizes = []

    class Recorder(DPAdmmRidge):
        def plan(self, n_samples, n_features):
            sizes.append(n_samples)
            return super().plan(n_samples, n_features)

    groups = np.r_[np.zeros(30), np.arange(1, 32)]
    cv = GroupShuffleSplit(3, test_size=0.5, random_state=np.random.RandomState(0))
    model = Recorder(**ridge().get_params())
    ledger.check(GridSearchCV(model, {"epsilon": [0.5]}, cv=cv, refit=False), X, y, groups)
    assert set(sizes) == {len(train) for train, _ in cv.split(X, y, groups)}


def test_a_row_that_is_named_from_both_ends_is_there_twice(ledger):
    train = np.r_[np.arange(31, 61), np.arange(-30, 0)]
    search = GridSearchCV(ridge(), {"epsilon": [0.5]}, cv=[(train, np.arange(31))], refit=False)
    with pytest.raises(ValueError, match="rows are repeated"):
        ledger.check(search, X, y)
    search.set_params(cv=[(np.arange(-30, 0), np.arange(31))])
    assert ledger.check(search, X, y).mu == pytest.approx(by_hand([0.5]), rel=1e-6)


def test_folds_that_can_be_seen_once_are_left_alone(ledger):
    folds = KFold(3).split(X)
    search = GridSearchCV(ridge(), {"epsilon": [0.5]}, cv=folds)
    with pytest.raises(ValueError, match="gone through once"):
        ledger.check(search, X, y)
    assert len(list(folds)) == 3


def test_each_fold_is_planned_at_its_own_size(ledger):
    asked = []

    class Recorder(DPAdmmRidge):
        def plan(self, n_samples, n_features):
            asked.append((n_samples, n_features))
            return super().plan(n_samples, n_features)

    recorder = Recorder(**ridge().get_params())
    ledger.check(GridSearchCV(recorder, {"epsilon": [0.5]}, cv=3), X, y)
    assert sorted(set(asked)) == [(40, 3), (41, 3), (61, 3)]


def test_folds_that_repeat_a_row_are_refused(ledger):
    drawn = np.random.default_rng(0).integers(0, 61, size=61)
    search = GridSearchCV(ridge(epsilon=0.5), {"alpha": [1.0]}, cv=[(drawn, np.arange(61))])
    with pytest.raises(ValueError, match="rows are repeated"):
        ledger.check(search, X, y)
    search.set_params(estimator__ledger=None).fit(X, y)
    with pytest.raises(ValueError, match="rows are repeated"):
        search_cost(search, n_samples=61)


def test_masks_are_counted_by_their_rows(ledger):
    model = ridge(epsilon=0.5, algorithm="gradient-admm", max_iter=4)
    masks = [(np.arange(61) < size, np.arange(61) >= size) for size in (30, 40)]
    positions = [tuple(np.flatnonzero(part) for part in pair) for pair in masks]
    search = GridSearchCV(model, {"alpha": [1.0]}, refit=False)
    cost = ledger.check(search.set_params(cv=masks), X, y)
    assert cost == ledger.check(search.set_params(cv=positions), X, y)
    search.set_params(cv=masks).fit(X, y)
    assert ledger.guarantee().epsilon(DELTA) == pytest.approx(cost.epsilon(DELTA), rel=1e-9)


def test_the_last_step_of_a_pipeline_is_planned(ledger):
    pipe = Pipeline([("clip", RowNormClipper()), ("model", Pipeline([("m", ridge())]))])
    search = GridSearchCV(pipe, {"model__m__epsilon": [0.2, 0.4]}, cv=3, refit=False)
    assert ledger.check(search, X, y).mu == pytest.approx(by_hand([0.2, 0.4] * 3), rel=1e-6)


def test_a_step_of_the_grid_is_planned_in_its_place(ledger):
    pipe = Pipeline([("model", Ridge())])
    search = GridSearchCV(pipe, {"model": [ridge(epsilon=0.3)]}, cv=2, refit=False)
    assert ledger.check(search, X, y).mu == pytest.approx(by_hand([0.3] * 2), rel=1e-6)


def wide_ridge():
    return DPAdmmRidge(delta=DELTA, epsilon=0.5, feature_bounds=([-9] * 9, [9] * 9), **HERE)


@pytest.mark.parametrize(
    "transformer",
    [PolynomialFeatures(2, include_bias=False), FunctionTransformer(lambda X: np.hstack([X] * 3))],
)
@pytest.mark.parametrize("rows", [X, pd.DataFrame(X, columns=["a", "b", "c"])])
def test_features_that_arrive_at_the_last_step_are_counted(ledger, transformer, rows):
    pipe = make_pipeline(transformer, wide_ridge())
    search = GridSearchCV(pipe, {"dpadmmridge__alpha": [1.0]}, cv=2)
    cost = by_hand([0.5] * 3)
    assert ledger.check(search, rows, y).mu == pytest.approx(cost, rel=1e-6)
    assert ledger.check(search, X, y, n_features=9).mu == pytest.approx(cost, rel=1e-6)
    assert ledger.check(pipe, rows, y).mu == pytest.approx(by_hand([0.5]), rel=1e-6)


def test_features_that_are_learned_from_data_are_a_fact(ledger):
    pipe = make_pipeline(OneHotEncoder(), wide_ridge())
    search = GridSearchCV(pipe, {"dpadmmridge__alpha": [1.0]}, cv=2)
    with pytest.raises(ValueError) as caught:  # noqa: PT011  the text is the estimator's own
        ledger.check(search, X, y)
    assert "candidate" in caught.value.__notes__[0]
    assert ledger.check(search, X, y, n_features=9).mu == pytest.approx(by_hand([0.5] * 3))


def test_random_candidates_are_those_that_the_search_draws(ledger):
    space = {"epsilon": uniform(0.1, 0.9)}
    search = RandomizedSearchCV(ridge(), space, n_iter=4, cv=2, refit=False, random_state=3)
    cost = ledger.check(search, X, y)
    assert ledger.check(search, X, y) == cost
    drawn = search.fit(X, y).cv_results_["param_epsilon"]
    assert cost.mu == pytest.approx(by_hand([e for e in drawn for _ in range(2)]), rel=1e-6)


def test_a_generator_of_candidates_goes_on_as_though_nobody_had_asked(ledger):
    space = {"epsilon": uniform(0.1, 0.9)}
    generator = np.random.RandomState(5)
    search = RandomizedSearchCV(ridge(), space, n_iter=3, cv=2, random_state=generator)
    assert ledger.check(search, X, y) == ledger.check(search, X, y)
    assert generator.uniform() == np.random.RandomState(5).uniform()


def test_candidates_that_nobody_knows_are_refused(ledger):
    search = RandomizedSearchCV(ridge(), {"epsilon": uniform(0.1, 0.9)}, n_iter=3)
    with pytest.raises(ValueError, match="random_state=None"):
        ledger.check(search, X, y)


@pytest.mark.parametrize(
    "search",
    [
        BaggingRegressor(ridge()),
        Ridge(),
        GridSearchCV(Ridge(), {"alpha": [1.0]}),
        GridSearchCV(make_pipeline(Ridge()), {"ridge__alpha": [1.0]}),
        GridSearchCV(BaggingRegressor(ridge()), {"n_estimators": [1]}),
    ],
)
def test_what_cannot_be_planned_is_refused(ledger, search):
    with pytest.raises(TypeError, match="expected"):
        ledger.check(search, X, y)


@pytest.mark.parametrize("wrap", [lambda model: model, lambda model: make_pipeline(model)])
def test_an_estimator_is_one_fit(ledger, wrap):
    assert ledger.check(wrap(ridge(epsilon=0.5)), X, y).mu == pytest.approx(by_hand([0.5]))
    ledger.limit(0.4, DELTA)
    with pytest.raises(PrivacyBudgetExceeded, match="of 1 fit "):
        ledger.check(wrap(ridge(epsilon=0.5)), X, y)


def private_search(kind=DPGridSearchCV, candidates=MappingProxyType({"alpha": [0.1, 1.0]}), **own):
    model = ridge(max_iter=3).set_params(ledger=None)
    return kind(model, dict(candidates), delta=DELTA, **HERE, **own)


@pytest.mark.parametrize("refit", [False, True])
def test_a_private_search_costs_what_its_fit_will_say(ledger, refit):
    search = private_search(epsilon=0.8, refit=refit)
    cost = ledger.check(search, X, y)
    assert cost == search.fit(X, y).privacy_.guarantee() == ledger.guarantee()
    assert 0.7 < cost.epsilon(DELTA) <= 0.8


def test_a_private_search_with_drawn_candidates_stays_within_its_budget(ledger):
    space = {"alpha": uniform(0.1, 0.9)}
    cost = ledger.check(private_search(DPRandomizedSearchCV, space, n_iter=3, epsilon=0.8), X, y)
    assert 0.7 < cost.epsilon(DELTA) <= 0.8


def test_a_private_search_of_a_classifier_asks_for_the_classes(ledger):
    model = DPAdmmLogisticRegression(feature_bounds=(-3, 3), max_iter=3)
    search = DPGridSearchCV(model, {"C": [0.1, 1.0]}, epsilon=0.8, **HERE)
    assert ledger.check(search, X, labels) == search.fit(X, labels).privacy_.guarantee()


def test_a_private_search_that_is_too_dear_or_counted_elsewhere_is_refused(ledger, path):
    ledger.limit(0.5, DELTA)
    with pytest.raises(PrivacyBudgetExceeded, match="DPGridSearchCV of 1 fit "):
        ledger.check(private_search(epsilon=0.8), X, y)
    with pytest.raises(ValueError, match="would not be counted here"):
        ledger.check(private_search(epsilon=0.1).set_params(ledger=f"{path}::bank"), X, y)
    assert ledger.entries() == []


def test_a_search_over_private_searches_counts_each_of_them(ledger):
    outer = GridSearchCV(private_search(), {"epsilon": [0.2, 0.4]}, cv=2, refit=False)
    cost = ledger.check(outer, X, y)
    outer.fit(X, y)
    assert ledger.guarantee().epsilon(DELTA) == pytest.approx(cost.epsilon(DELTA), rel=1e-9)
    assert len(ledger.entries()) == 4


def test_halving_is_refused(ledger):
    from sklearn.experimental import enable_halving_search_cv  # noqa: F401
    from sklearn.model_selection import HalvingGridSearchCV

    with pytest.raises(TypeError, match="HalvingGridSearchCV"):
        ledger.check(HalvingGridSearchCV(ridge(), {"epsilon": [0.5]}), X, y)


def test_a_search_that_is_too_dear_is_refused_before_its_first_fit(ledger, entry):
    search = GridSearchCV(ridge(), {"epsilon": [0.5]}, cv=3)
    whole = by_hand([0.5] * 4)
    limit = GaussianDP(whole).epsilon(DELTA) * (1 + 1e-6)
    ledger.limit(limit, DELTA)
    ledger.check(search, X, y)
    ledger.reserve(entry(GaussianDP(0.01)))
    with pytest.raises(PrivacyBudgetExceeded, match="GridSearchCV of 4 fits") as caught:
        ledger.check(search, X, y)
    assert caught.value.epsilon_spent == GaussianDP(0.01).epsilon(DELTA)
    assert caught.value.epsilon_left < limit
    assert len(ledger.entries()) == 1
    assert not hasattr(search, "cv_results_")


def test_a_limit_of_another_data_set_is_none_of_its_business(path):
    PrivacyLedger(f"{path}::bank").limit(0.1, DELTA)
    search = GridSearchCV(ridge(), {"epsilon": [0.5]}, cv=3)
    search.estimator.set_params(ledger=f"{path}::adult")
    PrivacyLedger(f"{path}::adult").check(search, X, y)
    search.estimator.set_params(ledger=str(path))
    with pytest.raises(PrivacyBudgetExceeded):
        PrivacyLedger(path).check(search, X, y)


def test_to_check_makes_no_ledger(ledger, tmp_path):
    ledger.check(GridSearchCV(ridge(), {"epsilon": [0.5]}, cv=3), X, y)
    assert list(tmp_path.iterdir()) == []


def test_no_privacy_is_not_affordable(ledger):
    ledger.limit(100.0, DELTA)
    with pytest.raises(PrivacyBudgetExceeded):
        ledger.check(GridSearchCV(ridge(), {"epsilon": [0.5, math.inf]}, cv=3), X, y)


def test_candidates_about_other_neighbours_do_not_add_up(ledger):
    search = GridSearchCV(ridge(), {"neighboring": ["replace_one", "zero_out"]}, cv=3)
    with pytest.raises(LedgerError, match="2 kinds"):
        ledger.check(search, X, y)


def test_classes_come_from_the_declaration_the_facts_or_the_labels(ledger):
    declared = DPAdmmLogisticRegression(epsilon=0.5, delta=DELTA, classes=["no", "yes"], **HERE)
    silent = DPAdmmLogisticRegression(epsilon=0.5, delta=DELTA, **HERE)
    grid = {"C": [1.0]}
    costs = {
        ledger.check(GridSearchCV(declared, grid, cv=KFold(3)), X),
        ledger.check(GridSearchCV(silent, grid, cv=KFold(3)), X, n_classes=2),
        ledger.check(GridSearchCV(silent, grid, cv=KFold(3)), X, labels),
    }
    mus = {round(cost.mu, 9) for cost in costs}
    assert mus == {round(by_hand([0.5] * 4), 9)}


def test_federated_fits_are_planned_with_their_partition(ledger):
    model = DPFedRidge(epsilon=0.5, delta=DELTA, **HERE)
    search = GridSearchCV(model, {"alpha": [1.0]}, cv=3, refit=False)
    epsilon = ledger.check(search, X, y).epsilon(DELTA)
    assert GaussianDP(by_hand([0.5])).epsilon(DELTA) < epsilon
    assert epsilon <= GaussianDP(by_hand([0.5] * 3)).epsilon(DELTA) * (1 + 1e-6)


class WithLedger(BaseEstimator):
    """What an estimator with a ledger of its own will look like."""

    def __init__(self, epsilon=0.5, ledger=None):
        self.epsilon = epsilon
        self.ledger = ledger

    def fit(self, X, y=None):
        raise AssertionError("nothing is fitted")

    def score(self, X, y=None):
        return 0.0

    def plan(self, n_samples, n_features):
        return ridge(epsilon=self.epsilon).plan(n_samples, n_features)


def test_fits_that_would_be_counted_elsewhere_are_refused(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    grid = {"epsilon": [0.5]}
    ledger = PrivacyLedger(f"{path}::adult")
    for good in (f"{path}::adult", "study.db::adult"):
        ledger.check(GridSearchCV(WithLedger(ledger=good), grid, cv=3), X, y)
    for bad in (None, path, f"{path}::bank", "other.db::adult"):
        with pytest.raises(ValueError, match="would not be counted here"):
            ledger.check(GridSearchCV(WithLedger(ledger=bad), grid, cv=3), X, y)


def both_relations():
    return GridSearchCV(ridge(epsilon=0.5), {"neighboring": ["replace_one", "zero_out"]}, cv=3)


def test_what_a_limit_converts_is_checked_and_fitted(ledger):
    ledger.limit(9.0, DELTA, unit="record", neighboring="replace_one")
    search = both_relations().set_params(refit=False)
    cost = ledger.check(search, X, y)
    mu = gaussian_mu(0.5, DELTA)
    assert cost.mu == pytest.approx(math.hypot(*[mu] * 3, *[2 * mu] * 3), rel=1e-6)
    search.fit(X, y)
    asked = {"unit": "record", "neighboring": "replace_one"}
    assert ledger.guarantee(**asked).mu == pytest.approx(cost.mu, rel=1e-9)


def test_what_is_asked_for_is_converted_without_a_limit(ledger):
    search = both_relations().set_params(refit=False)
    with pytest.raises(LedgerError, match="unit='record', neighboring='replace_one'"):
        ledger.check(search, X, y)
    cost = ledger.check(search, X, y, unit="record", neighboring="replace_one")
    mu = gaussian_mu(0.5, DELTA)
    assert cost.mu == pytest.approx(math.hypot(*[mu] * 3, *[2 * mu] * 3), rel=1e-6)
    with pytest.raises(LedgerError, match="says something about"):
        ledger.check(search, X, y, unit="record", neighboring="zero_out")
    with pytest.raises(ValueError, match="together"):
        ledger.check(search, X, y, unit="record")


def test_the_limit_of_the_data_set_says_what_is_returned(path):
    PrivacyLedger(path).limit(9.0, DELTA)
    adult = PrivacyLedger(f"{path}::adult")
    model = ridge(epsilon=0.5, neighboring="zero_out").set_params(ledger=f"{path}::adult")
    mu = gaussian_mu(0.5, DELTA)
    assert adult.check(model, X, y).mu == pytest.approx(mu, rel=1e-6)
    adult.limit(9.0, DELTA, unit="record", neighboring="replace_one")
    assert adult.check(model, X, y).mu == pytest.approx(2 * mu, rel=1e-6)
    asked = {"unit": "record", "neighboring": "zero_out"}
    assert adult.check(model, X, y, **asked).mu == pytest.approx(mu, rel=1e-6)
