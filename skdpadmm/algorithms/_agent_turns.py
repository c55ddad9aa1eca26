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

from skdpadmm.losses import Loss, clip_derivative, clip_vectors
from skdpadmm.network import Ownership, Similarity
from skdpadmm.protocol import Gate, Plan, Problem
from skdpadmm.records import Rows, Segments, collect_agents, prepare_agents

Array = NDArray[np.float64]
# Rows of agents that are awake are gathered, so many entries at a time.
GATHERED_ENTRIES = 2**21


def neighbor_means(
    similarity: Similarity, models: Array, agents: NDArray[np.intp] | None = None
) -> Array:
    """Means of neighbours' models; an agent that is alone stays where it is."""
    if similarity.n_agents == 1:
        return models.copy() if agents is None else models[agents]
    return similarity.neighbor_mean(models, agents)


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
        chunks = list(self._chunks(agents))
        if len(chunks) == 1:
            return self._sums(agents, models)
        sums = np.zeros(models.shape)
        for some in chunks:
            sums[some] = self._sums(agents[some], models[some])
        return sums

    def _chunks(self, agents: NDArray[np.intp]) -> Iterator[slice]:
        """Neighbouring agents whose rows fit into the memory that is allowed."""
        sizes = self.bounds[agents + 1] - self.bounds[agents]
        most = max(GATHERED_ENTRIES // max(self.rows.coordinates.n_features, 1), 1)
        ends = np.cumsum(sizes)
        if len(ends) and ends[-1] < most:
            yield slice(0, len(agents))
            return
        part = ends // most
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
        What each turn is multiplied by before noise is added, and divided by afterwards. Kept.

    Attributes
    ----------
    has_rows : ndarray of bool of shape (n_agents,)
    exact : AwakeGradients
    law : {"gaussian", "laplace"}
    of_records : bool
        Whether the gradient of each record is clipped, and not the mean of an agent's.
    sizes : ndarray of shape (n_agents,)
        Numbers of rows.
    unit : float
        What is said is in units of it.
    bound : float
        Of the norm of what is clipped, in these units.
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
        assert release.door == "take_turns"
        self._gate, self._name, self.law = gate, name, release.law
        self.weights = weights
        self._taken = np.zeros(facts.agents.n_agents, dtype=np.intp)
        self.of_records = facts.unit == "record"
        self.sizes = np.asarray(facts.agents.agent_sizes, dtype=np.float64)
        self.unit = clip_norm if math.isfinite(clip_norm) else 1.0
        # Without privacy nothing is clipped.
        self.bound = clip_norm / self.unit
        self.exact = awake_gradients(
            problem.rows,
            problem.target,
            ownership,
            loss=facts.loss,
            clip_norm=clip_norm if self.of_records else math.inf,
            law=release.law,
        )
        self.has_rows = self.sizes > 0

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
        said = self.exact(agents, models) / self.unit
        sizes = self.sizes[agents, None, None]
        if not self.of_records:
            said = self._clipped(said / sizes)
        weights = self.weights[self._taken[agents], None, None]
        self._taken[agents] += 1
        heard = self._gate.take_turns(self._name, agents, weights * said) / weights
        return np.asarray(heard * (self.unit / sizes if self.of_records else self.unit))

    def _clipped(self, means: Array) -> Array:
        if math.isinf(self.bound):
            return means
        if self.law == "laplace":
            return clip_absolute_sums(means, self.bound)
        return clip_vectors(means, np.full(len(means), self.bound))


@dataclass(frozen=True, eq=False, kw_only=True)
class Wakes:
    """Updates of agents that wake up, all of a wave at once.

    Attributes
    ----------
    gradient : NoisyTurns
    similarity : Similarity
    curvature : ndarray of shape (n_parameters, 1)
        Of the penalty.
    pull, step : ndarray of shape (n_agents,)
    n_turns : int
        How often each agent uses its rows; after that it averages.
    """

    gradient: NoisyTurns
    similarity: Similarity
    curvature: Array
    pull: Array
    step: Array
    n_turns: int

    def advance(self, models: Array, woken: NDArray[np.intp], wave: NDArray[np.intp]) -> None:
        """Let agents wake up.

        Parameters
        ----------
        models : ndarray of shape (n_agents, n_parameters, n_outputs)
            Changed in place.
        woken : ndarray of intp of shape (n_agents,)
            How often each woke up; changed in place.
        wave : ndarray of intp of shape (n_awake,)
        """
        own, means = models[wave], neighbor_means(self.similarity, models, wave)
        learns = self.gradient.has_rows[wave] & (woken[wave] < self.n_turns)
        who, theirs = wave[learns], own[learns]
        slopes = self.gradient(who, theirs) + self.curvature * theirs
        means[learns] -= self.pull[who, None, None] * slopes
        models[wave] = own + self.step[wave, None, None] * (means - own)
        woken[wave] += 1
