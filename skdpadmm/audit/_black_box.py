"""An event that tells two data sets apart: found on some runs, counted on others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from skdpadmm.audit._bounds import clopper_pearson, epsilon_of_event, mu_of_event

Array = NDArray[np.float64]
Statistic = Callable[[Array], Array]
# As many thresholds are tried for each statistic.
N_THRESHOLDS = 200


@dataclass(frozen=True, eq=False, kw_only=True)
class Event:
    """A statistic of the parameters is at least a threshold.

    Attributes
    ----------
    name : str
        Of the statistic.
    statistic : callable
    threshold : float
    of_second : bool
        Whether it is expected of the second data set, more often than of the first.
    """

    name: str
    statistic: Statistic
    threshold: float
    of_second: bool

    def bounds(self, first: Array, second: Array, level: float) -> tuple[float, float, str]:
        """Bounds of its probabilities on the two data sets, and what was counted, in words.

        Parameters
        ----------
        first, second : ndarray of shape (n_runs, n_parameters)
        level : float
            Chance of each bound to be wrong.

        Returns
        -------
        lower, upper : float
        words : str
        """
        on, off = (second, first) if self.of_second else (first, second)
        hits = [int(np.sum(self.statistic(runs) >= self.threshold)) for runs in (on, off)]
        lower, _ = clopper_pearson(hits[0], len(on), level)
        _, upper = clopper_pearson(hits[1], len(off), level)
        words = (
            f"{self.name} >= {self.threshold:.4g} in {hits[0]} of {len(on)} runs on the"
            f" {'second' if self.of_second else 'first'} data set, {hits[1]} of {len(off)} on the"
            " other"
        )
        return float(lower), float(upper), words


@dataclass(frozen=True, kw_only=True)
class Found:
    """Bounds from below, and the events that they come from.

    Attributes
    ----------
    epsilon, mu : float
        The second one is 0 where nobody asked for it.
    event : str
    """

    epsilon: float
    mu: float
    event: str


def lower_bounds(
    first: Array, second: Array, *, delta: float, confidence: float, is_gaussian: bool
) -> Found:
    """Bound epsilon at delta, and mu, from below by runs on two data sets.

    A quarter of the runs makes statistics, a quarter chooses an event, and half counts it.

    Parameters
    ----------
    first, second : ndarray of shape (n_runs, n_parameters)
    delta : float
    confidence : float
        Of all that is found together.
    is_gaussian : bool
        Whether mu is asked for.

    Returns
    -------
    Found
    """
    first, second = _all_finite(first, second)
    n_runs = len(first)
    quarter, half = n_runs // 4, n_runs // 2
    # Two bounds for each of the two figures.
    level = (1.0 - confidence) / (4 if is_gaussian else 2)

    def epsilon_of(lower: Array, upper: Array) -> Array:
        return epsilon_of_event(lower, upper, delta)

    goals = [epsilon_of, mu_of_event] if is_gaussian else [epsilon_of]
    statistics = list(_statistics(first[:quarter], second[:quarter]))
    found, words = [], []
    for goal in goals:
        event = _best_event(statistics, first[quarter:half], second[quarter:half], level, goal)
        if event is None:
            found.append(0.0)
            continue
        lower, upper, counted = event.bounds(first[half:], second[half:], level)
        found.append(float(goal(np.array(lower), np.array(upper))))
        words.append(counted)
    mu = found[1] if is_gaussian else 0.0
    return Found(epsilon=found[0], mu=mu, event="; ".join(dict.fromkeys(words)))


def _all_finite(*worlds: Array) -> list[Array]:
    """Parameters that are numbers, and of what is none that it is none: that tells as well."""
    known = [np.isfinite(runs) for runs in worlds]
    # Of squares, too.
    clipped = [
        np.clip(np.where(k, runs, 0.0), -1e150, 1e150)
        for k, runs in zip(known, worlds, strict=True)
    ]
    if all(k.all() for k in known):
        return clipped
    return [np.concatenate([runs, ~k], axis=1) for k, runs in zip(known, clipped, strict=True)]


def _statistics(first: Array, second: Array) -> Iterator[tuple[str, Statistic]]:
    """What may tell runs apart: by means, by Gaussian laws, by values that come again."""
    both = np.concatenate([first, second])
    centre, scale = np.median(both, axis=0), np.std(both, axis=0)
    varies = scale > 0
    if not varies.any():
        return

    def normalised(runs: Array) -> Array:
        # Parameters of any size: what is far off is merely far off.
        moved = (runs[:, varies] - centre[varies]) / scale[varies]
        return np.asarray(np.clip(moved, -1e6, 1e6))

    a, b = normalised(first), normalised(second)
    means = [a.mean(axis=0), b.mean(axis=0)]
    own = [np.atleast_2d(np.cov(runs, rowvar=False)) for runs in (a, b)]
    direction = _solve(0.5 * (own[0] + own[1]), means[1] - means[0])
    if direction.any():
        direction = direction / np.linalg.norm(direction)
        yield "projection on the difference of means", lambda runs: normalised(runs) @ direction
    roots = [_inverse_root(covariance) for covariance in own]

    def log_ratio(runs: Array) -> Array:
        moved = normalised(runs)
        squares = [
            np.square((moved - mean) @ root).sum(axis=1)
            for mean, root in zip(means, roots, strict=True)
        ]
        return 0.5 * (squares[0] - squares[1])

    yield "ratio of Gaussian likelihoods", log_ratio
    counts = [Counter(row.tobytes() for row in runs) for runs in (first, second)]
    if any(max(count.values()) > 1 for count in counts):

        def often(runs: Array) -> Array:
            keys = [row.tobytes() for row in np.ascontiguousarray(runs)]
            seen = [np.array([count[key] for key in keys], dtype=np.float64) for count in counts]
            return np.log(seen[1] + 0.5) - np.log(seen[0] + 0.5)

        yield "ratio of counts of equal models", often


def _spectrum(covariance: Array) -> tuple[Array, Array]:
    """Eigenvalues, none of them zero, and eigenvectors."""
    values, vectors = np.linalg.eigh(covariance)
    return np.maximum(values, 1e-12 * max(float(values[-1]), 1e-12)), vectors


def _solve(covariance: Array, vector: Array) -> Array:
    values, vectors = _spectrum(covariance)
    return np.asarray(vectors @ ((vectors.T @ vector) / values))


def _inverse_root(covariance: Array) -> Array:
    values, vectors = _spectrum(covariance)
    return np.asarray(vectors / np.sqrt(values))


def _best_event(
    statistics: list[tuple[str, Statistic]],
    first: Array,
    second: Array,
    level: float,
    goal: Callable[[Array, Array], Array],
) -> Event | None:
    """The event that shows the most in these runs."""
    best, event = -1.0, None
    n = len(first)
    for name, statistic in statistics:
        a, b = np.sort(statistic(first)), np.sort(statistic(second))
        pooled = np.sort(np.concatenate([a, b]))
        thresholds = np.unique(
            pooled[np.linspace(0, len(pooled) - 1, N_THRESHOLDS).astype(np.intp)]
        )
        shares = [1.0 - np.searchsorted(s, thresholds) / n for s in (a, b)]
        for of_second in (True, False):
            on, off = (shares[1], shares[0]) if of_second else (shares[0], shares[1])
            # As few as there are here: what stands out in a tail by luck counts for less.
            lower, _ = clopper_pearson(np.rint(on * n), n, level)
            _, upper = clopper_pearson(np.rint(off * n), n, level)
            value = goal(lower, upper)
            k = int(np.argmax(value))
            if value[k] > best:
                best = float(value[k])
                event = Event(
                    name=name,
                    statistic=statistic,
                    threshold=float(thresholds[k]),
                    of_second=of_second,
                )
    return event
