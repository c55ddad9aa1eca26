"""Federated consensus ADMM: agents keep their rows and their states, a server keeps the mean.

Source: Cyffers, Bellet & Basu, "From Noisy Fixed-Point Iterations to Private ADMM for Centralized
and Federated Learning" (ICML 2023), Algorithm 3, changed where it fails. As printed, the server
adds up changes of states on top of the point after the proximal step, so that its fixed points
minimise the penalty alone; here it keeps the mean of the states before that step. As printed,
states keep the noise that was added to messages; here they are functions of an agent's own rows and
of what was released.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from skdpadmm.algorithms._agent_blocks import agent_blocks
from skdpadmm.algorithms._algorithm import penalty_operator
from skdpadmm.algorithms._defaults import agent_clip_factor, default_steps
from skdpadmm.algorithms._knobs import (
    check_choice,
    check_relaxation,
    check_steps,
    check_tail_fraction,
    tail_length,
)
from skdpadmm.algorithms._messages import (
    Rounds,
    Schedule,
    calibrated_multipliers,
    draw_schedule,
    message_sum,
    plan_rounds,
    unit_limits,
)
from skdpadmm.algorithms._noise_left import (
    doubt,
    drop_noise,
    parameter_variance,
    score_variance,
)
from skdpadmm.algorithms._record_blocks import path_sensitivities, record_blocks
from skdpadmm.protocol import Budget, Facts, Federation, Gate, Plan, Problem, Solution

MESSAGES = "sum of messages"


@dataclass(frozen=True, kw_only=True)
class FederatedADMMSettings:
    """Constants of one run, resolved; symbols of the paper in brackets.

    Attributes
    ----------
    step_size : float
        Step of both proximal operators [gamma].
    relaxation : float
        [lambda].
    clip_norm : float
        Bound of the norm of a unit's gradient, in units of `Rows.clip_unit` [C / gamma].
    local_step : {"exact", "linearized"}
    message : {"state", "increment"}
    n_averaged : int
        Length of the averaged tail of the path.
    rounds : Rounds
    """

    step_size: float
    relaxation: float
    clip_norm: float
    local_step: Literal["exact", "linearized"]
    message: Literal["state", "increment"]
    n_averaged: int
    rounds: Rounds


class FederatedADMM(BaseEstimator):
    r"""Consensus ADMM over agents, private by noise that agents add to their messages.

    Solves :math:`\min_w \frac1n \sum_i f_i(w) + r(w)` over the records of all agents. A block of
    the consensus problem is a record or an agent, whichever is the protected unit; an agent stands
    for the mean loss of its rows, with a weight proportional to their number. In each round the
    server sends z, and every agent that takes part updates the states of its blocks,

    .. math::

        v_b &= 2 z - u_b, \qquad d_b = \mathrm{clip}(v_b - \mathrm{prox}_{\gamma f_b}(v_b), C) \\
        u_b &\leftarrow (1 - 2 \lambda) u_b + 2 \lambda (z - d_b)

    and sends their sum, to which it adds noise. The server averages what arrives into
    :math:`\hat z` and computes :math:`z = \mathrm{prox}_{\gamma r}(\hat z)`. The answer is
    :math:`\mathrm{prox}_{\gamma r}` of the average of the last :math:`\hat z`.

    Parameters
    ----------
    step_size : float or "auto", default="auto"
        Step of the proximal operators (gamma), in the coordinates that it works in; in
        [1e-100, 1e100].
    clip_norm : float or "auto", default="auto"
        Bound of the norm of a unit's gradient, as in
        :class:`~skdpadmm.algorithms.ConsensusADMM`. Agents that hold more than twice the average
        number of rows get a smaller one: together their rows weigh no more than that.
    relaxation : float, default=0.5
        In (0, 1): 0.5 is the usual ADMM. Where agents sit rounds out, states need 0.5.
    local_step : {"auto", "exact", "linearized"}, default="auto"
        "exact" solves the proximal step of each block; "linearized" replaces it by a gradient step.
        "auto" linearises records in conditioned coordinates, and nothing else.
    message : {"state", "increment"}, default="state"
        What an agent sends. "state": the mean of the states of those who take part replaces the
        last one, so noise does not add up. "increment": the server adds changes of states, each
        clipped, to the last mean. That keeps what absent agents said, but also all noise: it is the
        corrected Algorithm 3.
    sampling : {"poisson", "fixed"}, default="poisson"
        Each agent takes part by itself, or a fixed number of them does.
    max_participations : int or None, default=None
        Rounds after which an agent takes no further part. The run ends where agents reach it on
        average.
    tail_fraction : float, default=0.5
        In (0, 1]: share of the path, at its end, that is averaged. Free: all of it is released.

    Notes
    -----
    **Guarantee.** An agent adds noise of its own to each message, and three observers see more or
    less of it. "server": every message. "sums": sums of messages, of which `n_honest` agents do not
    tell what they added. "model": the released path. Unit: one record, or all records of an agent.
    Given what was released before, a unit's states are functions of its own rows, so a message
    moves by at most :math:`2 C (1 - (1 - 2 \lambda)^j)` in an agent's j-th round, and Gaussian
    mechanisms compose exactly. Replace-one; half of it for zero-out. No convexity and no accuracy
    of local solutions is needed: clipping comes after solving.

    Where agents sit rounds out at random, an agent influences only the rounds that it takes part
    in, and the guarantee is the mean over their number, ``E_N[delta(N rounds)]``, even if it is
    known who took part. It improves on that, as Poisson sampling does, for whole agents, Poisson
    rounds, and an observer who sees only the model. Noise is then sent by everyone, whoever takes
    part; an agent that is zeroed out sends noise alone, for every observer. Drop-outs never weaken
    a guarantee: a round in which fewer messages arrive than the plan demands is void.

    References
    ----------
    .. [1] E. Cyffers, A. Bellet, D. Basu, "From Noisy Fixed-Point Iterations to Private ADMM for
       Centralized and Federated Learning", ICML 2023, Algorithm 3 (corrected as said above).

    Examples
    --------
    >>> from skdpadmm import DPFedRidge
    >>> from skdpadmm.algorithms import FederatedADMM
    >>> model = DPFedRidge(algorithm=FederatedADMM(relaxation=0.4), epsilon=2.0)
    >>> model.plan(n_samples=10_000, n_features=5).settings.relaxation
    0.4
    """

    conditionable = True
    setting = "federated"
    exact = False

    def __init__(
        self,
        *,
        step_size: float | Literal["auto"] = "auto",
        clip_norm: float | Literal["auto"] = "auto",
        relaxation: float = 0.5,
        local_step: Literal["auto", "exact", "linearized"] = "auto",
        message: Literal["state", "increment"] = "state",
        sampling: Literal["poisson", "fixed"] = "poisson",
        max_participations: int | None = None,
        tail_fraction: float = 0.5,
    ) -> None:
        self.step_size = step_size
        self.clip_norm = clip_norm
        self.relaxation = relaxation
        self.local_step = local_step
        self.message = message
        self.sampling = sampling
        self.max_participations = max_participations
        self.tail_fraction = tail_fraction

    def plan(self, facts: Facts, budget: Budget) -> Plan:
        """Decide steps, clip bound, rounds and each agent's noise from public facts.

        Parameters
        ----------
        facts : Facts
            With a federation.
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
        federation = facts.agents
        assert isinstance(federation, Federation)
        rounds = plan_rounds(
            federation,
            max_rounds=facts.max_iter,
            sampling=self.sampling,
            cap=self.max_participations,
            observer=budget.observer,
        )
        sensitivities = self._sensitivities(facts, rounds.n_rounds)
        messages = message_sum(
            facts,
            budget,
            rounds,
            name=MESSAGES,
            shape=(facts.n_parameters, facts.loss.n_outputs),
            sensitivities=sensitivities,
            limits=unit_limits(facts),
            multipliers=calibrated_multipliers(facts, budget, rounds, sensitivities),
        )
        # What a curator would spend for as much noise in the mean.
        noise = messages.noise_std / float(rounds.expected_shares(federation)[0])
        mu = math.hypot(*sensitivities) / noise
        step_size, clip_norm = default_steps(facts, mu)
        # What an agent says is shorter than what its records say; the travel stays the same.
        factor = agent_clip_factor(facts)
        step_size, clip_norm = step_size / factor, clip_norm * factor
        settings = FederatedADMMSettings(
            step_size=step_size if self.step_size == "auto" else float(self.step_size),
            relaxation=float(self.relaxation),
            clip_norm=clip_norm if self.clip_norm == "auto" else float(self.clip_norm),
            local_step=self._local_step(facts),
            message=self.message,
            n_averaged=tail_length(self.tail_fraction, rounds.n_rounds),
            rounds=rounds,
        )
        return Plan(
            algorithm="FederatedADMM",
            facts=facts,
            budget=budget,
            settings=settings,
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
        facts, settings, rows = plan.facts, plan.settings, problem.rows
        federation, rounds = facts.agents, settings.rounds
        assert isinstance(federation, Federation)
        gamma, lam = settings.step_size, settings.relaxation
        clip_norm = settings.clip_norm * rows.clip_unit
        prox = penalty_operator(facts.penalty, gamma, rows)
        shape = (facts.n_parameters, facts.loss.n_outputs)
        schedule = draw_schedule(rounds, federation, gate)
        partial = not schedule.takes_part.all()
        advance = _placed(plan, problem, clip_norm, partial=partial)
        # The public part of states, for all agents together or for each; and the weights of agents.
        weights = np.asarray(federation.agent_sizes) / facts.n_samples
        told_apart = partial and settings.message == "increment"
        centers = np.zeros((federation.n_agents if told_apart else 1, *shape))
        arriving = rounds.expected_shares(federation)
        mean = z = np.zeros(shape)
        tail, n_averaged, n_rounds = np.zeros(shape), 0, 0
        for number in range(rounds.n_rounds):
            senders = schedule.sends[number]
            problem.progress(number + 1)
            if not senders.any():
                gate.skip(MESSAGES)
                continue
            active = schedule.takes_part[number] if partial else None
            value = advance(z, centers[0], active)
            noisy = gamma * clip_norm * gate.release(MESSAGES, value, senders)
            if settings.message == "state":
                centers = (1 - 2 * lam) * centers + 2 * lam * z
                mean = centers[0] - noisy / arriving[number]
            elif facts.unit == "agent":
                mean = mean + noisy
            else:
                who = slice(None) if active is None else active
                moved = 2 * lam * (z - centers[who])
                centers[who] += moved
                share = weights[who] if told_apart else np.ones(1)
                mean = mean + np.einsum("a,ajk->jk", share, moved) - noisy
            z = rows.from_coordinates(prox(mean))
            n_rounds += 1
            if number >= rounds.n_rounds - settings.n_averaged:
                tail += mean
                n_averaged += 1
        # One proximal step after averaging: an average of sparse vectors would not be sparse.
        parameters = prox(tail / n_averaged if n_averaged else mean)
        noise_std, amplified = plan.releases[-1].noise_std, 1.0
        if settings.message == "state":
            amplified = math.sqrt(np.mean(1.0 / arriving[-settings.n_averaged :] ** 2))
        variance = parameter_variance(
            rows=rows,
            smoothness=facts.loss.smoothness,
            step_size=gamma,
            noise_std=clip_norm * noise_std * amplified,
            n_iter=rounds.n_rounds,
            n_averaged=settings.n_averaged,
        )
        sparse = facts.penalty.is_sparse
        n_messages, n_numbers = _traffic(plan, schedule)
        return Solution(
            parameters=drop_noise(parameters, rows, variance) if sparse else parameters,
            n_iter=n_rounds,
            derivative_bound=clip_norm / rows.typical_norm,
            score_variance=score_variance(rows, variance),
            doubt=doubt(rows, parameters, variance),
            n_rounds=n_rounds,
            n_messages=n_messages,
            bytes_sent=8 * n_numbers,
        )

    def check(self, facts: Facts) -> None:
        """Refuse knobs outside of their range, whatever the budget.

        Raises
        ------
        ValueError
            Says what was expected.
        """
        check_steps(self.step_size, self.clip_norm)
        check_relaxation(self.relaxation)
        check_tail_fraction(self.tail_fraction)
        check_choice("local_step", self.local_step, ("auto", "exact", "linearized"))
        check_choice("message", self.message, ("state", "increment"))
        check_choice("sampling", self.sampling, ("poisson", "fixed"))
        cap = self.max_participations
        if cap is not None and not (
            isinstance(cap, Integral) and not isinstance(cap, bool) and cap >= 1
        ):
            raise ValueError(
                f"Got max_participations={cap!r}, expected None or an int of at least 1."
            )
        federation = facts.agents
        absent = isinstance(federation, Federation) and (
            federation.participation < 1 or federation.dropout > 0
        )
        if absent and self.message == "state" and self.relaxation != 0.5:
            raise ValueError(
                f"Got relaxation={self.relaxation} where agents may sit a round out, expected 0.5:"
                " else a state tells in which rounds its agent took part. Use 0.5, or"
                " message='increment'."
            )

    def _local_step(self, facts: Facts) -> Literal["exact", "linearized"]:
        if self.local_step != "auto":
            return self.local_step
        conditioned_records = facts.conditioning is not None and facts.unit == "record"
        return "linearized" if conditioned_records else "exact"

    def _sensitivities(self, facts: Facts, n_rounds: int) -> tuple[float, ...]:
        """How far an agent's first, second, ... message can move the mean, for one record of it."""
        if self.message == "state":
            return path_sensitivities(facts, float(self.relaxation), n_rounds)
        moved = facts.neighboring.sensitivity_factor * facts.working_rounding / facts.n_samples
        return (2 * float(self.relaxation) * moved * (1 + n_rounds * 2.0**-50),) * n_rounds


def _placed(
    plan: Plan, problem: Problem, clip_norm: float, *, partial: bool
) -> Callable[..., NDArray[np.float64]]:
    """Place records or agents; returns what they say in a round, in units of the clip bound."""
    facts, settings, rows = plan.facts, plan.settings, problem.rows
    shape = (facts.n_parameters, facts.loss.n_outputs)
    common = {
        "loss": facts.loss,
        "step_size": settings.step_size,
        "relaxation": settings.relaxation,
        "clip_norm": clip_norm,
        "exact": settings.local_step == "exact",
        "increments": settings.message == "increment",
    }
    if facts.unit == "agent":
        assert facts.agents is not None
        limits = unit_limits(facts)[facts.agents.kind]
        agents = problem.engine.place(agent_blocks(problem, limits=limits, **common))
        return lambda *message: agents.sum("advance", *message) / (settings.step_size * clip_norm)
    records = problem.engine.place(record_blocks(problem, partial=partial, **common))
    unit = clip_norm * rows.n_samples
    return lambda *message: rows.collect(records.sum("advance", *message)).reshape(shape) / unit


def _traffic(plan: Plan, schedule: Schedule) -> tuple[int, int]:
    """Messages in both directions, and the numbers in them."""
    federation = plan.facts.agents
    assert isinstance(federation, Federation)
    n_agents, sizes = federation.n_agents, [math.prod(r.shape) for r in plan.releases]
    rounds = int(schedule.sends.sum()) + n_agents * len(schedule.sends)
    # Each preparation is sent by everyone, and its sum to everyone.
    return (
        rounds + 2 * n_agents * (len(sizes) - 1),
        rounds * sizes[-1] + 2 * n_agents * sum(sizes[:-1]),
    )
