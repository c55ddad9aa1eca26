"""Baselines over a graph: what they converge to, and what they refuse."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

import skdpadmm.algorithms._exact_consensus_admm as exact
from skdpadmm import DPDecentralizedClassifier, DPDecentralizedRegressor
from skdpadmm.algorithms import (
    DecentralizedGradientDescent,
    DualPerturbationADMM,
    ExactConsensusADMM,
    PrimalPerturbationADMM,
    resolve_algorithm,
)
from skdpadmm.algorithms.blocks._neighbor_consensus import NeighborConsensus, averaged_rounds
from skdpadmm.algorithms.planning._knobs import tail_length
from skdpadmm.engine import Engine
from skdpadmm.losses import SquaredLoss
from skdpadmm.network import mixing_matrix, ownership_of_labels, resolve_topology
from skdpadmm.penalties import NoPenalty
from skdpadmm.privacy import Neighboring
from skdpadmm.protocol import Budget, Facts, Gate, Network, Problem
from skdpadmm.records import Rows, declared_coordinates, rounding_factor

PRIVATE = [
    "decentralized-gradient-descent",
    "dual-perturbation-admm",
    "primal-perturbation-admm",
]
SIZES = {
    "complete": 10,
    "ring": 10,
    "star": 10,
    "path": 10,
    "grid": 16,
    "torus": 16,
    "hypercube": 16,
    "regular": 12,
    "erdos-renyi": 12,
    "watts-strogatz": 12,
    "barabasi-albert": 12,
    "random-geometric": 12,
}
MODELS = {
    "ridge": DPDecentralizedRegressor(alpha=0.1),
    "lasso": DPDecentralizedRegressor(penalty="l1", alpha=0.1),
    "logistic": DPDecentralizedClassifier(alpha=0.1, classes=[0, 1]),
}


class NoNoise:
    simulation = False

    def add_gaussian(self, value, scale, stream):
        return value


def data(n=120, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 3))
    return X, X @ [1.0, -2.0, 0.0] + 0.3 * rng.standard_normal(n)


def problem_of(topology, sizes, *, max_iter, seed=0):
    """Facts, coordinates and records of a squared loss without penalty and intercept."""
    rng = np.random.default_rng(seed)
    n = sum(sizes)
    X = rng.uniform(-0.5, 0.5, (n, 2))
    y = X @ [1.0, -1.0] + 0.2 * rng.standard_normal(n)
    ownership = ownership_of_labels(np.repeat(np.arange(len(sizes)), sizes), n_samples=n)
    coordinates = declared_coordinates(
        n_features=2, fit_intercept=False, feature_bounds=None, has_target_scale=False
    )
    facts = Facts(
        n_samples=n,
        n_parameters=2,
        loss=SquaredLoss(),
        penalty=NoPenalty(),
        neighboring=Neighboring("replace_one"),
        row_norm=coordinates.row_norm,
        rounding=rounding_factor(n_samples=n, coordinates=coordinates),
        max_iter=max_iter,
        agents=Network(
            agent_sizes=tuple(sizes),
            topology=resolve_topology(topology, ownership.labels),
            sizes_matter=False,
        ),
    )
    return facts, coordinates, ownership, X, y


def run(algorithm, facts, coordinates, ownership, X, y, *, epsilon=1.0):
    """What an algorithm finds where the gate adds no noise."""
    budget = Budget(epsilon=epsilon, delta=1e-5, observer="eavesdropper")
    plan = algorithm.plan(facts, budget)
    gate = Gate(plan, NoNoise())
    with Engine().running() as engine:
        problem = Problem(rows=Rows(X, coordinates), target=y, engine=engine, ownership=ownership)
        solution = algorithm.run(plan, problem, gate)
    gate.close()
    return solution


def normal_equations(ownership, X, y):
    """Curvature and linear term of ``F_a`` of each agent."""
    share = ownership.n_agents / len(X)
    groups = [np.flatnonzero(ownership.index == a) for a in range(ownership.n_agents)]
    hessians = np.array([share * X[g].T @ X[g] for g in groups])
    return hessians, np.array([share * X[g].T @ y[g] for g in groups])


# Without privacy.


@pytest.mark.parametrize("topology", SIZES)
@pytest.mark.parametrize("name", MODELS)
def test_exact_consensus_reaches_the_central_optimum_on_every_graph(topology, name):
    X, y = data()
    y = (y > 0.3).astype(int) if name == "logistic" else y
    model = (
        MODELS[name]
        .__class__(**MODELS[name].get_params())
        .set_params(
            epsilon=math.inf,
            topology=topology,
            n_agents=SIZES[topology],
            partition="iid" if name == "logistic" else "sorted",
            random_state=0,
        )
    )
    central = model.fit(X, y)
    optimum = np.append(central.coef_.ravel(), central.intercept_)
    model = model.set_params(algorithm=ExactConsensusADMM(tolerance=1e-8)).fit(X, y)
    found = np.append(model.coef_.ravel(), model.intercept_)
    assert np.linalg.norm(found - optimum) <= 1e-6 * np.linalg.norm(optimum)
    assert 0 <= model.consensus_error_ <= 1e-6
    assert model.n_messages_ == model.n_rounds_ * 2 * n_edges(model)
    assert model.bytes_sent_ == 8 * 4 * model.n_messages_
    assert model.privacy_.epsilon("eavesdropper") == math.inf


def n_edges(model):
    labels = np.arange(SIZES[model.topology])
    return resolve_topology(model.topology, labels, seed=0).n_edges


def test_exact_consensus_keeps_the_zeros_of_the_lasso():
    X, y = data()
    model = DPDecentralizedRegressor(
        algorithm="exact-consensus-admm", epsilon=math.inf, penalty="l1", alpha=0.2, topology="ring"
    )
    coef = model.fit(X, y).coef_
    np.testing.assert_array_equal(coef == 0, [False, False, True])


@pytest.mark.slow
@pytest.mark.parametrize("penalty", ["l1", "l2"])
def test_exact_consensus_without_room_for_second_moments_finds_the_same(monkeypatch, penalty):
    X, y = data()
    X[:, 0] *= 5
    model = DPDecentralizedClassifier(
        algorithm="exact-consensus-admm",
        epsilon=math.inf,
        penalty=penalty,
        alpha=0.05,
        topology="ring",
        n_agents=4,
    )
    labels = np.digitize(y, [-1.0, 1.0])
    expected = model.fit(X, labels).coef_
    monkeypatch.setattr(exact, "LARGEST_MOMENTS", 0)
    np.testing.assert_allclose(model.fit(X, labels).coef_, expected, atol=1e-6)


def test_exact_consensus_of_one_agent_and_of_agents_with_one_row():
    X, y = data(n=12)
    for n_agents, topology in itertools.product([1, 2, 12], ["complete", "path"]):
        model = DPDecentralizedRegressor(
            epsilon=math.inf, alpha=0.1, n_agents=n_agents, topology=topology
        )
        expected = model.fit(X, y).coef_
        model.set_params(algorithm="exact-consensus-admm").fit(X, y)
        np.testing.assert_allclose(model.coef_, expected, rtol=1e-6)
        assert model.coef_per_agent_.shape == (n_agents, 3)
        assert (model.n_messages_ == 0) == (n_agents == 1)


def test_exact_consensus_warns_where_rounds_run_out_and_says_how_far_agents_are_apart():
    X, y = data()
    model = DPDecentralizedRegressor(
        algorithm=ExactConsensusADMM(max_rounds=2), epsilon=math.inf, topology="path"
    )
    with pytest.warns(ConvergenceWarning, match="in 2 rounds over the graph path"):
        model.fit(X, y)
    assert model.n_rounds_ == 2
    assert model.consensus_error_ > 1e-3


def test_exact_consensus_refuses_a_finite_budget():
    with pytest.raises(ValueError, match="Got epsilon=1 for ExactConsensusADMM, expected inf"):
        DPDecentralizedRegressor(algorithm="exact-consensus-admm").plan(100, 3)


def test_private_baselines_give_way_to_the_exact_optimum_at_epsilon_inf():
    for name in PRIVATE:
        model = DPDecentralizedRegressor(algorithm=name, epsilon=math.inf)
        assert model.plan(100, 3).algorithm == "ProximalNewton"


# Duals.


def test_two_agents_with_quadratics_settle_where_duals_are_half_of_the_gradients():
    pair = NeighborConsensus(topology=resolve_topology("path", np.arange(2)), penalty_weight=0.5)
    targets = np.array([[1.0], [3.0]])
    column = pair.curvature[:, None]
    rounds = pair.rounds(lambda pull: (targets + pull) / (1 + column), np.zeros((2, 1)))
    path = list(itertools.islice(rounds, 100))
    assert all(abs(duals.sum()) <= 1e-12 for _, duals in path)
    models, duals = path[-1]
    np.testing.assert_allclose(models, 2.0, rtol=1e-12)
    np.testing.assert_allclose(duals, [[0.5], [-0.5]], rtol=1e-12)
    np.testing.assert_allclose(duals, (models - targets) / 2, rtol=1e-12)


@pytest.mark.parametrize("topology", SIZES)
def test_duals_sum_to_zero_on_every_graph(topology):
    rng = np.random.default_rng(0)
    graph = resolve_topology(topology, np.arange(SIZES[topology]), seed=0)
    consensus = NeighborConsensus(topology=graph, penalty_weight=0.7)
    start = np.zeros((graph.n_agents, 2, 1))

    def solve(pull):
        return pull / (1 + consensus.curvature[:, None, None]) + rng.standard_normal(pull.shape)

    for _, (_, duals) in zip(range(200), consensus.rounds(solve, start), strict=False):
        assert np.abs(duals.sum(axis=0)).max() <= 1e-12 * max(1.0, np.abs(duals).sum())


def test_an_agent_alone_counts_as_its_own_neighbour():
    alone = NeighborConsensus(
        topology=resolve_topology("complete", np.arange(1)), penalty_weight=0.5
    )
    assert alone.curvature.tolist() == [1.0]
    pull, duals = alone.exchange(np.array([[3.0]]), np.zeros((1, 1)))
    assert (pull.tolist(), duals.tolist()) == ([[3.0]], [[0.0]])


@pytest.mark.parametrize("n_averaged", [1, 2, 5])
def test_averages_are_those_of_the_last_rounds_and_each_is_told(n_averaged):
    pair = NeighborConsensus(topology=resolve_topology("path", np.arange(2)), penalty_weight=0.5)
    start, told = np.zeros((2, 1)), []

    def solve(pull):
        return (np.array([[1.0], [3.0]]) + pull) / (1 + pair.curvature[:, None])

    found = averaged_rounds(
        pair, solve, start, n_rounds=5, n_averaged=n_averaged, progress=told.append
    )
    path = [models for models, _ in itertools.islice(pair.rounds(solve, start), 5)]
    np.testing.assert_allclose(found, np.mean(path[-n_averaged:], axis=0), rtol=1e-14)
    assert told == [1, 2, 3, 4, 5]


def test_a_tail_has_at_least_one_step_and_at_most_all():
    found = [tail_length(share, n) for share, n in ((1e-9, 7), (0.5, 7), (1.0, 7), (0.5, 1))]
    assert found == [1, 4, 7, 1]


# Without noise.


@pytest.mark.parametrize("topology", ["complete", "ring", "star"])
def test_primal_and_dual_perturbation_without_noise_are_exact_consensus(topology):
    shape = problem_of(topology, [30, 50, 40, 40], max_iter=12)
    knobs = {"penalty_weight": 0.02, "clip_norm": 3.0}
    primal = run(PrimalPerturbationADMM(tail_fraction=0.05, tolerance=1e-6, **knobs), *shape)
    dual = run(
        DualPerturbationADMM(tail_fraction=0.05, max_rounds=12, **knobs), *shape, epsilon=100.0
    )
    algorithm = ExactConsensusADMM(penalty_weight=0.02, max_rounds=12)
    with pytest.warns(ConvergenceWarning):
        expected = run(algorithm, *shape, epsilon=math.inf)
    size = np.abs(expected.parameters_per_agent).max()
    for solution, accuracy in ((primal, 1e-4), (dual, 0.05)):
        np.testing.assert_allclose(
            solution.parameters_per_agent, expected.parameters_per_agent, atol=accuracy * size
        )
        assert solution.n_messages == expected.n_messages


def test_primal_perturbation_without_noise_reaches_the_optimum():
    facts, coordinates, ownership, X, y = problem_of("ring", [30, 50, 40, 40], max_iter=150)
    algorithm = PrimalPerturbationADMM(
        penalty_weight=0.05, clip_norm=3.0, tail_fraction=0.01, tolerance=1e-6
    )
    solution = run(algorithm, facts, coordinates, ownership, X, y)
    optimum = np.linalg.lstsq(X, y)[0]
    np.testing.assert_allclose(solution.parameters[:, 0], optimum, atol=1e-5)
    spread = np.ptp(solution.parameters_per_agent, axis=0)
    assert spread.max() < 1e-4


@pytest.mark.parametrize("mixing", ["metropolis", "max_degree", "laplacian"])
def test_gradient_descent_without_noise_settles_at_the_bias_that_a_constant_step_leaves(mixing):
    facts, coordinates, ownership, X, y = problem_of("ring", [30, 5, 40, 25, 20], max_iter=3000)
    hessians, linear = normal_equations(ownership, X, y)
    weights = mixing_matrix(facts.agents.topology, mixing).to_sparse().toarray()
    optimum, errors = np.linalg.lstsq(X, y)[0], []
    for step in (0.4, 0.2):
        # (I - W) w + step * gradient = 0 over all agents together.
        system = np.kron(np.eye(5) - weights, np.eye(2))
        for a, hessian in enumerate(hessians):
            system[2 * a : 2 * a + 2, 2 * a : 2 * a + 2] += step * hessian
        expected = np.linalg.solve(system, step * linear.ravel()).reshape(5, 2)
        algorithm = DecentralizedGradientDescent(
            step_size=step, clip_norm=1e3, mixing=mixing, tail_fraction=1e-3
        )
        solution = run(algorithm, facts, coordinates, ownership, X, y)
        np.testing.assert_allclose(solution.parameters_per_agent[..., 0], expected, atol=1e-8)
        errors.append(np.linalg.norm(solution.parameters[:, 0] - optimum))
    assert 1.5 < errors[0] / errors[1] < 2.5


def test_gradient_descent_on_the_complete_graph_of_equal_agents_is_descent_of_the_mean():
    facts, coordinates, ownership, X, y = problem_of("complete", [20] * 4, max_iter=1)
    algorithm = DecentralizedGradientDescent(step_size=0.5, clip_norm=1e3)
    solution = run(algorithm, facts, coordinates, ownership, X, y)
    np.testing.assert_allclose(solution.parameters[:, 0], 0.5 * X.T @ y / len(X), rtol=1e-12)


# Fits.


@pytest.mark.slow
@pytest.mark.parametrize("name", PRIVATE)
@pytest.mark.parametrize("topology", ["complete", "ring", "star"])
def test_private_fits_learn_with_a_generous_budget(name, topology):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (3000, 3))
    y = X @ [1.0, -2.0, 0.5]
    knobs = {"algorithm": name, "topology": topology, "epsilon": 30.0, "random_state": 0}
    model = DPDecentralizedRegressor(
        feature_bounds=(-1, 1), target_bounds=(-4, 4), max_iter=40, n_agents=5, **knobs
    )
    assert model.fit(X, y).score(X, y) > 0.9
    rounds = 10 if name == "dual-perturbation-admm" else 40
    assert model.n_rounds_ == rounds
    assert model.consensus_error_ > 0
    model = DPDecentralizedClassifier(
        feature_bounds=(-1, 1), max_iter=40, n_agents=5, classes=[0, 1], **knobs
    )
    assert model.fit(X, y > 0).score(X, y > 0) > 0.9


@pytest.mark.parametrize("name", PRIVATE)
@pytest.mark.parametrize("n_agents", [1, 2, 20])
def test_degenerate_networks_fit(name, n_agents):
    X, y = data(n=20)
    model = DPDecentralizedRegressor(
        algorithm=name, n_agents=n_agents, topology="path", max_iter=3, random_state=0
    )
    coef = model.fit(X, y).coef_
    assert np.isfinite(coef).all()
    assert model.coef_per_agent_.shape == (n_agents, 3)
    assert model.n_iter_ == 3


@pytest.mark.parametrize("name", PRIVATE)
def test_the_number_of_threads_does_not_change_fits(name):
    X, y = data()
    model = DPDecentralizedRegressor(
        algorithm=name, topology="ring", n_agents=5, max_iter=4, random_state=0
    )
    one = model.fit(X, y).coef_
    np.testing.assert_array_equal(model.set_params(n_jobs=2).fit(X, y).coef_, one)


@pytest.mark.parametrize("name", ["decentralized-gradient-descent", "primal-perturbation-admm"])
@pytest.mark.parametrize("unit", ["record", "agent"])
def test_several_classes_and_agents_as_units_fit(name, unit):
    X, y = data()
    model = DPDecentralizedClassifier(
        algorithm=name, privacy_unit=unit, classes=[0, 1, 2], max_iter=4, random_state=0
    )
    model.fit(X, np.digitize(y, [-1.0, 1.0]))
    assert model.coef_.shape == (3, 3)
    assert model.coef_per_agent_.shape == (10, 3, 3)


def test_batches_of_gradient_descent_take_part_as_planned():
    X, y = data()
    algorithm = DecentralizedGradientDescent(batch_fraction=0.2)
    model = DPDecentralizedRegressor(algorithm=algorithm, max_iter=5, random_state=0)
    assert model.fit(X, y).privacy_.epsilon("model") <= 1.0
    with pytest.raises(ValueError, match="batches of records protect records"):
        model.set_params(privacy_unit="agent").fit(X, y)


@pytest.mark.parametrize(
    ("algorithm", "message"),
    [
        (DecentralizedGradientDescent(mixing="fast"), "Got mixing='fast', expected one of"),
        (DecentralizedGradientDescent(step_size=0), "Got step_size=0, expected"),
        (DecentralizedGradientDescent(tail_fraction=0), "Got tail_fraction=0, expected"),
        (PrimalPerturbationADMM(tolerance=2.0), "Got tolerance=2.0, expected"),
        (PrimalPerturbationADMM(penalty_weight=0), "Got penalty_weight=0, expected"),
        (DualPerturbationADMM(max_rounds=0), "Got max_rounds=0, expected"),
        (DualPerturbationADMM(clip_norm="big"), "Got clip_norm='big', expected"),
        (ExactConsensusADMM(tolerance=0.0), "Got tolerance=0.0, expected"),
        (ExactConsensusADMM(max_rounds=1.5), "Got max_rounds=1.5, expected"),
    ],
)
def test_knobs_out_of_range_are_refused_whatever_the_budget(algorithm, message):
    for epsilon in (1.0, math.inf):
        with pytest.raises(ValueError, match=message):
            DPDecentralizedRegressor(algorithm=algorithm, epsilon=epsilon).plan(100, 3)


def test_what_no_theorem_covers_is_refused():
    dual, several = DualPerturbationADMM(), {"classes": [0, 1, 2], "max_iter": 3}
    with pytest.raises(ValueError, match="Got 3 scores for DualPerturbationADMM, expected one"):
        DPDecentralizedClassifier(algorithm=dual, **several).plan(100, 3)
    with pytest.raises(ValueError, match="Got privacy_unit='agent' for DualPerturbationADMM"):
        DPDecentralizedRegressor(algorithm=dual, privacy_unit="agent").plan(100, 3)
    with pytest.raises(ValueError, match="the curvature of one record is"):
        DPDecentralizedRegressor(algorithm=DualPerturbationADMM(penalty_weight=1e-4)).plan(100, 3)
    with pytest.raises(ValueError, match="for 3 scores, expected at least"):
        DPDecentralizedClassifier(algorithm=PrimalPerturbationADMM(clip_norm=0.1), **several).plan(
            100, 3
        )
    for name in PRIVATE:
        if name != "decentralized-gradient-descent":
            with pytest.raises(ValueError, match="Got conditioning='private'"):
                DPDecentralizedRegressor(algorithm=name, conditioning="private").plan(100, 3)


def test_names_stand_for_the_algorithms():
    for name, kind in zip(
        [*PRIVATE, "exact-consensus-admm"],
        [
            DecentralizedGradientDescent,
            DualPerturbationADMM,
            PrimalPerturbationADMM,
            ExactConsensusADMM,
        ],
        strict=True,
    ):
        assert isinstance(resolve_algorithm(name), kind)
