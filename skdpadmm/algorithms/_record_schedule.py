"""Which record is used in which step, and what a record's place is worth."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from skdpadmm.privacy import (
    AmplifiedIteration,
    GaussianDP,
    Guarantee,
    calibrate_noise,
    compose,
    mixture_of_slots,
)
from skdpadmm.protocol import Budget, Facts, Gate

# Nobody's place.
NOBODY = -1


@dataclass(frozen=True, kw_only=True)
class RecordSchedule:
    """Steps of one record each, over places that records are given.

    Attributes
    ----------
    n_places : int
        Number of records; 1 for a stream, where all places are alike.
    kind : {"cyclic", "sampling", "stopping", "stream"}
    is_secret : bool
        Whether places are drawn at random and kept secret.
    is_hidden : bool
        Whether nothing is seen before the end.
    n_passes : int, default=1
        Steps over places.
    cap : int or None, default=None
        With "sampling": how often a place is used at most.
    seed : int or None, default=None
        Public, of "sampling".
    """

    n_places: int
    kind: Literal["cyclic", "sampling", "stopping", "stream"]
    is_secret: bool
    is_hidden: bool
    n_passes: int = field(default=1, metadata={"unless": 1})
    cap: int | None = field(default=None, metadata={"unless": None})
    seed: int | None = field(default=None, metadata={"unless": None})

    @property
    def is_arrival(self) -> bool:
        """Whether there is a step for each record that arrives, nobody knows how many."""
        return self.kind == "stream"

    @property
    def is_sampling(self) -> bool:
        """Whether places are drawn with replacement."""
        return self.kind == "sampling"

    @property
    def hides_its_end(self) -> bool:
        """Whether the steps end at a secret random time."""
        return self.kind == "stopping"

    @property
    def n_steps(self) -> int | None:
        """How many steps there are; None: one for each record that arrives."""
        return None if self.is_arrival else self.n_places * self.n_passes

    def places(self) -> NDArray[np.intp]:
        """The place that each step uses, or `NOBODY`: a function of public facts.

        Returns
        -------
        ndarray of shape (n_steps,)
        """
        n = self.n_places
        if not self.is_sampling:
            return np.tile(np.arange(n), self.n_passes)
        assert self.cap is not None
        drawn = np.random.default_rng(self.seed).integers(n, size=n * self.n_passes)
        order = np.argsort(drawn, kind="stable")
        first = np.searchsorted(drawn[order], np.arange(n))
        turn = np.empty(len(drawn), dtype=np.intp)
        turn[order] = np.arange(len(drawn)) - first[drawn[order]]
        return np.where(turn < self.cap, drawn, NOBODY)

    def drawn(self, gate: Gate) -> tuple[NDArray[np.intp], int]:
        """Draw what is random and secret: who has which place, and where it ends.

        Parameters
        ----------
        gate : Gate

        Returns
        -------
        records : ndarray of shape (n_steps,)
            The record that each step uses, or `NOBODY`.
        end : int
            How many steps make the answer.
        """
        records = np.arange(self.n_places)
        if self.is_secret:
            records = np.argsort(gate.uniform((self.n_places,)), kind="stable")
        places, end = self.places(), self.n_places * self.n_passes
        if self.hides_its_end:
            end = stopping_time(self.n_places, float(gate.uniform((1,))[0]))
        return np.where(places == NOBODY, NOBODY, records[places]), end

    def assumptions(self) -> Iterator[str]:
        """What its figures rest on, in words."""
        if self.is_hidden:
            yield (
                "Nobody sees a state before the last, nor the noise of the steps after a record's."
            )
        if self.is_secret:
            yield "The order of the records is drawn at random and stays secret."
        if self.hides_its_end:
            yield "The time at which the iteration stops is drawn at random and stays secret."
        if self.is_arrival:
            yield "Each record arrives once; a record that is offered again is protected less."

    def guarantees(self, made: AmplifiedIteration) -> tuple[Guarantee, Guarantee]:
        """What holds for a record, and for one at the worst place, given one step's figures.

        Parameters
        ----------
        made : AmplifiedIteration

        Returns
        -------
        tuple of Guarantee
        """
        if self.is_arrival:
            return made.local(), made.local()
        if self.hides_its_end:
            return made.random_stopping(self.n_places), made.local()
        mu = self._mu(made)
        worst = GaussianDP(float(mu.max()))
        return (mixture_of_slots(mu) if self.is_secret else worst), worst

    def _mu(self, made: AmplifiedIteration) -> NDArray[np.float64]:
        """Of the record at each place."""
        if not self.is_hidden:
            places = self.places()
            used = np.bincount(places[places != NOBODY], minlength=self.n_places)
            return np.asarray(np.sqrt(used) * made.local().mu)
        if self.is_sampling:
            return made.slots(self.places(), self.n_places)
        # A pass lies between a record's steps, and after the last one what is left of it.
        again = made.mu_after([self.n_places])
        last = made.mu_after(np.arange(self.n_places, 0, -1))
        return np.asarray(np.sqrt((self.n_passes - 1) * again**2 + last**2))


def stopping_time(n_steps: int, uniform: float) -> int:
    """A time that is uniform on the second half of a pass, from a uniform number.

    Parameters
    ----------
    n_steps : int
    uniform : float
        In [0, 1).
    """
    half = n_steps // 2
    return half + 1 + min(int(uniform * (n_steps - half)), n_steps - half - 1)


def calibrated(
    schedule: RecordSchedule, facts: Facts, budget: Budget, amplification: float, shift: float
) -> AmplifiedIteration:
    """One step's figures with the least noise that the budget allows.

    Parameters
    ----------
    schedule : RecordSchedule
    facts : Facts
    budget : Budget
    amplification : float
        The constant of the theorem.
    shift : float
        What rounding to the grid moves two iterates apart in a step, in standard deviations.

    Returns
    -------
    AmplifiedIteration

    Raises
    ------
    ValueError
        Where rounding alone takes up a good part of the budget.
    """
    spent = [release.view().guarantees[0] for release in facts.preparations]

    def guarantee(scale: float) -> Guarantee:
        made = AmplifiedIteration(1.0 / scale, amplification, shift)
        return compose(*spent, schedule.guarantees(made)[0])

    alone = schedule.guarantees(AmplifiedIteration(0.0, amplification, shift))[0]
    if compose(*spent, alone).delta(budget.epsilon) > budget.delta / 2:
        raise ValueError(
            "Got a budget so small that rounding takes up half of it, expected a larger epsilon or"
            " fewer steps. Use release='path', where rounding of earlier steps does not count."
        )
    return AmplifiedIteration(
        1.0 / (calibrate_noise(guarantee, budget.epsilon, budget.delta) * (1 + 1e-12)),
        amplification,
        shift,
    )
