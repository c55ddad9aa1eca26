"""What a search fits: candidates, their plans before data, and the sizes of public folds."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterable, Iterator, Mapping
from inspect import signature
from typing import Any

import numpy as np
from sklearn import model_selection as ms
from sklearn.base import clone, is_classifier
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import Binarizer, Normalizer, PolynomialFeatures
from sklearn.utils import get_tags

# They transform each row by itself, and finite rows stay finite: powers of one could be infinite.
_BY_ROW = (Binarizer, Normalizer)
# The rows that train depend on positions alone. Subclasses may look at rows.
_GIVEN = type(ms.check_cv([]))
_BY_POSITION = (ms.KFold, ms.PredefinedSplit, ms.RepeatedKFold, ms.ShuffleSplit, _GIVEN)


def last_step(estimator: Any) -> Any:
    """The estimator itself, or what a pipeline ends with."""
    while isinstance(estimator, Pipeline):
        estimator = estimator.steps[-1][1]
    return estimator


def with_parameters(estimator: Any, parameters: Mapping[str, Any], **own: Any) -> Any:
    """A clone with the parameters of a candidate; `own` ones are those of the last step."""
    # Values are cloned as scikit-learn does: a step of a grid is never fitted.
    values = {name: clone(value, safe=False) for name, value in parameters.items()}
    candidate = clone(estimator).set_params(**values)
    last = last_step(candidate)
    last.set_params(**{name: value for name, value in own.items() if name in last.get_params()})
    return candidate


def silent(estimator: Any) -> Any:
    """The same estimator without printing and caching: lines and files can be counted."""
    off = {"verbose": False, "memory": None}
    parameters = estimator.get_params(deep=True)
    names = [name for name in parameters if name.rpartition("__")[2] in off]
    return estimator.set_params(**{n: off[n.rpartition("__")[2]] for n in names if parameters[n]})


def _earlier_steps(estimator: Any) -> Iterator[Any]:
    """Transformers before the last step, in pipelines of any depth."""
    while isinstance(estimator, Pipeline):
        for _, step in estimator.steps[:-1]:
            yield from _earlier_steps(step)
            if (last := last_step(step)) not in (None, "passthrough"):
                yield last
        estimator = estimator.steps[-1][1]


def _learns(step: Any) -> bool:
    # The exception takes nothing but the number of columns.
    return get_tags(step).requires_fit and not isinstance(step, PolynomialFeatures)


def acts_by_row(step: Any) -> bool:
    """Whether a transformer is known to learn nothing and to transform each row by itself."""
    if step in (None, "passthrough"):
        return True
    if type(step) is Pipeline:  # a subclass may do more than its parts
        return all(acts_by_row(part) for _, part in step.steps)
    is_own = type(step).__module__.startswith("skdpadmm.preprocessing")
    return (is_own or type(step) in _BY_ROW) and not _learns(step)


def require_one_that_spends(estimator: Any) -> None:
    """Refuse what has no plan, or is a Pipeline with a budget before its last step."""
    last = last_step(estimator)
    if not callable(getattr(last, "plan", None)):
        raise TypeError(
            f"Got an estimator of type {type(last).__name__}, expected a model of this package,"
            " alone or as the last step of a Pipeline: what a fit costs has to be known before it."
        )
    for part in _fitted_parts(list(_earlier_steps(estimator))):
        if callable(getattr(part, "plan", None)) or hasattr(part, "ledger"):
            raise TypeError(
                f"Got a Pipeline with {type(part).__name__} before its last step, expected one"
                " estimator with a budget, the last: what others cost is not known from its plan."
                " Fit them by themselves, each with the ledger, and freeze them: FrozenEstimator."
            )


def _fitted_parts(value: Any) -> Iterator[Any]:
    """Estimators that a fit may fit: steps, and what they hold."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for part in value:
            yield from _fitted_parts(part)
    elif hasattr(value, "get_params") and not isinstance(value, type | FrozenEstimator):
        yield value
        if getattr(value, "prefit", False) is not True:
            yield from _fitted_parts(value.get_params(deep=False))


def n_features_of_last_step(estimator: Any, n_features: int, columns: Any = None) -> int:
    """How many features arrive at the last step, from rows of zeros."""
    # Of a step that learns the width depends on the data: it is taken to keep it.
    if any(_learns(step) for step in _earlier_steps(estimator)):
        return n_features
    rows: Any = np.zeros((2, n_features))
    if columns is not None:
        import pandas as pd

        rows = pd.DataFrame(rows, columns=columns)
    while isinstance(estimator, Pipeline):
        if len(estimator.steps) > 1:
            rows = silent(clone(estimator[:-1])).fit_transform(rows)
        estimator = estimator.steps[-1][1]
    return int(rows.shape[1])


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
) -> tuple[list[Any], list[str]]:
    """The plan of a fit of each candidate, and what plans warned of; `facts` win over the rest."""
    plans, warned = [], list[str]()
    for parameters in candidates:
        candidate = with_parameters(estimator, parameters, **budget)
        require_one_that_spends(candidate)
        last, known = last_step(candidate), dict(facts or {})
        if "n_features" not in known:
            known["n_features"] = n_features_of_last_step(candidate, n_features, columns)
        # Where classes are not declared, an estimator takes the set of labels to be public.
        if (
            "n_classes" in signature(last.plan).parameters
            and getattr(last, "classes", None) is None
        ):
            known.setdefault("n_classes", n_classes)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            plans.append(last.plan(n_samples, **known))
        warned += [str(line.message) for line in caught]
    return plans, warned


def sizes_of_folds(search: Any, n_samples: int) -> list[int]:
    """Return how many rows train in each fold of a search of scikit-learn."""
    if hasattr(search.cv, "__next__"):
        raise ValueError("Got cv that can be gone through once, expected cv=list(...).")
    # Any labels of two classes: an int means folds by classes, for a classifier.
    folds = ms.check_cv(search.cv, [0, 1], classifier=is_classifier(search.estimator))
    if type(folds) not in _BY_POSITION:
        raise ValueError(
            f"Got cv={search.cv!r}, which is {type(folds).__name__}, expected folds by positions,"
            " that no row changes: by labels one record changes the folds of others. Search with"
            " cv=KFold(5, shuffle=True, random_state=0), or cv=list(folds.split(X, y, groups))."
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
