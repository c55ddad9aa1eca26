"""The rounding factor against exact arithmetic, on data made to hurt a sum."""

from fractions import Fraction
from math import hypot

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from skdpadmm.engine import Engine
from skdpadmm.records import Rows, declared_coordinates, rounding_factor


def coordinates(bounds, p, fit_intercept=True):
    facts = {"n_features": p, "fit_intercept": fit_intercept, "feature_bounds": bounds}
    return declared_coordinates(**facts, has_target_scale=False)


def exact_sum(X, rows, slopes):
    """``sum_i slopes_i r_i ((x_i - offset) / scale, 1)`` in rational arithmetic."""
    c = rows.coordinates
    pairs = zip(slopes.tolist(), rows.weight.tolist(), strict=True)
    weights = [Fraction(slope) * Fraction(weight) for slope, weight in pairs]
    total = []
    for column, offset, scale in zip(
        np.clip(X, c.lower, c.upper).T.tolist(), c.offset.tolist(), c.scale.tolist(), strict=True
    ):
        terms = (w * (Fraction(x) - Fraction(offset)) for w, x in zip(weights, column, strict=True))
        total.append(sum(terms, Fraction(0)) / Fraction(scale))
    return [*total, sum(weights, Fraction(0))] if c.fit_intercept else total


def error_of_largest_sum(X, rows):
    """Of slopes for which every contribution has norm one, and signs cancel."""
    signs = np.random.default_rng(1).choice([-1.0, 1.0], size=rows.n_samples)
    signs[1::2] = -signs[::2][: len(signs[1::2])]
    slopes = signs / np.sqrt(rows.squared_norm)
    raw = Engine().sum(lambda i: rows.adjoint(i, slopes[rows.slices[i]]), rows.n_blocks)
    exact = exact_sum(X, rows, slopes)
    computed = rows.collect(raw).tolist()
    return hypot(*(float(Fraction(a) - b) for a, b in zip(computed, exact, strict=True)))


@settings(max_examples=40)
@given(
    seed=st.integers(0, 10**6),
    centre=st.sampled_from([0.0, 0.3, -1e3, 1e6, -1e10, 1e12]),
    width=st.sampled_from([1e-3, 1.0, 1e5]),
    fit_intercept=st.booleans(),
    as_csr=st.booleans(),
)
def test_the_rounding_factor_bounds_the_error_of_sums_on_both_neighbours(
    seed, centre, width, fit_intercept, as_csr
):
    rng, n, p = np.random.default_rng(seed), 60, 3
    # Sparse input needs a box that includes 0, which is then as wide as it is far.
    lower, upper = np.full(p, min(centre, 0.0) if as_csr else centre), np.full(p, centre + width)
    upper = np.maximum(upper, 0.0) if as_csr else upper
    X = rng.uniform(lower, upper, size=(n, p)) * 10.0 ** rng.integers(-3, 3, size=(n, p))
    c = coordinates((lower, upper), p, fit_intercept)
    error = error_of_largest_sum(X, Rows(sparse.csr_matrix(X) if as_csr else X, c))
    assert 2 * error <= rounding_factor(n_samples=n, coordinates=c) - 1


def test_the_rounding_factor_bounds_the_error_across_many_blocks():
    n, bounds = 20_000, (np.array([1e8]), np.array([1e8 + 1e-3]))
    X, c = np.random.default_rng(1).uniform(*bounds, size=(n, 1)), coordinates(bounds, 1)
    rows = Rows(X, c)
    error = error_of_largest_sum(X, rows)
    assert rows.n_blocks > 1
    assert 1.0 < rounding_factor(n_samples=10**6, coordinates=coordinates(None, 10)) < 1.0 + 1e-4
    # Centring costs digits here: the naive bound n * u would not hold.
    assert error > 2.0**-53 * n
    assert 2 * error <= rounding_factor(n_samples=n, coordinates=c) - 1
