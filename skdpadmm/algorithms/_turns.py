"""Releases of agents in turns: their noise and privacy loss, and gradients of awake agents.

A turn of an agent is a release of what its own rows make of public models. All that it sends is
made of its turns and of what it received, so its guarantee is that of its own turns.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from skdpadmm._sklearn import AUTO, COUNT, SIZE, OneOf, parameter
from skdpadmm.algorithms import _personalized_defaults as defaults
from skdpadmm.algorithms._algorithm import Algorithm, spent_before
from skdpadmm.algorithms._clipped_sums import ClippedSum, Law
from skdpadmm.algorithms._defaults import is_regression
from skdpadmm.noise import grid_cell
from skdpadmm.penalties import NoPenalty, SquaredL2
from skdpadmm.privacy import (
    GaussianDP,
    Guarantee,
    LaplaceDP,
    NonPrivate,
    calibrate_noise,
    compose,
    gaussian_mu,
)
from skdpadmm.protocol import Budget, Facts, Gate, Plan, Problem, Release, View, neighborhood_of

Array = NDArray[np.float64]
Positions = NDArray[np.intp]
GRADIENTS = "gradients of agents, in turns"
# Turns for each unit of signal, with Laplace noise.
REGRESSION_TURNS, CLASSIFICATION_TURNS = 2.5, 0.1


def agent_turns(facts: Facts, budget: Budget, *, name: str, weights: Array, law: Law) -> Release:
    """Plan what every agent releases in its turns, where a protected unit has norm one.

    The law of the noise decides the norm: Euclidean, or L1. Each turn is multiplied by its weight
    before noise is added. Refuses a budget that the grid alone exceeds.
    """
    agents = facts.agents
    n_entries, is_gaussian = facts.n_parameters * facts.loss.n_outputs, law == "gaussian"
    moved = ClippedSum(facts, law=law).sensitivity * weights
    # Both of two neighbours are rounded to the grid, each by half a cell in every entry.
    rounding = grid_cell(1.0) * (math.sqrt(n_entries) if is_gaussian else n_entries)

    def guarantee(scale: float) -> Guarantee:
        steps = (moved / scale + rounding).tolist()
        return GaussianDP(math.hypot(*steps)) if is_gaussian else compose(*map(LaplaceDP, steps))

    @cache
    def least_scale(epsilon: float, prior: Guarantee) -> float:
        """The least noise scale that meets a budget, after what was spent before."""
        # Epsilons of pure steps add up.
        left = epsilon - len(moved) * rounding
        pure = math.fsum(moved) / left * (1 + 1e-12) if left > 0 else math.inf
        if budget.is_pure and pure < math.inf:
            return pure
        if not compose(prior, guarantee(math.inf)).delta(epsilon) < budget.delta:
            raise ValueError(
                f"Got epsilon={epsilon:g} for {len(moved)} turns, expected a larger one, or fewer"
                " turns: the grid of the noise alone uses as much."
            )
        if is_gaussian and isinstance(prior, GaussianDP):
            # sum (moved / scale + rounding)^2 = mu^2 is a quadratic equation for 1 / scale.
            mu = math.sqrt(gaussian_mu(epsilon, budget.delta) ** 2 - prior.mu**2)
            a, b = float(moved @ moved), float(moved.sum()) * rounding
            c = mu**2 - len(moved) * rounding**2
            # A little more than enough, so that no rounding takes epsilon above the budget.
            return (b + math.sqrt(b**2 + a * c)) / c * (1 + 1e-12)
        found = calibrate_noise(lambda s: compose(prior, guarantee(s)), epsilon, budget.delta)
        # They meet the budget at every delta; a search may end just below them.
        return min(found, pure) if prior == GaussianDP(0.0) else found

    noise: tuple[float, ...] = (0.0,) * len(agents.sizes)
    guarantees: tuple[Guarantee, ...] = (NonPrivate(),) * len(agents.sizes)
    sensitivities: list[float] = [math.inf] * len(moved)
    if budget.is_private:
        pairs = zip(agents.budgets(budget.epsilon), spent_before(facts, budget), strict=True)
        scales, sensitivities = [least_scale(*pair) for pair in pairs], moved.tolist()
        # Laplace noise of scale one has the standard deviation sqrt(2).
        noise = tuple((1.0 if is_gaussian else math.sqrt(2.0)) * scale for scale in scales)
        guarantees = tuple(guarantee(scale) for scale in scales)
    return Release(
        name=name,
        shape=(agents.n_agents, facts.n_parameters, facts.loss.n_outputs),
        sensitivities=tuple(sensitivities),
        noise_std=max(noise),
        door="take_turns",
        made_of="agents",
        agent_noise_std=noise,
        # Every observer learns the same.
        views=tuple(View(observer=who, guarantees=guarantees) for who in agents.observers),
        law=law,
    )


class GradientTurns:
    """Gradients of agents' losses, clipped in the norm of the noise and released in turns.

    A record has the weight `record_weights` in its agent's loss. `clip_norm` bounds the gradient of
    a record, or of `limits` records, which an agent as a whole counts as at most. It is infinite
    only where the plan is not private. A turn is multiplied by its entry of `turn_weights` before
    noise is added, and divided by it afterwards.
    """

    def __init__(
        self,
        plan: Plan,
        problem: Problem,
        gate: Gate,
        *,
        clip_norm: float,
        turn_weights: Array,
        record_weights: Array,
        limits: Array,
    ) -> None:
        release = plan.releases[-1]
        assert release.door == "take_turns"
        self._gate, self._release, self._turn_weights = gate, release, turn_weights
        # The most that a unit adds to a sum of gradients, and to the gradient of its agent's loss.
        self._limits = limits * (clip_norm if math.isfinite(clip_norm) else 1.0)
        self._scales = record_weights * self._limits
        self._taken = np.zeros(len(limits), dtype=np.intp)
        gradients = ClippedSum(plan.facts, clip_norm, law=release.law)
        self._sums = gradients.of_some_agents(problem, self._limits)

    def gradient(self, agents: Positions, models: Array) -> Array:
        """Take the next turn of some agents, each once: noisy gradients at public models."""
        if not len(agents):
            return np.zeros(models.shape)
        values = self._sums(agents, models)
        weights = self._turn_weights[self._taken[agents], None, None]
        self._taken[agents] += 1
        noisy = self._gate.take_turns(self._release.name, agents, weights * values)
        return np.asarray(noisy / weights * self._scales[agents, None, None])


@dataclass(kw_only=True, eq=False, repr=False)
class Personal(Algorithm):
    """Agents with models of their own, in public coordinates."""

    setting = "personalized"
    conditionable = False

    def check_facts(self, facts: Facts) -> None:
        """Penalties are quadratic: their gradients are exact, and their curvature is known."""
        if not isinstance(facts.penalty, SquaredL2 | NoPenalty):
            raise ValueError(
                f"Got {facts.penalty!r}, expected SquaredL2 or none: models of agents are averaged,"
                " which keeps no zeros."
            )


@dataclass(kw_only=True, eq=False, repr=False)
class InTurns(Personal):
    """Agents whose gradients are clipped and released in turns."""

    releases_path = True  # Every observer counts as seeing all models that are sent.

    turns: int | str = parameter("auto", AUTO, COUNT)
    noise: Law = parameter("gaussian", OneOf("gaussian", "laplace"))
    clip_norm: float | str = parameter("auto", AUTO, SIZE)

    def default_turns(self, facts: Facts, budget: Budget) -> int:
        """How often agents use their rows by default, the warm start included.

        Gaussian noise of many turns adds up to that of one, and many turns look at better models:
        as many as there may be. With Laplace noise a turn has to be worth its noise, which is a
        matter of the signal. A classifier has most of what it can learn after one look. A
        regression needs many: its scale counts, and features are correlated.
        """
        if not budget.is_private or self.noise == "gaussian":
            return facts.max_iter
        rate = REGRESSION_TURNS if is_regression(facts) else CLASSIFICATION_TURNS
        n_turns = round(rate * defaults.signal_beside_noise(facts, budget))
        return min(max(n_turns, 1), facts.max_iter)

    def turns_of(self, facts: Facts, budget: Budget) -> int:
        """How often agents use their rows, by `turns` or by default."""
        return self.default_turns(facts, budget) if self.turns == "auto" else int(self.turns)

    def gradients(
        self, plan: Plan, problem: Problem, gate: Gate, weights: Array
    ) -> tuple[float, GradientTurns]:
        """The clip bound in the norm of the noise, and gradients of agents' mean losses."""
        facts = plan.facts
        clip_norm = plan.settings.clip_norm * problem.rows.clip_unit
        if self.noise == "laplace":
            clip_norm *= math.sqrt(facts.n_parameters)
        sizes = np.maximum(neighborhood_of(facts).agent_sizes, 1.0)
        gradients = GradientTurns(
            plan,
            problem,
            gate,
            clip_norm=clip_norm,
            turn_weights=weights,
            record_weights=1.0 / sizes,
            limits=sizes if facts.unit == "agent" else np.ones(len(sizes)),
        )
        return clip_norm, gradients
