"""Which record is used in which step, and what a record's place is worth."""

from __future__ import annotations

from dataclasses import dataclass
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
from skdpadmm.protocol import Budget, Facts

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
    n_passes : int
        Steps over places.
    cap : int
        With "sampling": how often a place is used at most.
    seed : int
        Public, of "sampling".
    is_secret : bool
        Whether places are drawn at random and kept secret.
    is_hidden : bool
        Whether nothing is seen before the end.
    """

    n_places: int
    kind: Literal["cyclic", "sampling", "stopping", "stream"]
    n_passes: int
    cap: int
    seed: int
    is_secret: bool
    is_hidden: bool

    @property
    def n_steps(self) -> int | None:
        """How many steps there are; None: one for each record that arrives."""
        return None if self.kind == "stream" else self.n_places * self.n_passes

    def places(self) -> NDArray[np.intp]:
        """The place that each step uses, or `NOBODY`: a function of public facts.

        Returns
        -------
        ndarray of shape (n_steps,)
        """
        n = self.n_places
        if self.kind != "sampling":
            return np.tile(np.arange(n), self.n_passes)
        drawn = np.random.default_rng(self.seed).integers(n, size=n * self.n_passes)
        order = np.argsort(drawn, kind="stable")
        first = np.searchsorted(drawn[order], np.arange(n))
        turn = np.empty(len(drawn), dtype=np.intp)
        turn[order] = np.arange(len(drawn)) - first[drawn[order]]
        return np.where(turn < self.cap, drawn, NOBODY)

    def guarantees(self, made: AmplifiedIteration) -> tuple[Guarantee, Guarantee]:
        """What holds for a record, and for one at the worst place, given one step's figures.

        Parameters
        ----------
        made : AmplifiedIteration

        Returns
        -------
        tuple of Guarantee
        """
        if self.kind == "stream":
            return made.local(), made.local()
        if self.kind == "stopping":
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
        if self.kind == "sampling":
            return made.slots(self.places(), self.n_places)
        # A pass lies between a record's steps, and after the last one what is left of it.
        again = made.mu_after([self.n_places])
        last = made.mu_after(np.arange(self.n_places, 0, -1))
        return np.asarray(np.sqrt((self.n_passes - 1) * again**2 + last**2))


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
    spent = [release.guarantee for release in facts.preparations]

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
