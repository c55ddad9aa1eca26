"""How much alike agents are: public weights along which personalised models are averaged."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from numbers import Integral, Real
from operator import itemgetter
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.spatial import KDTree

from skdpadmm.network._named_graphs import component_labels

SIMILARITIES = ("uniform", "knn", "gaussian")

# As a string, because scipy < 1.15 has no brackets for its arrays.
_Weights: TypeAlias = "sparse.csr_array[np.float64]"
_TOLERANCE = 1e-9
_NEAREST = 10
_THRESHOLD = 1e-3
_LARGEST = 1e100
_MOST_SHOWN = 5
_MOST_UNIFORM = 2000
_MOST_PAIRS = 10_000_000
_PAIRS_AT_ONCE = 100_000
_EXPECTED = (
    f"one of {list(SIMILARITIES)}, a networkx.Graph with weights, a square matrix, or a Similarity"
)


@dataclass(frozen=True, kw_only=True)
class Similarity:
    """Symmetric weights between agents: who is like whom, on a connected graph.

    Two of them are equal where they have the same agents and weights, whatever they are called.
    Weights are public: a guarantee does not cover what they say about rows. To estimate them from
    private rows needs a budget of its own. Only their ratios within a row matter for means.

    Parameters
    ----------
    n_agents : int
        Number of agents, at least 1. One agent has no neighbours.
    matrix : array or sparse matrix of shape (n_agents, n_agents) or None, default=None
        Symmetric (up to 1e-9 of the largest weight), not negative, zero on the diagonal. It is
        copied. None gives each pair the weight one, and nothing is stored; a matrix with these
        weights becomes None.
    name : str, default="custom"
        What the weights are called; no part of equality.

    Attributes
    ----------
    fingerprint : str
        SHA-256 of the number of agents, the sorted edges and their weights.

    Raises
    ------
    ValueError
        If the matrix is none of this, an agent has no neighbour among two or more agents, or not
        every agent can reach every other one.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpadmm.network import Similarity
    >>> path = Similarity(n_agents=3, matrix=np.array([[0, 1, 0], [1, 0, 3], [0, 3, 0]]))
    >>> path.degrees.tolist(), path.n_neighbors.tolist()
    ([1.0, 4.0, 3.0], [1, 2, 1])
    >>> path.neighbor_mean(np.array([2.0, 10.0, 6.0])).tolist()
    [10.0, 5.0, 10.0]
    >>> [wave.tolist() for wave in path.waves([0, 2, 1, 0])]
    [[0, 2], [1], [0]]
    """

    n_agents: int
    matrix: _Weights | None = field(default=None, compare=False, repr=False)
    name: str = field(default="custom", compare=False)
    fingerprint: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        n = self.n_agents
        if n < 1:
            raise ValueError(f"Got n_agents={n}, expected an int of at least 1.")
        weights = None if self.matrix is None else _checked(self.matrix, range(n))
        if weights is not None and weights.nnz == n * (n - 1) and bool((weights.data == 1).all()):
            weights = None
        object.__setattr__(self, "matrix", weights)
        object.__setattr__(self, "fingerprint", _fingerprint(n, weights))

    @property
    def is_uniform(self) -> bool:
        """Whether each pair of agents has the weight one."""
        return self.matrix is None

    @property
    def weights(self) -> _Weights:
        """All weights, of shape (n_agents, n_agents), in arrays that are read-only.

        Uniform weights of more than 2000 agents raise a ValueError: they would fill the memory.
        """
        matrix = self._uniform if self.matrix is None else self.matrix
        return sparse.csr_array((matrix.data, matrix.indices, matrix.indptr), shape=matrix.shape)

    @cached_property
    def degrees(self) -> NDArray[np.float64]:
        """Sum of the weights of each agent, of shape (n_agents,)."""
        degrees = (
            np.full(self.n_agents, self.n_agents - 1.0)
            if self.matrix is None
            else np.asarray(self.matrix.sum(axis=1), dtype=np.float64).ravel()
        )
        degrees.setflags(write=False)
        return degrees

    @cached_property
    def n_neighbors(self) -> NDArray[np.intp]:
        """Number of agents with a positive weight to each agent, of shape (n_agents,)."""
        counts = (
            np.full(self.n_agents, self.n_agents - 1, dtype=np.intp)
            if self.matrix is None
            else np.diff(self.matrix.indptr).astype(np.intp)
        )
        counts.setflags(write=False)
        return counts

    @property
    def n_edges(self) -> int:
        """Number of pairs with a positive weight."""
        return math.comb(self.n_agents, 2) if self.matrix is None else self.matrix.nnz // 2

    def neighbor_mean(self, values: NDArray[Any], agents: Any = None) -> NDArray[np.float64]:
        """Average the values of each agent's neighbours, by weight.

        The mean of an agent has the same bits whoever else is asked for.

        Parameters
        ----------
        values : ndarray of shape (n_agents, ...)
            Finite.
        agents : array-like of int of shape (n_asked,) or None, default=None
            Positions of agents whose mean is wanted; None asks for everybody's.

        Returns
        -------
        ndarray of shape (n_asked, ...), or (n_agents, ...) for everybody
            Zero for an agent that is alone.
        """
        if values.shape[:1] != (self.n_agents,):
            raise ValueError(
                f"Got values of shape {values.shape}, expected ({self.n_agents}, ...): an entry for"
                " each agent."
            )
        asked = None if agents is None else self._positions(agents, "agents")
        shape = values.shape if asked is None else (len(asked), *values.shape[1:])
        # In one memory order: sums have the same bits.
        flat = np.ascontiguousarray(
            values.reshape(self.n_agents, math.prod(values.shape[1:])), dtype=np.float64
        )
        if self.matrix is None:
            own = flat if asked is None else flat[asked]
            mean = (flat.sum(axis=0) - own) / (self.n_agents - 1) if self.n_agents > 1 else 0 * own
        else:
            mean = (self._shares if asked is None else self._shares[asked]) @ flat
        return np.asarray(mean, dtype=np.float64).reshape(shape)

    def wave_numbers(self, order: Any) -> NDArray[np.intp]:
        """Return the wave that each wake-up belongs to.

        A wake-up comes one wave after the latest earlier wake-up of the same agent or of one of
        its neighbours, and in wave 0 where there is none.

        Parameters
        ----------
        order : array-like of int of shape (n_wakes,)
            Positions of the agents that wake up, one after another.

        Returns
        -------
        ndarray of intp of shape (n_wakes,)
            Waves are numbered from 0 without gaps.

        Raises
        ------
        ValueError
            If ``order`` is no sequence of ints in [0, n_agents).
        """
        agents = self._positions(order, "order")
        if self.matrix is None:
            return np.arange(len(agents), dtype=np.intp)
        # Plain lists, because each wave depends on the one before: there is nothing to vectorise.
        bounds, neighbors = self.matrix.indptr.tolist(), self.matrix.indices
        latest_around = {
            agent: itemgetter(agent, *neighbors[bounds[agent] : bounds[agent + 1]].tolist())
            for agent in np.unique(agents).tolist()
        }
        latest = [-1] * self.n_agents
        numbers = []
        for agent in agents.tolist():
            number = max(latest_around[agent](latest)) + 1
            latest[agent] = number
            numbers.append(number)
        return np.array(numbers, dtype=np.intp)

    def waves(self, order: Any) -> list[NDArray[np.intp]]:
        """Split wake-ups into waves whose agents can act at once.

        Within a wave no agent appears twice and no two are neighbours. Wave after wave gives what
        one wake-up after another gives, for an action that reads an agent and its neighbours and
        changes the agent alone. No fewer waves keep the order of neighbours.

        Parameters
        ----------
        order : array-like of int of shape (n_wakes,)
            Positions of the agents that wake up, one after another.

        Returns
        -------
        list of ndarray of intp
            The agents of each wave, in the order in which they wake up.

        Raises
        ------
        ValueError
            If ``order`` is no sequence of ints in [0, n_agents).
        """
        agents = self._positions(order, "order")
        numbers = self.wave_numbers(agents)
        agents = agents[np.argsort(numbers, kind="stable")]
        ends = np.cumsum(np.bincount(numbers)).tolist()
        return [agents[a:b] for a, b in pairwise([0, *ends])]

    def average_for(self, similarities: Any) -> NDArray[np.float64]:
        """Return the weights with which an agent that was never seen averages the models.

        Parameters
        ----------
        similarities : array-like of shape (n_agents,)
            How much it is like each agent: finite, not negative, not all zero.

        Returns
        -------
        ndarray of shape (n_agents,)
            With a sum of one.

        Raises
        ------
        ValueError
            If ``similarities`` are none of this.

        Examples
        --------
        >>> from skdpadmm.network import Similarity
        >>> Similarity(n_agents=3).average_for([0, 1, 3]).tolist()
        [0.0, 0.25, 0.75]
        """
        row = np.asarray(similarities)
        if row.shape != (self.n_agents,) or row.dtype.kind not in "biuf":
            raise ValueError(
                f"Got similarities of shape {row.shape} and dtype {row.dtype}, expected"
                f" {self.n_agents} real numbers: one for each agent."
            )
        row = row.astype(np.float64)
        wrong = np.flatnonzero(~(np.isfinite(row) & (row >= 0)))
        if len(wrong):
            raise ValueError(
                f"Got similarities that are negative or not finite to agents"
                f" {_shown(wrong.tolist())}, expected finite numbers of at least 0."
            )
        if not row.any():
            raise ValueError(
                "Got similarities that are all zero, expected a positive one. Without any, the mean"
                " of all models is what equal similarities give."
            )
        shares = row / row.max()
        return np.asarray(shares / shares.sum(), dtype=np.float64)

    def describe(self) -> str:
        """Name, size and range of the weights, in words."""
        if self.n_agents == 1:
            return f"{self.name}, one agent without neighbours"
        counts = self.n_neighbors
        data = np.ones(1) if self.matrix is None else self.matrix.data
        edges = "edge" if self.n_edges == 1 else "edges"
        neighbors = "neighbour" if counts.max() == 1 else "neighbours"
        return (
            f"{self.name}, {self.n_edges} {edges},"
            f" {_range(f'{counts.min()}', f'{counts.max()}')} {neighbors} each,"
            f" weights {_range(f'{data.min():.4g}', f'{data.max():.4g}')}"
        )

    @cached_property
    def _shares(self) -> _Weights:
        """Weights with rows that sum to one."""
        weights = self.weights
        # Shares first and not sums first, because sums of tiny weights have no finite inverse.
        shares = weights.data / np.repeat(self.degrees, self.n_neighbors)
        return sparse.csr_array((shares, weights.indices, weights.indptr), shape=weights.shape)

    @cached_property
    def _uniform(self) -> _Weights:
        if self.n_agents > _MOST_UNIFORM:
            raise ValueError(
                f"Got uniform weights of {self.n_agents} agents to write down, expected at most"
                f" {_MOST_UNIFORM} agents. Their means need no matrix: use `neighbor_mean`."
            )
        i, j = np.triu_indices(self.n_agents, 1)
        return _symmetric(self.n_agents, i, j, np.ones(len(i)))

    def _positions(self, agents: Any, name: str) -> NDArray[np.intp]:
        given = np.asarray(agents)
        if given.ndim != 1 or (given.size and given.dtype.kind not in "iu"):
            raise ValueError(
                f"Got {name} of shape {given.shape} and dtype {given.dtype}, expected a sequence of"
                " ints: positions of agents."
            )
        if given.size and not 0 <= given.min() <= given.max() < self.n_agents:
            raise ValueError(
                f"Got {name} with agents in [{given.min()}, {given.max()}], expected agents in"
                f" [0, {self.n_agents})."
            )
        return given.astype(np.intp, copy=False)


def resolve_similarity(similarity: Any, labels: NDArray[Any], features: Any = None) -> Similarity:
    """Return the weights that a user names or gives.

    Parameters
    ----------
    similarity : str, Similarity, networkx.Graph, or matrix of shape (n_agents, n_agents)
        - "uniform": everybody is alike; each pair has the weight one.
        - "knn", "gaussian": as `knn_similarity` and `gaussian_similarity` of ``features``, with
          their default parameters.
        - A graph whose nodes are the labels of the agents, or where these are no numbers 0, 1, ...
          for the agents in the order of their labels. Weights are the attribute "weight" of edges,
          one where it is missing.
        - A matrix in the order of the labels, or a pandas DataFrame that has them.

        One agent has nobody to be like, whatever the name.
    labels : ndarray of shape (n_agents,)
        Names of the agents, sorted and unique.
    features : array-like of shape (n_agents, n_features) or None, default=None
        Public facts about the agents, in the order of the labels, or a pandas DataFrame that has
        them as its index. Only "knn" and "gaussian" look at them. A guarantee does not cover what
        is made from private rows: that needs a budget of its own.

    Returns
    -------
    Similarity

    Raises
    ------
    ValueError
        Where these are no weights as in `Similarity`, or features are missing or not finite.

    Examples
    --------
    >>> import networkx as nx
    >>> import numpy as np
    >>> from skdpadmm.network import resolve_similarity
    >>> labels = np.array(["ann", "bob", "cas"])
    >>> resolve_similarity("uniform", labels).describe()
    'uniform, 3 edges, 2 neighbours each, weights 1'
    >>> graph = nx.Graph([("cas", "ann", {"weight": 0.5}), ("bob", "ann")])
    >>> star = resolve_similarity(graph, labels)
    >>> star.describe()
    'custom, 2 edges, 1 to 2 neighbours each, weights 0.5 to 1'
    >>> resolve_similarity([[0, 1, 0.5], [1, 0, 0], [0.5, 0, 0]], labels) == star
    True
    """
    n, names = len(labels), list(labels)
    if isinstance(similarity, Similarity):
        if similarity.n_agents != n:
            raise ValueError(
                f"Got a similarity of {similarity.n_agents} agents for {n} agents, {_shown(names)},"
                " expected weights for each agent that holds rows."
            )
        return similarity
    if isinstance(similarity, str):
        if similarity not in SIMILARITIES:
            raise ValueError(f"Got similarity={similarity!r}, expected {_EXPECTED}.")
        if similarity == "uniform" or n == 1:
            return Similarity(n_agents=n, name=similarity)
        if features is None:
            raise ValueError(
                f"Got similarity={similarity!r} without features of the agents, expected public"
                f" features of shape ({n}, n_features). Give them, or take 'uniform'."
            )
        points = _features_of(features, names)
        weights = (
            _knn_weights(points, _NEAREST)
            if similarity == "knn"
            else _gaussian_weights(points, _usual_distance(points), _THRESHOLD)
        )
        return Similarity(n_agents=n, matrix=_checked(weights, names), name=similarity)
    weights = (
        _weights_of_graph(similarity, names)
        if hasattr(similarity, "is_multigraph")
        else _in_order(similarity, names)
    )
    return Similarity(n_agents=n, matrix=_checked(weights, names))


def knn_similarity(features: Any, n_neighbors: int = _NEAREST) -> Similarity:
    """Return weights between agents with features that are near to each other.

    The weight of a pair is 1 where each is among the nearest of the other, and 0.5 where one is.

    Parameters
    ----------
    features : array-like of shape (n_agents, n_features)
        Public facts about the agents, on scales that can be compared: distances are Euclidean. A
        guarantee does not cover what is made from private rows: to estimate similarity from them
        needs a budget of its own.
    n_neighbors : int, default=10
        How many are the nearest, at least 1. Everybody, where there are not as many others.

    Returns
    -------
    Similarity

    Raises
    ------
    ValueError
        For parameters out of range, or where the graph is not connected.

    Examples
    --------
    >>> from skdpadmm.network import knn_similarity
    >>> knn_similarity([[0.0], [1.0], [3.0]], n_neighbors=1).weights.toarray().tolist()
    [[0.0, 1.0, 0.0], [1.0, 0.0, 0.5], [0.0, 0.5, 0.0]]
    """
    if not isinstance(n_neighbors, Integral) or isinstance(n_neighbors, bool) or n_neighbors < 1:
        raise ValueError(f"Got n_neighbors={n_neighbors!r}, expected an int of at least 1.")
    points = _features_of(features)
    weights = _knn_weights(points, int(n_neighbors))
    return Similarity(n_agents=len(points), matrix=weights, name="knn")


def gaussian_similarity(
    features: Any, bandwidth: float | None = None, threshold: float = _THRESHOLD
) -> Similarity:
    """Return weights that fall with the squared distance of features.

    ``W_ij = exp(-||f_i - f_j||^2 / (2 bandwidth^2))``, to ten digits, and none where this is below
    the threshold.

    Parameters
    ----------
    features : array-like of shape (n_agents, n_features)
        Public facts about the agents, on scales that can be compared: distances are Euclidean. A
        guarantee does not cover what is made from private rows: to estimate similarity from them
        needs a budget of its own.
    bandwidth : float or None, default=None
        In (0, inf). None takes the distance from an agent to its 10th nearest, or furthest where
        there are fewer others: the median over all agents.
    threshold : float, default=1e-3
        In (0, 1).

    Returns
    -------
    Similarity

    Raises
    ------
    ValueError
        For parameters out of range, or where the graph is not connected or has more than ten
        million pairs.

    Examples
    --------
    >>> from skdpadmm.network import gaussian_similarity
    >>> similarity = gaussian_similarity([[0.0], [1.0], [3.0]], bandwidth=1.0, threshold=0.1)
    >>> similarity.weights.toarray().round(4).tolist()
    [[0.0, 0.6065, 0.0], [0.6065, 0.0, 0.1353], [0.0, 0.1353, 0.0]]
    """
    points = _features_of(features)
    if bandwidth is not None:
        _require_float("bandwidth", bandwidth, math.inf)
    _require_float("threshold", threshold, 1.0)
    width = _usual_distance(points) if bandwidth is None else float(bandwidth)
    weights = _gaussian_weights(points, width, float(threshold))
    return Similarity(n_agents=len(points), matrix=weights, name="gaussian")


def angle_similarity(targets: Any, gamma: float = 0.1, threshold: float = _THRESHOLD) -> Similarity:
    """Return weights that fall with the angle between the targets of agents.

    ``W_ij = exp((cos(phi_ij) - 1) / gamma)``, to ten digits, and none where this is below the
    threshold.

    Parameters
    ----------
    targets : array-like of shape (n_agents, n_features)
        A direction for each agent, such as the model that made synthetic rows. Public: models that
        were fitted to private rows are not, and to compare them needs a budget of its own.
    gamma : float, default=0.1
        In (0, inf). The larger, the more alike are agents at an angle.
    threshold : float, default=1e-3
        In (0, 1).

    Returns
    -------
    Similarity

    Raises
    ------
    ValueError
        For parameters out of range, a target that is zero, or where the graph is not connected or
        has more than ten million pairs.

    Examples
    --------
    >>> from skdpadmm.network import angle_similarity
    >>> similarity = angle_similarity([[1.0, 0.0], [1.0, 1.0], [0.0, 2.0]])
    >>> similarity.weights.toarray().round(4).tolist()
    [[0.0, 0.0535, 0.0], [0.0535, 0.0, 0.0535], [0.0, 0.0535, 0.0]]
    """
    points = _features_of(targets, name="targets")
    _require_float("gamma", gamma, math.inf)
    _require_float("threshold", threshold, 1.0)
    largest = np.abs(points).max(axis=1, keepdims=True)
    if not largest.all():
        zero = np.flatnonzero(largest == 0).tolist()
        raise ValueError(
            f"Got targets that are zero for agents {_shown(zero)}, expected directions. Leave these"
            " agents out, or give them weights of their own."
        )
    points = points / largest
    points /= np.sqrt((points**2).sum(axis=1, keepdims=True))
    # ||u - v||^2 = 2 - 2 cos for unit vectors, and differences keep the digits of small angles.
    weights = _gaussian_weights(points, math.sqrt(gamma), float(threshold))
    return Similarity(n_agents=len(points), matrix=weights, name="angle")


def _knn_weights(points: NDArray[np.float64], n_neighbors: int) -> _Weights:
    from sklearn.neighbors import kneighbors_graph

    n = len(points)
    if n == 1:
        return _symmetric(1, np.arange(0), np.arange(0), np.ones(0))
    nearest = sparse.csr_array(kneighbors_graph(points, min(n_neighbors, n - 1)))
    return sparse.csr_array((nearest + nearest.T) * 0.5)


def _gaussian_weights(points: NDArray[np.float64], bandwidth: float, threshold: float) -> _Weights:
    tree = KDTree(points)
    # A little further than the threshold asks for, because the weight itself decides.
    radius = bandwidth * math.sqrt(-2 * math.log(threshold)) * (1 + 1e-9)
    n_pairs = (int(tree.count_neighbors(tree, radius)) - len(points)) // 2
    if n_pairs > _MOST_PAIRS:
        raise ValueError(
            f"Got weights above the threshold for {n_pairs} pairs of {len(points)} agents, expected"
            f" at most {_MOST_PAIRS} pairs. Make weights fall faster, raise the threshold, or take"
            " knn_similarity."
        )
    i, j = tree.query_pairs(radius, output_type="ndarray").T
    squared = np.concatenate(
        [
            (((points[i[part]] - points[j[part]]) / bandwidth) ** 2).sum(axis=1)
            for part in (slice(a, a + _PAIRS_AT_ONCE) for a in range(0, len(i), _PAIRS_AT_ONCE))
        ]
        or [np.zeros(0)]
    )
    weights = np.exp(-squared / 2)
    kept = weights >= threshold
    return _symmetric(len(points), i[kept], j[kept], _to_ten_digits(weights[kept]))


def _usual_distance(points: NDArray[np.float64]) -> float:
    """Median over agents of the distance to the 10th nearest other one."""
    n = len(points)
    if n == 1:
        return 1.0
    rank = min(_NEAREST, n - 1) + 1
    distances = KDTree(points).query(points, k=[rank])[0]
    usual = float(np.median(distances))
    if not usual > 0:
        raise ValueError(
            "Got features that are the same for most agents, expected some distance between them to"
            " take the bandwidth from. Give weights made with a bandwidth of your own."
        )
    return usual


def _to_ten_digits(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Round, because the last digits of `exp` differ between mathematical libraries."""
    mantissas, exponents = np.frexp(weights)
    return np.asarray(np.ldexp(np.round(mantissas * 2**34) / 2**34, exponents), dtype=np.float64)


