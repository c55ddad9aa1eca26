"""Claims about personal models, by replay, by exact divergences and by attacks."""

from __future__ import annotations

import dataclasses
import math
import pickle
import struct

import numpy as np
import pytest
from scipy.stats import beta

import skdpadmm.algorithms._personalized_coordinate_descent as descent
import skdpadmm.algorithms._perturbed_data as perturbed_data
import skdpadmm.algorithms.blocks._agent_turns as agent_turns
from skdpadmm import DPPersonalizedClassifier, DPPersonalizedRegressor
from skdpadmm.algorithms import LocalModels, PersonalizedCoordinateDescent, PerturbedData
from skdpadmm.algorithms.blocks._compiled_turns import CompiledWakes
from skdpadmm.engine import Engine
from skdpadmm.losses import LogisticLoss, MultinomialLoss, SquaredLoss
from skdpadmm.network import Ownership, Similarity
from skdpadmm.noise import CryptographicNoise, grid_cell, noise_source
from skdpadmm.penalties import NoPenalty, SquaredL2
from skdpadmm.privacy import (
    GaussianDP,
    LaplaceDP,
    Neighboring,
    RandomizedResponseDP,
    compose,
)
from skdpadmm.protocol import AgentTurns, Budget, Facts, Gate, Neighborhood, PlanViolation, Problem
from skdpadmm.protocol._turns import TurnsOfAgents
from skdpadmm.records import Rows, declared_coordinates, rounding_factor

SIZES = (4, 9, 1, 0, 6)
EXTREME = np.array([1e300, -1e300, 1.7e308])
BUDGET = Budget(epsilon=1.0, delta=1e-5, observer="eavesdropper")
LAWS, UNITS, KINDS = ("gaussian", "laplace"), ("record", "agent"), ("replace_one", "zero_out")
LOOPS = ("waves", "tempered", "compiled", "local")


def algorithm_of(loop, law, *, turns=3, clip_norm=0.2, **knobs):
    """Descent in waves, with steps that heed noise or without, or compiled; local models."""
    if loop == "local":
        return LocalModels(turns=turns, noise=law, clip_norm=clip_norm)
    if loop == "compiled":
        pytest.importorskip("numba")
    return PersonalizedCoordinateDescent(
        turns=turns,
        noise=law,
        clip_norm=clip_norm,
        compiled=loop == "compiled",
        **{
            "averaging_wakes": 2,
            "warm_start": "propagation",
            "tempered": loop == "tempered",
            **knobs,
        },
    )


def facts_of(
    loss, *, sizes=SIZES, n_features=3, unit="record", neighboring="replace_one", intercept=True,
    bounds=None, penalty=None, **agents,
):  # fmt: skip
    is_regression, n_agents = isinstance(loss, SquaredLoss), len(sizes)
    coordinates = declared_coordinates(
        n_features=n_features,
        fit_intercept=intercept,
        feature_bounds=bounds,
        target_bounds=(-2, 2) if is_regression else None,
        has_target_scale=is_regression,
    )
    weights = np.exp(-np.abs(np.subtract.outer(np.arange(n_agents), np.arange(n_agents))))
    np.fill_diagonal(weights, 0.0)
    alone = Similarity(n_agents=1)
    return Facts(
        n_samples=sum(sizes),
        n_parameters=coordinates.n_parameters,
        loss=loss,
        penalty=penalty or SquaredL2(0.1),
        neighboring=Neighboring(neighboring),
        row_norm=coordinates.row_norm,
        rounding=rounding_factor(n_samples=sum(sizes), coordinates=coordinates),
        max_iter=10,
        is_declared=bounds is not None,
        unit=unit,
        agents=Neighborhood(
            agent_sizes=tuple(sizes),
            sizes_matter=False,
            similarity=alone if n_agents == 1 else Similarity(n_agents=n_agents, matrix=weights),
            confidence=tuple(np.linspace(0.4, 1.0, n_agents).tolist()),
            trade_off=1.5,
            **agents,
        ),
        coordinates=coordinates,
    )


def problem_of(facts, X, y, engine, null=None):
    """Rows of one agent after another; those in `null` are zeroed out."""
    rows = Rows(X, facts.coordinates)
    target = y
    if facts.coordinates.has_target_scale:
        target = facts.coordinates.target(y) * rows.weight
    if null is not None:
        rows.weight[null] = rows.squared_norm[null] = 0.0
    sizes = facts.agents.agent_sizes
    ownership = Ownership(
        labels=np.arange(len(sizes)), index=np.repeat(np.arange(len(sizes)), sizes)
    )
    return Problem(rows=rows, target=target, engine=engine, ownership=ownership)


def turns_of(plan):
    (release,) = (r for r in plan.releases if isinstance(r, AgentTurns))
    return release


def norms(values, law):
    """Of what each agent says in each turn, in the norm of the noise."""
    return np.linalg.norm(values.reshape(*values.shape[:2], -1), 2 if law == "gaussian" else 1, -1)


class Silent:
    """No noise, but shares and grid are those of the plan."""

    simulation = True

    def add_gaussian(self, value, scale, stream):
        return np.zeros(value.shape) + value

    add_laplace = add_gaussian


class ReplayGate(Gate):
    """Lets out a fixed answer in each turn whatever comes in, and keeps what came in."""

    def __init__(self, plan, path):
        super().__init__(plan, Silent())
        self.path, self.said = path, np.zeros(path.shape)

    def take_turns(self, name, agents, value):
        turns = self.turns_taken(name)[agents]
        super().take_turns(name, agents, value)
        self.said[turns, agents] = value
        return self.path[turns, agents]


