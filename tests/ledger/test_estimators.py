"""The account of fits: the sum is right with any number of processes, and after a crash."""

from __future__ import annotations

import math
import multiprocessing
import os
import pickle
import signal
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline

import skdpadmm._fitting as fitting
from skdpadmm import (
    DPAdmmLogisticRegression,
    DPAdmmRidge,
    DPDecentralizedClassifier,
    DPDecentralizedRegressor,
    DPFedRidge,
    DPPersonalizedRegressor,
)
from skdpadmm.algorithms import GradientADMM
from skdpadmm.ledger import LedgerError, PrivacyBudgetExceeded, PrivacyLedger
from skdpadmm.preprocessing import BoundedScaler
from skdpadmm.privacy import GaussianDP, gaussian_mu

DELTA = 1e-5
ALL = [
    DPAdmmRidge,
    DPAdmmLogisticRegression,
    DPFedRidge,
    DPDecentralizedRegressor,
    DPDecentralizedClassifier,
    DPPersonalizedRegressor,
]


def data(n=90):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (n, 2))
    return X, X @ [1.0, -2.0]


def by_hand(*epsilons):
    """Gaussian parts compose exactly: the squares of mu add up."""
    return GaussianDP(math.hypot(*(gaussian_mu(e, DELTA) for e in epsilons))).epsilon(DELTA)


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "study.db")


@pytest.mark.parametrize("cls", ALL)
def test_every_fit_is_in_the_account_with_its_whole_cost(cls, path):
    X, y = data()
    y = (y > 0).astype(int) if "gression" in cls.__name__ or "Class" in cls.__name__ else y
    model = cls(ledger=path, epsilon=0.7, max_iter=3)
    for _ in range(2):
        model.fit(X, y)
    account = PrivacyLedger(path)
    assert [entry["state"] for entry in account.entries()] == ["done"] * 2
    assert account.total(DELTA) == pytest.approx(by_hand(0.7, 0.7), rel=1e-6)
    assert account.total(DELTA) >= model.privacy_.epsilon()
    assert list(account.epsilon_by_estimator(DELTA)) == [cls.__name__]


@pytest.mark.parametrize("n_jobs", [1, 4])
@pytest.mark.parametrize("cv", [3, 5])
def test_a_grid_search_over_a_pipeline_is_counted_fit_by_fit(path, n_jobs, cv):
    X, y = data()
    model = make_pipeline(BoundedScaler(lower=-1, upper=1), DPAdmmRidge(ledger=path, max_iter=3))
    grid = {"dpadmmridge__epsilon": [0.5, 2.0]}
    search = GridSearchCV(model, grid, cv=cv, n_jobs=n_jobs).fit(X, y)
    best = search.best_params_["dpadmmridge__epsilon"]
    account = PrivacyLedger(path)
    assert len(account.entries()) == 2 * cv + 1
    expected = by_hand(*[0.5] * cv, *[2.0] * cv, best)
    assert account.total(DELTA) == pytest.approx(expected, rel=1e-6)


def test_cross_validation_copies_and_pickles_write_to_one_account(path):
    X, y = data()
    model = DPAdmmRidge(ledger=path, max_iter=3)
    cross_val_score(model, X, y, cv=4, n_jobs=2)
    clone(model).fit(X, y)
    pickle.loads(pickle.dumps(model)).fit(X, y)
    assert PrivacyLedger(path).total(DELTA) == pytest.approx(by_hand(*[1.0] * 6), rel=1e-6)


def killed_in_mid_fit(path):
    X, y = data()

    def solve(*arguments):
        os.kill(os.getpid(), signal.SIGKILL)

    fitting._solve = solve
    DPAdmmRidge(ledger=path).fit(X, y)


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no such signal here")
def test_a_process_that_is_killed_in_mid_fit_stays_counted(path):
    DPAdmmRidge(ledger=path, max_iter=3).fit(*data())
    process = multiprocessing.get_context("spawn").Process(target=killed_in_mid_fit, args=(path,))
    process.start()
    process.join(120)
    assert process.exitcode == -signal.SIGKILL
    account = PrivacyLedger(path)
    assert [entry["state"] for entry in account.entries()] == ["done", "reserved"]
    assert account.total(DELTA) == pytest.approx(by_hand(1.0, 1.0), rel=1e-6)


def test_a_fit_that_fails_after_it_touched_data_stays_counted(path, monkeypatch):
    def solve(*arguments):
        raise FloatingPointError("somewhere")

    monkeypatch.setattr(fitting, "_solve", solve)
    model = DPAdmmRidge(ledger=path)
    with pytest.raises(FloatingPointError):
        model.fit(*data())
    assert PrivacyLedger(path).total(DELTA) == pytest.approx(by_hand(1.0), rel=1e-6)
    assert not hasattr(model, "coef_")


def test_a_fit_beyond_the_limit_is_refused_before_it_touches_data(path, monkeypatch):
    model = DPAdmmRidge(ledger=path, max_iter=3).fit(*data())
    PrivacyLedger(path).limit(1.2, DELTA)
    touched = []
    monkeypatch.setattr(fitting, "_solve", lambda *arguments: touched.append(1))
    with pytest.raises(PrivacyBudgetExceeded, match="no data was used"):
        clone(model).fit(*data())
    assert not touched
    assert len(PrivacyLedger(path).entries()) == 1


