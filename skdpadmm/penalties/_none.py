"""No penalty."""

from __future__ import annotations

from dataclasses import dataclass

from ._penalty import ENTRYWISE, FloatArray, Penalty, ProximalOperator, check_strength
from ._prox import elastic_net_operator


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

    def proximal_operator(self, step: float, metric: FloatArray | None = None) -> ProximalOperator:
        """See :meth:`Penalty.proximal_operator`; copies the point."""
        return elastic_net_operator(step, metric, l1=0.0, l2=0.0)

    def proximal_rounding(self, scale: FloatArray, condition: float | None = None) -> float:
        """See :meth:`Penalty.proximal_rounding`; that of two changes of units."""
        return ENTRYWISE

    def scaled(self, factor: float) -> NoPenalty:
        """See :meth:`Penalty.scaled`; the same penalty."""
        check_strength("factor", factor)
        return self
