"""Releases that come before an algorithm and give it better public coordinates."""

from __future__ import annotations

import math
from dataclasses import dataclass

from skdpadmm.protocol._release import Release

# Of the second moment outside of its largest direction; less is not told from noise.
SMALLEST_SPREAD = 0.04


@dataclass(frozen=True, kw_only=True)
class Conditioning:
    """A noisy second-moment matrix of the rows, and how it becomes public coordinates.

    Attributes
    ----------
    row_norm : float
        Rows are scaled down to this norm before their second moment is taken.
    floor : float
        Eigenvalues below it count as this much, in public coordinates.
    spread_power : float
        The floor is multiplied by this power of the spread, see `Basis.spread`.
    release : Release
        The upper triangle in units of ``row_norm**2``, off-diagonal entries times sqrt(2), so that
        the Euclidean norm of the vector is the Frobenius norm of the matrix.
    """

    row_norm: float
    floor: float
    spread_power: float
    release: Release

    @property
    def condition(self) -> float:
        """Bound of the condition number of the change of coordinates."""
        least = self.floor * SMALLEST_SPREAD**self.spread_power
        return max(1.0, self.row_norm / math.sqrt(least))


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
