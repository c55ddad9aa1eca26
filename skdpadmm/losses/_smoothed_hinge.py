"""The quadratically smoothed hinge loss, for two classes and one class against the rest."""

from __future__ import annotations

import operator
from dataclasses import dataclass

import numpy as np

from ._loss import FloatArray, Loss, TargetArray


@dataclass(frozen=True)
class SmoothedHinge(Loss):
    r"""Hinge loss of a margin, with its corner replaced by a parabola.

    With the margin :math:`m = y s`, y = -1 or +1, and the width h of the parabola,

    .. math::

        \ell(s; y) = \begin{cases}
            0 & m \ge 1 \\
            (1 - m)^2 / (2 h) & 1 - h \le m < 1 \\
            1 - m - h / 2 & m < 1 - h .
        \end{cases}

    It lies below the hinge :math:`\max(0, 1 - m)` by at most h / 2. This is Moreau's envelope of
    the hinge with parameter h.

    Parameters
    ----------
    smoothing : float
        The width h of the parabola in units of the margin, in (0, inf).

    Raises
    ------
    ValueError
        If `smoothing` is not positive and finite.

    Examples
    --------
    >>> import numpy as np
    >>> loss = SmoothedHinge(smoothing=0.5)
    >>> scores, target = np.array([2.0, 0.75, -1.0]), np.ones(3)
    >>> loss.value(scores, target)
    array([0.    , 0.0625, 1.75  ])
    >>> loss.derivative(scores, target)
    array([-0. , -0.5, -1. ])
    """

    smoothing: float

    def __post_init__(self) -> None:
        """Refuse a width without meaning."""
        _check_smoothing(self.smoothing)

    @property
    def n_outputs(self) -> int:
        """One score."""
        return 1

    @property
    def smoothness(self) -> float:
        """1 / h, attained on the parabola."""
        return 1.0 / self.smoothing

    @property
    def lipschitz(self) -> float:
        """1, attained by margins up to 1 - h."""
        return 1.0

    def value(self, scores: FloatArray, target: TargetArray) -> FloatArray:
        """See :meth:`Loss.value`."""
        return _value(scores, target, self.smoothing)

    def derivative(self, scores: FloatArray, target: TargetArray) -> FloatArray:
        """See :meth:`Loss.derivative`."""
        return _slope(scores, target, self.smoothing)

    def curvature(self, scores: FloatArray, target: TargetArray) -> FloatArray:
        """See :meth:`Loss.curvature`; 1 / h at both ends of the parabola, where sides differ."""
        return _curvature(scores, target, self.smoothing)

    def proximal_derivative(
        self,
        scores: FloatArray,
        target: TargetArray,
        step: FloatArray,
        start: FloatArray | None = None,
        n_steps: int = 1,
    ) -> FloatArray:
        """See :meth:`Loss.proximal_derivative`; ``-y (1 - y s) / (h + step)``, clipped."""
        return _slope(scores, target, self.smoothing + step)


@dataclass(frozen=True)
class OneVsRestHinge(Loss):
    r"""Sum of one smoothed hinge per class, each telling its class from all others.

    :math:`\ell(s; y) = \sum_k \ell_h(s_k; y_k)` with :math:`\ell_h` of :class:`SmoothedHinge`,
    :math:`y_k = +1` for the class y of the record and :math:`y_k = -1` for all others.

    Parameters
    ----------
    n_classes : int
        Number of classes K, at least 2; one score for each.
    smoothing : float
        The width h of the parabola in units of the margin, in (0, inf).

    Raises
    ------
    ValueError
        If `n_classes` is smaller than 2, or `smoothing` is not positive and finite.

    Examples
    --------
    >>> import numpy as np
    >>> loss = OneVsRestHinge(n_classes=3, smoothing=1.0)
    >>> loss.value(np.array([[1.0, -1.0, 0.5]]), np.array([0]))
    array([1.])
    >>> loss.derivative(np.array([[1.0, -1.0, 0.5]]), np.array([0]))
    array([[-0.,  0.,  1.]])
    """

    n_classes: int
    smoothing: float

    def __post_init__(self) -> None:
        """Refuse fewer than two classes and a width without meaning."""
        if operator.index(self.n_classes) < 2:
            raise ValueError(f"Got n_classes={self.n_classes!r}, expected an int >= 2.")
        _check_smoothing(self.smoothing)

    @property
    def n_outputs(self) -> int:
        """One score per class."""
        return self.n_classes

    @property
    def smoothness(self) -> float:
        """1 / h, attained on each parabola: the scores do not interact."""
        return 1.0 / self.smoothing

    @property
    def lipschitz(self) -> float:
        """Square root of K, attained where all K scores are on the wrong side."""
        return float(np.sqrt(self.n_classes))

    def value(self, scores: FloatArray, target: TargetArray) -> FloatArray:
        """See :meth:`Loss.value`."""
        terms = _value(scores, self._signs(target), self.smoothing)
        # Added in the order of the classes: that of a sum over an axis depends on the other rows.
        total = np.zeros(len(terms))
        for k in range(self.n_classes):
            total += terms[:, k]
        return total

    def derivative(self, scores: FloatArray, target: TargetArray) -> FloatArray:
        """See :meth:`Loss.derivative`."""
        return _slope(scores, self._signs(target), self.smoothing)

    def curvature(self, scores: FloatArray, target: TargetArray) -> FloatArray:
        """See :meth:`Loss.curvature`; diagonal Hessians."""
        hessian = np.zeros((*scores.shape, self.n_classes))
        classes = np.arange(self.n_classes)
        hessian[:, classes, classes] = _curvature(scores, self._signs(target), self.smoothing)
        return hessian

    def proximal_derivative(
        self,
        scores: FloatArray,
        target: TargetArray,
        step: FloatArray,
        start: FloatArray | None = None,
        n_steps: int = 1,
    ) -> FloatArray:
        """See :meth:`Loss.proximal_derivative`; each score has its own closed form."""
        return _slope(scores, self._signs(target), self.smoothing + step[:, None])

    def _signs(self, target: TargetArray) -> FloatArray:
        """The targets of the K binary problems, -1 or +1."""
        signs = np.full((len(target), self.n_classes), -1.0)
        signs[np.arange(len(target)), target] = 1.0
        return signs


def _check_smoothing(smoothing: float) -> None:
    if not 0 < smoothing < np.inf:
        raise ValueError(f"Got smoothing={smoothing!r}, expected a float in (0, inf).")


def _value(scores: FloatArray, signs: TargetArray, smoothing: float) -> FloatArray:
    with np.errstate(over="ignore", under="ignore"):
        missing = np.maximum(1.0 - signs * scores, 0.0)
        inner = np.minimum(missing, smoothing)
        return inner / smoothing * (missing - 0.5 * inner)


def _slope(scores: FloatArray, signs: TargetArray, width: FloatArray | float) -> FloatArray:
    """``-y (1 - y s) / width``, clipped: the derivative of a smoothed hinge of that width.

    The proximal step widens the parabola by the step and changes nothing else.
    """
    with np.errstate(over="ignore", under="ignore"):
        slope = signs * scores
        np.subtract(1.0, slope, out=slope)
        slope /= width
        np.maximum(slope, 0.0, out=slope)
        np.minimum(slope, 1.0, out=slope)
        slope *= signs
        return np.negative(slope, out=slope)


def _curvature(scores: FloatArray, signs: TargetArray, smoothing: float) -> FloatArray:
    with np.errstate(over="ignore"):
        missing = 1.0 - signs * scores
        return np.where((missing >= 0.0) & (missing <= smoothing), 1.0 / smoothing, 0.0)
