"""Laws sampled by inversion, and the cell of the public grid that a noisy number lies in.

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
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri, ndtri_exp

Floats = NDArray[np.float64]
Words = NDArray[np.uint64]

# A cell of the grid, at most, in standard deviations of the noise. Guarantees of iterates that stay
# hidden count it.
GRID_CELL = 2.0**-20
# Numbers that are drawn at once: they stay in a core's cache from their bits to their rounding.
PIECE = 2**13
# Up to this exponent powers of two and their inverses are normal floats.
_LARGEST_EXPONENT = 1000
# Errors of the floats, in scales. They are believed where w > 2**22 alone: Gaussian magnitudes are
# below 6.3 there, Laplace ones below 22. So ndtri may be off by 2**-45 of the number and log by
# 2**-47 (measured: below 2**-49 and 2**-50), the product and the differences by 2**-53 each.
FLOAT_ERRORS = 2.0**-42
# The absolute error of a product that is subnormal, with something to spare.
_UNDERFLOW = 2.0**-1073
# So many bits of a probability determine a quantile to 2**-39, far less than a cell.
_ENOUGH_BITS = 40


@dataclass(frozen=True)
class Law:
    """A symmetric law of location 0 and scale 1."""

    # Maps 64-bit words to numbers. Of a word the lowest bit is the sign, 1 for negative numbers.
    standard: Callable[[Words], Floats]
    # With ``w = word >> 11`` the tail probability is in ``[w, w + 1) * 2**-n_bits``.
    n_bits: int
    # The magnitude, in floats, by the logarithm of the tail probability.
    quantile: Callable[[float], float]
    # The tail probability at a number, in the current decimal context.
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
        while abs(excess := self._excess(boundary, tail, n_bits)) <= 2:
            tail, n_bits = (tail << 64) + next(more), n_bits + 64
        cell = below + 1 if (excess < 0) == (sign > 0) else below
        try:
            return float(cell * width)
        except OverflowError:
            return math.copysign(math.inf, cell)

    def _excess(self, boundary: Fraction, drawn: int, n_bits: int) -> Decimal:
        """`drawn` less the tail probability at a boundary in units of its last bit, to one half."""
        # Decimal digits of the bits and 25 more: a few thousand operations lose less than 10.
        digits = math.ceil(n_bits * math.log10(2.0)) + 25
        context = decimal.Context(
            digits, decimal.ROUND_HALF_EVEN, decimal.MIN_EMIN, decimal.MAX_EMAX, traps=[]
        )
        with decimal.localcontext(context):
            expected = self.tail(Decimal(boundary.numerator) / Decimal(boundary.denominator))
            return Decimal(drawn) - expected * 2**n_bits


def standard_normal(bits: Words) -> Floats:
    """Map uniform 64-bit words to standard normal numbers by inversion.

    The largest magnitude is about 8.3; further words refine what is in the tail.
    """
    # 53 bits give a probability in (0, 1/2], where floats are densest, and one more bit the sign.
    # In place and by bits, because fresh memory takes as long as what is done with it.
    numbers = (bits >> np.uint64(11)).astype(np.float64)
    numbers += 0.5
    numbers *= 2.0**-54
    ndtri(numbers, out=numbers)
    # The upper tail is the mirror image of the lower one.
    numbers.view(np.uint64)[...] ^= (~bits & np.uint64(1)) << np.uint64(63)
    return numbers


def _normal_tail(t: Decimal) -> Decimal:
    """1/2 - phi(t) (t + t^3 / 3 + t^5 / (3 * 5) + ...): terms of one sign, which lose nothing."""
    term = total = t
    k = 1
    while total + term != total:
        k += 2
        term = term * t * t / k
        total += term
    density = (-t * t / 2).exp() / (2 * _pi(decimal.getcontext().prec)).sqrt()
    return Decimal("0.5") - density * total


@lru_cache(maxsize=8)
def _pi(digits: int) -> Decimal:
    """2 (1 + 1 / 3 + 1 * 2 / (3 * 5) + ...) in the current context, which has so many digits."""
    term = total = Decimal(2)
    k = 0
    while total + term != total:
        k += 1
        term = term * k / (2 * k + 1)
        total += term
    return total


def standard_laplace(bits: Words) -> Floats:
    """Map uniform 64-bit words to Laplace numbers of location 0 and scale 1 by inversion.

    The largest magnitude is about 37.4; further words refine what is in the tail.
    """
    probability = ((bits >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
    sign = 1.0 - 2.0 * (bits & np.uint64(1)).astype(np.float64)
    return -sign * np.log(probability)


NORMAL = Law(standard_normal, 54, lambda log_tail: -float(ndtri_exp(log_tail)), _normal_tail)
LAPLACE = Law(standard_laplace, 53, lambda log_tail: -log_tail, lambda t: (-t).exp())


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
    draw: Callable[[int], Words],
    more: Callable[[int], Iterator[int]],
) -> Floats:
    """Add ``scale`` times numbers of a law to ``value``, each in the cell of exact arithmetic.

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


def in_doubt(bits: Words, error: Floats, scale: float, cell: float) -> list[int]:
    """Where a number, by the errors of its floats, may lie in another cell than the one found."""
    # The law's density is at least half of its tail probability, so that an interval of
    # probabilities [w, w + 1) is one of numbers no longer than 2 / w.
    margin = 0.5 * cell - FLOAT_ERRORS * scale - _UNDERFLOW
    # For most pieces the two extremes are enough. What is no number is in doubt.
    fewest = max(int(np.minimum.reduce(bits)) >> 11, 1)
    if np.maximum.reduce(error) < margin - 2.0 * scale / fewest:
        return []
    words = np.maximum(bits >> np.uint64(11), np.uint64(1))
    return np.flatnonzero(~(error < margin - 2.0 * scale / words)).tolist()


def _grid_exponent(scale: float) -> int:
    """Binary logarithm of the width of the grid."""
    return math.frexp(scale)[1] - 1 + int(math.log2(GRID_CELL))
