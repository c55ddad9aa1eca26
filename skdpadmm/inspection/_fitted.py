"""What a fitted object of any kind has learnt from data, with noise and without."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sklearn.base import MetaEstimatorMixin
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.preprocessing import PolynomialFeatures
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted

from skdpadmm._candidates import acts_by_row, public_name
from skdpadmm.ledger import LedgerError
from skdpadmm.ledger._account import Claim, Relation, total_of
from skdpadmm.privacy import Guarantee, PrivacyReport, round_up
from skdpadmm.privacy._document import Block, Document
from skdpadmm.privacy._numbers import percent_up

_FOLDS = "did not keep its fits of folds, and what they cost is not known"
_SCORES = (
    "chose by scores without noise, and did not keep its fits of folds. What they cost:"
    " skdpadmm.model_selection.search_cost(search, n_samples=...)"
)


def _none(_: Any) -> str:
    return ""


def _columns(model: Any) -> str:
    # One cell may change the type of a column, and a function may look at all of them.
    is_chosen = any(callable(columns) for _, _, columns in model.transformers)
    return "chooses columns by what is in them. Name the columns" if is_chosen else ""


def _folds(model: Any) -> str:
    return "" if model.cv in (None, "prefit") else _FOLDS


def _stack(model: Any) -> str:
    return "" if isinstance(model.cv, str) and model.cv == "prefit" else _FOLDS


def _bag(model: Any) -> str:
    if model.oob_score:
        return "oob_score_ is exact. Set oob_score=False"
    # A record that is there several times is protected less than each fit claims.
    return (
        "rows are repeated, and so protected less. Set bootstrap=False" if model.bootstrap else ""
    )


# What consists of its parts, and why it may be more than the sum of their fits. Anything else that
# is fitted has learnt something itself. Not OneVsOne: labels decide how many rows a part has.
_CONTAINERS: dict[str, Callable[[Any], str]] = {
    "sklearn.pipeline.Pipeline": _none,
    "sklearn.pipeline.FeatureUnion": _none,
    "sklearn.compose.ColumnTransformer": _columns,
    "sklearn.compose.TransformedTargetRegressor": _none,
    "sklearn.multiclass.OneVsRestClassifier": _none,
    "sklearn.multioutput.MultiOutputClassifier": _none,
    "sklearn.multioutput.MultiOutputRegressor": _none,
    "sklearn.multioutput.ClassifierChain": _folds,
    "sklearn.multioutput.RegressorChain": _folds,
    "sklearn.ensemble.VotingClassifier": _none,
    "sklearn.ensemble.VotingRegressor": _none,
    "sklearn.ensemble.StackingClassifier": _stack,
    "sklearn.ensemble.StackingRegressor": _stack,
    "sklearn.ensemble.BaggingClassifier": _bag,
    "sklearn.ensemble.BaggingRegressor": _bag,
    "sklearn.model_selection.GridSearchCV": lambda _: _SCORES,
    "sklearn.model_selection.RandomizedSearchCV": lambda _: _SCORES,
    "sklearn.calibration._CalibratedClassifier": _none,
    "sklearn.calibration.CalibratedClassifierCV": _none,  # its calibrators are without noise
}
# They learn nothing but the set of labels, which estimators assume to be public too.
_LABELS = ("sklearn.preprocessing.LabelEncoder", "sklearn.preprocessing.LabelBinarizer")
# Constructors of others take models that are cloned before they are fitted.
_FITTED_IN_PLACE = ("steps", "transformer_list", "transformers_")


@dataclass(frozen=True)
class FittedPart:
    """A part of a fitted object that learnt from data.

    Parameters
    ----------
    place : str
        Where it is, such as ``pipeline.steps[0]``.
    name : str
        Its type.
    report : PrivacyReport or None
        Of a private fit.
    problem : str
        Why it has no guarantee that adds up; empty if it has one.
    is_elsewhere : bool
        Whether it was fitted before the object it is in.

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
    def claim(self) -> Claim | None:
        """The guarantee against the adversary."""
        if self.report is None:
            return None
        (line,) = (line for line in self.report.observers if line.name == self.report.adversary)
        return Claim(line.name, Relation(line.unit, line.neighboring), line.guarantee)


