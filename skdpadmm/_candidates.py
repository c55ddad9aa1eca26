"""What a search fits: candidates, their plans before data, and the sizes of public folds."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from inspect import signature
from typing import Any

import numpy as np
from sklearn import model_selection as ms
from sklearn.base import clone, is_classifier
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import PolynomialFeatures
from sklearn.utils import get_tags

_Setting = tuple[Callable[[Any], bool], str]
_IS_NONE: _Setting = (lambda value: value is None, "None")
_IS_TEXT: _Setting = (lambda value: isinstance(value, str), "a string")


def _is(expected: Any) -> _Setting:
    # By type too, as 0 == False; arrays are equal to nothing.
    return (lambda value: type(value) is type(expected) and value == expected), repr(expected)


# Frequencies count rows, and a value that is none of the categories must not raise: that would show
# which part its row is in.
_CATEGORIES = {
    "categories": (lambda value: not isinstance(value, str), "a list of public values per column"),
    "min_frequency": _IS_NONE,
    "max_categories": _IS_NONE,
}
# Transformers that learn nothing and transform each row by itself, and what their parameters have
# to be for that. By name, as importing all of them takes longer than a fit. Not PolynomialFeatures:
# powers of finite rows may be infinite. Subclasses may do more.
_BY_ROW: dict[str, dict[str, _Setting]] = {
    "sklearn.compose.ColumnTransformer": {
        # Else how many entries are zero decides whether the result is sparse.
        "sparse_threshold": (lambda value: value == 0, "0"),
        "transformers": (
            lambda value: not any(callable(columns) for _, _, columns in value),
            "columns by names or positions",
        ),
    },
    "sklearn.feature_extraction.FeatureHasher": {},
    "sklearn.feature_extraction.HashingVectorizer": {
        "input": _is("content"),
        "preprocessor": _IS_NONE,
        "tokenizer": _IS_NONE,
        "analyzer": _IS_TEXT,
        "strip_accents": (lambda value: not callable(value), "no function"),
    },
    "sklearn.impute.SimpleImputer": {
        "strategy": _is("constant"),
        "fill_value": (lambda value: value is not None, "a public constant"),
        "add_indicator": _is(False),
        "keep_empty_features": _is(True),
    },
    "sklearn.preprocessing.Binarizer": {},
    "sklearn.preprocessing.FunctionTransformer": {"func": _IS_NONE, "inverse_func": _IS_NONE},
    "sklearn.preprocessing.Normalizer": {},
    "sklearn.preprocessing.OneHotEncoder": {**_CATEGORIES, "handle_unknown": _is("ignore")},
    "sklearn.preprocessing.OrdinalEncoder": {
        **_CATEGORIES,
        "handle_unknown": _is("use_encoded_value"),
    },
}
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
    """The same estimator without printing, caching, and changing the rows that it is given.

    Lines and files can be counted, and rows that one trial changes reach the next.
    """
    off = {"verbose": False, "memory": None, "copy": True}
    parameters = estimator.get_params(deep=True)
    names = {name: name.rpartition("__")[2] for name in parameters}
    values = {name: off[last] for name, last in names.items() if last in off}
    return estimator.set_params(
        **{n: value for n, value in values.items() if bool(parameters[n]) != bool(value)}
    )


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
    by_row = acts_by_row(step) or isinstance(step, PolynomialFeatures)
    return get_tags(step).requires_fit and not by_row


def public_name(estimator: Any) -> str:
    """Where scikit-learn exports the type of an estimator, such as sklearn.svm.SVC."""
    package = ".".join(type(estimator).__module__.split(".")[:2])
    return f"{package}.{type(estimator).__name__}"


def acts_by_row(step: Any) -> bool:
    """Whether a transformer is known to learn nothing and to transform each row by itself."""
    return not objection(step)


def objection(step: Any) -> str:
    """Why a transformer may learn from rows or mix them, as a phrase; empty if it does not."""
    if step is None or (isinstance(step, str) and step in ("passthrough", "drop")):
        return ""
    if type(step) is Pipeline:  # a subclass may do more than its parts
        return next(filter(None, (objection(part) for _, part in step.steps)), "")
    if type(step).__module__.startswith("skdpadmm.preprocessing") and hasattr(step, "get_params"):
        return f"{step!r}" if get_tags(step).requires_fit else ""
    if (settings := _BY_ROW.get(public_name(step))) is None:
        return f"{step!r}"
    wrong = [
        f"{name}={words}"
        for name, (is_right, words) in settings.items()
        if not is_right(getattr(step, name))
    ]
    if wrong:
        return f"{step!r} without {', '.join(wrong)}"
    if not _keeps_categories(step):
        return f"{step!r} on columns of a type that turns its categories into others"
    own = getattr(step, "transformers_", getattr(step, "transformers", ()))
    parts = [part for _, part, _ in own]
    return next(filter(None, map(objection, [*parts, getattr(step, "remainder", None)])), "")


def _keeps_categories(step: Any) -> bool:
    """Whether a fitted encoder has the categories that were listed.

    It turns them into the type of the column, which one row can change: "1" into 1 in a column of
    numbers, and .5 into 0 in one of ints.
    """
    listed, fitted = getattr(step, "categories", None), getattr(step, "categories_", None)
    return fitted is None or all(
        one is other
        or (isinstance(one, str) == isinstance(other, str) and (one == other or one != one))
        for own, became in zip(listed, fitted, strict=True)  # type: ignore[arg-type]
        for one, other in zip(own, became.tolist(), strict=True)
    )


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
    steps: Any = transformers_of(estimator)
    if steps is None:
        return n_features
    # A zero as text is a number, a word and an unknown category. The columns of a table are text
    # where some of them are.
    for zero, dtype in ((0.0, np.float64), ("0", object)):
        rows: Any = np.full((2, n_features), zero, dtype=dtype)
        if columns is not None:
            import pandas as pd

            rows = pd.DataFrame(rows, columns=list(columns), dtype=dtype)
        try:
            return int(clone(steps).fit_transform(rows).shape[1])
        except (AttributeError, TypeError, ValueError) as error:
            reason = str(error).split("\n", maxsplit=1)[0]
    names = "n_features and columns" if columns is None else "n_features"
    raise ValueError(
        f"Got transformers that {n_features} columns of zeros do not pass ({reason}), expected ones"
        f" whose number of columns follows from their parameters. Check {names}."
    )


def transformers_of(estimator: Any) -> Any:
    """All steps before the last, in pipelines of any depth, as one; None where there are none."""
    parts: list[Any] = []
    while isinstance(estimator, Pipeline):
        parts += [(f"s{len(parts)}", estimator[:-1])] if len(estimator.steps) > 1 else []
        estimator = estimator.steps[-1][1]
    return silent(clone(Pipeline(parts))) if parts else None


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
) -> tuple[list[Any], dict[str, type[Warning]]]:
    """The plan of a fit of each candidate, and what plans warned of; `facts` win over the rest."""
    plans, warned = [], dict[str, type[Warning]]()
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
        if last is candidate and "columns" in signature(last.plan).parameters:
            known.setdefault("columns", columns)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            plans.append(last.plan(n_samples, **known))
        warned |= {str(line.message): line.category for line in caught}
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
