"""Bugs that were made or could be: where each is planted, and what has to find it."""
# Names of tests are as long as they are.
# ruff: noqa: E501

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial, wraps
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from skdpadmm._fitting import PendingFit
from skdpadmm._linear_model import PrivateLinearModel
from skdpadmm.algorithms import (
    ClippedSum,
    ConsensusADMM,
    GradientADMM,
    GradientDescent,
    ObjectivePerturbation,
)
from skdpadmm.algorithms._gradient_admm_steps import NoisySteps
from skdpadmm.engine import Engine
from skdpadmm.losses import SquaredLoss, clip_derivative
from skdpadmm.model_selection._search import Trials
from skdpadmm.network import Ownership
from skdpadmm.noise import CryptographicNoise
from skdpadmm.penalties import L1
from skdpadmm.protocol import Gate, Plan, Problem
from skdpadmm.protocol._gate import Turns
from skdpadmm.records import Rows
from tests.contract.registry import BY_ID, Row

Plant = Callable[[pytest.MonkeyPatch], None]
ALGORITHMS = "skdpadmm.algorithms"
BLOCKS, SUMS = f"{ALGORITHMS}._agent_blocks", f"{ALGORITHMS}._clipped_sums"


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


@dataclass(frozen=True)
class TheoremBug:
    """One bug that no replay sees, and the test that has to fail with it, with its arguments."""

    id: str
    plant: Plant
    found_by: str
    arguments: tuple[Any, ...] = ()


BUGS: list[Bug] = []
THEOREM_BUGS: list[TheoremBug] = []

NOISE, BUDGET = "noise_is_as_planned_and_fresh", "budget_is_met_and_used_up"
REPLAY, LINEAR = "replay_within_sensitivity", "linear_losses_attain_the_claim"
TRACE, FUNCTION = "trace_is_the_plan", "model_is_a_function_of_the_released"
BEFORE_DATA, PATH = "plan_before_data", "the_path_is_released_or_refused"
KEPT, OPTIMUM, BITS = "nothing_private_is_kept", "no_noise_reaches_the_optimum", "same_bits"
REFUSALS, ROUND_TRIP = "refusals_leave_nothing", "parameters_round_trip"

OBJECTIVE = "tests.divergence.test_objective_perturbation"
LAST = "tests.divergence.test_last_iterate"
TOTALS = "tests.test_totals"
NO_WALK = "tests.privacy.test_token_walk.test_no_walk_of_few_hops_costs_more_on_average"


def found_by(promise: str, *where: Any, **changed: Any) -> Callable[[Plant], Plant]:
    """Add a plant to the bugs, under its own name; tests of theorems are those with a module."""

    def add(plant: Plant) -> Plant:
        kind, bugs = (TheoremBug, THEOREM_BUGS) if "." in promise else (Bug, BUGS)
        bugs.append(kind(plant.__name__.replace("_", " "), plant, promise, *where, **changed))
        return plant

    return add


def setting(target: str, value: Any) -> Plant:
    return lambda patch: patch.setattr(target, value)


def all_of(*plants: Plant) -> Plant:
    return lambda patch: [plant(patch) for plant in plants]


def replaces(owner: Any, name: str) -> Callable[[Callable[..., Any]], Plant]:
    """A method, or a function of a module, whose first argument is the honest one."""

    def planting(changed: Callable[..., Any]) -> Plant:
        @wraps(changed)
        def plant(patch: pytest.MonkeyPatch) -> None:
            home = importlib.import_module(owner) if isinstance(owner, str) else owner
            honest = getattr(home, name)
            patch.setattr(home, name, lambda *args, **known: changed(honest, *args, **known))

        return plant

    return planting


# Noise.


