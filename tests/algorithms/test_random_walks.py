"""Tokens without noise and with known noise: what they compute, and where they go."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import pytest
from scipy import sparse
from scipy.special import expit
from sklearn.base import clone
from sklearn.linear_model import Lasso, LogisticRegression, Ridge
from sklearn.metrics import log_loss

import skdpadmm.algorithms._random_walk_admm as walk_admm
import skdpadmm.algorithms._random_walk_proximal_point as walk_point
import skdpadmm.algorithms.blocks._accelerated_gradient as accelerated
import skdpadmm.algorithms.blocks._agent_proximal_steps as steps
import skdpadmm.algorithms.blocks._network_steps as network_steps
from skdpadmm import DPDecentralizedClassifier, DPDecentralizedRegressor
from skdpadmm.algorithms import RandomWalkADMM, RandomWalkProximalPoint
from skdpadmm.algorithms.blocks._agent_proximal_steps import agent_proximal_steps, proximal_settings
from skdpadmm.algorithms.blocks._clipped_loss import bounds_in_basis
from skdpadmm.algorithms.planning._walks import contribution_cap, draw_hops
from skdpadmm.engine import Engine
from skdpadmm.losses import LogisticLoss, MultinomialLoss, SquaredLoss
from skdpadmm.network import ownership_of_labels, resolve_topology
from skdpadmm.penalties import L1, Box, NoPenalty, SquaredL2
from skdpadmm.privacy import Neighboring
from skdpadmm.protocol import Budget, Facts, Gate, Network, PlanViolation, Problem
from skdpadmm.records import Rows, declared_coordinates

ALGORITHMS = [RandomWalkADMM, RandomWalkProximalPoint]
BUDGET = Budget(epsilon=1.0, delta=1e-5, observer="eavesdropper")
ALWAYS = 10**6  # a number of contributions that no agent reaches
OWNER = np.random.default_rng(9).permutation(np.repeat([0, 1, 2, 3], [20, 16, 14, 10]))


@dataclass
class KnownNoise:
    """Adds standard noise that a test knows (none by default), and keeps what came in."""

    noise: np.ndarray | None = None
    simulation: bool = True
    values: list = field(default_factory=list)

    def add_gaussian(self, value, scale, stream):
        self.values.append(value.copy())
        return value if self.noise is None else value + self.noise[stream[-1]]

    def uniform(self, shape, stream):
        return np.random.default_rng(stream).random(shape)


@pytest.fixture(autouse=True)
def keep_noise(monkeypatch):
    """What is planned as noise is not what these tests add, so nothing is taken for it."""
    monkeypatch.setattr(network_steps, "drop_noise", lambda parameters, rows, variance: parameters)


@pytest.fixture
def exact(monkeypatch):
    """Inner solutions as good as floats allow."""
    monkeypatch.setattr(accelerated, "steps_to_reach", lambda *arguments, **constants: 60)


def problem_data(loss, *, n=60, p=3, seed=0):
    """Rows inside the box [-1, 1], so that no row is scaled, and targets that suit the loss."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(n, p))
    scores = X @ rng.normal(size=(p, loss.n_outputs)) + 0.3
    if isinstance(loss, MultinomialLoss):
        return X, (scores + rng.gumbel(size=scores.shape)).argmax(axis=1)
    if isinstance(loss, LogisticLoss):
        return X, np.where(rng.random(n) < expit(2 * scores[:, 0]), 1.0, -1.0)
    return X, np.clip(scores[:, 0] + 0.1 * rng.normal(size=n), -3, 3)


def facts_of(sizes, *, topology="complete", coalition=1, epsilons=(), **changed):
    network = Network(
        agent_sizes=tuple(sizes),
        topology=resolve_topology(topology, np.arange(len(sizes))),
        coalition=coalition,
        epsilons=epsilons,
        sizes_matter=changed.get("unit") == "agent",
    )
    arguments = {
        "n_samples": sum(sizes),
        "n_parameters": 4,
        "loss": SquaredLoss(),
        "penalty": NoPenalty(),
        "neighboring": Neighboring.REPLACE_ONE,
        "row_norm": 2.0,
        "rounding": 1.0,
        "max_iter": 10,
        "agents": network,
    }
    return Facts(**(arguments | changed))


