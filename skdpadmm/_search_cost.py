"""What the fits of a search cost, before it and after it."""

from __future__ import annotations

import copy
import math
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from inspect import signature
from numbers import Integral
from typing import Any

import numpy as np
from sklearn import model_selection as ms
from sklearn.base import is_classifier
from sklearn.model_selection import (
    GridSearchCV,
    ParameterGrid,
    ParameterSampler,
    RandomizedSearchCV,
)

from skdpadmm._pipelines import (
    last_step,
    n_features_of_last_step,
    require_known,
    require_plan,
    with_parameters,
)
from skdpadmm.network import condition_of, ownership_of_labels
from skdpadmm.privacy import Guarantee, Observer, PrivacyReport
from skdpadmm.privacy.claims import (
    FIXED,
    SAME_ROWS,
    Claim,
    Claims,
    Relation,
    claims_of_report,
    totals_of,
    weakest,
)

# The rows that train depend on positions alone. Subclasses may look at rows.
_GIVEN = type(ms.check_cv([]))
_BY_POSITION = {ms.KFold, ms.LeaveOneOut, ms.PredefinedSplit, ms.RepeatedKFold, ms.ShuffleSplit}
_BY_POSITION |= {ms.TimeSeriesSplit, _GIVEN}


def claim_of(plan: Any, observer: str | None = None, who: str = "") -> Claim:
    """The guarantee of a planned fit against an observer, by default its adversary."""
    name = observer or plan.adversary
    relation = Relation(plan.unit, plan.neighboring, who if plan.unit != "record" else "")
    return Claim(name, relation, plan.guarantee(name))


def claims_of_fits(
    estimator: Any,
    candidates: Sequence[Mapping[str, Any]],
    sizes: Sequence[int],
    refit_size: int | None,
    table: Any = None,
    **shape: Any,
) -> list[Claims]:
    """The claims of all fits of a search: each candidate on each fold, and one of them once more.

    ``refit_size`` is None without a refit; a ``table`` has the column of agents; ``shape`` is what
    :func:`plan_fits` asks for.
    """
    # All fits of a search take the agents of one column; made-up ones are others in every fit.
    column = getattr(last_step(estimator), "agent_column", None)
    who = column if isinstance(column, str) else ""
    if who and who in getattr(table, "columns", ()):
        who = ownership_of_labels(table[who], n_samples=len(table)).name_of(who)

    def claims(n_samples: int) -> list[Claims]:
        plans, _ = plan_fits(estimator, candidates, n_samples, **shape)
        return [
            tuple(claim_of(plan, o, who) for o in dict.fromkeys((plan.adversary, *plan.observers)))
            for plan in plans
        ]

    fits = [fit for size, count in Counter(sizes).items() for fit in claims(size) * count]
    refits = [] if refit_size is None else claims(refit_size)
    # Which candidate is fitted once more is not known, or came from exact scores: the worst bounds
    # it. Under several relations the sum is refused all the same.
    same: dict[Any, list[Claims]] = {}
    for refit in refits:
        same.setdefault(tuple(claim[:2] for claim in refit), []).append(refit)
    return fits + [tuple(map(weakest, zip(*alike, strict=True))) for alike in same.values()]


def cost_of_search(
    search: Any, X: Any, y: Any, facts: Mapping[str, Any], require_here: Callable[[Any], None]
) -> list[Claims]:
    """Return the claims of all fits of a search that did not run yet.

    ``facts`` are other arguments of ``plan``; ``require_here`` refuses an estimator whose fits
    would be counted in another ledger.
    """
    n_samples, n_features = np.shape(X)
    # One plan for all: that of a private search holds for its trials together.
    candidates: list[dict[str, Any]] = [{}]
    estimator, sizes, refit_size = search, [n_samples], None
    if not callable(getattr(last_step(search), "plan", None)):
        candidates, estimator = _drawn(search), search.estimator
        sizes = sizes_of_folds(search, n_samples, candidates)
        refit_size = n_samples if search.refit else None
    for parameters in candidates:
        require_here(last_step(with_parameters(estimator, parameters)))
    n_classes = None if y is None else len(np.unique(np.asarray(y)))
    columns = getattr(X, "columns", None)
    shape = {"n_features": n_features, "n_classes": n_classes, "columns": columns, "facts": facts}
    return claims_of_fits(estimator, candidates, sizes, refit_size, X, **shape)


