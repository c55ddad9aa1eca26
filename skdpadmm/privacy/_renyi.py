"""Renyi differential privacy."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from skdpadmm.privacy._guarantee import Guarantee
from skdpadmm.privacy._validation import require, require_delta, require_epsilon


@dataclass(frozen=True)
class RenyiDP(Guarantee):
    """Bounds on the Renyi divergence, order by order; known tightest only.

    For what has no exact curve. The conversion is the tight one of Canonne, Kamath and Steinke
    (NeurIPS 2020, Proposition 12), by dp-accounting. A Gaussian mechanism is never put in this
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
        """Freeze the sequences and check the ranges."""
        object.__setattr__(self, "orders", tuple(float(order) for order in self.orders))
        object.__setattr__(self, "divergences", tuple(float(d) for d in self.divergences))
        if len(self.orders) != len(self.divergences) or not self.orders:
            raise ValueError(
                f"Got {len(self.orders)} orders and {len(self.divergences)} divergences, "
                "expected one divergence for each of at least one order."
            )
        increasing = all(x < y for x, y in zip(self.orders, self.orders[1:], strict=False))
        require(
            increasing and 1 < self.orders[0] and self.orders[-1] < math.inf,
            "orders",
            self.orders,
            "strictly increasing floats in (1, inf)",
        )
        require(
            all(d >= 0 for d in self.divergences),
            "divergences",
            self.divergences,
            "floats in [0, inf]",
        )

    def delta(self, epsilon: float) -> float:
        """Return the best delta over the orders at ``epsilon`` in [0, inf]."""
        require_epsilon(epsilon)
        if math.isinf(epsilon):
            return 0.0
        # The library takes log(1 - exp(-d)), which fails where d is lost beside 1.
        safe = [d if d == 0 else max(d, 1e-15) for d in self.divergences]
        return float(_rdp().compute_delta(self.orders, safe, epsilon)[0])

    def epsilon(self, delta: float) -> float:
        """Return the best epsilon over the orders at ``delta`` in [0, 1]."""
        require_delta(delta)
        if delta == 1.0:
            return 0.0
        return float(_rdp().compute_epsilon(self.orders, self.divergences, delta)[0])

    def to_dict(self) -> dict[str, Any]:
        """Return the kind, the orders and the divergences (an infinite one as "inf")."""
        return {
            "kind": "renyi",
            "orders": list(self.orders),
            "divergences": [d if math.isfinite(d) else "inf" for d in self.divergences],
        }

    def describe(self) -> str:
        """Return the number of orders."""
        return f"Renyi DP at {len(self.orders)} orders"


def _rdp() -> Any:
    try:
        from dp_accounting.rdp import rdp_privacy_accountant
    except ImportError as error:
        raise ImportError(
            "Renyi differential privacy needs dp-accounting: pip install 'skdpadmm[accounting]'"
        ) from error
    return rdp_privacy_accountant
