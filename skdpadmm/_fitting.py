"""The run of a planned fit: trust, ledger entry, audit, and gate.

``PrivateLinearModel`` in ``_linear_model`` plans from public facts; ``PendingFit.solve`` takes the
plan and the data through the gate. Its result is all that a model may keep.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skdpadmm._chunks import Shards, has_no_longer_rows, largest_entries, problem_of
from skdpadmm._report import fit_report
from skdpadmm.algorithms import (
    Algorithm,
    condition,
    debiased,
    recentre,
    released_count,
    rescale,
    without_stretch,
)
from skdpadmm.engine import Engine
from skdpadmm.network import Ownership
from skdpadmm.noise import NoiseSource, noise_source
from skdpadmm.privacy import PrivacyReport
from skdpadmm.protocol import MODEL, Agents, Budget, Curator, Gate, Plan, Problem, Solution
from skdpadmm.records import HUGE, Coordinates, Moments, moments_of, standardising_coordinates

Array = NDArray[np.float64]
# A clip bound in place of inf, which a run can divide by; a power of two, so nothing is rounded.
NEVER_REACHED = 2.0**300


@dataclass(frozen=True, eq=False, kw_only=True)
class Trust:
    """Who holds the rows, what is protected, and who the budget is spent against."""

    agents: Agents = field(default_factory=Curator)
    unit: str = "record"
    # Which agents or persons, where they are the unit: of others a guarantee says nothing.
    who: str = ""
    observer: str = MODEL
    # What the guarantee rests on, as far as it is about agents.
    assumptions: tuple[str, ...] = ()
    # Where persons are the unit.
    max_rows_per_person: int = 0
    # What weights of records are divided by, and the largest over a usual one; 0: no weights.
    max_weight: float = 1.0
    weight_spread: float = 0.0

    def budget(self, epsilon: Any, delta: float) -> Budget:
        """The budget of a fit; the largest one where agents have budgets of their own."""
        epsilons = self.agents.epsilons
        epsilon = max(epsilons) if epsilons else float(epsilon)
        return Budget(epsilon=epsilon, delta=float(delta), observer=self.observer)


CURATOR = Trust()


@dataclass(frozen=True, eq=False, kw_only=True)
class PlannedFit:
    """A plan with the algorithm that runs it and the public coordinates that it runs in."""

    plan: Plan
    algorithm: Algorithm
    coordinates: Coordinates
    who: str = ""


@dataclass(frozen=True, eq=False, kw_only=True)
class Fitted:
    """The result of a fit: functions of released quantities and of public facts alone."""

    plan: Plan
    # Those of the solution.
    coordinates: Coordinates
    solution: Solution
    # Models after each iteration, where a trace was asked for.
    path: list[Array] | None = None

    def in_user_units(self, models: Array) -> tuple[Array, Array]:
        """Coefficients and intercepts of models of shape (..., n_parameters, n_outputs)."""
        *stacked, d, n_outputs = models.shape
        columns = np.moveaxis(models, -2, 0).reshape(d, -1)
        coef, intercept = self.coordinates.to_user(columns)
        return coef.reshape(*stacked, n_outputs, -1), intercept.reshape(*stacked, n_outputs)

    def of_agents(self, n_agents: int) -> tuple[Array, Array]:
        """Those of each agent's model, along a first axis; the common model where they agree."""
        models = self.solution.parameters_per_agent
        if models is None:
            coef, intercept = self.in_user_units(self.solution.parameters)
            return np.repeat(coef[None], n_agents, 0), np.repeat(intercept[None], n_agents, 0)
        return self.in_user_units(models)


