"""Placed parts: the same bits in a process, in threads and on dask; a lost worker is an error."""

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import joblib
import numpy as np
import pytest
from distributed import Client
from threadpoolctl import threadpool_info

from skdpadmm.engine import Engine, Host

slow = pytest.mark.slow
ROOT = Path(__file__).parents[2]
DIED = "Got a dask worker that died .*, expected all workers to live .* spends the budget again"


class Part:
    """Rows and a hidden state: how often the part was advanced, and with what."""

    n_pickled = 0

    def __init__(self, rows):
        self.rows, self.state = rows, np.zeros_like(rows)

    def __getstate__(self):
        Part.n_pickled += 1
        return self.__dict__

    def advance(self, message):
        self.state += self.rows * message
        return self.state * 3.0

    def reset(self):
        self.state[:] = 0.0

    def fail(self, error):
        self.state += 1.0
        if self.rows[0] > 0:
            raise error
        return self.state

    def die(self, first, path=None):
        if self.rows[0] == first:
            os.kill(os.getpid(), signal.SIGKILL)
        if path is not None:  # the others dawdle
            time.sleep(30)
            path.touch()
        return self.rows.copy()

    def process(self):
        return np.array([float(os.getpid())])

    def surroundings(self):
        pools = [p["num_threads"] for p in threadpool_info() if p["user_api"] == "blas"]
        return np.array([float(max(pools)), float(set(np.geterr().values()) == {"ignore"})])


def numbered(n_parts):
    return [Part(np.array([float(i)])) for i in range(n_parts)]


def ill_conditioned(n_parts, size=5):
    """Parts whose sum depends on the order of additions."""
    rng = np.random.default_rng(0)
    scales = 10.0 ** rng.integers(-12, 12, size=(n_parts, size))
    return [Part(rows) for rows in rng.normal(size=(n_parts, size)) * scales]


def three_rounds(engine, n_parts, long_tasks=False):
    """Sums of three rounds, each a function of the ones before; of None: a plain loop."""
    parts, message, totals = ill_conditioned(n_parts), np.ones(5), []
    placed = None if engine is None else engine.place(parts, long_tasks=long_tasks)
    for _ in range(3):
        by_hand = (part.advance(message) for part in parts)
        totals.append(placed.sum(Part.advance, message) if placed else sum(by_hand, np.zeros(5)))
        message = np.sqrt(np.abs(totals[-1]))
    return np.array(totals)


@pytest.mark.parametrize("n_parts", [1, 2, 7, 32])
def test_the_bits_of_a_sum_do_not_depend_on_where_parts_are(n_parts, engine):
    expected = three_rounds(None, n_parts)
    for long_tasks in (False, True):
        np.testing.assert_array_equal(three_rounds(engine, n_parts, long_tasks), expected)


def test_long_tasks_run_in_the_workers_that_joblib_is_configured_for():
    threads = []

    class Listening(Part):
        def advance(self, message):
            threads.append(threading.get_ident())
            time.sleep(0.01)
            return super().advance(message)

    with joblib.parallel_config(n_jobs=2), Engine().running() as engine:
        engine.place([Listening(np.ones(1)) for _ in range(8)], long_tasks=True).sum(
            Listening.advance, 1.0
        )
    assert len(set(threads)) == 2


def test_a_hidden_state_lasts_from_round_to_round_until_it_is_reset(engine):
    placed, other = engine.place(numbered(4)), engine.place(numbered(4))
    assert [placed.sum(Part.advance, 1.0)[0] for _ in range(3)] == [18.0, 36.0, 54.0]
    placed.run(Part.reset)
    assert placed.sum(Part.advance, 1.0) == other.sum(Part.advance, 1.0) == 18.0
    total = engine.place([Part(np.ones((2, 3))) for _ in range(3)]).sum(Part.advance, 2.0)
    np.testing.assert_array_equal(total, np.full((2, 3), 18.0))


@pytest.mark.parametrize("error", [LookupError("part"), OSError("part"), TimeoutError("part")])
def test_an_exception_in_a_part_reaches_the_caller(error, engine):
    placed = engine.place(numbered(3))
    for call in (placed.sum, placed.run):
        with pytest.raises(type(error), match=r"^part$"):
            call(Part.fail, error)
    placed.run(Part.reset)
    assert placed.sum(Part.advance, 1.0) == 9.0


def test_floating_point_is_silent_and_blas_has_one_thread_in_every_worker(engine):
    with np.errstate(all="raise"):
        assert engine.place(numbered(4)).sum(Part.surroundings).tolist() == [4.0, 4.0]


