"""What a private search reveals, and what an ordinary search of scikit-learn has cost."""

from __future__ import annotations

import math
from collections import Counter
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.model_selection import GridSearchCV, RandomizedSearchCV
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from skdpadmm import _candidates, privacy
from skdpadmm._candidates import last_step
from skdpadmm.ledger._account import ASSUMED, Claim, totals_of
from skdpadmm.ledger._search import claim_of, claims_of_fits
from skdpadmm.model_selection._plan import SearchPlan, common_relation, covers
from skdpadmm.privacy import NonPrivate, PrivacyReport


def report_of(
    search: Any, plan: SearchPlan, *, is_simulation: bool, is_declared: bool
) -> PrivacyReport:
    """The report of a search, from its plan; whether the classes are declared is public."""
    is_private = not isinstance(plan.selection, NonPrivate)
    seed = search.random_state if isinstance(search.random_state, Integral) else "a generator"
    simulation = (
        f"random_state={seed} fixes trials and noise. Whoever knows the seed can remove it. Publish"
        " only searches with random_state=None."
    )
    releases = []
    if plan.score is not None:
        # Without privacy there is no noise that a sensitivity is for.
        sensitivity = plan.score.sensitivity(plan.n_validation) if is_private else None
        line = privacy.ReleaseLine("score of the chosen trial", 1, (), sensitivity, plan.score_std)
        releases.append(line)
    sees = "the chosen candidate, its score and the final model"
    is_zero_out = plan.score is not None and plan.neighboring is privacy.Neighboring.ZERO_OUT
    is_pipeline, is_seen = isinstance(search.estimator, Pipeline), not is_declared
    assumptions = {
        "The candidates, the law of the number of trials and the split of rows by positions are"
        " public.": True,
        "How many trials ran stays hidden: nobody who sees the result measures the time or the work"
        " that the search took.": True,
        "No row of public_validation is private.": plan.score is None,
        "The score of a row depends on that row and on the model alone.": plan.score is not None,
        "Nobody who sees the result reads the ledger, whose times show how long the search"
        " took.": search.ledger is not None,
        "A record that is zeroed has the least score that its bounds allow.": is_zero_out,
        "Transformers before the estimator treat each row by itself.": is_pipeline,
        "The names and types of columns are public.": is_pipeline,
        "classes not declared: the set of labels seen in y is assumed to be public.": is_seen,
        **dict.fromkeys(plan.assumptions, True),
    }
    return PrivacyReport(
        subject=f"{type(search).__name__} of {type(last_step(search.estimator)).__name__}",
        observers=(privacy.Observer("model", sees, "record", plan.neighboring, plan.guarantee()),),
        releases=tuple(releases),
        delta=plan.delta,
        assumptions=tuple(line for line, holds in assumptions.items() if holds and is_private),
        not_covered=(
            "Models and scores of trials that were not chosen: they are not kept.",
            "Candidates, transformers and other choices that were made by looking at the data.",
            "Other fits on the same records: their costs add up.",
            "Whether the input is valid: errors of validation may show values of the data.",
            "Errors of transformers and scorers: they may reveal which candidates were drawn.",
            "Running time and memory.",
        ),
        simulation=simulation if is_simulation and is_private else "",
    )


def search_cost(
    search: Any,
    *,
    n_samples: int,
    n_features: int | None = None,
    n_classes: int | None = None,
    columns: Any = None,
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
    columns : list of str, default=None
        Names of the columns of a table. None: those that the search has seen.

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
    if not isinstance(search, GridSearchCV | RandomizedSearchCV):
        raise TypeError(
            f"Got a search of type {type(search).__name__}, expected GridSearchCV or Randomized"
            "SearchCV, whose fits see whole folds. That of a private search is in its privacy_."
        )
    results, candidates = search.cv_results_, search.cv_results_["params"]
    names = [name for name in results if name.startswith("split") and "_test_" in name]
    if n_missing := sum(math.isnan(score) for name in names for score in results[name]):
        raise ValueError(
            f"Got cv_results_ with {n_missing} scores that are NaN, expected none: what failed fits"
            " have spent is not known. Search with error_score='raise', or count fits in a ledger."
        )
    best: Any = getattr(search, "best_estimator_", None)
    n_features = n_features or getattr(search, "n_features_in_", None)
    if n_classes is None and hasattr(best, "classes_"):
        n_classes = len(best.classes_)
    if columns is None:
        columns = getattr(search, "feature_names_in_", None)
    known: dict[str, Any] = {"n_features": n_features, "n_classes": n_classes, "columns": columns}
    for name, value in (("n_samples", n_samples), ("n_features", n_features)):
        if not isinstance(value, int | np.integer) or value < 1:
            raise ValueError(f"Got {name}={value!r}, expected an int: the search has not kept it.")
    sizes = _candidates.sizes_of_folds(search, n_samples)
    refit_size = None if best is None else n_samples
    claims = claims_of_fits(search.estimator, candidates, sizes, refit_size, **known)
    adversary, relation = common_relation([fit[0] for fit in claims])
    models = [last_step(_candidates.with_parameters(search.estimator, c)) for c in candidates]
    is_simulation = any(model.random_state is not None for model in models)
    is_changed = len(sizes) != search.n_splits_ or bool(search.refit) != (best is not None)
    if best is not None:
        report, fitted = last_step(best).privacy_, [candidates[search.best_index_]]
        (plan,), _ = _candidates.plan_fits(search.estimator, fitted, n_samples, **known)
        is_simulation |= bool(report.simulation)
        # Estimators know their parameters of today alone.
        (line,) = (line for line in report.observers if line.name == report.adversary)
        was, now = Claim.of(line), claim_of(plan)
        is_changed |= (was.observer, was.relation[:2]) != (now.observer, now.relation[:2])
        is_changed |= not covers(plan.guarantee(), report.guarantee(), float(report.delta))
    if is_changed:
        raise ValueError(
            f"Got n_samples={n_samples} and parameters whose plans are not those of the fits,"
            " expected what it was fitted with. Pass its n_samples, and set parameters back."
        )
    name = f"{type(search).__name__} of {type(last_step(search.estimator)).__name__}"
    sees = f"what {adversary!r} sees of all fits, without their scores"
    simulation = (
        "random_state of the estimator fixes the noise, and fits share it: equal noise on different"
        " folds cancels."
    )
    (total,) = totals_of(Counter(claims), None, adversary).values()
    return PrivacyReport(
        subject=f"{name}, {len(claims)} fits",
        observers=(privacy.Observer(adversary, sees, *relation[:2], total),),
        releases=(),
        delta=max(float(model.delta) for model in models),
        assumptions=(
            "Every fit counts for every row. That bounds the cost: each row is left out of some.",
            ASSUMED,
            "The search and its estimator have the parameters that they were fitted with.",
        ),
        not_covered=(
            "selection and cv_results_: no guarantee",
            "Scores of the folds, which are exact, and all that was decided by them.",
            "Other fits on the same records: their costs add up.",
        ),
        simulation=simulation if is_simulation else "",
    )
