"""Replays: neighbouring data meet the same randomness and the same past, release by release."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc
from scipy.stats import chi2, gamma

from skdpadmm._candidates import last_step
from skdpadmm._fitting import PendingFit, watched_by
from skdpadmm.audit._loops import in_sight, is_known, tilts_between
from skdpadmm.audit._neighbors import Neighbors
from skdpadmm.audit._report import NOT_REPLAYED, ReplayLine
from skdpadmm.audit._trials import parameters_of
from skdpadmm.noise import NoiseSource, grid_cell, round_to_grid
from skdpadmm.penalties import ElasticNet, NoPenalty, SquaredL2
from skdpadmm.privacy import Neighboring
from skdpadmm.protocol import Gate, Plan, PlanViolation

Array = NDArray[np.float64]
# Of a bound that holds in floating point up to the rounding of norms.
SLACK = 1 + 1e-9
# Terms that lead to the same minimisers are found up to so much, and equal models of two loops.
TILT_SLACK, LOOP_SLACK = 1e-4, 1e-5
# Of these a term is added to gradients in units of the bound of one record's.
TILTED = ("ObjectivePerturbation",)
COMPARED, ON_DATA = "nothing wrong", "depends on data"
TURNS = ("turn_noise", "take_turns")
# Why a replay does not see how far something moves.
WHY = {
    "path_noise": "the loop is not known",
    "turn_noise": "the loop is compiled",
    "hidden_term": "no term was found that has the same minimiser",
    "release": "hidden noise has moved it too, and it covers what a solver leaves",
}
KINKS = "a penalty with kinks has one minimiser for many terms"
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
    told : dict of str to list of str
        Of each release, what was found to be wrong with it while it was made.
    """

    def __init__(self, plan: Plan, noise: NoiseSource, n_arrived: int = 0) -> None:
        super().__init__(plan, noise, n_arrived)
        self.plan, self.noise = plan, noise
        self.passages: list[Passage] = []
        self.told: dict[str, list[str]] = {}

    def let_out(
        self,
        method: str,
        release: Any,
        repetition: Any,
        value: NDArray[Any] | None,
        out: NDArray[Any],
        unit: Any = 0.0,
        agents: NDArray[np.intp] | None = None,
    ) -> NDArray[Any]:
        """Keep what passes, with its noise."""
        self.passages.append(
            Passage(
                method=method,
                name="" if release is None else release.name,
                value=None if value is None else value.astype(np.float64),
                out=out.copy(),
                unit_noise=self._unit_noise(method, release, value, out, unit),
                index=0 if agents is not None else repetition,
                who=None if agents is None else agents.copy(),
                turns=None if agents is None else repetition,
            )
        )
        return out

    def _unit_noise(
        self, method: str, release: Any, value: NDArray[Any] | None, out: NDArray[Any], unit: Any
    ) -> Array | None:
        """Noise in units of what was planned."""
        if release is None or release.noise_std == 0 or np.min(unit, initial=np.inf) == 0:
            return None
        # Laplace noise of scale one has the standard deviation sqrt(2).
        scale = math.sqrt(2.0) if release.law == "laplace" else 1.0
        if method == "turn_noise":
            return np.asarray(out / scale)
        if method == "share":
            assert value is not None
            assert self.plan.facts.agents is not None
            shares = np.asarray(release.agent_noise_std)[self.plan.facts.agents.kind]
            return np.asarray((out - value.sum(axis=0)) / math.hypot(*shares))
        return np.asarray((out - (0.0 if value is None else value)) / (scale * unit))

    def step(self, name: str, state: Any, reached: Any, along: Callable[[Any], Array]) -> Any:
        """Keep the iterate that a step has reached; the next step begins with it."""
        self.passages.append(
            Passage(method="step", name=name, value=np.zeros(reached.x.shape), out=reached)
        )
        return reached

    def tell(self, name: str, what: str) -> None:
        """Keep what is wrong with a release, once."""
        if what not in self.told.setdefault(name, []):
            self.told[name].append(what)


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

    def let_out(
        self,
        method: str,
        release: Any,
        repetition: Any,
        value: NDArray[Any] | None,
        out: NDArray[Any],
        unit: Any = 0.0,
        agents: NDArray[np.intp] | None = None,
    ) -> NDArray[Any]:
        """Keep what passes, and let out what was recorded."""
        super().let_out(method, release, repetition, value, out, unit, agents)
        known = self._again(method, "" if release is None else release.name, value, agents)
        if known.out.shape != out.shape:
            raise Diverged
        return np.array(known.out)

    def step(self, name: str, state: Any, reached: Any, along: Callable[[Any], Array]) -> Any:
        """Compare an iterate with the recorded one, and go on from that."""
        known = self._again("step", name, None).out
        if not np.array_equal(known.multipliers, reached.multipliers):
            raise Diverged
        moved = along(reached.x - known.x)
        self.passages.append(Passage(method="step", name=name, value=moved, out=known))
        return known

    def is_over(self) -> bool:
        """Whether everything that was recorded came."""
        return next(self._recorded, None) is None

    def _again(
        self,
        method: str,
        name: str,
        value: NDArray[Any] | None,
        who: NDArray[np.intp] | None = None,
    ) -> Passage:
        known = next(self._recorded, None)
        if known is None or (known.method, known.name) != (method, name):
            raise Diverged
        if value is not None and (known.value is None or known.value.shape != value.shape):
            raise Diverged
        if who is not None and not np.array_equal(known.who, who):  # type: ignore[arg-type]
            raise Diverged
        return known


