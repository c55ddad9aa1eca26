"""One debiased step from a fit, and its covariance: functions of released statistics alone.

Sources of ideas: one-step estimators (Le Cam, 1956); the debiased lasso (Javanmard & Montanari,
JMLR 2014); covariances where the model may be wrong (White, Econometrica 1980); rows of high
leverage that count less (Mallows, 1975; Krasker & Welsch, JASA 1982).

In the basis of `Statistics`, in which H is the identity, ``theta_1 = theta - g`` and
``Cov = s_g^2 I + (S + s_S I) / n`` plus what noise in H does to the step,
``H^-1 s_H^2 |step|^2 H^-1``. As H and g weigh rows alike, ``theta_1`` is unbiased where the model
is right; where it is wrong it estimates the fit with these weights.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from skdpadmm.algorithms._defaults import is_regression
from skdpadmm.algorithms._inference import Statistics, statistics_at
from skdpadmm.losses import Loss
from skdpadmm.protocol import Debiased, Facts, Gate, Plan, Problem, Solution

Array = NDArray[np.float64]

# Without noise, steps follow until one changes usual scores by no more, or so many were taken.
SHORT_STEP, MOST_STEPS = 1e-8, 50
# A coefficient has no interval if more of its variance is in directions that noise hides.
LARGEST_LOADING = 0.01
# Of a regression: nor if the part of its step beyond a standard error changes the gradient of a
# record, from one end of the column to the other, by a larger share of the clip bound. Where few
# records are at one end, such as those of a rare category, the clip would stop the step halfway.
LARGEST_CHANGE = 0.5
# Of a loss that is no square: no coefficient has one if the step changes usual scores by more, in
# units of Huber's threshold or of two log-odds, or if the error of the step, which grows as its
# square, is more standard errors; twice as many with a log link, where a part is corrected.
LARGEST_STEP, LARGEST_ERROR = 0.15, 0.25
# With a log link: nor if the part of its step beyond a standard error is longer.
LONGEST_STEP = 0.2
# With a log link scores are large: along a direction that noise hides, that of half a range may be
# off by so much, as one standard deviation, and a coefficient has no interval if more of its
# variance comes from there.
FARTHEST, LARGEST_UNKNOWN = 2.5, 0.3
# Nor has any, if what the clip may cut unseen is more standard errors.
LARGEST_TAIL = 2.0


def debiased(plan: Plan, problem: Problem, solution: Solution, gate: Gate) -> Solution:
    """The solution with one debiased step from it; without privacy, with steps to the optimum."""
    facts, loss, rows = plan.facts, plan.facts.loss, problem.rows
    is_private, parameters = plan.budget.is_private, solution.parameters
    for _ in range(1 if is_private else MOST_STEPS):
        found = statistics_at(parameters, plan, problem, gate)
        step = found.basis @ found.gradient
        basis = rows.to_coordinates(found.basis)
        parameters = parameters - (basis @ found.gradient)[:, None]
        length = math.sqrt(float(rows.loading @ np.square(step)))
        if not length > SHORT_STEP:
            break
    covariance = covariance_of(found, step, facts.n_samples)
    error = math.sqrt(float(rows.loading @ variances(found.basis, covariance)))
    is_short = is_near(loss, length, error)
    if loss.has_log_link and is_private:
        constant = np.zeros(len(step))
        if rows.coordinates.fit_intercept:
            constant = rows.from_coordinates(np.eye(len(step))[-1])
        model = rows.from_coordinates(solution.parameters)[:, 0]
        tail = hidden_tail(loss, found, model, constant) / facts.n_samples
        is_short &= tail <= LARGEST_TAIL * math.sqrt(np.trace(covariance) / len(step))
        rest = second_order(step, constant, found.curvature, found.least)
        parameters = parameters - rows.to_coordinates(rest)[:, None]
    unknown = np.zeros(len(step))
    if loss.has_log_link:
        # What the step cannot see, and what noise in H does to a step of that size.
        unknown = np.where(found.is_hidden, FARTHEST**2 / np.square(basis).sum(axis=0), 0.0)
        variance = found.curvature_std**2 * float(unknown.sum()) / (2 * found.least)
        covariance += np.diag(unknown)
        covariance += variance * found.basis.T @ found.basis
    return replace(
        solution,
        debiased=Debiased(
            parameters=parameters,
            covariance=basis @ covariance @ basis.T,
            known=known_coefficients(facts, found, basis, covariance, unknown),
            is_near=is_short,
        ),
    )


def covariance_of(found: Statistics, step: Array, n_samples: int) -> Array:
    """The covariance of a step, in the basis of the statistics."""
    squares, directions = np.linalg.eigh(found.squares)
    squares = np.maximum(squares, 0.0) + found.squares_std
    covariance = (directions * squares) @ directions.T / n_samples
    covariance += found.gradient_std**2 * np.eye(len(step))
    # Along directions that noise hides the step may be as long again.
    covariance += np.diag(np.where(found.is_hidden, found.gradient**2, 0.0))
    covariance += found.curvature_std**2 * float(step @ step) * found.basis.T @ found.basis
    return np.asarray(covariance)


def variances(basis: Array, covariance: Array) -> Array:
    """The diagonal of a covariance that is given in a basis."""
    return np.asarray(np.einsum("ij,jk,ik->i", basis, covariance, basis))


def known_coefficients(
    facts: Facts, found: Statistics, basis: Array, covariance: Array, unknown: Array
) -> NDArray[np.bool_]:
    """Which coefficients have an interval; the basis is that of the statistics in coordinates."""
    loading, total = np.square(basis), np.square(basis).sum(axis=1)
    std_error = np.sqrt(variances(basis, covariance))
    excess = np.maximum(np.abs(basis @ found.gradient) - std_error, 0.0)
    known = loading[:, found.is_hidden].sum(axis=1) <= LARGEST_LOADING * total
    if is_regression(facts):
        # Columns have ends of -1 and 1.
        reach = np.minimum(2 * np.sqrt(total), found.row_norm)
        known &= 2 * excess * reach <= LARGEST_CHANGE * found.clip
    if facts.loss.has_log_link:
        # Of the rows at one end of a column, that step of 2 has an error of half its square.
        known &= excess**2 <= np.minimum(2 * LARGEST_ERROR * std_error, LONGEST_STEP**2)
        known &= loading @ unknown <= LARGEST_UNKNOWN * std_error**2
    return np.asarray(known)


def is_near(loss: Loss, length: float, error: float) -> bool:
    """Whether a step is short enough, in changes of usual scores, for its error to be known."""
    share = length / getattr(loss, "threshold", 2.0)
    largest = LARGEST_ERROR * (2.0 if loss.has_log_link else 1.0)
    return share <= LARGEST_STEP and share * length <= largest * error


def hidden_tail(loss: Loss, found: Statistics, model: Array, constant: Array) -> float:
    """The norm of what the clip may cut from the sum of gradients, unseen among noisy counts.

    That is a standard deviation of a count, of records with the largest target at the mean score.
    """
    weighted = found.curvature @ constant
    score = np.array([model @ weighted / max(float(constant @ weighted), found.least)])
    usual = np.sqrt(loss.curvature(score, loss.inverse_link(score)) / len(model))
    longest = float((np.abs(loss.derivative(score, np.array([np.inf]))) / usual)[0])
    return found.lengths_std * max(longest - found.clip, 0.0)


def second_order(step: Array, intercept: Array, curvature: Array, least: float) -> Array:
    """What a step lacks with a log link, where slopes are no line in the score.

    A record whose score is s too large has the mean slope ``h (1 - exp(-s))``, or about
    ``h (s - s^2 / 2)``. The sum of ``h s^2 a / 2`` is that of Gaussian rows of this second moment.
    """
    size = max(float(intercept @ curvature @ intercept), least)
    mean, square = (float(each @ curvature @ step) / size for each in (intercept, step))
    return np.asarray(mean * step + (square / 2 - mean**2) * intercept)
