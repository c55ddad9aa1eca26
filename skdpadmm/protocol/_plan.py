"""The plan: every release of a fit with its noise, decided before any data is seen."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from skdpadmm.privacy import (
    GaussianDP,
    Guarantee,
    Neighboring,
    NonPrivate,
    compose,
    round_down,
    round_up,
    worst,
)
from skdpadmm.protocol._agents import Network
from skdpadmm.protocol._facts import Budget, Facts
from skdpadmm.protocol._release import Release


class PlanViolation(RuntimeError):
    """An algorithm tried to release what its plan does not list, or left a planned release out."""


@dataclass(frozen=True)
class Settings:
    """Constants of one run, by name: knobs with every "auto" replaced, and what follows from them.

    Attributes
    ----------
    values : tuple of (str, object)
        Each of them can be read as an attribute.
    """

    values: tuple[tuple[str, Any], ...]

    def __getattr__(self, name: str) -> Any:
        if name != "values":
            for known, value in self.values:
                if known == name:
                    return value
        raise AttributeError(name)

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        return iter(self.values)

    def but(self, **changed: Any) -> Settings:
        """The same with some values changed or added."""
        return Settings(tuple((dict(self.values) | changed).items()))


@dataclass(frozen=True, kw_only=True, repr=False)
class Plan:
    """What a fit will release and what that costs; compares by value and sees no data.

    A plan that would cost more than its budget cannot be made.

    Attributes
    ----------
    algorithm : str
        Name of the algorithm that made it.
    facts : Facts
    budget : Budget
    settings : frozen dataclass
        The algorithm's own constants, resolved: step sizes, clip bounds, lengths.
    releases : tuple of Release
        Those that prepare the coordinates come first.
    assumptions : tuple of str
        What the guarantee rests on, in words; no part of equality and of the digest.

    Raises
    ------
    ValueError
        Where noise is missing, or where the releases cost more than the budget.
    """

    algorithm: str
    facts: Facts
    budget: Budget
    settings: Any
    releases: tuple[Release, ...]
    assumptions: tuple[str, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        if not self.budget.is_private:
            return
        for release in self.releases:
            if not (math.isfinite(release.noise_std) and release.noise_std > 0):
                raise ValueError(
                    f"Got noise_std={release.noise_std} for the release {release.name!r}, expected"
                    " a positive finite number in a private plan."
                    " Check the scale of the clip bound."
                )
            if not all(math.isfinite(s) and s > 0 for s in release.sensitivities):
                raise ValueError(
                    f"Got sensitivities of the release {release.name!r} that are not positive and"
                    " finite, expected a bound for each repetition."
                )
        agents, epsilon = self.facts.agents, self.budget.epsilon
        budgets = (epsilon,) if agents is None else agents.budgets(epsilon)
        promised: dict[float, list[Guarantee]] = {}
        for epsilon, guarantee in zip(budgets, self.guarantees(self.budget.observer), strict=True):
            promised.setdefault(epsilon, []).append(guarantee)
        for epsilon, guarantees in promised.items():
            spent = worst(*guarantees).delta(epsilon)
            if spent > self.budget.delta * (1 + 1e-9):
                raise ValueError(
                    f"Got a plan with delta={spent:.3g} at epsilon={epsilon:g}, expected at most"
                    f" delta={self.budget.delta:g}. The algorithm must add more noise."
                )

    @property
    def adversary(self) -> str:
        """The observer that the budget is spent against."""
        return self.budget.observer

    @property
    def unit(self) -> str:
        """What is protected, "record" or "agent"."""
        return self.facts.unit

    @property
    def neighboring(self) -> Neighboring:
        """How data sets differ that nobody shall tell apart."""
        return self.facts.neighboring

    def guarantee(self, observer: str | None = None) -> Guarantee:
        """What holds against an observer: the composition of all that it sees.

        Where there are agents it holds for each of them.

        Parameters
        ----------
        observer : str, default=None
            None: the one that the budget is spent against.

        Returns
        -------
        Guarantee

        Raises
        ------
        ValueError
            Where no release names the observer: a name that is misspelt sees nothing.
        """
        return worst(*self.guarantees(observer or self.budget.observer))

    def guarantees(self, observer: str) -> tuple[Guarantee, ...]:
        """What holds against an observer for each kind of agent; without agents there is one."""
        return _by_kind([r.view(observer).guarantees for r in self._seen(observer)])

    def worst_cases(self, observer: str) -> tuple[Guarantee, ...]:
        """The same for agents that take part as often as they can: averages over nothing."""
        return _by_kind([r.view(observer).worst_cases for r in self._seen(observer)])

    def _seen(self, observer: str) -> list[Release]:
        seen = [release for release in self.releases if observer in release.seen_by]
        if not seen:
            known = sorted({name for release in self.releases for name in release.seen_by})
            raise ValueError(
                f"Got observer={observer!r}, expected one of {known}: no release of this plan names"
                " another one."
            )
        return seen

    def to_dict(self) -> dict[str, Any]:
        """The whole plan in plain types, with type names, for printing and for `digest`."""
        plain = _plain(self)
        assert isinstance(plain, dict)
        return plain

    def digest(self) -> bytes:
        """SHA-256 of the plan: different plans draw unrelated noise from the same seed.

        Floats count with 12 digits, so that mathematical libraries which differ in the last bits
        agree on the digest.
        """
        text = json.dumps(_rounded(self.to_dict()), sort_keys=True)
        return hashlib.sha256(text.encode()).digest()

    def _promise(self, observer: str) -> str:
        """A guarantee in words; with its epsilon, where the words do not tell."""
        guarantee = self.guarantee(observer)
        if isinstance(guarantee, GaussianDP | NonPrivate):
            return guarantee.describe()
        return f"{guarantee.describe()}, epsilon={round_up(guarantee.epsilon(self.budget.delta))}"

    def __repr__(self) -> str:
        facts, budget = self.facts, self.budget
        records = "a stream of" if facts.is_stream else facts.n_samples
        lines = [
            f"Plan of {self.algorithm} for {records} records,"
            f" {facts.n_parameters} x {facts.loss.n_outputs} parameters",
            f"  budget: epsilon={budget.epsilon:g}, delta={budget.delta:g},"
            f" {facts.neighboring.value}, unit {facts.unit}",
            f"  guarantee ({budget.observer}): {self._promise(budget.observer)}",
        ]
        agents = facts.agents
        if agents is not None:
            sizes = agents.agent_sizes
            rows = f"with {min(sizes)} to {max(sizes)} records"
            lines.insert(1, f"  agents: {agents.n_agents}, {rows}")
            if isinstance(agents, Network):
                lines.insert(2, f"  topology: {agents.topology.describe()}")
            if budget.is_private:
                lines += [
                    f"  guarantee ({observer}): {self._promise(observer)}"
                    for observer in agents.observers
                    if observer != budget.observer
                ]
        lines.append("  settings: " + ", ".join(_described(self.settings)))
        for r in self.releases:
            times = "one for each record:" if r.times is None else r.times
            noise = f"noise std {round_down(r.noise_std)}" if r.noise_std else "no noise"
            moved = f"sensitivity {round_up(max(r.sensitivities))}, " if r.sensitivities else ""
            kind = "hides" if r.door == "hidden_term" else "releases"
            kind += " the last of" if r.is_hidden else ""
            kind = "sums messages for" if r.made_of == "sum" else kind
            lines.append(f"  {kind} {times} x {r.name} {r.shape}: {moved}{noise}")
            if r.made_of != "value":
                least, most = (round_down(f(r.agent_noise_std)) for f in (min, max))
                each = least if least == most else f"{least} to {most}"
                lines.append(f"    of which each agent adds {each}, to a message of its own")
        lines += [f"  assumes: {assumption}" for assumption in self.assumptions]
        return "\n".join(lines)


def _by_kind(guarantees: list[tuple[Guarantee, ...]]) -> tuple[Guarantee, ...]:
    """Compose release after release, kind by kind; what has one guarantee has it for all kinds."""
    n_kinds = max(len(kinds) for kinds in guarantees)
    return tuple(
        compose(*(kinds[k if len(kinds) > 1 else 0] for kinds in guarantees))
        for k in range(n_kinds)
    )


def _rounded(value: Any) -> Any:
    """Floats written with 12 digits, everywhere in plain data."""
    if isinstance(value, dict):
        return {key: _rounded(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_rounded(entry) for entry in value]
    return f"{value:.12g}" if isinstance(value, float) else value


def _described(settings: Any) -> Iterator[str]:
    """Settings, and those inside of them, one by one."""
    if not isinstance(settings, Settings):
        settings = [(f.name, getattr(settings, f.name)) for f in dataclasses.fields(settings)]
    for name, value in settings:
        if dataclasses.is_dataclass(value):
            yield from _described(value)
        else:
            yield f"{name}={_short(value)}"


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


_ALWAYS = object()


def _plain(value: Any) -> Any:
    """Dataclasses as dicts that carry their type's name, tuples as lists, the rest as it is."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        compared = [
            f.name
            for f in dataclasses.fields(value)
            # A field that came later says so, and leaves plans without it what they were.
            if f.compare and getattr(value, f.name) != f.metadata.get("unless", _ALWAYS)
        ]
        fields = {name: _plain(getattr(value, name)) for name in compared}
        return {"type": type(value).__name__, **fields}
    if isinstance(value, tuple | list):
        return [_plain(v) for v in value]
    return value.item() if isinstance(value, np.generic) else value
