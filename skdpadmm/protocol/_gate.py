"""The gate: the only place where noise meets data."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from skdpadmm.noise import NoiseSource, round_to_grid
from skdpadmm.protocol._agents import Agents
from skdpadmm.protocol._plan import Plan, PlanViolation
from skdpadmm.protocol._release import (
    AgentMessages,
    AgentTurns,
    HiddenTerm,
    MessageSum,
    NoisyPath,
    Release,
    SharedSum,
)
from skdpadmm.protocol._turns import TurnsOfAgents
from skdpadmm.secret_sharing import centred, residues_of, share_and_sum

# Noise of a path is drawn for as many steps at once as this many numbers serve.
PATH_ENTRIES = 2**14


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
        self._turns: dict[str, TurnsOfAgents] = {}
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
        index, release = self._planned(name, "release")
        assert isinstance(release, Release)
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
            return self.let_out("release", release, repetition, value, value)
        if isinstance(release, AgentMessages):
            # Each agent's noise is drawn in units of its own share.
            shares = np.asarray(release.shares)[self._agents(release).kind]
            shares = shares.reshape(-1, *(1,) * (value.ndim - 1))
            out = shares * self._noise.add_gaussian(value / shares, 1.0, (index, repetition))
            return self.let_out("release", release, repetition, value, out, shares)
        out = self._noise.add_gaussian(value, noise_std, (index, repetition))
        return self.let_out("release", release, repetition, value, out, noise_std)

    def share(self, name: str, value: NDArray[np.float64]) -> NDArray[np.float64]:
        """Let the sum of all agents' messages through, by secret sharing.

        Every agent rounds its message to the grid and adds its noise, a whole number of cells, as
        only it knows; the sum is what the shares of all of them add up to.

        Parameters
        ----------
        name : str
            Name of a shared sum in the plan.
        value : ndarray of shape (n_agents, ...)
            What each agent has to say, exactly.

        Returns
        -------
        ndarray of the planned shape
            On the public grid, unless the plan is not private.

        Raises
        ------
        PlanViolation
            Where the plan knows no such sum, of this shape, this often, or where the value is not
            finite or leaves the range of the modulus.
        """
        index, release = self._planned(name, "share")
        assert isinstance(release, SharedSum)
        agents = self._agents(release)
        if value.shape != (agents.n_agents, *release.shape):
            raise PlanViolation(
                f"Got shape {value.shape} for the messages of {name!r}, expected"
                f" {(agents.n_agents, *release.shape)}."
            )
        if not np.isfinite(value).all():
            raise PlanViolation(f"Got entries of the release {name!r} that are not finite.")
        if not (np.abs(value).sum(axis=0) < release.cell * (release.modulus / 2)).all():
            # Unreachable by messages that are as long as planned.
            raise PlanViolation(
                f"Got messages of {name!r} whose sum leaves the range of modulus={release.modulus}."
            )
        repetition = self._pass(name)
        if release.noise_std == 0:
            return self.let_out("share", release, repetition, value, np.asarray(value.sum(axis=0)))
        secrets = np.empty(value.shape, dtype=np.int64)
        for kind, share in enumerate(release.shares):
            who, scale = agents.kind == kind, share / release.cell
            # Counted in cells noise is a whole number, as no share is less than 2**20 cells. Where
            # it lies on a coarser grid the message has to: finer digits would have no noise.
            said = round_to_grid(value[who] / release.cell, scale)
            stream = (index, repetition, kind)
            noise = self._noise.add_gaussian(np.zeros(said.shape), scale, stream)
            secrets[who] = said.astype(np.int64) + noise.astype(np.int64)
        total = share_and_sum(
            residues_of(secrets, release.modulus), release.n_curators, release.modulus
        )
        out = np.asarray(release.cell * centred(total, release.modulus))
        return self.let_out("share", release, repetition, value, out, release.noise_std)

    def take_turns(
        self, name: str, agents: NDArray[np.intp], value: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Let some agents take their next turn in a planned release.

        An agent's turn has the noise that it has whoever else takes one, and gets it once.

        Parameters
        ----------
        name : str
            Name of a release in turns in the plan.
        agents : ndarray of intp of shape (n_awake,)
            Each at most once, and each with rows.
        value : ndarray of shape (n_awake, ...)
            What each of them says, exactly.

        Returns
        -------
        ndarray of the same shape
            On a public grid, unless the plan is not private.

        Raises
        ------
        PlanViolation
            Where the plan knows no such turns, where an agent has taken all of its turns, or where
            the value is not finite.
        """
        turns = self._turns_of(name)
        release = turns.release
        if value.shape != (len(agents), *release.shape[1:]):
            raise PlanViolation(
                f"Got shape {value.shape} for {len(agents)} turns of {name!r}, expected"
                f" {(len(agents), *release.shape[1:])}."
            )
        if not np.isfinite(value).all():
            raise PlanViolation(f"Got entries of the release {name!r} that are not finite.")
        turns.require_each_once(agents)
        of_each = turns.taken[agents]
        noise = turns.take(agents, of_each)
        self.trace.append((name, noise.shape))
        if release.noise_std == 0:
            return self.let_out("take_turns", release, of_each, value, value, 0.0, agents)
        units = turns.units[agents].reshape(-1, *(1,) * (value.ndim - 1))
        out = units * (round_to_grid(value / units, 1.0) + noise)
        return self.let_out("take_turns", release, of_each, value, out, units, agents)

    def turns_taken(self, name: str) -> NDArray[np.intp]:
        """How many turns each agent took so far; below 0 for one without rows, who takes none.

        Parameters
        ----------
        name : str
            Name of a release in turns in the plan.

        Returns
        -------
        ndarray of intp of shape (n_agents,)

        Raises
        ------
        PlanViolation
            Where the plan knows no such turns.
        """
        return self._turns_of(name).taken.copy()

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
        drawn = self._noise.uniform(shape, (len(self._passed), 0, self._draws))
        return self.let_out("uniform", None, self._draws - 1, None, drawn)

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
        index, term = self._planned(name, "hidden_term")
        assert isinstance(term, HiddenTerm)
        repetition = self._pass(name)
        drawn = self._noise.add_gaussian(np.zeros(term.shape), term.noise_std, (index, repetition))
        return self.let_out("hidden_term", term, repetition, None, drawn, term.noise_std)

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
        index, path = self._planned(name, "path_noise")
        assert isinstance(path, NoisyPath)
        first = self._passed[index]
        stop = first + n_steps
        if path.times is not None and stop > path.times:
            raise PlanViolation(
                f"Got step {stop} of {name!r}, expected no more than {path.times} steps."
            )
        self._passed[index] = stop
        self.trace.append((name, (n_steps, *path.shape)))
        noise = self._steps_of_path(path, (index, first), n_steps)
        return self.let_out("path_noise", path, first, None, noise, path.noise_std)

    def let_out(
        self,
        method: str,
        release: Release | HiddenTerm | NoisyPath | None,
        repetition: int | NDArray[np.intp],
        value: NDArray[Any] | None,
        out: NDArray[Any],
        unit: float | NDArray[np.float64] = 0.0,
        agents: NDArray[np.intp] | None = None,
    ) -> NDArray[Any]:
        """Let out what a method gives to its caller: all of them end here, and a fit adds nothing.

        Who looks on at a fit, as an audit does, overrides this, and may let out something else.

        Parameters
        ----------
        method : str
            "release", "share", "take_turns", "hidden_term", "path_noise" or "uniform".
        release : Release, HiddenTerm, NoisyPath or None
            As it is planned; None: random numbers that are no release.
        repetition : int or ndarray of intp of shape (n_turns,)
            How often it passed before, and for turns how many turns each of `agents` had taken.
        value : ndarray or None
            The exact quantity; None: noise is all that passes.
        out : ndarray
            With its noise.
        unit : float or ndarray, default=0.0
            The planned standard deviation of ``out - value``, of Laplace noise the scale, of shared
            sums that of the plan's line; 0: there is no noise.
        agents : ndarray of intp of shape (n_turns,), default=None
            Whose turns they are.

        Returns
        -------
        ndarray of the shape of `out`
        """
        return out

    def close(self) -> None:
        """Check that everything planned was released.

        Raises
        ------
        PlanViolation
            Where a planned release is missing.
        """
        for release, passed in zip(self._plan.releases, self._passed, strict=True):
            if isinstance(release, AgentTurns):
                self._turns_of(release.name).close()
                continue
            if release.times is not None and passed != release.times:
                raise PlanViolation(
                    f"Got the release {release.name!r} {passed} times, expected {release.times}."
                )

    def _steps_of_path(
        self, path: NoisyPath, stream: tuple[int, int], n_steps: int
    ) -> NDArray[np.float64]:
        """Noise of steps of a path, which begin where its stream says."""
        index, first = stream
        stop = first + n_steps
        noise = np.zeros((n_steps, *path.shape))
        if path.noise_std == 0 or n_steps == 0:
            return noise
        if not self._noise.simulation:
            # Blocks serve replay alone; a short piece of a stream would throw most of one away.
            return self._noise.add_gaussian(noise, path.noise_std, (index, first))
        size = max(PATH_ENTRIES // max(int(np.prod(path.shape)), 1), 1)
        zeros = np.zeros((size, *path.shape))
        for block in range(first // size, (stop - 1) // size + 1):
            drawn = self._noise.add_gaussian(zeros, path.noise_std, (index, block))
            low, high = max(first, block * size), min(stop, (block + 1) * size)
            noise[low - first : high - first] = drawn[low - block * size : high - block * size]
        return noise

    def _turns_of(self, name: str) -> TurnsOfAgents:
        """The turns that agents took in a planned release."""
        index, release = self._planned(name, "take_turns")
        assert isinstance(release, AgentTurns)
        if name not in self._turns:

            def draw(turn: int) -> NDArray[np.float64]:
                noise, stream = self._noise, (index, turn)
                add = noise.add_laplace if release.law == "laplace" else noise.add_gaussian
                return add(np.zeros(release.shape), 1.0, stream)

            self._turns[name] = TurnsOfAgents(release, self._agents(release), draw)
        return self._turns[name]

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

    def _planned(
        self, name: str, passes_by: str | None = None
    ) -> tuple[int, Release | HiddenTerm | NoisyPath]:
        """A release of this name, if it leaves by that method."""
        if name not in self._index:
            raise PlanViolation(
                f"Got a release {name!r}, expected one of {sorted(self._index)}: what a plan does"
                " not list cannot leave the gate."
            )
        index = self._index[name]
        release = self._plan.releases[index]
        if passes_by not in (None, release.passes_by):
            raise PlanViolation(
                f"Got {name!r} in `{passes_by}`, expected `{release.passes_by}`: so it is planned."
            )
        return index, release

    def _pass(self, name: str) -> int:
        """Count one more passage; returns how many there were before."""
        index, release = self._planned(name)
        repetition = self._passed[index]
        if release.passes_by in ("path_noise", "take_turns"):
            raise PlanViolation(
                f"Got {name!r} at once, expected `{release.passes_by}`: it leaves step by step."
            )
        if repetition == release.times:
            raise PlanViolation(
                f"Got release {name!r} for time {repetition + 1}, expected it"
                f" {release.times} times."
            )
        self._passed[index] += 1
        self.trace.append((name, release.shape))
        return repetition
