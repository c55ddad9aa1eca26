"""Agents that mix what they heard with secret random weights, and what they say.

Given what was said before, a mix is uniform on a public box, whatever the rows. Arrays of models
have the shape (n_agents, n_parameters, n_outputs), in public coordinates.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from skdpadmm.algorithms._agent_blocks import clip_vectors
from skdpadmm.algorithms._agent_turns import awake_gradients, clip_absolute_sums
from skdpadmm.algorithms._aggregator_defaults import law_factor
from skdpadmm.algorithms._messages import unit_limits
from skdpadmm.network import MixingMatrix, Topology
from skdpadmm.privacy import expected_privacy_loss_factor_ceiling
from skdpadmm.protocol import Gate, Plan, Problem, Release, network_of

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False, kw_only=True)
class Box:
    """Where mixes can be: ``start + r * extent``, with r in [0, 1] for each entry.

    Attributes
    ----------
    start, extent : ndarray of shape (n_agents, n_parameters, n_outputs)
        Functions of what was said.
    """

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
        """A mix with weights that are drawn now, for each entry, and forgotten.

        Parameters
        ----------
        uniform : callable
            `Gate.uniform`.
        """
        return self.start + uniform(self.extent.shape) * self.extent


def between(one: Array, other: Array) -> Box:
    """``r one + (1 - r) other``."""
    return Box(start=other, extent=one - other)


def neighbors_box(topology: Topology, models: Array) -> Box:
    """Between an agent's own model and the mean of its neighbours.

    An agent without neighbours stays where it is.

    Parameters
    ----------
    topology : Topology
    models : ndarray of shape (n_agents, ...)
    """
    if topology.n_edges == 0:
        return between(models, models)
    degrees = topology.degrees.reshape(-1, *(1,) * (models.ndim - 1))
    return between(models, topology.neighbor_sum(models) / degrees)


def metropolis_box(mixing: MixingMatrix, models: Array) -> Box:
    """Between an agent's own model and what doubly stochastic weights make of the neighbourhood.

    Parameters
    ----------
    mixing : MixingMatrix
    models : ndarray of shape (n_agents, ...)
    """
    return between(models, mixing.dot(models))


@dataclass(frozen=True, eq=False, kw_only=True)
class ClosedNeighborhoods:
    """Each agent with its neighbours, one after another.

    Attributes
    ----------
    starts : ndarray of intp of shape (n_agents,)
        Where each begins.
    members : ndarray of intp
        Agents.
    """

    starts: NDArray[np.intp]
    members: NDArray[np.intp]

    @property
    def sizes(self) -> NDArray[np.intp]:
        """Degrees, and one for oneself."""
        return np.diff(np.append(self.starts, len(self.members)))

    def pairs(self, random: np.random.Generator) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Two different members of each neighbourhood; twice the agent where it is alone."""
        first = random.integers(self.sizes)
        second = (first + 1 + random.integers(np.maximum(self.sizes - 1, 1))) % self.sizes
        return self.members[self.starts + first], self.members[self.starts + second]

    def pair_box(
        self, topology: Topology, models: Array, pair: tuple[NDArray[np.intp], NDArray[np.intp]]
    ) -> Box:
        """Means over neighbourhoods in which two members share their weights at random.

        They have ``2 r / (d + 1)`` and ``2 (1 - r) / (d + 1)``, the others ``1 / (d + 1)``: rows
        sum to one, which r and 1 - r over d + 1 would not make them.

        Parameters
        ----------
        topology : Topology
        models : ndarray of shape (n_agents, ...)
        pair : tuple of ndarray of intp of shape (n_agents,)
            See `pairs`; public.
        """
        sizes = self.sizes.reshape(-1, *(1,) * (models.ndim - 1))
        one, other = models[pair[0]], models[pair[1]]
        means = (models + topology.neighbor_sum(models)) / sizes
        return Box(start=means + (other - one) / sizes, extent=2.0 * (one - other) / sizes)

    def interval_box(self, models: Array) -> Box:
        """Between the largest and the smallest entry of each neighbourhood.

        Parameters
        ----------
        models : ndarray of shape (n_agents, ...)
        """
        heard = models[self.members]
        return between(
            np.minimum.reduceat(heard, self.starts), np.maximum.reduceat(heard, self.starts)
        )


def closed_neighborhoods(topology: Topology) -> ClosedNeighborhoods:
    """List each agent with its neighbours."""
    n, edges = topology.n_agents, topology.edges
    own = np.arange(n, dtype=np.intp)
    owner = np.concatenate([own, edges[:, 0], edges[:, 1]])
    member = np.concatenate([own, edges[:, 1], edges[:, 0]])
    order = np.lexsort((member, owner))
    starts = np.searchsorted(owner[order], own)
    return ClosedNeighborhoods(starts=np.asarray(starts, dtype=np.intp), members=member[order])


