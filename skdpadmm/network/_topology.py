"""Communication graphs: connected, with an agent at each node, by name or given."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import dijkstra

from skdpadmm.network._relation import (
    EACH_AGENT,
    Matrix,
    by_agent,
    counted,
    fingerprint,
    relation_of,
    symmetric_csr,
)

if TYPE_CHECKING:
    import networkx as nx

# Keeps the streams apart from those of partitions under the same seed.
_STREAM = 0x6E47
_MOST_DRAWS = 100
_REMEDY = "Add edges"
# Operations with which all coalitions are tried.
_MOST_WORK = 1e9


@dataclass(frozen=True, kw_only=True)
class Topology:
    """A connected graph of agents: undirected, without weights and self loops.

    Two graphs are equal if they have the same agents and edges; names do not count. The complete
    graph stores none of its edges.

    Parameters
    ----------
    n_agents : int
        Number of agents, at least 1.
    pairs : ndarray of intp of shape (n_pairs, 2) or None, default=None
        Positions of linked agents, in any order; None links all pairs. A ValueError if the graph is
        not connected or has self loops.
    name : str, default="custom"
        Name of the graph; no part of equality.

    Attributes
    ----------
    fingerprint : str
        SHA-256 of the number of agents and the sorted edges.

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
        n, edges = self.n_agents, self.pairs
        if edges is not None:
            i, j = np.asarray(edges, dtype=np.intp).T
            links = symmetric_csr(n, i, j, np.ones(len(i)))
            edges = _edges_of(relation_of(links, range(n), "topology", _REMEDY))
            edges = None if len(edges) == math.comb(n, 2) else _read_only(edges)
        object.__setattr__(self, "pairs", edges)
        digest = fingerprint(f"complete {n}") if edges is None else fingerprint(f"graph {n}", edges)
        object.__setattr__(self, "fingerprint", digest)

    @property
    def is_complete(self) -> bool:
        """Whether everybody is a neighbour of everybody."""
        return self.pairs is None

    @cached_property
    def edges(self) -> NDArray[np.intp]:
        """Linked agents i < j, sorted, of shape (n_edges, 2)."""
        if self.pairs is None:
            return _read_only(np.column_stack(np.triu_indices(self.n_agents, 1)))
        return self.pairs

    @property
    def n_edges(self) -> int:
        """Number of edges."""
        return math.comb(self.n_agents, 2) if self.pairs is None else len(self.pairs)

    @cached_property
    def degrees(self) -> NDArray[np.intp]:
        """Number of neighbours of each agent, of shape (n_agents,)."""
        if self.pairs is None:
            return _read_only(np.full(self.n_agents, self.n_agents - 1))
        return _read_only(np.bincount(self.pairs.ravel(), minlength=self.n_agents))

    @cached_property
    def adjacency(self) -> Matrix:
        """Ones where agents are linked, of shape (n_agents, n_agents)."""
        i, j = self.edges.T
        return symmetric_csr(self.n_agents, i, j, np.ones(self.n_edges))

    def neighbor_sum(self, values: NDArray[Any]) -> NDArray[np.float64]:
        """Sums over each agent's neighbours of finite values of shape (n_agents, ...)."""
        flat = by_agent(values, self.n_agents)
        total = flat.sum(axis=0) - flat if self.is_complete else self.adjacency @ flat
        return np.asarray(total, dtype=np.float64).reshape(values.shape)

    def distances_from(self, agent: int) -> NDArray[np.intp]:
        """Number of hops from the agent at a position to each agent, of shape (n_agents,)."""
        if self.is_complete:
            hops = np.ones(self.n_agents, dtype=np.intp)
            hops[agent] = 0
            return hops
        hops = dijkstra(self.adjacency, indices=[agent], unweighted=True)[0]
        return np.asarray(hops, dtype=np.intp)

    def describe(self) -> str:
        """Name and size of the graph, in words."""
        least, most = int(self.degrees.min()), int(self.degrees.max())
        degrees = f"degree {least}" if least == most else f"degrees {least} to {most}"
        return f"{self.name}, {counted(self.n_edges, 'edge')}, {degrees}"


