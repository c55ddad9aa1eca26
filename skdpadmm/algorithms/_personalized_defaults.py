"""What personalised descent takes from public facts: turns, clip bounds, steps, trust in noise.

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
    derivative_unit,
    is_regression,
    largest_weight,
    opened_clip,
    typical_row,
    usual_smoothness,
)
from skdpadmm.network import Similarity
from skdpadmm.privacy import gaussian_mu
from skdpadmm.protocol import USUAL_DELTA, Budget, Facts, Release, neighborhood_of
from skdpadmm.records import Coordinates

Array = NDArray[np.float64]
# Bound of a derivative of the loss, about: the largest of a logistic loss at zero is 1/2.
CLIP = 0.5
# Norm of the mean gradient of an agent at zero, beside the clip bound.
TYPICAL_MEAN = 0.5
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
# Rounds, and the least own weight, of the public smoothing that measures what neighbours pool.
POOLING_ROUNDS, POOLING_PULL = 40, 0.01


def neighbor_means(
    similarity: Similarity, models: Array, agents: NDArray[np.intp] | None = None
) -> Array:
    """Means of neighbours' models; an agent that is alone stays where it is."""
    if similarity.n_agents == 1:
        return models.copy() if agents is None else models[agents]
    return similarity.neighbor_mean(models, agents)


def have_rows(facts: Facts) -> NDArray[np.bool_]:
    """Which agents have rows."""
    return np.asarray(neighborhood_of(facts).agent_sizes) > 0


def penalty_curvature(facts: Facts, coordinates: Coordinates) -> Array:
    """Curvature of a squared penalty along each parameter in public coordinates, (d, 1).

    Zero for the intercept, so that times parameters it is the gradient.
    """
    curvature = np.zeros((coordinates.n_parameters, 1))
    square = np.square(coordinates.coefficient_scale)
    curvature[: coordinates.n_features, 0] = facts.penalty.strong_convexity * square
    return curvature


def largest_smoothness(facts: Facts, coordinates: Coordinates) -> float:
    """Public bound of the curvature of an agent's mean loss plus penalty."""
    largest = float(penalty_curvature(facts, coordinates).max())
    row_norm = min(coordinates.row_norm, facts.row_norm)
    return facts.loss.smoothness * row_norm**2 + largest


def wake_contraction(facts: Facts) -> float:
    r"""Contraction that is expected from one wake-up of an agent to its next one.

    A step of any of n agents contracts the gap by ``C = 1 - sigma / (n max(L))``, where
    ``L = D (1 + mu c smoothness)`` is the curvature of an agent's block and
    ``sigma = min(mu D c convexity)`` bounds that of the joint objective from below. The next
    wake-up comes after a geometric number of them: ``sum_g (1 / n) (1 - 1 / n)^(g - 1) C^g``, which
    is ``C / (n - (n - 1) C)``.
    """
    agents, n = neighborhood_of(facts), neighborhood_of(facts).n_agents
    if n == 1:
        return 1.0
    degrees, pull = agents.similarity.degrees, own_pull(facts)
    growth = 1.0 + pull * largest_smoothness(facts, facts.coordinates)
    convexity = float(penalty_curvature(facts, facts.coordinates).min())
    convexity = float((degrees * pull * convexity).min())
    one_step = 1.0 - convexity / (n * float(np.max(degrees * growth)))
    return one_step / (n - (n - 1) * one_step)


def own_pull(facts: Facts) -> Array:
    """What an agent's loss counts beside agreement: trade-off times confidence."""
    agents = neighborhood_of(facts)
    return agents.trade_off * np.asarray(agents.confidence)


def default_clip_norm(facts: Facts, budget: Budget) -> float:
    """Clip bound of a record's gradient, or an agent's, in units of `Rows.clip_unit`."""
    n_entries = facts.n_parameters * facts.loss.n_outputs
    opened = opened_clip(facts, signal_beside_noise(facts, budget) * math.sqrt(n_entries))
    clip = max(CLIP * typical_row(facts) / math.sqrt(facts.n_parameters), opened)
    weight = derivative_unit(facts.loss) * largest_weight(facts.loss)
    return clip * agent_clip_factor(facts) * weight


def typical_curvature(facts: Facts) -> float:
    """Curvature that one step from zero is scaled by.

    Scores of a classifier are worth what their order is, so that its average over the parameters
    will do. A regression must not overshoot along the direction that rows share, which can hold
    nearly all of it.
    """
    whole = usual_smoothness(facts.loss) * typical_row(facts) ** 2
    return whole if is_regression(facts) else whole / facts.n_parameters


def usual_curvature(facts: Facts) -> float:
    """Curvature of a mean loss along one parameter of typical rows."""
    whole = usual_smoothness(facts.loss) * typical_row(facts) ** 2 / facts.n_parameters
    return whole if is_regression(facts) else CLASSIFIER_CURVATURE * whole


