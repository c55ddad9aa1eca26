"""The l1 norm of a linear image: exact proximal operators, matrices by value, differences."""

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
from scipy.optimize import lsq_linear

from skdpadmm.penalties import (
    L1,
    GeneralizedL1,
    GroupLasso,
    NoPenalty,
    SquaredL2,
    difference_matrix,
    named_penalty_matrix,
)
from skdpadmm.penalties import _generalized_l1 as operator_module

SEEDS = st.integers(0, 2**32 - 1)


def spd(rng, p, condition):
    basis = np.linalg.qr(rng.normal(size=(p, p)))[0]
    matrix = (basis * np.geomspace(1, 1 / condition, p)) @ basis.T
    return 0.5 * (matrix + matrix.T)


def matrices(rng, p):
    """Matrices of full row rank with p columns: differences, few rows and as many as columns."""
    differences = [difference_matrix(p, order) for order in (1, 2, 3) if order < p]
    dense = [rng.normal(size=(m, p)) for m in sorted({1, (p + 1) // 2})]
    return [*differences, *dense, np.eye(p) + 0.3 * np.tri(p, k=-1)]


def certificate(penalty, v, step, metric, w):
    """Violations of the conditions that only the minimiser meets, for its one dual solution.

    M (v - w) / step = D'u, abs(u) <= strength, and strength abs(D w) = u D w.
    """
    rows, level = penalty.matrix.toarray(), penalty.strength
    force = metric @ (v - w) / step
    dual = np.linalg.lstsq(rows.T, force, rcond=None)[0]
    image, size = rows @ w, np.abs(v).max()
    return {
        "stationarity": np.abs(force - dual @ rows).max() / (np.abs(force).max() + level),
        "feasibility": max((np.abs(dual) - level).max(), 0.0) / (level + size / step),
        "slackness": np.abs(level * np.abs(image) - dual * image).max()
        / ((level + size / step) * np.abs(rows).sum(axis=1).max() * size),
    }


@settings(max_examples=60, deadline=None)
@given(
    seed=SEEDS,
    p=st.integers(1, 25),
    log_step=st.floats(-2, 2),
    log_strength=st.floats(-3, 1),
    log_condition=st.floats(0, 8),
)
def test_the_prox_is_certified_by_its_dual(seed, p, log_step, log_strength, log_condition):
    rng = np.random.default_rng(seed)
    v, step, metric = 3 * rng.normal(size=p), 10**log_step, spd(rng, p, 10**log_condition)
    weights = rng.uniform(0.1, 3.0, size=p)
    for rows in matrices(rng, p):
        penalty = GeneralizedL1(rows, 10**log_strength)
        for form, m in ((None, np.eye(p)), (weights, np.diag(weights)), (metric, metric)):
            w = penalty.prox(v, step, form)
            violations = certificate(penalty, v, step, m, w)
            assert max(violations.values()) < 1e-10, violations


@pytest.mark.parametrize("p", [2, 8, 20])
@pytest.mark.parametrize("strength", [0.05, 0.5, 5.0])
def test_the_prox_is_that_of_an_independent_solver(p, strength):
    rng = np.random.default_rng(p)
    v, metric = np.cumsum(rng.normal(size=p)), spd(rng, p, 10.0)
    root = np.linalg.cholesky(metric)
    for rows in map(sparse.csr_array, matrices(rng, p)):
        # The dual as bounded least squares: the distance from L'v to L^{-1} D'u.
        design = np.linalg.solve(root, rows.toarray().T)
        bounds = (-0.8 * strength, 0.8 * strength)
        found = lsq_linear(design, root.T @ v, bounds=bounds, method="bvls", tol=1e-15)
        expected = v - np.linalg.solve(metric, rows.T @ found.x)
        w = GeneralizedL1(rows, strength).prox(v, 0.8, metric)
        np.testing.assert_allclose(w, expected, atol=1e-8)


@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize("p", [10, 60, 150])
@pytest.mark.parametrize("condition", [1.0, 1e6])
def test_what_is_zero_in_the_image_is_so_up_to_rounding(order, p, condition):
    rng = np.random.default_rng(0)
    v, metric = np.cumsum(rng.normal(size=p)), spd(rng, p, condition)
    penalty = GeneralizedL1(difference_matrix(p, order), 0.1 if condition > 1 else 2.0)
    w = penalty.prox(v, 1.0, metric if condition > 1 else None)
    image = np.abs(penalty.matrix @ w)
    zero = image <= 1e-12 * np.abs(w).max()
    assert zero.any()
    assert image[~zero].min(initial=np.inf) > 1e-9 * np.abs(w).max()


def test_closed_forms():
    fused = GeneralizedL1(difference_matrix(2, 1), 1.0)
    # Two coefficients approach each other by the step each, until they meet.
    np.testing.assert_allclose(fused.prox(np.array([0.0, 5.0]), 2.0), [2.0, 3.0], rtol=1e-15)
    np.testing.assert_allclose(fused.prox(np.array([0.0, 3.0]), 2.0), [1.5, 1.5], rtol=1e-15)
    # A strong penalty leaves the mean, or the line of least squares.
    v = np.array([1.0, -2.0, 0.5, 4.0, 3.0])
    constant = GeneralizedL1(difference_matrix(5, 1), 1e3).prox(v, 1.0)
    np.testing.assert_allclose(constant, np.full(5, v.mean()), rtol=1e-14)
    line = np.polyval(np.polyfit(np.arange(5.0), v, 1), np.arange(5.0))
    np.testing.assert_allclose(GeneralizedL1(difference_matrix(5, 2), 1e3).prox(v, 1.0), line)


@pytest.mark.parametrize("form", ["identity", "diagonal", "matrix"])
def test_the_identity_makes_the_l1_norm(form):
    rng = np.random.default_rng(0)
    v = rng.normal(size=(7, 2))
    weights = rng.uniform(0.5, 2.0, size=7)
    metric = {"identity": None, "diagonal": weights, "matrix": spd(rng, 7, 100.0)}[form]
    for rows in (np.eye(7), -2.0 * np.eye(7)):
        w = GeneralizedL1(rows, 0.3 / abs(rows[0, 0])).prox(v, 0.5, metric)
        expected = L1(0.3).prox(v, 0.5, metric)
        np.testing.assert_allclose(w, expected, atol=1e-13)
        np.testing.assert_array_equal(np.abs(w) < 1e-13, expected == 0)


@pytest.mark.parametrize("condition", [10.0, 1e4, 1e8])
def test_the_prox_does_not_depend_on_the_success_of_guesses(monkeypatch, condition):
    rng = np.random.default_rng(0)
    v, metric = np.cumsum(rng.normal(size=(30, 2)), axis=0), spd(rng, 30, condition)
    cases = [GeneralizedL1(rows, 0.05) for rows in matrices(rng, 30)]
    expected = [penalty.prox(v, 1.0, metric) for penalty in cases]
    monkeypatch.setattr(operator_module, "guess", lambda *_: None)
    for penalty, before in zip(cases, expected, strict=True):
        np.testing.assert_allclose(penalty.prox(v, 1.0, metric), before, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("size", [1e-200, 1e-20, 1e20, 1e200])
def test_the_prox_is_homogeneous(size):
    v = np.array([0.3, 1.0, -2.0, 0.7])
    rows = difference_matrix(4, 1)
    w = GeneralizedL1(rows, 0.4).prox(v, 0.5)
    scaled = GeneralizedL1(rows, 0.4 * size).prox(size * v, 0.5)
    np.testing.assert_allclose(scaled, size * w, rtol=1e-14)


def test_without_rows_nothing_is_penalised():
    v = np.array([[1.0, -2.0]])
    for name in ("fused", "trend"):
        penalty = GeneralizedL1(named_penalty_matrix(name, 1), 3.0)
        assert penalty.value(v) == 0
        assert penalty.splitting() == (None, NoPenalty())
        for metric in (None, np.ones(1), np.eye(1), np.eye(2)):
            np.testing.assert_array_equal(penalty.prox(v, 1.0, metric), v)


def test_a_penalty_is_a_simple_one_of_a_linear_image():
    rng = np.random.default_rng(0)
    w = rng.normal(size=(5, 2))
    for penalty in (L1(0.5), SquaredL2(2.0), NoPenalty(), GroupLasso(1.0, [[0, 1], [2, 3, 4]])):
        assert penalty.splitting() == (None, penalty)
    for rows in matrices(rng, 5):
        penalty = GeneralizedL1(rows, 0.7)
        matrix, simple = penalty.splitting()
        assert simple == L1(0.7)
        assert simple.value(matrix @ w) == pytest.approx(penalty.value(w), rel=1e-14)


def test_equal_values_make_equal_penalties():
    rows = np.array([[1.0, -1.0, 0.0], [0.0, 1.0, -1.0]])
    penalty = GeneralizedL1(rows, 0.5)
    entries = sparse.coo_array(([0.5, 0.5, -1.0, 1.0, -1.0], ([0, 0, 0, 1, 1], [0, 0, 1, 1, 2])))
    forms = [
        sparse.csc_array(rows),
        sparse.csr_matrix(rows),
        entries,
        rows.tolist(),
        rows.astype(int),
    ]
    for same in (GeneralizedL1(form, 0.5) for form in forms):
        assert same == penalty
        assert hash(same) == hash(penalty)
        assert same.fingerprint == penalty.fingerprint
    others = [GeneralizedL1(rows, 0.6), GeneralizedL1(2 * rows, 0.5), GeneralizedL1(rows[:1], 0.5)]
    assert len({penalty, *others}) == 4
    # Values are told apart from their places.
    assert GeneralizedL1([[0.0, 1.0]], 1.0) != GeneralizedL1([[1.0, 0.0]], 1.0)
    assert GeneralizedL1([[1.0, 0.0]], 1.0) != GeneralizedL1([[1.0]], 1.0)


def test_a_penalty_cannot_be_changed():
    rows = np.array([[1.0, -1.0]])
    penalty = GeneralizedL1(rows, 0.5)
    rows[:] = 7.0
    assert penalty.value(np.array([1.0, 1.0])) == 0
    with pytest.raises(ValueError, match="read-only"):
        penalty.matrix.data[0] = 2.0
    with pytest.raises(dataclasses.FrozenInstanceError):
        penalty.strength = 1.0


def test_a_penalty_is_short_in_print_and_in_a_digest_and_survives_copies():
    penalty = GeneralizedL1(difference_matrix(1000, 1), 0.5)
    assert repr(penalty) == "GeneralizedL1(matrix of shape (999, 1000), strength=0.5)"
    compared = {f.name for f in dataclasses.fields(penalty) if f.compare}
    assert compared == {"strength", "fingerprint"}
    assert len(json.dumps({name: getattr(penalty, name) for name in compared})) < 120
    v = np.random.default_rng(0).normal(size=1000)
    copies = pickle.loads(pickle.dumps(penalty)), copy.deepcopy(penalty)
    for other in (*copies, dataclasses.replace(penalty), penalty.scaled(1.0)):
        assert other == penalty
        assert other.value(v) == penalty.value(v)
    assert dataclasses.replace(penalty, strength=1.0) == penalty.scaled(2.0)


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        ([1.0, -1.0], "Got matrix with 1 dimensions, expected a matrix"),
        ([[1.0, np.nan]], "Got matrix with infinite or missing entries"),
        ([[np.inf, 1.0]], "Got matrix with infinite or missing entries"),
        (np.empty((0, 0)), "expected a column for each"),
        ([[1.0, 2.0], [2.0, 4.0]], "Got a matrix of rank 1 with 2 rows, expected rank 2. Remove"),
        ([[1.0, 2.0], [0.0, 0.0]], "Got a matrix of rank 1 with 2 rows, expected rank 2. Remove"),
        (np.zeros((1, 3)), "Got a matrix of rank 0 with 1 rows, expected rank 1. Remove"),
        (np.eye(3)[:, :2], "Got a matrix of rank 2 with 3 rows, expected rank 3. Remove"),
    ],
)
def test_matrices_without_full_row_rank_are_refused(matrix, message):
    with pytest.raises(ValueError, match=message):
        GeneralizedL1(matrix, 1.0)


@pytest.mark.parametrize("metric", [None, np.ones(4), np.eye(4), np.eye(8)])
def test_another_number_of_features_is_refused(metric):
    penalty = GeneralizedL1(difference_matrix(3, 1), 1.0)
    with pytest.raises(ValueError, match=r"Got .*expected .*`matrix`"):
        penalty.prox(np.ones((4, 2)), 1.0, metric)
    with pytest.raises(ValueError, match="Got 4 coefficients, expected 3"):
        penalty.value(np.ones(4))


def test_rows_that_the_metric_cannot_tell_apart_are_refused():
    penalty = GeneralizedL1([[1.0, 0.0], [1.0, 1e-12]], 1.0)
    with pytest.raises(ValueError, match="depend on each other in this metric up to rounding"):
        penalty.proximal_operator(1.0)


@pytest.mark.parametrize("order", [1, 2, 3, 5])
def test_differences_are_those_of_numpy(order):
    w = np.random.default_rng(0).normal(size=(9, 2))
    matrix = difference_matrix(9, order)
    assert matrix.shape == (9 - order, 9)
    assert matrix.nnz == (9 - order) * (order + 1)
    np.testing.assert_allclose(matrix @ w, np.diff(w, n=order, axis=0), atol=1e-13)


def test_names_stand_for_differences():
    for name, order in (("fused", 1), ("trend", 2)):
        np.testing.assert_array_equal(
            named_penalty_matrix(name, 6).toarray(), difference_matrix(6, order).toarray()
        )
        for p in range(1, order + 1):
            assert named_penalty_matrix(name, p).shape == (0, p)


@pytest.mark.parametrize(
    ("n_features", "order", "message"),
    [(3, 0, "Got order=0, expected"), (3, 3, "Lower the order"), (1, 1, "n_features=1, expected")],
)
def test_differences_that_do_not_exist_are_refused(n_features, order, message):
    with pytest.raises(ValueError, match=message):
        difference_matrix(n_features, order)


def test_unknown_names_are_refused():
    with pytest.raises(ValueError, match=r"Got name='wavelet', expected one of \['fused', 'tren"):
        named_penalty_matrix("wavelet", 3)
    with pytest.raises(ValueError, match="Got n_features=0, expected an int of at least 1"):
        named_penalty_matrix("fused", 0)
    with pytest.raises(TypeError):
        difference_matrix(3.5, 1)
