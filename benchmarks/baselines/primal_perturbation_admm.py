"""Consensus ADMM over a graph whose agents add noise to what they send: primal perturbation.

Source: T. Zhang, Q. Zhu, "Dynamic differential privacy for ADMM-based distributed classification
learning", IEEE Transactions on Information Forensics and Security 12, 2017, Algorithm 2 (PVP), with
the noisy models fed back into the iteration, Gaussian noise, and exact composition.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from skdpadmm.algorithms import AUTO, COUNT, SIZE, Algorithm, ClippedSum, parameter
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
    releases_path = True  # Every observer counts as seeing every message.

    clip_norm: float = parameter(0.1, SIZE)
    penalty_weight: float | str = parameter("auto", AUTO, SIZE)
    inner_steps: int = parameter(30, COUNT)

    def check_facts(self, facts: Facts) -> None:
        consensus.check(facts)

    def penalty_weights(self, first: float, n_rounds: int) -> list[float]:
        """Rho of each round, the smallest first."""
        return [first] * n_rounds

    def n_noisy(self, n_rounds: int) -> int:
        """In how many of the rounds data are used."""
        return n_rounds

    def sent(self, solve: consensus.Solve) -> consensus.Solve:
        """What agents send in each round, of a function that uses data."""
        return solve

    def released(self, facts: Facts, budget: Budget) -> tuple[Any, ...]:
        n_rounds, clip_norm = facts.max_iter, self.clip_norm
        # Shrinking steps go as far as constant ones.
        rule = consensus.penalty_weight(facts, budget, clip_norm, n_rounds)
        rule *= sum(1 / weight for weight in self.penalty_weights(1.0, n_rounds)) / n_rounds
        settings = self.resolved(n_rounds=n_rounds, penalty_weight=rule)
        weights = self.penalty_weights(settings.penalty_weight, n_rounds)
        curvature = consensus.curvatures(network_of(facts).topology, weights[0])
        least = shares_of_way(facts, curvature, self.inner_steps).min()
        sensitivity = ClippedSum(facts).sensitivity
        errors = [consensus.rounding(facts, clip_norm, w) for w in (weights[0], weights[-1])]
        sensitivity += 2 * max(errors) / least
        n_noisy = self.n_noisy(n_rounds)

        def guarantee(std: float) -> GaussianDP:
            return GaussianDP(sensitivity * math.sqrt(n_noisy) / std)

        std = consensus.calibrated(facts, budget, guarantee)
        return settings, Release(
            name=DISPLACEMENTS,
            shape=(network_of(facts).n_agents, facts.n_parameters, 1),
            sensitivities=(sensitivity,) * n_noisy,
            noise_std=std,
            views=consensus.seen(facts, guarantee(std)),
        )

    def run(self, plan: Plan, problem: Problem, gate: Gate) -> Solution:
        facts, settings, release = plan.facts, plan.settings, plan.releases[-1]
        topology, n_rounds = network_of(facts).topology, settings.n_rounds
        clip = settings.clip_norm * consensus.typical_norm(facts)
        share = clip * topology.n_agents / facts.n_samples
        solve = consensus.descent(facts, problem, clip, settings.inner_steps)

        def send(linear: Any, curvature: Any) -> Any:
            start, models = solve(linear, curvature)
            unit = share / curvature * shares_of_way(facts, curvature, settings.inner_steps)
            return start + unit * gate.release(DISPLACEMENTS, (models - start) / unit)

        weights = self.penalty_weights(settings.penalty_weight, n_rounds)
        models = consensus.rounds(topology, weights, self.sent(send), release.shape)
        return consensus.averaged(plan, problem, models, n_rounds)


def shares_of_way(facts: Facts, curvature: Any, n_steps: int) -> Any:
    """``1 - q_a^k``: how much of the way to its minimiser an agent goes at least."""
    ratio = consensus.smoothness(facts) / curvature
    return 1 - (ratio / (1 + ratio)) ** n_steps