class RetakingGate(ReplayingGate):
    """Adds the recorded noise of a compiled loop to turns that pass one by one.

    Parameters
    ----------
    plan : Plan
    noise : NoiseSource
    recorded : RecordingGate
        Of the compiled loop.

    Attributes
    ----------
    retold : list of Passage
        The recorded ones, with turns in place of noise.
    """

    def __init__(self, plan: Plan, noise: NoiseSource, recorded: RecordingGate) -> None:
        super().__init__(plan, noise, recorded)
        self._recorded = iter([p for p in recorded.passages if p.method not in TURNS])
        self._of_turn = {
            (passage.name, agent, turn): (passage.method, given)
            for passage in recorded.passages
            if passage.method in TURNS
            for agent, turn, given in _turns(passage)
        }
        self.retold: list[Passage] = []

    def let_out(
        self,
        method: str,
        release: Any,
        repetition: Any,
        value: NDArray[Any] | None,
        out: NDArray[Any],
        unit: Any = 0.0,
        agents: NDArray[np.intp] | None = None,
    ) -> NDArray[Any]:
        """Let turns through with the noise that they had in the loop."""
        if method != "take_turns":
            return super().let_out(method, release, repetition, value, out, unit, agents)
        RecordingGate.let_out(self, method, release, repetition, value, out, unit, agents)
        fresh = self.passages.pop()
        assert value is not None
        assert agents is not None
        if release.noise_std > 0:
            on_grid, retaken = round_to_grid(value / unit, 1.0), np.empty(value.shape)
            of_each = zip(agents.tolist(), repetition.tolist(), strict=True)
            for i, (agent, turn) in enumerate(of_each):
                had, given = self._of_turn[release.name, agent, turn]
                noisy = unit[i] * (on_grid[i] + given)
                retaken[i] = noisy if had == "turn_noise" else given
            out = retaken
        self.passages.append(replace(fresh, out=out.copy(), unit_noise=None))
        self.retold.append(self.passages[-1])
        return out

    def _again(self, *which: Any, **more: Any) -> Passage:
        known = super()._again(*which, **more)
        self.retold.append(known)
        return known


class CompensatingGate(ReplayingGate):
    """Gives a compiled loop noise that makes up for how far its turns have moved.

    If the loop says what was seen turn by turn, it reaches the model of the first data.

    Parameters
    ----------
    plan : Plan
    noise : NoiseSource
    recorded : RecordingGate
        Of the compiled loop.
    said : list of list of Passage
        What turns said with both data sets.
    """

    def __init__(
        self, plan: Plan, noise: NoiseSource, recorded: RecordingGate, said: list[list[Passage]]
    ) -> None:
        super().__init__(plan, noise, recorded)
        self._said = [
            {
                (passage.name, agent, turn): value
                for passage in passages
                if passage.method == "take_turns"
                for agent, turn, value in _turns(passage, is_exact=True)
            }
            for passages in said
        ]

    def let_out(
        self,
        method: str,
        release: Any,
        repetition: Any,
        value: NDArray[Any] | None,
        out: NDArray[Any],
        unit: Any = 0.0,
        agents: NDArray[np.intp] | None = None,
    ) -> NDArray[Any]:
        """Let out what was recorded, and noise of turns with what makes up for moves."""
        out = super().let_out(method, release, repetition, value, out, unit, agents)
        if method == "turn_noise":
            assert agents is not None
            for i, who in enumerate(zip(agents.tolist(), repetition.tolist(), strict=True)):
                first, second = (said[release.name, *who] / unit[i] for said in self._said)
                out[i] += round_to_grid(first, 1.0) - round_to_grid(second, 1.0)
        return out


