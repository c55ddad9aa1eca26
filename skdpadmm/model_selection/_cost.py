"""What an ordinary search of scikit-learn has cost."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from skdpadmm._candidates import (
    is_by_group,
    last_step,
    n_features_of_last_step,
    public_folds,
    require_one_that_spends,
    sizes_of_folds,
    with_parameters,
)
from skdpadmm.ledger import compose_all
from skdpadmm.model_selection._checks import common_relation
from skdpadmm.model_selection._plan import covers, plan_fits
from skdpadmm.privacy import Guarantee, Observer, PrivacyReport, worst


def search_cost(
    search: Any,
    *,
    n_samples: int,
    n_features: int | None = None,
    n_classes: int | None = None,
    fold_sizes: Sequence[int] | None = None,
) -> PrivacyReport:
    """Add up what the fits of a finished search of scikit-learn cost.

    Every candidate was fitted on every fold, and the best one once more. Each fit counts for every
    row, though each row is left out of some. Fits are planned at the sizes that they had and summed
    as a ledger sums them.

    Parameters
    ----------
    search : GridSearchCV or RandomizedSearchCV
        Fitted, over one of this package's estimators or over a Pipeline that ends in one.
    n_samples : int
        Number of rows of the data.
    n_features, n_classes : int, default=None
        Number of columns and of classes. None: those that the search has seen.
    fold_sizes : sequence of int, default=None
        How many rows each fold trained on. None: by `n_samples` and `cv`, unless that is an
        iterator or goes by groups.

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
    >>> cost = search_cost(search, n_samples=1000)
    >>> cost.subject, f"{cost.epsilon():.3f}", cost.not_covered[0]
    ('GridSearchCV of DPAdmmRidge, 7 fits', '0.289', 'selection and cv_results_: no guarantee')
    """
    check_is_fitted(search)
    results = getattr(search, "cv_results_", {"n_resources": None})
    if "n_resources" in results:
        raise TypeError(
            f"Got a search of type {type(search).__name__}, expected GridSearchCV or"
            " RandomizedSearchCV, whose fits all see whole folds. The cost of a private search is"
            " in its privacy_."
        )
    _require_scores(results)
    has_model = hasattr(search, "best_estimator_")
    if bool(search.refit) != has_model:
        raise ValueError(
            f"Got refit={search.refit!r}, expected that of the fit, which left"
            f" {'a' if has_model else 'no'} best_estimator_. Set it back."
        )
    if n_features is None:
        n_features = getattr(search, "n_features_in_", None)
    if n_classes is None and hasattr(getattr(search, "best_estimator_", None), "classes_"):
        n_classes = len(search.best_estimator_.classes_)
    n_samples, n_features = _known(n_samples, "n_samples"), _known(n_features, "n_features")
    sizes = _sizes_of_past_folds(search, n_samples, fold_sizes)
    widths, deltas, is_simulation = [], [], False
    for parameters in results["params"]:
        candidate = with_parameters(search.estimator, parameters)
        last = last_step(candidate)
        if not hasattr(last, "plan"):
            raise TypeError(
                f"Got a search over {type(last).__name__}, expected an estimator of this package:"
                " what its fits cost is not known."
            )
        require_one_that_spends(candidate)
        widths.append(n_features_of_last_step(candidate, n_features))
        deltas.append(float(last.delta))
        is_simulation |= last.random_state is not None
    plans = {
        n: plan_fits(search.estimator, results["params"], n, widths, n_classes)[0]
        for n in {*sizes, n_samples}
    }
    adversary, unit, neighboring = common_relation(plans[n_samples])
    fits = Counter(plan.guarantee() for n in sizes for plan in plans[n])
    sums = [fits]
    if has_model:
        is_simulation |= bool(last_step(search.best_estimator_).privacy_.simulation)
        _require_as_fitted(search, plans[n_samples][search.best_index_])
        # Which candidate it was came from exact scores: the most expensive one bounds it.
        refits = [plan.guarantee() for plan in plans[n_samples]]
        sums = [fits + Counter([refit]) for refit in _largest(refits)]
    name = f"{type(search).__name__} of {type(last_step(search.estimator)).__name__}"
    return PrivacyReport(
        subject=f"{name}, {fits.total() + has_model} fits",
        observers=(
            Observer(
                name=adversary,
                sees=f"what {adversary!r} sees of all fits, without their scores",
                unit=unit,
                neighboring=neighboring,
                guarantee=worst(*(compose_all(*fits.elements()) for fits in sums)),
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


def _known(value: Any, name: str) -> int:
    if not isinstance(value, Integral) or int(value) < 1:
        raise ValueError(f"Got {name}={value!r}, expected an int: the search has not kept it.")
    return int(value)


def _require_scores(results: Mapping[str, Any]) -> None:
    """Refuse a search of which not every fit is known to have come to its end."""
    names = [name for name in results if name.startswith("split") and "_test_" in name]
    n_missing = sum(math.isnan(score) for name in names for score in results[name])
    if n_missing:
        raise ValueError(
            f"Got cv_results_ with {n_missing} scores that are NaN, expected none: fits that failed"
            " may have spent nothing, a part or all. Search with error_score='raise', or count fits"
            " in a ledger."
        )


def _sizes_of_past_folds(
    search: Any, n_samples: int, fold_sizes: Sequence[int] | None
) -> list[int]:
    """How many rows each fold trained on, of which the caller may know."""
    is_gone = hasattr(search.cv, "__next__")
    is_unknown = is_gone or is_by_group(public_folds(search))
    sizes = list(fold_sizes or ())
    if fold_sizes is None and not is_unknown:
        # Neither rows nor targets change these folds.
        sizes = sizes_of_folds(search, np.zeros((n_samples, 1)), None, None, n_samples)
    is_valid = all(isinstance(n, Integral) and n >= 1 for n in sizes)
    if not is_valid or len(sizes) != search.n_splits_:
        raise ValueError(
            f"Got n_samples={n_samples} and fold_sizes={fold_sizes!r}, expected the number of rows"
            f" of the fit, and as fold_sizes {search.n_splits_} positive ints where cv is an"
            " iterator or goes by groups: how many rows each fold trained on,"
            " [len(train) for train, _ in cv.split(X, y, groups)]."
        )
    return [int(n) for n in sizes]


def _require_as_fitted(search: Any, plan: Any) -> None:
    """Refuse a search that was changed since it ran, as far as its best model tells.

    Searches and estimators know the parameters of today alone; a report is that of its fit.
    """
    report = last_step(search.best_estimator_).privacy_
    (against,) = (line for line in report.observers if line.name == report.adversary)
    planned = (plan.adversary, plan.unit, plan.neighboring)
    is_other = planned != (report.adversary, against.unit, against.neighboring)
    if is_other or not covers(plan.guarantee(), report.guarantee(), float(report.delta)):
        raise ValueError(
            f"Got a search whose best model has {report.guarantee().describe()}, and is planned"
            f" with {plan.guarantee().describe()}, expected what it was fitted with. Pass its"
            " n_samples, set the parameters of its estimator back, or give each search an"
            " estimator of its own, clone(estimator)."
        )


def _largest(guarantees: Sequence[Guarantee]) -> list[Guarantee]:
    """Those that no other one dominates."""
    largest: list[Guarantee] = []
    for one in guarantees:
        if not any(other.dominates(one) for other in largest):
            largest = [other for other in largest if not one.dominates(other)]
            largest.append(one)
    return largest