def _features_of(
    features: Any, names: list[Any] | None = None, *, name: str = "features"
) -> NDArray[np.float64]:
    """Features with a row for each agent, in the order of the agents, fit to be squared."""
    if names is not None and hasattr(features, "loc"):
        index = list(features.index)
        if set(index) == set(names) and len(index) == len(names):
            features = features.loc[names]
        elif index != list(range(len(names))):
            raise ValueError(
                f"Got {name} with the index {_shown(index)}, expected the labels of the agents,"
                f" {_shown(names)}, in any order, or no labels."
            )
    points = np.asarray(features)
    n = len(names) if names is not None else None
    fits = points.ndim == 2 and points.size and (n is None or len(points) == n)
    if not fits or points.dtype.kind not in "biuf":
        raise ValueError(
            f"Got {name} of shape {points.shape} and dtype {points.dtype}, expected real numbers of"
            f" shape ({n or 'n_agents'}, n_features): a row for each agent."
        )
    points = points.astype(np.float64)
    # NaN is not below the bound either.
    wrong = np.flatnonzero(~(np.abs(points) <= _LARGEST).all(axis=1)).tolist()
    if wrong:
        raise ValueError(
            f"Got {name} that are NaN, infinite or beyond {_LARGEST:g} for agents"
            f" {_shown([names[i] for i in wrong] if names else wrong)}, expected finite ones whose"
            " squares are finite too."
        )
    return points


