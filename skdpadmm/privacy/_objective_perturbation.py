"""Objective perturbation of a linear predictor, by a pointwise bound of its privacy loss.

The mechanism returns the minimiser of ``sum_i l_i(a_i'w) + ridge |w|^2 / 2 + r(w) + b'w`` with
``b ~ N(0, noise_std^2 I)`` and any public convex r. Redberg, Koskela & Wang, "Improving the privacy
and practicality of objective perturbation for differentially private linear learners", NeurIPS
2023, found that a record's gradient, which depends on b through the minimiser, has a direction that
does not. The bounds here rest on that; where they are tighter, or about other relations, they are
proven in the notes of `PerturbedObjectiveDP`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, ndtr

from skdpadmm import _numbers as numbers
from skdpadmm._numbers import require
from skdpadmm.privacy._gaussian import LOG_SQRT_2PI, mills
from skdpadmm.privacy._guarantee import Guarantee, Neighboring

_CELLS = 4096
# The upper tail of the normal law underflows beyond.
_LAST = 39.0
# One quarter of the normal law lies above.
_UPPER_QUARTILE = 0.6744897501960818
# More than the rounding of a sum of the size of ours; every result is raised by it.
ROUNDING = 1e-9


class LossDerivative(StrEnum):
    """What is known, for every data set, of the derivative of a record's loss.

    With s its absolute value times the norm of the row, that is the norm of the record's gradient,
    in [0, L]:

    - ``ANY``: its sign may change with the score (Huber's loss).
    - ``ONE_SIGN``: its sign depends on the record alone (losses of a margin: a smoothed hinge).
    - ``LOGISTIC``: in addition the record's curvature is at most ``s (R - s)``, R the bound of the
      norm of a row (the logistic loss, its derivative clipped or not).

    Examples
    --------
    >>> from skdpadmm.privacy import LossDerivative
    >>> LossDerivative("one_sign")
    <LossDerivative.ONE_SIGN: 'one_sign'>
    """

    ANY = "any"
    ONE_SIGN = "one_sign"
    LOGISTIC = "logistic"


@dataclass(frozen=True)
class PerturbedObjectiveDP(Guarantee, kind="perturbed_objective"):
    r"""The minimiser of a randomly tilted convex objective, beside Gaussian releases.

    Parameters
    ----------
    gradient_ratio : float
        ``L / noise_std`` in [0, inf): L bounds the norm of each record's gradient at every w, and
        ``noise_std`` is the standard deviation of each entry of b.
    curvature_ratio : float
        ``beta / ridge`` in [0, inf): beta bounds the largest eigenvalue of each record's Hessian at
        every w. The ridge belongs to the SUM of losses and covers every parameter, intercept
        included.
    neighboring : Neighboring
    derivative : LossDerivative, default=LossDerivative.ANY
    saturation : float, default=1.0
        ``L / R`` in (0, 1], for ``LOGISTIC`` alone: at least 1/2 makes beta ``R^2 / 4``, less makes
        it ``L (R - L)``.
    gaussian_mu : float, default=0.0
        In [0, inf): mu of the Gaussian releases, before or after and chosen adaptively, that are
        composed with it.

    Notes
    -----
    **Privacy loss.** Let :math:`H_D` be the Hessian of the objective and
    :math:`b_D(w) = -\nabla(\text{objective without } b'w)`. The mechanism maps b to w one to one,
    so its density is that of b at :math:`b_D(w)` times :math:`\det H_D(w)`. Let D have a record
    that D' lacks (zero-out), with gradient :math:`g = l'(a'w) a`. At :math:`w \sim D`, where
    :math:`b = b_D(w)` is :math:`N(0, \sigma^2 I)`, the loss :math:`\log(p_D / p_{D'})(w)` is

    .. math:: \log(1 + l'' a' H_{D'}^{-1} a) + b'g / \sigma^2 + |g|^2 / (2 \sigma^2) .

    The determinant's part is in :math:`[0, c]`, :math:`c = \log(1 + \beta / \lambda)`. With
    :math:`m = L / \sigma`, :math:`s = u L` the norm of g and
    :math:`Z = \pm b'a / (\sigma |a|) \sim N(0, 1)`, whose law w cannot change, the rest is
    :math:`u m Z + u^2 m^2 / 2`, convex in u: the loss is at most c plus

    - ``ANY``: :math:`\max(0, \pm V)`, as in the next line: with the other components of b fixed,
      :math:`a'w`, and so :math:`l'`, never increases with Z, so its sign agrees with that of Z on
      one side of zero only.
    - ``ONE_SIGN``: :math:`\max(0, V)` with :math:`V = m Z + m^2 / 2`, the loss of a Gaussian
      mechanism: :math:`\delta(\epsilon) = \delta_{GDP(m)}(\epsilon - c)` for
      :math:`\epsilon \ge c`.
    - ``LOGISTIC``: the determinant's part is at most :math:`s (R - s) / \lambda
      = u c' + u (1 - u) \kappa`, :math:`c' = L (R - L) / \lambda`, :math:`\kappa = L^2 / \lambda`.
      The maximum over u of the whole is at most :math:`\max(k, c' + V)` with
      :math:`k = \max(0, \kappa - m^2 / 2)`: where the quadratic is concave and its slope at u = 1
      negative, it is at most k. Without a clip :math:`c' = 0`, and the determinant costs nothing
      above :math:`\epsilon = k`. The bound of ``ONE_SIGN`` holds as well; the smaller delta is
      taken.

    At :math:`w \sim D'` the determinant's part is negative and :math:`b'g` has the other sign, so
    the bounds hold without c; for ``ANY`` the sign of :math:`l'` can then oppose that of Z on both
    sides, and the bound is :math:`m |Z| + m^2 / 2`, the one of Redberg et al. with c = 0. Delta is
    the larger of both directions.

    **Replace one.** With gradients g, g' along unit vectors e, e' the determinants' part is at most
    that of g alone, and the rest is :math:`b'(g - g') / \sigma^2 + |g - g'|^2 / (2 \sigma^2)`,
    jointly convex in their signed lengths: the maximum is at a corner, and each corner's value is
    :math:`m |d| Z_d + m^2 |d|^2 / 2` with d one of :math:`\pm e \pm e'` (or e, e', 0), as though
    the shift were constant. Put :math:`M = 2 m`.

    - ``ANY``: :math:`e + e'` and :math:`e - e'` have squared lengths that add up to 4, so the
      chance to exceed x is at most :math:`2 G(t) + 2 G(M^2 - t)` with
      :math:`G(t) = \bar\Phi(x / \sqrt t - \sqrt t / 2)`. G is convex on :math:`[0, M^2]` for
      :math:`x \ge x_c = M \sqrt{M^2 + 12} / 2`: there the chance is at most :math:`2 G(M^2)`, that
      of the zero-out bound with twice the gradient. Below it is at most :math:`4 G(M^2)`.
    - ``ONE_SIGN``: the corners are 0, e, e' and :math:`e - e'`: at most
      :math:`G(M^2) + 2 G(M^2 / 4)`, whose second term is negligible in the tail.
    - ``LOGISTIC``: likewise, with the corners of u = 1 raised by c' and those of u = 0 by k.

    **Composition.** The bound is a random variable Y that is independent of everything released
    before, so together with Gaussian releases of :math:`\mu` in all,
    :math:`\delta(\epsilon) \le E\,\delta_{GDP(\mu)}(\epsilon - Y)`, where
    :math:`\delta_{GDP}(-t) = 1 - e^{-t} (1 - \delta_{GDP}(t))`. The law of Y is put on a grid cell
    by cell, which keeps the mass and the mean of :math:`e^{-Y}`: the Gaussian curve is convex in
    :math:`e^\epsilon`, so this errs upwards (Doroshenko et al., "Connect the dots", PETS 2022).

    **Losses and penalties that are not twice differentiable.** Smoothed losses (a convolution keeps
    L, beta, the sign and, by Jensen's inequality, ``s (R - s)``) and Moreau envelopes of r have
    minimisers that converge to the true one for every b, because the ridge makes them unique. So
    their laws converge weakly, and delta at a given epsilon is lower semicontinuous: Huber's loss,
    clipped derivatives, an l1 norm and constraints are covered as limits.

    **An approximate minimiser** within a certified distance t of the true one is covered by noise
    on the result: given the true minimiser, two neighbouring data sets differ by at most 2 t, a
    Gaussian release to be composed with this guarantee.

    Examples
    --------
    >>> from skdpadmm.privacy import GaussianDP, PerturbedObjectiveDP, compose
    >>> one = PerturbedObjectiveDP(0.2, 0.05, "zero_out", "one_sign")
    >>> f"{one.epsilon(1e-6):.3f} beside {GaussianDP(0.2).epsilon(1e-6):.3f}"
    '0.883 beside 0.834'
    >>> compose(one, GaussianDP(0.1)).gaussian_mu
    0.1
    """

    gradient_ratio: float
    curvature_ratio: float
    neighboring: Neighboring
    derivative: LossDerivative = LossDerivative.ANY
    saturation: float = 1.0
    gaussian_mu: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "neighboring", Neighboring(self.neighboring))
        object.__setattr__(self, "derivative", LossDerivative(self.derivative))
        for name in ("gradient_ratio", "curvature_ratio", "gaussian_mu"):
            numbers.require_finite(getattr(self, name), name)
            object.__setattr__(self, name, float(getattr(self, name)))
        logistic = self.derivative is LossDerivative.LOGISTIC
        expected = "a float in (0, 1]" if logistic else f"1.0 for derivative='{self.derivative}'"
        valid = 0 < self.saturation <= 1 and (logistic or self.saturation == 1)
        require(valid, "saturation", self.saturation, expected)
        object.__setattr__(self, "saturation", float(self.saturation))

    @numbers.quiet_underflow
    def delta(self, epsilon: float) -> float:
        """Return an upper bound of delta at ``epsilon`` in [0, inf]."""
        numbers.require_epsilon(epsilon)
        if math.isinf(epsilon):
            return 0.0
        return max(
            min(_expected_delta(law, self.gaussian_mu, epsilon) for law in laws)
            for laws in self.directions()
        )

    def describe(self) -> str:
        values = self.gradient_ratio, self.curvature_ratio, self.gaussian_mu
        gradient, curvature, mu = map(numbers.round_up, values)
        shown = f"perturbed objective(L/sigma={gradient}, beta/ridge={curvature})"
        return f"{shown} + GDP(mu={mu})" if self.gaussian_mu else shown

    def absorb(self, gaussian_mu: float) -> PerturbedObjectiveDP:
        """Let the pointwise bound of the privacy loss take a Gaussian release."""
        return replace(self, gaussian_mu=math.hypot(self.gaussian_mu, gaussian_mu))

    def directions(self) -> tuple[tuple[LossLaw, ...], ...]:
        """For each direction of the comparison, laws of which each dominates the privacy loss."""
        scale = self.neighboring.sensitivity_factor * self.gradient_ratio
        shift = math.log1p(self.curvature_ratio)
        if scale == 0.0:  # no record has a gradient, so none has a curvature
            return ((LossLaw((), ((0.0, 1.0),)),),)
        replace_one = self.neighboring is Neighboring.REPLACE_ONE
        bounded = _replaced if replace_one else _removed
        one_sign = bounded(scale, shift, shift)
        if self.derivative is LossDerivative.ANY:
            if replace_one:
                return ((_any_replaced(scale, shift),),)
            return (one_sign,), (LossLaw((Piece(2.0, scale, 0.0, 0.0),), ()),)
        if self.derivative is LossDerivative.ONE_SIGN:
            return ((one_sign,),)
        w = self.saturation
        squared_row = self.curvature_ratio / (0.25 if w >= 0.5 else w * (1.0 - w))
        floor = max(0.0, squared_row * w * w - 0.5 * self.gradient_ratio**2)
        raised = squared_row * w * (1.0 - w)
        return ((one_sign, bounded(scale, raised, floor)),)


class Piece(NamedTuple):
    """``weight`` times the law of ``shift + scale Z + scale^2 / 2`` for Z in [start, stop)."""

    weight: float
    scale: float
    shift: float
    start: float
    stop: float = math.inf


class LossLaw(NamedTuple):
    """Pieces of normal laws, and atoms: pairs of a position and a mass."""

    pieces: tuple[Piece, ...]
    atoms: tuple[tuple[float, float], ...]


def _any_replaced(scale: float, shift: float) -> LossLaw:
    # Positions of Z: x_c, from where on twice the tail suffices, is scale * convex + scale^2 / 2.
    convex = 0.5 * (math.sqrt(scale * scale + 12.0) - scale)
    start = min(_UPPER_QUARTILE, convex)
    pieces = (Piece(4.0, scale, shift, start, convex), Piece(2.0, scale, shift, convex))
    atom = 1.0 - 4.0 * (_tail(start) - _tail(convex)) - 2.0 * _tail(convex)
    return LossLaw(pieces, ((shift + scale * convex + 0.5 * scale * scale, max(0.0, atom)),))


def _removed(scale: float, shift: float, floor: float) -> LossLaw:
    """max(floor, shift + V)."""
    start = (floor - shift) / scale - 0.5 * scale
    return LossLaw((Piece(1.0, scale, shift, start),), ((floor, float(ndtr(start))),))


def _replaced(scale: float, shift: float, floor: float) -> LossLaw:
    """The tail of shift + V and those of two corners with half the shift, above a floor."""
    half = 0.5 * scale
    # Here the first tail is at most 1/2 and the others at most 1/4: together at most 1.
    corner = half * _UPPER_QUARTILE + 0.5 * half * half
    lowest = max(floor + corner, shift + corner, shift + 0.5 * scale * scale)
    pieces = tuple(
        Piece(1.0, s, c, (lowest - c) / s - 0.5 * s)
        for s, c in ((scale, shift), (half, shift), (half, floor))
    )
    atom = 1.0 - math.fsum(_tail(piece.start) for piece in pieces)
    return LossLaw(pieces, ((lowest, max(0.0, atom)),))


def _expected_delta(law: LossLaw, mu: float, epsilon: float) -> float:
    """Return E delta_GDP(mu)(epsilon - Y), rounded up."""
    terms = [
        mass * float(_gaussian_delta(mu, np.array([epsilon - position]))[0])
        for position, mass in law.atoms
    ]
    for piece in law.pieces:
        if mu == 0.0:
            terms.append(_piece_delta(piece, epsilon))
        else:
            positions, weights = _dots(piece)
            terms.append(float(weights @ _gaussian_delta(mu, epsilon - positions)))
    return min(1.0, math.fsum(terms) * (1.0 + ROUNDING))


def _piece_delta(piece: Piece, epsilon: float) -> float:
    """Return the mean of (1 - exp(epsilon - Y))_+ over a piece, in closed form."""
    t = epsilon - piece.shift
    reached = t / piece.scale - 0.5 * piece.scale
    start = max(piece.start, reached)
    if start >= piece.stop:
        return 0.0
    if start > reached:
        above = _excess(start, t, piece.scale)
    else:
        above = float(_gaussian_delta(piece.scale, np.array([t]))[0])
    beyond = 0.0 if math.isinf(piece.stop) else _excess(piece.stop, t, piece.scale)
    return piece.weight * max(0.0, above - beyond)


def _excess(start: float, t: float, scale: float) -> float:
    """P(Z > start) - e^t P(Z > start + scale)."""
    return _tail(start) - math.exp(t + float(log_ndtr(-start - scale)))


def _tail(z: float) -> float:
    return float(ndtr(-z))


@lru_cache(maxsize=16)
def _dots(piece: Piece) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Positions and weights that dominate a piece.

    In each cell [v, v + h] the mass p, with q the mean of e^-(Y - v) over the cell, is moved to its
    ends so that p and q stay: ``(p - q) / (1 - e^-h)`` to the upper one.
    """
    start = max(piece.start, -_LAST)
    stop = min(piece.stop, max(_LAST, start))
    z = np.linspace(start, stop, _CELLS + 1)
    m = piece.scale
    positions = piece.shift + m * z + 0.5 * m * m
    p = np.maximum(-np.diff(ndtr(-z)), 0.0)
    width = m * (z[1] - z[0])
    # e^v P(Z > z + m) without overflow; v + m^2/2 + ... cancels against the normal density.
    low = np.exp(m * z[:-1] + 0.5 * m * m + log_ndtr(-z[:-1] - m))
    high = np.exp(m * z[:-1] + 0.5 * m * m + log_ndtr(-z[1:] - m))
    if width > 1e-8:
        q = np.maximum(low - high, 0.0)
        # What cancels is rounded towards the upper end.
        upper = (p - q + 1e-13 * low) / -math.expm1(-width)
        upper = np.clip(upper, 0.0, p)
    else:
        upper = p
    weights = np.zeros_like(z)
    weights[1:] += upper
    weights[:-1] += p - upper
    weights *= piece.weight
    weights.flags.writeable = positions.flags.writeable = False
    return positions, weights


def _gaussian_delta(mu: float, epsilon: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return delta of GDP(mu) at any real epsilon, a little above it where rounding could tell."""
    size = np.abs(epsilon)
    with np.errstate(all="ignore"):
        if mu == 0.0:
            delta = np.zeros_like(size)
        else:
            a, b = size / mu - 0.5 * mu, size / mu + 0.5 * mu
            mills_b = mills(b)
            mills_a = mills(np.maximum(a, -1.0))
            # phi(a) (M(a) - M(b)), see `gaussian_log_delta`; its complement far below zero.
            density = np.exp(-0.5 * a * a - LOG_SQRT_2PI)
            tail = density * (mills_a - mills_b + 4e-15 * mills_a)
            delta = np.where(a > -1.0, tail, 1.0 - density * (mills(-a) + mills_b))
        below = -np.expm1(-size) + np.exp(-size) * delta
    return np.asarray(np.clip(np.where(epsilon < 0.0, below, delta), 0.0, 1.0))
