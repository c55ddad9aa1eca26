"""The contract of the penalties: values, proximal operators in every metric, limits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from skdpadmm.penalties import L1, ElasticNet, NoPenalty, SquaredL2

PENALTIES = [NoPenalty(), L1(0.7), SquaredL2(0.6), ElasticNet(l1=0.5, l2=0.3)]
SEEDS = st.integers(0, 2**32 - 1)


def l1_of(penalty):
    return {L1: lambda: penalty.strength, ElasticNet: lambda: penalty.l1}.get(
        type(penalty), lambda: 0.0
    )()


def spd(rng, p, condition):
    basis = np.linalg.qr(rng.normal(size=(p, p)))[0]
    matrix = (basis * np.geomspace(1, 1 / condition, p)) @ basis.T
    return 0.5 * (matrix + matrix.T)


def kkt_residual(penalty, v, step, metric, w):
    """Distance of 0 from the subdifferential at w, per coordinate."""
    gradient = metric @ (w - v) / step + penalty.strong_convexity * w
    on_support = np.abs(gradient + l1_of(penalty) * np.sign(w))
    off_support = np.maximum(np.abs(gradient) - l1_of(penalty), 0)
    return np.where(w != 0, on_support, off_support).max()


@pytest.fixture(params=PENALTIES, ids=repr)
def penalty(request):
    return request.param


def test_values_are_those_of_the_formulas():
    coef = np.array([[1.0, -2.0], [0.0, 3.0]])
    assert NoPenalty().value(coef) == 0
    assert L1(2.0).value(coef) == 12
    assert SquaredL2(2.0).value(coef) == 14
    assert ElasticNet(l1=2.0, l2=2.0).value(coef) == 26


def test_scaling_multiplies_the_value(penalty):
    coef = np.array([0.3, -2.0])
    assert penalty.scaled(2.5).value(coef) == pytest.approx(2.5 * penalty.value(coef), rel=1e-15)
    assert type(penalty.scaled(2.5)) is type(penalty)
    assert penalty.scaled(2.5).strong_convexity == 2.5 * penalty.strong_convexity
    assert penalty.scaled(1) == penalty


def test_equal_strengths_make_equal_penalties():
    assert ElasticNet(l1=1.0, l2=2.0) == ElasticNet(l1=1.0, l2=2.0) != ElasticNet(l1=2.0, l2=1.0)
    assert len({L1(1.0), L1(1.0), SquaredL2(1.0), NoPenalty()}) == 3


def test_strong_convexity_is_the_squared_part():
    assert [p.strong_convexity for p in PENALTIES] == [0, 0, 0.6, 0.3]


@pytest.mark.parametrize("strength", [-1.0, np.inf, np.nan])
def test_strengths_outside_their_range_are_refused(strength):
    with pytest.raises(ValueError, match=r"Got strength=.*, expected a float in \[0, inf\)\."):
        L1(strength)
    with pytest.raises(ValueError, match="Got strength="):
        SquaredL2(strength)
    with pytest.raises(ValueError, match="Got l1="):
        ElasticNet(l1=strength, l2=0.0)
    with pytest.raises(ValueError, match="Got l2="):
        ElasticNet(l1=0.0, l2=strength)
    with pytest.raises(ValueError, match="Got factor="):
        NoPenalty().scaled(strength)


@pytest.mark.parametrize("step", [0.0, -1.0, np.inf, np.nan])
def test_a_step_outside_its_range_is_refused(penalty, step):
    with pytest.raises(ValueError, match=r"Got step=.*, expected a float in \(0, inf\)\."):
        penalty.prox(np.ones(2), step)


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        (np.ones(3), "shape"),
        (np.eye(3), "shape"),
        (np.ones((2, 2, 2)), "shape"),
        (np.array([1.0, 0.0]), "entries"),
        (np.array([1.0, np.nan]), "entries"),
        (np.array([[1.0, 0.5], [0.0, 1.0]]), "not symmetric"),
        (np.array([[1.0, np.inf], [np.inf, 1.0]]), "infinite"),
        (np.diag([1.0, -5.0]), "not positive definite"),
    ],
)
def test_an_unfit_metric_is_refused(penalty, metric, message):
    with pytest.raises(ValueError, match=message):
        penalty.prox(np.ones(2), 1.0, metric)


@settings(max_examples=30, deadline=None)
@given(seed=SEEDS, p=st.integers(1, 5), log_step=st.floats(-2, 2))
def test_prox_is_the_numerical_minimiser(seed, p, log_step):
    rng = np.random.default_rng(seed)
    v, step, metric = 3 * rng.normal(size=p), 10**log_step, spd(rng, p, 30.0)
    for penalty in PENALTIES:
        w = penalty.prox(v, step, metric)

        def objective(w, penalty=penalty):
            return penalty.value(w) + (w - v) @ metric @ (w - v) / (2 * step)

        # The split into positive and negative parts makes the problem smooth.
        def split(x, penalty=penalty):
            w = x[:p] - x[p:]
            slope = metric @ (w - v) / step + penalty.strong_convexity * w
            value = 0.5 * penalty.strong_convexity * w @ w + l1_of(penalty) * x.sum()
            value += (w - v) @ metric @ (w - v) / (2 * step)
            return value, np.concatenate([slope, -slope]) + l1_of(penalty)

        start = np.concatenate([np.maximum(v, 0), np.maximum(-v, 0)])
        best = minimize(split, start, jac=True, bounds=[(0, None)] * (2 * p), tol=1e-12)
        assert objective(w) <= best.fun + 1e-9 * (1 + best.fun)
        for _ in range(5):
            other = w + 10 ** rng.uniform(-4, 0) * rng.normal(size=p)
            assert objective(w) <= objective(other) + 1e-12 * (1 + objective(other))


@given(seed=SEEDS, p=st.integers(1, 12), log_condition=st.floats(0, 6))
@settings(max_examples=30, deadline=None)
def test_prox_is_firmly_non_expansive_in_the_metric(seed, p, log_condition):
    rng = np.random.default_rng(seed)
    metric, first, second = spd(rng, p, 10**log_condition), rng.normal(size=p), rng.normal(size=p)
    for penalty in PENALTIES:
        moved = penalty.prox(first, 0.5, metric) - penalty.prox(second, 0.5, metric)
        assert moved @ metric @ moved <= moved @ metric @ (first - second) + 1e-10


@given(seed=SEEDS, strength=st.floats(0.01, 3))
def test_moreau_decomposition_of_the_l1_norm(seed, strength):
    v = 3 * np.random.default_rng(seed).normal(size=6)
    # The conjugate of the l1 norm is the indicator of a box, its prox the projection.
    np.testing.assert_allclose(
        L1(strength).prox(v, 2.0) + np.clip(v, -2 * strength, 2 * strength), v, atol=1e-14
    )


@pytest.mark.parametrize("shape", [(1,), (7,), (4, 3), (1, 3), (4, 1)])
def test_all_forms_of_one_metric_agree(penalty, shape):
    rng = np.random.default_rng(0)
    v = 2 * rng.normal(size=shape)
    weights = rng.uniform(0.2, 5.0, size=shape[0])
    columns = v.size // shape[0]
    diagonal = penalty.prox(v, 0.8, weights)
    assert diagonal.shape == shape
    full = penalty.prox(v, 0.8, np.diag(np.repeat(weights, columns)))
    np.testing.assert_allclose(full, diagonal, atol=1e-13)
    np.testing.assert_array_equal(full == 0, diagonal == 0)
    identity = penalty.prox(v, 0.8)
    np.testing.assert_array_equal(penalty.prox(v, 0.8, np.ones(shape[0])), identity)
    np.testing.assert_allclose(penalty.prox(v, 0.8, np.eye(v.size)), identity, atol=1e-13)


def test_columns_are_coupled_by_a_full_metric(penalty):
    rng = np.random.default_rng(1)
    v, metric = rng.normal(size=(3, 2)), spd(rng, 6, 10.0)
    w = penalty.prox(v, 0.8, metric)
    assert w.shape == (3, 2)
    np.testing.assert_array_equal(w.ravel(), penalty.prox(v.ravel(), 0.8, metric))
    assert kkt_residual(penalty, v.ravel(), 0.8, metric, w.ravel()) < 1e-12


def test_closed_forms_in_the_identity_metric():
    v = np.array([3.0, -0.2, -4.0])
    np.testing.assert_allclose(L1(0.5).prox(v, 2.0), [2.0, 0.0, -3.0])
    np.testing.assert_allclose(SquaredL2(0.5).prox(v, 2.0), v / 2)
    np.testing.assert_allclose(ElasticNet(l1=0.5, l2=0.5).prox(v, 2.0), [1.0, 0.0, -1.5])
    assert not np.signbit(L1(0.5).prox(v, 2.0)[1])


@pytest.mark.parametrize("metric", [None, "diagonal", "full"])
def test_strength_zero_is_the_identity(metric):
    rng = np.random.default_rng(0)
    v = rng.normal(size=6)
    metric = {None: None, "diagonal": rng.uniform(1, 2, 6), "full": spd(rng, 6, 1e8)}[metric]
    for penalty in (NoPenalty(), L1(0.0), SquaredL2(0.0), ElasticNet(l1=0.0, l2=0.0)):
        np.testing.assert_array_equal(penalty.prox(v, 3.0, metric), v)


def test_limits_of_the_elastic_net():
    rng = np.random.default_rng(0)
    v, metric = rng.normal(size=6), spd(rng, 6, 100.0)
    for m in (None, metric):
        lasso, ridge = L1(0.05).prox(v, 1.0, m), SquaredL2(0.4).prox(v, 1.0, m)
        np.testing.assert_array_equal(ElasticNet(l1=0.05, l2=0.0).prox(v, 1.0, m), lasso)
        np.testing.assert_array_equal(ElasticNet(l1=0.0, l2=0.4).prox(v, 1.0, m), ridge)


def test_a_strong_l1_penalty_gives_exact_zeros():
    rng = np.random.default_rng(0)
    v, metric = rng.normal(size=8), spd(rng, 8, 100.0)
    largest = np.abs(metric @ v).max()
    np.testing.assert_array_equal(L1(1.0001 * largest).prox(v, 1.0, metric), np.zeros(8))
    assert np.count_nonzero(L1(0.999 * largest).prox(v, 1.0, metric)) == 1
    np.testing.assert_array_equal(L1(1.0).prox(np.zeros(8), 1.0, metric), np.zeros(8))


@pytest.mark.parametrize("p", [1, 2, 10, 60])
@pytest.mark.parametrize("condition", [1.0, 1e4, 1e8])
@pytest.mark.parametrize("fraction", [1e-6, 0.01, 0.3, 0.9])
def test_optimality_conditions_hold_in_ill_conditioned_metrics(p, condition, fraction):
    rng = np.random.default_rng(0)
    for step in (1e-3, 1.0, 1e3):
        metric = spd(rng, p, condition)
        v = rng.normal(size=p)
        scale = np.abs(metric @ v).max() / step
        for penalty in (L1(fraction * scale), ElasticNet(l1=fraction * scale, l2=1e-4 * scale)):
            w = penalty.prox(v, step, metric)
            assert kkt_residual(penalty, v, step, metric, w) < 1e-9 * scale


def test_optimality_where_the_point_lies_along_the_flattest_direction():
    rng = np.random.default_rng(0)
    metric = spd(rng, 30, 1e8)
    values, vectors = np.linalg.eigh(metric)
    v = vectors[:, 0]
    penalty = L1(0.1 * values[0])
    w = penalty.prox(v, 1.0, metric)
    # The gradient itself is 1e-8 of the metric, so rounding leaves it about 1e-8 relative.
    assert kkt_residual(penalty, v, 1.0, metric, w) < 1e-13


def test_duplicated_features_in_a_nearly_singular_metric():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(50, 5))
    x = np.hstack([x, x])
    metric = x.T @ x + 1e-6 * np.eye(10)
    v = rng.normal(size=10)
    penalty = L1(5.0)
    w = penalty.prox(v, 1.0, metric)
    assert kkt_residual(penalty, v, 1.0, metric, w) < 1e-9 * np.abs(metric @ v).max()


def test_arguments_are_left_alone(penalty):
    rng = np.random.default_rng(0)
    v, metric = rng.normal(size=4), spd(rng, 4, 10.0)
    copies = v.copy(), metric.copy()
    for m in (None, np.ones(4), metric):
        result = penalty.prox(v, 1.0, m)
        assert not np.shares_memory(result, v)
    np.testing.assert_array_equal(v, copies[0])
    np.testing.assert_array_equal(metric, copies[1])
