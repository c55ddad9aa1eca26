"""Relations of agents, whether links, weights or similarities: read and checked once."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import connected_components

# As a string, because scipy < 1.15 has no brackets for its arrays.
Matrix: TypeAlias = "sparse.csr_array[np.float64]"

_TOLERANCE = 1e-9
_LARGEST = 1e300  # sums of entries are finite too
_MOST_SHOWN = 5
EACH_AGENT = (
    "a node for each agent that holds rows. Agents are those of `agents` (of `agent_sizes` in a"
    " plan) or of `agent_column`; else `partition` makes up `n_agents` of them, 10 by default"
)


def matrix_of(given: Any, names: Sequence[Any], name: str, expected: str) -> Matrix:
    """A finite square matrix in the order of the agents, of a graph, a data frame or a matrix."""
    n = len(names)
    if hasattr(given, "is_multigraph"):
        return _matrix_of_graph(given, names, name)
    if is_frame(given):
        given = _in_order(given, names, name)
    try:
        matrix: Any = given if sparse.issparse(given) else np.asarray(given)
        fits = matrix.shape == (n, n) and matrix.dtype.kind in "biuf"
        got = f"{name} of shape {matrix.shape} and dtype {matrix.dtype}"
        got = got if matrix.ndim else f"{name}={given!r}"
    except ValueError as error:
        fits, got = False, f"{name} that is no matrix ({error})"
    if not fits:
        raise ValueError(
            f"Got {got}, expected {expected}, of real numbers, shape ({n}, {n}): a row and a column"
            f" for each agent; {EACH_AGENT}."
        )
    square = sparse.csr_array(matrix, dtype=np.float64, copy=True)
    square.sum_duplicates()
    if not (np.abs(square.data) <= _LARGEST).all():
        raise ValueError(
            f"Got {name} with an entry that is NaN or infinite or beyond {_LARGEST:g}, expected"
            " finite ones. Divide all of them by the largest."
        )
    return square


def checked_relation(
    matrix: Matrix,
    names: Sequence[Any],
    name: str,
    remedy: str,
    *,
    is_pattern: bool = False,
    has_diagonal: bool = False,
) -> Matrix:
    """The matrix of a connected graph, positive on its edges and symmetric to the last bit."""

    def raise_at(problem: str, agents: Any, expected: str) -> None:
        called = shown([names[i] for i in agents])
        raise ValueError(f"Got a {name} {problem} agents {called}, expected {expected}.")

    matrix.eliminate_zeros()
    entries = matrix.tocoo()
    if matrix.nnz and entries.data.min() < 0:
        at = int(entries.data.argmin())
        pair = [int(axis[at]) for axis in entries.coords]
        raise_at(f"of {entries.data[at]:.6g} between", pair, "none below zero")
    if is_pattern:
        matrix.data[:] = 1.0
    own = np.flatnonzero(matrix.diagonal())
    if len(own) and not has_diagonal:
        raise_at("with self loops, at", own.tolist(), "zeros on the diagonal")
    uneven = sparse.coo_array(abs(matrix - matrix.T))
    uneven.eliminate_zeros()
    if uneven.nnz:
        at = int(uneven.data.argmax())
        if uneven.data[at] > _TOLERANCE * matrix.data.max():
            a, b = (int(axis[at]) for axis in uneven.coords)
            both = f"of {matrix[a, b]:.6g} one way and {matrix[b, a]:.6g} the other between"
            raise_at(both, [a, b], "a symmetric matrix; (S + S.T) / 2 is one")
        matrix = sparse.csr_array(matrix * 0.5 + matrix.T * 0.5)
    upper = sparse.triu(matrix).tocoo()
    i, j = upper.coords
    checked = symmetric_csr(len(names), i, j, upper.data)
    # Eigenvalues alone would not do, because Lanczos iterations can miss a multiple one.
    components = connected_components(checked, directed=False)[1]
    sizes = np.bincount(components)
    if len(sizes) > 1:
        alone = np.flatnonzero(sizes[components] == 1)
        apart = alone if len(alone) else np.flatnonzero(components == sizes.argmin())
        which = "without a neighbour" if len(alone) else "apart from all others"
        raise ValueError(
            f"Got a {name} with {len(sizes)} components, agents {which}:"
            f" {shown([names[i] for i in apart.tolist()])}, expected a connected graph. {remedy}"
            " until every agent can reach every other one."
        )
    return checked


def symmetric_csr(
    n_agents: int, i: NDArray[Any], j: NDArray[Any], weights: NDArray[np.float64]
) -> Matrix:
    """The matrix with these weights in both directions; those of loops count once."""
    other = i != j
    # Graph algorithms of scipy < 1.15 read 32-bit indices alone.
    rows = np.concatenate([i, j[other]]).astype(np.int32)
    columns = np.concatenate([j, i[other]]).astype(np.int32)
    entries = np.concatenate([weights, weights[other]])
    matrix = sparse.csr_array((entries, (rows, columns)), shape=(n_agents, n_agents))
    matrix.sort_indices()
    return matrix


def by_agent(values: NDArray[Any], n_agents: int) -> NDArray[np.float64]:
    """Values as a row for each agent, in one memory order: sums have the same bits."""
    if values.shape[:1] != (n_agents,):
        raise ValueError(
            f"Got values of shape {values.shape}, expected ({n_agents}, ...): an entry for each"
            " agent."
        )
    flat = values.reshape(n_agents, math.prod(values.shape[1:]))
    return np.ascontiguousarray(flat, dtype=np.float64)


def fingerprint(kind: str, *arrays: NDArray[Any]) -> str:
    """SHA-256 of a word and arrays, the same on every machine."""
    digest = hashlib.sha256(kind.encode())
    for array in arrays:
        digest.update(array.astype("<f8" if array.dtype.kind == "f" else "<i8").tobytes())
    return digest.hexdigest()


def is_frame(given: Any) -> bool:
    """Whether it has labels of rows and columns, as a pandas DataFrame."""
    return hasattr(given, "index") and hasattr(given, "columns")


def shown(names: Sequence[Any]) -> str:
    """The first few names in plain Python types."""
    plain = [name.item() if isinstance(name, np.generic) else name for name in names]
    more = f" and {len(plain) - _MOST_SHOWN} more" if len(plain) > _MOST_SHOWN else ""
    return f"{plain[:_MOST_SHOWN]}{more}"


def _matrix_of_graph(graph: Any, names: Sequence[Any], name: str) -> Matrix:
    n = len(names)
    if graph.is_directed() or graph.is_multigraph():
        kind = "directed graph" if graph.is_directed() else "multigraph"
        raise ValueError(
            f"Got a {kind} as {name}, expected a networkx.Graph, as networkx.Graph(graph) makes"
            " one."
        )
    position, nodes = {label: i for i, label in enumerate(names)}, set(graph.nodes)
    if nodes != position.keys():
        # Labels that are numbers would be taken for positions, and the other way round.
        if nodes != set(range(n)) or any(isinstance(label, Integral) for label in names):
            missing = [label for label in names if label not in nodes]
            extra = [node for node in graph.nodes if node not in position]
            raise ValueError(
                f"Got a {name} of {len(nodes)} nodes for {n} agents, without agents"
                f" {shown(missing)} and with unknown nodes {shown(extra)}, expected the labels of"
                f" the agents as nodes (or, where labels are no numbers, 0, ..., {n - 1}):"
                f" {EACH_AGENT}."
            )
        position = {i: i for i in range(n)}
    edges = list(graph.edges(data="weight", default=1.0))
    weights = [weight for *_, weight in edges] if name == "similarity" else [1.0] * len(edges)
    wrong = [weight for weight in weights if not isinstance(weight, Real)]
    if wrong:
        raise ValueError(f"Got weight={wrong[0]!r} of an edge, expected a real number.")
    i = np.array([position[a] for a, _, _ in edges], dtype=np.intp)
    j = np.array([position[b] for _, b, _ in edges], dtype=np.intp)
    matrix = symmetric_csr(n, i, j, np.array(weights, dtype=np.float64))
    return matrix_of(matrix, names, name, "")


def _in_order(matrix: Any, names: Sequence[Any], name: str) -> Any:
    rows, columns = list(matrix.index), list(matrix.columns)
    if set(rows) == set(columns) == set(names) and len(rows) == len(columns) == len(names):
        return matrix.loc[names, names].to_numpy()
    if rows == columns == list(range(len(names))):
        return matrix.to_numpy()
    raise ValueError(
        f"Got a {name} with rows {shown(rows)} and columns {shown(columns)}, expected the labels of"
        f" the agents, {shown(names)}, in any order, or no labels."
    )
