"""Sparse input whose stored values are its entries."""

from __future__ import annotations

from typing import Any

from sklearn.utils import assert_all_finite


def merge_duplicates(X: Any) -> Any:
    """Add up repeated entries of a CSR container, in place.

    Repeated entries stand for their sum, so a bound on the stored values would not bound the row.
    """
    X.sum_duplicates()
    assert_all_finite(X.data, input_name="X")
    return X
