"""The exact limit at epsilon = inf against scikit-learn's estimators of the same objective."""

import math

import numpy as np
import pytest
import sklearn
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import ElasticNet, Lasso, LinearRegression, LogisticRegression, Ridge
from sklearn.preprocessing import StandardScaler
from sklearn.utils.fixes import parse_version

from skdpadmm import (
    DPAdmmElasticNet,
    DPAdmmLasso,
    DPAdmmLinearSVC,
    DPAdmmLogisticRegression,
    DPAdmmRidge,
)
from skdpadmm.algorithms import _proximal_newton

TIGHT = {"tol": 1e-14, "max_iter": 10**6}
NEWTON = {"solver": "newton-cholesky", "tol": 1e-12, "max_iter": 1000}
# scikit-learn < 1.8 reads l1_ratio only where the penalty is named; 1.8 deprecates the name.
NAMED = parse_version(sklearn.__version__) < parse_version("1.8")
SAGA = {"solver": "saga", "random_state": 0, "tol": 1e-12, "max_iter": 100_000}
SAGA |= {"penalty": "elasticnet"} if NAMED else {}


def exact(estimator, **changed):
    return clone(estimator).set_params(epsilon=math.inf, **changed)


def overlapping(n=300, p=4, n_classes=2):
    """Classes that no plane separates."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, p))
    scores = X @ rng.normal(size=(p, n_classes)) + rng.gumbel(size=(n, n_classes))
    return X, scores.argmax(axis=1)


def standardised(data):
    return StandardScaler().fit_transform(data[0]), data[1]


DIABETES = load_diabetes(return_X_y=True, scaled=False)
CANCER, IRIS = (load(return_X_y=True) for load in (load_breast_cancer, load_iris))
WIDE, X = overlapping(n=30, p=80), overlapping()[0]
COLLINEAR = np.column_stack([X, X[:, 0], 2 * X[:, 1] - X[:, 2]]), overlapping()[1]
BOTH = {"alpha": 0.5, "l1_ratio": 0.3}
LOGISTIC = DPAdmmLogisticRegression(), LogisticRegression(**NEWTON)
RIDGE = DPAdmmRidge(alpha=3.0), Ridge(alpha=3.0, solver="cholesky")
CASES = [  # two estimators, their shared parameters, data, and how close their models are
    (*RIDGE, {}, DIABETES, 1e-4),
    (DPAdmmRidge(alpha=0.0), LinearRegression(), {}, standardised(DIABETES), 1e-6),
    (DPAdmmLasso(), Lasso(**TIGHT), {"alpha": 0.5}, DIABETES, 1e-4),
    (DPAdmmLasso(), Lasso(**TIGHT), {"alpha": 0.1}, WIDE, 1e-6),
    (DPAdmmElasticNet(), ElasticNet(**TIGHT), BOTH, standardised(DIABETES), 1e-6),
    (DPAdmmElasticNet(), ElasticNet(**TIGHT), BOTH | {"fit_intercept": False}, DIABETES, 1e-4),
    (*LOGISTIC, {"C": 10.0, "fit_intercept": False}, standardised(CANCER), 1e-6),
    (*LOGISTIC, {"C": 1.0}, IRIS, 1e-4),
    (*LOGISTIC, {"C": np.inf}, overlapping(), 1e-6),
    (*LOGISTIC, {"C": 0.5}, WIDE, 1e-6),
    (*RIDGE, {}, COLLINEAR, 1e-6),
    (LOGISTIC[0], LogisticRegression(**SAGA), {"C": 0.1, "l1_ratio": 0.5}, overlapping(), 1e-6),
]


@pytest.mark.parametrize(("model", "reference", "shared", "data", "tolerance"), CASES)
def test_at_infinite_epsilon_the_model_is_scikit_learns(model, reference, shared, data, tolerance):
    """Relative to the largest coefficient; intercepts of all classes may move together."""
    found = exact(model, **shared).fit(*data)
    expected = clone(reference).set_params(**shared).fit(*data)
    for name in ("coef_", "intercept_"):
        a, b = (np.atleast_1d(getattr(fitted, name)) for fitted in (found, expected))
        if name == "intercept_":
            a, b = a - a.mean() * (len(a) > 1), b - b.mean() * (len(b) > 1)
        assert np.abs(a - b).max() <= tolerance * max(np.abs(b).max(), 1e-12)
    if "l1_ratio" in shared:
        np.testing.assert_array_equal(found.coef_ == 0, expected.coef_ == 0)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_separable_classes_without_a_penalty_end_in_a_finite_model(n_classes):
    X = np.random.default_rng(1).uniform(-1, 1, size=(200, 3))
    y = np.digitize(X[:, 0], [0.0] if n_classes == 2 else [-0.3, 0.3])
    with pytest.warns(ConvergenceWarning, match="Got no convergence"):
        model = exact(DPAdmmLogisticRegression(C=np.inf)).fit(X, y)
    assert np.isfinite(model.coef_).all()
    assert model.score(X, y) > 0.98


MODELS = [DPAdmmRidge(), DPAdmmLasso(alpha=0.02), DPAdmmLogisticRegression(C=1.0, l1_ratio=0.5)]


@pytest.mark.parametrize(("model", "n_classes"), zip(MODELS, [2, 2, 3], strict=True), ids=str)
def test_neither_constant_columns_nor_another_solver_matter(model, n_classes, monkeypatch):
    (X, y), model = overlapping(n_classes=n_classes), exact(model)
    expected = np.atleast_2d(model.fit(X, y).coef_)
    scale = np.abs(expected).max()
    for value in (0.0, 0.1, 1e6):
        coef = np.atleast_2d(model.fit(np.column_stack([X, np.full(len(X), value)]), y).coef_)
        np.testing.assert_allclose(coef[:, :-1], expected, atol=1e-6 * scale)
        assert np.abs(coef[:, -1]).max() <= 1e-6 * scale / max(value, 1.0)
    monkeypatch.setattr(_proximal_newton, "LARGEST_HESSIAN", 0)
    monkeypatch.setattr(_proximal_newton._Objective, "derivatives", None)
    coef = model.fit(sparse.csr_matrix(X), y).coef_
    np.testing.assert_allclose(np.atleast_2d(coef), expected, rtol=1e-6, atol=1e-8)


def test_a_flat_hinge_does_not_end_newton_steps_before_the_optimum(monkeypatch):
    """Where no row of a class has curvature, Newton steps are short however steep the slope."""
    X = np.random.default_rng(1).uniform(-1, 1, size=(150, 3))
    y = np.digitize(X @ [1, -2, 0.5], [-0.5, 0.5])
    model = exact(DPAdmmLinearSVC(smoothing=0.2, C=0.05))
    coef, intercept = model.fit(X, y).coef_, model.intercept_
    monkeypatch.setattr(_proximal_newton, "LARGEST_HESSIAN", 0)
    np.testing.assert_allclose(coef, model.fit(X, y).coef_, atol=1e-8)
    np.testing.assert_allclose(intercept, model.intercept_, atol=1e-8)
