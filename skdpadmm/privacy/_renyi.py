"""Renyi differential privacy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from skdpadmm._numbers import require, require_delta, require_epsilon
from skdpadmm.privacy._guarantee import Guarantee

# Next to order 1 the conversion loses its digits, and is of no use.
_LEAST_ORDER = 1.01


@dataclass(frozen=True)
class RenyiDP(Guarantee, kind="renyi"):
    r"""Bounds on the Renyi divergence, order by order; known tightest only.

    For what has no exact curve. A divergence r at order a > 1 implies

    .. math:: \log \delta(\epsilon) \le (a - 1) (r - \epsilon + \log(1 - 1/a)) - \log a

    (Canonne, Kamath and Steinke, NeurIPS 2020, Proposition 12), and
    :math:`\delta \le \sqrt{1 - e^{-r}}`, as the Kullback-Leibler divergence is at most r
    (Bretagnolle and Huber, 1979): see the page of proofs. A Gaussian mechanism is never put in this
    form: the conversion would lose what GaussianDP keeps.

    Parameters
    ----------
    orders : tuple of float
        Strictly increasing, in (1, inf).
    divergences : tuple of float
        In [0, inf], one for each order.

    Examples
    --------
    >>> from skdpadmm.privacy import RenyiDP
    >>> orders = tuple(float(order) for order in range(2, 64))
    >>> f"{RenyiDP(orders, tuple(0.05 * order for order in orders)).epsilon(1e-6):.3f}"
    '1.472'
    """

    orders: tuple[float, ...]
    divergences: tuple[float, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "orders", require_orders(self.orders))
        object.__setattr__(self, "divergences", tuple(float(d) for d in self.divergences))
        if len(self.orders) != len(self.divergences):
            raise ValueError(
                f"Got {len(self.orders)} orders and {len(self.divergences)} divergences, "
                "expected one divergence for each order."
            )
        valid = all(d >= 0 for d in self.divergences)
        require(valid, "divergences", self.divergences, "floats in [0, inf]")

    def delta(self, epsilon: float) -> float:
        """Return the best delta over the orders at ``epsilon`` in [0, inf]."""
        require_epsilon(epsilon)
        if math.isinf(epsilon):
            return 0.0
        pairs = zip(self.orders, self.divergences, strict=True)
        return math.exp(min(0.0, *(_log_delta(order, d, epsilon) for order, d in pairs)))

    def epsilon(self, delta: float) -> float:
        """Return the best epsilon over the orders at ``delta`` in [0, 1]."""
        require_delta(delta)
        if delta == 1.0:
            return 0.0
        pairs = zip(self.orders, self.divergences, strict=True)
        return max(0.0, min(_epsilon(order, d, delta) for order, d in pairs))

    def describe(self) -> str:
        return f"Renyi DP at {len(self.orders)} orders"

    def at(self, order: float) -> float:
        """Return the divergence at one of the orders; infinity at others."""
        return dict(zip(self.orders, self.divergences, strict=True)).get(order, math.inf)

    def absorb(self, gaussian_mu: float) -> RenyiDP:
        """Add the divergence of a Gaussian release, order mu^2 / 2, which is exact."""
        rho = 0.5 * gaussian_mu**2
        sums = (d + order * rho for order, d in zip(self.orders, self.divergences, strict=True))
        return RenyiDP(self.orders, tuple(sums))


def require_orders(orders: Sequence[float]) -> tuple[float, ...]:
    """Return orders as floats, and refuse what are none."""
    values = tuple(float(order) for order in orders)
    increasing = all(x < y for x, y in pairwise(values))
    valid = increasing and len(values) > 0 and 1 < values[0] and values[-1] < math.inf
    require(valid, "orders", values, "strictly increasing floats in (1, inf)")
    return values


def common_orders(guarantees: Sequence[RenyiDP]) -> tuple[float, ...]:
    """Return the orders that all have in common."""
    sets = [set(guarantee.orders) for guarantee in guarantees]
    return tuple(sorted(set.intersection(*sets))) if sets else ()


def _log_delta(order: float, divergence: float, epsilon: float) -> float:
    """The logarithm of the delta at ``epsilon`` that one divergence implies."""
    if divergence == 0:
        return -math.inf
    # A divergence that is lost beside 1 is raised.
    total_variation = 0.5 * math.log1p(-math.exp(-max(divergence, 1e-15)))
    if order <= _LEAST_ORDER:
        return total_variation
    tail = (order - 1.0) * (divergence - epsilon + math.log1p(-1.0 / order)) - math.log(order)
    return min(total_variation, tail)


def _epsilon(order: float, divergence: float, delta: float) -> float:
    """The epsilon at ``delta`` that one divergence implies."""
    if divergence == 0 or delta**2 + math.expm1(-divergence) > 0:
        return 0.0
    if delta == 0 or order <= _LEAST_ORDER:
        return math.inf
    return divergence + math.log1p(-1.0 / order) - math.log(delta * order) / (order - 1.0)
