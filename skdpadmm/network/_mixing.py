"""Mixing matrices, by which agents average with their neighbours, and random walks of a token."""

from __future__ import annotations

import functools
from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse
from scipy.sparse.linalg import ArpackNoConvergence, eigsh

from skdpadmm.network._relation import Matrix, by_agent, relation_of, require_none, symmetric_csr
from skdpadmm.network._topology import Links, Topology

_TOLERANCE = 1e-9
_SMALLEST_GAP = 1e-12
_MOST_DENSE = 200
_RULES = ("metropolis", "max_degree", "laplacian")


@dataclass(frozen=True, kw_only=True, eq=False)
class MixingMatrix:
    """Symmetric weights with rows that sum to one: mixing again and again averages over all agents.

    `mixing_matrix` makes it of a topology. Weights None are those of the mean over all agents.
    Those of `push_matrix` are not symmetric, and have columns that sum to one.
    """

    n_agents: int
    weights: Matrix | None = None

    def dot(self, values: NDArray[Any]) -> NDArray[np.float64]:
        """Mix finite values, of shape (n_agents, ...), of each agent with those of neighbours."""
        flat = by_agent(values, self.n_agents)
        if self.weights is None:
            mixed = np.tile(flat.mean(axis=0), (len(flat), 1))
        else:
            mixed = np.asarray(self.weights @ flat, dtype=np.float64)
        return mixed.reshape(values.shape)

    def to_sparse(self) -> Matrix:
        """Return the weights, of shape (n_agents, n_agents)."""
        if self.weights is None:
            return sparse.csr_array(np.full((self.n_agents, self.n_agents), 1.0 / self.n_agents))
        return self.weights.copy()

    @functools.cached_property
    def spectral_gap(self) -> float:
        """One minus the second largest modulus of an eigenvalue, in (0, 1].

        The distance to the mean shrinks by one minus it, or more, each time.
        """
        if self.weights is None:
            return 1.0
        # Rounding in the eigenvalues of a matrix that takes the mean must not lift it above one.
        identity = sparse.eye_array(self.n_agents)
        least, most = _laplacian_range(sparse.csr_array(identity - self.weights))
        return min(least, 2.0 - most, 1.0)