class TiltedGate(ReplayingGate):
    """A replay in which a hidden term is another one.

    Parameters
    ----------
    plan : Plan
    noise : NoiseSource
    recorded : RecordingGate
    tilts : ndarray of shape (n_rounds, ...)
        The hidden terms.
    """

    def __init__(
        self, plan: Plan, noise: NoiseSource, recorded: RecordingGate, tilts: Array
    ) -> None:
        super().__init__(plan, noise, recorded)
        self._tilts = iter(tilts)

    def let_out(
        self,
        method: str,
        release: Any,
        repetition: Any,
        value: NDArray[Any] | None,
        out: NDArray[Any],
        unit: Any = 0.0,
        agents: NDArray[np.intp] | None = None,
    ) -> NDArray[Any]:
        """Let out what was recorded, and the other terms in place of hidden ones."""
        out = super().let_out(method, release, repetition, value, out, unit, agents)
        return next(self._tilts).copy() if method == "hidden_term" else out


@dataclass
class _Watch:
    """Puts a gate in place of that of the next fit, and its algorithm in sight."""

    made: Callable[[Plan, NoiseSource, int], RecordingGate] = RecordingGate
    by_numpy: bool = False
    gates: list[RecordingGate] = field(default_factory=list)
    pending: PendingFit | None = None

    def begins(self, fit: PendingFit) -> None:
        """Keep the fit, which can then be run again without planning it."""
        self.pending = fit

    def gate(self, plan: Plan, noise: NoiseSource, n_arrived: int) -> Gate:
        """A gate that records, or one that replays."""
        self.gates.append(self.made(plan, noise, n_arrived))
        return self.gates[-1]

    def algorithm(self, algorithm: Any) -> Any:
        """The same with its loops in sight."""
        return in_sight(algorithm, lambda: self.gates[-1], by_numpy=self.by_numpy)


