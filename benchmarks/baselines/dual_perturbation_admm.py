"""Dual perturbation: consensus ADMM over a graph with random linear terms in agents' problems.

Source: T. Zhang, Q. Zhu, "Dynamic differential privacy for ADMM-based distributed classification
learning", IEEE Transactions on Information Forensics and Security 12, 2017, Algorithm 1 (DVP), with
Gaussian noise and a proven accounting over rounds: `perturbed_objective_rdp`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from skdpadmm.algorithms import AUTO, COUNT, SIZE, Algorithm, parameter
from skdpadmm.losses import LogisticLoss, SmoothedHinge
from skdpadmm.noise import GRID_CELL
from skdpadmm.privacy import (
    GaussianDP,
    Guarantee,
    PerturbedObjectiveDP,
    compose,
    gaussian_mu,
)
from skdpadmm.protocol import (
    Budget,
    Facts,
    Gate,
    Plan,
    Problem,
    Release,
    Solution,
    network_of,
)

from . import _network as consensus
from ._perturbed_rounds import perturbed_objective_rdp

LINEAR_TERMS, MINIMISERS = "linear terms of agents", "minimisers of agents"
# Of the squared budget for inexact solutions, and what these lack beside what a record moves.
OUTPUT_SHARE, TOLERANCE = 0.02, 0.01
# A linear term longer than its typical length by so many standard deviations is never drawn: the
# chance, below 1e-42, is charged to delta.
LONGEST_DRAW, NEVER = 14.0, 1e-9


@dataclass(kw_only=True, eq=False, repr=False)
class DualPerturbationADMM(Algorithm):
    """Each agent adds a random linear term to its problem, and sends the minimiser.

    **Guarantee.** That of perturbed objectives, of sums of losses with gradients of norm at most C
    and curvature ``smoothness row_norm^2`` beside the public ridge ``n c_a / A``; rounds add up as
    Renyi divergences. What is sent takes a little noise too, which covers how far a public number
    of steps, the grid of the noise and rounding leave it from the minimiser, on any data set. The
    cost grows with the number of rounds and not with its root, because the linear term does not
    hide the curvature of a record: a method of few rounds.

    Parameters
    ----------
    max_rounds : int, default=10
        There are this many rounds, or `max_iter` where that is less.
    clip_norm : float, default=0.5
        C, in units of the typical norm of a row.
    penalty_weight : float or "auto", default="auto"
        rho; "auto" keeps the curvature of a record at a sixth of epsilon over all rounds.
    """

    setting, units, conditionable = "decentralized", ("record",), False
    releases_path = True  # Every observer counts as seeing every message.

    max_rounds: int = parameter(10, COUNT)
    clip_norm: float = parameter(0.5, SIZE)
    penalty_weight: float | str = parameter("auto", AUTO, SIZE)

    def check_facts(self, facts: Facts) -> None:
        consensus.check(facts)

    def released(self, facts: Facts, budget: Budget) -> tuple[Any, ...]:
        network, n_rounds = network_of(facts), min(facts.max_iter, self.max_rounds)
        shape, largest = (network.n_agents, facts.n_parameters, 1), max(network.agent_sizes)
        weight = self.penalty_weight
        if weight == "auto":
            weight = default_weight(facts, budget, self.clip_norm, n_rounds)
        curvature = float(consensus.curvatures(network.topology, weight).min())
        condition = 1 + consensus.smoothness(facts) / curvature
        total = gaussian_mu(min(network.budgets(budget.epsilon)), budget.delta)
        output = GaussianDP(total * math.sqrt(OUTPUT_SHARE))

        def minimisers(std: float) -> Guarantee:
            one_sign = isinstance(facts.loss, LogisticLoss | SmoothedHinge)
            one = PerturbedObjectiveDP(
                gradient_ratio=facts.working_rounding / std,
                curvature_ratio=(condition - 1) / largest,
                neighboring=facts.neighboring,
                derivative="one_sign" if one_sign else "any",
            )
            return perturbed_objective_rdp(one, n_rounds)

        capped = Budget(
            epsilon=budget.epsilon, delta=budget.delta * (1 - NEVER), observer=budget.observer
        )
        std = consensus.calibrated(facts, capped, lambda s: compose(minimisers(s), output))
        tolerance = TOLERANCE * facts.neighboring.sensitivity_factor / condition
        root = math.sqrt(facts.n_parameters)
        noise = std * (root + LONGEST_DRAW)
        error = tolerance + std * root * GRID_CELL / 2
        error += consensus.rounding(facts, self.clip_norm, weight, noise)
        term = Release(
            name=LINEAR_TERMS,
            shape=shape,
            sensitivities=(),
            noise_std=std,
            door="hidden_term",
            repeats=n_rounds,
            views=consensus.seen(facts, minimisers(std)),
        )
        solution = Release(
            name=MINIMISERS,
            shape=shape,
            sensitivities=(2 * error,) * n_rounds,
            noise_std=2 * error * math.sqrt(n_rounds) / output.mu * (1 + 1e-12),
            views=consensus.seen(facts, output),
        )
        n_steps = math.ceil(condition * math.log((largest + noise) / tolerance))
        constants = {"n_rounds": n_rounds, "penalty_weight": weight, "inner_steps": n_steps}
        return self.resolved(**constants), term, solution

    def run(self, plan: Plan, problem: Problem, gate: Gate) -> Solution:
        facts, settings = plan.facts, plan.settings
        topology, weight = network_of(facts).topology, settings.penalty_weight
        clip = settings.clip_norm * consensus.typical_norm(facts)
        share = clip * topology.n_agents / facts.n_samples
        solve = consensus.descent(facts, problem, clip, settings.inner_steps)

        def send(linear: Any, curvature: Any) -> Any:
            _, models = solve(linear, curvature, share * gate.hidden_term(LINEAR_TERMS))
            return share / curvature * gate.release(MINIMISERS, models * (curvature / share))

        shape = plan.releases[-1].shape
        models = consensus.rounds(topology, [weight] * settings.n_rounds, send, shape)
        return consensus.averaged(plan, problem, models, settings.n_rounds)


def default_weight(facts: Facts, budget: Budget, clip_norm: float, n_rounds: int) -> float:
    network = network_of(facts)
    largest, epsilon = max(network.agent_sizes), min(network.budgets(budget.epsilon))
    needed = 6 * n_rounds * consensus.smoothness(facts) / (largest * epsilon)
    fewest = max(int(network.topology.degrees.min()), 1)
    rule = consensus.penalty_weight(facts, budget, clip_norm, n_rounds)
    return max(rule, needed / (2 * fewest))
