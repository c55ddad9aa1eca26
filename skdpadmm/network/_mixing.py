"""How agents average with their neighbours, and how a token walks from one to the next."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse
from scipy.sparse.linalg import ArpackNoConvergence, eigsh

from skdpadmm.network._relation import (
    Matrix,
    by_agent,
    checked_relation,
    fingerprint,
    matrix_of,
    symmetric_csr,
)
from skdpadmm.network._topology import Topology

_TOLERANCE = 1e-9
_SMALLEST_GAP = 1e-12
_MOST_DENSE = 200
_RULES = ("metropolis", "max_degree", "laplacian")


@dataclass(frozen=True, kw_only=True)
class MixingMatrix:
    """Symmetric weights with rows that sum to one: repeated, they average over all agents.

    Made by `mixing_matrix` of a topology and a rule, or of weights of one's own, whose SHA-256 is
    its `fingerprint`. On the complete graph the named rules all take the mean, and no matrix is
    stored.
    """

    topology: Topology
    rule: str
    own: Matrix | None = field(default=None, compare=False, repr=False)
    fingerprint: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        own = self.own
        digest = "" if own is None else fingerprint("", own.indptr, own.indices, own.data)
        object.__setattr__(self, "fingerprint", digest)

    def dot(self, values: NDArray[Any]) -> NDArray[np.float64]:
        """Mix finite values, of shape (n_agents, ...), of each agent with those of neighbours."""
        flat = by_agent(values, self.topology.n_agents)
        mean = self._is_mean
        mixed = np.tile(flat.mean(axis=0), (len(flat), 1)) if mean else self._matrix @ flat
        return np.asarray(mixed, dtype=np.float64).reshape(values.shape)

    def to_sparse(self) -> Matrix:
        """Return the weights, of shape (n_agents, n_agents)."""
        return self._matrix.copy()

    @cached_property
    def spectral_gap(self) -> float:
        """One minus the second largest modulus of an eigenvalue, in (0, 1].

        The distance to the mean shrinks by one minus it, or more, each time.
        """
        if self._is_mean:
            return 1.0
        n = self.topology.n_agents
        # Rounding in the eigenvalues of a matrix that takes the mean must not lift it above one.
        least, most = _laplacian_range(sparse.csr_array(sparse.eye_array(n) - self._matrix))
        return min(least, 2.0 - most, 1.0)

    @property
    def _is_mean(self) -> bool:
        return self.own is None and self.topology.is_complete

    @cached_property
    def _matrix(self) -> Matrix:
        if self.own is not None:
            return self.own
        n, edges, weights = self.topology.n_agents, self.topology.edges, self._rule_weights()
        sums = np.bincount(edges.ravel(), weights=np.repeat(weights, 2), minlength=n)
        return _with_diagonal(self.topology, weights, np.asarray(1.0 - sums, dtype=np.float64))

    def _rule_weights(self) -> NDArray[np.float64]:
        """Of the edges."""
        topology, degrees = self.topology, self.topology.degrees
        if self.rule == "metropolis":
            return 1.0 / (1.0 + degrees[topology.edges].max(axis=1))
        if self.rule == "max_degree":
            return np.full(topology.n_edges, 1.0 / (1.0 + degrees.max()))
        if topology.is_complete:
            return np.full(topology.n_edges, 1.0 / topology.n_agents)
        minus = np.full(topology.n_edges, -1.0)
        least, most = _laplacian_range(_with_diagonal(topology, minus, degrees.astype(np.float64)))
        # Ten digits, because the last ones differ between linear algebra libraries.
        return np.full(topology.n_edges, float(f"{2.0 / (least + most):.10g}"))


def mixing_matrix(topology: Topology, rule: Any = "metropolis") -> MixingMatrix:
    """Return the weights of a rule, or weights that a user gives.

    Parameters
    ----------
    topology : Topology
    rule : str, or array or sparse matrix of shape (n_agents, n_agents), default="metropolis"
        Weights of edges; what is left of one is the weight of an agent for itself.

        - "metropolis": ``1 / (1 + max(d_i, d_j))``, where d_i is the number of neighbours.
        - "max_degree": ``1 / (1 + max d)``.
        - "laplacian": the constant that mixes fastest, ``2 / (l_2 + l_n)`` with the smallest
          positive and the largest eigenvalue of the graph's Laplacian. Weights of agents for
          themselves may be negative.
        - A matrix that `check_mixing` accepts.

        Anything else raises a ValueError.

    Returns
    -------
    MixingMatrix

    Examples
    --------
    >>> import numpy as np
    >>> from skdpadmm.network import mixing_matrix, resolve_topology
    >>> mixing = mixing_matrix(resolve_topology("path", np.arange(3)))
    >>> mixing.dot(np.array([3.0, 0.0, 0.0])).round(12).tolist()
    [2.0, 1.0, 0.0]
    >>> round(mixing.spectral_gap, 12)
    0.333333333333
    """
    if not isinstance(rule, str):
        return MixingMatrix(topology=topology, rule="custom", own=check_mixing(rule, topology))
    if rule not in _RULES:
        raise ValueError(f"Got mixing={rule!r}, expected one of {list(_RULES)}, or a matrix.")
    return MixingMatrix(topology=topology, rule=rule)


def check_mixing(matrix: Any, topology: Topology) -> Matrix:
    """Weights, in the order of the agents, as a sparse matrix, if they average over a graph.

    A ValueError unless they are symmetric, not negative, zero between agents that are not linked,
    rows sum to one (these up to 1e-9), and all eigenvalues but one are below one in modulus.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpadmm.network import check_mixing, resolve_topology
    >>> pair = resolve_topology("path", np.arange(2))
    >>> check_mixing([[0.75, 0.25], [0.25, 0.75]], pair).toarray().tolist()
    [[0.75, 0.25], [0.25, 0.75]]
    """
    n, expected = topology.n_agents, f"one of {list(_RULES)}, or a square matrix"
    given = matrix_of(matrix, range(n), "mixing", expected)
    remedy = "Give each edge a positive weight"
    weights = checked_relation(given, range(n), "mixing", remedy, has_diagonal=True)
    sums: NDArray[np.float64] = np.asarray(weights.sum(axis=1)).ravel()
    furthest = int(np.abs(sums - 1).argmax())
    if abs(sums[furthest] - 1) > _TOLERANCE:
        raise ValueError(
            f"Got mixing weights with a sum of {sums[furthest]:.12g} in row {furthest}, expected"
            " rows that sum to one. Put what is left of one on the diagonal."
        )
    if not topology.is_complete:
        allowed = topology.adjacency + sparse.eye_array(n)
        outside = sparse.coo_array(weights - weights.multiply(allowed))
        outside.eliminate_zeros()
        if outside.nnz:
            i, j = (int(axis[0]) for axis in outside.coords)
            raise ValueError(
                f"Got a mixing weight between agents {i} and {j}, which are not linked, expected"
                " zero. Weights are for the edges of the topology and for agents themselves."
            )
    gap = MixingMatrix(topology=topology, rule="custom", own=weights).spectral_gap
    if gap <= _SMALLEST_GAP:
        raise ValueError(
            f"Got mixing weights with a second largest eigenvalue of modulus {1 - gap:.6g},"
            " expected it below one: they do not average over all agents. Give every agent a"
            " positive weight for itself."
        )
    return weights


def draw_walk(topology: Topology, n_hops: int, uniforms: NDArray[np.float64]) -> NDArray[np.intp]:
    """Return the holders, after each hop, of a token that walks by the Metropolis weights.

    The walk is symmetric and starts from the uniform law, so that each holder has the uniform law.
    The token may stay where it is. On the complete graph each holder is drawn anew. The first of
    ``n_hops + 1`` uniform numbers in [0, 1) places the token, each other one moves it; other
    numbers raise a ValueError.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpadmm.network import draw_walk, resolve_topology
    >>> ring = resolve_topology("ring", np.arange(5))
    >>> draw_walk(ring, 3, np.array([0.5, 0.0, 0.9, 0.4])).tolist()
    [1, 1, 2]
    """
    numbers = np.asarray(uniforms, dtype=np.float64)
    if numbers.shape != (n_hops + 1,) or not ((numbers >= 0) & (numbers < 1)).all():
        raise ValueError(
            f"Got uniforms of shape {numbers.shape}, expected {n_hops + 1} numbers in [0, 1): one"
            " to place the token and one for each hop."
        )
    if topology.is_complete:
        return np.floor(numbers[1:] * topology.n_agents).astype(np.intp)
    indptr, indices = topology.adjacency.indptr, topology.adjacency.indices
    degrees = topology.degrees
    rows: dict[int, tuple[list[int], list[float]]] = {}
    holder = int(numbers[0] * topology.n_agents)
    holders = []
    for number in numbers[1:].tolist():
        if holder not in rows:
            neighbors = indices[indptr[holder] : indptr[holder + 1]]
            weights = 1.0 / (1.0 + np.maximum(degrees[neighbors], degrees[holder]))
            # What no neighbour gets stays, as the last bin.
            rows[holder] = [*neighbors.tolist(), holder], list(accumulate(weights.tolist()))
        nexts, cumulative = rows[holder]
        holder = nexts[bisect_right(cumulative, number)]
        holders.append(holder)
    return np.array(holders, dtype=np.intp)


def _with_diagonal(
    topology: Topology, weights: NDArray[np.float64], diagonal: NDArray[np.float64]
) -> Matrix:
    """The symmetric matrix of weights of edges and of agents themselves."""
    own = np.arange(topology.n_agents)
    i, j = (np.concatenate([side, own]) for side in topology.edges.T)
    return symmetric_csr(topology.n_agents, i, j, np.concatenate([weights, diagonal]))


def _laplacian_range(laplacian: Matrix) -> tuple[float, float]:
    """Second smallest and largest eigenvalue of a symmetric matrix with rows that sum to zero."""
    n = int(laplacian.shape[0])
    if n == 1:
        return 1.0, 1.0
    if n <= _MOST_DENSE:
        values = linalg.eigvalsh(laplacian.toarray())
        return float(values[1]), float(values[-1])
    highest = 2.0 * float(laplacian.diagonal().max())  # Gershgorin
    margin = 1e-8 * highest
    least = _end_of_spectrum(laplacian, 2, "SA", -margin)[-1]
    most = _end_of_spectrum(laplacian, 1, "LA", highest + margin)[-1]
    return float(least), float(most)


def _end_of_spectrum(
    matrix: Matrix, k: int, which: Literal["SA", "LA"], outside: float
) -> NDArray[np.float64]:
    """The k eigenvalues at one end, in ascending order."""
    start = np.random.default_rng(0).standard_normal(matrix.shape[0])
    try:
        values = eigsh(
            matrix,
            k=k,
            which=which,
            v0=start,
            ncv=40,
            maxiter=50,
            tol=1e-10,
            return_eigenvectors=False,
        )
    except ArpackNoConvergence:
        # Graphs whose spectrum is dense at its end are long and thin: they factorise well.
        values = eigsh(
            sparse.csc_array(matrix), k=k, sigma=outside, v0=start, return_eigenvectors=False
        )
    return np.sort(values)
