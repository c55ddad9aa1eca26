"""Ordered sums over fixed blocks and over placed parts, in one thread or in several workers.

Parts are placed once and then called round by round, in this process or on dask.distributed.
"""

from __future__ import annotations

import pickle
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from joblib import Parallel, delayed, effective_n_jobs
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

if TYPE_CHECKING:
    from distributed import Actor, ActorFuture, Client, Future

__all__ = ["N_TASKS", "Engine", "PlacedParts", "one_blas_thread", "require_backend"]

# The number of tasks is fixed, whatever the number of workers: a sum of floats depends on the order
# of its terms, and the same seed must give the same bits for every n_jobs.
N_TASKS = 32


def require_backend(backend: str) -> None:
    """Raise an ImportError for a backend that is not installed."""
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
        Threads that share the blocks, as joblib counts them. Few blocks run in one thread. Parts
        with long tasks run in as many workers of joblib.
    backend : {"local", "dask"}, default="local"
        Where parts are placed: in this process, or in the workers of dask.distributed. Blocks run
        in this process.
    client : distributed.Client or None, default=None
        The client of dask. By default the current one; where there is none, `running` makes a
        cluster of ``n_jobs`` processes (two by default) on this machine.
    pool, jobs, workers : ThreadPoolExecutor, joblib.Parallel and Workers, or None
        Threads, joblib's workers, and those of the client, while `running`.
    """

    n_jobs: int | None = None
    # An iteration takes milliseconds: a pool of the standard library hands out its tasks in one of
    # them, a joblib pool in ten.
    pool: ThreadPoolExecutor | None = None
    jobs: Parallel | None = None
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
                # Parts keep their state, so that joblib's workers have to share memory.
                jobs = Parallel(n_jobs=n_workers, require="sharedmem", verbose=0)
                engine = replace(engine, pool=pool, jobs=jobs)
            yield engine

    def place(self, parts: Sequence[object], *, long_tasks: bool = False) -> PlacedParts:
        """Place parts where the workers are, for as long as the engine is `running`.

        Calls of parts take milliseconds, and go to threads; long ones, such as problems that agents
        solve, go to joblib.

        Parts are objects with a state, about as many as there may be workers: consecutive ones
        share a worker. The local backend uses them as they are; dask sends pickled copies, once.

        Raises
        ------
        RuntimeError
            On dask if a worker dies.
        """
        if self.backend == "local":
            return LocalParts(parts, self.pool, self.jobs if long_tasks else None)
        assert self.workers is not None, "Place parts within `with Engine(...).running()`."
        return self.workers.place(parts)

    def sum(
        self, kernel: Callable[[int], NDArray[np.float64]], n_blocks: int
    ) -> NDArray[np.float64]:
        """Sum of ``kernel(block)`` over ``range(n_blocks)``, always in the same order."""
        return add_up(self._spread(kernel, n_blocks, add_up))

    def run(self, kernel: Callable[[int], None], n_blocks: int) -> None:
        """Call ``kernel(block)`` for ``range(n_blocks)``."""
        list(self._spread(kernel, n_blocks, list))

    def _spread(
        self, kernel: Callable[[int], Any], n_blocks: int, reduce: Callable[[Iterable[Any]], Any]
    ) -> Iterable[Any]:
        """Results of blocks, reduced within each task, in the order of tasks."""
        bounds = [n_blocks * t // N_TASKS for t in range(N_TASKS + 1)]
        tasks = [range(a, b) for a, b in pairwise(bounds) if b > a]

        def work(blocks: range) -> Any:
            # A warning of floating point would depend on data. Each thread has its own state.
            with np.errstate(all="ignore"):
                return reduce(map(kernel, blocks))

        return (self.pool.map if self.pool and len(tasks) == N_TASKS else map)(work, tasks)


# Seconds between checks that all workers live, while a result is awaited. The future of a call to
# an actor does not always notice that its worker died.
PATIENCE = 0.5


def one_blas_thread() -> AbstractContextManager[Any]:
    """Hold BLAS at one thread: the bits of its results depend on how many it has."""
    return _thread_pools().limit(limits=1, user_api="blas")


# The BLAS libraries are found once: looking for them takes longer than a small fit.
_thread_pools = cache(ThreadpoolController)


# What parts are called by. Workers import it by its name.
Method = Callable[..., Any]


class PlacedParts(ABC):
    """Objects with a state of their own, which stays where they were placed."""

    # Bytes of arguments and results that left a process since the parts were placed.
    bytes_sent: int = 0

    def sum(self, method: Method, *args: object) -> NDArray[np.float64]:
        """Sum of ``method(part, *args)`` over all parts, always in their order.

        The method is a function of a module or of a class, such as ``Part.advance``. It returns a
        fresh array, which may be added to in place, and only reads its arguments, since parts may
        share them.
        """
        return add_up(self._call(method, args, wanted=True))

    def run(self, method: Method, *args: object) -> None:
        """Call ``method(part, *args)`` on all parts, and drop results where they are."""
        for _ in self._call(method, args, wanted=False):
            pass

    @abstractmethod
    def _call(self, method: Method, args: tuple[object, ...], *, wanted: bool) -> Iterable[Any]:
        """Results of a method in the order of the parts, or nothing if they are not wanted."""


@dataclass(eq=False)
class LocalParts(PlacedParts):
    """Parts of this process, called one after the other, by a pool of threads or by joblib."""

    parts: Sequence[object]
    pool: ThreadPoolExecutor | None
    jobs: Parallel | None = None

    def _call(self, method: Method, args: tuple[object, ...], *, wanted: bool) -> Iterable[Any]:
        if self.jobs is not None:
            return self.jobs(delayed(call_part)(part, method, args) for part in self.parts)
        spread = self.pool.map if self.pool is not None and len(self.parts) > 1 else map
        return spread(partial(call_part, method=method, args=args), self.parts)


def call_part(part: object, method: Method, args: tuple[object, ...]) -> Any:
    """``method(part, *args)`` without a warning of floating point, which would depend on data."""
    with np.errstate(all="ignore"):
        return method(part, *args)


def add_up(results: Iterable[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Their sum, always in their order, in place of the first."""
    terms = iter(results)
    total = next(terms)
    for term in terms:
        total += term
    return total


