"""Public matrices: one form for each value, its fingerprint, and its singular values."""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from scipy import linalg, sparse

from skdpadmm.penalties._penalty import FloatArray

SparseMatrix: TypeAlias = "sparse.csr_array[np.float64]"
"""How matrices are kept, whatever they came as."""

_EPSILON = float(np.finfo(np.float64).eps)


def as_matrix(name: str, matrix: Any) -> SparseMatrix:
    """A finite matrix in the one read-only form, sorted and without zeros, of all equal ones."""
    if not sparse.issparse(matrix):
        matrix = np.asarray(matrix, dtype=np.float64)
    if matrix.ndim != 2:
        raise ValueError(
            f"Got {name} with {matrix.ndim} dimensions, expected a matrix. Give one row as [[...]]."
        )
    kept: SparseMatrix = sparse.csr_array(matrix, dtype=np.float64, copy=True)
    kept.sum_duplicates()
    check_finite(name, kept.data)
    kept.eliminate_zeros()
    for part in (kept.data, kept.indices, kept.indptr):
        part.setflags(write=False)
    return kept


def check_finite(name: str, entries: FloatArray) -> None:
    """Refuse infinite and missing entries."""
    if not np.isfinite(entries).all():
        raise ValueError(
            f"Got {name} with infinite or missing entries, expected finite floats."
            " Remove or replace them."
        )


def fingerprint(*parts: SparseMatrix | FloatArray | str) -> str:
    """SHA-256 of shapes and values, the same on every machine."""
    digest = hashlib.sha256()
    for part in parts:
        if isinstance(part, str):
            digest.update(f"name {part};".encode())
        elif isinstance(part, np.ndarray):
            digest.update(f"array {part.shape};".encode())
            digest.update(np.ascontiguousarray(part, dtype="<f8").tobytes())
        else:
            digest.update(f"matrix {tuple(map(int, part.shape))} {part.nnz};".encode())
            for array, kind in ((part.indptr, "<i8"), (part.indices, "<i8"), (part.data, "<f8")):
                digest.update(array.astype(kind).tobytes())
    return digest.hexdigest()


def diagonal_of(matrix: SparseMatrix) -> FloatArray | None:
    """The diagonal of a matrix that has nothing else, or None."""
    entries = matrix.tocoo()
    row, column = entries.coords
    if np.any((row != column) & (entries.data != 0)):
        return None
    return np.asarray(matrix.diagonal(), dtype=np.float64)


class Spectrum(NamedTuple):
    """Rank and outermost of the min(m, n) singular values, each rounded to its safe side."""

    rank: int
    smallest: float
    largest: float


def spectrum(matrix: SparseMatrix) -> Spectrum:
    """Singular values of a matrix with at least one row and column.

    One counts as zero up to ``max(m, n)`` times the machine precision, 2.2e-16, times the largest.
    Bounds are off by a relative 1e-9 and by what counts as zero.
    """
    # In units of the largest entry squares neither overflow nor underflow.
    unit = float(np.abs(matrix.data).max(initial=0.0))
    if unit == 0:
        return Spectrum(0, 0.0, 0.0)
    values = linalg.svdvals(matrix.toarray() / unit, check_finite=False)
    slack = max(matrix.shape) * _EPSILON * float(values[0])
    smallest = max(float(values[-1]) - slack, 0.0) * unit * (1.0 - 1e-9)
    largest = (float(values[0]) + slack) * unit * (1.0 + 1e-9)
    return Spectrum(int((values > slack).sum()), smallest, largest)
