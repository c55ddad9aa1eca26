"""Linear constraints that tie the coefficients to a second block of variables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from scipy import linalg, sparse
from scipy.sparse.linalg import splu

from ._matrix import (
    SparseMatrix,
    Spectrum,
    as_matrix,
    bandwidth,
    diagonal_of,
    fingerprint,
    spectrum,
    upper_band,
)
from ._penalty import FloatArray, Penalty, ProximalOperator

LinearMap = Callable[[FloatArray], FloatArray]
"""What maps columns of one height to columns of another."""

_DENSE_SHARE = 0.25
"""Share of entries that are not zero from which dense arithmetic is used."""


@dataclass(frozen=True, init=False, repr=False)
class LinearConstraint:
    r"""The constraint :math:`A x + B y = c`; it is public.

    By default :math:`x = y`. Two of them are equal where A, B and c are, dense or sparse. Columns
    of several outputs are constrained each alone.

    Parameters
    ----------
    A : array-like or sparse matrix of shape (m, n), or None, default=None
        Of full row rank. None is the identity, for any n that B and c leave open.
    B : array-like or sparse matrix of shape (m, l), or None, default=None
        Of full column rank. None is minus the identity.
    c : array-like of shape (m,) or (m, K), default=None
        One column for all outputs, or one for each. None is zero, and is kept as zeros where m is
        known.

    Attributes
    ----------
    fingerprint : str
        SHA-256 of A, B and c.

    Raises
    ------
    ValueError
        If shapes do not agree, an entry is not finite, or a rank is not full.

    Notes
    -----
    A singular value counts as zero up to the larger side of its matrix times 2.2e-16 times the
    largest singular value.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpadmm.penalties import L1, LinearConstraint, difference_matrix
    >>> constraint = LinearConstraint(difference_matrix(3, order=1))
    >>> constraint
    LinearConstraint(A of shape (2, 3), B=-I, c=0)
    >>> constraint.forward(np.array([1.0, 1.0, 4.0]))
    array([0., 3.])
    >>> constraint.y_step(L1(1.0), weight=2.0)(np.array([-6.0, 0.5]))
    array([2.5, 0. ])
    """

    A: SparseMatrix | None = field(compare=False)
    B: SparseMatrix | None = field(compare=False)
    c: FloatArray | None = field(compare=False)
    fingerprint: str = field(init=False)

    def __init__(self, A: Any = None, B: Any = None, c: Any = None) -> None:
        left = None if A is None else as_matrix("A", A)
        right = None if B is None else as_matrix("B", B)
        offset = None if c is None else _as_offset(c)
        m = _common_rows(left, right, offset)
        # Equal values take one form, and with it one path through the arithmetic.
        if left is not None and _is_identity(left, 1.0):
            left = None
        if right is not None and _is_identity(right, -1.0):
            right = None
        if offset is None and m is not None:
            offset = _as_offset(np.zeros(m))
        object.__setattr__(self, "A", left)
        object.__setattr__(self, "B", right)
        object.__setattr__(self, "c", offset)
        if left is not None:
            _require_rows(left, self._spectrum.rank)
        if right is not None:
            _require_columns(right)
        parts = ("identity" if left is None else left, "minus" if right is None else right)
        digest = fingerprint(*parts, "open" if offset is None else offset)
        object.__setattr__(self, "fingerprint", digest)

    @property
    def is_open(self) -> bool:
        """Whether neither A nor B nor c says for how many features it is."""
        return self._m is None

    @property
    def n_constraints(self) -> int:
        """Number m of rows; a ValueError where `is_open`."""
        if self._m is None:
            raise ValueError(
                "Got a constraint for any number of features, expected a definite one. Give A as"
                " scipy.sparse.eye_array(n)."
            )
        return self._m

    @property
    def n_features(self) -> int:
        """Number n of columns of A; a ValueError where `is_open`."""
        return self.n_constraints if self.A is None else int(self.A.shape[1])

    @property
    def n_auxiliary(self) -> int:
        """Number l of columns of B; a ValueError where `is_open`."""
        return self.n_constraints if self.B is None else int(self.B.shape[1])

    @property
    def smallest_singular_value(self) -> float:
        """At most that of A, by a relative 1e-9 and rounding; 1 for the identity."""
        return self._spectrum.smallest

    @property
    def largest_singular_value(self) -> float:
        """At least that of A, by a relative 1e-9 and rounding; 1 for the identity."""
        return self._spectrum.largest

    def forward(self, x: FloatArray) -> FloatArray:
        """Return ``A x``.

        Parameters
        ----------
        x : ndarray of shape (n,) or (n, K)

        Returns
        -------
        ndarray of shape (m,) or (m, K)
        """
        _check_height("x", x, self._height(self.A, 1))
        return x.copy() if self.A is None else np.asarray(self._left @ x)

    def adjoint(self, v: FloatArray) -> FloatArray:
        """Return ``A' v``.

        Parameters
        ----------
        v : ndarray of shape (m,) or (m, K)

        Returns
        -------
        ndarray of shape (n,) or (n, K)
        """
        _check_height("v", v, self._m)
        return v.copy() if self.A is None else np.asarray(self._left.T @ v)

    def B_dot(self, y: FloatArray) -> FloatArray:
        """Return ``B y``.

        Parameters
        ----------
        y : ndarray of shape (l,) or (l, K)

        Returns
        -------
        ndarray of shape (m,) or (m, K)
        """
        _check_height("y", y, self._height(self.B, 1))
        # Adding zero turns -0.0 into 0.0.
        return 0.0 - y if self.B is None else np.asarray(self._right @ y)

    def resolvent(self, weight: float) -> LinearMap:
        """Factor ``I + weight A' A`` once, and return what solves with it.

        Parameters
        ----------
        weight : float
            In (0, inf).

        Returns
        -------
        callable
            Maps v of shape (n,) or (n, K) to ``(I + weight A' A)^{-1} v`` in the same shape.

        Raises
        ------
        ValueError
            If `weight` is outside (0, inf).
        """
        solve = self._solver(_checked("weight", weight))

        def apply(v: FloatArray) -> FloatArray:
            _check_height("v", v, self._height(self.A, 1))
            return np.asarray(solve(v.reshape(len(v), -1)), dtype=np.float64).reshape(v.shape)

        return apply

    def y_step(self, penalty: Penalty, weight: float) -> ProximalOperator:
        r"""Step of the second block, checked and factored once.

        It maps w to :math:`\arg\min_y g(y) - w^T B y + \frac{\beta}{2} \|B y - c\|^2`, the proximal
        operator of the penalty in the metric ``B' B`` at the least squares solution of
        ``B y = c + w / weight``.

        Parameters
        ----------
        penalty : Penalty
            The function g of l variables.
        weight : float
            The weight :math:`\beta`, in (0, inf).

        Returns
        -------
        callable
            Maps w of shape (m,) or (m, K) to y of shape (l,) or (l, K).

        Raises
        ------
        ValueError
            If `weight` is outside (0, inf), or the penalty is for another number of variables.
        """
        _checked("weight", weight)
        solve, metric = self._least_squares
        prox = penalty.proximal_operator(1.0 / weight, metric)

        def step(w: FloatArray) -> FloatArray:
            _check_height("w", w, self._m)
            target = w / weight
            if self.c is not None:
                target = target + self._offset(w)
            return prox(solve(target))

        return step

    def y_rounding(self, penalty: Penalty, n_variables: int) -> float:
        """Relative rounding error of `y_step`, see `Penalty.proximal_rounding`.

        Parameters
        ----------
        penalty : Penalty
        n_variables : int
            Number of variables y where `is_open`.

        Returns
        -------
        float
            In the metric ``B' B``; infinite where nothing is certified.
        """
        _, metric = self._least_squares
        if metric is None:
            size = n_variables if self._m is None else self.n_auxiliary
            return penalty.proximal_rounding(np.ones(size))
        if metric.ndim == 1:
            return penalty.proximal_rounding(metric**-0.5)
        scale = metric.diagonal() ** -0.5
        condition = float(np.linalg.cond(metric * np.outer(scale, scale)))
        return penalty.proximal_rounding(scale, condition)

    @property
    def _m(self) -> int | None:
        return None if self.c is None else len(self.c)

    def _height(self, matrix: SparseMatrix | None, axis: int) -> int | None:
        """Rows or columns of a matrix, or of the identity in its place."""
        return self._m if matrix is None else int(matrix.shape[axis])

    @cached_property
    def _spectrum(self) -> Spectrum:
        """Of A; for the identity nothing is rounded."""
        return Spectrum(self._m or 0, 1.0, 1.0) if self.A is None else spectrum(self.A)

    @cached_property
    def _left(self) -> FloatArray | SparseMatrix:
        assert self.A is not None
        return _for_products(self.A)

    @cached_property
    def _right(self) -> FloatArray | SparseMatrix:
        assert self.B is not None
        return _for_products(self.B)

    @cached_property
    def _gram(self) -> SparseMatrix:
        """The matrix ``A' A``."""
        assert self.A is not None
        return sparse.csr_array(self.A.T @ self.A)

    def _offset(self, w: FloatArray) -> FloatArray:
        """The vector or the columns c, to be added to w."""
        assert self.c is not None
        if self.c.ndim == 1:
            return self.c.reshape((-1,) + (1,) * (w.ndim - 1))
        if self.c.shape != w.shape:
            raise ValueError(f"Got w of shape {w.shape}, expected the shape {self.c.shape} of c.")
        return self.c

    def _solver(self, weight: float) -> LinearMap:
        """Map v of shape (n, K) to the solution."""
        if self.A is None:
            return lambda v: v / (1.0 + weight)
        diagonal = diagonal_of(self._gram)
        if diagonal is not None:
            divisor = (1.0 + weight * diagonal)[:, None]
            return lambda v: v / divisor
        m, n = map(int, self.A.shape)
        width = bandwidth(self._gram)
        system = sparse.csr_array(sparse.eye_array(n) + weight * self._gram)
        if 8 * width <= n:
            band = linalg.cholesky_banded(upper_band(system, width), check_finite=False)
            return lambda v: linalg.cho_solve_banded((band, False), v, check_finite=False)
        if system.nnz < _DENSE_SHARE * n * n:
            factored = splu(sparse.csc_array(system), permc_spec="MMD_AT_PLUS_A")
            return lambda v: factored.solve(np.ascontiguousarray(v))
        dense = self.A.toarray()
        if 2 * m > n:
            factor = linalg.cho_factor(system.toarray(), lower=True, check_finite=False)
            return lambda v: linalg.cho_solve(factor, v, check_finite=False)
        # Few rows: the same by the identity of Woodbury, in m variables.
        small = dense @ dense.T
        small.flat[:: m + 1] += 1.0 / weight
        inner = linalg.cho_factor(small, lower=True, check_finite=False)
        return lambda v: v - dense.T @ linalg.cho_solve(inner, dense @ v, check_finite=False)

    @cached_property
    def _least_squares(self) -> tuple[LinearMap, FloatArray | None]:
        """The map ``(B' B)^{-1} B'``, and the metric ``B' B``: None for ones."""
        if self.B is None:
            return lambda v: 0.0 - v, None
        gram = sparse.csr_array(self.B.T @ self.B)
        diagonal, columns = diagonal_of(gram), self._right
        if diagonal is None:
            basis, triangle = linalg.qr(self.B.toarray(), mode="economic", check_finite=False)
            return (
                lambda v: linalg.solve_triangular(triangle, basis.T @ v, check_finite=False),
                gram.toarray(),
            )

        def project(v: FloatArray) -> FloatArray:
            image = np.asarray(columns.T @ v)
            return image / diagonal.reshape((-1,) + (1,) * (v.ndim - 1))

        return project, None if (diagonal == 1.0).all() else diagonal

    def __getstate__(self) -> dict[str, Any]:
        # Factors are made again where they are needed; some of them cannot be pickled.
        return {name: self.__dict__[name] for name in ("A", "B", "c", "fingerprint")}

    def __repr__(self) -> str:
        left = "A=I" if self.A is None else f"A of shape {tuple(map(int, self.A.shape))}"
        right = "B=-I" if self.B is None else f"B of shape {tuple(map(int, self.B.shape))}"
        offset = "c=0" if self.c is None or not self.c.any() else f"c of shape {self.c.shape}"
        return f"LinearConstraint({left}, {right}, {offset})"


def _checked(name: str, value: float) -> float:
    if not 0 < value < np.inf:
        raise ValueError(f"Got {name}={value!r}, expected a float in (0, inf).")
    return value


def _check_height(name: str, array: FloatArray, height: int | None) -> None:
    if array.ndim not in (1, 2) or height not in (None, len(array)):
        size = "n" if height is None else height
        raise ValueError(
            f"Got {name} of shape {array.shape}, expected ({size},) or ({size}, n_outputs)."
        )


def _as_offset(c: Any) -> FloatArray:
    offset: FloatArray = np.array(c, dtype=np.float64) + 0.0
    if offset.ndim not in (1, 2):
        raise ValueError(f"Got c of shape {offset.shape}, expected (m,) or (m, n_outputs).")
    if not np.isfinite(offset).all():
        raise ValueError(
            "Got c with infinite or missing entries, expected finite floats. Remove or replace"
            " them."
        )
    offset.setflags(write=False)
    return offset


def _common_rows(
    left: SparseMatrix | None, right: SparseMatrix | None, offset: FloatArray | None
) -> int | None:
    """The number m that A, B and c agree on."""
    parts = {"A": left, "B": right, "c": offset}
    rows = {name: int(part.shape[0]) for name, part in parts.items() if part is not None}
    shown = ", ".join(f"{name} with {m} rows" for name, m in rows.items())
    if len(set(rows.values())) > 1:
        raise ValueError(f"Got {shown}, expected one number of rows: A x + B y = c.")
    if 0 in rows.values():
        raise ValueError(f"Got {shown}, expected at least 1. Leave the constraint out.")
    return next(iter(rows.values()), None)


def _is_identity(matrix: SparseMatrix, factor: float) -> bool:
    if matrix.shape[0] != matrix.shape[1]:
        return False
    diagonal = diagonal_of(matrix)
    return diagonal is not None and bool((diagonal == factor).all())


def _require_rows(matrix: SparseMatrix, rank: int) -> None:
    m, n = map(int, matrix.shape)
    if rank < m:
        raise ValueError(
            f"Got A of shape {(m, n)} and rank {rank}, expected rank {m}. Remove the rows of A that"
            " are combinations of others, with the same rows of B and c; put what they say about y"
            " into the penalty."
        )


def _require_columns(matrix: SparseMatrix) -> None:
    m, size = map(int, matrix.shape)
    rank = spectrum(matrix).rank if size else 0
    if rank < size or not size:
        raise ValueError(
            f"Got B of shape {(m, size)} and rank {rank}, expected rank {max(size, 1)}: the y-step"
            " would not be unique. Remove the columns of B that are combinations of others."
        )


def _for_products(matrix: SparseMatrix) -> FloatArray | SparseMatrix:
    m, n = map(int, matrix.shape)
    return matrix if matrix.nnz < _DENSE_SHARE * m * n else matrix.toarray()
