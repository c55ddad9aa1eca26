"""What algorithms over a graph share: steps of all agents at once, and what they end up with.

Arrays of models, points and gradients have the shape (n_agents, n_parameters, n_outputs), in the
basis of the rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import numpy as np
from numpy.typing import NDArray

from skdpadmm.algorithms._agent_blocks import clip_vectors
from skdpadmm.algorithms._agent_gradients import agent_gradients
from skdpadmm.algorithms._agent_messages import flooded
from skdpadmm.algorithms._algorithm import Operator, penalty_operator
from skdpadmm.algorithms._messages import unit_limits
from skdpadmm.algorithms._noise_left import (
    doubt,
    drop_noise,
    parameter_variance,
    score_variance,
)
from skdpadmm.penalties import NoPenalty
from skdpadmm.protocol import Facts, Gate, Plan, Problem, Release, Solution, network_of
from skdpadmm.records import Rows

Array = NDArray[np.float64]


def noisy_gradients(
    plan: Plan, problem: Problem, gate: Gate, *, name: str, clip_norm: float, sampling: float = 1.0
) -> Callable[[Array], Array]:
    """Gradients of all agents' weighted losses, clipped and released.

    Parameters
    ----------
    plan : Plan
        With a release of this name.
    problem : Problem
        With an ownership.
    gate : Gate
    name : str
    clip_norm : float
        Bound of a record's gradient, or of an agent's mean gradient.
    sampling : float, default=1.0
        Chance of each record to be in a step.

    Returns
    -------
    callable
        Maps models to noisy gradients of ``F_a = (A / n) sum_{i in a} f_i``.
    """
    facts, ownership = plan.facts, problem.ownership
    network = network_of(facts)
    assert ownership is not None
    of_records = facts.unit == "record"
    exact = agent_gradients(
        problem, loss=facts.loss, clip_norm=clip_norm if of_records else math.inf
    )
    limits = unit_limits(facts)[network.kind]
    weight = network.n_agents / facts.n_samples * clip_norm / sampling

    def gradient(models: Array) -> Array:
        batch = None
        if sampling < 1:
            batch = gate.uniform((facts.n_samples,)) < sampling
        sums = exact(models, batch) / clip_norm
        if not of_records:
            sums = clip_vectors(sums, limits)
        return weight * gate.release(name, sums)

    return gradient


def summed_noise(plan: Plan, release: Release) -> float:
    """Noise in the sum of what all agents say, in the units of the release."""
    kind = network_of(plan.facts).kind
    return float(np.sqrt(np.sum(np.square(np.asarray(release.agent_noise_std)[kind]))))


def proximal_steps(facts: Facts, rows: Rows) -> Callable[[Array, Array], Array]:
    """Proximal operator of the penalty for all agents, each with a curvature of its own.

    Parameters
    ----------
    facts : Facts
    rows : Rows
        Only what is public about them is used.

    Returns
    -------
    callable
        Maps points and curvatures of shape (n_agents,) to models: ``prox_{r / curvature}``.
    """
    if isinstance(facts.penalty, NoPenalty):
        return lambda points, curvature: points

    @cache
    def operator(curvature: float) -> Operator:
        return penalty_operator(facts.penalty, 1.0 / curvature, rows)

    def proximal(points: Array, curvature: Array) -> Array:
        models = np.empty(points.shape)
        for value in np.unique(curvature).tolist():
            who = curvature == value
            columns = points[who].transpose(1, 0, 2)
            moved = rows.from_coordinates(operator(value)(columns.reshape(len(columns), -1)))
            models[who] = moved.reshape(columns.shape).transpose(1, 0, 2)
        return models

    return proximal


def into_ball(models: Array, radius: float) -> Array:
    """Project each agent's model onto the ball around zero."""
    if math.isinf(radius):
        return models
    return clip_vectors(models, np.full(len(models), radius))


def network_solution(
    plan: Plan,
    rows: Rows,
    answers: Array,
    *,
    last_step: Callable[[Array], Array] | None,
    noise_std: float,
    step_size: float,
    n_iter: int,
    n_averaged: int,
    n_rounds: int,
    derivative_bound: float,
) -> Solution:
    """What agents end up with: each its own model, and their average.

    Parameters
    ----------
    plan : Plan
    rows : Rows
        Only what is public about them is used.
    answers : ndarray of shape (n_agents, n_parameters, n_outputs)
        In the basis of the rows.
    last_step : callable or None
        Taken on points in the basis, of agents and of their average, for the sake of zeros: its
        answer is in public coordinates. None: answers are models already.
    noise_std : float
        In the mean gradient of a step.
    step_size : float
    n_iter, n_averaged : int
        Steps, and how many of them were averaged.
    n_rounds : int
        Broadcasts along all edges.
    derivative_bound : float
        Of the loss of a typical record.

    Returns
    -------
    Solution
    """
    facts, network = plan.facts, network_of(plan.facts)
    finish = rows.to_coordinates if last_step is None else last_step
    parameters = finish(answers.mean(axis=0))
    columns = answers.transpose(1, 0, 2)
    own = finish(columns.reshape(len(columns), -1)).reshape(columns.shape).transpose(1, 0, 2)
    variance = parameter_variance(
        rows=rows,
        smoothness=facts.loss.smoothness,
        step_size=step_size,
        noise_std=noise_std,
        n_iter=n_iter,
        n_averaged=n_averaged,
    )
    return noisy_solution(
        facts,
        rows,
        parameters,
        variance,
        has_zeros=last_step is not None,
        parameters_per_agent=own,
        n_iter=n_iter,
        n_rounds=n_rounds,
        n_messages=n_rounds * 2 * network.topology.n_edges,
        derivative_bound=derivative_bound,
    )


def noisy_solution(
    facts: Facts,
    rows: Rows,
    parameters: Array,
    variance: Array,
    *,
    has_zeros: bool,
    parameters_per_agent: Array | None,
    n_iter: int,
    n_rounds: int,
    n_messages: int,
    derivative_bound: float,
) -> Solution:
    """A common model with what its noise leaves to doubt, and what it took to send.

    Parameters
    ----------
    facts : Facts
        Of a network.
    rows : Rows
        Only what is public about them is used.
    parameters : ndarray of shape (n_parameters, n_outputs)
        In public coordinates.
    variance : ndarray of shape (n_parameters,)
        Of the parameters, in the basis of the rows.
    has_zeros : bool
        Whether the penalty makes zeros, which noise has moved.
    parameters_per_agent : ndarray of shape (n_agents, n_parameters, n_outputs) or None
        In public coordinates.
    n_iter, n_rounds : int
    n_messages : int
        Of the size of the parameters, beside those of preparations.
    derivative_bound : float
        Of the loss of a typical record.

    Returns
    -------
    Solution
    """
    n_flooded, n_numbers = flooded(facts)
    return Solution(
        parameters=drop_noise(parameters, rows, variance) if has_zeros else parameters,
        parameters_per_agent=parameters_per_agent,
        n_iter=n_iter,
        derivative_bound=derivative_bound,
        score_variance=score_variance(rows, variance),
        doubt=doubt(rows, parameters, variance),
        n_rounds=n_rounds,
        n_messages=n_messages + n_flooded,
        bytes_sent=8 * (n_messages * parameters.size + n_numbers),
    )