def recorded_loop(gate, first):
    """A compiled loop that stops after every wake-up, and goes on from a fixed model.

    What a model moved by is what was said in the turn, times public constants.
    """

    class Recorded(CompiledWakes):
        def pieces(self, order):
            return order[:, None]

        def advance(self, models, woken, wave):
            super().advance(models, woken, wave)
            (agent,) = wave
            turn = woken[agent] - 1
            if self.gradient.has_rows[agent] and turn < self.n_turns:
                turn += first
                back = self.gradient.sizes[agent] if self.gradient.of_records else 1.0
                back *= self.gradient.weights[turn] / self.gradient.unit
                gate.said[turn, agent] = models[agent] * back / (self.step * self.pull)[agent]
                models[agent] = gate.path[turn, agent]

    return Recorded


def replay(algorithm, facts, X, y, path, *, null=None, plan=None):
    """Plan and exact values of all turns while what is heard is held fixed."""
    plan = algorithm.plan(facts, BUDGET) if plan is None else plan
    gate = ReplayGate(plan, path)
    with pytest.MonkeyPatch.context() as patch, np.errstate(all="ignore"):
        if getattr(algorithm, "compiled", False):
            first = 0 if algorithm.warm_start is None else 1
            patch.setattr(descent, "CompiledWakes", recorded_loop(gate, first))
        with Engine().running() as engine:
            algorithm.run(plan, problem_of(facts, X, y, engine, null), gate)
    gate.close()
    return plan, gate.said


def path_of(facts, n_turns, *, scale, seed=0):
    shape = (n_turns, facts.agents.n_agents, facts.n_parameters, facts.loss.n_outputs)
    return scale * np.random.default_rng(seed).standard_normal(shape)


def rows_of(facts, agent):
    ends = np.cumsum(facts.agents.agent_sizes)
    return np.arange(ends[agent] - facts.agents.agent_sizes[agent], ends[agent])


# The plan comes before data.


ALGORITHMS = [
    PersonalizedCoordinateDescent(turns=3),
    PersonalizedCoordinateDescent(turns=2, noise="laplace", warm_start=None),
    PersonalizedCoordinateDescent(turns=3, compiled=True),
    LocalModels(turns=2),
    PerturbedData(),
]


def name_of(algorithm):
    changed = [str(v) for k, v in algorithm.get_params().items() if k in ("noise", "compiled")]
    return "-".join([type(algorithm).__name__, *changed])


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=name_of)
@pytest.mark.parametrize("unit", UNITS)
def test_neighbouring_and_shuffled_data_get_the_same_plan_and_the_same_trace(
    algorithm, unit, watch
):
    if unit == "agent" and isinstance(algorithm, PerturbedData):
        pytest.skip("protects records alone")
    if getattr(algorithm, "compiled", False):
        pytest.importorskip("numba")
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((60, 3)), rng.standard_normal(60)
    agents = np.repeat(np.arange(4), [3, 7, 20, 30])
    neighbour = X.copy()
    neighbour[agents == 1 if unit == "agent" else 5] = [1e300, -1e300, 0.0]
    order = rng.permutation(60)
    model = DPPersonalizedRegressor(
        algorithm=algorithm, privacy_unit=unit, max_iter=4, random_state=3
    )
    with watch() as tap:
        for rows, target, owner in (
            (X, y, agents),
            (neighbour, y, agents),
            (X[order], y[order], agents[order]),
        ):
            model.fit(rows, target, agents=owner)
    first, *others = tap.plans
    assert all(plan == first and plan.digest() == first.digest() for plan in others)
    assert all(gate.trace == tap.gates[0].trace for gate in tap.gates)
    if not isinstance(algorithm, PerturbedData):
        said = sum(shape[0] for _, shape in tap.gates[0].trace)
        assert said == 4 * turns_of(first).times
    assert model.plan(60, 3, agent_sizes=[3, 7, 20, 30]) == first


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=name_of)
def test_every_observer_has_the_same_figure_and_no_one_else_has_any(algorithm):
    facts = facts_of(SquaredLoss(), bounds=(-1, 1))
    plan = algorithm.plan(facts, BUDGET)
    assert plan.facts.observers == ("eavesdropper", "model")
    for observer in plan.facts.observers:
        assert 0.99 < plan.guarantee(observer).epsilon(1e-5) <= 1.0
    assert plan.guarantee("eavesdropper") == plan.guarantee("model")
    for release in plan.releases:
        assert set(release.seen_by) == {"eavesdropper", "model"}
    with pytest.raises(ValueError, match="server"):
        plan.guarantee("server")


# Sensitivities, by replay.


LOSSES = [SquaredLoss(), LogisticLoss(), MultinomialLoss(3)]


