"""Neighbouring data sets that are hard to hide: made from public facts, or given."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline

from skdpadmm._candidates import last_step
from skdpadmm.algorithms import GradientADMM
from skdpadmm.audit._copies import estimators_in, given_to_last_step, is_classifier

# What is assumed of targets by an estimator of ours, and of another one.
OURS, OTHERS = (-3.0, 3.0), (-1.0, 1.0)
N_RECORDS, N_AGENTS, OF_AGENT = 4, 4, 3


@dataclass(frozen=True, eq=False, kw_only=True)
class Neighbors:
    """Two data sets that differ in one unit.

    Attributes
    ----------
    first, second : tuple of (X, y)
    fit_params : dict
        What else `fit` is given, with both.
    differ : str
        In what, in words.
    """

    first: tuple[Any, Any]
    second: tuple[Any, Any]
    fit_params: dict[str, Any]
    differ: str


@dataclass(frozen=True, eq=False, kw_only=True)
class Schema:
    """What is public about data for an estimator.

    Attributes
    ----------
    X : ndarray of shape (n_samples, n_features)
        Rows as long as they may be.
    y : ndarray of shape (n_samples,)
        Targets at their bounds, alternating: models stay near zero, where derivatives are large.
    low, high : object
        The targets that are the farthest apart.
    corner : ndarray of shape (n_features,)
        The largest row.
    opposite : ndarray of shape (n_features,)
        A row that is as long and points elsewhere.
    fit_params : dict
    changed : ndarray of intp
        Rows of the unit in which neighbours differ.
    last : ndarray of intp or None
        The last record, where an algorithm takes them in the order of the data: the first one
        meets nothing but the start.
    is_clipped : bool
        Whether rows may be of any size; what learns from rows before they are clipped takes none
        that is huge.
    """

    X: NDArray[np.float64]
    y: NDArray[Any]
    low: Any
    high: Any
    corner: NDArray[np.float64]
    opposite: NDArray[np.float64]
    fit_params: dict[str, Any]
    changed: NDArray[np.intp]
    last: NDArray[np.intp] | None
    is_clipped: bool


def schema_of(
    estimator: Any, X: Any, y: Any, fit_params: dict[str, Any], n_features: int
) -> Schema:
    """Read what is public from an estimator, and make what is not given.

    Parameters
    ----------
    estimator : estimator
    X, y : array-like or None
        Data to hide a record in; None: made from public facts.
    fit_params : dict
    n_features : int
        How many there are where nobody says.

    Returns
    -------
    Schema

    Raises
    ------
    ValueError
        Where data is needed and not given.
    """
    if (X is None) != (y is None):
        raise ValueError("Got X without y or y without X, expected both or none of them.")
    fit_params = dict(fit_params)
    whole, estimator = estimator, last_step(estimator)
    if whole is not estimator and X is None:
        raise ValueError(
            "Got a Pipeline and no data, expected X and y: what is public of rows before its steps"
            " is not known. Pass data of that shape, which may be made up, or its last step."
        )
    if X is None and any(isinstance(one, Pipeline) for one in estimators_in(estimator)):
        raise ValueError(
            f"Got {type(estimator).__name__} with a Pipeline in it and no data, expected X and y:"
            " what is public of rows before its steps is not known. Pass its last step,"
            " best_estimator_, or data of that shape, which may be made up."
        )
    # Bounds of a last step are about rows that other steps have made.
    bounds = None if whole is not estimator else getattr(estimator, "feature_bounds", None)
    if X is None:
        if isinstance(bounds, dict) or getattr(estimator, "agent_column", None) is not None:
            raise ValueError(
                "Got an estimator whose columns have names or hold agents and no data, expected X"
                " and y. Pass data of that shape, which may be made up."
            )
        if _takes_agents(estimator) and fit_params.get("agents") is None:
            n_agents = getattr(estimator, "n_agents", None)
            n_agents = int(n_agents) if isinstance(n_agents, Integral) else N_AGENTS
            fit_params["agents"] = np.repeat(np.arange(n_agents), OF_AGENT)
        agents = fit_params.get("agents")
        n_samples = N_RECORDS if agents is None else len(agents)
        if bounds is not None:
            n_features = max((np.size(bound) for bound in bounds), default=n_features)
            n_features = n_features if np.ndim(bounds[0]) else 1
        corner, opposite = _corners(bounds, n_features)
        rows = np.tile(corner, (n_samples, 1))
    else:
        rows = np.array(X, dtype=np.float64)
        n_samples = len(rows)
        if isinstance(bounds, dict):
            bounds = None
        corner, opposite = _corners(bounds, rows.shape[1])
        if bounds is None:
            largest = np.abs(rows).max()
            corner, opposite = corner * largest, opposite * largest
    low, high = _ends(estimator, y)
    if y is None:
        targets = np.where(np.arange(n_samples) % 2 == 0, high, low)
    else:
        targets = np.array(y)
    return Schema(
        X=rows,
        y=targets,
        low=low,
        high=high,
        corner=corner,
        opposite=opposite,
        fit_params=fit_params,
        changed=_changed(estimator, fit_params, n_samples),
        last=np.array([n_samples - 1]) if _is_in_order(estimator) else None,
        is_clipped=whole is estimator,
    )


def worst_case_neighbors(schema: Schema) -> Iterator[Neighbors]:
    """Pairs of data sets, the likeliest one to tell the most first.

    Where the order is that of the data the same pairs follow with the last record in place of the
    first.

    Parameters
    ----------
    schema : Schema

    Yields
    ------
    Neighbors
    """
    what = "one record" if len(schema.changed) == 1 else "the records of one agent"
    yield from _worst_case_in(schema, schema.changed, what)
    if schema.last is not None:
        yield from _worst_case_in(schema, schema.last, "the last record")


def _worst_case_in(schema: Schema, changed: NDArray[np.intp], what: str) -> Iterator[Neighbors]:
    """Pairs that differ in given rows."""

    def with_unit(row: Any, target: Any) -> tuple[Any, Any]:
        X, y = schema.X.copy(), schema.y.copy()
        X[changed], y[changed] = row, target
        return X, y

    corner, high, low = schema.corner, schema.high, schema.low
    huge = np.where(schema.opposite > 0, 1e300, -1e300)
    for row, target, words in (
        (corner, low, "the opposite target"),
        (schema.opposite, low, "another row as long, and the opposite target"),
        (schema.opposite, high, "another row as long"),
        (huge, low, "a huge row, and the opposite target"),
        (np.zeros_like(corner), high, "a row of zeros"),
    ):
        if row is huge and not schema.is_clipped:
            continue
        yield Neighbors(
            first=with_unit(corner, high),
            second=with_unit(row, target),
            fit_params=schema.fit_params,
            differ=f"{what}, which has {words}",
        )


def _is_in_order(estimator: Any) -> bool:
    """Whether records are taken one after the other in the order of the data."""
    algorithms = [getattr(one, "algorithm", None) for one in estimators_in(estimator)]
    return any(isinstance(one, GradientADMM) and one._order == "arrival" for one in algorithms)


def _takes_agents(estimator: Any) -> bool:
    return "agents" in inspect.signature(estimator.fit).parameters


def _corners(bounds: Any, n_features: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The largest row, and one that is as long where features lie around zero."""
    signs = np.where(np.arange(n_features) % 2 == 0, -1.0, 1.0)
    if bounds is None:
        return np.ones(n_features), signs
    low, high = (np.broadcast_to(np.asarray(b, np.float64), (n_features,)) for b in bounds)
    return high.copy(), np.where(signs < 0, low, high)


def _ends(estimator: Any, y: Any) -> tuple[Any, Any]:
    """The two targets that are the farthest apart."""
    if is_classifier(estimator):
        declared = getattr(estimator, "classes", None)
        known = np.unique([0, 1] if y is None else np.asarray(y))
        known = known if declared is None else np.unique(np.asarray(declared))
        return known[0], known[-1]
    ends = getattr(estimator, "target_bounds", OTHERS)
    low, high = OURS if ends is None else ends
    return float(low), float(high)


def _changed(estimator: Any, fit_params: dict[str, Any], n_samples: int) -> NDArray[np.intp]:
    """Rows of the unit that is protected: the first one, or those of its agent."""
    if getattr(estimator, "privacy_unit", "record") != "agent":
        return np.zeros(1, dtype=np.intp)
    agents = given_to_last_step(fit_params, "agents")
    if agents is None:
        raise ValueError(
            "Got privacy_unit='agent' without agents, expected a label for each row. Pass"
            " agents=..., or neighbors=((X, y), (X2, y2)) where a column of X holds them."
        )
    agents = np.asarray(agents)
    assert len(agents) == n_samples
    return np.flatnonzero(agents == agents[0]).astype(np.intp)
