"""Turns of agents in a release: who took how many, and the noise that belongs to each."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from skdpadmm.protocol._agents import Agents
from skdpadmm.protocol._plan import PlanViolation
from skdpadmm.protocol._release import AgentTurns


class TurnsOfAgents:
    """The turns that agents took in one release, each of which has noise of its own, once.

    Parameters
    ----------
    release : AgentTurns
    agents : Agents
    draw : callable
        ``draw(turn)`` is the noise of all agents in that turn, in units of one.

    Attributes
    ----------
    taken : ndarray of intp of shape (n_agents,)
        How many turns each agent took; below 0 for one without rows, who takes none.
    units : ndarray of shape (n_agents,)
        What the noise of each is in units of.
    """

    def __init__(
        self, release: AgentTurns, agents: Agents, draw: Callable[[int], NDArray[np.float64]]
    ) -> None:
        self.release = release
        sizes = np.asarray(agents.agent_sizes)
        self.taken = np.where(sizes > 0, 0, -1).astype(np.intp)
        # Laplace noise of scale one has the standard deviation sqrt(2).
        scale = np.sqrt(2.0) if release.law == "laplace" else 1.0
        self.units = np.asarray(release.shares)[agents.kind] / scale
        self._draw = draw
        self._noise: dict[int, NDArray[np.float64]] = {}
        self._places = np.zeros(agents.n_agents, dtype=np.intp)

    def require_each_once(self, agents: NDArray[np.intp]) -> None:
        """Refuse an agent that is there twice."""
        # Of an agent that is there twice, the last place alone stays.
        self._places[agents] = each = np.arange(len(agents))
        if (self._places[agents] != each).any():
            raise PlanViolation(
                f"Got an agent twice in a turn of {self.release.name!r}, expected each once."
            )

    def take(self, agents: NDArray[np.intp], turns: NDArray[np.intp]) -> NDArray[np.float64]:
        """Count turns of agents, and give out their noise in units of one.

        Parameters
        ----------
        agents : ndarray of intp of shape (n_turns,)
        turns : ndarray of intp of shape (n_turns,)
            Which turn of the agent each is.

        Returns
        -------
        ndarray of shape (n_turns, ...)
            Zeros where the plan is not private.

        Raises
        ------
        PlanViolation
            Where an agent has no rows, or has taken all of its turns.
        """
        release = self.release
        if len(agents) and self.taken[agents].min() < 0:
            raise PlanViolation(
                f"Got an agent without rows in a turn of {release.name!r}, expected none."
            )
        last = int(turns.max()) if len(turns) else -1
        if last >= release.times:
            raise PlanViolation(
                f"Got turn {last + 1} of an agent in {release.name!r}, expected no more than"
                f" {release.times} turns."
            )
        noise = np.zeros((len(agents), *release.shape[1:]))
        if release.noise_std > 0:
            by_turn, bounds = _grouped(turns)
            sorted_agents, drawn = agents[by_turn], np.empty(noise.shape)
            for a, b in pairwise(bounds.tolist()):
                of_turn = self._noise_of(int(turns[by_turn[a]]))
                # With mode="raise" numpy would write to a copy first. All agents are in range.
                of_turn.take(sorted_agents[a:b], axis=0, out=drawn[a:b], mode="clip")
            noise[by_turn] = drawn
        np.add.at(self.taken, agents, 1)
        return noise

    def close(self) -> None:
        """Check that every agent with rows has taken all of its turns."""
        taken = self.taken[self.taken >= 0]
        if (taken != self.release.times).any():
            raise PlanViolation(
                f"Got {taken.min()} turns of an agent in {self.release.name!r}, expected"
                f" {self.release.times}."
            )

    def _noise_of(self, turn: int) -> NDArray[np.float64]:
        """Noise of all agents in a turn; kept as long as somebody needs it."""
        if turn not in self._noise:
            fewest = self.taken[self.taken >= 0].min()
            # Turns that everybody has behind them.
            for known in [k for k in self._noise if k < fewest]:
                del self._noise[known]
            self._noise[turn] = self._draw(turn)
        return self._noise[turn]


def _grouped(keys: NDArray[np.intp]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Places of equal keys side by side, ascending; and where each key begins, and the end."""
    # Keys and places in one number: a sort of numbers is many times faster than one of places.
    bits = max(len(keys) - 1, 1).bit_length()
    joined = np.sort((keys << bits) | np.arange(len(keys)))
    places, keys = joined & ((1 << bits) - 1), joined >> bits
    begins = np.flatnonzero(keys[1:] != keys[:-1]) + 1
    return places, np.concatenate([[0], begins, [len(keys)]]) if len(keys) else np.zeros(1, int)
