"""The exact limit at epsilon = inf against scikit-learn's estimators of the same objective."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
import sklearn
from scipy import sparse
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris, load_wine
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import ElasticNet, Lasso, LinearRegression, LogisticRegression, Ridge
from sklearn.preprocessing import StandardScaler
from sklearn.utils.fixes import parse_version

from skdpadmm import DPAdmmElasticNet, DPAdmmLasso, DPAdmmLogisticRegression, DPAdmmRidge
from skdpadmm.algorithms import ProximalNewton, _proximal_newton
from skdpadmm.losses import SquaredLoss
from skdpadmm.penalties import NoPenalty
from skdpadmm.privacy import Neighboring
from skdpadmm.protocol import Budget, Facts

# Standardised or raw features, with the accuracy that is promised for each.
UNITS = {"standardised": 1e-6, "raw": 1e-4}


def in_units(X, units):
    return StandardScaler().fit_transform(X) if units == "standardised" else X


def exact(estimator, **changed):
    return estimator.set_params(epsilon=math.inf, **changed)


def assert_same_model(model, reference, tolerance):
    """Relative to the largest coefficient; intercepts of all classes may move together."""
    coef, expected = np.atleast_2d(model.coef_), np.atleast_2d(reference.coef_)
    assert np.abs(coef - expected).max() <= tolerance * np.abs(expected).max()
    intercept, expected = np.atleast_1d(model.intercept_), np.atleast_1d(reference.intercept_)
    if len(intercept) > 1:
        intercept, expected = intercept - intercept.mean(), expected - expected.mean()
    assert np.abs(intercept - expected).max() <= tolerance * max(np.abs(expected).max(), 1e-12)


# scikit-learn < 1.8 reads l1_ratio only where the penalty is named; 1.8 deprecates the name.
NAMED = parse_version(sklearn.__version__) < parse_version("1.8")
TIGHT = {"tol": 1e-14, "max_iter": 10**6}
REGRESSORS = {
    "ridge": (DPAdmmRidge(alpha=3.0), Ridge(alpha=3.0, solver="cholesky")),
    "least squares": (DPAdmmRidge(alpha=0.0), LinearRegression()),
    "lasso": (DPAdmmLasso(alpha=0.5), Lasso(alpha=0.5, **TIGHT)),
    "elastic net": (
        DPAdmmElasticNet(alpha=0.5, l1_ratio=0.3),
        ElasticNet(alpha=0.5, l1_ratio=0.3, **TIGHT),
    ),
}


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("units", UNITS)
@pytest.mark.parametrize("pair", REGRESSORS.values(), ids=REGRESSORS)
def test_regression_on_diabetes(pair, units, fit_intercept):
    X, y = load_diabetes(return_X_y=True, scaled=False)
    X = in_units(X, units)
    model, reference = (part.set_params(fit_intercept=fit_intercept) for part in pair)
    assert_same_model(exact(model).fit(X, y), reference.fit(X, y), UNITS[units])
    np.testing.assert_allclose(model.predict(X), reference.predict(X), rtol=UNITS[units])


LOADERS = {"breast_cancer": load_breast_cancer, "iris": load_iris, "wine": load_wine}


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("C", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("units", UNITS)
@pytest.mark.parametrize("load", LOADERS.values(), ids=LOADERS)
def test_logistic_regression_with_a_squared_penalty(load, units, C, fit_intercept):
    X, y = load(return_X_y=True)
    X = in_units(X, units)
    reference = LogisticRegression(
        C=C, fit_intercept=fit_intercept, solver="newton-cholesky", tol=1e-12, max_iter=1000
    ).fit(X, y)
    model = exact(DPAdmmLogisticRegression(C=C, fit_intercept=fit_intercept)).fit(X, y)
    assert_same_model(model, reference, UNITS[units])
    np.testing.assert_allclose(model.predict_proba(X), reference.predict_proba(X), atol=1e-5)
    np.testing.assert_array_equal(model.predict(X), reference.predict(X))


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("l1_ratio", [0.5, 1.0])
@pytest.mark.parametrize("load", LOADERS.values(), ids=LOADERS)
def test_logistic_regression_with_an_l1_penalty(load, l1_ratio, fit_intercept):
    X, y = load(return_X_y=True)
    X = in_units(X, "standardised")
    reference = LogisticRegression(
        C=0.05, l1_ratio=l1_ratio, fit_intercept=fit_intercept, solver="saga", tol=1e-12,
        max_iter=100_000, random_state=0, **({"penalty": "elasticnet"} if NAMED else {}),
    ).fit(X, y)  # fmt: skip
    model = DPAdmmLogisticRegression(C=0.05, l1_ratio=l1_ratio, fit_intercept=fit_intercept)
    assert_same_model(exact(model).fit(X, y), reference, UNITS["standardised"])
    np.testing.assert_array_equal(model.coef_ == 0, reference.coef_ == 0)


def test_logistic_regression_with_an_l1_penalty_in_raw_units():
    X, y = load_breast_cancer(return_X_y=True)
    reference = LogisticRegression(
        C=0.05, fit_intercept=False, solver="liblinear", tol=1e-12,
        max_iter=100_000, random_state=0, **({"penalty": "l1"} if NAMED else {"l1_ratio": 1.0}),
    ).fit(X, y)  # fmt: skip
    model = exact(DPAdmmLogisticRegression(C=0.05, l1_ratio=1.0, fit_intercept=False)).fit(X, y)
    assert_same_model(model, reference, UNITS["raw"])


def overlapping(n=300, p=4, n_classes=2):
    """Classes that no plane separates."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, p))
    scores = X @ rng.normal(size=(p, n_classes)) + rng.gumbel(size=(n, n_classes))
    return X, scores.argmax(axis=1)


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_logistic_regression_without_a_penalty(fit_intercept):
    X, y = overlapping()
    reference = LogisticRegression(
        C=np.inf, fit_intercept=fit_intercept, solver="newton-cholesky", tol=1e-12
    ).fit(X, y)
    model = exact(DPAdmmLogisticRegression(C=np.inf, fit_intercept=fit_intercept)).fit(X, y)
    assert_same_model(model, reference, 1e-6)


