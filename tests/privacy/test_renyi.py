"""What Renyi divergences imply, without any extra."""

import importlib
import math

import numpy as np
import pytest

from skdpadmm.privacy import NegativeBinomialTrials, RenyiDP, best_of_trials, calibrate_trial


def random_divergences(rng):
    orders = np.unique(1.0 + 10 ** rng.uniform(-3, 6, rng.integers(1, 40)))
    divergences = 10 ** rng.uniform(-14, 3, len(orders))
    divergences[rng.random(len(orders)) < 0.1] = rng.choice([0.0, math.inf])
    return RenyiDP(tuple(orders.tolist()), tuple(divergences.tolist()))


def test_epsilon_and_delta_are_those_of_dp_accounting():
    pytest.importorskip("dp_accounting")
    accountant = importlib.import_module("dp_accounting.rdp.rdp_privacy_accountant")
    for seed in range(300):
        bound = random_divergences(np.random.default_rng(seed))
        # The library fails where a divergence is lost beside 1.
        safe = [d if d == 0 else max(d, 1e-15) for d in bound.divergences]
        for epsilon in (0.0, 0.1, 1.0, 30.0):
            expected, _ = accountant.compute_delta(bound.orders, safe, epsilon)
            assert bound.delta(epsilon) == expected
        for delta in (1e-12, 1e-5, 0.1, 0.9):
            expected, _ = accountant.compute_epsilon(bound.orders, bound.divergences, delta)
            assert bound.epsilon(delta) == expected


def test_no_pair_of_laws_exceeds_what_its_divergences_imply():
    orders, rng = np.array([1.02, 1.5, 2.0, 5.0, 40.0]), np.random.default_rng(0)
    for _ in range(200):
        p, q = rng.dirichlet(np.full(4, 10 ** rng.uniform(-0.5, 3)), size=2)
        divergences = [math.log(np.sum(p**a * q ** (1 - a))) / (a - 1) for a in orders]
        bound = RenyiDP(tuple(orders), tuple(max(0.0, d) + 1e-12 for d in divergences))
        for epsilon in (0.0, 0.01, 0.3, 2.0):
            exact = np.maximum(p - math.exp(epsilon) * q, 0.0).sum()
            assert exact <= bound.delta(epsilon)
            if exact > 1e-12:
                assert bound.epsilon(exact) >= epsilon


def test_a_renyi_guarantee_and_a_selection_need_no_extra(no_library):
    assert RenyiDP((2.0,), (1.0,)).epsilon(1e-6) == pytest.approx(1 - math.log(4e-6))
    law = NegativeBinomialTrials.of_mean(1.0, 8.0)
    trial = calibrate_trial(law, epsilon=1.0, delta=1e-5)
    assert best_of_trials(trial, law).epsilon(1e-5) <= 1.0


def test_without_any_divergence_nothing_is_revealed_at_any_delta():
    assert RenyiDP((2.0,), (0.0,)).epsilon(0.0) == 0.0
    assert RenyiDP((2.0, 3.0), (0.1, 0.2)).epsilon(0.0) == math.inf