def moves(algorithm, facts, targets, *, agent, is_extreme=False, scale=1.0):
    """How far each agent's turns moved, and how far they may."""
    rng, loss, n = np.random.default_rng(1), facts.loss, facts.n_samples
    X = rng.standard_normal((n, 3)) * 10.0 ** rng.uniform(-2, 2, (n, 1))
    y = targets(loss, rng, n)
    changed = rows_of(facts, agent)
    changed = changed if facts.unit == "agent" else changed[-1:]
    X2, y2 = X.copy(), y.copy()
    X2[changed] = EXTREME if is_extreme else -5 * X[changed]
    y2[changed] = 1e308 if isinstance(loss, SquaredLoss) else targets(loss, rng, len(changed))
    path = path_of(facts, int(algorithm.turns), scale=scale)
    if facts.neighboring is Neighboring.REPLACE_ONE:
        plan, first = replay(algorithm, facts, X, y, path)
        _, second = replay(algorithm, facts, X2, y2, path, plan=plan)
    else:
        plan, first = replay(algorithm, facts, X2, y2, path)
        _, second = replay(algorithm, facts, X2, y2, path, null=changed, plan=plan)
    assert np.isfinite(first).all()
    assert np.isfinite(second).all()
    release = turns_of(plan)
    allowed = np.asarray(release.sensitivities)[:, None]
    if getattr(algorithm, "compiled", False):
        # Seen after it was rounded to the grid, which the guarantee counts by itself.
        entries = facts.n_parameters * loss.n_outputs
        widened = math.sqrt(entries) if release.law == "gaussian" else entries
        unit = release.noise_std / (1 if release.law == "gaussian" else math.sqrt(2))
        allowed = allowed + grid_cell(1.0) * widened * unit + 1e-9
    return norms(first - second, release.law), allowed


@pytest.mark.parametrize("neighboring", KINDS)
@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
@pytest.mark.parametrize("loop", LOOPS)
def test_turns_move_by_at_most_their_sensitivity_and_those_of_other_agents_not_at_all(
    targets, loop, loss, law, unit, neighboring
):
    if loop == "compiled" and loss.n_outputs > 1:
        pytest.skip("is for one score")
    facts = facts_of(loss, unit=unit, neighboring=neighboring)
    algorithm = algorithm_of(loop, law)
    for agent, is_extreme, scale in ((0, False, 0.1), (1, True, 1.0), (2, True, 30.0)):
        found, allowed = moves(
            algorithm, facts, targets, agent=agent, is_extreme=is_extreme, scale=scale
        )
        assert np.all(found <= allowed)
        assert np.all(np.delete(found, agent, axis=1) == 0)
        assert found.max() > 0


@pytest.mark.parametrize("split", ["equal", "optimal"])
@pytest.mark.parametrize("warm_start", ["propagation", None])
@pytest.mark.parametrize("loop", ["waves", "compiled"])
@pytest.mark.parametrize("law", LAWS)
def test_turns_of_unequal_noise_move_by_what_each_is_allowed(targets, law, loop, split, warm_start):
    facts = facts_of(SquaredLoss(), intercept=False)
    algorithm = algorithm_of(loop, law, turns=4, split=split, warm_start=warm_start)
    found, allowed = moves(algorithm, facts, targets, agent=1, is_extreme=True)
    assert np.all(found <= allowed)
    assert (found[:, 1] > 0).all()


# Planted bugs: each breaks the code at one place.


def without_clip(patch):
    """Records, and means of agents, say what they like."""
    clipped = agent_turns.awake_gradients

    def unclipped(*args, **knobs):
        return clipped(*args, **{**knobs, "clip_norm": math.inf})

    patch.setattr(agent_turns, "awake_gradients", unclipped)
    patch.setattr(agent_turns.NoisyTurns, "_clipped", lambda self, means: means)
    started = agent_turns.NoisyTurns.__init__

    def start(self, *args, **knobs):
        started(self, *args, **knobs)
        self.bound = math.inf

    patch.setattr(agent_turns.NoisyTurns, "__init__", start)


def with_euclidean_clip(patch):
    """Laplace noise, but clipped in the other norm."""
    clipped = agent_turns.awake_gradients

    def euclidean(*args, **knobs):
        return clipped(*args, **{**knobs, "law": "gaussian"})

    patch.setattr(agent_turns, "awake_gradients", euclidean)
    started = agent_turns.NoisyTurns.__init__

    def start(self, *args, **knobs):
        started(self, *args, **knobs)
        self.law = "gaussian"

    patch.setattr(agent_turns.NoisyTurns, "__init__", start)


def with_half_the_noise(patch):
    whole = TurnsOfAgents.take
    patch.setattr(TurnsOfAgents, "take", lambda self, *args: whole(self, *args) / 2)


def with_noise_of_means(patch):
    """Sums of records have the noise that would do for their means."""
    begun = TurnsOfAgents.__init__

    def careless(self, release, agents, draw):
        begun(self, release, agents, draw)
        self.units = self.units / np.maximum(np.asarray(agents.agent_sizes), 1)

    patch.setattr(TurnsOfAgents, "__init__", careless)


def with_zero_out_counted(patch):
    patch.setattr(Neighboring, "sensitivity_factor", 1)


def with_noise_used_twice(patch):
    """The noise of the first turn, in every turn."""
    fresh = TurnsOfAgents.take

    def stale(self, agents, turns):
        return fresh(self, agents, np.zeros_like(turns))

    patch.setattr(TurnsOfAgents, "take", stale)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("loop", LOOPS)
