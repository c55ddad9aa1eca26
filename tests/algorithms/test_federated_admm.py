"""Federated ADMM without noise and with known noise: what it computes, and where it goes."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pytest
from scipy.special import expit, softmax
from sklearn.base import clone
from sklearn.linear_model import ElasticNet as SklearnElasticNet
from sklearn.linear_model import Lasso, LogisticRegression, Ridge

import skdpadmm.algorithms._federated_admm as federated
import skdpadmm.algorithms.blocks._record_blocks as record_blocks
from skdpadmm.algorithms import FederatedADMM
from skdpadmm.algorithms.blocks._agent_blocks import clip_vectors
from skdpadmm.algorithms.planning._messages import Schedule, draw_schedule, plan_rounds
from skdpadmm.engine import Engine
from skdpadmm.losses import LogisticLoss, MultinomialLoss, SquaredLoss
from skdpadmm.network import ownership_of_labels
from skdpadmm.penalties import L1, ElasticNet, NoPenalty, SquaredL2
from skdpadmm.privacy import Neighboring
from skdpadmm.protocol import Budget, Facts, Federation, Gate, PlanViolation, Problem
from skdpadmm.records import Rows, declared_coordinates

LOSSES = {
    "squared": SquaredLoss(),
    "logistic": LogisticLoss(),
    "multinomial": MultinomialLoss(3),
}
BUDGET = Budget(epsilon=1.0, delta=1e-5, observer="server")
WIDE_OPEN = 1e8  # a clip bound that never binds


@pytest.fixture(autouse=True)
def keep_noise(monkeypatch):
    """What is planned as noise is not what these tests add, so nothing is taken for it."""
    monkeypatch.setattr(federated, "drop_noise", lambda parameters, rows, variance: parameters)


@dataclass
class KnownNoise:
    """Adds noise that a test knows (none by default); draws who takes part by a seed.

    Releases come in units of the clip bound of a displacement; noise here does not.
    """

    noise: np.ndarray | None = None
    simulation: bool = True
    unit: float = 1.0
    values: list = field(default_factory=list)

    def add_gaussian(self, value, scale, stream):
        self.values.append(value * self.unit)
        return value if self.noise is None else value + self.noise[stream[-1]] / self.unit

    def uniform(self, shape, stream):
        return np.random.default_rng(stream).random(shape)


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


def facts_of(sizes, *, n_parameters=4, loss=LOSSES["squared"], penalty=None, **changed):
    trust = {k: changed.pop(k) for k in ("participation", "dropout", "epsilons") if k in changed}
    arguments = {
        "n_samples": sum(sizes),
        "n_parameters": n_parameters,
        "loss": loss,
        "penalty": penalty or L1(0.1),
        "neighboring": Neighboring.REPLACE_ONE,
        "row_norm": math.sqrt(n_parameters),
        "rounding": 1.0,
        "max_iter": 50,
        "agents": Federation(
            agent_sizes=tuple(sizes),
            n_honest=changed.pop("n_honest", len(sizes) // 2 + 1),
            **trust,
        ),
    }
    return Facts(**(arguments | changed))


def run(
    algorithm, X, y, owner, *, loss, penalty, max_iter, unit="record", noise=None, n_jobs=None,
    fit_intercept=True, bounds=None, progress=lambda done: None, **trust,
):  # fmt: skip
    """Run the algorithm without an estimator around it; targets are in public coordinates."""
    c = declared_coordinates(
        n_features=X.shape[1],
        fit_intercept=fit_intercept,
        feature_bounds=bounds,
        has_target_scale=False,
    )
    ownership = ownership_of_labels(owner, n_samples=len(X))
    facts = facts_of(
        ownership.sizes.tolist(), n_parameters=c.n_parameters, loss=loss, penalty=penalty,
        row_norm=c.row_norm, max_iter=max_iter, unit=unit, **trust,
    )  # fmt: skip
    plan = algorithm.plan(facts, BUDGET)
    source, rows = noise or KnownNoise(), Rows(X, c)
    source.unit = plan.settings.step_size * plan.settings.clip_norm * rows.typical_norm
    gate = Gate(plan, source)
    with Engine(n_jobs).running() as engine:
        problem = Problem(
            rows=rows, target=y, engine=engine, ownership=ownership, progress=progress
        )
        solution = algorithm.run(plan, problem, gate)
    gate.close()
    return solution, plan, rows


# The reference: the algorithm of the docstring, with one state vector for each block.


def plain_slopes(loss, scores, y):
    if isinstance(loss, SquaredLoss):
        return scores - y[:, None]
    if isinstance(loss, LogisticLoss):
        return -y[:, None] * expit(-y[:, None] * scores)
    return softmax(scores, axis=1) - np.eye(scores.shape[1])[y]


def mean_gradient(loss, A, y, x):
    return A.T @ plain_slopes(loss, A @ x, y) / len(A)


def proximal_point(loss, A, y, gamma, v):
    """Newton's method with a Jacobian by differences, which only has to point the right way."""
    x = v.copy()
    for _ in range(60):
        residual = gamma * mean_gradient(loss, A, y, x) + x - v
        if np.abs(residual).max() < 1e-13:
            break
        jacobian = np.eye(x.size)
        for j in range(x.size):
            moved = x.copy().ravel()
            moved[j] += 1e-6
            rise = mean_gradient(loss, A, y, moved.reshape(x.shape)) - mean_gradient(loss, A, y, x)
            jacobian[:, j] += gamma * rise.ravel() / 1e-6
        step = np.linalg.solve(jacobian, residual.ravel()).reshape(x.shape)
        x = x - step / max(1.0, np.abs(step).max())
    return x


