"""Which agent owns which row."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray


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
    >>> ownership.rows_of(0), ownership.rows_of(1).tolist()
    (slice(1, 2, None), [0, 2])
    """

    labels: NDArray[Any]
    index: NDArray[np.intp]
    condition: str = ""

    @property
    def n_agents(self) -> int:
        """Number of agents."""
        return len(self.labels)

    def joined_by(self, labels: Any) -> Ownership:
        """Return the same ownership with more agents, who own nothing yet.

        Parameters
        ----------
        labels : iterable
            Their names; those that are known already change nothing.

        Returns
        -------
        Ownership

        Raises
        ------
        TypeError
            If the labels cannot be sorted together.

        Examples
        --------
        >>> from skdpadmm.network import ownership_of_labels
        >>> ownership = ownership_of_labels(["b", "a"], n_samples=2).joined_by(["ab", "a"])
        >>> ownership.labels.tolist(), ownership.sizes.tolist()
        (['a', 'ab', 'b'], [1, 0, 1])
        """
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
        """Return the rows of one agent, in ascending order.

        Parameters
        ----------
        agent : int
            Position in ``labels``.

        Returns
        -------
        slice or ndarray of intp
            A slice where the rows are neighbours, so that indexing with it makes a view.

        Raises
        ------
        IndexError
            If ``agent`` is not in [0, n_agents).
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
    """Return the ownership that labels of rows state.

    Parameters
    ----------
    labels : array-like of shape (n_samples,)
        The owner of each row: ints, strings, or anything of one type that can be sorted.
    n_samples : int
        Number of rows of X.
    name : str, default="agents"
        What error messages call ``labels``.

    Returns
    -------
    Ownership
        Every agent in it owns at least one row.

    Raises
    ------
    ValueError
        If the shape is not (n_samples,), or a label is missing (None or NaN).
    TypeError
        If the labels cannot be sorted, such as ints among strings.

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
    """Return for each row the position of its label among known ones.

    Parameters
    ----------
    labels : array-like of shape (n_samples,)
    known : ndarray of shape (n_agents,)
        Sorted and unique.
    n_samples : int
        Number of rows of X.
    name : str, default="agents"
        What error messages call ``labels``.

    Returns
    -------
    ndarray of intp of shape (n_samples,)

    Raises
    ------
    ValueError
        If the shape is not (n_samples,), or a label is missing or not known.
    TypeError
        If the labels cannot be sorted.

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
