"""Printed formulas, and where they fail."""

from __future__ import annotations

import math

import numpy as np
import pytest

from skdpadmm.privacy import GaussianDP, gaussian_mu
from skdpadmm.privacy.literature import multi_step_admm_printed_noise, token_admm_printed_rdp


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
