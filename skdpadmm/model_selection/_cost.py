"""What an ordinary search of scikit-learn has cost."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from typing import Any

from sklearn.utils.validation import check_is_fitted

from skdpadmm.model_selection._candidates import (
    common_adversary,
    common_relation,
    last_step,
    n_features_of_last_step,
    plan_candidate,
    with_parameters,
)
from skdpadmm.privacy import Guarantee, Observer, PrivacyReport, compose, worst

# Where nobody says how many rows there were, a guarantee has to be the same for all of these.
_SIZES = (1_000, 30_000, 1_000_000)


def search_cost(
    search: Any,
    *,
    n_samples: int | None = None,
    n_features: int | None = None,
    n_classes: int | None = None,
) -> PrivacyReport:
    """Add up what the fits of a finished search of scikit-learn cost.

    Every candidate was fitted on every fold, and the best one once more. Folds overlap, so each
    fit counts in full.

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

    Returns
    -------
    PrivacyReport
        Of all fits together. Selection and ``cv_results_`` have no guarantee whatever: their scores
        are exact.

    Raises
    ------
    ValueError
        If the search is not fitted or a fit failed, or if the cost depends on what is not known.
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
    n_folds = int(search.n_splits_)
    n_features = _known(n_features, "n_features", getattr(search, "n_features_in_", None))
    if n_classes is None and hasattr(getattr(search, "best_estimator_", None), "classes_"):
        n_classes = len(search.best_estimator_.classes_)
    fits, first, deltas, is_simulation = [], [], [], False
    for parameters in candidates:
        candidate = with_parameters(search.estimator, parameters)
        last = last_step(candidate)
        if not hasattr(last, "plan"):
            raise TypeError(
                f"Got a search over {type(last).__name__}, expected an estimator of this package:"
                " what its fits cost is not known."
            )
        width = n_features_of_last_step(candidate, n_features)
        sizes = _SIZES if n_samples is None else (_largest_fold(n_samples, n_folds),)
        plans = [plan_candidate(candidate, parameters, n, width, n_classes)[0] for n in sizes]
        fits.append(_guarantee(plans))
        first.append(plans[0])
        deltas.append(float(last.delta))
        is_simulation |= last.random_state is not None
    refits: tuple[Guarantee, ...] = ()
    if search.refit:
        # Which candidate it was came from exact scores: the dearest one bounds it.
        refits = (worst(*fits),)
    observer, unit = common_adversary(first)
    name = f"{type(search).__name__} of {type(last_step(search.estimator)).__name__}"
    n_fits = n_folds * len(candidates) + len(refits)
    return PrivacyReport(
        subject=f"{name}, {n_fits} fits",
        observers=(
            Observer(
                name=observer,
                sees=f"what {observer!r} sees of all fits, without their scores",
                unit=unit,
                neighboring=common_relation(first),
                guarantee=compose(*(fit for fit in fits for _ in range(n_folds)), *refits),
            ),
        ),
        releases=(),
        delta=max(deltas),
        assumptions=(
            "Every fit counts in full: folds overlap, and so do all fits and the last one.",
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


def _known(value: int | None, name: str, seen: int | None) -> int:
    known = seen if value is None else value
    if not isinstance(known, Integral) or known < 1:
        raise ValueError(f"Got {name}={value!r}, expected an int: the search has not kept it.")
    return int(known)


def _largest_fold(n_samples: int, n_folds: int) -> int:
    """Rows that a fold trains on, where folds are equal; as many as there are for a single one."""
    return max(1, n_samples - n_samples // n_folds) if n_folds > 1 else n_samples


def _guarantee(plans: Sequence[Any]) -> Guarantee:
    """The guarantee of a fit; the same for all sizes that were planned for."""
    guarantees = [plan.guarantee() for plan in plans]
    epsilons = [g.epsilon(plan.budget.delta) for g, plan in zip(guarantees, plans, strict=True)]
    if max(epsilons) > min(epsilons) * (1.0 + 1e-6):
        raise ValueError(
            "Got a search whose fits cost more or less by the number of rows, expected n_samples."
            " Pass it."
        )
    return worst(*guarantees)