def test_multinomial_regression_without_a_penalty_gives_the_same_probabilities():
    X, y = overlapping(n_classes=3)
    reference = LogisticRegression(C=np.inf, solver="newton-cg", tol=1e-10, max_iter=1000).fit(X, y)
    model = exact(DPAdmmLogisticRegression(C=np.inf)).fit(X, y)
    np.testing.assert_allclose(model.predict_proba(X), reference.predict_proba(X), atol=1e-6)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_separable_classes_without_a_penalty_end_in_a_finite_model(n_classes):
    rng = np.random.default_rng(1)
    X = rng.uniform(-1, 1, size=(200, 3))
    y = np.digitize(X[:, 0], [0.0] if n_classes == 2 else [-0.3, 0.3])
    with pytest.warns(ConvergenceWarning, match="Got no convergence"):
        model = exact(DPAdmmLogisticRegression(C=np.inf)).fit(X, y)
    assert np.isfinite(model.coef_).all()
    assert model.score(X, y) > 0.98


CONVERSIONS = {
    "CSR": sparse.csr_matrix,
    "CSC": sparse.csc_array,
    "F": np.asfortranarray,
    "float32": lambda X: X.astype(np.float32),
    "CSR float32": lambda X: sparse.csr_matrix(X.astype(np.float32)),
}


@pytest.mark.parametrize("convert", CONVERSIONS.values(), ids=CONVERSIONS)
@pytest.mark.parametrize("which", ["ridge", "lasso", "logistic", "multinomial"])
def test_the_container_of_the_features_does_not_matter(which, convert):
    rng = np.random.default_rng(2)
    X, y = overlapping(n_classes=3 if which == "multinomial" else 2)
    X[rng.random(X.shape) < 0.5] = 0.0
    X = X.astype(np.float32).astype(np.float64) + 0.0
    model = {
        "ridge": DPAdmmRidge(),
        "lasso": DPAdmmLasso(alpha=0.01),
        "logistic": DPAdmmLogisticRegression(l1_ratio=0.5),
        "multinomial": DPAdmmLogisticRegression(C=1.0),
    }[which]
    expected = exact(model).fit(X, y).coef_.copy()
    np.testing.assert_allclose(model.fit(convert(X), y).coef_, expected, rtol=1e-8, atol=1e-10)


