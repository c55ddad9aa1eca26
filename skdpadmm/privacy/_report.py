"""Reports: the guarantees of a fit, observer by observer."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from skdpadmm._document import Block, Document, frame_of, picture_of
from skdpadmm._numbers import percent_up, require_delta, round_down, round_up
from skdpadmm.privacy._guarantee import Guarantee, Neighboring
from skdpadmm.privacy._mixture import worst

_OBSERVER_COLUMNS = (
    *("observer", "sees", "unit", "neighbors", "(epsilon, delta)", "guarantee"),
    "attack accuracy",
)
_MOST_AGENTS = 10
# A noise scale is found by bisection, so epsilon of a plan may be less than its budget by as much.
_ROUNDING = 1e-9
_RELEASE_COLUMNS = ("release", "times", "shape", "sensitivity", "noise std")


class Pairs(Protocol):
    """Guarantees of each agent against each peer, where pairs differ."""

    def guarantee(self, agent: int, peer: int) -> Guarantee:
        """Return the guarantee of ``agent`` against ``peer``, by positions among sorted labels."""
        ...


@dataclass(frozen=True)
class Observer:
    """An observer of a fit, and the guarantee against it.

    Parameters
    ----------
    name : str
        Such as "model", "server", "sums", "peer", "eavesdropper".
    sees : str
        What it observes.
    unit : str
        What is protected: "record", "agent" or "person".
    neighboring : Neighboring
        Between which data sets.
    guarantee : Guarantee
        The one that holds for every agent.
    always : Guarantee or None, default=None
        The worst case, where ``guarantee`` is an average over randomness that does not depend on
        data: for an agent that takes part in every round, or for the worst path.
    per_agent : tuple of Guarantee, default=()
        That of each agent, where agents differ; ``guarantee`` is the worst of them.
    pairs : Pairs or None, default=None
        That of each pair of agents, where pairs differ.
    who : str, default=""
        Which agents or persons, where they are the unit: the name of their column and a digest of
        their labels. Guarantees of different ones do not add up, nor those of unnamed ones.

    Raises
    ------
    ValueError
        If a guarantee is stated under another neighbouring relation.

    Examples
    --------
    >>> from skdpadmm.privacy import GaussianDP, Neighboring, Observer
    >>> Observer("model", "the model", "record", Neighboring.ZERO_OUT, GaussianDP(0.2)).name
    'model'
    """

    name: str
    sees: str
    unit: str
    neighboring: Neighboring
    guarantee: Guarantee
    always: Guarantee | None = None
    per_agent: tuple[Guarantee, ...] = ()
    pairs: Pairs | None = None
    who: str = ""

    def __post_init__(self) -> None:
        if wrong := self.guarantee.relations() - {Neighboring(self.neighboring)}:
            raise ValueError(
                f"Got neighboring={str(self.neighboring)!r} with a guarantee under"
                f" {sorted(map(str, wrong))}, expected the same relation. Convert the guarantee, or"
                " state the relation that it is under."
            )


@dataclass(frozen=True)
class ReleaseLine:
    """One kind of release.

    Parameters
    ----------
    name : str
        What is released.
    times : int or None
        How often; None: once for each record that arrives.
    shape : tuple of int
        Shape of the released array.
    sensitivity : float or None
        The largest over the repetitions.
    noise_std : float
        Standard deviation of the Gaussian noise; 0 without privacy.
    agent_noise_std : tuple of float, default=()
        Of a sum of messages: the noise that each agent adds to its own.

    Examples
    --------
    >>> from skdpadmm.privacy import ReleaseLine
    >>> ReleaseLine("mean", 10, (3,), 0.01, 0.5).times
    10
    """

    name: str
    times: int | None
    shape: tuple[int, ...]
    sensitivity: float | None
    noise_std: float
    agent_noise_std: tuple[float, ...] = ()


@dataclass(frozen=True, repr=False)
class PrivacyReport(Document):
    """The proven guarantees of a fit, against each observer.

    Parameters
    ----------
    subject : str
        What was fitted.
    observers : tuple of Observer
        With distinct names.
    releases : tuple of ReleaseLine
        All that is released.
    delta : float
        The delta at which epsilons are printed, in [0, 1].
    assumptions : tuple of str
        Assumptions of the guarantees.
    not_covered : tuple of str
        What the guarantees do not cover.
    simulation : str
        Empty, or one sentence why this fit is a simulation.
    adversary : str, default=""
        Name of the observer that the budget was spent against; empty: the first one.
    agent_labels : tuple, default=()
        Labels of the agents, if there are any.
    if_unseen : tuple of (str, Guarantee), default=()
        Guarantees of single records of a stream if no intermediate state was observed.
    signal : str, default=""
        How much of what records say stands out of the noise, and whether that is weak.
    budget : float, default=0.0
        Epsilon of the budget, in [0, inf]: an epsilon that is below it by rounding alone, by a
        relative 1e-9, is stated as the budget, at `delta`. 0: every epsilon is stated as it is.
    signal_strength : float or None, default=None
        The number in `signal`.
    fits : tuple of PrivacyReport, default=()
        Where agents joined after the fit: the report of the fit, then that of each newcomer. The
        guarantees here hold for the records of all of them.

    Examples
    --------
    >>> from skdpadmm.privacy import GaussianDP, Neighboring, Observer, PrivacyReport
    >>> world = Observer("model", "the model", "record", Neighboring.ZERO_OUT, GaussianDP(0.2))
    >>> print(PrivacyReport("Lasso", (world,), (), 1e-6, (), (), ""))
    Privacy of Lasso
    <BLANKLINE>
    observer  sees       unit    neighbors  (epsilon, delta)  guarantee    attack accuracy
    model     the model  record  zero out   (0.8342, 1e-06)   GDP(mu=0.2)  53.99 %
    <BLANKLINE>
    Against model: no attack can tell whether a row was used more than 53.99 % of the time...
    """

    subject: str
    observers: tuple[Observer, ...]
    releases: tuple[ReleaseLine, ...]
    delta: float
    assumptions: tuple[str, ...]
    not_covered: tuple[str, ...]
    simulation: str
    adversary: str = ""
    agent_labels: tuple[Any, ...] = ()
    if_unseen: tuple[tuple[str, Guarantee], ...] = ()
    signal: str = ""
    budget: float = 0.0
    signal_strength: float | None = None
    fits: tuple[PrivacyReport, ...] = ()

    def __post_init__(self) -> None:
        require_delta(self.delta)
        names = [observer.name for observer in self.observers]
        if len(set(names)) < len(names):
            raise ValueError(f"Got observers {names}, expected distinct names.")
        object.__setattr__(self, "adversary", self.adversary or names[0])
        if self.adversary not in names:
            raise ValueError(f"Got adversary={self.adversary!r}, expected one of {names}.")

    def joined_by(self, newcomer: PrivacyReport) -> PrivacyReport:
        """Return the report of a fit and of an agent that joined it later with its own records.

        What holds for every agent is the weaker of both guarantees.

        Parameters
        ----------
        newcomer : PrivacyReport
            Against the same observers, under the same neighbouring relation.

        Returns
        -------
        PrivacyReport
        """
        (label,) = newcomer.agent_labels
        own = {o.name: o for o in newcomer.observers}
        everything = newcomer._observer(None)
        lines = (replace(line, name=f"{label}: {line.name}") for line in newcomer.releases)
        apart = "No record of an agent that joined is one of the fit, or of another newcomer."
        return replace(
            self,
            observers=tuple(self._with(o, own.get(o.name, everything)) for o in self.observers),
            releases=(*self.releases, *lines),
            delta=max(self.delta, newcomer.delta),
            budget=max(self.budget, newcomer.budget),
            assumptions=tuple(dict.fromkeys((*self.assumptions, *newcomer.assumptions, apart))),
            simulation=self.simulation or newcomer.simulation,
            agent_labels=(*self.agent_labels, label),
            fits=(*(self.fits or (self,)), newcomer),
        )

    def guarantee(self, observer: str | None = None) -> Guarantee:
        """Return the guarantee against ``observer``, by default the adversary.

        Raises
        ------
        ValueError
            If there is no such observer.
        """
        return self._observer(observer).guarantee

    def epsilon(self, observer: str | None = None, delta: float | None = None) -> float:
        """Return epsilon against ``observer`` at ``delta``, by default the adversary's and ours."""
        return self._epsilon(self.guarantee(observer), self._delta(delta))

    def metrics(self) -> dict[str, float]:
        """Return the guarantee against the adversary as floats, for trackers of experiments.

        Returns
        -------
        dict of str to float
            "epsilon" (inf without privacy), "delta" and "attack_accuracy"; "mu" where the guarantee
            is Gaussian, and "signal" where it is known.

        Examples
        --------
        >>> from skdpadmm.privacy import GaussianDP, Neighboring, Observer, PrivacyReport
        >>> world = Observer("model", "the model", "record", Neighboring.ZERO_OUT, GaussianDP(0.2))
        >>> metrics = PrivacyReport("Lasso", (world,), (), 1e-6, (), (), "").metrics()
        >>> {name: f"{value:.3g}" for name, value in metrics.items()}
        {'epsilon': '0.834', 'delta': '1e-06', 'attack_accuracy': '0.54', 'mu': '0.2'}
        """
        guarantee = self.guarantee()
        known = {"mu": getattr(guarantee, "mu", None), "signal": self.signal_strength}
        return {
            "epsilon": self.epsilon(),
            "delta": float(self.delta),
            "attack_accuracy": guarantee.attack_accuracy(),
            **{name: float(value) for name, value in known.items() if value is not None},
        }

    def worst_case(self, observer: str | None = None) -> Guarantee:
        """Return the guarantee at worst: for taking part in every round, or for the worst path.

        It is that of :meth:`guarantee` where nothing is averaged.
        """
        seen = self._observer(observer)
        return seen.guarantee if seen.always is None else seen.always

    def epsilon_per_agent(
        self, observer: str | None = None, delta: float | None = None
    ) -> NDArray[np.float64]:
        """Return epsilon of each agent against ``observer``, in the order of their labels.

        Parameters
        ----------
        observer : str, default=None
            Its name; None is the adversary.
        delta : float or None, default=None
            In [0, 1]. None is the report's own.

        Returns
        -------
        ndarray of shape (n_agents,)
            The largest is at most ``epsilon(observer, delta)``; all are inf where the fit is not
            private.

        Raises
        ------
        ValueError
            If there is no such observer, or there are no agents.
        """
        agents = self._per_agent(self._observer(observer))
        if not agents:
            raise ValueError(
                f"Got a report without agents against observer={observer!r}, expected agents: all"
                f" rows are in one place. Use epsilon({(observer or self.adversary)!r})."
            )
        return self._epsilons(agents, self._delta(delta))

    def epsilon_of(
        self, agent: Any, observer: str | None = None, delta: float | None = None
    ) -> float:
        """Return epsilon of one agent, by its label, against ``observer``.

        Raises
        ------
        ValueError
            If there is no such observer or no such agent.

        Examples
        --------
        >>> from skdpadmm.privacy import GaussianDP, Neighboring, Observer, PrivacyReport
        >>> own = (GaussianDP(0.1), GaussianDP(0.2))
        >>> seen = Observer("peer", "all", "record", Neighboring.ZERO_OUT, own[1], per_agent=own)
        >>> report = PrivacyReport("Lasso", (seen,), (), 1e-6, (), (), "", "", ("east", "west"))
        >>> round(report.epsilon_of("east"), 2), round(report.epsilon_of("west"), 2)
        (0.4, 0.83)
        """
        epsilons = self.epsilon_per_agent(observer, delta)
        return float(epsilons[self._position(agent, len(epsilons))])

    def pairwise(self, agent: Any, peer: Any, delta: float | None = None) -> float:
        """Return epsilon of one agent against one peer, by the labels of both.

        It depends on where the two are in the graph only where a theorem says so. The peer is
        alone here, also where the epsilon of "peer" is that of a coalition.

        Raises
        ------
        ValueError
            If there are no peers, or no such agents, or if the two are the same.
        """
        seen = self._observer("peer")
        i, j = (self._position(label, len(seen.per_agent)) for label in (agent, peer))
        if i == j:
            raise ValueError(
                f"Got agent {agent!r} as its own peer, expected two: it knows its rows."
            )
        if not seen.per_agent:
            return math.inf
        whole = self._epsilon(seen.per_agent[i], self._delta(delta))
        if seen.pairs is None:
            return whole
        return min(self._epsilon(seen.pairs.guarantee(i, j), self._delta(delta)), whole)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able dictionary; an infinite epsilon is the string "inf"."""
        return {
            "subject": self.subject,
            "delta": float(self.delta),
            "adversary": self.adversary,
            "agent_labels": [str(label) for label in self.agent_labels],
            "observers": [
                {
                    **{name: getattr(o, name) for name in ("name", "sees", "unit", "who")},
                    "neighboring": str(Neighboring(o.neighboring)),
                    **self._figures(o.guarantee),
                    "always": None if o.always is None else self._figures(o.always),
                    "epsilon_per_agent": list(
                        map(_finite_or_text, self._epsilons(self._per_agent(o), self.delta))
                    ),
                }
                for o in self.observers
            ],
            "releases": [
                {"name": r.name, "times": r.times, "shape": list(map(int, r.shape))}
                | {name: _finite_or_text(getattr(r, name)) for name in ("sensitivity", "noise_std")}
                for r in self.releases
            ],
            "if_unseen": [{"record": record} | self._figures(g) for record, g in self.if_unseen],
            "assumptions": list(self.assumptions),
            "not_covered": list(self.not_covered),
            "simulation": self.simulation,
            "signal": self.signal,
        }

    def to_frame(self) -> Any:
        """Return a pandas.DataFrame with a row for each observer; it needs pandas.

        Its columns are "observer", "sees", "unit", "neighboring", "epsilon", "delta", "guarantee",
        "attack_accuracy" (:meth:`Guarantee.attack_accuracy`), a share, and "worst_case_epsilon"
        (:meth:`worst_case`).
        """
        return frame_of(
            [
                self._row(o, o.name, o.guarantee)
                | {"worst_case_epsilon": self._epsilon(self.worst_case(o.name), self.delta)}
                for o in self.observers
            ]
        )

    def to_markdown(self) -> str:
        """Return the report as a section "Privacy" for a model card, in Markdown."""
        return self._model_card(self.subject)

    def _blocks(self) -> Iterator[Block]:
        yield Block("title", [f"Privacy of {self.subject}"])
        if self.simulation:  # first, because it voids the guarantees that follow
            yield Block("warning", [f"SIMULATION: {self.simulation}"])
        rows = list(self._rows())
        known = {row["observer"]: row for row in rows}
        drawn = {o.name: self._figure(known[o.name]["epsilon"]) for o in self.observers}
        yield picture_of(drawn, self.adversary)
        yield Block("table", _OBSERVER_COLUMNS, [self._cells(row) for row in rows])
        for fit in self.fits[1:]:
            words = f"{fit._figure(fit.epsilon())}, {fit.guarantee().describe()}"
            yield Block("text", [f"{fit.agent_labels[0]!r} joined later: {words}."])
        differ = [o for o in self.observers if len(set(o.per_agent)) > 1]
        if differ:
            yield Block("text", [self._range(observer) for observer in differ])
        if few := [o for o in differ if len(o.per_agent) <= _MOST_AGENTS]:
            columns = [self._epsilons(o.per_agent, self.delta).tolist() for o in few]
            labels = map(str, self._labels(len(columns[0])))
            cells = zip(labels, *(map(round_up, column) for column in columns), strict=True)
            header = ("agent", *(f"epsilon, {o.name}" for o in few))
            yield Block("table", header, list(cells), fold="Agents")
        if len(self.observers) > 1:
            yield Block("text", [f"The budget was spent against: {self.adversary}."])
        yield Block("text", [self._meaning(self._observer(None), known[self.adversary])])
        if self.releases:
            of_agents = any(release.agent_noise_std for release in self.releases)
            columns_of_agents = ("of each agent",) if of_agents else ()
            lines = [self._release(release, of_agents) for release in self.releases]
            yield Block("table", (*_RELEASE_COLUMNS, *columns_of_agents), lines, fold="Releases")
        if self.signal:
            yield Block("text", [f"Signal: {self.signal}."])
        for title, remarks in self._remarks():
            if remarks:
                yield Block("list", [f"{title}:"], remarks, fold=title)

    def _remarks(self) -> list[tuple[str, tuple[str, ...]]]:
        """Return titles and lines of the lists at the end."""
        unseen = (
            f"{name}: {self._figure(self._epsilon(g, self.delta))}, {g.describe()}"
            for name, g in self.if_unseen
        )
        return [
            ("If no intermediate state was seen", tuple(unseen)),
            ("Assumes", self.assumptions),
            ("Does not cover", self.not_covered),
        ]

    def _with(self, o: Observer, own: Observer) -> Observer:
        """Return an observer of the fit who also sees what a newcomer sends."""
        at_worst = [each.always or each.guarantee for each in (o, own)]
        return replace(
            o,
            guarantee=worst(o.guarantee, own.guarantee),
            always=worst(*at_worst) if o.always or own.always else None,
            per_agent=(*self._per_agent(o), own.guarantee),
            pairs=None,
            who=o.who if o.who == own.who else "",
        )

    def _rows(self) -> Iterator[dict[str, Any]]:
        """Yield what holds against each observer, and at worst where that differs."""
        for o in self.observers:
            yield self._row(o, o.name, o.guarantee)
            if o.always is not None:
                yield self._row(o, f"{o.name}, at worst", o.always)

    def _row(self, o: Observer, name: str, guarantee: Guarantee) -> dict[str, Any]:
        return {
            "observer": name,
            **{"sees": o.sees, "unit": o.unit, "neighboring": str(Neighboring(o.neighboring))},
            **{"epsilon": self._epsilon(guarantee, self.delta), "delta": float(self.delta)},
            "guarantee": guarantee.describe(),
            "attack_accuracy": guarantee.attack_accuracy(),
        }

    def _cells(self, row: dict[str, Any]) -> tuple[str, ...]:
        relation = row["neighboring"].replace("_", " ")
        figures = self._figure(row["epsilon"]), row["guarantee"], percent_up(row["attack_accuracy"])
        return (row["observer"], row["sees"], row["unit"], relation, *figures)

    def _meaning(self, o: Observer, row: dict[str, Any]) -> str:
        """What the guarantee against an observer says of an attack, in words."""
        is_replaced = Neighboring(o.neighboring) is Neighboring.REPLACE_ONE
        article = "an" if o.unit[0] in "aeiou" else "a"
        if o.unit == "record":
            question = "row A from row B" if is_replaced else "whether a row was used"
        elif is_replaced:
            question = f"one version of the rows of {article} {o.unit} from another"
        else:
            question = f"whether the rows of {article} {o.unit} were used"
        return (
            f"Against {o.name}: no attack can tell {question} more than"
            f" {percent_up(row['attack_accuracy'])} of the time (a coin flip: 50 %)."
        )

    def _range(self, observer: Observer) -> str:
        epsilons = self._epsilons(observer.per_agent, self.delta)
        low, median, high = np.quantile(epsilons, [0.0, 0.5, 1.0], method="higher").tolist()
        return (
            f"{observer.name}: epsilon per agent from {round_up(low)} to {round_up(high)}, "
            f"median {round_up(median)}"
        )

    def _release(self, release: ReleaseLine, of_agents: bool) -> tuple[str, ...]:
        agents = ""
        if release.agent_noise_std:
            least, most = (round_down(f(release.agent_noise_std)) for f in (min, max))
            agents = least if least == most else f"{least} to {most}"
        return (
            release.name,
            "as records arrive" if release.times is None else str(release.times),
            str(tuple(release.shape)),
            "hidden" if release.sensitivity is None else round_up(release.sensitivity),
            round_down(release.noise_std),
            *((agents,) if of_agents else ()),
        )

    def _observer(self, name: str | None) -> Observer:
        known = {observer.name: observer for observer in self.observers}
        name = self.adversary if name is None else name
        if name not in known:
            hint = " Pass delta by its name: delta=1e-5." if isinstance(name, Real) else ""
            raise ValueError(f"Got observer={name!r}, expected one of {list(known)}.{hint}")
        return known[name]

    def _per_agent(self, observer: Observer) -> tuple[Guarantee, ...]:
        """Guarantees of the agents; where all are alike, the common one for each."""
        return observer.per_agent or (observer.guarantee,) * len(self.agent_labels)

    def _labels(self, n_agents: int) -> list[Any]:
        return list(self.agent_labels) or list(range(n_agents))

    def _position(self, agent: Any, n_agents: int) -> int:
        labels = self._labels(n_agents)
        if agent not in labels:
            raise ValueError(f"Got agent={agent!r}, expected one of {labels[:20]}.")
        return labels.index(agent)

    def _delta(self, delta: float | None) -> float:
        return self.delta if delta is None else delta

    def _epsilon(self, guarantee: Guarantee, delta: float) -> float:
        """Epsilon of a guarantee; that of the budget where it is met, which is no smaller."""
        epsilon = guarantee.epsilon(delta)
        is_met = delta == self.delta and self.budget * (1.0 - _ROUNDING) <= epsilon <= self.budget
        return self.budget if is_met else epsilon

    def _epsilons(self, guarantees: Sequence[Guarantee], delta: float) -> NDArray[np.float64]:
        """Return every epsilon (len(guarantees),), computed once for each distinct guarantee."""
        # By identity: to hash a long mixture for each of many agents would take longer.
        distinct = {id(guarantee): guarantee for guarantee in guarantees}
        known = {key: self._epsilon(guarantee, delta) for key, guarantee in distinct.items()}
        return np.array([known[id(guarantee)] for guarantee in guarantees], dtype=np.float64)

    def _figures(self, guarantee: Guarantee) -> dict[str, Any]:
        epsilon = _finite_or_text(self._epsilon(guarantee, self.delta))
        figures = {"epsilon": epsilon, "attack_accuracy": guarantee.attack_accuracy()}
        return figures | {"guarantee": guarantee.to_dict()}

    def _figure(self, epsilon: float) -> str:
        if math.isinf(epsilon):
            return "not private"
        return f"({round_up(epsilon)}, {round_up(self.delta)})"


def _finite_or_text(value: float | None) -> float | str | None:
    if value is None:
        return None
    return float(value) if math.isfinite(value) else str(float(value))