@dataclass(frozen=True, eq=False, kw_only=True)
class PendingFit:
    """A plan with its data, before they are used; an audit runs it many times."""

    estimator: Any
    planned: PlannedFit
    # Validated; `Shards` of rows that are elsewhere, and y is then empty.
    X: Any
    # As the loss expects them.
    y: NDArray[Any]
    ownership: Ownership | None = None
    # Of rows of persons, or of records.
    weights: Array | None = None
    # The plan for a released number of records, where their number is private.
    plan_for: Callable[[int], Plan] | None = None

    def noise(self, random_state: Any, digest: bytes) -> NoiseSource:
        """The source of noise of this fit, from a seed and a digest of its plan."""
        return noise_source(random_state, digest, self.estimator.sampler)

    def report(self, plan: Plan, noise: NoiseSource) -> PrivacyReport:
        """What running a plan with this noise guarantees."""
        labels = () if self.ownership is None else tuple(self.ownership.labels.tolist())
        who, simulated = self.planned.who, noise.simulation
        return fit_report(self.estimator, plan, simulated=simulated, labels=labels, who=who)

    def solve(self, noise: NoiseSource) -> Fitted:
        """Take the data through the gate: scale, centre, condition, run."""
        plan, coordinates = self.planned.plan, self.planned.coordinates
        # A warning of floating point would depend on data.
        with np.errstate(all="ignore"):
            if not plan.budget.is_private:
                plan, coordinates = self._without_privacy()
            gate = gate_of(self, plan, noise)
            if self.plan_for is not None:
                plan = self.plan_for(released_count(self.X.shape[0], gate))
                gate.replan(plan)
            if plan.facts.scaling is not None:
                coordinates = rescale(coordinates, self._each, plan.facts.scaling, gate)
            if plan.facts.centering is not None:
                centred = recentre(coordinates, self._each, plan.facts, gate)
                plan, coordinates = in_units(plan, coordinates, centred), centred
            with self.problem(plan, coordinates, gate) as problem:
                solution = self.planned.algorithm.run(plan, problem, gate)
                solution = without_stretch(plan, problem, solution)
                if self.estimator.intervals:
                    solution = debiased(plan, problem, solution, gate)
        gate.close()
        if not plan.budget.is_private:
            # Nothing was clipped, and there is no noise.
            solution = replace(solution, derivative_bound=math.inf, score_variance=0.0, doubt=0.0)
        return Fitted(plan=plan, coordinates=coordinates, solution=solution, path=problem.path)

    @contextmanager
    def problem(self, plan: Plan, coordinates: Coordinates, gate: Gate) -> Iterator[Problem]:
        """The data in the coordinates of a plan, as long as its engine runs."""
        running = Engine(self.estimator.n_jobs).running()
        with _progress(self.estimator, plan) as progress, running as engine:
            is_elsewhere = isinstance(self.X, Shards)
            make = self.X.problem if is_elsewhere else partial(problem_of, self.X, self.y)
            problem = make(
                coordinates,
                engine=engine,
                ownership=self.ownership,
                report=progress,
                path=[] if self.planned.algorithm.trace else None,
                weights=self.weights,
                per_person=plan.facts.max_rows_per_person or 1,
            )
            # A record more or less moves others to other places.
            problem.rows.by_row = plan.facts.count is not None
            if plan.facts.conditioning is not None:
                problem = condition(problem, plan.facts, gate)
            yield problem

    def _each(self, function: Callable[..., Any], *args: Any) -> list[Any]:
        """``function(X, y, *args)``, or one result for each place where rows are."""
        if isinstance(self.X, Shards):
            return self.X.each(function, *args)
        return [function(self.X, self.y, *args)]

    def _without_privacy(self) -> tuple[Plan, Coordinates]:
        """The plan in coordinates that follow the data, which then need no declaration."""
        plan, declared = self.planned.plan, self.planned.coordinates
        for name, largest in zip("Xy", np.max(self._each(largest_entries), axis=0), strict=True):
            # Nothing is clipped, and squares of such values leave the range of floats.
            if largest > HUGE:
                raise ValueError(
                    f"Got {name} with values beyond {HUGE:g} at epsilon=inf, expected smaller ones:"
                    f" nothing is clipped there. Rescale {name}."
                )
        agents, coordinates = plan.facts.agents, declared.without_bounds()
        # Distances of models from each other are measured in public units.
        is_public = agents.is_personal and agents.n_agents > 1
        algorithm = self.planned.algorithm
        if algorithm.noiseless and not algorithm.exact:
            # So are steps of iterations, where rows are no longer than they were planned for.
            longest = plan.facts.row_norm * (1 + 1e-9)
            is_public |= all(self._each(has_no_longer_rows, coordinates, longest))
            plan = replace(plan, settings=plan.settings.but(clip_norm=NEVER_REACHED))
        if not is_public:
            moments = reduce(Moments.joined, self._each(moments_of, declared))
            coordinates = standardising_coordinates(moments, declared=declared)
        return in_units(plan, declared, coordinates), coordinates


