"""Recorded and replayed fits, gates with known noise, and the change of each release."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from unittest import mock

import numpy as np
import pytest
from scipy.stats import norm

from skdpadmm import _fitting
from skdpadmm.algorithms._gradient_admm_steps import NoisySteps
from skdpadmm.audit._replay import Diverged, Gates, Passage, RecordingGate, ReplayingGate
from skdpadmm.protocol import Gate, Plan

STEPWISE = ("path_noise", "take_turns")
# What bounds may be exceeded by: rounding of norms.
SLACK = 1 + 1e-9


@contextlib.contextmanager
def gates_by(make_gate: Callable[..., Gate]) -> Iterator[None]:
    """Other gates for fits, and for statistics beside them, which are no fit."""
    of_statistics = mock.patch(
        "skdpadmm.protocol.Gate", lambda plan, noise: make_gate(None, plan, noise, 0)
    )
    with _fitting.gates_by(make_gate), of_statistics:
        yield


@dataclass
class Recording(Gates):
    """Recorded fits with their gates: one, or one for each piece of a stream."""

    model: Any = None

    @property
    def plan(self) -> Plan:
        """The plan, the same for all pieces."""
        return self.gates[0].plan

    @property
    def passages(self) -> list[Passage]:
        """All deliveries of the gates, in order."""
        return [passage for gate in self.gates for passage in gate.passages]

    @property
    def trace(self) -> list[tuple[str, tuple[int, ...]]]:
        """Names and shapes of the deliveries."""
        return [entry for gate in self.gates for entry in gate.trace]

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Record fits, and the iterates to which steps of gradient ADMM add their noise."""
        rounded = NoisySteps._rounded

        def through_the_gate(steps: NoisySteps, value: Any) -> Any:
            gate = self.gates[-1]
            path = gate.plan.releases[-1]
            return gate.deliver("step", path, 0, value, rounded(steps, value))

        with gates_by(self), mock.patch.object(NoisySteps, "_rounded", through_the_gate):
            yield


def record(
    row: Any, X: Any, y: Any, model: Any = None, fit: Any = None, **changed: Any
) -> Recording:
    """Fit a row and record it; or another model, in another way."""
    recording = Recording(model=row.make(**changed) if model is None else model)
    with recording.watching():
        (fit or row.fit)(recording.model, X, y)
    return recording


def replay(
    row: Any, recorded: Recording, X: Any, y: Any, model: Any = None, **changed: Any
) -> Recording:
    """Fit other data with the randomness and the past releases of another fit.

    Raises `Diverged` if the fits do not make the same releases.
    """
    replayed = Recording(
        make_gate=lambda i, plan, noise, _: ReplayingGate(plan, noise, recorded.gates[i]),
        model=row.make(**changed) if model is None else model,
    )
    with replayed.watching():
        row.fit(replayed.model, X, y)
    if len(replayed.gates) != len(recorded.gates) or not all(g.is_over() for g in replayed.gates):
        raise Diverged
    return replayed


# A decorator of properties: noise follows from the seed alone, and not from the plan.
same_draws = mock.patch.object(Plan, "digest", new=mock.Mock(return_value=b"plan"))


def hidden_names(plan: Plan) -> set[str]:
    """Hidden terms, and the releases after them, which depend on their noise."""
    methods = [release.door for release in plan.releases]
    first = methods.index("hidden_term") if "hidden_term" in methods else len(methods)
    return {release.name for release in plan.releases[first:]}


class SilentGate(RecordingGate):
    """Delivers exact quantities, without noise."""

    def deliver(self, method: str, release: Any, repetition: Any, value: Any, out: Any, *more: Any):
        """The exact quantity; zero where only noise is delivered."""
        super().deliver(method, release, repetition, value, out, *more)
        if method == "uniform":
            return out
        if method == "share":
            return value.sum(axis=0)
        return np.zeros_like(out) if value is None else np.array(value)


