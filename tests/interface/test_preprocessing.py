"""A transformer that learns nothing: bounds to the unit box."""

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import sparse
from sklearn.preprocessing import MinMaxScaler

from skdpadmm.preprocessing import BoundedScaler
from tests.interface.registry import assert_alike

FINITE = st.floats(allow_nan=False, allow_infinity=False)
CONTAINERS = [sparse.csr_array, sparse.coo_matrix]
SYMMETRIC = BoundedScaler(lower=[-2, -6], upper=[2, 6])


def test_bounds_map_to_minus_one_and_one_as_a_min_max_scaler_would():
    X = [[0.0, 100.0], [5.0, 150.0], [10.0, 200.0], [-3.0, 1e9]]
    scaled = BoundedScaler(lower=[0, 100], upper=[10, 200]).fit_transform(X)
    np.testing.assert_array_equal(scaled, [[-1, -1], [0, 0], [1, 1], [-1, 1]])
    rng = np.random.default_rng(0)
    lower, upper = np.array([-3.0, 0.0, 10.0]), np.array([1.0, 0.1, 1e4])
    X = rng.uniform(lower - 1, upper + 1, size=(50, 3))
    expected = MinMaxScaler(feature_range=(-1, 1), clip=True).fit([lower, upper]).transform(X)
    scaler = BoundedScaler(lower=lower, upper=upper)
    np.testing.assert_allclose(scaler.fit_transform(X), expected, atol=1e-14)
    back = scaler.inverse_transform(scaler.transform(X))
    np.testing.assert_allclose(back, np.clip(X, lower, upper), rtol=1e-12, atol=1e-11)


@given(X=arrays(np.float64, (3, 2), elements=FINITE), bounds=st.tuples(FINITE, FINITE))
def test_every_finite_entry_ends_in_the_unit_box(X, bounds):
    lower, upper = min(bounds), max(bounds)
    if upper / 2 - lower / 2 > 0:
        scaled = BoundedScaler(lower=lower, upper=upper).fit_transform(X)
        assert np.all(np.abs(scaled) <= 1.0)


def test_nothing_is_learned():
    first = pickle.dumps(SYMMETRIC.fit([[0.1, 0.2]]))
    assert first == pickle.dumps(SYMMETRIC.fit([[-7.0, 1e300], [3.0, 4.0]]))


@pytest.mark.parametrize("container", CONTAINERS)
def test_sparse_equals_dense_stays_sparse_and_adds_repeated_entries_up(container):
    X = np.array([[0.0, 3.0], [-1.0, 0.0], [9.0, -9.0], [0.0, 0.0]])
    S = container(X)
    made = SYMMETRIC.fit_transform(S)
    assert sparse.issparse(made)
    assert made.nnz == 4
    np.testing.assert_allclose(made.toarray(), SYMMETRIC.transform(X), rtol=1e-15)
    np.testing.assert_array_equal(S.toarray(), X)
    back = SYMMETRIC.inverse_transform(made).toarray()
    assert_alike(back, np.clip(X, [-2, -6], [2, 6]))
    twice = sparse.csr_array((np.array([3.0, -2.5]), np.array([0, 0]), [0, 2]), shape=(1, 2))
    expected = SYMMETRIC.transform(np.array([[0.5, 0.0]]))
    assert_alike(SYMMETRIC.transform(twice).toarray(), expected)
    assert twice.nnz == 2


@pytest.mark.parametrize("method", ["fit", "transform", "inverse_transform"])
def test_sparse_with_bounds_that_move_zero_is_refused(method):
    scaler = BoundedScaler(lower=0, upper=2)
    with pytest.raises(ValueError, match=r"Got sparse X with lower=0 .*lower == -upper.*dense"):
        getattr(scaler, method)(sparse.csr_array([[1.0]]))
    repeated = sparse.csr_array((np.full(2, 1.7e308), np.array([0, 0]), [0, 2]), shape=(1, 1))
    with pytest.raises(ValueError, match="infinity"):
        BoundedScaler().transform(repeated)


@pytest.mark.parametrize(
    ("transformer", "message"),
    [
        (BoundedScaler(lower=2, upper=1), r"Got lower=2.0 and upper=1.0 for column 0, .*Swap"),
        (BoundedScaler(lower=[0, 0, 0], upper=1), r"Got lower=.* of shape \(3,\), expected"),
        (BoundedScaler(lower=[0, np.nan], upper=1), r"Got lower=\[0, nan\] .*, expected finite"),
    ],
)
def test_wrong_parameters_are_refused_with_and_without_fit(transformer, message):
    for method in ("fit", "transform"):
        with pytest.raises(ValueError, match=message):
            getattr(transformer, method)([[0.5, 0.5]])
