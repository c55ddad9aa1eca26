"""What is released before an algorithm starts: the units of columns, and a basis.

Counting: where the number of records is private, a noisy one takes its place in all that follows.

Private scaling: one noisy histogram of the norms of rows whose units nobody declared. One record is
in one bin, so the counts move by at most 1 in Euclidean norm for zero-out and by sqrt(2) for
replace-one. Of persons the shares of their rows are counted, which are no longer than one record.

Private centring: two noisy moments of the target. Where declared bounds are far from it, or wide,
an iteration would spend its first steps, and most of its noise, on finding the intercept.

Private conditioning: one noisy second moment of the rows, turned into public coordinates.

In the user's coordinates some directions hold most of the variance of the rows and others next to
none. A step that suits the first takes for ever in the others, while noise is the same in all. So
a share of the budget is spent on the second moment. All that follows from it is public: a basis
in which the second moment is near the identity, where gradients are clipped and noise is added.

The sensitivity of the sum of ``a a'`` over rows of norm at most R is ``R**2`` for zero-out and
``sqrt(2) R**2`` for replace-one, in Frobenius norm, and so is that of a sum of means over the rows
of persons: what is positive semi-definite never points in opposite directions. The upper triangle
with off-diagonal entries times sqrt(2) has that norm as its Euclidean one, so noise off the
diagonal is smaller by sqrt(2).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from skdpadmm.algorithms import _defaults as defaults
from skdpadmm.algorithms._algorithm import Algorithm, refuse
from skdpadmm.algorithms._messages import plan_release
from skdpadmm.losses import SmoothedPinball
from skdpadmm.privacy import Neighboring, gaussian_mu
from skdpadmm.protocol import (
    SMALLEST_SPREAD,
    Budget,
    Centering,
    Conditioning,
    Facts,
    Gate,
    Problem,
    Release,
    Scaling,
    Summand,
)
from skdpadmm.records import Basis, Coordinates, feature_norms

N_RECORDS = "number of records"
# Share of the squared budget that a private number of records is released with. 1 % would do where
# signal is ample; at a signal of 16 it lost .05 of R2, and 5 % lost nothing.
COUNT_SHARE = 0.05
# More are refused where their number is private, as rounding of sums has to have a public bound.
LARGEST_COUNT = 2**24
ROW_NORMS, SECOND_MOMENT = "histogram of row norms", "second moment"
TARGET_MOMENTS = "mean and square of the target"
# Of the square beside the mean: a factor that costs nothing where a record is replaced.
SQUARE = 1.6
# Above it the matrix costs more time and memory than the iteration does.
LARGEST_MATRIX = 1000
# Powers of two from 2^-20 to 2^20: units a million times off either way are still found.
EXPONENTS = np.arange(-20, 21)


def prepared(
    facts: Facts,
    budget: Budget,
    algorithm: Algorithm,
    coordinates: Coordinates,
    *,
    scale: str | None,
    conditioning: str | None,
) -> Facts:
    """Facts with the preparations that a user asked for, or that the rule finds useful.

    `scale` and `conditioning` are "auto", "private" or None.
    """
    if budget.is_pure:
        asked = f"scale={scale!r} and conditioning={conditioning!r} with delta=0"
        expected = "neither to be 'private': their noise is Gaussian"
        advice = "Pass 'auto' or None, and an algorithm with noise='laplace'."
        refuse(advice, ("private" in (scale, conditioning), asked, expected))
        return facts
    total = gaussian_mu(budget.epsilon, budget.delta)
    is_unknown = bool(coordinates.undeclared.any())
    if scale == "private" and not is_unknown:
        raise ValueError(
            "Got scale='private' with feature_bounds for every column, or with row_norm, expected"
            " columns whose units are not known. Leave one of the two out."
        )
    if scale == "private" or (scale == "auto" and is_unknown and algorithm.conditionable):
        n_entries = facts.n_parameters * float(coordinates.undeclared.mean())
        mu = total * math.sqrt(defaults.SCALING_SHARE)
        scaling = plan_scaling(facts, budget, mu=mu, n_entries=n_entries)
        if scale == "private" or defaults.scaling_pays(facts, scaling.release.noise_std):
            facts = replace(facts, scaling=scaling)
    # Targets that were not declared count as standardised: their centre and unit are known.
    is_open = coordinates.has_target_scale and not coordinates.has_standard_target
    is_open |= coordinates.has_log_link
    is_scaled = coordinates.has_log_link or isinstance(facts.loss, SmoothedPinball)
    if is_scaled or facts.loss.degree != 2.0:
        # Its constants follow the unit: they may be no part of a guarantee.
        is_open &= algorithm.takes_corners
    if scale is not None and is_open and coordinates.fit_intercept:
        is_free = algorithm.conditionable and getattr(algorithm, "clip_norm", None) == "auto"
        # What the whole budget would show tells how small a part of it is enough.
        whole = plan_centering(facts, budget, mu=total).release.noise_std if is_free else math.inf
        if share := defaults.centering_share(facts, whole):
            centering = plan_centering(facts, budget, mu=total * math.sqrt(share))
            facts = replace(facts, centering=centering)
    is_possible = algorithm.conditionable and facts.n_parameters <= LARGEST_MATRIX
    if conditioning is None or (conditioning == "auto" and not is_possible):
        return facts
    mu = total * math.sqrt(defaults.CONDITIONING_SHARE)
    planned = plan_conditioning(facts, budget, mu=mu)
    if conditioning == "auto" and not defaults.conditioning_pays(facts, planned.edge):
        return facts
    return replace(facts, conditioning=planned)


def with_count(facts: Facts, budget: Budget) -> tuple[Facts, Budget]:
    """Facts with the release of a private number of records, and what it leaves of the budget."""
    if facts.neighboring is not Neighboring.ADD_REMOVE or not budget.is_private:
        return facts, budget
    refuse(
        "Its noise is Gaussian.",
        (budget.is_pure, "delta=0 with neighboring='add_remove'", "a float in (0, 1)"),
    )
    mu = gaussian_mu(budget.epsilon, budget.delta) * math.sqrt(COUNT_SHARE)
    count = plan_release(facts, budget, name=N_RECORDS, shape=(1,), sensitivity=1.0, mu=mu)
    return replace(facts, count=count), budget.part(1 - COUNT_SHARE)


def released_count(n_samples: int, gate: Gate) -> int:
    """The noisy number of records; at least one."""
    return max(round(float(gate.release(N_RECORDS, np.array([float(n_samples)]))[0])), 1)


def plan_scaling(facts: Facts, budget: Budget, *, mu: float, n_entries: float) -> Scaling:
    """Plan the release of the histogram of norms, which are those of so many entries of a row."""
    per_unit = facts.max_rows_per_person
    release = plan_release(
        facts,
        budget,
        name=ROW_NORMS,
        shape=(len(EXPONENTS) + 1,),
        sensitivity=math.sqrt(facts.neighboring.sensitivity_factor)
        # Shares are no whole numbers.
        * (facts.rounding if per_unit else 1.0),
        mu=mu,
    )
    target = defaults.DECLARED_NORM * math.sqrt(n_entries)
    return Scaling(target=target, release=release, per_unit=max(per_unit, 1))


def norm_counts(X: Any, y: Any, columns: NDArray[np.bool_]) -> NDArray[np.float64]:
    """The histogram of the norms of some features of rows."""
    # Bin k holds norms in (2^(k-1), 2^k], the first one all below and the last one all above.
    bins = np.searchsorted(2.0**EXPONENTS, feature_norms(X, columns))
    return np.bincount(bins, minlength=len(EXPONENTS) + 1).astype(np.float64)


def rescale(
    coordinates: Coordinates, each: Callable[..., Any], scaling: Scaling, gate: Gate
) -> Coordinates:
    """Release the histogram and bring undeclared features to the scale that algorithms expect.

    ``each(function, ...)`` is a list of ``function(X, y, ...)`` of the rows of each place.
    """
    counts = np.add.reduce(each(norm_counts, coordinates.undeclared))
    released = gate.release(ROW_NORMS, counts / scaling.per_unit)
    return coordinates.rescaled(
        scaling.target / median_norm(released, scaling.release.noise_std, default=scaling.target)
    )


def median_norm(counts: NDArray[np.float64], noise_std: float, *, default: float) -> float:
    """Median of the norms from noisy counts; nothing here sees data.

    Bins within the reach of noise count as empty, and rows in the lowest bin say nothing of units.
    """
    kept = np.where(counts > 3 * noise_std, counts, 0.0)
    kept[0] = 0.0
    total = float(kept.sum())
    if total == 0:
        return default
    before = np.cumsum(kept) - kept
    k = int(np.flatnonzero(before <= total / 2)[-1])
    while kept[k] == 0:
        k -= 1
    inside = (total / 2 - float(before[k])) / float(kept[k])
    return float(2.0 ** (EXPONENTS[min(k, len(EXPONENTS) - 1)] - 1 + min(inside, 1.0)))


def plan_centering(facts: Facts, budget: Budget, *, mu: float) -> Centering:
    """Plan the release of the target's moments; of persons each has the mean over its slots."""
    factor = facts.neighboring.target_moments_factor * facts.rounding
    release = plan_release(
        facts, budget, name=TARGET_MOMENTS, shape=(2,), sensitivity=factor / facts.n_samples, mu=mu
    )
    return Centering(release=release)


