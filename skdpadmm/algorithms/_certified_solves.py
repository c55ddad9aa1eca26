"""Clipped losses as smooth convex functions, solved to a proven accuracy on every data set.

An algorithm that solves for all records together cannot clip what each of them contributes to the
solution. It clips the scalar derivative instead, which Huberises the loss: the clipped loss is
convex, and its gradient and curvature have public bounds where rows have one. Such an algorithm can
neither stop on a residual nor trust one, as both depend on data: it takes a number of accelerated
gradient steps that follows from these bounds, with a proven bound of what the steps leave.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from skdpadmm._numbers import require
from skdpadmm.algorithms._algorithm import Operator, penalty_operator
from skdpadmm.algorithms._clipped_sums import ClippedSum
from skdpadmm.losses import LogisticLoss, Loss
from skdpadmm.protocol import Facts, Problem, Settings
from skdpadmm.records import Rows

# Bounds of norms hold up to rounding.
SLACK = 1e-9
# Times as many inner steps where there is no noise: the third power of what a tolerance leaves.
STEPS_WITHOUT_NOISE = 3
# A problem that takes more steps cannot be solved.
MOST_STEPS = 2**50


@dataclass(frozen=True, kw_only=True)
class LossBounds:
    """What holds for the clipped loss of each record, in the coordinates that are worked in."""

    row_norm: float  # Rows are scaled down to it [R].
    gradient_norm: float  # [L]
    curvature: float  # Largest eigenvalue of a Hessian [beta].

    def gradient(self, facts: Facts, problem: Problem) -> Operator:
        """Gradient of the sum of clipped losses over rows that are scaled down to their bound."""
        return ClippedSum(facts, self.gradient_norm, self.row_norm).over(problem)


# Of losses that are not clipped and rows that are not scaled down.
NO_BOUNDS = LossBounds(row_norm=math.inf, gradient_norm=math.inf, curvature=math.inf)


def loss_bounds(loss: Loss, *, row_norm: float, clip_norm: float) -> LossBounds:
    """Bounds that follow from those of the norms of rows and of clipped gradients."""
    gradient_norm = min(clip_norm, loss.lipschitz * row_norm * (1 + SLACK))
    curvature = loss.smoothness * row_norm**2
    if type(loss) is LogisticLoss:
        # s (R - s) at the largest s that the clip leaves.
        share = min(gradient_norm / row_norm, 0.5)
        curvature = share * (1 - share) * row_norm**2
    return LossBounds(
        row_norm=row_norm, gradient_norm=gradient_norm, curvature=curvature * (1 + SLACK)
    )


def bounds_in_basis(
    facts: Facts, rows: Rows | None, *, clip_norm: float, row_bound: float
) -> LossBounds:
    """Bounds in the coordinates of a run; both arguments are in units of the typical norm of rows.

    Without conditioning rows have a bound already. A basis that depends on data has none that is of
    use, so there it is `row_bound`. Before data (rows is None) its typical norm counts as 1, and so
    does the unit of the target, which the clip bound follows: what is released is relative to it.
    """
    if rows is not None:
        typical, unit = rows.typical_norm, rows.coordinates.target_unit
    else:
        typical, unit = 1.0 if facts.conditioning is not None else typical_norm(facts), 1.0
    row_norm = facts.row_norm if facts.conditioning is None else row_bound * typical
    return loss_bounds(facts.loss, row_norm=row_norm, clip_norm=clip_norm * typical * unit)


def settled_bounds(facts: Facts, settings: Settings, rows: Rows | None = None) -> LossBounds:
    """The same bounds, for the clip and the bound of rows in the settings of a run."""
    return bounds_in_basis(facts, rows, clip_norm=settings.clip_norm, row_bound=settings.row_bound)


def typical_norm(facts: Facts) -> float:
    """The unit of clip bounds of records: `Rows.typical_norm`, without a basis."""
    return min(facts.row_norm, math.sqrt(facts.n_parameters))


def open_clip(loss: Loss, row_norm: float) -> float:
    """A clip bound that no gradient reaches; infinite where derivatives have no bound."""
    return loss.lipschitz * row_norm * (1 + 2 * SLACK)


def usable_ridge(facts: Facts, most: float = math.inf) -> float:
    """Strong convexity that can be moved from the penalty to the loss, the same in all directions.

    Where a preparation chooses the coordinates there is no figure for it.
    """
    if facts.scaling is not None or facts.conditioning is not None:
        return 0.0
    return min(facts.penalty_curvature, most)


def remaining_prox(facts: Facts, step: float, ridge: float, rows: Rows) -> Operator:
    """Proximal operator of the penalty without ``ridge / 2 |w|^2`` of it, for ``step ridge < 1``.

    Completing the square, it is that of the whole penalty with another step, at a longer point.
    """
    left = 1.0 - step * ridge
    whole = penalty_operator(facts.penalty, step / left, rows)
    return lambda point: whole(point / left)


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
    # Without an intercept nothing is centred; nor is it where a preparation chooses the scales.
    centre = facts.coordinates.amplification - 1.0
    roundings = (d + 8) * (1 + is_transformed) * (1.0 + 2.0 * centre)
    depth = max(2.0 * (d + 16), roundings) * condition
    return facts.n_samples * bounds.curvature * depth * 2.0**-53


def step_rounding(smoothness: float) -> float:
    """The rounding of a step as an error of the gradient, for each unit of the iterate's norm.

    A step ``y - g / beta``, its prox and the extrapolation are each rounded to a few units in the
    last place of vectors as long as an iterate. In units of the gradient that is beta times that.
    """
    return 16.0 * 2.0**-53 * smoothness


def accelerated_gradient(
    gradient: Operator,
    start: NDArray[np.float64],
    n_steps: int,
    *,
    strong_convexity: float,
    smoothness: float,
    prox: Operator = lambda point: point,
    progress: Callable[[int], None] = lambda n_steps: None,
) -> NDArray[np.float64]:
    r"""Approach the minimiser of f + r by a fixed number of steps of constant size.

    From :math:`x_0 = T(\text{start})`, :math:`T(y) = \mathrm{prox}_{r / \beta}(y - \nabla f(y) /
    \beta)`, and with :math:`q = \sqrt{m / \beta}`,

    .. math:: y_k = x_k + \frac{1 - q}{1 + q} (x_k - x_{k - 1}), \qquad x_{k + 1} = T(y_k) .

    (Nesterov, "Lectures on convex optimization", 2018, scheme 2.2.22; Beck, "First-order methods in
    optimization", 2017, section 10.7.7, with a penalty.) See `certified_distance` for what is left.
    """
    ratio = math.sqrt(strong_convexity / smoothness)
    momentum = (1.0 - ratio) / (1.0 + ratio)
    current = ahead = start
    for step in range(n_steps):
        following = prox(ahead - gradient(ahead) / smoothness)
        # The first step has no momentum: it brings the objective's value within reach of a bound.
        ahead = following + momentum * (following - current) if step else following
        current = following
        progress(step + 1)
    return current


def certified_distance(
    n_steps: int,
    *,
    strong_convexity: float,
    smoothness: float,
    initial_distance: float,
    gradient_error: float = 0.0,
    relative_error: float = 0.0,
) -> float:
    r"""Return a bound of the distance of `accelerated_gradient` to the minimiser, rounded up.

    .. math:: \|x - x^*\| \le D (\sqrt{\kappa - 1} + 2 a) \rho^{N - 1}
              + \frac{4 e}{m (1 - 4 a)}, \qquad \kappa = \beta / m, \quad
              \rho = \sqrt{1 - \kappa^{-1/2}} + 2 a \kappa^{-1/2},

    for N >= 1 steps from a start within D of the minimiser :math:`x^*` (without a step it is D),
    with f m-strongly convex and beta-smooth, r convex, and gradients at y off by at most
    :math:`e + a m \|y - x^*\|` in norm, a in [0, 1/8]. The error e has to include beta times the
    rounding of a step, see `step_rounding`; what it leaves is a floor below which nothing is
    certified.

    Raises
    ------
    ValueError
        Where m, beta or a is out of range.

    Notes
    -----
    The rate is that of Nesterov (2018), theorem 2.2.3, and Beck (2017), theorem 10.42. Errors are
    carried along in the same proof. With :math:`F = f + r`, :math:`q = \kappa^{-1/2}`, an error
    :math:`e_k` in the gradient at :math:`y_k`, and :math:`z_0 = x_0`,
    :math:`x_{k+1} = (1 - q) x_k + q z_{k+1}`, the potential
    :math:`\Phi_k = F(x_k) - F(x^*) + \frac m2 \|z_k - x^*\|^2` obeys

    .. math:: \Phi_{k+1} \le (1 - q) \Phi_k - q \langle e_k, z_{k+1} - x^* \rangle
              \le (1 - q) \Phi_k + q \|e_k\| \sqrt{2 \Phi_{k+1} / m} .

    Solving the quadratic inequality gives
    :math:`\sqrt{\Phi_{k+1}} \le \sqrt{(1 - q) \Phi_k} + q \|e_k\| \sqrt{2 / m}`. Both
    :math:`\|x_k - x^*\|` and :math:`\|z_k - x^*\|` are at most :math:`\sqrt{2 \Phi_k / m}`, and
    :math:`y_k = (x_k + q z_k) / (1 + q)` lies between them, so

    .. math:: \sqrt{\Phi_{k+1}} \le \rho \sqrt{\Phi_k} + q e \sqrt{2 / m}, \qquad
              1 - \rho \ge q (\tfrac12 - 2 a) .

    Errors add up to at most :math:`2 e \sqrt{2 / m} / (1 - 4 a)`. The first step, from a start with
    an error of at most :math:`e + a m D`, gives
    :math:`\sqrt{\Phi_0} \le \sqrt{(\beta - m) / 2} D + (e + a m D) \sqrt{2 / m}`: no larger a share
    of e than that. Finally :math:`\frac m2 \|x_k - x^*\|^2 \le \Phi_k`.
    """
    in_range = 0 < strong_convexity <= smoothness < math.inf and 0 <= relative_error <= 0.125
    if not in_range:
        raise ValueError(
            f"Got curvature from {strong_convexity!r} to {smoothness!r}, {relative_error:.3g} of"
            " rounding, expected finite and positive curvature, and at most 0.125 of rounding."
            " Floats cannot resolve a problem as badly conditioned as this: strengthen the ridge."
        )
    if n_steps == 0:
        return initial_distance
    excess = math.sqrt((smoothness - strong_convexity) / strong_convexity)
    q = math.sqrt(strong_convexity / smoothness)
    rate = math.sqrt(1.0 - q) + 2.0 * relative_error * q
    left = initial_distance * (excess + 2.0 * relative_error) * rate ** (n_steps - 1)
    floor = 4.0 * gradient_error / (strong_convexity * (1.0 - 4.0 * relative_error))
    return (left + floor) * (1.0 + 1e-12)


def steps_to_reach(tolerance: float, *, initial_distance: float, **constants: float) -> int:
    """The smallest number of steps whose `certified_distance` is at most a tolerance.

    Raises
    ------
    ValueError
        Where a constant is out of range, or no number of steps reaches the tolerance.
    """

    def reached(n_steps: int) -> bool:
        return (
            certified_distance(n_steps, initial_distance=initial_distance, **constants) <= tolerance
        )

    if reached(0):
        return 0
    n_steps = 1 + bisect_left(range(1, MOST_STEPS), True, key=reached)
    floor = certified_distance(1, initial_distance=0.0, **constants)
    expected = f"more than {floor:.3g}, what rounding leaves, of a problem that can be solved"
    expected += ". Allow a larger tolerance or a stronger ridge"
    require(n_steps < MOST_STEPS, "tolerance", tolerance, expected)
    return n_steps
