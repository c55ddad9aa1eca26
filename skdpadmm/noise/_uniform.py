"""Uniform numbers from 64 random bits each."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def standard_uniform(bits: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Map uniform 64-bit words to uniform numbers in [0, 1), multiples of 2**-53."""
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53
