"""Noise that cancels in prefix sums: lower-triangular Toeplitz matrices with a short memory.

With C the matrix of coefficients c_0 = 1, c_1, ... and independent noise z, the prefix sums of g
are released as ``A C^-1 (C g + z)``: the noise is added to C g, and its part in the sums is
``A C^-1 z``. The square root of the matrix A of prefix sums is nearly the best C (Fichtenberger,
Henzinger & Upadhyay, "Constant matters: fine-grained error bound on differentially private
continual observation", ICML 2023). A sum of a few exponentials comes close to it, and needs a
buffer for each of them (Dvijotham, McMahan, Pillutla, Steinke & Thakurta, "Efficient and
near-optimal noise generation for streaming differential privacy", FOCS 2024).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

Array = NDArray[np.float64]


@dataclass(frozen=True)
class ExponentialSum:
    """Coefficients ``c_0 = 1`` and ``c_k = sum_i weights_i decays_i^(k - 1)``, decays below 1."""

    weights: tuple[float, ...]
    decays: tuple[float, ...]

    def norm(self, n_steps: float = math.inf) -> float:
        """``sqrt(sum_k c_k^2)`` over the first steps or, by default, over a stream without end."""
        ratios = np.outer(self.decays, self.decays)
        products = np.outer(self.weights, self.weights)
        return math.sqrt(1 + float(np.sum(products * (1 - ratios ** (n_steps - 1)) / (1 - ratios))))

    def rounding(self, size: float, n_steps: int) -> float:
        """How far floats can move two paths of `n_steps` steps apart in norm, at most.

        Terms are at most `size` long. Two operations round a buffer in each step, and earlier
        errors decay as the buffer does; the value that is released is a sum of all buffers. Of two
        neighbouring data sets each has its own errors.
        """
        weights, life = np.array(self.weights), 1 / (1 - np.array(self.decays))
        in_buffers = float(np.sum(weights * (2 * life**2 + (len(life) + 2) * life)))
        error = 2.0**-53 * size * (in_buffers + len(life) + 2)
        return 2 * error * math.sqrt(n_steps) * (1 + 1e-9)

    def mixed(self, buffers: Array) -> Array:
        """What the buffers of earlier steps add to the present one."""
        return np.tensordot(self.weights, buffers, 1)

    def after(self, buffers: Array, term: Array) -> Array:
        """The buffers after a step."""
        return np.multiply(buffers.T, self.decays).T + term


@lru_cache(maxsize=8)
def square_root(n_steps: int, n_buffers: int, slow: float, fast: float) -> ExponentialSum:
    """Exponentials close to the square root of the matrix of prefix sums, for so many steps.

    The decays are spaced evenly in log-odds, with memories from about ``n_steps / slow`` down to a
    few steps. Nine digits of them, so that every platform has the same plan: the guarantee is that
    of the numbers that are used.
    """
    decays = 1 / (1 + np.exp(np.linspace(math.log(slow / n_steps), math.log(fast), n_buffers)))
    k = np.unique(np.rint(np.geomspace(1, n_steps, 200)))
    j = np.arange(1.0, n_steps + 1)
    target = np.cumprod((2 * j - 1) / (2 * j))[k.astype(np.intp) - 1]
    weights, _ = nnls(decays ** (k[:, None] - 1) / target[:, None], np.ones(len(k)))
    rounded = [tuple(float(f"{value:.9g}") for value in found) for found in (weights, decays)]
    return ExponentialSum(*rounded)
