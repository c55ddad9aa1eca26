"""Personal models without noise, or without neighbours: the optimum, local models, refits at home.

All three minimise ``1/2 <T, A T> - <b, T> + sum_i w_i (mean loss of agent i at T_i + 1/2 <T_i, q
T_i>)`` for a linear map A that is symmetric and not negative, by Newton's method for the models of
many agents at once.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from skdpadmm._sklearn import Interval, parameter
from skdpadmm.algorithms import _personalized_defaults as defaults
from skdpadmm.algorithms._algorithm import Released
from skdpadmm.algorithms._turns import GRADIENTS, InTurns, Personal, agent_turns
from skdpadmm.engine import one_blas_thread
from skdpadmm.losses import MultinomialLoss
from skdpadmm.network import Ownership, Similarity
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
from skdpadmm.records import Rows, Segments, collect_agents, prepare_agents

Array = NDArray[np.float64]
OPTIMUM = "optimum"
# Size of the last step, beside the models, and the most steps.
TOLERANCE, MOST_STEPS = 1e-10, 100
# Above this many entries the agents' own Hessians are not kept: their diagonals have to do.
LARGEST_BLOCKS = 2**22
MOST_INNER_STEPS = 5000
# Of a Newton step, before its curvature is not believed.
SHORTEST = 1e-3


@dataclass(kw_only=True, eq=False, repr=False)
class PersonalizedOptimum(Personal):
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

    exact = True

    tolerance: float = parameter(TOLERANCE, Interval(Real, 0, 1, closed="both"))

    def released(self, facts: Facts, budget: Budget) -> Released:
        """All models, without noise."""
        if budget.is_private:
            raise ValueError(
                f"Got epsilon={budget.epsilon:g} for PersonalizedOptimum, expected inf: it adds no"
                " noise. Use PersonalizedCoordinateDescent."
            )
        settings = self.resolved(max_iter=max(facts.max_iter, MOST_STEPS))
        return settings, not_private(OPTIMUM, shape_of_models(facts), facts.observers)

    def run(self, plan: Plan, problem: Problem, gate: Gate) -> Solution:
        """Minimise until a step is small beside the parameters."""
        return optimal_models(plan, problem, gate, coupled=True)


@dataclass(kw_only=True, eq=False, repr=False)
class LocalModels(InTurns):
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

    # Serves every budget: without privacy it minimises each agent's loss.
    exact = True

    def released(self, facts: Facts, budget: Budget) -> Released:
        """Gradients of all agents, in turns of equal noise."""
        n_turns, curvature = self.turns_of(facts, budget), defaults.typical_curvature(facts)
        if n_turns > 1:
            curvature = facts.loss.smoothness * facts.row_norm**2
        penalty = float(defaults.penalty_curvature(facts, facts.coordinates).max())
        settings = self.resolved(
            turns=n_turns,
            clip_norm=defaults.default_clip_norm(facts, budget) if budget.is_private else math.inf,
            step_size=1.0 / (curvature + penalty),
            tolerance=TOLERANCE,
            max_iter=max(facts.max_iter, MOST_STEPS),
        )
        if not budget.is_private:
            return settings, not_private(OPTIMUM, shape_of_models(facts), facts.observers)
        weights = np.ones(n_turns)
        turns = agent_turns(facts, budget, name=GRADIENTS, weights=weights, law=self.noise)
        return settings, turns

    def run(self, plan: Plan, problem: Problem, gate: Gate) -> Solution:
        """Descend as planned."""
        facts, settings, rows = plan.facts, plan.settings, problem.rows
        if not plan.budget.is_private:
            return optimal_models(plan, problem, gate, coupled=False)
        n_turns, n_agents = settings.turns, neighborhood_of(facts).n_agents
        clip_norm, turns = self.gradients(plan, problem, gate, np.ones(n_turns))
        curvature = defaults.penalty_curvature(facts, rows.coordinates)
        step = np.full(n_agents, settings.step_size)
        if n_turns > 1:
            noise = defaults.noise_of_agents(facts, plan.releases[-1], clip_norm=clip_norm)
            noise = noise / math.sqrt(n_turns)
            step = defaults.pace_of_agents(
                facts, rows.coordinates, noise, n_turns, isolated_step=settings.step_size
            ).step
        models, who = np.zeros(plan.releases[-1].shape), np.flatnonzero(defaults.have_rows(facts))
        for k in range(n_turns):
            own = models[who]
            models[who] = own - step[who, None, None] * (turns.gradient(who, own) + curvature * own)
            problem.progress(k + 1, models)
        return Solution(parameters=models.mean(axis=0), parameters_per_agent=models, n_iter=n_turns)


def shape_of_models(facts: Facts) -> tuple[int, int, int]:
    """An entry for each agent, parameter and score."""
    return neighborhood_of(facts).n_agents, facts.n_parameters, facts.loss.n_outputs


def optimal_models(plan: Plan, problem: Problem, gate: Gate, *, coupled: bool) -> Solution:
    """Models that minimise the joint objective, or each its agent's own."""
    settings = plan.settings
    objective, start = objective_of(plan, problem, coupled=coupled)
    models, n_iter, converged = objective.minimum(
        start, settings.tolerance, settings.max_iter, problem.progress
    )
    if not converged:
        # Nothing is private here, so the optimiser may warn.
        warnings.warn(
            f"Got no convergence in {n_iter} iterations at epsilon=inf, expected steps below"
            f" {settings.tolerance:g}. Increase max_iter or strengthen the penalty.",
            ConvergenceWarning,
            stacklevel=2,
        )
    released = gate.release(OPTIMUM, models)
    return Solution(parameters=released.mean(axis=0), parameters_per_agent=released, n_iter=n_iter)


