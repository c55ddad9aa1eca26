"""Linear constraints: ranks, singular values, resolvents in every structure, the second block."""

import pickle

import numpy as np
import pytest
from scipy import sparse

from skdpadmm.penalties import (
    L1,
    GeneralizedL1,
    LinearConstraint,
    NoPenalty,
    SquaredL2,
    difference_matrix,
)

RNG = np.random.default_rng(1)
SELECTION = np.eye(9)[[7, 0, 3]]
SPREAD = sparse.hstack([3 * sparse.eye_array(60), sparse.random(60, 60, 0.02, random_state=1)])
# Matrices A for each branch of the resolvent.
STRUCTURES = {
    "scaled selection": sparse.csr_array(SELECTION * np.array([[2.0], [-0.5], [1.0]])),
    "differences": difference_matrix(40, 1),
    "intercept left out": sparse.hstack([difference_matrix(40, 1), sparse.csr_array((39, 1))]),
    "sparse": SPREAD.tocsr()[:, RNG.permutation(120)],
    "few dense rows": RNG.normal(size=(3, 30)),
    "many dense rows": RNG.normal(size=(25, 30)),
}


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def dense(matrix):
    return matrix.toarray() if sparse.issparse(matrix) else np.asarray(matrix)


@pytest.fixture(params=STRUCTURES)
def matrix(request):
    return STRUCTURES[request.param]


def test_products_and_resolvents_are_those_of_dense_matrices(matrix):
    rows, constraint = dense(matrix), LinearConstraint(matrix)
    m, n = rows.shape
    assert (constraint.n_constraints, constraint.n_auxiliary) == (m, m)
    for columns in ((), (3,)):
        v, u = normal(n, *columns), normal(m, *columns)
        before = v.copy()
        for weight in (1e-6, 0.3, 250.0):
            found = constraint.resolvent(weight)(v)
            expected = np.linalg.solve(np.eye(n) + weight * rows.T @ rows, v)
            np.testing.assert_allclose(found, expected, atol=1e-12)
        np.testing.assert_allclose(constraint.forward(v), rows @ v, atol=1e-12)
        np.testing.assert_allclose(constraint.adjoint(u), rows.T @ u, atol=1e-12)
        np.testing.assert_allclose(constraint.B_dot(u), -u)
        np.testing.assert_array_equal(v, before)


def test_singular_values_are_on_their_safe_side(matrix):
    constraint, values = LinearConstraint(matrix), np.linalg.svdvals(dense(matrix))
    assert constraint.smallest_singular_value <= values[-1] * (1 + 1e-13)
    assert constraint.largest_singular_value >= values[0] * (1 - 1e-13)
    assert constraint.smallest_singular_value == pytest.approx(values[-1], rel=2e-9)
    assert constraint.largest_singular_value == pytest.approx(values[0], rel=2e-9)


AUXILIARY = {
    "minus the identity": None,
    "diagonal": sparse.diags_array([1.0, -2.0, 0.5, 3.0]),
    "dense": normal(4, 3),
    "one column": normal(4, 1),
}


@pytest.mark.parametrize("kind", AUXILIARY)
@pytest.mark.parametrize("weight", [0.2, 3.0])
def test_the_y_step_minimises_its_objective_by_its_strong_convexity(kind, weight):
    # g(z) + h(z) >= g(y) + h(y) + weight |B (z - y)|^2 / 2 for all z, where h is the smooth part.
    rng, c = np.random.default_rng(0), normal(4, seed=1)
    constraint = LinearConstraint(None, AUXILIARY[kind], c)
    size = constraint.n_auxiliary
    B = constraint.B_dot(np.eye(size))
    np.testing.assert_allclose(B, -np.eye(4) if AUXILIARY[kind] is None else dense(AUXILIARY[kind]))
    linear = GeneralizedL1(np.ones((1, size)), 0.5)
    for penalty in (NoPenalty(), L1(0.7), SquaredL2(0.6), linear):
        step = constraint.y_step(penalty, weight)
        for w in (rng.normal(size=4), 5.0 * rng.normal(size=4)):

            def objective(y, penalty=penalty, w=w):
                return penalty.value(y) + 0.5 * weight * np.square(B @ y - c).sum() - w @ B @ y

            y = step(w)
            for reach in 10 ** rng.uniform(-4, 0, size=30):
                z = y + reach * rng.normal(size=size) * rng.integers(0, 2, size=size)
                lower = objective(y) + 0.5 * weight * np.square(B @ (z - y)).sum()
                assert objective(z) >= lower - 1e-12 * (1 + abs(lower))


