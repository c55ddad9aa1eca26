"""Releases that come before an algorithm and give it better public coordinates."""

from __future__ import annotations

import math
from dataclasses import dataclass

from skdpadmm.protocol._release import Release

# Of the second moment outside of its largest direction; less is not told from noise.
SMALLEST_SPREAD = 0.04
# Keeps coordinates within a condition number that floats can bear.
SMALLEST_EIGENVALUE = 1e-8


@dataclass(frozen=True, kw_only=True)
class Conditioning:
    """A noisy second-moment matrix of the rows, and how it becomes public coordinates.

    Attributes
    ----------
    row_norm : float
        Rows are scaled down to this norm before their second moment is taken.
    floor : float
        In units of the noise edge: the least eigenvalue that is told from noise.
    floor_power, clip_power : float
        The floor, and what clip bounds are relative to, are multiplied by these powers of the
        spread, see `Basis.spread`.
    resolution : float
        In units of the mean eigenvalue outside of the largest direction, where noise is far below
        it: the floor is then the geometric mean of the two.
    release : Release
        The upper triangle in units of ``row_norm**2``, off-diagonal entries times sqrt(2), so that
        the Euclidean norm of the vector is the Frobenius norm of the matrix.
    """

    row_norm: float
    floor: float
    floor_power: float
    clip_power: float
    resolution: float
    release: Release

    def __post_init__(self) -> None:
        # The smallest spread has to give the smallest floor: `condition` rests on it.
        if not (self.floor > 0 and self.floor_power >= 0 and self.resolution >= 0):
            raise ValueError(
                f"Got floor={self.floor}, floor_power={self.floor_power} and"
                f" resolution={self.resolution}, expected a positive one and two that are at least"
                " 0."
            )

    @property
    def edge(self) -> float:
        """Half of the largest eigenvalue that noise alone reaches, in units of `row_norm` squared.

        Off-diagonal entries have standard deviation ``noise_std / sqrt(2)``, and the spectrum of
        such a matrix ends at ``2 sqrt(n_parameters)`` times it (Wigner's semicircle).
        """
        n_entries = self.release.shape[0]
        n_parameters = (math.isqrt(1 + 8 * n_entries) - 1) // 2
        return self.release.noise_std * math.sqrt(n_parameters / 2)

    def floor_at(self, spread: float, trace: float) -> float:
        """The least eigenvalue of the basis, in units of `row_norm` squared.

        Directions without variance need no resolution: where noise is far below the mean eigenvalue
        the floor rises to the geometric mean of the two.
        """
        noise = self.floor * self.edge * spread**self.floor_power
        n_parameters = 2 * (self.edge / self.release.noise_std) ** 2
        mean = self.resolution * spread * trace / n_parameters
        return min(max(noise, math.sqrt(noise * mean), SMALLEST_EIGENVALUE), 1.0)

    @property
    def condition(self) -> float:
        """Bound of the condition number of the change of coordinates."""
        return 1.0 / math.sqrt(self.floor_at(SMALLEST_SPREAD, 0.0))


@dataclass(frozen=True, kw_only=True)
class Scaling:
    """A noisy histogram of the norms of rows whose units nobody declared.

    Attributes
    ----------
    target : float
        What the median norm of the undeclared features becomes.
    release : Release
        Number of rows in each bin of norms.
    """

    target: float
    release: Release
