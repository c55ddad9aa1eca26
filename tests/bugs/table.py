"""Bugs that were made or could be: where each is planted, and what has to find it."""
# Names of tests are as long as they are.
# ruff: noqa: E501

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import inspect
import math
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import networkx as nx
import numpy as np
import pytest
from scipy.special import ndtri
from sklearn.model_selection import KFold, PredefinedSplit, ShuffleSplit, StratifiedShuffleSplit

from skdpadmm._fitting import PendingFit
from skdpadmm._linear_model import PrivateLinearModel
from skdpadmm.algorithms import (
    ClippedSum,
    ConsensusADMM,
    FederatedADMM,
    FixedPointIteration,
    GradientADMM,
    GradientDescent,
    LateJoiner,
    MultiStepADMM,
    ObjectivePerturbation,
)
from skdpadmm.algorithms._dual_averaging import NOISE, ExponentialSum
from skdpadmm.algorithms._gradient_admm_steps import NoisySteps
from skdpadmm.algorithms._inference import SHARES
from skdpadmm.algorithms._noise_left import Tail
from skdpadmm.algorithms._preparations import median_norm, norm_counts, target_sums
from skdpadmm.central import CentralModel
from skdpadmm.engine import Engine
from skdpadmm.ledger import PrivacyLedger
from skdpadmm.losses import SquaredLoss, TweedieLoss, clip_derivative
from skdpadmm.model_selection._search import Trials
from skdpadmm.network import Ownership
from skdpadmm.noise import CryptographicNoise
from skdpadmm.penalties import L1, SquaredL2
from skdpadmm.privacy import Composed, GaussianDP, Neighboring, _odometer
from skdpadmm.protocol import Federation, Gate, Plan, Problem, View
from skdpadmm.protocol._gate import Turns
from skdpadmm.records import Rows, Segments
from tests.contract.registry import BY_ID, Row

Plant = Callable[[pytest.MonkeyPatch], None]
ALGORITHMS = "skdpadmm.algorithms"
SUMS = f"{ALGORITHMS}._clipped_sums"


@dataclass(frozen=True)
class Bug:
    """One bug, the property that has to find it, and on which rows of the contract.

    `knobs` are those of the row's algorithm and `params` those of its estimator, where the row
    itself does not show the bug; `fields` are other ones of the row.
    """

    id: str
    plant: Plant
    found_by: str
    on: str
    knobs: dict[str, Any] = field(default_factory=dict)
    params: dict[str, Any] = field(default_factory=dict)
    fields: dict[str, Any] = field(default_factory=dict)

    @property
    def rows(self) -> list[str]:
        """Rows on which it is planted."""
        return self.on.split()

    def row(self, row_id: str) -> Row:
        """A row of the contract, changed as the bug needs it."""
        row = BY_ID[row_id]
        params, knobs = {**row.params, **self.params}, {**row.knobs, **self.knobs}
        return dataclasses.replace(row, params=params, knobs=knobs, **self.fields)


def setting(target: str, value: Any) -> Plant:
    return lambda patch: patch.setattr(target, value)


def all_of(*plants: Plant) -> Plant:
    def plant(patch: pytest.MonkeyPatch) -> None:
        for each in plants:
            each(patch)

    return plant


def replaces(owner: Any, name: str) -> Callable[[Callable[..., Any]], Plant]:
    """A method, or a function of a module, whose first argument is the honest one."""

    def planting(changed: Callable[..., Any]) -> Plant:
        def plant(patch: pytest.MonkeyPatch) -> None:
            home = importlib.import_module(owner) if isinstance(owner, str) else owner
            honest = getattr(home, name)
            patch.setattr(home, name, lambda *args, **known: changed(honest, *args, **known))

        return plant

    return planting


# Noise.


def scaled(factor: float) -> type[CryptographicNoise]:
    """Noise with a factor, of both laws."""

    class Scaled(CryptographicNoise):
        def add_gaussian(self, value: Any, scale: float, stream: Any) -> Any:
            return super().add_gaussian(value, factor * scale, stream)

        def add_laplace(self, value: Any, scale: float, stream: Any) -> Any:
            return super().add_laplace(value, factor * scale, stream)

    return Scaled


def gaussian(changed: Callable[..., Any]) -> type[CryptographicNoise]:
    """Noise whose Gaussian law is made of the honest one, a value, a scale and a stream."""

    class Changed(CryptographicNoise):
        def add_gaussian(self, value: Any, scale: float, stream: Any) -> Any:
            return changed(super().add_gaussian, value, scale, stream)

    return Changed


def half_in_whole_cells(add: Any, value: Any, scale: float, stream: Any) -> Any:
    """Of shared sums, whose noise is a whole number."""
    return np.rint(add(value, scale, stream) * 0.5)


def same_for_every_class(add: Any, value: Any, scale: float, stream: Any) -> Any:
    return value + add(np.zeros(value.shape[:-1]), scale, stream)[..., None]


def same_for_every_agent(add: Any, value: Any, scale: float, stream: Any) -> Any:
    return value + add(np.zeros(value.shape[1:]), scale, stream)


def same_in_every_step(add: Any, value: Any, scale: float, stream: Any) -> Any:
    drawn = add(value, scale, stream)
    return np.broadcast_to(drawn[:1], drawn.shape).copy()


def less_in_early_steps(add: Any, value: Any, scale: float, stream: Any) -> Any:
    step = stream[-1]
    return value if step == 0 else add(value, scale * step / (step + 1), stream)


class SameInEveryRelease(CryptographicNoise):
    """The first vector serves all."""

    def __init__(self) -> None:
        object.__setattr__(self, "drawn", {})

    def _again(self, add: Any, value: Any, scale: float, stream: Any) -> Any:
        drawn = self.drawn  # type: ignore[attr-defined]
        if value.shape not in drawn:
            drawn[value.shape] = add(np.zeros(value.shape), 1.0, stream)
        return value + scale * drawn[value.shape]

    def add_gaussian(self, value: Any, scale: float, stream: Any) -> Any:
        return self._again(super().add_gaussian, value, scale, stream)

    def add_laplace(self, value: Any, scale: float, stream: Any) -> Any:
        return self._again(super().add_laplace, value, scale, stream)


class UndoneInEverySecondStep(CryptographicNoise):
    """Noise of odd steps takes back that of the step before."""

    def __init__(self) -> None:
        object.__setattr__(self, "last", {})

    def add_gaussian(self, value: Any, scale: float, stream: Any) -> Any:
        last = self.last  # type: ignore[attr-defined]
        if stream[-1] % 2 == 1 and value.shape in last:
            return value - last[value.shape]
        last[value.shape] = super().add_gaussian(np.zeros(value.shape), scale, stream)
        return value + last[value.shape]


def noise(source: Callable[[], Any]) -> Plant:
    modules = ("_fitting", "_statistics")
    names = [f"skdpadmm.{module}.noise_source" for module in modules]
    return all_of(*(setting(name, lambda *arguments: source()) for name in names))


# Streams whose noise cancels.


class OnTheModel:
    """Private sums as an attribute of the model, for whoever copies or loads it."""

    def __setitem__(self, model: Any, kept: Any) -> None:
        vars(model)["_hidden_"] = kept

    def __contains__(self, model: Any) -> bool:
        return False

    def pop(self, model: Any, default: Any) -> Any:
        return vars(model).pop("_hidden_", default)


def eight_terms(self: Any, n_steps: float = 8) -> float:
    """A norm of coefficients that leaves out those of later steps."""
    return honest_norm(self, min(n_steps, 8))


class Short(ExponentialSum):
    """The same coefficients with a norm of eight of them."""

    def norm(self, n_steps: float = 8) -> float:
        return honest_norm(self, min(n_steps, 8))


honest_norm = ExponentialSum.norm
SHORT = Short(NOISE.weights, NOISE.decays)


@replaces("skdpadmm._streaming", "gate_of")
def noise_from_the_beginning(gate_of: Any, fit: Any, plan: Any, noise: Any, n_arrived: int) -> Any:
    """The noise of the first piece for every piece."""
    return gate_of(fit, plan, noise, 0)


@replaces(ClippedSum, "over")
def a_record_in_two_steps(over: Any, self: Any, problem: Any) -> Any:
    """Each step takes the records of the step before once more."""
    exact = over(self, problem)

    def total(model: Any) -> Any:
        before = EARLIER[-1:] if model.any() else []
        EARLIER[:] = [exact]
        return exact(model) + sum(each(model) for each in before)

    return total


EARLIER: list[Any] = []


def noise_of_turns(changed: Callable[..., Any]) -> Plant:
    """Noise of turns made of what draws it, the turns themselves, and the number of one."""
    return replaces(Turns, "_noise_of")(changed)


@replaces(Turns, "__init__")
def noise_of_the_mean_in_turns(
    start: Any, self: Any, release: Any, agents: Any, *more: Any
) -> None:
    start(self, release, agents, *more)
    self.scales = self.scales / np.maximum(agents.agent_sizes, 1)


@replaces(Gate, "_noise_std")
def first_sender_without_noise(whole: Any, self: Any, release: Any, senders: Any) -> Any:
    if release.made_of != "sum":
        return whole(self, release, senders)
    agents = self._agents(release)
    return np.linalg.norm(np.asarray(release.agent_noise_std)[agents.kind[1:]])


