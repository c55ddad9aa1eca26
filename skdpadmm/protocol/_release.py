"""A release: a quantity that leaves a fit with noise, and what each observer learns of it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from skdpadmm.privacy import GaussianDP, Guarantee, NonPrivate, Pairs, worst
from skdpadmm.protocol._agents import MODEL


@dataclass(frozen=True, kw_only=True)
class View:
    """What one observer learns from a release, for each kind of agent; without agents there is one.

    `worst_cases` are the same at the worst realisation, where a guarantee is an average over what
    is random and does not depend on data; empty: there is no such average. `pairs` say what holds
    for each pair, where it matters which agent is observed by which.
    """

    observer: str
    guarantees: tuple[Guarantee, ...]
    worst_cases: tuple[Guarantee, ...] = ()
    pairs: Pairs | None = field(default=None, compare=False)


@dataclass(frozen=True, kw_only=True)
class Release:
    """A quantity that passes the gate with noise, once or several times.

    Attributes
    ----------
    name, shape : str and tuple of int
        What is released, and the shape of one repetition.
    sensitivities : tuple of float
        For each repetition, in order, given all that was released before: in Euclidean norm, or in
        L1 norm where the law is Laplace's. Of a path one for all of its steps; of a hidden term
        none.
    noise_std : float
        Standard deviation of the noise on each entry, the largest where agents differ; 0 only where
        the plan is not private.
    door : {"release", "share", "take_turns", "hidden_term", "path_noise"}, default="release"
        The method of the gate that releases it. "take_turns": agent by agent, each with as many
        turns as there are sensitivities. "hidden_term": noise that enters a problem before it is
        solved, and that nobody sees. "path_noise": the noise of the steps of a long loop.
    repeats : int or None, default=0
        How often it passes; 0: once for each sensitivity; None: as often as records arrive.
    views : tuple of View, default=()
        What each observer learns, by a theorem. Empty: whoever sees the model sees it all, and
        Gaussian mechanisms compose: ``mu^2 = sum (Delta_t / s)^2``.
    is_hidden : bool, default=False
        Whether only the last repetition is seen.
    made_of : {"value", "sum", "agents"}, default="value"
        "sum": of agents' messages, each of which has noise of its own, so that the noise depends on
        who sends. "agents": the first axis is that of agents, each with noise of its own.
    agent_noise_std : tuple of float, default=()
        Standard deviation of the noise of an agent, for each kind of agent.
    law : {"gaussian", "laplace"}, default="gaussian"
    fewest : int, default=0
        Messages that a sum has at least.
    cell, modulus, n_curators, threshold : float, int, int and int, default=0
        Of secret-shared sums: width of the public grid of messages and their noise; modulus of
        shares, whose range no such sum leaves; the number of curators, and of those whose shares
        are enough, 0: all are needed.
    """

    name: str
    shape: tuple[int, ...]
    sensitivities: tuple[float, ...]
    noise_std: float
    door: Literal["release", "share", "take_turns", "hidden_term", "path_noise"] = "release"
    repeats: int | None = 0
    views: tuple[View, ...] = ()
    is_hidden: bool = False
    made_of: Literal["value", "sum", "agents"] = "value"
    agent_noise_std: tuple[float, ...] = ()
    law: Literal["gaussian", "laplace"] = "gaussian"
    fewest: int = 0
    cell: float = 0.0
    modulus: int = 0
    n_curators: int = 0
    threshold: int = field(default=0, metadata={"unless": 0})

    @property
    def times(self) -> int | None:
        """How often it passes; None: as often as records arrive."""
        return len(self.sensitivities) if self.repeats == 0 else self.repeats

    @property
    def seen_by(self) -> tuple[str, ...]:
        """The observers that learn something of it."""
        return tuple(view.observer for view in self.views) or (MODEL,)

    @property
    def guarantee(self) -> Guarantee:
        """What holds against every observer and for every agent."""
        return worst(*(g for observer in self.seen_by for g in self.view(observer).guarantees))

    def view(self, observer: str = MODEL) -> View:
        """What one observer learns, with worst cases for each guarantee."""
        for view in self.views:
            if view.observer == observer:
                return replace(view, worst_cases=view.worst_cases or view.guarantees)
        mu = math.hypot(*self.sensitivities) / self.noise_std if self.noise_std else math.inf
        gaussian: Guarantee = GaussianDP(mu) if self.noise_std else NonPrivate()
        return View(observer=observer, guarantees=(gaussian,), worst_cases=(gaussian,))


def not_private(
    name: str, shape: tuple[int, ...], observers: tuple[str, ...], *, times: int = 1, **fields: Any
) -> Release:
    """A release without noise, of a plan that is not private."""
    views = tuple(View(observer=observer, guarantees=(NonPrivate(),)) for observer in observers)
    fields |= {"sensitivities": (math.inf,) * times, "views": views}
    return Release(name=name, shape=shape, noise_std=0.0, **fields)
