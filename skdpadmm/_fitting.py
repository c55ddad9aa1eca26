"""The one road from validated arrays to fitted attributes, for every family.

``plan_fit`` turns an estimator's public parameters and the shape of its data into a plan.
``run_fit`` takes the plan and the data through the gate, and returns what may be stored:
parameters that passed the gate, and the report. ``run_stream`` does so piece by piece, for records
that arrive; ``end_of_stream`` says what holds once there are no more.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from skdpadmm._report import assumptions_of, report_of, weak_delta
from skdpadmm.algorithms import (
    Algorithm,
    SharingAlgorithm,
    StreamingAlgorithm,
    condition,
    exact_algorithm,
    is_streaming,
    names_of_algorithms,
    prepared,
    rescale,
    resolve_algorithm,
    serves,
)
from skdpadmm.engine import Engine, require_backend
from skdpadmm.ledger import LedgerEntry, PrivacyLedger
from skdpadmm.losses import Loss
from skdpadmm.network import Ownership
from skdpadmm.noise import NoiseSource, noise_source
from skdpadmm.penalties import Penalty
from skdpadmm.privacy import (
    Neighboring,
    PrivacyReport,
)
from skdpadmm.protocol import (
    MODEL,
    Agents,
    Budget,
    Facts,
    Gate,
    Neighborhood,
    Plan,
    Problem,
    Solution,
)
from skdpadmm.records import (
    HUGE,
    Coordinates,
    Rows,
    declared_coordinates,
    feature_norms,
    rounding_factor,
    standardising_coordinates,
)


class PrivateEstimator(Protocol):
    """Parameters that every private estimator has; the only ones that this file reads."""

    epsilon: Any
    delta: float
    neighboring: str
    feature_bounds: Any
    fit_intercept: bool
    algorithm: str | Algorithm
    scale: str | None
    conditioning: str | None
    max_iter: int
    sampler: str
    random_state: Any
    n_jobs: int | None
    ledger: str | None
    verbose: int


@dataclass(frozen=True, eq=False, kw_only=True)
class Trust:
    """Who holds the rows, and who is trusted with what.

    Attributes
    ----------
    agents : Agents or None, default=None
        The agents that hold the rows; None: a curator.
    unit : {"record", "agent"}, default="record"
        What is protected.
    observer : str, default="model"
        Who the budget is spent against.
    backend : {"local", "dask"}, default="local"
        Where rounds run.
    assumptions : tuple of str, default=()
        What the guarantee rests on, as far as it is about agents.
    """

    agents: Agents | None = None
    unit: str = "record"
    observer: str = MODEL
    backend: str = "local"
    assumptions: tuple[str, ...] = ()


CURATOR = Trust()


@dataclass(frozen=True, eq=False, kw_only=True)
class PlannedFit:
    """A plan with the algorithm that runs it and the public coordinates that it runs in."""

    plan: Plan
    algorithm: Algorithm
    coordinates: Coordinates
    backend: str = "local"


@dataclass(frozen=True, eq=False, kw_only=True)
class Fitted:
    """What a fit leaves: nothing in it but functions of released quantities and of public facts."""

    coef: NDArray[np.float64]
    intercept: NDArray[np.float64]
    coef_per_agent: NDArray[np.float64]
    intercept_per_agent: NDArray[np.float64]
    n_iter: int
    report: PrivacyReport
    plan: Plan
    # Those that the solution is in.
    coordinates: Coordinates
    solution: Solution


@dataclass(frozen=True, eq=False, kw_only=True)
class PendingFit:
    """A plan with the data that it is about to meet; an audit runs it many times.

    Attributes
    ----------
    estimator : PrivateEstimator
    planned : PlannedFit
    X : {ndarray, CSR matrix} of shape (n_samples, n_features)
        Validated.
    y : ndarray of shape (n_samples,)
        As the loss expects them.
    ownership : Ownership or None
    """

    estimator: PrivateEstimator
    planned: PlannedFit
    X: Any
    y: NDArray[Any]
    ownership: Ownership | None

    def noise(self, random_state: Any, digest: bytes) -> NoiseSource:
        """The source of noise of this fit, with another seed; by a digest of its plan."""
        return noise_source(random_state, digest, self.estimator.sampler)

    def solve(self, noise: NoiseSource) -> tuple[Plan, Coordinates, Solution]:
        """Run the plan on the data, with noise from this source."""
        return _solve(self.estimator, self.planned, self.X, self.y, self.ownership, noise)


class Watcher(Protocol):
    """Who looks on as fits run: an audit."""

    def begins(self, fit: PendingFit) -> None:
        """A fit is planned, and its data comes next."""

    def gate(self, plan: Plan, noise: NoiseSource, n_arrived: int) -> Gate:
        """The gate that a fit passes."""

    def algorithm(self, algorithm: Any) -> Any:
        """What runs in place of an algorithm: itself, or a copy whose steps are looked at."""


_WATCHER: ContextVar[Watcher | None] = ContextVar("watcher", default=None)


@contextmanager
def watched_by(watcher: Watcher) -> Iterator[None]:
    """Let a watcher look on at all fits of this thread: what they learn is for audits alone."""
    token = _WATCHER.set(watcher)
    try:
        yield
    finally:
        _WATCHER.reset(token)


def _gate(plan: Plan, noise: NoiseSource, **arrived: int) -> Gate:
    """The gate of a fit, or the one that an audit puts in its place."""
    watcher = _WATCHER.get()
    if watcher is None:
        return Gate(plan, noise, **arrived)
    return watcher.gate(plan, noise, arrived.get("n_arrived", 0))


def _runner(algorithm: Any) -> Any:
    """The algorithm of a fit, or the one that an audit puts in its place."""
    watcher = _WATCHER.get()
    return algorithm if watcher is None else watcher.algorithm(algorithm)


@contextmanager
def all_or_nothing(estimator: Any) -> Iterator[None]:
    """Leave an estimator as it was where fitting fails: nothing half-fitted remains."""
    before = dict(vars(estimator))
    try:
        yield
    except BaseException:
        vars(estimator).clear()
        vars(estimator).update(before)
        raise


def plan_fit(
    estimator: PrivateEstimator,
    *,
    n_samples: int,
    n_features: int,
    loss: Loss,
    penalty: Penalty,
    target_bounds: Any,
    has_target_scale: bool,
    feature_names: Sequence[str] | None = None,
    assumptions: tuple[str, ...] = (),
    trust: Trust = CURATOR,
    is_stream: bool = False,
) -> PlannedFit:
    """Plan a fit from public facts; no data comes near.

    Parameters
    ----------
    estimator : PrivateEstimator
    n_samples, n_features : int
    loss : Loss
        Of a record, in the user's units.
    penalty : Penalty
        Of the mean loss, in the user's coefficients.
    target_bounds : pair of floats or None
    has_target_scale : bool
        Whether targets are numbers in units.
    feature_names : sequence of str or None
    assumptions : tuple of str
        What else the estimator takes to be public.
    trust : Trust, default=CURATOR
        Who holds the rows, and who is trusted with what.
    is_stream : bool, default=False
        Whether records arrive one after the other; the plan is then that of one.

    Raises
    ------
    ValueError
        Where the schema, the budget or a knob of the algorithm is out of range.
    """
    require_backend(trust.backend)
    own_budgets = () if trust.agents is None else trust.agents.epsilons
    budget = Budget(
        epsilon=max(own_budgets) if own_budgets else float(estimator.epsilon),
        delta=float(estimator.delta),
        observer=trust.observer,
    )
    coordinates = declared_coordinates(
        n_features=n_features,
        fit_intercept=bool(estimator.fit_intercept),
        feature_bounds=estimator.feature_bounds,
        target_bounds=target_bounds,
        feature_names=feature_names,
        has_target_scale=has_target_scale,
    )
    n_samples = 1 if is_stream else n_samples
    algorithm, agents = resolve_algorithm(estimator.algorithm), trust.agents
    if agents is not None and budget.is_private and isinstance(algorithm, SharingAlgorithm):
        agents = algorithm.share_among(agents)
    facts = Facts(
        n_samples=n_samples,
        n_parameters=coordinates.n_parameters,
        loss=loss.in_units(coordinates.target_scale),
        penalty=penalty.scaled(coordinates.target_scale**-2.0),
        neighboring=Neighboring(estimator.neighboring),
        row_norm=coordinates.row_norm,
        rounding=rounding_factor(n_samples=n_samples, coordinates=coordinates),
        max_iter=int(estimator.max_iter),
        schema=coordinates.fingerprint,
        is_declared=not coordinates.undeclared.any(),
        penalty_curvature=_penalty_curvature(penalty, coordinates),
        unit=trust.unit,
        agents=agents,
        is_stream=is_stream,
        coordinates=coordinates,
    )
    if not serves(algorithm, facts.setting):
        raise ValueError(
            f"Got algorithm={estimator.algorithm!r} for {type(estimator).__name__}, expected"
            f" {names_of_algorithms(facts.setting)} or an object of that kind: one that is"
            f" {facts.setting}."
        )
    # Whatever the budget: a grid over budgets should not fail at one end only.
    algorithm.check(facts)
    if budget.is_private:
        choices = {"scale": estimator.scale, "conditioning": estimator.conditioning}
        facts = prepared(facts, budget, algorithm, coordinates, **choices)
    elif not algorithm.exact:
        algorithm = exact_algorithm(facts.setting)
    plan = algorithm.plan(facts, budget)
    if budget.is_private:
        general = assumptions_of(plan, coordinates, estimator.sampler)
        own = plan.assumptions
        plan = replace(plan, assumptions=(*general, *own, *assumptions, *trust.assumptions))
        for line in weak_delta(budget, n_samples):
            warnings.warn(line, UserWarning, stacklevel=2)
    return PlannedFit(
        plan=plan, algorithm=algorithm, coordinates=coordinates, backend=trust.backend
    )


def run_fit(
    estimator: PrivateEstimator,
    planned: PlannedFit,
    X: Any,
    y: NDArray[Any],
    ownership: Ownership | None = None,
) -> Fitted:
    """Run a plan on data.

    Parameters
    ----------
    estimator : PrivateEstimator
    planned : PlannedFit
    X : {ndarray, CSR matrix} of shape (n_samples, n_features)
        Validated.
    y : ndarray of shape (n_samples,)
        Targets, encoded as the loss expects them.
    ownership : Ownership or None, default=None
        Who holds which row, where there are agents.

    Returns
    -------
    Fitted
    """
    fit = PendingFit(estimator=estimator, planned=planned, X=X, y=y, ownership=ownership)
    watcher = _WATCHER.get()
    if watcher is not None:
        watcher.begins(fit)
    noise = fit.noise(estimator.random_state, planned.plan.digest())
    report = _report(estimator, planned.plan, noise, ownership)
    with _accounted(estimator.ledger, report, planned.plan):
        plan, coordinates, solution = fit.solve(noise)
    return _fitted(plan, coordinates, solution, report)


@contextmanager
def _accounted(ledger: str | None, report: PrivacyReport, plan: Plan) -> Iterator[None]:
    """Count a fit before it touches data, and mark it as done afterwards: a crash is counted."""
    if ledger is None:
        yield
        return
    account = PrivacyLedger(ledger)
    key = account.reserve(LedgerEntry.of_report(report, plan.digest().hex()))
    yield
    account.finish(key)


def _solve(
    estimator: PrivateEstimator,
    planned: PlannedFit,
    X: Any,
    y: NDArray[Any],
    ownership: Ownership | None,
    noise: NoiseSource,
) -> tuple[Plan, Coordinates, Solution]:
    """Take data through the gate, as planned."""
    plan, coordinates = planned.plan, planned.coordinates
    # A warning of floating point would depend on data.
    with np.errstate(all="ignore"):
        if not plan.budget.is_private:
            _refuse_huge_values(X, "X")
            _refuse_huge_values(y, "y")
            agents = plan.facts.agents
            if isinstance(agents, Neighborhood) and agents.n_agents > 1:
                # How far models are from each other is measured in public units.
                coordinates = coordinates.without_bounds()
            else:
                coordinates = standardising_coordinates(X, y, declared=coordinates)
            plan = _rescaled(plan, planned.coordinates, coordinates)
        gate = _gate(plan, noise)
        if plan.facts.scaling is not None:
            norms = feature_norms(X, coordinates.undeclared)
            coordinates = rescale(coordinates, norms, plan.facts.scaling, gate)
        with _problem(estimator, planned, plan, coordinates, X, y, gate, ownership) as problem:
            solution = _runner(planned.algorithm).run(plan, problem, gate)
    gate.close()
    return plan, coordinates, solution


@dataclass(frozen=True, eq=False, kw_only=True)
class Arrived:
    """Where the records of a stream have led to so far: functions of what was released.

    Attributes
    ----------
    state : object
        The algorithm's.
    n_samples : int
        How many records there were.
    plan : Plan
        What all of them follow.
    algorithm : StreamingAlgorithm
        What made the plan.
    sampler : str
        Where the noise of all of them came from.
    is_simulation : bool
        Whether that noise can be reproduced, in which case it protects none of them.
    ledger : str or None
        The account that all of them are in, since the first came.
    account : str or None
        The key of their entry there.
    classes : ndarray of shape (n_classes,) or None
        What their labels stand for.
    """

    state: Any
    n_samples: int
    plan: Plan
    algorithm: StreamingAlgorithm
    sampler: str
    is_simulation: bool
    ledger: str | None
    account: str | None
    classes: NDArray[Any] | None


def end_of_stream(report: PrivacyReport, arrived: Arrived) -> PrivacyReport:
    """The report of a stream that has ended: only now is the number of its records known.

    Parameters
    ----------
    report : PrivacyReport
        As of its last records.
    arrived : Arrived

    Returns
    -------
    PrivacyReport
        With what holds if nobody saw a state before the last, and with a line where delta is not
        small beside the number of records.
    """
    plan, n_samples = arrived.plan, arrived.n_samples
    return replace(
        report,
        if_unseen=arrived.algorithm.unseen_guarantees(plan, n_samples),
        assumptions=(*plan.assumptions, *weak_delta(plan.budget, n_samples)),
    )


def run_stream(
    estimator: PrivateEstimator,
    planned: PlannedFit,
    X: Any,
    y: NDArray[Any],
    classes: NDArray[Any] | None,
    arrived: Arrived | None,
) -> tuple[Arrived, Fitted]:
    """Run the plan of a stream on the records that are new.

    Parameters
    ----------
    estimator : PrivateEstimator
    planned : PlannedFit
    X : {ndarray, CSR matrix} of shape (n_new, n_features)
        Validated.
    y : ndarray of shape (n_new,)
        Targets, encoded as the loss expects them.
    classes : ndarray of shape (n_classes,) or None
        What they stand for.
    arrived : Arrived or None
        What came of the records before; None: these are the first.

    Returns
    -------
    arrived : Arrived
    fitted : Fitted
        What whoever looks now may see.

    Raises
    ------
    ValueError
        Where the records before followed another plan, had noise of another kind, or are in
        another account.
    LedgerError
        Where that account does not know them, or has no room for a copy of the stream.
    """
    plan, coordinates = planned.plan, planned.coordinates
    algorithm, sampler = planned.algorithm, estimator.sampler
    assert is_streaming(algorithm)
    is_simulation = estimator.random_state is not None
    if arrived is not None:
        before = (arrived.plan, arrived.sampler, arrived.is_simulation, arrived.ledger)
        declared = arrived.plan.facts.coordinates
        is_same_box = declared is None or declared.has_box_of(coordinates)
        if not is_same_box or before != (plan, sampler, is_simulation, estimator.ledger):
            raise ValueError(
                "Got parameters that changed since the first records of the stream, expected the"
                " same ones: the guarantee is that of one plan and one kind of noise, counted in"
                " one ledger. Set them back, or begin anew with fit."
            )
        # What the first records took to be public stays in the report.
        plan = arrived.plan
    n_before = 0 if arrived is None else arrived.n_samples
    noise = noise_source(estimator.random_state, plan.digest(), sampler)
    report = _report(estimator, plan, noise)
    # A warning of floating point would depend on data.
    with (
        _accounted_piece(estimator.ledger, report, plan, arrived) as account,
        np.errstate(all="ignore"),
    ):
        gate = _gate(plan, noise, n_arrived=n_before)
        with _problem(estimator, planned, plan, coordinates, X, y, gate) as problem:
            state = algorithm.start(plan, problem) if arrived is None else arrived.state
            state = _runner(algorithm).arrive(plan, problem, gate, state)
            solution = algorithm.solution(plan, problem, state)
        gate.close()
    now = Arrived(
        state=state,
        n_samples=n_before + X.shape[0],
        plan=plan,
        algorithm=algorithm,
        sampler=sampler,
        is_simulation=is_simulation,
        ledger=estimator.ledger,
        account=account,
        classes=classes,
    )
    return now, _fitted(plan, coordinates, solution, report)


@contextmanager
def _accounted_piece(
    ledger: str | None, report: PrivacyReport, plan: Plan, arrived: Arrived | None
) -> Iterator[str | None]:
    """Count a stream as it begins: each record has one cost, whichever piece it comes in.

    Two copies of a stream that both go on may use the same records. The one that comes later is
    counted anew, with all that follows. A piece that fails stays begun, so whoever goes on from
    before it is such a copy.
    """
    if ledger is None:
        yield None
        return
    account, n_before = PrivacyLedger(ledger), 0
    if arrived is not None:
        assert arrived.account is not None
        n_before = arrived.n_samples
        if account.advance(arrived.account, n_before):
            yield arrived.account
            return
    key = account.reserve(LedgerEntry.of_report(report, plan.digest().hex()))
    account.advance(key, n_before)
    yield key
    account.finish(key)


@contextmanager
def _problem(
    estimator: PrivateEstimator,
    planned: PlannedFit,
    plan: Plan,
    coordinates: Coordinates,
    X: Any,
    y: NDArray[Any],
    gate: Gate,
    ownership: Ownership | None = None,
) -> Iterator[Problem]:
    """What data are under a plan, as long as its engine runs."""
    rows = Rows(X, coordinates)
    # A row that is scaled down takes its target along: a weighted record, not a distorted one.
    target = coordinates.target(y) * rows.weight if coordinates.has_target_scale else y
    with (
        _progress(estimator, plan) as progress,
        Engine(estimator.n_jobs, backend=planned.backend).running() as engine,
    ):
        if plan.facts.conditioning is not None:
            rows = condition(rows, plan.facts.conditioning, engine, gate)
        yield Problem(
            rows=rows, target=target, engine=engine, ownership=ownership, progress=progress
        )


def _fitted(
    plan: Plan, coordinates: Coordinates, solution: Solution, report: PrivacyReport
) -> Fitted:
    """A solution in the user's units."""
    coef, intercept = coordinates.to_user(solution.parameters)
    coef_per_agent, intercept_per_agent = _per_agent(solution, coordinates)
    return Fitted(
        coef=coef,
        intercept=intercept,
        coef_per_agent=coef_per_agent,
        intercept_per_agent=intercept_per_agent,
        n_iter=solution.n_iter,
        plan=plan,
        coordinates=coordinates,
        solution=solution,
        report=report,
    )


