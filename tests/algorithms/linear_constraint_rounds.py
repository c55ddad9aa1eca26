"""ADMM for ``min sum_i f_i(x_i)`` subject to ``sum_i A_i x_i = c``, all agents at once.

Source: Xiao, "Local Differential Privacy in Decentralized Optimization", MIT 2019, equations (3.5)
and (J.17). Consensus over a graph is the case of its incidence matrix.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False, kw_only=True)
class ConstraintOfAgents:
    """What the models of agents have to fulfil together.

    Attributes
    ----------
    maps : sequence of ndarray of shape (n_constraints, n_parameters_i)
        [A_i], one for each agent.
    target : ndarray of shape (n_constraints,)
        [c].
    """

    maps: Sequence[Array]
    target: Array

    @cached_property
    def norm(self) -> float:
        """Largest singular value of all maps side by side."""
        return float(np.linalg.norm(np.hstack(list(self.maps)), 2))

    def residual(self, models: Sequence[Array]) -> Array:
        """``sum_i A_i x_i - c``."""
        parts = (a @ x for a, x in zip(self.maps, models, strict=True))
        return np.asarray(sum(parts, -self.target), dtype=np.float64)

    def largest_weight(self, curvature: float) -> float:
        """Weights of constraints up to it leave every proximal matrix positive semidefinite.

        Agents move all at once, so it is all maps together that count.
        """
        return curvature / self.norm**2

    def linearised_step(
        self,
        models: Sequence[Array],
        duals: Array,
        gradients: Sequence[Array],
        weights: Sequence[Array],
        curvature: float,
    ) -> list[Array]:
        """New models of all agents, before noise.

        With ``D I = Gamma_i + A_i^T rho_i A_i`` the terms of (3.5) that hold an agent's own model
        add up to it, and what is left is ``x_i + A_i^T (lambda - rho_i (sum_j A_j x_j - c)) / D -
        grad f_i(x_i) / D``.

        Parameters
        ----------
        models : sequence of ndarray of shape (n_parameters_i,)
        duals : ndarray of shape (n_constraints,)
            [lambda].
        gradients : sequence of ndarray of shape (n_parameters_i,)
        weights : sequence of ndarray of shape (n_constraints,)
            Of the constraints, an agent's own and secret [rho_i]; non-negative.
        curvature : float
            [D].

        Returns
        -------
        list of ndarray

        Raises
        ------
        ValueError
            Where a proximal matrix Gamma_i would not be positive semidefinite.
        """
        for a, rho in zip(self.maps, weights, strict=True):
            roots = np.sqrt(np.maximum(rho, 0.0))
            largest = float(np.linalg.norm(roots[:, None] * a, 2)) ** 2
            if (rho < 0).any() or largest > curvature * (1 + 1e-12):
                raise ValueError(
                    f"Got weights of constraints from {rho.min():g} with a curvature of"
                    f" {largest:.6g}, expected non-negative ones up to curvature={curvature:g}. Use"
                    " smaller weights."
                )
        away = self.residual(models)
        return [
            x + (a.T @ (duals - rho * away) - g) / curvature
            for a, x, g, rho in zip(self.maps, models, gradients, weights, strict=True)
        ]

    def updated_duals(self, models: Sequence[Array], duals: Array, dual_step: float) -> Array:
        """``lambda - zeta (sum_i A_i x_i - c)``, of models as they were said."""
        return duals - dual_step * self.residual(models)


def constrained_rounds(
    constraint: ConstraintOfAgents,
    gradients: Sequence[Callable[[Array], Array]],
    start: Sequence[Array],
    *,
    curvature: float,
    dual_step: float,
    n_rounds: int,
    weights: Callable[[], Sequence[Array]],
) -> tuple[list[Array], Array]:
    """Models and duals after some rounds without noise.

    Parameters
    ----------
    constraint : ConstraintOfAgents
    gradients : sequence of callable
        Of each agent's loss.
    start : sequence of ndarray of shape (n_parameters_i,)
    curvature, dual_step : float
    n_rounds : int
    weights : callable
        Draws the weights of a round.

    Returns
    -------
    models : list of ndarray
    duals : ndarray of shape (n_constraints,)
    """
    models, duals = list(start), np.zeros(len(constraint.target))
    for _ in range(n_rounds):
        slopes = [gradient(x) for gradient, x in zip(gradients, models, strict=True)]
        models = constraint.linearised_step(models, duals, slopes, weights(), curvature)
        duals = constraint.updated_duals(models, duals, dual_step)
    return models, duals
