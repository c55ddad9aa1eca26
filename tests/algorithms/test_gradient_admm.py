"""Gradient ADMM under known noise: steps, their norm, optima, schedules, the compiled loop."""

import math
from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
from scipy import sparse

import skdpadmm.algorithms._gradient_admm as module
from skdpadmm import DPAdmmLasso
from skdpadmm.algorithms import GradientADMM
from skdpadmm.algorithms._gradient_admm_steps import GradientADMMStep, splitting_of
from skdpadmm.algorithms._record_schedule import NOBODY, RecordSchedule, stopping_time
from skdpadmm.losses import HuberLoss, LogisticLoss, MultinomialLoss, SmoothedHinge, SquaredLoss
from skdpadmm.noise import SeededNoise, grid_cell
from skdpadmm.penalties import L1, ElasticNet, LinearConstraint, SquaredL2
from skdpadmm.privacy import AmplifiedIteration, GaussianDP, amplification_constant
from tests.algorithms import runs as direct
from tests.algorithms.runs import close, coordinates_of, data_for, facts_for, run

SCHEDULES = {
    "cyclic": {"passes": 2},
    "arrival": {"passes": 2, "order": "arrival"},
    "sampling": {"passes": 2, "schedule": "sampling", "cap": 3},
    "stopping": {"schedule": "stopping"},
    "path": {"passes": 2, "release": "path"},
}
STEPS = {"step_size": 0.05, "penalty_weight": 3.0}


def naive_steps(X, y, loss, penalty, settings, *, noise, cell):
    """The algorithm of the docstring with A = I, B = -I, c = 0; returns all (x, multipliers)."""
    (n, p), eta, beta, path = X.shape, settings.step_size, settings.penalty_weight, []
    A, x, lam = direct.augmented(X), *np.zeros((2, X.shape[1] + 1, loss.n_outputs))
    for t, drawn in enumerate(noise):
        i = t % n
        y_part = direct.shrunk(x - lam / beta, penalty, 1 / beta, p)
        following = lam - beta * (x - y_part)
        slope = direct.slopes(loss, A[i : i + 1] @ x, y[i : i + 1])
        gradient = direct.clipped(np.outer(A[i], slope), settings.clip_norm)
        x = (x - eta * (gradient - beta * y_part - following)) / (1 + eta * beta)
        x = np.rint(x / cell) * cell + drawn
        lam = following
        path.append((x, lam))
    return path


STEP_CASES = [
    (SquaredLoss(), L1(0.02), {"passes": 2}), (HuberLoss(0.3), direct.NO_PENALTY, {"passes": 2}),
    (LogisticLoss(), ElasticNet(0.02, 0.1), {"passes": 2}),
    (SmoothedHinge(0.5), L1(0.02), {"release": "path", "average": False}),
    (MultinomialLoss(3), ElasticNet(0.02, 0.1), {"passes": 2}),
    (MultinomialLoss(3), L1(0.02), {"release": "path"}),
    (HuberLoss(0.3), L1(0.02), {"release": "path", "average": False}),
]  # fmt: skip


@pytest.mark.parametrize(("loss", "penalty", "knobs"), STEP_CASES, ids=repr)
def test_a_step_and_an_average_are_those_of_the_docstring(loss, penalty, knobs, monkeypatch):
    monkeypatch.setattr(module, "CHUNK_ENTRIES", 4 * 7)  # seven records at once
    X, y = data_for(loss, n=40)
    algorithm = GradientADMM(order="arrival", **STEPS, **knobs)
    plan = algorithm.plan(facts_for(coordinates_of(3), 40, loss, penalty), direct.BUDGET)
    path, settings, n_steps = plan.releases[-1], plan.settings, 40 * knobs.get("passes", 1)
    cell = grid_cell(path.noise_std)
    drawn = path.noise_std * np.random.default_rng(1).normal(size=(n_steps, *path.shape))
    drawn = np.rint(drawn / cell) * cell
    solution = run(algorithm, X, y, loss=loss, penalty=penalty, noise=drawn).solution
    states = naive_steps(X, y, loss, penalty, settings, noise=drawn, cell=cell)
    (x, lam), t = states[-1], np.arange(1.0, n_steps + 1)
    assert settings.average == ("release" in knobs and "average" not in knobs)
    if settings.average:
        # In closed form: t (t + 1) (t + 2), the third power of the step up to lower ones.
        weights = t * (t + 1) * (t + 2) / np.sum(t * (t + 1) * (t + 2))
        x, lam = np.einsum("t,tkij->kij", weights, np.array(states))
    assert solution.n_iter == n_steps
    close(solution.parameters, direct.shrunk(x - lam / 3.0, penalty, 1 / 3.0, 3), 1e-12)
    # A is square: the constraint holds every direction back.
    length = 0.05 / (1 + 0.05 * 3.0)
    assert path.sensitivities[0] == pytest.approx(2 * length * settings.clip_norm)


