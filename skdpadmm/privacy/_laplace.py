"""Releases with Laplace noise, and the expected loss that they leave beside uniform noise."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from skdpadmm import _numbers as numbers
from skdpadmm._numbers import require
from skdpadmm.privacy._guarantee import Guarantee


@dataclass(frozen=True)
class LaplaceDP(Guarantee, kind="laplace"):
    r"""Release of a vector with Laplace noise on each entry.

    With sensitivity :math:`\Delta` in the L1 norm and noise of scale s on every entry,
    :math:`\epsilon_0 = \Delta / s` and

    .. math:: \delta(\epsilon) = 1 - e^{-(\epsilon_0 - \epsilon)_+ / 2}

    Several releases are :func:`compose` of one of these for each.

    Parameters
    ----------
    pure_epsilon : float
        In [0, inf): :math:`\epsilon_0`, at which delta is zero.

    Notes
    -----
    The sensitivity to a shift of a vector by :math:`(a_1, a_2, \dots)` is no larger than to one of
    a single entry by :math:`\sum_j |a_j|`: at every level the best test of a shift of one entry by
    a + b beats that of two entries by a and b, as tests of log-concave families by thresholds are
    nested. So one entry decides.

    Examples
    --------
    >>> from skdpadmm.privacy import LaplaceDP, compose
    >>> one, steps = LaplaceDP(0.1), compose(*[LaplaceDP(0.1)] * 100)
    >>> f"{one.epsilon(1e-5):.3f}", f"{steps.epsilon(0.0):.3f}", f"{steps.epsilon(1e-5):.2f}"
    ('0.100', '10.000', '4.22')
    """

    pure_epsilon: float

    def __post_init__(self) -> None:
        expected = "a float in [0, inf); use NonPrivate() where there is no noise"
        require(0 <= self.pure_epsilon < math.inf, "pure_epsilon", self.pure_epsilon, expected)

    def delta(self, epsilon: float) -> float:
        """Return the exact delta at ``epsilon`` in [0, inf]."""
        numbers.require_epsilon(epsilon)
        return -math.expm1(0.5 * min(0.0, epsilon - self.pure_epsilon))

    def epsilon(self, delta: float) -> float:
        """Return the smallest epsilon at ``delta`` in [0, 1]."""
        numbers.require_delta(delta)
        return max(0.0, self.pure_epsilon + 2.0 * math.log1p(-delta)) if delta < 1.0 else 0.0

    def dominates(self, other: Guarantee) -> bool:
        """Whether its delta is plainly at least another's: with a larger pure epsilon."""
        return isinstance(other, LaplaceDP) and self.pure_epsilon >= other.pure_epsilon

    def describe(self) -> str:
        return f"Laplace(epsilon={numbers.round_up(self.pure_epsilon)})"

    def deltas(self, epsilons: NDArray[np.float64]) -> NDArray[np.float64]:
        return -np.expm1(0.5 * np.minimum(0.0, epsilons - self.pure_epsilon))

    def widest_loss(self) -> float:
        return self.pure_epsilon

    def loss_std(self) -> float:
        return self.pure_epsilon


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
