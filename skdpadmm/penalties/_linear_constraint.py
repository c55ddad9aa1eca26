"""Linear constraints that tie the coefficients to a second block of variables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from scipy import linalg, sparse
from scipy.sparse.linalg import splu
from sklearn.utils import check_array

from skdpadmm._numbers import require_positive
from skdpadmm.penalties._matrix import (
    SparseMatrix,
    Spectrum,
    as_matrix,
    diagonal_of,
    matrix_fingerprint,
    require_rank,
    spectrum,
)
from skdpadmm.penalties._penalty import Floats, Penalty, ProximalOperator

# What maps columns of one height to columns of another.
LinearMap = Callable[[Floats], Floats]

# Fraction of entries that are not zero from which a system is solved as a dense one.
_DENSE_FRACTION = 0.25


@dataclass(frozen=True, init=False, repr=False)
class LinearConstraint:
    r"""The constraint :math:`A x + B y = c`; it is public.

    By default :math:`x = y`. Two constraints are equal if A, B and c are, dense or sparse. Each
    column of several outputs is constrained separately.

    Parameters
    ----------
    A : array-like or sparse matrix of shape (m, n), or None, default=None
        Of full row rank. None is the identity, for any n that B and c leave open. A singular value
        counts as zero up to max(m, n) times 2.2e-16 times the largest.
    B : array-like or sparse matrix of shape (m, l), or None, default=None
        Of full column rank. None is minus the identity.
    c : array-like of shape (m,), default=None
        The same for all outputs. None is zero, and is kept as zeros where m is known.

    Attributes
    ----------
    fingerprint : str
        SHA-256 of A, B and c.

    Raises
    ------
    ValueError
        If shapes do not agree, an entry is not finite, or a rank is not full.

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
    c: Floats | None = field(compare=False)
    fingerprint: str = field(init=False)

    def __init__(self, A: Any = None, B: Any = None, c: Any = None) -> None:
        left = None if A is None else as_matrix("A", A)
        right = None if B is None else as_matrix("B", B)
        offset = None if c is None else np.array(c, dtype=np.float64) + 0.0
        parts = {"A": left, "B": right, "c": offset}
        rows = {name: int(part.shape[0]) for name, part in parts.items() if part is not None}
        if len(set(rows.values())) > 1 or (offset is not None and offset.ndim != 1):
            shapes = {name: np.shape(part) for name, part in parts.items() if part is not None}
            raise ValueError(
                f"Got shapes {shapes}, expected one number m of rows, and c of shape (m,)."
            )
        if offset is None and rows:
            # Equal values take one form.
            offset = np.zeros(max(rows.values()))
        if offset is not None:
            check_array(offset, ensure_2d=False, input_name="c")
            offset.setflags(write=False)
        if left is not None:
            remedy = (
                "Remove the rows of A that are combinations of others, with the same rows of B and"
                " c; put what they require of y into the penalty."
            )
            require_rank("A", left, int(left.shape[0]), remedy)
        if right is not None:
            remedy = (
                "The y-step would not be unique: remove the columns of B that are combinations of"
                " others."
            )
            require_rank("B", right, int(right.shape[1]), remedy)
        names = ("identity" if left is None else left, "minus" if right is None else right)
        digest = matrix_fingerprint(*names, "open" if offset is None else offset)
        for name, value in {"A": left, "B": right, "c": offset, "fingerprint": digest}.items():
            object.__setattr__(self, name, value)

    @property
    def n_constraints(self) -> int:
        """Number m of rows; 0 where neither A nor B nor c determines it."""
        return 0 if self.c is None else len(self.c)

    @property
    def n_auxiliary(self) -> int:
        """Number l of columns of B; 0 where neither A nor B nor c determines it."""
        return self.n_constraints if self.B is None else int(self.B.shape[1])

    @property
    def smallest_singular_value(self) -> float:
        """At most that of A, by a relative 1e-9 and rounding; 1 for the identity."""
        return self._spectrum.smallest

    @property
    def largest_singular_value(self) -> float:
        """At least that of A, by a relative 1e-9 and rounding; 1 for the identity."""
        return self._spectrum.largest

    def forward(self, x: Floats) -> Floats:
        """Map x of shape (n,) or (n, K) to ``A x``."""
        return x.copy() if self.A is None else np.asarray(self.A @ x)

    def adjoint(self, v: Floats) -> Floats:
        """Map v of shape (m,) or (m, K) to ``A' v``."""
        return v.copy() if self.A is None else np.asarray(self.A.T @ v)

    def B_dot(self, y: Floats) -> Floats:
        """Map y of shape (l,) or (l, K) to ``B y``."""
        # Adding zero turns -0.0 into 0.0.
        return 0.0 - y if self.B is None else np.asarray(self.B @ y)

    def resolvent(self, weight: float) -> LinearMap:
        """The map ``(I + weight A' A)^{-1}`` of arrays of shape (n,) or (n, K), factored once.

        The weight is in (0, inf); else a ValueError.
        """
        require_positive(weight, "weight")
        if self.A is None:
            return lambda v: v / (1.0 + weight)
        n = int(self.A.shape[1])
        system = sparse.csc_array(sparse.eye_array(n) + weight * (self.A.T @ self.A))
        if system.nnz < _DENSE_FRACTION * n * n:
            factored = splu(system, permc_spec="MMD_AT_PLUS_A")
            return lambda v: np.asarray(factored.solve(np.ascontiguousarray(v)), dtype=np.float64)
        factor = linalg.cho_factor(system.toarray(), lower=True, check_finite=False)
        return lambda v: linalg.cho_solve(factor, v, check_finite=False)

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
        require_positive(weight, "weight")
        solve, metric = self._least_squares
        prox, c = penalty.proximal_operator(1.0 / weight, metric), self.c

        def step(w: Floats) -> Floats:
            target = w / weight
            if c is not None:
                if len(w) != len(c):
                    raise ValueError(f"Got w of shape {w.shape}, expected {len(c)} rows.")
                target = target + (c if w.ndim == 1 else c[:, None])
            return prox(solve(target))

        return step

    def y_rounding(self, penalty: Penalty, n_variables: int) -> float:
        """Relative rounding error of `y_step` in the metric ``B' B``.

        See `Penalty.proximal_rounding`; `n_variables` is the size of y where nothing else
        determines it.
        """
        _, metric = self._least_squares
        if metric is None:
            return penalty.proximal_rounding(np.ones(self.n_auxiliary or n_variables))
        if metric.ndim == 1:
            return penalty.proximal_rounding(metric**-0.5)
        scale = metric.diagonal() ** -0.5
        condition = float(np.linalg.cond(metric * np.outer(scale, scale)))
        return penalty.proximal_rounding(scale, condition)

    @cached_property
    def _spectrum(self) -> Spectrum:
        """Of A; for the identity nothing is rounded."""
        return Spectrum(self.n_constraints, 1.0, 1.0) if self.A is None else spectrum(self.A)

    @cached_property
    def _least_squares(self) -> tuple[LinearMap, Floats | None]:
        """The map ``(B' B)^{-1} B'``, and the metric ``B' B``: None for ones."""
        if self.B is None:
            return lambda v: 0.0 - v, None
        gram = sparse.csr_array(self.B.T @ self.B)
        diagonal, columns = diagonal_of(gram), self.B
        if diagonal is None:
            basis, triangle = linalg.qr(self.B.toarray(), mode="economic", check_finite=False)
            return (
                lambda v: linalg.solve_triangular(triangle, basis.T @ v, check_finite=False),
                gram.toarray(),
            )

        def project(v: Floats) -> Floats:
            return np.asarray(columns.T @ v) / diagonal.reshape((-1,) + (1,) * (v.ndim - 1))

        return project, None if (diagonal == 1.0).all() else diagonal

    def __getstate__(self) -> dict[str, Any]:
        # Factors are computed again where they are needed; some of them cannot be pickled.
        return {name: self.__dict__[name] for name in ("A", "B", "c", "fingerprint")}

    def __repr__(self) -> str:
        left = "A=I" if self.A is None else f"A of shape {tuple(map(int, self.A.shape))}"
        right = "B=-I" if self.B is None else f"B of shape {tuple(map(int, self.B.shape))}"
        offset = "c=0" if self.c is None or not self.c.any() else f"c of shape {self.c.shape}"
        return f"LinearConstraint({left}, {right}, {offset})"
