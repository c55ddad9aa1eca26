"""No penalty."""

from __future__ import annotations

from dataclasses import dataclass

from ._penalty import FloatArray, Penalty, check_strength
from ._prox import elastic_net_prox


@dataclass(frozen=True)
class NoPenalty(Penalty):
    """The zero function, whose proximal operator is the identity in every metric.

    Examples
    --------
    >>> import numpy as np
    >>> NoPenalty().prox(np.array([3.0, -1.0]), step=1.0)
    array([ 3., -1.])
    """

    @property
    def strong_convexity(self) -> float:
        """0."""
        return 0.0

    def value(self, coef: FloatArray) -> float:
        """See :meth:`Penalty.value`; 0."""
        return 0.0

    def prox(self, v: FloatArray, step: float, metric: FloatArray | None = None) -> FloatArray:
        """See :meth:`Penalty.prox`; a copy of `v`."""
        return elastic_net_prox(v, step, metric, l1=0.0, l2=0.0)

    def scaled(self, factor: float) -> NoPenalty:
        """See :meth:`Penalty.scaled`; the same penalty."""
        check_strength("factor", factor)
        return self
