"""Ordered sums over fixed blocks and over placed parts, in one thread or in several workers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from joblib import effective_n_jobs
from numpy.typing import NDArray

from skdpadmm.engine._parts import (
    LocalParts,
    PlacedParts,
    Workers,
    add_up,
    connected,
    one_blas_thread,
)

if TYPE_CHECKING:
    from distributed import Client

# The number of tasks is fixed, whatever the number of workers: a sum of floats depends on the order
# of its terms, and the same seed must give the same bits for every n_jobs.
N_TASKS = 32

T = TypeVar("T")


def require_backend(backend: str) -> None:
    """Raise a ValueError for an unknown backend, an ImportError for one that is not installed."""
    if backend not in ("local", "dask"):
        raise ValueError(f"Got backend={backend!r}, expected 'local' or 'dask'.")
    if backend == "dask":
        try:
            import distributed  # noqa: F401
        except ImportError as error:
            raise ImportError("engine='dask' needs dask: pip install 'skdpadmm[dask]'") from error


@dataclass(frozen=True)
class Engine:
    """Sums a kernel over blocks, or a method over parts; the same bits for every number of workers.

    Parameters
    ----------
    n_jobs : int or None, default=None
        Threads that share the blocks, as joblib counts them. Few blocks run in one thread.
    backend : {"local", "dask"}, default="local"
        Where parts are placed: in this process, or in the workers of dask.distributed. Blocks run
        in this process.
    client : distributed.Client or None, default=None
        The client of dask. By default the current one; where there is none, `running` makes a
        cluster of ``n_jobs`` processes (two by default) on this machine.
    pool, workers : ThreadPoolExecutor and Workers, or None
        Threads, and the workers of the client, while `running`.
    """

    n_jobs: int | None = None
    # An iteration takes milliseconds: a pool of the standard library hands out its tasks in one of
    # them, a joblib pool in ten.
    pool: ThreadPoolExecutor | None = None
    backend: str = "local"
    client: Client | None = None
    workers: Workers | None = None

    @contextmanager
    def running(self) -> Iterator[Engine]:
        """Hold the workers, with BLAS at one thread, for the length of a fit."""
        require_backend(self.backend)
        n_workers = effective_n_jobs(self.n_jobs)
        with one_blas_thread(), ExitStack() as stack:
            engine = self
            if self.backend == "dask":
                n_processes = 2 if self.n_jobs is None else n_workers
                workers = stack.enter_context(connected(self.client, n_processes))
                engine = replace(engine, workers=workers)
            if n_workers > 1:
                pool = stack.enter_context(ThreadPoolExecutor(n_workers))
                engine = replace(engine, pool=pool)
            yield engine

    def place(self, parts: Sequence[object]) -> PlacedParts:
        """Place parts where the workers are, for as long as the engine is `running`.

        Parts are objects with a state, about as many as there may be workers: consecutive ones
        share a worker. The local backend uses them as they are; dask sends pickled copies, once.

        Raises
        ------
        ValueError, RuntimeError
            If there are no parts; on dask if the engine is not `running`, or if a worker dies.
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
        return add_up(self._spread(kernel, n_blocks, add_up))

    def run(self, kernel: Callable[[int], None], n_blocks: int) -> None:
        """Call ``kernel(block)`` for ``range(n_blocks)``."""
        _to_the_end(self._spread(kernel, n_blocks, _to_the_end))

    def _spread(
        self, kernel: Callable[[int], T], n_blocks: int, reduce: Callable[[Iterable[T]], T]
    ) -> Iterable[T]:
        """What `reduce` makes of the results of the blocks of each task, in order."""
        bounds = [n_blocks * t // N_TASKS for t in range(N_TASKS + 1)]
        tasks = [range(a, b) for a, b in pairwise(bounds) if b > a]

        def work(blocks: range) -> T:
            # A warning of floating point would depend on data. Each thread has its own state.
            with np.errstate(all="ignore"):
                return reduce(map(kernel, blocks))

        return (self.pool.map if self.pool and len(tasks) == N_TASKS else map)(work, tasks)


def _to_the_end(results: Iterable[None]) -> None:
    for _ in results:
        pass
