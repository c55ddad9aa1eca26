"""A search in the account of a study: once, with its whole cost, before its trials see data."""

from __future__ import annotations

import math
import os
from pathlib import Path

import numpy as np
import pytest

from skdpadmm import DPAdmmLogisticRegression
from skdpadmm.ledger import LedgerError, PrivacyBudgetExceeded, PrivacyLedger
from skdpadmm.model_selection import DPGridSearchCV

pytestmark = pytest.mark.filterwarnings("ignore:Got scores with noise:UserWarning")
GRID, DELTA = {"C": [1e-7, 1.0]}, 1e-5
X = np.random.default_rng(0).uniform(-1, 1, size=(600, 2))
Y = (X @ [3.0, -2.0] > 0).astype(int)


def classifier(cls=DPAdmmLogisticRegression, **parameters):
    return cls(**{"classes": [0, 1], "feature_bounds": (-1, 1), "max_iter": 3} | parameters)


def grid_search(path, cls=DPAdmmLogisticRegression, *, param_grid=None, **parameters):
    known = {"ledger": path, "n_trials": 3}
    return DPGridSearchCV(classifier(cls), param_grid or GRID, **known | parameters)


class Failing(DPAdmmLogisticRegression):
    def fit(self, X, y):
        raise FloatingPointError("somewhere")


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "study.db")


@pytest.fixture
def account(path):
    return PrivacyLedger(path)


def test_a_search_is_one_entry_with_its_plan_and_its_whole_cost(path, account):
    search = DPGridSearchCV(classifier(), GRID, ledger=Path(path), epsilon=1.5, refit=True)
    search.fit(X, Y)
    assert account.guarantee() == search.privacy_.guarantee()
    assert account.total(DELTA) == search.privacy_.epsilon() <= 1.5
    (entry,) = account.entries()
    assert entry["subject"] == "DPGridSearchCV of DPAdmmLogisticRegression"
    assert (entry["state"], entry["observer"], entry["unit"]) == ("done", "model", "record")
    assert (entry["digest"], entry["delta"]) == (search.plan(600, 2).digest().hex(), DELTA)
    assert search.best_estimator_.ledger is search.estimator.ledger is None
    assert "whose times show how long the search took" in " ".join(search.privacy_.assumptions)


def test_a_search_may_use_a_limit_up_and_beyond_it_touches_no_data(path, account):
    account.limit(1.0, DELTA)
    grid_search(path, epsilon=1.0, refit=True).fit(X, Y)
    again = grid_search(path, Failing, epsilon=0.1, refit=True)
    with pytest.raises(PrivacyBudgetExceeded, match="no data was used"):
        again.fit(X, Y)
    assert not hasattr(again, "best_estimator_")
    assert [entry["state"] for entry in account.entries()] == ["done"]


def test_a_search_that_does_not_end_stays_counted(path, account):
    with pytest.raises(FloatingPointError, match="somewhere"):
        grid_search(path, Failing).fit(X, Y)
    assert [entry["state"] for entry in account.entries()] == ["reserved"]
    assert 0.999 < account.total(DELTA) <= 1.0


def test_a_seed_of_the_search_makes_a_simulation_and_its_ledger_no_difference(path, account):
    search, other = (grid_search(p, random_state=4).fit(X, Y) for p in (path, None))
    np.testing.assert_array_equal(search.best_estimator_.coef_, other.best_estimator_.coef_)
    with pytest.warns(UserWarning, match="include_simulated"):
        account.total(DELTA)
    assert account.total(DELTA, include_simulated=True) == search.privacy_.epsilon()
    grid_search(f"{path}2", epsilon=math.inf).fit(X, Y)
    assert PrivacyLedger(f"{path}2").total(DELTA) == math.inf


def test_what_is_refused_before_data_is_not_counted(path):
    for search, rows, labels, message in (
        (grid_search(path, scoring="roc_auc"), X, Y, "exact scores of private"),
        (grid_search(path), X, Y + (np.arange(600) == 0), "among classes"),
        (grid_search(f"{path}/missing/study.db", Failing), X, Y, "existing directory"),
        (grid_search(None).set_params(estimator__ledger=path), X, Y, "Give the ledger to the"),
        (grid_search(None, param_grid={"ledger": [path]}), X, Y, "sets it for every trial"),
    ):
        with pytest.raises((ValueError, LedgerError), match=message):
            search.fit(rows, labels)
    grid_search(path).plan(600, 2)
    assert not os.path.exists(path)
