"""What can leave a fit: quantities with noise added, and terms of noise that stay hidden."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from skdpadmm.privacy import GaussianDP, Guarantee, NonPrivate, Pairs, worst


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

    # The method of the gate that it leaves by.
    passes_by: ClassVar[str] = "release"

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
        Of the solutions of the perturbed problems, of all repetitions together.
    seen_by : tuple of str
        The observers that see the solution.
    times : int, default=1
        How often it is drawn, each time anew.
    """

    passes_by: ClassVar[str] = "hidden_term"

    name: str
    shape: tuple[int, ...]
    noise_std: float
    guarantee: Guarantee
    seen_by: tuple[str, ...] = ("model",)
    times: int = field(default=1, metadata={"unless": 1})

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
class NoisyPath:
    """An iterate to which every step of a long loop adds noise, of which the end leaves, or all.

    The loop asks the gate for the noise of some steps at once. What an iterate is worth to whoever
    sees it is the theorem's business, so that there is one for the path and others for its end.

    Attributes
    ----------
    name : str
        What the noise enters.
    shape : tuple of int
        Shape of an iterate.
    sensitivity : float
        How far one step can move in Euclidean norm between neighbouring data sets, given the
        iterate before it.
    noise_std : float
        Standard deviation of the noise on each entry; 0 only where the plan is not private.
    guarantee : Guarantee
        Of what is seen.
    worst_case : Guarantee
        The same for the least protected record, where `guarantee` is an average over positions
        that are drawn at random and stay secret.
    times : int or None
        How many steps there are; None: as many as records arrive.
    seen_by : tuple of str
        The observers that see it.
    is_hidden : bool
        Whether the end alone is seen.
    """

    passes_by: ClassVar[str] = "path_noise"

    name: str
    shape: tuple[int, ...]
    sensitivity: float
    noise_std: float
    guarantee: Guarantee
    worst_case: Guarantee
    times: int | None
    seen_by: tuple[str, ...] = ("model",)
    is_hidden: bool = True

    @property
    def sensitivities(self) -> tuple[float, ...]:
        """Of each kind of step: there is one."""
        return (self.sensitivity,)

    def guarantees(self, observer: str) -> tuple[Guarantee, ...]:
        """What holds against an observer, for the one kind of agent there is."""
        return (self.guarantee,)

    def worst_cases(self, observer: str) -> tuple[Guarantee, ...]:
        """The same at the worst position."""
        return (self.worst_case,)


@dataclass(frozen=True, kw_only=True)
class View:
    """What one observer learns, for each kind of agent.

    Attributes
    ----------
    observer : str
    guarantees : tuple of Guarantee
    worst_cases : tuple of Guarantee
        The same at its worst realisation, where a guarantee is an average over what is random and
        does not depend on data.
    pairs : Pairs or None, default=None
        Where it matters which agent is observed by which, what holds for each pair.
    """

    observer: str
    guarantees: tuple[Guarantee, ...]
    worst_cases: tuple[Guarantee, ...]
    pairs: Pairs | None = field(default=None, compare=False)


@dataclass(frozen=True, kw_only=True)
class Viewed(Release):
    """A quantity of which observers learn more or less.

    `sensitivities` and `noise_std` are those of the quantity itself; what an observer learns of it
    is stated by theorems.

    Attributes
    ----------
    views : tuple of View
        One for each name in `seen_by`.
    """

    views: tuple[View, ...]

    @property
    def guarantee(self) -> Guarantee:
        """What holds against every observer and for every agent."""
        return worst(*(guarantee for view in self.views for guarantee in view.guarantees))

    def guarantees(self, observer: str) -> tuple[Guarantee, ...]:
        """What holds against an observer, for each kind of agent."""
        return self.view(observer).guarantees

    def worst_cases(self, observer: str) -> tuple[Guarantee, ...]:
        """The same at its worst realisation."""
        return self.view(observer).worst_cases

    def view(self, observer: str) -> View:
        """What one observer learns."""
        return next(view for view in self.views if view.observer == observer)


@dataclass(frozen=True, kw_only=True)
class MessageSum(Viewed):
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
    """

    shares: tuple[float, ...]
    fewest: int


@dataclass(frozen=True, kw_only=True)
class SharedSum(MessageSum):
    """A sum of agents' messages by secret sharing: nobody but its sender ever holds a message.

    Messages are rounded to a public grid and so is the noise that its sender adds; the integers
    are shared out among curators, and the sum that they reconstruct is exact.

    Attributes
    ----------
    cell : float
        Width of the grid.
    modulus : int
        Of the shares; no sum of messages and their noise leaves its range.
    n_curators : int
        Among how many a message is shared out.
    """

    passes_by: ClassVar[str] = "share"

    cell: float
    modulus: int
    n_curators: int


@dataclass(frozen=True, kw_only=True)
class AgentMessages(Viewed):
    """What every agent says at once, each to its neighbours and with noise of its own.

    Its first axis is that of agents. `sensitivities` are those of one agent's part, `noise_std` is
    the largest of `shares`.

    Attributes
    ----------
    shares : tuple of float
        Standard deviation of the noise of an agent, for each kind.
    """

    shares: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class AgentTurns(AgentMessages):
    """What agents say one after another, each in turns of its own and with noise of its own.

    Every agent with rows takes as many turns as there are sensitivities, whenever it is awake; one
    without rows has nothing to hide and takes none. A turn's noise is drawn on the public grid, and
    what it is added to is rounded to the same grid, which the guarantees count.

    Attributes
    ----------
    law : {"gaussian", "laplace"}, default="gaussian"
        Of the noise. `sensitivities` are in the Euclidean norm, or in the L1 norm for the second.
    """

    passes_by: ClassVar[str] = "take_turns"

    law: Literal["gaussian", "laplace"] = field(default="gaussian", metadata={"unless": "gaussian"})


@dataclass(frozen=True, kw_only=True)
class Token(Viewed):
    """What is handed from agent to agent, each of whom changes it and adds noise.

    It is released to its next holder, hop by hop. `sensitivities` are those of a hop whose holder
    takes part.
    """
