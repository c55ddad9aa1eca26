"""Stochastic gradient descent over agents, each of whom speaks once and mixes at random.

Source: Xiao, "Local Differential Privacy in Decentralized Optimization", MIT 2019, Algorithm 2,
with sensitivity and noise in the units of one and the same scaling of the objective.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from skdpadmm.algorithms._aggregator_defaults import (
    default_aggregator_steps,
    default_rounds,
    single_pass_step,
)
from skdpadmm.algorithms._algorithm import penalty_operator
from skdpadmm.algorithms._knobs import (
    check_choice,
    check_count,
    check_seed,
    check_steps,
    check_tail_fraction,
    tail_length,
)
from skdpadmm.algorithms._network_steps import noisy_solution, proximal_steps
from skdpadmm.algorithms._noise_left import parameter_variance
from skdpadmm.algorithms._random_aggregators import (
    between,
    gradient_turns,
    noise_of_mean,
)
from skdpadmm.algorithms._turn_noise import agent_turns
from skdpadmm.protocol import Budget, Facts, Gate, Plan, Problem, Solution, network_of

Array = NDArray[np.float64]
GRADIENTS = "gradients of agents"


@dataclass(frozen=True, kw_only=True)
class RandomizedSGDSettings:
    """Constants of one run, resolved; symbols of the paper in brackets.

    Attributes
    ----------
    n_rounds : int
        Pairs of groups [K].
    step_size : float
        Of the first step; that of round k is this over the root of k [1 / c].
    clip_norm : float
        Bound of the Euclidean norm of a unit's gradient, in units of `Rows.clip_unit`; with
        Laplace noise of its L1 norm, at ``clip_norm * law_factor`` in these units.
    order_seed : int
    n_averaged : int
        Length of the averaged tail of the path.
    """

    n_rounds: int
    step_size: float
    clip_norm: float
    order_seed: int
    n_averaged: int


class RandomizedSGD(BaseEstimator):
    r"""Each agent takes part once, and mixes two models with secret random weights.

    Solves :math:`\min_w \frac1n \sum_i f_i(w) + r(w)` over the records of all A agents. Agent a
    holds :math:`F_a = \frac A n \sum_{i \in a} f_i`. Agents are split at random, in public, into
    2K groups. In round k all agents a of the next two groups broadcast

    .. math:: v_a = \rho \odot y_1 + (1 - \rho) \odot y_2
              - \eta_k \nabla F_a\Big(\frac{y_1 + y_2}2\Big) + \text{noise},
              \qquad \eta_k = \frac{\eta_1}{\sqrt k},

    with secret weights :math:`\rho \sim U(0, 1)` for each entry and gradients of records clipped to
    norm C. Then :math:`y_1` and :math:`y_2` become the means of the two groups, after a proximal
    step; both are 0 at first. The answer is the average of the midpoints
    :math:`\frac12 (y_1 + y_2)` over the last rounds, the same for all agents.

    It is made for many agents: with few of them there are few steps. How many is up to `rounds`
    and the number of agents; the estimator's `max_iter` plays no part.

    Parameters
    ----------
    rounds : int or "auto", default="auto"
        K, at least 1 and at most half of the number of agents. "auto": fewer where noise in a round
        would be larger than gradients.
    step_size : float or "auto", default="auto"
        :math:`\eta_1`, in public coordinates; in [1e-100, 1e100].
    clip_norm : float or "auto", default="auto"
        Bound C of the Euclidean norm of a record's gradient, in units of the typical norm of a row;
        for Laplace noise of the L1 norm, in units of that times the root of the number of
        parameters. In [1e-100, 1e100].
    noise : {"laplace", "gaussian"}, default="laplace"
        Law of the noise. Laplace noise goes by the L1 norm, in which records are then clipped.
    order_seed : int, default=0
        Public seed of the groups; no part of the privacy.
    tail_fraction : float, default=0.5
        In (0, 1]: share of all rounds, at their end, that is averaged; 1 is the paper's. Free: all
        agents count as heard.

    Notes
    -----
    **Guarantee.** Observers "eavesdropper" (sees every message), "peer" and "model": one figure for
    all three. Unit: one record, or all records of an agent, whose gradient is then clipped as a
    whole. An agent speaks once, so its whole budget goes into one broadcast. Let c = 2 for
    replace-one and 1 for zero-out. The weights :math:`\rho` depend on nothing private and are drawn
    afresh. Given them and what was said before, a broadcast is a public function of the noisy
    gradient, which a record moves by at most :math:`c\,C A / n`: in the L1 norm for Laplace noise,
    in the Euclidean one for Gaussian noise. So with noise s it is
    :class:`~skdpadmm.privacy.LaplaceDP` with :math:`\epsilon = c\,C A / (n s)`, or GDP with
    :math:`\mu = c\,C A / (n s)`, whatever the mix. Who is in which group is public, and amplifies
    nothing. It needs neither convexity nor honest neighbours.

    **No guarantee.** The estimator's ``expected_privacy_loss_`` is, for Laplace noise, the sum over
    entries of what each agent's absolute privacy loss is expected to be at most where a record
    moves all entries alike, given the interval that its mix came from: by
    :func:`~skdpadmm.privacy.expected_privacy_loss_factor_ceiling`. It is a function of the path
    that was released, and says nothing at any level of confidence.

    Broadcasts are passed on along all edges of the graph, which is all that it is for.

    References
    ----------
    .. [1] H. Xiao, "Local Differential Privacy in Decentralized Optimization", SM thesis, MIT,
       2019, Algorithm 2 and Theorem 3.2.1.

    Examples
    --------
    >>> from skdpadmm import DPDecentralizedRegressor
    >>> model = DPDecentralizedRegressor(algorithm="randomized-sgd", n_agents=100)
    >>> plan = model.plan(n_samples=10_000, n_features=5)
    >>> plan.settings.n_rounds, plan.releases[-1].times
    (50, 1)
    """

    conditionable = False
    setting = "decentralized"
    exact = False

    def __init__(
        self,
        *,
        rounds: int | Literal["auto"] = "auto",
        step_size: float | Literal["auto"] = "auto",
        clip_norm: float | Literal["auto"] = "auto",
        noise: Literal["laplace", "gaussian"] = "laplace",
        order_seed: int = 0,
        tail_fraction: float = 0.5,
    ) -> None:
        self.rounds = rounds
        self.step_size = step_size
        self.clip_norm = clip_norm
        self.noise = noise
        self.order_seed = order_seed
        self.tail_fraction = tail_fraction

    def check(self, facts: Facts) -> None:
        """Refuse knobs outside of their range, whatever the budget.

        Raises
        ------
        ValueError
            Says what was expected.
        """
        if self.rounds != "auto":
            check_count("rounds", self.rounds)
        check_choice("noise", self.noise, ("laplace", "gaussian"))
        check_steps(self.step_size, self.clip_norm)
        check_seed("order_seed", self.order_seed)
        check_tail_fraction(self.tail_fraction)
        n_agents = network_of(facts).n_agents
        held = f"n_agents={n_agents} that hold n_samples={facts.n_samples} rows"
        if n_agents < 2:
            raise ValueError(
                f"Got {held}, expected at least 2 agents: a round takes two groups of them."
            )
        if self.rounds != "auto" and int(self.rounds) > n_agents // 2:
            raise ValueError(
                f"Got rounds={self.rounds} for {held}, expected at most {n_agents // 2}: a round"
                " takes two groups of agents, and each agent takes part once."
            )

    def plan(self, facts: Facts, budget: Budget) -> Plan:
        """Decide rounds, steps and each agent's noise from public facts.

        Parameters
        ----------
        facts : Facts
            Of a network of at least two agents.
        budget : Budget
            Without privacy there is no noise, and nothing is clipped unless `clip_norm` says so.

        Returns
        -------
        Plan

        Raises
        ------
        ValueError
            Where a knob is outside its range.
        """
        self.check(facts)
        turns = agent_turns(facts, budget, name=GRADIENTS, weights=np.ones(1), law=self.noise)
        n_rounds = default_rounds(facts, turns) if self.rounds == "auto" else int(self.rounds)
        whole, clip_norm = default_aggregator_steps(facts, turns, longest=math.inf)
        step_size = single_pass_step(facts, whole, n_rounds)
        settings = RandomizedSGDSettings(
            n_rounds=n_rounds,
            step_size=step_size if self.step_size == "auto" else float(self.step_size),
            clip_norm=clip_norm if self.clip_norm == "auto" else float(self.clip_norm),
            order_seed=int(self.order_seed),
            n_averaged=tail_length(self.tail_fraction, n_rounds),
        )
        return Plan(
            algorithm="RandomizedSGD",
            facts=facts,
            budget=budget,
            settings=settings,
            releases=(*facts.preparations, turns),
        )

    def run(self, plan: Plan, problem: Problem, gate: Gate) -> Solution:
        """Let all agents speak as planned; every number in the solution has passed the gate.

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
        facts, rows = plan.facts, problem.rows
        settings: RandomizedSGDSettings = plan.settings
        network, n_rounds = network_of(facts), settings.n_rounds
        (release,) = (r for r in plan.releases if r.door == "take_turns")
        clip_norm = settings.clip_norm * rows.clip_unit
        turns, gradient = gradient_turns(
            plan, problem, gate, name=GRADIENTS, clip_norm=clip_norm, weights=np.ones(1)
        )
        proximal, sparse = proximal_steps(facts, rows), facts.penalty.is_sparse
        groups = groups_of_agents(network.n_agents, n_rounds, settings.order_seed)
        steps = settings.step_size / np.sqrt(np.arange(n_rounds) + 1.0)
        step_size = float(steps[n_rounds - settings.n_averaged :].mean())
        heard = np.zeros((2, facts.n_parameters, facts.loss.n_outputs))
        tail = np.zeros(heard.shape[1:])
        for k, step in enumerate(steps.tolist()):
            who = np.concatenate(groups[2 * k : 2 * k + 2])
            shape = (len(who), *heard.shape[1:])
            box = between(np.broadcast_to(heard[0], shape), np.broadcast_to(heard[1], shape))
            said = box.draw(gate.uniform) - step * gradient(who, box.center)
            turns.count_losses(who, box.widths, step)
            half = len(groups[2 * k])
            points = np.stack([said[:half].mean(axis=0), said[half:].mean(axis=0)])
            heard = proximal(points, np.full(2, 1 / step))
            if k >= n_rounds - settings.n_averaged:
                # An average of sparse models is not sparse. One more step from an average of points
                # is, where all of them are brought to its length.
                longer = heard + step_size / step * (points - heard) if sparse else heard
                tail += longer.mean(axis=0)
            problem.progress(k + 1)
        point = tail / settings.n_averaged
        finish = penalty_operator(facts.penalty, step_size, rows) if sparse else rows.to_coordinates
        noise = 0.0
        if release.noise_std > 0:
            # A round hears one agent in so many.
            noise = clip_norm * noise_of_mean(plan, release, np.ones(1)) * math.sqrt(n_rounds)
        variance = parameter_variance(
            rows=rows,
            smoothness=facts.loss.smoothness,
            step_size=step_size,
            noise_std=noise,
            n_iter=n_rounds,
            n_averaged=settings.n_averaged,
        )
        solution = noisy_solution(
            facts,
            rows,
            finish(point),
            variance,
            has_zeros=sparse,
            parameters_per_agent=None,
            n_iter=n_rounds,
            n_rounds=n_rounds,
            n_messages=2 * network.n_agents * network.topology.n_edges,
            derivative_bound=clip_norm / rows.typical_norm,
        )
        return replace(solution, expected_privacy_loss=turns.expected_loss)


def groups_of_agents(n_agents: int, n_rounds: int, seed: int) -> list[NDArray[np.intp]]:
    """Split agents at random into two groups for each round, whose sizes differ by at most one.

    Parameters
    ----------
    n_agents : int
        At least ``2 * n_rounds``.
    n_rounds : int
    seed : int
        Public.

    Returns
    -------
    list of ndarray of intp
        Sorted.
    """
    order = np.random.Generator(np.random.Philox(seed)).permutation(n_agents)
    cuts = np.arange(2 * n_rounds + 1) * n_agents // (2 * n_rounds)
    return [np.sort(order[low:high]).astype(np.intp) for low, high in pairwise(cuts.tolist())]
