"""Sources of noise, and which one a ``random_state`` asks for."""

from __future__ import annotations

import hashlib
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import count
from numbers import Integral
from typing import Any, ClassVar

import numpy as np

from skdpadmm.noise._grid import LAPLACE, NORMAL, Floats, Law, Words, add_on_grid, round_to_grid

_SAMPLERS = ("floating-point", "opendp")
_N_WORDS = 4
# In front of the words that refine a number: no seed has as many words.
_FURTHER = 2**32 - 1

Stream = tuple[int, ...]


class NoiseSource(ABC):
    """Source of Gaussian and Laplace noise for releases.

    A `stream` names a release and its repetition: another stream gets independent noise, and one
    stream serves one release of one law. Results have the shape of ``value`` and are multiples of
    2**floor(log2(scale)) * 2**-20. Scales that are not in (0, inf) raise a ValueError.
    """

    # Whether the noise can be reproduced, in which case it protects nobody.
    simulation: ClassVar[bool] = False

    def add_gaussian(self, value: Floats, scale: float, stream: Stream) -> Floats:
        """Return ``value`` + N(0, scale^2 I), rounded to the public grid."""
        return self._checked(value, scale, stream, NORMAL)

    def add_laplace(self, value: Floats, scale: float, stream: Stream) -> Floats:
        """Return ``value`` + numbers of density exp(-abs(x) / scale) / (2 scale), on the grid."""
        return self._checked(value, scale, stream, LAPLACE)

    def uniform(self, shape: tuple[int, ...], stream: Stream) -> Floats:
        """Return uniform multiples of 2**-53 in [0, 1), for draws that do not depend on data."""
        words = self._words(math.prod(shape), stream) >> np.uint64(11)
        return (words.astype(np.float64) * 2.0**-53).reshape(shape)

    def _checked(self, value: Floats, scale: float, stream: Stream, law: Law) -> Floats:
        if not 0 < scale < math.inf:
            raise ValueError(f"Got scale={scale!r}, expected a float in (0, inf).")
        return self._add(np.asarray(value, dtype=np.float64), float(scale), stream, law)

    @abstractmethod
    def _add(self, value: Floats, scale: float, stream: Stream, law: Law) -> Floats:
        """Add noise of a law on the grid, to floats and at a scale in (0, inf)."""

    def _words(self, size: int, stream: Stream) -> Words:
        return _system_words(size)


@dataclass(frozen=True)
class CryptographicNoise(NoiseSource):
    """Noise from ``os.urandom``, the default of a private fit, fresh at every call."""

    def _add(self, value: Floats, scale: float, stream: Stream, law: Law) -> Floats:
        return add_on_grid(value, scale, law, _system_words, _more)


def _system_words(size: int) -> Words:
    return np.frombuffer(os.urandom(8 * size), dtype=np.uint64)


def _more(place: int) -> Iterator[int]:
    while True:
        yield int.from_bytes(os.urandom(8))


