"""What a search will cost is known before its first fit, and refused there."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from scipy.stats import uniform
from sklearn.ensemble import BaggingRegressor
from sklearn.experimental import enable_halving_search_cv  # noqa: F401
from sklearn.linear_model import Ridge
from sklearn.model_selection import (
    GridSearchCV,
    HalvingGridSearchCV,
    RandomizedSearchCV,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, PolynomialFeatures

from skdpadmm import DPAdmmLogisticRegression, DPAdmmRidge
from skdpadmm.ledger import LedgerError, PrivacyBudgetExceeded, PrivacyLedger
from skdpadmm.model_selection import DPGridSearchCV, DPRandomizedSearchCV
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
    with pytest.raises(ValueError, match="feature_bounds"):
        ledger.check(learned, X, y)
    assert ledger.check(learned, X, y, n_features=9).mu == by_hand(*[0.5] * 3)


def test_random_candidates_are_those_that_the_search_draws(ledger, ridge):
    own = {"n_iter": 4, "cv": 2, "refit": False}
    space = {"epsilon": uniform(0.1, 0.9)}
    search = RandomizedSearchCV(ridge(), space, random_state=np.random.RandomState(5), **own)
    cost = ledger.check(search, X, y)
    drawn = search.fit(X, y).cv_results_["param_epsilon"]
    assert cost.mu == by_hand(*drawn, *drawn)
    with pytest.raises(ValueError, match="random_state=None"):
        ledger.check(RandomizedSearchCV(ridge(), space, **own), X, y)
    with pytest.raises(ValueError, match="gone through once"):
        ledger.check(grid(ridge(), cv=iter(MASKS)), X, y)


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
    with pytest.raises(LedgerError, match="unit='record', neighboring='replace_one'"):
        ledger.check(search, X, y)
    both = pytest.approx(MU * math.sqrt(15), rel=1e-6)
    assert ledger.check(search, X, y, **REPLACE_ONE).mu == both
    ledger.limit(9.0, DELTA, **REPLACE_ONE)
    assert ledger.check(search, X, y).mu == both
