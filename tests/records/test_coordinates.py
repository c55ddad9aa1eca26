"""Public coordinates: the declared box, the way back to the user's units, and what is refused."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from sklearn.preprocessing import StandardScaler

from skdpadmm.records import (
    Moments,
    Rows,
    declared_coordinates,
    moments_of,
    standardising_coordinates,
)

LOWER, UPPER = np.array([-1.0, 5.0, -300.0]), np.array([1.0, 6.0, 1000.0])


def declared(n_features=3, **changed):
    arguments = {"n_features": n_features, "fit_intercept": True, "has_target_scale": True}
    return declared_coordinates(**(arguments | changed))


def test_declared_bounds_are_mapped_to_minus_one_and_one():
    c = declared(feature_bounds=(LOWER, UPPER), target_bounds=(10.0, 30.0))
    for side, value in ((LOWER, -1.0), (UPPER, 1.0)):
        np.testing.assert_allclose((side - c.offset) / c.scale, value, rtol=1e-12)
    targets = np.array([-1e308, 10.0, 20.0, 30.0, 1e308])
    np.testing.assert_allclose(c.target(targets), [-1, -1, 0, 1, 1], atol=1e-15)
    assert c.row_norm == pytest.approx(2.0)
    assert c.amplification == pytest.approx(1 + np.hypot(11.0, 35 / 65))
    wide = c.without_bounds()
    np.testing.assert_array_equal((wide.offset, wide.scale), (c.offset, c.scale))
    assert wide.undeclared.all()
    assert wide.row_norm == np.inf


def test_without_an_intercept_zero_stays_zero():
    c = declared(feature_bounds=(LOWER, UPPER), target_bounds=(10.0, 30.0), fit_intercept=False)
    assert not c.offset.any()
    np.testing.assert_allclose(c.scale, [1.0, 6.0, 1000.0])
    assert (c.target_offset, c.target_scale, c.n_parameters) == (0.0, 30.0, 3)
    assert c.row_norm == pytest.approx(np.sqrt(3))


def test_undeclared_features_are_left_as_they_are_and_targets_are_clipped_to_three():
    c = declared()
    np.testing.assert_array_equal((c.offset, c.scale, c.undeclared), ([0] * 3, [1] * 3, [True] * 3))
    np.testing.assert_allclose(c.target(np.array([-7.0, 0.0, 1.5, 9.0])), [-1, 0, 0.5, 1])
    classes = declared(has_target_scale=False)
    np.testing.assert_array_equal(classes.target(np.array([-1.0, 41.0])), [-1.0, 41.0])


def test_scalars_arrays_lists_and_dicts_declare_the_same():
    names, pairs = ["a", "b", "c"], {name: (-2, 4) for name in "abc"}
    forms = [(-2.0, 4.0), [-2, 4], (np.full(3, -2.0), 4), np.array([[-2.0] * 3, [4.0] * 3]), pairs]
    seen = [declared(feature_bounds=form, feature_names=names) for form in forms]
    assert len({c.fingerprint for c in seen}) == 1
    for c in seen:
        np.testing.assert_array_equal((c.lower, c.upper), ([-2.0] * 3, [4.0] * 3))
        assert c.has_box_of(seen[0])
    assert not seen[0].has_box_of(declared(feature_bounds=(-2, 5)))


def test_columns_that_a_dict_does_not_name_are_undeclared_and_can_be_rescaled():
    c = declared(feature_bounds={"b": (5.0, 6.0)}, feature_names=["a", "b", "c"])
    np.testing.assert_array_equal(c.offset, [0.0, 5.5, 0.0])
    np.testing.assert_array_equal(c.scale, [1.0, 0.5, 1.0])
    np.testing.assert_array_equal(c.upper, [np.inf, 6.0, np.inf])
    np.testing.assert_array_equal(c.rescaled(4.0).scale, [0.25, 0.5, 0.25])


@pytest.mark.parametrize("convert", [np.asarray, sparse.csr_matrix])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_longer_rows_are_scaled_down_to_the_declared_norm(fit_intercept, convert):
    plain = declared(fit_intercept=fit_intercept)
    c, other = (declared(fit_intercept=fit_intercept, row_norm=norm) for norm in (10.0, 11.0))
    X = np.array([[6.0, 0.0, 8.0], [0.0, 1.0, 0.0], [-3e300, 0.0, 4e300], [12.0, 0.0, 0.0]])
    rows = Rows(convert(X), c)
    seen = rows.augmented(0)
    np.testing.assert_allclose(rows.weight[:2], 1.0, rtol=1e-15)
    np.testing.assert_allclose(np.linalg.norm(seen, axis=1)[[0, 2, 3]], c.row_norm, rtol=1e-12)
    # A row of that norm is one whose features fill their bounds, with its intercept.
    assert np.linalg.norm(seen[0, :3]) == pytest.approx(0.6 * np.sqrt(c.n_parameters), rel=1e-12)
    assert c.row_norm < plain.row_norm
    assert not c.undeclared.any()
    assert len({c.fingerprint, other.fingerprint, plain.fingerprint}) == 3
    assert not c.has_box_of(other)
    with pytest.raises(ValueError, match=r"^Got row_norm=1 with feature_bounds, expected one"):
        declared(row_norm=1, feature_bounds=(-1, 1))


@given(seed=st.integers(0, 10**6), fit_intercept=st.booleans(), exponent=st.integers(-6, 6))
def test_to_user_gives_the_same_predictions_in_the_units_of_the_user(seed, fit_intercept, exponent):
    rng = np.random.default_rng(seed)
    lower = 10.0**exponent * rng.normal(size=3)
    upper = lower + 10.0**exponent * rng.uniform(0.1, 2, size=3)
    bounds = {"feature_bounds": (lower, upper), "target_bounds": (-5.0, 12.0)}
    c = declared(**bounds, fit_intercept=fit_intercept)
    X, parameters = rng.uniform(lower, upper, size=(20, 3)), rng.normal(size=(c.n_parameters, 2))
    scores = (X - c.offset) / c.scale @ parameters[:3] + parameters[3:].sum(axis=0)
    coef, intercept = c.to_user(parameters)
    assert (coef.shape, intercept.shape) == ((2, 3), (2,))
    expected = c.target_offset + c.target_scale * scores
    np.testing.assert_allclose(X @ coef.T + intercept, expected, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(coef, c.coefficient_scale * parameters[:3].T, rtol=1e-14)


def test_pairs_for_columns_are_read_as_everywhere_else_and_refused_where_they_are_ambiguous():
    pairs = [(18, 100), (60, 250), (0, 1)]
    by_column, by_side = (
        declared(n_features=3, feature_bounds=pairs),
        declared(n_features=3, feature_bounds=np.transpose(pairs)),
    )
    np.testing.assert_array_equal(by_column.lower, by_side.lower)
    np.testing.assert_array_equal(by_column.upper, by_side.upper)
    # One reading has a lower bound that is not below the upper one.
    assert declared(n_features=2, feature_bounds=pairs[1::-1]).upper.tolist() == [250, 100]
    assert declared(n_features=2, feature_bounds=([0, 0], [250, 10])).upper.tolist() == [250, 10]
    for two in (pairs[:2], tuple(pairs[:2]), ([18, 60], [100, 250])):
        with pytest.raises(ValueError, match=r"\(lower, upper\) or a pair for each column"):
            declared(n_features=2, feature_bounds=two)
    assert declared(
        n_features=2, feature_bounds=np.array([[18, 60], [100, 250]])
    ).upper.tolist() == [100, 250]
    assert declared(n_features=1, feature_bounds=[(18, 100)]).lower.tolist() == [18]


NOT_FINITE = r"Got feature_bounds that are not numbers in \[-1e100, 1e100\], expected a range"


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        ((2.0, 1.0), "Got feature_bounds with lower above upper, expected .* Swap"),
        ([(3, 9), (2, 9)], "Got .*, expected a pair .* by pairs for columns in a dict"),
        (([0, 2, 0], [1, 1, 1]), "Got feature_bounds with lower above .* of all lower bounds"),
        (([0, 0], [1, 1]), r"Got feature_bounds=\(\[0, 0\], .*, expected a pair .* each"),
        (5.0, "Got feature_bounds=5.0, expected a pair .* Pass the range that is public"),
        (
            (-1e200, 1e200),
            NOT_FINITE,
        ),
        (
            (-np.inf, 1.0),
            NOT_FINITE,
        ),
        (
            (0.0, [1.0, np.nan, 1.0]),
            NOT_FINITE,
        ),
        # A constant carries nothing, and its coefficient would be pure noise.
        (([0, 7, 0], [1, 7, 1]), r".* lower equal to upper for columns \[1\], .* Widen .* or drop"),
        ({"a": (0, 0)}, r"Got feature_bounds\['a'\] with lower equal to upper, .* or drop col"),
        (
            dict.fromkeys("abcz", (0, 1)),
            r"Got feature_bounds for columns \['z'\], expected names .* Correct",
        ),
    ],
)
def test_wrong_feature_bounds_are_refused_with_what_to_do(bounds, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        declared(feature_bounds=bounds, feature_names=["a", "b", "c"])
    with pytest.raises(ValueError, match=r"Got .* 150 orders of magn"):
        declared(target_bounds=(0, 1e80), feature_bounds=(0, 1e-80))
    with pytest.raises(ValueError, match=r"Got feature_bounds as a dict .* expected .* Pass"):
        declared(feature_bounds={"a": (0, 1)})


def standardised(X, y, *, declared):
    """From all rows at once, which is what comes of the moments of parts of them."""
    c = standardising_coordinates(moments_of(X, y, declared), declared=declared)
    parts = [moments_of(X[own], y[own], declared) for own in (slice(0, 60), slice(60, None))]
    of_parts = standardising_coordinates(Moments.joined(*parts), declared=declared)
    for name in ("offset", "scale", "target_offset", "target_scale"):
        np.testing.assert_allclose(getattr(of_parts, name), getattr(c, name), rtol=1e-9)
    return c


@pytest.mark.parametrize("convert", [np.asarray, np.asfortranarray, sparse.csr_matrix])
def test_standardising_coordinates_are_those_of_a_standard_scaler(convert):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 4)) * [1.0, 1e-3, 1e4, 5.0] + [0.0, 1.0, -2e4, 0.0]
    X[rng.random(X.shape) < 0.3] = 0.0
    y = 3.0 + rng.normal(size=200)
    c = standardised(convert(X), y, declared=declared(4))
    reference = StandardScaler().fit(X)
    np.testing.assert_allclose(c.offset, reference.mean_, rtol=1e-10)
    np.testing.assert_allclose(c.scale, reference.scale_, rtol=1e-10)
    np.testing.assert_allclose(c.target(y), (y - y.mean()) / y.std(), atol=1e-12)
    # Without an intercept zero stays zero, and the second moment is one.
    c = standardised(convert(X), y, declared=declared(4, fit_intercept=False))
    assert not c.offset.any()
    np.testing.assert_allclose(np.square(X / c.scale).mean(axis=0), 1.0, rtol=1e-12)
    np.testing.assert_allclose(np.square(c.target(y)).mean(), 1.0, rtol=1e-12)


@pytest.mark.parametrize("value", [0.0, 0.1, -7e5, 1e-30, 1e30])
@pytest.mark.parametrize("convert", [np.asarray, sparse.csr_matrix])
def test_a_constant_column_is_not_divided_by_its_rounding_errors(value, convert):
    X = np.column_stack([np.random.default_rng(2).normal(size=97), np.full(97, value)])
    c = standardised(convert(X), np.full(97, 4.0), declared=declared(2))
    assert (c.scale[1], c.offset[1], c.target_scale) == (1.0, value, 1.0)
    assert c.scale[0] == pytest.approx(X[:, 0].std())
