"""The plan: every release of a fit with its noise, decided before any data is seen."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from skdpadmm.privacy import Guarantee, compose, round_down, round_up
from skdpadmm.protocol._facts import Budget, Facts
from skdpadmm.protocol._release import HiddenPath, HiddenTerm, Release


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
    releases : tuple of Release and HiddenTerm
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
    releases: tuple[Release | HiddenTerm, ...]
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
        spent = self.guarantee(self.budget.observer).delta(self.budget.epsilon)
        if spent > self.budget.delta * (1 + 1e-9):
            raise ValueError(
                f"Got a plan with delta={spent:.3g} at epsilon={self.budget.epsilon:g}, expected at"
                f" most delta={self.budget.delta:g}. The algorithm must add more noise."
            )

    def guarantee(self, observer: str = "model") -> Guarantee:
        """What holds against an observer: the composition of all that it sees.

        Raises
        ------
        ValueError
            Where no release names the observer: a name that is misspelt sees nothing.
        """
        seen = [release.guarantee for release in self.releases if observer in release.seen_by]
        if not seen:
            known = sorted({name for release in self.releases for name in release.seen_by})
            raise ValueError(
                f"Got observer={observer!r}, expected one of {known}: no release of this plan names"
                " another one."
            )
        return compose(*seen)

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

    def __repr__(self) -> str:
        facts, budget = self.facts, self.budget
        lines = [
            f"Plan of {self.algorithm} for {facts.n_samples} records,"
            f" {facts.n_parameters} x {facts.loss.n_outputs} parameters",
            f"  budget: epsilon={budget.epsilon:g}, delta={budget.delta:g},"
            f" {facts.neighboring.value}, unit {facts.unit}",
            f"  guarantee ({budget.observer}): {self.guarantee(budget.observer).describe()}",
            "  settings: "
            + ", ".join(f"{k}={_short(v)}" for k, v in dataclasses.asdict(self.settings).items()),
        ]
        for r in self.releases:
            noise = f"noise std {round_down(r.noise_std)}" if r.noise_std else "no noise"
            moved = f"sensitivity {round_up(max(r.sensitivities))}, " if r.sensitivities else ""
            kind = "releases" if isinstance(r, Release) else "hides"
            if isinstance(r, HiddenPath):
                kind = "releases the last of"
            lines.append(f"  {kind} {r.times} x {r.name} {r.shape}: {moved}{noise}")
        lines += [f"  assumes: {assumption}" for assumption in self.assumptions]
        return "\n".join(lines)


def _rounded(value: Any) -> Any:
    """Floats written with 12 digits, everywhere in plain data."""
    if isinstance(value, dict):
        return {key: _rounded(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_rounded(entry) for entry in value]
    return f"{value:.12g}" if isinstance(value, float) else value


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _plain(value: Any) -> Any:
    """Dataclasses as dicts that carry their type's name, tuples as lists, the rest as it is."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        compared = [f.name for f in dataclasses.fields(value) if f.compare]
        fields = {name: _plain(getattr(value, name)) for name in compared}
        return {"type": type(value).__name__, **fields}
    if isinstance(value, tuple | list):
        return [_plain(v) for v in value]
    return value.item() if isinstance(value, np.generic) else value