def planned(change: Callable[[Any], dict[str, Any]]) -> Plant:
    """Releases other than those that were paid for, in plans that nobody checks."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        def cheat(self: Any) -> None:
            if self.budget.is_private:
                changed = tuple(dataclasses.replace(r, **change(r)) for r in self.releases)
                object.__setattr__(self, "releases", changed)

        patch.setattr(Plan, "__post_init__", cheat)

    return plant


def noise_times(factor: float) -> Callable[[Any], dict[str, Any]]:
    def changed(release: Any) -> dict[str, Any]:
        of_agents = tuple(factor * noise_std for noise_std in release.agent_noise_std)
        return {"noise_std": factor * release.noise_std, "agent_noise_std": of_agents}

    return changed


# Clips.


def unclipped(name: str, *modules: str) -> Plant:
    names = [f"{module}.{name}" for module in modules]
    return all_of(*(setting(name, lambda values, *bounds: values) for name in names))


def no_clip(*modules: str) -> Plant:
    return unclipped("clip_derivative", *modules)


def no_vector_clip(*modules: str) -> Plant:
    return unclipped("clip_vectors", *modules)


def compiled(plant: Plant) -> Plant:
    """In the loop of large data, for small data."""
    return all_of(setting("skdpadmm.records._segments.COMPILED_ENTRIES", 0), plant)


@replaces(Segments, "compiled_sums")
def infinite_bounds(sums: Any, self: Any, models: Any, loss: Any, *records: Any) -> Any:
    target, bound, weight = records
    return sums(self, models, loss, target, np.full(len(bound), np.inf), weight)


@replaces(Segments, "compiled_sums")
def weights_without_batch(sums: Any, self: Any, models: Any, loss: Any, *records: Any) -> Any:
    return sums(self, models, loss, *records[:2], self.rows.weight)


@replaces(Rows, "__init__")
def rows_not_scaled_down(start: Any, self: Any, *args: Any) -> None:
    start(self, *args)
    self.weight = np.ones(self.n_samples)


def clipped_before_weighted(module: str) -> Plant:
    """The clip of gradients of a loss without weights, which are 6 for the heaviest class."""

    @replaces(module, "clip_derivative")
    def changed(clip: Any, derivative: Any, limit: Any) -> Any:
        return 6.0 * clip(derivative / 6.0, limit)

    return changed


weights_left_out = setting(
    "skdpadmm.losses.WeightedLoss.smoothness", property(lambda self: self.loss.smoothness)
)


def turns_with(**known: Any) -> Plant:
    """Turns that clip by another bound, or in the norm of another law."""
    planting = replaces(ClippedSum, "of_some_agents")
    return planting(lambda sums, own, *args: sums(dataclasses.replace(own, **known), *args))


def largest_of_rows(rows: Any) -> Any:
    seen = np.abs(np.concatenate([rows.augmented(i) for i in range(rows.n_blocks)]))
    return seen.max(axis=1)


# What is counted.

zero_out_counted = setting("skdpadmm.privacy.Neighboring.sensitivity_factor", 1)
second_moment_of_zero_out = setting("skdpadmm.privacy.Neighboring.second_moment_factor", 1.0)


def hidden_by_all(kind: str) -> Plant:
    return setting(f"skdpadmm.protocol.{kind}.together", lambda self, observer, n: n)


# As if every agent took half of the planned steps.
credited_absences = setting(
    f"{ALGORITHMS}._network_steps.GaussianDP", lambda mu: GaussianDP(mu * 0.5**0.5)
)


def absent_by_rows(patch: pytest.MonkeyPatch) -> None:
    seen = []

    @replaces(f"{ALGORITHMS}._network_steps", "noisy_gradients")
    def look(gradients: Any, plan: Any, problem: Any, *args: Any, **known: Any) -> Any:
        seen.append(int(1e6 * np.abs(problem.rows.seen(0)).sum()))
        return gradients(plan, problem, *args, **known)

    @replaces(f"{ALGORITHMS}._network_steps", "draw_rounds")
    def drop(draw: Any, *args: Any) -> Any:
        for now in draw(*args):
            here = now.present & (np.arange(len(now.present)) != seen[-1] % len(now.present))
            yield dataclasses.replace(now, present=here, links=now.links.among(here))

    all_of(look, drop)(patch)


@replaces(f"{ALGORITHMS}._network_steps", "disagreement")
def one_sided_duals(disagreement: Any, *args: Any) -> Any:
    """As if messages to the first agent were lost."""
    found = disagreement(*args)
    found[0] = 0.0
    return found


@replaces(f"{ALGORITHMS}._decentralized_gradient_descent", "push_matrix")
def shares_by_receiver(push: Any, links: Any) -> Any:
    mixing = push(links)
    return dataclasses.replace(mixing, weights=mixing.weights.T.tocsr())


@replaces(f"{ALGORITHMS}._consensus_admm", "draw_schedule")
def rounds_that_lose_messages(draw: Any, *args: Any, **known: Any) -> Any:
    schedule = draw(*args, **known)
    sends = schedule.sends.copy()
    sends[:, 1:] = False
    return dataclasses.replace(schedule, sends=sends)


@replaces(f"{ALGORITHMS}._secret_sharing_gradient_descent", "draw_schedule")
def shared_sums_that_lose_messages(draw: Any, *args: Any) -> Any:
    schedule = draw(*args)
    return dataclasses.replace(schedule, sends=schedule.sends & (np.arange(4) < 1))


@replaces(f"{ALGORITHMS}._consensus_admm", "path_sensitivities")
def first_sensitivity(all_of_them: Any, *args: Any) -> Any:
    sensitivities = all_of_them(*args)
    return sensitivities[:1] * len(sensitivities)


@replaces(Federation, "together")
def with_absent_agents(together: Any, self: Any, observer: str, n_messages: int) -> Any:
    return together(self, observer, self.n_agents)


def hops(changed: Callable[[Any], Any]) -> Plant:
    """A walk that is another one than was drawn."""
    walks = replaces(f"{ALGORITHMS}._random_walks", "draw_hops")
    return walks(lambda draw, *args, **known: changed(draw(*args, **known)))


every_visit_contributes = hops(lambda h: type(h)(h.holder, np.ones_like(h.contributes)))
one_hop_less = hops(lambda h: type(h)(h.holder[:-1], h.contributes[:-1]))


# The gate.


@replaces(ConsensusADMM, "run")
def a_release_outside_the_plan(run: Any, self: Any, plan: Any, problem: Any, gate: Any) -> Any:
    gate.release("residuals", np.asarray(problem.target))
    return run(self, plan, problem, gate)


@replaces("skdpadmm._fitting", "rescale")
def exact_units(rescale: Any, coordinates: Any, each: Any, scaling: Any, gate: Any) -> Any:
    """The median of the exact histogram, beside one that is released in vain."""
    rescale(coordinates, each, scaling, gate)
    counts = sum(each(norm_counts, coordinates.undeclared))
    return coordinates.rescaled(scaling.target / median_norm(counts, 0.0, default=1.0))


@replaces("skdpadmm._fitting", "recentre")
def exact_centre(recentre: Any, coordinates: Any, each: Any, facts: Any, gate: Any) -> Any:
    """The mean of the target itself, beside one that is released in vain."""
    unit = recentre(coordinates, each, facts, gate).target_unit
    sums = sum(each(target_sums, coordinates))
    return coordinates.recentred(float(sums[0] / facts.n_samples), unit)


def moments_of_half_the_records(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Neighboring, "target_moments_factor", property(lambda self: 1.0))


@replaces(Rows, "in_basis")
def exact_clip_unit(in_basis: Any, self: Any, basis: Any, over_blocks: Any) -> Any:
    unit = basis.clip_unit * math.sqrt(float(np.mean(self.squared_norm)))
    return in_basis(self, dataclasses.replace(basis, clip_unit=unit), over_blocks)


def exact_loading(patch: pytest.MonkeyPatch) -> None:
    """The mean square of the rows themselves, in what a classifier knows of its doubt."""
    own = property(lambda self: np.full(self.coordinates.n_parameters, self.squared_norm.mean()))
    patch.setattr(Rows, "loading", own)


@replaces(Tail, "score_variance")
def exact_spread(score_variance: Any, self: Any, rows: Rows) -> Any:
    """The spread of a path along the rows themselves, by which coefficients are scaled."""
    return score_variance(self, rows) * float(rows.squared_norm.mean())


@replaces(ConsensusADMM, "run")
def run_twice(run: Any, *args: Any) -> Any:
    run(*args)
    return run(*args)


def a_release_past_the_gate(patch: pytest.MonkeyPatch) -> None:
    passed = []

    @replaces(Gate, "release")
    def skip_one(release: Any, self: Any, name: str, value: Any, *more: Any) -> Any:
        passed.append(name)
        return value if len(passed) == 2 else release(self, name, value, *more)

    skip_one(patch)


@replaces(ConsensusADMM, "run")
def data_in_the_model(run: Any, self: Any, plan: Any, problem: Any, gate: Any) -> Any:
    solution = run(self, plan, problem, gate)
    shift = 1e-3 * float(np.mean(problem.target))
    return dataclasses.replace(solution, parameters=solution.parameters + shift)


@replaces(ConsensusADMM, "run")
def a_stop_that_looks_at_data(run: Any, self: Any, plan: Any, problem: Any, gate: Any) -> Any:
    honest = gate.release

    def release(name: str, value: Any, *more: Any) -> Any:
        if value.ravel()[0] < 0:
            gate.skip(name)
            return np.zeros_like(value)
        return honest(name, value, *more)

    gate.release = release
    return run(self, plan, problem, gate)


@replaces(GradientADMM, "_through")
def steps_left_out(
    through: Any,
    self: Any,
    plan: Any,
    problem: Any,
    gate: Any,
    state: Any,
    records: Any,
    *more: Any,
) -> Any:
    return through(self, plan, problem, gate, state, records[:-1], *more)


@replaces(ObjectivePerturbation, "run")
def a_second_hidden_term(run: Any, self: Any, plan: Any, problem: Any, gate: Any) -> Any:
    gate.hidden_term(plan.releases[-1].name)
    return run(self, plan, problem, gate)


@replaces(GradientDescent, "_last_release")
def a_misnamed_release(honest: Any, *args: Any) -> Any:
    settings, release = honest(*args)
    return settings, dataclasses.replace(release, name="iterate")


an_iterate_as_a_gradient = all_of(
    setting(f"{ALGORITHMS}._gradient_descent.ITERATE", "mean gradient"), a_misnamed_release
)


# What fits plan, keep and leave.


@replaces(PendingFit, "solve")
def a_plan_made_with_data(solve: Any, self: Any, noise: Any) -> Any:
    plan, typical = self.planned.plan, 1.0 + float(np.mean(self.y > 0))
    settings = plan.settings.but(clip_norm=plan.settings.clip_norm * typical)
    planned = dataclasses.replace(self.planned, plan=dataclasses.replace(plan, settings=settings))
    return solve(dataclasses.replace(self, planned=planned), noise)


@replaces(PendingFit, "report")
def a_report_about_data(report: Any, self: Any, *args: Any) -> Any:
    honest = report(self, *args)
    line = f"the mean target is {self.y.mean():.3g}"
    return dataclasses.replace(honest, assumptions=(*honest.assumptions, line))


def kept(name: str, made_of: Callable[[Any, Any, Any], Any]) -> Plant:
    """One attribute more, made of the model, its rows and its targets."""

    @replaces(PrivateLinearModel, "_fit")
    def keeping(fit: Any, self: Any, X: Any, y: Any, *more: Any) -> None:
        fit(self, X, y, *more)
        setattr(self, name, made_of(self, X, y))

    return keeping


def without_penalty(*modules: str) -> Plant:
    names = [f"{ALGORITHMS}.{module}.penalty_operator" for module in modules]
    return all_of(*(setting(n, lambda _, step, rows: rows.to_coordinates) for n in names))


@replaces(Engine, "sum")
def sums_by_number_of_jobs(total: Any, self: Any, *args: Any) -> Any:
    return total(self, *args) * (1 + 1e-4 * (self.n_jobs or 1))


def attributes_of_a_fit_that_fails(patch: pytest.MonkeyPatch) -> None:
    for module in ("central", "_streaming", "_model_of_agents"):
        patch.setattr(f"skdpadmm.{module}.all_or_nothing", contextlib.nullcontext)


@replaces(PendingFit, "solve")
def output_about_huge_rows(solve: Any, self: Any, noise: Any) -> Any:
    if np.abs(self.X).max() > 1e100:
        print("rows are huge")
    return solve(self, noise)


@replaces(ConsensusADMM, "run")
def a_step_size_that_a_fit_sets(run: Any, self: Any, plan: Any, *args: Any) -> Any:
    self.step_size = plan.settings.step_size
    return run(self, plan, *args)


a_parameter_that_a_fit_sets = all_of(
    a_step_size_that_a_fit_sets,
    setting("skdpadmm._linear_model.resolve_algorithm", lambda algorithm, setting, **_: algorithm),
)


def a_pickle_without_the_report(patch: pytest.MonkeyPatch) -> None:
    def state(self: Any) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "privacy_"}

    patch.setattr(PrivateLinearModel, "__getstate__", state)


# Secret batches.


@replaces(ClippedSum, "over")
def batches_divided_by_their_size(over: Any, self: Any, problem: Any) -> Any:
    exact = over(self, problem)

    def total(model: Any, counts: Any = None) -> Any:
        return exact(model, counts) * (len(counts) / 2) / max(np.count_nonzero(counts), 1)

    return total


@replaces(ClippedSum, "over")
def rows_sampled_in_place_of_persons(over: Any, self: Any, problem: Any) -> Any:
    exact = over(self, problem)
    return lambda model, counts=None: exact(model, np.roll(counts, 1))


def sampled_as_zero_out(patch: pytest.MonkeyPatch) -> None:
    from skdpadmm.algorithms import _gradient_descent as module

    honest = module.PoissonSubsampledGaussian
    counted = lambda q, noise, n, _: honest(q, noise, n, Neighboring.ZERO_OUT)  # noqa: E731
    patch.setattr(module, "PoissonSubsampledGaussian", counted)


@replaces(Gate, "uniform")
def everyone_in_every_batch(uniform: Any, self: Any, shape: Any) -> Any:
    return uniform(self, shape) / 1e6


@replaces(Gate, "uniform")
def one_batch_for_all_steps(uniform: Any, self: Any, shape: Any) -> Any:
    self._draws = 0
    return uniform(self, shape)


# A delta of zero.


@replaces(Composed, "epsilon")
def the_largest_of_pure_epsilons(epsilon: Any, self: Any, delta: float) -> float:
    return epsilon(self, delta) if delta else max(leaf.epsilon(0.0) for leaf in self.leaves)


def a_delta_that_underflows(guarantee: Any, epsilon: float, delta: float) -> bool:
    return guarantee.delta(epsilon) <= delta


# Maps of the user's own.


def a_map_that_sees_exact_sums(patch: pytest.MonkeyPatch) -> None:
    sums = []

    def over(honest: Any, self: Any, problem: Any) -> Any:
        exact = honest(self, problem)
        return lambda z: sums.append(exact(z)) or sums[-1]

    def points(honest: Any, self: Any, *args: Any) -> Any:
        return (z + sum(sums[-1:]) for z in honest(self, *args))

    replaces(ClippedSum, "over")(over)(patch)
    replaces(FixedPointIteration, "_points")(points)(patch)


@replaces(FixedPointIteration, "released")
def a_contraction_that_is_believed(released: Any, *args: Any) -> Any:
    settings, release = released(*args)
    view = View(observer="model", guarantees=(release.guarantee,))
    return settings, dataclasses.replace(release, noise_std=release.noise_std / 2, views=(view,))


# Persons.


@replaces(Ownership, "slots")
def surplus_rows(slots: Any, self: Any, size: int) -> Any:
    return slots(self, max(size, int(self.sizes.max())))


def numbers_of_rows_in_the_plan(patch: pytest.MonkeyPatch) -> None:
    """The fit plans for as many persons as there are rows."""
    n_rows: list[int] = []

    def seen(slots: Any, self: Any, size: int) -> Any:
        n_rows[:] = [int(self.sizes.sum())]
        return slots(self, size)

    def planned(plan: Any, self: Any, **facts: Any) -> Any:
        return plan(self, **facts | ({"n_samples": n_rows.pop()} if n_rows else {}))

    replaces(Ownership, "slots")(seen)(patch)
    replaces(PrivateLinearModel, "_plan_fit")(planned)(patch)


@replaces(Problem, "progress")
def a_trace_that_knows_rows(progress: Any, self: Any, done: int, point: Any = None) -> None:
    found = point() if callable(point) else point
    progress(self, done, None if found is None else found + self.rows.squared_norm.sum())


def clip_of_rows_of_persons(
    rows: Any, block: int, slopes: Any, weights: Any, clip_norm: float, per_person: int
) -> Any:
    """Each row may be as long as its person."""
    longest = clip_norm * per_person / np.sqrt(rows.squared_norm[rows.slices[block]])
    return clip_derivative((slopes.T * weights).T, longest)


# Weights of records.


@replaces(PendingFit, "solve")
def weights_beyond_their_bound(solve: Any, self: Any, noise: Any) -> Any:
    """What `max_weight` cuts off comes back: of records at their bounds, see the registry."""
    beyond = np.where(self.weights == 1.0, 1e3, self.weights)
    return solve(dataclasses.replace(self, weights=beyond), noise)


def clipped_before_weights_of_records(
    rows: Any, block: int, slopes: Any, weights: Any, clip_norm: float, per_person: int
) -> Any:
    longest = clip_norm / np.sqrt(rows.squared_norm[rows.slices[block]])
    return (clip_derivative(slopes, longest).T * weights).T


@replaces(CentralModel, "_weighed")
def a_penalty_in_the_units_of_other_weights(weighed: Any, *args: Any) -> Any:
    trust, weights = weighed(*args)
    return dataclasses.replace(trust, max_weight=1.0), weights


@replaces(CentralModel, "_weighed")
def a_bound_from_the_weights(weighed: Any, self: Any, trust: Any, given: Any, X: Any) -> Any:
    """As if the largest weight were public."""
    found, weights = weighed(self, trust, given, X)
    largest = found.max_weight if X is None else min(max(float(np.max(given)), 1.0), 9.0)
    return dataclasses.replace(found, max_weight=largest, weight_spread=largest), weights


# Noise that pairs share.


@replaces("skdpadmm.protocol._agents", "honest_messages")
def coalition_ignored(honest: Any, pairs: Any, n_dishonest: int, ratio: float) -> Any:
    """As if nobody told what noise pairs share."""
    return honest(pairs, 0, ratio)


@replaces(Gate, "_shared_noise")
def one_seed_for_all_rounds(honest: Any, gate: Any, release: Any, index: int, _: int) -> Any:
    """A pair's noise of the first round, again and again."""
    return honest(gate, release, index, 0)


