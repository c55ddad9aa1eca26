"""Rows in chunks of dask: they stay with their workers, or are mapped from a file.

With a client of dask.distributed a chunk becomes a `Shard` in the worker that holds it. What leaves
a worker are sums over its rows, counts, and how many rows and columns there are. Without a client
the chunks are written to a temporary file, one by one, and mapped into memory.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import dataclass, replace
from functools import partial, wraps
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import clone

from skdpadmm._sklearn import discreet
from skdpadmm.engine import ChunkParts, Engine, PlacedParts, parts_of_chunks
from skdpadmm.network import Ownership, ownership_of_labels, positions_of_labels
from skdpadmm.protocol import Problem, Summand
from skdpadmm.records import Coordinates, Rows

_Method = TypeVar("_Method", bound=Callable[..., Any])


def is_collection(X: Any) -> bool:
    """Whether a value is a collection of dask, which is asked only where dask was imported."""
    dask = sys.modules.get("dask")
    return dask is not None and bool(dask.is_dask_collection(X))


def problem_of(
    X: Any, y: NDArray[Any], coordinates: Coordinates, *, per_person: int = 1, **facts: Any
) -> Problem:
    """The problem of validated rows and targets in some coordinates."""
    rows, target = Rows(X, coordinates, per_person), coordinates.target(y)
    if coordinates.has_target_scale:
        # A row that is scaled down takes its target along: a weighted record, not a distorted one.
        target = target * rows.weight
    return Problem(rows=rows, target=target, per_person=per_person, **facts)


def largest_entries(X: Any, y: NDArray[Any]) -> tuple[float, float]:
    """The largest absolute value of rows and of targets."""
    largest, of_targets = (max(float(v.max()), -float(v.min())) for v in (X, y))
    return largest, of_targets


def has_no_longer_rows(X: Any, y: Any, coordinates: Coordinates, longest: float) -> bool:
    """Whether all rows have at most a norm."""
    return bool((Rows(X, coordinates).squared_norm <= longest**2).all())


@dataclass(frozen=True, eq=False)
class Chunk:
    """Rows that an estimator has validated, and what is public of them."""

    X: Any
    y: NDArray[Any]  # As the loss expects it.
    agents: Any  # The label of each row, or None.
    columns: dict[str, Any]  # What the estimator has seen, as attributes.


def checked(model: Any, X: Any, y: Any, agents: Any = None) -> Chunk | None:
    """A chunk as a fit of it alone would see it; None without rows."""
    if y.shape[0] == X.shape[0] == 0:
        return None
    # Threads of a worker check their chunks at the same time.
    model = copy(model)
    agents = model._labels_of_rows(X, agents)
    X, _, targets = model._check_targets(X, y)
    columns = {name: value for name, value in vars(model).items() if name.endswith("_in_")}
    return Chunk(X, targets.encoded, agents, columns)


class Shard:
    """A chunk in a worker, and all that a fit remembers of its rows."""

    def __init__(self, *chunk: Any) -> None:
        self.raw: Any = chunk
        self.chunk: Chunk | None = None
        self.functions: dict[int, Summand] = {}

    @discreet
    def check(self, model: Any) -> Any:
        """Validate the chunk; its public facts, and how many rows each agent has."""
        self.chunk, self.raw = checked(model, *self.raw), None
        if self.chunk is None:
            return None
        owners, (n, n_features) = Counter[Any](), self.chunk.X.shape
        if self.chunk.agents is not None:
            found = ownership_of_labels(self.chunk.agents, n_samples=n)
            owners.update(dict(zip(found.labels.tolist(), found.sizes.tolist(), strict=True)))
        return n, n_features, self.chunk.columns, owners

    @discreet
    def on_rows(self, method: Callable[..., Any], *args: Any) -> Any:
        """``method(self, *args)``; None without rows."""
        return method(self, *args) if self.chunk is not None else None

    def each(self, function: Callable[..., Any], *args: Any) -> Any:
        """``function(X, y, *args)``."""
        assert self.chunk is not None
        return function(self.chunk.X, self.chunk.y, *args)

    def see(self, coordinates: Coordinates, labels: Any) -> None:
        """Make the problem of these rows."""
        assert self.chunk is not None
        X, owners = self.chunk.X, None
        if labels is not None:
            index = positions_of_labels(self.chunk.agents, labels, n_samples=X.shape[0])
            owners = Ownership(labels, index)
        self.problem = problem_of(X, self.chunk.y, coordinates, engine=Engine(), ownership=owners)
        self.chunk = replace(self.chunk, X=None, y=np.empty(0), agents=None)

    def change(self, change: Callable[[Problem], Problem]) -> None:
        """Change the problem, and forget functions of what it was."""
        self.functions.clear()
        self.problem = change(self.problem)

    def keep(self, number: int, make: Callable[[Problem], Summand]) -> None:
        """Keep a function of the problem, with what it remembers."""
        self.functions[number] = make(self.problem)

    def call(self, number: int, *args: Any) -> Any:
        """What a function returns."""
        return self.functions[number](*args)


class Shards:
    """All rows of a fit, in the workers of a client: validated by a model, seen in coordinates."""

    def __init__(self, parts: ChunkParts | PlacedParts, model: Any) -> None:
        self.parts, self.n_functions = parts, 0
        facts = [facts for facts in parts.each(Shard.check, model) if facts is not None]
        n_rows, n_features, columns, owners = zip(*facts, strict=True) if facts else ((),) * 4
        self.columns = same_columns(n_features, columns)
        self.shape = (sum(n_rows), n_features[0])
        self.owners: Ownership | None = None
        if sizes := sum(owners, Counter[Any]()):
            known = ownership_of_labels(list(sizes), n_samples=len(sizes)).labels
            counts = np.array([sizes[label] for label in known.tolist()], dtype=np.intp)
            self.owners = Ownership(known, np.empty(0, dtype=np.intp), counts)

    def each(self, function: Callable[..., Any], *args: Any) -> list[Any]:
        """Results of ``function(X, y, *args)`` for chunks with rows, in their order."""
        results = self.parts.each(Shard.on_rows, Shard.each, function, *args)
        return [result for result in results if result is not None]

    def problem(self, coordinates: Coordinates, **facts: Any) -> Problem:
        """The problem of all rows, which is made where they are."""
        labels = None if self.owners is None else self.owners.labels
        self.parts.each(Shard.on_rows, Shard.see, coordinates, labels)
        n_samples, n_features = self.shape
        rows = Rows(np.empty((0, n_features)), coordinates, n_samples=n_samples)
        return Problem(rows=rows, target=np.empty(0), elsewhere=self, **facts)

    def change(self, change: Callable[[Problem], Problem]) -> None:
        """Change the problems where the rows are."""
        self.parts.each(Shard.on_rows, Shard.change, change)

    def summed(self, make: Callable[[Problem], Summand]) -> Summand:
        """The function that `make` returns for the problem of a chunk, summed over all chunks."""
        self.n_functions += 1
        self.parts.each(Shard.on_rows, Shard.keep, self.n_functions, make)
        return partial(self.parts.sum, Shard.on_rows, Shard.call, self.n_functions)


def not_in_chunks(what: str) -> ValueError:
    """What needs all rows in one place, as an error."""
    return ValueError(
        f"Got chunks on workers of dask with {what}, expected records as the unit and an algorithm"
        " of sums over rows, such as 'consensus-admm' of a curator or 'federated-admm'. Close the"
        " client, and rows are mapped from a file in this process, where everything works."
    )


def same_columns(n_features: Sequence[int], columns: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The columns that all chunks have."""
    names = [list(seen.get("feature_names_in_", ())) for seen in columns]
    if len(set(n_features)) != 1 or any(own != names[0] for own in names):
        raise ValueError(
            f"Got chunks of X with {sorted(set(n_features))} columns or other names, expected the"
            " same columns in all chunks, and at least one row."
        )
    return columns[0]