def clipped(vector, bound):
    size = np.linalg.norm(vector)
    return vector if size <= bound else vector * (bound / size)


def soft_threshold(point, l1, l2, step):
    result = point.copy()
    w = point[:-1]
    result[:-1] = np.sign(w) * np.maximum(np.abs(w) - step * l1, 0) / (1 + step * l2)
    return result


def naive_path(
    X, y, owner, takes_part, *, loss, l1, l2, gamma, lam, clip_norm, noise, unit, message, exact,
    arriving,
):  # fmt: skip
    """The mean of states that the server keeps, round by round; and how often a clip was met."""
    A = np.column_stack([X, np.ones(len(X))])
    n, shape = len(X), (A.shape[1], loss.n_outputs)
    n_agents = takes_part.shape[1]
    if unit == "record":
        blocks, owners, limits = [[i] for i in range(n)], owner, np.ones(n)
    else:
        blocks = [np.flatnonzero(owner == a) for a in range(n_agents)]
        owners = np.arange(n_agents)
        sizes = np.array([len(block) for block in blocks])
        limits = np.minimum(sizes, 2 * n / n_agents) / sizes
    centers = np.zeros((len(blocks), *shape))
    displacements = np.zeros((len(blocks), *shape))
    center, z, mean = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    path, n_clipped = [], 0
    for k, active in enumerate(takes_part):
        if not active.any():
            path.append(mean)
            continue
        total = np.zeros(shape)
        for b, rows in enumerate(blocks):
            if not active[owners[b]]:
                continue
            u, bound = centers[b] - displacements[b], gamma * clip_norm * limits[b]
            v = 2 * z - u
            d = (
                v - proximal_point(loss, A[rows], y[rows], gamma, v)
                if exact
                else gamma * mean_gradient(loss, A[rows], y[rows], z)
            )
            share = len(rows) / n
            old = displacements[b].copy()
            if message == "increment" and unit == "agent":
                step = z - u - d
                n_clipped += np.linalg.norm(step) > bound
                change = 2 * lam * clipped(step, bound)
                centers[b] += change
                total += share * change
                continue
            n_clipped += np.linalg.norm(d) > bound
            d = clipped(d, bound)
            moved = 2 * lam * (z - centers[b])
            centers[b] += moved
            if message == "state":
                displacements[b] = (1 - 2 * lam) * old + 2 * lam * d
                total -= share * displacements[b]
            else:
                change = 2 * lam * clipped(d - old, bound)
                displacements[b] = old + change
                total += share * (moved - change)
        sign = 1 if unit == "agent" and message == "increment" else -1
        if message == "state":
            center = (1 - 2 * lam) * center + 2 * lam * z
            mean = center + (total + sign * noise[k]) / arriving
        else:
            mean = mean + total + sign * noise[k]
        path.append(mean)
        z = soft_threshold(mean, l1, l2, gamma)
    return np.array(path), n_clipped


