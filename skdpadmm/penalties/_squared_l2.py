"""The squared Euclidean penalty."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ._penalty import FloatArray, Penalty, ProximalOperator, check_strength, solver_rounding
from ._prox import elastic_net_operator


@dataclass(frozen=True)
class SquaredL2(Penalty):
    r"""Ridge regression's penalty, :math:`r(w) = \frac{\lambda}{2} \|w\|_2^2`.

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
    >>> SquaredL2(1.0).prox(np.array([3.0, -1.0]), step=1.0)
    array([ 1.5, -0.5])
    """

    strength: float

    def __post_init__(self) -> None:
        """Refuse a strength without meaning."""
        check_strength("strength", self.strength)

    @property
    def strong_convexity(self) -> float:
        """The strength."""
        return self.strength

    def value(self, coef: FloatArray) -> float:
        """See :meth:`Penalty.value`."""
        return float(0.5 * self.strength * np.square(coef).sum())

    def proximal_operator(self, step: float, metric: FloatArray | None = None) -> ProximalOperator:
        """See :meth:`Penalty.proximal_operator`; one linear system."""
        return elastic_net_operator(step, metric, l1=0.0, l2=self.strength)

    def proximal_rounding(self, scale: FloatArray, condition: float | None = None) -> float:
        """See :meth:`Penalty.proximal_rounding`; units do not count."""
        return solver_rounding(len(scale), condition)

    def scaled(self, factor: float) -> SquaredL2:
        """See :meth:`Penalty.scaled`."""
        check_strength("factor", factor)
        return SquaredL2(factor * self.strength)