def run(
    algorithm, X, y, owner, *, loss=None, penalty=None, max_iter=10, noise=None, n_jobs=None,
    topology="complete",
):  # fmt: skip
    """Run the algorithm without an estimator around it; targets are in public coordinates."""
    c = declared_coordinates(
        n_features=X.shape[1], fit_intercept=True, feature_bounds=None, has_target_scale=False
    )
    ownership = ownership_of_labels(owner, n_samples=X.shape[0])
    facts = facts_of(
        ownership.sizes.tolist(), topology=topology, loss=loss or SquaredLoss(),
        penalty=penalty or NoPenalty(), n_parameters=c.n_parameters, row_norm=c.row_norm,
        max_iter=max_iter,
    )  # fmt: skip
    plan = algorithm.plan(facts, BUDGET)
    source = noise or KnownNoise()
    gate = Gate(plan, source)
    done = []
    with Engine(n_jobs).running() as engine:
        problem = Problem(
            rows=Rows(X, c), target=y, engine=engine, ownership=ownership, progress=done.append
        )
        solution = algorithm.run(plan, problem, gate)
    gate.close()
    assert done == list(range(1, max_iter + 1))
    return solution, plan, draw_hops(facts, plan.settings.max_contributions, Gate(plan, source))


def soft(point, threshold):
    result = np.sign(point) * np.maximum(np.abs(point) - threshold, 0)
    result[-1] = point[-1]  # the intercept is free
    return result


class Quadratic:
    """Agents' losses in closed form: proximal steps are linear systems."""

    def __init__(self, X, y, owner):
        A = np.column_stack([X, np.ones(len(X))])
        n_agents, n = len(np.unique(owner)), len(X)
        groups = [owner == a for a in range(n_agents)]
        self.H = [n_agents / n * A[g].T @ A[g] for g in groups]
        self.b = [n_agents / n * A[g].T @ y[g] for g in groups]

    def prox(self, agent, gamma, point):
        identity = np.eye(len(point))
        return np.linalg.solve(identity + gamma * self.H[agent], point + gamma * self.b[agent])


def optimum(X, y, loss, l1=0.0, l2=0.0):
    n = len(X)
    if isinstance(loss, LogisticLoss):
        found = LogisticRegression(C=1 / (n * l2), tol=1e-12, max_iter=10_000).fit(X, y)
        return np.append(found.coef_[0], found.intercept_[0])
    model = Lasso(l1, tol=1e-14, max_iter=10**6) if l1 else Ridge(n * l2, tol=1e-14)
    found = model.fit(X, y)
    return np.append(found.coef_, found.intercept_)


# Hop by hop.


@pytest.mark.parametrize("topology", ["complete", "ring", "star"])
@pytest.mark.parametrize("cap", [2, ALWAYS])
def test_admm_equals_its_docstring_hop_by_hop(topology, cap, exact):
    X, y = problem_data(SquaredLoss())
    gamma, lam, l1, max_iter = 0.7, 0.8, 0.05, 6
    noise = np.random.default_rng(1).normal(size=(4 * max_iter, 4, 1))
    algorithm = RandomWalkADMM(
        step_size=gamma, relaxation=lam, clip_norm=30.0, max_contributions=cap, tail_fraction=0.5
    )
    source = KnownNoise(noise)
    solution, _, hops = run(
        algorithm, X, y, OWNER, penalty=L1(l1), max_iter=max_iter, noise=source, topology=topology
    )
    agents, length = Quadratic(X, y, OWNER), 2 * lam * gamma * 30.0 * 2.0 * 4 / 60
    u, token, tail, values, own = np.zeros((4, 4)), np.zeros(4), np.zeros(4), [], np.zeros((4, 4))
    for hop, (a, contributes) in enumerate(zip(*hops, strict=True)):
        own[a] = z = soft(token, gamma * l1)
        if contributes:
            values.append(2 * lam * (agents.prox(a, gamma, 2 * z - u[a]) - z))
            D = values[-1] + length * noise[hop, :, 0]
            u[a] += D
            token = token + D / 4
        if hop >= 12:
            tail += token / 12
    np.testing.assert_allclose(np.array(source.values)[..., 0] * length, values, atol=1e-9)
    np.testing.assert_allclose(solution.parameters[:, 0], soft(tail, gamma * l1), atol=1e-9)
    np.testing.assert_allclose(solution.parameters_per_agent[..., 0], own, atol=1e-9)
    np.testing.assert_allclose(token, u.mean(axis=0), atol=1e-9)


