"""A display of who talks to whom, and of what that means for each agent."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from skdpadmm.inspection._display import Display, last_step
from skdpadmm.network import Topology, positions_of_labels

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = NDArray[np.float64]

# Beyond these a label, or a line, is no longer told from its neighbours.
_MOST_LABELS = 40
_MOST_EDGES = 20_000
# Kamada and Kawai's layout is the clearest, and takes long for larger graphs, lattices excepted.
_MOST_PRECISE = 120
_MOST_PRECISE_OF_LATTICE = 600
_LATTICES = ("grid", "path", "torus")
_COLORS = ("leak", "epsilon", "disagreement")


@dataclass(kw_only=True, eq=False, repr=False)
class TopologyDisplay(Display):
    """Who talks to whom, and what that means for each agent.

    Make it by `from_estimator` or `from_topology`, which work out what colours say.

    Parameters
    ----------
    topology : Topology
        The graph.
    agent_labels : ndarray of shape (n_agents,)
    positions : ndarray of shape (n_agents, 2)
    values : ndarray of shape (n_agents,), default=None
        What their colours say; None: all alike.
    values_title : str, default=""
        What the colour bar says.
    peer : label, default=None
        Of an agent to be marked.

    Attributes
    ----------
    ax_, figure_ : matplotlib Axes and Figure
    lines_, points_ : list of LineCollection and list of PathCollection
        Edges, none where there are more than 20,000; and agents, last the one that is marked.
    """

    topology: Topology
    agent_labels: NDArray[Any]
    positions: Floats
    values: Floats | None = None
    values_title: str = ""
    peer: Any = None

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Axes | None = None, **drawing: Any) -> Self:
        """Draw the graph of a fitted decentralised estimator, at no cost of privacy.

        It may be a Pipeline that ends in one. `drawing` are `color`, `color_title`, `peer` and
        `positions`, with the errors of `plot_network`.
        """
        return cls(**_parts(last_step(estimator), **drawing)).plot(ax)

    @classmethod
    def from_topology(cls, topology: Topology, *, ax: Axes | None = None, **drawing: Any) -> Self:
        """Draw a graph alone, such as `resolve_topology` makes; its agents are called 0, 1, ..."""
        if not isinstance(topology, Topology):
            raise ValueError(
                f"Got {topology!r}, expected a Topology, such as resolve_topology('ring',"
                " np.arange(8))."
            )
        return cls(**_parts(topology, **drawing)).plot(ax)

    def plot(self, ax: Axes | None = None, *, cmap: Any = "viridis") -> Self:
        """Draw the graph, with colours of agents by the colormap `cmap`; return itself."""
        ax = self._axes(ax, 6.4, 5.4)
        from matplotlib.collections import LineCollection
        from matplotlib.patheffects import withStroke

        topology, places, values = self.topology, self.positions, self.values
        is_peer = np.zeros(topology.n_agents, dtype=bool)
        if self.peer is not None:
            is_peer[self.agent_labels.tolist().index(self.peer)] = True
        self.lines_: list[Any] = []
        shown = topology.n_edges <= _MOST_EDGES
        if shown:
            ends = places[topology.edges].tolist()
            # Fainter where many lines cross.
            alpha = float(np.clip(2 * topology.n_agents / max(topology.n_edges, 1), 0.05, 0.7))
            edges = LineCollection(ends, colors="0.35", linewidths=0.8, alpha=alpha, zorder=1)
            self.lines_.append(ax.add_collection(edges))
        size = float(np.clip(6_000 / topology.n_agents, 14, 260))
        style: dict[str, Any] = {"edgecolors": "white", "linewidths": min(0.03 * size**0.5, 0.5)}
        colors = {"c": "tab:blue"} if values is None else {"c": values[~is_peer], "cmap": cmap}
        points = ax.scatter(
            places[~is_peer, 0], places[~is_peer, 1], size, zorder=2, **style, **colors
        )
        self.points_: list[Any] = [points]
        if values is not None and not is_peer.all():
            ax.figure.colorbar(points, ax=ax, shrink=0.8, label=self.values_title)
        if is_peer.any():
            style |= {"linewidths": 0.5, "color": "tab:red", "label": f"agent {self.peer}"}
            place, size = places[is_peer], max(2.5 * size, 120)
            star = ax.scatter(place[:, 0], place[:, 1], size, marker="*", zorder=3, **style)
            self.points_.append(star)
            ax.legend(loc="upper left", bbox_to_anchor=(0, 0), frameon=False)
        if topology.n_agents <= _MOST_LABELS:
            halo = [withStroke(linewidth=2, foreground="white")]
            centred: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 7, "zorder": 4}
            for place, label in zip(places, self.agent_labels.tolist(), strict=True):
                ax.annotate(str(label), place, path_effects=halo, **centred)
        ax.set_title(topology.describe() + ("" if shown else ", not drawn"), fontsize=10)
        ax.set_aspect("equal")
        ax.margins(0.08)
        ax.set_axis_off()
        return self


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
        Its title describes the graph. There are no lines where there were more than 20,000, and no
        labels of more than 40 agents.

    Raises
    ------
    ImportError, NotFittedError, ValueError
        Without matplotlib (``skdpadmm[plot]``), or where there is no graph, or colours ask for what
        there is not: a peer, a private fit, or a number for each agent.

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
    display = TopologyDisplay(**_parts(network, color, color_title, peer, positions))
    return display.plot(ax, cmap=cmap).ax_


def _parts(
    network: Any,
    color: str | ArrayLike | None = None,
    color_title: str = "",
    peer: Any = None,
    positions: ArrayLike | None = None,
) -> dict[str, Any]:
    """The parameters of a `TopologyDisplay`."""
    if isinstance(network, Topology):
        topology, labels = network, np.arange(network.n_agents)
    elif hasattr(network, "topology"):
        check_is_fitted(network)
        topology, labels = network.topology_, network.agent_labels_
    else:
        raise ValueError(
            f"Got {network!r}, expected a fitted decentralised estimator or a Topology, such as"
            " resolve_topology('ring', labels)."
        )
    if peer is not None:
        positions_of_labels([peer], labels, n_samples=1, name="peer")
    values = None
    if isinstance(color, str):
        values, color_title = _named_colors(network, color, peer)
    elif color is not None:
        values = np.asarray(color, dtype=np.float64)
        if values.shape != (topology.n_agents,) or not np.isfinite(values).all():
            raise ValueError(
                f"Got color of shape {values.shape}, expected a finite number for each of"
                f" {topology.n_agents} agents, in the order of their sorted labels."
            )
    return {
        "topology": topology,
        "agent_labels": labels,
        "positions": _places(topology, positions),
        "values": values,
        "values_title": color_title,
        "peer": peer,
    }


def _named_colors(network: Any, color: str, peer: Any) -> tuple[Floats, str]:
    """A number for each agent, and what the colour bar says of them."""
    if color not in _COLORS:
        raise ValueError(f"Got color={color!r}, expected one of {[*_COLORS]}, an array or None.")
    if isinstance(network, Topology):
        raise ValueError(
            f"Got color={color!r} for a Topology, expected a fitted estimator: a graph alone says"
            " nothing of it. Pass an array, or None."
        )
    if color == "disagreement":
        return _disagreement(network), "distance from the average model"
    report = network.privacy_
    if math.isinf(report.epsilon()):
        raise ValueError(
            f"Got color={color!r} for a fit that is not private, expected a finite epsilon."
        )
    if color == "epsilon":
        values, against = report.epsilon_per_agent(), f"the {report.adversary}"
    elif peer is None:
        raise ValueError("Got color='leak' without peer, expected the label of an agent.")
    else:
        leaks = [math.nan if a == peer else report.pairwise(a, peer) for a in report.agent_labels]
        values, against = leaks, peer
    return np.asarray(values), f"epsilon against {against} (delta={report.delta:g})"


def _disagreement(network: Any) -> Floats:
    """Distance of each agent's coefficients and intercepts from the average (n_agents,)."""
    n_agents = len(network.agent_labels_)
    gaps = (
        network.coef_per_agent_ - network.coef_,
        network.intercept_per_agent_ - network.intercept_,
    )
    squares = [np.square(gap).reshape(n_agents, -1).sum(axis=1) for gap in gaps]
    return np.sqrt(np.sum(squares, axis=0))


