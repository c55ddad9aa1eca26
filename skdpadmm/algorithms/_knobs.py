"""Checks of the knobs of algorithms."""

from __future__ import annotations

import math
from numbers import Integral

import numpy as np

from skdpadmm.protocol import Facts


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


def check_count(name: str, value: object) -> None:
    """Refuse a number of times that is none."""
    if not (isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= 1):
        raise ValueError(f"Got {name}={value!r}, expected an int of at least 1.")


def check_seed(name: str, value: object) -> None:
    """Refuse a public seed that is none, or another number that may be zero."""
    if not (isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= 0):
        raise ValueError(f"Got {name}={value!r}, expected an int of at least 0.")


def check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    """Refuse a knob that is not one of a few words."""
    if value not in choices:
        raise ValueError(f"Got {name}={value!r}, expected one of {list(choices)}.")


def check_flag(name: str, value: object, *, auto: bool = False) -> None:
    """Refuse a knob that is neither True nor False."""
    if auto and isinstance(value, str) and value == "auto":
        return
    if not isinstance(value, bool | np.bool_):
        choice = "'auto', " if auto else ""
        raise ValueError(f"Got {name}={value!r}, expected {choice}True or False.")


def check_steps(step_size: object, clip_norm: object) -> None:
    """Refuse a step or a clip bound out of range."""
    # Beyond this range products of the two underflow, and a bound of 0 bounds nothing.
    check_range("step_size", step_size, 1e-100, 1e100)
    check_range("clip_norm", clip_norm, 1e-100, 1e100)


def check_relaxation(relaxation: object) -> None:
    """Refuse a relaxation that leaves a hidden state without a bound."""
    if not (is_number(relaxation) and 0 < float(relaxation) < 1):  # type: ignore[arg-type]
        raise ValueError(
            f"Got relaxation={relaxation!r}, expected a float in (0, 1): at 1 no bound of a"
            " record's hidden state is known. Use 0.5."
        )


def check_tail_fraction(share: object, *, auto: bool = False) -> None:
    """Refuse a share of the path that is none."""
    if auto and share == "auto":
        return
    if not (is_number(share) and 0 < float(share) <= 1):  # type: ignore[arg-type]
        choice = "'auto' or " if auto else ""
        raise ValueError(f"Got tail_fraction={share!r}, expected {choice}a float in (0, 1].")


def tail_length(share: float, n: int) -> int:
    """How many of n steps make up a share of them, at their end: at least one."""
    return max(1, math.ceil(share * n))


def check_batches(share: object, facts: Facts) -> None:
    """Refuse a share of the records that is none, and batches where they protect nobody."""
    check_range("batch_fraction", share, 1e-6, 1.0, auto=False)
    if share != 1 and facts.unit == "agent":
        raise ValueError(
            f"Got batch_fraction={share} with privacy_unit='agent', expected 1.0: batches of"
            " records protect records. Use privacy_unit='record'."
        )
