"""What personalised descent leaves open: turns, clip bounds, and how far noise is to be trusted."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from skdpadmm.algorithms.planning._defaults import (
    agent_clip_factor,
    is_regression,
    typical_row,
)
from skdpadmm.privacy import gaussian_mu
from skdpadmm.protocol import AgentTurns, Budget, Facts

# Bound of a derivative of the loss, about: the largest of a logistic loss at zero is 1/2.
CLIP = 0.5
# Norm of the mean gradient of an agent at zero, beside the clip bound.
TYPICAL_MEAN = 0.5
# Turns for each unit of signal.
REGRESSION_TURNS, CLASSIFICATION_TURNS = 2.5, 0.1
# Directions of classifiers count, however little is left of them.
SMALLEST_FACTOR = 0.1


def default_clip_norm(facts: Facts) -> float:
    """Clip bound of a record's gradient, or an agent's, in units of `Rows.clip_unit`.

    Parameters
    ----------
    facts : Facts

    Returns
    -------
    float
    """
    row = typical_row(facts) / math.sqrt(facts.n_parameters)
    return CLIP * row * agent_clip_factor(facts)


def typical_curvature(facts: Facts) -> float:
    """Curvature that one step from zero is scaled by.

    Scores of a classifier are worth what their order is, so that its average over the parameters
    will do. A regression must not overshoot along the direction that rows share, which can hold
    nearly all of it.
    """
    whole = facts.loss.smoothness * typical_row(facts) ** 2
    return whole if is_regression(facts) else whole / facts.n_parameters


def default_turns(facts: Facts, budget: Budget) -> int:
    """How often agents use their rows, the warm start included.

    What a turn is worth is a matter of the signal: records of an agent over those that its noise
    hides, beside the root of the number of parameters. A classifier has most of what it can learn
    after one look. A regression needs many: its scale counts, and features are correlated.

    Parameters
    ----------
    facts : Facts
        Of personalised models.
    budget : Budget

    Returns
    -------
    int
        In [1, `max_iter`].
    """
    agents = facts.agents
    assert agents is not None
    if not budget.is_private:
        return facts.max_iter
    units = np.asarray(agents.agent_sizes, dtype=np.float64)
    units = np.minimum(units, 1.0) if facts.unit == "agent" else units
    mu = np.array([gaussian_mu(e, budget.delta) for e in agents.budgets(budget.epsilon)])
    signal = units * mu[agents.kind] / facts.neighboring.sensitivity_factor
    typical = float(np.median(signal[units > 0]))
    beside_noise = typical / math.sqrt(facts.n_parameters * facts.loss.n_outputs)
    rate = REGRESSION_TURNS if is_regression(facts) else CLASSIFICATION_TURNS
    return min(max(round(rate * beside_noise), 1), facts.max_iter)


def noise_of_agents(
    facts: Facts, release: AgentTurns, *, clip_norm: float, weight: float
) -> NDArray[np.float64]:
    """Standard deviation of the noise in each entry of agents' mean gradients.

    Parameters
    ----------
    facts : Facts
    release : AgentTurns
    clip_norm : float
        In the norm of the release.
    weight : float
        Of the turn.

    Returns
    -------
    ndarray of shape (n_agents,)
        Zero for agents without rows.
    """
    agents = facts.agents
    assert agents is not None
    sizes = np.asarray(agents.agent_sizes, dtype=np.float64)
    units = np.maximum(sizes, 1.0) if facts.unit == "record" else np.ones(len(sizes))
    noise = np.asarray(release.shares)[agents.kind] * clip_norm / (weight * units)
    return np.asarray(np.where(sizes > 0, noise, 0.0))


def noise_trust(
    facts: Facts, noise: NDArray[np.float64], *, clip_norm: float, law: str
) -> NDArray[np.float64]:
    """Share of the variance of agents' noisy gradients that is no noise.

    Parameters
    ----------
    facts : Facts
    noise : ndarray of shape (n_agents,)
        See `noise_of_agents`.
    clip_norm : float
        In the norm of the release.
    law : {"gaussian", "laplace"}

    Returns
    -------
    ndarray of shape (n_agents,)
        In [0, 1]; zero for agents without rows.
    """
    assert facts.agents is not None
    n_entries = facts.n_parameters * facts.loss.n_outputs
    # A vector of L1 norm one has a Euclidean norm of about 1 / sqrt(n_entries).
    norm = TYPICAL_MEAN * clip_norm / (math.sqrt(n_entries) if law == "laplace" else 1.0)
    signal = norm**2 / n_entries
    has_rows = np.asarray(facts.agents.agent_sizes) > 0
    return np.asarray(np.where(has_rows, signal / (signal + np.square(noise)), 0.0))


def left_of_noise(smoothed: NDArray[np.float64], probes: NDArray[np.float64]) -> float:
    """What to multiply noisy models by, so that they are as large as what is no noise in them.

    Parameters
    ----------
    smoothed : ndarray of shape (n_agents, n_entries)
        Public models.
    probes : ndarray of shape (n_agents, n_probes)
        Noise of the law that is in them, drawn anew, that went the same way.

    Returns
    -------
    float
        In [SMALLEST_FACTOR, 1].
    """
    seen, noise = float(np.mean(np.square(smoothed))), float(np.mean(np.square(probes)))
    return min(max(1.0 - noise / seen, SMALLEST_FACTOR), 1.0) if seen > 0 else 1.0
