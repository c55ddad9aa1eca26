"""The contract between algorithms and everything above them."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from skdpadmm.penalties import Penalty
from skdpadmm.protocol import Budget, Facts, Gate, Plan, Problem, Solution
from skdpadmm.records import Coordinates


@runtime_checkable
class Algorithm(Protocol):
    """Two functions: one that plans without data, one that runs the plan."""

    def plan(self, facts: Facts, budget: Budget) -> Plan:
        """Decide every release and its noise from public facts.

        Raises
        ------
        ValueError
            Where a knob lies outside the range that its theorem covers.
        """
        ...

    def run(self, plan: Plan, problem: Problem, gate: Gate) -> Solution:
        """Run the plan on data; whatever enters the solution has passed the gate."""
        ...


def penalty_prox(
    penalty: Penalty, point: NDArray[np.float64], step: float, coordinates: Coordinates
) -> NDArray[np.float64]:
    """Proximal operator, in public coordinates, of a penalty on the user's coefficients.

    In the user's units the Euclidean metric of public coordinates is a diagonal one. The intercept
    is not penalised.

    Parameters
    ----------
    penalty : Penalty
        Already divided by the square of the target's scale.
    point : ndarray of shape (n_parameters,) or (n_parameters, n_outputs)
    step : float
    coordinates : Coordinates
    """
    p, scale = coordinates.n_features, coordinates.coefficient_scale
    result = point.copy()
    user = (point[:p].T * scale).T
    result[:p] = (penalty.prox(user, step, metric=scale**-2.0).T / scale).T
    return result