def test_replay_catches_a_missing_clip(targets, monkeypatch, loop, unit, law):
    without_clip(monkeypatch)
    algorithm = algorithm_of(loop, law, clip_norm=1e-4)
    found, allowed = moves(algorithm, facts_of(SquaredLoss(), unit=unit), targets, agent=1)
    assert found.max() > 1.2 * allowed.max()


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("loop", LOOPS)
def test_replay_catches_a_euclidean_clip_under_laplace_noise(targets, monkeypatch, loop, unit):
    with_euclidean_clip(monkeypatch)
    # Rows that are long along all features at once.
    facts, algorithm = facts_of(SquaredLoss(), unit=unit), algorithm_of(loop, "laplace")
    release = turns_of(algorithm.plan(facts, BUDGET))
    path = path_of(facts, 3, scale=0.0)
    X, ends = np.ones((facts.n_samples, 3)), []
    for sign in (1, -1):
        y = np.full(facts.n_samples, sign * 1e9)
        ends.append(replay(algorithm, facts, X, y, path)[1])
    # Of an agent's own rows, one after the other: where a record is the unit, that of one.
    own = 2 if unit == "record" else 1
    found = norms(np.subtract(*ends), "laplace")[0, own]
    assert found > 1.2 * release.sensitivities[0]


# Exact divergences where losses are linear.


class Ones(Silent):
    """Noise that is as large as its scale, to read off what scale there is."""

    def add_gaussian(self, value, scale, stream):
        return value + scale

    add_laplace = add_gaussian


def noise_scales(plan):
    """Of every turn of every agent, as the gate gives it to waves and to compiled loops."""
    release = turns_of(plan)
    sizes = np.asarray(plan.facts.agents.agent_sizes)
    who = np.flatnonzero(sizes)
    gate, other = Gate(plan, Ones()), Gate(plan, Ones())
    scales = np.full((release.times, len(sizes)), np.nan)
    for turn in range(release.times):
        heard = gate.take_turns(release.name, who, np.zeros((len(who), *release.shape[1:])))
        scales[turn, who] = heard[:, 0, 0]
        _, noise, units = other.turn_noise(release.name, who)
        np.testing.assert_array_equal(noise[:, 0, 0] * units, scales[turn, who])
    return scales


LINEAR = {"bounds": (-1, 1), "intercept": False, "penalty": NoPenalty()}


def steps_of(algorithm, law, *, agent=1, n_features=1, unit="record", neighboring="replace_one"):
    """What the turns of an agent move by, in scales of their noise; and the plan.

    Targets are far away and clips small: all slopes have the size of the clip, whatever models are.
    """
    facts = facts_of(
        SquaredLoss(), n_features=n_features, unit=unit, neighboring=neighboring, **LINEAR
    )
    changed = rows_of(facts, agent)
    changed = changed if unit == "agent" else changed[:1]
    X, y = np.ones((facts.n_samples, n_features)), np.full(facts.n_samples, 2.0)
    path = path_of(facts, int(algorithm.turns), scale=1e-3)
    plan, first = replay(algorithm, facts, X, y, path)
    if neighboring == "replace_one":
        y2 = y.copy()
        y2[changed] = -2.0
        second = replay(algorithm, facts, X, y2, path, plan=plan)[1]
    else:
        second = replay(algorithm, facts, X, y, path, null=changed, plan=plan)[1]
    return (norms(first - second, law) / noise_scales(plan))[:, agent], plan


def laplace_deltas(steps, levels, width=5e-4):
    """Lower and upper bounds of delta of Laplace turns, by sums of losses on a grid.

    Noise of scale one and a shift of s have the loss s - 2 x at x in [0, s], s below and -s above.
    """
    bounds = []
    for up in (0, 1):
        total, start = np.ones(1), 0
        for step in steps:
            first, last = math.floor(-step / width) - 1, math.ceil(step / width) + 1
            edges = np.arange(first, last + 1) * width
            below = np.where(edges < -step, 0.0, np.exp((np.minimum(edges, step) - step) / 2) / 2)
            below[edges >= step] = 1.0
            total, start = np.convolve(total, np.diff(below)), start + first + up
        losses = (start + np.arange(len(total))) * width
        bounds.append([total @ np.maximum(0.0, -np.expm1(level - losses)) for level in levels])
    return np.array(bounds)


LEVELS = (0.0, 0.3, 0.6, 0.9)


# Turns that move by more are no harder to tell apart.
LARGEST_STEP = 3.0


def spent(algorithm, law, **shape):
    """Lower and upper bounds of delta of what really happened at some levels, and the claim."""
    steps, plan = steps_of(algorithm, law, **shape)
    steps = np.minimum(steps, LARGEST_STEP)
    guarantee = plan.guarantee()
    claimed = np.array([guarantee.delta(level) for level in LEVELS])
    if law == "gaussian":
        exact = GaussianDP(math.hypot(*steps))
        return np.array([[exact.delta(level) for level in LEVELS]] * 2), claimed
    return laplace_deltas(steps, LEVELS), claimed


def test_sums_of_laplace_losses_are_those_of_the_closed_form():
    lower, upper = laplace_deltas([0.8], LEVELS)
    exact = [LaplaceDP((0.8,)).delta(level) for level in LEVELS]
    assert (lower <= exact).all()
    assert (exact <= upper).all()
    np.testing.assert_allclose(lower, upper, atol=5e-4)


@pytest.mark.parametrize("neighboring", KINDS)
@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("loop", LOOPS)
def test_the_exact_divergence_of_linear_losses_attains_the_claim(loop, law, unit, neighboring):
    pytest.importorskip("dp_accounting")
    algorithm = algorithm_of(loop, law, clip_norm=1e-3)
    (lower, upper), claimed = spent(algorithm, law, unit=unit, neighboring=neighboring)
    assert (lower <= claimed * (1 + 1e-12)).all()
    np.testing.assert_allclose(upper, claimed, rtol=5e-3, atol=5e-4)


