"""Linear constraints: ranks, singular values, resolvents in every structure, the second block."""

from __future__ import annotations

import copy
import dataclasses
import json
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.optimize import minimize

from skdpadmm.penalties import (
    L1,
    Box,
    GeneralizedL1,
    GroupLasso,
    LinearConstraint,
    NoPenalty,
    SquaredL2,
    difference_matrix,
)
from skdpadmm.penalties import _matrix as matrix_module

SEEDS = st.integers(0, 2**32 - 1)


def sparse_rows(m, n, seed=0):
    """A sparse matrix of full row rank that is neither banded nor dense."""
    rng = np.random.default_rng(seed)
    places = rng.permutation(n)[:m]
    rows = sparse.random(m, n, density=1.5 / n, random_state=rng).tolil()
    rows[np.arange(m), places] = 3.0 + rng.uniform(size=m)
    return sparse.csr_array(rows)


def structures():
    """Matrices A for each road through the resolvent."""
    rng = np.random.default_rng(1)
    selection = np.eye(9)[[7, 0, 3]]
    return {
        "identity": np.eye(9),
        "selection": selection,
        "scaled selection": sparse.csr_array(selection * np.array([[2.0], [-0.5], [1.0]])),
        "diagonal": sparse.diags_array(rng.uniform(0.5, 2.0, size=9)),
        "differences": difference_matrix(40, 1),
        "differences of few": difference_matrix(4, 1),
        "trend": difference_matrix(40, 2),
        "intercept left out": sparse.hstack([difference_matrix(40, 1), sparse.csr_array((39, 1))]),
        "sparse": sparse_rows(60, 120),
        "few dense rows": rng.normal(size=(3, 30)),
        "many dense rows": rng.normal(size=(25, 30)),
        "square": rng.normal(size=(8, 8)),
        "one by one": np.array([[-2.0]]),
    }


STRUCTURES = structures()


@pytest.fixture(params=STRUCTURES)
def matrix(request):
    return STRUCTURES[request.param]


def dense(matrix):
    return matrix.toarray() if sparse.issparse(matrix) else np.asarray(matrix)


@pytest.mark.parametrize("weight", [1e-6, 0.3, 1.0, 250.0])
def test_the_resolvent_is_the_dense_inverse(matrix, weight):
    rng, rows = np.random.default_rng(0), dense(matrix)
    constraint = LinearConstraint(matrix)
    n = rows.shape[1]
    expected = np.linalg.inv(np.eye(n) + weight * rows.T @ rows)
    resolvent = constraint.resolvent(weight)
    for v in (rng.normal(size=n), rng.normal(size=(n, 3)), rng.normal(size=(n, 1))):
        before = v.copy()
        found = resolvent(v)
        assert found.shape == v.shape
        np.testing.assert_allclose(found, expected @ v, atol=1e-12)
        np.testing.assert_array_equal(v, before)
        assert not np.shares_memory(found, v)


def test_singular_values_are_on_their_safe_side(matrix):
    constraint, values = LinearConstraint(matrix), np.linalg.svdvals(dense(matrix))
    assert constraint.smallest_singular_value <= values[-1] * (1 + 1e-13)
    assert constraint.largest_singular_value >= values[0] * (1 - 1e-13)
    assert constraint.smallest_singular_value == pytest.approx(values[-1], rel=2e-9)
    assert constraint.largest_singular_value == pytest.approx(values[0], rel=2e-9)


def test_singular_values_of_the_identity_are_exact():
    for constraint in (LinearConstraint(), LinearConstraint(np.eye(4), -np.eye(4), np.ones(4))):
        assert constraint.smallest_singular_value == constraint.largest_singular_value == 1.0


@pytest.mark.parametrize("n", [60, 3000])
def test_long_differences_have_known_singular_values(monkeypatch, n):
    monkeypatch.setattr(matrix_module, "_MOST_ENTRIES", 1000)
    constraint = LinearConstraint(difference_matrix(n, 1))
    smallest, largest = (2 * np.sin(np.pi * k / (2 * n)) for k in (1, n - 1))
    assert smallest * (1 - 1e-8) <= constraint.smallest_singular_value <= smallest
    assert largest <= constraint.largest_singular_value <= largest * (1 + 1e-8)


@pytest.mark.parametrize(
    "rows",
    [
        difference_matrix(200, 2),
        sparse.csr_array(difference_matrix(200, 3).T),
        sparse.kron(sparse.eye_array(60), [[1.0, 2.0, -1.0, 0.5], [0.0, 1.0, 3.0, 1.0]]),
        sparse.hstack([difference_matrix(200, 2), sparse.csr_array((198, 1))]),
    ],
)
def test_banded_and_dense_decompositions_agree(monkeypatch, rows):
    kept = matrix_module.as_matrix("matrix", rows)
    expected = matrix_module.spectrum(kept)
    monkeypatch.setattr(matrix_module, "_MOST_ENTRIES", 100)
    assert matrix_module._shuffled(kept if kept.shape[0] <= kept.shape[1] else kept.T) is not None
    found = matrix_module.spectrum(kept)
    assert found.rank == expected.rank == min(rows.shape)
    assert found.smallest == pytest.approx(expected.smallest, rel=1e-9)
    assert found.largest == pytest.approx(expected.largest, rel=1e-12)


