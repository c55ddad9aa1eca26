"""Multi-step ADMM without noise and with known noise: what it computes, and where it goes."""

from __future__ import annotations

import dataclasses
import math
import re
from dataclasses import dataclass, field

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit, softmax
from sklearn.linear_model import Lasso, LogisticRegression, Ridge

import skdpadmm.algorithms._multi_step_admm as multi_step
import skdpadmm.algorithms.blocks._network_steps as network_steps
from skdpadmm.algorithms import MultiStepADMM, multi_step_bound, useful_steps
from skdpadmm.engine import Engine
from skdpadmm.losses import LogisticLoss, MultinomialLoss, SquaredLoss
from skdpadmm.network import TOPOLOGIES, Topology, ownership_of_labels, resolve_topology
from skdpadmm.noise import CryptographicNoise
from skdpadmm.penalties import L1, ElasticNet, NoPenalty, SquaredL2
from skdpadmm.privacy import GaussianDP, Neighboring, gaussian_mu
from skdpadmm.protocol import Budget, Facts, Gate, Network, Problem
from skdpadmm.records import Rows, declared_coordinates

LOSSES = {
    "squared": SquaredLoss(),
    "logistic": LogisticLoss(),
    "multinomial": MultinomialLoss(3),
}
BUDGET = Budget(epsilon=1.0, delta=1e-5, observer="eavesdropper")
WIDE_OPEN = 1e6  # a clip bound that never binds


@pytest.fixture(autouse=True)
def keep_noise(monkeypatch):
    """What is planned as noise is not what these tests add, so nothing is taken for it."""
    monkeypatch.setattr(network_steps, "drop_noise", lambda parameters, rows, variance: parameters)


@dataclass
class KnownNoise:
    """Adds standard noise that a test knows (none by default), and remembers what it drew."""

    noise: np.ndarray | None = None
    simulation: bool = True
    drawn: list = field(default_factory=list)

    def add_gaussian(self, value, scale, stream):
        assert scale == 1.0
        return value if self.noise is None else value + self.noise[stream[-1]]

    def uniform(self, shape, stream):
        self.drawn.append(np.random.default_rng(stream).random(shape))
        return self.drawn[-1]


@dataclass
class Trace:
    """Points before and models after the proximal steps, and broadcasts."""

    points: list = field(default_factory=list)
    models: list = field(default_factory=list)
    curvatures: list = field(default_factory=list)
    broadcasts: list = field(default_factory=list)


@pytest.fixture
def trace(monkeypatch):
    seen = Trace()
    made = multi_step.proximal_steps

    def spied(facts, rows):
        proximal = made(facts, rows)

        def step(points, curvature):
            seen.points.append(points.copy())
            seen.curvatures.append(curvature.copy())
            seen.models.append(proximal(points, curvature).copy())
            return seen.models[-1]

        return step

    neighbor_sum = Topology.neighbor_sum

    def summed(self, values):
        seen.broadcasts.append(values.copy())
        return neighbor_sum(self, values)

    monkeypatch.setattr(multi_step, "proximal_steps", spied)
    monkeypatch.setattr(Topology, "neighbor_sum", summed)
    return seen


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


def graph(topology, n_agents):
    return resolve_topology(topology, np.arange(n_agents))


def facts_of(sizes, *, topology="ring", n_parameters=4, loss=LOSSES["squared"], **changed):
    network = Network(
        agent_sizes=tuple(sizes),
        topology=graph(topology, len(sizes)) if isinstance(topology, str) else topology,
        epsilons=changed.pop("epsilons", ()),
        sizes_matter=changed.get("unit") == "agent",
    )
    arguments = {
        "n_samples": sum(sizes),
        "n_parameters": n_parameters,
        "loss": loss,
        "penalty": L1(0.1),
        "neighboring": Neighboring.REPLACE_ONE,
        "row_norm": math.sqrt(n_parameters),
        "rounding": 1.0,
        "max_iter": 50,
        "agents": network,
    }
    return Facts(**(arguments | changed))


def shares_of(plan):
    """Noise of each agent, in units of the clip bound."""
    return np.asarray(plan.releases[-1].shares)[plan.facts.agents.kind]


def run(
    algorithm, X, y, owner, *, loss, topology, noise=None, fit_intercept=True, n_jobs=None, **facts
):  # fmt: skip
    """Run the algorithm without an estimator around it; targets are in public coordinates."""
    c = declared_coordinates(
        n_features=X.shape[1],
        fit_intercept=fit_intercept,
        feature_bounds=None,
        has_target_scale=False,
    )
    ownership = ownership_of_labels(owner, n_samples=len(X))
    plan = algorithm.plan(
        facts_of(
            ownership.sizes.tolist(), topology=topology, n_parameters=c.n_parameters, loss=loss,
            row_norm=c.row_norm, **facts,
        ),
        BUDGET,
    )  # fmt: skip
    rows = Rows(X, c)
    gate = Gate(plan, noise or KnownNoise())
    with Engine(n_jobs).running() as engine:
        problem = Problem(rows=rows, target=y, engine=engine, ownership=ownership)
        solution = algorithm.run(plan, problem, gate)
    gate.close()
    return solution, plan, rows


