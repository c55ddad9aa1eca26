"""Bounds that are computed from counts hold as often as they say."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binom

from skdpadmm.audit._black_box import lower_bounds
from skdpadmm.audit._bounds import OneRun, clopper_pearson, epsilon_of_event, mu_of_event, twice
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


def test_an_event_shows_the_epsilon_of_randomised_response_and_no_more():
    for epsilon in (0.1, 1.0, 4.0):
        p = 1 / (1 + math.exp(-epsilon))
        assert epsilon_of_event(p, 1 - p, 0.0) == pytest.approx(epsilon)
        # The complement shows it where the event does not.
        assert epsilon_of_event(0.9, 1 - 0.1 * math.exp(epsilon) / 40, 0.0) >= 0
    assert epsilon_of_event(0.2, 0.3, 0.0) == 0
    assert epsilon_of_event(0.5, 0.5, 0.1) == 0
    assert mu_of_event(0.2, 0.3) == 0
    assert mu_of_event(0.0, 0.0) == 0


def test_replacing_is_two_steps():
    assert twice(GaussianDP(0.3), 1e-5) == GaussianDP(0.6).epsilon(1e-5)
    assert twice(LaplaceDP(epsilons=(1.0,)), 1e-5) == pytest.approx(2.0, abs=1e-3)


def randomised_response(rng, m, epsilon, delta=0.0):
    """Guesses of coins that each were told truthfully with the chance that is allowed."""
    accuracy = 1 / (1 + math.exp(-epsilon))
    told = (rng.random(m) < accuracy) | (rng.random(m) < delta)
    return OneRun(n_canaries=m, n_guesses=m, n_correct=int(told.sum()))


@pytest.mark.parametrize("delta", [0.0, 1e-3])
@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_one_run_covers_and_comes_close_to_randomised_response(epsilon, delta):
    rng = np.random.default_rng(0)
    bounds = [randomised_response(rng, 1000, epsilon).epsilon(delta, 0.95) for _ in range(400)]
    # Delta is used by nobody here: the bound is valid whatever it is, and the larger it is the
    # weaker.
    assert np.mean(np.array(bounds) > epsilon) <= 0.05 + 3 * math.sqrt(0.05 / 400)
    assert np.median(bounds) > (0.75 if delta == 0 else 0.45) * epsilon


def test_one_run_covers_a_mechanism_that_uses_its_delta():
    rng, delta = np.random.default_rng(1), 0.01
    bounds = [
        randomised_response(rng, 500, 1.0, delta=delta).epsilon(delta, 0.95) for _ in range(400)
    ]
    assert np.mean(np.array(bounds) > 1.0) <= 0.05


def test_the_p_value_is_that_of_the_paper():
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


def test_bounds_of_a_gaussian_mechanism_hold_as_often_as_they_say():
    epsilon, delta, n_repetitions = 1.0, 0.05, 150
    mu, above = gaussian_mu(epsilon, delta), 0
    for seed in range(n_repetitions):
        rng = np.random.default_rng(seed)
        first, second = rng.standard_normal((2, 600, 1))
        found = lower_bounds(first, mu + second, delta=delta, confidence=0.8, is_gaussian=True)
        above += found.epsilon > epsilon or found.mu > mu
    # Clopper-Pearson and the sum over four bounds are conservative.
    assert above <= 0.2 * n_repetitions


@pytest.mark.parametrize("epsilon", [1.0, 2.0, 3.0])
def test_bounds_of_a_gaussian_mechanism_are_above_half_of_the_truth(epsilon):
    delta = 0.01
    mu = gaussian_mu(epsilon, delta)
    rng = np.random.default_rng(0)
    first, second = rng.standard_normal((2, 20_000, 1))
    found = lower_bounds(first, mu + second, delta=delta, confidence=0.99, is_gaussian=True)
    assert 0.5 * epsilon < found.epsilon <= epsilon
    assert 0.8 * mu < found.mu <= mu


@pytest.mark.parametrize(
    ("second", "words"),
    [
        (lambda rng, n: 2.0 * rng.standard_normal((n, 1)), "likelihood"),
        (lambda rng, n: rng.integers(5, size=(n, 1)) + 0.25, "epsilon"),
        (lambda rng, n: np.full((n, 1), 7.0), ""),
    ],
    ids=["another variance", "atoms", "a constant"],
)
def test_differences_other_than_in_means_are_found(second, words):
    rng, n = np.random.default_rng(0), 4000
    first = rng.standard_normal((n, 1)) if words != "epsilon" else rng.integers(5, size=(n, 1))
    found = lower_bounds(
        first.astype(float), second(rng, n).astype(float), delta=1e-5, confidence=0.99,
        is_gaussian=False,
    )  # fmt: skip
    assert found.epsilon > 1.0


def test_equal_laws_and_constant_models_show_nothing():
    rng = np.random.default_rng(0)
    same = rng.standard_normal((2, 4000, 3))
    assert lower_bounds(*same, delta=0.0, confidence=0.99, is_gaussian=True).epsilon == 0.0
    constant = np.ones((2, 100, 2))
    assert lower_bounds(*constant, delta=0.0, confidence=0.99, is_gaussian=True).mu == 0.0


def test_parameters_that_are_huge_or_not_finite_are_no_trouble():
    rng = np.random.default_rng(0)
    first, second = rng.standard_cauchy((2, 4000, 2)) * 1e100
    second[::3] = np.nan
    with np.errstate(all="raise"):
        found = lower_bounds(first, second, delta=1e-5, confidence=0.99, is_gaussian=True)
    assert found.epsilon >= 0
