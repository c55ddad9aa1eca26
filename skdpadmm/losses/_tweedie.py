"""Losses of counts and costs: half of the deviance of Tweedie's families, with log link."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from skdpadmm._numbers import require
from skdpadmm.losses._loss import Floats, Loss, Start, Target

# At worst a step changes a rate by a factor of e.
_STEPS = 40
# Scores below it have a rate of 0.
_ZERO_RATE = -750.0


@dataclass(frozen=True)
class TweedieLoss(Loss):
    r"""Half of the Tweedie deviance of a rate :math:`\mu = e^s`, up to a constant of the target.

    The derivative in the score s is :math:`\mu^{1 - p} (\mu - y)`, for rates between `lowest` and
    `largest`. Outside of them the loss goes on as a straight line, and so it stays convex; targets
    are clipped to the same range. Power 1 is Poisson's, with loss :math:`e^s - y s`, and power 2
    gamma's, with :math:`s + y e^{-s}`.

    Parameters
    ----------
    power : float
        p, in [1, 2].
    lowest, largest : float
        Public range of rates and targets, ``0 <= lowest < largest``; `lowest` may be 0 at power 1.

    Examples
    --------
    >>> import numpy as np
    >>> loss = TweedieLoss(power=1.0, lowest=0.0, largest=20.0)
    >>> loss.derivative(np.array([0.0, 9.0]), np.array([3.0, 3.0]))
    array([-2., 17.])
    """

    power: float
    lowest: float
    largest: float
    has_log_link = True
    has_debiased_step = True

    def __post_init__(self) -> None:
        require(1 <= self.power <= 2, "power", self.power, "a float in [1, 2]")
        pair, needed = (self.lowest, self.largest), "0 <= lower < upper < inf, and lower > 0"
        is_range = 0 <= self.lowest < self.largest < math.inf
        is_range &= self.power == 1 or self.lowest > 0
        require(is_range, "target_bounds", pair, f"{needed} unless power is 1")

    @property
    def degree(self) -> float:
        """See :attr:`Loss.degree`."""
        return 2.0 - self.power

    @property
    def smoothness(self) -> float:
        """At the largest target and one of the two ends of rates: between them it is smaller."""
        p, low, high = self.power, self.lowest, self.largest
        at_lowest = (2 - p) * low ** (2 - p) + (p - 1) * high * low ** (1 - p)
        return max(at_lowest, high ** (2 - p))

    @property
    def lipschitz(self) -> float:
        """At the lowest rate, for the largest target."""
        return self.lowest ** (1 - self.power) * (self.largest - self.lowest)

    def inverse_link(self, scores: Floats) -> Floats:
        """See :meth:`Loss.inverse_link`; rates, within their range."""
        return self._rate(scores)

    def in_units(self, unit: float) -> TweedieLoss:
        """See :meth:`Loss.in_units`; scores have the logarithm of the unit subtracted."""
        return replace(self, lowest=self.lowest / unit, largest=self.largest / unit)

    def value(self, scores: Floats, target: Target) -> Floats:
        with np.errstate(over="ignore", under="ignore", divide="ignore"):
            inside = np.clip(scores, np.log(self.lowest), np.log(self.largest))
            value = _integral(2 - self.power, inside)
            value = value - self._target(target) * _integral(1 - self.power, inside)
            return np.asarray(value + self.derivative(scores, target) * (scores - inside))

    def derivative(self, scores: Floats, target: Target) -> Floats:
        with np.errstate(under="ignore"):
            rate = self._rate(scores)
            return np.asarray((rate - self._target(target)) * rate ** (1 - self.power))

    def curvature(self, scores: Floats, target: Target) -> Floats:
        """See :meth:`Loss.curvature`; 0 where the loss is a straight line."""
        with np.errstate(under="ignore", divide="ignore"):
            rate, p = self._rate(scores), self.power
            is_line = (scores < np.log(self.lowest)) | (scores > np.log(self.largest))
            bend = (2 - p) * rate + (p - 1) * self._target(target)
            return np.where(is_line, 0.0, bend * rate ** (1 - p))

    def proximal_derivative(
        self, scores: Floats, target: Target, step: Floats, start: Start = None, n_steps: int = 1
    ) -> Floats:
        """See :meth:`Loss.proximal_derivative`; by projected Newton steps for the point.

        The point is within the range of scores, or on one of the lines, whose derivative is that
        of the end. The derivative is concave in the score up to a point and convex from there on,
        so steps that are kept in a bracket converge from every start, one way after the second.
        """
        with np.errstate(all="ignore"):
            high = np.full(scores.shape, np.log(self.largest))
            low = np.minimum(scores - step * self.largest ** (2 - self.power), high)
            low = np.maximum(low, max(float(np.log(self.lowest)), _ZERO_RATE))
            point = np.clip(scores + step * self._target(target), low, high)
            for _ in range(_STEPS):
                excess = point - scores + step * self.derivative(point, target)
                low, high = np.where(excess <= 0, point, low), np.where(excess > 0, point, high)
                newton = point - excess / (1 + step * self.curvature(point, target))
                point = np.fmin(np.fmax(newton, low), high)
            return self.derivative(point, target)

    def _rate(self, scores: Floats) -> Floats:
        with np.errstate(over="ignore", under="ignore"):
            return np.clip(np.exp(scores), self.lowest, self.largest)

    def _target(self, target: Target) -> Floats:
        return np.clip(target, self.lowest, self.largest)


def _integral(rate: float, scores: Floats) -> Floats:
    """Of ``exp(rate s)``."""
    return np.exp(rate * scores) / rate if rate else scores
