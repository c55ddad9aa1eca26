"""Which agent owns which row: by labels, or by a rule that assigns the rows of one data set."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from numbers import Real
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Partition: TypeAlias = str | Callable[[Any, Any], Any]

_DEFAULT_AGENTS = 10
_CONCENTRATION = 0.5
_TARGET_BINS = 10
_READ_TARGETS = ("dirichlet", "sorted")
PARTITIONS = ("iid", "quantity", *_READ_TARGETS)
# Keeps the stream apart from that of data which was simulated with the same seed.
_STREAM = 0x0A6E


@dataclass(frozen=True, eq=False)
class Ownership:
    """The owner of each row of X.

    Parameters
    ----------
    labels : ndarray of shape (n_agents,)
        Public names of the agents, sorted and unique.
    index : ndarray of intp of shape (n_samples,)
        Position in ``labels`` of the owner of each row.
    counts : ndarray of intp of shape (n_agents,), default=None
        Number of rows of each agent, where ``index`` is empty because they are elsewhere.

    Examples
    --------
    >>> from skdpadmm.network import ownership_of_labels
    >>> ownership = ownership_of_labels(["b", "a", "b"], n_samples=3)
    >>> ownership.labels.tolist(), ownership.index.tolist(), ownership.sizes.tolist()
    (['a', 'b'], [1, 0, 1], [1, 2])
    """

    labels: NDArray[Any]
    index: NDArray[np.intp]
    counts: NDArray[np.intp] | None = None

    @property
    def n_agents(self) -> int:
        """Number of agents."""
        return len(self.labels)

    def name_of(self, labels: Any) -> str:
        """Return who the owners are: the name of their column or Series, and a digest of labels.

        Empty for consecutive numbers without a name, which others have as well.
        """
        known, name = self.labels.tolist(), getattr(labels, "name", labels)
        # A table may have turned integers into floats.
        known = [int(x) if isinstance(x, float) and x.is_integer() else x for x in known]
        name = name if isinstance(name, str) else ""
        first = known[0]
        if not name and isinstance(first, Real) and known == [first + i for i in range(len(known))]:
            return ""
        return f"{name} {hashlib.sha256(repr(known).encode()).hexdigest()[:12]}".strip()

    def joined_by(self, labels: Any) -> Ownership:
        """The same ownership with more agents, without rows; known labels change nothing."""
        known = self.labels.tolist()
        more = set(labels) - set(known)
        if not more:
            return self
        everybody = _ownership_of_objects([*known, *more], "agents")
        return Ownership(everybody.labels, everybody.index[: len(known)][self.index])

    @cached_property
    def sizes(self) -> NDArray[np.intp]:
        """Number of rows of each agent, of shape (n_agents,)."""
        return np.diff(self._bounds) if self.counts is None else self.counts

    def rows_of(self, agent: int) -> slice | NDArray[np.intp]:
        """Ascending rows of the agent at a position in ``labels``.

        A slice where the rows are neighbours, so that indexing with it makes a view.
        """
        rows = self._by_agent[self._bounds[agent] : self._bounds[agent + 1]]
        if not rows.size:
            return slice(0, 0)
        first, last = int(rows[0]), int(rows[-1])
        return slice(first, last + 1) if last - first + 1 == rows.size else rows

    def slots(self, size: int) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
        """Rows and weights in `size` places of each agent: a shape that its number of rows leaves.

        An agent's first rows are repeated until its places are full. Those in the first places have
        equal weights, `size` together, and repetitions 0.
        """
        kept, place = np.minimum(self.sizes, size)[:, None], np.arange(size)
        rows = self._by_agent[self._bounds[:-1, None] + place % kept]
        return rows.ravel(), np.where(place < kept, size / kept, 0.0).ravel()

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
    """Return the ownership of rows with these labels; every agent in it owns a row.

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
    _require_present(unique.tolist(), name)
    return Ownership(unique, index.astype(np.intp, copy=False))


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
            f"Got {name} that hold no rows in the fit, expected labels such as"
            f" {known[:5].tolist()}."
        )
    places = np.array([position[label] for label in asked.labels.tolist()], dtype=np.intp)
    return places[asked.index]


def _ownership_of_objects(labels: list[Any], name: str) -> Ownership:
    """As `ownership_of_labels`; hashing keeps Python's slow comparisons to one label per agent."""
    try:
        unique = list(set(labels))
        _require_present(unique, name)
        unique.sort()
    except TypeError:
        raise TypeError(
            f"Got {name} that cannot be sorted, expected labels of one type. "
            "Convert them, for example to strings."
        ) from None
    position = {label: i for i, label in enumerate(unique)}
    index = np.fromiter(map(position.__getitem__, labels), dtype=np.intp, count=len(labels))
    # Of the natural type, unless that would change a label.
    objects = np.fromiter(unique, dtype=object, count=len(unique))
    natural = np.asarray(unique) if all(map(np.isscalar, unique)) else objects
    return Ownership(natural if natural.tolist() == unique else objects, index)