def _report(
    estimator: PrivateEstimator, plan: Plan, noise: NoiseSource, ownership: Ownership | None = None
) -> PrivacyReport:
    return report_of(
        type(estimator).__name__,
        plan,
        seed=estimator.random_state,
        simulated=noise.simulation,
        labels=() if ownership is None else tuple(ownership.labels.tolist()),
    )


def _per_agent(
    solution: Solution, coordinates: Coordinates
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Coefficients and intercepts of agents, as many as have models of their own."""
    own = solution.parameters_per_agent
    if own is None:
        return np.empty((0, 0, 0)), np.empty((0, 0))
    n_agents, d, n_outputs = own.shape
    columns = own.transpose(1, 0, 2).reshape(d, n_agents * n_outputs)
    coef, intercept = coordinates.to_user(columns)
    return coef.reshape(n_agents, n_outputs, -1), intercept.reshape(n_agents, n_outputs)


def _penalty_curvature(penalty: Penalty, coordinates: Coordinates) -> float:
    """Strong convexity of a penalty over all parameters in public coordinates, rounded down."""
    if coordinates.fit_intercept:
        return 0.0
    # A unit of the target cancels: it scales coefficients and divides the penalty.
    return penalty.strong_convexity * float(coordinates.scale.max()) ** -2.0 * (1 - 1e-12)


def _refuse_huge_values(values: Any, name: str) -> None:
    """Without privacy nothing is clipped, and squares of such values leave the range of floats."""
    if max(float(values.max()), -float(values.min())) > HUGE:
        raise ValueError(
            f"Got {name} with values beyond {HUGE:g} at epsilon=inf, expected smaller ones: nothing"
            f" is clipped there. Rescale {name}."
        )


def _rescaled(plan: Plan, declared: Coordinates, data: Coordinates) -> Plan:
    """The non-private plan in the data's coordinates: it follows the target's scale."""
    unit = data.target_scale / declared.target_scale
    loss, penalty = plan.facts.loss.in_units(unit), plan.facts.penalty.scaled(unit**-2)
    return replace(plan, facts=replace(plan.facts, loss=loss, penalty=penalty))


@contextmanager
def _progress(estimator: PrivateEstimator, plan: Plan) -> Iterator[Callable[[int], None]]:
    """A progress bar that shows how many iterations are done, and nothing that depends on data."""
    if not estimator.verbose:
        yield lambda done: None
        return
    # Without privacy the iteration stops on a tolerance, so its length is not known.
    total = plan.facts.max_iter if plan.budget.is_private else None
    if plan.releases[-1].door == "path_noise":
        total = plan.releases[-1].times
    with tqdm(total=total, desc=type(estimator).__name__, unit="iteration") as bar:
        yield lambda done: bar.update(done - bar.n)