def general(seed=0, n_auxiliary=2, *, fit_intercept=False, penalty=None, eta=0.3, beta=2.0):
    """A general constraint, its A in public coordinates, and a step."""
    rng = np.random.default_rng(seed)
    A, B, c = rng.normal(size=(2, 3)), rng.normal(size=(2, n_auxiliary)), rng.normal(size=2)
    coordinates = coordinates_of(3, fit_intercept)
    full = A * coordinates.coefficient_scale[:3]
    full = np.column_stack([full, np.zeros(2)]) if fit_intercept else full
    tied = splitting_of(penalty or SquaredL2(0.7), coordinates, LinearConstraint(A, B, c))
    return full, B, c, GradientADMMStep(tied, eta, beta)


@pytest.mark.parametrize(("k", "fit_intercept"), [(1, True), (3, False)])
@pytest.mark.parametrize("n_auxiliary", [1, 2])
def test_a_step_with_any_constraint_is_that_of_the_docstring(k, fit_intercept, n_auxiliary):
    A, B, c, step = general(0, n_auxiliary, fit_intercept=fit_intercept)
    d, eta, beta, c, rng = A.shape[1], 0.3, 2.0, c[:, None], np.random.default_rng(1)
    x, lam, gradient = (rng.normal(size=(h, k)) for h in (d, 2, d))
    ridge = 0.7 * np.eye(n_auxiliary) + beta * B.T @ B
    y = np.linalg.solve(ridge, B.T @ (lam - beta * A @ x + beta * c))
    following = lam - beta * (A @ x + B @ y - c)
    inverse = np.linalg.inv(np.eye(d) + eta * beta * A.T @ A)
    moved = inverse @ (x - eta * (gradient + A.T @ (beta * (B @ y - c) - following)))
    found = (*step(x, lam, gradient), step.penalised_part(x, lam))
    close(np.concatenate(found), np.concatenate([moved, following, y]), 1e-12)
    # Plain vectors serve one score.
    close(step(x[:, 0], lam[:, 0], gradient[:, 0])[0], moved[:, 0], 1e-12)


def test_a_step_with_equal_gradients_moves_no_two_states_apart_in_the_norm_of_the_theorem():
    rng = np.random.default_rng(3)
    for seed in range(120):
        curvature, beta = rng.uniform(0.1, 3.0), 10 ** rng.uniform(-2, 2)
        eta = rng.uniform(0.01, 2.0) / curvature
        penalty = [L1(0.3), SquaredL2(2.0), direct.NO_PENALTY][seed % 3]
        A, _, _, step = general(seed, 1 + seed % 2, penalty=penalty, eta=eta, beta=beta)
        a = rng.normal(size=3)
        a *= math.sqrt(curvature) / np.linalg.norm(a)
        states = [(rng.normal(size=3), rng.normal(size=2)) for _ in range(2)]
        # The derivative of a clipped squared loss: convex and smooth.
        moved = [step(x, lam, a * np.clip(a @ x - 0.3, -0.8, 0.8)) for x, lam in states]

        def apart(pair, A=A, eta=eta, beta=beta):
            x, lam = (p - q for p, q in zip(*pair, strict=True))
            return x @ x + eta / beta * np.sum((lam - beta * A @ x) ** 2)

        assert apart(moved) <= apart(states) * (1 + 1e-10)


# Optima.


@pytest.mark.parametrize(
    ("m", "convert"), [(1, np.asarray), (3, sparse.csr_array), (5, np.asarray)]
)
def test_without_privacy_the_answer_meets_the_conditions_of_an_optimum(m, convert):
    rng, alpha, (X, y) = np.random.default_rng(m), 0.2, data_for(SquaredLoss(), n=200, p=5)
    X = X * np.logspace(-0.5, 0.5, 5)
    A, c = rng.normal(size=(m, 5)), rng.normal(size=m)
    algorithm = GradientADMM(constraint=LinearConstraint(convert(A), c=c))
    model = DPAdmmLasso(alpha=alpha, epsilon=math.inf, algorithm=algorithm).fit(X, y)
    residual = X @ model.coef_ + model.intercept_ - y
    assert abs(residual.mean()) < 1e-9
    # The gradient is -A' u with u a subgradient of alpha ||.||_1 at A w - c.
    gradient, apart = X.T @ residual / len(y), A @ model.coef_ - c
    u = -np.linalg.lstsq(A.T, gradient, rcond=None)[0]
    close(A.T @ u, -gradient, 1e-8)
    assert np.abs(u).max() <= alpha + 1e-8
    free = np.abs(apart) > 1e-6
    close(u[free], alpha * np.sign(apart[free]), 1e-8)


# Schedules.


TWO_PASSES = RecordSchedule(
    n_places=10, kind="cyclic", n_passes=2, cap=3, seed=0, is_secret=True, is_hidden=True
)


