"""Randomised response: its curve, what it dominates, and how it composes."""

from __future__ import annotations

import math

import numpy as np
import pytest

from skdpadmm.privacy import (
    Composed,
    GaussianDP,
    LaplaceDP,
    RandomizedResponseDP,
    RenyiDP,
    compose,
    worst,
)
from skdpadmm.privacy._pld import pld_delta

LEVELS = np.linspace(0.0, 2.5, 26)


def law(response, label):
    """Probabilities of what is told."""
    found = np.full(response.n_labels, response.other)
    found[label] = 1.0 - (response.n_labels - 1) * response.other
    return found


def hockey_stick(p, q, epsilon):
    return float(np.maximum(p - math.exp(epsilon) * q, 0.0).sum())


@pytest.mark.parametrize("epsilon", [0.01, 0.7, 2.0, 30.0])
@pytest.mark.parametrize("n_labels", [2, 3, 10])
def test_delta_is_the_divergence_of_two_labels(epsilon, n_labels):
    response = RandomizedResponseDP(epsilon, n_labels)
    for level in epsilon * np.linspace(0, 1.2, 13):
        exact = hockey_stick(law(response, 0), law(response, 1), level)
        assert response.delta(level) == pytest.approx(exact, rel=1e-9, abs=1e-13)


@pytest.mark.parametrize("n_labels", [2, 5])
def test_epsilon_inverts_delta(n_labels):
    response = RandomizedResponseDP(1.2, n_labels)
    assert response.epsilon(0.0) == 1.2
    for level in (0.0, 0.3, 1.1):
        assert response.epsilon(response.delta(level)) == pytest.approx(level, abs=1e-12)
    assert response.epsilon(1.0) == response.epsilon(response.delta(0.0) + 1e-9) == 0.0
    assert response.delta(math.inf) == response.delta(1.2) == 0.0


def test_two_labels_are_the_worst_of_pure_guarantees():
    two, ten, laplace = (
        RandomizedResponseDP(1.0),
        RandomizedResponseDP(1.0, 10),
        LaplaceDP((0.5, 0.5)),
    )
    assert two.dominates(ten)
    assert two.dominates(laplace)
    assert not ten.dominates(two)
    assert not ten.dominates(laplace)
    assert not two.dominates(GaussianDP(0.1))
    for level in LEVELS:
        assert two.delta(level) >= max(ten.delta(level), laplace.delta(level))
    assert worst(laplace, ten, two) == two


@pytest.mark.parametrize("n_labels", [2, 4])
def test_composition_with_laplace_noise_is_the_divergence_of_the_product(n_labels):
    response, laplace = RandomizedResponseDP(0.8, n_labels), LaplaceDP((0.6,))
    both = compose(response, laplace)
    assert isinstance(both, Composed)
    # Losses of Laplace noise on a grid of the line, as probabilities of two neighbours.
    cells = np.linspace(-25, 25.6, 200_001)
    p, q = (np.exp(-np.abs((cells[:-1] + cells[1:]) / 2 - at)) / 2 for at in (0.0, 0.6))
    width = cells[1] - cells[0]
    for level in (0.0, 0.3, 0.9, 1.3):
        exact = hockey_stick(
            np.outer(law(response, 0), p * width), np.outer(law(response, 1), q * width), level
        )
        assert both.delta(level) == pytest.approx(exact, abs=1e-4)
        assert both.delta(level) >= exact - 1e-6
    assert both.delta(1.4 + 1e-9) == 0.0
    assert both.epsilon(0.0) == pytest.approx(1.4)


def test_composition_without_distributions_is_sound_and_larger(monkeypatch):
    both = compose(RandomizedResponseDP(0.8, 3), LaplaceDP((0.6,)), GaussianDP(0.5))
    exact = [both.delta(level) for level in LEVELS]

    def missing(*args):
        raise ImportError

    monkeypatch.setattr("skdpadmm.privacy._composition.pld_delta", missing)
    assert all(both.delta(level) >= e for level, e in zip(LEVELS, exact, strict=True))


@pytest.mark.parametrize("n_labels", [2, 3, 10])
def test_the_distribution_is_that_of_the_labels(n_labels):
    response = RandomizedResponseDP(1.3, n_labels)
    for level in (0.0, 0.4, 1.0):
        assert pld_delta(response._rounds(), level) == pytest.approx(
            response.delta(level), abs=1e-5
        )


def test_what_does_not_compose_is_refused_and_nothing_adds_nothing():
    with pytest.raises(TypeError, match="RandomizedResponseDP"):
        compose(RandomizedResponseDP(1.0), RenyiDP((2.0,), (0.1,)))
    assert compose(RandomizedResponseDP(0.0), GaussianDP(0.4)) == GaussianDP(0.4)
    twice = compose(RandomizedResponseDP(0.5), RandomizedResponseDP(0.5))
    assert twice.epsilon(0.0) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("epsilon", "n_labels", "message"),
    [(-1.0, 2, "response_epsilon"), (math.inf, 2, "response_epsilon"), (1.0, 1, "n_labels")],
)
def test_parameters_out_of_range_are_refused(epsilon, n_labels, message):
    with pytest.raises(ValueError, match=message):
        RandomizedResponseDP(epsilon, n_labels)


def test_what_is_no_number_is_refused_in_the_same_words():
    with pytest.raises(ValueError, match=r"Got response_epsilon='1', expected a float in \[0, inf"):
        RandomizedResponseDP("1")


def test_words_and_plain_types():
    response = RandomizedResponseDP(1.0, 3)
    assert response.describe() == "randomised response(epsilon=1, 3 labels)"
    assert response.to_dict() == {"kind": "randomized_response", "epsilon": 1.0, "n_labels": 3}