# The reference: the algorithm of the docstring, agent by agent.


def plain_slopes(loss, scores, y):
    if isinstance(loss, SquaredLoss):
        return scores - y[:, None]
    if isinstance(loss, LogisticLoss):
        return -y[:, None] * expit(-y[:, None] * scores)
    return softmax(scores, axis=1) - np.eye(scores.shape[1])[y]


def clipped(vector, bound):
    size = np.linalg.norm(vector)
    return vector if size <= bound else vector * (bound / size)


def shrunk(point, l1, l2, step):
    result = point.copy()
    w = point[:-1]
    result[:-1] = np.sign(w) * np.maximum(np.abs(w) - step * l1, 0) / (1 + step * l2)
    return result


def naive_path(
    X, y, owner, topology, shares, *, loss, l1, l2, n_rounds, inner_steps, rho, curvature, clip,
    noise, unit, radius, batches=None, sampling=1.0,
):  # fmt: skip
    """Points and models before and after each step, and how often a clip was met."""
    A = np.column_stack([X, np.ones(len(X))])
    n, n_agents = len(X), owner.max() + 1
    shape = (A.shape[1], loss.n_outputs)
    neighbors = [np.flatnonzero(row) for row in topology.adjacency.toarray()]
    w, v = np.zeros((n_agents, *shape)), np.zeros((n_agents, *shape))
    mean, gamma = w.copy(), w.copy()
    models, points, n_clipped = [w.copy()], [v.copy()], 0
    for k in range(n_rounds):
        total = np.zeros(w.shape)
        for r in range(inner_steps):
            s = k * inner_steps + r
            for a in range(n_agents):
                gradient = np.zeros(shape)
                for i in np.flatnonzero(owner == a):
                    if batches is not None and batches[s][i] >= sampling:
                        continue
                    slope = plain_slopes(loss, A[[i]] @ w[a], y[[i]])
                    own = np.outer(A[i], slope)
                    if unit == "record":
                        n_clipped += np.linalg.norm(own) > clip
                        own = clipped(own, clip)
                    gradient += own
                if unit == "agent":
                    size = np.sum(owner == a)
                    bound = clip * min(size, 2 * n / n_agents)
                    n_clipped += np.linalg.norm(gradient) > bound
                    gradient = clipped(gradient, bound)
                gradient = gradient + clip * shares[a] * noise[s, a]
                gradient *= n_agents / n / sampling
                c = curvature(len(neighbors[a]), s + 1)
                eta = c - 2 * rho * len(neighbors[a])
                pull = sum((mean[a] + mean[b] for b in neighbors[a]), np.zeros(shape))
                v[a] = (eta * w[a] - gradient + 2 * gamma[a] + rho * pull) / c
                w[a] = clipped(shrunk(v[a], l1, l2, 1 / c), radius)
            total += w
            models.append(w.copy())
            points.append(v.copy())
        mean = total / inner_steps
        gamma = gamma - rho / 2 * np.array(
            [
                sum((own - mean[b] for b in near), 0 * own)
                for own, near in zip(mean, neighbors, strict=True)
            ]
        )
    return np.array(models), np.array(points), n_clipped


OWNER = np.random.default_rng(9).permutation(np.repeat([0, 1, 2, 3], [14, 5, 4, 2]))
N_ROUNDS, INNER = 4, 3
WEIGHTS = {
    "step": (
        {"step_size": 0.8, "penalty_weight": 0.2},
        lambda growth: lambda degree, s: 1 / 0.8,
    ),
    "constant": (
        {"proximal_weight": 1.1, "penalty_weight": 0.4},
        lambda growth: lambda degree, s: 2 * 0.4 * degree + 1.1,
    ),
    "growing": (
        {"proximal_weight": "growing", "diameter": 1.5, "penalty_weight": 0.3},
        lambda growth: lambda degree, s: 2 * 0.3 * degree + growth * math.sqrt(2 * s),
    ),
}
# Some units are clipped, and others are not.
CLIPS = {
    "record": {SquaredLoss: 0.4, LogisticLoss: 0.4, MultinomialLoss: 0.5},
    "agent": {SquaredLoss: 0.4, LogisticLoss: 0.2, MultinomialLoss: 0.25},
}


