"""The display of what an attack cannot do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from skdpadmm._numbers import percent_up
from skdpadmm.inspection._display import Display, find_report, require_report
from skdpadmm.privacy import Guarantee, PrivacyReport

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Of false positive rates, which are closer to each other near 0 and 1, where curves are steep.
_POINTS = 201


class TradeOffDisplay(Display):
    """Trade-off curves: the errors that an attack on a guarantee has to make.

    An attack decides from the releases which of two neighbouring data sets they came from. The
    curve is the smallest false negative rate at each false positive rate. The region below is
    impossible, and on the diagonal the attack knows nothing. Make it by `from_estimator`,
    `from_report` or `from_guarantee`.

    Parameters
    ----------
    guarantees : dict of str to Guarantee
        The guarantees, by the names of their curves.

    Attributes
    ----------
    false_positive_rates : ndarray of shape (n_points,)
    false_negative_rates : dict of str to ndarray of shape (n_points,)
        Rates of the best attack on each guarantee: `Guarantee.trade_off`.
    accuracies : dict of str to float
        Largest accuracy of an attack: `Guarantee.attack_accuracy`.
    ax_, figure_ : matplotlib Axes and Figure
    lines_, fill_between_ : list of Line2D, and list of collections
        The curves of the guarantees, and the impossible regions.
    diagonal_ : Line2D
        Perfect privacy.

    Examples
    --------
    >>> from skdpadmm.inspection import TradeOffDisplay
    >>> from skdpadmm.privacy import GaussianDP
    >>> display = TradeOffDisplay(guarantees={"epsilon=1": GaussianDP(0.268051)})
    >>> round(display.accuracies["epsilon=1"], 3)
    0.553
    >>> display.plot()  # doctest: +SKIP
    <...>
    """

    def __init__(self, *, guarantees: Mapping[str, Guarantee]) -> None:
        self.guarantees = dict(guarantees)
        rates = 0.5 - 0.5 * np.cos(np.linspace(0.0, np.pi, _POINTS))
        self.false_positive_rates: NDArray[np.float64] = rates
        known = self.guarantees.items()
        self.false_negative_rates = {name: each.trade_off(rates) for name, each in known}
        self.accuracies = {name: each.attack_accuracy() for name, each in known}

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Axes | None = None) -> Self:
        """Draw the guarantees of a fitted estimator against each observer, at no privacy loss.

        It has `privacy_`, or is a Pipeline that ends in one that does.
        """
        return cls.from_report(find_report(estimator), ax=ax)

    @classmethod
    def from_report(cls, report: PrivacyReport, *, ax: Axes | None = None) -> Self:
        """Draw the guarantees of a report; observers with the same one have one curve."""
        names: dict[Guarantee, list[str]] = {}
        for seen in require_report(report).observers:
            names.setdefault(seen.guarantee, []).append(seen.name)
        return cls.from_guarantee({", ".join(who): known for known, who in names.items()}, ax=ax)

    @classmethod
    def from_guarantee(
        cls, guarantee: Guarantee | Mapping[str, Guarantee], *, ax: Axes | None = None
    ) -> Self:
        """Draw one guarantee, or several by their names: `GaussianDP(0.5)`, or a dict of them."""
        if isinstance(guarantee, Guarantee):
            guarantee = {guarantee.describe(): guarantee}
        return cls(guarantees=guarantee).plot(ax=ax)

    def plot(self, ax: Axes | None = None) -> Self:
        """Draw a curve for each guarantee, and the diagonal of perfect privacy; return itself."""
        ax = self._axes(ax, 5.2, 4.8)
        rates = self.false_positive_rates
        self.lines_: list[Any] = []
        self.fill_between_: list[Any] = []
        for name, least in self.false_negative_rates.items():
            label = f"{name}: right at most {percent_up(self.accuracies[name])}"
            self.lines_ += ax.plot(rates, least, label=label)
            color = self.lines_[-1].get_color()
            self.fill_between_.append(ax.fill_between(rates, least, color=color, alpha=0.15))
        label = "perfect privacy: right 50 %"
        self.diagonal_: Any = ax.plot([0, 1], [1, 0], color="0.35", linestyle="--", label=label)[0]
        ax.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
        ax.set_xlabel("false positive rate of the attack")
        ax.set_ylabel("false negative rate of the best attack")
        ax.text(0.03, 0.03, "impossible", color="0.35")
        ax.legend(frameon=False, fontsize=9, loc="upper right")
        return self
