"""Agents that mix what they received with secret random weights: ADMM, descent, a single pass.

Source: Xiao, "Local Differential Privacy in Decentralized Optimization", MIT 2019: Algorithm 1 with
equation (2.2), corrected: the dual variable descends (its sign is misprinted, and diverges), and
noise goes by a norm of the vector, not by its dimension times the largest entry; equation (3.8)
with its generators of weights, whose rows are made to sum to one, and Algorithm 2*; Algorithm 2,
with sensitivity and noise in the units of one and the same scaling of the objective.

Given what was released before, a mix is uniform on a public box, whatever the rows. Arrays of
models have the shape (n_agents, n_parameters, n_outputs), in public coordinates.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from numbers import Real

import numpy as np
from numpy.typing import NDArray

from skdpadmm._sklearn import AT_LEAST_0, AUTO, COUNT, FRACTION, SIZE, Interval, OneOf, parameter
from skdpadmm.algorithms import _network_steps as graph
from skdpadmm.algorithms._algorithm import Algorithm, Released
from skdpadmm.algorithms._clipped_sums import Law
from skdpadmm.algorithms._defaults import derivative_unit, is_regression, typical_row
from skdpadmm.algorithms._network_steps import Array
from skdpadmm.algorithms._turns import GradientTurns, agent_turns
from skdpadmm.network import Topology, mixing_matrix
from skdpadmm.protocol import Budget, Facts, Gate, Plan, Problem, Release, Solution, network_of

Agents = NDArray[np.intp]
# The noise of the first round over that of the last one is at most this, or its inverse.
MOST_DECAY = 1e12
# Bound of the derivative of a typical record's loss that hardly anything exceeds.
WIDEST_CLIP = 1.0
# Norm of the mean gradient of agents, beside the clip bound.
TYPICAL_MEAN = 0.5


@dataclass(frozen=True, eq=False, kw_only=True)
class Box:
    """Where mixes can be: ``start + r * extent``, with r in [0, 1] for each entry."""

    start: Array
    extent: Array

    @property
    def center(self) -> Array:
        """The mix that is expected."""
        return self.start + 0.5 * self.extent

    def draw(self, uniform: Callable[[tuple[int, ...]], Array]) -> Array:
        """A mix with weights that are drawn now, for each entry, and forgotten."""
        return self.start + uniform(self.extent.shape) * self.extent


def between(one: Array, other: Array) -> Box:
    """``r one + (1 - r) other``."""
    return Box(start=other, extent=one - other)


def neighbors_box(topology: Topology, models: Array) -> Box:
    """Between an agent's own model and the mean of its neighbours; alone it stays where it is."""
    if topology.n_edges == 0:
        return between(models, models)
    return between(models, topology.neighbor_sum(models) / topology.degrees[:, None, None])


class ClosedNeighborhoods:
    """Each agent with its neighbours, one after another."""

    def __init__(self, topology: Topology) -> None:
        self.topology, n, edges = topology, topology.n_agents, topology.edges
        own = np.arange(n, dtype=np.intp)
        owner = np.concatenate([own, edges[:, 0], edges[:, 1]])
        member = np.concatenate([own, edges[:, 1], edges[:, 0]])
        order = np.lexsort((member, owner))
        self.starts = np.searchsorted(owner[order], own)
        self.members = member[order]
        self.sizes = np.diff(np.append(self.starts, len(member)))

    def pair_box(self, models: Array, random: np.random.Generator) -> Box:
        """Means over neighbourhoods in which two members share their weights at random.

        They have ``2 r / (d + 1)`` and ``2 (1 - r) / (d + 1)``, the others ``1 / (d + 1)``: rows
        sum to one, which r and 1 - r over d + 1 would not make them. The two are drawn in public;
        where an agent is alone it is both.
        """
        first = random.integers(self.sizes)
        second = (first + 1 + random.integers(np.maximum(self.sizes - 1, 1))) % self.sizes
        one, other = (models[self.members[self.starts + which]] for which in (first, second))
        sizes = self.sizes[:, None, None]
        means = (models + self.topology.neighbor_sum(models)) / sizes
        return Box(start=means + (other - one) / sizes, extent=2.0 * (one - other) / sizes)

    def interval_box(self, models: Array) -> Box:
        """Between the largest and the smallest entry of each neighbourhood."""
        received, starts = models[self.members], self.starts
        low, high = (reduce.reduceat(received, starts) for reduce in (np.minimum, np.maximum))
        return between(low, high)