def target_sums(X: Any, y: Any, coordinates: Coordinates) -> NDArray[np.float64]:
    """Sums of the target, or its logarithm, between bounds of -1 and 1, and of its square."""
    target = coordinates.between_bounds(y)
    return np.array([target.sum(), np.square(target).sum()])


def recentre(
    coordinates: Coordinates, each: Callable[..., Any], facts: Facts, gate: Gate
) -> Coordinates:
    """Release the moments of the target, and express it about its centre, in its unit."""
    assert facts.centering is not None
    means = np.add.reduce(each(target_sums, coordinates)) / facts.n_rows
    released = gate.release(TARGET_MOMENTS, np.array([1.0, SQUARE]) * means)
    centre, unit = centre_and_unit(released, facts.centering.release.noise_std)
    if not coordinates.has_log_link:
        if not isinstance(facts.loss, SmoothedPinball):
            return coordinates.recentred(centre, unit)
        # The quantile of a normal target; slopes do not follow the unit, so targets do.
        centre += unit * defaults.RESIDUAL * float(ndtri(facts.loss.quantile))
        scaled = replace(coordinates, target_scale=unit * coordinates.target_scale)
        return scaled.recentred(centre / unit, 1.0)
    middle, half = coordinates.log_range
    variance = (half * unit * defaults.RESIDUAL) ** 2
    # Of a log-normal target: its mean, and its standard deviation over the mean.
    offset = min(middle + half * centre + variance / 2, math.log(coordinates.target_upper))
    largest = defaults.LARGEST_DEVIATION
    # Of larger variances the exponential may overflow, and is larger anyway.
    deviation = min(math.sqrt(math.expm1(min(variance, largest**2))), largest)
    return replace(coordinates, target_offset=offset, target_unit=deviation / defaults.RESIDUAL)


