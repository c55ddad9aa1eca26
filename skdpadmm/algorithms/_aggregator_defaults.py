"""What algorithms with random aggregators leave open: noise of rounds, steps and clip bounds."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from skdpadmm.algorithms._defaults import is_regression, typical_row
from skdpadmm.algorithms._knobs import check_range
from skdpadmm.algorithms._messages import unit_limits
from skdpadmm.algorithms._network_defaults import default_network_steps
from skdpadmm.protocol import Facts, Release

# The noise of the first round over that of the last one is at most this, or its inverse.
MOST_DECAY = 1e12
# Bound of the derivative of a typical record's loss that hardly anything exceeds.
WIDEST_CLIP = 1.0
# Norm of the mean gradient of agents, beside the clip bound.
TYPICAL_MEAN = 0.5


def check_noise_decay(noise_decay: object, n_rounds: int) -> None:
    """Refuse noise that shrinks or grows out of range.

    Parameters
    ----------
    noise_decay : object
    n_rounds : int

    Raises
    ------
    ValueError
        Says what was expected.
    """
    check_range("noise_decay", noise_decay, 0.5, 2.0, auto=False)
    assert isinstance(noise_decay, int | float | np.integer | np.floating)
    if n_rounds * abs(math.log(noise_decay)) > math.log(MOST_DECAY):
        raise ValueError(
            f"Got noise_decay={noise_decay} over {n_rounds} rounds, expected noise that changes by"
            f" a factor of at most {MOST_DECAY:g} over all of them. Choose it closer to 1."
        )


def decay_weights(noise_decay: float, n_rounds: int) -> NDArray[np.float64]:
    """What turns are multiplied by so that their noise shrinks, with a mean square of one.

    Parameters
    ----------
    noise_decay : float
        Noise of a round over that of the next one.
    n_rounds : int

    Returns
    -------
    ndarray of shape (n_rounds,)
    """
    relative = np.exp(math.log(noise_decay) * (np.arange(n_rounds) + 1.0 - n_rounds))
    return np.asarray(relative / math.sqrt(float(np.mean(np.square(relative)))))


def law_factor(facts: Facts, law: str) -> float:
    """Bound of an L1 norm over that of a Euclidean one, for a typical vector of parameters.

    Parameters
    ----------
    facts : Facts
    law : {"gaussian", "laplace"}
        One for the first.

    Returns
    -------
    float
    """
    return 1.0 if law == "gaussian" else math.sqrt(facts.n_parameters * facts.loss.n_outputs)


def noise_of_gradients(facts: Facts, turns: Release) -> NDArray[np.float64]:
    """Standard deviation of noise in each entry of agents' sums of gradients.

    Parameters
    ----------
    facts : Facts
    turns : Release
        Of weight one.

    Returns
    -------
    ndarray of shape (n_kinds,)
        Over the clip bound of a typical gradient in the Euclidean norm.
    """
    return np.asarray(turns.agent_noise_std) * unit_limits(facts) * law_factor(facts, turns.law)


def smoothness_of_agents(facts: Facts) -> NDArray[np.float64]:
    """Public bounds of the curvature of ``F_a``, of shape (n_agents,)."""
    assert facts.agents is not None
    shares = np.asarray(facts.agents.agent_sizes) * (facts.agents.n_agents / facts.n_samples)
    row_norm = facts.row_norm if math.isfinite(facts.row_norm) else typical_row(facts)
    return np.asarray(shares * facts.loss.smoothness * row_norm**2)


def default_aggregator_steps(
    facts: Facts, turns: Release, *, longest: float | None = None
) -> tuple[float, float]:
    """Step size and clip bound, by the rule for a curator who has as much noise in the sum.

    Parameters
    ----------
    facts : Facts
        Of a network.
    turns : Release
        As many as there are steps, with weights whose mean square is one.
    longest : float or None, default=None
        Bound of the step; None: one over that of the curvature of the mean loss.

    Returns
    -------
    step_size : float
        In public coordinates.
    clip_norm : float
        In units of `Rows.clip_unit`. Infinite where nothing is private.
    """
    assert facts.agents is not None
    if longest is None:
        longest = 1.0 / float(smoothness_of_agents(facts).mean())
    if turns.noise_std == 0:
        return longest, math.inf
    noise = noise_of_gradients(facts, turns)
    shares = tuple(noise.tolist())
    step_size, clip_norm = default_network_steps(
        facts, replace(turns, agent_noise_std=shares, noise_std=max(shares))
    )
    shorter = min(step_size, longest)
    if not is_regression(facts):
        # A shorter step with a wider clip goes as far, with as much noise in the model: half way.
        wider = clip_norm * math.sqrt(step_size / shorter)
        clip_norm = max(min(wider, WIDEST_CLIP), clip_norm)
    return shorter, clip_norm


def single_pass_step(facts: Facts, whole: float, n_rounds: int) -> float:
    """First of steps that shrink like roots, and go as far as a single one.

    Parameters
    ----------
    facts : Facts
    whole : float
        Length of the single step.
    n_rounds : int

    Returns
    -------
    float
        At most one over the curvature along a typical row.
    """
    total = float(np.sum(1.0 / np.sqrt(np.arange(n_rounds) + 1.0)))
    return min(whole / total, 1.0 / (facts.loss.smoothness * typical_row(facts) ** 2))


def default_rounds(facts: Facts, turns: Release) -> int:
    """Rounds of an algorithm that uses each agent once.

    The more rounds, the fewer agents in each, and the more noise. The bound of Theorem 3.2.1 is the
    least where noise in a round is as large as the gradient.

    Parameters
    ----------
    facts : Facts
        Of a network of at least two agents.
    turns : Release
        One.

    Returns
    -------
    int
        In [1, n_agents // 2].
    """
    agents = facts.agents
    assert agents is not None
    most = agents.n_agents // 2
    if turns.noise_std == 0:
        return most
    noise = noise_of_gradients(facts, turns)[agents.kind] * (agents.n_agents / facts.n_samples)
    n_entries = facts.n_parameters * facts.loss.n_outputs
    variance = 2 * n_entries * float(np.mean(np.square(noise)))
    return int(min(max(agents.n_agents * TYPICAL_MEAN**2 / variance, 1), most))