def mixing_matrix(topology: Links, rule: Any = "metropolis") -> MixingMatrix:
    """Return the mixing matrix for the name of a rule, or for weights.

    Parameters
    ----------
    topology : Links or Topology
    rule : str, or array or sparse matrix of shape (n_agents, n_agents), default="metropolis"
        Weights of edges; what is left of one is the weight of an agent for itself.

        - "metropolis": ``1 / (1 + max(d_i, d_j))``, where d_i is the number of neighbours.
        - "max_degree": ``1 / (1 + max d)``.
        - "laplacian": the constant that mixes fastest, ``2 / (l_2 + l_n)`` with the smallest
          positive and the largest eigenvalue of the graph's Laplacian. Weights of agents for
          themselves may be negative.
        - A matrix, in the order of the agents, that is symmetric, not negative and zero between
          agents that are not linked; with rows that sum to one (both up to 1e-9), and all
          eigenvalues but one below one in modulus.

        Anything else raises a ValueError. On the complete graph the named rules take the mean.

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
    n = topology.n_agents
    if not isinstance(rule, str):
        return _checked(rule, topology)
    if rule not in _RULES:
        raise ValueError(f"Got mixing={rule!r}, expected one of {list(_RULES)}, or a matrix.")
    if topology.is_complete:
        return MixingMatrix(n_agents=n)
    edges, degrees = topology.edges, topology.degrees
    of_edges = 1.0 / (1.0 + degrees[edges].max(axis=1))
    if rule == "max_degree":
        of_edges[:] = 1.0 / (1.0 + degrees.max())
    if rule == "laplacian":
        laplacian = sparse.diags_array(degrees.astype(np.float64)) - topology.adjacency
        least, most = _laplacian_range(sparse.csr_array(laplacian))
        # Ten digits, because the last ones differ between linear algebra libraries.
        of_edges[:] = float(f"{2.0 / (least + most):.10g}")
    weights = symmetric_csr(n, edges[:, 0], edges[:, 1], of_edges)
    self_weights = sparse.diags_array(1.0 - np.asarray(weights @ np.ones(n)))
    return MixingMatrix(n_agents=n, weights=sparse.csr_array(weights + self_weights))


def push_matrix(links: Links) -> MixingMatrix:
    """Return weights by which agents push shares to those whom they reach: columns sum to one.

    An agent keeps ``1 / (1 + d)``, where d is the number of agents that it reaches, and sends as
    much to each of them.
    """
    n, (senders, receivers) = links.n_agents, links.edges.T
    if not links.is_directed:
        senders, receivers = np.concatenate([links.edges, links.edges[:, ::-1]]).T
    shares = 1.0 / (1.0 + np.bincount(senders, minlength=n))
    sent = sparse.csr_array((shares[senders], (receivers, senders)), shape=(n, n))
    return MixingMatrix(n_agents=n, weights=sparse.csr_array(sent + sparse.diags_array(shares)))


def _checked(matrix: Any, topology: Links) -> MixingMatrix:
    """The mixing matrix with the weights that a user gives, if they average over the graph."""
    names = range(topology.n_agents)
    weights = relation_of(matrix, names, "mixing", "Give each edge a positive weight")
    sums: NDArray[np.float64] = np.asarray(weights.sum(axis=1)).ravel()
    furthest = int(np.abs(sums - 1).argmax())
    if abs(sums[furthest] - 1) > _TOLERANCE:
        raise ValueError(
            f"Got mixing weights with a sum of {sums[furthest]:.12g} in row {furthest}, expected"
            " rows that sum to one. Put what is left of one on the diagonal."
        )
    if not topology.is_complete:
        allowed = topology.adjacency + sparse.eye_array(topology.n_agents)
        outside = sparse.csr_array(weights - weights.multiply(allowed))
        require_none(outside, names, "mixing between agents that are not linked", "zero")
    mixing = MixingMatrix(n_agents=topology.n_agents, weights=weights)
    if mixing.spectral_gap <= _SMALLEST_GAP:
        raise ValueError(
            f"Got mixing weights with a second largest eigenvalue of modulus"
            f" {1 - mixing.spectral_gap:.6g}, expected it below one: they do not average over all"
            " agents. Give every agent a positive weight for itself."
        )
    return mixing


def draw_walk(topology: Topology, uniforms: NDArray[np.float64]) -> NDArray[np.intp]:
    """Return the holders, after each hop, of a token that walks by the Metropolis weights.

    The walk is symmetric and starts from the uniform law, so that each holder has the uniform law.
    The token may stay where it is. On the complete graph each holder is drawn anew. The first of
    the uniform numbers in [0, 1) places the token, each other one moves it by one hop.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpadmm.network import draw_walk, resolve_topology
    >>> ring = resolve_topology("ring", np.arange(5))
    >>> draw_walk(ring, np.array([0.5, 0.0, 0.9, 0.4])).tolist()
    [1, 1, 2]
    """
    n, degrees = topology.n_agents, topology.degrees
    if topology.is_complete:
        return np.floor(uniforms[1:] * n).astype(np.intp)
    indptr, indices = topology.adjacency.indptr, topology.adjacency.indices
    rows: dict[int, tuple[list[int], list[float]]] = {}
    holder, holders = int(uniforms[0] * n), []
    for number in uniforms[1:].tolist():
        if holder not in rows:
            neighbors = indices[indptr[holder] : indptr[holder + 1]]
            weights = 1.0 / (1.0 + np.maximum(degrees[neighbors], degrees[holder]))
            # What no neighbour gets stays, as the last bin.
            rows[holder] = [*neighbors.tolist(), holder], list(accumulate(weights.tolist()))
        nexts, cumulative = rows[holder]
        holder = nexts[bisect_right(cumulative, number)]
        holders.append(holder)
    return np.array(holders, dtype=np.intp)


def _laplacian_range(laplacian: Matrix) -> tuple[float, float]:
    """Second smallest and largest eigenvalue of a symmetric matrix with rows that sum to zero."""
    n = int(laplacian.shape[0])
    if n == 1:
        return 1.0, 1.0
    if n <= _MOST_DENSE:
        values = linalg.eigvalsh(laplacian.toarray())
        return float(values[1]), float(values[-1])
    start = np.random.default_rng(0).standard_normal(n)
    lanczos: Any = functools.partial(eigsh, v0=start, ncv=40, tol=1e-10, return_eigenvectors=False)
    most = lanczos(laplacian, 1, which="LA")
    try:
        least = lanczos(laplacian, 2, which="SA", maxiter=50)
    except ArpackNoConvergence:
        # Graphs whose spectrum is dense at its lower end are long and thin: they factorise well.
        below = -1e-8 * float(most[0])
        least = lanczos(sparse.csc_array(laplacian), 2, sigma=below)
    return float(least.max()), float(most[0])
