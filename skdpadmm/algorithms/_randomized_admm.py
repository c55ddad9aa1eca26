"""Consensus ADMM whose agents mix what they heard with secret random weights.

Source: Xiao, "Local Differential Privacy in Decentralized Optimization", MIT 2019, Algorithm 1 and
equations (2.2) and (3.1), corrected: the dual variable descends (its sign is misprinted, and
diverges), and noise goes by a norm of the vector, not by its dimension times the largest entry.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from skdpadmm.algorithms._agent_minimisers import (
    AgentMinimisersSettings,
    agent_minimisers,
    least_open_clip,
    minimiser_settings,
)
from skdpadmm.algorithms._aggregator_defaults import (
    check_noise_decay,
    decay_weights,
    default_aggregator_steps,
    law_factor,
    smoothness_of_agents,
)
from skdpadmm.algorithms._algorithm import penalty_operator
from skdpadmm.algorithms._knobs import (
    check_choice,
    check_range,
    check_steps,
    check_tail_fraction,
    tail_length,
)
from skdpadmm.algorithms._messages import unit_limits
from skdpadmm.algorithms._neighbor_consensus import NeighborConsensus
from skdpadmm.algorithms._network_steps import network_solution, proximal_steps
from skdpadmm.algorithms._random_aggregators import (
    Turns,
    clipped,
    gradient_turns,
    neighbors_box,
    noise_of_mean,
)
from skdpadmm.algorithms._turn_noise import agent_turns
from skdpadmm.network import Topology
from skdpadmm.protocol import Budget, Facts, Gate, Plan, Problem, Release, Solution, network_of

Array = NDArray[np.float64]
GRADIENTS, DISPLACEMENTS = "gradients of agents", "displacements of agents"
# Bound of a gradient where nothing is private and the inner solution needs one.
OPEN_CLIP = 100.0


@dataclass(frozen=True, kw_only=True)
class RandomizedADMMSettings:
    """Constants of one run, resolved; symbols of the paper in brackets.

    Attributes
    ----------
    n_rounds : int
        Broadcasts [K].
    curvature : tuple of float
        Of each agent's step [D_i].
    dual_step : float
        [zeta].
    clip_norm : float
        Bound of the Euclidean norm of a unit's gradient, in units of `Rows.clip_unit`; with
        Laplace noise of its L1 norm, at ``clip_norm * law_factor`` in these units. Exact
        steps clip the derivative of a record's loss, whatever the law.
    aggregator : {"random", "fixed"}
    noise_decay : float
        Noise of a round over that of the next one.
    n_averaged : int
        Length of the averaged tail of the path.
    tolerance : float
        Certified distance of an inner solution from the exact one, in units of the distance that
        one record can move that.
    minimisers : AgentMinimisersSettings or None
        None: a linearised step.
    """

    n_rounds: int
    curvature: tuple[float, ...]
    dual_step: float
    clip_norm: float
    aggregator: str
    noise_decay: float
    n_averaged: int
    tolerance: float
    minimisers: AgentMinimisersSettings | None


@dataclass(frozen=True, eq=False, kw_only=True)
class GivenCurvature(NeighborConsensus):
    """Consensus whose agents' quadratics are told, whatever their degrees.

    Attributes
    ----------
    given : ndarray of shape (n_agents,)
    """

    given: Array

    @cached_property
    def curvature(self) -> Array:
        """Of the quadratic of each agent."""
        return self.given


class RandomizedADMM(BaseEstimator):
    r"""ADMM over a graph, in which nobody knows how an agent mixed what it heard.

    Solves :math:`\min_w \frac1n \sum_i f_i(w) + r(w)` over the records of all A agents. Agent a
    holds :math:`F_a = \frac A n \sum_{i \in a} f_i`, a model :math:`w_a` and a dual variable
    :math:`\lambda_a`, both 0 at first. In each round it draws secret weights
    :math:`\rho \sim U(0, 1)`, one for each entry, and broadcasts

    .. math::

        v_a &= \rho \odot w_a + (1 - \rho) \odot \frac1{|N_a|} \sum_{b \in N_a} w_b
             + \frac{\lambda_a - \nabla F_a(w_a)}{D_a} + \text{noise},

    where gradients of records are clipped to norm C. Everybody takes the proximal step
    :math:`w_a \leftarrow \mathrm{prox}_{r / D_a}(v_a)` and keeps the duals,

    .. math:: \lambda_a \leftarrow \lambda_a - \zeta \sum_{b \in N_a} (w_a - w_b).

    Random weights :math:`\rho` are random penalties of ADMM, with the same fixed point. An agent's
    answer is the average of its models over the last rounds, the common answer the average over
    agents.

    Parameters
    ----------
    aggregator : {"random", "fixed"}, default="random"
        Weights drawn anew, or :math:`\rho = \frac12`.
    local_step : {"linearized", "exact"}, default="linearized"
        "exact": :math:`w_a = \arg\min_w F_a(w) + r(w) + \frac{D_a}2 \|w - m_a\|^2 -
        \langle \lambda_a, w \rangle` plus noise, where :math:`m_a` is the mix: the paper's (3.1).
        The derivative of the loss is then clipped as a number, and C must not bind where there are
        several scores.
    curvature : float or "auto", default="auto"
        :math:`D_a`, the inverse of a step, in [1e-100, 1e100]: the larger, the less noise is in
        models. "auto" is one over the step of the common rule, and no less than the public bound
        of the curvature of :math:`F_a`.
    dual_step : float or "auto", default="auto"
        :math:`\zeta`, in [1e-100, 1e100]. "auto": a third of the smallest :math:`D_a` over the
        largest number of neighbours.
    clip_norm : float or "auto", default="auto"
        Bound C of the Euclidean norm of a record's gradient, in units of the typical norm of a row;
        for Laplace noise of the L1 norm, in units of that times the root of the number of
        parameters. In [1e-100, 1e100].
    noise : {"laplace", "gaussian"}, default="laplace"
        Law of the noise. Laplace noise goes by the L1 norm, in which records are then clipped.
    noise_decay : float, default=1.0
        Noise of a round over that of the next one, in [0.5, 2]: 1.02 is the paper's.
    tail_fraction : float, default=0.5
        In (0, 1]: share of all rounds, at their end, that is averaged. Free: all count as released.
    tolerance : float, default=0.01
        In [1e-6, 1]: how far an exact step may be from the minimiser, in units of the distance that
        one record can move that. Twice as much is added to the sensitivity.

    Notes
    -----
    **Guarantee.** Observers "eavesdropper" (sees every message), "peer" and "model": one figure for
    all three. Unit: one record, or all records of an agent, whose gradient is then clipped as a
    whole. Let c = 2 for replace-one and 1 for zero-out. The weights :math:`\rho` depend on nothing
    private and are drawn afresh. Given them and what was said before, a broadcast is a public
    function of the noisy gradient, which a record moves by at most :math:`c\,C A / n`: in the L1
    norm for Laplace noise, in the Euclidean one for Gaussian noise. So the rounds are
    :class:`~skdpadmm.privacy.LaplaceDP` with :math:`\epsilon_k = c\,C A / (n s_k)`, or
    GDP with :math:`\mu^2 = \sum_k (c\,C A / (n s_k))^2`, whatever the mix: what random weights hide
    beyond that is not counted, and "fixed" ones have the same figure. The exact minimiser moves by
    at most :math:`c\,C A / (n D_a)` in the Euclidean norm, :math:`\sqrt d` times that in the L1
    norm, and a computed one by a factor ``1 + 2 tolerance`` more. Other agents need not be honest.

    **No guarantee.** The estimator's ``expected_privacy_loss_`` is, for Laplace noise and
    linearised steps, each agent's sum over rounds and entries of what the absolute privacy loss is
    expected to be at most where a record moves all entries alike, given the intervals that its
    mixes came from: by :func:`~skdpadmm.privacy.expected_privacy_loss_factor_ceiling`. It is a
    function of the path that was released, and says nothing at any level of confidence.

    The mix is added to what has noise already, which has the same law and rounds nothing that the
    noise is calibrated for.

    References
    ----------
    .. [1] H. Xiao, "Local Differential Privacy in Decentralized Optimization", SM thesis, MIT,
       2019, Algorithm 1, corrected as said above.

    Examples
    --------
    >>> from skdpadmm import DPDecentralizedRegressor
    >>> model = DPDecentralizedRegressor(algorithm="randomized-admm", topology="ring", max_iter=50)
    >>> plan = model.plan(n_samples=10_000, n_features=5)
    >>> plan.releases[-1].name, plan.releases[-1].times, plan.releases[-1].law
    ('gradients of agents', 50, 'laplace')
    """

    conditionable = False
    setting = "decentralized"
    exact = False

    def __init__(
        self,
        *,
        aggregator: Literal["random", "fixed"] = "random",
        local_step: Literal["linearized", "exact"] = "linearized",
        curvature: float | Literal["auto"] = "auto",
        dual_step: float | Literal["auto"] = "auto",
        clip_norm: float | Literal["auto"] = "auto",
        noise: Literal["laplace", "gaussian"] = "laplace",
        noise_decay: float = 1.0,
        tail_fraction: float = 0.5,
        tolerance: float = 0.01,
    ) -> None:
        self.aggregator = aggregator
        self.local_step = local_step
        self.curvature = curvature
        self.dual_step = dual_step
        self.clip_norm = clip_norm
        self.noise = noise
        self.noise_decay = noise_decay
        self.tail_fraction = tail_fraction
        self.tolerance = tolerance

    def check(self, facts: Facts) -> None:
        """Refuse knobs outside of their range, whatever the budget.

        Raises
        ------
        ValueError
            Says what was expected.
        """
        check_choice("aggregator", self.aggregator, ("random", "fixed"))
        check_choice("local_step", self.local_step, ("linearized", "exact"))
        check_choice("noise", self.noise, ("laplace", "gaussian"))
        check_range("curvature", self.curvature, 1e-100, 1e100)
        check_range("dual_step", self.dual_step, 1e-100, 1e100)
        check_steps("auto", self.clip_norm)
        check_noise_decay(self.noise_decay, facts.max_iter)
        check_tail_fraction(self.tail_fraction)
        check_range("tolerance", self.tolerance, 1e-6, 1.0, auto=False)

    def plan(self, facts: Facts, budget: Budget) -> Plan:
        """Decide steps and each agent's noise from public facts.

        Parameters
        ----------
        facts : Facts
            Of a network.
        budget : Budget
            Without privacy there is no noise, and linearised steps clip nothing unless `clip_norm`
            says so.

        Returns
        -------
        Plan

        Raises
        ------
        ValueError
            Where a knob is outside its range, or outside the range of its theorem.
        """
        self.check(facts)
        turns = agent_turns(
            facts,
            budget,
            name=GRADIENTS if self.local_step == "linearized" else DISPLACEMENTS,
            weights=decay_weights(self.noise_decay, facts.max_iter),
            law=self.noise,
        )
        return Plan(
            algorithm="RandomizedADMM",
            facts=facts,
            budget=budget,
            settings=self._settings(facts, turns),
            releases=(*facts.preparations, turns),
        )

    def run(self, plan: Plan, problem: Problem, gate: Gate) -> Solution:
        """Run the rounds as planned; every number in the solution has passed the gate.

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
        settings: RandomizedADMMSettings = plan.settings
        network = network_of(facts)
        topology, everybody = network.topology, np.arange(network.n_agents)
        (release,) = (r for r in plan.releases if r.door == "take_turns")
        clip_norm = settings.clip_norm * rows.clip_unit
        curvature = np.asarray(settings.curvature)
        column = curvature[:, None, None]
        weights = decay_weights(settings.noise_decay, settings.n_rounds)
        proximal, linearised = proximal_steps(facts, rows), settings.minimisers is None
        sparse = facts.penalty.is_sparse and linearised
        step_size = float(np.mean(1 / curvature))
        if linearised:
            turns, gradient = gradient_turns(
                plan, problem, gate, name=GRADIENTS, clip_norm=clip_norm, weights=weights
            )
        else:
            minimise = _exact_steps(plan, problem, gate, clip_norm=clip_norm, weights=weights)
        models = duals = np.zeros((network.n_agents, facts.n_parameters, facts.loss.n_outputs))
        tail = np.zeros(models.shape)
        for k in range(settings.n_rounds):
            box = neighbors_box(topology, models)
            random = settings.aggregator == "random"
            mix = box.draw(gate.uniform) if random else box.center
            if linearised:
                points = mix + (duals - gradient(everybody, models)) / column
                turns.count_losses(everybody, box.widths * random, 1 / curvature)
                models = proximal(points, curvature)
            else:
                points = models = minimise(column * mix + duals)
            duals = duals - settings.dual_step * disagreement(topology, models)
            if k >= settings.n_rounds - settings.n_averaged:
                # An average of sparse models is not sparse. One more step from an average of points
                # is, where all of them are brought to its length.
                tail += models + column * step_size * (points - models) if sparse else models
            problem.progress(k + 1)
        noise = noise_of_mean(plan, release, weights[-settings.n_averaged :])
        if not linearised:
            noise *= _widened(facts, settings, release.law) / law_factor(facts, release.law)
        solution = network_solution(
            plan,
            rows,
            tail / settings.n_averaged,
            last_step=penalty_operator(facts.penalty, step_size, rows) if sparse else None,
            noise_std=0.0 if release.noise_std == 0 else clip_norm * noise,
            step_size=step_size,
            n_iter=settings.n_rounds,
            n_averaged=settings.n_averaged,
            n_rounds=settings.n_rounds,
            derivative_bound=clip_norm / rows.typical_norm,
        )
        expected = turns.expected_loss if linearised else None
        return replace(solution, expected_privacy_loss=expected)

    def _settings(self, facts: Facts, turns: Release) -> RandomizedADMMSettings:
        network = network_of(facts)
        step_size, clip_norm = default_aggregator_steps(facts, turns)
        exact = self.local_step == "exact"
        several = exact and facts.loss.n_outputs > 1 and facts.unit == "record"
        if several:
            clip_norm = least_open_clip(facts)
        elif exact and math.isinf(clip_norm):
            clip_norm = OPEN_CLIP
        if self.clip_norm != "auto":
            clip_norm = float(self.clip_norm)
        if several and clip_norm < least_open_clip(facts):
            raise ValueError(
                f"Got clip_norm={clip_norm:g} for {facts.loss.n_outputs} scores, expected at least"
                f" {least_open_clip(facts):.6g}, which never binds: a loss whose vector of"
                " derivatives is clipped has no minimiser. Use 'auto', or"
                " local_step='linearized'."
            )
        curvature = np.full(network.n_agents, 1.0 / step_size)
        if self.curvature != "auto":
            curvature = np.full(network.n_agents, float(self.curvature))
        elif not exact:
            curvature = np.maximum(curvature, smoothness_of_agents(facts))
        dual_step = float(curvature.min()) / (3.0 * max(int(network.topology.degrees.max()), 1))
        settings = RandomizedADMMSettings(
            n_rounds=facts.max_iter,
            curvature=tuple(curvature.tolist()),
            dual_step=dual_step if self.dual_step == "auto" else float(self.dual_step),
            clip_norm=clip_norm,
            aggregator=self.aggregator,
            noise_decay=float(self.noise_decay),
            n_averaged=tail_length(self.tail_fraction, facts.max_iter),
            tolerance=float(self.tolerance),
            minimisers=None,
        )
        if not exact:
            return settings
        weights = decay_weights(self.noise_decay, facts.max_iter)
        n_entries = facts.n_parameters * facts.loss.n_outputs
        largest = turns.noise_std * _widened(facts, settings, self.noise) / float(weights.min())
        minimisers = minimiser_settings(
            facts,
            _quadratics(network.topology, curvature),
            n_rounds=facts.max_iter,
            clip_norm=clip_norm,
            tolerance=float(self.tolerance) * facts.neighboring.sensitivity_factor,
            # Tails of Laplace noise are heavier.
            noise=16.0 * largest * float(unit_limits(facts).max()) * math.sqrt(n_entries),
            advice=f"Got curvature={curvature.min():g} and tolerance={self.tolerance:g}, expected a"
            " larger curvature or tolerance",
        )
        return replace(settings, minimisers=minimisers)


