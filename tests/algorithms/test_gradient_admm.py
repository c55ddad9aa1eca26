"""Gradient ADMM without noise and with known noise: steps, optima, schedules, bad input."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import lsq_linear
from sklearn.linear_model import ElasticNet as SklearnElasticNet

import skdpadmm.algorithms._gradient_admm as module
from skdpadmm import (
    DPAdmmElasticNet,
    DPAdmmGeneralizedLasso,
    DPAdmmHuberRegressor,
    DPAdmmLasso,
    DPAdmmLinearSVC,
    DPAdmmLogisticRegression,
    DPAdmmRidge,
)
from skdpadmm.algorithms import GradientADMM, GradientDescent
from skdpadmm.algorithms._gradient_admm import ITERATE, NOISY_GRADIENT
from skdpadmm.algorithms.blocks._gradient_admm_steps import (
    full_gradient_optimum,
    gradient_admm_step,
)
from skdpadmm.algorithms.planning._last_iterate import longest_step
from skdpadmm.algorithms.planning._record_schedule import NOBODY, RecordSchedule, stopping_time
from skdpadmm.algorithms.planning._splitting import splitting_of
from skdpadmm.engine import Engine
from skdpadmm.losses import (
    HuberLoss,
    LogisticLoss,
    MultinomialLoss,
    OneVsRestHinge,
    SmoothedHinge,
    SquaredLoss,
)
from skdpadmm.noise import SeededNoise, grid_cell
from skdpadmm.penalties import (
    L1,
    Box,
    ElasticNet,
    GeneralizedL1,
    LinearConstraint,
    NoPenalty,
    SquaredL2,
    difference_matrix,
)
from skdpadmm.privacy import AmplifiedIteration, Neighboring, amplification_constant
from skdpadmm.protocol import Budget, Facts, Gate, NoisyPath, PlanViolation, Problem
from skdpadmm.records import Rows, declared_coordinates

BUDGET = Budget(epsilon=1.0, delta=1e-5)
LOSSES = [
    SquaredLoss(),
    HuberLoss(0.3),
    LogisticLoss(),
    SmoothedHinge(0.5),
    MultinomialLoss(3),
    OneVsRestHinge(3, 0.5),
]
CLASSIFIED = (LogisticLoss, SmoothedHinge)
SCHEDULES = {
    "cyclic": {"passes": 2},
    "arrival": {"passes": 2, "order": "arrival"},
    "sampling": {"passes": 2, "schedule": "sampling", "cap": 3},
    "stopping": {"schedule": "stopping"},
    "path": {"passes": 2, "release": "path"},
    "last of a path": {"release": "path", "average": False},
    "gradient": {"release": "path", "noise_at": "gradient"},
}


class KnownNoise:
    """Adds noise of a path that a test knows, by default none."""

    simulation = True

    def __init__(self, noise=None, uniforms=None):
        self.noise, self.uniforms = noise, uniforms

    def add_gaussian(self, value, scale, stream):
        if self.noise is None:
            return value
        drawn = np.zeros_like(value)
        part = self.noise[stream[1] * len(value) : (stream[1] + 1) * len(value)]
        drawn[: len(part)] = part
        return value + drawn

    def uniform(self, shape, stream):
        if self.uniforms is None:
            return np.linspace(0.0, 0.999, math.prod(shape)).reshape(shape)
        return np.asarray(self.uniforms).reshape(shape)


def data(loss, n=40, p=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, p))
    scores = X @ rng.normal(size=(p, loss.n_outputs)) + 0.3
    if loss.n_outputs > 1:
        return X, (scores + rng.gumbel(size=scores.shape)).argmax(axis=1)
    if isinstance(loss, CLASSIFIED):
        return X, np.where(scores[:, 0] + rng.normal(size=n) > 0, 1.0, -1.0)
    return X, scores[:, 0] + 0.1 * rng.normal(size=n)


def make_facts(coordinates, n, loss, penalty, **more):
    return Facts(
        n_samples=n,
        n_parameters=coordinates.n_parameters,
        loss=loss,
        penalty=penalty,
        neighboring=Neighboring.REPLACE_ONE,
        row_norm=coordinates.row_norm,
        rounding=1.0,
        max_iter=100,
        coordinates=coordinates,
        **more,
    )


def coordinates_of(p, fit_intercept=True):
    return declared_coordinates(n_features=p, fit_intercept=fit_intercept, has_target_scale=False)


def run(algorithm, X, y, *, loss, penalty=NoPenalty(), noise=None, fit_intercept=True):  # noqa: B008
    c = coordinates_of(X.shape[1], fit_intercept)
    plan = algorithm.plan(make_facts(c, len(X), loss, penalty), BUDGET)
    gate = Gate(plan, noise or KnownNoise())
    with Engine().running() as engine:
        problem = Problem(rows=Rows(X, c), target=y, engine=engine)
        solution = algorithm.run(plan, problem, gate)
    gate.close()
    return solution, plan, gate


def prox_of(penalty, beta, v, p):
    """Of elastic nets and their like, the intercept left as it is."""
    l1 = getattr(penalty, "l1", penalty.strength if isinstance(penalty, L1) else 0.0)
    l2 = getattr(penalty, "l2", penalty.strength if isinstance(penalty, SquaredL2) else 0.0)
    result = v.copy()
    result[:p] = np.sign(v[:p]) * np.maximum(np.abs(v[:p]) - l1 / beta, 0) / (1 + l2 / beta)
    return result


def naive(X, y, loss, penalty, *, eta, beta, clip, noise, cell, records, at_gradient=False):
    """The algorithm of the docstring with A = I, B = -I, c = 0; returns all (x, multipliers)."""
    p = X.shape[1]
    rows = np.column_stack([X, np.ones(len(X))])
    x = np.zeros((p + 1, loss.n_outputs))
    lam = np.zeros_like(x)
    path = []
    for i, drawn in zip(records, noise, strict=True):
        y_part = prox_of(penalty, beta, x - lam / beta, p)
        following = lam - beta * (x - y_part)
        gradient = np.zeros_like(x)
        if i != NOBODY:
            score = rows[i : i + 1] @ x
            slope = loss.derivative(score if loss.n_outputs > 1 else score[:, 0], y[i : i + 1])
            gradient = np.outer(rows[i], slope)
            gradient *= min(1.0, clip / max(np.linalg.norm(gradient), 1e-300))
        if at_gradient:
            gradient = np.rint(gradient / cell) * cell + drawn
        x = (x - eta * (gradient - beta * y_part - following)) / (1 + eta * beta)
        if not at_gradient:
            x = np.rint(x / cell) * cell + drawn
        lam = following
        path.append((x, lam))
    return path


def steps_of(algorithm, X, y, loss, penalty, records, seed=1):
    """What a run under known noise returns, what the docstring says, and its plan."""
    c = coordinates_of(X.shape[1])
    plan = algorithm.plan(make_facts(c, len(X), loss, penalty), BUDGET)
    settings, release = plan.settings, plan.releases[-1]
    cell = grid_cell(release.noise_std)
    rng = np.random.default_rng(seed)
    scale = release.noise_std if release.name == ITERATE else 0.1
    drawn = scale * rng.normal(size=(len(records), *release.shape))
    drawn = np.rint(drawn / cell) * cell
    solution, _, _ = run(algorithm, X, y, loss=loss, penalty=penalty, noise=KnownNoise(drawn))
    path = naive(
        X,
        y,
        loss,
        penalty,
        eta=settings.step_size,
        beta=settings.penalty_weight,
        clip=settings.clip_norm,
        noise=drawn,
        cell=cell,
        records=records,
        at_gradient=release.name == NOISY_GRADIENT,
    )
    return solution, path, plan


# Steps


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
@pytest.mark.parametrize("penalty", [NoPenalty(), L1(0.02), ElasticNet(0.02, 0.1)], ids=repr)
def test_a_step_is_that_of_the_docstring(loss, penalty):
    X, y = data(loss)
    algorithm = GradientADMM(order="arrival", passes=2, step_size=0.05, penalty_weight=3.0)
    records = np.tile(np.arange(40), 2)
    solution, path, plan = steps_of(algorithm, X, y, loss, penalty, records)
    x, lam = path[-1]
    assert solution.n_iter == 80
    np.testing.assert_allclose(
        solution.parameters, prox_of(penalty, 3.0, x - lam / 3.0, 3), atol=1e-12
    )
    # The clip is at work for one score, and never binds for several.
    assert (plan.settings.clip_norm < loss.lipschitz * 2) == (loss.n_outputs == 1)


@pytest.mark.parametrize("loss", [SquaredLoss(), MultinomialLoss(3)], ids=repr)
def test_an_average_is_one_of_the_states_with_weights_that_grow(loss):
    X, y = data(loss)
    algorithm = GradientADMM(release="path", order="arrival", step_size=0.05, penalty_weight=3.0)
    solution, path, plan = steps_of(algorithm, X, y, loss, L1(0.02), np.arange(40))
    assert plan.settings.average
    # In closed form: t (t + 1) (t + 2), the third power of the step up to lower ones.
    t = np.arange(1.0, 41.0)
    weights = t * (t + 1) * (t + 2) / np.sum(t * (t + 1) * (t + 2))
    x, lam = (sum(w * state[k] for w, state in zip(weights, path, strict=True)) for k in (0, 1))
    expected = prox_of(L1(0.02), 3.0, x - lam / 3.0, 3)
    np.testing.assert_allclose(solution.parameters, expected, atol=1e-12)


def test_noise_may_enter_at_the_gradient():
    loss = HuberLoss(0.3)
    X, y = data(loss)
    algorithm = GradientADMM(
        release="path",
        order="arrival",
        noise_at="gradient",
        average=False,
        step_size=0.05,
        penalty_weight=3.0,
    )
    solution, path, plan = steps_of(algorithm, X, y, loss, L1(0.02), np.arange(40))
    assert plan.releases[-1].name == NOISY_GRADIENT
    x, lam = path[-1]
    np.testing.assert_allclose(
        solution.parameters, prox_of(L1(0.02), 3.0, x - lam / 3.0, 3), atol=1e-12
    )


def test_noise_at_the_gradient_takes_the_step_size_and_the_resolvent_to_x():
    # The same noise on x and, as M / eta times it, at the gradient: A = I, so that M is a number.
    loss, eta, beta = HuberLoss(0.3), 0.05, 3.0
    X, y = data(loss)
    knobs = {"step_size": eta, "penalty_weight": beta, "release": "path", "order": "arrival"}
    unit = np.random.default_rng(0).normal(size=(40, 4, 1))
    found = [
        run(GradientADMM(noise_at=place, average=False, **knobs), X, y, loss=loss,
            penalty=L1(0.02), noise=KnownNoise(scale * unit))[0].parameters
        for place, scale in (("x", 0.01), ("gradient", -0.01 * (1 + eta * beta) / eta))
    ]  # fmt: skip
    # Up to the grids of the two, 1e-6 of their noise.
    np.testing.assert_allclose(*found, atol=1e-5)


def test_without_a_penalty_and_with_a_small_weight_a_step_is_that_of_stochastic_descent():
    loss = LogisticLoss()
    X, y = data(loss)
    algorithm = GradientADMM(order="arrival", passes=1, step_size=0.2, penalty_weight=1e-9)
    solution, plan, _ = run(algorithm, X, y, loss=loss)
    rows, x = np.column_stack([X, np.ones(40)]), np.zeros(4)
    for a, target in zip(rows, y, strict=True):
        slope = loss.derivative((a @ x)[None], np.array([target]))[0]
        limit = plan.settings.clip_norm / np.linalg.norm(a)
        x -= 0.2 * a * np.clip(slope, -limit, limit)
    cell = grid_cell(plan.releases[-1].noise_std)
    np.testing.assert_allclose(solution.parameters[:, 0], x, atol=40 * cell)


def general(seed=0, m=2, n_auxiliary=2):
    rng = np.random.default_rng(seed)
    A, B = rng.normal(size=(m, 3)), rng.normal(size=(m, n_auxiliary))
    return A, B, rng.normal(size=m)


@pytest.mark.parametrize("n_outputs", [1, 3])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("n_auxiliary", [1, 2])
def test_a_step_with_any_constraint_is_that_of_the_docstring(n_outputs, fit_intercept, n_auxiliary):
    A, B, c = general(n_auxiliary=n_auxiliary)
    rng = np.random.default_rng(1)
    rows = Rows(rng.normal(size=(5, 3)), coordinates_of(3, fit_intercept))
    strength, eta, beta = 0.7, 0.3, 2.0
    splitting = splitting_of(SquaredL2(strength), rows, LinearConstraint(A, B, c))
    step = gradient_admm_step(splitting, eta, beta)
    full = np.column_stack([A, np.zeros(2)]) if fit_intercept else A
    scale = np.ones(full.shape[1])
    scale[:3] = rows.coordinates.coefficient_scale
    full = full * scale
    d, k = full.shape[1], n_outputs
    x, lam, gradient = (rng.normal(size=(h, k)) for h in (d, 2, d))
    pull = lam - beta * full @ x
    y = np.linalg.solve(
        strength * np.eye(n_auxiliary) + beta * B.T @ B, B.T @ (pull + beta * c[:, None])
    )
    following = lam - beta * (full @ x + B @ y - c[:, None])
    inverse = np.linalg.inv(np.eye(d) + eta * beta * full.T @ full)
    moved = inverse @ (x - eta * (gradient + full.T @ (beta * (B @ y - c[:, None]) - following)))
    for found, expected in zip(step(x, lam, gradient), (moved, following), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-12)
    np.testing.assert_allclose(step.penalised_part(x, lam), y, atol=1e-12)
    # Plain vectors serve one score.
    flat = step(x[:, 0], lam[:, 0], gradient[:, 0])
    np.testing.assert_allclose(flat[0], moved[:, 0], atol=1e-12)
    np.testing.assert_allclose(flat[1], following[:, 0], atol=1e-12)


def test_the_order_x_y_multipliers_walks_along_the_same_x():
    # The form in which the paper states its utility, with multipliers one step ahead.
    A, B, c = general(n_auxiliary=1)
    rng = np.random.default_rng(2)
    rows = Rows(rng.normal(size=(30, 3)), coordinates_of(3, fit_intercept=False))
    full = A * rows.coordinates.coefficient_scale
    eta, beta = 0.1, 1.5
    step = gradient_admm_step(splitting_of(L1(0.3), rows, LinearConstraint(A, B, c)), eta, beta)
    X, t = rng.normal(size=(30, 3)), rng.normal(size=30)
    noise = 0.1 * rng.normal(size=(30, 3))
    inverse = np.linalg.inv(np.eye(3) + eta * beta * full.T @ full)
    x, lam = rng.normal(size=3), rng.normal(size=2)
    x_b, y_b = x.copy(), step.penalised_part(x, lam)
    lam_b = lam - beta * (full @ x + B @ y_b - c)
    for i in range(30):
        x, lam = step(x, lam, X[i] * (X[i] @ x - t[i]))
        x = x + noise[i]
        gradient = X[i] * (X[i] @ x_b - t[i])
        x_b = inverse @ (x_b - eta * (gradient + full.T @ (beta * (B @ y_b - c) - lam_b)))
        x_b = x_b + noise[i]
        np.testing.assert_allclose(lam_b, lam, atol=1e-12)
        y_b = step.penalised_part(x_b, lam_b)
        lam_b = lam_b - beta * (full @ x_b + B @ y_b - c)
        np.testing.assert_allclose(x_b, x, atol=1e-12)


def test_a_step_with_equal_gradients_moves_no_two_states_apart_in_the_norm_of_the_theorem():
    rng = np.random.default_rng(3)
    for seed in range(200):
        A, B, c = general(seed, n_auxiliary=1 + seed % 2)
        rows = Rows(np.zeros((1, 3)), coordinates_of(3, fit_intercept=False))
        full = A * rows.coordinates.coefficient_scale
        curvature = rng.uniform(0.1, 3.0)
        eta, beta = rng.uniform(0.01, 2.0) / curvature, 10 ** rng.uniform(-2, 2)
        penalty = [L1(0.3), Box(-0.2, 0.4), SquaredL2(2.0), NoPenalty()][seed % 4]
        step = gradient_admm_step(splitting_of(penalty, rows, LinearConstraint(A, B, c)), eta, beta)
        a = rng.normal(size=3)
        a *= math.sqrt(curvature) / np.linalg.norm(a)

        def norm(x, lam, full=full, eta=eta, beta=beta):
            return x @ x + eta / beta * np.sum((lam - beta * full @ x) ** 2)

        states = [(rng.normal(size=3), rng.normal(size=2)) for _ in range(2)]
        # The derivative of a clipped squared loss: convex and smooth.
        moved = [step(x, lam, a * np.clip(a @ x - 0.3, -0.8, 0.8)) for x, lam in states]
        before, after = (norm(*(p - q for p, q in zip(*pair))) for pair in (states, moved))  # noqa: B905
        assert after <= before * (1 + 1e-10)


# Optima


def regression(n=200, p=5, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p)) * np.logspace(-0.5, 0.5, p)
    return X, X @ np.array([1.0, 0.0, -2.0, 0.0, 0.5])[:p] + 1.0 + 0.3 * rng.normal(size=n)


def test_full_gradients_reach_the_elastic_net_of_scikit_learn():
    rng = np.random.default_rng(0)
    X = rng.uniform(-0.5, 0.5, (100, 4))
    y = X @ [1.0, 0.0, -1.0, 0.2] + 0.1 * rng.normal(size=100)
    penalty = ElasticNet(0.01, 0.02)
    rows = Rows(
        X,
        declared_coordinates(
            n_features=4, fit_intercept=False, feature_bounds=(-1, 1), has_target_scale=False
        ),
    )
    unit = rows.coordinates.coefficient_scale
    seen = rows.seen(0)
    step_size = 1 / np.linalg.norm(seen.T @ seen / 100, 2)
    for beta in (0.3, 3.0):
        step = gradient_admm_step(splitting_of(penalty, rows, None), step_size, beta)
        zero = module.GradientADMMState(
            **dict.fromkeys(("x", "multipliers", "mean_x", "mean_multipliers"), np.zeros((4, 1)))
        )
        state = full_gradient_optimum(
            step,
            lambda x: seen.T @ (seen @ x - y[:, None]) / 100,
            zero,
            max_iter=20_000,
            tolerance=1e-14,
        )
        assert state.n_steps < 20_000
        model = SklearnElasticNet(alpha=0.03, l1_ratio=1 / 3, tol=1e-14, fit_intercept=False)
        expected = model.fit(X, y).coef_
        part = step.penalised_part(state.x, state.multipliers)
        np.testing.assert_allclose(unit * part[:, 0], expected, atol=1e-8)
        np.testing.assert_allclose(unit * state.x[:, 0], expected, atol=1e-8)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("declared", [{}, {"feature_bounds": (-9, 9), "target_bounds": (-20, 30)}])
@pytest.mark.parametrize(
    "constraint",
    [LinearConstraint(), LinearConstraint(np.eye(5)), LinearConstraint(B=np.eye(5))],
    ids=repr,
)
def test_without_privacy_the_constraint_x_is_y_gives_the_elastic_net(
    fit_intercept, declared, constraint
):
    X, y = regression()
    model = DPAdmmElasticNet(
        alpha=0.1,
        l1_ratio=0.4,
        epsilon=math.inf,
        fit_intercept=fit_intercept,
        algorithm=GradientADMM(constraint=constraint),
        **declared,
    ).fit(X, y)
    expected = SklearnElasticNet(
        alpha=0.1, l1_ratio=0.4, tol=1e-14, max_iter=100_000, fit_intercept=fit_intercept
    ).fit(X, y)
    np.testing.assert_allclose(model.coef_, expected.coef_, atol=1e-8)
    assert model.intercept_ == pytest.approx(expected.intercept_, abs=1e-8)


@pytest.mark.parametrize("seed", range(4))
def test_without_privacy_a_ridge_of_y_solves_its_linear_system(seed):
    A, B, c = general(seed, n_auxiliary=1 + seed % 2)
    X, y = regression(p=3, seed=seed)
    model = DPAdmmRidge(
        alpha=20.0, epsilon=math.inf, algorithm=GradientADMM(constraint=LinearConstraint(A, B, c))
    ).fit(X, y)
    Xc, yc = X - X.mean(axis=0), y - y.mean()
    m, k = B.shape
    system = np.block(
        [
            [Xc.T @ Xc, np.zeros((3, k)), A.T],
            [np.zeros((k, 3)), 20.0 * np.eye(k), B.T],
            [A, B, np.zeros((m, m))],
        ]
    )
    expected = np.linalg.solve(system, np.concatenate([Xc.T @ yc, np.zeros(k), c]))[:3]
    np.testing.assert_allclose(model.coef_, expected, atol=1e-8)
    assert model.intercept_ == pytest.approx(y.mean() - X.mean(axis=0) @ expected, abs=1e-8)


@pytest.mark.parametrize("m", [1, 3, 5])
@pytest.mark.parametrize("convert", [np.asarray, sparse.csr_array])
def test_without_privacy_the_answer_meets_the_conditions_of_an_optimum(m, convert):
    rng = np.random.default_rng(m)
    A, c, alpha = rng.normal(size=(m, 5)), rng.normal(size=m), 0.2
    X, y = regression()
    model = DPAdmmLasso(
        alpha=alpha,
        epsilon=math.inf,
        algorithm=GradientADMM(constraint=LinearConstraint(convert(A), c=c)),
    ).fit(X, y)
    residual = X @ model.coef_ + model.intercept_ - y
    assert abs(residual.mean()) < 1e-9
    # The gradient is -A' u with u a subgradient of alpha ||.||_1 at A w - c.
    gradient = X.T @ residual / len(y)
    u = -np.linalg.lstsq(A.T, gradient, rcond=None)[0]
    np.testing.assert_allclose(A.T @ u, -gradient, atol=1e-8)
    assert np.abs(u).max() <= alpha + 1e-8
    apart = A @ model.coef_ - c
    free = np.abs(apart) > 1e-6
    np.testing.assert_allclose(u[free], alpha * np.sign(apart[free]), atol=1e-8)


def test_full_gradients_keep_bounds():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(50, 3)), rng.normal(size=50)
    c = coordinates_of(3, fit_intercept=False)
    rows = Rows(X, c)
    seen, unit = rows.seen(0), c.coefficient_scale
    for constraint in (None, LinearConstraint(np.eye(3))):
        step = gradient_admm_step(splitting_of(Box(0.0, 0.1), rows, constraint), 0.5, 1.0)
        zero = np.zeros((3, 1))
        state = full_gradient_optimum(
            step,
            lambda x: seen.T @ (seen @ x - y[:, None]) / 50,
            module.GradientADMMState(x=zero, multipliers=zero, mean_x=zero, mean_multipliers=zero),
            max_iter=20_000,
            tolerance=1e-14,
        )
        best = lsq_linear(seen / unit, y, bounds=(0.0, 0.1), tol=1e-14).x
        np.testing.assert_allclose(unit * state.x[:, 0], best, atol=1e-6)


def test_a_splitting_is_made_once_and_follows_its_public_facts():
    rows = Rows(np.zeros((1, 4)), coordinates_of(4))
    again = Rows(np.ones((2, 4)), coordinates_of(4))
    D = difference_matrix(4, 1)
    made = splitting_of(GeneralizedL1(D, 1.0), rows, None)
    assert splitting_of(GeneralizedL1(D.toarray(), 1.0), again, None) is made
    assert made.penalised(2.0) is made.penalised(2.0)
    shifted = LinearConstraint(D, c=np.ones(3))
    others = [
        splitting_of(GeneralizedL1(D, 2.0), rows, None),
        splitting_of(GeneralizedL1(D, 1.0), Rows(np.zeros((1, 4)), coordinates_of(4, False)), None),
        splitting_of(L1(1.0), rows, LinearConstraint(D)),
        splitting_of(L1(1.0), rows, shifted),
    ]
    assert len({id(splitting) for splitting in (made, *others)}) == 5
    # The nearest x whose image is y.
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(5, 2)), rng.normal(size=(3, 2))
    found = made.solution(x, y)
    np.testing.assert_allclose(made.forward(found), y, atol=1e-12)
    dense = made.forward(np.eye(5))
    np.testing.assert_allclose(
        found, x + np.linalg.lstsq(dense, y - dense @ x, rcond=None)[0], atol=1e-12
    )


def test_what_is_sparse_in_the_image_is_so_in_the_answer():
    loss, D = SquaredLoss(), difference_matrix(6, 1)
    X, y = data(loss, n=300, p=6)
    algorithm = GradientADMM(step_size=0.01)
    solution, _, _ = run(algorithm, X, 0 * y, loss=loss, penalty=GeneralizedL1(D, 10.0))
    assert np.ptp(solution.parameters[:6]) < 1e-14


def test_a_constraint_gives_noisy_coefficients_and_the_same_data_other_ones_with_another():
    X, y = data(SquaredLoss(), n=300)
    plans, coefs = [], []
    for offset in (0.0, 1.0):
        constraint = LinearConstraint(np.eye(3), c=np.full(3, offset))
        model = DPAdmmLasso(
            alpha=0.1, algorithm=GradientADMM(constraint=constraint), random_state=0
        )
        plans.append(model.plan(300, 3))
        coefs.append(model.fit(X, y).coef_)
    # Equal seeds share no noise between them.
    assert plans[0] != plans[1]
    assert plans[0].digest() != plans[1].digest()
    assert not np.array_equal(*coefs)


def test_a_matrix_of_the_penalty_and_a_constraint_are_one_too_many():
    algorithm = GradientADMM(constraint=LinearConstraint(np.eye(3)))
    X, y = data(SquaredLoss())
    for epsilon in (1.0, math.inf):
        model = DPAdmmGeneralizedLasso(epsilon=epsilon, algorithm=algorithm)
        message = r"^Got penalty_matrix and GradientADMM\(constraint=\.\.\.\), expected one of them"
        for action in (lambda model=model: model.plan(40, 3), lambda model=model: model.fit(X, y)):
            with pytest.raises(ValueError, match=message):
                action()


def test_one_column_of_an_offset_is_a_vector():
    X, y = data(SquaredLoss(), n=100)
    for epsilon in (1.0, math.inf):
        fits = [
            DPAdmmLasso(
                alpha=0.01, epsilon=epsilon, random_state=0,
                algorithm=GradientADMM(constraint=LinearConstraint(c=c)),
            ).fit(X, y).coef_
            for c in (np.ones((3, 1)), np.ones(3))
        ]  # fmt: skip
        if epsilon == math.inf:
            np.testing.assert_allclose(*fits, atol=1e-12)


@pytest.mark.parametrize("c", [np.full(4, 0.1), np.full((4, 3), 0.1)], ids=["vector", "columns"])
@pytest.mark.parametrize("epsilon", [1.0, math.inf])
def test_offsets_serve_several_scores(c, epsilon):
    X, y = data(MultinomialLoss(3), p=4)
    algorithm = GradientADMM(constraint=LinearConstraint(c=c))
    model = DPAdmmLogisticRegression(epsilon=epsilon, algorithm=algorithm, random_state=0)
    assert np.isfinite(model.fit(X, y).coef_).all()


# Schedules


def schedule(kind, n=10, passes=2, cap=3, seed=0, *, secret=True, hidden=True):
    return RecordSchedule(
        n_places=n,
        kind=kind,
        n_passes=passes,
        cap=cap,
        seed=seed,
        is_secret=secret,
        is_hidden=hidden,
    )


def test_a_cyclic_schedule_uses_every_place_once_in_each_pass():
    places = schedule("cyclic").places()
    np.testing.assert_array_equal(places.reshape(2, 10), [np.arange(10)] * 2)
    np.testing.assert_array_equal(schedule("stopping", passes=1).places(), np.arange(10))


@pytest.mark.parametrize("cap", [1, 2, 50])
def test_sampling_draws_with_replacement_up_to_a_cap(cap):
    made = schedule("sampling", n=50, passes=4, cap=cap)
    places = made.places()
    assert made.n_steps == len(places) == 200
    drawn = np.random.default_rng(0).integers(50, size=200)
    used = np.zeros(50, dtype=int)
    for place, wanted in zip(places, drawn, strict=True):
        used[wanted] += 1
        assert place == (wanted if used[wanted] <= cap else NOBODY)
    np.testing.assert_array_equal(places, made.places())
    assert not np.array_equal(
        places, schedule("sampling", n=50, passes=4, cap=cap, seed=1).places()
    )


def test_what_has_no_effect_on_a_schedule_is_no_part_of_the_plan():
    def plan(**knobs):
        return DPAdmmLasso(algorithm=GradientADMM(**knobs)).plan(50, 3)

    for knobs in ({}, {"release": "path"}, {"schedule": "stopping"}, {"schedule": "stream"}):
        one, other = plan(**knobs), plan(order_seed=7, **knobs)
        assert one == other
        assert one.digest() == other.digest()
        assert one.settings.schedule.cap is one.settings.schedule.seed is None
    one, other = (plan(schedule="sampling", order_seed=seed) for seed in (0, 7))
    assert one.digest() != other.digest()


def test_a_schedule_says_what_it_is_and_draws_what_is_secret():
    plan = GradientADMM().plan(
        make_facts(coordinates_of(3), 10, SquaredLoss(), NoPenalty()), BUDGET
    )
    uniforms = np.random.default_rng(0).random(10)
    for kind in ("cyclic", "sampling", "stopping", "stream"):
        made = schedule(kind, passes=1, secret=kind in ("cyclic", "sampling"))
        assert made.is_arrival == (kind == "stream")
        assert made.hides_its_end == (kind == "stopping")
        noise = KnownNoise(uniforms=uniforms if made.is_secret else [0.5])
        records, end = made.drawn(Gate(plan, noise))
        order = np.argsort(uniforms) if made.is_secret else np.arange(10)
        expected = [order[place] if place != NOBODY else NOBODY for place in made.places()]
        np.testing.assert_array_equal(records, expected)
        assert end == (stopping_time(10, 0.5) if kind == "stopping" else 10)
        words = " ".join(made.assumptions())
        assert ("order of the records" in words) == made.is_secret
        assert ("stops" in words) == made.hides_its_end
        assert ("arrives once" in words) == made.is_arrival


@pytest.mark.parametrize("n", [1, 2, 3, 8, 9, 101])
def test_the_time_of_stopping_is_uniform_on_the_second_half(n):
    # Each time has an interval of one length, so that a uniform number makes it uniform.
    grid = (np.arange(1000 * (n - n // 2)) + 0.5) / (1000 * (n - n // 2))
    times, counts = np.unique([stopping_time(n, u) for u in grid], return_counts=True)
    np.testing.assert_array_equal(times, np.arange(n // 2 + 1, n + 1))
    np.testing.assert_array_equal(counts, 1000)
    assert stopping_time(n, 0.0) == n // 2 + 1
    assert stopping_time(n, np.nextafter(1.0, 0.0)) == n


@pytest.mark.parametrize("kind", SCHEDULES)
def test_steps_follow_the_schedule_and_the_secret_order(monkeypatch, kind):
    taken = []
    honest = module.seen_in_order

    def spy(rows, records):
        taken.extend(records.tolist())
        return honest(rows, records)

    monkeypatch.setattr(module, "seen_in_order", spy)
    monkeypatch.setattr(module, "CHUNK_ENTRIES", 4 * 7)
    loss = SquaredLoss()
    X, y = data(loss)
    algorithm = GradientADMM(**SCHEDULES[kind])
    uniforms = np.random.default_rng(5).random(40)
    noise = KnownNoise(uniforms=uniforms if kind != "stopping" else [0.5])
    solution, plan, gate = run(algorithm, X, y, loss=loss, noise=noise)
    made = plan.settings.schedule
    order = np.argsort(uniforms) if made.is_secret else np.arange(40)
    expected = [order[place] if place != NOBODY else 0 for place in made.places()]
    np.testing.assert_array_equal(taken, expected)
    assert made.is_secret == (kind not in ("arrival", "stopping"))
    # The trace is the plan: one path, of as many steps; what stops early tells nobody.
    assert {name for name, _ in gate.trace} == {plan.releases[-1].name}
    assert sum(shape[0] for _, shape in gate.trace) == plan.releases[-1].times == len(expected)
    assert solution.n_iter == len(expected)


def test_a_run_that_stops_ends_at_its_time():
    loss = HuberLoss(0.3)
    X, y = data(loss)
    knobs = {"step_size": 0.05, "penalty_weight": 3.0, "clip_norm": 0.2}
    noise = KnownNoise(uniforms=[0.25])
    stopped, _, _ = run(GradientADMM(schedule="stopping", **knobs), X, y, loss=loss, noise=noise)
    end = stopping_time(40, 0.25)
    assert end == 26
    whole, _, _ = run(GradientADMM(order="arrival", passes=1, **knobs), X[:end], y[:end], loss=loss)
    np.testing.assert_allclose(stopped.parameters, whole.parameters, atol=1e-5)


def test_a_secret_time_of_stopping_is_told_by_no_count_and_no_progress():
    X, y = data(SquaredLoss())
    told = set()
    for seed in range(6):
        counts = []
        c = coordinates_of(3)
        algorithm = GradientADMM(schedule="stopping")
        plan = algorithm.plan(make_facts(c, 40, SquaredLoss(), L1(0.1)), BUDGET)
        noise = SeededNoise((seed,), b"")
        with Engine().running() as engine:
            problem = Problem(rows=Rows(X, c), target=y, engine=engine, progress=counts.append)
            solution = algorithm.run(plan, problem, Gate(plan, noise))
        told.add((solution.n_iter, tuple(counts)))
    assert told == {(40, (40,))}


@pytest.mark.parametrize("kind", SCHEDULES)
def test_the_size_of_chunks_changes_nothing(monkeypatch, kind):
    loss = LogisticLoss()
    X, y = data(loss)
    found = []
    for entries in (2**18, 4 * 11, 1):
        monkeypatch.setattr(module, "CHUNK_ENTRIES", entries)
        noise = SeededNoise((0,), b"plan")
        solution, _, _ = run(GradientADMM(**SCHEDULES[kind]), X, y, loss=loss, noise=noise)
        found.append(solution.parameters)
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])


def test_the_noise_of_a_step_does_not_depend_on_how_steps_are_asked_for():
    plan = GradientADMM(passes=300).plan(
        make_facts(coordinates_of(3), 40, SquaredLoss(), NoPenalty()), BUDGET
    )

    def noise(pieces):
        gate = Gate(plan, SeededNoise((0,), b""))
        return np.concatenate([gate.path_noise(ITERATE, piece) for piece in pieces])

    whole = noise([12_000])
    assert len(np.unique(whole)) > 0.99 * whole.size
    np.testing.assert_array_equal(whole, noise([1, 0, 4094, 2, 4096, 3807]))
    np.testing.assert_array_equal(whole[:50], noise([1] * 50))
    cell = grid_cell(plan.releases[-1].noise_std)
    np.testing.assert_array_equal(np.rint(whole / cell) * cell, whole)
    assert np.std(whole) == pytest.approx(plan.releases[-1].noise_std, rel=0.02)


def test_blocks_of_noise_are_drawn_for_replay_alone():
    plan = GradientADMM(schedule="stream").plan(
        make_facts(coordinates_of(3), 1, SquaredLoss(), NoPenalty(), is_stream=True), BUDGET
    )

    for simulation in (True, False):
        shapes = []

        class Tap(KnownNoise):
            def add_gaussian(self, value, scale, stream, shapes=shapes):
                shapes.append(value.shape)
                return super().add_gaussian(value, scale, stream)

        noise = Tap()
        noise.simulation = simulation
        gate = Gate(plan, noise)
        for n_steps in (1, 0, 5):
            assert gate.path_noise(ITERATE, n_steps).shape == (n_steps, 4, 1)
        assert shapes == ([(4096, 4, 1)] * 2 if simulation else [(1, 4, 1), (5, 4, 1)])


def test_the_gate_lets_out_no_step_more_than_planned():
    plan = GradientADMM(passes=1).plan(
        make_facts(coordinates_of(3), 40, SquaredLoss(), NoPenalty()), BUDGET
    )
    gate = Gate(plan, KnownNoise())
    gate.path_noise(ITERATE, 39)
    with pytest.raises(PlanViolation, match="39 times, expected 40"):
        gate.close()
    with pytest.raises(PlanViolation, match=r"step 41 .*no more than 40"):
        gate.path_noise(ITERATE, 2)
    with pytest.raises(PlanViolation, match="path_noise"):
        gate.release(ITERATE, np.zeros((4, 1)))


def test_the_default_number_of_passes_follows_public_facts():
    def passes(n, max_iter=100, **knobs):
        model = DPAdmmLasso(algorithm=GradientADMM(**knobs), max_iter=max_iter, delta=1e-8)
        return model.plan(n, 3).settings.schedule.n_passes

    assert passes(1) == 1
    assert passes(500, release="path") == 1
    assert passes(500, max_iter=7) == 7
    assert passes(500) == 1 + int(500 // (2 * amplification_constant(1.0)))
    assert passes(10_000) == 5
    assert passes(100_000) == 1
    assert passes(500, schedule="stopping") == passes(500, schedule="stream") == 1
    assert passes(500, passes=13) == 13


def test_automatic_knobs_are_those_of_the_docstring():
    plan = DPAdmmLasso(algorithm=GradientADMM()).plan(1000, 3)
    settings = plan.settings
    assert settings.step_size <= longest_step(plan.facts)
    assert settings.step_size * settings.penalty_weight == pytest.approx(1.0)
    assert settings.amplification == pytest.approx(amplification_constant(1.0))
    sampled = DPAdmmLasso(algorithm=GradientADMM(schedule="sampling")).plan(1000, 3).settings
    assert sampled.schedule.cap == 3 * sampled.schedule.n_passes
    assert not settings.average
    A = 3 * difference_matrix(3, 1)
    values = np.linalg.svdvals(A.toarray())
    plan = DPAdmmLasso(
        algorithm=GradientADMM(constraint=LinearConstraint(A)), feature_bounds=(-1, 1)
    ).plan(1000, 3)
    # Targets in [-3, 3] have 3 as their unit.
    unit = np.unique(plan.facts.coordinates.coefficient_scale)
    assert unit.size == 1
    product = plan.settings.step_size * plan.settings.penalty_weight * unit[0] ** 2
    assert product * values[0] * values[-1] == pytest.approx(1.0)
    kappa = values[-1] / values[0]
    assert plan.settings.amplification == pytest.approx(amplification_constant(kappa))
    stream = GradientADMM(schedule="stream")
    averages = [
        DPAdmmLasso(algorithm=a).plan(1000, 3).settings.average
        for a in (GradientADMM(release="path"), stream)
    ]
    assert averages == [True, False]
    near, far = (
        DPAdmmLasso(algorithm=GradientADMM(schedule="stream", horizon=h)).plan(9, 3).settings
        for h in (100, 10**6)
    )
    assert near.step_size != far.step_size


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("kind", SCHEDULES)
@pytest.mark.parametrize("neighboring", ["replace_one", "zero_out"])
def test_the_budget_is_spent_and_not_overspent(kind, epsilon, neighboring):
    model = DPAdmmLasso(
        algorithm=GradientADMM(**SCHEDULES[kind]), epsilon=epsilon, neighboring=neighboring
    )
    plan = model.plan(500, 3)
    assert plan.guarantee().delta(epsilon) <= 1e-5 * (1 + 1e-9)
    assert plan.guarantee().epsilon(1e-5) == pytest.approx(epsilon, rel=1e-6)
    path = plan.releases[-1]
    assert isinstance(path, NoisyPath)
    # A is square: the constraint holds every direction back.
    settings = plan.settings
    held = settings.step_size / (1 + settings.step_size * settings.penalty_weight)
    assert settings.displacement == pytest.approx(held)
    length = held if path.name == ITERATE else 1.0
    factor = 2 if neighboring == "replace_one" else 1
    expected = length * factor * plan.settings.clip_norm
    assert expected <= path.sensitivity <= expected * (1 + 1e-6)


def test_the_guarantee_of_a_schedule_is_that_of_its_places():
    made = AmplifiedIteration(0.5, amplification_constant(1.0), 1e-6)
    kept = schedule("cyclic", secret=False).guarantees(made)
    assert kept[0] == kept[1]
    # The last place of two passes of ten: ten steps, then the last.
    assert kept[1].mu == pytest.approx(made.participations([10, 1]).mu)
    average, worst = schedule("cyclic").guarantees(made)
    assert worst == kept[1]
    best = made.participations([10, 10]).mu
    assert best < worst.mu
    for epsilon in (0.1, 1.0):
        deltas = [made.participations([10, 10 - k]).delta(epsilon) for k in range(10)]
        assert average.delta(epsilon) == pytest.approx(np.mean(deltas), rel=1e-9)
        assert min(deltas) <= average.delta(epsilon) <= worst.delta(epsilon)
    path = schedule("cyclic", hidden=False).guarantees(made)
    assert path[1].mu == pytest.approx(math.sqrt(2) * made.local().mu)
    for kind in ("stream", "stopping"):
        n = 1 if kind == "stream" else 10
        assert schedule(kind, n=n, passes=1, secret=False).guarantees(made)[1] == made.local()


def test_a_place_that_is_never_used_costs_nothing():
    made = AmplifiedIteration(0.5, amplification_constant(1.0), 1e-6)
    for hidden in (True, False):
        scheduled = schedule("sampling", n=30, passes=1, cap=2, hidden=hidden)
        used = np.bincount(scheduled.places()[scheduled.places() >= 0], minlength=30)
        average, _ = scheduled.guarantees(made)
        zero = sum(w for w, c in zip(average.weights, average.components, strict=True) if c.mu == 0)
        assert zero == pytest.approx(np.mean(used == 0))
        assert used.max() == 2


# Compiled loops


@pytest.fixture
def numba():
    return pytest.importorskip("numba")


COMPILED = {
    "squared": SquaredLoss(),
    "huber": HuberLoss(0.3),
    "logistic": LogisticLoss(),
    "hinge": SmoothedHinge(0.5),
}
SINGLE = [NoPenalty(), L1(0.02), SquaredL2(0.3), ElasticNet(0.02, 0.1)]


@pytest.mark.parametrize("loss", COMPILED.values(), ids=COMPILED)
@pytest.mark.parametrize("penalty", SINGLE, ids=repr)
@pytest.mark.parametrize("kind", SCHEDULES)
def test_a_compiled_loop_takes_the_same_steps(numba, loss, penalty, kind):
    X, y = data(loss)
    X[3] *= 1e6
    found = [
        run(GradientADMM(compiled=compiled, **SCHEDULES[kind]), X, y, loss=loss, penalty=penalty,
            noise=SeededNoise((0,), b""))[0].parameters
        for compiled in (False, True)
    ]  # fmt: skip
    np.testing.assert_allclose(found[1], found[0], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("bounds", [None, (-0.5, 3.0)])
def test_a_compiled_loop_serves_streams_in_any_units(numba, bounds, fit_intercept):
    X, y = data(SquaredLoss(), n=60)
    coefs = []
    for compiled in (False, True):
        model = DPAdmmElasticNet(
            alpha=0.01,
            feature_bounds=bounds,
            fit_intercept=fit_intercept,
            random_state=0,
            algorithm=GradientADMM(schedule="stream", compiled=compiled),
        )
        for part in np.array_split(np.arange(60), 4):
            model.partial_fit(X[part], y[part])
        coefs.append(np.append(model.coef_, model.intercept_))
    np.testing.assert_allclose(coefs[1], coefs[0], rtol=1e-12, atol=1e-12)


def test_a_compiled_loop_leaves_its_input_as_it_was(numba):
    X, y = data(SquaredLoss())
    c = coordinates_of(3)
    algorithm = GradientADMM(schedule="stream", compiled=True)
    facts = make_facts(c, 1, SquaredLoss(), L1(0.1), is_stream=True)
    plan = algorithm.plan(facts, BUDGET)
    with Engine().running() as engine:
        problem = Problem(rows=Rows(X, c), target=y, engine=engine)
        start = algorithm.start(plan, problem)
        algorithm.arrive(plan, problem, Gate(plan, SeededNoise((0,), b"")), start)
    assert not start.x.any()
    assert not start.mean_x.any()


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("average", [False, True])
def test_averages_are_kept_where_they_are_the_answer_alone(numba, compiled, average):
    X, y = data(SquaredLoss())
    c = coordinates_of(3)
    algorithm = GradientADMM(schedule="stream", compiled=compiled, average=average)
    facts = make_facts(c, 1, SquaredLoss(), L1(0.1), is_stream=True)
    plan = algorithm.plan(facts, BUDGET)
    with Engine().running() as engine:
        problem = Problem(rows=Rows(X, c), target=y, engine=engine)
        start = algorithm.start(plan, problem)
        end = algorithm.arrive(plan, problem, Gate(plan, SeededNoise((0,), b"")), start)
    assert end.x.any()
    assert end.n_steps == 40
    for state in (start, end):
        height = 4 if average else 0
        assert state.mean_x.shape == state.mean_multipliers.shape == (height, 1)


def test_what_is_like_a_known_loss_or_penalty_is_not_taken_for_it(numba):
    class OtherLoss(SquaredLoss):
        pass

    class OtherPenalty(L1):
        pass

    algorithm = GradientADMM(compiled=True)
    for loss, penalty in ((OtherLoss(), L1(0.1)), (SquaredLoss(), OtherPenalty(0.1))):
        with pytest.raises(ValueError, match=r"^Got compiled=True with"):
            algorithm.check(make_facts(coordinates_of(3), 40, loss, penalty))


@pytest.mark.parametrize(
    "model",
    [
        DPAdmmLogisticRegression(classes=[0, 1, 2]),
        DPAdmmGeneralizedLasso(),
        DPAdmmLasso(algorithm=GradientADMM(constraint=LinearConstraint())),
    ],
    ids=["scores", "image", "constraint"],
)
def test_what_cannot_be_compiled_is_refused(numba, model):
    constraint = getattr(model.algorithm, "constraint", None)
    model.set_params(algorithm=GradientADMM(compiled=True, constraint=constraint))
    with pytest.raises(ValueError, match=r"^Got compiled=True with .* Use compiled=False\.$"):
        model.plan(50, 3)


def test_without_numba_a_compiled_loop_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "numba", None)
    with pytest.raises(ImportError, match=r"skdpadmm\[fast\]"):
        DPAdmmLasso(algorithm=GradientADMM(compiled=True)).plan(50, 3)


# Data of every kind


@pytest.mark.parametrize(("n", "p"), [(1, 1), (1, 3), (2, 1), (2, 3), (3, 30)])
@pytest.mark.parametrize("kind", SCHEDULES)
def test_small_data_end_in_a_finite_model(n, p, kind):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(n, p)), rng.normal(size=n)
    for model in (DPAdmmLasso(), DPAdmmGeneralizedLasso()):
        model.set_params(algorithm=GradientADMM(**SCHEDULES[kind]), random_state=0)
        assert np.isfinite(model.fit(X, y).coef_).all()


ESTIMATORS = [
    DPAdmmRidge(),
    DPAdmmLasso(),
    DPAdmmElasticNet(),
    DPAdmmHuberRegressor(),
    DPAdmmGeneralizedLasso(),
    DPAdmmLinearSVC(classes=[0, 1]),
    DPAdmmLinearSVC(classes=[0, 1, 2]),
    DPAdmmLogisticRegression(classes=[0, 1]),
    DPAdmmLogisticRegression(classes=[0, 1, 2]),
]


@pytest.mark.parametrize("model", ESTIMATORS, ids=repr)
@pytest.mark.parametrize("kind", ["cyclic", "stopping", "path", "stream"])
def test_containers_types_and_threads_change_rounding_alone(model, kind):
    rng = np.random.default_rng(0)
    X = np.round(rng.normal(size=(60, 4)), 2).astype(np.float32)
    X[rng.random(X.shape) < 0.4] = 0.0
    X[5] = [500.0, 0, 0, 1e30]
    y = np.arange(60) % len(getattr(model, "classes", None) or [0, 1])
    algorithm = GradientADMM(**SCHEDULES.get(kind, {"schedule": "stream"}))
    model.set_params(algorithm=algorithm, random_state=0, n_jobs=None)

    def parameters(X):
        model.fit(X, y)
        return np.append(np.ravel(model.coef_), model.intercept_)

    expected = parameters(X.astype(np.float64))
    assert np.isfinite(expected).all()
    # A step is rounded to a grid of 1e-6 of its noise, so that most bits agree.
    for other in (
        X,
        sparse.csr_array(X.astype(np.float64)),
        sparse.csc_matrix(X),
        np.asfortranarray(X),
    ):
        np.testing.assert_allclose(parameters(other), expected, rtol=1e-9, atol=1e-9)
    model.set_params(n_jobs=2)
    np.testing.assert_array_equal(parameters(X.astype(np.float64)), expected)


@pytest.mark.parametrize("row", [1.7e308, -1e300, 1e-320])
@pytest.mark.parametrize("kind", ["cyclic", "stopping", "path", "gradient"])
def test_an_extreme_row_ends_in_a_finite_model(row, kind):
    X, y = data(SquaredLoss())
    X[7], y[9] = row, 1e300
    model = DPAdmmLasso(algorithm=GradientADMM(**SCHEDULES[kind]), random_state=0)
    assert np.isfinite(model.fit(X, y).coef_).all()


@pytest.mark.parametrize(
    "knobs",
    [
        {"step_size": 1e-100, "penalty_weight": 1e-100},
        {"step_size": 1e-100, "penalty_weight": 1e100},
        {"step_size": 1e-3, "clip_norm": 1e-100},
        {"step_size": 1e-3, "clip_norm": 1e9},
        {"release": "path", "step_size": 1e3},
        {"release": "path", "step_size": 1e100, "penalty_weight": 1e100},
    ],
    ids=str,
)
def test_extreme_knobs_end_in_a_finite_model(knobs):
    X, y = data(SquaredLoss())
    model = DPAdmmLasso(algorithm=GradientADMM(**knobs), random_state=0)
    assert np.isfinite(model.fit(X, y).coef_).all()


@pytest.mark.parametrize("kind", SCHEDULES)
def test_the_plan_does_not_see_data(monkeypatch, kind):
    import skdpadmm._fitting as fitting

    plans = []

    class Spy(fitting.Gate):
        def __init__(self, plan, *rest):
            plans.append(plan)
            super().__init__(plan, *rest)

    monkeypatch.setattr(fitting, "Gate", Spy)
    X, y = data(SquaredLoss())
    model = DPAdmmLasso(algorithm=GradientADMM(**SCHEDULES[kind]), random_state=0)
    for A in (X, 1e300 * X, 0 * X, sparse.csr_array(X)):
        model.fit(A, y)
    assert all(plan == model.plan(40, 3) for plan in plans)
    assert {plan.digest() for plan in plans} == {model.plan(40, 3).digest()}


# What it refuses


BAD = {
    r"step_size=0, expected 'auto' or a float": {"step_size": 0},
    r"step_size='long', expected": {"step_size": "long"},
    r"clip_norm=-1, expected": {"clip_norm": -1},
    r"penalty_weight=inf, expected": {"penalty_weight": math.inf},
    r"penalty_weight=True, expected": {"penalty_weight": True},
    r"passes=0, expected an int of at least 1": {"passes": 0},
    r"passes=1\.5, expected": {"passes": 1.5},
    r"cap=0, expected": {"cap": 0},
    r"horizon=0, expected": {"horizon": 0},
    r"order_seed=-1, expected": {"order_seed": -1},
    r"order_seed=0\.5, expected": {"order_seed": 0.5},
    r"order_seed=True, expected": {"order_seed": True, "schedule": "sampling"},
    r"cap=3 with schedule='cyclic', expected 'auto'": {"cap": 3},
    r"cap=1 with schedule='stream', expected 'auto'": {"cap": 1, "schedule": "stream"},
    r"compiled='yes', expected True or False": {"compiled": "yes"},
    r"compiled=1, expected True or False": {"compiled": 1},
    r"average=array\(\[1, 2\]\), expected 'auto', True or False": {"average": np.array([1, 2])},
    r"average=1, expected 'auto', True or False": {"average": 1},
    r"schedule='secret', expected one of": {"schedule": "secret"},
    r"order='sorted', expected one of": {"order": "sorted"},
    r"release='all', expected one of": {"release": "all"},
    r"noise_at='y', expected one of": {"noise_at": "y"},
    r"average='yes', expected": {"average": "yes"},
    r"average=True with release='last'": {"average": True},
    r"release='last' with schedule='stream'": {"schedule": "stream", "release": "last"},
    r"noise_at='gradient' with release='last'": {"noise_at": "gradient"},
    r"order='random' and passes='auto' with schedule='stream'": {
        "schedule": "stream",
        "order": "random",
    },
    r"order='auto' and passes=2 with schedule='stopping'": {"schedule": "stopping", "passes": 2},
    r"release='path' with schedule='stopping'": {"schedule": "stopping", "release": "path"},
}  # fmt: skip


@pytest.mark.parametrize("epsilon", [1.0, math.inf])
@pytest.mark.parametrize(("message", "knobs"), BAD.items(), ids=map(str, BAD.values()))
def test_a_knob_out_of_range_is_refused_at_every_budget(message, knobs, epsilon):
    model = DPAdmmLasso(algorithm=GradientADMM(**knobs), epsilon=epsilon)
    with pytest.raises(ValueError, match=rf"^Got {message}"):
        model.plan(50, 3)


@pytest.mark.parametrize("average", [True, np.True_], ids=repr)
@pytest.mark.parametrize("knobs", [{}, {"schedule": "stream", "release": "last"}], ids=str)
def test_an_average_of_hidden_iterates_is_refused_in_every_spelling(average, knobs):
    with pytest.raises(ValueError, match="with release='last', expected release='path'"):
        DPAdmmLasso(algorithm=GradientADMM(average=average, **knobs)).plan(50, 3)


def test_a_step_beyond_the_theorem_is_refused_with_its_range():
    plan = DPAdmmLasso(algorithm=GradientADMM()).plan(50, 3)
    longest = longest_step(plan.facts)
    with pytest.raises(ValueError, match=rf"expected a float in \(0, {longest:.6g}\]"):
        DPAdmmLasso(algorithm=GradientADMM(step_size=1.001 * longest)).plan(50, 3)
    for knobs in ({"step_size": longest}, {"step_size": 9.0, "release": "path"}):
        DPAdmmLasso(algorithm=GradientADMM(**knobs)).plan(50, 3)


def test_a_clip_that_binds_several_scores_is_refused_where_iterates_are_hidden():
    model = DPAdmmLogisticRegression(classes=[0, 1, 2], algorithm=GradientADMM(clip_norm=0.1))
    with pytest.raises(ValueError, match=r"clip_norm=0\.1 for 3 scores .*never binds"):
        model.plan(50, 3)
    model.set_params(algorithm__release="path").plan(50, 3)


CONSTRAINTS = {
    "columns of A": (LinearConstraint(np.ones((1, 2))), "a matrix with 2 columns for 3 features"),
    "the identity": (LinearConstraint(np.eye(2)), "A with 3 rows, c with 2 rows"),
    "rows of B": (LinearConstraint(B=np.eye(4)), "4|rows"),
    "columns of c": (LinearConstraint(c=np.ones((3, 2))), "c of shape .3, 2. for 1 scores"),
    "length of c": (LinearConstraint(c=np.ones(4)), "4|rows"),
}


@pytest.mark.parametrize("epsilon", [1.0, math.inf])
@pytest.mark.parametrize(("constraint", "message"), CONSTRAINTS.values(), ids=CONSTRAINTS)
def test_a_constraint_of_another_shape_is_refused_before_data(constraint, message, epsilon):
    model = DPAdmmLasso(algorithm=GradientADMM(constraint=constraint), epsilon=epsilon)
    with pytest.raises(ValueError, match=rf"^Got .*({message})"):
        model.plan(50, 3)


def test_a_penalty_of_another_number_of_variables_is_refused_before_data():
    algorithm = GradientADMM(constraint=LinearConstraint(difference_matrix(3, 1)))
    model = DPAdmmGeneralizedLasso(penalty_matrix=np.eye(3), algorithm=algorithm)
    with pytest.raises(ValueError, match=r"^Got "):
        model.plan(50, 3)


def test_a_matrix_without_full_row_rank_is_no_constraint():
    for A in (np.ones((2, 3)), np.ones((4, 3)), np.zeros((1, 3))):
        with pytest.raises(ValueError, match=r"^Got .*rank"):
            LinearConstraint(A)
    with pytest.raises(TypeError, match=r"expected a LinearConstraint or None"):
        DPAdmmLasso(algorithm=GradientADMM(constraint=np.eye(3))).plan(50, 3)


def test_private_units_and_directions_are_refused_where_they_have_no_theorem():
    with pytest.raises(ValueError, match="conditioning='private'"):
        DPAdmmLasso(algorithm=GradientADMM(), conditioning="private").plan(500, 3)
    with pytest.raises(ValueError, match="scale='private' with a penalty of a linear image"):
        DPAdmmGeneralizedLasso(algorithm=GradientADMM(), scale="private").plan(500, 3)
    plan = DPAdmmLasso(algorithm=GradientADMM(), scale="private").plan(500, 3)
    assert plan.guarantee().epsilon(1e-5) == pytest.approx(1.0, rel=1e-6)


def test_a_budget_that_rounding_takes_up_is_refused():
    with pytest.raises(ValueError, match="rounding takes up half"):
        DPAdmmLasso(algorithm=GradientADMM(passes=100), epsilon=1e-9, delta=1e-9).plan(10_000, 3)


def test_other_noise_for_other_knobs_and_the_same_for_the_same():
    X, y = data(SquaredLoss())

    def fit(**knobs):
        return DPAdmmRidge(algorithm=GradientADMM(**knobs), random_state=0).fit(X, y).coef_

    base = fit()
    np.testing.assert_array_equal(base, fit())
    for knobs in ({"order": "arrival"}, {"release": "path"}, {"schedule": "sampling"}):
        assert not np.array_equal(base, fit(**knobs))


def test_gradient_admm_learns():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (5000, 4))
    y = X @ [1.0, -1.0, 0.5, 0.0] + 0.1 * rng.normal(size=5000)
    for algorithm in (GradientADMM(), GradientADMM(release="path"), GradientDescent()):
        model = DPAdmmLasso(
            alpha=0.001, epsilon=4.0, feature_bounds=(-1, 1), random_state=0, algorithm=algorithm
        ).fit(X, y)
        assert model.score(X, y) > 0.5


def test_a_constraint_beside_which_floats_do_not_resolve_the_noise_is_refused():
    def model(c):
        constraint = LinearConstraint(np.eye(3), None, np.full(3, c))
        return DPAdmmLasso(algorithm=GradientADMM(constraint=constraint))

    assert model(1.0).plan(100, 3).releases[-1].noise_std > 0
    with pytest.raises(ValueError, match=r"Got c up to 1e\+12, .* floats would not resolve"):
        model(1e12).plan(100, 3)


def test_clips_of_several_scores_are_open_only_where_iterates_are_hidden():
    model = DPAdmmLogisticRegression(classes=[0, 1, 2], algorithm=GradientADMM())
    hidden = model.plan(1000, 3).settings.clip_norm
    model.set_params(algorithm__release="path")
    assert model.plan(1000, 3).settings.clip_norm < hidden / 10
