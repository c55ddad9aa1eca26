"""Ordered sums: the same bits for every number of workers, in the order that is promised."""

import threading
import warnings
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from threadpoolctl import threadpool_info

from skdpadmm.engine import N_TASKS, Engine


def ill_conditioned(n_blocks, seed=0):
    """Terms of very different size and sign, whose sum depends on the order of additions."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n_blocks, 5)) * 10.0 ** rng.integers(-12, 12, size=(n_blocks, 5))


@settings(max_examples=50)
@given(n_blocks=st.integers(1, 300) | st.just(1000), seed=st.integers(0, 1000))
def test_blocks_are_added_in_order_within_fixed_tasks_and_tasks_in_order(n_blocks, seed):
    terms = ill_conditioned(n_blocks, seed)
    expected = None
    for a, b in pairwise(n_blocks * t // N_TASKS for t in range(N_TASKS + 1)):
        part = None
        for term in terms[a:b]:
            part = term if part is None else part + term
        if part is not None:
            expected = part if expected is None else expected + part
    # An engine that was not started works too, in this thread.
    found = [Engine(4).sum(lambda block: terms[block].copy(), n_blocks)]
    for n_jobs in (None, 1, 2, 4, -1):
        ran = []
        with Engine(n_jobs).running() as engine:
            found.append(engine.sum(lambda block: terms[block].copy(), n_blocks))
            engine.run(ran.append, n_blocks)
        assert sorted(ran) == list(range(n_blocks))
    for total in found:
        np.testing.assert_array_equal(total, expected)


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_an_exception_in_a_kernel_reaches_the_caller_and_leaves_nothing(n_jobs):
    def fails_at_57(block):
        if block == 57:
            raise LookupError("block 57")
        return np.ones((2, 3))

    # Late workers of the failed sum may still deliver: a race, hence the repetitions.
    for _ in range(30):
        with Engine(n_jobs).running() as engine:
            with pytest.raises(LookupError, match="block 57"):
                engine.sum(fails_at_57, 100)
            total = engine.sum(lambda block: np.ones((2, 3)), 100)
            np.testing.assert_array_equal(total, np.full((2, 3), 100))


@pytest.mark.parametrize("n_jobs", [1, 2, 4])
def test_floating_point_errors_in_a_kernel_are_silent_in_every_worker(n_jobs):
    # What a worker says would depend on the data; error states do not reach other threads.
    def kernel(block):
        return np.exp(np.array([1e3])) - np.exp(np.array([1e3])) / np.zeros(1)

    with warnings.catch_warnings(record=True) as caught, np.errstate(all="raise"):
        warnings.simplefilter("always")
        before = np.geterr()
        with Engine(n_jobs).running() as engine:
            engine.sum(kernel, 100)
            engine.run(kernel, 100)
        assert np.geterr() == before
    assert not caught


def test_several_workers_share_the_blocks_in_threads_of_one_process():
    barrier, main = threading.Barrier(2, timeout=120), threading.get_ident()

    def kernel(block):
        if block in (0, 99):  # first and last task: they meet only if they run at the same time
            barrier.wait()
        return np.array([float(threading.get_ident() != main)])

    with Engine(32).running() as engine:
        assert engine.sum(kernel, 100)[0] > 0


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_blas_has_one_thread_while_an_engine_runs_and_its_own_number_afterwards(n_jobs):
    def blas():
        return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]

    before = blas()
    assert before
    with Engine(n_jobs).running():
        assert set(blas()) == {1}
    assert blas() == before
