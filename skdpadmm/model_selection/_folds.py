"""How many rows the folds of a finished search trained on."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.model_selection import (
    KFold,
    LeaveOneOut,
    LeavePOut,
    PredefinedSplit,
    RepeatedKFold,
    RepeatedStratifiedKFold,
    ShuffleSplit,
    StratifiedKFold,
    StratifiedShuffleSplit,
    TimeSeriesSplit,
)

from skdpadmm._candidates import n_rows

# Sizes of their folds follow from the number of rows, whatever the labels are. What inherits from
# them may split another way.
_BY_NUMBER = (
    KFold,
    LeaveOneOut,
    LeavePOut,
    PredefinedSplit,
    RepeatedKFold,
    RepeatedStratifiedKFold,
    ShuffleSplit,
    StratifiedKFold,
    StratifiedShuffleSplit,
    TimeSeriesSplit,
)


def sizes_of_folds(cv: Any, n_samples: int | None, n_folds: int) -> list[int] | None:
    """Return how many rows each fold trains on; None where that is not known.

    Parameters
    ----------
    cv : int, splitter, iterable or None
        Of the search.
    n_samples : int or None
    n_folds : int
        Those that it had.

    Returns
    -------
    list of int or None

    Raises
    ------
    ValueError
        If so many rows do not make so many folds.
    """
    if isinstance(cv, Iterable) and not hasattr(cv, "split") and not hasattr(cv, "__next__"):
        sizes = [n_rows(train) for train, _ in cv]
    elif n_samples is None:
        return None
    elif cv is None or isinstance(cv, Integral) or type(cv) in _BY_NUMBER:
        # Folds of classes have the same sizes as those of positions. A generator stays as it is.
        splitter = copy.deepcopy(cv) if type(cv) in _BY_NUMBER else KFold(n_folds)
        zeros = np.zeros(n_samples)
        sizes = [len(train) for train, _ in splitter.split(zeros[:, None], zeros)]
    else:
        return None
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
