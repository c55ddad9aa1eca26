"""The squared loss."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ._loss import FloatArray, Loss, TargetArray


@dataclass(frozen=True)
class SquaredLoss(Loss):
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

    @property
    def n_outputs(self) -> int:
        """One score."""
        return 1

    @property
    def smoothness(self) -> float:
        """1, everywhere."""
        return 1.0

    @property
    def lipschitz(self) -> float:
        """Infinite: the derivative is unbounded."""
        return np.inf

    def value(self, scores: FloatArray, target: TargetArray) -> FloatArray:
        """See :meth:`Loss.value`; inf for residuals beyond 1e154."""
        with np.errstate(over="ignore", under="ignore"):
            residual = scores - target
            return 0.5 * residual * residual

    def derivative(self, scores: FloatArray, target: TargetArray) -> FloatArray:
        """See :meth:`Loss.derivative`."""
        with np.errstate(over="ignore"):
            return scores - target

    def curvature(self, scores: FloatArray, target: TargetArray) -> FloatArray:
        """See :meth:`Loss.curvature`."""
        return np.ones_like(scores)

    def proximal_derivative(
        self,
        scores: FloatArray,
        target: TargetArray,
        step: FloatArray,
        start: FloatArray | None = None,
        n_steps: int = 1,
    ) -> FloatArray:
        """See :meth:`Loss.proximal_derivative`; in closed form, ``(s - y) / (1 + step)``."""
        with np.errstate(over="ignore", under="ignore"):
            solution = scores - target
            solution /= 1.0 + step
        return solution
