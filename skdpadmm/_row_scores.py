"""Means over rows of scores that are clipped to public bounds."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import is_classifier

from skdpadmm.privacy import round_down

_CLASSIFIER_SCORES = ("accuracy", "neg_log_loss")
_UNITS = {
    "neg_mean_squared_error": "squared units of the target",
    "neg_mean_absolute_error": "units of the target",
}
_REGRESSOR_SCORES = tuple(_UNITS)
# A declared range holds all rows, so it is about eight standard deviations of the target wide or
# more; and a model that is of use has errors of half of that deviation or less.
_ERRORS_IN_RANGE = 16
Scorer = Callable[[Any, Any, Any], Any]


def names_of_scores(estimator: Any) -> tuple[str, ...]:
    """The scores that have a sensitivity; the first is the default."""
    return _CLASSIFIER_SCORES if is_classifier(estimator) else _REGRESSOR_SCORES


@dataclass(frozen=True)
class RowScore:
    """A mean over rows, the score of each of which is clipped to public bounds."""

    name: str
    of_rows: Scorer
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

    def clipped(self, estimator: Any, X: Any, y: NDArray[Any]) -> NDArray[np.float64]:
        """The score of each row, clipped; what is not finite counts as `low`."""
        # A warning of floating point would depend on data.
        with np.errstate(all="ignore"):
            scores = np.asarray(self.of_rows(estimator, X, y), dtype=np.float64)
            if scores.shape != (len(y),):
                raise ValueError(
                    f"Got scores of shape {scores.shape} from scoring={self.name}, expected"
                    f" ({len(y)},): one for each row."
                )
            return np.clip(finite_or(self.low, scores), self.low, self.high)

    def __call__(self, estimator: Any, X: Any, y: NDArray[Any]) -> float:
        """The mean of the clipped scores."""
        # Below one, as a sum of huge numbers may overflow.
        exponent = math.frexp(max(-self.low, self.high))[1]
        total = math.fsum(np.ldexp(self.clipped(estimator, X, y), -exponent).tolist())
        return math.ldexp(total / len(y), exponent)


def row_score(scoring: Any, estimator: Any, score_bounds: Any) -> RowScore:
    """The score that a search may use on private rows, with its public bounds."""
    names = names_of_scores(estimator)
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
        limits = pair_of_bounds(targets, "target_bounds")
        bounds = (-((limits[1] - limits[0]) ** _power(name)), 0.0)
    if score_bounds is not None:
        bounds = pair_of_bounds(score_bounds, "score_bounds")
    reachable = {"accuracy": (0.0, 1.0)}.get(name, bounds)
    if bounds is None or bounds != reachable or (name.startswith("neg_") and bounds[1] > 0):
        raise ValueError(
            f"Got score_bounds={bounds!r} for {name!r}, expected the bounds that the score of a row"
            " is clipped to and can reach: (0, 1) for accuracy, for others such as (-4, 0), or"
            " target_bounds of a regressor."
        )
    of_rows = scoring if is_function else partial(scores_of_rows, name=name, limits=limits)
    width = bounds[1] - bounds[0]
    # Squares of tiny ranges are zero, and those of huge ones infinite.
    typical = math.prod([(limits[1] - limits[0]) / _ERRORS_IN_RANGE] * _power(name)) or width
    return RowScore(name, of_rows, *bounds, min(width, typical))


def _power(name: str) -> int:
    return 2 if name == "neg_mean_squared_error" else 1


def scores_of_rows(
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
    return np.asarray(-(errors_of_rows(predicted, y, limits) ** _power(name)))


def errors_of_rows(
    predicted: NDArray[Any], y: NDArray[Any], limits: tuple[float, float]
) -> NDArray[Any]:
    """Absolute errors, where targets and predictions are clipped to `limits`."""
    pair = (np.clip(np.asarray(part, dtype=np.float64), *limits) for part in (predicted, y))
    return np.abs(np.subtract(*pair))


def finite_or(other: float, values: NDArray[Any]) -> NDArray[np.float64]:
    """Values, or another one where they are not finite."""
    numbers = np.asarray(values, dtype=np.float64)
    return np.where(np.isfinite(numbers), numbers, other)


def pair_of_bounds(bounds: Any, name: str) -> tuple[float, float]:
    try:
        low, high = (float(bound) for bound in bounds)
    except (TypeError, ValueError):
        low, high = math.nan, math.nan
    if not -math.inf < low < high < math.inf or high - low == math.inf:
        raise ValueError(f"Got {name}={bounds!r}, expected two finite numbers, the least first.")
    return low, high
