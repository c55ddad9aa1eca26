"""Purely local models: every agent descends on its own rows, whoever it is like.

The baseline that personalised models are compared with, under the same accountant.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from sklearn.base import BaseEstimator

from skdpadmm.algorithms._agent_turns import NoisyTurns
from skdpadmm.algorithms._knobs import check_choice, check_count, check_range
from skdpadmm.algorithms._personalized_defaults import (
    default_clip_norm,
    default_turns,
    noise_of_agents,
    pace_of_agents,
    typical_curvature,
)
from skdpadmm.algorithms._personalized_optimum import optimal_models, optimal_plan
from skdpadmm.algorithms._turn_noise import agent_turns, turn_weights
from skdpadmm.algorithms._wake_ups import (
    absolute_clip,
    check_squared_penalty,
    penalty_curvature,
)
from skdpadmm.privacy import split_budget
from skdpadmm.protocol import Budget, Facts, Gate, Plan, Problem, Solution, neighborhood_of

GRADIENTS = "gradients of agents, in turns"


@dataclass(frozen=True, kw_only=True)
class LocalModelsSettings:
    """Constants of one run, resolved.

    Attributes
    ----------
    n_turns : int
    step_size : float
    is_tempered : bool
        Whether steps of noisy agents are shorter.
    clip_norm : float
        See `PersonalizedCoordinateDescentSettings`.
    noise : {"gaussian", "laplace"}
    """

    n_turns: int
    step_size: float
    is_tempered: bool
    clip_norm: float
    noise: str


class LocalModels(BaseEstimator):
    r"""Each agent learns from its own rows alone: similarities are ignored.

    Noisy gradient descent on :math:`L_i`, of as many steps for each agent, all at once:

    .. math:: \Theta_i \leftarrow \Theta_i - \eta \tilde\nabla L_i(\Theta_i),

    with the clip and the noise of :class:`PersonalizedCoordinateDescent`. Models are not sent, but
    they count as public. Agents without rows stay at zero. At ``epsilon=inf`` each loss is
    minimised exactly.

    Parameters
    ----------
    turns : int or "auto", default="auto"
        Steps. "auto": as in :class:`PersonalizedCoordinateDescent`, where nobody is noisy.
    noise : {"gaussian", "laplace"}, default="gaussian"
        Law of the noise. Laplace noise goes by the L1 norm, in which records are then clipped.
    clip_norm : float or "auto", default="auto"
        As in :class:`PersonalizedCoordinateDescent`.

    Notes
    -----
    **Guarantee.** That of :class:`PersonalizedCoordinateDescent` with as many turns. One step is
    one over the curvature that a loss typically has along one parameter, a public figure; of
    several each is at most one over its bound, and shorter where noise would take models too far.

    Examples
    --------
    >>> from skdpadmm import DPPersonalizedRegressor
    >>> model = DPPersonalizedRegressor(algorithm="local-models")
    >>> model.plan(n_samples=1000, n_features=5).algorithm
    'LocalModels'
    """

    conditionable = False
    setting = "personalized"
    # Serves every budget: without privacy it minimises each agent's loss.
    exact = True

    def __init__(
        self,
        *,
        turns: int | Literal["auto"] = "auto",
        noise: Literal["gaussian", "laplace"] = "gaussian",
        clip_norm: float | Literal["auto"] = "auto",
    ) -> None:
        self.turns = turns
        self.noise = noise
        self.clip_norm = clip_norm

    def check(self, facts: Facts) -> None:
        """Refuse knobs outside of their range, whatever the budget.

        Raises
        ------
        ValueError
            Says what was expected.
        """
        if self.turns != "auto":
            check_count("turns", self.turns)
        check_choice("noise", self.noise, ("gaussian", "laplace"))
        check_range("clip_norm", self.clip_norm, 1e-100, 1e100)
        check_squared_penalty(facts.penalty)

    def plan(self, facts: Facts, budget: Budget) -> Plan:
        """Decide steps and each agent's noise from public facts.

        Parameters
        ----------
        facts : Facts
            Of a neighbourhood.
        budget : Budget

        Returns
        -------
        Plan

        Raises
        ------
        ValueError
            Where a knob is outside its range.
        """
        self.check(facts)
        if not budget.is_private:
            return optimal_plan("LocalModels", facts, budget, 1e-10)
        chosen = self.turns == "auto"
        n_turns = default_turns(facts, budget, self.noise) if chosen else int(self.turns)
        weights = turn_weights(split_budget("equal", n_turns), self.noise)
        assert facts.coordinates is not None
        penalty = float(penalty_curvature(facts.penalty, facts.coordinates).max())
        curvature = typical_curvature(facts)
        if n_turns > 1:
            curvature = facts.loss.smoothness * facts.row_norm**2
        automatic = self.clip_norm == "auto"
        settings = LocalModelsSettings(
            n_turns=n_turns,
            step_size=1.0 / (curvature + penalty),
            is_tempered=n_turns > 1,
            clip_norm=default_clip_norm(facts) if automatic else float(self.clip_norm),
            noise=self.noise,
        )
        turns = agent_turns(facts, budget, name=GRADIENTS, weights=weights, law=self.noise)
        return Plan(
            algorithm="LocalModels",
            facts=facts,
            budget=budget,
            settings=settings,
            releases=(*facts.preparations, turns),
        )

    def run(self, plan: Plan, problem: Problem, gate: Gate) -> Solution:
        """Descend as planned; every number in the solution has passed the gate.

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
        if not plan.budget.is_private:
            return optimal_models(plan, problem, gate, coupled=False)
        clip_norm = absolute_clip(settings.clip_norm, facts, problem.rows.clip_unit, settings.noise)
        gradient = NoisyTurns(
            plan,
            problem,
            gate,
            name=GRADIENTS,
            clip_norm=clip_norm,
            weights=np.ones(settings.n_turns),
        )
        curvature = penalty_curvature(facts.penalty, problem.rows.coordinates)
        n_agents = neighborhood_of(facts).n_agents
        models = np.zeros((n_agents, facts.n_parameters, facts.loss.n_outputs))
        who = np.flatnonzero(gradient.has_rows)
        step = np.full(n_agents, settings.step_size)
        if settings.is_tempered:
            (release,) = (r for r in plan.releases if r.door == "take_turns")
            noise = noise_of_agents(facts, release, clip_norm=clip_norm, weight=1.0)
            step = pace_of_agents(
                facts,
                None,
                pull=np.ones(n_agents),
                smoothness=1.0 / settings.step_size,
                noise=noise / math.sqrt(settings.n_turns),
                n_turns=settings.n_turns,
            ).step
        for k in range(settings.n_turns):
            own = models[who]
            models[who] = own - step[who, None, None] * (gradient(who, own) + curvature * own)
            problem.progress(k + 1)
        return Solution(
            parameters=models.mean(axis=0),
            parameters_per_agent=models,
            n_iter=settings.n_turns,
        )
