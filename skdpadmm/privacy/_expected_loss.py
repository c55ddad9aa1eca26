"""The expected absolute privacy loss of random local aggregators: a figure, and no guarantee."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from skdpadmm.privacy._uniform_laplace import Array, edge_mass, loss
from skdpadmm.privacy._validation import require

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(24)
# Above it exp(loss) is taken relative to its largest value.
_LARGE_SHIFT = 30.0
# Below it the limit is taken. It is then off by this in relative terms.
_TINY_SHIFT = 1e-9


def expected_privacy_loss_factor(rate: float, width: float, shift: float) -> float:
    r"""Return the expected absolute privacy loss of one entry, as a share of its largest loss.

    .. math::

        \gamma = \frac{1}{\beta t} E_{x \sim p} \max_{\pm}
        \Big| \log \frac{p(x)}{p(x \mp t)} \Big|
        = \frac{2}{\beta t} \int_{-\infty}^{\omega / 2} p(x) \log \frac{p(x)}{p(x - t)} \, dx

    with p the density of :class:`UniformLaplace`.

    **It is not a guarantee of privacy, and does not turn into one.** No epsilon and delta follow
    from an average of losses, and the realised loss depends on private data. Expected absolute
    losses add up linearly over releases, while what a delta sees, the loss with its sign, has a
    mean of second order. What holds is the curve of :class:`UniformLaplaceDP`, or of
    :class:`LaplaceDP` where widths are not known in advance.

    Parameters
    ----------
    rate : float
        :math:`\beta` in (0, inf), the inverse of the scale of the noise.
    width : float
        :math:`\omega` in [0, inf).
    shift : float
        t in [0, inf): the largest move of the entry. At zero the limit
        :math:`(1 - e^{-u/2}) / (u/2)` with :math:`u = \beta \omega`.

    Returns
    -------
    float
        In (0, 1], by quadrature to about 1e-13.

    Raises
    ------
    ValueError
        If a parameter is out of range.

    See Also
    --------
    skdpadmm.privacy.literature.random_aggregator_printed_average_loss : A refuted bound.

    Examples
    --------
    >>> from skdpadmm.privacy import expected_privacy_loss_factor
    >>> f"{expected_privacy_loss_factor(2.0, 1.0, 0.001):.4f}"
    '0.6327'
    """
    u, s = _scaled(rate, width, shift)
    if s <= _TINY_SHIFT:
        return _limit(u)
    points, weights = _half(u, s)
    inside = float(weights @ (loss(points, u, s) / s)) if points.size else 0.0
    return min(1.0, 2.0 * (edge_mass(u) + inside))


def expected_privacy_loss_factor_bound(rate: float, width: float, shift: float) -> float:
    r"""Return an upper bound of :func:`expected_privacy_loss_factor`, by Jensen's inequality.

    .. math:: \frac{1}{\beta t} \log \Big( 2 \int_{-\infty}^{\omega / 2}
              \frac{p(x)^2}{p(x - t)} \, dx \Big)

    This is what remains of the printed bound with the loss that is the larger one. It holds without
    a condition on the width, and is no guarantee of privacy either.

    Parameters
    ----------
    rate : float
        In (0, inf), the inverse of the scale of the noise.
    width : float
        In [0, inf).
    shift : float
        In [0, inf); at zero both are the same limit.

    Returns
    -------
    float
        In (0, 1].

    Raises
    ------
    ValueError
        If a parameter is out of range.

    Examples
    --------
    >>> from skdpadmm.privacy import expected_privacy_loss_factor_bound
    >>> f"{expected_privacy_loss_factor_bound(5.0, 0.5, 0.1):.4f}"
    '0.7136'
    """
    u, s = _scaled(rate, width, shift)
    if s <= _TINY_SHIFT:
        return _limit(u)
    points, weights = _half(u, s)
    losses = loss(points, u, s)
    if s <= _LARGE_SHIFT:
        moment = edge_mass(u) * math.expm1(s) + float(weights @ np.expm1(losses))
        return min(1.0, math.log1p(2.0 * moment) / s)
    moment = edge_mass(u) + float(weights @ np.exp(losses - s))
    return min(1.0, 1.0 + math.log(2.0 * moment) / s)


def expected_privacy_loss_factor_ceiling(
    rates: ArrayLike, widths: ArrayLike, shifts: ArrayLike
) -> Array:
    r"""Return upper bounds of :func:`expected_privacy_loss_factor`, for many entries at once.

    .. math:: \gamma \le \min\Big\{1, \frac{1 - e^{-u/2}}{u/2} \, \frac{e^s - 1}s\Big\},
              \qquad u = \beta \omega, \quad s = \beta t

    Left of its middle the density p rises along the shift, by a factor of at most :math:`e^s`. So
    the loss there, the integral of :math:`p'/p` along the shift, has at most :math:`e^s` times the
    mean which :math:`p'` itself gives it. Where s is small it is exact; no integral is computed. It
    is no guarantee of privacy either.

    Parameters
    ----------
    rates : array-like
        :math:`\beta` in (0, inf), the inverse of the scale of the noise.
    widths : array-like
        :math:`\omega` in [0, inf].
    shifts : array-like
        t in [0, inf).

    Returns
    -------
    ndarray
        Of the shape that all three broadcast to; in [0, 1], one where there is no interval.

    Raises
    ------
    ValueError
        If a parameter is out of range, or shapes do not match.

    Examples
    --------
    >>> from skdpadmm.privacy import expected_privacy_loss_factor_ceiling
    >>> expected_privacy_loss_factor_ceiling(2.0, [0.0, 1.0, 5.0], 0.001).round(4)
    array([1.    , 0.6328, 0.1989])
    """
    rate, width, shift = (np.asarray(x, dtype=np.float64) for x in (rates, widths, shifts))
    require(bool(np.all((rate > 0) & (rate < math.inf))), "rates", rates, "floats in (0, inf)")
    require(bool(np.all(width >= 0)), "widths", widths, "floats in [0, inf]")
    require(bool(np.all((shift >= 0) & (shift < math.inf))), "shifts", shifts, "floats in [0, inf)")
    with np.errstate(over="ignore"):
        half, s = np.maximum(0.5 * rate * width, 1e-300), np.maximum(rate * shift, 1e-300)
    # Beyond it nothing but one is claimed.
    rise = np.expm1(np.minimum(s, 50.0)) / np.minimum(s, 50.0)
    return np.where(s > 50.0, 1.0, np.minimum(-np.expm1(-half) / half * rise, 1.0))


def total_expected_privacy_loss_factor(
    rates: ArrayLike, widths: ArrayLike, shifts: ArrayLike
) -> float:
    r"""Return the expected absolute privacy loss of all rounds, as a share of the largest loss.

    .. math:: \frac{\sum_{k, l} \gamma_{k l} \beta_k t_k}{d \sum_k \beta_k t_k}

    It is a figure to print beside a guarantee, and none, as :func:`expected_privacy_loss_factor`
    explains. The largest loss is that of d entries that all move by :math:`t_k`.

    Parameters
    ----------
    rates : array-like of shape (n_rounds,)
        :math:`\beta_k` in (0, inf).
    widths : array-like of shape (n_rounds, n_entries)
        In [0, inf).
    shifts : float or array-like of shape (n_rounds,)
        :math:`t_k` in [0, inf), not all zero: the largest move of an entry.

    Returns
    -------
    float
        In (0, 1].

    Raises
    ------
    ValueError
        If a parameter is out of range, or shapes do not match.

    Examples
    --------
    >>> from skdpadmm.privacy import total_expected_privacy_loss_factor
    >>> f"{total_expected_privacy_loss_factor([1.0, 2.0], [[0.0, 0.0], [1.0, 2.0]], 1e-3):.4f}"
    '0.6884'
    """
    rate = np.asarray(rates, dtype=np.float64)
    rows = np.asarray(widths, dtype=np.float64)
    require(
        rate.ndim == 1 and rows.ndim == 2 and len(rows) == rate.size and rows.size > 0,
        "widths.shape",
        rows.shape,
        f"(n_rounds, n_entries) with n_rounds={rate.size}, that of rates",
    )
    moves = np.asarray(shifts, dtype=np.float64)
    require(
        moves.shape in ((), rate.shape),
        "shifts.shape",
        moves.shape,
        f"() or (n_rounds,) with n_rounds={rate.size}, that of rates",
    )
    moves = np.broadcast_to(moves, rate.shape)
    largest = rate * moves
    require(bool(np.any(largest > 0)), "shifts", shifts, "at least one that is positive")
    factors = [
        math.fsum(expected_privacy_loss_factor(float(b), float(w), float(t)) for w in row)
        for b, row, t in zip(rate, rows, moves, strict=True)
    ]
    return float(np.asarray(factors) @ largest / (rows.shape[1] * largest.sum()))


def _scaled(rate: float, width: float, shift: float) -> tuple[float, float]:
    require(0 < rate < math.inf, "rate", rate, "a float in (0, inf)")
    require(0 <= width < math.inf, "width", width, "a float in [0, inf)")
    require(0 <= shift < math.inf, "shift", shift, "a float in [0, inf)")
    u, s = rate * width, rate * shift
    require(u < math.inf, "rate * width", u, "a finite number")
    require(s < math.inf, "rate * shift", s, "a finite number")
    return u, s


def _limit(u: float) -> float:
    return 1.0 if u == 0.0 else min(1.0, -math.expm1(-0.5 * u) / (0.5 * u))


def _half(u: float, s: float) -> tuple[Array, Array]:
    """Return points in [0, u / 2] and weights of a rule that integrates against the density p.

    The integrands are smooth on the scale of the noise between the places where the loss changes
    its form, and nearly constant further from them.
    """
    half = 0.5 * u
    if half == 0.0:
        return np.empty(0), np.empty(0)
    steps = np.concatenate([np.arange(0.0, 41.0), 40.0 * 2.0 ** np.arange(1.0, 60.0)])
    kink = min(s, half)
    ends = [x for x in (0.0, kink, half) if x <= half]
    grid = np.concatenate([ends, steps, kink + steps, kink - steps, half - steps])
    grid = np.unique(grid[(grid >= 0.0) & (grid <= half)])
    length = np.diff(grid)
    points = (grid[:-1, None] + 0.5 * length[:, None] * (1.0 + _NODES)).ravel()
    density = (-np.expm1(-points) - np.expm1(points - u)) / (2.0 * u)
    return points, (0.5 * length[:, None] * _WEIGHTS).ravel() * density
