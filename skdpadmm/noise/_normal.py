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
    # In place and by bits, because fresh memory costs as much as what is done with it.
    numbers = (bits >> np.uint64(11)).astype(np.float64)
    numbers += 0.5
    numbers *= 2.0**-54
    ndtri(numbers, out=numbers)
    # The upper tail is the mirror image of the lower one.
    numbers.view(np.uint64)[...] ^= (~bits & np.uint64(1)) << np.uint64(63)
    return numbers
