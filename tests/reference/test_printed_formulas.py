"""Formulas printed in papers that fail for the algorithm they are attached to, and where.

No report uses one.
"""

import math

import numpy as np
import pytest

from skdpadmm.privacy import (
    GaussianDP,
    LaplaceDP,
    compose_counts,
    gaussian_mu,
    split_budget,
)
from tests.privacy.attained import log_density


def token_admm_rdp(alpha, n_visits, lipschitz, step_size, noise_std, n_agents):
    """Unproven: Cyffers, Bellet and Basu, ICML 2023, Theorem 4.

    The proof takes the maps between two visits to be non-expansive. Agents keep states, and with
    relaxation lambda the token is multiplied by ``1 + 2 lambda / n`` at a first visit. Beyond first
    visits the token alone is not a Markov chain. `TokenWalk` is about a token without states.
    """
    squared = lipschitz**2 * step_size**2 / noise_std**2
    return 8 * alpha * n_visits * squared * math.log(n_agents) / n_agents


def multi_step_admm_noise(epsilon, delta, n_releases, constant=1.0):
    """Unsafe for large epsilon: Huang and Gong, multi-step ADMM, Theorem 6, constant not given.

    T adaptive Gaussian releases are exactly GDP with ``mu = sqrt(T) / sigma``.
    """
    return constant * math.sqrt(2 * n_releases * math.log(1.25 / delta)) / epsilon


def gradient_admm_zcdp(n_pairs, ratio, kappa, rate, weight, norm_squared=1.0):
    """Too small: Chan, Xie and Zhao, ITCS 2024, Corollary 7.3.

    The contraction of a pair of steps is taken to be L^2; but L is the contraction of the SQUARED
    norm in a step, so that of the norm in a pair is L. What follows has
    ``L^(2T-1) (1 - L^2) / (1 - L^(2T))`` in place of ``L^(2T-1) / T``.
    """
    constant = max(2 / weight, 3 / kappa) * (weight + kappa * norm_squared)
    return ratio**2 / 2 * constant * rate ** (2 * n_pairs - 1) / n_pairs


def gradient_admm_stopping(n_records, position):
    """Off by one: Chan, Xie and Zhao, section 8, the law of a record's steps before a random stop.

    Returned are the values said to be equally likely where it is used, and the chance that it is
    not. The last record is printed to be never used; the last step of all uses it.
    """
    half = n_records // 2
    if position <= half:
        return np.arange(half + 1, n_records + 1), 0.0
    return np.arange(1, n_records - position + 1), (position - half) / half


def coordinate_descent_epsilon(epsilons, delta):
    """Too small: Bellet, Guerraoui, Taziki and Tommasi, Theorem 1.

    The theorem that it applies sums the squares inside the roots; here is a single one of them.
    """
    steps = np.asarray(epsilons)
    mean, norm = np.sum(steps * np.tanh(0.5 * steps)), np.linalg.norm(steps)
    logarithms = (math.log(math.e + norm / delta), math.log(1 / delta))
    return min(steps.sum(), *(mean + steps.max() * math.sqrt(2 * log) for log in logarithms))


def coordinate_descent_gaussian_noise(epsilon, delta, lipschitz):
    """Too much: the same, Remark 5. The sensitivity is 2 L / m for m records; the m is missing."""
    return 2 * lipschitz * math.sqrt(2 * math.log(2 / delta)) / epsilon


def coordinate_descent_split(n_steps, contraction):
    """In reverse: the same, Proposition 2. The noise of a step is contracted by those after it."""
    weights = contraction ** (np.arange(n_steps) / 3)
    return weights / weights.sum()


def random_aggregator_average_loss(rate, width, shift):
    """Refuted: Xiao, "Local Differential Privacy in Decentralized Optimization", Theorem 2.2.2.

    It takes the smaller of two losses for the larger. Nor does an average of losses bound a delta.
    """
    u, s = rate * width, rate * shift

    def below(x):
        return (2 * x + math.exp(-x) - math.exp(x - u)) / (2 * u)

    middle = 0.5 * (u - s)
    first = 1 - 2 * (below(middle) - below(0.0))
    second = 2 * (below(middle + s) - below(s))
    return math.log(math.exp(s) * first + second) / s


