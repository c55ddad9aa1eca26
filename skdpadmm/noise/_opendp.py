"""Floating-point safe noise from OpenDP."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skdpadmm.noise._grid import require_scale, round_to_grid
from skdpadmm.noise._uniform import standard_uniform


@dataclass(frozen=True)
class OpenDPNoise:
    """Noise by OpenDP's exact samplers, the extra ``[secure]``.

    ``make_gaussian`` treats floats as the rational numbers they are and adds a discrete Gaussian
    on the grid 2**-1074 (its ``k``, here the default), the spacing of the smallest floats. Every
    float lies on that grid: nothing is rounded before the noise, so the sensitivity gains no
    rounding term and OpenDP's own map gives exactly rho = (Delta / scale)^2 / 2. Beside any scale
    above 1e-300 the grid's relative width is below 2**-60, where a discrete and a continuous
    Gaussian have the same privacy curve to within floating-point precision. Rounding to a float
    and to the public grid are post-processing.

    ``make_laplace`` does the same with a discrete Laplace law, whose own map gives exactly
    epsilon = Delta_1 / scale, and a delta of zero.

    It costs about 50 microseconds for each number: 5 ms for a release of 100.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpadmm.noise import OpenDPNoise
    >>> OpenDPNoise().add_gaussian(np.zeros(3), 1.0, (0, 0)).shape  # doctest: +SKIP
    (3,)
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
        ImportError
            If OpenDP is not installed.
        ValueError
            If ``scale`` is not finite and positive.
        """
        return _add(value, require_scale(scale), "gaussian")

    def add_laplace(
        self, value: NDArray[np.float64], scale: float, stream: tuple[int, ...]
    ) -> NDArray[np.float64]:
        """Return ``value`` + Laplace(scale) on the grid; every call is fresh, ``stream`` or not.

        Raises
        ------
        ImportError
            If OpenDP is not installed.
        ValueError
            If ``scale`` is not finite and positive.
        """
        return _add(value, require_scale(scale), "laplace")

    def uniform(self, shape: tuple[int, ...], stream: tuple[int, ...]) -> NDArray[np.float64]:
        """Return uniform numbers in [0, 1); every call is fresh, ``stream`` or not."""
        bits = np.frombuffer(os.urandom(8 * math.prod(shape)), dtype=np.uint64)
        return standard_uniform(bits).reshape(shape)


def _add(value: NDArray[np.float64], scale: float, law: str) -> NDArray[np.float64]:
    value = np.asarray(value, dtype=np.float64)
    noisy = _measurement(scale, law)(value.ravel().tolist())
    rounded = round_to_grid(np.array(noisy, dtype=np.float64).reshape(value.shape), scale)
    # Adding zero makes zeros positive: with the sign of one, a sum with what was rounded to zero
    # would show where that was rounded from.
    return rounded + 0.0


@lru_cache(maxsize=64)
def _measurement(scale: float, law: str = "gaussian") -> Any:
    try:
        import opendp.prelude as dp
    except ImportError as error:
        raise ImportError(
            "sampler='opendp' needs OpenDP: pip install 'skdpadmm[secure]'"
        ) from error
    dp.enable_features("contrib")
    domain = dp.vector_domain(dp.atom_domain(T=float, nan=False))
    if law == "laplace":
        return dp.m.make_laplace(domain, dp.l1_distance(T=float), scale=scale)
    return dp.m.make_gaussian(domain, dp.l2_distance(T=float), scale=scale)
