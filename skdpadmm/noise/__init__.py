"""Gaussian and Laplace noise for releases, and the streams it is drawn from.

A noise source is stateless: it holds no generator that advances. Every release and each of its
repetitions has a stream of its own, and what is released lies on a public grid of about
2**-20 times the scale.

With `CryptographicNoise` and `SeededNoise` a released number has the law of ``value + scale * z``
rounded to the grid, where z is exactly Gaussian or Laplace: every cell has its probability, however
deep in the tail, and rounding an exact release costs nothing. No delta is added for sampling. This
holds because floating-point arithmetic decides a cell only where no error of it, and no further bit
of the random number, could change the cell (`_grid.in_doubt`), and exact arithmetic with as many
further bits as it takes decides the others (`_grid.Law.cell_of`): about one in a million, and more
where values are above 1e5 scales and sums of floats have few bits below a cell. It rests on random
words that are uniform, and on errors of ``scipy.special.ndtri`` and ``numpy.log`` below
2**-45 and 2**-47 of their values, which are measured (2**-49 and 2**-50) and not proven: against
attacks on floating-point noise (Mironov, CCS 2012) these samplers are not certified.
`OpenDPNoise` is: its samplers work in exact arithmetic throughout.

Laws are proven for what is released. Noise that is drawn on its own and added later, to what is on
the same grid, gives the same law; `docs/user_guide/amplification.rst` says what holds for hidden
iterates, which are on no grid.
"""

from __future__ import annotations

from skdpadmm.noise._grid import GRID_CELL, grid_cell, round_to_grid
from skdpadmm.noise._sources import (
    CryptographicNoise,
    KeyedNoise,
    NoiseSource,
    OpenDPNoise,
    SeededNoise,
    noise_source,
)

__all__ = [
    "GRID_CELL",
    "CryptographicNoise",
    "KeyedNoise",
    "NoiseSource",
    "OpenDPNoise",
    "SeededNoise",
    "grid_cell",
    "noise_source",
    "round_to_grid",
]
