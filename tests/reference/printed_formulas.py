"""Formulas printed in papers that fail for the algorithm they are attached to; no report uses one.

The tests show where each fails.
"""

from __future__ import annotations

import math

import numpy as np


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
