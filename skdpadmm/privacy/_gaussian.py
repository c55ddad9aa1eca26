"""Gaussian differential privacy."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import erfcx, ndtri

from skdpadmm.privacy._formatting import round_up
from skdpadmm.privacy._guarantee import Guarantee, smallest_epsilon
from skdpadmm.privacy._validation import require, require_delta, require_epsilon, require_target

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)
_NEWTON_STEPS = 30
_LOG_SQRT_2PI = 0.5 * math.log(2.0 * math.pi)


@dataclass(frozen=True)
class GaussianDP(Guarantee):
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
        """Refuse what is not a finite, non-negative mu."""
        require(
            0 <= self.mu < math.inf,
            "mu",
            self.mu,
            "a float in [0, inf); use NonPrivate() where there is no noise",
        )

    def delta(self, epsilon: float) -> float:
        """Return the exact delta at ``epsilon`` in [0, inf]."""
        return math.exp(self.log_delta(epsilon))

    def epsilon(self, delta: float) -> float:
        """Return the smallest epsilon at ``delta`` in [0, 1], on the safe side of its rounding."""
        require_delta(delta)
        bracket = self._bracket(delta) if 0.0 < delta < 1.0 else None
        if bracket is None:
            return super().epsilon(delta)
        # The search of any guarantee, which looks at the curve within the bracket alone.
        rejected, accepted = bracket
        found = smallest_epsilon(
            lambda epsilon: (
                epsilon >= accepted or (epsilon > rejected and self.delta(epsilon) <= delta)
            )
        )
        return found if self.delta(found) <= delta else accepted

    def _bracket(self, delta: float) -> tuple[float, float] | None:
        """Return two epsilons close to each other: the second reaches ``delta``, not the first.

        None where this finds none: below epsilon = 0, and where numbers end. Newton's steps for
        log(delta), which is concave and falls, go down to the root from the right.
        """
        if self.mu == 0.0 or self.delta(0.0) <= delta:
            return None
        target = math.log(delta)
        # delta(epsilon) is at most Q(epsilon/mu - mu/2).
        epsilon = self.mu * (0.5 * self.mu - float(ndtri(delta)))
        for _ in range(_NEWTON_STEPS):
            if not (0.0 < epsilon < math.inf):
                return None
            log_delta = self.log_delta(epsilon)
            a, b = epsilon / self.mu - 0.5 * self.mu, epsilon / self.mu + 0.5 * self.mu
            # -phi(a) M(b) is the derivative of delta.
            mills = math.sqrt(0.5 * math.pi) * float(erfcx(b * math.sqrt(0.5)))
            slope = math.exp(min(700.0, -0.5 * a * a - _LOG_SQRT_2PI - log_delta)) * mills
            step = (log_delta - target) / slope if slope > 0 else math.nan
            epsilon += step
            if abs(step) <= 1e-14 * epsilon:
                break
        width = 1e-13
        while 0.0 < epsilon < math.inf and width < 0.1:
            rejected, accepted = epsilon * (1.0 - width), epsilon * (1.0 + width)
            if self.delta(rejected) > delta >= self.delta(accepted):
                return rejected, accepted
            width *= 8.0
        return None

    def log_delta(self, epsilon: float) -> float:
        """Return log(delta), accurate where delta itself underflows."""
        require_epsilon(epsilon)
        return float(gaussian_log_delta(np.array([self.mu], dtype=np.float64), epsilon)[0])

    def dominates(self, other: Guarantee) -> bool:
        """Whether its delta is plainly at least another's: both Gaussian, with a larger mu."""
        return isinstance(other, GaussianDP) and self.mu >= other.mu

    def to_dict(self) -> dict[str, Any]:
        """Return ``{"kind": "gaussian", "mu": mu}``."""
        return {"kind": "gaussian", "mu": float(self.mu)}

    def describe(self) -> str:
        """Return for instance "GDP(mu=0.2681)"."""
        return f"GDP(mu={round_up(self.mu)})"


def gaussian_mu(epsilon: float, delta: float) -> float:
    """Return the largest mu for which GDP(mu) is (epsilon, delta)-private.

    Parameters
    ----------
    epsilon : float
        In [0, inf).
    delta : float
        In (0, 1).

    Returns
    -------
    float
        The smaller, that is the noisier, side of the search.

    Raises
    ------
    ValueError
        If ``epsilon`` or ``delta`` is out of range.

    Examples
    --------
    >>> from skdpadmm.privacy import gaussian_mu
    >>> round(gaussian_mu(1.0, 1e-6), 6)
    0.236704
    """
    require_target(epsilon, delta)

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
        inner = np.exp(gaussian_log_delta(grid[1:-1], epsilon)) <= delta
        last = int(np.argmin(inner)) if not inner.all() else inner.size
        low, high = float(grid[last]), float(grid[last + 1])
    while not private(low):  # an array and a number may differ in the last bit
        low *= 1.0 - 1e-15
    return low


def gaussian_log_delta(mu: NDArray[np.float64], epsilon: float) -> NDArray[np.float64]:
    """Return log(delta) of GDP at one epsilon for an array (k,) of mu.

    With a = epsilon/mu - mu/2, b = epsilon/mu + mu/2, phi the normal density, Q its upper tail and
    M = Q/phi Mills' ratio, e^epsilon phi(b) = phi(a) turns delta into phi(a) (M(a) - M(b)), where
    nothing overflows.
    """
    with np.errstate(all="ignore"):  # inf and nan arise only in branches that are not taken
        ratio = epsilon / mu
        a = ratio - 0.5 * mu
        b = ratio + 0.5 * mu
        mills_a, mills_b = _mills(a), _mills(b)
        difference = mills_a - mills_b
        # Where the ratios are close, their difference is integrated instead of subtracted.
        close = (mills_b > 0.5 * mills_a) & np.isfinite(a)
        if close.any():
            x = a[close, None] + 0.5 * mu[close, None] * (1.0 + _NODES)
            difference[close] = 0.5 * mu[close] * (_minus_mills_slope(x) @ _WEIGHTS)
        log_delta = -0.5 * a * a - _LOG_SQRT_2PI + np.log(difference)
        # For a <= -1 delta exceeds 0.68, and 1 - delta is a sum of two positive terms.
        density = np.exp(-0.5 * a * a - _LOG_SQRT_2PI)
        near_one = np.log1p(-density * (_mills(-a) + mills_b))
    log_delta = np.where(a <= -1.0, near_one, log_delta)
    impossible = (mu == 0) | (a == np.inf)
    return np.minimum(np.where(impossible, -np.inf, log_delta), 0.0)


def _mills(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Mills' ratio Q(x)/phi(x)."""
    return math.sqrt(0.5 * math.pi) * erfcx(x * math.sqrt(0.5))


def _minus_mills_slope(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return -M'(x) = 1 - x M(x), by its asymptotic series where the subtraction would cancel."""
    slope: NDArray[np.float64] = 1.0 - x * _mills(x)
    far = x > 16.0
    if far.any():
        inverse_square = 1.0 / np.square(x[far])
        series = np.ones_like(inverse_square)
        for odd in range(27, 1, -2):  # 1/x^2 - 3/x^4 + 15/x^6 - ...
            series = 1.0 - odd * inverse_square * series
        slope[far] = inverse_square * series
    return slope
