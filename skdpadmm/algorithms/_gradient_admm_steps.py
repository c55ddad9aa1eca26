"""The loop of gradient ADMM: one record, one gradient, one step, with noise on each iterate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skdpadmm.algorithms._algorithm import Operator
from skdpadmm.algorithms._splitting import Splitting
from skdpadmm.losses import Loss, clip_derivative

Array = NDArray[np.float64]
# Polynomial-decay averaging (Shamir & Zhang, ICML 2013): weights grow like this power of the step,
# so that the start is forgotten without knowing the end.
AVERAGING_POWER = 3


@dataclass(frozen=True, eq=False, kw_only=True)
class GradientADMMState:
    """What one iteration hands to the next: functions of noisy iterates alone.

    Attributes
    ----------
    x : ndarray of shape (n_parameters, n_outputs)
        The noisy iterate.
    multipliers : ndarray of shape (n_constraints, n_outputs)
    mean_x, mean_multipliers : ndarray
        Weighted averages over the steps, which only whoever sees the path may use. Without rows
        where the answer is no average: they would tell of every step.
    n_steps : int
        Steps that were taken.
    """

    x: Array
    multipliers: Array
    mean_x: Array
    mean_multipliers: Array
    n_steps: int = 0

    @property
    def averages(self) -> bool:
        """Whether averages are kept."""
        return len(self.mean_x) > 0


@dataclass(frozen=True, eq=False, kw_only=True)
class GradientADMMStep:
    """One step of gradient ADMM, and what belongs to it.

    The equations stand at `GradientADMM`; a step takes any gradient and adds no noise.

    Attributes
    ----------
    splitting : Splitting
    step_size, penalty_weight : float
        The paper's eta and beta.
    penalised, resolvent : callable
        Of the splitting, at these weights.
    """

    splitting: Splitting
    step_size: float
    penalty_weight: float
    penalised: Operator
    resolvent: Operator

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


def gradient_admm_step(
    splitting: Splitting, step_size: float, penalty_weight: float
) -> GradientADMMStep:
    """A step with everything factored once.

    Parameters
    ----------
    splitting : Splitting
    step_size, penalty_weight : float
    """
    return GradientADMMStep(
        splitting=splitting,
        step_size=step_size,
        penalty_weight=penalty_weight,
        penalised=splitting.penalised(penalty_weight),
        resolvent=splitting.resolvent(step_size * penalty_weight),
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class NoisySteps:
    """Steps on given records with given noise.

    Attributes
    ----------
    step : GradientADMMStep
    loss : Loss
    cell : float
        Width of the public grid on which noise lies; what noise is added to is rounded to it.
    noise_on_gradient : bool
        Whether noise is added to gradients instead of iterates.
    """

    step: GradientADMMStep
    loss: Loss
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
        """Take one step for each record, in their order.

        Parameters
        ----------
        state : GradientADMMState
        rows : ndarray of shape (m, n_parameters)
            Augmented rows.
        target : ndarray of shape (m,)
        bound : ndarray of shape (m,)
            Bound of the derivative of each record's loss; 0: a step without a record.
        noise : ndarray of shape (m, n_parameters, n_outputs)
            On the grid.

        Returns
        -------
        GradientADMMState
        """
        # With one score plain vectors are a good deal faster.
        shape, flat = state.x.shape, state.x.shape[1] == 1
        x, multipliers, mean_x, mean_multipliers = (
            value[:, 0] if flat else value
            for value in (state.x, state.multipliers, state.mean_x, state.mean_multipliers)
        )
        noise = noise[:, :, 0] if flat else noise
        t, averages = state.n_steps, state.averages
        for i in range(len(rows)):
            row = rows[i]
            slope = self.loss.derivative((row @ x)[None], target[i : i + 1])
            gradient = np.multiply.outer(row, clip_derivative(slope, bound[i : i + 1])[0])
            if self.noise_on_gradient:
                gradient = self._rounded(gradient) + noise[i]
            x, multipliers = self.step(x, multipliers, gradient)
            if not self.noise_on_gradient:
                x = self._rounded(x) + noise[i]
            t += 1
            if not averages:
                continue
            share = (1 + AVERAGING_POWER) / (t + AVERAGING_POWER)
            mean_x = mean_x + share * (x - mean_x)
            mean_multipliers = mean_multipliers + share * (multipliers - mean_multipliers)
        return GradientADMMState(
            x=x.reshape(shape),
            multipliers=multipliers.reshape(state.multipliers.shape),
            mean_x=mean_x.reshape(state.mean_x.shape),
            mean_multipliers=mean_multipliers.reshape(state.mean_multipliers.shape),
            n_steps=t,
        )

    def _rounded(self, value: Array) -> Array:
        """To the grid; the same map of a state and of its neighbour."""
        return np.rint(value / self.cell) * self.cell if self.cell else value


def full_gradient_optimum(
    step: GradientADMMStep,
    gradient: Callable[[Array], Array],
    state: GradientADMMState,
    *,
    max_iter: int,
    tolerance: float,
) -> GradientADMMState:
    """Iterate with exact gradients until neither part of the state moves.

    Parameters
    ----------
    step : GradientADMMStep
    gradient : callable
        Of the mean loss, at an x.
    state : GradientADMMState
    max_iter : int
    tolerance : float
        Of the last move of x and of the multipliers, in units of one, or of theirs if larger.
    """
    for k in range(max_iter):
        x, multipliers = step(state.x, state.multipliers, gradient(state.x))
        moved = np.abs(x - state.x).max(initial=0.0)
        changed = np.abs(multipliers - state.multipliers).max(initial=0.0)
        size = max(1.0, np.abs(x).max(initial=0.0))
        weight = max(1.0, np.abs(multipliers).max(initial=0.0))
        state = replace(state, x=x, multipliers=multipliers, n_steps=k + 1)
        if moved <= tolerance * size and changed <= tolerance * weight:
            break
    return state
