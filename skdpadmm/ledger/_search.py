"""What a search would fit, and what each of these fits would cost."""

from __future__ import annotations

import copy
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.model_selection import (
    GridSearchCV,
    ParameterGrid,
    ParameterSampler,
    RandomizedSearchCV,
)

from skdpadmm._candidates import last_step, plan_fits, sizes_of_folds, with_parameters
from skdpadmm.ledger._account import Claim, Claims, Relation
from skdpadmm.privacy import worst


def claim_of(plan: Any, observer: str | None = None) -> Claim:
    """The guarantee of a planned fit against an observer, by default its adversary."""
    name = observer or plan.adversary
    return Claim(name, Relation(plan.unit, plan.neighboring), plan.guarantee(name))


def claims_of(plan: Any) -> Claims:
    """The guarantees of a planned fit against all of its observers, its adversary first."""
    return tuple(claim_of(plan, o) for o in dict.fromkeys((plan.adversary, *plan.observers)))


def claims_of_fits(
    estimator: Any,
    candidates: Sequence[Mapping[str, Any]],
    sizes: Sequence[int],
    refit_size: int | None,
    **shape: Any,
) -> list[Claims]:
    """The claims of all fits of a search: each candidate on each fold, and one of them once more.

    ``refit_size`` is None without a refit; ``shape`` is what :func:`plan_fits` asks for.
    """

    def claims(n_samples: int) -> list[Claims]:
        plans, _ = plan_fits(estimator, candidates, n_samples, **shape)
        return [claims_of(plan) for plan in plans]

    fits = [fit for size, count in Counter(sizes).items() for fit in claims(size) * count]
    refits = [] if refit_size is None else claims(refit_size)
    # Which candidate is fitted once more is not known, or came from exact scores: the worst bounds
    # it. Under several relations the sum is refused all the same.
    same: dict[Any, list[Claims]] = {}
    for refit in refits:
        same.setdefault(tuple(claim[:2] for claim in refit), []).append(refit)
    for alike in same.values():
        of_observers = zip(*alike, strict=True)
        fits.append(
            tuple(
                one[0]._replace(guarantee=worst(*(c.guarantee for c in one)))
                for one in of_observers
            )
        )
    return fits


def cost_of_search(
    search: Any,
    X: Any,
    y: Any,
    facts: Mapping[str, Any],
    require_here: Callable[[Any], None],
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
        sizes = sizes_of_folds(search, n_samples)
        refit_size = n_samples if search.refit else None
    for parameters in candidates:
        require_here(last_step(with_parameters(estimator, parameters)))
    n_classes = None if y is None else len(np.unique(np.asarray(y)))
    columns = getattr(X, "columns", None)
    shape = {"n_features": n_features, "n_classes": n_classes, "columns": columns, "facts": facts}
    return claims_of_fits(estimator, candidates, sizes, refit_size, **shape)


def _drawn(search: Any) -> list[dict[str, Any]]:
    """The candidates of a search of scikit-learn."""
    if isinstance(search, GridSearchCV):
        return list(ParameterGrid(search.param_grid))
    if not isinstance(search, RandomizedSearchCV):
        raise TypeError(
            f"Got {type(search).__name__}, expected GridSearchCV, RandomizedSearchCV, or an"
            " estimator or search with a method plan: the cost of others is not known in advance."
        )
    if search.random_state is None:
        raise ValueError(
            "Got a RandomizedSearchCV with random_state=None, expected an int: its candidates are"
            " not known before it runs."
        )
    # A generator would go on from where this leaves it.
    seed = copy.deepcopy(search.random_state)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of a small grid, which fit repeats
        return list(ParameterSampler(search.param_distributions, search.n_iter, random_state=seed))
