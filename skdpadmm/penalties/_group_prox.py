"""The proximal operator of a sum of Euclidean norms in a metric."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt
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

_Scalar = TypeVar("_Scalar", bound=np.generic)

IntArray = npt.NDArray[np.intp]

_EPSILON = float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class GroupIndex:
    """Groups of coefficients, put side by side so that sums over groups are one call.

    Parameters
    ----------
    order : ndarray of shape (p,)
        The coefficients, group after group.
    starts : ndarray of shape (n_groups,)
        Where each group starts.
    sizes : ndarray of shape (n_groups,)
        How many coefficients each group has.
    weights : ndarray of shape (n_groups,)
        Square root of the number of features of each group.
    """

    order: IntArray
    starts: IntArray
    sizes: IntArray
    weights: FloatArray

    @classmethod
    def of(cls, groups: tuple[tuple[int, ...], ...]) -> GroupIndex:
        """Index of groups that are a partition of the features."""
        sizes = np.array([len(group) for group in groups], dtype=np.intp)
        order = np.array([i for group in groups for i in group], dtype=np.intp)
        return cls(order, np.cumsum(sizes) - sizes, sizes, np.sqrt(sizes))

    def per_column(self, n_columns: int) -> GroupIndex:
        """Index of the groups of a raveled array with several columns, one group per column."""
        parts = np.split(self.order, self.starts[1:])
        order = [part * n_columns + k for part in parts for k in range(n_columns)]
        sizes = np.repeat(self.sizes, n_columns)
        weights = np.repeat(self.weights, n_columns)
        return GroupIndex(np.concatenate(order), np.cumsum(sizes) - sizes, sizes, weights)

    def check(self, v: FloatArray) -> None:
        """Refuse a point with another number of features."""
        if len(v) != self.order.size:
            raise ValueError(
                f"Got {len(v)} coefficients, expected {self.order.size}: as many as `groups` has "
                "features."
            )

    def sums(self, ordered: FloatArray) -> FloatArray:
        """Sum over each group."""
        total: FloatArray = np.add.reduceat(ordered, self.starts, axis=0)
        return total

    def norms(self, ordered: FloatArray) -> FloatArray:
        """Euclidean norm of each group."""
        return np.sqrt(self.sums(np.square(ordered)))

    def spread(self, values: npt.NDArray[_Scalar]) -> npt.NDArray[_Scalar]:
        """Give every coefficient the value of its group."""
        return np.repeat(values, self.sizes, axis=0)


def group_operator(
    step: float, metric: FloatArray | None, strength: float, index: GroupIndex
) -> ProximalOperator:
    """Minimise ``strength * sum_g sqrt|g| ||w_g|| + (w - v)' M (w - v) / (2 step)`` for any v.

    Parameters
    ----------
    step : float
        Step, in (0, inf).
    metric : None, or ndarray of shape (p,), (p, p) or (p * K, p * K)
        The metric M: identity, positive diagonal, or symmetric positive definite. At strength 0
        the values of a matrix do not matter and are not looked at.
    strength : float
        The strength, in [0, inf).
    index : GroupIndex
        The groups of the p features.

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
    p = index.order.size
    if metric is None or metric.ndim == 1:
        if metric is not None:
            check_diagonal(metric)
        return _diagonal_operator(metric, step * strength, index)
    check_shape(metric)
    n_columns, rest = divmod(len(metric), p)
    if rest or not n_columns:
        raise ValueError(
            f"Got a metric of shape {metric.shape}, expected a multiple of the {p} features of "
            "`groups`."
        )
    joint = index.per_column(n_columns)
    if strength > 0:
        solver = _GroupSolver(factor_matrix(metric, 0.0)[0], step * strength, joint)

    def apply(v: FloatArray) -> FloatArray:
        index.check(v)
        columns = as_columns(v, len(metric))
        if strength == 0:
            return v.copy()
        solutions = [solver.solve(column) for column in columns.T]
        return np.stack(solutions, axis=1).reshape(v.shape)

    return apply


def _diagonal_operator(
    metric: FloatArray | None, strength: float, index: GroupIndex
) -> ProximalOperator:
    levels = strength * index.weights[:, None]

    def shrink(v: FloatArray) -> FloatArray:
        index.check(v)
        weight = as_weights(v, metric)
        if strength == 0:
            return v.copy()
        columns = v.reshape(len(v), -1)[index.order]
        weights = np.broadcast_to(weight.reshape(len(weight), -1), (len(v), 1))[index.order]
        result = np.empty_like(columns)
        factors = _shrinkage(weights, weights * columns, levels, index)
        # Adding zero turns -0.0 into 0.0.
        result[index.order] = columns * factors + 0.0
        return result.reshape(v.shape)

    return shrink


