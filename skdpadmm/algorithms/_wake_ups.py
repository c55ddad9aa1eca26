"""What wake-ups of personalised agents take from public facts: who is awake, and constants."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from skdpadmm.network import Similarity
from skdpadmm.penalties import NoPenalty, Penalty, SquaredL2
from skdpadmm.protocol import Facts
from skdpadmm.records import Coordinates

Array = NDArray[np.float64]


def wake_order(*, n_agents: int, n_wakes: int, clock: str, seed: int) -> NDArray[np.intp]:
    """Who wakes up when, each agent equally often.

    With Poisson clocks of one rate the next one to wake up is anybody, by the same chance, which is
    what an index that is drawn says at once. Agents who have woken up often enough sleep on. Both
    have the same law.

    Parameters
    ----------
    n_agents, n_wakes : int
        Agents, and how often each wakes up.
    clock : {"poisson", "index"}
    seed : int
        Public.

    Returns
    -------
    ndarray of intp of shape (n_agents * n_wakes,)
    """
    random = np.random.Generator(np.random.Philox(seed))
    if clock == "poisson":
        times = random.exponential(size=(n_agents, n_wakes)).cumsum(axis=1)
        return stable_order(times.ravel()) // max(n_wakes, 1)
    order, counts = np.empty(0, dtype=np.intp), np.zeros(n_agents, dtype=np.intp)
    while (counts < n_wakes).any():
        drawn = random.integers(n_agents, size=n_agents * n_wakes)
        drawn = drawn[counts[drawn] + occurrences(drawn) < n_wakes]
        order = np.concatenate([order, drawn])
        counts += np.bincount(drawn, minlength=n_agents)
    return order


def stable_order(times: Array) -> NDArray[np.intp]:
    """``np.argsort(times, kind="stable")``, a few times faster where no two are equal."""
    order = np.argsort(times)
    ascending = times[order]
    if (ascending[1:] == ascending[:-1]).any():
        return np.argsort(times, kind="stable")
    return order


def occurrences(order: NDArray[np.intp]) -> NDArray[np.intp]:
    """How often the same agent came before, for each place."""
    by_agent = np.argsort(order, kind="stable")
    found = np.empty(len(order), dtype=np.intp)
    sizes = np.bincount(order)
    starts = np.repeat(np.cumsum(sizes) - sizes, sizes)
    found[by_agent] = np.arange(len(order)) - starts
    return found


def weights_of_agents(similarity: Similarity) -> Array:
    """Sums of the weights of each agent's edges; one for an agent that is alone."""
    return np.ones(1) if similarity.n_agents == 1 else similarity.degrees


def penalty_curvature(penalty: Penalty, coordinates: Coordinates) -> Array:
    """Curvature of a squared penalty along each parameter in public coordinates, (d, 1).

    Parameters
    ----------
    penalty : Penalty
        Already divided by the square of the target's scale.
    coordinates : Coordinates

    Returns
    -------
    ndarray of shape (n_parameters, 1)
        Zero for the intercept, so that times parameters it is the gradient.
    """
    curvature = np.zeros((coordinates.n_parameters, 1))
    square = np.square(coordinates.coefficient_scale)
    curvature[: coordinates.n_features, 0] = penalty.strong_convexity * square
    return curvature


def check_squared_penalty(penalty: Penalty) -> None:
    """Refuse a penalty whose gradient is not linear.

    Raises
    ------
    ValueError
        Says what was expected.
    """
    if not isinstance(penalty, SquaredL2 | NoPenalty):
        raise ValueError(
            f"Got {penalty!r}, expected SquaredL2 or none: models of agents are averaged, which"
            " keeps no zeros."
        )


def absolute_clip(clip_norm: float, facts: Facts, unit: float, law: str) -> float:
    """A clip bound in the coordinates of the rows, and in the norm that the noise goes by."""
    widened = 1.0 if law == "gaussian" else math.sqrt(facts.n_parameters)
    return clip_norm * unit * widened
