"""One split of the rows by their positions: the same for every trial."""

from __future__ import annotations

from collections.abc import Iterable
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import PredefinedSplit, ShuffleSplit

Positions = NDArray[np.intp]


def split_sizes(cv: Any, n_samples: int) -> tuple[int, int]:
    """How many rows train and how many validate; both are public."""
    if (n_validation := _n_validation(cv, n_samples)) is not None:
        return n_samples - n_validation, n_validation
    train, validation = _given(cv, n_samples)
    return len(train), len(validation)


def split_rows(cv: Any, uniform: NDArray[np.float64]) -> tuple[Positions, Positions]:
    """Return the positions that train and those that validate, disjoint.

    Parameters
    ----------
    cv : int, float, splitter, iterable or None
    uniform : ndarray of shape (n_samples,)
        Numbers that do not depend on data, one for each row.

    Returns
    -------
    train, validation : ndarray of int
    """
    n_samples = len(uniform)
    if (n_validation := _n_validation(cv, n_samples)) is not None:
        order = np.argsort(uniform, kind="stable")
        return np.sort(order[n_validation:]), np.sort(order[:n_validation])
    return _given(cv, n_samples)


def _n_validation(cv: Any, n_samples: int) -> int | None:
    """How many rows validate, where only their number is asked for."""
    if cv is None:
        cv = 5
    if isinstance(cv, bool) or not isinstance(cv, Real):
        return None
    if isinstance(cv, Integral):
        if cv < 2:
            raise ValueError(
                f"Got cv={cv}, expected an int of at least 2: one of so many equal parts of the"
                " rows validates, the others train."
            )
        share = 1.0 / int(cv)
    else:
        share = float(cv)
        if not 0 < share < 1:
            raise ValueError(f"Got cv={cv!r}, expected a share of the rows in (0, 1).")
    n_validation = max(1, int(n_samples * share))
    if n_validation >= n_samples:
        raise ValueError(
            f"Got n_samples={n_samples} with cv={cv!r}, expected more: at least one row to train"
            " and one to validate."
        )
    return n_validation


def _given(cv: Any, n_samples: int) -> tuple[Positions, Positions]:
    if isinstance(cv, ShuffleSplit | PredefinedSplit):
        # The rows themselves are not shown to it.
        pairs: list[Any] = list(cv.split(np.zeros((n_samples, 1))))
    elif hasattr(cv, "split") or isinstance(cv, str | bool):
        raise ValueError(
            f"Got cv={cv!r}, expected an int, a share of rows, ShuffleSplit(n_splits=1), a"
            " PredefinedSplit or one pair of positions: folds that put a record into several"
            " parts, or look at targets or groups, are not private. cv=5 keeps a fifth of the rows"
            " for validation."
        )
    elif isinstance(cv, Iterable) and not hasattr(cv, "__next__"):
        pairs = list(cv)
    else:
        raise ValueError(
            f"Got cv={cv!r}, expected something that can be read more than once, such as a list."
        )
    if len(pairs) != 1:
        raise ValueError(
            f"Got cv with {len(pairs)} splits, expected one: with several folds a record would"
            " train in some and validate in others, and each would cost."
        )
    train, validation = (_positions(part, n_samples) for part in pairs[0])
    if np.intersect1d(train, validation).size:
        raise ValueError(
            "Got cv with rows that train and validate, expected disjoint parts: such a record would"
            " count twice."
        )
    return train, validation


def _positions(part: Any, n_samples: int) -> Positions:
    positions = np.asarray(part)
    if positions.dtype == bool:
        positions = np.flatnonzero(positions)
    valid = (
        positions.ndim == 1
        and positions.size > 0
        and np.issubdtype(positions.dtype, np.integer)
        and positions.min() >= 0
        and positions.max() < n_samples
        and len(np.unique(positions)) == len(positions)
    )
    if not valid:
        raise ValueError(
            f"Got a part of cv that is not made of distinct positions in [0, {n_samples}),"
            " expected at least one, each once: a row that comes twice would count twice."
        )
    return positions.astype(np.intp)