def boxes_of(topology: Topology, mixing: str, seed: int) -> Callable[[Array], Box]:
    """Map models to where mixes of them are, once in each round; the seed of pairs is public."""
    if mixing == "neighbors":
        return lambda models: neighbors_box(topology, models)
    if mixing == "metropolis":
        weights = mixing_matrix(topology)
        return lambda models: between(models, weights.dot(models))
    closed = ClosedNeighborhoods(topology)
    if mixing == "interval":
        return closed.interval_box
    random = np.random.Generator(np.random.Philox(seed))
    return lambda models: closed.pair_box(models, random)


class MixedTurns(GradientTurns):
    """Steps along gradients of ``F_a = (A / n) sum_{i in a} f_i``, from mixes with secret weights.

    The clip is in the norm of the noise: the Euclidean one, or L1 at ``clip_norm * law_factor``.
    """

    def __init__(self, plan: Plan, problem: Problem, gate: Gate, turn_weights: Array) -> None:
        facts, release, network = plan.facts, plan.releases[-1], network_of(plan.facts)
        self._plan, self._clip_norm = plan, plan.settings.clip_norm * problem.rows.clip_unit
        super().__init__(
            plan,
            problem,
            gate,
            clip_norm=self._clip_norm * law_factor(facts, release.law),
            turn_weights=turn_weights,
            record_weights=np.full(network.n_agents, network.n_agents / facts.n_samples),
            limits=facts.unit_limits[network.kind],
        )

    def step(self, agents: Agents, box: Box, at: Array, step_sizes: Array) -> Array:
        """Draw mixes, and subtract steps along noisy gradients at public models.

        Noise meets the gradient before the mix does, which has the same law: sums with public
        numbers of any size would round what the noise is calibrated for.
        """
        mixes = box.draw(self._gate.uniform)
        return mixes - step_sizes[:, None, None] * self.gradient(agents, at)

    def solution(self, tail: graph.TailAverage) -> Solution:
        """What agents end up with."""
        settings, clip_norm = self._plan.settings, self._clip_norm
        weights = self._turn_weights[-settings.n_averaged :]
        noise_std = noise_of_mean(self._plan, clip_norm, weights)
        if tail.are_common:
            # Each agent takes part in one of the rounds.
            noise_std *= math.sqrt(settings.n_iter)
        network = network_of(self._plan.facts)
        # Means of groups are broadcast once.
        n_sent = settings.n_iter * network.topology.n_messages
        n_sent = network.n_per_broadcast if tail.are_common else n_sent
        return tail.solution(
            noise_std=noise_std, clip_norm=clip_norm, n_rounds=settings.n_iter, n_messages=n_sent
        )


def decay_weights(noise_decay: float, n_rounds: int) -> Array:
    """What turns are multiplied by so that their noise shrinks, with a mean square of one.

    The decay is the noise of a round over that of the next one.
    """
    relative = np.exp(math.log(noise_decay) * (np.arange(n_rounds) + 1.0 - n_rounds))
    return np.asarray(relative / math.sqrt(float(np.mean(np.square(relative)))))


def law_factor(facts: Facts, law: str) -> float:
    """Bound of the norm of the noise over that of a Euclidean one, for typical parameters."""
    return 1.0 if law == "gaussian" else math.sqrt(facts.n_parameters * facts.loss.n_outputs)


def noise_of_gradients(facts: Facts, turns: Release) -> Array:
    """Noise in each entry of the sums of each kind of agent, over the Euclidean clip bound."""
    return np.asarray(turns.agent_noise_std) * facts.unit_limits * law_factor(facts, turns.law)