def test_a_long_trend_has_full_rank():
    constraint = LinearConstraint(difference_matrix(3000, 2))
    # A clamped beam: the squared first root of cos x cosh x = 1, for many small pieces.
    assert constraint.smallest_singular_value == pytest.approx((4.730040745 / 3000) ** 2, rel=1e-3)
    assert 4.0 > constraint.largest_singular_value * (1 - 2e-9) > 4.0 - 1e-5


@pytest.mark.parametrize("scale", [1e-170, 1e-20, 1e170])
def test_ranks_do_not_depend_on_units(scale):
    rows = np.array([[1.0, 2.0, 0.0], [0.0, 1.0, 1.0]])
    plain, scaled = LinearConstraint(rows), LinearConstraint(scale * rows)
    expected = scale * plain.smallest_singular_value
    assert scaled.smallest_singular_value == pytest.approx(expected, rel=1e-12)


@settings(max_examples=40, deadline=None)
@given(seed=SEEDS, m=st.integers(1, 6), more=st.integers(0, 6))
def test_norms_and_products_are_those_of_dense_matrices(seed, m, more):
    rng = np.random.default_rng(seed)
    A, B = rng.normal(size=(m, m + more)), rng.normal(size=(m, rng.integers(1, m + 1)))
    c = rng.normal(size=m)
    for left, right in ((A, B), (sparse.csr_array(A), sparse.coo_array(B)), (A, None), (None, B)):
        constraint = LinearConstraint(left, right, c)
        a = np.eye(m) if left is None else A
        b = -np.eye(m) if right is None else B
        assert constraint.n_constraints == m
        assert (constraint.n_features, constraint.n_auxiliary) == (a.shape[1], b.shape[1])
        for columns in ((), (2,)):
            x, y, v = (rng.normal(size=(s, *columns)) for s in (a.shape[1], b.shape[1], m))
            np.testing.assert_allclose(constraint.forward(x), a @ x, atol=1e-12)
            np.testing.assert_allclose(constraint.B_dot(y), b @ y, atol=1e-12)
            np.testing.assert_allclose(constraint.adjoint(v), a.T @ v, atol=1e-12)


def auxiliary_matrices():
    rng = np.random.default_rng(2)
    return {
        "minus the identity": None,
        "the identity": np.eye(4),
        "diagonal": sparse.diags_array([1.0, -2.0, 0.5, 3.0]),
        "orthogonal columns": np.array([[1.0, 1.0], [1.0, -1.0], [2.0, 0.0], [0.0, 0.0]]),
        "dense": rng.normal(size=(4, 3)),
        "one column": rng.normal(size=(4, 1)),
    }


@pytest.mark.parametrize("kind", auxiliary_matrices())
@pytest.mark.parametrize("weight", [0.2, 3.0])
def test_the_y_step_is_the_numerical_minimiser(kind, weight):
    rng = np.random.default_rng(0)
    given_b, c = auxiliary_matrices()[kind], rng.normal(size=4)
    B = -np.eye(4) if given_b is None else dense(given_b)
    size = B.shape[1]
    groups = tuple((j,) for j in range(size))
    penalties = [
        NoPenalty(),
        L1(0.7),
        SquaredL2(0.6),
        Box(-0.3, 0.5),
        GroupLasso(0.4, groups),
        GeneralizedL1(np.ones((1, size)), 0.5),
    ]
    constraint = LinearConstraint(None, given_b, c)
    for penalty in penalties:
        step = constraint.y_step(penalty, weight)
        for w in (rng.normal(size=4), 5.0 * rng.normal(size=4)):

            def objective(y, penalty=penalty, w=w):
                smooth = 0.5 * weight * np.square(B @ y - c).sum() - w @ B @ y
                return penalty.value(y) + smooth

            y = step(w)
            # The kinks of these penalties are few and the problems tiny, so polls suffice.
            bounds = [(-0.3, 0.5)] * size if isinstance(penalty, Box) else None
            options = {"xatol": 1e-10, "fatol": 1e-13, "maxiter": 4000, "maxfev": 8000}
            best = minimize(objective, y, method="Nelder-Mead", bounds=bounds, options=options)
            assert objective(y) <= best.fun + 1e-10 * (1 + abs(best.fun))
            for _ in range(20):
                other = y + 10 ** rng.uniform(-6, 0) * rng.normal(size=size)
                if isinstance(penalty, Box):
                    other = np.clip(other, -0.3, 0.5)
                assert objective(y) <= objective(other) + 1e-12 * (1 + abs(objective(other)))


