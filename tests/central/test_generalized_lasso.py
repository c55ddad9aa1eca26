"""The generalised lasso: exact answers by another road, private ones near them, bad input."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import lsq_linear
from sklearn.base import clone
from sklearn.linear_model import Lasso as SklearnLasso
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV

from skdpadmm import DPAdmmGeneralizedLasso, DPAdmmLasso
from skdpadmm.algorithms import (
    ConsensusADMM,
    CoordinateDescent,
    GradientADMM,
    GradientDescent,
    ObjectivePerturbation,
)
from skdpadmm.penalties import GeneralizedL1, LinearConstraint, difference_matrix

P = 8
STEPS = np.repeat([1.0, -0.5], P // 2)


def custom(seed=0, m=3):
    return np.random.default_rng(seed).normal(size=(m, P))


MATRICES = {
    "fused": ("fused", difference_matrix(P, 1).toarray()),
    "trend": ("trend", difference_matrix(P, 2).toarray()),
    "list": (custom().tolist(), custom()),
    "array": (custom(1, P), custom(1, P)),
    "one row": (custom(2, 1), custom(2, 1)),
    "csr": (sparse.csr_array(custom(3)), custom(3)),
    "csc": (sparse.csc_matrix(difference_matrix(P, 2)), difference_matrix(P, 2).toarray()),
    "coo": (sparse.coo_array(np.diag(np.arange(1.0, P + 1))), np.diag(np.arange(1.0, P + 1))),
}


def data(n=120, coef=STEPS, unit=1.0, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, len(coef))) * unit
    return X, X @ coef + 2.0 + 0.3 * rng.normal(size=n)


def solution(X, y, D, alpha, fit_intercept):
    """The answer by the dual problem, a least squares problem in a box."""
    mean = (X.mean(axis=0), y.mean()) if fit_intercept else (0.0, 0.0)
    Xc, yc = X - mean[0], y - mean[1]
    root = np.linalg.cholesky(Xc.T @ Xc / len(y))
    b = Xc.T @ yc / len(y)
    left, right = np.linalg.solve(root, D.T), np.linalg.solve(root, b)
    bounds = (-max(alpha, 1e-300), max(alpha, 1e-300))
    u = lsq_linear(left, right, bounds=bounds, method="bvls", tol=1e-15, max_iter=10_000).x
    coef = np.linalg.solve(root.T, right - left @ u)
    return coef, mean[1] - np.dot(mean[0], coef) if fit_intercept else 0.0


# Exact answers


@pytest.mark.parametrize(("given", "D"), MATRICES.values(), ids=MATRICES)
@pytest.mark.parametrize("alpha", [0.0, 0.01, 0.2, 10.0])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_without_privacy_the_answer_is_that_of_the_dual_problem(given, D, alpha, fit_intercept):
    X, y = data()
    model = DPAdmmGeneralizedLasso(
        penalty_matrix=given, alpha=alpha, epsilon=math.inf, fit_intercept=fit_intercept
    ).fit(X, y)
    coef, intercept = solution(X, y, D, alpha, fit_intercept)
    np.testing.assert_allclose(model.coef_, coef, atol=1e-6)
    assert model.intercept_ == pytest.approx(intercept, abs=1e-6)


@pytest.mark.parametrize("name", ["fused", "trend"])
@pytest.mark.parametrize("declared", [{}, {"feature_bounds": (-50, 80), "target_bounds": (-9, 9)}])
@pytest.mark.parametrize("convert", [np.asarray, sparse.csr_array])
def test_the_penalty_is_that_of_the_users_units(name, declared, convert):
    X, y = data(unit=np.logspace(-1, 1, P))
    model = DPAdmmGeneralizedLasso(
        penalty_matrix=name, alpha=0.05, epsilon=math.inf, **declared
    ).fit(convert(X), y)
    coef, intercept = solution(X, y, MATRICES[name][1], 0.05, True)
    np.testing.assert_allclose(model.coef_, coef, atol=1e-6)
    assert model.intercept_ == pytest.approx(intercept, abs=1e-6)


@pytest.mark.parametrize("alpha", [0.02, 0.3])
def test_with_the_identity_it_is_the_lasso(alpha):
    X, y = data()
    model = DPAdmmGeneralizedLasso(penalty_matrix=np.eye(P), alpha=alpha, epsilon=math.inf)
    lasso = DPAdmmLasso(alpha=alpha, epsilon=math.inf).fit(X, y)
    np.testing.assert_allclose(model.fit(X, y).coef_, lasso.coef_, atol=1e-8)
    expected = SklearnLasso(alpha=alpha, tol=1e-14).fit(X, y).coef_
    np.testing.assert_allclose(model.coef_, expected, atol=1e-7)
    np.testing.assert_array_equal(model.coef_ == 0, expected == 0)


@pytest.mark.parametrize("name", MATRICES)
def test_a_constraint_of_a_lasso_leads_to_the_same_answer(name):
    given, D = MATRICES[name]
    X, y = data()
    model = DPAdmmGeneralizedLasso(penalty_matrix=given, alpha=0.1, epsilon=math.inf).fit(X, y)
    tied = DPAdmmLasso(
        alpha=0.1, epsilon=math.inf, algorithm=GradientADMM(constraint=LinearConstraint(D))
    ).fit(X, y)
    np.testing.assert_allclose(tied.coef_, model.coef_, atol=1e-7)


def test_coefficients_that_are_fused_are_equal():
    X, y = data(n=400)
    coef = DPAdmmGeneralizedLasso(alpha=0.1, epsilon=math.inf).fit(X, y).coef_
    apart = np.abs(np.diff(coef))
    assert apart[P // 2 - 1] > 0.5
    assert np.delete(apart, P // 2 - 1).max() < 1e-9
    line = np.linspace(0, 2, P)
    X, y = data(n=400, coef=line)
    coef = (
        DPAdmmGeneralizedLasso(penalty_matrix="trend", alpha=1.0, epsilon=math.inf).fit(X, y).coef_
    )
    assert np.abs(np.diff(coef, n=2)).max() < 1e-9
    assert np.ptp(coef) > 1


@pytest.mark.parametrize("name", ["fused", "trend"])
@pytest.mark.parametrize("epsilon", [1.0, math.inf])
def test_so_few_features_that_there_is_nothing_to_compare_have_no_penalty(name, epsilon):
    for p in range(1, 2 if name == "fused" else 3):
        X, y = data(coef=np.ones(p))
        model = DPAdmmGeneralizedLasso(
            penalty_matrix=name, alpha=5.0, epsilon=epsilon, random_state=0
        ).fit(X, y)
        assert np.isfinite(model.coef_).all()
        if epsilon == math.inf:
            np.testing.assert_allclose(model.coef_, LinearRegression().fit(X, y).coef_, atol=1e-8)


# Private answers


@pytest.mark.parametrize(
    "algorithm",
    [
        "gradient-admm",
        "consensus-admm",
        "gradient-descent",
        GradientADMM(schedule="stream"),
        GradientADMM(schedule="stopping"),
        GradientADMM(release="path"),
        ConsensusADMM(record_step="linearized"),
        GradientDescent(guarantee="last"),
    ],
    ids=str,
)
@pytest.mark.parametrize(("given", "D"), list(MATRICES.values())[:3], ids=list(MATRICES)[:3])
def test_private_fits_spend_the_budget(algorithm, given, D):
    X, y = data()
    model = DPAdmmGeneralizedLasso(penalty_matrix=given, algorithm=algorithm, random_state=0)
    model.fit(X, y)
    assert np.isfinite(model.coef_).all()
    assert model.privacy_.epsilon() == pytest.approx(1.0, rel=1e-6)
    assert model.privacy_.epsilon() <= 1.0 + 1e-9
    assert np.isfinite(model.predict(X)).all()


@pytest.mark.parametrize(
    "algorithm",
    [
        GradientADMM(passes=10, step_size=0.02, clip_norm=0.5),
        "consensus-admm",
        "gradient-descent",
    ],
    ids=str,
)
def test_with_a_huge_budget_a_private_fit_is_close_to_the_exact_one(algorithm):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (2000, P))
    y = X @ STEPS + 0.1 * rng.normal(size=2000)
    model = DPAdmmGeneralizedLasso(
        alpha=0.02, epsilon=1e6, feature_bounds=(-1, 1), target_bounds=(-6, 6), random_state=0,
        algorithm=algorithm, max_iter=300,
    ).fit(X, y)  # fmt: skip
    exact = clone(model).set_params(epsilon=math.inf).fit(X, y)
    np.testing.assert_allclose(model.coef_, exact.coef_, atol=0.05)
    assert np.abs(exact.coef_).max() > 0.5


@pytest.mark.parametrize("algorithm", ["gradient-admm", "consensus-admm"])
def test_noisy_neighbours_are_fused_too(algorithm):
    X, y = data(n=600)
    model = DPAdmmGeneralizedLasso(alpha=30.0, epsilon=8.0, random_state=0, algorithm=algorithm)
    apart = np.abs(np.diff(model.fit(X, y).coef_))
    assert (apart < 1e-9).any()


def test_gradient_admm_shows_the_last_state_alone():
    model = DPAdmmGeneralizedLasso(algorithm="gradient-admm", random_state=0)
    plan = model.plan(500, 4)
    assert plan.algorithm == "GradientADMM"
    assert plan.releases[-1].is_hidden
    assert plan.facts.penalty.matrix.shape == (3, 4)
    text = repr(model.fit(*data(coef=np.ones(4))).privacy_)
    assert "at worst" in text
    assert "the final model alone" in text


def test_other_matrices_draw_other_noise():
    X, y = data()
    plans = [
        DPAdmmGeneralizedLasso(penalty_matrix=given).plan(120, P)
        for given in ("fused", "trend", difference_matrix(P, 1))
    ]
    assert plans[0].digest() != plans[1].digest()
    assert plans[0] == plans[2]
    assert plans[0].digest() == plans[2].digest()
    coefs = [
        DPAdmmGeneralizedLasso(penalty_matrix=D, random_state=0).fit(X, y).coef_
        for D in ("fused", difference_matrix(P, 1).toarray())
    ]
    np.testing.assert_array_equal(*coefs)


def test_a_matrix_is_a_parameter_like_any_other():
    D = sparse.csr_array(custom())
    model = DPAdmmGeneralizedLasso(penalty_matrix=D, random_state=0)
    X, y = data()
    copied = clone(model).fit(X, y)
    np.testing.assert_array_equal(copied.coef_, model.fit(X, y).coef_)
    assert model.penalty_matrix is D
    grid = {"penalty_matrix": ["fused", "trend", custom()], "alpha": [0.01, 0.1]}
    search = GridSearchCV(DPAdmmGeneralizedLasso(epsilon=math.inf), grid, cv=3).fit(X, y)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


# What it refuses


@pytest.mark.parametrize("epsilon", [1.0, math.inf])
@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (np.ones((2, P)), "rank"),
        (np.ones((P + 1, P)), "rank"),
        (np.zeros((1, P)), "rank"),
        (sparse.csr_array(np.ones((2, P))), "rank"),
        (np.eye(3), f"3.*{P}"),
        (np.eye(P)[:, 1:].T[:2, :-1], f"{P - 1}.*{P}"),
        (np.full((1, P), np.nan), "finite"),
        (np.ones(P), "matrix"),
        ("laplace", "penalty_matrix"),
        (None, "penalty_matrix"),
    ],
    ids=["rank", "rows", "zero", "sparse", "square", "columns", "NaN", "vector", "name", "None"],
)
def test_a_matrix_that_is_none_is_refused_before_data(matrix, message, epsilon):
    model = DPAdmmGeneralizedLasso(penalty_matrix=matrix, epsilon=epsilon)
    with pytest.raises(ValueError, match=message):
        model.plan(100, P)
    with pytest.raises(ValueError, match=message):
        model.fit(*data())
    assert not hasattr(model, "coef_")


@pytest.mark.parametrize("algorithm", [CoordinateDescent(), ObjectivePerturbation()], ids=str)
def test_algorithms_that_cannot_serve_the_penalty_say_so_before_data(algorithm):
    model = DPAdmmGeneralizedLasso(algorithm=algorithm)
    with pytest.raises(ValueError, match=r"^Got .*expected"):
        model.plan(100, P)


def test_a_strength_below_zero_is_refused():
    with pytest.raises(ValueError, match="alpha"):
        DPAdmmGeneralizedLasso(alpha=-1.0).fit(*data())


def test_the_value_of_the_penalty_is_that_of_the_objective():
    w = np.random.default_rng(0).normal(size=P)
    D = difference_matrix(P, 1)
    assert GeneralizedL1(D, 0.3).value(w) == pytest.approx(0.3 * np.abs(np.diff(w)).sum())
