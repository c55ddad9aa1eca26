"""Numbers: refused out of range, found by bisection, and written, never to the flattering side."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from functools import wraps
from numbers import Integral
from typing import ParamSpec, TypeVar

import numpy as np

_RTOL = 1e-13
_P = ParamSpec("_P")
_R = TypeVar("_R")


def quiet_underflow(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Let what underflows be zero, whatever a caller's ``np.errstate`` says."""

    @wraps(function)
    def quiet(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        with np.errstate(under="ignore"):
            return function(*args, **kwargs)

    return quiet


def require(valid: bool, name: str, value: object, expected: str) -> None:
    """Raise ``ValueError`` unless ``valid``; a comparison with NaN is false, so NaN is refused."""
    if not valid:
        raise ValueError(f"Got {name}={value!r}, expected {expected}.")


def require_epsilon(epsilon: float) -> None:
    require(epsilon >= 0, "epsilon", epsilon, "a float in [0, inf]")


def require_delta(delta: float) -> None:
    require(0 <= delta <= 1, "delta", delta, "a float in [0, 1]")


def require_target(epsilon: float, delta: float) -> None:
    """Refuse what no finite noise can be calibrated to."""
    expected = "a float in [0, inf); without privacy there is nothing to calibrate"
    require(0 <= epsilon < math.inf, "epsilon", epsilon, expected)
    require(0 < delta < 1, "delta", delta, "a float in (0, 1)")


def require_finite(value: float, name: str) -> None:
    require(0 <= value < math.inf, name, value, "a float in [0, inf)")


def require_positive(value: float, name: str) -> None:
    require(0 < value < math.inf, name, value, "a float in (0, inf)")


def require_count(value: object, name: str) -> None:
    require(isinstance(value, Integral) and int(value) >= 1, name, value, "an int >= 1")


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


def smallest_epsilon(reaches: Callable[[float], bool]) -> float:
    """Return the smallest epsilon that reaches a delta, from the accepted side; infinity if none.

    Once true of an epsilon, ``reaches`` stays so.
    """
    if reaches(0.0):
        return 0.0
    if not reaches(sys.float_info.max):
        return math.inf
    low, high = 0.0, 1.0
    while not reaches(high):
        low, high = high, 2.0 * high
    return bisect(reaches, rejected=low, accepted=high)


def round_up(value: float, digits: int = 4) -> str:
    """Write ``value`` with ``digits`` significant digits, never below the exact float."""
    return _round(value, digits, ROUND_CEILING)


def round_down(value: float, digits: int = 4) -> str:
    """Write ``value`` with ``digits`` significant digits, never above the exact float."""
    return _round(value, digits, ROUND_FLOOR)


def percent_up(share: float) -> str:
    """Write a share as a percentage, rounded up."""
    return f"{round_up(100.0 * share)} %"


def _round(value: float, digits: int, rounding: str) -> str:
    if not math.isfinite(value):
        return str(float(value))
    # The shortest decimal that reads back as this float: 0.2 stays 0.2, and whatever is rounded
    # from there reads back as a float on the right side, because reading is monotone.
    shortest = Decimal(repr(float(value)))
    rounded = Context(prec=digits, rounding=rounding).create_decimal(shortest)
    return format(float(rounded), f".{digits}g")