@lru_cache(maxsize=64)
def honest_messages(pairs: Topology, n_dishonest: int, ratio: float) -> float:
    r"""Return the number of messages whose noise hides one where pairs share noise, at least.

    The noise of each message has a part of its own, of variance 1, and a part for each pair, of
    variance `ratio`, which one of the two adds and the other subtracts. A coalition knows the parts
    of its own pairs. So to it the noise of all others has the covariance :math:`I + r L`, with the
    Laplacian L of the pairs among them, and hides the message of agent a like a secure sum of

    .. math:: 1 / [(I + r L)^{-1}]_{aa}

    messages. Returned is the least such number over all coalitions of `n_dishonest` agents and all
    others a, or a lower bound. It is exact for the complete graph and where all coalitions can be
    tried. For other graphs it is the better of two bounds. The first keeps only the pairs of a:
    without the others L is smaller. The second uses the algebraic connectivity, which decreases by
    at most 1 for each agent that is removed [1]_.

    Parameters
    ----------
    pairs : Topology
    n_dishonest : int
        At least 0.
    ratio : float
        In [0, inf).

    Returns
    -------
    float
        In [1, ``pairs.n_agents - n_dishonest``]; 1 means that pairs do not help.

    References
    ----------
    .. [1] M. Fiedler, "Algebraic connectivity of graphs", Czechoslovak Mathematical Journal 23,
       1973.

    Examples
    --------
    >>> import networkx as nx
    >>> import numpy as np
    >>> from skdpadmm.network import Topology, honest_messages, resolve_topology
    >>> round(honest_messages(Topology(n_agents=100), 20, 100.0), 2)
    79.22
    >>> ring = resolve_topology(nx.cycle_graph(10), np.arange(10))
    >>> round(honest_messages(ring, 1, 100.0), 2), round(honest_messages(ring, 2, 100.0), 2)
    (7.75, 1.0)
    """
    n_honest, r = pairs.n_agents - n_dishonest, float(ratio)
    if n_honest <= 1 or r == 0:
        return 1.0
    if pairs.is_complete:
        return (1 + r * n_honest) / (1 + r)
    dense = pairs.adjacency.toarray()
    if math.comb(len(dense), n_dishonest) * n_honest**3 <= _MOST_WORK:
        worst = 0.0  # Of the diagonals of inverses, the largest.
        for coalition in combinations(range(len(dense)), n_dishonest):
            among = np.delete(np.delete(dense, coalition, 0), coalition, 1)
            covariance = np.diag(1 + r * among.sum(axis=0)) - r * among
            worst = max(worst, float(np.linalg.inv(covariance).diagonal().max()))
    else:
        n_neighbors = max(int(pairs.degrees.min()) - n_dishonest, 0)
        worst = 1 / (1 + n_neighbors * r / (1 + r))
        values = np.linalg.eigvalsh(np.diag(pairs.degrees.astype(np.float64)) - dense)
        gap = max(float(values[1]) - n_dishonest - 1e-6, 0.0)
        worst = min(worst, 1 / n_honest + (1 - 1 / n_honest) / (1 + r * gap))
    # Errors of floats are relative to the condition number.
    errors = 2.0**-50 * len(dense) * (1 + 2 * r * int(pairs.degrees.max()))
    return max(1.0, (1 - errors) / worst)


def resolve_topology(topology: Any, labels: NDArray[Any], *, seed: int = 0) -> Topology:
    """Return the graph for a name, a graph or a matrix.

    Parameters
    ----------
    topology : str, Topology, networkx.Graph, or matrix of shape (n_agents, n_agents)
        - A name as in `named_graph`, with its default parameters.
        - A graph whose nodes are the labels of the agents, or where these are no numbers 0, 1, ...
          for the agents in the order of their labels. Weights of edges have no meaning.
        - A matrix in the order of the labels, or a pandas DataFrame that has them: agents are
          linked where entries are not zero. Their size has no meaning: weights are for
          `mixing_matrix`.

        A ValueError where it is no connected undirected graph of these agents without self loops.
    labels : ndarray of shape (n_agents,)
        Names of the agents, sorted and unique.
    seed : int, default=0
        Non-negative; decides random graphs that are given by name.

    Returns
    -------
    Topology

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
    """
    n, names = len(labels), list(labels)
    if isinstance(topology, Topology):
        if topology.n_agents != n:
            raise ValueError(
                f"Got a topology of {topology.n_agents} nodes for {n} agents, expected"
                f" {EACH_AGENT}."
            )
        return topology
    if isinstance(topology, str) and topology == "complete":
        return Topology(n_agents=n, name=topology)
    name = "custom"
    if isinstance(topology, str):
        name, topology, names = topology, named_graph(topology, n, seed=seed), list(range(n))
    links = relation_of(topology, names, "topology", _REMEDY)
    return Topology(n_agents=n, pairs=_edges_of(links), name=name)


def _edges_of(links: Matrix) -> NDArray[np.intp]:
    """Linked agents i < j, sorted."""
    return np.column_stack(sparse.triu(links).nonzero())


def _read_only(array: NDArray[Any]) -> NDArray[np.intp]:
    frozen = np.asarray(array, dtype=np.intp)
    frozen.setflags(write=False)
    return frozen


