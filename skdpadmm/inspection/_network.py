"""What is drawn of a network: its graph, what colours say of agents, and where they are."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from skdpadmm.network import Topology, positions_of_labels

# Kamada and Kawai's layout is the clearest, and takes long for larger graphs, lattices excepted.
_MOST_PRECISE = 120
_MOST_PRECISE_OF_LATTICE = 600
_LATTICES = ("grid", "path", "torus")


@dataclass(frozen=True, kw_only=True)
class _Colors:
    """A number for each agent, and what the colour bar says about them."""

    values: NDArray[np.float64]
    title: str


def network_parts(
    network: Any,
    color: str | ArrayLike | None,
    color_title: str,
    peer: Any,
    positions: ArrayLike | None,
) -> dict[str, Any]:
    """What is drawn of a network: the parameters of a `TopologyDisplay`."""
    topology, labels = _graph(network)
    marked = None if peer is None else _position(peer, labels)
    colors = _colors(network, color, color_title, topology.n_agents, marked, peer)
    return {
        "topology": topology,
        "agent_labels": labels,
        "positions": _places(topology, positions),
        "values": None if colors is None else colors.values,
        "values_title": "" if colors is None else colors.title,
        "peer": peer,
    }


def _graph(network: Any) -> tuple[Topology, NDArray[Any]]:
    """The graph and the labels of its agents."""
    if isinstance(network, Topology):
        return network, np.arange(network.n_agents)
    if not hasattr(network, "topology"):
        raise ValueError(
            f"Got {network!r}, expected a fitted decentralised estimator or a Topology, such as"
            " resolve_topology('ring', labels)."
        )
    check_is_fitted(network)
    return network.topology_, network.agent_labels_


def _position(peer: Any, labels: NDArray[Any]) -> int:
    return int(positions_of_labels([peer], labels, n_samples=1, name="peer")[0])


def _colors(
    network: Any,
    color: str | ArrayLike | None,
    title: str,
    n_agents: int,
    marked: int | None,
    peer: Any,
) -> _Colors | None:
    if color is None:
        return None
    if isinstance(color, str):
        return _named_colors(network, color, marked, peer)
    values = np.asarray(color, dtype=np.float64)
    if values.shape != (n_agents,) or not np.isfinite(values).all():
        raise ValueError(
            f"Got color of shape {values.shape}, expected a finite number for each of"
            f" {n_agents} agents, in the order of their sorted labels."
        )
    return _Colors(values=values, title=title)


def _named_colors(network: Any, color: str, marked: int | None, peer: Any) -> _Colors:
    if color not in (*_BY_REPORT, "disagreement"):
        words = [*_BY_REPORT, "disagreement"]
        raise ValueError(f"Got color={color!r}, expected one of {words}, an array or None.")
    if isinstance(network, Topology):
        raise ValueError(
            f"Got color={color!r} for a Topology, expected a fitted estimator: a graph alone says"
            " nothing of it. Pass an array, or None."
        )
    if color == "disagreement":
        return _Colors(values=_disagreement(network), title="distance from the average model")
    report = network.privacy_
    if math.isinf(report.epsilon()):
        raise ValueError(
            f"Got color={color!r} for a fit that is not private, expected a finite epsilon."
        )
    if color == "leak" and marked is None:
        raise ValueError("Got color='leak' without peer, expected the label of an agent.")
    values = _BY_REPORT[color](report, marked, len(network.agent_labels_))
    against = peer if color == "leak" else f"the {report.adversary}"
    return _Colors(values=values, title=f"epsilon against {against} (delta={report.delta:g})")


def _leak(report: Any, marked: int, n_agents: int) -> NDArray[np.float64]:
    """Epsilon of each agent against one of them; not a number for that one."""
    labels = report.agent_labels
    return np.array(
        [math.nan if a == labels[marked] else report.pairwise(a, labels[marked]) for a in labels]
    )


def _epsilon(report: Any, marked: int | None, n_agents: int) -> NDArray[np.float64]:
    return np.asarray(report.epsilon_per_agent())


_BY_REPORT: Mapping[str, Callable[..., NDArray[np.float64]]] = MappingProxyType(
    {"leak": _leak, "epsilon": _epsilon}
)


def _disagreement(network: Any) -> NDArray[np.float64]:
    """Distance of each agent's coefficients and intercepts from the average (n_agents,)."""
    n_agents = len(network.agent_labels_)
    pairs = [
        (network.coef_per_agent_, network.coef_),
        (network.intercept_per_agent_, network.intercept_),
    ]
    squares = [np.square(own - mean).reshape(n_agents, -1).sum(axis=1) for own, mean in pairs]
    return np.sqrt(np.sum(squares, axis=0))


def _places(topology: Topology, positions: ArrayLike | None) -> NDArray[np.float64]:
    """Where to draw the agents (n_agents, 2)."""
    if positions is not None:
        places = np.asarray(positions, dtype=np.float64)
        if places.shape != (topology.n_agents, 2) or not np.isfinite(places).all():
            raise ValueError(
                f"Got positions of shape {places.shape}, expected finite ones of shape"
                f" ({topology.n_agents}, 2)."
            )
        return places
    if topology.is_complete or topology.name == "ring":
        return _circle(topology.n_agents)
    if topology.name == "star":
        return np.vstack([np.zeros((1, 2)), _circle(topology.n_agents - 1)])
    import networkx as nx

    graph = nx.Graph(topology.edges.tolist())
    is_lattice = topology.name in _LATTICES
    most = _MOST_PRECISE_OF_LATTICE if is_lattice else _MOST_PRECISE
    if topology.n_agents <= most:
        placed = nx.kamada_kawai_layout(graph)
    else:
        placed = nx.spring_layout(graph, iterations=100, seed=0)
    return np.array([placed[agent] for agent in range(topology.n_agents)])


def _circle(n_agents: int) -> NDArray[np.float64]:
    angles = np.pi / 2 - 2 * np.pi * np.arange(n_agents) / max(n_agents, 1)
    return np.column_stack([np.cos(angles), np.sin(angles)])
