"""What a search would fit, and what each of these fits would cost."""

from __future__ import annotations

import copy
import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from sklearn import model_selection

from skdpadmm import _candidates
from skdpadmm._candidates import last_step, sizes_of_folds
from skdpadmm.ledger._account import Claim, Relation
from skdpadmm.privacy import Guarantee, worst


def cost_of_search(
    search: Any,
    X: Any,
    y: Any,
    groups: Any,
    facts: dict[str, Any],
    require_here: Callable[[Any], None],
) -> list[tuple[Claim, int]]:
    """Return the claims of all fits of a search, each with how often it occurs.

    ``facts`` are other arguments of ``plan``; ``require_here`` refuses an estimator whose fits
    would be counted in another ledger.
    """
    shape = X.shape if hasattr(X, "shape") else (len(X), len(X[0]))
    n_samples, n_features = int(shape[0]), int(shape[1])
    columns = X.columns if hasattr(X, "iloc") else None
    own_facts = {name: value for name, value in facts.items() if name != "n_features"}

    def claim(estimator: Any, parameters: Mapping[str, Any], size: int) -> Claim:
        """What one fit costs, against whom; it warns by itself."""
        last = last_step(estimator)
        require_here(last)
        _candidates.require_one_that_spends(estimator)
        width, n_classes = n_features, None
        if "n_features" in facts:
            width = int(facts["n_features"])
        elif not _candidates.steps_that_learn(
            estimator
        ):  # what they make of rows of zeros says nothing
            width = _candidates.n_features_of_last_step(estimator, n_features, columns)
        if y is not None and _candidates.asks_for_classes(last):
            # The estimator itself takes the set of labels to be public where none are declared.
            n_classes = len(np.unique(np.asarray(y)))
        plan, _ = _candidates.plan_candidate(
            estimator, parameters, size, width, n_classes, own_facts
        )
        return Claim(plan.adversary, Relation(plan.unit, plan.neighboring), plan.guarantee())

    if _can_plan(search):
        # One plan for all: that of a private search holds for its trials together.
        return [(claim(search, {}, n_samples), 1)]
    if hasattr(getattr(search, "cv", None), "__next__"):
        raise ValueError(
            "Got cv that can be gone through once, expected folds that fit can still see."
            " Use cv=list(...)."
        )
    candidates = _drawn(search)
    sizes = Counter(sizes_of_folds(search, X, y, groups, n_samples))
    if not candidates or not sizes:
        raise ValueError("Got a search without candidates or folds, expected one of each at least.")
    claims: Counter[Claim] = Counter()
    refits: dict[Relation, list[Guarantee]] = {}
    for parameters in candidates:
        candidate = _candidates.with_parameters(search.estimator, parameters)
        if not _can_plan(candidate):
            raise TypeError(
                f"Got an estimator of type {type(last_step(candidate)).__name__}, expected one with"
                " a method plan, alone or as the last step of a Pipeline: its cost is not known in"
                " advance."
            )
        for size, count in sizes.items():
            claims[claim(candidate, parameters, size)] += count
        if search.refit:
            refit = claim(candidate, parameters, n_samples)
            refits.setdefault(refit.relation, []).append(refit.guarantee)
    # The refit is one of the candidates; under several relations the sum refuses all the same.
    for relation, guarantees in refits.items():
        claims[Claim("adversary", relation, worst(*guarantees))] += 1
    return list(claims.items())


def _drawn(search: Any) -> list[dict[str, Any]]:
    if isinstance(search, model_selection.GridSearchCV):
        return list(model_selection.ParameterGrid(search.param_grid))
    if not isinstance(search, model_selection.RandomizedSearchCV):
        raise TypeError(
            f"Got {type(search).__name__}, expected GridSearchCV, RandomizedSearchCV, an estimator"
            " or a private search that can plan: of others it is not known in advance how often"
            " they fit."
        )
    if search.random_state is None:
        raise ValueError(
            "Got a RandomizedSearchCV with random_state=None, expected an int: its candidates, and"
            " so what they cost, are not known before it runs."
        )
    # A generator would go on from where this leaves it.
    seed = copy.deepcopy(search.random_state)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a small grid: fit says so
        draws = model_selection.ParameterSampler(
            search.param_distributions, search.n_iter, random_state=seed
        )
        return list(draws)


def _can_plan(estimator: Any) -> bool:
    return callable(getattr(last_step(estimator), "plan", None))
