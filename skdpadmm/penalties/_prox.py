"""The proximal operator of the elastic net in a metric, of which every penalty is a case."""

from __future__ import annotations

import warnings

import numpy as np
from scipy import linalg

from ._penalty import FloatArray


def elastic_net_prox(
    v: FloatArray, step: float, metric: FloatArray | None, *, l1: float, l2: float
) -> FloatArray:
    """Minimise ``l1 ||w||_1 + l2 / 2 ||w||^2 + (w - v)' M (w - v) / (2 step)``.

    Parameters
    ----------
    v : ndarray of shape (p,) or (p, K)
        Point.
    step : float
        Step, in (0, inf).
    metric : None, or ndarray of shape (p,) or (v.size, v.size)
        The metric M: identity, positive diagonal, or symmetric positive definite.
    l1, l2 : float
        Strengths, in [0, inf).

    Returns
    -------
    ndarray in the shape of `v`
        The minimiser.

    Raises
    ------
    ValueError
        If `step` or `metric` is not as described.
    """
    if not 0 < step < np.inf:
        raise ValueError(f"Got step={step!r}, expected a float in (0, inf).")
    l1, l2 = step * l1, step * l2
    if metric is None or metric.ndim == 1:
        weight = _diagonal(v, metric)
        shrunk = np.maximum(np.abs(v) - l1 / weight, 0.0)
        # Adding zero turns -0.0 into 0.0.
        return np.copysign(shrunk, v) / (1.0 + l2 / weight) + 0.0
    _check_matrix(v, metric)
    point = v.ravel()
    quadratic = metric + l2 * np.eye(v.size)
    try:
        factor = linalg.cholesky(quadratic, lower=True)
    except linalg.LinAlgError:
        raise ValueError(
            "Got a metric that is not positive definite, expected a positive definite matrix. "
            "Add a small multiple of the identity to it."
        ) from None
    # Written as a correction of the point, which is exact where there is nothing to correct.
    ridge = point - l2 * linalg.cho_solve((factor, True), point)
    solution = ridge if l1 == 0 else _l1_quadratic(quadratic, factor, ridge, metric @ point, l1)
    return solution.reshape(v.shape)


def _diagonal(v: FloatArray, metric: FloatArray | None) -> FloatArray:
    """Weights of the coefficients that broadcast against v."""
    if metric is None:
        return np.ones((1,) * v.ndim)
    if metric.shape != v.shape[:1]:
        raise ValueError(
            f"Got a metric of shape {metric.shape}, "
            f"expected ({v.shape[0]},) or ({v.size}, {v.size})."
        )
    if not np.all((metric > 0) & np.isfinite(metric)):
        raise ValueError(
            f"Got a diagonal metric with entries from {metric.min()} to {metric.max()}, "
            "expected floats in (0, inf)."
        )
    return metric.reshape((-1,) + (1,) * (v.ndim - 1))


def _check_matrix(v: FloatArray, metric: FloatArray) -> None:
    if metric.shape != (v.size, v.size):
        raise ValueError(
            f"Got a metric of shape {metric.shape}, "
            f"expected ({v.shape[0]},) or ({v.size}, {v.size})."
        )
    if not np.isfinite(metric).all():
        raise ValueError("Got a metric with infinite or missing entries, expected finite floats.")
    if not np.allclose(metric, metric.T, rtol=1e-8, atol=1e-12 * np.abs(metric).max()):
        raise ValueError("Got a metric that is not symmetric, expected M == M.T.")


def _l1_quadratic(
    quadratic: FloatArray, factor: FloatArray, ridge: FloatArray, linear: FloatArray, l1: float
) -> FloatArray:
    """Minimise ``w'Qw / 2 - c'w + l1 ||w||_1``: coordinate descent, then an exact active set.

    `factor` is the lower Cholesky factor of Q and `ridge` the solution of ``Q w = c``.
    """
    # Coordinate descent stalls on ill-conditioned metrics, so it only supplies the start.
    solution = _coordinate_descent(factor, ridge, l1)
    # What rounding leaves of a gradient is not a reason to go on.
    rounding = (np.abs(quadratic) @ np.abs(ridge)).max()
    tolerance = 1e-11 * (np.abs(linear).max() + l1) + 1e-14 * rounding
    # Each round ends at the minimiser of a sign pattern that is not met again. The cap is a guard
    # against cycles among rounding errors.
    for _ in range(10 * linear.size + 100):
        solution = _minimise_on_signs(quadratic, linear, l1, solution)
        excess = np.where(solution == 0, np.abs(quadratic @ solution - linear) - l1, -np.inf)
        worst = int(np.argmax(excess))
        if excess[worst] <= tolerance:
            break
        signs = np.sign(solution)
        signs[worst] = np.sign((linear - quadratic @ solution)[worst])
        solution = _towards(quadratic, linear, l1, solution, signs)
    return solution


def _minimise_on_signs(
    quadratic: FloatArray, linear: FloatArray, l1: float, solution: FloatArray
) -> FloatArray:
    """Go to the minimiser among the present signs, dropping the coefficients that reach zero."""
    while True:
        signs = np.sign(solution)
        solution = _towards(quadratic, linear, l1, solution, signs)
        if np.array_equal(np.sign(solution), signs):
            return solution


def _towards(
    quadratic: FloatArray,
    linear: FloatArray,
    l1: float,
    solution: FloatArray,
    signs: FloatArray,
) -> FloatArray:
    """Move to the minimiser for given signs, or as far as the first coefficient to reach zero."""
    support = np.flatnonzero(signs)
    if support.size == 0:
        return np.zeros_like(solution)
    inner = quadratic[np.ix_(support, support)]
    right = linear[support] - l1 * signs[support]
    target = linalg.cho_solve(linalg.cho_factor(inner, lower=True), right)
    current = solution[support]
    leaving = target * signs[support] <= 0
    # A coefficient that enters from zero and would leave at once has a share of 0.
    share = np.where(leaving, 0.0, 1.0)
    np.divide(current, current - target, out=share, where=leaving & (current != target))
    first = share.min()
    moved = target if first == 1.0 else current + first * (target - current)
    moved[leaving & (share == first)] = 0.0
    result = np.zeros_like(solution)
    result[support] = moved
    return result


def _coordinate_descent(factor: FloatArray, ridge: FloatArray, l1: float) -> FloatArray:
    """Approximate minimiser by scikit-learn, on the Cholesky factor as a design of p rows."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import Lasso

    # Lasso divides the squares by the number of rows.
    model = Lasso(alpha=l1 / ridge.size, fit_intercept=False, tol=1e-8, max_iter=1000)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(factor.T, factor.T @ ridge)
    coef: FloatArray = np.asarray(model.coef_, dtype=np.float64)
    return coef