def _drawn(search: Any) -> list[dict[str, Any]]:
    """The candidates of a search of scikit-learn."""
    if type(search) is GridSearchCV:
        return list(ParameterGrid(search.param_grid))
    if type(search) is not RandomizedSearchCV:
        raise TypeError(
            f"Got {type(search).__name__}, expected GridSearchCV, RandomizedSearchCV, or an"
            " estimator or search with a method plan: the cost of others is not known in advance."
        )
    if not isinstance(search.random_state, Integral | np.random.RandomState) or (
        search.random_state is np.random.mtrand._rand
    ):
        raise ValueError(
            f"Got a RandomizedSearchCV with random_state={search.random_state!r}, expected an int:"
            " its candidates are not known before it runs."
        )
    # A generator would go on from where this leaves it, and so would a distribution.
    space, seed = copy.deepcopy((search.param_distributions, search.random_state))
    # Of a small grid, which fit repeats.
    with warnings.catch_warnings(action="ignore", category=UserWarning):
        return list(ParameterSampler(space, search.n_iter, random_state=seed))


def plan_fits(
    estimator: Any,
    candidates: Iterable[Mapping[str, Any]],
    n_samples: int,
    n_features: int,
    n_classes: int | None,
    *,
    columns: Any = None,
    facts: Mapping[str, Any] | None = None,
    **budget: float,
) -> tuple[list[Any], dict[str, type[Warning]]]:
    """The plan of a fit of each candidate, and what plans warned of; `facts` win over the rest."""
    plans, warned = [], dict[str, type[Warning]]()
    for parameters in candidates:
        candidate = with_parameters(estimator, parameters, **budget)
        require_plan(candidate)
        last, known = last_step(candidate), dict(facts or {})
        if condition := condition_of(getattr(last, "partition", "iid")):
            raise ValueError(
                f"Got partition={last.partition!r}, expected 'iid' or 'quantity', or agents by"
                f" their column: {condition}"
            )
        require_known(candidate)
        if "n_features" not in known:
            known["n_features"] = n_features_of_last_step(candidate, n_features, columns)
        asked = signature(last.plan).parameters
        # Where classes are not declared, an estimator takes the set of labels to be public.
        if "n_classes" in asked and getattr(last, "classes", None) is None:
            known.setdefault("n_classes", n_classes)
        if last is candidate and "columns" in asked:
            known.setdefault("columns", columns)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            plans.append(last.plan(n_samples, **known))
        warned |= {str(line.message): line.category for line in caught}
    return plans, warned


def sizes_of_folds(
    search: Any, n_samples: int, candidates: Iterable[Mapping[str, Any]]
) -> list[int]:
    """Return how many rows train in each fold of a search of scikit-learn."""
    models = [last_step(with_parameters(search.estimator, each)) for each in candidates]
    if any(getattr(model, "neighboring", None) == "add_remove" for model in models):
        raise ValueError(
            "Got a search with neighboring='add_remove', expected 'zero_out' or 'replace_one': one"
            " record more moves others between folds, which follow from how many there are."
        )
    if any(getattr(model, "max_rows_per_person", None) for model in models):
        raise ValueError(
            "Got a search over fits of persons, expected one over fits of records: which rows a"
            " fold has depends on how many each person has, so it cannot be planned. Search with"
            " cv=GroupKFold(5, shuffle=True, random_state=0) and a ledger, and ask it afterwards."
            f" A total assumes: {SAME_ROWS}"
        )
    if hasattr(search.cv, "__next__"):
        raise ValueError("Got cv as an iterator, which can be used once, expected cv=list(...).")
    # Any labels of two classes: an int means folds by classes, for a classifier.
    folds = ms.check_cv(search.cv, [0, 1], classifier=is_classifier(search.estimator))
    if type(folds) not in _BY_POSITION:
        raise ValueError(
            f"Got cv={search.cv!r}, which is {type(folds).__name__}, expected folds by positions,"
            " that no row changes. Search with cv=KFold(5, shuffle=True, random_state=0), or with"
            f" positions that follow from public facts. A total assumes: {SAME_ROWS}"
        )
    # A generator stays where it is: fit draws the same from it.
    splits = copy.deepcopy(folds).split(np.zeros((n_samples, 1)))
    return [_n_rows(train, n_samples) for train, _ in splits]


