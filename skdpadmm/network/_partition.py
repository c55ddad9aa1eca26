"""Simulated agents: rules that hand out the rows of one data set."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from numbers import Integral
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from skdpadmm.network._ownership import Ownership, ownership_of_labels

Partition: TypeAlias = int | str | Callable[[Any, Any], Any]

_DEFAULT_AGENTS = 10
_CONCENTRATION = 0.5
_TARGET_BINS = 10
# Keeps the stream apart from that of data which was simulated with the same seed.
_STREAM = 0x0A6E


def agent_sizes(
    partition: Partition, *, n_samples: int, n_agents: int | None = None
) -> NDArray[np.intp] | None:
    """Number of rows of each agent, as far as that is public before there are data.

    Parameters
    ----------
    partition : int, {"iid", "quantity", "dirichlet", "sorted"} or callable
        As for `partition_rows`.
    n_samples : int
        Number of rows, at least 1.
    n_agents : int or None, default=None
        Number of agents; None is ``min(10, n_samples)``.

    Returns
    -------
    ndarray of intp of shape (n_agents,), or None
        A function of the arguments alone. None for "dirichlet" and for a callable, where sizes
        depend on the data.

    Raises
    ------
    ValueError
        As `partition_rows`.

    Examples
    --------
    >>> from skdpadmm.network import agent_sizes
    >>> agent_sizes(3, n_samples=8).tolist()
    [3, 3, 2]
    >>> agent_sizes("quantity", n_samples=100, n_agents=5).tolist()
    [42, 22, 15, 11, 10]
    """
    return _public_sizes(*_rule_and_agents(partition, n_samples, n_agents), n_samples)


def partition_rows(
    partition: Partition,
    *,
    n_samples: int,
    n_agents: int | None = None,
    seed: int = 0,
    X: Any = None,
    y: Any = None,
    is_classification: bool,
) -> Ownership:
    """Hand out rows to simulated agents.

    Parameters
    ----------
    partition : int, {"iid", "quantity", "dirichlet", "sorted"} or callable
        - int: that many agents, as in "iid".
        - "iid": random rows, equal sizes up to one.
        - "quantity": random rows, sizes that fall as one over the rank of the agent (Zipf).
        - "dirichlet": label skew. The shares of the agents in each class are drawn from a
          symmetric Dirichlet(0.5) law; the classes of a regression are tenths of ``y``.
        - "sorted": equal chunks of the rows in the order of ``y``.
        - callable: ``partition(X, y)`` returns the label of the owner of each row.

        The last three look at the data, and say so in the condition of the result.
    n_samples : int
        Number of rows, at least 1.
    n_agents : int or None, default=None
        Number of agents; None is ``min(10, n_samples)``. An int or a callable ``partition``
        decides it.
    seed : int, default=0
        Non-negative. With the sizes, all that "iid" and "quantity" depend on.
    X : object, default=None
        Handed to a callable.
    y : array-like of shape (n_samples,), default=None
        Targets, for "dirichlet" and "sorted"; handed to a callable.
    is_classification : bool
        Whether the values of ``y`` are classes.

    Returns
    -------
    Ownership
        Every agent owns at least one row. Agents are named 0, 1, ..., or as the callable does.

    Raises
    ------
    ValueError
        For an unknown partition, fewer agents than one or more than rows, ``n_agents`` beside a
        partition that decides it, or targets or labels of a wrong shape.
    TypeError
        If a callable's labels cannot be sorted.

    Examples
    --------
    >>> from skdpadmm.network import partition_rows
    >>> y = [0.3, 0.1, 0.2, 0.4]
    >>> halves = partition_rows("sorted", n_samples=4, n_agents=2, y=y, is_classification=False)
    >>> halves.index.tolist()
    [1, 0, 0, 1]
    >>> partition_rows(2, n_samples=5, seed=1, is_classification=True).sizes.tolist()
    [3, 2]
    """
    _require_int("seed", seed, at_least=0)
    rule, n = _rule_and_agents(partition, n_samples, n_agents)
    if not isinstance(rule, str):
        labelled = ownership_of_labels(
            rule(X, y), n_samples=n_samples, name="labels from the callable partition"
        )
        return replace(labelled, condition=condition_of(rule))

    rng = np.random.default_rng([_STREAM, int(seed)])
    sizes = _public_sizes(rule, n, n_samples)
    if sizes is None:
        classes = _classes(_targets(rule, y, n_samples), is_classification=is_classification)
        index = _leave_nobody_out(_skewed(classes, n, rng), n)
    elif rule == "sorted":
        index = np.empty(n_samples, dtype=np.intp)
        index[np.argsort(_targets(rule, y, n_samples), kind="stable")] = _in_chunks(sizes)
    else:
        index = rng.permutation(_in_chunks(sizes))
    return Ownership(labels=np.arange(n), index=index, condition=condition_of(rule))


def condition_of(partition: Partition) -> str:
    """Say in a sentence what a guarantee is conditional on where a partition looks at the data.

    Parameters
    ----------
    partition : int, {"iid", "quantity", "dirichlet", "sorted"} or callable

    Returns
    -------
    str
        Empty for those that see the number of rows alone.

    Examples
    --------
    >>> from skdpadmm.network import condition_of
    >>> condition_of("iid")
    ''
    >>> condition_of("sorted").split("(")[0]
    'The agents were formed by looking at the data '
    """
    reads_targets = isinstance(partition, str) and partition in _READ_TARGETS
    if not (reads_targets or callable(partition)):
        return ""
    rule = "a function of X and y" if callable(partition) else repr(partition)
    return (
        f"The agents were formed by looking at the data (partition: {rule}), and the guarantee is "
        "conditional on the resulting ownership."
    )


def _equal_sizes(n_samples: int, n_agents: int) -> NDArray[np.intp]:
    return n_samples // n_agents + (np.arange(n_agents) < n_samples % n_agents).astype(np.intp)


def _power_law_sizes(n_samples: int, n_agents: int) -> NDArray[np.intp]:
    # A cumulative sum has one order of additions on every machine.
    cumulative = np.cumsum(1.0 / np.arange(1, n_agents + 1))
    bounds = np.floor((n_samples - n_agents) * (cumulative / cumulative[-1])).astype(np.intp)
    return 1 + np.sort(np.diff(bounds, prepend=0))[::-1]  # rounding can break the order


_SIZES = {
    "iid": _equal_sizes,
    "quantity": _power_law_sizes,
    "dirichlet": None,
    "sorted": _equal_sizes,
}
_READ_TARGETS = ("dirichlet", "sorted")
PARTITIONS = tuple(sorted(_SIZES))


def _public_sizes(
    rule: str | Callable[[Any, Any], Any], n_agents: int, n_samples: int
) -> NDArray[np.intp] | None:
    sizes = _SIZES[rule] if isinstance(rule, str) else None
    return None if sizes is None else sizes(n_samples, n_agents)


def _in_chunks(sizes: NDArray[np.intp]) -> NDArray[np.intp]:
    """Owners, where the first agent has the first rows, and so on."""
    return np.repeat(np.arange(len(sizes)), sizes)


def _skewed(classes: NDArray[np.intp], n_agents: int, rng: np.random.Generator) -> NDArray[np.intp]:
    """Owners, drawn within each class by shares of its own."""
    index = np.empty(len(classes), dtype=np.intp)
    concentration = np.full(n_agents, _CONCENTRATION)
    by_class = np.argsort(classes, kind="stable")
    for rows in np.split(by_class, np.cumsum(np.bincount(classes))[:-1]):
        index[rows] = rng.choice(n_agents, size=len(rows), p=rng.dirichlet(concentration))
    return index


def _leave_nobody_out(index: NDArray[np.intp], n_agents: int) -> NDArray[np.intp]:
    """Give a row to each agent that has none, always from those that own most."""
    sizes = np.bincount(index, minlength=n_agents)
    by_agent = np.argsort(index, kind="stable")
    # The k-th row of its owner has rank k. Giving away the highest ranks levels the largest agents,
    # and there are enough ranks above zero because there is a row for each agent.
    rank = np.arange(len(index)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    without = np.flatnonzero(sizes == 0)
    repaired = index.copy()
    repaired[by_agent[np.argsort(-rank, kind="stable")[: len(without)]]] = without
    return repaired


def _classes(y: NDArray[Any], *, is_classification: bool) -> NDArray[np.intp]:
    """Classes of the rows as small ints; of numbers, the tenth that they fall in."""
    if is_classification:
        return np.unique(y, return_inverse=True)[1].astype(np.intp, copy=False)
    # Values themselves as edges: interpolation between huge ones could overflow, and warn.
    edges = np.sort(y)[len(y) * np.arange(1, _TARGET_BINS) // _TARGET_BINS]
    return np.searchsorted(edges, y, side="right").astype(np.intp, copy=False)


def _targets(rule: str, y: Any, n_samples: int) -> NDArray[Any]:
    targets = np.asarray(y)
    if targets.shape != (n_samples,):
        got = "y=None" if y is None else f"y of shape {targets.shape}"
        raise ValueError(
            f"Got {got}, expected shape ({n_samples},). partition={rule!r} hands out rows by "
            "their targets; use 'iid' or 'quantity' without."
        )
    return targets


def _rule_and_agents(
    partition: Partition, n_samples: int, n_agents: int | None
) -> tuple[str | Callable[[Any, Any], Any], int]:
    """Return the name of the rule, or the callable, and the number of agents (0 for a callable)."""
    _require_int("n_samples", n_samples, at_least=1)
    if isinstance(partition, str) and partition in _SIZES:
        n = min(_DEFAULT_AGENTS, n_samples) if n_agents is None else n_agents
        return partition, _require_agents("n_agents", n, n_samples)
    is_count = isinstance(partition, Integral) and not isinstance(partition, bool)
    if not is_count and not callable(partition):
        raise ValueError(
            f"Got partition={partition!r}, expected an int, one of {list(_SIZES)}, or a callable "
            "(X, y) -> labels."
        )
    if n_agents is not None:
        raise ValueError(
            f"Got n_agents={n_agents!r} with partition={partition!r}, expected n_agents=None: this "
            "partition decides how many agents there are."
        )
    if callable(partition):
        return partition, 0
    return "iid", _require_agents("partition", partition, n_samples)


def _require_agents(name: str, value: Any, n_samples: int) -> int:
    n_agents = _require_int(name, value, at_least=1)
    if n_agents > n_samples:
        raise ValueError(
            f"Got {name}={n_agents} for {n_samples} rows, expected at most one agent per row. "
            "Ask for fewer agents."
        )
    return n_agents


def _require_int(name: str, value: Any, *, at_least: int) -> int:
    if not isinstance(value, Integral) or isinstance(value, bool) or value < at_least:
        raise ValueError(f"Got {name}={value!r}, expected an int in [{at_least}, inf).")
    return int(value)
