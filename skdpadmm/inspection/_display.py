"""The base of displays, and the display of a report."""

from __future__ import annotations

import math
from collections.abc import Sequence
from textwrap import fill
from typing import TYPE_CHECKING, Any, Self

from sklearn.utils.validation import check_is_fitted

from skdpadmm._pipelines import last_step
from skdpadmm.privacy import PrivacyReport, round_up

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Of more agents three are drawn: the lowest, the median and the highest.
_MOST_AGENTS = 10
# In points; it can be read where a picture is 700 pixels wide.
_NOTE_SIZE = 9


def require_pyplot() -> Any:
    """``matplotlib.pyplot``, or an ImportError that names the extra."""
    try:
        from matplotlib import pyplot as plt
    except ImportError as error:
        raise ImportError("Displays need matplotlib: pip install 'skdpadmm[plot]'") from error
    return plt


class Display:
    """Axes to draw on, kept as attributes."""

    def _axes(self, ax: Any, width: float, height: float) -> Any:
        """The given axes, or those of a new figure of this size in inches."""
        plt = require_pyplot()
        if ax is None:
            ax = plt.figure(figsize=(width, height), layout="constrained").add_subplot()
        ax.spines[["top", "right"]].set_visible(False)
        self.ax_, self.figure_ = ax, ax.figure
        return ax


def write_below(ax: Any, note: str) -> Any:
    """A caution below the label of the horizontal axis, in lines as long as the axes are wide."""
    points = 72 * ax.get_window_extent().width / ax.figure.dpi
    lines = fill(note, max(int(points / (0.55 * _NOTE_SIZE)), 30))
    style: dict[str, Any] = {"va": "top", "fontsize": _NOTE_SIZE, "color": "0.35"}
    where: dict[str, Any] = {"xycoords": ("axes fraction", ax.xaxis.label), "xytext": (0, -6)}
    return ax.annotate(
        lines, (0.0, 0.0), textcoords="offset points", annotation_clip=False, **where, **style
    )


