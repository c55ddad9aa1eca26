"""The forest plot of the coefficients of a fit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np

from skdpadmm.inference import CoefficientInference, summary
from skdpadmm.inspection._display import Display, write_below

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class CoefficientDisplay(Display):
    """Forest plot: coefficients or odds ratios of a fit with their confidence intervals.

    A hollow mark has no interval. Make it by `from_estimator`.

    Parameters
    ----------
    table : CoefficientInference
        Of `skdpadmm.inference.summary`.
    level : float, default=0.95
        Of each interval, in (0, 1).

    Attributes
    ----------
    values : ndarray of shape (n_coefficients, 3)
        Estimates, and lower and upper ends of the intervals.
    ax_, figure_ : matplotlib Axes and Figure
    errorbar_ : ErrorbarContainer
        Of the coefficients that have an interval.
    points_ : Line2D
        The estimates of those that have none.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpadmm import DPAdmmRidge
    >>> from skdpadmm.inspection import CoefficientDisplay
    >>> X = np.random.default_rng(0).uniform(-1, 1, size=(5000, 2))
    >>> model = DPAdmmRidge(feature_bounds=(-1, 1), target_bounds=(-1, 1), intervals=True)
    >>> CoefficientDisplay.from_estimator(model.fit(X, X @ [0.5, 0.0]))  # doctest: +SKIP
    <...>
    """

    def __init__(self, *, table: CoefficientInference, level: float = 0.95) -> None:
        self.table, self.level = table, level
        self.values = table.table(level)

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        *,
        level: float = 0.95,
        exponentiate: bool | None = None,
        ax: Axes | None = None,
    ) -> Self:
        """Draw the table of `skdpadmm.inference.summary` of a fitted estimator or pipeline."""
        return cls(table=summary(estimator, exponentiate=exponentiate), level=level).plot(ax=ax)

    def plot(self, ax: Axes | None = None) -> Self:
        """Draw all but the intercept, from top to bottom; return itself."""
        table = self.table
        shown = np.array([name != "intercept" for name in table.names])
        ax = self._axes(ax, 6.4, 1.2 + 0.32 * int(shown.sum()))
        names = zip(table.names, table.units, strict=True)
        labels = np.array([f"{name} ({unit})" for name, unit in names])
        place = np.cumsum(shown) - 1.0
        has_one = shown & table.known
        value, low, high = self.values[has_one].T
        reach = (value - low, high - value)
        self.errorbar_: Any = ax.errorbar(value, place[has_one], xerr=reach, fmt="o", capsize=3)
        none = shown & ~table.known
        style: dict[str, Any] = {"color": self.errorbar_[0].get_color(), "fillstyle": "none"}
        self.points_: Any = ax.plot(self.values[none, 0], place[none], "o", **style)[0]
        ax.axvline(float(table.exponentiate), color="0.35", linestyle="--", linewidth=1)
        ax.set_yticks(place[shown], labels[shown])
        ax.set_ylim(shown.sum() - 0.5, -0.5)
        if table.exponentiate:
            from matplotlib.ticker import LogLocator, NullFormatter

            ax.set_xscale("log")
            ax.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
            ax.xaxis.set_major_formatter("{x:g}")
            ax.xaxis.set_minor_formatter(NullFormatter())
        ax.set_xlabel(f"{table.effect}, with {100 * self.level:g} % confidence intervals")
        if none.any():
            write_below(ax, f"Hollow: {table.reason.removeprefix('none: ')}.")
        return self