@pytest.mark.parametrize("kind", auxiliary_matrices())
@pytest.mark.parametrize("per_column", [False, True])
def test_columns_of_outputs_are_constrained_each_alone(kind, per_column):
    rng = np.random.default_rng(0)
    B, w = auxiliary_matrices()[kind], rng.normal(size=(4, 3))
    c = rng.normal(size=(4, 3) if per_column else 4)
    together = LinearConstraint(None, B, c).y_step(L1(0.3), 0.7)(w)
    for j in range(3):
        alone = LinearConstraint(None, B, c[:, j] if per_column else c).y_step(L1(0.3), 0.7)
        np.testing.assert_allclose(together[:, j], alone(w[:, j].copy()), atol=1e-13)


def test_without_a_matrix_it_holds_for_any_number_of_features():
    constraint, w = LinearConstraint(), np.array([3.0, -0.2])
    assert constraint.is_open
    np.testing.assert_array_equal(constraint.forward(w), w)
    np.testing.assert_array_equal(constraint.adjoint(w), w)
    np.testing.assert_array_equal(constraint.B_dot(w), -w)
    np.testing.assert_array_equal(constraint.resolvent(1.0)(w), w / 2)
    np.testing.assert_array_equal(constraint.y_step(L1(1.0), 2.0)(-w), L1(1.0).prox(w / 2, 0.5))
    for ask in (
        lambda: constraint.n_features,
        lambda: constraint.n_constraints,
        lambda: constraint.n_auxiliary,
    ):
        with pytest.raises(ValueError, match="expected a definite one"):
            ask()


def test_equal_values_make_equal_constraints():
    A, B, c = np.array([[1.0, 2.0, 0.0], [0.0, 1.0, 1.0]]), np.array([[1.0], [2.0]]), np.ones(2)
    constraint = LinearConstraint(A, B, c)
    same = [
        LinearConstraint(sparse.csc_array(A), sparse.csr_matrix(B), [1, 1]),
        LinearConstraint(A.tolist(), B.tolist(), c.tolist()),
    ]
    for other in same:
        assert other == constraint
        assert hash(other) == hash(constraint)
    different = [
        LinearConstraint(A),
        LinearConstraint(A, B),
        LinearConstraint(A, None, c),
        LinearConstraint(A, B, 2 * c),
        LinearConstraint(2 * A, B, c),
        LinearConstraint(A, B, np.ones((2, 1))),
        LinearConstraint(),
        LinearConstraint(np.eye(2)),
        LinearConstraint(np.eye(3)),
    ]
    assert len({constraint, *different}) == 1 + len(different)
    # What is the default is so however it is written.
    plain = LinearConstraint(np.eye(2), -np.eye(2), np.zeros(2))
    assert plain == LinearConstraint(sparse.eye_array(2)) == LinearConstraint(None, None, [0, -0.0])


def test_a_constraint_cannot_be_changed():
    A, c = np.array([[1.0, 2.0]]), np.ones(1)
    constraint = LinearConstraint(A, None, c)
    A[:], c[:] = 0.0, 7.0
    np.testing.assert_array_equal(constraint.forward(np.ones(2)), [3.0])
    assert constraint.c[0] == 1.0
    with pytest.raises(ValueError, match="read-only"):
        constraint.c[0] = 2.0
    with pytest.raises(ValueError, match="read-only"):
        constraint.A.data[0] = 2.0
    with pytest.raises(dataclasses.FrozenInstanceError):
        constraint.A = None


def test_a_constraint_is_short_in_print_and_in_a_digest_and_survives_copies(matrix):
    constraint = LinearConstraint(matrix)
    assert len(repr(constraint)) < 80
    compared = {f.name for f in dataclasses.fields(constraint) if f.compare}
    assert compared == {"fingerprint"}
    assert len(json.dumps(constraint.fingerprint)) == 66
    v = np.random.default_rng(0).normal(size=constraint.n_features)
    before = constraint.resolvent(0.5)(v)
    copies = pickle.loads(pickle.dumps(constraint)), copy.deepcopy(constraint)
    for other in (*copies, dataclasses.replace(constraint)):
        assert other == constraint
        np.testing.assert_array_equal(other.resolvent(0.5)(v), before)


