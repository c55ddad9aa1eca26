"""Gaussian differential privacy, and noise that meets a budget."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import erfcx, ndtr, ndtri

from skdpadmm import _numbers as numbers
from skdpadmm._numbers import require
from skdpadmm.privacy._guarantee import Guarantee, require_rates

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)
LOG_SQRT_2PI = 0.5 * math.log(2.0 * math.pi)
_DOUBLINGS = 200
_RTOL = 1e-6
# Beyond it a normal variable is with a probability below 1e-18.
_TAIL_QUANTILE = 9.0


@dataclass(frozen=True)
class GaussianDP(Guarantee, kind="gaussian"):
    r"""Gaussian differential privacy: as hard to tell apart as N(0, 1) and N(mu, 1).

    .. math:: \delta(\epsilon) = \Phi(\mu/2 - \epsilon/\mu)
              - e^{\epsilon} \Phi(-\mu/2 - \epsilon/\mu)

    (Balle and Wang, ICML 2018, Theorem 8; Dong, Roth and Su, JRSS-B 2022, Corollary 1.) Adaptive
    Gaussian releases with sensitivities Delta_t and noise s_t satisfy it together with
    mu = sqrt(sum (Delta_t / s_t)^2).

    Parameters
    ----------
    mu : float
        In [0, inf).

    Examples
    --------
    >>> from skdpadmm.privacy import GaussianDP
    >>> f"{GaussianDP(0.268051).delta(1.0):.3g}"
    '1e-05'
    """

    mu: float

    def __post_init__(self) -> None:
        expected = "a float in [0, inf); use NonPrivate() where there is no noise"
        require(0 <= self.mu < math.inf, "mu", self.mu, expected)

    def delta(self, epsilon: float) -> float:
        """Return the exact delta at ``epsilon`` in [0, inf]."""
        return math.exp(self.log_delta(epsilon))

    def log_delta(self, epsilon: float) -> float:
        """Return log(delta), accurate where delta itself underflows."""
        numbers.require_epsilon(epsilon)
        return float(gaussian_log_delta(np.array([self.mu], dtype=np.float64), epsilon)[0])

    def trade_off(self, false_positive_rates: ArrayLike) -> NDArray[np.float64]:
        r"""Return :math:`\Phi(\Phi^{-1}(1 - \alpha) - \mu)`, for each false positive rate."""
        return np.asarray(ndtr(-ndtri(require_rates(false_positive_rates)) - self.mu))

    def dominates(self, other: Guarantee) -> bool:
        """Whether its delta is plainly at least another's: both Gaussian, with a larger mu."""
        return isinstance(other, GaussianDP) and self.mu >= other.mu

    def describe(self) -> str:
        return f"GDP(mu={numbers.round_up(self.mu)})"

    def deltas(self, epsilons: NDArray[np.float64]) -> NDArray[np.float64]:
        return gaussian_deltas(np.array([self.mu]), epsilons)

    def widest_loss(self) -> float:
        return self.mu * (0.5 * self.mu + _TAIL_QUANTILE)

    def loss_std(self) -> float:
        return self.mu

    def largest_mu(self) -> float:
        return self.mu

    def absorb(self, gaussian_mu: float) -> GaussianDP:
        return GaussianDP(math.hypot(self.mu, gaussian_mu))


@lru_cache(maxsize=256)
@numbers.quiet_underflow
def gaussian_mu(epsilon: float, delta: float) -> float:
    """Return the largest mu for which GDP(mu) is (epsilon, delta)-private, from the noisier side.

    ``epsilon`` is in [0, inf), ``delta`` in (0, 1).

    Examples
    --------
    >>> from skdpadmm.privacy import gaussian_mu
    >>> round(gaussian_mu(1.0, 1e-6), 6)
    0.236704
    """
    numbers.require_target(epsilon, delta)

    def private(mu: float) -> bool:
        return GaussianDP(mu).delta(epsilon) <= delta

    # delta(epsilon) is at most Q(epsilon/mu - mu/2) and at most delta(0) <= mu / sqrt(2 pi).
    z = -float(ndtri(delta))
    root = math.sqrt(z * z + 2.0 * epsilon)
    from_tail = 2.0 * epsilon / (z + root) if z > 0 else root - z
    low = max(from_tail, delta * math.sqrt(2.0 * math.pi)) * (1.0 - 1e-9)
    while not private(low):
        low *= 0.5
    high = 2.0 * low
    while private(high):
        low, high = high, 2.0 * high
    while high - low > 1e-13 * high:  # 33-section: an array costs little more than a number
        grid = np.linspace(low, high, 34)
        inner = gaussian_deltas(grid[1:-1], epsilon) <= delta
        last = int(np.argmin(inner)) if not inner.all() else inner.size
        low, high = float(grid[last]), float(grid[last + 1])
    while not private(low):  # an array and a number may differ in the last bit
        low *= 1.0 - 1e-15
    return low


