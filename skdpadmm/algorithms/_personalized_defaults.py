"""What personalised descent leaves open: turns, clip bounds, steps, and how far to trust noise.

The steps were chosen on states of unequal sizes, hundreds of agents of one mind, features off the
middle of their bounds, a table of thirty features, and the collaborative task of the paper, with
budgets from .3 to 10.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from skdpadmm.algorithms._defaults import (
    agent_clip_factor,
    is_regression,
    typical_row,
)
from skdpadmm.network import Similarity
from skdpadmm.privacy import gaussian_mu
from skdpadmm.protocol import Budget, Facts, Release

# Bound of a derivative of the loss, about: the largest of a logistic loss at zero is 1/2.
CLIP = 0.5
# Norm of the mean gradient of an agent at zero, beside the clip bound.
TYPICAL_MEAN = 0.5
# Turns for each unit of signal, with Laplace noise.
REGRESSION_TURNS, CLASSIFICATION_TURNS = 2.5, 0.1
FEWEST_TURNS = 10
# Signal below which a classifier does without a path.
LEAST_SIGNAL = 2.0
# Directions of classifiers count, however little is left of them.
SMALLEST_FACTOR = 0.1
# Noise in scores that a path may have: where no step is too short, where momentum makes steps
# longer, and in what sets an agent apart from its neighbours.
NOISE_OF_PATH, NOISE_OF_MOMENTUM, NOISE_APART = 0.35, 0.2, 0.07
LARGEST_MOMENTUM = 0.9
# What a score of a classifier counts beside one of a regression: the curvature of its loss.
CLASSIFIER_SCORE = 0.25
# Share of the curvature that is left, by what is clipped and by losses that are flat far out.
CURVATURE_LEFT, CLASSIFIER_CURVATURE = 0.5, 0.7
# Rounds, and the least own weight, by which it is found out what neighbours pool.
POOLING_ROUNDS, POOLING_PULL = 40, 0.01


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


def default_turns(facts: Facts, budget: Budget, law: str) -> int:
    """How often agents use their rows, the warm start included.

    Gaussian noise of many turns adds up to that of one, and many turns look at better models: as
    many as there may be. With Laplace noise a turn has to be worth its noise, which is a matter of
    the signal: records of an agent over those that its noise hides, beside the root of the number
    of parameters. A classifier has most of what it can learn after one look. A regression needs
    many: its scale counts, and features are correlated.

    Parameters
    ----------
    facts : Facts
        Of personalised models.
    budget : Budget
    law : {"gaussian", "laplace"}

    Returns
    -------
    int
        In [1, `max_iter`].
    """
    if not budget.is_private or law == "gaussian":
        return facts.max_iter
    rate = REGRESSION_TURNS if is_regression(facts) else CLASSIFICATION_TURNS
    return min(max(round(rate * signal_beside_noise(facts, budget)), 1), facts.max_iter)


def signal_beside_noise(facts: Facts, budget: Budget) -> float:
    """Records of a typical agent over those that its noise hides, and the root of the parameters.

    Parameters
    ----------
    facts : Facts
        Of personalised models.
    budget : Budget

    Returns
    -------
    float
    """
    agents = facts.agents
    assert agents is not None
    units = np.asarray(agents.agent_sizes, dtype=np.float64)
    units = np.minimum(units, 1.0) if facts.unit == "agent" else units
    mu = np.array([gaussian_mu(e, budget.delta) for e in agents.budgets(budget.epsilon)])
    signal = units * mu[agents.kind] / facts.neighboring.sensitivity_factor
    typical = float(np.median(signal[units > 0]))
    return typical / math.sqrt(facts.n_parameters * facts.loss.n_outputs)


def one_look_is_best(facts: Facts, budget: Budget) -> bool:
    """Whether agents learn most from a single look at their rows, smoothed among neighbours.

    A classifier has most of what it can learn after one look; where next to nothing of an agent's
    records stands out of its noise, a path has nothing to add but noise.

    Parameters
    ----------
    facts : Facts
        Of personalised models.
    budget : Budget
    """
    agents = facts.agents
    assert agents is not None
    few = signal_beside_noise(facts, budget) < LEAST_SIGNAL
    return few and agents.n_agents > 1 and not is_regression(facts)


class Pace(NamedTuple):
    """How agents step where what they say is noisy.

    Attributes
    ----------
    pull, step, momentum : ndarray of shape (n_agents,)
        What own gradients count beside neighbours, the share of a wake-up that is new, and what is
        repeated of the last sweep.
    share : ndarray of shape (n_agents,)
        Of the step of the theory.
    """

    pull: NDArray[np.float64]
    step: NDArray[np.float64]
    momentum: NDArray[np.float64]
    share: NDArray[np.float64]


def usual_curvature(facts: Facts) -> float:
    """Curvature of a mean loss along one parameter of typical rows."""
    whole = facts.loss.smoothness * typical_row(facts) ** 2 / facts.n_parameters
    return whole if is_regression(facts) else CLASSIFIER_CURVATURE * whole


def pace_of_agents(
    facts: Facts,
    similarity: Similarity | None,
    *,
    pull: NDArray[np.float64],
    smoothness: float,
    noise: NDArray[np.float64],
    n_turns: int,
) -> Pace:
    """Steps of agents, from public facts.

    How far noise takes a model is a matter of the *travel*, turns times the length of a step, and
    not of the number of turns, over which the budget is spread. Along flat directions it grows with
    the travel, along others with its root, up to what pulls back. An agent trusts its own rows the
    less beside its neighbours, the more noise would set it apart; its steps get shorter where noise
    would take it too far, and momentum makes them longer where there is little.

    Parameters
    ----------
    facts : Facts
        Of a neighbourhood.
    similarity : Similarity or None
        None: every agent is alone.
    pull : ndarray of shape (n_agents,)
        Trade-off times confidence, zero without rows.
    smoothness : float
        Bound of the curvature of a mean loss and its penalty.
    noise : ndarray of shape (n_agents,)
        Standard deviation in each entry of the mean of all gradients that an agent says.
    n_turns : int

    Returns
    -------
    Pace
        That of the theory where there is no noise.
    """
    alone = similarity is None or similarity.n_agents == 1
    pull, curvature = np.array(pull, dtype=np.float64), usual_curvature(facts)
    # In scores of a typical row.
    noise = noise * typical_row(facts) * (1.0 if is_regression(facts) else CLASSIFIER_SCORE)
    if not alone:
        apart = np.maximum(noise / NOISE_APART - curvature, 0.0)
        pull /= 1.0 + pull * apart
    # An agent that is alone has nobody to stay close to.
    step = 1.0 / (float(not alone) + pull * smoothness)
    if not noise.any():
        return Pace(pull, step, np.zeros_like(step), np.ones_like(step))
    left = CURVATURE_LEFT * curvature
    held = left if alone else left + 1.0 / np.maximum(pull, 1e-9)
    pooled = np.zeros_like(step)
    if similarity is not None and not alone:
        pooled = _pooled(similarity, pull * curvature)

    def reached(travel: NDArray[np.float64]) -> NDArray[np.float64]:
        own = np.minimum(travel**2, travel / (2.0 * held))
        shared = np.square(pooled) * np.minimum(travel**2, travel / (2.0 * left))
        return np.asarray(noise * np.sqrt(own + shared))

    travel = n_turns * step * pull
    shorter = np.ones_like(step)
    for share in np.geomspace(1.0, 1e-9, 400)[1:]:
        too_far = reached(shorter * travel) > NOISE_OF_PATH
        if not too_far.any():
            break
        shorter = np.where(too_far, share, shorter)
    momentum = np.zeros_like(step)
    for candidate in np.arange(0.05, LARGEST_MOMENTUM + 0.01, 0.05):
        calm = reached(shorter * travel / (1.0 - candidate)) <= NOISE_OF_MOMENTUM
        momentum = np.where(calm, candidate, momentum)
    if not alone:
        # Who sleeps through a sweep goes on as before: not much further than to its neighbours.
        momentum = np.minimum(momentum, 1.0 - shorter * step)
    return Pace(pull, shorter * step, momentum, shorter)


def signal_of_path(facts: Facts, pace: Pace, *, clip_norm: float, law: str, n_turns: int) -> float:
    """Square that an entry of a model is expected to have in the end, without noise.

    Parameters
    ----------
    facts : Facts
    pace : Pace
    clip_norm : float
        In the norm of the release.
    law : {"gaussian", "laplace"}
    n_turns : int

    Returns
    -------
    float
        The mean over agents with rows.
    """
    travel = n_turns * pace.step * pace.pull / (1.0 - pace.momentum)
    reached = np.minimum(travel, 1.0 / usual_curvature(facts))[pace.pull > 0]
    return _typical_square(facts, clip_norm, law) * float(np.mean(np.square(reached)))


def _typical_square(facts: Facts, clip_norm: float, law: str) -> float:
    """Square of an entry of a mean gradient at zero."""
    n_entries = facts.n_parameters * facts.loss.n_outputs
    # A vector of L1 norm one has a Euclidean norm of about 1 / sqrt(n_entries).
    norm = TYPICAL_MEAN * clip_norm / (math.sqrt(n_entries) if law == "laplace" else 1.0)
    return norm**2 / n_entries


def _pooled(similarity: Similarity, own: NDArray[np.float64]) -> NDArray[np.float64]:
    """What smoothing leaves of noise of size one, for each agent."""
    random = np.random.Generator(np.random.Philox(0))
    start = random.standard_normal((len(own), 16))
    own = np.maximum(own, POOLING_PULL)[:, None]
    smoothed = start
    for _ in range(POOLING_ROUNDS):
        smoothed = (similarity.neighbor_mean(smoothed) + own * start) / (1.0 + own)
    return np.asarray(np.sqrt(np.mean(np.square(smoothed), axis=1)))


def noise_of_agents(
    facts: Facts, release: Release, *, clip_norm: float, weight: float
) -> NDArray[np.float64]:
    """Standard deviation of the noise in each entry of agents' mean gradients.

    Parameters
    ----------
    facts : Facts
    release : Release
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
    noise = np.asarray(release.agent_noise_std)[agents.kind] * clip_norm / (weight * units)
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
    signal = _typical_square(facts, clip_norm, law)
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
