"""Consensus over a graph: problems of single agents, what they exchange, and budgets.

Agent a of A has a model w_a, a dual variable, and ``F_a = (A / n) sum f_i`` over its records, whose
gradients are clipped to norm C. In each round it minimises

    F_a(w) + r(w) + c_a / 2 |w|^2 - <p_a, w>,    c_a = 2 rho max(number of neighbours, 1),

broadcasts the result, and computes p_a from the messages that it receives. Arrays have the shape
(agents, parameters, scores). The sensitivity of the minimiser is ``unit_a = C A / (n c_a)`` under
zero-out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skdpadmm.algorithms import ClippedSum, penalty_operator
from skdpadmm.network import Topology
from skdpadmm.penalties import L1, ElasticNet, NoPenalty, SquaredL2
from skdpadmm.privacy import Guarantee, calibrate_noise, compose, gaussian_mu, worst
from skdpadmm.protocol import Budget, Facts, Plan, Problem, Solution, View, network_of
from skdpadmm.records import Rows

Array = NDArray[np.float64]
Map = Callable[[Array], Array]
# From linear terms and curvatures ``c_a`` to models.
Solve = Callable[[Array, Array], Array]
# Linear terms are cut where minimisers without data would be longer, so that rounding has a bound.
LONGEST = 1e4


def check(facts: Facts) -> None:
    """Refuse what the bounds of minimisers do not cover."""
    penalties = (NoPenalty, SquaredL2, L1, ElasticNet)
    if facts.loss.n_outputs > 1 or not math.isfinite(facts.row_norm):
        raise ValueError(
            f"Got {facts.loss.n_outputs} scores and rows of norm up to {facts.row_norm:g}, expected"
            " one score and a finite bound."
        )
    if not isinstance(facts.penalty, penalties):
        raise ValueError(f"Got {facts.penalty!r}, expected an elastic net, L1, SquaredL2 or none.")


def calibrated(facts: Facts, budget: Budget, guarantee: Callable[[float], Guarantee]) -> float:
    """Noise that meets the smallest budget of an agent, beside what was released before."""
    before = [worst(*r.view(budget.observer).guarantees) for r in facts.preparations]
    epsilon = min(network_of(facts).budgets(budget.epsilon))
    return calibrate_noise(lambda scale: compose(*before, guarantee(scale)), epsilon, budget.delta)


def seen(facts: Facts, guarantee: Guarantee) -> tuple[View, ...]:
    """All observers see every message."""
    return tuple(View(observer=name, guarantees=(guarantee,)) for name in facts.observers)


def penalty_weight(facts: Facts, budget: Budget, clip_norm: float, n_rounds: int) -> float:
    """Rho with which models travel as far as noise lets them, whatever the number of rounds."""
    network = network_of(facts)
    mu = gaussian_mu(min(network.budgets(budget.epsilon)), budget.delta)
    factor = facts.neighboring.sensitivity_factor
    signal = facts.n_samples * mu / (factor * math.sqrt(network.n_agents))
    steepness = clip_norm * facts.loss.smoothness * facts.row_norm**2
    step = min(0.75 * signal, 200 * steepness) / (n_rounds * steepness)
    return 1 / (2 * step * max(int(network.topology.degrees.min()), 1))


def curvatures(topology: Topology, weight: float) -> Array:
    """``c_a`` of all agents."""
    return 2 * weight * np.maximum(topology.degrees, 1)[:, None, None]


def smoothness(facts: Facts) -> float:
    """Bound of the curvature of every ``F_a``."""
    sizes = network_of(facts).agent_sizes
    largest = max(sizes) * facts.loss.smoothness * facts.row_norm**2 * (1 + 1e-9)
    return len(sizes) / facts.n_samples * largest


def rounding(facts: Facts, clip_norm: float, weight: float, noise: float = 0.0) -> float:
    """Bound, in units of ``unit_a``, of how far rounding moves a minimiser.

    Scores of n_parameters terms are off by so many roundings of the norm of a model, at which the
    sum of all slopes is off by the curvature times that.
    """
    assert facts.coordinates is not None
    network = network_of(facts)
    curvature, clip = curvatures(network.topology, weight), clip_norm * typical_norm(facts)
    share = clip * network.n_agents / facts.n_samples
    longest = LONGEST + (2 * max(network.agent_sizes) + noise) * share / curvature.min()
    roundings = (facts.n_parameters + 16) * 2.0**-50 * facts.coordinates.amplification
    error = float((smoothness(facts) + curvature.max()) / share * longest * roundings)
    if error > 0.01:
        raise ValueError(
            f"Got penalty_weight={weight:g} and clip_norm={clip_norm:g}, expected a weight that"
            f" floats can resolve: rounding would move solutions by {error:.2g} of what a record"
            " does."
        )
    return error


def typical_norm(facts: Facts) -> float:
    """What clip bounds are in units of: `Rows.typical_norm` in public coordinates."""
    return min(facts.row_norm, math.sqrt(facts.n_parameters))


def clipped_gradients(facts: Facts, problem: Problem, clip_norm: float) -> Map:
    """Gradients of all ``F_a``, each at the model of its agent."""
    sums, weight = ClippedSum(facts, clip_norm).of_agents(problem), clip_norm / facts.n_samples
    weight *= network_of(facts).n_agents
    return lambda models: weight * sums(models)


def proximal_step(facts: Facts, rows: Rows) -> Callable[[Array, Array], Array]:
    """Proximal operator of the penalty, with a step for each agent; the intercept is left out."""

    def prox(models: Array, steps: Array) -> Array:
        models = models.copy()
        for step in np.unique(steps).tolist():
            who = np.flatnonzero(steps == step)
            columns = np.concatenate(models[who], axis=1)
            columns = penalty_operator(facts.penalty, step, rows)(columns)
            models[who] = columns.reshape(len(columns), len(who), -1).transpose(1, 0, 2)
        return models

    return prox


def descent(
    facts: Facts, problem: Problem, clip_norm: float, n_steps: int
) -> Callable[..., tuple[Array, Array]]:
    """Proximal gradient steps of all agents towards the minimisers of their problems.

    Returns a function of linear terms, of ``c_a``, and of noise in linear terms, that gives the
    minimisers without data and noise, where it starts, and what the steps lead to.
    """
    gradient, prox = (
        clipped_gradients(facts, problem, clip_norm),
        proximal_step(facts, problem.rows),
    )

    def solve(linear: Array, curvature: Array, noise: Any = 0.0) -> tuple[Array, Array]:
        step = 1 / (curvature + smoothness(facts))
        norms = np.linalg.norm(linear, axis=(1, 2), keepdims=True) / curvature
        linear = linear * (LONGEST / np.maximum(norms, LONGEST))
        start = models = prox(linear / curvature, 1 / curvature)
        for _ in range(n_steps):
            slope = gradient(models) + curvature * models - linear + noise
            models = prox(models - step * slope, step)
        return start, models

    return solve


def rounds(
    topology: Topology, weights: Sequence[float], solve: Solve, shape: tuple[int, ...]
) -> Any:
    """Models that are broadcast in each round, of its rho; duals begin and stay with a sum of zero.

    Duals move by the first rho.
    """
    models, duals = np.zeros(shape), np.zeros(shape)
    for weight in weights:
        curvature = curvatures(topology, weight)
        apart = topology.degrees[:, None, None] * models - topology.neighbor_sum(models)
        duals = duals - weights[0] * apart / 2
        models = solve(2 * duals + curvature * models - weight * apart, curvature)
        yield models


def averaged(plan: Plan, problem: Problem, models: Any, n_rounds: int) -> Solution:
    """Agents keep the means of the later half of their models."""
    network, total, n_averaged = network_of(plan.facts), 0.0, (n_rounds + 1) // 2
    for k, current in enumerate(models):
        total = total + current if k >= n_rounds - n_averaged else total
        problem.progress(k + 1, current)
    own = np.asarray(total) / n_averaged
    n_messages = 2 * network.topology.n_edges * n_rounds
    return Solution(
        parameters=own.mean(axis=0),
        parameters_per_agent=own,
        n_iter=n_rounds,
        n_rounds=n_rounds,
        n_messages=n_messages,
        bytes_sent=8 * n_messages * own[0].size,
        derivative_bound=plan.settings.clip_norm,
    )
