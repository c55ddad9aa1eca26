"""What every guarantee answers."""

from __future__ import annotations

import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from skdpadmm.privacy._bisection import bisect
from skdpadmm.privacy._validation import require_delta, require_epsilon


class Guarantee(ABC):
    """A differential privacy guarantee: a curve of (epsilon, delta), known from above.

    A concrete guarantee is a frozen dataclass: it compares and hashes by value, and holds nothing
    but its parameters.
    """

    @abstractmethod
    def delta(self, epsilon: float) -> float:
        """Return the smallest known delta at ``epsilon`` in [0, inf]; it is 0 at infinity."""

    def epsilon(self, delta: float) -> float:
        """Return the smallest known epsilon at ``delta``, on the safe side of its rounding.

        Parameters
        ----------
        delta : float
            In [0, 1].

        Returns
        -------
        float
            0.0 when ``delta(0) <= delta``, infinity when no finite epsilon reaches ``delta``.

        Raises
        ------
        ValueError
            If ``delta`` is outside [0, 1].
        """
        require_delta(delta)
        if delta == 0.0:  # at a finite epsilon a delta of zero may be nothing but underflow
            return 0.0 if self.delta(0.0) == 0.0 else math.inf

        return smallest_epsilon(lambda epsilon: self.delta(epsilon) <= delta)

    def dominates(self, other: Guarantee) -> bool:
        """Whether it is plain that its delta is at least another's, at every epsilon.

        Parameters
        ----------
        other : Guarantee

        Returns
        -------
        bool
            False where it takes more than a look at the parameters.
        """
        return self == other

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able dictionary: ``"kind"`` and the parameters."""

    @abstractmethod
    def describe(self) -> str:
        """Return one short phrase, parameters rounded to the unflattering side."""


def smallest_epsilon(reaches: Callable[[float], bool]) -> float:
    """Return the smallest epsilon that reaches a delta, from the accepted side; infinity if none.

    Parameters
    ----------
    reaches : callable
        Of an epsilon in [0, inf); once true it stays so.
    """
    if reaches(0.0):
        return 0.0
    if not reaches(sys.float_info.max):
        return math.inf
    low, high = 0.0, 1.0
    while not reaches(high):
        low, high = high, 2.0 * high
    return bisect(reaches, rejected=low, accepted=high)


@dataclass(frozen=True)
class NonPrivate(Guarantee):
    """No guarantee at all: delta is 1 at every finite epsilon.

    Examples
    --------
    >>> from skdpadmm.privacy import NonPrivate
    >>> NonPrivate().epsilon(1e-6)
    inf
    """

    def delta(self, epsilon: float) -> float:
        """Return 1.0 for every finite ``epsilon``, 0.0 at infinity."""
        require_epsilon(epsilon)
        return 0.0 if math.isinf(epsilon) else 1.0

    def dominates(self, other: Guarantee) -> bool:
        """Whether it is plain that its delta is at least another's: it always is."""
        return True

    def to_dict(self) -> dict[str, Any]:
        """Return ``{"kind": "non_private"}``."""
        return {"kind": "non_private"}

    def describe(self) -> str:
        """Return "not private"."""
        return "not private"
