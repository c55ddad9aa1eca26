"""Consensus ADMM over a graph, whatever agents do to solve problems of their own.

Source: Huang & Gong, "Differentially Private ADMM for Convex Distributed Learning: Improved
Accuracy via Multi-Step Approximation", equations (6) to (9).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from skdpadmm.network import Topology

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False, kw_only=True)
class NeighborConsensus:
    """The constraint that neighbours agree; arrays are of shape (n_agents, ...).

    Attributes
    ----------
    topology : Topology
    penalty_weight : float
        [rho].
    """

    topology: Topology
    penalty_weight: float

    @cached_property
    def curvature(self) -> Array:
        """``2 rho deg`` of each agent; one that is alone counts as its own neighbour."""
        return 2.0 * self.penalty_weight * np.maximum(self.topology.degrees, 1)

    def disagreement(self, models: Array) -> Array:
        """Sum of the differences from each neighbour's model."""
        return _column(self.topology.degrees, models) * models - self.topology.neighbor_sum(models)

    def pull(self, models: Array, duals: Array) -> Array:
        """Linear term p of agents' problems ``L_a(w) + curvature / 2 |w|^2 - <p, w>``."""
        kept = _column(self.curvature, models) * models
        return 2 * duals + kept - self.penalty_weight * self.disagreement(models)

    def rounds(
        self, solve: Callable[[Array], Array], start: Array
    ) -> Iterator[tuple[Array, Array]]:
        """Models and duals after each round, without an end; duals sum to zero.

        Parameters
        ----------
        solve : callable
            Maps linear terms to the models that agents broadcast.
        start : ndarray of shape (n_agents, ...)
            Models before the first round, known to all.
        """
        models, duals = start, np.zeros(start.shape)
        while True:
            models = solve(self.pull(models, duals))
            duals = duals - self.penalty_weight / 2 * self.disagreement(models)
            yield models, duals


def _column(values: NDArray[np.generic], models: Array) -> Array:
    """One value for each agent, beside models."""
    return np.reshape(values, (-1, *(1,) * (models.ndim - 1)))
