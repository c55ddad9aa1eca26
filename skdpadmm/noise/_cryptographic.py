"""Noise from the operating system's generator."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from skdpadmm.noise._grid import add_on_grid
from skdpadmm.noise._laplace import LAPLACE
from skdpadmm.noise._law import Law
from skdpadmm.noise._normal import NORMAL
from skdpadmm.noise._uniform import standard_uniform


@dataclass(frozen=True)
class CryptographicNoise:
    """Noise from ``os.urandom``, the default of a private fit.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpadmm.noise import CryptographicNoise
    >>> CryptographicNoise().add_gaussian(np.zeros((2, 3)), 1.0, (0, 0)).shape
    (2, 3)
    """

    @property
    def simulation(self) -> bool:
        """False: nobody can reproduce the noise."""
        return False

    def add_gaussian(
        self, value: NDArray[np.float64], scale: float, stream: tuple[int, ...]
    ) -> NDArray[np.float64]:
        """Return ``value`` + N(0, scale^2 I) on the grid; every call is fresh, ``stream`` or not.

        Raises
        ------
        ValueError
            If ``scale`` is not finite and positive.
        """
        return _add(value, scale, NORMAL)

    def add_laplace(
        self, value: NDArray[np.float64], scale: float, stream: tuple[int, ...]
    ) -> NDArray[np.float64]:
        """Return ``value`` + Laplace(scale) on the grid; every call is fresh, ``stream`` or not.

        Raises
        ------
        ValueError
            If ``scale`` is not finite and positive.
        """
        return _add(value, scale, LAPLACE)

    def uniform(self, shape: tuple[int, ...], stream: tuple[int, ...]) -> NDArray[np.float64]:
        """Return uniform numbers in [0, 1); every call is fresh, ``stream`` or not."""
        return standard_uniform(_words(math.prod(shape))).reshape(shape)


def _add(value: NDArray[np.float64], scale: float, law: Law) -> NDArray[np.float64]:
    return add_on_grid(np.asarray(value, dtype=np.float64), scale, law, _words, _more)


def _words(size: int) -> NDArray[np.uint64]:
    return np.frombuffer(os.urandom(8 * size), dtype=np.uint64)


def _more(place: int) -> Iterator[int]:
    while True:
        yield int.from_bytes(os.urandom(8))
