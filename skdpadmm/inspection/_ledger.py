"""The display of a ledger."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from skdpadmm.inspection._display import Display, write_below
from skdpadmm.ledger import PrivacyLedger
from skdpadmm.privacy.claims import ASSUMED, FIXED

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Each point is a composition of all fits before it.
_MOST_POINTS = 60


@dataclass(kw_only=True, eq=False, repr=False)
class PrivacyLedgerDisplay(Display):
    """The account of a study over time: the fixed total after each fit, and the limit.

    Make it by `from_ledger`. Parameters are stored as attributes.

    Parameters
    ----------
    n_fits : array-like of shape (n_points,)
        Numbers of fits, ascending.
    epsilons : array-like of shape (n_points,)
        Total epsilon of these fits.
    delta : float
        Delta at which epsilon is drawn.
    limit : float, default=None
        Epsilon of the limit at `delta`, if there is one.
    name : str, default=""
        Name of the data set.

    Attributes
    ----------
    ax_, figure_ : matplotlib Axes and Figure
    line_, limit_ : Line2D, and Line2D or None
        The total, and the limit.

    Examples
    --------
    >>> from skdpadmm.inspection import PrivacyLedgerDisplay
    >>> from skdpadmm.ledger import PrivacyLedger
    >>> PrivacyLedgerDisplay.from_ledger(PrivacyLedger("study.db"))  # doctest: +SKIP
    <...>
    """

    n_fits: NDArray[np.intp]
    epsilons: NDArray[np.float64]
    delta: float
    limit: float | None = None
    name: str = ""

    def __post_init__(self) -> None:
        self.n_fits, self.epsilons = np.asarray(self.n_fits), np.asarray(self.epsilons, float)

    @classmethod
    def from_ledger(
        cls,
        ledger: PrivacyLedger,
        *,
        delta: float | None = None,
        ax: Axes | None = None,
        **asked: Any,
    ) -> Self:
        """Draw the account of a ledger, or of the data set in its path.

        Epsilon is drawn at `delta` in [0, 1], by default that of the limit; a limit at another
        delta is not drawn. `asked` are parameters of
        :meth:`~skdpadmm.ledger.PrivacyLedger.guarantee`, such as ``include_simulated=True``. For
        more than 60 fits, 60 totals are computed.
        """
        name = ledger.dataset
        entries = [e for e in ledger.entries() if not name or e["dataset"] in ("", name)]
        ids = [0, *(entry["id"] for entry in entries)]
        n_points = min(len(ids), _MOST_POINTS)
        n_fits = np.linspace(0, len(entries), n_points).round().astype(int)
        totals = [ledger.total(delta, kind="fixed", last_id=ids[n], **asked) for n in n_fits]
        limits = {each["dataset"]: each for each in ledger.limits()}
        limit = limits.get(name)
        delta = (limit or limits[""])["delta"] if delta is None else delta
        drawn = limit["epsilon"] if limit and limit["delta"] == delta else None
        display = cls(n_fits=n_fits, epsilons=np.array(totals), delta=delta, limit=drawn, name=name)
        return display.plot(ax=ax)

    def plot(self, ax: Axes | None = None) -> Self:
        """Draw the total as a line of steps, and the limit as a dashed one; return itself."""
        ax = self._axes(ax, 6.4, 3.6)
        self.line_ = ax.step(self.n_fits, self.epsilons, where="post", label="total")[0]
        self.limit_ = None
        if self.limit is not None:
            self.limit_ = ax.axhline(self.limit, color="0.35", linestyle="--", label="limit")
        ax.set_ylim(bottom=0.0)
        ax.locator_params(axis="x", integer=True)
        ax.set_xlabel("number of fits")
        write_below(ax, f"A total assumes: {ASSUMED} {FIXED}")
        ax.set_ylabel(f"fixed total epsilon (delta={self.delta:g})")
        ax.set_title(self.name, loc="left", fontsize=10)
        ax.legend(frameon=False)
        return self
