"""Random participation: the average over it, who may claim it, and who may not."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import logsumexp, ndtr
from scipy.stats import binom, norm

from skdpadmm.privacy import (
    GaussianDP,
    Mixture,
    Neighboring,
    PoissonSubsampledGaussian,
    calibrate_noise,
    compose,
    gaussian_mu,
    participation_mixture,
    worst_participation,
)

EPSILONS = (0.0, 0.3, 1.0, 3.0)
LOST_MASS = 1e-15  # what rounding takes from a sum of weights is charged to delta


def capped_law(n_rounds, probability, cap):
    law = binom.pmf(np.arange(n_rounds + 1), n_rounds, probability)
    return np.append(law[:cap], law[cap:].sum())


def explicit_delta(sensitivities, noise_std, probability, n_rounds, cap, epsilon):
    return math.fsum(
        weight * GaussianDP(math.hypot(*sensitivities[:n]) / noise_std).delta(epsilon)
        for n, weight in enumerate(capped_law(n_rounds, probability, cap))
    )


@pytest.mark.parametrize(
    ("n_rounds", "probability", "cap"),
    [(1, 0.3, 1), (2, 0.5, 1), (7, 0.9, 7), (50, 0.02, 3), (300, 0.1, 300), (2000, 0.6, 2000)],
)
@pytest.mark.parametrize("ratio", [0.05, 1.0])
def test_the_mixture_is_the_explicit_average_over_the_rounds_taken_part_in(
    n_rounds, probability, cap, ratio
):
    sensitivities = [1.0 + 1.0 / (j + 1) for j in range(cap)]
    noise = math.hypot(*sensitivities) / ratio
    got = participation_mixture(
        sensitivities, noise, probability=probability, n_rounds=n_rounds, cap=cap
    )
    for epsilon in EPSILONS:
        exact = explicit_delta(sensitivities, noise, probability, n_rounds, cap, epsilon)
        assert exact * (1 - 1e-10) <= got.delta(epsilon) <= exact * (1 + 1e-8) + LOST_MASS


@pytest.mark.parametrize("n_rounds", [1, 3, 1000, 100_000])
@pytest.mark.parametrize("probability", [5e-324, 1e-12, 0.01, 0.5, 1 - 1e-12])
def test_the_weights_are_a_law_with_few_labels_that_ends_in_the_worst_realisation(
    n_rounds, probability
):
    messages = (1.0,) * n_rounds
    mixture = participation_mixture(messages, 9.0, probability=probability, n_rounds=n_rounds)
    worst = worst_participation(messages, 9.0, n_rounds=n_rounds)
    if isinstance(mixture, Mixture):
        assert abs(math.fsum(mixture.weights) - 1) <= 1e-12
        assert len(mixture.weights) <= 20 * math.sqrt(n_rounds * 0.25) + 50
        mus = [component.mu for component in mixture.components]
        assert mus == sorted(mus)
        assert mixture.components[-1] == worst
    else:
        assert mixture == worst


@settings(deadline=None, max_examples=60)
@given(
    st.integers(1, 60),
    st.floats(1e-6, 0.999),
    st.floats(0.05, 5.0),
    st.floats(0.0, 4.0),
    st.integers(1, 60),
)
def test_rare_labels_are_only_ever_given_to_a_worse_one(n_rounds, probability, mu, epsilon, cap):
    messages = (mu,) * n_rounds
    cap = min(cap, n_rounds)
    got = participation_mixture(messages, 1.0, probability=probability, n_rounds=n_rounds, cap=cap)
    exact = explicit_delta(messages, 1.0, probability, n_rounds, cap, epsilon)
    assert exact * (1 - 1e-10) - 1e-17 <= got.delta(epsilon)
    assert got.delta(epsilon) <= exact * (1 + 1e-8) + LOST_MASS
    worst = worst_participation(messages, 1.0, n_rounds=n_rounds, cap=cap)
    assert got.delta(epsilon) <= worst.delta(epsilon) + LOST_MASS


def test_more_participation_is_never_more_private():
    messages = (1.0,) * 400

    def delta(probability=0.1, n_rounds=100, cap=None):
        return participation_mixture(
            messages, 8.0, probability=probability, n_rounds=n_rounds, cap=cap
        ).delta(0.5)

    for deltas in (
        [delta(probability=q) for q in (1e-3, 0.05, 0.1, 0.5, 0.9, 1.0)],
        [delta(n_rounds=n) for n in (1, 2, 50, 100, 400)],
        [delta(cap=cap) for cap in (1, 2, 5, 10, 20, 30)],
    ):
        assert all(low < high for low, high in pairwise(deltas))
    assert delta(cap=100) == delta(cap=1000) == delta()


@pytest.mark.parametrize("n_rounds", [1, 4, 10_000])
def test_sure_participation_is_gaussian_dp_of_all_rounds(n_rounds):
    got = participation_mixture((2.0,) * n_rounds, 10.0, probability=1.0, n_rounds=n_rounds)
    assert isinstance(got, GaussianDP)
    assert got.mu == pytest.approx(0.2 * math.sqrt(n_rounds), rel=1e-14)


def test_a_cap_that_is_reached_surely_is_gaussian_dp_of_the_cap():
    got = participation_mixture((1.0,) * 4, 10.0, probability=0.5, n_rounds=1000, cap=4)
    assert got == worst_participation((1.0,) * 4, 10.0, n_rounds=1000, cap=4) == GaussianDP(0.2)


def test_messages_that_move_nothing_cost_nothing():
    got = participation_mixture((0.0, 0.0), 1.0, probability=0.5, n_rounds=2)
    assert got.delta(0.0) == 0.0
    first_only = participation_mixture((1.0, 0.0, 0.0), 1.0, probability=0.5, n_rounds=3)
    assert first_only.delta(0.5) == pytest.approx(0.875 * GaussianDP(1.0).delta(0.5), rel=1e-12)


def test_sensitivities_of_any_magnitude_neither_overflow_nor_vanish():
    for scale in (1e-300, 1e300):
        got = participation_mixture((scale,) * 4, scale, probability=0.5, n_rounds=4)
        same = participation_mixture((1.0,) * 4, 1.0, probability=0.5, n_rounds=4)
        assert got.delta(1.0) == pytest.approx(same.delta(1.0), rel=1e-12)
    tiny = participation_mixture((1.0,) * 4, 1e200, probability=0.5, n_rounds=4)
    assert 0 < tiny.delta(0.0) < 1e-199


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"noise_std": 0.0}, "Got noise_std=0.0"),
        ({"noise_std": math.inf}, "Got noise_std=inf"),
        ({"probability": 0.0}, "Got probability=0.0"),
        ({"probability": 1.1}, "Got probability=1.1"),
        ({"probability": math.nan}, "Got probability=nan"),
        ({"n_rounds": 0}, "Got n_rounds=0"),
        ({"n_rounds": 1.5}, "Got n_rounds=1.5"),
        ({"cap": 0}, "Got cap=0"),
        ({"cap": 2.0}, "Got cap=2.0"),
        ({"sensitivities": (1.0,)}, "Got 1 sensitivities, expected 2"),
        ({"sensitivities": (1.0, -1.0)}, "Got sensitivity=-1.0"),
        ({"sensitivities": (1.0, math.nan)}, "Got sensitivity=nan"),
        ({"sensitivities": (1e308, 1.0), "noise_std": 1e-308}, r"use NonPrivate\(\)"),
    ],
)
def test_parameters_outside_the_theorem_are_refused(changes, message):
    parameters = {
        "sensitivities": (1.0, 1.0),
        "noise_std": 1.0,
        "probability": 0.5,
        "n_rounds": 2,
        "cap": None,
    } | changes
    with pytest.raises(ValueError, match=message):
        participation_mixture(
            parameters.pop("sensitivities"), parameters.pop("noise_std"), **parameters
        )


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_one_visible_round_attains_it(epsilon):
    """Hockey stick of the labelled pair, integrated: N(0, s^2) if absent, N(1, s^2) if present."""
    q, std = 0.3, 0.8
    threshold = 0.5 + epsilon * std**2
    exact = quad(
        lambda x: q * (norm.pdf(x, 1, std) - math.exp(epsilon) * norm.pdf(x, 0, std)),
        threshold,
        threshold + 40 * std,
        epsabs=1e-14,
        points=[threshold + std],
    )[0]
    got = participation_mixture((1.0,), std, probability=q, n_rounds=1).delta(epsilon)
    assert got == pytest.approx(exact, rel=1e-9, abs=1e-14)


@pytest.mark.parametrize("cap", [2, None])
def test_the_simulated_loss_of_visible_rounds_meets_the_mixture(cap):
    """Two points, five rounds, messages of decreasing size: the exact loss, sampled."""
    rng = np.random.default_rng(0)
    sizes, std, q, n_rounds, n_runs = np.array([1.0, 0.8, 0.5, 0.3, 0.2]), 1.3, 0.4, 5, 400_000
    present = rng.random((n_runs, n_rounds)) < q
    order = present.cumsum(axis=1)
    present &= order <= (cap or n_rounds)
    shift = np.where(present, sizes[np.maximum(order, 1) - 1], 0.0)
    seen = shift + std * rng.standard_normal((n_runs, n_rounds))
    loss = ((shift * seen - 0.5 * shift**2) / std**2).sum(axis=1)
    guarantee = participation_mixture(tuple(sizes), std, probability=q, n_rounds=n_rounds, cap=cap)
    for epsilon in (0.0, 0.3, 1.0):
        gains = np.maximum(0.0, -np.expm1(epsilon - loss))
        error = gains.std() / math.sqrt(n_runs)
        assert abs(gains.mean() - guarantee.delta(epsilon)) <= 4 * error
        assert error < 0.05 * gains.mean()


def test_a_record_is_not_hidden_by_the_sampling_of_its_client():
    """A large message that all neighbours share shows who took part, whatever the noise.

    The client's message is ``common`` or ``common + 1``. The bound for a sampled record, which
    nothing but sampling hides, promises delta(1) of the order 1e-14; its arithmetic charges 1e-12.
    """
    q, std, n_rounds, n_runs = 0.1, 22.2, 1000, 20_000
    mixture = participation_mixture((1.0,) * n_rounds, std, probability=q, n_rounds=n_rounds)
    assert mixture.delta(1.0) == pytest.approx(3.4e-3, rel=0.02)

    # The exact loss where participation is not told, but a common message of 20 noise scales is
    # there to be seen.
    rng = np.random.default_rng(1)
    common = 20 * std
    gains = np.empty(n_runs)
    for start in range(0, n_runs, 1000):
        present = rng.random((1000, n_rounds)) < q
        seen = np.where(present, common + 1, 0.0) + std * rng.standard_normal(present.shape)

        def log_density(message, seen=seen):
            away = np.log1p(-q) - 0.5 * (seen / std) ** 2
            return np.logaddexp(away, math.log(q) - 0.5 * ((seen - message) / std) ** 2)

        loss = (log_density(common + 1) - log_density(common)).sum(axis=1)
        gains[start : start + 1000] = np.maximum(0.0, -np.expm1(1.0 - loss))
    error = gains.std() / math.sqrt(n_runs)
    assert gains.mean() + 4 * error >= mixture.delta(1.0) >= gains.mean() - 4 * error
    assert gains.mean() - 4 * error > 1e-3

    pytest.importorskip("dp_accounting")
    sampled = PoissonSubsampledGaussian(q, std, n_rounds, "zero_out")
    assert sampled.delta(1.0) < 1e-11


def test_a_client_that_is_protected_as_a_whole_is_hidden_by_its_sampling():
    pytest.importorskip("dp_accounting")
    mixture = participation_mixture((1.0,) * 1000, 10.0, probability=0.1, n_rounds=1000)
    sampled = PoissonSubsampledGaussian(0.1, 10.0, 1000, "zero_out")
    assert sampled.epsilon(1e-6) < mixture.epsilon(1e-6)


def test_a_mean_of_states_that_is_released_again_exceeds_the_average_over_participation():
    """A state that moved once is in every later mean: what counts is the first participation.

    A linear loss at relaxation 1/2 moves a state at its first participation, by the whole
    distance, and never again. A threshold on the sum of the means, blind to participation, already
    wins more than the average over the number of participations allows.
    """
    q, ratio, n_rounds = 0.01, 0.3, 100
    shifted = np.arange(n_rounds, 0, -1)  # releases from the first participation on
    law = np.append(q * (1 - q) ** np.arange(n_rounds), (1 - q) ** n_rounds)
    shift = ratio * np.append(shifted, 0) / math.sqrt(n_rounds)
    threshold = np.linspace(-2, 6, 2000)
    gain = ndtr(shift - threshold[:, None]) @ law - math.e * ndtr(-threshold)

    refuted = participation_mixture((ratio,) * n_rounds, 1.0, probability=q, n_rounds=n_rounds)
    assert refuted.delta(1.0) == pytest.approx(0.00134, abs=5e-6)
    assert gain.max() == pytest.approx(0.231, abs=5e-5)
    assert gain.max() > 100 * refuted.delta(1.0)

    releases_after_first = Mixture(
        tuple(law), tuple(GaussianDP(ratio * math.sqrt(n)) for n in (*shifted, 0))
    )
    assert gain.max() <= releases_after_first.delta(1.0) <= 0.36


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-9), (1.0, 1e-6), (8.0, 1e-5)])
@pytest.mark.parametrize("cap", [None, 5])
def test_calibration_meets_the_budget_on_average_closely(epsilon, delta, cap):
    def family(noise_std):
        return participation_mixture(
            (2.0,) * 100, noise_std, probability=0.05, n_rounds=100, cap=cap
        )

    noise = calibrate_noise(family, epsilon, delta)
    assert family(noise).delta(epsilon) <= delta < family(noise * (1 - 1e-5)).delta(epsilon)
    assert family(noise).epsilon(delta) <= epsilon


def test_two_fits_compose_with_the_participation_of_each_revealed():
    one = participation_mixture((1.0,) * 3, 2.0, probability=0.5, n_rounds=3)
    two = participation_mixture((1.0,) * 6, 2.0, probability=0.5, n_rounds=6)
    for epsilon in EPSILONS:
        assert compose(one, one).delta(epsilon) == pytest.approx(two.delta(epsilon), rel=1e-12)


def test_the_law_of_many_rounds_is_the_binomial_one():
    from skdpadmm.privacy._participation import _binomial_law

    for n, p in [(1, 0.5), (10, 0.999), (5000, 0.3), (200_000, 1e-4)]:
        law = _binomial_law(n, p)
        expected = binom.pmf(np.arange(n + 1), n, p)
        likely = expected > 1e-30
        assert law.shape == (n + 1,)
        np.testing.assert_allclose(law[likely], expected[likely], rtol=1e-9)
        assert logsumexp(np.log(law[law > 0])) == pytest.approx(0.0, abs=1e-13)


@pytest.mark.parametrize("neighboring", ["zero_out", "replace_one"])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
@pytest.mark.parametrize("probability", [0.5, 0.1])
def test_sampling_needs_no_less_noise_for_as_many_updates(neighboring, epsilon, probability):
    """Noise per update: a sum moves by q of what it moves where all take part."""
    delta, n_rounds = 1e-5, 100
    factor = Neighboring(neighboring).sensitivity_factor
    full = factor / gaussian_mu(epsilon, delta)
    reduced = probability * math.sqrt(n_rounds)
    hidden = calibrate_noise(
        lambda scale: PoissonSubsampledGaussian(probability, scale, n_rounds, neighboring),
        epsilon,
        delta,
    )
    assert hidden / reduced >= 0.98 * full
    visible = calibrate_noise(
        lambda scale: participation_mixture(
            (factor,) * n_rounds, scale, probability=probability, n_rounds=n_rounds
        ),
        epsilon,
        delta,
    )
    assert visible / reduced >= 1.4 * full
