"""The binary logistic loss."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ._loss import FloatArray, Loss, TargetArray

_EXP_MAX = 709.0
"""Largest round argument whose exponential is finite."""


@dataclass(frozen=True)
class LogisticLoss(Loss):
    r"""Binary cross-entropy, :math:`\ell(s; y) = \log(1 + e^{-y s})` with y = -1 or +1.

    Examples
    --------
    >>> import numpy as np
    >>> loss = LogisticLoss()
    >>> loss.derivative(np.array([0.0, 0.0]), np.array([1.0, -1.0]))
    array([-0.5,  0.5])
    >>> g = loss.proximal_derivative(np.array([0.0]), np.array([1.0]), step=np.array([2.0]))
    >>> bool(abs(g + 1 / (1 + np.exp(-2.0 * g))) < 1e-12)
    True
    """

    @property
    def n_outputs(self) -> int:
        """One score."""
        return 1

    @property
    def smoothness(self) -> float:
        """1/4, attained at a score of 0."""
        return 0.25

    @property
    def lipschitz(self) -> float:
        """1, approached for badly misclassified records."""
        return 1.0

    def value(self, scores: FloatArray, target: TargetArray) -> FloatArray:
        """See :meth:`Loss.value`."""
        with np.errstate(under="ignore"):
            margin = target * scores
            return np.log1p(np.exp(-np.abs(margin))) - np.minimum(margin, 0.0)

    def derivative(self, scores: FloatArray, target: TargetArray) -> FloatArray:
        """See :meth:`Loss.derivative`."""
        with np.errstate(under="ignore"):
            probability = target * scores
            _error_probability(probability)
            probability *= target
            return np.negative(probability, out=probability)

    def curvature(self, scores: FloatArray, target: TargetArray) -> FloatArray:
        """See :meth:`Loss.curvature`."""
        with np.errstate(under="ignore"):
            tail = np.exp(-np.abs(scores))
            tail /= np.square(1.0 + tail)
            return tail

    def proximal_derivative(
        self,
        scores: FloatArray,
        target: TargetArray,
        step: FloatArray,
        start: FloatArray | None = None,
        n_steps: int = 4,
    ) -> FloatArray:
        r"""See :meth:`Loss.proximal_derivative`; by projected Newton steps.

        Parameters
        ----------
        scores : ndarray of shape (n,)
            Linear scores.
        target : ndarray of shape (n,)
            Targets, -1 or +1.
        step : ndarray of shape (n,)
            Step of each record, at least 0.
        start : ndarray of shape (n,), default=None
            A nearby solution; by default an approximation by Lambert's function.
        n_steps : int, default=4
            Number of Newton steps. Measured over steps up to 1e6, the default errs by at most 1e-14
            without a start, and three steps by 1e-10. From the solution for scores that differ by
            0.1, two steps err by at most 4e-8; where they differ by 1, by 5e-4 (three: 1e-5).

        Returns
        -------
        ndarray of shape (n,)
            Solutions, in [-1, 1].

        Notes
        -----
        With the margin :math:`u = y s` the solution is :math:`g = -y h`, where h is the root of
        :math:`h - \sigma(-u - \gamma h)` in [0, 1]. The argument of the sigmoid changes sign at
        :math:`k = -u / \gamma`, and between k (cut to [0, 1]) and 1/2 the function changes sign
        and is concave or convex, so Newton steps projected onto that bracket converge from every
        start, monotonically after the first. Each step is the convex combination
        :math:`(p + c h) / (1 + c)` with :math:`p = \sigma(-u - \gamma h)` and
        :math:`c = \gamma p (1 - p)`, so h stays a probability.
        """
        with np.errstate(all="ignore"):
            margin = target * scores
            # The floor keeps 0 / 0 away and is below the rounding of every other step.
            low = margin / np.maximum(step, 1e-300)
            np.negative(low, out=low)
            np.maximum(low, 0.0, out=low)
            np.minimum(low, 1.0, out=low)
            high = np.maximum(low, 0.5)
            np.minimum(low, 0.5, out=low)
            if start is None:
                root = _cold_start(margin, step)
            else:
                root = target * start
                np.negative(root, out=root)
            np.maximum(root, low, out=root)
            np.minimum(root, high, out=root)
            probability, weight = np.empty_like(root), np.empty_like(root)
            for _ in range(n_steps):
                np.multiply(step, root, out=probability)
                probability += margin
                _error_probability(probability)
                np.multiply(probability, probability, out=weight)
                np.subtract(probability, weight, out=weight)
                weight *= step
                root *= weight
                root += probability
                weight += 1.0
                root /= weight
                np.maximum(root, low, out=root)
                np.minimum(root, high, out=root)
            root *= target
            return np.negative(root, out=root)


def _error_probability(margin: FloatArray) -> None:
    """Replace margins by the probability of the other class, 1 / (1 + exp(margin))."""
    # NumPy's vectorised exp is several times faster than scipy.special.expit.
    np.minimum(margin, _EXP_MAX, out=margin)
    np.exp(margin, out=margin)
    margin += 1.0
    np.reciprocal(margin, out=margin)


def _cold_start(margin: FloatArray, step: FloatArray) -> FloatArray:
    """Approximate root: Lambert's function of step * exp(-margin), folded to h <= 1/2."""
    centre = margin + 0.5 * step
    log_size = np.log(np.maximum(step, 1e-300)) - (np.abs(centre) - 0.5 * step)
    size = np.maximum(log_size, 0.0) + np.log1p(np.exp(-np.abs(log_size)))
    size *= (1.0 + log_size - np.log(np.maximum(size, 1e-300))) / (1.0 + size)
    root = size / np.maximum(step, 1e-300)
    return np.where(centre < 0, 1.0 - root, root)
