"""Personalised coordinate descent: what it converges to, what it says, and what that costs."""

from __future__ import annotations

import dataclasses
import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import minimize
from scipy.stats import chisquare

from skdpadmm.algorithms import (
    GossipADMM,
    LocalModels,
    PersonalizedCoordinateDescent,
    PersonalizedOptimum,
    exact_algorithm,
    refit_at_home,
)
from skdpadmm.algorithms._personalized_coordinate_descent import GRADIENTS
from skdpadmm.algorithms.blocks import _compiled_turns
from skdpadmm.algorithms.blocks._agent_turns import absolute_sums, awake_gradients
from skdpadmm.algorithms.blocks._model_propagation import smooth_by_noise
from skdpadmm.algorithms.planning._agent_turns import agent_turns
from skdpadmm.algorithms.planning._personalized_defaults import pace_of_agents
from skdpadmm.algorithms.planning._personalized_theory import (
    block_constants,
    coordinate_contraction,
    joint_strong_convexity,
)
from skdpadmm.algorithms.planning._wake_ups import occurrences, stable_order, wake_order
from skdpadmm.engine import Engine
from skdpadmm.losses import HuberLoss, LogisticLoss, MultinomialLoss, SmoothedHinge, SquaredLoss
from skdpadmm.network import Ownership, Similarity
from skdpadmm.noise import noise_source
from skdpadmm.penalties import L1, NoPenalty, SquaredL2
from skdpadmm.privacy import GaussianDP, LaplaceDP, Neighboring, gaussian_mu
from skdpadmm.protocol import Budget, Facts, Gate, Neighborhood, Problem
from skdpadmm.records import Rows, block_size, declared_coordinates, rounding_factor

N_FEATURES, STRENGTH, TRADE_OFF = 3, 0.2, 1.5
SIZES = (12, 5, 20, 8, 0, 15)