def noise(changed: Callable[..., Any]) -> Plant:
    """Noise of what adds the honest one, a value, a scale and a stream, and of what it has seen."""

    @dataclass(frozen=True)
    class Changed(CryptographicNoise):
        seen: dict[Any, Any] = field(default_factory=dict)

        def _checked(self, value, scale, stream, law):
            return changed(partial(super()._checked, law=law), value, scale, stream, self.seen)

    return wraps(changed)(setting("skdpadmm._fitting.noise_source", lambda *_: Changed()))


def scaled(factor: float) -> Plant:
    return noise(lambda add, value, scale, stream, _: add(value, factor * scale, stream))


def noise_of_turns(changed: Callable[..., Any]) -> Plant:
    """Noise of turns made of what draws it, the turns themselves, and the number of one."""
    return replaces(Turns, "_noise_of")(changed)


# A row for each release method of the gate, and for each algorithm that uses it differently.
GAUSSIAN = (
    "consensus-exact averaged-path averaged-last coordinates-cyclic gradient-path"
    " gradient-last-zero-out gradient-cyclic gradient-admm-last gradient-admm-stream objective"
    " federated-server federated-sums-honest-zero-out graph-gradient multi-step walk-admm"
    " walk-point-zero-out personal-warm personal-local"
)
BUGS += [
    Bug("half the noise", scaled(0.5), NOISE, GAUSSIAN),
    Bug("half the Laplace noise", scaled(0.5), NOISE, "personal-laplace"),
    Bug("hardly any noise", scaled(0.001), NOISE, "consensus-exact"),
    Bug("half the noise in turns", noise_of_turns(lambda draw, *turn: draw(*turn) / 2), NOISE,
        "personal-laplace personal-warm personal-local"),
    Bug("one noise for every turn", noise_of_turns(lambda draw, turns, _: draw(turns, 0)), NOISE,
        "personal-warm personal-local"),
]  # fmt: skip


@found_by(NOISE, "sharing-federated sharing-graph-coalition")
@noise
def half_the_noise_in_whole_cells(add, value, scale, stream, _):
    """Of shared sums, whose noise is a whole number."""
    return np.rint(add(value, scale, stream) * 0.5)


@found_by(NOISE, "personal-laplace personal-warm")
@replaces(Turns, "__init__")
def noise_of_a_mean_on_a_sum_in_turns(start, self, release, agents, *more):
    start(self, release, agents, *more)
    self.scales = self.scales / np.maximum(agents.agent_sizes, 1)


@found_by(NOISE, "federated-server", fields={"n_noise": 1200})
@replaces(Gate, "_noise_std")
def a_sender_without_noise_of_its_own(whole, self, release, senders):
    if release.made_of != "sum":
        return whole(self, release, senders)
    agents = self._agents(release)
    return np.linalg.norm(np.asarray(release.agent_noise_std)[agents.kind[1:]])


@found_by(NOISE, "multi-step")
@noise
def less_noise_in_early_steps(add, value, scale, stream, _):
    step = stream[-1]
    return value if step == 0 else add(value, scale * step / (step + 1), stream)


@found_by(NOISE, "consensus-exact multi-step")
@noise
def noise_that_is_subtracted_again(add, value, scale, stream, seen):
    """Noise of odd steps takes back that of the step before."""
    if stream[-1] % 2 == 1 and value.shape in seen:
        return value - seen[value.shape]
    seen[value.shape] = add(np.zeros(value.shape), scale, stream)
    return value + seen[value.shape]


@found_by(NOISE, "consensus-three-classes gradient-momentum-three-classes")
@noise
def one_noise_for_every_class(add, value, scale, stream, _):
    return value + add(np.zeros(value.shape[:-1]), scale, stream)[..., None]


@found_by(NOISE, "multi-step multi-step-agent-zero-out graph-gradient")
@noise
def one_noise_for_every_agent(add, value, scale, stream, _):
    return value + add(np.zeros(value.shape[1:]), scale, stream)