def _weights_of_graph(graph: Any, names: list[Any]) -> _Weights:
    for is_kind, kind, remedy in [
        (graph.is_directed(), "a directed graph", "graph.to_undirected() forgets directions"),
        (graph.is_multigraph(), "a multigraph", "networkx.Graph(graph) merges parallel edges"),
    ]:
        if is_kind:
            raise ValueError(f"Got {kind} as similarity, expected a networkx.Graph. {remedy}.")
    position = {name: i for i, name in enumerate(names)}
    nodes = set(graph.nodes)
    if nodes != position.keys():
        # Labels that are numbers would be taken for positions, and the other way round.
        if nodes != set(range(len(names))) or any(isinstance(n, Integral) for n in names):
            missing = [name for name in names if name not in nodes]
            extra = [node for node in graph.nodes if node not in position]
            raise ValueError(
                f"Got a similarity without agents {_shown(missing)} and with unknown nodes"
                f" {_shown(extra)}, expected the labels of the agents as nodes (or, where labels"
                f" are no numbers, 0, ..., {len(names) - 1} for agents in the order of labels)."
            )
        position = {i: i for i in range(len(names))}
    edges = list(graph.edges(data="weight", default=1.0))
    for a, b, weight in edges:
        if not isinstance(weight, Real):
            raise ValueError(
                f"Got weight={weight!r} of the edge between agents {_shown([a, b])}, expected a"
                " real number."
            )
    i = np.array([position[a] for a, _, _ in edges], dtype=np.intp)
    j = np.array([position[b] for _, b, _ in edges], dtype=np.intp)
    return _symmetric(len(names), i, j, np.array([w for _, _, w in edges], dtype=np.float64))


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
        f"Got a similarity with rows {_shown(rows)} and columns {_shown(columns)}, expected the"
        f" labels of the agents, {_shown(names)}, in any order, or no labels."
    )


