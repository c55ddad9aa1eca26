"""From what a user gives to a similarity of the agents: a name, a graph, a matrix, labels."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skdpadmm.network._named_similarities import SIMILARITIES, named_similarity
from skdpadmm.network._similarity import (
    EXPECTED_SIMILARITY,
    Similarity,
    Weights,
    checked_weights,
    shown,
    symmetric_weights,
)

_OF_FEATURES = ("knn", "gaussian")


def resolve_similarity(similarity: Any, labels: NDArray[Any], features: Any = None) -> Similarity:
    """Return the weights that a user names or gives.

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

        One agent has nobody to be like, whatever the name.
    labels : ndarray of shape (n_agents,)
        Names of the agents, sorted and unique.
    features : array-like of shape (n_agents, n_features) or None, default=None
        Public facts about the agents, in the order of the labels, or a pandas DataFrame that has
        them as its index. Only "knn" and "gaussian" take any. A guarantee does not cover what
        is made from private rows: that needs a budget of its own.

    Returns
    -------
    Similarity
        In the order of the labels, which it knows.

    Raises
    ------
    ValueError
        Where these are no weights as in `Similarity`, features are missing or not finite, or are
        given where nothing looks at them.

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
    # As plain values, except dates, which would turn into numbers.
    n, names = len(labels), list(labels) if labels.dtype.kind in "mM" else labels.tolist()
    if features is not None and not (isinstance(similarity, str) and similarity in _OF_FEATURES):
        given = repr(similarity) if isinstance(similarity, str) else type(similarity).__name__
        raise ValueError(
            f"Got features of the agents with similarity={given}, expected one of"
            f" {list(_OF_FEATURES)}: nothing else looks at them. Leave agent_features out, or name"
            " what is to be made of them."
        )
    if isinstance(similarity, Similarity):
        return similarity.for_agents(names)
    if isinstance(similarity, str):
        if similarity not in SIMILARITIES:
            hint = (
                " For angles pass skdpadmm.network.angle_similarity(targets)."
                if "angle" in similarity
                else ""
            )
            raise ValueError(
                f"Got similarity={similarity!r}, expected {EXPECTED_SIMILARITY}.{hint}"
            )
        if similarity == "uniform" or n == 1:
            return Similarity(n_agents=n, name=similarity, labels=tuple(names))
        if features is None:
            raise ValueError(
                f"Got similarity={similarity!r} without features of the agents, expected public"
                f" features of shape ({n}, n_features). Give agent_features, or take 'uniform'."
            )
        return named_similarity(similarity, features, names)
    weights = (
        _weights_of_graph(similarity, names)
        if hasattr(similarity, "is_multigraph")
        else _in_order(similarity, names)
    )
    return Similarity(n_agents=n, matrix=checked_weights(weights, names), labels=tuple(names))


def labels_of_relation(relation: Any) -> list[Any] | None:
    """Return the labels of agents that weights or features have.

    Parameters
    ----------
    relation : object
        What `resolve_similarity` takes as ``similarity`` or as ``features``.

    Returns
    -------
    list or None
        In the order in which they are given; None where there are none.

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
    if hasattr(relation, "index") and hasattr(relation, "columns"):
        return list(relation.index)
    return None


def _weights_of_graph(graph: Any, names: list[Any]) -> Weights:
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
                f"Got a similarity without agents {shown(missing)} and with unknown nodes"
                f" {shown(extra)}, expected the labels of the agents as nodes (or, where labels"
                f" are no numbers, 0, ..., {len(names) - 1} for agents in the order of labels)."
            )
        position = {i: i for i in range(len(names))}
    edges = list(graph.edges(data="weight", default=1.0))
    for a, b, weight in edges:
        if not isinstance(weight, Real):
            raise ValueError(
                f"Got weight={weight!r} of the edge between agents {shown([a, b])}, expected a"
                " real number."
            )
    i = np.array([position[a] for a, _, _ in edges], dtype=np.intp)
    j = np.array([position[b] for _, b, _ in edges], dtype=np.intp)
    return symmetric_weights(len(names), i, j, np.array([w for _, _, w in edges], dtype=np.float64))


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
        f"Got a similarity with rows {shown(rows)} and columns {shown(columns)}, expected the"
        f" labels of the agents, {shown(names)}, in any order, or no labels."
    )