# Where each fails.


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
    assert token_admm_rdp(2.0, 3, 1.5, 0.4, 2.0, 50) == pytest.approx(
        3 * 16 * ratio**2 * math.log(50) / 50
    )


@pytest.mark.parametrize("n_releases", [1, 200])
@pytest.mark.parametrize(("delta", "last_safe"), [(1e-3, 7.46), (1e-5, 8.42), (1e-6, 8.78)])
def test_the_printed_noise_of_multi_step_admm_is_too_small_for_some(delta, last_safe, n_releases):
    for target, safe in ((1.0, True), (last_safe - 0.01, True), (last_safe + 0.01, False)):
        std = multi_step_admm_noise(target, delta, n_releases)
        needed = math.sqrt(n_releases) / gaussian_mu(target, delta)
        assert (std >= needed) == safe
    std = multi_step_admm_noise(10.0, 1e-5, n_releases)
    epsilon = GaussianDP(math.sqrt(n_releases) / std).epsilon(1e-5)
    assert epsilon == pytest.approx(10.39, abs=0.005)
    needed = {(1.0, 1e-5): 52.759, (0.5, 1e-5): 99.445, (2.0, 1e-6): 31.544, (1.0, 1e-3): 36.411}
    for budget, std in needed.items():
        assert math.sqrt(200) / gaussian_mu(*budget) == pytest.approx(std, abs=6e-4)


def test_the_printed_epsilon_of_coordinate_descent_lacks_the_sum_in_its_roots():
    claimed = coordinate_descent_epsilon([0.1] * 100, 1e-5)
    assert claimed == pytest.approx(0.4996 + 0.4799, abs=1e-4)
    pytest.importorskip("dp_accounting")
    steps = compose_counts([(LaplaceDP(0.1), 100)])
    assert steps.epsilon(1e-5) > 4 * claimed
    assert steps.delta(claimed) > 0.1


@pytest.mark.parametrize("n_records", [1, 50])
def test_the_printed_gaussian_noise_of_coordinate_descent_ignores_the_records(n_records):
    needed = 2.0 / n_records / gaussian_mu(1.0, 1e-5)
    found = coordinate_descent_gaussian_noise(1.0, 1e-5, 1.0)
    assert found / needed == pytest.approx(1.32 * n_records, rel=0.01)


def test_the_printed_split_is_the_reverse_of_the_optimum_and_worse_than_equal_shares():
    reverse, later = coordinate_descent_split(6, 0.8), 0.8 ** np.arange(5, -1, -1)
    np.testing.assert_allclose(reverse, split_budget("optimal", 6, 0.8)[::-1], rtol=1e-9)
    assert np.sum(later / reverse**2) > np.sum(later / split_budget("equal", 6) ** 2)


