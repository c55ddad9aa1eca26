"""Printed formulas, and where they fail."""

from __future__ import annotations

import math

import numpy as np
import pytest

from skdpadmm.privacy import GaussianDP, LaplaceDP, gaussian_mu, kov_epsilon
from skdpadmm.privacy.literature import (
    coordinate_descent_printed_epsilon,
    coordinate_descent_printed_gaussian_noise,
    coordinate_descent_printed_noise_term,
    multi_step_admm_printed_noise,
    token_admm_printed_rdp,
)


def exact_token_divergence(alpha, n, relaxation, n_hops, ratio):
    """Divergence of the mean, as first visits of agents with linear losses change it.

    Every holder has ``u = u_0`` public and sends ``2 relaxation (x - z) + relaxation * noise``:
    ``mean <- (1 + 2 relaxation / n) mean + const + relaxation noise / n``. ``ratio`` is L gamma
    over sigma.
    """
    gradients = np.zeros(n_hops)
    other = gradients.copy()
    gradients[0], other[0] = ratio, -ratio
    means, variance = np.zeros(2), 0.0
    for t in range(n_hops):
        x = 2 * means - 0.0 - np.array([gradients[t], other[t]])
        means = means + 2 * relaxation * (x - means) / n
        variance = (1 + 2 * relaxation / n) ** 2 * variance + (relaxation / n) ** 2
    return alpha / 2 * (means[1] - means[0]) ** 2 / variance


@pytest.mark.parametrize(("relaxation", "excess"), [(1.0, 4.07), (0.5, 2.3)])
def test_the_token_of_stateful_agents_is_not_amplified_as_printed(relaxation, excess):
    alpha, ratio = 2.0, 0.3
    for n in (2, 10, 1000):
        growth = 1 + 2 * relaxation / n
        for m in (1, n // 2, n):
            exact = exact_token_divergence(alpha, n, relaxation, m, ratio)
            formula = 8 * alpha * ratio**2 * (1 - growth**-2) / (1 - growth ** (-2 * m))
            assert exact == pytest.approx(formula, rel=1e-9)
            in_the_proof = 8 * alpha * ratio**2 / m
            assert exact >= in_the_proof * (1 - 1e-12)
    assert exact / in_the_proof == pytest.approx(excess, rel=0.01)


def test_the_printed_token_divergence():
    one_contribution = 8 * 2.0 * 0.3**2 * math.log(50) / 50
    assert token_admm_printed_rdp(2.0, 3, 1.5, 0.2, 1.0, 50) == pytest.approx(3 * one_contribution)


@pytest.mark.parametrize("n_releases", [1, 200])
@pytest.mark.parametrize(("delta", "last_safe"), [(1e-3, 7.46), (1e-5, 8.42), (1e-6, 8.78)])
def test_the_printed_noise_of_multi_step_admm_is_too_small_above_some_epsilon(
    delta, last_safe, n_releases
):
    def true_epsilon(target):
        std = multi_step_admm_printed_noise(target, delta, n_releases)
        return GaussianDP(math.sqrt(n_releases) / std).epsilon(delta)

    assert true_epsilon(last_safe - 0.01) <= last_safe - 0.01
    assert true_epsilon(last_safe + 0.01) > last_safe + 0.01
    assert true_epsilon(1.0) < 1.0
    if delta == 1e-5:
        assert true_epsilon(10.0) == pytest.approx(10.39, abs=0.005)


@pytest.mark.parametrize(
    ("epsilon", "delta", "std"),
    [(1.0, 1e-5, 52.759), (0.5, 1e-5, 99.445), (2.0, 1e-6, 31.544), (1.0, 1e-3, 36.411)],
)
def test_the_noise_that_200_releases_need(epsilon, delta, std):
    needed = math.sqrt(200) / gaussian_mu(epsilon, delta)
    assert needed == pytest.approx(std, abs=6e-4)
    assert needed < multi_step_admm_printed_noise(epsilon, delta, 200)


def test_the_printed_epsilon_of_coordinate_descent_lacks_the_sum_in_its_roots():
    printed = coordinate_descent_printed_epsilon([0.1] * 100, 1e-5)
    assert printed == pytest.approx(0.4996 + 0.4799, abs=1e-4)
    # The closed form alone: 100 releases with this epsilon do not have a delta of 1e-5.
    assert printed < kov_epsilon([0.1] * 100, 1e-5) / 5
    pytest.importorskip("dp_accounting")
    steps = LaplaceDP((0.1,), (100,))
    assert steps.epsilon(1e-5) == pytest.approx(4.22, abs=0.005)
    assert steps.epsilon(1e-5) > 4 * printed
    assert steps.delta(printed) > 0.1


def test_the_printed_epsilon_is_right_for_one_release():
    for delta in (1e-5, 0.5):
        printed = coordinate_descent_printed_epsilon([0.3], delta)
        assert printed == pytest.approx(kov_epsilon([0.3], delta), rel=1e-14)


@pytest.mark.parametrize("n_entries", [2, 10])
def test_a_loss_that_is_lipschitz_in_the_l1_norm_moves_a_laplace_release_by_more(n_entries):
    """Its gradient, here a sign for each entry, is bounded entry by entry: the sum is p times it.

    What is declared as one release of epsilon then has the losses of p of them.
    """
    declared = 0.1
    gradient, other = np.ones(n_entries), -np.ones(n_entries)
    assert np.abs(gradient).max() == 1
    sensitivity = np.abs(gradient - other).sum()
    assert sensitivity == 2 * n_entries
    scale = 2.0 / declared
    true = LaplaceDP((np.abs(gradient - other) / scale).tolist())
    assert true.pure_epsilon == pytest.approx(n_entries * declared)
    # Seen where all entries have one sign: the loss is then the whole sum.
    attained = (1 - math.exp(-(true.pure_epsilon - declared))) * 0.5**n_entries
    assert 0 < attained <= true.delta(declared)


@pytest.mark.parametrize("n_records", [1, 50])
def test_the_printed_gaussian_noise_of_coordinate_descent_ignores_the_records(n_records):
    printed = coordinate_descent_printed_gaussian_noise(1.0, 1e-5, 1.0)
    needed = 2.0 / n_records / gaussian_mu(1.0, 1e-5)
    assert printed / needed > n_records
    assert printed / needed == pytest.approx(1.32 * n_records, rel=0.01)


def test_the_printed_noise_term_of_coordinate_descent_lacks_the_number_of_entries():
    """One step from the optimum: model noise b / L on p entries, under a block of curvature L."""
    n_entries, n_agents, lipschitz, weight, scale = 10, 3, 4.0, 2.0, 0.5
    exact = 0.5 * lipschitz * (2 * n_entries * (weight * scale / lipschitz) ** 2)
    printed = coordinate_descent_printed_noise_term(
        [[scale] * n_agents], 0.8, [weight] * n_agents, [lipschitz] * n_agents
    )
    assert exact == pytest.approx(n_entries * printed, rel=1e-14)


def test_the_printed_noise_term_discounts_the_wrong_end():
    """Noise in the last step is contracted by nothing, and in the first by all."""
    last = coordinate_descent_printed_noise_term([[0.0], [0.0], [1.0]], 0.5, [1.0], [1.0])
    first = coordinate_descent_printed_noise_term([[1.0], [0.0], [0.0]], 0.5, [1.0], [1.0])
    assert (first, last) == (1.0, 0.25)