@pytest.mark.parametrize("cap", [1, 2, 50])
def test_sampling_draws_with_replacement_up_to_a_cap(cap):
    made = replace(TWO_PASSES, kind="sampling", n_places=50, n_passes=4, cap=cap)
    drawn, used = np.random.default_rng(0).integers(50, size=200), np.zeros(50, dtype=int)
    for place, wanted in zip(made.places(), drawn, strict=True):
        used[wanted] += 1
        assert place == (wanted if used[wanted] <= cap else NOBODY)


@pytest.mark.parametrize("n", [1, 2, 3, 8, 9, 101])
def test_the_time_of_stopping_is_uniform_on_the_second_half(n):
    # Each time has an interval of one length, so that a uniform number makes it uniform.
    grid = (np.arange(1000 * (n - n // 2)) + 0.5) / (1000 * (n - n // 2))
    times, counts = np.unique([stopping_time(n, u) for u in grid], return_counts=True)
    np.testing.assert_array_equal(times, np.arange(n // 2 + 1, n + 1))
    np.testing.assert_array_equal(counts, 1000)
    assert stopping_time(n, np.nextafter(1.0, 0.0)) == n


@pytest.mark.parametrize("kind", SCHEDULES)
def test_steps_follow_the_schedule_and_the_secret_order(monkeypatch, kind):
    spied = mock.Mock(side_effect=module.seen_in_order)
    monkeypatch.setattr(module, "seen_in_order", spied)
    monkeypatch.setattr(module, "CHUNK_ENTRIES", 4 * 7)
    uniforms = np.random.default_rng(5).random(40)
    around = {"loss": SquaredLoss(), "uniforms": uniforms if kind != "stopping" else [0.5]}
    result = run(GradientADMM(**SCHEDULES[kind]), *data_for(SquaredLoss(), n=40), **around)
    made = result.plan.settings.schedule
    assert made.is_secret == (kind not in ("arrival", "stopping"))
    order = np.argsort(uniforms) if made.is_secret else np.arange(40)
    expected = [order[place] if place != NOBODY else 0 for place in made.places()]
    np.testing.assert_array_equal(np.concatenate([c.args[1] for c in spied.mock_calls]), expected)
    assert result.solution.n_iter == len(expected)


def test_a_run_that_stops_ends_at_its_time_and_tells_it_to_nobody():
    (X, y), told = data_for(HuberLoss(0.3), n=40), []
    around = {"loss": HuberLoss(0.3), "uniforms": [0.25], "progress": told.append}
    algorithm = GradientADMM(schedule="stopping", clip_norm=0.2, **STEPS)
    stopped = run(algorithm, X, y, **around).solution
    end = stopping_time(40, 0.25)
    assert (end, stopped.n_iter, told) == (26, 40, [40])
    algorithm = GradientADMM(order="arrival", passes=1, clip_norm=0.2, **STEPS)
    whole = run(algorithm, X[:end], y[:end], loss=HuberLoss(0.3)).solution
    close(stopped.parameters, whole.parameters, 1e-5)


def test_the_guarantee_of_a_schedule_is_that_of_its_places():
    made = AmplifiedIteration(0.5, amplification_constant(1.0), 1e-6)
    kept = replace(TWO_PASSES, is_secret=False).guarantees(made)
    # The last place of two passes of ten: ten steps, then the last.
    assert kept[0].mu == kept[1].mu == pytest.approx(math.hypot(*made.mu_after([10, 1])))
    average, worst = TWO_PASSES.guarantees(made)
    assert worst == kept[1]
    mus = [math.hypot(*made.mu_after([10, 10 - k])) for k in range(10)]
    expected = np.mean([GaussianDP(mu).delta(0.1) for mu in mus])
    assert average.delta(0.1) == pytest.approx(expected, rel=1e-9)
    path = replace(TWO_PASSES, is_hidden=False).guarantees(made)
    assert path[1].mu == pytest.approx(math.sqrt(2) * made.local().mu)


# Compiled loops.

COMPILED = [
    (SquaredLoss(), direct.NO_PENALTY, "cyclic"), (HuberLoss(0.3), L1(0.02), "path"),
    (HuberLoss(0.3), ElasticNet(0.02, 0.1), "sampling"), (LogisticLoss(), L1(0.02), "path"),
    (LogisticLoss(), SquaredL2(0.3), "stopping"), (SmoothedHinge(0.5), L1(0.02), "arrival"),
]  # fmt: skip


@pytest.mark.parametrize(("loss", "penalty", "kind"), COMPILED, ids=repr)
def test_a_compiled_loop_takes_the_same_steps(loss, penalty, kind):
    pytest.importorskip("numba")
    (X, y), found = data_for(loss, n=40), []
    X[3] *= 1e6
    for compiled in (False, True):
        algorithm = GradientADMM(compiled=compiled, **SCHEDULES[kind])
        around = {"penalty": penalty, "source": SeededNoise((0,), b"")}
        result = run(algorithm, X, y, loss=loss, **around)
        found.append(result.solution.parameters)
    np.testing.assert_allclose(*found, rtol=1e-9, atol=1e-12)
