"""The loop of gradient ADMM compiled by numba: the same arithmetic in the same order, faster."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skdpadmm.algorithms._gradient_admm_steps import (
    AVERAGING_POWER,
    Array,
    GradientADMMState,
)
from skdpadmm.losses import HuberLoss, LogisticLoss, Loss, SmoothedHinge, SquaredLoss

SQUARED, HUBER, LOGISTIC, HINGE = range(4)
# A loss as two numbers. By exact type, because a subclass may have another derivative.
CODES: dict[type[Loss], Callable[[Any], tuple[int, float]]] = {
    SquaredLoss: lambda loss: (SQUARED, 0.0),
    HuberLoss: lambda loss: (HUBER, loss.threshold),
    LogisticLoss: lambda loss: (LOGISTIC, 0.0),
    SmoothedHinge: lambda loss: (HINGE, loss.smoothing),
}


@dataclass(frozen=True, eq=False, kw_only=True)
class CompiledSteps:
    """Steps of a problem with one score, ``x = y``, and a penalty of single coefficients.

    See `NoisySteps`, which takes the same steps to the last bits.

    Attributes
    ----------
    threshold, divisor : ndarray of shape (n_parameters,)
        The proximal operator of the penalty: ``sign(v) max(|v| - threshold, 0) / divisor``.
    code : tuple of (int, float)
        Of the loss: `loss_code`.
    step_size, penalty_weight : float
    cell : float
    noise_on_gradient : bool
    """

    threshold: Array
    divisor: Array
    code: tuple[int, float]
    step_size: float
    penalty_weight: float
    cell: float
    noise_on_gradient: bool

    def advance(
        self,
        state: GradientADMMState,
        rows: Array,
        target: NDArray[Any],
        bound: Array,
        noise: Array,
    ) -> GradientADMMState:
        """See `NoisySteps.advance`."""
        values = [
            np.ascontiguousarray(value[:, 0]).copy()
            for value in (state.x, state.multipliers, state.mean_x, state.mean_multipliers)
        ]
        _loop()(
            *values,
            state.n_steps,
            np.ascontiguousarray(rows),
            np.asarray(target, dtype=np.float64),
            np.ascontiguousarray(bound),
            np.ascontiguousarray(noise[:, :, 0]),
            self.threshold,
            self.divisor,
            *self.code,
            self.step_size,
            self.penalty_weight,
            self.cell,
            self.noise_on_gradient,
            state.averages,
        )
        x, multipliers, mean_x, mean_multipliers = (value[:, None] for value in values)
        return GradientADMMState(
            x=x,
            multipliers=multipliers,
            mean_x=mean_x,
            mean_multipliers=mean_multipliers,
            n_steps=state.n_steps + len(rows),
        )


def loss_code(loss: Loss) -> tuple[int, float] | None:
    """A loss as two numbers; None: there is no compiled derivative of it."""
    code = CODES.get(type(loss))
    return None if code is None else code(loss)


def require_numba() -> None:
    """Refuse to compile without a compiler.

    Raises
    ------
    ImportError
        Says what to install.
    """
    try:
        import numba  # noqa: F401
    except ImportError:
        raise ImportError(
            "Got compiled=True without numba, expected it to be installed: pip install"
            " 'skdpadmm[fast]', or compiled=False."
        ) from None


@cache
def compiled_derivative() -> Any:
    """The derivative of a loss by its code, to be compiled into loops."""
    import numba

    @numba.njit(inline="always")
    def derivative(score: float, target: float, code: int, parameter: float) -> float:
        if code == SQUARED:
            return score - target
        if code == HUBER:
            return max(min(score - target, parameter), -parameter)
        margin = target * score
        if code == LOGISTIC:
            # Without a branch, because the sign of a margin is anybody's guess.
            tail = np.exp(-abs(margin))
            return -target * (tail if margin >= 0 else 1.0) / (1.0 + tail)
        return -target * min(max((1.0 - margin) / parameter, 0.0), 1.0)

    return derivative


@cache
def _loop() -> Any:
    """Compile at the first call of a process."""
    import numba

    derivative = compiled_derivative()

    @numba.njit
    def loop(
        x: Array,
        multipliers: Array,
        mean_x: Array,
        mean_multipliers: Array,
        t: int,
        rows: Array,
        target: Array,
        bound: Array,
        noise: Array,
        threshold: Array,
        divisor: Array,
        code: int,
        parameter: float,
        eta: float,
        beta: float,
        cell: float,
        noise_on_gradient: bool,
        averages: bool,
    ) -> None:
        d = x.size
        shrink = 1.0 + eta * beta
        for i in range(rows.shape[0]):
            score = 0.0
            for j in range(d):
                score += rows[i, j] * x[j]
            slope = derivative(score, target[i], code, parameter)
            if not np.isfinite(slope):
                slope = 0.0
            slope = max(min(slope, bound[i]), -bound[i])
            t += 1
            share = (1.0 + AVERAGING_POWER) / (t + AVERAGING_POWER)
            for j in range(d):
                gradient = rows[i, j] * slope
                if noise_on_gradient:
                    gradient = np.rint(gradient / cell) * cell + noise[i, j]
                pull = multipliers[j] - beta * x[j]
                point = -pull / beta
                size = max(abs(point) - threshold[j], 0.0)
                y = np.copysign(size, point) / divisor[j]
                image = beta * -y
                following = pull - image
                moved = (x[j] - eta * (gradient + (image - following))) / shrink
                if not noise_on_gradient:
                    moved = np.rint(moved / cell) * cell + noise[i, j]
                x[j] = moved
                multipliers[j] = following
                if averages:
                    mean_x[j] += share * (moved - mean_x[j])
                    mean_multipliers[j] += share * (following - mean_multipliers[j])

    return loop