@pytest.mark.parametrize("weight", WEIGHTS)
@pytest.mark.parametrize("topology", ["star", "complete", "path"])
@pytest.mark.parametrize("unit", ["record", "agent"])
@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_steps_equal_the_algorithm_agent_by_agent(loss, unit, topology, weight):
    X, y = problem_data(loss, n=25)
    knobs, curvature = WEIGHTS[weight]
    noise = np.random.default_rng(1).normal(size=(N_ROUNDS * INNER, 4, 4, loss.n_outputs)) / 200
    clip = CLIPS[unit][type(loss)]
    algorithm = MultiStepADMM(inner_steps=INNER, clip_norm=clip, tail_fraction=0.5, **knobs)
    solution, plan, rows = run(
        algorithm, X, y, OWNER, loss=loss, topology=topology, penalty=SquaredL2(0.1), unit=unit,
        max_iter=N_ROUNDS, noise=KnownNoise(noise),
    )  # fmt: skip
    settings = plan.settings
    models, _, n_clipped = naive_path(
        X, y, OWNER, graph(topology, 4), shares_of(plan), loss=loss,
        l1=0.0, l2=0.1, n_rounds=N_ROUNDS, inner_steps=INNER,
        rho=settings.penalty_weight, curvature=curvature(settings.growth * rows.clip_unit),
        clip=clip * rows.clip_unit, noise=noise, unit=unit, radius=settings.radius,
    )  # fmt: skip
    assert 0 < n_clipped < N_ROUNDS * INNER * (25 if unit == "record" else 4)
    # The last half of twelve steps, each at the model that it started from.
    own = models[6:12].mean(axis=0)
    np.testing.assert_allclose(solution.parameters_per_agent, own, rtol=0, atol=1e-9)
    np.testing.assert_allclose(solution.parameters, own.mean(axis=0), rtol=0, atol=1e-9)
    assert (solution.n_iter, solution.n_rounds) == (12, 4)


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_batches_are_drawn_anew_for_every_step(loss):
    X, y = problem_data(loss, n=25)
    noise = np.random.default_rng(1).normal(size=(N_ROUNDS * INNER, 4, 4, loss.n_outputs)) / 200
    algorithm = MultiStepADMM(
        inner_steps=INNER, clip_norm=0.2, step_size=0.8, penalty_weight=0.2, batch_fraction=0.4,
        tail_fraction=1.0,
    )  # fmt: skip
    source = KnownNoise(noise)
    solution, plan, rows = run(
        algorithm, X, y, OWNER, loss=loss, topology="ring", penalty=NoPenalty(), max_iter=N_ROUNDS,
        noise=source,
    )  # fmt: skip
    models, _, _ = naive_path(
        X, y, OWNER, graph("ring", 4), shares_of(plan), loss=loss,
        l1=0.0, l2=0.0, n_rounds=N_ROUNDS, inner_steps=INNER, rho=0.2,
        curvature=lambda degree, s: 1 / 0.8, clip=0.2 * rows.clip_unit, noise=noise, unit="record",
        radius=np.inf, batches=source.drawn, sampling=0.4,
    )  # fmt: skip
    assert len({batch.tobytes() for batch in source.drawn}) == N_ROUNDS * INNER
    own = models[:12].mean(axis=0)
    np.testing.assert_allclose(solution.parameters_per_agent, own, rtol=0, atol=1e-9)


def test_sparse_answers_are_a_proximal_step_from_the_average_of_points():
    loss = SquaredLoss()
    X, y = problem_data(loss, n=25)
    noise = np.random.default_rng(1).normal(size=(N_ROUNDS * INNER, 4, 4, 1)) / 200
    algorithm = MultiStepADMM(
        inner_steps=INNER, clip_norm=0.2, step_size=0.8, penalty_weight=0.2, tail_fraction=0.5
    )
    solution, plan, rows = run(
        algorithm, X, y, OWNER, loss=loss, topology="star", penalty=ElasticNet(0.1, 0.05),
        max_iter=N_ROUNDS, noise=KnownNoise(noise),
    )  # fmt: skip
    _, points, _ = naive_path(
        X, y, OWNER, graph("star", 4), shares_of(plan), loss=loss,
        l1=0.1, l2=0.05, n_rounds=N_ROUNDS, inner_steps=INNER, rho=0.2,
        curvature=lambda degree, s: 1 / 0.8, clip=0.2 * rows.clip_unit, noise=noise, unit="record",
        radius=np.inf,
    )  # fmt: skip
    own = points[6:12].mean(axis=0)
    expected = np.array([shrunk(point, 0.1, 0.05, 0.8) for point in own])
    np.testing.assert_allclose(solution.parameters_per_agent, expected, rtol=0, atol=1e-9)
    expected = shrunk(own.mean(axis=0), 0.1, 0.05, 0.8)
    np.testing.assert_allclose(solution.parameters, expected, rtol=0, atol=1e-9)
    assert np.any(solution.parameters_per_agent == 0)


# Known numbers.


def two_agents(trace, n_rounds=3):
    """Minimise (w - 1)^2 / 2 at one of two agents, (w - 3)^2 / 2 at the other."""
    algorithm = MultiStepADMM(
        inner_steps=2, proximal_weight=1.0, penalty_weight=0.5, clip_norm=WIDE_OPEN,
        tail_fraction=1.0,
    )  # fmt: skip
    return run(
        algorithm, np.ones((2, 1)), np.array([1.0, 3.0]), np.array([0, 1]), loss=SquaredLoss(),
        topology="complete", fit_intercept=False, penalty=NoPenalty(), max_iter=n_rounds,
    )  # fmt: skip


def test_two_agents_take_the_steps_that_were_worked_out_by_hand(trace):
    solution, _, _ = two_agents(trace)
    broadcasts = np.array(trace.broadcasts)[:, :, 0, 0]
    expected = [(0.5, 1.5), (1.25, 1.75), (1.625, 1.875)]
    np.testing.assert_allclose(broadcasts, expected, rtol=0, atol=1e-9)
    own = solution.parameters_per_agent[:, 0, 0]
    np.testing.assert_allclose(own, [0.8541667, 1.3958333], rtol=0, atol=1e-6)


