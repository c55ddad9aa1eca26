"""What all samplers share: the check of a scale and the public grid."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

# A cell of the grid, at most, in standard deviations of the noise. Guarantees of iterates that stay
# hidden count it.
GRID_CELL = 2.0**-20


def require_scale(scale: float) -> float:
    """Return ``scale`` as a float, refusing what is not finite and positive."""
    if not 0 < scale < math.inf:
        raise ValueError(f"Got scale={scale!r}, expected a float in (0, inf).")
    return float(scale)


def grid_cell(scale: float) -> float:
    """Width of the grid for noise of that scale: ``2**floor(log2(scale)) * 2**-20``."""
    return math.ldexp(1.0, _grid_exponent(scale))


def round_to_grid(value: NDArray[np.float64], scale: float) -> NDArray[np.float64]:
    """Round to multiples of 2**floor(log2(scale)) * 2**-20, a function of public facts only."""
    exponent = _grid_exponent(scale)
    # Floats of at least 2**52 grid steps lie on the grid already; scaling them could overflow.
    with np.errstate(over="ignore", under="ignore"):
        rounded = np.ldexp(np.rint(np.ldexp(value, -exponent)), exponent)
        far = np.abs(value) >= np.ldexp(1.0, 52 + exponent)
    return np.where(far, value, rounded)


def _grid_exponent(scale: float) -> int:
    """Binary logarithm of the width of the grid."""
    return math.frexp(scale)[1] - 1 + int(math.log2(GRID_CELL))
