"""Steps of personalised models that heed their noise: measured rules around a loop.

How far agents trust their rows beside their neighbours, what a warm start makes of the first
gradients, and how much models are averaged at the end. All of it follows from public facts, from
what was released, and from public noise that has the law of the noise in models.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from skdpadmm.algorithms import _personalized_defaults as defaults
from skdpadmm.algorithms._defaults import typical_row
from skdpadmm.algorithms._turns import GradientTurns
from skdpadmm.network import Similarity
from skdpadmm.protocol import Plan, neighborhood_of
from skdpadmm.records import Coordinates

Array = NDArray[np.float64]

# Of the linear system of the warm start: far below its noise.
TOLERANCE = 1e-4
# How much the agent that is trusted most counts at least, beside the mean of its neighbours. The
# warm start was best with it for 2 to 100 parameters and budgets from .15 to 4.
FARTHEST_PULL = 0.3
N_PROBES = 8
# Probes of the path, over all agents: their mean square has to be known well.
N_PATH_PROBES = 256
# Keeps the public randomness of the probes apart from that of the order of wake-ups.
PROBE_STREAM, PATH_STREAM = 1, 2
# The least weight of an agent's own model, beside the largest one: without it agents that only
# average over neighbours would take too long to learn of anybody else.
LEAST_PULL = 1e-3
# Rounds of averaging that noise may ask for: 1, 2, 4, and so on; what the agent with the least
# noise does in each; and the least that is left of models, whose signs count however noisy.
MOST_ROUNDS, LEAST_PART, LEAST_FACTOR = 32, 1e-3, 0.03


class PlainPath:
    """The update as it stands, with steps from public bounds, and its last models."""

    def __init__(self, plan: Plan, clip_norm: float, coordinates: Coordinates) -> None:
        facts = plan.facts
        self.pull = defaults.own_pull(facts) * defaults.have_rows(facts)
        smoothness = defaults.largest_smoothness(facts, coordinates)
        self.step = np.asarray(1.0 / (1.0 + self.pull * smoothness))

    def start(self, models: Array, noise: Array) -> None:
        """Note the models of a warm start, which took the first turn, and what noise it left."""

    def sweeps(self, order: NDArray[np.intp]) -> NDArray[np.intp]:
        """All wake-ups, in pieces between which something happens."""
        return order[None]

    def extrapolate(self, models: Array) -> None:
        """Move models before a sweep, in place."""

    def sweep_is_over(self, models: Array, n_sweeps: int) -> None:
        """Note the models after a sweep."""

    def result(self, models: Array) -> tuple[Array, float]:
        """What agents end up with, and the variance of noise in a typical score."""
        return models, 0.0


class TemperedPath(PlainPath):
    """A path that heeds its noise, and public noise that goes the same way, to know what is left.

    Probes go in whole sweeps, which are much like sweeps one by one, with the usual curvature in
    place of that of the rows.
    """

    def __init__(self, plan: Plan, clip_norm: float, coordinates: Coordinates) -> None:
        facts, settings, release = plan.facts, plan.settings, plan.releases[-1]
        agents = neighborhood_of(facts)
        self._facts, self._settings, self._agents = facts, settings, agents
        self._noise = [
            defaults.noise_of_agents(facts, release, clip_norm=clip_norm, weight=weight)
            for weight in settings.weights
        ]
        whole = np.sqrt(np.mean(np.square(self._noise), axis=0) / settings.turns)
        self.pace = defaults.pace_of_agents(facts, coordinates, whole, settings.turns)
        self.pull, self.step = self.pace.pull, self.pace.step
        self._signal = defaults.signal_of_path(
            facts, self.pace, clip_norm=clip_norm, law=release.law, n_turns=settings.turns
        )
        n_probes = max(N_PROBES, -(-N_PATH_PROBES // agents.n_agents))
        self._random = _public_random(settings.order_seed, PATH_STREAM)
        self._probes = self._probes_before = np.zeros((agents.n_agents, n_probes))
        self._before = self._model_sum = np.zeros(release.shape)
        self._probe_sum = np.zeros_like(self._probes)
        self._turn = self._sweep = self._n_summed = 0

    def start(self, models: Array, noise: Array) -> None:
        """Note the models of a warm start, which took the first turn, and what noise it left."""
        n_probes = self._probes.shape[1]
        # Columns of the warm start in another order and with signs are as good as new.
        signs = self._random.choice([-1.0, 1.0], size=n_probes)
        self._probes = signs * noise[:, np.arange(n_probes) % noise.shape[1]]
        self._probes_before, self._before, self._turn = self._probes, models, 1

    @property
    def _learns(self) -> bool:
        return self._turn < self._settings.turns

    def sweeps(self, order: NDArray[np.intp]) -> NDArray[np.intp]:
        """One wake-up of each agent after another, in each row."""
        return order.reshape(-1, self._agents.n_agents)

    def extrapolate(self, models: Array) -> None:
        """Repeat a part of what the last sweep changed, in place."""
        before, probes = models.copy(), self._probes
        if self._learns:
            momentum = self.pace.momentum
            models += momentum[:, None, None] * (models - self._before)
            self._probes = probes + momentum[:, None] * (probes - self._probes_before)
        self._before, self._probes_before = before, probes

    def sweep_is_over(self, models: Array, n_sweeps: int) -> None:
        """Let probes follow, and sum up the second half."""
        ahead, pace = self._probes, self.pace
        moved = defaults.neighbor_means(self._agents.similarity, ahead) - ahead
        if self._learns:
            added = self._noise[self._turn][:, None] * self._random.standard_normal(ahead.shape)
            slopes = defaults.usual_curvature(self._facts) * ahead + added
            moved = moved - pace.pull[:, None] * slopes
            self._turn += 1
        self._probes = ahead + pace.step[:, None] * moved
        self._sweep += 1
        if self._sweep > n_sweeps // 2:
            self._n_summed += 1
            self._model_sum = self._model_sum + models
            self._probe_sum = self._probe_sum + self._probes

    def result(self, models: Array) -> tuple[Array, float]:
        """The mean of the second half, smoothed, and the variance of noise in a typical score."""
        probes, factor = self._probes, 1.0
        if self._n_summed > 0:
            models, probes = self._model_sum / self._n_summed, self._probe_sum / self._n_summed
        if self._settings.is_smoothed:
            models, probes, factor = smooth_by_noise(
                self._agents.similarity, models, probes, defaults.have_rows(self._facts)
            )
            # Estimates of the risk err where agents are few, but what to expect is public.
            noise = float(np.square(probes).mean()) / factor**2
            trust = self._signal / (self._signal + noise) if noise > 0 else 1.0
            lower = min(max(trust, LEAST_FACTOR) / factor, 1.0)
            models, probes, factor = lower * models, lower * probes, lower * factor
        # What is scaled down by the share of signal leaves the share of noise.
        variance = float(np.square(probes).mean()) / factor
        return models, variance * typical_row(self._facts) ** 2


def _public_random(seed: int, stream: int) -> np.random.Generator:
    """Random numbers that whoever knows the seed can make, apart from the order of wake-ups."""
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(seed, spawn_key=(stream,))))


def warm_start(plan: Plan, turns: GradientTurns, clip_norm: float) -> tuple[Array, int, Array]:
    """Models of the first turn's gradients, smoothed; rounds; what noise is left."""
    facts, settings, release = plan.facts, plan.settings, plan.releases[-1]
    agents, has_rows = neighborhood_of(facts), defaults.have_rows(facts)
    models, who = np.zeros(release.shape), np.flatnonzero(has_rows)
    curvature = defaults.typical_curvature(facts)
    models[who] = -turns.gradient(who, models[who]) / curvature
    trust, noise = has_rows.astype(np.float64), np.zeros(len(models))
    if plan.budget.is_private:
        noise = defaults.noise_of_agents(
            facts, release, clip_norm=clip_norm, weight=settings.weights[0]
        )
        trust = defaults.noise_trust(facts, noise, clip_norm=clip_norm, law=release.law)
    relative = np.asarray(agents.confidence) * trust
    # Noise is a reason to trust others more, but not to smooth until everybody is like everybody.
    pull = max(agents.trade_off * curvature * relative.max(), FARTHEST_PULL) * np.maximum(
        relative / relative.max(), LEAST_PULL
    )
    # Public noise of the same size goes along, to see how much of it is left.
    random = _public_random(settings.order_seed, PROBE_STREAM)
    probes = noise[:, None] / curvature * random.standard_normal((len(models), N_PROBES))
    both = np.concatenate([models.reshape(len(models), -1), probes], axis=1)
    both, n_rounds = propagate(agents.similarity, both, pull, tolerance=TOLERANCE)
    smoothed, left = both[:, :-N_PROBES], both[:, -N_PROBES:]
    factor = defaults.left_of_noise(smoothed, left)
    return factor * smoothed.reshape(models.shape), n_rounds, factor * left


