"""Hidden states of agents: each solves a proximal problem of its own rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skdpadmm.algorithms._local_problem import LocalProblem
from skdpadmm.engine import N_TASKS
from skdpadmm.losses import Loss, SquaredLoss
from skdpadmm.protocol import Problem
from skdpadmm.records import Rows

# Numbers that closed forms of all agents may take up together; beyond it they are not kept.
LARGEST_CLOSED_FORMS = 2**27


@dataclass(eq=False, kw_only=True)
class AgentBlocks:
    """Agents with their states ``u_a = c_a - d_a``, of the mean loss of their rows.

    Attributes
    ----------
    rows : Rows
        All rows, or where `groups` is None those of these agents, an agent a block.
    target : ndarray
    groups : list of ndarray of intp, or None
        Rows of each agent.
    loss : Loss
    step_size, relaxation : float
        [gamma, lambda].
    bounds : ndarray of shape (n_agents,)
        Of the norm of each agent's displacement.
    weights : ndarray of shape (n_agents,)
        Of each agent in the sum, so that a message has at most the norm which its limit says.
    numbers : ndarray of intp of shape (n_agents,)
        Which agents these are.
    exact : bool
        Whether an agent solves its proximal step; else it takes a gradient step.
    increments : bool
        Whether messages are changes of states, clipped as such, or displacements.
    centers, displacements : ndarray of shape (n_agents, n_parameters, n_outputs)
        [c_a, d_a].
    closed_forms : ndarray of shape (n_agents, n_parameters, n_parameters + 1), or None
        Displacement of a squared loss as an affine function.
    """

    rows: Rows
    target: NDArray[Any]
    groups: list[NDArray[np.intp]] | None
    loss: Loss
    step_size: float
    relaxation: float
    bounds: NDArray[np.float64]
    weights: NDArray[np.float64]
    numbers: NDArray[np.intp]
    exact: bool
    increments: bool
    centers: NDArray[np.float64]
    displacements: NDArray[np.float64]
    keeps_closed_forms: bool
    closed_forms: NDArray[np.float64] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Take along the rows of these agents, and no others."""
        rows, target = self._own_rows()
        return {**vars(self), "rows": rows, "target": target, "groups": None}

    def advance(
        self, z: NDArray[np.float64], active: NDArray[np.bool_] | None = None
    ) -> NDArray[np.float64]:
        """Update the states of all who take part and sum up their messages.

        Parameters
        ----------
        z : ndarray of shape (n_parameters, n_outputs)
            In the basis of the rows.
        active : ndarray of bool, default=None
            All agents that take part; None: everyone.

        Returns
        -------
        ndarray of shape (n_parameters, n_outputs)
            Weighted sum of displacements, or of the changes of states, of agents that take part.
        """
        who = np.arange(len(self.numbers))
        if active is not None:
            who = who[active[self.numbers]]
        if not len(who):
            return np.zeros(z.shape)
        lam, centers, old = self.relaxation, self.centers[who], self.displacements[who]
        points = 2 * z - centers + old if self.exact else np.broadcast_to(z, centers.shape)
        found = self._solve(who, np.ascontiguousarray(points))
        if self.increments:
            # x - z, where x is the solution of an agent's problem.
            step = points - found - z if self.exact else z - centers + old - found
            change = 2 * lam * clip_vectors(step, self.bounds[who])
            self.centers[who] = centers + change
            message = change
        else:
            message = (1 - 2 * lam) * old + 2 * lam * clip_vectors(found, self.bounds[who])
            self.displacements[who] = message
            self.centers[who] = centers + 2 * lam * (z - centers)
        return np.asarray(np.einsum("a,ajk->jk", self.weights[who], message))

    def _own_rows(self) -> tuple[Rows, NDArray[Any]]:
        if self.groups is None:
            return self.rows, self.target
        return self.rows.take(self.groups), self.target[np.concatenate(self.groups)]

    def _solve(self, who: NDArray[np.intp], points: NDArray[np.float64]) -> NDArray[np.float64]:
        """Displacement of each agent from its point."""
        if self.closed_forms is not None:
            forms = self.closed_forms[who]
            return np.asarray(
                np.einsum("aij,ajk->aik", forms[:, :, :-1], points) + forms[:, :, -1:]
            )
        rows, target = self._own_rows()
        found = np.empty(points.shape)
        if self.exact and self.keeps_closed_forms:
            self.closed_forms = np.stack(
                [self._local(rows, target, agent).closed_form() for agent in range(rows.n_blocks)]
            )
            return self._solve(who, points)
        for i, agent in enumerate(who.tolist()):
            local = self._local(rows, target, agent)
            found[i] = (
                local.displacement(points[i], self.displacements[agent])
                if self.exact
                else self.step_size * local.gradient(points[i])
            )
        return found

    def _local(self, rows: Rows, target: NDArray[Any], agent: int) -> LocalProblem:
        return LocalProblem(
            rows=rows,
            block=agent,
            target=target[rows.slices[agent]],
            loss=self.loss,
            step_size=self.step_size,
        )


