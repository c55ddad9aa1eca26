"""Noise that meets a budget."""

from __future__ import annotations

import math
from collections.abc import Callable

from skdpadmm.privacy._guarantee import Guarantee
from skdpadmm.privacy._validation import require_target

_DOUBLINGS = 200
_RTOL = 1e-6


def calibrate_noise(
    guarantee_at: Callable[[float], Guarantee], epsilon: float, delta: float
) -> float:
    """Return the smallest noise scale whose guarantee meets (epsilon, delta).

    Parameters
    ----------
    guarantee_at : callable
        Maps a noise scale in (0, inf) to a guarantee that improves with the scale.
    epsilon : float
        In [0, inf).
    delta : float
        In (0, 1).

    Returns
    -------
    float
        The noisier side of a safeguarded bisection, within 1e-6 of the smallest scale, relatively.

    Raises
    ------
    ValueError
        If the budget is out of range, or no scale in the range of floats meets it, or each does.

    Examples
    --------
    >>> from skdpadmm.privacy import GaussianDP, calibrate_noise
    >>> scale = calibrate_noise(lambda scale: GaussianDP(1.0 / scale), epsilon=1.0, delta=1e-6)
    >>> round(scale, 4)
    4.2247
    """
    require_target(epsilon, delta)

    def excess(scale: float) -> float:
        """Return log(delta at scale / delta); the scale is accepted unless it is positive."""
        spent = guarantee_at(scale).delta(epsilon)
        value = math.log(max(spent, 1e-300)) - math.log(delta)
        # The sign decides, so rounding of the logarithms must not.
        return min(value, 0.0) if spent <= delta else max(value, 1e-16)

    scale, value = 1.0, excess(1.0)
    met = value <= 0
    factor = 0.5 if met else 2.0
    for _ in range(_DOUBLINGS):
        following, following_value = scale * factor, excess(scale * factor)
        if (following_value <= 0) != met:
            ends = ((following, following_value), (scale, value))
            return _close(excess, *(ends if met else ends[::-1]))
        scale, value = following, following_value
    outcome = "every noise scale meets" if met else "no noise scale meets"
    raise ValueError(
        f"Got a family in which {outcome} epsilon={epsilon!r} at delta={delta!r}, "
        "expected one that depends on its scale; check its sensitivity and its guarantee."
    )


def _close(
    excess: Callable[[float], float], rejected: tuple[float, float], accepted: tuple[float, float]
) -> float:
    """Close a bracket of (scale, excess) pairs and return the accepted scale.

    log delta is almost linear in log scale, and one evaluation may cost a privacy loss
    distribution: two steps of interpolation, each aimed just beyond the root to move the far end,
    alternate with one bisection, which guarantees convergence.
    """
    step = 0
    while accepted[0] > rejected[0] * (1.0 + _RTOL):
        width = math.log(accepted[0] / rejected[0])
        share = 0.5
        if step % 3 < 2:
            share = rejected[1] / (rejected[1] - accepted[1])
            share += math.copysign(_RTOL / (3.0 * width), 0.5 - share)
        share = min(max(share, 0.25 * _RTOL / width), 1.0 - 0.25 * _RTOL / width)
        scale = rejected[0] * math.exp(share * width)
        value = excess(scale)
        if value > 0:
            rejected = (scale, value)
        else:
            accepted = (scale, value)
        step += 1
    return accepted[0]