def similarity_of(n_agents, seed=1):
    """A ring with weights of its own, and a few chords."""
    rng = np.random.default_rng(seed)
    weights = np.zeros((n_agents, n_agents))
    for i in range(n_agents):
        weights[i, (i + 1) % n_agents] = rng.uniform(0.5, 2.0)
    weights[0, n_agents // 2] = 0.3
    np.fill_diagonal(weights, 0.0)
    return Similarity(n_agents=n_agents, matrix=weights + weights.T)


def example(
    loss=None,
    *,
    sizes=SIZES,
    unit="record",
    neighboring=Neighboring.REPLACE_ONE,
    penalty=None,
    intercept=False,
    seed=0,
    **agents,
):
    """Facts, rows, targets and ownership of a small task in the plane of public coordinates."""
    loss = SquaredLoss() if loss is None else loss
    rng = np.random.default_rng(seed)
    n_agents, n_samples = len(sizes), sum(sizes)
    index = rng.permutation(np.repeat(np.arange(n_agents), sizes))
    X = rng.uniform(-1, 1, (n_samples, N_FEATURES))
    scores = np.einsum("ij,ij->i", X, rng.normal(size=(n_agents, N_FEATURES))[index])
    target = np.clip(scores + 0.1 * rng.normal(size=n_samples), -1, 1)
    if isinstance(loss, LogisticLoss):
        target = np.where(target > 0, 1.0, -1.0)
    if isinstance(loss, MultinomialLoss):
        target = rng.integers(loss.n_outputs, size=n_samples)
    coordinates = declared_coordinates(
        n_features=N_FEATURES,
        fit_intercept=intercept,
        feature_bounds=(-1, 1),
        target_bounds=(-1, 1),
        has_target_scale=isinstance(loss, SquaredLoss),
    )
    similarity = Similarity(n_agents=1) if n_agents == 1 else similarity_of(n_agents)
    confidence = tuple(max(size, 0.5) / max(sizes) for size in sizes)
    choices = {"similarity": similarity, "confidence": confidence, "trade_off": TRADE_OFF}
    facts = Facts(
        n_samples=n_samples,
        n_parameters=coordinates.n_parameters,
        loss=loss,
        penalty=SquaredL2(STRENGTH) if penalty is None else penalty,
        neighboring=neighboring,
        row_norm=coordinates.row_norm,
        rounding=rounding_factor(n_samples=n_samples, coordinates=coordinates),
        max_iter=100,
        is_declared=True,
        agents=Neighborhood(agent_sizes=tuple(sizes), **(choices | agents)),
        coordinates=coordinates,
        unit=unit,
    )
    return facts, X, target, Ownership(labels=np.arange(n_agents), index=index)


def run(algorithm, task, *, epsilon=math.inf, delta=1e-5, seed=0, source=None):
    """Plan and run; the plan, the solution and the gate that was passed."""
    facts, X, target, ownership = task
    plan = algorithm.plan(facts, Budget(epsilon=epsilon, delta=delta, observer="eavesdropper"))
    source = noise_source(seed, plan.digest()) if source is None else source
    gate = Gate(plan, source)
    rows = Rows(X, facts.coordinates)
    with Engine(None).running() as engine:
        problem = Problem(rows=rows, target=target, engine=engine, ownership=ownership)
        solution = algorithm.run(plan, problem, gate)
    gate.close()
    return plan, solution, gate


def objective(task, models):
    """The joint objective, written out with sums over pairs."""
    facts, X, target, ownership = task
    agents, loss = facts.agents, facts.loss
    weights = np.zeros((len(models), len(models)))
    if len(models) > 1:
        weights = agents.similarity.weights.toarray()
    degrees = weights.sum(axis=1) if len(models) > 1 else np.ones(1)
    rows = Rows(X, facts.coordinates).augmented(0)
    value = 0.0
    for i, j in itertools.combinations(range(len(models)), 2):
        value += 0.5 * weights[i, j] * np.sum((models[i] - models[j]) ** 2)
    for i in range(len(models)):
        own = ownership.index == i
        if own.any():
            scores = rows[own] @ models[i]
            scores = scores[:, 0] if loss.n_outputs == 1 else scores
            features = models[i][: X.shape[1]]
            local = loss.value(scores, target[own]).mean()
            local += 0.5 * facts.penalty.strong_convexity * np.sum(features**2)
            value += agents.trade_off * degrees[i] * agents.confidence[i] * local
    return value


def dense_optimum(task):
    """The joint optimum of a squared loss by one dense linear system."""
    facts, X, target, ownership = task
    agents, n = facts.agents, facts.agents.n_agents
    d = facts.n_parameters
    weights = agents.similarity.weights.toarray()
    degrees = weights.sum(axis=1)
    system = np.kron(np.diag(degrees) - weights, np.eye(d))
    right = np.zeros(n * d)
    rows = Rows(X, facts.coordinates).augmented(0)
    unit = 2 * SquaredLoss().value(np.ones(1), np.zeros(1))[0]
    for i in range(n):
        A, b = rows[ownership.index == i], target[ownership.index == i]
        if len(A):
            own = slice(i * d, (i + 1) * d)
            factor = agents.trade_off * degrees[i] * agents.confidence[i]
            system[own, own] += factor * (unit * A.T @ A / len(A) + STRENGTH * np.eye(d))
            right[own] = factor * unit * A.T @ b / len(A)
    return np.linalg.solve(system, right).reshape(n, d, 1)


class Silent:
    """No noise, but the shares and the grid are those of the plan."""

    simulation = True

    def add_gaussian(self, value, scale, stream):
        return np.zeros(value.shape) + value

    add_laplace = add_gaussian

    def uniform(self, shape, stream):
        raise AssertionError("nothing is drawn")


# The limit without privacy


def test_the_optimum_of_squared_losses_is_that_of_a_dense_system():
    task = example()
    _, solution, _ = run(PersonalizedOptimum(), task)
    np.testing.assert_allclose(solution.parameters_per_agent, dense_optimum(task), atol=1e-8)
    np.testing.assert_allclose(
        solution.parameters, solution.parameters_per_agent.mean(axis=0), atol=1e-15
    )


@pytest.mark.parametrize("loss", [LogisticLoss(), MultinomialLoss(3)], ids=repr)
def test_the_optimum_of_other_losses_is_scipys(loss):
    task = example(loss)
    _, solution, _ = run(PersonalizedOptimum(), task)
    found = solution.parameters_per_agent
    best = minimize(
        lambda flat: objective(task, flat.reshape(found.shape)),
        np.zeros(found.size),
        method="BFGS",
        options={"gtol": 1e-7},
    )
    assert objective(task, found) <= best.fun + 1e-10
    np.testing.assert_allclose(found.ravel(), best.x, atol=1e-4)


def test_the_optimum_does_not_need_the_blocks_of_agents(monkeypatch):
    import skdpadmm.algorithms.blocks._joint_newton as newton

    task = example(LogisticLoss())
    _, blocks, _ = run(PersonalizedOptimum(), task)
    monkeypatch.setattr(newton, "LARGEST_BLOCKS", 0)
    _, diagonal, _ = run(PersonalizedOptimum(), task)
    np.testing.assert_allclose(
        diagonal.parameters_per_agent, blocks.parameters_per_agent, atol=1e-9
    )


@pytest.mark.parametrize("clock", ["poisson", "index"])
def test_descent_without_noise_ends_at_the_optimum(clock):
    task = example()
    descent = PersonalizedCoordinateDescent(turns=400, warm_start=None, clock=clock)
    _, solution, _ = run(descent, task)
    np.testing.assert_allclose(solution.parameters_per_agent, dense_optimum(task), atol=1e-8)


def test_descent_from_the_warm_start_ends_at_the_same_optimum():
    task = example(LogisticLoss())
    _, optimum, _ = run(PersonalizedOptimum(), task)
    _, solution, _ = run(PersonalizedCoordinateDescent(turns=1500), task)
    np.testing.assert_allclose(
        solution.parameters_per_agent, optimum.parameters_per_agent, atol=1e-8
    )


def test_local_models_are_those_that_nobody_pulls_at():
    task = example()
    _, X, target, ownership = task
    _, solution, _ = run(LocalModels(), task)
    unit = 2 * SquaredLoss().value(np.ones(1), np.zeros(1))[0]
    for i in range(len(SIZES)):
        A, b = X[ownership.index == i], target[ownership.index == i]
        if len(A):
            best = np.linalg.solve(
                unit * A.T @ A / len(A) + STRENGTH * np.eye(3), unit * A.T @ b / len(A)
            )
        else:
            best = np.zeros(3)
        np.testing.assert_allclose(solution.parameters_per_agent[i, :, 0], best, atol=1e-8)


@pytest.mark.parametrize("penalty", [SquaredL2(STRENGTH), NoPenalty()], ids=repr)
def test_scores_that_may_move_together_do_not(penalty):
    task = example(MultinomialLoss(3), intercept=True, penalty=penalty)
    _, optimum, _ = run(PersonalizedOptimum(), task)
    _, solution, _ = run(PersonalizedCoordinateDescent(turns=1000, warm_start=None), task)
    np.testing.assert_allclose(
        solution.parameters_per_agent, optimum.parameters_per_agent, atol=1e-6
    )
    np.testing.assert_allclose(optimum.parameters_per_agent.sum(axis=2), 0.0, atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("loss", [SquaredLoss(), LogisticLoss()], ids=repr)
def test_gossip_ends_at_the_optimum(loss):
    facts, *data = example(loss)
    task = (dataclasses.replace(facts, max_iter=150), *data)
    _, optimum, _ = run(PersonalizedOptimum(), task)
    _, solution, _ = run(GossipADMM(), task)
    np.testing.assert_allclose(
        solution.parameters_per_agent, optimum.parameters_per_agent, atol=1e-6
    )
    assert solution.n_messages == 2 * 150 * len(SIZES)
    with pytest.raises(ValueError, match=r"^Got epsilon=1 for GossipADMM, expected inf"):
        GossipADMM().plan(facts, Budget(epsilon=1.0, delta=1e-5))
    with pytest.raises(ValueError, match=r"^Got one agent for GossipADMM, expected two"):
        GossipADMM().check(example(sizes=(9,))[0])


def test_the_setting_decides_what_serves_without_privacy():
    assert isinstance(exact_algorithm("personalized"), PersonalizedOptimum)
    assert type(exact_algorithm("central")).__name__ == "ProximalNewton"
    with pytest.raises(ValueError, match=r"^Got epsilon=1 .*, expected inf"):
        PersonalizedOptimum().plan(example()[0], Budget(epsilon=1.0, delta=1e-5))


def test_the_gap_falls_at_least_as_fast_as_proposition_1_says():
    task = example()
    facts = task[0]
    agents, n = facts.agents, len(SIZES)
    best = objective(task, dense_optimum(task))
    start = objective(task, np.zeros((n, 3, 1)))
    has_rows = np.array(SIZES) > 0
    curvature = np.where(has_rows, facts.loss.smoothness * facts.row_norm**2 + STRENGTH, 0.0)
    constants = block_constants(
        smoothness=curvature,
        strong_convexity=np.where(has_rows, STRENGTH, 0.0),
        degrees=agents.similarity.degrees,
        confidence=agents.confidence,
        trade_off=agents.trade_off,
    )
    pull = agents.trade_off * agents.similarity.degrees * np.asarray(agents.confidence)
    sigma = joint_strong_convexity(agents.similarity.weights.toarray(), pull * STRENGTH * has_rows)
    contraction = coordinate_contraction(
        strong_convexity=sigma, n_agents=n, lipschitz=constants.lipschitz
    )
    for turns in (1, 4, 10):
        gaps = []
        for order_seed in range(20):
            descent = PersonalizedCoordinateDescent(
                turns=turns, warm_start=None, order_seed=order_seed
            )
            _, solution, _ = run(descent, task)
            gaps.append(objective(task, solution.parameters_per_agent) - best)
        assert 0 < np.mean(gaps) <= contraction ** (n * turns) * (start - best)


# Who wakes up


@pytest.mark.parametrize("clock", ["poisson", "index"])
def test_each_agent_wakes_up_equally_often(clock):
    order = wake_order(n_agents=7, n_wakes=5, clock=clock, seed=3)
    assert np.bincount(order).tolist() == [5] * 7
    assert (wake_order(n_agents=7, n_wakes=5, clock=clock, seed=3) == order).all()
    assert (wake_order(n_agents=7, n_wakes=5, clock=clock, seed=4) != order).any()
    assert wake_order(n_agents=7, n_wakes=0, clock=clock, seed=3).shape == (0,)


@pytest.mark.parametrize("clock", ["poisson", "index"])
def test_both_clocks_have_the_law_of_an_index_that_is_drawn(clock):
    # All orders of two agents that wake up twice each; one who is done is skipped.
    law = {"0011": 1 / 4, "0101": 1 / 8, "0110": 1 / 8}
    law |= {"1100": 1 / 4, "1010": 1 / 8, "1001": 1 / 8}
    found = dict.fromkeys(law, 0)
    for seed in range(4000):
        found["".join(map(str, wake_order(n_agents=2, n_wakes=2, clock=clock, seed=seed)))] += 1
    expected = [4000 * chance for chance in law.values()]
    assert chisquare(list(found.values()), expected).pvalue > 1e-3


def test_occurrences_count_what_came_before():
    assert occurrences(np.array([2, 0, 2, 2, 0])).tolist() == [0, 0, 1, 2, 1]


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
@pytest.mark.parametrize("unit", ["record", "agent"])
def test_waves_give_what_one_agent_after_another_gives(monkeypatch, noise, unit):
    task = example(LogisticLoss(), unit=unit, sizes=(*range(20), 3))
    descent = PersonalizedCoordinateDescent(turns=4, noise=noise, averaging_wakes=2)
    _, waves, gate = run(descent, task, epsilon=2.0)
    n_waves = len(gate.trace)
    monkeypatch.setattr(
        Similarity, "waves", lambda self, order: [order[[k]] for k in range(len(order))]
    )
    _, single, gate = run(descent, task, epsilon=2.0)
    assert len(gate.trace) > n_waves
    np.testing.assert_allclose(
        waves.parameters_per_agent, single.parameters_per_agent, rtol=0, atol=1e-12
    )


def test_gradients_of_agents_that_are_awake_are_those_of_their_rows(monkeypatch):
    import skdpadmm.algorithms.blocks._agent_turns as turns

    facts, X, target, ownership = example(LogisticLoss(), intercept=True)
    rows = Rows(X, facts.coordinates)
    awake = awake_gradients(rows, target, ownership, loss=facts.loss, clip_norm=0.3)
    rng = np.random.default_rng(2)
    who, models = np.array([3, 0, 4, 2]), rng.normal(size=(4, 4, 1))
    A = rows.augmented(0)
    expected = np.zeros(models.shape)
    for k, agent in enumerate(who):
        for i in np.flatnonzero(ownership.index == agent):
            slope = facts.loss.derivative(A[[i]] @ models[k, :, 0], target[[i]])[0]
            bound = 0.3 / np.linalg.norm(A[i])
            expected[k, :, 0] += np.clip(slope, -bound, bound) * A[i]
    np.testing.assert_allclose(awake(who, models), expected, atol=1e-13)
    monkeypatch.setattr(turns, "GATHERED_ENTRIES", 30)
    np.testing.assert_allclose(awake(who, models), expected, atol=1e-13)


# What is said, and what it costs


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
@pytest.mark.parametrize("split", ["equal", "optimal"])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
def test_the_plan_spends_its_budget_and_no_more(noise, split, epsilon):
    facts = example()[0]
    descent = PersonalizedCoordinateDescent(turns=6, noise=noise, split=split)
    plan = descent.plan(facts, Budget(epsilon=epsilon, delta=1e-5, observer="eavesdropper"))
    spent = plan.guarantee().epsilon(1e-5)
    assert 0.995 * epsilon <= spent <= epsilon * (1 + 1e-9)
    assert isinstance(plan.guarantee(), GaussianDP if noise == "gaussian" else LaplaceDP)
    assert plan.guarantee("model") == plan.guarantee("eavesdropper")


def test_noise_of_equal_turns_is_that_of_the_formula():
    facts = example()[0]
    plan = PersonalizedCoordinateDescent(turns=10).plan(
        facts, Budget(epsilon=1.0, delta=1e-5, observer="eavesdropper")
    )
    # std = 2 sqrt(T) / (m mu) with m = 50 is .4718.
    assert plan.releases[-1].noise_std / 50 == pytest.approx(0.4718, rel=1e-3)
    assert plan.releases[-1].noise_std >= 2 * math.sqrt(10) / gaussian_mu(1.0, 1e-5)


def test_the_grid_is_part_of_the_guarantee():
    facts = example()[0]
    budget = Budget(epsilon=1e-4, delta=1e-12, observer="eavesdropper")
    with pytest.raises(ValueError, match=r"^Got epsilon=0.0001 for 100000 turns, expected more"):
        agent_turns(facts, budget, name=GRADIENTS, weights=np.ones(100_000), law="laplace")


def test_an_optimal_split_has_noise_that_decreases():
    facts = example()[0]
    budget = Budget(epsilon=1.0, delta=1e-5, observer="eavesdropper")
    for noise in ("gaussian", "laplace"):
        descent = PersonalizedCoordinateDescent(turns=5, split="optimal", noise=noise)
        weights = np.asarray(descent.plan(facts, budget).settings.weights)
        assert (np.diff(weights) > 0).all()
        ratios = weights[1:] / weights[:-1]
        np.testing.assert_allclose(ratios, ratios[0], rtol=1e-9)
        with_intercept = example(intercept=True)[0]
        weights = np.asarray(descent.plan(with_intercept, budget).settings.weights)
        np.testing.assert_allclose(weights, 1.0)


@pytest.mark.parametrize("warm_start", ["propagation", None])
def test_the_warm_start_is_a_turn_like_any_other(warm_start):
    task = example()
    descent = PersonalizedCoordinateDescent(turns=3, warm_start=warm_start)
    plan, solution, gate = run(descent, task, epsilon=1.0)
    assert plan.releases[-1].times == 3
    assert plan.guarantee().mu == pytest.approx(gaussian_mu(1.0, 1e-5))
    n_said = sum(shape[0] for _, shape in gate.trace)
    assert n_said == 3 * sum(size > 0 for size in SIZES)
    assert solution.n_iter == 3


def test_each_agent_may_have_a_budget_of_its_own():
    epsilons = (0.5, 1.0, 2.0, 4.0, 1.0, 1.0)
    task = example(epsilons=epsilons)
    plan, _, _ = run(PersonalizedCoordinateDescent(turns=2), task, epsilon=4.0)
    kinds, kind = plan.guarantees("eavesdropper"), task[0].agents.kind
    for agent, epsilon in enumerate(epsilons):
        assert kinds[kind[agent]].epsilon(1e-5) == pytest.approx(epsilon, rel=1e-6)
    shares = np.asarray(plan.releases[-1].shares)[kind]
    assert shares[0] > shares[1] > shares[2] > shares[3]


def test_the_plan_does_not_see_data():
    budget = Budget(epsilon=1.0, delta=1e-5, observer="eavesdropper")
    one, other = example(seed=0)[0], example(seed=1)[0]
    descent = PersonalizedCoordinateDescent(turns=2)
    assert descent.plan(one, budget) == descent.plan(other, budget)
    assert descent.plan(one, budget).digest() == descent.plan(other, budget).digest()
    agents = dataclasses.replace(one.agents, similarity=similarity_of(len(SIZES), seed=2))
    changed = dataclasses.replace(one, agents=agents)
    assert descent.plan(changed, budget).digest() != descent.plan(one, budget).digest()


def test_absolute_sums_bound_the_rows_in_the_l1_norm():
    facts, X, _, _ = example(intercept=True)
    rows = Rows(X, facts.coordinates)
    np.testing.assert_allclose(
        absolute_sums(rows), np.abs(rows.augmented(0)).sum(axis=1), rtol=1e-11
    )


@pytest.mark.parametrize("stored", [np.asarray, sparse.csr_matrix])
def test_absolute_sums_are_those_of_centred_rows(stored):
    coordinates = declared_coordinates(
        n_features=N_FEATURES,
        fit_intercept=True,
        feature_bounds=([-1.0, -3.0, 0.0], [5.0, 1.0, 8.0]),
        has_target_scale=False,
    )
    assert np.abs(coordinates.offset / coordinates.scale).min() > 0.4
    X = np.random.default_rng(0).uniform(coordinates.lower, coordinates.upper, (50, N_FEATURES))
    sums = absolute_sums(Rows(stored(X), coordinates))
    centred = np.abs((X - coordinates.offset) / coordinates.scale).sum(axis=1) + 1.0
    np.testing.assert_allclose(sums, centred, rtol=1e-11)
    assert (sums >= centred * (1 - 1e-15)).all()


@pytest.mark.parametrize("law", ["gaussian", "laplace"])
def test_noise_of_a_model_has_the_planned_size(law):
    task = example(sizes=(20, 20, 20))
    facts = task[0]
    descent = PersonalizedCoordinateDescent(turns=1, warm_start=None, noise=law, tempered=False)
    plan, quiet, _ = run(descent, task, epsilon=1.0, source=Silent())
    noisy = [run(descent, task, epsilon=1.0, seed=s)[1].parameters_per_agent for s in range(400)]
    first = wake_order(n_agents=3, n_wakes=1, clock="poisson", seed=0)[0]
    spread = np.std([m[first] - quiet.parameters_per_agent[first] for m in noisy])
    pull = TRADE_OFF * facts.agents.confidence[first]
    step = 1 / (1 + pull * (facts.loss.smoothness * facts.row_norm**2 + STRENGTH))
    clip = plan.settings.clip_norm * math.sqrt(3) * (math.sqrt(3) if law == "laplace" else 1)
    expected = step * pull * clip * plan.releases[-1].noise_std / 20
    assert spread == pytest.approx(expected, rel=0.1)


# Paths that heed their noise


def test_a_tempered_path_with_hardly_any_noise_ends_at_the_optimum():
    task = example(LogisticLoss())
    descent = PersonalizedCoordinateDescent(turns=2000, clip_norm=1.0)
    _, found, _ = run(descent, task, epsilon=1e9, delta=1e-5)
    best = run(PersonalizedOptimum(), task)[1].parameters_per_agent
    np.testing.assert_allclose(found.parameters_per_agent, best, atol=1e-3)
    assert found.score_variance < 1e-6
    assert math.isinf(found.derivative_bound)


@pytest.mark.parametrize("law", ["gaussian", "laplace"])
@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 100.0])
@pytest.mark.parametrize("n_agents", [1, 40])
def test_steps_get_no_longer_with_noise(epsilon, law, n_agents):
    sizes = (30,) * n_agents
    facts = example(sizes=sizes, confidence=(1.0,) * n_agents)[0]
    noise, pull = np.full(n_agents, 1 / (30 * epsilon)), np.full(n_agents, TRADE_OFF)
    calm, noisy = (
        pace_of_agents(
            facts,
            facts.agents.similarity,
            pull=pull,
            smoothness=2.0,
            noise=size,
            n_turns=50,
        )
        for size in (np.zeros(n_agents), noise)
    )
    theory = 1 / (2.0 * TRADE_OFF if n_agents == 1 else 1 + 2.0 * TRADE_OFF)
    np.testing.assert_allclose(calm.step, theory)
    np.testing.assert_allclose(calm.pull, TRADE_OFF)
    np.testing.assert_array_equal(calm.momentum, 0.0)
    assert (noisy.pull <= calm.pull).all()
    assert (noisy.step * noisy.pull <= calm.step * calm.pull * (1 + 1e-12)).all()
    assert (noisy.step <= 1.0).all() or n_agents == 1
    assert ((noisy.momentum >= 0.0) & (noisy.momentum <= 0.9 + 1e-9)).all()
    # Nobody goes further than noise of the size of what there is to be learnt.
    travel = 50 * noisy.step * noisy.pull
    assert (np.minimum(travel, np.sqrt(travel)) * noise).max() < 2.0


