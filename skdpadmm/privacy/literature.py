"""Printed formulas that fail for the algorithm they are attached to.

They are here to compare with, each with the reason. No report ever uses one.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = [
    "consensus_admm_printed_rdp",
    "coordinate_descent_printed_epsilon",
    "coordinate_descent_printed_gaussian_noise",
    "coordinate_descent_printed_noise_term",
    "coordinate_descent_printed_split",
    "gradient_admm_printed_stopping",
    "gradient_admm_printed_zcdp",
    "multi_step_admm_printed_noise",
    "random_aggregator_printed_average_loss",
    "token_admm_printed_rdp",
]


def consensus_admm_printed_rdp(
    alpha: float,
    n_iter: int,
    lipschitz: float,
    step_size: float,
    noise_std: float,
    n_samples: int,
) -> float:
    r"""Return the divergence printed for centralised consensus ADMM. It is too small.

    .. math:: 8 \alpha K L^2 \gamma^2 / (\sigma^2 n^2)

    Cyffers, Bellet and Basu, ICML 2023, Theorem 2. It fails for their Algorithm 2: every block is
    noised by itself, so in the mean over n blocks the noise averages as well as the sensitivity.
    On linear losses the exact divergence of the released mean is
    :math:`8 \alpha K L^2 \gamma^2 / (\sigma^2 n)`, which is n times what is printed.

    Parameters
    ----------
    alpha : float
        Order of the divergence.
    n_iter : int
        Number of iterations K.
    lipschitz : float
        Lipschitz constant L of each record's loss.
    step_size : float
        Step size gamma of the proximal operators.
    noise_std : float
        Standard deviation sigma of the noise on a block.
    n_samples : int
        Number of records n.

    Returns
    -------
    float
        The printed value, not a bound.

    Examples
    --------
    >>> from skdpadmm.privacy.literature import consensus_admm_printed_rdp
    >>> consensus_admm_printed_rdp(2.0, 10, 1.0, 1.0, 1.0, 100)
    0.016
    """
    return 8 * alpha * n_iter * lipschitz**2 * step_size**2 / (noise_std**2 * n_samples**2)


def token_admm_printed_rdp(
    alpha: float,
    n_visits: int,
    lipschitz: float,
    step_size: float,
    noise_std: float,
    n_agents: int,
) -> float:
    r"""Return the divergence printed for what an agent learns from the token ADMM. It is unproven.

    .. math:: 8 \alpha K_i L^2 \gamma^2 \ln(n) / (\sigma^2 n)

    Cyffers, Bellet and Basu, ICML 2023, Theorem 4. The proof bounds the divergence m hops after a
    contribution by :math:`8 \alpha L^2 \gamma^2 / (\sigma^2 m)`, as though the token were passed
    through non-expansive maps. It is not: agents keep states, and with relaxation :math:`\lambda`
    the token is multiplied by :math:`c = 1 + 2 \lambda / n` at a first visit. On linear losses the
    exact divergence is :math:`8 \alpha L^2 \gamma^2 (1 - c^{-2}) / (\sigma^2 (1 - c^{-2m}))`,
    which is four times the bound at m = n and relaxation 1. Beyond first visits the token alone is
    not a Markov chain, and the rest of the proof fails as well. :class:`TokenWalk` is about a token
    without states, for which it can be mended.

    Parameters
    ----------
    alpha : float
        Order of the divergence.
    n_visits : int
        Number of visits K_i of the agent that is protected.
    lipschitz : float
        Lipschitz constant L of each agent's loss.
    step_size : float
        Step size gamma of the proximal operators.
    noise_std : float
        Standard deviation sigma of the noise, before relaxation.
    n_agents : int
        Number of agents n.

    Returns
    -------
    float
        The printed value, not a bound.

    Examples
    --------
    >>> from skdpadmm.privacy.literature import token_admm_printed_rdp
    >>> round(token_admm_printed_rdp(2.0, 10, 1.0, 1.0, 1.0, 100), 3)
    7.368
    """
    squared = lipschitz**2 * step_size**2 / noise_std**2
    return 8 * alpha * n_visits * squared * math.log(n_agents) / n_agents


def multi_step_admm_printed_noise(
    epsilon: float, delta: float, n_releases: int, constant: float = 1.0
) -> float:
    r"""Return the noise printed for multi-step ADMM, in units of the sensitivity. It may be unsafe.

    .. math:: \sigma = c_0 \sqrt{2 T \ln(1.25 / \delta)} / \epsilon

    Huang and Gong, "Differentially private ADMM for convex distributed learning: improved accuracy
    via multi-step approximation", Theorem 6, with "some constant" :math:`c_0` that is not given. T
    adaptive Gaussian releases cost exactly GDP with :math:`\mu = \sqrt{T} / \sigma`. So with
    :math:`c_0 = 1` the noise suffices up to :math:`\epsilon = 8.42` at :math:`\delta = 10^{-5}`
    (7.46 at 1e-3, 8.78 at 1e-6) and is too small above: a target of 10 gives 10.39.

    Parameters
    ----------
    epsilon : float
        Target.
    delta : float
        Target.
    n_releases : int
        Number of releases T, each of sensitivity 1.
    constant : float, default=1.0
        What is taken for the constant.

    Returns
    -------
    float
        The printed value; :func:`gaussian_mu` gives the noise that is needed, ``sqrt(T) / mu``.

    Examples
    --------
    >>> from skdpadmm.privacy.literature import multi_step_admm_printed_noise
    >>> round(multi_step_admm_printed_noise(1.0, 1e-5, 200), 2)
    68.52
    """
    return constant * math.sqrt(2 * n_releases * math.log(1.25 / delta)) / epsilon


def gradient_admm_printed_zcdp(
    n_pairs: int,
    ratio: float,
    kappa: float,
    rate: float,
    weight: float,
    norm_squared: float = 1.0,
) -> float:
    r"""Return the divergence printed for strongly convex gradient ADMM. Its derivation fails.

    .. math:: \frac{r^2}{2} \max\left(\frac{2}{R}, \frac{3}{\kappa}\right)
              (R + \kappa \|A\|^2) \frac{L^{2T - 1}}{T}

    Chan, Xie and Zhao, "Privacy Amplification by Iteration for ADMM with (Strongly) Convex
    Objective Functions", Corollary 7.3: what the state after 2T + 1 steps tells of the first. The
    amplification theorem is applied with the contraction :math:`L^2`, but L is the contraction of
    the SQUARED norm in a step, so that of the norm in a pair of steps is L, not its square. What
    follows has :math:`L^{2T - 1} (1 - L^2) / (1 - L^{2T})` in place of :math:`L^{2T - 1} / T`: it
    is larger by a factor between 1 and T. A linear iteration in one dimension with the contraction
    L attains it.

    Parameters
    ----------
    n_pairs : int
        T.
    ratio : float
        ``step_size * Delta / sigma``.
    kappa : float
        ``step_size * penalty_weight``.
    rate : float
        L, of the squared norm.
    weight : float
        R, of the norm.
    norm_squared : float, default=1.0
        The square of the spectral norm of A.

    Returns
    -------
    float
        The printed value, not a bound.

    Examples
    --------
    >>> from skdpadmm.privacy.literature import gradient_admm_printed_zcdp
    >>> f"{gradient_admm_printed_zcdp(10, 1.0, 1.0, 0.9, 0.5):.4f}"
    '0.0405'
    """
    constant = max(2 / weight, 3 / kappa) * (weight + kappa * norm_squared)
    return ratio**2 / 2 * constant * rate ** (2 * n_pairs - 1) / n_pairs


def gradient_admm_printed_stopping(n_records: int, position: int) -> tuple[NDArray[np.intp], float]:
    r"""Return the law printed for how long a record works on before a random stop. It is wrong.

    A pass over N records stops after T of them, T uniform on N/2 + 1, ..., N. (Chan, Xie and Zhao,
    "Privacy Amplification by Iteration for ADMM with (Strongly) Convex Objective Functions",
    section 8.) Up to position N/2 the number of steps is said to be at least as large, in
    stochastic order, as a uniform one on N/2 + 1, ..., N; but at position N/2 it is uniform on
    2, ..., N/2 + 1. At a position t above, t is said to be unused with probability
    (t - N/2) / (N/2) and the steps else uniform on 1, ..., N - t; but these are
    (t - 1 - N/2) / (N/2) and 1, ..., N - t + 1. So the last record is printed to be never used,
    and is used, by the last step of all, with probability 2/N.

    Parameters
    ----------
    n_records : int
        N, even.
    position : int
        t in 1, ..., N.

    Returns
    -------
    steps : ndarray of int
        The values that are printed to be equally likely where the record is used.
    unused : float
        The printed probability that it is not.

    Examples
    --------
    >>> from skdpadmm.privacy.literature import gradient_admm_printed_stopping
    >>> steps, unused = gradient_admm_printed_stopping(10, 8)
    >>> steps.tolist(), unused
    ([1, 2], 0.6)
    """
    half = n_records // 2
    if position <= half:
        return np.arange(half + 1, n_records + 1), 0.0
    return np.arange(1, n_records - position + 1), (position - half) / half


def coordinate_descent_printed_epsilon(epsilons: ArrayLike, delta: float) -> float:
    r"""Return the epsilon printed for private coordinate descent. It is too small.

    .. math::

        \min \Big\{ \sum_t \epsilon_t, \;
        \sum_t A_t + \sqrt{2 \epsilon_t^2 \log(e + \sqrt S / \delta)}, \;
        \sum_t A_t + \sqrt{2 \epsilon_t^2 \log(1 / \delta)} \Big\}, \qquad
        A_t = \epsilon_t \tanh(\epsilon_t / 2), \quad S = \sum_t \epsilon_t^2

    Bellet, Guerraoui, Taziki and Tommasi, "Fast and Differentially Private Algorithms for
    Decentralized Collaborative Machine Learning", Theorem 1. The theorem that it applies sums the
    squares inside the roots, see :func:`kov_epsilon`; with a single one of them, 100 releases of
    epsilon 0.1 are printed to cost 0.979 at delta = 1e-5, and cost 4.22 with Laplace noise. The
    hypothesis fails as well: a loss that is Lipschitz in the L1 norm has a gradient bounded in the
    largest entry, and Laplace noise needs the sum of all.

    Parameters
    ----------
    epsilons : array-like of shape (n_steps,)
        Of each release. Where they differ the largest one is taken for the root.
    delta : float
        In (0, 1).

    Returns
    -------
    float
        The printed value, not a bound.

    Examples
    --------
    >>> from skdpadmm.privacy.literature import coordinate_descent_printed_epsilon
    >>> round(coordinate_descent_printed_epsilon([0.1] * 100, 1e-5), 4)
    0.9794
    """
    steps = np.asarray(epsilons, dtype=np.float64)
    mean = float(np.sum(steps * np.tanh(0.5 * steps)))
    norm = float(np.linalg.norm(steps))
    logarithms = (math.log(math.e + norm / delta), math.log(1 / delta))
    roots = [mean + float(steps.max()) * math.sqrt(2 * log) for log in logarithms]
    return min(float(steps.sum()), *roots)


def coordinate_descent_printed_gaussian_noise(
    epsilon: float, delta: float, lipschitz: float
) -> float:
    r"""Return the noise printed for private coordinate descent with Gaussian noise. It is too much.

    .. math:: s = 2 L \sqrt{2 \ln(2 / \delta)} / \epsilon

    Bellet, Guerraoui, Taziki and Tommasi, Remark 5. A record enters the gradient of m of them with
    the weight 1 / m, so the sensitivity is :math:`2 L / m`; the m is missing. One release with
    that sensitivity needs :math:`2 L / (m \mu)`, with the mu of :func:`gaussian_mu`, which is
    more than m times less.

    Parameters
    ----------
    epsilon : float
        Of one release, in (0, 1].
    delta : float
        Of one release.
    lipschitz : float
        L, of a record's loss in the L2 norm.

    Returns
    -------
    float
        The printed standard deviation, whatever the number of records.

    Examples
    --------
    >>> from skdpadmm.privacy.literature import coordinate_descent_printed_gaussian_noise
    >>> round(coordinate_descent_printed_gaussian_noise(1.0, 1e-5, 1.0), 3)
    9.882
    """
    return 2 * lipschitz * math.sqrt(2 * math.log(2 / delta)) / epsilon


def coordinate_descent_printed_split(n_steps: int, contraction: float) -> NDArray[np.float64]:
    r"""Return the shares of epsilon printed to be optimal. They are in reverse.

    .. math:: \epsilon_t \propto C^{t/3}

    Bellet, Guerraoui, Taziki and Tommasi, Proposition 2: noise increases with time. It minimises
    the printed Theorem 2, which contracts the noise of step t by :math:`C^t`. It is the steps
    after it that contract it, by :math:`C^{T-1-t}`, and the optimum is the reverse:
    :func:`split_budget`. The printed one is worse than equal shares.

    Parameters
    ----------
    n_steps : int
        T.
    contraction : float
        C in (0, 1].

    Returns
    -------
    ndarray of shape (n_steps,)
        With the sum 1.

    Examples
    --------
    >>> from skdpadmm.privacy.literature import coordinate_descent_printed_split
    >>> coordinate_descent_printed_split(3, 0.125).round(3).tolist()
    [0.571, 0.286, 0.143]
    """
    weights = contraction ** (np.arange(n_steps) / 3)
    return np.asarray(weights / weights.sum(), dtype=np.float64)


def coordinate_descent_printed_noise_term(
    noise_scale: ArrayLike, contraction: float, weights: ArrayLike, lipschitz: ArrayLike
) -> float:
    r"""Return what noise is printed to add to the objective. It is no bound.

    .. math:: \frac{1}{n L_{\min}} \sum_{t=0}^{T-1} \sum_i C^t (\mu D_i c_i s_i(t))^2

    Bellet, Guerraoui, Taziki and Tommasi, Theorem 2. Laplace noise of the scale s on p entries has
    the squared norm :math:`2 p s^2` in expectation, and the p is missing: one step from the
    optimum, with quadratic losses, adds exactly p times what is printed where all blocks are alike.
    And the noise of step t is contracted by the steps after it, :math:`C^{T-1-t}`, not by as many
    as came before. This makes no difference where the scale is constant.

    Parameters
    ----------
    noise_scale : array-like of shape (n_steps, n_agents)
        s, of the Laplace noise on a local gradient.
    contraction : float
        C.
    weights : array-like of shape (n_agents,)
        :math:`\mu D c`.
    lipschitz : array-like of shape (n_agents,)
        L of each block.

    Returns
    -------
    float
        The printed value, not a bound.

    Examples
    --------
    >>> from skdpadmm.privacy.literature import coordinate_descent_printed_noise_term
    >>> coordinate_descent_printed_noise_term([[0.5, 0.5]], 0.8, [2.0, 2.0], [4.0, 4.0])
    0.25
    """
    scales = np.asarray(noise_scale, dtype=np.float64)
    lipschitz = np.asarray(lipschitz, dtype=np.float64)
    discount = contraction ** np.arange(len(scales))
    squares = np.square(np.asarray(weights) * scales).sum(axis=1)
    return float(discount @ squares / (lipschitz.size * lipschitz.min()))


def random_aggregator_printed_average_loss(rate: float, width: float, shift: float) -> float:
    r"""Return the bound printed for the average loss of random local aggregators. It is refuted.

    .. math::

        \frac{1}{\beta t} \log \Big\{ e^{\beta t} \Big[ 1 - 2 \int_0^{(\omega - t) / 2}
        \int_0^\omega \Phi \, dy \, dx \Big] + 2 \int_0^{(\omega - t) / 2}
        \int_{-t}^{\omega - t} \Phi \, dy \, dx \Big\}, \qquad
        \Phi = \frac{\beta}{2 \omega} e^{-\beta |x - y|}

    Xiao, "Local Differential Privacy in Decentralized Optimization", Theorem 2.2.2, for a uniform
    number on an interval of the width :math:`\omega > t` and Laplace noise of the rate
    :math:`\beta`. At a point x below the middle the proof bounds the loss by
    :math:`\log(p(x + t) / p(x))`. The density p is log-concave, so the larger of both losses is
    :math:`\log(p(x) / p(x - t))`, and the average exceeds what is printed: with the width 0.5, the
    rate 5 and the shift 0.1 it is .6868, and .6633 is printed. :func:`expected_privacy_loss_factor
    <skdpadmm.privacy.expected_privacy_loss_factor>` is exact. Neither is a guarantee: an average of
    losses bounds no delta.

    Parameters
    ----------
    rate : float
        :math:`\beta`.
    width : float
        :math:`\omega`, above the shift.
    shift : float
        t.

    Returns
    -------
    float
        The printed value, not a bound.

    Examples
    --------
    >>> from skdpadmm.privacy.literature import random_aggregator_printed_average_loss
    >>> f"{random_aggregator_printed_average_loss(5.0, 0.5, 0.1):.4f}"
    '0.6633'
    """
    u, s = rate * width, rate * shift

    def below(x: float) -> float:
        """Return P(U + Z <= x / rate), for x in [0, u]."""
        return (2 * x + math.exp(-x) - math.exp(x - u)) / (2 * u)

    middle = 0.5 * (u - s)
    first = 1 - 2 * (below(middle) - below(0.0))
    second = 2 * (below(middle + s) - below(s))
    return math.log(math.exp(s) * first + second) / s
