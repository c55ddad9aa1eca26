"""The generalised lasso: exact answers by another road, private ones near them, bad matrices."""

import math

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import lsq_linear
from sklearn.linear_model import Lasso

from skdpadmm import DPAdmmGeneralizedLasso, DPAdmmLasso
from skdpadmm.algorithms import GradientADMM
from skdpadmm.penalties import LinearConstraint, difference_matrix
from tests.interface.registry import all_pairs

P = 8
STEPS = np.repeat([1.0, -0.5], P // 2)
RANDOM = np.random.default_rng(0).normal(size=(P, P))
DIAGONAL = np.diag(np.arange(1.0, P + 1))
TREND = difference_matrix(P, 2).toarray()
MATRICES = {
    "fused": ("fused", difference_matrix(P, 1).toarray()),
    "trend": ("trend", TREND),
    "list": (RANDOM[:3].tolist(), RANDOM[:3]),
    "array": (RANDOM, RANDOM),
    "coo": (sparse.coo_array(DIAGONAL), DIAGONAL),
}


def exact(given, alpha, **more):
    return DPAdmmGeneralizedLasso(penalty_matrix=given, alpha=alpha, epsilon=math.inf, **more)


def data(n=120, unit=1.0):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, P)) * unit
    return X, X @ STEPS + 2.0 + 0.3 * rng.normal(size=n)


def solution(X, y, D, alpha, fit_intercept):
    """The answer by the dual problem, a least squares problem in a box."""
    mean = (X.mean(axis=0), y.mean()) if fit_intercept else (np.zeros(X.shape[1]), 0.0)
    Xc, yc = X - mean[0], y - mean[1]
    root = np.linalg.cholesky(Xc.T @ Xc / len(y))
    left, right = np.linalg.solve(root, D.T), np.linalg.solve(root, Xc.T @ yc / len(y))
    bounds = (-max(alpha, 1e-300), max(alpha, 1e-300))
    u = lsq_linear(left, right, bounds=bounds, method="bvls", tol=1e-15, max_iter=10_000).x
    coef = np.linalg.solve(root.T, right - left @ u)
    return np.append(coef, mean[1] - mean[0] @ coef)


SCHEMAS = [{}, {"feature_bounds": (-50, 80), "target_bounds": (-9, 9)}]


@pytest.mark.parametrize(
    ("name", "alpha", "fit_intercept", "declared", "convert"),
    all_pairs(
        MATRICES, [0.0, 0.05, 10.0], [True, False], SCHEMAS, [np.asarray, sparse.csr_array]
    ),
)  # fmt: skip
def test_without_privacy_the_answer_is_that_of_the_dual_problem_in_the_users_units(
    name, alpha, fit_intercept, declared, convert
):
    given, D = MATRICES[name]
    X, y = data(unit=np.logspace(-1, 1, P))
    model = exact(given, alpha, fit_intercept=fit_intercept, **declared).fit(convert(X), y)
    expected = solution(X, y, D, alpha, fit_intercept)
    np.testing.assert_allclose(np.append(model.coef_, model.intercept_), expected, atol=1e-6)


@pytest.mark.parametrize("name", ["fused", "list"])
def test_a_constraint_of_a_lasso_leads_to_the_same_answer(name):
    given, D = MATRICES[name]
    X, y = data()
    algorithm = GradientADMM(constraint=LinearConstraint(D))
    tied = DPAdmmLasso(alpha=0.1, epsilon=math.inf, algorithm=algorithm).fit(X, y)
    np.testing.assert_allclose(tied.coef_, exact(given, 0.1).fit(X, y).coef_, atol=1e-7)
    identity = exact(np.eye(P), 0.1).fit(X, y)
    expected = Lasso(alpha=0.1, tol=1e-14).fit(X, y).coef_
    np.testing.assert_allclose(identity.coef_, expected, atol=1e-7)
    np.testing.assert_array_equal(identity.coef_ == 0, expected == 0)


def test_coefficients_that_are_fused_are_equal():
    X, y = data(n=400)
    apart = np.abs(np.diff(exact("fused", 0.1).fit(X, y).coef_))
    assert apart[P // 2 - 1] > 0.5
    assert np.delete(apart, P // 2 - 1).max() < 1e-9


@pytest.mark.parametrize(
    ("matrix", "message"),
    [(np.ones((2, P)), "rank"), (np.eye(3), f"3.*{P}"), ("laplace", "penalty_matrix")],
)
def test_a_matrix_that_is_none_is_refused_before_data(matrix, message, assert_unfitted):
    for epsilon in (1.0, math.inf):
        model = DPAdmmGeneralizedLasso(penalty_matrix=matrix, epsilon=epsilon)
        with pytest.raises(ValueError, match=message):
            model.plan(100, P)
        with pytest.raises(ValueError, match=message):
            model.fit(*data())
        assert_unfitted(model)