@found_by(
    NOISE,
    "consensus-exact averaged-path averaged-last coordinates-cyclic gradient-path"
    " gradient-last-zero-out gradient-cyclic gradient-momentum-three-classes"
    " federated-server multi-step",
)
@noise
def one_noise_for_every_release(add, value, scale, stream, seen):
    """The first vector serves all."""
    if value.shape not in seen:
        seen[value.shape] = add(np.zeros(value.shape), 1.0, stream)
    return value + scale * seen[value.shape]


@found_by(
    NOISE,
    "gradient-admm-last gradient-admm-path-zero-out gradient-admm-sampling"
    " gradient-admm-stopping gradient-admm-stream",
)
@noise
def one_noise_for_every_step_of_a_path(add, value, scale, stream, _):
    drawn = add(value, scale, stream)
    return np.broadcast_to(drawn[:1], drawn.shape).copy()


@found_by(
    "tests.algorithms.test_gradient_admm.test_a_step_and_an_average_are_those_of_the_docstring",
    (SquaredLoss(), L1(0.02), {"release": "path"}, pytest.MonkeyPatch),
)
@replaces(NoisySteps, "advance")
def steps_that_lose_their_noise(advance, self, state, rows, target, bound, noise):
    """All steps of a block but the first add next to none of the noise that they are handed."""
    less = np.where(np.arange(len(noise)) > 0, 0.01, 1.0)[:, None, None]
    return advance(self, state, rows, target, bound, noise * less)


@found_by(
    "tests.model_selection.test_search.test_every_score_of_a_search_has_noise_of_its_own",
    (pytest.MonkeyPatch,),
)
@replaces(Trials, "run")
def one_noise_for_every_score(run, self, number, estimator):
    return run(self, 0, estimator)


def planned(change: Callable[[Any], dict[str, Any]]) -> Plant:
    """Releases other than those that were paid for, in plans that nobody checks."""

    def cheat(self):
        if self.budget.is_private:
            changed = tuple(dataclasses.replace(r, **change(r)) for r in self.releases)
            object.__setattr__(self, "releases", changed)

    return lambda patch: patch.setattr(Plan, "__post_init__", cheat)


def noise_times(factor: float) -> Callable[[Any], dict[str, Any]]:
    def changed(release):
        of_agents = tuple(factor * noise_std for noise_std in release.agent_noise_std)
        return {"noise_std": factor * release.noise_std, "agent_noise_std": of_agents}

    return changed


BUGS += [
    Bug("half the noise in the plan", planned(noise_times(0.5)), LINEAR,
        "consensus-exact gradient-path federated-server multi-step aggregators-admm"
        " aggregators-sgd sharing-federated personal-laplace"),
    Bug("more spent than the budget", planned(noise_times(0.5)), BUDGET, "consensus-exact gradient-path"),
    Bug("half of the budget unspent", planned(noise_times(2.0)), BUDGET, "consensus-exact"),
    # The seed, too, is part of how noise is drawn.
    Bug("a seed that is ignored", scaled(1.0), BITS, "consensus-exact"),
]  # fmt: skip
THEOREM_BUGS += [
    TheoremBug("half the noise of a perturbed objective", planned(noise_times(0.5)),
               f"{OBJECTIVE}.test_the_exact_divergence_of_a_solution_stays_below_the_claim",
               ("logistic", "zero_out")),
    TheoremBug("cells that floats decide", setting("skdpadmm.noise._grid.in_doubt", lambda *_: []),
               "tests.noise.test_exact_cells.test_neighbouring_laws_are_those_of_the_rounded_numbers",
               ("NORMAL", 1, 9.5, 0.001, 0.0)),
]  # fmt: skip


# Clips.


def unclipped(name: str, *modules: str) -> Plant:
    names = [f"{module}.{name}" for module in modules]
    return all_of(*(setting(name, lambda values, *bounds: values) for name in names))


no_clip, no_vector_clip = partial(unclipped, "clip_derivative"), partial(unclipped, "clip_vectors")


