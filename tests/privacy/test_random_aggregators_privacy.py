"""Claims about agents that mix at random, by replay and by exact densities."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import kstest

import skdpadmm._fitting as fitting
import skdpadmm.algorithms._randomized_admm as randomized_admm
import skdpadmm.algorithms.blocks._agent_gradients as agent_gradients
import skdpadmm.algorithms.blocks._agent_turns as agent_turns_block
import skdpadmm.algorithms.blocks._random_aggregators as blocks
from skdpadmm import DPDecentralizedRegressor
from skdpadmm.algorithms import RandomizedADMM, RandomizedGradientDescent, RandomizedSGD
from skdpadmm.algorithms.blocks._random_aggregators import between
from skdpadmm.algorithms.planning._random_aggregators import decay_weights
from skdpadmm.engine import Engine
from skdpadmm.losses import LogisticLoss, MultinomialLoss, SquaredLoss
from skdpadmm.network import ownership_of_labels, resolve_topology
from skdpadmm.noise import noise_source
from skdpadmm.penalties import ElasticNet, NoPenalty
from skdpadmm.privacy import LaplaceDP, Neighboring, UniformLaplace
from skdpadmm.protocol import AgentTurns, Budget, Facts, Gate, Network, Problem
from skdpadmm.records import Rows, declared_coordinates, rounding_factor

NAMES = ["randomized-admm", "randomized-gradient-descent", "randomized-sgd"]
OWNER = np.repeat(["a", "b", "c", "d"], [2, 9, 1, 2])
EXTREME = np.array([1e300, -1e300, 1.7e308])
LAWS = ["laplace", "gaussian"]
BUDGET = Budget(epsilon=1.0, delta=1e-5, observer="eavesdropper")
LOSSES = [SquaredLoss(), LogisticLoss(), MultinomialLoss(3)]
# What an exact step may lack counts twice, in each of two neighbouring data sets: by hand.
WIDENED = {("laplace", 0.01): 1.02, ("gaussian", 0.01): 1.02, ("laplace", 0.5): 2.0}
RELEASED = [
    RandomizedADMM(clip_norm=0.3, curvature=1.5),
    RandomizedADMM(clip_norm=0.3, curvature=1.5, local_step="exact"),
    RandomizedADMM(clip_norm=0.3, curvature=1.5, aggregator="fixed"),
    RandomizedGradientDescent(step_size=0.7, clip_norm=0.3),
    RandomizedGradientDescent(step_size=0.7, clip_norm=0.3, mixing="interval"),
    RandomizedSGD(step_size=0.7, clip_norm=0.3, rounds=2),
]


def label(algorithm):
    return repr(algorithm).replace("\n", "")


class ReplayGate(Gate):
    """Lets out a fixed path whatever comes in, with the same weights, and keeps what came in."""

    def __init__(self, plan, path):
        super().__init__(plan, noise=None)
        self.path, self.values, self.rng = iter(path), [], np.random.default_rng(5)

    def take_turns(self, name, agents, value):
        taken = self._turns_of(name).taken
        taken[agents] += 1
        assert np.isfinite(value).all()
        whole = np.zeros((len(taken), *value.shape[1:]))
        whole[agents] = value
        self.values.append(whole)
        return next(self.path)[agents]

    def uniform(self, shape):
        return self.rng.random(shape)


def facts_of(
    owner, *, loss, n_features=3, fit_intercept=True, topology="star", neighboring="replace_one",
    unit="record", max_iter=4, penalty=None,
):  # fmt: skip
    regression = isinstance(loss, SquaredLoss)
    coordinates = declared_coordinates(
        n_features=n_features,
        fit_intercept=fit_intercept,
        feature_bounds=None,
        target_bounds=(-2, 2) if regression else None,
        has_target_scale=regression,
    )
    ownership = ownership_of_labels(owner, n_samples=len(owner))
    facts = Facts(
        n_samples=len(owner),
        n_parameters=coordinates.n_parameters,
        loss=loss,
        penalty=penalty or ElasticNet(0.01, 0.02),
        neighboring=Neighboring(neighboring),
        row_norm=coordinates.row_norm,
        rounding=rounding_factor(n_samples=len(owner), coordinates=coordinates),
        max_iter=max_iter,
        unit=unit,
        agents=Network(
            agent_sizes=tuple(ownership.sizes.tolist()),
            topology=resolve_topology(topology, ownership.labels),
            sizes_matter=unit == "agent",
        ),
    )
    return coordinates, ownership, facts


def replay(algorithm, X, y, path, *, owner=OWNER, null=None, **shape):
    """Plan, exact values of all turns, and the solution, while what is heard is held fixed."""
    coordinates, ownership, facts = facts_of(owner, n_features=X.shape[1], **shape)
    plan = algorithm.plan(facts, BUDGET)
    rows = Rows(X, coordinates)
    target = coordinates.target(y) * rows.weight if coordinates.has_target_scale else y
    if null is not None:
        rows.weight[null] = rows.squared_norm[null] = 0.0
    gate = ReplayGate(plan, path)
    with np.errstate(all="ignore"), Engine().running() as engine:
        problem = Problem(rows=rows, target=target, engine=engine, ownership=ownership)
        solution = algorithm.run(plan, problem, gate)
    gate.close()
    return plan, gate.values, solution


def random_path(loss, *, scale, seed=0, n_agents=4, d=4):
    rng = np.random.default_rng(seed)
    return [scale * rng.standard_normal((n_agents, d, loss.n_outputs)) for _ in range(8)]


# The plan comes before data.


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("unit", ["record", "agent"])
def test_neighbouring_and_shuffled_data_get_the_same_plan_and_the_same_trace(name, unit, watch):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((60, 3)), rng.standard_normal(60)
    agents = np.repeat(np.arange(4), [3, 7, 20, 30])
    neighbour = X.copy()
    neighbour[agents == 1 if unit == "agent" else 5] = [1e300, -1e300, 0.0]
    order = rng.permutation(60)
    model = DPDecentralizedRegressor(
        algorithm=name, privacy_unit=unit, topology="ring", max_iter=4, random_state=3
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
    turns = sum(shape[0] for _, shape in tap.gates[0].trace)
    assert turns == 4 * first.releases[-1].times
    assert model.plan(60, 3, agent_sizes=[3, 7, 20, 30]) == first


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("scale", [None, "private"])
@pytest.mark.parametrize("neighboring", ["replace_one", "zero_out"])
def test_the_budget_is_met_and_used_up(name, scale, neighboring):
    for topology, epsilon in itertools.product(["complete", "star"], [0.1, 1.0, 10.0]):
        model = DPDecentralizedRegressor(
            algorithm=name, epsilon=epsilon, scale=scale, neighboring=neighboring,
            topology=topology, n_agents=12, max_iter=5,
        )  # fmt: skip
        plan = model.plan(n_samples=600, n_features=3)
        for observer in ("eavesdropper", "peer", "model"):
            assert 0.97 * epsilon < plan.guarantee(observer).epsilon(1e-5) <= epsilon


@pytest.mark.parametrize("name", NAMES)
def test_agents_with_budgets_of_their_own_are_within_them(name):
    epsilons = [0.5, 2.0, 1.0, 4.0]
    model = DPDecentralizedRegressor(algorithm=name, epsilon=epsilons, n_agents=4, max_iter=4)
    plan = model.plan(n_samples=200, n_features=3)
    found = np.array([g.epsilon(1e-5) for g in plan.guarantees("eavesdropper")])
    assert np.all(found[plan.facts.agents.kind] <= epsilons)
    assert found[plan.facts.agents.kind][0] > 0.49


# Worst cases of the paper.


def test_worst_cases_of_fixed_parameters():
    rates = 1.02 ** np.arange(1, 101)
    steps = {
        "admm": 0.1,
        "interval": 0.93 ** np.arange(1, 101),
        "descent": 0.9 ** np.arange(1, 101),
    }
    found = [
        LaplaceDP(tuple((rates * step * 14 * 0.01).tolist())).pure_epsilon
        for step in steps.values()
    ]
    np.testing.assert_allclose(found, [4.458677, 2.570536, 1.567015], atol=1e-6)
    # By its L1 norm: not by the number of entries times the largest.
    norm = 2 * math.sqrt(14) / 100
    one = LaplaceDP(tuple((rates * 0.1 * norm).tolist())).pure_epsilon
    assert one == pytest.approx(2.383, abs=5e-4)


@pytest.mark.parametrize(("decay", "step"), [(1.02, 1.0), (1.02 * 0.93, 0.93), (1.02 * 0.9, 0.9)])
def test_losses_of_rounds_are_in_the_proportion_of_the_paper(decay, step):
    weights = decay_weights(decay, 100)
    paper = 1.02 ** np.arange(1, 101) * step ** np.arange(1, 101) / (1.0 if step < 1 else 10.0)
    total = 0.14 * weights.sum() * paper[0] / weights[0]
    worst = {1.0: 4.458677, 0.93: 2.570536, 0.9: 1.567015}[step]
    assert total == pytest.approx(worst, abs=1e-6)


# Sensitivities, by replay.


def neighbours(loss, unit, agent, *, is_extreme, targets):
    rng = np.random.default_rng(1)
    X, y = (
        rng.standard_normal((14, 3)) * 10.0 ** rng.uniform(-2, 2, (14, 1)),
        targets(loss, rng, 14),
    )
    changed = np.flatnonzero(agent == OWNER)
    changed = changed if unit == "agent" else changed[-1:]
    X2, y2 = X.copy(), y.copy()
    X2[changed] = EXTREME if is_extreme else -5 * X[changed]
    y2[changed] = 1e308 if isinstance(loss, SquaredLoss) else targets(loss, rng, len(changed))
    return X, y, X2, y2, changed


def norms(shifts, law):
    flat = np.reshape(shifts, (*np.shape(shifts)[:2], -1))
    return np.linalg.norm(flat, ord=1 if law == "laplace" else 2, axis=2)


def moves(algorithm, loss, unit, neighboring, targets, *, agent="b", is_extreme=False, scale=1.0):
    """How far each agent's turns moved in the norm of the noise, and how far they may."""
    if loss.n_outputs > 1 and algorithm.get_params().get("local_step") == "exact":
        algorithm = RandomizedADMM(local_step="exact", curvature=1.5, noise=algorithm.noise)
    X, y, X2, y2, changed = neighbours(loss, unit, agent, is_extreme=is_extreme, targets=targets)
    shape = {"loss": loss, "unit": unit, "neighboring": neighboring}
    path = random_path(loss, scale=scale)
    if neighboring == "replace_one":
        plan, first, _ = replay(algorithm, X, y, path, **shape)
        second = replay(algorithm, X2, y2, path, **shape)[1]
    else:
        plan, first, _ = replay(algorithm, X2, y2, path, **shape)
        second = replay(algorithm, X2, y2, path, null=changed, **shape)[1]
    found = norms(np.subtract(first, second), algorithm.noise)
    allowed = np.asarray(plan.releases[-1].sensitivities)
    # In a single pass an agent takes its one turn in one of the rounds.
    return found, np.broadcast_to(allowed, len(found))[:, None]


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("neighboring", ["replace_one", "zero_out"])
@pytest.mark.parametrize("unit", ["record", "agent"])
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
@pytest.mark.parametrize("algorithm", RELEASED, ids=label)
def test_turns_move_by_at_most_their_sensitivity_and_those_of_other_agents_not_at_all(
    targets, algorithm, loss, unit, neighboring, law
):
    algorithm = type(algorithm)(**{**algorithm.get_params(), "noise": law})
    for agent, is_extreme, scale in (("a", False, 0.1), ("b", True, 1.0), ("c", True, 30.0)):
        found, allowed = moves(
            algorithm, loss, unit, neighboring, targets,
            agent=agent, is_extreme=is_extreme, scale=scale,
        )  # fmt: skip
        assert np.all(found <= allowed)
        assert np.all(found[:, np.unique(OWNER) != agent] == 0)
        assert found.max() > 0


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("aggregator", ["random", "fixed"])
def test_what_is_said_moves_by_what_a_record_may_move_the_gradient_over_the_curvature(
    aggregator, law
):
    # One round from zero, with identical noise and weights: its models are what is said.
    loss, curvature, clip_norm = LogisticLoss(), 2.5, 0.3
    X, y = np.random.default_rng(0).standard_normal((14, 3)), np.ones(14)
    X2, y2 = X.copy(), y.copy()
    X2[5], y2[5] = EXTREME, -1.0
    algorithm = RandomizedADMM(
        aggregator=aggregator, noise=law, curvature=curvature, clip_norm=clip_norm
    )
    said = []
    for rows, target in ((X, y), (X2, y2)):
        coordinates, ownership, facts = facts_of(
            OWNER, loss=loss, max_iter=1, penalty=NoPenalty(), fit_intercept=False
        )
        plan = algorithm.plan(facts, BUDGET)
        gate = Gate(plan, noise_source(0, plan.digest()))
        with np.errstate(all="ignore"), Engine().running() as engine:
            problem = Problem(
                rows=Rows(rows, coordinates), target=target, engine=engine, ownership=ownership
            )
            said.append(algorithm.run(plan, problem, gate).parameters_per_agent)
            bound = clip_norm * problem.rows.clip_unit * (math.sqrt(3) if law == "laplace" else 1)
    order = 1 if law == "laplace" else 2
    moved = np.linalg.norm((said[0] - said[1])[..., 0], ord=order, axis=1)
    allowed = 2 * bound * (4 / 14) / curvature
    # Rounding to the grid moves it by a millionth of the noise.
    grid = 1e-5 * plan.releases[-1].noise_std * bound * (4 / 14) / curvature
    assert 0.3 * allowed < moved.max() <= allowed + grid
    np.testing.assert_array_equal(np.flatnonzero(moved), [1])


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("neighboring", ["replace_one", "zero_out"])
@pytest.mark.parametrize(
    "algorithm", [a for a in RELEASED if a.get_params().get("local_step") != "exact"], ids=label
)
def test_losses_that_are_linear_attain_the_claimed_divergence(algorithm, neighboring, law):
    X, y = np.ones((14, 1)), np.ones(14)
    y2 = y.copy()
    y2[5] = -1.0
    loss = LogisticLoss()
    # Clipped far below its derivatives the loss is linear.
    changes = {"clip_norm": 1e-3, "noise": law}
    algorithm = type(algorithm)(**{**algorithm.get_params(), **changes})
    shape = {"loss": loss, "neighboring": neighboring, "fit_intercept": False}
    path = random_path(loss, scale=0.0, d=1)
    plan, first, _ = replay(algorithm, X, y, path, **shape)
    if neighboring == "replace_one":
        second = replay(algorithm, X, y2, path, **shape)[1]
    else:
        second = replay(algorithm, X, y, path, null=np.array([5]), **shape)[1]
    release = plan.releases[-1]
    found = norms(np.subtract(first, second), law)[:, 1]
    found = found[found > 0]
    scales = noise_scales(plan)[0]
    guarantee = plan.guarantee()
    if law == "laplace":
        exact, claimed = float(np.sum(found)) / scales[1], guarantee.pure_epsilon
    else:
        exact, claimed = float(np.linalg.norm(found)) / scales[1], guarantee.mu
    assert len(found) == release.times
    assert exact <= claimed
    assert exact == pytest.approx(claimed, rel=1e-4)


