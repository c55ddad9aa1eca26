"""What agents do when they wake up: who does when, and gradients of those who are awake.

Arrays of models have the shape (n_agents, n_parameters, n_outputs), in public coordinates.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skdpadmm.algorithms.blocks._agent_blocks import clip_vectors
from skdpadmm.losses import Loss, clip_derivative
from skdpadmm.network import Ownership, Similarity
from skdpadmm.penalties import NoPenalty, Penalty, SquaredL2
from skdpadmm.protocol import AgentTurns, Facts, Gate, Neighborhood, Plan, Problem
from skdpadmm.records import Coordinates, Rows, Segments, collect_agents, prepare_agents

Array = NDArray[np.float64]
# Rows of agents that are awake are gathered, so many entries at a time.
GATHERED_ENTRIES = 2**21


def neighborhood_of(facts: Facts) -> Neighborhood:
    """The agents of facts of personalised models."""
    assert isinstance(facts.agents, Neighborhood)
    return facts.agents


def wake_order(*, n_agents: int, n_wakes: int, clock: str, seed: int) -> NDArray[np.intp]:
    """Who wakes up when, each agent equally often.

    With Poisson clocks of one rate the next one to wake up is anybody, by the same chance, which is
    what an index that is drawn says at once. Agents who have woken up often enough sleep on. Both
    have the same law.

    Parameters
    ----------
    n_agents, n_wakes : int
        Agents, and how often each wakes up.
    clock : {"poisson", "index"}
    seed : int
        Public.

    Returns
    -------
    ndarray of intp of shape (n_agents * n_wakes,)
    """
    random = np.random.Generator(np.random.Philox(seed))
    if clock == "poisson":
        times = random.exponential(size=(n_agents, n_wakes)).cumsum(axis=1)
        return np.argsort(times, axis=None, kind="stable") // max(n_wakes, 1)
    order, counts = np.empty(0, dtype=np.intp), np.zeros(n_agents, dtype=np.intp)
    while (counts < n_wakes).any():
        drawn = random.integers(n_agents, size=n_agents * n_wakes)
        drawn = drawn[counts[drawn] + occurrences(drawn) < n_wakes]
        order = np.concatenate([order, drawn])
        counts += np.bincount(drawn, minlength=n_agents)
    return order


def occurrences(order: NDArray[np.intp]) -> NDArray[np.intp]:
    """How often the same agent came before, for each place."""
    by_agent = np.argsort(order, kind="stable")
    found = np.empty(len(order), dtype=np.intp)
    sizes = np.bincount(order)
    starts = np.repeat(np.cumsum(sizes) - sizes, sizes)
    found[by_agent] = np.arange(len(order)) - starts
    return found


def neighbor_means(
    similarity: Similarity, models: Array, agents: NDArray[np.intp] | None = None
) -> Array:
    """Means of neighbours' models; an agent that is alone stays where it is."""
    if similarity.n_agents == 1:
        return models.copy() if agents is None else models[agents]
    return similarity.neighbor_mean(models, agents)


def weights_of_agents(similarity: Similarity) -> Array:
    """Sums of the weights of each agent's edges; one for an agent that is alone."""
    return np.ones(1) if similarity.n_agents == 1 else similarity.degrees


