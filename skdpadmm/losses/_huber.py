"""Huber's loss."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ._loss import FloatArray, Loss, TargetArray


@dataclass(frozen=True)
class HuberLoss(Loss):
    r"""Squared for small residuals and linear beyond a threshold.

    With :math:`r = s - y`, :math:`\ell = r^2 / 2` where :math:`|r| \le t` and
    :math:`\ell = t |r| - t^2 / 2` elsewhere: the squared loss with its derivative clipped at t.

    Parameters
    ----------
    threshold : float
        The residual t at which the loss turns linear, in (0, inf).

    Raises
    ------
    ValueError
        If `threshold` is not positive and finite.

    Examples
    --------
    >>> import numpy as np
    >>> loss = HuberLoss(threshold=1.0)
    >>> loss.value(np.array([0.5, 3.0]), np.zeros(2))
    array([0.125, 2.5  ])
    >>> loss.derivative(np.array([0.5, 3.0]), np.zeros(2))
    array([0.5, 1. ])
    """

    threshold: float

    def __post_init__(self) -> None:
        """Refuse a threshold without meaning."""
        if not 0 < self.threshold < np.inf:
            raise ValueError(f"Got threshold={self.threshold!r}, expected a float in (0, inf).")

    @property
    def n_outputs(self) -> int:
        """One score."""
        return 1

    @property
    def smoothness(self) -> float:
        """1, attained inside the threshold."""
        return 1.0

    @property
    def lipschitz(self) -> float:
        """The threshold."""
        return self.threshold

    def in_units(self, unit: float) -> HuberLoss:
        """See :meth:`Loss.in_units`; the threshold is in the units of the target."""
        return HuberLoss(self.threshold / unit)

    def value(self, scores: FloatArray, target: TargetArray) -> FloatArray:
        """See :meth:`Loss.value`."""
        with np.errstate(over="ignore", under="ignore"):
            size = np.abs(scores - target)
            inner = np.minimum(size, self.threshold)
            return inner * (size - 0.5 * inner)

    def derivative(self, scores: FloatArray, target: TargetArray) -> FloatArray:
        """See :meth:`Loss.derivative`."""
        with np.errstate(over="ignore"):
            return self._clip(scores - target)

    def curvature(self, scores: FloatArray, target: TargetArray) -> FloatArray:
        """See :meth:`Loss.curvature`; 1 at the threshold itself, where both sides differ."""
        with np.errstate(over="ignore"):
            return (np.abs(scores - target) <= self.threshold).astype(np.float64)

    def proximal_derivative(
        self,
        scores: FloatArray,
        target: TargetArray,
        step: FloatArray,
        start: FloatArray | None = None,
        n_steps: int = 1,
    ) -> FloatArray:
        """See :meth:`Loss.proximal_derivative`; ``(s - y) / (1 + step)``, clipped."""
        with np.errstate(over="ignore", under="ignore"):
            solution = scores - target
            solution /= 1.0 + step
            return self._clip(solution)

    def _clip(self, residual: FloatArray) -> FloatArray:
        np.minimum(residual, self.threshold, out=residual)
        return np.maximum(residual, -self.threshold, out=residual)