@pytest.mark.parametrize("split", ["equal", "optimal"])
@pytest.mark.parametrize("loop", ["waves", "compiled"])
@pytest.mark.parametrize("law", LAWS)
def test_the_exact_divergence_of_unequal_turns_attains_the_claim(law, loop, split):
    pytest.importorskip("dp_accounting")
    algorithm = algorithm_of(loop, law, turns=4, split=split, clip_norm=1e-3)
    (lower, upper), claimed = spent(algorithm, law)
    assert (lower <= claimed * (1 + 1e-12)).all()
    np.testing.assert_allclose(upper, claimed, rtol=5e-3, atol=5e-4)


@pytest.mark.slow
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize(
    "bug", [without_clip, with_half_the_noise, with_noise_of_means, with_zero_out_counted]
)
def test_the_exact_divergence_catches_planted_bugs(monkeypatch, bug, loop, law):
    algorithm = algorithm_of(loop, law, clip_norm=1e-3)
    bug(monkeypatch)
    (lower, _), claimed = spent(algorithm, law)
    assert (lower > 1.2 * claimed).all()


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("loop", LOOPS)
def test_a_warm_start_or_a_turn_that_is_not_counted_is_refused_and_costs_too_much(loop, law):
    """A plan of one turn less than are taken."""
    algorithm = algorithm_of(loop, law, clip_norm=1e-3)
    facts = facts_of(SquaredLoss(), n_features=1, **LINEAR)
    plan, fewer = (
        algorithm_of(loop, law, turns=turns, clip_norm=1e-3).plan(facts, BUDGET) for turns in (3, 2)
    )
    uncounted = dataclasses.replace(plan, releases=fewer.releases)
    X, y = np.ones((facts.n_samples, 1)), np.full(facts.n_samples, 2.0)
    path = np.zeros((3, len(SIZES), 1, 1))
    with pytest.raises(PlanViolation, match="Got turn 3 of an agent"):
        replay(algorithm, facts, X, y, path, plan=uncounted)
    move = turns_of(plan).sensitivities[0] / noise_scales(uncounted)[0, 1]
    guarantee = uncounted.guarantee()
    for level in LEVELS:
        if law == "gaussian":
            found = GaussianDP(move * math.sqrt(3)).delta(level)
        else:
            found = laplace_deltas([move] * 3, [level])[0, 0]
        assert found > 1.1 * guarantee.delta(level)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("loop", LOOPS)
def test_agents_with_budgets_of_their_own_spend_them(loop, law):
    epsilons = (0.5, 2.0, 1.0, 1.0, 4.0)
    facts = facts_of(SquaredLoss(), epsilons=epsilons, **LINEAR)
    plan = algorithm_of(loop, law, turns=2).plan(facts, dataclasses.replace(BUDGET, epsilon=4.0))
    scales, moved = noise_scales(plan), np.asarray(turns_of(plan).sensitivities)
    for agent in np.flatnonzero(facts.agents.agent_sizes):
        steps = moved / scales[:, agent]
        one = GaussianDP(math.hypot(*steps)) if law == "gaussian" else LaplaceDP(tuple(steps))
        claimed = plan.guarantees("eavesdropper")[facts.agents.kind[agent]]
        assert claimed.epsilon(1e-5) <= epsilons[agent] * (1 + 1e-9)
        assert 0.99 * epsilons[agent] < one.epsilon(1e-5) <= claimed.epsilon(1e-5)


# The noise of every turn.


class Quiet(CryptographicNoise):
    """A fraction of the noise."""

    share = 0.5

    def add_gaussian(self, value, scale, stream):
        return super().add_gaussian(value, scale * self.share, stream)

    def add_laplace(self, value, scale, stream):
        return super().add_laplace(value, scale * self.share, stream)


def wide(loop, law, *, epsilons=(1.0, 3.0, 1.0)):
    """Facts and a plan of agents that say many numbers, in three turns."""
    facts = facts_of(
        LogisticLoss(), sizes=(20, 0, 5), n_features=400, bounds=(-1, 1), epsilons=epsilons
    )
    budget = dataclasses.replace(BUDGET, epsilon=max(epsilons))
    return facts, algorithm_of(loop, law).plan(facts, budget)


class TurnsTap(Gate):
    """Keeps what was said and heard in every turn, or the noise that a loop was given."""

    def __init__(self, plan, noise):
        super().__init__(plan, noise)
        self.noise = {}

    def _note(self, agents, turns, noise):
        for agent, turn, own in zip(agents.tolist(), turns.tolist(), noise, strict=True):
            assert (turn, agent) not in self.noise
            self.noise[turn, agent] = own.copy()

    def take_turns(self, name, agents, value):
        turns = self.turns_taken(name)[agents]
        heard = super().take_turns(name, agents, value)
        self._note(agents, turns, heard - value)
        return heard

    def turn_noise(self, name, agents):
        turns, noise, units = super().turn_noise(name, agents)
        self._note(agents, turns, units[:, None, None] * noise)
        return turns, noise, units


def noise_of_fit(loop, law, source):
    """Noise of each turn of each agent with rows, (turns, agents, numbers), in planned units."""
    facts, plan = wide(loop, law)
    rng = np.random.default_rng(0)
    X, y = rng.uniform(-1, 1, (25, 400)), rng.choice([-1.0, 1.0], 25)
    gate = TurnsTap(plan, source)
    with Engine().running() as engine:
        algorithm_of(loop, law).run(plan, problem_of(facts, X, y, engine), gate)
    gate.close()
    shares = np.asarray(turns_of(plan).shares)[facts.agents.kind]
    found = [[gate.noise[t, a].ravel() / shares[a] for a in (0, 2)] for t in range(3)]
    assert len(gate.noise) == 6
    return np.array(found)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize(("source", "holds"), [(CryptographicNoise, True), (Quiet, False)])