def test_a_message_that_comes_twice_or_to_a_new_host_is_refused():
    host, message = Host(numbered(2)), pickle.dumps((Part.advance, (1.0,), True))
    assert pickle.loads(host.call(1, message)) == [0.0, 3.0]
    with pytest.raises(ConnectionError, match="Got round 1, expected round 2"):
        host.call(1, message)
    with pytest.raises(ConnectionError, match="Got round 2, expected round 1"):
        Host(numbered(2)).call(2, message)


@slow
def test_parts_are_shared_among_workers_and_only_arguments_and_results_are_sent(on_dask):
    pids = on_dask.workers.client.run(os.getpid).values()
    assert on_dask.place(numbered(2)).sum(Part.process)[0] == sum(pids)
    assert os.getpid() not in pids
    n_workers, n_parts, message = 2, 5, np.ones(1000)
    placed = on_dask.place([Part(np.ones(1000)) for _ in range(n_parts)])
    n_pickled, arguments = Part.n_pickled, n_workers * message.nbytes
    placed.run(Part.advance, message)
    assert arguments <= placed.bytes_sent < arguments + n_workers * 500
    before, exchanged = placed.bytes_sent, arguments + n_parts * message.nbytes
    placed.sum(Part.advance, message)
    assert exchanged <= placed.bytes_sent - before < exchanged + (n_workers + n_parts) * 500
    assert Part.n_pickled == n_pickled


@slow
def test_parts_leave_the_workers_and_threads_are_given_back_when_the_engine_stops(
    client, wait_until
):
    def held():
        return sum(client.run(lambda dask_worker: len(dask_worker.state.actors)).values())

    before = client.run(lambda: numbered(1)[0].surroundings().tolist())
    with client.as_current(), Engine(backend="dask").running() as engine:
        assert engine.workers.client is client
        placed = [engine.place(numbered(4)) for _ in range(2)]
        assert placed[1].sum(Part.advance, 1.0) == 18.0
        assert held() >= 4
    wait_until(lambda: held() == 0)
    assert client.status == "running"
    assert client.run(lambda: numbered(1)[0].surroundings().tolist()) == before


@slow
def test_without_a_client_a_cluster_is_made_and_closed():
    with Engine(n_jobs=1, backend="dask").running() as engine:
        np.testing.assert_array_equal(three_rounds(engine, 3), three_rounds(None, 3))
        assert len(engine.workers.client.nthreads()) == 1
        # Blocks run in this process.
        assert engine.sum(lambda block: np.array([float(os.getpid())]), 1) == os.getpid()
    assert engine.workers.client.status == "closed"


class DiesOnArrival:
    def __reduce__(self):
        return os._exit, (1,)


@slow
def test_a_worker_that_dies_between_calls_or_while_rows_are_sent_is_an_error(on_dask):
    placed = on_dask.place(numbered(4))
    os.kill(int(on_dask.place(numbered(1)).sum(Part.process)[0]), signal.SIGKILL)
    with pytest.raises(RuntimeError, match=DIED):
        placed.sum(Part.advance, 1.0)
    with pytest.raises(RuntimeError, match="died while rows were sent"):
        on_dask.place([DiesOnArrival()])


@slow
def test_the_death_of_a_worker_is_noticed_while_others_work(on_dask, tmp_path):
    placed = on_dask.place(numbered(2))
    with pytest.raises(RuntimeError, match=DIED):
        placed.sum(Part.die, 1.0, tmp_path / "dawdled")
    assert not (tmp_path / "dawdled").exists()
    with pytest.raises(RuntimeError, match="in round 2"):
        placed.sum(Part.advance, 1.0)


@slow
@pytest.mark.parametrize("killed", ["dask_scheduler", "dask_worker"])
def test_a_process_that_is_killed_ends_a_fit_over_a_network(killed, tmp_path, wait_until):
    address = tmp_path / "scheduler.json"
    common = ["--no-dashboard", "--scheduler-file", str(address)]
    processes = {}
    for name, *options in (["dask_scheduler", "--port", "0"], ["dask_worker", "--no-nanny"]):
        command = [sys.executable, "-m", f"distributed.cli.{name}", *options, *common]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        processes[name] = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
    try:
        wait_until(address.exists)
        with Client(scheduler_file=str(address), set_as_default=False) as client:
            client.wait_for_workers(1, timeout=60)
            with Engine(backend="dask", client=client).running() as engine:
                placed = engine.place(numbered(2))
                assert placed.sum(Part.process) == 2 * processes["dask_worker"].pid
                processes[killed].kill()
                with pytest.raises(RuntimeError, match=DIED):
                    placed.sum(Part.advance, 1.0)
    finally:
        for process in processes.values():
            process.kill()
            process.wait()
