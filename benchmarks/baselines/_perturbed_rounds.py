"""Renyi divergence of perturbed objectives that are minimised round after round."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.special import log_ndtr, logsumexp

from skdpadmm.privacy import Neighboring, PerturbedObjectiveDP, RenyiDP

# A bound of relative rounding errors, as in `PerturbedObjectiveDP`.
ROUNDING = 1e-9
_ORDERS = tuple((1.0 + np.geomspace(0.01, 1e4, 180)).tolist())


def perturbed_objective_rdp(
    guarantee: PerturbedObjectiveDP, n_rounds: int = 1, orders: Sequence[float] = _ORDERS
) -> RenyiDP:
    r"""Return the divergences of rounds that each release the minimiser of a perturbed objective.

    Parameters
    ----------
    guarantee : PerturbedObjectiveDP
        Of one round: its ratios and relation, and what it is composed with in every round. The
        ridge is the curvature of what is public in the objective, such as the proximal term of a
        dual method, whose centre may depend on all that was released.
    n_rounds : int, default=1
        At least 1: the number T of rounds, each with fresh noise.
    orders : sequence of float, default=180 orders in [1.01, 10001]
        Increasing, above 1.

    Notes
    -----
    Divergences of adaptive rounds add, as each bound holds whatever was released before. For one
    round, with :math:`l = \text{order} - 1` and in the notation of
    :class:`PerturbedObjectiveDP`, :math:`c = \log(1 + \kappa)` and
    :math:`\kappa = \beta / \lambda`, the smaller of two bounds is taken.

    **Steep losses.** The privacy loss is at most a random variable Y, so
    :math:`D_{1 + l} \le \log(E\,e^{l Y}) / l`, in the worse direction.

    **Flat losses**, with :math:`\kappa` far below :math:`L / \sigma = m`: the gradient hardly
    depends on b. Fix all of b but its component Z along the row. Then :math:`a'w` never increases
    with Z, at a rate of at most :math:`\sigma |a| / \lambda`, so the signed length of the gradient,
    u L, never increases, at a rate of at most :math:`\kappa \sigma`. With :math:`u_0` its value at
    Z = 0, independent of Z,

    .. math:: u Z \le u_0 Z, \qquad -u Z \le -u_0 Z + \kappa Z^2 / m .

    Zero-out: the loss at :math:`w \sim D` is at most :math:`c + m u_0 Z + m^2 / 2`, and at
    :math:`w \sim D'` at most :math:`-m u_0 Z + \kappa Z^2 + m^2 / 2`. With
    :math:`r = 1 - 2 l \kappa > 0` the divergences are at most

    .. math:: c + (1 + l) \frac{m^2}{2}, \qquad
              \frac{m^2}{2} + \frac{l m^2}{2 r} - \frac{\log r}{2 l} .

    Replace one: both gradients enter, one with each sign, and :math:`|g - g'| \le 2 L`. By the
    Cauchy-Schwarz inequality, with :math:`r = 1 - 4 l \kappa > 0`,

    .. math:: c + 2 m^2 + l m^2 (1 + 1 / r) - \frac{\log r}{4 l} .

    Without curvature these are the divergences of a Gaussian release.

    Every round has to release the exact minimiser, or its distance from it be covered by a Gaussian
    release.

    Examples
    --------
    >>> from skdpadmm.privacy import PerturbedObjectiveDP
    >>> one = PerturbedObjectiveDP(0.01, 1e-4, "zero_out", "one_sign")
    >>> f"{perturbed_objective_rdp(one, n_rounds=100).epsilon(1e-5):.2f}"
    '0.39'
    """

    def divergence(order: float) -> float:
        steep, flat = _steep(guarantee, order - 1.0), _flat(guarantee, order - 1.0)
        one_round = max(min(steep, flat), 0.0) * (1.0 + ROUNDING)
        return n_rounds * (one_round + order * 0.5 * guarantee.gaussian_mu**2)

    with np.errstate(under="ignore"):
        return RenyiDP(orders, tuple(divergence(order) for order in orders))


def _flat(guarantee: PerturbedObjectiveDP, exponent: float) -> float:
    """Return the bound that treats the gradient as nearly constant, infinite where it fails."""
    m, curvature = guarantee.gradient_ratio, guarantee.curvature_ratio
    factor = guarantee.neighboring.sensitivity_factor
    rest = 1.0 - 2.0 * factor * exponent * curvature
    if rest <= 0.0:
        return math.inf
    determinant = math.log1p(curvature)
    spread = -math.log(rest) / (2.0 * factor * exponent)
    if guarantee.neighboring is Neighboring.REPLACE_ONE:
        return determinant + 2.0 * m * m + exponent * m * m * (1.0 + 1.0 / rest) + spread
    return 0.5 * m * m + max(
        determinant + 0.5 * exponent * m * m, 0.5 * exponent * m * m / rest + spread
    )


def _steep(guarantee: PerturbedObjectiveDP, exponent: float) -> float:
    """Return the bound by the moments of the privacy loss, in the worse direction."""
    return max(
        min(_log_moments(law, exponent) / exponent for law in laws)
        for laws in guarantee.directions()
    )


def _log_moments(law: Any, exponent: float) -> float:
    """Return log(E exp(l Y))."""
    terms = [exponent * at + math.log(mass) for at, mass in law.atoms if mass > 0.0]
    terms.extend(_log_moment(piece, exponent) for piece in law.pieces)
    return float(logsumexp(terms))


def _log_moment(piece: Any, exponent: float) -> float:
    """Return the log of weight times the mean of exp(l (shift + scale Z + scale^2 / 2))."""
    tilt = exponent * piece.scale
    above = float(log_ndtr(tilt - piece.start))
    beyond = float(log_ndtr(tilt - piece.stop))
    inside = above + math.log(-math.expm1(beyond - above)) if beyond < above else -math.inf
    return (
        math.log(piece.weight)
        + exponent * (piece.shift + 0.5 * piece.scale**2)
        + 0.5 * tilt * tilt
        + inside
    )
