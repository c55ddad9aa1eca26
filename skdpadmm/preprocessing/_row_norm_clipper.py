"""Rows scaled down to a public Euclidean norm."""

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


class RowNormClipper(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    r"""Scale each row whose Euclidean norm exceeds a public bound down to that bound.

    A row :math:`x` becomes

    .. math:: x \cdot \min(1, c / \lVert x \rVert_2), \qquad c = \texttt{norm}.

    Rows within the bound stay exactly as they are. The norm of a result is at most
    :math:`c (1 + 10^{-12})` for every finite row: norms are computed from rows that were divided by
    their largest entry first, so nothing overflows at 1e308 or vanishes at 1e-200.

    Parameters
    ----------
    norm : float, default=1.0
        The bound :math:`c`, a public number in (0, inf). Never choose it by looking at the data.

    Attributes
    ----------
    n_features_in_ : int
        Number of columns seen during ``fit``.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of columns seen during ``fit``, where all of them are strings.

    See Also
    --------
    BoundedScaler : Bounds each column instead of each row.

    Notes
    -----
    **Privacy.** Costs nothing: each row is mapped by itself with a public number, and nothing is
    learned from data. ``fit`` only validates.

    The result is float64 for every input dtype, so that rounding cannot break the bound. Sparse
    input stays sparse.

    Examples
    --------
    >>> from skdpadmm.preprocessing import RowNormClipper
    >>> RowNormClipper(norm=1.0).fit_transform([[3.0, 4.0], [0.3, 0.4]])
    array([[0.6, 0.8],
           [0.3, 0.4]])
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "norm": [Interval(Real, 0, None, closed="neither")],
    }

    def __init__(self, *, norm: float = 1.0) -> None:
        self.norm = norm

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: ArrayLike, y: object = None) -> Self:
        """Validate the parameter and the input; learn nothing.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            The rows.

        y : Ignored
            Present for API consistency.

        Returns
        -------
        self : RowNormClipper
            This transformer.

        Raises
        ------
        ValueError
            If ``norm`` is not in (0, inf), or ``X`` is not finite and two-dimensional.
        """
        validate_data(self, X, accept_sparse="csr", dtype=np.float64)
        return self

    def transform(self, X: ArrayLike) -> Any:
        """Scale long rows down.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            The rows.

        Returns
        -------
        X_out : {ndarray, sparse matrix} of shape (n_samples, n_features)
            Rows of norm at most ``norm * (1 + 1e-12)``, float64; CSR where ``X`` is sparse.

        Raises
        ------
        ValueError
            If ``norm`` is not in (0, inf), or ``X`` is not finite or has another number of columns
            than in ``fit``.
        """
        # Usable without fit, so the parameter may not have been looked at yet.
        self._validate_params()
        rows: Any = validate_data(
            self, X, accept_sparse="csr", dtype=np.float64, order="C", copy=True, reset=False
        )
        if sparse.issparse(rows):
            csr = merge_duplicates(rows)
            csr.data = _clip_segments(csr.data, np.diff(csr.indptr), self.norm)
            return csr
        n_rows, n_columns = rows.shape
        clipped = _clip_segments(rows.ravel(), np.full(n_rows, n_columns), self.norm)
        return clipped.reshape(rows.shape)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.requires_fit = False
        return tags


def _clip_segments(
    values: NDArray[np.float64], lengths: NDArray[np.integer[Any]], norm: float
) -> NDArray[np.float64]:
    """Clip the Euclidean norm of consecutive segments (rows, dense or CSR) of one array."""
    lengths = lengths[lengths > 0]
    if lengths.size == 0:
        return values
    starts = np.cumsum(lengths) - lengths
    peak = np.maximum.reduceat(np.abs(values), starts)
    peak[peak == 0] = 1.0
    # The largest entry becomes 1: squares neither overflow, nor vanish where they matter.
    scaled = values / np.repeat(peak, lengths)
    scaled_norm = np.sqrt(np.add.reduceat(scaled * scaled, starts))
    with np.errstate(over="ignore"):  # an infinite norm exceeds the bound, as it should
        too_long = peak * scaled_norm > norm
    factor = norm / np.where(too_long, scaled_norm, 1.0)  # the norm of a zero row is 0
    return np.where(np.repeat(too_long, lengths), scaled * np.repeat(factor, lengths), values)