class KnownNoise(SilentGate):
    """Adds known noise in place of that of the plan, in planned standard deviations.

    `known` maps the number of a passage to what is added there; elsewhere there is none.
    """

    known: dict[int, Any] = {}  # noqa: RUF012

    def deliver(self, method: str, release: Any, repetition: Any, value: Any, out: Any, *more: Any):
        """The exact quantity and known noise."""
        out = super().deliver(method, release, repetition, value, out, *more)
        known = self.known.get(len(self.passages) - 1)
        return out if known is None else out + release.noise_std * np.asarray(known)


class FailingGate(RecordingGate):
    """Fails at the first release."""

    def deliver(self, *args: Any, **more: Any):
        """Fail."""
        raise RuntimeError("planted")


def fit_through(gate: type[Gate], row: Any, model: Any, X: Any, y: Any) -> Any:
    """Fit with gates of another kind."""
    with gates_by(lambda fit, *facts: gate(*facts)):
        return row.fit(model, X, y)


def runs_of(model: Any, X: Any, y: Any, fit: Any = None, **more: Any) -> Callable[..., Any]:
    """A function that runs a fit with a kind of gate and a seed, planned once.

    It returns the solution, of a stream or a statistic the model, and the recording, whose gates
    have the attributes that the function was given.
    """

    class Stopped(BaseException):
        pass

    def stop(fit: Any, *facts: Any) -> Gate:
        raise Stopped(fit)

    def begin() -> None:
        model.fit(X, y, **more) if fit is None else fit(model, X, y)

    with pytest.raises(Stopped) as stopped, gates_by(stop):
        begin()
    (pending,) = stopped.value.args

    def run(kind: type[Gate] = RecordingGate, seed: Any = None, **attributes: Any) -> Any:
        def make_gate(i: int, *args: Any) -> Gate:
            gate = kind(*args)
            vars(gate).update(attributes)
            return gate

        recording = Recording(make_gate=make_gate)
        with gates_by(recording):
            if pending is None or pending.planned.plan.facts.is_stream:
                model.__dict__.pop("_arrived_", None)
                model.set_params(random_state=seed)
                begin()
                return model, recording
            return pending.solve(pending.noise(seed, b"")).solution, recording

    return run


@dataclass(frozen=True)
class Move:
    """Change of a release between two data sets, in the norm of its noise."""

    name: str
    distance: float
    declared: float
    # Scale of the noise of the release, or of the message of whoever has moved.
    scale: float
    law: str


def moves(recorded: Recording, replayed: Recording) -> Iterator[Move]:
    """Change of each release, with its declared sensitivity and its noise scale.

    Data of the first agent or record differ; messages of other agents must not change.
    """
    plan = recorded.plan
    releases = {release.name: release for release in plan.releases}
    for one, other in zip(recorded.passages, replayed.passages, strict=True):
        if one.value is None or one.name not in releases:
            continue
        release = releases[one.name]
        law, declared = release.law, release.sensitivities
        moved = np.asarray(other.value - one.value)
        scale = scale_of(plan, release)
        which = min(one.index, len(declared) - 1)
        if one.who is not None or len(moved) == _n_messages(plan, release, one.method):
            is_first = np.arange(len(moved)) == 0 if one.who is None else one.who == 0
            yield Move(one.name, length(moved[~is_first], law), 1e-9 * max(declared), scale, law)
            if not is_first.any():
                continue
            moved = moved[is_first]
            which = which if one.who is None else int(one.turns[is_first][0])
        yield Move(one.name, length(moved, law), declared[which], scale, law)


def _n_messages(plan: Plan, release: Any, method: str) -> int | None:
    """Number of agents, if each sends its own message."""
    is_sum = release.made_of == "sum" and method != "share"
    return None if release.made_of == "value" or is_sum else plan.facts.agents.n_agents


def length(vector: Any, law: str = "gaussian") -> float:
    """A norm that neither overflows nor underflows."""
    vector = np.ravel(np.asarray(vector, dtype=np.float64))
    size = max(float(np.abs(vector).max(initial=0.0)), 1e-300)
    return size * float(np.linalg.norm(vector / size, 1 if law == "laplace" else 2))


