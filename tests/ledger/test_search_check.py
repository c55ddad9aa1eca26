"""What a search will cost, known and refused before its first fit, and what it writes."""

import math
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import uniform
from sklearn.decomposition import PCA
from sklearn.ensemble import BaggingRegressor
from sklearn.experimental import enable_halving_search_cv  # noqa: F401
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV, HalvingGridSearchCV, RandomizedSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, PolynomialFeatures

from skdpadmm import DPAdmmLogisticRegression, DPAdmmRidge
from skdpadmm.ledger import LedgerError, PrivacyBudgetExceeded, PrivacyLedger
from skdpadmm.model_selection import DPGridSearchCV, DPRandomizedSearchCV, search_cost
from skdpadmm.privacy import GaussianDP, gaussian_mu

# Few rows, so that scores are nearly all noise: what they cost is what is asked here.
pytestmark = pytest.mark.filterwarnings("ignore:.*choices are nearly random")

X = np.random.default_rng(0).normal(size=(61, 3))
y = X @ np.array([1.0, -1.0, 0.5])
labels = np.where(y > 0, "yes", "no")
DELTA = 1e-6
MU = gaussian_mu(0.5, DELTA)
REPLACE_ONE = {"unit": "record", "neighboring": "replace_one"}


@pytest.fixture
def ridge(path):
    def make(cls=DPAdmmRidge, **own):
        bounds = {"feature_bounds": (-3, 3), "target_bounds": (-5, 5)}
        return cls(**{"delta": DELTA, "epsilon": 0.5, "ledger": path, **bounds, **own})

    return make


def by_hand(*epsilons):
    """Mu of fits of which each spends all of its budget."""
    return pytest.approx(math.hypot(*(gaussian_mu(e, DELTA) for e in epsilons)), rel=1e-6)


def grid(model, name="alpha", values=(1.0,), **own):
    return GridSearchCV(model, {name: list(values)}, **{"cv": 3, "refit": False, **own})


def test_candidates_times_folds_and_the_dearest_refit_are_counted(ledger, ridge, tmp_path):
    for refit in (True, False):
        search = grid(ridge(), "epsilon", [0.1, 0.5, 1.0], cv=5, refit=refit)
        assert ledger.check(search, X, y).mu == by_hand(*[0.1, 0.5, 1.0] * 5, *[1.0] * refit)
    assert ledger.check(make_pipeline(ridge()), X, y).mu == by_hand(0.5)
    assert not list(tmp_path.iterdir())


MASKS = [(np.arange(61) < size, np.arange(61) >= size) for size in (30, 40)]


def test_features_that_arrive_at_the_last_step_are_counted_or_a_fact(ledger, ridge):
    wide = ridge(feature_bounds=([-9] * 9, [9] * 9), target_bounds=None)
    pipe = make_pipeline(PolynomialFeatures(2, include_bias=False), wide)
    for rows in (X, pd.DataFrame(X, columns=["a", "b", "c"])):
        assert ledger.check(grid(pipe, "dpadmmridge__alpha"), rows, y).mu == by_hand(*[0.5] * 3)
    learned = grid(make_pipeline(OneHotEncoder(), wide), "dpadmmridge__alpha")
    with pytest.raises(ValueError, match=r"OneHotEncoder at steps\[0\] learnt from the"):
        ledger.check(learned, X, y)
    frozen = FrozenEstimator(PCA(2).fit(X))  # on public rows
    narrow = ridge(feature_bounds=(-9, 9))
    known = grid(make_pipeline(frozen, narrow), "dpadmmridge__alpha")
    assert ledger.check(known, X, y).mu == by_hand(*[0.5] * 3)
    assert ledger.check(known, X, y, n_features=2).mu == by_hand(*[0.5] * 3)


def test_random_candidates_are_those_that_the_search_draws(ledger, ridge):
    own = {"n_iter": 4, "cv": 2, "refit": False}
    space = {"epsilon": uniform(0.1, 0.9)}
    search = RandomizedSearchCV(ridge(), space, random_state=np.random.RandomState(5), **own)
    cost = ledger.check(search, X, y)
    drawn = search.fit(X, y).cv_results_["param_epsilon"]
    assert cost.mu == by_hand(*drawn, *drawn)
    with pytest.raises(ValueError, match="random_state=None"):
        ledger.check(RandomizedSearchCV(ridge(), space, **own), X, y)
    with pytest.raises(ValueError, match="can be used once"):
        ledger.check(grid(ridge(), cv=iter(MASKS)), X, y)
    # The last row once more, counted from the end.
    repeated = [([0, 1, len(X) - 1, -1], [2, 3])]
    with pytest.raises(ValueError, match="rows are repeated"):
        ledger.check(grid(ridge(), cv=repeated), X, y)


