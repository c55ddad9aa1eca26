"""Tokens on walks: hop by hop, the printed token, caps, and certified inner solutions."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone

import skdpadmm.algorithms.blocks._agent_proximal_steps as steps
from skdpadmm import DPDecentralizedClassifier, DPDecentralizedRegressor
from skdpadmm.algorithms import RandomWalkADMM, RandomWalkProximalPoint
from skdpadmm.algorithms.planning._walks import draw_hops
from skdpadmm.noise import noise_source
from skdpadmm.penalties import L1
from skdpadmm.protocol import Gate
from tests.algorithms.agents import (
    Watched,
    budget,
    central_optimum,
    make_task,
    run,
    shrunk,
)

ALGORITHMS = [RandomWalkADMM, RandomWalkProximalPoint]
FOUR = (20, 16, 14, 10)
GAMMA, RELAXED, KAPPA = 0.7, 0.6, 0.05


class Quadratic:
    """Agents' losses in closed form: proximal steps are linear systems."""

    def __init__(self, task):
        n_agents, n = task.facts.agents.n_agents, task.facts.n_samples
        parts = [task.of(a) for a in range(n_agents)]
        self.H = [n_agents / n * A.T @ A for A, _ in parts]
        self.b = [n_agents / n * A.T @ y for A, y in parts]

    def prox(self, agent, point, gamma=GAMMA):
        left = np.eye(len(point)) + gamma * self.H[agent]
        return np.linalg.solve(left, point + gamma * self.b[agent])


def hops_of(task, plan, seed=0):
    return draw_hops(
        task.facts, plan.settings.max_contributions, Gate(plan, noise_source(seed, plan.digest()))
    )


@pytest.mark.parametrize("make", ALGORITHMS)
@pytest.mark.parametrize(("topology", "cap"), [("complete", 2), ("ring", 100), ("star", 2)])
def test_tokens_equal_their_docstring_hop_by_hop(make, topology, cap):
    """A4 corrected: the token carries the mean before the proximal step; noise meets updates."""
    task = make_task(sizes=FOUR, topology=topology, penalty=L1(KAPPA), max_iter=6)
    algorithm = make(
        step_size=GAMMA, relaxation=RELAXED, clip_norm=30.0, max_contributions=cap, tolerance=1e-6
    )
    plan, solution, gate = run(algorithm, task, epsilon=100.0, gate_class=Watched)
    agents, holder = Quadratic(task), hops_of(task, plan)
    released = iter([(v[:, 0], o[:, 0]) for m, v, o, _ in gate.passed if m == "release"])
    length = RELAXED * GAMMA * 30.0 * 2.0 * 4 / 60 * (2 if make is RandomWalkADMM else 1)
    u, own, token, tail = np.zeros((4, 4)), np.zeros((4, 4)), np.zeros(4), np.zeros(4)
    visits = np.zeros(4, dtype=int)
    for hop, (a, contributes) in enumerate(zip(*holder, strict=True)):
        assert contributes == (visits[a] < cap)
        visits[a] += 1
        if make is RandomWalkADMM:
            own[a] = z = shrunk(token, KAPPA, 0.0, GAMMA)
            if contributes:
                update, (exact, noisy) = (
                    2 * RELAXED * (agents.prox(a, 2 * z - u[a]) - z),
                    next(released),
                )
                np.testing.assert_allclose(exact * length, update, atol=1e-5)
                update = noisy * length
                u[a] += update
                token = token + update / 4
        else:
            if contributes:
                z = shrunk(token, KAPPA, 0.0, RELAXED * GAMMA)
                token = z + RELAXED * (agents.prox(a, z) - z)
            exact, noisy = next(released)
            np.testing.assert_allclose(exact * length, token, atol=1e-5)
            token = noisy * length
        tail += token / 12 * (hop >= 12)
    if make is RandomWalkADMM:
        np.testing.assert_allclose(token, u.mean(axis=0), atol=1e-9)
        np.testing.assert_allclose(solution.parameters_per_agent[..., 0], own, atol=1e-9)
        expected = shrunk(tail, KAPPA, 0.0, GAMMA)
    else:
        assert solution.parameters_per_agent is None
        expected = shrunk(token, KAPPA, 0.0, RELAXED * GAMMA)
    kept = solution.parameters[:, 0] != 0
    np.testing.assert_allclose(solution.parameters[kept, 0], expected[kept], atol=1e-9)
    moves = int(np.count_nonzero(np.diff(holder.holder)))
    assert (solution.n_messages, solution.bytes_sent) == (moves + 3, 8 * 4 * (moves + 3))
    assert solution.n_rounds == solution.n_iter == plan.settings.n_hops == 24


def test_the_printed_token_minimises_the_penalty_alone():
    task = make_task(sizes=FOUR)
    agents, walk = Quadratic(task), np.random.default_rng(0).integers(4, size=4000)
    ends = {}
    for carries in ("mean before the step", "mean after the step"):
        u, token = np.zeros((4, 4)), np.zeros(4)
        for a in walk:
            z = shrunk(token, 0.1, 0.0, 1.0)
            update = agents.prox(a, 2 * z - u[a], 1.0) - z
            u[a] += update
            token = update / 4 + (token if carries == "mean before the step" else z)
        ends[carries] = shrunk(token, 0.1, 0.0, 1.0)
    best = central_optimum(task, l1=0.1)[:, 0]
    np.testing.assert_allclose(ends["mean before the step"], best, atol=1e-8)
    np.testing.assert_allclose(ends["mean after the step"][:-1], 0, atol=1e-8)
    assert np.abs(best[:-1]).max() > 0.3


