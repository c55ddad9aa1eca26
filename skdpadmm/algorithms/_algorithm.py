"""The base of every algorithm: parameters, a plan of public facts, and a run through the gate.

An algorithm's own file keeps three things: its parameters, what is released with how much noise
(`released`), and `run`, which reads like the paper.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from skdpadmm._sklearn import AUTO, LinkedEstimator, expected, is_allowed, parameter
from skdpadmm.penalties import Penalty
from skdpadmm.privacy import GaussianDP, Guarantee, Neighboring, compose
from skdpadmm.protocol import (
    Agents,
    Budget,
    Facts,
    Gate,
    Plan,
    Problem,
    Release,
    Settings,
    Solution,
)
from skdpadmm.records import Coordinates, Rows

Array = NDArray[np.float64]
Operator = Callable[[Array], Array]
Released = tuple[Settings, *tuple[Release, ...]]


@dataclass(kw_only=True, eq=False, repr=False)
class Algorithm(LinkedEstimator, ABC):
    """Base of all algorithms: a plan is made without data, then run on data through a gate.

    A subclass is a ``@dataclass(kw_only=True, eq=False, repr=False)`` whose fields are its
    parameters, each a `parameter`.

    Parameters
    ----------
    trace : bool, default=False
        Whether the fitted estimator keeps the model after each iteration, in `coef_path_` and
        `intercept_path_`. It costs no budget and changes nothing else: what is kept is a function
        of what was released. Refused where the guarantee does not cover the iterates.

    Attributes
    ----------
    setting : str or tuple of str
        Who holds the records: "central", "federated", "decentralized" or "personalized", or several
        of them.
    units : tuple of str
        Whose contribution it can protect: "record", "agent", "person" or several of them. Rows of
        persons have weights, so that "person" also declares that records may have some.
    conditionable : bool
        Whether it works in any basis, so that private conditioning can serve it.
    releases_path : bool
        Whether its guarantees, also that of whoever sees the model, cover every iterate that it
        gives to `Problem.progress`.
    exact : bool
        Whether it finds the optimum at ``epsilon=inf`` by itself. For the others that limit is what
        `exact_algorithm` has for the setting.
    noiseless : bool
        Whether an object of it runs at ``epsilon=inf`` as it is, without noise, and with a clip
        bound of inf that nothing reaches. Otherwise the exact optimum takes its place there.
    takes_corners : bool
        Whether neither its steps nor its guarantee rest on a bound of the curvature, so that a loss
        may have corners, such as a plain hinge: a `smoothness` of inf.
    takes_add_remove : bool
        Whether the number of records may be private: whether `run` uses it nowhere but as the size
        of arrays, divides sums by ``facts.n_rows``, and releases every iterate.
    supports : tuple of str
        What graphs may have beside one set of links that never fails: "absences" of agents and
        links, "changes" from round to round, and "directions" of links.
    streaming : bool
        Whether it takes records as they arrive, each of them once. Then it also has `n_expected`,
        the number of records that penalties are spread over; ``start(plan, problem)``, the public
        state before any record, which counts `n_steps`; ``arrive(plan, problem, gate, state,
        hidden)``, the state after new records, and what is hidden; and ``solution(plan, problem,
        state)``. A state is a function of what was released. What is hidden stays in the memory of
        the process and is handed back with the next records. It is None in the beginning, and where
        a copy of the stream goes on.
    distributed : bool
        Whether it reaches records by `Problem.summed` alone, so that they may be chunks of dask,
        which stay with their workers.
    """

    setting: ClassVar[str | tuple[str, ...]]
    units: ClassVar[tuple[str, ...]] = ("record", "agent")
    supports: ClassVar[tuple[str, ...]] = ()
    noiseless: ClassVar[bool] = False

    @property
    def streaming(self) -> bool:
        """Whether it takes records as they arrive; not, unless an algorithm says so."""
        return False

    @property
    def distributed(self) -> bool:
        """Whether its records may be elsewhere; not, unless an algorithm says so."""
        return False

    @property
    def takes_add_remove(self) -> bool:
        """Whether the number of records may be private; not, unless an algorithm says so."""
        return False

    @property
    def takes_corners(self) -> bool:
        """Whether it serves losses without a bound of the curvature; not, unless it says so."""
        return False

    trace: bool = parameter(False, "boolean")

    @property
    def releases_path(self) -> bool:
        """Whether every iterate counts as released; not, unless an algorithm says so."""
        return False

    @property
    def exact(self) -> bool:
        """Whether it finds the optimum at ``epsilon=inf`` by itself."""
        return False

    @property
    def conditionable(self) -> bool:
        """Whether private conditioning can serve it."""
        return True

    def check_parameters(self) -> None:
        """Refuse parameters outside of their range."""
        for entry in fields(self):
            value, allowed = getattr(self, entry.name), entry.metadata["allowed"]
            if not is_allowed(value, allowed):
                advice = " 'auto' is chosen from public facts." if AUTO in allowed else ""
                raise ValueError(
                    f"Got {entry.name}={value!r}, expected {expected(allowed)}.{advice}"
                )

    def check(self, facts: Facts) -> None:
        """Refuse parameters outside of their range, and facts that it does not serve.

        Raises
        ------
        ValueError
            Says what was got, what was expected and what to do.
        """
        self.check_parameters()
        if facts.unit not in self.units:
            raise ValueError(
                f"Got unit={facts.unit!r} for {type(self).__name__}, expected"
                f" {' or '.join(map(repr, self.units))}. Choose another algorithm or unit."
            )
        if facts.conditioning is not None and not self.conditionable:
            raise ValueError(
                f"Got conditioning with {self!r}, expected conditioning=None or 'auto': it works on"
                " the user's coordinates, or rests on bounds of curvature that only they have."
            )
        if math.isinf(facts.loss.smoothness) and not self.takes_corners:
            raise ValueError(
                f"Got {facts.loss!r} with smoothness=inf for {self!r}, expected a finite bound of"
                " the curvature: its steps or its guarantee rest on one. Pass ConsensusADMM() or"
                " GradientDescent(), whose guarantee of the path needs none."
            )
        if facts.weight_spread and "person" not in self.units:
            raise ValueError(
                f"Got sample_weight, or max_weight, for {self!r}, expected neither: it does not"
                " weigh records. Choose ConsensusADMM or GradientDescent."
            )
        is_counted = facts.neighboring is Neighboring.ADD_REMOVE
        # Without privacy nothing is counted, and an exact optimum may be found.
        is_exact = self.exact and facts.count is None
        if is_counted and not (is_exact or (self.takes_add_remove and facts.unit == "record")):
            raise ValueError(
                f"Got neighboring='add_remove' with {self!r} and unit={facts.unit!r}, expected"
                " ConsensusADMM(), or GradientDescent() whose steps use all records and whose path"
                " is released, and records as the unit: others rest on a public number of records."
                " Choose one of them, or neighboring='zero_out'."
            )
        missing = [need for need in facts.agents.needs if need not in self.supports]
        if missing and not self.exact:
            raise ValueError(
                f"Got a graph with {' and '.join(missing)} for {self!r}, expected one undirected"
                " graph, participation=1 and dropout=0. MultiStepADMM supports absences and"
                " changes, and DecentralizedGradientDescent also directions."
            )
        if facts.agents.edge_noise and not hasattr(self, "edge_noise"):
            raise ValueError(
                f"Got agents with edge_noise={facts.agents.edge_noise:g} for {type(self).__name__},"
                " expected 0: its messages have no such noise. Take FederatedADMM or"
                " DecentralizedGradientDescent."
            )
        self.check_facts(facts)

    def check_facts(self, facts: Facts) -> None:
        """Refuse parameters that contradict each other or the facts; nothing by default."""

    def share_among(self, agents: Agents) -> Agents:
        """Return the agents, with curators of secret shares, or with noise that pairs share."""
        return agents

    def plan(self, facts: Facts, budget: Budget) -> Plan:
        """Decide every release and its noise from public facts.

        Parameters
        ----------
        facts : Facts
            What they prepare comes first among the releases and is paid from the same budget.
        budget : Budget

        Returns
        -------
        Plan

        Raises
        ------
        ValueError
            Where a parameter lies outside its range, or outside the range that its theorem covers.
        """
        self.check(facts)
        if budget.is_pure and getattr(self, "noise", "gaussian") != "laplace":
            raise ValueError(
                f"Got delta=0 with {self!r}, expected a float in (0, 1): its noise is Gaussian. Use"
                " noise='laplace', where an algorithm has it."
            )
        if self.trace and budget.is_private and not self.releases_path:
            raise ValueError(
                f"Got trace=True with {self!r}, expected False: its guarantee does not cover the"
                " iterates. Release the whole path where it can (guarantee='path',"
                " release='path'), or take another algorithm."
            )
        settings, *releases = self.released(facts, budget)
        if self.noiseless and not budget.is_private and "clip_norm" in dict(settings):
            settings = settings.but(clip_norm=math.inf)
        return Plan(
            algorithm=type(self).__name__,
            facts=facts,
            budget=budget,
            settings=settings,
            releases=(*facts.preparations, *releases),
            assumptions=self.assumptions(facts, budget),
        )

    @abstractmethod
    def released(self, facts: Facts, budget: Budget) -> Released:
        """Settings of a run, from `resolved`, followed by its releases."""

    def assumptions(self, facts: Facts, budget: Budget) -> tuple[str, ...]:
        """What the guarantee rests on beside what all of them do, in words."""
        return ()

    @abstractmethod
    def run(self, plan: Plan, problem: Problem, gate: Gate) -> Solution:
        """Run the plan on data; every number in the solution has passed the gate.

        Parameters
        ----------
        plan : Plan
        problem : Problem
            Its rows are in the basis that was prepared.
        gate : Gate

        Returns
        -------
        Solution
        """

    def resolved(self, **values: Any) -> Settings:
        """Parameters, with these values in place of "auto", and further constants of a run.

        ``n_averaged`` follows from ``n_iter`` and ``tail_fraction``.
        """
        constants = values
        for entry in fields(self):
            value = getattr(self, entry.name)
            is_absent = entry.metadata.get("is_later", False) and value == entry.default
            if entry.name in ("trace", "edge_noise") or is_absent:
                # The same noise is drawn with a trace; agents know which noise they share.
                continue
            if isinstance(value, str) and value == "auto":
                name = f"{type(self).__name__}.released"
                assert entry.name in values, f"Pass {entry.name} to self.resolved in {name}."
            else:
                assert entry.default == "auto" or entry.name not in values, f"{entry.name} is set"
                is_plain = value is None or isinstance(value, str)
                constants[entry.name] = value if is_plain else entry.metadata["convert"](value)
        if "n_iter" in constants and "tail_fraction" in constants:
            tail = tail_length(constants["tail_fraction"], constants["n_iter"])
            constants.setdefault("n_averaged", tail)
        return Settings(tuple(constants.items()))


def refuse(advice: str, *cases: tuple[bool, str, str]) -> None:
    """Raise for the first case that applies: a condition, what was got, what is expected."""
    for applies, got, instead in cases:
        if applies:
            raise ValueError(f"Got {got}, expected {instead}. {advice}")


def spent_before(facts: Facts, budget: Budget) -> list[Guarantee]:
    """The guarantee of all preparations, for each kind of agent."""
    views = [release.view(budget.observer).guarantees for release in facts.preparations]
    nothing: list[Guarantee] = [GaussianDP(0.0)] * len(facts.agents.sizes)
    return [compose(*parts) for parts in zip(*views, strict=True)] or nothing


def tail_length(share: float, n: int) -> int:
    """How many of n steps make up a share of them, at their end: at least one."""
    return max(1, math.ceil(share * n))


def serves(algorithm: Algorithm | type[Algorithm], setting: str) -> bool:
    """Whether an algorithm serves a setting, such as "central" or "federated"."""
    served = algorithm.setting
    return setting in (served if isinstance(served, tuple) else (served,))


def check_zero_at_zero(penalty: Penalty, n_features: int = 1) -> None:
    """Refuse a penalty whose proximal steps could leave zero by what is not known before data."""
    if penalty.value(np.zeros(n_features)) != 0:
        raise ValueError(
            f"Got {penalty!r}, expected a penalty that is 0 at 0: the size of a solution has to"
            " have a bound."
        )


def penalty_operator(penalty: Penalty, step: float, rows: Rows) -> Operator:
    """Proximal operator, in the basis of the rows, of a penalty on the user's coefficients.

    In the user's units the Euclidean metric of public coordinates is a diagonal one, that of a
    basis a full one. The intercept is not penalised, so it is eliminated.

    Parameters
    ----------
    penalty : Penalty
        Already divided by the square of the target's scale.
    step : float
    rows : Rows
        Only what is public about them is used.

    Returns
    -------
    callable
        Maps a point of shape (n_parameters, n_outputs) in the basis of the rows to one in public
        coordinates, where zeros are exact. `Rows.from_coordinates` takes it back.
    """
    coordinates, basis = rows.coordinates, rows.basis
    if basis is None:
        return coordinate_operator(penalty, step, coordinates)
    p, scale = coordinates.n_features, coordinates.coefficient_scale[:, None]
    reduced, follows = without_intercept(basis.metric, p)
    full = penalty.proximal_operator(step, metric=reduced / (scale * scale.T))

    def apply_in_basis(point: Array) -> Array:
        start = basis.transform @ point
        features = full(start[:p] * scale) / scale
        intercept = start[p:] + follows @ (features - start[:p])
        return np.concatenate([features, intercept])

    return apply_in_basis


def without_intercept(metric: Array, n_features: int) -> tuple[Array, Array]:
    """Metric of coefficients with the best intercept for them, and the intercept's response."""
    p = n_features
    follows = np.asarray(-np.linalg.solve(metric[p:, p:], metric[p:, :p]), dtype=np.float64)
    reduced = metric[:p, :p] + metric[:p, p:] @ follows
    return (reduced + reduced.T) / 2, follows


def coordinate_operator(penalty: Penalty, step: float, coordinates: Coordinates) -> Operator:
    """The same in public coordinates, from what is known before data."""
    p, scale = coordinates.n_features, coordinates.coefficient_scale[:, None]
    diagonal = penalty.proximal_operator(step, metric=scale[:, 0] ** -2.0)

    def apply(point: Array) -> Array:
        moved = point.copy()
        np.divide(diagonal(point[:p] * scale), scale, out=moved[:p])
        return moved

    return apply