def turns_with(**known: Any) -> Plant:
    """Turns that clip by another bound, or in the norm of another law."""
    planting = replaces(ClippedSum, "of_some_agents")
    return planting(lambda sums, own, *args: sums(dataclasses.replace(own, **known), *args))


def clipped_before_weighted(module: str) -> Plant:
    """The clip of gradients of a loss without weights, which are 6 for the heaviest class."""
    planting = replaces(module, "clip_derivative")
    return planting(lambda clip, derivative, limit: 6.0 * clip(derivative / 6.0, limit))


def largest_of_rows(rows):
    seen = np.abs(np.concatenate([rows.augmented(i) for i in range(rows.n_blocks)]))
    return seen.max(axis=1)


BUGS += [
    Bug("no clip of records", no_clip(BLOCKS), LINEAR, "consensus-exact federated-server"),
    Bug("no clip of records in a replay", no_clip(BLOCKS), REPLAY, "consensus-linearized-undeclared"),
    Bug("a clip before weights", clipped_before_weighted(BLOCKS), LINEAR,
        "weighted-consensus weighted-federated"),
    Bug("a clip before weights of gradients", clipped_before_weighted(SUMS), LINEAR,
        "weighted-averaged weighted-personal"),
    Bug("no clip of gradients", no_clip(SUMS), LINEAR,
        "averaged-path coordinates-cyclic gradient-path multi-step graph-gradient"
        " sharing-federated sharing-graph-coalition aggregators-admm aggregators-sgd"),
    Bug("no clip of hidden gradients", no_clip(SUMS), REPLAY,
        "gradient-last-zero-out gradient-cyclic", knobs={"clip_norm": 0.01}),
    Bug("no clip of a record's step",
        all_of(*(unclipped(name, f"{ALGORITHMS}._gradient_admm_steps")
                 for name in ("clip_slope", "clip_derivative"))), REPLAY,
        "gradient-admm-last gradient-admm-path-zero-out gradient-admm-sampling"
        " gradient-admm-stopping gradient-admm-stream", knobs={"clip_norm": 0.1}),
    Bug("no clip of agents' blocks", no_vector_clip(BLOCKS), REPLAY, "federated-dropout-agent",
        knobs={"clip_norm": 0.001}),
    Bug("no clip of agents' sums", all_of(no_clip(SUMS), no_vector_clip(SUMS)), REPLAY,
        "multi-step-agent-zero-out sharing-federated-agent-zero-out"
        " aggregators-sgd-gaussian-agent", knobs={"clip_norm": 0.0001}),
    Bug("no clip in turns", turns_with(clip_norm=math.inf), LINEAR, "personal-laplace"),
    Bug("no clip in turns of agents", turns_with(clip_norm=math.inf), REPLAY,
        "personal-agent-zero-out personal-local", knobs={"clip_norm": 0.0001}),
    Bug("a Euclidean clip under Laplace noise", turns_with(law="gaussian"), LINEAR,
        "personal-laplace"),
    Bug("L1 norms of rows by their largest entry",
        setting(f"{SUMS}.absolute_sums", largest_of_rows), LINEAR,
        "aggregators-admm aggregators-sgd"),
    Bug("L1 norms of rows by their Euclidean norm",
        setting(f"{SUMS}.absolute_sums", lambda rows: np.sqrt(rows.squared_norm)), LINEAR,
        "aggregators-admm aggregators-sgd"),
]  # fmt: skip
THEOREM_BUGS += [
    TheoremBug("no clip in a perturbed objective", no_clip(SUMS),
               f"{OBJECTIVE}.test_a_clip_that_binds_stays_below_the_claim"),
]  # fmt: skip


@found_by(REPLAY, "consensus-norm-sparse gradient-last-norm", knobs={"clip_norm": 0.1})
@replaces(Rows, "__init__")
def rows_not_scaled_down(start, self, *args):
    start(self, *args)
    self.weight = np.ones(self.n_samples)


# Persons.