@pytest.mark.parametrize("n_records", [2, 8, 40])
def test_the_printed_law_of_a_random_stop_forgets_the_last_record_of_a_realisation(n_records):
    times = np.arange(n_records // 2 + 1, n_records + 1)
    for position in range(n_records // 2 + 1, n_records + 1):
        steps, unused = gradient_admm_stopping(n_records, position)
        used = np.count_nonzero(times >= position)
        assert 1 - unused == pytest.approx((used - 1) / times.size)
        assert len(steps) == used - 1


@pytest.mark.parametrize("n_pairs", [2, 10, 100])
def test_the_printed_strongly_convex_divergence_is_below_what_linear_maps_attain(n_pairs):
    rate, weight, kappa = 0.95, 0.8, 1.5
    # The lemmas before it: the start, one pair with a factor L, and the contraction L of a pair.
    start, pair = weight + kappa, 0.5 * rate * max(2 / weight, 3 / kappa)
    proven = start * pair / sum(rate ** (-2 * t) for t in range(n_pairs))
    factor = n_pairs * (1 - rate**2) / (1 - rate ** (2 * n_pairs))
    found = gradient_admm_zcdp(n_pairs, 1.0, kappa, rate, weight)
    assert proven / found == pytest.approx(factor)
    assert factor > 1.04
    # z <- L z + noise has all that the theorem asks for, and C |z - z'|^2 in a step.
    exact = 0.5 * rate ** (2 * n_pairs) / sum(rate ** (2 * t) for t in range(n_pairs))
    assert exact / (0.5 * rate ** (2 * n_pairs) / n_pairs) == pytest.approx(factor)


@pytest.mark.parametrize(("width", "shift", "refuted"), [(0.5, 0.1, 0.6633), (0.1, 1e-3, 0.8851)])
def test_the_printed_bound_of_the_average_loss_is_below_the_average(width, shift, refuted):
    assert random_aggregator_average_loss(5.0, width, shift) == pytest.approx(refuted, 1e-4)
    u, s = 5.0 * width, 5.0 * shift
    x = np.linspace(-40.0, u / 2, 4_000_001)
    here = log_density(x, u)
    loss = np.exp(here) * np.maximum(here - log_density(x - s, u), log_density(x + s, u) - here)
    assert 2 * np.trapezoid(loss, x) / s > refuted + 1e-3


def test_general_admm_moves_further_than_printed_where_a_matrix_is_small():
    """Cyffers, Bellet and Basu, (24) and (26): two linear losses of slope L, and A = w I."""
    lipschitz, gamma, n_records, relaxation = 1.0, 2.0, 100, 0.75
    for w in (0.2, 0.5, 1.0):
        # The minimiser of s L x / n + (w x - v)^2 / (2 gamma) for s = 1 and s = -1.
        moved = 2 * gamma * lipschitz / (n_records * w**2)
        printed = 4 * relaxation * lipschitz * gamma * w / (n_records * w)
        assert 2 * relaxation * w * moved == pytest.approx(printed / w)


def test_the_remainder_of_random_admm_can_be_negative_under_its_condition():
    """Xiao, Theorem 3.1.1: (F.7) for scalar models that do not change, under (3.3)."""
    zeta, above, residuals = 0.5, np.array([1.0, 1.5]), np.array([1.0, -0.8])
    # Penalties are fixed, so the second line of (3.3) has 0 on the right; D is large enough.
    total = residuals.sum()
    remainder = -zeta * total**2 + 2 * total * ((above + zeta / 2) @ residuals)
    assert remainder == pytest.approx(-0.08)


def shared_descent_loss(n_agents, n_rounds, step):
    """Squared mu over that of the thesis' Theorem 2.1.1, with gradients at hidden models.

    One loss is quadratic. Far from 0 its state changes sign in every round, and so does what a
    neighbour adds, D |x|. Of sums that hold the noise of all the observer knows the public mean.
    """
    # In alternating signs the hidden state is ``e_k = step e_{k-1} + noise + shift``.
    paths = np.tril(float(step) ** np.subtract.outer(np.arange(n_rounds), np.arange(n_rounds)))
    mean, covariance = paths.sum(axis=1), paths @ paths.T + (n_agents - 1) * np.eye(n_rounds)
    return mean @ np.linalg.solve(covariance, mean) * n_agents / n_rounds


@pytest.mark.parametrize(
    ("n_agents", "n_rounds", "step", "expected"),
    [(2, 2, 1, 1.4), (10, 100, 1, 9.75), (100, 100, 1, 90.54), (100, 100, 0.9, 45.74),
     (100, 100, 0.7, 9.74), (100, 100, 0.5, 3.82), (100, 100, 0.3, 2.0)],
)  # fmt: skip
def test_shared_descent_at_hidden_models_loses_its_gain(n_agents, n_rounds, step, expected):
    assert shared_descent_loss(n_agents, n_rounds, step) == pytest.approx(expected, abs=0.005)


def test_the_loss_of_shared_descent_is_that_of_its_rounds():
    """The scheme as printed, agent by agent, for every vector of noise."""
    n_agents, n_rounds, step = 3, 4, 0.8

    # The public mean is known to the observer, and adds a known constant to every state.
    def observed(noise, neighbour):
        state, seen = 1e6, []
        for drawn in noise:
            state = -step * state - neighbour * np.sign(state) + drawn[0]
            seen.append(state + drawn[1:].sum())
        return np.array(seen)

    zero = np.zeros((n_rounds, n_agents))
    units = np.eye(n_rounds * n_agents).reshape(-1, n_rounds, n_agents)
    linear = np.array([observed(unit, 0.0) - observed(zero, 0.0) for unit in units])
    moved = observed(zero, 1.0) - observed(zero, 0.0)
    found = moved @ np.linalg.solve(linear.T @ linear, moved) * n_agents / n_rounds
    assert found == pytest.approx(shared_descent_loss(n_agents, n_rounds, step), rel=1e-6)
