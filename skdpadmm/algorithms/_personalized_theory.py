r"""What is known of personalised coordinate descent before it runs.

All of it is about

.. math::

    Q(\Theta) = \frac12 \sum_{i<j} W_{ij} \|\Theta_i - \Theta_j\|^2
    + \mu \sum_i D_i c_i L_i(\Theta_i), \qquad D_i = \sum_j W_{ij},

and steps of one agent at a time, drawn uniformly, of length 1 / (Lipschitz constant of its block),
along a gradient whose local part has noise: Bellet, Guerraoui, Taziki and Tommasi, "Fast and
Differentially Private Algorithms for Decentralized Collaborative Machine Learning", 2017.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

# Variance of an entry of the noise, in squares of its scale.
_VARIANCES = {"laplace": 2.0, "gaussian": 1.0}


class BlockConstants(NamedTuple):
    """Curvature of each agent's block of the joint objective.

    Attributes
    ----------
    lipschitz : ndarray of shape (n_agents,)
        Of the gradient in that block, ``D (1 + mu c L)``.
    step : ndarray of shape (n_agents,)
        Weight alpha of what is new, ``1 / (1 + mu c L)``, in (0, 1].
    strong_convexity : float
        A lower bound of that of the joint objective, ``mu min(D c sigma)``.
    """

    lipschitz: NDArray[np.float64]
    step: NDArray[np.float64]
    strong_convexity: float


def block_constants(
    *,
    smoothness: ArrayLike,
    strong_convexity: ArrayLike,
    degrees: ArrayLike,
    confidence: ArrayLike,
    trade_off: float,
) -> BlockConstants:
    """Return the curvature of each agent's block.

    Parameters
    ----------
    smoothness, strong_convexity : float or array-like of shape (n_agents,)
        Of the local objectives, from public facts: a curvature that is measured on records would
        put them into the step.
    degrees : array-like of shape (n_agents,)
        D: sums of the weights of an agent's edges, positive.
    confidence : float or array-like of shape (n_agents,)
        c, in (0, 1].
    trade_off : float
        mu, at least 0.

    Returns
    -------
    BlockConstants

    Raises
    ------
    ValueError
        If an agent has no edge.

    Examples
    --------
    >>> from skdpadmm.algorithms._personalized_theory import block_constants
    >>> constants = block_constants(
    ...     smoothness=4.0, strong_convexity=1.0, degrees=[2.0, 1.0], confidence=[1.0, 0.5],
    ...     trade_off=0.5,
    ... )
    >>> constants.lipschitz.tolist(), constants.step.tolist(), constants.strong_convexity
    ([6.0, 2.0], [0.3333333333333333, 0.5], 0.25)
    """
    degrees = np.asarray(degrees, dtype=np.float64)
    if not np.all(degrees > 0):
        raise ValueError(
            f"Got degrees={degrees!r}, expected positive floats; an agent without a neighbour "
            "learns alone."
        )
    pull = trade_off * np.broadcast_to(np.asarray(confidence, dtype=np.float64), degrees.shape)
    growth = 1.0 + pull * np.asarray(smoothness, dtype=np.float64)
    curvature = degrees * pull * np.asarray(strong_convexity, dtype=np.float64)
    return BlockConstants(degrees * growth, 1.0 / growth, float(curvature.min()))


def joint_strong_convexity(similarity: ArrayLike, curvature: ArrayLike) -> float:
    """Return the smallest eigenvalue of graph Laplacian + diag(curvature), in n^3 operations.

    Never below the bound of :func:`block_constants`, and above it where curvatures differ.

    Parameters
    ----------
    similarity : array-like of shape (n_agents, n_agents)
        W: symmetric, non-negative.
    curvature : array-like of shape (n_agents,)
        ``mu D c sigma`` of each agent.

    Returns
    -------
    float

    Examples
    --------
    >>> from skdpadmm.algorithms._personalized_theory import joint_strong_convexity
    >>> round(joint_strong_convexity([[0.0, 1.0], [1.0, 0.0]], [0.1, 2.0]), 3)
    0.671
    """
    weights = np.asarray(similarity, dtype=np.float64)
    curvature = np.asarray(curvature, dtype=np.float64)
    hessian = np.diag(weights.sum(axis=1) + curvature) - weights
    # Adding a positive diagonal moves no eigenvalue down, whatever rounding says.
    return max(float(np.linalg.eigvalsh(hessian)[0]), float(curvature.min()))


def coordinate_contraction(
    *, strong_convexity: float, n_agents: int, lipschitz: ArrayLike
) -> float:
    """Return ``C = 1 - sigma / (n L_max)``: the factor of the expected gap in one step.

    Parameters
    ----------
    strong_convexity : float
        sigma of the joint objective.
    n_agents : int
        n.
    lipschitz : float or array-like of shape (n_agents,)
        Of the blocks; the largest one counts.

    Returns
    -------
    float
        In [0, 1].

    Examples
    --------
    >>> from skdpadmm.algorithms._personalized_theory import coordinate_contraction
    >>> coordinate_contraction(strong_convexity=8.0, n_agents=4, lipschitz=[10.0, 8.0])
    0.8
    """
    return 1.0 - strong_convexity / (n_agents * float(np.max(lipschitz)))


def wake_contraction(*, contraction: float, n_agents: int) -> float:
    r"""Return the expected contraction from one wake-up of an agent to its next one.

    .. math:: \sum_{g \ge 1} \frac1n \Big(1 - \frac1n\Big)^{g-1} C^g = \frac{C}{n - (n - 1) C}

    With :math:`C = 1 - \sigma / (n L)` it tends to :math:`1 / (1 + \sigma / L)` for many agents,
    where n steps exactly would give :math:`e^{-\sigma / L}`.

    Parameters
    ----------
    contraction : float
        C of one step of any agent.
    n_agents : int
        n: agents wake up uniformly, or by Poisson clocks of one rate.

    Returns
    -------
    float

    Examples
    --------
    >>> from skdpadmm.algorithms._personalized_theory import wake_contraction
    >>> round(wake_contraction(contraction=0.8, n_agents=4), 3)
    0.5
    """
    return contraction / (n_agents - (n_agents - 1) * contraction)


def descent_bound(*, gap: float, contraction: float, n_steps: int) -> float:
    """Return ``C^T gap``: a bound of the expected gap after T steps without noise.

    Parameters
    ----------
    gap : float
        Of the objective above its minimum, at the start.
    contraction : float
        C, see :func:`coordinate_contraction`.
    n_steps : int
        T, of all agents together.

    Returns
    -------
    float

    Notes
    -----
    Proposition 1 of the paper.

    Examples
    --------
    >>> from skdpadmm.algorithms._personalized_theory import descent_bound
    >>> round(descent_bound(gap=10.0, contraction=0.8, n_steps=20), 3)
    0.115
    """
    return float(gap * contraction**n_steps)


def noisy_descent_bound(
    *,
    gap: float,
    contraction: float,
    n_steps: int,
    n_entries: int,
    noise_scale: ArrayLike,
    lipschitz: ArrayLike,
    degrees: ArrayLike,
    confidence: ArrayLike,
    trade_off: float,
    noise: str = "laplace",
) -> float:
    r"""Return a bound of the expected gap after T steps with noise on local gradients.

    .. math::

        C^T g + \frac{p}{2n} \sum_{t=0}^{T-1} C^{T-1-t} \sum_i
        \frac{(\mu D_i c_i)^2 v_i(t)}{L_i},

    where the variance v of an entry is :math:`2 s^2` for Laplace noise of the scale s and
    :math:`s^2` for Gaussian noise.

    Parameters
    ----------
    gap : float
        g, at the start.
    contraction : float
        C, see :func:`coordinate_contraction`.
    n_steps : int
        T, of all agents together.
    n_entries : int
        p: entries of a model.
    noise_scale : float or array-like, of a shape that broadcasts to (n_steps, n_agents)
        s: what agent i would add at step t.
    lipschitz : array-like of shape (n_agents,)
        Of the blocks, see :func:`block_constants`.
    degrees : array-like of shape (n_agents,)
        D.
    confidence : float or array-like of shape (n_agents,)
        c.
    trade_off : float
        mu.
    noise : {"laplace", "gaussian"}, default="laplace"

    Returns
    -------
    float

    Raises
    ------
    ValueError
        For an unknown noise.

    Notes
    -----
    Theorem 2 of the paper, corrected: noise of step t is contracted by the steps after it, not by
    those before; it has p entries; and each agent's own L replaces the smallest. With
    :math:`g = \nabla_i Q` and noise e in it a step changes the objective by at most
    :math:`(\|e\|^2 - \|g\|^2) / (2 L_i)`, as the mixed terms cancel, and
    :math:`\|\nabla Q\|^2 \ge 2 \sigma (Q - Q^*)`. Agents are drawn uniformly at every step: that
    each one stops after T / n of them is not part of it.

    Examples
    --------
    >>> from skdpadmm.algorithms._personalized_theory import noisy_descent_bound
    >>> bound = noisy_descent_bound(
    ...     gap=10.0, contraction=0.8, n_steps=20, n_entries=5, noise_scale=0.1,
    ...     lipschitz=[10.0] * 4, degrees=[2.0] * 4, confidence=1.0, trade_off=4.0,
    ... )
    >>> round(bound, 3)
    1.697
    """
    if noise not in _VARIANCES:
        raise ValueError(f"Got noise={noise!r}, expected one of {list(_VARIANCES)}.")
    lipschitz = np.asarray(lipschitz, dtype=np.float64)
    factor = trade_off * np.asarray(degrees, dtype=np.float64) * np.asarray(confidence)
    scales = np.broadcast_to(np.asarray(noise_scale), (n_steps, lipschitz.size))
    variance = _VARIANCES[noise] * np.square(scales)
    per_step = (np.square(factor) * variance / lipschitz).sum(axis=1)
    later = np.arange(n_steps - 1, -1, -1)
    added = n_entries / (2.0 * lipschitz.size) * math.fsum(contraction**later * per_step)
    return descent_bound(gap=gap, contraction=contraction, n_steps=n_steps) + added
