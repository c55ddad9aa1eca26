"""Statistics of a loss at a released model, from which a debiased step and its errors follow.

Three more releases follow a fit, at its model theta, in coordinates in which rows a have norm r:

- H, the mean of ``u h a a'``, where h is the curvature of the loss of a record and
  ``u = min(1, L^2 / r^2)``: positive semi-definite terms of Frobenius norm at most ``h_max L^2``;
- g and S, the means of ``v`` and ``v v'``, where v is the gradient of a record times u, in a basis
  in which H is the identity, clipped to norm C.

With a log link h is that of the expected target, and varies from row to row: the norm that is
bounded is that of ``h^1/2 a``, and u h a a' has one of at most ``L^2``. Gradients are skewed, so a
clip that cuts many of them biases the step: a histogram of their lengths is released before them.

Weights of records in [0, 1] multiply u h a a' and v, which stay within their bounds, and counts.

A record changes sums of ``v`` by at most 2 C, and C for zero-out; of terms that are positive
semi-definite by sqrt(2) times their bound, and once for zero-out (see `_preparations`), and so
counts in bins.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skdpadmm.algorithms._algorithm import refuse
from skdpadmm.algorithms._defaults import RESIDUAL, TARGET_VARIANCES, is_regression
from skdpadmm.algorithms._messages import plan_release
from skdpadmm.algorithms._preparations import LARGEST_MATRIX, packed, unpacked
from skdpadmm.losses import Loss, clip_vectors
from skdpadmm.privacy import gaussian_mu
from skdpadmm.protocol import Budget, Facts, Gate, Inference, Plan, Problem, Release, Summand
from skdpadmm.records import Rows

Array = NDArray[np.float64]

# Names of the releases, with their shares of mu^2; the rest fits the model. Lengths only with a log
# link.
CURVATURE, GRADIENT = "curvature at the model", "gradient at the model"
SQUARES, LENGTHS = "squared gradients", "lengths of gradients"
SHARES = {CURVATURE: 0.2, GRADIENT: 0.35, SQUARES: 0.15}
SHARE_OF_LENGTHS = 0.05

# With L the spectrum of noise in H ends at this share of `h_max`, for regressions and for classes,
# whose curvatures are well below `h_max`; L^2 is at least so many times the square of a usual row.
EDGES, LEAST_SQUARE = {True: 0.2, False: 0.06}, 4.0
# Eigenvalues of H below so many ends of the spectrum of noise are hidden.
DETECTED = 3.5
# With C the noise of g, and the root of that of S, are at most this share of the sampling error; C
# is at least and at most so many times a usual gradient, and at least so many times that of a usual
# row that is misclassified: rare classes have so little curvature that these are long.
NOISE, LEAST_OPENING, MOST_OPENING, LEAST_CLEARANCE = 0.6, 5.0, 30.0, 2.0
# With a log link C follows a histogram of lengths, in units of the root of the number of
# parameters: so many times the end of the last bin with more records than so many times its noise.
# A plan expects it at so many times a usual gradient.
ENDS, BEYOND, SEEN = 2.0 ** np.arange(-3, 11, 0.5), 2.0, 4.0
OPENING_OF_RATES = 12.0


@dataclass(frozen=True, eq=False, kw_only=True)
class Statistics:
    """Statistics at a model, released where there is a budget, and what is known of their noise."""

    # H in the basis of the rows, and its least eigenvalue that noise alone does not make.
    curvature: Array
    least: float
    # Its eigenvectors over the roots of their eigenvalues, or of `least`: the columns are the basis
    # of g and S, in ascending order. Whether noise hides the eigenvalue of each.
    basis: Array
    is_hidden: NDArray[np.bool_]
    # g and S.
    gradient: Array
    squares: Array
    # The largest norm of a row in that basis, and C.
    row_norm: float
    clip: float
    # Standard deviations of the noise in H, g and S, and in counts of lengths.
    curvature_std: float
    gradient_std: float
    squares_std: float
    lengths_std: float


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
    """Facts with the releases at the model, each in units of the bound of a term.

    `is_open`: the target of a regression has no declared bounds.
    """
    d, loss, agents = facts.n_parameters, facts.loss, facts.agents
    of_one = "records as the unit, and one budget for all agents"
    refuse(
        "Change that, or leave intervals out.",
        (
            not loss.has_debiased_step,
            f"intervals=True with loss={loss!r}",
            "a squared, Huber or logistic loss of one score, without class weights, or rates",
        ),
        (
            not facts.is_declared or (is_open and budget.is_private),
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
    return replace(facts, inference=expected_of(facts, releases, sum(shares.values())))


def expected_of(facts: Facts, releases: dict[str, Release], share: float) -> Inference:
    """The releases, with the clip bound and the width of intervals that they will have."""
    n, d, loss = facts.n_samples, facts.n_parameters, facts.loss
    relative = releases[GRADIENT].noise_std * math.sqrt(n * d) * facts.spread
    of_square = releases[SQUARES].noise_std * facts.spread**2 * d
    hidden = min(NOISE / relative, NOISE / math.sqrt(of_square))
    opening = min(max(LEAST_OPENING, hidden), MOST_OPENING)
    opening = OPENING_OF_RATES if loss.has_log_link else opening
    inflation = math.sqrt(1 + (relative * opening) ** 2 + of_square * opening**2)
    # Of usual residuals, of scores where classes are balanced, and of targets over their rates.
    deviation = math.sqrt(TARGET_VARIANCES[0]) if loss.is_of_residual else 2.0
    deviation = 1.0 if loss.has_log_link else deviation
    return Inference(
        releases=tuple(releases.values()),
        share=share,
        opening=opening,
        inflation=inflation,
        reach=1.96 * inflation * deviation / (0.5 * math.sqrt(n)),
    )


def statistics_at(parameters: Array, plan: Plan, problem: Problem, gate: Gate) -> Statistics:
    """Release H, and in the basis that it gives g and S."""
    facts, loss, rows = plan.facts, plan.facts.loss, problem.rows
    d, n, is_private = facts.n_parameters, facts.n_samples, plan.budget.is_private
    theta = rows.from_coordinates(parameters)
    noise = {release.name: release.noise_std for release in facts.preparations}
    longest, clip = math.inf, math.inf

    def mean(name: str, total: Array, bound: float) -> tuple[Array, float]:
        """The mean, released where there is a budget, and the noise of an entry."""
        if not is_private:
            return total / n, 0.0
        return bound * gate.release(name, total / (n * bound)), bound * noise[name]

    if is_private:
        # Where the spectrum of noise ends, in units of the bound of a term (Wigner's semicircle).
        longest = longest_of(facts, rows, math.sqrt(2 * d) * noise[CURVATURE])
    total = problem.summed(partial(curvature_at, loss, longest))(theta)
    largest = 1.0 if loss.has_log_link else loss.smoothness
    curvature, curvature_std = mean(CURVATURE, total, largest * longest**2)
    values, vectors = np.linalg.eigh(unpacked(curvature))
    least = max(detectable(values, curvature_std), 1e-12 * float(values[-1]), 1e-300)
    basis = vectors / np.sqrt(np.maximum(values, least))
    if LENGTHS in noise:
        lengths = problem.summed(partial(lengths_at, loss, longest))(theta, basis)
        clip = math.sqrt(d) * clip_beyond(gate.release(LENGTHS, lengths), noise[LENGTHS])
    elif is_private:
        clip = clip_of(facts, rows, basis)
    total = problem.summed(partial(gradients_at, loss, longest, clip))(theta, basis)
    gradient, gradient_std = mean(GRADIENT, total[:d], clip)
    squares, squares_std = mean(SQUARES, total[d:], clip**2)
    return Statistics(
        curvature=unpacked(curvature),
        least=least,
        basis=basis,
        is_hidden=values < least,
        gradient=gradient,
        squares=unpacked(squares),
        row_norm=longest / math.sqrt(max(float(values[0]), least)),
        clip=clip,
        curvature_std=curvature_std,
        gradient_std=gradient_std,
        squares_std=squares_std,
        lengths_std=noise.get(LENGTHS, 0.0),
    )


def curvature_at(loss: Loss, longest: float, problem: Problem) -> Summand:
    """The sum of curvatures, whose rows are scaled down to a norm, as `packed` gives it."""
    rows = problem.rows

    def total(parameters: Array) -> Array:
        def of_block(block: int) -> Array:
            A, target = rows.seen(block), problem.target[rows.slices[block]]
            curved = curvatures(loss, rows.product(A, parameters[:, 0]), target)
            A = clipped_to(bounds_of_rows(loss, longest, curved), A)
            return packed((A * (curved * weights_of(problem, block))[:, None]).T @ A)

        return problem.engine.sum(of_block, rows.n_blocks)

    return total


def gradients_at(loss: Loss, longest: float, clip: float, problem: Problem) -> Summand:
    """The sums of gradients in a basis, clipped to a norm, and of their squares."""

    def total(parameters: Array, basis: Array) -> Array:
        def of_block(block: int) -> Array:
            gradients = gradients_of(loss, longest, problem, block, parameters, basis)
            gradients = clipped_to(clip, gradients) * weights_of(problem, block)[:, None]
            # Of persons: what is squared is the mean gradient of their rows.
            gradients = gradients.reshape(-1, problem.per_person, len(basis)).sum(axis=1)
            return np.concatenate([gradients.sum(axis=0), packed(gradients.T @ gradients)])

        return problem.engine.sum(of_block, problem.rows.n_blocks)

    return total


def lengths_at(loss: Loss, longest: float, problem: Problem) -> Summand:
    """The sums of records, or of weights, with gradients longer than an end, up to the next."""

    def total(parameters: Array, basis: Array) -> Array:
        def of_block(block: int) -> Array:
            gradients = gradients_of(loss, longest, problem, block, parameters, basis)
            bins = np.searchsorted(ENDS, np.sqrt(np.square(gradients).sum(axis=1) / len(basis)))
            # Records without a gradient count nowhere, as those whose loss is zero.
            counts = np.bincount(bins, weights_of(problem, block), len(ENDS) + 1)
            return counts[1:].astype(np.float64)

        return problem.engine.sum(of_block, problem.rows.n_blocks)

    return total


def gradients_of(
    loss: Loss, longest: float, problem: Problem, block: int, parameters: Array, basis: Array
) -> Array:
    """Gradients of the rows of a block, in a basis."""
    rows = problem.rows
    A, target = rows.seen(block), problem.target[rows.slices[block]]
    scores = rows.product(A, parameters[:, 0])
    bound = bounds_of_rows(loss, longest, curvatures(loss, scores, target))
    slopes = loss.derivative(scores, target)
    slopes = slopes * np.minimum(1.0, bound**2 / np.square(A).sum(axis=1))
    return np.asarray(rows.product(A, basis) * slopes[:, None])


def weights_of(problem: Problem, block: int) -> Array:
    """The weight of each row of a block; of persons, over the number of their rows."""
    own = problem.rows.slices[block]
    if problem.weights is None:
        return np.ones(own.stop - own.start)
    return np.asarray(problem.weights[own] / problem.per_person)


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
    usual = EDGES[is_regression(facts)] / facts.spread
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