@dataclass(frozen=True, eq=False, kw_only=True)
class AwakeGradients:
    """Sums of clipped gradients of the agents that are awake, over the rows of these alone.

    Nothing here loops over agents, and no copy of X is kept.

    Attributes
    ----------
    rows : Rows
    target : ndarray of shape (n_samples,)
    loss : Loss
    slope_bound : ndarray of shape (n_samples,)
        Bound of each derivative.
    ownership : Ownership
    by_agent : ndarray of intp of shape (n_samples,)
        Rows, agent after agent.
    bounds : ndarray of intp of shape (n_agents + 1,)
        Where each agent begins in it, and the end.
    """

    rows: Rows
    target: NDArray[Any]
    loss: Loss
    slope_bound: Array
    ownership: Ownership
    by_agent: NDArray[np.intp]
    bounds: NDArray[np.intp]

    def __call__(self, agents: NDArray[np.intp], models: Array) -> Array:
        """``sum of clip(loss'(a_i @ w_a, y_i)) a_i`` over the rows i of each agent a.

        Parameters
        ----------
        agents : ndarray of intp of shape (n_awake,)
            Each once.
        models : ndarray of shape (n_awake, n_parameters, n_outputs)
            Of these agents.

        Returns
        -------
        ndarray of the shape of `models`
        """
        sums = np.zeros(models.shape)
        for some in self._chunks(agents):
            sums[some] = self._sums(agents[some], models[some])
        return sums

    def _chunks(self, agents: NDArray[np.intp]) -> Iterator[slice]:
        """Neighbouring agents whose rows fit into the memory that is allowed."""
        sizes = self.bounds[agents + 1] - self.bounds[agents]
        most = max(GATHERED_ENTRIES // max(self.rows.coordinates.n_features, 1), 1)
        part = np.cumsum(sizes) // most
        cuts = [0, *(np.flatnonzero(np.diff(part)) + 1).tolist(), len(agents)]
        yield from (slice(low, high) for low, high in pairwise(cuts) if low < high)

    def _sums(self, agents: NDArray[np.intp], models: Array) -> Array:
        sizes = self.bounds[agents + 1] - self.bounds[agents]
        total = int(sizes.sum())
        if total == 0:
            return np.zeros(models.shape)
        first = np.repeat(self.bounds[agents] - (np.cumsum(sizes) - sizes), sizes)
        index = np.sort(self.by_agent[first + np.arange(total)])
        position = np.empty(self.ownership.n_agents, dtype=np.int32)
        position[agents] = np.arange(len(agents), dtype=np.int32)
        target, bound = self.target[index], self.slope_bound[index]

        def slopes(scores: Array, own: slice) -> Array:
            found = scores[:, 0] if self.loss.n_outputs == 1 else scores
            found = self.loss.derivative(found, target[own])
            return clip_derivative(found, bound[own]).reshape(scores.shape)

        awake = self.rows.take([index])
        segments = Segments(rows=awake, owner=position[self.ownership.index[index]])
        return collect_agents(self.rows, segments.sums(prepare_agents(self.rows, models), slopes))


def awake_gradients(
    rows: Rows,
    target: NDArray[Any],
    ownership: Ownership,
    *,
    loss: Loss,
    clip_norm: float,
    law: str = "gaussian",
) -> AwakeGradients:
    """Find out where the rows of agents are, and how large their slopes may be.

    Parameters
    ----------
    rows : Rows
    target : ndarray of shape (n_samples,)
    ownership : Ownership
    loss : Loss
    clip_norm : float
        Bound of the norm of each record's gradient, in (0, inf].
    law : {"gaussian", "laplace"}, default="gaussian"
        Which norm: Euclidean, or L1.

    Returns
    -------
    AwakeGradients
    """
    if law == "gaussian":
        norms = np.sqrt(rows.squared_norm)
    else:
        # K slopes have an L1 norm of at most sqrt(K) times their Euclidean one.
        norms = absolute_sums(rows) * math.sqrt(loss.n_outputs)
    with np.errstate(divide="ignore"):
        bound = clip_norm / norms
    sizes = np.bincount(ownership.index, minlength=ownership.n_agents)
    return AwakeGradients(
        rows=rows,
        target=target,
        loss=loss,
        slope_bound=bound,
        ownership=ownership,
        by_agent=np.argsort(ownership.index, kind="stable"),
        bounds=np.concatenate([[0], np.cumsum(sizes)]).astype(np.intp),
    )


def absolute_sums(rows: Rows) -> Array:
    """L1 norms of augmented rows in public coordinates, rounded up."""
    coordinates = rows.coordinates
    sums = np.empty(rows.n_samples)
    for block, where in enumerate(rows.slices):
        X = rows.tame(block)
        own = np.empty(X.shape[0])
        size = max(GATHERED_ENTRIES // max(X.shape[1], 1), 1)
        for start in range(0, X.shape[0], size):
            part = X[start : start + size]
            dense = part if isinstance(part, np.ndarray) else part.toarray()
            seen = np.abs((dense - coordinates.offset) / coordinates.scale)
            own[start : start + size] = seen.sum(axis=1)
        sums[where] = own + float(coordinates.fit_intercept)
    return np.asarray(sums * rows.weight * (1 + 1e-12))


def clip_absolute_sums(vectors: Array, bound: float) -> Array:
    """Scale each agent's matrix down to an L1 norm; what is not finite becomes zero.

    Parameters
    ----------
    vectors : ndarray of shape (n_agents, n_parameters, n_outputs)
    bound : float

    Returns
    -------
    ndarray of the shape of `vectors`
    """
    peak = np.abs(vectors).max(axis=(1, 2), keepdims=True)
    usable = np.isfinite(peak)
    peak = np.where(usable & (peak > 0), peak, 1.0)
    # Sums of vectors that are scaled to a peak of one do not overflow.
    scaled = np.where(usable, vectors, 0.0) / peak
    norms = np.abs(scaled).sum(axis=(1, 2), keepdims=True)
    allowed = bound / peak
    factor = np.where(norms > allowed, allowed / np.where(norms > 0, norms, 1.0), 1.0)
    return np.asarray(scaled * (peak * factor))


class NoisyTurns:
    """Gradients of agents' mean losses, clipped and released turn by turn.

    Parameters
    ----------
    plan : Plan
        With a release in turns of this name.
    problem : Problem
        With an ownership.
    gate : Gate
    name : str
    clip_norm : float
        Bound of a record's gradient, or of an agent's mean gradient, in the norm of the release.
        Infinite only where the plan is not private.
    weights : ndarray of shape (n_turns,)
        What each turn is multiplied by before noise is added, and divided by afterwards.

    Attributes
    ----------
    has_rows : ndarray of bool of shape (n_agents,)
    """

    def __init__(
        self,
        plan: Plan,
        problem: Problem,
        gate: Gate,
        *,
        name: str,
        clip_norm: float,
        weights: Array,
    ) -> None:
        facts, ownership = plan.facts, problem.ownership
        assert facts.agents is not None
        assert ownership is not None
        release = next(r for r in plan.releases if r.name == name)
        assert isinstance(release, AgentTurns)
        self._gate, self._name, self._law = gate, name, release.law
        self._weights = weights
        self._taken = np.zeros(facts.agents.n_agents, dtype=np.intp)
        self._of_records = facts.unit == "record"
        self._sizes = np.asarray(facts.agents.agent_sizes, dtype=np.float64)
        self._unit = clip_norm if math.isfinite(clip_norm) else 1.0
        # Without privacy nothing is clipped.
        self._bound = clip_norm / self._unit
        self._exact = awake_gradients(
            problem.rows,
            problem.target,
            ownership,
            loss=facts.loss,
            clip_norm=clip_norm if self._of_records else math.inf,
            law=release.law,
        )
        self.has_rows = self._sizes > 0

    def __call__(self, agents: NDArray[np.intp], models: Array) -> Array:
        """Take the next turn of some agents.

        Parameters
        ----------
        agents : ndarray of intp of shape (n_awake,)
            Each once, and with rows.
        models : ndarray of shape (n_awake, n_parameters, n_outputs)
            Of these agents; public.

        Returns
        -------
        ndarray of the shape of `models`
            Noisy gradients of their mean losses.
        """
        if not len(agents):
            return np.zeros(models.shape)
        said = self._exact(agents, models) / self._unit
        sizes = self._sizes[agents, None, None]
        if not self._of_records:
            said = self._clipped(said / sizes)
        weights = self._weights[self._taken[agents], None, None]
        self._taken[agents] += 1
        heard = self._gate.take_turns(self._name, agents, weights * said) / weights
        return np.asarray(heard * (self._unit / sizes if self._of_records else self._unit))

    def _clipped(self, means: Array) -> Array:
        if math.isinf(self._bound):
            return means
        if self._law == "laplace":
            return clip_absolute_sums(means, self._bound)
        return clip_vectors(means, np.full(len(means), self._bound))


def penalty_curvature(penalty: Penalty, coordinates: Coordinates) -> Array:
    """Curvature of a squared penalty along each parameter in public coordinates, (d, 1).

    Parameters
    ----------
    penalty : Penalty
        Already divided by the square of the target's scale.
    coordinates : Coordinates

    Returns
    -------
    ndarray of shape (n_parameters, 1)
        Zero for the intercept, so that times parameters it is the gradient.
    """
    curvature = np.zeros((coordinates.n_parameters, 1))
    square = np.square(coordinates.coefficient_scale)
    curvature[: coordinates.n_features, 0] = penalty.strong_convexity * square
    return curvature


def check_squared_penalty(penalty: Penalty) -> None:
    """Refuse a penalty whose gradient is not linear.

    Raises
    ------
    ValueError
        Says what was expected.
    """
    if not isinstance(penalty, SquaredL2 | NoPenalty):
        raise ValueError(
            f"Got {penalty!r}, expected SquaredL2 or none: models of agents are averaged, which"
            " keeps no zeros."
        )