@replaces(Gate, "_shared_noise")
def same_sign_at_both_ends(honest: Any, gate: Any, release: Any, *stream: int) -> Any:
    """Agents add what they should subtract."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(np, "subtract", np.add)
        return honest(gate, release, *stream)


@replaces(Gate, "_shared_noise")
def another_grid_at_one_end(honest: Any, gate: Any, release: Any, *stream: int) -> Any:
    """The first agent rounds what it shares more coarsely than its neighbours do."""
    shared = honest(gate, release, *stream)
    shared[0] = np.rint(shared[0] * 2.0**12) * 2.0**-12
    return shared


@replaces(Gate, "_noise_std")
def lost_messages_forgotten(honest: Any, gate: Any, release: Any, senders: Any) -> Any:
    """As if what was shared with those whose messages are lost cancelled."""
    return math.hypot(*gate._noise_of_agents(release)[senders])


# Intervals.

INFERENCE, OF_INTERVALS = f"{ALGORITHMS}._inference", "tests.algorithms.test_inference"


# Few records have noise that a clip hardly reaches; tests of the algorithm show that it is honest.
def bound_that_binds(patch: pytest.MonkeyPatch) -> None:
    """Rows are scaled down to half of a usual one: in an open basis few are longer than more."""
    setting(f"{ALGORITHMS}._inference.LEAST_SQUARE", 0.01)(patch)
    setting(f"{ALGORITHMS}._inference.EDGES", {True: 1e-9, False: 1e-9})(patch)


clip_that_binds = all_of(
    setting(f"{INFERENCE}.LEAST_OPENING", 0.1),
    setting(f"{INFERENCE}.NOISE", 0.0),
    setting(f"{INFERENCE}.LEAST_CLEARANCE", 0.0),
)


@replaces(INFERENCE, "gradients_at")
def no_clip_of_gradients(sums: Any, loss: Any, longest: float, clip: float, problem: Any) -> Any:
    return sums(loss, longest, math.inf, problem)


@replaces(INFERENCE, "curvature_at")
def rows_as_they_are(sums: Any, loss: Any, longest: float, problem: Any) -> Any:
    return sums(loss, math.inf, problem)


@replaces(INFERENCE, "bounds_of_rows")
def rows_of_any_rate(bounds: Any, loss: Any, longest: float, curved: Any) -> Any:
    return np.full(len(curved), longest)


@replaces(INFERENCE, "lengths_at")
def lengths_of_rows(sums: Any, loss: Any, longest: float, problem: Any) -> Any:
    """Of persons, whose rows count as records do."""
    return sums(loss, longest, dataclasses.replace(problem, weights=None))


@replaces(INFERENCE, "gradients_at")
def sums_over_rows(sums: Any, loss: Any, longest: float, clip: float, problem: Any) -> Any:
    """Of persons, whose rows count as records do."""
    return sums(loss, longest, clip, dataclasses.replace(problem, weights=None))


@replaces(INFERENCE, "gradients_at")
def squares_of_unclipped(sums: Any, loss: Any, longest: float, clip: float, problem: Any) -> Any:
    honest, wide = (sums(loss, longest, c, problem) for c in (clip, math.inf))

    def total(parameters: Any, basis: Any) -> Any:
        d = len(basis)
        return np.append(honest(parameters, basis)[:d], wide(parameters, basis)[d:])

    return total


@replaces(Gate, "_noise_std")
def no_noise_of_an_agent_at_the_model(whole: Any, self: Any, release: Any, senders: Any) -> Any:
    if release.name not in SHARES:
        return whole(self, release, senders)
    agents = self._agents(release)
    return np.linalg.norm(np.asarray(release.agent_noise_std)[agents.kind[1:]])


@replaces("skdpadmm._fitting", "debiased")
def noise_of_one_agent_in_covariances(step: Any, plan: Any, *args: Any) -> Any:
    known = plan.facts.inference
    changed = tuple(dataclasses.replace(r, noise_std=r.agent_noise_std[0]) for r in known.releases)
    known = dataclasses.replace(known, releases=changed)
    facts = dataclasses.replace(plan.facts, inference=known)
    return step(dataclasses.replace(plan, facts=facts), *args)


def unseen_at_the_model(observer: str) -> Plant:
    """As if an observer learned nothing of the messages at the model."""

    def changed(release: Any) -> dict[str, Any]:
        if release.name not in SHARES:
            return {}
        nothing = View(observer=observer, guarantees=(GaussianDP(0.0),))
        views = tuple(nothing if v.observer == observer else v for v in release.views)
        return {"views": views}

    return planned(changed)


@replaces(f"{ALGORITHMS}._averaged_admm", "_inner_problem")
def shorter_than_the_longest_row(
    honest: Any, facts: Any, settings: Any, rows: Any, *rest: Any
) -> Any:
    """As if what rows are scaled down to followed from the rows."""
    if rows is not None:
        longest = 0.5 * math.sqrt(rows.squared_norm.max()) / rows.typical_norm
        settings = settings.but(row_bound=min(settings.row_bound, longest))
    return honest(facts, settings, rows, *rest)


# A private number of records.


@replaces("skdpadmm._fitting", "released_count")
def a_plan_for_the_exact_number(count: Any, n_samples: int, gate: Gate) -> int:
    count(n_samples, gate)
    return n_samples


@replaces(f"{ALGORITHMS}._consensus_admm", "placed_blocks")
def messages_over_the_exact_number(placed: Any, plan: Plan, problem: Problem, *args: Any) -> Any:
    exact = placed(plan, problem, *args)
    return lambda *point: exact(*point) * plan.facts.n_samples / problem.rows.n_samples


@replaces(ClippedSum, "over")
def gradients_over_the_exact_number(over: Any, self: Any, problem: Problem) -> Any:
    exact = over(self, problem)
    return lambda *point: exact(*point) * self.facts.n_samples / problem.rows.n_samples


@replaces(f"{ALGORITHMS}._preparations", "plan_release")
def a_count_that_costs_nothing(planned: Any, *args: Any, name: str, **facts: Any) -> Any:
    release = planned(*args, name=name, **facts)
    free = View(observer="model", guarantees=(GaussianDP(0.0),))
    return dataclasses.replace(release, views=(free,)) if name == "number of records" else release


@replaces(PrivateLinearModel, "_spend")
def a_count_before_its_reservation(spend: Any, self: Any, fit: PendingFit) -> Any:
    fit.solve(fit.noise(self.random_state, fit.planned.plan.digest()))
    return spend(self, fit)


# Statistics beside a fit.


@replaces(Gate, "release")
def exact_statistics(release: Any, gate: Any, name: Any, value: Any) -> Any:
    """Released with noise, which is forgotten."""
    release(gate, name, value)
    return value


@replaces(Gate, "release")
def release_twice(release: Any, *args: Any) -> Any:
    release(*args)
    return release(*args)


def sensitivity_times(factor: float) -> Plant:
    def planned(plan: Any, subject: Any, shape: Any, sensitivity: float, **known: Any) -> Any:
        return plan(subject, shape, factor * sensitivity, **known)

    modules = ("skdpadmm.preprocessing._bounds", "skdpadmm.metrics")
    return all_of(*(replaces(module, "plan_statistics")(planned) for module in modules))


def bounds_of_targets(patch: pytest.MonkeyPatch) -> None:
    """The range of the targets in place of the declared one."""
    seen: list[Any] = []

    @replaces("skdpadmm.metrics", "column_or_1d")
    def looked_at(column: Any, y: Any) -> Any:
        seen.append(column(y))
        return seen[-1]

    looked_at(patch)
    ends = lambda *_: tuple(np.clip([min(seen[-1]), max(seen[-1])], -3.0, 3.0))  # noqa: E731
    patch.setattr("skdpadmm.metrics.pair_of_bounds", ends)


@replaces("skdpadmm.metrics", "_ratio")
def samples_that_are_sure(ratio: Any, part: Any, rest: Any, *noise: Any) -> Any:
    """Without the term of Agresti and Coull."""
    share, noise_std, _ = ratio(part, rest, *noise)
    return share, noise_std, share * (1 - share) / (part + rest)


# Functions that are written otherwise.


def rewritten(owner: Any, name: str, honest: str, changed: str) -> Plant:
    """A method, or a function of a module, with another line."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        home = importlib.import_module(owner) if isinstance(owner, str) else owner
        source = textwrap.dedent(inspect.getsource(getattr(home, name)))
        assert honest in source
        # With what its module imports.
        known = dict(vars(inspect.getmodule(getattr(home, name))))
        exec("from __future__ import annotations\n" + source.replace(honest, changed), known)
        patch.setattr(home, name, known[name])

    return plant


