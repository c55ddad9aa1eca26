"""Columns mapped from public bounds to [-1, 1]."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.base import OneToOneFeatureMixin, TransformerMixin
from sklearn.utils import assert_all_finite
from sklearn.utils.validation import validate_data

from .._sklearn import Interval, LinkedEstimator, _fit_context, converting, parameter

Floats = NDArray[np.float64]
FINITE = Interval(Real, None, None, closed="neither")


class _PublicTransformer(OneToOneFeatureMixin, TransformerMixin, LinkedEstimator):
    """A transformer that learns nothing and can be used without `fit`."""

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: ArrayLike, y: object = None) -> Self:
        """Validate the parameters and the input; learn nothing.

        Parameters
        ----------
        X : {array-like, sparse matrix, DataFrame} of shape (n_samples, n_features)
            Rows that `transform` takes.
        y : Ignored
            Present for API consistency.

        Returns
        -------
        self : object
        """
        self._rows(X, reset=True)
        return self

    def _rows(self, X: ArrayLike, *, reset: bool = False) -> Any:
        """Rows in float64: a copy, whose stored values are its entries, unless `reset`."""
        # Without `fit` the parameters have not been validated yet.
        self._validate_params()
        with converting():
            rows: Any = validate_data(
                self, X, accept_sparse="csr", dtype=np.float64, copy=not reset, reset=reset
            )
        if not (reset or isinstance(rows, np.ndarray)):
            # Repeated entries stand for their sum, so a bound on them would not bound the row.
            rows.sum_duplicates()
            assert_all_finite(rows.data, input_name="X")
        return rows

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        return tags


def middle_and_half(low: Floats, high: Floats) -> tuple[Floats, Floats]:
    """The middle of bounds, and half their distance."""
    # Halved before they meet, so bounds of 1e308 are fine.
    return low / 2 + high / 2, high / 2 - low / 2


def into_unit_box(rows: Floats, low: Floats, high: Floats) -> Floats:
    """Clip entries to bounds, and map them to [-1, 1], in place."""
    middle, half = middle_and_half(low, high)
    # Clipping first keeps the subtraction finite, clipping last catches rounding.
    np.clip(rows, low, high, out=rows)
    rows -= middle
    rows /= half
    return np.clip(rows, -1.0, 1.0, out=rows)


@dataclass(kw_only=True, eq=False, repr=False)
class BoundedScaler(_PublicTransformer):
    r"""Map each column from public bounds to [-1, 1], and clip values outside.

    With the bounds :math:`l_j < u_j` of column :math:`j`, an entry becomes

    .. math:: \frac{\min(\max(x_{ij}, l_j), u_j) - m_j}{h_j},
              \qquad m_j = \frac{l_j + u_j}{2}, \quad h_j = \frac{u_j - l_j}{2}.

    ``MinMaxScaler(feature_range=(-1, 1), clip=True)`` does the same with bounds learned from data.

    Parameters
    ----------
    lower : float or array-like of shape (n_features,), default=-1.0
        Public lower bounds, finite: one for all columns, or one for each.
    upper : float or array-like of shape (n_features,), default=1.0
        Public upper bounds, finite and above ``lower``.

    Attributes
    ----------
    n_features_in_ : int
        Number of columns seen during ``fit``.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of columns seen during ``fit``, if all of them are strings.

    Notes
    -----
    **Privacy.** The transformer spends no budget if the bounds are public (an age lies in [0,
    120]): it maps each row by itself and learns nothing. Bounds read off the data (its minimum and
    maximum) are not public, and no report can detect them.

    The result is float64. Sparse input needs ``lower == -upper``, so that 0 stays 0; it stays
    sparse.

    Examples
    --------
    >>> from skdpadmm.preprocessing import BoundedScaler
    >>> scaler = BoundedScaler(lower=[0, -10], upper=[120, 10])
    >>> scaler.fit_transform([[60, 5], [150, -10]])
    array([[ 0. ,  0.5],
           [ 1. , -1. ]])
    """

    lower: ArrayLike = parameter(-1.0, FINITE, "array-like")
    upper: ArrayLike = parameter(1.0, FINITE, "array-like")

    def transform(self, X: ArrayLike) -> Any:
        """Clip to the bounds and map them to [-1, 1].

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)

        Returns
        -------
        X_out : {ndarray, sparse matrix} of shape (n_samples, n_features)
            Entries in [-1, 1], float64; CSR where ``X`` is sparse.
        """
        rows: Any = self._rows(X)
        low, high = self._bounds(rows.shape[1])
        if not isinstance(rows, np.ndarray):
            high = high[rows.indices]
            rows.data = np.clip(rows.data, -high, high) / high
            return rows
        return into_unit_box(rows, low, high)

    def inverse_transform(self, X: ArrayLike) -> Any:
        """Map [-1, 1] back to the bounds; what was clipped stays clipped.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)

        Returns
        -------
        X_out : {ndarray, sparse matrix} of shape (n_samples, n_features)
            Rows in the original units, float64; CSR where ``X`` is sparse.
        """
        rows: Any = self._rows(X)
        low, high = self._bounds(rows.shape[1])
        if not isinstance(rows, np.ndarray):
            rows.data *= high[rows.indices]
            return rows
        middle, half = middle_and_half(low, high)
        rows *= half
        rows += middle
        return rows

    def _rows(self, X: ArrayLike, *, reset: bool = False) -> Any:
        if sparse.issparse(X) and not self._keeps_zero():
            raise ValueError(
                f"Got sparse X with lower={self.lower!r} and upper={self.upper!r}, expected "
                "lower == -upper for sparse input, because other bounds move zeros. Use symmetric "
                "bounds, or pass a dense array."
            )
        rows = super()._rows(X, reset=reset)
        self._bounds(rows.shape[1])
        return rows

    def _bounds(self, n_features: int) -> list[Floats]:
        """Lower and upper bounds, of shape (n_features,)."""
        sides = []
        for name, bound in (("lower", self.lower), ("upper", self.upper)):
            values = np.asarray(bound, dtype=np.float64)
            if values.shape not in ((), (n_features,)) or not np.all(np.isfinite(values)):
                raise ValueError(
                    f"Got {name}={bound!r} of shape {values.shape}, expected finite floats: one"
                    f" public bound for all columns of X, or shape ({n_features},), one for each."
                    " Values outside are clipped."
                )
            sides.append(np.broadcast_to(values, (n_features,)))
        low, high = sides
        _, half = middle_and_half(low, high)
        if not np.all(half > 0):
            j = int(np.argmin(half > 0))
            raise ValueError(
                f"Got lower={low[j]} and upper={high[j]} for column {j}, expected lower < upper in "
                "every column. Swap reversed bounds, and drop columns that are publicly constant."
            )
        return sides

    def _keeps_zero(self) -> bool:
        """Whether 0 is the middle of the bounds of every column; False for invalid bounds."""
        try:
            return bool(np.all(np.negative(self.lower) == np.asarray(self.upper)))
        except (TypeError, ValueError):  # tags are read before parameters are validated
            return False

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = self._keeps_zero()
        return tags