def disagreement(topology: Topology, models: Array) -> Array:
    """``sum_{b in N_a} (w_a - w_b)`` of each agent; over all agents it sums to zero."""
    degrees = topology.degrees.reshape(-1, *(1,) * (models.ndim - 1))
    return np.asarray(degrees * models - topology.neighbor_sum(models))


def _quadratics(topology: Topology, curvature: Array) -> GivenCurvature:
    return GivenCurvature(topology=topology, penalty_weight=1.0, given=curvature)


def _widened(facts: Facts, settings: RandomizedADMMSettings, law: str) -> float:
    """How far the computed minimiser moves in the norm of the noise, over the exact one's bound."""
    if facts.unit == "agent":
        return law_factor(facts, law)
    return (1.0 + 2.0 * settings.tolerance) * law_factor(facts, law)


def _exact_steps(
    plan: Plan, problem: Problem, gate: Gate, *, clip_norm: float, weights: Array
) -> Callable[[Array], Array]:
    """Noisy minimisers of agents' problems, for public linear terms of them."""
    facts, settings = plan.facts, plan.settings
    network = network_of(facts)
    of_records = facts.unit == "record"
    (release,) = (r for r in plan.releases if r.door == "take_turns")
    units, solve = agent_minimisers(
        facts,
        problem,
        _quadratics(network.topology, np.asarray(settings.curvature)),
        settings.minimisers,
        clip_norm=clip_norm,
        of_records=of_records,
    )
    limits = unit_limits(facts)[network.kind] * _widened(facts, settings, release.law)
    turns = Turns(plan, gate, name=DISPLACEMENTS, weights=weights, units=limits)
    everybody = np.arange(network.n_agents)

    def step(linear: Array) -> Array:
        without, minimisers = solve(linear, np.zeros(linear.shape))
        moved = minimisers - without
        if not of_records:
            moved = clipped(moved, limits, release.law)
        return np.asarray(units * (without + turns(everybody, moved)))

    return step
