"""Consensus ADMM over a graph without privacy: agents solve problems of their own exactly.

Source: Huang & Gong, "Differentially Private ADMM for Convex Distributed Learning: Improved
Accuracy via Multi-Step Approximation", equations (6) to (9).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning

from skdpadmm.algorithms.blocks._accelerated_gradient import Map, accelerated_gradient
from skdpadmm.algorithms.blocks._agent_gradients import agent_gradients
from skdpadmm.algorithms.blocks._neighbor_consensus import NeighborConsensus
from skdpadmm.algorithms.blocks._network_steps import proximal_steps
from skdpadmm.algorithms.planning._knobs import check_count, check_range
from skdpadmm.protocol import Budget, Facts, Gate, Plan, Problem, Release, Solution, network_of

MODELS = "models of agents"
# Above this many entries second moments of all agents cost more than the passes that they save.
LARGEST_MOMENTS = 10_000_000

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class ExactConsensusADMMSettings:
    """Constants of one run."""

    max_rounds: int
    penalty_weight: float | Literal["auto"]
    tolerance: float


class ExactConsensusADMM(BaseEstimator):
    r"""Consensus ADMM over a graph, for epsilon = inf alone: what private agents are measured by.

    Solves :math:`\min_w \frac1n \sum_i f_i(w) + r(w)` over the records of all A agents. Agent a
    holds :math:`F_a = \frac A n \sum_{i \in a} f_i`, a dual variable :math:`\gamma_a` and a model
    :math:`w_a`, both 0 at first. In each round

    .. math::

        w_a &\leftarrow \arg\min_w F_a(w) + r(w) - 2 \langle \gamma_a, w \rangle
             + \rho \sum_{b \in N_a} \Big\| w - \frac{w_a + w_b}2 \Big\|^2, \\
        \gamma_a &\leftarrow \gamma_a - \frac\rho2 \sum_{b \in N_a} (w_a - w_b),

    and :math:`w_a` is broadcast to the neighbours. Duals sum to zero, and at the end
    :math:`2 \gamma_a` is a (sub)gradient of :math:`F_a + r`. Models converge to the optimum of the
    central problem, on every connected graph.

    Parameters
    ----------
    penalty_weight : float or "auto", default="auto"
        :math:`\rho`, in [1e-100, 1e100], in the units of standardised features. "auto" is the mean
        curvature of the losses over the mean number of neighbours.
    tolerance : float, default=1e-9
        In [1e-14, 1]: it stops where no model moves by more, and none is further from the average,
        beside the larger of 1 and the models, which are those of standardised features and target.
    max_rounds : int, default=10_000
        At least 1.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpadmm import DPDecentralizedRegressor
    >>> X, y = np.array([[-1.0], [1.0], [2.0], [4.0]]), np.array([-1.0, 1.0, 2.0, 4.0])
    >>> model = DPDecentralizedRegressor(
    ...     algorithm="exact-consensus-admm", epsilon=float("inf"), alpha=0.0, topology="path"
    ... )
    >>> model.fit(X, y, agents=["a", "b", "b", "c"]).coef_per_agent_.round(6).ravel().tolist()
    [1.0, 1.0, 1.0]
    """

    conditionable = False
    exact = True
    setting = "decentralized"

    def __init__(
        self,
        *,
        penalty_weight: float | Literal["auto"] = "auto",
        tolerance: float = 1e-9,
        max_rounds: int = 10_000,
    ) -> None:
        self.penalty_weight = penalty_weight
        self.tolerance = tolerance
        self.max_rounds = max_rounds

    def check(self, facts: Facts) -> None:
        """Refuse knobs outside of their range, whatever the budget.

        Raises
        ------
        ValueError
            Says what was expected.
        """
        check_range("penalty_weight", self.penalty_weight, 1e-100, 1e100)
        check_range("tolerance", self.tolerance, 1e-14, 1.0, auto=False)
        check_count("max_rounds", self.max_rounds)

    def plan(self, facts: Facts, budget: Budget) -> Plan:
        """Plan one release without noise.

        Parameters
        ----------
        facts : Facts
            Of a network.
        budget : Budget
            With an infinite epsilon.

        Returns
        -------
        Plan

        Raises
        ------
        ValueError
            Where the budget is finite: this algorithm has no guarantee.
        """
        self.check(facts)
        if budget.is_private:
            raise ValueError(
                f"Got epsilon={budget.epsilon:g} for ExactConsensusADMM, expected inf: it adds no"
                " noise. Use MultiStepADMM."
            )
        assert facts.agents is not None
        release = Release(
            name=MODELS,
            shape=(facts.agents.n_agents, facts.n_parameters, facts.loss.n_outputs),
            sensitivities=(math.inf,),
            noise_std=0.0,
            seen_by=facts.observers,
        )
        return Plan(
            algorithm="ExactConsensusADMM",
            facts=facts,
            budget=budget,
            settings=ExactConsensusADMMSettings(
                max_rounds=int(self.max_rounds),
                penalty_weight=self.penalty_weight,
                tolerance=float(self.tolerance),
            ),
            releases=(release,),
        )

    def run(self, plan: Plan, problem: Problem, gate: Gate) -> Solution:
        """Run rounds until models neither move nor differ.

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
        facts = plan.facts
        settings: ExactConsensusADMMSettings = plan.settings
        network = network_of(facts)
        topology = network.topology
        bends = _curvature_bounds(facts, problem)
        rho = settings.penalty_weight
        if rho == "auto":
            rho = _mean_curvature(bends, facts) / max(float(topology.degrees.mean()), 1.0)
        consensus = NeighborConsensus(topology=topology, penalty_weight=float(rho))
        models = np.zeros((network.n_agents, facts.n_parameters, facts.loss.n_outputs))
        solve = _exact_minimisers(facts, problem, consensus, bends)
        moved, done = 1.0, False

        def broadcast(pull: Array) -> Array:
            # Digits that the next round changes are not worth their time.
            return solve(pull, max(0.01 * moved, 0.1 * settings.tolerance))

        rounds = consensus.rounds(broadcast, models)
        for k, (following, _) in zip(range(settings.max_rounds), rounds, strict=False):
            moved = float(np.abs(following - models).max())
            apart = float(np.abs(following - following.mean(axis=0)).max())
            models = following
            problem.progress(k + 1)
            done = max(moved, apart) <= settings.tolerance * _size(models)
            if done:
                break
        if not done:
            # Nothing is private here, so the optimiser may speak.
            warnings.warn(
                f"Got no convergence in {settings.max_rounds} rounds over the graph"
                f" {topology.describe()}, expected models that move and differ by less than"
                f" {settings.tolerance:g} in standardised units. Increase max_rounds, change"
                " penalty_weight, or use a graph with more edges.",
                ConvergenceWarning,
                stacklevel=2,
            )
        released = gate.release(MODELS, models)
        n_messages = (k + 1) * 2 * topology.n_edges
        return Solution(
            parameters=released.mean(axis=0),
            parameters_per_agent=released,
            n_iter=k + 1,
            n_rounds=k + 1,
            n_messages=n_messages,
            bytes_sent=8 * n_messages * released[0].size,
        )