def _shrinkage(
    weights: FloatArray, force: FloatArray, levels: FloatArray, index: GroupIndex
) -> FloatArray:
    r"""Factors s in [0, 1) such that y = s b / d solves :math:`d y + \lambda y / \|y\| = b`.

    Parameters
    ----------
    weights : ndarray of shape (m, 1)
        The positive d, group after group.
    force : ndarray of shape (m, n_columns)
        The b of each column.
    levels : ndarray of shape (n_groups, 1)
        The positive :math:`\lambda` of each group.
    index : GroupIndex
        Where the groups are.

    Returns
    -------
    ndarray of shape (m, n_columns)
        The factors, 0 where the norm of b is at most :math:`\lambda`.

    Notes
    -----
    With :math:`\rho = \|y\|` the solution is :math:`y = b \rho / (d \rho + \lambda)`, where
    :math:`\rho` is the root of :math:`1 / \|b / (d \rho + \lambda)\| - 1`. That function is
    increasing and concave, the power mean with exponent -2 of affine functions, so Newton's method
    converges from the left monotonically. If d is constant within the group the first guess is
    exact.
    """
    # In units of the largest force squares neither overflow nor underflow.
    units = np.maximum(np.maximum.reduceat(np.abs(force), index.starts, axis=0), levels)
    force, levels = force / index.spread(units), levels / units
    norms = index.norms(force)
    active = norms > levels
    largest = np.maximum.reduceat(weights, index.starts, axis=0)
    radius = np.where(active, norms - levels, 0.0) / largest
    level = index.spread(levels)
    for _ in range(100):
        denominator = weights * index.spread(radius) + level
        squares = np.square(force / denominator)
        square = index.sums(squares)
        slope = index.sums(squares * (weights / denominator))
        change = np.zeros_like(radius)
        np.divide((np.sqrt(square) - 1.0) * square, slope, out=change, where=active)
        radius = radius + np.maximum(change, 0.0)
        if (change <= 4.0 * _EPSILON * radius).all():
            break
    scaled = weights * index.spread(radius)
    return scaled / (scaled + level)


