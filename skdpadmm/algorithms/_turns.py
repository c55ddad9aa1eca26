"""Releases of agents in turns: their noise and privacy loss, and gradients of awake agents.

A turn of an agent is a release of what its own rows make of public models. All that it sends is
made of its turns and of what it received, so its guarantee is that of its own turns.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from skdpadmm.algorithms._algorithm import spent_before
from skdpadmm.losses import Loss, clip_derivative, clip_vectors
from skdpadmm.network import Ownership
from skdpadmm.noise import grid_cell
from skdpadmm.privacy import (
    GaussianDP,
    Guarantee,
    LaplaceDP,
    NonPrivate,
    calibrate_noise,
    compose,
    gaussian_mu,
)
from skdpadmm.protocol import Budget, Facts, Gate, Plan, Problem, Release, View
from skdpadmm.records import Rows, Segments, collect_agents, prepare_agents

Array = NDArray[np.float64]
Positions = NDArray[np.intp]
Law = Literal["gaussian", "laplace"]
# Rows of agents that are awake are gathered, so many entries at a time.
GATHERED_ENTRIES = 2**21


def agent_turns(facts: Facts, budget: Budget, *, name: str, weights: Array, law: Law) -> Release:
    """Plan what every agent releases in its turns, where a protected unit has norm one.

    The law of the noise decides the norm: Euclidean, or L1. Each turn is multiplied by its weight
    before noise is added. Refuses a budget that the grid alone exceeds.
    """
    agents = facts.agents
    assert agents is not None
    n_entries, is_gaussian = facts.n_parameters * facts.loss.n_outputs, law == "gaussian"
    # Rounding is bounded in the Euclidean norm.
    widened = 1.0 if is_gaussian else math.sqrt(n_entries)
    unit = facts.neighboring.sensitivity_factor * (1.0 + (facts.working_rounding - 1.0) * widened)
    moved = unit * weights
    # Both of two neighbours are rounded to the grid, each by half a cell in every entry.
    rounding = grid_cell(1.0) * (math.sqrt(n_entries) if is_gaussian else n_entries)

    def guarantee(scale: float) -> Guarantee:
        steps = (moved / scale + rounding).tolist()
        return GaussianDP(math.hypot(*steps)) if is_gaussian else compose(*map(LaplaceDP, steps))

    @cache
    def least_scale(epsilon: float, prior: Guarantee) -> float:
        """The least noise scale that meets a budget, after what was spent before."""
        if not compose(prior, guarantee(math.inf)).delta(epsilon) < budget.delta:
            raise ValueError(
                f"Got epsilon={epsilon:g} for {len(moved)} turns, expected more: noise on a grid"
                " costs as much. Take fewer turns."
            )
        if is_gaussian and isinstance(prior, GaussianDP):
            # sum (moved / scale + rounding)^2 = mu^2 is a quadratic equation for 1 / scale.
            mu = math.sqrt(gaussian_mu(epsilon, budget.delta) ** 2 - prior.mu**2)
            a, b = float(moved @ moved), float(moved.sum()) * rounding
            c = mu**2 - len(moved) * rounding**2
            # A little more than enough, so that no rounding takes epsilon above the budget.
            return (b + math.sqrt(b**2 + a * c)) / c * (1 + 1e-12)
        found = calibrate_noise(lambda s: compose(prior, guarantee(s)), epsilon, budget.delta)
        if prior == GaussianDP(0.0):
            # Pure steps meet the budget at every delta; a search may end just below them.
            left = epsilon - len(moved) * rounding
            found = min(found, math.fsum(moved) / left * (1 + 1e-12) if left > 0 else math.inf)
        return found

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


def awake_gradients(
    rows: Rows,
    target: NDArray[Any],
    ownership: Ownership,
    *,
    loss: Loss,
    clip_norm: float,
    law: Law,
) -> Callable[[Positions, Array], Array]:
    """Map agents that are awake and their models to sums of gradients of their rows, each clipped.

    The norm is Euclidean or L1, by the law. Only the rows of these agents are read, no copy of X is
    kept, and nothing loops over agents. Models have the shape (n_awake, n_parameters, n_outputs).
    """
    # K slopes have an L1 norm of at most sqrt(K) times their Euclidean one.
    norms = (
        np.sqrt(rows.squared_norm)
        if law == "gaussian"
        else absolute_sums(rows) * math.sqrt(loss.n_outputs)
    )
    with np.errstate(divide="ignore"):
        slope_bound = clip_norm / norms
    by_agent = np.argsort(ownership.index, kind="stable")
    sizes = np.bincount(ownership.index, minlength=ownership.n_agents)
    begins = np.cumsum(sizes) - sizes
    most = max(GATHERED_ENTRIES // max(rows.coordinates.n_features, 1), 1)

    def sums(agents: Positions, models: Array) -> Array:
        own_sizes = sizes[agents]
        total = int(own_sizes.sum())
        if total == 0:
            return np.zeros(models.shape)
        first = np.repeat(begins[agents] - (np.cumsum(own_sizes) - own_sizes), own_sizes)
        index = np.sort(by_agent[first + np.arange(total)])
        position = np.empty(ownership.n_agents, dtype=np.int32)
        position[agents] = np.arange(len(agents), dtype=np.int32)
        own_target, own_bound = target[index], slope_bound[index]

        def slopes(scores: Array, own: slice) -> Array:
            flat = scores[:, 0] if loss.n_outputs == 1 else scores
            slope = loss.derivative(flat, own_target[own])
            return clip_derivative(slope, own_bound[own]).reshape(scores.shape)

        segments = Segments(rows=rows.take([index]), owner=position[ownership.index[index]])
        return collect_agents(rows, segments.sums(prepare_agents(rows, models), slopes))

    def sums_in_pieces(agents: Positions, models: Array) -> Array:
        piece, gradients = np.cumsum(sizes[agents]) // most, np.zeros(models.shape)
        cuts = [0, *(np.flatnonzero(np.diff(piece)) + 1).tolist(), len(agents)]
        for low, high in pairwise(cuts):
            gradients[low:high] = sums(agents[low:high], models[low:high])
        return gradients

    return sums_in_pieces


def absolute_sums(rows: Rows) -> Array:
    """L1 norms of augmented rows in public coordinates, rounded up."""
    coordinates, sums = rows.coordinates, np.empty(rows.n_samples)
    for block, where in enumerate(rows.slices):
        X = rows.tame(block)
        own, size = np.empty(X.shape[0]), max(GATHERED_ENTRIES // max(X.shape[1], 1), 1)
        for start in range(0, X.shape[0], size):
            part = X[start : start + size]
            dense = part if isinstance(part, np.ndarray) else part.toarray()
            seen = np.abs((dense - coordinates.offset) / coordinates.scale)
            own[start : start + size] = seen.sum(axis=1)
        sums[where] = own + float(coordinates.fit_intercept)
    return np.asarray(sums * rows.weight * (1 + 1e-12))


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
        release, of_records = plan.releases[-1], plan.facts.unit == "record"
        assert release.door == "take_turns"
        assert problem.ownership is not None
        is_clipped = math.isfinite(clip_norm)
        self._gate, self._release, self._turn_weights = gate, release, turn_weights
        self._clips_agents = is_clipped and not of_records
        # The most that a unit adds to a sum of gradients, and to the gradient of its agent's loss.
        self._limits = limits * (clip_norm if is_clipped else 1.0)
        self._scales = record_weights * self._limits
        self._taken = np.zeros(len(limits), dtype=np.intp)
        self._sums = awake_gradients(
            problem.rows,
            problem.target,
            problem.ownership,
            loss=plan.facts.loss,
            clip_norm=clip_norm if of_records else math.inf,
            law=release.law,
        )

    def gradient(self, agents: Positions, models: Array) -> Array:
        """Take the next turn of some agents, each once: noisy gradients at public models."""
        if not len(agents):
            return np.zeros(models.shape)
        values = self._sums(agents, models) / self._limits[agents, None, None]
        if self._clips_agents:
            values = clip_vectors(values, np.ones(len(agents)), self._release.law)
        weights = self._turn_weights[self._taken[agents], None, None]
        self._taken[agents] += 1
        noisy = self._gate.take_turns(self._release.name, agents, weights * values)
        return np.asarray(noisy / weights * self._scales[agents, None, None])
