"""What touches data: the problem that a plan runs on, and the solution that comes out."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from skdpadmm.engine import Engine
from skdpadmm.network import Ownership
from skdpadmm.records import Rows


def _silent(done: int) -> None:
    """Report nothing."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Problem:
    """The private records and the means to work on them.

    Attributes
    ----------
    rows : Rows
        Augmented rows in public coordinates, and in the basis that conditioning gave.
    target : ndarray of shape (n_samples,)
        Targets as the loss expects them, in public coordinates.
    engine : Engine
        Where blocks of rows run.
    ownership : Ownership or None, default=None
        Who holds which row, where there are agents.
    progress : callable
        Called with the number of finished iterations, never with anything that depends on data.
    """

    rows: Rows
    target: NDArray[np.float64] | NDArray[np.intp]
    engine: Engine
    ownership: Ownership | None = None
    progress: Callable[[int], None] = _silent


@dataclass(frozen=True, eq=False, kw_only=True)
class Solution:
    """What an algorithm returns: a function of released quantities alone.

    Attributes
    ----------
    parameters : ndarray of shape (n_parameters, n_outputs)
        In public coordinates.
    n_iter : int
        Iterations that were run; fixed by the plan where it is private.
    derivative_bound : float, default=inf
        Bound of the derivative of the loss of a typical record, where gradients were clipped.
    score_variance : float, default=0
        About how much of the variance of a typical record's score is noise; a public figure.
    doubt : float, default=0
        Share of labels, in [0, 1], of which noise leaves the scores ignorant; a public figure.
    parameters_per_agent : ndarray of shape (n_agents, n_parameters, n_outputs), default=None
        Where agents end up with models of their own.
    n_rounds : int, default=0
        Rounds of messages that were completed.
    n_messages : int, default=0
        Messages between agents, and between agents and a server, in all directions.
    bytes_sent : int, default=0
        Their size.
    expected_privacy_loss : ndarray of shape (n_agents,), default=None
        Where agents mix at random: what their absolute privacy losses are expected to be at most,
        along the path that was released. A diagnostic, and no guarantee.
    """

    parameters: NDArray[np.float64]
    n_iter: int
    derivative_bound: float = math.inf
    score_variance: float = 0.0
    doubt: float = 0.0
    parameters_per_agent: NDArray[np.float64] | None = None
    n_rounds: int = 0
    n_messages: int = 0
    bytes_sent: int = 0
    expected_privacy_loss: NDArray[np.float64] | None = None
