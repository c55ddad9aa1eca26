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

from skdpadmm.algorithms._model_propagation import LEAST_PULL, propagate
from skdpadmm.algorithms.blocks._agent_turns import (
    NoisyTurns,
    check_squared_penalty,
    neighbor_means,
    neighborhood_of,
    penalty_curvature,
    wake_order,
    weights_of_agents,
)
from skdpadmm.algorithms.planning._agent_turns import agent_turns, turn_weights
from skdpadmm.algorithms.planning._knobs import check_choice, check_count, check_range
from skdpadmm.algorithms.planning._personalized_defaults import (
    default_clip_norm,
    default_turns,
    left_of_noise,
    noise_of_agents,
    noise_trust,
    typical_curvature,
)
from skdpadmm.algorithms.planning._personalized_theory import (
    block_constants,
    coordinate_contraction,
    wake_contraction,
)
from skdpadmm.privacy import split_budget
from skdpadmm.protocol import AgentTurns, Budget, Facts, Gate, Plan, Problem, Solution
from skdpadmm.records import Coordinates

GRADIENTS = "gradients of agents, in turns"
# Of the linear system of the warm start: far below its noise.
PROPAGATION_TOLERANCE = 1e-4
# How much the agent that is trusted most counts at least, beside the mean of its neighbours. The
# warm start was best with it for 2 to 100 parameters and budgets from .15 to 4.
FARTHEST_PULL = 0.3
N_PROBES = 8


@dataclass(frozen=True, kw_only=True)
class PersonalizedCoordinateDescentSettings:
    """Constants of one run, resolved.

    Attributes
    ----------
    n_turns : int
        How often each agent uses its rows, the warm start included.
    averaging_wakes : int
        How often each averages after that, without its rows.
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
        How often each agent uses its rows, a warm start included. "auto": the more, the more of a
        typical agent's records stand out of its noise, 1 at least and `max_iter` at most.
    averaging_wakes : int, default=0
        How often each agent wakes up after its turns to average alone:
        :math:`\Theta_i \leftarrow (1 - \alpha_i) \Theta_i + \alpha_i \sum_j W_{ij} / D_i \Theta_j`.
        Free.
    noise : {"gaussian", "laplace"}, default="gaussian"
        Law of the noise. Laplace noise goes by the L1 norm, in which records are then clipped.
    split : {"equal", "optimal"}, default="equal"
        How the budget is spread over turns: equally, or with noise that decreases as the error of
        early turns is contracted away, by the public bound of the contraction. Without strong
        convexity of every loss, as with an intercept, no contraction is known, and both are equal.
    clip_norm : float or "auto", default="auto"
        C, in units of the typical norm of a row: the square root of the number of parameters; for
        Laplace noise of the typical L1 norm, the number of parameters. In [1e-100, 1e100].
    warm_start : {"propagation", None}, default="propagation"
        "propagation": in its first turn each agent takes the gradient at zero, makes a model of it
        (as if its loss were isotropic), and the models are smoothed over similar agents, by
        model propagation that trusts an agent the less, the more noise it has, and scaled down by
        what noise is left. None: from zero.
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
        averaging_wakes: int = 0,
        noise: Literal["gaussian", "laplace"] = "gaussian",
        split: Literal["equal", "optimal"] = "equal",
        clip_norm: float | Literal["auto"] = "auto",
        warm_start: Literal["propagation"] | None = "propagation",
        clock: Literal["poisson", "index"] = "poisson",
        order_seed: int = 0,
    ) -> None:
        self.turns = turns
        self.averaging_wakes = averaging_wakes
        self.noise = noise
        self.split = split
        self.clip_norm = clip_norm
        self.warm_start = warm_start
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
        for name in ("averaging_wakes", "order_seed"):
            value = getattr(self, name)
            if not (isinstance(value, int | np.integer) and value >= 0):
                raise ValueError(f"Got {name}={value!r}, expected an int of at least 0.")
        check_choice("noise", self.noise, ("gaussian", "laplace"))
        check_choice("split", self.split, ("equal", "optimal"))
        check_range("clip_norm", self.clip_norm, 1e-100, 1e100)
        if self.warm_start not in ("propagation", None):
            raise ValueError(f"Got warm_start={self.warm_start!r}, expected 'propagation' or None.")
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
        automatic = self.turns == "auto"
        n_turns = default_turns(facts, budget) if automatic else int(self.turns)
        shares = split_budget(self.split, n_turns, _contraction(facts), self.noise)
        weights = turn_weights(shares, self.noise)
        clip_norm = default_clip_norm(facts) if budget.is_private else math.inf
        settings = PersonalizedCoordinateDescentSettings(
            n_turns=n_turns,
            averaging_wakes=int(self.averaging_wakes),
            clip_norm=clip_norm if self.clip_norm == "auto" else float(self.clip_norm),
            weights=tuple(weights.tolist()),
            warm_start=self.warm_start,
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
        (release,) = (r for r in plan.releases if isinstance(r, AgentTurns))
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
        models = np.zeros((n_agents, facts.n_parameters, facts.loss.n_outputs))
        n_rounds, n_turns = 0, settings.n_turns
        if settings.warm_start is not None:
            models, n_rounds = _warm_start(plan, release, gradient, clip_norm)
            n_turns -= 1
        n_wakes = n_turns + settings.averaging_wakes
        order = wake_order(
            n_agents=n_agents, n_wakes=n_wakes, clock=settings.clock, seed=settings.order_seed
        )
        woken, done = np.zeros(n_agents, dtype=np.intp), 0
        for wave in similarity.waves(order):
            own, means = models[wave], neighbor_means(similarity, models, wave)
            learns = gradient.has_rows[wave] & (woken[wave] < n_turns)
            who = wave[learns]
            slopes = gradient(who, own[learns]) + curvature * own[learns]
            means[learns] -= pull[who, None, None] * slopes
            models[wave] = own + step[wave, None, None] * (means - own)
            woken[wave] += 1
            done += len(wave)
            problem.progress(settings.n_turns - n_turns + done // n_agents)
        edges = similarity.n_neighbors
        n_messages = n_rounds * int(edges.sum()) + n_wakes * int(edges.sum())
        return Solution(
            parameters=models.mean(axis=0),
            parameters_per_agent=models,
            n_iter=settings.n_turns,
            n_rounds=n_rounds + n_wakes,
            n_messages=n_messages,
            bytes_sent=8 * n_messages * models[0].size,
            derivative_bound=settings.clip_norm,
        )


def _warm_start(
    plan: Plan, release: AgentTurns, gradient: NoisyTurns, clip_norm: float
) -> tuple[NDArray[np.float64], int]:
    """Models of the first turn's gradients, smoothed over similar agents."""
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
    random = np.random.Generator(np.random.Philox(plan.settings.order_seed))
    probes = noise[:, None] / curvature * random.standard_normal((len(models), N_PROBES))
    both = np.concatenate([models.reshape(len(models), -1), probes], axis=1)
    both, n_rounds = propagate(agents.similarity, both, pull, tolerance=PROPAGATION_TOLERANCE)
    smoothed = both[:, :-N_PROBES]
    factor = left_of_noise(smoothed, both[:, -N_PROBES:])
    return factor * smoothed.reshape(models.shape), n_rounds


def absolute_clip(clip_norm: float, facts: Facts, unit: float, law: str) -> float:
    """A clip bound in the coordinates of the rows, and in the norm that the noise goes by."""
    widened = 1.0 if law == "gaussian" else math.sqrt(facts.n_parameters)
    return clip_norm * unit * widened


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