WIDE = {
    "ridge": (DPAdmmRidge(alpha=2.0), Ridge(alpha=2.0, solver="cholesky")),
    "lasso": (DPAdmmLasso(alpha=0.1), Lasso(alpha=0.1, **TIGHT)),
    "elastic net": (
        DPAdmmElasticNet(alpha=0.1, l1_ratio=0.5),
        ElasticNet(alpha=0.1, l1_ratio=0.5, **TIGHT),
    ),
    "logistic": (
        DPAdmmLogisticRegression(C=0.5),
        LogisticRegression(C=0.5, solver="newton-cholesky", tol=1e-12),
    ),
}


@pytest.mark.parametrize("pair", WIDE.values(), ids=WIDE)
def test_more_features_than_rows(pair):
    X, y = overlapping(n=30, p=80)
    model, reference = pair
    assert_same_model(exact(model).fit(X, y), reference.fit(X, y), 1e-6)


@pytest.mark.parametrize("pair", [WIDE["ridge"], WIDE["logistic"]], ids=["ridge", "logistic"])
def test_collinear_columns_share_a_squared_penalty(pair):
    X, y = overlapping()
    X = np.column_stack([X, X[:, 0], 2 * X[:, 1] - X[:, 2]])
    model, reference = pair
    assert_same_model(exact(model).fit(X, y), reference.fit(X, y), 1e-6)
    assert model.coef_.ravel()[0] == pytest.approx(model.coef_.ravel()[4], rel=1e-6)


def test_collinear_columns_predict_the_same_under_an_l1_penalty():
    X, y = overlapping()
    X = np.column_stack([X, X[:, 0], 2 * X[:, 1] - X[:, 2]])
    model, reference = exact(DPAdmmLasso(alpha=0.02)), Lasso(alpha=0.02, **TIGHT)
    model.fit(X, y), reference.fit(X, y)
    np.testing.assert_allclose(model.predict(X), reference.predict(X), atol=1e-6)


def test_least_squares_with_collinear_columns_predicts_the_same():
    X, y = overlapping()
    X = np.column_stack([X, X[:, 0]])
    model = exact(DPAdmmRidge(alpha=0.0)).fit(X, y)
    reference = LinearRegression().fit(X, y)
    np.testing.assert_allclose(model.predict(X), reference.predict(X), atol=1e-8)


@pytest.mark.parametrize("value", [0.0, 1.0, 0.1, 1e6])
@pytest.mark.parametrize("which", ["ridge", "lasso", "logistic"])
def test_a_constant_column_gets_no_weight_beside_an_intercept(which, value):
    X, y = overlapping()
    model = {
        "ridge": DPAdmmRidge(),
        "lasso": DPAdmmLasso(alpha=0.01),
        "logistic": DPAdmmLogisticRegression(),
    }[which]
    without = exact(model).fit(X, y).coef_.ravel().copy()
    coef = model.fit(np.column_stack([X, np.full(len(X), value)]), y).coef_.ravel()
    np.testing.assert_allclose(coef[:-1], without, rtol=1e-6)
    assert abs(coef[-1]) <= 1e-6 * np.abs(without).max() / max(value, 1.0)


@pytest.mark.parametrize("scale", [1e-12, 1e-6, 1e6, 1e12])
@pytest.mark.parametrize("shift", [0.0, 1e3])
def test_units_do_not_matter_without_a_penalty(scale, shift):
    X, y = overlapping()
    t = X @ [1.0, -2.0, 0.5, 3.0] + 0.1 * y
    plain = exact(DPAdmmRidge(alpha=0.0)).fit(X, t).predict(X)
    moved = scale * (X + shift)
    target = exact(DPAdmmRidge(alpha=0.0)).fit(moved, 1e5 * t).predict(moved)
    np.testing.assert_allclose(target, 1e5 * plain, rtol=1e-6, atol=1e-3)


