"""Sums of clipped gradients, which carry their sensitivity.

A record contributes its gradient, times its weight where there are some, clipped to norm C; a
person the mean gradient of its rows, clipped to C; an agent that is protected as a whole the sum
over its rows, clipped to C times its limit. No other file adds up gradients over rows. Rows that
are elsewhere are reached by `Problem.summed`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from skdpadmm.engine import N_TASKS
from skdpadmm.losses import Loss, clip_derivative, clip_vectors
from skdpadmm.protocol import Facts, Problem, Summand
from skdpadmm.records import CANCELLATION, Rows, Segments, collect_agents, prepare_agents

Array = NDArray[np.float64]
Positions = NDArray[np.intp]
Law = Literal["gaussian", "laplace"]
# Rows of agents that are awake are gathered, so many entries at a time.
GATHERED_ENTRIES = 2**21


@dataclass(frozen=True, eq=False)
class ClippedSum:
    """Sum of the gradients of records or persons, or sums of agents, with their sensitivity.

    Parameters
    ----------
    facts : Facts
    clip_norm : float, default=1.0
        C, bound of the norm of the gradient of a record, or of the mean gradient of a person. At 1
        the sensitivity is that of a sum in units of the clip bound.
    row_norm : float, default=inf
        Rows are scaled down to this norm, with their targets where these have a scale.
    law : {"gaussian", "laplace"}, default="gaussian"
        Law of the noise, which decides the norm: Euclidean, or L1.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpadmm import DPAdmmRidge
    >>> from skdpadmm.algorithms import ClippedSum
    >>> from skdpadmm.engine import Engine
    >>> from skdpadmm.protocol import Problem
    >>> from skdpadmm.records import Rows
    >>> model = DPAdmmRidge(feature_bounds=(-1, 1), target_bounds=(-1, 1), fit_intercept=False)
    >>> facts = model.plan(n_samples=2, n_features=2).facts
    >>> gradients = ClippedSum(facts, clip_norm=0.5)
    >>> round(gradients.sensitivity, 6)
    1.0
    >>> rows = Rows(np.eye(2), facts.coordinates)
    >>> total = gradients.over(Problem(rows=rows, target=np.array([1.0, -0.2]), engine=Engine()))
    >>> total(np.zeros((2, 1))).round(2)
    array([[-0.5],
           [ 0.2]])
    """

    facts: Facts
    clip_norm: float = 1.0
    row_norm: float = math.inf
    law: Law = "gaussian"

    @property
    def sensitivity(self) -> float:
        """Bound of the norm of the change of the sum, rounding included.

        It holds for all rows, losses and models, where a record or a person is replaced (2 C) or
        set to zero (C). An agent that is protected as a whole changes it by its limit times that.
        """
        facts, rounding = self.facts, self.facts.working_rounding
        if self.law == "laplace":
            # Rounding is bounded in the Euclidean norm.
            widened = math.sqrt(facts.n_parameters * facts.loss.n_outputs)
            rounding = 1.0 + (rounding - 1.0) * widened
        return self.clip_norm * facts.neighboring.sensitivity_factor * rounding

    def over(self, problem: Problem) -> Callable[..., Array]:
        """Return the map from a model (n_parameters, n_outputs) to the sum over all records.

        A second argument is a mask of the records that count, of shape (n_samples,).
        """
        rows, raw = problem.rows, problem.summed(self._raw_sum)

        def total(model: Array, counts: NDArray[np.bool_] | None = None) -> Array:
            prepared = rows.prepare(model if model.shape[1] > 1 else model[:, 0])
            return rows.collect(raw(prepared, counts)).reshape(model.shape)

        return total

    def _raw_sum(self, problem: Problem) -> Summand:
        """The same for prepared models, before it is collected."""
        rows, losses = problem.rows, self._losses(problem)
        parts: list[AgentRecords] = []
        if losses.compiled and problem.weights is None:
            # Those of one agent.
            owner = np.zeros(rows.n_samples, dtype=np.int32)
            parts = agent_records(rows, owner, losses, min(N_TASKS, rows.n_blocks))

        def total(prepared: Any, counts: NDArray[np.bool_] | None) -> Array:
            def of_block(block: int) -> Array:
                if parts:
                    models = (prepared[0].reshape(1, 1, -1), np.reshape(prepared[1], (1, 1)))
                    return parts[block].sums(models, counts)[0, 0]
                records, scores = rows.slices[block], rows.scores(block, prepared)
                if problem.weights is None:
                    slopes = losses.slopes(scores, records)
                else:
                    slopes = self.facts.loss.derivative(scores, problem.target[records])
                    weights, size = problem.weights[records], problem.per_person
                    slopes = clip_persons(rows, block, slopes, weights, self.clip_norm, size)
                if counts is not None:
                    slopes[~counts[records]] = 0.0
                return rows.adjoint(block, slopes)

            return problem.engine.sum(of_block, len(parts) or rows.n_blocks)

        return total

    def of_agents(self, problem: Problem) -> Callable[..., Array]:
        """Return the map from models of agents to the sum over the rows of each.

        Models and sums have the shape (n_agents, n_parameters, n_outputs); sums are in units of
        the clip bound. A second argument is a mask of the records that count. Records are placed
        where the engine works.
        """
        facts, rows, ownership = self.facts, problem.rows, problem.ownership
        assert ownership is not None
        losses = self._losses(problem)
        limits, owner = facts.unit_limits[facts.agents.kind], ownership.index.astype(np.int32)
        # Sums of all agents are added up once for each part: a little beside a pass over its rows.
        n_parts = min(max(rows.n_samples // (100 * ownership.n_agents), 2), N_TASKS, rows.n_blocks)
        parts = agent_records(rows, owner, losses, n_parts)
        placed = problem.engine.place(parts)

        def sums(models: Array, counts: NDArray[np.bool_] | None = None) -> Array:
            raw = placed.sum(AgentRecords.sums, prepare_agents(rows, models), counts)
            sums = collect_agents(rows, raw) / self.clip_norm
            return sums if facts.unit == "record" else clip_vectors(sums, limits)

        return sums

    def of_some_agents(self, problem: Problem, units: Array) -> Callable[[Positions, Array], Array]:
        """Return the map from positions of agents and their models to the sum over their rows.

        Sums are in units of shape (n_agents,), the bounds of what an agent contributes. Only rows
        of these agents are read, no copy of X is kept, and nothing loops over agents.
        """
        assert problem.ownership is not None
        rows, index, losses = problem.rows, problem.ownership.index, self._losses(problem)
        by_agent, sizes = np.argsort(index, kind="stable"), problem.ownership.sizes
        begins = np.cumsum(sizes) - sizes
        most = max(GATHERED_ENTRIES // max(rows.coordinates.n_features, 1), 1)
        clips_agents = self.facts.unit == "agent" and math.isfinite(self.clip_norm)

        def of_piece(agents: Positions, models: Array) -> Array:
            own_sizes = sizes[agents]
            total = int(own_sizes.sum())
            if total == 0:
                return np.zeros(models.shape)
            first = np.repeat(begins[agents] - (np.cumsum(own_sizes) - own_sizes), own_sizes)
            chosen = np.sort(by_agent[first + np.arange(total)])
            position = np.empty(len(sizes), dtype=np.int32)
            position[agents] = np.arange(len(agents), dtype=np.int32)
            segments = Segments(rows=rows.take([chosen]), owner=position[index[chosen]])
            records = AgentRecords(segments, losses.part(chosen), 0)
            return collect_agents(rows, records.sums(prepare_agents(rows, models), None))

        def sums(agents: Positions, models: Array) -> Array:
            piece, sums = np.cumsum(sizes[agents]) // most, np.zeros(models.shape)
            cuts = [0, *(np.flatnonzero(np.diff(piece)) + 1).tolist(), len(agents)]
            for low, high in pairwise(cuts):
                sums[low:high] = of_piece(agents[low:high], models[low:high])
            sums = sums / units[agents, None, None]
            return clip_vectors(sums, np.ones(len(agents)), self.law) if clips_agents else sums

        return sums

    def of_coordinates(self, problem: Problem, shares: Array) -> Callable[[int, int, Array], Array]:
        """Return the map from a coordinate j to its sum, each term clipped to ``C shares[j]``.

        Scores are kept. The other arguments are which coordinate of the model has changed since
        the last call, and by how much: one pass does both.
        """
        return problem.summed(partial(self._coordinate_sum, shares))

    def _coordinate_sum(self, shares: Array, problem: Problem) -> Summand:
        rows, target, loss = problem.rows, problem.target, self.facts.loss
        columns = [rows.columns(block) for block in range(rows.n_blocks)]
        scores = np.zeros(
            (rows.n_samples, loss.n_outputs) if loss.n_outputs > 1 else rows.n_samples
        )

        def total(j: int, changed: int, change: Array) -> Array:
            def of_block(block: int) -> Array:
                records, column = rows.slices[block], columns[block]
                if change.any():
                    added = np.outer(column(changed), change)
                    scores[records] += added.reshape(scores[records].shape)
                slopes = loss.derivative(scores[records], target[records])
                terms = clip_derivative((column(j) * slopes.T).T, self.clip_norm * shares[j])
                return np.atleast_1d(terms.sum(axis=0))

            return problem.engine.sum(of_block, rows.n_blocks)

        return total

    def _losses(self, problem: Problem) -> ClippedLosses:
        """Losses of all records; those of agents that are protected as a whole are not clipped."""
        rows, target, shrink = problem.rows, problem.target, None
        longest = math.inf if self.facts.unit == "agent" else self.clip_norm
        with np.errstate(all="ignore"):
            norms = np.sqrt(rows.squared_norm)
            if self.law == "laplace":
                # K slopes have an L1 norm of at most sqrt(K) times their Euclidean one.
                norms = absolute_sums(rows) * math.sqrt(self.facts.loss.n_outputs)
            if self.row_norm < math.inf:
                shrink = np.minimum(1.0, self.row_norm / norms)
                norms = norms * shrink
                np.nan_to_num(shrink, copy=False, nan=1.0)
                target = target * shrink if rows.coordinates.has_target_scale else target
            compiled = shrink is None and Segments.is_compiled(rows, self.facts.loss)
            return ClippedLosses(self.facts.loss, target, longest / norms, shrink, compiled)


@dataclass(frozen=True, eq=False)
class ClippedLosses:
    """Losses of records, with a bound of the derivative of each: that of its gradient."""

    loss: Loss
    target: NDArray[Any]
    bound: Array
    shrink: Array | None = None  # What rows are multiplied by.
    compiled: bool = False  # In one loop with the sums of rows.

    def slopes(self, scores: Array, records: slice) -> Array:
        """Clipped derivatives at the scores of some records, one or several of each."""
        flat = scores.reshape(len(scores)) if self.loss.n_outputs == 1 else scores
        shrink = None if self.shrink is None else self.shrink[records]
        flat = flat if shrink is None else (flat.T * shrink).T
        slopes = self.loss.derivative(flat, self.target[records])
        slopes = clip_derivative(slopes, self.bound[records])
        return (slopes if shrink is None else (slopes.T * shrink).T).reshape(scores.shape)

    def part(self, records: slice | Positions) -> ClippedLosses:
        """Those of some records."""
        shrink = None if self.shrink is None else self.shrink[records]
        own = (self.target[records], self.bound[records], shrink, self.compiled)
        return ClippedLosses(self.loss, *own)


@dataclass(frozen=True, eq=False)
class AgentRecords:
    """Records in neighbouring blocks, which add to gradients of their agents."""

    segments: Segments
    losses: ClippedLosses
    start: int  # Which record is the first one.

    def sums(self, prepared: tuple[Array, Array], counts: NDArray[np.bool_] | None) -> Array:
        """Raw sums of clipped gradients, of shape (n_agents, n_outputs, n_features + 1)."""
        losses, start, weight = self.losses, self.start, self.segments.rows.weight
        if losses.compiled:
            weight = weight if counts is None else weight * counts[start : start + len(weight)]
            known = (losses.target, losses.bound, weight)
            return self.segments.compiled_sums(prepared, losses.loss, *known)

        def slopes(scores: Array, own: slice) -> Array:
            slopes = losses.slopes(scores, own)
            if counts is not None:
                slopes *= counts[start + own.start : start + own.stop, None]
            return slopes

        return self.segments.sums(prepared, slopes)


def agent_records(
    rows: Rows, owner: NDArray[np.int32], losses: ClippedLosses, n_parts: int
) -> list[AgentRecords]:
    """Cut records into parts of neighbouring blocks."""
    parts = []
    for part in range(n_parts):
        blocks = range(rows.n_blocks * part // n_parts, rows.n_blocks * (part + 1) // n_parts)
        own = slice(rows.slices[blocks[0]].start, rows.slices[blocks[-1]].stop)
        segments = Segments(rows=rows.part(blocks), owner=owner[own])
        parts.append(AgentRecords(segments, losses.part(own), own.start))
    return parts


def clip_persons(
    rows: Rows, block: int, slopes: Array, weights: Array, clip_norm: float, per_person: int
) -> Array:
    """Weighted slopes for which the mean gradient of each person is at most as long as the bound.

    Each row is first clipped at `CANCELLATION` times the bound, which bounds the rounding of rows
    that cancel each other. A single row, as of a weighted record, has a known norm.
    """
    with np.errstate(divide="ignore"):
        bound = clip_norm / np.sqrt(rows.squared_norm[rows.slices[block]])
    if per_person == 1:
        return clip_derivative((slopes.T * weights).T, bound)
    most = CANCELLATION * bound
    weighted = clip_derivative(slopes, most).reshape(len(slopes), -1) * weights[:, None]
    longest = clip_norm * per_person
    norms = rows.norms_of_units(block, weighted, per_person)
    shrink = np.where(np.isfinite(norms), longest / np.maximum(norms, longest), 0.0)
    return (weighted * np.repeat(shrink, per_person)[:, None]).reshape(slopes.shape)


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