class FitsTwice(GridSearchCV):
    """A search that may fit more than its grid."""


class WithAState:
    """A distribution that goes on from where it is."""

    drawn = 0

    def rvs(self, random_state=None):
        self.drawn += 1
        return float(self.drawn)


def test_searches_of_others_and_global_generators_are_refused_and_states_are_left_alone(
    ledger, ridge
):
    with pytest.raises(TypeError, match="FitsTwice"):
        ledger.check(FitsTwice(ridge(), {"epsilon": [0.5]}), X, y)
    with pytest.raises(TypeError, match="FitsTwice"):
        search_cost(FitsTwice(ridge(), {"epsilon": [0.5]}), n_samples=61, n_features=3)
    space = {"epsilon": WithAState()}
    for state in (np.random, np.random.mtrand._rand, None):
        search = RandomizedSearchCV(ridge(), space, n_iter=1, cv=2, random_state=state)
        with pytest.raises(ValueError, match=r"random_state=.*, expected an int"):
            ledger.check(search, X, y)
    search = RandomizedSearchCV(ridge(), space, n_iter=1, cv=2, random_state=0)
    assert ledger.check(search, X, y) == ledger.check(search, X, y)


def test_what_cannot_be_planned_is_refused(ledger, ridge):
    bagged = grid(BaggingRegressor(ridge()), "n_estimators", [1])
    for search in (Ridge(), bagged, HalvingGridSearchCV(ridge(), {"epsilon": [0.5]})):
        with pytest.raises(TypeError, match="expected"):
            ledger.check(search, X, y)
    private = DPGridSearchCV(ridge(ledger=None), {"alpha": [1.0]}, ledger=ledger.path)
    adult = PrivacyLedger(f"{ledger.path}::adult")
    for search in (grid(ridge(ledger=None)), grid(ridge(ledger=f"{ledger.path}::bank")), private):
        with pytest.raises(ValueError, match="would not be counted here"):
            adult.check(search, X, y)


@pytest.mark.parametrize("kind", ["refit", "drawn", "classes"])
def test_a_private_search_costs_what_its_fit_will_say(ledger, ridge, path, kind):
    own = {"epsilon": 0.8, "delta": DELTA, "ledger": path, "refit": kind == "refit"}
    model, targets = ridge(ledger=None, max_iter=3), labels if kind == "classes" else y
    logistic = DPAdmmLogisticRegression(feature_bounds=(-3, 3), max_iter=3)
    search = {
        "refit": DPGridSearchCV(model, {"alpha": [0.1, 1.0]}, **own),
        "drawn": DPRandomizedSearchCV(model, {"alpha": uniform(0.1, 0.9)}, n_iter=3, **own),
        "classes": DPGridSearchCV(logistic, {"C": [0.1, 1.0]}, **own),
    }[kind]
    cost = ledger.check(search, X, targets)
    assert 0.7 < cost.epsilon(DELTA) <= 0.8
    search.fit(X, targets)
    assert cost == search.privacy_.guarantee() == ledger.guarantee()
    ledger.limit(1.0, DELTA)
    with pytest.raises(PrivacyBudgetExceeded, match=f"{type(search).__name__} of 1 fit "):
        ledger.check(search, X, targets)


def test_a_search_beyond_its_limit_is_refused_before_its_first_fit(ledger, path, ridge, entry):
    PrivacyLedger(f"{path}::bank").limit(0.1, DELTA)  # another data set's limit is not its own
    adult = PrivacyLedger(f"{path}::adult")
    search = grid(ridge(ledger=f"{path}::adult"), refit=True)
    adult.limit(GaussianDP(2 * MU).epsilon(DELTA) * (1 + 1e-6), DELTA)
    adult.check(search, X, y)
    adult.reserve(entry(GaussianDP(0.01)))
    with pytest.raises(PrivacyBudgetExceeded, match="GridSearchCV of 4 fits") as caught:
        adult.check(search, X, y)
    assert caught.value.epsilon_spent == GaussianDP(0.01).epsilon(DELTA)
    assert len(ledger.entries()) == 1
    assert not hasattr(search, "cv_results_")