@dataclass(eq=False)
class Replays:
    """What replays have shown so far.

    Attributes
    ----------
    plan : Plan or None
        That of all fits.
    """

    plan: Plan | None = None
    # For each release the largest move, in units of what is declared, with what is declared.
    moved: dict[str, tuple[float, float]] = field(default_factory=dict)
    unit_noise: dict[str, list[list[Passage]]] = field(default_factory=dict)
    # What else was found to be wrong with a release.
    told: dict[str, list[str]] = field(default_factory=dict)
    # What is other than it should be beside releases, and how.
    differs: dict[str, str] = field(default_factory=dict)

    def add(self, estimator: Any, pair: Neighbors) -> None:
        """Fit one data set of a pair, and replay that fit on the other one.

        Parameters
        ----------
        estimator : estimator
            Of this library.
        pair : Neighbors
        """
        first = self._watched(_Watch(), estimator, pair, pair.first)
        if not first.gates:
            raise ValueError(
                f"Got {type(estimator).__name__} for a replay, expected an estimator of this"
                " library. Choose method='black-box'."
            )
        last = last_step(estimator)
        if len(first.gates) != 1 or not hasattr(last, "coef_"):
            raise ValueError(
                f"Got {type(last).__name__} for a replay, expected one linear model of one fit."
                " Pass its last step, or best_estimator_."
            )
        (recorded,) = first.gates
        model = parameters_of(estimator)
        self.plan = recorded.plan if self.plan is None else self.plan
        story, of_loop = recorded, None
        is_compiled = any(passage.method == "turn_noise" for passage in recorded.passages)
        if is_compiled and first.pending is not None and is_known(first.pending.planned.algorithm):
            story, of_loop = self._retold(estimator, pair, recorded, model), model
            model = parameters_of(estimator)
        second = self._watched(
            _Watch(
                made=lambda plan, noise, _: ReplayingGate(plan, noise, story),
                by_numpy=of_loop is not None,
            ),
            estimator,
            pair,
            pair.second,
        )
        (replayed,) = second.gates
        assert isinstance(replayed, ReplayingGate)
        for gate in (recorded, replayed):
            for name, found in gate.told.items():
                known = self.told.setdefault(name, [])
                known += [what for what in found if what not in known]
        if not (recorded.plan == replayed.plan == self.plan):
            self.differs["the plan"] = ON_DATA
        if not self.differs and not replayed.is_over():
            self.differs["what is done"] = ON_DATA
        is_same = np.array_equal(model, parameters_of(estimator))
        if not self.differs and not is_same and not _hides(story):
            self.differs["the model beside what was released"] = ON_DATA
        has_term = any(release.door == "hidden_term" for release in recorded.plan.releases)
        self._compare(story, replayed, has_hidden_term=has_term)
        if of_loop is not None and not self.differs:
            said = [story.passages, replayed.passages]
            self._watched(
                _Watch(made=lambda plan, noise, _: CompensatingGate(plan, noise, recorded, said)),
                estimator,
                pair,
                pair.second,
            )
            self._compare_loops(of_loop, parameters_of(estimator))
        if has_term and not self.differs:
            assert second.pending is not None
            self._compare_tilts(second.pending, recorded)
        for name in {passage.name for passage in recorded.passages if passage.name}:
            own = [passage for passage in recorded.passages if passage.name == name]
            self.unit_noise.setdefault(name, []).append(own)

    def _watched(self, watch: _Watch, estimator: Any, pair: Neighbors, data: Any) -> _Watch:
        """Fit under a watch; what goes another way than planned depends on data."""
        try:
            with watched_by(watch):
                estimator.fit(*data, **pair.fit_params)
        except (Diverged, PlanViolation):
            if watch.made is RecordingGate:
                raise
            self.differs["what is done"] = ON_DATA
        return watch

    def _retold(
        self, estimator: Any, pair: Neighbors, recorded: RecordingGate, model: Array
    ) -> RecordingGate:
        """Take the turns of a compiled loop one by one, with the noise that it had."""
        watch = self._watched(
            _Watch(made=lambda plan, noise, _: RetakingGate(plan, noise, recorded), by_numpy=True),
            estimator,
            pair,
            pair.first,
        )
        (retaken,) = watch.gates
        assert isinstance(retaken, RetakingGate)
        retaken.passages = retaken.retold
        self._compare_loops(model, parameters_of(estimator))
        return retaken

    def _compare_loops(self, model: Array, other: Array) -> None:
        if not np.abs(model - other).max() <= LOOP_SLACK * max(np.abs(model).max(), 1e-300):
            self.differs["compiled turns"] = "other than turns one by one"

    def _compare(
        self, recorded: RecordingGate, replayed: RecordingGate, *, has_hidden_term: bool
    ) -> None:
        """How far releases moved, with what was released before held fixed."""
        by_name = {release.name: release for release in recorded.plan.releases}
        facts = recorded.plan.facts
        prepared = {release.name for release in facts.preparations}
        # Neighbours replace a unit.
        n_steps = 2 if facts.neighboring is Neighboring.ZERO_OUT else 1
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
        """How far hidden terms have to move so that the other data have the same minimisers.

        That is the difference of two gradients there, of which the theorem takes a bound.
        """
        plan = recorded.plan
        if plan.algorithm not in TILTED:
            return
        (term,) = (r for r in plan.releases if r.door == "hidden_term")
        start = np.stack([p.out for p in recorded.passages if p.method == "hidden_term"])
        goal = _minimisers(recorded)
        # Agents have minimisers of their own, in every round.
        shape = (len(start), *start.shape[1:-2])
        n_problems = math.prod(shape)

        def missed(tilts: Array) -> Array:
            watch = _Watch(
                made=lambda plan, noise, _: TiltedGate(
                    plan, noise, recorded, tilts.reshape(start.shape)
                )
            )
            with watched_by(watch):
                other.solve(recorded.noise)
            return (_minimisers(watch.gates[0]) - goal).reshape(tilts.shape)

        size = max(float(np.abs(goal).max()), 1.0)
        try:
            tilts = tilts_between(missed, start.reshape(n_problems, *start.shape[-2:]), size)
        except (Diverged, PlanViolation):
            tilts = None
        if tilts is None:
            return
        # Neighbours replace a unit, whatever the plan's relation.
        bound = 2 * plan.facts.working_rounding
        distances = _norms((tilts.reshape(start.shape) - start).reshape(n_problems, -1), False)
        distance = float(distances.max())
        if distance > bound * (1 + TILT_SLACK) and _has_kinks(plan):
            # Nearer terms may have the same minimiser, so that this one says nothing.
            return
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
        wrong = [*self.told.get(release.name, [])]
        slack = SLACK if release.door != "hidden_term" else 1 + TILT_SLACK
        if moved is not None and moved[0] > moved[1] * slack:
            wrong.append("moves too far")
        noise = None
        blocks = [[p for p in run if p.unit_noise is not None] for run in runs]
        if any(blocks):
            is_enough, noise = _amount(release, blocks, level)
            if not is_enough:
                wrong.append("too little noise")
            if not _is_fresh(release, blocks, level):
                wrong.append("noise is used twice")
        unseen = "" if moved is not None else f"{NOT_REPLAYED}: {self._why(release, runs[0])}"
        return ReplayLine(
            name=release.name,
            times=len(runs[0]) if release.door != "path_noise" else _n_steps(runs[0]),
            moved=None if moved is None else moved[0],
            declared=None if moved is None else moved[1],
            noise=noise,
            found=", ".join(wrong) or unseen or COMPARED,
            is_violation=bool(wrong),
        )

    def _why(self, release: Any, run: list[Passage]) -> str:
        """Why it was not seen how far something moves."""
        assert self.plan is not None
        if self.differs:
            return "the fits went different ways"
        method = run[0].method
        if method == "hidden_term" and self.plan.algorithm not in TILTED:
            return "its theorem is not known"
        if method == "hidden_term" and _has_kinks(self.plan):
            return KINKS
        return WHY.get(method, WHY["release"])


