"""What the rule becomes for descent along gradients and along coordinates, from public facts."""

from __future__ import annotations

from dataclasses import replace

from skdpadmm.algorithms._defaults import default_steps
from skdpadmm.protocol import Facts


def default_descent(
    facts: Facts, mu: float, n_iter: int, *, momentum: float | None = None
) -> tuple[float, float, float]:
    """Step size, clip bound and momentum of gradient descent.

    The rule of `default_steps`, which serves exact proximal steps of any size where rows are not
    conditioned: there a step is made up of momentum instead, and kept below one over the bound of
    the curvature, where Nesterov's momentum is stable for every data set.

    Parameters
    ----------
    facts : Facts
    mu : float
        What the budget leaves for the iteration, as a Gaussian-DP parameter.
    n_iter : int
        Steps.
    momentum : float or None, default=None
        Where it is given already.

    Returns
    -------
    step_size : float
        In the coordinates that the algorithm works in.
    clip_norm : float
        In units of the typical norm of a row.
    momentum : float
    """
    step_size, clip_norm = default_steps(replace(facts, max_iter=n_iter), mu)
    if momentum is None:
        momentum = 0.8 if facts.conditioning is None else 0.0
    # Momentum multiplies the distance that a path travels.
    step_size *= 1.0 - momentum
    if facts.conditioning is None:
        step_size = min(step_size, 1.0 / (facts.loss.smoothness * facts.row_norm**2))
    return step_size, clip_norm, momentum


def default_coordinate_steps(facts: Facts, mu: float) -> tuple[float, float]:
    """Step size and clip bound of coordinate descent, the same for all coordinates.

    A pass over all coordinates with these bounds meets the noise of one step of gradient descent,
    so the rule is that of `default_steps`; a coordinate of a declared feature has a curvature of at
    most the loss's own, which bounds its step.

    Parameters
    ----------
    facts : Facts
    mu : float
        What the budget leaves for the iteration, as a Gaussian-DP parameter.

    Returns
    -------
    step_size : float
        In units of one over the smoothness of the loss.
    clip_norm : float
        Bound of one coordinate of a record's gradient.
    """
    step_size, clip_norm = default_steps(facts, mu)
    return min(step_size * facts.loss.smoothness, 1.0), clip_norm
