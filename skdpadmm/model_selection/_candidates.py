"""Candidates of a search: estimators with their budget, and what is known of them before data."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import PolynomialFeatures
from sklearn.utils import get_tags

from skdpadmm.privacy import Neighboring

_SET_BY_SEARCH = ("epsilon", "delta", "random_state", "ledger")


def last_step(estimator: Any) -> Any:
    """The estimator itself, or what a pipeline ends with."""
    while isinstance(estimator, Pipeline):
        estimator = estimator.steps[-1][1]
    return estimator


def prefix_of_last_step(estimator: Any) -> str:
    """What its parameters are prefixed with."""
    prefix = ""
    while isinstance(estimator, Pipeline):
        name, estimator = estimator.steps[-1]
        prefix += f"{name}__"
    return prefix


def with_parameters(estimator: Any, parameters: Mapping[str, Any], **own: Any) -> Any:
    """A clone with the parameters of a candidate; `own` ones are those of the last step."""
    values = {name: clone(value, safe=False) for name, value in parameters.items()}
    made = clone(estimator).set_params(**values)
    last = last_step(made)
    last.set_params(**{name: value for name, value in own.items() if name in last.get_params()})
    return made


def check_candidate(estimator: Any, parameters: Mapping[str, Any]) -> None:
    """Refuse what could not be searched under one budget; no data is needed.

    Parameters
    ----------
    estimator : estimator
        With the parameters of the candidate.
    parameters : dict
        The candidate.

    Raises
    ------
    TypeError
        If its cost is not known in advance.
    ValueError
        If something in it is not the candidate's to choose, or learns from data for free.
    """
    last = last_step(estimator)
    if not (hasattr(last, "plan") and {"epsilon", "delta"} <= set(last.get_params())):
        raise TypeError(
            f"Got an estimator of type {type(last).__name__}, expected one of this package, alone"
            " or as the last step of a Pipeline: what a fit costs has to be known before it runs."
        )
    prefix = prefix_of_last_step(estimator)
    for name in parameters:
        if name.removeprefix(prefix) in _SET_BY_SEARCH and name.startswith(prefix):
            raise ValueError(
                f"Got candidates with {name!r}, expected parameters of the model only: the search"
                " sets it for every trial."
            )
    if not isinstance(last.epsilon, Real):
        raise ValueError(
            f"Got an estimator with epsilon={last.epsilon!r}, expected a number: budgets of single"
            " agents do not pass through a search."
        )
    if getattr(last, "ledger", None) is not None:
        raise ValueError(
            "Got an estimator with a ledger of its own, expected none: it would count, and so tell,"
            " how many trials there were. Give the ledger to the search."
        )
    for step in _transformers(estimator):
        stateless = not get_tags(step).requires_fit or isinstance(step, PolynomialFeatures)
        if not stateless:
            raise ValueError(
                f"Got a Pipeline with {type(step).__name__}, expected transformers that learn"
                " nothing from data, such as BoundedScaler or RowNormClipper: what others learn is"
                " in no budget. Declare public bounds instead."
            )


def n_features_of_last_step(estimator: Any, n_features: int, columns: Any = None) -> int:
    """How many features arrive at the last step, from a row of zeros."""
    rows: Any = np.zeros((2, n_features))
    if columns is not None:
        import pandas as pd

        rows = pd.DataFrame(rows, columns=columns)
    while isinstance(estimator, Pipeline):
        if len(estimator.steps) > 1:
            rows = clone(estimator[:-1]).fit_transform(rows)
        estimator = estimator.steps[-1][1]
    return int(rows.shape[1])


def plan_candidate(
    estimator: Any,
    parameters: Mapping[str, Any],
    n_samples: int,
    n_features: int,
    n_classes: int | None,
) -> tuple[Any, list[str]]:
    """Return a candidate's plan, and what it warned of."""
    last = last_step(estimator)
    shape: dict[str, Any] = {}
    if "n_classes" in inspect.signature(last.plan).parameters and last.classes is None:
        shape["n_classes"] = n_classes
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            plan = last.plan(n_samples, n_features, **shape)
        except (TypeError, ValueError) as error:
            error.add_note(f"It was raised by the plan of the candidate {dict(parameters)}.")
            raise
    return plan, list(dict.fromkeys(str(line.message) for line in caught))


def check_plan(plan: Any) -> None:
    """Refuse a trial against somebody who sees more of it than its result."""
    if plan.unit != "record" or plan.adversary != "model":
        raise ValueError(
            f"Got a candidate whose budget protects one {plan.unit} against"
            f" {plan.adversary!r}, expected one that protects a record against 'model':"
            " everybody else sees all trials, of which a selection hides none. Set"
            " adversary='model' and privacy_unit='record', or compose the fits by hand."
        )


def common_relation(plans: Sequence[Any]) -> Neighboring:
    """The neighbouring relation of all candidates, which has to be one."""
    relations = {plan.neighboring for plan in plans}
    if len(relations) > 1:
        raise ValueError(
            f"Got candidates under {sorted(map(str, relations))}, expected one neighbouring"
            " relation. Take `neighboring` out of the candidates."
        )
    return relations.pop()


def common_adversary(plans: Sequence[Any]) -> tuple[str, str]:
    """Whom the budgets of all candidates are spent against, and what they protect."""
    found = {(str(plan.adversary), str(plan.unit)) for plan in plans}
    if len(found) > 1:
        raise ValueError(
            f"Got candidates with the adversaries and units {sorted(found)}, expected one of them:"
            " guarantees against different ones do not add up."
        )
    return found.pop()


def _transformers(estimator: Any) -> list[Any]:
    found = []
    while isinstance(estimator, Pipeline):
        found += [step for _, step in estimator.steps[:-1] if step not in (None, "passthrough")]
        estimator = estimator.steps[-1][1]
    inner = [
        [*_transformers(step), last_step(step)] for step in found if isinstance(step, Pipeline)
    ]
    return [s for s in found if not isinstance(s, Pipeline)] + [s for many in inner for s in many]