def objective_of(plan: Plan, problem: Problem, *, coupled: bool) -> tuple[JointObjective, Array]:
    """The joint objective, or that of agents by themselves, and models of zeros."""
    facts, ownership = plan.facts, problem.ownership
    assert ownership is not None
    agents, start = neighborhood_of(facts), np.zeros(plan.releases[-1].shape)
    coupled = coupled and agents.n_agents > 1
    weights, diagonal = np.ones(agents.n_agents), np.zeros(agents.n_agents)
    if coupled:
        diagonal = agents.similarity.degrees
        weights = agents.trade_off * diagonal * np.asarray(agents.confidence)
    objective = JointObjective(
        facts=facts,
        rows=problem.rows,
        target=problem.target,
        ownership=ownership,
        similarity=agents.similarity if coupled else None,
        diagonal=diagonal,
        linear=start,
        weights=np.where(ownership.sizes > 0, weights, 0.0),
    )
    return objective, start


def local_start(plan: Plan, problem: Problem) -> tuple[Array, Array]:
    """Agents' own minimisers, and bounds of curvature by their own rows: not private."""
    objective, start = objective_of(plan, problem, coupled=False)
    facts, rows, ownership = plan.facts, problem.rows, objective.ownership
    smoothness = np.full(ownership.n_agents, float(objective.curvature.max()))
    for agent in np.flatnonzero(ownership.sizes).tolist():
        A = rows.take([ownership.rows_of(agent)]).augmented(0)
        smoothness[agent] += facts.loss.smoothness * float(np.linalg.norm(A, 2)) ** 2 / len(A)
    return objective.minimum(start, TOLERANCE, MOST_STEPS)[0], smoothness


def refit_at_home(
    facts: Facts, rows: Rows, target: NDArray[Any], *, agent: int, models: Array
) -> Array:
    r"""Minimise the joint objective over the model of one agent, with its own rows.

    .. math:: \arg\min_\theta \frac12 \Big\|\theta - \sum_j \frac{W_{ij}}{D_i} \Theta_j\Big\|^2
              + \mu c_i L_i(\theta)

    Nothing is clipped and no noise is added: the answer is for this agent alone. It must not be
    stored or sent, and then it uses no budget: what others see does not depend on it. An agent
    without neighbours minimises its loss.

    Parameters
    ----------
    facts : Facts
        Of personalised models; the loss and the penalty are in units of the target of `rows`.
    rows : Rows
        Of this agent alone, in the coordinates of the models. None of them: the answer is the mean
        of the neighbours.
    target : ndarray of shape (n_own,)
        As the loss expects it, in the same coordinates.
    agent : int
        Its position.
    models : ndarray of shape (n_agents, n_parameters, n_outputs)
        Public models of all agents.

    Returns
    -------
    ndarray of shape (n_parameters, n_outputs)
    """
    agents = neighborhood_of(facts)
    center = defaults.neighbor_means(agents.similarity, models, np.array([agent]))
    if rows.n_samples == 0:
        return np.asarray(center[0])
    one, weight = (1.0, defaults.own_pull(facts)[agent]) if agents.n_agents > 1 else (0.0, 1.0)
    objective = JointObjective(
        facts=facts,
        rows=rows,
        target=target,
        ownership=Ownership(labels=np.arange(1), index=np.zeros(rows.n_samples, dtype=np.intp)),
        diagonal=np.array([one]),
        linear=one * center,
        weights=np.array([weight]),
    )
    # Threads are slower on the rows of one agent.
    with one_blas_thread():
        model, _, _ = objective.minimum(center, TOLERANCE, MOST_STEPS)
    return np.asarray(model[0])