def in_units(plan: Plan, before: Coordinates, after: Coordinates) -> Plan:
    """The plan with the objective in other units of the target; what it releases stays."""
    unit, loss = after.unit / before.unit, plan.facts.loss
    penalty = plan.facts.penalty.scaled(unit**-loss.degree)
    return replace(plan, facts=replace(plan.facts, loss=loss.in_units(unit), penalty=penalty))


# Makes the gates of fits during an audit: of the fit, its plan, its noise, and the records before.
MakeGate = Callable[[PendingFit, Plan, NoiseSource, int], Gate]
_MAKE_GATE: ContextVar[MakeGate | None] = ContextVar("make_gate", default=None)


@contextmanager
def gates_by(make_gate: MakeGate) -> Iterator[None]:
    """Give all fits of this thread other gates, which see private data: for audits alone."""
    token = _MAKE_GATE.set(make_gate)
    try:
        yield
    finally:
        _MAKE_GATE.reset(token)


def gate_of(fit: PendingFit, plan: Plan, noise: NoiseSource, n_arrived: int = 0) -> Gate:
    """The gate of a fit, or the one that an audit puts in its place."""
    if (make_gate := _MAKE_GATE.get()) is None:
        return Gate(plan, noise, n_arrived)
    return make_gate(fit, plan, noise, n_arrived)


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


@contextmanager
def reserved(
    ledger: Any, report: PrivacyReport, digest: bytes, stream: tuple[str | None, int] | None = None
) -> Iterator[str | None]:
    """Reserve the cost of a fit before it uses data, and mark it as done afterwards.

    A fit that fails counts as spent. A stream has one cost, whichever piece a record comes in:
    `stream` are its key, once it has begun, and the number of earlier records. Of two copies that
    go on with the same records the later is counted anew, and so is one that goes on from before a
    piece that failed.
    """
    if ledger is None:
        yield None
        return
    # SQLite is imported only where there is a ledger.
    from skdpadmm.ledger import LedgerEntry, PrivacyLedger

    account = PrivacyLedger(ledger)
    begun, n_before = stream or (None, 0)
    if begun is not None and account.advance(begun, n_before):
        yield begun
        return
    with account.counting(LedgerEntry.of_report(report, digest.hex())) as key:
        if stream is not None:
            account.advance(key, n_before)
        yield key


def progress_bar(*items: Any, **options: Any) -> Any:
    """A bar of tqdm for a terminal or a notebook; without ipywidgets a notebook has one of text."""
    # That widgets are not installed, where text serves as well.
    with warnings.catch_warnings(action="ignore"):
        from tqdm.auto import tqdm
    return tqdm(*items, **options)


@contextmanager
def _progress(estimator: Any, plan: Plan) -> Iterator[Callable[[int], None]]:
    """A progress bar that shows how many iterations are done, and nothing that depends on data."""
    if not estimator.verbose:
        yield lambda done: None
        return
    # Without privacy the iteration stops on a tolerance, so its length is not known.
    total = plan.facts.max_iter if plan.budget.is_private else None
    if plan.releases[-1].door == "path_noise":
        total = plan.releases[-1].times
    with progress_bar(total=total, desc=type(estimator).__name__, unit="iteration") as bar:
        yield lambda done: bar.update(done - bar.n)
