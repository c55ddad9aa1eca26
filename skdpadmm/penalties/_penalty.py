"""The contract of a penalty."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
"""What every method takes and returns."""


class Penalty(ABC):
    """A convex regulariser of the coefficients, the intercept left out.

    It sees released quantities only, so it costs no privacy. Penalties are immutable and compare
    by value; strengths are finite and not negative.
    """

    @property
    @abstractmethod
    def strong_convexity(self) -> float:
        """Largest m for which the penalty minus ``m / 2 * ||w||^2`` is still convex."""

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
    def prox(self, v: FloatArray, step: float, metric: FloatArray | None = None) -> FloatArray:
        r"""Proximal operator in a metric.

        Solves :math:`\min_w r(w) + \frac{1}{2 \gamma} (w - v)^T M (w - v)`, exactly up to rounding.

        Parameters
        ----------
        v : ndarray of shape (p,) or (p, K)
            Point.
        step : float
            Step :math:`\gamma`, in (0, inf).
        metric : ndarray of shape (p,) or (v.size, v.size), default=None
            The metric M: the identity by default, a positive diagonal used for each column of `v`,
            or a symmetric positive definite matrix for ``v.ravel()``.

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

    @abstractmethod
    def scaled(self, factor: float) -> Penalty:
        """Penalty times a factor.

        Parameters
        ----------
        factor : float
            Factor of every strength, in [0, inf).

        Returns
        -------
        Penalty
            A penalty of the same kind.
        """


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
