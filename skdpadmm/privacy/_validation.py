"""The one form of an error message: got, expected."""

from __future__ import annotations


def require(valid: bool, name: str, value: object, expected: str) -> None:
    """Raise ``ValueError`` unless ``valid``; a comparison with NaN is false, so NaN is refused."""
    if not valid:
        raise ValueError(f"Got {name}={value!r}, expected {expected}.")


def require_epsilon(epsilon: float) -> None:
    """Refuse an epsilon outside [0, inf]."""
    require(epsilon >= 0, "epsilon", epsilon, "a float in [0, inf]")


def require_delta(delta: float) -> None:
    """Refuse a delta outside [0, 1]."""
    require(0 <= delta <= 1, "delta", delta, "a float in [0, 1]")


def require_target(epsilon: float, delta: float) -> None:
    """Refuse what no finite noise can be calibrated to."""
    require(
        0 <= epsilon < float("inf"),
        "epsilon",
        epsilon,
        "a float in [0, inf); without privacy there is nothing to calibrate",
    )
    require(0 < delta < 1, "delta", delta, "a float in (0, 1)")
