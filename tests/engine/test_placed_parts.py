"""Placed parts: the same bits in a process, in threads and on dask; a lost worker is an error."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from distributed import Client, LocalCluster
from threadpoolctl import threadpool_info

from skdpadmm.engine import Engine, require_backend
from skdpadmm.engine._dask import Host

ROOT = Path(__file__).parents[2]
PART_COUNTS = [1, 2, 3, 7, 32]
DIED = "Got a dask worker that died .*, expected all workers to live .* spends the budget again"


class Part:
    """Rows and a hidden state: how often the part was advanced, and what it was told."""

    def __init__(self, rows):
        self.rows = rows
        self.state = np.zeros_like(rows)

    def __getstate__(self):
        Part.n_pickled += 1
        return self.__dict__

    n_pickled = 0

    def advance(self, told):
        self.state += self.rows * told
        return self.state * 3.0

    def reset(self):
        self.state[:] = 0.0

    def fail(self, error):
        self.state += 1.0
        if self.rows[0] > 0:
            raise error
        return self.state

    def give(self, told):
        return self.rows[0] + told

    def die(self, first):
        if self.rows[0] == first:
            os.kill(os.getpid(), signal.SIGKILL)
        return self.rows.copy()

    def die_or_dawdle(self, first, path):
        if self.rows[0] != first:
            time.sleep(30)
            path.touch()
        return self.die(first)

    def process(self):
        return np.array([float(os.getpid())])

    def error_state(self):
        return np.array([float(set(np.geterr().values()) == {"ignore"})])

    def blas_threads(self):
        pools = [p["num_threads"] for p in threadpool_info() if p["user_api"] == "blas"]
        return np.array([float(max(pools))])


def ill_conditioned(n_parts, size=5, seed=0):
    """Parts whose sum depends on the order of additions."""
    rng = np.random.default_rng(seed)
    shape = (n_parts, size)
    rows = rng.normal(size=shape) * 10.0 ** rng.integers(-12, 12, size=shape)
    return [Part(part) for part in rows]


def numbered(n_parts):
    return [Part(np.array([float(i)])) for i in range(n_parts)]


def three_rounds(engine, n_parts):
    """Sums of three rounds, each a function of the ones before."""
    placed = engine.place(ill_conditioned(n_parts))
    totals = [placed.sum("advance", np.ones(5))]
    for _ in range(2):
        totals.append(placed.sum("advance", np.sqrt(np.abs(totals[-1]))))
    return np.array(totals)


def cluster_of(n_workers):
    # Port 0 is any free port: tests run next to each other.
    return LocalCluster(n_workers=n_workers, threads_per_worker=1, dashboard_address="127.0.0.1:0")


@pytest.fixture(scope="module")
def client():
    with (
        cluster_of(2) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


def both_answer(client):
    try:
        return len(client.run(os.getpid)) == 2
    except OSError:
        return False


@pytest.fixture
def on_dask(client):
    wait_until(lambda: both_answer(client))  # one may still start again after the test before
    with Engine(backend="dask", client=client).running() as engine:
        yield engine


@pytest.fixture(params=["one thread", "two threads", "dask"])
def engine(request):
    if request.param == "dask":
        yield request.getfixturevalue("on_dask")
    else:
        with Engine(1 if request.param == "one thread" else 2).running() as engine:
            yield engine


@pytest.mark.parametrize("n_parts", PART_COUNTS)
def test_the_bits_of_a_sum_do_not_depend_on_where_parts_are(n_parts, on_dask):
    reference = three_rounds(Engine(), n_parts)
    np.testing.assert_array_equal(three_rounds(on_dask, n_parts), reference)
    for n_jobs in (1, 2, 4):
        with Engine(n_jobs).running() as engine:
            np.testing.assert_array_equal(three_rounds(engine, n_parts), reference)


def test_parts_are_added_in_their_order(engine):
    parts = ill_conditioned(7)
    expected, backwards = parts[0].rows, parts[-1].rows
    for part in parts[1:]:
        expected = expected + part.rows
    for part in parts[-2::-1]:
        backwards = backwards + part.rows
    assert np.any(expected != backwards)
    np.testing.assert_array_equal(engine.place(parts).sum("die", np.nan), expected)


def test_a_hidden_state_lasts_from_round_to_round_until_it_is_reset(engine):
    placed = engine.place(numbered(4))
    assert [placed.sum("advance", 1.0)[0] for _ in range(3)] == [18.0, 36.0, 54.0]
    placed.run("reset")
    assert placed.sum("advance", 1.0) == 18.0


def test_two_placements_of_equal_parts_share_no_state(on_dask):
    first, second = on_dask.place(numbered(4)), on_dask.place(numbered(4))
    first.sum("advance", 1.0)
    assert second.sum("advance", 1.0) == 18.0


@pytest.mark.parametrize("shape", [(), (3,), (2, 3)])
def test_sums_keep_their_shape(shape, engine):
    total = engine.place([Part(np.ones(shape)) for _ in range(3)]).sum("advance", 2.0)
    np.testing.assert_array_equal(total, np.full(shape, 18.0))


def test_local_parts_are_used_as_they_are_and_send_nothing():
    parts = numbered(3)
    for n_jobs in (1, 2):
        with Engine(n_jobs).running() as engine:
            placed = engine.place(parts)
            placed.run("advance", 1.0)
            assert placed.bytes_sent == 0
    assert parts[2].state == 4.0


def test_dask_shares_consecutive_parts_among_workers(on_dask):
    def processes(n_parts):
        return [on_dask.place(numbered(n_parts)).sum("process")[0] for _ in range(2)]

    assert len(set(processes(1))) == 1  # fewer parts than workers
    pids = on_dask.workers.client.run(os.getpid).values()
    assert set(processes(2)) == {float(sum(pids))}
    assert os.getpid() not in pids


def test_after_the_first_round_only_arguments_and_results_are_sent(on_dask):
    n_workers, n_parts, size = 2, 5, 1000
    parts = [Part(np.ones((200, size))) for _ in range(n_parts)]
    placed = on_dask.place(parts)
    n_pickled = Part.n_pickled
    told = np.ones(size)
    placed.run("give", told)
    arguments = n_workers * told.nbytes
    assert arguments <= placed.bytes_sent < arguments + n_workers * 500
    before = placed.bytes_sent
    placed.sum("give", told)
    exchanged = arguments + n_parts * told.nbytes
    assert exchanged <= placed.bytes_sent - before < exchanged + (n_workers + n_parts) * 500
    assert Part.n_pickled == n_pickled


def test_parts_leave_the_workers_when_the_engine_stops(client):
    def count(dask_worker):
        return len(dask_worker.state.actors) + len(dask_worker.data)

    def held():
        return sum(client.run(count).values())

    with Engine(backend="dask", client=client).running() as engine:
        placed = [engine.place(numbered(4)) for _ in range(2)]
        assert placed[1].sum("advance", 1.0) == 18.0
        assert held() >= 4
    wait_until(lambda: held() == 0)


@pytest.mark.parametrize("error", [LookupError("part"), OSError("part"), TimeoutError("part")])
def test_an_exception_in_a_part_reaches_the_caller(error, engine):
    placed = engine.place(numbered(3))
    with pytest.raises(type(error), match=r"^part$"):
        placed.sum("fail", error)
    with pytest.raises(type(error), match=r"^part$"):
        placed.run("fail", error)
    placed.run("reset")
    assert placed.sum("advance", 1.0) == 9.0


def test_floating_point_is_silent_and_blas_has_one_thread_in_every_worker(engine):
    placed = engine.place(numbered(4))
    with np.errstate(all="raise"):
        assert placed.sum("error_state") == 4.0
    assert placed.sum("blas_threads") == 4.0


def test_the_threads_of_blas_on_workers_are_given_back(on_dask):
    before = list(on_dask.workers.client.run(Part.blas_threads, None).values())
    on_dask.place(numbered(4)).run("reset")
    assert list(on_dask.workers.client.run(Part.blas_threads, None).values()) == before


@pytest.mark.parametrize("first", [0.0, 3.0])
def test_a_worker_that_dies_in_a_call_is_an_error_and_stays_one(first, on_dask):
    placed = on_dask.place(numbered(4))
    placed.run("advance", 1.0)
    with pytest.raises(RuntimeError, match=DIED) as caught:
        placed.sum("die", first)
    assert "in round 2" in str(caught.value)
    wait_until(lambda: both_answer(on_dask.workers.client))
    with pytest.raises(RuntimeError, match="in round 3"):
        placed.sum("advance", 1.0)


def test_a_worker_that_dies_between_calls_is_an_error(on_dask):
    placed = on_dask.place(numbered(4))
    pid = int(on_dask.place(numbered(1)).sum("process")[0])
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(RuntimeError, match=DIED):
        placed.sum("advance", 1.0)


class DiesOnArrival:
    def __reduce__(self):
        return os._exit, (1,)


def test_a_worker_that_dies_while_rows_are_sent_is_an_error(on_dask):
    with pytest.raises(RuntimeError, match="died while rows were sent"):
        on_dask.place([DiesOnArrival()])


def test_a_message_that_comes_twice_or_to_a_new_host_is_refused():
    host = Host(numbered(2))
    message = pickle.dumps(("advance", (1.0,), True))
    assert pickle.loads(host.call(1, message)) == [0.0, 3.0]
    with pytest.raises(ConnectionError, match="Got round 1, expected round 2"):
        host.call(1, message)
    with pytest.raises(ConnectionError, match="Got round 2, expected round 1"):
        Host(numbered(2)).call(2, message)


def test_the_current_client_is_used_and_left_open(client):
    with client.as_current(), Engine(backend="dask").running() as engine:
        assert engine.workers.client is client
    assert client.status == "running"


def test_without_a_client_a_cluster_is_made_and_closed():
    with Engine(n_jobs=1, backend="dask").running() as engine:
        np.testing.assert_array_equal(three_rounds(engine, 3), three_rounds(Engine(), 3))
        assert len(engine.workers.client.nthreads()) == 1
        # Blocks run in this process.
        assert engine.sum(lambda block: np.array([float(os.getpid())]), 1) == os.getpid()
    assert engine.workers.client.status == "closed"


def test_a_scheduler_without_workers_is_refused():
    with (
        cluster_of(0) as cluster,
        Client(cluster, set_as_default=False) as client,
        Engine(backend="dask", client=client).running() as engine,
    ):
        with pytest.raises(RuntimeError, match="Got a dask scheduler without workers"):
            engine.place(numbered(1))


@pytest.mark.parametrize("backend", ["local", "dask"])
def test_no_parts_are_refused(backend):
    with pytest.raises(ValueError, match="Got no parts"):
        Engine(backend=backend).place([])


def test_an_engine_on_dask_that_does_not_run_places_nothing():
    with pytest.raises(RuntimeError, match="Got an engine that does not run"):
        Engine(backend="dask").place(numbered(1))


def test_an_unknown_backend_is_refused():
    with pytest.raises(ValueError, match="Got backend='ray', expected 'local' or 'dask'"):
        require_backend("ray")
    with pytest.raises(ValueError, match="Got backend='ray'"), Engine(backend="ray").running():
        pass


def test_without_dask_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ImportError, match=r"needs dask: pip install 'skdpadmm\[dask\]'"):
        require_backend("dask")
    with pytest.raises(ImportError, match="needs dask"), Engine(backend="dask").running():
        pass
    require_backend("local")
    with Engine().running() as engine:
        assert engine.place(numbered(3)).sum("advance", 1.0) == 9.0


def wait_until(condition):
    for _ in range(200):
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError("The condition never held.")


@pytest.fixture
def remote_client(tmp_path):
    """A scheduler and two workers, each a process of its own that only TCP connects."""
    address = str(tmp_path / "scheduler.json")
    common = ["--scheduler-file", address, "--no-dashboard"]
    scheduler = ["dask_scheduler", "--port", "0", *common]
    worker = ["dask_worker", "--nthreads", "1", "--no-nanny", *common]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", f"distributed.cli.{command[0]}", *command[1:]],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for command in (scheduler, worker, worker)
    ]
    try:
        wait_until(lambda: (tmp_path / "scheduler.json").exists())
        with Client(scheduler_file=address, set_as_default=False) as client:
            client.wait_for_workers(2, timeout=60)
            yield client, processes
    finally:
        for process in processes:
            process.kill()
            process.wait()


@pytest.mark.slow
def test_workers_that_share_nothing_but_a_network_give_the_same_bits(remote_client):
    client, (_, *workers) = remote_client
    with Engine(backend="dask", client=client).running() as engine:
        for n_parts in PART_COUNTS:
            np.testing.assert_array_equal(
                three_rounds(engine, n_parts), three_rounds(Engine(), n_parts)
            )
        placed = engine.place(numbered(2))
        assert placed.sum("process") == sum(process.pid for process in workers)


@pytest.mark.slow
@pytest.mark.parametrize("killed", ["scheduler", "worker"])
def test_a_process_that_is_killed_ends_a_fit_over_a_network(killed, remote_client):
    client, (scheduler, worker, _) = remote_client
    with Engine(backend="dask", client=client).running() as engine:
        placed = engine.place(numbered(4))
        placed.run("advance", 1.0)
        (scheduler if killed == "scheduler" else worker).kill()
        with pytest.raises(RuntimeError, match=DIED):
            placed.sum("advance", 1.0)


@pytest.mark.slow
def test_the_death_of_a_worker_is_noticed_while_others_work(remote_client, tmp_path):
    client, _ = remote_client
    with Engine(backend="dask", client=client).running() as engine:
        placed = engine.place(numbered(2))
        with pytest.raises(RuntimeError, match=DIED):
            placed.sum("die_or_dawdle", 1.0, tmp_path / "dawdled")
    assert not (tmp_path / "dawdled").exists()