def _checked(matrix: Any, names: Sequence[Any]) -> _Weights:
    """Positive weights of a connected graph, symmetric to the last bit."""
    weights = _square(matrix, len(names))
    diagonal = weights.diagonal()
    if diagonal.any():
        own = [names[i] for i in np.flatnonzero(diagonal).tolist()]
        raise ValueError(
            f"Got a similarity of agents {_shown(own)} to themselves, expected zeros on the"
            " diagonal. Set them to zero: an agent's own rows have a weight already."
        )
    weights.eliminate_zeros()
    entries = weights.tocoo()
    i, j = entries.coords
    if weights.nnz and entries.data.min() < 0:
        at = int(entries.data.argmin())
        raise ValueError(
            f"Got a similarity of {entries.data[at]:.6g} between agents"
            f" {_shown([names[i[at]], names[j[at]]])}, expected none below zero."
            " Set weights of agents that are not alike to zero."
        )
    uneven = sparse.coo_array(abs(weights - weights.T))
    uneven.eliminate_zeros()
    if uneven.nnz:
        at = int(uneven.data.argmax())
        if uneven.data[at] > _TOLERANCE * entries.data.max():
            a, b = (int(axis[at]) for axis in uneven.coords)
            raise ValueError(
                f"Got similarities {weights[a, b]:.6g} and {weights[b, a]:.6g} between agents"
                f" {_shown([names[a], names[b]])}, expected a symmetric matrix."
                " (W + W.T) / 2 is one."
            )
        weights = sparse.csr_array(weights * 0.5 + weights.T * 0.5)
    upper = sparse.coo_array(sparse.triu(weights, 1))
    _require_connected(np.column_stack(upper.coords).astype(np.intp, copy=False), names)
    checked = _symmetric(len(names), upper.coords[0], upper.coords[1], upper.data)
    with np.errstate(over="ignore"):
        sums: NDArray[np.float64] = np.asarray(checked.sum(axis=1)).ravel()
    if not np.isfinite(sums).all():
        too_large = [names[i] for i in np.flatnonzero(~np.isfinite(sums)).tolist()]
        raise ValueError(
            f"Got a similarity with weights of agents {_shown(too_large)} that have no finite sum,"
            " expected smaller ones. Divide all weights by the largest."
        )
    checked.data.setflags(write=False)
    checked.indices.setflags(write=False)
    checked.indptr.setflags(write=False)
    return checked


