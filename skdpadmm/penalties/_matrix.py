"""Public matrices: one form for each value, its fingerprint, and its singular values."""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from scipy import linalg, sparse
from sklearn.utils import check_array

from skdpadmm.penalties._penalty import Floats

# How matrices are kept, whatever they came as.
SparseMatrix: TypeAlias = "sparse.csr_array[np.float64]"

_EPSILON = float(np.finfo(np.float64).eps)


def as_matrix(name: str, matrix: Any, least_rows: int = 1) -> SparseMatrix:
    """A finite matrix in the one read-only form, sorted and without zeros, of all equal ones."""
    checked = check_array(
        matrix,
        accept_sparse="csr",
        dtype=np.float64,
        copy=True,
        input_name=name,
        ensure_min_samples=least_rows,
    )
    kept: SparseMatrix = sparse.csr_array(checked)
    kept.sum_duplicates()
    kept.eliminate_zeros()
    for part in (kept.data, kept.indices, kept.indptr):
        part.setflags(write=False)
    return kept


def matrix_fingerprint(*parts: SparseMatrix | Floats | str) -> str:
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


def diagonal_of(matrix: SparseMatrix) -> Floats | None:
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
    """Singular values of a matrix; without entries there are none but zero.

    One counts as zero up to ``max(m, n)`` times the machine precision, 2.2e-16, times the largest.
    Bounds are off by a relative 1e-9 and by what counts as zero.
    """
    # In units of the largest entry squares neither overflow nor underflow.
    largest_entry = float(np.abs(matrix.data).max(initial=0.0))
    if largest_entry == 0:
        return Spectrum(0, 0.0, 0.0)
    values = linalg.svdvals(matrix.toarray() / largest_entry, check_finite=False)
    slack = max(matrix.shape) * _EPSILON * float(values[0])
    smallest = max(float(values[-1]) - slack, 0.0) * largest_entry * (1.0 - 1e-9)
    largest = (float(values[0]) + slack) * largest_entry * (1.0 + 1e-9)
    return Spectrum(int((values > slack).sum()), smallest, largest)


def require_rank(name: str, matrix: SparseMatrix, rank: int, remedy: str) -> None:
    """Refuse a matrix without full rank of its rows or columns."""
    full, rank = rank, spectrum(matrix).rank
    if rank < full:
        raise ValueError(
            f"Got {name} of shape {matrix.shape} and rank {rank}, expected rank {full}. {remedy}"
        )