def noise_of_mean(plan: Plan, clip_norm: float, weights: Array) -> float:
    """Noise in each entry of the mean gradient of all agents, in turns of these weights."""
    facts, release = plan.facts, plan.releases[-1]
    if release.noise_std == 0:
        return 0.0
    shares = noise_of_gradients(facts, release)[network_of(facts).kind]
    one = float(np.linalg.norm(shares)) / facts.n_samples
    return clip_norm * one * math.sqrt(float(np.mean(np.square(1.0 / weights))))


def smoothness_of_agents(facts: Facts) -> Array:
    """Public bounds of the curvature of ``F_a``, of shape (n_agents,)."""
    agents = network_of(facts)
    shares = np.asarray(agents.agent_sizes) * (agents.n_agents / facts.n_samples)
    row_norm = facts.row_norm if math.isfinite(facts.row_norm) else typical_row(facts)
    return np.asarray(shares * facts.loss.smoothness * row_norm**2)


def default_aggregator_steps(
    facts: Facts, turns: Release, *, longest: float | None = None
) -> tuple[float, float]:
    """Step size and clip bound, by the rule for a curator who has as much noise in the sum.

    There are as many turns as steps, with weights whose mean square is one. The longest step is by
    default one over the curvature of the mean loss; the bound is in units of `Rows.clip_unit`, and
    infinite where nothing is private.
    """
    if longest is None:
        longest = 1.0 / float(smoothness_of_agents(facts).mean())
    if turns.noise_std == 0:
        return longest, math.inf
    shares = tuple(noise_of_gradients(facts, turns).tolist())
    step_size, clip_norm = graph.default_network_steps(
        facts, replace(turns, agent_noise_std=shares, noise_std=max(shares))
    )
    shorter = min(step_size, longest)
    if not is_regression(facts):
        # A shorter step with a wider clip goes as far, with as much noise in the model: half way.
        wider = clip_norm * math.sqrt(step_size / shorter)
        clip_norm = max(min(wider, WIDEST_CLIP * derivative_unit(facts.loss)), clip_norm)
    return shorter, clip_norm


class _Mixing(Algorithm):
    """Agents that broadcast what they mixed with secret weights, less noisy steps."""

    setting = "decentralized"
    releases_path = True  # Every observer counts as seeing all broadcasts.
    noiseless = True
    conditionable = False

    noise_decay: float

    def check_facts(self, facts: Facts) -> None:
        """Refuse noise that changes so much over all rounds that its sizes cannot be added."""
        if facts.max_iter * abs(math.log(self.noise_decay)) > math.log(MOST_DECAY):
            raise ValueError(
                f"Got noise_decay={self.noise_decay} over {facts.max_iter} rounds, expected noise"
                f" that changes by a factor of at most {MOST_DECAY:g} over all of them. Choose it"
                " closer to 1."
            )