def _square(matrix: Any, n_agents: int) -> _Weights:
    """A copy of a finite real matrix of shape (n_agents, n_agents)."""
    given = matrix
    if not sparse.issparse(given):
        try:
            matrix = np.asarray(given)
        except ValueError as error:
            raise ValueError(
                f"Got similarity that is no matrix ({error}), expected {_EXPECTED}."
            ) from error
        if matrix.ndim != 2:
            raise ValueError(f"Got similarity={given!r}, expected {_EXPECTED}.")
    if matrix.dtype.kind not in "biuf":
        raise ValueError(
            f"Got similarity of dtype {matrix.dtype}, expected a matrix of real numbers."
        )
    if matrix.shape != (n_agents, n_agents):
        raise ValueError(
            f"Got similarity of shape {matrix.shape}, expected shape ({n_agents}, {n_agents}): a"
            " row and a column for each agent that holds rows."
        )
    square = sparse.csr_array(matrix, dtype=np.float64, copy=True)
    square.sum_duplicates()
    if not np.isfinite(square.data).all():
        raise ValueError(
            "Got similarity with an entry that is NaN or infinite, expected finite ones."
        )
    return square


def _require_connected(pairs: NDArray[np.intp], names: Sequence[Any]) -> None:
    components = component_labels(len(names), pairs)
    sizes = np.bincount(components)
    if len(sizes) == 1:
        return
    alone = np.flatnonzero(np.bincount(pairs.ravel(), minlength=len(names)) == 0)
    if len(alone):
        raise ValueError(
            f"Got a similarity in which agents {_shown([names[i] for i in alone.tolist()])} are"
            " like nobody, expected a positive weight for each agent. Give them one, or leave them"
            " out."
        )
    apart = [names[i] for i in np.flatnonzero(components == sizes.argmin()).tolist()]
    raise ValueError(
        f"Got a similarity with {len(sizes)} components, one of them agents {_shown(apart)},"
        " expected a connected graph. Add small weights or more neighbours until every agent can"
        " reach every other one, or fit each component by itself."
    )


