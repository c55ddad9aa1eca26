"""Public coordinates, which follow from declared bounds, and a released basis."""

from __future__ import annotations

import hashlib
import math
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.preprocessing import StandardScaler

Floats = NDArray[np.float64]

# A target that was not declared is clipped to this interval: it suits a standardised one.
UNDECLARED_TARGET_BOUNDS = (-3.0, 3.0)
# Counts below the upper bound over this are alike where a usual one is looked for.
COUNT_RANGE = 64.0
# Rows of so many entries are squared at once.
MOMENT_ENTRIES = 2**20
# Norm of a row of the declared norm, over the square root of the number of parameters: that of a
# typical row whose features fill declared bounds.
ROW_NORM = 0.6


@dataclass(frozen=True, eq=False, kw_only=True)
class Coordinates:
    """An affine change of variables, the box that it maps to [-1, 1], and a bound of the row norm.

    Attributes
    ----------
    lower, upper : ndarray of shape (n_features,)
        The box outside of which features are clipped; infinite where nothing was declared.
    offset, scale : ndarray of shape (n_features,)
        A feature ``x`` is seen as ``(x - offset) / scale``.
    target_lower, target_upper : float
        The interval to which targets are clipped.
    target_offset, target_scale : float
        A target ``y`` is seen as ``(y - target_offset) / target_scale``; with a log link as
        ``y / exp(target_offset)``, and scores without that offset.
    target_unit : float
        What residuals are relative to, beside what defaults expect; clip bounds follow it.
    row_norm : float
        Augmented rows are scaled down to this Euclidean norm; infinite: never.
    features_norm : float
        The declared bound of the norm of a row's features, in the user's units; infinite: none.
    fit_intercept : bool
        Whether augmented rows end in a one.
    has_target_scale : bool
        Whether targets are scaled: those of losses of a residual.
    has_log_link : bool
        Whether scores are logarithms of rates, of which targets are multiples.
    """

    lower: Floats
    upper: Floats
    offset: Floats
    scale: Floats
    target_lower: float = -np.inf
    target_upper: float = np.inf
    target_offset: float = 0.0
    target_scale: float = 1.0
    target_unit: float = 1.0
    row_norm: float
    features_norm: float = np.inf
    fit_intercept: bool
    has_target_scale: bool
    has_log_link: bool = False

    @property
    def n_features(self) -> int:
        """Number of features, without the intercept."""
        return len(self.offset)

    @property
    def n_parameters(self) -> int:
        """Number of parameters of one score: the features and the intercept."""
        return self.n_features + int(self.fit_intercept)

    @property
    def has_standard_target(self) -> bool:
        """Whether targets have the interval of those that were not declared."""
        return (self.target_lower, self.target_upper) == UNDECLARED_TARGET_BOUNDS

    @property
    def unit(self) -> float:
        """What a target of one is in the user's units."""
        return math.exp(self.target_offset) if self.has_log_link else self.target_scale

    @property
    def log_range(self) -> tuple[float, float]:
        """Middle and half-width of logarithms of targets, of which small counts are alike."""
        low, high = self.target_lower or self.target_upper / COUNT_RANGE, self.target_upper
        return (math.log(low) + math.log(high)) / 2, (math.log(high) - math.log(low)) / 2

    @property
    def coefficient_scale(self) -> Floats:
        """Factor from each parameter (without the intercept) to the user's coefficient."""
        return self.target_scale / self.scale

    @property
    def fingerprint(self) -> str:
        """A digest of what was declared, whatever the order of the columns.

        A plan without data does not know the order of columns that are declared by name.
        """
        columns = sorted(zip(self.lower.tolist(), self.upper.tolist(), strict=True))
        declared = (columns, self.target_lower, self.target_upper, self.fit_intercept)
        # Nothing where there is none: plans without it stay as they are.
        norm = (self.features_norm,) if math.isfinite(self.features_norm) else ()
        return hashlib.sha256(repr((*declared, *norm)).encode()).hexdigest()[:16]

    def has_box_of(self, other: Coordinates) -> bool:
        """Whether rows and their columns have the same bounds in both."""
        is_same_norm = self.features_norm == other.features_norm
        return is_same_norm and np.array_equal([self.lower, self.upper], [other.lower, other.upper])

    @property
    def amplification(self) -> float:
        """How much centring can amplify rounding errors: the norm of the centre in scaled units."""
        # fsum: the same float whatever the order of the columns.
        return 1.0 + math.sqrt(math.fsum((self.offset / self.scale) ** 2))

    @property
    def undeclared(self) -> NDArray[np.bool_]:
        """Which features have no bounds, neither of their own nor of the norm of rows."""
        has_box = np.isfinite(self.lower) & np.isfinite(self.upper)
        return ~(has_box | math.isfinite(self.features_norm))

    def rescaled(self, factor: float) -> Coordinates:
        """The same coordinates with undeclared features multiplied by a public factor."""
        return replace(self, scale=np.where(self.undeclared, self.scale / factor, self.scale))

    def recentred(self, centre: float, unit: float) -> Coordinates:
        """The same coordinates with a public centre and unit of the target, in its scale."""
        offset = self.target_offset + centre * self.target_scale
        return replace(self, target_offset=offset, target_unit=unit)

    def without_bounds(self) -> Coordinates:
        """The same units where nothing is clipped: for rows that stay where they are."""
        free, inf = np.full(self.n_features, np.inf), np.inf
        free_target = replace(self, target_lower=-inf, target_upper=inf)
        return replace(free_target, lower=-free, upper=free, row_norm=inf, features_norm=inf)

    def target(self, y: NDArray[Any]) -> NDArray[Any]:
        """Targets, clipped to their bounds and scaled; as they are where neither is declared."""
        if not (self.has_target_scale or self.has_log_link) and math.isinf(self.target_upper):
            return y
        clipped = np.clip(np.asarray(y, dtype=np.float64), self.target_lower, self.target_upper)
        if self.has_log_link:
            return np.asarray(clipped / self.unit)
        return (clipped - self.target_offset) / self.target_scale

    def between_bounds(self, y: NDArray[Any]) -> Floats:
        """Targets, or their logarithms with a log link, from -1 at one bound to 1 at the other."""
        target = self.target(y)
        if self.has_log_link:
            middle, half = self.log_range
            with np.errstate(divide="ignore"):
                target = (np.log(target) + self.target_offset - middle) / half
        # The middle of bounds that floats hardly tell apart is one of them: then a value can be 2.
        return np.clip(target, -1.0, 1.0)

    def to_user(self, parameters: Floats) -> tuple[Floats, Floats]:
        """Coefficients (n_outputs, n_features) and intercepts (n_outputs,) in the user's units."""
        coef = self.coefficient_scale * parameters[: self.n_features].T
        if not self.fit_intercept:
            return coef, np.zeros(len(coef))
        intercept = self.target_offset + self.target_scale * parameters[-1] - coef @ self.offset
        return coef, intercept


