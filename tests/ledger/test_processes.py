"""Many processes and threads, and processes that die: what was reserved counts, exactly once."""

from __future__ import annotations

import math
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from skdpadmm.ledger import PrivacyLedger
from skdpadmm.privacy import gaussian_mu

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the scripts fork")

# All children wait for one moment, and none has opened the ledger before: they race to make it.
# Each says by its exit code how often it has passed.
RACE = """
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


def race(start, path, *arguments):
    out, err = start(RACE, path, *arguments).communicate(timeout=300)
    passed = [int(number) for number in out.split()]
    assert len(passed) == 16, err
    assert 99 not in passed, err
    return passed


@pytest.mark.slow
def test_sixteen_processes_lose_nothing_and_pass_no_limit(path, start, gaussian):
    ledger = PrivacyLedger(path)
    assert race(start, path, "sum", "0.01") == [5] * 16
    by_hand = math.sqrt(5 * math.fsum((0.01 * (1 + i)) ** 2 for i in range(16)))
    assert ledger.guarantee().mu == pytest.approx(by_hand, rel=1e-12)
    assert {(entry["state"]) for entry in ledger.entries()} == {"done"}
    assert sum(race(start, path, "advance", "0", ledger.reserve(gaussian))) == 5
    limited = PrivacyLedger(f"{path}2")
    limited.limit(1.0, 1e-6)
    assert sum(race(start, limited.path, "limit", repr(gaussian_mu(1.0, 1e-6) / 11.5**0.5))) == 11
    assert limited.total(1e-6) <= 1.0


def test_threads_share_a_ledger(ledger, gaussian):
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: ledger.finish(ledger.reserve(gaussian)), range(24)))
    assert ledger.guarantee().mu == pytest.approx(0.1 * math.sqrt(24), rel=1e-12)


@pytest.mark.slow
def test_nothing_that_reserve_has_returned_is_lost(path, tmp_path, start):
    script = """
told = os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT)
while True:
    PrivacyLedger(path).reserve(entry(0.1))
    os.write(told, b".")
    print(flush=True)
"""
    n_before = 0
    for i in range(3):
        process = start(script, path, str(tmp_path / f"told{i}"))
        assert process.stdout.readline()
        time.sleep(0.1 + 0.07 * i)
        process.send_signal(signal.SIGKILL)
        assert process.wait(timeout=60) == -signal.SIGKILL
        n_told = (tmp_path / f"told{i}").stat().st_size
        n_counted = len(PrivacyLedger(path).entries()) - n_before
        assert 1 <= n_told <= n_counted <= n_told + 1
        n_before += n_counted
    assert PrivacyLedger(path).guarantee().mu == pytest.approx(0.1 * math.sqrt(n_before))