class PrivacyReportDisplay(Display):
    """Bars of epsilon against each observer, with worst cases beside them.

    Make it by `from_estimator` or `from_report`.

    Parameters
    ----------
    report : PrivacyReport
    delta : float, default=None
        Delta at which epsilon is drawn, in [0, 1]; None means that of the report.

    Attributes
    ----------
    epsilons : dict of str to float
        Epsilon against each observer; inf if the fit is not private.
    worst_epsilons : dict of str to float
        Epsilon for taking part in every round, or for the worst path, if `epsilons` are averages.
    agent_epsilons : dict of label to float
        Epsilon of each agent against the adversary, if agents differ.
    ax_, figure_ : matplotlib Axes and Figure
    bars_, worst_bars_, agent_bars_ : list of Rectangle
        Bars of observers, of their worst cases, and of agents; of more than ten agents the lowest,
        the median and the highest.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpadmm import DPAdmmRidge
    >>> from skdpadmm.inspection import PrivacyReportDisplay
    >>> X = np.random.default_rng(0).uniform(-1, 1, size=(500, 2))
    >>> model = DPAdmmRidge(epsilon=0.5, feature_bounds=(-1, 1), target_bounds=(-2, 2))
    >>> model.fit(X, X.sum(axis=1))
    DPAdmmRidge(...)
    >>> PrivacyReportDisplay.from_estimator(model)  # doctest: +SKIP
    <...>
    """

    def __init__(self, *, report: PrivacyReport, delta: float | None = None) -> None:
        self.report = report
        self.delta = report.delta if delta is None else delta
        self.epsilons: dict[str, float] = {}
        self.worst_epsilons: dict[str, float] = {}
        self.agent_epsilons: dict[Any, float] = {}
        for seen in report.observers:
            self.epsilons[seen.name] = seen.guarantee.epsilon(self.delta)
            if seen.always is not None:
                self.worst_epsilons[seen.name] = seen.always.epsilon(self.delta)
            if seen.name == report.adversary and len(set(seen.per_agent)) > 1:
                epsilons = report.epsilon_per_agent(delta=self.delta).tolist()
                labels = report.agent_labels or range(len(epsilons))
                self.agent_epsilons = dict(zip(labels, epsilons, strict=True))

    @classmethod
    def from_estimator(
        cls, estimator: Any, *, delta: float | None = None, ax: Axes | None = None
    ) -> Self:
        """Draw the report of a fitted estimator, at no privacy loss.

        It has `privacy_`, or is a Pipeline that ends in one that does; the rest is as in
        `from_report`.
        """
        return cls.from_report(find_report(estimator), delta=delta, ax=ax)

    @classmethod
    def from_report(
        cls, report: PrivacyReport, *, delta: float | None = None, ax: Axes | None = None
    ) -> Self:
        """Draw a report, such as `privacy_` of a fit or what `search_cost` returns.

        Epsilon is drawn at `delta` in [0, 1], by default that of the report, into `ax`, by default
        a new figure. Errors name the invalid argument, or the extra ``skdpadmm[plot]``.
        """
        return cls(report=require_report(report), delta=delta).plot(ax=ax)

    def plot(self, ax: Axes | None = None) -> Self:
        """Draw a bar for each observer, and where agents differ for each agent; return itself."""
        report, agents = self.report, _few(self.agent_epsilons)
        ax = self._axes(ax, 6.4, max(1.6 + 0.34 * (len(self.epsilons) + len(agents)), 2.4))
        self.bars_: list[Any] = []
        self.worst_bars_: list[Any] = []
        self.agent_bars_: list[Any] = []
        names: list[str] = []
        units = {observer.unit for observer in report.observers}

        def bar(place: float, epsilon: float, before: str = "", **style: Any) -> list[Any]:
            """A bar with its figure beside it; no bar where epsilon is infinite."""
            is_finite = math.isfinite(epsilon)
            bars = ax.barh([place], [epsilon if is_finite else 0.0], **style)
            figure = round_up(epsilon) if is_finite else "not private"
            ax.bar_label(bars, [f"{before}{figure}"], padding=4, fontsize=9)
            return list(bars)

        for observer in report.observers:
            place, name = float(len(names)), observer.name
            worst = self.worst_epsilons.get(name)
            color = "C0" if name == report.adversary else "0.65"
            height, shift = (0.7, 0.0) if worst is None else (0.38, 0.2)
            self.bars_ += bar(place - shift, self.epsilons[name], color=color, height=height)
            if worst is not None:
                style = {"color": "white", "edgecolor": "0.35", "hatch": "////", "height": height}
                self.worst_bars_ += bar(place + shift, worst, "at worst: ", **style)
            names.append(name if len(units) == 1 else f"{name} ({observer.unit})")
            for label, epsilon in agents if name == report.adversary else ():
                self.agent_bars_ += bar(len(names), epsilon, color="C1", height=0.5)
                names.append(label)
        ax.set_yticks(range(len(names)), names)
        ax.invert_yaxis()
        # Room for the figures beside the bars.
        ax.margins(x=0.25)
        ax.set_xlim(0.0, None if any(map(math.isfinite, self.epsilons.values())) else 1.0)
        per_unit = f" per {units.pop()}" if len(units) == 1 else ""
        ax.set_xlabel(f"epsilon{per_unit} (delta={self.delta:g})")
        title = [report.subject]
        if len(report.observers) > 1:
            title.append(f"budget spent against: {report.adversary}")
        if report.simulation:
            title.append("SIMULATION")
            write_below(ax, "Simulation: no guarantee holds where the seed is known.")
        ax.set_title("\n".join(title), loc="left", fontsize=10)
        return self


def find_report(estimator: Any) -> PrivacyReport:
    """The report of a fitted estimator, or of the last step of a Pipeline."""
    last = last_step(estimator)
    check_is_fitted(last)
    if not hasattr(last, "privacy_"):
        raise ValueError(
            f"Got {type(last).__name__}, expected a fitted estimator with privacy_. For a search"
            " of scikit-learn use from_report(search_cost(search, ...))."
        )
    return require_report(last.privacy_)


def require_report(report: Any) -> PrivacyReport:
    """Refuse what is no report."""
    if not isinstance(report, PrivacyReport):
        raise ValueError(
            f"Got a report of type {type(report).__name__}, expected a PrivacyReport, such as"
            " privacy_ of a fitted estimator."
        )
    return report


def _few(epsilons: dict[Any, float]) -> Sequence[tuple[str, float]]:
    """All agents, or the lowest, the median and the highest of many."""
    n = len(epsilons)
    if n <= _MOST_AGENTS:
        return [(f"agent {label}", epsilon) for label, epsilon in epsilons.items()]
    ordered = sorted(epsilons.items(), key=lambda pair: pair[1])
    kept = {"lowest": ordered[0], "median": ordered[n // 2], "highest": ordered[-1]}
    return [(f"{rank} of {n}: agent {label}", eps) for rank, (label, eps) in kept.items()]
