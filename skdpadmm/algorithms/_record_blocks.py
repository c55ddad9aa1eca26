"""Hidden states of records, in blocks: the part of consensus ADMM that touches private rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skdpadmm.engine import N_TASKS
from skdpadmm.losses import Loss, clip_derivative
from skdpadmm.protocol import Facts, Problem
from skdpadmm.records import Rows

# Newton steps of a record's proximal problem once it can start from its last solution. The number
# is public and accuracy is no condition of the guarantee: contributions are clipped after solving.
# Two leave 1e-5 of a coefficient in the first iterations and nothing as the steps get smaller.
WARM_STEPS = 2


@dataclass(eq=False, kw_only=True)
class RecordBlocks:
    """Records with their states ``u_i = c - gamma * slope_i * a_i``.

    A state is one number (or one for each score) beside a vector c that is public, given in which
    rounds the record's agent took part.

    Attributes
    ----------
    rows : Rows
    target : ndarray of shape (n_samples,)
    loss : Loss
    step_size, relaxation : float
        [gamma, lambda].
    slope_bound : ndarray of shape (n_samples,)
        Bound of each slope.
    exact : bool
        Whether a record solves its proximal step; else it takes a gradient step.
    increments : bool
        Whether messages are changes of states, or states.
    slopes : ndarray of shape (n_samples,) or (n_samples, n_outputs)
    owner : ndarray of shape (n_samples,) or None
        Agent of each record, where some may sit a round out.
    anchors : ndarray in the shape of `slopes`, or None
        ``a_i @ c``, where c differs between agents.
    is_warm : bool
        Whether there is a last solution to start from.
    """

    rows: Rows
    target: NDArray[Any]
    loss: Loss
    step_size: float
    relaxation: float
    slope_bound: NDArray[np.float64]
    exact: bool
    slopes: NDArray[np.float64]
    increments: bool = False
    owner: NDArray[np.intp] | None = None
    anchors: NDArray[np.float64] | None = None
    is_warm: bool = False

    def advance(
        self,
        z: NDArray[np.float64],
        center: NDArray[np.float64],
        active: NDArray[np.bool_] | None = None,
    ) -> NDArray[np.float64]:
        """Update all states and sum up the messages.

        Parameters
        ----------
        z, center : ndarray of shape (n_parameters, n_outputs)
            In the basis of the rows; c is not used where it differs between agents.
        active : ndarray of bool of shape (n_agents,), default=None
            Agents that take part; None: all.

        Returns
        -------
        ndarray
            Raw sum of ``slope_i a_i`` (or of its change), see `Rows.adjoint`.
        """
        shared = self.exact and self.anchors is None
        point = 2 * z - center if shared else z
        prepared = self.rows.prepare(point if self.loss.n_outputs > 1 else point[:, 0])
        total = self._advance(0, prepared, active)
        for block in range(1, self.rows.n_blocks):
            total += self._advance(block, prepared, active)
        self.is_warm = True
        return total

    def _advance(
        self, block: int, prepared: Any, active: NDArray[np.bool_] | None
    ) -> NDArray[np.float64]:
        part = self.rows.slices[block]
        takes_part = None
        if active is not None and self.owner is not None:
            takes_part = _like(active[self.owner[part]], self.slopes)
        scores = self.rows.scores(block, prepared)
        old, lam = self.slopes[part], self.relaxation
        if self.anchors is not None:
            anchors = self.anchors[part].copy()
            _update(self.anchors[part], anchors + 2 * lam * (scores - anchors), takes_part)
            scores = 2 * scores - anchors
        slope = clip_derivative(self._slope(scores, part), self.slope_bound[part])
        if self.increments:
            change = 2 * lam * clip_derivative(slope - old, self.slope_bound[part])
            state, message = old + change, change
        else:
            state = message = (1 - 2 * lam) * old + 2 * lam * slope
        _update(old, state, takes_part)
        if takes_part is not None:
            message = message * takes_part
        return self.rows.adjoint(block, message)

    def _slope(self, scores: NDArray[np.float64], part: slice) -> NDArray[np.float64]:
        target = self.target[part]
        if not self.exact:
            return self.loss.derivative(scores, target)
        weights = self.step_size * self.rows.squared_norm[part]
        scores += (weights * self.slopes[part].T).T
        if not self.is_warm:
            return self.loss.proximal_derivative(scores, target, weights)
        return self.loss.proximal_derivative(scores, target, weights, self.slopes[part], WARM_STEPS)


def record_blocks(
    problem: Problem,
    *,
    loss: Loss,
    step_size: float,
    relaxation: float,
    clip_norm: float,
    exact: bool,
    increments: bool = False,
    partial: bool = False,
) -> list[RecordBlocks]:
    """Cut the records into parts that an engine can place; their number is fixed.

    Parameters
    ----------
    problem : Problem
    loss : Loss
    step_size, relaxation, clip_norm : float
    exact, increments : bool
        See `RecordBlocks`.
    partial : bool, default=False
        Whether some agents may sit a round out.

    Returns
    -------
    list of RecordBlocks
    """
    rows = problem.rows
    shape = (rows.n_samples, loss.n_outputs) if loss.n_outputs > 1 else (rows.n_samples,)
    slopes = np.zeros(shape)
    anchors = np.zeros(shape) if exact and partial else None
    with np.errstate(divide="ignore"):
        bound = clip_norm / np.sqrt(rows.squared_norm)
    owner = problem.ownership.index if partial and problem.ownership is not None else None
    parts = []
    for task in range(N_TASKS):
        blocks = range(rows.n_blocks * task // N_TASKS, rows.n_blocks * (task + 1) // N_TASKS)
        if not blocks:
            continue
        own = slice(rows.slices[blocks[0]].start, rows.slices[blocks[-1]].stop)
        parts.append(
            RecordBlocks(
                rows=rows.part(blocks),
                target=problem.target[own],
                loss=loss,
                step_size=step_size,
                relaxation=relaxation,
                slope_bound=bound[own],
                exact=exact,
                increments=increments,
                slopes=slopes[own],
                owner=None if owner is None else owner[own],
                anchors=None if anchors is None else anchors[own],
            )
        )
    return parts


def path_sensitivities(facts: Facts, relaxation: float, n_updates: int) -> tuple[float, ...]:
    """How far a record can move the mean displacement after its first, second, ... update.

    Parameters
    ----------
    facts : Facts
    relaxation : float
    n_updates : int

    Returns
    -------
    tuple of float, of length n_updates
        In units of the clip bound.
    """
    lam = relaxation
    moved = facts.neighboring.sensitivity_factor * facts.working_rounding / facts.n_samples
    iterations = np.arange(1, n_updates + 1)
    # 1 - |1 - 2 lambda|^k, without cancellation at either end of the range of lambda.
    with np.errstate(divide="ignore"):
        reached = -np.expm1(iterations * np.log1p(-2 * min(lam, 1 - lam)))
    largest = moved * max(1.0, lam / (1 - lam))
    # A state is rounded once in each iteration.
    widened = largest * reached * (1 + iterations * 2.0**-50)
    return tuple(widened.tolist())


def _like(mask: NDArray[np.bool_], array: NDArray[np.float64]) -> NDArray[np.bool_]:
    return mask if array.ndim == 1 else mask[:, None]


def _update(
    state: NDArray[np.float64], new: NDArray[np.float64], where: NDArray[np.bool_] | None
) -> None:
    np.copyto(state, new, where=True if where is None else where)
