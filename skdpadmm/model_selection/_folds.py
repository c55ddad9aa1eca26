"""How many rows the folds of a finished search trained on."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from numbers import Integral
from typing import Any

import numpy as np

from skdpadmm._candidates import goes_by_groups, n_rows, public_folds


def sizes_of_folds(search: Any, n_samples: int | None, n_folds: int) -> list[int] | None:
    """Return how many rows each fold trained on; None where that is not known.

    Parameters
    ----------
    search : GridSearchCV or RandomizedSearchCV
    n_samples : int or None
    n_folds : int
        Those that it had.

    Returns
    -------
    list of int or None

    Raises
    ------
    ValueError
        If so many rows do not make so many folds, or if folds may go by rows.
    """
    if hasattr(search.cv, "__next__"):
        # It was gone through.
        return None
    splitter = public_folds(search)
    is_given = hasattr(search.cv, "__iter__") and not hasattr(search.cv, "split")
    if goes_by_groups(splitter) or (n_samples is None and not is_given):
        return None
    # A generator stays as it is. Positions that are given look at no rows.
    zeros = np.zeros((n_samples or 1, 1))
    sizes = [n_rows(train, n_samples) for train, _ in copy.deepcopy(splitter).split(zeros)]
    if len(sizes) != n_folds:
        raise ValueError(
            f"Got n_samples={n_samples} that make {len(sizes)} folds, expected the {n_folds} that"
            " the search had. Pass the number of rows that it was fitted on."
        )
    return sizes


def given_sizes(fold_sizes: Sequence[int], n_folds: int) -> list[int]:
    """Return sizes that somebody knows, one for each fold."""
    sizes = list(fold_sizes)
    if len(sizes) != n_folds or not all(isinstance(n, Integral) and n >= 1 for n in sizes):
        raise ValueError(
            f"Got fold_sizes={fold_sizes!r}, expected {n_folds} positive ints: how many rows each"
            " fold trained on, [len(train) for train, _ in cv.split(X, y, groups)]."
        )
    return [int(n) for n in sizes]
