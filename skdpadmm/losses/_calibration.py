"""Probabilities of a model that was fitted with clipped gradients."""

from __future__ import annotations

import numpy as np
from scipy.special import logsumexp

from ._loss import FloatArray

# Share of the unchanged probabilities: where the clip hides which class is likelier, they decide.
_UNCHANGED = 1e-3


def undo_clip(log_probability: FloatArray, bound: float) -> FloatArray:
    r"""What the scores of a clipped fit say about probabilities.

    A fit whose derivatives are clipped ends where *clipped* derivatives balance. At a point with
    softmax probabilities s, a record of class k pulls with :math:`s - e_k`, of size
    :math:`r_k = \|s - e_k\|`, clipped to the bound c. If classes occur there with probabilities q,
    the pulls balance where :math:`\sum_k q_k \min(1, c / r_k) (s - e_k) = 0`, that is, where
    :math:`q_k \propto s_k \max(1, r_k / c)`.

    The order of the classes is kept.

    Parameters
    ----------
    log_probability : ndarray of shape (n, K)
        Logarithms of s. With two classes, which share one score, sizes are those of its derivative.
    bound : float
        Bound c of the derivative of a typical record, in (0, inf]. One for all points keeps the
        probability a function of the scores.

    Returns
    -------
    ndarray of shape (n, K)
        Logarithms of q.

    Examples
    --------
    >>> import numpy as np
    >>> s = np.log([[0.1, 0.9]])
    >>> np.exp(undo_clip(s, 0.3)).round(2)
    array([[0.25, 0.75]])
    >>> np.exp(undo_clip(s, np.inf)).round(2)
    array([[0.1, 0.9]])
    """
    s = np.exp(log_probability)
    squared = 1.0 - 2.0 * s + np.square(s).sum(axis=1, keepdims=True)
    size = 1.0 - s if s.shape[1] == 2 else np.sqrt(np.maximum(squared, 0.0))
    with np.errstate(divide="ignore"):
        stretch = np.log(np.maximum(size / bound, 1.0))
    log_q = log_probability + stretch
    # A likelier class keeps at least the probability of those below it.
    order = np.argsort(log_probability, axis=1, kind="stable")
    rising = np.maximum.accumulate(np.take_along_axis(log_q, order, axis=1), axis=1)
    np.put_along_axis(log_q, order, rising, axis=1)
    log_q -= logsumexp(log_q, axis=1, keepdims=True)
    return np.logaddexp(log_q + np.log1p(-_UNCHANGED), log_probability + np.log(_UNCHANGED))


def moderate(log_probability: FloatArray, score_variance: float, doubt: float = 0.0) -> FloatArray:
    r"""Probabilities of noisy scores, less sure of themselves by what is known of the noise.

    The mean of a logistic function over normal noise of variance v is about the function of the
    score over :math:`\sqrt{1 + \pi v / 8}` (MacKay, "The evidence framework applied to
    classification networks", Neural Computation 4, 1992). Where noise decides on the side of a
    score, nothing is known of the label: that share counts as uniform.

    Parameters
    ----------
    log_probability : ndarray of shape (n, K)
        Logarithms of probabilities.
    score_variance : float
        In [0, inf).
    doubt : float, default=0
        The share that counts as uniform, in [0, 1].

    Returns
    -------
    ndarray of shape (n, K)
        Logarithms of probabilities.

    Examples
    --------
    >>> import numpy as np
    >>> np.exp(moderate(np.log([[0.1, 0.9]]), 8.0)).round(2)
    array([[0.25, 0.75]])
    """
    softer = log_probability / np.sqrt(1.0 + np.pi * score_variance / 8.0)
    softer = softer - logsumexp(softer, axis=1, keepdims=True)
    with np.errstate(divide="ignore"):
        known, unknown = np.log1p(-doubt), np.log(doubt / log_probability.shape[1])
    return np.logaddexp(softer + known, unknown)
