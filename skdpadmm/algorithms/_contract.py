"""The contract between algorithms and everything above them, and what algorithms share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeGuard, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from skdpadmm.penalties import Penalty
from skdpadmm.privacy import Guarantee
from skdpadmm.protocol import Agents, Budget, Facts, Gate, Plan, Problem, Solution
from skdpadmm.records import Rows

Operator = Callable[[NDArray[np.float64]], NDArray[np.float64]]


@runtime_checkable
class Algorithm(Protocol):
    """Two functions: one that plans without data, one that runs the plan.

    Attributes
    ----------
    conditionable : bool
        Whether it works in any basis, so that private conditioning can serve it.
    setting : str or tuple of str
        Who holds the records: "central", "federated", "decentralized" or "personalized", or several
        of them.
    exact : bool
        Whether it serves ``epsilon=inf`` by itself. For the others that limit is what
        `exact_algorithm` has for the setting.
    """

    conditionable: bool
    setting: str | tuple[str, ...]
    exact: bool

    def check(self, facts: Facts) -> None:
        """Refuse knobs outside of their range, whatever the budget.

        Raises
        ------
        ValueError
            Says what was expected.
        """
        ...

    def plan(self, facts: Facts, budget: Budget) -> Plan:
        """Decide every release and its noise from public facts.

        What the facts prepare comes first among the releases of the plan and is paid from the same
        budget.

        Raises
        ------
        ValueError
            Where a knob lies outside the range that its theorem covers.
        """
        ...

    def run(self, plan: Plan, problem: Problem, gate: Gate) -> Solution:
        """Run the plan on data; whatever enters the solution has passed the gate.

        The rows of the problem are already in the basis that was prepared.
        """
        ...


class StreamingAlgorithm(Algorithm, Protocol):
    """One that can also take records as they arrive, each of them once.

    What it hands on from piece to piece is a function of what was released.
    """

    @property
    def is_stream(self) -> bool:
        """Whether records are used as they arrive."""
        ...

    @property
    def n_expected(self) -> int:
        """How many records of a stream are expected."""
        ...

    def start(self, plan: Plan, problem: Problem) -> Any:
        """The public state before any record."""
        ...

    def arrive(self, plan: Plan, problem: Problem, gate: Gate, state: Any) -> Any:
        """The state after the records of a problem, which are new."""
        ...

    def solution(self, plan: Plan, problem: Problem, state: Any) -> Solution:
        """What a state says; only what is public about the rows is used."""
        ...

    def unseen_guarantees(self, plan: Plan, n_samples: int) -> tuple[tuple[str, Guarantee], ...]:
        """What holds after so many records if nobody saw a state before the last."""
        ...


def is_streaming(algorithm: object) -> TypeGuard[StreamingAlgorithm]:
    """Whether an algorithm takes records as they arrive, with the knobs that it has.

    Parameters
    ----------
    algorithm : object
        A name is that of an algorithm with its default knobs, none of which is a stream.
    """
    return isinstance(algorithm, Algorithm) and getattr(algorithm, "is_stream", False) is True


@runtime_checkable
class SharingAlgorithm(Protocol):
    """One whose agents share their messages out, so that only sums are seen."""

    def share_among(self, agents: Agents) -> Agents:
        """The same agents, with what that says of who sees what."""
        ...


def serves(algorithm: Algorithm | type[Algorithm], setting: str) -> bool:
    """Whether an algorithm is made for those who hold the records.

    Parameters
    ----------
    algorithm : Algorithm, or a class of them
    setting : {"central", "federated", "decentralized", "personalized"}
    """
    own = algorithm.setting
    return setting == own or (isinstance(own, tuple) and setting in own)


def check_zero_at_zero(penalty: Penalty, n_features: int = 1) -> None:
    """Refuse a penalty whose proximal steps could leave zero by what is not known before data."""
    if penalty.value(np.zeros(n_features)) != 0:
        raise ValueError(
            f"Got {penalty!r}, expected a penalty that is 0 at 0: the size of a solution has to"
            " have a bound."
        )


def penalty_operator(penalty: Penalty, step: float, rows: Rows) -> Operator:
    """Proximal operator, in the basis of the rows, of a penalty on the user's coefficients.

    In the user's units the Euclidean metric of public coordinates is a diagonal one, that of a
    basis a full one. The intercept is not penalised, so it is eliminated.

    Parameters
    ----------
    penalty : Penalty
        Already divided by the square of the target's scale.
    step : float
    rows : Rows
        Only what is public about them is used.

    Returns
    -------
    callable
        Maps a point of shape (n_parameters, n_outputs) in the basis of the rows to one in public
        coordinates, where zeros are exact. `Rows.from_coordinates` takes it back.
    """
    coordinates, basis = rows.coordinates, rows.basis
    p, scale = coordinates.n_features, coordinates.coefficient_scale[:, None]
    if basis is None:
        diagonal = penalty.proximal_operator(step, metric=scale[:, 0] ** -2.0)

        def apply(point: NDArray[np.float64]) -> NDArray[np.float64]:
            features = diagonal(point[:p] * scale) / scale
            return np.concatenate([features, point[p:]])

        return apply
    metric = basis.metric
    follows = -np.linalg.solve(metric[p:, p:], metric[p:, :p])
    reduced = metric[:p, :p] + metric[:p, p:] @ follows
    full = penalty.proximal_operator(step, metric=(reduced + reduced.T) / 2 / (scale * scale.T))

    def apply_in_basis(point: NDArray[np.float64]) -> NDArray[np.float64]:
        start = basis.transform @ point
        features = full(start[:p] * scale) / scale
        intercept = start[p:] + follows @ (features - start[:p])
        return np.concatenate([features, intercept])

    return apply_in_basis
