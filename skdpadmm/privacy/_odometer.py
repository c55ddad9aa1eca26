"""What fits cost an analyst whose budgets, and whose last fit, follow from earlier results."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from skdpadmm._numbers import smallest_epsilon
from skdpadmm.privacy._gaussian import GaussianDP, gaussian_mu
from skdpadmm.privacy._guarantee import Guarantee, NonPrivate
from skdpadmm.privacy._laplace import LaplaceDP
from skdpadmm.privacy._renyi import RenyiDP

# Orders minus one, and weights, of the martingale on the page of proofs; no data decide them.
_STEPS = np.arange(-10, 17)
_POWERS = 8.0 * 2.0 ** (_STEPS / 2)
_LOG_WEIGHTS = -np.log(16.0 + _STEPS**2)
_LOG_WEIGHTS -= np.logaddexp.reduce(_LOG_WEIGHTS)


class Spent(NamedTuple):
    """A sum of pure epsilons, the mu of Gaussian fits, and Renyi divergences of others."""

    pure: float
    mu: float
    divergences: NDArray[np.float64]

    @classmethod
    def of(cls, counts: Mapping[Guarantee, int]) -> Spent:
        """Add up guarantees, each of which occurs a number of times."""
        pure, mu, divergences = [0.0], [0.0], np.zeros(len(_POWERS))
        for part, count in ((p, n * k) for g, n in counts.items() for p, k in g.rounds()):
            if isinstance(part, LaplaceDP | NonPrivate):
                pure.append(count * getattr(part, "pure_epsilon", math.inf))
            elif isinstance(part, RenyiDP):
                divergences = divergences + count * _at_least(part)
            elif part.largest_mu() < math.inf:
                mu.append(math.sqrt(count) * part.largest_mu() * (1.0 + 1e-15))
            else:
                raise ValueError(
                    f"There is no total for budgets that follow results: {part.describe()} has no"
                    " theorem for them. If budgets and the number of fits were fixed in advance,"
                    " ask for total(kind='fixed')."
                )
        return cls(math.fsum(pure), math.hypot(*mu), divergences)

    def keeps(self, epsilon: float, delta: float) -> bool:
        """Whether a filter with this limit was never passed; pure epsilons are on top of it."""
        is_gaussian = not self.divergences.any()
        return is_gaussian and (self.mu == 0.0 or self.mu <= _filter_mu(epsilon, delta))

    def filter_epsilon(self, epsilon: float, delta: float, at: float) -> float:
        """Return epsilon at a delta of fits that a filter with a limit let in.

        No more than the delta of the limit is claimed, which is what a raised limit loses.
        """
        if at >= delta:
            return self.pure + (epsilon if self.mu else 0.0)
        return self.pure + (GaussianDP(_filter_mu(epsilon, delta)).epsilon(at) if self.mu else 0.0)

    def odometer_epsilon(self, delta: float) -> float:
        """Return epsilon at a delta that was fixed in advance, for who stops when it suits."""
        if self.mu == 0.0 and not self.divergences.any():
            return self.pure
        if delta == 0.0:
            return math.inf
        divergences = self.divergences + (1.0 + _POWERS) * (0.5 * self.mu**2)
        start = _LOG_WEIGHTS + math.log(delta)

        def is_past(loss: float) -> bool:
            with np.errstate(over="ignore"):
                slopes = start + np.log1p(_POWERS) + _POWERS * (loss - divergences)
            return bool(np.logaddexp.reduce(slopes) >= 0.0)

        # loss + log(1 - delta M(loss)) is concave: its largest value is where its slope is zero.
        loss = smallest_epsilon(is_past)
        if loss == math.inf:  # no order has a finite divergence
            return math.inf
        inside = math.exp(np.logaddexp.reduce(start + _POWERS * (loss - divergences)))
        return self.pure + max((loss + math.log1p(-inside)) * (1.0 + 1e-9), 0.0)


def _at_least(part: RenyiDP) -> NDArray[np.float64]:
    """Return bounds at the orders of the martingale: divergences increase with their order."""
    places = np.searchsorted(part.orders, 1.0 + _POWERS)
    return np.append(np.minimum.accumulate(part.divergences[::-1])[::-1], math.inf)[places]


def _filter_mu(epsilon: float, delta: float) -> float:
    """Return the mu that a limit allows, with the rounding that a plan is allowed."""
    return gaussian_mu(epsilon, delta * (1.0 + 1e-9)) if 0.0 < delta else 0.0