OWNER = np.random.default_rng(9).permutation(np.repeat([0, 1, 2, 3], [16, 4, 3, 2]))
SOME = np.random.default_rng(5).random((7, 4)) < 0.6
SOME[3] = False  # nobody


@pytest.mark.parametrize("everyone", [True, False], ids=["everyone", "some"])
@pytest.mark.parametrize("exact", [True, False], ids=["exact", "linearized"])
@pytest.mark.parametrize("message", ["state", "increment"])
@pytest.mark.parametrize("unit", ["record", "agent"])
@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_a_round_equals_the_algorithm_with_one_state_vector_for_each_block(
    loss, unit, message, exact, everyone, monkeypatch
):
    monkeypatch.setattr(record_blocks, "WARM_STEPS", 10)
    X, y = problem_data(loss, n=25)
    takes_part = np.ones((7, 4), dtype=bool) if everyone else SOME
    if not everyone:
        schedule = Schedule(takes_part=takes_part, sends=takes_part)
        monkeypatch.setattr(federated, "draw_schedule", lambda *arguments: schedule)
    lam = 0.5 if message == "state" and not everyone else 0.3
    gamma = 1.7
    clip_norm = 0.3 if isinstance(loss, LogisticLoss) else 0.5 if exact else 0.7
    noise = 0.05 * np.random.default_rng(1).normal(size=(7, 4, loss.n_outputs))
    path, n_clipped = naive_path(
        X, y, OWNER, takes_part, loss=loss, l1=0.03, l2=0.1, gamma=gamma, lam=lam,
        clip_norm=clip_norm, noise=noise, unit=unit, message=message, exact=exact,
        arriving=1.0 if everyone else 0.5,
    )  # fmt: skip
    assert 0 < n_clipped < takes_part.sum() * (25 if unit == "record" else 1)
    algorithm = FederatedADMM(
        step_size=gamma, clip_norm=clip_norm / 2, relaxation=lam, message=message,
        local_step="exact" if exact else "linearized", tail_fraction=1e-9,
    )  # fmt: skip
    solution, _, rows = run(
        algorithm, X, y, OWNER, loss=loss, penalty=ElasticNet(0.03, 0.1), max_iter=7, unit=unit,
        noise=KnownNoise(noise), participation=1.0 if everyone else 0.5,
    )  # fmt: skip
    assert rows.typical_norm == 2.0
    expected = soft_threshold(path[-1], 0.03, 0.1, gamma)
    np.testing.assert_allclose(solution.parameters, expected, rtol=0, atol=1e-9)
    assert solution.n_iter == (7 if everyone else 6)


def test_the_tail_of_the_rounds_that_took_place_is_averaged(monkeypatch):
    loss = SquaredLoss()
    X, y = problem_data(loss, n=25)
    takes_part = np.ones((8, 4), dtype=bool)
    takes_part[6] = False
    schedule = Schedule(takes_part=takes_part, sends=takes_part)
    monkeypatch.setattr(federated, "draw_schedule", lambda *arguments: schedule)
    noise = 0.1 * np.random.default_rng(2).normal(size=(8, 4, 1))
    path, _ = naive_path(
        X, y, OWNER, takes_part, loss=loss, l1=0.05, l2=0.0, gamma=0.9, lam=0.5, clip_norm=1e9,
        noise=noise, unit="record", message="state", exact=True, arriving=0.75,
    )  # fmt: skip
    algorithm = FederatedADMM(step_size=0.9, clip_norm=5e8, tail_fraction=0.5)
    solution, _, _ = run(
        algorithm, X, y, OWNER, loss=loss, penalty=L1(0.05), max_iter=8, noise=KnownNoise(noise),
        participation=0.75,
    )  # fmt: skip
    expected = soft_threshold(path[[4, 5, 7]].mean(axis=0), 0.05, 0.0, 0.9)
    np.testing.assert_allclose(solution.parameters, expected, rtol=0, atol=1e-10)


