"""Data sets that are given as neighbours: whether a claim is about them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from skdpadmm._candidates import last_step
from skdpadmm.audit._copies import estimators_in, given_to_last_step
from skdpadmm.privacy import Neighboring

KEEP = "Change one, and keep the others in their order."


def require_neighbors(
    estimator: Any, first: tuple[Any, Any], second: tuple[Any, Any], fit_params: dict[str, Any]
) -> None:
    """Refuse two data sets that no guarantee of the estimator is about.

    They have to differ in one record, or in records of one agent where agents are protected.
    Where no relation is declared, one record may also be missing from one of them.

    Parameters
    ----------
    estimator : estimator
    first, second : tuple of (X, y)
    fit_params : dict
        What else `fit` is given, with both.

    Raises
    ------
    ValueError
        Where they are the same, or too far apart.
    """
    one, other = (_columns_of(*data) for data in (first, second))
    _require_same_columns(first, second, one, other)
    relation, unit = (_declared(estimator, name) for name in ("neighboring", "privacy_unit"))
    sizes = len(one[0]), len(other[0])
    is_of_agents = unit == "agent"
    is_declared = relation in tuple(Neighboring)
    if sizes[0] != sizes[1]:
        _require_sizes(sizes, str(relation) if is_declared else None, is_of_agents=is_of_agents)
        if not _is_one_missing(one, other):
            raise ValueError(
                f"Got neighbors with {sizes[0]} and {sizes[1]} records of which more than one"
                " differ, expected one that is missing and others that are the same. Leave one"
                " out, and keep the others in their order."
            )
        return
    changed = _differ(one, other)
    n_changed = int(changed.sum())
    what = "the records of one agent" if is_of_agents else "one record"
    if n_changed == 0:
        raise ValueError(
            f"Got neighbors that are the same, expected data sets that differ in {what}: else"
            " there is nothing to find. Change a row of X or its target in the second one."
        )
    labels = _labels(estimator, first, second, fit_params)
    if not is_of_agents:
        if n_changed != 1:
            raise ValueError(
                f"Got neighbors that differ in {n_changed} records, expected one: nothing is"
                f" claimed of more. {KEEP}"
            )
        return
    if labels is None or len(labels) != sizes[0]:
        got = "no agents" if labels is None else f"{len(labels)} labels of agents"
        raise ValueError(
            f"Got neighbors and {got} with privacy_unit='agent', expected a label for each of"
            f" {sizes[0]} rows. Pass agents=..., the same for both."
        )
    owners = {labels[row] for row in np.flatnonzero(changed).tolist()}
    if len(owners) != 1:
        raise ValueError(
            f"Got neighbors that differ in records of {len(owners)} agents, expected those of one"
            " agent: nothing is claimed of more. Change rows of one agent, and keep the others in"
            " their order."
        )


def _declared(estimator: Any, name: str) -> Any:
    """What an estimator declares, or the outermost one of those that it holds."""
    held = (getattr(one, name, None) for one in estimators_in(last_step(estimator)))
    return next((value for value in held if value is not None), None)


def _columns_of(X: Any, y: Any) -> tuple[NDArray[Any], NDArray[Any]]:
    """Rows and targets as tables with a record in each row."""
    rows = _table(X, "X")
    targets = np.zeros((len(rows), 0)) if y is None else _table(y, "y")
    if len(rows) != len(targets):
        raise ValueError(
            f"Got neighbors with {len(rows)} rows of X and {len(targets)} targets, expected as"
            " many. Pass a target for each row."
        )
    return rows, targets


def _table(values: Any, name: str) -> NDArray[Any]:
    dense = values.toarray() if hasattr(values, "toarray") else values
    try:
        table = np.asarray(dense)
    except ValueError:
        # Rows of several lengths are compared as they are.
        table = np.fromiter(dense, dtype=object, count=len(dense))
    if table.ndim == 0 or len(table) == 0:
        raise ValueError(
            f"Got neighbors with {name}={values!r}, expected an entry for each record. Pass"
            " ((X, y), (X2, y2))."
        )
    return table.reshape(len(table), -1)


def _require_same_columns(
    first: tuple[Any, Any],
    second: tuple[Any, Any],
    one: tuple[NDArray[Any], NDArray[Any]],
    other: tuple[NDArray[Any], NDArray[Any]],
) -> None:
    widths = [tuple(table.shape[1] for table in data) for data in (one, other)]
    names = [list(X.columns) for X, _ in (first, second) if hasattr(X, "columns")]
    is_renamed = len(names) == 2 and names[0] != names[1]
    if widths[0] != widths[1] or is_renamed:
        got = names if is_renamed else widths
        raise ValueError(
            f"Got neighbors with columns of X and y that differ ({got[0]} and {got[1]}), expected"
            " the same in both. Change a row alone."
        )


def _require_sizes(sizes: tuple[int, int], relation: str | None, *, is_of_agents: bool) -> None:
    if relation is None and not is_of_agents:
        if abs(sizes[0] - sizes[1]) != 1:
            raise ValueError(
                f"Got neighbors with {sizes[0]} and {sizes[1]} records, expected as many, or one"
                " more in one of them. Leave out one record, or replace one."
            )
        return
    of = "privacy_unit='agent'" if relation is None else f"neighboring={relation!r}"
    raise ValueError(
        f"Got neighbors with {sizes[0]} and {sizes[1]} records, expected as many for {of}: there"
        " their number is public. Replace a record in place of leaving it out."
    )


def _differ(
    one: tuple[NDArray[Any], NDArray[Any]], other: tuple[NDArray[Any], NDArray[Any]]
) -> NDArray[np.bool_]:
    """Which records are other ones."""
    parts = [_entries_differ(a, b).any(axis=1) for a, b in zip(one, other, strict=True)]
    return np.asarray(parts[0] | parts[1], dtype=np.bool_)


def _entries_differ(a: NDArray[Any], b: NDArray[Any]) -> NDArray[np.bool_]:
    if a.dtype.kind in "biufc" and b.dtype.kind in "biufc":
        # What is missing in both is the same.
        return np.asarray((a != b) & ~((a != a) & (b != b)), dtype=np.bool_)
    pairs = zip(a.ravel().tolist(), b.ravel().tolist(), strict=True)
    return np.array([not _is_same(*pair) for pair in pairs], dtype=np.bool_).reshape(a.shape)


def _is_same(a: Any, b: Any) -> bool:
    try:
        return a is b or bool(a == b) or bool(a != a and b != b)
    except (TypeError, ValueError):  # pandas.NA is neither equal to a value nor different
        return False


def _is_one_missing(
    one: tuple[NDArray[Any], NDArray[Any]], other: tuple[NDArray[Any], NDArray[Any]]
) -> bool:
    """Whether the longer one without one of its records is the shorter one."""
    longer, shorter = (one, other) if len(one[0]) > len(other[0]) else (other, one)
    before = _differ((longer[0][:-1], longer[1][:-1]), shorter)
    after = _differ((longer[0][1:], longer[1][1:]), shorter)
    place = int(np.argmax(before)) if before.any() else len(before)
    return not after[place:].any()


def _labels(
    estimator: Any, first: tuple[Any, Any], second: tuple[Any, Any], fit_params: dict[str, Any]
) -> list[Any] | None:
    """Whose each row is, where somebody says so; who holds which row is public."""
    agents = given_to_last_step(fit_params, "agents")
    column = _declared(estimator, "agent_column")
    if agents is not None:
        return list(np.ravel(np.asarray(agents)).tolist())
    if column is None:
        return None
    if last_step(estimator) is not estimator:
        raise ValueError(
            f"Got neighbors and a Pipeline whose last step has agent_column={column!r}, expected"
            " agent_column=None: which agents hold the rows is not known before other steps have"
            " made that column. Pass agents=... by the name of the last step, or the last step"
            " alone with rows that others have made."
        )
    try:
        labels, others = (_column(X, column) for X, _ in (first, second))
    except (IndexError, KeyError, TypeError, ValueError):
        # There is no such column, which the fit says better.
        return None
    if any(not _is_same(*pair) for pair in zip(labels, others, strict=True)):
        raise ValueError(
            f"Got neighbors with other agents in column {column!r}, expected the same in both: who"
            " holds which row is public. Change other columns alone."
        )
    return labels


def _column(X: Any, column: Any) -> list[Any]:
    if isinstance(column, str):
        return list(X[column])
    return list(_table(X, "X")[:, int(column)].tolist())