def test_models_without_noise_are_not_smoothed():
    models = np.random.default_rng(0).normal(size=(6, 4, 1))
    similarity, everybody = similarity_of(6), np.ones(6, dtype=bool)
    same, left, factor = smooth_by_noise(similarity, models, np.zeros((6, 8)), everybody)
    np.testing.assert_array_equal(same, models)
    assert (np.abs(left).max(), factor) == (0.0, 1.0)
    same, _, factor = smooth_by_noise(similarity, models, np.full((6, 8), 1e-9), everybody)
    np.testing.assert_allclose(same, models, atol=1e-12)


def test_smoothing_takes_noise_away_and_leaves_signal():
    rng = np.random.default_rng(0)
    similarity, everybody = Similarity(n_agents=200), np.ones(200, dtype=bool)
    common, probes = rng.normal(size=(1, 5, 1)), rng.normal(size=(200, 8))
    alike = np.repeat(common, 200, axis=0)
    found, left, factor = smooth_by_noise(
        similarity, alike + rng.normal(size=alike.shape), probes, everybody
    )
    assert np.square(found - alike).mean() < 0.1
    assert np.square(left).mean() < 0.1
    assert factor > 0.9
    apart = 5 * rng.normal(size=alike.shape)
    noisy = apart + rng.normal(size=alike.shape)
    found, _, _ = smooth_by_noise(similarity, noisy, probes, everybody)
    assert np.square(found - apart).mean() < 1.05 * np.square(noisy - apart).mean()
    found, _, factor = smooth_by_noise(similarity, rng.normal(size=alike.shape), probes, everybody)
    assert np.square(found).mean() < 0.1


