"""Reproducible noise, for simulations."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from skdpadmm.noise._grid import require_scale, round_to_grid
from skdpadmm.noise._laplace import standard_laplace
from skdpadmm.noise._normal import standard_normal
from skdpadmm.noise._uniform import standard_uniform


@dataclass(frozen=True)
class SeededNoise:
    """Noise that is a function of a seed, a digest of the plan and the stream.

    It makes a fit a SIMULATION: equal streams on different data cancel. No generator is kept, so
    neither the order of calls nor a pickle matters. The words come from Philox, whose output numpy
    keeps stable across versions, and pass through the samplers of CryptographicNoise.

    Parameters
    ----------
    entropy : tuple of int
        Words of the seed, each in [0, 2**32).
    digest : bytes
        Digest of the plan.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpadmm.noise import SeededNoise
    >>> draw = [SeededNoise((0,), b"plan").add_gaussian(np.zeros(3), 1.0, (0, 1)) for _ in "ab"]
    >>> bool(np.all(draw[0] == draw[1]))
    True
    """

    entropy: tuple[int, ...]
    digest: bytes

    def __post_init__(self) -> None:
        """Refuse words that SeedSequence would split, which could make two seeds equal."""
        object.__setattr__(self, "entropy", tuple(int(word) for word in self.entropy))
        _require_words("entropy", self.entropy)

    @property
    def simulation(self) -> bool:
        """True: whoever knows the seed can take the noise away."""
        return True

    def add_gaussian(
        self, value: NDArray[np.float64], scale: float, stream: tuple[int, ...]
    ) -> NDArray[np.float64]:
        """Return ``value`` + N(0, scale^2 I) on the grid, the same at every call.

        Raises
        ------
        ValueError
            If ``scale`` is not finite and positive, or ``stream`` is not made of 32-bit words.
        """
        return self._add(value, scale, stream, standard_normal)

    def add_laplace(
        self, value: NDArray[np.float64], scale: float, stream: tuple[int, ...]
    ) -> NDArray[np.float64]:
        """Return ``value`` + Laplace(scale) on the grid, the same at every call.

        Gaussian noise in the same stream comes from the same words.

        Raises
        ------
        ValueError
            If ``scale`` is not finite and positive, or ``stream`` is not made of 32-bit words.
        """
        return self._add(value, scale, stream, standard_laplace)

    def uniform(self, shape: tuple[int, ...], stream: tuple[int, ...]) -> NDArray[np.float64]:
        """Return uniform numbers in [0, 1), the same at every call.

        Raises
        ------
        ValueError
            If ``stream`` is not made of 32-bit words.
        """
        return standard_uniform(self._bits(math.prod(shape), stream)).reshape(shape)

    def _add(
        self,
        value: NDArray[np.float64],
        scale: float,
        stream: tuple[int, ...],
        standard: Callable[[NDArray[np.uint64]], NDArray[np.float64]],
    ) -> NDArray[np.float64]:
        scale = require_scale(scale)
        value = np.asarray(value, dtype=np.float64)
        noise = standard(self._bits(value.size, stream)).reshape(value.shape)
        return round_to_grid(value + scale * noise, scale)

    def _bits(self, size: int, stream: tuple[int, ...]) -> NDArray[np.uint64]:
        """Words of the stream."""
        _require_words("stream", stream)
        digest = list(self.digest)
        # Lengths in front keep (seed, digest) pairs apart whose concatenations are equal.
        words = [len(self.entropy), *self.entropy, len(digest), *digest]
        sequence = np.random.SeedSequence(words, spawn_key=tuple(int(word) for word in stream))
        bits = np.random.Philox(sequence).random_raw(size)
        return np.asarray(bits, dtype=np.uint64)


def _require_words(name: str, words: tuple[int, ...]) -> None:
    if not all(0 <= word < 2**32 for word in words):
        raise ValueError(f"Got {name}={words!r}, expected a tuple of ints in [0, 2**32).")
