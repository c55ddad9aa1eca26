"""Gaussian and Laplace noise for releases, and the streams it is drawn from.

A noise source is stateless: it holds no generator that advances. Every release and each of its
repetitions has a stream of its own, and what is released lies on a public grid of about
2**-20 times the scale.

The floating-point samplers (`CryptographicNoise`, `SeededNoise`) follow the Gaussian law up to the
precision of floats, up to 8.3 standard deviations, and the Laplace law up to 37 scales. They are
not certified against attacks on that precision (Mironov, CCS 2012), and a Laplace law that ends
costs a delta of about 2**-53 for each number. `OpenDPNoise` is certified: its samplers work in
exact arithmetic.
"""

from __future__ import annotations

from skdpadmm.noise._cryptographic import CryptographicNoise
from skdpadmm.noise._grid import GRID_CELL, grid_cell, round_to_grid
from skdpadmm.noise._opendp import OpenDPNoise
from skdpadmm.noise._seeded import SeededNoise
from skdpadmm.noise._source import NoiseSource, noise_source

__all__ = [
    "GRID_CELL",
    "CryptographicNoise",
    "NoiseSource",
    "OpenDPNoise",
    "SeededNoise",
    "grid_cell",
    "noise_source",
    "round_to_grid",
]