# Compiled wake-ups


COMPILED = {
    "squared": SquaredLoss(),
    "huber": HuberLoss(0.3),
    "logistic": LogisticLoss(),
    "hinge": SmoothedHinge(0.5),
}


@pytest.fixture
def numba():
    return pytest.importorskip("numba")


def both_loops(task, knobs, **options):
    """Models and traces, of waves and of compiled wake-ups."""
    found = [
        run(PersonalizedCoordinateDescent(**knobs, compiled=compiled), task, **options)
        for compiled in (False, True)
    ]
    (_, waves, gate), (_, compiled, other_gate) = found
    assert (waves.n_rounds, waves.n_messages) == (compiled.n_rounds, compiled.n_messages)
    assert sum(shape[0] for _, shape in gate.trace) == sum(s[0] for _, s in other_gate.trace)
    return waves.parameters_per_agent, compiled.parameters_per_agent


def uncommon(task, **changes):
    """Values outside of the box, huge ones too."""
    facts, X, target, ownership = task
    X = X.copy()
    X[::7] *= 1e6
    X[3, 0], X[5, 1] = 1e300, -1e250
    return dataclasses.replace(facts, **changes), X, target, ownership


@pytest.mark.parametrize("loss", COMPILED.values(), ids=COMPILED)
@pytest.mark.parametrize("unit", ["record", "agent"])
@pytest.mark.parametrize("law", ["gaussian", "laplace"])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("epsilon", [1.0, math.inf])
def test_compiled_wake_ups_make_the_same_models(numba, loss, unit, law, intercept, epsilon):
    task = uncommon(example(loss, unit=unit, intercept=intercept))
    knobs = {"turns": 5, "averaging_wakes": 2, "noise": law, "split": "optimal", "clip_norm": 0.5}
    waves, compiled = both_loops(task, knobs, epsilon=epsilon)
    np.testing.assert_allclose(compiled, waves, rtol=1e-10, atol=1e-10)
    assert np.abs(waves).max() > 0.01


