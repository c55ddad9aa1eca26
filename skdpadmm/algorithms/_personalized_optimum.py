"""The limit without privacy: models of all agents that minimise the joint objective."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning

from skdpadmm.algorithms._agent_turns import neighbor_means
from skdpadmm.algorithms._joint_newton import JointObjective, joint_newton
from skdpadmm.algorithms._knobs import check_range
from skdpadmm.algorithms._wake_ups import (
    check_squared_penalty,
    penalty_curvature,
    weights_of_agents,
)
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

OPTIMUM = "optimum"


@dataclass(frozen=True, kw_only=True)
class PersonalizedOptimumSettings:
    """Constants of one run: bounds of the number of steps and of their size at the end."""

    max_iter: int
    tolerance: float


class PersonalizedOptimum(BaseEstimator):
    r"""Exact minimiser of the joint objective of personalised models, for epsilon = inf alone.

    .. math:: \min_\Theta \frac12 \sum_{i<j} W_{ij} \|\Theta_i - \Theta_j\|^2
              + \mu \sum_i D_i c_i L_i(\Theta_i), \qquad D_i = \sum_j W_{ij},

    by Newton's method for all models at once. Agents without rows have no loss; one agent alone
    has nothing but its loss. It stops by itself, and may take `max_iter` steps, or 100 where that
    is more: fewer would be another model.

    Parameters
    ----------
    tolerance : float, default=1e-10
        Size of the last step at which it stops, beside the larger of 1 and the parameters.

    Examples
    --------
    >>> from skdpadmm import DPPersonalizedRegressor
    >>> DPPersonalizedRegressor(epsilon=float("inf")).plan(n_samples=100, n_features=3).algorithm
    'PersonalizedOptimum'
    """

    conditionable = False
    setting = "personalized"
    exact = True

    def __init__(self, *, tolerance: float = 1e-10) -> None:
        self.tolerance = tolerance

    def check(self, facts: Facts) -> None:
        """Refuse knobs outside of their range, whatever the budget.

        Raises
        ------
        ValueError
            Says what was expected.
        """
        check_range("tolerance", self.tolerance, 0.0, 1.0, auto=False)
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
                f"Got epsilon={budget.epsilon:g} for PersonalizedOptimum, expected inf: it adds no"
                " noise. Use PersonalizedCoordinateDescent."
            )
        return optimal_plan("PersonalizedOptimum", facts, budget, self.tolerance)

    def run(self, plan: Plan, problem: Problem, gate: Gate) -> Solution:
        """Minimise until a step is small beside the parameters.

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
        return optimal_models(plan, problem, gate, coupled=True)


def optimal_plan(algorithm: str, facts: Facts, budget: Budget, tolerance: float) -> Plan:
    """Plan one release of all models, without noise."""
    shape = (neighborhood_of(facts).n_agents, facts.n_parameters, facts.loss.n_outputs)
    release = not_private(OPTIMUM, shape, facts.observers)
    return Plan(
        algorithm=algorithm,
        facts=facts,
        budget=budget,
        settings=PersonalizedOptimumSettings(
            max_iter=max(facts.max_iter, 100), tolerance=tolerance
        ),
        releases=(release,),
    )


def optimal_models(plan: Plan, problem: Problem, gate: Gate, *, coupled: bool) -> Solution:
    """Models that minimise the joint objective, or each its agent's own.

    Parameters
    ----------
    plan : Plan
        With one release and `PersonalizedOptimumSettings`.
    problem : Problem
    gate : Gate
    coupled : bool
        Whether similar agents pull at each other.

    Returns
    -------
    Solution
    """
    settings = plan.settings
    models, n_iter, converged = minimal_models(
        plan.facts,
        problem,
        coupled=coupled,
        tolerance=settings.tolerance,
        max_iter=settings.max_iter,
    )
    if not converged:
        # Nothing is private here, so the optimiser may speak.
        warnings.warn(
            f"Got no convergence in {n_iter} iterations at epsilon=inf, expected steps below"
            f" {settings.tolerance:g}. Increase max_iter or strengthen the penalty.",
            ConvergenceWarning,
            stacklevel=2,
        )
    released = gate.release(OPTIMUM, models)
    return Solution(parameters=released.mean(axis=0), parameters_per_agent=released, n_iter=n_iter)


def minimal_models(
    facts: Facts, problem: Problem, *, coupled: bool, tolerance: float, max_iter: int
) -> tuple[NDArray[np.float64], int, bool]:
    """Minimise the joint objective, or each agent's own, over records that need no more noise.

    Parameters
    ----------
    facts : Facts
        Of a neighbourhood.
    problem : Problem
        With an ownership.
    coupled : bool
        Whether similar agents pull at each other.
    tolerance : float
        Size of the last step, beside the larger of 1 and the parameters.
    max_iter : int

    Returns
    -------
    models : ndarray of shape (n_agents, n_parameters, n_outputs)
    n_iter : int
    converged : bool
    """
    agents, ownership = neighborhood_of(facts), problem.ownership
    assert ownership is not None
    similarity, n_agents = agents.similarity, agents.n_agents
    degrees = weights_of_agents(similarity)
    confidence = np.asarray(agents.confidence)
    is_coupled = coupled and n_agents > 1
    pull = agents.trade_off * degrees * confidence if is_coupled else np.ones(n_agents)

    def coupling(models: NDArray[np.float64]) -> NDArray[np.float64]:
        if not is_coupled:
            return np.zeros(models.shape)
        return degrees[:, None, None] * (models - neighbor_means(similarity, models))

    objective = JointObjective(
        rows=problem.rows,
        target=problem.target,
        ownership=ownership,
        loss=facts.loss,
        coupling=coupling,
        coupling_diagonal=degrees if is_coupled else np.zeros(n_agents),
        linear=None,
        weights=np.where(ownership.sizes > 0, pull, 0.0),
        curvature=penalty_curvature(facts.penalty, problem.rows.coordinates),
    )
    return joint_newton(
        objective,
        np.zeros((n_agents, facts.n_parameters, facts.loss.n_outputs)),
        tolerance=tolerance,
        max_iter=max_iter,
        progress=problem.progress,
    )
