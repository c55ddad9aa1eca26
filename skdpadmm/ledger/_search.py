"""What a search would fit, and what each of these fits would cost."""

from __future__ import annotations

import copy
import inspect
import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

from skdpadmm.ledger._entry import Claim, Relation
from skdpadmm.privacy import Guarantee, worst


def cost_of_search(
    search: Any,
    X: Any,
    y: Any,
    groups: Any,
    facts: dict[str, Any],
    is_here: Callable[[Any], bool],
) -> list[tuple[Claim, int]]:
    """Return the claims of all fits of a search, each with how often it occurs.

    Parameters
    ----------
    search : GridSearchCV, RandomizedSearchCV or estimator with a method ``plan``
    X, y, groups
        As its fit takes them.
    facts : dict
        Other arguments of ``plan``.
    is_here : callable
        Whether an estimator's ledger is the one that is asked.

    Returns
    -------
    list of (Claim, int)
    """
    from sklearn.base import clone, is_classifier
    from sklearn.model_selection import check_cv

    facts = dict(facts)
    shape = X.shape if hasattr(X, "shape") else (len(X), len(X[0]))
    n_samples, n_features = int(shape[0]), int(facts.pop("n_features", shape[1]))
    if _can_plan(last := _last_step(search)):
        # One plan for all: that of a private search holds for its trials together.
        _require_ledger(last, is_here)
        return [(_claim(last, n_samples, n_features, y, facts), 1)]
    if hasattr(getattr(search, "cv", None), "__next__"):
        raise ValueError(
            "Got cv that can be gone through once, expected folds that fit can still see."
            " Use cv=list(...)."
        )
    candidates = _candidates(search)
    folds = check_cv(search.cv, y, classifier=is_classifier(search.estimator))
    sizes = Counter(len(train) for train, _ in folds.split(X, y, groups))
    if not candidates or not sizes:
        raise ValueError("Got a search without candidates or folds, expected one of each at least.")
    claims: Counter[Claim] = Counter()
    refits: dict[Relation, list[Guarantee]] = {}
    for parameters in candidates:
        # Values are cloned as scikit-learn does: a step of a grid is never touched.
        values = {name: clone(value, safe=False) for name, value in parameters.items()}
        estimator = _last_step(clone(search.estimator).set_params(**values))
        _require_plan(estimator)
        _require_ledger(estimator, is_here)
        try:
            for size, count in sizes.items():
                claims[_claim(estimator, size, n_features, y, facts)] += count
            if search.refit:
                claim = _claim(estimator, n_samples, n_features, y, facts)
                refits.setdefault(claim.relation, []).append(claim.guarantee)
        except (TypeError, ValueError) as error:
            error.add_note(f"It was raised by the plan of the candidate {parameters}.")
            raise
    # The refit is one of the candidates; under several relations the sum refuses all the same.
    for relation, guarantees in refits.items():
        claims[Claim("adversary", relation, worst(*guarantees))] += 1
    return list(claims.items())


def _candidates(search: Any) -> list[dict[str, Any]]:
    from sklearn.model_selection import (
        GridSearchCV,
        ParameterGrid,
        ParameterSampler,
        RandomizedSearchCV,
    )

    if isinstance(search, GridSearchCV):
        return list(ParameterGrid(search.param_grid))
    if isinstance(search, RandomizedSearchCV):
        if search.random_state is None:
            raise ValueError(
                "Got a RandomizedSearchCV with random_state=None, expected an int: its candidates,"
                " and so what they cost, are not known before it runs."
            )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # a small grid: fit says so
            return list(
                ParameterSampler(
                    search.param_distributions,
                    search.n_iter,
                    # A generator would go on from where this leaves it.
                    random_state=copy.deepcopy(search.random_state),
                )
            )
    raise TypeError(
        f"Got {type(search).__name__}, expected GridSearchCV, RandomizedSearchCV, an estimator or a"
        " private search that can plan: of others it is not known in advance how often they fit."
    )


def _last_step(estimator: Any) -> Any:
    """The estimator itself, or what a pipeline ends with."""
    from sklearn.pipeline import Pipeline

    while isinstance(estimator, Pipeline):
        estimator = estimator.steps[-1][1]
    return estimator


def _can_plan(estimator: Any) -> bool:
    return callable(getattr(estimator, "plan", None))


def _require_plan(estimator: Any) -> None:
    if not _can_plan(estimator):
        raise TypeError(
            f"Got an estimator of type {type(estimator).__name__}, expected one with a method plan,"
            " alone or as the last step of a Pipeline: its cost is not known in advance."
        )


def _require_ledger(estimator: Any, is_here: Callable[[Any], bool]) -> None:
    """Refuse fits that would be counted elsewhere, or nowhere."""
    if hasattr(estimator, "ledger") and (estimator.ledger is None or not is_here(estimator.ledger)):
        raise ValueError(
            f"Got a search whose estimator has ledger={estimator.ledger!r}, expected this one: its"
            " fits would not be counted here."
        )


def _n_classes(estimator: Any, y: Any) -> int | None:
    import numpy as np

    if getattr(estimator, "classes", None) is not None or y is None:
        return None
    # The estimator itself takes the set of labels to be public where none are declared.
    return len(np.unique(np.asarray(y)))


def _claim(estimator: Any, n_samples: int, n_features: int, y: Any, facts: dict[str, Any]) -> Claim:
    """What one fit costs, against whom."""
    if "n_classes" in inspect.signature(estimator.plan).parameters:
        facts = {"n_classes": _n_classes(estimator, y), **facts}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # each fit warns by itself
        plan = estimator.plan(n_samples, n_features, **facts)
    return Claim(plan.adversary, Relation(plan.unit, plan.neighboring), plan.guarantee())