class Ones:
    """Noise that is its scale."""

    simulation = False

    def add_gaussian(self, value, scale, stream):
        return value + scale

    add_laplace = add_gaussian


def noise_scales(plan):
    """What the gate adds to each agent's turn, for noise of scale one."""
    release = plan.releases[-1]
    gate = Gate(plan, Ones())
    everybody = np.arange(release.shape[0])
    return [
        gate.take_turns(release.name, everybody, np.zeros(release.shape))[:, 0, 0]
        for _ in range(release.times)
    ]


def claims_hold(plan):
    """Whether what the gate adds is as much as is claimed, turn by turn."""
    release, kind = plan.releases[-1], plan.facts.agents.kind
    scales = np.array(noise_scales(plan))
    steps = np.asarray(release.sensitivities)[:, None] / scales
    for found, claimed in zip(steps.T, np.array(release.views[0].guarantees)[kind], strict=True):
        if isinstance(claimed, LaplaceDP):
            if not claimed.dominates(LaplaceDP(tuple(found.tolist()))):
                return False
        elif np.linalg.norm(found) > claimed.mu:
            return False
    return True


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("noise_decay", [1.0, 1.2])
@pytest.mark.parametrize("algorithm", RELEASED, ids=label)
def test_the_gate_adds_as_much_noise_as_is_claimed_and_half_of_it_is_noticed(
    algorithm, noise_decay, law
):
    changes = {"noise": law, "noise_decay": noise_decay}
    if isinstance(algorithm, RandomizedSGD):
        changes.pop("noise_decay")
    algorithm = type(algorithm)(**{**algorithm.get_params(), **changes})
    plan = algorithm.plan(facts_of(OWNER, loss=LogisticLoss(), max_iter=2)[2], BUDGET)
    assert claims_hold(plan)
    (release,) = (r for r in plan.releases if isinstance(r, AgentTurns))
    half = replace(
        release, shares=tuple(s / 2 for s in release.shares), noise_std=release.noise_std / 2
    )
    assert not claims_hold(replace(plan, releases=(half,)))


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("algorithm", [RandomizedADMM, RandomizedGradientDescent])
def test_noise_that_shrinks_goes_with_sensitivities_that_grow(targets, algorithm, law):
    algorithm = algorithm(clip_norm=1e-3, noise=law, noise_decay=1.5)
    found, allowed = moves(algorithm, SquaredLoss(), "record", "replace_one", targets)
    np.testing.assert_allclose(allowed[1:] / allowed[:-1], 1.5)
    assert np.all(found <= allowed)
    assert np.all(found[:, 1] > 0.1 * allowed[:, 0])
    np.testing.assert_allclose(found[1:, 1] / found[:-1, 1], 1.5, rtol=0.2)