def test_data_sets_have_accounts_of_their_own(path):
    for name, epsilons in (("adult", (1.0, 2.0)), ("crime", (0.5,))):
        for epsilon in epsilons:
            DPAdmmRidge(ledger=f"{path}::{name}", epsilon=epsilon, max_iter=3).fit(*data())
    assert PrivacyLedger(f"{path}::adult").total(DELTA) == pytest.approx(by_hand(1.0, 2.0), 1e-6)
    assert PrivacyLedger(f"{path}::crime").total(DELTA) == pytest.approx(0.5, 1e-6)


def test_a_seeded_fit_is_a_simulation_and_no_part_of_a_total(path):
    DPAdmmRidge(ledger=path, random_state=0, max_iter=3).fit(*data())
    account = PrivacyLedger(path)
    with pytest.raises(LedgerError, match="include_simulated"):
        account.total(DELTA)
    assert account.total(DELTA, include_simulated=True) == pytest.approx(1.0, 1e-6)


def test_a_fit_without_privacy_leaves_nothing_of_a_budget(path):
    DPAdmmRidge(ledger=path, epsilon=math.inf).fit(*data())
    assert PrivacyLedger(path).total(DELTA) == math.inf


def test_a_stream_is_counted_once_whatever_its_pieces(path):
    X, y = data()
    model = DPAdmmRidge(ledger=path, algorithm=GradientADMM(schedule="stream"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for start in range(0, len(X), 30):
            model.partial_fit(X[start : start + 30], y[start : start + 30])
        model.finalize()
    account = PrivacyLedger(path)
    assert [entry["state"] for entry in account.entries()] == ["done"]
    assert account.total(DELTA) == pytest.approx(model.privacy_.epsilon(), rel=1e-9)


@pytest.mark.parametrize("first", [None, "other.db"])
def test_a_stream_stays_in_one_account(path, tmp_path, monkeypatch, first):
    monkeypatch.chdir(tmp_path)
    X, y = data()
    model = DPAdmmRidge(ledger=first, algorithm=GradientADMM(schedule="stream"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.partial_fit(X[:30], y[:30]).set_params(ledger=path)
        with pytest.raises(ValueError, match="one ledger"):
            model.partial_fit(X[30:], y[30:])
        assert model.n_samples_seen_ == 30
        model.fit(X, y)
    assert [entry["state"] for entry in PrivacyLedger(path).entries()] == ["done"]


@pytest.mark.parametrize("ledger", [3, True, b"study.db"])
def test_a_ledger_is_a_path(ledger):
    with pytest.raises(ValueError, match="The 'ledger' parameter"):
        DPAdmmRidge(ledger=ledger).fit(*data())


@pytest.mark.parametrize("cls", [DPAdmmRidge, DPFedRidge, DPDecentralizedRegressor])
def test_a_path_object_is_a_path(cls, path):
    X, y = data()
    model = cls(ledger=Path(path), max_iter=3).fit(X, y)
    assert clone(model).get_params()["ledger"] == Path(path)
    clone(model).fit(X, y)
    pickle.loads(pickle.dumps(model)).fit(X, y)
    assert PrivacyLedger(path).total(DELTA) == pytest.approx(by_hand(*[1.0] * 3), rel=1e-6)


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_a_grid_search_counts_at_a_path_object(path, n_jobs):
    X, y = data()
    model = DPAdmmRidge(ledger=Path(path), max_iter=3)
    search = GridSearchCV(model, {"epsilon": [0.5, 2.0]}, cv=3, n_jobs=n_jobs)
    cost = PrivacyLedger(path).check(search, X, y)
    best = search.fit(X, y).best_params_["epsilon"]
    total = PrivacyLedger(path).total(DELTA)
    assert total == pytest.approx(by_hand(*[0.5] * 3, *[2.0] * 3, best), rel=1e-6)
    assert total <= cost.epsilon(DELTA) * (1 + 1e-9)


def test_an_account_that_cannot_be_used_stops_a_fit_before_data(tmp_path, monkeypatch):
    touched = []
    monkeypatch.setattr(fitting, "_solve", lambda *arguments: touched.append(1))
    with pytest.raises(LedgerError):
        DPAdmmRidge(ledger=str(tmp_path / "missing" / "study.db")).fit(*data())
    (tmp_path / "text.db").write_text("no database" * 100)
    with pytest.raises(LedgerError):
        DPAdmmRidge(ledger=str(tmp_path / "text.db")).fit(*data())
    assert not touched


def writer(path, n_fits):
    for _ in range(n_fits):
        DPAdmmRidge(ledger=path, max_iter=2).fit(*data(30))
        time.sleep(0)


@pytest.mark.slow
def test_sixteen_processes_lose_nothing(path):
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=writer, args=(path, 3)) for _ in range(16)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(300)
        assert process.exitcode == 0
    assert PrivacyLedger(path).total(DELTA) == pytest.approx(by_hand(*[1.0] * 48), rel=1e-6)
