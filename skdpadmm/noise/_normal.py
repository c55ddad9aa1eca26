"""Standard normal numbers from 64 random bits each."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri


def standard_normal(bits: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Map uniform 64-bit words to standard normal numbers by inversion.

    53 bits give a probability in (0, 1/2], where floats are densest in the tail; one more bit
    gives the sign. A probability of 1, and with it an infinite number, cannot arise. The largest
    magnitude is about 8.3; the law beyond it has a probability below 2**-53.
    """
    probability = ((bits >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-54
    sign = 1.0 - 2.0 * (bits & np.uint64(1)).astype(np.float64)
    magnitude: NDArray[np.float64] = -ndtri(probability)
    return sign * magnitude
