"""Who talks to whom: a connected graph with an agent at each node."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import dijkstra

from skdpadmm.network._named_graphs import (
    TOPOLOGIES,
    component_labels,
    named_pairs,
    require_name,
)

_MOST_SHOWN = 5
_EACH = (
    "a node for each agent that holds rows. Agents are those of `agents` (of `agent_sizes` in a"
    " plan) or of `agent_column`; else `partition` makes up `n_agents` of them, 10 by default"
)


@dataclass(frozen=True, kw_only=True)
class Topology:
    """A connected graph of agents: undirected, without weights and self loops.

    Two of them are equal where they have the same agents and edges, whatever they are called. The
    complete graph stores none of its edges.

    Parameters
    ----------
    n_agents : int
        Number of agents, at least 1.
    pairs : ndarray of intp of shape (n_pairs, 2) or None, default=None
        Positions of agents that are linked, in any order; None links everybody to everybody.
    name : str, default="custom"
        What the graph is called; no part of equality.

    Attributes
    ----------
    fingerprint : str
        SHA-256 of the number of agents and the sorted edges.

    Raises
    ------
    ValueError
        If a pair is no pair of different agents, or the graph is not connected.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpadmm.network import Topology
    >>> path = Topology(n_agents=3, pairs=np.array([[2, 1], [0, 1]]))
    >>> path.edges.tolist(), path.degrees.tolist()
    ([[0, 1], [1, 2]], [1, 2, 1])
    >>> path.neighbor_sum(np.array([1.0, 10.0, 100.0])).tolist()
    [10.0, 101.0, 10.0]
    >>> path.distances_from(0).tolist()
    [0, 1, 2]
    """

    n_agents: int
    pairs: NDArray[np.intp] | None = field(default=None, compare=False, repr=False)
    name: str = field(default="custom", compare=False)
    fingerprint: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if self.n_agents < 1:
            raise ValueError(f"Got n_agents={self.n_agents}, expected an int of at least 1.")
        edges = None if self.pairs is None else _sorted_edges(self.n_agents, self.pairs)
        if edges is not None:
            require_connected(edges, range(self.n_agents))
            if len(edges) == math.comb(self.n_agents, 2):
                edges = None
            else:
                edges.setflags(write=False)
        object.__setattr__(self, "pairs", edges)
        object.__setattr__(self, "fingerprint", _fingerprint(self.n_agents, edges))

    @property
    def is_complete(self) -> bool:
        """Whether everybody is a neighbour of everybody."""
        return self.pairs is None

    @cached_property
    def edges(self) -> NDArray[np.intp]:
        """Linked agents i < j, sorted, of shape (n_edges, 2)."""
        if self.pairs is not None:
            return self.pairs
        edges = np.column_stack(np.triu_indices(self.n_agents, 1)).astype(np.intp, copy=False)
        edges.setflags(write=False)
        return edges

    @property
    def n_edges(self) -> int:
        """Number of edges."""
        return math.comb(self.n_agents, 2) if self.pairs is None else len(self.pairs)

    @cached_property
    def degrees(self) -> NDArray[np.intp]:
        """Number of neighbours of each agent, of shape (n_agents,)."""
        degrees = (
            np.full(self.n_agents, self.n_agents - 1, dtype=np.intp)
            if self.pairs is None
            else np.bincount(self.pairs.ravel(), minlength=self.n_agents)
        )
        degrees.setflags(write=False)
        return degrees

    @cached_property
    def adjacency(self) -> sparse.csr_array[np.float64]:
        """Ones where agents are linked, of shape (n_agents, n_agents)."""
        return symmetric_csr(self, np.ones(self.n_edges))

    def neighbor_sum(self, values: NDArray[Any]) -> NDArray[np.float64]:
        """Add up the values of each agent's neighbours.

        Parameters
        ----------
        values : ndarray of shape (n_agents, ...)
            Finite.

        Returns
        -------
        ndarray of the same shape
        """
        flat = by_agent(self, values)
        total = flat.sum(axis=0) - flat if self.is_complete else self.adjacency @ flat
        return np.asarray(total, dtype=np.float64).reshape(values.shape)

    def distances_from(self, agent: int) -> NDArray[np.intp]:
        """Return the number of hops from an agent to each agent.

        Parameters
        ----------
        agent : int
            Its position.

        Returns
        -------
        ndarray of intp of shape (n_agents,)

        Raises
        ------
        IndexError
            If ``agent`` is not in [0, n_agents).
        """
        if not 0 <= agent < self.n_agents:
            raise IndexError(f"Got agent={agent!r}, expected an int in [0, {self.n_agents}).")
        if self.is_complete:
            return (np.arange(self.n_agents) != agent).astype(np.intp)
        hops = dijkstra(self.adjacency, indices=[agent], unweighted=True)[0]
        return np.asarray(hops, dtype=np.intp)

    def describe(self) -> str:
        """Name and size of the graph, in words."""
        least, most = int(self.degrees.min()), int(self.degrees.max())
        degree = f"degree {least}" if least == most else f"degrees {least} to {most}"
        edges = "edge" if self.n_edges == 1 else "edges"
        return f"{self.name}, {self.n_edges} {edges}, {degree}"


def resolve_topology(topology: Any, labels: NDArray[Any], *, seed: int = 0) -> Topology:
    """Return the graph that a user names or gives.

    Parameters
    ----------
    topology : str, Topology, networkx.Graph, or matrix of shape (n_agents, n_agents)
        - A name as in `named_graph`, with its default parameters.
        - A graph whose nodes are the labels of the agents, or where these are no numbers 0, 1, ...
          for the agents in the order of their labels. Weights of edges have no meaning.
        - A matrix in the order of the labels, or a pandas DataFrame that has them: agents are
          linked where entries are not zero. Their size has no meaning: weights are for
          `mixing_matrix`.
    labels : ndarray of shape (n_agents,)
        Names of the agents, sorted and unique.
    seed : int, default=0
        Non-negative; decides random graphs that are given by name.

    Returns
    -------
    Topology

    Raises
    ------
    ValueError
        Where it is no connected undirected graph of these agents without self loops.

    Examples
    --------
    >>> import networkx as nx
    >>> import numpy as np
    >>> from skdpadmm.network import resolve_topology
    >>> labels = np.array(["ann", "bob", "cas"])
    >>> star = resolve_topology("star", labels)
    >>> star.describe()
    'star, 2 edges, degrees 1 to 2'
    >>> resolve_topology(nx.Graph([("ann", "cas"), ("bob", "ann")]), labels) == star
    True
    >>> resolve_topology([[0, 1, 1], [1, 0, 0], [1, 0, 0]], labels) == star
    True
    """
    n, names = len(labels), list(labels)
    if isinstance(topology, Topology):
        if topology.n_agents != n:
            raise ValueError(
                f"Got a topology of {topology.n_agents} nodes for {n} agents, {_shown(names)},"
                f" expected {_EACH}."
            )
        return topology
    if isinstance(topology, str):
        require_name(topology)
        pairs = None if topology == "complete" else named_pairs(topology, n, seed=seed)
        return Topology(n_agents=n, pairs=pairs, name=topology)
    pairs = (
        _pairs_of_graph(topology, names)
        if hasattr(topology, "is_multigraph")
        else _pairs_of_matrix(topology, names)
    )
    require_connected(pairs, names)
    return Topology(n_agents=n, pairs=pairs)


def require_connected(pairs: NDArray[np.intp], names: Sequence[Any]) -> None:
    """Raise where an agent has no neighbour, or agents cannot reach each other."""
    components = component_labels(len(names), pairs)
    n_components = int(components.max()) + 1
    if n_components == 1:
        return
    alone = np.flatnonzero(np.bincount(pairs.ravel(), minlength=len(names)) == 0)
    without = f", agents without a neighbour: {_shown([names[i] for i in alone.tolist()])}"
    raise ValueError(
        f"Got a topology with {n_components} components{without if len(alone) else ''}, expected a"
        " connected graph. Add edges until every agent can reach every other one."
    )


def symmetric_csr(
    topology: Topology, weights: NDArray[np.float64], diagonal: NDArray[np.float64] | None = None
) -> sparse.csr_array[np.float64]:
    """Return the symmetric matrix of the weights of `edges` and, where given, of a diagonal."""
    n, (i, j) = topology.n_agents, topology.edges.T
    own = np.arange(n if diagonal is not None else 0)
    entries = np.concatenate([weights, weights, diagonal if diagonal is not None else []])
    # Graph algorithms of scipy < 1.15 read 32-bit indices alone.
    rows = np.concatenate([i, j, own]).astype(np.int32)
    columns = np.concatenate([j, i, own]).astype(np.int32)
    matrix = sparse.csr_array((entries, (rows, columns)), shape=(n, n))
    matrix.sort_indices()
    return matrix


def by_agent(topology: Topology, values: NDArray[Any]) -> NDArray[np.float64]:
    """Return values as a row for each agent, in one memory order: sums have the same bits."""
    if values.shape[:1] != (topology.n_agents,):
        raise ValueError(
            f"Got values of shape {values.shape}, expected ({topology.n_agents}, ...): an entry for"
            " each agent."
        )
    flat = values.reshape(topology.n_agents, math.prod(values.shape[1:]))
    return np.ascontiguousarray(flat, dtype=np.float64)


def _sorted_edges(n_agents: int, pairs: NDArray[np.intp]) -> NDArray[np.intp]:
    """Each edge once, with the smaller agent first."""
    pairs = np.asarray(pairs, dtype=np.intp)
    if pairs.ndim != 2 or pairs.shape[1] != 2:
        raise ValueError(f"Got pairs of shape {pairs.shape}, expected shape (n_pairs, 2).")
    if pairs.size and not 0 <= pairs.min() <= pairs.max() < n_agents:
        raise ValueError(
            f"Got pairs with agents in [{pairs.min()}, {pairs.max()}], expected agents in"
            f" [0, {n_agents})."
        )
    _require_no_loops(pairs, range(n_agents))
    # One int for each edge, because sorting ints is faster than sorting rows.
    codes = np.unique(pairs.min(axis=1) * n_agents + pairs.max(axis=1))
    return np.column_stack(np.divmod(codes, n_agents))


def _fingerprint(n_agents: int, edges: NDArray[np.intp] | None) -> str:
    digest = hashlib.sha256(f"{'graph' if edges is not None else 'complete'} {n_agents}".encode())
    if edges is not None:
        digest.update(np.ascontiguousarray(edges, dtype="<i8").tobytes())
    return digest.hexdigest()


def _pairs_of_graph(graph: Any, names: list[Any]) -> NDArray[np.intp]:
    for is_kind, kind, remedy in [
        (graph.is_directed(), "a directed graph", "graph.to_undirected() forgets directions"),
        (graph.is_multigraph(), "a multigraph", "networkx.Graph(graph) merges parallel edges"),
    ]:
        if is_kind:
            raise ValueError(f"Got {kind} as topology, expected a networkx.Graph. {remedy}.")
    position = {name: i for i, name in enumerate(names)}
    nodes = set(graph.nodes)
    if len(nodes) != len(names):
        raise ValueError(
            f"Got a topology of {len(nodes)} nodes for {len(names)} agents, {_shown(names)},"
            f" expected {_EACH}."
        )
    if nodes != position.keys():
        # Labels that are numbers would be taken for positions, and the other way round.
        if nodes != set(range(len(names))) or any(isinstance(n, int | np.integer) for n in names):
            missing = [name for name in names if name not in nodes]
            extra = [node for node in graph.nodes if node not in position]
            raise ValueError(
                f"Got a topology without agents {_shown(missing)} and with unknown nodes"
                f" {_shown(extra)}, expected the labels of the agents as nodes (or, where labels"
                f" are no numbers, 0, ..., {len(names) - 1} for agents in the order of labels)."
            )
        position = {i: i for i in range(len(names))}
    pairs = np.array([(position[a], position[b]) for a, b in graph.edges], dtype=np.intp)
    pairs = pairs.reshape(-1, 2)
    _require_no_loops(pairs, names)
    return pairs


def _pairs_of_matrix(matrix: Any, names: list[Any]) -> NDArray[np.intp]:
    n = len(names)
    links = square_csr(_in_order(matrix, names), n, name="topology")
    if links.nnz and links.data.min() < 0:
        raise ValueError(
            "Got a topology with negative entries, expected an adjacency matrix: agents are linked"
            " where it is not zero, and the size of entries has no meaning."
        )
    links.eliminate_zeros()
    links.data[:] = 1.0
    one_way = links - links.T
    one_way.eliminate_zeros()
    if one_way.nnz:
        i, j = (int(at[0]) for at in one_way.nonzero())
        raise ValueError(
            f"Got a topology that links agents {_shown([names[i], names[j]])} in one direction"
            " only, expected a symmetric pattern of non-zero entries."
        )
    rows, columns = sparse.triu(links).nonzero()
    pairs = np.column_stack([rows, columns]).astype(np.intp, copy=False)
    _require_no_loops(pairs, names)
    return pairs


def _in_order(matrix: Any, names: list[Any]) -> Any:
    """A matrix with labels, such as a pandas DataFrame, in the order of the agents."""
    if not (hasattr(matrix, "index") and hasattr(matrix, "columns")):
        return matrix
    rows, columns = list(matrix.index), list(matrix.columns)
    if set(rows) == set(columns) == set(names) and len(rows) == len(columns) == len(names):
        return matrix.loc[names, names].to_numpy()
    if rows == columns == list(range(len(names))):
        return matrix.to_numpy()
    raise ValueError(
        f"Got a topology with rows {_shown(rows)} and columns {_shown(columns)}, expected the"
        f" labels of the agents, {_shown(names)}, in any order, or no labels."
    )


def square_csr(matrix: Any, n_agents: int, *, name: str) -> sparse.csr_array[np.float64]:
    """Return a copy of a finite real matrix of shape (n_agents, n_agents)."""
    given = matrix
    if not sparse.issparse(given):
        try:
            matrix = np.asarray(given)
        except ValueError as error:
            raise ValueError(
                f"Got {name} that is no matrix ({error}), expected {_EXPECTED[name]}."
            ) from error
        if matrix.ndim != 2:
            raise ValueError(f"Got {name}={given!r}, expected {_EXPECTED[name]}.")
    if matrix.dtype.kind not in "biuf":
        raise ValueError(f"Got {name} of dtype {matrix.dtype}, expected a matrix of real numbers.")
    if matrix.shape != (n_agents, n_agents):
        raise ValueError(
            f"Got {name} of shape {matrix.shape}, expected shape ({n_agents}, {n_agents}): a row"
            f" and a column for each agent; {_EACH}."
        )
    square = sparse.csr_array(matrix, dtype=np.float64, copy=True)
    square.sum_duplicates()
    if not np.isfinite(square.data).all():
        raise ValueError(f"Got {name} with an entry that is NaN or infinite, expected finite ones.")
    return square


_EXPECTED = {
    "topology": f"one of {list(TOPOLOGIES)}, a networkx.Graph, or a square matrix",
    "mixing": "'metropolis', 'max_degree', 'laplacian', or a square matrix",
}


def _require_no_loops(pairs: NDArray[np.intp], names: Sequence[Any]) -> None:
    loops = np.unique(pairs[pairs[:, 0] == pairs[:, 1], 0])
    if len(loops):
        raise ValueError(
            f"Got a topology with self loops at {_shown([names[i] for i in loops.tolist()])},"
            " expected edges between different agents. Remove them."
        )


def _shown(names: Sequence[Any]) -> str:
    """The first few names in plain Python types."""
    plain = [name.item() if isinstance(name, np.generic) else name for name in names]
    more = f" and {len(plain) - _MOST_SHOWN} more" if len(plain) > _MOST_SHOWN else ""
    return f"{plain[:_MOST_SHOWN]}{more}"
