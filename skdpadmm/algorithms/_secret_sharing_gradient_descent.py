"""Gradient descent on sums that agents take by secret sharing, so that their noise adds up.

Source: Xiao, "Local Differential Privacy in Decentralized Optimization" (MIT, 2019), section 2.1,
with the gradients taken at the public mean, where fresh noise makes every round an adaptive
Gaussian mechanism, and with noise on the grid that shares are made on.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from skdpadmm.algorithms._agent_blocks import clip_vectors
from skdpadmm.algorithms._agent_gradients import agent_gradients
from skdpadmm.algorithms._algorithm import penalty_operator
from skdpadmm.algorithms._defaults import agent_clip_factor, default_descent
from skdpadmm.algorithms._knobs import (
    check_steps,
    check_tail_fraction,
    is_number,
    tail_length,
)
from skdpadmm.algorithms._messages import unit_limits
from skdpadmm.algorithms._noise_left import (
    doubt,
    drop_noise,
    parameter_variance,
    score_variance,
)
from skdpadmm.algorithms._shared_sums import shared_sum
from skdpadmm.protocol import (
    Agents,
    Budget,
    Facts,
    Federation,
    Gate,
    Network,
    Plan,
    Problem,
    Solution,
)
from skdpadmm.secret_sharing import check_modulus

GRADIENT = "sum of agents' gradients, by secret sharing"
# With two, each knows the other's message: the sum without its own.
FEWEST_AGENTS = 3


@dataclass(frozen=True, kw_only=True)
class SecretSharingGradientDescentSettings:
    """Constants of one run, resolved.

    Attributes
    ----------
    n_rounds : int
        Steps, each with one sum.
    step_size : float
    clip_norm : float
        Bound of the norm of a unit's gradient, in units of `Rows.clip_unit`.
    momentum : float
    n_averaged : int
        Length of the averaged tail of the path.
    """

    n_rounds: int
    step_size: float
    clip_norm: float
    momentum: float
    n_averaged: int


class SecretSharingGradientDescent(BaseEstimator):
    r"""Proximal gradient descent on sums of noisy gradients that nobody sees one by one.

    Solves :math:`\min_w \frac1n \sum_i f_i(w) + r(w)` over the records of all agents. The model w
    is public. In each round every agent computes the sum of the clipped gradients of its records at
    w, rounds it to a grid, and adds discrete noise of its own, :math:`G_a`. It splits the result
    into shares that are uniform modulo m and add up to it, and sends one to each curator. A curator
    adds up the shares that it got and says the sum. The sums add up to

    .. math:: \tilde g = \sum_a \Big(\sum_{i \in a} \mathrm{clip}(\nabla f_i(y), C) + G_a\Big),
              \qquad y = w_k + \beta (w_k - w_{k-1}),

    and everybody takes the step
    :math:`u = y - \frac{\eta}{n} \tilde g, \; w_{k+1} = \mathrm{prox}_{\eta r}(u)`. The answer is
    :math:`\mathrm{prox}_{\eta r}` of the average of the last u. All agents end up with it.

    Parameters
    ----------
    step_size : float or "auto", default="auto"
        :math:`\eta`, in the coordinates that it works in; in [1e-100, 1e100].
    clip_norm : float or "auto", default="auto"
        C, in units of the typical norm of a row: the square root of the number of parameters, or in
        conditioned coordinates of the effective dimension. In [1e-100, 1e100].
    momentum : float or "auto", default="auto"
        Nesterov's, in [0, 1); free. "auto" is 0.8 in coordinates that are not conditioned and 0 in
        others.
    tail_fraction : float, default=0.5
        In (0, 1]: share of all steps, at their end, that is averaged. Free: all sums count as
        released.
    n_curators : int or None, default=None
        Among how many each message is shared out, from 2 to the number of agents; None: as many as
        there are agents. In a network they are the first agents in the order of their labels, in a
        federation they are servers.
    modulus : int, default=2**64
        m, in [2, 2**63] or 2**64. One that a sum with its noise could leave is refused.

    Notes
    -----
    **Guarantee.** Unit: one record, or all records of an agent, whose gradient is then clipped as a
    whole. Neighbouring: replace-one, or zero-out. Given what was released before a unit moves its
    agent's message by at most :math:`\Delta = 2 C` (C for zero-out), and by half a cell of the grid
    more in each of the d entries of both messages. Agents that are not honest know their own noise,
    so against a coalition of c others a sum has the noise of N - c agents, the victim's included:

    .. math:: \mu = \sqrt K \frac{\Delta + g \sqrt d}{\sqrt{\sum_{a \notin C} (s_a^2 - 4 g_a^2)}}

    for K rounds, by exact composition; g is a cell and :math:`s_a` an agent's noise. The cells are
    what discrete noise costs. In a network "peer" and "eavesdropper", who is in league with peers,
    are up against the noise of all agents but `coalition`; in a federation "model" against all,
    "sums" against that of `n_honest`, "server" (all curators together) against an agent's own.
    Whoever has all curators' shares sees each message. It needs secure channels from agents to
    curators, agents that do as they should, and all of them: where one drops out the round fails.
    Preparations are sums of the same kind.

    Gradients at hidden models, as in print, would let the noise of a round come back in the next
    one: two rounds of two agents tell up to 1.4 times what was claimed, in squares of mu.

    References
    ----------
    .. [1] H. Xiao, "Local Differential Privacy in Decentralized Optimization", MIT, 2019, section
       2.1, Theorem 2.1.1 (corrected as said above).
    .. [2] C. Canonne, G. Kamath, T. Steinke, "The Discrete Gaussian for Differential Privacy",
       NeurIPS 2020.

    Examples
    --------
    >>> from skdpadmm import DPDecentralizedRegressor
    >>> model = DPDecentralizedRegressor(algorithm="secret-sharing-gradient-descent", coalition=4)
    >>> plan = model.plan(n_samples=10_000, n_features=5)
    >>> round(plan.guarantee("peer").epsilon(1e-5), 3), plan.settings.n_rounds
    (1.0, 100)
    >>> round(plan.guarantee("model").epsilon(1e-5), 3)
    0.756
    """

    conditionable = True
    setting = ("decentralized", "federated")
    exact = False

    def __init__(
        self,
        *,
        step_size: float | Literal["auto"] = "auto",
        clip_norm: float | Literal["auto"] = "auto",
        momentum: float | Literal["auto"] = "auto",
        tail_fraction: float = 0.5,
        n_curators: int | None = None,
        modulus: int = 2**64,
    ) -> None:
        self.step_size = step_size
        self.clip_norm = clip_norm
        self.momentum = momentum
        self.tail_fraction = tail_fraction
        self.n_curators = n_curators
        self.modulus = modulus

    def share_among(self, agents: Agents) -> Agents:
        """The same agents, who share every message out: what that says of who sees what.

        Parameters
        ----------
        agents : Agents

        Returns
        -------
        Agents
        """
        # Whatever is no number of curators is refused by `check`.
        if agents.n_agents < FEWEST_AGENTS or not self._has_curators(agents):
            return agents
        return replace(agents, n_curators=self._n_curators(agents))

    def check(self, facts: Facts) -> None:
        """Refuse knobs outside of their range, whatever the budget.

        Raises
        ------
        ValueError
            Says what was expected.
        """
        check_steps(self.step_size, self.clip_norm)
        check_tail_fraction(self.tail_fraction)
        check_modulus(self.modulus)
        momentum, count, agents = self.momentum, self.n_curators, facts.agents
        if momentum != "auto" and not (is_number(momentum) and 0 <= float(momentum) < 1):
            raise ValueError(f"Got momentum={momentum!r}, expected 'auto' or a float in [0, 1).")
        assert agents is not None
        if agents.n_agents < FEWEST_AGENTS:
            raise ValueError(
                f"Got {agents.n_agents} agents with n_samples={facts.n_samples} rows in all,"
                f" expected at least {FEWEST_AGENTS} agents: of two, each knows what the other"
                " said."
            )
        if not self._has_curators(agents):
            raise ValueError(
                f"Got n_curators={count!r}, expected None or an int from 2 to the number of agents,"
                f" {agents.n_agents}."
            )
        absent = isinstance(agents, Federation) and (agents.participation < 1 or agents.dropout > 0)
        if absent:
            raise ValueError(
                "Got agents that sit rounds out or drop out, expected participation='auto' (or 1)"
                " and dropout=0: without one share nobody can reconstruct a sum."
            )

    def plan(self, facts: Facts, budget: Budget) -> Plan:
        """Decide steps and each agent's noise from public facts.

        Parameters
        ----------
        facts : Facts
            Of agents.
        budget : Budget
            With a finite epsilon.

        Returns
        -------
        Plan

        Raises
        ------
        ValueError
            Where a knob is outside its range, or the modulus too small for the sums.
        """
        self.check(facts)
        agents = facts.agents
        assert agents is not None
        if agents.n_curators != self._n_curators(agents):
            raise ValueError(
                f"Got facts of {agents.n_curators} curators, expected {self._n_curators(agents)}:"
                " who sees what follows from them. Make facts of the agents of `share_among`."
            )
        messages = shared_sum(
            facts,
            budget,
            name=GRADIENT,
            n_times=facts.max_iter,
            limits=unit_limits(facts),
            modulus=check_modulus(self.modulus),
        )
        # What a curator of all rows would spend on a record, for as much noise in the sum.
        moved = facts.neighboring.sensitivity_factor * facts.working_rounding
        mu = math.sqrt(facts.max_iter) * moved / messages.noise_std
        step_size, clip_norm, momentum = default_descent(
            facts,
            mu,
            facts.max_iter,
            momentum=None if self.momentum == "auto" else float(self.momentum),
        )
        # What an agent says is shorter than what its records say; the travel stays the same.
        factor = agent_clip_factor(facts)
        settings = SecretSharingGradientDescentSettings(
            n_rounds=facts.max_iter,
            step_size=step_size / factor if self.step_size == "auto" else float(self.step_size),
            clip_norm=clip_norm * factor if self.clip_norm == "auto" else float(self.clip_norm),
            momentum=momentum,
            n_averaged=tail_length(self.tail_fraction, facts.max_iter),
        )
        return Plan(
            algorithm="SecretSharingGradientDescent",
            facts=facts,
            budget=budget,
            settings=settings,
            releases=(*facts.preparations, messages),
            assumptions=tuple(self._assumptions(agents, budget.observer)),
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
        settings: SecretSharingGradientDescentSettings = plan.settings
        clip_norm = settings.clip_norm * rows.clip_unit
        summed = _shared_gradients(plan, problem, gate, clip_norm=clip_norm)
        # Of the mean gradient, in units of the clip bound.
        unit = settings.step_size * clip_norm / facts.n_samples
        prox = penalty_operator(facts.penalty, settings.step_size, rows)
        w = previous = tail = np.zeros((facts.n_parameters, facts.loss.n_outputs))
        for k in range(settings.n_rounds):
            point = w + settings.momentum * (w - previous)
            u = point - unit * summed(point)
            previous, w = w, rows.from_coordinates(prox(u))
            if k >= settings.n_rounds - settings.n_averaged:
                tail = tail + u / settings.n_averaged
            problem.progress(k + 1)
        parameters = prox(tail)
        variance = parameter_variance(
            rows=rows,
            smoothness=facts.loss.smoothness,
            # Momentum makes a step that much longer.
            step_size=settings.step_size / (1 - settings.momentum),
            noise_std=clip_norm * plan.releases[-1].noise_std / facts.n_samples,
            n_iter=settings.n_rounds,
            n_averaged=settings.n_averaged,
        )
        sparse = facts.penalty.is_sparse
        n_messages, n_numbers = _traffic(plan)
        return Solution(
            parameters=drop_noise(parameters, rows, variance) if sparse else parameters,
            n_iter=settings.n_rounds,
            derivative_bound=clip_norm / rows.typical_norm,
            score_variance=score_variance(rows, variance),
            doubt=doubt(rows, parameters, variance),
            n_rounds=settings.n_rounds,
            n_messages=n_messages,
            bytes_sent=8 * n_numbers,
        )

    def _has_curators(self, agents: Agents) -> bool:
        count = self.n_curators
        return count is None or (_is_whole(count) and 2 <= count <= agents.n_agents)

    def _n_curators(self, agents: Agents | None) -> int:
        assert agents is not None
        return agents.n_agents if self.n_curators is None else int(self.n_curators)

    def _assumptions(self, agents: Agents, observer: str) -> list[str]:
        count = self._n_curators(agents)
        lines = [
            f"Every message is shared out among {count} curators through secure channels, and"
            " everybody follows the protocol. Whoever has all that curators got sees every message;"
            " figures about sums are for others. Where an agent drops out the fit fails.",
        ]
        if len(set(agents.epsilons)) > 1 and not agents.sees_each_message(observer):
            lines.append(
                "A sum has one noise: it protects all agents by the smallest of their budgets."
            )
        return lines


def _is_whole(count: object) -> bool:
    return isinstance(count, Integral) and not isinstance(count, bool)


def _shared_gradients(
    plan: Plan, problem: Problem, gate: Gate, *, clip_norm: float
) -> Callable[[NDArray[np.float64]], NDArray[np.float64]]:
    """Sums over all records of gradients at a public model, in units of the clip bound, shared."""
    facts, agents = plan.facts, plan.facts.agents
    assert agents is not None
    of_records = facts.unit == "record"
    exact = agent_gradients(
        problem, loss=facts.loss, clip_norm=clip_norm if of_records else math.inf
    )
    limits = unit_limits(facts)[agents.kind]

    def summed(model: NDArray[np.float64]) -> NDArray[np.float64]:
        sums = exact(np.broadcast_to(model, (agents.n_agents, *model.shape))) / clip_norm
        if not of_records:
            sums = clip_vectors(sums, limits)
        return gate.share(GRADIENT, sums)

    return summed


def _traffic(plan: Plan) -> tuple[int, int]:
    """Messages along edges or to and from servers, and the numbers in them."""
    facts, agents, (*before, sums) = plan.facts, plan.facts.agents, plan.releases
    assert agents is not None
    n_curators = agents.n_curators
    each = (2 * agents.n_agents + 1) * n_curators
    if isinstance(agents, Network):
        # Shares and sums are passed on along shortest paths, to curators and from them.
        each = 2 * sum(int(agents.topology.distances_from(c).sum()) for c in range(n_curators))
    # Preparations are shared out too: alone, what an agent says of them has too little noise.
    n_numbers = facts.max_iter * math.prod(sums.shape)
    n_numbers += sum(math.prod(release.shape) for release in before)
    return each * (facts.max_iter + len(before)), each * n_numbers