def declared_coordinates(
    *,
    n_features: int,
    fit_intercept: bool,
    feature_bounds: Any = None,
    row_norm: float | None = None,
    target_bounds: Any = None,
    feature_names: Sequence[str] | None = None,
    has_target_scale: bool,
    has_log_link: bool = False,
) -> Coordinates:
    """Coordinates from what the user declared, which is public.

    Declared features are mapped from their bounds to [-1, 1], undeclared ones are left as they
    are. The norm bound ``sqrt(n_parameters)`` can then only bind on undeclared features. Without an
    intercept nothing may be centred: zero stays zero.
    A dict maps `feature_names` to pairs; the columns that it does not name are undeclared.
    Targets of `has_target_scale` are clipped to [-3, 3] where they are undeclared; others not.
    With a log link, a rate of one stands for the geometric middle of the bounds.

    With `row_norm`, a row of that norm gets one of `ROW_NORM` times the root of the number of
    parameters, and no augmented row is longer than such a row with its intercept.
    """
    if row_norm is not None and feature_bounds is not None:
        raise ValueError(
            f"Got row_norm={row_norm!r} with feature_bounds, expected one of the two: both say how"
            " large a row can be. Leave one out."
        )
    lower, upper = _feature_box(feature_bounds, n_features, feature_names)
    offset, scale = _affine_map(lower, upper, centre=fit_intercept)
    n_parameters = n_features + int(fit_intercept)
    longest = math.sqrt(n_parameters)
    if row_norm is not None:
        norm = ROW_NORM * longest
        scale, longest = scale * (row_norm / norm), math.hypot(norm, int(fit_intercept))
    has_target_bounds = has_target_scale or target_bounds is not None
    low, high = declared_target_bounds(target_bounds) if has_target_bounds else (-np.inf, np.inf)
    if has_log_link and not ((low == 0 or low >= 1e-100) and low <= high * (1 - 1e-6)):
        raise ValueError(
            f"Got target_bounds={(low, high)} for a log link, expected lower < upper, a millionth"
            " of it apart at least, and lower to be 0 or at least 1e-100. Declare the range of"
            " rates that is public."
        )
    target_offset, target_scale = 0.0, 1.0
    if has_target_scale:
        target_offset, target_scale = map(float, _affine_map(low, high, centre=fit_intercept))
    ratio = target_scale / scale
    if np.any(ratio > 1e150) or np.any(ratio < 1e-150):
        raise ValueError(
            "Got feature_bounds or row_norm, and target_bounds, more than 150 orders of magnitude"
            " apart, expected scales that floats can compare. Declare them in other units."
        )
    declared = Coordinates(
        lower=lower,
        upper=upper,
        offset=offset,
        scale=scale,
        target_lower=low,
        target_upper=high,
        target_offset=target_offset,
        target_scale=target_scale,
        row_norm=longest,
        features_norm=math.inf if row_norm is None else float(row_norm),
        fit_intercept=fit_intercept,
        has_target_scale=has_target_scale,
        has_log_link=has_log_link,
    )
    if has_log_link and fit_intercept:
        return replace(declared, target_offset=declared.log_range[0])
    return declared