def _n_rows(positions: Any, n_samples: int) -> int:
    """How many rows a part of a split has, by their positions or by a mask; each of them once."""
    rows = np.asarray(positions)
    if rows.dtype == bool:
        return int(rows.sum())
    # Counted from the end they are the same rows.
    if len(np.unique(np.where(rows < 0, rows + n_samples, rows))) < len(rows):
        raise ValueError(
            "Got a fold in which rows are repeated, expected each at most once: a record that is"
            " there several times is protected less than a fit claims. Draw without replacement."
        )
    return len(rows)


def covers(planned: Guarantee, spent: Guarantee, delta: float) -> bool:
    """Whether a fit spent no more than planned: equal at one delta is not enough for sums."""
    some = delta or 1e-5  # Pure epsilons may be equal at 0 and nowhere else.
    return planned.dominates(spent) or all(
        spent.epsilon(level) <= planned.epsilon(level) * (1 + 1e-9)
        for level in (delta, some**0.5, 1e-3 * some)
    )


def common_relation(claims: Sequence[Claim]) -> tuple[str, Relation]:
    """The adversary and the relation of all fits, which have to be one."""
    found = sorted({f"{claim.observer}: {claim.relation.describe()}" for claim in claims})
    if len(found) > 1:
        raise ValueError(
            f"Got candidates under {'; '.join(found)}, expected one adversary, one unit and one"
            " neighbouring relation, which add up. Search over each by itself."
        )
    return claims[0].observer, claims[0].relation