@pytest.mark.parametrize("topology", ["complete", "ring", "star"])
@pytest.mark.parametrize("cap", [2, ALWAYS])
def test_proximal_point_equals_its_docstring_hop_by_hop(topology, cap, exact):
    X, y = problem_data(SquaredLoss())
    gamma, theta, l1, max_iter = 0.7, 0.6, 0.05, 6
    noise = np.random.default_rng(1).normal(size=(4 * max_iter, 4, 1))
    algorithm = RandomWalkProximalPoint(
        step_size=gamma, relaxation=theta, clip_norm=30.0, max_contributions=cap
    )
    source = KnownNoise(noise)
    solution, _, hops = run(
        algorithm, X, y, OWNER, penalty=L1(l1), max_iter=max_iter, noise=source, topology=topology
    )
    agents, length = Quadratic(X, y, OWNER), theta * gamma * 30.0 * 2.0 * 4 / 60
    token, values = np.zeros(4), []
    for hop, (a, contributes) in enumerate(zip(*hops, strict=True)):
        if contributes:
            z = soft(token, theta * gamma * l1)
            token = z + theta * (agents.prox(a, gamma, z) - z)
        values.append(token)
        token = token + length * noise[hop, :, 0]
    np.testing.assert_allclose(np.array(source.values)[..., 0] * length, values, atol=1e-9)
    np.testing.assert_allclose(
        solution.parameters[:, 0], soft(token, theta * gamma * l1), atol=1e-9
    )
    assert solution.parameters_per_agent is None


