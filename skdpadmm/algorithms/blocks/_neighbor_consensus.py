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

    def rounds(
        self, solve: Callable[[Array], Array], start: Array
    ) -> Iterator[tuple[Array, Array]]:
        """Models and duals after each round, without an end; duals sum to zero.

        Parameters
        ----------
        solve : callable
            Maps linear terms to the models that agents broadcast.
        start : ndarray of shape (n_agents, ...)
            Models before the first round, the same for all agents.
        """
        pull, duals = self.exchange(start, np.zeros(start.shape))
        while True:
            models = solve(pull)
            pull, duals = self.exchange(models, duals)
            yield models, duals


def averaged_rounds(
    consensus: NeighborConsensus,
    solve: Callable[[Array], Array],
    start: Array,
    *,
    n_rounds: int,
    n_averaged: int,
    progress: Callable[[int], None],
) -> Array:
    """Average of the models of the last rounds.

    Parameters
    ----------
    consensus : NeighborConsensus
    solve : callable
        Maps linear terms to the models that agents broadcast.
    start : ndarray of shape (n_agents, ...)
        Models before the first round, the same for all agents.
    n_rounds, n_averaged : int
    progress : callable
        Told the number of rounds after each of them.

    Returns
    -------
    ndarray of shape (n_agents, ...)
    """
    tail = np.zeros(start.shape)
    rounds = zip(range(n_rounds), consensus.rounds(solve, start), strict=False)
    for k, (models, _) in rounds:
        if k >= n_rounds - n_averaged:
            tail += models
        progress(k + 1)
    return tail / n_averaged


def _column(values: NDArray[np.generic], models: Array) -> Array:
    """One value for each agent, beside models."""
    return np.reshape(values, (-1, *(1,) * (models.ndim - 1)))