def _symmetric(
    n_agents: int, i: NDArray[Any], j: NDArray[Any], weights: NDArray[np.float64]
) -> _Weights:
    """The matrix with these weights in both directions; those of loops count once."""
    other = i != j
    # Graph algorithms of scipy < 1.15 read 32-bit indices alone.
    rows = np.concatenate([i, j[other]]).astype(np.int32)
    columns = np.concatenate([j, i[other]]).astype(np.int32)
    entries = np.concatenate([weights, weights[other]])
    matrix = sparse.csr_array((entries, (rows, columns)), shape=(n_agents, n_agents))
    matrix.sort_indices()
    return matrix


def _fingerprint(n_agents: int, weights: _Weights | None) -> str:
    digest = hashlib.sha256(
        f"{'weights' if weights is not None else 'uniform'} {n_agents}".encode()
    )
    if weights is not None:
        upper = sparse.coo_array(sparse.triu(weights, 1))
        order = np.lexsort(upper.coords[::-1])
        edges = np.column_stack(upper.coords)[order]
        digest.update(np.ascontiguousarray(edges, dtype="<i8").tobytes())
        digest.update(np.ascontiguousarray(upper.data[order], dtype="<f8").tobytes())
    return digest.hexdigest()


def _require_float(name: str, value: Any, most: float) -> None:
    if not isinstance(value, Real) or isinstance(value, bool) or not 0 < float(value) < most:
        raise ValueError(f"Got {name}={value!r}, expected a float in (0, {most:g}).")


def _range(least: str, most: str) -> str:
    return least if least == most else f"{least} to {most}"


def _shown(names: Sequence[Any]) -> str:
    """The first few names in plain Python types."""
    plain = [name.item() if isinstance(name, np.generic) else name for name in names]
    more = f" and {len(plain) - _MOST_SHOWN} more" if len(plain) > _MOST_SHOWN else ""
    return f"{plain[:_MOST_SHOWN]}{more}"
