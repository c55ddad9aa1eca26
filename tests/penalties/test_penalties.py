"""The contract of the penalties: values, proximal operators in every metric, limits."""

import dataclasses
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from skdpadmm.penalties import (
    L1,
    ElasticNet,
    GeneralizedL1,
    NoPenalty,
    SquaredL2,
    difference_matrix,
    named_penalty_matrix,
)
from skdpadmm.penalties._piecewise import PiecewiseQuadratic

ELASTIC = [NoPenalty(), L1(0.7), SquaredL2(0.6), ElasticNet(l1=0.5, l2=0.3)]
KINDS = [*map(repr, ELASTIC), "fused", "trend", "third", "dense", "tri"]
SEEDS = st.integers(0, 2**32 - 1)


def penalties(p):
    """One penalty of each kind for p features, in the order of `KINDS`."""
    rows = [named_penalty_matrix("fused", p), named_penalty_matrix("trend", p)]
    rows.append(difference_matrix(p, 3) if p > 3 else rows[0])
    rows.append(np.random.default_rng(p).normal(size=((p + 1) // 2, p)))
    rows.append(np.eye(p) + 0.3 * np.tri(p, k=-1))
    return [*ELASTIC, *(GeneralizedL1(r, 0.4) for r in rows)]


@pytest.fixture(params=range(len(KINDS)), ids=KINDS)
def make(request):
    """The penalty for a number of features: those with a matrix depend on it."""
    return lambda p: penalties(p)[request.param]


def is_zero(penalty):
    return penalty.splitting()[1] == NoPenalty()


def spd(rng, p, condition):
    basis = np.linalg.qr(rng.normal(size=(p, p)))[0]
    matrix = (basis * np.geomspace(1, 1 / condition, p)) @ basis.T
    return 0.5 * (matrix + matrix.T)


def kkt_residual(penalty, v, step, metric, w):
    """Distance of 0 from the subdifferential at w, per coordinate."""
    gradient = metric @ (w - v) / step + penalty.strong_convexity * w
    if isinstance(penalty, GeneralizedL1):
        rows, level = penalty.matrix.toarray(), penalty.strength
        image = rows @ w
        # Small entries that are equal differ by a rounding error of the largest one.
        free = np.abs(image) <= 1e-12 * (np.abs(rows) @ (np.abs(w) + np.abs(v))).max(initial=0)
        gradient = gradient + level * np.sign(image[~free]) @ rows[~free]
        forces = np.linalg.lstsq(rows[free].T, -gradient, rcond=None)[0]
        return np.abs(gradient + np.clip(forces, -level, level) @ rows[free]).max()
    level = getattr(penalty, "l1", penalty.strength if isinstance(penalty, L1) else 0.0)
    off_support = np.maximum(np.abs(gradient) - level, 0)
    return np.where(w != 0, np.abs(gradient + level * np.sign(w)), off_support).max()


@settings(max_examples=60)
@given(
    seed=SEEDS,
    p=st.integers(1, 30),
    log_step=st.floats(-3, 3),
    log_condition=st.floats(0, 8),
    log_strength=st.floats(-6, 0),
    choice=st.tuples(st.booleans(), st.booleans()),
)
def test_optimality_conditions_hold_in_every_metric(
    seed, p, log_step, log_condition, log_strength, choice
):
    rng, step = np.random.default_rng(seed), 10**log_step
    flattest, guesses_fail = choice
    metric = spd(rng, p, 10**log_condition)
    v = np.linalg.eigh(metric)[1][:, 0] if flattest else 3 * rng.normal(size=p)
    spread = np.geomspace(1, 10**log_condition, p)
    with pytest.MonkeyPatch.context() as patch:
        if guesses_fail:  # the safe method has to find what was guessed
            patch.setattr(PiecewiseQuadratic, "guess", lambda self: None)
        for form, m in ((None, np.eye(p)), (spread, np.diag(spread)), (metric, metric)):
            level = 10**log_strength * np.abs(m @ v).max() / step
            for penalty in penalties(p):
                penalty = penalty.scaled(level)
                w = penalty.prox(v, step, form)
                rounding = (np.abs(m) @ (np.abs(v) + np.abs(w))).max() / step
                assert kkt_residual(penalty, v, step, m, w) <= 1e-12 * rounding


@pytest.mark.parametrize("shape", [(1,), (7,), (6, 3), (1, 3)])
def test_all_forms_of_a_metric_agree_and_columns_are_problems_of_their_own(make, shape):
    rng, p = np.random.default_rng(0), shape[0]
    penalty, v, weights = make(p), 2 * rng.normal(size=shape), rng.uniform(0.2, 5.0, size=p)
    forms = [(None, [np.ones(p), np.eye(p)]), (weights, [np.diag(weights)]), (spd(rng, p, 1e4), [])]
    for metric, others in forms:
        operator, before = penalty.proximal_operator(0.8, metric), v.copy()
        w = operator(v)
        assert w.shape == shape
        assert not np.shares_memory(w, v)
        for other in others:
            np.testing.assert_allclose(penalty.prox(v, 0.8, other), w, atol=1e-9)
        for k in range(v.shape[1] if v.ndim == 2 else 0):
            np.testing.assert_allclose(operator(v[:, k].copy()), w[:, k], atol=1e-9)
        # A result depends on its argument alone, which is left as it is.
        operator(10 * rng.normal(size=shape))
        np.testing.assert_allclose(operator(v), w, rtol=1e-12)
        np.testing.assert_array_equal(v, before)


def test_values_are_those_of_the_formulas():
    coef = np.array([[1.0, -2.0], [0.0, 3.0]])
    penalties = [*ELASTIC, GeneralizedL1([[1.0, -1.0]], 2.0)]
    values = [penalty.value(coef) for penalty in penalties]
    np.testing.assert_allclose(values, [0.0, 0.7 * 6, 0.3 * 14, 0.5 * 6 + 0.15 * 14, 12.0])


def test_scaling_multiplies_the_value_and_equal_strengths_make_equal_penalties(make):
    penalty, coef = make(4), np.full(4, 0.1)
    scaled = penalty.scaled(2.5)
    assert scaled.value(coef) == pytest.approx(2.5 * penalty.value(coef), rel=1e-14)
    assert type(scaled) is type(penalty)
    assert scaled.strong_convexity == 2.5 * penalty.strong_convexity
    assert (scaled == penalty) == is_zero(penalty)
    for same in (make(4), penalty.scaled(1), pickle.loads(pickle.dumps(penalty))):
        assert (same, hash(same)) == (penalty, hash(penalty))


def test_strong_penalties_give_exact_zeros_one_by_one():
    assert [p.strong_convexity for p in ELASTIC] == [0, 0, 0.6, 0.3]
    assert [p.is_sparse for p in ELASTIC] == [False, True, False, True]
    rng = np.random.default_rng(0)
    v, metric = rng.normal(size=8), spd(rng, 8, 100.0)
    largest = np.abs(metric @ v).max()
    assert not L1(1.0001 * largest).prox(v, 1.0, metric).any()
    assert np.count_nonzero(L1(0.999 * largest).prox(v, 1.0, metric)) == 1


@pytest.mark.parametrize("size", [1e-200, 1e200])
def test_points_of_extreme_size_have_finite_results(make, size):
    v = np.array([size, -size, 1.0, 0.0, -1.0, size])
    for metric in (None, np.linspace(0.5, 2, 6)):
        assert np.isfinite(make(6).prox(v, 1.0, metric)).all()


METRICS = [
    (np.ones(3), "coefficients, expected"),
    (np.array([[1.0, 0.5], [0.0, 1.0]]), "not symmetric"),
    (np.diag([1.0, -5.0]), "not positive definite"),
]


def test_steps_factors_and_metrics_without_meaning_are_refused(make):
    penalty = make(2)
    for step in (0.0, np.nan):
        with pytest.raises(ValueError, match=r"Got step=.* in \(0, inf\)\."):
            penalty.prox(np.ones(2), step)
    for factor in (-1.0, np.inf):
        with pytest.raises(ValueError, match=r"Got (factor|strength)=.* in \[0, inf\)\."):
            penalty.scaled(factor)
    # The identity in every metric spares the look at the matrix.
    for metric, message in METRICS[: 1 if is_zero(penalty) else None]:
        with pytest.raises(ValueError, match=message):
            penalty.prox(np.ones(2), 1.0, metric)


def test_another_number_of_features_is_refused_and_so_are_strengths_without_meaning():
    penalty = GeneralizedL1(np.eye(3), 1.0)
    calls = [lambda m=m: penalty.prox(np.ones((4, 2)), 1.0, m) for m in (None, np.ones(4))]
    for call in (*calls, lambda: penalty.value(np.ones(4))):
        with pytest.raises(ValueError, match="Got 4 coefficients, expected 3"):
            call()
    for make in (L1, SquaredL2, lambda bad: ElasticNet(0.0, bad), lambda bad: ElasticNet(bad, 0.0)):
        for bad in (-1.0, np.nan):
            with pytest.raises(ValueError, match=r"Got (strength|l1|l2)=.* in \[0, inf\)"):
                make(bad)


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
        ([[1.0, 2.0], [2.0, 4.0]], "and rank 1, expected rank 2. Remove"),
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