class _GroupSolver:
    """Minimiser of ``(w - v)' Q (w - v) / 2 + sum_g level_g ||w_g||`` for a fixed matrix Q.

    Coordinate descent over groups finds the groups that are zero, exactly and from anywhere;
    Newton steps on all other groups together converge where coordinate descent would crawl.
    """

    def __init__(self, quadratic: FloatArray, strength: float, index: GroupIndex) -> None:
        self.index = index
        self.quadratic = np.ascontiguousarray(quadratic[np.ix_(index.order, index.order)])
        self.size = np.abs(self.quadratic)
        self.levels = strength * index.weights
        ends = index.starts + index.sizes
        self.blocks = [slice(a, b) for a, b in zip(index.starts, ends, strict=True)]
        self.spectra = [np.linalg.eigh(self.quadratic[block, block]) for block in self.blocks]
        self.alone = [
            GroupIndex(np.arange(n), np.zeros(1, dtype=np.intp), np.array([n]), np.ones(1))
            for n in index.sizes
        ]
        self.group = index.spread(np.arange(len(index.sizes)))

    def solve(self, v: FloatArray) -> FloatArray:
        ordered = v[self.index.order]
        point = best = ordered.copy()
        least = lowest = np.inf
        waited = 0
        # Ends after ten rounds that gain nothing but rounding errors.
        while waited < 10:
            point = self._newton(ordered, self._sweep(ordered, point))
            residual, value = self._residual(ordered, point), self._value(ordered, point)
            if residual < least:
                least, best = residual, point
            if least <= self._rounding(ordered, point):
                break
            waited = 0 if value < lowest - 4.0 * _EPSILON * abs(lowest) else waited + 1
            lowest = min(lowest, value)
        result = np.empty_like(v)
        result[self.index.order] = best
        return result

    def _rounding(self, v: FloatArray, point: FloatArray) -> float:
        """What rounding may leave of a gradient that is zero."""
        sizes = self.size @ (np.abs(v) + np.abs(point))
        return _EPSILON * (float(sizes.max()) + float(self.levels.max()))

    def _value(self, v: FloatArray, point: FloatArray) -> float:
        """The objective."""
        change = point - v
        smooth = 0.5 * change @ self.quadratic @ change
        return float(smooth + self.levels @ self.index.norms(point))

    def _residual(self, v: FloatArray, point: FloatArray) -> float:
        """Largest distance of 0 from the subdifferential of a group."""
        force = self.quadratic @ (v - point)
        norms = self.index.norms(point)
        # Where the point is zero the direction is without meaning, and is replaced.
        unit = point / self.index.spread(np.where(norms > 0, norms, 1.0))
        inside = self.index.norms(force - self.index.spread(self.levels) * unit)
        held = np.maximum(self.index.norms(force) - self.levels, 0.0)
        return float(np.where(norms > 0, inside, held).max())

    def _sweep(self, v: FloatArray, start: FloatArray) -> FloatArray:
        """Minimise over one group after the other."""
        point = start.copy()
        force = self.quadratic @ (v - point)
        for g, block in enumerate(self.blocks):
            current, level = point[block], self.levels[g]
            pull = force[block] + self.quadratic[block, block] @ current
            if pull @ pull <= level * level:
                if not current.any():
                    continue
                new = np.zeros_like(current)
            else:
                values, vectors = self.spectra[g]
                rotated = (vectors.T @ pull)[:, None]
                factors = _shrinkage(
                    values[:, None], rotated, np.full((1, 1), level), self.alone[g]
                )
                new = vectors @ (factors * rotated / values[:, None])[:, 0]
            force -= self.quadratic[:, block] @ (new - current)
            point[block] = new
        return point

    def _newton(self, v: FloatArray, start: FloatArray) -> FloatArray:
        """Newton steps on the groups that are not zero; the objective never climbs."""
        point = start
        for _ in range(50):
            if not point.any() or self._stationary(v, point):
                break
            moved = self._newton_step(v, point)
            if moved is None:
                break
            point = moved
        return point

    def _stationary(self, v: FloatArray, point: FloatArray) -> bool:
        force = self.quadratic @ (v - point)
        norms = self.index.spread(self.index.norms(point))
        levels = self.index.spread(self.levels)
        gradient = (levels * point / np.where(norms > 0, norms, 1.0) - force) * (norms > 0)
        return bool(np.abs(gradient).max() <= 0.25 * self._rounding(v, point))

    def _newton_step(self, v: FloatArray, point: FloatArray) -> FloatArray | None:
        force = self.quadratic @ (v - point)
        norms = self.index.norms(point)
        free = np.flatnonzero(self.index.spread(norms) > 0)
        group = self.group[free]
        unit = point[free] / norms[group]
        bend = self.levels[group] / norms[group]
        inner = self.quadratic[np.ix_(free, free)]
        hessian = inner - (group[:, None] == group) * ((unit * bend)[:, None] * unit)
        hessian.flat[:: len(free) + 1] += bend
        gradient = self.levels[group] * unit - force[free]
        try:
            factor = linalg.cho_factor(hessian, lower=True, check_finite=False)
        except linalg.LinAlgError:
            return None
        direction = -linalg.cho_solve(factor, gradient, check_finite=False)
        # Differences of the objective below this are rounding.
        slack = _EPSILON * (float(np.abs(force) @ np.abs(point - v)) + float(self.levels @ norms))
        change = np.zeros_like(point)
        change[free] = direction

        def rise(candidate: FloatArray) -> float:
            moved = candidate - point
            smooth = 0.5 * moved @ self.quadratic @ moved - force @ moved
            return float(smooth + self.levels @ (self.index.norms(candidate) - norms))

        # A group that would turn round stops at zero, where its norm has its kink.
        for share in (1.0, 0.5, 0.25):
            candidate = point + share * change
            turned = self.index.sums(candidate * point) <= 0
            candidate[self.index.spread(turned)] = 0.0
            if rise(candidate) <= slack:
                return candidate
        # Else all groups stop where the first one does.
        along = self.index.sums(change * point)
        ends = np.full_like(along, np.inf)
        np.divide(-np.square(norms), along, out=ends, where=along < 0)
        share = min(1.0, float(ends.min()))
        candidate = point + share * change
        candidate[self.index.spread(ends <= share)] = 0.0
        for _ in range(30):
            if rise(candidate) < 0:
                return candidate
            share *= 0.5
            candidate = point + share * change
        return None