def test_noise_of_every_turn_is_that_of_the_plan_and_half_of_it_is_caught(loop, law, source, holds):
    noise = noise_of_fit(loop, law, source())
    spread = np.sqrt(np.square(noise).mean(axis=2))
    # Five standard errors; squares of Laplace noise spread more.
    error = 5 * math.sqrt((2 if law == "gaussian" else 5) / 4 / noise.shape[2])
    assert np.all(np.abs(spread - 1) < error) == holds


def is_fresh(noise):
    """Whether no two turns, and no two agents, have noise in common."""
    drawn = noise.reshape(-1, noise.shape[2])
    apart = np.abs(np.corrcoef(drawn) - np.eye(len(drawn))).max() < 0.3
    return bool(apart) and len(np.unique(drawn)) > 0.99 * drawn.size


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("random_state", [None, 0])
@pytest.mark.parametrize("loop", LOOPS)
def test_noise_is_never_used_twice_and_if_it_is_that_is_caught(
    monkeypatch, loop, random_state, law
):
    assert is_fresh(noise_of_fit(loop, law, noise_source(random_state, "0" * 64)))
    with_noise_used_twice(monkeypatch)
    assert not is_fresh(noise_of_fit(loop, law, noise_source(random_state, "0" * 64)))


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("loop", ["waves", "compiled", "local"])
def test_noise_of_a_model_is_that_of_the_mean_gradient(loop, unit, law):
    """Where the noise of a turn was not divided by the number of rows it would be more."""
    facts = facts_of(
        SquaredLoss(), sizes=(20,), n_features=400, unit=unit,
        **{**LINEAR, "penalty": SquaredL2(0.1)},
    )  # fmt: skip
    algorithm = algorithm_of(loop, law, turns=1, warm_start=None, averaging_wakes=0)
    plan = algorithm.plan(facts, BUDGET)
    X, y = np.random.default_rng(0).uniform(-1, 1, (20, 400)), np.ones(20)
    models = []
    for source in (Silent(), CryptographicNoise()):
        with Engine().running() as engine:
            problem = problem_of(facts, X, y, engine)
            unit_of_clip = problem.rows.clip_unit
            models.append(algorithm.run(plan, problem, Gate(plan, source)).parameters)
    curvature = SquaredLoss().smoothness * facts.row_norm**2
    step = 1.5 * 0.4 / (1 + 1.5 * 0.4 * (curvature + 0.1))
    if loop == "local":
        step = plan.settings.step_size
    clip = 0.2 * unit_of_clip * (1 if law == "gaussian" else math.sqrt(400))
    expected = step * clip * turns_of(plan).noise_std / (20 if unit == "record" else 1)
    assert np.std(models[1] - models[0]) == pytest.approx(expected, rel=0.25)


# What is kept.


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("warm_start", ["propagation", None])
@pytest.mark.parametrize("loop", ["waves", "tempered", "local"])
def test_models_are_functions_of_what_passed_the_gate_alone(loop, warm_start, law):
    facts = facts_of(SquaredLoss(), bounds=(-1, 1))
    algorithm = algorithm_of(loop, law, warm_start=warm_start)
    plan, path = algorithm.plan(facts, BUDGET), path_of(facts, 3, scale=1.0)
    rng = np.random.default_rng(0)
    found = []
    for _ in range(2):
        # Other rows and other targets of as many records: nothing of them is left.
        X, y = rng.uniform(-1, 1, (facts.n_samples, 3)), rng.uniform(-2, 2, facts.n_samples)
        gate = ReplayGate(plan, path)
        with Engine().running() as engine:
            solution = algorithm.run(plan, problem_of(facts, X, y, engine), gate)
        found.append(solution)
    first, second = (vars(solution) for solution in found)
    for name, value in first.items():
        np.testing.assert_array_equal(value, second[name])


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("warm_start", ["propagation", None])
@pytest.mark.parametrize("tempered", [False, True])
def test_a_compiled_loop_goes_on_from_noisy_models_alone(targets, tempered, warm_start, law):
    """Replay lets each wake-up begin at fixed models: what other agents say is not moved by it."""
    facts = facts_of(SquaredLoss())
    knobs = {"turns": 5, "warm_start": warm_start, "tempered": tempered}
    algorithm = algorithm_of("compiled", law, **knobs)
    found, allowed = moves(algorithm, facts, targets, agent=1, is_extreme=True)
    assert np.all(found <= allowed)
    assert np.all(np.delete(found, 1, axis=1) == 0)
    # An agent's own turns move by what its rows say at those models, each time anew.
    later, _ = moves(
        algorithm_of("compiled", law, averaging_wakes=0, **knobs),
        facts, targets, agent=1, is_extreme=True,
    )  # fmt: skip
    # Up to a cell of the grid, to which means in another order are rounded.
    np.testing.assert_allclose(found, later, rtol=1e-4)


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=name_of)
@pytest.mark.parametrize("estimator", [DPPersonalizedRegressor, DPPersonalizedClassifier])
@pytest.mark.parametrize("random_state", [None, 0])
def test_no_value_of_a_canary_row_is_in_the_pickle(estimator, algorithm, random_state):
    if getattr(algorithm, "compiled", False):
        pytest.importorskip("numba")
    rng = np.random.default_rng(0)
    X, agents = rng.uniform(-1, 1, (40, 3)), np.repeat([0, 1, 2, 3], 10)
    is_regression = estimator is DPPersonalizedRegressor
    y = rng.uniform(-1, 1, 40) if is_regression else np.arange(40) % 2
    X[7] = [0.1234567890123, -0.9876543210987, 0.5432109876543]
    if is_regression:
        y[7] = 0.7654321098765
    options = {"target_bounds": (-1, 1)} if is_regression else {"classes": [0, 1]}
    model = estimator(
        algorithm=algorithm, feature_bounds=(-1, 1), random_state=random_state, **options
    )
    content = pickle.dumps(model.fit(X, y, agents=agents))
    for value in [*X[7], *([y[7]] if is_regression else [])]:
        for layout in ("<d", ">d", "<f", ">f"):
            assert struct.pack(layout, value) not in content
    for word in (b"Philox", b"PCG64", b"Generator", b"Engine", b"Gate", b"NoisyTurns"):
        assert word not in content