def test_a_constraint_in_print():
    assert repr(LinearConstraint()) == "LinearConstraint(A=I, B=-I, c=0)"
    named = LinearConstraint(np.ones((1, 3)), [[2.0]], [1.0])
    assert repr(named) == "LinearConstraint(A of shape (1, 3), B of shape (1, 1), c of shape (1,))"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([1.0, 2.0],), "Got A with 1 dimensions, expected a matrix"),
        (([[1.0, np.nan]],), "Got A with infinite or missing entries"),
        (([[1.0]], [[np.inf]]), "Got B with infinite or missing entries"),
        (([[1.0]], None, [np.nan]), "Got c with infinite or missing entries"),
        (([[1.0]], None, 1.0), r"Got c of shape \(\), expected \(m,\)"),
        ((np.eye(2), np.ones((3, 1))), "Got A with 2 rows, B with 3 rows, expected one number"),
        ((np.eye(2), None, np.ones(3)), "Got A with 2 rows, c with 3 rows, expected one number"),
        ((np.empty((0, 3)),), "Got A with 0 rows, expected at least 1. Leave"),
        (([[1.0, 2.0], [2.0, 4.0]],), r"Got A of shape \(2, 2\) and rank 1, expected rank 2\. Re"),
        ((np.eye(3)[:, :2],), r"Got A of shape \(3, 2\) and rank 2, expected rank 3\. Remove"),
        ((np.zeros((1, 2)),), r"Got A of shape \(1, 2\) and rank 0, expected rank 1\. Remove"),
        ((None, np.ones((2, 2))), "rank 1, expected rank 2: the y-step would not be unique"),
        ((None, np.ones((1, 2))), "rank 1, expected rank 2: the y-step would not be unique"),
        ((None, np.zeros((2, 1))), "rank 0, expected rank 1: the y-step would not be unique"),
        ((None, np.empty((2, 0))), "rank 0, expected rank 1: the y-step would not be unique"),
    ],
)
def test_what_is_no_constraint_of_full_rank_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        LinearConstraint(*arguments)


def test_dependent_rows_are_seen_in_long_bands(monkeypatch):
    monkeypatch.setattr(matrix_module, "_MOST_ENTRIES", 100)
    rows = difference_matrix(200, 1).toarray()
    rows[100] = rows[99]
    with pytest.raises(ValueError, match="rank 198, expected rank 199"):
        LinearConstraint(sparse.csr_array(rows))


@pytest.mark.parametrize("weight", [0.0, -1.0, np.inf, np.nan])
def test_weights_outside_their_range_are_refused(weight):
    constraint = LinearConstraint(np.eye(2))
    for use in (
        constraint.resolvent,
        lambda weight: constraint.y_step(L1(1.0), weight),
    ):
        with pytest.raises(ValueError, match=r"Got weight=.*, expected a float in \(0, inf\)\."):
            use(weight)


def test_points_of_another_height_are_refused(matrix):
    constraint = LinearConstraint(matrix)
    for use, height in (
        (constraint.forward, constraint.n_features),
        (constraint.resolvent(1.0), constraint.n_features),
        (constraint.adjoint, constraint.n_constraints),
        (constraint.y_step(L1(1.0), 1.0), constraint.n_constraints),
        (constraint.B_dot, constraint.n_auxiliary),
    ):
        for shape in ((height + 1,), (height + 1, 2), (height, 1, 1)):
            with pytest.raises(ValueError, match=r"Got . of shape .*, expected \("):
                use(np.ones(shape))
    step = LinearConstraint(None, None, np.ones((2, 3))).y_step(L1(1.0), 1.0)
    with pytest.raises(ValueError, match=r"Got w of shape \(2,\), expected the shape \(2, 3\) of"):
        step(np.ones(2))


def test_a_penalty_for_other_variables_is_refused():
    constraint = LinearConstraint(None, np.random.default_rng(0).normal(size=(4, 3)))
    with pytest.raises(ValueError, match="Got a metric of shape"):
        constraint.y_step(GeneralizedL1(difference_matrix(5, 1), 1.0), 1.0)


@pytest.mark.parametrize("name", ["differences", "few dense rows", "sparse", "selection"])
def test_splitting_a_generalised_lasso_reaches_its_prox(name):
    # min ||x - v||^2 / 2 + strength ||D x||_1 by ADMM on D x - y = 0.
    matrix = STRUCTURES[name]
    rng, penalty = np.random.default_rng(0), GeneralizedL1(matrix, 0.5)
    rows, simple = penalty.splitting()
    constraint = LinearConstraint(rows)
    v, weight = rng.normal(size=(constraint.n_features, 2)), 1.0
    solve, step = constraint.resolvent(weight), constraint.y_step(simple, weight)
    multiplier = np.zeros((constraint.n_constraints, 2))
    y = multiplier.copy()
    for _ in range(5000):
        x = solve(v + constraint.adjoint(multiplier - weight * constraint.B_dot(y)))
        y = step(multiplier - weight * constraint.forward(x))
        multiplier = multiplier - weight * (constraint.forward(x) + constraint.B_dot(y))
    np.testing.assert_allclose(x, penalty.prox(v, 1.0), atol=1e-9)