def search_cost(
    search: Any,
    *,
    n_samples: int,
    n_features: int | None = None,
    n_classes: int | None = None,
    columns: Any = None,
) -> PrivacyReport:
    """Add up what the fits of a search of scikit-learn cost, before it or after it.

    Every candidate is fitted on every fold, and the best one once more. Each fit counts for every
    row, though each row is left out of some. Fits are planned at the sizes that they have and
    summed as a ledger sums them.

    Parameters
    ----------
    search : GridSearchCV or RandomizedSearchCV
        Over one of this package's estimators or over a Pipeline that ends in one; fitted or not.
    n_samples : int
        Number of rows of the data.
    n_features, n_classes : int, default=None
        Number of columns, before the steps of a pipeline, and of classes. None: those that a fitted
        search has seen, or the number of `columns`.
    columns : list of str, default=None
        Names of the columns of a table. None: those that a fitted search has seen.

    Returns
    -------
    PrivacyReport
        Of all fits together. Selection and ``cv_results_`` have no guarantee whatever: their scores
        are exact.

    Raises
    ------
    ValueError
        If a score is NaN, as those of failed fits are; if the cost depends on what is not known, as
        on random candidates without a seed; if folds go by labels, as those of a classifier with an
        int for `cv` do; if a step may learn without noise; or if a fitted search has other
        parameters than those it was fitted with.
    TypeError
        If the cost of a fit is not known, or if fits do not compose.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.model_selection import GridSearchCV
    >>> from skdpadmm import DPAdmmRidge
    >>> from skdpadmm.model_selection import search_cost
    >>> X = np.random.default_rng(0).uniform(-1, 1, size=(1000, 2))
    >>> model = DPAdmmRidge(epsilon=0.1, feature_bounds=(-1, 1), target_bounds=(-2, 2))
    >>> search = GridSearchCV(model, {"alpha": [0.0, 10.0]}, cv=3).fit(X, X.sum(axis=1))
    >>> cost = search_cost(search, n_samples=1000)
    >>> cost.subject, f"{cost.epsilon():.3f}", cost.not_covered[0]
    ('GridSearchCV of DPAdmmRidge, 7 fits', '0.289', 'selection and cv_results_: no guarantee')
    """
    if type(search) not in (GridSearchCV, RandomizedSearchCV):  # subclasses may fit more
        raise TypeError(
            f"Got a search of type {type(search).__name__}, expected GridSearchCV or Randomized"
            "SearchCV, whose fits see whole folds. The cost of a private one is in its privacy_."
        )
    is_fitted = hasattr(search, "cv_results_")
    best: Any = getattr(search, "best_estimator_", None)
    candidates = search.cv_results_["params"] if is_fitted else _drawn(search)
    n_features = n_features or getattr(search, "n_features_in_", None)
    if n_features is None and columns is not None:
        n_features = len(columns)
    if n_classes is None and hasattr(best, "classes_"):
        n_classes = len(best.classes_)
    if columns is None:
        columns = getattr(search, "feature_names_in_", None)
    known: dict[str, Any] = {"n_features": n_features, "n_classes": n_classes, "columns": columns}
    for name, value in (("n_samples", n_samples), ("n_features", n_features)):
        if not isinstance(value, int | np.integer) or value < 1:
            raise ValueError(f"Got {name}={value!r}, expected an int: the search did not store it.")
    sizes = sizes_of_folds(search, n_samples, candidates)
    has_refit = best is not None if is_fitted else bool(search.refit)
    fits = claims_of_fits(
        search.estimator, candidates, sizes, n_samples if has_refit else None, **known
    )
    adversary, relation = common_relation([fit[0] for fit in fits])
    models = [last_step(with_parameters(search.estimator, c)) for c in candidates]
    is_simulation = any(model.random_state is not None for model in models)
    if is_fitted:
        _require_complete(search.cv_results_)
        _require_unchanged(search, n_samples, len(sizes), known)
        is_simulation |= best is not None and bool(last_step(best).privacy_.simulation)
    name = f"{type(search).__name__} of {type(last_step(search.estimator)).__name__}"
    sees = f"what {adversary!r} sees of all fits, without their scores"
    simulation = (
        "random_state of the estimator fixes the noise, and fits share it: equal noise on different"
        " folds cancels."
    )
    (total,) = totals_of(Counter(fits), None, adversary).values()
    same = "The search and its estimator have the parameters that they were fitted with."
    return PrivacyReport(
        subject=f"{name}, {len(fits)} fits",
        observers=(Observer(adversary, sees, *relation[:2], total),),
        releases=(),
        delta=max(float(model.delta) for model in models),
        assumptions=(
            "Every fit counts for every row. That bounds the cost: each row is left out of some.",
            SAME_ROWS,
            FIXED,
            *([same] if is_fitted else []),
        ),
        not_covered=(
            "selection and cv_results_: no guarantee",
            "Scores of the folds, which are exact, and all that was decided by them.",
            "Other fits on the same records: their costs add up.",
        ),
        simulation=simulation if is_simulation else "",
    )


def _require_complete(results: Mapping[str, Any]) -> None:
    """Refuse a search with failed fits: what these have spent is not known."""
    names = [name for name in results if name.startswith("split") and "_test_" in name]
    if n_missing := sum(math.isnan(score) for name in names for score in results[name]):
        raise ValueError(
            f"Got cv_results_ with {n_missing} scores that are NaN, expected none: what failed fits"
            " have spent is not known. Search with error_score='raise', or count fits in a ledger."
        )


def _require_unchanged(search: Any, n_samples: int, n_folds: int, known: dict[str, Any]) -> None:
    """Refuse a search whose plans of today are not those of its fits, as far as these tell."""
    best: Any = getattr(search, "best_estimator_", None)
    is_changed = n_folds != search.n_splits_ or bool(search.refit) != (best is not None)
    if best is not None:
        report = last_step(best).privacy_
        (plan,), _ = plan_fits(search.estimator, [search.best_params_], n_samples, **known)
        # Estimators know their parameters of today alone.
        was, now = claims_of_report(report)[0], claim_of(plan)
        is_changed |= (was.observer, was.relation[:2]) != (now.observer, now.relation[:2])
        is_changed |= not covers(plan.guarantee(), report.guarantee(), float(report.delta))
    if is_changed:
        raise ValueError(
            f"Got n_samples={n_samples} and parameters whose plans are not those of the fits,"
            " expected what it was fitted with. Pass its n_samples, and set parameters back."
        )
