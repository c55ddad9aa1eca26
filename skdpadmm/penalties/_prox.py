"""Proximal operators in a metric: of the elastic net, its special cases, and of bounds."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
from scipy import linalg

from ._metric import (
    as_columns,
    as_weights,
    check_diagonal,
    check_shape,
    check_step,
    factor_matrix,
)
from ._penalty import FloatArray, ProximalOperator
from ._piecewise import PiecewiseLinear, descend, guess


def elastic_net_operator(
    step: float, metric: FloatArray | None, *, l1: float, l2: float
) -> ProximalOperator:
    """Minimise ``l1 ||w||_1 + l2 / 2 ||w||^2 + (w - v)' M (w - v) / (2 step)`` for any v.

    Parameters
    ----------
    step : float
        Step, in (0, inf).
    metric : None, or ndarray of shape (p,) or (m, m)
        The metric M: identity, positive diagonal, or symmetric positive definite. If both
        strengths are 0, the values of a matrix do not matter and are not looked at.
    l1, l2 : float
        Strengths, in [0, inf).

    Returns
    -------
    callable
        Maps v to the minimiser.

    Raises
    ------
    ValueError
        If `step` or `metric` is not as described.
    """
    check_step(step)
    l1, l2 = step * l1, step * l2
    if metric is None or metric.ndim == 1:
        if metric is not None:
            check_diagonal(metric)

        def shrink(v: FloatArray) -> FloatArray:
            weight = as_weights(v, metric)
            shrunk = np.maximum(np.abs(v) - l1 / weight, 0.0)
            # Adding zero turns -0.0 into 0.0.
            return np.copysign(shrunk, v) / (1.0 + l2 / weight) + 0.0

        return shrink
    check_shape(metric)
    if l1 == l2 == 0:
        size = len(metric)

        def copy(v: FloatArray) -> FloatArray:
            return as_columns(v, size).reshape(v.shape).copy()

        return copy
    quadratic, factor = factor_matrix(metric, l2)
    if l1 == 0:

        def solve(v: FloatArray) -> FloatArray:
            columns = as_columns(v, len(factor))
            # Written as a correction of the point, which is exact where nothing is to be corrected.
            change = l2 * linalg.cho_solve((factor, True), columns, check_finite=False)
            return (columns - change).reshape(v.shape)

        return solve
    inverse = linalg.cho_solve((factor, True), np.eye(len(factor)), check_finite=False)
    inverse = 0.5 * (inverse + inverse.T)

    def threshold(v: FloatArray) -> FloatArray:
        columns = as_columns(v, len(metric))
        return _each(lambda w: _l1_minimiser(w, metric, quadratic, inverse, l1, l2), columns, v)

    return threshold


def _l1_minimiser(
    v: FloatArray,
    metric: FloatArray,
    quadratic: FloatArray,
    inverse: FloatArray,
    l1: float,
    l2: float,
) -> FloatArray:
    """Minimise ``l1 ||w||_1 + l2 / 2 ||w||^2 + (w - v)' M (w - v) / 2``, with Q = M + l2 I."""
    # The dual variable is the projection of M v onto a box in the metric of the inverse of Q. For
    # a box guessing works far more often than for a lasso. Rounding in the inverse may cost digits,
    # so the dual solution only says which coefficients are zero.
    force = metric @ v
    dual = guess(inverse, np.zeros_like(v), _walls(-l1, l1), force)
    if dual is None:
        near = _coordinate_descent(quadratic, force, l1)
    else:
        near = inverse @ (force - dual)
        near[(np.abs(dual) < l1) | (near * dual < 0)] = 0.0
    pieces = PiecewiseLinear(kinks=(0.0,), slopes=(-l1, l1))
    return descend(quadratic, l2 * v, pieces, v, start=near)


def _coordinate_descent(quadratic: FloatArray, force: FloatArray, l1: float) -> FloatArray:
    """Approximate minimiser of ``w'Qw / 2 - force'w + l1 ||w||_1`` by scikit-learn."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import Lasso

    # The Cholesky factor is a design of p rows; Lasso divides the squares by that number.
    factor = linalg.cholesky(quadratic, lower=True, check_finite=False)
    response = linalg.solve_triangular(factor, force, lower=True, check_finite=False)
    model = Lasso(alpha=l1 / force.size, fit_intercept=False, tol=1e-8, max_iter=1000)
    with warnings.catch_warnings():
        # It stalls on ill-conditioned metrics: a start is all that is asked of it.
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(factor.T, response)
    coef: FloatArray = np.asarray(model.coef_, dtype=np.float64)
    return coef


def _each(
    solve: Callable[[FloatArray], FloatArray], columns: FloatArray, v: FloatArray
) -> FloatArray:
    """Solve for each column alone and give the result the shape of the point."""
    solutions = [solve(np.ascontiguousarray(column)) for column in columns.T]
    return np.stack(solutions, axis=1).reshape(v.shape)


def box_operator(
    step: float, metric: FloatArray | None, lower: float, upper: float
) -> ProximalOperator:
    """Project onto a box in the norm of a metric: minimise ``(w - v)' M (w - v)`` within it.

    Parameters
    ----------
    step : float
        Step, in (0, inf), without influence.
    metric : None, or ndarray of shape (p,) or (m, m)
        The metric M: identity, positive diagonal, or symmetric positive definite.
    lower, upper : float
        Bounds of each coefficient, ``lower <= upper``; -inf and inf where there is none.

    Returns
    -------
    callable
        Maps v to its projection.

    Raises
    ------
    ValueError
        If `step` or `metric` is not as described.
    """
    check_step(step)
    if metric is None or metric.ndim == 1:
        if metric is not None:
            check_diagonal(metric)

        def clip(v: FloatArray) -> FloatArray:
            as_weights(v, metric)
            return np.clip(v, lower, upper)

        return clip
    check_shape(metric)
    quadratic, _ = factor_matrix(metric, 0.0)
    pieces, zeros = _walls(lower, upper), np.zeros(len(metric))

    def solve(v: FloatArray) -> FloatArray:
        guessed = guess(quadratic, zeros, pieces, v)
        if guessed is not None:
            return np.clip(guessed, lower, upper)
        return descend(quadratic, zeros, pieces, v, start=np.clip(v, lower, upper))

    def project(v: FloatArray) -> FloatArray:
        columns = as_columns(v, len(quadratic))
        return _each(solve, columns, v)

    return project


def _walls(lower: float, upper: float) -> PiecewiseLinear:
    """The indicator of an interval."""
    if lower == upper:
        return PiecewiseLinear(kinks=(lower,), slopes=(-np.inf, np.inf))
    kinks, slopes = [], [0.0]
    if lower > -np.inf:
        kinks.append(lower)
        slopes.insert(0, -np.inf)
    if upper < np.inf:
        kinks.append(upper)
        slopes.append(np.inf)
    return PiecewiseLinear(kinks=tuple(kinks), slopes=tuple(slopes))