# Attacks.


N_RUNS = 1500
# What 750 trials leave unseen of mu, at the confidence of the bound.
UNSEEN = 0.8
ATTACKED = Budget(epsilon=8.0, delta=1e-3, observer="eavesdropper")
# Of delta, where Laplace noise is attacked, at level zero: false alarms count once there. At others
# they count as many times more, and so does what is unseen of them.
UNSEEN_DELTA, BROKEN_LEVEL = 0.22, 1.0


def certain_delta(without, having, epsilon):
    """Lower bound of delta from a threshold test chosen on one half, at 99.9 % confidence."""
    half = len(without) // 2
    best = max(
        np.quantile(having[:half], np.linspace(0.02, 0.98, 49)),
        key=lambda t: np.mean(having[:half] > t) - math.exp(epsilon) * np.mean(without[:half] > t),
    )
    trials = len(without) - half
    hits, alarms = int(np.sum(having[half:] > best)), int(np.sum(without[half:] > best))
    low = beta.ppf(5e-4, hits, trials - hits + 1) if hits else 0.0
    high = beta.ppf(1 - 5e-4, alarms + 1, trials - alarms) if alarms < trials else 1.0
    return low - math.exp(epsilon) * high


class Messages(Gate):
    """What an eavesdropper hears of one agent, turn by turn."""

    def __init__(self, plan, noise):
        super().__init__(plan, noise)
        self.heard = []

    def take_turns(self, name, agents, value):
        heard = super().take_turns(name, agents, value)
        self.heard.extend(heard[agents == 0].ravel().tolist())
        return heard


def attack(loop, law, *, unit="record", seen="messages"):
    """What tells two data sets apart that differ in a unit of agent 0; without and with it.

    Either what the agent is heard to say, or its released model where it is alone, which is the sum
    of all that it said.
    """
    sizes, turns = ((2, 2, 2), 3) if seen == "messages" else ((2,), 3 if law == "gaussian" else 1)
    facts = facts_of(SquaredLoss(), sizes=sizes, n_features=1, unit=unit, **LINEAR)
    knobs = {} if seen == "messages" else {"warm_start": None, "averaging_wakes": 0}
    algorithm = algorithm_of(loop, law, turns=turns, clip_norm=1e-3, **knobs)
    plan = algorithm.plan(
        facts, dataclasses.replace(ATTACKED, epsilon=8.0 if law == "gaussian" else 3.0)
    )
    release = turns_of(plan)
    X, found = np.ones((facts.n_samples, 1)), []
    for sign in (1.0, -1.0):
        y = np.full(facts.n_samples, 2.0)
        y[: 2 if unit == "agent" else 1] *= sign
        values = np.empty(N_RUNS)
        with Engine().running() as engine:
            problem = problem_of(facts, X, y, engine)
            for run in range(N_RUNS):
                gate = Messages(plan, CryptographicNoise())
                solution = algorithm.run(plan, problem, gate)
                if seen == "model":
                    values[run] = solution.parameters_per_agent[0, 0, 0]
                    continue
                heard = np.array(gate.heard) - (-1.0 if unit == "record" else 0.0)
                if law == "laplace":
                    # The likelihood ratio of a shift from -s to s ends there.
                    heard = np.clip(heard, -1.0, 1.0)
                values[run] = heard.sum()
        found.append(values)
    # Targets above make slopes that are below zero, and models that are above it.
    without, having = found
    if seen == "messages":
        return without, having, plan.guarantee(), release
    return having, without, plan.guarantee(), release


SEEN = [
    ("waves", "messages"),
    ("waves", "model"),
    ("compiled", "model"),
    ("local", "messages"),
    ("local", "model"),
]


@pytest.mark.slow
@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize(("loop", "seen"), SEEN)
def test_attack_on_gaussian_turns_comes_close_to_the_claim_and_not_above(
    mu_lower_bound, loop, seen, unit
):
    without, having, claimed, _ = attack(loop, "gaussian", unit=unit, seen=seen)
    found = mu_lower_bound(without, having)
    assert claimed.mu - UNSEEN <= found <= claimed.mu


@pytest.mark.slow
@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize(("loop", "seen"), SEEN)
def test_attack_on_laplace_turns_comes_close_to_the_claim_and_not_above(loop, seen, unit):
    without, having, claimed, _ = attack(loop, "laplace", unit=unit, seen=seen)
    for level in (0.0, 1.0, 2.0):
        assert certain_delta(without, having, level) <= claimed.delta(level)
    assert certain_delta(without, having, 0.0) >= claimed.delta(0.0) - UNSEEN_DELTA


