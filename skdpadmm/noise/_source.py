"""What a noise source is, and which one a ``random_state`` asks for."""

from __future__ import annotations

from numbers import Integral
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from skdpadmm.noise._cryptographic import CryptographicNoise
from skdpadmm.noise._opendp import OpenDPNoise
from skdpadmm.noise._seeded import SeededNoise

_SAMPLERS = ("floating-point", "opendp")
_N_WORDS = 4


class NoiseSource(Protocol):
    """Something that adds Gaussian or Laplace noise to a release.

    Attributes
    ----------
    simulation : bool
        Whether the noise can be reproduced, in which case it protects nobody.
    """

    @property
    def simulation(self) -> bool:
        """Whether the noise can be reproduced."""
        ...

    def add_gaussian(
        self, value: NDArray[np.float64], scale: float, stream: tuple[int, ...]
    ) -> NDArray[np.float64]:
        """Return ``value`` + N(0, scale^2 I), rounded to the public grid.

        Parameters
        ----------
        value : ndarray of float64
            Of any shape.
        scale : float
            Standard deviation, in (0, inf).
        stream : tuple of int
            Names the release and its repetition; another stream gets independent noise.

        Returns
        -------
        ndarray of float64
            Of the shape of ``value``, on multiples of 2**floor(log2(scale)) * 2**-20.

        Raises
        ------
        ValueError
            If ``scale`` is not finite and positive.
        """
        ...

    def add_laplace(
        self, value: NDArray[np.float64], scale: float, stream: tuple[int, ...]
    ) -> NDArray[np.float64]:
        """Return ``value`` + independent Laplace(0, scale) numbers, rounded to the public grid.

        Parameters
        ----------
        value : ndarray of float64
            Of any shape.
        scale : float
            b of the density exp(-abs(x) / b) / (2 b), in (0, inf). The standard deviation is
            ``sqrt(2)`` times it; the grid goes by the scale.
        stream : tuple of int
            Names the release and its repetition. A stream serves one release, of one law.

        Returns
        -------
        ndarray of float64
            Of the shape of ``value``, on multiples of 2**floor(log2(scale)) * 2**-20.

        Raises
        ------
        ValueError
            If ``scale`` is not finite and positive.
        """
        ...

    def uniform(self, shape: tuple[int, ...], stream: tuple[int, ...]) -> NDArray[np.float64]:
        """Return independent uniform numbers in [0, 1), for draws that do not depend on data."""
        ...


def noise_source(random_state: Any, digest: bytes, sampler: str = "floating-point") -> NoiseSource:
    """Return the source of noise which a ``random_state`` asks for.

    Parameters
    ----------
    random_state : None, int, numpy.random.RandomState or numpy.random.Generator
        None draws from the operating system. Anything else makes a simulation; words are drawn
        from a passed generator, which advances.
    digest : bytes
        A digest of the plan: under the same seed, another plan gets unrelated noise.
    sampler : {"floating-point", "opendp"}, default="floating-point"
        "opendp" is floating-point safe and cannot be seeded.

    Returns
    -------
    NoiseSource
        Stateless.

    Raises
    ------
    ValueError
        For an unknown sampler, a seeded "opendp", or what is no ``random_state``.

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
    entropy = _seed_words(random_state)
    if sampler == "opendp":
        raise ValueError(
            f"Got random_state={random_state!r} with sampler='opendp', expected "
            "random_state=None: this sampler draws from the operating system; pass "
            "sampler='floating-point' for a simulation."
        )
    return SeededNoise(entropy, digest)


def _seed_words(random_state: Any) -> tuple[int, ...]:
    """Return 32-bit words that identify a seed, or that are drawn from a generator."""
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
