"""Standard normal numbers from 64 random bits each."""

from __future__ import annotations

import decimal
from decimal import Decimal
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri, ndtri_exp

from skdpadmm.noise._law import Law


def standard_normal(bits: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Map uniform 64-bit words to standard normal numbers by inversion.

    53 bits give a probability in (0, 1/2], where floats are densest in the tail; one more bit
    gives the sign. A probability of 1, and with it an infinite number, cannot arise. The largest
    magnitude is about 8.3; further words refine what is in the tail.
    """
    # In place and by bits, because fresh memory costs as much as what is done with it.
    numbers = (bits >> np.uint64(11)).astype(np.float64)
    numbers += 0.5
    numbers *= 2.0**-54
    ndtri(numbers, out=numbers)
    # The upper tail is the mirror image of the lower one.
    numbers.view(np.uint64)[...] ^= (~bits & np.uint64(1)) << np.uint64(63)
    return numbers


def _quantile(log_tail: float) -> float:
    return -float(ndtri_exp(log_tail))


def _tail(t: Decimal) -> Decimal:
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


NORMAL = Law(standard_normal, 54, _quantile, _tail)