def delayed_chunks(**given: Any) -> list[tuple[Any, ...]]:
    """Chunks of collections that have the same rows, beside each other."""
    given = {name: values for name, values in given.items() if values is not None}
    pieces, X = [], given["X"]
    for name, values in given.items():
        if not hasattr(values, "to_delayed"):
            raise ValueError(
                f"Got {name} as a {type(values).__name__} beside collections of dask, expected"
                " dask arrays or dataframes alone, with chunks of the same rows. Convert it:"
                " dask.array.from_array(values, chunks=X.chunks[0])."
            )
        if hasattr(values, "chunks"):
            # All columns of a row in one chunk, and the same rows as in X where that is known.
            like = values.chunks if values is X else getattr(X, "chunks", values.chunks)
            rows = like[0] if sum(like[0]) == values.shape[0] else values.chunks[0]
            values = values.rechunk((rows, *(-1 for _ in values.shape[1:])))
        # Optimised, columns of one parquet file could have other partitions than its targets.
        pieces.append(np.ravel(values.to_delayed(optimize_graph=False)).tolist())
    counts = dict(zip(given, map(len, pieces), strict=True))
    if len(set(counts.values())) > 1:
        raise ValueError(
            f"Got {counts} chunks, expected as many of each, with the same rows. Repartition them."
        )
    return list(zip(*pieces, strict=True))


