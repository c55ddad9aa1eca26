"""Private consensus ADMM over records or agents: a curator is one agent.

Source: Cyffers, Bellet & Basu, "From Noisy Fixed-Point Iterations to Private ADMM for Centralized
and Federated Learning" (ICML 2023), Algorithms 2 and 3, changed where they fail. As printed, hidden
states keep the noise that was added to them: it averages out in the mean along with the signal and
returns through later iterations. Here a state is a function of its own rows and of what was
released, and fresh noise goes on the released mean, so that composition over the path is exact. As
printed, the server of Algorithm 3 adds up changes of states on top of the point after the proximal
step, so that its fixed points minimise the penalty alone; here it keeps the mean of the states
before that step.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skdpadmm._sklearn import AUTO, COUNT, FRACTION, SIZE, Interval, OneOf, parameter
from skdpadmm.algorithms import _agent_blocks as blocks
from skdpadmm.algorithms import _messages as messages
from skdpadmm.algorithms._algorithm import Algorithm, Released, penalty_operator, refuse
from skdpadmm.algorithms._clipped_sums import ClippedSum
from skdpadmm.algorithms._defaults import agent_clip_factor, default_steps, stable_step
from skdpadmm.algorithms._messages import EDGE_NOISE, draw_schedule
from skdpadmm.algorithms._noise_left import Tail, averaged_solution
from skdpadmm.algorithms._shared_sums import CURATORS, SharesMessages, traffic
from skdpadmm.protocol import Agents, Budget, Facts, Gate, Plan, Problem, Solution, Summand
from skdpadmm.records import CANCELLATION, collect_agents

Array = NDArray[np.float64]
UNBOUNDED = ": at 1 no bound of a record's hidden state is known. Use 0.5"
DISPLACEMENT, MESSAGES = "mean displacement", "sum of messages"


@dataclass(kw_only=True, eq=False, repr=False)
class _Consensus(Algorithm):
    """Parameters that a curator and a federation share."""

    releases_path = True  # Whoever sees the model counts as seeing every released mean.
    noiseless = True
    distributed = True

    step_size: float | str = parameter("auto", AUTO, SIZE)
    clip_norm: float | str = parameter("auto", AUTO, SIZE)
    relaxation: float = parameter(0.5, Interval(Real, 0, 1, closed="neither", why=UNBOUNDED))
    tail_fraction: float = parameter(0.5, FRACTION)


@dataclass(kw_only=True, eq=False, repr=False)
class ConsensusADMM(_Consensus):
    r"""Consensus ADMM over records, private by fresh noise on the released mean.

    Solves :math:`\min_w \frac1n \sum_i f_i(w) + r(w)` with one block for each record. From
    :math:`u_i = z = 0`, each of K iterations computes, for all records at once,

    .. math::

        v_i &= 2 z - u_i, \qquad d_i = \mathrm{clip}(v_i - \mathrm{prox}_{\gamma f_i}(v_i), C) \\
        u_i &\leftarrow (1 - 2 \lambda) u_i + 2 \lambda (z - d_i) \\
        \hat z &= \tfrac1n \sum_i u_i + N(0, s^2 I), \qquad z = \mathrm{prox}_{\gamma r}(\hat z)

    and returns :math:`\mathrm{prox}_{\gamma r}` of the average of the last :math:`\hat z`. What
    passes the gate is the part of the mean that depends on data, in units of C, so the release is
    bounded, by 1 where lambda is at most 1/2.

    Parameters
    ----------
    step_size : float or "auto", default="auto"
        Step of the proximal operators (gamma), in the coordinates that it works in, conditioned or
        not; in [1e-100, 1e100].
    clip_norm : float or "auto", default="auto"
        Bound of the Euclidean norm of a record's gradient, in units of the typical norm of a row:
        the square root of the number of parameters, or in conditioned coordinates of the effective
        dimension, wider where rows share one direction. In [1e-100, 1e100]. The displacement is
        clipped at `step_size` times the bound.
    relaxation : float, default=0.5
        In (0, 1): 0.5 is the usual ADMM (Douglas-Rachford).
    record_step : {"auto", "exact", "linearized"}, default="auto"
        "exact" solves each record's proximal step, stable for any step size; "linearized" replaces
        it by a gradient step, ``d_i = clip(gamma * grad f_i(z), C)``: with relaxation 0.5 that is
        the proximal gradient method. "auto" linearises in conditioned coordinates, where it is as
        good and costs less, and for persons and weighted records, which have no other.
    tail_fraction : float, default=0.5
        In (0, 1]: share of the path, at its end, that is averaged; all of it is released.

    Notes
    -----
    **Guarantee.** Adversary "model", who sees the whole released path; unit: one record. Given
    what was released before, two neighbouring data sets differ in one record's state only, and
    ``du' = (1 - 2 lambda) du - 2 lambda (d - d')`` bounds the sensitivity of the k-th mean:
    ``Delta_k = c C (1 - (1 - 2 lambda)^k) / n`` for lambda <= 1/2, and
    ``c lambda C (1 - (2 lambda - 1)^k) / ((1 - lambda) n)`` above, with c = 2 for replace-one and
    1 for zero-out (the record's loss becomes the zero function). By adaptive composition of
    Gaussian mechanisms the path is GDP with ``mu = sqrt(sum_k Delta_k^2) / s``. This needs neither
    convexity nor accurate inner solutions: clipping comes after solving. At lambda = 1 nothing
    contracts a state and the bound is lost, so it is refused.

    With ``fit(X, y, persons=...)`` a block is a person, n is the number of persons, and
    :math:`f_i` is the mean loss of the person's rows. What is clipped is the mean gradient of a
    person, whose state is linear in the derivatives of its rows; the theorem is the same. With
    ``fit(X, y, sample_weight=...)`` what is clipped is the gradient times a weight in [0, 1].

    References
    ----------
    .. [1] E. Cyffers, A. Bellet, D. Basu, "From Noisy Fixed-Point Iterations to Private ADMM for
       Centralized and Federated Learning", ICML 2023, Algorithm 2 (corrected as above).

    Examples
    --------
    >>> from skdpadmm import DPAdmmRidge
    >>> from skdpadmm.algorithms import ConsensusADMM
    >>> model = DPAdmmRidge(algorithm=ConsensusADMM(record_step="linearized"), epsilon=2.0)
    >>> model.plan(n_samples=10_000, n_features=5).settings.record_step
    'linearized'
    """

    setting = "central"
    units = ("record", "person")  # Records are blocks, or persons by linearized steps.
    takes_corners = True

    takes_add_remove = True

    record_step: str = parameter("auto", AUTO, OneOf("exact", "linearized"))

    def check_facts(self, facts: Facts) -> None:
        """Persons and weighted records have no exact steps."""
        is_wrong = facts.is_weighted and self.record_step == "exact"
        got = "record_step='exact' with persons or sample weights"
        refuse("Their steps are gradient steps.", (is_wrong, got, "'linearized'"))

    def released(self, facts: Facts, budget: Budget) -> Released:
        """The displacement of the mean, in each iteration."""
        mu, is_exact = facts.remaining_mu(budget), facts.conditioning is None
        step_size, clip_norm = default_steps(facts, mu)
        if facts.is_weighted and is_exact:
            # Exact steps bear any size, and linearized ones do not.
            step_size, is_exact = min(step_size, stable_step(facts)), False
        settings = self.resolved(
            n_iter=facts.max_iter,
            step_size=step_size,
            clip_norm=clip_norm,
            record_step="exact" if is_exact else "linearized",
            message="state",
            rounds=replace(messages.EVERYONE, n_rounds=facts.max_iter),
        )
        sensitivities = path_sensitivities(facts, settings.relaxation, settings.n_iter)
        return settings, messages.gaussian_release(
            DISPLACEMENT, facts.model_shape, sensitivities, mu
        )

    def run(self, plan: Plan, problem: Problem, gate: Gate) -> Solution:
        """Iterate as planned; symbols as above, with the public part c of every state ``c - d``."""
        facts, settings, rows = plan.facts, plan.settings, problem.rows
        gamma, lam, n_iter = settings.step_size, settings.relaxation, settings.n_iter
        clip_norm = settings.clip_norm * rows.clip_unit
        displacement = placed_blocks(plan, problem, clip_norm)
        prox = penalty_operator(facts.penalty, gamma, rows)
        c = z = np.zeros(facts.model_shape)
        tail = Tail(settings.n_averaged)
        for k in range(n_iter):
            noisy = gate.release(DISPLACEMENT, displacement(z, c))
            c = (1 - 2 * lam) * c + 2 * lam * z
            mean = c - gamma * clip_norm * noisy
            model = prox(mean)
            z = rows.from_coordinates(model)
            if k >= n_iter - settings.n_averaged:
                tail.add(mean)
            problem.progress(k + 1, model)
        return averaged_solution(
            plan,
            rows,
            # One proximal step after averaging: an average of sparse vectors would not be sparse.
            prox(tail.mean),
            step_size=gamma,
            noise_std=plan.releases[-1].noise_std,
            path_variance=tail.score_variance(rows),
            n_iter=n_iter,
        )


@dataclass(kw_only=True, eq=False, repr=False)
class FederatedADMM(_Consensus, SharesMessages):
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
        clipped, to the last mean. That keeps messages of absent agents, but also all noise: it is
        the corrected Algorithm 3.
    sampling : {"poisson", "fixed"}, default="poisson"
        Each agent takes part by itself, or a fixed number of them does.
    max_participations : int or None, default=None
        Rounds after which an agent takes no further part. The run ends where agents reach it on
        average.
    tail_fraction : float, default=0.5
        In (0, 1]: share of the path, at its end, that is averaged; all of it is released.
    edge_noise : float or "auto", default="auto"
        In [0, 1e6]: variance of the noise that each pair of agents shares, one of them adding what
        the other subtracts, over that of an agent's own noise. It needs participation 1. 0: an
        agent relies on its own noise alone. "auto" is 100, or 0 where messages may be lost, agents
        sit rounds out, one of their budgets is far smaller than others, or it hides nothing.
    sharing : bool, default=False
        Whether messages are shared out among curators, as in
        :class:`~skdpadmm.algorithms.SecretSharingGradientDescent`, so that observers see sums.
        Then it serves agents on a graph, too. It takes no `participation` below 1.
    n_curators, threshold : int or None, default=None
        As there; only with `sharing`.

    Notes
    -----
    **Guarantee.** An agent adds noise of its own to each message, and three observers see more or
    less of it. "server": every message. "sums": sums of messages, of which `n_honest` agents do not
    tell what they added. "model": the released path. Unit: one record, or all records of an agent.
    Given what was released before, a unit's states are functions of its own rows, so a message
    has sensitivity :math:`2 C (1 - (1 - 2 \lambda)^j)` in an agent's j-th round, and Gaussian
    mechanisms compose exactly. Replace-one; half of it for zero-out. No convexity and no accuracy
    of local solutions is needed: clipping comes after solving.

    With `edge_noise` r, every two agents draw Gaussian vectors from a seed that only they know; one
    adds them to its messages and the other subtracts them. The sum is as without them. A server
    that knows all of all but H = `n_honest` agents sees messages of these whose noise has the
    covariance :math:`s^2 (I + r L)`, with the Laplacian L of the complete graph of H agents. So it
    learns as much as from sums of :math:`(1 + r H) / (1 + r)` messages with noise s each. The
    guarantee is computational, because noise is generated from seeds. A lost message is
    post-processing of all of them, but what it shared stays in the sum: a variance of
    :math:`r s^2` for each agent whose message arrives.

    Where agents sit rounds out at random, an agent influences only the rounds that it takes part
    in, and the guarantee is the mean over their number, ``E_N[delta(N rounds)]``, even if it is
    known who took part. It improves on that, as Poisson sampling does, for whole agents, Poisson
    rounds, and an observer who sees only the model. Noise is then sent by everyone, whoever takes
    part; an agent that is zeroed out sends noise alone, for every observer. Drop-outs never weaken
    a guarantee: a round in which fewer messages arrive than the plan demands is void.

    With `sharing` a message is rounded to the grid of its noise before curators add it up, so the
    j-th sum has sensitivity :math:`2 C (1 - (1 - 2 \lambda)^j) + g \sqrt d` for d entries and
    cells g, against the noise of all agents outside of the coalition. States hold no noise, so that
    none of it comes back in later sums, as it does where the thesis [2]_ shares messages of ADMM.
    "server" are all curators together, or `threshold` of them; "sums" fewer.

    References
    ----------
    .. [1] E. Cyffers, A. Bellet, D. Basu, "From Noisy Fixed-Point Iterations to Private ADMM for
       Centralized and Federated Learning", ICML 2023, Algorithm 3 (corrected as above).
    .. [2] H. Xiao, "Local Differential Privacy in Decentralized Optimization", MIT, 2019, section
       2.1.

    Examples
    --------
    >>> from skdpadmm import DPFedRidge
    >>> from skdpadmm.algorithms import FederatedADMM
    >>> model = DPFedRidge(algorithm=FederatedADMM(relaxation=0.4), epsilon=2.0)
    >>> model.plan(n_samples=10_000, n_features=5).settings.relaxation
    0.4
    >>> shared = FederatedADMM(sharing=True, n_curators=5, threshold=3)
    >>> model = DPFedRidge(algorithm=shared, adversary="sums", dropout=0.1, n_agents=50)
    >>> plan = model.plan(n_samples=10_000, n_features=5)
    >>> plan.releases[-1].fewest, round(plan.guarantee("sums").epsilon(1e-5), 3)
    (40, 1.0)
    """

    setting = ("federated", "decentralized")

    local_step: str = parameter("auto", AUTO, OneOf("exact", "linearized"))
    message: str = parameter("state", OneOf("state", "increment"))
    sampling: str = parameter("poisson", OneOf("poisson", "fixed"))
    max_participations: int | None = parameter(None, None, COUNT)
    edge_noise: float | str = parameter("auto", AUTO, EDGE_NOISE)
    sharing: bool = parameter(False, "boolean", is_later=True)
    n_curators: int | None = parameter(None, None, CURATORS, is_later=True)
    threshold: int | None = parameter(None, None, CURATORS, is_later=True)

    @property
    def distributed(self) -> bool:  # type: ignore[override]
        """Whether its records may be elsewhere: messages of single agents may not."""
        return not self.sharing

    def share_among(self, agents: Agents) -> Agents:
        """The agents, with their curators where messages are shared, or the noise of pairs."""
        self.check_parameters()
        if self.sharing:
            return super().share_among(agents)
        return messages.with_edge_noise(agents, self.edge_noise)

    def check_facts(self, facts: Facts) -> None:
        """States of agents that sit rounds out need a relaxation of one half; graphs, sharing."""
        is_graph = facts.setting == "decentralized"
        has_curators = self.n_curators is not None or self.threshold is not None
        refuse(
            "Messages of ADMM are shared out among curators with sharing=True alone.",
            (not self.sharing and is_graph, "sharing=False on a graph", "sharing=True"),
            (not self.sharing and has_curators, "curators with sharing=False", "sharing=True"),
        )
        if self.sharing:
            got = f"edge_noise={self.edge_noise} with sharing=True"
            pairs = self.edge_noise not in ("auto", 0)
            refuse("Shares hide messages already.", (pairs, got, "'auto' or 0"))
            self.check_sharing(facts)
        if facts.agents.sit_out and self.message == "state" and self.relaxation != 0.5:
            raise ValueError(
                f"Got relaxation={self.relaxation} where agents may sit a round out, expected 0.5:"
                " else a state reveals in which rounds its agent took part. Use 0.5, or"
                " message='increment'."
            )

    def released(self, facts: Facts, budget: Budget) -> Released:
        """The sum of agents' messages, in each round."""
        rounds = messages.plan_rounds(
            facts, budget, sampling=self.sampling, cap=self.max_participations
        )
        if self.message == "state":
            sensitivities = path_sensitivities(facts, float(self.relaxation), rounds.n_rounds)
        else:
            sensitivity = ClippedSum(facts).sensitivity / facts.n_samples
            sensitivity *= 2 * float(self.relaxation) * (1 + rounds.n_rounds * 2.0**-50)
            sensitivities = (sensitivity,) * rounds.n_rounds
        plan_sum = self.planned_sum if self.sharing else messages.noisy_sum
        sums = plan_sum(facts, budget, rounds, name=MESSAGES, sensitivities=sensitivities)
        # The steps of a curator whose mean has as much noise.
        noise = sums.noise_std / float(rounds.expected_shares(facts.agents)[0])
        mu = math.hypot(*sensitivities) / noise if budget.is_private else math.inf
        if self.message == "increment":
            # Every model has the noise of all rounds before it.
            mu /= rounds.n_rounds
        step_size, clip_norm = default_steps(facts, mu)
        # Messages of agents are shorter than those of records: a wider clip and a shorter step.
        factor = agent_clip_factor(facts) if budget.is_private else 1.0
        conditioned_records = facts.conditioning is not None and facts.unit == "record"
        settings = self.resolved(
            n_iter=rounds.n_rounds,
            step_size=step_size / factor,
            clip_norm=clip_norm * factor,
            local_step="linearized" if conditioned_records else "exact",
            rounds=rounds,
        )
        return settings, sums

    def run(self, plan: Plan, problem: Problem, gate: Gate) -> Solution:
        """Run the rounds as planned; symbols as above."""
        facts, settings, rows = plan.facts, plan.settings, problem.rows
        gamma, n_iter, n_averaged = settings.step_size, settings.n_iter, settings.n_averaged
        clip_norm = settings.clip_norm * rows.clip_unit
        schedule = draw_schedule(settings.rounds, facts.agents, gate)
        server = (States if settings.message == "state" else Increments)(plan)
        everyone = bool(schedule.takes_part.all())
        send = gate.share if facts.agents.n_curators else gate.release
        message = placed_blocks(plan, problem, clip_norm, everyone=everyone)
        prox = penalty_operator(facts.penalty, gamma, rows)
        n_completed = int(schedule.sends[-n_averaged:].any(axis=1).sum())
        mean = z = np.zeros(facts.model_shape)
        tail = Tail(n_completed)
        for k in range(n_iter):
            if not schedule.sends[k].any():
                gate.skip(MESSAGES)
                problem.progress(k + 1)
                continue
            active = schedule.takes_part[k]
            value = message(z, server.center, None if everyone else active)
            noisy = gamma * clip_norm * send(MESSAGES, value, schedule.sends[k])
            mean = server.mean(noisy, z, k, active)
            model = prox(mean)
            z = rows.from_coordinates(model)
            if k >= n_iter - n_averaged:
                tail.add(mean)
            problem.progress(k + 1, model)
        amplified = math.sqrt(np.mean(server.arriving[-n_averaged:] ** -2))
        return averaged_solution(
            plan,
            rows,
            prox(tail.mean if n_completed else mean),
            step_size=gamma,
            noise_std=plan.releases[-1].noise_std * amplified,
            path_variance=tail.score_variance(rows),
            **traffic(plan, schedule.sends),
        )


class States:
    """The server's mean where messages are states, whose public part is the same for all."""

    def __init__(self, plan: Plan) -> None:
        self.relaxation = plan.settings.relaxation
        self.arriving = plan.settings.rounds.expected_shares(plan.facts.agents)
        self.center = np.zeros(plan.releases[-1].shape)

    def mean(self, noisy: Array, z: Array, k: int, active: NDArray[np.bool_]) -> Array:
        """The noisy mean of the agents that take part in a round."""
        self.center = (1 - 2 * self.relaxation) * self.center + 2 * self.relaxation * z
        return np.asarray(self.center - noisy / self.arriving[k])


class Increments:
    """The server's mean where messages are changes of states, whose public parts may differ."""

    def __init__(self, plan: Plan) -> None:
        # Agents that are protected as a whole send all of a change, others what is not public.
        self.relaxation, self.sends_all = plan.settings.relaxation, plan.facts.unit == "agent"
        self.weights = np.asarray(plan.facts.agents.agent_sizes) / plan.facts.n_samples
        self.centers = np.zeros((len(self.weights), *plan.releases[-1].shape))
        self.last, self.arriving = np.zeros(self.centers[0].shape), np.ones(plan.settings.n_iter)

    @property
    def center(self) -> Array:
        """The public part of a state, where everyone takes part in every round."""
        return np.asarray(self.centers[0])

    def mean(self, noisy: Array, z: Array, k: int, active: NDArray[np.bool_]) -> Array:
        """The last mean and the noisy sum of changes."""
        if self.sends_all:
            self.last = self.last + noisy
            return self.last
        change = 2 * self.relaxation * (z - self.centers[active])
        self.centers[active] += change
        self.last = self.last + np.einsum("a,ajk->jk", self.weights[active], change) - noisy
        return self.last


def path_sensitivities(facts: Facts, relaxation: float, n_updates: int) -> tuple[float, ...]:
    """Sensitivity of the mean displacement after a record's first, second, ... update.

    In units of the clip bound.
    """
    lam, sensitivity = relaxation, ClippedSum(facts).sensitivity / facts.n_samples
    iterations = np.arange(1, n_updates + 1)
    # 1 - |1 - 2 lambda|^k, without cancellation at either end of the range of lambda.
    with np.errstate(divide="ignore"):
        reached = -np.expm1(iterations * np.log1p(-2 * min(lam, 1 - lam)))
    largest = sensitivity * max(1.0, lam / (1 - lam))
    # A state is rounded once in each iteration.
    cancelling = CANCELLATION if facts.unit == "person" else 1.0
    widened = largest * reached * (1 + cancelling * iterations * 2.0**-50)
    return tuple(widened.tolist())


def placed_blocks(
    plan: Plan, problem: Problem, clip_norm: float, *, everyone: bool = True
) -> Callable[..., Array]:
    """Place records or agents; returns the sum of their messages in units of the clip bound.

    That is a function of z, of the public part of states, and of who takes part if not everyone.
    Where messages are shared out it returns that of each agent.
    """
    facts, settings, rows, agents = plan.facts, plan.settings, problem.rows, plan.facts.agents
    is_central, each = facts.setting == "central", agents.n_curators > 0
    update = blocks.BlockUpdate(
        loss=facts.loss,
        step_size=settings.step_size,
        relaxation=settings.relaxation,
        exact="exact" == (settings.record_step if is_central else settings.local_step),
        increments=settings.message == "increment",
    )
    if facts.unit == "agent":
        limits, unit = facts.unit_limits[agents.kind], settings.step_size * clip_norm
        parts = blocks.agent_blocks(problem, update, clip_norm=clip_norm, limits=limits)
        is_long = not parts[0].keeps_closed_forms
        placed = problem.engine.place(parts, long_tasks=is_long)
        advance = blocks.AgentBlocks.advance_each if each else blocks.AgentBlocks.advance
        return lambda z, c, active: placed.sum(advance, z, c, active) / unit
    unit = clip_norm * facts.n_rows
    keeps_states = not everyone or update.exact or update.increments or update.relaxation != 0.5
    if not keeps_states and not each:
        # States are gradients of the last point: nothing has to be kept.
        gradients = ClippedSum(facts, clip_norm).over(problem)
        return lambda z, c, active=None: gradients(z) / unit
    choices: dict[str, Any] = {"update": update, "clip_norm": clip_norm, "everyone": everyone}
    if each:
        of_agents = problem.engine.place(blocks.record_blocks(problem, **choices, each=True))

        def shared(z: Array, c: Array, active: Array | None = None) -> Array:
            raw = of_agents.sum(blocks.RecordBlocks.advance_each, z, c, active, agents.n_agents)
            return collect_agents(rows, raw) / unit

        return shared
    records = problem.summed(partial(_placed_records, choices))

    def messages_of_records(z: Array, c: Array, active: Array | None = None) -> Array:
        return rows.collect(records(z, c, active)).reshape(z.shape) / unit

    return messages_of_records


def _placed_records(choices: dict[str, Any], problem: Problem) -> Summand:
    """The raw sum of the messages of records, whose states it keeps."""
    placed = problem.engine.place(blocks.record_blocks(problem, **choices))
    return partial(placed.sum, blocks.RecordBlocks.advance)
