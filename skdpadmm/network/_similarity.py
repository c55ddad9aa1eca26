"""Similarities of agents: public weights by which personalised models are averaged."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.spatial import KDTree
from sklearn.utils import check_array

from skdpadmm.network._relation import (
    Matrix,
    by_agent,
    counted,
    fingerprint,
    in_order,
    is_frame,
    relation_of,
    shown,
    span,
    symmetric_csr,
)

SIMILARITIES = ("uniform", "knn", "gaussian")

_MOST_UNIFORM = 2000
_NEAREST = 10
_THRESHOLD = 1e-3
_MOST_PAIRS = 10_000_000


@dataclass(frozen=True, kw_only=True)
class Similarity:
    """Symmetric public weights between similar agents, on a connected graph.

    Two similarities are equal if they have the same agents and weights; names do not count. Weights
    are public: a guarantee does not cover what they reveal about rows. Estimating them from private
    rows needs a separate budget. Only their ratios within a row matter for means.

    Parameters
    ----------
    n_agents : int
        Number of agents, at least 1. One agent has no neighbours.
    matrix : array or sparse matrix of shape (n_agents, n_agents) or None, default=None
        Symmetric (up to 1e-9 of the largest weight), not negative, zero on the diagonal, of a
        connected graph; else a ValueError. It is copied. None gives each pair the weight one, and
        nothing is stored.
    name : str, default="custom"
        Name of the weights; no part of equality.
    labels : tuple or None, default=None
        Labels of the agents, in their order, each once; no part of equality. With None weights are
        in the order of the sorted labels.

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
        n, weights = self.n_agents, None
        names = tuple(range(n) if self.labels is None else self.labels)
        if self.labels is not None:
            object.__setattr__(self, "labels", names)
            if len(set(names)) != n or len(names) != n:
                raise ValueError(
                    f"Got labels {shown(names)} for {n} agents, expected one for each, once."
                )
        if self.matrix is not None:
            weights = relation_of(self.matrix, names, "similarity", "Add weights")
            if weights.nnz == n * (n - 1) and (weights.data == 1).all():
                weights = None
        digest = fingerprint(f"uniform {n}")
        if weights is not None:
            for part in (weights.data, weights.indices, weights.indptr):
                part.setflags(write=False)
            upper = sparse.triu(weights, 1).tocoo()
            digest = fingerprint(f"weights {n}", np.column_stack(upper.coords), upper.data)
        object.__setattr__(self, "matrix", weights)
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
        asked = None if agents is None else np.asarray(agents, dtype=np.intp)
        shape = values.shape if asked is None else (len(asked), *values.shape[1:])
        if self.matrix is None:
            values_of_asked = flat if asked is None else flat[asked]
            mean = (flat.sum(axis=0) - values_of_asked) / max(self.n_agents - 1, 1)
        else:
            mean = (self.shares if asked is None else self.shares[asked]) @ flat
        return np.asarray(mean, dtype=np.float64).reshape(shape)

    def wave_numbers(self, order: Any) -> NDArray[np.intp]:
        """The wave, from 0 without gaps, that each wake-up of `waves` belongs to.

        A wake-up comes one wave after the latest earlier wake-up of the same agent or of one of
        its neighbours, and in wave 0 where there is none.
        """
        agents = np.asarray(order, dtype=np.intp)
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
        agents = np.asarray(order, dtype=np.intp)
        numbers = self.wave_numbers(agents)
        agents = agents[np.argsort(numbers, kind="stable")]
        ends = np.cumsum(np.bincount(numbers)).tolist()
        return [agents[a:b] for a, b in pairwise([0, *ends])]

    def average_for(self, similarities: Any) -> NDArray[np.float64]:
        """Weights, with a sum of one, by which a new agent averages the models.

        `similarities`, of shape (n_agents,), are those to each agent: finite, not
        negative and not all zero; else a ValueError.

        Examples
        --------
        >>> from skdpadmm.network import Similarity
        >>> Similarity(n_agents=3).average_for([0, 1, 3]).tolist()
        [0.0, 0.25, 0.75]
        """
        row = np.asarray(similarities, dtype=np.float64)
        is_fit = row.shape == (self.n_agents,) and (np.isfinite(row) & (row >= 0)).all()
        if not (is_fit and row.any()):
            raise ValueError(
                f"Got similarities of shape {row.shape} that are negative, not finite, all zero or"
                f" not as many as agents, expected {self.n_agents} finite numbers of at least 0 and"
                " one above."
            )
        shares = row / row.max()
        return np.asarray(shares / shares.sum(), dtype=np.float64)

    def for_agents(self, labels: Any) -> Similarity:
        """The same weights for agents with these labels, in their order.

        Weights without labels are taken to be in this order. Other labels raise a ValueError.
        """
        names = list(labels)
        if self.labels is None:
            if len(names) != self.n_agents:
                raise ValueError(
                    f"Got a similarity of {self.n_agents} agents for {len(names)} agents,"
                    f" {shown(names)}, expected weights for each agent that holds rows."
                )
            return replace(self, labels=tuple(names))
        position = {label: i for i, label in enumerate(self.labels)}
        order = [position[label] for label in in_order(self.labels, names, "similarity")]
        matrix = None if self.matrix is None else self.matrix[order][:, order]
        return replace(self, matrix=matrix, labels=tuple(names))

    def describe(self) -> str:
        """Name, size and range of the weights, in words."""
        least, most = int(self.n_neighbors.min()), int(self.n_neighbors.max())
        data = np.ones(1) if self.matrix is None else self.matrix.data
        return (
            f"{self.name}, {counted(self.n_edges, 'edge')},"
            f" {span(str(least), str(most))} {'neighbour' if most == 1 else 'neighbours'} each,"
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


def resolve_similarity(similarity: Any, labels: NDArray[Any], features: Any = None) -> Similarity:
    """Return the weights for a name, a graph or a matrix, in the order of the labels.

    Parameters
    ----------
    similarity : str, Similarity, networkx.Graph, or matrix of shape (n_agents, n_agents)
        - "uniform": each pair of agents has the weight one.
        - "knn", "gaussian": as `knn_similarity` and `gaussian_similarity` of ``features``, with
          their default parameters.
        - A graph whose nodes are the labels of the agents, or where these are no numbers 0, 1, ...
          for the agents in the order of their labels. Weights are the attribute "weight" of edges,
          one where it is missing.
        - A matrix in the order of the labels, or a pandas DataFrame that has them.
        - A Similarity, which is put into the order of the labels where it has some.

        For every name, one agent has no neighbours. Anything else raises a ValueError.
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
    n, names = len(labels), tuple(labels if labels.dtype.kind in "mM" else labels.tolist())
    named: dict[str, Callable[[Any], Similarity]]
    named = {"knn": knn_similarity, "gaussian": gaussian_similarity}
    if similarity is None or (isinstance(similarity, str) and similarity not in SIMILARITIES):
        raise ValueError(
            f"Got similarity={similarity!r}, expected one of {list(SIMILARITIES)}, a networkx.Graph"
            " with weights, a square matrix, or a Similarity, such as knn_similarity(features)."
        )
    maker = named.get(similarity) if isinstance(similarity, str) else None
    if features is not None and maker is None:
        given = similarity if isinstance(similarity, str) else type(similarity).__name__
        raise ValueError(
            f"Got features of the agents with similarity={given!r}, expected one of {list(named)}:"
            " nothing else uses them. Leave agent_features out."
        )
    if isinstance(similarity, Similarity):
        return similarity.for_agents(names)
    if not isinstance(similarity, str):
        return Similarity(n_agents=n, matrix=similarity, labels=names)
    if maker is None or n == 1:
        return Similarity(n_agents=n, name=similarity, labels=names)
    if np.shape(features)[:1] != (n,):
        raise ValueError(
            f"Got similarity={similarity!r} with features of shape {np.shape(features)}, expected"
            f" public features of the agents of shape ({n}, n_features). Give agent_features, or"
            " take 'uniform'."
        )
    return maker(features).for_agents(names)


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

    The weight of a pair is 1 if each is among the nearest of the other, and 0.5 if only one is.

    Parameters
    ----------
    features : array-like of shape (n_agents, n_features)
        Public features of the agents on comparable scales, because distances are Euclidean. The
        index of a pandas DataFrame has the labels; anything else is in the order of the sorted
        labels. No guarantee covers features from private rows: estimating similarities from them
        needs a separate budget.
    n_neighbors : int, default=10
        Number of nearest agents, at least 1; at most all others.

    Returns
    -------
    Similarity
        Weights with the labels, if there are any. A ValueError if the graph is not connected.

    Examples
    --------
    >>> from skdpadmm.network import knn_similarity
    >>> knn_similarity([[0.0], [1.0], [3.0]], n_neighbors=1).weights.toarray().tolist()
    [[0.0, 1.0, 0.0], [1.0, 0.0, 0.5], [0.0, 0.5, 0.0]]
    """
    from sklearn.neighbors import kneighbors_graph

    points = check_array(features, dtype=np.float64, input_name="features")
    nearest = kneighbors_graph(points, min(n_neighbors, len(points) - 1))
    weights = sparse.csr_array((nearest + nearest.T) * 0.5)
    return _labelled("knn", weights, features, "Raise n_neighbors of knn_similarity")


def gaussian_similarity(
    features: Any, bandwidth: float | None = None, threshold: float = _THRESHOLD
) -> Similarity:
    """Return weights that fall with the squared distance of features.

    ``S_ij = exp(-||f_i - f_j||^2 / (2 bandwidth^2))``, to ten digits, and none where this is below
    the threshold.

    Parameters
    ----------
    features : array-like of shape (n_agents, n_features)
        Public features of the agents, as for `knn_similarity`.
    bandwidth : float or None, default=None
        In (0, inf). None takes the distance from an agent to its 10th nearest, or furthest where
        there are fewer others: the median over all agents.
    threshold : float, default=1e-3
        In (0, 1).

    Returns
    -------
    Similarity
        Weights with the labels, if there are any. A ValueError if the graph is not connected or has
        more than ten million pairs.

    Examples
    --------
    >>> from skdpadmm.network import gaussian_similarity
    >>> gaussian_similarity([[0.0], [1.0], [3.0]], bandwidth=1.0, threshold=0.1).describe()
    'gaussian, 2 edges, 1 to 2 neighbours each, weights 0.1353 to 0.6065'
    """
    points = check_array(features, dtype=np.float64, input_name="features")
    if bandwidth is None:
        rank = min(_NEAREST, len(points) - 1) + 1
        bandwidth = float(np.median(KDTree(points).query(points, k=[rank])[0]))
    weights = _gaussian_weights(points, "bandwidth", bandwidth, threshold)
    remedy = "Raise bandwidth or lower threshold of gaussian_similarity"
    return _labelled("gaussian", weights, features, remedy)


def angle_similarity(targets: Any, gamma: float = 0.1, threshold: float = _THRESHOLD) -> Similarity:
    """Return weights that fall with the angle between the targets of agents.

    ``S_ij = exp((cos(phi_ij) - 1) / gamma)``, to ten digits, and none where this is below the
    threshold.

    Parameters
    ----------
    targets : array-like of shape (n_agents, n_features)
        A public direction for each agent, none of them zero, such as the model that made synthetic
        rows; the index of a pandas DataFrame has labels. Models fitted to private rows are not
        public, and comparing them needs a separate budget.
    gamma : float, default=0.1
        In (0, inf). A larger value makes agents at an angle more similar.
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
    points = check_array(targets, dtype=np.float64, input_name="targets")
    largest = np.abs(points).max(axis=1, keepdims=True)
    if not largest.all():
        zero = np.flatnonzero(largest == 0).tolist()
        raise ValueError(
            f"Got targets that are zero in rows {shown(zero)}, expected directions. Leave these"
            " agents out, or give a matrix of weights."
        )
    points = points / largest
    points /= np.sqrt((points**2).sum(axis=1, keepdims=True))
    # ||u - v||^2 = 2 - 2 cos for unit vectors, and differences keep the digits of small angles.
    weights = _gaussian_weights(points, "root of gamma", math.sqrt(max(gamma, 0)), threshold)
    return _labelled("angle", weights, targets, "Raise gamma or lower threshold")


def _labelled(name: str, weights: Matrix, features: Any, remedy: str) -> Similarity:
    """Weights with the labels of features, where a DataFrame has other ones than 0, 1, ..."""
    n, labels = weights.shape[0], tuple(features.index) if is_frame(features) else None
    labels = None if labels == tuple(range(n)) else labels
    checked = relation_of(weights, labels or range(n), "similarity", remedy)
    return Similarity(n_agents=n, matrix=checked, name=name, labels=labels)


def _gaussian_weights(
    points: NDArray[np.float64], name: str, bandwidth: float, threshold: float
) -> Matrix:
    """``exp(-distance^2 / (2 bandwidth^2))`` for each pair where this reaches the threshold."""
    if not (0 < bandwidth < math.inf and 0 < threshold < 1):
        raise ValueError(
            f"Got {name}={bandwidth!r}, threshold={threshold!r}, expected floats in (0, inf) and"
            " in (0, 1)."
        )
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
    near = tree.sparse_distance_matrix(tree, radius, output_type="ndarray")
    near = near[near["i"] < near["j"]]
    weights = np.exp(-np.square(near["v"] / bandwidth) / 2)
    kept = weights >= threshold
    # Rounded to ten digits, because the last ones of `exp` differ between mathematical libraries.
    mantissas, exponents = np.frexp(weights[kept])
    rounded = np.ldexp(np.round(mantissas * 2**34) / 2**34, exponents)
    return symmetric_csr(len(points), near["i"][kept], near["j"][kept], rounded)
