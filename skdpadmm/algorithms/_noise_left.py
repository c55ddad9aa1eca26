"""How much noise a path leaves in its result, from public facts, and what is done about it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skdpadmm.algorithms._algorithm import without_intercept
from skdpadmm.algorithms._defaults import has_row_norm, least_cut, typical_row, usual_smoothness
from skdpadmm.losses import Loss
from skdpadmm.penalties import L1
from skdpadmm.protocol import Facts, Plan, Problem, Solution
from skdpadmm.records import HUGE, Rows

Array = NDArray[np.float64]
# The formula is exact for quadratics alone; twice the variance was calibrated best.
CAUTION = 2.0
# Norms in the second moment over those of rows, which were cut before it was taken.
CUT_ROWS = 0.75


@dataclass(eq=False)
class Tail:
    """Mean and spread of the last points of a path that is released, of agents or of one model."""

    n_averaged: int
    mean: Any = 0.0
    squares: Any = 0.0

    def add(self, point: Array) -> None:
        """Add one of `n_averaged` points, of shape (..., n_parameters, n_outputs)."""
        self.mean = self.mean + point / self.n_averaged
        self.squares = self.squares + np.square(_of_classes(point)) / self.n_averaged

    def score_variance(self, rows: Rows) -> float:
        """Variance of the score of a typical row over points and agents; 0 without points."""
        if self.n_averaged == 0:
            return 0.0
        shape = (-1, *np.shape(self.mean)[-2:])
        square, mean = (
            np.reshape(each, shape).mean(axis=0) for each in (self.squares, _of_classes(self.mean))
        )
        return float(rows.loading @ np.maximum(square - np.square(mean), 0.0).mean(axis=1))


def _of_classes(models: Array) -> Array:
    """Scores of all classes may move together and mean nothing."""
    return models - models.mean(axis=-1, keepdims=True) if models.shape[-1] > 1 else models


def rows_in_mean(facts: Facts) -> float:
    """How much a record's derivative may pass the clip of its person's mean, if the rest is noise.

    Or, of a usual record, that of its weighted derivative.

    Probabilities that are corrected for clips take this for the bound of a record.
    """
    return math.sqrt(max(facts.max_rows_per_person, 1)) * facts.spread


def parameter_variance(
    loss: Loss, rows: Rows, *, step_size: float, noise_std: float, n_iter: int, n_averaged: int
) -> Array:
    """Variance that noise in the gradients leaves in each parameter of the averaged path.

    Exact for a quadratic loss whose curvature is half of the smoothness along each direction, as if
    half of the records were clipped: ``w <- w - step (curvature w + noise)``, averaged over the
    last iterates. In the basis of the rows.
    """
    first, smoothness = n_iter - n_averaged, usual_smoothness(loss)
    shrinks = np.clip(1.0 - 0.5 * step_size * smoothness * rows.loading, -0.99, 1.0)
    sums = np.cumsum(shrinks[:, None] ** np.arange(n_iter), axis=1)
    gain = np.zeros(len(shrinks))
    for k in range(n_iter):
        # Noise of step k is in all later iterates, weaker from step to step.
        skipped = max(k, first) - k
        weight = sums[:, n_iter - 1 - k] - (sums[:, skipped - 1] if skipped else 0.0)
        gain += np.square(weight / n_averaged)
    return np.asarray(np.square(step_size * noise_std) * gain)


def score_variance(rows: Rows, variance: Array) -> float:
    """Variance that noise leaves in the score of a typical row, with some caution."""
    return CAUTION * float(rows.loading @ variance)


def doubt(rows: Rows, parameters: Array, variance: Array) -> float:
    """Twice the chance that noise turns the sign of a typical score.

    A score of variance t, of which noise is s, has the wrong sign with probability
    ``arctan(sqrt(s / t)) / pi``. Rows that are larger than a typical one meet more noise, so that
    share of labels and as much again is counted as unknown.
    """
    seen = _of_classes(rows.from_coordinates(parameters))
    size = float(rows.loading @ np.square(seen).mean(axis=1))
    return float(2.0 / np.pi * np.arctan2(np.sqrt(rows.loading @ variance), size**0.5))


def drop_noise(parameters: Array, rows: Rows, variance: Array) -> Array:
    """Set those coefficients to zero again that noise alone has moved.

    An l1 penalty that is small beside the noise of the average leaves every coefficient a little
    off zero. Which ones to keep is decided by one more proximal step, with weights of two standard
    deviations of the noise in place of the penalty; those that stay are moved to where they were
    best in the same metric, so that the choice does not shrink them. All of it is public.
    """
    p, d = rows.coordinates.n_features, rows.coordinates.n_parameters
    inverse = np.eye(d) if rows.basis is None else rows.basis.inverse
    # The gradient at coefficient j is (metric @ w)_j, in which noise has this standard deviation.
    weights = 2.0 * np.sqrt(np.square(inverse.T) @ variance)[:p]
    if not np.all(weights > 0):
        return parameters
    reduced, follows = without_intercept(inverse.T @ inverse, p)
    choose = L1(1.0).proximal_operator(1.0, metric=reduced / np.outer(weights, weights))
    kept = choose(parameters[:p] * weights[:, None]) != 0
    result = parameters.copy()
    for k in range(parameters.shape[1]):
        inside, outside = kept[:, k], ~kept[:, k]
        dropped = result[:p, k][outside]
        result[:p, k][outside] = 0.0
        shift = np.linalg.solve(reduced[np.ix_(inside, inside)], reduced[np.ix_(inside, outside)])
        result[:p, k][inside] += shift @ dropped
        result[p:, k] += follows @ (result[:p, k] - parameters[:p, k])
    return result


def without_stretch(plan: Plan, problem: Problem, solution: Solution) -> Solution:
    """A solution, and its path, with scores scaled down as far as clips and noise stretch them.

    A fit with clipped derivatives ends where clipped ones balance, and one whose derivatives are
    taken at noisy points where their means over that noise do: its scores rank records as those of
    the optimum do, and are larger. All that this takes is public or was released.
    """
    if not (plan.budget.is_private and math.isfinite(solution.derivative_bound)):
        return solution
    facts, rows = plan.facts, problem.rows
    if facts.unit == "agent" and facts.n_samples > facts.agents.n_agents:
        # Means of agents are clipped, not derivatives of records.
        return solution
    if rows.basis is not None:
        size, excess = 1.0, CUT_ROWS
        if facts.conditioning is not None:
            excess = min(1.0, excess * facts.conditioning.row_norm / least_cut(facts))
    elif has_row_norm(facts):
        # Such fits, as those of text, stop long before derivatives balance.
        return solution
    else:
        # Of a row as it typically is, over one at its bound.
        size = typical_row(facts) / rows.typical_norm
        excess = 1.0 / size
    seen = size * rows.from_coordinates(solution.parameters)
    covariance = seen.T @ (rows.loading[:, None] * seen)
    if not (0 < np.trace(covariance) < HUGE and solution.path_variance < HUGE):
        # Noise beyond the range of floats has left no model.
        return solution
    bounds = np.full(max(facts.loss.n_outputs, 2), excess * solution.derivative_bound)
    factor = facts.loss.unclipped_scale(covariance, bounds, size**2 * solution.path_variance)
    if problem.path is not None:
        problem.path[:] = [factor * model for model in problem.path]
    per_agent = solution.parameters_per_agent
    return replace(
        solution,
        parameters=factor * solution.parameters,
        score_variance=factor**2 * solution.score_variance,
        parameters_per_agent=None if per_agent is None else factor * per_agent,
    )


def noisy_solution(
    facts: Facts, rows: Rows, parameters: Array, variance: Array, **fields: Any
) -> Solution:
    """A solution whose parameters carry noise of that variance, and how far it is to be trusted.

    Where the spread of a path is unknown, scores stay stretched: they are doubted twice as much.
    """
    share = doubt(rows, parameters, variance) * (1.0 if fields.get("path_variance") else 2.0)
    if facts.penalty.is_sparse:
        fields["parameters"] = drop_noise(parameters, rows, variance)
    return Solution(
        **{"parameters": parameters} | fields,
        score_variance=score_variance(rows, variance),
        doubt=min(1.0, share),
    )


def averaged_solution(
    plan: Plan,
    rows: Rows,
    parameters: Array,
    *,
    step_size: float,
    noise_std: float,
    **fields: Any,
) -> Solution:
    """A solution from the averaged tail of a path.

    `noise_std` is that of the mean gradient in units of the clip bound.
    """
    steps = {"n_iter": plan.settings.n_iter, "n_averaged": plan.settings.n_averaged}
    clip_norm = plan.settings.clip_norm * rows.clip_unit
    noise_std *= clip_norm
    # Steps are as much longer as curvature is smaller for weights.
    spread = plan.facts.spread
    variance = parameter_variance(
        plan.facts.loss, rows, step_size=step_size / spread, noise_std=noise_std * spread, **steps
    )
    fields["derivative_bound"] = clip_norm / rows.typical_norm * rows_in_mean(plan.facts)
    return noisy_solution(plan.facts, rows, parameters, variance, **fields)
