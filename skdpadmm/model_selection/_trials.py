"""What trials do: fit a candidate on one part of the rows and score it on the other."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import is_classifier
from sklearn.metrics import check_scoring
from sklearn.model_selection import PredefinedSplit, ShuffleSplit

from skdpadmm._candidates import last_step

# Streams of what is drawn without data, and of the noise of scores.
COUNT, CHOICE, SPLIT, SEED, SCORE = range(5)
_OF_CLASSES = ("accuracy", "neg_log_loss")
_OF_NUMBERS = ("neg_mean_squared_error", "neg_mean_absolute_error")
_Scorer = Callable[[Any, Any, Any], Any]


@contextmanager
def unheard() -> Iterator[None]:
    """Without warnings: they would tell how many trials ran, and of those not chosen."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        yield


def public_score(scoring: Any, estimator: Any) -> _Scorer:
    """A score of public rows: any scorer; a mean where it gives one number for each row."""
    return partial(_mean, check_scoring(estimator, name_of_score(scoring, last_step(estimator))))


def _mean(scorer: _Scorer, estimator: Any, X: Any, y: Any) -> float:
    return float(np.mean(scorer(estimator, X, y)))


@dataclass(frozen=True)
class RowScore:
    """A mean over rows, the score of each of which is clipped to public bounds."""

    name: str
    of_rows: _Scorer
    low: float
    high: float

    @property
    def width(self) -> float:
        """How far the scores of two rows can be apart."""
        return self.high - self.low

    def describe(self) -> str:
        """Return for instance "accuracy in [0, 1]"."""
        return f"{self.name} in [{self.low:.12g}, {self.high:.12g}]"

    def sensitivity(self, n_rows: int) -> float:
        """How far one row can move the mean over that many, with the rounding of sums."""
        return self.width / n_rows * (1.0 + n_rows * 2.0**-50)

    def __call__(self, estimator: Any, X: Any, y: NDArray[Any]) -> float:
        """The mean of the clipped scores; what is not finite counts as `low`."""
        # A warning of floating point would depend on data.
        with np.errstate(all="ignore"):
            scores = np.asarray(self.of_rows(estimator, X, y), dtype=np.float64)
            if scores.shape != (len(y),):
                raise ValueError(
                    f"Got scores of shape {scores.shape} from scoring={self.name}, expected"
                    f" ({len(y)},): one for each row."
                )
            clipped = np.clip(np.where(np.isfinite(scores), scores, self.low), self.low, self.high)
        return math.fsum(clipped.tolist()) / len(y)


def name_of_score(scoring: Any, estimator: Any) -> Any:
    """The score that is asked for, by its name where it was left to the search."""
    if scoring is not None:
        return scoring
    return _OF_CLASSES[0] if is_classifier(estimator) else _OF_NUMBERS[0]


def row_score(scoring: Any, estimator: Any, score_bounds: Any) -> RowScore:
    """Return the score that a search may use on private rows, with its public bounds."""
    names = _OF_CLASSES if is_classifier(estimator) else _OF_NUMBERS
    name = name_of_score(scoring, estimator)
    is_given = callable(scoring) and not hasattr(scoring, "_score_func")
    if not is_given and name not in names:
        raise ValueError(
            f"Got scoring={scoring!r}, expected one of {list(names)}, or a function of (estimator,"
            " X, y) that returns a score for each row, with score_bounds: exact scores of private"
            " rows have no guarantee. With public_validation it can be any."
        )
    name = "the given function" if is_given else name
    power = 2 if name == "neg_mean_squared_error" else 1
    least, most = -math.inf, math.inf
    bounds = (0.0, 1.0) if name == "accuracy" else None
    targets = getattr(estimator, "target_bounds", None)
    if name in _OF_NUMBERS and targets is not None:
        least, most = _pair(targets, "target_bounds")
        bounds = (-((most - least) ** power), 0.0)
    if score_bounds is not None:
        bounds = _pair(score_bounds, "score_bounds")
    if bounds is None:
        raise ValueError(
            f"Got scoring={scoring!r} without score_bounds, expected the bounds that the score of a"
            " row is clipped to, such as (-4, 0), or target_bounds of a regressor."
        )
    low, high = bounds
    possible = f"({-max(map(abs, bounds)):.12g}, 0)" if name != "accuracy" else "(0, 1)"
    if bounds != (0.0, 1.0) if name == "accuracy" else high > 0 and not is_given:
        raise ValueError(
            f"Got score_bounds={bounds!r} for {name!r}, expected bounds that its scores can reach,"
            f" such as {possible}."
        )
    if is_given:
        return RowScore(name, scoring, low, high)
    of_error = partial(_minus_error, power=power, least=least, most=most)
    of_rows = {"accuracy": _is_right, "neg_log_loss": _log_probability}.get(name, of_error)
    return RowScore(name, of_rows, low, high)


def _minus_error(
    estimator: Any, X: Any, y: NDArray[Any], *, power: int, least: float, most: float
) -> NDArray[np.float64]:
    """Minus a power of the error, of targets and predictions within bounds."""
    predicted = np.clip(np.asarray(estimator.predict(X), dtype=np.float64), least, most)
    target = np.clip(np.asarray(y, dtype=np.float64), least, most)
    return np.asarray(-(np.abs(predicted - target) ** power))


def _is_right(estimator: Any, X: Any, y: NDArray[Any]) -> NDArray[np.float64]:
    return np.asarray(estimator.predict(X) == y, dtype=np.float64)


def _log_probability(estimator: Any, X: Any, y: NDArray[Any]) -> NDArray[np.float64]:
    """Logarithm of the probability of the true label; minus infinity for an unknown one."""
    position = {label: k for k, label in enumerate(estimator.classes_.tolist())}
    index = np.array([position.get(label, -1) for label in y.tolist()], dtype=np.intp)
    logs = np.log(estimator.predict_proba(X))[np.arange(len(y)), index]
    return np.where(index < 0, -np.inf, logs)


def _pair(bounds: Any, name: str) -> tuple[float, float]:
    try:
        low, high = (float(bound) for bound in bounds)
    except (TypeError, ValueError):
        low, high = math.nan, math.nan
    if not -math.inf < low < high < math.inf:
        raise ValueError(
            f"Got {name}={bounds!r}, expected two finite numbers, the least and the largest."
        )
    return low, high


def split_rows(cv: Any, uniform: NDArray[np.float64]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The positions that train, and those that validate; `uniform` has a number for each row."""
    n_samples = len(uniform)
    cv = 5 if cv is None else cv
    if isinstance(cv, Real) and not isinstance(cv, bool):
        share = float(cv)
        if isinstance(cv, Integral) and share > 1:
            share = 1.0 / int(cv)
        n_validation = max(1, int(n_samples * share)) if 0 < share < 1 else n_samples
        if n_validation >= n_samples:
            raise ValueError(
                f"Got cv={cv!r} for n_samples={n_samples}, expected an int of at least 2 or a share"
                " of the rows in (0, 1), with at least one row to train and one to validate."
            )
        order = np.argsort(uniform, kind="stable")
        return np.sort(order[n_validation:]), np.sort(order[:n_validation])
    pairs = list(cv) if isinstance(cv, list | tuple) else []
    if isinstance(cv, ShuffleSplit | PredefinedSplit):
        # The rows themselves are not shown to it.
        pairs = list(cv.split(np.zeros((n_samples, 1))))
    if len(pairs) != 1:
        raise ValueError(
            f"Got cv={cv!r} with {len(pairs)} splits that no row changes, expected one: an int, a"
            " share of rows, ShuffleSplit(n_splits=1), a PredefinedSplit or one pair of positions"
            " in a list. In several folds a record would train and validate, and each would cost."
        )
    parts = [np.asarray(part) for part in pairs[0]]
    parts = [np.flatnonzero(part) if part.dtype == bool else part for part in parts]
    is_valid = all(part.ndim == 1 and part.size and part.dtype.kind in "iu" for part in parts)
    rows = np.concatenate(parts) if is_valid else np.array([-1])
    if rows.min() < 0 or rows.max() >= n_samples or len(np.unique(rows)) < len(rows):
        raise ValueError(
            f"Got cv with parts that are not disjoint sets of distinct positions in [0,"
            f" {n_samples}), expected rows in both, each once: a row that comes twice counts twice."
        )
    train, validation = (part.astype(np.intp) for part in parts)
    return train, validation


def rows_at(X: Any, positions: NDArray[np.intp]) -> Any:
    """Rows of an array, a sparse matrix or a table."""
    return X.iloc[positions] if hasattr(X, "iloc") else X[positions]


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
