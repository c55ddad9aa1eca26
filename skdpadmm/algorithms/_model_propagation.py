"""Models that are public are smoothed over similar agents, and who wakes up when.

Source: Vanhaesebrouck, Bellet & Tommasi, "Decentralized collaborative learning of personalized
models over networks", AISTATS 2017; in this form Bellet, Guerraoui, Taziki & Tommasi, "Fast and
Differentially Private Algorithms for Decentralized Collaborative Machine Learning", 2017, App. B.
Arrays of models have the shape (n_agents, ...).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from skdpadmm.network import Similarity

Array = NDArray[np.float64]
# What an agent counts at least, beside the one that counts most: without it agents that hear their
# neighbours alone would take too long to hear of anybody else.
LEAST_PULL = 1e-3
# Rounds of averaging that noise may ask for: 1, 2, 4, and so on; what the agent with the least
# noise does in each; and the least that is left of models, whose signs count however noisy.
MOST_ROUNDS, LEAST_PART, LEAST_FACTOR = 32, 1e-3, 0.03


def neighbor_means(
    similarity: Similarity, models: Array, agents: NDArray[np.intp] | None = None
) -> Array:
    """Means of neighbours' models; an agent that is alone stays where it is."""
    if similarity.n_agents == 1:
        return models.copy() if agents is None else models[agents]
    return similarity.neighbor_mean(models, agents)


def weights_of_agents(similarity: Similarity) -> Array:
    """Sums of the weights of each agent's edges; one for an agent that is alone."""
    return np.ones(1) if similarity.n_agents == 1 else similarity.degrees


def wake_order(*, n_agents: int, n_wakes: int, clock: str, seed: int) -> NDArray[np.intp]:
    """Who wakes up when, each agent equally often, by a public seed.

    With Poisson clocks of one rate the next one to wake up is anybody, by the same chance, which is
    what an index that is drawn says at once. Agents who have woken up often enough sleep on. Both
    have the same law.
    """
    random = np.random.Generator(np.random.Philox(seed))
    if clock == "poisson":
        times = random.exponential(size=(n_agents, n_wakes)).cumsum(axis=1)
        return np.argsort(times.ravel(), kind="stable") // max(n_wakes, 1)
    order = np.empty(0, dtype=np.intp)
    while len(order) < n_agents * n_wakes:
        order = np.concatenate([order, random.integers(n_agents, size=n_agents * n_wakes)])
        by_agent = np.argsort(order, kind="stable")
        sizes = np.bincount(order, minlength=n_agents)
        came_before = np.empty(len(order), dtype=np.intp)
        came_before[by_agent] = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        order = order[came_before < n_wakes]
    return order


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
    own = own_column(pull, models)
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


def smooth_by_noise(
    similarity: Similarity, models: Array, probes: Array, has_rows: NDArray[np.bool_]
) -> tuple[Array, Array, float]:
    """Average public models over neighbours, and scale them down, as far as their noise asks.

    In each round every agent goes a part of the way to the mean of its neighbours, the noisiest one
    half of it. How many rounds, and by how much models are scaled down, is what Stein's unbiased
    estimate of the risk says of models that consist of signal and of noise of a known law. All of
    it is public. Where there is no noise nothing happens.

    Probes, of shape (n_agents, n_probes), are noise of the law that is in each entry of the models,
    drawn anew. Returns the models, what became of the probes, and by what both were scaled down.
    """
    n_agents, n_entries = len(models), models[0].size
    variance = np.square(probes).mean(axis=1)
    if not variance.any():
        return models, probes, 1.0
    part = 0.5 * np.where(has_rows, variance / variance.max(), 1.0)
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


def own_column(pull: Array, models: Array) -> Array:
    """An entry for each agent, to multiply models by."""
    return pull.reshape(-1, *(1,) * (models.ndim - 1))
