"""The l1 penalty."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ._penalty import FloatArray, Penalty, ProximalOperator, check_strength, solver_rounding
from ._prox import elastic_net_operator


@dataclass(frozen=True)
class L1(Penalty):
    r"""The lasso's penalty, :math:`r(w) = \lambda \|w\|_1`.

    Parameters
    ----------
    strength : float
        The factor :math:`\lambda`, in [0, inf).

    Raises
    ------
    ValueError
        If `strength` is outside [0, inf).

    Examples
    --------
    >>> import numpy as np
    >>> L1(1.0).prox(np.array([3.0, -2.5, 0.5]), step=2.0)
    array([ 1. , -0.5,  0. ])
    """

    strength: float

    def __post_init__(self) -> None:
        """Refuse a strength without meaning."""
        check_strength("strength", self.strength)

    @property
    def strong_convexity(self) -> float:
        """0."""
        return 0.0

    @property
    def is_sparse(self) -> bool:
        """Unless the strength is 0."""
        return self.strength > 0

    def value(self, coef: FloatArray) -> float:
        """See :meth:`Penalty.value`."""
        return float(self.strength * np.abs(coef).sum())

    def proximal_operator(self, step: float, metric: FloatArray | None = None) -> ProximalOperator:
        """See :meth:`Penalty.proximal_operator`; soft thresholding where the metric is diagonal."""
        return elastic_net_operator(step, metric, l1=self.strength, l2=0.0)

    def proximal_rounding(self, scale: FloatArray, condition: float | None = None) -> float:
        """See :meth:`Penalty.proximal_rounding`; units do not count."""
        return solver_rounding(len(scale), condition)

    def scaled(self, factor: float) -> L1:
        """See :meth:`Penalty.scaled`."""
        check_strength("factor", factor)
        return L1(factor * self.strength)
