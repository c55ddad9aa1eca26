"""What a private search refuses: candidates, and plans that do not belong together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from numbers import Real
from typing import Any

from sklearn.base import MetaEstimatorMixin
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import Pipeline

from skdpadmm._candidates import acts_by_row, is_verbosity, last_step
from skdpadmm.algorithms import is_streaming
from skdpadmm.network import condition_of
from skdpadmm.privacy import Neighboring

_SET_BY_SEARCH = ("epsilon", "delta", "random_state", "ledger")


def check_candidate(estimator: Any, parameters: Mapping[str, Any]) -> None:
    """Refuse what could not be searched under one budget; no data is needed."""
    last = last_step(estimator)
    is_search = isinstance(last, MetaEstimatorMixin) and hasattr(last, "cv")
    if is_search or not (hasattr(last, "plan") and {"epsilon", "delta"} <= set(last.get_params())):
        raise TypeError(
            f"Got an estimator of type {type(last).__name__}, expected a model of this package,"
            " alone or as the last step of a Pipeline: what a fit costs has to be known before it"
            " runs. Put the candidates of a search inside a private search into its own grid."
        )
    prefix = _prefix_of_last_step(estimator)
    of_search = [prefix + name for name in _SET_BY_SEARCH]
    algorithm, partition = getattr(last, "algorithm", None), getattr(last, "partition", "iid")
    agent_column = getattr(last, "agent_column", None)
    refusals = (
        (
            taken := [name for name in parameters if name in of_search or is_verbosity(name)],
            f"candidates of {taken}",
            "parameters of the model only: the search sets it for every trial",
        ),
        (
            not isinstance(last.epsilon, Real),
            f"epsilon={last.epsilon!r}",
            "a number: budgets of single agents do not pass through a search",
        ),
        (
            getattr(last, "ledger", None) is not None,
            "a ledger of its own",
            "none: it would count, and so reveal, the trials. Give the ledger to the search",
        ),
        (
            is_streaming(algorithm),
            f"algorithm={algorithm!r}",
            "one that fits all records at once: a stream goes on after the search, which has a"
            " budget for its own records alone",
        ),
        (
            agent_column is not None,
            f"agent_column={agent_column!r}",
            "None: how many rows each agent has is not known for the rows that train. Let n_agents"
            " and partition assign the rows, or fit the estimator by itself",
        ),
        (
            condition_of(partition),
            f"partition={partition!r}",
            "'iid', 'quantity' or a number of agents: the owner of a row would depend on the labels"
            " of all rows",
        ),
    )
    for is_refused, got, expected in refusals:
        if is_refused:
            raise ValueError(f"Got an estimator with {got}, expected {expected}.")
    for step in _refused_steps(estimator):
        raise ValueError(
            f"Got a Pipeline with {step!r}, expected transformers that are known to learn nothing"
            " from data and to transform each row by itself: this package's, Normalizer, Binarizer,"
            " PolynomialFeatures, FunctionTransformer with np.arctan, np.tanh or another function"
            " that is finite everywhere, and scikit-learn's own Pipeline and ColumnTransformer of"
            " these, the latter with names or positions as columns and sparse_threshold=0. Declare"
            " public bounds in place of what a transformer learns; apply one that treats each row"
            " by itself to X before the search."
        )


def _prefix_of_last_step(estimator: Any) -> str:
    prefix = ""
    while isinstance(estimator, Pipeline):
        name, estimator = estimator.steps[-1]
        prefix += f"{name}__"
    return prefix


def _refused_steps(estimator: Any) -> Iterator[Any]:
    """What is not known to treat each row by itself: a subclass may do more than its parts."""
    while isinstance(estimator, Pipeline):
        if type(estimator) is not Pipeline:
            yield estimator
        for _, step in estimator.steps[:-1]:
            yield from _refused_parts(step)
        estimator = estimator.steps[-1][1]


def _refused_parts(step: Any) -> Iterator[Any]:
    if type(step) is Pipeline:
        for _, part in step.steps:
            yield from _refused_parts(part)
    elif type(step) is ColumnTransformer:
        # A function for columns is shown the rows; the threshold counts the zeros of all of them.
        if step.sparse_threshold != 0 or any(callable(part[2]) for part in step.transformers):
            yield step
        for part in (*(part[1] for part in step.transformers), step.remainder):
            yield from _refused_parts(part)
    elif not (step is None or isinstance(step, str) or acts_by_row(step)):
        yield step


def check_plan(plan: Any) -> None:
    """Refuse a trial against somebody who sees more of it than its result."""
    if plan.unit != "record" or plan.adversary != "model":
        raise ValueError(
            f"Got a candidate whose budget protects one {plan.unit} against"
            f" {plan.adversary!r}, expected one that protects a record against 'model':"
            " everybody else sees all trials, of which a selection hides none. Set"
            " adversary='model' and privacy_unit='record', or compose the fits by hand."
        )


def common_relation(plans: Sequence[Any]) -> tuple[str, str, Neighboring]:
    """The adversary, the unit and the neighbouring relation of all plans, which have to be one."""
    relations = {(str(plan.adversary), str(plan.unit), plan.neighboring) for plan in plans}
    if len(relations) > 1:
        found = sorted((adversary, unit, str(how)) for adversary, unit, how in relations)
        raise ValueError(
            f"Got candidates under {found}, expected one adversary, one unit and one neighbouring"
            " relation: guarantees under different ones do not add up."
        )
    return relations.pop()