@dataclass(frozen=True)
class SeededNoise(NoiseSource):
    """Noise that is a function of a seed, a digest of the plan and the stream.

    It makes a fit a SIMULATION: equal streams on different data cancel. Neither the order of calls
    nor a pickle matters. Words come from Philox, whose output numpy keeps stable across versions,
    for Gaussian and Laplace noise of a stream the same.

    Parameters
    ----------
    entropy : tuple of int
        Words of the seed, each in [0, 2**32); words of a stream have that range too.
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

    simulation: ClassVar[bool] = True

    entropy: tuple[int, ...]
    digest: bytes

    def __post_init__(self) -> None:
        # SeedSequence would split larger words, which could make two seeds equal.
        object.__setattr__(self, "entropy", tuple(int(word) for word in self.entropy))
        _require_words("entropy", self.entropy)

    def _add(self, value: Floats, scale: float, stream: Stream, law: Law) -> Floats:
        words = self._generator(stream)

        def more(place: int) -> Iterator[int]:
            further = self._generator((*stream, *divmod(place, 2**32)), _FURTHER)
            while True:
                yield int(further.random_raw())

        return add_on_grid(value, scale, law, lambda size: _raw(words, size), more)

    def _words(self, size: int, stream: Stream) -> Words:
        return _raw(self._generator(stream), size)

    def _generator(self, stream: Stream, *purpose: int) -> np.random.Philox:
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


def _raw(words: np.random.Philox, size: int) -> Words:
    return np.asarray(words.random_raw(size), dtype=np.uint64)


def _require_words(name: str, words: tuple[int, ...]) -> None:
    if not all(0 <= word < 2**32 for word in words):
        raise ValueError(f"Got {name}={words!r}, expected a tuple of ints in [0, 2**32).")


@dataclass(frozen=True)
class KeyedNoise(NoiseSource):
    """Noise that everyone draws who has a secret key: a function of the key and the stream.

    Two agents add and subtract it. Words come from SHAKE-256, so whoever lacks the key cannot tell
    them from uniform ones, as far as is known.

    Parameters
    ----------
    key : bytes

    Examples
    --------
    >>> import numpy as np
    >>> from skdpadmm.noise import KeyedNoise
    >>> draw = [KeyedNoise(b"secret").add_gaussian(np.zeros(3), 1.0, (0, 1)) for _ in "ab"]
    >>> bool(np.all(draw[0] == draw[1]))
    True
    """

    key: bytes = field(repr=False)

    def _add(self, value: Floats, scale: float, stream: Stream, law: Law) -> Floats:
        pieces = count()

        def draw(size: int) -> Words:
            return self._words(size, (*stream, 0, next(pieces)))

        def more(place: int) -> Iterator[int]:
            return (int(self._words(1, (*stream, 1, place, k))[0]) for k in count())

        return add_on_grid(value, scale, law, draw, more)

    def _words(self, size: int, stream: Stream) -> Words:
        name = b"".join(word.to_bytes(8) for word in (len(stream), *stream))
        drawn = hashlib.shake_256(self.key + name).digest(8 * size)
        return np.frombuffer(drawn, dtype="<u8").astype(np.uint64)


@dataclass(frozen=True)
class OpenDPNoise(NoiseSource):
    """Noise by OpenDP's exact samplers, the extra ``[secure]``, fresh at every call.

    ``make_gaussian`` treats floats as the rational numbers they are and adds a discrete Gaussian
    on the grid 2**-1074 (its ``k``, here the default), the spacing of the smallest floats. Every
    float lies on that grid: nothing is rounded before the noise, so the sensitivity gains no
    rounding term and OpenDP's own map gives exactly rho = (Delta / scale)^2 / 2. Beside any scale
    above 1e-300 the grid's relative width is below 2**-60, where a discrete and a continuous
    Gaussian have the same privacy curve to within floating-point precision. ``make_laplace`` does
    the same with a discrete Laplace law: epsilon = Delta_1 / scale, and a delta of zero. Rounding
    to a float and to the public grid are post-processing.

    It costs about 50 microseconds for each number: 5 ms for a release of 100. Without OpenDP an
    ImportError names the extra.
    """

    def _add(self, value: Floats, scale: float, stream: Stream, law: Law) -> Floats:
        noisy = _measurement(scale, is_laplace=law is LAPLACE)(value.ravel().tolist())
        rounded = round_to_grid(np.array(noisy, dtype=np.float64).reshape(value.shape), scale)
        # Adding zero makes zeros positive: with the sign of one, a sum with what was rounded to
        # zero would show where that was rounded from.
        return rounded + 0.0


@lru_cache(maxsize=64)
def _measurement(scale: float, *, is_laplace: bool = False) -> Any:
    try:
        import opendp.prelude as dp
    except ImportError as error:
        raise ImportError(
            "sampler='opendp' needs OpenDP: pip install 'skdpadmm[secure]'"
        ) from error
    dp.enable_features("contrib")
    domain = dp.vector_domain(dp.atom_domain(T=float, nan=False))
    if is_laplace:
        return dp.m.make_laplace(domain, dp.l1_distance(T=float), scale=scale)
    return dp.m.make_gaussian(domain, dp.l2_distance(T=float), scale=scale)


def noise_source(random_state: Any, digest: bytes, sampler: str = "floating-point") -> NoiseSource:
    """Return the source of noise for a ``random_state``.

    Parameters
    ----------
    random_state : None, int, numpy.random.RandomState or numpy.random.Generator
        None draws from the operating system. Anything else makes a simulation; words are drawn
        from a passed generator, which advances.
    digest : bytes
        A digest of the plan: under the same seed, another plan gets unrelated noise.
    sampler : {"floating-point", "opendp"}, default="floating-point"
        "opendp" is floating-point safe and cannot be seeded.

    Raises
    ------
    ValueError
        For an unknown sampler, a seeded "opendp", or an invalid ``random_state``.

    Examples
    --------
    >>> from skdpadmm.noise import noise_source
    >>> noise_source(None, b"plan").simulation, noise_source(0, b"plan").simulation
    (False, True)
    """
    if sampler not in _SAMPLERS:
        raise ValueError(f"Got sampler={sampler!r}, expected one of {list(_SAMPLERS)}.")
    if random_state is None:
        return OpenDPNoise() if sampler == "opendp" else CryptographicNoise()
    if sampler == "opendp":
        raise ValueError(
            f"Got random_state={random_state!r} with sampler='opendp', expected random_state=None:"
            " it draws from the operating system. Pass sampler='floating-point' for a simulation."
        )
    return SeededNoise(_seed_words(random_state), digest)


def _seed_words(random_state: Any) -> tuple[int, ...]:
    """32-bit words that identify a seed, or that are drawn from a generator."""
    if isinstance(random_state, Integral) and 0 <= int(random_state) < 2**32:
        return (int(random_state),)
    if isinstance(random_state, np.random.Generator):
        return tuple(random_state.integers(2**32, size=_N_WORDS, dtype=np.uint32).tolist())
    if isinstance(random_state, np.random.RandomState):
        return tuple(random_state.randint(2**32, size=_N_WORDS, dtype=np.uint32).tolist())
    raise ValueError(
        f"{random_state!r} cannot be used to seed the noise, expected None, an int in "
        "[0, 2**32 - 1], a numpy.random.RandomState or a numpy.random.Generator."
    )