def propagate(
    similarity: Similarity, models: Array, pull: Array, *, tolerance: float
) -> tuple[Array, int]:
    r"""Smooth public models (n_agents, k), by broadcasts whose number is fixed before.

    .. math:: \min_\Theta \frac12 \sum_{i<j} W_{ij} \|\Theta_i - \Theta_j\|^2
              + \frac12 \sum_i D_i b_i \|\Theta_i - \Theta_i^{loc}\|^2

    with a positive `pull` b of each agent to its own model. In each round every agent takes a step
    towards the mean of its neighbours and its own model, with the momentum of Chebyshev's
    semi-iteration. The tolerance is that of the error, beside the error of the start, `models`.
    (Vanhaesebrouck, Bellet, Tommasi, "Decentralized collaborative learning of personalized models
    over networks", AISTATS 2017; in this form appendix B of the source above.)
    """
    if similarity.n_agents == 1:
        return models.copy(), 0
    own = pull[:, None]
    # Eigenvalues of the iteration lie in [-radius, radius].
    radius = 1.0 / (1.0 + float(pull.min()))
    n_rounds = math.ceil(math.log(2.0 / tolerance) / math.acosh(1.0 / radius))
    before, smoothed, weight = models, models, 1.0
    for k in range(n_rounds):
        moved = (defaults.neighbor_means(similarity, smoothed) + own * models) / (1.0 + own)
        if k > 0:
            weight = 1.0 / (1.0 - radius**2 * weight / (2.0 if k == 1 else 4.0))
        before, smoothed = smoothed, before + weight * (moved - before)
    return smoothed, n_rounds


