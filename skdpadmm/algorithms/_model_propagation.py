"""Model propagation: models that are public are smoothed over similar agents.

Source: Vanhaesebrouck, Bellet & Tommasi, "Decentralized collaborative learning of personalized
models over networks", AISTATS 2017; in this form Bellet, Guerraoui, Taziki & Tommasi, "Fast and
Differentially Private Algorithms for Decentralized Collaborative Machine Learning", 2017, App. B.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.linalg import spsolve

from skdpadmm.algorithms._agent_turns import neighbor_means
from skdpadmm.algorithms._wake_ups import weights_of_agents
from skdpadmm.network import Similarity

Array = NDArray[np.float64]
# What an agent counts at least, beside the one that counts most: without it agents that hear their
# neighbours alone would take too long to hear of anybody else.
LEAST_PULL = 1e-3
# Rounds of averaging that noise may ask for: 1, 2, 4, and so on; what the agent with the least
# noise does in each; and the least that is left of models, whose signs count however noisy.
MOST_ROUNDS, LEAST_PART, LEAST_FACTOR = 32, 1e-3, 0.03


def propagate(
    similarity: Similarity, models: Array, pull: Array, *, tolerance: float = 1e-10
) -> tuple[Array, int]:
    r"""Smooth public models: an iteration of broadcasts, of a length that is fixed before.

    .. math:: \min_\Theta \frac12 \sum_{i<j} W_{ij} \|\Theta_i - \Theta_j\|^2
              + \frac12 \sum_i D_i b_i \|\Theta_i - \Theta_i^{loc}\|^2

    In each round every agent takes a step towards the mean of its neighbours and its own model,
    with the momentum of Chebyshev's semi-iteration. All of it is public.

    Parameters
    ----------
    similarity : Similarity
    models : ndarray of shape (n_agents, ...)
        What each agent is pulled to.
    pull : ndarray of shape (n_agents,)
        b, positive: how much an agent's own model counts beside the mean of its neighbours.
    tolerance : float, default=1e-10
        Of the error, beside that of the start, which is `models`.

    Returns
    -------
    smoothed : ndarray of the shape of `models`
    n_rounds : int
        Broadcasts along all edges.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpadmm.algorithms import propagate
    >>> from skdpadmm.network import Similarity
    >>> path = Similarity(n_agents=3, matrix=np.array([[0, 1, 0], [1, 0, 0.5], [0, 0.5, 0]]))
    >>> models, pull = np.array([1.0, -1.0, 2.0]), 0.8 * np.array([0.2, 1.0, 0.5])
    >>> propagate(path, models, pull)[0].round(4).tolist()
    [-0.314, -0.5243, 0.1969]
    """
    own = _column(pull, models)
    if similarity.n_agents == 1:
        return models.copy(), 0
    # Eigenvalues of the iteration lie in [-radius, radius].
    radius = 1.0 / (1.0 + float(pull.min()))
    n_rounds = math.ceil(math.log(2.0 / tolerance) / math.acosh(1.0 / radius))
    before, smoothed, weight = models, models, 1.0
    for k in range(n_rounds):
        moved = (neighbor_means(similarity, smoothed) + own * models) / (1.0 + own)
        if k > 0:
            weight = 1.0 / (1.0 - radius**2 * weight / (2.0 if k == 1 else 4.0))
        before, smoothed = smoothed, before + weight * (moved - before)
    return smoothed, n_rounds


def propagate_in_turn(
    similarity: Similarity, models: Array, pull: Array, order: Sequence[int], start: Array
) -> Array:
    """Smooth public models, one agent after another.

    Parameters
    ----------
    similarity : Similarity
    models : ndarray of shape (n_agents, ...)
        What each agent is pulled to.
    pull : ndarray of shape (n_agents,)
        How much an agent's own model counts beside the mean of its neighbours.
    order : sequence of int
        Who wakes up, one after another.
    start : ndarray of the shape of `models`

    Returns
    -------
    ndarray of the shape of `models`
    """
    own, smoothed = _column(pull, models), start.astype(np.float64)
    for wave in similarity.waves(order):
        means = neighbor_means(similarity, smoothed, wave)
        smoothed[wave] = (means + own[wave] * models[wave]) / (1.0 + own[wave])
    return smoothed


def propagation_limit(similarity: Similarity, models: Array, pull: Array) -> Array:
    """Solve the linear system that propagation ends at.

    Parameters
    ----------
    similarity : Similarity
    models : ndarray of shape (n_agents, ...)
    pull : ndarray of shape (n_agents,)
        Positive.

    Returns
    -------
    ndarray of the shape of `models`
    """
    if similarity.n_agents == 1:
        return models.copy()
    degrees = weights_of_agents(similarity)
    own = degrees * pull
    system = sparse.csc_array(sparse.diags_array(degrees + own) - similarity.weights)
    flat = models.reshape(len(models), -1)
    return np.asarray(spsolve(system, own[:, None] * flat)).reshape(models.shape)


def smooth_by_noise(
    similarity: Similarity, models: Array, probes: Array, has_rows: NDArray[np.bool_]
) -> tuple[Array, Array, float]:
    """Average public models over neighbours, and scale them down, as far as their noise asks.

    In each round every agent goes a part of the way to the mean of its neighbours, the noisiest one
    half of it. How many rounds, and by how much models are scaled down, is what Stein's unbiased
    estimate of the risk says of models that consist of signal and of noise of a known law. All of
    it is public. Where there is no noise nothing happens.

    Parameters
    ----------
    similarity : Similarity
    models : ndarray of shape (n_agents, n_parameters, n_outputs)
        Noisy.
    probes : ndarray of shape (n_agents, n_probes)
        Noise of the law that is in each entry of `models`, drawn anew.
    has_rows : ndarray of bool of shape (n_agents,)

    Returns
    -------
    smoothed : ndarray of the shape of `models`
    left : ndarray of the shape of `probes`
        What became of the probes.
    factor : float
        By which both were scaled down.
    """
    n_agents, n_entries = len(models), models[0].size
    variance = np.square(probes).mean(axis=1)
    if not variance.any():
        return models, probes, 1.0
    largest = variance.max()
    part = 0.5 * np.where(has_rows, variance / largest, 1.0)
    part = np.maximum(part, LEAST_PART)[:, None]
    flat = models.reshape(n_agents, -1)
    # Of few entries noise may be more than it is on average: by a standard deviation.
    caution = 1.0 + math.sqrt(2.0 / flat.size)
    both = np.concatenate([flat, probes], axis=1)
    best, least, chosen = math.inf, 1.0, both
    for k in range(1 if n_agents == 1 else MOST_ROUNDS + 1):
        if k > 0:
            both = both + part * (neighbor_means(similarity, both) - both)
        if k & (k - 1):
            continue
        smoothed, left = both[:, :n_entries], both[:, n_entries:]
        through = n_entries / probes.shape[1] * float(np.vdot(probes, left))
        size, common = float(np.vdot(smoothed, smoothed)), float(np.vdot(flat, smoothed))
        if not size > 0:
            continue
        factor, careful = (
            min(max((common - noise) / size, LEAST_FACTOR), 1.0)
            for noise in (through, caution * through)
        )
        risk = factor**2 * size - 2.0 * factor * (common - through)
        if risk < best:
            best, least, chosen = risk, careful, both
    chosen = least * chosen
    return chosen[:, :n_entries].reshape(models.shape), chosen[:, n_entries:], least


def _column(pull: Array, models: Array) -> Array:
    return pull.reshape(-1, *(1,) * (models.ndim - 1))
