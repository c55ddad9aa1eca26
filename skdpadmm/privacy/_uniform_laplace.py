"""The law of a uniform number plus Laplace noise, and divergences between its translates.

Everything below the class is in units of the Laplace scale: with the rate beta only
``u = beta * width`` and ``s = beta * shift`` matter. P lives around [0, u], and Q is P moved by s.
The privacy loss ``log p(x) - log p(x - s)`` never increases with x, as p is log-concave. It is s
for x < 0 and -s for x > u + s, and changes its sign under the reflection ``x -> u + s - x``, which
exchanges P and Q.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

from skdpadmm.privacy._validation import require

Array = NDArray[np.float64]

_EPS = float(np.finfo(np.float64).eps)
# Beyond it powers of e leave the range of floats; the Laplace bound is then used as it is.
LARGEST_SHIFT = 500.0
_LARGEST_EXPONENT = 600.0
_MOST_CELLS = 2**15
# More than the rounding of a sum over that many cells.
_ROUNDING = 1.0 + 1e-12


@dataclass(frozen=True)
class UniformLaplace:
    r"""The law of a uniform number plus Laplace noise.

    It is that of U + Z with U uniform on (0, width) and Z with the density
    :math:`\frac{\beta}{2} e^{-\beta |z|}`, independent. Its density is log-concave and symmetric
    about half the width. With a width of zero it is the Laplace law.

    Parameters
    ----------
    rate : float
        :math:`\beta` in (0, inf), the inverse of the scale of the noise.
    width : float
        In [0, inf).

    Examples
    --------
    >>> from skdpadmm.privacy import UniformLaplace
    >>> law = UniformLaplace(rate=2.0, width=1.0)
    >>> law.cdf([-1.0, 0.5, 2.0]).round(4).tolist()
    [0.0293, 0.5, 0.9707]
    >>> f"{law.fisher_ratio:.3f}"
    '0.541'
    """

    rate: float
    width: float

    def __post_init__(self) -> None:
        """Check the ranges."""
        object.__setattr__(self, "rate", float(self.rate))
        object.__setattr__(self, "width", float(self.width))
        require(0 < self.rate < math.inf, "rate", self.rate, "a float in (0, inf)")
        require(0 <= self.width < math.inf, "width", self.width, "a float in [0, inf)")
        product = self.rate * self.width
        require(product < math.inf, "rate * width", product, "a finite number")

    @property
    def fisher_ratio(self) -> float:
        """Its Fisher information of location over that of the Laplace law, in (0, 1]."""
        return fisher_ratio(self.rate * self.width)

    def density(self, x: ArrayLike) -> Array:
        """Return the density at each ``x``."""
        below, above = self._positions(x)
        with np.errstate(under="ignore"):
            return self.rate * _density(below, above, self.rate * self.width)

    def log_density(self, x: ArrayLike) -> Array:
        """Return the logarithm of the density at each ``x``, finite far beyond its underflow."""
        below, above = self._positions(x)
        nearest = np.minimum(below, above)
        inside = _density(np.maximum(below, 0.0), np.maximum(above, 0.0), self.rate * self.width)
        outside = math.log(edge_mass(self.rate * self.width)) + np.minimum(nearest, 0.0)
        return math.log(self.rate) + np.where(nearest >= 0, np.log(inside), outside)

    def cdf(self, x: ArrayLike) -> Array:
        """Return the probability of a value up to each ``x``, relatively accurate where small."""
        below, above = self._positions(x)
        return _cdf(below, above, self.rate * self.width)

    def survival(self, x: ArrayLike) -> Array:
        """Return the probability of a value above each ``x``, relatively accurate where small."""
        below, above = self._positions(x)
        return _cdf(above, below, self.rate * self.width)

    def quantile(self, probability: ArrayLike) -> Array:
        """Return the value up to which there is each ``probability`` in [0, 1]."""
        q = np.asarray(probability, dtype=np.float64)
        require(bool(np.all((q >= 0) & (q <= 1))), "probability", probability, "floats in [0, 1]")
        position = _lower_quantile(np.minimum(q, 1.0 - q), self.rate * self.width) / self.rate
        return np.where(q <= 0.5, position, self.width - position)

    def _positions(self, x: ArrayLike) -> tuple[Array, Array]:
        """Return the distances to both ends of the interval, in units of the noise."""
        x = np.asarray(x, dtype=np.float64)
        return self.rate * x, self.rate * (self.width - x)


def fisher_ratio(u: float) -> float:
    r"""Return :math:`E[(p'/p)^2]` in units of the noise: 1 at zero, about :math:`2 \ln(4) / u` far.

    It has a closed form; with :math:`G = 1 - e^{-u}` it is
    :math:`\sqrt G + 2 \sqrt G \log(1 + \sqrt G) / u - 1`.
    """
    if u == 0.0:
        return 1.0
    root = math.sqrt(-math.expm1(-u))
    value = 2.0 * root * math.log1p(root) / u - math.exp(-u) / (1.0 + root)
    return min(1.0, max(0.0, value))


def edge_mass(u: float) -> float:
    """Return the probability of a value below zero, (1 - exp(-u)) / (2 u)."""
    return 0.5 if u == 0.0 else -math.expm1(-u) / (2.0 * u)


def loss(x: Array, u: float, s: float) -> Array:
    """Return the privacy loss at 0 <= x <= (u + s) / 2, where it is in [0, s].

    Each form is a sum of positive terms: nothing cancels, however small s is.
    """
    if u == 0.0:
        return np.maximum(s - 2.0 * x, 0.0)
    near = np.minimum(x, min(u, s))  # P from inside its interval, Q from below its own
    value = s - near + np.log1p(_g(near) * _g(u - near) / -math.expm1(-u))
    if s > u:
        value = np.where(x > u, u + s - 2.0 * x, value)
    else:
        far = np.maximum(x, s) - s  # both from inside
        rest = np.maximum(u - far, 0.0)
        excess = -math.expm1(-s) * np.exp(-far) * _g(np.maximum(u - s - 2.0 * far, 0.0))
        value = np.where(x > s, np.log1p(excess / (_g(far) + _g(rest))), value)
    return np.clip(value, 0.0, s)


def mass(start: Array, length: Array, u: float) -> Array:
    """Return P[start, start + length], relatively accurate however short the interval is."""
    before = np.clip(-start, 0.0, length)
    inside = np.clip(u - start, 0.0, length) - before
    after = np.maximum(length - before - inside, 0.0)
    edge = edge_mass(u)
    total = edge * np.exp(np.minimum(start + before, 0.0)) * _g(before)
    total = total + edge * np.exp(-np.maximum(start - u, 0.0)) * _g(after)
    if u == 0.0:
        return np.asarray(total)
    begin = np.clip(start, 0.0, u)
    rest = np.maximum(u - begin - inside, 0.0)
    # The integral of 1 - exp(-y) over [a, a + h] is h - g(h) + g(a) g(h), g(y) = 1 - exp(-y).
    middle = 2.0 * _excess(-inside) + (_g(begin) + _g(rest)) * _g(inside)
    return np.asarray(total + middle / (2.0 * u))


def hockey_stick(u: float, s: float, epsilon: float) -> float:
    r"""Return delta at ``epsilon`` >= 0 of the pair (P, Q), the same in both directions; exact.

    The loss never increases, so the best event is :math:`\{x < x^*\}` with :math:`x^*` its single
    crossing of epsilon: delta is
    :math:`P(x < x^*) - e^\epsilon P(x < x^* - s)`, and rounding errors are added.
    """
    if epsilon >= s:
        return 0.0
    laplace = -math.expm1(0.5 * (epsilon - s))
    if u == 0.0 or s > LARGEST_SHIFT:
        return laplace
    start = crossing(np.array([float(epsilon)]), u, s) - s
    gained = float(mass(start, np.array([s]), u)[0])
    lost = math.expm1(epsilon) * float(_cdf(start, u - start, u)[0])
    return min(laplace, max(0.0, gained - lost) + 8.0 * _EPS * (gained + lost))


def crossing(levels: Array, u: float, s: float) -> Array:
    """Return where in [0, (u + s) / 2] the loss crosses each of ``levels`` in [0, s]."""
    low = np.zeros_like(levels)
    high = np.full_like(levels, 0.5 * (u + s))
    for _ in range(200):
        middle = 0.5 * (low + high)
        if bool(np.all((middle <= low) | (middle >= high) | (high - low <= _EPS * high))):
            break
        above = loss(middle, u, s) > levels
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    return high


def laplace_divergence(s: float, order: float) -> float:
    """Return the Renyi divergence of Laplace laws, without cancellation where s is small."""
    exponent = (order - 1.0) * s
    if exponent > 1.0:
        rest = (order - 1.0) / order * math.exp(-exponent - order * s)
        return s + (math.log(order / (2.0 * order - 1.0)) + math.log1p(rest)) / (order - 1.0)
    rise, fall = _excess(np.array([exponent, -order * s])).tolist()
    return math.log1p((order * rise + (order - 1.0) * fall) / (2.0 * order - 1.0)) / (order - 1.0)


def renyi_divergences(
    u: float, s: float, orders: Sequence[float], rtol: float = 1e-6
) -> list[float]:
    """Return upper bounds of the Renyi divergences of ``orders`` > 1, the same in both directions.

    Each exceeds the exact value by ``rtol`` of it, or a little more where s is below 1e-8, and
    never the divergence of the Laplace laws.
    """
    return [upper for _, upper in renyi_brackets(u, s, orders, rtol)]


def renyi_brackets(
    u: float, s: float, orders: Sequence[float], rtol: float
) -> list[tuple[float, float]]:
    r"""Return a lower and an upper bound of each Renyi divergence.

    With r = p / q, :math:`(\alpha - 1) D_\alpha = \log(1 + E_Q[f(r)])` for the convex
    :math:`f(r) = r^\alpha - 1 - \alpha (r - 1) \ge 0`. In a cell between two points the masses of P
    and Q are known in closed form, and r, monotone, lies between its values at the ends. So f at
    the mean of r bounds the cell's part from below (Jensen), and the chord between the ends from
    above. Cells are halved until both agree; what rounding can change is added.
    """
    laplace = [min(s, laplace_divergence(s, order)) if s > 0.0 else 0.0 for order in orders]
    if s == 0.0 or u == 0.0:
        return [(bound, bound) for bound in laplace]
    if s > LARGEST_SHIFT:
        return [(0.0, bound) for bound in laplace]
    brackets = []
    points = _first_points(u, s)
    for order, bound in zip(orders, laplace, strict=True):
        lower, upper, points = _bracket(points, u, s, order, rtol)  # cells serve the next order too
        brackets.append((min(lower, bound), min(upper, bound)))
    return brackets


def _bracket(
    points: Array, u: float, s: float, order: float, rtol: float
) -> tuple[float, float, Array]:
    scale = max(0.0, order * s - _LARGEST_EXPONENT)
    ends = np.array([s, -s])
    in_tails = edge_mass(u) * float(np.array([math.exp(-s), 1.0]) @ _convex(ends, order, scale))
    while True:
        lower, upper = _cell_bounds(points, u, s, order, scale)
        total = in_tails + math.fsum(upper.tolist())
        gap = upper - lower
        if float(gap.sum()) <= rtol * total or points.size > _MOST_CELLS:
            break
        # A cell's gap falls with the square of the number of parts into which it is cut.
        parts = np.sqrt(gap * gap.size / (0.5 * rtol * total))
        finer = _cut(points, np.clip(np.ceil(parts), 1, 16).astype(np.intp))
        if finer.size <= points.size:
            break
        points = finer
    below = in_tails + math.fsum(lower.tolist())
    return (
        max(0.0, _of_moment(below / _ROUNDING, scale, order)),
        _of_moment(total * _ROUNDING, scale, order) * _ROUNDING,
        points,
    )


def _cut(points: Array, parts: NDArray[np.intp]) -> Array:
    """Cut each cell into so many equal parts, as far as floats can tell."""
    cell = np.repeat(np.arange(parts.size), parts)
    first = np.repeat(np.cumsum(parts) - parts, parts)
    share = (np.arange(cell.size) - first) / parts[cell]
    starts = points[:-1][cell] + np.diff(points)[cell] * share
    return np.unique(np.append(starts, points[-1]))


def _of_moment(moment: float, scale: float, order: float) -> float:
    """Return log(1 + exp(scale) moment) / (order - 1)."""
    if scale == 0.0:
        return math.log1p(moment) / (order - 1.0)
    return (scale + math.log(math.exp(-scale) + moment)) / (order - 1.0)


def _first_points(u: float, s: float) -> Array:
    """Return where the form of the loss changes, and points that crowd at each such place."""
    places = sorted({0.0, min(u, s), min(max(u, s), 0.5 * (u + s)), 0.5 * (u + s)})
    crowd = 2.0 ** -np.arange(40.0, 3.0, -1.0)
    shares = np.concatenate([[0.0], crowd, np.linspace(0.125, 1.0, 15)])
    pieces = [a + (b - a) * shares for a, b in pairwise(places)]
    return np.unique(np.concatenate([*pieces, places]))


def _cell_bounds(
    points: Array, u: float, s: float, order: float, scale: float
) -> tuple[Array, Array]:
    """Return each cell's part of the moment from below and from above, with its mirror image."""
    length = np.diff(points)
    of_p, of_q = mass(points[:-1], length, u), mass(points[:-1] - s, length, u)
    losses = loss(points, u, s)
    high, low = losses[:-1], losses[1:]
    kept = (of_p > 0.0) & (of_q > 0.0)
    safe_p, safe_q = np.where(kept, of_p, 1.0), np.where(kept, of_q, 1.0)
    mean = np.clip(np.log(safe_p / safe_q), low, high)
    lower, upper = np.zeros_like(high), np.zeros_like(high)
    for weight, top, bottom, centre in (
        (of_q, high, low, mean),
        (of_p, -low, -high, -mean),
    ):
        at_top, at_bottom = _convex(top, order, scale), _convex(bottom, order, scale)
        spread = -_g(-(top - bottom))
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            share = np.where(spread > 0.0, -_g(-(centre - bottom)) / spread, 1.0)
            # What rounding of the mean may move along the chord.
            slip = np.where(spread > 0.0, np.minimum(1.0, 16.0 * _EPS / spread), 1.0)
        share = np.clip(share, 0.0, 1.0)
        step = at_top - at_bottom
        upper += weight * (at_bottom + share * step + slip * np.abs(step))
        lower += weight * _convex(centre, order, scale)
    return np.minimum(lower, upper), upper


