"""What algorithms over a graph share: noisy gradients of all agents, and averages.

Arrays of models, points and gradients have the shape (n_agents, n_parameters, n_outputs), in the
basis of the rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skdpadmm.algorithms._algorithm import Operator, penalty_operator
from skdpadmm.algorithms._clipped_sums import ClippedSum
from skdpadmm.algorithms._defaults import agent_clip_factor, default_steps, stable_step
from skdpadmm.algorithms._messages import calibrated_multipliers
from skdpadmm.algorithms._noise_left import Tail, noisy_solution, parameter_variance
from skdpadmm.losses import clip_vectors
from skdpadmm.network import Links
from skdpadmm.penalties import NoPenalty
from skdpadmm.privacy import GaussianDP, Guarantee, NonPrivate, PoissonSubsampledGaussian
from skdpadmm.protocol import (
    Budget,
    Facts,
    Gate,
    Plan,
    Problem,
    Release,
    Solution,
    View,
    network_of,
)
from skdpadmm.records import Rows

Array = NDArray[np.float64]
GRADIENTS = "gradients of agents"


def check_batches(sampling: float, facts: Facts) -> None:
    """Refuse batches where they protect nobody."""
    if sampling != 1 and facts.unit == "agent":
        raise ValueError(
            f"Got batch_fraction={sampling} with privacy_unit='agent', expected 1.0: batches of"
            " records protect records. Use privacy_unit='record'."
        )


def gradient_messages(facts: Facts, budget: Budget, *, n_times: int, sampling: float) -> Release:
    """Plan agents' clipped gradients, which `noisy_gradients` releases so many times.

    All that an agent sends is made of its own noisy gradients and of what it received, so the
    guarantee is that of its releases for every observer: an eavesdropper on every edge, a peer near
    or far, or somebody who only sees the model.
    """
    agents, limits = network_of(facts), facts.unit_limits
    sensitivity = ClippedSum(facts).sensitivity

    def family(multiplier: float) -> Guarantee:
        # Of steps to which a protected unit adds a norm of one.
        if sampling < 1:
            noise = multiplier / facts.working_rounding
            return PoissonSubsampledGaussian(sampling, noise, n_times, facts.neighboring)
        return GaussianDP(n_times**0.5 * sensitivity / multiplier)

    multipliers = calibrated_multipliers(facts, budget, family)
    factor = 1.0
    if agents.edge_noise:
        # The noise of all is the same, and that of others hides each message too.
        multipliers = tuple((float((limits * multipliers).max()) / limits).tolist())
        factor /= math.sqrt(agents.together(budget.observer, agents.n_agents))
    guarantees = tuple(family(each) if budget.is_private else NonPrivate() for each in multipliers)
    noise_std = factor * limits * np.asarray(multipliers)
    return Release(
        name=GRADIENTS,
        shape=(agents.n_agents, facts.n_parameters, facts.loss.n_outputs),
        sensitivities=(float(limits.max()) * sensitivity,) * n_times,
        noise_std=float(noise_std.max()),
        made_of="agents",
        agent_noise_std=tuple(noise_std.tolist()),
        views=tuple(View(observer=o, guarantees=guarantees) for o in agents.observers),
    )


def noisy_gradients(
    plan: Plan, problem: Problem, gate: Gate, *, clip_norm: float
) -> Callable[[Array], Array]:
    """Map models to gradients of ``F_a = (A / n) sum_{i in a} f_i``, clipped and released."""
    facts, network, sampling = plan.facts, network_of(plan.facts), plan.settings.batch_fraction
    sums = ClippedSum(facts, clip_norm).of_agents(problem)
    weight = network.n_agents / facts.n_samples * clip_norm / sampling

    def gradient(models: Array) -> Array:
        batch = gate.uniform((facts.n_samples,)) < sampling if sampling < 1 else None
        return weight * gate.release(GRADIENTS, sums(models, batch))

    return gradient


@dataclass(frozen=True, eq=False, kw_only=True)
class Round:
    """Who is present in a round, and the links between them that do not fail.

    An absent agent keeps its model and its duals. It counts as one whose gradient was released: the
    gradient of that round is dropped with its noise and never used.
    """

    present: NDArray[np.bool_]
    links: Links


def update(agents: NDArray[np.bool_], old: Any, new: Any) -> Any:
    """Values of all agents, new ones of some of them."""
    if agents.all():
        return new
    return np.where(agents.reshape(-1, *(1,) * (new.ndim - 1)), new, old)


def draw_rounds(plan: Plan, gate: Gate, n_rounds: int) -> Iterator[Round]:
    """Draw who is absent and which links fail, before the first round; nothing here sees data."""
    network = network_of(plan.facts)
    present = np.ones((n_rounds, network.n_agents), dtype=bool)
    if network.participation < 1:
        present = gate.uniform(present.shape) < network.participation
    links, p = [network.links_in(k) for k in range(n_rounds)], network.dropout
    live = [gate.uniform((each.n_edges,)) >= p if p > 0 else None for each in links]
    rounds = zip(present, links, live, strict=True)
    return (Round(present=here, links=each.among(here, alive)) for here, each, alive in rounds)


def noise_of_messages(plan: Plan, clip_norm: float) -> float:
    """Noise in the mean gradient of all agents, in each entry."""
    facts = plan.facts
    noise_std = np.asarray(plan.releases[-1].agent_noise_std)[network_of(facts).kind]
    total = clip_norm * float(np.sqrt(np.sum(np.square(noise_std))))
    return total / (facts.n_samples * float(plan.settings.batch_fraction))


def default_network_steps(
    facts: Facts, messages: Release, *, sampling: float = 1.0
) -> tuple[float, float]:
    """Step size and clip bound, by the rule for a curator who has as much noise in the sum.

    The step is one in the coordinates that the algorithm works in, the bound in units of
    `Rows.clip_unit`; there are as many messages as steps.
    """
    sensitivity = ClippedSum(facts).sensitivity
    noise_std = np.asarray(messages.agent_noise_std)[network_of(facts).kind]
    noise, n_times = float(np.linalg.norm(noise_std)) / sampling, len(messages.sensitivities)
    if noise == 0:
        # Losses of agents with more rows than others are that much steeper.
        steepest = max(network_of(facts).agent_sizes) * network_of(facts).n_agents / facts.n_samples
        return stable_step(facts) / steepest, math.inf
    step_size, clip_norm = default_steps(
        replace(facts, max_iter=n_times), math.sqrt(n_times) * sensitivity / noise
    )
    factor = agent_clip_factor(facts)
    return step_size / factor, clip_norm * factor


def proximal_steps(facts: Facts, rows: Rows) -> Callable[[Array, Array], Array]:
    """Map points and curvatures of shape (n_agents,) to models: ``prox_{r / curvature}``."""
    if isinstance(facts.penalty, NoPenalty):
        return lambda points, curvature: points

    @cache
    def operator(curvature: float) -> Operator:
        prox = penalty_operator(facts.penalty, 1.0 / curvature, rows)
        return lambda points: rows.from_coordinates(prox(points))

    def proximal(points: Array, curvature: Array) -> Array:
        models = np.empty(points.shape)
        for value in np.unique(curvature).tolist():
            who = curvature == value
            models[who] = _side_by_side(points[who], operator(value))
        return models

    return proximal


def _side_by_side(points: Array, operator: Operator) -> Array:
    """Apply what is made for one model to those of all agents."""
    columns = points.transpose(1, 0, 2)
    mapped = operator(columns.reshape(len(columns), -1))
    return mapped.reshape(columns.shape).transpose(1, 0, 2)


def into_ball(models: Array, radius: float) -> Array:
    """Project each agent's model onto the ball around zero."""
    return models if math.isinf(radius) else clip_vectors(models, np.full(len(models), radius))