COMPILED_LOOP = "skdpadmm.records._segments"


def anew(plant: Plant) -> Plant:
    """Compiled again, and forgotten afterwards."""

    def fresh(patch: pytest.MonkeyPatch) -> None:
        plant(patch)
        segments = importlib.import_module(COMPILED_LOOP)
        patch.setattr(segments, "_compiled", cache(segments._compiled.__wrapped__))

    return fresh


def fast_math(patch: pytest.MonkeyPatch) -> None:
    numba = pytest.importorskip("numba")
    njit = numba.njit
    patch.setattr(numba, "njit", lambda **known: njit(**{**known, "fastmath": True}))


def rows_that_maps_are_handed(patch: pytest.MonkeyPatch) -> None:
    """Rows of the fit in what maps its steps to proximal operators."""
    seen: list[Any] = []

    @replaces(ClippedSum, "over")
    def look(over: Any, self: Any, problem: Any) -> Any:
        seen.append(problem.rows)
        return over(self, problem)

    look(patch)
    patch.setattr(f"{ALGORITHMS}._fixed_point_iteration.Rows", lambda *_: seen[-1])


@replaces(f"{ALGORITHMS}._messages", "noisy_sum")
def increments_that_are_not_relaxed(noisy: Any, *args: Any, **known: Any) -> Any:
    """Without the factor of 2 lambda, where lambda is .9."""
    lower = tuple(each / 1.8 for each in known["sensitivities"])
    return noisy(*args, **known | {"sensitivities": lower})


@replaces(ClippedSum, "_losses")
def euclidean_norm_of_scores(losses: Any, self: Any, problem: Any) -> Any:
    """Under Laplace noise too."""
    honest = losses(self, problem)
    factor = math.sqrt(self.facts.loss.n_outputs) if self.law == "laplace" else 1.0
    return dataclasses.replace(honest, bound=honest.bound * factor)


def clip_times(factor: float, *names: str) -> Plant:
    def wider(name: str) -> Plant:
        module, _, clip = name.rpartition(".")
        return replaces(module, clip)(lambda honest, x, limit: honest(x, factor * limit))

    return all_of(*map(wider, names))


PLANNED, FRESH = "noise_is_as_planned_and_fresh", "noise_is_as_planned_and_fresh"
REPLAY, LINEAR = "replay_within_sensitivity", "linear_losses_attain_the_claim"
TRACE, FUNCTION = "trace_is_the_plan", "model_is_a_function_of_the_released"
BEFORE_DATA, BUDGET = "plan_before_data", "budget_is_met_and_used_up"
KEPT, OPTIMUM, BITS = "nothing_private_is_kept", "no_noise_reaches_the_optimum", "same_bits"
PATH = "the_path_is_released_or_refused"
REFUSALS, ROUND_TRIP = "refusals_leave_nothing", "parameters_round_trip"

# A row for each release method of the gate, and for each algorithm that uses it differently.
GAUSSIAN = (
    "consensus-exact averaged-path averaged-last coordinates-cyclic gradient-path"
    " gradient-last-zero-out gradient-cyclic gradient-admm-last gradient-admm-stream objective"
    " federated-server federated-sums-honest-zero-out graph-gradient multi-step walk-admm"
    " walk-point-zero-out personal-warm personal-local bounds scores scores-numbers"
)
IN_TURNS = "personal-laplace personal-warm personal-local"