def duals_of(trace, target, rho, eta, inner_steps):
    """Duals that the steps were taken with, from what came out of them; rows are ones."""
    found = []
    models = [np.zeros(2)] + [m[:, 0, 0] for m in trace.models]
    broadcasts = [np.zeros(2)] + [b[:, 0, 0] for b in trace.broadcasts]
    for s in range(0, len(trace.points), inner_steps):
        gradient = models[s] - target
        pull = trace.points[s][:, 0, 0] * trace.curvatures[s] - eta * models[s] + gradient
        found.append((pull - rho * broadcasts[s // inner_steps].sum()) / 2)
    return np.array(found)


def test_duals_of_two_agents_are_those_worked_out_by_hand_and_end_at_half_the_gradients(trace):
    two_agents(trace, n_rounds=40)
    duals = duals_of(trace, np.array([1.0, 3.0]), rho=0.5, eta=1.0, inner_steps=2)
    expected = [(0, 0), (0.25, -0.25), (0.375, -0.375), (0.4375, -0.4375)]
    np.testing.assert_allclose(duals[:4], expected, rtol=0, atol=1e-9)
    np.testing.assert_allclose(duals[-1], [0.5, -0.5], rtol=0, atol=1e-9)
    np.testing.assert_allclose(trace.broadcasts[-1][:, 0, 0], 2.0, rtol=0, atol=1e-9)


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_duals_sum_to_zero(topology, trace):
    n_agents, rho, eta = 16, 0.05, 1.3
    links = graph(topology, n_agents)
    degrees = links.degrees[:, None, None]
    noise = np.random.default_rng(3).normal(size=(30, n_agents, 2, 1))
    algorithm = MultiStepADMM(
        inner_steps=1, proximal_weight=eta, penalty_weight=rho, clip_norm=1e-3, tail_fraction=1.0
    )
    # Rows of zeros: gradients are the noise, which is known.
    _, plan, rows = run(
        algorithm, np.zeros((n_agents, 2)), np.ones(n_agents), np.arange(n_agents),
        loss=LogisticLoss(), topology=topology, penalty=NoPenalty(), fit_intercept=False,
        max_iter=30, noise=KnownNoise(noise),
    )  # fmt: skip
    size = 1e-3 * rows.clip_unit * plan.releases[0].shares[0]
    models = [np.zeros((n_agents, 2, 1)), *trace.models]
    broadcasts = [np.zeros((n_agents, 2, 1)), *trace.broadcasts]
    for k in range(30):
        pull = trace.points[k] * (2 * rho * degrees + eta) - eta * models[k] + size * noise[k]
        mean = broadcasts[k]
        around = (links.adjacency @ mean[:, :, 0])[..., None] + degrees * mean
        duals = (pull - rho * around) / 2
        assert np.abs(duals.sum(axis=0)).max() < 1e-12
    assert np.abs(duals).max() > 1e-3


@pytest.mark.parametrize("knob", ["step_size", "proximal_weight"])
def test_twice_the_curvature_halves_the_step_and_the_noise_in_units_of_models(knob, trace):
    X, y = problem_data(SquaredLoss(), n=16)
    first, shares = [], []
    noise = np.random.default_rng(0).normal(size=(1, 4, 4, 1))
    for with_noise in (False, True):
        for factor in (1, 2):
            rho = 0.1 * factor
            weights = {
                "step_size": {"step_size": 0.5 / factor},
                "proximal_weight": {"proximal_weight": 1.6 * factor},
            }[knob]
            algorithm = MultiStepADMM(
                inner_steps=1, clip_norm=1.0, tail_fraction=1.0, penalty_weight=rho, **weights
            )
            _, plan, _ = run(
                algorithm, X, y, np.arange(16) % 4, loss=SquaredLoss(), topology="ring",
                penalty=NoPenalty(), max_iter=1, noise=KnownNoise(noise if with_noise else None),
            )  # fmt: skip
            first.append(trace.points[-1])
            shares.append(plan.releases[0].shares)
    assert len(set(shares)) == 1
    np.testing.assert_allclose(first[0], 2 * first[1], rtol=1e-12)
    np.testing.assert_allclose(first[2] - first[0], 2 * (first[3] - first[1]), rtol=1e-9)


def noise_of(algorithm, sizes, budget=BUDGET, **facts):
    return shares_of(algorithm.plan(facts_of(sizes, **facts), budget))


@pytest.mark.parametrize("unit", ["record", "agent"])
def test_one_round_of_many_steps_has_the_noise_of_many_rounds_of_one(unit):
    for algorithm in ({}, {"proximal_weight": 1.0, "penalty_weight": 0.1}):
        one = noise_of(MultiStepADMM(inner_steps=30, **algorithm), [5, 9], max_iter=1, unit=unit)
        other = noise_of(MultiStepADMM(inner_steps=1, **algorithm), [5, 9], max_iter=30, unit=unit)
        np.testing.assert_array_equal(one, other)


SIGMAS = [(1, 1e-5, 52.759), (0.5, 1e-5, 99.445), (2, 1e-6, 31.544), (1, 1e-3, 36.411)]


@pytest.mark.parametrize(("epsilon", "delta", "sigma"), SIGMAS)
@pytest.mark.parametrize("inner_steps", [1, 10, 200])
def test_noise_of_two_hundred_steps_is_the_exact_one(epsilon, delta, sigma, inner_steps):
    budget = Budget(epsilon=epsilon, delta=delta, observer="eavesdropper")
    knobs = {"max_iter": 200 // inner_steps, "topology": "complete"}
    share = noise_of(MultiStepADMM(inner_steps=inner_steps), [452] * 4, budget, **knobs)
    # Replace-one moves a gradient by two clip bounds.
    np.testing.assert_allclose(share / 2, sigma, atol=5e-4)
    assert share[0] / 2 >= math.sqrt(200) / gaussian_mu(epsilon, delta)
    null = noise_of(
        MultiStepADMM(inner_steps=inner_steps), [452] * 4, budget, **knobs,
        neighboring=Neighboring.ZERO_OUT,
    )  # fmt: skip
    np.testing.assert_allclose(null, sigma, atol=5e-4)


def test_noise_on_a_gradient_of_452_records_is_as_tabulated(trace):
    # No data can be seen: rows of zeros, and no intercept.
    noise = np.ones((200, 3, 2, 1))
    algorithm = MultiStepADMM(
        inner_steps=10, clip_norm=1.0 / math.sqrt(2), proximal_weight=1.0, penalty_weight=1e-9
    )
    run(
        algorithm, np.zeros((3 * 452, 2)), np.ones(3 * 452), np.repeat([0, 1, 2], 452),
        loss=LogisticLoss(), topology="path", penalty=NoPenalty(), fit_intercept=False,
        max_iter=20, noise=KnownNoise(noise),
    )  # fmt: skip
    np.testing.assert_allclose(-trace.points[0], 0.23345, atol=5e-6)


def test_useful_steps_are_those_of_the_paper_setting():
    mus = [gaussian_mu(epsilon, 1e-5) for epsilon in (0.5, 1.0, 2.0)]
    found = [
        useful_steps(gradient_bound=1.0, n_entries=104, sensitivity=2 / 452, mu=mu) for mu in mus
    ]
    assert [round(steps) for steps in found] == [10, 35, 124]
    # There, the noise of all coordinates is as large as the gradient.
    for mu, steps in zip(mus, found, strict=True):
        noise = math.sqrt(104 * steps) * (2 / 452) / mu
        assert noise == pytest.approx(1.0)


# Where it goes.


N_AGENTS = 16
PROBLEMS = {
    "ridge": (SquaredLoss(), SquaredL2(0.2)),
    "logistic": (LogisticLoss(), SquaredL2(0.1)),
    "lasso": (SquaredLoss(), L1(0.05)),
}


def optimum(name, X, y):
    """What scikit-learn finds for the mean loss of all rows plus the penalty; (p + 1, K)."""
    n = len(X)
    model = {
        "ridge": lambda: Ridge(alpha=0.2 * n, solver="cholesky"),
        "logistic": lambda: LogisticRegression(C=10 / n, solver="newton-cg", tol=1e-12),
        "lasso": lambda: Lasso(alpha=0.05, tol=1e-14, max_iter=10**6),
    }[name]()
    model.fit(X, y)
    return np.vstack([np.atleast_2d(model.coef_).T, np.atleast_1d(model.intercept_)[None]])


def largest_curvature(loss, X, y, owner):
    """Of the weighted loss of any agent."""
    A = np.column_stack([X, np.ones(len(X))])
    n_agents = owner.max() + 1
    parts = [A[owner == a] for a in range(n_agents)]
    return loss.smoothness * n_agents / len(X) * max(np.linalg.norm(a, 2) ** 2 for a in parts)


def settled(name, topology, *, inner_steps=1, n_rounds, rho=None, sorted_rows=False, **knobs):
    """The last model of a long run without noise, and the optimum."""
    loss, penalty = PROBLEMS[name]
    X, y = problem_data(loss, n=160)
    owner = np.arange(160) % N_AGENTS
    if sorted_rows:
        owner = np.argsort(np.argsort(y, kind="stable")) // 10
    weight = largest_curvature(loss, X, y, owner)
    algorithm = MultiStepADMM(
        inner_steps=inner_steps, proximal_weight=weight, clip_norm=WIDE_OPEN, tail_fraction=1e-9,
        penalty_weight=rho or 0.3, **knobs,
    )  # fmt: skip
    solution, _, _ = run(
        algorithm, X, y, owner, loss=loss, topology=topology, penalty=penalty, max_iter=n_rounds
    )
    return solution, optimum(name, X, y)


@pytest.mark.parametrize("topology", TOPOLOGIES)
@pytest.mark.parametrize("name", PROBLEMS)
def test_without_noise_the_last_models_are_the_optimum_of_all_rows(name, topology):
    solution, expected = settled(name, topology, n_rounds=1500)
    np.testing.assert_allclose(solution.parameters, expected, rtol=0, atol=1e-6)
    for own in solution.parameters_per_agent:
        np.testing.assert_allclose(own, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("inner_steps", [2, 5])
@pytest.mark.parametrize("name", PROBLEMS)
def test_without_noise_more_steps_between_broadcasts_end_there_too(name, inner_steps):
    knobs = {"inner_steps": inner_steps, "n_rounds": 2000 // inner_steps}
    for topology in ("ring", "barabasi-albert"):
        solution, expected = settled(name, topology, **knobs)
        np.testing.assert_allclose(solution.parameters, expected, rtol=0, atol=1e-6)
        for own in solution.parameters_per_agent:
            np.testing.assert_allclose(own, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", PROBLEMS)
def test_agents_whose_rows_are_as_different_as_can_be_agree(name):
    solution, expected = settled(name, "torus", n_rounds=2500, rho=1.0, sorted_rows=True)
    for own in (solution.parameters, *solution.parameters_per_agent):
        np.testing.assert_allclose(own, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_growing_weight_ends_there_too(name):
    loss, penalty = PROBLEMS[name]
    X, y = problem_data(loss, n=160)
    algorithm = MultiStepADMM(
        inner_steps=1, proximal_weight="growing", clip_norm=1.2, penalty_weight=1.0, diameter=40.0,
        tail_fraction=0.2,
    )  # fmt: skip
    # Planned at a budget that leaves next to no noise: the schedule follows from it.
    solution, _, _ = run(
        algorithm, X, y, np.arange(160) % 4, loss=loss, topology="star", penalty=penalty,
        max_iter=4000, epsilons=(1e7,) * 4,
    )  # fmt: skip
    np.testing.assert_allclose(solution.parameters, optimum(name, X, y), rtol=0, atol=2e-3)


@pytest.mark.parametrize("penalty", [NoPenalty(), SquaredL2(0.1), L1(0.05)], ids=repr)
@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_one_agent_takes_proximal_gradient_steps_on_the_mean_loss(loss, penalty):
    X, y = problem_data(loss, n=40)
    algorithm = MultiStepADMM(inner_steps=3, step_size=0.4, clip_norm=WIDE_OPEN, tail_fraction=1e-9)
    solution, _, _ = run(
        algorithm, X, y, np.zeros(40, dtype=int), loss=loss, topology="complete", penalty=penalty,
        max_iter=7,
    )  # fmt: skip
    A, w = np.column_stack([X, np.ones(40)]), np.zeros((4, loss.n_outputs))
    l1 = 0.05 if isinstance(penalty, L1) else 0.0
    l2 = 0.1 if isinstance(penalty, SquaredL2) else 0.0
    # The answer is the model at which the last of 21 steps starts.
    for _ in range(20):
        w = shrunk(w - 0.4 * A.T @ plain_slopes(loss, A @ w, y) / 40, l1, l2, 0.4)
    np.testing.assert_allclose(solution.parameters, w, rtol=0, atol=1e-10)
    np.testing.assert_allclose(solution.parameters_per_agent[0], w, rtol=0, atol=1e-10)
    assert solution.n_messages == solution.bytes_sent == 0


@pytest.mark.parametrize("weight", WEIGHTS)
@pytest.mark.parametrize("unit", ["record", "agent"])
@pytest.mark.parametrize("penalty", [SquaredL2(0.1), L1(0.05)], ids=repr)
def test_agents_with_other_numbers_in_the_same_graph_find_the_same(penalty, unit, weight):
    loss = SquaredLoss()
    X, y = problem_data(loss, n=25)
    links = graph("barabasi-albert", 4)
    other = np.array([2, 0, 3, 1])
    renumbered = Topology(n_agents=4, pairs=other[links.edges])
    algorithm = MultiStepADMM(clip_norm=0.3, **WEIGHTS[weight][0])
    found = [
        run(
            algorithm, X, y, owner, loss=loss, topology=topology, penalty=penalty, unit=unit,
            max_iter=20,
        )[0]
        for owner, topology in ((OWNER, links), (other[OWNER], renumbered))
    ]  # fmt: skip
    np.testing.assert_allclose(found[0].parameters, found[1].parameters, rtol=0, atol=1e-12)
    own, moved = (solution.parameters_per_agent for solution in found)
    np.testing.assert_allclose(own, moved[other], rtol=0, atol=1e-12)
    assert np.ptp(own, axis=0).max() > 1e-3


# The utility theorem.


def excess_and_disagreement(models, best, X, y, owner, loss, links, dual_bound):
    """Left side of the theorem: excess loss of agents, and weighted distances of neighbours."""
    n_agents = links.n_agents

    def total(parameters):
        scores = np.einsum("ij,ij->i", X, parameters[owner])
        if isinstance(loss, SquaredLoss):
            return n_agents / len(X) * np.sum((scores - y) ** 2) / 2
        return n_agents / len(X) * np.sum(np.logaddexp(0, -y * scores))

    i, j = links.edges.T
    apart = 2 * np.linalg.norm(models[i] - models[j], axis=1).sum()
    return total(models) - total(np.tile(best, (n_agents, 1))) + dual_bound * apart


BOUNDED = [(10, 1), (40, 1), (10, 4), (40, 10)]


@pytest.mark.parametrize(("n_rounds", "inner_steps"), BOUNDED)
@pytest.mark.parametrize("topology", ["ring", "star"])
@pytest.mark.parametrize("name", ["squared", "logistic"])
def test_excess_loss_and_disagreement_are_below_the_bound(name, topology, n_rounds, inner_steps):
    loss, diameter, dual_bound, rho = LOSSES[name], 4.0, 0.3, 0.15
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(400, 2))
    y = X @ [0.5, -0.5] + 0.1 * rng.normal(size=400)
    largest = np.linalg.norm(X, axis=1) * (2 * np.linalg.norm(X, axis=1) + np.abs(y))
    if name == "logistic":
        y = np.where(rng.random(400) < expit(y), 1.0, -1.0)
        largest = np.linalg.norm(X, axis=1)
    owner = np.argsort(np.argsort(X[:, 0])) // 80  # as different as can be
    links = graph(topology, 5)

    def mean_loss(w):
        scores = X @ w
        return np.mean((scores - y) ** 2 / 2 if name == "squared" else np.logaddexp(0, -y * scores))

    best = minimize(mean_loss, np.zeros(2), tol=1e-12).x
    assert np.linalg.norm(best) < diameter / 2
    clip_norm = largest.max() / math.sqrt(2)  # no gradient in the ball is clipped
    algorithm = MultiStepADMM(
        inner_steps=inner_steps, proximal_weight="growing", diameter=diameter, clip_norm=clip_norm,
        penalty_weight=rho, tail_fraction=1.0,
    )  # fmt: skip
    left = []
    for _ in range(20):
        solution, plan, rows = run(
            algorithm, X, y, owner, loss=loss, topology=topology, penalty=NoPenalty(),
            fit_intercept=False, max_iter=n_rounds, noise=CryptographicNoise(),
            neighboring=Neighboring.ZERO_OUT,
        )  # fmt: skip
        models = solution.parameters_per_agent[:, :, 0]
        left.append(excess_and_disagreement(models, best, X, y, owner, loss, links, dual_bound))
    clip = clip_norm * rows.clip_unit
    assert clip == pytest.approx(largest.max())
    bound = multi_step_bound(
        n_rounds=n_rounds, inner_steps=inner_steps, degrees=links.degrees, gradient_bound=clip,
        noise_std=5 / 400 * clip * plan.releases[0].shares[0], n_entries=2, diameter=diameter,
        penalty_weight=rho, dual_bound=dual_bound,
    )  # fmt: skip
    assert np.mean(left) <= bound
    # The schedule is that of the bound's G.
    size = math.hypot(clip, math.sqrt(2) * 5 / 400 * clip * plan.releases[0].shares[0])
    growth = plan.settings.growth * rows.clip_unit
    assert growth == pytest.approx(size / diameter, rel=1e-12)


def test_the_bound_falls_with_the_square_root_of_steps_and_with_rounds():
    def bound(n_rounds, inner_steps, **changed):
        knobs = {
            "degrees": [1, 2, 1], "gradient_bound": 1.0, "noise_std": 0.0, "n_entries": 3,
            "diameter": 2.0, "penalty_weight": 1e-9, "dual_bound": 0.0,
        }  # fmt: skip
        return multi_step_bound(n_rounds=n_rounds, inner_steps=inner_steps, **(knobs | changed))

    assert bound(10, 40) == pytest.approx(bound(10, 10) / 2)
    assert bound(40, 10) == pytest.approx(bound(10, 40))
    ties = {"penalty_weight": 1.0, "gradient_bound": 0.0}
    assert bound(40, 10, **ties) == pytest.approx(bound(10, 10, **ties) / 4)
    assert bound(10, 40, **ties) == pytest.approx(bound(10, 10, **ties))
    # By hand: three terms for each agent.
    expected = sum(
        math.sqrt(2) * 2 * math.hypot(g, math.sqrt(3) * s) / math.sqrt(200)
        + d * (0.5 * 4 + 0.49 / 0.5) / 50
        + 0.7 * d * 2 / 200
        for d, g, s in ((1, 1.0, 0.1), (2, 2.0, 0.2), (1, 3.0, 0.3))
    )
    found = bound(
        50, 4, gradient_bound=[1.0, 2.0, 3.0], noise_std=[0.1, 0.2, 0.3], penalty_weight=0.5,
        dual_bound=0.7,
    )  # fmt: skip
    assert found == pytest.approx(expected, rel=1e-12)
    assert math.isfinite(bound(1, 1, degrees=[0]))


# Plans and knobs.


def test_by_default_agents_start_with_a_share_of_the_strongest_ties_that_their_step_bears():
    for topology, most in (("ring", 2), ("star", 7), ("complete", 7)):
        for inner_steps in (1, 2, 5):
            settings = (
                MultiStepADMM(inner_steps=inner_steps)
                .plan(facts_of([50] * 8, topology=topology), BUDGET)
                .settings
            )
            largest = 1 / (2 * settings.step_size * most)
            assert settings.penalty_weight == pytest.approx(largest / inner_steps, rel=1e-12)
            weights = settings.curvature(np.array([0, 1, most]), 1) - 2 * (
                settings.penalty_weight * np.array([0, 1, most])
            )
            assert np.all(weights >= -1e-12 / settings.step_size)
    alone = MultiStepADMM().plan(facts_of([50]), BUDGET).settings
    assert math.isfinite(alone.penalty_weight)


def test_weights_that_mean_the_same_number_make_the_same_plan():
    plans = [
        MultiStepADMM(proximal_weight=weight, penalty_weight=0.1).plan(facts_of([5, 9]), BUDGET)
        for weight in (2, 2.0, np.float64(2.0), np.int64(2))
    ]
    assert len({plan.digest() for plan in plans}) == 1


def test_a_plan_spends_its_budget_and_no_more():
    for unit in ("record", "agent"):
        plan = MultiStepADMM().plan(facts_of([50, 3, 9, 1], unit=unit), BUDGET)
        for observer in ("eavesdropper", "peer", "model"):
            assert isinstance(plan.guarantee(observer), GaussianDP)
            for guarantee in plan.guarantees(observer):
                assert guarantee.mu == pytest.approx(gaussian_mu(1.0, 1e-5), rel=1e-9)
                assert guarantee.mu <= gaussian_mu(1.0, 1e-5)


@pytest.mark.parametrize("share", [1e-9, 0.001, 0.3, 0.5, 1.0])
def test_at_least_one_step_is_averaged(share):
    plan = MultiStepADMM(tail_fraction=share).plan(facts_of([9, 9], max_iter=7), BUDGET)
    assert plan.settings.n_averaged == max(1, math.ceil(share * 14))


KNOBS = {
    "inner_steps": [0, -1, 1.5, True, "auto", None],
    "step_size": [0, -1.0, 1e200, math.nan, math.inf, "big", None, True],
    "clip_norm": [0, -1.0, 1e200, math.nan, "big", None],
    "penalty_weight": [0, -1.0, math.inf, math.nan, "big", None],
    "proximal_weight": [0, -1.0, math.inf, math.nan, "auto", True],
    "diameter": [0, -1.0, math.nan, "auto", None],
    "batch_fraction": [0, -0.1, 1.1, math.nan, "auto", None],
    "tail_fraction": [0, -0.1, 1.1, math.nan, "auto", None],
}


@pytest.mark.parametrize(
    ("knob", "value"), [(knob, value) for knob, values in KNOBS.items() for value in values]
)
def test_a_knob_out_of_range_is_refused(knob, value):
    with pytest.raises(ValueError, match=re.escape(f"Got {knob}={value!r}, expected")):
        MultiStepADMM(**{knob: value}).plan(facts_of([9, 9]), BUDGET)
    assert set(KNOBS) == set(MultiStepADMM().get_params())


TOGETHER = {
    "a step and a weight": (
        {"proximal_weight": 1.0, "step_size": 0.5, "penalty_weight": 0.1}, "expected step_size"
    ),
    "a weight without ties": ({"proximal_weight": 1.0}, "penalty_weight='auto', expected"),
    "growing without ties": (
        {"proximal_weight": "growing", "diameter": 2.0}, "penalty_weight='auto', expected"
    ),
    "growing without a ball": (
        {"proximal_weight": "growing", "penalty_weight": 0.1}, "diameter=inf, expected a finite"
    ),
    "ties that are too strong for the step": (
        {"step_size": 1.0, "penalty_weight": 0.26}, r"up to 2 neighbours, expected at most 0\.25"
    ),
}  # fmt: skip


@pytest.mark.parametrize(("knobs", "message"), TOGETHER.values(), ids=TOGETHER)
def test_knobs_that_do_not_go_together_are_refused(knobs, message):
    with pytest.raises(ValueError, match=rf"^Got .*{message}"):
        MultiStepADMM(**knobs).plan(facts_of([9, 9, 9]), BUDGET)
    MultiStepADMM(step_size=1.0, penalty_weight=0.25).plan(facts_of([9, 9, 9]), BUDGET)


def test_batches_of_records_protect_no_agents():
    with pytest.raises(ValueError, match=r"^Got batch_fraction=0.5 with privacy_unit='agent'"):
        MultiStepADMM(batch_fraction=0.5).plan(facts_of([9, 9], unit="agent"), BUDGET)


def test_settings_and_plans_are_values():
    algorithm = MultiStepADMM(proximal_weight="growing", penalty_weight=0.1, diameter=3.0)
    first, second = (algorithm.plan(facts_of([9, 9, 4]), BUDGET) for _ in range(2))
    assert first == second
    assert first.digest() == second.digest()
    with pytest.raises(dataclasses.FrozenInstanceError):
        first.settings.n_rounds = 3


@pytest.mark.parametrize("n_jobs", [1, 2, 4])
def test_the_number_of_jobs_changes_no_bit(n_jobs):
    loss = LogisticLoss()
    X, y = problem_data(loss, n=5000, p=20)
    owner = np.arange(5000) % 40
    expected, found = (
        run(
            MultiStepADMM(), X, y, owner, loss=loss, topology="regular", penalty=SquaredL2(0.1),
            max_iter=3, n_jobs=jobs,
        )[0]
        for jobs in (None, n_jobs)
    )  # fmt: skip
    np.testing.assert_array_equal(found.parameters_per_agent, expected.parameters_per_agent)