def test_agents_answer_with_what_they_last_held_and_with_zeros_if_the_token_never_came():
    X, y = problem_data(SquaredLoss())
    algorithm = RandomWalkADMM(step_size=0.5, clip_norm=30.0, tail_fraction=1e-9)
    solution, _, hops = run(algorithm, X, y, np.arange(60) // 6, max_iter=1, topology="path")
    assert 2 < len(set(hops.holder.tolist())) < 10
    for agent in range(10):
        # The token of the first hop is zero.
        answers = np.any(solution.parameters_per_agent[agent] != 0)
        assert answers == (agent in hops.holder[1:])


@pytest.mark.parametrize("make", ALGORITHMS)
def test_an_agent_uses_its_data_at_its_first_visits_only(make):
    facts = facts_of([3, 4, 5], topology="path", max_iter=20)
    gate = Gate(make(max_contributions=4).plan(facts, BUDGET), KnownNoise())
    holder, contributes = draw_hops(facts, 4, gate)
    for agent in range(3):
        visits = contributes[holder == agent]
        assert visits.sum() == min(len(visits), 4)
        assert visits[:4].all()
        assert not visits[4:].any()


def test_the_cap_is_the_mean_number_of_visits_and_never_more_than_the_walk():
    facts = facts_of([3, 4], max_iter=5)
    assert contribution_cap("auto", facts) == 5
    assert contribution_cap(3, facts) == 3
    assert contribution_cap(100, facts) == 10


# Where they go.


@pytest.mark.parametrize("topology", ["complete", "path"])
@pytest.mark.parametrize(
    ("loss", "l1", "l2"),
    [
        pytest.param(SquaredLoss(), 0.1, 0.0, id="lasso"),
        pytest.param(SquaredLoss(), 0.0, 0.1, id="ridge"),
        pytest.param(LogisticLoss(), 0.0, 0.1, id="logistic"),
    ],
)
def test_admm_reaches_the_optimum_that_scikit_learn_finds(loss, l1, l2, topology, exact):
    X, y = problem_data(loss)
    algorithm = RandomWalkADMM(
        step_size=1.5 if loss.n_outputs == 1 and l1 + l2 else 1.0,
        clip_norm=30.0,
        max_contributions=ALWAYS,
        tail_fraction=1e-9,
    )
    solution, _, _ = run(
        algorithm, X, y, OWNER, loss=loss, penalty=L1(l1) if l1 else SquaredL2(l2), max_iter=250,
        topology=topology,
    )  # fmt: skip
    best = optimum(X, y, loss, l1, l2)
    np.testing.assert_allclose(solution.parameters[:, 0], best, atol=1e-8)
    np.testing.assert_allclose(solution.parameters_per_agent[..., 0].max(axis=0), best, atol=1e-6)


def test_admm_as_printed_minimises_the_penalty_alone():
    X, y = problem_data(SquaredLoss())
    agents, gamma, l1 = Quadratic(X, y, OWNER), 1.0, 0.1
    walk = np.random.default_rng(0).integers(4, size=4000)
    ends = {}
    for carries in ("mean before the step", "mean after the step"):
        u, token = np.zeros((4, 4)), np.zeros(4)
        for a in walk:
            z = soft(token, gamma * l1)
            D = agents.prox(a, gamma, 2 * z - u[a]) - z
            u[a] += D
            token = D / 4 + (token if carries == "mean before the step" else z)
        ends[carries] = soft(token, gamma * l1)
    best = optimum(X, y, SquaredLoss(), l1)
    np.testing.assert_allclose(ends["mean before the step"], best, atol=1e-8)
    np.testing.assert_allclose(ends["mean after the step"][:-1], 0, atol=1e-8)
    assert np.abs(best[:-1]).max() > 0.3


@pytest.mark.slow
def test_proximal_points_stay_the_closer_to_the_optimum_the_shorter_the_step():
    X, y = problem_data(SquaredLoss())
    best = optimum(X, y, SquaredLoss(), 0, 0.1)
    owner = np.argsort(np.argsort(y)) // 15  # agents that differ
    distances = []
    for step_size, max_iter in ((0.4, 50), (0.1, 100), (0.025, 400)):
        algorithm = RandomWalkProximalPoint(
            step_size=step_size, clip_norm=30.0, max_contributions=ALWAYS
        )
        source = KnownNoise()
        run(algorithm, X, y, owner, penalty=SquaredL2(0.1), max_iter=max_iter, noise=source)
        tokens = np.array(source.values)[2 * max_iter :, :, 0] * step_size * 30 * 2 * 4 / 60
        distances.append(np.sqrt(np.mean(np.sum((tokens - best) ** 2, axis=1))))
    assert distances[0] > 1.5 * distances[1] > 2.25 * distances[2]
    assert distances[2] < 0.1


def test_a_relaxed_proximal_point_weighs_the_penalty_as_the_objective_does(monkeypatch):
    loss, l1, theta = SquaredLoss(), 0.15, 0.25
    X, y = problem_data(loss)
    right, wrong = optimum(X, y, loss, l1), optimum(X, y, loss, l1 / theta)
    algorithm = RandomWalkProximalPoint(
        step_size=0.06, relaxation=theta, clip_norm=30.0, max_contributions=ALWAYS
    )

    def end():
        return run(algorithm, X, y, OWNER, penalty=L1(l1), max_iter=250)[0].parameters[:, 0]

    assert np.linalg.norm(right - wrong) > 1.0
    assert np.linalg.norm(end() - right) < 0.1
    made = walk_point.penalty_operator
    monkeypatch.setattr(
        walk_point, "penalty_operator", lambda p, step, rows: made(p, step / theta, rows)
    )
    printed = end()
    assert np.linalg.norm(printed - wrong) < 0.5 * np.linalg.norm(printed - right)


# Inner solutions.


@pytest.mark.parametrize("loss", [SquaredLoss(), LogisticLoss(), MultinomialLoss(3)])
def test_computed_steps_are_as_close_and_as_contracting_as_certified(loss):
    X, y = problem_data(loss)
    rng, gamma = np.random.default_rng(3), 2.0
    c = declared_coordinates(
        n_features=3, fit_intercept=True, feature_bounds=None, has_target_scale=False
    )
    ownership = ownership_of_labels(OWNER, n_samples=60)
    facts = facts_of(ownership.sizes.tolist(), loss=loss)
    rows = Rows(X, c)
    clip_norm = 0.4 if loss.n_outputs == 1 else 5.0
    bounds = bounds_in_basis(facts, rows, clip_norm=clip_norm, row_bound=1.0)
    unit = gamma * bounds.gradient_norm * 4 / 60
    with Engine().running() as engine:
        problem = Problem(rows=rows, target=y, engine=engine, ownership=ownership)
        rough, fine = (
            agent_proximal_steps(
                facts,
                problem,
                bounds,
                proximal_settings(
                    facts,
                    bounds,
                    step_size=gamma,
                    tolerance=tolerance,
                    farthest=100.0 / unit,
                    advice="",
                ),
                step_size=gamma,
            )
            for tolerance in (1e-2, 1e-6)
        )
        for agent in range(4):
            z, other = rng.normal(size=(2, 4, loss.n_outputs)) * [[[1]], [[10]]]
            for near in (z, other):
                distance = np.linalg.norm(rough(agent, near) - fine(agent, near))
                assert distance <= (1e-2 + 1e-6) * unit
            for step, tolerance in ((rough, 1e-2), (fine, 1e-6)):
                moved = np.linalg.norm(step(agent, z) - step(agent, other))
                assert moved <= np.linalg.norm(z - other) + 2 * tolerance * unit


def test_neighbouring_rows_of_an_agent_are_not_copied():
    X = np.zeros((40_000, 3))
    c = declared_coordinates(
        n_features=3, fit_intercept=True, feature_bounds=None, has_target_scale=False
    )
    ownership = ownership_of_labels(np.repeat([0, 1, 2], [15_000, 24_990, 10]), n_samples=40_000)
    rows = Rows(X, c)
    with Engine().running() as engine:
        problem = Problem(rows=rows, target=np.zeros(40_000), engine=engine, ownership=ownership)
        owned = [steps._problem_of(problem, ownership, agent) for agent in range(3)]
    longest = max(part.stop - part.start for part in rows.slices)
    for own, size in zip(owned, [15_000, 24_990, 10], strict=True):
        assert own.rows.n_samples == len(own.target) == size
        assert max(part.stop - part.start for part in own.rows.slices) <= longest
        assert all(np.shares_memory(block, X) for block in own.rows._blocks)


@pytest.mark.parametrize("make", ALGORITHMS)
def test_order_and_kind_of_rows_and_threads_do_not_matter(make):
    X, y = problem_data(SquaredLoss())
    X[np.abs(X) < 0.3] = 0.0
    order = np.argsort(OWNER, kind="stable")
    algorithm = make(step_size=0.5, clip_norm=0.3)
    first = run(algorithm, X, y, OWNER)[0].parameters
    np.testing.assert_array_equal(run(algorithm, X, y, OWNER, n_jobs=2)[0].parameters, first)
    for rows, target, owner in (
        (X[order], y[order], OWNER[order]),
        (sparse.csr_array(X), y, OWNER),
    ):
        again = run(algorithm, rows, target, owner)[0].parameters
        np.testing.assert_allclose(again, first, atol=1e-10)


# What is counted, and what is refused.


@pytest.mark.parametrize("make", ALGORITHMS)
def test_messages_are_hops_to_another_agent_and_one_to_each_at_the_end(make):
    X, y = problem_data(SquaredLoss())
    solution, plan, hops = run(make(), X, y, OWNER, topology="ring")
    moves = sum(a != b for a, b in zip(hops.holder, hops.holder[1:], strict=False))
    assert solution.n_messages - 3 == moves < 40
    assert solution.bytes_sent == 8 * 4 * (moves + 3)
    assert solution.n_rounds == solution.n_iter == plan.settings.n_hops == 40


@pytest.mark.parametrize("make", ALGORITHMS)
def test_degenerate_sizes_are_planned_and_run(make):
    for owner in ([0], [0, 0, 0], [0, 1], [0, 1, 2, 2], np.arange(9)):
        n = len(owner)
        X, y = problem_data(SquaredLoss(), n=n, p=1)
        solution, plan, _ = run(make(), X, y, np.array(owner), max_iter=1)
        assert np.isfinite(solution.parameters).all()
        assert plan.settings.n_hops == len(set(np.asarray(owner).tolist()))
        for observer in ("eavesdropper", "peer", "model"):
            assert plan.guarantee(observer).epsilon(1e-5) <= 1.0 + 1e-9


@pytest.mark.parametrize("make", ALGORITHMS)
@pytest.mark.parametrize("step_size", ["auto", 1e-100, 1.0, 1e3, 1e5, 1e14, 1e100])
@pytest.mark.parametrize("tolerance", [1e-6, 1.0])
@pytest.mark.parametrize("clip_norm", ["auto", 1e-100, 1e100])
def test_knobs_are_refused_before_anything_is_released_or_else_they_fit(
    make, step_size, tolerance, clip_norm, monkeypatch
):
    released, release = [], Gate.release
    monkeypatch.setattr(
        Gate, "release", lambda gate, *value: released.append(value[0]) or release(gate, *value)
    )
    X, y = problem_data(SquaredLoss())
    algorithm = make(step_size=step_size, tolerance=tolerance, clip_norm=clip_norm)
    for model, target in (
        (DPDecentralizedRegressor(), y),
        (DPDecentralizedClassifier(classes=[False, True]), y > 0),
    ):
        model.set_params(
            algorithm=algorithm, scale="private", n_agents=4, max_iter=2, random_state=0
        )
        released.clear()
        try:
            model.plan(n_samples=60, n_features=3)
        except ValueError:
            assert step_size not in ("auto", 1e-100, 1.0)
            with pytest.raises(ValueError, match=r"^Got step_size=.*, expected a shorter step or"):
                model.fit(X, target)
            assert not released
        else:
            assert np.isfinite(model.fit(X, target).predict(X)).all()
            assert len(released) > 1


@pytest.mark.parametrize("make", ALGORITHMS)
def test_steps_beyond_what_inner_steps_afford_are_refused_and_never_the_default(make):
    facts = facts_of([10, 10, 10])
    make(step_size=1e2).plan(facts, BUDGET)
    with pytest.raises(ValueError, match=r"^Got step_size=100000 .* inner steps at each hop"):
        make(step_size=1e5).plan(facts, BUDGET)
    uneven = facts_of([5000] + [1] * 1000, loss=LogisticLoss())
    for knobs in ({}, {"tolerance": 1e-3}, {"relaxation": 1e-6}):
        settings = make(**knobs).plan(uneven, BUDGET).settings
        assert settings.inner.n_steps[0] <= settings.inner.n_steps[-1] <= steps.MOST_STEPS


@pytest.mark.parametrize("make", ALGORITHMS)
def test_a_penalty_that_does_not_leave_zero_alone_is_refused(make):
    with pytest.raises(ValueError, match="expected a penalty that is 0 at 0"):
        make().plan(facts_of([5, 6], penalty=Box(1.0, 2.0)), BUDGET)


@pytest.mark.parametrize("make", ALGORITHMS)
@pytest.mark.parametrize("step_size", [1e-100, 1e-3, 1e3])
def test_steps_of_any_size_give_finite_models(make, step_size):
    X, y = problem_data(LogisticLoss())
    algorithm = make(step_size=step_size, clip_norm=0.1)
    solution, _, _ = run(algorithm, X, y, OWNER, loss=LogisticLoss(), max_iter=2)
    assert np.isfinite(solution.parameters).all()


@pytest.mark.parametrize("make", ALGORITHMS)
@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"unit": "agent"}, "Got privacy_unit='agent'"),
        ({"epsilons": (1.0, 2.0)}, "Got budgets of single agents"),
        ({"row_norm": math.inf}, "Got row_norm=inf"),
    ],
)
def test_what_a_token_cannot_protect_is_refused(make, changed, message):
    with pytest.raises(ValueError, match=message):
        make().plan(facts_of([5, 6], **changed), BUDGET)


