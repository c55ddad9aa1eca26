"""The contract of a loss."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
"""What every method takes and returns."""

TargetArray = npt.NDArray[np.float64] | npt.NDArray[np.int64]
"""Targets: floats, or the indices of classes."""


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
    """

    @property
    @abstractmethod
    def n_outputs(self) -> int:
        """Number of scores per record."""

    @property
    @abstractmethod
    def smoothness(self) -> float:
        """Largest eigenvalue of the second derivative, over all scores and targets."""

    @property
    @abstractmethod
    def lipschitz(self) -> float:
        """Supremum of the Euclidean norm of the derivative, over all scores and targets."""

    def in_units(self, unit: float) -> Loss:
        """The loss of scores and targets in units of `unit`, in units of its square.

        Parameters
        ----------
        unit : float
            In (0, inf); of the target, where it is a number.

        Returns
        -------
        Loss
        """
        return self

    @abstractmethod
    def value(self, scores: FloatArray, target: TargetArray) -> FloatArray:
        """Loss of each record.

        Parameters
        ----------
        scores : ndarray of shape (n,) or (n, K)
            Linear scores.
        target : ndarray of shape (n,)
            Targets.

        Returns
        -------
        ndarray of shape (n,)
            Values.
        """

    @abstractmethod
    def derivative(self, scores: FloatArray, target: TargetArray) -> FloatArray:
        """Derivative with respect to the scores.

        Parameters
        ----------
        scores : ndarray of shape (n,) or (n, K)
            Linear scores.
        target : ndarray of shape (n,)
            Targets.

        Returns
        -------
        ndarray of shape (n,) or (n, K)
            Derivatives, in the shape of `scores`.
        """

    @abstractmethod
    def curvature(self, scores: FloatArray, target: TargetArray) -> FloatArray:
        """Second derivative with respect to the scores.

        Parameters
        ----------
        scores : ndarray of shape (n,) or (n, K)
            Linear scores.
        target : ndarray of shape (n,)
            Targets.

        Returns
        -------
        ndarray of shape (n,) or (n, K, K)
            Second derivatives, Hessians for K scores.
        """

    @abstractmethod
    def proximal_derivative(
        self,
        scores: FloatArray,
        target: TargetArray,
        step: FloatArray,
        start: FloatArray | None = None,
        n_steps: int = 1,
    ) -> FloatArray:
        """Derivative at the proximal point: g that solves ``g = loss'(scores - step * g)``.

        The proximal point ``argmin_w loss(w) + |w - scores|^2 / (2 step)`` is then
        ``scores - step * g``. Solved per row in a fixed number of steps, so that neither the
        result nor the work done for a record depends on other records. Inaccuracy never
        leaves the range of the derivative.

        Parameters
        ----------
        scores : ndarray of shape (n,) or (n, K)
            Linear scores.
        target : ndarray of shape (n,)
            Targets.
        step : ndarray of shape (n,)
            Step of each record, at least 0; 0 gives `derivative`.
        start : ndarray in the shape of `scores`, default=None
            A nearby solution, for example of the iteration before.
        n_steps : int
            Number of Newton steps; without meaning where the solution has a closed form.

        Returns
        -------
        ndarray of shape (n,) or (n, K)
            Solutions, in the shape of `scores`.
        """
