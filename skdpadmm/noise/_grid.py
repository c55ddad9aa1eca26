"""The public grid that releases lie on."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from skdpadmm.noise._laws import Law, in_doubt

Floats = NDArray[np.float64]

# A cell of the grid, at most, in standard deviations of the noise. Guarantees of iterates that stay
# hidden count it.
GRID_CELL = 2.0**-20
# Numbers that are made at once: they stay in a core's cache from their bits to their rounding.
PIECE = 2**13
# Up to this exponent powers of two and their inverses are normal floats.
_LARGEST_EXPONENT = 1000


def grid_cell(scale: float) -> float:
    """Width of the grid for noise of that scale: ``2**floor(log2(scale)) * 2**-20``."""
    return math.ldexp(1.0, _grid_exponent(scale))


def round_to_grid(value: Floats, scale: float) -> Floats:
    """Round to multiples of 2**floor(log2(scale)) * 2**-20, a function of public facts only."""
    exponent = _grid_exponent(scale)
    # Floats of at least 2**52 grid steps lie on the grid already; scaling them could overflow.
    with np.errstate(over="ignore", under="ignore"):
        if abs(exponent) <= _LARGEST_EXPONENT:
            # The same bits in less time.
            rounded = np.rint(value * math.ldexp(1.0, -exponent)) * math.ldexp(1.0, exponent)
        else:
            rounded = np.ldexp(np.rint(np.ldexp(value, -exponent)), exponent)
        far = np.abs(value) >= np.ldexp(1.0, 52 + exponent)
    return np.where(far, value, rounded) if far.any() else rounded


def add_on_grid(
    value: Floats,
    scale: float,
    law: Law,
    draw: Callable[[int], NDArray[np.uint64]],
    more: Callable[[int], Iterator[int]],
) -> Floats:
    """``value`` + ``scale`` times numbers of a law, each in the cell that exact arithmetic finds.

    ``draw`` gives the next so many words, ``more`` further ones for the number at a place.
    """
    cell, exponent = grid_cell(scale), _grid_exponent(scale)
    exact = value.ravel()
    noisy = np.empty(exact.shape)
    for start in range(0, exact.size, PIECE):
        piece, rounded = exact[start : start + PIECE], noisy[start : start + PIECE]
        bits = draw(len(piece))
        error = law.standard(bits)
        error *= scale
        # Adding zero makes zeros positive: the sign of one would show where it was rounded from.
        np.add(round_to_grid(error + piece, scale), 0.0, out=rounded)
        error += piece - rounded
        for place in in_doubt(bits, np.abs(error, out=error), scale, cell):
            word, further = int(bits[place]), more(start + place)
            rounded[place] = law.cell_of(float(piece[place]), scale, exponent, word, further)
    return noisy.reshape(value.shape)


def _grid_exponent(scale: float) -> int:
    """Binary logarithm of the width of the grid."""
    return math.frexp(scale)[1] - 1 + int(math.log2(GRID_CELL))
