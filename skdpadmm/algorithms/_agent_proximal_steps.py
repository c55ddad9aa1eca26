"""Proximal steps of single agents, one at a time and to a certified accuracy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from skdpadmm.algorithms._accelerated_gradient import (
    accelerated_gradient,
    planned_steps,
    step_rounding,
)
from skdpadmm.algorithms._algorithm import check_zero_at_zero
from skdpadmm.algorithms._clipped_loss import (
    LossBounds,
    clipped_gradient,
    score_rounding,
    sum_rounding,
)
from skdpadmm.network import Ownership
from skdpadmm.protocol import Facts, Problem, network_of
from skdpadmm.records import Rows

Array = NDArray[np.float64]
# A record's clipped gradient is this close to its bound.
CLIPPING = 1e-11
# Inner steps that an agent may take at one hop.
MOST_STEPS = 2000
# Takes fewer than those, whatever the tolerance and the rows.
LARGEST_CONDITION = 500.0


@dataclass(frozen=True, kw_only=True)
class ProximalStepsSettings:
    """Constants of inner solutions.

    Attributes
    ----------
    n_steps : tuple of int
        Accelerated gradient steps of an agent, for each number of rows that agents have, ascending.
    """

    n_steps: tuple[int, ...]


def longest_step(facts: Facts, bounds: LossBounds) -> float:
    """Proximal step at which inner problems are as badly conditioned as a default may make them.

    Parameters
    ----------
    facts : Facts
        With agents.
    bounds : LossBounds
        Of a record's loss.
    """
    return (LARGEST_CONDITION - 1.0) / (_weight(facts) * bounds.curvature * _sizes(facts)[-1])


def proximal_settings(
    facts: Facts,
    bounds: LossBounds,
    *,
    step_size: float,
    tolerance: float,
    farthest: float,
    advice: str,
) -> ProximalStepsSettings:
    """Decide the number of inner steps that brings every agent within a tolerance of its step.

    Lengths are in units of the distance that taking one record away can move a step.

    Parameters
    ----------
    facts : Facts
        With agents.
    bounds : LossBounds
        Of a record's loss.
    step_size : float
    tolerance : float
        Certified distance from the exact step.
    farthest : float
        Bound of the norm of a point.
    advice : str
        "Got ..., expected ...", of the knobs that decide how many steps it takes.

    Returns
    -------
    ProximalStepsSettings

    Raises
    ------
    ValueError
        Where rounding leaves more than the tolerance, it takes more than `MOST_STEPS`, or the
        penalty is not 0 at 0.
    """
    check_zero_at_zero(facts.penalty)
    curvature = step_size * _weight(facts) * bounds.curvature
    unit_bounds = LossBounds(row_norm=1.0, gradient_norm=1.0, curvature=curvature)

    def steps_of(n_rows: int) -> int:
        share, smoothness = n_rows / facts.n_samples, 1.0 + curvature * n_rows
        of_step, of_score = step_rounding(smoothness), share * score_rounding(facts, unit_bounds)
        of_sum = share * sum_rounding(facts, unit_bounds) + CLIPPING
        return planned_steps(
            advice,
            tolerance,
            strong_convexity=1.0,
            smoothness=smoothness,
            initial_distance=float(n_rows),
            gradient_error=of_sum + of_step * n_rows + of_score * (farthest + n_rows),
            relative_error=of_step + of_score,
        )

    n_steps = tuple(steps_of(n_rows) for n_rows in _sizes(facts))
    if max(n_steps) > MOST_STEPS:
        raise ValueError(
            f"{advice}: an agent would take {max(n_steps)} inner steps at each hop, more than"
            f" {MOST_STEPS}."
        )
    return ProximalStepsSettings(n_steps=n_steps)


def agent_proximal_steps(
    facts: Facts,
    problem: Problem,
    bounds: LossBounds,
    settings: ProximalStepsSettings,
    *,
    step_size: float,
) -> Callable[[int, Array], Array]:
    """Proximal steps of ``F_a = (A / n) sum_{i in a} f_i``, each f_i clipped.

    Parameters
    ----------
    facts : Facts
        With agents.
    problem : Problem
        With an ownership.
    bounds : LossBounds
        Of a record's loss.
    settings : ProximalStepsSettings
    step_size : float

    Returns
    -------
    callable
        Maps an agent and a point of shape (n_parameters, n_outputs) to the step's end.
    """
    ownership = problem.ownership
    assert ownership is not None
    weight, convexity = _weight(facts), 1.0 / step_size
    problems = [_problem_of(problem, ownership, agent) for agent in range(ownership.n_agents)]
    gradients = [clipped_gradient(facts.loss, own, bounds) for own in problems]
    smoothness = convexity + weight * bounds.curvature * ownership.sizes
    n_steps = np.asarray(settings.n_steps)[np.searchsorted(_sizes(facts), ownership.sizes)]

    def step(agent: int, point: Array) -> Array:
        gradient = gradients[agent]
        # In terms of the displacement d rounding is relative to d.
        return point + accelerated_gradient(
            lambda d: weight * gradient(point + d) + convexity * d,
            np.zeros_like(point),
            int(n_steps[agent]),
            strong_convexity=convexity,
            smoothness=float(smoothness[agent]),
        )

    return step


def _weight(facts: Facts) -> float:
    """Of a record in the loss of its agent."""
    return network_of(facts).n_agents / facts.n_samples


def _sizes(facts: Facts) -> list[int]:
    """Numbers of rows that agents have, ascending."""
    return sorted(set(network_of(facts).agent_sizes))


def _problem_of(problem: Problem, ownership: Ownership, agent: int) -> Problem:
    """The rows of one agent, in blocks no longer than those of all rows."""
    group = ownership.rows_of(agent)
    rows = problem.rows.take(_pieces(problem.rows, group))
    return replace(problem, rows=rows, target=problem.target[group])


def _pieces(rows: Rows, group: slice | NDArray[np.intp]) -> list[slice] | list[NDArray[np.intp]]:
    """Neighbouring rows as slices within blocks, which are not copied; others block by block."""
    if isinstance(group, slice):
        return [
            slice(max(block.start, group.start), min(block.stop, group.stop))
            for block in rows.slices
            if block.start < group.stop and group.start < block.stop
        ]
    size = rows.slices[0].stop
    return [group[start : start + size] for start in range(0, len(group), size)]