def scale_of(plan: Plan, release: Any, observer: str | None = None, agent: int = 0) -> float:
    """Scale of the noise that hides an agent's message from an observer.

    None: the adversary of the budget.
    """
    agents = plan.facts.agents
    if release.made_of == "value":
        return release.noise_std
    noise_std = np.asarray(release.agent_noise_std)[agents.kind]
    if release.law == "laplace":
        return noise_std[agent] / math.sqrt(2.0)
    if agents.hides_by_pairs(observer or plan.budget.observer):
        return noise_std[agent] / math.sqrt(visible_share(agents, agent))
    # In a sum the noise of others helps: at least that of those who add the least.
    others = np.sort(np.delete(noise_std, agent))
    n_others = _n_others(plan, release, observer or plan.budget.observer)
    return math.hypot(noise_std[agent], *others[:n_others])


def visible_share(agents: Any, agent: int) -> float:
    """Diagonal entry of the precision of messages, at the worst coalition, for noise of one."""
    linked, found = agents.pairs.adjacency.toarray(), []
    coalitions = itertools.combinations(
        np.delete(np.arange(len(linked)), agent), agents.n_dishonest
    )
    for coalition in itertools.islice(coalitions, 1 if agents.pairs.is_complete else None):
        kept = np.delete(np.arange(len(linked)), coalition)
        laplacian = np.diag(linked[kept][:, kept].sum(axis=0)) - linked[kept][:, kept]
        precision = np.linalg.inv(np.eye(len(kept)) + agents.edge_noise * laplacian)
        found.append(precision.diagonal()[kept == agent].item())
    return max(found)


def _n_others(plan: Plan, release: Any, observer: str) -> int:
    """Number of other messages that hide one in a sum from an observer."""
    agents = plan.facts.agents
    dishonest = agents.n_agents
    if release.made_of != "sum":
        return 0
    if hasattr(agents, "n_honest"):
        dishonest -= {"server": 0, "sums": agents.n_honest}.get(observer, agents.n_agents)
    elif release.door == "share" and observer == "model":
        dishonest = 0
    elif release.door == "share" and agents.coalition < (agents.threshold or agents.n_curators):
        dishonest = agents.coalition
    return max(release.fewest - dishonest, 1) - 1


def unit_noise(recording: Recording) -> dict[str, np.ndarray]:
    """Noise of each release in units of its planned standard deviation: repetitions come first.

    Where agents take turns the second axis is theirs.
    """
    releases = {release.name: release for release in recording.plan.releases}
    found: dict[str, list[Any]] = {}
    for passage in recording.passages:
        if passage.unit_noise is None:
            continue
        noise = _in_planned_units(recording.plan, releases[passage.name], passage)
        drawn = found.setdefault(passage.name, [])
        if passage.method == "path_noise":
            drawn.extend(noise)
        elif passage.who is not None:
            drawn.extend(zip(passage.who.tolist(), passage.turns.tolist(), noise, strict=True))
        else:
            drawn.append(noise)
    return {name: _table(drawn) for name, drawn in found.items()}


def _in_planned_units(plan: Plan, release: Any, passage: Passage) -> np.ndarray:
    noise = passage.out if passage.value is None else passage.out - passage.value
    if release.made_of == "value":
        return noise / release.noise_std
    agents = plan.facts.agents
    noise_std = np.asarray(release.agent_noise_std)[agents.kind]
    if release.made_of == "sum":
        if release.fewest == agents.n_agents and passage.method != "share":
            return noise / math.hypot(*noise_std)
        # The amount of noise depends on who sends.
        return passage.unit_noise
    noise_std = noise_std if passage.who is None else noise_std[passage.who]
    return noise / noise_std.reshape(-1, *(1,) * (noise.ndim - 1))


def _table(drawn: list[Any]) -> np.ndarray:
    if not isinstance(drawn[0], tuple):
        return np.stack(drawn)
    turns = sorted(drawn, key=lambda entry: entry[:2])
    n_agents = len({entry[0] for entry in turns})
    noise = np.stack([entry[2] for entry in turns])
    return np.moveaxis(noise.reshape(n_agents, -1, *noise.shape[1:]), 0, 1)


def gaussian_delta(mu: float, epsilon: float) -> float:
    """Smallest delta of a Gaussian mechanism, by its own formula."""
    first = norm.cdf(mu / 2 - epsilon / mu)
    return float(first - math.exp(epsilon + norm.logcdf(-mu / 2 - epsilon / mu)))