@found_by(LINEAR, "consensus-persons")
@replaces(Ownership, "slots")
def surplus_rows_of_persons(slots, self, size):
    return slots(self, max(size, int(self.sizes.max())))


@found_by(BEFORE_DATA, "consensus-persons consensus-persons-conditioned-scaled")
def numbers_of_rows_of_persons_in_the_plan(patch):
    """The fit plans for as many persons as there are rows."""
    n_rows = []

    def seen(slots, self, size):
        n_rows[:] = [int(self.sizes.sum())]
        return slots(self, size)

    def planned(plan, self, **facts):
        return plan(self, **facts | ({"n_samples": n_rows.pop()} if n_rows else {}))

    replaces(Ownership, "slots")(seen)(patch)
    replaces(PrivateLinearModel, "_plan_fit")(planned)(patch)


def clip_of_rows_of_persons(rows, block, slopes, weights, clip_norm, per_person):
    """Each row may be as long as its person."""
    longest = clip_norm * per_person / np.sqrt(rows.squared_norm[rows.slices[block]])
    return clip_derivative((slopes.T * weights).T, longest)


BUGS += [
    Bug("rows of persons clipped one by one",
        all_of(*(setting(f"{m}.clip_persons", clip_of_rows_of_persons) for m in (BLOCKS, SUMS))),
        REPLAY, "consensus-persons consensus-persons-three-classes-zero-out gradient-persons"),
]  # fmt: skip


# What is counted, and what theorems rest on.

zero_out_counted = setting("skdpadmm.privacy.Neighboring.sensitivity_factor", 1)


def hidden_by_all(kind: str) -> Plant:
    return setting(f"skdpadmm.protocol.{kind}.together", lambda self, observer, n: n)


BUGS += [
    Bug("replace-one counted as zero-out", zero_out_counted, LINEAR,
        "consensus-exact averaged-path coordinates-cyclic gradient-path gradient-admm-last"
        " federated-server multi-step sharing-federated personal-laplace"),
    Bug("replace-one counted as zero-out on hidden paths", zero_out_counted, REPLAY,
        "gradient-cyclic gradient-admm-sampling gradient-admm-stopping",
        knobs={"clip_norm": 0.01}),
    Bug("a second moment counted as zero-out",
        setting("skdpadmm.privacy.Neighboring.second_moment_factor", 1.0), REPLAY,
        "consensus-conditioned-scaled"),
    Bug("the noise of all counted against the server", hidden_by_all("Federation"), LINEAR,
        "federated-server"),
    Bug("a coalition counted among those who hide an agent", hidden_by_all("Network"), LINEAR,
        "sharing-graph-coalition"),
]  # fmt: skip


def lenient(name: str, factor: float) -> Plant:
    """A figure of a theorem that is too good by a factor."""
    planting = replaces(f"{ALGORITHMS}.{name.split('.')[0]}", name.split(".")[1])
    return planting(lambda true, *args, **known: true(*args, **known) * factor)


weights_left_out = property(lambda self: self.loss.smoothness)
THEOREM_BUGS += [
    TheoremBug("replace-one counted as zero-out in a perturbed objective", zero_out_counted,
               f"{OBJECTIVE}.test_the_exact_divergence_of_a_solution_stays_below_the_claim",
               ("logistic", "replace_one")),
    TheoremBug("weights left out of the constants of a loss", setting("skdpadmm.losses.WeightedLoss.smoothness", weights_left_out),
               "tests.losses.test_losses.test_derivative_and_curvature_are_slopes_within_the_public_constants"),
    TheoremBug("a single pass as if every record came first", lenient("_gradient_descent.single_use_mu", 0.7),
               f"{LAST}.test_a_single_pass_tells_of_each_record_no_more_than_is_claimed_and_nearly_so_of_the_first"),
    TheoremBug("an amplification of gradient ADMM that is not there", lenient("_gradient_admm.amplification_constant", 1 / 40),
               f"{LAST}.test_the_state_of_gradient_admm_tells_of_no_record_more_than_is_claimed",
               (10.0, 3, 30.0)),
    TheoremBug("inner solutions that stop early", setting(f"{ALGORITHMS}._certified_solves.steps_to_reach", lambda *_, **__: 3),
               "tests.divergence.test_inexact_solutions.test_more_steps_than_planned_move_what_averaged_admm_releases_within_its_tolerance",
               (pytest.MonkeyPatch,)),
]  # fmt: skip