@contextmanager
def read_chunks(model: Any, X: Any, y: Any, labels: Any) -> Iterator[tuple[Any, Any, Any]]:
    """Validated rows, targets and owners: in the workers of the current client, or mapped."""
    chunks = delayed_chunks(X=X, y=y, labels=labels)
    # Workers draw no noise.
    checker = clone(model).set_params(random_state=None, ledger=None)
    if (client := current_client()) is not None:
        with parts_of_chunks(client, Shard, chunks) as parts:
            shards = Shards(parts, checker)
            vars(model).update(shards.columns)
            yield shards, np.empty(0), shards.owners
        return
    with tempfile.TemporaryFile() as file:
        read = list(_written(checker, chunks, file))
        columns = same_columns([own.X.shape[1] for own in read], [own.columns for own in read])
        vars(model).update(columns)
        y, agents = np.concatenate([own.y for own in read]), None
        if read[0].agents is not None:
            agents = np.concatenate([np.asarray(own.agents) for own in read])
        if sparse.issparse(read[0].X):
            yield sparse.vstack([own.X for own in read], format="csr"), y, agents
        else:
            shape = (len(y), read[0].X.shape[1])
            yield np.memmap(file, dtype=read[0].X.dtype, mode="r", shape=shape), y, agents


def _written(model: Any, chunks: list[tuple[Any, ...]], file: Any) -> Iterator[Chunk]:
    """Chunks, whose dense rows are written to a file."""
    from dask.base import compute

    dtype = None
    for delayed in chunks:
        chunk = checked(model, *compute(*delayed))
        if chunk is not None and not sparse.issparse(chunk.X):
            dtype = dtype or chunk.X.dtype
            if np.promote_types(dtype, chunk.X.dtype) != dtype:
                raise ValueError(
                    f"Got chunks of X of types {dtype} and {chunk.X.dtype}, expected one type."
                    " Convert them: X.astype('float64')."
                )
            chunk.X.astype(dtype, order="C", copy=False).tofile(file)
            chunk = replace(chunk, X=chunk.X[:0].astype(dtype))
        if chunk is not None:
            yield chunk
    file.flush()


def current_client() -> Any:
    """The current client of dask.distributed; None where there is none."""
    distributed = sys.modules.get("distributed")
    with suppress(ValueError):
        return None if distributed is None else distributed.Client.current()
    return None


def example_of(X: Any) -> Any:
    """Rows of the columns and types of a collection, without its values."""
    return np.zeros((1, X.shape[1]), X.dtype) if hasattr(X, "chunks") else X._meta_nonempty


def lazily(method: _Method) -> _Method:
    """Call a method of rows on each chunk of a collection, when its result is asked for."""

    @wraps(method)
    def mapped(self: Any, X: Any, *args: Any, **kwargs: Any) -> Any:
        if not is_collection(X):
            return method(self, X, *args, **kwargs)
        empty = method(self, example_of(X), *args, **kwargs)[:0]

        def of_chunk(chunk: Any) -> Any:
            return method(self, chunk, *args, **kwargs) if chunk.shape[0] else empty

        if not hasattr(X, "chunks"):
            return X.map_partitions(of_chunk, meta=empty)
        chunks = (X.chunks[0], *((size,) for size in empty.shape[1:]))
        options = {"drop_axis": 1} if empty.ndim == 1 else {}
        return X.rechunk({1: -1}).map_blocks(of_chunk, chunks=chunks, meta=empty, **options)

    return mapped  # type: ignore[return-value]
