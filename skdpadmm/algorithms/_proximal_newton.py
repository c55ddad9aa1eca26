"""The limit without privacy: the exact optimum that every algorithm here approximates.

At epsilon = inf there is nothing to plan and nothing to hide, so curvature may be refreshed from
the data at every step and the iteration may stop on a tolerance (Lee, Sun & Saunders, "Proximal
Newton-type methods for minimizing composite functions", SIAM J. Optim. 24, 2014).
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from functools import partial
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from skdpadmm._sklearn import Interval, parameter
from skdpadmm.algorithms._agent_blocks import hessian_of
from skdpadmm.algorithms._algorithm import Algorithm, penalty_operator, refuse
from skdpadmm.losses import Loss
from skdpadmm.protocol import Budget, Facts, Gate, Plan, Problem, Solution, Summand, not_private

OPTIMUM = "optimum"
# Above this many parameters a Hessian costs more than the steps that it saves.
LARGEST_HESSIAN = 3000
# A proximal gradient step that is longer, at the end of Newton steps, leaves something to gain.
STATIONARY = 1e-6
Array = NDArray[np.float64]


@dataclass(kw_only=True, eq=False, repr=False)
class ProximalNewton(Algorithm):
    """Exact minimiser of a mean loss plus a penalty, for epsilon = inf alone.

    Uses the full Hessian where it has at most 3,000 rows. Above, and where curvature vanishes
    before the gradient does, as that of a smoothed hinge may, an accelerated proximal gradient.

    Parameters
    ----------
    tolerance : float, default=1e-10
        Size of the last step at which it stops, beside the larger of 1 and the parameters, which
        are those of standardised features and target.

    Examples
    --------
    >>> from skdpadmm import DPAdmmRidge
    >>> DPAdmmRidge(epsilon=float("inf")).plan(n_samples=100, n_features=3).algorithm
    'ProximalNewton'
    """

    setting = "central"
    conditionable = False
    exact = True
    distributed = True
    units = ("record", "agent", "person")

    tolerance: float = parameter(1e-10, Interval(Real, 0.0, 1.0, closed="both"))

    def released(self, facts: Facts, budget: Budget) -> tuple[Any, ...]:
        """The optimum, without noise; a finite budget is refused."""
        got = f"epsilon={budget.epsilon:g} for ProximalNewton"
        refuse("It adds no noise: use ConsensusADMM.", (budget.is_private, got, "inf"))
        settings = self.resolved(max_iter=max(facts.max_iter, 100))
        return settings, not_private(OPTIMUM, facts.model_shape, facts.observers)

    def run(self, plan: Plan, problem: Problem, gate: Gate) -> Solution:
        """Minimise until a step is small beside the parameters."""
        start = np.zeros((plan.facts.n_parameters, plan.facts.loss.n_outputs))
        objective = _Objective(plan, problem)
        parameters, n_iter, converged = start, 0, True
        if start.size <= LARGEST_HESSIAN:
            parameters, n_iter, converged = _newton(objective, start)
        if n_iter == 0 or (converged and not objective.is_stationary(parameters, STATIONARY)):
            parameters, more, converged = _accelerated_gradient(objective, parameters)
            n_iter += more
        if not converged:
            # Nothing is private here, so the optimiser may speak.
            warnings.warn(
                f"Got no convergence in {n_iter} iterations at epsilon=inf, expected steps"
                f" below {plan.settings.tolerance:g} in standardised units. Increase"
                " max_iter or strengthen the penalty.",
                ConvergenceWarning,
                stacklevel=2,
            )
        return Solution(parameters=gate.release(OPTIMUM, parameters), n_iter=n_iter)


class _Objective:
    """Mean loss and penalty, in public coordinates."""

    def __init__(self, plan: Plan, problem: Problem) -> None:
        self.problem, self.rows, self.settings = problem, problem.rows, plan.settings
        self.penalty, self.n_outputs = plan.facts.penalty, plan.facts.loss.n_outputs
        self.first = problem.summed(partial(first_derivatives, plan.facts.loss))
        self.second = problem.summed(partial(second_derivatives, plan.facts.loss))

    def penalty_value(self, parameters: Array) -> float:
        coordinates = self.rows.coordinates
        features = parameters[: coordinates.n_features]
        return self.penalty.value(features * coordinates.coefficient_scale[:, None])

    def loss_and_gradient(self, parameters: Array) -> tuple[float, Array]:
        rows = self.rows
        prepared = rows.prepare(parameters if self.n_outputs > 1 else parameters[:, 0])
        total = self.first(prepared) / rows.n_samples
        raw = total[:-1].reshape(rows.coordinates.n_features + 1, -1)
        return float(total[-1]), rows.collect(raw).reshape(parameters.shape)

    def derivatives(self, parameters: Array) -> tuple[float, Array, Array]:
        """Mean loss, gradient of shape (d, k), and Hessian of shape (d, k, d, k)."""
        d, k = parameters.shape
        total = self.second(parameters) / self.rows.n_samples
        gradient = total[1 : 1 + d * k].reshape(d, k)
        return float(total[0]), gradient, total[1 + d * k :].reshape(d, k, d, k)

    def proximal_step(self, point: Array, gradient: Array, step: float) -> Array:
        return penalty_operator(self.penalty, step, self.rows)(point - step * gradient)

    def is_small(self, step: Array, parameters: Array, tolerance: float) -> bool:
        return bool(np.abs(step).max() <= tolerance * max(1.0, np.abs(parameters).max()))

    def is_stationary(self, parameters: Array, tolerance: float, step: float = 1.0) -> bool:
        """Whether a proximal gradient step from here is small."""
        _, gradient = self.loss_and_gradient(parameters)
        onward = self.proximal_step(parameters, gradient, step)
        return self.is_small(onward - parameters, parameters, tolerance)


def _weigh(problem: Problem, values: Array, part: slice) -> Array:
    """Values of records, the first axis, times weights where there are some."""
    if problem.weights is None:
        return values
    return np.asarray((values.T * problem.weights[part]).T)


def first_derivatives(loss: Loss, problem: Problem) -> Summand:
    """The raw gradient of the sum of losses, and the sum."""
    rows, target, weigh = problem.rows, problem.target, partial(_weigh, problem)

    def total(prepared: Any) -> Array:
        def of_block(block: int) -> Array:
            records = rows.slices[block]
            part, scores = target[records], rows.scores(block, prepared)
            value = weigh(loss.value(scores, part), records).sum()
            slopes = weigh(loss.derivative(scores, part), records)
            return np.append(rows.adjoint(block, slopes).ravel(), value)

        return problem.engine.sum(of_block, rows.n_blocks)

    return total


def second_derivatives(loss: Loss, problem: Problem) -> Summand:
    """The sum of losses, its gradient and its Hessian."""
    rows, target, weigh = problem.rows, problem.target, partial(_weigh, problem)

    def total(parameters: Array) -> Array:
        k = parameters.shape[1]

        def of_block(block: int) -> Array:
            records = rows.slices[block]
            part, A = target[records], rows.augmented(block)
            scores = A @ parameters if k > 1 else A @ parameters[:, 0]
            slopes = weigh(loss.derivative(scores, part), records).reshape(-1, k)
            curvature = weigh(loss.curvature(scores, part), records)
            hessian = hessian_of(A, curvature.reshape(-1, k, k))
            value = weigh(loss.value(scores, part), records).sum()
            return np.concatenate([[value], (A.T @ slopes).ravel(), hessian.ravel()])

        return problem.engine.sum(of_block, rows.n_blocks)

    return total


def _newton(objective: _Objective, parameters: Array) -> tuple[Array, int, bool]:
    """Proximal Newton steps with backtracking: parameters, steps, and whether they converged."""
    settings, penalty = objective.settings, objective.penalty_value
    value, gradient, hessian = objective.derivatives(parameters)
    for iteration in range(1, settings.max_iter + 1):
        trial = _model_minimiser(objective, parameters, gradient, hessian)
        step = trial - parameters
        # Expected decrease of a proximal Newton step (Lee et al., eq. 2.8).
        expected = float(np.vdot(gradient, step)) + penalty(trial) - penalty(parameters)
        length, before = 1.0, value + penalty(parameters)
        while length > 1e-10:
            candidate = parameters + length * step
            after = objective.loss_and_gradient(candidate)[0] + penalty(candidate)
            # Near the optimum the decrease drowns in rounding; the full step is then right.
            if after <= before + 1e-4 * length * expected + 1e-13 * abs(before):
                break
            length /= 2
        else:
            # A model without curvature points nowhere: gradients go on.
            return parameters, iteration, True
        parameters = parameters + length * step
        value, gradient, hessian = objective.derivatives(parameters)
        objective.problem.progress(iteration, parameters)
        if objective.is_small(length * step, parameters, settings.tolerance):
            return parameters, iteration, True
    # Where optima are many, steps between them go on while nothing is left to gain.
    return parameters, settings.max_iter, -expected <= 1e-12 * abs(before)


def _model_minimiser(
    objective: _Objective, parameters: Array, gradient: Array, hessian: Array
) -> Array:
    """Minimiser of the quadratic model plus penalty; the unpenalised intercept is eliminated."""
    coordinates = objective.rows.coordinates
    p, (d, k) = coordinates.n_features, parameters.shape
    matrix, slope = hessian.reshape(d * k, d * k), gradient.ravel()
    w, b = slice(0, p * k), slice(p * k, d * k)
    # Scores of all classes may move together at no cost: the pseudo-inverse leaves that direction
    # alone.
    inner = np.linalg.pinv(matrix[b, b], rcond=1e-10, hermitian=True)
    schur = _positive_definite(matrix[w, w] - matrix[w, b] @ inner @ matrix[b, w])
    reduced = slope[w] - matrix[w, b] @ inner @ slope[b]
    scale = np.repeat(coordinates.coefficient_scale, k)
    target = parameters[:p].ravel() - np.linalg.solve(schur, reduced)
    # With several scores the metric couples all coefficients, which then are one column.
    metric = schur / np.outer(scale, scale)
    features = objective.penalty.prox(target * scale, 1.0, metric) / scale
    step = features - parameters[:p].ravel()
    intercept = parameters[p:].ravel() - inner @ (slope[b] + matrix[b, w] @ step)
    return np.concatenate([features, intercept]).reshape(d, k)


def _positive_definite(matrix: Array) -> Array:
    """The matrix with the smallest ridge, of a growing series, that lets it be factored.

    It only shapes the steps: directions without data have no gradient, so the optimum stays.
    """
    matrix = (matrix + matrix.T) / 2
    ridge = 1e-10 * max(float(np.trace(matrix)) / len(matrix), 1e-6)
    while True:
        raised = matrix + ridge * np.eye(len(matrix))
        try:
            np.linalg.cholesky(raised)
        except np.linalg.LinAlgError:
            ridge *= 100
        else:
            return raised


def _accelerated_gradient(objective: _Objective, parameters: Array) -> tuple[Array, int, bool]:
    """FISTA with backtracking and gradient restart, for more parameters than a Hessian can hold."""
    settings, ahead, momentum, step = objective.settings, parameters, 1.0, 1.0
    max_iter = 100 * settings.max_iter
    for iteration in range(1, max_iter + 1):
        value, gradient = objective.loss_and_gradient(ahead)
        while True:
            trial = objective.proximal_step(ahead, gradient, step)
            move = trial - ahead
            bound = value + np.vdot(gradient, move) + np.vdot(move, move) / (2 * step)
            if objective.loss_and_gradient(trial)[0] <= bound + 1e-13 * abs(value):
                break
            step /= 2
        change = trial - parameters
        if np.vdot(ahead - trial, change) > 0:
            momentum = 1.0
        following = (1 + math.sqrt(1 + 4 * momentum**2)) / 2
        ahead = trial + (momentum - 1) / following * change
        parameters, momentum = trial, following
        objective.problem.progress(iteration, parameters)
        # A small step is not yet an optimum: the step that the prox would make from here is.
        if objective.is_small(change, parameters, settings.tolerance):
            if objective.is_stationary(parameters, settings.tolerance, step):
                return parameters, iteration, True
            ahead, momentum = parameters, 1.0
    return parameters, max_iter, False
