"""Parts of chunks: the same bits for any placement; a lost worker is an error."""

import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from dask import delayed
from distributed import Client
from threadpoolctl import threadpool_info

from skdpadmm.engine import Host, add_neighbours, parts_of_chunks

slow = pytest.mark.slow


@pytest.fixture
def cluster(client, all_answer):
    """The client of all tests as the current one, after a worker that died is back."""
    all_answer()
    with client.as_current():
        yield client


ROOT = Path(__file__).parents[2]
DIED = "Got a dask worker that died .*, expected all workers to live .* spends the budget again"


class Part:
    """Rows and a hidden state."""

    def __init__(self, rows):
        self.rows, self.state = rows, np.zeros_like(rows)

    def advance(self, message):
        self.state += self.rows * message
        return self.state * 3.0

    def first(self):
        return self.rows[0]

    def fail(self, error):
        if self.rows[0] > 0:
            raise error

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


def chunks_of(rows):
    return [(delayed(np.atleast_1d)(own),) for own in np.asarray(rows, dtype=float)]


def numbered(n):
    return chunks_of(np.arange(n)[:, None])


@pytest.mark.parametrize("n_chunks", [1, 2, 5, 7, 32])
def test_the_tree_of_additions_does_not_depend_on_who_adds(n_chunks):
    rng = np.random.default_rng(n_chunks)
    terms = rng.normal(size=n_chunks) * 10.0 ** rng.integers(-12, 12, size=n_chunks)
    totals = set()
    for _ in range(20):
        holder, sums = rng.integers(0, 3, size=n_chunks), {}
        for worker in range(3):
            own = {(0, n): terms[n : n + 1].copy() for n in np.flatnonzero(holder == worker)}
            sums |= add_neighbours(own, n_chunks)
        total = add_neighbours(sums, n_chunks)
        assert len(total) == 1
        totals.add(next(iter(total.values()))[0])
    assert len(totals) == 1
    assert totals.pop() == pytest.approx(terms.sum(), rel=1e-9)


def test_chunks_without_a_sum_count_for_nothing():
    sums = {(0, n): None if n % 2 else np.array([1.0 + n]) for n in range(5)}
    assert next(iter(add_neighbours(sums, 5).values())) == 9.0
    assert next(iter(add_neighbours({(0, 0): None, (0, 1): None}, 2).values())) is None


def test_a_message_that_comes_twice_or_to_a_new_host_is_refused():
    def host():
        return Host(Part, [0, 1], [(np.zeros(1),), (np.ones(1),)], 2, 1)

    first, message = host(), pickle.dumps((Part.advance, (1.0,), False))
    found = pickle.loads(first.call(1, message))
    assert {place: value[0] for place, value in found.items()} == {(0, 0): 0.0, (0, 1): 3.0}
    with pytest.raises(ConnectionError, match="Got round 1, expected round 2"):
        first.call(1, message)
    with pytest.raises(ConnectionError, match="Got round 2, expected round 1"):
        host().call(2, message)


@slow
def test_parts_are_where_their_chunks_are_and_only_arguments_and_results_are_sent(
    cluster,
):
    pids, workers = cluster.run(os.getpid), sorted(cluster.nthreads())
    rows = [cluster.scatter(np.full(1000, float(n)), workers=[workers[n % 2]]) for n in range(5)]
    with parts_of_chunks(cluster, Part, [(delayed(own),) for own in rows]) as parts:
        found = [int(own[0]) for own in parts.each(Part.process)]
        assert found == [pids[workers[n % 2]] for n in range(5)]
        assert parts.each(Part.first) == [0, 1, 2, 3, 4]
        before, message = parts.bytes_sent, np.ones(1000)
        np.testing.assert_array_equal(parts.sum(Part.advance, message), np.full(1000, 30.0))
        # To two workers, and of five chunks none is beside one of the same worker.
        exchanged = (2 + 5) * message.nbytes
        assert exchanged <= parts.bytes_sent - before < exchanged + 2000
        assert parts.sum(Part.advance, 1.0)[0] == 60.0
        assert parts.each(Part.surroundings)[0].tolist() == [1.0, 1.0]
        for error in (LookupError("part"), OSError("part"), TimeoutError("part")):
            with pytest.raises(type(error), match=r"^part$"):
                parts.each(Part.fail, error)


@slow
def test_parts_leave_the_workers_when_it_is_over(cluster, wait_until):
    def held():
        return sum(cluster.run(lambda dask_worker: len(dask_worker.state.actors)).values())

    with parts_of_chunks(cluster, Part, numbered(4)) as parts:
        assert parts.sum(Part.advance, 1.0) == 18.0
        assert held() >= 1
    wait_until(lambda: held() == 0)


@slow
def test_a_worker_that_dies_between_calls_or_while_others_work_is_an_error(cluster, tmp_path):
    with parts_of_chunks(cluster, Part, numbered(4)) as parts:
        with pytest.raises(RuntimeError, match=DIED):
            parts.sum(Part.die, 0.0, tmp_path / "dawdled")
        assert not (tmp_path / "dawdled").exists()
        with pytest.raises(RuntimeError, match="in round 2"):
            parts.sum(Part.advance, 1.0)


@slow
def test_a_chunk_that_cannot_be_computed_is_the_error_of_its_task(cluster):
    chunks = [(delayed(divmod)(1, n),) for n in range(2)]
    with pytest.raises(ZeroDivisionError), parts_of_chunks(cluster, Part, chunks):
        pass


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
            with parts_of_chunks(client, Part, numbered(2)) as parts:
                assert parts.sum(Part.process) == 2 * processes["dask_worker"].pid
                processes[killed].kill()
                with pytest.raises(RuntimeError, match=DIED):
                    parts.sum(Part.advance, 1.0)
    finally:
        for process in processes.values():
            process.kill()
            process.wait()
