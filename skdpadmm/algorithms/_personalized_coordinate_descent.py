"""Personalised models by private coordinate descent, whoever is awake.

Source: Bellet, Guerraoui, Taziki & Tommasi, "Fast and Differentially Private Algorithms for
Decentralized Collaborative Machine Learning" (hal-01665410, 2017), updates (5) and (6), with steps
from public constants, the norms that the noise needs, and exact composition.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from skdpadmm._sklearn import AT_LEAST_0, AUTO, OneOf, parameter
from skdpadmm.algorithms import _personalized_defaults as defaults
from skdpadmm.algorithms import _tempered_path as paths
from skdpadmm.algorithms._algorithm import Released
from skdpadmm.algorithms._defaults import is_regression
from skdpadmm.algorithms._personalized_optimum import local_start
from skdpadmm.algorithms._turns import GRADIENTS, InTurns, agent_turns
from skdpadmm.network import Similarity
from skdpadmm.privacy import split_budget
from skdpadmm.protocol import Budget, Facts, Gate, Plan, Problem, Solution, neighborhood_of

Array = NDArray[np.float64]

# Signal below which a classifier does without a path. Where a path begins to pay depends on how
# correlated features are: at a signal of 1 to 3 for correlated ones, above 7 for independent ones.
LEAST_SIGNAL = 4.0
# With so few turns the first one is worth a warm start; noise asks for no fewer than the second.
FEW_TURNS, FEWEST_TURNS = 5, 10


@dataclass(kw_only=True, eq=False, repr=False)
class PersonalizedCoordinateDescent(InTurns):
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

    and sends it to its neighbours. The gradient :math:`\tilde\nabla` has records clipped to norm C,
    and noise; that of the penalty needs neither. :math:`\bar L_i` is the public bound of the
    curvature of :math:`L_i`: steps that depend on rows would not be private, and are not offered.
    An agent that has taken all of its turns does not wake up again. One without rows takes the mean
    of its neighbours, and one without neighbours descends alone.

    Parameters
    ----------
    turns : int or "auto", default="auto"
        How often each agent uses its rows, a warm start included. "auto": `max_iter`; down to 10
        where noise limits the steps; one, for classifiers among several agents, where
        next to nothing of an agent's rows stands out of its noise. With Laplace noise the more, the
        more of a typical agent's records stand out of its noise, 1 at least.
    averaging_wakes : int or "auto", default="auto"
        How often each agent wakes up after its turns to average alone:
        :math:`\Theta_i \leftarrow (1 - \alpha_i) \Theta_i + \alpha_i \sum_j W_{ij} / D_i \Theta_j`.
        Free. "auto": all at once, up to 32 times, the more, the noisier it is; how often that is,
        and by how much models are then scaled down, follows from what was released and the known
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
    warm_start : {"auto", "propagation", "local", None}, default="auto"
        "propagation": in its first turn each agent takes the gradient at zero, makes a model of it
        (as if its loss were isotropic), and the models are smoothed over similar agents, by
        model propagation that trusts an agent the less, the more noise it has, and scaled down by
        what noise is left. None: from zero. "auto": the first with at most 5 turns, or where paths
        are not `tempered`. "local", at ``epsilon=inf`` alone: from agents' own models, with steps
        by the curvature of their own rows, as in the source. Neither is private.
    tempered : bool, default=True
        Whether a private path heeds its noise, by public facts. Agents then trust their rows less
        beside their neighbours where noise would set them apart, steps are shorter than
        :math:`\alpha_i` where it would take models too far, and have momentum from sweep to sweep
        where there is little of it; the result is the mean of models of the second half. The
        less noise, the closer it is to the minimum of the same objective. False: the update above
        as it stands, and its last iterate.
    order_seed : int, default=0
        Public seed of the order; no part of the privacy.
    delay : int, default=0
        How many sweeps late a model reaches the agent's neighbours, at most: 0 to `delay`, at
        random. An older model never replaces a newer one. The warm start and the averages at the
        end wait for all.

    Notes
    -----
    **Guarantee.** Observers "eavesdropper" (sees every message) and "model": one figure for both.
    Unit: one record, or all records of an agent, whose mean gradient is then clipped as a whole.
    Given all models so far the sensitivity of an agent's mean gradient is 2C / m under replace-one
    and C / m under zero-out, in the norm of the noise, where m is the agent's number of
    rows; the state moves by :math:`\alpha_i \mu c_i` times it, and so does the noise. The noisy
    model is the state: nothing else is kept. With Gaussian noise of standard deviation s_t / m the
    turns of an agent are GDP with :math:`\mu^2 = \sum_t (2 C / s_t)^2`, by exact composition; with
    Laplace noise of scale s_t / m they compose as :class:`~skdpadmm.privacy.LaplaceDP` with
    :math:`\epsilon_t = 2 C / s_t`. The warm start is a turn like any other. Averaging, propagation,
    delays and the order of wake-ups depend on nothing private. It needs neither convexity nor
    honest neighbours. Each agent has a guarantee, and if it likes a budget, of its own.

    The noise of a turn lies on a public grid, and what it is added to is rounded to it, which every
    figure counts.

    To see how much noise is left, the warm start smooths eight numbers of each agent along with its
    model: public noise that whoever knows `order_seed` can make, so that nobody sends it. What
    they become on the way is sent, and `bytes_sent_` counts it. They have random numbers of their
    own, apart from those of the order.

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

    noiseless = True

    averaging_wakes: int | str = parameter("auto", AUTO, AT_LEAST_0)
    split: str = parameter("equal", OneOf("equal", "optimal"))
    warm_start: str | None = parameter("auto", AUTO, OneOf("propagation", "local"), None)
    tempered: bool = parameter(True, "boolean")
    order_seed: int = parameter(0, AT_LEAST_0)
    delay: int = parameter(0, AT_LEAST_0, is_later=True)

    def released(self, facts: Facts, budget: Budget) -> Released:
        """Gradients of all agents, in turns of equal noise or of less and less."""
        if self.warm_start == "local" and budget.is_private:
            raise ValueError(
                f"Got warm_start='local' with epsilon={budget.epsilon:g}, expected epsilon=inf."
                " Local models and the curvature of own rows are not private: use 'propagation'."
            )
        is_tempered = bool(self.tempered) and budget.is_private
        n_turns = self.turns_of(facts, budget)
        shares = split_budget(self.split, n_turns, defaults.wake_contraction(facts), self.noise)
        # What turns are multiplied by, with noise of one size; shares are of mu^2 or of epsilon.
        weights = shares * n_turns if self.noise == "laplace" else np.sqrt(shares * n_turns)
        settings = self.resolved(
            turns=n_turns,
            averaging_wakes=0,
            is_smoothed=self.averaging_wakes == "auto" and is_tempered,
            is_tempered=is_tempered,
            clip_norm=defaults.default_clip_norm(facts, budget) if budget.is_private else math.inf,
            weights=tuple(weights.tolist()),
            warm_start=None if is_tempered and n_turns > FEW_TURNS else "propagation",
        )
        return settings, agent_turns(facts, budget, name=GRADIENTS, weights=weights, law=self.noise)

    def default_turns(self, facts: Facts, budget: Budget) -> int:
        """Turns by default, fewer where noise limits how far agents can travel."""
        n_turns = super().default_turns(facts, budget)
        if not (budget.is_private and self.tempered and self.noise == "gaussian"):
            return n_turns
        alone = neighborhood_of(facts).n_agents == 1
        if not alone and not is_regression(facts):
            # Where next to nothing of an agent's records stands out of its noise, a path adds only
            # noise to what a classifier learns from one look.
            if defaults.signal_beside_noise(facts, budget) < LEAST_SIGNAL:
                return 1
        once = agent_turns(facts, budget, name=GRADIENTS, weights=np.ones(1), law=self.noise)
        automatic = self.clip_norm == "auto"
        clip_norm = (
            defaults.default_clip_norm(facts, budget) if automatic else float(self.clip_norm)
        )
        clip_norm *= math.sqrt(facts.n_parameters)
        noise = defaults.noise_of_agents(facts, once, clip_norm=clip_norm)
        share = defaults.pace_of_agents(facts, facts.coordinates, noise, n_turns).share.max()
        return min(max(math.ceil(share * n_turns), FEWEST_TURNS), n_turns)

    def run(self, plan: Plan, problem: Problem, gate: Gate) -> Solution:
        """Wake agents up as planned; symbols as in the class."""
        facts, settings, rows = plan.facts, plan.settings, problem.rows
        agents, is_private = neighborhood_of(facts), plan.budget.is_private
        similarity, n_agents = agents.similarity, agents.n_agents
        clip_norm, turns = self.gradients(plan, problem, gate, np.asarray(settings.weights))
        has_rows = defaults.have_rows(facts)
        curvature = defaults.penalty_curvature(facts, rows.coordinates)
        kind = paths.TemperedPath if settings.is_tempered else paths.PlainPath
        path = kind(plan, clip_norm, rows.coordinates)
        models = np.zeros(plan.releases[-1].shape)
        n_rounds, n_turns, n_probes = 0, settings.turns, 0
        if settings.warm_start == "local":
            models, smoothness = local_start(plan, problem)
            path.step, n_rounds = 1.0 / (1.0 + path.pull * smoothness), 1
        elif settings.warm_start is not None:
            models, n_rounds, noise = paths.warm_start(plan, turns, clip_norm)
            n_turns, n_probes = n_turns - 1, paths.N_PROBES * is_private
            problem.progress(1, models)
            path.start(models, noise)
        n_wakes = n_turns + settings.averaging_wakes
        order = wake_order(n_agents=n_agents, n_wakes=n_wakes, seed=settings.order_seed)
        woken, done = np.zeros(n_agents, dtype=np.intp), 0
        mail = Mail(int(self.delay), n_agents, gate)
        sweeps = order.reshape(-1, n_agents) if self.delay else path.sweeps(order)
        for sweep in sweeps:
            path.extrapolate(models)
            mail.sweep_begins(models)
            # Waves of agents that are no neighbours of each other are computed at once, with the
            # result that one by one has.
            for wave in similarity.waves(sweep):
                own, known = models[wave], mail.arrived(models)
                means = defaults.neighbor_means(similarity, known, wave)
                learns = has_rows[wave] & (woken[wave] < n_turns)
                who, theirs = wave[learns], own[learns]
                slopes = turns.gradient(who, theirs) + curvature * theirs
                means[learns] -= path.pull[who, None, None] * slopes
                models[wave] = own + path.step[wave, None, None] * (means - own)
                woken[wave] += 1
                done += len(wave)
                problem.progress(settings.turns - n_turns + done // n_agents, models)
            path.sweep_is_over(models, n_wakes)
        models, variance = path.result(models)
        n_rounds += paths.MOST_ROUNDS if settings.is_smoothed and n_agents > 1 else 0
        n_edges = int(similarity.n_neighbors.sum())
        n_messages = (n_rounds + n_wakes) * n_edges
        # Probes are smoothed along with models: their start is public, what they become is sent.
        n_numbers = n_messages * models[0].size + n_rounds * n_edges * n_probes
        return Solution(
            parameters=models.mean(axis=0),
            parameters_per_agent=models,
            n_iter=settings.turns,
            n_rounds=n_rounds + n_wakes,
            n_messages=n_messages,
            bytes_sent=8 * n_numbers,
            score_variance=variance,
        )


class LateJoiner(PersonalizedCoordinateDescent):
    r"""An agent that learns beside models that were released before it came.

    With the weighted mean m of its neighbours' models, which stays as it is, it makes from m, with
    momentum :math:`\beta` where there is little noise,

    .. math:: \theta \leftarrow v + \alpha (m - v - \mu c \tilde\nabla L(v)), \qquad
              v = \theta + \beta (\theta - \theta_{before}).

    In the end :math:`\theta - m` is scaled down by the share of noise in it. Its guarantee is that
    of its turns: of the models of others it sees what everybody sees. ``join`` of personalised
    estimators uses it.

    Parameters
    ----------
    algorithm : PersonalizedCoordinateDescent
        Whose parameters it takes, but for those on warm starts and averaging.
    center : ndarray of shape (n_parameters, n_outputs)
        m, public.
    """

    def __init__(self, algorithm: PersonalizedCoordinateDescent, center: Array) -> None:
        super().__init__(**{**algorithm.get_params(deep=False), "trace": False})
        self.algorithm, self.center = algorithm, center

    def released(self, facts: Facts, budget: Budget) -> Released:
        """Gradients of the newcomer, in turns; the models that it begins with are in the plan."""
        settings, *releases = super().released(facts, budget)
        beside = hashlib.sha256(self.center.tobytes()).hexdigest()[:12]
        (newcomer,) = neighborhood_of(facts).similarity.labels or ("",)
        return settings.but(newcomer=repr(newcomer), beside=beside), *releases

    def default_turns(self, facts: Facts, budget: Budget) -> int:
        """As many as an agent of the fit would take."""
        return super().default_turns(_beside_others(facts), budget)

    def run(self, plan: Plan, problem: Problem, gate: Gate) -> Solution:
        """Take all turns; symbols as above."""
        facts, settings, rows = plan.facts, plan.settings, problem.rows
        n_turns, both = settings.turns, _beside_others(facts)
        clip_norm, turns = self.gradients(plan, problem, gate, np.asarray(settings.weights))
        noise_of = partial(defaults.noise_of_agents, both, plan.releases[-1], clip_norm=clip_norm)
        noise = np.zeros(n_turns)
        if settings.is_tempered:
            noise = np.array([noise_of(weight=weight)[0] for weight in settings.weights])
        whole = np.array([np.linalg.norm(noise) / n_turns, 0.0])
        pace = defaults.pace_of_agents(both, rows.coordinates, whole, n_turns)
        pull, step, momentum = pace.pull[0], pace.step[0], pace.momentum[0]
        curvature = defaults.penalty_curvature(facts, rows.coordinates)
        # Where paths heed their noise the answer is the mean of the second half. Probes have what
        # is left of the noise of each turn, with the usual curvature in place of that of the rows.
        first = n_turns // 2 if settings.is_tempered else n_turns - 1
        apart = before = tail = np.zeros(self.center.shape)
        probes = probes_before = left = np.zeros(n_turns)
        for k in range(n_turns):
            ahead, seen = (
                now + momentum * (now - last)
                for now, last in ((apart, before), (probes, probes_before))
            )
            model = self.center + ahead
            slope = turns.gradient(np.zeros(1, dtype=np.intp), model[None])[0] + curvature * model
            usual = defaults.usual_curvature(facts) * seen + noise * (np.arange(n_turns) == k)
            before, apart = apart, ahead - step * (ahead + pull * slope)
            probes_before, probes = probes, seen - step * (seen + pull * usual)
            if k >= first:
                tail, left = tail + apart / (n_turns - first), left + probes / (n_turns - first)
            problem.progress(k + 1)
        # As James and Stein: what sets it apart from the others by no more than noise is left out,
        # which of few entries may be more than on average, by a standard deviation.
        size, noisy = float(np.vdot(tail, tail)), float(left @ left) * tail.size
        noisy *= 1.0 + math.sqrt(2.0 / tail.size)
        tail = self.center + (max(1.0 - noisy / size, 0.0) if size > 0 else 1.0) * tail
        return Solution(parameters=tail, parameters_per_agent=tail[None], n_iter=n_turns)


def _beside_others(facts: Facts) -> Facts:
    """A newcomer and all others as one agent without rows: for rules on steps and turns."""
    agents = neighborhood_of(facts)
    both = replace(
        agents,
        agent_sizes=(*agents.agent_sizes, 0),
        similarity=Similarity(n_agents=2),
        confidence=(*agents.confidence, 1.0),
    )
    return replace(facts, agents=both)


def wake_order(*, n_agents: int, n_wakes: int, seed: int) -> NDArray[np.intp]:
    """Who wakes up when, each equally often, by Poisson clocks of one rate and a public seed."""
    random = np.random.Generator(np.random.Philox(seed))
    times = random.exponential(size=(n_agents, n_wakes)).cumsum(axis=1)
    return np.argsort(times.ravel(), kind="stable") // max(n_wakes, 1)


class Mail:
    """Models that have reached neighbours, where each is up to `delay` sweeps on its way.

    A lag of 0 is the model of now, 1 that at the beginning of this sweep, 2 of the one before.
    """

    def __init__(self, delay: int, n_agents: int, gate: Gate) -> None:
        self._delay, self._gate, self._sent = delay, gate, list[Array]()
        # Before the first sweep everybody knows where all models start.
        self._lags = np.full(n_agents, -1)
        self._late, self._known_of_late = np.zeros(0, dtype=np.intp), np.zeros(0)

    def sweep_begins(self, models: Array) -> None:
        """Note what agents send, and draw anew how late each is."""
        if self._delay == 0:
            return
        self._sent = [models.copy(), *self._sent[: self._delay - 1]]
        drawn = (self._gate.uniform((len(models),)) * (self._delay + 1)).astype(np.intp)
        # What has arrived stays: a lag grows by one sweep in each.
        self._lags = np.minimum(drawn, self._lags + 1)
        self._late = np.flatnonzero(self._lags)
        lags = zip(self._late.tolist(), self._lags[self._late].tolist(), strict=True)
        self._known_of_late = np.array([self._sent[lag - 1][agent] for agent, lag in lags])

    def arrived(self, models: Array) -> Array:
        """What neighbours know of all agents."""
        if not len(self._late):
            return models
        known = models.copy()
        known[self._late] = self._known_of_late
        return known
