"""Replays: neighbouring data meet the same randomness and the same past, release by release."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc
from scipy.stats import chi2, gamma

from skdpadmm._fitting import gates_by
from skdpadmm._pipelines import last_step
from skdpadmm.audit._neighbors import Neighbors
from skdpadmm.audit._trials import parameters_of
from skdpadmm.noise import NoiseSource
from skdpadmm.privacy import Neighboring
from skdpadmm.protocol import Gate, Plan, PlanViolation

Array = NDArray[np.float64]
# Of a bound that holds in floating point up to the rounding of norms.
SLACK = 1 + 1e-9
COMPARED, NOT_REPLAYED = "nothing wrong", "not replayed"
# Release methods whose noise is added by algorithms: later quantities differ between data sets.
HIDING = ("hidden_term", "path_noise")
# Why a replay does not measure a sensitivity.
WHY = {
    "path_noise": "its loop adds noise to iterates that pass no gate",
    "hidden_term": "it is part of a problem, and its theorem is about the law of solutions",
}
HIDDEN = "it depends on hidden noise"
# Vectors of noise are compared where they are at least as long, and no more of them than that.
SHORTEST, MOST_VECTORS = 8, 64


@dataclass(frozen=True, kw_only=True)
class ReplayLine:
    """The result of a replay for one kind of release.

    Attributes
    ----------
    name : str
        Name of the release.
    times : int
        Number of repetitions in one fit.
    distance : float or None
        Largest distance between neighbouring data sets, given the earlier releases; None if not
        measured.
    sensitivity : float or None
        Sensitivity of the repetition whose distance is closest to it; None if not compared.
    noise : float or None
        Measured noise, in units of the planned scale; None if not measured.
    found : str
        Result in words; "not replayed" with the reason if `distance` is None.
    is_violation : bool
    """

    name: str
    times: int
    distance: float | None = None
    sensitivity: float | None = None
    noise: float | None = None
    found: str
    is_violation: bool


@dataclass(frozen=True, eq=False, kw_only=True)
class Passage:
    """One call of a method of the gate; see `Gate.deliver`."""

    method: str
    # Of the release; empty for random numbers that are not released.
    name: str
    # The exact quantity, where there is one.
    value: Array | None
    out: Array
    # In units of the planned noise.
    unit_noise: Array | None
    # The repetition, or the agents whose turns these are, and the numbers of the turns.
    index: int = 0
    who: NDArray[np.intp] | None = None
    turns: NDArray[np.intp] | None = None

    @property
    def kind(self) -> tuple[Any, ...]:
        """What the passages of a replay and of a recording have in common."""
        who = np.ravel(self.who).tolist()  # type: ignore[arg-type]
        return self.method, self.name, self.out.shape, np.shape(self.value), who  # type: ignore[arg-type]


class RecordingGate(Gate):
    """A gate that adds noise as planned, and keeps exact and released quantities."""

    def __init__(self, plan: Plan, noise: NoiseSource, n_arrived: int = 0) -> None:
        super().__init__(plan, noise, n_arrived)
        self.passages: list[Passage] = []

    @property
    def plan(self) -> Plan:
        """The plan as far as it is known."""
        return self._plan

    def deliver(
        self,
        method: str,
        release: Any,
        repetition: Any,
        value: NDArray[Any] | None,
        out: NDArray[Any],
        unit: Any = 0.0,
        agents: NDArray[np.intp] | None = None,
    ) -> NDArray[Any]:
        """Keep a quantity, with its noise."""
        self.passages.append(
            Passage(
                method=method,
                name="" if release is None else release.name,
                value=None if value is None else value.astype(np.float64),
                out=out.copy(),
                unit_noise=self._unit_noise(method, release, value, out, unit),
                index=repetition if agents is None else 0,
                who=None if agents is None else agents.copy(),
                turns=None if agents is None else repetition,
            )
        )
        return out

    def _unit_noise(self, method: str, release: Any, value: Any, out: Any, unit: Any) -> Any:
        """Noise in units of the planned scale."""
        if release is None or release.noise_std == 0 or np.min(unit, initial=np.inf) == 0:
            return None
        if method == "share":
            return (out - value.sum(axis=0)) / unit
        # Laplace noise of scale one has the standard deviation sqrt(2).
        scale = math.sqrt(2.0) if release.law == "laplace" else 1.0
        return (out - (0.0 if value is None else value)) / (scale * unit)


class Diverged(Exception):
    """A replay took other steps than the recording: the steps depend on data."""


class ReplayingGate(RecordingGate):
    """A gate that releases what another one released, and keeps the exact quantities."""

    def __init__(self, plan: Plan, noise: NoiseSource, recorded: RecordingGate) -> None:
        super().__init__(plan, noise)
        self._recorded = iter(recorded.passages)

    def deliver(self, *passing: Any) -> NDArray[Any]:
        """Keep a quantity, and release what was recorded."""
        super().deliver(*passing)
        known = next(self._recorded, None)
        if known is None or known.kind != self.passages[-1].kind:
            raise Diverged
        return known.out.copy()

    def is_over(self) -> bool:
        """Whether everything that was recorded has passed."""
        return next(self._recorded, None) is None


@dataclass
class Gates:
    """The gates that replace those of fits, in order."""

    # By the number of the fit, and what `Gate` takes.
    make_gate: Callable[..., Any] = lambda i, *facts: RecordingGate(*facts)
    gates: list[Any] = field(default_factory=list)

    def __call__(self, fit: Any, plan: Plan, noise: NoiseSource, n_arrived: int) -> Gate:
        """The gate of the next fit."""
        self.gates.append(self.make_gate(len(self.gates), plan, noise, n_arrived))
        return self.gates[-1]


@dataclass(eq=False)
class Replays:
    """The results of replays so far."""

    # That of all fits.
    plan: Plan | None = None
    # For each release the largest distance, relative to the sensitivity, with the sensitivity.
    distances: dict[str, tuple[float, float]] = field(default_factory=dict)
    # For each release what passed in each of the fits.
    passed: dict[str, list[list[Passage]]] = field(default_factory=dict)
    # What depends on data beside releases.
    differs: list[str] = field(default_factory=list)

    def add(self, estimator: Any, pair: Neighbors) -> None:
        """Fit one data set of a pair with an estimator, and replay that fit on the other one."""
        first, last = Gates(), last_step(estimator)
        with gates_by(first):
            estimator.fit(*pair.first, **pair.fit_params)
        if len(first.gates) != 1 or not hasattr(last, "coef_"):
            raise ValueError(
                f"Got {type(last).__name__} for a replay, expected one linear model of one fit of"
                " an estimator of this library. Pass its last step, or best_estimator_, or choose"
                " method='black-box'."
            )
        (recorded,), model = first.gates, parameters_of(estimator)
        self.plan = self.plan or recorded.plan
        second = Gates(lambda i, plan, noise, _: ReplayingGate(plan, noise, recorded))
        try:
            with gates_by(second):
                estimator.fit(*pair.second, **pair.fit_params)
        except (Diverged, PlanViolation):
            self.differs.append("what is done")
        (replayed,) = second.gates
        # Pairs share a plan, unless it is that of a noisy count.
        same = recorded.plan if recorded.plan.facts.count else self.plan
        if not (recorded.plan == replayed.plan == same):
            self.differs.append("the plan")
        if not self.differs and not replayed.is_over():
            self.differs.append("what is done")
        hides = any(release.door in HIDING for release in recorded.plan.releases)
        is_same = hides or np.array_equal(model, parameters_of(estimator))
        if not self.differs and not is_same:
            self.differs.append("the model beside what was released")
        self._compare(recorded, replayed)
        for name in {passage.name for passage in recorded.passages if passage.name}:
            own = [passage for passage in recorded.passages if passage.name == name]
            self.passed.setdefault(name, []).append(own)

    def _compare(self, recorded: RecordingGate, replayed: RecordingGate) -> None:
        """Compare releases between data sets, given the same earlier releases."""
        releases = {release.name: release for release in recorded.plan.releases}
        # Neighbours replace a unit.
        n_steps = 1 if recorded.plan.facts.neighboring is Neighboring.REPLACE_ONE else 2
        for one, other in zip(recorded.passages, replayed.passages, strict=False):
            if one.method in HIDING or one.kind != other.kind:
                break
            if one.value is None or other.value is None:
                continue
            for distance, of_step in _distances(releases[one.name], one, other.value - one.value):
                declared = n_steps * of_step
                known = self.distances.get(one.name, (-1.0, 1.0))
                if distance / declared > known[0] / known[1]:
                    self.distances[one.name] = (distance, declared)

    def lines(self, confidence: float) -> tuple[ReplayLine, ...]:
        """The result for each release, with all tests of noise at a common level."""
        assert self.plan is not None
        releases = [r for r in self.plan.releases if r.name in self.passed]
        level = (1.0 - confidence) / max(2 * len(releases), 1)
        beside = [
            ReplayLine(name=what, times=1, found="depends on data", is_violation=True)
            for what in dict.fromkeys(self.differs)
        ]
        return (*(self._line(release, level) for release in releases), *beside)

    def _line(self, release: Any, level: float) -> ReplayLine:
        runs, noise, wrong = self.passed[release.name], None, []
        distance, declared = self.distances.get(release.name, (None, None))
        if distance is not None and declared is not None and distance > declared * SLACK:
            wrong.append("differs by more than its sensitivity")
        blocks = [[p for p in run if p.unit_noise is not None] for run in runs]
        if any(blocks):
            is_enough, noise = _amount(release, blocks, level)
            if not is_enough:
                wrong.append("too little noise")
            if not _is_fresh(release, blocks, level):
                wrong.append("noise is used twice")
        found, is_path = COMPARED, release.door == "path_noise"
        if distance is None:
            why = "the fits went different ways" if self.differs else WHY.get(release.door, HIDDEN)
            found = f"{NOT_REPLAYED}: {why}"
        return ReplayLine(
            name=release.name, times=sum(len(p.out) if is_path else 1 for p in runs[0]),
            distance=distance, sensitivity=declared, noise=noise, found=", ".join(wrong) or found,
            is_violation=bool(wrong),
        )  # fmt: skip


def _distances(release: Any, passage: Passage, difference: Array) -> list[tuple[float, float]]:
    """Distances in the norm of the noise, each with its sensitivity."""
    declared, order = release.sensitivities, 1 if release.law == "laplace" else 2
    turns = passage.turns
    if turns is None:
        turns = np.array([min(passage.index, len(declared) - 1)])
    each = _norms(difference.reshape(len(turns), -1), order)
    # Of each turn there is one unit whose data changed.
    return [
        (float(_norms(each[None, turns == turn], order)[0]), declared[turn])
        for turn in np.unique(turns).tolist()
    ]


def _norms(vectors: Array, order: int) -> Array:
    scale = np.maximum(np.abs(vectors).max(axis=1, initial=0.0), 1e-300)[:, None]
    return np.asarray(scale[:, 0] * np.linalg.norm(vectors / scale, order, axis=1))


def _amount(release: Any, runs: list[list[Passage]], level: float) -> tuple[bool, float]:
    """Whether there is as much noise as planned, and its ratio to the planned scale."""
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
    tables = [_table_of(run) for run in runs]
    # Who takes part is drawn, so that one run may have more rounds than another.
    shortest = min(len(table) for table in tables)
    table = np.stack([table[:shortest] for table in tables])
    families = [
        np.moveaxis(table, axis, 0).reshape(table.shape[axis], -1)[:MOST_VECTORS]
        for axis in range(table.ndim)
    ]
    families = [v for v in families if len(v) > 1 and v.shape[1] >= SHORTEST]
    for vectors in families:
        size = vectors.shape[1]
        unit = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-300)
        cosines = np.abs(unit @ unit.T)[np.triu_indices(len(vectors), 1)]
        largest = min(float(cosines.max()), 1.0)
        # The law of a cosine of independent Gaussian vectors; of others, nothing but copies count.
        chance = float(betainc((size - 1) / 2, 0.5, 1 - largest**2)) * len(cosines)
        is_chance = release.law == "laplace" or chance * len(families) >= level
        if largest > 1 - 1e-6 or not is_chance:
            return False
    return True


def _table_of(run: list[Passage]) -> Array:
    """Noise of one run: repetitions, steps or turns first, then its shape."""
    drawn = [np.asarray(passage.unit_noise) for passage in run]
    if run[0].who is None:
        return np.concatenate(drawn) if run[0].method == "path_noise" else np.stack(drawn)
    of_agent = defaultdict(list)
    for passage, noise in zip(run, drawn, strict=True):
        for agent, vector in zip(passage.who.tolist(), noise, strict=True):  # type: ignore[union-attr]
            of_agent[agent].append(vector)
    return np.stack([np.stack(of_agent[agent]) for agent in sorted(of_agent)], axis=1)
