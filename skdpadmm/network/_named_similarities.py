"""Similarities by name: of agents with public features near to each other, or directions."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.spatial import KDTree

from skdpadmm.network._similarity import (
    Similarity,
    Weights,
    checked_weights,
    shown,
    symmetric_weights,
)

SIMILARITIES = ("uniform", "knn", "gaussian")

_NEAREST = 10
_THRESHOLD = 1e-3
_LARGEST = 1e100
_MOST_PAIRS = 10_000_000
_PAIRS_AT_ONCE = 100_000


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
        With the labels, where there are any.

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
    points, labels = features_of(features), labels_of(features)
    weights = _knn_weights(points, int(n_neighbors))
    return _with_labels("knn", weights, labels, "Raise n_neighbors")


def gaussian_similarity(
    features: Any, bandwidth: float | None = None, threshold: float = _THRESHOLD
) -> Similarity:
    """Return weights that fall with the squared distance of features.

    ``S_ij = exp(-||f_i - f_j||^2 / (2 bandwidth^2))``, to ten digits, and none where this is below
    the threshold.

    Parameters
    ----------
    features : array-like of shape (n_agents, n_features)
        Public facts about the agents, on scales that can be compared: distances are Euclidean. The
        index of a pandas DataFrame has their labels; anything else is in the order of the sorted
        labels. A guarantee does not cover what is made from private rows: to estimate similarity
        from them needs a budget of its own.
    bandwidth : float or None, default=None
        In (0, inf). None takes the distance from an agent to its 10th nearest, or furthest where
        there are fewer others: the median over all agents.
    threshold : float, default=1e-3
        In (0, 1).

    Returns
    -------
    Similarity
        With the labels, where there are any.

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
    points, labels = features_of(features), labels_of(features)
    if bandwidth is not None:
        _require_float("bandwidth", bandwidth, math.inf)
    _require_float("threshold", threshold, 1.0)
    width = _usual_distance(points) if bandwidth is None else float(bandwidth)
    weights = _gaussian_weights(points, width, float(threshold))
    remedy = "Raise bandwidth or lower threshold"
    return _with_labels("gaussian", weights, labels, remedy)


def angle_similarity(targets: Any, gamma: float = 0.1, threshold: float = _THRESHOLD) -> Similarity:
    """Return weights that fall with the angle between the targets of agents.

    ``S_ij = exp((cos(phi_ij) - 1) / gamma)``, to ten digits, and none where this is below the
    threshold.

    Parameters
    ----------
    targets : array-like of shape (n_agents, n_features)
        A direction for each agent, such as the model that made synthetic rows; the index of a
        pandas DataFrame has labels. Public: models that were fitted to private rows are not, and to
        compare them needs a budget of its own.
    gamma : float, default=0.1
        In (0, inf). The larger, the more alike are agents at an angle.
    threshold : float, default=1e-3
        In (0, 1).

    Returns
    -------
    Similarity
        With the labels, where there are any.

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
    points, labels = features_of(targets, name="targets"), labels_of(targets)
    _require_float("gamma", gamma, math.inf)
    _require_float("threshold", threshold, 1.0)
    largest = np.abs(points).max(axis=1, keepdims=True)
    if not largest.all():
        zero = [labels[i] if labels else i for i in np.flatnonzero(largest == 0).tolist()]
        raise ValueError(
            f"Got targets that are zero for agents {shown(zero)}, expected directions. Leave these"
            " agents out, or give them weights of their own."
        )
    points = points / largest
    points /= np.sqrt((points**2).sum(axis=1, keepdims=True))
    # ||u - v||^2 = 2 - 2 cos for unit vectors, and differences keep the digits of small angles.
    weights = _gaussian_weights(points, math.sqrt(gamma), float(threshold))
    return _with_labels("angle", weights, labels, "Raise gamma or lower threshold")


def named_similarity(name: str, features: Any, names: list[Any]) -> Similarity:
    """The weights of "knn" or "gaussian" for agents with these names, in their order."""
    points, n_agents = features_of(features, names), len(names)
    if name == "gaussian":
        weights = _gaussian_weights(points, _usual_distance(points), _THRESHOLD)
        remedy = "Pass gaussian_similarity(features, bandwidth=...) with a larger bandwidth"
        return _with_labels(name, weights, tuple(names), remedy)
    if n_agents <= _NEAREST + 1:
        raise ValueError(
            f"Got similarity='knn' for {n_agents} agents, expected more than {_NEAREST + 1}: the"
            f" {_NEAREST} nearest of an agent are everybody, as in 'uniform'. Pass"
            " knn_similarity(features, n_neighbors=...) with fewer neighbours, or 'gaussian'."
        )
    remedy = f"Pass knn_similarity(features, n_neighbors=...) with more than {_NEAREST}"
    return _with_labels(name, _knn_weights(points, _NEAREST), tuple(names), remedy)


def labels_of(features: Any) -> tuple[Any, ...] | None:
    """Labels of rows, where a pandas DataFrame has other ones than 0, 1, ..."""
    if not (hasattr(features, "index") and hasattr(features, "columns")):
        return None
    labels = list(features.index)
    return None if labels == list(range(len(labels))) else tuple(labels)


def _with_labels(
    name: str, weights: Weights, labels: tuple[Any, ...] | None, remedy: str
) -> Similarity:
    n_agents = weights.shape[0]
    checked = checked_weights(weights, range(n_agents) if labels is None else labels, remedy)
    return Similarity(n_agents=n_agents, matrix=checked, name=name, labels=labels)


def _knn_weights(points: NDArray[np.float64], n_neighbors: int) -> Weights:
    from sklearn.neighbors import kneighbors_graph

    n = len(points)
    if n == 1:
        return symmetric_weights(1, np.arange(0), np.arange(0), np.ones(0))
    nearest = sparse.csr_array(kneighbors_graph(points, min(n_neighbors, n - 1)))
    return sparse.csr_array((nearest + nearest.T) * 0.5)


def _gaussian_weights(points: NDArray[np.float64], bandwidth: float, threshold: float) -> Weights:
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
    return symmetric_weights(len(points), i[kept], j[kept], _to_ten_digits(weights[kept]))


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


def features_of(
    features: Any, names: list[Any] | None = None, *, name: str = "features"
) -> NDArray[np.float64]:
    """Features with a row for each agent, in the order of the agents, fit to be squared."""
    if names is not None and hasattr(features, "loc"):
        index = list(features.index)
        if set(index) == set(names) and len(index) == len(names):
            features = features.loc[names]
        elif index != list(range(len(names))):
            raise ValueError(
                f"Got {name} with the index {shown(index)}, expected the labels of the agents,"
                f" {shown(names)}, in any order, or no labels."
            )
    called = names or labels_of(features)
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
            f" {shown([called[i] for i in wrong] if called else wrong)}, expected finite ones whose"
            " squares are finite too."
        )
    return points


def _require_float(name: str, value: Any, most: float) -> None:
    if not isinstance(value, Real) or isinstance(value, bool) or not 0 < float(value) < most:
        raise ValueError(f"Got {name}={value!r}, expected a float in (0, {most:g}).")
