"""Printed formulas, each with a place where it fails."""

from __future__ import annotations

import math

import numpy as np
import pytest

from skdpadmm.privacy import GaussianDP, LaplaceDP, gaussian_mu, kov_epsilon, literature


def exact_token_divergence(n, relaxation, n_hops, ratio):
    """Divergence of order 2 of the mean, as first visits of agents with linear losses change it.

    Every holder has ``u = u_0`` public and sends ``2 relaxation (x - z) + relaxation * noise``:
    ``mean <- (1 + 2 relaxation / n) mean + const + relaxation noise / n``. ``ratio`` is L gamma
    over sigma.
    """
    means, variance = np.zeros(2), 0.0
    for t in range(n_hops):
        x = 2 * means - (np.array([ratio, -ratio]) if t == 0 else 0.0)
        means = means + 2 * relaxation * (x - means) / n
        variance = (1 + 2 * relaxation / n) ** 2 * variance + (relaxation / n) ** 2
    return (means[1] - means[0]) ** 2 / variance


@pytest.mark.parametrize(("relaxation", "excess"), [(1.0, 4.07), (0.5, 2.3)])
def test_the_token_of_stateful_agents_is_not_amplified_as_printed(relaxation, excess):
    ratio = 0.3
    for n in (2, 10, 1000):
        growth = 1 + 2 * relaxation / n
        for m in (1, n // 2, n):
            exact = exact_token_divergence(n, relaxation, m, ratio)
            formula = 16 * ratio**2 * (1 - growth**-2) / (1 - growth ** (-2 * m))
            assert exact == pytest.approx(formula, rel=1e-9)
            assert exact >= 16 * ratio**2 / m * (1 - 1e-12)  # what is in the proof
    assert exact / (16 * ratio**2 / m) == pytest.approx(excess, rel=0.01)
    printed = literature.token_admm_printed_rdp(2.0, 3, 1.5, 0.4, 2.0, 50)
    assert printed == pytest.approx(3 * 16 * ratio**2 * math.log(50) / 50)


@pytest.mark.parametrize("n_releases", [1, 200])
@pytest.mark.parametrize(("delta", "last_safe"), [(1e-3, 7.46), (1e-5, 8.42), (1e-6, 8.78)])
def test_the_printed_noise_of_multi_step_admm_is_too_small_for_some(delta, last_safe, n_releases):
    for target, safe in ((1.0, True), (last_safe - 0.01, True), (last_safe + 0.01, False)):
        std = literature.multi_step_admm_printed_noise(target, delta, n_releases)
        needed = math.sqrt(n_releases) / gaussian_mu(target, delta)
        assert (std >= needed) == safe
    std = literature.multi_step_admm_printed_noise(10.0, 1e-5, n_releases)
    epsilon = GaussianDP(math.sqrt(n_releases) / std).epsilon(1e-5)
    assert epsilon == pytest.approx(10.39, abs=0.005)
    needed = {(1.0, 1e-5): 52.759, (0.5, 1e-5): 99.445, (2.0, 1e-6): 31.544, (1.0, 1e-3): 36.411}
    for budget, std in needed.items():
        assert math.sqrt(200) / gaussian_mu(*budget) == pytest.approx(std, abs=6e-4)


def test_the_printed_epsilon_of_coordinate_descent_lacks_the_sum_in_its_roots():
    printed = literature.coordinate_descent_printed_epsilon([0.1] * 100, 1e-5)
    assert printed == pytest.approx(0.4996 + 0.4799, abs=1e-4)
    assert printed < kov_epsilon([0.1] * 100, 1e-5) / 5
    one = literature.coordinate_descent_printed_epsilon([0.3], 1e-5)
    assert one == pytest.approx(kov_epsilon([0.3], 1e-5), rel=1e-13)  # right for one release
    pytest.importorskip("dp_accounting")
    assert LaplaceDP((0.1,), (100,)).epsilon(1e-5) > 4 * printed
    assert LaplaceDP((0.1,), (100,)).delta(printed) > 0.1


@pytest.mark.parametrize("n_records", [1, 50])
def test_the_printed_gaussian_noise_of_coordinate_descent_ignores_the_records(n_records):
    printed = literature.coordinate_descent_printed_gaussian_noise(1.0, 1e-5, 1.0)
    needed = 2.0 / n_records / gaussian_mu(1.0, 1e-5)
    assert printed / needed == pytest.approx(1.32 * n_records, rel=0.01)


def test_a_loss_that_is_lipschitz_in_the_l1_norm_moves_a_laplace_release_by_more():
    """Its gradient is bounded entry by entry: what is declared as one release is p of them."""
    declared, gradient, other = 0.1, np.ones(10), -np.ones(10)
    true = LaplaceDP(np.abs(gradient - other) / (2.0 / declared))
    assert true.pure_epsilon == pytest.approx(10 * declared)
    # Seen where all entries have one sign: the loss is then the whole sum.
    attained = (1 - math.exp(declared - true.pure_epsilon)) * 0.5**10
    assert 0 < attained <= true.delta(declared)