LINEARISED = [a for a in RELEASED if a.get_params().get("local_step") != "exact"]


@pytest.mark.parametrize("unit", ["record", "agent"])
@pytest.mark.parametrize("algorithm", LINEARISED, ids=label)
def test_replay_catches_a_missing_clip(targets, monkeypatch, algorithm, unit):
    monkeypatch.setattr(agent_turns_block, "clip_derivative", lambda derivative, bound: derivative)
    if unit == "agent":
        monkeypatch.setattr(blocks, "clipped", lambda vectors, limits, law: vectors)
    algorithm = type(algorithm)(**{**algorithm.get_params(), "clip_norm": 1e-4})
    found, allowed = moves(algorithm, SquaredLoss(), unit, "replace_one", targets)
    assert found.max() > 1.2 * allowed.max()


def test_replay_catches_a_missing_clip_of_exact_steps(targets, monkeypatch):
    monkeypatch.setattr(agent_gradients, "clip_derivative", lambda derivative, bound: derivative)
    algorithm = RandomizedADMM(local_step="exact", curvature=1.5, clip_norm=1e-4)
    found, allowed = moves(algorithm, SquaredLoss(), "record", "replace_one", targets)
    assert found.max() > 1.2 * allowed.max()


def largest_of_rows(rows):
    """Planted: noise for the largest entry of a row, where it is on every entry."""
    coordinates = rows.coordinates
    parts = [np.abs((rows.tame(b) - coordinates.offset) / coordinates.scale) for b in
             range(rows.n_blocks)]  # fmt: skip
    return np.maximum(np.concatenate(parts).max(axis=1), 1.0) * rows.weight


