"""A picture of who talks to whom, and of what that means for each agent."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from skdpadmm.network import Topology, positions_of_labels

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Beyond these a label, or a line, is no longer told from its neighbours.
_MOST_LABELS = 40
_MOST_EDGES = 20_000
# Kamada and Kawai's layout is the clearest, and takes long for larger graphs, lattices excepted.
_MOST_PRECISE = 120
_MOST_PRECISE_OF_LATTICE = 600
_LATTICES = ("grid", "path", "torus")


@dataclass(frozen=True, kw_only=True)
class _Colors:
    """A number for each agent, and what the colour bar says about them."""

    values: NDArray[np.float64]
    title: str


def plot_network(
    network: Any,
    *,
    color: str | ArrayLike | None = None,
    color_title: str = "",
    peer: Any = None,
    positions: ArrayLike | None = None,
    cmap: Any = "viridis",
    ax: Axes | None = None,
) -> Axes:
    """Draw the graph of a network, its agents coloured by what they leak, risk or learn.

    It reads what a fit released and what is public, so a picture costs no privacy.

    Parameters
    ----------
    network : estimator or Topology
        A fitted decentralised estimator, or a graph alone; its agents have the labels 0, 1, ...
    color : str or array-like of shape (n_agents,), default=None
        What the colour of an agent says. The words need an estimator.

        - "leak": epsilon of the agent against the agent `peer`, ``privacy_.pairwise``. Where the
          theorem tells pairs apart it is computed for each of them: seconds for 50 agents.
        - "epsilon": its epsilon against the adversary, ``privacy_.epsilon_per_agent``.
        - "disagreement": Euclidean distance of its coefficients and intercepts from the average, in
          the user's units; the root mean square of them is ``consensus_error_``.
        - An array: finite numbers in the order of the sorted labels.
        - None: all agents alike.
    color_title : str, default=""
        What the colour bar says of an array, with its unit.
    peer : label, default=None
        Of an agent to be marked; "leak" needs one.
    positions : array-like of shape (n_agents, 2), default=None
        Where to draw the agents. None: a circle for a complete graph or a ring, the hub in the
        middle of a star, otherwise a layout by networkx, the same each time.
    cmap : str or Colormap, default="viridis"
    ax : Axes, default=None
        Where to draw; None makes a figure.

    Returns
    -------
    ax : Axes
        Its title describes the graph. Lines are left out where there are more than 20,000, and
        labels where there are more than 40 agents.

    Raises
    ------
    ImportError
        Without matplotlib, which the extra ``skdpadmm[plot]`` has.
    NotFittedError
        If the estimator is not fitted.
    ValueError
        Where colours ask for what there is not: a peer, a private fit, or a number for each agent.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpadmm.inspection import plot_network
    >>> from skdpadmm.network import resolve_topology
    >>> torus = resolve_topology("torus", np.arange(20))
    >>> plot_network(torus, color=torus.distances_from(7), color_title="hops", peer=7)
    ... # doctest: +SKIP
    <Axes: title={'center': 'torus, 40 edges, degree 4'}>
    """
    try:
        from matplotlib import pyplot as plt
        from matplotlib.collections import LineCollection
        from matplotlib.patheffects import withStroke
    except ImportError as error:
        raise ImportError("plot_network needs matplotlib: pip install 'skdpadmm[plot]'") from error
    topology, labels = _graph(network)
    marked = None if peer is None else _position(peer, labels)
    colors = _colors(network, color, color_title, topology.n_agents, marked, peer)
    places = _places(topology, positions)

    if ax is None:
        ax = plt.figure(figsize=(6.5, 5.5), layout="constrained").add_subplot()
    shown = topology.n_edges <= _MOST_EDGES
    if shown:
        ax.add_collection(
            LineCollection(
                places[topology.edges].tolist(),
                colors="0.35",
                linewidths=0.8,
                alpha=_opacity(topology),
                zorder=1,
            )
        )
    size = float(np.clip(6_000 / topology.n_agents, 14, 260))
    others = np.flatnonzero(np.arange(topology.n_agents) != (-1 if marked is None else marked))
    points = ax.scatter(
        places[others, 0],
        places[others, 1],
        s=size,
        c="tab:blue" if colors is None else colors.values[others],
        cmap=None if colors is None else cmap,
        edgecolors="white",
        linewidths=min(0.03 * math.sqrt(size), 0.5),
        zorder=2,
    )
    if colors is not None and len(others):
        ax.figure.colorbar(points, ax=ax, shrink=0.8, label=colors.title)
    if marked is not None:
        ax.scatter(
            places[marked, 0],
            places[marked, 1],
            s=max(2.5 * size, 120),
            marker="*",
            color="tab:red",
            edgecolors="white",
            linewidths=0.5,
            label=f"agent {peer}",
            zorder=3,
        )
        ax.legend(loc="upper left", bbox_to_anchor=(0, 0), frameon=False)
    if topology.n_agents <= _MOST_LABELS:
        for place, label in zip(places, labels.tolist(), strict=True):
            ax.annotate(
                str(label),
                place,
                ha="center",
                va="center",
                fontsize=7,
                path_effects=[withStroke(linewidth=2, foreground="white")],
                zorder=4,
            )
    ax.set_title(topology.describe() + ("" if shown else ", not drawn"), fontsize=10)
    ax.set_aspect("equal")
    ax.margins(0.08)
    ax.set_axis_off()
    return ax


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


def _opacity(topology: Topology) -> float:
    """Fainter where many lines cross."""
    return float(np.clip(2 * topology.n_agents / max(topology.n_edges, 1), 0.05, 0.7))
