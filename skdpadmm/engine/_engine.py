"""Ordered sums over fixed blocks and over placed parts, in one thread or in several workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from joblib import effective_n_jobs
from numpy.typing import NDArray

from skdpadmm.engine import _dask
from skdpadmm.engine._blas import one_blas_thread
from skdpadmm.engine._parts import LocalParts, PlacedParts

if TYPE_CHECKING:
    from distributed import Client

BACKENDS = ("local", "dask")
# The number of tasks is fixed, whatever the number of workers: a sum of floats depends on the order
# of its terms, and the same seed must give the same bits for every n_jobs.
N_TASKS = 32

T = TypeVar("T")


def require_backend(backend: str) -> None:
    """Raise if a backend is unknown or not installed, before data is touched.

    Parameters
    ----------
    backend : str
        Name of the backend.

    Raises
    ------
    ValueError
        If there is no backend of this name.
    ImportError
        If it needs an extra that is not installed.
    """
    if backend not in BACKENDS:
        names = " or ".join(map(repr, BACKENDS))
        raise ValueError(f"Got backend={backend!r}, expected {names}.")
    if backend == "dask":
        _dask.require_dask()


@dataclass(frozen=True)
class Engine:
    """Sums a kernel over blocks, or a method over parts; the same bits for every number of workers.

    Parameters
    ----------
    n_jobs : int or None, default=None
        Threads that share the blocks, as joblib counts them. Few blocks run in one thread.
    pool : ThreadPoolExecutor or None, default=None
        The threads, while `running`. An iteration takes milliseconds: a pool of the standard
        library hands out its tasks in one of them, a joblib pool in ten.
    backend : {"local", "dask"}, default="local"
        Where parts are placed: in this process, or in the workers of dask.distributed. Blocks run
        in this process.
    client : distributed.Client or None, default=None
        The client of dask. By default the current one; where there is none, `running` makes a
        cluster of ``n_jobs`` processes (two by default) on this machine.
    workers : Workers or None, default=None
        The workers of the client, while `running`.
    """

    n_jobs: int | None = None
    pool: ThreadPoolExecutor | None = None
    backend: str = "local"
    client: Client | None = None
    workers: _dask.Workers | None = None

    @contextmanager
    def running(self) -> Iterator[Engine]:
        """Hold the workers, with BLAS at one thread, for the length of a fit."""
        require_backend(self.backend)
        n_workers = effective_n_jobs(self.n_jobs)
        with one_blas_thread(), ExitStack() as stack:
            engine = self
            if self.backend == "dask":
                n_processes = 2 if self.n_jobs is None else n_workers
                workers = stack.enter_context(_dask.connected(self.client, n_processes))
                engine = replace(engine, workers=workers)
            if n_workers > 1:
                pool = stack.enter_context(ThreadPoolExecutor(n_workers))
                engine = replace(engine, pool=pool)
            yield engine

    def place(self, parts: Sequence[object]) -> PlacedParts:
        """Place parts where the workers are, to be called round by round.

        Parameters
        ----------
        parts : sequence of object
            Objects with a state, about as many as there may be workers: consecutive ones share a
            worker. The local backend uses them as they are; dask sends pickled copies, once.

        Returns
        -------
        placed : PlacedParts
            The parts. Workers hold them as long as the engine is `running`.

        Raises
        ------
        ValueError
            If there are no parts.
        RuntimeError
            If the engine is not `running` and its backend is dask, or if a worker dies.
        """
        if len(parts) == 0:
            raise ValueError("Got no parts, expected at least one.")
        if self.backend == "local":
            return LocalParts(parts, self.pool)
        if self.workers is None:
            raise RuntimeError(
                "Got an engine that does not run, expected one that does. Place parts within"
                " `with Engine(...).running() as engine`."
            )
        return self.workers.place(parts)

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
