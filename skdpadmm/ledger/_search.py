"""What a search of scikit-learn would fit, and what each of these fits would cost."""

from __future__ import annotations

import copy
import inspect
import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

from skdpadmm.ledger._entry import Claim, Relation
from skdpadmm.privacy import Guarantee, Neighboring, worst


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
    search : GridSearchCV or RandomizedSearchCV
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
    if hasattr(search.cv, "__next__"):
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
        _require_ledger(estimator, is_here)
        asked = dict(facts)
        if "n_classes" in inspect.signature(estimator.plan).parameters:
            asked.setdefault("n_classes", _n_classes(estimator, y))
        for size, count in sizes.items():
            claims[_claim(estimator, size, n_features, asked, parameters)] += count
        if search.refit:
            claim = _claim(estimator, n_samples, n_features, asked, parameters)
            refits.setdefault(claim.relation, []).append(claim.guarantee)
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
        f"Got a search of type {type(search).__name__}, expected GridSearchCV or"
        " RandomizedSearchCV: of others it is not known in advance how often they fit."
    )


def _last_step(estimator: Any) -> Any:
    """The estimator itself, or what a pipeline ends with."""
    from sklearn.pipeline import Pipeline

    while isinstance(estimator, Pipeline):
        estimator = estimator.steps[-1][1]
    if not callable(getattr(estimator, "plan", None)):
        raise TypeError(
            f"Got an estimator of type {type(estimator).__name__}, expected one with a method plan,"
            " alone or as the last step of a Pipeline: its cost is not known in advance."
        )
    return estimator


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


def _claim(
    estimator: Any, n_samples: int, n_features: int, facts: dict[str, Any], parameters: Any
) -> Claim:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # each fit warns by itself
            plan = estimator.plan(n_samples, n_features, **facts)
    except (TypeError, ValueError) as error:
        error.add_note(f"It was raised by the plan of the candidate {parameters}.")
        raise
    relation = Relation(plan.facts.unit, Neighboring(plan.facts.neighboring))
    return Claim(plan.budget.observer, relation, plan.guarantee())