@dataclass(kw_only=True, eq=False, repr=False)
class RandomizedADMM(_Mixing):
    r"""ADMM over a graph, with secret random weights of what an agent received.

    Solves :math:`\min_w \frac1n \sum_i f_i(w) + r(w)` over the records of all A agents. Agent a
    holds :math:`F_a = \frac A n \sum_{i \in a} f_i`, a model :math:`w_a` and a dual variable
    :math:`\lambda_a`, both 0 at first. In each round it draws secret weights
    :math:`\rho \sim U(0, 1)`, one for each entry, and broadcasts

    .. math::

        v_a &= \rho \odot w_a + (1 - \rho) \odot \frac1{|N_a|} \sum_{b \in N_a} w_b
             + \frac{\lambda_a - \nabla F_a(w_a)}{D_a} + \text{noise},

    where gradients of records are clipped to norm C. Everybody takes the proximal step
    :math:`w_a \leftarrow \mathrm{prox}_{r / D_a}(v_a)` and keeps the duals,

    .. math:: \lambda_a \leftarrow \lambda_a - \zeta \sum_{b \in N_a} (w_a - w_b).

    Random weights :math:`\rho` are random penalties of ADMM, with the same fixed point. An agent's
    answer is the average of its models over the last rounds, the common answer the average over
    agents.

    Parameters
    ----------
    aggregator : {"random", "fixed"}, default="random"
        Weights drawn anew, or :math:`\rho = \frac12`.
    curvature : float or "auto", default="auto"
        :math:`D_a`, the inverse of a step, in [1e-100, 1e100]: the larger, the less noise is in
        models. "auto" is one over the step of the common rule, and no less than the public bound
        of the curvature of :math:`F_a`.
    dual_step : float or "auto", default="auto"
        :math:`\zeta`, in [1e-100, 1e100]. "auto": a third of the smallest :math:`D_a` over the
        largest number of neighbours.
    clip_norm : float or "auto", default="auto"
        Bound C of the Euclidean norm of a record's gradient, in units of the typical norm of a row;
        for Laplace noise of the L1 norm, in units of that times the root of the number of
        parameters. In [1e-100, 1e100].
    noise : {"laplace", "gaussian"}, default="laplace"
        Law of the noise. Laplace noise goes by the L1 norm, in which records are then clipped.
    noise_decay : float, default=1.0
        Noise of a round over that of the next one, in [0.5, 2]: 1.02 is the paper's.
    tail_fraction : float, default=0.5
        In (0, 1]: share of all rounds, at their end, that is averaged. Free: all count as released.

    Notes
    -----
    **Guarantee.** As for :class:`RandomizedGradientDescent`, whose sketch of a proof it shares:
    given the weights and what was released before, a broadcast is a public function of the noisy
    gradient. "fixed" weights have the same figure. Other agents need not be honest.

    The mix is added to what has noise already, which has the same law and rounds nothing that the
    noise is calibrated for.

    References
    ----------
    .. [1] H. Xiao, "Local Differential Privacy in Decentralized Optimization", SM thesis, MIT,
       2019, Algorithm 1, corrected as stated above.

    Examples
    --------
    >>> from skdpadmm import DPDecentralizedRegressor
    >>> model = DPDecentralizedRegressor(algorithm="randomized-admm", topology="ring", max_iter=50)
    >>> plan = model.plan(n_samples=10_000, n_features=5)
    >>> plan.releases[-1].name, plan.releases[-1].times, plan.releases[-1].law
    ('gradients of agents', 50, 'laplace')
    """

    aggregator: str = parameter("random", OneOf("random", "fixed"))
    curvature: float | str = parameter("auto", AUTO, SIZE)
    dual_step: float | str = parameter("auto", AUTO, SIZE)
    clip_norm: float | str = parameter("auto", AUTO, SIZE)
    noise: Law = parameter("laplace", OneOf("laplace", "gaussian"))
    noise_decay: float = parameter(1.0, Interval(Real, 0.5, 2.0, closed="both"))
    tail_fraction: float = parameter(0.5, FRACTION)

    def released(self, facts: Facts, budget: Budget) -> Released:
        """Every agent's gradient, in each round."""
        weights, network = decay_weights(self.noise_decay, facts.max_iter), network_of(facts)
        turns = agent_turns(facts, budget, name=graph.GRADIENTS, weights=weights, law=self.noise)
        step_size, clip_norm = default_aggregator_steps(facts, turns)
        curvature = np.maximum(1.0 / step_size, smoothness_of_agents(facts))
        if self.curvature != "auto":
            curvature = np.full(network.n_agents, float(self.curvature))
        most = max(int(network.topology.degrees.max()), 1)
        settings = self.resolved(
            n_iter=facts.max_iter,
            curvature=None,
            curvatures=tuple(curvature.tolist()),
            dual_step=float(curvature.min()) / (3.0 * most),
            clip_norm=clip_norm,
        )
        return settings, turns

    def run(self, plan: Plan, problem: Problem, gate: Gate) -> Solution:
        """Run the rounds as planned; symbols as above."""
        settings, rows, topology = plan.settings, problem.rows, network_of(plan.facts).topology
        curvature = np.asarray(settings.curvatures)
        everybody, step_size = np.arange(len(curvature)), float(np.mean(1 / curvature))
        weights = decay_weights(settings.noise_decay, settings.n_iter)
        turns = MixedTurns(plan, problem, gate, weights)
        proximal = graph.proximal_steps(plan.facts, rows)
        tail = graph.TailAverage(plan, rows, step_size)
        models = duals = np.zeros(plan.releases[-1].shape)
        for k in range(settings.n_iter):
            duals = duals - settings.dual_step * graph.disagreement(topology, models)
            box = neighbors_box(topology, models)
            if settings.aggregator == "fixed":
                box = Box(start=box.center, extent=0.0 * box.extent)
            points = turns.step(everybody, box, models, 1 / curvature)
            points = points + duals / curvature[:, None, None]
            models = proximal(points, curvature)
            tail.add(k, models, points, curvature)
            problem.progress(k + 1, rows.to_coordinates(models))
        return turns.solution(tail)


