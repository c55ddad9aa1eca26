"""On linear losses divergences are exact: what is claimed is attained, what is printed refuted."""

from __future__ import annotations

import math

import numpy as np
import pytest

from skdpadmm.algorithms import ConsensusADMM
from skdpadmm.losses import LogisticLoss
from skdpadmm.privacy.literature import consensus_admm_printed_rdp

N_SAMPLES, N_ITER, STEP, SIGMA = 100, 10, 0.5, 40.0


def printed_algorithm_2(slopes, rng, n_runs):
    """The printed algorithm on losses ``slope_i * w`` of one number: its last mean, n_runs times.

    Every record's state keeps noise of its own; relaxation 1/2, no regulariser.
    """
    states = np.zeros((n_runs, len(slopes)))
    for _ in range(N_ITER):
        z = states.mean(axis=1, keepdims=True)
        x = (2 * z - states) - STEP * slopes
        states += (x - z) + 0.5 * SIGMA * rng.standard_normal(states.shape)
    return states.mean(axis=1)


def test_printed_bound_of_algorithm_2_is_refuted_and_the_exact_divergence_is_n_times_larger():
    rng = np.random.default_rng(0)
    slopes = rng.choice([-1.0, 1.0], N_SAMPLES)
    neighbour = slopes.copy()
    neighbour[0] = -slopes[0]
    n_runs = 4000
    one, other = (printed_algorithm_2(s, rng, n_runs) for s in (slopes, neighbour))
    # Both are Gaussian with one variance: the divergence is alpha / 2 * shift^2 / variance.
    shift = N_ITER * STEP * 2 / N_SAMPLES
    variance = N_ITER * 0.25 * SIGMA**2 / N_SAMPLES
    assert np.var(one) == pytest.approx(variance, rel=6 * math.sqrt(2 / n_runs))
    standard_error = math.sqrt(2 * variance / n_runs)
    assert abs(abs(other.mean() - one.mean()) - shift) < 5 * standard_error

    for alpha in (1.5, 2.0, 10.0, 100.0):
        exact = alpha / 2 * shift**2 / variance
        printed = consensus_admm_printed_rdp(alpha, N_ITER, 1.0, STEP, SIGMA, N_SAMPLES)
        assert exact == pytest.approx(N_SAMPLES * printed)
        assert exact > printed


def test_consensus_admm_is_exactly_as_private_as_it_claims_on_the_same_example(replay, random_path):
    loss = LogisticLoss()
    rng = np.random.default_rng(0)
    X, y = np.ones((N_SAMPLES, 1)), rng.choice([-1.0, 1.0], N_SAMPLES)
    y2 = y.copy()
    y2[0] = -y[0]
    # The clip is far below the derivatives: losses are linear.
    algorithm = ConsensusADMM(step_size=STEP, clip_norm=0.01)
    path = random_path(2, loss, scale=1e-3)
    first = replay(algorithm, X, y, loss, path, max_iter=N_ITER)
    second = replay(algorithm, X, y2, loss, path, max_iter=N_ITER)
    release = first.plan.releases[0]
    shifts = np.subtract(first.values, second.values)
    exact_mu = np.linalg.norm(shifts) / release.noise_std
    claimed_mu = first.plan.guarantee().mu
    assert exact_mu <= claimed_mu
    assert exact_mu == pytest.approx(claimed_mu, rel=1e-6)


@pytest.mark.parametrize(("epsilon", "mu"), [(0.1, 0.032521), (1.0, 0.268051), (5.0, 1.121242)])
def test_noise_follows_from_epsilon_through_the_gaussian_dp_parameter(epsilon, mu):
    from skdpadmm import DPAdmmLogisticRegression

    plan = DPAdmmLogisticRegression(epsilon=epsilon, delta=1e-5).plan(1000, 4, 2)
    parts = [math.hypot(*r.sensitivities) / r.noise_std for r in plan.releases]
    assert len(parts) == 2
    assert plan.guarantee().mu == pytest.approx(mu, rel=1e-4)
    assert math.hypot(*parts) == pytest.approx(mu, rel=1e-4)
    assert plan.guarantee().delta(epsilon) <= 1e-5
    assert max(plan.releases[0].sensitivities) == pytest.approx(2**0.5 / 1000, rel=1e-6)
    assert max(plan.releases[1].sensitivities) == pytest.approx(2 / 1000, rel=1e-6)


def test_zero_out_needs_half_the_noise_of_replace_one_for_the_same_steps():
    from skdpadmm import DPAdmmRidge

    algorithm = ConsensusADMM(step_size=0.1, clip_norm=1.0)
    noise = [
        [r.noise_std for r in plan.releases]
        for relation in ("replace_one", "zero_out")
        for plan in [DPAdmmRidge(neighboring=relation, algorithm=algorithm).plan(1000, 4)]
    ]
    # The second moment of a row moves by sqrt(2), a clipped gradient by 2.
    assert noise[0] == pytest.approx([2**0.5 * noise[1][0], 2 * noise[1][1]])
