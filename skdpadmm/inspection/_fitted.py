"""Reports on fitted objects of any kind: what they learnt with noise and without."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sklearn.utils.validation import check_is_fitted

from skdpadmm._document import Block, Document
from skdpadmm._numbers import percent_up
from skdpadmm._pipelines import Part, parts_of
from skdpadmm.privacy import Guarantee, PrivacyReport, round_up, worst
from skdpadmm.privacy.claims import ASSUMED, FIXED, Claims, claims_of_report, totals_of

# Of assumptions of fits: those that are told again beside a total.
_TOLD = ("none of them is real", "is not of this package")


@dataclass(frozen=True)
class FittedPart:
    """A part of a fitted object that learnt from data.

    Parameters
    ----------
    place : str
        Its place, such as ``pipeline.steps[0]``.
    name : str
        Its type.
    report : PrivacyReport or None
        Report of a private fit.
    problem : str
        Reason why it has no guarantee that adds up; empty if it has one.
    is_elsewhere : bool
        Whether it was fitted before the object that contains it.

    Examples
    --------
    >>> from skdpadmm.inspection import FittedPart
    >>> FittedPart("steps[0]", "StandardScaler", None, "learnt without noise", False).name
    'StandardScaler'
    """

    place: str
    name: str
    report: PrivacyReport | None
    problem: str
    is_elsewhere: bool

    @property
    def claims(self) -> Claims:
        """The guarantees against all observers, the adversary first; empty without a report."""
        return () if self.report is None else claims_of_report(self.report)


@dataclass(frozen=True, repr=False)
class FittedReport(Document):
    """Private fits in an object with their total, or the reasons why there is no total.

    Parameters
    ----------
    subject : str
    parts : tuple of FittedPart
        All parts that learnt from data.
    total : Guarantee or None
        Guarantee of all private fits together, the weakest of `totals`; None if `reasons` is not
        empty.
    delta : float
        Delta at which epsilons are printed: the largest of the fits.
    reasons : tuple of str
        Reasons why there is no total, each with a remedy.
    totals : tuple of (str, Guarantee), default=()
        Total against each observer that is the adversary of a fit.

    See Also
    --------
    privacy_report : Make one.
    """

    subject: str
    parts: tuple[FittedPart, ...]
    total: Guarantee | None
    delta: float
    reasons: tuple[str, ...]
    totals: tuple[tuple[str, Guarantee], ...] = ()

    def guarantee(self) -> Guarantee:
        """Return the total; a ValueError gives the reasons where there is none."""
        if self.total is None:
            raise ValueError(f"Got {self.subject} without a guarantee: {'; '.join(self.reasons)}.")
        return self.total

    def epsilon(self, delta: float | None = None) -> float:
        """Return epsilon of the total at ``delta``, by default the largest of the fits."""
        total, delta = self.guarantee(), self.delta if delta is None else delta
        # The total of one fit is stated as its own report states it.
        reports = [part.report for part in self.parts if part.report is not None]
        if len(reports) == 1 and reports[0].guarantee() == total:
            return reports[0].epsilon(delta=delta)
        return total.epsilon(delta)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able dictionary."""
        return {
            "subject": self.subject,
            "parts": [
                {"place": part.place, "name": part.name, "problem": part.problem}
                | {"is_elsewhere": part.is_elsewhere}
                | {"report": None if part.report is None else part.report.to_dict()}
                for part in self.parts
            ],
            "total": None if self.total is None else self.total.to_dict(),
            "totals": {name: total.to_dict() for name, total in self.totals},
            "assumes": ASSUMED,
            "delta": self.delta,
            "reasons": list(self.reasons),
        }

    def to_markdown(self) -> str:
        """Return the report as a section "Privacy" for a model card, in Markdown.

        That of each private fit, ``privacy_.to_markdown()``, has its releases and assumptions.
        """
        return self._model_card(self.subject)

    def _blocks(self) -> Iterator[Block]:
        yield Block("title", [f"Privacy of {self.subject}"])
        places: dict[tuple[str, ...], list[str]] = {}
        for part in self.parts:
            places.setdefault(_cells(part), []).append(part.place or "itself")
        rows = [
            (at[0] if len(at) == 1 else f"{at[0]} to {at[-1]}", str(len(at)), *cells)
            for cells, at in places.items()
        ]
        if rows:
            yield Block("table", ("place", "fits", "learnt", "guarantee"), rows)
        if self.total is None:
            yield Block("list", ["No guarantee:"], self.reasons)
        for name, total in self.totals:
            figure = round_up(total.epsilon(self.delta)), round_up(self.delta)
            accuracy = f"attack accuracy at most {percent_up(total.attack_accuracy())}"
            who = f" against {name}" if len(self.totals) > 1 else ""
            line = f"Total{who}: ({', '.join(figure)}), {total.describe()}, {accuracy}"
            yield Block("text", [line])
        if self.total is not None:
            yield Block("text", [f"A total assumes: {ASSUMED} {FIXED}"])
        if any(part.is_elsewhere and part.report is None for part in self.parts):
            yield Block("text", ["Fits elsewhere without noise are assumed to be of public rows."])
        # A fit to which nobody passed labels of agents looks like one of real agents.
        assumed = [line for part in self.parts if part.report for line in part.report.assumptions]
        if made_up := dict.fromkeys(line for line in assumed if any(w in line for w in _TOLD)):
            yield Block("text", [*made_up])


