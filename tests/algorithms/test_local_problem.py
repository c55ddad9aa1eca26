"""The proximal problem of one agent: its solution, its closed form, and extremes it survives."""

import itertools

import numpy as np
import pytest
from scipy import sparse

from skdpadmm import losses
from skdpadmm.algorithms import _agent_blocks
from skdpadmm.algorithms._agent_blocks import LocalProblem
from skdpadmm.engine import Engine
from skdpadmm.records import Basis, Rows, declared_coordinates

LOSSES = [
    losses.SquaredLoss(), losses.LogisticLoss(), losses.MultinomialLoss(3), losses.HuberLoss(0.3),
    losses.SmoothedHinge(0.5), losses.OneVsRestHinge(3, 0.5),
]  # fmt: skip
N, P = 40, 4


@pytest.fixture(params=LOSSES, ids=repr)
def loss(request):
    return request.param


def local_problem(loss, *, step_size=1.0, convert=np.asarray, in_basis=False, n=N, scale=1.0):
    """The second of three agents, whose rows lie among those of the others; and its rows."""
    rng = np.random.default_rng(3)
    X = scale * rng.uniform(-1, 1, size=(3 * n, P)) * (rng.random((3 * n, P)) > 0.3)
    y = rng.integers(3, size=3 * n) if loss.n_outputs > 1 else rng.choice([-1.0, 1.0], size=3 * n)
    coordinates = declared_coordinates(
        n_features=P, fit_intercept=True, feature_bounds=None, has_target_scale=False
    )
    rows, own = Rows(convert(X), coordinates), np.arange(1, 3 * n, 3)
    A = np.column_stack([X, np.ones(3 * n)]) * rows.weight[:, None]
    if in_basis:
        basis = Basis(
            vectors=np.linalg.qr(rng.normal(size=(P + 1, P + 1)))[0],
            eigenvalues=rng.uniform(0.3, 3.0, size=P + 1), loading=np.ones(P + 1), spread=1.0,
            clip_unit=1.0,
        )  # fmt: skip
        rows = rows.in_basis(basis, Engine().run)
        A = A @ rows.basis.transform
    taken = rows.take([own])
    return LocalProblem(rows=taken, target=y[own], loss=loss, step_size=step_size), A[own]


def residual(problem, A, x, v):
    """Of the optimality condition, with the gradient of a mean over rows; 1-strongly convex."""
    scores = A @ x
    slopes = problem.loss.derivative(scores if v.shape[1] > 1 else scores[:, 0], problem.target)
    gradient = A.T @ slopes.reshape(scores.shape) / len(A)
    np.testing.assert_allclose(problem.gradient(x), gradient, rtol=1e-9, atol=1e-12)
    return np.linalg.norm(problem.step_size * gradient + x - v)


def point(loss, seed=7):
    return np.random.default_rng(seed).normal(size=(P + 1, loss.n_outputs))


@pytest.mark.parametrize(
    ("convert", "in_basis", "step_size", "n"),
    [
        (np.asarray, False, 1.0, N), (np.asarray, True, 30.0, N), (sparse.csr_matrix, True, 0.1, N),
        (sparse.csr_matrix, False, 3.0, 1), (np.asarray, False, 1e3, N),
    ],
)  # fmt: skip
def test_a_displacement_leads_to_the_solution_wherever_newton_starts(
    loss, convert, in_basis, step_size, n
):
    problem, A = local_problem(loss, convert=convert, in_basis=in_basis, step_size=step_size, n=n)
    v = point(loss)
    cold = problem.displacement(v, np.zeros(v.shape))
    for start in (np.zeros(v.shape), 10 * cold, -cold, point(loss, seed=8)):
        x = v - problem.displacement(v, start)
        assert residual(problem, A, x, v) < 4e-9 * max(1.0, step_size)
        np.testing.assert_allclose(v - x, cold, rtol=0, atol=1e-8)
    # Larger problems are solved by conjugate gradients.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_agent_blocks, "MOST_FACTORED", 0)
        np.testing.assert_allclose(problem.displacement(v, 0 * v), cold, rtol=0, atol=1e-6)


@pytest.mark.parametrize(("step_size", "most"), [(1e-6, 50), (1e6, 50), (50.0, 0), (50.0, 1)])
def test_extreme_steps_rows_and_points_end_in_a_finite_displacement(
    loss, step_size, most, monkeypatch
):
    """Also where Newton's method runs out of steps: an error would tell of data."""
    monkeypatch.setattr(_agent_blocks, "MOST_NEWTON_STEPS", most)
    scales = [0.0, 1e-150, 1.0, 1e150]
    for scale, convert in itertools.product(scales, (np.asarray, sparse.csr_matrix)):
        problem, _ = local_problem(loss, convert=convert, step_size=step_size, scale=scale)
        for size in (0.0, 1.0, 1e6):
            v = size * point(loss)
            with np.errstate(all="ignore"):
                found = problem.displacement(v, np.zeros(v.shape))
            assert found.shape == v.shape
            assert np.isfinite(found).all()
            assert scale > 0 or np.abs(found[:-1]).max() <= 1e-9 * max(size, 1.0)
