"""The proximal problem of one agent: the mean loss of its rows, near a point."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator, cg

from skdpadmm.losses import Loss
from skdpadmm.records import Rows

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
    r"""Minimise :math:`\gamma F(x) + \|x - v\|^2 / 2`, where F is the mean loss of a block of rows.

    Attributes
    ----------
    rows : Rows
    block : int
        Which block belongs to the agent.
    target : ndarray
        Of the block.
    loss : Loss
    step_size : float
        [gamma].
    """

    rows: Rows
    block: int
    target: NDArray[Any]
    loss: Loss
    step_size: float

    def gradient(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """Gradient of the mean loss.

        Parameters
        ----------
        x : ndarray of shape (n_parameters, n_outputs)

        Returns
        -------
        ndarray of the shape of `x`
        """
        return self._mean(self.loss.derivative(self._scores(x), self.target)).reshape(x.shape)

    def displacement(
        self, v: NDArray[np.float64], start: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """``v`` minus the solution, by Newton's method with conjugate gradients.

        An agent stops by itself, on its own rows. Where the steps run out the result is not the
        solution; it is clipped like any other.

        Parameters
        ----------
        v : ndarray of shape (n_parameters, n_outputs)
        start : ndarray of the shape of `v`
            A displacement to start from.

        Returns
        -------
        ndarray of the shape of `v`
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
        """The displacement of a squared loss as an affine function of the point.

        Returns
        -------
        ndarray of shape (n_parameters, n_parameters + 1)
            A matrix, and a last column that is added.
        """
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
