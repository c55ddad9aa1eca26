"""Steps and weights of agents in a network that the user leaves open."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from skdpadmm.algorithms._defaults import agent_clip_factor, default_steps
from skdpadmm.protocol import Facts, Release


def default_network_steps(
    facts: Facts, messages: Release, *, sampling: float = 1.0
) -> tuple[float, float]:
    """Step size and clip bound, by the rule for a curator who has as much noise in the sum.

    Parameters
    ----------
    facts : Facts
        Of a network.
    messages : Release
        As many as there are steps.
    sampling : float, default=1.0
        Chance of each record to be in a step.

    Returns
    -------
    step_size : float
        In the coordinates that the algorithm works in.
    clip_norm : float
        In units of `Rows.clip_unit`.
    """
    assert facts.agents is not None
    moved = facts.neighboring.sensitivity_factor * facts.working_rounding
    noise = (
        float(np.linalg.norm(np.asarray(messages.agent_noise_std)[facts.agents.kind])) / sampling
    )
    n_times = len(messages.sensitivities)
    step_size, clip_norm = default_steps(
        replace(facts, max_iter=n_times), math.sqrt(n_times) * moved / noise
    )
    factor = agent_clip_factor(facts)
    return step_size / factor, clip_norm * factor
