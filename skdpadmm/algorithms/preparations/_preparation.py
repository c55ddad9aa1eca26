"""What is bought before an algorithm starts: units, and a basis."""

from __future__ import annotations

import math
from dataclasses import replace

from skdpadmm.algorithms._algorithm import Algorithm
from skdpadmm.algorithms._defaults import (
    CONDITIONING_SHARE,
    DECLARED_NORM,
    SCALING_SHARE,
    conditioning_choices,
    conditioning_pays,
)
from skdpadmm.algorithms.preparations._conditioning import plan_conditioning
from skdpadmm.algorithms.preparations._scaling import plan_scaling
from skdpadmm.privacy import gaussian_mu
from skdpadmm.protocol import Budget, Facts
from skdpadmm.records import Coordinates

# Above it the matrix costs more time and memory than the iteration does.
LARGEST_MATRIX = 1000


def prepared(
    facts: Facts,
    budget: Budget,
    algorithm: Algorithm,
    coordinates: Coordinates,
    *,
    scale: str | None,
    conditioning: str | None,
) -> Facts:
    """Facts with the preparations that a user asked for, or that the rule finds worth their cost.

    Parameters
    ----------
    facts : Facts
    budget : Budget
        With a finite epsilon.
    algorithm : Algorithm
    coordinates : Coordinates
    scale : {"private", None}
    conditioning : {"auto", "private", None}

    Returns
    -------
    Facts

    Raises
    ------
    ValueError
        Where a preparation cannot be of use.
    """
    total = gaussian_mu(budget.epsilon, budget.delta)
    if scale == "private":
        if not coordinates.undeclared.any():
            raise ValueError(
                "Got scale='private' with feature_bounds for every column, expected columns whose"
                " units are not known. Leave one of the two out."
            )
        target = DECLARED_NORM * math.sqrt(facts.n_parameters)
        mu = total * math.sqrt(SCALING_SHARE)
        facts = replace(facts, scaling=plan_scaling(facts, budget, mu=mu, target=target))
    if conditioning == "private" and not algorithm.conditionable:
        raise ValueError(
            f"Got conditioning='private' with {algorithm!r}, expected 'auto' or None: it works on"
            " the user's coordinates, or rests on bounds of curvature that only they have."
            " Choose another algorithm."
        )
    if conditioning is None or (
        conditioning == "auto"
        and not (algorithm.conditionable and facts.n_parameters <= LARGEST_MATRIX)
    ):
        return facts
    mu = total * math.sqrt(CONDITIONING_SHARE)
    planned = plan_conditioning(facts, budget, mu=mu, **conditioning_choices(facts))
    if conditioning == "auto" and not conditioning_pays(facts, planned.edge):
        return facts
    return replace(facts, conditioning=planned)
