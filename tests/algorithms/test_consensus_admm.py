"""Consensus ADMM without noise and with known noise: what it computes, where it goes, how fast."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
import sklearn
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.special import expit, softmax
from sklearn.base import clone
from sklearn.linear_model import ElasticNet as SklearnElasticNet
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.utils.fixes import parse_version

import skdpadmm.algorithms._consensus_admm as consensus
import skdpadmm.algorithms.blocks._record_blocks as record_blocks
from skdpadmm import DPAdmmElasticNet, DPAdmmLasso
from skdpadmm.algorithms import ConsensusADMM
from skdpadmm.algorithms.planning._defaults import default_steps
from skdpadmm.engine import Engine
from skdpadmm.losses import HuberLoss, LogisticLoss, MultinomialLoss, SquaredLoss
from skdpadmm.penalties import L1, ElasticNet, NoPenalty, SquaredL2
from skdpadmm.privacy import Neighboring
from skdpadmm.protocol import Budget, Facts, Gate, Problem
from skdpadmm.records import Rows, declared_coordinates

LOSSES = {
    "squared": SquaredLoss(),
    "logistic": LogisticLoss(),
    "multinomial": MultinomialLoss(3),
}
PENALTIES = {
    "none": NoPenalty(),
    "L1": L1(0.05),
    "L2": SquaredL2(0.2),
    "elastic net": ElasticNet(0.03, 0.1),
}
WIDE_OPEN = 1e8  # a clip bound that never binds


@pytest.fixture(autouse=True)
def keep_noise(monkeypatch):
    """What is planned as noise is not what these tests add, so nothing is taken for it."""
    monkeypatch.setattr(consensus, "drop_noise", lambda parameters, rows, variance: parameters)


@dataclass
class KnownNoise:
    """Adds noise that a test knows (none by default) and remembers the values before it.

    Releases come in units of the clip bound of a displacement; noise and values here do not.
    """

    noise: np.ndarray | None = None
    simulation: bool = True
    values: list = field(default_factory=list)
    unit: float = 1.0

    def add_gaussian(self, value, scale, stream):
        self.values.append(value * self.unit)
        return value if self.noise is None else value + self.noise[len(self.values) - 1] / self.unit


class SpyRows(Rows):
    """Rows that remember the slopes of each pass."""

    def __init__(self, X, coordinates):
        super().__init__(X, coordinates)
        self.seen = []

    def adjoint(self, block, slopes):
        self.seen.append(np.array(slopes))
        return super().adjoint(block, slopes)


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


def run(
    algorithm, X, y, *, loss, penalty, max_iter, fit_intercept=True, noise=None, bounds=None,
    n_jobs=None, rows_type=Rows,
):  # fmt: skip
    """Run an algorithm without an estimator around it; targets are in public coordinates."""
    c = declared_coordinates(
        n_features=X.shape[1],
        fit_intercept=fit_intercept,
        feature_bounds=bounds,
        has_target_scale=False,
    )
    facts = Facts(
        n_samples=len(X),
        n_parameters=c.n_parameters,
        loss=loss,
        penalty=penalty,
        neighboring=Neighboring.REPLACE_ONE,
        row_norm=c.row_norm,
        rounding=1.0,
        max_iter=max_iter,
    )
    plan = algorithm.plan(facts, Budget(epsilon=1.0, delta=1e-5))
    source = noise or KnownNoise()
    gate = Gate(plan, source)
    rows = rows_type(X, c)
    source.unit = plan.settings.step_size * plan.settings.clip_norm * rows.typical_norm
    with Engine(n_jobs).running() as engine:
        solution = algorithm.run(plan, Problem(rows=rows, target=y, engine=engine), gate)
    gate.close()
    return solution, rows, source


def augmented(X, fit_intercept=True):
    return np.column_stack([X, np.ones(len(X))]) if fit_intercept else X


# The reference: the algorithm of the docstring, with one state vector for each record.


def scalar_proximal_slope(loss, score, target, weight):
    """Solve ``g = loss'(score - weight * g)`` without the code under test."""
    if isinstance(loss, SquaredLoss):
        return (score - target) / (1 + weight)
    return brentq(
        lambda g: g + target * expit(-target * (score - weight * g)), -1, 1, xtol=1e-15, rtol=1e-15
    )


