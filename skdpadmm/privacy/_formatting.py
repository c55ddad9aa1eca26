"""Numbers for people, never rounded to the flattering side."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal


def round_up(value: float, digits: int = 4) -> str:
    """Write ``value`` with ``digits`` significant digits, never below the exact float."""
    return _round(value, digits, ROUND_CEILING)


def round_down(value: float, digits: int = 4) -> str:
    """Write ``value`` with ``digits`` significant digits, never above the exact float."""
    return _round(value, digits, ROUND_FLOOR)


def _round(value: float, digits: int, rounding: str) -> str:
    if not math.isfinite(value):
        return str(float(value))
    # The shortest decimal that reads back as this float: 0.2 stays 0.2, and whatever is rounded
    # from there reads back as a float on the right side, because reading is monotone.
    shortest = Decimal(repr(float(value)))
    rounded = Context(prec=digits, rounding=rounding).create_decimal(shortest)
    return format(float(rounded), f".{digits}g")
