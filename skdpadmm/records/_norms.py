"""Euclidean norms of rows, for entries of any size."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def feature_norms(X: Any, columns: NDArray[np.bool_], *, n_rows: int = 4096) -> NDArray[np.float64]:
    """Norm of each row over some columns, without overflow and without a copy of X.

    Parameters
    ----------
    X : {ndarray, CSR matrix} of shape (n_samples, n_features)
    columns : ndarray of bool of shape (n_features,)
    n_rows : int, default=4096
        Rows that are worked on at once.

    Returns
    -------
    ndarray of shape (n_samples,)
    """
    norms = np.empty(X.shape[0])
    for start in range(0, X.shape[0], n_rows):
        part: Any = X[start : start + n_rows].astype(np.float64)
        if isinstance(part, np.ndarray):
            part = part[:, columns]
            peak = np.abs(part).max(axis=1, initial=0.0)
            squares = np.square(part / np.where(peak > 0, peak, 1.0)[:, None]).sum(axis=1)
        else:
            part.sum_duplicates()
            size = np.abs(np.where(columns[part.indices], np.nan_to_num(part.data), 0.0))
            of_row = np.repeat(np.arange(part.shape[0]), np.diff(part.indptr))
            peak = np.zeros(part.shape[0])
            np.maximum.at(peak, of_row, size)
            relative = np.square(size / np.where(peak > 0, peak, 1.0)[of_row])
            squares = np.bincount(of_row, weights=relative, minlength=part.shape[0])
        norms[start : start + n_rows] = peak * np.sqrt(squares)
    return norms