# Where it goes.


PROBLEMS = {
    "lasso": (SquaredLoss(), L1(0.05)),
    "ridge": (SquaredLoss(), SquaredL2(0.2)),
    "elastic net": (SquaredLoss(), ElasticNet(0.03, 0.1)),
    "logistic": (LogisticLoss(), SquaredL2(0.1)),
    "multinomial": (MultinomialLoss(3), SquaredL2(0.1)),
}


def optimum(name, X, y):
    """What scikit-learn finds for the mean loss of all rows plus the penalty; (p + 1, K)."""
    n = len(X)
    model = {
        "lasso": lambda: Lasso(alpha=0.05, tol=1e-14, max_iter=10**6),
        "ridge": lambda: Ridge(alpha=0.2 * n, solver="cholesky"),
        "elastic net": lambda: SklearnElasticNet(alpha=0.13, l1_ratio=0.03 / 0.13, tol=1e-14),
        "logistic": lambda: LogisticRegression(C=10 / n, solver="newton-cg", tol=1e-12),
        "multinomial": lambda: LogisticRegression(C=10 / n, solver="newton-cg", tol=1e-12),
    }[name]()
    model.fit(X, y)
    return np.vstack([np.atleast_2d(model.coef_).T, np.atleast_1d(model.intercept_)[None]])


def comparable(parameters):
    """Intercepts of all classes may move together at no cost."""
    result = parameters.copy()
    if result.shape[1] > 1:
        result[-1] -= result[-1].mean()
    return result


