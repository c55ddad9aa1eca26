"""Units that nobody declared: the histogram of row norms and what follows from it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from skdpadmm import DPAdmmLogisticRegression, DPAdmmRidge
from skdpadmm.algorithms.preparations._scaling import EXPONENTS, ROW_NORMS, median_norm
from skdpadmm.records import declared_coordinates, feature_norms


@pytest.mark.parametrize(("relation", "factor"), [("zero_out", 1.0), ("replace_one", math.sqrt(2))])
def test_counts_of_a_histogram_move_by_one_bin_out_and_one_in(relation, factor):
    plan = DPAdmmRidge(scale="private", neighboring=relation).plan(1000, 4)
    release = plan.releases[0]
    assert release.name == ROW_NORMS
    assert release.sensitivities == (factor,)
    assert release.shape == (len(EXPONENTS) + 1,)
    # 3 % of the squared budget.
    total = plan.guarantee().mu
    assert (factor / release.noise_std / total) ** 2 == pytest.approx(0.03, rel=1e-6)


@pytest.mark.parametrize("unit", [1e-4, 1e-2, 1.0, 100.0, 1e5])
def test_features_in_any_units_give_about_the_same_model(unit):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (5000, 5))
    y = X @ [1.0, -1.0, 0.5, 0.0, 0.0]
    model = DPAdmmRidge(scale="private", alpha=1e-9, random_state=0).fit(unit * X, y)
    np.testing.assert_allclose(model.coef_ * unit, [1.0, -1.0, 0.5, 0.0, 0.0], atol=0.15)


@settings(max_examples=100, deadline=None)
@given(st.floats(-17, 17), st.integers(100, 10**6), st.integers(0, 2**32 - 1))
def test_the_median_is_found_within_a_factor_of_two(log2, n, seed):
    rng = np.random.default_rng(seed)
    norms = 2.0 ** (log2 + 0.3 * rng.standard_normal(min(n, 2000)))
    counts = np.bincount(np.searchsorted(2.0**EXPONENTS, norms), minlength=42).astype(float)
    found = median_norm(counts, 0.01 * len(norms), default=math.nan)
    assert 0.5 <= found / np.median(norms) <= 2


def test_counts_that_are_all_noise_leave_the_units_alone():
    noise = np.random.default_rng(0).standard_normal(42)
    assert median_norm(noise, 1.0, default=0.7) == 0.7
    assert median_norm(np.full(42, -5.0), 1.0, default=0.7) == 0.7


def test_rows_without_features_say_nothing_of_units():
    counts = np.zeros(42)
    counts[0], counts[25] = 900.0, 100.0
    exponent = EXPONENTS[25]
    assert 2.0 ** (exponent - 1) <= median_norm(counts, 1.0, default=0.0) <= 2.0**exponent


def test_declared_columns_keep_their_scale():
    coordinates = declared_coordinates(
        n_features=3, fit_intercept=True, feature_bounds={"a": (0, 10)},
        feature_names=["a", "b", "c"], has_target_scale=False,
    )  # fmt: skip
    np.testing.assert_array_equal(coordinates.undeclared, [False, True, True])
    np.testing.assert_array_equal(coordinates.rescaled(4.0).scale, [5.0, 0.25, 0.25])


def test_units_of_declared_columns_need_no_search():
    with pytest.raises(ValueError, match=r"^Got scale='private' with feature_bounds for every"):
        DPAdmmRidge(scale="private", feature_bounds=(0, 1)).plan(100, 3)
    with pytest.raises(ValueError, match="scale"):
        DPAdmmRidge(scale="auto").plan(100, 3)


@pytest.mark.parametrize("container", [np.asarray, sparse.csr_matrix])
def test_norms_of_rows_bear_entries_of_any_size(container):
    X = np.array([[3.0, 4.0, 9.0], [0.0, 0.0, 1.0], [3e300, 4e300, 0.0], [3e-300, 4e-300, 1.0]])
    columns = np.array([True, True, False])
    expected = [5.0, 0.0, 5e300, 5e-300]
    np.testing.assert_allclose(feature_norms(container(X), columns), expected, rtol=1e-12)
    np.testing.assert_allclose(feature_norms(container(X), columns, n_rows=2), expected, rtol=1e-12)


def test_a_fit_with_scaling_and_conditioning_spends_its_budget_once():
    plan = DPAdmmLogisticRegression(scale="private", epsilon=2.0, delta=1e-6).plan(10**5, 6, 3)
    assert plan.releases[0].name == ROW_NORMS
    assert len(plan.releases) == 3
    assert 0.999e-6 < plan.guarantee().delta(2.0) <= 1e-6 * (1 + 1e-9)