def _require_present(labels: list[Any], name: str) -> None:
    # pandas.NA is neither equal to itself nor different.
    missing = [label for label in labels if label is None or str(label == label) != "True"]
    if missing:
        raise ValueError(
            f"Got {name} with a missing label, expected a label for every row. "
            "Give rows without an owner a separate label."
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
    >>> agent_sizes("iid", n_samples=8, n_agents=3).tolist()
    [3, 3, 2]
    >>> agent_sizes("quantity", n_samples=100, n_agents=5).tolist()
    [42, 22, 15, 11, 10]
    """
    if callable(partition):
        if n_agents is not None:
            raise ValueError(
                f"Got n_agents={n_agents!r} with a callable partition, expected n_agents=None: its"
                " labels determine the number of agents."
            )
        return None
    if partition not in PARTITIONS:
        raise ValueError(
            f"Got partition={partition!r}, expected one of {list(PARTITIONS)}, or a callable"
            " (X, y) -> labels."
        )
    n = _number_of_agents(n_samples, n_agents)
    if not 1 <= n <= n_samples:
        raise ValueError(
            f"Got n_agents={n} for {n_samples} rows, expected an int from 1 to the number of rows."
        )
    if partition == "dirichlet":
        return None
    if partition != "quantity":
        return n_samples // n + (np.arange(n) < n_samples % n).astype(np.intp)
    # A cumulative sum has one order of additions on every machine.
    cumulative = np.cumsum(1.0 / np.arange(1, n + 1))
    bounds = np.floor((n_samples - n) * (cumulative / cumulative[-1])).astype(np.intp)
    return 1 + np.sort(np.diff(bounds, prepend=0))[::-1]  # rounding can break the order


def _number_of_agents(n_samples: int, n_agents: int | None) -> int:
    return min(_DEFAULT_AGENTS, n_samples) if n_agents is None else n_agents


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
    """Assign rows to artificial agents.

    Parameters
    ----------
    partition : {"iid", "quantity", "dirichlet", "sorted"} or callable
        - "iid": random rows, equal sizes up to one.
        - "quantity": random rows, sizes that fall as one over the rank of the agent (Zipf).
        - "dirichlet": label skew. The proportions of the agents in each class are drawn from a
          symmetric Dirichlet(0.5) law; the classes of a regression are tenths of ``y``.
        - "sorted": equal chunks of the rows in the order of ``y``.
        - callable: ``partition(X, y)`` returns the label of the owner of each row.

        The last three depend on the data: see `condition_of`.
    n_samples : int
        Number of rows, at least 1.
    n_agents : int or None, default=None
        Number of agents, at most one for each row; None is ``min(10, n_samples)``. The labels of a
        callable ``partition`` decide it.
    seed : int, default=0
        Non-negative. With the sizes, all that "iid" and "quantity" depend on.
    X : object, default=None
        Passed to a callable.
    y : array-like of shape (n_samples,), default=None
        Targets, for "dirichlet" and "sorted"; passed to a callable.
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
    sizes = agent_sizes(partition, n_samples=n_samples, n_agents=n_agents)
    if callable(partition):
        name = "labels from the callable partition"
        return ownership_of_labels(partition(X, y), n_samples=n_samples, name=name)
    if partition in _READ_TARGETS and np.shape(y) != (n_samples,):
        raise ValueError(
            f"Got y of shape {np.shape(y)}, expected shape ({n_samples},): partition={partition!r}"
            " assigns rows by their targets."
        )
    rng = np.random.default_rng([_STREAM, int(seed)])
    n = _number_of_agents(n_samples, n_agents)
    if sizes is None:
        classes = _classes(np.asarray(y), is_classification=is_classification)
        return Ownership(np.arange(n), _leave_nobody_out(_skewed(classes, n, rng), n))
    # The first agent has the first rows, and so on.
    index = np.repeat(np.arange(n), sizes)
    if partition == "sorted":
        index[np.argsort(y, kind="stable")] = index.copy()
    else:
        index = rng.permutation(index)
    return Ownership(np.arange(n), index)


def condition_of(partition: Partition) -> str:
    """The condition of a guarantee if a partition depends on the data, as a sentence, or "".

    Examples
    --------
    >>> from skdpadmm.network import condition_of
    >>> condition_of("iid"), condition_of("sorted").split("(")[0]
    ('', 'The agents were formed by looking at the data ')
    """
    if not (callable(partition) or partition in _READ_TARGETS):
        return ""
    rule = "a function of X and y" if callable(partition) else repr(partition)
    return (
        f"The agents were formed by looking at the data (partition: {rule}), and the guarantee is "
        "conditional on the resulting ownership."
    )


def _skewed(classes: NDArray[np.intp], n_agents: int, rng: np.random.Generator) -> NDArray[np.intp]:
    """Owners, drawn within each class by its own proportions."""
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