@pytest.mark.parametrize("make", ALGORITHMS)
@pytest.mark.parametrize(
    "knob",
    [
        {"step_size": 0.0},
        {"clip_norm": -1.0},
        {"relaxation": 0.0},
        {"relaxation": 1.5},
        {"relaxation": True},
        {"tolerance": 0.0},
        {"max_contributions": 0},
        {"max_contributions": 2.5},
    ],
)
def test_knobs_out_of_range_are_refused(make, knob):
    with pytest.raises(ValueError, match=f"Got {next(iter(knob))}="):
        make(**knob).check(facts_of([5, 6]))
    with pytest.raises(ValueError, match="Got tail_fraction=0"):
        RandomWalkADMM(tail_fraction=0).check(facts_of([5, 6]))


@pytest.mark.parametrize("make", ALGORITHMS)
def test_a_clip_that_binds_in_a_vector_of_scores_is_refused(make):
    facts = facts_of([20, 20], loss=MultinomialLoss(3))
    with pytest.raises(ValueError, match="for 3 scores, expected at least"):
        make(clip_norm=0.1).plan(facts, BUDGET)
    assert make().plan(facts, BUDGET).settings.clip_norm > 0.5


def test_a_hop_that_is_left_out_is_noticed(monkeypatch):
    X, y = problem_data(SquaredLoss())
    for module, make in ((walk_point, RandomWalkProximalPoint), (walk_admm, RandomWalkADMM)):
        shorter = lambda *arguments: walk_point_hops(*arguments)  # noqa: E731
        monkeypatch.setattr(module, "draw_hops", shorter)
        with pytest.raises(PlanViolation, match="39 times, expected 40"):
            run(make(), X, y, OWNER)


