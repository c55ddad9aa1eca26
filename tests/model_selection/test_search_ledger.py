"""A search in the account of a study: once, with its whole cost, before its trials see data."""

from __future__ import annotations

import math
import multiprocessing
import os
import pickle
import signal

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.pipeline import make_pipeline

from skdpadmm import DPAdmmLogisticRegression, DPAdmmRidge
from skdpadmm.ledger import LedgerError, PrivacyBudgetExceeded, PrivacyLedger
from skdpadmm.model_selection import DPGridSearchCV, DPRandomizedSearchCV
from skdpadmm.preprocessing import BoundedScaler
from skdpadmm.privacy import RenyiDP, compose, renyi_divergences

N, DELTA = 600, 1e-5
GRID = {"C": [1e-7, 1.0]}


def data():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(N, 2))
    return X, (X @ [3.0, -2.0] > 0).astype(int)


def classifier(cls=DPAdmmLogisticRegression, **parameters):
    known = {"classes": [0, 1], "feature_bounds": (-1, 1), "max_iter": 3}
    return cls(**known | parameters)


def grid_search(path, cls=DPAdmmLogisticRegression, **parameters):
    return DPGridSearchCV(classifier(cls), GRID, **{"ledger": path, "n_trials": 3} | parameters)


def randomized_search(path, **parameters):
    return DPRandomizedSearchCV(classifier(), GRID, n_iter=2, ledger=path, **parameters)


def states(path):
    return [entry["state"] for entry in PrivacyLedger(path).entries()]


class Unspent(DPAdmmLogisticRegression):
    def fit(self, X, y):
        raise AssertionError("a trial was run")


class Failing(DPAdmmLogisticRegression):
    def fit(self, X, y):
        raise FloatingPointError("somewhere")


class Killed(DPAdmmLogisticRegression):
    def fit(self, X, y):
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "study.db")


@pytest.mark.parametrize("make", [grid_search, randomized_search])
@pytest.mark.parametrize("trials", ["geometric", "logarithmic", "poisson"])
@pytest.mark.parametrize("refit", [False, True])
def test_the_total_is_what_the_search_claims(path, make, trials, refit):
    search = make(path, trials=trials, refit=refit, epsilon=1.5).fit(*data())
    account = PrivacyLedger(path)
    assert account.guarantee() == search.privacy_.guarantee()
    assert account.total(DELTA) == search.privacy_.epsilon() <= 1.5
    (entry,) = account.entries()
    subject = f"{type(search).__name__}.DPAdmmLogisticRegression"
    assert entry["subject"] == subject
    assert (entry["state"], entry["observer"], entry["unit"]) == ("done", "model", "record")
    assert list(account.epsilon_by_estimator(DELTA)) == [subject]


def test_searches_of_different_estimators_are_told_apart(path):
    X, y = data()
    grid_search(path, epsilon=0.5).fit(X, y)
    steps = make_pipeline(BoundedScaler(), DPAdmmRidge(target_bounds=(0, 1), max_iter=3))
    DPGridSearchCV(steps, {"dpadmmridge__alpha": [1.0]}, epsilon=0.5, ledger=path).fit(X, y)
    assert list(PrivacyLedger(path).epsilon_by_estimator(DELTA)) == [
        "DPGridSearchCV.DPAdmmLogisticRegression",
        "DPGridSearchCV.DPAdmmRidge",
    ]


def test_the_entry_has_the_plan_of_the_search(path):
    search = grid_search(path).fit(*data())
    (entry,) = PrivacyLedger(path).entries()
    assert entry["digest"] == search.plan(N, 2).digest().hex()
    assert entry["delta"] == search.delta
    assert entry["neighboring"] == "replace_one"


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_there_is_one_entry_whatever_the_number_of_trials_and_jobs(path, n_jobs):
    for _ in range(4):
        grid_search(path, n_trials=6, n_jobs=n_jobs).fit(*data())
    # What is the same for all fits of this process and this plan.
    told = [
        {key: value for key, value in entry.items() if key not in ("id", "reserved", "finished")}
        for entry in PrivacyLedger(path).entries()
    ]
    assert len(told) == 4
    assert all(entry == told[0] for entry in told)


