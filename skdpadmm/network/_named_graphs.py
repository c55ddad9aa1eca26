"""Graphs that have a name: fixed shapes, and random graphs that are connected."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import connected_components
from scipy.spatial import KDTree

if TYPE_CHECKING:
    import networkx as nx

Pairs = NDArray[np.intp]

# Keeps the streams apart from those of partitions under the same seed.
_STREAM = 0x6E47
_MOST_DRAWS = 100


def named_graph(name: str, n_agents: int, *, seed: int = 0, **parameters: Any) -> nx.Graph:
    """Return a connected graph by its name, with knobs.

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

        One agent makes a graph without edges, two agents one edge, whatever the name and the
        values of its parameters.
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
        With nodes 0, 1, ..., ``n_agents - 1``.

    Raises
    ------
    ValueError
        For an unknown name or parameter, a value out of range, or where 100 draws gave no
        connected graph.

    Examples
    --------
    >>> from skdpadmm.network import named_graph
    >>> sorted(named_graph("grid", 6).edges)
    [(0, 1), (0, 3), (1, 2), (1, 4), (2, 5), (3, 4), (4, 5)]
    >>> named_graph("regular", 10, degree=3).number_of_edges()
    15
    """
    import networkx as nx

    pairs = named_pairs(name, n_agents, seed=seed, **parameters)
    graph = nx.empty_graph(n_agents)
    graph.add_edges_from(pairs.tolist())
    return graph


def named_pairs(name: str, n_agents: int, *, seed: int = 0, **parameters: Any) -> Pairs:
    """Return linked agents, of shape (n_pairs, 2), each pair in any order and at least once."""
    require_name(name)
    n = _require_int("n_agents", n_agents, "at least 1", lambda n: n >= 1)
    _require_int("seed", seed, "at least 0", lambda s: s >= 0)
    build = _FIXED.get(name) or _RANDOM[name]
    known = [
        p.name
        for p in inspect.signature(build).parameters.values()
        if p.kind is inspect.Parameter.KEYWORD_ONLY
    ]
    for parameter in parameters:
        if parameter not in known:
            raise ValueError(
                f"Got the parameter {parameter!r} for the graph {name!r}, expected"
                f" {f'one of {known}' if known else 'none'}."
            )
    if n <= 2:
        return _complete(n)
    if name in _FIXED:
        return _FIXED[name](n, **parameters)
    for draw in range(_MOST_DRAWS):
        words = np.random.SeedSequence([_STREAM, int(seed), draw]).generate_state(1)
        pairs = _RANDOM[name](n, int(words[0]), **parameters)
        if n_components(n, pairs) == 1:
            return pairs
    knobs = ", ".join(f"{key}={value!r}" for key, value in parameters.items()) or "its defaults"
    raise ValueError(
        f"Got {_MOST_DRAWS} draws of {name!r} for {n} agents with {knobs}, none of them connected,"
        f" expected a connected graph. Make links more likely: the parameters are {known}."
    )


def require_name(name: str) -> None:
    """Raise unless it is the name of a graph."""
    if name not in TOPOLOGIES:
        raise ValueError(f"Got topology={name!r}, expected one of {list(TOPOLOGIES)}.")


def component_labels(n_agents: int, pairs: Pairs) -> NDArray[np.intp]:
    """For each agent the number of its connected component, from 0."""
    links = sparse.coo_array(
        (np.ones(len(pairs)), (pairs[:, 0], pairs[:, 1])), shape=(n_agents, n_agents)
    )
    return np.asarray(connected_components(links, directed=False)[1], dtype=np.intp)


def n_components(n_agents: int, pairs: Pairs) -> int:
    """Number of connected components."""
    return int(component_labels(n_agents, pairs).max()) + 1


def _complete(n: int) -> Pairs:
    return np.column_stack(np.triu_indices(n, 1)).astype(np.intp, copy=False)


def _lattice(shape: tuple[int, ...], *, closed: bool) -> Pairs:
    """Neighbours along each axis; a closed axis joins its last node to its first one."""
    nodes = np.arange(math.prod(shape), dtype=np.intp).reshape(shape)
    pairs = []
    for axis in range(len(shape)):
        following = np.roll(nodes, -1, axis)
        open_ends = np.arange(shape[axis] if closed and shape[axis] > 1 else shape[axis] - 1)
        pairs.append(
            np.column_stack(
                [nodes.take(open_ends, axis).ravel(), following.take(open_ends, axis).ravel()]
            )
        )
    return np.concatenate(pairs)


def _ring(n: int) -> Pairs:
    return _lattice((n,), closed=True)


def _path(n: int) -> Pairs:
    return _lattice((n,), closed=False)


def _star(n: int) -> Pairs:
    return np.column_stack([np.zeros(n - 1, dtype=np.intp), np.arange(1, n, dtype=np.intp)])


def _grid(n: int, *, shape: tuple[int, ...] | None = None) -> Pairs:
    return _lattice(_lattice_shape(n, shape), closed=False)


def _torus(n: int, *, shape: tuple[int, ...] | None = None) -> Pairs:
    return _lattice(_lattice_shape(n, shape), closed=True)


def _hypercube(n: int) -> Pairs:
    dimension = n.bit_length() - 1
    if n != 2**dimension:
        raise ValueError(
            f"Got {n} agents for a hypercube, expected a power of two, such as {2**dimension} or"
            f" {2 ** (dimension + 1)}."
        )
    return _lattice((2,) * dimension, closed=False)


def _lattice_shape(n: int, shape: Any) -> tuple[int, ...]:
    if shape is None:
        rows = next(r for r in range(math.isqrt(n), 0, -1) if n % r == 0)
        return rows, n // rows
    sides = tuple(shape) if isinstance(shape, tuple | list) else ()
    if not sides or not all(_is_int(s) and s >= 1 for s in sides) or math.prod(sides) != n:
        raise ValueError(
            f"Got shape={shape!r} for {n} agents, expected a tuple of positive ints with product"
            f" {n}."
        )
    return tuple(map(int, sides))


def _regular(n: int, seed: int, *, degree: int | None = None) -> Pairs:
    import networkx as nx

    d = min(4, n - 1) if degree is None else degree
    d = _require_int(
        "degree",
        d,
        f"in [2, {n - 1}] with an even product of n_agents={n} and degree",
        lambda d: 2 <= d < n and n * d % 2 == 0,
    )
    if d <= n // 2:
        return _pairs_of(nx.random_regular_graph(d, n, seed=seed))
    # Dense ones are drawn by the links they lack, because almost no pairing of stubs is simple.
    return _pairs_of(nx.complement(nx.random_regular_graph(n - 1 - d, n, seed=seed)))


def _erdos_renyi(n: int, seed: int, *, probability: float | None = None) -> Pairs:
    import networkx as nx

    p = min(1.0, 2 * math.log(n) / n) if probability is None else probability
    return _pairs_of(nx.fast_gnp_random_graph(n, _require_share("probability", p), seed=seed))


def _watts_strogatz(
    n: int, seed: int, *, degree: int | None = None, rewiring: float = 0.1
) -> Pairs:
    import networkx as nx

    d = min(4, (n - 1) // 2 * 2) if degree is None else degree
    d = _require_int("degree", d, f"even and in [2, {n - 1}]", lambda d: 2 <= d < n and d % 2 == 0)
    moved = _require_share("rewiring", rewiring)
    return _pairs_of(nx.watts_strogatz_graph(n, d, moved, seed=seed))


def _barabasi_albert(n: int, seed: int, *, links: int | None = None) -> Pairs:
    import networkx as nx

    m = min(2, n - 1) if links is None else links
    m = _require_int("links", m, f"in [1, {n - 1}]", lambda m: 1 <= m < n)
    return _pairs_of(nx.barabasi_albert_graph(n, m, seed=seed))


def _random_geometric(n: int, seed: int, *, radius: float | None = None) -> Pairs:
    r = math.sqrt(2 * math.log(n) / (math.pi * n)) if radius is None else radius
    if not _is_real(r) or not 0 < r < math.inf:
        raise ValueError(f"Got radius={r!r}, expected a float in (0, inf).")
    points = np.random.default_rng(seed).random((n, 2))
    return KDTree(points).query_pairs(r, output_type="ndarray").astype(np.intp, copy=False)


_FIXED: dict[str, Callable[..., Pairs]] = {
    "complete": _complete,
    "ring": _ring,
    "star": _star,
    "path": _path,
    "grid": _grid,
    "torus": _torus,
    "hypercube": _hypercube,
}
_RANDOM: dict[str, Callable[..., Pairs]] = {
    "regular": _regular,
    "erdos-renyi": _erdos_renyi,
    "watts-strogatz": _watts_strogatz,
    "barabasi-albert": _barabasi_albert,
    "random-geometric": _random_geometric,
}
TOPOLOGIES = (*_FIXED, *_RANDOM)


def _pairs_of(graph: nx.Graph) -> Pairs:
    return np.array(list(graph.edges), dtype=np.intp).reshape(-1, 2)


def _is_int(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _is_real(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _require_int(name: str, value: Any, expected: str, holds: Callable[[int], bool]) -> int:
    if not _is_int(value) or not holds(int(value)):
        raise ValueError(f"Got {name}={value!r}, expected an int {expected}.")
    return int(value)


def _require_share(name: str, value: Any) -> float:
    if not _is_real(value) or not 0 <= value <= 1:
        raise ValueError(f"Got {name}={value!r}, expected a float in [0, 1].")
    return float(value)
