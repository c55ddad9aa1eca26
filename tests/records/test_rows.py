"""Rows against a naive dense reference, on ordinary and on extreme records."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import sparse

from skdpadmm.records import Basis, Rows, block_size, declared_coordinates

N, P = 300, 7
LOWER = np.array([-1.0, -2.0, 0.0, -5.0, -1.0, -1.0, -1e3])
UPPER = np.array([1.0, 3.0, 4.0, 0.0, 1.0, 2.0, 1e3])
BOUNDS = {"undeclared": None, "declared": (LOWER, UPPER)}


def coordinates(*, bounds=None, fit_intercept=True, n_features=P):
    return declared_coordinates(
        n_features=n_features,
        fit_intercept=fit_intercept,
        feature_bounds=bounds,
        has_target_scale=False,
    )


def data(rng, n=N, scale=2.0):
    """Features of which some lie outside the box and some rows beyond the norm bound."""
    X = scale * rng.normal(size=(n, P))
    X[rng.random(X.shape) < 0.3] = 0.0
    return X


def augmented_reference(X, c):
    """Clip, centre, scale, append a one, bound the norm: each step as it is told."""
    A = (np.clip(np.asarray(X, dtype=float), c.lower, c.upper) - c.offset) / c.scale
    if c.fit_intercept:
        A = np.column_stack([A, np.ones(len(A))])
    norm = np.linalg.norm(A, axis=1)
    weight = np.minimum(1.0, c.row_norm / np.where(norm > 0, norm, 1.0))
    return A * weight[:, None], weight


def all_scores(rows, parameters):
    prepared = rows.prepare(parameters)
    return np.concatenate([rows.scores(i, prepared) for i in range(rows.n_blocks)])


def all_sums(rows, slopes):
    return rows.collect(sum(rows.adjoint(i, slopes[s]) for i, s in enumerate(rows.slices)))


def all_augmented(rows):
    return np.concatenate([rows.augmented(i) for i in range(rows.n_blocks)])


def memmap(X, folder):
    path = folder / "X.dat"
    X.tofile(path)
    return np.memmap(path, dtype=X.dtype, mode="r", shape=X.shape)


CONTAINERS = {
    "C": np.ascontiguousarray,
    "F": np.asfortranarray,
    "float32": lambda X: X.astype(np.float32),
    "float32 F": lambda X: np.asfortranarray(X.astype(np.float32)),
    "strided": lambda X: np.repeat(X, 2, axis=0)[::2],
    "CSR": sparse.csr_matrix,
    "CSR array": sparse.csr_array,
    "CSR float32": lambda X: sparse.csr_matrix(X.astype(np.float32)),
}


def dense(X):
    return X.toarray() if sparse.issparse(X) else np.asarray(X)


@pytest.mark.parametrize("n_outputs", [None, 3])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("bounds", BOUNDS.values(), ids=BOUNDS)
@pytest.mark.parametrize("convert", CONTAINERS.values(), ids=CONTAINERS)
def test_rows_agree_with_augmented_rows_built_naively(convert, bounds, fit_intercept, n_outputs):
    rng = np.random.default_rng(0)
    X = convert(data(rng))
    c = coordinates(bounds=bounds, fit_intercept=fit_intercept)
    rows = Rows(X, c)
    A, weight = augmented_reference(dense(X), c)
    tail = () if n_outputs is None else (n_outputs,)
    parameters, slopes = rng.normal(size=(c.n_parameters, *tail)), rng.normal(size=(N, *tail))
    np.testing.assert_allclose(all_scores(rows, parameters), A @ parameters, rtol=0, atol=1e-12)
    np.testing.assert_allclose(all_sums(rows, slopes), A.T @ slopes, rtol=0, atol=1e-11)
    np.testing.assert_allclose(all_augmented(rows), A, rtol=0, atol=1e-14)
    np.testing.assert_allclose(rows.weight, weight, rtol=1e-11)
    np.testing.assert_allclose(rows.squared_norm, np.square(A).sum(axis=1), rtol=1e-10)
    assert rows.n_samples == N
    # Both bounds are met by some of the rows, or the comparison would show little.
    assert (weight < 1).any() or bounds is not None
    assert c.n_parameters == P + fit_intercept


def test_scores_and_adjoint_are_adjoint_of_each_other():
    rng = np.random.default_rng(1)
    c = coordinates(bounds=(LOWER, UPPER))
    rows = Rows(data(rng), c)
    parameters, slopes = rng.normal(size=c.n_parameters), rng.normal(size=N)
    left, right = all_scores(rows, parameters) @ slopes, all_sums(rows, slopes) @ parameters
    assert left == pytest.approx(right, rel=1e-12)


def test_a_memmap_is_read_in_place_and_gives_the_bits_of_the_array(tmp_path):
    rng = np.random.default_rng(2)
    X = data(rng)
    mapped = memmap(X, tmp_path)
    c = coordinates()
    parameters = rng.normal(size=c.n_parameters)
    in_memory, on_disk = Rows(X, c), Rows(mapped, c)
    np.testing.assert_array_equal(
        all_scores(on_disk, parameters), all_scores(in_memory, parameters)
    )
    assert all(np.shares_memory(block, mapped) for block in on_disk._blocks)


@pytest.mark.parametrize("bounds", BOUNDS.values(), ids=BOUNDS)
@pytest.mark.parametrize("convert", CONTAINERS.values(), ids=CONTAINERS)
def test_features_are_neither_copied_nor_changed(convert, bounds):
    rng = np.random.default_rng(3)
    raw = data(rng, n=9000)
    raw[5, 0] = 1e30
    X = convert(raw)
    before = X.copy()
    c = coordinates(bounds=bounds)
    rows = Rows(X, c)
    all_scores(rows, rng.normal(size=c.n_parameters))
    all_sums(rows, rng.normal(size=9000))
    assert rows.n_blocks > 1
    np.testing.assert_array_equal(dense(X), dense(before))
    values = X.data if sparse.issparse(X) else X
    for block in rows._blocks:
        assert np.shares_memory(block.data if sparse.issparse(block) else block, values)


def test_an_ordinary_float64_block_is_used_without_a_copy():
    X = np.random.default_rng(4).uniform(-1, 1, size=(50, P))
    for c in (coordinates(), coordinates(bounds=(-1.0, 1.0))):
        assert np.shares_memory(Rows(X, c)._block(0), X)


EXTREME_ROWS = {
    "mixed signs of 1e300": 1e300 * np.array([1.0, -1, 1, -1, 1, -1, 1]),
    "the largest floats": np.full(P, 1.7e308),
    "one large entry": np.array([0, 0, -1.7e308, 0, 0, 0, 0.0]),
    "just huge": np.full(P, 1e101),
    "1e150": np.full(P, -1e150),
    "tiny": np.full(P, 1e-200),
    "subnormal": np.full(P, 5e-324),
    "large beside tiny": np.array([1e300, 1e-300, 0, 1, -1, 1e-200, 1e200]),
    "all zero": np.zeros(P),
}
EXACT_CONTAINERS = {k: v for k, v in CONTAINERS.items() if "float32" not in k}


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("bounds", BOUNDS.values(), ids=BOUNDS)
@pytest.mark.parametrize("convert", EXACT_CONTAINERS.values(), ids=EXACT_CONTAINERS)
@pytest.mark.parametrize("extreme", EXTREME_ROWS.values(), ids=EXTREME_ROWS)
def test_an_extreme_row_stays_finite_and_below_the_norm_bound(
    extreme, convert, bounds, fit_intercept
):
    rng = np.random.default_rng(5)
    X = data(rng, n=40)
    X[[3, 17]] = extreme, -extreme
    c = coordinates(bounds=bounds, fit_intercept=fit_intercept)
    rows = Rows(convert(X), c)
    A = all_augmented(rows)
    limit = c.row_norm * (1 + 1e-12)
    assert np.isfinite(A).all()
    assert np.linalg.norm(A, axis=1).max() <= limit
    assert np.sqrt(rows.squared_norm).max() <= limit
    assert np.all((rows.weight > 0) & (rows.weight <= 1))
    # What clipping divides by is not smaller than the norm itself (squares below 1e-308 aside).
    assert np.all(np.linalg.norm(A, axis=1) <= np.sqrt(rows.squared_norm) * (1 + 1e-12) + 1e-150)
    assert np.isfinite(all_scores(rows, rng.normal(size=c.n_parameters))).all()
    assert np.isfinite(all_sums(rows, np.eye(40)[3])).all()
    contribution = np.linalg.norm(all_sums(rows, np.eye(40)[3]))
    assert contribution <= limit * (1 + 1e-9)


@pytest.mark.parametrize("n_outputs", [None, 3])
@pytest.mark.parametrize("bounds", BOUNDS.values(), ids=BOUNDS)
@pytest.mark.parametrize("convert", EXACT_CONTAINERS.values(), ids=EXACT_CONTAINERS)
@pytest.mark.parametrize("extreme", EXTREME_ROWS.values(), ids=EXTREME_ROWS)
def test_other_rows_keep_their_bits_beside_an_extreme_row(extreme, convert, bounds, n_outputs):
    rng = np.random.default_rng(6)
    X = rng.uniform(-1, 1, size=(500, P))
    X[:, 2] = np.abs(X[:, 2])
    X[:, 3] = -np.abs(X[:, 3])
    Y = X.copy()
    Y[42] = extreme
    c = coordinates(bounds=bounds)
    tail = () if n_outputs is None else (n_outputs,)
    parameters = rng.normal(size=(c.n_parameters, *tail))
    ordinary, beside = Rows(convert(X), c), Rows(convert(Y), c)
    others = np.arange(500) != 42
    np.testing.assert_array_equal(
        all_scores(beside, parameters)[others], all_scores(ordinary, parameters)[others]
    )
    np.testing.assert_array_equal(beside.weight[others], ordinary.weight[others])
    np.testing.assert_array_equal(beside.squared_norm[others], ordinary.squared_norm[others])


finite = st.floats(allow_nan=False, allow_infinity=False, width=64)


@settings(max_examples=150, deadline=None)
@given(
    X=arrays(np.float64, (4, 3), elements=finite),
    fit_intercept=st.booleans(),
    as_csr=st.booleans(),
    declared=st.booleans(),
)
def test_every_finite_input_gives_finite_rows_below_the_norm_bound(
    X, fit_intercept, as_csr, declared
):
    bounds = ([-1.0, -10.0, 0.0], [2.0, 1e6, 0.5]) if declared else None
    c = coordinates(bounds=bounds, fit_intercept=fit_intercept, n_features=3)
    rows = Rows(sparse.csr_matrix(X) if as_csr else X, c)
    A = all_augmented(rows)
    assert np.isfinite(A).all()
    assert np.linalg.norm(A, axis=1).max() <= c.row_norm * (1 + 1e-12)
    assert np.isfinite(all_scores(rows, np.ones(c.n_parameters))).all()


def test_values_outside_the_box_are_clipped_entry_by_entry():
    c = coordinates(bounds=(LOWER, UPPER))
    outside = np.array([[9.0, 0.5, -3.0, -1.0, 0.0, 1e300, 2e3]])
    inside = np.array([[1.0, 0.5, 0.0, -1.0, 0.0, 2.0, 1e3]])
    for convert in (np.asarray, sparse.csr_matrix):
        np.testing.assert_allclose(
            Rows(convert(outside), c).augmented(0), Rows(inside, c).augmented(0), atol=1e-14
        )


def test_rows_in_a_declared_box_are_never_scaled_down():
    rng = np.random.default_rng(7)
    c = coordinates(bounds=(LOWER, UPPER))
    corners = np.where(rng.random((64, P)) < 0.5, LOWER, UPPER)
    np.testing.assert_allclose(Rows(corners, c).weight, 1.0, rtol=1e-10)
    np.testing.assert_allclose(np.abs(Rows(corners, c).augmented(0)), 1.0, rtol=1e-10)


def test_a_sparse_matrix_is_centred_without_being_made_dense(monkeypatch):
    rng = np.random.default_rng(8)
    X = sparse.random(2000, 400, density=0.01, format="csr", random_state=0)
    c = coordinates(bounds=(-1.0, 3.0), n_features=400)
    assert c.offset.any()
    parameters, slopes = rng.normal(size=c.n_parameters), rng.normal(size=2000)
    A, _ = augmented_reference(X.toarray(), c)

    def refuse(*args, **kwargs):
        raise AssertionError("made dense")

    for kind in (sparse.csr_matrix, sparse.csc_matrix):
        monkeypatch.setattr(kind, "toarray", refuse)
    rows = Rows(X, c)
    np.testing.assert_allclose(all_scores(rows, parameters), A @ parameters, atol=1e-11)
    np.testing.assert_allclose(all_sums(rows, slopes), A.T @ slopes, atol=1e-10)
    np.testing.assert_allclose(rows.squared_norm, np.square(A).sum(axis=1), rtol=1e-9)


def test_sparse_features_with_a_box_that_excludes_zero_are_refused():
    X = sparse.csr_matrix(np.ones((3, 2)))
    for bounds in [(1.0, 2.0), (-2.0, -1.0)]:
        with pytest.raises(ValueError, match=r"^Got .* exclude 0 .* expected .* Widen the bounds"):
            Rows(X, coordinates(bounds=bounds, n_features=2))
        Rows(X.toarray(), coordinates(bounds=bounds, n_features=2))


def repeated_entries(values, n_features=P):
    """One row whose entries all lie in column 0: CSR adds them up."""
    n = len(values)
    return sparse.csr_matrix(
        (np.asarray(values, dtype=float), np.zeros(n, dtype=int), np.array([0, n])),
        shape=(1, n_features),
    )


@pytest.mark.parametrize(
    "values", [[1.0] * 1000, [5.0, -5.0, 0.25], [1e300, 1e300, -1e300], [1.7e308] * 3]
)
@pytest.mark.parametrize("bounds", BOUNDS.values(), ids=BOUNDS)
def test_repeated_entries_of_a_csr_matrix_obey_the_norm_bound_as_their_sum_does(values, bounds):
    X = repeated_entries(values)
    assert not X.has_canonical_format
    c = coordinates(bounds=bounds)
    rows = Rows(X, c)
    A = all_augmented(rows)
    assert np.linalg.norm(A) <= c.row_norm * (1 + 1e-12)
    assert np.linalg.norm(all_sums(rows, np.ones(1))) <= c.row_norm * (1 + 1e-9)
    if max(np.abs(values)) < 1e100:
        np.testing.assert_allclose(A, augmented_reference(X.toarray(), c)[0], atol=1e-12)


def test_a_flag_that_wrongly_calls_a_csr_matrix_canonical_does_not_lift_the_norm_bound():
    # scipy keeps the answer of an earlier look, and lets anyone set it.
    X = repeated_entries([1.0] * 1000)
    X.has_canonical_format = True
    c = coordinates()
    rows = Rows(X, c)
    assert np.linalg.norm(all_sums(rows, np.ones(1))) <= c.row_norm * (1 + 1e-9)


def test_unsorted_indices_and_stored_zeros_change_nothing():
    rng = np.random.default_rng(9)
    X = data(rng, n=20)
    full = sparse.csr_matrix(np.ones_like(X))
    full.data[:] = X.ravel()
    full.indices = full.indices.reshape(X.shape)[:, ::-1].ravel().copy()
    full.data = full.data.reshape(X.shape)[:, ::-1].ravel().copy()
    full.has_sorted_indices = False
    c = coordinates(bounds=(LOWER, UPPER))
    parameters = rng.normal(size=c.n_parameters)
    np.testing.assert_allclose(
        all_scores(Rows(full, c), parameters), all_scores(Rows(X, c), parameters), atol=1e-12
    )


@settings(max_examples=50, deadline=None)
@given(n=st.integers(1, 30000), p=st.sampled_from([1, 3, 100, 5000]), is_sparse=st.booleans())
def test_blocks_cover_all_rows_in_order_and_depend_on_the_shape_alone(n, p, is_sparse):
    X = sparse.csr_matrix((n, p)) if is_sparse else np.broadcast_to(0.0, (n, p))
    size = block_size(p, is_sparse=is_sparse)
    assert 16 <= size <= 65536
    if n * p > 10**6 and not is_sparse:
        return
    rows = Rows(X, coordinates(n_features=p))
    assert [s.start for s in rows.slices] == list(range(0, n, size))
    assert [s.stop for s in rows.slices] == [*range(size, n, size), n]
    assert rows.n_blocks == len(rows.slices)


# Parts and groups of rows.


def rows_in_blocks(convert, bounds):
    """Rows in several blocks, unruly ones among them."""
    X = data(np.random.default_rng(10), n=9000)
    X[[3, 5000, 8999]] = 1e150 if np.dtype(convert(X).dtype) == np.float64 else 1e30
    rows = Rows(convert(X), coordinates(bounds=bounds))
    assert rows.n_blocks > 1
    return rows


def vectors(rows, *tail):
    """Parameters and slopes."""
    rng = np.random.default_rng(11)
    return (
        rng.normal(size=(rows.coordinates.n_parameters, *tail)),
        rng.normal(size=(rows.n_samples, *tail)),
    )


@pytest.mark.parametrize("bounds", BOUNDS.values(), ids=BOUNDS)
@pytest.mark.parametrize("convert", CONTAINERS.values(), ids=CONTAINERS)
def test_a_part_makes_the_bits_of_its_blocks_without_a_copy(convert, bounds):
    rows = rows_in_blocks(convert, bounds)
    parameters, slopes = vectors(rows)
    for blocks in (range(1), range(1, rows.n_blocks), range(rows.n_blocks)):
        part = rows.part(blocks)
        own = slice(rows.slices[blocks[0]].start, rows.slices[blocks[-1]].stop)
        assert part.n_samples == own.stop - own.start == part.slices[-1].stop
        assert part.slices[0].start == 0
        np.testing.assert_array_equal(part.weight, rows.weight[own])
        np.testing.assert_array_equal(part.squared_norm, rows.squared_norm[own])
        np.testing.assert_array_equal(
            all_scores(part, parameters), all_scores(rows, parameters)[own]
        )
        for i, block in enumerate(blocks):
            its = slopes[rows.slices[block]]
            np.testing.assert_array_equal(part.adjoint(i, its), rows.adjoint(block, its))
            assert part._blocks[i] is rows._blocks[block]


GROUPS = {
    "each to a row": [np.array([i]) for i in range(7)],
    "over blocks": [np.array([3, 4, 5000]), np.array([0, 8998, 8999]), np.array([2])],
    "every third": [np.arange(start, 9000, 3) for start in range(3)],
    "all": [np.arange(9000)],
    "neighbours": [np.arange(8000), np.arange(8000, 9000)],
}


@pytest.mark.parametrize("tail", [(), (3,)], ids=["one output", "three"])
@pytest.mark.parametrize("groups", GROUPS.values(), ids=GROUPS)
@pytest.mark.parametrize("bounds", BOUNDS.values(), ids=BOUNDS)
@pytest.mark.parametrize("convert", CONTAINERS.values(), ids=CONTAINERS)
def test_groups_of_rows_become_blocks_of_their_own(convert, bounds, groups, tail):
    rows = rows_in_blocks(convert, bounds)
    parameters, slopes = vectors(rows, *tail)
    taken, order = rows.take(groups), np.concatenate(groups)
    assert taken.n_samples == len(order)
    assert [s.stop - s.start for s in taken.slices] == list(map(len, groups))
    assert all(block.shape == (len(g), P) for block, g in zip(taken._blocks, groups, strict=True))
    np.testing.assert_array_equal(taken.weight, rows.weight[order])
    np.testing.assert_array_equal(taken.squared_norm, rows.squared_norm[order])
    np.testing.assert_allclose(
        all_scores(taken, parameters), all_scores(rows, parameters)[order], rtol=1e-12, atol=1e-12
    )
    chosen = np.zeros_like(slopes)
    chosen[order] = slopes[order]
    np.testing.assert_allclose(
        all_sums(taken, slopes[order]), all_sums(rows, chosen), rtol=1e-9, atol=1e-9
    )
    A = all_augmented(rows)
    np.testing.assert_allclose(all_augmented(taken), A[order], rtol=1e-15)


def test_groups_are_copies_and_keep_the_type_of_features():
    X = data(np.random.default_rng(12)).astype(np.float32)
    for features in (X, sparse.csr_matrix(X)):
        rows = Rows(features, coordinates())
        taken = rows.take([np.array([1, 5]), np.array([0])])
        assert taken._blocks[0].dtype == np.float32
        assert sparse.issparse(taken._blocks[0]) == sparse.issparse(features)
        for block in taken._blocks:
            one, other = (b.data if sparse.issparse(b) else b for b in (block, features))
            assert not np.shares_memory(one, other)
        assert rows.n_samples == N


def test_groups_and_parts_are_seen_in_the_basis_of_the_rows():
    rows = rows_in_blocks(np.asarray, (LOWER, UPPER))
    d = rows.coordinates.n_parameters
    rng = np.random.default_rng(13)
    basis = Basis(
        vectors=np.linalg.qr(rng.normal(size=(d, d)))[0],
        eigenvalues=rng.uniform(0.5, 2.0, size=d),
        loading=np.ones(d),
        spread=1.0,
        clip_unit=1.0,
    )
    seen = rows.in_basis(basis, lambda kernel, n: [kernel(i) for i in range(n)])
    parameters, _ = vectors(rows)
    expected = all_augmented(rows) @ basis.transform @ parameters
    groups = [np.array([3, 8999]), np.array([0, 1, 5000])]
    for view, own in (
        (seen.take(groups), np.concatenate(groups)),
        (seen.part(range(1, 2)), rows.slices[1]),
    ):
        np.testing.assert_allclose(all_scores(view, parameters), expected[own], atol=1e-9)
        np.testing.assert_array_equal(view.squared_norm, seen.squared_norm[own])
