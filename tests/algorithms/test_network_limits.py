"""Algorithms over a graph without noise: the optimum of all rows, whoever holds which of them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from skdpadmm.algorithms import (
    DecentralizedGradientDescent,
    DualPerturbationADMM,
    ExactConsensusADMM,
    MultiStepADMM,
    PrimalPerturbationADMM,
    RandomizedADMM,
    RandomizedGradientDescent,
    RandomizedSGD,
    RandomWalkADMM,
    RandomWalkProximalPoint,
)
from skdpadmm.network import Topology, mixing_matrix, resolve_topology
from skdpadmm.penalties import L1, NoPenalty, SquaredL2
from tests.algorithms.agents import (
    Silent,
    Task,
    Watched,
    central_optimum,
    make_task,
    neighbors_of,
    run,
)

PENALTIES = {
    "ridge": ("squared", SquaredL2(0.2), {"l2": 0.2}),
    "lasso": ("squared", L1(0.05), {"l1": 0.05}),
    "logistic": ("logistic", SquaredL2(0.1), {"l2": 0.1}),
}
WIDE = {"clip_norm": 20.0, "tail_fraction": 1e-9}


def multi_step(inner_steps, weight):
    return MultiStepADMM(
        inner_steps=inner_steps, proximal_weight=weight, penalty_weight=0.5, **WIDE
    )


def randomised(**knobs):
    return RandomizedADMM(tail_fraction=1e-9, **knobs)


EXACT = {"local_step": "exact", "curvature": 1.0, "tolerance": 1e-6}
WALK = RandomWalkADMM(step_size=1.5, max_contributions=10**6, clip_norm=30.0, tail_fraction=1e-9)
LIMITS = [
    (multi_step(1, 4.0), "ridge", "ring", 600, 1e-7),
    (multi_step(1, 4.0), "lasso", "star", 1000, 1e-7),
    (multi_step(2, 1.0), "logistic", "barabasi-albert", 400, 1e-7),
    (multi_step(5, 4.0), "lasso", "complete", 500, 1e-7),
    (randomised(aggregator="random"), "ridge", "star", 600, 1e-7),
    (randomised(aggregator="fixed"), "lasso", "erdos-renyi", 600, 1e-7),
    (randomised(aggregator="random"), "logistic", "grid", 800, 1e-7),
    (randomised(aggregator="random", **EXACT), "lasso", "complete", 150, 1e-7),
    (randomised(aggregator="fixed", **EXACT), "logistic", "complete", 150, 1e-7),
    (WALK, "ridge", "path", 200, 1e-5),
    (WALK, "lasso", "complete", 200, 1e-5),
    (
        PrimalPerturbationADMM(penalty_weight=0.1, tolerance=1e-6, **WIDE),
        "ridge",
        "ring",
        150,
        1e-4,
    ),
    (ExactConsensusADMM(tolerance=1e-9), "ridge", "path", 9, 1e-6),
    (ExactConsensusADMM(tolerance=1e-9), "logistic", "star", 9, 1e-6),
    (ExactConsensusADMM(tolerance=1e-9), "lasso", "complete", 9, 1e-6),
]


@pytest.mark.parametrize(("algorithm", "name", "topology", "rounds", "atol"), LIMITS)
def test_every_agent_ends_at_the_optimum_of_all_rows(algorithm, name, topology, rounds, atol):
    loss, penalty, weights = PENALTIES[name]
    task = make_task(
        loss, sizes=(15,) * 8, topology=topology, penalty=penalty, max_iter=rounds,
        sort_by_target=name == "ridge",
    )  # fmt: skip
    # Walks and exact steps plan with privacy alone or without it alone.
    public = isinstance(algorithm, ExactConsensusADMM | RandomizedADMM)
    _, solution, _ = run(algorithm, task, epsilon=math.inf if public else 1e9)
    best = central_optimum(task, **weights)
    for own in (solution.parameters, *solution.parameters_per_agent):
        np.testing.assert_allclose(own, best, rtol=0, atol=atol)


@pytest.mark.parametrize("topology", ["ring", "star"])
@pytest.mark.parametrize(
    "algorithm",
    [
        ExactConsensusADMM(penalty_weight=0.1, max_rounds=6),
        PrimalPerturbationADMM(penalty_weight=0.1, tolerance=1e-6, **WIDE),
        DualPerturbationADMM(penalty_weight=0.1, max_rounds=6, **WIDE),
    ],
    ids=repr,
)
@pytest.mark.filterwarnings("ignore:.*in 6 rounds over the graph")
def test_exact_rounds_are_those_of_consensus_admm_with_noise_in_answers_or_in_objectives(
    algorithm, topology
):
    """Equations (6) to (9): the argmin has -2 <gamma, w>, and duals lose rho / 2 a neighbour."""
    task = make_task(sizes=(30, 50, 40, 40), topology=topology, max_iter=6)
    exact = isinstance(algorithm, ExactConsensusADMM)
    epsilon = math.inf if exact else 100.0
    gate_class = Silent if exact else Watched
    _, solution, gate = run(algorithm, task, epsilon=epsilon, gate_class=gate_class)
    near, rho, w, gamma = (
        neighbors_of(task.facts.agents.topology),
        0.1,
        np.zeros((4, 4)),
        np.zeros((4, 4)),
    )
    hidden = [out[:, :, 0] for method, _, out, _ in gate.passed if method == "hidden_term"]
    for k in range(6):
        before = w.copy()
        for a in range(4):
            A, y = task.of(a)
            # What one record moves a minimiser by, at most.
            curvature = 2 * rho * len(near[a])
            unit = 20.0 * 2.0 * 4 / 160 / curvature
            pull = 2 * gamma[a] + rho * sum(before[a] + before[b] for b in near[a])
            if hidden:
                pull = pull - curvature * unit * hidden[k][a]
            w[a] = np.linalg.solve(A.T @ A / 40 + curvature * np.eye(4), A.T @ y / 40 + pull) + (
                0.0 if exact else unit * gate.noise(k)[a, :, 0]
            )
        gamma = gamma - rho / 2 * np.array([sum(w[a] - w[b] for b in near[a]) for a in range(4)])
        np.testing.assert_allclose(gamma.sum(axis=0), 0.0, atol=1e-12 * np.abs(gamma).max())
    size = np.abs(w).max()
    np.testing.assert_allclose(solution.parameters_per_agent[..., 0], w, rtol=0, atol=1e-4 * size)


@pytest.mark.parametrize("mixing", ["metropolis", "max_degree", "laplacian"])
def test_a_constant_step_leaves_the_bias_of_its_fixed_point(mixing):
    """(I - W) w + step * gradients = 0 over all agents together, Yuan et al."""
    task = make_task(sizes=(30, 5, 40, 25, 20), fit_intercept=False, max_iter=2000)
    W = mixing_matrix(task.facts.agents.topology, mixing).to_sparse().toarray()
    errors = []
    for step in (0.4, 0.2):
        system, right = np.kron(np.eye(5) - W, np.eye(3)), np.zeros(15)
        for a in range(5):
            own, (A, y) = slice(3 * a, 3 * a + 3), task.of(a)
            system[own, own] += step * 5 / 120 * A.T @ A
            right[own] = step * 5 / 120 * A.T @ y
        algorithm = DecentralizedGradientDescent(step_size=step, mixing=mixing, **WIDE)
        _, solution, _ = run(algorithm, task)
        found = solution.parameters_per_agent[..., 0]
        np.testing.assert_allclose(found, np.linalg.solve(system, right).reshape(5, 3), atol=1e-8)
        errors.append(
            np.linalg.norm(solution.parameters[:, 0] - np.linalg.lstsq(task.A, task.y)[0])
        )
    assert 1.5 < errors[0] / errors[1] < 2.5


@pytest.mark.parametrize("mixing", ["metropolis", "neighbors", "pair", "interval"])
def test_random_weights_with_steps_that_shrink_approach_the_optimum(mixing):
    errors = []
    for max_iter in (100, 1600):
        task = make_task(sizes=(12,) * 8, penalty=SquaredL2(0.2), max_iter=max_iter)
        algorithm = RandomizedGradientDescent(
            mixing=mixing, step_size=1.0, step_power=0.75, tail_fraction=0.05
        )
        own = run(algorithm, task, epsilon=math.inf)[1].parameters_per_agent
        errors.append(np.abs(own - central_optimum(task, l2=0.2)).max())
    assert errors[1] < min(0.01, 0.3 * errors[0])


def test_a_single_pass_approaches_the_optimum_as_there_are_more_agents():
    errors = []
    for n_agents in (20, 800):
        task = make_task(sizes=(6,) * n_agents, topology="complete", penalty=SquaredL2(0.2))
        found = run(RandomizedSGD(), task, epsilon=math.inf)[1].parameters
        errors.append(np.abs(found - central_optimum(task, l2=0.2)).max())
    assert errors[1] < min(0.03, 0.4 * errors[0])


def test_growing_proximal_weights_end_near_the_optimum():
    task = make_task("logistic", sizes=(40,) * 4, penalty=SquaredL2(0.1), max_iter=1500)
    algorithm = MultiStepADMM(
        inner_steps=1, proximal_weight="growing", clip_norm=1.2, penalty_weight=1.0, diameter=20.0,
        tail_fraction=0.2,
    )  # fmt: skip
    found = run(algorithm, task, epsilon=1e7)[1].parameters
    np.testing.assert_allclose(found, central_optimum(task, l2=0.1), atol=5e-3)


@pytest.mark.parametrize("unit", ["record", "agent"])
@pytest.mark.parametrize(
    "algorithm",
    [
        MultiStepADMM(clip_norm=0.3),
        MultiStepADMM(clip_norm=0.3, proximal_weight=1.1, penalty_weight=0.4),
        DecentralizedGradientDescent(clip_norm=0.3),
        PrimalPerturbationADMM(clip_norm=0.3),
        RandomizedADMM(clip_norm=0.3, aggregator="fixed", noise="gaussian"),
    ],
    ids=repr,
)
def test_agents_with_other_numbers_in_the_same_graph_find_the_same(algorithm, unit):
    task = make_task(topology="barabasi-albert", unit=unit, penalty=L1(0.05), max_iter=12)
    other, links = np.array([2, 0, 3, 1]), task.facts.agents.topology
    renumbered = make_task(
        sizes=tuple(np.bincount(other[task.owner])), unit=unit, penalty=L1(0.05), max_iter=12,
        topology=Topology(n_agents=4, pairs=other[links.edges]),
    ).facts  # fmt: skip
    own = run(algorithm, task)[1].parameters_per_agent
    moved = run(algorithm, Task(renumbered, task.X, task.y, other[task.owner]))[1]
    np.testing.assert_allclose(own, moved.parameters_per_agent[other], rtol=0, atol=1e-10)
    assert np.ptp(own, axis=0).max() > 1e-4


ALL = [
    MultiStepADMM, DecentralizedGradientDescent, PrimalPerturbationADMM, DualPerturbationADMM,
    RandomizedADMM, RandomizedGradientDescent, RandomizedSGD, RandomWalkADMM,
    RandomWalkProximalPoint,
]  # fmt: skip


@pytest.mark.parametrize("make", ALL)
def test_one_agent_two_and_agents_of_one_row_are_served(make):
    for sizes in ((9,), (5, 1), (1,) * 6):
        if len(sizes) == 1 and make is RandomizedSGD:
            continue
        task = make_task(sizes=sizes, topology="path", n_features=1, max_iter=2)
        plan, solution, _ = run(make(), task)
        assert np.isfinite(solution.parameters).all()
        assert plan.guarantee("model").epsilon(1e-5) <= 1 + 1e-9
        edges = resolve_topology("path", np.arange(len(sizes))).n_edges
        if make in ALL[:6]:
            assert solution.n_messages == 2 * edges * solution.n_rounds
            assert solution.bytes_sent == 8 * 2 * solution.n_messages


@pytest.mark.parametrize("penalty", [NoPenalty(), L1(0.05)], ids=repr)
@pytest.mark.parametrize("loss", ["squared", "multinomial"])
def test_one_agent_takes_proximal_gradient_steps_on_the_mean_loss(loss, penalty):
    task = make_task(loss, sizes=(40,), topology="complete", penalty=penalty, max_iter=21)
    knobs = {"step_size": 0.4, **WIDE}
    descent = run(DecentralizedGradientDescent(**knobs), task, epsilon=1e9)[1].parameters
    # The answer of multi-step ADMM is the model at which its last step starts.
    longer = make_task(loss, sizes=(40,), topology="complete", penalty=penalty, max_iter=22)
    found = run(MultiStepADMM(inner_steps=1, **knobs), longer, epsilon=1e9)[1].parameters
    np.testing.assert_allclose(found, descent, rtol=0, atol=1e-10)
