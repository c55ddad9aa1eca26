"""Replays: neighbouring data meet the same randomness and the same past, release by release."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import root
from scipy.special import betainc
from scipy.stats import binom, chi2, gamma

from skdpadmm._fitting import PendingFit, watched_by
from skdpadmm.audit._neighbors import Neighbors
from skdpadmm.audit._report import ReplayLine
from skdpadmm.noise import NoiseSource
from skdpadmm.privacy import Neighboring, PerturbedObjectiveDP
from skdpadmm.protocol import (
    AgentMessages,
    AgentTurns,
    Gate,
    HiddenTerm,
    NoisyPath,
    PerturbedRows,
    Plan,
    PlanViolation,
    RandomizedLabels,
    Release,
    SharedSum,
)

Array = NDArray[np.float64]
# Of a bound that holds in floating point up to the rounding of norms.
SLACK = 1 + 1e-9
# Terms that lead to the same minimiser are sought by so many fits, and found up to this.
MOST_TILTS, TILT_SLACK = 100, 1e-4
# Vectors of noise are compared where they are at least as long, and no more of them than that.
SHORTEST, MOST_VECTORS = 8, 64


@dataclass(frozen=True, eq=False, kw_only=True)
class Passage:
    """Something that passed a gate.

    Attributes
    ----------
    method : str
        Of the gate.
    name : str
        Of the release; empty for what is random and no release.
    value : ndarray or None
        What came in, where something does.
    out : object
        What came out.
    unit_noise : ndarray or None
        Its noise in units of what was planned.
    index : int
        Which repetition of the release it was.
    who : ndarray of intp or None
        Whose turns they were.
    turns : ndarray of intp or None
        Which ones.
    """

    method: str
    name: str
    value: Array | None
    out: Any
    unit_noise: Array | None = None
    index: int = 0
    who: NDArray[np.intp] | None = None
    turns: NDArray[np.intp] | None = None


class RecordingGate(Gate):
    """Lets releases through as planned, and keeps what came in and what came out.

    Parameters
    ----------
    plan : Plan
    noise : NoiseSource
    n_arrived : int

    Attributes
    ----------
    plan : Plan
    noise : NoiseSource
    passages : list of Passage
    """

    def __init__(self, plan: Plan, noise: NoiseSource, n_arrived: int = 0) -> None:
        super().__init__(plan, noise, n_arrived)
        self.plan, self.noise = plan, noise
        self.passages: list[Passage] = []

    def release(
        self, name: str, value: Array, senders: NDArray[np.bool_] | None = None
    ) -> NDArray[np.float64]:
        """Let a value through, and keep it with its noise."""
        index, release = self._planned(name, "release")
        assert isinstance(release, Release)
        std: Any = self._noise_std(release, senders)
        if isinstance(release, AgentMessages):
            shares = np.asarray(release.shares)[self._agents(release).kind]
            std = shares.reshape(-1, *(1,) * (value.ndim - 1))
        repetition = self._passed[index]
        out = super().release(name, value, senders)
        self._keep("release", name, value, out, std, index=repetition)
        return out

    def share(self, name: str, value: Array) -> Array:
        """Let a sum through, and keep its messages with the noise of all."""
        index, release = self._planned(name, "share")
        assert isinstance(release, SharedSum)
        repetition = self._passed[index]
        out = super().share(name, value)
        shares = np.asarray(release.shares)[self._agents(release).kind]
        noise = None if release.noise_std == 0 else (out - value.sum(axis=0)) / math.hypot(*shares)
        self.passages.append(
            Passage(
                method="share", name=name, value=value.copy(), out=out, unit_noise=noise,
                index=repetition,
            )
        )  # fmt: skip
        return out

    def take_turns(self, name: str, agents: NDArray[np.intp], value: Array) -> Array:
        """Let turns through, and keep them with their noise."""
        release = self._planned_turns(name)
        turns = self._turns_of(release)[agents].copy()
        out = super().take_turns(name, agents, value)
        std = np.asarray(release.shares)[self._agents(release).kind][agents]
        std = std.reshape(-1, *(1,) * (value.ndim - 1))
        self._keep("take_turns", name, value, out, std, who=agents.copy(), turns=turns)
        return out

    def turn_noise(
        self, name: str, agents: NDArray[np.intp]
    ) -> tuple[NDArray[np.intp], Array, Array]:
        """Give noise to a compiled loop, and keep it; what it is added to is not seen."""
        release = self._planned_turns(name)
        turns, noise, units = super().turn_noise(name, agents)
        std = 1.0 if release.law == "gaussian" else math.sqrt(2.0)
        self.passages.append(
            Passage(
                method="turn_noise", name=name, value=None, out=(turns, noise.copy(), units),
                unit_noise=None if release.noise_std == 0 else noise / std,
                who=agents.copy(), turns=turns,
            )
        )  # fmt: skip
        return turns, noise, units

    def perturb_rows(self, name: str, value: Array, owner: NDArray[np.intp]) -> Array:
        """Let rows through, and keep them with their noise."""
        _, release = self._planned(name, "perturb_rows")
        assert isinstance(release, PerturbedRows)
        out = super().perturb_rows(name, value, owner)
        std = np.asarray(release.shares)[self._kinds(release, value, owner)]
        self._keep("perturb_rows", name, value, out, std.reshape(-1, *(1,) * (value.ndim - 1)))
        return out

    def randomize_labels(
        self, name: str, labels: NDArray[np.intp], owner: NDArray[np.intp]
    ) -> NDArray[np.intp]:
        """Let labels through, and keep them."""
        out = super().randomize_labels(name, labels, owner)
        told = (out != labels).astype(np.float64)
        _, release = self._planned(name)
        assert isinstance(release, RandomizedLabels)
        noise = None if release.noise_std == 0 else told
        self.passages.append(
            Passage(
                method="randomize_labels", name=name, value=labels.astype(np.float64), out=out,
                unit_noise=noise,
            )
        )  # fmt: skip
        return out

    def uniform(self, shape: tuple[int, ...]) -> Array:
        """Draw what does not depend on data, and keep it."""
        out = super().uniform(shape)
        self.passages.append(Passage(method="uniform", name="", value=None, out=out.copy()))
        return out

    def hidden_term(self, name: str) -> Array:
        """Draw a hidden term, and keep it."""
        index, term = self._planned(name, "hidden_term")
        repetition = self._passed[index]
        out = super().hidden_term(name)
        self._keep("hidden_term", name, None, out, term.noise_std, index=repetition)
        return out

    def path_noise(self, name: str, n_steps: int) -> Array:
        """Draw the noise of steps, and keep it; what it is added to is not seen."""
        _, path = self._planned(name, "path_noise")
        out = super().path_noise(name, n_steps)
        self._keep("path_noise", name, None, out.copy(), path.noise_std)
        return out

    def _keep(
        self, method: str, name: str, value: Array | None, out: Array, std: Any, **which: Any
    ) -> None:
        exact = 0.0 if value is None else value
        noise = None if np.min(std) == 0 else (out - exact) / std
        kept = None if value is None else value.copy()
        self.passages.append(
            Passage(method=method, name=name, value=kept, out=out, unit_noise=noise, **which)
        )


class Diverged(Exception):
    """A replay did something else than the recording: what is done depends on data."""


class ReplayingGate(RecordingGate):
    """Lets out what passed another gate, whatever comes in, and keeps what came in.

    Parameters
    ----------
    plan : Plan
    noise : NoiseSource
    recorded : RecordingGate
    """

    def __init__(self, plan: Plan, noise: NoiseSource, recorded: RecordingGate) -> None:
        super().__init__(plan, noise)
        self._recorded = iter(recorded.passages)

    def release(
        self, name: str, value: Array, senders: NDArray[np.bool_] | None = None
    ) -> NDArray[np.float64]:
        """Count the release, and let out the recorded one."""
        index = self._passed[self._planned(name, "release")[0]]
        super().release(name, value, senders)
        return self._again("release", name, value, index=index).out

    def share(self, name: str, value: Array) -> Array:
        """Count the sum, and let out the recorded one."""
        super().share(name, value)
        return np.asarray(self._again("share", name, value).out)

    def take_turns(self, name: str, agents: NDArray[np.intp], value: Array) -> Array:
        """Count the turns, and let out the recorded ones."""
        super().take_turns(name, agents, value)
        return np.asarray(self._again("take_turns", name, value, who=agents).out)

    def turn_noise(
        self, name: str, agents: NDArray[np.intp]
    ) -> tuple[NDArray[np.intp], Array, Array]:
        """Count the turns, and give out the recorded noise."""
        super().turn_noise(name, agents)
        turns, noise, units = self._again("turn_noise", name, None, who=agents).out
        return turns, noise.copy(), units

    def perturb_rows(self, name: str, value: Array, owner: NDArray[np.intp]) -> Array:
        """Count the rows, and let out the recorded ones."""
        super().perturb_rows(name, value, owner)
        return np.asarray(self._again("perturb_rows", name, value).out)

    def randomize_labels(
        self, name: str, labels: NDArray[np.intp], owner: NDArray[np.intp]
    ) -> NDArray[np.intp]:
        """Count the labels, and let out the recorded ones."""
        super().randomize_labels(name, labels, owner)
        again = self._again("randomize_labels", name, labels.astype(np.float64))
        return np.asarray(again.out)

    def uniform(self, shape: tuple[int, ...]) -> Array:
        """Give out the recorded numbers."""
        super().uniform(shape)
        out = self._again("uniform", "", None).out
        if out.shape != shape:
            raise Diverged
        return np.asarray(out.copy())

    def hidden_term(self, name: str) -> Array:
        """Give out the recorded term."""
        super().hidden_term(name)
        return np.asarray(self._again("hidden_term", name, None).out)

    def path_noise(self, name: str, n_steps: int) -> Array:
        """Give out the recorded noise."""
        super().path_noise(name, n_steps)
        out = self._again("path_noise", name, None).out
        if len(out) != n_steps:
            raise Diverged
        return np.asarray(out.copy())

    def is_over(self) -> bool:
        """Whether everything that was recorded came."""
        return next(self._recorded, None) is None

    def _again(
        self,
        method: str,
        name: str,
        value: NDArray[Any] | None,
        who: NDArray[np.intp] | None = None,
        index: int = 0,
    ) -> Passage:
        known = next(self._recorded, None)
        if known is None or (known.method, known.name) != (method, name):
            raise Diverged
        if value is not None and (known.value is None or known.value.shape != value.shape):
            raise Diverged
        if who is not None and not np.array_equal(known.who, who):  # type: ignore[arg-type]
            raise Diverged
        return known


class TiltedGate(ReplayingGate):
    """A replay in which a hidden term is another one.

    Parameters
    ----------
    plan : Plan
    noise : NoiseSource
    recorded : RecordingGate
    tilt : ndarray
        The hidden term.
    """

    def __init__(
        self, plan: Plan, noise: NoiseSource, recorded: RecordingGate, tilt: Array
    ) -> None:
        super().__init__(plan, noise, recorded)
        self._tilt = tilt

    def hidden_term(self, name: str) -> Array:
        """Give out the other term."""
        super().hidden_term(name)
        return self._tilt.copy()


@dataclass
class _Watch:
    """Puts a gate in place of that of the next fit."""

    recorded: RecordingGate | None = None
    tilt: Array | None = None
    gates: list[RecordingGate] = field(default_factory=list)
    pending: PendingFit | None = None

    def begins(self, fit: PendingFit) -> None:
        """Keep the fit, which can then be run again without planning it."""
        self.pending = fit

    def gate(self, plan: Plan, noise: NoiseSource, n_arrived: int) -> Gate:
        """A gate that records, or one that replays."""
        made = RecordingGate(plan, noise, n_arrived)
        if self.recorded is not None:
            made = ReplayingGate(plan, noise, self.recorded)
            if self.tilt is not None:
                made = TiltedGate(plan, noise, self.recorded, self.tilt)
        self.gates.append(made)
        return made


@dataclass(eq=False)
class Replays:
    """What replays have shown so far.

    Attributes
    ----------
    replaces : bool
        Whether neighbours replace a unit, which is two steps where the plan's are zero-outs.
    plan : Plan or None
        That of all fits.
    """

    replaces: bool = True
    plan: Plan | None = None
    # For each release the largest move, in units of what is declared, with what is declared.
    moved: dict[str, tuple[float, float]] = field(default_factory=dict)
    unit_noise: dict[str, list[list[Passage]]] = field(default_factory=dict)
    differs: list[str] = field(default_factory=list)

    def add(self, estimator: Any, pair: Neighbors) -> None:
        """Fit one data set of a pair, and replay that fit on the other one.

        Parameters
        ----------
        estimator : estimator
            Of this library.
        pair : Neighbors
        """
        first = _Watch()
        with watched_by(first):
            estimator.fit(*pair.first, **pair.fit_params)
        if not first.gates:
            raise ValueError(
                f"Got {type(estimator).__name__} for a replay, expected an estimator of this"
                " library. Choose method='black-box'."
            )
        (recorded,) = first.gates
        model = _model(estimator)
        self.plan = recorded.plan if self.plan is None else self.plan
        second = _Watch(recorded=recorded)
        try:
            with watched_by(second):
                estimator.fit(*pair.second, **pair.fit_params)
        except (Diverged, PlanViolation):
            self.differs.append("what is done")
        (replayed,) = second.gates
        assert isinstance(replayed, ReplayingGate)
        if not (recorded.plan == replayed.plan == self.plan):
            self.differs.append("the plan")
        if not self.differs and not replayed.is_over():
            self.differs.append("what is done")
        kinds = {type(release) for release in recorded.plan.releases}
        seen = {passage.method for passage in recorded.passages}
        hides = seen & {"turn_noise", "path_noise", "hidden_term"}
        if not self.differs and not hides and not np.array_equal(model, _model(estimator)):
            self.differs.append("the model beside what was released")
        self._compare(recorded, replayed, has_hidden_term=HiddenTerm in kinds)
        if HiddenTerm in kinds and not self.differs:
            assert second.pending is not None
            self._compare_tilts(second.pending, recorded)
        for name in {passage.name for passage in recorded.passages if passage.name}:
            own = [passage for passage in recorded.passages if passage.name == name]
            self.unit_noise.setdefault(name, []).append(own)

    def _compare(
        self, recorded: RecordingGate, replayed: RecordingGate, *, has_hidden_term: bool
    ) -> None:
        """How far releases moved, with what was released before held fixed."""
        by_name = {release.name: release for release in recorded.plan.releases}
        facts = recorded.plan.facts
        prepared = {release.name for release in facts.preparations}
        n_steps = 2 if self.replaces and facts.neighboring is Neighboring.ZERO_OUT else 1
        for one, other in zip(recorded.passages, replayed.passages, strict=False):
            if one.value is None or other.value is None or one.name not in by_name:
                continue
            release = by_name[one.name]
            if has_hidden_term and one.name not in prepared:
                # Noise that nobody sees has moved the quantity: its theorem is about the law.
                continue
            for distance, of_step in _moves(release, one, other):
                declared = n_steps * of_step
                known = self.moved.get(one.name, (0.0, declared))
                if distance / declared > known[0] / known[1] or one.name not in self.moved:
                    self.moved[one.name] = (distance, declared)

    def _compare_tilts(self, other: PendingFit, recorded: RecordingGate) -> None:
        """How far a hidden term has to move so that the other data have the same minimiser.

        It is the difference of two gradients there, of which the theorem takes a bound.
        """
        term = next(r for r in recorded.plan.releases if isinstance(r, HiddenTerm))
        if term.times > 1 or not isinstance(term.guarantee, PerturbedObjectiveDP):
            return
        start = next(p.out for p in recorded.passages if p.name == term.name)
        minimiser = recorded.passages[-1].value
        assert minimiser is not None

        def missed(tilt: Array) -> Array:
            watch = _Watch(recorded=recorded, tilt=tilt.reshape(start.shape))
            with watched_by(watch):
                other.solve(recorded.noise)
            reached = watch.gates[0].passages[-1].value
            assert reached is not None
            return np.ravel(reached - minimiser)

        options: Any = {"maxfev": MOST_TILTS}
        tilt = np.asarray(root(missed, start.ravel(), method="hybr", options=options).x)
        if not np.abs(missed(tilt)).max() <= 1e-6 * max(float(np.abs(minimiser).max()), 1.0):
            # A penalty with kinks has one minimiser for many terms, and none of them stands out.
            return
        bound = 2 * term.guarantee.gradient_ratio * term.noise_std
        distance = float(np.linalg.norm(tilt - start.ravel()))
        known = self.moved.get(term.name, (0.0, bound))
        self.moved[term.name] = (max(distance, known[0]), bound)

    def lines(self, confidence: float) -> tuple[ReplayLine, ...]:
        """What was found of each release, with all tests of noise at a common level."""
        assert self.plan is not None
        releases = [r for r in self.plan.releases if r.name in self.unit_noise]
        level = (1.0 - confidence) / max(2 * len(releases), 1)
        return tuple(self._line(release, level) for release in releases)

    def _line(self, release: Any, level: float) -> ReplayLine:
        runs = self.unit_noise[release.name]
        moved = self.moved.get(release.name)
        wrong = []
        slack = SLACK if not isinstance(release, HiddenTerm) else 1 + TILT_SLACK
        if moved is not None and moved[0] > moved[1] * slack:
            wrong.append("moves too far")
        noise = None
        blocks = [[p for p in run if p.unit_noise is not None] for run in runs]
        if any(blocks):
            is_enough, noise = _amount(release, blocks, level)
            if not is_enough:
                wrong.append("too little noise")
            if not isinstance(release, RandomizedLabels) and not _is_fresh(release, blocks, level):
                wrong.append("noise is used twice")
        return ReplayLine(
            name=release.name,
            times=len(runs[0]) if not isinstance(release, NoisyPath) else _n_steps(runs[0]),
            moved=None if moved is None else moved[0],
            declared=None if moved is None else moved[1],
            noise=noise,
            found=", ".join(wrong) or "nothing wrong",
            is_violation=bool(wrong),
        )


def _model(estimator: Any) -> Array:
    return np.concatenate([np.ravel(estimator.coef_), np.ravel(estimator.intercept_)])


def _n_steps(run: list[Passage]) -> int:
    return sum(len(passage.out) for passage in run)


def _moves(release: Any, one: Passage, other: Passage) -> list[tuple[float, float]]:
    """Distances in the norm of the noise, beside what is declared for each."""
    assert one.value is not None
    assert other.value is not None
    difference = other.value - one.value
    declared = release.sensitivities
    if isinstance(release, RandomizedLabels):
        return [(float(np.sum(difference != 0)), max(declared))]
    is_laplace = getattr(release, "law", "gaussian") == "laplace"
    if isinstance(release, AgentTurns):
        # Of each turn there is one unit whose data changed.
        assert one.turns is not None
        each = _norms(difference.reshape(len(difference), -1), is_laplace)
        return [
            (float(_total(each[one.turns == turn], is_laplace)), declared[turn])
            for turn in np.unique(one.turns).tolist()
        ]
    if isinstance(release, PerturbedRows):
        each = _norms(difference.reshape(len(difference), -1), is_laplace)
        return [(float(_total(each, is_laplace)), max(declared))]
    distance = _norms(difference.reshape(1, -1), is_laplace)[0]
    return [(float(distance), declared[min(one.index, len(declared) - 1)])]


def _norms(vectors: Array, is_laplace: bool) -> Array:
    scale = np.maximum(np.abs(vectors).max(axis=1, initial=0.0), 1e-300)[:, None]
    return np.asarray(scale[:, 0] * np.linalg.norm(vectors / scale, 1 if is_laplace else 2, axis=1))


def _total(each: Array, is_laplace: bool) -> float:
    return float(each.sum() if is_laplace else math.sqrt(float(np.square(each).sum())))


def _amount(release: Any, runs: list[list[Passage]], level: float) -> tuple[bool, float]:
    """Whether there is as much noise as planned, and how much there was in units of that."""
    drawn = np.concatenate([np.ravel(p.unit_noise) for run in runs for p in run])  # type: ignore[arg-type]
    n = len(drawn)
    if isinstance(release, RandomizedLabels):
        chance = (release.n_labels - 1) * min(release.others)
        told = float(drawn.sum())
        return bool(binom.cdf(told, n, chance) >= level), told / (n * chance)
    if getattr(release, "law", "gaussian") == "laplace":
        # Absolute values of Laplace noise are exponential.
        sizes = float(np.abs(drawn).sum()) * math.sqrt(2.0)
        return bool(gamma.cdf(sizes, n) >= level), sizes / n
    energy = float(np.square(drawn).sum())
    return bool(chi2.cdf(energy, n) >= level), math.sqrt(energy / n)


def _is_fresh(release: Any, runs: list[list[Passage]], level: float) -> bool:
    """Whether noise differs between runs, repetitions, agents and entries."""
    is_laplace = getattr(release, "law", "gaussian") == "laplace"
    tables = [_table_of(run) for run in runs]
    # Who takes part is drawn, so that one run may have more rounds than another.
    shortest = min(len(table) for table in tables)
    tables = [table[:shortest] for table in tables]
    families = []
    if len(tables) > 1:
        families.append(np.stack([table.ravel() for table in tables]))
    table = np.stack(tables)
    for axis in range(1, table.ndim):
        vectors = np.moveaxis(table, axis, 0).reshape(table.shape[axis], -1)
        families.append(vectors)
    families = [v[:MOST_VECTORS] for v in families if len(v) > 1 and v.shape[1] >= SHORTEST]
    for vectors in families:
        size = vectors.shape[1]
        unit = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-300)
        cosines = np.abs(unit @ unit.T)[np.triu_indices(len(vectors), 1)]
        largest = min(float(cosines.max()), 1.0)
        # The law of a cosine of independent Gaussian vectors; of others, nothing but copies count.
        chance = float(betainc((size - 1) / 2, 0.5, 1 - largest**2)) * len(cosines)
        if largest > 1 - 1e-6 or (not is_laplace and chance * len(families) < level):
            return False
    return True


def _table_of(run: list[Passage]) -> Array:
    """Noise of one run: repetitions or turns first, then its shape."""
    if run[0].who is None:
        stacked = [np.asarray(passage.unit_noise) for passage in run]
        if run[0].method == "path_noise":
            return np.concatenate(stacked)
        return np.stack(stacked)
    own = defaultdict(list)
    for passage in run:
        assert passage.who is not None
        assert passage.unit_noise is not None
        for agent, drawn in zip(passage.who.tolist(), passage.unit_noise, strict=True):
            own[agent].append(drawn)
    return np.stack([np.stack(own[agent]) for agent in sorted(own)], axis=1)