def target_scale(target_bounds: Any, *, fit_intercept: bool) -> float:
    """What a target of one is in the user's units; without an intercept zero stays zero."""
    low, high = declared_target_bounds(target_bounds)
    return float(_affine_map(low, high, centre=fit_intercept)[1])


@dataclass(frozen=True, eq=False)
class Moments:
    """Means and variances of columns of rows, the target last, and the least of each feature."""

    n_samples: int
    mean: Floats
    variance: Floats
    least: Floats

    def joined(self, other: Moments) -> Moments:
        """Those of both."""
        n = self.n_samples + other.n_samples
        share, apart = other.n_samples / n, other.mean - self.mean
        within = self.variance + share * (other.variance - self.variance)
        between = share * (1 - share) * apart**2
        least = np.minimum(self.least, other.least)
        return Moments(n, self.mean + share * apart, within + between, least)


def moments_of(X: Any, y: NDArray[Any], declared: Coordinates) -> Moments:
    """Moments of rows and targets, from blocks of them: nothing as large as X is made."""
    scaler, n = StandardScaler(with_mean=False), max(MOMENT_ENTRIES // X.shape[1], 1)
    for start in range(0, X.shape[0], n):
        scaler.partial_fit(X[start : start + n])
    least = X.min(axis=0)
    least = least.toarray()[0] if hasattr(least, "toarray") else least
    centre, square = 0.0, 1.0
    if declared.has_target_scale:
        # Without an intercept zero stays zero.
        centre = float(np.mean(y)) if declared.fit_intercept else 0.0
        square = float(np.mean((y - centre) ** 2))
    mean, variance = np.append(scaler.mean_, centre), np.append(scaler.var_, square)
    return Moments(X.shape[0], mean, variance, least)


def standardising_coordinates(moments: Moments, *, declared: Coordinates) -> Coordinates:
    """Coordinates from the data itself, which only a fit without privacy may use.

    They condition an exact solver and change nothing of its answer. `declared` says whether there
    is an intercept, and whether the target is a number in units.
    """
    fit_intercept = declared.fit_intercept
    own = moments.mean[:-1]
    mean = own if fit_intercept else np.zeros_like(own)
    spread = moments.variance[:-1] + (own - mean) ** 2
    constant = spread <= 1e-28 * own**2
    scale = np.where(constant, 1.0, np.sqrt(spread))
    if fit_intercept:
        # A mean is off its constant in the last bits; its own value centres it to exact zeros.
        mean = np.where(constant, moments.least, mean)
    centre, width = float(moments.mean[-1]), float(np.sqrt(moments.variance[-1])) or 1.0
    free = declared.without_bounds()
    if declared.has_log_link:
        centre, width = declared.target_offset, 1.0
    return replace(free, offset=mean, scale=scale, target_offset=centre, target_scale=width)


def declared_target_bounds(bounds: Any) -> tuple[float, float]:
    """The interval to which targets are clipped; a ValueError where it is none."""
    low, high = UNDECLARED_TARGET_BOUNDS if bounds is None else _pair(bounds)
    return float(low), float(high)


def _affine_map(lower: Any, upper: Any, *, centre: bool) -> tuple[Any, Any]:
    """Offset and scale that map [lower, upper] into [-1, 1]; the identity where it is infinite."""
    declared = np.isfinite(lower) & np.isfinite(upper)
    low, high = np.where(declared, lower, -1.0), np.where(declared, upper, 1.0)
    offset = low / 2 + high / 2 if centre else np.zeros_like(low)
    scale = high / 2 - low / 2 if centre else np.maximum(np.abs(low), np.abs(high))
    return offset, scale


def _feature_box(
    bounds: Any, n_features: int, names: Sequence[str] | None
) -> tuple[Floats, Floats]:
    lower, upper = np.full(n_features, -np.inf), np.full(n_features, np.inf)
    if isinstance(bounds, Mapping):
        if names is None:
            raise ValueError(
                "Got feature_bounds as a dict of column names, expected X to be a DataFrame whose"
                " columns have names. Pass a DataFrame, or feature_bounds as a pair of arrays."
            )
        position = {name: j for j, name in enumerate(names[:n_features])}
        unknown = sorted(str(name) for name in bounds if name not in position)
        if unknown:
            raise ValueError(
                f"Got feature_bounds for columns {unknown}, expected names of the {n_features}"
                " columns of X. Correct the names or drop them."
            )
        for name, pair in bounds.items():
            j = position[name]
            lower[j], upper[j] = _pair(pair, name=f"feature_bounds[{name!r}]")
    elif bounds is not None:
        bounds = _sides(bounds, n_features)
        lower[:], upper[:] = _pair(bounds, name="feature_bounds", shape=(n_features,))
    return lower, upper


def _sides(bounds: Any, n_features: int) -> Any:
    """Bounds as (lower, upper), also where they are pairs for columns, as elsewhere in Python."""
    sequence = (list, tuple)
    if not isinstance(bounds, sequence) or len(bounds) != n_features:
        return bounds
    if not all(isinstance(pair, sequence) and len(pair) == 2 for pair in bounds):
        return bounds
    if n_features == 2:
        (a, b), (c, d) = bounds
        # As (lower, upper), and as a pair for each column.
        by_side, by_column = a < c and b < d, a < b and c < d
        if not by_column:
            return bounds
        if by_side:
            raise ValueError(
                f"Got feature_bounds={reprlib.repr(bounds)} for two columns, expected bounds that"
                " can be read in one way: these may be (lower, upper) or a pair for each column."
                " Pass a dict by column, or an array of shape (2, 2): all lower bounds, then all"
                " upper ones."
            )
    return tuple(zip(*bounds, strict=True))


def _pair(
    bounds: Any, *, name: str = "target_bounds", shape: tuple[int, ...] = ()
) -> tuple[Floats, Floats]:
    """A checked (lower, upper) pair; each side a scalar or of the given shape."""
    try:
        low, high = (np.asarray(side, dtype=np.float64) for side in bounds)
        lower, upper = np.broadcast_to(low, shape), np.broadcast_to(high, shape)
    except (TypeError, ValueError):
        sides = f" or arrays of shape {shape}, one entry for each feature" if shape else ""
        raise ValueError(
            f"Got {name}={reprlib.repr(bounds)}, expected a pair (lower, upper) of numbers{sides}."
            " Pass the range that is public knowledge"
            f"{', by pairs for columns in a dict by name' if shape else ''}."
        ) from None
    if np.any(lower > upper):
        order = " Arrays are of all lower bounds, then of all upper ones." if shape else ""
        raise ValueError(
            f"Got {name} with lower above upper, expected lower < upper. Swap the two.{order}"
        )
    if not np.all(np.maximum(np.abs(lower), np.abs(upper)) <= 1e100):
        raise ValueError(
            f"Got {name} that are not numbers in [-1e100, 1e100], expected a range that data can"
            " have. Leave a column whose range is not known out of a dict, or pass None."
        )
    if np.any(is_constant := upper - lower < 1e-100):
        of = f" for columns {np.flatnonzero(is_constant)[:5].tolist()}" if shape else ""
        drop = "" if name == "target_bounds" else ", or drop columns that are constant"
        raise ValueError(
            f"Got {name} with lower equal to upper{of}, expected lower < upper. Widen the"
            f" bounds{drop}."
        )
    return lower, upper


@dataclass(frozen=True, eq=False, kw_only=True)
class Basis:
    """Coordinates where a row ``a`` is seen as ``T'a``, and parameters ``v`` stand for ``T v``."""

    # Orthonormal columns, and the positive second moments that are assumed along them.
    vectors: Floats
    eigenvalues: Floats
    # Public estimate of the mean squares of the entries of T'a.
    loading: Floats
    # Public estimate of the share of the second moment outside of its largest direction, in (0, 1]:
    # small where rows have one common direction, such as a mean far from zero.
    spread: float
    # What clip bounds are relative to.
    clip_unit: float

    @cached_property
    def transform(self) -> Floats:
        """The matrix T, of shape (n_parameters, n_parameters)."""
        return np.asarray(self.vectors / np.sqrt(self.eigenvalues))

    @cached_property
    def inverse(self) -> Floats:
        """The inverse of T."""
        return np.asarray((self.vectors * np.sqrt(self.eigenvalues)).T)

    @cached_property
    def metric(self) -> Floats:
        """``inv(T T')``: the metric of parameters that is Euclidean in this basis."""
        metric = (self.vectors * self.eigenvalues) @ self.vectors.T
        return np.asarray((metric + metric.T) / 2)
