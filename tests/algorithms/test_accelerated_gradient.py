"""A fixed number of accelerated steps ends within the certified distance of the minimiser."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skdpadmm.algorithms.blocks._accelerated_gradient import (
    accelerated_gradient,
    certified_distance,
    step_rounding,
    steps_to_reach,
)

ATTACKS = {  # unit directions of an error, given how far away from the minimiser an iterate is
    "constant": lambda away, call: np.eye(4)[0],
    "alternating": lambda away, call: (-1) ** call * np.eye(4)[0],
    "outward": lambda away, call: -away,
    "inward": lambda away, call: away,
    "turned": lambda away, call: np.roll(away, 1),
    "random": lambda away, call: np.random.default_rng(call).standard_normal(4),
}


@pytest.mark.parametrize("relative", [False, True])
@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("kappa", [1.0, 1.5, 30.0, 3000.0])
def test_errors_of_the_gradient_are_covered_whatever_their_direction(attack, kappa, relative):
    bends, goal = np.geomspace(1.0, kappa, 4), np.random.default_rng(0).standard_normal(4)
    constants = {"strong_convexity": 1.0, "smoothness": kappa}
    for error in (0.0, 0.125, 0.01) if relative else (1e-6, 1e-2, 1.0):
        for n_steps in (0, 1, 2, 5, 30, 300):
            calls = []

            def gradient(w, error=error, calls=calls):
                calls.append(w)
                size = np.linalg.norm(w - goal)
                direction = ATTACKS[attack]((w - goal) / max(size, 1e-300), len(calls))
                length = error * (size if relative else 1.0)
                direction = direction / max(np.linalg.norm(direction), 1e-300)
                return bends * (w - goal) + length * direction

            found = accelerated_gradient(gradient, np.zeros(4), n_steps, **constants)
            bound = certified_distance(
                n_steps, **constants, initial_distance=float(np.linalg.norm(goal)),
                **{"relative_error" if relative else "gradient_error": error},
            )  # fmt: skip
            assert len(calls) == n_steps
            assert np.linalg.norm(found - goal) <= bound + 1e-14


def test_a_logistic_regression_with_an_l1_norm_ends_within_the_certified_distance():
    rng, ridge, l1 = np.random.default_rng(1), 0.05, 0.02
    A, y = rng.standard_normal((200, 5)), rng.choice([-1.0, 1.0], 200)
    smoothness = ridge + np.linalg.norm(A, 2) ** 2 / (4 * 200)
    constants = {"strong_convexity": ridge, "smoothness": smoothness}

    def gradient(w):
        return A.T @ (-y / (1 + np.exp(y * (A @ w)))) / 200 + ridge * w

    def prox(v):
        return np.sign(v) * np.maximum(np.abs(v) - l1 / smoothness, 0)

    def solve(n_steps):
        return accelerated_gradient(gradient, np.ones(5), n_steps, prox=prox, **constants)

    goal = solve(3000)
    np.testing.assert_allclose(prox(goal - gradient(goal) / smoothness), goal, atol=1e-12)
    for n_steps in range(60):
        distance = float(np.linalg.norm(goal - 1))
        bound = certified_distance(n_steps, initial_distance=distance, **constants)
        assert np.linalg.norm(solve(n_steps) - goal) <= bound + 1e-12


@given(
    kappa=st.floats(1, 1e8), distance=st.floats(1e-6, 1e6), tolerance=st.floats(1e-12, 1e3),
    error=st.one_of(st.just(0.0), st.floats(1e-16, 1e-13)),
)  # fmt: skip
def test_the_steps_to_a_tolerance_are_the_fewest(kappa, distance, tolerance, error):
    constants = {"strong_convexity": 1.0, "smoothness": kappa, "initial_distance": distance}
    n_steps = steps_to_reach(tolerance, **constants, gradient_error=error)
    assert certified_distance(n_steps, **constants, gradient_error=error) <= tolerance
    if n_steps > 1:
        assert certified_distance(n_steps - 1, **constants, gradient_error=error) > tolerance


def test_the_floor_covers_the_rounding_of_a_long_run_in_single_steps():
    # Far from the origin each step is rounded to units in the last place of the start.
    bends, goal = np.geomspace(1.0, 100.0, 3), 1e8 + np.array([0.1, 0.2, 0.3])
    constants = {"strong_convexity": 1.0, "smoothness": 100.0}
    found = accelerated_gradient(lambda w: bends * (w - goal), np.full(3, 1e8), 2000, **constants)
    # Steps and gradients are rounded relative to the length of an iterate.
    rounding = step_rounding(100.0) + 100.0 * 2.0**-52
    error = rounding * float(np.linalg.norm(goal))
    errors = {"gradient_error": error, "relative_error": rounding}
    bound = certified_distance(2000, **constants, initial_distance=1.0, **errors)
    assert np.linalg.norm(found - goal) <= bound


def test_what_has_no_rate_or_no_certificate_is_refused():
    for m, beta in ((0.0, 1.0), (2.0, 1.0), (1.0, math.inf), (math.nan, 1.0)):
        constants = {"strong_convexity": m, "smoothness": beta}
        with pytest.raises(ValueError, match="expected 0 < strong_convexity <= smoothness"):
            accelerated_gradient(lambda w: w, np.zeros(1), 1, **constants)
        with pytest.raises(ValueError, match="expected 0 < strong_convexity <= smoothness"):
            certified_distance(1, **constants, initial_distance=1.0)
    fine = {"strong_convexity": 1.0, "smoothness": 100.0, "initial_distance": 1.0}
    for value in (-1.0, math.inf, math.nan):
        for name in ("initial_distance", "gradient_error", "relative_error"):
            with pytest.raises(ValueError, match=f"Got {name}"):
                certified_distance(1, **(fine | {name: value}))
        with pytest.raises(ValueError, match="Got tolerance"):
            steps_to_reach(value, **fine)
    with pytest.raises(ValueError, match="Got n_steps"):
        certified_distance(-1, **fine)
    error = 10 * step_rounding(100.0) + 1e-13
    floor = certified_distance(10**6, **fine, gradient_error=error)
    assert floor == pytest.approx(4 * error)
    with pytest.raises(ValueError, match=r"expected more than .*what rounding leaves"):
        steps_to_reach(floor / 2, **fine, gradient_error=error)
    with pytest.raises(ValueError, match="expected a problem that can be solved"):
        steps_to_reach(1e-6, **(fine | {"strong_convexity": 1e-300}))
