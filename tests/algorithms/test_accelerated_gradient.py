"""A fixed number of accelerated steps ends within the certified distance of the minimiser."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skdpadmm.algorithms.blocks._accelerated_gradient import (
    accelerated_gradient,
    certified_distance,
    step_rounding,
    steps_to_reach,
)


@settings(deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    log_kappa=st.floats(0, 4),
    n_steps=st.integers(0, 80),
    convexity=st.floats(1e-3, 1e3),
)
def test_quadratics_end_within_the_certified_distance(seed, log_kappa, n_steps, convexity):
    rng = np.random.default_rng(seed)
    p = rng.integers(1, 6)
    smoothness = convexity * 10**log_kappa
    bends = np.geomspace(convexity, smoothness, p)
    goal = rng.standard_normal(p)
    found = accelerated_gradient(
        lambda w: bends * (w - goal),
        np.zeros(p),
        n_steps,
        strong_convexity=convexity,
        smoothness=smoothness,
    )
    bound = certified_distance(
        n_steps,
        strong_convexity=convexity,
        smoothness=smoothness,
        initial_distance=float(np.linalg.norm(goal)),
    )
    assert np.linalg.norm(found - goal) <= bound + 1e-12


@pytest.mark.parametrize("attack", ["constant", "alternating", "outward", "inward", "random"])
@pytest.mark.parametrize("kappa", [1.0, 1.5, 30.0, 3000.0])
def test_errors_of_the_gradient_are_covered_whatever_their_direction(attack, kappa):
    rng = np.random.default_rng(0)
    bends = np.geomspace(1.0, kappa, 4)
    goal = rng.standard_normal(4)
    for error in (1e-6, 1e-2, 1.0):
        for n_steps in (1, 2, 5, 30, 300, 1000):
            calls = 0

            def gradient(w, error=error):
                nonlocal calls
                calls += 1
                away = (w - goal) / max(np.linalg.norm(w - goal), 1e-300)
                direction = {
                    "constant": np.eye(4)[0],
                    "alternating": (-1) ** calls * np.eye(4)[0],
                    "outward": -away,
                    "inward": away,
                    "random": rng.standard_normal(4),
                }[attack]
                direction = direction / max(np.linalg.norm(direction), 1e-300)
                return bends * (w - goal) + error * direction

            found = accelerated_gradient(
                gradient, np.zeros(4), n_steps, strong_convexity=1.0, smoothness=kappa
            )
            bound = certified_distance(
                n_steps,
                strong_convexity=1.0,
                smoothness=kappa,
                initial_distance=float(np.linalg.norm(goal)),
                gradient_error=error,
            )
            assert calls == n_steps
            assert np.linalg.norm(found - goal) <= bound


@pytest.mark.parametrize("attack", ["outward", "inward", "alternating", "turned"])
@pytest.mark.parametrize("kappa", [1.0, 4.0, 300.0])
def test_errors_that_grow_with_the_distance_are_covered(attack, kappa):
    rng = np.random.default_rng(0)
    bends = np.geomspace(1.0, kappa, 4)
    goal = rng.standard_normal(4)
    turn = np.roll(np.eye(4), 1, axis=0)
    for relative in (0.125, 0.01):
        for n_steps in (1, 2, 5, 30, 300):
            calls = 0

            def gradient(w, relative=relative):
                nonlocal calls
                calls += 1
                away = w - goal
                sign = {"outward": -1, "inward": 1, "turned": 1}.get(attack, (-1) ** calls)
                away_from = turn @ away if attack == "turned" else away
                return bends * away + sign * relative * away_from

            found = accelerated_gradient(
                gradient, np.zeros(4), n_steps, strong_convexity=1.0, smoothness=kappa
            )
            bound = certified_distance(
                n_steps,
                strong_convexity=1.0,
                smoothness=kappa,
                initial_distance=float(np.linalg.norm(goal)),
                relative_error=relative,
            )
            assert np.linalg.norm(found - goal) <= bound + 1e-14


def test_a_logistic_regression_with_an_l1_norm_ends_within_the_certified_distance():
    rng = np.random.default_rng(1)
    A, y = rng.standard_normal((200, 5)), rng.choice([-1.0, 1.0], 200)
    ridge, l1 = 0.05, 0.02
    smoothness = ridge + np.linalg.norm(A, 2) ** 2 / (4 * 200)

    def gradient(w):
        return A.T @ (-y / (1 + np.exp(y * (A @ w)))) / 200 + ridge * w

    def prox(v):
        return np.sign(v) * np.maximum(np.abs(v) - l1 / smoothness, 0)

    def solve(n_steps):
        return accelerated_gradient(
            gradient,
            np.ones(5),
            n_steps,
            strong_convexity=ridge,
            smoothness=smoothness,
            prox=prox,
        )

    goal = solve(3000)
    # Stationary: no coordinate can improve.
    slope = gradient(goal)
    np.testing.assert_allclose(slope[goal != 0], -l1 * np.sign(goal[goal != 0]), atol=1e-12)
    assert np.all(np.abs(slope[goal == 0]) <= l1 + 1e-12)
    distance = float(np.linalg.norm(goal - 1))
    for n_steps in range(60):
        bound = certified_distance(
            n_steps, strong_convexity=ridge, smoothness=smoothness, initial_distance=distance
        )
        assert np.linalg.norm(solve(n_steps) - goal) <= bound + 1e-12


def test_one_step_solves_what_is_as_curved_as_its_bound():
    goal = np.array([1.0, -2.0])
    found = accelerated_gradient(
        lambda w: 3 * (w - goal), np.zeros(2), 1, strong_convexity=3.0, smoothness=3.0
    )
    np.testing.assert_allclose(found, goal, rtol=1e-15)
    constants = {"strong_convexity": 3.0, "smoothness": 3.0, "initial_distance": 2.5}
    assert certified_distance(1, **constants) == 0.0
    assert certified_distance(0, **constants) == 2.5


@settings(deadline=None)
@given(
    kappa=st.floats(1, 1e8),
    distance=st.floats(1e-6, 1e6),
    tolerance=st.floats(1e-12, 1e3),
    error=st.one_of(st.just(0.0), st.floats(1e-16, 1e-13)),
)
def test_the_steps_to_a_tolerance_are_the_fewest(kappa, distance, tolerance, error):
    constants = {
        "strong_convexity": 1.0,
        "smoothness": kappa,
        "initial_distance": distance,
        "gradient_error": error,
    }
    n_steps = steps_to_reach(tolerance, **constants)
    assert certified_distance(n_steps, **constants) <= tolerance
    if n_steps > 1:
        assert certified_distance(n_steps - 1, **constants) > tolerance


def test_a_tolerance_below_the_rounding_is_refused():
    error = 10 * step_rounding(100.0) + 1e-13
    assert error > 100 * 10 * 2.0**-53
    constants = {"strong_convexity": 1.0, "smoothness": 100.0, "initial_distance": 1.0}
    floor = certified_distance(10**6, **constants, gradient_error=error)
    assert floor == pytest.approx(4 * error)
    assert steps_to_reach(2 * floor, **constants, gradient_error=error) > 0
    with pytest.raises(ValueError, match=r"expected more than .*what rounding leaves"):
        steps_to_reach(floor / 2, **constants, gradient_error=error)


def test_the_floor_covers_the_rounding_of_a_long_run_in_single_steps():
    """Far from the origin each step is rounded to units in the last place of the start."""
    offset = 1e8
    bends = np.geomspace(1.0, 100.0, 3)
    goal = offset + np.array([0.1, 0.2, 0.3])
    found = accelerated_gradient(
        lambda w: bends * (w - goal),
        np.full(3, offset),
        2000,
        strong_convexity=1.0,
        smoothness=100.0,
    )
    # Steps and gradients are rounded relative to the length of an iterate.
    rounding = step_rounding(100.0) + 100.0 * 2.0**-52
    bound = certified_distance(
        2000,
        strong_convexity=1.0,
        smoothness=100.0,
        initial_distance=1.0,
        gradient_error=rounding * float(np.linalg.norm(goal)),
        relative_error=rounding,
    )
    assert np.linalg.norm(found - goal) <= bound


@pytest.mark.parametrize(
    "constants",
    [
        {"strong_convexity": 0.0, "smoothness": 1.0},
        {"strong_convexity": 2.0, "smoothness": 1.0},
        {"strong_convexity": 1.0, "smoothness": math.inf},
        {"strong_convexity": math.nan, "smoothness": 1.0},
    ],
)
def test_constants_without_a_rate_are_refused(constants):
    with pytest.raises(ValueError, match="expected 0 < strong_convexity <= smoothness"):
        accelerated_gradient(lambda w: w, np.zeros(1), 1, **constants)
    with pytest.raises(ValueError, match="expected 0 < strong_convexity <= smoothness"):
        certified_distance(1, **constants, initial_distance=1.0)


@pytest.mark.parametrize("value", [-1.0, math.inf, math.nan])
def test_distances_and_tolerances_that_are_none_are_refused(value):
    constants = {"strong_convexity": 1.0, "smoothness": 2.0}
    with pytest.raises(ValueError, match="Got initial_distance"):
        certified_distance(1, **constants, initial_distance=value)
    with pytest.raises(ValueError, match="Got gradient_error"):
        certified_distance(1, **constants, initial_distance=1.0, gradient_error=value)
    with pytest.raises(ValueError, match="Got relative_error"):
        certified_distance(1, **constants, initial_distance=1.0, relative_error=value)
    with pytest.raises(ValueError, match="Got tolerance"):
        steps_to_reach(value, **constants, initial_distance=1.0)
    with pytest.raises(ValueError, match="Got n_steps"):
        certified_distance(-1, **constants, initial_distance=1.0)


def test_a_problem_that_no_public_number_of_steps_solves_is_refused():
    with pytest.raises(ValueError, match="expected a problem that can be solved"):
        steps_to_reach(1e-6, strong_convexity=1e-300, smoothness=1.0, initial_distance=1.0)
