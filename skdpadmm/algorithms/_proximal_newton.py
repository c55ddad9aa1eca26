"""The limit without privacy: the exact optimum that every algorithm here approximates.

At epsilon = inf there is nothing to plan and nothing to hide, so curvature may be refreshed from
the data at every step and the iteration may stop on a tolerance (Lee, Sun & Saunders, "Proximal
Newton-type methods for minimizing composite functions", SIAM J. Optim. 24, 2014).
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning

from skdpadmm.algorithms._algorithm import penalty_operator
from skdpadmm.algorithms._knobs import check_range
from skdpadmm.protocol import Budget, Facts, Gate, Plan, Problem, Solution, not_private

OPTIMUM = "optimum"
# Above this many parameters a Hessian costs more than the steps that it saves.
LARGEST_HESSIAN = 3000


@dataclass(frozen=True, kw_only=True)
class ProximalNewtonSettings:
    """Constants of one run: bounds of the number of steps and of their size at the end."""

    max_iter: int
    tolerance: float


class ProximalNewton(BaseEstimator):
    """Exact minimiser of a mean loss plus a penalty, for epsilon = inf alone.

    Uses the full Hessian where it has at most 3,000 rows and an accelerated proximal gradient
    above.

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

    conditionable = False
    setting = "central"
    exact = True

    def __init__(self, *, tolerance: float = 1e-10) -> None:
        self.tolerance = tolerance

    def check(self, facts: Facts) -> None:
        """Refuse knobs outside of their range, whatever the budget.

        Raises
        ------
        ValueError
            Says what was expected.
        """
        check_range("tolerance", self.tolerance, 0.0, 1.0, auto=False)

    def plan(self, facts: Facts, budget: Budget) -> Plan:
        """Plan one release without noise.

        Raises
        ------
        ValueError
            Where the budget is finite: this algorithm has no guarantee.
        """
        self.check(facts)
        if budget.is_private:
            raise ValueError(
                f"Got epsilon={budget.epsilon:g} for ProximalNewton, expected inf: it adds no"
                " noise. Use ConsensusADMM."
            )
        shape = (facts.n_parameters, facts.loss.n_outputs)
        release = not_private(OPTIMUM, shape, facts.observers)
        return Plan(
            algorithm="ProximalNewton",
            facts=facts,
            budget=budget,
            settings=ProximalNewtonSettings(
                max_iter=max(facts.max_iter, 100), tolerance=self.tolerance
            ),
            releases=(release,),
        )

    def run(self, plan: Plan, problem: Problem, gate: Gate) -> Solution:
        """Minimise until a step is small beside the parameters.

        Parameters
        ----------
        plan : Plan
        problem : Problem
        gate : Gate

        Returns
        -------
        Solution
        """
        n_entries = plan.facts.n_parameters * plan.facts.loss.n_outputs
        solve = _newton if n_entries <= LARGEST_HESSIAN else _accelerated_gradient
        parameters, n_iter, converged = solve(plan, problem)
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


def _newton(plan: Plan, problem: Problem) -> tuple[NDArray[np.float64], int, bool]:
    settings: ProximalNewtonSettings = plan.settings
    shape = (plan.facts.n_parameters, plan.facts.loss.n_outputs)
    parameters = np.zeros(shape)
    value, gradient, hessian = _derivatives(plan, problem, parameters)
    for iteration in range(1, settings.max_iter + 1):
        trial = _model_minimiser(plan, problem, parameters, gradient, hessian)
        step = trial - parameters
        # Expected decrease of a proximal Newton step (Lee et al., eq. 2.8).
        expected = float(np.vdot(gradient, step)) + _penalty(plan, problem, trial)
        expected -= _penalty(plan, problem, parameters)
        length, before = 1.0, value + _penalty(plan, problem, parameters)
        while length > 1e-10:
            candidate = parameters + length * step
            after = _value(plan, problem, candidate) + _penalty(plan, problem, candidate)
            # Near the optimum the decrease drowns in rounding; the full step is then right.
            if after <= before + 1e-4 * length * expected + 1e-13 * abs(before):
                break
            length /= 2
        parameters = parameters + length * step
        value, gradient, hessian = _derivatives(plan, problem, parameters)
        problem.progress(iteration)
        if np.abs(length * step).max() <= settings.tolerance * max(1.0, np.abs(parameters).max()):
            return parameters, iteration, True
    # Where optima are many, steps between them go on while nothing is left to gain.
    return parameters, settings.max_iter, -expected <= 1e-12 * abs(before)


