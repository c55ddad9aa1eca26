from __future__ import annotations

import math
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import sparse

from skdpadmm.preprocessing import RowNormClipper

FINITE = st.floats(allow_nan=False, allow_infinity=False)
CONTAINERS = [sparse.csr_array, sparse.csr_matrix, sparse.csc_array, sparse.coo_matrix]


def test_long_rows_are_scaled_and_short_rows_stay_exactly():
    X = np.array([[3.0, 4.0], [0.1, 0.2], [0.0, 0.0], [0.0, -7.0]])
    clipped = RowNormClipper(norm=2.0).fit_transform(X)
    np.testing.assert_allclose(clipped, [[1.2, 1.6], [0.1, 0.2], [0, 0], [0, -2]], rtol=1e-15)
    np.testing.assert_array_equal(clipped[1:3], X[1:3])


@given(
    X=arrays(np.float64, (4, 3), elements=FINITE),
    norm=st.floats(min_value=1e-150, max_value=1e150),
)
def test_every_finite_row_ends_within_the_norm(X, norm):
    clipped = RowNormClipper(norm=norm).fit_transform(X)
    assert np.all(np.isfinite(clipped))
    assert all(math.hypot(*row) <= norm * (1 + 1e-12) for row in clipped)
    from_sparse = RowNormClipper(norm=norm).fit_transform(sparse.csr_array(X))
    assert all(math.hypot(*row) <= norm * (1 + 1e-12) for row in from_sparse.toarray())


@pytest.mark.parametrize("size", [1e308, 1e-200, 5e-324])
def test_scaled_norms_neither_overflow_nor_underflow(size):
    X = np.full((2, 4), size)
    norm = max(size / 2, 1e-310)
    clipped = RowNormClipper(norm=norm).fit_transform(X)
    assert np.all(np.isfinite(clipped))
    assert math.hypot(*clipped[0]) == pytest.approx(min(norm, 2 * size), rel=1e-12)
    assert np.all(clipped > 0)


def test_long_rows_of_random_width_keep_the_bound():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3, 100_000)) * np.exp(rng.normal(size=(3, 100_000)))
    clipped = RowNormClipper().fit_transform(np.asfortranarray(X))
    assert all(abs(math.hypot(*row) - 1) <= 1e-12 for row in clipped)


@pytest.mark.parametrize("container", CONTAINERS)
def test_sparse_equals_dense_and_stays_sparse(container):
    X = np.array([[0.0, 3.0, 4.0], [0.0, 0.0, 0.0], [0.5, 0.0, 0.0], [0.0, 0.0, 0.0]])
    clipped = RowNormClipper().fit_transform(container(X))
    assert sparse.issparse(clipped)
    assert clipped.nnz == 3
    np.testing.assert_allclose(clipped.toarray(), RowNormClipper().fit_transform(X), rtol=1e-15)


def test_empty_sparse_rows_are_fine():
    clipped = RowNormClipper().fit_transform(sparse.csr_array((3, 2)))
    assert clipped.nnz == 0


def test_repeated_sparse_entries_are_added_up_before_clipping():
    S = sparse.csr_array((np.array([1.0, 1.0]), np.array([0, 0]), np.array([0, 2])), shape=(1, 1))
    assert RowNormClipper(norm=1.5).fit_transform(S).toarray() == [[1.5]]
    assert S.nnz == 2


def test_repeated_sparse_entries_that_overflow_are_refused():
    data, indices, indptr = np.full(2, 1.7e308), np.array([0, 0]), np.array([0, 2])
    S = sparse.csr_array((data, indices, indptr), shape=(1, 1))
    with pytest.raises(ValueError, match="infinity"):
        RowNormClipper().transform(S)


def test_nothing_is_learned_from_data():
    first = RowNormClipper().fit([[0.1, 0.2]])
    second = RowNormClipper().fit([[-7.0, 1e300], [3.0, 4.0]])
    assert pickle.dumps(first) == pickle.dumps(second)
    assert set(vars(first)) == {"norm", "n_features_in_"}


def test_rows_are_mapped_one_by_one():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(10, 300))
    clipper = RowNormClipper(norm=17).fit(X)
    alone = np.vstack([clipper.transform(row[None]) for row in X])
    np.testing.assert_array_equal(alone, clipper.transform(X))


def test_float32_is_returned_as_float64_so_that_the_bound_holds():
    clipped = RowNormClipper().fit_transform(np.full((1, 7), 3.3, dtype=np.float32))
    assert clipped.dtype == np.float64
    assert math.hypot(*clipped[0]) <= 1 + 1e-12


def test_input_is_left_alone():
    X = np.array([[3.0, 4.0]])
    S = sparse.csr_array(X)
    RowNormClipper().fit_transform(X)
    RowNormClipper().fit_transform(S)
    np.testing.assert_array_equal(X, [[3.0, 4.0]])
    np.testing.assert_array_equal(S.toarray(), X)


@pytest.mark.parametrize("method", ["fit", "transform"])
@pytest.mark.parametrize("norm", [0.0, -1.0, np.inf, np.nan, "1"])
def test_wrong_norm_is_refused_with_and_without_fit(method, norm):
    with pytest.raises(ValueError, match=r"'norm' parameter of RowNormClipper must be a float in"):
        getattr(RowNormClipper(norm=norm), method)([[1.0]])


def test_column_names_and_set_output_work():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"a": [3.0], "b": [4.0]}, index=["row"])
    clipped = RowNormClipper().set_output(transform="pandas").fit_transform(frame)
    assert list(clipped.columns) == ["a", "b"]
    assert list(clipped.index) == ["row"]
