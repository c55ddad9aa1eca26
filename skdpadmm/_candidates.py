"""What a search fits: a candidate with its parameters, and what its plan says before data."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import (
    Binarizer,
    FunctionTransformer,
    Normalizer,
    PolynomialFeatures,
)
from sklearn.utils import get_tags

# They transform each row by itself.
_BY_ROW = (Binarizer, Normalizer, PolynomialFeatures)


def last_step(estimator: Any) -> Any:
    """The estimator itself, or what a pipeline ends with."""
    while isinstance(estimator, Pipeline):
        estimator = estimator.steps[-1][1]
    return estimator


def with_parameters(estimator: Any, parameters: Mapping[str, Any], **own: Any) -> Any:
    """A clone with the parameters of a candidate; `own` ones are those of the last step."""
    # Values are cloned as scikit-learn does: a step of a grid is never touched.
    values = {name: clone(value, safe=False) for name, value in parameters.items()}
    made = clone(estimator).set_params(**values)
    last = last_step(made)
    last.set_params(**{name: value for name, value in own.items() if name in last.get_params()})
    return made


def silent(estimator: Any) -> Any:
    """The same estimator, told to print and to keep nothing: lines and files can be counted."""
    told: dict[str, Any] = {}
    for name, value in estimator.get_params(deep=True).items():
        if is_verbosity(name) and value:
            told[name] = False if isinstance(value, bool | np.bool_) else 0
        elif name.rpartition("__")[2] == "memory" and value is not None:
            told[name] = None
    return estimator.set_params(**told)


def is_verbosity(name: str) -> bool:
    """Whether a parameter, of a step or of all, says how much is printed."""
    return name.rpartition("__")[2] == "verbose"


def earlier_steps(estimator: Any) -> Iterator[Any]:
    """Transformers before the last step, in pipelines of any depth."""
    while isinstance(estimator, Pipeline):
        for _, step in estimator.steps[:-1]:
            yield from earlier_steps(step)
            if (last := last_step(step)) not in (None, "passthrough"):
                yield last
        estimator = estimator.steps[-1][1]


def steps_that_learn(estimator: Any) -> list[Any]:
    """Transformers before the last step that a fit adapts to data, in pipelines of any depth."""
    return [step for step in earlier_steps(estimator) if learns(step)]


def acts_by_row(step: Any) -> bool:
    """Whether a transformer is known to transform each row by itself."""
    if type(step) is FunctionTransformer:
        return step.func is None or (_is_elementwise(step.func) and not step.kw_args)
    return type(step) in _BY_ROW or type(step).__module__.startswith("skdpadmm.preprocessing")


def _is_elementwise(func: Any) -> bool:
    """Whether a function is a ufunc of one number; those of Python may keep what they saw."""
    if not isinstance(func, np.ufunc) or func.signature is not None:
        return False
    return func.nin == func.nout == 1 and func.types != ["O->O"]


def require_one_that_spends(estimator: Any) -> None:
    """Refuse a pipeline in which more than the last step has a budget: its plan is not the whole.

    Parameters
    ----------
    estimator : estimator

    Raises
    ------
    TypeError
    """
    for part in _fitted_parts(list(earlier_steps(estimator))):
        if callable(getattr(part, "plan", None)) or hasattr(part, "ledger"):
            raise TypeError(
                f"Got a Pipeline with {type(part).__name__} before its last step, expected one"
                " estimator with a budget, the last: what others cost is not known from its plan."
                " Fit them by themselves, each with the ledger, and freeze them: FrozenEstimator."
            )


def _fitted_parts(value: Any) -> Iterator[Any]:
    """Estimators that a fit may fit: steps, and what they hold."""
    if isinstance(value, list | tuple | Mapping):
        for part in value.values() if isinstance(value, Mapping) else value:
            yield from _fitted_parts(part)
    elif hasattr(value, "get_params") and not isinstance(value, type | FrozenEstimator):
        yield value
        if getattr(value, "prefit", False) is not True:
            yield from _fitted_parts(value.get_params(deep=False))


def n_features_of_last_step(estimator: Any, n_features: int, columns: Any = None) -> int:
    """How many features arrive at the last step, from rows of zeros."""
    rows: Any = np.zeros((2, n_features))
    if columns is not None:
        import pandas as pd

        rows = pd.DataFrame(rows, columns=columns)
    while isinstance(estimator, Pipeline):
        if len(estimator.steps) > 1:
            rows = silent(clone(estimator[:-1])).fit_transform(rows)
        estimator = estimator.steps[-1][1]
    return int(rows.shape[1])


def asks_for_classes(estimator: Any) -> bool:
    """Whether the plan of a last step needs the number of classes, as none are declared."""
    is_known = "n_classes" in inspect.signature(estimator.plan).parameters
    return is_known and getattr(estimator, "classes", None) is None


def plan_candidate(
    estimator: Any,
    parameters: Mapping[str, Any],
    n_samples: int,
    n_features: int,
    n_classes: int | None,
    facts: Mapping[str, Any] | None = None,
) -> tuple[Any, list[str]]:
    """Return a candidate's plan, and what it warned of.

    Parameters
    ----------
    estimator : estimator
        With the parameters of the candidate.
    parameters : dict
        The candidate; empty where there is no search.
    n_samples, n_features : int
        Shape of what arrives at the last step.
    n_classes : int or None
        Passed where the last step does not declare them.
    facts : dict or None, default=None
        Other arguments of its plan, which win.

    Returns
    -------
    plan : Plan or SearchPlan
    warned : list of str
    """
    last = last_step(estimator)
    known = {"n_classes": n_classes} if asks_for_classes(last) else {}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            plan = last.plan(n_samples, n_features, **{**known, **(facts or {})})
        except (TypeError, ValueError) as error:
            if parameters:
                error.add_note(f"It was raised by the plan of the candidate {dict(parameters)}.")
            raise
    return plan, list(dict.fromkeys(str(line.message) for line in caught))


def learns(step: Any) -> bool:
    """Whether a fit adapts a transformer to data."""
    # The exception takes nothing but the number of columns.
    return get_tags(step).requires_fit and not isinstance(step, PolynomialFeatures)
