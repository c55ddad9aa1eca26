"""Consensus ADMM over a graph whose agents add noise to what they send: primal perturbation.

Source: T. Zhang, Q. Zhu, "Dynamic differential privacy for ADMM-based distributed classification
learning", IEEE Transactions on Information Forensics and Security 12, 2017, Algorithm 2 (PVP), with
the noisy models fed back into the iteration, Gaussian noise, and exact composition.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from skdpadmm.algorithms import Algorithm, count, size
from skdpadmm.privacy import GaussianDP
from skdpadmm.protocol import Budget, Facts, Gate, Plan, Problem, Release, Solution, network_of

from . import _network as consensus

DISPLACEMENTS = "displacements of agents"


@dataclass(kw_only=True, eq=False, repr=False)
class PrimalPerturbationADMM(Algorithm):
    """Agents take `inner_steps` towards their minimisers, and send what they reach with noise.

    **Guarantee.** What passes the gate is how far data have moved a model from the minimiser
    without data, which is public. With steps of one over the smoothness each step is a contraction
    by ``q_a = 1 - c_a step_a`` for every data set, and one record moves it by at most
    ``step_a C A / n``. So k steps from a public start move by at most ``(1 - q_a^k) unit_a`` (twice
    for replace-one), in units of which noise is planned; inner accuracy does not matter. Rounds
    compose as Gaussian releases.

    Parameters
    ----------
    clip_norm : float, default=0.1
        C, in units of the typical norm of a row.
    penalty_weight : float or "auto", default="auto"
        rho: the larger, the closer neighbours are held together and the less noise is added.
    inner_steps : int, default=30
    """

    setting, units, conditionable = "decentralized", ("record",), False

    clip_norm: float = size(0.1)
    penalty_weight: float | str = size()
    inner_steps: int = count(30)

    def check_facts(self, facts: Facts) -> None:
        consensus.check(facts)

    def released(self, facts: Facts, budget: Budget) -> tuple[Any, ...]:
        n_rounds, clip_norm = facts.max_iter, self.clip_norm
        rule = consensus.penalty_weight(facts, budget, clip_norm, n_rounds)
        settings = self.resolved(n_rounds=n_rounds, penalty_weight=rule)
        weight = settings.penalty_weight
        least = shares_of_way(facts, weight, self.inner_steps).min()
        sensitivity = facts.neighboring.sensitivity_factor * facts.working_rounding
        sensitivity += 2 * consensus.rounding(facts, clip_norm, weight) / least

        def guarantee(std: float) -> GaussianDP:
            return GaussianDP(sensitivity * math.sqrt(n_rounds) / std)

        std = consensus.calibrated(facts, budget, guarantee)
        return settings, Release(
            name=DISPLACEMENTS,
            shape=(network_of(facts).n_agents, facts.n_parameters, 1),
            sensitivities=(sensitivity,) * n_rounds,
            noise_std=std,
            views=consensus.seen(facts, guarantee(std)),
        )

    def run(self, plan: Plan, problem: Problem, gate: Gate) -> Solution:
        facts, settings, release = plan.facts, plan.settings, plan.releases[-1]
        topology, weight = network_of(facts).topology, settings.penalty_weight
        curvature = consensus.curvatures(topology, weight)
        clip = settings.clip_norm * consensus.typical_norm(facts)
        unit = clip * topology.n_agents / facts.n_samples / curvature
        unit = unit * shares_of_way(facts, weight, settings.inner_steps)
        solve = consensus.descent(facts, problem, clip, curvature, settings.inner_steps)

        def send(linear: Any) -> Any:
            start, models = solve(linear)
            return start + unit * gate.release(DISPLACEMENTS, (models - start) / unit)

        models = consensus.rounds(topology, weight, send, release.shape, settings.n_rounds)
        return consensus.averaged(plan, problem, models, settings.n_rounds)


def shares_of_way(facts: Facts, weight: float, n_steps: int) -> Any:
    """``1 - q_a^k``: how much of the way to its minimiser an agent goes at least."""
    ratio = consensus.smoothness(facts) / consensus.curvatures(network_of(facts).topology, weight)
    return 1 - (ratio / (1 + ratio)) ** n_steps