def _convex(losses: Array, order: float, scale: float) -> Array:
    """Return exp(-scale) (r^order - 1 - order (r - 1)) at r = exp(loss)."""
    return _excess(order * losses, scale) - order * _excess(losses, scale)


def _excess(y: Array, scale: float = 0.0) -> Array:
    """Return exp(-scale) (exp(y) - 1 - y), relatively accurate near zero."""
    small = np.clip(y, -0.5, 0.5)
    series = np.ones_like(small)
    for k in range(18, 2, -1):
        series = 1.0 + small / k * series
    near = math.exp(-scale) * 0.5 * small * small * series
    with np.errstate(under="ignore"):
        far = np.exp(y - scale) - math.exp(-scale) * (1.0 + y)
    return np.where(np.abs(y) <= 0.5, near, far)


def _g(y: Array) -> Array:
    """Return 1 - exp(-y)."""
    return np.asarray(-np.expm1(-y))


def _density(below: Array, above: Array, u: float) -> Array:
    """Return p where ``below`` and ``above`` are the distances to the ends, negative outside."""
    outside = edge_mass(u) * np.exp(np.minimum(np.minimum(below, above), 0.0))
    if u == 0.0:
        return np.asarray(outside)
    inside = (_g(np.maximum(below, 0.0)) + _g(np.maximum(above, 0.0))) / (2.0 * u)
    return np.where(np.minimum(below, above) >= 0.0, inside, outside)