def euclidean_of_rows(rows):
    """Planted: the clip of Gaussian noise."""
    return np.sqrt(rows.squared_norm)


@pytest.mark.parametrize("planted", [largest_of_rows, euclidean_of_rows])
@pytest.mark.parametrize("algorithm", LINEARISED, ids=label)
def test_replay_catches_clips_in_another_norm_than_that_of_laplace_noise(
    monkeypatch, algorithm, planted
):
    loss = LogisticLoss()
    X, y = np.ones((14, 3)), np.ones(14)
    y2 = y.copy()
    y2[5] = -1.0
    changes = {"clip_norm": 0.01, "noise": "laplace"}
    algorithm = type(algorithm)(**{**algorithm.get_params(), **changes})

    def ratio():
        path = random_path(loss, scale=0.0)
        plan, first, _ = replay(algorithm, X, y, path, loss=loss)
        second = replay(algorithm, X, y2, path, loss=loss)[1]
        allowed = np.broadcast_to(plan.releases[-1].sensitivities, len(first))
        return (norms(np.subtract(first, second), "laplace").max(axis=1) / allowed).max()

    assert 0.99 < ratio() <= 1
    monkeypatch.setattr(agent_turns_block, "absolute_sums", planted)
    assert ratio() > 1.5


# What is said has the law of uniform plus Laplace noise.