@dataclass(frozen=True, repr=False)
class FittedReport(Document):
    """What the parts of a fitted object cost together, or why nobody can say.

    Parameters
    ----------
    subject : str
    parts : tuple of FittedPart
        All that learnt from data.
    total : Guarantee or None
        Of all private fits together; None where there is a reason against it.
    delta : float
        The delta at which epsilons are printed: the largest of the fits.
    reasons : tuple of str
        Why there is no total.

    See Also
    --------
    privacy_report : Make one.
    """

    subject: str
    parts: tuple[FittedPart, ...]
    total: Guarantee | None
    delta: float
    reasons: tuple[str, ...]

    def guarantee(self) -> Guarantee:
        """Return the total; a ValueError gives the reasons where there is none."""
        if self.total is None:
            raise ValueError(f"Got {self.subject} without a guarantee: {'; '.join(self.reasons)}.")
        return self.total

    def epsilon(self, delta: float | None = None) -> float:
        """Return epsilon of the total at ``delta``, by default the largest of the fits."""
        return self.guarantee().epsilon(self.delta if delta is None else delta)

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
        else:
            figure = round_up(self.epsilon()), round_up(self.delta)
            accuracy = f"attack accuracy at most {percent_up(self.total.attack_accuracy())}"
            total = f"({', '.join(figure)}), {self.total.describe()}, {accuracy}"
            yield Block("text", [f"Total: {total}"])
        if any(part.is_elsewhere and part.report is None for part in self.parts):
            yield Block("text", ["Fits elsewhere without noise are assumed to be of public rows."])
        # A fit to which nobody passed labels of agents looks like one of real agents.
        assumed = [line for part in self.parts if part.report for line in part.report.assumptions]
        if made_up := dict.fromkeys(line for line in assumed if "none of them is real" in line):
            yield Block("text", [*made_up])
        yield Block("text", ["Other fits on the same records, also of the same objects, add up."])


def _cells(part: FittedPart) -> tuple[str, str]:
    """What a part is, and its guarantee."""
    elsewhere = " (fitted elsewhere)" if part.is_elsewhere else ""
    if part.claim is None or part.report is None:
        return part.name + elsewhere, "none"
    relation, guarantee = part.claim.relation.describe(), part.claim.guarantee
    if part.report.epsilon() == float("inf"):
        return part.name + elsewhere, "not private"
    figure = f"({round_up(part.report.epsilon())}, {round_up(part.report.delta)})"
    words = f"{figure}, {guarantee.describe()}, {relation}, seen by {part.claim.observer}"
    return part.name + elsewhere, words + (", SIMULATION" if part.report.simulation else "")


def privacy_report(obj: Any, *, include_simulated: bool = False) -> FittedReport:
    """Report what a fitted object has learnt from data, and what all of it costs together.

    A Pipeline, a search or an ensemble contains several fits: private ones of this package, and
    others without noise. All are found and named. There is a total only if nothing learnt without
    noise; guarantees are summed as a ledger sums them.

    Parameters
    ----------
    obj : estimator, or list, tuple or dict of estimators
        Fitted: of this package, of scikit-learn, or containing such ones.
    include_simulated : bool, default=False
        Whether to sum fits whose noise follows from a seed as if nobody knew the seed.

    Returns
    -------
    FittedReport

    Raises
    ------
    NotFittedError
        If an estimator is not fitted.
    TypeError
        If there is something that is no estimator.

    Notes
    -----
    Every fit counts for every record, so an ensemble fitted on subsets of the rows costs at most
    the sum. A type that is not known to consist of its parts counts as one that learnt without
    noise. Fits that were not kept are not found, nor are choices made by looking at data.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from skdpadmm import DPAdmmRidge, privacy_report
    >>> X = np.random.default_rng(0).uniform(-1, 1, size=(500, 2))
    >>> model = DPAdmmRidge(feature_bounds=(-1, 1), target_bounds=(-2, 2))
    >>> privacy_report(make_pipeline(StandardScaler(), model).fit(X, X.sum(axis=1))).reasons
    ('StandardScaler at steps[0] learnt from the data without noise',)
    >>> round(privacy_report([model.fit(X, X[:, 0])]).epsilon(), 3)
    1.0
    """
    roots = list(obj.values()) if isinstance(obj, Mapping) else obj
    is_many = isinstance(roots, list | tuple)
    for root in roots if is_many else [roots]:
        if isinstance(root, type) or not hasattr(root, "get_params"):
            raise TypeError(f"Got {root!r}, expected a fitted estimator, or a list of them.")
        check_is_fitted(root)
    parts = tuple(_parts(roots, "", set(), is_elsewhere=False))
    name = f"{len(roots)} objects" if is_many else type(obj).__name__
    reasons = [
        " ".join([part.name, *([f"at {part.place}"] if part.place else []), part.problem])
        for part in parts
        if part.problem and not (part.is_elsewhere and part.report is None)
    ]
    claims = Counter(part.claim for part in parts if part.claim is not None)
    simulated = [part for part in parts if part.report is not None and part.report.simulation]
    if simulated and not include_simulated:
        reasons.append(f"fits with a seed: {len(simulated)}; whoever knows it can remove noise")
    if len(seen := {claim.observer for claim in claims}) > 1:
        reasons.append(f"guarantees against different observers {sorted(seen)} do not add up")
    total = None
    if not claims:
        reasons.append("there is no private fit")
    elif not reasons:
        try:
            total = total_of(claims, None)
        except (LedgerError, TypeError, ValueError) as error:
            reasons.append(str(error))
    deltas = [float(part.report.delta) for part in parts if part.report is not None]
    return FittedReport(name, parts, total, max(deltas, default=0.0), tuple(reasons))