def distance_to_optimum(name, algorithm, *, n=60, n_agents=6, max_iter, owner=None, **options):
    """Of the last iterate; agents are of unequal sizes."""
    loss, penalty = PROBLEMS[name]
    X, y = problem_data(loss, n=n)
    if owner is None:
        owner = np.minimum(np.arange(n) // 4, n_agents - 1)
    solution, _, _ = run(
        clone(algorithm).set_params(clip_norm=WIDE_OPEN, tail_fraction=1e-9),
        X, y, owner, loss=loss, penalty=penalty, max_iter=max_iter, **options,
    )  # fmt: skip
    return np.abs(comparable(solution.parameters) - comparable(optimum(name, X, y))).max()


@pytest.mark.parametrize("step", ["exact", "linearized"])
@pytest.mark.parametrize("message", ["state", "increment"])
@pytest.mark.parametrize("unit", ["record", "agent"])
@pytest.mark.parametrize("name", PROBLEMS)
def test_without_noise_and_clipping_it_reaches_the_optimum_of_scikit_learn(
    name, unit, message, step
):
    algorithm = FederatedADMM(
        step_size=3.0 if step == "exact" else 0.7, message=message, local_step=step
    )
    assert distance_to_optimum(name, algorithm, unit=unit, max_iter=600) < 1e-6


@pytest.mark.parametrize("relaxation", [0.3, 0.5, 0.8])
@pytest.mark.parametrize("message", ["state", "increment"])
@pytest.mark.parametrize("unit", ["record", "agent"])
def test_every_relaxation_reaches_the_optimum(unit, message, relaxation):
    algorithm = FederatedADMM(step_size=3.0, message=message, relaxation=relaxation)
    assert distance_to_optimum("lasso", algorithm, unit=unit, max_iter=600) < 1e-6


@pytest.mark.parametrize(
    ("sampling", "trust"),
    [
        ("poisson", {"participation": 0.3}),
        ("fixed", {"participation": 0.3}),
        ("poisson", {"dropout": 0.2}),
    ],
    ids=str,
)
@pytest.mark.parametrize("unit", ["record", "agent"])
@pytest.mark.parametrize("name", ["lasso", "ridge", "logistic"])
def test_increments_reach_the_optimum_though_agents_sit_rounds_out(name, unit, sampling, trust):
    algorithm = FederatedADMM(step_size=3.0, message="increment", sampling=sampling)
    assert distance_to_optimum(name, algorithm, unit=unit, max_iter=1000, **trust) < 1e-6


@pytest.mark.parametrize("unit", ["record", "agent"])
def test_states_of_those_who_take_part_stand_for_those_of_all_on_average_alone(unit):
    # A fresh sample in each round is noise of its own: it goes where the step does.
    exact = FederatedADMM(step_size=3.0)
    error = distance_to_optimum("ridge", exact, unit=unit, max_iter=600, participation=0.5)
    assert 1e-4 < error < 5.0


def test_the_algorithm_as_it_was_printed_goes_to_zero_and_this_one_to_the_lasso():
    loss, _ = PROBLEMS["lasso"]
    X, y = problem_data(loss)
    A, owner, gamma = np.column_stack([X, np.ones(60)]), np.arange(60) % 6, 3.0
    u, z = np.zeros((6, 4, 1)), np.zeros((4, 1))
    for _ in range(500):
        change = np.zeros((4, 1))
        for a in range(6):
            mine = owner == a
            x = proximal_point(loss, A[mine], y[mine], gamma, 2 * z - u[a])
            u[a] += x - z
            change += (x - z) / 6
        # As printed, changes of states are added to the point after the proximal step.
        z = soft_threshold(z + change, 0.05, 0.0, gamma)
    best = optimum("lasso", X, y)
    assert np.abs(best[:-1]).max() > 0.1
    np.testing.assert_allclose(z[:-1], 0.0, atol=1e-6)
    algorithm = FederatedADMM(step_size=gamma, message="increment")
    error = distance_to_optimum("lasso", algorithm, owner=owner, unit="agent", max_iter=600)
    assert error < 1e-6


@pytest.mark.parametrize("message", ["state", "increment"])
@pytest.mark.parametrize("relaxation", [0.3, 0.5, 0.7])
def test_agents_converge_linearly_on_a_strongly_convex_problem(message, relaxation):
    algorithm = FederatedADMM(step_size=2.0, message=message, relaxation=relaxation)
    distance = [
        distance_to_optimum("ridge", algorithm, unit="agent", max_iter=k)
        for k in (20, 40, 60, 80, 100)
    ]
    # At least a factor of 4 in 20 rounds, until rounding.
    assert all(b <= a / 4 + 1e-12 for a, b in pairwise(distance))
    assert distance[-1] < 1e-3 * distance[0]


@pytest.mark.parametrize(
    "owner",
    [np.zeros(30, dtype=int), np.arange(30), np.arange(30) < 29],
    ids=["one agent", "an agent for each row", "an agent with one row"],
)
@pytest.mark.parametrize("message", ["state", "increment"])
@pytest.mark.parametrize("name", ["lasso", "logistic"])
def test_any_number_of_agents_reaches_the_optimum(name, message, owner):
    algorithm = FederatedADMM(step_size=3.0, message=message)
    options = {"owner": owner, "unit": "agent", "n": 30, "max_iter": 120}
    assert distance_to_optimum(name, algorithm, **options) < 1e-5


def test_agents_with_one_class_each_reach_the_optimum():
    _, y = problem_data(LogisticLoss())
    owner = np.where(y > 0, 0, 1)
    algorithm = FederatedADMM(step_size=3.0)
    options = {"owner": owner, "unit": "agent", "max_iter": 1000}
    assert distance_to_optimum("logistic", algorithm, **options) < 1e-5


@pytest.mark.parametrize("local_step", ["exact", "linearized"])
@pytest.mark.parametrize("message", ["state", "increment"])
@pytest.mark.parametrize("unit", ["record", "agent"])
@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_a_message_never_exceeds_the_clip_bound(loss, unit, message, local_step):
    X, y = problem_data(loss)
    gamma, clip_norm, owner = 1.5, 0.05, np.arange(60) % 5
    noise = np.random.default_rng(3).normal(size=(12, 4, loss.n_outputs))
    for lam in (0.3, 0.5, 0.9):
        algorithm = FederatedADMM(
            step_size=gamma, clip_norm=clip_norm / 2, relaxation=lam, message=message,
            local_step=local_step,
        )  # fmt: skip
        source = KnownNoise(noise)
        run(
            algorithm, 100 * X, y, owner, loss=loss, penalty=NoPenalty(), max_iter=12,
            noise=source, unit=unit,
        )  # fmt: skip
        largest = max(np.linalg.norm(value) for value in source.values)
        reach = 2 * lam if message == "increment" else 1.0 if lam <= 0.5 else lam / (1 - lam)
        assert 0 < largest <= reach * gamma * clip_norm * (1 + 1e-9)


@pytest.mark.parametrize("message", ["state", "increment"])
def test_a_large_agent_weighs_no_more_than_two_average_ones(message):
    # One agent has nearly everything: alone with its rows it would decide alone.
    loss, X = SquaredLoss(), np.ones((100, 1))
    y, owner = np.full(100, 1e6), np.repeat([0, 1, 2, 3], [97, 1, 1, 1])
    y[97:] = 0.0
    algorithm = FederatedADMM(step_size=1.0, clip_norm=1.0, message=message, tail_fraction=1e-9)
    source = KnownNoise()
    run(
        algorithm, X, y, owner, loss=loss, penalty=NoPenalty(), max_iter=1, unit="agent",
        noise=source,
    )  # fmt: skip
    bound = source.unit * (2.0 / 4)  # of the mean, in records: 2 n / N of n
    assert np.linalg.norm(source.values[0]) <= bound * (1 + 1e-9)
    assert np.linalg.norm(source.values[0]) == pytest.approx(bound)


# Extremes.


@pytest.mark.parametrize("step_size", [1e-6, 1e6])
@pytest.mark.parametrize("scale", [0.0, 1e-200, 1.0, 1e200])
@pytest.mark.parametrize("message", ["state", "increment"])
@pytest.mark.parametrize("unit", ["record", "agent"])
@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_extreme_steps_and_rows_end_in_finite_parameters(loss, unit, message, scale, step_size):
    X, y = problem_data(loss, n=12)
    algorithm = FederatedADMM(step_size=step_size, clip_norm=0.3, message=message)
    with np.errstate(all="ignore"):
        solution, _, _ = run(
            algorithm, scale * X, y, np.arange(12) % 3, loss=loss, penalty=L1(0.01), max_iter=5,
            unit=unit, participation=0.7,
        )  # fmt: skip
    assert np.isfinite(solution.parameters).all()


@pytest.mark.parametrize("unit", ["record", "agent"])
def test_where_every_message_is_lost_nothing_is_learnt(unit, monkeypatch):
    nobody = np.zeros((5, 3), dtype=bool)
    schedule = Schedule(takes_part=nobody, sends=nobody)
    monkeypatch.setattr(federated, "draw_schedule", lambda *arguments: schedule)
    loss = SquaredLoss()
    X, y = problem_data(loss, n=12)
    solution, _, _ = run(
        FederatedADMM(), X, y, np.arange(12) % 3, loss=loss, penalty=L1(0.01), max_iter=5,
        unit=unit, dropout=0.5,
    )  # fmt: skip
    np.testing.assert_array_equal(solution.parameters, 0.0)
    assert solution.n_iter == 0
    assert solution.n_messages == 15  # of the server, which nobody answers


def test_vectors_are_clipped_each_by_itself():
    vectors = np.array([[[3.0], [4.0]], [[0.3], [0.4]], [[0.0], [0.0]], [[1e200], [0.0]]])
    bounds = np.array([1.0, 1.0, 1.0, 2.0])
    expected = np.array([[[0.6], [0.8]], [[0.3], [0.4]], [[0.0], [0.0]], [[2.0], [0.0]]])
    np.testing.assert_allclose(clip_vectors(vectors, bounds), expected, rtol=1e-15)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_vector_that_is_not_finite_becomes_zero_and_leaves_others_alone(bad):
    vectors = np.array([[[3.0], [4.0]], [[bad], [1.0]]])
    found = clip_vectors(vectors, np.array([10.0, 10.0]))
    np.testing.assert_array_equal(found, [[[3.0], [4.0]], [[0.0], [0.0]]])


@pytest.mark.parametrize("size", [5e-324, 1e-160, 1e160, 1.7e308])
def test_vectors_of_any_size_obey_the_bound(size):
    vectors = np.full((1, 5, 3), size)
    with np.errstate(all="ignore"):  # as in every part that an engine calls
        found = clip_vectors(vectors, np.array([0.5]))
    assert np.isfinite(found).all()
    assert np.linalg.norm(found) <= 0.5 * (1 + 1e-12)
    if size < 1e-100:
        np.testing.assert_allclose(found, vectors, rtol=1e-12, atol=1e-323)


# Plans and schedules.


@pytest.mark.parametrize("observer", ["server", "sums", "model"])
@pytest.mark.parametrize("message", ["state", "increment"])
@pytest.mark.parametrize("unit", ["record", "agent"])
@pytest.mark.parametrize(
    "trust", [{}, {"participation": 0.5}, {"dropout": 0.3}, {"n_honest": 1}], ids=str
)
def test_a_plan_spends_the_budget_and_not_more(trust, unit, message, observer):
    facts = facts_of([30, 20, 10, 5], unit=unit, max_iter=20, **trust)
    budget = Budget(epsilon=1.0, delta=1e-5, observer=observer)
    plan = FederatedADMM(message=message).plan(facts, budget)
    spent = [guarantee.delta(1.0) for guarantee in plan.guarantees(observer)]
    assert 0.99e-5 < max(spent) <= 1e-5 * (1 + 1e-9)
    assert plan.releases[0].times == 20


def test_knobs_arrive_in_the_settings():
    algorithm = FederatedADMM(
        step_size=2, clip_norm=3, relaxation=0.25, local_step="linearized", message="increment",
        sampling="fixed", max_participations=7, tail_fraction=0.1,
    )  # fmt: skip
    plan = algorithm.plan(facts_of([20, 20, 20]), BUDGET)
    settings = {f.name: getattr(plan.settings, f.name) for f in dataclasses.fields(plan.settings)}
    rounds = settings.pop("rounds")
    assert settings == {
        "step_size": 2.0, "clip_norm": 3.0, "relaxation": 0.25, "local_step": "linearized",
        "message": "increment", "n_averaged": 1,
    }  # fmt: skip
    # Where everyone takes part in each round, the run is as long as an agent may take part.
    assert (rounds.n_rounds, rounds.cap, rounds.sampling) == (7, None, "fixed")
    assert plan.releases[0].times == 7


OUT_OF_RANGE = {
    "step_size": [0, -1.0, math.inf, math.nan, "big", None, True],
    "clip_norm": [0.0, -1, math.inf, math.nan, "none", None, False],
    "relaxation": [0, 1, -0.1, 1.5, math.nan, "half", None, True],
    "tail_fraction": [0, -0.5, 1.1, math.nan, "all", None, True],
    "local_step": ["Exact", "inexact", None, 1],
    "message": ["states", "increments", None, 1],
    "sampling": ["uniform", "Poisson", None, 1],
    "max_participations": [0, -1, 1.5, "3", True],
}


@pytest.mark.parametrize(
    ("knob", "value"), [(knob, value) for knob, values in OUT_OF_RANGE.items() for value in values]
)
def test_a_knob_out_of_range_is_refused_with_what_was_expected(knob, value):
    algorithm = FederatedADMM(**{knob: value})
    with pytest.raises(ValueError, match=f"^Got {knob}=.*, expected .*[.]$"):
        algorithm.plan(facts_of([3, 3]), BUDGET)


@pytest.mark.parametrize("trust", [{"participation": 0.5}, {"dropout": 0.1}], ids=str)
def test_states_of_agents_that_sit_rounds_out_need_relaxation_one_half(trust):
    facts = facts_of([30, 30], **trust)
    with pytest.raises(ValueError, match=r"^Got relaxation=0\.4 .* Use 0\.5, or message='incre"):
        FederatedADMM(relaxation=0.4).plan(facts, BUDGET)
    FederatedADMM(relaxation=0.4, message="increment").plan(facts, BUDGET)


def test_knobs_are_parameters_of_scikit_learn():
    algorithm = FederatedADMM(relaxation=0.7)
    copy = clone(algorithm)
    assert copy is not algorithm
    assert copy.get_params() == algorithm.get_params()
    assert copy.set_params(step_size=2.0).step_size == 2.0
    assert repr(FederatedADMM()) == "FederatedADMM()"


def schedule_of(*, n_agents=20, n_rounds=400, sampling="poisson", cap=None, observer="server",
                **trust):  # fmt: skip
    facts = facts_of([1] * n_agents, max_iter=n_rounds, **trust)
    rounds = plan_rounds(
        facts.agents, max_rounds=n_rounds, sampling=sampling, cap=cap, observer=observer
    )
    algorithm = FederatedADMM(sampling=sampling, max_participations=cap)
    gate = Gate(algorithm.plan(facts, BUDGET), KnownNoise())
    return draw_schedule(rounds, facts.agents, gate), rounds


def test_everyone_takes_part_where_nobody_sits_out_or_drops_out():
    schedule, rounds = schedule_of()
    assert schedule.takes_part.all()
    assert schedule.sends.all()
    assert rounds.fewest == 20


def test_a_fixed_number_of_agents_takes_part():
    schedule, rounds = schedule_of(sampling="fixed", participation=0.3)
    assert (schedule.takes_part.sum(axis=1) == 6).all()
    np.testing.assert_array_equal(schedule.takes_part, schedule.sends)
    assert rounds.fewest == 6
    # Every agent has its turn.
    assert np.abs(schedule.takes_part.mean(axis=0) - 0.3).max() < 6 * math.sqrt(0.21 / 400)


def test_a_share_of_less_than_half_an_agent_is_one_agent():
    schedule, _ = schedule_of(n_agents=3, sampling="fixed", participation=0.01)
    assert (schedule.takes_part.sum(axis=1) == 1).all()


def test_agents_are_drawn_one_by_one():
    schedule, _ = schedule_of(participation=0.3)
    assert np.abs(schedule.takes_part.mean() - 0.3) < 6 * math.sqrt(0.21 / 8000)
    assert len(set(schedule.takes_part.sum(axis=1))) > 3


def test_no_agent_takes_part_more_often_than_the_cap():
    schedule, rounds = schedule_of(participation=0.3, cap=5)
    assert schedule.takes_part.sum(axis=0).max() == 5
    assert len(schedule.takes_part) == rounds.n_rounds == math.ceil(5 / 0.3)


@pytest.mark.parametrize("observer", ["sums", "model"])
def test_against_sums_and_the_model_everyone_sends_noise(observer):
    schedule, rounds = schedule_of(participation=0.3, observer=observer)
    assert schedule.sends.all()
    assert not schedule.takes_part.all()
    assert rounds.fewest == 20


@pytest.mark.parametrize("observer", ["server", "sums", "model"])
def test_rounds_with_too_few_messages_are_void_and_few(observer):
    schedule, rounds = schedule_of(dropout=0.3, observer=observer)
    arrived = schedule.sends.sum(axis=1)
    assert ((arrived == 0) | (arrived >= rounds.fewest)).all()
    assert not (schedule.takes_part & ~schedule.sends).any()
    assert 0 < rounds.fewest < 20
    assert np.mean(arrived == 0) < 0.05


def test_the_gate_refuses_a_sum_of_fewer_messages_than_planned():
    facts = facts_of([1] * 20, dropout=0.3)
    plan = FederatedADMM().plan(facts, BUDGET)
    gate = Gate(plan, KnownNoise())
    fewest = plan.settings.rounds.fewest
    with pytest.raises(PlanViolation, match="their noise is too little"):
        gate.release(federated.MESSAGES, np.zeros((4, 1)), np.arange(20) < fewest - 1)
    gate.release(federated.MESSAGES, np.zeros((4, 1)), np.arange(20) < fewest)


def test_progress_hears_of_rounds_and_of_nothing_else():
    heard = []
    loss = SquaredLoss()
    X, y = problem_data(loss, n=12)
    run(
        FederatedADMM(), X, y, np.arange(12) % 3, loss=loss, penalty=L1(0.1), max_iter=5,
        progress=heard.append,
    )  # fmt: skip
    assert heard == [1, 2, 3, 4, 5]
    assert all(type(done) is int for done in heard)