@pytest.mark.parametrize("which", ["ridge", "lasso", "logistic", "l1 logistic", "multinomial"])
def test_the_accelerated_gradient_finds_what_newton_finds(which, monkeypatch):
    X, y = overlapping(n_classes=3 if which == "multinomial" else 2)
    model = {
        "ridge": DPAdmmRidge(),
        "lasso": DPAdmmLasso(alpha=0.02),
        "logistic": DPAdmmLogisticRegression(),
        "l1 logistic": DPAdmmLogisticRegression(C=0.2, l1_ratio=1.0),
        "multinomial": DPAdmmLogisticRegression(C=1.0, l1_ratio=0.5),
    }[which]
    newton = exact(model).fit(X, y).coef_.copy()

    def unused(*args):
        raise AssertionError("formed a Hessian")

    monkeypatch.setattr(_proximal_newton, "LARGEST_HESSIAN", 0)
    monkeypatch.setattr(_proximal_newton, "_derivatives", unused)
    np.testing.assert_allclose(model.fit(X, y).coef_, newton, rtol=1e-6, atol=1e-8)


def test_raw_units_do_not_stop_the_accelerated_gradient(monkeypatch):
    X, y = load_diabetes(return_X_y=True, scaled=False)
    expected = Ridge(alpha=3.0, solver="cholesky").fit(X, y)
    monkeypatch.setattr(_proximal_newton, "LARGEST_HESSIAN", 0)
    assert_same_model(exact(DPAdmmRidge(alpha=3.0)).fit(X, y), expected, UNITS["raw"])


def example_facts():
    return Facts(
        n_samples=10, n_parameters=3, loss=SquaredLoss(), penalty=NoPenalty(),
        neighboring=Neighboring.REPLACE_ONE, row_norm=1.0, rounding=1.0, max_iter=5,
    )  # fmt: skip


def test_a_finite_budget_is_refused():
    with pytest.raises(
        ValueError, match=r"^Got epsilon=2 for ProximalNewton, expected inf: .* Use"
    ):
        ProximalNewton().plan(example_facts(), Budget(epsilon=2.0, delta=1e-5))


def test_the_plan_says_that_nothing_is_private():
    plan = ProximalNewton().plan(example_facts(), Budget(epsilon=math.inf, delta=1e-5))
    assert math.isinf(plan.guarantee().epsilon(1e-5))
    assert [release.noise_std for release in plan.releases] == [0.0]
    assert "no noise" in repr(plan)


def test_a_short_private_iteration_does_not_shorten_the_exact_one():
    X, y = load_breast_cancer(return_X_y=True)
    X = in_units(X, "standardised")
    short, long = (
        exact(DPAdmmLogisticRegression(C=1.0, max_iter=max_iter)).fit(X, y)
        for max_iter in (1, 1000)
    )
    np.testing.assert_array_equal(short.coef_, long.coef_)
    assert short.n_iter_ < 30


def test_it_can_be_asked_for_by_name_of_its_class_at_infinite_epsilon():
    X, y = overlapping()
    model = exact(DPAdmmRidge(algorithm=ProximalNewton(tolerance=1e-12))).fit(X, y)
    np.testing.assert_allclose(model.coef_, Ridge(solver="cholesky").fit(X, y).coef_, rtol=1e-9)


@pytest.mark.parametrize("estimator", [DPAdmmRidge, DPAdmmLasso])
def test_more_parameters_than_a_hessian_holds_end_near_the_optimum_or_in_a_warning(estimator):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3200)) * rng.uniform(0.1, 10, 3200)
    y = X[:, :5].sum(axis=1) + rng.normal(size=60)
    reference = {DPAdmmRidge: Ridge, DPAdmmLasso: Lasso}[estimator]
    alpha = {DPAdmmRidge: 100.0, DPAdmmLasso: 1.0}[estimator]
    expected = reference(alpha=alpha, tol=1e-12, max_iter=100_000).fit(X, y).predict(X)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        predicted = estimator(alpha=alpha, epsilon=np.inf).fit(X, y).predict(X)
    if not any(issubclass(w.category, ConvergenceWarning) for w in caught):
        np.testing.assert_allclose(predicted, expected, rtol=0, atol=1e-4 * np.abs(y).max())
