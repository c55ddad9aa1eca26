"""The l1 norm of a linear image of the coefficients."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import linalg, sparse

from skdpadmm._numbers import require_positive
from skdpadmm.penalties._elastic_net import L1, NoPenalty
from skdpadmm.penalties._matrix import SparseMatrix, as_matrix, matrix_fingerprint, require_rank
from skdpadmm.penalties._penalty import (
    ENTRYWISE,
    Floats,
    Penalty,
    ProximalOperator,
    as_columns,
    certified,
    check_height,
    check_metric,
    check_strength,
    factor_matrix,
)
from skdpadmm.penalties._piecewise import PiecewiseQuadratic

_ORDERS = {"fused": 1, "trend": 2}


def difference_matrix(n_features: int, order: int) -> SparseMatrix:
    """Finite differences of neighbouring coefficients.

    Parameters
    ----------
    n_features : int
        Number p of coefficients, above `order`.
    order : int
        Order of the differences, at least 1. First differences of constant coefficients are zero,
        and so are second differences of coefficients on a line.

    Returns
    -------
    csr_array of shape (n_features - order, n_features)
        Of full row rank, read-only.

    Raises
    ------
    ValueError
        If `order` is below 1, or not below `n_features`.

    Examples
    --------
    >>> from skdpadmm.penalties import difference_matrix
    >>> difference_matrix(4, order=2).toarray()
    array([[ 1., -2.,  1.,  0.],
           [ 0.,  1., -2.,  1.]])
    """
    n_features, order = operator.index(n_features), operator.index(order)
    if not 1 <= order < n_features:
        raise ValueError(
            f"Got order={order} and n_features={n_features}, expected an order of at least 1 and"
            " below the number of features."
        )
    matrix = sparse.eye_array(n_features, format="csr")
    for _ in range(order):
        matrix = matrix[1:] - matrix[:-1]
    return as_matrix("matrix", matrix)


def named_penalty_matrix(name: str, n_features: int) -> SparseMatrix:
    """The matrix of a penalty that has a name.

    Parameters
    ----------
    name : {"fused", "trend"}
        Differences of order 1, for coefficients that are constant in pieces; or of order 2, for
        coefficients that are on a line in pieces. Another name raises a ValueError.
    n_features : int
        Number p of coefficients, at least 1.

    Returns
    -------
    csr_array of shape (max(n_features - order, 0), n_features)
        Without rows where there are too few features for a difference: nothing is penalised then.

    Examples
    --------
    >>> from skdpadmm.penalties import named_penalty_matrix
    >>> named_penalty_matrix("fused", 3).toarray()
    array([[-1.,  1.,  0.],
           [ 0., -1.,  1.]])
    >>> named_penalty_matrix("fused", 1).shape
    (0, 1)
    """
    if name not in _ORDERS:
        raise ValueError(f"Got name={name!r}, expected one of {list(_ORDERS)}.")
    if n_features <= _ORDERS[name]:
        return as_matrix("matrix", np.empty((0, n_features)), least_rows=0)
    return difference_matrix(n_features, _ORDERS[name])


@dataclass(frozen=True, init=False, repr=False)
class GeneralizedL1(Penalty):
    r"""The generalised lasso's penalty, :math:`r(w) = \lambda \|D w\|_1`.

    With differences of neighbours it is the fused lasso or trend filtering, see
    :func:`difference_matrix`. Two such penalties are equal if their matrices and strengths are,
    dense or sparse. Without rows the penalty is zero everywhere.

    Parameters
    ----------
    matrix : array-like or sparse matrix of shape (m, p)
        The matrix D, of full row rank. A singular value counts as zero up to ``max(m, p)`` times
        2.2e-16 times the largest one. Kept as a sparse, read-only copy.
    strength : float
        The factor :math:`\lambda`, in [0, inf).

    Attributes
    ----------
    fingerprint : str
        SHA-256 of the matrix.

    Raises
    ------
    ValueError
        If `strength` is outside [0, inf), or `matrix` is no matrix, has no columns, has entries
        that are not finite, or does not have full row rank.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpadmm.penalties import GeneralizedL1, difference_matrix
    >>> fused = GeneralizedL1(difference_matrix(4, order=1), strength=1.0)
    >>> fused
    GeneralizedL1(matrix of shape (3, 4), strength=1.0)
    >>> fused.value(np.array([1.0, 1.0, 3.0, 3.0]))
    2.0
    >>> fused.prox(np.array([0.0, 1.0, 5.0, 6.0]), step=1.0).round(12)
    array([1., 1., 5., 5.])
    """

    matrix: SparseMatrix = field(compare=False)
    strength: float
    fingerprint: str = field(init=False)

    def __init__(self, matrix: Any, strength: float) -> None:
        check_strength("strength", strength)
        kept = as_matrix("matrix", matrix, least_rows=0)
        remedy = "Remove rows that are combinations of others."
        require_rank("a matrix", kept, int(kept.shape[0]), remedy)
        object.__setattr__(self, "matrix", kept)
        object.__setattr__(self, "strength", strength)
        object.__setattr__(self, "fingerprint", matrix_fingerprint(kept))

    @property
    def strong_convexity(self) -> float:
        """0."""
        return 0.0

    def value(self, coef: Floats) -> float:
        check_height(len(coef), self.matrix.shape[1])
        return float(self.strength * np.abs(np.asarray(self.matrix @ coef)).sum())

    def proximal_operator(self, step: float, metric: Floats | None = None) -> ProximalOperator:
        """See :meth:`Penalty.proximal_operator`; a box-constrained quadratic in m variables.

        Also raises a ValueError where the matrix is so ill-conditioned that the inverse metric
        of its rows is singular up to rounding.
        """
        require_positive(step, "step")
        check_metric(metric)
        p = int(self.matrix.shape[1])
        check_height(p if metric is None else len(metric), p)
        if metric is not None and metric.ndim == 1 and (metric == 1.0).all():
            # The identity has one path through the arithmetic.
            metric = None
        solve: Callable[[Floats], Floats] = np.copy
        if self.strength > 0 and self.matrix.shape[0]:
            solve = _DualSolver(self.matrix.toarray(), metric, step * self.strength).solve

        def apply(v: Floats) -> Floats:
            columns = as_columns(v, p)
            solutions = [solve(np.ascontiguousarray(column)) for column in columns.T]
            return np.stack(solutions, axis=1).reshape(v.shape)

        return apply

    def proximal_rounding(self, scale: Floats, condition: float | None = None) -> float:
        """See :meth:`Penalty.proximal_rounding`; it grows with the condition of D in these units.

        Linearly in the last projection, and squared in the system for the subspace to project on.
        Where rows of D in these units, each brought to length one, are nearly dependent, nothing is
        certified: as for differences of features whose bounds are many decades apart.
        """
        if self.strength == 0 or not self.matrix.shape[0]:
            return ENTRYWISE
        rows = self.matrix.toarray() * (scale / np.max(scale))
        n_rows, p = rows.shape
        largest = np.abs(rows).max(axis=1, keepdims=True)
        if not largest.all():
            return np.inf
        rows = rows / largest
        values = linalg.svdvals(rows / linalg.norm(rows, axis=1, keepdims=True))
        if not values[-1] > 1e-8 * values[0]:
            return np.inf
        spread = float(values[0] / values[-1])
        # Sums of the factored system have as many terms as its rows have within their envelope.
        inner = np.abs(rows) @ np.abs(rows.T) > 0
        width = int((np.arange(n_rows) - inner.argmax(axis=1)).max()) + 1
        if condition is not None:
            width, spread = max(n_rows, p), spread * math.sqrt(condition)
        last, dual = (8 + n_rows + p) * spread, width * (8 + width) * spread**2
        return certified(ENTRYWISE * (1 + (last + dual) / 4))

    def scaled(self, factor: float) -> GeneralizedL1:
        check_strength("factor", factor)
        strength = factor * self.strength
        check_strength("strength", strength)
        # The matrix was checked, which is most of the work.
        scaled = copy(self)
        object.__setattr__(scaled, "strength", strength)
        return scaled

    def splitting(self) -> tuple[SparseMatrix | None, Penalty]:
        """See :meth:`Penalty.splitting`; D and the l1 norm, or no penalty where D has no rows."""
        if not self.matrix.shape[0]:
            return None, NoPenalty()
        return self.matrix, L1(self.strength)

    def __repr__(self) -> str:
        shape = tuple(map(int, self.matrix.shape))
        return f"GeneralizedL1(matrix of shape {shape}, strength={self.strength})"


class _DualSolver:
    r"""Minimiser of :math:`\lambda \|D w\|_1 + (w - v)^T M (w - v) / 2` for fixed D and M.

    The dual is :math:`\min_u u^T D M^{-1} D^T u / 2 - u^T D v` within
    :math:`|u_i| \le \lambda`. Its solution only determines which entries of D w are zero and the
    signs of the others; the minimiser is then that of a smooth problem on a subspace, which is
    accurate to rounding.
    All of it is done in units in which the diagonal of M is near one: only there is a projection
    onto a subspace one in the metric.

    The dual is solved with a residual g of rounding errors. It is strongly convex, so errors in
    :math:`D^T u` are at most :math:`\|g\|` over the least singular value of D, whose rows can have
    any length: `GeneralizedL1.proximal_rounding`.
    """

    def __init__(self, rows: Floats, metric: Floats | None, level: float) -> None:
        self.units: Floats = np.ones(rows.shape[1])
        if metric is not None:
            diagonal = metric if metric.ndim == 1 else metric.diagonal()
            # Powers of two, so that nothing is rounded.
            self.units = np.ldexp(1.0, -(np.frexp(diagonal)[1] // 2))
            rows = rows * self.units
            metric = (
                (metric.T * self.units).T * self.units
                if metric.ndim == 2
                else metric * self.units**2
            )
        self.rows, self.metric, self.level = rows, metric, level
        lifted: Floats
        if metric is None:
            lifted = rows.T
        elif metric.ndim == 1:
            lifted = rows.T / metric[:, None]
        else:
            _, factor = factor_matrix(metric, 0.0)
            lifted = linalg.cho_solve((factor, True), rows.T, check_finite=False)
        quadratic = rows @ lifted
        self.quadratic = 0.5 * (quadratic + quadratic.T)
        try:
            self.factor = linalg.cho_factor(self.quadratic, lower=True, check_finite=False)
        except linalg.LinAlgError:
            raise ValueError(
                "Got a matrix with rows that depend on each other in this metric up to rounding,"
                " expected independent rows. Take differences of a lower order, or fewer features."
            ) from None

    def solve(self, v: Floats) -> Floats:
        """Minimise for one point."""
        v = v / self.units
        # In units of the point, by a power of two, products neither overflow nor underflow.
        _, exponent = np.frexp(np.abs(v).max())
        with np.errstate(over="ignore", under="ignore"):
            level = float(np.ldexp(self.level, -exponent))
        if level == 0:
            return v * self.units
        return self.units * np.ldexp(self._solve(np.ldexp(v, -exponent), level), exponent)

    def _solve(self, v: Floats, level: float) -> Floats:
        force = self.rows @ v
        dual = linalg.cho_solve(self.factor, force, check_finite=False)
        if not (np.abs(dual) <= level).all():
            start = np.clip(dual, -level, level)
            problem = PiecewiseQuadratic(
                self.quadratic,
                -force,
                np.zeros_like(force),
                kinks=(-level, level),
                slopes=(-np.inf, 0.0, np.inf),
            )
            guessed = problem.guess()
            dual = problem.descend(start) if guessed is None else guessed
        outside = np.abs(dual) >= level
        pull = np.zeros_like(v)
        if outside.any():
            pull = -level * (np.sign(dual[outside]) @ self.rows[outside])
        return self._on_subspace(v, pull, ~outside)

    def _on_subspace(self, v: Floats, pull: Floats, zero: npt.NDArray[np.bool_]) -> Floats:
        """Minimise ``(w - v)' M (w - v) / 2 - pull' w`` where some entries of D w are zero."""
        held = int(zero.sum())
        basis: Floats = np.eye(v.size)
        if held:
            full = linalg.qr(self.rows[zero].T, check_finite=False)[0]
            basis = np.asarray(full[:, held:], dtype=np.float64)
        inside = basis.T @ v
        # Written as a correction of the point, which is exact where nothing is to be corrected.
        normal = v - basis @ inside if held else np.zeros_like(v)
        if self.metric is None:
            return basis @ (inside + basis.T @ pull)
        weighted = self.metric[:, None] * basis if self.metric.ndim == 1 else self.metric @ basis
        right = basis.T @ pull + weighted.T @ normal
        change = linalg.solve(basis.T @ weighted, right, assume_a="pos", check_finite=False)
        return basis @ (inside + change)
