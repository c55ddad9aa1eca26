"""Which record is used in which step, and the guarantee at each place."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from skdpadmm import privacy
from skdpadmm.privacy import AmplifiedIteration, GaussianDP, Guarantee, mixture_of_slots
from skdpadmm.protocol import Gate

# Nobody's place.
NOBODY = -1


@dataclass(frozen=True, kw_only=True)
class RecordSchedule:
    """Steps of one record each, over places that records are given.

    Places are drawn at random and kept secret where it `is_secret`, and nothing is seen before the
    end where it `is_hidden`. A stream has one place, because all are alike. Only "sampling" has a
    `cap` of how often a place is used, and a public `seed`.
    """

    n_places: int
    kind: str
    is_secret: bool
    is_hidden: bool
    n_passes: int = 1
    cap: int | None = None
    seed: int | None = None

    @property
    def n_steps(self) -> int | None:
        """How many steps there are; None: one for each record that arrives."""
        return None if self.kind == "stream" else self.n_places * self.n_passes

    def places(self) -> NDArray[np.intp]:
        """The place that each step uses, or `NOBODY`: a function of public facts."""
        n = self.n_places
        if self.kind != "sampling":
            return np.tile(np.arange(n), self.n_passes)
        assert self.cap is not None
        drawn = np.random.default_rng(self.seed).integers(n, size=n * self.n_passes)
        order = np.argsort(drawn, kind="stable")
        first = np.searchsorted(drawn[order], np.arange(n))
        turn = np.empty(len(drawn), dtype=np.intp)
        turn[order] = np.arange(len(drawn)) - first[drawn[order]]
        return np.where(turn < self.cap, drawn, NOBODY)

    def drawn(self, gate: Gate) -> tuple[NDArray[np.intp], int]:
        """Draw what is random and secret: each step's record, and how many make the answer."""
        records = np.arange(self.n_places)
        if self.is_secret:
            records = np.argsort(gate.uniform((self.n_places,)), kind="stable")
        places, end = self.places(), self.n_places * self.n_passes
        if self.kind == "stopping":
            end = stopping_time(self.n_places, float(gate.uniform((1,))[0]))
        return np.where(places == NOBODY, NOBODY, records[places]), end

    def guarantees(self, step: AmplifiedIteration) -> tuple[Guarantee, Guarantee]:
        """What holds for a record, and for one at the worst place, given one step's figures."""
        if self.kind == "stream":
            return step.local(), step.local()
        if self.kind == "stopping":
            return step.random_stopping(self.n_places), step.local()
        if not self.is_hidden:
            places = self.places()
            used = np.bincount(places[places != NOBODY], minlength=self.n_places)
            mu = np.sqrt(used) * step.local().mu
        elif self.kind == "sampling":
            mu = step.slots(self.places(), self.n_places)
        else:
            # A pass lies between a record's steps, and after the last one what is left of it.
            again = step.mu_after([self.n_places])
            last = step.mu_after(np.arange(self.n_places, 0, -1))
            mu = np.sqrt((self.n_passes - 1) * again**2 + last**2)
        worst = GaussianDP(float(mu.max()))
        return (mixture_of_slots(mu) if self.is_secret else worst), worst


def stopping_time(n_steps: int, uniform: float) -> int:
    """A time that is uniform on the second half of a pass, from a uniform number in [0, 1)."""
    half = n_steps // 2
    return half + 1 + min(int(uniform * (n_steps - half)), n_steps - half - 1)


# Every piece of a stream is planned anew.
@lru_cache(maxsize=64)
def calibrated(
    schedule: RecordSchedule,
    spent: tuple[Guarantee, ...],
    epsilon: float,
    delta: float,
    amplification: float,
    shift: float,
) -> AmplifiedIteration:
    """One step's figures with the least noise that the budget allows beside what is `spent`.

    `shift` is what rounding moves two iterates apart in a step, in noise standard deviations.
    """

    def guarantee(scale: float) -> Guarantee:
        step = AmplifiedIteration(1.0 / scale, amplification, shift)
        return privacy.compose(*spent, schedule.guarantees(step)[0])

    alone = schedule.guarantees(AmplifiedIteration(0.0, amplification, shift))[0]
    if privacy.compose(*spent, alone).delta(epsilon) > delta / 2:
        raise ValueError(
            "Got a budget so small that rounding takes up half of it, expected a larger epsilon or"
            " fewer steps. Use release='path', where rounding of earlier steps does not count."
        )
    scale = privacy.calibrate_noise(guarantee, epsilon, delta) * (1 + 1e-12)
    return AmplifiedIteration(1.0 / scale, amplification, shift)


def at_the_end(step: AmplifiedIteration, n_records: int) -> tuple[tuple[str, Guarantee], ...]:
    """What holds for kinds of records of a stream that has ended, if only its end is seen."""
    mu = step.slots(np.arange(n_records), n_records)
    return (
        ("the last record, the worst position", GaussianDP(float(mu.max()))),
        ("a record at a random position that is secret", mixture_of_slots(mu)),
        ("the first record, the best position", step.first(n_records)),
    )
