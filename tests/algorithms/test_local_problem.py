"""The proximal problem of one agent: gradients, solutions, and extremes that it survives."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import minimize

from skdpadmm.algorithms.blocks import _local_problem
from skdpadmm.algorithms.blocks._local_problem import LocalProblem
from skdpadmm.engine import Engine
from skdpadmm.losses import (
    HuberLoss,
    LogisticLoss,
    MultinomialLoss,
    OneVsRestHinge,
    SmoothedHinge,
    SquaredLoss,
)
from skdpadmm.records import Basis, Rows, declared_coordinates

LOSSES = {
    "squared": SquaredLoss(),
    "logistic": LogisticLoss(),
    "multinomial": MultinomialLoss(3),
    "huber": HuberLoss(0.3),
    "smoothed hinge": SmoothedHinge(0.5),
    "one against the rest": OneVsRestHinge(3, 0.5),
}
CONTAINERS = {"dense": np.asarray, "CSR": sparse.csr_matrix}
N, P = 40, 4


def basis(d, seed=5):
    rng = np.random.default_rng(seed)
    return Basis(
        vectors=np.linalg.qr(rng.normal(size=(d, d)))[0],
        eigenvalues=rng.uniform(0.3, 3.0, size=d),
        loading=np.ones(d),
        spread=1.0,
        clip_unit=1.0,
    )


def target_of(loss, rng, n):
    if loss.n_outputs > 1:
        return rng.integers(loss.n_outputs, size=n)
    if isinstance(loss, LogisticLoss | SmoothedHinge):
        return rng.choice([-1.0, 1.0], size=n)
    return rng.normal(size=n)


def local_problem(loss, *, step_size=1.0, convert=np.asarray, in_basis=False, n=N, scale=1.0):
    """The second of three agents, whose rows lie among those of the others; and its rows."""
    rng = np.random.default_rng(3)
    X = scale * rng.uniform(-1, 1, size=(3 * n, P))
    X[rng.random(X.shape) < 0.3] = 0.0
    y = target_of(loss, rng, 3 * n)
    coordinates = declared_coordinates(
        n_features=P, fit_intercept=True, feature_bounds=None, has_target_scale=False
    )
    rows = Rows(convert(X), coordinates)
    if in_basis:
        rows = rows.in_basis(basis(P + 1), Engine().run)
    groups = [np.arange(agent, 3 * n, 3) for agent in range(3)]
    taken = rows.take(groups)
    A = np.column_stack([X, np.ones(3 * n)]) * rows.weight[:, None]
    A = A @ rows.basis.transform if in_basis else A
    problem = LocalProblem(rows=taken, block=1, target=y[groups[1]], loss=loss, step_size=step_size)
    return problem, A[groups[1]]


def objective(x, problem, A, v):
    x = x.reshape(v.shape)
    scores = A @ x
    losses = problem.loss.value(scores if v.shape[1] > 1 else scores[:, 0], problem.target)
    return problem.step_size * losses.mean() + 0.5 * np.sum((x - v) ** 2)


def point(loss, seed=7):
    return np.random.default_rng(seed).normal(size=(P + 1, loss.n_outputs))


@pytest.fixture(params=LOSSES)
def loss(request):
    return LOSSES[request.param]


@pytest.fixture(params=CONTAINERS)
def convert(request):
    return CONTAINERS[request.param]


@pytest.mark.parametrize("in_basis", [False, True])
def test_the_gradient_is_that_of_the_mean_loss(loss, convert, in_basis):
    problem, A = local_problem(loss, convert=convert, in_basis=in_basis)
    x = point(loss)
    gradient = problem.gradient(x)
    assert gradient.shape == x.shape
    for index in np.ndindex(x.shape):
        step = np.zeros(x.shape)
        step[index] = 1e-5
        # The quadratic around x itself has no slope there.
        rise = objective(x + step, problem, A, x) - objective(x - step, problem, A, x)
        assert gradient[index] == pytest.approx(rise / 2e-5, abs=1e-8)


@pytest.mark.parametrize("step_size", [0.1, 1.0, 30.0])
@pytest.mark.parametrize("in_basis", [False, True])
def test_a_displacement_leads_to_the_solution(loss, convert, in_basis, step_size):
    problem, A = local_problem(loss, convert=convert, in_basis=in_basis, step_size=step_size)
    v = point(loss)
    x = v - problem.displacement(v, np.zeros(v.shape))
    # The problem is 1-strongly convex, so its gradient bounds the distance to the solution.
    assert np.linalg.norm(step_size * problem.gradient(x) + x - v) < 1e-9
    best = minimize(objective, v.ravel(), args=(problem, A, v), method="BFGS", tol=1e-10)
    np.testing.assert_allclose(x.ravel(), best.x, rtol=0, atol=1e-5)


def test_a_displacement_does_not_depend_on_where_newton_starts(loss):
    problem, _ = local_problem(loss, step_size=5.0)
    v = point(loss)
    cold = problem.displacement(v, np.zeros(v.shape))
    for start in (cold, 10 * cold, -cold, point(loss, seed=8)):
        np.testing.assert_allclose(problem.displacement(v, start), cold, rtol=0, atol=1e-9)


@pytest.mark.parametrize("in_basis", [False, True])
@pytest.mark.parametrize("step_size", [1e-6, 1.0, 1e6])
def test_the_closed_form_of_a_squared_loss_is_the_displacement(convert, in_basis, step_size):
    loss = SquaredLoss()
    problem, A = local_problem(loss, convert=convert, in_basis=in_basis, step_size=step_size)
    v = point(loss)
    form = problem.closed_form()
    assert form.shape == (P + 1, P + 2)
    found = form[:, :-1] @ v + form[:, -1:]
    moment, pull = A.T @ A / N, A.T @ problem.target[:, None] / N
    solution = np.linalg.solve(np.eye(P + 1) / step_size + moment, v / step_size + pull)
    np.testing.assert_allclose(v - found, solution, rtol=1e-8, atol=1e-8)
    if step_size <= 1:
        newton = problem.displacement(v, np.zeros(v.shape))
        np.testing.assert_allclose(found, newton, rtol=0, atol=1e-9)


@pytest.mark.parametrize("scale", [1e-150, 1.0, 1e150])
@pytest.mark.parametrize("step_size", [1e-6, 1e-3, 1e3, 1e6])
def test_extreme_steps_and_rows_end_in_a_finite_displacement(loss, convert, step_size, scale):
    problem, _ = local_problem(loss, convert=convert, step_size=step_size, scale=scale)
    for size in (0.0, 1.0, 1e6):
        v = size * point(loss)
        with np.errstate(all="ignore"):
            found = problem.displacement(v, np.zeros(v.shape))
        assert found.shape == v.shape
        assert np.isfinite(found).all()


@pytest.mark.parametrize("step_size", [1e-6, 1e-3, 1e3])
def test_extreme_steps_are_solved(loss, step_size):
    problem, _ = local_problem(loss, step_size=step_size)
    v = point(loss)
    x = v - problem.displacement(v, np.zeros(v.shape))
    residual = np.linalg.norm(step_size * problem.gradient(x) + x - v)
    assert residual < 1e-10 * max(1.0, step_size)


@pytest.mark.parametrize("most", [0, 1, 2])
def test_an_agent_that_runs_out_of_steps_has_a_finite_displacement(loss, most, monkeypatch):
    monkeypatch.setattr(_local_problem, "MOST_NEWTON_STEPS", most)
    problem, A = local_problem(loss, step_size=50.0)
    v = 10 * point(loss)
    found = problem.displacement(v, np.zeros(v.shape))
    assert np.isfinite(found).all()
    # A step never makes it worse.
    assert objective(v - found, problem, A, v) <= objective(v, problem, A, v)


@pytest.mark.parametrize("n", [1, 2])
def test_an_agent_with_one_or_two_rows_solves_its_problem(loss, convert, n):
    problem, A = local_problem(loss, convert=convert, step_size=3.0, n=n)
    v = point(loss)
    x = v - problem.displacement(v, np.zeros(v.shape))
    assert np.linalg.norm(3.0 * problem.gradient(x) + x - v) < 1e-9
    # One row moves a point along itself alone.
    if n == 1:
        assert np.linalg.matrix_rank(np.column_stack([A.T, v - x]), tol=1e-9) == 1


def test_rows_of_zeros_leave_the_features_where_they_are(loss):
    problem, _ = local_problem(loss, scale=0.0, step_size=3.0)
    v = point(loss)
    found = problem.displacement(v, np.zeros(v.shape))
    np.testing.assert_allclose(found[:-1], 0.0, atol=1e-9)


def test_an_agent_with_one_class_solves_its_problem():
    for loss, label in ((LogisticLoss(), 1.0), (MultinomialLoss(3), 2)):
        problem, A = local_problem(loss, step_size=100.0)
        problem.target[:] = label
        v = np.zeros((P + 1, loss.n_outputs))
        x = v - problem.displacement(v, v)
        assert np.linalg.norm(100.0 * problem.gradient(x) + x) < 1e-8
        scores = A @ x
        assert (scores > 0).all() if loss.n_outputs == 1 else (scores.argmax(axis=1) == 2).all()
