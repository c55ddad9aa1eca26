"""The gate: the only place where noise meets data."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from skdpadmm.noise import NoiseSource
from skdpadmm.protocol._agents import Agents
from skdpadmm.protocol._plan import Plan
from skdpadmm.protocol._release import AgentMessages, HiddenTerm, MessageSum, NoisyPath, Release

# Noise of a path is drawn for as many steps at once as this many numbers serve.
PATH_ENTRIES = 2**14


class PlanViolation(RuntimeError):
    """An algorithm tried to release what its plan does not list, or left a planned release out."""


class Gate:
    """Adds the planned noise to planned releases, in any order, each as often as planned.

    Parameters
    ----------
    plan : Plan
    noise : NoiseSource
        Asked for one independent stream for each repetition of each release.
    n_arrived : int, default=0
        Steps of an unending path that were taken already: their noise is used up.

    Attributes
    ----------
    trace : list of (str, tuple of int)
        Name and shape of each release that passed, in order. It holds no values.
    """

    def __init__(self, plan: Plan, noise: NoiseSource, n_arrived: int = 0) -> None:
        self._plan = plan
        self._noise = noise
        self._index = {release.name: i for i, release in enumerate(plan.releases)}
        self._passed = [n_arrived if release.times is None else 0 for release in plan.releases]
        self._draws = 0
        self.trace: list[tuple[str, tuple[int, ...]]] = []

    def release(
        self,
        name: str,
        value: NDArray[np.float64],
        senders: NDArray[np.bool_] | None = None,
    ) -> NDArray[np.float64]:
        """Let a value through with the noise that was planned for it.

        Parameters
        ----------
        name : str
            Name of a release in the plan.
        value : ndarray
            The exact quantity, of the planned shape.
        senders : ndarray of shape (n_agents,), default=None
            For a sum of messages: whose messages, with their noise, are in it; None: everyone's.
            The noise of the sum is drawn at once, which has the same law.

        Returns
        -------
        ndarray of the same shape

        Raises
        ------
        PlanViolation
            Where the plan knows no such release, of this shape, this often, where the value is
            not finite, or where fewer messages are summed than the plan demands.
        """
        index, release = self._planned(name)
        if isinstance(release, NoisyPath):
            raise PlanViolation(f"Got {name!r} to release, expected `path_noise`: it has steps.")
        if not isinstance(release, Release):
            raise PlanViolation(f"Got {name!r} to release, expected `hidden_term`: it is hidden.")
        if value.shape != release.shape:
            raise PlanViolation(
                f"Got shape {value.shape} for the release {name!r}, expected {release.shape}."
            )
        if not np.isfinite(value).all():
            # Unreachable by clipped contributions; an algorithm that gets here has no bound at all.
            raise PlanViolation(f"Got entries of the release {name!r} that are not finite.")
        noise_std = self._noise_std(release, senders)
        repetition = self._pass(name)
        if release.noise_std == 0:
            return value
        if isinstance(release, AgentMessages):
            # Each agent's noise is drawn in units of its own share.
            shares = np.asarray(release.shares)[self._agents(release).kind]
            shares = shares.reshape(-1, *(1,) * (value.ndim - 1))
            return shares * self._noise.add_gaussian(value / shares, 1.0, (index, repetition))
        return self._noise.add_gaussian(value, noise_std, (index, repetition))

    def skip(self, name: str) -> None:
        """Use up one repetition of a planned release without releasing anything.

        Parameters
        ----------
        name : str

        Raises
        ------
        PlanViolation
            Where the plan knows no such release this often.
        """
        self._pass(name)

    def uniform(self, shape: tuple[int, ...]) -> NDArray[np.float64]:
        """Uniform numbers in [0, 1) for what is random and does not depend on data.

        Parameters
        ----------
        shape : tuple of int

        Returns
        -------
        ndarray of that shape
        """
        self._draws += 1
        # Releases have streams of two words, so that these are others.
        return self._noise.uniform(shape, (len(self._passed), 0, self._draws))

    def hidden_term(self, name: str) -> NDArray[np.float64]:
        """Draw the noise of a planned hidden term, which must never leave the algorithm.

        Parameters
        ----------
        name : str
            Name of a hidden term in the plan.

        Returns
        -------
        ndarray of the planned shape

        Raises
        ------
        PlanViolation
            Where the plan knows no such term, or knows it as a release.
        """
        index, term = self._planned(name)
        if not isinstance(term, HiddenTerm):
            raise PlanViolation(f"Got {name!r} as a hidden term, expected `release`.")
        repetition = self._pass(name)
        return self._noise.add_gaussian(np.zeros(term.shape), term.noise_std, (index, repetition))

    def path_noise(self, name: str, n_steps: int) -> NDArray[np.float64]:
        """Draw the noise of the next steps of a planned path, to be added one by one.

        A step has the noise that it has however the steps before it were asked for, and gets it
        once.

        Parameters
        ----------
        name : str
            Name of a noisy path in the plan.
        n_steps : int

        Returns
        -------
        ndarray of shape (n_steps, ...)
            On the public grid. Zeros where the plan is not private.

        Raises
        ------
        PlanViolation
            Where the plan knows no such path, or not so many steps.
        """
        index, path = self._planned(name)
        if not isinstance(path, NoisyPath):
            raise PlanViolation(f"Got {name!r} as a noisy path, expected `release`.")
        first = self._passed[index]
        stop = first + n_steps
        if path.times is not None and stop > path.times:
            raise PlanViolation(
                f"Got step {stop} of {name!r}, expected no more than {path.times} steps."
            )
        self._passed[index] = stop
        self.trace.append((name, (n_steps, *path.shape)))
        noise = np.zeros((n_steps, *path.shape))
        if path.noise_std == 0 or n_steps == 0:
            return noise
        size = max(PATH_ENTRIES // max(int(np.prod(path.shape)), 1), 1)
        zeros = np.zeros((size, *path.shape))
        for block in range(first // size, (stop - 1) // size + 1):
            drawn = self._noise.add_gaussian(zeros, path.noise_std, (index, block))
            low, high = max(first, block * size), min(stop, (block + 1) * size)
            noise[low - first : high - first] = drawn[low - block * size : high - block * size]
        return noise

    def close(self) -> None:
        """Check that everything planned was released.

        Raises
        ------
        PlanViolation
            Where a planned release is missing.
        """
        for release, passed in zip(self._plan.releases, self._passed, strict=True):
            if release.times is not None and passed != release.times:
                raise PlanViolation(
                    f"Got the release {release.name!r} {passed} times, expected {release.times}."
                )

    def _noise_std(self, release: Release, senders: NDArray[np.bool_] | None) -> float:
        """Noise of a release; of a sum, that of the messages which are in it."""
        if not isinstance(release, MessageSum):
            if senders is not None:
                raise PlanViolation(f"Got senders of the release {release.name!r}, expected none.")
            return release.noise_std
        agents = self._agents(release)
        if senders is None:
            senders = np.ones(agents.n_agents, dtype=bool)
        if senders.dtype != bool or senders.shape != (agents.n_agents,):
            raise PlanViolation(
                f"Got senders of {release.name!r} of type {senders.dtype} and shape"
                f" {senders.shape}, expected a bool for each of {agents.n_agents} agents."
            )
        if np.sum(senders) < release.fewest:
            raise PlanViolation(
                f"Got {np.sum(senders)} messages in {release.name!r}, expected at least"
                f" {release.fewest}: their noise is too little."
            )
        shares = np.asarray(release.shares)[agents.kind[senders]]
        return float(np.sqrt(np.sum(np.square(shares))))

    def _agents(self, release: Release) -> Agents:
        agents = self._plan.facts.agents
        if agents is None:
            raise PlanViolation(f"Got messages {release.name!r}, expected agents that send them.")
        return agents

    def _planned(self, name: str) -> tuple[int, Release | HiddenTerm | NoisyPath]:
        if name not in self._index:
            raise PlanViolation(
                f"Got a release {name!r}, expected one of {sorted(self._index)}: what a plan does"
                " not list cannot leave the gate."
            )
        index = self._index[name]
        return index, self._plan.releases[index]

    def _pass(self, name: str) -> int:
        """Count one more passage; returns how many there were before."""
        index, release = self._planned(name)
        repetition = self._passed[index]
        if isinstance(release, NoisyPath):
            raise PlanViolation(f"Got {name!r} at once, expected `path_noise`: it has steps.")
        if repetition == release.times:
            raise PlanViolation(
                f"Got release {name!r} for time {repetition + 1}, expected it"
                f" {release.times} times."
            )
        self._passed[index] += 1
        self.trace.append((name, release.shape))
        return repetition
