"""One debiased step after a fit, and its covariance: what intervals of coefficients are made of.

Sources of ideas: one-step estimators (Le Cam, 1956); the debiased lasso (Javanmard & Montanari,
JMLR 2014); covariances where the model may be wrong (White, Econometrica 1980); rows of high
leverage that count less (Mallows, 1975; Krasker & Welsch, JASA 1982). Three more releases follow at
the released model theta, in coordinates in which the rows have a norm r:

- H, the mean of ``u h a a'``, where h is the curvature of the loss of a record and
  ``u = min(1, L^2 / r^2)``: positive semi-definite terms of Frobenius norm at most ``h_max L^2``;
- g and S, the means of ``v`` and ``v v'``, where v is the gradient of a record times u, in a basis
  in which H is the identity, scaled down to norm C.

Then ``theta_1 = theta - g``, and ``Cov = s_g^2 I + (S + s_S I) / n`` plus what noise in H does to
the step, ``H^-1 s_H^2 |step|^2 H^-1``. As H and g weigh rows alike, ``theta_1`` is unbiased where
the model is right; where it is wrong it estimates the fit with these weights.

With a log link h is that of the expected target, and varies from row to row: the norm that is
bounded is that of ``h^1/2 a``, and u h a a' has one of at most ``L^2``. Gradients are skewed, so a
clip that cuts many of them moves estimates: how long they are is released before, as a histogram.

Weights of records in [0, 1] multiply u h a a' and v, which stay within their bounds, and counts.

A record changes sums of ``v`` by at most 2 C, and C for zero-out; of terms that are positive
semi-definite by sqrt(2) times their bound, and once for zero-out (see `_preparations`), and so
counts in bins.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skdpadmm.algorithms._algorithm import refuse
from skdpadmm.algorithms._defaults import RESIDUAL, TARGET_VARIANCES
from skdpadmm.algorithms._messages import plan_release
from skdpadmm.algorithms._preparations import LARGEST_MATRIX
from skdpadmm.losses import Loss, clip_vectors
from skdpadmm.privacy import gaussian_mu
from skdpadmm.protocol import (
    Budget,
    Debiased,
    Facts,
    Gate,
    Inference,
    Plan,
    Problem,
    Solution,
    Summand,
)
from skdpadmm.records import Rows

Array = NDArray[np.float64]
CURVATURE, GRADIENT, SQUARES = (
    "curvature at the model",
    "gradient at the model",
    "squared gradients",
)
LENGTHS = "lengths of gradients"
# Of mu^2: what is released at the model; the rest fits it. Lengths only with a log link.
SHARES = {CURVATURE: 0.2, GRADIENT: 0.35, SQUARES: 0.15}
SHARE_OF_LENGTHS = 0.05
# Ends of bins of lengths, in units of the root of the number of parameters.
ENDS = 2.0 ** np.arange(-3, 11, 0.5)
# Bins with more records than so many times their noise are seen; the clip bound is so many times
# the end of the last one of them.
SEEN, BEYOND = 4.0, 2.0
# Squares of rows are clipped where the spectrum of noise in H ends at so much of `h_max`, which
# curvatures of scores in classes are well below, but not below so many times the square of a usual
# row.
EDGES, LEAST_SQUARE = {True: 0.2, False: 0.06}, 4.0
# Gradients are clipped where noise is so much of the sampling error, but not below so many times
# the usual one.
NOISE, LEAST_OPENING = 0.6, 5.0
# Nor below so many times that of a usual row with the slope of a misclassified one: rare classes
# have so little curvature that these are long.
LEAST_CLEARANCE = 2.0
# Eigenvalues of H below so many ends of the spectrum of noise say nothing.
DETECTED = 3.5
# A coefficient has no interval if more of its variance is in such directions,
LARGEST_LOADING = 0.01
# or if the loss is no square, and the step changes scores by more in root mean square, in units of
# Huber's threshold, or of two log-odds; or its square, as which the error of a step grows, by more
# than a quarter of a standard error; with a log link by half of one, as a part of it is known.
LARGEST_STEP, LARGEST_ERROR = 0.15, 0.25
# Without noise steps follow until one is so short, or so many were taken.
SHORT_STEP, MOST_STEPS = 1e-8, 50
# A coefficient has none either if what exceeds a standard error of its step changes the gradient
# of a record, from one end of the column to the other, by more of the clip bound. Where few records
# are at one end, such as those of a rare category, the clip would stop the step halfway.
LARGEST_CHANGE = 0.5
# Logarithms of rates are large: along a direction that noise hides, that of half a range may be off
# by so much, as one standard deviation, and a coefficient has no interval if more of its variance
# comes from there. A plan expects the clip bound at so many times a usual gradient.
FARTHEST, LARGEST_UNKNOWN, OPENING_OF_RATES = 2.5, 0.3, 12.0
# Nor if what exceeds a standard error of its step is longer, or has an error as large as above.
LONGEST_STEP = 0.2


def shares_of(loss: Loss) -> dict[str, float]:
    """Of mu^2, in the order of the releases."""
    lengths = {LENGTHS: SHARE_OF_LENGTHS} if loss.has_log_link else {}
    return {CURVATURE: SHARES[CURVATURE]} | lengths | SHARES


def share_of_fit(budget: Budget, loss: Loss) -> Budget:
    """What the releases at the model leave of a budget."""
    if budget.is_pure:
        raise ValueError(
            "Got intervals=True with delta=0, expected delta > 0: their noise is Gaussian. Pass a"
            " delta, or leave intervals out."
        )
    return budget.part(1 - sum(shares_of(loss).values()))


def with_inference(facts: Facts, budget: Budget, *, is_open: bool) -> Facts:
    """Facts with three releases at the model, each in units of the bound of a term.

    `is_open`: the target of a regression has no declared bounds.
    """
    d, loss, agents = facts.n_parameters, facts.loss, facts.agents
    has_open = facts.coordinates is None or bool(facts.coordinates.undeclared.any())
    of_one = "records as the unit, and one budget for all agents"
    refuse(
        "Change that, or leave intervals out.",
        (
            not loss.has_debiased_step,
            f"intervals=True with loss={loss!r}",
            "a squared, Huber or logistic loss of one score, without class weights, or rates",
        ),
        (
            has_open or (is_open and budget.is_private),
            "intervals=True with undeclared bounds",
            "feature_bounds of every column, or row_norm, and target_bounds of a regression",
        ),
        (d > LARGEST_MATRIX, f"intervals=True with {d} parameters", f"at most {LARGEST_MATRIX}"),
        (facts.is_stream, "intervals=True for a stream", "all records at once"),
        (facts.unit == "agent", "intervals=True with privacy_unit='agent'", of_one),
        (bool(agents.epsilons), "intervals=True with budgets of agents", of_one),
    )
    if not budget.is_private:
        return facts
    total, relation = gaussian_mu(budget.epsilon, budget.delta), facts.neighboring
    square = (d * (d + 1) // 2, relation.second_moment_factor)
    sizes = {CURVATURE: square, GRADIENT: (d, relation.sensitivity_factor), SQUARES: square}
    # Counts are no means.
    sizes[LENGTHS] = (len(ENDS), math.sqrt(relation.sensitivity_factor) * facts.n_samples)
    shares = shares_of(loss)
    releases = {
        name: plan_release(
            facts,
            budget,
            name=name,
            shape=(sizes[name][0],),
            sensitivity=sizes[name][1] * facts.working_rounding / facts.n_samples,
            mu=total * math.sqrt(share),
        )
        for name, share in shares.items()
    }
    relative = releases[GRADIENT].noise_std * math.sqrt(facts.n_samples * d) * facts.spread
    opening = OPENING_OF_RATES if loss.has_log_link else max(LEAST_OPENING, NOISE / relative)
    of_squares = releases[SQUARES].noise_std * (opening * facts.spread) ** 2 * d
    inflation = math.sqrt(1 + (relative * opening) ** 2 + of_squares)
    # Of usual residuals, of scores where classes are balanced, and of targets over their rates.
    deviation = math.sqrt(TARGET_VARIANCES[0]) if loss.is_of_residual else 2.0
    deviation = 1.0 if loss.has_log_link else deviation
    return replace(
        facts,
        inference=Inference(
            releases=tuple(releases.values()),
            share=sum(shares.values()),
            opening=opening,
            inflation=inflation,
            reach=1.96 * inflation * deviation / (0.5 * math.sqrt(facts.n_samples)),
        ),
    )


def curvature_at(loss: Loss, longest: float, problem: Problem) -> Summand:
    """The sum of curvatures, whose rows are scaled down to a norm, as `flat` gives it."""
    rows = problem.rows

    def total(parameters: Array) -> Array:
        def of_block(block: int) -> Array:
            A, own = rows.seen(block), rows.slices[block]
            curved = curvatures(loss, rows.product(A, parameters[:, 0]), problem.target[own])
            bound = bounds_of_rows(loss, longest, curved)
            if problem.weights is not None:
                curved = curved * (problem.weights[own] / problem.per_person)
            A = clipped_to(bound, A)
            return flat((A * curved[:, None]).T @ A)

        return problem.engine.sum(of_block, rows.n_blocks)

    return total


def gradients_at(loss: Loss, longest: float, clip: float, problem: Problem) -> Summand:
    """The sums of gradients in a basis, clipped to a norm, and of their squares."""

    def total(parameters: Array, basis: Array) -> Array:
        def of_block(block: int) -> Array:
            gradients, own = gradients_of(loss, longest, problem, block, parameters, basis)
            gradients = clipped_to(clip, gradients)
            if problem.weights is not None:
                # Of persons: what is squared is the mean gradient of their rows.
                gradients *= (problem.weights[own] / problem.per_person)[:, None]
                gradients = gradients.reshape(-1, problem.per_person, len(basis)).sum(axis=1)
            return np.concatenate([gradients.sum(axis=0), flat(gradients.T @ gradients)])

        return problem.engine.sum(of_block, problem.rows.n_blocks)

    return total


def lengths_at(loss: Loss, longest: float, problem: Problem) -> Summand:
    """The sums of records, or of weights, with gradients longer than an end, up to the next."""

    def total(parameters: Array, basis: Array) -> Array:
        def of_block(block: int) -> Array:
            gradients, own = gradients_of(loss, longest, problem, block, parameters, basis)
            norms = np.sqrt(np.square(gradients).sum(axis=1) / len(basis))
            counted = None if problem.weights is None else problem.weights[own] / problem.per_person
            counts = np.bincount(np.searchsorted(ENDS, norms), counted, len(ENDS) + 1)
            # Records without a gradient count nowhere, as those whose loss is zero.
            return counts[1:].astype(np.float64)

        return problem.engine.sum(of_block, problem.rows.n_blocks)

    return total


def gradients_of(
    loss: Loss, longest: float, problem: Problem, block: int, parameters: Array, basis: Array
) -> tuple[Array, slice]:
    """Gradients of the records of a block in a basis, and which records these are."""
    rows, own = problem.rows, problem.rows.slices[block]
    A, target = rows.seen(block), problem.target[own]
    scores = rows.product(A, parameters[:, 0])
    bound = bounds_of_rows(loss, longest, curvatures(loss, scores, target))
    slopes = loss.derivative(scores, target)
    slopes = slopes * np.minimum(1.0, bound**2 / np.square(A).sum(axis=1))
    return rows.product(A, basis) * slopes[:, None], own


def curvatures(loss: Loss, scores: Array, target: NDArray[Any]) -> Array:
    """Curvatures within their bound; with a log link those of expected targets."""
    target = loss.inverse_link(scores) if loss.has_log_link else target
    return np.clip(np.nan_to_num(loss.curvature(scores, target)), 0.0, loss.smoothness)


def bounds_of_rows(loss: Loss, longest: float, curved: Array) -> Array:
    """What rows are scaled down to; with a log link, times the root of their curvatures."""
    divisor = np.sqrt(np.maximum(curved, 1e-200)) if loss.has_log_link else np.ones(len(curved))
    return np.asarray(longest / divisor)


def clipped_to(norm: float | Array, vectors: Array) -> Array:
    """Vectors of shape (n, d), scaled down to a norm; what is not finite becomes zero."""
    return clip_vectors(vectors[:, :, None], np.broadcast_to(norm, len(vectors)))[:, :, 0]


def longest_of(facts: Facts, rows: Rows, edge: float) -> float:
    """The bound of the norm of rows: public, as the basis and units are."""
    row_norm, typical = rows.coordinates.row_norm, LEAST_SQUARE * rows.typical_norm**2
    most = row_norm**2 / (1.0 if rows.basis is None else float(rows.basis.eigenvalues.min()))
    # Curvatures of usual weights are smaller, and gradients longer in a basis in which they are 1.
    usual = EDGES[facts.loss.is_of_residual or facts.loss.has_log_link] / facts.spread
    return math.sqrt(min(most, max(typical, usual / edge)))


def clip_of(facts: Facts, rows: Rows, basis: Array) -> float:
    """The bound of the norm of gradients, in a released basis."""
    assert facts.inference is not None
    slope = RESIDUAL * rows.coordinates.target_unit if facts.loss.is_of_residual else 1.0
    usual = math.sqrt(float(rows.loading @ np.square(basis).sum(axis=1)))
    opened = facts.inference.opening * math.sqrt(len(basis) * facts.spread)
    return slope * max(opened, LEAST_CLEARANCE * usual)


def clip_beyond(counts: Array, noise_std: float) -> float:
    """A clip bound that cuts few gradients, of a released histogram of their lengths."""
    seen = np.flatnonzero(counts[:-1] > SEEN * noise_std)
    return float(BEYOND * ENDS[seen[-1] + 1 if len(seen) else 0])


def debiased(
    plan: Plan, problem: Problem, solution: Solution, gate: Gate, n_steps: int = MOST_STEPS
) -> Solution:
    """The solution with one debiased step from it."""
    facts, loss, rows = plan.facts, plan.facts.loss, problem.rows
    d, n, is_private = facts.n_parameters, facts.n_samples, plan.budget.is_private
    theta = rows.from_coordinates(solution.parameters)
    noise = {release.name: release.noise_std for release in facts.preparations}
    # Where the spectrum of noise ends, in units of the bound of a term (Wigner's semicircle).
    edge = math.sqrt(2 * d) * noise.get(CURVATURE, 0.0)
    longest = longest_of(facts, rows, edge) if is_private else math.inf

    def mean(name: str, total: Array, bound: float) -> tuple[Array, float]:
        """The mean, released where there is a budget, and the noise of an entry."""
        if not is_private:
            return total / n, 0.0
        return bound * gate.release(name, total / (n * bound)), bound * noise[name]

    curvature = problem.summed(partial(curvature_at, loss, longest))(theta)
    largest = 1.0 if loss.has_log_link else loss.smoothness
    flat_curvature, curvature_std = mean(CURVATURE, curvature, largest * longest**2)
    values, vectors = np.linalg.eigh(symmetric(flat_curvature, d))
    least = max(detectable(values, curvature_std), 1e-12 * float(values[-1]), 1e-300)
    is_noise = values < least
    basis = vectors / np.sqrt(np.maximum(values, least))
    clip = clip_of(facts, rows, basis) if is_private else math.inf
    if LENGTHS in noise:
        lengths = problem.summed(partial(lengths_at, loss, longest))(theta, basis)
        clip = math.sqrt(d) * clip_beyond(gate.release(LENGTHS, lengths), noise[LENGTHS])
    sums = problem.summed(partial(gradients_at, loss, longest, clip))(theta, basis)
    gradient, gradient_std = mean(GRADIENT, sums[:d], clip)
    flat_squares, squares_std = mean(SQUARES, sums[d:], clip**2)
    squares, directions = np.linalg.eigh(symmetric(flat_squares, d))
    step = basis @ gradient
    covariance = (directions * (np.maximum(squares, 0.0) + squares_std)) @ directions.T / n
    covariance += gradient_std**2 * np.eye(d)
    # Along directions that noise hides the step may be as long again.
    covariance += np.diag(np.where(is_noise, gradient**2, 0.0))
    covariance += curvature_std**2 * float(step @ step) * basis.T @ basis
    variances = np.einsum("ij,jk,ik->i", basis, covariance, basis)
    moved, error = (
        math.sqrt(float(rows.loading @ squares)) for squares in (np.square(step), variances)
    )
    unknown = np.square(rows.to_coordinates(basis)).sum(axis=0)
    unknown = np.where(is_noise & loss.has_log_link, FARTHEST**2 / unknown, 0.0)
    covariance += np.diag(unknown)
    covariance += curvature_std**2 * float(unknown.sum()) / (2 * least) * basis.T @ basis
    # From here to public coordinates.
    basis = rows.to_coordinates(basis)
    parameters = solution.parameters - (basis @ gradient)[:, None]
    if loss.has_log_link and is_private and rows.coordinates.fit_intercept:
        intercept = rows.from_coordinates(np.eye(d)[-1])
        rest = second_order(step, intercept, symmetric(flat_curvature, d), least)
        parameters = parameters - rows.to_coordinates(rest)[:, None]
    if not is_private and moved > SHORT_STEP and n_steps > 1:
        nearer = replace(solution, parameters=parameters)
        nearer = debiased(plan, problem, nearer, gate, n_steps - 1)
        return replace(solution, debiased=nearer.debiased)
    loading, total = np.square(basis), np.square(basis).sum(axis=1)
    known = loading[:, is_noise].sum(axis=1) <= LARGEST_LOADING * total
    step_std = np.sqrt(np.einsum("ij,jk,ik->i", basis, covariance, basis))
    # Columns have ends of -1 and 1, and gradients are as long as H and the bound of rows say.
    reach = np.minimum(2 * np.sqrt(total), longest / math.sqrt(max(float(values[0]), least)))
    excess = np.maximum(np.abs(basis @ gradient) - step_std, 0.0)
    is_clipped = loss.is_of_residual or loss.has_log_link
    known &= (2 * excess * reach <= LARGEST_CHANGE * clip) | (not is_clipped)
    share = moved / getattr(loss, "threshold", 2.0)
    bend = LARGEST_ERROR * (2.0 if loss.has_log_link else 1.0)
    if loss.has_log_link:
        # Of the rows at one end of a column, that step of 2 has an error of half its square.
        known &= excess**2 <= np.minimum(bend * step_std, LONGEST_STEP**2)
        known &= loading @ unknown <= LARGEST_UNKNOWN * step_std**2
    return replace(
        solution,
        debiased=Debiased(
            parameters=parameters,
            covariance=basis @ covariance @ basis.T,
            known=known,
            is_near=share <= LARGEST_STEP and share * moved <= bend * error,
        ),
    )


def second_order(step: Array, intercept: Array, curvature: Array, least: float) -> Array:
    """What a step lacks with a log link, where slopes are no line in the score.

    A record whose score is s too large has the mean slope ``h (1 - exp(-s))``, or about
    ``h (s - s^2 / 2)``. The sum of ``h s^2 a / 2`` is that of Gaussian rows of this second moment.
    """
    size = max(float(intercept @ curvature @ intercept), least)
    mean, square = (float(each @ curvature @ step) / size for each in (intercept, step))
    return np.asarray(mean * step + (square / 2 - mean**2) * intercept)


def detectable(values: Array, noise_std: float) -> float:
    """The least eigenvalue of a noisy matrix, of ascending ones, that noise alone does not make.

    The spectrum of noise in as many directions as are hidden ends at ``noise_std * sqrt(2 m)``.
    """
    n_hidden = len(values)
    while n_hidden > 1:
        least = DETECTED * math.sqrt(2 * n_hidden) * noise_std
        fewer = int(np.sum(values < least))
        if fewer == n_hidden:
            break
        n_hidden = min(fewer, n_hidden - 1)
    return DETECTED * math.sqrt(2 * max(n_hidden, 1)) * noise_std


def flat(matrix: Array) -> Array:
    """The upper triangle with entries off the diagonal times sqrt(2), whose norm is Frobenius'."""
    upper = np.triu_indices(len(matrix))
    return np.asarray(matrix[upper] * np.where(upper[0] == upper[1], 1.0, math.sqrt(2.0)))


def symmetric(flat: Array, d: int) -> Array:
    """The matrix of such a triangle."""
    upper = np.triu_indices(d)
    matrix = np.zeros((d, d))
    matrix[upper] = flat / np.where(upper[0] == upper[1], 1.0, math.sqrt(2.0))
    return np.asarray(matrix + np.triu(matrix, 1).T)