def _cdf(below: Array, above: Array, u: float) -> Array:
    lower = _lower_cdf(np.minimum(below, above), u)
    return np.where(below <= above, lower, 1.0 - lower)


def _lower_cdf(a: Array, u: float) -> Array:
    """Return P(x <= a) for a <= u / 2."""
    outside = edge_mass(u) * np.exp(np.minimum(a, 0.0))
    if u == 0.0:
        return np.asarray(outside)
    inside = np.clip(a, 0.0, 0.5 * u)
    value = (2.0 * inside + np.exp(-inside) * _g(u - 2.0 * inside)) / (2.0 * u)
    return np.where(a > 0.0, value, outside)


def _lower_quantile(q: Array, u: float) -> Array:
    """Return a <= u / 2 with P(x <= a) = q, for q <= 1/2."""
    edge = edge_mass(u)
    with np.errstate(divide="ignore"):
        outside = np.log(np.minimum(q / edge, 1.0))
    if u == 0.0:
        return np.asarray(outside)
    a = np.full_like(q, 0.5 * u)
    for _ in range(60):  # 2 u P is convex there: Newton's steps from the right never overshoot
        excess = 2.0 * a + np.exp(-a) * _g(u - 2.0 * a) - 2.0 * u * q
        moved = np.clip(a - excess / (_g(a) + _g(u - a)), 0.0, 0.5 * u)
        if bool(np.all(np.abs(moved - a) <= 2.0 * _EPS * a)):
            break
        a = moved
    return np.where(q < edge, outside, a)
