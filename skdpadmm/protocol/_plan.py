"""The plan, decided before any data is seen; the problem that it runs on, and the solution."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from skdpadmm._document import Block, Document, picture_of
from skdpadmm._numbers import percent_up, require, round_down, round_up
from skdpadmm.engine import Engine
from skdpadmm.losses import LogisticLoss, MultinomialLoss
from skdpadmm.network import Ownership
from skdpadmm.privacy import GaussianDP, Guarantee, Neighboring, compose, gaussian_mu, worst
from skdpadmm.privacy.claims import is_within
from skdpadmm.protocol._facts import Budget, Facts
from skdpadmm.protocol._release import Release
from skdpadmm.protocol._signal import Signal, signal_of
from skdpadmm.records import Rows

# Losses whose coefficients are read as log-odds.
LOGISTIC = (LogisticLoss, MultinomialLoss)


class PlanViolation(RuntimeError):
    """An algorithm tried to release what its plan does not list, or left a planned release out."""


@dataclass(frozen=True)
class Settings:
    """Constants of one run as attributes: parameters without "auto", and what follows from them."""

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
class Plan(Document):
    """What a fit will release and the privacy loss of that; compares by value and sees no data.

    A plan that would spend more than its budget is refused.

    Attributes
    ----------
    algorithm, facts, budget : str, Facts and Budget
    settings : Settings
        The algorithm's own constants, resolved: step sizes, clip bounds, lengths.
    releases : tuple of Release
        Those that prepare the coordinates come first.
    assumptions : tuple of str
        What the guarantee rests on, in words; no part of equality and of the digest.
    """

    algorithm: str
    facts: Facts
    budget: Budget
    settings: Settings
    releases: tuple[Release, ...]
    assumptions: tuple[str, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        if not self.budget.is_private:
            return
        facts, observer = self.facts, self.budget.observer
        for release in self.releases:
            noise, name = (release.noise_std, *release.agent_noise_std), f"release {release.name!r}"
            is_noisy = all(0 < noise_std < math.inf for noise_std in noise)
            expected = "a positive finite number. Check the scale of the clip bound"
            require(is_noisy, f"{name} with noise_std", min(noise), expected)
            is_bounded = all(0 < bound < math.inf for bound in release.sensitivities)
            expected = "a positive finite bound for each repetition"
            require(is_bounded, f"{name} with sensitivities", release.sensitivities, expected)
            # An observer that is left out would count as one who sees nothing of it.
            is_stated = not facts.agents.n_agents or set(facts.observers) <= set(release.seen_by)
            expected = f"one of each of {facts.observers}"
            require(is_stated, f"{name} with views of", release.seen_by, expected)
        budgets = facts.agents.budgets(self.budget.epsilon)
        promised: dict[float, list[Guarantee]] = {}
        for epsilon, guarantee in zip(budgets, self.guarantees(observer), strict=True):
            promised.setdefault(epsilon, []).append(guarantee)
        for epsilon, guarantees in promised.items():
            spent = worst(*guarantees)
            if not is_within(spent, epsilon, self.budget.delta):
                expected = f"at most {self.budget.delta:g}. The algorithm must add more noise"
                name = f"a plan of epsilon={epsilon:g} with delta"
                require(False, name, spent.delta(epsilon), expected)

    @property
    def adversary(self) -> str:
        """The observer that the budget is spent against."""
        return self.budget.observer

    @property
    def observers(self) -> tuple[str, ...]:
        """Who it states guarantees against."""
        return self.facts.observers

    @property
    def unit(self) -> str:
        """What is protected, "record", "agent" or "person"."""
        return self.facts.unit

    @property
    def neighboring(self) -> Neighboring:
        """The neighbouring relation."""
        return self.facts.neighboring

    def guarantee(self, observer: str | None = None) -> Guarantee:
        """The guarantee against an observer, by default the adversary, for all of the agents."""
        return worst(*self.guarantees(observer or self.budget.observer))

    def guarantees(self, observer: str) -> tuple[Guarantee, ...]:
        """Guarantees against an observer for each kind of agent; without agents there is one."""
        return _by_kind([r.view(observer).guarantees for r in self._seen(observer)])

    def worst_cases(self, observer: str) -> tuple[Guarantee, ...]:
        """The same at the worst realisation, where agents take part as often as they can."""
        return _by_kind([r.view(observer).worst_cases for r in self._seen(observer)])

    @cached_property
    def signal(self) -> Signal | None:
        """How much of what records say stands out of noise; None without noise, and of a stream."""
        facts, budget = self.facts, self.budget
        if not budget.is_private or facts.is_stream:
            return None
        if facts.setting == "central":
            total = GaussianDP(gaussian_mu(budget.epsilon, budget.delta))
            return signal_of(facts, (total,), budget.delta)
        return signal_of(facts, self.guarantees(facts.observers[0]), budget.delta)

    def _seen(self, observer: str) -> list[Release]:
        known = {name for release in self.releases for name in release.seen_by}
        expected = f"one of {sorted(known)}: no release of this plan names another one"
        require(observer in known, "observer", observer, expected)
        return [release for release in self.releases if observer in release.seen_by]

    def digest(self) -> bytes:
        """SHA-256 of the plan: different plans draw unrelated noise from the same seed."""
        return hashlib.sha256(json.dumps(_plain(self), sort_keys=True).encode()).digest()

    _layout = ("\n", "  ")

    def _blocks(self) -> Iterator[Block]:
        facts, budget, agents = self.facts, self.budget, self.facts.agents
        records = "a stream of records" if facts.is_stream else f"{facts.n_samples} records"
        if facts.count is not None:
            records = f"about {facts.n_samples} records, whose number is private"
        if facts.max_rows_per_person:
            records = f"{facts.n_samples} persons of up to {facts.max_rows_per_person} rows"
        shape = f"{facts.n_parameters} x {facts.loss.n_outputs} parameters"
        yield Block("title", [f"Plan of {self.algorithm} for {records}, {shape}"])
        others = facts.observers if budget.is_private else ()
        known = {name: self.guarantee(name) for name in dict.fromkeys((budget.observer, *others))}
        figures = {
            name: f"epsilon={round_up(guarantee.epsilon(budget.delta))}"
            if budget.is_private
            else "not private"
            for name, guarantee in known.items()
        }
        yield picture_of(figures, budget.observer)
        lines = []
        if sizes := agents.agent_sizes:
            lines.append(("agents", f"{len(sizes)}, with {min(sizes)} to {max(sizes)} records"))
        lines.extend(agents.describe())
        relation = f"{facts.neighboring.value}, unit {facts.unit}"
        total = f"epsilon={budget.epsilon:g}, delta={budget.delta:g}, {relation}"
        lines.append(("budget", total))
        for name, guarantee in known.items():
            text = guarantee.describe()
            if budget.is_private:
                accuracy = percent_up(guarantee.attack_accuracy())
                text += f", {figures[name]}, attack accuracy at most {accuracy}"
            lines.append((f"guarantee ({name})", text))
        if facts.is_stream and budget.is_private:
            one = signal_of(facts, self.guarantees(facts.observers[0]), budget.delta)
            text = f"fewer than about {one.missing:,} records are better stored, for one fit"
            lines.append(("signal", text))
        if self.signal is not None:
            lines.append(("signal", str(self.signal)))
            if type(facts.loss.unweighted) in LOGISTIC and not self.signal.settles_size:
                text = "uncertain in size, by a factor of up to 2; less so in sign and ratio"
                lines.append(("coefficients", text))
        if (known_of := facts.inference) is not None:
            of = "residuals of 0.3" if facts.loss.is_of_residual else "balanced classes"
            of = "targets that vary as much as their mean" if facts.loss.has_log_link else of
            text = (
                f"{known_of.share:.0%} of the squared budget; about {known_of.inflation:.2g} times"
                f" as wide as without privacy, +-{known_of.reach:.2g} for a column of standard"
                f" deviation 0.5 and {of} (in half-widths of declared ranges)"
            )
            lines.append(("intervals", text))
        # Who takes part in rounds is no question where there are no agents.
        settings = (s for s in self.settings if agents.n_agents or s[0] != "rounds")
        lines.append(("settings", ", ".join(dict.fromkeys(_described(settings)))))
        for r in self.releases:
            verb = "hides" if r.door == "hidden_term" else "releases"
            verb += " the last of" if r.is_hidden else ""
            verb = "sums messages for" if r.made_of == "sum" else verb
            many = "one for each record:" if r.door == "path_noise" else "any number of"
            times = many if r.times is None else r.times
            noise = f"noise std {round_down(r.noise_std)}" if r.noise_std else "no noise"
            if r.sensitivities:
                noise = f"sensitivity {round_up(max(r.sensitivities))}, {noise}"
            if r.made_of != "value":
                noise += f", of which an agent adds at least {round_down(min(r.agent_noise_std))}"
            lines.append((f"{verb} {times} x {r.name} {r.shape}", noise))
        yield Block("pairs", body=lines)
        if self.assumptions:
            assumed = [("assumes", each) for each in self.assumptions]
            yield Block("pairs", body=assumed, fold="Assumes")


def _by_kind(guarantees: list[tuple[Guarantee, ...]]) -> tuple[Guarantee, ...]:
    """Compose release after release, kind by kind; what has one guarantee has it for all kinds."""
    n_kinds = max(len(kinds) for kinds in guarantees)
    return tuple(
        compose(*(kinds[k if len(kinds) > 1 else 0] for kinds in guarantees))
        for k in range(n_kinds)
    )


def _described(settings: Iterable[tuple[str, Any]]) -> Iterator[str]:
    """Settings, and those inside of them, one by one."""
    for name, value in settings:
        if dataclasses.is_dataclass(value):
            yield from _described((f.name, getattr(value, f.name)) for f in fields(value))
        else:
            yield f"{name}={value:.4g}" if isinstance(value, float) else f"{name}={value}"


_ALWAYS = object()


def _plain(value: Any) -> Any:
    """Dataclasses as dicts that carry their type's name, tuples as lists, floats as text."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        compared = {
            f.name: _plain(getattr(value, f.name))
            for f in fields(value)
            # A field that came later says so, and leaves plans without it what they were.
            if f.compare and getattr(value, f.name) != f.metadata.get("unless", _ALWAYS)
        }
        return {"type": type(value).__name__, **compared}
    if isinstance(value, tuple | list):
        return [_plain(v) for v in value]
    value = value.item() if isinstance(value, np.generic) else value
    # With 12 digits, so that mathematical libraries which differ in the last bits agree.
    return f"{value:.12g}" if isinstance(value, float) else value


