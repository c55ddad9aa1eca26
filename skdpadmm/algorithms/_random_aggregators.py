"""Agents that mix what they heard with secret random weights, and what they say.

Given what was said before, a mix is uniform on a public box, whatever the rows. Arrays of models
have the shape (n_agents, n_parameters, n_outputs), in public coordinates.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from skdpadmm.algorithms._defaults import is_regression, typical_row
from skdpadmm.algorithms._messages import unit_limits
from skdpadmm.algorithms._network_steps import Array, default_network_steps
from skdpadmm.algorithms._turns import awake_gradients
from skdpadmm.losses import clip_vectors
from skdpadmm.network import Topology, mixing_matrix
from skdpadmm.privacy import expected_privacy_loss_factor_ceiling
from skdpadmm.protocol import Facts, Gate, Plan, Problem, Release, network_of

Agents = NDArray[np.intp]
# The noise of the first round over that of the last one is at most this, or its inverse.
MOST_DECAY = 1e12
# Bound of the derivative of a typical record's loss that hardly anything exceeds.
WIDEST_CLIP = 1.0


@dataclass(frozen=True, eq=False, kw_only=True)
class Box:
    """Where mixes can be: ``start + r * extent``, with r in [0, 1] for each entry."""

    start: Array
    extent: Array

    @property
    def center(self) -> Array:
        """The mix that is expected."""
        return self.start + 0.5 * self.extent

    @property
    def widths(self) -> Array:
        """Of the intervals of the entries."""
        return np.abs(self.extent)

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
        heard = models[self.members]
        return between(
            np.minimum.reduceat(heard, self.starts), np.maximum.reduceat(heard, self.starts)
        )


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


class Turns:
    """What agents say of their rows in turns: with noise, in units in which a unit has norm one.

    Noise meets what an agent knows before the mix does, which has the same law: sums with public
    numbers of any size would round what the noise is calibrated for.

    Parameters
    ----------
    plan : Plan
        Its last release is in turns.
    gate : Gate
    weights : ndarray of shape (n_turns,)
        What each turn is multiplied by before noise is added, and divided by afterwards.
    units : ndarray of shape (n_agents,)
        What a unit can move, in the norm of the noise.
    """

    def __init__(self, plan: Plan, gate: Gate, *, weights: Array, units: Array) -> None:
        release = plan.releases[-1]
        assert release.door == "take_turns"
        kind = network_of(plan.facts).kind
        self._gate, self._name, self._weights, self._units = gate, release.name, weights, units
        self._counts = release.law == "laplace" and release.noise_std > 0
        # Laplace noise of scale one has the standard deviation sqrt(2).
        self._scales = np.asarray(release.agent_noise_std)[kind] / math.sqrt(2.0)
        self._moved = np.asarray(release.sensitivities)
        self._taken = np.zeros(len(kind), dtype=np.intp)
        self._expected = np.zeros(len(kind))

    def __call__(self, agents: Agents, exact: Array) -> Array:
        """Take the next turn of some agents, each once: what they know, with noise."""
        units = self._units[agents, None, None]
        weights = self._weights[self._taken[agents], None, None]
        heard = self._gate.take_turns(self._name, agents, weights * (exact / units))
        self._taken[agents] += 1
        return np.asarray(units * (heard / weights))

    def count_losses(self, agents: Agents, widths: Array, step_size: float | Array) -> None:
        """Add what the turns that were just taken are expected to tell, mixed as they were.

        Widths are those of the intervals that mixes were drawn from, and public; the step is what
        was multiplied with before it met the mix.
        """
        if not self._counts:
            return
        turns = self._taken[agents] - 1
        scales = self._units[agents] * self._scales[agents] / self._weights[turns] * step_size
        losses = self._moved[turns] / self._scales[agents]
        each = losses[:, None, None] / (widths.shape[1] * widths.shape[2])
        factors = expected_privacy_loss_factor_ceiling(1.0, widths / scales[:, None, None], each)
        self._expected[agents] += losses * factors.mean(axis=(1, 2))

    @property
    def expected_loss(self) -> Array | None:
        """Expected absolute privacy losses of all agents' turns so far; None where unknown."""
        return self._expected.copy() if self._counts else None


class GradientTurns(Turns):
    """Gradients of agents' weighted losses, clipped in the norm of the noise and released.

    `clip_norm` bounds a record's gradient, or an agent's mean gradient: with Gaussian noise in the
    Euclidean norm, with Laplace noise in the L1 norm at ``clip_norm * law_factor``. It is infinite
    only where the plan is not private.
    """

    def __init__(
        self, plan: Plan, problem: Problem, gate: Gate, *, clip_norm: float, weights: Array
    ) -> None:
        facts, ownership, law = plan.facts, problem.ownership, plan.releases[-1].law
        network, of_records = network_of(facts), facts.unit == "record"
        assert ownership is not None
        bound = clip_norm * law_factor(facts, law)
        self._exact = awake_gradients(
            problem.rows,
            problem.target,
            ownership,
            loss=facts.loss,
            clip_norm=bound if of_records else math.inf,
            law=law,
        )
        self._share, self._law = network.n_agents / facts.n_samples, law
        clips = math.isfinite(bound)
        self._clips_agents = clips and not of_records
        units = self._share * unit_limits(facts)[network.kind] * (bound if clips else 1.0)
        super().__init__(plan, gate, weights=weights, units=units)

    def gradient(self, agents: Agents, points: Array) -> Array:
        """Noisy gradients of ``F_a = (A / n) sum_{i in a} f_i`` at agents' points."""
        sums = self._share * self._exact(agents, points)
        if self._clips_agents:
            sums = clipped(sums, self._units[agents], self._law)
        return self(agents, sums)


def clipped(vectors: Array, limits: Array, law: str) -> Array:
    """Scale each agent's matrix down in the norm of the noise; what is not finite becomes zero."""
    if law == "gaussian":
        return clip_vectors(vectors, limits)
    each = limits[:, None, None]
    return clip_vectors(vectors / each, np.ones(len(limits)), law) * each


def check_noise_decay(noise_decay: float, n_rounds: int) -> None:
    """Refuse noise that changes so much over all rounds that its sizes cannot be added."""
    if n_rounds * abs(math.log(noise_decay)) > math.log(MOST_DECAY):
        raise ValueError(
            f"Got noise_decay={noise_decay} over {n_rounds} rounds, expected noise that changes by"
            f" a factor of at most {MOST_DECAY:g} over all of them. Choose it closer to 1."
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
    return np.asarray(turns.agent_noise_std) * unit_limits(facts) * law_factor(facts, turns.law)


def noise_of_mean(plan: Plan, clip_norm: float, weights: Array, widened: float = 1.0) -> float:
    """Noise in each entry of the mean gradient of all agents, in turns of these weights."""
    facts, release = plan.facts, plan.releases[-1]
    if release.noise_std == 0:
        return 0.0
    shares = noise_of_gradients(facts, release)[network_of(facts).kind]
    one = float(np.linalg.norm(shares)) / facts.n_samples
    return clip_norm * (one * math.sqrt(float(np.mean(np.square(1.0 / weights)))) * widened)


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
    step_size, clip_norm = default_network_steps(
        facts, replace(turns, agent_noise_std=shares, noise_std=max(shares))
    )
    shorter = min(step_size, longest)
    if not is_regression(facts):
        # A shorter step with a wider clip goes as far, with as much noise in the model: half way.
        wider = clip_norm * math.sqrt(step_size / shorter)
        clip_norm = max(min(wider, WIDEST_CLIP), clip_norm)
    return shorter, clip_norm