@found_by(f"{OBJECTIVE}.test_a_curved_loss_needs_the_planned_ridge", (1.0,))
@replaces(ObjectivePerturbation, "run")
def a_ridge_that_is_weaker_than_planned(run, self, plan, problem, gate):
    settings = plan.settings.but(ridge=plan.settings.ridge / 100)
    return run(self, dataclasses.replace(plan, settings=settings), problem, gate)


@found_by(TRACE, "federated-dropout-agent",
    params={"adversary": "model", "dropout": 0.0, "participation": 0.5})  # fmt: skip
@replaces(f"{ALGORITHMS}._consensus_admm", "draw_schedule")
def rounds_that_lose_too_many_messages(draw, *args, **known):
    schedule = draw(*args, **known)
    sends = schedule.sends.copy()
    sends[:, 1:] = False
    return dataclasses.replace(schedule, sends=sends)


def hops(changed: Callable[[Any], Any]) -> Plant:
    """A walk that is another one than was drawn."""
    walks = replaces(f"{ALGORITHMS}._random_walks", "draw_hops")
    return walks(lambda draw, *args, **known: changed(draw(*args, **known)))


BUGS += [
    Bug("a cap of a token's visits that is ignored",
        hops(lambda h: type(h)(h.holder, np.ones_like(h.contributes))), LINEAR, "walk-admm",
        knobs={"max_contributions": 3},
        params={"adversary": "eavesdropper", "max_iter": 10, "topology": "ring"},
        fields={"composes": True}),
    Bug("a token that misses a hop", hops(lambda h: type(h)(h.holder[:-1], h.contributes[:-1])),
        TRACE, "walk-admm walk-point-zero-out"),
]  # fmt: skip


@found_by(NO_WALK, ("SMALL", 0))
@replaces("skdpadmm.privacy._token_walk", "_worst_cost")
def a_token_without_observers_between_two_visits(worst, walk, n_peers):
    """Gaps between visits that the agent alone ends, whoever else looks on."""
    return worst(walk, 0)


@found_by(NO_WALK, ("SMALL", 1))
@replaces("skdpadmm.privacy._token_walk", "walk_cost")
def visits_beyond_the_cap_at_no_cost(cost, gaps, n, cap, excess):
    return cost(gaps, n, cap, 0.0)


# The gate, and what goes past it.


@found_by(TRACE, "consensus-exact")
@replaces(ConsensusADMM, "run")
def a_release_outside_of_the_plan(run, self, plan, problem, gate):
    gate.release("residuals", np.asarray(problem.target))
    return run(self, plan, problem, gate)


@found_by(TRACE, "consensus-exact")
@replaces(ConsensusADMM, "run")
def a_run_that_releases_twice(run, *args):
    run(*args)
    return run(*args)


@found_by(TRACE, "consensus-exact")
def a_release_past_the_gate(patch):
    passed = []

    @replaces(Gate, "release")
    def skip_one(release, self, name, value, *more):
        passed.append(name)
        return value if len(passed) == 2 else release(self, name, value, *more)

    skip_one(patch)


@found_by(TRACE, "gradient-admm-last gradient-admm-stopping")
@replaces(GradientADMM, "_through")
def steps_of_a_path_left_out(through, self, plan, problem, gate, state, records, *more):
    return through(self, plan, problem, gate, state, records[:-1], *more)


