"""A loss with a public weight for each class."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import harmonic_mean
from typing import Any

import numpy as np

from skdpadmm._numbers import require_positive
from skdpadmm.losses._loss import Floats, Loss, Start, Target


@dataclass(frozen=True)
class WeightedLoss(Loss):
    r"""A loss of a class times a public weight of that class, :math:`w_y \ell(s; y)`.

    Parameters
    ----------
    loss : Loss
        A loss of classes, without weights.
    weights : tuple of float
        One for each class in their order, at least two, in (0, inf); else a ValueError. With one
        score the first is that of -1.0 and the second that of +1.0.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpadmm.losses import LogisticLoss
    >>> loss = WeightedLoss(LogisticLoss(), weights=(1.0, 8.0))
    >>> loss.derivative(np.array([0.0, 0.0]), np.array([1.0, -1.0]))
    array([-4. ,  0.5])
    >>> loss.smoothness
    2.0
    """

    loss: Loss
    weights: tuple[float, ...]

    def __post_init__(self) -> None:
        for weight in self.weights:
            require_positive(weight, "weights")

    @property
    def n_outputs(self) -> int:
        """See :attr:`Loss.n_outputs`."""
        return self.loss.n_outputs

    @property
    def smoothness(self) -> float:
        """That of the class with the largest weight."""
        return max(self.weights) * self.loss.smoothness

    @property
    def lipschitz(self) -> float:
        """That of the class with the largest weight."""
        return max(self.weights) * self.loss.lipschitz

    @property
    def unweighted(self) -> Loss:
        """See :attr:`Loss.unweighted`."""
        return self.loss

    @property
    def typical_weight(self) -> float:
        """See :attr:`Loss.typical_weight`; exact where weights are in proportion to 1 / prevalence.

        Then each class has the same weight in total, so the mean weight is their harmonic mean.
        """
        return harmonic_mean(self.weights)

    def unclipped_scale(
        self, covariance: Floats, bounds: Floats, path_variance: float = 0.0
    ) -> float:
        """See :meth:`Loss.unclipped_scale`; what is clipped is the weighted derivative."""
        bounds = bounds / np.array(self.weights)
        return self.loss.unclipped_scale(covariance, bounds, path_variance)

    def value(self, scores: Floats, target: Target) -> Floats:
        return _product(self._of_records(target), self.loss.value(scores, target))

    def derivative(self, scores: Floats, target: Target) -> Floats:
        return _product(self._of_records(target, scores.ndim), self.loss.derivative(scores, target))

    def curvature(self, scores: Floats, target: Target) -> Floats:
        curvature = self.loss.curvature(scores, target)
        return _product(self._of_records(target, curvature.ndim), curvature)

    def proximal_derivative(
        self,
        scores: Floats,
        target: Target,
        step: Floats,
        start: Start = None,
        n_steps: int | None = None,
    ) -> Floats:
        """See :meth:`Loss.proximal_derivative`; that of the loss for a step times the weight."""
        step = _product(self._of_records(target), step)
        weights = self._of_records(target, scores.ndim)
        more: dict[str, Any] = {} if n_steps is None else {"n_steps": n_steps}
        if start is not None:
            with np.errstate(all="ignore"):
                more["start"] = start / weights
        return _product(weights, self.loss.proximal_derivative(scores, target, step, **more))

    def _of_records(self, target: Target, n_axes: int = 1) -> Floats:
        """The weight of each record, along the first of that many axes."""
        classes = target > 0 if self.n_outputs == 1 else target
        weight = np.array(self.weights)[np.asarray(classes, dtype=np.intp)]
        return weight.reshape(-1, *(1,) * (n_axes - 1))


def _product(weight: Floats, of_records: Floats) -> Floats:
    """The product, at most the largest float."""
    with np.errstate(over="ignore", under="ignore"):
        return np.minimum(weight * of_records, np.finfo(np.float64).max)
