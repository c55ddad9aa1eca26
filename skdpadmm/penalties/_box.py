"""Bounds of the coefficients."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ._penalty import FloatArray, Penalty, ProximalOperator, check_strength, solver_rounding
from ._prox import box_operator

_SLACK = 1e-12
"""Excess over a bound, relative to it, that counts as rounding."""


@dataclass(frozen=True)
class Box(Penalty):
    r"""Bounds on every coefficient: 0 where :math:`l \le w_j \le u` for all j, otherwise infinite.

    Bounds are in the user's units, and the same for all coefficients. Multiplying the penalty by a
    factor changes nothing.

    Parameters
    ----------
    lower : float
        The bound l, in [-inf, inf).
    upper : float
        The bound u, in (-inf, inf], at least `lower`.

    Raises
    ------
    ValueError
        If a bound is outside its range, or `lower` is above `upper`.

    Examples
    --------
    >>> import numpy as np
    >>> Box(lower=0.0, upper=1.0).prox(np.array([3.0, 0.2, -0.5]), step=1.0)
    array([1. , 0.2, 0. ])
    >>> Box(lower=0.0, upper=1.0).value(np.array([3.0, 0.2, -0.5]))
    inf
    """

    lower: float
    upper: float

    def __post_init__(self) -> None:
        """Refuse bounds that no coefficient can meet."""
        if not (self.lower <= self.upper and self.lower < np.inf and self.upper > -np.inf):
            raise ValueError(
                f"Got lower={self.lower!r} and upper={self.upper!r}, expected lower <= upper, "
                "lower below inf and upper above -inf."
            )

    @property
    def strong_convexity(self) -> float:
        """0."""
        return 0.0

    def value(self, coef: FloatArray) -> float:
        """See :meth:`Penalty.value`; what exceeds a bound by 1e-12 of it is rounding, and is 0."""
        return _indicator(coef, self.lower, self.upper)

    def proximal_operator(self, step: float, metric: FloatArray | None = None) -> ProximalOperator:
        """See :meth:`Penalty.proximal_operator`; the projection in the metric, for any step."""
        return box_operator(step, metric, self.lower, self.upper)

    def proximal_rounding(self, scale: FloatArray, condition: float | None = None) -> float:
        """See :meth:`Penalty.proximal_rounding`; units do not count."""
        return solver_rounding(len(scale), condition)

    def scaled(self, factor: float) -> Box:
        """See :meth:`Penalty.scaled`; the same bounds."""
        check_strength("factor", factor)
        return self


@dataclass(frozen=True)
class NonNegative(Penalty):
    """No coefficient below zero: 0 where all are at least 0, otherwise infinite.

    The same as ``Box(0.0, inf)``. Multiplying the penalty by a factor changes nothing.

    Examples
    --------
    >>> import numpy as np
    >>> NonNegative().prox(np.array([3.0, -0.5]), step=1.0)
    array([3., 0.])
    """

    @property
    def strong_convexity(self) -> float:
        """0."""
        return 0.0

    def value(self, coef: FloatArray) -> float:
        """See :meth:`Penalty.value`; 0 or inf."""
        return _indicator(coef, 0.0, np.inf)

    def proximal_operator(self, step: float, metric: FloatArray | None = None) -> ProximalOperator:
        """See :meth:`Penalty.proximal_operator`; the projection in the metric, for any step."""
        return box_operator(step, metric, 0.0, np.inf)

    def proximal_rounding(self, scale: FloatArray, condition: float | None = None) -> float:
        """See :meth:`Penalty.proximal_rounding`; units do not count."""
        return solver_rounding(len(scale), condition)

    def scaled(self, factor: float) -> NonNegative:
        """See :meth:`Penalty.scaled`; the same penalty."""
        check_strength("factor", factor)
        return self


def _indicator(coef: FloatArray, lower: float, upper: float) -> float:
    # A change of units and back may cost a coefficient at a bound its last bits.
    low, high = lower - _SLACK * abs(lower), upper + _SLACK * abs(upper)
    return 0.0 if bool(((low <= coef) & (coef <= high)).all()) else np.inf
