"""Placed parts: the same bits in one thread, in several, and in joblib's workers."""

import threading

import joblib
import numpy as np
import pytest
from threadpoolctl import threadpool_info

from skdpadmm.engine import Engine


class Part:
    """Rows and a hidden state: how often the part was advanced, and with what."""

    def __init__(self, rows):
        self.rows, self.state = rows, np.zeros_like(rows)

    def advance(self, message):
        self.state += self.rows * message
        return self.state * 3.0

    def fail(self, error):
        self.state += 1.0
        if self.rows[0] > 0:
            raise error
        return self.state

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
    threads, both = set(), threading.Barrier(2, timeout=120)

    class Listening(Part):
        def advance(self, message):
            if threading.get_ident() not in threads:
                threads.add(threading.get_ident())
                both.wait()
            return super().advance(message)

    with joblib.parallel_config(n_jobs=2), Engine().running() as engine:
        engine.place([Listening(np.ones(1)) for _ in range(8)], long_tasks=True).sum(
            Listening.advance, 1.0
        )
    assert len(threads) == 2


def test_a_hidden_state_lasts_from_round_to_round(engine):
    placed, other = engine.place(numbered(4)), engine.place(numbered(4))
    assert [placed.sum(Part.advance, 1.0)[0] for _ in range(3)] == [18.0, 36.0, 54.0]
    assert other.sum(Part.advance, 1.0) == 18.0
    total = engine.place([Part(np.ones((2, 3))) for _ in range(3)]).sum(Part.advance, 2.0)
    np.testing.assert_array_equal(total, np.full((2, 3), 18.0))


@pytest.mark.parametrize("error", [LookupError("part"), OSError("part"), TimeoutError("part")])
def test_an_exception_in_a_part_reaches_the_caller(error, engine):
    placed = engine.place(numbered(3))
    with pytest.raises(type(error), match=r"^part$"):
        placed.sum(Part.fail, error)


def test_floating_point_is_silent_and_blas_has_one_thread_in_every_worker(engine):
    with np.errstate(all="raise"):
        assert engine.place(numbered(4)).sum(Part.surroundings).tolist() == [4.0, 4.0]