@found_by(TRACE, "objective")
@replaces(ObjectivePerturbation, "run")
def a_second_hidden_term(run, self, plan, problem, gate):
    gate.hidden_term(plan.releases[-1].name)
    return run(self, plan, problem, gate)


@replaces(GradientDescent, "_last_release")
def a_misnamed_release(honest, *args):
    settings, release = honest(*args)
    return settings, dataclasses.replace(release, name="iterate")


BUGS += [
    Bug("an iterate released as a gradient",
        all_of(setting(f"{ALGORITHMS}._gradient_descent.ITERATE", "mean gradient"),
               a_misnamed_release), TRACE, "gradient-last-zero-out"),
    Bug("a trace of a hidden path", all_of(*(
        setting(f"{ALGORITHMS}.{name}.releases_path", True)
        for name in ("_gradient_descent.GradientDescent", "_averaged_admm.AveragedADMM",
                     "_gradient_admm.GradientADMM"))), PATH,
        "gradient-last-zero-out gradient-cyclic averaged-last gradient-admm-last"),
]  # fmt: skip


@found_by(PATH, "consensus-exact gradient-path multi-step personal-warm sharing-federated")
@replaces(Problem, "progress")
def a_trace_that_knows_rows(progress, self, done, point=None):
    found = point() if callable(point) else point
    progress(self, done, None if found is None else found + self.rows.squared_norm.sum())


@found_by(FUNCTION, "consensus-exact")
@replaces(ConsensusADMM, "run")
def data_in_the_model_that_were_not_released(run, self, plan, problem, gate):
    solution = run(self, plan, problem, gate)
    shift = 1e-3 * float(np.mean(problem.target))
    return dataclasses.replace(solution, parameters=solution.parameters + shift)


@found_by(FUNCTION, "consensus-conditioned-scaled")
@replaces("skdpadmm._fitting", "rescale")
def units_from_norms_that_were_not_released(rescale, coordinates, norms, scaling, gate):
    """The median of the norms themselves, beside a histogram that is released in vain."""
    rescale(coordinates, norms, scaling, gate)
    return coordinates.rescaled(scaling.target / float(np.median(norms)))


@found_by(FUNCTION, "consensus-conditioned-zero-out")
@replaces(Rows, "in_basis")
def a_clip_bound_from_norms_that_were_not_released(in_basis, self, basis, over_blocks):
    unit = basis.clip_unit * math.sqrt(float(np.mean(self.squared_norm)))
    return in_basis(self, dataclasses.replace(basis, clip_unit=unit), over_blocks)


@found_by(FUNCTION, "walk-point-zero-out")
def doubts_from_rows_that_were_not_released(patch):
    """The mean square of the rows themselves, in what a classifier knows of its doubt."""
    own = property(lambda self: np.full(self.coordinates.n_parameters, self.squared_norm.mean()))
    patch.setattr(Rows, "loading", own)


@found_by(REPLAY, "consensus-exact")
@replaces(ConsensusADMM, "run")
def a_stop_that_looks_at_data(run, self, plan, problem, gate):
    honest = gate.release

    def release(name, value, *more):
        if value.ravel()[0] < 0:
            gate.skip(name)
            return np.zeros_like(value)
        return honest(name, value, *more)

    gate.release = release
    return run(self, plan, problem, gate)


@found_by("tests.divergence.test_federation.test_messages_follow_from_sums_that_were_released_and_from_no_hidden_model")  # fmt: skip
@replaces(ClippedSum, "of_agents")
def messages_of_hidden_models(of_agents, self, problem):
    """As in print: of each agent at the mean less its own last step."""
    exact, own = of_agents(self, problem), []

    def sums(models):
        own.append(exact(models - 0.1 * own[-1] if own else models))
        return own[-1]

    return sums


# What fits plan, keep and leave.


