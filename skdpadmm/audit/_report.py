"""What an audit found."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from skdpadmm.privacy import Guarantee, round_down, round_up, text_table

NOT_REPLAYED = "not replayed"
_COLUMNS = ("release", "times", "moved", "declared", "noise", "planned", "found")


@dataclass(frozen=True, kw_only=True)
class ReplayLine:
    """What a replay showed of one kind of release.

    Attributes
    ----------
    name : str
        What is released.
    times : int
        How often, in one fit.
    moved : float or None
        How far it moved between neighbouring data sets, at most, where what was released before is
        held fixed; None: a replay does not see it.
    declared : float or None
        How far it may, where it moved the most for that; None: nothing is declared.
    noise : float or None
        Its noise, as it was measured, in units of what was planned; None: not seen.
    found : str
        In words; "not replayed", and why, where `moved` is None.
    is_violation : bool
    """

    name: str
    times: int
    moved: float | None
    declared: float | None
    noise: float | None
    found: str
    is_violation: bool


@dataclass(frozen=True, kw_only=True, repr=False)
class AuditReport:
    """What an audit found, beside what is claimed.

    Attributes
    ----------
    subject : str
        Which estimator.
    method : {"replay", "black-box", "canaries"}
    observer : str
        Whose guarantee was tried.
    claimed_epsilon : float
        At `delta`, between data sets as far apart as those that were tried.
    delta : float
    guarantee : Guarantee or None
        The claim, where it is more than a pair of numbers.
    confidence : float
        Of each bound; a sound estimator is found to be wrong at most so rarely.
    lower_bound : float or None
        Of epsilon at `delta`, whatever the mechanism; None for a replay.
    mu_lower_bound : float or None
        Of mu, where the claim is one of Gaussian differential privacy.
    claimed_mu : float or None
    n_runs : int
        Replays, fits on each data set, or canaries in one fit.
    neighbors : str
        In what the data sets differ.
    event : str
        By what they were told apart.
    lines : tuple of ReplayLine
        Of a replay, release by release.
    is_violation : bool
        Whether the claim is refuted.

    Examples
    --------
    >>> from skdpadmm import DPAdmmRidge
    >>> from skdpadmm.audit import audit
    >>> report = audit(DPAdmmRidge(max_iter=3), method="replay", random_state=0)
    >>> report.is_violation, sorted({line.found for line in report.lines})
    (False, ['nothing wrong'])
    """

    subject: str
    method: str
    observer: str
    claimed_epsilon: float
    delta: float
    guarantee: Guarantee | None
    confidence: float
    lower_bound: float | None
    mu_lower_bound: float | None
    claimed_mu: float | None
    n_runs: int
    neighbors: str
    event: str
    lines: tuple[ReplayLine, ...]
    is_violation: bool

    @property
    def not_replayed(self) -> tuple[str, ...]:
        """Releases of which a replay did not see how far they move; lines say why."""
        return tuple(line.name for line in self.lines if line.found.startswith(NOT_REPLAYED))

    @property
    def verdict(self) -> str:
        """What was found, in a sentence."""
        if math.isinf(self.claimed_epsilon):
            return "Nothing is claimed: not private."
        if not self.is_violation:
            found = "No violation was found. That proves nothing: a better attack may find one."
            unseen = ", ".join(self.not_replayed)
            return f"{found} Not replayed: {unseen}." if unseen else found
        level = f"at {100 * self.confidence:g} % confidence"
        if wrong := [line.name for line in self.lines if line.is_violation]:
            return f"VIOLATION of {', '.join(wrong)}, {level}."
        if self.lower_bound is not None and self.lower_bound > self.claimed_epsilon:
            return f"VIOLATION: epsilon is at least {round_down(self.lower_bound)}, {level}."
        assert self.mu_lower_bound is not None
        return f"VIOLATION: mu is at least {round_down(self.mu_lower_bound)}, {level}."

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able dictionary; an infinite figure is the string "inf"."""
        plain = {
            name: getattr(self, name)
            for name in self.__dataclass_fields__
            if name not in ("guarantee", "lines")
        }
        lines = [{k: _plain(v) for k, v in asdict(line).items()} for line in self.lines]
        return {
            **{name: _plain(value) for name, value in plain.items()},
            "guarantee": None if self.guarantee is None else self.guarantee.to_dict(),
            "lines": lines,
            "verdict": self.verdict,
        }

    def __repr__(self) -> str:
        """Return the report as plain text."""
        claim = f"claimed against {self.observer}: epsilon={round_up(self.claimed_epsilon)}"
        claim += f" at delta={round_up(self.delta)}"
        if self.guarantee is not None:
            claim += f", {self.guarantee.describe()}"
        runs = {
            "replay": f"replays: {self.n_runs}",
            "black-box": f"runs: {self.n_runs} of each data set",
            "canaries": f"canaries: {self.n_runs} in one run",
        }
        blocks = [
            f"Audit of {self.subject} by {self.method}",
            self.verdict,
            claim,
            f"neighbours: {self.neighbors}",
            runs[self.method],
        ]
        if self.lower_bound is not None:
            blocks.append(
                f"epsilon is at least {round_down(self.lower_bound)},"
                f" at {100 * self.confidence:g} % confidence"
            )
        if self.mu_lower_bound is not None and self.claimed_mu is not None:
            blocks.append(
                f"mu is at least {round_down(self.mu_lower_bound)}, claimed"
                f" {round_up(self.claimed_mu)}"
            )
        if self.event:
            blocks.append(f"event: {self.event}")
        if self.lines:
            blocks.append(text_table(_COLUMNS, map(_row, self.lines)))
        return "\n".join(blocks)


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _row(line: ReplayLine) -> tuple[str, ...]:
    return (
        line.name,
        str(line.times),
        "not seen" if line.moved is None else round_up(line.moved),
        "" if line.declared is None else round_up(line.declared),
        "not seen" if line.noise is None else f"{line.noise:.3g}",
        "" if line.noise is None else "1",
        line.found,
    )