def test_relations_are_converted_where_a_limit_or_the_question_says_so(ledger, ridge):
    search = grid(ridge(), "neighboring", ["replace_one", "zero_out"])
    with pytest.raises(ValueError, match="unit='record', neighboring='replace_one'"):
        ledger.check(search, X, y)
    both = pytest.approx(MU * math.sqrt(15), rel=1e-6)
    assert ledger.check(search, X, y, **REPLACE_ONE).mu == both
    ledger.limit(9.0, DELTA, **REPLACE_ONE)
    assert ledger.check(search, X, y).mu == both


# What a private search writes.


def classifier(**parameters):
    return DPAdmmLogisticRegression(
        **{"classes": ["no", "yes"], "feature_bounds": (-3, 3), "max_iter": 3} | parameters
    )


def grid_search(path, *, param_grid=None, **parameters):
    known = {"ledger": path, "n_trials": 3, "delta": DELTA}
    return DPGridSearchCV(classifier(), param_grid or {"C": [1e-7, 1.0]}, **known | parameters)


@pytest.fixture
def failing(monkeypatch):
    """Every fit fails."""

    def fit(self, X, y):
        raise FloatingPointError("somewhere")

    monkeypatch.setattr(DPAdmmLogisticRegression, "fit", fit)


def test_a_search_is_one_entry_with_its_plan_and_its_whole_cost(path, ledger):
    search = grid_search(Path(path), epsilon=1.5, refit=True)
    search.fit(X, labels)
    assert ledger.guarantee() == search.privacy_.guarantee()
    assert ledger.total(DELTA, kind="fixed") == search.privacy_.epsilon() <= 1.5
    (entry,) = ledger.entries()
    assert entry["subject"] == "DPGridSearchCV of DPAdmmLogisticRegression"
    assert (entry["state"], entry["observer"], entry["unit"]) == ("done", "model", "record")
    assert (entry["digest"], entry["delta"]) == (search.plan(61, 3).digest().hex(), DELTA)
    assert search.best_estimator_.ledger is search.estimator.ledger is None
    assert "whose times show how long the search took" in " ".join(search.privacy_.assumptions)


def test_a_search_may_use_a_limit_up_and_beyond_it_touches_no_data(path, ledger, request):
    ledger.limit(1.0, DELTA)
    grid_search(path, epsilon=1.0, refit=True).fit(X, labels)
    request.getfixturevalue("failing")
    again = grid_search(path, epsilon=0.1, refit=True)
    with pytest.raises(PrivacyBudgetExceeded, match="no data was used"):
        again.fit(X, labels)
    assert not hasattr(again, "best_estimator_")
    assert [entry["state"] for entry in ledger.entries()] == ["done"]


@pytest.mark.usefixtures("failing")
def test_a_search_that_does_not_end_stays_counted(path, ledger):
    with pytest.raises(FloatingPointError, match="FloatingPointError in"):
        grid_search(path).fit(X, labels)
    assert [entry["state"] for entry in ledger.entries()] == ["reserved"]
    assert 0.999 < ledger.total(DELTA, kind="fixed") <= 1.0


def test_a_seed_of_the_search_makes_a_simulation_and_its_ledger_no_difference(path, ledger):
    search, other = (grid_search(p, random_state=4).fit(X, labels) for p in (path, None))
    np.testing.assert_array_equal(search.best_estimator_.coef_, other.best_estimator_.coef_)
    with pytest.warns(UserWarning, match="include_simulated"):
        ledger.total(DELTA, kind="fixed")
    assert ledger.total(DELTA, include_simulated=True, kind="fixed") == search.privacy_.epsilon()
    grid_search(f"{path}2", epsilon=math.inf).fit(X, labels)
    assert PrivacyLedger(f"{path}2").total(DELTA, kind="fixed") == math.inf


@pytest.mark.usefixtures("failing")
def test_what_is_refused_before_data_is_not_counted(path):
    for search, rows, targets, message in (
        (grid_search(path, scoring="roc_auc"), X, labels, "in ranks and ratios"),
        (grid_search(path), X, np.where(np.arange(61) == 0, "maybe", labels), "among classes"),
        (grid_search(f"{path}/missing/study.db"), X, labels, "directory does not exist"),
        (grid_search(None).set_params(estimator__ledger=path), X, labels, "Give the ledger to the"),
        (grid_search(None, param_grid={"ledger": [path]}), X, labels, "sets it for every trial"),
    ):
        with pytest.raises((ValueError, LedgerError), match=message):
            search.fit(rows, targets)
    grid_search(path).plan(61, 3)
    assert not os.path.exists(path)
