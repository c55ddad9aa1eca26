"""Fits of estimators, many processes and crashes: what was reserved counts, exactly once."""

import math
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone

import skdpadmm._fitting as fitting
from skdpadmm import (
    DPAdmmLogisticRegression,
    DPAdmmRidge,
    DPDecentralizedRegressor,
    DPFedRidge,
    DPPersonalizedRegressor,
)
from skdpadmm.ledger import LedgerError, PrivacyBudgetExceeded, PrivacyLedger
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
    assert ledger.total(DELTA, kind="fixed") == by_hand(0.7, 0.7, 0.7)
    assert list(ledger.epsilon_by_estimator(DELTA)) == [cls.__name__]


def test_a_fit_that_fails_after_it_touched_data_stays_counted(path, ledger, states, monkeypatch):
    monkeypatch.setattr(fitting.PendingFit, "solve", lambda *_: 1 / 0)
    model = DPAdmmRidge(ledger=path)
    with pytest.raises(ZeroDivisionError):
        model.fit(X, Y)
    assert states() == ["reserved"]
    assert ledger.total(DELTA, kind="fixed") == by_hand(1.0)
    assert not hasattr(model, "coef_")


def test_what_cannot_be_counted_touches_no_data(path, tmp_path, ledger, monkeypatch):
    ledger.limit(0.9, DELTA)
    monkeypatch.setattr(fitting.PendingFit, "solve", lambda *_: pytest.fail("it touched data"))
    with pytest.raises(PrivacyBudgetExceeded, match="no data was used"):
        DPAdmmRidge(ledger=path).fit(X, Y)
    with pytest.raises(LedgerError):
        DPAdmmRidge(ledger=str(tmp_path / "missing/study.db")).fit(X, Y)


PRELUDE = """
import os, sys, time
from skdpadmm.ledger import LedgerEntry, PrivacyBudgetExceeded, PrivacyLedger
from skdpadmm.privacy import GaussianDP, Observer

path = sys.argv[1]

def entry(mu):
    world = Observer("model", "the model", "record", "replace_one", GaussianDP(mu))
    return LedgerEntry("Lasso", "0" * 64, 1e-6, (world,))
"""


# All children wait for one moment, and none has opened the ledger before: they race to make it.
# Each says by its exit code how often it has passed.
RACE = (
    PRELUDE
    + """
what, mu, at = sys.argv[2], float(sys.argv[3]), time.time() + 0.5

def one(i, j):
    if what == "advance":
        return PrivacyLedger(path).advance(sys.argv[4], j)
    try:
        key = PrivacyLedger(path).reserve(entry(mu * (1 + i)))
    except PrivacyBudgetExceeded:
        return 0
    PrivacyLedger(path).finish(key)
    return 1

children = []
for i in range(16):
    pid = os.fork()
    if pid == 0:
        done = 99
        try:
            time.sleep(max(0.0, at - time.time()))
            done = sum(one(i if what == "sum" else 0, j) for j in range(5))
        finally:
            os._exit(done)
    children.append(pid)
print(*[os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children])
"""
)


def race(path, *arguments):
    command = [sys.executable, "-c", RACE, path, *arguments]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    passed = [int(number) for number in result.stdout.split()]
    assert len(passed) == 16, result.stderr
    assert 99 not in passed, result.stderr
    return passed


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="the script forks")
def test_sixteen_processes_lose_nothing_and_pass_no_limit(path, gaussian):
    ledger = PrivacyLedger(path)
    assert race(path, "sum", "0.01") == [5] * 16
    by_hand = math.sqrt(5 * math.fsum((0.01 * (1 + i)) ** 2 for i in range(16)))
    assert ledger.guarantee().mu == pytest.approx(by_hand, rel=1e-12)
    assert {(entry["state"]) for entry in ledger.entries()} == {"done"}
    assert sum(race(path, "advance", "0", ledger.reserve(gaussian))) == 5
    limited = PrivacyLedger(f"{path}2")
    limited.limit(1.0, 1e-6)
    assert sum(race(limited.path, "limit", repr(gaussian_mu(1.0, 1e-6) / 11.5**0.5))) == 11
    assert limited.total(1e-6) <= 1.0


def killed(script, *arguments):
    """Run a script until it printed a line, and a moment more."""
    command = [sys.executable, "-c", script, *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline()
        time.sleep(0.2)
        process.send_signal(signal.SIGKILL)
        assert process.wait(timeout=60) == -signal.SIGKILL


@pytest.mark.slow
def test_nothing_that_reserve_has_returned_is_lost(path, tmp_path):
    script = """
returned = os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT)
while True:
    PrivacyLedger(path).reserve(entry(0.1))
    os.write(returned, b".")
    print(flush=True)
"""
    killed(PRELUDE + script, path, tmp_path / "returned")
    n_returned = (tmp_path / "returned").stat().st_size
    n_counted = len(PrivacyLedger(path).entries())
    assert 1 <= n_returned <= n_counted <= n_returned + 1
    assert PrivacyLedger(path).guarantee().mu == pytest.approx(0.1 * math.sqrt(n_counted))


@pytest.mark.slow
def test_a_fit_that_is_killed_stays_counted(path, ledger, states):
    script = """
import sys
import numpy as np
from skdpadmm import DPAdmmRidge, _fitting

solve = _fitting.PendingFit.solve
_fitting.PendingFit.solve = lambda *given: print(flush=True) or solve(*given)
DPAdmmRidge(ledger=sys.argv[1], max_iter=1_000_000).fit(np.ones((9, 2)), np.ones(9))
"""
    killed(script, path)
    assert states() == ["reserved"]
    assert ledger.total(DELTA, kind="fixed") == by_hand(1.0)