def vector_proximal_slope(scores, target, weight):
    """The same for K scores, by damped Newton steps on the proximal point."""
    own = np.eye(len(scores))[target]
    point = scores.copy()
    for _ in range(100):
        q = softmax(point)
        residual = point - scores + weight * (q - own)
        jacobian = np.eye(len(scores)) + weight * (np.diag(q) - np.outer(q, q))
        step = np.linalg.solve(jacobian, residual)
        point -= step / max(1.0, np.abs(step).max())
        if np.abs(step).max() < 1e-15:
            break
    return softmax(point) - own


def plain_slope(loss, score, target):
    if isinstance(loss, SquaredLoss):
        return score - target
    if isinstance(loss, LogisticLoss):
        return -target * expit(-target * score)
    return softmax(score) - np.eye(len(score))[target]


def soft_threshold(point, penalty, step, n_features):
    l1 = getattr(penalty, "l1", getattr(penalty, "strength", 0.0) * isinstance(penalty, L1))
    l2 = getattr(penalty, "l2", getattr(penalty, "strength", 0.0) * isinstance(penalty, SquaredL2))
    result = point.copy()
    w = point[:n_features]
    result[:n_features] = np.sign(w) * np.maximum(np.abs(w) - step * l1, 0) / (1 + step * l2)
    return result


def naive_admm(
    X, y, *, loss, penalty, gamma, lam, clip_norm, n_iter, noise, exact=True, fit_intercept=True
):
    A = augmented(X, fit_intercept)
    (n, d), K, p = A.shape, loss.n_outputs, X.shape[1]
    u, z, path, n_clipped = np.zeros((n, d, K)), np.zeros((d, K)), [], 0
    for k in range(n_iter):
        for i, a in enumerate(A):
            v = 2 * z - u[i] if exact else z
            weight = gamma * (a @ a)
            if not exact:
                slope = plain_slope(loss, a @ v if K > 1 else (a @ v)[0], y[i])
            elif K > 1:
                slope = vector_proximal_slope(a @ v, y[i], weight)
            else:
                slope = scalar_proximal_slope(loss, (a @ v)[0], y[i], weight)
            displacement = gamma * np.outer(a, slope)
            size = np.linalg.norm(displacement)
            n_clipped += size > gamma * clip_norm
            displacement *= min(1.0, gamma * clip_norm / size)
            u[i] = (1 - 2 * lam) * u[i] + 2 * lam * (z - displacement)
        # The release is shared - mean, so that its noise enters the mean with a minus.
        path.append(u.mean(axis=0) - noise[k])
        z = soft_threshold(path[-1], penalty, gamma, p)
    return np.array(path), n_clipped


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("exact", [True, False], ids=["exact", "linearized"])
@pytest.mark.parametrize("lam", [0.2, 0.5, 0.8])
@pytest.mark.parametrize("penalty", [PENALTIES["L1"], PENALTIES["elastic net"]], ids=["L1", "EN"])
@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
@pytest.mark.parametrize(
    ("warm_steps", "tolerance"),
    [(10, 1e-10), (record_blocks.WARM_STEPS, 1e-5)],
    ids=["exact", "warm"],
)
def test_an_iteration_equals_the_algorithm_with_one_state_vector_per_record(
    loss, penalty, lam, exact, fit_intercept, warm_steps, tolerance, monkeypatch
):
    monkeypatch.setattr(record_blocks, "WARM_STEPS", warm_steps)
    X, y = problem_data(loss, n=25)
    n_iter, gamma = 6, 1.7
    clip_norm = 0.8 if loss.n_outputs > 1 else 0.5 if exact else 0.6
    d = X.shape[1] + fit_intercept
    noise = 0.05 * np.random.default_rng(1).normal(size=(n_iter, d, loss.n_outputs))
    path, n_clipped = naive_admm(
        X, y, loss=loss, penalty=penalty, gamma=gamma, lam=lam, clip_norm=clip_norm,
        n_iter=n_iter, noise=noise, exact=exact, fit_intercept=fit_intercept,
    )  # fmt: skip
    assert 0 < n_clipped < n_iter * len(X)
    algorithm = ConsensusADMM(
        step_size=gamma, clip_norm=clip_norm / math.sqrt(d), relaxation=lam,
        record_step="exact" if exact else "linearized", tail_fraction=1e-9,
    )  # fmt: skip
    for k in (1, 2, n_iter):
        solution, _, _ = run(
            algorithm, X, y, loss=loss, penalty=penalty, max_iter=k,
            fit_intercept=fit_intercept, noise=KnownNoise(noise),
        )  # fmt: skip
        expected = soft_threshold(path[k - 1], penalty, gamma, X.shape[1])
        np.testing.assert_allclose(solution.parameters, expected, rtol=0, atol=tolerance)
        assert solution.n_iter == k