def signal_beside_noise(facts: Facts, budget: Budget) -> float:
    """Records of a typical agent over those that its noise hides and the root of all entries."""
    agents = neighborhood_of(facts)
    units = np.asarray(agents.agent_sizes, dtype=np.float64)
    units = np.minimum(units, 1.0) if facts.unit == "agent" else units
    delta = budget.delta or USUAL_DELTA
    mu = np.array([gaussian_mu(e, delta) for e in agents.budgets(budget.epsilon)])
    signal = units * mu[agents.kind] / facts.neighboring.sensitivity_factor
    typical = float(np.median(signal[units > 0]))
    return typical / math.sqrt(facts.n_parameters * facts.loss.n_outputs)


class Pace(NamedTuple):
    """Steps of agents whose releases are noisy; an entry for each agent.

    What own gradients count beside neighbours, the share of a wake-up that is new, what is repeated
    of the last sweep, and the share of the step of the theory.
    """

    pull: Array
    step: Array
    momentum: Array
    share: Array


def pace_of_agents(
    facts: Facts,
    coordinates: Coordinates,
    noise: Array,
    n_turns: int,
    *,
    isolated_step: float | None = None,
) -> Pace:
    """Steps of agents, from public facts; those of the theory where there is no noise.

    How far noise takes a model is a matter of the *travel*, turns times the length of a step, and
    not of the number of turns, over which the budget is spread. Along flat directions it grows with
    the travel, along others with its root, up to what pulls back. An agent trusts its own rows the
    less beside its neighbours, the more noise would set it apart; its steps get shorter where noise
    would take it too far, and momentum makes them longer where there is little.

    Noise is the standard deviation in each entry of the mean of all gradients that an agent
    releases. An isolated step is that of agents that exchange nothing.
    """
    agents = neighborhood_of(facts)
    if isolated_step is None:
        pull = own_pull(facts) * have_rows(facts)
        smoothness = largest_smoothness(facts, coordinates)
    else:
        pull, smoothness = np.ones(agents.n_agents), 1.0 / isolated_step
    alone = isolated_step is not None or agents.n_agents == 1
    curvature = usual_curvature(facts)
    # In scores of a typical row.
    noise = noise * typical_row(facts) * (1.0 if is_regression(facts) else CLASSIFIER_SCORE)
    if not alone:
        apart = np.maximum(noise / NOISE_APART - curvature, 0.0)
        pull = pull / (1.0 + pull * apart)
    # An agent that is alone has nobody to stay close to.
    step = 1.0 / (float(not alone) + pull * smoothness)
    if not noise.any():
        return Pace(pull, step, np.zeros_like(step), np.ones_like(step))
    left, pooled = CURVATURE_LEFT * curvature, np.zeros_like(step)
    held: Array | float = left
    if not alone:
        held = left + 1.0 / np.maximum(pull, 1e-9)
        pooled = _pooled(agents.similarity, pull * curvature)

    def reached(travel: Array) -> Array:
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


def _pooled(similarity: Similarity, own: Array) -> Array:
    """What smoothing leaves of noise of size one, for each agent."""
    random = np.random.Generator(np.random.Philox(0))
    start = random.standard_normal((len(own), 16))
    own = np.maximum(own, POOLING_PULL)[:, None]
    smoothed = start
    for _ in range(POOLING_ROUNDS):
        smoothed = (neighbor_means(similarity, smoothed) + own * start) / (1.0 + own)
    return np.asarray(np.sqrt(np.mean(np.square(smoothed), axis=1)))


def signal_of_path(facts: Facts, pace: Pace, *, clip_norm: float, law: str, n_turns: int) -> float:
    """Square that an entry of a model is expected to have in the end, without noise.

    The mean over agents with rows; the clip bound is in the norm of the release.
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


def noise_of_agents(
    facts: Facts, release: Release, *, clip_norm: float, weight: float = 1.0
) -> Array:
    """Standard deviation of the noise in each entry of agents' mean gradients, in a turn.

    The clip bound is in the norm of the release. Zero for agents without rows.
    """
    agents = neighborhood_of(facts)
    sizes = np.asarray(agents.agent_sizes, dtype=np.float64)
    units = np.maximum(sizes, 1.0) if facts.unit == "record" else np.ones(len(sizes))
    noise = np.asarray(release.agent_noise_std)[agents.kind] * clip_norm / (weight * units)
    return np.asarray(np.where(sizes > 0, noise, 0.0))


def noise_trust(facts: Facts, noise: Array, *, clip_norm: float, law: str) -> Array:
    """Share of the variance of agents' noisy gradients that is no noise; zero without rows."""
    signal = _typical_square(facts, clip_norm, law)
    return np.asarray(np.where(have_rows(facts), signal / (signal + np.square(noise)), 0.0))


def left_of_noise(smoothed: Array, probes: Array) -> float:
    """What to multiply noisy models by, so that they are as large as what is no noise in them.

    Probes are noise of the law that is in them, drawn anew, that went the same way.
    """
    seen, noise = float(np.mean(np.square(smoothed))), float(np.mean(np.square(probes)))
    return min(max(1.0 - noise / seen, SMALLEST_FACTOR), 1.0) if seen > 0 else 1.0
