"""Public matrices: one form for each value, its fingerprint, and its singular values."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy import linalg, sparse

from ._penalty import FloatArray

SparseMatrix: TypeAlias = "sparse.csr_array[np.float64]"
"""How matrices are kept, whatever they came as."""

_EPSILON = float(np.finfo(np.float64).eps)

_MOST_ENTRIES = 250_000
"""Entries up to which a banded matrix is decomposed as a dense one."""


def as_matrix(name: str, matrix: Any) -> SparseMatrix:
    """Copy a matrix into the one form that all equal matrices share, and freeze it.

    Parameters
    ----------
    name : str
        Name of the parameter.
    matrix : array-like or sparse matrix of shape (m, n)
        Its value.

    Returns
    -------
    csr_array of shape (m, n)
        Sorted, without stored zeros, read-only.

    Raises
    ------
    ValueError
        If it does not have two dimensions, or an entry is not finite.
    """
    if not sparse.issparse(matrix):
        matrix = np.asarray(matrix, dtype=np.float64)
    if matrix.ndim != 2:
        raise ValueError(
            f"Got {name} with {matrix.ndim} dimensions, expected a matrix. Give one row as [[...]]."
        )
    kept: SparseMatrix = sparse.csr_array(matrix, dtype=np.float64, copy=True)
    kept.sum_duplicates()
    if not np.isfinite(kept.data).all():
        raise ValueError(
            f"Got {name} with infinite or missing entries, expected finite floats."
            " Remove or replace them."
        )
    kept.eliminate_zeros()
    for part in (kept.data, kept.indices, kept.indptr):
        part.setflags(write=False)
    return kept


def fingerprint(*parts: SparseMatrix | FloatArray | str) -> str:
    """SHA-256 of shapes and values, the same on every machine.

    Parameters
    ----------
    *parts : csr_array from `as_matrix`, ndarray or str
        What is told apart by it.

    Returns
    -------
    str
        Hexadecimal digits.
    """
    digest = hashlib.sha256()
    for part in parts:
        if isinstance(part, str):
            digest.update(f"name {part};".encode())
        elif isinstance(part, np.ndarray):
            digest.update(f"array {part.shape};".encode())
            digest.update(np.ascontiguousarray(part, dtype="<f8").tobytes())
        else:
            digest.update(f"matrix {tuple(map(int, part.shape))} {part.nnz};".encode())
            digest.update(part.indptr.astype("<i8").tobytes())
            digest.update(part.indices.astype("<i8").tobytes())
            digest.update(part.data.astype("<f8").tobytes())
    return digest.hexdigest()


def diagonal_of(matrix: SparseMatrix) -> FloatArray | None:
    """The diagonal of a square matrix that has nothing else, or None.

    Parameters
    ----------
    matrix : csr_array of shape (n, n)

    Returns
    -------
    ndarray of shape (n,) or None
    """
    return None if bandwidth(matrix) else np.asarray(matrix.diagonal(), dtype=np.float64)


def bandwidth(matrix: SparseMatrix) -> int:
    """Largest distance of an entry from the diagonal.

    Parameters
    ----------
    matrix : csr_array of shape (n, n)

    Returns
    -------
    int
    """
    entries = matrix.tocoo()
    row, column = entries.coords
    held = entries.data != 0
    return int(np.abs(row[held].astype(np.int64) - column[held]).max(initial=0))


def upper_band(matrix: SparseMatrix, width: int) -> FloatArray:
    """A symmetric banded matrix in the upper form of LAPACK.

    Parameters
    ----------
    matrix : csr_array of shape (n, n)
    width : int
        Its bandwidth.

    Returns
    -------
    ndarray of shape (width + 1, n)
    """
    band = np.zeros((width + 1, matrix.shape[0]))
    for k in range(width + 1):
        band[width - k, k:] = matrix.diagonal(k)
    return band


@dataclass(frozen=True)
class Spectrum:
    """The outermost of the min(m, n) singular values, each on its safe side.

    Parameters
    ----------
    rank : int
        How many of them are above rounding.
    smallest : float
        At most the smallest one.
    largest : float
        At least the largest one.
    """

    rank: int
    smallest: float
    largest: float


def spectrum(matrix: SparseMatrix) -> Spectrum:
    """Rank and outermost singular values, rounded to the safe side.

    A singular value counts as zero up to ``max(m, n)`` times the machine precision, 2.2e-16, times
    the largest one.

    Parameters
    ----------
    matrix : csr_array of shape (m, n)
        With at least one row and column.

    Returns
    -------
    Spectrum
        The bounds are off by a relative 1e-9 and by what counts as zero.
    """
    wide = matrix if matrix.shape[0] <= matrix.shape[1] else sparse.csr_array(matrix.T)
    n_values, longest = map(int, wide.shape)
    # In units of the largest entry squares neither overflow nor underflow.
    unit = float(np.abs(wide.data).max(initial=0.0))
    if unit == 0:
        return Spectrum(0, 0.0, 0.0)
    # Not a division of the matrix, which multiplies by the reciprocal: that may overflow.
    wide = wide.copy()
    wide.data = wide.data / unit
    rounding = longest * _EPSILON
    squares = diagonal_of(sparse.csr_array(wide @ wide.T))
    if squares is not None:
        values: FloatArray = np.sort(np.sqrt(squares))
        slack = rounding * values[-1]
        rank, low, high = int((values > slack).sum()), values[0], values[-1]
        slack = 0.0
    else:
        band = _shuffled(wide) if n_values * longest > _MOST_ENTRIES else None
        if band is None:
            values = np.asarray(linalg.svdvals(wide.toarray(), check_finite=False))[::-1]
        else:
            # Minus the values, zeros for the surplus columns, the values.
            last = n_values + longest - 1
            ends = [(k, k) for k in (longest, last)]
            values = np.concatenate([_eigenvalues(band, "i", end) for end in ends])
        low, high = values[0], values[-1]
        slack = rounding * high
        rank = n_values
        if band is None:
            rank = int((values > slack).sum())
        elif low <= slack:
            zeros = _eigenvalues(band, "v", (-slack, slack)).size - (longest - n_values)
            # At least the one that is below.
            rank -= max((zeros + 1) // 2, 1)
    smallest = max(float(low - slack), 0.0) * unit * (1.0 - 1e-9) if rank == n_values else 0.0
    return Spectrum(rank, smallest, float(high + slack) * unit * (1.0 + 1e-9))


def _shuffled(wide: SparseMatrix) -> FloatArray | None:
    """The band of the symmetric matrix with eigenvalues plus and minus the singular values.

    None unless rows and columns can be put in turn so that its band is narrow.
    """
    entries = wide.tocoo()
    row, column = (np.asarray(part, dtype=np.int64) for part in entries.coords)
    n_rows, n_columns = map(int, wide.shape)
    first, last = np.full(n_rows, n_columns), np.zeros(n_rows, dtype=np.int64)
    np.minimum.at(first, row, column)
    np.maximum.at(last, row, column)
    # A row stands where the middle of its entries does.
    order = np.argsort(np.concatenate([first + last, 2 * np.arange(n_columns)]), kind="stable")
    position = np.empty_like(order)
    position[order] = np.arange(order.size)
    down, across = position[row], position[n_rows + column]
    width = int(np.abs(down - across).max())
    if 8 * width > n_rows:
        return None
    band = np.zeros((width + 1, order.size))
    upper, lower = np.minimum(down, across), np.maximum(down, across)
    band[width + upper - lower, lower] = entries.data
    return band


def _eigenvalues(
    band: FloatArray, select: Literal["i", "v"], between: tuple[float, float]
) -> npt.NDArray[np.float64]:
    chosen: Any = select
    values = linalg.eigvals_banded(band, select=chosen, select_range=between, check_finite=False)
    return np.asarray(values, dtype=np.float64)