@contextmanager
def connected(client: Client | None, n_workers: int) -> Iterator[Workers]:
    """Hold the workers of the given client, the current one, or a cluster that is made here."""
    from distributed import Client, LocalCluster

    with suppress(ValueError):
        client = client or Client.current()
    if client is not None:
        if client.asynchronous:
            raise ValueError(
                "Got an asynchronous dask client, expected a synchronous one. Make it with"
                " Client(address, asynchronous=False)."
            )
        workers = Workers(client)
        try:
            yield workers
        finally:
            # Now rather than when dask's actors are collected. The scheduler may be gone.
            with suppress(OSError):
                client.cancel(workers.futures)
        return
    with (
        LocalCluster(
            n_workers=n_workers,
            threads_per_worker=1,
            memory_limit=None,
            # Without an address a scheduler wants port 8787, dashboard or not.
            dashboard_address="127.0.0.1:0",
            scheduler_kwargs={"dashboard": False},
        ) as cluster,
        Client(cluster, set_as_default=False) as own,
    ):
        yield Workers(own)


class Host:
    """Consecutive parts in one worker; an actor."""

    def __init__(self, parts: Sequence[object]) -> None:
        self._parts = parts
        self._round = 0

    def call(self, number: int, message: bytes) -> bytes:
        """Results of a method of every part, or the exception that one of them raised.

        The exception is a result, so that one that is raised here comes from dask.
        """
        import cloudpickle

        if number != self._round + 1:
            raise ConnectionError(f"Got round {number}, expected round {self._round + 1}.")
        self._round = number
        method, args, wanted = pickle.loads(message)
        try:
            with one_blas_thread():
                results = [call_part(part, method, args) for part in self._parts]
        except Exception as error:
            return cloudpickle.dumps(error)
        return cloudpickle.dumps(results if wanted else [])


@dataclass(eq=False)
class DaskParts(PlacedParts):
    """Parts in the workers of a client."""

    futures: list[Future]
    hosts: list[Actor]
    n_rounds: int = 0
    bytes_sent: int = 0

    def _call(self, method: Method, args: tuple[object, ...], *, wanted: bool) -> Iterable[Any]:
        import cloudpickle

        message = cloudpickle.dumps((method, args, wanted))
        self.n_rounds += 1
        when = f"in round {self.n_rounds}"
        # A call to the actor of a dead worker may wait for ever, or start from an old state.
        if not self._all_live():
            raise _worker_died(when)
        calls = [host.call(self.n_rounds, message) for host in self.hosts]
        replies: list[bytes] = [_result(call, self._all_live, when) for call in calls]
        self.bytes_sent += len(message) * len(self.hosts) + sum(map(len, replies))
        for reply in map(pickle.loads, replies):
            if isinstance(reply, Exception):
                raise reply
            yield from reply

    def _all_live(self) -> bool:
        return all(future.status == "finished" for future in self.futures)


@dataclass(frozen=True, eq=False)
class Workers:
    """The workers of a client, and the parts that were sent to them."""

    client: Client
    futures: list[Future] = field(default_factory=list)

    def place(self, parts: Sequence[object]) -> DaskParts:
        """Send each worker its consecutive parts, once."""
        names = sorted(self.client.nthreads())[: len(parts)]
        if not names:
            raise RuntimeError(
                "Got a dask scheduler without workers, expected at least one. Start workers, and"
                " wait for them with client.wait_for_workers(1)."
            )
        bounds = [len(parts) * w // len(names) for w in range(len(names) + 1)]
        shares = [list(parts[a:b]) for a, b in pairwise(bounds)]

        def all_live() -> bool:
            return self.client.nthreads().keys() >= set(names)

        when = "while rows were sent to it"
        # An actor belongs to the current client, whichever submitted it.
        with self.client.as_current():
            try:
                futures = [_submit(self.client, *at) for at in zip(shares, names, strict=True)]
            # The scheduler looks up a worker that is gone: a KeyError.
            except (OSError, KeyError) as error:
                raise _worker_died(when) from error
            self.futures.extend(futures)
            return DaskParts(futures, [_result(future, all_live, when) for future in futures])


def _submit(client: Client, share: list[object], worker: str) -> Future:
    """Make a host in a worker."""
    # The parts are scattered data, not part of a task. So they go to the worker and are kept
    # nowhere else, and dask cannot make a lost host again, whose parts would have forgotten their
    # state.
    [sent] = client.scatter([share], workers=[worker], hash=False)
    here = {"workers": [worker], "allow_other_workers": False}
    return client.submit(Host, sent, actor=True, pure=False, **here)


def _result(future: Future | ActorFuture, all_live: Callable[[], bool], when: str) -> Any:
    """Wait for a result, or for the death of a worker."""
    while True:
        try:
            return future.result(timeout=PATIENCE)
        except TimeoutError:
            if not all_live():
                raise _worker_died(when) from None
        except OSError as error:
            raise _worker_died(when) from error


def _worker_died(when: str) -> RuntimeError:
    return RuntimeError(
        f"Got a dask worker that died {when}, expected all workers to live until the end of the"
        " fit. Nothing was stored; fit again, which spends the budget again."
    )