def walk_point_hops(facts, cap, gate):
    hops = draw_hops(facts, cap, gate)
    return type(hops)(hops.holder[:-1], hops.contributes[:-1])


# With noise.


@pytest.mark.parametrize("name", ["random-walk-admm", "random-walk-proximal-point"])
def test_estimators_learn_by_their_defaults(name):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (4000, 3))
    y = np.clip(X @ [1.0, -0.6, 0.0] + 0.2 * rng.standard_normal(4000), -2, 2)
    best = 1 - 0.04 / y.var()
    model = DPDecentralizedRegressor(
        algorithm=name, feature_bounds=(-1, 1), target_bounds=(-2, 2), max_iter=30, random_state=0
    )
    for epsilon, least in ((3.0, 0.9 * best), (1000.0, best - 0.01)):
        fitted = clone(model).set_params(epsilon=epsilon).fit(X, y)
        assert fitted.score(X, y) > least
        assert fitted.consensus_error_ < 0.3
    classifier = DPDecentralizedClassifier(
        algorithm=name, feature_bounds=(-1, 1), classes=[0, 1], max_iter=30, random_state=0
    )
    labels = (y > 0).astype(int)
    assert classifier.set_params(epsilon=3.0).fit(X, labels).score(X, labels) > 0.85


@pytest.mark.parametrize("name", ["random-walk-admm", "random-walk-proximal-point"])
def test_classifiers_with_much_signal_get_close_to_the_optimum(name):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (4000, 3))
    y = (rng.random(4000) < expit(X @ [8.0, -5.0, 0.0] + 1.0)).astype(int)
    best = LogisticRegression(C=1e4).fit(X, y)
    model = DPDecentralizedClassifier(
        algorithm=name, epsilon=1000.0, feature_bounds=(-1, 1), classes=[0, 1], max_iter=30,
        random_state=0,
    ).fit(X, y)  # fmt: skip
    excess = log_loss(y, model.predict_proba(X)) - log_loss(y, best.predict_proba(X))
    assert excess < 0.03


def test_an_l1_penalty_leaves_zeros_beside_the_noise(monkeypatch):
    monkeypatch.undo()
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (4000, 6))
    y = np.clip(X[:, 0] + 0.1 * rng.standard_normal(4000), -2, 2)
    for name in ("random-walk-admm", "random-walk-proximal-point"):
        model = DPDecentralizedRegressor(
            algorithm=name, penalty="l1", alpha=0.02, epsilon=10.0, feature_bounds=(-1, 1),
            target_bounds=(-2, 2), max_iter=30, random_state=0,
        ).fit(X, y)  # fmt: skip
        assert model.coef_[0] > 0.5
        assert np.count_nonzero(model.coef_) < 4
