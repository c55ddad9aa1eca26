"""A display of a network, with figures of its agents."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from skdpadmm._pipelines import last_step
from skdpadmm.inspection._display import Display
from skdpadmm.network import Topology, positions_of_labels

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = NDArray[np.float64]

# More labels, or lines, cannot be read.
_MOST_LABELS = 10
_MOST_EDGES = 20_000
# Kamada and Kawai's layout is the clearest, and takes long for larger graphs.
_MOST_PRECISE = 120
_COLORS = ("leak", "epsilon", "disagreement")


@dataclass(kw_only=True, eq=False, repr=False)
class TopologyDisplay(Display):
    """The graph of a network, with agents coloured by epsilon, leak or disagreement.

    Make it by `from_estimator`.

    Parameters
    ----------
    topology : Topology
        The graph.
    agent_labels : ndarray of shape (n_agents,)
    positions : ndarray of shape (n_agents, 2)
    values : ndarray of shape (n_agents,), default=None
        Numbers shown by the colours; None draws all agents alike.
    values_title : str, default=""
        Label of the colour bar.
    peer : label, default=None
        Label of an agent to mark.

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
    def from_estimator(
        cls,
        network: Any,
        *,
        color: str | ArrayLike | None = None,
        color_title: str = "",
        peer: Any = None,
        positions: ArrayLike | None = None,
        cmap: Any = "viridis",
        ax: Axes | None = None,
    ) -> Self:
        """Draw the graph of a network, from releases of a fit and public facts: no privacy loss.

        Parameters
        ----------
        network : estimator or Topology
            A fitted decentralised estimator, a Pipeline that ends in one, or a graph alone, such as
            ``resolve_topology("ring", np.arange(8))``; its agents have the labels 0, 1, ...
        color : str or array-like of shape (n_agents,), default=None
            Quantity shown by the colour of an agent. Names need an estimator.

            - "leak": its epsilon against the agent `peer`, ``privacy_.pairwise``. If the theorem
              tells pairs apart it is computed for each of them: seconds for 50 agents.
            - "epsilon": its epsilon against the adversary, ``privacy_.epsilon_per_agent``.
            - "disagreement": Euclidean distance of its coefficients and intercepts from the
              average, in the user's units; their root mean square is ``consensus_error_``.
            - An array: finite numbers in the order of the sorted labels.
            - None: all agents alike.
        color_title : str, default=""
            Label of the colour bar of an array, with its unit.
        peer : label, default=None
            Label of an agent to mark; "leak" needs one.
        positions : array-like of shape (n_agents, 2), default=None
            Where to draw the agents. None: a circle for a complete graph or a ring, the hub in the
            middle of a star, otherwise a layout by networkx, the same each time.
        cmap : str or Colormap, default="viridis"
        ax : Axes, default=None
            Where to draw; None makes a figure.

        Raises
        ------
        ImportError, NotFittedError, ValueError
            Without matplotlib (``skdpadmm[plot]``), or where there is no graph, or colours need
            what is missing: a peer, a private fit, or a number for each agent.

        Examples
        --------
        >>> import numpy as np
        >>> from skdpadmm.inspection import TopologyDisplay
        >>> from skdpadmm.network import resolve_topology
        >>> torus = resolve_topology("torus", np.arange(20))
        >>> hops = torus.distances_from(7)
        >>> TopologyDisplay.from_estimator(torus, color=hops, color_title="hops", peer=7)
        ... # doctest: +SKIP
        <...>
        """
        network = last_step(network)
        if isinstance(network, Topology):
            topology, labels = network, np.arange(network.n_agents)
        elif hasattr(network, "topology"):
            check_is_fitted(network)
            topology, labels = network.topology_, network.agent_labels_
        else:
            raise ValueError(
                f"Got {network!r}, expected a fitted decentralised estimator or a Topology, such as"
                " resolve_topology('ring', np.arange(8))."
            )
        if peer is not None:
            positions_of_labels([peer], labels, n_samples=1, name="peer")
        values, n_agents = None, topology.n_agents
        if isinstance(color, str):
            values, color_title = _named_colors(network, color, peer)
        elif color is not None:
            values = _checked(color, "color", (n_agents,))
        places = _layout(topology)
        if positions is not None:
            places = _checked(positions, "positions", (n_agents, 2))
        display = cls(
            topology=topology,
            agent_labels=labels,
            positions=places,
            values=values,
            values_title=color_title,
            peer=peer,
        )
        return display.plot(ax, cmap=cmap)

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
        colors = {"c": "C0"} if values is None else {"c": values[~is_peer], "cmap": cmap}
        x, y = places.T
        points = ax.scatter(x[~is_peer], y[~is_peer], size, zorder=2, **style, **colors)
        self.points_: list[Any] = [points]
        if values is not None and not is_peer.all():
            ax.figure.colorbar(points, ax=ax, shrink=0.8, label=self.values_title)
        if is_peer.any():
            style |= {"linewidths": 0.5, "color": "C1", "label": f"agent {self.peer}"}
            size = max(2.5 * size, 120)
            star = ax.scatter(x[is_peer], y[is_peer], size, marker="*", zorder=3, **style)
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


