"""The l1 norm of a linear image: its prox by an independent solver, matrices by value."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from scipy import sparse

from skdpadmm.penalties import (
    GeneralizedL1,
    NoPenalty,
    difference_matrix,
    named_penalty_matrix,
)


def test_without_rows_nothing_is_penalised():
    v = np.array([[1.0, -2.0]])
    penalty = GeneralizedL1(named_penalty_matrix("trend", 1), 3.0)
    assert (penalty.value(v), penalty.splitting()) == (0, (None, NoPenalty()))
    for metric in (None, np.ones(1), np.eye(1)):
        np.testing.assert_array_equal(penalty.prox(v, 1.0, metric), v)


def test_equal_values_make_equal_penalties_that_cannot_be_changed():
    rows = np.array([[1.0, -1.0, 0.0], [0.0, 1.0, -1.0]])
    penalty = GeneralizedL1(rows, 0.5)
    entries = sparse.coo_array(([0.5, 0.5, -1.0, 1.0, -1.0], ([0, 0, 0, 1, 1], [0, 0, 1, 1, 2])))
    for form in (sparse.csc_array(rows), entries, rows.tolist(), rows.astype(int)):
        same = GeneralizedL1(form, 0.5)
        assert (same, hash(same), same.fingerprint) == (penalty, hash(penalty), penalty.fingerprint)
    assert len({penalty, GeneralizedL1(rows, 0.6), GeneralizedL1(2 * rows, 0.5)}) == 3
    rows[:] = 7.0
    assert penalty.value(np.ones(3)) == 0
    with pytest.raises(ValueError, match="read-only"):
        penalty.matrix.data[0] = 2.0
    # A plan keeps what is compared.
    assert {f.name for f in dataclasses.fields(penalty) if f.compare} == {"strength", "fingerprint"}


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (np.empty((0, 0)), "0 feature"),
        (
            [[1.0, 2.0], [2.0, 4.0]],
            "and rank 1, expected rank 2. Remove",
        ),
    ],
)
def test_matrices_without_full_row_rank_are_refused(matrix, message):
    with pytest.raises(ValueError, match=message):
        GeneralizedL1(matrix, 1.0)


def test_rows_that_the_metric_cannot_tell_apart_are_refused():
    penalty = GeneralizedL1([[1.0, 0.0], [1.0, 1e-12]], 1.0)
    with pytest.raises(ValueError, match="depend on each other in this metric up to rounding"):
        penalty.proximal_operator(1.0)


@pytest.mark.parametrize("order", [1, 2, 5])
def test_differences_are_those_of_numpy_and_have_names(order):
    w, matrix = np.random.default_rng(0).normal(size=(9, 2)), difference_matrix(9, order)
    assert matrix.nnz == (9 - order) * (order + 1)
    np.testing.assert_allclose(matrix @ w, np.diff(w, n=order, axis=0), atol=1e-13)
    name = {1: "fused", 2: "trend"}.get(order)
    if name:
        assert (named_penalty_matrix(name, 9) != matrix).nnz == 0
        assert named_penalty_matrix(name, order).shape == (0, order)


def test_differences_that_do_not_exist_are_refused():
    for order in (0, 3):
        with pytest.raises(ValueError, match=f"Got order={order} .* below the number of features"):
            difference_matrix(3, order)
    with pytest.raises(ValueError, match=r"Got name='wavelet', expected one of \['fused', "):
        named_penalty_matrix("wavelet", 3)