@found_by(BEFORE_DATA, "consensus-exact federated-server")
@replaces(PendingFit, "solve")
def a_clip_bound_from_targets(solve, self, noise):
    plan, typical = self.planned.plan, 1.0 + float(np.mean(self.y > 0))
    settings = plan.settings.but(clip_norm=plan.settings.clip_norm * typical)
    planned = dataclasses.replace(self.planned, plan=dataclasses.replace(plan, settings=settings))
    return solve(dataclasses.replace(self, planned=planned), noise)


@found_by(BEFORE_DATA, "consensus-exact graph-gradient")
@replaces(PendingFit, "report")
def a_report_with_a_figure_of_the_data(report, self, *args):
    honest = report(self, *args)
    line = f"the mean target is {self.y.mean():.3g}"
    return dataclasses.replace(honest, assumptions=(*honest.assumptions, line))


def kept(name: str, made_of: Callable[[Any, Any, Any], Any]) -> Plant:
    """One attribute more, made of the model, its rows and its targets."""

    @replaces(PrivateLinearModel, "_fit")
    def keeping(fit, self, X, y, *more):
        fit(self, X, y, *more)
        setattr(self, name, made_of(self, X, y))

    return keeping


def without_penalty(module: str) -> Plant:
    """Steps of a penalty that does nothing."""
    name = f"{ALGORITHMS}.{module}.penalty_operator"
    return setting(name, lambda _, step, rows: rows.to_coordinates)


BUGS += [
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
]  # fmt: skip


@found_by(BITS, "gradient-path")
@replaces(Engine, "sum")
def sums_that_depend_on_the_number_of_jobs(total, self, *args):
    return total(self, *args) * (1 + 1e-6 * (self.n_jobs or 1))


@found_by(REFUSALS, "consensus-exact federated-server")
def attributes_of_a_fit_that_fails(patch):
    for module in ("central", "_streaming", "_model_of_agents"):
        patch.setattr(f"skdpadmm.{module}.all_or_nothing", contextlib.nullcontext)


@found_by(REFUSALS, "consensus-exact")
@replaces(PendingFit, "solve")
def output_about_huge_rows(solve, self, noise):
    if np.abs(self.X).max() > 1e100:
        print("rows are huge")
    return solve(self, noise)


@replaces(ConsensusADMM, "run")
def a_step_size_that_a_fit_sets(run, self, plan, *args):
    self.step_size = plan.settings.step_size
    return run(self, plan, *args)


BUGS += [
    Bug("a parameter that a fit sets",
        all_of(a_step_size_that_a_fit_sets,
               setting("skdpadmm._linear_model.resolve_algorithm", lambda algorithm, *_, **__: algorithm)),
        ROUND_TRIP, "consensus-exact"),
]  # fmt: skip


@found_by(ROUND_TRIP, "consensus-exact")
def a_pickle_without_the_report(patch):
    def state(self):
        return {name: value for name, value in vars(self).items() if name != "privacy_"}

    patch.setattr(PrivateLinearModel, "__getstate__", state)


# Penalties, totals, and what is shown and read.


def ones_as_units(patch: pytest.MonkeyPatch) -> None:
    """The user's units in place of those in which the metric is near the identity."""
    from skdpadmm.penalties import _generalized_l1

    patch.setattr(_generalized_l1.np, "ldexp", np.ldexp)
    frexp = np.frexp
    patch.setattr(_generalized_l1.np, "frexp", lambda x: (frexp(x)[0], np.zeros_like(frexp(x)[1])))


THEOREM_BUGS += [
    TheoremBug("a generalised lasso in the user's units", ones_as_units,
               "tests.penalties.test_non_expansive.test_units_in_which_a_projection_used_to_lengthen_vectors"),
    TheoremBug("half the total variation in the accuracy of attacks", setting("skdpadmm.privacy.Guarantee.attack_accuracy", lambda known, prior=0.5: 1 - prior + prior * known.delta(0.0) / 2),
               "tests.privacy.test_attack_accuracy.test_the_best_attack_by_brute_force_is_as_good_as_the_bound_and_no_better",
               ("MIXTURE",)),
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
]  # fmt: skip
