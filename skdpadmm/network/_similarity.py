"""How much alike agents are: public weights along which personalised models are averaged."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from numbers import Integral, Real
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.spatial import KDTree

from skdpadmm.network._relation import (
    Matrix,
    by_agent,
    checked_relation,
    fingerprint,
    is_frame,
    matrix_of,
    shown,
    symmetric_csr,
)

SIMILARITIES = ("uniform", "knn", "gaussian")

_MOST_UNIFORM = 2000
_NEAREST = 10
_THRESHOLD = 1e-3
_LARGEST = 1e100
_MOST_PAIRS = 10_000_000
_PAIRS_AT_ONCE = 100_000
_EXPECTED = (
    "one of ['uniform', 'knn', 'gaussian'], a networkx.Graph with weights, a square matrix, or a"
    " Similarity"
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
        Symmetric (up to 1e-9 of the largest weight), not negative, zero on the diagonal, of a
        connected graph; else a ValueError. It is copied. None gives each pair the weight one, and
        nothing is stored.
    name : str, default="custom"
        What the weights are called; no part of equality.
    labels : tuple or None, default=None
        What the agents are called, in their order, each once; no part of equality. None: weights
        are for the agents in the order of their sorted labels.

    Attributes
    ----------
    fingerprint : str
        SHA-256 of the number of agents, the sorted edges and their weights.

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
    matrix: Matrix | None = field(default=None, compare=False, repr=False)
    name: str = field(default="custom", compare=False)
    labels: tuple[Any, ...] | None = field(default=None, compare=False, repr=False)
    fingerprint: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        n = self.n_agents
        if n < 1:
            raise ValueError(f"Got n_agents={n}, expected an int of at least 1.")
        if self.labels is not None:
            object.__setattr__(self, "labels", tuple(self.labels))
            if len(set(self.labels)) != n or len(self.labels) != n:
                raise ValueError(
                    f"Got labels {shown(self.labels)} for {n} agents, expected one for each, once."
                )
        names = range(n) if self.labels is None else self.labels
        weights = None if self.matrix is None else _checked_weights(self.matrix, names)
        if weights is not None and weights.nnz == n * (n - 1) and bool((weights.data == 1).all()):
            weights = None
        object.__setattr__(self, "matrix", weights)
        digest = fingerprint(f"uniform {n}")
        if weights is not None:
            upper = sparse.triu(weights, 1).tocoo()
            digest = fingerprint(f"weights {n}", np.column_stack(upper.coords), upper.data)
        object.__setattr__(self, "fingerprint", digest)

    @property
    def weights(self) -> Matrix:
        """All weights, of shape (n_agents, n_agents), in arrays that are read-only.

        Uniform weights of more than 2000 agents raise a ValueError: they would fill the memory.
        """
        matrix = self._uniform if self.matrix is None else self.matrix
        return sparse.csr_array((matrix.data, matrix.indices, matrix.indptr), shape=matrix.shape)

    @cached_property
    def degrees(self) -> NDArray[np.float64]:
        """Sum of the weights of each agent, of shape (n_agents,)."""
        degrees = np.full(self.n_agents, self.n_agents - 1.0)
        if self.matrix is not None:
            degrees = np.asarray(self.matrix.sum(axis=1), dtype=np.float64).ravel()
        degrees.setflags(write=False)
        return degrees

    @cached_property
    def n_neighbors(self) -> NDArray[np.intp]:
        """Number of agents with a positive weight to each agent, of shape (n_agents,)."""
        counts = np.full(self.n_agents, self.n_agents - 1, dtype=np.intp)
        if self.matrix is not None:
            counts = np.diff(self.matrix.indptr).astype(np.intp)
        counts.setflags(write=False)
        return counts

    @property
    def n_edges(self) -> int:
        """Number of pairs with a positive weight."""
        return math.comb(self.n_agents, 2) if self.matrix is None else self.matrix.nnz // 2

    def neighbor_mean(self, values: NDArray[Any], agents: Any = None) -> NDArray[np.float64]:
        """Average finite values, of shape (n_agents, ...), of each agent's neighbours, by weight.

        `agents` has the positions of those whose mean is wanted, None for everybody's. A mean has
        the same bits whoever else is asked for, and is zero for an agent that is alone.
        """
        flat = by_agent(values, self.n_agents)
        asked = None if agents is None else self._positions(agents, "agents")
        shape = values.shape if asked is None else (len(asked), *values.shape[1:])
        if self.matrix is None:
            own = flat if asked is None else flat[asked]
            mean = (flat.sum(axis=0) - own) / (self.n_agents - 1) if self.n_agents > 1 else 0 * own
        else:
            mean = (self.shares if asked is None else self.shares[asked]) @ flat
        return np.asarray(mean, dtype=np.float64).reshape(shape)

    def wave_numbers(self, order: Any) -> NDArray[np.intp]:
        """The wave, from 0 without gaps, that each wake-up of `waves` belongs to.

        A wake-up comes one wave after the latest earlier wake-up of the same agent or of one of
        its neighbours, and in wave 0 where there is none.
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
        """Split wake-ups, positions of agents one after another, into waves that can act at once.

        Within a wave no agent appears twice and no two are neighbours. Wave after wave gives what
        one wake-up after another gives, for an action that reads an agent and its neighbours and
        changes the agent alone. No fewer waves keep the order of neighbours. Each wave has its
        agents in the order in which they wake up.
        """
        agents = self._positions(order, "order")
        numbers = self.wave_numbers(agents)
        agents = agents[np.argsort(numbers, kind="stable")]
        ends = np.cumsum(np.bincount(numbers)).tolist()
        return [agents[a:b] for a, b in pairwise([0, *ends])]

    def average_for(self, similarities: Any) -> NDArray[np.float64]:
        """Weights, with a sum of one, by which an agent never seen averages the models.

        `similarities`, of shape (n_agents,), say how much it is like each agent: finite, not
        negative and not all zero; else a ValueError.

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
        if not (np.isfinite(row) & (row >= 0)).all() or not row.any():
            problem = "all zero" if (row == 0).all() else "negative or not finite"
            raise ValueError(
                f"Got similarities that are {problem}, expected finite numbers of at least 0 and"
                " one above."
            )
        shares = row / row.max()
        return np.asarray(shares / shares.sum(), dtype=np.float64)

    def for_agents(self, labels: Any) -> Similarity:
        """The same weights for agents with these labels, in their order.

        Weights without labels are taken to be in this order. Other labels raise a ValueError.
        """
        names, own = list(labels), range(self.n_agents) if self.labels is None else self.labels
        if len(names) != self.n_agents and self.labels is None:
            raise ValueError(
                f"Got a similarity of {self.n_agents} agents for {len(names)} agents,"
                f" {shown(names)}, expected weights for each agent that holds rows."
            )
        position = {label: i for i, label in enumerate(names if self.labels is None else own)}
        missing, unknown = set(names) - position.keys(), position.keys() - set(names)
        if missing or unknown:
            raise ValueError(
                f"Got a similarity without agents {shown([n for n in names if n in missing])} and"
                f" with unknown agents {shown([n for n in own if n in unknown])}, expected the"
                f" labels of the agents, {shown(names)}."
            )
        order = [position[name] for name in names]
        if self.matrix is not None and order != list(range(len(order))):
            return replace(self, matrix=self.matrix[order][:, order], labels=tuple(names))
        same = copy(self)
        object.__setattr__(same, "labels", tuple(names))
        return same

    def describe(self) -> str:
        """Name, size and range of the weights, in words."""
        if self.n_agents == 1:
            return f"{self.name}, one agent without neighbours"
        counts = self.n_neighbors
        data = np.ones(1) if self.matrix is None else self.matrix.data
        edges = "edge" if self.n_edges == 1 else "edges"
        neighbors = "neighbour" if counts.max() == 1 else "neighbours"

        def span(least: str, most: str) -> str:
            return least if least == most else f"{least} to {most}"

        return (
            f"{self.name}, {self.n_edges} {edges},"
            f" {span(f'{counts.min()}', f'{counts.max()}')} {neighbors} each,"
            f" weights {span(f'{data.min():.4g}', f'{data.max():.4g}')}"
        )

    @cached_property
    def shares(self) -> Matrix:
        """Weights with rows that sum to one, of shape (n_agents, n_agents)."""
        weights = self.weights
        # Shares first and not sums first, because sums of tiny weights have no finite inverse.
        shares = weights.data / np.repeat(self.degrees, self.n_neighbors)
        return sparse.csr_array((shares, weights.indices, weights.indptr), shape=weights.shape)

    @cached_property
    def _uniform(self) -> Matrix:
        if self.n_agents > _MOST_UNIFORM:
            raise ValueError(
                f"Got uniform weights of {self.n_agents} agents to write down, expected at most"
                f" {_MOST_UNIFORM} agents. Their means need no matrix: use `neighbor_mean`."
            )
        i, j = np.triu_indices(self.n_agents, 1)
        return symmetric_csr(self.n_agents, i, j, np.ones(len(i)))

    def _positions(self, agents: Any, name: str) -> NDArray[np.intp]:
        given = np.asarray(agents)
        is_int = given.ndim == 1 and (given.dtype.kind in "iu" or not given.size)
        if not is_int or (given.size and not 0 <= given.min() <= given.max() < self.n_agents):
            raise ValueError(
                f"Got {name} of shape {given.shape} and dtype {given.dtype}, expected a sequence of"
                f" positions of agents in [0, {self.n_agents})."
            )
        return given.astype(np.intp, copy=False)


def resolve_similarity(similarity: Any, labels: NDArray[Any], features: Any = None) -> Similarity:
    """Return the weights that a user names or gives, in the order of the labels.

    Parameters
    ----------
    similarity : str, Similarity, networkx.Graph, or matrix of shape (n_agents, n_agents)
        - "uniform": everybody is alike; each pair has the weight one.
        - "knn", "gaussian": as `knn_similarity` and `gaussian_similarity` of ``features``, with
          their default parameters; "knn" needs more than 11 agents.
        - A graph whose nodes are the labels of the agents, or where these are no numbers 0, 1, ...
          for the agents in the order of their labels. Weights are the attribute "weight" of edges,
          one where it is missing.
        - A matrix in the order of the labels, or a pandas DataFrame that has them.
        - A Similarity, which is put into the order of the labels where it has some.

        One agent has nobody to be like, whatever the name. Anything else raises a ValueError.
    labels : ndarray of shape (n_agents,)
        Names of the agents, sorted and unique.
    features : array-like of shape (n_agents, n_features) or None, default=None
        Public facts about the agents, in the order of the labels or with them as the index, for
        "knn" and "gaussian" alone; see `knn_similarity`.

    Returns
    -------
    Similarity

    Examples
    --------
    >>> import networkx as nx
    >>> import numpy as np
    >>> from skdpadmm.network import resolve_similarity
    >>> graph = nx.Graph([("cas", "ann", {"weight": 0.5}), ("bob", "ann")])
    >>> star = resolve_similarity(graph, np.array(["ann", "bob", "cas"]))
    >>> star.describe()
    'custom, 2 edges, 1 to 2 neighbours each, weights 0.5 to 1'
    """
    # As plain values, except dates, which would turn into numbers.
    n, names = len(labels), list(labels) if labels.dtype.kind in "mM" else labels.tolist()
    named: dict[str, Callable[[Any], Similarity]]
    named = {"knn": knn_similarity, "gaussian": gaussian_similarity}
    is_name = isinstance(similarity, str)
    if is_name and similarity not in SIMILARITIES:
        raise ValueError(
            f"Got similarity={similarity!r}, expected {_EXPECTED}, as of knn_similarity(features),"
            " gaussian_similarity(features) or angle_similarity(targets)."
        )
    if features is not None and not (is_name and similarity in named):
        given = repr(similarity) if is_name else type(similarity).__name__
        raise ValueError(
            f"Got features of the agents with similarity={given}, expected one of {list(named)}:"
            " nothing else looks at them. Leave agent_features out, or name what is to be made of"
            " them."
        )
    if isinstance(similarity, Similarity):
        return similarity.for_agents(names)
    if not is_name:
        weights = _checked_weights(similarity, names)
        return Similarity(n_agents=n, matrix=weights, labels=tuple(names))
    if similarity == "uniform" or n == 1:
        return Similarity(n_agents=n, name=similarity, labels=tuple(names))
    if features is None:
        raise ValueError(
            f"Got similarity={similarity!r} without features of the agents, expected public"
            f" features of shape ({n}, n_features). Give agent_features, or take 'uniform'."
        )
    if np.shape(features)[:1] != (n,):
        raise ValueError(
            f"Got features of shape {np.shape(features)}, expected ({n}, n_features): a row for"
            " each agent."
        )
    if similarity == "knn" and n <= _NEAREST + 1:
        raise ValueError(
            f"Got similarity='knn' for {n} agents, expected more than {_NEAREST + 1}: the"
            f" {_NEAREST} nearest of an agent are everybody, as in 'uniform'. Pass"
            " knn_similarity(features, n_neighbors=...) with fewer neighbours, or 'gaussian'."
        )
    return named[similarity](features).for_agents(names)


def labels_of_relation(relation: Any) -> list[Any] | None:
    """Labels, in their order, of what `resolve_similarity` takes as weights or features, or None.

    Examples
    --------
    >>> import networkx as nx
    >>> from skdpadmm.network import labels_of_relation
    >>> labels_of_relation(nx.path_graph(["north", "east"])), labels_of_relation("uniform")
    (['north', 'east'], None)
    """
    if isinstance(relation, Similarity):
        return None if relation.labels is None else list(relation.labels)
    if hasattr(relation, "is_multigraph"):
        return list(relation.nodes)
    return list(relation.index) if is_frame(relation) else None


def knn_similarity(features: Any, n_neighbors: int = _NEAREST) -> Similarity:
    """Return weights between agents with features that are near to each other.

    The weight of a pair is 1 where each is among the nearest of the other, and 0.5 where one is.

    Parameters
    ----------
    features : array-like of shape (n_agents, n_features)
        Public facts about the agents, on scales that can be compared: distances are Euclidean. The
        index of a pandas DataFrame has their labels; anything else is in the order of the sorted
        labels. A guarantee does not cover what is made from private rows: to estimate similarity
        from them needs a budget of its own.
    n_neighbors : int, default=10
        How many are the nearest, at least 1. Everybody, where there are not as many others.

    Returns
    -------
    Similarity
        With the labels, where there are any. A ValueError where the graph is not connected.

    Examples
    --------
    >>> from skdpadmm.network import knn_similarity
    >>> knn_similarity([[0.0], [1.0], [3.0]], n_neighbors=1).weights.toarray().tolist()
    [[0.0, 1.0, 0.0], [1.0, 0.0, 0.5], [0.0, 0.5, 0.0]]
    """
    if not isinstance(n_neighbors, Integral) or n_neighbors < 1:
        raise ValueError(f"Got n_neighbors={n_neighbors!r}, expected an int of at least 1.")
    points, labels = _features_of(features), _labels_of(features)
    weights = _knn_weights(points, int(n_neighbors))
    return _labelled("knn", weights, labels, "Raise n_neighbors of knn_similarity")


def gaussian_similarity(
    features: Any, bandwidth: float | None = None, threshold: float = _THRESHOLD
) -> Similarity:
    """Return weights that fall with the squared distance of features.

    ``S_ij = exp(-||f_i - f_j||^2 / (2 bandwidth^2))``, to ten digits, and none where this is below
    the threshold.

    Parameters
    ----------
    features : array-like of shape (n_agents, n_features)
        Public facts about the agents, as for `knn_similarity`.
    bandwidth : float or None, default=None
        In (0, inf). None takes the distance from an agent to its 10th nearest, or furthest where
        there are fewer others: the median over all agents.
    threshold : float, default=1e-3
        In (0, 1).

    Returns
    -------
    Similarity
        With the labels, where there are any. A ValueError where the graph is not connected, or has
        more than ten million pairs.

    Examples
    --------
    >>> from skdpadmm.network import gaussian_similarity
    >>> gaussian_similarity([[0.0], [1.0], [3.0]], bandwidth=1.0, threshold=0.1).describe()
    'gaussian, 2 edges, 1 to 2 neighbours each, weights 0.1353 to 0.6065'
    """
    points, labels = _features_of(features), _labels_of(features)
    if bandwidth is not None:
        _require_float("bandwidth", bandwidth, math.inf)
    _require_float("threshold", threshold, 1.0)
    width = _usual_distance(points) if bandwidth is None else float(bandwidth)
    weights = _gaussian_weights(points, width, float(threshold))
    remedy = "Raise bandwidth or lower threshold of gaussian_similarity"
    return _labelled("gaussian", weights, labels, remedy)


def angle_similarity(targets: Any, gamma: float = 0.1, threshold: float = _THRESHOLD) -> Similarity:
    """Return weights that fall with the angle between the targets of agents.

    ``S_ij = exp((cos(phi_ij) - 1) / gamma)``, to ten digits, and none where this is below the
    threshold.

    Parameters
    ----------
    targets : array-like of shape (n_agents, n_features)
        A direction for each agent, such as the model that made synthetic rows, none of them zero;
        the index of a pandas DataFrame has labels. Public: models that were fitted to private rows
        are not, and to compare them needs a budget of its own.
    gamma : float, default=0.1
        In (0, inf). The larger, the more alike are agents at an angle.
    threshold : float, default=1e-3
        In (0, 1).

    Returns
    -------
    Similarity
        As of `gaussian_similarity`.

    Examples
    --------
    >>> from skdpadmm.network import angle_similarity
    >>> angle_similarity([[1.0, 0.0], [1.0, 1.0], [0.0, 2.0]]).describe()
    'angle, 2 edges, 1 to 2 neighbours each, weights 0.05345'
    """
    points, labels = _features_of(targets, name="targets"), _labels_of(targets)
    _require_float("gamma", gamma, math.inf)
    _require_float("threshold", threshold, 1.0)
    largest = np.abs(points).max(axis=1, keepdims=True)
    if not largest.all():
        called, zero = labels or range(len(points)), np.flatnonzero(largest == 0).tolist()
        raise ValueError(
            f"Got targets that are zero for agents {shown([called[i] for i in zero])}, expected"
            " directions. Leave these agents out, or give them weights of their own."
        )
    points = points / largest
    points /= np.sqrt((points**2).sum(axis=1, keepdims=True))
    # ||u - v||^2 = 2 - 2 cos for unit vectors, and differences keep the digits of small angles.
    weights = _gaussian_weights(points, math.sqrt(gamma), float(threshold))
    return _labelled("angle", weights, labels, "Raise gamma or lower threshold")


def _labels_of(features: Any) -> tuple[Any, ...] | None:
    """Labels of rows, where a pandas DataFrame has other ones than 0, 1, ..."""
    if not is_frame(features):
        return None
    labels = list(features.index)
    return None if labels == list(range(len(labels))) else tuple(labels)


def _labelled(name: str, weights: Matrix, labels: Any, remedy: str) -> Similarity:
    n = weights.shape[0]
    checked = _checked_weights(weights, labels or range(n), remedy)
    return Similarity(n_agents=n, matrix=checked, name=name, labels=labels)


def _checked_weights(matrix: Any, names: Sequence[Any], remedy: str = "Add weights") -> Matrix:
    """Positive weights of a connected graph, symmetric to the last bit, in read-only arrays."""
    given = matrix_of(matrix, names, "similarity", _EXPECTED)
    checked = checked_relation(given, names, "similarity", remedy)
    for part in (checked.data, checked.indices, checked.indptr):
        part.setflags(write=False)
    return checked


def _knn_weights(points: NDArray[np.float64], n_neighbors: int) -> Matrix:
    from sklearn.neighbors import kneighbors_graph

    n = len(points)
    if n == 1:
        return symmetric_csr(1, np.arange(0), np.arange(0), np.ones(0))
    nearest = sparse.csr_array(kneighbors_graph(points, min(n_neighbors, n - 1)))
    return sparse.csr_array((nearest + nearest.T) * 0.5)


def _gaussian_weights(points: NDArray[np.float64], bandwidth: float, threshold: float) -> Matrix:
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
    return symmetric_csr(len(points), i[kept], j[kept], _to_ten_digits(weights[kept]))


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


def _features_of(features: Any, *, name: str = "features") -> NDArray[np.float64]:
    """Features with a row for each agent, fit to be squared."""
    points = np.asarray(features)
    if points.ndim != 2 or not points.size or points.dtype.kind not in "biuf":
        raise ValueError(
            f"Got {name} of shape {points.shape} and dtype {points.dtype}, expected real numbers of"
            " shape (n_agents, n_features): a row for each agent."
        )
    points = points.astype(np.float64)
    # NaN is not below the bound either.
    wrong = np.flatnonzero(~(np.abs(points) <= _LARGEST).all(axis=1)).tolist()
    if wrong:
        called = _labels_of(features) or range(len(points))
        raise ValueError(
            f"Got {name} that are NaN, infinite or beyond {_LARGEST:g} for agents"
            f" {shown([called[i] for i in wrong])}, expected finite ones whose squares are finite"
            " too."
        )
    return points


def _require_float(name: str, value: Any, most: float) -> None:
    if not isinstance(value, Real) or not 0 < float(value) < most:
        raise ValueError(f"Got {name}={value!r}, expected a float in (0, {most:g}).")
