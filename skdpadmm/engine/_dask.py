"""Parts in the workers of dask.distributed: one actor per worker holds consecutive parts."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from skdpadmm.engine._blas import one_blas_thread
from skdpadmm.engine._parts import PlacedParts, call_part

if TYPE_CHECKING:
    from distributed import Actor, ActorFuture, Client, Future

# While a result is awaited, whether all workers live is asked that often, in seconds. The future
# of a call to an actor does not always hear that its worker died.
PATIENCE = 0.5


def require_dask() -> None:
    """Raise if dask is missing."""
    try:
        import distributed  # noqa: F401
    except ImportError as error:
        raise ImportError("engine='dask' needs dask: pip install 'skdpadmm[dask]'") from error


@contextmanager
def connected(client: Client | None, n_workers: int) -> Iterator[Workers]:
    """Hold the workers of the given client, the current one, or a cluster that is made here."""
    from distributed import Client, LocalCluster

    found = client or _current_client()
    if found is not None:
        if found.asynchronous:
            raise ValueError(
                "Got an asynchronous dask client, expected a synchronous one. Make it with"
                " Client(address, asynchronous=False)."
            )
        workers = Workers(found)
        try:
            yield workers
        finally:
            workers.release()
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


def _current_client() -> Client | None:
    from distributed import Client

    try:
        return Client.current()
    except ValueError:
        return None


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
        reply: list[Any] | Exception
        try:
            with one_blas_thread():
                reply = [call_part(part, method, args) for part in self._parts]
        except Exception as error:
            reply = error
        else:
            reply = reply if wanted else []
        return cloudpickle.dumps(reply)


@dataclass(eq=False)
class DaskParts(PlacedParts):
    """Parts in the workers of a client."""

    futures: list[Future]
    hosts: list[Actor]
    n_rounds: int = 0
    bytes_sent: int = 0

    def _call(self, method: str, args: tuple[object, ...], *, wanted: bool) -> Iterable[Any]:
        import cloudpickle

        message = cloudpickle.dumps((method, args, wanted))
        self.n_rounds += 1
        when = f"in round {self.n_rounds}"
        # A call to the actor of a dead worker may wait for ever, or begin with a state of old.
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
    """The workers of a client, and what they were given to hold."""

    client: Client
    futures: list[Future] = field(default_factory=list)

    def place(self, parts: Sequence[object]) -> DaskParts:
        """Send each worker its share of the parts, once."""
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

    def release(self) -> None:
        """Let all hosts go, now rather than when the garbage of dask's actors is collected."""
        # Where the scheduler is gone there is nobody to tell.
        with suppress(OSError):
            self.client.cancel(self.futures)


def _submit(client: Client, share: list[object], worker: str) -> Future:
    """Make a host in a worker.

    The parts are scattered data, not part of a task. So they go to the worker and are kept nowhere
    else, and dask cannot make a lost host again, whose parts would have forgotten their state.
    """
    [sent] = client.scatter([share], workers=[worker], hash=False)
    return client.submit(
        Host, sent, actor=True, workers=[worker], allow_other_workers=False, pure=False
    )


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
