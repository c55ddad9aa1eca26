"""How much alike agents are: public weights along which personalised models are averaged."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from operator import itemgetter
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from skdpadmm.network._named_graphs import component_labels

# As a string, because scipy < 1.15 has no brackets for its arrays.
Weights: TypeAlias = "sparse.csr_array[np.float64]"
_TOLERANCE = 1e-9
_MOST_SHOWN = 5
_REMEDY = "Add small weights"
_MOST_UNIFORM = 2000
EXPECTED_SIMILARITY = (
    "one of ['uniform', 'knn', 'gaussian'], a networkx.Graph with weights, a square matrix, or a"
    " Similarity"
)


@dataclass(frozen=True, kw_only=True)
class Similarity:
    """Symmetric weights between agents: who is like whom, on a connected graph.

    Two of them are equal where they have the same agents and weights, whatever they are called.
    Weights are public: a guarantee does not cover what they say about rows. To estimate them from
    private rows needs a budget of its own. Only their ratios within a row matter for means.

    Parameters
    ----------
    n_agents : int
        Number of agents, at least 1. One agent has no neighbours.
    matrix : array or sparse matrix of shape (n_agents, n_agents) or None, default=None
        Symmetric (up to 1e-9 of the largest weight), not negative, zero on the diagonal. It is
        copied. None gives each pair the weight one, and nothing is stored; a matrix with these
        weights becomes None.
    name : str, default="custom"
        What the weights are called; no part of equality.
    labels : tuple or None, default=None
        What the agents are called, in their order, each once; no part of equality. None: weights
        are for the agents in the order of their sorted labels.

    Attributes
    ----------
    fingerprint : str
        SHA-256 of the number of agents, the sorted edges and their weights.

    Raises
    ------
    ValueError
        If the matrix or the labels are none of this, an agent has no neighbour among two or more
        agents, or not every agent can reach every other one.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpadmm.network import Similarity
    >>> path = Similarity(n_agents=3, matrix=np.array([[0, 1, 0], [1, 0, 3], [0, 3, 0]]))
    >>> path.degrees.tolist(), path.n_neighbors.tolist()
    ([1.0, 4.0, 3.0], [1, 2, 1])
    >>> path.neighbor_mean(np.array([2.0, 10.0, 6.0])).tolist()
    [10.0, 5.0, 10.0]
    >>> [wave.tolist() for wave in path.waves([0, 2, 1, 0])]
    [[0, 2], [1], [0]]
    """

    n_agents: int
    matrix: Weights | None = field(default=None, compare=False, repr=False)
    name: str = field(default="custom", compare=False)
    labels: tuple[Any, ...] | None = field(default=None, compare=False, repr=False)
    fingerprint: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        n = self.n_agents
        if n < 1:
            raise ValueError(f"Got n_agents={n}, expected an int of at least 1.")
        if self.labels is not None:
            object.__setattr__(self, "labels", _checked_labels(self.labels, n))
        names = range(n) if self.labels is None else self.labels
        weights = None if self.matrix is None else checked_weights(self.matrix, names)
        if weights is not None and weights.nnz == n * (n - 1) and bool((weights.data == 1).all()):
            weights = None
        object.__setattr__(self, "matrix", weights)
        object.__setattr__(self, "fingerprint", _fingerprint(n, weights))

    @property
    def is_uniform(self) -> bool:
        """Whether each pair of agents has the weight one."""
        return self.matrix is None

    @property
    def weights(self) -> Weights:
        """All weights, of shape (n_agents, n_agents), in arrays that are read-only.

        Uniform weights of more than 2000 agents raise a ValueError: they would fill the memory.
        """
        matrix = self._uniform if self.matrix is None else self.matrix
        return sparse.csr_array((matrix.data, matrix.indices, matrix.indptr), shape=matrix.shape)

    @cached_property
    def degrees(self) -> NDArray[np.float64]:
        """Sum of the weights of each agent, of shape (n_agents,)."""
        degrees = (
            np.full(self.n_agents, self.n_agents - 1.0)
            if self.matrix is None
            else np.asarray(self.matrix.sum(axis=1), dtype=np.float64).ravel()
        )
        degrees.setflags(write=False)
        return degrees

    @cached_property
    def n_neighbors(self) -> NDArray[np.intp]:
        """Number of agents with a positive weight to each agent, of shape (n_agents,)."""
        counts = (
            np.full(self.n_agents, self.n_agents - 1, dtype=np.intp)
            if self.matrix is None
            else np.diff(self.matrix.indptr).astype(np.intp)
        )
        counts.setflags(write=False)
        return counts

    @property
    def n_edges(self) -> int:
        """Number of pairs with a positive weight."""
        return math.comb(self.n_agents, 2) if self.matrix is None else self.matrix.nnz // 2

    def neighbor_mean(self, values: NDArray[Any], agents: Any = None) -> NDArray[np.float64]:
        """Average the values of each agent's neighbours, by weight.

        The mean of an agent has the same bits whoever else is asked for.

        Parameters
        ----------
        values : ndarray of shape (n_agents, ...)
            Finite.
        agents : array-like of int of shape (n_asked,) or None, default=None
            Positions of agents whose mean is wanted; None asks for everybody's.

        Returns
        -------
        ndarray of shape (n_asked, ...), or (n_agents, ...) for everybody
            Zero for an agent that is alone.
        """
        if values.shape[:1] != (self.n_agents,):
            raise ValueError(
                f"Got values of shape {values.shape}, expected ({self.n_agents}, ...): an entry for"
                " each agent."
            )
        asked = None if agents is None else self._positions(agents, "agents")
        shape = values.shape if asked is None else (len(asked), *values.shape[1:])
        # In one memory order: sums have the same bits.
        flat = np.ascontiguousarray(
            values.reshape(self.n_agents, math.prod(values.shape[1:])), dtype=np.float64
        )
        if self.matrix is None:
            own = flat if asked is None else flat[asked]
            mean = (flat.sum(axis=0) - own) / (self.n_agents - 1) if self.n_agents > 1 else 0 * own
        else:
            mean = (self.shares if asked is None else self.shares[asked]) @ flat
        return np.asarray(mean, dtype=np.float64).reshape(shape)

    def wave_numbers(self, order: Any) -> NDArray[np.intp]:
        """Return the wave that each wake-up belongs to.

        A wake-up comes one wave after the latest earlier wake-up of the same agent or of one of
        its neighbours, and in wave 0 where there is none.

        Parameters
        ----------
        order : array-like of int of shape (n_wakes,)
            Positions of the agents that wake up, one after another.

        Returns
        -------
        ndarray of intp of shape (n_wakes,)
            Waves are numbered from 0 without gaps.

        Raises
        ------
        ValueError
            If ``order`` is no sequence of ints in [0, n_agents).
        """
        agents = self._positions(order, "order")
        if self.matrix is None:
            return np.arange(len(agents), dtype=np.intp)
        # Plain lists, because each wave depends on the one before: there is nothing to vectorise.
        bounds, neighbors = self.matrix.indptr.tolist(), self.matrix.indices
        latest_around = {
            agent: itemgetter(agent, *neighbors[bounds[agent] : bounds[agent + 1]].tolist())
            for agent in np.unique(agents).tolist()
        }
        latest = [-1] * self.n_agents
        numbers = []
        for agent in agents.tolist():
            number = max(latest_around[agent](latest)) + 1
            latest[agent] = number
            numbers.append(number)
        return np.array(numbers, dtype=np.intp)

    def waves(self, order: Any) -> list[NDArray[np.intp]]:
        """Split wake-ups into waves whose agents can act at once.

        Within a wave no agent appears twice and no two are neighbours. Wave after wave gives what
        one wake-up after another gives, for an action that reads an agent and its neighbours and
        changes the agent alone. No fewer waves keep the order of neighbours.

        Parameters
        ----------
        order : array-like of int of shape (n_wakes,)
            Positions of the agents that wake up, one after another.

        Returns
        -------
        list of ndarray of intp
            The agents of each wave, in the order in which they wake up.

        Raises
        ------
        ValueError
            If ``order`` is no sequence of ints in [0, n_agents).
        """
        agents = self._positions(order, "order")
        numbers = self.wave_numbers(agents)
        agents = agents[np.argsort(numbers, kind="stable")]
        ends = np.cumsum(np.bincount(numbers)).tolist()
        return [agents[a:b] for a, b in pairwise([0, *ends])]

    def average_for(self, similarities: Any) -> NDArray[np.float64]:
        """Return the weights with which an agent that was never seen averages the models.

        Parameters
        ----------
        similarities : array-like of shape (n_agents,)
            How much it is like each agent: finite, not negative, not all zero.

        Returns
        -------
        ndarray of shape (n_agents,)
            With a sum of one.

        Raises
        ------
        ValueError
            If ``similarities`` are none of this.

        Examples
        --------
        >>> from skdpadmm.network import Similarity
        >>> Similarity(n_agents=3).average_for([0, 1, 3]).tolist()
        [0.0, 0.25, 0.75]
        """
        row = np.asarray(similarities)
        if row.shape != (self.n_agents,) or row.dtype.kind not in "biuf":
            raise ValueError(
                f"Got similarities of shape {row.shape} and dtype {row.dtype}, expected"
                f" {self.n_agents} real numbers: one for each agent."
            )
        row = row.astype(np.float64)
        wrong = np.flatnonzero(~(np.isfinite(row) & (row >= 0)))
        if len(wrong):
            raise ValueError(
                f"Got similarities that are negative or not finite to agents"
                f" {shown(wrong.tolist())}, expected finite numbers of at least 0."
            )
        if not row.any():
            raise ValueError(
                "Got similarities that are all zero, expected a positive one. Without any, the mean"
                " of all models is what equal similarities give."
            )
        shares = row / row.max()
        return np.asarray(shares / shares.sum(), dtype=np.float64)

    def for_agents(self, labels: Any) -> Similarity:
        """Return the same weights for agents with these labels, in their order.

        Parameters
        ----------
        labels : sequence of length n_agents
            Each once. Weights without labels are taken to be in this order.

        Returns
        -------
        Similarity
            With these labels.

        Raises
        ------
        ValueError
            Where weights have labels and these are others, or there are not as many.

        Examples
        --------
        >>> import pandas as pd
        >>> from skdpadmm.network import knn_similarity
        >>> facts = pd.DataFrame({"income": [3.0, 1.0, 0.0]}, index=["west", "east", "north"])
        >>> knn_similarity(facts, n_neighbors=1).for_agents(["east", "north", "west"]).labels
        ('east', 'north', 'west')
        """
        names = list(labels)
        if len(names) != self.n_agents and self.labels is None:
            raise ValueError(
                f"Got a similarity of {self.n_agents} agents for {len(names)} agents,"
                f" {shown(names)}, expected weights for each agent that holds rows."
            )
        matrix = self.matrix
        if self.labels is not None:
            position = {label: i for i, label in enumerate(self.labels)}
            known = set(names)
            missing = [name for name in names if name not in position]
            unknown = [label for label in self.labels if label not in known]
            if missing or unknown:
                raise ValueError(
                    f"Got a similarity without agents {shown(missing)} and with unknown agents"
                    f" {shown(unknown)}, expected the labels of the agents, {shown(names)}."
                )
            order = [position[name] for name in names]
            if matrix is not None and order != list(range(len(order))):
                return Similarity(
                    n_agents=self.n_agents,
                    matrix=matrix[order][:, order],
                    name=self.name,
                    labels=tuple(names),
                )
        same = copy(self)
        object.__setattr__(same, "labels", tuple(names))
        return same

    def describe(self) -> str:
        """Name, size and range of the weights, in words."""
        if self.n_agents == 1:
            return f"{self.name}, one agent without neighbours"
        counts = self.n_neighbors
        data = np.ones(1) if self.matrix is None else self.matrix.data
        edges = "edge" if self.n_edges == 1 else "edges"
        neighbors = "neighbour" if counts.max() == 1 else "neighbours"
        return (
            f"{self.name}, {self.n_edges} {edges},"
            f" {_range(f'{counts.min()}', f'{counts.max()}')} {neighbors} each,"
            f" weights {_range(f'{data.min():.4g}', f'{data.max():.4g}')}"
        )

    @cached_property
    def shares(self) -> Weights:
        """Weights with rows that sum to one, of shape (n_agents, n_agents).

        Uniform weights of more than 2000 agents raise a ValueError: they would fill the memory.
        """
        weights = self.weights
        # Shares first and not sums first, because sums of tiny weights have no finite inverse.
        shares = weights.data / np.repeat(self.degrees, self.n_neighbors)
        return sparse.csr_array((shares, weights.indices, weights.indptr), shape=weights.shape)

    @cached_property
    def _uniform(self) -> Weights:
        if self.n_agents > _MOST_UNIFORM:
            raise ValueError(
                f"Got uniform weights of {self.n_agents} agents to write down, expected at most"
                f" {_MOST_UNIFORM} agents. Their means need no matrix: use `neighbor_mean`."
            )
        i, j = np.triu_indices(self.n_agents, 1)
        return symmetric_weights(self.n_agents, i, j, np.ones(len(i)))

    def _positions(self, agents: Any, name: str) -> NDArray[np.intp]:
        given = np.asarray(agents)
        if given.ndim != 1 or (given.size and given.dtype.kind not in "iu"):
            raise ValueError(
                f"Got {name} of shape {given.shape} and dtype {given.dtype}, expected a sequence of"
                " ints: positions of agents."
            )
        if given.size and not 0 <= given.min() <= given.max() < self.n_agents:
            raise ValueError(
                f"Got {name} with agents in [{given.min()}, {given.max()}], expected agents in"
                f" [0, {self.n_agents})."
            )
        return given.astype(np.intp, copy=False)


def checked_weights(matrix: Any, names: Sequence[Any], remedy: str = _REMEDY) -> Weights:
    """Positive weights of a connected graph, symmetric to the last bit.

    Parameters
    ----------
    matrix : array or sparse matrix of shape (n_agents, n_agents)
    names : sequence of length n_agents
        What error messages call the agents.
    remedy : str
        What to do where not every agent can reach every other one.

    Returns
    -------
    sparse array of shape (n_agents, n_agents)
    """
    weights = _square(matrix, len(names))
    diagonal = weights.diagonal()
    if diagonal.any():
        own = [names[i] for i in np.flatnonzero(diagonal).tolist()]
        raise ValueError(
            f"Got a similarity of agents {shown(own)} to themselves, expected zeros on the"
            " diagonal. Set them to zero: an agent's own rows have a weight already."
        )
    weights.eliminate_zeros()
    entries = weights.tocoo()
    i, j = entries.coords
    if weights.nnz and entries.data.min() < 0:
        at = int(entries.data.argmin())
        raise ValueError(
            f"Got a similarity of {entries.data[at]:.6g} between agents"
            f" {shown([names[i[at]], names[j[at]]])}, expected none below zero."
            " Set weights of agents that are not alike to zero."
        )
    uneven = sparse.coo_array(abs(weights - weights.T))
    uneven.eliminate_zeros()
    if uneven.nnz:
        at = int(uneven.data.argmax())
        if uneven.data[at] > _TOLERANCE * entries.data.max():
            a, b = (int(axis[at]) for axis in uneven.coords)
            raise ValueError(
                f"Got similarities {weights[a, b]:.6g} and {weights[b, a]:.6g} between agents"
                f" {shown([names[a], names[b]])}, expected a symmetric matrix."
                " (S + S.T) / 2 is one."
            )
        weights = sparse.csr_array(weights * 0.5 + weights.T * 0.5)
    upper = sparse.coo_array(sparse.triu(weights, 1))
    _require_connected(np.column_stack(upper.coords).astype(np.intp, copy=False), names, remedy)
    checked = symmetric_weights(len(names), upper.coords[0], upper.coords[1], upper.data)
    with np.errstate(over="ignore"):
        sums: NDArray[np.float64] = np.asarray(checked.sum(axis=1)).ravel()
    if not np.isfinite(sums).all():
        too_large = [names[i] for i in np.flatnonzero(~np.isfinite(sums)).tolist()]
        raise ValueError(
            f"Got a similarity with weights of agents {shown(too_large)} that have no finite sum,"
            " expected smaller ones. Divide all weights by the largest."
        )
    checked.data.setflags(write=False)
    checked.indices.setflags(write=False)
    checked.indptr.setflags(write=False)
    return checked


def _square(matrix: Any, n_agents: int) -> Weights:
    """A copy of a finite real matrix of shape (n_agents, n_agents)."""
    given = matrix
    if not sparse.issparse(given):
        try:
            matrix = np.asarray(given)
        except ValueError as error:
            raise ValueError(
                f"Got similarity that is no matrix ({error}), expected {EXPECTED_SIMILARITY}."
            ) from error
        if matrix.ndim != 2:
            raise ValueError(f"Got similarity={given!r}, expected {EXPECTED_SIMILARITY}.")
    if matrix.dtype.kind not in "biuf":
        raise ValueError(
            f"Got similarity of dtype {matrix.dtype}, expected a matrix of real numbers."
        )
    if matrix.shape != (n_agents, n_agents):
        raise ValueError(
            f"Got similarity of shape {matrix.shape}, expected shape ({n_agents}, {n_agents}): a"
            " row and a column for each agent that holds rows."
        )
    square = sparse.csr_array(matrix, dtype=np.float64, copy=True)
    square.sum_duplicates()
    if not np.isfinite(square.data).all():
        raise ValueError(
            "Got similarity with an entry that is NaN or infinite, expected finite ones."
        )
    return square


def _require_connected(pairs: NDArray[np.intp], names: Sequence[Any], remedy: str) -> None:
    components = component_labels(len(names), pairs)
    sizes = np.bincount(components)
    if len(sizes) == 1:
        return
    alone = np.flatnonzero(np.bincount(pairs.ravel(), minlength=len(names)) == 0)
    if len(alone):
        raise ValueError(
            f"Got a similarity in which agents {shown([names[i] for i in alone.tolist()])} are"
            f" like nobody, expected a positive weight for each agent. {remedy}, or leave these"
            " agents out."
        )
    apart = [names[i] for i in np.flatnonzero(components == sizes.argmin()).tolist()]
    raise ValueError(
        f"Got a similarity with {len(sizes)} components, one of them agents {shown(apart)},"
        f" expected a connected graph. {remedy} until every agent can reach every other one, or fit"
        " each component by itself."
    )


def symmetric_weights(
    n_agents: int, i: NDArray[Any], j: NDArray[Any], weights: NDArray[np.float64]
) -> Weights:
    """The matrix with these weights in both directions; those of loops count once."""
    other = i != j
    # Graph algorithms of scipy < 1.15 read 32-bit indices alone.
    rows = np.concatenate([i, j[other]]).astype(np.int32)
    columns = np.concatenate([j, i[other]]).astype(np.int32)
    entries = np.concatenate([weights, weights[other]])
    matrix = sparse.csr_array((entries, (rows, columns)), shape=(n_agents, n_agents))
    matrix.sort_indices()
    return matrix


def _checked_labels(labels: Any, n_agents: int) -> tuple[Any, ...]:
    names = tuple(labels)
    twice = [label for label, times in Counter(names).items() if times > 1]
    if twice or len(names) != n_agents:
        raise ValueError(
            f"Got {len(names)} labels for {n_agents} agents, {shown(twice)} of them several times,"
            " expected one label for each agent."
        )
    return names


def _fingerprint(n_agents: int, weights: Weights | None) -> str:
    digest = hashlib.sha256(
        f"{'weights' if weights is not None else 'uniform'} {n_agents}".encode()
    )
    if weights is not None:
        upper = sparse.coo_array(sparse.triu(weights, 1))
        order = np.lexsort(upper.coords[::-1])
        edges = np.column_stack(upper.coords)[order]
        digest.update(np.ascontiguousarray(edges, dtype="<i8").tobytes())
        digest.update(np.ascontiguousarray(upper.data[order], dtype="<f8").tobytes())
    return digest.hexdigest()


def _range(least: str, most: str) -> str:
    return least if least == most else f"{least} to {most}"


def shown(names: Sequence[Any]) -> str:
    """The first few names in plain Python types."""
    plain = [name.item() if isinstance(name, np.generic) else name for name in names]
    more = f" and {len(plain) - _MOST_SHOWN} more" if len(plain) > _MOST_SHOWN else ""
    return f"{plain[:_MOST_SHOWN]}{more}"
