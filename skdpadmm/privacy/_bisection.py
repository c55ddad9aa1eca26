"""Bisection that hands back the side which was accepted."""

from __future__ import annotations

import math
from collections.abc import Callable

_RTOL = 1e-13


def bisect(accept: Callable[[float], bool], rejected: float, accepted: float) -> float:
    """Close the gap between a rejected and an accepted non-negative number.

    Returns the last number for which ``accept`` was true, so rounding and a predicate that is
    not quite monotone can cost tightness but never safety.
    """
    while abs(accepted - rejected) > _RTOL * max(accepted, rejected):
        if min(accepted, rejected) > 0:  # magnitudes first: few steps over many decades
            middle = math.sqrt(accepted) * math.sqrt(rejected)
        else:
            middle = 0.5 * (accepted + rejected)
        if not min(accepted, rejected) < middle < max(accepted, rejected):
            break
        if accept(middle):
            accepted = middle
        else:
            rejected = middle
    return accepted