def _hides(gate: RecordingGate) -> bool:
    """Whether a model is made of more than what is held fixed."""
    methods = {passage.method for passage in gate.passages}
    unseen_path = "path_noise" in methods and "step" not in methods
    return unseen_path or bool(methods & {"hidden_term", "turn_noise"})


def _n_steps(run: list[Passage]) -> int:
    return sum(len(passage.out) for passage in run if passage.method == "path_noise")


def _turns(passage: Passage, *, is_exact: bool = False) -> Iterator[tuple[int, int, Array]]:
    """Agent, which of its turns, and what it was given or, exactly, what it had to say."""
    assert passage.who is not None
    assert passage.turns is not None
    given = passage.value if is_exact else passage.out
    assert given is not None
    yield from zip(passage.who.tolist(), passage.turns.tolist(), given, strict=True)


def _minimisers(gate: RecordingGate) -> Array:
    """What came in right after each hidden term: its minimiser."""
    after = []
    for term, following in pairwise(gate.passages):
        if term.method == "hidden_term":
            assert following.value is not None
            after.append(following.value)
    return np.stack(after)


def _has_kinks(plan: Plan) -> bool:
    """Whether a penalty has kinks; the safe answer where that is not known."""
    penalty = plan.facts.penalty
    if isinstance(penalty, NoPenalty | SquaredL2):
        return False
    return not (isinstance(penalty, ElasticNet) and not penalty.is_sparse)


def _moves(release: Any, one: Passage, other: Passage) -> list[tuple[float, float]]:
    """Distances in the norm of the noise, beside what is declared for each."""
    assert one.value is not None
    assert other.value is not None
    difference = other.value - one.value
    declared = release.sensitivities
    is_laplace = release.law == "laplace"
    if release.door == "take_turns":
        # Of each turn there is one unit whose data changed.
        assert one.turns is not None
        each = _norms(difference.reshape(len(difference), -1), is_laplace)
        return [
            (float(_total(each[one.turns == turn], is_laplace)), declared[turn])
            for turn in np.unique(one.turns).tolist()
        ]
    distance = _norms(difference.reshape(1, -1), is_laplace)[0]
    if release.door == "path_noise":
        # Rounding to the grid, which the theorem counts by itself, can move two iterates apart.
        cells = grid_cell(release.noise_std) * math.sqrt(math.prod(release.shape))
        return [(float(distance), max(declared) + cells)]
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
    if release.law == "laplace":
        # Absolute values of Laplace noise are exponential.
        sizes = float(np.abs(drawn).sum()) * math.sqrt(2.0)
        return bool(gamma.cdf(sizes, n) >= level), sizes / n
    energy = float(np.square(drawn).sum())
    return bool(chi2.cdf(energy, n) >= level), math.sqrt(energy / n)


def _is_fresh(release: Any, runs: list[list[Passage]], level: float) -> bool:
    """Whether noise differs between runs, repetitions, agents and entries."""
    is_laplace = release.law == "laplace"
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
