"""What a private search refuses: candidates, and plans that do not belong together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from numbers import Real
from typing import Any

from sklearn.base import MetaEstimatorMixin
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import Pipeline

from skdpadmm._candidates import acts_by_row, earlier_steps, is_verbosity, last_step, learns
from skdpadmm.algorithms import is_streaming
from skdpadmm.network import condition_of
from skdpadmm.privacy import Neighboring

_SET_BY_SEARCH = ("epsilon", "delta", "random_state", "ledger")


def prefix_of_last_step(estimator: Any) -> str:
    """What its parameters are prefixed with."""
    prefix = ""
    while isinstance(estimator, Pipeline):
        name, estimator = estimator.steps[-1]
        prefix += f"{name}__"
    return prefix


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
    if isinstance(last, MetaEstimatorMixin) and hasattr(last, "cv"):
        raise TypeError(
            f"Got a {type(last).__name__} inside a private search, expected an estimator: the best"
            " of several searches is the best of all their candidates. Put these into one grid."
        )
    if not (hasattr(last, "plan") and {"epsilon", "delta"} <= set(last.get_params())):
        raise TypeError(
            f"Got an estimator of type {type(last).__name__}, expected one of this package, alone"
            " or as the last step of a Pipeline: what a fit costs has to be known before it runs."
        )
    prefix = prefix_of_last_step(estimator)
    for name in parameters:
        of_last_step = name.startswith(prefix) and name.removeprefix(prefix) in _SET_BY_SEARCH
        if of_last_step or is_verbosity(name):
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
    if is_streaming(getattr(last, "algorithm", None)):
        raise ValueError(
            f"Got an estimator with algorithm={last.algorithm!r}, expected one that fits all"
            " records at once: a stream goes on after the search, which has a budget for its own"
            " records alone. Search with another schedule."
        )
    if getattr(last, "agent_column", None) is not None:
        raise ValueError(
            f"Got an estimator with agent_column={last.agent_column!r}, expected None: how many"
            " rows each agent has is not known for the rows that train. Let n_agents and partition"
            " deal the rows out, or fit the estimator by itself."
        )
    if condition_of(rule := getattr(last, "partition", "iid")):
        raise ValueError(
            f"Got an estimator with partition={rule!r}, expected 'iid', 'quantity' or a number of"
            " agents: who owns a row would depend on the labels of all rows."
        )
    for step in _transformers(estimator):
        if learns(step):
            raise ValueError(
                f"Got a Pipeline with {type(step).__name__}, expected transformers that learn"
                " nothing from data, such as BoundedScaler or RowNormClipper, alone or in a"
                " ColumnTransformer: what others learn is in no budget. Declare public bounds"
                " instead."
            )
        if not acts_by_row(step):
            raise ValueError(
                f"Got a Pipeline with {step!r}, expected transformers that are known to transform"
                " each row by itself: this package's, Normalizer, Binarizer, PolynomialFeatures,"
                " or FunctionTransformer with a NumPy ufunc such as np.arctan. If yours does, apply"
                " it to X before the search."
            )


def _transformers(estimator: Any) -> Iterator[Any]:
    """Transformers before the last step, also of single columns."""
    for made in _pipelines(estimator):
        if type(made) is not Pipeline:
            raise ValueError(
                f"Got a {type(made).__name__} of {type(made).__module__}, expected a Pipeline of"
                " scikit-learn itself: another class may do more than its steps."
            )
    for step in earlier_steps(estimator):
        # Of a subclass nothing is known but that it learns.
        if type(step) is not ColumnTransformer:
            yield step
            continue
        for part, columns in _parts(step):
            if callable(columns):
                raise ValueError(
                    "Got a ColumnTransformer whose columns are found by a function, expected names"
                    " or positions: a function is shown the rows. List the columns."
                )
            if part not in ("drop", "passthrough"):
                yield from _transformers(Pipeline([("part", part), ("rest", "passthrough")]))
        if step.sparse_threshold != 0:
            raise ValueError(
                f"Got a ColumnTransformer with sparse_threshold={step.sparse_threshold!r}, expected"
                " 0: it keeps whether rows have many zeros, all of them together. Set"
                " sparse_threshold=0."
            )


def _pipelines(estimator: Any) -> Iterator[Pipeline]:
    """Pipelines, one inside another."""
    if isinstance(estimator, Pipeline):
        yield estimator
        for _, step in estimator.steps:
            yield from _pipelines(step)


def _parts(step: ColumnTransformer) -> Iterator[tuple[Any, Any]]:
    """What it holds, each with its columns."""
    for _, part, columns in step.transformers:
        yield part, columns
    yield step.remainder, None


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
