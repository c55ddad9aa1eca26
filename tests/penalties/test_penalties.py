"""The contract of the penalties: values, proximal operators in every metric, limits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from skdpadmm.penalties import (
    L1,
    Box,
    ElasticNet,
    GeneralizedL1,
    GroupLasso,
    NonNegative,
    NoPenalty,
    SquaredL2,
    named_penalty_matrix,
)
from skdpadmm.penalties._piecewise import PiecewiseLinear, descend

ELASTIC = [NoPenalty(), L1(0.7), SquaredL2(0.6), ElasticNet(l1=0.5, l2=0.3)]
CONSTRAINTS = [Box(-0.4, 0.9), Box(-np.inf, 0.2), Box(0.1, 0.1), NonNegative()]
KINDS = [*map(repr, [*ELASTIC, *CONSTRAINTS]), "GroupLasso", "fused", "trend", "dense"]
SEEDS = st.integers(0, 2**32 - 1)


def groups_of(p):
    """Groups of one to three features, not in order."""
    order, groups = np.argsort(np.arange(p) * 5 % 7, kind="stable").tolist(), []
    while order:
        size = 1 + len(groups) % 3
        groups.append(tuple(order[:size]))
        order = order[size:]
    return tuple(groups)


def generalized(p):
    """Penalties of linear images: differences, of which one feature has none, and another."""
    dense = np.random.default_rng(p).normal(size=((p + 1) // 2, p))
    matrices = [named_penalty_matrix("fused", p), named_penalty_matrix("trend", p), dense]
    return [GeneralizedL1(matrix, 0.4) for matrix in matrices]


def penalties(p):
    """One penalty of each kind for p features."""
    return [*ELASTIC, *CONSTRAINTS, GroupLasso(0.45, groups_of(p)), *generalized(p)]


def is_zero(penalty):
    """Whether the penalty is zero everywhere, as differences of too few features are."""
    return penalty == NoPenalty() or penalty.splitting()[1] == NoPenalty()


@pytest.fixture(params=range(len(KINDS)), ids=KINDS)
def make(request):
    """The penalty for a number of features: those with groups or a matrix depend on it."""
    return lambda p: penalties(p)[request.param]


def bounds_of(penalty):
    return (0.0, np.inf) if isinstance(penalty, NonNegative) else (penalty.lower, penalty.upper)


def l1_of(penalty):
    return {L1: lambda: penalty.strength, ElasticNet: lambda: penalty.l1}.get(
        type(penalty), lambda: 0.0
    )()


def spd(rng, p, condition):
    basis = np.linalg.qr(rng.normal(size=(p, p)))[0]
    matrix = (basis * np.geomspace(1, 1 / condition, p)) @ basis.T
    return 0.5 * (matrix + matrix.T)


def objective(penalty, v, step, metric, w):
    return penalty.value(w) + (w - v) @ metric @ (w - v) / (2 * step)


def kkt_residual(penalty, v, step, metric, w):
    """Distance of 0 from the subdifferential at w, per coordinate or group."""
    gradient = metric @ (w - v) / step + penalty.strong_convexity * w
    if isinstance(penalty, Box | NonNegative):
        low, high = bounds_of(penalty)
        assert ((low <= w) & (w <= high)).all()
        up, down = np.maximum(gradient, 0), np.maximum(-gradient, 0)
        return np.where(w == low, down * (w < high), np.where(w == high, up, up + down)).max()
    if isinstance(penalty, GroupLasso):
        residuals = []
        for group in map(list, penalty.groups):
            level, norm = penalty.strength * np.sqrt(len(group)), np.linalg.norm(w[group])
            if norm > 0:
                residuals.append(np.linalg.norm(gradient[group] + level * w[group] / norm))
            else:
                residuals.append(max(np.linalg.norm(gradient[group]) - level, 0))
        return max(residuals)
    if isinstance(penalty, GeneralizedL1):
        rows, level = penalty.matrix.toarray(), penalty.strength
        image = rows @ w
        free = np.abs(image) <= 1e-12 * (np.abs(rows) @ (np.abs(w) + np.abs(v)))
        gradient = gradient + level * np.sign(image[~free]) @ rows[~free]
        forces = np.linalg.lstsq(rows[free].T, -gradient, rcond=None)[0]
        return np.abs(gradient + np.clip(forces, -level, level) @ rows[free]).max()
    on_support = np.abs(gradient + l1_of(penalty) * np.sign(w))
    off_support = np.maximum(np.abs(gradient) - l1_of(penalty), 0)
    return np.where(w != 0, on_support, off_support).max()


def numerical_minimum(penalty, v, step, metric):
    """Value of a smooth problem with bounds that has the same minimum."""
    p = v.size

    def quadratic(w):
        slope = metric @ (w - v) / step + penalty.strong_convexity * w
        return 0.5 * penalty.strong_convexity * w @ w + (w - v) @ metric @ (w - v) / (
            2 * step
        ), slope

    options = {"jac": True, "tol": 1e-12}
    if isinstance(penalty, Box | NonNegative):
        low, high = bounds_of(penalty)
        start = np.clip(v, low, high)
        return minimize(quadratic, start, bounds=[(low, high)] * p, **options).fun
    if isinstance(penalty, GroupLasso):
        # Norms with a rounded tip lie above norms by at most its size.
        def rounded(w):
            value, slope = quadratic(w)
            for group in map(list, penalty.groups):
                level = penalty.strength * np.sqrt(len(group))
                norm = np.hypot(np.linalg.norm(w[group]), 1e-5)
                value += level * norm
                slope[group] += level * w[group] / norm
            return value, slope

        return minimize(rounded, v, **options).fun
    if isinstance(penalty, GeneralizedL1):
        if is_zero(penalty):
            return 0.0
        # The dual is smooth, and as large.
        rows = penalty.matrix.toarray()
        inner, force = step * rows @ np.linalg.solve(metric, rows.T), rows @ v
        bounds = [(-penalty.strength, penalty.strength)] * len(rows)
        found = minimize(
            lambda u: (0.5 * u @ inner @ u - force @ u, inner @ u - force),
            np.zeros(len(rows)),
            bounds=bounds,
            **options | {"options": {"ftol": 1e-15, "gtol": 1e-12}},
        )
        return -found.fun

    # The split into positive and negative parts makes the problem smooth.
    def split(x):
        value, slope = quadratic(x[:p] - x[p:])
        value += l1_of(penalty) * x.sum()
        return value, np.concatenate([slope, -slope]) + l1_of(penalty)

    start = np.concatenate([np.maximum(v, 0), np.maximum(-v, 0)])
    return minimize(split, start, bounds=[(0, None)] * (2 * p), **options).fun


def test_values_are_those_of_the_formulas():
    coef = np.array([[1.0, -2.0], [0.0, 3.0]])
    assert NoPenalty().value(coef) == 0
    assert L1(2.0).value(coef) == 12
    assert SquaredL2(2.0).value(coef) == 14
    assert ElasticNet(l1=2.0, l2=2.0).value(coef) == 26
    assert Box(-2.0, 3.0).value(coef) == NonNegative().value(np.abs(coef)) == 0
    assert Box(-1.9, 3.0).value(coef) == Box(-2.0, 2.9).value(coef) == np.inf
    assert NonNegative().value(coef) == np.inf
    # One norm per group and column.
    expected = 2.0 * np.sqrt(2.0) * (1.0 + np.sqrt(13.0))
    assert GroupLasso(2.0, ((0, 1),)).value(coef) == pytest.approx(expected, rel=1e-15)
    assert GroupLasso(2.0, ((1,), (0,))).value(coef) == pytest.approx(12.0, rel=1e-15)


@pytest.mark.parametrize("scale", [0.3, 7.7, 1e-5])
def test_a_change_of_units_and_back_does_not_leave_the_box(scale):
    box = Box(-0.1, 0.7)
    w = box.prox(np.random.default_rng(0).normal(size=100), 1.0)
    assert box.value(w / scale * scale * (1 + 1e-15)) == 0
    assert box.value(w * (1 + 1e-9)) == np.inf


def test_scaling_multiplies_the_value(make):
    penalty, coef = make(2), np.array([0.1, 0.1])
    assert penalty.scaled(2.5).value(coef) == pytest.approx(2.5 * penalty.value(coef), rel=1e-15)
    assert type(penalty.scaled(2.5)) is type(penalty)
    assert penalty.scaled(2.5).strong_convexity == 2.5 * penalty.strong_convexity
    assert penalty.scaled(1) == penalty


@pytest.mark.parametrize("factor", [0.0, 1e-9, 3.0])
def test_a_constraint_has_no_strength(factor):
    for constraint in CONSTRAINTS:
        assert constraint.scaled(factor) == constraint


def test_equal_strengths_make_equal_penalties(make):
    assert ElasticNet(l1=1.0, l2=2.0) == ElasticNet(l1=1.0, l2=2.0) != ElasticNet(l1=2.0, l2=1.0)
    assert len({L1(1.0), L1(1.0), SquaredL2(1.0), NoPenalty()}) == 3
    assert Box(0.0, 1.0) == Box(0, 1) != Box(0.0, 2.0)
    assert GroupLasso(1.0, [[0, 1], np.array([2])]) == GroupLasso(1.0, ((0, 1), (2,)))
    assert make(4) == make(4)
    assert hash(make(4)) == hash(make(4))


def test_strong_convexity_is_the_squared_part():
    assert [p.strong_convexity for p in penalties(4)] == [0, 0, 0.6, 0.3, *[0] * 8]


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
    with pytest.raises(ValueError, match="Got strength="):
        GroupLasso(strength, ((0,),))
    with pytest.raises(ValueError, match="Got strength="):
        GeneralizedL1(np.eye(2), strength)
    for penalty in penalties(2):
        with pytest.raises(ValueError, match=r"Got (factor|strength)="):
            penalty.scaled(strength)


@pytest.mark.parametrize(
    ("lower", "upper"),
    [(1.0, 0.0), (np.inf, np.inf), (-np.inf, -np.inf), (np.nan, 0.0), (0.0, np.nan)],
)
def test_bounds_that_cannot_be_met_are_refused(lower, upper):
    with pytest.raises(ValueError, match=r"Got lower=.* and upper=.*, expected lower <= upper"):
        Box(lower, upper)


@pytest.mark.parametrize(
    "groups", [(), ((0, 1), ()), ((0, 1), (1, 2)), ((0, 2),), ((1, 2),), ((-1, 0),), ((0, 0, 1),)]
)
def test_groups_that_are_no_partition_are_refused(groups):
    with pytest.raises(ValueError, match=r"Got groups=.*, expected each of the features"):
        GroupLasso(1.0, groups)
    with pytest.raises(TypeError):
        GroupLasso(1.0, ((0.5,),))


@pytest.mark.parametrize("metric", [None, np.ones(4), np.eye(4), np.eye(8)])
def test_a_group_lasso_refuses_another_number_of_features(metric):
    penalty = GroupLasso(1.0, ((0, 1, 2),))
    with pytest.raises(ValueError, match=r"Got .*expected .*`groups`"):
        penalty.prox(np.ones((4, 2)), 1.0, metric)
    with pytest.raises(ValueError, match="Got 4 coefficients, expected 3"):
        penalty.value(np.ones(4))


@pytest.mark.parametrize("step", [0.0, -1.0, np.inf, np.nan])
def test_a_step_outside_its_range_is_refused(make, step):
    with pytest.raises(ValueError, match=r"Got step=.*, expected a float in \(0, inf\)\."):
        make(2).proximal_operator(step)


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        (np.ones(3), "shape"),
        (np.eye(3), "shape"),
        (np.eye(4), "shape"),
        (np.ones((2, 3)), "shape"),
        (np.ones((2, 2, 2)), "shape"),
        (np.array([1.0, 0.0]), "entries"),
        (np.array([1.0, np.nan]), "entries"),
    ],
)
def test_a_metric_that_does_not_fit_is_refused(make, metric, message):
    with pytest.raises(ValueError, match=message):
        make(2).prox(np.ones(2), 1.0, metric)


@pytest.mark.parametrize("shape", [(2,), (2, 3)])
def test_an_operator_refuses_points_that_do_not_suit_its_metric(make, shape):
    for metric in (np.ones(5), np.eye(5)):
        with pytest.raises(ValueError, match="Got"):
            make(5).proximal_operator(1.0, metric)(np.ones(shape))


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        (np.array([[1.0, 0.5], [0.0, 1.0]]), "not symmetric"),
        (np.array([[1.0, np.inf], [np.inf, 1.0]]), "infinite"),
        (np.array([[1.0, np.nan], [np.nan, 1.0]]), "infinite"),
        (np.diag([1.0, -5.0]), "not positive definite"),
    ],
)
def test_a_matrix_that_is_no_metric_is_refused(make, metric, message):
    penalty = make(2)
    if is_zero(penalty):
        # Its operator is the identity in every metric, and spares the look at the matrix.
        np.testing.assert_array_equal(penalty.prox(np.ones(2), 1.0, metric), np.ones(2))
    else:
        with pytest.raises(ValueError, match=message):
            penalty.proximal_operator(1.0, metric)


@settings(max_examples=30, deadline=None)
@given(seed=SEEDS, p=st.integers(1, 6), log_step=st.floats(-2, 2), form=st.integers(0, 2))
def test_prox_is_the_numerical_minimiser(seed, p, log_step, form):
    rng = np.random.default_rng(seed)
    v, step = 3 * rng.normal(size=p), 10**log_step
    diagonal = rng.uniform(0.1, 3.0, size=p)
    argument = [None, diagonal, spd(rng, p, 30.0)][form]
    metric = [np.eye(p), np.diag(diagonal), argument][form]
    for penalty in penalties(p):
        w = penalty.prox(v, step, argument)
        value = objective(penalty, v, step, metric, w)
        best = numerical_minimum(penalty, v, step, metric)
        assert value <= best + 1e-9 * (1 + best)
        for _ in range(5):
            other = w + 10 ** rng.uniform(-4, 0) * rng.normal(size=p)
            if isinstance(penalty, Box | NonNegative):
                other = np.clip(other, *bounds_of(penalty))
            assert value <= objective(penalty, v, step, metric, other) + 1e-12 * (1 + value)


@settings(max_examples=60, deadline=None)
@given(seed=SEEDS, p=st.integers(1, 30), log_step=st.floats(-3, 3), log_condition=st.floats(0, 8))
def test_optimality_conditions_hold_in_every_metric(seed, p, log_step, log_condition):
    rng = np.random.default_rng(seed)
    v, step, metric = 3 * rng.normal(size=p), 10**log_step, spd(rng, p, 10**log_condition)
    for penalty in penalties(p):
        w = penalty.prox(v, step, metric)
        scale = (np.abs(metric) @ np.abs(v - w)).max() / step + 1
        assert kkt_residual(penalty, v, step, metric, w) < 1e-12 * scale
        weights = metric.diagonal().copy()
        w = penalty.prox(v, step, weights)
        scale = (weights * np.abs(v - w)).max() / step + 1
        assert kkt_residual(penalty, v, step, np.diag(weights), w) < 1e-12 * scale


@given(seed=SEEDS, p=st.integers(1, 6), log_condition=st.floats(0, 6))
@settings(max_examples=30, deadline=None)
def test_prox_is_firmly_non_expansive_in_the_metric(seed, p, log_condition):
    rng = np.random.default_rng(seed)
    metric, first, second = spd(rng, p, 10**log_condition), rng.normal(size=p), rng.normal(size=p)
    for penalty in penalties(p):
        operator = penalty.proximal_operator(0.5, metric)
        moved = operator(first) - operator(second)
        assert moved @ metric @ moved <= moved @ metric @ (first - second) + 1e-10


@pytest.mark.parametrize("shape", [(6,), (6, 3), (1, 2)])
@pytest.mark.parametrize("form", ["identity", "diagonal", "matrix"])
def test_an_operator_is_the_prox_at_every_point_whatever_came_before(make, shape, form):
    rng, p = np.random.default_rng(0), shape[0]
    metric = {
        "identity": None,
        "diagonal": rng.uniform(0.5, 2, size=p),
        "matrix": spd(rng, p, 1e4),
    }[form]
    penalty = make(p)
    operator = penalty.proximal_operator(0.7, metric)
    points = [10.0**e * rng.normal(size=shape) for e in (0, 1, -1, 0)]
    for v in [*points, *points[::-1]]:
        np.testing.assert_array_equal(operator(v), penalty.prox(v, 0.7, metric))


@pytest.mark.parametrize("shape", [(1, 3), (5, 1), (6, 2), (7, 4)])
@pytest.mark.parametrize("condition", [1.0, 100.0, 1e6])
def test_a_matrix_of_the_features_acts_on_every_column_alone(make, shape, condition):
    rng, (p, k) = np.random.default_rng(0), shape
    penalty, v, metric = make(p), rng.normal(size=shape), spd(rng, p, condition)
    together = penalty.prox(v, 0.8, metric)
    assert together.shape == shape
    alone = [penalty.prox(v[:, j].copy(), 0.8, metric) for j in range(k)]
    np.testing.assert_allclose(together, np.stack(alone, axis=1), atol=1e-14 * condition)
    joint = penalty.prox(v, 0.8, np.kron(metric, np.eye(k)))
    np.testing.assert_allclose(together, joint, atol=1e-13 * condition)
    np.testing.assert_array_equal(together == 0, joint == 0)


def test_columns_are_separate_problems_in_a_diagonal_metric(make):
    rng = np.random.default_rng(0)
    v, weights = rng.normal(size=(6, 3)), rng.uniform(0.2, 5, size=6)
    for metric in (None, weights):
        together = make(6).prox(v, 0.8, metric)
        for j in range(3):
            alone = make(6).prox(v[:, j].copy(), 0.8, metric)
            np.testing.assert_allclose(together[:, j], alone, atol=1e-15)


def test_all_points_are_feasible_and_projections_do_not_move_them():
    rng = np.random.default_rng(0)
    metric = spd(rng, 8, 1e6)
    for constraint in CONSTRAINTS:
        for m in (None, metric.diagonal().copy(), metric):
            operator = constraint.proximal_operator(1.0, m)
            w = operator(5 * rng.normal(size=(8, 3)))
            assert constraint.value(w) == 0
            np.testing.assert_array_equal(operator(w), w)


def test_the_step_does_not_matter_to_a_projection():
    rng = np.random.default_rng(0)
    v, metric = rng.normal(size=8), spd(rng, 8, 100.0)
    for constraint in CONSTRAINTS:
        w = constraint.prox(v, 1e-3, metric)
        np.testing.assert_array_equal(w, constraint.prox(v, 1e3, metric))


def test_non_negative_is_a_box_without_an_upper_bound():
    rng = np.random.default_rng(0)
    v, metric = rng.normal(size=(8, 2)), spd(rng, 8, 1e4)
    for m in (None, metric.diagonal().copy(), metric):
        np.testing.assert_array_equal(
            NonNegative().prox(v, 1.0, m), Box(0.0, np.inf).prox(v, 1.0, m)
        )


@pytest.mark.parametrize("metric", [None, "diagonal", "full"])
def test_groups_of_one_feature_make_a_lasso(metric):
    rng = np.random.default_rng(0)
    v = rng.normal(size=(12, 2))
    metric = {None: None, "diagonal": rng.uniform(1, 2, 12), "full": spd(rng, 12, 1e5)}[metric]
    singles = GroupLasso(0.03, tuple((j,) for j in range(12)))
    lasso, found = L1(0.03).prox(v, 1.0, metric), singles.prox(v, 1.0, metric)
    np.testing.assert_allclose(found, lasso, atol=1e-10)
    np.testing.assert_array_equal(found == 0, lasso == 0)


def test_a_group_lasso_selects_whole_groups():
    rng = np.random.default_rng(0)
    penalty, v = GroupLasso(0.2, groups_of(20)), rng.normal(size=(20, 3))
    for metric in (None, rng.uniform(0.1, 1, size=20), spd(rng, 20, 100.0)):
        w = penalty.prox(v, 1.0, metric)
        zero = [[(w[list(group), k] == 0).all() for k in range(3)] for group in penalty.groups]
        some = [[(w[list(group), k] == 0).any() for k in range(3)] for group in penalty.groups]
        assert zero == some
        assert 0 < np.sum(zero) < 3 * len(penalty.groups)


def test_the_order_of_features_within_groups_does_not_matter():
    rng = np.random.default_rng(0)
    v, metric = rng.normal(size=5), spd(rng, 5, 100.0)
    first = GroupLasso(0.05, ((0, 3), (1, 2, 4)))
    second = GroupLasso(0.05, ((4, 1, 2), (3, 0)))
    for m in (None, metric.diagonal().copy(), metric):
        w = first.prox(v, 1.0, m)
        np.testing.assert_allclose(w, second.prox(v, 1.0, m), atol=1e-12)


@pytest.mark.parametrize("spread", [1.0, 1e4, 1e12])
def test_the_scalar_equation_of_a_group_is_solved_for_all_weights(spread):
    rng = np.random.default_rng(0)
    weights, v = np.geomspace(1, spread, 9), rng.normal(size=9)
    norm = np.linalg.norm(weights * v)
    for fraction in (1e-12, 1e-3, 0.5, 1 - 1e-9):
        penalty = GroupLasso(fraction * norm / 3, (tuple(range(9)),))
        w = penalty.prox(v, 1.0, weights)
        assert kkt_residual(penalty, v, 1.0, np.diag(weights), w) < 1e-13 * norm
    assert not GroupLasso(norm / 3 * (1 + 1e-12), (tuple(range(9)),)).prox(v, 1.0, weights).any()


@pytest.mark.parametrize("p", [1, 2, 40])
@pytest.mark.parametrize("condition", [1.0, 1e4, 1e8])
@pytest.mark.parametrize("fraction", [1e-6, 0.01, 0.3, 0.9])
def test_constraints_and_groups_in_ill_conditioned_metrics(p, condition, fraction):
    rng = np.random.default_rng(0)
    for step in (1e-3, 1.0, 1e3):
        metric, v = spd(rng, p, condition), rng.normal(size=p)
        scale = np.abs(metric @ v).max() / step
        for penalty in (
            Box(-fraction, 2 * fraction),
            NonNegative(),
            GroupLasso(fraction * scale, groups_of(p)),
        ):
            w = penalty.prox(v, step, metric)
            rounding = 1e-13 * (np.abs(metric) @ (np.abs(v) + np.abs(w))).max() / step
            assert kkt_residual(penalty, v, step, metric, w) < rounding


@given(seed=SEEDS, strength=st.floats(0.01, 3))
def test_moreau_decomposition_of_the_l1_norm(seed, strength):
    v = 3 * np.random.default_rng(seed).normal(size=6)
    # The conjugate of the l1 norm is the indicator of a box, its prox the projection.
    np.testing.assert_allclose(
        L1(strength).prox(v, 2.0) + np.clip(v, -2 * strength, 2 * strength), v, atol=1e-14
    )


@pytest.mark.parametrize("shape", [(1,), (7,), (4, 3), (1, 3), (4, 1)])
def test_all_forms_of_one_metric_agree(make, shape):
    rng = np.random.default_rng(0)
    penalty = make(shape[0])
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
    each = penalty.prox(v, 0.8, np.diag(weights))
    np.testing.assert_allclose(each, diagonal, atol=1e-13)
    np.testing.assert_allclose(penalty.prox(v, 0.8, np.eye(v.size)), identity, atol=1e-13)


def test_columns_are_coupled_by_a_full_metric(make):
    rng = np.random.default_rng(1)
    v, metric = rng.normal(size=(3, 2)), spd(rng, 6, 10.0)
    penalty = make(3)
    w = penalty.prox(v, 0.8, metric)
    assert w.shape == (3, 2)
    if isinstance(penalty, GroupLasso):
        # A group of features is a group of the raveled array for each column.
        groups = tuple(tuple(2 * i + k for i in g) for g in penalty.groups for k in range(2))
        penalty = GroupLasso(penalty.strength, groups)
    if isinstance(penalty, GeneralizedL1):
        penalty = GeneralizedL1(np.kron(penalty.matrix.toarray(), np.eye(2)), penalty.strength)
    raveled = penalty.prox(v.ravel(), 0.8, metric)
    np.testing.assert_allclose(w.ravel(), raveled, atol=1e-15)
    assert kkt_residual(penalty, v.ravel(), 0.8, metric, w.ravel()) < 1e-12


def test_closed_forms_in_the_identity_metric():
    v = np.array([3.0, -0.2, -4.0])
    np.testing.assert_allclose(L1(0.5).prox(v, 2.0), [2.0, 0.0, -3.0])
    np.testing.assert_allclose(SquaredL2(0.5).prox(v, 2.0), v / 2)
    np.testing.assert_allclose(ElasticNet(l1=0.5, l2=0.5).prox(v, 2.0), [1.0, 0.0, -1.5])
    assert not np.signbit(L1(0.5).prox(v, 2.0)[1])
    np.testing.assert_array_equal(Box(-1.0, 2.0).prox(v, 2.0), [2.0, -0.2, -1.0])
    group = GroupLasso(0.5, ((0, 2), (1,))).prox(v, 2.0)
    np.testing.assert_allclose(group, v * [1 - np.sqrt(2) / 5, 0, 1 - np.sqrt(2) / 5])


@pytest.mark.parametrize("metric", [None, "diagonal", "full"])
def test_strength_zero_is_the_identity(metric):
    rng = np.random.default_rng(0)
    v = rng.normal(size=6)
    metric = {None: None, "diagonal": rng.uniform(1, 2, 6), "full": spd(rng, 6, 1e8)}[metric]
    zeros = GroupLasso(0.0, groups_of(6)), *(penalty.scaled(0.0) for penalty in generalized(6))
    for penalty in (NoPenalty(), L1(0.0), SquaredL2(0.0), ElasticNet(l1=0.0, l2=0.0), *zeros):
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


def test_arguments_are_left_alone(make):
    rng = np.random.default_rng(0)
    v, metric = rng.normal(size=4), spd(rng, 4, 10.0)
    copies = v.copy(), metric.copy()
    for m in (None, np.ones(4), metric):
        result = make(4).prox(v, 1.0, m)
        assert not np.shares_memory(result, v)
    np.testing.assert_array_equal(v, copies[0])
    np.testing.assert_array_equal(metric, copies[1])


@settings(max_examples=40, deadline=None)
@given(seed=SEEDS, p=st.integers(1, 25), log_condition=st.floats(0, 6))
def test_the_safe_method_reaches_the_minimiser_from_every_start(seed, p, log_condition):
    rng = np.random.default_rng(seed)
    v, metric = rng.normal(size=p), spd(rng, p, 10**log_condition)
    level = 0.05 * np.abs(metric @ v).max()
    lasso, walls = (
        PiecewiseLinear((0.0,), (-level, level)),
        PiecewiseLinear((-0.2, 0.3), (-np.inf, 0.0, np.inf)),
    )
    for pieces, penalty in ((lasso, L1(level)), (walls, Box(-0.2, 0.3))):
        expected = penalty.prox(v, 1.0, metric)
        start = 10 ** rng.uniform(-3, 2) * rng.normal(size=p) * rng.integers(0, 2, size=p)
        if penalty == Box(-0.2, 0.3):
            start = np.clip(start, -0.2, 0.3)
        begin = start.copy()
        found = descend(metric, np.zeros(p), pieces, v, start)
        np.testing.assert_array_equal(start, begin)
        np.testing.assert_allclose(found, expected, atol=1e-14 * 10 ** (log_condition + 1))


@pytest.mark.parametrize("condition", [10.0, 1e4, 1e8])
def test_results_do_not_depend_on_the_success_of_guesses(monkeypatch, condition):
    rng = np.random.default_rng(0)
    v, metric = rng.normal(size=(40, 2)), spd(rng, 40, condition)
    cases = [L1(1e-3), L1(0.03), ElasticNet(l1=0.01, l2=0.01), Box(-0.3, 0.4), NonNegative()]
    expected = [penalty.prox(v, 1.0, metric) for penalty in cases]
    monkeypatch.setattr("skdpadmm.penalties._prox.guess", lambda *_: None)
    for penalty, before in zip(cases, expected, strict=True):
        after = penalty.prox(v, 1.0, metric)
        np.testing.assert_allclose(after, before, rtol=1e-15 * condition, atol=1e-14)
        np.testing.assert_array_equal(after == 0, before == 0)


@pytest.mark.parametrize("size", [1e-200, 1e200])
def test_points_of_extreme_size_have_finite_results(make, size):
    rng = np.random.default_rng(0)
    v = np.array([size, -size, 1.0, 0.0, -1.0, size])
    for metric in (None, rng.uniform(0.5, 2, size=6)):
        assert np.isfinite(make(6).prox(v, 1.0, metric)).all()