def _exact_minimisers(
    facts: Facts,
    problem: Problem,
    consensus: NeighborConsensus,
    bends: Array,
) -> Callable[[Array, float], Array]:
    """Minimisers of ``F_a(w) + r(w) + c_a / 2 |w|^2 - <p_a, w>`` of all agents, for terms p.

    Where second moments fit, each pass over the rows is followed by the exact minimiser of a bound
    that touches the losses where they were seen; for a squared loss it is the loss itself.

    Parameters
    ----------
    facts : Facts
    problem : Problem
    consensus : NeighborConsensus
    bends : ndarray of shape (n_agents, d, d) or (n_agents, 1, 1)
        Bounds of the curvature of ``F_a``: matrices, or multiples of the identity.

    Returns
    -------
    callable
        Takes the terms, and a tolerance for the last step beside the larger of 1 and the models.
        Each call starts from what the last one found.
    """
    assert facts.agents is not None
    share = facts.agents.n_agents / facts.n_samples
    sums = agent_gradients(problem, loss=facts.loss, clip_norm=math.inf)
    prox, curvature = proximal_steps(facts, problem.rows), consensus.curvature
    column = curvature[:, None, None]
    steepest = np.linalg.eigvalsh(bends)[:, -1]
    smoothness = 1.0 + float(np.max(steepest / curvature)) * (1 + 1e-9)
    n_steps = math.ceil(2 * math.sqrt(smoothness)) + 1
    current = np.zeros((facts.agents.n_agents, facts.n_parameters, facts.loss.n_outputs))

    def solve(linear: Array, tolerance: float) -> Array:
        nonlocal current

        def accelerated(slope: Map, start: Array) -> Array:
            return _settled(
                lambda w: accelerated_gradient(
                    lambda v: (slope(v) - linear) / column + v,
                    w,
                    n_steps,
                    strong_convexity=1.0,
                    smoothness=smoothness,
                    prox=lambda v: prox(v, curvature * smoothness),
                ),
                start,
                tolerance,
            )

        def bounded(w: Array) -> Array:
            seen = share * sums(w)
            return accelerated(lambda v: seen + bends @ (v - w), w)

        if bends.shape[1] == facts.n_parameters:
            current = _settled(bounded, current, tolerance)
        else:
            current = accelerated(lambda v: share * sums(v), current)
        return current

    return solve


def _settled(step: Callable[[Array], Array], start: Array, tolerance: float) -> Array:
    """Repeat a contraction until it moves nothing, or rounding is all that moves."""
    before, moved = start, math.inf
    for _ in range(1000):
        after = step(before)
        last, moved = moved, float(np.abs(after - before).max())
        before = after
        if moved <= tolerance * _size(after) or (moved >= last and moved <= 1e-12 * _size(after)):
            break
    return before


def _curvature_bounds(facts: Facts, problem: Problem) -> Array:
    """Bounds of the Hessians of ``F_a``: weighted second moments, or their traces."""
    ownership, rows = problem.ownership, problem.rows
    assert ownership is not None
    n_agents, d = ownership.n_agents, facts.n_parameters
    scale = n_agents / facts.n_samples * facts.loss.smoothness
    if n_agents * d**2 > LARGEST_MOMENTS:
        traces = np.bincount(ownership.index, rows.squared_norm, minlength=n_agents)
        return np.asarray(scale * traces[:, None, None])
    moments = np.zeros((n_agents, d, d))
    for block, own in enumerate(rows.slices):
        seen, owner = rows.seen(block), ownership.index[own]
        for agent in np.unique(owner).tolist():
            part = seen[owner == agent]
            moments[agent] += part.T @ part
    return scale * moments


def _mean_curvature(bends: Array, facts: Facts) -> float:
    """Mean eigenvalue of the bounds."""
    mean = float(np.trace(bends, axis1=1, axis2=2).mean())
    return max(mean / facts.n_parameters, 1e-12)


def _size(models: Array) -> float:
    return max(1.0, float(np.abs(models).max()))
