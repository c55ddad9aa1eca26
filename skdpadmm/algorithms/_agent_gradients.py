"""Gradients of all agents at once, each at parameters of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skdpadmm.engine import N_TASKS, PlacedParts
from skdpadmm.losses import Loss, clip_derivative
from skdpadmm.protocol import Problem
from skdpadmm.records import Rows, Segments, collect_agents, prepare_agents


@dataclass(frozen=True, eq=False, kw_only=True)
class GradientBlocks:
    """Records in neighbouring blocks, which add to gradients of their agents.

    Attributes
    ----------
    segments : Segments
    target : ndarray of shape (n_samples,)
    loss : Loss
    slope_bound : ndarray of shape (n_samples,)
        Bound of each slope.
    start : int
        Which record is the first one.
    """

    segments: Segments
    target: NDArray[Any]
    loss: Loss
    slope_bound: NDArray[np.float64]
    start: int

    def gradients(
        self,
        prepared: tuple[NDArray[np.float64], NDArray[np.float64]],
        batch: NDArray[np.bool_] | None,
    ) -> NDArray[np.float64]:
        """Raw sums of clipped gradients.

        Parameters
        ----------
        prepared : tuple of ndarray
            See `prepare_agents`.
        batch : ndarray of bool, or None
            Which of all records take part.

        Returns
        -------
        ndarray of shape (n_agents, n_outputs, n_features + 1)
        """

        def slopes(scores: NDArray[np.float64], own: slice) -> NDArray[np.float64]:
            found = scores[:, 0] if self.loss.n_outputs == 1 else scores
            found = self.loss.derivative(found, self.target[own])
            found = clip_derivative(found, self.slope_bound[own]).reshape(scores.shape)
            if batch is not None:
                found *= batch[self.start + own.start : self.start + own.stop, None]
            return found

        return self.segments.sums(prepared, slopes)


@dataclass(frozen=True, eq=False, kw_only=True)
class AgentGradients:
    """Gradients of the sums of clipped losses that agents have, at parameters of their own.

    A record contributes to its agent's gradient alone, with norm at most the clip bound.

    Attributes
    ----------
    rows : Rows
    placed : PlacedParts
        Of `GradientBlocks`.
    """

    rows: Rows
    placed: PlacedParts

    def __call__(
        self, parameters: NDArray[np.float64], batch: NDArray[np.bool_] | None = None
    ) -> NDArray[np.float64]:
        """``sum of clip(loss'(a_i @ w_a, y_i)) a_i`` over the records i of each agent a.

        Parameters
        ----------
        parameters : ndarray of shape (n_agents, n_parameters, n_outputs)
            In the basis of the rows.
        batch : ndarray of bool of shape (n_samples,), default=None
            Records that take part; None: all.

        Returns
        -------
        ndarray of shape (n_agents, n_parameters, n_outputs)
        """
        raw = self.placed.sum("gradients", prepare_agents(self.rows, parameters), batch)
        return collect_agents(self.rows, raw)


def agent_gradients(problem: Problem, *, loss: Loss, clip_norm: float) -> AgentGradients:
    """Place the records of a problem where their gradients are computed.

    Parameters
    ----------
    problem : Problem
        Its engine is running, and it has agents.
    loss : Loss
    clip_norm : float
        Bound of the norm of each record's gradient, in (0, inf].

    Returns
    -------
    AgentGradients
    """
    rows, ownership = problem.rows, problem.ownership
    assert ownership is not None
    owner = ownership.index.astype(np.int32)
    with np.errstate(divide="ignore"):
        bound = clip_norm / np.sqrt(rows.squared_norm)
    # Sums of all agents are added up once for each part: a little beside a pass over its rows.
    n_parts = min(max(rows.n_samples // (100 * ownership.n_agents), 2), N_TASKS, rows.n_blocks)
    parts = []
    for part in range(n_parts):
        blocks = range(rows.n_blocks * part // n_parts, rows.n_blocks * (part + 1) // n_parts)
        own = slice(rows.slices[blocks[0]].start, rows.slices[blocks[-1]].stop)
        parts.append(
            GradientBlocks(
                segments=Segments(rows=rows.part(blocks), owner=owner[own]),
                target=problem.target[own],
                loss=loss,
                slope_bound=bound[own],
                start=own.start,
            )
        )
    return AgentGradients(rows=rows, placed=problem.engine.place(parts))
