"""What agents say in turns: how much noise each adds in which turn, and what that costs.

A turn of an agent is a release of what its own rows make of public models. All that it lets out is
made of its turns and of what others said, so its guarantee is that of its own turns.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from skdpadmm.algorithms._messages import spent_before
from skdpadmm.noise import grid_cell
from skdpadmm.privacy import (
    GaussianDP,
    Guarantee,
    LaplaceDP,
    NonPrivate,
    calibrate_noise,
    compose,
    gaussian_mu,
)
from skdpadmm.protocol import Budget, Facts, Release, View

Law = Literal["gaussian", "laplace"]


def turn_weights(shares: NDArray[np.float64], law: Law) -> NDArray[np.float64]:
    """What turns are multiplied by before noise of one size is added to each.

    Parameters
    ----------
    shares : ndarray of shape (n_turns,)
        Of the sum of squares of mu, or for Laplace noise of the sum of epsilons.
    law : {"gaussian", "laplace"}

    Returns
    -------
    ndarray of shape (n_turns,)
        One each where the shares are equal.
    """
    relative = shares * len(shares)
    return np.asarray(np.sqrt(relative) if law == "gaussian" else relative)


def agent_turns(
    facts: Facts, budget: Budget, *, name: str, weights: NDArray[np.float64], law: Law
) -> Release:
    """Plan what every agent releases in its turns, where a protected unit has norm one.

    Parameters
    ----------
    facts : Facts
        With agents.
    budget : Budget
        Without privacy there is no noise.
    name : str
    weights : ndarray of shape (n_turns,)
        What each turn is multiplied by, see `turn_weights`.
    law : {"gaussian", "laplace"}
        Of the noise, and with it the norm: Euclidean, or L1.

    Returns
    -------
    Release

    Raises
    ------
    ValueError
        Where the grid alone costs more than the budget.
    """
    agents = facts.agents
    assert agents is not None
    n_entries = facts.n_parameters * facts.loss.n_outputs
    # Rounding is bounded in the Euclidean norm.
    widened = 1.0 if law == "gaussian" else math.sqrt(n_entries)
    moved = facts.neighboring.sensitivity_factor * (1.0 + (facts.working_rounding - 1.0) * widened)
    n_kinds, shape = len(agents.sizes), (agents.n_agents, facts.n_parameters, facts.loss.n_outputs)
    if not budget.is_private:
        return Release(
            name=name,
            shape=shape,
            sensitivities=(math.inf,) * len(weights),
            noise_std=0.0,
            door="take_turns",
            made_of="agents",
            agent_noise_std=(0.0,) * n_kinds,
            views=_views(agents.observers, (NonPrivate(),) * n_kinds),
            law=law,
        )
    family = _Family(moved=moved, weights=weights, law=law, n_entries=n_entries)

    @cache
    def calibrated(epsilon: float, prior: Guarantee) -> float:
        return family.scale(epsilon, budget.delta, prior)

    pairs = zip(agents.budgets(budget.epsilon), spent_before(facts, budget), strict=True)
    scales = [calibrated(*pair) for pair in pairs]
    shares = tuple(family.deviation * scale for scale in scales)
    return Release(
        name=name,
        shape=shape,
        sensitivities=tuple((moved * weights).tolist()),
        noise_std=max(shares),
        door="take_turns",
        made_of="agents",
        agent_noise_std=shares,
        views=_views(agents.observers, tuple(family.at(scale) for scale in scales)),
        law=law,
    )


def _views(observers: tuple[str, ...], guarantees: tuple[Guarantee, ...]) -> tuple[View, ...]:
    """Everybody learns the same."""
    return tuple(View(observer=observer, guarantees=guarantees) for observer in observers)


class _Family:
    """Guarantees of all turns of an agent, for each scale of its noise.

    Parameters
    ----------
    moved : float
        Sensitivity of a turn of weight one.
    weights : ndarray of shape (n_turns,)
    law : {"gaussian", "laplace"}
    n_entries : int
        Of what an agent says.
    """

    def __init__(
        self, *, moved: float, weights: NDArray[np.float64], law: Law, n_entries: int
    ) -> None:
        self._law, self._moved = law, moved * weights
        # Both of two neighbours are rounded to the grid, each by half a cell in every entry.
        self._rounding = grid_cell(1.0) * (math.sqrt(n_entries) if law == "gaussian" else n_entries)
        self.deviation = 1.0 if law == "gaussian" else math.sqrt(2.0)

    def at(self, scale: float) -> Guarantee:
        """The guarantee where noise has this scale."""
        steps = self._moved / scale + self._rounding
        if self._law == "gaussian":
            return GaussianDP(math.hypot(*steps.tolist()))
        return LaplaceDP(tuple(steps.tolist()))

    def scale(self, epsilon: float, delta: float, prior: Guarantee) -> float:
        """The least scale that meets a budget, after what was spent before."""
        least = compose(prior, self.at(math.inf))
        if not least.delta(epsilon) < delta:
            raise ValueError(
                f"Got epsilon={epsilon:g} for {len(self._moved)} turns, expected more: noise on a"
                " grid costs as much. Take fewer turns."
            )
        if self._law == "gaussian" and isinstance(prior, GaussianDP):
            total = gaussian_mu(epsilon, delta)
            return self._gaussian_scale(math.sqrt(total**2 - prior.mu**2))
        scale = calibrate_noise(lambda scale: compose(prior, self.at(scale)), epsilon, delta)
        if prior == GaussianDP(0.0):
            # Pure steps meet the budget at every delta; a search may end just below them.
            left = epsilon - len(self._moved) * self._rounding
            pure = math.fsum(self._moved) / left * (1 + 1e-12) if left > 0 else math.inf
            scale = min(scale, pure)
        return scale

    def _gaussian_scale(self, mu: float) -> float:
        """Where ``sum (moved / scale + rounding)^2 = mu^2``; a quadratic equation for 1 / scale."""
        a = float(self._moved @ self._moved)
        b = float(self._moved.sum()) * self._rounding
        c = mu**2 - len(self._moved) * self._rounding**2
        # A little more than enough, so that no rounding takes epsilon above the budget.
        return (b + math.sqrt(b**2 + a * c)) / c * (1 + 1e-12)
