"""What agents without a server say to each other: how much noise each adds, and what that costs.

All that an agent lets out is made of its own noisy gradients (or solutions) and of what others
said, so the guarantee is that of the agent's releases, whoever listens: an eavesdropper on every
edge, a peer next door or far away, or somebody who only sees the model.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
from numpy.typing import NDArray

from skdpadmm.algorithms._messages import calibrated_multiplier, spent_before
from skdpadmm.privacy import GaussianDP, Guarantee, PoissonSubsampledGaussian
from skdpadmm.protocol import Budget, Facts, Release, View, network_of


def agent_messages(
    facts: Facts,
    budget: Budget,
    *,
    name: str,
    n_times: int,
    limits: NDArray[np.float64],
    sampling: float = 1.0,
) -> Release:
    """Plan what every agent releases in each of several steps.

    Parameters
    ----------
    facts : Facts
        Of a network.
    budget : Budget
    name : str
    n_times : int
        Steps.
    limits : ndarray of shape (n_kinds,)
        Norm that a protected unit's part of a message may have, for each kind of agent.
    sampling : float, default=1.0
        Chance of each record to be in a step, in (0, 1]; the record is the protected unit then.

    Returns
    -------
    Release
    """
    agents = facts.agents
    assert agents is not None
    moved = facts.neighboring.sensitivity_factor * facts.working_rounding
    # Guarantees of steps in which a unit's part has norm one.
    spent = spent_before(facts, budget)

    def family(multiplier: float) -> Guarantee:
        if sampling < 1:
            noise = multiplier / facts.working_rounding
            return PoissonSubsampledGaussian(sampling, noise, n_times, facts.neighboring)
        return GaussianDP(n_times**0.5 * moved / multiplier)

    @cache
    def calibrated(epsilon: float, prior: Guarantee) -> float:
        return calibrated_multiplier(family, epsilon, budget.delta, prior)

    budgets = agents.budgets(budget.epsilon)
    multipliers = [calibrated(*pair) for pair in zip(budgets, spent, strict=True)]
    guarantees = tuple(family(multiplier) for multiplier in multipliers)
    shares = limits * np.asarray(multipliers)
    return Release(
        name=name,
        shape=(agents.n_agents, facts.n_parameters, facts.loss.n_outputs),
        sensitivities=(float(limits.max()) * moved,) * n_times,
        noise_std=float(shares.max()),
        made_of="agents",
        agent_noise_std=tuple(shares.tolist()),
        views=tuple(View(observer=o, guarantees=guarantees) for o in agents.observers),
    )


def flooded(facts: Facts) -> tuple[int, int]:
    """Messages, and the numbers in them, by which preparations reach all agents of a network.

    Every agent's part is passed on along each edge, in both directions.

    Parameters
    ----------
    facts : Facts
        Of a network.

    Returns
    -------
    tuple of two ints
    """
    network = network_of(facts)
    passed = network.n_agents * 2 * network.topology.n_edges
    return (
        passed * len(facts.preparations),
        passed * sum(math.prod(release.shape) for release in facts.preparations),
    )