@dataclass(frozen=True, eq=False, kw_only=True)
class JointObjective:
    """The objective, its derivatives and its minimum; models are (n_agents, n_parameters, K).

    Attributes
    ----------
    similarity : Similarity or None, default=None
        ``A T`` is `diagonal` times what models differ by from means of neighbours; None: from zero.
    diagonal : ndarray of shape (n_agents,)
    linear : ndarray of the shape of models
        b.
    weights : ndarray of shape (n_agents,)
        w; zero for agents without rows.
    """

    facts: Facts
    rows: Rows
    target: NDArray[Any]
    ownership: Ownership
    similarity: Similarity | None = None
    diagonal: Array
    linear: Array
    weights: Array

    @cached_property
    def curvature(self) -> Array:
        """Of the penalty: q, (n_parameters, 1)."""
        return defaults.penalty_curvature(self.facts, self.rows.coordinates)

    @cached_property
    def per_row(self) -> Array:
        """What a row weighs, of each agent, (n_agents, 1, 1)."""
        return _column(self.weights / np.maximum(self.ownership.sizes, 1))

    def coupling(self, models: Array) -> Array:
        """``A T``."""
        means = 0.0 if self.similarity is None else defaults.neighbor_means(self.similarity, models)
        return _column(self.diagonal) * (models - means)

    def sums(self, models: Array, slopes: Callable[[Array, slice], Array]) -> Array:
        """Weighted sums of slopes times rows, of each agent."""
        segments = Segments(rows=self.rows, owner=self.ownership.index.astype(np.int32))
        raw = segments.sums(prepare_agents(self.rows, models), slopes)
        return self.per_row * collect_agents(self.rows, raw)

    def at(self, models: Array) -> tuple[float, Array, Array]:
        """Value, gradient, and curvature of each row's loss, (n_samples, K, K)."""
        k = self.facts.loss.n_outputs
        bends, values = np.empty((self.rows.n_samples, k, k)), np.empty(self.rows.n_samples)

        def slopes(scores: Array, own: slice) -> Array:
            seen, target = scores[:, 0] if k == 1 else scores, self.target[own]
            bends[own] = self.facts.loss.curvature(seen, target).reshape(-1, k, k)
            values[own] = self.facts.loss.value(seen, target)
            return self.facts.loss.derivative(seen, target).reshape(scores.shape)

        gradient = self.sums(models, slopes)
        weights, pulled = _column(self.weights), self.coupling(models)
        penalty = weights * self.curvature * models
        value = float(values @ self.per_row[self.ownership.index, 0, 0])
        value += 0.5 * float(np.vdot(models, pulled + penalty))
        value -= float(np.vdot(self.linear, models))
        return value, gradient + (pulled + penalty) - self.linear, bends

    def hessian(self, direction: Array, bends: Array) -> Array:
        """The second derivative along a direction."""

        def slopes(scores: Array, own: slice) -> Array:
            return np.asarray(np.einsum("ijk,ik->ij", bends[own], scores))

        penalty = _column(self.weights) * self.curvature * direction
        return self.sums(direction, slopes) + self.coupling(direction) + penalty

    @cached_property
    def _free_shifts(self) -> tuple[NDArray[np.bool_], tuple[int, ...]] | None:
        """Parameters that scores of all classes share for nothing, and over what they are means."""
        free = self.curvature[:, 0] == 0
        if not (isinstance(self.facts.loss.unweighted, MultinomialLoss) and free.any()):
            return None
        shift = np.zeros((self.ownership.n_agents, len(free), self.facts.loss.n_outputs))
        shift[:, free] = 1.0
        largest = float(self.diagonal.max())
        if np.abs(self.coupling(shift)).max() > 1e-10 * largest:
            return None
        return free[:, None], (0, 2) if largest > 0 else (2,)

    def without_free_shifts(self, vectors: Array) -> Array:
        """Leave out what the objective is blind to: scores of all classes may move together.

        Without a penalty on a parameter that is a direction of each agent, or where agents pull at
        each other one of all of them. Rounding errors along it would be mistaken for gradients.
        """
        if self._free_shifts is None:
            return vectors
        free, axes = self._free_shifts
        return np.where(free, vectors - vectors.mean(axis=axes, keepdims=True), vectors)

    def preconditioner(self, bends: Array) -> Callable[[Array], Array]:
        """Inverse of what the Hessian makes of each agent by itself."""
        n, d, k = self.ownership.n_agents, len(self.curvature), self.facts.loss.n_outputs
        own = self.weights[:, None] * self.curvature[:, 0] + self.diagonal[:, None]
        if n * (d * k) ** 2 > LARGEST_BLOCKS:
            diagonal = self._diagonal(bends) + own[:, :, None]
            return lambda gradient: gradient / np.where(diagonal > 0, diagonal, 1.0)
        blocks = np.zeros((n, d * k, d * k))
        for agent in np.flatnonzero(self.ownership.sizes).tolist():
            where = self.ownership.rows_of(agent)
            A = self.rows.take([where]).augmented(0)
            block = np.einsum("id,ijk,ie->djek", A, bends[where], A, optimize=True)
            blocks[agent] = self.per_row[agent] * block.reshape(d * k, d * k)
        diagonal = np.repeat(own, k, axis=1)
        # Directions without any curvature have no gradient either.
        largest = np.maximum(np.einsum("ijj->ij", blocks).max(axis=1), diagonal.max(axis=1))
        diagonal = diagonal + 1e-13 * np.where(largest > 0, largest, 1.0)[:, None]
        blocks[:, np.arange(d * k), np.arange(d * k)] += diagonal
        inverse = np.linalg.inv(blocks)
        return lambda gradient: (inverse @ gradient.reshape(n, -1, 1)).reshape(gradient.shape)

    def _diagonal(self, bends: Array) -> Array:
        """Weighted sums of squared entries of rows, of each agent, times the largest curvature."""
        largest = np.abs(bends).sum(axis=2).max(axis=1)
        total = np.zeros((self.ownership.n_agents, len(self.curvature)))
        for block, where in enumerate(self.rows.slices):
            squares = largest[where, None] * np.square(self.rows.augmented(block))
            np.add.at(total, self.ownership.index[where], squares)
        return np.asarray((self.per_row[:, :, 0] * total)[:, :, None])

    def minimum(
        self,
        start: Array,
        tolerance: float,
        max_iter: int,
        progress: Callable[[int, Array], None] = lambda done, models: None,
    ) -> tuple[Array, int, bool]:
        """Models, how many steps of Newton's method it took, and whether it converged.

        It stops where a step is below the tolerance, beside the larger of 1 and the models.
        """
        models, accuracy = start, min(0.1 * tolerance, 1e-10)
        value, gradient, bends = self.at(models)
        k = self.facts.loss.n_outputs
        largest = np.tile(self.facts.loss.smoothness * np.eye(k), (self.rows.n_samples, 1, 1))
        for iteration in range(1, max_iter + 1):
            # Losses with flat parts, such as hinges, can lack curvature where a step needs it. With
            # the bound of the curvature in its place the full step is sure to descend.
            for seen, shortest in ((bends, SHORTEST), (largest, 1e-10)):
                step = self._newton_step(gradient, seen, accuracy)
                expected, length = float(np.vdot(gradient, step)), 1.0
                while True:
                    candidate = models + length * step
                    after, following, further = self.at(candidate)
                    # Near the optimum the decrease drowns in rounding; the full step is then right.
                    descends = after <= value + 1e-4 * length * expected + 1e-13 * abs(value)
                    if descends or length < shortest:
                        break
                    length /= 2
                if descends:
                    break
            models, value, gradient, bends = candidate, after, following, further
            progress(iteration, models)
            if np.abs(length * step).max() <= tolerance * max(1.0, np.abs(models).max()):
                return models, iteration, True
        return models, max_iter, -expected <= 1e-12 * abs(value)

    def _newton_step(self, gradient: Array, bends: Array, accuracy: float) -> Array:
        """Conjugate gradients for ``Hessian @ step = -gradient``."""
        precondition = self.preconditioner(bends)
        reduced = self.without_free_shifts
        step, residual = np.zeros(gradient.shape), -reduced(gradient)
        ahead = reduced(precondition(residual))
        direction, size = ahead, float(np.vdot(residual, ahead))
        first = size
        for _ in range(MOST_INNER_STEPS):
            if not size > accuracy**2 * first:
                break
            bent = self.hessian(direction, bends)
            along = float(np.vdot(direction, bent))
            if not (along > 0 and math.isfinite(along)):
                break
            step = step + size / along * direction
            residual = reduced(residual - size / along * bent)
            ahead = reduced(precondition(residual))
            before, size = size, float(np.vdot(residual, ahead))
            direction = ahead + size / before * direction
        return step


def _column(values: Array) -> Array:
    return values[:, None, None]
