"""The gate: the only place where noise meets data."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skdpadmm.noise import NoiseSource, round_to_grid
from skdpadmm.protocol._agents import Agents
from skdpadmm.protocol._plan import Plan, PlanViolation
from skdpadmm.protocol._release import Release
from skdpadmm.secret_sharing import centred, residues_of, share_and_sum

# Noise of a path is drawn for as many steps at once as this many numbers serve.
PATH_ENTRIES = 2**14

Floats = NDArray[np.float64]


class Gate:
    """Adds the planned noise to planned releases, in any order, each as often as planned.

    Each method raises `PlanViolation` where the plan has no such release, of this shape, this
    often, by this method, or where a value is not finite. Results lie on a public grid, unless the
    plan is not private.

    Parameters
    ----------
    plan : Plan
    noise : NoiseSource
        Asked for one independent stream for each repetition of each release.
    n_arrived : int, default=0
        Steps of an unending stream that were taken already: their noise is used up.

    Attributes
    ----------
    trace : list of (str, tuple of int)
        Name and shape of what was released, in order. It holds no values.
    """

    def __init__(self, plan: Plan, noise: NoiseSource, n_arrived: int = 0) -> None:
        self._plan = plan
        self._noise = noise
        self._index = {release.name: i for i, release in enumerate(plan.releases)}
        self._passed = [n_arrived if release.times is None else 0 for release in plan.releases]
        self._draws = 0
        self._turns: dict[str, Turns] = {}
        self.trace: list[tuple[str, tuple[int, ...]]] = []

    def replan(self, plan: Plan) -> None:
        """Continue with a plan that was made from the releases so far, and begins with them."""
        n, known = len(self.trace), self._plan
        passed = [int(i < n) for i in range(len(plan.releases))]
        is_next = (plan.releases[:n], plan.budget) == (known.releases[:n], known.budget)
        if not is_next or self._passed[:n] != passed[:n] or known.releases[n - 1].times != 1:
            raise PlanViolation(f"Got a plan of other releases than {self.trace}, expected these.")
        self._passed, self._plan = passed, plan
        self._index = {release.name: i for i, release in enumerate(plan.releases)}

    def release(self, name: str, value: Floats, senders: NDArray[np.bool_] | None = None) -> Floats:
        """Release a value of the planned shape with the planned noise.

        For a sum of messages `senders` of shape (n_agents,) says whose messages, with their noise,
        are in it; None: everyone's. Noise of the sum is drawn at once, which has the same law.
        """
        index, release = self._planned(name, "release")
        self._check(release, value, release.shape)
        noise_std: float | Floats = self._noise_std(release, senders)
        repetition = self._pass(name)
        if release.noise_std == 0:
            out, noise_std = value, 0.0
        elif release.made_of == "agents":
            # Each agent's noise is drawn in units of its own noise scale.
            noise_std = _for_each(self._noise_of_agents(release), value)
            own = self._noise.add_gaussian(value / noise_std, 1.0, (index, repetition))
            # Both are on the grid: only their sum gets units, or digits would tell them apart.
            shared = self._shared_noise(release, index, repetition)
            out, value = noise_std * (own + shared), value + noise_std * shared
        else:
            out = self._noise.add_gaussian(value, float(noise_std), (index, repetition))
        return self.deliver("release", release, repetition, value, out, noise_std)

    def share(self, name: str, value: Floats, senders: NDArray[np.bool_] | None = None) -> Floats:
        """Release the sum of agents' messages by secret sharing.

        Every agent rounds its exact message, of `value` (n_agents, ...), to the grid and adds its
        noise, a whole number of cells, which only it knows; all shares add up to the sum. `senders`
        of shape (n_agents,) says whose shares curators add up; None: everyone's.
        """
        index, release = self._planned(name, "share")
        agents = self._agents(release)
        self._check(release, value, (agents.n_agents, *release.shape))
        if not (np.abs(value).sum(axis=0) < release.cell * (release.modulus / 2)).all():
            # Unreachable by messages that are as long as planned.
            raise PlanViolation(
                f"Got messages of {name!r} whose sum leaves the range of modulus={release.modulus}."
            )
        noise_std = release.noise_std
        if senders is not None:
            noise_std = self._noise_std(release, senders)
            value = value * _for_each(senders, value)
        repetition = self._pass(name)
        if release.noise_std == 0:
            return self.deliver("share", release, repetition, value, np.asarray(value.sum(axis=0)))
        secrets = np.empty(value.shape, dtype=np.int64)
        for kind, of_one in enumerate(release.agent_noise_std):
            of_kind, scale = agents.kind == kind, of_one / release.cell
            # Counted in cells noise is a whole number, as it is no less than 2**20 cells. Where
            # it lies on a coarser grid the message has to: finer digits would have no noise.
            message = round_to_grid(value[of_kind] / release.cell, scale)
            stream = (index, repetition, kind)
            noise = self._noise.add_gaussian(np.zeros(message.shape), scale, stream)
            secrets[of_kind] = message.astype(np.int64) + noise.astype(np.int64)
        residues = residues_of(secrets if senders is None else secrets[senders], release.modulus)
        total = share_and_sum(residues, release.n_curators, release.modulus, release.threshold)
        out = np.asarray(release.cell * centred(total, release.modulus))
        return self.deliver("share", release, repetition, value, out, noise_std)

    def take_turns(self, name: str, agents: NDArray[np.intp], value: Floats) -> Floats:
        """Release the messages of some agents, each in its next turn.

        The noise of an agent's turn does not depend on who else takes one, and is used once.
        `agents` are distinct and have rows; their exact messages have shape (n_awake, ...).
        """
        index, release = self._planned(name, "take_turns")
        if name not in self._turns:
            self._turns[name] = Turns(release, self._agents(release), self._noise, index)
        self._check(release, value, (len(agents), *release.shape[1:]))
        turn, noise = self._turns[name].take(agents)
        self.trace.append((name, noise.shape))
        if release.noise_std == 0:
            return self.deliver("take_turns", release, turn, value, value, 0.0, agents)
        scales = _for_each(self._turns[name].scales[agents], value)
        out = scales * (round_to_grid(value / scales, 1.0) + noise)
        return self.deliver("take_turns", release, turn, value, out, scales, agents)

    def skip(self, name: str) -> None:
        """Use up one repetition of a planned release without releasing anything."""
        self._pass(name)

    def uniform(self, shape: tuple[int, ...]) -> Floats:
        """Draw uniform numbers in [0, 1), for choices that do not depend on data."""
        self._draws += 1
        # Releases have streams of two words, so these are different.
        drawn = self._noise.uniform(shape, (len(self._passed), 0, self._draws))
        return self.deliver("uniform", None, self._draws - 1, None, drawn)

    def hidden_term(self, name: str) -> Floats:
        """Draw the noise of a planned hidden term, which must not leave the algorithm."""
        index, term = self._planned(name, "hidden_term")
        repetition = self._pass(name)
        drawn = self._noise.add_gaussian(np.zeros(term.shape), term.noise_std, (index, repetition))
        return self.deliver("hidden_term", term, repetition, None, drawn, term.noise_std)

    def path_noise(self, name: str, n_steps: int) -> Floats:
        """Draw the noise (n_steps, ...) of the next steps of a planned path, to be added singly.

        The noise of a step does not depend on how many are drawn at once, and is used once.
        """
        index, path = self._planned(name, "path_noise")
        first = self._passed[index]
        stop = first + n_steps
        if path.times is not None and stop > path.times:
            raise PlanViolation(
                f"Got step {stop} of {name!r}, expected no more than {path.times} steps."
            )
        self._passed[index] = stop
        noise = np.zeros((n_steps, *path.shape))
        self.trace.append((name, noise.shape))
        if path.noise_std > 0 and not self._noise.simulation:
            # Blocks serve replay alone; a short piece of a stream would throw most of one away.
            noise = self._noise.add_gaussian(noise, path.noise_std, (index, first))
        elif path.noise_std > 0:
            size = max(PATH_ENTRIES // max(int(np.prod(path.shape)), 1), 1)
            zeros = np.zeros((size, *path.shape))
            for block in range(first // size, (stop - 1) // size + 1):
                drawn = self._noise.add_gaussian(zeros, path.noise_std, (index, block))
                start, end = max(first, block * size), min(stop, (block + 1) * size)
                noise[start - first : end - first] = drawn[start - block * size :][: end - start]
        return self.deliver("path_noise", path, first, None, noise, path.noise_std)

    def deliver(
        self,
        method: str,
        release: Release | None,
        repetition: int | NDArray[np.intp],
        value: NDArray[Any] | None,
        out: NDArray[Any],
        unit: float | Floats = 0.0,
        agents: NDArray[np.intp] | None = None,
    ) -> NDArray[Any]:
        """Return what a method releases: all of them end here, and an audit overrides this.

        Parameters
        ----------
        method : str
            Of the gate; "uniform" and "edge_noise": random numbers that are no `release`, the
            latter of each pair of agents.
        release : Release or None
        repetition : int or ndarray of intp of shape (n_turns,)
            How often it was released before, and for turns how many each of `agents` had taken.
        value, out : ndarray
            The exact quantity, None where there is only noise; and what is released.
        unit : float or ndarray, default=0.0
            The planned standard deviation of ``out - value``, of Laplace noise the scale, of shared
            sums that of the plan's line; 0: there is no noise.
        agents : ndarray of intp of shape (n_turns,), default=None
            Whose turns they are.
        """
        return out

    def close(self) -> None:
        """Check that everything planned was released."""
        for release, passed in zip(self._plan.releases, self._passed, strict=True):
            if turns := self._turns.get(release.name):
                passed = int(turns.taken[turns.has_rows].min())
            if release.times is not None and passed != release.times:
                raise PlanViolation(
                    f"Got the release {release.name!r} {passed} times, expected {release.times}."
                )

    def _noise_std(self, release: Release, senders: NDArray[np.bool_] | None) -> float:
        """Noise standard deviation of a release; of a sum, that of the messages in it."""
        if release.made_of != "sum":
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
                f" {release.fewest}: their noise is too small."
            )
        variances = np.square(self._noise_of_agents(release)[senders])
        # Noise that a sender shares with an agent whose message is lost does not cancel.
        n_lost = agents.n_agents - len(variances)
        return float(np.sqrt(np.sum(variances) * (1 + agents.edge_noise * n_lost)))

    def _noise_of_agents(self, release: Release) -> Floats:
        return np.asarray(release.agent_noise_std)[self._agents(release).kind]

    def _shared_noise(self, release: Release, index: int, repetition: int) -> Floats:
        """Noise that agents share with others, in units of their own; it sums to 0 exactly."""
        agents = self._agents(release)
        shared = np.zeros(release.shape)
        if agents.edge_noise == 0:
            return shared
        first, second = agents.pairs.edges.T
        # One more word than streams of releases have.
        zeros, stream = np.zeros((len(first), *release.shape[1:])), (index, repetition, 1)
        drawn = self._noise.add_gaussian(zeros, math.sqrt(agents.edge_noise), stream)
        drawn = self.deliver("edge_noise", None, repetition, None, drawn)
        np.add.at(shared, first, drawn)
        np.subtract.at(shared, second, drawn)
        return shared

    def _agents(self, release: Release) -> Agents:
        agents = self._plan.facts.agents
        if not agents.n_agents:
            raise PlanViolation(f"Got messages of {release.name!r}, expected agents who send them.")
        return agents

    def _planned(self, name: str, door: str | None = None) -> tuple[int, Release]:
        """A release of this name, which that method releases."""
        if name not in self._index:
            raise PlanViolation(
                f"Got a release {name!r}, expected one of {sorted(self._index)}: nothing else is"
                " planned."
            )
        release = self._plan.releases[self._index[name]]
        if door not in (None, release.door):
            raise PlanViolation(
                f"Got {name!r} in `{door}`, expected `{release.door}`, as it is planned."
            )
        return self._index[name], release

    def _pass(self, name: str) -> int:
        """Count one more repetition; returns how many there were before."""
        index, release = self._planned(name)
        repetition = self._passed[index]
        if release.door in ("path_noise", "take_turns"):
            raise PlanViolation(
                f"Got {name!r} at once, expected `{release.door}`: it is released step by step."
            )
        if repetition == release.times:
            raise PlanViolation(
                f"Got release {name!r} for time {repetition + 1}, expected it {repetition} times."
            )
        self._passed[index] += 1
        self.trace.append((name, release.shape))
        return repetition

    @staticmethod
    def _check(release: Release, value: Floats, shape: tuple[int, ...]) -> None:
        """Refuse a value of another shape, or one that is not finite."""
        if value.shape != shape:
            raise PlanViolation(
                f"Got shape {value.shape} for the release {release.name!r}, expected {shape}."
            )
        if not np.isfinite(value).all():
            # Unreachable by clipped contributions; an algorithm that gets here has no bound at all.
            raise PlanViolation(f"Got entries of the release {release.name!r} that are not finite.")


class Turns:
    """The turns that agents took in one release, each with noise of its own, once."""

    def __init__(self, release: Release, agents: Agents, noise: NoiseSource, index: int) -> None:
        self.release = release
        self.taken = np.zeros(agents.n_agents, dtype=np.intp)
        self.has_rows = np.asarray(agents.agent_sizes) > 0
        is_laplace = release.law == "laplace"
        # Laplace noise of scale one has the standard deviation sqrt(2).
        unit_std = np.sqrt(2.0) if is_laplace else 1.0
        self.scales = np.asarray(release.agent_noise_std)[agents.kind] / unit_std
        self._add = noise.add_laplace if is_laplace else noise.add_gaussian
        self._index = index
        self._noise: dict[int, Floats] = {}
        self._places = np.zeros(agents.n_agents, dtype=np.intp)

    def take(self, agents: NDArray[np.intp]) -> tuple[NDArray[np.intp], Floats]:
        """Count a turn of agents: which turn of each it is, and its noise in units of one."""
        release, n_turns, turns = self.release, len(self.release.sensitivities), self.taken[agents]
        # Of an agent that is listed twice, only the last place stays.
        self._places[agents] = places = np.arange(len(agents))
        if (self._places[agents] != places).any() or not self.has_rows[agents].all():
            raise PlanViolation(
                f"Got an agent twice, or one without rows, in a turn of {release.name!r}, expected"
                " agents with rows, each once."
            )
        if (turns >= n_turns).any():
            raise PlanViolation(
                f"Got turn {turns.max() + 1} of an agent in {release.name!r}, expected no more than"
                f" {n_turns} turns."
            )
        noise = np.zeros((len(agents), *release.shape[1:]))
        if release.noise_std > 0:
            for turn in np.unique(turns).tolist():
                takes_it = turns == turn
                noise[takes_it] = self._noise_of(turn)[agents[takes_it]]
        self.taken[agents] += 1
        return turns, noise

    def _noise_of(self, turn: int) -> Floats:
        """Noise of all agents in a turn; kept until everybody has taken that turn."""
        if turn not in self._noise:
            fewest = self.taken[self.has_rows].min()
            self._noise = {k: drawn for k, drawn in self._noise.items() if k >= fewest}
            self._noise[turn] = self._add(np.zeros(self.release.shape), 1.0, (self._index, turn))
        return self._noise[turn]


def _for_each(scales: NDArray[Any], messages: Floats) -> NDArray[Any]:
    """Scales of agents, which are the first axis of messages."""
    return scales.reshape(-1, *(1,) * (messages.ndim - 1))