@dataclass(kw_only=True, eq=False, repr=False)
class RandomizedGradientDescent(_Mixing):
    r"""Agents average with random weights that nobody knows, and take private gradient steps.

    Solves :math:`\min_w \frac1n \sum_i f_i(w) + r(w)` over the records of all A agents, roughly:
    agent a holds :math:`F_a = \frac A n \sum_{i \in a} f_i` and a model :math:`w_a` (0 at first),
    and in round k broadcasts

    .. math:: v_a = \sum_b W^k_{ab} w_b - \eta_k \nabla F_a(u_a) + \text{noise},
              \qquad u_a = \sum_b E[W^k_{ab}] w_b,

    where gradients of records are clipped to norm C. Rows of the random weights :math:`W^k` sum to
    one, they are drawn for each entry of the models, and nobody but the agent ever knows them: so
    the gradient is taken at the expected mix, which everybody knows. All take the proximal step
    :math:`w_a \leftarrow \mathrm{prox}_{\eta_k r}(v_a)`. An agent's answer is the average of its
    models over the last rounds, the common answer the average over agents.

    With a constant step agents that differ neither agree in the end nor settle, as what they
    disagree about is mixed at random; steps that shrink lead to the optimum.

    Parameters
    ----------
    mixing : {"metropolis", "neighbors", "pair", "interval"}, default="metropolis"
        Law of the weights, with :math:`\rho \sim U(0, 1)`.

        - "metropolis": :math:`\rho` for oneself, :math:`1 - \rho` for what Metropolis weights make
          of the neighbourhood. The expected weights are doubly stochastic, on any graph.
        - "neighbors": :math:`1 - \rho` for the mean of the neighbours. Agents with many neighbours
          count for more, unless all have equally many.
        - "pair": of an agent and its d neighbours two, who are drawn in public, have
          :math:`2 \rho / (d + 1)` and :math:`2 (1 - \rho) / (d + 1)`, the others
          :math:`1 / (d + 1)`. The same holds.
        - "interval": :math:`\rho` for the smallest entry in the neighbourhood and :math:`1 - \rho`
          for the largest, entry by entry, with the gradient at the agent's own model: the paper's
          Algorithm 2*. It keeps no mean, and agents far from the others drag all along.
    step_size : float or "auto", default="auto"
        :math:`\eta_1`, in public coordinates; in [1e-100, 1e100].
    step_power : float, default=0.0
        In [0, 1]: :math:`\eta_k` shrinks like :math:`k^{-\mathrm{step\_power}}`.
    step_decay : float, default=1.0
        In [0.5, 1]: what each step is of the one before, beside that.
    clip_norm : float or "auto", default="auto"
        Bound C of the Euclidean norm of a record's gradient, in units of the typical norm of a row;
        for Laplace noise of the L1 norm, in units of that times the root of the number of
        parameters. In [1e-100, 1e100].
    noise : {"laplace", "gaussian"}, default="laplace"
        Law of the noise. Laplace noise goes by the L1 norm, in which records are then clipped.
    noise_decay : float, default=1.0
        Noise of a gradient over that of the next one, in [0.5, 2]. In models it is multiplied by
        the step: with the paper's :math:`\beta_k` it is :math:`\beta_{k+1} \eta_{k+1}` over
        :math:`\beta_k \eta_k`.
    order_seed : int, default=0
        Public seed of the pairs of ``mixing="pair"``; no part of the privacy.
    tail_fraction : float, default=0.5
        In (0, 1]: share of all steps, at their end, that is averaged. Free: all steps count as
        released.

    Notes
    -----
    **Guarantee.** Observers "eavesdropper" (sees every message), "peer" and "model": one figure for
    all three. Unit: one record, or all records of an agent, whose gradient is then clipped as a
    whole. Let c = 2 for replace-one and 1 for zero-out. Random weights depend on nothing private
    and are drawn afresh. Given them and what was released before, a broadcast is a public function
    of the noisy gradient, whose sensitivity is :math:`c\,C A / n`: in the L1 norm for Laplace
    noise, in the Euclidean one for Gaussian noise. So the steps are
    :class:`~skdpadmm.privacy.LaplaceDP` with :math:`\epsilon_k = c\,C A / (n s_k)`, or
    GDP with :math:`\mu^2 = \sum_k (c\,C A / (n s_k))^2`, whatever the mix: what random weights hide
    beyond that is not counted. It needs neither convexity nor honest neighbours.

    References
    ----------
    .. [1] H. Xiao, "Local Differential Privacy in Decentralized Optimization", SM thesis, MIT,
       2019, Sections 3.2 and 3.3 and Appendix E, corrected as stated above.

    Examples
    --------
    >>> from skdpadmm import DPDecentralizedRegressor
    >>> model = DPDecentralizedRegressor(algorithm="randomized-gradient-descent", max_iter=50)
    >>> model.plan(n_samples=10_000, n_features=5).releases[-1].times
    50
    """

    mixing: str = parameter("metropolis", OneOf("metropolis", "neighbors", "pair", "interval"))
    step_size: float | str = parameter("auto", AUTO, SIZE)
    step_power: float = parameter(0.0, Interval(Real, 0.0, 1.0, closed="both"))
    step_decay: float = parameter(1.0, Interval(Real, 0.5, 1.0, closed="both"))
    clip_norm: float | str = parameter("auto", AUTO, SIZE)
    noise: Law = parameter("laplace", OneOf("laplace", "gaussian"))
    noise_decay: float = parameter(1.0, Interval(Real, 0.5, 2.0, closed="both"))
    order_seed: int = parameter(0, AT_LEAST_0)
    tail_fraction: float = parameter(0.5, FRACTION)

    def released(self, facts: Facts, budget: Budget) -> Released:
        """Every agent's gradient, in each round."""
        weights = decay_weights(self.noise_decay, facts.max_iter)
        turns = agent_turns(facts, budget, name=graph.GRADIENTS, weights=weights, law=self.noise)
        step_size, clip_norm = default_aggregator_steps(facts, turns)
        settings = self.resolved(n_iter=facts.max_iter, step_size=step_size, clip_norm=clip_norm)
        return settings, turns

    def run(self, plan: Plan, problem: Problem, gate: Gate) -> Solution:
        """Run the rounds as planned; symbols as above."""
        settings, rows, rounds = plan.settings, problem.rows, np.arange(plan.facts.max_iter)
        boxes = boxes_of(network_of(plan.facts).topology, settings.mixing, settings.order_seed)
        steps = settings.step_size * (rounds + 1.0) ** -settings.step_power
        steps = steps * settings.step_decay**rounds
        weights = decay_weights(settings.noise_decay, settings.n_iter)
        turns = MixedTurns(plan, problem, gate, weights)
        step_size = float(steps[-settings.n_averaged :].mean())
        proximal = graph.proximal_steps(plan.facts, rows)
        tail = graph.TailAverage(plan, rows, step_size)
        models = np.zeros(plan.releases[-1].shape)
        everybody = np.arange(len(models))
        for k in range(settings.n_iter):
            box, step_sizes = boxes(models), np.full(len(models), steps[k])
            at = models if settings.mixing == "interval" else box.center
            points = turns.step(everybody, box, at, step_sizes)
            models = proximal(points, 1 / step_sizes)
            tail.add(k, models, points, 1 / step_sizes)
            problem.progress(k + 1, rows.to_coordinates(models))
        return turns.solution(tail)


