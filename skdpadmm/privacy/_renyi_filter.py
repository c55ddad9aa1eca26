"""A fixed Renyi budget that is spent round by round, as public interval widths turn out."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from skdpadmm.privacy._renyi import RenyiDP
from skdpadmm.privacy._uniform_laplace import renyi_divergences
from skdpadmm.privacy._validation import require, require_target

_ORDERS = tuple((1.0 + np.geomspace(0.1, 1e3, 200)).tolist())
# Above the exact divergence by this much: a little noise for much time.
_RTOL = 1e-4
# Raises what a closed form gives by more than its rounding.
_ROUNDING = 1e-12


@dataclass(frozen=True)
class RenyiFilter:
    r"""A budget of one Renyi order, fixed in advance, and what of it is spent.

    Before a round, the widths of the intervals in which its secret uniform numbers lie are known to
    everybody: they are functions of what was released. The filter answers how little noise the
    round may have, and refuses a round that would exceed the budget. Nothing changes in place:
    :meth:`spend` returns another filter.

    **Theorem** (Feldman and Zrnic, "Individual Privacy Accounting via a Renyi Filter", NeurIPS
    2021). Let round t be a mechanism, chosen by all that was released before, with a Renyi
    divergence of order :math:`\alpha` of at most :math:`\rho_t` between neighbouring data sets,
    conditionally on these releases. If :math:`\sum_t \rho_t \le B` surely, then all rounds together
    have a divergence of at most B. Conditions: :math:`\alpha` and B are fixed before data is
    touched, and the rate, the widths, the moves, hence :math:`\rho_t`, and the decision to stop are
    functions of released values alone.

    So the guarantee is that of the whole budget, whatever was spent. What is left is no part of it:
    a filter does not tell what a smaller budget would have promised.

    Parameters
    ----------
    order : float
        :math:`\alpha` in (1, inf).
    budget : float
        B in [0, inf).
    spent : float, default=0.0
        In [0, budget].

    Examples
    --------
    >>> from skdpadmm.privacy import RenyiFilter
    >>> budget = RenyiFilter.of_target(1.0, 1e-5)
    >>> wide = budget.largest_rate([1.0, 2.0], shift=0.01, allowance=0.01)
    >>> narrow = budget.largest_rate([0.0, 0.0], shift=0.01, allowance=0.01)
    >>> wide > narrow
    True
    >>> after = budget.spend(wide, [1.0, 2.0], shift=0.01)
    >>> 0.0099 < after.spent <= 0.01 and after.guarantee == budget.guarantee
    True
    """

    order: float
    budget: float
    spent: float = 0.0

    def __post_init__(self) -> None:
        """Check the ranges."""
        for name in ("order", "budget", "spent"):
            object.__setattr__(self, name, float(getattr(self, name)))
        require(1 < self.order < math.inf, "order", self.order, "a float in (1, inf)")
        require(0 <= self.budget < math.inf, "budget", self.budget, "a float in [0, inf)")
        require(
            0 <= self.spent <= self.budget,
            "spent",
            self.spent,
            f"a float in [0, {self.budget!r}], the budget",
        )

    @classmethod
    def of_target(cls, epsilon: float, delta: float, order: float | None = None) -> RenyiFilter:
        r"""Return the filter whose whole budget is ``epsilon`` at ``delta``.

        .. math:: B = \epsilon - \log \Big( 1 - \frac{1}{\alpha} \Big)
                  + \frac{\log(\alpha \delta)}{\alpha - 1}

        (Canonne, Kamath and Steinke, NeurIPS 2020, Proposition 12, turned round.)

        Parameters
        ----------
        epsilon : float
            In [0, inf).
        delta : float
            In (0, 1).
        order : float or None, default=None
            In (1, inf), public. None: the one that leaves room for most small rounds, whose
            divergences are proportional to the order.

        Returns
        -------
        RenyiFilter

        Raises
        ------
        ValueError
            If the order leaves no budget, or something is out of range.
        """
        require_target(epsilon, delta)

        def budget(alpha: float) -> float:
            amount = epsilon - math.log1p(-1.0 / alpha)
            amount += (math.log(delta) + math.log(alpha)) / (alpha - 1.0)
            return amount - _ROUNDING * (1.0 + abs(amount))

        if order is None:
            order = max(_ORDERS, key=lambda alpha: budget(alpha) / alpha)
        require(1 < order < math.inf, "order", order, "a float in (1, inf)")
        if budget(order) <= 0:
            raise ValueError(
                f"Got order={order!r}, which leaves no budget at epsilon={epsilon!r} and "
                f"delta={delta!r}. Use a larger order, epsilon or delta."
            )
        return cls(order, budget(order))

    @property
    def remaining(self) -> float:
        """What may still be spent."""
        return self.budget - self.spent

    @property
    def guarantee(self) -> RenyiDP:
        """What holds of all rounds together: the fixed budget, spent or not."""
        return RenyiDP((self.order,), (self.budget,))

    def cost(
        self,
        rate: float,
        widths: ArrayLike,
        *,
        shift: float | None = None,
        l1_shift: float | None = None,
    ) -> float:
        """Return an upper bound of a round's divergence, which is what it would spend.

        Parameters
        ----------
        rate : float
            Of the Laplace noise on each entry, the inverse of its scale, in [0, inf).
        widths : array-like of shape (n_entries,)
            Of the interval of each entry, in [0, inf), functions of what was released.
        shift : float or None, default=None
            The largest move of an entry: all of them are summed.
        l1_shift : float or None, default=None
            The largest move in the L1 norm: it counts on the narrowest interval. With both the
            smaller cost counts. At least one is needed.

        Returns
        -------
        float

        Raises
        ------
        ValueError
            If something is out of range, or no move is given.
        """
        intervals = np.atleast_1d(np.asarray(widths, dtype=np.float64))
        require(
            intervals.ndim == 1
            and intervals.size > 0
            and bool(np.all((intervals >= 0) & np.isfinite(intervals))),
            "widths",
            widths,
            "at least one float in [0, inf)",
        )
        if shift is None and l1_shift is None:
            raise ValueError("Got neither shift nor l1_shift, expected one of them at least.")
        for name, move in (("shift", shift), ("l1_shift", l1_shift)):
            require(move is None or 0 <= move < math.inf, name, move, "a float in [0, inf)")
        require(0 <= rate < math.inf, "rate", rate, "a float in [0, inf)")
        distinct, counts = np.unique(intervals, return_counts=True)
        costs = []
        if shift is not None:
            each = (self._entry(rate, float(width), shift) for width in distinct)
            costs.append(math.fsum(n * c for n, c in zip(counts.tolist(), each, strict=True)))
        if l1_shift is not None:
            costs.append(self._entry(rate, float(distinct[0]), l1_shift))
        return min(costs) * (1.0 + _ROUNDING)

    def admits(
        self,
        rate: float,
        widths: ArrayLike,
        *,
        shift: float | None = None,
        l1_shift: float | None = None,
    ) -> bool:
        """Whether :meth:`spend` would accept the round."""
        cost = self.cost(rate, widths, shift=shift, l1_shift=l1_shift)
        return self._after(cost) <= self.budget

    def largest_rate(
        self,
        widths: ArrayLike,
        *,
        shift: float | None = None,
        l1_shift: float | None = None,
        allowance: float | None = None,
    ) -> float:
        """Return the largest rate, which is the least noise, that a round may have.

        It is found to a relative error of 1e-4, on the safe side.

        Parameters
        ----------
        widths : array-like of shape (n_entries,)
            As in :meth:`cost`.
        shift, l1_shift : float or None, default=None
            As in :meth:`cost`; positive.
        allowance : float or None, default=None
            The most that the round may spend, positive; None: all that remains.

        Returns
        -------
        float

        Raises
        ------
        ValueError
            If nothing remains, or something is out of range.
        """
        for name, move in (("shift", shift), ("l1_shift", l1_shift)):
            require(move is None or move > 0, name, move, "a float in (0, inf)")
        if allowance is not None:
            require(allowance > 0, "allowance", allowance, "a float in (0, inf)")

        def admitted(rate: float) -> bool:
            cost = self.cost(rate, widths, shift=shift, l1_shift=l1_shift)
            within = allowance is None or cost <= allowance
            return within and self._after(cost) <= self.budget

        admitted(0.0)  # refuses what is no round
        room = self.remaining if allowance is None else min(allowance, self.remaining)
        # Small plain rounds cost about order (rate move)^2 / 2; that of one entry is a start.
        largest = max(move for move in (shift, l1_shift) if move is not None)
        high = math.sqrt(2.0 * room / self.order) / largest
        low = 0.0
        while high > 0.0 and admitted(high):
            low, high = high, 2.0 * high
        while low == 0.0 or high > low * (1.0 + _RTOL):
            middle = math.sqrt(low) * math.sqrt(high) if low > 0.0 else 0.5 * high
            if not low < middle < high:
                break
            low, high = (middle, high) if admitted(middle) else (low, middle)
        if low == 0.0:
            raise ValueError(
                f"Got remaining={self.remaining!r}, expected room for a round. Stop here."
            )
        return low

    def spend(
        self,
        rate: float,
        widths: ArrayLike,
        *,
        shift: float | None = None,
        l1_shift: float | None = None,
    ) -> RenyiFilter:
        """Return the filter after a round, before which it has to be asked.

        Parameters
        ----------
        rate, widths, shift, l1_shift
            As in :meth:`cost`.

        Returns
        -------
        RenyiFilter

        Raises
        ------
        ValueError
            If the round would exceed the budget: it must not take place.
        """
        cost = self.cost(rate, widths, shift=shift, l1_shift=l1_shift)
        spent = self._after(cost)
        if spent > self.budget:
            raise ValueError(
                f"Got a round of divergence {cost!r}, expected at most the {self.remaining!r} that "
                "remain. Stop here, or use a smaller rate: largest_rate tells which."
            )
        return replace(self, spent=spent)

    def _entry(self, rate: float, width: float, shift: float) -> float:
        u, s = rate * width, rate * shift
        if not max(u, s) < math.inf:
            return math.inf
        return renyi_divergences(u, s, (self.order,), _RTOL)[0]

    def _after(self, cost: float) -> float:
        """Return what would be spent, rounded up."""
        if cost == 0.0:
            return self.spent
        return math.nextafter(self.spent + cost, math.inf)
