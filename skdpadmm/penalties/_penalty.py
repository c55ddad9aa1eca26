"""The contract of a penalty."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from scipy import sparse

FloatArray = npt.NDArray[np.float64]
"""What every method takes and returns."""

ProximalOperator = Callable[[FloatArray], FloatArray]
"""A proximal operator whose step and metric are fixed."""

ENTRYWISE = 2.0**-49
"""Rounding of an operator of a few operations on each coefficient, and of two changes of units."""

LARGEST_ROUNDING = 2.0**-20
"""Beyond this a proximal operator is not certified at all."""


class Penalty(ABC):
    """A convex regulariser of the coefficients, the intercept left out.

    It sees released quantities only, so it costs no privacy. Penalties are immutable and compare
    by value; strengths are finite and not negative. They act on each column of coefficients alone:
    the penalty of K columns is the sum of their penalties.
    """

    @property
    @abstractmethod
    def strong_convexity(self) -> float:
        """Largest m for which the penalty minus ``m / 2 * ||w||^2`` is still convex."""

    @property
    def is_sparse(self) -> bool:
        """Whether its proximal operator sets single coefficients to zero, one by one."""
        return False

    @abstractmethod
    def value(self, coef: FloatArray) -> float:
        """Penalty of the coefficients.

        Parameters
        ----------
        coef : ndarray of shape (p,) or (p, K)
            Coefficients.

        Returns
        -------
        float
            The penalty.
        """

    @abstractmethod
    def proximal_operator(self, step: float, metric: FloatArray | None = None) -> ProximalOperator:
        r"""Proximal operator for one step and one metric, checked and factored once.

        The operator maps v to :math:`\arg\min_w r(w) + \frac{1}{2 \gamma} (w - v)^T M (w - v)`,
        exactly up to rounding. It has no memory: a result depends on its argument alone.

        Parameters
        ----------
        step : float
            Step :math:`\gamma`, in (0, inf).
        metric : ndarray of shape (p,), (p, p) or (p * K, p * K), default=None
            The metric M: the identity by default; a positive diagonal or a symmetric positive
            definite matrix, used for each column of v; or one for ``v.ravel()``, which couples the
            columns. Not to be changed as long as the operator is used. A penalty that is zero
            everywhere looks at the shape of a matrix only.

        Returns
        -------
        callable
            Maps an ndarray of shape (p,) or (p, K) to a new one of the same shape. Raises a
            ValueError if that shape does not suit the metric.

        Raises
        ------
        ValueError
            If `step` is outside (0, inf), or `metric` has another shape, is not symmetric or not
            positive definite.
        """

    def prox(self, v: FloatArray, step: float, metric: FloatArray | None = None) -> FloatArray:
        r"""Proximal operator at one point: ``proximal_operator(step, metric)(v)``.

        Parameters
        ----------
        v : ndarray of shape (p,) or (p, K)
            Point.
        step : float
            Step :math:`\gamma`, in (0, inf).
        metric : ndarray of shape (p,), (p, p) or (v.size, v.size), default=None
            The metric M, see :meth:`proximal_operator`.

        Returns
        -------
        ndarray in the shape of `v`
            The minimiser.

        Raises
        ------
        ValueError
            If `step` is outside (0, inf), or `metric` has another shape, is not symmetric or not
            positive definite.
        """
        return self.proximal_operator(step, metric)(v)

    def proximal_rounding(self, scale: FloatArray, condition: float | None = None) -> float:
        r"""Bound of the relative rounding error of the proximal operator, for any step.

        Let M be a metric with the norm :math:`\|\cdot\|_M`, and w the operator's exact value at v.
        The computed one is within ``proximal_rounding * (|v|_M + |w|_M)`` of it. So computed
        values at two points are as far apart as the points are, at most, but for twice as much:
        the operator is non-expansive to rounding.

        Parameters
        ----------
        scale : ndarray of shape (p,)
            Units of the coefficients, positive: in these units M is the identity, or has the
            condition number `condition`.
        condition : float, default=None
            None: M is diagonal, ``scale ** -2``.

        Returns
        -------
        float
            At most 2**-20. Infinite: nothing is certified, as for a penalty that does not say.
        """
        return np.inf

    @abstractmethod
    def scaled(self, factor: float) -> Penalty:
        """Penalty times a factor.

        Parameters
        ----------
        factor : float
            Factor of every strength, in [0, inf). A constraint has none: it stays as it is.

        Returns
        -------
        Penalty
            A penalty of the same kind.
        """

    def splitting(self) -> tuple[sparse.csr_array[np.float64] | None, Penalty]:
        """The penalty as a simple one of a linear image: ``simple.value(matrix @ w)``.

        Returns
        -------
        matrix : csr_array of shape (m, p) or None
            Of full row rank; None is the identity.
        simple : Penalty
            One whose proximal operator is cheap.
        """
        return None, self


def certified(rounding: float) -> float:
    """A bound of rounding that is small enough to mean something, else infinity."""
    return rounding if rounding <= LARGEST_ROUNDING else np.inf


def solver_rounding(size: int, condition: float | None) -> float:
    """Rounding of operators of single coefficients, which take a linear system in a full metric.

    A Cholesky factor does not depend on the units of the coefficients, up to powers of two, so
    units do not count. The system of the coefficients that rest at no kink is solved with a
    residual of about `size` units in the last place.
    """
    return ENTRYWISE if condition is None else certified(ENTRYWISE * (8 + size) * condition)


def check_strength(name: str, strength: float) -> None:
    """Refuse a strength that is negative, infinite or NaN.

    Parameters
    ----------
    name : str
        Name of the parameter.
    strength : float
        Its value.

    Raises
    ------
    ValueError
        If `strength` is outside [0, inf).
    """
    if not 0 <= strength < np.inf:
        raise ValueError(f"Got {name}={strength!r}, expected a float in [0, inf).")
