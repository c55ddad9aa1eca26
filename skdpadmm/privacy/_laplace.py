"""Releases with Laplace noise."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

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
