"""Ordered sums over fixed blocks and over placed parts, in one thread or in several workers.

Parts are placed once and then called round by round: in this process, or where dask.distributed
holds the chunks that they are made from.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from joblib import Parallel, delayed, effective_n_jobs
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

if TYPE_CHECKING:
    from distributed import Actor, ActorFuture, Client, Future

__all__ = ["N_TASKS", "ChunkParts", "Engine", "PlacedParts", "one_blas_thread", "parts_of_chunks"]

# The number of tasks is fixed, whatever the number of workers: a sum of floats depends on the order
# of its terms, and the same seed must give the same bits for every n_jobs.
N_TASKS = 32


@dataclass(frozen=True)
class Engine:
    """Sums a kernel over blocks, or a method over parts; the same bits for every number of workers.

    Parameters
    ----------
    n_jobs : int or None, default=None
        Threads that share the blocks, as joblib counts them. Few blocks run in one thread. Parts
        with long tasks run in as many workers of joblib.
    pool, jobs : ThreadPoolExecutor and joblib.Parallel, or None
        Threads and joblib's workers, while `running`.
    """

    n_jobs: int | None = None
    # An iteration takes milliseconds: a pool of the standard library hands out its tasks in one of
    # them, a joblib pool in ten.
    pool: ThreadPoolExecutor | None = None
    jobs: Parallel | None = None

    @contextmanager
    def running(self) -> Iterator[Engine]:
        """Hold the workers, with BLAS at one thread, for the length of a fit."""
        n_workers = effective_n_jobs(self.n_jobs)
        with one_blas_thread():
            if n_workers == 1:
                yield self
                return
            with ThreadPoolExecutor(n_workers) as pool:
                # Parts keep their state, so that joblib's workers have to share memory.
                jobs = Parallel(n_jobs=n_workers, require="sharedmem", verbose=0)
                yield replace(self, pool=pool, jobs=jobs)

    def place(self, parts: Sequence[object], *, long_tasks: bool = False) -> PlacedParts:
        """Parts with a state, which are called by the workers for as long as it is `running`.

        Calls of parts take milliseconds, and go to threads; long ones, such as problems that agents
        solve, go to joblib.
        """
        return PlacedParts(parts, self.pool, self.jobs if long_tasks else None)

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


@dataclass(eq=False)
class PlacedParts:
    """Objects with a state of their own, called one after the other, by threads or by joblib."""

    parts: Sequence[object]
    pool: ThreadPoolExecutor | None = None
    jobs: Parallel | None = None

    def sum(self, method: Method, *args: object) -> NDArray[np.float64]:
        """Sum of ``method(part, *args)`` over all parts, always in their order.

        The method is a function of a module or of a class, such as ``Part.advance``. It returns a
        fresh array, which may be added to in place, and only reads its arguments, since parts may
        share them.
        """
        if self.jobs is not None:
            return add_up(self.jobs(delayed(call_part)(part, method, args) for part in self.parts))
        spread = self.pool.map if self.pool is not None and len(self.parts) > 1 else map
        return add_up(spread(partial(call_part, method=method, args=args), self.parts))

    def each(self, method: Method, *args: object) -> list[Any]:
        """Results of ``method(part, *args)`` in the order of the parts."""
        return [call_part(part, method, args) for part in self.parts]


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


# Sums over chunks by their level and place in a binary tree; None: over no rows.
Sums = dict[tuple[int, int], Any]


def add_neighbours(sums: Sums, n_chunks: int) -> Sums:
    """Add up what is beside each other in the tree over all chunks, as far as both are there.

    The tree, and so every bit of the total, is the same wherever chunks are.
    """
    level, width = 0, n_chunks
    while width > 1:
        for place in range(0, width, 2):
            own, other = (level, place), (level, place + 1)
            if own in sums and (other in sums or place + 1 == width):
                terms = [sums.pop(own), sums.pop(other, None)]
                known = [term for term in terms if term is not None]
                sums[level + 1, place // 2] = add_up(known) if known else None
        level, width = level + 1, (width + 1) // 2
    return sums


class Host:
    """Parts made of the chunks that a worker holds; an actor."""

    def __init__(
        self, make: Method, numbers: list[int], chunks: list[Any], n_chunks: int, n_threads: int
    ) -> None:
        self._parts = {number: make(*own) for number, own in zip(numbers, chunks, strict=True)}
        self._n_chunks, self._n_threads, self._round = n_chunks, n_threads, 0

    def call(self, number: int, message: bytes) -> bytes:
        """Results of a method of every part, or the exception that one of them raised.

        The exception is a result, so that one that is raised here comes from dask.
        """
        import cloudpickle

        if number != self._round + 1:
            raise ConnectionError(f"Got round {number}, expected round {self._round + 1}.")
        self._round = number
        try:
            method, args, adds = pickle.loads(message)
            with one_blas_thread(), ThreadPoolExecutor(self._n_threads) as pool:
                found = pool.map(partial(call_part, method=method, args=args), self._parts.values())
                results = {(0, n): result for n, result in zip(self._parts, found, strict=True)}
            return cloudpickle.dumps(add_neighbours(results, self._n_chunks) if adds else results)
        except Exception as error:
            return cloudpickle.dumps(error)


@dataclass(eq=False)
class ChunkParts:
    """Parts of chunks, in the workers that hold these: one message to each worker, and one back."""

    n_chunks: int
    futures: list[Future]
    hosts: list[Actor]
    n_rounds: int = 0
    # Of arguments and results.
    bytes_sent: int = 0

    def sum(self, method: Method, *args: object) -> NDArray[np.float64]:
        """Sum of ``method(part, *args)``, in an order that only the number of chunks decides."""
        total = add_neighbours(self._call(method, args, adds=True), self.n_chunks)
        return next(iter(total.values()))

    def each(self, method: Method, *args: object) -> list[Any]:
        """Results of ``method(part, *args)`` in the order of the chunks."""
        return [result for _, result in sorted(self._call(method, args, adds=False).items())]

    def _call(self, method: Method, args: tuple[object, ...], *, adds: bool) -> Sums:
        import cloudpickle

        message = cloudpickle.dumps((method, args, adds))
        self.n_rounds += 1
        when = f"in round {self.n_rounds}"
        # A call to the actor of a dead worker may wait for ever, or start from an old state.
        if not self._all_live():
            raise _worker_died(when)
        calls = [host.call(self.n_rounds, message) for host in self.hosts]
        replies: list[bytes] = [_result(call, self._all_live, when) for call in calls]
        self.bytes_sent += len(message) * len(self.hosts) + sum(map(len, replies))
        results: Sums = {}
        for reply in map(pickle.loads, replies):
            if isinstance(reply, Exception):
                raise reply
            results |= reply
        return results

    def _all_live(self) -> bool:
        return all(future.status == "finished" for future in self.futures)


@contextmanager
def parts_of_chunks(
    client: Client, make: Method, chunks: Sequence[tuple[Any, ...]]
) -> Iterator[ChunkParts]:
    """Parts ``make(*chunk)`` of delayed chunks, as long as this lasts.

    A part is made by the worker that holds the first chunk, or computes it. The others come along.

    Raises
    ------
    RuntimeError
        Here or in a call, if a worker dies.
    """
    from distributed import wait

    if client.asynchronous:
        raise ValueError(
            "Got an asynchronous dask client, expected a synchronous one. Make it with"
            " Client(address, asynchronous=False)."
        )
    when, threads = "while chunks were computed", client.nthreads()
    shares: dict[str, list[int]] = {}
    futures: list[Future] = []
    # Waiting and actors belong to the current client, whichever submitted them.
    with client.as_current():
        computed = client.compute([each for chunk in chunks for each in chunk])
        for future in wait(computed).done:
            if future.status == "error":
                raise future.exception()
        own = list(zip(*[iter(computed)] * len(chunks[0]), strict=True))
        held_by = client.who_has(computed)
        for number, (first, *_) in enumerate(own):
            if not (holders := held_by[first.key]):
                raise _worker_died(when)
            # Of copies that of the worker with the fewest chunks.
            holder = min(holders, key=lambda name: (len(shares.get(name, ())), name))
            shares.setdefault(holder, []).append(number)
        for name, numbers in sorted(shares.items()):
            facts = (numbers, [own[n] for n in numbers], len(own), threads[name])
            here = {"workers": [name], "allow_other_workers": False}
            futures.append(client.submit(Host, make, *facts, actor=True, pure=False, **here))

        def all_live() -> bool:
            return client.nthreads().keys() >= shares.keys()

        hosts = [_result(future, all_live, when) for future in futures]
    try:
        yield ChunkParts(len(own), futures, hosts)
    finally:
        # Now rather than when dask's actors are collected. The scheduler may be gone.
        with suppress(OSError):
            client.cancel(futures)


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
