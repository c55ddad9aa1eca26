"""Bounds that are computed from counts hold as often as they say."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binom

import skdpadmm.audit._black_box as black_box
from skdpadmm.audit._audit import RUNS
from skdpadmm.audit._black_box import lower_bounds
from skdpadmm.audit._bounds import OneRun, clopper_pearson, epsilon_of_event, mu_of_event, twice
from skdpadmm.audit._canaries import SHARE
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
        p, q = 1 - 0.01, 1 - 0.01 * math.exp(epsilon)
        assert math.log(p / q) < 0.25 * epsilon
        assert epsilon_of_event(p, q, 0.0) == pytest.approx(epsilon)
    assert epsilon_of_event(0.2, 0.3, 0.0) == 0
    assert epsilon_of_event(0.5, 0.5, 0.1) == 0
    assert mu_of_event(0.2, 0.3) == 0
    assert mu_of_event(0.0, 0.0) == 0


@pytest.mark.parametrize("delta", [0.0, 1e-3, 0.1])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 2.0])
def test_what_delta_may_add_is_no_sign_of_epsilon(epsilon, delta):
    # The most that (epsilon, delta) allows an event, and its complement.
    for q in (0.01, 0.1):
        p = math.exp(epsilon) * q + delta
        assert epsilon_of_event(p, q, delta) == pytest.approx(epsilon)
        assert epsilon_of_event(1 - q, 1 - p, delta) == pytest.approx(epsilon)
    assert epsilon_of_event(delta, 1e-9, delta) == 0
    assert epsilon_of_event(1 - 1e-9, 1 - delta, delta) == 0


def test_a_mechanism_that_uses_its_delta_alone_shows_no_epsilon():
    delta, above = 0.05, 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        first, second = rng.standard_normal((2, 2000, 1))
        second[rng.random(2000) < delta] = 50.0
        found = lower_bounds(first, second, delta=delta, confidence=0.95, is_gaussian=False)
        above += found.epsilon > 0
    # 3 are expected at most; 9 or more come once in 500 times.
    assert above < 9


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


@pytest.mark.parametrize("delta", [0.0, 1e-3, 0.05])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
@pytest.mark.parametrize("m", [1, 2, 7, 40])
def test_the_p_value_bounds_exact_chances_of_mechanisms_that_use_all_of_delta(m, epsilon, delta):
    accuracy = 1 / (1 + math.exp(-epsilon))
    # The best guess of one coin under (epsilon, delta), for each coin by itself; and a mechanism
    # that tells the truth about all of them with probability delta.
    best = (math.exp(epsilon) + delta) / (1 + math.exp(epsilon))
    for r in {1, -(-m // 2), m}:
        for v in range(1, r + 1):
            bound = OneRun(n_canaries=m, n_guesses=r, n_correct=v).p_value(epsilon, delta)
            each = binom.sf(v - 1, r, best)
            at_once = (1 - delta) * binom.sf(v - 1, r, accuracy) + delta
            assert bound >= max(each, at_once) * (1 - 1e-12)


def test_guesses_about_a_gaussian_mechanism_show_a_useful_part_of_its_epsilon():
    delta, n_canaries, shown = 1e-5, RUNS["canaries"], {}
    for mu in (0.5, 1.0, 2.0, 4.0):
        bounds = []
        for seed in range(20):
            rng = np.random.default_rng(seed)
            coins = rng.random(n_canaries) < 0.5
            heard = np.where(coins, mu / 2, -mu / 2) + rng.standard_normal(n_canaries)
            surest = np.argsort(-np.abs(heard))[: int(SHARE * n_canaries)]
            n_correct = int(((heard[surest] > 0) == coins[surest]).sum())
            run = OneRun(n_canaries=n_canaries, n_guesses=len(surest), n_correct=n_correct)
            bounds.append(run.epsilon(delta, 0.99))
        assert max(bounds) <= GaussianDP(mu).epsilon(delta)
        shown[mu] = float(np.median(bounds))
    assert shown[0.5] > 0.2
    assert shown[1.0] > 0.9
    assert shown[2.0] > 2.2
    assert shown[4.0] > 2.8


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


def test_an_event_is_counted_on_runs_that_did_not_choose_it(monkeypatch):
    rows = {"made": set(), "chosen": set(), "counted": set()}

    def spied(stage, honest, places):
        def run(*args, **knobs):
            for place in places:
                rows[stage] |= {float(row[0]) for row in args[place]}
            return honest(*args, **knobs)

        return run

    for stage, owner, name, places in (
        ("made", black_box, "_statistics", (0, 1)),
        ("chosen", black_box, "_best_event", (1, 2)),
        ("counted", black_box.Event, "bounds", (1, 2)),
    ):
        monkeypatch.setattr(owner, name, spied(stage, getattr(owner, name), places))
    both = (
        np.random.default_rng(0).standard_normal((2, 800, 2)) + np.array([0.0, 1.0])[:, None, None]
    )
    lower_bounds(*both, delta=1e-5, confidence=0.99, is_gaussian=True)
    assert {stage: len(seen) for stage, seen in rows.items()} == {
        "made": 400, "chosen": 400, "counted": 800,
    }  # fmt: skip
    assert len(set.union(*rows.values())) == 1600


def test_chance_alone_shows_something_no_more_often_than_confidence_says():
    n_repetitions, above = 200, 0
    for seed in range(n_repetitions):
        same = np.random.default_rng(seed).standard_normal((2, 240, 4))
        found = lower_bounds(*same, delta=0.0, confidence=0.8, is_gaussian=True)
        above += found.epsilon > 0 or found.mu > 0
    # Where the runs that choose an event count it too, it is more than half of them.
    assert above <= 0.2 * n_repetitions


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
    # A third of the second runs is not finite, and none of the first: the event is that.
    most = math.log((1 / 3 - 1e-5) / clopper_pearson(0, 2000, 0.0025)[1])
    assert 0.8 * most < found.epsilon <= most