def _parts(
    value: Any, place: str, seen: set[int], *, is_elsewhere: bool, has_run: bool = False
) -> Iterator[FittedPart]:
    """All that learnt from data, in the order of attributes; each object once."""
    inside: list[tuple[str, Any, bool]] = []
    if isinstance(value, Mapping):
        inside = [(f"{place}[{key!r}]", each, False) for key, each in value.items()]
    elif isinstance(value, list | tuple):
        inside = [(f"{place}[{i}]", each, False) for i, each in enumerate(value)]
    elif _is_model(value, has_run) and id(value) not in seen:
        seen.add(id(value))
        part, frozen = _part(value, place, is_elsewhere), isinstance(value, FrozenEstimator)
        if part is not None:
            yield part
        if frozen:
            inside, is_elsewhere = [(place, value.estimator, False)], True
        elif part is None or part.report is None:
            inside = list(_fitted_attributes(value, place))
    for where, each, was_used in inside:
        yield from _parts(each, where, seen, is_elsewhere=is_elsewhere, has_run=was_used)


def _is_model(value: Any, has_run: bool) -> bool:
    """Whether it has been fitted, or is a step that has run, whatever it looks like."""
    if has_run and hasattr(value, "fit"):
        return True
    if isinstance(value, type) or not (
        hasattr(value, "get_params") or public_name(value) in _CONTAINERS
    ):
        return False
    try:
        if hasattr(value, "get_params"):
            check_is_fitted(value)
    except NotFittedError:  # a prototype, unless it holds more than its parameters
        names = vars(value).keys() - value.get_params(deep=False).keys()
        return any(not name.startswith("_") for name in names)
    except TypeError:  # no estimator
        return False
    return True


def _part(model: Any, place: str, is_elsewhere: bool) -> FittedPart | None:
    """What an object has learnt itself; None if that is nothing."""
    if isinstance(model, FrozenEstimator):  # whose attributes are those of what is in it
        return None
    report, kind, problem = getattr(model, "privacy_", None), public_name(model), ""
    if not isinstance(report, PrivacyReport):
        report = None
        by_row = isinstance(model, PolynomialFeatures) or kind in _LABELS
        if kind in _CONTAINERS:
            problem = _CONTAINERS[kind](model)
        elif not (by_row or acts_by_row(model)):
            problem = "learnt from the data without noise"
            if isinstance(model, MetaEstimatorMixin):
                problem = "is not known to be the sum of its parts"
            elif hasattr(model, "__sklearn_tags__") and not get_tags(model).requires_fit:
                problem = "has a function that may look at all rows"
        if not problem:
            return None
    return FittedPart(place, type(model).__name__, report, problem, is_elsewhere)


def _fitted_attributes(model: Any, place: str) -> Iterator[tuple[str, Any, bool]]:
    """What a fit has set, and whether it has run: not the parameters, of which fits make clones."""
    parameters = model.get_params(deep=False) if hasattr(model, "get_params") else {}
    prefix = f"{place}." if place else ""
    for name, value in vars(model).items():
        if name in _FITTED_IN_PLACE:
            for i, step in enumerate(value):
                yield f"{prefix}{name}[{i}]", step[1], True
        elif name in parameters or name.startswith("_"):
            continue
        elif not any(value is prototype for prototype in parameters.values()):
            yield f"{prefix}{name}", value, False
