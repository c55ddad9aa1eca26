"""Steps of gradient ADMM: what it splits, one step, and loops of noisy steps, plain or compiled."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse

from skdpadmm import penalties
from skdpadmm.algorithms._algorithm import Operator, check_zero_at_zero, coordinate_operator
from skdpadmm.losses import Loss, clip_derivative
from skdpadmm.penalties import LinearConstraint, Penalty
from skdpadmm.records import Coordinates, constants_of

Array = NDArray[np.float64]
# Polynomial-decay averaging (Shamir & Zhang, ICML 2013): weights grow like this power of the step,
# so that the start is forgotten without knowing the end.
AVERAGING_POWER = 3
# Penalties that can be compiled, with the names of an elastic net's strengths. By exact type,
# because a subclass may have another proximal step.
PENALTIES: dict[type[Penalty], tuple[str, str]] = {
    penalties.NoPenalty: ("", ""),
    penalties.L1: ("strength", ""),
    penalties.SquaredL2: ("", "strength"),
    penalties.ElasticNet: ("l1", "l2"),
}


@dataclass(frozen=True, eq=False, kw_only=True)
class Splitting:
    """``A x + B y = c`` in public coordinates, with the steps that it makes possible.

    `smallest` and `largest` bound the singular values of A; some x with ``A x = c`` has the norm
    `offset`. With weights beta, `penalised` is ``w -> argmin_y g(y) - <w, B y> + beta / 2 ||B y -
    c||^2`` and `resolvent` is ``(I + beta A'A)^-1``; `image` is ``B y - c``. The `solution` is made
    of x, or of y where that has the zeros.
    """

    n_constraints: int
    forward: Operator
    adjoint: Operator
    resolvent: Callable[[float], Operator]
    penalised: Callable[[float], Operator]
    image: Operator
    solution: Callable[[Array, Array], Array]
    smallest: float = 1.0
    largest: float = 1.0
    offset: float = 0.0


def splitting_of(
    penalty: Penalty, coordinates: Coordinates, constraint: LinearConstraint | None
) -> Splitting:
    """How a penalty, or a constraint of the user's coefficients, splits the parameters.

    A penalty of the coefficients themselves is split as ``x - y = 0``, intercept and all; one of a
    linear image D of them as ``D x - y = 0``. With a constraint the penalty is that of y.
    """
    matrix, _ = penalty.splitting()
    # A penalty of no image at all is none.
    if constraint is not None or (matrix is not None and matrix.shape[0] > 0):
        scale = tuple(coordinates.coefficient_scale.tolist())
        return _tied(penalty, constraint, scale, coordinates.fit_intercept)
    check_zero_at_zero(penalty, coordinates.n_features)

    def penalised(weight: float) -> Operator:
        apply = coordinate_operator(penalty, 1.0 / weight, coordinates)
        return lambda w: apply((w / -weight).reshape(len(w), -1)).reshape(w.shape)

    return Splitting(
        n_constraints=coordinates.n_parameters,
        forward=lambda x: x,
        adjoint=lambda v: v,
        resolvent=lambda weight: lambda v: v / (1.0 + weight),
        penalised=penalised,
        image=np.negative,
        solution=lambda x, y: y,
    )


@lru_cache(maxsize=4)
def _tied(
    penalty: Penalty,
    constraint: LinearConstraint | None,
    coefficient_scale: tuple[float, ...],
    fit_intercept: bool,
) -> Splitting:
    """A splitting that is not ``x - y = 0``.

    Singular values and factors are most of what a short piece of a stream costs. They follow from
    public facts, so the last few are kept.
    """
    scale = np.array(coefficient_scale)
    matrix, inner = penalty.splitting()
    given = LinearConstraint(matrix) if constraint is None else constraint
    inner = inner if constraint is None else penalty
    A = sparse.eye_array(len(scale)) if given.A is None else given.A
    if A.shape[1] != len(scale):
        raise ValueError(
            f"Got a matrix with {A.shape[1]} columns for {len(scale)} features, expected one"
            " column for each."
        )
    A = sparse.csr_array(A) @ sparse.diags_array(scale)
    if fit_intercept:
        A = sparse.hstack([A, sparse.csr_array((A.shape[0], 1))])
    tie = LinearConstraint(sparse.csr_array(A), given.B, given.c)
    # A penalty of another number of variables is refused before there is data.
    check_zero_at_zero(inner, tie.n_auxiliary)
    offset = np.zeros(tie.n_constraints) if tie.c is None else tie.c

    @cache
    def factors() -> tuple[Array, Array]:
        basis, triangle = linalg.qr(tie.adjoint(np.eye(tie.n_constraints)), mode="economic")
        return np.asarray(basis), np.asarray(triangle)

    def nearest(x: Array, y: Array) -> Array:
        """The nearest x whose image is y: what is sparse there is so in the answer."""
        basis, triangle = factors()
        missing = y - tie.forward(x)
        return x + basis @ linalg.solve_triangular(triangle, missing, trans="T", check_finite=False)

    return Splitting(
        n_constraints=tie.n_constraints,
        smallest=tie.smallest_singular_value,
        largest=tie.largest_singular_value,
        offset=float(np.linalg.norm(offset)) / tie.smallest_singular_value,
        forward=tie.forward,
        adjoint=tie.adjoint,
        resolvent=lru_cache(maxsize=2)(tie.resolvent),
        penalised=lru_cache(maxsize=2)(lambda weight: tie.y_step(inner, weight)),
        image=lambda y: tie.B_dot(y) - (offset if y.ndim == offset.ndim else offset[:, None]),
        solution=nearest if constraint is None else lambda x, y: x,
    )


@dataclass(frozen=True, eq=False)
class GradientADMMStep:
    """One step with any gradient and without noise; the equations stand at `GradientADMM`."""

    splitting: Splitting
    step_size: float
    penalty_weight: float

    @cached_property
    def penalised(self) -> Operator:
        """The step of y, factored once."""
        return self.splitting.penalised(self.penalty_weight)

    @cached_property
    def resolvent(self) -> Operator:
        """What the constraint makes of a step of x, factored once."""
        return self.splitting.resolvent(self.step_size * self.penalty_weight)

    def penalised_part(self, x: Array, multipliers: Array) -> Array:
        """The y of a state."""
        return self.penalised(multipliers - self.penalty_weight * self.splitting.forward(x))

    def __call__(self, x: Array, multipliers: Array, gradient: Array) -> tuple[Array, Array]:
        """The next x, before any noise, and the next multipliers."""
        weight = self.penalty_weight
        pull = multipliers - weight * self.splitting.forward(x)
        image = weight * self.splitting.image(self.penalised(pull))
        following = pull - image
        force = gradient + self.splitting.adjoint(image - following)
        return self.resolvent(x - self.step_size * force), following


@dataclass(frozen=True, eq=False)
class State:
    """What one iteration hands to the next: functions of noisy iterates alone.

    Vectors where there is one score, else columns are scores. Weighted averages over the steps are
    for whoever sees the path; they have no rows where the answer is no average, because they would
    tell of every step.
    """

    x: Array
    multipliers: Array
    mean_x: Array
    mean_multipliers: Array
    n_steps: int = 0

    @property
    def values(self) -> tuple[Array, Array, Array, Array]:
        """All of it but the count."""
        return self.x, self.multipliers, self.mean_x, self.mean_multipliers


def clip_slope(slope: float, bound: float) -> float:
    """`clip_derivative` of one number."""
    return max(min(slope, bound), -bound) if abs(slope) < math.inf else 0.0


@dataclass(frozen=True, eq=False)
class NoisySteps:
    """Steps on given records with given noise, on a grid of cells to which they round as well."""

    step: GradientADMMStep
    loss: Loss
    cell: float

    def advance(self, state: State, *records: NDArray[Any]) -> State:
        """Take one step for each record, in their order.

        The `records` are m augmented rows; their targets; bounds of the derivatives of their
        losses, 0 for a step without a record; and noise of shape (m, n_parameters, n_outputs).
        """
        rows, target, bound, noise = records
        x, multipliers, mean_x, mean_multipliers = state.values
        noise = noise.reshape(len(rows), *x.shape)
        t, averages = state.n_steps, len(mean_x) > 0
        # Of one score in Python's floats, which are a good deal faster than arrays of one.
        slope_at, targets, bounds = self.loss.slope, target.tolist(), bound.tolist()
        for i, row in enumerate(rows):
            if x.ndim == 1:
                gradient = row * clip_slope(slope_at(float(row.dot(x)), targets[i]), bounds[i])
            else:
                slopes = self.loss.derivative((row @ x)[None], target[i : i + 1])
                gradient = np.multiply.outer(row, clip_derivative(slopes, bound[i : i + 1])[0])
            x, multipliers = self.step(x, multipliers, gradient)
            x = self._rounded(x) + noise[i]
            t += 1
            if averages:
                share = (1 + AVERAGING_POWER) / (t + AVERAGING_POWER)
                mean_x = mean_x + share * (x - mean_x)
                mean_multipliers = mean_multipliers + share * (multipliers - mean_multipliers)
        return State(x, multipliers, mean_x, mean_multipliers, t)

    def _rounded(self, value: Array) -> Array:
        """To the grid; the same map of a state and of its neighbour."""
        return np.rint(value / self.cell) * self.cell if self.cell else value


@dataclass(frozen=True, eq=False)
class CompiledSteps(NoisySteps):
    """The same arithmetic in the same order, compiled by numba, where x = y."""

    penalty: Penalty
    coordinates: Coordinates

    def advance(self, state: State, *records: NDArray[Any]) -> State:
        """See `NoisySteps.advance`."""
        *given, noise = (np.ascontiguousarray(part, dtype=np.float64) for part in records)
        x, multipliers, mean_x, mean_multipliers = (value.copy() for value in state.values)
        state_now = (x, multipliers, mean_x, mean_multipliers)
        l1, l2 = (float(getattr(self.penalty, s, 0.0)) for s in PENALTIES[type(self.penalty)])
        weight, scale = self.step.penalty_weight, self.coordinates.coefficient_scale
        # The proximal operator of the penalty: sign(v) max(|v| - threshold, 0) / divisor.
        threshold, divisor = np.zeros(len(state.x)), np.ones(len(state.x))
        threshold[: len(scale)] = l1 * scale / weight
        divisor[: len(scale)] = 1.0 + l2 * scale**2 / weight
        _compiled_loop(type(self.loss))(
            constants_of(self.loss),
            (*state_now, *given, noise.reshape(len(noise), -1), threshold, divisor),
            (self.step.step_size, weight, self.cell),
            state.n_steps,
        )
        return State(x, multipliers, mean_x, mean_multipliers, state.n_steps + len(noise))


@cache
def _compiled_loop(kind: type[Loss]) -> Any:
    """Compile at the first call of a process."""
    import numba

    return partial(numba.njit(_loop), numba.njit(kind.slope))


def _loop(slope_at: Any, loss: Any, arrays: Any, constants: Any, t: int) -> None:
    x, multipliers, mean_x, mean_multipliers, rows, target, bound, noise, threshold, divisor = (
        arrays
    )
    eta, beta, cell = constants
    shrink = 1.0 + eta * beta
    for i in range(rows.shape[0]):
        score = 0.0
        for j in range(x.size):
            score += rows[i, j] * x[j]
        slope = slope_at(loss, score, target[i])
        if not np.isfinite(slope):
            slope = 0.0
        slope = max(min(slope, bound[i]), -bound[i])
        t += 1
        share = (1.0 + AVERAGING_POWER) / (t + AVERAGING_POWER)
        for j in range(x.size):
            gradient = rows[i, j] * slope
            pull = multipliers[j] - beta * x[j]
            point = -pull / beta
            size = max(abs(point) - threshold[j], 0.0)
            y = np.copysign(size, point) / divisor[j]
            image = beta * -y
            following = pull - image
            moved = (x[j] - eta * (gradient + (image - following))) / shrink
            moved = np.rint(moved / cell) * cell + noise[i, j]
            x[j] = moved
            multipliers[j] = following
            if mean_x.size > 0:
                mean_x[j] += share * (moved - mean_x[j])
                mean_multipliers[j] += share * (following - mean_multipliers[j])