def named_graph(name: str, n_agents: int, *, seed: int = 0) -> nx.Graph:
    """Return a connected graph by its name.

    For other parameters than these, pass a graph of networkx itself as a topology.

    Parameters
    ----------
    name : str
        - "complete": everybody is a neighbour of everybody.
        - "ring", "path": agents in a circle, or in a row.
        - "star": agent 0 is the neighbour of all others.
        - "grid", "torus": the most square lattice of two axes, without or with links from one end
          to the other. A prime number of agents makes a path or a ring.
        - "hypercube": ``n_agents`` is a power of two.
        - "regular": random, each agent with ``min(4, n_agents - 1)`` neighbours.
        - "erdos-renyi": each pair is linked with probability ``2 log(n_agents) / n_agents``.
        - "watts-strogatz": a ring where each agent is linked to its 4 nearest (2 among 3 or 4
          agents); each link is rewired with probability 0.1.
        - "barabasi-albert": agents come one after another and link to 2 others that have many links
          already.
        - "random-geometric": points in the unit square, linked within the distance
          ``sqrt(2 log(n_agents) / (pi n_agents))``.

        For every name, one agent makes a graph without edges and two agents make one edge.
    n_agents : int
        Number of nodes, at least 1.
    seed : int, default=0
        Non-negative. Random graphs are a function of it and of the number of agents; they are drawn
        again until one is connected.

    Returns
    -------
    networkx.Graph
        With nodes 0, 1, ..., ``n_agents - 1``. A ValueError for an unknown name, a number of agents
        that does not suit it, or where 100 draws gave no connected graph.

    Examples
    --------
    >>> from skdpadmm.network import named_graph
    >>> sorted(named_graph("grid", 6).edges)
    [(0, 1), (0, 3), (1, 2), (1, 4), (2, 5), (3, 4), (4, 5)]
    """
    import networkx as nx

    if name not in TOPOLOGIES:
        raise ValueError(f"Got topology={name!r}, expected one of {list(TOPOLOGIES)}.")
    if n_agents <= 2:
        return nx.path_graph(n_agents)
    for draw in range(_MOST_DRAWS):
        words = np.random.SeedSequence([_STREAM, int(seed), draw]).generate_state(1)
        graph = _GRAPHS[name](nx, n_agents, int(words[0]))
        if len(graph) != n_agents:
            raise ValueError(
                f"Got topology={name!r} for {n_agents} agents, expected a number that such a graph"
                f" can have, such as {len(graph)}."
            )
        if nx.is_connected(graph):
            return nx.convert_node_labels_to_integers(graph, ordering="sorted")
    raise ValueError(
        f"Got {_MOST_DRAWS} draws of {name!r} for {n_agents} agents, none of them connected,"
        " expected a connected graph. Pass a graph of networkx with more links."
    )


def _sides(n: int) -> tuple[int, int]:
    """The most equal two factors of a number."""
    rows = next(r for r in range(math.isqrt(n), 0, -1) if n % r == 0)
    return rows, n // rows


def _regular(nx: Any, n: int, seed: int) -> Any:
    degree = min(4, n - 1)
    if degree <= n // 2:
        return nx.random_regular_graph(degree, n, seed=seed)
    # Dense ones are drawn by the links they lack, because almost no pairing of stubs is simple.
    return nx.complement(nx.random_regular_graph(n - 1 - degree, n, seed=seed))


# Of the module networkx, which is imported where a graph is made, the number of agents and a seed.
_GRAPHS: dict[str, Callable[[Any, int, int], Any]] = {
    "complete": lambda nx, n, _: nx.complete_graph(n),
    "ring": lambda nx, n, _: nx.cycle_graph(n),
    "star": lambda nx, n, _: nx.star_graph(n - 1),
    "path": lambda nx, n, _: nx.path_graph(n),
    "grid": lambda nx, n, _: nx.grid_2d_graph(*_sides(n)),
    "torus": lambda nx, n, _: nx.grid_2d_graph(*_sides(n), periodic=True),
    "hypercube": lambda nx, n, _: nx.hypercube_graph(n.bit_length() - 1),
    "regular": _regular,
    "erdos-renyi": lambda nx, n, seed: nx.fast_gnp_random_graph(n, 2 * math.log(n) / n, seed),
    "watts-strogatz": lambda nx, n, seed: nx.watts_strogatz_graph(n, min(4, n - 1), 0.1, seed),
    "barabasi-albert": lambda nx, n, seed: nx.barabasi_albert_graph(n, 2, seed),
    "random-geometric": lambda nx, n, seed: nx.random_geometric_graph(
        n, math.sqrt(2 * math.log(n) / (math.pi * n)), seed=seed
    ),
}
TOPOLOGIES = tuple(_GRAPHS)