@pytest.mark.parametrize(("tail_fraction", "n_averaged"), [(1.0, 8), (0.5, 4), (0.3, 3), (0.01, 1)])
def test_the_tail_is_averaged_and_then_put_through_the_penalty_once(tail_fraction, n_averaged):
    loss, penalty, gamma = SquaredLoss(), PENALTIES["L1"], 0.9
    X, y = problem_data(loss)
    noise = 0.1 * np.random.default_rng(2).normal(size=(8, 4, 1))
    path, _ = naive_admm(
        X, y, loss=loss, penalty=penalty, gamma=gamma, lam=0.5, clip_norm=0.5, n_iter=8, noise=noise
    )
    algorithm = ConsensusADMM(step_size=gamma, clip_norm=0.25, tail_fraction=tail_fraction)
    solution, _, _ = run(
        algorithm, X, y, loss=loss, penalty=penalty, max_iter=8, noise=KnownNoise(noise)
    )
    expected = soft_threshold(path[-n_averaged:].mean(axis=0), penalty, gamma, 3)
    np.testing.assert_allclose(solution.parameters, expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("penalty", PENALTIES.values(), ids=PENALTIES)
@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_linearized_with_relaxation_one_half_is_the_proximal_gradient_method(loss, penalty):
    X, y = problem_data(loss)
    A, p, gamma = augmented(X), X.shape[1], 0.6
    theta = np.zeros((p + 1, loss.n_outputs))
    algorithm = ConsensusADMM(
        step_size=gamma, clip_norm=WIDE_OPEN, record_step="linearized", tail_fraction=1e-9
    )
    for k in range(1, 16):
        scores = A @ theta
        slopes = [
            plain_slope(loss, s if len(s) > 1 else s[0], t) for s, t in zip(scores, y, strict=True)
        ]
        gradient = A.T @ np.array(slopes).reshape(len(X), -1) / len(X)
        theta = soft_threshold(theta - gamma * gradient, penalty, gamma, p)
        solution, _, _ = run(algorithm, X, y, loss=loss, penalty=penalty, max_iter=k)
        np.testing.assert_allclose(solution.parameters, theta, rtol=0, atol=1e-12)


def optimum(loss, penalty, X, y):
    """What scikit-learn finds for the mean loss plus penalty; (p + 1, K)."""
    n = len(X)
    l1 = {"L1": lambda: penalty.strength, "ElasticNet": lambda: penalty.l1}
    l2 = {"SquaredL2": lambda: penalty.strength, "ElasticNet": lambda: penalty.l2}
    a = l1.get(type(penalty).__name__, lambda: 0.0)()
    b = l2.get(type(penalty).__name__, lambda: 0.0)()
    if isinstance(loss, SquaredLoss):
        if a == 0:
            model = Ridge(alpha=n * b, solver="cholesky" if b else "svd")
        else:
            model = SklearnElasticNet(alpha=a + b, l1_ratio=a / (a + b), tol=1e-14, max_iter=10**6)
        model.fit(X, y)
    elif a == 0:
        # Above the smallest float, or the scores of all classes could drift together.
        model = LogisticRegression(C=1 / (n * b) if b else np.inf, solver="newton-cg")
        model.set_params(tol=1e-12, max_iter=10_000).fit(X, y)
    else:
        model = LogisticRegression(C=1 / (n * (a + b)), l1_ratio=a / (a + b), solver="saga")
        model.set_params(tol=1e-12, max_iter=100_000, random_state=0)
        # scikit-learn < 1.8 reads l1_ratio only where the penalty is named; 1.8 deprecates that.
        if parse_version(sklearn.__version__) < parse_version("1.8"):
            model.set_params(penalty="elasticnet")
        model.fit(X, y)
    coef = np.atleast_2d(model.coef_)
    return np.vstack([coef.T, np.atleast_1d(model.intercept_)[None]])


def comparable(parameters):
    """Intercepts of all classes may move together at no cost."""
    result = parameters.copy()
    if result.shape[1] > 1:
        result[-1] -= result[-1].mean()
    return result


@pytest.mark.parametrize(
    ("record_step", "lam"),
    [("exact", 0.3), ("exact", 0.5), ("exact", 0.8), ("linearized", 0.4), ("linearized", 0.5)],
)
@pytest.mark.parametrize("penalty", [PENALTIES[k] for k in ("L1", "L2", "elastic net")])
@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_without_noise_and_clipping_it_reaches_the_optimum_of_scikit_learn(
    loss, penalty, record_step, lam
):
    X, y = problem_data(loss, n=120)
    X = 1.7 * X / np.abs(X).max()
    algorithm = ConsensusADMM(
        step_size=3.0 if record_step == "exact" else 0.7,
        clip_norm=WIDE_OPEN,
        relaxation=lam,
        record_step=record_step,
        tail_fraction=0.002,
    )
    bounds = (-1.7, 1.7)  # penalties are in the user's units: scaled features must not matter
    solution, rows, _ = run(
        algorithm, X, y, loss=loss, penalty=penalty, max_iter=1200, bounds=bounds
    )
    coef, intercept = rows.coordinates.to_user(solution.parameters)
    found = np.vstack([coef.T, intercept[None]])
    np.testing.assert_allclose(
        comparable(found), comparable(optimum(loss, penalty, X, y)), rtol=0, atol=1e-6
    )


@pytest.mark.parametrize("step", [0.3, 1.0, 1.9])
def test_linearized_contracts_at_least_at_the_rate_of_the_proximal_gradient_method(step):
    # ||z' - z*|| <= max(|1 - gamma m|, |1 - gamma beta|) / (1 + gamma a) ||z - z*||
    loss, penalty = SquaredLoss(), SquaredL2(0.05)
    X, y = problem_data(loss, n=80)
    eigenvalues = np.linalg.eigvalsh(X.T @ X / len(X))
    m, beta = eigenvalues[0], eigenvalues[-1]
    gamma = step / beta
    rate = max(abs(1 - gamma * m), abs(1 - gamma * beta)) / (1 + gamma * penalty.strong_convexity)
    assert rate < 1
    best = np.linalg.solve(X.T @ X / len(X) + 0.05 * np.eye(3), X.T @ y / len(X))
    algorithm = ConsensusADMM(
        step_size=gamma, clip_norm=WIDE_OPEN, record_step="linearized", tail_fraction=1e-9
    )
    distance = [np.linalg.norm(best)]
    for k in range(1, 25):
        solution, _, _ = run(
            algorithm, X, y, loss=loss, penalty=penalty, max_iter=k, fit_intercept=False
        )
        distance.append(np.linalg.norm(solution.parameters[:, 0] - best))
        assert distance[k] <= rate * distance[k - 1] * (1 + 1e-9) + 1e-14
    assert distance[-1] < distance[0] / 2


def states(algorithm, X, y, *, loss, penalty, n_iter):
    """The states u_i of all records over time, put together from what the run exposes to spies."""
    gamma, lam = algorithm.step_size, algorithm.relaxation
    _, rows, noise = run(
        algorithm, X, y, loss=loss, penalty=penalty, max_iter=n_iter, rows_type=SpyRows
    )
    assert rows.n_blocks == 1
    A, shape = augmented(X), (X.shape[1] + 1, loss.n_outputs)
    shared, z, history = np.zeros(shape), np.zeros(shape), [np.zeros((len(X), *shape))]
    for slopes, displacement in zip(rows.seen, noise.values, strict=True):
        shared = (1 - 2 * lam) * shared + 2 * lam * z
        u = shared - gamma * A[:, :, None] * slopes.reshape(len(X), 1, -1)
        np.testing.assert_allclose(u.mean(axis=0), shared - displacement, atol=1e-12)
        z = soft_threshold(shared - displacement, penalty, gamma, X.shape[1])
        history.append(u)
    return np.array(history)


@pytest.mark.parametrize("clip_norm", [WIDE_OPEN, 0.3], ids=["open", "clipped"])
@pytest.mark.parametrize("lam", [0.2, 0.5, 0.9])
@pytest.mark.parametrize("loss", [SquaredLoss(), LogisticLoss()], ids=["squared", "logistic"])
def test_the_steps_of_all_states_together_never_grow(loss, lam, clip_norm):
    # One iteration is an averaged operator, also of the clipped losses, which are still convex.
    X, y = problem_data(loss, n=40)
    algorithm = ConsensusADMM(step_size=2.0, clip_norm=clip_norm, relaxation=lam)
    u = states(algorithm, X, y, loss=loss, penalty=PENALTIES["L1"], n_iter=60)
    steps = np.linalg.norm((u[1:] - u[:-1]).reshape(60, -1), axis=1)
    assert np.all(steps[1:] <= steps[:-1] * (1 + 1e-9) + 1e-13)
    assert steps[-1] < 0.1 * steps[0]


def test_the_steps_of_all_states_never_grow_for_several_classes_where_nothing_is_clipped():
    loss = MultinomialLoss(3)
    X, y = problem_data(loss, n=40)
    algorithm = ConsensusADMM(step_size=2.0, clip_norm=WIDE_OPEN)
    u = states(algorithm, X, y, loss=loss, penalty=PENALTIES["L2"], n_iter=60)
    steps = np.linalg.norm((u[1:] - u[:-1]).reshape(60, -1), axis=1)
    assert np.all(steps[1:] <= steps[:-1] * (1 + 1e-9) + 1e-13)


@pytest.mark.parametrize("lam", [0.3, 0.5, 0.7])
def test_exact_converges_linearly_on_a_strongly_convex_problem(lam):
    loss, penalty = SquaredLoss(), SquaredL2(0.2)
    X, y = problem_data(loss, n=80)
    best = np.linalg.solve(X.T @ X / len(X) + 0.2 * np.eye(3), X.T @ y / len(X))
    algorithm = ConsensusADMM(
        step_size=2.0, clip_norm=WIDE_OPEN, relaxation=lam, tail_fraction=1e-9
    )
    distance = []
    for k in (10, 20, 40, 60, 80):
        solution, _, _ = run(
            algorithm, X, y, loss=loss, penalty=penalty, max_iter=k, fit_intercept=False
        )
        distance.append(np.linalg.norm(solution.parameters[:, 0] - best))
    # At least a factor of 4 in 20 iterations, until rounding.
    assert all(b <= a / 4 + 1e-13 for a, b in pairwise(distance[1:]))
    assert distance[-1] < 1e-3 * distance[0]


@pytest.mark.parametrize("record_step", ["exact", "linearized"])
@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_what_is_released_never_exceeds_the_clip_bound(loss, record_step):
    X, y = problem_data(loss)
    gamma, clip_norm = 1.5, 0.05
    for lam in (0.3, 0.5, 0.9):
        algorithm = ConsensusADMM(
            step_size=gamma, clip_norm=clip_norm / 2, relaxation=lam, record_step=record_step
        )
        noise = np.random.default_rng(3).normal(size=(20, 4, loss.n_outputs))
        _, _, source = run(
            algorithm, 100 * X, y, loss=loss, penalty=NoPenalty(), max_iter=20,
            noise=KnownNoise(noise),
        )  # fmt: skip
        largest = max(np.linalg.norm(value) for value in source.values)
        reach = 1.0 if lam <= 0.5 else lam / (1 - lam)
        assert 0 < largest <= reach * gamma * clip_norm * (1 + 1e-9)


def test_the_number_of_jobs_changes_no_bit():
    loss = LogisticLoss()
    rng = np.random.default_rng(4)
    X, y = rng.normal(size=(9000, 30)), rng.choice([-1.0, 1.0], size=9000)
    solutions = [
        run(ConsensusADMM(), X, y, loss=loss, penalty=L1(0.01), max_iter=5, n_jobs=n_jobs)
        for n_jobs in (1, 2, 4)
    ]
    assert solutions[0][1].n_blocks > 1
    for solution, _, _ in solutions[1:]:
        np.testing.assert_array_equal(solution.parameters, solutions[0][0].parameters)


def test_progress_hears_of_finished_iterations_and_of_nothing_else():
    loss = SquaredLoss()
    X, y = problem_data(loss)
    heard = []
    c = declared_coordinates(n_features=3, fit_intercept=True, has_target_scale=False)
    algorithm = ConsensusADMM()
    plan = algorithm.plan(example_facts(max_iter=5, n_parameters=4), BUDGET)
    problem = Problem(rows=Rows(X, c), target=y, engine=Engine(), progress=heard.append)
    algorithm.run(plan, problem, Gate(plan, KnownNoise()))
    assert heard == [1, 2, 3, 4, 5]
    assert all(type(done) is int for done in heard)


@pytest.mark.parametrize("record_step", ["exact", "linearized"])
def test_a_private_lasso_is_sparse(record_step):
    rng = np.random.default_rng(5)
    X = rng.uniform(-1, 1, size=(5000, 20))
    y = np.clip(2 * X[:, 0] - X[:, 1], -3, 3)
    algorithm = ConsensusADMM(record_step=record_step)
    for model in (DPAdmmLasso(alpha=0.1), DPAdmmElasticNet(alpha=0.15, l1_ratio=0.7)):
        model.set_params(algorithm=algorithm, epsilon=2.0, random_state=0).fit(X, y)
        assert np.sum(model.coef_ == 0) >= 10
        assert np.all(model.coef_[:2] != 0)
    dense = DPAdmmLasso(alpha=0.0, algorithm=algorithm, epsilon=2.0, random_state=0).fit(X, y)
    assert np.all(dense.coef_ != 0)


# Plans.

BUDGET = Budget(epsilon=1.0, delta=1e-5)


def example_facts(**changed):
    arguments = {
        "n_samples": 60,
        "n_parameters": 4,
        "loss": SquaredLoss(),
        "penalty": L1(0.1),
        "neighboring": Neighboring.REPLACE_ONE,
        "row_norm": 2.0,
        "rounding": 1.0,
        "max_iter": 50,
    }
    return Facts(**(arguments | changed))


def test_a_plan_spends_the_budget_and_not_more():
    for lam in (0.1, 0.5, 0.9):
        plan = ConsensusADMM(relaxation=lam).plan(example_facts(), BUDGET)
        assert 0.999e-5 < plan.guarantee().delta(1.0) <= 1e-5 * (1 + 1e-9)
        assert plan.releases[0].times == 50


def test_knobs_arrive_in_the_settings():
    plan = ConsensusADMM(
        step_size=2, clip_norm=3, relaxation=0.25, record_step="linearized", tail_fraction=0.1
    ).plan(example_facts(), BUDGET)
    assert dataclasses.asdict(plan.settings) == {
        "n_iter": 50, "step_size": 2.0, "relaxation": 0.25, "clip_norm": 3.0,
        "record_step": "linearized", "n_averaged": 5,
    }  # fmt: skip


def test_more_records_need_less_noise_and_a_smaller_epsilon_more():
    def noise_std(epsilon=1.0, **changed):
        knobs = ConsensusADMM(step_size=1.0, clip_norm=1.0)
        budget = Budget(epsilon=epsilon, delta=1e-5)
        return knobs.plan(example_facts(**changed), budget).releases[0].noise_std

    assert noise_std(n_samples=600) == pytest.approx(noise_std() / 10)
    assert noise_std(neighboring=Neighboring.ZERO_OUT) == pytest.approx(noise_std() / 2)
    assert noise_std(rounding=1.5) == pytest.approx(noise_std() * 1.5)
    assert noise_std(epsilon=0.5) > noise_std() > noise_std(epsilon=2.0)


@pytest.mark.parametrize("lam", [8e-17, 1e-12, 1e-6, 0.01, 0.3, 0.5, 0.7, 0.99, 1 - 1e-9])
def test_declared_sensitivities_cover_what_the_recursion_of_a_state_can_do(lam):
    # Replayed exactly: |u_k - u_k'| <= |1 - 2 lam| |u - u'| + 2 lam * 2 C, in units of C / n.
    plan = ConsensusADMM(step_size=1.0, clip_norm=1.0, relaxation=lam).plan(example_facts(), BUDGET)
    exact_lam, worst = Fraction(lam), Fraction(0)
    for declared in plan.releases[0].sensitivities[:20]:
        worst = abs(1 - 2 * exact_lam) * worst + 4 * exact_lam
        assert declared >= float(worst) / 60 * (1 - 1e-12)
        assert declared <= float(worst) / 60 * (1 + 1e-6)


OUT_OF_RANGE = {
    "step_size": [0, -1.0, math.inf, math.nan, "big", None, True],
    "clip_norm": [0.0, -1, math.inf, math.nan, "none", None, False],
    "relaxation": [0, 1, -0.1, 1.5, math.nan, "half", None, True],
    "tail_fraction": [0, -0.5, 1.1, math.nan, "all", None, True],
    "record_step": ["Exact", "inexact", None, 1],
}


@pytest.mark.parametrize(
    ("knob", "value"), [(knob, value) for knob, values in OUT_OF_RANGE.items() for value in values]
)
def test_a_knob_out_of_range_is_refused_with_what_was_expected(knob, value):
    algorithm = ConsensusADMM(**{knob: value})
    with pytest.raises(ValueError, match=f"^Got {knob}=.*, expected .*[.]$"):
        algorithm.plan(example_facts(), BUDGET)


@pytest.mark.parametrize("value", [np.float32(0.25), np.float64(0.25), np.float16(0.25)])
def test_numbers_of_numpy_are_numbers(value):
    algorithm = ConsensusADMM(
        step_size=value, clip_norm=value, relaxation=value, tail_fraction=value
    )
    plain = ConsensusADMM(step_size=0.25, clip_norm=0.25, relaxation=0.25, tail_fraction=0.25)
    plan = algorithm.plan(example_facts(), BUDGET)
    assert plan == plain.plan(example_facts(), BUDGET)
    assert plan.digest() == plain.plan(example_facts(), BUDGET).digest()


def test_knobs_are_parameters_of_scikit_learn():
    algorithm = ConsensusADMM(relaxation=0.7)
    copy = clone(algorithm)
    assert copy is not algorithm
    assert copy.get_params() == algorithm.get_params()
    assert copy.set_params(step_size=2.0).step_size == 2.0
    assert repr(ConsensusADMM()) == "ConsensusADMM()"


@settings(max_examples=300, deadline=None)
@given(
    n_samples=st.integers(1, 10**12),
    n_parameters=st.integers(1, 10**7),
    log_mu=st.floats(-300, 3),
    max_iter=st.integers(1, 10**6),
    loss=st.sampled_from([*LOSSES.values(), HuberLoss(1.0), MultinomialLoss(1000)]),
    neighboring=st.sampled_from(Neighboring),
)
def test_default_steps_are_positive_and_finite_for_every_problem(
    n_samples, n_parameters, log_mu, max_iter, loss, neighboring
):
    row_norm = math.sqrt(n_parameters)
    facts = example_facts(
        n_samples=n_samples, n_parameters=n_parameters, max_iter=max_iter, loss=loss,
        neighboring=neighboring, row_norm=row_norm,
    )  # fmt: skip
    step_size, clip_norm = default_steps(facts, 10.0**log_mu)
    assert 0 < step_size < math.inf
    assert 0 < clip_norm <= row_norm


@settings(max_examples=60, deadline=None)
@given(
    n_samples=st.integers(1, 10**9),
    n_parameters=st.integers(1, 10**5),
    log_epsilon=st.floats(-12, 12),
    log_delta=st.floats(-100, -0.01),
    relaxation=st.floats(0.01, 0.99),
    max_iter=st.integers(1, 300),
)
def test_a_default_plan_exists_for_every_problem_and_budget(
    n_samples, n_parameters, log_epsilon, log_delta, relaxation, max_iter
):
    facts = example_facts(
        n_samples=n_samples, n_parameters=n_parameters, max_iter=max_iter,
        row_norm=math.sqrt(n_parameters),
    )  # fmt: skip
    budget = Budget(epsilon=10.0**log_epsilon, delta=10.0**log_delta)
    plan = ConsensusADMM(relaxation=relaxation).plan(facts, budget)
    assert plan.guarantee().delta(budget.epsilon) <= budget.delta * (1 + 1e-9)
    assert 1 <= plan.settings.n_averaged <= max_iter
    assert plan.releases[0].times == max_iter
