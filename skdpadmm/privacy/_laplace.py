"""Releases with Laplace noise, and what bounds pure guarantees."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from skdpadmm.privacy import _numbers as numbers
from skdpadmm.privacy._guarantee import Guarantee
from skdpadmm.privacy._numbers import require
from skdpadmm.privacy._pld import (
    Rounds,
    laplace_rounds,
    pld_delta,
    pld_epsilon,
    smaller,
)

# A sum of squares below it has underflowed: nothing is then concluded from it.
_SMALLEST_VARIANCE = 1e-290


@dataclass(frozen=True)
class LaplaceDP(Guarantee, kind="laplace"):
    r"""Adaptive releases of vectors with Laplace noise on each entry.

    Release t has the sensitivity :math:`\Delta_t` in the L1 norm and noise of the scale
    :math:`s_t`, the same on every entry: :math:`\epsilon_t = \Delta_t / s_t`. At
    :math:`\sum_t \epsilon_t` delta is zero, and below

    .. math:: \delta(\epsilon) = 1 - e^{-(\epsilon_1 - \epsilon) / 2}

    for one release. Several are composed by dp-accounting's pessimistic privacy loss distribution
    (Doroshenko et al., PETS 2022) where it is installed, and otherwise by the closed form of
    Kairouz, Oh and Viswanath, "The composition theorem for differential privacy", Theorem 3.5:

    .. math::

        \min \Big\{ \sum_t \epsilon_t, \;
        A + \sqrt{2 S \log(e + \sqrt S / \delta)}, \;
        A + \sqrt{2 S \log(1 / \delta)} \Big\}, \qquad
        A = \sum_t \epsilon_t \tanh(\epsilon_t / 2), \quad S = \sum_t \epsilon_t^2,

    which is sound but larger. The smaller one counts.

    Parameters
    ----------
    epsilons : tuple of float
        In [0, inf), one for each release; those that are zero are dropped. Kept in decreasing
        order, each value once: no order of releases matters.
    counts : tuple of int, default=()
        How many releases have each epsilon, at least 1. Empty means one.

    Notes
    -----
    A shift of a vector by :math:`(a_1, a_2, \dots)` is no easier to see than one of a single entry
    by :math:`\sum_j a_j`: at every level the best test of a shift of one entry by a + b beats that
    of two entries by a and b, as tests of log-concave families by thresholds are nested. So the
    losses of one entry decide, and one release with the sum of all epsilons bounds any number.

    Examples
    --------
    >>> from skdpadmm.privacy import LaplaceDP
    >>> steps = LaplaceDP((0.1,), (100,))
    >>> steps == LaplaceDP((0.1,) * 100)
    True
    >>> f"{steps.epsilon(0.0):.3f}", f"{steps.epsilon(1e-5):.2f}"
    ('10.000', '4.22')
    """

    epsilons: tuple[float, ...]
    counts: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        epsilons = tuple(float(epsilon) for epsilon in self.epsilons)
        counts = tuple(self.counts) or (1,) * len(epsilons)
        if len(counts) != len(epsilons):
            raise ValueError(
                f"Got {len(epsilons)} epsilons and {len(counts)} counts, "
                "expected one count for each epsilon, or none at all."
            )
        expected = "floats in [0, inf); use NonPrivate() where there is no noise"
        require(all(0 <= e < math.inf for e in epsilons), "epsilons", epsilons, expected)
        merged: Counter[float] = Counter()
        for epsilon, count in zip(epsilons, counts, strict=True):
            numbers.require_count(count, "counts")
            if epsilon > 0:
                merged[epsilon] += int(count)
        object.__setattr__(self, "epsilons", tuple(sorted(merged, reverse=True)))
        object.__setattr__(self, "counts", tuple(merged[epsilon] for epsilon in self.epsilons))

    @property
    def n_releases(self) -> int:
        """The number of releases that reveal anything."""
        return sum(self.counts)

    @property
    def pure_epsilon(self) -> float:
        """The sum of all epsilons, at which delta is zero."""
        return self._total(self.epsilons)

    def delta(self, epsilon: float) -> float:
        """Return an upper bound of delta at ``epsilon`` in [0, inf]; exact for one release."""
        numbers.require_epsilon(epsilon)
        if epsilon >= self.pure_epsilon:
            return 0.0
        one = -math.expm1(0.5 * (epsilon - self.pure_epsilon))
        if self.n_releases == 1:
            return one
        closed = min(one, _kov_delta(*self.moments(), epsilon))
        return smaller(closed, lambda: pld_delta(self._rounds(), epsilon))

    def epsilon(self, delta: float) -> float:
        """Return an upper bound of epsilon at ``delta`` in [0, 1]; exact for one release."""
        numbers.require_delta(delta)
        if delta == 1.0:
            return 0.0
        one = max(0.0, self.pure_epsilon + 2.0 * math.log1p(-delta))
        if delta == 0.0 or self.n_releases <= 1:
            return one
        closed = min(one, _kov_epsilon(*self.moments(), delta))
        return smaller(closed, lambda: pld_epsilon(self._rounds(), delta))

    def dominates(self, other: Guarantee) -> bool:
        """Whether its delta is plainly at least another's.

        It is if its releases, the worst first, are one by one at least the other's, or if one of
        its releases is at least the other's sum.
        """
        if not isinstance(other, LaplaceDP):
            return False
        if not other.epsilons or (self.epsilons and self.epsilons[0] >= other.pure_epsilon):
            return True
        return all(self._at_least(e) >= other._at_least(e) for e in other.epsilons)

    def describe(self) -> str:
        total = numbers.round_up(self.pure_epsilon)
        return f"Laplace(sum of epsilons={total}), {self.n_releases} releases"

    def moments(self) -> tuple[float, float]:
        """Return a bound of the mean of the privacy loss, and of its sub-Gaussian variance."""
        mean = self._total(e * math.tanh(0.5 * e) for e in self.epsilons)
        return mean, self._total(e * e for e in self.epsilons)

    def _total(self, values: Iterable[float]) -> float:
        try:
            return math.fsum(v * count for v, count in zip(values, self.counts, strict=True))
        except OverflowError:
            return math.inf

    def _at_least(self, threshold: float) -> int:
        pairs = zip(self.epsilons, self.counts, strict=True)
        return sum(count for epsilon, count in pairs if epsilon >= threshold)

    def _rounds(self) -> tuple[Rounds, ...]:
        return tuple(map(laplace_rounds, self.epsilons, self.counts))


def tail_delta(mean: float, variance: float, epsilon: float) -> float:
    """Return a bound of the probability that a privacy loss exceeds ``epsilon``.

    A loss in [-e, e] is sub-Gaussian with the variance e^2 (Hoeffding), and a Gaussian release has
    a loss of mean mu^2 / 2 and variance mu^2: means and variances of independent losses add up.
    """
    if epsilon <= mean or not _SMALLEST_VARIANCE <= variance < math.inf:
        return 1.0
    # Squares of floats overflow to infinity; powers of them raise.
    z = (epsilon - mean) / math.sqrt(variance)
    return math.exp(-0.5 * (z * z))


def tail_epsilon(mean: float, variance: float, delta: float) -> float:
    """Return where the bound of :func:`tail_delta` is ``delta`` in (0, 1)."""
    if not _SMALLEST_VARIANCE <= variance < math.inf:
        return math.inf
    return mean + math.sqrt(-2.0 * variance * math.log(delta))


def _kov_epsilon(mean: float, variance: float, delta: float) -> float:
    tail = tail_epsilon(mean, variance, delta)
    if math.isinf(tail):
        return tail
    log_ratio = math.log(math.e + math.sqrt(variance) / delta)
    return min(tail, mean + math.sqrt(2.0 * variance * log_ratio))


def _kov_delta(mean: float, variance: float, epsilon: float) -> float:
    """Return the smallest delta at which the roots reach ``epsilon``."""
    tail = tail_delta(mean, variance, epsilon)
    if tail == 1.0:
        return 1.0
    z = (epsilon - mean) / math.sqrt(variance)
    exponent = 0.5 * (z * z)
    if exponent > 700.0:  # where exp overflows the second form, the first is about as good
        return tail
    excess = math.exp(exponent) - math.e
    return min(tail, math.sqrt(variance) / excess) if excess > 0 else tail


def expected_privacy_loss_factor_ceiling(
    rates: ArrayLike, widths: ArrayLike, shifts: ArrayLike
) -> NDArray[np.float64]:
    r"""Return upper bounds of the expected absolute privacy loss of entries, by their largest loss.

    .. math:: \gamma = \frac{1}{\beta t} E_{x \sim p} \max_{\pm}
              \Big| \log \frac{p(x)}{p(x \mp t)} \Big|
              \le \min\Big\{1, \frac{1 - e^{-u/2}}{u/2} \, \frac{e^s - 1}s\Big\},
              \qquad u = \beta \omega, \quad s = \beta t

    with p the density of a uniform number on an interval of width :math:`\omega` plus Laplace noise
    of rate :math:`\beta`, which t moves. **It is not a guarantee of privacy, and does not turn into
    one:** no epsilon and delta follow from an average of losses, and the realised loss depends on
    private data.

    Left of its middle the density p rises along the shift, by a factor of at most :math:`e^s`. So
    the loss there, the integral of :math:`p'/p` along the shift, has at most :math:`e^s` times the
    mean which :math:`p'` itself gives it. Where s is small it is exact.

    Parameters
    ----------
    rates : array-like
        :math:`\beta` in (0, inf), the inverse of the scale of the noise.
    widths : array-like
        :math:`\omega` in [0, inf].
    shifts : array-like
        t in [0, inf).

    Returns
    -------
    ndarray
        Of the shape that all three broadcast to; in [0, 1], one where there is no interval.

    Examples
    --------
    >>> from skdpadmm.privacy import expected_privacy_loss_factor_ceiling
    >>> expected_privacy_loss_factor_ceiling(2.0, [0.0, 1.0, 5.0], 0.001).round(4)
    array([1.    , 0.6328, 0.1989])
    """
    rate, width, shift = (np.asarray(x, dtype=np.float64) for x in (rates, widths, shifts))
    require(bool(np.all((rate > 0) & (rate < math.inf))), "rates", rates, "floats in (0, inf)")
    require(bool(np.all(width >= 0)), "widths", widths, "floats in [0, inf]")
    require(bool(np.all((shift >= 0) & (shift < math.inf))), "shifts", shifts, "floats in [0, inf)")
    with np.errstate(over="ignore"):
        half, s = np.maximum(0.5 * rate * width, 1e-300), np.maximum(rate * shift, 1e-300)
    # Beyond it nothing but one is claimed.
    rise = np.expm1(np.minimum(s, 50.0)) / np.minimum(s, 50.0)
    return np.where(s > 50.0, 1.0, np.minimum(-np.expm1(-half) / half * rise, 1.0))
