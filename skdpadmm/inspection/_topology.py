"""A picture of who talks to whom, and of what that means for each agent."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from skdpadmm.inspection._network import network_parts
from skdpadmm.inspection._shared import axes_for, last_step, require_pyplot
from skdpadmm.network import Topology

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Beyond these a label, or a line, is no longer told from its neighbours.
_MOST_LABELS = 40
_MOST_EDGES = 20_000


class TopologyDisplay:
    """Who talks to whom, and what that means for each agent.

    Make it by `from_estimator` or `from_topology`, which work out what colours say; `plot`
    draws it as often as one likes.

    Parameters
    ----------
    topology : Topology
        The graph.
    agent_labels : ndarray of shape (n_agents,)
        What its agents are called.
    positions : ndarray of shape (n_agents, 2)
        Where they are drawn.
    values : ndarray of shape (n_agents,), default=None
        What their colours say; None: all alike.
    values_title : str, default=""
        What the colour bar says.
    peer : label, default=None
        Of an agent to be marked.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Where it was drawn.
    figure_ : matplotlib Figure
        With these axes.
    lines_ : list of LineCollection
        The lines between agents; empty where there are more than 20,000.
    points_ : list of PathCollection
        The agents; last the one that is marked, where one is.

    See Also
    --------
    plot_network : The same picture by a function, which returns the axes.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpadmm.inspection import TopologyDisplay
    >>> from skdpadmm.network import resolve_topology
    >>> torus = resolve_topology("torus", np.arange(20))
    >>> TopologyDisplay.from_topology(torus)  # doctest: +SKIP
    <...>
    """

    def __init__(
        self,
        *,
        topology: Topology,
        agent_labels: NDArray[Any],
        positions: NDArray[np.float64],
        values: NDArray[np.float64] | None = None,
        values_title: str = "",
        peer: Any = None,
    ) -> None:
        self.topology = topology
        self.agent_labels = agent_labels
        self.positions = positions
        self.values = values
        self.values_title = values_title
        self.peer = peer

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        *,
        color: str | ArrayLike | None = None,
        color_title: str = "",
        peer: Any = None,
        positions: ArrayLike | None = None,
        ax: Axes | None = None,
    ) -> Self:
        """Draw the graph of a fitted decentralised estimator.

        It reads what a fit released and what is public, so a picture costs no privacy.

        Parameters
        ----------
        estimator : estimator
            Decentralised and fitted, or a Pipeline that ends in one.
        color, color_title, peer, positions, ax : object
            As in `plot_network`.

        Returns
        -------
        display : TopologyDisplay

        Raises
        ------
        ImportError
            Without matplotlib, which the extra ``skdpadmm[plot]`` has.
        NotFittedError
            If the estimator is not fitted.
        ValueError
            If it has no graph, or where colours ask for what there is not.
        """
        require_pyplot(f"{cls.__name__}.from_estimator")
        network = last_step(estimator)
        return cls(**network_parts(network, color, color_title, peer, positions)).plot(ax)

    @classmethod
    def from_topology(
        cls,
        topology: Topology,
        *,
        color: ArrayLike | None = None,
        color_title: str = "",
        peer: Any = None,
        positions: ArrayLike | None = None,
        ax: Axes | None = None,
    ) -> Self:
        """Draw a graph alone; its agents have the labels 0, 1, ...

        Parameters
        ----------
        topology : Topology
            As :func:`~skdpadmm.network.resolve_topology` makes it of a name, a graph or a matrix.
        color : array-like of shape (n_agents,), default=None
            A number for each agent.
        color_title, peer, positions, ax : object
            As in `plot_network`.

        Returns
        -------
        display : TopologyDisplay

        Raises
        ------
        ImportError
            Without matplotlib, which the extra ``skdpadmm[plot]`` has.
        ValueError
            If it is no graph, or where colours ask for what there is not.
        """
        require_pyplot(f"{cls.__name__}.from_topology")
        if not isinstance(topology, Topology):
            raise ValueError(
                f"Got {topology!r}, expected a Topology, such as resolve_topology('ring',"
                " np.arange(8))."
            )
        return cls(**network_parts(topology, color, color_title, peer, positions)).plot(ax)

    def plot(self, ax: Axes | None = None, *, cmap: Any = "viridis") -> Self:
        """Draw the graph.

        Parameters
        ----------
        ax : Axes, default=None
            Where to draw; None makes a figure.
        cmap : str or Colormap, default="viridis"
            Of the agents' colours.

        Returns
        -------
        display : TopologyDisplay
            Itself.
        """
        ax = axes_for(ax, f"{type(self).__name__}.plot", (6.4, 5.4))
        from matplotlib.collections import LineCollection
        from matplotlib.patheffects import withStroke

        topology, places, values = self.topology, self.positions, self.values
        is_peer = np.zeros(topology.n_agents, dtype=bool)
        if self.peer is not None:
            is_peer[self.agent_labels.tolist().index(self.peer)] = True
        self.lines_: list[Any] = []
        self.points_: list[Any] = []
        shown = topology.n_edges <= _MOST_EDGES
        if shown:
            edges = LineCollection(
                places[topology.edges].tolist(),
                colors="0.35",
                linewidths=0.8,
                alpha=_opacity(topology),
                zorder=1,
            )
            self.lines_.append(ax.add_collection(edges))
        size = float(np.clip(6_000 / topology.n_agents, 14, 260))
        points = ax.scatter(
            places[~is_peer, 0],
            places[~is_peer, 1],
            s=size,
            c="tab:blue" if values is None else values[~is_peer],
            cmap=None if values is None else cmap,
            edgecolors="white",
            linewidths=min(0.03 * math.sqrt(size), 0.5),
            zorder=2,
        )
        self.points_.append(points)
        if values is not None and not is_peer.all():
            ax.figure.colorbar(points, ax=ax, shrink=0.8, label=self.values_title)
        if is_peer.any():
            star = ax.scatter(
                places[is_peer, 0],
                places[is_peer, 1],
                s=max(2.5 * size, 120),
                marker="*",
                color="tab:red",
                edgecolors="white",
                linewidths=0.5,
                label=f"agent {self.peer}",
                zorder=3,
            )
            self.points_.append(star)
            ax.legend(loc="upper left", bbox_to_anchor=(0, 0), frameon=False)
        if topology.n_agents <= _MOST_LABELS:
            for place, label in zip(places, self.agent_labels.tolist(), strict=True):
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
        self.ax_, self.figure_ = ax, ax.figure
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
    require_pyplot("plot_network")
    parts = network_parts(network, color, color_title, peer, positions)
    return TopologyDisplay(**parts).plot(ax, cmap=cmap).ax_


def _opacity(topology: Topology) -> float:
    """Fainter where many lines cross."""
    return float(np.clip(2 * topology.n_agents / max(topology.n_edges, 1), 0.05, 0.7))
