"""Laws that are sampled by inversion, and the cell of the grid that a noisy number lies in.

Think of a sign and of a tail probability p that has infinitely many random bits: by inversion they
are a number z of exactly that law, and a release is ``value + scale * z`` rounded to the grid. A
64-bit word gives the sign and the first bits of p. They leave an interval for p, and floats compute
z for one p in it, up to errors. Where the interval and the errors lie in one cell the release is
known. Elsewhere `Law.cell_of` compares p with the tail probability at a boundary in decimal
arithmetic, and draws the next bits of p until they decide. Nothing remains to be accounted for: the
release is that of the exact z.
"""

from __future__ import annotations

import decimal
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

# Errors of the floats, in scales. They are believed where w > 2**22 alone: Gaussian magnitudes are
# below 6.3 there, Laplace ones below 22. So ndtri may be off by 2**-45 of the number and log by
# 2**-47 (measured: below 2**-49 and 2**-50), the product and the differences by 2**-53 each.
FLOAT_ERRORS = 2.0**-42
# The absolute error of a product that is subnormal, with something to spare.
_UNDERFLOW = 2.0**-1073
# So many bits of a probability tell a quantile to 2**-39, far less than a cell.
_ENOUGH_BITS = 40


@dataclass(frozen=True)
class Law:
    """A symmetric law of location 0 and scale 1.

    Attributes
    ----------
    standard : callable
        Maps 64-bit words to numbers. Of a word b the lowest bit is the sign, 1 for negative
        numbers, and ``b >> 11`` is w below.
    n_bits : int
        A number's tail probability is in ``[w, w + 1) * 2**-n_bits``, the sign being given.
    quantile : callable
        Maps the logarithm of a tail probability to the magnitude, in floats.
    tail : callable
        The tail probability at a number, in the current decimal context.
    """

    standard: Callable[[NDArray[np.uint64]], NDArray[np.float64]]
    n_bits: int
    quantile: Callable[[float], float]
    tail: Callable[[Decimal], Decimal]

    def cell_of(
        self, value: float, scale: float, exponent: int, word: int, more: Iterator[int]
    ) -> float:
        """Round ``value + scale * z`` to the grid of width ``2**exponent``, exactly."""
        if not math.isfinite(value):
            return value
        sign = -1 if word & 1 else 1
        tail, n_bits = word >> 11, self.n_bits
        while tail < 2**_ENOUGH_BITS:
            tail, n_bits = (tail << 64) + next(more), n_bits + 64
        magnitude = Fraction(self.quantile(math.log(tail + 0.5) - n_bits * math.log(2.0)))
        # In cells. The number is less than half a cell from here: one boundary is in question.
        width = Fraction(2) ** exponent
        location, unit = Fraction(value) / width, sign * Fraction(scale) / width
        below = math.floor(location + unit * magnitude)
        boundary = (below + Fraction(1, 2) - location) / unit
        while True:
            excess = _excess(self.tail, boundary, tail, n_bits)
            if abs(excess) > 2:
                break
            tail, n_bits = (tail << 64) + next(more), n_bits + 64
        is_beyond = excess < 0
        cell = below + 1 if is_beyond == (sign > 0) else below
        try:
            return float(cell * width)
        except OverflowError:
            return math.copysign(math.inf, cell)


def _excess(
    tail: Callable[[Decimal], Decimal], boundary: Fraction, drawn: int, n_bits: int
) -> Decimal:
    """``drawn`` less the tail probability at a boundary in units of its last bit, to one half."""
    # Decimal digits of the bits and 25 more: a few thousand operations lose less than 10.
    digits = math.ceil(n_bits * math.log10(2.0)) + 25
    context = decimal.Context(
        digits, decimal.ROUND_HALF_EVEN, decimal.MIN_EMIN, decimal.MAX_EMAX, traps=[]
    )
    with decimal.localcontext(context):
        expected = tail(Decimal(boundary.numerator) / Decimal(boundary.denominator))
        return Decimal(drawn) - expected * 2**n_bits


def in_doubt(
    bits: NDArray[np.uint64], error: NDArray[np.float64], scale: float, cell: float
) -> list[int]:
    """Where a number may lie in another cell than the one that floats found.

    The law's density is at least half of its tail probability, so that an interval of
    probabilities ``[w, w + 1)`` is one of numbers no longer than ``2 / w``.
    """
    room = 0.5 * cell - FLOAT_ERRORS * scale - _UNDERFLOW
    # For most pieces the two extremes are enough. What is no number is in doubt.
    fewest = max(int(np.minimum.reduce(bits)) >> 11, 1)
    if np.maximum.reduce(error) < room - 2.0 * scale / fewest:
        return []
    words = np.maximum(bits >> np.uint64(11), np.uint64(1))
    return np.flatnonzero(~(error < room - 2.0 * scale / words)).tolist()
