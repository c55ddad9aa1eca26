"""Minimisers of agents' clipped losses, all at once and with a proven accuracy.

Agent a minimises ``F_a(w) + r(w) + c_a / 2 |w|^2 - <p_a, w>``, where ``F_a = (A / n) sum f_i`` over
its clipped records. With :math:`w = u_a v`, ``u_a = C A / (n c_a)``, the quadratic is
``|v|^2 / 2``, and a record moves the minimiser v by at most the share of C that its gradient is.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from skdpadmm.algorithms._agent_gradients import agent_gradients
from skdpadmm.algorithms._algorithm import check_zero_at_zero
from skdpadmm.algorithms._certified_solves import (
    LossBounds,
    accelerated_gradient,
    loss_bounds,
    open_clip,
    planned_steps,
    score_rounding,
    step_rounding,
    sum_rounding,
    typical_norm,
)
from skdpadmm.algorithms._neighbor_consensus import NeighborConsensus
from skdpadmm.algorithms._network_steps import into_ball, proximal_steps
from skdpadmm.protocol import Facts, Problem, network_of

Array = NDArray[np.float64]
Solve = Callable[[Array, Array], tuple[Array, Array]]
# What is certified leaves room for the rounding of differences.
CERTIFIED = 0.9


@dataclass(frozen=True, kw_only=True)
class AgentMinimisersSettings:
    """Constants of inner solutions, in units of v.

    Attributes
    ----------
    n_steps : int
        Accelerated gradient steps.
    smoothness : float
        Of the smooth part, whose strong convexity is 1, for every data set and agent.
    radius : float
        Of the ball that public linear terms are projected onto.
    """

    n_steps: int
    smoothness: float
    radius: float


def minimiser_bounds(facts: Facts, clip_norm: float) -> LossBounds:
    """Bounds of a record's loss in public coordinates.

    Parameters
    ----------
    facts : Facts
    clip_norm : float
        In units of the typical norm of a row.
    """
    return loss_bounds(
        facts.loss, row_norm=facts.row_norm, clip_norm=clip_norm * typical_norm(facts)
    )


def least_open_clip(facts: Facts) -> float:
    """A clip bound, in units of the typical norm, that no gradient reaches."""
    return open_clip(facts.loss, facts.row_norm) / typical_norm(facts)


def record_curvature(facts: Facts, clip_norm: float, consensus: NeighborConsensus) -> float:
    """Curvature of one record's loss beside that of the quadratic, where that is smallest."""
    assert facts.agents is not None
    share = facts.agents.n_agents / facts.n_samples
    least = float(consensus.curvature.min())
    return share * minimiser_bounds(facts, clip_norm).curvature / least


def minimiser_settings(
    facts: Facts,
    consensus: NeighborConsensus,
    *,
    n_rounds: int,
    clip_norm: float,
    tolerance: float,
    noise: float,
    advice: str,
) -> AgentMinimisersSettings:
    """Decide the number of steps that brings every agent within a tolerance of its minimiser.

    Parameters
    ----------
    facts : Facts
        Of a network.
    consensus : NeighborConsensus
    n_rounds : int
    clip_norm : float
        In units of the typical norm of a row.
    tolerance : float
        In units of v.
    noise : float
        Bound of the norm of the noise in one agent's v, up to draws that never come.
    advice : str
        "Got ..., expected ...", of the knobs that decide how many steps it takes.

    Returns
    -------
    AgentMinimisersSettings

    Raises
    ------
    ValueError
        Where rounding leaves more than the tolerance, or rows and the penalty have no bounds.
    """
    assert facts.agents is not None
    _check_facts(facts)
    largest = float(max(facts.agents.agent_sizes))
    smoothness = 1.0 + largest * record_curvature(facts, clip_norm, consensus)
    uneven = float(consensus.curvature.max() / consensus.curvature.min())
    radius = 8.0 * n_rounds * uneven * (largest + noise)
    unit_bounds = LossBounds(
        row_norm=1.0, gradient_norm=1.0, curvature=(smoothness - 1.0) / facts.n_samples
    )
    relative = 2 * step_rounding(smoothness) + score_rounding(facts, unit_bounds)
    n_steps = planned_steps(
        advice,
        CERTIFIED * tolerance,
        strong_convexity=1.0,
        smoothness=smoothness,
        initial_distance=largest * facts.working_rounding,
        gradient_error=sum_rounding(facts, unit_bounds) + relative * (radius + largest + noise),
        relative_error=relative,
    )
    return AgentMinimisersSettings(n_steps=n_steps, smoothness=smoothness, radius=radius)


def agent_minimisers(
    facts: Facts,
    problem: Problem,
    consensus: NeighborConsensus,
    settings: AgentMinimisersSettings,
    *,
    clip_norm: float,
    of_records: bool = True,
) -> tuple[Array, Solve]:
    """Place the records of a problem where minimisers are computed.

    Parameters
    ----------
    facts : Facts
        Of a network.
    problem : Problem
        With an ownership.
    consensus : NeighborConsensus
    settings : AgentMinimisersSettings
    clip_norm : float
        Bound C of a record's gradient.
    of_records : bool, default=True
        Whether records are clipped; without, C is a unit alone and nothing is certified.

    Returns
    -------
    units : ndarray of shape (n_agents, 1, 1)
        ``u_a``.
    solve : callable
        Maps public linear terms p, and noise that is added to the gradient in units of v, to the
        minimisers v without data, and to those with it.
    """
    network = network_of(facts)
    gradient = agent_gradients(
        problem, loss=facts.loss, clip_norm=clip_norm if of_records else math.inf
    )
    curvature = consensus.curvature
    units = (clip_norm * network.n_agents / facts.n_samples / curvature)[:, None, None]
    prox = proximal_steps(facts, problem.rows)

    def solve(pull: Array, noise: Array) -> tuple[Array, Array]:
        # Only draws of noise that never come would leave the ball: so rounding has a bound.
        linear = pull / (units * curvature[:, None, None])
        linear = into_ball(linear, settings.radius) - noise
        start = prox(units * linear, curvature) / units
        return start, accelerated_gradient(
            lambda v: gradient(units * v) / clip_norm + v - linear,
            start,
            settings.n_steps,
            strong_convexity=1.0,
            smoothness=settings.smoothness,
            prox=lambda v: prox(units * v, curvature * settings.smoothness) / units,
        )

    return units, solve


def _check_facts(facts: Facts) -> None:
    if not math.isfinite(facts.row_norm):
        raise ValueError(
            f"Got row_norm={facts.row_norm}, expected a finite bound: the number of inner steps"
            " follows from it."
        )
    check_zero_at_zero(facts.penalty)