def test_searches_and_fits_add_up(path):
    X, y = data()
    first, second = (grid_search(path, epsilon=0.5).fit(X, y) for _ in range(2))
    model = classifier(ledger=path, epsilon=0.5).fit(X, y)
    parts = [first.privacy_.guarantee(), second.privacy_.guarantee()]
    by_hand = compose(*parts, renyi_divergences(model.privacy_.guarantee()))
    total = PrivacyLedger(path).total(DELTA)
    assert total == pytest.approx(by_hand.epsilon(DELTA), rel=1e-9)
    assert total < 1.5
    # One of them alone is no less than what it claims.
    assert all(isinstance(part, RenyiDP) for part in parts)
    assert total > first.privacy_.epsilon()


def test_a_pipeline_is_counted_as_its_search(path):
    pipeline = make_pipeline(BoundedScaler(lower=-1, upper=1), classifier())
    grid = {"dpadmmlogisticregression__C": [1e-3, 1.0]}
    search = DPGridSearchCV(pipeline, grid, ledger=path).fit(*data())
    assert PrivacyLedger(path).total(DELTA) == search.privacy_.epsilon()


@pytest.mark.parametrize("make", [grid_search, randomized_search])
def test_a_search_beyond_the_limit_is_refused_before_it_touches_data(path, make):
    X, y = data()
    PrivacyLedger(path).limit(1.2, DELTA)
    done = make(path, epsilon=1.0).fit(X, y)
    again = clone(done).set_params(
        estimator=classifier(Unspent), epsilon=1.0, n_jobs=1, random_state=None
    )
    with pytest.raises(PrivacyBudgetExceeded, match="no data was used"):
        again.fit(X, y)
    assert not hasattr(again, "best_estimator_")
    assert states(path) == ["done"]
    assert PrivacyLedger(path).total(DELTA) == done.privacy_.epsilon()


@pytest.mark.filterwarnings("ignore:Got scores with noise:UserWarning")
@pytest.mark.parametrize("refit", [False, True])
def test_a_search_may_use_a_limit_up(path, refit):
    PrivacyLedger(path).limit(1.0, DELTA)
    grid_search(path, epsilon=1.0, refit=refit).fit(*data())
    assert states(path) == ["done"]
    with pytest.raises(PrivacyBudgetExceeded):
        grid_search(path, epsilon=0.1).fit(*data())


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_a_search_whose_trial_fails_stays_counted(path, n_jobs):
    search = grid_search(path, Failing, n_jobs=n_jobs)
    with pytest.raises(FloatingPointError):
        search.fit(*data())
    assert not hasattr(search, "best_estimator_")
    assert states(path) == ["reserved"]
    assert 0.999 < PrivacyLedger(path).total(DELTA) <= 1.0


def test_a_search_whose_scores_fail_stays_counted(path):
    search = grid_search(path, scoring=lambda e, X, y: e.score(X, y), score_bounds=(0, 1))
    with pytest.raises(ValueError, match="one for each row"):
        search.fit(*data())
    assert states(path) == ["reserved"]


def killed_in_mid_search(path):
    grid_search(path, Killed).fit(*data())


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no such signal here")
def test_a_process_that_is_killed_in_mid_search_stays_counted(path):
    process = multiprocessing.get_context("spawn").Process(
        target=killed_in_mid_search, args=(path,)
    )
    process.start()
    process.join(120)
    assert process.exitcode == -signal.SIGKILL
    assert states(path) == ["reserved"]
    assert 0.999 < PrivacyLedger(path).total(DELTA) <= 1.0


def test_copies_and_pickles_write_to_one_account(path):
    search = grid_search(path, epsilon=0.5)
    assert search.get_params()["ledger"] == path
    assert clone(search).ledger == pickle.loads(pickle.dumps(search)).ledger == path
    clone(search).fit(*data())
    fitted = pickle.loads(pickle.dumps(search)).fit(*data())
    pickle.loads(pickle.dumps(fitted)).fit(*data())
    assert states(path) == ["done"] * 3


def test_the_final_model_has_no_ledger(path):
    for refit in (False, True):
        search = grid_search(path, refit=refit).fit(*data())
        assert search.best_estimator_.ledger is None
        assert search.estimator.ledger is None
    assert states(path) == ["done"] * 2