def _places(topology: Topology, positions: ArrayLike | None) -> Floats:
    """Where to draw the agents (n_agents, 2)."""
    n_agents = topology.n_agents
    if positions is not None:
        places = np.asarray(positions, dtype=np.float64)
        if places.shape != (n_agents, 2) or not np.isfinite(places).all():
            raise ValueError(
                f"Got positions of shape {places.shape}, expected finite ones of shape"
                f" ({n_agents}, 2)."
            )
        return places
    if topology.is_complete or topology.name == "ring":
        return _circle(n_agents)
    if topology.name == "star":
        return np.vstack([np.zeros((1, 2)), _circle(n_agents - 1)])
    import networkx as nx

    graph = nx.Graph(topology.edges.tolist())
    if n_agents <= (_MOST_PRECISE_OF_LATTICE if topology.name in _LATTICES else _MOST_PRECISE):
        placed = nx.kamada_kawai_layout(graph)
    else:
        placed = nx.spring_layout(graph, iterations=100, seed=0)
    return np.array([placed[agent] for agent in range(n_agents)])


def _circle(n_agents: int) -> Floats:
    angles = np.pi / 2 - 2 * np.pi * np.arange(n_agents) / max(n_agents, 1)
    return np.column_stack([np.cos(angles), np.sin(angles)])
