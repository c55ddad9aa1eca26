"""The contract of a loss, the clip of its derivative, and probabilities of a clipped fit."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq
from scipy.special import logsumexp, softmax

# What every method takes and returns.
Floats = npt.NDArray[np.float64]

# Targets: floats, or the indices of classes.
Target = npt.NDArray[np.float64] | npt.NDArray[np.int64]

# A nearby solution to begin with, if there is one.
Start = Floats | None

# Of what clips made of scores that stopped early.
LEAST_SCALE = 0.5


class Loss(ABC):
    r"""A convex function of the linear scores of one record.

    Every method is vectorised over records, returns one result per record (no sum, no
    ``1 / n``), and treats rows independently: a row of the result depends on the same row of
    the arguments and on nothing else, bit for bit, as privacy requires. Losses are immutable
    and compare by value.

    Notes
    -----
    ``scores`` has shape (n,), or (n, K) where ``n_outputs`` is K > 1. ``target`` has shape (n,)
    and holds floats for regression, -1.0 or +1.0 for binary classification and the index of the
    class, 0 to K - 1, for the multinomial loss. Arrays are float64, targets and sizes are those
    stated; nothing is validated here because these methods run once per block of rows.

    Finite arguments give finite results without warnings while ``scores - target`` is itself
    finite; the one exception is the value of the squared loss, which leaves the range of
    float64, as inf, for residuals beyond 1e154.

    ``is_of_residual`` says whether the loss is a function of ``scores - target``. Only then does a
    regressor scale the target to [-1, 1] (see `in_units`), and the predictions back. Any other
    loss gets numerical targets as they are, clipped to their bounds, and may predict by another
    `inverse_link` than the identity.

    `has_log_link` says that scores are logarithms of rates: a regressor then divides targets by a
    usual rate, of which scores leave out the logarithm (see `in_units`). `has_debiased_step` says
    that curvatures and gradients of records give intervals of coefficients; with a log link, the
    curvature at ``inverse_link(scores)`` in place of the target has to be the expected one.
    """

    is_of_residual: ClassVar[bool] = False
    has_log_link: ClassVar[bool] = False
    has_debiased_step: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        """Let no class inherit a `slope`, a scale of scores or bounds of another derivative."""
        super().__init_subclass__()
        for bound in ("smoothness", "lipschitz"):
            is_other = {"derivative", "curvature"} & set(vars(cls)) and bound not in vars(cls)
            if is_other and not getattr(getattr(cls, bound), "__isabstractmethod__", False):
                raise TypeError(
                    f"Got a class {cls.__name__} with a derivative or curvature of its own,"
                    f" expected its {bound}, too: guarantees rest on it, and that of its base class"
                    f" may not hold. State {bound} in the class."
                )
        for name in ("slope", "unclipped_scale"):
            if "derivative" in vars(cls) and name not in vars(cls):
                setattr(cls, name, getattr(Loss, name))

    @property
    def n_outputs(self) -> int:
        """Number of scores per record: one for each class, or one."""
        return int(getattr(self, "n_classes", 1))

    @property
    @abstractmethod
    def smoothness(self) -> float:
        """Largest eigenvalue of the second derivative, over all scores and targets."""

    @property
    @abstractmethod
    def lipschitz(self) -> float:
        """Supremum of the Euclidean norm of the derivative, over all scores and targets."""

    @property
    def degree(self) -> float:
        """Power of the unit of scores and targets in which values are, see `in_units`."""
        return 2.0

    @property
    def unweighted(self) -> Loss:
        """The loss without weights of classes."""
        return self

    def unclipped_scale(
        self, covariance: Floats, bounds: Floats, path_variance: float = 0.0
    ) -> float:
        """Factor in (0, 1] that undoes how far clips and noise of the path stretch scores of a fit.

        Scores are normal with mean 0 and that covariance, (n_outputs, n_outputs); `bounds` are
        those of the derivative for each class; derivatives were taken at scores with noise of
        `path_variance`. 1 for a loss that knows nothing of it.
        """
        return 1.0

    @property
    def typical_weight(self) -> float:
        """About the mean weight of records, which is 1 without weights of classes."""
        return 1.0

    def inverse_link(self, scores: Floats) -> Floats:
        """Predictions of a regressor from scores of shape (n,)."""
        return scores

    def in_units(self, unit: float) -> Loss:
        """The loss of scores and numerical targets in units of `unit`.

        It is in units of ``unit ** degree``.
        """
        return self

    @abstractmethod
    def value(self, scores: Floats, target: Target) -> Floats:
        """Loss of each record, of shape (n,)."""

    @abstractmethod
    def derivative(self, scores: Floats, target: Target) -> Floats:
        """Derivative with respect to the scores, in their shape."""

    def slope(self, score: float, target: float) -> float:
        """`derivative` of one record with one score, the same bits in less time."""
        return float(self.derivative(np.array([score]), np.array([target]))[0])

    @abstractmethod
    def curvature(self, scores: Floats, target: Target) -> Floats:
        """Second derivative, of shape (n,), or Hessians of shape (n, K, K) for K scores."""

    @abstractmethod
    def proximal_derivative(
        self, scores: Floats, target: Target, step: Floats, start: Start = None, n_steps: int = 1
    ) -> Floats:
        """Derivative at the proximal point: g that solves ``g = loss'(scores - step * g)``.

        The proximal point ``argmin_w loss(w) + |w - scores|^2 / (2 step)`` is then
        ``scores - step * g``. Solved per row in a fixed number of steps, so that neither the
        result nor the work done for a record depends on other records. Inaccuracy never
        leaves the range of the derivative.

        Parameters
        ----------
        scores, target : ndarray
            As of all methods.
        step : ndarray of shape (n,)
            Step of each record, at least 0; 0 gives `derivative`.
        start : ndarray in the shape of `scores`, default=None
            A nearby solution, for example of the iteration before.
        n_steps : int
            Number of Newton steps; without meaning where the solution has a closed form.

        Returns
        -------
        ndarray in the shape of `scores`
        """


class ClosedForm(Loss):
    """A loss whose proximal derivative is a formula."""

    @abstractmethod
    def _proximal(self, scores: Floats, target: Target, step: Floats) -> Floats:
        """The formula."""

    def proximal_derivative(
        self, scores: Floats, target: Target, step: Floats, start: Start = None, n_steps: int = 1
    ) -> Floats:
        """See :meth:`Loss.proximal_derivative`; in closed form."""
        return self._proximal(scores, target, step)


def sum_of_classes(terms: Floats) -> Floats:
    """Sum over the first axis, in the order of the classes.

    The order of additions in ``terms.sum(axis=0)`` depends on the number of columns, so the last
    bits of a record's result would depend on how many other records there are.
    """
    total: Floats = terms[0].copy()
    for term in terms[1:]:
        total += term
    return total


def clip_derivative(derivative: Floats, limit: Floats | float) -> Floats:
    """Bound the derivative of each record.

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