def test_a_seeded_search_is_a_simulation_and_no_part_of_a_total(path):
    search = grid_search(path, random_state=0).fit(*data())
    account = PrivacyLedger(path)
    assert account.entries()[0]["simulation"]
    with pytest.raises(LedgerError, match="include_simulated"):
        account.total(DELTA)
    assert account.total(DELTA, include_simulated=True) == search.privacy_.epsilon()


def test_a_seed_of_the_estimator_alone_makes_no_simulation(path):
    DPGridSearchCV(classifier(random_state=3), GRID, n_trials=3, ledger=path).fit(*data())
    assert PrivacyLedger(path).total(DELTA) <= 1.0


def test_the_result_does_not_depend_on_the_ledger(path):
    X, y = data()
    one, two = (grid_search(p, random_state=4).fit(X, y) for p in (path, None))
    np.testing.assert_array_equal(one.best_estimator_.coef_, two.best_estimator_.coef_)
    assert one.best_score_ == two.best_score_


def test_data_sets_have_accounts_of_their_own(path):
    for name in ("adult", "crime"):
        grid_search(f"{path}::{name}", epsilon=0.5).fit(*data())
    total = PrivacyLedger(path).total(DELTA, "adult")
    assert 0.49 < total <= 0.5 < PrivacyLedger(path).total(DELTA)


def test_a_search_without_privacy_leaves_nothing_of_a_budget(path):
    grid_search(path, epsilon=math.inf).fit(*data())
    assert PrivacyLedger(path).total(DELTA) == math.inf


def test_an_estimator_with_a_ledger_of_its_own_is_refused(path):
    X, y = data()
    for own in (path, None):
        search = DPGridSearchCV(classifier(ledger=path), GRID, ledger=own)
        with pytest.raises(ValueError, match="Give the ledger to the search"):
            search.fit(X, y)
    with pytest.raises(ValueError, match="sets it for every trial"):
        DPGridSearchCV(classifier(), {"ledger": [path]}).fit(X, y)
    steps = make_pipeline(BoundedScaler(), DPAdmmRidge())
    inside = {"dpadmmridge": [DPAdmmRidge(ledger=path, target_bounds=(0, 1))]}
    with pytest.raises(ValueError, match="ledger of its own"):
        DPGridSearchCV(steps, inside, score_bounds=(-1, 0)).fit(X, y)
    assert not os.path.exists(path)


def test_what_is_refused_by_its_plan_or_its_input_is_not_counted(path):
    X, y = data()
    with pytest.raises(ValueError, match="exact scores of private"):
        grid_search(path, scoring="roc_auc").fit(X, y)
    with pytest.raises(ValueError, match="NaN"):
        grid_search(path).fit(np.full_like(X, np.nan), y)
    with pytest.raises(ValueError, match="among classes"):
        grid_search(path).fit(X, y + (np.arange(N) == 0))
    grid_search(path).plan(N, 2)
    assert not os.path.exists(path)


@pytest.mark.parametrize("ledger", [3, True, b"study.db"])
def test_a_ledger_is_a_path_in_a_string(ledger):
    with pytest.raises(ValueError, match="The 'ledger' parameter"):
        grid_search(ledger).fit(*data())


@pytest.mark.parametrize("make", [grid_search, randomized_search])
def test_a_ledger_may_be_a_path_object(tmp_path, make):
    path = tmp_path / "study.db"
    search = make(path).fit(*data())
    assert clone(search).ledger == path
    assert states(path) == ["done"]
    assert PrivacyLedger(path).guarantee() == search.privacy_.guarantee()


def test_an_account_that_cannot_be_used_stops_a_search_before_data(tmp_path):
    with pytest.raises(LedgerError):
        grid_search(str(tmp_path / "missing" / "study.db"), Unspent).fit(*data())


def test_the_report_says_who_must_not_read_the_ledger(path):
    with_ledger, without = (grid_search(p).fit(*data()).privacy_ for p in (path, None))
    line = "Nobody who sees the result reads the ledger, whose times tell how long the search took."
    assert line in with_ledger.assumptions
    assert line not in without.assumptions
