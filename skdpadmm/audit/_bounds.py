"""Lower bounds of epsilon: by an event that some runs choose and others count, or by guesses."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import beta, binom, norm

from skdpadmm.privacy import GaussianDP, Guarantee

Array = NDArray[np.float64]
Statistic = Callable[[Array], Array]
Goal = Callable[[Array, Array], Array]
# Epsilons are sought below this one.
LARGEST_EPSILON = 100.0
# As many thresholds are tried for each statistic.
N_THRESHOLDS = 200


def clopper_pearson(hits: ArrayLike, n_trials: int, level: float) -> tuple[Array, Array]:
    """A lower and an upper bound of a probability, each wrong with a chance of at most `level`."""
    hits = np.asarray(hits, dtype=np.float64)
    misses = n_trials - hits
    with np.errstate(invalid="ignore"):
        lower = np.where(hits > 0, beta.ppf(level, np.maximum(hits, 1), misses + 1), 0.0)
        upper = np.where(misses > 0, beta.isf(level, hits + 1, np.maximum(misses, 1)), 1.0)
    return lower, upper


def epsilon_of_event(lower: ArrayLike, upper: ArrayLike, delta: float) -> Array:
    """The epsilon that an event shows, or its complement, by bounds of its two probabilities.

    With (epsilon, delta) the chance of an event grows to at most ``exp(epsilon) q + delta`` between
    neighbouring data sets, and so does that of its complement.
    """
    p, q = np.asarray(lower, dtype=np.float64), np.asarray(upper, dtype=np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        of_event = np.log(np.maximum(p - delta, 0.0)) - np.log(q)
        of_complement = np.log(np.maximum(1 - q - delta, 0.0)) - np.log(1 - p)
    return np.fmax(np.fmax(of_event, of_complement), 0.0)


def mu_of_event(lower: ArrayLike, upper: ArrayLike) -> Array:
    """The mu that an event shows: with mu-GDP, ``ppf(p) - ppf(q) <= mu``; at least 0."""
    with np.errstate(invalid="ignore"):
        mu = norm.ppf(np.asarray(lower, np.float64)) - norm.ppf(np.asarray(upper, np.float64))
    return np.asarray(np.fmax(np.where(np.isnan(mu), 0.0, mu), 0.0))


class Event(NamedTuple):
    """A statistic of parameters is at least a threshold; of which data set more often."""

    name: str
    statistic: Statistic
    threshold: float
    of_second: bool


class Found(NamedTuple):
    """Bounds from below, and the events that they come from; mu is 0 where nobody asked."""

    epsilon: float
    mu: float
    event: str


def lower_bounds(
    first: Array, second: Array, *, delta: float, confidence: float, is_gaussian: bool
) -> Found:
    """Bound epsilon at delta, and maybe mu, from below by runs on two data sets.

    A quarter of the runs makes statistics, a quarter chooses an event, and half counts it. Both
    bounds together hold with this confidence.
    """
    first, second = _all_finite(first), _all_finite(second)
    quarter, half = len(first) // 4, len(first) // 2
    # Two bounds for each of the two figures.
    level = (1.0 - confidence) / (4 if is_gaussian else 2)
    goals: list[Goal] = [partial(epsilon_of_event, delta=delta)]
    goals += [mu_of_event] if is_gaussian else []
    statistics = list(_statistics(first[:quarter], second[:quarter]))
    choosing = [first[quarter:half], second[quarter:half]]
    bounds, words = [0.0, 0.0], []
    for i, goal in enumerate(goals):
        event = _best_event(statistics, choosing, level, goal)
        if event is not None:
            lower, upper, counted = _counted(event, first[half:], second[half:], level)
            bounds[i] = float(goal(lower, upper))
            words.append(counted)
    return Found(epsilon=bounds[0], mu=bounds[1], event="; ".join(dict.fromkeys(words)))


def _all_finite(runs: Array) -> Array:
    """Finite parameters, and indicators of those that are not finite."""
    is_number = np.isfinite(runs)
    # Of squares, too.
    return np.hstack([np.clip(np.where(is_number, runs, 0.0), -1e150, 1e150), ~is_number])


def _statistics(first: Array, second: Array) -> Iterator[tuple[str, Statistic]]:
    """Statistics that may distinguish runs: by means, Gaussian laws, and equal models."""
    both = np.concatenate([first, second])
    centre, scale = np.median(both, axis=0), np.std(both, axis=0)
    varies = scale > 0
    if not varies.any():
        return

    def normalised(runs: Array) -> Array:
        # Parameters of any size, without overflow.
        centred = (runs[:, varies] - centre[varies]) / scale[varies]
        return np.asarray(np.clip(centred, -1e6, 1e6))

    a, b = normalised(first), normalised(second)
    means = [a.mean(axis=0), b.mean(axis=0)]
    covariances = [np.atleast_2d(np.cov(runs, rowvar=False)) for runs in (a, b)]
    root = _inverse_root(0.5 * (covariances[0] + covariances[1]))
    direction = root @ (root.T @ (means[1] - means[0]))
    if direction.any():
        direction = direction / np.linalg.norm(direction)
        yield "projection on the difference of means", lambda runs: normalised(runs) @ direction
    roots = [_inverse_root(covariance) for covariance in covariances]

    def log_ratio(runs: Array) -> Array:
        squares = [
            np.square((normalised(runs) - mean) @ root).sum(axis=1)
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


def _inverse_root(covariance: Array) -> Array:
    """A matrix R with R R' the inverse, but for eigenvalues of zero."""
    values, vectors = np.linalg.eigh(covariance)
    return np.asarray(vectors / np.sqrt(np.maximum(values, 1e-12 * max(float(values[-1]), 1e-12))))


