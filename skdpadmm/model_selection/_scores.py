"""Scores that are means over rows, each of which counts for a bounded number."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import is_classifier

_OF_CLASSES = ("accuracy", "neg_log_loss")
_OF_NUMBERS = ("neg_mean_squared_error", "neg_mean_absolute_error")


@dataclass(frozen=True, kw_only=True)
class RowScore:
    """A score of each row, clipped to public bounds; greater is better.

    Attributes
    ----------
    name : str
    of_rows : callable
        Maps a fitted estimator, rows and targets to an array of shape (n_rows,).
    low, high : float
        What the score of a row is clipped to.
    """

    name: str
    of_rows: Callable[[Any, Any, Any], NDArray[np.float64]]
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

    def mean(self, estimator: Any, X: Any, y: NDArray[Any]) -> float:
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
    """Return the score that a search may use on private rows.

    Parameters
    ----------
    scoring : str, callable or None
    estimator : estimator
        The last step.
    score_bounds : pair of floats or None

    Returns
    -------
    RowScore

    Raises
    ------
    ValueError
        Where nothing bounds what a row can do to the score, or where the bounds are not those of
        such a score.
    """
    bounds = None if score_bounds is None else _pair(score_bounds)
    if callable(scoring) and not hasattr(scoring, "_score_func"):
        if bounds is None:
            raise ValueError(
                "Got a callable scoring without score_bounds, expected them: what one row can do to"
                " the score has to be bounded. Declare the least and the largest score of a row."
            )
        return RowScore(name="the given function", of_rows=scoring, low=bounds[0], high=bounds[1])
    names = _OF_CLASSES if is_classifier(estimator) else _OF_NUMBERS
    name = name_of_score(scoring, estimator)
    if name not in names:
        raise ValueError(
            f"Got scoring={scoring!r}, expected one of {list(names)}, or a function of (estimator,"
            " X, y) that returns a score for each row, with score_bounds: exact scores of private"
            " rows have no guarantee. Scores of public rows can be any: pass public_validation."
        )
    _require_reachable(name, bounds)
    if name == "accuracy":
        return RowScore(name=name, of_rows=_is_right, low=0.0, high=1.0)
    targets = getattr(estimator, "target_bounds", None)
    if name in _OF_NUMBERS and targets is not None:
        power = 2 if name == "neg_mean_squared_error" else 1
        least, most = _pair(targets, "target_bounds")
        low = -((most - least) ** power)
        if bounds is None:
            bounds = (low, 0.0)
        loss = _ClippedLoss(power, least, most)
        return RowScore(name=name, of_rows=loss, low=bounds[0], high=bounds[1])
    if bounds is None:
        also = ", or target_bounds of the estimator" if name in _OF_NUMBERS else ""
        raise ValueError(
            f"Got scoring={name!r} without score_bounds, expected them{also}: a loss without a"
            " bound has no sensitivity. Declare the least and the largest score of a row, such as"
            " (-4, 0); scores are clipped to them."
        )
    if name == "neg_log_loss":
        return RowScore(name=name, of_rows=_log_probability, low=bounds[0], high=bounds[1])
    power = 2 if name == "neg_mean_squared_error" else 1
    loss = _ClippedLoss(power, -math.inf, math.inf)
    return RowScore(name=name, of_rows=loss, low=bounds[0], high=bounds[1])


@dataclass(frozen=True)
class _ClippedLoss:
    """Minus a power of the error, of targets and predictions within bounds."""

    power: int
    least: float
    most: float

    def __call__(self, estimator: Any, X: Any, y: NDArray[Any]) -> NDArray[np.float64]:
        predicted, target = (
            np.clip(np.asarray(values, dtype=np.float64), self.least, self.most)
            for values in (estimator.predict(X), y)
        )
        return np.asarray(-(np.abs(predicted - target) ** self.power))


def _is_right(estimator: Any, X: Any, y: NDArray[Any]) -> NDArray[np.float64]:
    return np.asarray(estimator.predict(X) == y, dtype=np.float64)


def _log_probability(estimator: Any, X: Any, y: NDArray[Any]) -> NDArray[np.float64]:
    """Logarithm of the probability of the true label; minus infinity for an unknown one."""
    position = {label: k for k, label in enumerate(estimator.classes_.tolist())}
    index = np.array([position.get(label, -1) for label in y.tolist()], dtype=np.intp)
    logs = np.log(estimator.predict_proba(X))[np.arange(len(y)), index]
    return np.where(index < 0, -np.inf, logs)


def _require_reachable(name: str, bounds: tuple[float, float] | None) -> None:
    """Refuse bounds that scores of that name leave, or that are wider than they need to be."""
    if bounds is None:
        return
    if name == "accuracy" and bounds != (0.0, 1.0):
        raise ValueError(
            f"Got score_bounds={bounds!r} for 'accuracy', expected (0, 1) or None: a row counts as"
            " 0 or 1. Leave score_bounds out."
        )
    if name != "accuracy" and bounds[1] > 0:
        raise ValueError(
            f"Got score_bounds={bounds!r} for {name!r}, expected a largest score of at most 0: it"
            " is minus a loss, which no row has above 0. Declare for instance"
            f" ({-max(map(abs, bounds)):.12g}, 0)."
        )


def _pair(bounds: Any, name: str = "score_bounds") -> tuple[float, float]:
    try:
        low, high = (float(bound) for bound in bounds)
    except (TypeError, ValueError):
        low, high = math.nan, math.nan
    if not -math.inf < low < high < math.inf:
        raise ValueError(
            f"Got {name}={bounds!r}, expected two finite numbers, the least and the largest."
        )
    return low, high
