"""Proximal steps of single agents, one at a time and to a certified accuracy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from skdpadmm.algorithms.blocks._accelerated_gradient import (
    accelerated_gradient,
    step_rounding,
    steps_to_reach,
)
from skdpadmm.algorithms.blocks._clipped_loss import (
    LossBounds,
    clipped_gradient,
    score_rounding,
    sum_rounding,
)
from skdpadmm.network import Ownership
from skdpadmm.protocol import Facts, Problem
from skdpadmm.records import Rows

Array = NDArray[np.float64]
# A record's clipped gradient is this close to its bound.
CLIPPING = 1e-11


def agent_proximal_steps(
    facts: Facts,
    problem: Problem,
    bounds: LossBounds,
    *,
    step_size: float,
    tolerance: float,
    farthest: float,
) -> Callable[[int, Array], Array]:
    """Proximal steps of ``F_a = (A / n) sum_{i in a} f_i``, each f_i clipped.

    Parameters
    ----------
    facts : Facts
        With agents.
    problem : Problem
        With an ownership.
    bounds : LossBounds
    step_size : float
    tolerance : float
        Certified distance from the exact step, in units of the distance that taking one record away
        can move that.
    farthest : float
        Bound of the norm of a point.

    Returns
    -------
    callable
        Maps an agent and a point of shape (n_parameters, n_outputs) to the step's end.
    """
    ownership = problem.ownership
    assert ownership is not None
    weight = ownership.n_agents / facts.n_samples
    convexity = 1.0 / step_size
    problems = [_problem_of(problem, ownership, agent) for agent in range(ownership.n_agents)]
    gradients = [clipped_gradient(facts.loss, own, bounds) for own in problems]
    smoothness = convexity + weight * bounds.curvature * ownership.sizes

    def n_steps(n_rows: int, smooth: float) -> int:
        share = n_rows / facts.n_samples
        # How far data can take the step.
        longest = step_size * weight * n_rows * bounds.gradient_norm
        of_step = step_rounding(smooth)
        of_score = weight * share * score_rounding(facts, bounds)
        error = weight * (share * sum_rounding(facts, bounds) + CLIPPING * bounds.gradient_norm)
        return steps_to_reach(
            tolerance * step_size * weight * bounds.gradient_norm,
            strong_convexity=convexity,
            smoothness=smooth,
            initial_distance=longest,
            gradient_error=error + of_step * longest + of_score * (farthest + longest),
            relative_error=(of_step + of_score) / convexity,
        )

    sizes, kind = np.unique(ownership.sizes, return_inverse=True)
    counts = [n_steps(m, convexity + weight * bounds.curvature * m) for m in sizes.tolist()]

    def step(agent: int, point: Array) -> Array:
        gradient = gradients[agent]
        # In terms of the displacement d rounding is relative to d.
        return point + accelerated_gradient(
            lambda d: weight * gradient(point + d) + convexity * d,
            np.zeros_like(point),
            counts[kind[agent]],
            strong_convexity=convexity,
            smoothness=float(smoothness[agent]),
        )

    return step


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