# Maps public arguments to an array, a sum over records.
Summand = Callable[..., NDArray[np.float64]]


class Elsewhere(Protocol):
    """Records that are not in this process."""

    def summed(self, make: Callable[[Problem], Summand]) -> Summand:
        """As `Problem.summed`."""

    def change(self, change: Callable[[Problem], Problem]) -> None:
        """Change the problems where the records are."""


def _silent(done: int) -> None:
    """Report nothing."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Problem:
    """The private records and the means to work on them.

    Attributes
    ----------
    rows : Rows
        Augmented rows in public coordinates, and in the basis that conditioning gave.
    target : ndarray of shape (n_samples,)
        Targets as the loss expects them, in public coordinates.
    engine, ownership : Engine, and Ownership or None
        Where blocks of rows run, and who holds which row, where there are agents.
    report : callable
        Called with the number of finished iterations, and nothing that depends on data.
    path : list of ndarray or None, default=None
        Keeps the iterates that `progress` gets, where a trace was asked for.
    weights : ndarray of shape (n_samples,), default=None
        Of records, in [0, 1]. Where persons are the unit, of their rows, each person's beside each
        other, of mean one.
    per_person : int, default=1
        Rows of each person, repetitions of weight 0 included.
    elsewhere : Elsewhere or None, default=None
        Where the records are, if not here: then `rows` have only what is public of them.
    """

    rows: Rows
    target: NDArray[np.float64] | NDArray[np.intp]
    engine: Engine
    ownership: Ownership | None = None
    report: Callable[[int], None] = _silent
    path: list[NDArray[np.float64]] | None = None
    weights: NDArray[np.float64] | None = None
    per_person: int = 1
    elsewhere: Elsewhere | None = None

    def summed(self, make: Callable[[Problem], Summand]) -> Summand:
        """Return the function that `make` returns for a problem, summed over all records.

        Where records are elsewhere, `make` is called there, once for the records of each place,
        and keeps what the function has to remember. Workers import both by their names.
        """
        return make(self) if self.elsewhere is None else self.elsewhere.summed(make)

    def changed(self, change: Callable[[Problem], Problem]) -> Problem:
        """The problem after a public change, which is made wherever its records are."""
        if self.elsewhere is not None:
            self.elsewhere.change(change)
        return change(self)

    def progress(self, done: int, point: Any = None) -> None:
        """Note that so many iterations are done, and where they led.

        Parameters
        ----------
        done : int
        point : ndarray of shape (..., n_parameters, n_outputs) or callable, default=None
            The model after them in public coordinates, or the models of agents; a function that
            makes it is called only where a path is kept. It is a function of what was released.
        """
        self.report(done)
        if self.path is not None and point is not None and done > len(self.path):
            self.path.append(np.array(point() if callable(point) else point))


@dataclass(frozen=True, eq=False, kw_only=True)
class Debiased:
    """Parameters after a debiased step, in public coordinates, with their covariance.

    `known`, of shape (n_parameters,): of which data say enough for an interval; `is_near`: whether
    the step was short enough for its error to be known.
    """

    parameters: NDArray[np.float64]
    covariance: NDArray[np.float64]
    known: NDArray[np.bool_]
    is_near: bool


@dataclass(frozen=True, eq=False, kw_only=True)
class Solution:
    """What an algorithm returns: a function of released quantities alone.

    Attributes
    ----------
    parameters : ndarray of shape (n_parameters, n_outputs)
        In public coordinates.
    n_iter : int
        Iterations that were run; fixed by the plan where it is private.
    derivative_bound : float, default=inf
        Bound of the derivative of the loss of a typical record, where gradients were clipped.
    score_variance : float, default=0
        Estimate of how much of the variance of a typical record's score is noise, too low where
        signal is weak; public, as is `doubt`: the share of labels, in [0, 1], of which noise leaves
        the scores ignorant.
    path_variance : float, default=0
        Variance of the score of a typical record over the points at which the last gradients were
        taken, of agents too. Only of a path that is released as a whole.
    parameters_per_agent : ndarray of shape (n_agents, n_parameters, n_outputs), default=None
        Where agents end up with models of their own.
    n_rounds, n_messages, bytes_sent : int, default=0
        Completed rounds, messages of agents and a server in all directions, and their size.
    debiased : Debiased or None, default=None
        What intervals are made of, where they were planned.
    """

    parameters: NDArray[np.float64]
    n_iter: int
    derivative_bound: float = math.inf
    score_variance: float = 0.0
    doubt: float = 0.0
    path_variance: float = 0.0
    parameters_per_agent: NDArray[np.float64] | None = None
    n_rounds: int = 0
    n_messages: int = 0
    bytes_sent: int = 0
    debiased: Debiased | None = None
