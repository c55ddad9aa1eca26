"""Printed formulas that fail for the algorithm they are attached to.

They are here to compare with, each with the reason. No report ever uses one.
"""

from __future__ import annotations

import math

__all__ = [
    "consensus_admm_printed_rdp",
    "multi_step_admm_printed_noise",
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