def test_proximal_points_stay_the_closer_to_the_optimum_the_shorter_the_step():
    """The optimum has the weight of the penalty as it is, whatever the relaxation."""
    distances = []
    for step_size, max_iter in ((0.4, 60), (0.05, 240)):
        task = make_task(sizes=(15,) * 4, sort_by_target=True, penalty=L1(0.15), max_iter=max_iter)
        algorithm = RandomWalkProximalPoint(
            step_size=step_size, relaxation=0.5, clip_norm=10.0, max_contributions=10**6
        )
        gate = run(algorithm, task)[2]
        tokens = np.array([out[:, 0] for method, _, out, _ in gate.passed if method == "release"])
        tokens *= 0.5 * step_size * 10 * 2 * 4 / 60
        ends = [shrunk(token, 0.15, 0, step_size / 2) for token in tokens[2 * max_iter :]]
        best = central_optimum(task, l1=0.15)[:, 0]
        distances.append(np.linalg.norm(np.mean(ends, axis=0) - best))
    assert distances[0] > 3 * distances[1]
    assert distances[1] < 0.05


@pytest.mark.parametrize("loss", ["squared", "logistic", "multinomial"])
def test_computed_steps_are_as_close_to_exact_ones_as_certified(loss, monkeypatch):
    """And so hardly longer than the distance of the points that they start from."""
    task, calls = make_task(loss, sizes=FOUR, max_iter=2), {}
    made, clip = steps.agent_proximal_steps, 0.2 if loss != "multinomial" else 5.0
    for tolerance in (1e-2, 1e-6):
        kept = []

        def spied(*arguments, kept=kept, **knobs):
            kept.append(made(*arguments, **knobs))
            return lambda agent, point: (kept.append((agent, point)), kept[0](agent, point))[1]

        monkeypatch.setattr("skdpadmm.algorithms._random_walk_admm.agent_proximal_steps", spied)
        algorithm = RandomWalkADMM(step_size=2.0, clip_norm=clip, tolerance=tolerance)
        run(algorithm, task, gate_class=Watched)
        calls[tolerance] = kept
    unit = 2.0 * clip * 2.0 * 4 / 60
    (rough, *_), (fine, *points) = calls[1e-2], calls[1e-6]
    for agent, point in points:
        assert np.linalg.norm(rough(agent, point) - fine(agent, point)) <= (1e-2 + 1e-6) * unit
        for step, tolerance in ((rough, 1e-2), (fine, 1e-6)):
            moved = np.linalg.norm(step(agent, point) - step(agent, -point))
            assert moved <= 2 * np.linalg.norm(point) + 2 * tolerance * unit


@pytest.mark.parametrize("make", ALGORITHMS)
def test_steps_that_inner_solutions_cannot_afford_are_refused_and_never_the_default(make):
    facts = make_task(sizes=(10,) * 3).facts
    make(step_size=1e2).plan(facts, budget())
    with pytest.raises(ValueError, match=r"^Got step_size=100000 .* inner steps at each hop"):
        make(step_size=1e5).plan(facts, budget())
    uneven = make_task("logistic", sizes=(500, *[1] * 100)).facts
    for knobs in ({}, {"tolerance": 1e-3}, {"relaxation": 1e-6}):
        inner = make(**knobs).plan(uneven, budget()).settings.inner
        assert inner.n_steps[0] <= inner.n_steps[-1] <= steps.MOST_STEPS
    for step_size in (1e-100, 1e-3, 1e3):
        solution = run(make(step_size=step_size, clip_norm=0.1), make_task("logistic"))[1]
        assert np.isfinite(solution.parameters).all()


def test_agents_answer_with_what_they_last_held_and_with_zeros_if_the_token_never_came():
    task = make_task(sizes=(6,) * 10, topology="path", max_iter=1)
    plan, solution, _ = run(RandomWalkADMM(), task, gate_class=Watched)
    seen = hops_of(task, plan).holder[1:]
    assert 2 < len(set(seen.tolist())) < 10
    answers = np.any(solution.parameters_per_agent != 0, axis=(1, 2))
    np.testing.assert_array_equal(answers, np.isin(np.arange(10), seen))


@pytest.mark.parametrize("name", ["random-walk-admm", "random-walk-proximal-point"])
def test_estimators_learn_by_their_defaults(name):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (2000, 3))
    y = np.clip(X @ [1.0, -0.6, 0.0] + 0.2 * rng.standard_normal(2000), -2, 2)
    shared = {"algorithm": name, "feature_bounds": (-1, 1), "max_iter": 20, "random_state": 0}
    model = DPDecentralizedRegressor(target_bounds=(-2, 2), **shared)
    best = 1 - 0.04 / y.var()
    for epsilon, least in ((5.0, 0.9 * best), (1000.0, best - 0.01)):
        assert clone(model).set_params(epsilon=epsilon).fit(X, y).score(X, y) > least
    sparse = model.set_params(penalty="l1", alpha=0.02, epsilon=20.0).fit(X, y)
    assert sparse.coef_[2] == 0
    assert np.all(sparse.coef_[:2] != 0)
    classifier = DPDecentralizedClassifier(classes=[0, 1], epsilon=5.0, **shared)
    assert classifier.fit(X, (y > 0).astype(int)).score(X, y > 0) > 0.85
