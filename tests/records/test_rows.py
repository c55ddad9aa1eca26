"""Rows and sums of agents against a naive dense reference, on ordinary and on extreme records."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import sparse

from skdpadmm import records
from skdpadmm.losses import (
    HuberLoss,
    LogisticLoss,
    SmoothedHinge,
    SquaredLoss,
    clip_derivative,
)
from skdpadmm.records import Rows, Segments, block_size, declared_coordinates

P = 7
LOWER = np.array([-1.0, -2.0, 0.0, -5.0, -1.0, -1.0, -1e3])
UPPER = np.array([1.0, 3.0, 4.0, 0.0, 1.0, 2.0, 1e3])
BOUNDS = {"undeclared": None, "declared": (LOWER, UPPER)}
CONTAINERS = {
    "C": np.ascontiguousarray,
    "F": np.asfortranarray,
    "float32": lambda X: X.astype(np.float32),
    "CSR": sparse.csr_matrix,
    "CSR float32": lambda X: sparse.csr_matrix(X.astype(np.float32)),
}
EXACT = [name for name in CONTAINERS if "float32" not in name]


def coordinates(bounds=None, *, fit_intercept=True, n_features=P):
    facts = {"n_features": n_features, "fit_intercept": fit_intercept, "feature_bounds": bounds}
    return records.declared_coordinates(**facts, has_target_scale=False)


def some_basis(d):
    vectors = np.linalg.qr(np.random.default_rng(5).normal(size=(d, d)))[0]
    facts = {"eigenvalues": np.geomspace(1, 1e-2, d), "loading": np.ones(d)}
    return records.Basis(vectors=vectors, **facts, spread=1.0, clip_unit=1.0)


def seen(X, c, *, in_basis=False):
    rows = Rows(X, c)
    if not in_basis:
        return rows
    run = lambda work, n: [work(block) for block in range(n)]  # noqa: E731
    return rows.in_basis(some_basis(c.n_parameters), run)


def data(n, seed=0):
    """Features of which some lie outside the box and some rows beyond the norm bound."""
    rng = np.random.default_rng(seed)
    X = 2.0 * rng.normal(size=(n, P))
    X[rng.random(X.shape) < 0.3] = 0.0
    return X


def dense(X):
    return X.toarray() if sparse.issparse(X) else np.asarray(X)


def entries(X):
    return X.data if sparse.issparse(X) else X


def reference(rows, X):
    """Clip, centre, scale, append a one, bound the norm, change the basis, one after the other."""
    c = rows.coordinates
    A = (np.clip(dense(X).astype(float), c.lower, c.upper) - c.offset) / c.scale
    if c.fit_intercept:
        A = np.column_stack([A, np.ones(len(A))])
    norm = np.linalg.norm(A, axis=1)
    A = A * np.minimum(1.0, c.row_norm / np.where(norm > 0, norm, 1.0))[:, None]
    return A if rows.basis is None else A @ rows.basis.transform


def all_seen(rows):
    return np.concatenate([rows.seen(i) for i in range(rows.n_blocks)])


def all_scores(rows, parameters):
    prepared = rows.prepare(parameters)
    return np.concatenate([rows.scores(i, prepared) for i in range(rows.n_blocks)])


def all_sums(rows, slopes):
    return rows.collect(sum(rows.adjoint(i, slopes[s]) for i, s in enumerate(rows.slices)))


def assert_rows_are(rows, A, tail=(), seed=0):
    """Scores, sums, norms and columns of rows are those of a dense matrix."""
    rng = np.random.default_rng(seed)
    parameters, slopes = rng.normal(size=(A.shape[1], *tail)), rng.normal(size=(len(A), *tail))
    size = np.abs(A).max()
    np.testing.assert_allclose(all_seen(rows), A, rtol=1e-10, atol=1e-13 * size)
    np.testing.assert_allclose(all_scores(rows, parameters), A @ parameters, atol=1e-11 * size)
    expected = A.T @ slopes
    np.testing.assert_allclose(all_sums(rows, slopes), expected, atol=1e-11 * size * len(A) ** 0.5)
    np.testing.assert_allclose(rows.squared_norm, np.square(A).sum(axis=1), rtol=1e-9)


@pytest.mark.parametrize("container", CONTAINERS)
@settings(max_examples=8)
@given(
    bounds=st.sampled_from([*BOUNDS]),
    fit_intercept=st.booleans(),
    tail=st.sampled_from([(), (3,)]),
    in_basis=st.booleans(),
)
def test_rows_are_augmented_rows_built_naively(container, bounds, fit_intercept, tail, in_basis):
    X = CONTAINERS[container](data(300))
    rows = seen(X, coordinates(BOUNDS[bounds], fit_intercept=fit_intercept), in_basis=in_basis)
    A = reference(rows, X)
    assert_rows_are(rows, A, tail)
    assert_rows_are(pickle.loads(pickle.dumps(rows)), A, tail)
    assert (rows.n_samples, A.shape[1]) == (300, P + fit_intercept)
    # The norm bound binds on some of the undeclared rows, or the comparison would show little.
    assert (rows.weight < 1).any() == (bounds == "undeclared")
    columns, augmented = rows.columns(0), rows.augmented(0)
    for index in range(A.shape[1]):
        np.testing.assert_allclose(columns(index), augmented[:, index], atol=1e-13)
    v = np.arange(1.0, A.shape[1] + 1)
    np.testing.assert_allclose(rows.from_coordinates(rows.to_coordinates(v)), v, rtol=1e-9)


@pytest.mark.parametrize("bounds", BOUNDS)
@pytest.mark.parametrize("container", ["C", "F", "float32", "CSR"])
def test_features_are_neither_copied_nor_changed(container, bounds):
    X = CONTAINERS[container](data(9000))
    before, rows = X.copy(), Rows(X, coordinates(BOUNDS[bounds]))
    all_scores(rows, np.ones(P + 1))
    all_sums(rows, np.ones(9000))
    np.testing.assert_array_equal(dense(X), dense(before))
    for block in map(rows._raw, range(rows.n_blocks)):
        assert np.shares_memory(entries(block), entries(X))


EXTREME_ROWS = {
    "mixed signs of 1e300": 1e300 * np.array([1.0, -1, 1, -1, 1, -1, 1]),
    "the largest floats": np.full(P, 1.7e308),
    "one large entry": np.array([0, 0, -1.7e308, 0, 0, 0, 0.0]),
    "subnormal": np.full(P, 5e-324),
    "large beside tiny": np.array([1e300, 1e-300, 0, 1, -1, 1e-200, 1e200]),
    "all zero": np.zeros(P),
}


@pytest.mark.parametrize("extreme", EXTREME_ROWS)
@settings(max_examples=10)
@given(
    container=st.sampled_from(EXACT), bounds=st.sampled_from([*BOUNDS]), fit_intercept=st.booleans()
)
def test_an_extreme_row_stays_below_the_norm_bound_and_leaves_others_alone(
    extreme, container, bounds, fit_intercept
):
    X, rng = data(40), np.random.default_rng(5)
    c = coordinates(BOUNDS[bounds], fit_intercept=fit_intercept)
    without = Rows(CONTAINERS[container](X.copy()), c)
    X[[3, 17]] = EXTREME_ROWS[extreme], -EXTREME_ROWS[extreme]
    rows = Rows(CONTAINERS[container](X), c)
    A, limit = rows.augmented(0), c.row_norm * (1 + 1e-12)
    norms = np.linalg.norm(A, axis=1)
    assert np.isfinite(A).all()
    assert norms.max() <= limit
    assert np.sqrt(rows.squared_norm).max() <= limit
    assert np.all((rows.weight > 0) & (rows.weight <= 1))
    # What clipping divides by is not smaller than the norm itself (squares below 1e-308 aside).
    assert np.all(norms <= np.sqrt(rows.squared_norm) * (1 + 1e-12) + 1e-150)
    assert np.linalg.norm(all_sums(rows, np.eye(40)[3])) <= limit * (1 + 1e-9)
    assert np.abs(dense(rows.tame(0))).max() <= records.HUGE
    parameters = rng.normal(size=c.n_parameters)
    scores, others = all_scores(rows, parameters), np.setdiff1d(np.arange(40), [3, 17])
    np.testing.assert_allclose(scores, A @ parameters, atol=1e-11)
    np.testing.assert_allclose(scores[others], all_scores(without, parameters)[others], rtol=1e-9)
    np.testing.assert_array_equal(rows.weight[others], without.weight[others])
    columns = rows.columns(0)
    found = np.column_stack([columns(index) for index in range(c.n_parameters)])
    np.testing.assert_allclose(found, A, rtol=1e-9, atol=1e-13)


@settings(max_examples=100)
@given(
    X=arrays(np.float64, (4, 3), elements=st.floats(allow_nan=False, allow_infinity=False)),
    bounds=st.sampled_from([None, ([-1.0, -10.0, 0.0], [2.0, 1e6, 0.5])]),
    container=st.sampled_from(["C", "CSR"]),
    fit_intercept=st.booleans(),
)
def test_every_finite_input_gives_finite_rows_below_the_norm_bound(
    X, bounds, container, fit_intercept
):
    X = CONTAINERS[container](X)
    c = coordinates(bounds, fit_intercept=fit_intercept, n_features=3)
    A = Rows(X, c).augmented(0)
    assert np.isfinite(A).all()
    assert np.linalg.norm(A, axis=1).max() <= c.row_norm * (1 + 1e-12)
    with np.errstate(over="ignore"):
        norms = records.feature_norms(X, np.array([True, False, True]), n_rows=3)
        expected = np.hypot(*dense(X)[:, [0, 2]].T)
    np.testing.assert_allclose(norms, expected, rtol=1e-12, atol=1e-320)


def test_a_sparse_matrix_is_centred_without_being_made_dense(monkeypatch):
    X = sparse.random(2000, 400, density=0.01, format="csr", random_state=0)
    c = coordinates((-1.0, 3.0), n_features=400)
    A, v, u = reference(Rows(X, c), X), np.linspace(-1, 1, 401), np.linspace(-1, 1, 2000)
    monkeypatch.setattr(sparse.csr_matrix, "toarray", lambda self: pytest.fail("made dense"))
    rows = Rows(X, c)
    np.testing.assert_allclose(all_scores(rows, v), A @ v, atol=1e-11)
    np.testing.assert_allclose(all_sums(rows, u), A.T @ u, atol=1e-10)
    np.testing.assert_allclose(rows.squared_norm, np.square(A).sum(axis=1), rtol=1e-9)


@pytest.mark.parametrize("bounds", [(1.0, 2.0), (-2.0, -1.0)])
def test_sparse_features_with_a_box_that_excludes_zero_are_refused(bounds):
    with pytest.raises(ValueError, match=r"^Got .* exclude 0 .* expected .* Widen the bounds"):
        Rows(sparse.csr_matrix(np.ones((3, P))), coordinates(bounds))


@pytest.mark.parametrize(
    "values", [[1.0] * 1000, [5.0, -5.0, 0.25], [1e300, 1e300, -1e300], [1.7e308] * 3]
)
@pytest.mark.parametrize("stale", [False, True])
def test_repeated_entries_of_a_csr_matrix_obey_the_norm_bound_as_their_sum_does(values, stale):
    # scipy keeps the answer of an earlier look, and lets anyone set it.
    n = len(values)
    X = sparse.csr_matrix((values, np.zeros(n, dtype=int), [0, n]), shape=(1, P))
    expected = None if max(values) > 1e100 else X.toarray()
    if stale:
        X.has_canonical_format = True
    for bounds in BOUNDS.values():
        rows = Rows(X, coordinates(bounds))
        assert np.linalg.norm(all_sums(rows, np.ones(1))) <= rows.coordinates.row_norm * (1 + 1e-9)
        if expected is not None:
            assert_rows_are(rows, reference(rows, expected))


@settings(max_examples=50)
@given(n=st.integers(1, 30000), p=st.sampled_from([1, 3, 100, 5000]), is_sparse=st.booleans())
def test_blocks_cover_all_rows_in_order_and_depend_on_the_shape_alone(n, p, is_sparse):
    size = block_size(p, is_sparse=is_sparse)
    assert 16 <= size <= 65536
    n = n if is_sparse else min(n, 10**6 // p)
    X = sparse.csr_matrix((n, p)) if is_sparse else np.broadcast_to(0.0, (n, p))
    slices = Rows(X, coordinates(n_features=p)).slices
    assert [s.start for s in slices] == list(range(0, n, size))
    assert [s.stop for s in slices] == [*range(size, n, size), n]


GROUPS = {
    "over blocks": [np.array([3, 4, 5000]), np.array([0, 8998, 8999]), np.array([2])],
    "every third": [np.arange(start, 9000, 3) for start in range(3)],
    "neighbours": [slice(0, 100), slice(100, 8500), slice(8500, 9000)],
    "all": [np.arange(9000)],
}


@pytest.mark.parametrize("container", CONTAINERS)
@settings(max_examples=6)
@given(bounds=st.sampled_from([*BOUNDS]), groups=st.sampled_from([*GROUPS]), in_basis=st.booleans())
def test_parts_and_groups_of_rows_are_the_rows_of_these(container, bounds, groups, in_basis):
    X = data(9000)
    X[[3, 5000, 8999]] = 1e30 if "float32" in container else 1e150
    rows = seen(CONTAINERS[container](X), coordinates(BOUNDS[bounds]), in_basis=in_basis)
    A, everything = all_seen(rows), np.arange(9000)
    assert rows.n_blocks > 1
    taken = rows.take(GROUPS[groups])
    order = np.concatenate([everything[group] for group in GROUPS[groups]])
    assert [s.stop - s.start for s in taken.slices] == [len(everything[g]) for g in GROUPS[groups]]
    assert taken._raw(0).dtype == rows._raw(0).dtype
    assert_rows_are(taken, A[order])
    for blocks in (range(1), range(1, rows.n_blocks)):
        part = rows.part(blocks)
        own = slice(rows.slices[blocks[0]].start, rows.slices[blocks[-1]].stop)
        assert np.shares_memory(entries(part._raw(0)), entries(rows._raw(blocks[0])))
        assert_rows_are(part, A[own])


# Sums of agents over their own rows.


def assert_agents_sums_are_those_of_a_loop(rows, owner, n_agents, n_outputs):
    def slopes_of(scores, own):
        return np.cos(scores) + np.arange(own.start, own.stop)[:, None] % 3

    shape, A = (n_agents, rows.coordinates.n_parameters, n_outputs), all_seen(rows)
    parameters = np.random.default_rng(1).normal(size=shape)
    segments = Segments(rows=rows, owner=owner.astype(np.int32))
    raw = segments.sums(records.prepare_agents(rows, parameters), slopes_of)
    found = records.collect_agents(rows, raw)
    slopes = slopes_of(np.einsum("ij,ijk->ik", A, parameters[owner]), slice(0, len(owner)))
    expected = np.stack([A[owner == a].T @ slopes[owner == a] for a in range(n_agents)])
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9 * np.abs(expected).max())
    return found


@pytest.mark.parametrize("container", CONTAINERS)
@settings(max_examples=10)
@given(bounds=st.sampled_from([*BOUNDS]), choice=st.tuples(*[st.booleans()] * 4))
def test_sums_of_agents_equal_a_loop(container, bounds, choice):
    scattered, in_basis, wild, many = choice
    X, owner = data(200), np.arange(200) * 7 // 200
    if wild:
        X[[3, 50]] = 1e30 if "float32" in container else EXTREME_ROWS["large beside tiny"]
    rows = seen(CONTAINERS[container](X), coordinates(BOUNDS[bounds]), in_basis=in_basis)
    owner = np.random.default_rng(3).permutation(owner) if scattered else owner
    assert_agents_sums_are_those_of_a_loop(rows, owner, 7, 3 if many else 1)


def test_agents_have_no_rows_or_one_or_those_of_many_blocks(monkeypatch):
    for n, n_agents in ((1, 1), (40, 40), (20_000, 50)):
        rows = Rows(data(n), coordinates())
        assert_agents_sums_are_those_of_a_loop(rows, np.arange(n) % n_agents, n_agents, 2)
    # Rows are gathered without a seam.
    monkeypatch.setattr("skdpadmm.records._segments.GATHERED_ENTRIES", 100)
    rows, owner = Rows(data(150), coordinates(fit_intercept=False)), np.arange(150) % 3 + 2
    found = assert_agents_sums_are_those_of_a_loop(rows, owner, 6, 4)
    assert not found[[0, 1, 5]].any()


@pytest.mark.parametrize("n_agents", [1, 10])
def test_no_agent_has_more_rows_in_one_chain_than_rounding_allows(n_agents):
    n, owner = 30_000, np.random.default_rng(0).integers(n_agents, size=30_000).astype(np.int32)
    X = np.random.default_rng(0).uniform(-1, 1, (n, P))
    pieces = list(Segments(rows=Rows(X, coordinates()), owner=owner)._pieces())
    longest = block_size(P, is_sparse=False)
    assert max(np.bincount(owner[own]).max() for own, _ in pieces) <= longest
    # Agents whose chains are short anyway are summed at once.
    assert len(pieces) == (1 if n_agents == 10 else -(-n // longest))


@pytest.mark.parametrize(
    "loss", [SquaredLoss(), HuberLoss(0.7), LogisticLoss(), SmoothedHinge(0.5)]
)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(("n_agents", "p"), [(1, P), (7, P), (2, 70)])
def test_compiled_sums_equal_those_of_arrays(loss, dtype, n_agents, p, monkeypatch):
    pytest.importorskip("numba")
    monkeypatch.setattr("skdpadmm.records._segments.COMPILED_ENTRIES", 0)
    n, rng = 9_000, np.random.default_rng(0)
    X = rng.normal(size=(n, p)).astype(dtype)
    X[[3, n - 1]] = 1e30  # outside the box
    facts = {"n_features": p, "fit_intercept": True, "has_target_scale": False}
    rows = Rows(X, declared_coordinates(feature_bounds=(-2.0, 2.0), **facts))
    assert Segments.is_compiled(rows, loss)
    assert not Segments.is_compiled(Rows(np.asfortranarray(X), rows.coordinates), loss)
    owner = rng.integers(n_agents, size=n).astype(np.int32)
    target, bound = rng.choice([-1.0, 1.0], n), rng.uniform(0.0, 1.0, n)
    counts, models = rng.random(n) < 0.5, rng.normal(size=(n_agents, p + 1, 1))
    models[0] *= 1e300  # scores, and slopes of a squared loss, that are no longer floats
    segments, prepared = Segments(rows=rows, owner=owner), records.prepare_agents(rows, models)

    def slopes_of(scores, own):
        with np.errstate(all="ignore"):
            slopes = loss.derivative(scores[:, 0], target[own])
        return (clip_derivative(slopes, bound[own]) * counts[own])[:, None]

    with np.errstate(all="ignore"):
        found = segments.compiled_sums(prepared, loss, target, bound, rows.weight * counts)
        expected = segments.sums(prepared, slopes_of)
    np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-11 * np.abs(expected).max())


@pytest.mark.parametrize("loss", [SquaredLoss(), LogisticLoss()])
def test_compiled_sums_count_no_slope_that_is_no_number(loss):
    pytest.importorskip("numba")
    facts = {"n_features": 2, "fit_intercept": False, "has_target_scale": False}
    rows = Rows(np.ones((70, 2)), declared_coordinates(feature_bounds=(-1.0, 1.0), **facts))
    segments = Segments(rows=rows, owner=np.zeros(70, dtype=np.int32))
    # Scores of inf - inf.
    prepared = np.array([[[np.inf, -np.inf]]]), np.zeros((1, 1))
    found = segments.compiled_sums(prepared, loss, np.ones(70), np.ones(70), rows.weight)
    np.testing.assert_array_equal(found, 0.0)
