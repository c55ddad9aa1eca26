"""Numbers for people, never rounded to the flattering side."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal


def round_up(value: float, digits: int = 4) -> str:
    """Write ``value`` with ``digits`` significant digits, never below the exact float."""
    return _round(value, digits, ROUND_CEILING)


def round_down(value: float, digits: int = 4) -> str:
    """Write ``value`` with ``digits`` significant digits, never above the exact float."""
    return _round(value, digits, ROUND_FLOOR)


def text_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write rows of cells below a header, each column as wide as its widest cell."""
    table = [header, *rows]
    widths = [max(len(row[column]) for row in table) for column in range(len(header))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in table
    )


def _round(value: float, digits: int, rounding: str) -> str:
    if not math.isfinite(value):
        return str(float(value))
    # The shortest decimal that reads back as this float: 0.2 stays 0.2, and whatever is rounded
    # from there reads back as a float on the right side, because reading is monotone.
    shortest = Decimal(repr(float(value)))
    rounded = Context(prec=digits, rounding=rounding).create_decimal(shortest)
    return format(float(rounded), f".{digits}g")
