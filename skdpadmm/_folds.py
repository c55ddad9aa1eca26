"""Folds of a search of scikit-learn: public ones, and how many rows train in each."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.base import is_classifier
from sklearn.model_selection import (
    GroupKFold,
    GroupShuffleSplit,
    KFold,
    LeaveOneGroupOut,
    LeaveOneOut,
    LeavePGroupsOut,
    LeavePOut,
    PredefinedSplit,
    RepeatedKFold,
    ShuffleSplit,
    TimeSeriesSplit,
    check_cv,
)

# Which rows train goes by positions, or by groups. What inherits from them may look at rows.
_BY_POSITION = (
    KFold,
    LeaveOneOut,
    LeavePOut,
    PredefinedSplit,
    RepeatedKFold,
    ShuffleSplit,
    TimeSeriesSplit,
)
_BY_GROUP = (GroupKFold, GroupShuffleSplit, LeaveOneGroupOut, LeavePGroupsOut)
# Positions, or masks, that somebody made.
_GIVEN = type(check_cv([]))


def sizes_of_folds(search: Any, X: Any, y: Any, groups: Any, n_samples: int) -> list[int]:
    """Return how many rows each fold will train on.

    Parameters
    ----------
    search : GridSearchCV or RandomizedSearchCV
    X, y, groups
        As its fit takes them.
    n_samples : int

    Returns
    -------
    list of int

    Raises
    ------
    ValueError
        If folds may go by rows, or repeat them, or if fit may draw others.
    """
    # A generator stays where it is: fit draws the same from it.
    folds = copy.deepcopy(_public_folds(search))
    is_drawn = getattr(folds, "shuffle", True) and getattr(folds, "random_state", 0) is None
    if _goes_by_groups(folds) and is_drawn:
        raise ValueError(
            f"Got cv={search.cv!r}, expected a random_state: groups of other sizes may be drawn in"
            " fit, and so fits that cost otherwise. Pass an int."
        )
    return [_n_rows(train, n_samples) for train, _ in folds.split(X, y, groups)]


def sizes_of_past_folds(
    search: Any, n_samples: int | None, fold_sizes: Sequence[int] | None
) -> list[int] | None:
    """Return how many rows each fold trained on; None where that is not known.

    Parameters
    ----------
    search : GridSearchCV or RandomizedSearchCV
        Fitted.
    n_samples : int or None
    fold_sizes : sequence of int or None
        What the caller knows of them.

    Returns
    -------
    list of int or None

    Raises
    ------
    ValueError
        If so many rows do not make so many folds, or if folds may go by rows.
    """
    n_folds = int(search.n_splits_)
    is_gone = hasattr(search.cv, "__next__")
    splitter: Any = None if is_gone else _public_folds(search)
    if fold_sizes is not None:
        return _given_sizes(fold_sizes, n_folds)
    if is_gone or _goes_by_groups(splitter) or (n_samples is None and type(splitter) is not _GIVEN):
        return None
    # A generator stays as it is. Positions that are given look at no rows.
    zeros = np.zeros((n_samples or 1, 1))
    sizes = [_n_rows(train, n_samples) for train, _ in copy.deepcopy(splitter).split(zeros)]
    if len(sizes) != n_folds:
        raise ValueError(
            f"Got n_samples={n_samples} that make {len(sizes)} folds, expected the {n_folds} that"
            " the search had. Pass the number of rows that it was fitted on."
        )
    return sizes


def _public_folds(search: Any) -> Any:
    """The splitter of a search of scikit-learn, none of whose rows changes a fold.

    Parameters
    ----------
    search : estimator
        With the parameters `cv` and `estimator`.

    Returns
    -------
    splitter

    Raises
    ------
    ValueError
        Where folds may go by rows or labels. A label that is another one moves other rows to other
        folds then, and a fit differs in many records.
    """
    # Any labels of two classes: an int means folds by classes, for a classifier.
    splitter = check_cv(search.cv, [0, 1], classifier=is_classifier(search.estimator))
    if type(splitter) in (_GIVEN, *_BY_POSITION, *_BY_GROUP):
        return splitter
    meant = "" if type(splitter) is type(search.cv) else f" which is {type(splitter).__name__},"
    raise ValueError(
        f"Got cv={search.cv!r},{meant} expected folds that no row changes: with folds by labels one"
        " record moves others from fold to fold, and a fit differs in all of these. Pass"
        " cv=KFold(5, shuffle=True, random_state=0), or positions that are public, and search with"
        " these."
    )


def _given_sizes(fold_sizes: Sequence[int], n_folds: int) -> list[int]:
    """Return sizes that somebody knows, one for each fold."""
    sizes = list(fold_sizes)
    if len(sizes) != n_folds or not all(isinstance(n, Integral) and n >= 1 for n in sizes):
        raise ValueError(
            f"Got fold_sizes={fold_sizes!r}, expected {n_folds} positive ints: how many rows each"
            " fold trained on, [len(train) for train, _ in cv.split(X, y, groups)]."
        )
    return [int(n) for n in sizes]


def _goes_by_groups(splitter: Any) -> bool:
    """Whether sizes of folds follow from who is in which group."""
    return type(splitter) in _BY_GROUP


def _n_rows(positions: Any, n_samples: int | None = None) -> int:
    """How many rows a part of a split has, by their positions or by a mask; each of them once."""
    rows = np.asarray(positions)
    if rows.dtype == bool:
        return int(rows.sum())
    if n_samples is not None:
        # Counted from the end they are the same rows.
        rows = np.where(rows < 0, rows + n_samples, rows)
    if len(np.unique(rows)) < len(rows):
        raise ValueError(
            "Got a fold in which rows are repeated, expected each at most once: a record that is"
            " there several times is protected less than a fit claims. Draw without replacement."
        )
    return len(rows)
