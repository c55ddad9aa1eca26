"""What trials do: fit a candidate on one part of the rows and score it on the other."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from numbers import Integral, Real
from typing import Any

import numpy as np
from joblib import parallel_config
from numpy.typing import NDArray
from sklearn.metrics import check_scoring

from skdpadmm._pipelines import last_step
from skdpadmm._row_scores import Scorer, names_of_scores

# Streams of what is drawn without data, and of the noise of scores.
COUNT, CHOICE, SPLIT, SEED, SCORE = range(5)


@contextmanager
def without_warnings() -> Iterator[None]:
    """Ignore warnings, and what joblib prints of the parts of a ColumnTransformer.

    Both would reveal how many trials ran, and those not chosen.
    """
    silence = warnings.catch_warnings(action="ignore")
    with silence, np.errstate(all="ignore"), parallel_config(verbose=0):
        yield


def public_score(scoring: Any, estimator: Any) -> Scorer:
    """A score of public rows: any scorer; a mean where it gives one number for each row."""
    last = last_step(estimator)
    scorer = check_scoring(estimator, names_of_scores(last)[0] if scoring is None else scoring)
    return partial(_mean, scorer)


def _mean(scorer: Scorer, estimator: Any, X: Any, y: Any) -> float:
    return float(np.mean(scorer(estimator, X, y)))


def split_rows(cv: Any, uniform: NDArray[np.float64]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The positions that train, and those that validate; `uniform` has a number for each row."""
    n_samples = len(uniform)
    cv = 5 if cv is None else cv
    if isinstance(cv, Real) and not isinstance(cv, bool):
        share = 1.0 / int(cv) if isinstance(cv, Integral) and int(cv) > 1 else float(cv)
        n_validation = max(1, int(n_samples * share)) if 0 < share < 1 else n_samples
        if n_validation >= n_samples:
            raise ValueError(
                f"Got cv={cv!r} for n_samples={n_samples}, expected an int of at least 2 or a share"
                " of the rows in (0, 1), with at least one row to train and one to validate."
            )
        order = np.argsort(uniform, kind="stable")
        return np.sort(order[n_validation:]), np.sort(order[:n_validation])
    if not isinstance(cv, list | tuple) or len(cv) != 1:
        raise ValueError(
            f"Got cv={cv!r}, expected an int, a share of rows, or the positions of one split,"
            " [(train, validation)]. In several folds a record would train and validate, and spend"
            " twice."
        )
    train, validation = map(np.asarray, cv[0])
    rows = np.concatenate([train, validation])
    is_valid = train.size and validation.size and rows.dtype.kind in "iu"
    is_valid = is_valid and 0 <= rows.min() <= rows.max() < n_samples
    if not is_valid or len(np.unique(rows)) < len(rows):
        raise ValueError(
            f"Got cv with parts that are not disjoint sets of distinct positions in [0,"
            f" {n_samples}), expected rows in both, each once: a row that comes twice counts twice."
        )
    return train.astype(np.intp), validation.astype(np.intp)


def public_rows(pair: Any, n_features: int) -> tuple[Any, NDArray[Any]]:
    """Rows that are declared to be public."""
    parts: Any = pair if isinstance(pair, tuple | list) and len(pair) == 2 else ((), ())
    X, y = (part if hasattr(part, "shape") else np.asarray(part) for part in parts)
    if not (X.ndim == 2 and X.shape[1] == n_features and y.shape == (X.shape[0],) != (0,)):
        raise ValueError(
            f"Got public_validation of shapes {X.shape} and {y.shape}, expected a pair"
            f" (X_validation, y_validation) of public rows, (n_rows, {n_features}) and (n_rows,)."
        )
    return X, np.asarray(y)
