"""The rounding factor against exact arithmetic, on data made to hurt a sum."""

from __future__ import annotations

from fractions import Fraction
from math import fsum, hypot

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from skdpadmm.engine import Engine
from skdpadmm.records import Rows, declared_coordinates, rounding_factor


def exact_sum(X, rows, slopes):
    """``sum_i slopes_i r_i ((x_i - offset) / scale, 1)`` in rational arithmetic."""
    c = rows.coordinates
    dense = np.clip(X, c.lower, c.upper)
    weights = [
        Fraction(float(s)) * Fraction(float(r)) for s, r in zip(slopes, rows.weight, strict=True)
    ]
    total = []
    for j in range(c.n_features):
        offset, scale = Fraction(float(c.offset[j])), Fraction(float(c.scale[j]))
        column = [Fraction(float(x)) for x in dense[:, j]]
        terms = (w * (x - offset) for w, x in zip(weights, column, strict=True))
        total.append(sum(terms, Fraction(0)) / scale)
    return [*total, sum(weights, Fraction(0))] if c.fit_intercept else total


def error_in_norm(X, rows, slopes):
    raw = Engine().sum(lambda i: rows.adjoint(i, slopes[rows.slices[i]]), rows.n_blocks)
    computed = rows.collect(raw)
    exact = exact_sum(X, rows, slopes)
    return hypot(*(float(Fraction(float(a)) - b) for a, b in zip(computed, exact, strict=True)))


def clipped_slopes(rows, rng, bound):
    """Slopes at their largest: every contribution has norm `bound`, signs cancel."""
    signs = rng.choice([-1.0, 1.0], size=rows.n_samples)
    signs[1::2] = -signs[::2][: len(signs[1::2])]
    return signs * bound / np.sqrt(rows.squared_norm)


@pytest.mark.parametrize("as_csr", [False, True])
@pytest.mark.parametrize("offset", [0.0, 1.0, 1e4, 1e9, 1e12])
def test_the_rounding_factor_bounds_the_error_of_a_sum_beside_any_offset(offset, as_csr):
    rng = np.random.default_rng(0)
    n, p, bound = 600, 3, 0.7
    # Sparse input needs a box that includes 0, which is then as wide as it is far.
    lower = np.array([0.0 if as_csr else offset, offset, -1.0])
    upper = np.array([2 * offset + 1.0, offset + 1.0, 1.0])
    if as_csr:
        lower[1] = 0.0
    X = rng.uniform(lower, upper, size=(n, p))
    c = declared_coordinates(
        n_features=p, fit_intercept=True, feature_bounds=(lower, upper), has_target_scale=False
    )
    rows = Rows(sparse.csr_matrix(X) if as_csr else X, c)
    slopes = clipped_slopes(rows, rng, bound)
    error = error_in_norm(X, rows, slopes)
    # Errors of two neighbouring data sets have to fit beside a clip of at least `bound`.
    assert 2 * error <= (rounding_factor(n_samples=n, coordinates=c) - 1) * bound


def test_the_rounding_factor_bounds_the_error_across_many_blocks():
    rng = np.random.default_rng(1)
    n, p = 20_000, 1
    lower, upper = np.array([1e8]), np.array([1e8 + 1e-3])
    X = rng.uniform(lower, upper, size=(n, p))
    c = declared_coordinates(
        n_features=p, fit_intercept=True, feature_bounds=(lower, upper), has_target_scale=False
    )
    rows = Rows(X, c)
    slopes = clipped_slopes(rows, rng, 1.0)
    assert rows.n_blocks > 1
    error = error_in_norm(X, rows, slopes)
    # Centring costs digits here: the naive bound n * u would not hold.
    assert error > 2.0**-53 * n
    assert 2 * error <= rounding_factor(n_samples=n, coordinates=c) - 1


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    centre=st.sampled_from([0.0, 0.3, -1e3, 1e6, -1e10]),
    width=st.sampled_from([1e-3, 1.0, 1e5]),
    fit_intercept=st.booleans(),
)
def test_the_rounding_factor_bounds_the_error_of_random_sums(seed, centre, width, fit_intercept):
    rng = np.random.default_rng(seed)
    n, p = 60, 4
    lower, upper = np.full(p, centre), np.full(p, centre + width)
    X = rng.uniform(lower, upper, size=(n, p)) * 10.0 ** rng.integers(-3, 3, size=(n, p))
    c = declared_coordinates(
        n_features=p,
        fit_intercept=fit_intercept,
        feature_bounds=(lower, upper),
        has_target_scale=False,
    )
    rows = Rows(X, c)
    slopes = clipped_slopes(rows, rng, 1.0)
    error = error_in_norm(X, rows, slopes)
    assert 2 * error <= rounding_factor(n_samples=n, coordinates=c) - 1


def test_the_reference_of_these_tests_agrees_with_a_correctly_rounded_sum():
    rng = np.random.default_rng(2)
    X = rng.uniform(-1, 1, size=(50, 1))
    c = declared_coordinates(n_features=1, fit_intercept=False, has_target_scale=False)
    rows = Rows(X, c)
    slopes = rng.normal(size=50)
    exact = exact_sum(X, rows, slopes)[0]
    products = [
        Fraction(float(s)) * Fraction(float(x)) for s, x in zip(slopes, X[:, 0], strict=True)
    ]
    assert float(exact) == pytest.approx(fsum(float(t) for t in products), rel=1e-14)


def test_the_rounding_factor_is_next_to_one_on_ordinary_problems_and_grows_with_the_offset():
    def factor(n, bounds):
        c = declared_coordinates(
            n_features=10, fit_intercept=True, feature_bounds=bounds, has_target_scale=False
        )
        return rounding_factor(n_samples=n, coordinates=c)

    assert 1.0 < factor(10**6, None) < 1.0 + 1e-4
    assert factor(1000, None) < factor(10_000, None)
    assert factor(1000, (-1, 1)) < factor(1000, (1e6, 1e6 + 1)) < factor(1000, (1e9, 1e9 + 1))
