"""Sums of agents over their own rows, against a loop over the agents."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from skdpadmm.records import (
    HUGE,
    Basis,
    Rows,
    Segments,
    block_size,
    collect_agents,
    declared_coordinates,
    prepare_agents,
)

P = 5
BOUNDS = {"undeclared": None, "declared": (-1.0, 2.0)}
CONTAINERS = {
    "C": np.ascontiguousarray,
    "F": np.asfortranarray,
    "float32": lambda X: X.astype(np.float32),
    "CSR": sparse.csr_matrix,
    "CSR array": sparse.csr_array,
    "CSR float32": lambda X: sparse.csr_matrix(X.astype(np.float32)),
}


def owners(n, n_agents, kind):
    contiguous = (np.arange(n) * n_agents // n).astype(np.int32)
    return contiguous if kind == "contiguous" else np.random.default_rng(3).permutation(contiguous)


def seen_rows(X, *, bounds=None, fit_intercept=True, in_basis=False):
    coordinates = declared_coordinates(
        n_features=X.shape[1],
        fit_intercept=fit_intercept,
        feature_bounds=bounds,
        has_target_scale=False,
    )
    rows = Rows(X, coordinates)
    if not in_basis:
        return rows
    d = coordinates.n_parameters
    vectors = np.linalg.qr(np.random.default_rng(5).normal(size=(d, d)))[0]
    basis = Basis(
        vectors=vectors,
        eigenvalues=np.geomspace(1.0, 1e-2, d),
        loading=np.ones(d),
        spread=1.0,
        clip_unit=1.0,
    )
    return rows.in_basis(basis, lambda work, n: [work(block) for block in range(n)])


def some_slopes(scores, own):
    """Slopes that are a function of scores and of where they are."""
    return np.cos(scores) + np.arange(own.start, own.stop)[:, None] % 3


def all_sums(rows, owner, parameters, slopes_of=some_slopes):
    segments = Segments(rows=rows, owner=owner)
    return collect_agents(rows, segments.sums(prepare_agents(rows, parameters), slopes_of))


def agent_by_agent(rows, owner, parameters, slopes_of=some_slopes):
    seen = np.concatenate([rows.seen(block) for block in range(rows.n_blocks)])
    scores = np.einsum("ij,ijk->ik", seen, parameters[owner])
    slopes = slopes_of(scores, slice(0, len(owner)))
    return np.stack([seen[owner == a].T @ slopes[owner == a] for a in range(len(parameters))])


def assert_equals_the_loop(rows, owner, parameters):
    found, expected = all_sums(rows, owner, parameters), agent_by_agent(rows, owner, parameters)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9 * np.abs(expected).max())


def data(n, n_features=P):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, n_features))
    X[rng.random(X.shape) < 0.4] = 0.0
    return X


def parameters_of(rows, n_agents, n_outputs):
    shape = (n_agents, rows.coordinates.n_parameters, n_outputs)
    return np.random.default_rng(1).normal(size=shape)


@pytest.mark.parametrize("in_basis", [False, True])
@pytest.mark.parametrize("kind", ["contiguous", "scattered"])
@pytest.mark.parametrize("n_outputs", [1, 3])
@pytest.mark.parametrize("bounds", BOUNDS)
@pytest.mark.parametrize("container", CONTAINERS)
def test_sums_equal_a_loop_over_agents(container, bounds, n_outputs, kind, in_basis):
    rows = seen_rows(CONTAINERS[container](data(200)), bounds=BOUNDS[bounds], in_basis=in_basis)
    assert_equals_the_loop(rows, owners(200, 7, kind), parameters_of(rows, 7, n_outputs))


@pytest.mark.parametrize("container", ["C", "CSR"])
@pytest.mark.parametrize("kind", ["contiguous", "scattered"])
def test_sums_run_over_many_blocks(container, kind):
    n = 20_000
    rows = seen_rows(CONTAINERS[container](data(n)))
    assert rows.n_blocks > 1
    assert_equals_the_loop(rows, owners(n, 50, kind), parameters_of(rows, 50, 2))


@pytest.mark.parametrize("container", ["C", "CSR"])
@pytest.mark.parametrize(("n", "n_agents"), [(1, 1), (40, 1), (40, 40), (3, 2)])
def test_one_agent_and_agents_of_one_row(container, n, n_agents):
    rows = seen_rows(CONTAINERS[container](data(n)))
    assert_equals_the_loop(rows, owners(n, n_agents, "scattered"), parameters_of(rows, n_agents, 2))


@pytest.mark.parametrize("container", ["C", "CSR"])
def test_agents_without_rows_have_sums_of_zero(container):
    rows = seen_rows(CONTAINERS[container](data(6)))
    owner = np.array([4, 4, 1, 1, 4, 1], dtype=np.int32)
    parameters = parameters_of(rows, 6, 1)
    assert_equals_the_loop(rows, owner, parameters)
    assert not all_sums(rows, owner, parameters)[[0, 2, 3, 5]].any()


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("n_features", [1, 3])
def test_rows_with_and_without_an_intercept(n_features, fit_intercept):
    X = data(30, n_features)
    rows = seen_rows(X, bounds=(-1.0, 3.0), fit_intercept=fit_intercept)
    assert_equals_the_loop(rows, owners(30, 4, "scattered"), parameters_of(rows, 4, 1))


@pytest.mark.parametrize("n_outputs", [1, 400])
def test_rows_are_gathered_a_few_at_a_time_without_a_seam(n_outputs, monkeypatch):
    rows = seen_rows(data(150))
    owner, parameters = owners(150, 6, "scattered"), parameters_of(rows, 6, n_outputs)
    at_once = all_sums(rows, owner, parameters)
    monkeypatch.setattr("skdpadmm.records._segments.GATHERED_ENTRIES", 100)
    np.testing.assert_array_equal(all_sums(rows, owner, parameters), at_once)


@pytest.mark.parametrize("bounds", BOUNDS)
@pytest.mark.parametrize("container", ["C", "F", "CSR"])
def test_unruly_rows_are_tame_and_stay_with_their_agent(container, bounds):
    X, owner = data(120), owners(120, 5, "scattered")
    wild = X.copy()
    wild[[3, 50]] = [[1e300, -1e308, 0.0, 1.0, 1e200], [0.0, 1e308, 1e308, 1e308, -1e308]]
    rows = seen_rows(CONTAINERS[container](wild), bounds=BOUNDS[bounds])
    parameters = parameters_of(rows, 5, 2)
    with np.errstate(all="ignore"):
        found = all_sums(rows, owner, parameters)
    assert np.isfinite(found).all()
    assert_equals_the_loop(rows, owner, parameters)
    without = all_sums(
        seen_rows(CONTAINERS[container](X), bounds=BOUNDS[bounds]), owner, parameters
    )
    untouched = np.setdiff1d(np.arange(5), owner[[3, 50]])
    np.testing.assert_array_equal(found[untouched], without[untouched])


@pytest.mark.parametrize("container", ["C", "float32", "CSR"])
def test_a_tame_block_is_a_copy_only_where_rows_are_unruly(container):
    X = CONTAINERS[container](data(20))
    tame = seen_rows(X).tame(0)
    entries, own = (tame.data, X.data) if sparse.issparse(X) else (tame, X)
    assert entries.dtype == np.float64
    assert np.shares_memory(entries, own) == (container != "float32")
    wild = data(20)
    wild[4, 2] = 1e300
    kept = wild.copy()
    tamed = seen_rows(wild).tame(0)
    assert np.abs(tamed).max() <= HUGE
    np.testing.assert_array_equal(wild, kept)


@pytest.mark.parametrize("n_agents", [1, 10])
def test_no_agent_has_more_rows_in_one_chain_than_rounding_allows(n_agents):
    n, p = 30_000, 2
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (n, p))
    rows = seen_rows(X)
    owner = rng.integers(n_agents, size=n).astype(np.int32)
    pieces = list(Segments(rows=rows, owner=owner)._pieces())
    longest = block_size(p, is_sparse=False)
    assert max(np.bincount(owner[own]).max() for own, _ in pieces) <= longest
    # Agents whose chains are short anyway are summed at once.
    assert len(pieces) == (1 if n_agents == 10 else -(-n // longest))
    np.testing.assert_array_equal(np.concatenate([part for _, part in pieces]), X)
