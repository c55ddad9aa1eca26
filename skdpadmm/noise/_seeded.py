"""Reproducible noise, for simulations."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from skdpadmm.noise._grid import add_on_grid
from skdpadmm.noise._laplace import LAPLACE
from skdpadmm.noise._law import Law
from skdpadmm.noise._normal import NORMAL
from skdpadmm.noise._uniform import standard_uniform

# In front of the words that refine a number: no seed has as many words.
_FURTHER = 2**32 - 1


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
        return self._add(value, scale, stream, NORMAL)

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
        return self._add(value, scale, stream, LAPLACE)

    def uniform(self, shape: tuple[int, ...], stream: tuple[int, ...]) -> NDArray[np.float64]:
        """Return uniform numbers in [0, 1), the same at every call.

        Raises
        ------
        ValueError
            If ``stream`` is not made of 32-bit words.
        """
        bits = self._words(stream).random_raw(math.prod(shape))
        return standard_uniform(np.asarray(bits, dtype=np.uint64)).reshape(shape)

    def _add(
        self,
        value: NDArray[np.float64],
        scale: float,
        stream: tuple[int, ...],
        law: Law,
    ) -> NDArray[np.float64]:
        words = self._words(stream)

        def draw(size: int) -> NDArray[np.uint64]:
            return np.asarray(words.random_raw(size), dtype=np.uint64)

        def more(place: int) -> Iterator[int]:
            further = self._words((*stream, *divmod(place, 2**32)), _FURTHER)
            while True:
                yield int(further.random_raw())

        return add_on_grid(np.asarray(value, dtype=np.float64), scale, law, draw, more)

    def _words(self, stream: tuple[int, ...], *purpose: int) -> np.random.Philox:
        """The generator of a stream's words, at its beginning; further words in front name it."""
        _require_words("stream", stream)
        digest = list(self.digest)
        # Lengths in front keep (seed, digest) pairs apart whose concatenations are equal. As an
        # array, because numbers of a list are converted one by one.
        words = np.array(
            [*purpose, len(self.entropy), *self.entropy, len(digest), *digest], dtype=np.uint32
        )
        sequence = np.random.SeedSequence(words, spawn_key=tuple(int(word) for word in stream))
        return np.random.Philox(sequence)


def _require_words(name: str, words: tuple[int, ...]) -> None:
    if not all(0 <= word < 2**32 for word in words):
        raise ValueError(f"Got {name}={words!r}, expected a tuple of ints in [0, 2**32).")