def test_without_a_matrix_it_holds_for_any_number_of_features():
    constraint, w = LinearConstraint(), np.array([3.0, -0.2])
    np.testing.assert_array_equal(constraint.adjoint(constraint.forward(w)), w)
    np.testing.assert_array_equal(constraint.resolvent(1.0)(w), w / 2)
    np.testing.assert_array_equal(constraint.y_step(L1(1.0), 2.0)(-w), L1(1.0).prox(w / 2, 0.5))
    assert constraint.n_constraints == constraint.n_auxiliary == 0


def test_equal_values_make_equal_constraints_that_cannot_be_changed():
    A, B, c = np.array([[1.0, 2.0, 0.0], [0.0, 1.0, 1.0]]), np.array([[1.0], [2.0]]), np.ones(2)
    constraint = LinearConstraint(A, B, c)
    assert LinearConstraint(sparse.csc_array(A), B.tolist(), [1, 1]) == constraint
    assert LinearConstraint(A, None, np.zeros(2)) == LinearConstraint(A)
    different = [(A,), (A, B), (A, None, c), (A, B, 2 * c), (2 * A, B, c), ()]
    assert len({constraint, *(LinearConstraint(*parts) for parts in different)}) == 7
    A[:], c[:] = 0.0, 7.0
    np.testing.assert_array_equal(constraint.forward(np.ones(3)), [3.0, 2.0])
    assert pickle.loads(pickle.dumps(constraint)) == constraint
    with pytest.raises(ValueError, match="read-only"):
        constraint.c[0] = 2.0


REPEATED = difference_matrix(200, 1).toarray()[[*range(100), 99, *range(101, 199)]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((np.zeros((1, 2)),), r"Got A of shape \(1, 2\) and rank 0, expected rank 1\. Remove"),
        ((sparse.csr_array(REPEATED),), "rank 198, expected rank 199"),
        ((None, np.ones((1, 2))), "rank 1, expected rank 2. The y-step would not be unique"),
    ],
)
def test_what_is_no_constraint_of_full_rank_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        LinearConstraint(*arguments)


def test_points_and_penalties_of_another_height_and_weights_out_of_range_are_refused():
    constraint = LinearConstraint(STRUCTURES["few dense rows"], None, np.ones(3))
    with pytest.raises(ValueError, match=r"Got w of shape \(29, 2\), expected 3 rows"):
        constraint.y_step(L1(1.0), 1.0)(np.ones((29, 2)))
    with pytest.raises(ValueError, match=r"expected one number m of rows, and c of shape \(m,\)"):
        LinearConstraint(np.eye(3), None, np.ones((3, 2)))
    for weight in (0.0, np.nan):
        for ask in (constraint.resolvent, lambda weight: constraint.y_step(L1(1.0), weight)):
            with pytest.raises(ValueError, match=r"Got weight=.*, expected a float in \(0, inf\)"):
                ask(weight)
    penalty = GeneralizedL1(difference_matrix(5, 1), 1.0)
    with pytest.raises(ValueError, match="Got 3 coefficients, expected 5"):
        LinearConstraint(None, np.eye(4)[:, :3] + 1.0).y_step(penalty, 1.0)
