"""Hidden states of agents: each solves a proximal problem of its own rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skdpadmm.algorithms._local_problem import LocalProblem
from skdpadmm.engine import N_TASKS
from skdpadmm.losses import Loss, SquaredLoss
from skdpadmm.protocol import Problem
from skdpadmm.records import Rows


@dataclass(eq=False, kw_only=True)
class AgentBlocks:
    """Agents with their states ``u_a = c_a - d_a``, of the mean loss of their rows.

    Attributes
    ----------
    rows : Rows
        All rows, or where `groups` is None those of these agents, an agent a block.
    target : ndarray
        Of `rows`.
    groups : list of (slice or ndarray of intp), or None
        Rows of each agent. They are read where they lie, an agent at a time.
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
    solutions : ndarray in the shape of `displacements`
        What agents found last, before clipping: where the next search starts.
    keeps_closed_forms : bool
        Whether displacements are affine functions that are worth keeping.
    closed_forms : ndarray of shape (n_agents, n_parameters, n_parameters + 1), or None
        These functions, once they are known.
    """

    rows: Rows
    target: NDArray[Any]
    groups: list[slice | NDArray[np.intp]] | None
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
    solutions: NDArray[np.float64]
    keeps_closed_forms: bool
    closed_forms: NDArray[np.float64] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Take along the rows of these agents, and no others."""
        if self.groups is None:
            return vars(self)
        target = np.concatenate([self.target[group] for group in self.groups])
        return {**vars(self), "rows": self.rows.take(self.groups), "target": target, "groups": None}

    def advance(
        self,
        z: NDArray[np.float64],
        center: NDArray[np.float64],
        active: NDArray[np.bool_] | None = None,
    ) -> NDArray[np.float64]:
        """Update the states of all who take part and sum up their messages.

        Parameters
        ----------
        z : ndarray of shape (n_parameters, n_outputs)
            In the basis of the rows.
        center : ndarray
            Not used: agents keep their own.
        active : ndarray of bool, default=None
            All agents that take part; None: everyone.

        Returns
        -------
        ndarray of shape (n_parameters, n_outputs)
            Weighted sum of displacements, or of the changes of states, of agents that take part.
        """
        who: Any = slice(None) if active is None else np.flatnonzero(active[self.numbers])
        agents = range(len(self.numbers))[who] if active is None else who.tolist()
        lam, centers, old = self.relaxation, self.centers[who], self.displacements[who]
        if not len(centers):
            return np.zeros(z.shape)
        points = 2 * z - centers + old
        found = self._solve(who, agents, points if self.exact else z + np.zeros(centers.shape))
        if self.increments:
            # x - z, where x = v - d is the solution of an agent's problem.
            change = 2 * lam * clip_vectors(points - found - z, self.bounds[who])
            self.centers[who] = centers + change
            message = change
        else:
            message = (1 - 2 * lam) * old + 2 * lam * clip_vectors(found, self.bounds[who])
            self.displacements[who] = message
            self.centers[who] = centers + 2 * lam * (z - centers)
        return np.asarray(np.einsum("a,ajk->jk", self.weights[who], message))

    def _solve(
        self, who: Any, agents: Sequence[int], points: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Displacement of each agent from its point."""
        if self.exact and self.keeps_closed_forms:
            if self.closed_forms is None:
                everyone = range(len(self.numbers))
                self.closed_forms = np.stack([self._local(a).closed_form() for a in everyone])
            forms = self.closed_forms[who]
            return np.asarray(forms[:, :, :-1] @ points + forms[:, :, -1:])
        for agent, point in zip(agents, points, strict=True):
            local, last = self._local(agent), self.solutions[agent]
            last[:] = (
                local.displacement(point, last)
                if self.exact
                else self.step_size * local.gradient(point)
            )
        return self.solutions[who]

    def _local(self, agent: int) -> LocalProblem:
        if self.groups is None:
            rows, block, target = self.rows, agent, self.target[self.rows.slices[agent]]
        else:
            group = self.groups[agent]
            rows, block, target = self.rows.take([group]), 0, self.target[group]
        return LocalProblem(
            rows=rows,
            block=block,
            target=target,
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
    bounds = step_size * clip_norm * limits / ownership.sizes
    weights = ownership.sizes / rows.n_samples
    n_parts = min(N_TASKS, n_agents)
    parts = []
    for part in range(n_parts):
        own = slice(n_agents * part // n_parts, n_agents * (part + 1) // n_parts)
        numbers = np.arange(own.start, own.stop)
        shape = (len(numbers), d, loss.n_outputs)
        parts.append(
            AgentBlocks(
                rows=rows,
                target=problem.target,
                groups=[ownership.rows_of(agent) for agent in numbers.tolist()],
                loss=loss,
                step_size=step_size,
                relaxation=relaxation,
                bounds=bounds[own],
                weights=weights[own],
                numbers=numbers,
                exact=exact,
                increments=increments,
                centers=np.zeros(shape),
                displacements=np.zeros(shape),
                solutions=np.zeros(shape),
                # All of them together are no larger than X.
                keeps_closed_forms=isinstance(loss, SquaredLoss)
                and n_agents * (d + 1) <= rows.n_samples,
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
