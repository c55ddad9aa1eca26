"""Which agent owns which row: by labels, or by rules that hand out the rows of one data set."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Integral
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Partition: TypeAlias = int | str | Callable[[Any, Any], Any]

_DEFAULT_AGENTS = 10
_CONCENTRATION = 0.5
_TARGET_BINS = 10
# Keeps the stream apart from that of data which was simulated with the same seed.
_STREAM = 0x0A6E


@dataclass(frozen=True, eq=False, kw_only=True)
class Ownership:
    """The owner of each row of X.

    Parameters
    ----------
    labels : ndarray of shape (n_agents,)
        Public names of the agents, sorted and unique.
    index : ndarray of intp of shape (n_samples,)
        Position in ``labels`` of the owner of each row.
    condition : str, default=""
        Where ownership was made from data, one sentence on what the guarantee is conditional on.

    Examples
    --------
    >>> from skdpadmm.network import ownership_of_labels
    >>> ownership = ownership_of_labels(["b", "a", "b"], n_samples=3)
    >>> ownership.labels.tolist(), ownership.index.tolist(), ownership.sizes.tolist()
    (['a', 'b'], [1, 0, 1], [1, 2])
    """

    labels: NDArray[Any]
    index: NDArray[np.intp]
    condition: str = ""

    @property
    def n_agents(self) -> int:
        """Number of agents."""
        return len(self.labels)

    def joined_by(self, labels: Any) -> Ownership:
        """The same ownership with more agents, who own nothing yet; known labels change nothing."""
        known = self.labels.tolist()
        more = set(labels) - set(known)
        if not more:
            return self
        everybody = _ownership_of_objects([*known, *more], "agents")
        return replace(
            self, labels=everybody.labels, index=everybody.index[: len(known)][self.index]
        )

    @cached_property
    def sizes(self) -> NDArray[np.intp]:
        """Number of rows of each agent, of shape (n_agents,)."""
        return np.diff(self._bounds)

    def rows_of(self, agent: int) -> slice | NDArray[np.intp]:
        """Ascending rows of the agent at a position in ``labels``.

        A slice where the rows are neighbours, so that indexing with it makes a view.
        """
        if not 0 <= agent < self.n_agents:
            raise IndexError(f"Got agent={agent!r}, expected an int in [0, {self.n_agents}).")
        rows = self._by_agent[self._bounds[agent] : self._bounds[agent + 1]]
        if not rows.size:
            return slice(0, 0)
        first, last = int(rows[0]), int(rows[-1])
        return slice(first, last + 1) if last - first + 1 == rows.size else rows

    @cached_property
    def _by_agent(self) -> NDArray[np.intp]:
        """Rows, agent after agent."""
        rows = np.argsort(self.index, kind="stable")
        rows.setflags(write=False)
        return rows

    @cached_property
    def _bounds(self) -> NDArray[np.intp]:
        """Where each agent begins in ``_by_agent``, and the end."""
        sizes = np.bincount(self.index, minlength=self.n_agents)
        return np.concatenate([[0], np.cumsum(sizes)]).astype(np.intp)


def ownership_of_labels(labels: Any, *, n_samples: int, name: str = "agents") -> Ownership:
    """Return the ownership that labels of rows state; every agent in it owns a row.

    Labels are ints, strings, or anything of one type that can be sorted; else a TypeError. Another
    shape than (n_samples,) or a missing label (None or NaN) raises a ValueError, which calls the
    labels by `name`.

    Examples
    --------
    >>> from skdpadmm.network import ownership_of_labels
    >>> ownership_of_labels([7, 7, 3], n_samples=3).labels.tolist()
    [3, 7]
    """
    # As objects, because numpy reads the list ["a", nan] as two strings.
    array = np.asarray(labels, dtype=None if hasattr(labels, "dtype") else object)
    if array.shape != (n_samples,):
        raise ValueError(
            f"Got {name} of shape {array.shape}, expected shape ({n_samples},). "
            "Give one label for each row of X."
        )
    if array.dtype == object:
        return _ownership_of_objects(array.tolist(), name)
    unique, index = np.unique(array, return_inverse=True)
    _require_present(unique[unique != unique].tolist(), name)
    return Ownership(labels=unique, index=index.astype(np.intp, copy=False))


def positions_of_labels(
    labels: Any, known: NDArray[Any], *, n_samples: int, name: str = "agents"
) -> NDArray[np.intp]:
    """Position, for each row, of its label among `known` ones, which are sorted and unique.

    Errors are those of `ownership_of_labels`, and a ValueError for a label that is not known.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpadmm.network import positions_of_labels
    >>> positions_of_labels(["b", "a", "b"], np.array(["a", "b", "c"]), n_samples=3).tolist()
    [1, 0, 1]
    """
    asked = ownership_of_labels(labels, n_samples=n_samples, name=name)
    position = {label: i for i, label in enumerate(known.tolist())}
    unknown = [label for label in asked.labels.tolist() if label not in position]
    if unknown:
        raise ValueError(
            f"Got {name} {unknown[:5]!r}, expected labels of agents that hold rows in the fit, such"
            f" as {known[:5].tolist()}."
        )
    places = np.array([position[label] for label in asked.labels.tolist()], dtype=np.intp)
    return places[asked.index]


def _ownership_of_objects(labels: list[Any], name: str) -> Ownership:
    """Hashing keeps Python's slow comparisons to one label per agent."""
    try:
        unique = list(set(labels))
        _require_present([label for label in unique if _is_missing(label)], name)
        unique.sort()
    except TypeError as error:
        raise TypeError(
            f"Got {name} that cannot be sorted ({error}), expected labels of one type. "
            "Convert them, for example to strings."
        ) from error
    position = {label: i for i, label in enumerate(unique)}
    index = np.fromiter(map(position.__getitem__, labels), dtype=np.intp, count=len(labels))
    return Ownership(labels=_as_array(unique), index=index)