def centre_and_unit(released: NDArray[np.float64], noise_std: float) -> tuple[float, float]:
    """Centre and unit of the target from its released moments; nothing here sees data.

    Both are shrunk towards what declared targets usually have, as far as they are noise.
    """
    mean = min(max(float(released[0]), -1.0), 1.0)
    square = min(max(float(released[1]) / SQUARE, 0.0), 1.0)
    centre = mean * defaults.TARGET_CENTRE**2 / (defaults.TARGET_CENTRE**2 + noise_std**2)
    # The square of a noisy mean is too large by the variance of the noise.
    variance = square - mean**2 + noise_std**2
    error = math.hypot(noise_std / SQUARE, 2 * mean * noise_std)
    trust = defaults.TARGET_SPREAD**2 / (defaults.TARGET_SPREAD**2 + error**2)
    usual, least = defaults.TARGET_VARIANCES
    variance = max(usual + trust * (variance - usual), least)
    return centre, math.sqrt(min(variance, 1.0)) / defaults.RESIDUAL


def plan_conditioning(facts: Facts, budget: Budget, *, mu: float, **choices: Any) -> Conditioning:
    """Plan the release of the second moment; choices are fields of `Conditioning`."""
    d = facts.n_parameters
    release = plan_release(
        facts,
        budget,
        name=SECOND_MOMENT,
        shape=(d * (d + 1) // 2,),
        sensitivity=facts.neighboring.second_moment_factor * facts.rounding / facts.n_samples,
        mu=mu,
    )
    return replace(conditioning_by(facts, release), **choices)


def conditioning_by(facts: Facts, release: Release) -> Conditioning:
    """The conditioning by a release of the second moment."""
    edge = release.noise_std * math.sqrt(facts.n_parameters / 2)
    return Conditioning(release=release, **defaults.conditioning_choices(facts, edge))


def second_moment(norm: float, problem: Problem) -> Summand:
    """The sum of ``a a'`` over rows that are scaled down to a norm, in units of it."""
    rows = problem.rows

    def of_block(block: int) -> NDArray[np.float64]:
        A = rows.augmented(block)
        with np.errstate(divide="ignore"):
            weight = np.minimum(1.0, norm / np.sqrt(rows.squared_norm[rows.slices[block]]))
        A *= (weight / norm)[:, None]
        return np.asarray(A.T @ A)

    return lambda: problem.engine.sum(of_block, rows.n_blocks)


def in_basis(basis: Basis, problem: Problem) -> Problem:
    """The same problem in a basis."""
    return replace(problem, rows=problem.rows.in_basis(basis, problem.engine.run))


def condition(problem: Problem, facts: Facts, gate: Gate) -> Problem:
    """Release the second moment and express the rows in the basis that it gives."""
    conditioning = facts.conditioning
    assert conditioning is not None
    exact = problem.summed(partial(second_moment, conditioning.row_norm))() / facts.n_rows
    noisy = gate.release(SECOND_MOMENT, packed(exact))
    return problem.changed(partial(in_basis, basis_from_release(noisy, conditioning)))


def packed(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """The upper triangle with entries off the diagonal times sqrt(2), whose norm is Frobenius'."""
    upper = np.triu_indices(len(matrix))
    return np.asarray(matrix[upper] * np.where(upper[0] == upper[1], 1.0, math.sqrt(2.0)))


def unpacked(triangle: NDArray[np.float64]) -> NDArray[np.float64]:
    """The symmetric matrix of such a triangle."""
    d = (math.isqrt(1 + 8 * len(triangle)) - 1) // 2
    upper, matrix = np.triu_indices(d), np.zeros((d, d))
    triangle = triangle / np.where(upper[0] == upper[1], 1.0, math.sqrt(2.0))
    matrix[upper] = matrix.T[upper] = triangle
    return matrix


def basis_from_release(noisy: NDArray[np.float64], conditioning: Conditioning) -> Basis:
    """Coordinates from what was released of the mean second moment."""
    return basis_of(unpacked(noisy), conditioning)


def basis_of(matrix: NDArray[np.float64], conditioning: Conditioning) -> Basis:
    """Coordinates from the released matrix; nothing here sees data.

    Noise of edge e shows an eigenvalue t > e as about ``t + e**2 / t`` (Benaych-Georges &
    Nadakuditi, "The eigenvalues and eigenvectors of finite, low rank perturbations of large random
    matrices", 2011). That is undone for eigenvalues that stand out of the noise; all others count
    as the floor.
    """
    scale, edge = conditioning.row_norm**2, conditioning.edge
    values, vectors = np.linalg.eigh(matrix)
    detected = values > 2 * edge
    shrunk = np.where(detected, (values + np.sqrt(np.maximum(values**2 - 4 * edge**2, 0))) / 2, 0.0)
    # The trace is at most 1 in these units, and known up to about the edge.
    trace = min(max(float(np.trace(matrix)), 2 * edge), 1.0)
    spread = min(max(1 - float(shrunk[-1]) / trace, SMALLEST_SPREAD), 1.0)
    floor = conditioning.floor_at(spread, trace)
    loading = detected.astype(np.float64)
    if not detected.all():
        # What is left of the trace is spread over all directions in which nothing is seen.
        loading[~detected] = max(trace - float(shrunk.sum()), 0.0) / floor / np.sum(~detected)
    dimension = min(max(float(loading.sum()), 1.0), trace / floor)
    loading *= dimension / loading.sum() if loading.any() else 1.0
    return Basis(
        vectors=vectors,
        eigenvalues=np.clip(np.maximum(shrunk, floor), floor, 1.0) * scale,
        loading=loading,
        spread=spread,
        clip_unit=math.sqrt(dimension) * spread**conditioning.clip_power,
    )
