"""The sum of clipped losses as one smooth convex function, with constants for every data set.

An algorithm that solves for all records together can not clip what each of them contributes to the
solution. It clips the scalar derivative instead, which Huberises the loss: the clipped loss is
convex, and its gradient and curvature have public bounds where rows have one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from skdpadmm.losses import LogisticLoss, Loss, SmoothedHinge, clip_derivative
from skdpadmm.privacy import LossDerivative
from skdpadmm.protocol import Facts, Problem
from skdpadmm.records import Rows

# Bounds of norms hold up to rounding.
SLACK = 1e-9


@dataclass(frozen=True, kw_only=True)
class LossBounds:
    """What holds for the clipped loss of each record, in the coordinates that are worked in.

    Attributes
    ----------
    row_norm : float
        Rows are scaled down to it [R].
    gradient_norm : float
        Bound of the norm of a gradient [L].
    curvature : float
        Bound of the largest eigenvalue of a Hessian [beta].
    """

    row_norm: float
    gradient_norm: float
    curvature: float


def loss_bounds(loss: Loss, *, row_norm: float, clip_norm: float) -> LossBounds:
    """Bounds that follow from those of rows and of the clip.

    Parameters
    ----------
    loss : Loss
    row_norm : float
        Bound of the norm of a row.
    clip_norm : float
        Bound at which the norm of a gradient is clipped.

    Returns
    -------
    LossBounds

    Examples
    --------
    >>> from skdpadmm.algorithms._clipped_loss import loss_bounds
    >>> from skdpadmm.losses import LogisticLoss
    >>> loss_bounds(LogisticLoss(), row_norm=2.0, clip_norm=5.0).gradient_norm
    2.000000002
    """
    gradient_norm = min(clip_norm, loss.lipschitz * row_norm * (1 + SLACK))
    curvature = loss.smoothness * row_norm**2
    if isinstance(loss, LogisticLoss):
        # s (R - s) at the largest s that the clip leaves.
        share = min(gradient_norm / row_norm, 0.5)
        curvature = share * (1 - share) * row_norm**2
    return LossBounds(
        row_norm=row_norm, gradient_norm=gradient_norm, curvature=curvature * (1 + SLACK)
    )


def derivative_kind(loss: Loss) -> LossDerivative:
    """What is known of the sign and the curvature of a loss of one score, clipped or not."""
    if isinstance(loss, LogisticLoss):
        return LossDerivative.LOGISTIC
    return LossDerivative.ONE_SIGN if isinstance(loss, SmoothedHinge) else LossDerivative.ANY


def bounds_in_basis(
    facts: Facts, rows: Rows | None, *, clip_norm: float, row_bound: float
) -> LossBounds:
    """Bounds in the coordinates that are worked in.

    Without conditioning rows have a bound already. A basis that depends on data has none that is of
    use, so there it is a multiple of the typical norm.

    Parameters
    ----------
    facts : Facts
    rows : Rows or None
        None before data: then the typical norm of conditioned coordinates counts as 1.
    clip_norm, row_bound : float
        In units of the typical norm; the second is for conditioned coordinates alone.

    Returns
    -------
    LossBounds
    """
    if rows is not None:
        typical = rows.typical_norm
    else:
        typical = 1.0 if facts.conditioning is not None else typical_norm(facts)
    row_norm = facts.row_norm if facts.conditioning is None else row_bound * typical
    return loss_bounds(facts.loss, row_norm=row_norm, clip_norm=clip_norm * typical)


def typical_norm(facts: Facts) -> float:
    """`Rows.typical_norm` where no basis is used."""
    return min(facts.row_norm, math.sqrt(facts.n_parameters))


def open_clip(loss: Loss, row_norm: float) -> float:
    """A clip bound that no gradient reaches; infinite where derivatives have no bound."""
    return loss.lipschitz * row_norm * (1 + 2 * SLACK)


def clipped_gradient(
    loss: Loss, problem: Problem, bounds: LossBounds
) -> Callable[[NDArray[np.float64]], NDArray[np.float64]]:
    """Gradient of the sum of clipped losses over rows that are scaled down.

    A row that is scaled down takes a target that has units along: a weighted record, not a
    distorted one.

    Parameters
    ----------
    loss : Loss
    problem : Problem
    bounds : LossBounds

    Returns
    -------
    callable
        Maps parameters of shape (n_parameters, n_outputs) to a gradient of the same shape.
    """
    rows, engine = problem.rows, problem.engine
    with np.errstate(all="ignore"):
        norms = np.sqrt(rows.squared_norm)
        shrink = np.minimum(1.0, bounds.row_norm / norms)
        slope_bound = bounds.gradient_norm / (norms * shrink)
    np.nan_to_num(shrink, copy=False, nan=1.0)
    target = problem.target * shrink if rows.coordinates.has_target_scale else problem.target
    vector = loss.n_outputs > 1

    def gradient(parameters: NDArray[np.float64]) -> NDArray[np.float64]:
        prepared = rows.prepare(parameters if vector else parameters[:, 0])

        def slopes(block: int) -> NDArray[np.float64]:
            part = rows.slices[block]
            factor = shrink[part, None] if vector else shrink[part]
            slope = loss.derivative(rows.scores(block, prepared) * factor, target[part])
            slope = clip_derivative(slope, slope_bound[part])
            slope *= factor
            return rows.adjoint(block, slope)

        return rows.collect(engine.sum(slopes, rows.n_blocks)).reshape(parameters.shape)

    return gradient


def sum_rounding(facts: Facts, bounds: LossBounds) -> float:
    """Bound of the rounding error of a sum of clipped gradients, given the scores."""
    return (facts.working_rounding - 1.0) * bounds.gradient_norm


def score_rounding(facts: Facts, bounds: LossBounds) -> float:
    """Bound of the error of that sum by rounding of scores, for each unit of the parameters' norm.

    A gradient moves by at most the curvature times the error of its score. A score is computed from
    a row that is not centred. With the centre o in scaled units a row a, whose last entry r is its
    weight, is ``r x - r o`` before, so that the terms which are added are at most
    ``(|a| + 2 r |o|) |w| <= (1 + 2 |o|) |a| |w|``. Of n_parameters terms, added in any order, and
    scaled a few times, each is off by n_parameters + 8 roundings, and by twice as many where the
    parameters are transformed before.
    """
    d, is_transformed = facts.n_parameters, facts.conditioning is not None
    condition = facts.conditioning.condition if facts.conditioning is not None else 1.0
    # Without an intercept nothing is centred. Units that are found later have no centre.
    centre = 0.0 if facts.coordinates is None else facts.coordinates.amplification - 1.0
    roundings = (d + 8) * (1 + is_transformed) * (1.0 + 2.0 * centre)
    depth = max(2.0 * (d + 16), roundings) * condition
    return facts.n_samples * bounds.curvature * depth * 2.0**-53
