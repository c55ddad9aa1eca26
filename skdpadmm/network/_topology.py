"""Who talks to whom: a connected graph with an agent at each node, by name or given."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import dijkstra
from scipy.spatial import KDTree

from skdpadmm.network._relation import (
    EACH_AGENT,
    Matrix,
    by_agent,
    checked_relation,
    fingerprint,
    matrix_of,
    shown,
    symmetric_csr,
)

if TYPE_CHECKING:
    import networkx as nx

# Keeps the streams apart from those of partitions under the same seed.
_STREAM = 0x6E47
_MOST_DRAWS = 100
_REMEDY = "Add edges"


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
        Positions of agents that are linked, in any order; None links everybody to everybody. A
        ValueError if the graph is not connected or has self loops.
    name : str, default="custom"
        What the graph is called; no part of equality.

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
        n = self.n_agents
        if n < 1:
            raise ValueError(f"Got n_agents={n}, expected an int of at least 1.")
        edges = None if self.pairs is None else _sorted_edges(n, np.asarray(self.pairs, np.intp))
        if edges is not None and len(edges) == math.comb(n, 2):
            edges = None
        if edges is not None:
            edges.setflags(write=False)
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
        degrees = np.full(self.n_agents, self.n_agents - 1, dtype=np.intp)
        if self.pairs is not None:
            degrees = np.bincount(self.pairs.ravel(), minlength=self.n_agents)
        degrees.setflags(write=False)
        return degrees

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
                f"Got a topology of {topology.n_agents} nodes for {n} agents, {shown(names)},"
                f" expected {EACH_AGENT}."
            )
        return topology
    expected = f"one of {list(TOPOLOGIES)}, a networkx.Graph, or a square matrix"
    if isinstance(topology, str):
        if topology == "complete":
            return Topology(n_agents=n, name=topology)
        edges = np.array(named_graph(topology, n, seed=seed).edges, dtype=np.intp).reshape(-1, 2)
        return Topology(n_agents=n, pairs=edges, name=topology)
    links = matrix_of(topology, names, "topology", expected)
    links = checked_relation(links, names, "topology", _REMEDY, is_pattern=True)
    return Topology(n_agents=n, pairs=np.column_stack(sparse.triu(links).nonzero()))


def _sorted_edges(n_agents: int, pairs: NDArray[np.intp]) -> NDArray[np.intp]:
    """Each edge of a connected graph once, with the smaller agent first."""
    if pairs.ndim != 2 or pairs.shape[1] != 2:
        raise ValueError(f"Got pairs of shape {pairs.shape}, expected shape (n_pairs, 2).")
    if pairs.size and not 0 <= pairs.min() <= pairs.max() < n_agents:
        raise ValueError(
            f"Got pairs with agents in [{pairs.min()}, {pairs.max()}], expected agents in"
            f" [0, {n_agents})."
        )
    i, j = pairs.T
    links = symmetric_csr(n_agents, i, j, np.ones(len(pairs)))
    links = checked_relation(links, range(n_agents), "topology", _REMEDY, is_pattern=True)
    return np.column_stack(sparse.triu(links).nonzero()).astype(np.intp, copy=False)


def named_graph(name: str, n_agents: int, *, seed: int = 0, **parameters: Any) -> nx.Graph:
    """Return a connected graph by its name, with parameters.

    Parameters
    ----------
    name : str
        - "complete": everybody is a neighbour of everybody.
        - "ring", "path": agents in a circle, or in a row.
        - "star": agent 0 is the neighbour of all others.
        - "grid", "torus": a lattice, without or with links from one end to the other. ``shape`` is
          a tuple of ints with product ``n_agents``; by default the most square one of two ints,
          so that a prime number of agents makes a path or a ring.
        - "hypercube": ``n_agents`` is a power of two.
        - "regular": random, each agent with ``degree`` neighbours, ``min(4, n_agents - 1)`` by
          default. ``n_agents * degree`` is even.
        - "erdos-renyi": each pair is linked with ``probability``, by default
          ``min(1, 2 log(n_agents) / n_agents)``.
        - "watts-strogatz": a ring where each agent knows its ``degree`` nearest, an even int, by
          default 4 or the largest below ``n_agents``; each link moves with probability
          ``rewiring``, 0.1 by default.
        - "barabasi-albert": agents come one after another and link to ``links`` others that have
          many links already, ``min(2, n_agents - 1)`` by default.
        - "random-geometric": points in the unit square, linked within ``radius``, by default
          ``sqrt(2 log(n_agents) / (pi n_agents))``.

        One agent makes a graph without edges, two agents one edge, whatever the rest.
    n_agents : int
        Number of nodes, at least 1.
    seed : int, default=0
        Non-negative. Random graphs are a function of it and of the other arguments; they are drawn
        again until one is connected.
    **parameters : int, float or tuple of int
        As listed by name.

    Returns
    -------
    networkx.Graph
        With nodes 0, 1, ..., ``n_agents - 1``. A ValueError for an unknown name, parameters that
        make no graph, or where 100 draws gave no connected one.

    Examples
    --------
    >>> from skdpadmm.network import named_graph
    >>> sorted(named_graph("grid", 6).edges)
    [(0, 1), (0, 3), (1, 2), (1, 4), (2, 5), (3, 4), (4, 5)]
    """
    import networkx as nx

    if name not in TOPOLOGIES:
        raise ValueError(f"Got topology={name!r}, expected one of {list(TOPOLOGIES)}.")
    if n_agents < 1 or seed < 0:
        raise ValueError(f"Got n_agents={n_agents!r}, seed={seed!r}, expected at least 1 and 0.")
    if n_agents <= 2:
        return nx.path_graph(n_agents)
    knobs = ", ".join(f"{key}={value!r}" for key, value in parameters.items()) or "its defaults"
    for draw in range(_MOST_DRAWS):
        words = np.random.SeedSequence([_STREAM, int(seed), draw]).generate_state(1)
        drawn = () if name in _FIXED else (int(words[0]),)
        try:
            graph = (_FIXED | _RANDOM)[name](nx, n_agents, *drawn, **parameters)
        except (TypeError, ValueError, nx.NetworkXException) as error:
            raise ValueError(
                f"Got {name!r} for {n_agents} agents with {knobs}, expected parameters that suit"
                f" it: {error}."
            ) from error
        if nx.is_connected(graph):
            return graph
    raise ValueError(
        f"Got {_MOST_DRAWS} draws of {name!r} for {n_agents} agents with {knobs}, none of them"
        " connected, expected a connected graph. Make links more likely by its parameters."
    )


def _lattice(nx: Any, n: int, shape: Any, *, closed: bool) -> Any:
    if shape is None:
        rows = next(r for r in range(math.isqrt(n), 0, -1) if n % r == 0)
        shape = rows, n // rows
    if math.prod(shape) != n or min(shape) < 1:
        raise ValueError(f"got shape={shape!r}, not positive ints with product {n}")
    # The axes of networkx come in the other order.
    lattice = nx.grid_graph(tuple(shape)[::-1], periodic=closed)
    lattice.remove_edges_from(list(nx.selfloop_edges(lattice)))
    return nx.convert_node_labels_to_integers(lattice, ordering="sorted")


def _hypercube(nx: Any, n: int) -> Any:
    dimension = n.bit_length() - 1
    if n != 2**dimension:
        raise ValueError(f"{n} is no power of two, such as {2**dimension}")
    return nx.convert_node_labels_to_integers(nx.hypercube_graph(dimension), ordering="sorted")


def _regular(nx: Any, n: int, seed: int, degree: int | None = None) -> Any:
    d = min(4, n - 1) if degree is None else degree
    if d <= n // 2:
        return nx.random_regular_graph(d, n, seed=seed)
    # Dense ones are drawn by the links they lack, because almost no pairing of stubs is simple.
    return nx.complement(nx.random_regular_graph(n - 1 - d, n, seed=seed))


def _erdos_renyi(nx: Any, n: int, seed: int, probability: float | None = None) -> Any:
    p = min(1.0, 2 * math.log(n) / n) if probability is None else probability
    return nx.fast_gnp_random_graph(n, p, seed=seed)


def _watts_strogatz(
    nx: Any, n: int, seed: int, degree: int | None = None, rewiring: float = 0.1
) -> Any:
    d = min(4, (n - 1) // 2 * 2) if degree is None else degree
    if d % 2:
        raise ValueError(f"got the odd degree={d}")
    return nx.watts_strogatz_graph(n, d, rewiring, seed=seed)


def _random_geometric(nx: Any, n: int, seed: int, radius: float | None = None) -> Any:
    r = math.sqrt(2 * math.log(n) / (math.pi * n)) if radius is None else radius
    points, graph = np.random.default_rng(seed).random((n, 2)), nx.empty_graph(n)
    graph.add_edges_from(KDTree(points).query_pairs(r))
    return graph


# Of the module networkx, which is imported where a graph is made, the number of agents and a seed.
_FIXED: dict[str, Callable[..., Any]] = {
    "complete": lambda nx, n: nx.complete_graph(n),
    "ring": lambda nx, n: nx.cycle_graph(n),
    "star": lambda nx, n: nx.star_graph(n - 1),
    "path": lambda nx, n: nx.path_graph(n),
    "grid": lambda nx, n, shape=None: _lattice(nx, n, shape, closed=False),
    "torus": lambda nx, n, shape=None: _lattice(nx, n, shape, closed=True),
    "hypercube": _hypercube,
}
_RANDOM: dict[str, Callable[..., Any]] = {
    "regular": _regular,
    "erdos-renyi": _erdos_renyi,
    "watts-strogatz": _watts_strogatz,
    "barabasi-albert": lambda nx, n, seed, links=None: nx.barabasi_albert_graph(
        n, min(2, n - 1) if links is None else links, seed=seed
    ),
    "random-geometric": _random_geometric,
}
TOPOLOGIES = (*_FIXED, *_RANDOM)
