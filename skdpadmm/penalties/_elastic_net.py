"""The elastic net penalty."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ._penalty import FloatArray, Penalty, ProximalOperator, check_strength, solver_rounding
from ._prox import elastic_net_operator


@dataclass(frozen=True)
class ElasticNet(Penalty):
    r"""The elastic net, :math:`r(w) = \lambda_1 \|w\|_1 + \frac{\lambda_2}{2} \|w\|_2^2`.

    Parameters
    ----------
    l1 : float
        The factor :math:`\lambda_1`, in [0, inf).
    l2 : float
        The factor :math:`\lambda_2`, in [0, inf).

    Raises
    ------
    ValueError
        If a factor is outside [0, inf).

    Examples
    --------
    >>> import numpy as np
    >>> ElasticNet(l1=1.0, l2=1.0).prox(np.array([3.0, -0.5]), step=1.0)
    array([1., 0.])
    """

    l1: float
    l2: float

    def __post_init__(self) -> None:
        """Refuse strengths without meaning."""
        check_strength("l1", self.l1)
        check_strength("l2", self.l2)

    @property
    def strong_convexity(self) -> float:
        """The factor of the squared part."""
        return self.l2

    @property
    def is_sparse(self) -> bool:
        """Unless the l1 part is 0."""
        return self.l1 > 0

    def value(self, coef: FloatArray) -> float:
        """See :meth:`Penalty.value`."""
        return float(self.l1 * np.abs(coef).sum() + 0.5 * self.l2 * np.square(coef).sum())

    def proximal_operator(self, step: float, metric: FloatArray | None = None) -> ProximalOperator:
        """See :meth:`Penalty.proximal_operator`; closed form where the metric is diagonal."""
        return elastic_net_operator(step, metric, l1=self.l1, l2=self.l2)

    def proximal_rounding(self, scale: FloatArray, condition: float | None = None) -> float:
        """See :meth:`Penalty.proximal_rounding`; units do not count."""
        return solver_rounding(len(scale), condition)

    def scaled(self, factor: float) -> ElasticNet:
        """See :meth:`Penalty.scaled`."""
        check_strength("factor", factor)
        return ElasticNet(l1=factor * self.l1, l2=factor * self.l2)
