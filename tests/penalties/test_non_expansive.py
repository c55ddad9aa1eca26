"""Proximal operators as they are computed: non-expansive up to the rounding that they state."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from skdpadmm.penalties import (
    L1,
    ElasticNet,
    GeneralizedL1,
    LinearConstraint,
    NoPenalty,
    Penalty,
    SquaredL2,
    difference_matrix,
)
from skdpadmm.penalties._piecewise import PiecewiseQuadratic

DECADES = [0, 4, 8, 16]
ENTRYWISE = NoPenalty().proximal_rounding(np.ones(1))


def some_scale(rng, p, decades):
    """Units of coefficients so many decades apart, some of them at the ends only."""
    exponent = rng.uniform(-decades / 2, decades / 2, size=p)
    if rng.random() < 0.4:
        exponent = rng.choice([-decades / 2, decades / 2], size=p) + rng.uniform(0, 0.3, size=p)
    return 10**exponent


def some_matrix(rng, p):
    order = int(rng.integers(4))
    if 0 < order < min(p, 3):
        return difference_matrix(p, order)
    return rng.standard_normal((int(rng.integers(1, p + 1)), p))


# A strength that matters for some coefficient in its units.
KINDS = {
    "none": lambda rng, p, level: NoPenalty(),
    "l1": lambda rng, p, level: L1(level),
    "squared": lambda rng, p, level: SquaredL2(level**2),
    "elastic net": lambda rng, p, level: ElasticNet(level, level**2),
    "generalised l1": lambda rng, p, level: GeneralizedL1(some_matrix(rng, p), level),
}


def excess(operator, point, length):
    """How much farther than `length` apart two values are, for the worst direction that is found.

    The direction is the one that a matrix of finite differences stretches most.
    """
    value = operator(point)
    moved = [operator(point + length * e) - value for e in np.eye(point.size)]
    direction = np.linalg.svd(np.stack(moved, axis=1) / length)[2][0]
    farthest = max(
        np.linalg.norm(operator(point + share * length * direction) - value) - abs(share) * length
        for share in (1.0, -1.0, 1e-3)
    )
    return farthest, 2 * np.linalg.norm(value) + 2 * np.linalg.norm(point) + 4 * length


@pytest.mark.parametrize("condition", [None, 1e1, 1e2, 1e4])
@pytest.mark.parametrize("decades", DECADES)
@pytest.mark.parametrize("name", KINDS)
def test_in_any_metric_an_operator_moves_no_two_points_apart(name, decades, condition):
    rng = np.random.default_rng([decades, int(condition or 0)])
    n_certified, n_cases = 0, 12 if condition else 60
    for _ in range(n_cases):
        p = int(rng.integers(2, 9))
        scale, root = some_scale(rng, p, decades), np.eye(p)
        metric = scale**-2.0
        if condition:
            basis = np.linalg.qr(rng.standard_normal((p, p)))[0]
            reduced = (basis * condition ** np.linspace(0, 1, p)) @ basis.T
            metric, root = reduced / np.outer(scale, scale), np.linalg.cholesky(reduced).T
        penalty = KINDS[name](rng, p, 10 ** rng.uniform(-2, 1) / rng.choice(scale))
        rounding = penalty.proximal_rounding(scale, condition)
        if rounding == math.inf:
            continue
        n_certified += 1
        prox = penalty.proximal_operator(10 ** rng.uniform(-1, 1), metric)

        def operator(u, prox=prox, root=root, s=scale):
            return root @ (prox(np.linalg.solve(root, u) * s) / s)

        point = rng.standard_normal(p) * 10 ** rng.uniform(-1, 1)
        found, size = excess(operator, point, 10 ** rng.uniform(-9, 0))
        # The change of basis by which it is measured is rounded as well.
        assert found <= max(rounding, 100 * ENTRYWISE if condition else 0) * size
    assert n_certified >= (n_cases if name != "generalised l1" else n_cases // 3)


def solution_of(system, right):
    """Solve a linear system of rationals by elimination."""
    rows = np.column_stack([system, right])
    for k in range(len(rows)):
        rows[k] = rows[k] / rows[k, k]
        others = np.arange(len(rows)) != k
        rows[others] -= np.outer(rows[others, k], rows[k])
    return rows[:, -1]


def exact_generalized_l1(matrix, level, scale, point):
    """The minimiser in scaled units in rationals, by trying which dual variables are at a bound."""
    exact = np.vectorize(Fraction, otypes=[object])
    rows, point = exact(matrix) * exact(scale), exact(point)
    for states in itertools.product((-1, 0, 1), repeat=len(rows)):
        signs = exact(np.array(states, dtype=float))
        at_bound = (signs != 0)[:, None]
        system = np.where(at_bound, exact(np.eye(len(rows))), rows @ rows.T)
        dual = solution_of(system, np.where(at_bound[:, 0], level * signs, rows @ point))
        value = point - dual @ rows
        if (abs(dual) <= level).all() and (signs * (rows @ value) >= 0).all():
            return value.astype(float)
    raise AssertionError


@pytest.mark.parametrize("guesses", [True, False])
@pytest.mark.parametrize("decades", DECADES)
def test_a_generalised_lasso_is_as_accurate_as_it_states(monkeypatch, decades, guesses):
    if not guesses:
        # Guesses of the active set come first; the safe method has the same accuracy.
        monkeypatch.setattr(PiecewiseQuadratic, "guess", lambda self: None)
    # One of these is beyond a tolerance that all dual variables have in common.
    rng = np.random.default_rng([decades, 30])
    n_certified = 0
    for _ in range(40):
        p = int(rng.integers(2, 5))
        # Powers of two are changed to and fro without any rounding.
        scale = 2.0 ** np.round(np.log2(some_scale(rng, p, decades)))
        matrix = np.asarray(some_matrix(rng, p) @ np.eye(p))
        level = 10 ** rng.uniform(-2, 1) / rng.choice(scale)
        penalty = GeneralizedL1(matrix, level)
        rounding = penalty.proximal_rounding(scale)
        if rounding == math.inf:
            continue
        n_certified += 1
        point = rng.standard_normal(p)
        found = penalty.prox(point * scale, 1.0, scale**-2.0) / scale
        expected = exact_generalized_l1(matrix, Fraction(level), scale, point)
        size = np.linalg.norm(point) + np.linalg.norm(expected)
        assert np.linalg.norm(found - expected) <= rounding * size
    assert n_certified >= 15


def test_units_in_which_a_projection_used_to_lengthen_vectors():
    # Features within 1e-3, 1e5 and 1e-4: distances grew by factors up to 7 in fits, and 2.6e5 here.
    rng, scale = np.random.default_rng(0), np.array([1e3, 1e-5, 1e4])
    for _ in range(300):
        penalty = GeneralizedL1(difference_matrix(3, 1), 10 ** rng.uniform(-7, 8))
        assert penalty.proximal_rounding(scale) < 1e-12
        prox = penalty.proximal_operator(1.0, metric=scale**-2.0)
        point = rng.standard_normal(3) * 10 ** rng.uniform(-2, 2)
        found, size = excess(lambda u, prox=prox: prox(u * scale) / scale, point, 1e-3)
        assert found <= 1e-12 * size


@pytest.mark.filterwarnings("error")
def test_where_a_generalised_lasso_is_not_certified_it_still_tells_nothing_of_points():
    rng, n_refused, n_solved = np.random.default_rng(0), 0, 0
    for _ in range(150):
        p = int(rng.integers(3, 9))
        scale = some_scale(rng, p, 16)
        penalty = GeneralizedL1(difference_matrix(p, 1), 10 ** rng.uniform(-1, 1) / scale[0])
        if penalty.proximal_rounding(scale) < math.inf:
            continue
        try:
            prox = penalty.proximal_operator(1.0, metric=scale**-2.0)
        except ValueError:
            # Known before any point is.
            n_refused += 1
            continue
        assert np.isfinite(prox(rng.standard_normal((p, 5)) * scale[:, None])).all()
        n_solved += 1
    assert min(n_refused, n_solved) >= 10


def test_what_is_certified_and_what_is_not():
    ones = np.ones(3)
    assert ElasticNet(0.0, 0.0).proximal_rounding(ones, 1e12) == ENTRYWISE
    assert L1(1.0).proximal_rounding(ones, 1e12) == math.inf
    fused = GeneralizedL1(difference_matrix(3, 1), 1.0)
    assert fused.proximal_rounding(ones) < 1e-13
    # Both rows are, nearly, the coefficient that has the largest unit.
    assert fused.proximal_rounding(np.array([1e-8, 1.0, 1e-8])) == math.inf
    assert fused.scaled(0.0).proximal_rounding(np.array([1e-8, 1.0, 1e-8])) == ENTRYWISE

    class Unknown(L1):
        proximal_rounding = Penalty.proximal_rounding

    assert Unknown(1.0).proximal_rounding(ones) == math.inf


def test_a_constraint_states_the_rounding_of_its_second_block():
    assert LinearConstraint().y_rounding(L1(1.0), 2) == ENTRYWISE
    assert LinearConstraint(B=np.diag([1.0, -3.0])).y_rounding(L1(1.0), 2) == ENTRYWISE
    full = LinearConstraint(B=np.array([[1.0, 1.0], [0.0, 1.0]]))
    assert ENTRYWISE < full.y_rounding(L1(1.0), 2) < 1e-12
