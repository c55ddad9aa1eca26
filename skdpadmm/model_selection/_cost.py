"""What an ordinary search of scikit-learn has cost."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import Any

from sklearn.utils.validation import check_is_fitted

from skdpadmm._candidates import (
    last_step,
    n_features_of_last_step,
    plan_candidate,
    require_one_that_spends,
    with_parameters,
)
from skdpadmm._folds import sizes_of_past_folds
from skdpadmm.ledger import compose_all
from skdpadmm.model_selection._checks import common_adversary, common_relation
from skdpadmm.privacy import Guarantee, Observer, PrivacyReport, Worst, worst

# Where nobody knows how many rows there were, a guarantee has to be the same for all of these.
_SIZES = (50, 1_000, 30_000, 1_000_000)


def search_cost(
    search: Any,
    *,
    n_samples: int | None = None,
    n_features: int | None = None,
    n_classes: int | None = None,
    fold_sizes: Sequence[int] | None = None,
) -> PrivacyReport:
    """Add up what the fits of a finished search of scikit-learn cost.

    Every candidate was fitted on every fold, and the best one once more. Each fit
    counts for every row, though each row is left out of some. Fits are planned at the sizes that
    they had and summed as a ledger sums them.

    Parameters
    ----------
    search : GridSearchCV or RandomizedSearchCV
        Fitted, over one of this package's estimators or over a Pipeline that ends in one.
    n_samples : int, default=None
        Number of rows of the data. None: the guarantees of the fits must not depend on it, as those
        of Gaussian releases do not.
    n_features : int, default=None
        Number of columns. None: those that the search has seen.
    n_classes : int, default=None
        Number of classes. None: those that the search has seen, or that are declared.
    fold_sizes : sequence of int, default=None
        How many rows each fold trained on, needed only where a guarantee depends on it and `cv`
        does not tell, as with groups. None: by `n_samples` and `cv`.

    Returns
    -------
    PrivacyReport
        Of all fits together. Selection and ``cv_results_`` have no guarantee whatever: their scores
        are exact.

    Raises
    ------
    ValueError
        If the search is not fitted, if a score is NaN, as those of failed fits are, if the cost
        depends on what is not known, if folds go by labels, as those of a classifier with an int
        for `cv` do, or if the search has other parameters than those it was fitted with.
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
    >>> cost = search_cost(search)
    >>> cost.subject, f"{cost.epsilon():.3f}", cost.not_covered[0]
    ('GridSearchCV of DPAdmmRidge, 7 fits', '0.289', 'selection and cv_results_: no guarantee')
    """
    check_is_fitted(search)
    if not hasattr(search, "cv_results_"):
        raise TypeError(
            f"Got a search of type {type(search).__name__}, expected GridSearchCV or"
            " RandomizedSearchCV. The cost of a private search is in its privacy_."
        )
    candidates: Sequence[Any] = search.cv_results_["params"]
    if "n_resources" in search.cv_results_:
        raise TypeError(
            f"Got a search of type {type(search).__name__}, expected one whose fits all see whole"
            " folds."
        )
    _require_scores(search.cv_results_)
    has_model = hasattr(search, "best_estimator_")
    if bool(search.refit) != has_model:
        raise ValueError(
            f"Got refit={search.refit!r}, expected that of the fit, which left"
            f" {'a' if has_model else 'no'} best_estimator_. Set it back."
        )
    n_features = _known(n_features, "n_features", getattr(search, "n_features_in_", None))
    if n_classes is None and hasattr(getattr(search, "best_estimator_", None), "classes_"):
        n_classes = len(search.best_estimator_.classes_)
    if n_samples is not None:
        n_samples = _known(n_samples, "n_samples", None)
    sizes = sizes_of_past_folds(search, n_samples, fold_sizes)
    is_known = sizes is not None and (n_samples is not None or not search.refit)
    wanted = {*(sizes or ()), *(() if n_samples is None else (n_samples,))}
    folds: Sequence[int | None] = sizes or [None] * int(search.n_splits_)
    fits: list[Guarantee] = []
    refits, first, deltas, is_simulation = [], [], [], False
    for parameters in candidates:
        candidate = with_parameters(search.estimator, parameters)
        last = last_step(candidate)
        if not hasattr(last, "plan"):
            raise TypeError(
                f"Got a search over {type(last).__name__}, expected an estimator of this package:"
                " what its fits cost is not known."
            )
        require_one_that_spends(candidate)
        width = n_features_of_last_step(candidate, n_features)
        plans = {
            n: plan_candidate(candidate, parameters, n, width, n_classes)[0]
            for n in sorted(wanted if is_known else wanted.union(_SIZES))
        }
        by_size: dict[int | None, Guarantee] = {n: plan.guarantee() for n, plan in plans.items()}
        if not is_known:
            missing = "n_samples" if n_samples is None else "fold_sizes"
            common = _of_all_sizes(list(by_size.values()), float(last.delta), missing)
            by_size = dict.fromkeys([*by_size, None], common)
        fits += [by_size[n] for n in folds]
        if search.refit:
            refits.append(by_size[n_samples])
        first.append(next(iter(plans.values())))
        if search.refit and len(first) == search.best_index_ + 1:
            is_simulation |= _require_as_fitted(search, plans.get(n_samples, first[-1]))
        deltas.append(float(last.delta))
        is_simulation |= last.random_state is not None
    observer, unit = common_adversary(first)
    name = f"{type(search).__name__} of {type(last_step(search.estimator)).__name__}"
    n_fits = len(fits) + bool(search.refit)
    return PrivacyReport(
        subject=f"{name}, {n_fits} fits",
        observers=(
            Observer(
                name=observer,
                sees=f"what {observer!r} sees of all fits, without their scores",
                unit=unit,
                neighboring=common_relation(first),
                guarantee=_sum(fits, refits),
            ),
        ),
        releases=(),
        delta=max(deltas),
        assumptions=(
            "Every fit counts for every row. That bounds the cost: each row is left out of some.",
            "Folds are public, and so are groups: no row decides which rows train together.",
            "The search and its estimator have the parameters that they were fitted with.",
        ),
        not_covered=(
            "selection and cv_results_: no guarantee",
            "Scores of the folds, which are exact, and all that was decided by them.",
            "Other fits on the same records: their costs add up.",
        ),
        simulation=(
            "random_state of the estimator fixes the noise, and fits share it: equal noise on"
            " different folds cancels."
            if is_simulation
            else ""
        ),
    )


def _require_scores(results: Mapping[str, Any]) -> None:
    """Refuse a search of which not every fit is known to have come to its end."""
    n_missing = sum(
        math.isnan(score)
        for name, scores in results.items()
        if name.startswith("split") and "_test_" in name
        for score in scores
    )
    if n_missing:
        raise ValueError(
            f"Got cv_results_ with {n_missing} scores that are NaN, expected none: fits that failed"
            " may have spent nothing, a part or all. Search with error_score='raise', or count fits"
            " in a ledger."
        )


def _require_as_fitted(search: Any, plan: Any) -> bool:
    """Refuse a search that was changed since it ran, as far as its best model tells.

    Searches and estimators know the parameters of today alone; a report is that of its fit.

    Parameters
    ----------
    search : GridSearchCV or RandomizedSearchCV
        With a ``best_estimator_``.
    plan : Plan
        Of its last fit.

    Returns
    -------
    bool
        Whether that fit was a simulation.
    """
    report = last_step(search.best_estimator_).privacy_
    (against,) = (line for line in report.observers if line.name == report.adversary)
    planned = (plan.adversary, plan.unit, plan.neighboring)
    is_other = planned != (report.adversary, against.unit, against.neighboring)
    if is_other or not _covers(plan.guarantee(), report.guarantee(), float(report.delta)):
        raise ValueError(
            f"Got a search whose best model has {report.guarantee().describe()}, and is planned"
            f" with {plan.guarantee().describe()}, expected what it was fitted with. Pass its"
            " n_samples, set the parameters of its estimator back, or give each search an"
            " estimator of its own, clone(estimator)."
        )
    return bool(report.simulation)


def _covers(planned: Guarantee, spent: Guarantee, delta: float) -> bool:
    levels = (delta, delta**0.5, 1e-3 * delta)
    return planned.dominates(spent) or all(
        spent.epsilon(level) <= planned.epsilon(level) * (1 + 1e-9) for level in levels
    )


def _known(value: int | None, name: str, seen: int | None) -> int:
    known = seen if value is None else value
    if not isinstance(known, Integral) or known < 1:
        raise ValueError(f"Got {name}={value!r}, expected an int: the search has not kept it.")
    return int(known)


def _sum(fits: Sequence[Guarantee], refits: Sequence[Guarantee]) -> Guarantee:
    """What all fits cost together with one of the refits, as a ledger would say."""
    if not refits:
        return compose_all(*Counter(fits).elements())
    # Which candidate it was came from exact scores: the dearest one bounds it.
    dearest: list[Guarantee] = []
    for one in refits:
        if not any(other.dominates(one) for other in dearest):
            dearest = [other for other in dearest if not one.dominates(other)]
            dearest.append(one)
    return worst(*(compose_all(*Counter([*fits, one]).elements()) for one in dearest))


def _of_all_sizes(guarantees: Sequence[Guarantee], delta: float, missing: str) -> Guarantee:
    """The guarantee of a fit, which is the same for all sizes that were planned for."""
    whole = worst(*guarantees)
    # Equal at one delta is not enough: sums go by the whole curve.
    levels = (delta, delta**0.5, 1e-3 * delta)
    spread = [[guarantee.epsilon(level) for guarantee in guarantees] for level in levels]
    is_one = any(_cases(guarantee) == _cases(whole) for guarantee in guarantees)
    if not is_one or any(max(row) > min(row) * (1.0 + 1e-6) for row in spread):
        raise ValueError(
            f"Got a search whose fits cost more or less by the number of rows, expected {missing}."
            " Pass it."
        )
    return whole


def _cases(guarantee: Guarantee) -> set[Guarantee]:
    whole = worst(guarantee)
    return set(whole.components) if isinstance(whole, Worst) else {whole}