def _checked(values: ArrayLike, name: str, shape: tuple[int, ...]) -> Floats:
    """Finite numbers for each agent, of a shape."""
    numbers = np.asarray(values, dtype=np.float64)
    if numbers.shape != shape or not np.isfinite(numbers).all():
        raise ValueError(
            f"Got {name} of shape {numbers.shape}, expected finite numbers of shape {shape}, in the"
            " order of the sorted labels of agents."
        )
    return numbers


def _named_colors(network: Any, color: str, peer: Any) -> tuple[Floats, str]:
    """A number for each agent, and the label of the colour bar."""
    if color not in _COLORS:
        raise ValueError(f"Got color={color!r}, expected one of {[*_COLORS]}, an array or None.")
    if isinstance(network, Topology):
        raise ValueError(
            f"Got color={color!r} for a Topology, expected a fitted estimator. Of a graph alone"
            " pass an array, or None."
        )
    if color == "disagreement":
        distances = np.sqrt(network._squared_disagreements())
        return distances, "distance from the average model"
    # Who joined later is no node of the graph.
    report = (*network.privacy_.fits, network.privacy_)[0]
    if math.isinf(report.epsilon()):
        raise ValueError(
            f"Got color={color!r} for a fit that is not private, expected a finite epsilon."
        )
    if color == "epsilon":
        values, against = report.epsilon_per_agent(), f"the {report.adversary}"
    elif peer is None:
        raise ValueError("Got color='leak' without peer, expected the label of an agent: peer=....")
    else:
        leaks = [math.nan if a == peer else report.pairwise(a, peer) for a in report.agent_labels]
        values, against = leaks, peer
    return np.asarray(values), f"epsilon against {against} (delta={report.delta:g})"


def _layout(topology: Topology) -> Floats:
    """Where to draw the agents (n_agents, 2)."""
    n_agents = topology.n_agents
    if topology.is_complete or topology.name == "ring":
        return _circle(n_agents)
    if topology.name == "star":
        return np.vstack([np.zeros((1, 2)), _circle(n_agents - 1)])
    import networkx as nx

    graph = nx.Graph(topology.edges.tolist())
    if n_agents <= _MOST_PRECISE:
        placed = nx.kamada_kawai_layout(graph)
    else:
        placed = nx.spring_layout(graph, iterations=100, seed=0)
    return np.array([placed[agent] for agent in range(n_agents)])


def _circle(n_agents: int) -> Floats:
    angles = np.pi / 2 - 2 * np.pi * np.arange(n_agents) / max(n_agents, 1)
    return np.column_stack([np.cos(angles), np.sin(angles)])
