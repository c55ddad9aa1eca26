"""Consensus ADMM over a graph without privacy: agents solve problems of their own exactly.

Source: Huang & Gong, "Differentially Private ADMM for Convex Distributed Learning: Improved
Accuracy via Multi-Step Approximation", equations (6) to (9).
"""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np

from skdpadmm.algorithms import COUNT, Algorithm, Interval, parameter
from skdpadmm.protocol import Budget, Facts, Gate, Plan, Problem, Solution, network_of, not_private

from . import _network as consensus

MODELS = "models of agents"
NEVER_REACHED = 2.0**300  # a clip bound


@dataclass(kw_only=True, eq=False, repr=False)
class ExactConsensusADMM(Algorithm):
    """Rounds until no model moves, and none is further from their mean, by more than a tolerance.

    For ``epsilon=inf`` alone: what private agents are measured by. The penalty weight rho is the
    mean curvature of the losses over the mean number of neighbours.

    Parameters
    ----------
    tolerance : float, default=1e-9
        Beside the larger of 1 and the models.
    max_rounds : int, default=10_000
    """

    setting, conditionable, exact = "decentralized", False, True

    tolerance: float = parameter(1e-9, Interval(Real, 1e-14, 1, closed="both"))
    max_rounds: int = parameter(10_000, COUNT)

    def released(self, facts: Facts, budget: Budget) -> tuple[Any, ...]:
        if budget.is_private:
            raise ValueError(f"Got epsilon={budget.epsilon:g}, expected inf: it adds no noise.")
        shape = (network_of(facts).n_agents, facts.n_parameters, facts.loss.n_outputs)
        return self.resolved(), not_private(MODELS, shape, facts.observers)

    def run(self, plan: Plan, problem: Problem, gate: Gate) -> Solution:
        facts, settings, rows = plan.facts, plan.settings, problem.rows
        topology, ownership = network_of(facts).topology, problem.ownership
        assert ownership is not None
        bends = np.empty(topology.n_agents)
        for agent in range(topology.n_agents):
            own = rows.take([ownership.rows_of(agent)]).augmented(0)
            bends[agent] = np.linalg.norm(own, ord=2) ** 2
        bends *= facts.loss.smoothness * topology.n_agents / facts.n_samples
        weight = float(bends.mean()) / facts.n_parameters / max(topology.degrees.mean(), 1.0)
        curvature = consensus.curvatures(topology, weight)
        gradient = consensus.clipped_gradients(facts, problem, NEVER_REACHED)
        prox, step = consensus.proximal_step(facts, rows), 1 / (curvature + bends[:, None, None])
        root = np.sqrt(curvature * step)
        momentum, tolerance = (1 - root) / (1 + root), settings.tolerance
        shape = plan.releases[-1].shape
        before, k = np.zeros(shape), 0

        def minimise(linear: Any, curvature: Any) -> Any:
            """Accelerated steps from the models of the last round."""
            models = ahead = before
            for _ in range(10_000):
                slope = gradient(ahead) + curvature * ahead - linear
                last, models = models, prox(ahead - step * slope, step)
                ahead = models + momentum * (models - last)
                if np.abs(models - last).max() <= 0.01 * tolerance * size(models):
                    break
            return models

        rounds = consensus.rounds(topology, [weight] * settings.max_rounds, minimise, shape)
        for k, models in enumerate(rounds, 1):
            moved = max(np.abs(models - before).max(), np.abs(models - models.mean(axis=0)).max())
            before = models
            problem.progress(k)
            if moved <= tolerance * size(models):
                break
        released, n_messages = gate.release(MODELS, before), 2 * k * topology.n_edges
        return Solution(
            parameters=released.mean(axis=0),
            parameters_per_agent=released,
            n_iter=k,
            n_rounds=k,
            n_messages=n_messages,
            bytes_sent=8 * n_messages * released[0].size,
        )


def size(models: Any) -> float:
    return max(1.0, float(np.abs(models).max()))
