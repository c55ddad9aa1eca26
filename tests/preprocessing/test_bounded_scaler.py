from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import sparse
from sklearn.preprocessing import MinMaxScaler

from skdpadmm.preprocessing import BoundedScaler

FINITE = st.floats(allow_nan=False, allow_infinity=False)
CONTAINERS = [sparse.csr_array, sparse.csr_matrix, sparse.csc_array, sparse.coo_matrix]


def test_bounds_map_to_minus_one_and_one_and_outside_is_clipped():
    X = [[0.0, 100.0], [5.0, 150.0], [10.0, 200.0], [-3.0, 1e9]]
    scaled = BoundedScaler(lower=[0, 100], upper=[10, 200]).fit_transform(X)
    np.testing.assert_array_equal(scaled, [[-1, -1], [0, 0], [1, 1], [-1, 1]])


def test_equals_min_max_scaler_that_was_fitted_on_the_bounds():
    rng = np.random.default_rng(0)
    lower, upper = np.array([-3.0, 0.0, 10.0]), np.array([1.0, 0.1, 1e4])
    X = rng.uniform(lower - 1, upper + 1, size=(50, 3))
    expected = MinMaxScaler(feature_range=(-1, 1), clip=True).fit([lower, upper]).transform(X)
    scaled = BoundedScaler(lower=lower, upper=upper).fit_transform(X)
    np.testing.assert_allclose(scaled, expected, atol=1e-14)


@given(X=arrays(np.float64, (3, 2), elements=FINITE), bounds=st.tuples(FINITE, FINITE))
def test_every_finite_entry_ends_in_the_unit_box(X, bounds):
    lower, upper = min(bounds), max(bounds)
    if not upper / 2 - lower / 2 > 0:
        return
    scaled = BoundedScaler(lower=lower, upper=upper).fit_transform(X)
    assert np.all(np.abs(scaled) <= 1.0)


def test_inverse_transform_returns_what_was_inside_and_the_bound_otherwise():
    rng = np.random.default_rng(0)
    scaler = BoundedScaler(lower=[0, -40], upper=[120, 60])
    X = rng.uniform([-20, -60], [140, 80], size=(30, 2))
    back = scaler.inverse_transform(scaler.fit_transform(X))
    np.testing.assert_allclose(back, np.clip(X, [0, -40], [120, 60]), atol=1e-12)


def test_nothing_is_learned_from_data():
    first = BoundedScaler(lower=0, upper=2).fit([[0.1, 0.2]])
    second = BoundedScaler(lower=0, upper=2).fit([[-7.0, 1e300], [3.0, 4.0]])
    assert pickle.dumps(first) == pickle.dumps(second)
    assert set(vars(first)) == {"lower", "upper", "n_features_in_"}


def test_rows_are_mapped_one_by_one():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(10, 3))
    scaler = BoundedScaler(lower=-0.5, upper=2).fit(X)
    alone = np.vstack([scaler.transform(row[None]) for row in X])
    np.testing.assert_array_equal(alone, scaler.transform(X))


def test_input_is_left_alone():
    X = np.array([[5.0, -5.0]])
    scaler = BoundedScaler().fit(X)
    scaler.inverse_transform(scaler.transform(X))
    np.testing.assert_array_equal(X, [[5.0, -5.0]])
    S = sparse.csr_array(X)
    scaler.inverse_transform(scaler.transform(S))
    np.testing.assert_array_equal(S.toarray(), X)


@pytest.mark.parametrize("container", CONTAINERS)
def test_sparse_equals_dense_and_stays_sparse_with_symmetric_bounds(container):
    X = np.array([[0.0, 3.0], [-1.0, 0.0], [9.0, -9.0], [0.0, 0.0]])
    scaler = BoundedScaler(lower=[-2, -6], upper=[2, 6])
    scaled = scaler.fit_transform(container(X))
    assert sparse.issparse(scaled)
    assert scaled.nnz == 4
    np.testing.assert_array_equal(scaled.toarray(), scaler.transform(X))
    np.testing.assert_array_equal(
        scaler.inverse_transform(scaled).toarray(), np.clip(X, [-2, -6], [2, 6])
    )


def test_repeated_sparse_entries_are_added_up_before_clipping():
    S = sparse.csr_array((np.array([3.0, -2.5]), np.array([0, 0]), np.array([0, 2])), shape=(1, 1))
    scaled = BoundedScaler(lower=-2, upper=2).fit_transform(S)
    np.testing.assert_array_equal(scaled.toarray(), [[0.25]])
    assert S.nnz == 2


@pytest.mark.parametrize("method", ["fit", "transform", "inverse_transform"])
def test_sparse_with_bounds_that_move_zero_is_refused(method):
    scaler = BoundedScaler(lower=0, upper=2)
    with pytest.raises(ValueError, match=r"Got sparse X with lower=0 .*lower == -upper.*dense"):
        getattr(scaler, method)(sparse.csr_array([[1.0]]))


@pytest.mark.parametrize("method", ["fit", "transform"])
@pytest.mark.parametrize(
    ("lower", "upper", "message"),
    [
        (2, 1, r"Got lower=2.0 and upper=1.0 for column 0, expected lower < upper.*Swap"),
        ([0, 3], [1, 3], r"Got lower=3.0 and upper=3.0 for column 1, expected lower < upper"),
        ([0, 0, 0], 1, r"Got lower of shape \(3,\), expected a float or shape \(2,\)\. Pass one"),
        (0, [[1, 1]], r"Got upper of shape \(1, 2\), expected a float or shape \(2,\)"),
        ([0, np.nan], 1, r"Got lower=\[0, nan\], expected finite floats\. Choose a public bound"),
        (0, [1, np.inf], r"Got upper=\[1, inf\], expected finite floats"),
        (-np.inf, 1, r"'lower' parameter of BoundedScaler must be .* Got -inf instead"),
        (None, 1, r"'lower' parameter of BoundedScaler must be .* Got None instead"),
    ],
)
def test_wrong_bounds_say_got_expected_and_what_to_do(method, lower, upper, message):
    scaler = BoundedScaler(lower=lower, upper=upper)
    with pytest.raises(ValueError, match=message):
        getattr(scaler, method)([[0.5, 0.5]])


def test_column_names_and_set_output_work():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"age": [30.0, 60.0], "height": [150.0, 250.0]}, index=["a", "b"])
    scaler = BoundedScaler(lower=[0, 100], upper=[120, 200]).set_output(transform="pandas")
    scaled = scaler.fit_transform(frame)
    assert list(scaled.columns) == ["age", "height"]
    assert list(scaled.index) == ["a", "b"]
    np.testing.assert_array_equal(scaled.to_numpy(), [[-0.5, 0.0], [0.0, 1.0]])