@dataclass(kw_only=True, eq=False, repr=False)
class RandomizedSGD(_Mixing):
    r"""Each agent takes part once, and mixes two models with secret random weights.

    Solves :math:`\min_w \frac1n \sum_i f_i(w) + r(w)` over the records of all A agents. Agent a
    holds :math:`F_a = \frac A n \sum_{i \in a} f_i`. Agents are split at random, in public, into
    2K groups. In round k all agents a of the next two groups broadcast

    .. math:: v_a = \rho \odot y_1 + (1 - \rho) \odot y_2
              - \eta_k \nabla F_a\Big(\frac{y_1 + y_2}2\Big) + \text{noise},
              \qquad \eta_k = \frac{\eta_1}{\sqrt k},

    with secret weights :math:`\rho \sim U(0, 1)` for each entry and gradients of records clipped to
    norm C. Then :math:`y_1` and :math:`y_2` become the means of the two groups, after a proximal
    step; both are 0 at first. The answer is the average of the midpoints
    :math:`\frac12 (y_1 + y_2)` over the last rounds, the same for all agents.

    It is made for many agents: with few of them there are few steps. How many is up to `rounds`
    and the number of agents; the estimator's `max_iter` plays no part.

    Parameters
    ----------
    rounds : int or "auto", default="auto"
        K, at least 1 and at most half of the number of agents. "auto": fewer where noise in a round
        would be larger than gradients.
    step_size : float or "auto", default="auto"
        :math:`\eta_1`, in public coordinates; in [1e-100, 1e100].
    clip_norm : float or "auto", default="auto"
        Bound C of the Euclidean norm of a record's gradient, in units of the typical norm of a row;
        for Laplace noise of the L1 norm, in units of that times the root of the number of
        parameters. In [1e-100, 1e100].
    noise : {"laplace", "gaussian"}, default="laplace"
        Law of the noise. Laplace noise goes by the L1 norm, in which records are then clipped.
    order_seed : int, default=0
        Public seed of the groups; no part of the privacy.
    tail_fraction : float, default=0.5
        In (0, 1]: fraction of rounds, at the end, that is averaged; 1 is the paper's. It uses no
        budget: all broadcasts count as released.

    Notes
    -----
    **Guarantee.** As for :class:`RandomizedGradientDescent`, whose sketch of a proof it shares. An
    agent broadcasts once, so its whole budget goes into one release: with noise s it is
    :class:`~skdpadmm.privacy.LaplaceDP` with :math:`\epsilon = c\,C A / (n s)`, or GDP with
    :math:`\mu = c\,C A / (n s)`. Who is in which group is public, and amplifies nothing.

    Broadcasts are passed on along all edges of the graph, which is all that it is for.

    References
    ----------
    .. [1] H. Xiao, "Local Differential Privacy in Decentralized Optimization", SM thesis, MIT,
       2019, Algorithm 2 and Theorem 3.2.1.

    Examples
    --------
    >>> from skdpadmm import DPDecentralizedRegressor
    >>> model = DPDecentralizedRegressor(algorithm="randomized-sgd", n_agents=100)
    >>> plan = model.plan(n_samples=10_000, n_features=5)
    >>> plan.settings.rounds, plan.releases[-1].times
    (50, 1)
    """

    rounds: int | str = parameter("auto", AUTO, COUNT)
    step_size: float | str = parameter("auto", AUTO, SIZE)
    clip_norm: float | str = parameter("auto", AUTO, SIZE)
    noise: Law = parameter("laplace", OneOf("laplace", "gaussian"))
    order_seed: int = parameter(0, AT_LEAST_0)
    tail_fraction: float = parameter(0.5, FRACTION)

    def check_facts(self, facts: Facts) -> None:
        """A round takes two groups of agents, of whom each takes part once."""
        n_agents = network_of(facts).n_agents
        held = f"n_agents={n_agents} that hold n_samples={facts.n_samples} rows"
        if n_agents < 2:
            raise ValueError(
                f"Got {held}, expected at least 2 agents: a round takes two groups of them."
            )
        if self.rounds != "auto" and int(self.rounds) > n_agents // 2:
            raise ValueError(
                f"Got rounds={self.rounds} for {held}, expected at most {n_agents // 2}: a round"
                " takes two groups of agents, and each agent takes part once."
            )

    def released(self, facts: Facts, budget: Budget) -> Released:
        """Every agent's gradient, once."""
        turns = agent_turns(facts, budget, name=graph.GRADIENTS, weights=np.ones(1), law=self.noise)
        rounds = default_rounds(facts, turns) if self.rounds == "auto" else int(self.rounds)
        whole, clip_norm = default_aggregator_steps(facts, turns, longest=math.inf)
        # Steps that shrink like roots go as far as a single one, where a typical row allows.
        first = whole / float(np.sum(1.0 / np.sqrt(np.arange(rounds) + 1.0)))
        step_size = min(first, 1.0 / (facts.loss.smoothness * typical_row(facts) ** 2))
        settings = self.resolved(
            n_iter=rounds, rounds=rounds, step_size=step_size, clip_norm=clip_norm
        )
        return settings, turns

    def run(self, plan: Plan, problem: Problem, gate: Gate) -> Solution:
        """Run the rounds as planned; symbols as above."""
        settings, rows, n_rounds = plan.settings, problem.rows, plan.settings.n_iter
        groups = groups_of_agents(network_of(plan.facts).n_agents, n_rounds, settings.order_seed)
        steps = settings.step_size / np.sqrt(np.arange(n_rounds) + 1.0)
        step_size = float(steps[-settings.n_averaged :].mean())
        turns = MixedTurns(plan, problem, gate, np.ones(1))
        proximal = graph.proximal_steps(plan.facts, rows)
        tail = graph.TailAverage(plan, rows, step_size, are_common=True)
        means = np.zeros((2, *plan.releases[-1].shape[1:]))
        for k in range(n_rounds):
            first, second = groups[2 * k : 2 * k + 2]
            who = np.concatenate([first, second])
            shape = (len(who), *means.shape[1:])
            box = between(np.broadcast_to(means[0], shape), np.broadcast_to(means[1], shape))
            sent = turns.step(who, box, box.center, np.full(len(who), steps[k]))
            points = np.stack([group.mean(axis=0) for group in np.split(sent, [len(first)])])
            curvature = np.full(2, 1 / steps[k])
            means = proximal(points, curvature)
            tail.add(k, means, points, curvature)
            problem.progress(k + 1, rows.to_coordinates(means.mean(axis=0)))
        return turns.solution(tail)


def default_rounds(facts: Facts, turns: Release) -> int:
    """Rounds in which each agent broadcasts once, at most half as many as agents.

    The more rounds, the fewer agents in each, and the more noise. The bound of Theorem 3.2.1 is the
    least where noise in a round is as large as the gradient.
    """
    agents = network_of(facts)
    most = agents.n_agents // 2
    if turns.noise_std == 0:
        return most
    noise = noise_of_gradients(facts, turns)[agents.kind] * (agents.n_agents / facts.n_samples)
    n_entries = facts.n_parameters * facts.loss.n_outputs
    variance = 2 * n_entries * float(np.mean(np.square(noise)))
    return int(min(max(agents.n_agents * TYPICAL_MEAN**2 / variance, 1), most))


def groups_of_agents(n_agents: int, n_rounds: int, seed: int) -> list[Agents]:
    """Split agents at random into two groups for each round, whose sizes differ by at most one."""
    order = np.random.Generator(np.random.Philox(seed)).permutation(n_agents)
    cuts = np.arange(2 * n_rounds + 1) * n_agents // (2 * n_rounds)
    return [np.sort(order[low:high]).astype(np.intp) for low, high in pairwise(cuts.tolist())]
