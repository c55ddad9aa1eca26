"""Consensus ADMM over a graph whose agents add noise to what they send: primal perturbation.

Source: T. Zhang, Q. Zhu, "Dynamic differential privacy for ADMM-based distributed classification
learning", IEEE Transactions on Information Forensics and Security 12, 2017, Algorithm 2 (PVP), with
the noisy models fed back into the iteration, Gaussian noise and exact composition.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from skdpadmm.algorithms.blocks._agent_blocks import clip_vectors
from skdpadmm.algorithms.blocks._agent_minimisers import (
    AgentMinimisersSettings,
    agent_minimisers,
    least_open_clip,
    minimiser_settings,
)
from skdpadmm.algorithms.blocks._neighbor_consensus import NeighborConsensus, averaged_rounds
from skdpadmm.algorithms.blocks._network_steps import network_solution, summed_noise
from skdpadmm.algorithms.planning._agent_messages import agent_messages
from skdpadmm.algorithms.planning._knobs import (
    check_range,
    check_steps,
    check_tail_fraction,
    tail_length,
)
from skdpadmm.algorithms.planning._messages import unit_limits
from skdpadmm.algorithms.planning._network_defaults import default_network_steps
from skdpadmm.protocol import (
    AgentMessages,
    Budget,
    Facts,
    Gate,
    Plan,
    Problem,
    Solution,
    network_of,
)

DISPLACEMENTS = "displacements of agents"


@dataclass(frozen=True, kw_only=True)
class PrimalPerturbationADMMSettings:
    """Constants of one run, resolved; symbols of the paper in brackets.

    Attributes
    ----------
    n_rounds : int
        Broadcasts.
    penalty_weight : float
        Of the consensus constraint [rho].
    clip_norm : float
        Bound of the norm of a unit's gradient, in units of the typical norm of a row.
    tolerance : float
        Certified distance of an inner solution from the exact one, in units of the distance that
        one record can move that.
    n_averaged : int
        Length of the averaged tail of the path.
    minimisers : AgentMinimisersSettings
    """

    n_rounds: int
    penalty_weight: float
    clip_norm: float
    tolerance: float
    n_averaged: int
    minimisers: AgentMinimisersSettings


class PrimalPerturbationADMM(BaseEstimator):
    r"""Each agent solves its own problem exactly, and adds noise to the model that it sends.

    Solves :math:`\min_w \frac1n \sum_i f_i(w) + r(w)` over the records of all A agents. Agent a
    holds :math:`F_a = \frac A n \sum_{i \in a} f_i` of clipped losses, a dual variable
    :math:`\gamma_a` and a model :math:`w_a`, both 0 at first. In each round

    .. math::

        w_a &\leftarrow \arg\min_w F_a(w) + r(w) - 2 \langle \gamma_a, w \rangle
             + \rho \sum_{b \in N_a} \Big\| w - \frac{w_a + w_b}2 \Big\|^2
             + N(0, \sigma_a^2 I), \\
        \gamma_a &\leftarrow \gamma_a - \frac\rho2 \sum_{b \in N_a} (w_a - w_b).

    The noisy model is broadcast, and is what the iteration goes on with. An agent without
    neighbours counts as its own. An agent's answer is the average of its models over the last
    rounds, the common answer the average over agents; as noise is in the models, no coefficient is
    exactly zero under an l1 penalty.

    Parameters
    ----------
    clip_norm : float or "auto", default="auto"
        Bound of the Euclidean norm of a record's gradient (C), in units of the typical norm of a
        row; in [1e-100, 1e100]. It clips the derivative of the loss as a number, which Huberises
        the loss. With several scores it must not bind.
    penalty_weight : float or "auto", default="auto"
        How strongly neighbours are pulled together (rho), in [1e-100, 1e100]. "auto" gives the
        agents with the fewest neighbours proximal steps of the length of the common rule.
    tail_fraction : float, default=0.5
        In (0, 1]: share of all rounds, at their end, that is averaged. Free: all count as released.
    tolerance : float, default=0.01
        In [1e-6, 1]: how far an inner solution may be from the exact one, in units of the distance
        that one record can move that. Twice as much is added to the sensitivity.

    Notes
    -----
    **Guarantee.** Observers "eavesdropper" (sees every message), "peer" and "model": one figure for
    all three. Unit: one record, or all records of an agent. Let c = 2 for replace-one and 1 for
    zero-out. Given what was released before, an agent's problem is
    :math:`2 \rho |N_a|`-strongly convex, and a record moves its gradient by at most
    :math:`c\,C A / n`, so the exact minimiser moves by at most
    :math:`c\,C A / (2 \rho |N_a| n)`. A computed one is within `tolerance` times that of the exact
    one on either data set: a factor ``1 + 2 tolerance``, by the proof of `certified_distance`. It
    needs convex losses (clipped as numbers they are) and public bounds of curvature. What passes
    the gate is the distance from the minimiser without data, which is public, in units of
    :math:`C A / (2 \rho |N_a| n)`: so agents with few neighbours add more noise to their models.
    Where all records of an agent are protected, that distance is clipped as a whole instead.
    T rounds are GDP with :math:`\mu = \sqrt T \Delta / s`, by exact composition; duals and averages
    are post-processing, and other agents need not be honest. (The paper composes nothing over
    rounds.)

    References
    ----------
    .. [1] T. Zhang, Q. Zhu, "Dynamic differential privacy for ADMM-based distributed classification
       learning", IEEE Transactions on Information Forensics and Security 12, 2017.

    Examples
    --------
    >>> from skdpadmm import DPDecentralizedRegressor
    >>> model = DPDecentralizedRegressor(algorithm="primal-perturbation-admm", topology="ring")
    >>> plan = model.plan(n_samples=10_000, n_features=5)
    >>> plan.releases[-1].name, plan.releases[-1].times
    ('displacements of agents', 100)
    """

    conditionable = False
    setting = "decentralized"
    exact = False

    def __init__(
        self,
        *,
        clip_norm: float | Literal["auto"] = "auto",
        penalty_weight: float | Literal["auto"] = "auto",
        tail_fraction: float = 0.5,
        tolerance: float = 0.01,
    ) -> None:
        self.clip_norm = clip_norm
        self.penalty_weight = penalty_weight
        self.tail_fraction = tail_fraction
        self.tolerance = tolerance

    def check(self, facts: Facts) -> None:
        """Refuse knobs outside of their range, whatever the budget.

        Raises
        ------
        ValueError
            Says what was expected.
        """
        check_steps("auto", self.clip_norm)
        check_range("penalty_weight", self.penalty_weight, 1e-100, 1e100)
        check_range("tolerance", self.tolerance, 1e-6, 1.0, auto=False)
        check_tail_fraction(self.tail_fraction)

    def plan(self, facts: Facts, budget: Budget) -> Plan:
        """Decide weights, the number of inner steps and each agent's noise from public facts.

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
            Where a knob is outside its range, or outside the range of its theorem.
        """
        self.check(facts)
        limits = unit_limits(facts)
        if facts.unit == "record":
            limits = limits * (1 + 2 * self.tolerance / facts.working_rounding)
        messages = agent_messages(
            facts, budget, name=DISPLACEMENTS, n_times=facts.max_iter, limits=limits
        )
        return Plan(
            algorithm="PrimalPerturbationADMM",
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
        settings: PrimalPerturbationADMMSettings = plan.settings
        network = network_of(facts)
        consensus = NeighborConsensus(
            topology=network.topology, penalty_weight=settings.penalty_weight
        )
        clip_norm = settings.clip_norm * rows.clip_unit
        of_records = facts.unit == "record"
        units, solve = agent_minimisers(
            facts,
            problem,
            consensus,
            settings.minimisers,
            clip_norm=clip_norm,
            of_records=of_records,
        )
        limits = unit_limits(facts)[network.kind]

        def broadcast(pull: NDArray[np.float64]) -> NDArray[np.float64]:
            without, minimisers = solve(pull, np.zeros(pull.shape))
            moved = minimisers - without
            if not of_records:
                moved = clip_vectors(moved, limits)
            return units * (without + gate.release(DISPLACEMENTS, moved))

        answers = averaged_rounds(
            consensus,
            broadcast,
            np.zeros((network.n_agents, facts.n_parameters, facts.loss.n_outputs)),
            n_rounds=settings.n_rounds,
            n_averaged=settings.n_averaged,
            progress=problem.progress,
        )
        (noise,) = (r for r in plan.releases if isinstance(r, AgentMessages))
        return network_solution(
            plan,
            rows,
            answers,
            last_step=None,
            noise_std=clip_norm * summed_noise(plan, noise) / facts.n_samples,
            step_size=float(np.mean(1 / consensus.curvature)),
            n_iter=settings.n_rounds,
            n_averaged=settings.n_averaged,
            n_rounds=settings.n_rounds,
            derivative_bound=clip_norm / rows.typical_norm,
        )

    def _settings(self, facts: Facts, messages: AgentMessages) -> PrimalPerturbationADMMSettings:
        network = network_of(facts)
        step_size, clip_norm = default_network_steps(facts, messages)
        several = facts.loss.n_outputs > 1 and facts.unit == "record"
        if several:
            clip_norm = least_open_clip(facts)
        if self.clip_norm != "auto":
            clip_norm = float(self.clip_norm)
        if several and clip_norm < least_open_clip(facts):
            raise ValueError(
                f"Got clip_norm={clip_norm:g} for {facts.loss.n_outputs} scores, expected at least"
                f" {least_open_clip(facts):.6g}, which never binds: a loss whose vector of"
                " derivatives is clipped has no minimiser. Use 'auto'."
            )
        penalty_weight = 1.0 / (2.0 * step_size * max(int(network.topology.degrees.min()), 1))
        if self.penalty_weight != "auto":
            penalty_weight = float(self.penalty_weight)
        factor = facts.neighboring.sensitivity_factor
        n_entries = facts.n_parameters * facts.loss.n_outputs
        consensus = NeighborConsensus(topology=network.topology, penalty_weight=penalty_weight)
        return PrimalPerturbationADMMSettings(
            n_rounds=facts.max_iter,
            penalty_weight=penalty_weight,
            clip_norm=clip_norm,
            tolerance=float(self.tolerance),
            n_averaged=tail_length(self.tail_fraction, facts.max_iter),
            minimisers=minimiser_settings(
                facts,
                consensus,
                n_rounds=facts.max_iter,
                clip_norm=clip_norm,
                tolerance=float(self.tolerance) * factor,
                noise=4.0 * messages.noise_std * math.sqrt(n_entries),
                advice=f"Got penalty_weight={penalty_weight:g} and tolerance={self.tolerance:g},"
                " expected a larger weight or tolerance",
            ),
        )
