"""Columns mapped from public bounds to [-1, 1]."""

from __future__ import annotations

from numbers import Real
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import validate_data

from .._sklearn import Interval, _fit_context
from ._sparse import merge_duplicates


class BoundedScaler(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    r"""Map each column from public bounds to [-1, 1], and clip what lies outside.

    With the bounds :math:`l_j < u_j` of column :math:`j`, an entry becomes

    .. math:: \frac{\min(\max(x_{ij}, l_j), u_j) - m_j}{h_j},
              \qquad m_j = \frac{l_j + u_j}{2}, \quad h_j = \frac{u_j - l_j}{2}.

    It does for declared bounds what ``MinMaxScaler(feature_range=(-1, 1), clip=True)`` does for
    bounds learned from data.

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
        Names of columns seen during ``fit``, where all of them are strings.

    See Also
    --------
    RowNormClipper : Bounds the norm of each row instead of each column.

    Notes
    -----
    **Privacy.** Costs nothing, as long as the bounds are public (an age lies in [0, 120]): each row
    is mapped by itself, and nothing is learned from data. ``fit`` only validates. Bounds that were
    read off the data (its minimum and maximum) are not public, and no report can see that.

    The result is float64. Sparse input is accepted, and stays sparse, where ``lower == -upper``, so
    that 0 stays 0.

    Examples
    --------
    >>> from skdpadmm.preprocessing import BoundedScaler
    >>> scaler = BoundedScaler(lower=[0, -10], upper=[120, 10])
    >>> scaler.fit_transform([[60, 5], [150, -10]])
    array([[ 0. ,  0.5],
           [ 1. , -1. ]])
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "lower": [Interval(Real, None, None, closed="neither"), "array-like"],
        "upper": [Interval(Real, None, None, closed="neither"), "array-like"],
    }

    def __init__(self, *, lower: ArrayLike = -1.0, upper: ArrayLike = 1.0) -> None:
        self.lower = lower
        self.upper = upper

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: ArrayLike, y: object = None) -> Self:
        """Validate the bounds and the input; learn nothing.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            The rows.

        y : Ignored
            Present for API consistency.

        Returns
        -------
        self : BoundedScaler
            This transformer.

        Raises
        ------
        ValueError
            If a bound is not finite, of the wrong length, or not below its upper bound; if ``X`` is
            not finite and two-dimensional, or sparse with bounds that move 0.
        """
        self._validate(X, reset=True)
        return self

    def transform(self, X: ArrayLike) -> Any:
        """Clip to the bounds and map them to [-1, 1].

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            The rows.

        Returns
        -------
        X_out : {ndarray, sparse matrix} of shape (n_samples, n_features)
            Entries in [-1, 1], float64; CSR where ``X`` is sparse.

        Raises
        ------
        ValueError
            As ``fit`` does, or if ``X`` has another number of columns than in ``fit``.
        """
        rows, low, high = self._validate(X, reset=False)
        if sparse.issparse(rows):
            csr = merge_duplicates(rows)
            high = high[csr.indices]
            csr.data = np.clip(csr.data, -high, high) / high
            return csr
        middle, half = _middle_and_half(low, high)
        # Clipping first keeps the subtraction finite, clipping last catches rounding.
        np.clip(rows, low, high, out=rows)
        rows -= middle
        rows /= half
        return np.clip(rows, -1.0, 1.0, out=rows)

    def inverse_transform(self, X: ArrayLike) -> Any:
        """Map [-1, 1] back to the bounds; what was clipped stays clipped.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Scaled rows.

        Returns
        -------
        X_out : {ndarray, sparse matrix} of shape (n_samples, n_features)
            Rows in the original units, float64; CSR where ``X`` is sparse.

        Raises
        ------
        ValueError
            As ``transform`` does.
        """
        rows, low, high = self._validate(X, reset=False)
        if sparse.issparse(rows):
            csr = merge_duplicates(rows)
            csr.data *= high[csr.indices]
            return csr
        middle, half = _middle_and_half(low, high)
        rows *= half
        rows += middle
        return rows

    def _validate(
        self, X: ArrayLike, *, reset: bool
    ) -> tuple[Any, NDArray[np.float64], NDArray[np.float64]]:
        # Usable without fit, so the parameters may not have been looked at yet.
        self._validate_params()
        if sparse.issparse(X) and not _keeps_zero(self.lower, self.upper):
            raise ValueError(
                f"Got sparse X with lower={self.lower!r} and upper={self.upper!r}, expected "
                "lower == -upper for sparse input, because other bounds move 0. Use symmetric "
                "bounds, or pass a dense array."
            )
        rows: Any = validate_data(
            self, X, accept_sparse="csr", dtype=np.float64, copy=not reset, reset=reset
        )
        return rows, *_column_bounds(self.lower, self.upper, rows.shape[1])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = _keeps_zero(self.lower, self.upper)
        tags.requires_fit = False
        return tags


def _keeps_zero(lower: ArrayLike, upper: ArrayLike) -> bool:
    """Whether 0 is the middle of every column's bounds; False where the bounds are not valid."""
    try:
        return bool(np.all(np.negative(lower) == np.asarray(upper)))
    except (TypeError, ValueError):  # tags are asked for before parameters are validated
        return False


def _middle_and_half(
    low: NDArray[np.float64], high: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Middle and half width of bounds; halved before they meet, so bounds of 1e308 are fine."""
    return low / 2 + high / 2, high / 2 - low / 2


def _column_bounds(
    lower: ArrayLike, upper: ArrayLike, n_features: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Check the bounds and return lower and upper ones, each of shape (n_features,)."""
    low, high = _bound("lower", lower, n_features), _bound("upper", upper, n_features)
    _, half = _middle_and_half(low, high)
    if not np.all(half > 0):
        j = int(np.argmin(half > 0))
        raise ValueError(
            f"Got lower={low[j]} and upper={high[j]} for column {j}, expected lower < upper in "
            "every column. Swap reversed bounds, and drop columns that are publicly constant."
        )
    return low, high


def _bound(name: str, bound: ArrayLike, n_features: int) -> NDArray[np.float64]:
    """One side of the bounds as finite floats of shape (n_features,)."""
    values = np.asarray(bound, dtype=np.float64)
    if values.shape not in ((), (n_features,)):
        raise ValueError(
            f"Got {name} of shape {values.shape}, expected a float or shape ({n_features},). Pass "
            "one bound for all columns of X, or one for each."
        )
    if not np.all(np.isfinite(values)):
        raise ValueError(
            f"Got {name}={bound!r}, expected finite floats. Choose a public bound for every "
            "column; values outside are clipped."
        )
    return np.broadcast_to(values, (n_features,))
