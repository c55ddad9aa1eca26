"""What a proximal operator checks of its step and metric, once for all points."""

from __future__ import annotations

import numpy as np
from scipy import linalg

from ._penalty import FloatArray


def check_step(step: float) -> None:
    """Refuse a step that is not positive and finite.

    Parameters
    ----------
    step : float
        The step.

    Raises
    ------
    ValueError
        If `step` is outside (0, inf).
    """
    if not 0 < step < np.inf:
        raise ValueError(f"Got step={step!r}, expected a float in (0, inf).")


def check_diagonal(metric: FloatArray) -> None:
    """Refuse a diagonal that is not positive and finite.

    Parameters
    ----------
    metric : ndarray of shape (p,)
        The diagonal.

    Raises
    ------
    ValueError
        If an entry is outside (0, inf).
    """
    if not np.all((metric > 0) & np.isfinite(metric)):
        raise ValueError(
            f"Got a diagonal metric with entries from {metric.min()} to {metric.max()}, "
            "expected floats in (0, inf)."
        )


def check_shape(metric: FloatArray) -> None:
    """Refuse what is neither a diagonal nor a square matrix.

    Parameters
    ----------
    metric : ndarray
        The metric.

    Raises
    ------
    ValueError
        If the shape is neither (p,) nor (p, p).
    """
    if metric.ndim not in (1, 2) or metric.shape[0] != metric.shape[-1]:
        raise ValueError(f"Got a metric of shape {metric.shape}, expected (p,) or (p, p).")


def factor_matrix(metric: FloatArray, ridge: float) -> tuple[FloatArray, FloatArray]:
    """Add a ridge to a metric and factor it.

    Parameters
    ----------
    metric : ndarray of shape (m, m)
        The metric.
    ridge : float
        What is added to its diagonal, at least 0.

    Returns
    -------
    tuple of two ndarrays of shape (m, m)
        The sum and its lower Cholesky factor.

    Raises
    ------
    ValueError
        If the metric has infinite or missing entries, is not symmetric, or the sum is not positive
        definite.
    """
    size = np.abs(metric)
    largest = size.max(initial=0.0)
    if not largest < np.inf:
        raise ValueError("Got a metric with infinite or missing entries, expected finite floats.")
    size *= 1e-8
    size += 1e-12 * largest
    if not (np.abs(metric - metric.T) <= size).all():
        raise ValueError("Got a metric that is not symmetric, expected M == M.T.")
    quadratic = metric.copy()
    quadratic.flat[:: len(metric) + 1] += ridge
    try:
        return quadratic, linalg.cholesky(quadratic, lower=True, check_finite=False)
    except linalg.LinAlgError:
        raise ValueError(
            "Got a metric that is not positive definite, expected a positive definite matrix. "
            "Add a small multiple of the identity to it."
        ) from None


def as_columns(v: FloatArray, size: int) -> FloatArray:
    """The points on which a matrix acts: all of `v` as one column, or each column of `v`.

    Parameters
    ----------
    v : ndarray of shape (p,) or (p, K)
        Point.
    size : int
        Number of rows of the matrix.

    Returns
    -------
    ndarray of shape (size, n_columns)
        A view.

    Raises
    ------
    ValueError
        If `size` is neither p nor ``v.size``.
    """
    if v.size == size:
        return v.reshape(size, 1)
    if v.shape[0] == size:
        return v
    raise _misfit((size, size), v)


def as_weights(v: FloatArray, metric: FloatArray | None) -> FloatArray:
    """A diagonal metric, shaped so that it broadcasts against a point.

    Parameters
    ----------
    v : ndarray of shape (p,) or (p, K)
        Point.
    metric : ndarray of shape (p,) or None
        The diagonal, ones by default.

    Returns
    -------
    ndarray of shape (p,), (p, 1), (1,) or (1, 1)
        The weights.

    Raises
    ------
    ValueError
        If the diagonal does not have the length of the point.
    """
    if metric is None:
        return np.ones((1,) * v.ndim)
    if metric.shape != v.shape[:1]:
        raise _misfit(metric.shape, v)
    return metric.reshape((-1,) + (1,) * (v.ndim - 1))


def _misfit(shape: tuple[int, ...], v: FloatArray) -> ValueError:
    p = v.shape[0]
    expected = f"({p},), ({p}, {p}) or ({v.size}, {v.size})"
    return ValueError(f"Got a metric of shape {shape}, expected {expected}.")
