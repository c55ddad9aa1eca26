"""Gossip ADMM: pairs of similar agents agree on copies of their models, without privacy.

Source: Vanhaesebrouck, Bellet & Tommasi, "Decentralized collaborative learning of personalized
models over networks", AISTATS 2017. What the speed of coordinate descent is measured by.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from skdpadmm.algorithms import AT_LEAST_0, COUNT, SIZE, Algorithm, LocalModels, OneOf, parameter
from skdpadmm.noise import noise_source
from skdpadmm.protocol import (
    Budget,
    Facts,
    Gate,
    Plan,
    Problem,
    Solution,
    neighborhood_of,
    not_private,
)

MODELS = "models of agents"


@dataclass(kw_only=True, eq=False, repr=False)
class GossipADMM(Algorithm):
    r"""Asynchronous ADMM on edges, for the joint objective of personal models at epsilon = inf.

    Each agent has a copy of each neighbour's model. When a pair wakes up, both minimise, roughly
    and over their own model and all of their copies,

    .. math:: \frac12 \sum_j \frac{W_{ij}}{2} \|\Theta_i^i - \Theta_i^j\|^2
              + \mu D_i c_i L_i(\Theta_i^i) + \sum_{e \ni i} \Big(\langle \Lambda_e,
              \Theta_i - Z_e \rangle + \frac{\rho}{2} \|\Theta_i - Z_e\|^2\Big),

    and then agree on the Z of their edge. The pair is an agent, drawn uniformly, and one of its
    neighbours; there are `max_iter` activations for each agent.

    Parameters
    ----------
    penalty_weight : float, default=1.0
        rho.
    inner_steps : int, default=10
        Gradient steps on an agent's own model, each followed by the best copies.
    start : {"zero", "local"}, default="zero"
        Models and copies before the first pair wakes up; local ones are sent to all neighbours.
    order_seed : int, default=0
        Public seed of the order.
    """

    setting, conditionable, exact = "personalized", False, True

    penalty_weight: float = parameter(1.0, SIZE)
    inner_steps: int = parameter(10, COUNT)
    start: str = parameter("zero", OneOf("zero", "local"))
    order_seed: int = parameter(0, AT_LEAST_0)

    def check_facts(self, facts: Facts) -> None:
        if neighborhood_of(facts).n_agents < 2 or facts.loss.n_outputs > 1:
            raise ValueError("Got one agent or several scores, expected pairs and one score.")

    def released(self, facts: Facts, budget: Budget) -> tuple[Any, ...]:
        if budget.is_private:
            raise ValueError(f"Got epsilon={budget.epsilon:g}, expected inf: it adds no noise.")
        shape = (neighborhood_of(facts).n_agents, facts.n_parameters, 1)
        return self.resolved(), not_private(MODELS, shape, facts.observers)

    def run(self, plan: Plan, problem: Problem, gate: Gate) -> Solution:
        facts, settings = plan.facts, plan.settings
        rho, n_agents = settings.penalty_weight, neighborhood_of(facts).n_agents
        weights = neighborhood_of(facts).similarity.weights.tocoo()
        # Edge e leads from an agent to a neighbour, sorted by both; `back` is the edge back.
        source, sink = (axis.astype(np.intp) for axis in weights.coords)
        bounds, back = np.searchsorted(source, np.arange(n_agents + 1)), np.lexsort((source, sink))
        half = weights.data[:, None] / 2
        slope, lipschitz = own_losses(facts, problem)
        models, n_sent = np.zeros((n_agents, facts.n_parameters)), 0
        if settings.start == "local":
            models, n_sent = local_models(facts, plan.budget, problem), len(source)
        # What the source of an edge holds: its copy of the sink's model, multipliers of its own
        # model and of the copy; and what both ends agreed on for the source's model.
        copies, agreed = models[sink], models[source]
        of_own, of_copy = np.zeros(copies.shape), np.zeros(copies.shape)

        def minimise(agent: int) -> None:
            edges = slice(bounds[agent], bounds[agent + 1])
            weight, theirs = half[edges], agreed[back[edges]] - of_copy[edges] / rho
            ours, model = agreed[edges] - of_own[edges] / rho, models[agent]
            step = 1 / (lipschitz[agent] + len(weight) * rho + float(weight.sum()))
            for _ in range(settings.inner_steps):
                best = (weight * model + rho * theirs) / (weight + rho)
                pull = (weight * (model - best) + rho * (model - ours)).sum(axis=0)
                model = model - step * (pull + slope(agent, model))
            models[agent] = model
            copies[edges] = (weight * model + rho * theirs) / (weight + rho)

        random = np.random.Generator(np.random.Philox(settings.order_seed))
        for k in range(facts.max_iter * n_agents):
            agent = int(random.integers(n_agents))
            edge = int(bounds[agent] + random.integers(bounds[agent + 1] - bounds[agent]))
            ends = (edge, int(back[edge]))
            for one in ends:
                minimise(int(source[one]))
            for one, other in (ends, ends[::-1]):
                held = models[source[one]], copies[other]
                agreed[one] = (sum(held) + (of_own[one] + of_copy[other]) / rho) / 2
                of_own[one] += rho * (held[0] - agreed[one])
                of_copy[other] += rho * (held[1] - agreed[one])
            problem.progress((k + 1) // n_agents, models[:, :, None])
        released, n_activated = gate.release(MODELS, models[:, :, None]), 2 * (k + 1)
        return Solution(
            parameters=released.mean(axis=0),
            parameters_per_agent=released,
            n_iter=facts.max_iter,
            n_rounds=facts.max_iter,
            n_messages=n_sent + n_activated,
            # Both models of the pair and their multipliers, in each direction.
            bytes_sent=8 * (n_sent + 4 * n_activated) * facts.n_parameters,
        )


def own_losses(facts: Facts, problem: Problem):
    """Gradients of ``mu D_i c_i L_i`` of single agents, and the bounds of their curvatures."""
    agents, rows, ownership = neighborhood_of(facts), problem.rows, problem.ownership
    assert ownership is not None
    ridge = np.zeros(facts.n_parameters)
    scale = rows.coordinates.coefficient_scale
    ridge[: len(scale)] = facts.penalty.strong_convexity * scale**2
    X = np.concatenate([rows.augmented(block) for block in range(rows.n_blocks)])
    parts = [ownership.rows_of(agent) for agent in range(agents.n_agents)]
    own = [(X[part], problem.target[part]) for part in parts]
    pull = agents.trade_off * agents.similarity.degrees * np.array(agents.confidence)
    largest = [np.linalg.norm(A, ord=2) ** 2 / len(A) if len(A) else 0.0 for A, _ in own]
    lipschitz = pull * (facts.loss.smoothness * np.array(largest) + ridge.max())

    def slope(agent: int, model: np.ndarray) -> np.ndarray:
        A, y = own[agent]
        if not len(A):
            return np.zeros(model.shape)
        mean = facts.loss.derivative(A @ model, y) @ A / len(A)
        return pull[agent] * (mean + ridge * model)

    return slope, lipschitz


def local_models(facts: Facts, budget: Budget, problem: Problem) -> np.ndarray:
    """Each agent's own minimiser, by an algorithm of the package."""
    plan = LocalModels().plan(facts, budget)
    own = LocalModels().run(plan, problem, Gate(plan, noise_source(0, b""))).parameters_per_agent
    assert own is not None
    return own[:, :, 0].copy()