def smooth_by_noise(
    similarity: Similarity, models: Array, probes: Array, has_rows: NDArray[np.bool_]
) -> tuple[Array, Array, float]:
    """Average public models over neighbours, and scale them down, as far as their noise asks.

    In each round every agent goes a part of the way to the mean of its neighbours, the noisiest one
    half of it. How many rounds, and by how much models are scaled down, is what Stein's unbiased
    estimate of the risk says of models that consist of signal and of noise of a known law. All of
    it is public. Where there is no noise nothing happens.

    Probes, of shape (n_agents, n_probes), are noise of the law that is in each entry of the models,
    drawn anew. Returns the models, what became of the probes, and by what both were scaled down.
    """
    n_agents, n_entries = len(models), models[0].size
    variance = np.square(probes).mean(axis=1)
    if not variance.any():
        return models, probes, 1.0
    part = 0.5 * np.where(has_rows, variance / variance.max(), 1.0)
    part = np.maximum(part, LEAST_PART)[:, None]
    flat = models.reshape(n_agents, -1)
    # Of few entries noise may be more than it is on average: by a standard deviation.
    caution = 1.0 + math.sqrt(2.0 / flat.size)
    both = np.concatenate([flat, probes], axis=1)
    best, least, chosen = math.inf, 1.0, both
    for k in range(1 if n_agents == 1 else MOST_ROUNDS + 1):
        if k > 0:
            both = both + part * (defaults.neighbor_means(similarity, both) - both)
        if k & (k - 1):
            continue
        smoothed, left = both[:, :n_entries], both[:, n_entries:]
        through = n_entries / probes.shape[1] * float(np.vdot(probes, left))
        size, common = float(np.vdot(smoothed, smoothed)), float(np.vdot(flat, smoothed))
        if not size > 0:
            continue
        factor, careful = (
            min(max((common - noise) / size, LEAST_FACTOR), 1.0)
            for noise in (through, caution * through)
        )
        risk = factor**2 * size - 2.0 * factor * (common - through)
        if risk < best:
            best, least, chosen = risk, careful, both
    chosen = least * chosen
    return chosen[:, :n_entries].reshape(models.shape), chosen[:, n_entries:], least
