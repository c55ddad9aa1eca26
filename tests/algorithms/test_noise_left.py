"""What noise leaves in a result: its variance, and which coefficients it alone has moved."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LassoCV

from skdpadmm import DPAdmmLasso
from skdpadmm.algorithms.planning._noise_left import drop_noise, parameter_variance, score_variance
from skdpadmm.records import Basis, Rows, declared_coordinates


def rows_in(basis, n_features=3):
    coordinates = declared_coordinates(
        n_features=n_features, fit_intercept=True, has_target_scale=False
    )
    rows = Rows(np.zeros((4, n_features)), coordinates)
    rows.basis = basis
    return rows


@pytest.mark.parametrize("n_averaged", [1, 10, 20])
@pytest.mark.parametrize("step_size", [0.1, 0.5, 1.9])
def test_the_variance_is_that_of_a_noisy_path_on_a_quadratic(step_size, n_averaged):
    rng = np.random.default_rng(0)
    loading, n_iter, noise_std = np.array([1.0, 0.3, 0.0, 2.0]), 20, 0.7
    basis = Basis(
        vectors=np.eye(4), eigenvalues=np.ones(4), loading=loading, spread=1.0, clip_unit=1.0
    )
    w, tail = np.zeros((20_000, 4)), np.zeros((20_000, 4))
    for k in range(n_iter):
        w = w - step_size * (0.5 * loading * w + noise_std * rng.standard_normal(w.shape))
        if k >= n_iter - n_averaged:
            tail += w / n_averaged
    rows = rows_in(basis)
    variance = parameter_variance(
        rows=rows, smoothness=1.0, step_size=step_size, noise_std=noise_std, n_iter=n_iter,
        n_averaged=n_averaged,
    )  # fmt: skip
    np.testing.assert_allclose(variance, tail.var(axis=0), rtol=0.06)
    assert score_variance(rows, variance) == pytest.approx(2 * loading @ variance)


def correlated_basis(seed=1):
    rng = np.random.default_rng(seed)
    vectors, _ = np.linalg.qr(rng.standard_normal((4, 4)))
    return Basis(
        vectors=vectors, eigenvalues=np.array([0.1, 0.5, 1.0, 2.0]), loading=np.ones(4),
        spread=1.0, clip_unit=2.0,
    )  # fmt: skip


@pytest.mark.parametrize("basis", [None, correlated_basis()], ids=["plain", "conditioned"])
def test_what_stands_out_of_the_noise_stays_and_is_not_shrunk(basis):
    rows = rows_in(basis)
    parameters = np.array([[3.0], [0.0], [-2.0], [0.7]])
    same = drop_noise(parameters, rows, np.full(4, 1e-8))
    np.testing.assert_allclose(same, parameters, atol=1e-6)
    np.testing.assert_array_equal(drop_noise(parameters, rows, np.zeros(4)), parameters)
    gone = drop_noise(parameters, rows, np.full(4, 1e8))
    np.testing.assert_array_equal(gone[:3], 0)
    assert np.isfinite(gone).all()


def test_what_stays_is_best_in_the_metric_of_the_basis():
    basis = correlated_basis()
    rows = rows_in(basis)
    parameters = np.array([[3.0], [1e-3], [-2.0], [0.7]])
    found = drop_noise(parameters, rows, np.full(4, 1e-4))
    assert list(found[:, 0] == 0) == [False, True, False, False]
    pull = basis.metric @ (found - parameters)
    np.testing.assert_allclose(pull[[0, 2, 3]], 0, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("neighboring", ["replace_one", "zero_out"])
def test_a_default_lasso_is_about_as_sparse_and_as_good_as_without_privacy(neighboring):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(20_000, 50))
    w = np.zeros(50)
    w[:5] = [0.9, -0.7, 0.5, 0.4, -0.3]
    y = X @ w + 0.4 * rng.standard_normal(20_000)
    reference = LassoCV(cv=3).fit(X[:16_000], y[:16_000])
    model = DPAdmmLasso(
        alpha=reference.alpha_, feature_bounds=(-1, 1), target_bounds=(-4, 4),
        neighboring=neighboring, random_state=0,
    ).fit(X[:16_000], y[:16_000])  # fmt: skip
    held_out = X[16_000:], y[16_000:]
    assert model.score(*held_out) >= reference.score(*held_out) - 0.03
    assert np.count_nonzero(model.coef_) <= 2 * np.count_nonzero(reference.coef_)
