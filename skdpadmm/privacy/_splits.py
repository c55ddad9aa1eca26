"""How a budget is spread over the releases of an iteration that contracts."""

from __future__ import annotations

import math
from numbers import Integral

import numpy as np
from numpy.typing import ArrayLike, NDArray

from skdpadmm.privacy._calibration import calibrate_noise
from skdpadmm.privacy._laplace import LaplaceDP
from skdpadmm.privacy._validation import require

_KINDS = ("equal", "optimal")
_POWERS = {"laplace": 1.0 / 3.0, "gaussian": 0.5}
# A share that is smaller buys nothing: noise of a trillion scales is as good as none spent.
_SMALLEST_SHARE = 1e-12


def split_budget(
    kind: str, n_steps: int, contraction: float = 1.0, noise: str = "laplace"
) -> NDArray[np.float64]:
    r"""Return the share of a budget that each step of a contracting iteration gets.

    Parameters
    ----------
    kind : {"equal", "optimal"}
    n_steps : int
        T, at least 1.
    contraction : float, default=1.0
        C in (0, 1], public: the factor of the error from one step to the next. Equal steps do not
        depend on it.
    noise : {"laplace", "gaussian"}, default="laplace"
        What is shared: the sum of epsilons, or the sum of squares of mu.

    Returns
    -------
    ndarray of shape (n_steps,)
        Positive, with the sum 1, for :func:`laplace_steps` or :func:`gaussian_steps`.

    Raises
    ------
    ValueError
        If a parameter is out of range.

    Notes
    -----
    The squared error that step k (0, ..., T - 1) adds is contracted by all later steps: what is
    left of it is :math:`C^{T-1-k} \epsilon_k^{-2}`, up to a constant, and
    :math:`C^{T-1-k} \mu_k^{-2}` for Gaussian noise. The sum of it is least, by a Lagrange
    multiplier, with

    .. math::

        \epsilon_k \propto C^{(T-1-k)/3} \text{ where } \textstyle\sum_k \epsilon_k
        \text{ is given}, \qquad
        \mu_k^2 \propto C^{(T-1-k)/2} \text{ where } \textstyle\sum_k \mu_k^2 \text{ is given:}

    noise decreases with time. For Laplace noise this is optimal at delta = 0; for a positive delta
    it is a split like any other.

    One of n agents that wake up at random, without a clock that they share, counts its own T
    wake-ups. Where a step of any agent contracts by c, what is to be expected from one of them to
    the next is :math:`C = c / (n - (n - 1) c)`, as the number of steps is geometric. With
    :math:`c = 1 - r / n` that is about :math:`1 / (1 + r)`, and for small r the epsilon of the
    k-th wake-up grows like :math:`e^{k r / 3}`.

    The reverse, which was printed, is :func:`literature.coordinate_descent_printed_split
    <skdpadmm.privacy.literature.coordinate_descent_printed_split>`.

    Examples
    --------
    >>> from skdpadmm.privacy import split_budget
    >>> split_budget("equal", 4).tolist()
    [0.25, 0.25, 0.25, 0.25]
    >>> split_budget("optimal", 3, contraction=0.125).round(3).tolist()
    [0.143, 0.286, 0.571]
    """
    if kind not in _KINDS:
        raise ValueError(f"Got kind={kind!r}, expected one of {list(_KINDS)}.")
    if noise not in _POWERS:
        raise ValueError(f"Got noise={noise!r}, expected one of {list(_POWERS)}.")
    require(
        isinstance(n_steps, Integral) and n_steps >= 1, "n_steps", n_steps, "an int of at least 1"
    )
    require(0 < contraction <= 1, "contraction", contraction, "a float in (0, 1]")
    if kind == "equal":
        return np.full(n_steps, 1.0 / n_steps)
    later = np.arange(n_steps - 1, -1, -1, dtype=np.float64)
    weights = np.exp(_POWERS[noise] * later * math.log(contraction))
    weights = np.maximum(weights, _SMALLEST_SHARE)
    return np.asarray(weights / weights.sum(), dtype=np.float64)


def laplace_steps(epsilon: float, delta: float, weights: ArrayLike) -> NDArray[np.float64]:
    """Return the epsilon of each Laplace release, in proportion to weights, that meet a budget.

    Parameters
    ----------
    epsilon : float
        In (0, inf).
    delta : float
        In [0, 1). At 0 the epsilons add up to ``epsilon``; else :class:`LaplaceDP` decides, which
        is tighter where dp-accounting is installed.
    weights : array-like of shape (n_steps,)
        Positive, see :func:`split_budget`.

    Returns
    -------
    ndarray of shape (n_steps,)
        A release of L1 sensitivity Delta then takes noise of the scale ``Delta / epsilon_t``.

    Raises
    ------
    ValueError
        If a parameter is out of range.

    Examples
    --------
    >>> from skdpadmm.privacy import laplace_steps, split_budget
    >>> laplace_steps(1.0, 0.0, split_budget("equal", 10)).round(3).tolist()[:2]
    [0.1, 0.1]
    """
    require(0 < epsilon < math.inf, "epsilon", epsilon, "a float in (0, inf)")
    require(0 <= delta < 1, "delta", delta, "a float in [0, 1)")
    shares = _shares(weights)
    pure = epsilon * shares
    while LaplaceDP(tuple(pure)).pure_epsilon > epsilon:  # rounding of the shares
        pure *= 1.0 - 2.0**-52
    if delta == 0.0:
        return pure
    scale = calibrate_noise(lambda scale: LaplaceDP(tuple(shares / scale)), epsilon, delta)
    # Pure steps meet the budget at every delta; a search may end just below them.
    return np.asarray(shares / scale) if scale * epsilon < 1.0 else pure


def gaussian_steps(mu: float, weights: ArrayLike) -> NDArray[np.float64]:
    """Return the mu of each Gaussian release, whose squares share a total mu by weights.

    Parameters
    ----------
    mu : float
        In (0, inf), see :func:`gaussian_mu`.
    weights : array-like of shape (n_steps,)
        Positive, see :func:`split_budget` with ``noise="gaussian"``.

    Returns
    -------
    ndarray of shape (n_steps,)
        A release of L2 sensitivity Delta then takes the standard deviation ``Delta / mu_t``.

    Raises
    ------
    ValueError
        If a parameter is out of range.

    Examples
    --------
    >>> from skdpadmm.privacy import gaussian_steps
    >>> gaussian_steps(5.0, [9.0, 16.0]).round(12).tolist()
    [3.0, 4.0]
    """
    require(0 < mu < math.inf, "mu", mu, "a float in (0, inf)")
    steps = mu * np.sqrt(_shares(weights))
    while math.hypot(*steps) > mu:  # rounding of the shares
        steps *= 1.0 - 2.0**-52
    return np.asarray(steps, dtype=np.float64)


def _shares(weights: ArrayLike) -> NDArray[np.float64]:
    values = np.asarray(weights, dtype=np.float64)
    if values.ndim != 1 or values.size == 0 or not np.all((values > 0) & (values < np.inf)):
        raise ValueError(
            f"Got weights={weights!r}, expected an array of shape (n_steps,) of positive floats."
        )
    values = values / values.max()
    return np.asarray(values / values.sum(), dtype=np.float64)
