"""Newton's method for the models of many agents at once, without privacy.

Minimises ``1/2 <T, A T> - <b, T> + sum_i w_i (mean loss of agent i at T_i + 1/2 <T_i, q T_i>)``
for a linear map A that is symmetric and not negative.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skdpadmm.losses import Loss, MultinomialLoss
from skdpadmm.network import Ownership
from skdpadmm.records import Rows, Segments, collect_agents, prepare_agents

Array = NDArray[np.float64]
# Above this many entries the agents' own Hessians are not kept: their diagonals have to do.
LARGEST_BLOCKS = 2**22
MOST_INNER_STEPS = 5000
# Of a Newton step, before its curvature is not believed.
SHORTEST = 1e-3


@dataclass(frozen=True, eq=False, kw_only=True)
class JointObjective:
    """The objective, its gradient and its Hessian as a linear map.

    Attributes
    ----------
    rows : Rows
    target : ndarray of shape (n_samples,)
    ownership : Ownership
    loss : Loss
    coupling : callable
        A: maps models of shape (n_agents, n_parameters, n_outputs) to the same shape.
    coupling_diagonal : ndarray of shape (n_agents,)
        What A multiplies an agent's own model by.
    linear : ndarray of the shape of models, or None
        b; None: zero.
    weights : ndarray of shape (n_agents,)
        w; zero for agents without rows.
    curvature : ndarray of shape (n_parameters, 1)
        q, of the penalty.
    """

    rows: Rows
    target: NDArray[Any]
    ownership: Ownership
    loss: Loss
    coupling: Callable[[Array], Array]
    coupling_diagonal: Array
    linear: Array | None
    weights: Array
    curvature: Array

    @property
    def per_row(self) -> Array:
        """What a row weighs, of each agent, (n_agents, 1, 1)."""
        return _column(self.weights / np.maximum(self.ownership.sizes, 1))

    def sums(self, models: Array, slopes: Callable[[Array, slice], Array]) -> Array:
        """Weighted sums of slopes times rows, of each agent."""
        segments = Segments(rows=self.rows, owner=self.ownership.index.astype(np.int32))
        raw = segments.sums(prepare_agents(self.rows, models), slopes)
        return self.per_row * collect_agents(self.rows, raw)

    def at(self, models: Array) -> tuple[float, Array, Array]:
        """Value, gradient, and curvature of each row's loss, (n_samples, K, K)."""
        k = self.loss.n_outputs
        bends, values = np.empty((self.rows.n_samples, k, k)), np.empty(self.rows.n_samples)

        def slopes(scores: Array, own: slice) -> Array:
            seen, target = scores[:, 0] if k == 1 else scores, self.target[own]
            bends[own] = self.loss.curvature(seen, target).reshape(-1, k, k)
            values[own] = self.loss.value(seen, target)
            return self.loss.derivative(seen, target).reshape(scores.shape)

        gradient = self.sums(models, slopes)
        weights, pulled = _column(self.weights), self.coupling(models)
        penalty = weights * self.curvature * models
        value = float(values @ self.per_row[self.ownership.index, 0, 0])
        value += 0.5 * float(np.vdot(models, pulled + penalty))
        gradient += pulled + penalty
        if self.linear is not None:
            value -= float(np.vdot(self.linear, models))
            gradient -= self.linear
        return value, gradient, bends

    def hessian(self, direction: Array, bends: Array) -> Array:
        """The second derivative along a direction."""

        def slopes(scores: Array, own: slice) -> Array:
            return np.asarray(np.einsum("ijk,ik->ij", bends[own], scores))

        penalty = _column(self.weights) * self.curvature * direction
        return self.sums(direction, slopes) + self.coupling(direction) + penalty

    @cached_property
    def largest_bends(self) -> Array:
        """A bound of the curvature of each row's loss, (n_samples, K, K)."""
        k = self.loss.n_outputs
        return np.tile(self.loss.smoothness * np.eye(k), (self.rows.n_samples, 1, 1))

    @cached_property
    def _free_shifts(self) -> tuple[NDArray[np.bool_], tuple[int, ...]] | None:
        """Parameters that scores of all classes share for nothing, and over what they are means."""
        free = self.curvature[:, 0] == 0
        if not (isinstance(self.loss, MultinomialLoss) and free.any()):
            return None
        shift = np.zeros((self.ownership.n_agents, len(free), self.loss.n_outputs))
        shift[:, free] = 1.0
        largest = float(self.coupling_diagonal.max())
        if np.abs(self.coupling(shift)).max() > 1e-10 * largest:
            return None
        return free[:, None], (0, 2) if largest > 0 else (2,)

    def without_free_shifts(self, vectors: Array) -> Array:
        """Leave out what the objective is blind to: scores of all classes may move together.

        Without a penalty on a parameter that is a direction of each agent, or where agents pull at
        each other one of all of them. Rounding errors along it would be mistaken for gradients.
        """
        if self._free_shifts is None:
            return vectors
        free, axes = self._free_shifts
        return np.where(free, vectors - vectors.mean(axis=axes, keepdims=True), vectors)

    def preconditioner(self, bends: Array) -> Callable[[Array], Array]:
        """Inverse of what the Hessian makes of each agent by itself."""
        n, d, k = self.ownership.n_agents, len(self.curvature), self.loss.n_outputs
        own = self.weights[:, None] * self.curvature[:, 0] + self.coupling_diagonal[:, None]
        if n * (d * k) ** 2 > LARGEST_BLOCKS:
            diagonal = self._diagonal(bends) + own[:, :, None]
            return lambda gradient: gradient / np.where(diagonal > 0, diagonal, 1.0)
        blocks = np.zeros((n, d * k, d * k))
        for agent in range(n):
            if self.ownership.sizes[agent]:
                where = self.ownership.rows_of(agent)
                A = self.rows.take([where]).augmented(0)
                block = np.einsum("id,ijk,ie->djek", A, bends[where], A, optimize=True)
                blocks[agent] = self.per_row[agent] * block.reshape(d * k, d * k)
        diagonal = np.repeat(own, k, axis=1)
        # Directions without any curvature have no gradient either.
        largest = np.maximum(np.einsum("ijj->ij", blocks).max(axis=1), diagonal.max(axis=1))
        diagonal = diagonal + 1e-13 * np.where(largest > 0, largest, 1.0)[:, None]
        blocks[:, np.arange(d * k), np.arange(d * k)] += diagonal
        inverse = np.linalg.inv(blocks)
        return lambda gradient: (inverse @ gradient.reshape(n, -1, 1)).reshape(gradient.shape)

    def _diagonal(self, bends: Array) -> Array:
        """Weighted sums of squared entries of rows, of each agent, times the largest curvature."""
        largest = np.abs(bends).sum(axis=2).max(axis=1)
        total = np.zeros((self.ownership.n_agents, len(self.curvature)))
        for block, where in enumerate(self.rows.slices):
            squares = largest[where, None] * np.square(self.rows.augmented(block))
            np.add.at(total, self.ownership.index[where], squares)
        return np.asarray((self.per_row[:, :, 0] * total)[:, :, None])


