"""The elastic net with its special cases: the l1 norm, the squared norm and no penalty."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import cache
from typing import Self

import numpy as np
from scipy import linalg

from skdpadmm._numbers import require_positive
from skdpadmm.penalties._penalty import (
    ENTRYWISE,
    Floats,
    Penalty,
    ProximalOperator,
    as_columns,
    as_weights,
    certified,
    check_metric,
    check_strength,
    factor_matrix,
)
from skdpadmm.penalties._piecewise import PiecewiseQuadratic


class _ElasticNet(Penalty):
    """Base of the elastic net and its special cases; their fields are strengths."""

    def __post_init__(self) -> None:
        for name, strength in vars(self).items():
            check_strength(name, strength)

    @abstractmethod
    def _strengths(self) -> tuple[float, float]:
        """Factors of the l1 norm and of the halved squared norm."""

    @property
    def strong_convexity(self) -> float:
        """Factor of the halved squared norm."""
        return self._strengths()[1]

    @property
    def is_sparse(self) -> bool:
        """Whether the l1 norm has a positive factor."""
        return self._strengths()[0] > 0

    def value(self, coef: Floats) -> float:
        l1, l2 = self._strengths()
        # A strength of zero is zero whatever the norm, even where squares overflow.
        norm = l1 * np.abs(coef).sum() if l1 else 0.0
        return float(norm + (0.5 * l2 * np.square(coef).sum() if l2 else 0.0))

    def proximal_operator(self, step: float, metric: Floats | None = None) -> ProximalOperator:
        """See :meth:`Penalty.proximal_operator`; closed form where the metric is diagonal."""
        require_positive(step, "step")
        check_metric(metric)
        l1, l2 = (step * strength for strength in self._strengths())
        if metric is None or metric.ndim == 1:

            @cache
            def constants(shape: tuple[int, ...]) -> tuple[Floats, Floats]:
                return _constants(as_weights(np.empty(shape), metric), l1, l2)

            is_free = l1 == l2 == 0

            def shrink(v: Floats) -> Floats:
                threshold, divisor = constants(v.shape)
                return v + 0.0 if is_free else _shrink(v, threshold, divisor)

            return shrink
        if l1 == l2 == 0:
            size = len(metric)
            return lambda v: as_columns(v, size).reshape(v.shape).copy()
        quadratic, factor = factor_matrix(metric, l2)
        if l1 == 0:

            def solve(v: Floats) -> Floats:
                columns = as_columns(v, len(factor))
                # A correction of the point, which is exact where nothing is to be corrected.
                change = l2 * linalg.cho_solve((factor, True), columns, check_finite=False)
                return (columns - change).reshape(v.shape)

            return solve
        inverse = linalg.cho_solve((factor, True), np.eye(len(factor)), check_finite=False)
        inverse = 0.5 * (inverse + inverse.T)

        def threshold(v: Floats) -> Floats:
            columns = [np.ascontiguousarray(column) for column in as_columns(v, len(metric)).T]
            solutions = [_l1_minimiser(w, metric, quadratic, inverse, l1, l2) for w in columns]
            return np.stack(solutions, axis=1).reshape(v.shape)

        return threshold

    def proximal_rounding(self, scale: Floats, condition: float | None = None) -> float:
        """See :meth:`Penalty.proximal_rounding`; units do not count.

        Up to powers of two a Cholesky factor does not depend on the units. The system of the
        coefficients that rest at no kink leaves a residual of about p units in the last place.
        """
        if condition is None or not any(self._strengths()):
            return ENTRYWISE
        return certified(ENTRYWISE * (8 + len(scale)) * condition)

    def scaled(self, factor: float) -> Self:
        check_strength("factor", factor)
        return type(self)(*(factor * strength for strength in vars(self).values()))


@dataclass(frozen=True)
class ElasticNet(_ElasticNet):
    r"""The elastic net, :math:`r(w) = \lambda_1 \|w\|_1 + \frac{\lambda_2}{2} \|w\|_2^2`.

    Parameters
    ----------
    l1, l2 : float
        The factors :math:`\lambda_1` and :math:`\lambda_2`, in [0, inf); else a ValueError.

    Examples
    --------
    >>> import numpy as np
    >>> ElasticNet(l1=1.0, l2=1.0).prox(np.array([3.0, -0.5]), step=1.0)
    array([1., 0.])
    """

    l1: float
    l2: float

    def _strengths(self) -> tuple[float, float]:
        return self.l1, self.l2


@dataclass(frozen=True)
class L1(_ElasticNet):
    r"""The lasso's penalty, :math:`r(w) = \lambda \|w\|_1`.

    Parameters
    ----------
    strength : float
        The factor :math:`\lambda`, in [0, inf); else a ValueError.

    Examples
    --------
    >>> import numpy as np
    >>> L1(1.0).prox(np.array([3.0, -2.5, 0.5]), step=2.0)
    array([ 1. , -0.5,  0. ])
    """

    strength: float

    def _strengths(self) -> tuple[float, float]:
        return self.strength, 0.0


@dataclass(frozen=True)
class SquaredL2(_ElasticNet):
    r"""Ridge regression's penalty, :math:`r(w) = \frac{\lambda}{2} \|w\|_2^2`.

    Parameters
    ----------
    strength : float
        The factor :math:`\lambda`, in [0, inf); else a ValueError.

    Examples
    --------
    >>> import numpy as np
    >>> SquaredL2(1.0).prox(np.array([3.0, -1.0]), step=1.0)
    array([ 1.5, -0.5])
    """

    strength: float

    def _strengths(self) -> tuple[float, float]:
        return 0.0, self.strength


@dataclass(frozen=True)
class NoPenalty(_ElasticNet):
    """The zero function, whose proximal operator is the identity in every metric.

    Examples
    --------
    >>> import numpy as np
    >>> NoPenalty().prox(np.array([3.0, -1.0]), step=1.0)
    array([ 3., -1.])
    """

    def _strengths(self) -> tuple[float, float]:
        return 0.0, 0.0


def _constants(weight: Floats, l1: float, l2: float) -> tuple[Floats, Floats]:
    """What `_shrink` subtracts and divides by."""
    return l1 / weight, 1.0 + l2 / weight


def _shrink(v: Floats, threshold: Floats, divisor: Floats) -> Floats:
    shrunk = np.maximum(np.abs(v) - threshold, 0.0)
    # Adding zero turns -0.0 into 0.0.
    return np.copysign(shrunk, v) / divisor + 0.0


def _l1_minimiser(
    v: Floats, metric: Floats, quadratic: Floats, inverse: Floats, l1: float, l2: float
) -> Floats:
    """Minimise ``l1 ||w||_1 + l2 / 2 ||w||^2 + (w - v)' M (w - v) / 2``, with Q = M + l2 I."""
    # The dual variable is the projection of M v onto a box in the metric of the inverse of Q. For
    # a box guessing works far more often than for a lasso. The inverse may be inaccurate,
    # so the dual solution only determines which coefficients are zero.
    force = metric @ v
    kinks, slopes = (-l1, l1), (-np.inf, 0.0, np.inf)
    dual = PiecewiseQuadratic(inverse, np.zeros_like(v), force, kinks=kinks, slopes=slopes).guess()
    start = _shrink(v, *_constants(metric.diagonal(), l1, l2))
    if dual is not None:
        start = inverse @ (force - dual)
        start[(np.abs(dual) < l1) | (start * dual < 0)] = 0.0
    primal = PiecewiseQuadratic(quadratic, l2 * v, v, kinks=(0.0,), slopes=(-l1, l1))
    return primal.descend(start)
