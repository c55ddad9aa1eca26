"""The run of a planned fit: what it is told of trust, its account, its audit, and its gate.

``PrivateLinearModel`` in ``_linear_model`` plans, from public facts; ``PendingFit.solve`` takes the
plan and the data through the gate. What comes out is all that a model may keep.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from skdpadmm._report import report_of
from skdpadmm.algorithms import Algorithm, condition, rescale
from skdpadmm.engine import Engine
from skdpadmm.network import Ownership
from skdpadmm.noise import NoiseSource, noise_source
from skdpadmm.privacy import PrivacyReport
from skdpadmm.protocol import (
    MODEL,
    Agents,
    Gate,
    Neighborhood,
    Plan,
    Problem,
    Solution,
)
from skdpadmm.records import HUGE, Coordinates, Rows, feature_norms, standardising_coordinates

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False, kw_only=True)
class Trust:
    """Who holds the rows, what is protected, and who the budget is spent against."""

    # None: a curator.
    agents: Agents | None = None
    unit: str = "record"
    observer: str = MODEL
    backend: str = "local"
    # What the guarantee rests on, as far as it is about agents.
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

    plan: Plan
    # Those that the solution is in.
    coordinates: Coordinates
    solution: Solution
    report: PrivacyReport

    def in_user_units(self) -> tuple[Array, Array]:
        """Coefficients (n_outputs, n_features) and intercepts (n_outputs,)."""
        return self.coordinates.to_user(self.solution.parameters)

    def of_agents(self, n_agents: int) -> tuple[Array, Array]:
        """The same of each agent's model, along a first axis; the common one where they agree."""
        own = self.solution.parameters_per_agent
        if own is None:
            coef, intercept = self.in_user_units()
            return np.repeat(coef[None], n_agents, 0), np.repeat(intercept[None], n_agents, 0)
        n_agents, d, n_outputs = own.shape
        columns = own.transpose(1, 0, 2).reshape(d, n_agents * n_outputs)
        coef, intercept = self.coordinates.to_user(columns)
        return coef.reshape(n_agents, n_outputs, -1), intercept.reshape(n_agents, n_outputs)


@dataclass(frozen=True, eq=False, kw_only=True)
class PendingFit:
    """A plan with the data that it is about to meet; an audit runs it many times."""

    estimator: Any
    planned: PlannedFit
    # Validated.
    X: Any
    # As the loss expects them.
    y: NDArray[Any]
    ownership: Ownership | None = None

    def noise(self, random_state: Any, digest: bytes) -> NoiseSource:
        """The source of noise of this fit, by a seed and a digest of its plan."""
        return noise_source(random_state, digest, self.estimator.sampler)

    def report(self, plan: Plan, noise: NoiseSource) -> PrivacyReport:
        """What running a plan with this noise guarantees."""
        ownership = self.ownership
        return report_of(
            type(self.estimator).__name__,
            plan,
            seed=self.estimator.random_state,
            simulated=noise.simulation,
            labels=() if ownership is None else tuple(ownership.labels.tolist()),
        )

    def solve(self, noise: NoiseSource) -> tuple[Plan, Coordinates, Solution]:
        """Take the data through the gate: scale, condition, run."""
        plan, coordinates = self.planned.plan, self.planned.coordinates
        # A warning of floating point would depend on data.
        with np.errstate(all="ignore"):
            if not plan.budget.is_private:
                plan, coordinates = self._without_privacy()
            gate = gate_of(plan, noise)
            if plan.facts.scaling is not None:
                norms = feature_norms(self.X, coordinates.undeclared)
                coordinates = rescale(coordinates, norms, plan.facts.scaling, gate)
            with self.problem(plan, coordinates, gate) as problem:
                solution = self.planned.algorithm.run(plan, problem, gate)
        gate.close()
        return plan, coordinates, solution

    @contextmanager
    def problem(self, plan: Plan, coordinates: Coordinates, gate: Gate) -> Iterator[Problem]:
        """What the data are under a plan, as long as its engine runs."""
        rows = Rows(self.X, coordinates)
        # A row that is scaled down takes its target along: a weighted record, not a distorted one.
        has_scale = coordinates.has_target_scale
        target = coordinates.target(self.y) * rows.weight if has_scale else self.y
        engine_of_fit = Engine(self.estimator.n_jobs, backend=self.planned.backend)
        with _progress(self.estimator, plan) as progress, engine_of_fit.running() as engine:
            if plan.facts.conditioning is not None:
                rows = condition(rows, plan.facts.conditioning, engine, gate)
            yield Problem(
                rows=rows, target=target, engine=engine, ownership=self.ownership, progress=progress
            )

    def _without_privacy(self) -> tuple[Plan, Coordinates]:
        """The plan in coordinates that follow the data, which then need no declaration."""
        plan, declared = self.planned.plan, self.planned.coordinates
        for name, values in {"X": self.X, "y": self.y}.items():
            # Nothing is clipped, and squares of such values leave the range of floats.
            if max(float(values.max()), -float(values.min())) > HUGE:
                raise ValueError(
                    f"Got {name} with values beyond {HUGE:g} at epsilon=inf, expected smaller ones:"
                    f" nothing is clipped there. Rescale {name}."
                )
        agents = plan.facts.agents
        if isinstance(agents, Neighborhood) and agents.n_agents > 1:
            # How far models are from each other is measured in public units.
            coordinates = declared.without_bounds()
        else:
            coordinates = standardising_coordinates(self.X, self.y, declared=declared)
        unit = coordinates.target_scale / declared.target_scale
        loss, penalty = plan.facts.loss.in_units(unit), plan.facts.penalty.scaled(unit**-2)
        return replace(plan, facts=replace(plan.facts, loss=loss, penalty=penalty)), coordinates