def broadcasts(width, n_runs, *, uniform=None):
    """Many agents' entries, mixed between 0 and a width, with noise of scale one."""
    owner = np.repeat(np.arange(n_runs), 2)
    loss = LogisticLoss()
    coordinates, ownership, facts = facts_of(
        owner, loss=loss, n_features=2, fit_intercept=False, topology="complete", max_iter=1
    )
    algorithm = RandomizedADMM(clip_norm=0.3)
    plan = algorithm.plan(facts, BUDGET)
    gate = Gate(plan, noise_source(0, plan.digest()))
    scale = plan.releases[-1].noise_std / math.sqrt(2)
    turns = blocks.Turns(
        plan, gate, name="gradients of agents", weights=np.ones(1), units=np.ones(n_runs) / scale
    )
    box = between(np.full((n_runs, 2, 1), width), np.zeros((n_runs, 2, 1)))
    mix = box.draw(gate.uniform if uniform is None else uniform)
    assert coordinates is not None
    assert ownership is not None
    return (mix + turns(np.arange(n_runs), np.zeros((n_runs, 2, 1)))).ravel()


@pytest.mark.parametrize("width", [0.0, 1.0, 5.0])
def test_what_is_said_is_uniform_plus_laplace(width):
    law = UniformLaplace(rate=1.0, width=width)
    assert kstest(broadcasts(width, 2000), law.cdf).pvalue > 1e-3