def agent_blocks(
    problem: Problem,
    *,
    loss: Loss,
    step_size: float,
    relaxation: float,
    clip_norm: float,
    limits: NDArray[np.float64],
    exact: bool,
    increments: bool,
) -> list[AgentBlocks]:
    """Cut the agents into parts that an engine can place; their number is fixed.

    Parameters
    ----------
    problem : Problem
    loss : Loss
    step_size, relaxation, clip_norm : float
    limits : ndarray of shape (n_agents,)
        Most that the records of an agent may weigh together, in records.
    exact, increments : bool
        See `AgentBlocks`.

    Returns
    -------
    list of AgentBlocks
    """
    ownership, rows = problem.ownership, problem.rows
    assert ownership is not None
    n_agents, d = ownership.n_agents, rows.coordinates.n_parameters
    shape = (n_agents, d, loss.n_outputs)
    everything = AgentBlocks(
        rows=rows,
        target=problem.target,
        groups=[],
        loss=loss,
        step_size=step_size,
        relaxation=relaxation,
        bounds=step_size * clip_norm * limits / ownership.sizes,
        weights=ownership.sizes / rows.n_samples,
        numbers=np.arange(n_agents),
        exact=exact,
        increments=increments,
        centers=np.zeros(shape),
        displacements=np.zeros(shape),
        keeps_closed_forms=isinstance(loss, SquaredLoss)
        and n_agents * d * (d + 1) <= LARGEST_CLOSED_FORMS,
    )
    n_parts = min(N_TASKS, n_agents)
    parts = []
    for part in range(n_parts):
        own = slice(n_agents * part // n_parts, n_agents * (part + 1) // n_parts)
        groups = [_indices(ownership.rows_of(a)) for a in range(own.start, own.stop)]
        parts.append(
            replace(
                everything,
                groups=groups,
                bounds=everything.bounds[own],
                weights=everything.weights[own],
                numbers=everything.numbers[own],
                centers=everything.centers[own],
                displacements=everything.displacements[own],
            )
        )
    return parts


def clip_vectors(vectors: NDArray[np.float64], bounds: NDArray[np.float64]) -> NDArray[np.float64]:
    """Scale each agent's matrix down to a Frobenius norm; what is not finite becomes zero.

    Parameters
    ----------
    vectors : ndarray of shape (n_agents, n_parameters, n_outputs)
    bounds : ndarray of shape (n_agents,)

    Returns
    -------
    ndarray of the shape of `vectors`
    """
    peak = np.abs(vectors).max(axis=(1, 2))
    usable = np.isfinite(peak)
    peak = np.where(usable & (peak > 0), peak, 1.0)
    # Squares of vectors that are scaled to a peak of one neither overflow nor vanish.
    scaled = np.where(usable[:, None, None], vectors, 0.0) / peak[:, None, None]
    norms = np.sqrt(np.einsum("ajk,ajk->a", scaled, scaled)) * peak
    factor = np.where(norms > bounds, bounds / np.where(norms > 0, norms, 1.0), 1.0)
    return np.asarray(scaled * (peak * factor)[:, None, None])


def _indices(rows: slice | NDArray[np.intp]) -> NDArray[np.intp]:
    return np.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows
