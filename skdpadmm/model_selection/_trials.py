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
from joblib import parallel_config
from numpy.typing import NDArray
from sklearn.base import is_classifier
from sklearn.metrics import check_scoring

from skdpadmm._pipelines import last_step
from skdpadmm.privacy import round_down

# Streams of what is drawn without data, and of the noise of scores.
COUNT, CHOICE, SPLIT, SEED, SCORE = range(5)
_CLASSIFIER_SCORES = ("accuracy", "neg_log_loss")
_UNITS = {
    "neg_mean_squared_error": "squared units of the target",
    "neg_mean_absolute_error": "units of the target",
}
_REGRESSOR_SCORES = tuple(_UNITS)
# A declared range holds all rows, so it is about eight standard deviations of the target wide or
# more; and a model that is of use has errors of half of that deviation or less.
_ERRORS_IN_RANGE = 16
_Scorer = Callable[[Any, Any, Any], Any]


@contextmanager
def without_warnings() -> Iterator[None]:
    """Ignore warnings, and what joblib prints of the parts of a ColumnTransformer.

    Both would reveal how many trials ran, and those not chosen.
    """
    with warnings.catch_warnings(), np.errstate(all="ignore"), parallel_config(verbose=0):
        warnings.simplefilter("ignore")
        yield


def public_score(scoring: Any, estimator: Any) -> _Scorer:
    """A score of public rows: any scorer; a mean where it gives one number for each row."""
    last = last_step(estimator)
    scorer = check_scoring(estimator, _names(last)[0] if scoring is None else scoring)
    return partial(_mean, scorer)


def _mean(scorer: _Scorer, estimator: Any, X: Any, y: Any) -> float:
    return float(np.mean(scorer(estimator, X, y)))


def _names(estimator: Any) -> tuple[str, ...]:
    """The scores that have a sensitivity; the first is the default."""
    return _CLASSIFIER_SCORES if is_classifier(estimator) else _REGRESSOR_SCORES


@dataclass(frozen=True)
class RowScore:
    """A mean over rows, the score of each of which is clipped to public bounds."""

    name: str
    of_rows: _Scorer
    low: float
    high: float
    # What noise is compared with: the width, or the error that a useful model may have.
    typical: float

    @property
    def width(self) -> float:
        """The largest difference between the scores of two rows."""
        return self.high - self.low

    def describe(self) -> str:
        """Return for instance "accuracy in [0, 1]"."""
        return f"{self.name} in [{self.low:.12g}, {self.high:.12g}]"

    @property
    def unit(self) -> str:
        """The unit of the score, or its name where it has none."""
        return _UNITS.get(self.name, self.name)

    def noise(self, std: float) -> str:
        """Noise in the unit of the score, and beside what is typical."""
        beside = f"of the error of a useful model ({self.typical:.3g})"
        unit = f" {self.unit}" if self.name in _UNITS else ""
        beside = "of the width" if self.typical == self.width else beside
        return f"{round_down(std)}{unit}, {100 * std / self.typical:.3g}% {beside}"

    def sensitivity(self, n_rows: int) -> float:
        """The sensitivity of the mean over `n_rows` to one of them, with the rounding of sums."""
        # That of scores far from zero is larger than of their width.
        largest = max(self.width, -self.low, self.high)
        return self.width / n_rows * (1.0 + n_rows * 2.0**-50 * (largest / self.width))

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
        # Below one, as a sum of huge numbers may overflow.
        exponent = math.frexp(max(-self.low, self.high))[1]
        total = math.fsum(np.ldexp(clipped, -exponent).tolist())
        return math.ldexp(total / len(y), exponent)


def row_score(scoring: Any, estimator: Any, score_bounds: Any) -> RowScore:
    """The score that a search may use on private rows, with its public bounds."""
    names = _names(estimator)
    is_function = callable(scoring) and not hasattr(scoring, "_score_func")
    if not is_function and scoring not in (None, *names):
        instead = (
            "neg_log_loss, with score_bounds such as (-4, 0), rewards models that rank well"
            if names == _CLASSIFIER_SCORES
            else "neg_mean_squared_error prefers the same models as R2"
        )
        raise ValueError(
            f"Got scoring={scoring!r} for private rows, expected one of {names}, or a function of"
            " (estimator, X, y) that returns a score for each row: in a mean over rows one row has"
            " a bounded effect that noise can hide, in ranks and ratios (AUC, F1, R2) other rows"
            f" decide how large it is. Instead, {instead}; public_validation=(X, y)"
            " takes every score."
        )
    name = "the given function" if is_function else scoring or names[0]
    bounds, limits = ((0.0, 1.0) if name == "accuracy" else None), (-math.inf, math.inf)
    targets = getattr(estimator, "target_bounds", None)
    if name in _REGRESSOR_SCORES and targets is not None:
        limits = _pair(targets, "target_bounds")
        bounds = (-((limits[1] - limits[0]) ** _power(name)), 0.0)
    if score_bounds is not None:
        bounds = _pair(score_bounds, "score_bounds")
    reachable = {"accuracy": (0.0, 1.0)}.get(name, bounds)
    if bounds is None or bounds != reachable or (name.startswith("neg_") and bounds[1] > 0):
        raise ValueError(
            f"Got score_bounds={bounds!r} for {name!r}, expected the bounds that the score of a row"
            " is clipped to and can reach: (0, 1) for accuracy, for others such as (-4, 0), or"
            " target_bounds of a regressor."
        )
    of_rows = scoring if is_function else partial(_scores_of_rows, name=name, limits=limits)
    width = bounds[1] - bounds[0]
    # Squares of tiny ranges are zero, and those of huge ones infinite.
    typical = math.prod([(limits[1] - limits[0]) / _ERRORS_IN_RANGE] * _power(name)) or width
    return RowScore(name, of_rows, *bounds, min(width, typical))


def _power(name: str) -> int:
    return 2 if name == "neg_mean_squared_error" else 1


def _scores_of_rows(
    estimator: Any, X: Any, y: NDArray[Any], *, name: str, limits: tuple[float, float]
) -> NDArray[Any]:
    """The score of each row; targets and predictions of a regressor are clipped to `limits`."""
    if name == "neg_log_loss":
        # A label that is not among the classes has a probability of zero.
        is_label = y[:, None] == estimator.classes_
        return np.asarray(np.log((is_label * estimator.predict_proba(X)).sum(axis=1)))
    predicted = np.asarray(estimator.predict(X))
    if name == "accuracy":
        return predicted == y
    pair = (np.clip(np.asarray(part, dtype=np.float64), *limits) for part in (predicted, y))
    return np.asarray(-(np.abs(np.subtract(*pair)) ** _power(name)))


def _pair(bounds: Any, name: str) -> tuple[float, float]:
    try:
        low, high = (float(bound) for bound in bounds)
    except (TypeError, ValueError):
        low, high = math.nan, math.nan
    if not -math.inf < low < high < math.inf or high - low == math.inf:
        raise ValueError(f"Got {name}={bounds!r}, expected two finite numbers, the least first.")
    return low, high


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