def test_weights_of_another_law_are_noticed():
    law = UniformLaplace(rate=1.0, width=5.0)
    fixed = broadcasts(5.0, 2000, uniform=lambda shape: np.full(shape, 0.5))
    assert kstest(fixed, law.cdf).pvalue < 1e-6
    shared = broadcasts(5.0, 2000, uniform=lambda shape: np.full(shape, 0.2))
    assert kstest(shared, law.cdf).pvalue < 1e-6


# Nothing else leaves.


@pytest.mark.parametrize("name", NAMES)
def test_without_noise_of_the_gate_nothing_is_left_of_the_rows(monkeypatch, name):
    class Deaf(fitting.Gate):
        """What passes is as if all rows were zero."""

        def take_turns(self, name, agents, value):
            return super().take_turns(name, agents, np.zeros(value.shape))

    monkeypatch.setattr(fitting, "Gate", Deaf)
    found = []
    for seed in (0, 1):
        rng = np.random.default_rng(seed)
        X, y = rng.standard_normal((80, 3)), rng.standard_normal(80)
        model = DPDecentralizedRegressor(algorithm=name, max_iter=5, random_state=3, n_agents=4)
        found.append(model.fit(X, y, agents=np.arange(80) % 4))
    np.testing.assert_array_equal(found[0].coef_, found[1].coef_)
    np.testing.assert_array_equal(found[0].coef_per_agent_, found[1].coef_per_agent_)


@pytest.mark.parametrize(("law", "tolerance"), list(WIDENED))
def test_what_an_inner_solution_may_lack_is_in_the_noise(law, tolerance):
    algorithm = RandomizedADMM(local_step="exact", noise=law, tolerance=tolerance, clip_norm=0.3)
    model = DPDecentralizedRegressor(algorithm=algorithm, conditioning=None, max_iter=4)
    plan = model.plan(n_samples=100, n_features=3)
    factor = math.sqrt(4.0) if law == "laplace" else 1.0
    found = randomized_admm._widened(plan.facts, plan.settings, law)
    assert found == pytest.approx(WIDENED[law, tolerance] * factor)
    agents = model.set_params(privacy_unit="agent").plan(n_samples=100, n_features=3)
    # An agent's displacement is clipped as it was computed.
    assert randomized_admm._widened(agents.facts, agents.settings, law) == pytest.approx(factor)
