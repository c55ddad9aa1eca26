"""At epsilon = inf an estimator minimises exactly the objective that its documentation states."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.base import clone
from sklearn.linear_model import HuberRegressor

from skdpadmm import DPAdmmHuberRegressor, DPAdmmLinearSVC


def regression(seed=0, n=200):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3)) * [1.0, 10.0, 0.1]
    return X, 5 + X @ [1.0, -0.2, 3.0] + rng.standard_t(1.5, size=n)


def huber_objective(parameters, X, y, threshold, alpha):
    r = np.abs(y - X @ parameters[:-1] - parameters[-1])
    h = np.where(r <= threshold, r**2, 2 * threshold * r - threshold**2)
    return h.sum() + alpha * parameters[:-1] @ parameters[:-1]


@pytest.mark.parametrize("threshold", [0.3, 1.35, 50.0])
@pytest.mark.parametrize("alpha", [1e-4, 10.0])
def test_huber_regression_minimises_its_objective(threshold, alpha):
    X, y = regression()
    model = DPAdmmHuberRegressor(epsilon=np.inf, huber_threshold=threshold, alpha=alpha).fit(X, y)
    found = np.append(model.coef_, model.intercept_)
    arguments = (X, y, threshold, alpha)
    best = minimize(huber_objective, found, args=arguments, tol=1e-12)
    value = huber_objective(found, *arguments)
    assert value <= best.fun * (1 + 1e-9)
    for j in range(4):
        for step in (-1e-3, 1e-3):
            assert huber_objective(found + step * np.eye(4)[j], *arguments) > value


def test_huber_regression_is_scikit_learns_where_its_scale_is_one():
    X, y = regression()
    reference = HuberRegressor(alpha=1e-4, tol=1e-10, max_iter=10_000).fit(X, y)
    # scikit-learn estimates a scale; in units of it, the two objectives are the same.
    unit = reference.scale_
    model = DPAdmmHuberRegressor(epsilon=np.inf, alpha=1e-4).fit(X / unit, y / unit)
    np.testing.assert_allclose(model.coef_, reference.coef_, rtol=1e-3, atol=1e-4)


def test_a_target_in_other_units_gives_the_same_model_in_them():
    X, y = regression()
    one = DPAdmmHuberRegressor(epsilon=np.inf, huber_threshold=1.0, alpha=0.1).fit(X, y)
    other = DPAdmmHuberRegressor(epsilon=np.inf, huber_threshold=1e3, alpha=0.1).fit(X, 1e3 * y)
    np.testing.assert_allclose(other.coef_, 1e3 * one.coef_, rtol=1e-6)


def hinge(margin, width):
    parabola = (1 - margin) ** 2 / (2 * width)
    return np.where(
        margin >= 1, 0.0, np.where(margin >= 1 - width, parabola, 1 - margin - width / 2)
    )


def svc_objective(parameters, X, signs, C, width):
    W = parameters.reshape(signs.shape[1], -1)
    margin = signs * (X @ W[:, :-1].T + W[:, -1])
    return 0.5 * np.square(W[:, :-1]).sum() + C * hinge(margin, width).sum()


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("width", [0.2, 1.0])
@pytest.mark.parametrize("C", [0.1, 1.0])
def test_linear_svc_minimises_its_objective(n_classes, width, C):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(150, 3)) * [1.0, 0.1, 5.0]
    y = np.digitize(X[:, 0] + 0.5 * rng.normal(size=150), [-0.3, 0.6][: n_classes - 1])
    model = DPAdmmLinearSVC(epsilon=np.inf, C=C, smoothing=width).fit(X, y)
    signs = 2.0 * (y[:, None] == np.arange(n_classes)) - 1
    signs = signs[:, 1:] if n_classes == 2 else signs
    found = np.column_stack([model.coef_, model.intercept_]).ravel()
    arguments = (X, signs, C, width)
    value = svc_objective(found, *arguments)
    best = minimize(svc_objective, found, args=arguments, tol=1e-12)
    assert value <= best.fun * (1 + 1e-8)
    cold = minimize(
        svc_objective, np.zeros_like(found), args=arguments, method="L-BFGS-B", tol=1e-14
    )
    assert value <= cold.fun * (1 + 1e-8)


@pytest.mark.parametrize("estimator", [DPAdmmHuberRegressor(), DPAdmmLinearSVC()])
def test_private_defaults_learn_something(estimator):
    rng = np.random.default_rng(2)
    X = rng.uniform(-1, 1, size=(5000, 4))
    score = X @ [1.0, -1.0, 0.5, 0.0] + 0.1 * rng.normal(size=5000)
    y = score if isinstance(estimator, DPAdmmHuberRegressor) else score > 0
    model = clone(estimator).set_params(feature_bounds=(-1, 1), random_state=0).fit(X, y)
    assert model.score(X, y) > 0.9
