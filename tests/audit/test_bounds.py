"""Bounds that are computed from counts hold as often as they say, by exact chances."""

import math

import numpy as np
import pytest
from scipy.stats import binom

from skdpadmm.audit._bounds import (
    OneRun,
    clopper_pearson,
    epsilon_of_event,
    lower_bounds,
    mu_of_event,
    twice,
)
from skdpadmm.privacy import GaussianDP, LaplaceDP, gaussian_mu


@pytest.mark.parametrize("p", [0.001, 0.03, 0.5, 0.99])
def test_probabilities_are_outside_of_their_bounds_at_most_as_often_as_allowed(p):
    n, level = 200, 0.05
    hits = np.arange(n + 1)
    lower, upper = clopper_pearson(hits, n, level)
    chance = binom.pmf(hits, n, p)
    assert chance[lower > p].sum() <= level
    assert chance[upper < p].sum() <= level
    assert lower[0] == 0
    assert upper[-1] == 1
    assert np.all(lower < upper)


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 0.1), (1.0, 0.0), (2.0, 1e-3)])
def test_an_event_shows_what_epsilon_and_delta_allow_and_no_more(epsilon, delta):
    # The most that (epsilon, delta) allows an event, and its complement.
    for q in (0.01, 0.1):
        p = math.exp(epsilon) * q + delta
        assert epsilon_of_event(p, q, delta) == pytest.approx(epsilon)
        assert epsilon_of_event(1 - q, 1 - p, delta) == pytest.approx(epsilon)
    assert epsilon_of_event(delta, 1e-9, delta) == epsilon_of_event(0.2, 0.3, 0.0) == 0
    assert epsilon_of_event(1 - 1e-9, 1 - delta, delta) == mu_of_event(0.2, 0.3) == 0
    assert mu_of_event(0.0, 0.0) == 0
    assert twice(GaussianDP(0.3), 1e-5) == GaussianDP(0.6).epsilon(1e-5)
    assert twice(LaplaceDP(1.0), 1e-5) == pytest.approx(2.0, abs=1e-3)


def test_the_p_value_of_one_run_is_that_of_the_paper():
    # With delta=0 a binomial tail; with delta more, at most 1, and monotone in both.
    run = OneRun(n_canaries=100, n_guesses=60, n_correct=55)
    accuracy = 1 / (1 + math.exp(-1.0))
    assert run.p_value(1.0, 0.0) == pytest.approx(binom.sf(54, 60, accuracy))
    near = max(
        sum(binom.pmf(55 - j, 60, accuracy) for j in range(1, i + 1)) / i for i in range(1, 56)
    )
    expected = binom.sf(54, 60, accuracy) + 2 * 100 * 1e-5 * near
    assert run.p_value(1.0, 1e-5) == pytest.approx(expected)
    assert run.p_value(2.0, 1e-5) > run.p_value(1.0, 1e-5)
    assert run.p_value(1.0, 1.0) == 1.0
    assert run.epsilon(0.5, 0.99) == 0.0
    assert OneRun(n_canaries=9, n_guesses=9, n_correct=0).epsilon(0.0, 0.99) == 0.0


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 0.05), (3.0, 0.0), (3.0, 1e-3)])
def test_the_p_value_bounds_exact_chances_of_mechanisms_that_use_all_of_delta(epsilon, delta):
    accuracy = 1 / (1 + math.exp(-epsilon))
    # The best guess of one coin under (epsilon, delta), for each coin by itself; and a mechanism
    # that tells the truth about all of them with probability delta.
    best = (math.exp(epsilon) + delta) / (1 + math.exp(epsilon))
    for m, r in ((1, 1), (2, 1), (7, 7), (40, 20), (40, 40)):
        for v in range(1, r + 1):
            bound = OneRun(n_canaries=m, n_guesses=r, n_correct=v).p_value(epsilon, delta)
            each = binom.sf(v - 1, r, best)
            at_once = (1 - delta) * binom.sf(v - 1, r, accuracy) + delta
            assert bound >= max(each, at_once) * (1 - 1e-12)


@pytest.mark.parametrize(("epsilon", "delta", "least"), [(0.5, 0.0, 0.75), (2.0, 1e-3, 0.45)])
def test_bounds_of_one_run_exceed_the_truth_as_rarely_as_allowed_and_come_close(
    epsilon, delta, least
):
    m = 1000
    correct = np.arange(m + 1)
    chance = binom.pmf(correct, m, 1 / (1 + math.exp(-epsilon)))
    likely = correct[chance > 1e-9]
    known = {"n_canaries": m, "n_guesses": m}
    bounds = np.array([OneRun(**known, n_correct=int(k)).epsilon(delta, 0.95) for k in likely])
    assert chance[likely][bounds > epsilon].sum() + 1e-6 <= 0.05
    assert np.all(np.diff(bounds) >= 0)
    assert bounds[likely >= m / (1 + math.exp(-epsilon))][0] > least * epsilon


def covered(n_repetitions, sample, is_above, **options):
    """How many repetitions showed more than is true."""
    n_above = 0
    for seed in range(n_repetitions):
        first, second = sample(np.random.default_rng(seed))
        n_above += is_above(lower_bounds(first, second, **options))
    return n_above


@pytest.mark.slow
def test_bounds_hold_as_often_as_they_say():
    mu, delta = gaussian_mu(1.0, 0.05), 0.05

    def gaussian(rng):
        return rng.standard_normal((2, 600, 1)) + np.array([0.0, mu])[:, None, None]

    def rare(rng):
        first, second = rng.standard_normal((2, 2000, 1))
        second[rng.random(2000) < delta] = 50.0
        return first, second

    options = {"delta": delta, "confidence": 0.8, "is_gaussian": True}
    # Clopper-Pearson and the sum over four bounds are conservative.
    assert covered(150, gaussian, lambda f: f.epsilon > 1.0 or f.mu > mu, **options) <= 30
    # A mechanism that uses its delta alone shows no epsilon: 9 or more come once in 500 times.
    options = {"delta": delta, "confidence": 0.95, "is_gaussian": False}
    assert covered(60, rare, lambda f: f.epsilon > 0, **options) < 9


def test_chance_alone_shows_something_no_more_often_than_confidence_says():
    def same(rng):
        return rng.standard_normal((2, 240, 4))

    options = {"delta": 0.0, "confidence": 0.8, "is_gaussian": True}
    # Where the runs that choose an event count it too, it is more than half of them.
    assert covered(40, same, lambda f: f.epsilon > 0 or f.mu > 0, **options) <= 8
    assert lower_bounds(*np.ones((2, 100, 2)), **options).mu == 0.0


@pytest.mark.parametrize("kind", ["another variance", "a constant", "not finite"])
def test_differences_other_than_in_means_are_found(kind):
    first, second = np.random.default_rng(0).standard_normal((2, 4000, 1))
    if kind == "another variance":
        second *= 2.0
    elif kind == "a constant":
        second[:] = 7.0
    else:
        first, second = 1e100 * first, 1e100 * second
        second[::3] = np.nan
    with np.errstate(all="raise"):
        options = {"delta": 1e-5, "confidence": 0.99, "is_gaussian": kind == "not finite"}
        found = lower_bounds(first, second, **options)
    assert found.epsilon > 1.0
    if kind == "not finite":
        # A third of the second runs is not finite, and none of the first: the event is that.
        most = math.log((1 / 3 - 1e-5) / clopper_pearson(0, 2000, 0.0025)[1])
        assert 0.8 * most < found.epsilon <= most