class Turns:
    """What agents say of their rows in turns: with noise, in units in which a unit has norm one.

    Noise meets what an agent knows before the mix does, which has the same law: sums with public
    numbers of any size would round what the noise is calibrated for.

    Parameters
    ----------
    plan : Plan
        With a release in turns of this name.
    gate : Gate
    name : str
    weights : ndarray of shape (n_turns,)
        What each turn is multiplied by before noise is added, and divided by afterwards.
    units : ndarray of shape (n_agents,)
        What a unit can move, in the norm of the noise.
    """

    def __init__(self, plan: Plan, gate: Gate, *, name: str, weights: Array, units: Array) -> None:
        release = next(r for r in plan.releases if r.name == name)
        assert release.door == "take_turns"
        kind = network_of(plan.facts).kind
        self._gate, self._name, self._weights, self._units = gate, name, weights, units
        self.law, self._is_private = release.law, release.noise_std > 0
        # Laplace noise of scale one has the standard deviation sqrt(2).
        self._scales = np.asarray(release.agent_noise_std)[kind] / math.sqrt(2.0)
        self._moved = np.asarray(release.sensitivities)
        self._taken = np.zeros(len(kind), dtype=np.intp)
        self._expected = np.zeros(len(kind))

    def __call__(self, agents: NDArray[np.intp], exact: Array) -> Array:
        """Take the next turn of some agents.

        Parameters
        ----------
        agents : ndarray of intp of shape (n_awake,)
            Each once.
        exact : ndarray of shape (n_awake, n_parameters, n_outputs)
            What they know, in the units of the models.

        Returns
        -------
        ndarray of the shape of `exact`
            With noise.
        """
        units = self._units[agents, None, None]
        weights = self._weights[self._taken[agents], None, None]
        heard = self._gate.take_turns(self._name, agents, weights * (exact / units))
        self._taken[agents] += 1
        return np.asarray(units * (heard / weights))

    def count_losses(
        self, agents: NDArray[np.intp], widths: Array, step_size: float | Array
    ) -> None:
        """Add what the turns that were just taken are expected to tell, mixed as they were.

        Parameters
        ----------
        agents : ndarray of intp of shape (n_awake,)
        widths : ndarray of shape (n_awake, n_parameters, n_outputs)
            Of the intervals that mixes were drawn from; public.
        step_size : float or ndarray of shape (n_awake,)
            What was multiplied with before it met the mix.
        """
        if not self._is_private or self.law != "laplace":
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
        if not self._is_private or self.law != "laplace":
            return None
        return self._expected.copy()


def gradient_turns(
    plan: Plan, problem: Problem, gate: Gate, *, name: str, clip_norm: float, weights: Array
) -> tuple[Turns, Callable[[NDArray[np.intp], Array], Array]]:
    """Gradients of agents' weighted losses, clipped in the norm of the noise and released.

    Parameters
    ----------
    plan : Plan
        With a release in turns of this name.
    problem : Problem
        With an ownership.
    gate : Gate
    name : str
    clip_norm : float
        Bound of a record's gradient, or of an agent's mean gradient: with Gaussian noise in the
        Euclidean norm, with Laplace noise in the L1 norm at ``clip_norm * law_factor``. Infinite
        only where the plan is not private.
    weights : ndarray of shape (n_turns,)
        Of each turn.

    Returns
    -------
    turns : Turns
    gradient : callable
        Maps agents and their points to noisy gradients of ``F_a = (A / n) sum_{i in a} f_i``.
    """
    facts, ownership = plan.facts, problem.ownership
    network = network_of(facts)
    assert ownership is not None
    release = next(r for r in plan.releases if r.name == name)
    assert release.door == "take_turns"
    law, of_records = release.law, facts.unit == "record"
    bound = clip_norm * law_factor(facts, law)
    exact = awake_gradients(
        problem.rows,
        problem.target,
        ownership,
        loss=facts.loss,
        clip_norm=bound if of_records else math.inf,
        law=law,
    )
    share = network.n_agents / facts.n_samples
    clips = math.isfinite(bound)
    units = share * unit_limits(facts)[network.kind] * (bound if clips else 1.0)
    turns = Turns(plan, gate, name=name, weights=weights, units=units)

    def gradient(agents: NDArray[np.intp], points: Array) -> Array:
        sums = share * exact(agents, points)
        if clips and not of_records:
            sums = clipped(sums, units[agents], law)
        return turns(agents, sums)

    return turns, gradient


def clipped(vectors: Array, limits: Array, law: str) -> Array:
    """Scale each agent's matrix down in the norm of the noise; what is not finite becomes zero.

    Parameters
    ----------
    vectors : ndarray of shape (n_agents, n_parameters, n_outputs)
    limits : ndarray of shape (n_agents,)
    law : {"gaussian", "laplace"}
    """
    if law == "gaussian":
        return clip_vectors(vectors, limits)
    each = limits[:, None, None]
    return np.asarray(clip_absolute_sums(vectors / each, 1.0) * each)


def noise_of_mean(plan: Plan, release: Release, weights: Array) -> float:
    """Noise in the mean gradient of all agents, in each entry, over the Euclidean clip bound.

    Parameters
    ----------
    plan : Plan
    release : Release
    weights : ndarray of shape (n_averaged,)
        Of the turns that answers are made of.
    """
    facts = plan.facts
    shares = (
        np.asarray(release.agent_noise_std) * unit_limits(facts) * law_factor(facts, release.law)
    )
    one = float(np.linalg.norm(shares[network_of(facts).kind])) / facts.n_samples
    return one * math.sqrt(float(np.mean(np.square(1.0 / weights))))