def _as_array(values: list[Any]) -> NDArray[Any]:
    """Of the natural type, unless that would change a value."""
    objects = np.fromiter(values, dtype=object, count=len(values))
    natural = np.asarray(values) if all(map(np.isscalar, values)) else objects
    return natural if natural.tolist() == values else objects


def _is_missing(label: Any) -> bool:
    try:
        return label is None or bool(label != label)
    except TypeError:  # pandas.NA is neither equal to itself nor different
        return True


def _require_present(missing: list[Any], name: str) -> None:
    if missing:
        raise ValueError(
            f"Got {name} with a missing label ({missing[0]!r}), expected a label for every row. "
            "Give rows without an owner a label of their own."
        )


def agent_sizes(
    partition: Partition, *, n_samples: int, n_agents: int | None = None
) -> NDArray[np.intp] | None:
    """Number of rows of each agent, as far as that is public before there are data.

    Parameters and errors are those of `partition_rows`. None for "dirichlet" and for a callable,
    where sizes depend on the data.

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
        Number of agents, at most one for each row; None is ``min(10, n_samples)``. An int or a
        callable ``partition`` decides it.
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
        Arguments that are none of the above raise a ValueError.

    Examples
    --------
    >>> from skdpadmm.network import partition_rows
    >>> y = [0.3, 0.1, 0.2, 0.4]
    >>> halves = partition_rows("sorted", n_samples=4, n_agents=2, y=y, is_classification=False)
    >>> halves.index.tolist()
    [1, 0, 0, 1]
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
    """What a guarantee is conditional on where a partition looks at the data, as a sentence, or "".

    Examples
    --------
    >>> from skdpadmm.network import condition_of
    >>> condition_of("iid"), condition_of("sorted").split("(")[0]
    ('', 'The agents were formed by looking at the data ')
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
    is_name = isinstance(partition, str) and partition in _SIZES
    is_count = isinstance(partition, Integral) and not isinstance(partition, bool)
    if not (is_name or is_count or callable(partition)):
        raise ValueError(
            f"Got partition={partition!r}, expected an int, one of {list(_SIZES)}, or a callable "
            "(X, y) -> labels."
        )
    if n_agents is not None and not is_name:
        raise ValueError(
            f"Got n_agents={n_agents!r} with partition={partition!r}, expected n_agents=None: this "
            "partition decides how many agents there are."
        )
    if callable(partition):
        return partition, 0
    name, count = ("n_agents", n_agents) if is_name else ("partition", partition)
    if count is None:
        return str(partition), min(_DEFAULT_AGENTS, n_samples)
    n = _require_int(name, count, at_least=1)
    if n > n_samples:
        raise ValueError(
            f"Got {name}={n} for {n_samples} rows, expected at most one agent per row. "
            "Ask for fewer agents."
        )
    return str(partition) if is_name else "iid", n


def _require_int(name: str, value: Any, *, at_least: int) -> int:
    if not isinstance(value, Integral) or isinstance(value, bool) or value < at_least:
        raise ValueError(f"Got {name}={value!r}, expected an int in [{at_least}, inf).")
    return int(value)