def joint_newton(
    objective: JointObjective,
    start: Array,
    *,
    tolerance: float,
    max_iter: int,
    progress: Callable[[int], None],
) -> tuple[Array, int, bool]:
    """Newton's method whose steps are solved by conjugate gradients.

    Parameters
    ----------
    objective : JointObjective
    start : ndarray of shape (n_agents, n_parameters, n_outputs)
    tolerance : float
        Size of the last step at which it stops, beside the larger of 1 and the models.
    max_iter : int
    progress : callable

    Returns
    -------
    models : ndarray of the shape of `start`
    n_iter : int
    converged : bool
    """
    models, accuracy = start, min(0.1 * tolerance, 1e-10)
    value, gradient, bends = objective.at(models)
    for iteration in range(1, max_iter + 1):
        # Losses with flat parts, such as hinges, can lack curvature where a step needs it. With
        # the bound of the curvature in its place the full step is sure to descend.
        for seen, shortest in ((bends, SHORTEST), (objective.largest_bends, 1e-10)):
            step = _newton_step(objective, gradient, seen, accuracy)
            expected, length = float(np.vdot(gradient, step)), 1.0
            while True:
                candidate = models + length * step
                after, following, further = objective.at(candidate)
                # Near the optimum the decrease drowns in rounding; the full step is then right.
                descends = after <= value + 1e-4 * length * expected + 1e-13 * abs(value)
                if descends or length < shortest:
                    break
                length /= 2
            if descends:
                break
        models, value, gradient, bends = candidate, after, following, further
        progress(iteration)
        if np.abs(length * step).max() <= tolerance * max(1.0, np.abs(models).max()):
            return models, iteration, True
    return models, max_iter, -expected <= 1e-12 * abs(value)


def _newton_step(
    objective: JointObjective, gradient: Array, bends: Array, accuracy: float
) -> Array:
    """Conjugate gradients for ``Hessian @ step = -gradient``."""
    precondition = objective.preconditioner(bends)
    reduced = objective.without_free_shifts
    step, residual = np.zeros(gradient.shape), -reduced(gradient)
    ahead = reduced(precondition(residual))
    direction, size = ahead, float(np.vdot(residual, ahead))
    first = size
    for _ in range(MOST_INNER_STEPS):
        if not size > accuracy**2 * first:
            break
        bent = objective.hessian(direction, bends)
        along = float(np.vdot(direction, bent))
        if not (along > 0 and math.isfinite(along)):
            break
        step = step + size / along * direction
        residual = reduced(residual - size / along * bent)
        ahead = reduced(precondition(residual))
        before, size = size, float(np.vdot(residual, ahead))
        direction = ahead + size / before * direction
    return step


def _column(values: Array) -> Array:
    return values[:, None, None]
