"""The clip of a loss derivative."""

from __future__ import annotations

import numpy as np

from ._loss import FloatArray


def clip_derivative(derivative: FloatArray, limit: FloatArray | float) -> FloatArray:
    r"""Bound the derivative of each record.

    Clipping the derivative of a scalar loss is Huberising the loss: the result is the derivative
    of another convex loss, linear where the clip is active, and the clip of a proximal derivative
    is the proximal derivative of that loss. So a clipped problem is still convex, and its proximal
    operator non-expansive. Clipping the norm of a vector (K scores) has neither property.

    Parameters
    ----------
    derivative : ndarray of shape (n,) or (n, K)
        Derivatives. Records whose derivative is not finite get 0.
    limit : float or ndarray of shape (n,)
        Bound of each record's absolute value or Euclidean norm, in [0, inf].

    Returns
    -------
    ndarray of shape (n,) or (n, K)
        Clipped derivatives, with absolute value or norm at most ``limit * (1 + 1e-12)``. Records
        within the limit are unchanged.

    Examples
    --------
    >>> import numpy as np
    >>> clip_derivative(np.array([-3.0, 0.5, np.inf]), 1.0)
    array([-1. ,  0.5,  0. ])
    >>> clip_derivative(np.array([[3.0, 4.0]]), 1.0)
    array([[0.6, 0.8]])
    """
    if derivative.ndim == 1:
        clipped = np.minimum(derivative, limit)
        np.maximum(clipped, np.negative(limit), out=clipped)
        np.copyto(clipped, 0.0, where=~np.isfinite(derivative))
        return clipped
    with np.errstate(all="ignore"):
        finite = np.isfinite(derivative).all(axis=1, keepdims=True)
        vectors = np.where(finite, derivative, 0.0)
        # Scaled by the largest entry, squares neither overflow nor underflow.
        largest = np.abs(vectors).max(axis=1, keepdims=True)
        direction = vectors / np.where(largest > 0, largest, 1.0)
        length = np.sqrt(np.square(direction).sum(axis=1, keepdims=True))
        allowed = np.reshape(limit, (-1, 1)) / np.maximum(length, 1.0)
        return np.where(largest <= allowed, vectors, direction * allowed)
