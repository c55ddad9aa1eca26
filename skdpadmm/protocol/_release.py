"""What can leave a fit: quantities with noise added, and terms of noise that stay hidden."""

from __future__ import annotations

import math
from dataclasses import dataclass

from skdpadmm.privacy import GaussianDP, Guarantee, NonPrivate, worst


@dataclass(frozen=True, kw_only=True)
class Release:
    """A quantity that leaves the gate with Gaussian noise, once or several times.

    Attributes
    ----------
    name : str
        What is released.
    shape : tuple of int
        Its shape.
    sensitivities : tuple of float
        For each repetition, in order: how far the quantity can move in Euclidean norm between
        neighbouring data sets, given all that was released before.
    noise_std : float
        Standard deviation of the noise on each entry; 0 only where the plan is not private.
    seen_by : tuple of str
        The observers that see it.
    """

    name: str
    shape: tuple[int, ...]
    sensitivities: tuple[float, ...]
    noise_std: float
    seen_by: tuple[str, ...] = ("model",)

    @property
    def times(self) -> int:
        """How often it is released."""
        return len(self.sensitivities)

    @property
    def guarantee(self) -> Guarantee:
        """Adaptive composition of Gaussian mechanisms, exact: ``mu^2 = sum (Delta_t / s_t)^2``."""
        if self.noise_std == 0:
            return NonPrivate()
        return GaussianDP(math.hypot(*self.sensitivities) / self.noise_std)

    def guarantees(self, observer: str) -> tuple[Guarantee, ...]:
        """What holds against an observer for each kind of agent; without agents there is one."""
        return (self.guarantee,)

    def worst_cases(self, observer: str) -> tuple[Guarantee, ...]:
        """The same where a guarantee is no average over rounds that were taken part in."""
        return self.guarantees(observer)


@dataclass(frozen=True, kw_only=True)
class HiddenPath(Release):
    """An iterate that takes noise in every step and of which only the last leaves the algorithm.

    Its guarantee is that of a theorem about the whole iteration, not the composition of its steps.

    Attributes
    ----------
    theorem : Guarantee
        Of the last iterate, and of all that is made of it alone.
    """

    theorem: Guarantee

    @property
    def guarantee(self) -> Guarantee:
        """What the theorem says."""
        return NonPrivate() if self.noise_std == 0 else self.theorem


@dataclass(frozen=True, kw_only=True)
class HiddenTerm:
    """Gaussian noise that enters a problem before it is solved, and that nobody ever sees.

    What is solved with it carries a guarantee of its own, by a theorem that is not about noise on a
    quantity: there is no sensitivity to declare.

    Attributes
    ----------
    name : str
        What the noise enters.
    shape : tuple of int
    noise_std : float
        Standard deviation of each entry.
    guarantee : Guarantee
        Of the solution of the perturbed problem.
    seen_by : tuple of str
        The observers that see the solution.
    """

    name: str
    shape: tuple[int, ...]
    noise_std: float
    guarantee: Guarantee
    seen_by: tuple[str, ...] = ("model",)

    @property
    def times(self) -> int:
        """Once."""
        return 1

    @property
    def sensitivities(self) -> tuple[float, ...]:
        """None: the guarantee is not about a sensitivity."""
        return ()

    def guarantees(self, observer: str) -> tuple[Guarantee, ...]:
        """What holds against an observer, for the one kind of agent there is."""
        return (self.guarantee,)

    def worst_cases(self, observer: str) -> tuple[Guarantee, ...]:
        """The same: nothing is averaged."""
        return self.guarantees(observer)


@dataclass(frozen=True, kw_only=True)
class View:
    """What one observer learns from sums of messages, for each kind of agent.

    Attributes
    ----------
    observer : str
    guarantees : tuple of Guarantee
    worst_cases : tuple of Guarantee
        The same for an agent that takes part as often as it can.
    """

    observer: str
    guarantees: tuple[Guarantee, ...]
    worst_cases: tuple[Guarantee, ...]


@dataclass(frozen=True, kw_only=True)
class MessageSum(Release):
    """A sum of agents' messages, to each of which its sender adds noise of its own.

    `sensitivities` are those of a message that meets its agent's limit. `noise_std` is what is
    expected of the sum: how much arrives depends on who sends, and each observer is promised no
    more than what surely arrives.

    Attributes
    ----------
    shares : tuple of float
        Standard deviation of the noise on a message, for each kind of agent.
    fewest : int
        Messages without which nobody learns a sum.
    views : tuple of View
    """

    shares: tuple[float, ...]
    fewest: int
    views: tuple[View, ...]

    @property
    def guarantee(self) -> Guarantee:
        """What holds against every observer and for every agent."""
        return worst(*(guarantee for view in self.views for guarantee in view.guarantees))

    def guarantees(self, observer: str) -> tuple[Guarantee, ...]:
        """What holds against an observer, for each kind of agent."""
        return self._view(observer).guarantees

    def worst_cases(self, observer: str) -> tuple[Guarantee, ...]:
        """The same for an agent that takes part as often as it can."""
        return self._view(observer).worst_cases

    def _view(self, observer: str) -> View:
        return next(view for view in self.views if view.observer == observer)
