"""The rule: every default of the private iterations, from public facts alone."""

from __future__ import annotations

import math

from skdpadmm.losses import HuberLoss, MultinomialLoss, OneVsRestHinge, SquaredLoss
from skdpadmm.protocol import Facts

# Share of the squared budget that goes into units, where they are asked for, and the median norm of
# a row's features, in units of the bound, that the other defaults expect.
SCALING_SHARE, SCALING_TARGET = 0.03, 0.6


def default_conditioning(facts: Facts, mu: float) -> tuple[float, dict[str, float]]:
    """Share of the squared budget for the second moment, and what `plan_conditioning` is told.

    Parameters
    ----------
    facts : Facts
    mu : float
        What the budget leaves, as a Gaussian-DP parameter.

    Returns
    -------
    share : float
    choices : dict
        `row_norm`, `floor` and `spread_power`.
    """
    row_norm = 0.4 * math.sqrt(facts.n_parameters)
    if _is_regression(facts):
        return 0.2, {"row_norm": row_norm, "floor": 0.7, "spread_power": 0.0}
    return 0.15, {"row_norm": row_norm, "floor": 0.7, "spread_power": 0.5}


def conditioning_pays(facts: Facts, mu: float) -> bool:
    """Whether a noisy second moment is worth its cost.

    A regression with less than about three units of signal for each parameter gains less from
    better coordinates than it loses by the noise that they cost.
    """
    signal = facts.n_samples * mu / facts.neighboring.sensitivity_factor
    return not _is_regression(facts) or signal > 3 * facts.n_parameters


def default_steps(facts: Facts, mu: float) -> tuple[float, float]:
    """Step size and clip bound.

    Parameters
    ----------
    facts : Facts
    mu : float
        What the budget leaves for the iteration, as a Gaussian-DP parameter.

    Returns
    -------
    step_size : float
        In the coordinates that the algorithm works in.
    clip_norm : float
        In units of the typical norm of a row.
    """
    signal = facts.n_samples * mu / facts.neighboring.sensitivity_factor
    if facts.conditioning is None:
        curvature = facts.loss.smoothness * facts.row_norm**2
        if _is_regression(facts):
            clip = min(max(0.01 * math.sqrt(signal), 0.02), 1.0)
            least, growth, settling = 0.5, 0.3, 20.0
        else:
            clip = min(max(0.02 * math.sqrt(signal), 0.03), 0.3)
            least, growth, settling = 20.0, 1.5, 200.0
        travel = max(least, min(growth * signal, settling * clip * curvature))
        return travel / (facts.max_iter * clip * curvature), clip
    if _is_regression(facts):
        return 100 / (6 * facts.max_iter), min(signal / 500, 0.25)
    if isinstance(facts.loss, MultinomialLoss | OneVsRestHinge):
        travel = min(max(0.45 * math.sqrt(signal), 2.0), 60.0)
    else:
        travel = min(max(1.2 * math.sqrt(signal), 4.0), 60.0)
    return 1.0 / facts.loss.smoothness, travel / facts.max_iter


def _is_regression(facts: Facts) -> bool:
    return isinstance(facts.loss, SquaredLoss | HuberLoss)
