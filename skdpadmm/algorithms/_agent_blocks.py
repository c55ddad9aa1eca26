"""Hidden states of records and of agents: the part of consensus ADMM that touches private rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator, cg

from skdpadmm.engine import N_TASKS
from skdpadmm.losses import Loss, SquaredLoss, clip_derivative, clip_vectors
from skdpadmm.protocol import Problem
from skdpadmm.records import Rows

# Newton steps of a record's proximal problem once it can start from its last solution. The number
# is public and accuracy is no condition of the guarantee: contributions are clipped after solving.
# Two leave 1e-5 of a coefficient in the first iterations and nothing as the steps get smaller.
WARM_STEPS = 2


@dataclass(eq=False, kw_only=True)
class RecordBlocks:
    """Records with their states ``u_i = c - gamma * slope_i * a_i``.

    A state is one number (or one for each score) beside a vector c that is public, given in which
    rounds the record's agent took part.
    """

    rows: Rows
    target: NDArray[Any]
    loss: Loss
    step_size: float
    relaxation: float
    slope_bound: NDArray[np.float64]
    exact: bool
    slopes: NDArray[np.float64]
    increments: bool = False
    owner: NDArray[np.intp] | None = None
    anchors: NDArray[np.float64] | None = None
    is_warm: bool = False

    def advance(
        self,
        z: NDArray[np.float64],
        center: NDArray[np.float64],
        active: NDArray[np.bool_] | None = None,
    ) -> NDArray[np.float64]:
        """Update all states and sum up the messages."""
        shared = self.exact and self.anchors is None
        point = 2 * z - center if shared else z
        prepared = self.rows.prepare(point if self.loss.n_outputs > 1 else point[:, 0])
        total = self._advance(0, prepared, active)
        for block in range(1, self.rows.n_blocks):
            total += self._advance(block, prepared, active)
        self.is_warm = True
        return total

    def _advance(
        self, block: int, prepared: Any, active: NDArray[np.bool_] | None
    ) -> NDArray[np.float64]:
        part = self.rows.slices[block]
        takes_part = None
        if active is not None and self.owner is not None:
            takes_part = _like(active[self.owner[part]], self.slopes)
        scores = self.rows.scores(block, prepared)
        old, lam = self.slopes[part], self.relaxation
        if self.anchors is not None:
            anchors = self.anchors[part].copy()
            _update(self.anchors[part], anchors + 2 * lam * (scores - anchors), takes_part)
            scores = 2 * scores - anchors
        slope = clip_derivative(self._slope(scores, part), self.slope_bound[part])
        if self.increments:
            change = 2 * lam * clip_derivative(slope - old, self.slope_bound[part])
            state, message = old + change, change
        else:
            state = message = (1 - 2 * lam) * old + 2 * lam * slope
        _update(old, state, takes_part)
        if takes_part is not None:
            message = message * takes_part
        return self.rows.adjoint(block, message)

    def _slope(self, scores: NDArray[np.float64], part: slice) -> NDArray[np.float64]:
        target = self.target[part]
        if not self.exact:
            return self.loss.derivative(scores, target)
        weights = self.step_size * self.rows.squared_norm[part]
        scores += (weights * self.slopes[part].T).T
        if not self.is_warm:
            return self.loss.proximal_derivative(scores, target, weights)
        return self.loss.proximal_derivative(scores, target, weights, self.slopes[part], WARM_STEPS)


def record_blocks(
    problem: Problem,
    *,
    loss: Loss,
    step_size: float,
    relaxation: float,
    clip_norm: float,
    exact: bool,
    increments: bool = False,
    partial: bool = False,
) -> list[RecordBlocks]:
    """Cut the records into parts that an engine can place; their number is fixed."""
    rows = problem.rows
    shape = (rows.n_samples, loss.n_outputs) if loss.n_outputs > 1 else (rows.n_samples,)
    slopes = np.zeros(shape)
    anchors = np.zeros(shape) if exact and partial else None
    with np.errstate(divide="ignore"):
        bound = clip_norm / np.sqrt(rows.squared_norm)
    owner = problem.ownership.index if partial and problem.ownership is not None else None
    parts = []
    for task in range(N_TASKS):
        blocks = range(rows.n_blocks * task // N_TASKS, rows.n_blocks * (task + 1) // N_TASKS)
        if not blocks:
            continue
        own = slice(rows.slices[blocks[0]].start, rows.slices[blocks[-1]].stop)
        parts.append(
            RecordBlocks(
                rows=rows.part(blocks),
                target=problem.target[own],
                loss=loss,
                step_size=step_size,
                relaxation=relaxation,
                slope_bound=bound[own],
                exact=exact,
                increments=increments,
                slopes=slopes[own],
                owner=None if owner is None else owner[own],
                anchors=None if anchors is None else anchors[own],
            )
        )
    return parts


def _like(mask: NDArray[np.bool_], array: NDArray[np.float64]) -> NDArray[np.bool_]:
    return mask if array.ndim == 1 else mask[:, None]


def _update(
    state: NDArray[np.float64], new: NDArray[np.float64], where: NDArray[np.bool_] | None
) -> None:
    np.copyto(state, new, where=True if where is None else where)


@dataclass(eq=False, kw_only=True)
class AgentBlocks:
    """Agents with their states ``u_a = c_a - d_a``, of the mean loss of their rows."""

    rows: Rows
    target: NDArray[Any]
    groups: list[slice | NDArray[np.intp]] | None
    loss: Loss
    step_size: float
    relaxation: float
    bounds: NDArray[np.float64]
    weights: NDArray[np.float64]
    numbers: NDArray[np.intp]
    exact: bool
    increments: bool
    centers: NDArray[np.float64]
    displacements: NDArray[np.float64]
    solutions: NDArray[np.float64]
    keeps_closed_forms: bool
    closed_forms: NDArray[np.float64] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Take along the rows of these agents, and no others."""
        if self.groups is None:
            return vars(self)
        target = np.concatenate([self.target[group] for group in self.groups])
        return {**vars(self), "rows": self.rows.take(self.groups), "target": target, "groups": None}

    def advance(
        self,
        z: NDArray[np.float64],
        center: NDArray[np.float64],
        active: NDArray[np.bool_] | None = None,
    ) -> NDArray[np.float64]:
        """Update the states of all who take part and sum up their messages."""
        who: Any = slice(None) if active is None else np.flatnonzero(active[self.numbers])
        agents = range(len(self.numbers))[who] if active is None else who.tolist()
        lam, centers, old = self.relaxation, self.centers[who], self.displacements[who]
        if not len(centers):
            return np.zeros(z.shape)
        points = 2 * z - centers + old
        found = self._solve(who, agents, points if self.exact else z + np.zeros(centers.shape))
        if self.increments:
            # x - z, where x = v - d is the solution of an agent's problem.
            change = 2 * lam * clip_vectors(points - found - z, self.bounds[who])
            self.centers[who] = centers + change
            message = change
        else:
            message = (1 - 2 * lam) * old + 2 * lam * clip_vectors(found, self.bounds[who])
            self.displacements[who] = message
            self.centers[who] = centers + 2 * lam * (z - centers)
        return np.asarray(np.einsum("a,ajk->jk", self.weights[who], message))

    def _solve(
        self, who: Any, agents: Sequence[int], points: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Displacement of each agent from its point."""
        if self.exact and self.keeps_closed_forms:
            if self.closed_forms is None:
                everyone = range(len(self.numbers))
                self.closed_forms = np.stack([self._local(a).closed_form() for a in everyone])
            forms = self.closed_forms[who]
            return np.asarray(forms[:, :, :-1] @ points + forms[:, :, -1:])
        for agent, point in zip(agents, points, strict=True):
            local, last = self._local(agent), self.solutions[agent]
            last[:] = (
                local.displacement(point, last)
                if self.exact
                else self.step_size * local.gradient(point)
            )
        return self.solutions[who]

    def _local(self, agent: int) -> LocalProblem:
        if self.groups is None:
            rows, block, target = self.rows, agent, self.target[self.rows.slices[agent]]
        else:
            group = self.groups[agent]
            rows, block, target = self.rows.take([group]), 0, self.target[group]
        return LocalProblem(
            rows=rows,
            block=block,
            target=target,
            loss=self.loss,
            step_size=self.step_size,
        )


def agent_blocks(
    problem: Problem,
    *,
    loss: Loss,
    step_size: float,
    relaxation: float,
    clip_norm: float,
    limits: NDArray[np.float64],
    exact: bool,
    increments: bool,
) -> list[AgentBlocks]:
    """Cut the agents into parts that an engine can place; their number is fixed."""
    ownership, rows = problem.ownership, problem.rows
    assert ownership is not None
    n_agents, d = ownership.n_agents, rows.coordinates.n_parameters
    bounds = step_size * clip_norm * limits / ownership.sizes
    weights = ownership.sizes / rows.n_samples
    n_parts = min(N_TASKS, n_agents)
    parts = []
    for part in range(n_parts):
        own = slice(n_agents * part // n_parts, n_agents * (part + 1) // n_parts)
        numbers = np.arange(own.start, own.stop)
        shape = (len(numbers), d, loss.n_outputs)
        parts.append(
            AgentBlocks(
                rows=rows,
                target=problem.target,
                groups=[ownership.rows_of(agent) for agent in numbers.tolist()],
                loss=loss,
                step_size=step_size,
                relaxation=relaxation,
                bounds=bounds[own],
                weights=weights[own],
                numbers=numbers,
                exact=exact,
                increments=increments,
                centers=np.zeros(shape),
                displacements=np.zeros(shape),
                solutions=np.zeros(shape),
                # All of them together are no larger than X.
                keeps_closed_forms=isinstance(loss, SquaredLoss)
                and n_agents * (d + 1) <= rows.n_samples,
            )
        )
    return parts


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
    r"""Minimise :math:`\gamma F(x) + \|x - v\|^2 / 2`; F is the mean loss of a block of rows."""

    rows: Rows
    block: int
    target: NDArray[Any]
    loss: Loss
    step_size: float

    def gradient(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """Gradient of the mean loss."""
        return self._mean(self.loss.derivative(self._scores(x), self.target)).reshape(x.shape)

    def displacement(
        self, v: NDArray[np.float64], start: NDArray[np.float64]
    ) -> NDArray[np.float64]:
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

    def closed_form(self) -> NDArray[np.float64]:
        """The displacement of a squared loss as an affine function of the point."""
        d = self.rows.coordinates.n_parameters
        scores = self.rows.scores(self.block, self.rows.prepare(np.eye(d)))
        weighted = self.loss.curvature(scores[:, 0], self.target)[:, None] * scores
        moment = self.step_size * self._mean(weighted)
        pull = self.step_size * self._mean(self.loss.derivative(np.zeros(len(scores)), self.target))
        # Unlike a linear solver this fails for no step size: an error would depend on data.
        values, vectors = np.linalg.eigh(moment)
        shrunk = vectors / (1 + np.maximum(values, 0))
        return np.column_stack(
            [shrunk * np.maximum(values, 0) @ vectors.T, shrunk @ vectors.T @ pull]
        )

    def _scores(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        return self.rows.scores(self.block, self.rows.prepare(x if x.shape[1] > 1 else x[:, 0]))

    def _mean(self, slopes: NDArray[np.float64]) -> NDArray[np.float64]:
        return self.rows.collect(self.rows.adjoint(self.block, slopes)) / len(self.target)

    def _evaluate(
        self, x: NDArray[np.float64], v: NDArray[np.float64]
    ) -> tuple[float, NDArray[np.float64], NDArray[np.float64]]:
        scores = self._scores(x)
        value = self.step_size * float(np.mean(self.loss.value(scores, self.target)))
        pull = self._mean(self.loss.derivative(scores, self.target)).reshape(x.shape)
        distance = x - v
        value += 0.5 * float(np.sum(distance * distance))
        return value, self.step_size * pull + distance, scores

    def _newton_direction(
        self, gradient: NDArray[np.float64], curvature: NDArray[np.float64], size: float
    ) -> NDArray[np.float64]:
        """Exact where there are few parameters; else as exact as the distance deserves."""
        shape, n = gradient.shape, gradient.size
        if n <= MOST_FACTORED and len(self.target) * shape[0] <= LARGEST_FACTORED:
            try:
                step = np.linalg.solve(self._second_derivative(curvature), -gradient.ravel())
            except np.linalg.LinAlgError:
                # Singular to floats at huge step sizes. An error would depend on data.
                return -gradient
            return np.asarray(step).reshape(shape)

        def apply(p: NDArray[np.float64]) -> NDArray[np.float64]:
            return self._curved(p.reshape(shape), curvature).ravel()

        operator = LinearOperator((n, n), matvec=apply, dtype=np.float64)
        solved, _ = cg(operator, -gradient.ravel(), rtol=0.1 * min(0.1, size**0.5), maxiter=2 * n)
        return np.asarray(solved).reshape(shape)

    def _second_derivative(self, curvature: NDArray[np.float64]) -> NDArray[np.float64]:
        """Of the objective, as a matrix over all parameters; its eigenvalues are at least one."""
        A = self.rows.seen(self.block)
        d, weight = A.shape[1], self.step_size / len(A)
        if curvature.ndim == 1:
            return np.asarray(np.eye(d) + weight * (A.T * curvature) @ A)
        k = curvature.shape[1]
        blocks = np.empty((d, k, d, k))
        for i in range(k):
            for j in range(i + 1):
                blocks[:, i, :, j] = (A.T * curvature[:, i, j]) @ A
                blocks[:, j, :, i] = blocks[:, i, :, j]
        return np.asarray(np.eye(d * k) + weight * blocks.reshape(d * k, d * k))

    def _curved(
        self, p: NDArray[np.float64], curvature: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """The second derivative of the objective, applied to a direction."""
        scores = self._scores(p)
        slopes = (
            curvature * scores if scores.ndim == 1 else np.einsum("nkl,nl->nk", curvature, scores)
        )
        return p + self.step_size * self._mean(slopes).reshape(p.shape)
