"""The contract of a penalty."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from scipy import linalg, sparse

Floats = npt.NDArray[np.float64]

# A proximal operator whose step and metric are fixed.
ProximalOperator = Callable[[Floats], Floats]

# Rounding of an operator of a few operations on each coefficient, and of two changes of units.
ENTRYWISE = 2.0**-49

# Beyond this a proximal operator is not certified at all.
LARGEST_ROUNDING = 2.0**-20


class Penalty(ABC):
    """A convex regulariser of the coefficients, the intercept left out.

    It sees only released quantities, so it spends no privacy budget. Penalties are immutable and
    compare by value; strengths are finite and not negative. A penalty acts on each column of
    coefficients separately: the penalty of K columns is the sum of their penalties.
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
    def value(self, coef: Floats) -> float:
        """Penalty of coefficients of shape (p,) or (p, K)."""

    @abstractmethod
    def proximal_operator(self, step: float, metric: Floats | None = None) -> ProximalOperator:
        r"""Proximal operator for one step and one metric, checked and factored once.

        The operator maps v to :math:`\arg\min_w r(w) + \frac{1}{2 \gamma} (w - v)^T M (w - v)`,
        exactly up to rounding. It has no memory: a result depends on its argument alone.

        Parameters
        ----------
        step : float
            Step :math:`\gamma`, in (0, inf).
        metric : ndarray of shape (p,) or (p, p), default=None
            The metric M, used for each column of v: the identity by default, a positive diagonal,
            or a symmetric positive definite matrix. Not to be changed as long as the operator is
            used. A penalty that is zero everywhere looks at the shape of a matrix only.

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

    def prox(self, v: Floats, step: float, metric: Floats | None = None) -> Floats:
        """Proximal operator at one point: ``proximal_operator(step, metric)(v)``."""
        return self.proximal_operator(step, metric)(v)

    def proximal_rounding(self, scale: Floats, condition: float | None = None) -> float:
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
            At most 2**-20. Infinite: nothing is certified, the default.
        """
        return np.inf

    @abstractmethod
    def scaled(self, factor: float) -> Penalty:
        """A penalty of the same kind with every strength times a factor in [0, inf)."""

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


def check_strength(name: str, strength: float) -> None:
    """Refuse a strength that is negative, infinite or NaN."""
    if not 0 <= strength < np.inf:
        raise ValueError(f"Got {name}={strength!r}, expected a float in [0, inf).")


def check_metric(metric: Floats | None) -> None:
    """Refuse what is neither a positive finite diagonal nor a square matrix."""
    if metric is None:
        return
    if metric.ndim not in (1, 2) or metric.shape[0] != metric.shape[-1]:
        raise ValueError(f"Got a metric of shape {metric.shape}, expected (p,) or (p, p).")
    if metric.ndim == 1 and not np.all((metric > 0) & np.isfinite(metric)):
        raise ValueError(
            f"Got a diagonal metric with entries from {metric.min()} to {metric.max()}, "
            "expected floats in (0, inf)."
        )


def factor_matrix(metric: Floats, ridge: float) -> tuple[Floats, Floats]:
    """A symmetric positive definite metric plus a ridge, and the lower Cholesky factor of both."""
    if not linalg.issymmetric(metric, rtol=1e-8, atol=1e-12 * np.abs(metric).max(initial=0.0)):
        raise ValueError("Got a metric that is not symmetric and finite, expected M == M.T.")
    quadratic = metric.copy()
    quadratic.flat[:: len(metric) + 1] += ridge
    try:
        return quadratic, linalg.cholesky(quadratic, lower=True)
    except linalg.LinAlgError:
        raise ValueError(
            "Got a metric that is not positive definite, expected a positive definite matrix. "
            "Add a small multiple of the identity to it."
        ) from None


def as_columns(v: Floats, size: int) -> Floats:
    """View of a point of shape (p,) or (p, K) as columns, on each of which a matrix acts."""
    check_height(len(v), size)
    return v.reshape(size, -1)


def as_weights(v: Floats, metric: Floats | None) -> Floats:
    """A diagonal metric, ones by default, shaped so that it broadcasts against a point."""
    if metric is None:
        return np.ones((1,) * v.ndim)
    check_height(len(v), len(metric))
    return metric.reshape((-1,) + (1,) * (v.ndim - 1))


def check_height(n_features: int, expected: int) -> None:
    """Refuse a point or a metric for another number of features."""
    if n_features != expected:
        raise ValueError(
            f"Got {n_features} coefficients, expected {expected}: as many as the metric or the"
            " matrix has columns."
        )
