"""Scores of a model on private rows, released with noise and with intervals."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri
from sklearn.base import is_classifier
from sklearn.utils import check_consistent_length, column_or_1d

from skdpadmm._document import Block, Document
from skdpadmm._numbers import require, require_count, require_positive
from skdpadmm._pipelines import last_step
from skdpadmm._row_scores import errors_of_rows, finite_or, pair_of_bounds
from skdpadmm._sklearn import discreet
from skdpadmm._statistics import STATISTICS, plan_statistics, run_statistics
from skdpadmm.privacy import Neighboring, PrivacyReport
from skdpadmm.protocol import Gate

__all__ = ["PrivateScores", "Score", "private_score"]

Array = NDArray[np.float64]
# Beside sums of t in [-1, 1] those of 1.6 t^2 cost nothing: `Neighboring.target_moments_factor`.
_SQUARES = 1.6
# A count of rows below so many standard deviations of its noise says nothing.
_HIDDEN = 3.0
_OF_CLASSES = ("accuracy", "balanced_accuracy", "log_loss", "confusion_matrix", "calibration")
_OF_NUMBERS = ("r2", "mean_squared_error", "mean_absolute_error")
# The parts of the released vector that a score is computed from, if not its own.
_PARTS = {"balanced_accuracy": ("confusion_matrix",), "r2": ("mean_squared_error", "target")}


class Score(NamedTuple):
    """A score with its interval and the standard deviation of its noise.

    The estimate is nan where noise hides it; the interval is what is still known.

    Parameters
    ----------
    estimate, lower, upper, noise_std : float

    Examples
    --------
    >>> from skdpadmm.metrics import Score
    >>> Score(0.81, 0.79, 0.83, 0.004).estimate
    0.81
    """

    estimate: float
    lower: float
    upper: float
    noise_std: float


class _Part(NamedTuple):
    """A part of the vector: counts, or moments of a score of rows; its shape and sensitivity."""

    shape: tuple[int, ...]
    sensitivity: float
    # Its sensitivity as a change of the score, in rows: the budget is shared in proportion, which
    # makes the sum of variances least.
    importance: float
    # Of the score of a row, the worst first.
    ends: tuple[float, float] | None = None


@dataclass(frozen=True, eq=False, repr=False)
class PrivateScores(Document):
    """Scores that `private_score` released.

    Attributes
    ----------
    scores : dict of str to Score
        With intervals of noise and sampling together.
    level : float
        Of each interval by itself.
    confusion_matrix : ndarray of shape (n_classes, n_classes) or None
        Noisy counts of rows by label and prediction.
    calibration : ndarray of shape (n_bins, 6) or None
        For each bin of probabilities: its ends, the noisy count of rows, the share of them that is
        of the class, and the interval of this share; nan where noise hides the count.
    classes : tuple
        Labels of the classifier.
    privacy_ : PrivacyReport

    See Also
    --------
    private_score : Release them.
    """

    scores: dict[str, Score]
    level: float
    confusion_matrix: Array | None
    calibration: Array | None
    classes: tuple[Any, ...]
    privacy_: PrivacyReport

    def _blocks(self) -> Iterator[Block]:
        yield Block("title", [f"Private scores with {100 * self.level:g} % intervals"])
        rows: list[tuple[str, ...]] = [
            (name, f"{s.estimate:.4g}", f"{s.lower:.4g} to {s.upper:.4g}", f"{s.noise_std:.2g}")
            for name, s in self.scores.items()
        ]
        yield Block("table", ["score", "estimate", "interval", "noise std"], rows)
        if self.confusion_matrix is not None:
            cells = zip(self.classes, self.confusion_matrix, strict=True)
            rows = [(f"label {label}", *(f"{n:.0f}" for n in line)) for label, line in cells]
            yield Block("table", ["rows", *(f"predicted {label}" for label in self.classes)], rows)
        if self.calibration is not None:
            rows = [
                (f"{a:.2g} to {b:.2g}", f"{n:.0f}", f"{share:.3f}", f"{low:.3f} to {high:.3f}")
                for a, b, n, share, low, high in self.calibration.tolist()
            ]
            yield Block("table", ["probability", "rows", "share", "interval"], rows)
        yield from self.privacy_._blocks()


@discreet
def private_score(
    model: Any,
    X: Any,
    y: ArrayLike,
    epsilon: float,
    *,
    scores: Sequence[str] | None = None,
    delta: float = 1e-5,
    level: float = 0.95,
    target_bounds: tuple[float, float] | None = None,
    log_loss_bound: float = 4.0,
    n_bins: int = 10,
    neighboring: str = "replace_one",
    random_state: Any = None,
    sampler: str = "floating-point",
    ledger: str | os.PathLike[str] | None = None,
) -> PrivateScores:
    r"""Release scores of a fitted model on private rows, with intervals, in one noisy vector.

    Parameters
    ----------
    model : estimator or Pipeline
        A fitted classifier or regressor of any library, which predicts each row by itself.
    X : array-like or DataFrame of shape (n_samples, n_features)
        Rows that the model takes.
    y : array-like of shape (n_samples,)
        Labels or targets. A label that is not among ``model.classes_`` is wrong, has a probability
        of 0 and is not in the confusion matrix.
    epsilon : float
        The budget of this release, in (0, inf]. At inf nothing is private.
    scores : sequence of str, default=None
        Of a classifier "accuracy", "balanced_accuracy", "log_loss", "confusion_matrix" and
        "calibration", the last of the second of two classes, and of the predicted class of more;
        of a regressor "r2", "mean_squared_error" and "mean_absolute_error". None: all; fewer have
        less noise.
    delta : float, default=1e-5
        In (0, 1), well below ``1 / n_samples``.
    level : float, default=0.95
        Of each interval, in (0, 1).
    target_bounds : pair of floats, default=None
        Public range that targets and predictions of a regressor are clipped to. None: that of the
        model. Noise of the mean squared error and of R2 is proportional to its squared width.
    log_loss_bound : float, default=4.0
        The log-loss of a row is clipped to it. Its noise is proportional to it.
    n_bins : int, default=10
        Bins of equal width of the calibration table.
    neighboring : {"replace_one", "zero_out"}, default="replace_one"
        A record that is zeroed out adds nothing to any sum.
    random_state : int, RandomState instance, Generator or None, default=None
        None draws noise from the operating system. Anything else makes the release a simulation.
    sampler : {"floating-point", "opendp"}, default="floating-point"
    ledger : str, path-like or None, default=None
        The account that the release is counted in, before data is read. Rows that no fit has used
        are a data set of their own, ``"study.db::test"``.

    Returns
    -------
    scores : PrivateScores

    Raises
    ------
    ValueError
        If a parameter is not valid, or a score has no bounded sensitivity, such as AUC.
    PrivacyBudgetExceeded
        If a limit of the ledger would be passed; no data was read then.

    Notes
    -----
    **Guarantee.** Unit: one record; adversary "model", whoever sees the scores and the model. The
    vector has for each row the one cell of the confusion matrix and of the calibration table that
    it is in, and for its accuracy, log-loss, errors and target, mapped from their bounds to
    :math:`t \in [-1, 1]`, the moments :math:`(t, 1.6 \, t^2)`. One record changes each part by
    its sensitivity at most, all of them at once for some records: parts are scaled so that the sum
    of squared sensitivities is 1. The model is taken as released: it was fitted on other rows, or
    its own guarantee composes with this one.

    **Intervals** are normal, of noise and sampling together. That of R2 is Fieller's, of a ratio
    of two means, with a bound of the fourth moment of the target and covariance 0 with errors. A
    score is nan where noise hides its denominator: its interval is then wide or one-sided.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpadmm import DPAdmmLogisticRegression
    >>> from skdpadmm.metrics import private_score
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(10_000, 3))
    >>> y = (X[:, 0] + 0.5 * rng.standard_normal(10_000) > 0).astype(int)
    >>> model = DPAdmmLogisticRegression(classes=[0, 1], feature_bounds=(-1, 1), random_state=0)
    >>> model = model.fit(X[:5000], y[:5000])
    >>> scores = private_score(model, X[5000:], y[5000:], 1.0, random_state=0).scores
    >>> score = scores["accuracy"]
    >>> f"{score.estimate:.3f}, {score.lower:.3f} to {score.upper:.3f}"
    '0.800, 0.788 to 0.811'
    """
    require(0 < level < 1, "level", level, "a float in (0, 1), such as 0.95")
    require_count(n_bins, "n_bins")
    require_positive(log_loss_bound, "log_loss_bound")
    # In a list one text would make all labels text.
    targets = column_or_1d(y if hasattr(y, "dtype") else np.asarray(y, dtype=object))
    check_consistent_length(X, targets)
    names = _known_scores(model, scores)
    classes = tuple(np.asarray(model.classes_).tolist()) if is_classifier(model) else ()
    if target_bounds is None:
        target_bounds = getattr(last_step(model), "target_bounds", None)
    limits = (-log_loss_bound, 0.0) if classes else pair_of_bounds(target_bounds, "target_bounds")
    width, n_samples, n = limits[1] - limits[0], len(targets), len(classes)
    require(1e-70 <= width <= 1e70, "width of bounds", width, "a size between 1e-70 and 1e70")
    parts = _parts(names, n, n_bins, limits, Neighboring(neighboring))
    total = sum(part.importance for part in parts.values())
    weights = {k: math.sqrt(p.importance / total) / p.sensitivity for k, p in parts.items()}
    plan = plan_statistics(
        "private_score",
        (sum(math.prod(part.shape) for part in parts.values()),),
        # With the rounding of sums of numbers in [-1, 1], or up to 1.6, and of their weights.
        1.0 + n_samples * 2.0**-49,
        epsilon=epsilon,
        delta=delta,
        neighboring=neighboring,
        n_samples=n_samples,
        schema=repr((names, classes, n_bins, limits)),
    )

    def release(gate: Gate) -> Array:
        predicted = column_or_1d(np.asarray(model.predict(X)))
        labels, chances = targets, np.empty((0, 0))
        check_consistent_length(predicted, targets)
        if classes:
            predicted, labels = _codes(predicted, classes, -2), _codes(targets, classes, -1)
        if not parts.keys().isdisjoint({"log_loss", "calibration"}):
            chances, shape = np.asarray(model.predict_proba(X), dtype=np.float64), (n_samples, n)
            require(chances.shape == shape, "shape of predict_proba(X)", chances.shape, f"{shape}")
        rows = limits, labels, predicted, chances
        sums = [weights[name] * _sums(name, part, *rows) for name, part in parts.items()]
        return gate.release(STATISTICS, np.concatenate(sums))

    noisy, report = run_statistics(
        plan,
        release,
        sees="the scores, and the model before",
        assumptions=(
            "The model is public: it was fitted on other rows, or its guarantee is counted beside"
            " this one.",
            "The model predicts each row by itself: no step compares rows that are predicted.",
        ),
        random_state=random_state,
        sampler=sampler,
        ledger=ledger,
    )
    ends = np.cumsum([math.prod(part.shape) for part in parts.values()])[:-1]
    pieces = zip(parts.items(), np.split(noisy, ends), strict=True)
    values = {k: piece.reshape(p.shape) / weights[k] for (k, p), piece in pieces}
    stds = {name: plan.releases[0].noise_std / weight for name, weight in weights.items()}
    z, table = float(ndtri(0.5 + level / 2)), None
    with np.errstate(all="ignore"):
        released = _scores(parts, values, stds, n_samples, z)
        if (counts := values.get("calibration")) is not None:
            share, std, variance = _ratio(counts[:, 1], counts[:, 0], stds["calibration"], 1)
            reach, edges = z * np.sqrt(std**2 + variance), np.linspace(0, 1, n_bins + 1)
            interval = np.clip([share - reach, share + reach], 0, 1)
            table = np.column_stack([edges[:-1], edges[1:], counts.sum(axis=1), share, *interval])
    return PrivateScores(
        {name: _with_interval(z, *released[name]) for name in names if name in released},
        level,
        values.get("confusion_matrix") if "confusion_matrix" in names else None,
        table,
        classes,
        report,
    )


def _known_scores(model: Any, scores: Sequence[str] | None) -> tuple[str, ...]:
    """The scores to release; AUC and unknown ones are refused."""
    known = list(_OF_CLASSES if is_classifier(model) else _OF_NUMBERS)
    if not hasattr(model, "predict_proba"):
        known = [name for name in known if name not in ("log_loss", "calibration")]
    chosen = tuple(known if scores is None else scores)
    if isinstance(scores, str) or not 0 < len(set(chosen)) == len(chosen) or {*chosen} - {*known}:
        raise ValueError(
            f"Got scores={scores!r}, expected some of {known}, each a sum over rows that one row"
            " changes by a bounded amount. AUC is a mean over pairs: one row is in a share of pairs"
            " that depends on how many rows its class has, which is private; calibration shows"
            " whether chances are right, and log_loss how well they rank and separate."
        )
    return tuple(name for name in known if name in chosen)


def _parts(
    names: Sequence[str],
    n_classes: int,
    n_bins: int,
    limits: tuple[float, float],
    neighboring: Neighboring,
) -> dict[str, _Part]:
    """The parts that scores are made of, with their sensitivities, from public facts."""
    width, factor = limits[1] - limits[0], neighboring.target_moments_factor
    counts = math.sqrt(neighboring.sensitivity_factor)
    known = {
        "accuracy": _Part((2,), factor, factor * 0.5, (0.0, 1.0)),
        "confusion_matrix": _Part((n_classes, n_classes), counts, counts),
        "log_loss": _Part((2,), factor, factor * (width / 2), (width, 0.0)),
        "calibration": _Part((n_bins, 2), counts, counts),
        # In squared half-widths of the bounds of the target, or in one.
        "mean_squared_error": _Part((2,), factor, factor * 2.0, (width**2, 0.0)),
        "mean_absolute_error": _Part((2,), factor, factor, (width, 0.0)),
        "target": _Part((2,), factor, factor * 0.5, limits),
    }
    return {part: known[part] for name in names for part in _PARTS.get(name, (name,))}


def _with_interval(
    z: float, value: float, noise_std: float, variance: float, low: float, high: float
) -> Score:
    """A score between its ends, which are the interval of one that noise hides."""
    reach = z * math.sqrt(noise_std**2 + variance)
    lower, upper = np.fmax(value - reach, low), np.fmin(value + reach, high)
    return Score(float(np.clip(value, low, high)), float(lower), float(upper), float(noise_std))


def _codes(labels: NDArray[Any], classes: tuple[Any, ...], unknown: int) -> NDArray[np.intp]:
    """The number of each label among the classes, at most one: labels may equal anything."""
    known = {label: code for code, label in enumerate(classes)}
    return np.array([known.get(label, unknown) for label in labels.tolist()], dtype=np.intp)


def _sums(
    name: str,
    part: _Part,
    limits: tuple[float, float],
    labels: NDArray[Any],
    predicted: NDArray[Any],
    chances: Array,
) -> Array:
    """A part of the vector, without noise; labels are numbers of classes, below 0 for others."""
    rows = np.arange(len(labels))
    if part.ends is not None:
        if name == "accuracy":
            values = predicted == labels
        elif name == "log_loss":
            values = -np.log(np.where(labels < 0, 0.0, chances[rows, labels]))
        elif name == "target":
            values = labels
        else:
            power = 2 if name == "mean_squared_error" else 1
            values = errors_of_rows(predicted, labels, limits) ** power
        worst, half = part.ends[0], part.ends[1] / 2 - part.ends[0] / 2
        t = np.clip((finite_or(worst, values) - (worst + half)) / half, -1.0, 1.0)
        return np.array([math.fsum(t.tolist()), _SQUARES * math.fsum((t * t).tolist())])
    if name == "confusion_matrix":
        known, n_classes = (labels >= 0) & (predicted >= 0), part.shape[0]
        cells = n_classes * labels[known] + predicted[known]
    else:
        # Of two classes the second, of more the predicted one.
        of = np.ones_like(rows) if chances.shape[1] == 2 else chances.argmax(axis=1)
        inner = np.linspace(0, 1, part.shape[0] + 1)[1:-1]
        cells = 2 * np.searchsorted(inner, chances[rows, of]) + (labels == of)
    return np.bincount(cells, minlength=math.prod(part.shape)).astype(np.float64)


def _scores(
    parts: dict[str, _Part],
    values: dict[str, Array],
    stds: dict[str, float],
    n_samples: int,
    z: float,
) -> dict[str, tuple[float, ...]]:
    """Estimates, their noise, their variance as of a sample, and ends, from noisy sums alone."""
    scores: dict[str, tuple[float, ...]] = {}
    for name, part in parts.items():
        if part.ends is None:
            continue
        worst, half = part.ends[0], part.ends[1] / 2 - part.ends[0] / 2
        std = stds[name] / n_samples
        t, square = values[name] / n_samples / (1.0, _SQUARES)
        if name == "target":
            spread, error = square - t * t, scores["mean_squared_error"]
            noise = std * math.hypot(1 / _SQUARES, 2 * t)
            # Squares of numbers in [-1 - |t|, 1 + |t|], whose mean is `spread`.
            of_spread = max(spread * ((1 + abs(t)) ** 2 - spread), 0.0) / n_samples
            # In squared half-widths, as the spread.
            mean, error_noise, variance = error[0] / half**2, error[1] / half**2, error[2] / half**4
            ratio = mean / spread if spread > _HIDDEN * noise else math.nan
            noise_std = math.hypot(error_noise, ratio * noise) / spread
            least, most = _ends_of_ratio(
                mean, spread, error_noise**2 + variance, noise**2 + of_spread, z
            )
            # The interval is not symmetric, and there if noise hides the score.
            scores["r2"] = (1 - ratio, noise_std, math.inf, 1 - most, 1 - max(least, 0.0))
            continue
        t = float(np.clip(t, -1.0, 1.0))
        # On the safe side of its noise, and no more than that of a score at its ends.
        spread = min(max(square + std / _SQUARES - t * t, 0.0), 1.0 - t * t)
        value, variance = worst + half * (1.0 + t), half * half * spread / n_samples
        scores[name] = (value, abs(half) * std, variance, *sorted(part.ends))
    if "confusion_matrix" in parts:
        matrix, std = values["confusion_matrix"], stds["confusion_matrix"]
        right, n_classes = np.diag(matrix), len(matrix)
        shares = np.array(_ratio(right, matrix.sum(axis=1) - right, std, n_classes - 1))
        # Without noise, classes without rows do not count, as in scikit-learn.
        recall, noise, variances = shares[:, ~np.isnan(shares[0]) | (std > 0)]
        k = len(recall)
        noise_std, variance = np.sqrt((noise**2).sum()) / k, variances.sum() / np.square(k)
        scores["balanced_accuracy"] = (recall.sum() / k, noise_std, variance, 0.0, 1.0)
    return scores


def _ends_of_ratio(
    above: float, below: float, var_above: float, var_below: float, z: float
) -> tuple[float, float]:
    """Fieller's interval of a ratio of two means that are not below 0; its end may be infinite."""
    a, b, c = below**2 - z**2 * var_below, above * below, above**2 - z**2 * var_above
    # Ratios r with (above - r below)^2 <= z^2 (var_above + r^2 var_below).
    inside = b * b - a * c
    if a > 0:  # the sign of `below` is known
        root = math.sqrt(max(inside, 0.0))
        return ((b - root) / a, (b + root) / a) if below > 0 else (0.0, math.inf)
    return (c / (b + math.sqrt(inside)) if c > 0 and inside > 0 else 0.0), math.inf


def _ratio(part: Array, rest: Array, std: float, n_rest: int) -> tuple[Array, Array, Array]:
    """Shares of noisy counts, their noise, and variance as of a sample; nan where it is hidden."""
    rows = part + rest
    rows = np.where(rows > _HIDDEN * std * math.sqrt(1 + n_rest), rows, np.nan)
    share = np.clip(part / rows, 0.0, 1.0)
    noise_std = std * np.sqrt((1 - share) ** 2 + n_rest * share**2) / rows
    # Agresti and Coull: a sample of few rows is not sure of a share of 0 or 1.
    near = (share * rows + 2) / (rows + 4)
    return share, noise_std, near * (1 - near) / (rows + 4)