def _best_event(
    statistics: list[tuple[str, Statistic]], runs: list[Array], level: float, goal: Goal
) -> Event | None:
    """The event that shows the most in these runs."""
    best, event, n = -1.0, None, len(runs[0])
    for name, statistic in statistics:
        values = [np.sort(statistic(part)) for part in runs]
        pooled = np.sort(np.concatenate(values))
        places = np.linspace(0, len(pooled) - 1, N_THRESHOLDS).astype(np.intp)
        thresholds = np.unique(pooled[places])
        hits = [n - np.searchsorted(part, thresholds) for part in values]
        for of_second in (True, False):
            # As few as there are here: what stands out in a tail by luck counts for less.
            lower, _ = clopper_pearson(hits[of_second], n, level)
            _, upper = clopper_pearson(hits[not of_second], n, level)
            shown = goal(lower, upper)
            k = int(np.argmax(shown))
            if shown[k] > best:
                best = float(shown[k])
                event = Event(name, statistic, float(thresholds[k]), of_second)
    return event


def _counted(event: Event, first: Array, second: Array, level: float) -> tuple[Array, Array, str]:
    """Bounds of an event's probabilities on two data sets, and what was counted, in words."""
    on, off = (second, first) if event.of_second else (first, second)
    hits = [int(np.sum(event.statistic(runs) >= event.threshold)) for runs in (on, off)]
    words = (
        f"{event.name} >= {event.threshold:.4g} in {hits[0]} of {len(on)} runs on the"
        f" {'second' if event.of_second else 'first'} data set, {hits[1]} of {len(off)} on the"
        " other"
    )
    lower, upper = (clopper_pearson(hit, len(on), level)[i] for i, hit in enumerate(hits))
    return lower, upper, words


@dataclass(frozen=True, kw_only=True)
class OneRun:
    """How many of the guesses about canaries of one run were right."""

    n_canaries: int
    n_guesses: int
    n_correct: int

    def p_value(self, epsilon: float, delta: float) -> float:
        """Bound of the chance of so many correct guesses under (epsilon, delta).

        Steinke, Nasr and Jagielski, "Privacy auditing with one (1) training run", 2023, Theorem
        5.2: the number of correct guesses is dominated by a binomial number at the accuracy of
        randomised response, but for what delta can add to any of the canaries.
        """
        accuracy = 1.0 / (1.0 + math.exp(-epsilon))
        chance = float(binom.sf(self.n_correct - 1, self.n_guesses, accuracy))
        if delta == 0.0 or self.n_correct == 0:
            return min(chance, 1.0)
        fewer = np.arange(1, self.n_correct + 1)
        near = np.cumsum(binom.pmf(self.n_correct - fewer, self.n_guesses, accuracy))
        slope = float(np.max(near / fewer))
        return min(chance + 2 * self.n_canaries * delta * slope, 1.0)

    def epsilon(self, delta: float, confidence: float) -> float:
        """The largest epsilon that is refuted; 0 where none is."""
        level, low, high = 1.0 - confidence, 0.0, LARGEST_EPSILON
        if self.p_value(low, delta) > level:
            return 0.0
        while high - low > 1e-4:
            middle = 0.5 * (low + high)
            low, high = (middle, high) if self.p_value(middle, delta) <= level else (low, middle)
        return low


def twice(guarantee: Guarantee, delta: float) -> float:
    """Epsilon at delta between data sets two steps apart: a record goes, and another comes."""
    if isinstance(guarantee, GaussianDP):
        return GaussianDP(2 * guarantee.mu).epsilon(delta)
    # (epsilon, d) twice is (2 epsilon, d (1 + exp(epsilon))).
    share = delta
    for _ in range(200):
        epsilon = guarantee.epsilon(share)
        if epsilon > LARGEST_EPSILON:
            break
        if share * (1 + math.exp(epsilon)) <= delta:
            return 2 * epsilon
        share /= 2
    return math.inf
