"""What counts of events say of a guarantee, at a level of confidence."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import beta, binom, norm

from skdpadmm.privacy import GaussianDP, Guarantee

Array = NDArray[np.float64]
# Epsilons are sought below this one.
LARGEST_EPSILON = 100.0


def clopper_pearson(hits: ArrayLike, n_trials: int, level: float) -> tuple[Array, Array]:
    """A lower and an upper bound of a probability, each wrong with a chance of at most `level`.

    Parameters
    ----------
    hits : array-like of int
        How often the event came.
    n_trials : int
    level : float
        In (0, 1).

    Returns
    -------
    lower, upper : ndarray
    """
    hits = np.asarray(hits, dtype=np.float64)
    misses = n_trials - hits
    with np.errstate(invalid="ignore"):
        lower = np.where(hits > 0, beta.ppf(level, np.maximum(hits, 1), misses + 1), 0.0)
        upper = np.where(misses > 0, beta.isf(level, hits + 1, np.maximum(misses, 1)), 1.0)
    return lower, upper


def epsilon_of_event(lower: ArrayLike, upper: ArrayLike, delta: float) -> Array:
    """The epsilon that an event shows, or its complement.

    With (epsilon, delta) the chance of an event grows to at most ``exp(epsilon) q + delta`` between
    neighbouring data sets, and so does that of its complement.

    Parameters
    ----------
    lower : array-like
        At most the event's probability p on one data set.
    upper : array-like
        At least its probability q on the other one.
    delta : float

    Returns
    -------
    ndarray
        At least 0.
    """
    p, q = np.asarray(lower, dtype=np.float64), np.asarray(upper, dtype=np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        of_event = np.log(np.maximum(p - delta, 0.0)) - np.log(q)
        of_complement = np.log(np.maximum(1 - q - delta, 0.0)) - np.log(1 - p)
    return np.fmax(np.fmax(of_event, of_complement), 0.0)


def mu_of_event(lower: ArrayLike, upper: ArrayLike) -> Array:
    """The mu that an event shows: with mu-GDP, ``ppf(p) - ppf(q) <= mu``; at least 0."""
    p, q = np.asarray(lower, dtype=np.float64), np.asarray(upper, dtype=np.float64)
    with np.errstate(invalid="ignore"):
        mu = norm.ppf(p) - norm.ppf(q)
    return np.asarray(np.fmax(np.where(np.isnan(mu), 0.0, mu), 0.0))


@dataclass(frozen=True, kw_only=True)
class OneRun:
    """What was guessed of the canaries of one run.

    Attributes
    ----------
    n_canaries : int
    n_guesses : int
        About how many of them something was said.
    n_correct : int
    """

    n_canaries: int
    n_guesses: int
    n_correct: int

    def p_value(self, epsilon: float, delta: float) -> float:
        """Bound of the chance of so many correct guesses under (epsilon, delta).

        Steinke, Nasr and Jagielski, "Privacy auditing with one (1) training run", 2023, Theorem
        5.2: the number of correct guesses is dominated by a binomial number at the accuracy of
        randomised response, but for what delta can add to any of the canaries.

        Parameters
        ----------
        epsilon, delta : float

        Returns
        -------
        float
            At most 1.
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
    """Epsilon at delta between data sets that are two steps apart.

    Replacing a record is taking it away and bringing in another one.

    Parameters
    ----------
    guarantee : Guarantee
        Of a step.
    delta : float

    Returns
    -------
    float
    """
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
