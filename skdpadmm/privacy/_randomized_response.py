"""Labels that are told truthfully with some probability."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

from skdpadmm.privacy._formatting import round_up
from skdpadmm.privacy._guarantee import Guarantee
from skdpadmm.privacy._laplace import LaplaceDP
from skdpadmm.privacy._pld import ResponseRounds
from skdpadmm.privacy._validation import require, require_delta, require_epsilon


@dataclass(frozen=True)
class RandomizedResponseDP(Guarantee):
    r"""One of k labels, told truthfully more often than each of the others.

    The truth has :math:`e^\epsilon` times the probability of any other label, which is
    :math:`q = 1 / (e^\epsilon + k - 1)`. Delta is zero from epsilon on, and below exactly

    .. math:: \delta(\epsilon') = q (e^\epsilon - e^{\epsilon'}).

    With two labels no mechanism of the same pure epsilon is easier to see through. It composes with
    other guarantees by its exact privacy loss distribution.

    Parameters
    ----------
    response_epsilon : float
        In [0, inf).
    n_labels : int, default=2
        k, at least 2.

    Examples
    --------
    >>> from skdpadmm.privacy import RandomizedResponseDP
    >>> response = RandomizedResponseDP(1.0, 3)
    >>> response.epsilon(0.0), f"{response.delta(0.5):.3f}"
    (1.0, '0.227')
    >>> f"{response.other:.3f}"
    '0.212'
    """

    response_epsilon: float
    n_labels: int = 2

    def __post_init__(self) -> None:
        """Check the ranges."""
        epsilon = self.response_epsilon
        require(
            isinstance(epsilon, Real) and 0 <= epsilon < math.inf,
            "response_epsilon",
            epsilon,
            "a float in [0, inf)",
        )
        require(
            isinstance(self.n_labels, Integral) and self.n_labels >= 2,
            "n_labels",
            self.n_labels,
            "an int >= 2",
        )

    @property
    def other(self) -> float:
        """q: the probability of each label but the true one."""
        small = math.exp(-self.response_epsilon)
        return small / (1.0 + (self.n_labels - 1) * small)

    def delta(self, epsilon: float) -> float:
        """Return delta at ``epsilon`` in [0, inf], exactly."""
        require_epsilon(epsilon)
        if epsilon >= self.response_epsilon:
            return 0.0
        return -math.expm1(epsilon - self.response_epsilon) * self._truth

    def epsilon(self, delta: float) -> float:
        """Return epsilon at ``delta`` in [0, 1], exactly."""
        require_delta(delta)
        if delta == 0.0:
            return float(self.response_epsilon)
        left = 1.0 - delta / self._truth
        return max(0.0, self.response_epsilon + math.log(left)) if left > 0 else 0.0

    def dominates(self, other: Guarantee) -> bool:
        """Whether its delta is plainly at least another's.

        It is if the other is a response with no larger epsilon among no fewer labels, or, with two
        labels, Laplace noise with no larger pure epsilon.
        """
        if isinstance(other, RandomizedResponseDP):
            fewer = self.n_labels <= other.n_labels
            return fewer and self.response_epsilon >= other.response_epsilon
        if isinstance(other, LaplaceDP):
            return self.n_labels == 2 and self.response_epsilon >= other.pure_epsilon
        return False

    def to_dict(self) -> dict[str, Any]:
        """Return the kind, epsilon and the number of labels."""
        return {
            "kind": "randomized_response",
            "epsilon": float(self.response_epsilon),
            "n_labels": int(self.n_labels),
        }

    def describe(self) -> str:
        """Return for instance "randomised response(epsilon=1, 3 labels)"."""
        return (
            f"randomised response(epsilon={round_up(self.response_epsilon)},"
            f" {self.n_labels} labels)"
        )

    @property
    def _truth(self) -> float:
        """The probability of the true label."""
        return 1.0 / (1.0 + (self.n_labels - 1) * math.exp(-self.response_epsilon))

    def _pure(self) -> LaplaceDP:
        """Stand-in for closed forms that take nothing from a guarantee but its pure epsilon."""
        return LaplaceDP((self.response_epsilon,))

    def _rounds(self) -> tuple[ResponseRounds, ...]:
        if self.response_epsilon == 0:
            return ()
        return (ResponseRounds(float(self.response_epsilon), int(self.n_labels), 1),)
