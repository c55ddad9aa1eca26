"""Personalised models by private coordinate descent, whoever is awake.

Source: Bellet, Guerraoui, Taziki & Tommasi, "Fast and Differentially Private Algorithms for
Decentralized Collaborative Machine Learning" (hal-01665410, 2017), updates (5) and (6), with steps
from public constants, the norms that the noise needs, and exact composition.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from skdpadmm.algorithms._agent_turns import NoisyTurns, Wakes, neighbor_means
from skdpadmm.algorithms._defaults import typical_row
from skdpadmm.algorithms._knobs import (
    check_choice,
    check_count,
    check_flag,
    check_range,
    check_seed,
)
from skdpadmm.algorithms._model_propagation import (
    LEAST_FACTOR,
    LEAST_PULL,
    MOST_ROUNDS,
    propagate,
    smooth_by_noise,
)
from skdpadmm.algorithms._personalized_defaults import (
    FEWEST_TURNS,
    Pace,
    default_clip_norm,
    default_turns,
    left_of_noise,
    noise_of_agents,
    noise_trust,
    one_look_is_best,
    pace_of_agents,
    signal_of_path,
    typical_curvature,
    usual_curvature,
)
from skdpadmm.algorithms._personalized_theory import (
    block_constants,
    coordinate_contraction,
    wake_contraction,
)
from skdpadmm.algorithms._turn_noise import agent_turns, turn_weights
from skdpadmm.algorithms._wake_ups import (
    absolute_clip,
    check_squared_penalty,
    penalty_curvature,
    wake_order,
    weights_of_agents,
)
from skdpadmm.privacy import split_budget
from skdpadmm.protocol import Budget, Facts, Gate, Plan, Problem, Release, Solution, neighborhood_of
from skdpadmm.records import Coordinates

Array = NDArray[np.float64]

GRADIENTS = "gradients of agents, in turns"
# Of the linear system of the warm start: far below its noise.
PROPAGATION_TOLERANCE = 1e-4
# How much the agent that is trusted most counts at least, beside the mean of its neighbours. The
# warm start was best with it for 2 to 100 parameters and budgets from .15 to 4.
FARTHEST_PULL = 0.3
N_PROBES = 8
# Probes of the path, over all agents: their mean square has to be known well.
N_PATH_PROBES = 256
# With so few turns the first one is worth a warm start.
FEW_TURNS = 5
# Keeps the public randomness of the probes apart from that of the order of wake-ups.
PROBE_STREAM, PATH_STREAM = 1, 2


@dataclass(frozen=True, kw_only=True)
class PersonalizedCoordinateDescentSettings:
    """Constants of one run, resolved.

    Attributes
    ----------
    n_turns : int
        How often each agent uses its rows, the warm start included.
    averaging_wakes : int
        How often each averages after that, without its rows.
    is_smoothed : bool
        Whether models are smoothed in the end, as far as noise asks.
    tempered : bool
    clip_norm : float
        Bound of the norm of a unit's gradient, in units of `Rows.clip_unit`; for Laplace noise of
        its L1 norm, in units of that times the root of the number of parameters.
    weights : tuple of float
        Of each turn, in its noise: the larger, the less noise.
    warm_start : {"propagation", None}
    clock : {"poisson", "index"}
    order_seed : int
    """

    n_turns: int
    averaging_wakes: int
    is_smoothed: bool
    tempered: bool
    clip_norm: float
    weights: tuple[float, ...]
    warm_start: str | None
    clock: str
    order_seed: int


class PersonalizedCoordinateDescent(BaseEstimator):
    r"""Each agent learns a model of its own, pulled towards those of similar agents.

    Minimises, over the models :math:`\Theta_i` of all agents,

    .. math:: Q(\Theta) = \frac12 \sum_{i<j} W_{ij} \|\Theta_i - \Theta_j\|^2
              + \mu \sum_i D_i c_i L_i(\Theta_i), \qquad D_i = \sum_j W_{ij},

    where :math:`L_i` is the mean loss of an agent's records plus the penalty, c its confidence, and
    distances are those of parameters in public coordinates. Agents wake up at random. One that is
    awake makes

    .. math:: \Theta_i \leftarrow (1 - \alpha_i) \Theta_i + \alpha_i \Big(\sum_j
              \frac{W_{ij}}{D_i} \Theta_j - \mu c_i (\tilde\nabla L_i(\Theta_i))\Big), \qquad
              \alpha_i = \frac{1}{1 + \mu c_i \bar L_i},

    and tells its neighbours. The gradient :math:`\tilde\nabla` has records clipped to norm C, and
    noise; that of the penalty needs neither. :math:`\bar L_i` is the public bound of the curvature
    of :math:`L_i`: steps that depend on rows would tell about them, so there is no way to ask for
    them. An agent that has taken all of its turns sleeps on. One without rows takes the mean of its
    neighbours, and one without neighbours descends alone.

    Parameters
    ----------
    turns : int or "auto", default="auto"
        How often each agent uses its rows, a warm start included. "auto": `max_iter`, or fewer,
        but 10, where noise lets nobody travel far; one, for classifiers among several agents, where
        next to nothing of an agent's rows stands out of its noise. With Laplace noise the more, the
        more of a typical agent's records stand out of its noise, 1 at least.
    averaging_wakes : int or "auto", default="auto"
        How often each agent wakes up after its turns to average alone:
        :math:`\Theta_i \leftarrow (1 - \alpha_i) \Theta_i + \alpha_i \sum_j W_{ij} / D_i \Theta_j`.
        Free. "auto": all at once, up to 32 times, the more, the noisier it is; how often that is,
        and by how much models are then scaled down, follows from what was said and from the known
        law of its noise, by Stein's unbiased estimate of the risk. None if not `tempered`.
    noise : {"gaussian", "laplace"}, default="gaussian"
        Law of the noise. Laplace noise goes by the L1 norm, in which records are then clipped.
    split : {"equal", "optimal"}, default="equal"
        How the budget is spread over turns: equally, or with noise that decreases as the error of
        early turns is contracted away, by the public bound of the contraction. Without strong
        convexity of every loss, as with an intercept, no contraction is known, and both are equal.
    clip_norm : float or "auto", default="auto"
        C, in units of the typical norm of a row: the square root of the number of parameters; for
        Laplace noise of the typical L1 norm, the number of parameters. In [1e-100, 1e100].
    warm_start : {"auto", "propagation", None}, default="auto"
        "propagation": in its first turn each agent takes the gradient at zero, makes a model of it
        (as if its loss were isotropic), and the models are smoothed over similar agents, by
        model propagation that trusts an agent the less, the more noise it has, and scaled down by
        what noise is left. None: from zero. "auto": the first with at most 5 turns, or where paths
        are not `tempered`.
    tempered : bool, default=True
        Whether a private path heeds its noise, by public facts. Agents then trust their rows less
        beside their neighbours where noise would set them apart, steps are shorter than
        :math:`\alpha_i` where it would take models too far, and have momentum from sweep to sweep
        where there is little of it; the result is the mean of what was said in the second half. The
        less noise, the closer it is to the minimum of the same objective. False: the update above
        as it stands, and its last iterate.
    clock : {"poisson", "index"}, default="poisson"
        How the order of wake-ups is drawn: by a Poisson clock of each agent, or one agent after
        another uniformly. The law is the same.
    order_seed : int, default=0
        Public seed of the order; no part of the privacy.

    Notes
    -----
    **Guarantee.** Observers "eavesdropper" (sees every message) and "model": one figure for both.
    Unit: one record, or all records of an agent, whose mean gradient is then clipped as a whole.
    Given all models so far a record moves its agent's mean gradient by at most 2C / m under
    replace-one and C / m under zero-out, in the norm of the noise, where m is the agent's number of
    rows; the state moves by :math:`\alpha_i \mu c_i` times it, and so does the noise. The noisy
    model is the state: nothing else is kept. With Gaussian noise of standard deviation s_t / m the
    turns of an agent are GDP with :math:`\mu^2 = \sum_t (2 C / s_t)^2`, by exact composition; with
    Laplace noise of scale s_t / m they compose as :class:`~skdpadmm.privacy.LaplaceDP` with
    :math:`\epsilon_t = 2 C / s_t`. The warm start is a turn like any other. Averaging, propagation
    and the order of wake-ups depend on nothing private. It needs neither convexity nor honest
    neighbours. Each agent has a guarantee, and if it likes a budget, of its own.

    The noise of a turn lies on a public grid, and what it is added to is rounded to it, which every
    figure counts.

    To see how much noise is left, the warm start smooths eight numbers of each agent along with its
    model: public noise that whoever knows `order_seed` can make, so that nobody sends it. What
    they become on the way is sent, and `bytes_sent_` counts it. They have random numbers of their
    own, apart from those of the order.

    Waves of agents that are no neighbours of each other are computed at once, with the result that
    one by one has.

    References
    ----------
    .. [1] A. Bellet, R. Guerraoui, M. Taziki, M. Tommasi, "Personalized and Private Peer-to-Peer
       Machine Learning", AISTATS 2018.

    Examples
    --------
    >>> from skdpadmm import DPPersonalizedRegressor
    >>> from skdpadmm.algorithms import PersonalizedCoordinateDescent
    >>> model = DPPersonalizedRegressor(algorithm=PersonalizedCoordinateDescent(turns=3))
    >>> model.plan(n_samples=10_000, n_features=5).releases[-1].times
    3
    """

    conditionable = False
    setting = "personalized"
    exact = False

    def __init__(
        self,
        *,
        turns: int | Literal["auto"] = "auto",
        averaging_wakes: int | Literal["auto"] = "auto",
        noise: Literal["gaussian", "laplace"] = "gaussian",
        split: Literal["equal", "optimal"] = "equal",
        clip_norm: float | Literal["auto"] = "auto",
        warm_start: Literal["auto", "propagation"] | None = "auto",
        tempered: bool = True,
        clock: Literal["poisson", "index"] = "poisson",
        order_seed: int = 0,
    ) -> None:
        self.turns = turns
        self.averaging_wakes = averaging_wakes
        self.noise = noise
        self.split = split
        self.clip_norm = clip_norm
        self.warm_start = warm_start
        self.tempered = tempered
        self.clock = clock
        self.order_seed = order_seed

    def check(self, facts: Facts) -> None:
        """Refuse knobs outside of their range, whatever the budget.

        Raises
        ------
        ValueError
            Says what was expected.
        """
        if self.turns != "auto":
            check_count("turns", self.turns)
        if self.averaging_wakes != "auto":
            check_seed("averaging_wakes", self.averaging_wakes)
        check_seed("order_seed", self.order_seed)
        check_choice("noise", self.noise, ("gaussian", "laplace"))
        check_choice("split", self.split, ("equal", "optimal"))
        check_range("clip_norm", self.clip_norm, 1e-100, 1e100)
        if self.warm_start not in ("auto", "propagation", None):
            raise ValueError(
                f"Got warm_start={self.warm_start!r}, expected 'auto', 'propagation' or None."
            )
        check_flag("tempered", self.tempered)
        check_choice("clock", self.clock, ("poisson", "index"))
        check_squared_penalty(facts.penalty)

    def plan(self, facts: Facts, budget: Budget) -> Plan:
        """Decide turns and each agent's noise from public facts.

        Parameters
        ----------
        facts : Facts
            Of a neighbourhood.
        budget : Budget
            Without privacy there is no noise, and nothing is clipped unless `clip_norm` says so.

        Returns
        -------
        Plan

        Raises
        ------
        ValueError
            Where a knob is outside its range.
        """
        self.check(facts)
        tempered = bool(self.tempered) and budget.is_private
        n_turns = self._n_turns(facts, budget) if self.turns == "auto" else int(self.turns)
        warm_start = self.warm_start
        if warm_start == "auto":
            warm_start = None if tempered and n_turns > FEW_TURNS else "propagation"
        automatic = self.averaging_wakes == "auto"
        shares = split_budget(self.split, n_turns, _contraction(facts), self.noise)
        weights = turn_weights(shares, self.noise)
        clip_norm = default_clip_norm(facts) if budget.is_private else math.inf
        settings = PersonalizedCoordinateDescentSettings(
            n_turns=n_turns,
            averaging_wakes=0 if automatic else int(self.averaging_wakes),
            is_smoothed=automatic and tempered,
            tempered=tempered,
            clip_norm=clip_norm if self.clip_norm == "auto" else float(self.clip_norm),
            weights=tuple(weights.tolist()),
            warm_start=warm_start,
            clock=self.clock,
            order_seed=int(self.order_seed),
        )
        turns = agent_turns(facts, budget, name=GRADIENTS, weights=weights, law=self.noise)
        return Plan(
            algorithm="PersonalizedCoordinateDescent",
            facts=facts,
            budget=budget,
            settings=settings,
            releases=(*facts.preparations, turns),
        )

    def _n_turns(self, facts: Facts, budget: Budget) -> int:
        """Turns that nobody asked for: no more than noise lets agents travel."""
        n_turns = default_turns(facts, budget, self.noise)
        if not (budget.is_private and self.tempered and self.noise == "gaussian"):
            return n_turns
        if one_look_is_best(facts, budget):
            return 1
        once = agent_turns(facts, budget, name=GRADIENTS, weights=np.ones(1), law=self.noise)
        clip_norm = default_clip_norm(facts) if self.clip_norm == "auto" else float(self.clip_norm)
        bound = absolute_clip(clip_norm, facts, math.sqrt(facts.n_parameters), self.noise)
        noise = noise_of_agents(facts, once, clip_norm=bound, weight=1.0)
        share = _pace(facts, facts.coordinates, noise, n_turns).share.max()
        return min(max(math.ceil(share * n_turns), FEWEST_TURNS), n_turns)

    def run(self, plan: Plan, problem: Problem, gate: Gate) -> Solution:
        """Wake agents up as planned; every number in the solution has passed the gate.

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
        settings: PersonalizedCoordinateDescentSettings = plan.settings
        agents = neighborhood_of(facts)
        similarity, n_agents = agents.similarity, agents.n_agents
        (release,) = (r for r in plan.releases if r.door == "take_turns")
        clip_norm = absolute_clip(settings.clip_norm, facts, rows.clip_unit, release.law)
        gradient = NoisyTurns(
            plan,
            problem,
            gate,
            name=GRADIENTS,
            clip_norm=clip_norm,
            weights=np.asarray(settings.weights),
        )
        curvature = penalty_curvature(facts.penalty, rows.coordinates)
        pull = agents.trade_off * np.asarray(agents.confidence) * gradient.has_rows
        step = 1.0 / (1.0 + pull * _smoothness(facts, rows.coordinates))
        path = None
        if settings.tempered:
            path = _TemperedPath(plan, release, clip_norm, rows.coordinates)
            pull, step = path.pace.pull, path.pace.step
        models = np.zeros((n_agents, facts.n_parameters, facts.loss.n_outputs))
        n_rounds, n_turns, n_probes = 0, settings.n_turns, 0
        if settings.warm_start is not None:
            models, n_rounds, noise = _warm_start(plan, release, gradient, clip_norm)
            if path is not None:
                path.start(noise)
            n_turns -= 1
            n_probes = N_PROBES if plan.budget.is_private else 0
        n_wakes = n_turns + settings.averaging_wakes
        order = wake_order(
            n_agents=n_agents, n_wakes=n_wakes, clock=settings.clock, seed=settings.order_seed
        )
        woken, done = np.zeros(n_agents, dtype=np.intp), 0
        wakes = Wakes(
            gradient=gradient,
            similarity=similarity,
            curvature=curvature,
            pull=pull,
            step=step,
            n_turns=n_turns,
        )
        # A path that heeds its noise has sweeps; another one is a single piece.
        size = max(len(order), 1) if path is None else n_agents
        for sweep in (order[start : start + size] for start in range(0, len(order), size)):
            if path is not None:
                path.extrapolate(models)
            for wave in similarity.waves(sweep):
                wakes.advance(models, woken, wave)
                done += len(wave)
                problem.progress(settings.n_turns - n_turns + done // n_agents)
            if path is not None:
                path.sweep_is_over(models, n_wakes)
        variance = 0.0
        if path is not None:
            models, variance = path.result(models)
            n_rounds += MOST_ROUNDS if settings.is_smoothed and n_agents > 1 else 0
        n_edges = int(similarity.n_neighbors.sum())
        n_messages = (n_rounds + n_wakes) * n_edges
        # Probes are smoothed along with models: their start is public, what they become is sent.
        n_numbers = n_messages * models[0].size + n_rounds * n_edges * n_probes
        return Solution(
            parameters=models.mean(axis=0),
            parameters_per_agent=models,
            n_iter=settings.n_turns,
            n_rounds=n_rounds + n_wakes,
            n_messages=n_messages,
            bytes_sent=8 * n_numbers,
            score_variance=variance,
        )


class _TemperedPath:
    """A path that heeds its noise, and public noise that goes the same way, to know what is left.

    Probes go in whole sweeps, which are much like sweeps one by one, with the usual curvature in
    place of that of the rows.

    Parameters
    ----------
    plan : Plan
    release : Release
    clip_norm : float
    coordinates : Coordinates

    Attributes
    ----------
    pace : Pace
    """

    def __init__(
        self, plan: Plan, release: Release, clip_norm: float, coordinates: Coordinates
    ) -> None:
        facts, settings = plan.facts, plan.settings
        agents = neighborhood_of(facts)
        self._facts, self._settings, self._similarity = facts, settings, agents.similarity
        self._has_rows = np.asarray(agents.agent_sizes) > 0
        self._noise = [
            noise_of_agents(facts, release, clip_norm=clip_norm, weight=weight)
            for weight in settings.weights
        ]
        whole = np.sqrt(np.mean(np.square(self._noise), axis=0) / settings.n_turns)
        self.pace = _pace(facts, coordinates, whole, settings.n_turns)
        self._signal = signal_of_path(
            facts, self.pace, clip_norm=clip_norm, law=release.law, n_turns=settings.n_turns
        )
        n_probes = max(N_PROBES, -(-N_PATH_PROBES // agents.n_agents))
        self._random = _public_random(settings.order_seed, PATH_STREAM)
        self._probes = np.zeros((agents.n_agents, n_probes))
        self._probes_before = self._probes
        self._before: Array | None = None
        self._turn = self._sweep = self._n_summed = 0
        self._model_sum, self._probe_sum = np.zeros(release.shape), np.zeros_like(self._probes)

    def start(self, noise: Array) -> None:
        """Note what noise a warm start left, which took the first turn."""
        n_probes = self._probes.shape[1]
        # Columns of the warm start in another order and with signs are as good as new.
        signs = self._random.choice([-1.0, 1.0], size=n_probes)
        self._probes = signs * noise[:, np.arange(n_probes) % noise.shape[1]]
        self._probes_before, self._turn = self._probes, 1

    def extrapolate(self, models: Array) -> None:
        """Repeat a part of what the last sweep changed, in place."""
        momentum, before = self.pace.momentum, self._before
        self._before = models.copy()
        if before is not None and self._learns:
            models += momentum[:, None, None] * (models - before)
        ahead = self._probes
        if self._learns:
            ahead = ahead + momentum[:, None] * (ahead - self._probes_before)
        self._probes_before, self._probes = self._probes, ahead

    @property
    def _learns(self) -> bool:
        return self._turn < self._settings.n_turns

    def sweep_is_over(self, models: Array, n_sweeps: int) -> None:
        """Let probes follow, and sum up the second half."""
        ahead, pace = self._probes, self.pace
        moved = neighbor_means(self._similarity, ahead) - ahead
        if self._learns:
            added = self._noise[self._turn][:, None] * self._random.standard_normal(ahead.shape)
            slopes = usual_curvature(self._facts) * ahead + added
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
                self._similarity, models, probes, self._has_rows
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


def _pace(facts: Facts, coordinates: Coordinates | None, noise: Array, n_turns: int) -> Pace:
    """Steps for noise in the mean of all gradients."""
    agents = neighborhood_of(facts)
    assert coordinates is not None
    has_rows = np.asarray(agents.agent_sizes) > 0
    return pace_of_agents(
        facts,
        agents.similarity,
        pull=agents.trade_off * np.asarray(agents.confidence) * has_rows,
        smoothness=_smoothness(facts, coordinates),
        noise=noise,
        n_turns=n_turns,
    )


def _warm_start(
    plan: Plan, release: Release, gradient: NoisyTurns, clip_norm: float
) -> tuple[Array, int, Array]:
    """Models of the first turn's gradients, smoothed; rounds; what noise is left."""
    facts, weights = plan.facts, plan.settings.weights
    agents, has_rows = neighborhood_of(facts), gradient.has_rows
    models, who = np.zeros(release.shape), np.flatnonzero(has_rows)
    curvature = typical_curvature(facts)
    models[who] = -gradient(who, models[who]) / curvature
    trust, noise = has_rows.astype(np.float64), np.zeros(len(models))
    if plan.budget.is_private:
        noise = noise_of_agents(facts, release, clip_norm=clip_norm, weight=weights[0])
        trust = noise_trust(facts, noise, clip_norm=clip_norm, law=release.law)
    relative = np.asarray(agents.confidence) * trust
    # Noise is a reason to trust others more, but not to smooth until everybody is like everybody.
    pull = max(agents.trade_off * curvature * relative.max(), FARTHEST_PULL) * np.maximum(
        relative / relative.max(), LEAST_PULL
    )
    # Public noise of the same size goes along, to see how much of it is left.
    random = _public_random(plan.settings.order_seed, PROBE_STREAM)
    probes = noise[:, None] / curvature * random.standard_normal((len(models), N_PROBES))
    both = np.concatenate([models.reshape(len(models), -1), probes], axis=1)
    both, n_rounds = propagate(agents.similarity, both, pull, tolerance=PROPAGATION_TOLERANCE)
    smoothed = both[:, :-N_PROBES]
    factor = left_of_noise(smoothed, both[:, -N_PROBES:])
    return factor * smoothed.reshape(models.shape), n_rounds, factor * both[:, -N_PROBES:]


def _smoothness(facts: Facts, coordinates: Coordinates) -> float:
    """Public bound of the curvature of an agent's mean loss plus penalty."""
    largest = float(penalty_curvature(facts.penalty, coordinates).max())
    row_norm = min(coordinates.row_norm, facts.row_norm)
    return facts.loss.smoothness * row_norm**2 + largest


def _contraction(facts: Facts) -> float:
    """From one wake-up of an agent to its next one, by public constants."""
    agents, coordinates = neighborhood_of(facts), facts.coordinates
    if coordinates is None or agents.n_agents == 1:
        return 1.0
    constants = block_constants(
        smoothness=_smoothness(facts, coordinates),
        strong_convexity=float(penalty_curvature(facts.penalty, coordinates).min()),
        degrees=weights_of_agents(agents.similarity),
        confidence=agents.confidence,
        trade_off=agents.trade_off,
    )
    one_step = coordinate_contraction(
        strong_convexity=constants.strong_convexity,
        n_agents=agents.n_agents,
        lipschitz=constants.lipschitz,
    )
    return wake_contraction(contraction=one_step, n_agents=agents.n_agents)