class Watcher(Protocol):
    """Who looks on as fits run: an audit."""

    def begins(self, fit: PendingFit) -> None:
        """A fit is planned, and its data comes next."""

    def gate(self, plan: Plan, noise: NoiseSource, n_arrived: int) -> Gate:
        """The gate that a fit passes."""


_WATCHER: ContextVar[Watcher | None] = ContextVar("watcher", default=None)


@contextmanager
def watched_by(watcher: Watcher) -> Iterator[None]:
    """Let a watcher look on at all fits of this thread: what they learn is for audits alone."""
    token = _WATCHER.set(watcher)
    try:
        yield
    finally:
        _WATCHER.reset(token)


def announce(fit: PendingFit) -> None:
    """Tell an audit, where there is one, of a fit that is planned."""
    if (watcher := _WATCHER.get()) is not None:
        watcher.begins(fit)


def gate_of(plan: Plan, noise: NoiseSource, **arrived: int) -> Gate:
    """The gate of a fit, or the one that an audit puts in its place."""
    if (watcher := _WATCHER.get()) is None:
        return Gate(plan, noise, **arrived)
    return watcher.gate(plan, noise, arrived.get("n_arrived", 0))


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
    ledger: str | None, report: PrivacyReport, plan: Plan, begun: tuple[str, int] | None = None
) -> Iterator[str | None]:
    """Count a fit before it touches data, and mark it as done afterwards: a crash is counted.

    A stream has one cost, whichever piece a record comes in: `begun` are its key and the records
    before. Of two copies that both go on, which may use the same records, the later is counted
    anew; so is whoever goes on from before a piece that failed.
    """
    if ledger is None:
        yield None
        return
    # Whoever has no ledger pays for no SQLite.
    from skdpadmm.ledger import LedgerEntry, PrivacyLedger

    account = PrivacyLedger(ledger)
    if begun is not None and account.advance(*begun):
        yield begun[0]
        return
    key = account.reserve(LedgerEntry.of_report(report, plan.digest().hex()))
    if plan.facts.is_stream:
        account.advance(key, 0 if begun is None else begun[1])
    yield key
    account.finish(key)


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
    with tqdm(total=total, desc=type(estimator).__name__, unit="iteration") as bar:
        yield lambda done: bar.update(done - bar.n)
