"""Checks of the knobs of algorithms."""

from __future__ import annotations

import numpy as np


def is_number(value: object) -> bool:
    """Whether a knob is a number, and no bool."""
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


def check_range(name: str, value: object, low: float, high: float, *, auto: bool = True) -> None:
    """Refuse a knob that is neither "auto" nor a number in a range."""
    if auto and value == "auto":
        return
    if not (is_number(value) and low <= float(value) <= high):  # type: ignore[arg-type]
        choice = "'auto' or " if auto else ""
        raise ValueError(
            f"Got {name}={value!r}, expected {choice}a float in [{low:g}, {high:g}]."
            + (" 'auto' is chosen from public facts." if auto else "")
        )