def clip_vectors(vectors: Floats, bounds: Floats, law: str = "gaussian") -> Floats:
    """Scale each matrix down to a norm; what is not finite becomes zero.

    Parameters
    ----------
    vectors : ndarray of shape (n_agents, n_parameters, n_outputs)
    bounds : ndarray of shape (n_agents,)
    law : {"gaussian", "laplace"}, default="gaussian"
        Of the noise that is added, and with it the norm: Frobenius, or the sum of absolute entries.

    Returns
    -------
    ndarray of the shape of `vectors`
    """
    peak = np.abs(vectors).max(axis=(1, 2))
    usable = np.isfinite(peak)
    peak = np.where(usable & (peak > 0), peak, 1.0)
    # Powers and sums of vectors that are scaled to a peak of one neither overflow nor vanish.
    scaled = np.where(usable[:, None, None], vectors, 0.0) / peak[:, None, None]
    if law == "gaussian":
        norms = np.sqrt(np.einsum("ajk,ajk->a", scaled, scaled)) * peak
    else:
        norms, bounds = np.abs(scaled).sum(axis=(1, 2)), bounds / peak
    factor = np.where(norms > bounds, bounds / np.where(norms > 0, norms, 1.0), 1.0)
    return np.asarray(scaled * (peak * factor)[:, None, None])


def scale_of_probabilities(scores: Floats, q: Floats, weights: Floats) -> float:
    """Factor in [1/2, 1] of scores (n, K) that brings their softmax closest to q (n, K).

    Closest in relative entropy. A fit that stopped early was stretched less than one at the
    optimum, so the factor has a lower bound.
    """

    def slope(factor: float) -> float:
        return float(weights @ ((softmax(factor * scores, axis=1) - q) * scores).sum(axis=1))

    if slope(1.0) <= 0:
        return 1.0
    return LEAST_SCALE if slope(LEAST_SCALE) >= 0 else float(brentq(slope, LEAST_SCALE, 1.0))


def balanced(p: Floats, sizes: Floats, bounds: Floats) -> Floats:
    r"""Probabilities q, (n, K), at which clipped derivatives balance at softmax probabilities p.

    A record of class k pulls with a derivative of size :math:`r_k`, clipped to :math:`c_k`. Pulls
    balance where :math:`\sum_k q_k \min(1, c_k / r_k) (p - e_k) = 0`, that is, where
    :math:`q_k \propto p_k \max(1, r_k / c_k)`.
    """
    q = p * np.maximum(1.0, sizes / bounds)
    return np.asarray(q / q.sum(axis=1, keepdims=True))


def moderation(variance: float) -> float:
    r"""Factor :math:`1 / \sqrt{1 + \pi v / 8}` of log-odds whose noise has variance v.

    The mean of a logistic function over normal noise is about the function of the score times it
    (MacKay, "The evidence framework applied to classification networks", Neural Computation 4,
    1992). So a fit whose derivatives are taken at noisy scores ends at scores that are as much
    larger.
    """
    return float(1.0 / np.sqrt(1.0 + np.pi * variance / 8.0))


def moderate(log_probability: Floats, score_variance: float, doubt: float = 0.0) -> Floats:
    r"""Log probabilities of noisy scores, moderated by the variance of the noise.

    They are those of scores times `moderation`. Where noise determines the sign of a score, the
    label is uniform: `doubt` in [0, 1] is the probability of that.

    Examples
    --------
    >>> import numpy as np
    >>> np.exp(moderate(np.log([[0.1, 0.9]]), 8.0)).round(2)
    array([[0.25, 0.75]])
    """
    softer = log_probability * moderation(score_variance)
    softer = softer - logsumexp(softer, axis=1, keepdims=True)
    with np.errstate(divide="ignore"):
        known, unknown = np.log1p(-doubt), np.log(doubt / log_probability.shape[1])
    return np.logaddexp(softer + known, unknown)
