"""Losses of residuals: squared, Huber's, and of quantiles."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from skdpadmm._numbers import require, require_positive
from skdpadmm.losses._loss import ClosedForm, Floats, Target


class _Residual(ClosedForm):
    """Squared up to a threshold, which may be infinite, and linear beyond."""

    is_of_residual = True
    has_debiased_step = True
    threshold: float
    smoothness = 1.0  # attained inside the threshold

    @property
    def lipschitz(self) -> float:
        """The threshold."""
        return self.threshold

    def value(self, scores: Floats, target: Target) -> Floats:
        with np.errstate(over="ignore", under="ignore"):
            size = np.abs(scores - target)
            inner = np.minimum(size, self.threshold)
            return inner * (size - 0.5 * inner)

    def derivative(self, scores: Floats, target: Target) -> Floats:
        with np.errstate(over="ignore"):
            return self._clip(scores - target)

    def slope(self, score: float, target: float) -> float:
        return max(min(score - target, self.threshold), -self.threshold)

    def curvature(self, scores: Floats, target: Target) -> Floats:
        """See :meth:`Loss.curvature`; 1 at the threshold itself, where both sides differ."""
        with np.errstate(over="ignore"):
            return (np.abs(scores - target) <= self.threshold).astype(np.float64)

    def _proximal(self, scores: Floats, target: Target, step: Floats) -> Floats:
        """``(s - y) / (1 + step)``, clipped."""
        with np.errstate(over="ignore", under="ignore"):
            return self._clip((scores - target) / (1.0 + step))

    def _clip(self, residual: Floats) -> Floats:
        if self.threshold == np.inf:
            return residual
        return np.clip(residual, -self.threshold, self.threshold, out=residual)


@dataclass(frozen=True)
class SquaredLoss(_Residual):
    r"""Half of the squared residual, :math:`\ell(s; y) = (s - y)^2 / 2`.

    Examples
    --------
    >>> import numpy as np
    >>> loss = SquaredLoss()
    >>> loss.derivative(np.array([3.0]), np.array([1.0]))
    array([2.])
    >>> loss.proximal_derivative(np.array([3.0]), np.array([1.0]), step=np.array([1.0]))
    array([1.])
    """

    threshold = np.inf


@dataclass(frozen=True)
class HuberLoss(_Residual):
    r"""Squared for small residuals and linear beyond a threshold.

    With :math:`r = s - y`, :math:`\ell = r^2 / 2` where :math:`|r| \le t` and
    :math:`\ell = t |r| - t^2 / 2` elsewhere: the squared loss with its derivative clipped at t.

    Parameters
    ----------
    threshold : float
        The residual t at which the loss turns linear, in (0, inf); else a ValueError.

    Examples
    --------
    >>> import numpy as np
    >>> loss = HuberLoss(threshold=1.0)
    >>> loss.value(np.array([0.5, 3.0]), np.zeros(2))
    array([0.125, 2.5  ])
    """

    threshold: float

    def __post_init__(self) -> None:
        require_positive(self.threshold, "threshold")

    def in_units(self, unit: float) -> HuberLoss:
        """See :meth:`Loss.in_units`; the threshold is in the units of the target."""
        return replace(self, threshold=self.threshold / unit)


@dataclass(frozen=True)
class SmoothedPinball(ClosedForm):
    r"""Pinball loss of a quantile, with its corner replaced by a parabola.

    The pinball loss of the residual :math:`r = s - y` is :math:`(1 - q) r` above 0 and
    :math:`-q r` below. This is its mean over residuals spread evenly over :math:`r \pm h / 2`,
    which is larger by at most h / 8, and equal where :math:`|r| \ge h / 2`.

    Parameters
    ----------
    quantile : float
        q, in (0, 1); else a ValueError.
    smoothing : float
        The width h of the parabola in units of the target, in (0, inf); else a ValueError.

    References
    ----------
    .. [1] M. Fernandes, E. Guerre, E. Horta, "Smoothing quantile regressions", Journal of Business
       & Economic Statistics 39, 2021.

    Examples
    --------
    >>> import numpy as np
    >>> loss = SmoothedPinball(quantile=0.9, smoothing=0.5)
    >>> loss.derivative(np.array([-2.0, 0.0, 2.0]), np.zeros(3)).round(2)
    array([-0.9, -0.4,  0.1])
    """

    quantile: float
    smoothing: float
    is_of_residual = True
    degree = 1.0

    def __post_init__(self) -> None:
        require(0 < self.quantile < 1, "quantile", self.quantile, "a float in (0, 1)")
        require_positive(self.smoothing, "smoothing")

    @property
    def smoothness(self) -> float:
        """1 / h, attained on the parabola."""
        return 1.0 / self.smoothing

    @property
    def lipschitz(self) -> float:
        """The steeper side."""
        return max(self.quantile, 1.0 - self.quantile)

    def in_units(self, unit: float) -> SmoothedPinball:
        """See :meth:`Loss.in_units`; the width is in the units of the target."""
        return replace(self, smoothing=self.smoothing / unit)

    def value(self, scores: Floats, target: Target) -> Floats:
        q, h, residual = self.quantile, self.smoothing, scores - target
        with np.errstate(over="ignore", under="ignore"):
            slope = self.derivative(scores, target)
            # The conjugate of a parabola between two slopes.
            return slope * (residual - h * (slope + 2 * q - 1) / 2) + h * q * (1 - q) / 2

    def derivative(self, scores: Floats, target: Target) -> Floats:
        return self._proximal(scores, target, np.zeros(len(scores)))

    def curvature(self, scores: Floats, target: Target) -> Floats:
        """See :meth:`Loss.curvature`; 1 / h at both ends of the parabola, where sides differ."""
        with np.errstate(over="ignore"):
            is_inside = 2.0 * np.abs(scores - target) <= self.smoothing
            return np.where(is_inside, self.smoothness, 0.0)

    def _proximal(self, scores: Floats, target: Target, step: Floats) -> Floats:
        """A parabola whose width is larger by the step."""
        q, h = self.quantile, self.smoothing
        with np.errstate(over="ignore", under="ignore"):
            slope = (scores - target + h * (0.5 - q)) / (h + step)
            return np.clip(slope, -q, 1.0 - q, out=slope)