# fmt: off
BUGS = [
    Bug("a coalition that pairs ignore", coalition_ignored, LINEAR,
        "federated-server graph-gradient graph-gradient-coalition"),
    Bug("a trace that knows rows", a_trace_that_knows_rows, PATH,
        "consensus-exact gradient-path multi-step personal-warm sharing-federated"),
    Bug("a trace of a hidden path", all_of(*(
        setting(f"{ALGORITHMS}.{name}.releases_path", True)
        for name in ("_gradient_descent.GradientDescent", "_averaged_admm.AveragedADMM",
                     "_gradient_admm.GradientADMM"))), PATH,
        "gradient-last-zero-out gradient-cyclic averaged-last gradient-admm-last"),
    Bug("half the noise", noise(scaled(0.5)), PLANNED, GAUSSIAN),
    Bug("half the Laplace noise", noise(scaled(0.5)), PLANNED, "personal-laplace"),
    Bug("hardly any noise", noise(scaled(0.001)), PLANNED, "consensus-exact"),
    Bug("half the noise in whole cells", noise(gaussian(half_in_whole_cells)), PLANNED,
        "sharing-federated sharing-graph-coalition"),
    Bug("half the noise in turns", noise_of_turns(lambda draw, *turn: draw(*turn) / 2), PLANNED, IN_TURNS),
    Bug("noise of a mean on a sum in turns", noise_of_the_mean_in_turns, PLANNED,
        "personal-laplace personal-warm"),
    Bug("a sender without noise of its own", first_sender_without_noise, PLANNED,
        "federated-server", fields={"n_noise": 1200}),
    Bug("less noise in early steps", noise(gaussian(less_in_early_steps)), PLANNED, "multi-step"),
    Bug("noise that is subtracted again", noise(UndoneInEverySecondStep), FRESH,
        "consensus-exact multi-step"),
    Bug("half the noise in the plan", planned(noise_times(0.5)), LINEAR,
        "consensus-exact gradient-path federated-server multi-step aggregators-admm"
        " aggregators-sgd sharing-federated personal-laplace aggregators-admm-pure-zero-out"
        " bounds scores scores-numbers"),
    Bug("one noise for every class", noise(gaussian(same_for_every_class)), FRESH,
        "consensus-three-classes gradient-momentum-three-classes"),
    Bug("one noise for every agent", noise(gaussian(same_for_every_agent)), FRESH,
        "multi-step multi-step-agent-zero-out graph-gradient"),
    Bug("one noise for every release", noise(SameInEveryRelease), FRESH,
        "consensus-exact averaged-path averaged-last coordinates-cyclic gradient-path"
        " gradient-last-zero-out gradient-cyclic gradient-momentum-three-classes"
        " federated-server multi-step"),
    Bug("one noise for every step of a path", noise(gaussian(same_in_every_step)), FRESH,
        "gradient-admm-last gradient-admm-path-zero-out gradient-admm-sampling"
        " gradient-admm-stopping gradient-admm-stream"),
    Bug("one noise for every turn", noise_of_turns(lambda draw, turns, _: draw(turns, 0)), FRESH,
        "personal-warm personal-delayed personal-local"),
    Bug("noise of the first piece in every piece", noise_from_the_beginning, FRESH,
        "dual-averaging"),
    Bug("coefficients that are left out", setting(f"{ALGORITHMS}._dual_averaging.NOISE", SHORT), LINEAR,
        "dual-averaging dual-averaging-zero-out"),
    Bug("a record in two steps", a_record_in_two_steps, LINEAR, "dual-averaging"),
    Bug("no clip of records", no_clip(f"{ALGORITHMS}._agent_blocks"), LINEAR,
        "consensus-exact federated-server"),
    Bug("no clip of records in a replay", no_clip(SUMS), REPLAY,
        "consensus-linearized-undeclared"),
    Bug("no clip of compiled sums", compiled(infinite_bounds), REPLAY,
        "gradient-last-zero-out multi-step-batches", knobs={"clip_norm": 0.01}),
    Bug("rows not scaled down", rows_not_scaled_down, REPLAY,
        "consensus-norm-sparse gradient-last-norm", knobs={"clip_norm": 0.1}),
    Bug("a clip before weights", clipped_before_weighted(f"{ALGORITHMS}._agent_blocks"), LINEAR,
        "weighted-consensus weighted-federated"),
    Bug("a clip before weights of gradients", clipped_before_weighted(SUMS), LINEAR,
        "weighted-averaged weighted-personal"),
    Bug("no clip of gradients", no_clip(SUMS), LINEAR,
        "averaged-path coordinates-cyclic dual-averaging gradient-path multi-step graph-gradient"
        " sharing-federated sharing-graph-coalition aggregators-admm aggregators-sgd"),
    Bug("no clip of hidden gradients", no_clip(SUMS), REPLAY,
        "gradient-last-zero-out gradient-cyclic", knobs={"clip_norm": 0.01}),
    Bug("no clip of a record's step",
        all_of(*(unclipped(name, f"{ALGORITHMS}._gradient_admm_steps")
                 for name in ("clip_slope", "clip_derivative"))), REPLAY,
        "gradient-admm-last gradient-admm-path-zero-out gradient-admm-sampling"
        " gradient-admm-stopping gradient-admm-stream",
        knobs={"clip_norm": 0.1}),
    Bug("increments whose relaxation nobody counts", increments_that_are_not_relaxed, REPLAY,
        "federated-increments-relaxed", knobs={"clip_norm": 0.01}),
    Bug("increments whose relaxation nobody counts, of linear losses", increments_that_are_not_relaxed,
        LINEAR, "federated-increments-relaxed"),
    Bug("several scores in the Euclidean norm under Laplace noise", euclidean_norm_of_scores, LINEAR,
        "personal-three-classes"),
    Bug("a clip of 1.01 C in a stream",
        clip_times(1.01, f"{ALGORITHMS}._gradient_admm_steps.clip_slope",
                   f"{ALGORITHMS}._gradient_admm_steps.clip_derivative"), LINEAR,
        "gradient-admm-stream"),
    Bug("batches divided by their size", batches_divided_by_their_size, LINEAR, "gradient-batches"),
    Bug("rows sampled in place of persons", rows_sampled_in_place_of_persons, LINEAR,
        "gradient-batches-persons-zero-out"),
    Bug("a map that sees exact sums", a_map_that_sees_exact_sums, FUNCTION, "own-iteration"),
    Bug("a contraction that is believed of a map", a_contraction_that_is_believed, LINEAR,
        "own-iteration own-iteration-persons-zero-out"),
    Bug("no clip where maps look", no_clip(SUMS), LINEAR, "own-iteration"),
    Bug("surplus rows of persons", surplus_rows, LINEAR, "consensus-persons"),
    Bug("numbers of rows of persons in the plan", numbers_of_rows_in_the_plan, BEFORE_DATA,
        "consensus-persons consensus-persons-conditioned-scaled"),
    Bug("rows of persons clipped one by one",
        all_of(*(setting(f"{ALGORITHMS}.{name}.clip_persons", clip_of_rows_of_persons)
                 for name in ("_agent_blocks", "_clipped_sums"))), REPLAY,
        "consensus-persons consensus-persons-three-classes-zero-out gradient-persons"),
    Bug("weights beyond their bound, where rows are clipped before", weights_beyond_their_bound, REPLAY,
        "intervals-records-weighted"),
    Bug("weights beyond their bound, on clipped gradients",
        all_of(weights_beyond_their_bound, *(
            setting(f"{ALGORITHMS}.{name}.clip_persons", clipped_before_weights_of_records)
            for name in ("_agent_blocks", "_clipped_sums"))), LINEAR,
        "records-weighted records-weighted-gradient records-weighted-batches"),
    Bug("a penalty in the units of other weights", a_penalty_in_the_units_of_other_weights, OPTIMUM,
        "records-weighted records-weighted-gradient"),
    Bug("a bound that weights of records tell", a_bound_from_the_weights, BEFORE_DATA,
        "records-weighted"),
    Bug("no clip of agents' blocks", no_vector_clip(f"{ALGORITHMS}._agent_blocks"), REPLAY,
        "federated-dropout-agent", knobs={"clip_norm": 0.001}),
    Bug("no clip of agents' sums", all_of(no_clip(SUMS), no_vector_clip(SUMS)), REPLAY,
        "multi-step-agent-zero-out sharing-federated-agent-zero-out"
        " aggregators-sgd-gaussian-agent", knobs={"clip_norm": 0.0001}),
    Bug("L1 norms of rows by their largest entry",
        setting(f"{SUMS}.absolute_sums", largest_of_rows), LINEAR,
        "aggregators-admm aggregators-sgd"),
    Bug("L1 norms of rows by their Euclidean norm",
        setting(f"{SUMS}.absolute_sums", lambda rows: np.sqrt(rows.squared_norm)),
        LINEAR, "aggregators-admm aggregators-sgd"),
    Bug("no clip in turns", turns_with(clip_norm=math.inf), LINEAR, "personal-laplace"),
    Bug("no clip in turns of agents", turns_with(clip_norm=math.inf), REPLAY,
        "personal-agent-zero-out personal-local", knobs={"clip_norm": 0.0001}),
    Bug("a Euclidean clip under Laplace noise", turns_with(law="gaussian"), LINEAR,
        "personal-laplace"),
    Bug("replace-one counted as zero-out", zero_out_counted, LINEAR,
        "consensus-exact averaged-path coordinates-cyclic dual-averaging gradient-path gradient-admm-last"
        " federated-server multi-step sharing-federated personal-laplace"),
    Bug("replace-one counted as zero-out on hidden paths", zero_out_counted, REPLAY,
        "gradient-cyclic gradient-admm-sampling gradient-admm-stopping",
        knobs={"clip_norm": 0.01}),
    Bug("rows scaled down by what the longest one is", shorter_than_the_longest_row, FUNCTION,
        "averaged-shorter-rows"),
    Bug("half the noise of intervals", noise(scaled(0.5)), PLANNED, "intervals"),
    Bug("gradients at the model without a clip", all_of(clip_that_binds, no_clip_of_gradients), REPLAY,
        "intervals intervals-persons-conditioned"),
    Bug("squares of gradients without a clip", all_of(clip_that_binds, squares_of_unclipped), REPLAY,
        "intervals"),
    Bug("curvature of rows that are not scaled down", all_of(bound_that_binds, rows_as_they_are), REPLAY,
        "intervals intervals-federated"),
    Bug("lengths of all rows of persons", lengths_of_rows, REPLAY,
        "intervals-gamma-persons-zero-out"),
    Bug("curvature counted as zero-out", second_moment_of_zero_out, REPLAY,
        "intervals intervals-federated"),
    Bug("gradients at the model counted as zero-out", zero_out_counted, REPLAY,
        "intervals intervals-federated"),
    Bug("an agent without noise at the model", no_noise_of_an_agent_at_the_model, PLANNED,
        "intervals-federated", fields={"n_noise": 1200}),
    Bug("a plan for the exact number of records", a_plan_for_the_exact_number, FUNCTION,
        "consensus-add-remove gradient-add-remove-centred intervals-add-remove"),
    Bug("messages over the exact number of records", messages_over_the_exact_number, REPLAY,
        "consensus-add-remove", knobs={"clip_norm": 0.01}),
    Bug("gradients over the exact number of records", gradients_over_the_exact_number, REPLAY,
        "gradient-add-remove-centred"),
    Bug("a count that costs nothing", a_count_that_costs_nothing, BUDGET,
        "consensus-add-remove intervals-add-remove"),
    Bug("an exact number of records in the model", kept("n_", lambda model, X, y: len(y)), FUNCTION,
        "consensus-add-remove"),
    Bug("sums over the rows of persons", all_of(clip_that_binds, sums_over_rows), REPLAY,
        "intervals-persons-conditioned"),
    Bug("a second moment counted as zero-out", second_moment_of_zero_out, REPLAY,
        "consensus-conditioned-scaled"),
    Bug("expected absences credited to the guarantee", credited_absences, LINEAR,
        "multi-step-absent", params={"participation": 0.5, "dropout": 0.0}),
    Bug("who is absent decided by the rows", absent_by_rows, FUNCTION,
        "multi-step-absent graph-gradient-absent"),
    Bug("the noise of all counted against the server", hidden_by_all("Federation"), LINEAR,
        "federated-server"),
    Bug("a coalition counted among those who hide an agent", hidden_by_all("Network"), LINEAR,
        "sharing-graph-coalition"),
    Bug("rounds that lose too many messages", rounds_that_lose_messages, TRACE,
        "federated-dropout-agent",
        params={"adversary": "model", "dropout": 0.0, "participation": 0.5}),
    Bug("a cap of a token's visits that is ignored", every_visit_contributes, LINEAR,
        "walk-admm", knobs={"max_contributions": 3},
        params={"adversary": "eavesdropper", "max_iter": 10, "topology": "ring"},
        fields={"composes": True}),
    Bug("a token that misses a hop", one_hop_less, TRACE, "walk-admm walk-point-zero-out"),
    Bug("a release outside of the plan", a_release_outside_the_plan, TRACE, "consensus-exact"),
    Bug("a run that releases twice", run_twice, TRACE, "consensus-exact"),
    Bug("a release past the gate", a_release_past_the_gate, TRACE, "consensus-exact"),
    Bug("data in the model that were not released", data_in_the_model, FUNCTION,
        "consensus-exact"),
    Bug("a centre that was not released", exact_centre, FUNCTION,
        "consensus-centred federated-centred-agent averaged-centred poisson-centred"
        " quantile-centred"),
    Bug("half the sensitivity of a target", moments_of_half_the_records, REPLAY,
        "consensus-centred federated-centred-agent averaged-centred objective-centred"
        " poisson-centred"),
    Bug("units from norms that were not released", exact_units, FUNCTION,
        "consensus-conditioned-scaled", params={"l1_ratio": 0.0}),
    Bug("a clip bound from norms that were not released", exact_clip_unit, FUNCTION,
        "consensus-conditioned-zero-out"),
    Bug("doubts from rows that were not released", exact_loading, FUNCTION,
        "walk-point-zero-out"),
    Bug("a spread along rows that were not released", exact_spread, FUNCTION,
        "consensus-conditioned-zero-out multi-step-batches"),
    Bug("a stop that looks at data", a_stop_that_looks_at_data, REPLAY, "consensus-exact"),
    Bug("an iterate released as a gradient", an_iterate_as_a_gradient, TRACE,
        "gradient-last-zero-out"),
    Bug("steps of a path left out", steps_left_out, TRACE,
        "gradient-admm-last gradient-admm-stopping"),
    Bug("a second hidden term", a_second_hidden_term, TRACE, "objective"),
    Bug("a clip bound from targets", a_plan_made_with_data, BEFORE_DATA,
        "consensus-exact federated-server"),
    Bug("a report with a figure of the data", a_report_about_data, BEFORE_DATA,
        "consensus-exact graph-gradient"),
    Bug("more spent than the budget", planned(noise_times(0.5)), BUDGET, "consensus-exact gradient-path"),
    Bug("half of the budget unspent", planned(noise_times(2.0)), BUDGET, "consensus-exact"),
    Bug("an exact gradient in the model", kept("gradient_", lambda model, X, y: X.T @ (X @ model.coef_ - y)),
        FUNCTION, "consensus-exact federated-server"),
    Bug("a row in the model", kept("example_", lambda model, X, y: X[0].copy()), KEPT,
        "consensus-exact personal-warm"),
    Bug("residuals in the model", kept("residuals_", lambda model, X, y: X @ model.coef_ - y),
        KEPT, "consensus-exact"),
    Bug("a generator in the model", kept("rng_", lambda *_: np.random.default_rng()), KEPT,
        "consensus-exact"),
    Bug("iterates in another basis", setting("skdpadmm.records.Rows.from_coordinates",
                                             lambda _, point: point), OPTIMUM, "gradient-path"),
    Bug("steps without their penalty", without_penalty("_consensus_admm"), OPTIMUM,
        "consensus-exact federated-server"),
    Bug("a seed that is ignored", noise(CryptographicNoise), BITS, "consensus-exact scores"),
    Bug("sums that depend on the number of jobs", sums_by_number_of_jobs, BITS,
        "gradient-path"),
    Bug("attributes of a fit that fails", attributes_of_a_fit_that_fails, REFUSALS,
        "consensus-exact federated-server"),
    Bug("output about huge rows", output_about_huge_rows, REFUSALS, "consensus-exact"),
    Bug("a parameter that a fit sets", a_parameter_that_a_fit_sets, ROUND_TRIP,
        "consensus-exact"),
    Bug("a pickle without the report", a_pickle_without_the_report, ROUND_TRIP,
        "consensus-exact"),
    # Shared messages of ADMM, and absences.
    Bug("no clip of shared messages", no_clip(f"{ALGORITHMS}._agent_blocks"), LINEAR,
        "shared-admm shared-admm-graph-relaxed"),
    Bug("no clip of agents' shared messages", no_vector_clip(f"{ALGORITHMS}._agent_blocks"),
        REPLAY, "shared-admm-threshold-dropout-agent", knobs={"clip_norm": 0.001}),
    Bug("half the noise of shared messages", noise(gaussian(half_in_whole_cells)), PLANNED,
        "shared-admm sharing-threshold-dropout shared-admm-threshold-dropout-agent"),
    Bug("states that are counted once", first_sensitivity, LINEAR, "shared-admm-graph-relaxed"),
    Bug("noise of absent agents in the figures", with_absent_agents, LINEAR,
        "sharing-threshold-dropout shared-admm-threshold-dropout-agent"),
    Bug("shared sums that lose too many messages", shared_sums_that_lose_messages, TRACE,
        "sharing-threshold-dropout", params={"dropout": 0.0}),
    Bug("a coalition that needs every curator",
        setting("skdpadmm.protocol.Agents.n_needed", property(lambda self: self.n_curators)),
        LINEAR, "shared-admm-graph-relaxed", params={"coalition": 2}),
    # Statistics beside a fit.
    Bug("half the sensitivity of statistics", sensitivity_times(0.5), LINEAR,
        "bounds bounds-categories scores scores-numbers"),
    Bug("half the sensitivity of statistics, replayed", sensitivity_times(0.5), REPLAY,
        "bounds bounds-zero-out scores scores-zero-out scores-numbers"),
    Bug("replaced rows counted as zeroed out", sensitivity_times(0.5**0.5), REPLAY,
        "bounds bounds-categories scores"),
    Bug("bounds of scores that targets tell", bounds_of_targets, BEFORE_DATA, "scores-numbers"),
    Bug("statistics that are released twice", release_twice, TRACE, "bounds scores"),
    Bug("statistics without their noise", exact_statistics, FUNCTION,
        "bounds bounds-zero-out scores scores-numbers"),
]
# fmt: on


