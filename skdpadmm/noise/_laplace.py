"""Standard Laplace numbers from 64 random bits each."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
from numpy.typing import NDArray

from skdpadmm.noise._law import Law


def standard_laplace(bits: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Map uniform 64-bit words to Laplace numbers of location 0 and scale 1 by inversion.

    53 bits give a probability in (0, 1], where floats are densest in the tail; one more bit gives
    the sign. A probability of 0, and with it an infinite number, cannot arise. The largest
    magnitude is about 37.4; further words refine what is in the tail.
    """
    probability = ((bits >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
    sign = 1.0 - 2.0 * (bits & np.uint64(1)).astype(np.float64)
    return -sign * np.log(probability)


def _quantile(log_tail: float) -> float:
    return -log_tail


def _tail(t: Decimal) -> Decimal:
    return (-t).exp()


LAPLACE = Law(standard_laplace, 53, _quantile, _tail)
