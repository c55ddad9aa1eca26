"""Gossip ADMM: pairs of similar agents agree on copies of their models, without privacy.

Source: Vanhaesebrouck, Bellet & Tommasi, "Decentralized collaborative learning of personalized
models over networks", AISTATS 2017. A baseline for how fast coordinate descent is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from skdpadmm.algorithms._personalized_optimum import minimal_models
from skdpadmm.algorithms.blocks._agent_turns import AwakeGradients, awake_gradients
from skdpadmm.algorithms.planning._knobs import (
    check_choice,
    check_count,
    check_range,
    check_seed,
)
from skdpadmm.algorithms.planning._wake_ups import (
    check_squared_penalty,
    penalty_curvature,
    weights_of_agents,
)
from skdpadmm.protocol import Budget, Facts, Gate, Plan, Problem, Release, Solution, neighborhood_of

Array = NDArray[np.float64]
MODELS = "models of agents"
# Of the models that it starts from.
TOLERANCE, MOST_STEPS = 1e-10, 100


@dataclass(frozen=True, kw_only=True)
class GossipADMMSettings:
    """Constants of one run, resolved.

    Attributes
    ----------
    n_activations : int
        Pairs that wake up, one after another.
    penalty_weight : float
    inner_steps : int
    start : {"zero", "local"}
    order_seed : int
    """

    n_activations: int
    penalty_weight: float
    inner_steps: int
    start: str
    order_seed: int


class GossipADMM(BaseEstimator):
    r"""Asynchronous ADMM on edges, for the joint objective at epsilon = inf alone.

    Each agent has a copy of each neighbour's model. When a pair wakes up, both minimise, roughly
    and over their own model and all of their copies,

    .. math:: \frac12 \sum_j \frac{W_{ij}}{2} \|\Theta_i^i - \Theta_i^j\|^2
              + \mu D_i c_i L_i(\Theta_i^i) + \sum_{e \ni i} \Big(\langle \Lambda_e,
              \Theta_i - Z_e \rangle + \frac{\rho}{2} \|\Theta_i - Z_e\|^2\Big),

    and then agree on the Z of their edge. The pair is an agent, drawn uniformly, and one of its
    neighbours. There are `max_iter` activations for each agent.

    Parameters
    ----------
    penalty_weight : float, default=1.0
        :math:`\rho`, in [1e-100, 1e100].
    inner_steps : int, default=10
        Gradient steps on an agent's own model, each followed by the best copies.
    start : {"zero", "local"}, default="zero"
        Models, copies and what pairs agree on before the first one wakes up: zeros, or each agent's
        own minimiser, which it then has sent to its neighbours.
    order_seed : int, default=0
        Public seed of the order.

    Examples
    --------
    >>> from skdpadmm.algorithms import GossipADMM
    >>> GossipADMM().get_params()["inner_steps"]
    10
    """

    conditionable = False
    setting = "personalized"
    exact = True

    def __init__(
        self,
        *,
        penalty_weight: float = 1.0,
        inner_steps: int = 10,
        start: Literal["zero", "local"] = "zero",
        order_seed: int = 0,
    ) -> None:
        self.penalty_weight = penalty_weight
        self.inner_steps = inner_steps
        self.start = start
        self.order_seed = order_seed

    def check(self, facts: Facts) -> None:
        """Refuse knobs outside of their range, whatever the budget.

        Raises
        ------
        ValueError
            Says what was expected.
        """
        check_range("penalty_weight", self.penalty_weight, 1e-100, 1e100, auto=False)
        check_count("inner_steps", self.inner_steps)
        check_choice("start", self.start, ("zero", "local"))
        check_seed("order_seed", self.order_seed)
        if neighborhood_of(facts).n_agents < 2:
            raise ValueError(
                "Got one agent for GossipADMM, expected two or more: it works on pairs."
            )
        check_squared_penalty(facts.penalty)

    def plan(self, facts: Facts, budget: Budget) -> Plan:
        """Plan one release without noise.

        Raises
        ------
        ValueError
            Where the budget is finite: this algorithm has no guarantee.
        """
        self.check(facts)
        if budget.is_private:
            raise ValueError(
                f"Got epsilon={budget.epsilon:g} for GossipADMM, expected inf: it adds no noise."
                " Use PersonalizedCoordinateDescent."
            )
        n_agents = neighborhood_of(facts).n_agents
        return Plan(
            algorithm="GossipADMM",
            facts=facts,
            budget=budget,
            settings=GossipADMMSettings(
                n_activations=facts.max_iter * n_agents,
                penalty_weight=float(self.penalty_weight),
                inner_steps=int(self.inner_steps),
                start=self.start,
                order_seed=int(self.order_seed),
            ),
            releases=(
                Release(
                    name=MODELS,
                    shape=(n_agents, facts.n_parameters, facts.loss.n_outputs),
                    sensitivities=(math.inf,),
                    noise_std=0.0,
                    seen_by=facts.observers,
                ),
            ),
        )

    def run(self, plan: Plan, problem: Problem, gate: Gate) -> Solution:
        """Wake pairs up as planned.

        Parameters
        ----------
        plan : Plan
        problem : Problem
            With an ownership.
        gate : Gate

        Returns
        -------
        Solution
        """
        facts, settings = plan.facts, plan.settings
        n_agents = neighborhood_of(facts).n_agents
        pairs = _Pairs(plan, problem)
        first = 0
        if settings.start == "local":
            own, _, _ = minimal_models(
                facts, problem, coupled=False, tolerance=TOLERANCE, max_iter=MOST_STEPS
            )
            first = pairs.begin(own)
        random = np.random.Generator(np.random.Philox(settings.order_seed))
        for k in range(settings.n_activations):
            agent = int(random.integers(n_agents))
            around = pairs.edges_of(agent)
            pairs.activate(int(around[random.integers(len(around))]))
            problem.progress((k + 1) // n_agents)
        models = gate.release(MODELS, pairs.models)
        activated = 2 * settings.n_activations
        return Solution(
            parameters=models.mean(axis=0),
            parameters_per_agent=models,
            n_iter=facts.max_iter,
            n_rounds=facts.max_iter,
            n_messages=first + activated,
            # Both models of the pair and their multipliers, in each direction.
            bytes_sent=8 * (first + 4 * activated) * models[0].size,
        )


class _Pairs:
    """Models, copies, and what pairs agree on.

    Edge e leads from an agent to a neighbour; `reverse` is the edge back. What the source of e
    holds is stored at e: the copy of the neighbour's model, and multipliers of both.
    """

    def __init__(self, plan: Plan, problem: Problem) -> None:
        facts, agents = plan.facts, neighborhood_of(plan.facts)
        ownership = problem.ownership
        assert ownership is not None
        weights = agents.similarity.weights.tocoo()
        self._rho, self._steps = plan.settings.penalty_weight, plan.settings.inner_steps
        self._source, self._sink = (axis.astype(np.intp) for axis in weights.coords)
        self._weight = np.asarray(weights.data)[:, None, None]
        self._bounds = np.searchsorted(self._source, np.arange(agents.n_agents + 1))
        # Edges are sorted by source and sink: sorted by sink and source they are those back.
        self._reverse = np.lexsort((self._source, self._sink))
        self._sizes = np.asarray(agents.agent_sizes)
        self._curvature = penalty_curvature(facts.penalty, problem.rows.coordinates)
        self._pull = (
            agents.trade_off
            * weights_of_agents(agents.similarity)
            * np.asarray(agents.confidence)
            * (self._sizes > 0)
        )
        self._gradient: AwakeGradients = awake_gradients(
            problem.rows, problem.target, ownership, loss=facts.loss, clip_norm=math.inf
        )
        # Largest eigenvalue of each agent's second moment: there is no privacy to lose.
        largest = np.zeros(agents.n_agents)
        for agent in np.flatnonzero(self._sizes).tolist():
            seen = problem.rows.take([ownership.rows_of(agent)]).augmented(0)
            largest[agent] = np.linalg.norm(seen, ord=2) ** 2 / len(seen)
        largest *= facts.loss.smoothness
        self._local = self._pull * (largest + float(self._curvature.max()))
        shape = (facts.n_parameters, facts.loss.n_outputs)
        self.models = np.zeros((agents.n_agents, *shape))
        n_edges = len(self._source)
        self._copies, self._agreed = np.zeros((n_edges, *shape)), np.zeros((n_edges, *shape))
        self._of_own, self._of_copy = np.zeros((n_edges, *shape)), np.zeros((n_edges, *shape))

    def begin(self, models: Array) -> int:
        """Start from models that neighbours have told each other; returns how often they did."""
        self.models = models.copy()
        self._copies, self._agreed = models[self._sink], models[self._source]
        return len(self._source)

    def edges_of(self, agent: int) -> NDArray[np.intp]:
        """Edges that lead away from an agent."""
        return np.arange(self._bounds[agent], self._bounds[agent + 1])

    def activate(self, edge: int) -> None:
        """Let the two ends of an edge minimise and agree."""
        back = int(self._reverse[edge])
        for end in (edge, back):
            self._minimise(int(self._source[end]))
        for own, other in ((edge, back), (back, edge)):
            # What both hold of the model of the source of `own`.
            model, copy = self.models[self._source[own]], self._copies[other]
            dual = (self._of_own[own] + self._of_copy[other]) / self._rho
            self._agreed[own] = (dual + model + copy) / 2
            self._of_own[own] += self._rho * (model - self._agreed[own])
            self._of_copy[other] += self._rho * (copy - self._agreed[own])

    def _minimise(self, agent: int) -> None:
        edges, rho = self.edges_of(agent), self._rho
        half, who = self._weight[edges] / 2, np.array([agent])
        # With the best copies an edge pulls like two springs in a row.
        lipschitz = self._local[agent] + len(edges) * rho + float(half.sum())
        theirs = self._agreed[self._reverse[edges]] - self._of_copy[edges] / rho
        ours = self._agreed[edges] - self._of_own[edges] / rho
        model = self.models[agent]
        for _ in range(self._steps):
            copies = (half * model + rho * theirs) / (half + rho)
            slope = (half * (model - copies) + rho * (model - ours)).sum(axis=0)
            if self._sizes[agent]:
                local = self._gradient(who, model[None])[0] / self._sizes[agent]
                slope = slope + self._pull[agent] * (local + self._curvature * model)
            model = model - slope / lipschitz
        self.models[agent] = model
        self._copies[edges] = (half * model + rho * theirs) / (half + rho)
