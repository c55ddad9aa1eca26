"""Relations of agents (links, mixing weights or similarities), read and checked in one place."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from numbers import Integral
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
    "one node for each agent. Agents come from `agents` (in a plan: `agent_sizes`) or"
    " `agent_column`; without them there are `n_agents` artificial ones, 0, 1 and so on"
)


def relation_of(given: Any, names: Sequence[Any], name: str, remedy: str | None) -> Matrix:
    """The matrix of a connected graph, in the order of the agents and exactly symmetric.

    `name` is the kind of relation: a "topology" (links), a "mixing" (weights, also of an agent for
    itself) or a "similarity" (weights of links). Without a remedy the graph is that of one round:
    it need not be connected, and where networkx calls it directed it need not be symmetric.
    """
    n = len(names)
    is_directed = remedy is None and is_digraph(given)
    if hasattr(given, "is_multigraph"):
        import networkx as nx

        if given.is_multigraph():
            raise ValueError(
                f"Got a {name} with parallel edges, a {type(given).__name__}, expected one edge"
                " between two agents: networkx.Graph(graph)."
            )
        order = in_order(given.nodes, names, name)
        weight = "weight" if name == "similarity" else None
        given = nx.to_scipy_sparse_array(given, order, dtype=np.float64, weight=weight)
    elif is_frame(given):
        rows, columns = (in_order(axis, names, name) for axis in (given.index, given.columns))
        given = given.loc[rows, columns].to_numpy()
    array: Any = given if sparse.issparse(given) else np.asarray(given)
    if array.shape != (n, n) or array.dtype.kind not in "biuf":
        raise ValueError(
            f"Got a {name} of shape {array.shape} and dtype {array.dtype}, expected a name, a"
            f" networkx.Graph, or real numbers of shape ({n}, {n}): {EACH_AGENT}."
        )
    matrix = sparse.csr_array(array, dtype=np.float64, copy=True)
    matrix.sum_duplicates()
    if not (np.abs(matrix.data) <= _LARGEST).all():
        raise ValueError(
            f"Got a {name} with an entry that is NaN or infinite or beyond {_LARGEST:g}, expected"
            " finite ones. Divide all of them by the largest."
        )
    matrix.eliminate_zeros()
    require_none(-matrix, names, f"{name} with entries below zero", "none")
    if name == "topology":
        matrix.data[:] = 1.0
    if name != "mixing":
        loops = sparse.csr_array(sparse.diags_array(matrix.diagonal()))
        require_none(loops, names, f"{name} with self loops", "zeros on the diagonal")
    tolerance = _TOLERANCE * matrix.data.max(initial=0.0)
    uneven = sparse.csr_array(abs(matrix - matrix.T))
    symmetric = "a symmetric matrix; (S + S.T) / 2 is one"
    if not is_directed:
        require_none(uneven, names, f"{name} that differs in both directions", symmetric, tolerance)
    if remedy is None:
        return matrix
    upper = sparse.triu(matrix).tocoo()
    i, j = upper.coords
    checked = symmetric_csr(n, i, j, upper.data)
    # Eigenvalues alone would not do, because Lanczos iterations can miss a multiple one.
    components = connected_components(checked, directed=False)[1]
    sizes = np.bincount(components)
    if len(sizes) > 1:
        apart = np.flatnonzero(components == sizes.argmin())
        raise ValueError(
            f"Got a {name} with {len(sizes)} components, agents apart from all others:"
            f" {shown([names[i] for i in apart.tolist()])}, expected a connected graph. {remedy}"
            " until every agent can reach every other one."
        )
    return checked


def require_none(
    matrix: Matrix, names: Sequence[Any], problem: str, expected: str, tolerance: float = 0.0
) -> None:
    """Refuse entries above a tolerance, and name the agents of the largest one."""
    entries = matrix.tocoo()
    if entries.data.max(initial=0.0) > tolerance:
        largest = int(entries.data.argmax())
        agents = shown([names[axis[largest]] for axis in entries.coords])
        raise ValueError(f"Got a {problem}, at agents {agents}, expected {expected}.")


def in_order(nodes: Any, names: Sequence[Any], name: str) -> list[Any]:
    """Nodes in the order of the agents, by their labels; 0, 1, ... may stand for other labels."""
    given, order = set(nodes), list(names)
    # Labels that are numbers would be taken for positions, and the other way round.
    if given == set(range(len(order))) and not any(isinstance(n, Integral) for n in order):
        return list(range(len(order)))
    missing = [label for label in order if label not in given]
    unknown = [node for node in nodes if node not in set(order)]
    if missing or unknown:
        raise ValueError(
            f"Got a {name} of {len(given)} nodes for {len(order)} agents: no node for agents"
            f" {shown(missing)}, no agent for nodes {shown(unknown)}. Expected {EACH_AGENT}. Nodes"
            " have the labels of the agents, or, where those are no numbers, 0, 1 and so on."
        )
    return order


def symmetric_csr(
    n_agents: int, i: NDArray[Any], j: NDArray[Any], weights: NDArray[np.float64]
) -> Matrix:
    """The matrix with these weights in both directions; those of loops count once."""
    linked = i != j
    # Graph algorithms of scipy < 1.15 read 32-bit indices alone.
    rows = np.concatenate([i, j[linked]]).astype(np.int32)
    columns = np.concatenate([j, i[linked]]).astype(np.int32)
    entries = np.concatenate([weights, weights[linked]])
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


def is_digraph(given: Any) -> bool:
    """Whether it is a directed graph of networkx."""
    return hasattr(given, "is_multigraph") and bool(given.is_directed())


def span(least: str, most: str) -> str:
    """A range in words, or the value at both of its ends."""
    return least if least == most else f"{least} to {most}"


def counted(count: int, noun: str) -> str:
    """A number of things in words."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def shown(names: Sequence[Any]) -> str:
    """The first few names in plain Python types."""
    plain = [name.item() if isinstance(name, np.generic) else name for name in names]
    more = f" and {len(plain) - _MOST_SHOWN} more" if len(plain) > _MOST_SHOWN else ""
    return f"{plain[:_MOST_SHOWN]}{more}"
