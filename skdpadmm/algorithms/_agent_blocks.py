"""Hidden states of records and of agents: the part of consensus ADMM that touches private rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator, cg

from skdpadmm.algorithms._clipped_sums import clip_persons
from skdpadmm.engine import N_TASKS
from skdpadmm.losses import Loss, SquaredLoss, clip_derivative, clip_vectors
from skdpadmm.protocol import Problem
from skdpadmm.records import Rows, Segments, prepare_agents

Array = NDArray[np.float64]
# Newton steps of a record's proximal problem once it can start from its last solution. The number
# is public and accuracy is no condition of the guarantee: contributions are clipped after solving.
# Two leave 1e-5 of a coefficient in the first iterations and nothing as the steps get smaller.
WARM_STEPS = 2
# Agents with one row each that are solved together.
SINGLE_AT_ONCE = 512


@dataclass(frozen=True, eq=False, kw_only=True)
class BlockUpdate:
    """How a block updates its state: by an exact or linearized step, sent whole or as a change."""

    loss: Loss
    step_size: float
    relaxation: float
    exact: bool
    increments: bool


@dataclass(eq=False, kw_only=True)
class RecordBlocks:
    """Records with their states ``u_i = c - gamma * slope_i * a_i``.

    A state is one number (or one for each score) beside a vector c that is public, given in which
    rounds the record's agent took part. Owners are needed where some of them sit rounds out. With
    weights, rows are those of persons, who are clipped as a whole: linearized steps, of everybody.
    """

    rows: Rows
    target: NDArray[Any]
    update: BlockUpdate
    clip_norm: float
    owner: NDArray[np.intp] | None
    weights: Array | None
    per_person: int
    is_warm: bool = False

    def __post_init__(self) -> None:
        n_outputs = self.update.loss.n_outputs
        shape = (len(self.target), n_outputs) if n_outputs > 1 else (len(self.target),)
        self.slopes = np.zeros(shape)
        # Scores of c, where it differs between records.
        has_anchors = self.update.exact and self.owner is not None
        self.anchors = np.zeros(shape) if has_anchors else None
        with np.errstate(divide="ignore"):
            self.slope_bound = self.clip_norm / np.sqrt(self.rows.squared_norm)

    def advance(self, z: Array, center: Array, active: NDArray[np.bool_] | None) -> Array:
        """Update all states and sum up the messages."""
        point = 2 * z - center if self.update.exact and self.anchors is None else z
        prepared = self.rows.prepare(point if point.shape[1] > 1 else point[:, 0])
        total = self._advance(0, prepared, active)
        for block in range(1, self.rows.n_blocks):
            total += self._advance(block, prepared, active)
        self.is_warm = True
        return total

    def advance_each(
        self, z: Array, center: Array, active: NDArray[np.bool_] | None, n_agents: int
    ) -> Array:
        """Update all states and sum up the raw messages of the records of each agent."""
        assert self.owner is not None
        point = 2 * z - center if self.update.exact and self.anchors is None else z
        segments = Segments(rows=self.rows, owner=self.owner.astype(np.int32))
        prepared = prepare_agents(self.rows, np.broadcast_to(point, (n_agents, *point.shape)))

        def messages(scores: Array, own: slice) -> Array:
            seen = scores[:, 0] if scores.shape[1] == 1 else scores
            return self._message(seen, own, -1, active).reshape(scores.shape)

        raw = segments.sums(prepared, messages)
        self.is_warm = True
        return raw

    def _advance(self, block: int, prepared: Any, active: NDArray[np.bool_] | None) -> Array:
        scores, part = self.rows.scores(block, prepared), self.rows.slices[block]
        return self.rows.adjoint(block, self._message(scores, part, block, active))

    def _message(
        self, scores: Array, part: slice, block: int, active: NDArray[np.bool_] | None
    ) -> Array:
        """Update the states of some records; returns slopes of messages, 0 of who is absent."""
        lam, old, bound = self.update.relaxation, self.slopes[part], self.slope_bound
        takes_part: Any = True
        if active is not None and self.owner is not None:
            takes_part = active[self.owner[part]].reshape(-1, *[1] * (old.ndim - 1))
        if self.anchors is not None:
            anchors = self.anchors[part].copy()
            moved = anchors + 2 * lam * (scores - anchors)
            np.copyto(self.anchors[part], moved, where=takes_part)
            scores = 2 * scores - anchors
        slope = self._clipped(self._slope(scores, part), part, block)
        if self.update.increments:
            message = 2 * lam * clip_derivative(slope - old, bound[part])
            state = old + message
        else:
            state = message = (1 - 2 * lam) * old + 2 * lam * slope
        np.copyto(old, state, where=takes_part)
        return message if takes_part is True else message * takes_part

    def _clipped(self, slopes: Array, part: slice, block: int) -> Array:
        if self.weights is None:
            return clip_derivative(slopes, self.slope_bound[part])
        weights = self.weights[part]
        return clip_persons(self.rows, block, slopes, weights, self.clip_norm, self.per_person)

    def _slope(self, scores: Array, part: slice) -> Array:
        loss, target, slopes = self.update.loss, self.target[part], self.slopes[part]
        if not self.update.exact:
            return loss.derivative(scores, target)
        weights = self.update.step_size * self.rows.squared_norm[part]
        scores += (weights * slopes.T).T
        start = (slopes, WARM_STEPS) if self.is_warm else ()
        return loss.proximal_derivative(scores, target, weights, *start)


def record_blocks(
    problem: Problem, update: BlockUpdate, *, clip_norm: float, everyone: bool, each: bool = False
) -> list[RecordBlocks]:
    """Cut the records into parts that an engine can place; their number is fixed.

    `each`: messages of single agents are wanted.
    """
    rows, weights = problem.rows, problem.weights
    is_needed = each or not everyone
    owner = problem.ownership.index if is_needed and problem.ownership is not None else None
    parts: list[RecordBlocks] = []
    for part in cut(rows.n_blocks, min(N_TASKS, rows.n_blocks)):
        records = slice(rows.slices[part.start].start, rows.slices[part.stop - 1].stop)
        own = RecordBlocks(
            rows=rows.part(range(part.start, part.stop)),
            target=problem.target[records],
            update=update,
            clip_norm=clip_norm,
            owner=None if owner is None else owner[records],
            weights=None if weights is None else weights[records],
            per_person=problem.per_person,
        )
        parts.append(own)
    return parts


def cut(n: int, n_parts: int) -> list[slice]:
    """Neighbouring parts of n things, about equally many in each."""
    return [slice(n * part // n_parts, n * (part + 1) // n_parts) for part in range(n_parts)]


@dataclass(eq=False, kw_only=True)
class AgentBlocks:
    """Agents with their states ``u_a = c_a - d_a``, of the mean loss of their rows."""

    rows: Rows
    target: NDArray[Any]
    # Rows of each agent.
    groups: list[slice | NDArray[np.intp]]
    update: BlockUpdate
    bounds: Array
    weights: Array
    numbers: NDArray[np.intp]
    n_agents: int
    keeps_closed_forms: bool
    has_single_rows: bool

    def __post_init__(self) -> None:
        shape = (len(self.numbers), self.rows.coordinates.n_parameters, self.update.loss.n_outputs)
        self.centers, self.displacements, self.solutions = (np.zeros(shape) for _ in range(3))

    def advance(self, z: Array, center: Array, active: NDArray[np.bool_] | None) -> Array:
        """Update the states of all who take part and sum up their messages."""
        who, messages = self._messages(z, active)
        return np.asarray(np.einsum("a,ajk->jk", self.weights[who], messages))

    def advance_each(self, z: Array, center: Array, active: NDArray[np.bool_] | None) -> Array:
        """Update the states of all who take part; returns the messages of all agents."""
        (who, own), messages = self._messages(z, active), np.zeros((self.n_agents, *z.shape))
        messages[self.numbers[who]] = self.weights[who, None, None] * own
        return messages

    def _messages(self, z: Array, active: NDArray[np.bool_] | None) -> tuple[Any, Array]:
        """Update states; returns who takes part, and their messages without weights."""
        who: Any = slice(None) if active is None else np.flatnonzero(active[self.numbers])
        agents = range(len(self.numbers))[who] if active is None else who.tolist()
        lam, centers, old = self.update.relaxation, self.centers[who], self.displacements[who]
        if not len(centers):
            return who, np.zeros((0, *z.shape))
        points = 2 * z - centers + old
        start = points if self.update.exact else z + np.zeros(centers.shape)
        displacements = self._solve(who, agents, start)
        if self.update.increments:
            # x - z, where x = v - d is the solution of an agent's problem.
            message = 2 * lam * clip_vectors(points - displacements - z, self.bounds[who])
            self.centers[who] = centers + message
        else:
            clipped = clip_vectors(displacements, self.bounds[who])
            message = (1 - 2 * lam) * old + 2 * lam * clipped
            self.displacements[who] = message
            self.centers[who] = centers + 2 * lam * (z - centers)
        return who, message

    @cached_property
    def closed_forms(self) -> Array:
        """Displacements of all agents as affine functions of their points."""
        return np.stack([self._local(agent).closed_form() for agent in range(len(self.numbers))])

    @cached_property
    def single_rows(self) -> tuple[Array, NDArray[Any]]:
        """The row of each agent, where all have one, and its target."""
        rows, target = self.rows.take(self.groups), [self.target[group] for group in self.groups]
        return np.concatenate([rows.seen(block) for block in range(rows.n_blocks)]), np.concatenate(
            target
        )

    def _solve_single_rows(self, who: Any, points: Array) -> Array:
        """Displacements along the only row of each agent, by the loss of its score."""
        A, target, gamma = *(known[who] for known in self.single_rows), self.update.step_size
        scores = np.einsum("ad,adk->ak", A, points)
        scores = scores if scores.shape[1] > 1 else scores[:, 0]
        if self.update.exact:
            weights = gamma * np.einsum("ad,ad->a", A, A)
            slopes = self.update.loss.proximal_derivative(scores, target, weights)
        else:
            slopes = self.update.loss.derivative(scores, target)
        return np.asarray(gamma * A[:, :, None] * slopes.reshape(len(A), 1, -1))

    def _solve(self, who: Any, agents: Sequence[int], points: Array) -> Array:
        """Displacement of each agent from its point."""
        if self.has_single_rows:
            return self._solve_single_rows(who, points)
        if self.update.exact and self.keeps_closed_forms:
            forms = self.closed_forms[who]
            return np.asarray(forms[:, :, :-1] @ points + forms[:, :, -1:])
        for agent, point in zip(agents, points, strict=True):
            local, last = self._local(agent), self.solutions[agent]
            if self.update.exact:
                last[:] = local.displacement(point, last)
            else:
                last[:] = self.update.step_size * local.gradient(point)
        return self.solutions[who]

    def _local(self, agent: int) -> LocalProblem:
        group = self.groups[agent]
        rows, target = self.rows.take([group]), self.target[group]
        loss, step_size = self.update.loss, self.update.step_size
        return LocalProblem(rows=rows, target=target, loss=loss, step_size=step_size)


def agent_blocks(
    problem: Problem, update: BlockUpdate, *, clip_norm: float, limits: Array
) -> list[AgentBlocks]:
    """Cut the agents into parts that an engine can place; their number is fixed."""
    ownership, rows = problem.ownership, problem.rows
    assert ownership is not None
    n_agents = ownership.n_agents
    bounds = update.step_size * clip_norm * limits / ownership.sizes
    is_single = bool(np.all(ownership.sizes == 1))
    # Calls cost more than the steps of a few agents that have one row each.
    n_parts = min(N_TASKS, -(-n_agents // SINGLE_AT_ONCE) if is_single else n_agents)
    # All closed forms together are no larger than X.
    is_small = n_agents * (rows.coordinates.n_parameters + 1) <= rows.n_samples
    return [
        AgentBlocks(
            rows=rows,
            target=problem.target,
            groups=[ownership.rows_of(agent) for agent in range(own.start, own.stop)],
            update=update,
            bounds=bounds[own],
            weights=ownership.sizes[own] / rows.n_samples,
            numbers=np.arange(own.start, own.stop),
            n_agents=n_agents,
            keeps_closed_forms=is_small and type(update.loss) is SquaredLoss,
            has_single_rows=is_single,
        )
        for own in cut(n_agents, n_parts)
    ]


def hessian_of(A: Array, curvature: Array) -> Array:
    """Sum of second derivatives over rows A, of shape (d, k, d, k), for curvatures (n, k, k)."""
    d, k = A.shape[1], curvature.shape[1]
    hessian = np.empty((d, k, d, k))
    for i in range(k):
        for j in range(i + 1):
            hessian[:, i, :, j] = A.T @ (curvature[:, i, j, None] * A)
            hessian[:, j, :, i] = hessian[:, i, :, j]
    return hessian


# The objective is 1-strongly convex, so the norm of its gradient bounds the distance to the
# solution. This one is relative to the point.
TOLERANCE = 1e-9
MOST_NEWTON_STEPS = 50
# The second derivative of a small problem is made and factored; that of a larger one (more
# parameters, or more numbers in its rows) is only applied, by conjugate gradients.
MOST_FACTORED = 256
LARGEST_FACTORED = 2**14


@dataclass(frozen=True, eq=False, kw_only=True)
class LocalProblem:
    r"""Minimise :math:`\gamma F(x) + \|x - v\|^2 / 2`; F is the mean loss of rows."""

    rows: Rows  # In one block.
    target: NDArray[Any]
    loss: Loss
    step_size: float

    def gradient(self, x: Array) -> Array:
        """Gradient of the mean loss."""
        return self._mean(self.loss.derivative(self._scores(x), self.target)).reshape(x.shape)

    def displacement(self, v: Array, start: Array) -> Array:
        """``v`` minus the solution, by Newton's method with conjugate gradients.

        An agent stops by itself, on its own rows. Where the steps run out the result is not the
        solution; it is clipped like any other.
        """
        x = v - start
        value, gradient, scores = self._evaluate(x, v)
        for _ in range(MOST_NEWTON_STEPS):
            size = float(np.linalg.norm(gradient))
            if not size > TOLERANCE * (1.0 + float(np.linalg.norm(v))):
                break
            curvature = self.loss.curvature(scores, self.target)
            direction = self._newton_direction(gradient, curvature, size)
            slope = float(np.sum(gradient * direction))
            step = 1.0
            while True:
                candidate = x + step * direction
                new_value, new_gradient, new_scores = self._evaluate(candidate, v)
                # Near the solution values differ by less than they can show; gradients do. Far from
                # it a gradient that shrinks is no progress: at kinks of a slope it goes in circles.
                is_near = -step * slope <= 1e-10 * abs(value)
                if new_value <= value + 1e-4 * step * slope or (
                    is_near and np.linalg.norm(new_gradient) <= (1 - 1e-4 * step) * size
                ):
                    break
                step /= 2
                if step < 1e-6:
                    return v - x
            x, value, gradient, scores = candidate, new_value, new_gradient, new_scores
        return v - x

    def closed_form(self) -> Array:
        """The displacement of a squared loss as an affine function of the point."""
        d = self.rows.coordinates.n_parameters
        scores = self.rows.scores(0, self.rows.prepare(np.eye(d)))
        weighted = self.loss.curvature(scores[:, 0], self.target)[:, None] * scores
        moment = self.step_size * self._mean(weighted)
        pull = self.step_size * self._mean(self.loss.derivative(np.zeros(len(scores)), self.target))
        # Unlike a linear solver this fails for no step size: an error would depend on data.
        values, vectors = np.linalg.eigh(moment)
        shrunk = vectors / (1 + np.maximum(values, 0))
        return np.column_stack(
            [shrunk * np.maximum(values, 0) @ vectors.T, shrunk @ vectors.T @ pull]
        )

    def _scores(self, x: Array) -> Array:
        return self.rows.scores(0, self.rows.prepare(x if x.shape[1] > 1 else x[:, 0]))

    def _mean(self, slopes: Array) -> Array:
        return self.rows.collect(self.rows.adjoint(0, slopes)) / len(self.target)

    def _evaluate(self, x: Array, v: Array) -> tuple[float, Array, Array]:
        scores = self._scores(x)
        value = self.step_size * float(np.mean(self.loss.value(scores, self.target)))
        pull = self._mean(self.loss.derivative(scores, self.target)).reshape(x.shape)
        distance = x - v
        value += 0.5 * float(np.sum(distance * distance))
        return value, self.step_size * pull + distance, scores

    def _newton_direction(self, gradient: Array, curvature: Array, size: float) -> Array:
        """Exact where there are few parameters; else as exact as the distance deserves."""
        shape, n = gradient.shape, gradient.size
        if n <= MOST_FACTORED and len(self.target) * shape[0] <= LARGEST_FACTORED:
            try:
                step = np.linalg.solve(self._second_derivative(curvature), -gradient.ravel())
            except np.linalg.LinAlgError:
                # Singular to floats at huge step sizes. An error would depend on data.
                return -gradient
            return np.asarray(step).reshape(shape)

        def apply(p: Array) -> Array:
            return self._curved(p.reshape(shape), curvature).ravel()

        operator = LinearOperator((n, n), matvec=apply, dtype=np.float64)
        solved, _ = cg(operator, -gradient.ravel(), rtol=0.1 * min(0.1, size**0.5), maxiter=2 * n)
        return np.asarray(solved).reshape(shape)

    def _second_derivative(self, curvature: Array) -> Array:
        """Of the objective, as a matrix over all parameters; its eigenvalues are at least one."""
        A, k = self.rows.seen(0), self.loss.n_outputs
        hessian, n = hessian_of(A, curvature.reshape(-1, k, k)), A.shape[1] * k
        return np.asarray(np.eye(n) + self.step_size / len(A) * hessian.reshape(n, n))

    def _curved(self, p: Array, curvature: Array) -> Array:
        """The second derivative of the objective, applied to a direction."""
        scores = self._scores(p)
        slopes = (
            curvature * scores if scores.ndim == 1 else np.einsum("nkl,nl->nk", curvature, scores)
        )
        return p + self.step_size * self._mean(slopes).reshape(p.shape)
