"""Losses of residuals: squared, and Huber's."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from skdpadmm._numbers import require_positive
from skdpadmm.losses._loss import ClosedForm, Floats, Target


class _Residual(ClosedForm):
    """Squared up to a threshold, which may be infinite, and linear beyond."""

    is_of_residual = True
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
