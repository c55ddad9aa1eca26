"""Multi-step private ADMM over a graph: several noisy gradient steps between two broadcasts.

Source: Huang & Gong, "Differentially Private ADMM for Convex Distributed Learning: Improved
Accuracy via Multi-Step Approximation", Algorithm 1, corrected: the gradient enters with a minus
sign, a step uses one proximal weight in its update and in its noise, the projection follows the
noise, and the growing schedule counts all steps. The noise is calibrated exactly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from skdpadmm.algorithms._agent_messages import agent_messages
from skdpadmm.algorithms._algorithm import penalty_operator
from skdpadmm.algorithms._knobs import (
    check_batches,
    check_count,
    check_range,
    check_steps,
    check_tail_fraction,
    is_number,
    tail_length,
)
from skdpadmm.algorithms._messages import unit_limits
from skdpadmm.algorithms._neighbor_consensus import NeighborConsensus
from skdpadmm.algorithms._network_defaults import default_network_steps
from skdpadmm.algorithms._network_steps import (
    into_ball,
    network_solution,
    noisy_gradients,
    proximal_steps,
    summed_noise,
)
from skdpadmm.protocol import Budget, Facts, Gate, Plan, Problem, Release, Solution, network_of

GRADIENTS = "gradients of agents"


@dataclass(frozen=True, kw_only=True)
class MultiStepADMMSettings:
    """Constants of one run, resolved; symbols of the paper in brackets.

    Attributes
    ----------
    n_rounds : int
        Broadcasts [t].
    inner_steps : int
        Steps between two broadcasts [l].
    penalty_weight : float
        Of the consensus constraint [rho].
    step_size : float or None
        Of every agent and every step; None where `proximal_weight` says more [1/(2 rho deg + eta)].
    proximal_weight : float or "growing" or None
        The same for all agents [eta], or ``growth * sqrt(2 s)`` in step s.
    growth : float
        [G / D], in units of `Rows.clip_unit`.
    radius : float
        Of the ball that agents' models are projected onto [D / 2].
    clip_norm : float
        Bound of the norm of a unit's gradient, in units of `Rows.clip_unit` [c1].
    sampling : float
        Chance of each record to be in a step.
    n_averaged : int
        Length of the averaged tail of the path, in steps.
    """

    n_rounds: int
    inner_steps: int
    penalty_weight: float
    step_size: float | None
    proximal_weight: float | Literal["growing"] | None
    growth: float
    radius: float
    clip_norm: float
    sampling: float
    n_averaged: int

    def curvature(self, degrees: NDArray[np.intp], step: int) -> NDArray[np.float64]:
        """``2 rho deg + eta`` of each agent in a step, counted from 1, of shape (n_agents,)."""
        if self.step_size is not None:
            return np.full(len(degrees), 1.0 / self.step_size)
        weight = self.growth * math.sqrt(2 * step)
        if self.proximal_weight != "growing":
            assert self.proximal_weight is not None
            weight = self.proximal_weight
        return 2 * self.penalty_weight * degrees.astype(np.float64) + weight


class MultiStepADMM(BaseEstimator):
    r"""Consensus ADMM over a graph, each agent with several private gradient steps in a round.

    Solves :math:`\min_w \frac1n \sum_i f_i(w) + r(w)` over the records of all A agents. Agent a
    holds :math:`F_a = \frac A n \sum_{i \in a} f_i`, a dual variable :math:`\gamma_a` (0 at first)
    and a model :math:`w_a` (0 at first). In each of t rounds it takes l steps,

    .. math::

        v &= \frac{\eta w_a - \tilde g_a(w_a) + 2 \gamma_a
             + \rho \sum_{b \in N_a} (\bar w_a + \bar w_b)}{2 \rho |N_a| + \eta}, \qquad
        w_a \leftarrow \Pi_W \mathrm{prox}_{r / (2 \rho |N_a| + \eta)}(v)

    where :math:`\tilde g_a` is the gradient of :math:`F_a` with records clipped to norm C, plus
    noise. It broadcasts the average :math:`\bar w_a` of the round's models to its neighbours, and
    all update :math:`\gamma_a \leftarrow \gamma_a - \frac\rho2 \sum_{b \in N_a} (\bar w_a -
    \bar w_b)`, so that the duals sum to zero. An agent's answer is the average of its models over
    the last steps, the common answer the average over agents.

    Parameters
    ----------
    inner_steps : int, default=2
        Steps between two broadcasts (l), at least 1. More of them spend the budget faster than
        messages; 1 is linearised private ADMM.
    step_size : float or "auto", default="auto"
        Of every agent's step, :math:`1 / (2 \rho |N_a| + \eta_a)`: the proximal weights
        :math:`\eta_a` make up for different numbers of neighbours. In the coordinates that it works
        in; in [1e-100, 1e100].
    clip_norm : float or "auto", default="auto"
        Bound of the Euclidean norm of a record's gradient, in units of the typical norm of a row:
        the square root of the number of parameters, or in conditioned coordinates of the effective
        dimension. In [1e-100, 1e100].
    penalty_weight : float or "auto", default="auto"
        How strongly neighbours are pulled together (rho), in (0, 1e100]. With a `step_size` at most
        ``1 / (2 * step_size * most_neighbors)``. "auto" is that bound divided by `inner_steps`.
    proximal_weight : float, "growing" or None, default=None
        None: as `step_size` says. A float: eta, the same for all agents and steps. "growing": the
        schedule of the utility theorem, ``sqrt(2 s) G / diameter`` in step s, where G bounds the
        noisy gradient, see `multi_step_bound`. With one of the last two, `step_size` must be "auto"
        and `penalty_weight` a float.
    diameter : float, default=inf
        Of the ball around zero that models are projected onto, after the noise, in the coordinates
        that it works in. In (0, inf]; "growing" needs a finite one.
    batch_fraction : float, default=1.0
        In (0, 1]: chance of each record to be in a step, drawn anew for every step and kept secret.
        Below 1 the guarantee is that of Poisson sampling; it takes the extra
        ``skdpadmm[accounting]``.
    tail_fraction : float, default=0.5
        In (0, 1]: share of all steps, at their end, that is averaged. 1 is the average of the
        paper. Free: all steps count as released.

    Notes
    -----
    **Guarantee.** Observers "eavesdropper" (sees every message), "peer" and "model": one figure for
    all three. Unit: one record, or all records of an agent, whose gradient is then clipped as a
    whole. Given what was released before, a record moves its agent's gradient by at most 2C under
    replace-one and C under zero-out, so with noise of standard deviation s the T = t l steps are
    GDP with :math:`\mu = \sqrt T \, 2 C / s`, by exact composition; in units of the models the
    noise of a step is :math:`s / (2 \rho |N_a| + \eta)`. Models, averages, duals and projections
    are post-processing, whatever the steps and weights. It needs neither convexity nor honest
    neighbours: all other agents may work together. Agents hold different rows, so each has a
    guarantee, and if it likes a budget, of its own. With batches a step is a Poisson-sampled
    Gaussian mechanism. (Batches drawn with replacement have no such guarantee.)

    References
    ----------
    .. [1] Z. Huang, Y. Gong, "Differentially Private ADMM for Convex Distributed Learning:
       Improved Accuracy via Multi-Step Approximation", Algorithm 1 and Theorems 6 and 7, corrected
       as said above.

    Examples
    --------
    >>> from skdpadmm import DPDecentralizedRegressor
    >>> from skdpadmm.algorithms import MultiStepADMM
    >>> model = DPDecentralizedRegressor(algorithm=MultiStepADMM(inner_steps=4), max_iter=50)
    >>> plan = model.plan(n_samples=10_000, n_features=5)
    >>> plan.settings.n_rounds, plan.releases[-1].times
    (50, 200)
    """

    conditionable = True
    setting = "decentralized"
    exact = False

    def __init__(
        self,
        *,
        inner_steps: int = 2,
        step_size: float | Literal["auto"] = "auto",
        clip_norm: float | Literal["auto"] = "auto",
        penalty_weight: float | Literal["auto"] = "auto",
        proximal_weight: float | Literal["growing"] | None = None,
        diameter: float = math.inf,
        batch_fraction: float = 1.0,
        tail_fraction: float = 0.5,
    ) -> None:
        self.inner_steps = inner_steps
        self.step_size = step_size
        self.clip_norm = clip_norm
        self.penalty_weight = penalty_weight
        self.proximal_weight = proximal_weight
        self.diameter = diameter
        self.batch_fraction = batch_fraction
        self.tail_fraction = tail_fraction

    def plan(self, facts: Facts, budget: Budget) -> Plan:
        """Decide steps, weights and each agent's noise from public facts.

        Parameters
        ----------
        facts : Facts
            Of a network.
        budget : Budget
            With a finite epsilon.

        Returns
        -------
        Plan

        Raises
        ------
        ValueError
            Where a knob is outside its range.
        """
        self.check(facts)
        n_steps = facts.max_iter * self.inner_steps
        messages = agent_messages(
            facts,
            budget,
            name=GRADIENTS,
            n_times=n_steps,
            limits=unit_limits(facts),
            sampling=float(self.batch_fraction),
        )
        return Plan(
            algorithm="MultiStepADMM",
            facts=facts,
            budget=budget,
            settings=self._settings(facts, messages),
            releases=(*facts.preparations, messages),
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
        settings = replace(plan.settings, growth=plan.settings.growth * rows.clip_unit)
        network = network_of(facts)
        topology = network.topology
        # An agent alone has nobody to wait for.
        consensus = NeighborConsensus(
            topology=topology, penalty_weight=settings.penalty_weight if topology.n_edges else 0.0
        )
        clip_norm = settings.clip_norm * rows.clip_unit
        gradient = noisy_gradients(
            plan, problem, gate, name=GRADIENTS, clip_norm=clip_norm, sampling=settings.sampling
        )
        proximal, sparse = proximal_steps(facts, rows), facts.penalty.is_sparse
        models = np.zeros((network.n_agents, facts.n_parameters, facts.loss.n_outputs))
        points = pull = duals = models
        tail = np.zeros(models.shape)
        n_steps = settings.n_rounds * settings.inner_steps
        curvature = settings.curvature(topology.degrees, n_steps)
        step_size = float(1 / np.mean(curvature))
        for k in range(settings.n_rounds):
            total = np.zeros(models.shape)
            for step in range(k * settings.inner_steps, (k + 1) * settings.inner_steps):
                if step >= n_steps - settings.n_averaged:
                    # An average of sparse models is not sparse. One more step from an average of
                    # points is, where all of them are brought to its length.
                    longer = (curvature * step_size)[:, None, None]
                    tail += models + longer * (points - models) if sparse else models
                curvature = settings.curvature(topology.degrees, step + 1)
                eta = (curvature - consensus.curvature)[:, None, None]
                points = (pull + eta * models - gradient(models)) / curvature[:, None, None]
                models = into_ball(proximal(points, curvature), settings.radius)
                total += models
            pull, duals = consensus.exchange(total / settings.inner_steps, duals)
            problem.progress(k + 1)
        (noise,) = (r for r in plan.releases if r.made_of == "agents")
        return network_solution(
            plan,
            rows,
            tail / settings.n_averaged,
            last_step=penalty_operator(facts.penalty, step_size, rows) if sparse else None,
            noise_std=clip_norm * summed_noise(plan, noise) / (facts.n_samples * settings.sampling),
            step_size=step_size,
            n_iter=n_steps,
            n_averaged=settings.n_averaged,
            n_rounds=settings.n_rounds,
            derivative_bound=clip_norm / rows.typical_norm,
        )

    def check(self, facts: Facts) -> None:
        """Refuse knobs outside of their range, whatever the budget.

        Raises
        ------
        ValueError
            Says what was expected.
        """
        check_steps(self.step_size, self.clip_norm)
        check_count("inner_steps", self.inner_steps)
        check_range("penalty_weight", self.penalty_weight, 1e-100, 1e100)
        check_batches(self.batch_fraction, facts)
        check_range("diameter", self.diameter, 1e-100, math.inf, auto=False)
        check_tail_fraction(self.tail_fraction)
        if self.proximal_weight is None:
            return
        if self.proximal_weight != "growing" and not (
            is_number(self.proximal_weight) and 0 < self.proximal_weight <= 1e100
        ):
            raise ValueError(
                f"Got proximal_weight={self.proximal_weight!r}, expected None, 'growing' or a float"
                " in (0, 1e+100]."
            )
        if self.step_size != "auto" or self.penalty_weight == "auto":
            raise ValueError(
                f"Got proximal_weight={self.proximal_weight!r} with step_size={self.step_size!r}"
                f" and penalty_weight={self.penalty_weight!r}, expected step_size='auto' and a"
                " float: the two weights make up the step."
            )
        if self.proximal_weight == "growing" and math.isinf(self.diameter):
            raise ValueError(
                "Got proximal_weight='growing' with diameter=inf, expected a finite diameter: the"
                " schedule is a multiple of 1 / diameter."
            )

    def _settings(self, facts: Facts, messages: Release) -> MultiStepADMMSettings:
        network = network_of(facts)
        sampling = float(self.batch_fraction)
        step_size, clip_norm = default_network_steps(facts, messages, sampling=sampling)
        if self.step_size != "auto":
            step_size = float(self.step_size)
        if self.clip_norm != "auto":
            clip_norm = float(self.clip_norm)
        proximal_weight = self.proximal_weight
        if proximal_weight is not None and proximal_weight != "growing":
            proximal_weight = float(proximal_weight)
        most = max(int(network.topology.degrees.max()), 1)
        largest = 1.0 / (2.0 * step_size * most)
        if self.penalty_weight == "auto":
            penalty_weight = largest / self.inner_steps
        else:
            penalty_weight = float(self.penalty_weight)
        if proximal_weight is None and penalty_weight > largest * (1 + 1e-12):
            raise ValueError(
                f"Got penalty_weight={penalty_weight:g} with step_size={step_size:.4g} on a graph"
                f" whose agents have up to {most} neighbours, expected at most {largest:.4g}."
                " Shorten the step, or leave penalty_weight at 'auto'."
            )
        return MultiStepADMMSettings(
            n_rounds=facts.max_iter,
            inner_steps=int(self.inner_steps),
            penalty_weight=penalty_weight,
            step_size=step_size if proximal_weight is None else None,
            proximal_weight=proximal_weight,
            growth=self._growth(facts, messages, clip_norm),
            radius=float(self.diameter) / 2,
            clip_norm=clip_norm,
            sampling=sampling,
            n_averaged=tail_length(self.tail_fraction, len(messages.sensitivities)),
        )

    def _growth(self, facts: Facts, messages: Release, clip_norm: float) -> float:
        """G / D of the utility theorem, for the agents with the most noise."""
        if self.proximal_weight != "growing":
            return 0.0
        network = network_of(facts)
        weight = network.n_agents / facts.n_samples * clip_norm
        exact = weight * max(network.agent_sizes)
        n_entries = facts.n_parameters * facts.loss.n_outputs
        noise = (
            weight
            * max(messages.agent_noise_std)
            * math.sqrt(n_entries)
            / float(self.batch_fraction)
        )
        return math.hypot(exact, noise) / float(self.diameter)
