"""Ordered sums over fixed blocks, in one thread or in several."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import TypeVar

import numpy as np
from joblib import effective_n_jobs
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

# The number of tasks is fixed, whatever the number of workers: a sum of floats depends on the order
# of its terms, and the same seed must give the same bits for every n_jobs.
N_TASKS = 32

T = TypeVar("T")


@dataclass(frozen=True)
class Engine:
    """Sums a kernel over blocks; the same bits for every number of workers.

    Parameters
    ----------
    n_jobs : int or None, default=None
        Threads that share the blocks, as joblib counts them. Few blocks run in one thread.
    pool : ThreadPoolExecutor or None, default=None
        The threads, while `running`. An iteration takes milliseconds: a pool of the standard
        library hands out its tasks in one of them, a joblib pool in ten.
    """

    n_jobs: int | None = None
    pool: ThreadPoolExecutor | None = None

    @contextmanager
    def running(self) -> Iterator[Engine]:
        """Hold the workers, with BLAS at one thread, for the length of a fit."""
        n_workers = effective_n_jobs(self.n_jobs)
        with _thread_pools().limit(limits=1, user_api="blas"):
            if n_workers == 1:
                yield self
                return
            with ThreadPoolExecutor(n_workers) as pool:
                yield Engine(self.n_jobs, pool)

    def sum(
        self, kernel: Callable[[int], NDArray[np.float64]], n_blocks: int
    ) -> NDArray[np.float64]:
        """Sum of ``kernel(block)`` over ``range(n_blocks)``, always in the same order."""
        partial = self._spread(lambda task: _sum_task(kernel, task), n_blocks)
        total = next(partial)
        for part in partial:
            total += part
        return total

    def run(self, kernel: Callable[[int], None], n_blocks: int) -> None:
        """Call ``kernel(block)`` for ``range(n_blocks)``."""
        for _ in self._spread(lambda task: _run_task(kernel, task), n_blocks):
            pass

    def _spread(self, work: Callable[[range], T], n_blocks: int) -> Iterator[T]:
        """Results of a function of ranges of blocks, in order."""
        bounds = [n_blocks * t // N_TASKS for t in range(N_TASKS + 1)]
        tasks = [range(a, b) for a, b in pairwise(bounds) if b > a]
        spread = self.pool.map if self.pool is not None and len(tasks) == N_TASKS else map
        return iter(spread(work, tasks))


@cache
def _thread_pools() -> ThreadpoolController:
    """Find the BLAS libraries once: looking for them takes longer than a small fit."""
    return ThreadpoolController()


def _run_task(kernel: Callable[[int], None], blocks: range) -> None:
    with np.errstate(all="ignore"):
        for block in blocks:
            kernel(block)


def _sum_task(kernel: Callable[[int], NDArray[np.float64]], blocks: range) -> NDArray[np.float64]:
    # A warning of floating point would depend on data. Each thread has an error state of its own.
    with np.errstate(all="ignore"):
        total = kernel(blocks[0])
        for block in blocks[1:]:
            total += kernel(block)
    return total