ATTACK_BUGS = [without_clip, with_half_the_noise, with_noise_of_means, with_zero_out_counted]


@pytest.mark.slow
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("bug", ATTACK_BUGS)
@pytest.mark.parametrize(("loop", "seen"), [("waves", "messages"), ("compiled", "model")])
def test_attack_catches_planted_bugs(monkeypatch, mu_lower_bound, loop, seen, bug, law):
    bug(monkeypatch)
    without, having, claimed, _ = attack(loop, law, seen=seen)
    if law == "gaussian":
        assert mu_lower_bound(without, having) > 1.05 * claimed.mu
    else:
        assert certain_delta(without, having, BROKEN_LEVEL) > claimed.delta(BROKEN_LEVEL)


# Records that are published one by one.


# A run is a release alone, so that many are made, and less is left unseen.
N_RECORDS, UNSEEN_OF_RECORDS = 6000, 0.12


class Published(Gate):
    """What everybody sees of the first record."""

    def perturb_rows(self, name, value, owner):
        self.numbers = super().perturb_rows(name, value, owner)
        return self.numbers

    def randomize_labels(self, name, labels, owner):
        self.labels = super().randomize_labels(name, labels, owner)
        return self.labels


def attack_on_a_record(loss, law, *, source=None, target_share=0.5):
    """Likelihood ratios of one record's released row, of two in opposite corners.

    Returns them without and with the record, the claim, and what the best test of these two finds:
    noise of the Laplace law hides moves of some numbers better than one of a single number.
    """
    facts = facts_of(loss, sizes=(3, 2), n_features=2, bounds=(-1, 1))
    algorithm = PerturbedData(noise=law, models="local", target_share=target_share)
    plan = algorithm.plan(facts, dataclasses.replace(ATTACKED, epsilon=3.0))
    of_labels, order = not isinstance(loss, SquaredLoss), 1 if law == "laplace" else 2
    end = np.array([1.0, 1.0] if of_labels else [1.0, 1.0, plan.settings.target_weight])
    scale = plan.releases[0].shares[0] / (math.sqrt(2) if law == "laplace" else 1.0)
    found = []
    for sign in (-1.0, 1.0):
        X, y = np.zeros((5, 2)), np.array([0.0, 1.0, -1.0, 1.0, -1.0])
        X[0], y[0] = sign, sign * (1.0 if of_labels else 2.0)
        ratios = np.empty(N_RECORDS)
        with Engine().running() as engine:
            problem = problem_of(facts, X, y, engine)
            for run in range(N_RECORDS):
                gate = Published(plan, CryptographicNoise() if source is None else source)
                perturbed_data._published(plan, problem, gate)
                apart = [np.abs((gate.numbers[0] - e) / scale) ** order for e in (-end, end)]
                ratios[run] = (apart[0] - apart[1]).sum() / order
                if of_labels:
                    other = plan.releases[1].others[0]
                    odds = math.log((1 - other) / other)
                    ratios[run] += odds if gate.labels[0] == 1 else -odds
        found.append(ratios)
    claimed = best = plan.guarantee()
    if law == "laplace":
        best = LaplaceDP(tuple((2 * end / scale).tolist()))
        if of_labels:
            best = compose(best, RandomizedResponseDP(3.0 * target_share, 2))
    return *found, claimed, best


class NoResponse(CryptographicNoise):
    """Labels are told as they are."""

    def uniform(self, shape, stream):
        return np.full(shape, 1 - 2.0**-53)


@pytest.mark.slow
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("loss", [SquaredLoss(), LogisticLoss()], ids=lambda v: type(v).__name__)
def test_attack_on_a_published_record_comes_close_to_the_claim_and_not_above(loss, law):
    without, having, claimed, best = attack_on_a_record(loss, law)
    for level in (0.0, 1.0, 2.0):
        assert certain_delta(without, having, level) <= best.delta(level) + 1e-9
        assert best.delta(level) <= claimed.delta(level) + 1e-9
    assert certain_delta(without, having, 0.0) >= best.delta(0.0) - UNSEEN_OF_RECORDS


@pytest.mark.slow
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize(
    ("loss", "source", "target_share"),
    [
        (SquaredLoss(), Quiet, 0.1),
        (LogisticLoss(), Quiet, 0.1),
        (LogisticLoss(), NoResponse, 0.5),
    ],
    ids=["numbers", "features", "labels"],
)
def test_attack_on_a_published_record_catches_too_little_noise(loss, source, target_share, law):
    without, having, claimed, _ = attack_on_a_record(
        loss, law, source=source(), target_share=target_share
    )
    levels = (1.0, 2.0)
    assert max(certain_delta(without, having, e) - claimed.delta(e) for e in levels) > 0


@pytest.mark.slow
@pytest.mark.parametrize("law", LAWS)
def test_attack_on_a_published_record_catches_features_that_are_not_limited(monkeypatch, law):
    def unlimited(rows, noise):
        return np.array([[100.0, 0.0]]) * np.sign(rows.augmented(0)[:, :2])

    monkeypatch.setattr(perturbed_data, "limited_features", unlimited)
    without, having, claimed, _ = attack_on_a_record(LogisticLoss(), law)
    assert certain_delta(without, having, BROKEN_LEVEL) > claimed.delta(BROKEN_LEVEL)