def _model_minimiser(
    plan: Plan,
    problem: Problem,
    parameters: NDArray[np.float64],
    gradient: NDArray[np.float64],
    hessian: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Minimiser of the quadratic model plus penalty; the unpenalised intercept is eliminated."""
    coordinates = problem.rows.coordinates
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
    features = plan.facts.penalty.prox(target * scale, 1.0, schur / np.outer(scale, scale)) / scale
    step = features - parameters[:p].ravel()
    intercept = parameters[p:].ravel() - inner @ (slope[b] + matrix[b, w] @ step)
    return np.concatenate([features, intercept]).reshape(d, k)


def _positive_definite(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
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


def _derivatives(
    plan: Plan, problem: Problem, parameters: NDArray[np.float64]
) -> tuple[float, NDArray[np.float64], NDArray[np.float64]]:
    """Mean loss, gradient of shape (d, k), and Hessian of shape (d, k, d, k)."""
    loss, rows = plan.facts.loss, problem.rows
    d, k = parameters.shape

    def add_up(block: int) -> NDArray[np.float64]:
        part = problem.target[rows.slices[block]]
        A = rows.augmented(block)
        scores = A @ parameters if k > 1 else A @ parameters[:, 0]
        slopes = loss.derivative(scores, part).reshape(-1, k)
        bends = loss.curvature(scores, part).reshape(-1, k, k)
        hessian = np.empty((d, k, d, k))
        for i in range(k):
            for j in range(i, k):
                hessian[:, i, :, j] = A.T @ (bends[:, i, j, None] * A)
                hessian[:, j, :, i] = hessian[:, i, :, j]
        value = loss.value(scores, part).sum()
        return np.concatenate([[value], (A.T @ slopes).ravel(), hessian.ravel()])

    total = problem.engine.sum(add_up, rows.n_blocks) / rows.n_samples
    gradient = total[1 : 1 + d * k].reshape(d, k)
    return float(total[0]), gradient, total[1 + d * k :].reshape(d, k, d, k)


def _value(plan: Plan, problem: Problem, parameters: NDArray[np.float64]) -> float:
    return float(_value_and_gradient(plan, problem, parameters)[0])


def _value_and_gradient(
    plan: Plan, problem: Problem, parameters: NDArray[np.float64]
) -> tuple[float, NDArray[np.float64]]:
    loss, rows = plan.facts.loss, problem.rows
    prepared = rows.prepare(parameters if loss.n_outputs > 1 else parameters[:, 0])

    def add_up(block: int) -> NDArray[np.float64]:
        part = problem.target[rows.slices[block]]
        scores = rows.scores(block, prepared)
        value = loss.value(scores, part).sum()
        return np.append(rows.adjoint(block, loss.derivative(scores, part)).ravel(), value)

    total = problem.engine.sum(add_up, rows.n_blocks) / rows.n_samples
    raw = total[:-1].reshape(rows.coordinates.n_features + 1, -1)
    return float(total[-1]), rows.collect(raw).reshape(parameters.shape)


def _penalty(plan: Plan, problem: Problem, parameters: NDArray[np.float64]) -> float:
    coordinates = problem.rows.coordinates
    user = (parameters[: coordinates.n_features].T * coordinates.coefficient_scale).T
    return plan.facts.penalty.value(user)


def _accelerated_gradient(plan: Plan, problem: Problem) -> tuple[NDArray[np.float64], int, bool]:
    """FISTA with backtracking and gradient restart, for more parameters than a Hessian can hold."""
    settings: ProximalNewtonSettings = plan.settings
    penalty = plan.facts.penalty
    parameters = np.zeros((plan.facts.n_parameters, plan.facts.loss.n_outputs))
    ahead, momentum, step = parameters, 1.0, 1.0
    max_iter = 100 * settings.max_iter
    for iteration in range(1, max_iter + 1):
        value, gradient = _value_and_gradient(plan, problem, ahead)
        while True:
            trial = penalty_operator(penalty, step, problem.rows)(ahead - step * gradient)
            move = trial - ahead
            bound = value + np.vdot(gradient, move) + np.vdot(move, move) / (2 * step)
            if _value(plan, problem, trial) <= bound + 1e-13 * abs(value):
                break
            step /= 2
        change = trial - parameters
        if np.vdot(ahead - trial, change) > 0:
            momentum = 1.0
        following = (1 + math.sqrt(1 + 4 * momentum**2)) / 2
        ahead = trial + (momentum - 1) / following * change
        parameters, momentum = trial, following
        problem.progress(iteration)
        # A small step is not yet an optimum: the step that the prox would make from here is.
        if np.abs(change).max() <= settings.tolerance * max(1.0, np.abs(parameters).max()):
            _, gradient = _value_and_gradient(plan, problem, parameters)
            onward = penalty_operator(penalty, step, problem.rows)(parameters - step * gradient)
            residual = np.abs(onward - parameters).max()
            if residual <= settings.tolerance * max(1.0, np.abs(parameters).max()):
                return parameters, iteration, True
            ahead, momentum = parameters, 1.0
    return parameters, max_iter, False
