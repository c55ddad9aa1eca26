"""A public change of coordinates, in which rows are closer to isotropic."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False, kw_only=True)
class Basis:
    """Coordinates in which a row ``a`` is seen as ``T'a``, and parameters ``v`` stand for ``T v``.

    Attributes
    ----------
    vectors : ndarray of shape (n_parameters, n_parameters)
        Orthonormal columns.
    eigenvalues : ndarray of shape (n_parameters,)
        Positive; the second moment that the basis takes rows to have along `vectors`.
    loading : ndarray of shape (n_parameters,)
        Public estimate of the mean squares of the entries of ``T'a``.
    spread : float
        Public estimate of the share of the second moment outside of its largest direction, in
        (0, 1]: small where rows have one common direction, such as a mean far from zero.
    clip_unit : float
        What clip bounds are relative to.
    """

    vectors: NDArray[np.float64]
    eigenvalues: NDArray[np.float64]
    loading: NDArray[np.float64]
    spread: float
    clip_unit: float

    @property
    def effective_dimension(self) -> float:
        """Public estimate of the mean of ``||T'a||^2``."""
        return float(self.loading.sum())

    @cached_property
    def transform(self) -> NDArray[np.float64]:
        """The matrix T, of shape (n_parameters, n_parameters)."""
        return np.asarray(self.vectors / np.sqrt(self.eigenvalues))

    @cached_property
    def inverse(self) -> NDArray[np.float64]:
        """The inverse of T."""
        return np.asarray((self.vectors * np.sqrt(self.eigenvalues)).T)

    @cached_property
    def metric(self) -> NDArray[np.float64]:
        """``inv(T T')``: the metric of parameters that is Euclidean in this basis."""
        metric = (self.vectors * self.eigenvalues) @ self.vectors.T
        return np.asarray((metric + metric.T) / 2)
