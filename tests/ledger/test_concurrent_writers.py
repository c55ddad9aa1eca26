"""Many processes and threads, and processes that die: what was reserved counts, exactly once."""

from __future__ import annotations

import math
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from skdpadmm.ledger import PrivacyLedger
from skdpadmm.privacy import GaussianDP, gaussian_mu

needs_fork = pytest.mark.skipif(sys.platform == "win32", reason="the scripts fork")

# All children wait for one moment, and none has opened the ledger before: they race to make it.
FORKED = """
import warnings
warnings.simplefilter("ignore")
n, each = int(sys.argv[2]), int(sys.argv[3])
at = time.time() + 0.5
children = []
for i in range(n):
    pid = os.fork()
    if pid == 0:
        done = 0
        try:
            time.sleep(max(0.0, at - time.time()))
            for j in range(each):
                try:
                    key = PrivacyLedger(path).reserve(entry(0.01 * (1 + i) + 0.001 * j))
                except PrivacyBudgetExceeded:
                    continue
                PrivacyLedger(path).finish(key)
                done += 1
            os._exit(done)
        except BaseException as error:
            print(repr(error), file=sys.stderr, flush=True)
            os._exit(99)
    children.append(pid)
print(*[os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children])
"""


@needs_fork
def test_sixteen_processes_lose_nothing(path, start):
    out, err = start(FORKED, path, "16", "5").communicate(timeout=300)
    assert out.split() == ["5"] * 16, err
    ledger = PrivacyLedger(path)
    by_hand = math.sqrt(
        math.fsum((0.01 * (1 + i) + 0.001 * j) ** 2 for i in range(16) for j in range(5))
    )
    assert ledger.guarantee().mu == pytest.approx(by_hand, rel=1e-12)
    assert ledger.total(1e-6) == pytest.approx(GaussianDP(by_hand).epsilon(1e-6), rel=1e-9)
    entries = ledger.entries()
    assert [entry["id"] for entry in entries] == list(range(1, 81))
    assert {entry["state"] for entry in entries} == {"done"}
    assert len({entry["pid"] for entry in entries}) == 16


@needs_fork
def test_a_limit_lets_exactly_as_many_pass_as_it_can_pay_for(path, start):
    epsilon, n = 1.0, 11
    mu = gaussian_mu(epsilon, 1e-6) / math.sqrt(n + 0.5)
    PrivacyLedger(path).limit(epsilon, 1e-6)
    script = FORKED.replace("0.01 * (1 + i) + 0.001 * j", repr(mu))
    out, err = start(script, path, "16", "2").communicate(timeout=300)
    assert sum(map(int, out.split())) == n, err
    ledger = PrivacyLedger(path)
    assert len(ledger.entries()) == n
    assert ledger.total(1e-6) <= epsilon


RACE = FORKED.replace(
    """                try:
                    key = PrivacyLedger(path).reserve(entry(0.01 * (1 + i) + 0.001 * j))
                except PrivacyBudgetExceeded:
                    continue
                PrivacyLedger(path).finish(key)
                done += 1
""",
    """                done += PrivacyLedger(path).advance(sys.argv[4], j)
""",
)


@needs_fork
def test_each_position_of_a_stream_is_taken_by_one_of_sixteen_copies(path, start, gaussian):
    key = PrivacyLedger(path).reserve(gaussian)
    assert "advance" in RACE
    out, err = start(RACE, path, "16", "8", key).communicate(timeout=300)
    taken = [int(number) for number in out.split()]
    assert len(taken) == 16, err
    assert sum(taken) == 8, err
    assert len(PrivacyLedger(path).entries()) == 1


def test_threads_share_a_ledger(path, gaussian):
    ledger = PrivacyLedger(path)

    def use(_):
        ledger.finish(ledger.reserve(gaussian))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(use, range(40)))
    assert ledger.guarantee().mu == pytest.approx(0.1 * math.sqrt(40), rel=1e-12)


SPAWNED = """
import multiprocessing, sys
from skdpadmm.ledger import LedgerEntry, PrivacyLedger
from skdpadmm.privacy import GaussianDP, Observer

def use(path):
    world = Observer("model", "the model", "record", "replace_one", GaussianDP(0.1))
    return PrivacyLedger(path).reserve(LedgerEntry("Lasso", "0" * 64, 1e-6, (world,)))

if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        print(len(set(pool.map(use, [sys.argv[1]] * 6))))
"""


def test_spawned_processes_count(path, tmp_path):
    script = tmp_path / "spawned.py"
    script.write_text(SPAWNED, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(script), path], capture_output=True, text=True, timeout=300
    )
    assert done.stdout.split() == ["6"], done.stderr
    assert PrivacyLedger(path).guarantee().mu == pytest.approx(0.1 * math.sqrt(6), rel=1e-12)


def kill(process, after=0.0):
    """Wait until it says that it has begun, and kill it without mercy."""
    assert process.stdout.readline()
    time.sleep(after)
    process.send_signal(signal.SIGKILL)
    process.wait(timeout=60)
    assert process.returncode == -signal.SIGKILL


@needs_fork
def test_a_fit_that_was_killed_is_counted(path, start):
    fit = "PrivacyLedger(path).reserve(entry(0.1)); print('fitting', flush=True); time.sleep(600)"
    kill(start(fit, path))
    ledger = PrivacyLedger(path)
    assert ledger.guarantee() == GaussianDP(0.1)
    assert [entry["state"] for entry in ledger.entries()] == ["reserved"]


@needs_fork
def test_whoever_dies_in_mid_transaction_has_not_begun_and_blocks_nobody(path, start, gaussian):
    PrivacyLedger(path).reserve(gaussian)
    script = "store(path, entry(0.1).promise(), entry(0.1).record(), wait=True)"
    kill(start(script, path))
    began = time.monotonic()
    PrivacyLedger(path).reserve(gaussian)
    assert time.monotonic() - began < 60
    assert len(PrivacyLedger(path).entries()) == 2


@needs_fork
def test_nothing_that_reserve_has_returned_is_lost(path, tmp_path, start):
    script = """
told = os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT)
PrivacyLedger(path).reserve(entry(0.1))
os.write(told, b".")
print("begun", flush=True)
while True:
    PrivacyLedger(path).reserve(entry(0.1))
    os.write(told, b".")
"""
    n_before = 0
    for i in range(4):
        process = start(script, path, str(tmp_path / f"told{i}"))
        kill(process, after=0.3 + 0.07 * i)
        n_told = (tmp_path / f"told{i}").stat().st_size
        n_counted = len(PrivacyLedger(path).entries()) - n_before
        assert n_told <= n_counted <= n_told + 1
        n_before += n_counted
    assert n_before >= 4