def disagreement(links: Links, models: Array) -> Array:
    """``sum_{b in N_a} (w_a - w_b)`` of each agent; over all agents it sums to zero."""
    return np.asarray(links.degrees[:, None, None] * models - links.neighbor_sum(models))


@dataclass(eq=False)
class TailAverage:
    """The average of the last models, which agents end up with.

    An average of sparse models is not sparse. One more proximal step from an average of points is,
    where all of them are brought to its length, the mean `step_size`. Models that `are_common` are
    those of groups of agents, whose mean is the only answer.
    """

    plan: Plan
    rows: Rows
    step_size: float
    are_common: bool = False
    total: Any = 0.0

    def __post_init__(self) -> None:
        self._points = Tail(self.plan.settings.n_averaged)

    def add(self, k: int, models: Array, points: Array, curvature: Array) -> None:
        """Add the models of an iteration if it is averaged.

        Points are those of their proximal steps, which are ``1 / curvature`` long.
        """
        settings = self.plan.settings
        if not settings.n_iter - settings.n_averaged <= k < settings.n_iter:
            return
        self._points.add(models)
        if self.plan.facts.penalty.is_sparse:
            longer = (curvature * self.step_size)[:, None, None]
            models = models + longer * (points - models)
        self.total = self.total + (models.mean(axis=0) if self.are_common else models)

    def solution(
        self, *, noise_std: float, clip_norm: float, n_rounds: int, n_messages: int
    ) -> Solution:
        """What agents end up with after so many rounds, with noise in each mean gradient."""
        facts, settings, rows = self.plan.facts, self.plan.settings, self.rows
        finish: Operator = rows.to_coordinates
        if facts.penalty.is_sparse:
            finish = penalty_operator(facts.penalty, self.step_size, rows)
        answers = self.total / settings.n_averaged
        # Steps of the mean of all agents are as much shorter as fewer agents take them.
        present = network_of(facts).participation
        variance = parameter_variance(
            facts.loss,
            rows,
            step_size=present * self.step_size,
            noise_std=noise_std / math.sqrt(present),
            n_iter=settings.n_iter,
            n_averaged=settings.n_averaged,
        )
        return network_solution(
            facts,
            rows,
            finish(answers if self.are_common else answers.mean(axis=0)),
            variance,
            parameters_per_agent=None if self.are_common else _side_by_side(answers, finish),
            n_iter=settings.n_iter,
            n_rounds=n_rounds,
            n_messages=n_messages,
            derivative_bound=clip_norm / rows.typical_norm,
            path_variance=self._points.score_variance(rows),
        )


def network_solution(
    facts: Facts, rows: Rows, parameters: Array, variance: Array, *, n_messages: int, **fields: Any
) -> Solution:
    """A common model whose noise has that variance, with the messages sent, beside preparations."""
    # Every agent broadcasts its part of a preparation.
    passed, preparations = network_of(facts).n_per_broadcast, facts.preparations
    n_numbers = passed * sum(math.prod(release.shape) for release in preparations)
    return noisy_solution(
        facts,
        rows,
        parameters,
        variance,
        n_messages=n_messages + passed * len(preparations),
        bytes_sent=8 * (n_messages * parameters.size + n_numbers),
        **fields,
    )
