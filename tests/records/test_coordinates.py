"""Public coordinates: the declared box, the way back to the user's units, and what is refused."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.preprocessing import StandardScaler

from skdpadmm.records import declared_coordinates, standardising_coordinates


def declared(**changed):
    arguments = {"n_features": 3, "fit_intercept": True, "has_target_scale": True}
    return declared_coordinates(**(arguments | changed))


LOWER, UPPER = np.array([-1.0, 5.0, -300.0]), np.array([1.0, 6.0, 1000.0])


def test_declared_bounds_are_mapped_to_minus_one_and_one():
    c = declared(feature_bounds=(LOWER, UPPER), target_bounds=(10.0, 30.0))
    for side, value in ((LOWER, -1.0), (UPPER, 1.0)):
        np.testing.assert_allclose((side - c.offset) / c.scale, value, rtol=1e-12)
    np.testing.assert_allclose(c.target(np.array([10.0, 20.0, 30.0])), [-1, 0, 1], atol=1e-15)
    np.testing.assert_allclose(c.target(np.array([-1e308, 1e308])), [-1, 1], atol=1e-15)
    assert c.row_norm == pytest.approx(2.0)


def test_without_an_intercept_zero_stays_zero():
    c = declared(feature_bounds=(LOWER, UPPER), target_bounds=(10.0, 30.0), fit_intercept=False)
    assert not c.offset.any()
    assert c.target_offset == 0.0
    np.testing.assert_allclose(c.scale, [1.0, 6.0, 1000.0])
    assert c.target_scale == 30.0
    assert c.n_parameters == 3
    assert c.row_norm == pytest.approx(np.sqrt(3))


def test_undeclared_features_are_left_as_they_are_and_targets_are_clipped_to_three():
    c = declared()
    assert not c.offset.any()
    assert (c.scale == 1).all()
    assert np.isneginf(c.lower).all()
    assert np.isposinf(c.upper).all()
    np.testing.assert_allclose(c.target(np.array([-7.0, 0.0, 1.5, 9.0])), [-1, 0, 0.5, 1])
    assert c.amplification == 1.0


def test_a_class_has_no_target_scale():
    c = declared(has_target_scale=False)
    assert (c.target_offset, c.target_scale) == (0.0, 1.0)
    np.testing.assert_array_equal(c.target(np.array([-1.0, 41.0])), [-1.0, 41.0])


def test_scalars_arrays_lists_and_dicts_declare_the_same():
    names = ["a", "b", "c"]
    forms = [
        (-2.0, 4.0),
        [-2, 4],
        (np.full(3, -2.0), 4),
        ([-2, -2, -2], np.full(3, 4.0)),
        np.array([[-2.0] * 3, [4.0] * 3]),
        dict.fromkeys(names, (-2, 4)),
    ]
    seen = [declared(feature_bounds=form, feature_names=names) for form in forms]
    for c in seen:
        for name in ("lower", "upper", "offset", "scale"):
            np.testing.assert_array_equal(getattr(c, name), getattr(seen[0], name))


def test_columns_that_a_dict_does_not_name_are_undeclared():
    c = declared(feature_bounds={"b": (5.0, 6.0)}, feature_names=["a", "b", "c"])
    np.testing.assert_array_equal(c.offset, [0.0, 5.5, 0.0])
    np.testing.assert_array_equal(c.scale, [1.0, 0.5, 1.0])
    np.testing.assert_array_equal(c.upper, [np.inf, 6.0, np.inf])


def kind(X, fit_intercept):
    """Declared coordinates of a regression that say whether there is an intercept."""
    return declared_coordinates(
        n_features=X.shape[1], fit_intercept=fit_intercept, has_target_scale=True
    )


def test_a_column_declared_constant_is_refused():
    # It carries nothing, and its coefficient would be pure noise on values that are not clipped.
    with pytest.raises(ValueError, match="narrower than 1e-100"):
        declared(feature_bounds=([0, 7, 0], [1, 7, 1]), has_target_scale=False)
    with pytest.raises(ValueError, match="Got target_bounds narrower"):
        declared(target_bounds=(0, 0), has_target_scale=True)


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 10**6), fit_intercept=st.booleans(), exponent=st.integers(-6, 6))
def test_to_user_gives_the_same_predictions_in_the_units_of_the_user(seed, fit_intercept, exponent):
    rng = np.random.default_rng(seed)
    lower = 10.0**exponent * rng.normal(size=3)
    upper = lower + 10.0**exponent * rng.uniform(0.1, 2, size=3)
    c = declared(
        feature_bounds=(lower, upper), target_bounds=(-5.0, 12.0), fit_intercept=fit_intercept
    )
    X = rng.uniform(lower, upper, size=(20, 3))
    parameters = rng.normal(size=(c.n_parameters, 2))
    scaled = (X - c.offset) / c.scale
    scores = scaled @ parameters[:3] + (parameters[3:] if fit_intercept else 0.0)
    coef, intercept = c.to_user(parameters)
    assert coef.shape == (2, 3)
    assert intercept.shape == (2,)
    expected = c.target_offset + c.target_scale * scores
    np.testing.assert_allclose(X @ coef.T + intercept, expected, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(coef, c.coefficient_scale * parameters[:3].T, rtol=1e-14)


def test_coordinates_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        declared().row_norm = 1.0


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        ((2.0, 1.0), "Got feature_bounds with lower above upper, expected .* Swap"),
        (([0, 0, 2], [1, 1, 1]), "Got feature_bounds with lower above upper, expected .* Swap"),
        ((0.0, np.inf), "Got feature_bounds with values that are not finite, expected .* Declare"),
        ((np.nan, 1.0), "Got feature_bounds with values that are not finite, expected .* Declare"),
        (([0, 0], [1, 1]), r"Got feature_bounds with a side of shape \(2,\), expected .* each"),
        (([[0, 0, 0]], 1), r"Got feature_bounds with a side of shape \(1, 3\), expected"),
        (5.0, "Got feature_bounds=5.0, expected a pair .* Pass the range that is public"),
        ((1.0, 2.0, 3.0), r"Got feature_bounds=\(1.0, 2.0, 3.0\), expected a pair .* Pass"),
        (("low", "high"), "Got feature_bounds=.* expected a pair .* Pass"),
        ((-1e200, 1e200), "Got feature_bounds beyond 1e100.*, expected a range"),
        ((0.0, 1e-200), "Got feature_bounds .*narrower than 1e-100, expected a range"),
        ((0.0, 1e-310), "Got feature_bounds .*narrower than 1e-100, expected a range"),
        ({"z": (0, 1)}, r"Got feature_bounds for columns \['z'\], expected names .* Correct"),
        ({"a": (1, 0)}, r"Got feature_bounds\['a'\] with lower above upper, expected .* Swap"),
        ({"a": 3}, r"Got feature_bounds\['a'\]=3, expected a pair .* Pass"),
        ({"a": ([0, 1], 2)}, r"Got feature_bounds\['a'\] with a side of shape \(2,\), expected"),
    ],
)
def test_wrong_feature_bounds_are_refused_with_what_to_do(bounds, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        declared(feature_bounds=bounds, feature_names=["a", "b", "c"])


def test_a_dict_needs_names():
    with pytest.raises(ValueError, match=r"^Got feature_bounds as a dict .* expected .* Pass"):
        declared(feature_bounds={"a": (0, 1)})


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        ((2.0, 1.0), "Got target_bounds with lower above upper, expected .* Swap"),
        ((0.0, np.inf), "Got target_bounds with values that are not finite, expected"),
        (([0.0], [1.0]), r"Got target_bounds with a side of shape \(1,\), expected a number"),
        (1.0, "Got target_bounds=1.0, expected a pair"),
    ],
)
def test_wrong_target_bounds_are_refused_with_what_to_do(bounds, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        declared(target_bounds=bounds)


def test_declared_bounds_are_not_an_alias_of_what_the_user_passed():
    lower, upper = LOWER.copy(), UPPER.copy()
    c = declared(feature_bounds=(lower, upper))
    lower[:], upper[:] = 0.0, 0.0
    np.testing.assert_array_equal(c.lower, LOWER)
    np.testing.assert_array_equal(c.upper, UPPER)


@pytest.mark.parametrize("convert", [np.asarray, np.asfortranarray, sparse.csr_matrix])
def test_standardising_coordinates_are_those_of_a_standard_scaler(convert):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 4)) * [1.0, 1e-3, 1e4, 5.0] + [0.0, 1.0, -2e4, 0.0]
    X[rng.random(X.shape) < 0.3] = 0.0
    y = 3.0 + rng.normal(size=200)
    c = standardising_coordinates(convert(X), y, declared=kind(X, True))
    reference = StandardScaler().fit(X)
    np.testing.assert_allclose(c.offset, reference.mean_, rtol=1e-10)
    np.testing.assert_allclose(c.scale, reference.scale_, rtol=1e-10)
    np.testing.assert_allclose(
        c.target(y), StandardScaler().fit_transform(y[:, None])[:, 0], atol=1e-12
    )
    assert np.isinf(c.row_norm)


def test_standardising_without_an_intercept_keeps_zero_and_unit_second_moment():
    rng = np.random.default_rng(1)
    X = 5.0 + rng.normal(size=(100, 3))
    y = 2.0 + rng.normal(size=100)
    c = standardising_coordinates(X, y, declared=kind(X, False))
    assert not c.offset.any()
    assert c.target_offset == 0.0
    np.testing.assert_allclose(np.square(X / c.scale).mean(axis=0), 1.0, rtol=1e-12)
    np.testing.assert_allclose(np.square(c.target(y)).mean(), 1.0, rtol=1e-12)


@pytest.mark.parametrize("value", [0.0, 1.0, 0.1, -7e5, 1e-30, 1e30])
@pytest.mark.parametrize("convert", [np.asarray, sparse.csr_matrix])
def test_a_constant_column_is_not_divided_by_its_rounding_errors(value, convert):
    rng = np.random.default_rng(2)
    X = np.column_stack([rng.normal(size=97), np.full(97, value)])
    c = standardising_coordinates(convert(X), np.full(97, 4.0), declared=kind(X, True))
    assert c.scale[1] == 1.0
    assert c.target_scale == 1.0
    assert c.scale[0] == pytest.approx(X[:, 0].std())
