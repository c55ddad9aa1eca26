"""What a search would fit, and what each of these fits would cost."""

from __future__ import annotations

import copy
import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.model_selection import (
    GridSearchCV,
    ParameterGrid,
    ParameterSampler,
    RandomizedSearchCV,
)

from skdpadmm._candidates import (
    asks_for_classes,
    last_step,
    n_features_of_last_step,
    plan_candidate,
    require_one_that_spends,
    sizes_of_folds,
    steps_that_learn,
    with_parameters,
)
from skdpadmm.ledger._entry import Claim, Relation
from skdpadmm.privacy import Guarantee, worst


@dataclass(frozen=True, eq=False, kw_only=True)
class _Data:
    """What plans may know of the data."""

    n_samples: int
    n_features: int
    columns: Any
    y: Any
    facts: Mapping[str, Any]

    def claim(self, estimator: Any, parameters: Mapping[str, Any], n_samples: int) -> Claim:
        """What one fit costs, against whom; it warns by itself."""
        facts = {name: value for name, value in self.facts.items() if name != "n_features"}
        plan, _ = plan_candidate(
            estimator,
            parameters,
            n_samples,
            self._width(estimator),
            self._n_classes(estimator),
            facts,
        )
        return Claim(plan.adversary, Relation(plan.unit, plan.neighboring), plan.guarantee())

    def _width(self, estimator: Any) -> int:
        """How many features arrive at the last step."""
        if "n_features" in self.facts:
            return int(self.facts["n_features"])
        if steps_that_learn(estimator):
            # What they make of rows of zeros says nothing.
            return self.n_features
        return n_features_of_last_step(estimator, self.n_features, self.columns)

    def _n_classes(self, estimator: Any) -> int | None:
        if self.y is None or not asks_for_classes(last_step(estimator)):
            return None
        # The estimator itself takes the set of labels to be public where none are declared.
        return len(np.unique(np.asarray(self.y)))


def cost_of_search(
    search: Any,
    X: Any,
    y: Any,
    groups: Any,
    facts: dict[str, Any],
    is_here: Callable[[Any], bool],
    here: str,
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
    here : str
        The path of that one.

    Returns
    -------
    list of (Claim, int)
    """
    shape = X.shape if hasattr(X, "shape") else (len(X), len(X[0]))
    data = _Data(
        n_samples=int(shape[0]),
        n_features=int(shape[1]),
        columns=X.columns if hasattr(X, "iloc") else None,
        y=y,
        facts=facts,
    )
    if _can_plan(last := last_step(search)):
        # One plan for all: that of a private search holds for its trials together.
        _require_ledger(last, is_here, here)
        require_one_that_spends(search)
        return [(data.claim(search, {}, data.n_samples), 1)]
    if hasattr(getattr(search, "cv", None), "__next__"):
        raise ValueError(
            "Got cv that can be gone through once, expected folds that fit can still see."
            " Use cv=list(...)."
        )
    candidates = _candidates(search)
    sizes = Counter(sizes_of_folds(search, X, y, groups, data.n_samples))
    if not candidates or not sizes:
        raise ValueError("Got a search without candidates or folds, expected one of each at least.")
    claims: Counter[Claim] = Counter()
    refits: dict[Relation, list[Guarantee]] = {}
    for parameters in candidates:
        candidate = with_parameters(search.estimator, parameters)
        _require_plan(last_step(candidate))
        _require_ledger(last_step(candidate), is_here, here)
        require_one_that_spends(candidate)
        for size, count in sizes.items():
            claims[data.claim(candidate, parameters, size)] += count
        if search.refit:
            claim = data.claim(candidate, parameters, data.n_samples)
            refits.setdefault(claim.relation, []).append(claim.guarantee)
    # The refit is one of the candidates; under several relations the sum refuses all the same.
    for relation, guarantees in refits.items():
        claims[Claim("adversary", relation, worst(*guarantees))] += 1
    return list(claims.items())


def _candidates(search: Any) -> list[dict[str, Any]]:
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


def _can_plan(estimator: Any) -> bool:
    return callable(getattr(estimator, "plan", None))


def _require_plan(estimator: Any) -> None:
    if not _can_plan(estimator):
        raise TypeError(
            f"Got an estimator of type {type(estimator).__name__}, expected one with a method plan,"
            " alone or as the last step of a Pipeline: its cost is not known in advance."
        )


def _require_ledger(estimator: Any, is_here: Callable[[Any], bool], here: str) -> None:
    """Refuse fits that would be counted elsewhere, or nowhere."""
    if hasattr(estimator, "ledger") and (estimator.ledger is None or not is_here(estimator.ledger)):
        raise ValueError(
            f"Got {type(estimator).__name__} with ledger={estimator.ledger!r}, expected this one:"
            " what it costs would not be counted here. Set it,"
            f" {type(estimator).__name__}(..., ledger={here!r})."
        )