def _cells(part: FittedPart) -> tuple[str, str]:
    """What a part is, and its guarantee."""
    elsewhere = " (fitted elsewhere)" if part.is_elsewhere else ""
    if part.report is None:
        return part.name + elsewhere, "none"
    observer, relation, guarantee = part.claims[0]
    if part.report.epsilon() == float("inf"):
        return part.name + elsewhere, "not private"
    figure = f"({round_up(part.report.epsilon())}, {round_up(part.report.delta)})"
    words = f"{figure}, {guarantee.describe()}, {relation.describe()}, seen by {observer}"
    return part.name + elsewhere, words + (", SIMULATION" if part.report.simulation else "")


def privacy_report(obj: Any, *, include_simulated: bool = False) -> FittedReport:
    """Report private fits in an object, their total, and steps that learnt without noise.

    A Pipeline, a search or an ensemble contains several fits: private ones of this package, and
    others without noise. The report names them all. It has a total only if nothing learnt without
    noise; guarantees are composed as in a ledger.

    Parameters
    ----------
    obj : estimator, or list, tuple or dict of estimators
        Fitted: of this package, of scikit-learn, or containing such ones.
    include_simulated : bool, default=False
        Whether to sum fits whose noise follows from a seed as though ``random_state`` were None.

    Returns
    -------
    FittedReport

    Raises
    ------
    NotFittedError
        If an estimator is not fitted.
    TypeError
        If something is not an estimator.

    Notes
    -----
    Every fit counts for every record, so the total is an upper bound for an ensemble fitted on
    subsets of the rows. There is a total only if every part is known to have a guarantee or to
    learn nothing: classes of this package, and classes of scikit-learn that consist of their parts
    or treat each row by itself with their current parameters, but no subclasses. Encoders of
    scikit-learn are not among them, because one row can change the type of a column and so whether
    listed categories match. Use :class:`~skdpadmm.preprocessing.PublicTableTransformer` instead.
    The report cannot find fits that were not kept, or choices made by looking at data.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from skdpadmm import DPAdmmRidge, privacy_report
    >>> X = np.random.default_rng(0).uniform(-1, 1, size=(500, 2))
    >>> model = DPAdmmRidge(feature_bounds=(-1, 1), target_bounds=(-2, 2))
    >>> pipeline = make_pipeline(StandardScaler(), model).fit(X, X.sum(axis=1))
    >>> privacy_report(pipeline).reasons
    ('StandardScaler at steps[0] learnt from the data without noise. Use one of skdpadmm, or ...',)
    >>> round(privacy_report([model.fit(X, X[:, 0])]).epsilon(), 3)
    1.0
    """
    is_many = isinstance(obj, Mapping | list | tuple)
    roots = dict(obj if isinstance(obj, Mapping) else enumerate(obj if is_many else [obj]))
    for root in roots.values():
        if isinstance(root, type) or not hasattr(root, "get_params"):
            raise TypeError(f"Got {root!r}, expected a fitted estimator, or a list of them.")
        check_is_fitted(root)
    known = dict[int, Any]()
    parts = tuple(
        fit
        for key, root in roots.items()
        for part in parts_of(root, f"[{key!r}]" if is_many else "", known)
        for fit in _fits_of(part)
    )
    name = f"{len(roots)} objects" if is_many else type(obj).__name__
    reasons = [
        " ".join([part.name, *([f"at {part.place}"] if part.place else []), part.problem])
        for part in parts
        if part.problem and not (part.is_elsewhere and part.report is None)
    ]
    fits = Counter(part.claims for part in parts if part.claims)
    simulated = [part for part in parts if part.report is not None and part.report.simulation]
    if simulated and not include_simulated:
        reasons.append(
            f"fits with a seed: {len(simulated)}, whose noise can be drawn again. Fit with"
            " random_state=None, or pass include_simulated=True"
        )
    totals: dict[str, Guarantee] = {}
    if not fits:
        reasons.append("there is no private fit. Fit an estimator of skdpadmm")
    elif not reasons:
        try:
            totals = totals_of(fits)
        except (TypeError, ValueError) as error:
            reasons.append(str(error))
    total = worst(*totals.values()) if totals else None
    delta = max((float(part.report.delta) for part in parts if part.report), default=0.0)
    return FittedReport(name, parts, total, delta, tuple(reasons), tuple(totals.items()))


def _fits_of(part: Part) -> Iterator[FittedPart]:
    """Yield a part of what was fitted with its report if it has one, and agents that joined it."""
    report, problem = getattr(part.value, "privacy_", None), part.problem
    if not isinstance(report, PrivacyReport):
        report, problem = None, problem or "has no report. Use an estimator of skdpadmm"
    own, *newcomers = (report and report.fits) or (report,)
    name = type(part.value).__name__
    yield FittedPart(part.place, name, own, problem, part.is_elsewhere)
    for each in newcomers:
        (label,) = each.agent_labels
        place = f"{part.place}.joined_[{label!r}]".removeprefix(".")
        yield FittedPart(place, f"{name} of {label!r}", each, problem, part.is_elsewhere)
