"""Consensus ADMM over a graph, whatever agents do to solve problems of their own.

Source: Huang & Gong, "Differentially Private ADMM for Convex Distributed Learning: Improved
Accuracy via Multi-Step Approximation", equations (6) to (9).
"""

from __future__ import annotations

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

    def exchange(self, models: Array, duals: Array) -> tuple[Array, Array]:
        """What follows from a broadcast of models.

        Parameters
        ----------
        models, duals : ndarray of shape (n_agents, ...)

        Returns
        -------
        pull : ndarray of shape (n_agents, ...)
            Linear term p of agents' next problems ``L_a(w) + curvature / 2 |w|^2 - <p, w>``.
        duals : ndarray of shape (n_agents, ...)
        """
        heard = self.topology.neighbor_sum(models)
        apart = self.penalty_weight * (_column(self.topology.degrees, models) * models - heard)
        duals = duals - apart / 2
        return 2 * duals + _column(self.curvature, models) * models - apart, duals


def _column(values: NDArray[np.generic], models: Array) -> Array:
    """One value for each agent, beside models."""
    return np.reshape(values, (-1, *(1,) * (models.ndim - 1)))
