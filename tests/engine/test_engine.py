"""Ordered sums: the same bits for every number of workers, in the order that is promised."""

from __future__ import annotations

import threading
import warnings
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from threadpoolctl import threadpool_info

from skdpadmm.engine import Engine
from skdpadmm.engine._engine import N_TASKS

JOBS = [None, 1, 2, 4, -1]
BLOCK_COUNTS = [1, 2, 3, 31, 32, 33, 63, 64, 65, 100, 1000]


def ill_conditioned(n_blocks, seed=0):
    """Terms of very different size and sign, whose sum depends on the order of additions."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n_blocks, 5)) * 10.0 ** rng.integers(-12, 12, size=(n_blocks, 5))


def total(terms, n_jobs):
    with Engine(n_jobs).running() as engine:
        return engine.sum(lambda block: terms[block].copy(), len(terms))


@pytest.mark.parametrize("n_blocks", BLOCK_COUNTS)
def test_the_bits_of_a_sum_do_not_depend_on_the_number_of_workers(n_blocks):
    terms = ill_conditioned(n_blocks)
    reference = total(terms, None)
    for n_jobs in JOBS:
        np.testing.assert_array_equal(total(terms, n_jobs), reference)
    # An engine that was not started works too, in this thread.
    unstarted = Engine(4).sum(lambda block: terms[block].copy(), n_blocks)
    np.testing.assert_array_equal(unstarted, reference)


def test_these_sums_would_show_another_order():
    terms = ill_conditioned(1000)
    assert np.any(total(terms, 1) != total(terms[::-1].copy(), 1))


@settings(max_examples=50, deadline=None)
@given(n_blocks=st.integers(1, 300), seed=st.integers(0, 1000))
def test_blocks_are_added_in_order_within_fixed_tasks_and_tasks_in_order(n_blocks, seed):
    terms = ill_conditioned(n_blocks, seed)
    bounds = [n_blocks * t // N_TASKS for t in range(N_TASKS + 1)]
    partial = []
    for a, b in pairwise(bounds):
        if b > a:
            part = terms[a].copy()
            for term in terms[a + 1 : b]:
                part = part + term
            partial.append(part)
    expected = partial[0]
    for part in partial[1:]:
        expected = expected + part
    np.testing.assert_array_equal(total(terms, 2), expected)
    np.testing.assert_array_equal(total(terms, 1), expected)


@pytest.mark.parametrize("n_jobs", [1, 2, 4])
@pytest.mark.parametrize("n_blocks", BLOCK_COUNTS)
def test_every_block_is_visited_exactly_once(n_blocks, n_jobs):
    seen = []
    with Engine(n_jobs).running() as engine:
        engine.sum(lambda block: (seen.append(block), np.zeros(1))[1], n_blocks)
    assert sorted(seen) == list(range(n_blocks))


@pytest.mark.parametrize("n_jobs", [1, 2])
@pytest.mark.parametrize("shape", [(), (3,), (2, 3)])
def test_sums_keep_their_shape(shape, n_jobs):
    with Engine(n_jobs).running() as engine:
        result = engine.sum(lambda block: np.full(shape, float(block)), 100)
    np.testing.assert_array_equal(result, np.full(shape, 4950.0))


def fails_at_57(block):
    if block == 57:
        raise LookupError("block 57")
    return np.ones(1)


@pytest.mark.parametrize("n_jobs", [1, 2, 4])
def test_an_exception_in_a_kernel_reaches_the_caller(n_jobs):
    with Engine(n_jobs).running() as engine:
        with pytest.raises(LookupError, match="block 57"):
            engine.sum(fails_at_57, 100)


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_a_sum_after_a_failed_one_holds_nothing_that_is_left_of_it(n_jobs):
    # Late workers of the failed sum may still deliver: a race, hence the repetitions.
    for _ in range(30):
        with Engine(n_jobs).running() as engine:
            with pytest.raises(LookupError, match="block 57"):
                engine.sum(fails_at_57, 100)
            assert engine.sum(lambda block: np.ones(1), 100) == 100


def test_an_exception_leaves_the_context():
    with pytest.raises(LookupError), Engine(2).running():
        raise LookupError


@pytest.mark.parametrize("n_jobs", [1, 2, 4])
def test_floating_point_errors_in_a_kernel_are_silent_in_every_worker(n_jobs):
    # What a worker says would depend on the data; error states do not reach other threads.
    def kernel(block):
        return np.exp(np.array([1e3])) - np.exp(np.array([1e3])) / np.zeros(1)

    with (
        warnings.catch_warnings(record=True) as caught,
        np.errstate(all="raise"),
        Engine(n_jobs).running() as engine,
    ):
        warnings.simplefilter("always")
        engine.sum(kernel, 100)
    assert not caught


def test_the_error_state_of_the_caller_is_restored():
    with np.errstate(over="raise", under="warn"):
        before = np.geterr()
        total(ill_conditioned(64), 2)
        assert np.geterr() == before


def test_several_workers_share_the_blocks_in_threads_of_one_process():
    barrier = threading.Barrier(2, timeout=20)

    def kernel(block):
        if block in (0, 99):  # first and last task: they meet only if they run at the same time
            barrier.wait()
        return np.array([float(threading.get_ident() != main)])

    main = threading.get_ident()
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


def test_a_number_of_workers_without_meaning_is_refused():
    with pytest.raises(ValueError, match="n_jobs"), Engine(0).running():
        pass
