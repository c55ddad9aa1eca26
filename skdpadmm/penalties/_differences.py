"""Differences of neighbouring coefficients as matrices."""

from __future__ import annotations

import operator

import numpy as np
from scipy import sparse

from ._matrix import SparseMatrix, as_matrix

_ORDERS = {"fused": 1, "trend": 2}


def difference_matrix(n_features: int, order: int) -> SparseMatrix:
    """Finite differences of neighbouring coefficients.

    Parameters
    ----------
    n_features : int
        Number p of coefficients, above `order`.
    order : int
        How often differences are taken, at least 1: 1 tells where coefficients are not constant, 2
        where they are not on a line.

    Returns
    -------
    csr_array of shape (n_features - order, n_features)
        Of full row rank, read-only.

    Raises
    ------
    ValueError
        If `order` is below 1, or not below `n_features`.

    Examples
    --------
    >>> from skdpadmm.penalties import difference_matrix
    >>> difference_matrix(4, order=2).toarray()
    array([[ 1., -2.,  1.,  0.],
           [ 0.,  1., -2.,  1.]])
    """
    n_features, order = operator.index(n_features), operator.index(order)
    if order < 1:
        raise ValueError(f"Got order={order}, expected an int of at least 1.")
    if order >= n_features:
        raise ValueError(
            f"Got order={order} and n_features={n_features}, expected an order below the number of"
            " features. Lower the order."
        )
    # Binomial coefficients with alternating signs; the last one is 1.
    stencil = np.ones(1)
    for _ in range(order):
        stencil = np.convolve(stencil, [-1.0, 1.0])
    shape = (n_features - order, n_features)
    diagonals = [np.full(shape[0], entry) for entry in stencil]
    offsets = list(range(order + 1))
    return as_matrix("matrix", sparse.diags_array(diagonals, offsets=offsets, shape=shape))


def named_penalty_matrix(name: str, n_features: int) -> SparseMatrix:
    """The matrix of a penalty that has a name.

    Parameters
    ----------
    name : {"fused", "trend"}
        Differences of order 1, for coefficients that are constant in pieces; or of order 2, for
        coefficients that are on a line in pieces.
    n_features : int
        Number p of coefficients, at least 1.

    Returns
    -------
    csr_array of shape (max(n_features - order, 0), n_features)
        Without rows where there are too few features for a difference: nothing is penalised then.

    Raises
    ------
    ValueError
        For an unknown name, or without features.

    Examples
    --------
    >>> from skdpadmm.penalties import named_penalty_matrix
    >>> named_penalty_matrix("fused", 3).toarray()
    array([[-1.,  1.,  0.],
           [ 0., -1.,  1.]])
    >>> named_penalty_matrix("fused", 1).shape
    (0, 1)
    """
    if name not in _ORDERS:
        raise ValueError(f"Got name={name!r}, expected one of {list(_ORDERS)}.")
    n_features = operator.index(n_features)
    if n_features < 1:
        raise ValueError(f"Got n_features={n_features}, expected an int of at least 1.")
    if n_features <= _ORDERS[name]:
        return as_matrix("matrix", np.empty((0, n_features)))
    return difference_matrix(n_features, _ORDERS[name])