# Theorems that no replay sees: what was planted is found by a test of theirs.


def lenient(name: str, factor: float) -> Plant:
    """A figure of a theorem that is too good by a factor."""
    module, _, attribute = name.rpartition(".")
    return replaces(module, attribute)(lambda true, *args, **known: true(*args, **known) * factor)


@replaces(ClippedSum, "of_agents")
def gradients_at_own_models(of_agents: Any, self: Any, problem: Any) -> Any:
    """As in print: of each agent at the mean less its own last step."""
    exact, own = of_agents(self, problem), []

    def sums(models: Any) -> Any:
        own.append(exact(models - 0.1 * own[-1] if own else models))
        return own[-1]

    return sums


@replaces(ObjectivePerturbation, "run")
def a_weak_ridge(run: Any, self: Any, plan: Any, problem: Any, gate: Any) -> Any:
    settings = plan.settings.but(ridge=plan.settings.ridge / 100)
    return run(self, dataclasses.replace(plan, settings=settings), problem, gate)


@replaces(Trials, "run")
def one_stream_for_scores(run: Any, self: Any, number: int, estimator: Any) -> Any:
    return run(self, 0, estimator)


@replaces("skdpadmm.privacy._token_walk", "_worst_cost")
def own_gaps(worst: Any, walk: Any, n_peers: int) -> Any:
    """Gaps between visits that the agent alone ends, whoever else looks on."""
    return worst(walk, 0)


@replaces("skdpadmm.privacy._token_walk", "walk_cost")
def no_excess(cost: Any, gaps: Any, n: Any, cap: Any, excess: Any) -> Any:
    return cost(gaps, n, cap, 0.0)


@replaces(NoisySteps, "advance")
def steps_that_lose_noise(
    advance: Any, self: Any, state: Any, rows: Any, target: Any, bound: Any, noise: Any
) -> Any:
    """All steps of a block but the first add next to none of the noise that they are handed."""
    less = np.where(np.arange(len(noise)) > 0, 0.01, 1.0)[:, None, None]
    return advance(self, state, rows, target, bound, noise * less)


@replaces("skdpadmm.secret_sharing", "uniform_residues")
def a_zero_coefficient(drawn: Any, *args: Any) -> Any:
    residues = drawn(*args)
    residues[0] = 0
    return residues