@pytest.mark.parametrize("kind", ["uniform", "alone", "float32", "fortran", "strided", "sparse"])
@pytest.mark.parametrize("warm_start", ["propagation", None])
def test_compiled_wake_ups_serve_agents_and_rows_of_all_sorts(numba, kind, warm_start):
    uniform = {"similarity": Similarity(n_agents=len(SIZES))} if kind == "uniform" else {}
    task = example(LogisticLoss(), sizes=(23,) if kind == "alone" else SIZES, **uniform)
    facts, X, target, ownership = task
    changed = {
        "float32": lambda: X.astype(np.float32),
        "fortran": lambda: np.asfortranarray(X),
        "strided": lambda: np.repeat(X, 2, axis=0)[::2],
        "sparse": lambda: sparse.csr_matrix(X),
    }
    before = changed.get(kind, X.copy)()
    task = (facts, before, target, ownership)
    knobs = {"turns": 30, "warm_start": warm_start, "clock": "index"}
    waves, compiled = both_loops(task, knobs, epsilon=5.0)
    np.testing.assert_allclose(compiled, waves, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("n_at_once", [1, 4, 50])
@pytest.mark.parametrize("longest", [1, 3, 100])
def test_pieces_of_compiled_wake_ups_do_not_matter(numba, monkeypatch, n_at_once, longest):
    task, knobs = example(), {"turns": 6, "warm_start": None}
    waves, _ = both_loops(task, knobs, epsilon=1.0)
    monkeypatch.setattr(_compiled_turns, "NOISE_ENTRIES", n_at_once * (N_FEATURES))
    monkeypatch.setattr(_compiled_turns, "block_size", lambda *_, **__: longest)
    _, compiled = both_loops(task, knobs, epsilon=1.0)
    np.testing.assert_allclose(compiled, waves, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("compiled", [False, True])
def test_the_rounding_factor_bounds_the_error_of_an_agents_sum(compiled):
    if compiled:
        pytest.importorskip("numba")
    rng, n = np.random.default_rng(1), 20_000
    lower, upper = np.array([1e8]), np.array([1e8 + 1e-3])
    X = rng.uniform(lower, upper, size=(n, 1))
    target = rng.choice([-1.0, 1.0], size=n)
    coordinates = declared_coordinates(
        n_features=1,
        fit_intercept=True,
        feature_bounds=(lower, upper),
        target_bounds=(-1, 1),
        has_target_scale=True,
    )
    assert n > block_size(1, is_sparse=False)
    facts = dataclasses.replace(
        example(sizes=(n,))[0],
        n_parameters=2,
        coordinates=coordinates,
        row_norm=coordinates.row_norm,
        penalty=NoPenalty(),
    )
    task = (facts, X, target, Ownership(labels=np.arange(1), index=np.zeros(n, dtype=np.intp)))
    algorithm = PersonalizedCoordinateDescent(turns=1, warm_start=None, compiled=compiled)
    _, solution, _ = run(algorithm, task)
    rows = Rows(X, coordinates)
    pull = facts.agents.trade_off * facts.agents.confidence[0]
    step = 1 / (1 + pull * facts.loss.smoothness * facts.row_norm**2)
    computed = -solution.parameters[:, 0] / (step * pull) * n
    # At zero a slope is the target with its sign changed, and no slope is clipped.
    weights = [
        Fraction(-float(t)) * Fraction(float(w)) for t, w in zip(target, rows.weight, strict=True)
    ]
    offset, scale = Fraction(float(coordinates.offset[0])), Fraction(float(coordinates.scale[0]))
    terms = zip(weights, X[:, 0], strict=True)
    exact = [sum(w * (Fraction(float(x)) - offset) for w, x in terms) / scale, sum(weights)]
    error = math.hypot(
        *(float(Fraction(float(c)) - e) for c, e in zip(computed, exact, strict=True))
    )
    largest = float(np.sqrt(rows.squared_norm.max()))
    assert 2 * error <= (rounding_factor(n_samples=n, coordinates=coordinates) - 1) * largest


def test_sums_of_compiled_wake_ups_are_the_same_beside_a_row_out_of_the_box(numba):
    size, rng = 11, np.random.default_rng(0)
    facts, _, target, ownership = example(sizes=(size,))
    algorithm = PersonalizedCoordinateDescent(turns=3, warm_start=None, compiled=True)
    X = rng.uniform(-1, 1, (size, N_FEATURES))
    for place in range(size):
        models = []
        for factor in (1.0, 1e9):
            changed = X.copy()
            changed[place] = np.sign(X[place]) * factor
            task = (facts, changed, target, ownership)
            models.append(run(algorithm, task)[1].parameters_per_agent)
        # Clipped to the box it is the same row: only the order of the sum has changed.
        np.testing.assert_allclose(models[1], models[0], rtol=1e-13, atol=1e-15)


def test_what_cannot_be_compiled_is_refused(numba):
    class OtherLoss(SquaredLoss):
        pass

    algorithm = PersonalizedCoordinateDescent(compiled=True)
    for loss in (MultinomialLoss(3), OtherLoss()):
        with pytest.raises(ValueError, match=r"^Got compiled=True with .* Use compiled=False\.$"):
            algorithm.check(example(loss)[0])


def test_without_numba_compiled_wake_ups_say_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "numba", None)
    with pytest.raises(ImportError, match=r"skdpadmm\[fast\]"):
        PersonalizedCoordinateDescent(compiled=True).check(example()[0])


def test_the_order_of_times_is_that_of_a_stable_sort():
    rng = np.random.default_rng(0)
    for times in (rng.random(1000), rng.integers(5, size=1000).astype(float), np.empty(0)):
        np.testing.assert_array_equal(stable_order(times), np.argsort(times, kind="stable"))


# Agents of all sorts


def test_an_agent_without_rows_takes_the_mean_of_its_neighbours():
    task = example()
    cold = SIZES.index(0)
    _, solution, _ = run(PersonalizedCoordinateDescent(turns=400, warm_start=None), task)
    models = solution.parameters_per_agent
    mean = task[0].agents.similarity.neighbor_mean(models, np.array([cold]))[0]
    np.testing.assert_allclose(models[cold], mean, atol=1e-9)
    _, private, gate = run(PersonalizedCoordinateDescent(turns=2), task, epsilon=1.0)
    assert np.isfinite(private.parameters_per_agent).all()
    assert all(name == GRADIENTS for name, _ in gate.trace)


def test_one_agent_alone_descends_on_its_own_loss():
    task = example(sizes=(40,))
    _, optimum, _ = run(PersonalizedOptimum(), task)
    _, local, _ = run(LocalModels(), task)
    _, descent, _ = run(PersonalizedCoordinateDescent(turns=400), task)
    np.testing.assert_allclose(optimum.parameters, local.parameters, atol=1e-10)
    np.testing.assert_allclose(descent.parameters, optimum.parameters, atol=1e-8)
    _, private, _ = run(PersonalizedCoordinateDescent(), task, epsilon=1.0)
    assert private.n_messages == 0
    assert np.isfinite(private.parameters).all()


def test_messages_are_broadcasts_to_all_neighbours():
    task = example()
    n_edges = task[0].agents.similarity.n_edges
    descent = PersonalizedCoordinateDescent(turns=3, averaging_wakes=2, warm_start=None)
    _, solution, _ = run(descent, task, epsilon=1.0)
    assert (solution.n_rounds, solution.n_messages) == (5, 5 * 2 * n_edges)
    assert solution.bytes_sent == 8 * 3 * solution.n_messages


def test_averaging_wakes_use_no_rows():
    task = example()
    _, once, gate = run(PersonalizedCoordinateDescent(turns=2), task, epsilon=1.0)
    averaging = PersonalizedCoordinateDescent(turns=2, averaging_wakes=3)
    plan, more, other_gate = run(averaging, task, epsilon=1.0)
    assert sum(shape[0] for _, shape in gate.trace) == sum(s[0] for _, s in other_gate.trace)
    assert plan.guarantee().mu == pytest.approx(gaussian_mu(1.0, 1e-5))
    assert (once.parameters_per_agent != more.parameters_per_agent).any()


def test_the_model_at_home_minimises_the_objective_over_one_agent():
    facts, X, target, ownership = task = example(LogisticLoss())
    _, solution, _ = run(PersonalizedCoordinateDescent(turns=2), task, epsilon=1.0)
    models = solution.parameters_per_agent
    for agent in (0, SIZES.index(0)):
        own = ownership.index == agent
        rows = Rows(X[own], facts.coordinates)
        found = refit_at_home(facts, rows, target[own], agent=agent, models=models)

        def value(theta, agent=agent):
            changed = models.copy()
            changed[agent, :, 0] = theta
            return objective(task, changed)

        best = minimize(value, np.zeros(3), options={"gtol": 1e-8}).x
        np.testing.assert_allclose(found[:, 0], best, atol=1e-5)
    optimum = run(PersonalizedOptimum(), task)[1].parameters_per_agent
    own = ownership.index == 2
    found = refit_at_home(
        facts, Rows(X[own], facts.coordinates), target[own], agent=2, models=optimum
    )
    np.testing.assert_allclose(found, optimum[2], atol=1e-8)


# Bad input


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ({"turns": 0}, "^Got turns=0, expected an int of at least 1"),
        ({"averaging_wakes": -1}, "^Got averaging_wakes=-1, expected an int of at least 0"),
        ({"order_seed": True}, "^Got order_seed=True, expected an int of at least 0"),
        ({"order_seed": 0.5}, "^Got order_seed=0.5, expected an int"),
        ({"noise": "student"}, "^Got noise='student', expected one of"),
        ({"split": "printed"}, "^Got split='printed', expected one of"),
        ({"clip_norm": 0.0}, "^Got clip_norm=0.0, expected 'auto' or a float"),
        ({"warm_start": "local"}, "^Got warm_start='local', expected 'auto', 'propagation'"),
        ({"tempered": 1.5}, "^Got tempered=1.5, expected True or False"),
        ({"averaging_wakes": "many"}, "^Got averaging_wakes='many', expected an int"),
        ({"compiled": "yes"}, "^Got compiled='yes', expected True or False"),
        ({"clock": "global"}, "^Got clock='global', expected one of"),
    ],
)
def test_knobs_out_of_range_are_refused(knobs, message):
    facts = example()[0]
    with pytest.raises(ValueError, match=message):
        PersonalizedCoordinateDescent(**knobs).check(facts)


def test_there_is_no_way_to_ask_for_a_step():
    assert not any("step" in name for name in PersonalizedCoordinateDescent().get_params())


@pytest.mark.parametrize(
    "algorithm", [PersonalizedCoordinateDescent(), PersonalizedOptimum(), LocalModels()]
)
def test_penalties_that_make_zeros_are_refused(algorithm):
    algorithm.check(example(penalty=NoPenalty())[0])
    with pytest.raises(ValueError, match=r"^Got L1\(.*\), expected SquaredL2 or none"):
        algorithm.check(example(penalty=L1(1.0))[0])