@numbers.quiet_underflow
def gaussian_deltas(
    mu: NDArray[np.float64], epsilon: float | NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return delta of GDP for arrays of mu and epsilon (k,), or one; what underflows is zero."""
    return np.exp(gaussian_log_delta(mu, epsilon))


def gaussian_log_delta(
    mu: NDArray[np.float64], epsilon: float | NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return log(delta) of GDP for arrays of mu and epsilon (k,), or one.

    With a = epsilon/mu - mu/2, b = epsilon/mu + mu/2, phi the normal density, Q its upper tail and
    M = Q/phi Mills' ratio, e^epsilon phi(b) = phi(a) turns delta into phi(a) (M(a) - M(b)), where
    nothing overflows.
    """
    mu, epsilon = np.broadcast_arrays(mu, epsilon)
    with np.errstate(all="ignore"):  # inf and nan arise only in branches that are not taken
        ratio = epsilon / mu
        a = ratio - 0.5 * mu
        b = ratio + 0.5 * mu
        mills_a, mills_b = mills(a), mills(b)
        difference = mills_a - mills_b
        # Where the ratios are close, their difference is integrated instead of subtracted.
        close = (mills_b > 0.5 * mills_a) & np.isfinite(a)
        if close.any():
            x = a[close, None] + 0.5 * mu[close, None] * (1.0 + _NODES)
            difference[close] = 0.5 * mu[close] * (_minus_mills_slope(x) @ _WEIGHTS)
        log_delta = -0.5 * a * a - LOG_SQRT_2PI + np.log(difference)
        # For a <= -1 delta exceeds 0.68, and 1 - delta is a sum of two positive terms.
        density = np.exp(-0.5 * a * a - LOG_SQRT_2PI)
        near_one = np.log1p(-density * (mills(-a) + mills_b))
    log_delta = np.where(a <= -1.0, near_one, log_delta)
    impossible = (mu == 0) | (a == np.inf)
    return np.minimum(np.where(impossible, -np.inf, log_delta), 0.0)


def mills(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return Mills' ratio Q(x)/phi(x)."""
    return np.asarray(math.sqrt(0.5 * math.pi) * erfcx(x * math.sqrt(0.5)))


def _minus_mills_slope(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return -M'(x) = 1 - x M(x), by its asymptotic series where the subtraction would cancel."""
    slope: NDArray[np.float64] = 1.0 - x * mills(x)
    far = x > 16.0
    if far.any():
        inverse_square = 1.0 / np.square(x[far])
        series = np.ones_like(inverse_square)
        for odd in range(27, 1, -2):  # 1/x^2 - 3/x^4 + 15/x^6 - ...
            series = 1.0 - odd * inverse_square * series
        slope[far] = inverse_square * series
    return slope


def calibrate_noise(
    guarantee_at: Callable[[float], Guarantee], epsilon: float, delta: float
) -> float:
    """Return the smallest noise scale whose guarantee meets (epsilon, delta).

    Parameters
    ----------
    guarantee_at : callable
        Maps a noise scale in (0, inf) to a guarantee that improves with the scale.
    epsilon : float
        In [0, inf).
    delta : float
        In (0, 1).

    Returns
    -------
    float
        The noisier side of a safeguarded bisection, within 1e-6 of the smallest scale, relatively.

    Raises
    ------
    ValueError
        If the budget is out of range, or no scale meets it, or each does.

    Examples
    --------
    >>> from skdpadmm.privacy import GaussianDP, calibrate_noise
    >>> scale = calibrate_noise(lambda scale: GaussianDP(1.0 / scale), epsilon=1.0, delta=1e-6)
    >>> round(scale, 4)
    4.2247
    """
    numbers.require_target(epsilon, delta)

    def excess(scale: float) -> float:
        """Return log(delta at scale / delta); the scale is accepted unless it is positive."""
        spent = guarantee_at(scale).delta(epsilon)
        value = math.log(max(spent, 1e-300)) - math.log(delta)
        # The sign decides, so rounding of the logarithms must not.
        return min(value, 0.0) if spent <= delta else max(value, 1e-16)

    scale, value = 1.0, excess(1.0)
    met = value <= 0
    factor = 0.5 if met else 2.0
    for _ in range(_DOUBLINGS):
        following, following_value = scale * factor, excess(scale * factor)
        if (following_value <= 0) != met:
            ends = ((following, following_value), (scale, value))
            return _close_bracket(excess, *(ends if met else ends[::-1]))
        scale, value = following, following_value
    outcome = "every noise scale meets" if met else "no noise scale meets"
    raise ValueError(
        f"Got a family in which {outcome} epsilon={epsilon!r} at delta={delta!r}, "
        "expected one that depends on its scale; check its sensitivity and its guarantee."
    )


def _close_bracket(
    excess: Callable[[float], float], rejected: tuple[float, float], accepted: tuple[float, float]
) -> float:
    """Close a bracket of (scale, excess) pairs and return the accepted scale.

    log delta is almost linear in log scale, and one evaluation may cost a privacy loss
    distribution: two steps of interpolation, each aimed just beyond the root to move the far end,
    alternate with one bisection, which guarantees convergence.
    """
    step = 0
    while accepted[0] > rejected[0] * (1.0 + _RTOL):
        width = math.log(accepted[0] / rejected[0])
        share = 0.5
        if step % 3 < 2:
            share = rejected[1] / (rejected[1] - accepted[1])
            share += math.copysign(_RTOL / (3.0 * width), 0.5 - share)
        share = min(max(share, 0.25 * _RTOL / width), 1.0 - 0.25 * _RTOL / width)
        scale = rejected[0] * math.exp(share * width)
        value = excess(scale)
        if value > 0:
            rejected = (scale, value)
        else:
            accepted = (scale, value)
        step += 1
    return accepted[0]
