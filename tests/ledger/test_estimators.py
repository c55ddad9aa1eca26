"""The account of fits: equal to the sum by hand with any number of workers, and after a crash."""

from __future__ import annotations

import math
import multiprocessing
import os
import pickle
import signal
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
    DPDecentralizedRegressor,
    DPFedRidge,
    DPPersonalizedRegressor,
)
from skdpadmm.algorithms import GradientADMM
from skdpadmm.ledger import LedgerError, PrivacyBudgetExceeded
from skdpadmm.preprocessing import BoundedScaler
from skdpadmm.privacy import GaussianDP, gaussian_mu

DELTA = 1e-5
X = np.random.default_rng(0).uniform(-1, 1, (90, 2))
Y = X @ [1.0, -2.0]
FAMILIES = [DPAdmmRidge, DPAdmmLogisticRegression, DPFedRidge, DPDecentralizedRegressor,
            DPPersonalizedRegressor]  # fmt: skip


def by_hand(*epsilons):
    """Gaussian parts compose exactly: the squares of mu add up."""
    mu = math.hypot(*(gaussian_mu(e, DELTA) for e in epsilons))
    return pytest.approx(GaussianDP(mu).epsilon(DELTA), rel=1e-6)


@pytest.fixture
def states(ledger):
    return lambda: [entry["state"] for entry in ledger.entries()]


@pytest.mark.parametrize("cls", FAMILIES)
def test_every_fit_is_in_the_account_with_its_whole_cost(cls, path, ledger, states):
    y = (Y > 0).astype(int) if cls is DPAdmmLogisticRegression else Y
    model = cls(ledger=Path(path), epsilon=0.7, max_iter=3).fit(X, y)
    clone(model).fit(X, y)
    pickle.loads(pickle.dumps(model)).fit(X, y)
    assert states() == ["done"] * 3
    assert ledger.total(DELTA) == by_hand(0.7, 0.7, 0.7)
    assert list(ledger.epsilon_by_estimator(DELTA)) == [cls.__name__]


@pytest.mark.parametrize("n_jobs", [1, pytest.param(4, marks=pytest.mark.slow)])
def test_searches_are_counted_fit_by_fit(tmp_path, monkeypatch, ledger, n_jobs):
    monkeypatch.chdir(tmp_path)  # workers know a relative path as well
    steps = BoundedScaler(lower=-1, upper=1), DPAdmmRidge(ledger="study.db", max_iter=3)
    grid = {"dpadmmridge__epsilon": [0.5, 2.0]}
    search = GridSearchCV(make_pipeline(*steps), grid, cv=3, n_jobs=n_jobs).fit(X, Y)
    fits = [*[0.5] * 3, *[2.0] * 3, search.best_params_["dpadmmridge__epsilon"]]
    assert len(ledger.entries()) == 7
    assert ledger.total(DELTA) == by_hand(*fits)
    cross_val_score(steps[1], X, Y, cv=4, n_jobs=n_jobs)
    assert ledger.total(DELTA) == by_hand(*fits, *[1.0] * 4)


def killed_in_mid_fit(path):
    fitting._solve = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
    DPAdmmRidge(ledger=path).fit(X, Y)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no such signal here")
def test_a_process_that_is_killed_in_mid_fit_stays_counted(path, ledger, states):
    process = multiprocessing.get_context("spawn").Process(target=killed_in_mid_fit, args=(path,))
    process.start()
    process.join(120)
    assert process.exitcode == -signal.SIGKILL
    assert states() == ["reserved"]
    assert ledger.total(DELTA) == by_hand(1.0)


def test_a_fit_that_fails_after_it_touched_data_stays_counted(path, ledger, states, monkeypatch):
    monkeypatch.setattr(fitting, "_solve", lambda *_: 1 / 0)
    model = DPAdmmRidge(ledger=path)
    with pytest.raises(ZeroDivisionError):
        model.fit(X, Y)
    assert states() == ["reserved"]
    assert ledger.total(DELTA) == by_hand(1.0)
    assert not hasattr(model, "coef_")


def test_what_cannot_be_counted_touches_no_data(path, tmp_path, ledger, monkeypatch):
    ledger.limit(0.9, DELTA)
    monkeypatch.setattr(fitting, "_solve", lambda *_: pytest.fail("it touched data"))
    with pytest.raises(PrivacyBudgetExceeded, match="no data was used"):
        DPAdmmRidge(ledger=path).fit(X, Y)
    with pytest.raises(LedgerError):
        DPAdmmRidge(ledger=str(tmp_path / "missing/study.db")).fit(X, Y)


def test_data_sets_simulations_and_fits_without_privacy(path, ledger):
    DPAdmmRidge(ledger=f"{path}::adult", epsilon=2.0, max_iter=3).fit(X, Y)
    DPAdmmRidge(ledger=f"{path}::crime", random_state=0, max_iter=3).fit(X, Y)
    assert ledger.total(DELTA, "adult") == by_hand(2.0)
    with pytest.warns(UserWarning, match="include_simulated"):
        ledger.total(DELTA)
    assert ledger.total(DELTA, include_simulated=True) == by_hand(2.0, 1.0)
    DPAdmmRidge(ledger=path, epsilon=math.inf).fit(X, Y)
    assert ledger.total(DELTA, include_simulated=True) == math.inf


@pytest.mark.filterwarnings("ignore")
def test_a_stream_is_counted_once_whatever_its_pieces_and_stays_in_one_account(
    path, ledger, states
):
    model = DPAdmmRidge(ledger=path, algorithm=GradientADMM(schedule="stream"))
    for start in range(0, 90, 30):
        model.partial_fit(X[start : start + 30], Y[start : start + 30])
    moved = clone(model).set_params(ledger=None).partial_fit(X[:30], Y[:30])
    with pytest.raises(ValueError, match="one ledger"):
        moved.set_params(ledger=path).partial_fit(X[30:], Y[30:])
    model.finalize()
    assert states() == ["done"]
    assert ledger.total(DELTA) == pytest.approx(model.privacy_.epsilon(), rel=1e-9)