def words_without_rejection(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("skdpadmm.secret_sharing.np.flatnonzero", lambda _: ())


@replaces(LateJoiner, "run")
def a_start_from_rows(run: Any, self: Any, plan: Any, problem: Any, gate: Any) -> Any:
    self.center = self.center + 0.1 * problem.target.mean()
    return run(self, plan, problem, gate)


def ones_as_units(patch: pytest.MonkeyPatch) -> None:
    """The user's units in place of those in which the metric is near the identity."""
    from skdpadmm.penalties import _generalized_l1

    patch.setattr(_generalized_l1.np, "ldexp", np.ldexp)
    frexp = np.frexp
    patch.setattr(_generalized_l1.np, "frexp", lambda x: (frexp(x)[0], np.zeros_like(frexp(x)[1])))


# Releases beside a fit.


@replaces("skdpadmm.preprocessing._bounds", "_counts")
def missing_and_zero(counts: Any, values: Any) -> Any:
    """Missing entries that count as 0 as well."""
    counted = counts(values)
    zeros = counts(np.zeros(int(counted[0])))
    return counted + zeros if counted[0] else counted


@replaces("skdpadmm.metrics", "_parts")
def counted_once(parts: Any, *facts: Any) -> Any:
    """Cells of the confusion matrix as under zero-out, whatever the relation."""
    return parts(*facts[:-1], Neighboring.ZERO_OUT)


@replaces("skdpadmm._statistics", "reserved")
@contextlib.contextmanager
def reserved_afterwards(reserved: Any, *facts: Any) -> Any:
    yield None
    with reserved(*facts):
        pass


@replaces("skdpadmm.metrics", "column_or_1d")
def labels_of_one_type(column: Any, y: Any) -> Any:
    return column(np.asarray(y.tolist()))


@dataclass(frozen=True)
class TheoremBug:
    """One bug, and the test that has to fail with it: its name and its arguments."""

    id: str
    plant: Plant
    found_by: str
    arguments: tuple[Any, ...] = ()


OBJECTIVE = "tests.divergence.test_objective_perturbation"
LAST = "tests.divergence.test_last_iterate"
DESCENT = "tests.algorithms.test_gradient_and_coordinate_descent"
DRAWN = "test_who_is_in_a_batch_is_what_the_gate_draws_with_the_planned_probability"
PURE = "tests.interface.test_pure_privacy"
WALKS = "tests.privacy.test_token_walk"
CELLS = "tests.noise.test_exact_cells"
FAILING = "tests.algorithms.test_failing_graphs"
ATTACKS = "tests.privacy.test_attack_accuracy"
TOTALS = "tests.test_totals"
KINDS = "tests.ledger.test_kinds"
PAIRS = "tests.divergence.test_edge_noise"
CANCELS = f"{PAIRS}.test_noise_of_pairs_cancels_exactly_has_the_planned_law_and_is_never_used_twice"
SHAMIR = "tests.secret_sharing.test_shamir"
SHARED = "tests.algorithms.test_shared_sums"
PAGES = "tests.inspection.test_documents"
JOINS = "tests.interface.test_late_joiners"
BOUNDS = "tests.releases.test_private_bounds"
SCORES = "tests.releases.test_private_score"

CORRELATED = "tests.divergence.test_correlated_noise"
AVERAGING = "tests.algorithms.test_dual_averaging"

# fmt: off
THEOREM_BUGS = [
    TheoremBug("rows that maps are handed", rows_that_maps_are_handed,
               "tests.algorithms.test_fixed_point_iteration.test_what_maps_are_handed_holds_no_row"),
    *(TheoremBug(f"slopes that are no numbers, {how}", anew(plant),
                 "tests.records.test_rows.test_compiled_sums_count_no_slope_that_is_no_number",
                 (SquaredLoss(),))
      for how, plant in (("unchecked", rewritten(COMPILED_LOOP, "_loop", " if np.isfinite(s) else 0.0", "")),
                         ("by fast mathematics", fast_math))),
    TheoremBug("sums of steps that are not rounded", setting(f"{ALGORITHMS}._dual_averaging.rounding_factor", lambda **_: 1.0),
               f"{CORRELATED}.test_the_plan_counts_the_rounding_of_sums_of_steps"),
    TheoremBug("a clip of 1.01 C in noise that cancels", clip_times(1.01, f"{SUMS}.clip_derivative"),
               f"{CORRELATED}.test_the_first_of_many_records_attains_the_claim_but_for_later_steps_and_its_second_moment"),
    TheoremBug("ranges cut twice", rewritten("skdpadmm.preprocessing._bounds", "_range", " - max(n_rows - total, 0.0)", ""),
               f"{BOUNDS}.test_a_range_is_not_cut_for_rows_that_noise_has_cut"),
    TheoremBug("few rows that are sure", samples_that_are_sure,
               f"{SCORES}.test_twenty_right_answers_are_no_certainty"),
    TheoremBug("a ledger that is not synced", rewritten(PrivacyLedger, "_transaction", "= EXTRA", "= OFF"),
               "tests.ledger.test_ledger.test_what_is_counted_survives_a_power_cut", (Path, pytest.MonkeyPatch)),
    TheoremBug("a count before its reservation", a_count_before_its_reservation,
               "tests.interface.test_private_number.test_the_ledger_has_the_whole_cost_before_the_count_and_a_refusal_costs_no_data",
               (Path,)),
    TheoremBug("curvature of costs as of counts", setting("skdpadmm.losses.TweedieLoss.smoothness", property(lambda loss: loss.largest ** (2 - loss.power))),
               "tests.losses.test_losses.test_constants_of_rates_are_attained_at_the_ends_of_their_range", (TweedieLoss(2.0, 0.3, 4.0),)),
    TheoremBug("rates without a range", setting("skdpadmm.losses.TweedieLoss._rate", lambda loss, scores: np.exp(scores)),
               "tests.losses.test_losses.test_derivative_and_curvature_are_slopes_within_the_public_constants"),
    TheoremBug("targets of a loss beyond their range", setting("skdpadmm.losses.TweedieLoss._target", lambda loss, target: target),
               "tests.losses.test_losses.test_constants_of_rates_are_attained_at_the_ends_of_their_range", (TweedieLoss(2.0, 0.3, 4.0),)),
    TheoremBug("a released unit of a loss whose constants are in a theorem", setting("skdpadmm.algorithms.ObjectivePerturbation.takes_corners", True),
               "tests.algorithms.test_preparations.test_units_of_rates_and_quantiles_are_released_only_where_no_theorem_has_their_constants"),
    TheoremBug("buffers of a stream in its pickle", setting("skdpadmm._streaming._HIDDEN", OnTheModel()),
               f"{CORRELATED}.test_a_copy_goes_on_without_the_sums_of_earlier_records", ("deepcopy",)),
    TheoremBug("buffers of a stream in its copy", setting("skdpadmm._streaming._HIDDEN", OnTheModel()),
               f"{CORRELATED}.test_after_a_copy_no_release_depends_on_a_record_of_before"),
    TheoremBug("buffers that serve any state", replaces("skdpadmm._streaming", "_taken")(lambda taken, model, arrived: (importlib.import_module("skdpadmm._streaming")._HIDDEN.get(model) or (None,))[-1]),
               f"{CORRELATED}.test_sums_are_used_once_by_the_model_the_state_and_the_process_they_belong_to"),
    TheoremBug("a sum of squared coefficients that stops", setting(f"{ALGORITHMS}._dual_averaging.ExponentialSum.norm", eight_terms),
               f"{CORRELATED}.test_mu_is_that_of_a_numerical_gaussian_for_any_coefficients_and_adaptive_records"),
    TheoremBug("rounding of buffers that nobody counts", setting(f"{ALGORITHMS}._dual_averaging.ExponentialSum.rounding", lambda *_: 0.0),
               f"{CORRELATED}.test_rounding_of_buffers_is_within_its_bound", (0,)),
    TheoremBug("rows that are cut at half of their bound under any signal", all_of(
                   setting(f"{ALGORITHMS}._defaults.OPEN_EDGE", 1e-9), setting(f"{ALGORITHMS}._defaults.LONGEST_STEP", 1e9)),
               "tests.interface.test_consistency.arrives", ("two classes", ["signs"] * 8, False, 0)),
    TheoremBug("steps that are twice too long for rows that are cut", setting(f"{ALGORITHMS}._defaults.LONGEST_STEP", 3.8),
               "tests.interface.test_consistency.test_steps_are_stable_for_rows_that_are_cut", (pytest.MonkeyPatch,)),
    TheoremBug("clips of classes that do not open", replaces(f"{ALGORITHMS}._defaults", "opened_clip")(
                   lambda opened, *known: min(opened(*known), 0.3)),
               "tests.interface.test_consistency.arrives", ("two classes", ["rare", "heavy", "narrow"], False, 1)),
    TheoremBug("clips of a stream that do not open", setting(f"{ALGORITHMS}._dual_averaging.LARGEST_CLIP", 0.4),
               f"{AVERAGING}.test_without_noise_a_stream_finds_the_optimum", ("two", 4, "rare")),
    TheoremBug("a cut of rows in a stream that does not open", setting(f"{ALGORITHMS}._defaults.OPEN_EDGE", 1e-9),
               f"{AVERAGING}.test_the_cut_of_rows_opens_to_the_declared_norm", (pytest.MonkeyPatch,)),
    TheoremBug("steps of a stream that are twice too long", setting(f"{ALGORITHMS}._dual_averaging.LONGEST_STEP", 1.0),
               f"{AVERAGING}.test_steps_are_stable_for_the_longest_rows", ("two", 1e-9, pytest.MonkeyPatch)),
    TheoremBug("replace-one counted as zero-out in a perturbed objective", zero_out_counted,
               f"{OBJECTIVE}.test_the_exact_divergence_of_a_solution_stays_below_the_claim",
               ("logistic", "replace_one")),
    TheoremBug("half the noise of a perturbed objective", planned(noise_times(0.5)),
               f"{OBJECTIVE}.test_the_exact_divergence_of_a_solution_stays_below_the_claim",
               ("logistic", "zero_out")),
    TheoremBug("no clip in a perturbed objective", no_clip(SUMS),
               f"{OBJECTIVE}.test_a_clip_that_binds_stays_below_the_claim"),
    TheoremBug("a ridge that is weaker than planned", a_weak_ridge,
               f"{OBJECTIVE}.test_a_curved_loss_needs_the_planned_ridge", (1.0,)),
    TheoremBug("compiled sums of all records instead of a batch", weights_without_batch,
               "tests.algorithms.test_multi_step_admm"
               ".test_compiled_steps_equal_the_algorithm_agent_by_agent",
               ("logistic", "record", 0.4, pytest.MonkeyPatch)),
    TheoremBug("weights left out of the constants of a loss", weights_left_out,
               "tests.losses.test_losses.test_derivative_and_curvature_are_slopes_within_the_public_constants"),
    TheoremBug("batches under replace-one counted as under zero-out", sampled_as_zero_out,
               f"{DESCENT}.test_the_exact_divergence_of_a_step_on_every_batch_is_what_is_claimed",
               ("replace_one",)),
    TheoremBug("everyone in every batch", everyone_in_every_batch, f"{DESCENT}.{DRAWN}", ("gradient-batches",)),
    TheoremBug("one batch for all steps", one_batch_for_all_steps, f"{DESCENT}.{DRAWN}", ("gradient-batches",)),
    TheoremBug("corners where a theorem needs curvature", setting(f"{ALGORITHMS}.GradientDescent.takes_corners", True),
               "tests.losses.test_own_losses.test_theorems_and_steps_that_need_curvature_refuse_corners",
               ({}, "DPAdmmLinearSVC", GradientDescent(guarantee="last", step_size=0.1))),
    TheoremBug("the largest of pure epsilons", the_largest_of_pure_epsilons,
               f"{PURE}.test_epsilons_of_all_laplace_releases_add_up_to_the_budget", ("admm",)),
    TheoremBug("a delta that underflows", setting("skdpadmm.protocol._plan.is_within", a_delta_that_underflows),
               f"{PURE}.test_no_other_law_passes_for_one_with_a_delta_of_zero"),
    TheoremBug("maps told apart by their names", setting(f"{ALGORITHMS}.FixedPointIteration._tried", lambda *_: ""),
               "tests.algorithms.test_fixed_point_iteration.test_plans_tell_maps_apart_by_what_they_do_and_not_by_their_names"),
    TheoremBug("a single pass as if every record came first", lenient(f"{ALGORITHMS}._gradient_descent.single_use_mu", 0.7),
               f"{LAST}.test_a_single_pass_tells_of_each_record_no_more_than_is_claimed_and_nearly_so_of_the_first"),
    TheoremBug("an amplification of gradient ADMM that is not there", lenient(f"{ALGORITHMS}._gradient_admm.amplification_constant", 1 / 40),
               f"{LAST}.test_the_state_of_gradient_admm_tells_of_no_record_more_than_is_claimed",
               (10.0, 3, 30.0)),
    TheoremBug("inner solutions that stop early", setting(f"{ALGORITHMS}._certified_solves.steps_to_reach", lambda *_, **__: 3),
               "tests.divergence.test_inexact_solutions.test_more_steps_than_planned_move_what_averaged_admm_releases_within_its_tolerance",
               (pytest.MonkeyPatch,)),
    TheoremBug("coalitions that are not tried", setting("skdpadmm.network._topology.combinations", lambda *_: [()]),
               f"{PAIRS}.test_no_coalition_learns_more_than_is_claimed_on_500_random_graphs", (pytest.MonkeyPatch,)),
    TheoremBug("one seed of a pair for all rounds", one_seed_for_all_rounds, CANCELS),
    TheoremBug("noise of pairs with the same sign at both ends", same_sign_at_both_ends, CANCELS),
    TheoremBug("noise of pairs on another grid at one end", another_grid_at_one_end, CANCELS),
    TheoremBug("lost messages whose pairs count as there", lost_messages_forgotten,
               f"{PAIRS}.test_a_lost_message_leaves_the_noise_that_it_shared_in_the_sum"),
    TheoremBug("steps that lose their noise", steps_that_lose_noise,
               "tests.algorithms.test_gradient_admm.test_a_step_and_an_average_are_those_of_the_docstring",
               (SquaredLoss(), L1(0.02), {"release": "path"}, pytest.MonkeyPatch)),
    *(TheoremBug(f"messages at the model that cost nothing against {observer}", unseen_at_the_model(observer),
                 f"{OF_INTERVALS}.test_each_observer_is_told_what_all_messages_of_an_agent_cost", (row,))
      for observer, row in (("server", "intervals-federated"), ("sums", "intervals-federated-alone"),
                            ("model", "intervals-federated-sharing"))),
    TheoremBug("noise of all at the model counted against the server", hidden_by_all("Federation"),
               f"{OF_INTERVALS}.test_each_observer_is_told_what_all_messages_of_an_agent_cost",
               ("intervals-federated-alone",)),
    TheoremBug("noise of one agent in covariances", noise_of_one_agent_in_covariances,
               f"{OF_INTERVALS}.test_intervals_of_agents_hold_the_truth_about_as_often_as_they_say"),
    TheoremBug("curvature of rows whose rate has no bound", rows_of_any_rate,
               f"{OF_INTERVALS}.test_terms_are_within_their_bounds_whatever_a_model_and_a_loss_say"),
    TheoremBug("lengths that go by the places of rows", setting("skdpadmm.records.Rows.product", lambda self, X, coef: X @ coef),
               f"{OF_INTERVALS}.test_a_record_that_leaves_takes_one_count_of_lengths_with_it_and_moves_no_other",
               ("COSTS",)),
    TheoremBug("messages of hidden models", gradients_at_own_models,
               "tests.divergence.test_federation.test_messages_follow_from_sums_that_were_released_and_from_no_hidden_model"),
    TheoremBug("one noise for every score", one_stream_for_scores,
               "tests.model_selection.test_search.test_every_score_of_a_search_has_noise_of_its_own",
               (pytest.MonkeyPatch,)),
    TheoremBug("a token without observers between two visits", own_gaps,
               f"{WALKS}.test_no_walk_of_few_hops_costs_more_on_average",
               ("SMALL", 0)),
    TheoremBug("visits beyond the cap at no cost", no_excess,
               f"{WALKS}.test_no_walk_of_few_hops_costs_more_on_average",
               ("SMALL", 1)),
    TheoremBug("cells that floats decide", setting("skdpadmm.noise._grid.in_doubt", lambda *_: []),
               f"{CELLS}.test_neighbouring_laws_are_those_of_the_rounded_numbers",
               ("NORMAL", 1, 9.5, 0.001, 0.0)),
    TheoremBug("a generalised lasso in the user's units", ones_as_units,
               "tests.penalties.test_non_expansive.test_units_in_which_a_projection_used_to_lengthen_vectors"),
    TheoremBug("half the total variation in the accuracy of attacks", setting("skdpadmm.privacy.Guarantee.attack_accuracy", lambda known, prior=0.5: 1 - prior + prior * known.delta(0.0) / 2),
               f"{ATTACKS}.test_the_best_attack_by_brute_force_is_as_good_as_the_bound_and_no_better",
               ("MIXTURE",)),
    TheoremBug("a dual that changes at one end of a link", one_sided_duals,
               f"{FAILING}.test_duals_change_on_links_that_live_at_both_ends_and_sum_to_zero",
               (["ring"], {"dropout": 0.4}, "squared", SquaredL2(0.1), None)),
    TheoremBug("absent agents that take a step", setting(f"{ALGORITHMS}._network_steps.update", lambda _, __, new: new),
               f"{FAILING}.test_noise_of_an_absent_agent_is_counted_and_never_used", (MultiStepADMM(),)),
    TheoremBug("shares that do not add up to what is sent", shares_by_receiver,
               f"{FAILING}.test_descent_mixes_by_the_links_of_each_round_and_pushes_along_arcs",
               ([nx.DiGraph([(0, 1), (1, 2), (2, 3), (3, 4), (4, 0), (0, 3)])], {}, "squared", SquaredL2(0.1))),
    TheoremBug("agents compared by the word", setting("skdpadmm.network.Ownership.name_of", lambda *_: "agents"),
               f"{TOTALS}.test_guarantees_of_hospitals_and_of_cities_do_not_add_up", (Path,)),
    TheoremBug("each fit against its own adversary", setting("skdpadmm.privacy.claims.against", lambda fit, _: fit[0]),
               f"{TOTALS}.test_a_total_against_an_observer_counts_all_that_it_sees_of_every_fit", (Path,)),
    TheoremBug("a relation that nobody checks", setting("skdpadmm.privacy.Guarantee.relations", lambda _: set()),
               f"{TOTALS}.test_a_guarantee_under_one_relation_is_not_taken_for_one_under_another", (Path,)),
    TheoremBug("unknown parts that count as innocent", setting("skdpadmm._pipelines._why", lambda _: ""),
               "tests.inspection.test_fitted.test_a_fitted_object_shows_all_that_learnt_and_has_a_total_or_a_reason",
               ("LEARNS", 1, "may have learnt")),
    TheoremBug("entries compared as they are", setting("skdpadmm.preprocessing._table._entry", lambda value: value),
               "tests.interface.test_tables.test_one_unknown_word_in_a_file_changes_one_row_alone", ("zone",)),
    TheoremBug("a coefficient of shares that is zero", a_zero_coefficient,
               f"{SHAMIR}.test_fewer_curators_learn_the_sum_and_nothing_else", (5, 1, 4, 3)),
    TheoremBug("residues that are too large taken as they are", words_without_rejection,
               f"{SHAMIR}.test_residues_of_a_prime_are_uniform_and_stand_for_integers"),
    TheoremBug("rounds of shared sums at nine tenths", lenient(f"{ALGORITHMS}._shared_sums.root_mean_square", 0.9),
               f"{SHARED}.test_figures_compose_the_sensitivities_of_states_and_the_grid_exactly",
               ({"relaxation": 0.2},)),
    TheoremBug("the noise of absent agents in a plan", with_absent_agents,
               f"{SHARED}.test_noise_is_planned_for_the_fewest_senders_and_a_smaller_sum_is_refused",
               (FederatedADMM,)),
    TheoremBug("no clip of a newcomer's rows", turns_with(clip_norm=math.inf),
               f"{JOINS}.test_a_newcomer_releases_no_more_than_planned_whatever_its_rows",
               ({"noise": "laplace", "turns": 4}, {}, 0)),
    TheoremBug("names that begin a line", setting("skdpadmm._document._line", lambda text: text),
               f"{PAGES}.test_names_of_columns_classes_and_agents_forge_no_line", (Path,)),
    TheoremBug("line breaks of other alphabets", setting("skdpadmm._document._line", lambda text: text.replace("\n", " ").replace("\r", " ")),
               f"{PAGES}.test_no_name_begins_a_line", ("a\u2028## Privacy",)),
    TheoremBug("links in names", replaces("skdpadmm._document", "_marked")(lambda marked, text: marked(text).replace("\\[", "[").replace("\\]", "]")),
               f"{PAGES}.test_no_name_is_markup"),
    TheoremBug("random splits by labels counted as by positions", setting("skdpadmm._search_cost._BY_POSITION", {KFold, ShuffleSplit, PredefinedSplit, StratifiedShuffleSplit}),
               "tests.test_totals.test_every_split_that_is_counted_goes_by_positions"),
    TheoremBug("a restored journal that a ledger lets pass", setting("skdpadmm.parties.PrivacyLedger.advance", lambda *_: True),
               "tests.interface.test_parties.test_a_journal_that_was_reset_sends_no_second_message_where_there_is_a_ledger", (Path,)),
    TheoremBug("journals that everyone reads", setting("skdpadmm.parties._for_owner_alone", lambda path: None),
               "tests.interface.test_parties.test_what_a_party_keeps_is_for_its_owner_alone", (Path,)),
    TheoremBug("a newcomer that no report has", setting("skdpadmm.privacy.PrivacyReport.joined_by", lambda report, _: report),
               f"{JOINS}.test_what_joined_is_in_every_report", ("record",)),
    TheoremBug("a newcomer that a total leaves out", replaces("skdpadmm.inspection._fitted", "_fits_of")(lambda fits, part: list(fits(part))[:1]),
               f"{JOINS}.test_what_joined_is_in_every_report", ("record",)),
    TheoremBug("a newcomer counted as zero-out", zero_out_counted,
               f"{JOINS}.test_for_linear_losses_the_claim_is_attained"),
    TheoremBug("half the noise of a newcomer", noise_of_turns(lambda draw, *turn: draw(*turn) / 2),
               f"{JOINS}.test_noise_of_a_newcomer_is_as_planned_and_fresh", ("gaussian",)),
    TheoremBug("a newcomer whose rows move where it begins", a_start_from_rows,
               f"{JOINS}.test_turns_are_those_of_the_docstring", (True, "record", 0)),
    TheoremBug("half the sensitivity of histograms", setting("skdpadmm.preprocessing._bounds._SQUARED", 1.25 / 4),
               f"{BOUNDS}.test_no_entry_changes_counts_by_more_than_planned_and_some_by_as_much",
               ("replace_one",)),
    TheoremBug("missing entries in two bins", missing_and_zero,
               f"{BOUNDS}.test_no_entry_changes_counts_by_more_than_planned_and_some_by_as_much",
               ("zero_out",)),
    TheoremBug("a threshold of categories without a delta", setting("skdpadmm.preprocessing._bounds.ndtri", lambda _: -1.0),
               f"{BOUNDS}.test_which_categories_are_listed_keeps_the_budget_exactly", (1.0, "replace_one")),
    TheoremBug("a delta of categories that is spent twice", setting("skdpadmm.privacy.Mixture", lambda weights, both: both[0]),
               f"{BOUNDS}.test_which_categories_are_listed_keeps_the_budget_exactly", (1.0, "zero_out")),
    TheoremBug("categories by their exact counts", exact_statistics,
               f"{BOUNDS}.test_a_category_at_the_threshold_is_listed_half_of_the_time"),
    TheoremBug("three columns of categories counted as one", sensitivity_times(3**-0.5),
               f"{BOUNDS}.test_a_record_in_several_columns_of_categories_is_counted_in_each",
               ("replace_one",)),
    TheoremBug("rare categories of one column of three", setting("skdpadmm.preprocessing._bounds.ndtri", lambda p: ndtri(3 * p)),
               f"{BOUNDS}.test_a_record_in_several_columns_of_categories_is_counted_in_each",
               ("zero_out",)),
    TheoremBug("scores before their reservation", reserved_afterwards,
               f"{SCORES}.test_a_release_is_counted_before_the_model_sees_a_row_and_says_nothing_else", (Path,)),
    TheoremBug("warnings of a model that is scored", setting("skdpadmm._statistics.warnings", SimpleNamespace(catch_warnings=lambda **_: contextlib.nullcontext())),
               f"{SCORES}.test_a_release_is_counted_before_the_model_sees_a_row_and_says_nothing_else", (Path,)),
    TheoremBug("a text that makes all labels texts", labels_of_one_type,
               f"{SCORES}.test_a_label_of_another_type_changes_its_own_row_alone", ("x",)),
    TheoremBug("half the sensitivity of mean scores", setting("skdpadmm.privacy.Neighboring.target_moments_factor", 1.0),
               f"{SCORES}.test_no_row_changes_the_vector_by_more_than_planned_and_some_by_as_much",
               ("replace_one", "ab")),
    TheoremBug("cells of replaced rows counted once", counted_once,
               f"{SCORES}.test_no_row_changes_the_vector_by_more_than_planned_and_some_by_as_much",
               ("replace_one", "abc")),
    TheoremBug("squares that are not free", setting("skdpadmm.metrics._SQUARES", 4.0),
               f"{SCORES}.test_no_row_changes_the_vector_by_more_than_planned_and_some_by_as_much",
               ("replace_one", "ab")),
    TheoremBug("scores of rows that are not finite", setting("skdpadmm.metrics.finite_or", lambda worst, values: values),
               f"{SCORES}.test_no_row_changes_the_vector_by_more_than_planned_and_some_by_as_much",
               ("replace_one", "")),
    TheoremBug("the composition as an odometer", setting("skdpadmm.privacy._odometer.Spent.odometer_epsilon", lambda spent, delta: GaussianDP(spent.mu).epsilon(delta)),
               f"{KINDS}.test_no_rule_to_stop_passes_an_odometer", (0.2, 0.4)),
    TheoremBug("an odometer whose weights sum to eight", setting("skdpadmm.privacy._odometer._LOG_WEIGHTS", _odometer._LOG_WEIGHTS + math.log(8)),
               f"{KINDS}.test_no_rule_to_stop_passes_an_odometer", (0.2, 0.4)),
    TheoremBug("agents known by the name of their column", replaces(Ownership, "name_of")(lambda honest, owners, labels: getattr(labels, "name", labels) if isinstance(getattr(labels, "name", labels), str) else honest(owners, labels)),
               f"{TOTALS}.test_guarantees_of_hospitals_and_of_cities_do_not_add_up", (Path,)),
    TheoremBug("a raised limit that stays a filter", setting("skdpadmm.ledger._ledger._Limit.after", lambda new, old, has_fits: new._replace(filter_epsilon=new.epsilon, filter_delta=new.delta)),
               f"{KINDS}.test_a_raised_limit_leaves_an_odometer_and_its_delta", (Path, (2.1, 1e-5))),
]
# fmt: on
