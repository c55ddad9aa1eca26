"""Last iterates: exact on linear maps, refused without a contraction; constants hold."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skdpadmm.privacy import (
    averaged_admm_contraction,
    last_iterate_mu,
    proximal_gradient_contraction,
    reflected_prox_contraction,
    single_use_mu,
)

mpmath = pytest.importorskip("mpmath")


@pytest.mark.parametrize("contraction", [1e-300, 1e-3, 0.5, 0.9, 1 - 1e-6, 1 - 1e-12, 1 - 2**-53])
@pytest.mark.parametrize("n_iter", [1, 2, 100, 10**9])
def test_the_formula_is_accurate_near_one_and_for_long_paths(contraction, n_iter):
    with mpmath.workdps(80):
        c = mpmath.mpf(contraction)
        exact = mpmath.sqrt((1 - c**n_iter) * (1 + c) / ((1 + c**n_iter) * (1 - c)))
        assert last_iterate_mu(2.0, contraction, n_iter) == pytest.approx(
            2 * float(exact), rel=1e-14
        )


def test_the_reference_value_and_both_limits():
    assert last_iterate_mu(1.0, 0.9, 100) == pytest.approx(4.36, abs=5e-3)
    assert last_iterate_mu(1.5, 0.0, 1000) == 1.5
    assert last_iterate_mu(1.5, 1.0, 100) == 15.0
    assert last_iterate_mu(0.0, 0.9, 3) == 0.0


def linear_iteration(contraction, shifts, std=1.0):
    """Exact mu of the last of ``u <- c u + shift_k + N(0, std^2)``, compared with no shifts."""
    mean = variance = 0.0
    for shift in shifts:
        mean = contraction * mean + shift
        variance = contraction**2 * variance + std**2
    return abs(mean) / math.sqrt(variance)


@given(
    contraction=st.floats(0, 1),
    n_iter=st.integers(1, 60),
    ratio=st.floats(1e-3, 10),
)
def test_linear_maps_attain_the_last_iterate_bound(contraction, n_iter, ratio):
    exact = linear_iteration(contraction, [ratio] * n_iter)
    assert last_iterate_mu(ratio, contraction, n_iter) == pytest.approx(exact, rel=1e-12)


@given(contraction=st.floats(0.01, 1), n_steps=st.integers(1, 40), ratio=st.floats(1e-3, 10))
def test_linear_maps_attain_the_bound_of_a_single_use_at_every_position(
    contraction, n_steps, ratio
):
    claimed = single_use_mu(ratio, n_steps, contraction)
    assert claimed.shape == (n_steps,)
    for position in range(n_steps):
        # Whatever was before, and its noise, is forgotten by a constant map at the record's step.
        exact = linear_iteration(contraction, [ratio] + [0.0] * (n_steps - 1 - position))
        assert claimed[position] == pytest.approx(exact, rel=1e-9, abs=1e-300)
    assert np.all(np.diff(claimed) >= -1e-12 * claimed[1:])
    assert claimed[-1] == pytest.approx(ratio, rel=1e-15)


def test_a_single_use_at_both_limits():
    np.testing.assert_allclose(single_use_mu(2.0, 4), 2 / np.sqrt([4, 3, 2, 1]))
    np.testing.assert_array_equal(single_use_mu(2.0, 3, 0.0), [0, 0, 2])


@given(st.floats(1e-6, 1), st.floats(1e-6, 1), st.integers(1, 10**6))
def test_mu_grows_with_the_constant_and_lies_between_one_release_and_all(first, second, n_iter):
    low, high = sorted((first, second))
    one = last_iterate_mu(1.0, low, n_iter)
    assert 1 - 1e-12 <= one <= last_iterate_mu(1.0, high, n_iter) * (1 + 1e-12)
    assert last_iterate_mu(1.0, high, n_iter) <= math.sqrt(n_iter) * (1 + 1e-12)


@pytest.mark.parametrize("contraction", [1 + 1e-15, 1.1, 10.0, -0.1, math.nan])
def test_an_expansion_is_refused_though_the_formula_would_take_it(contraction):
    # At 1 / c it has the value of c: a guard is all that stands in the way.
    for bound in (last_iterate_mu, lambda r, c, k: single_use_mu(r, k, c)):
        with pytest.raises(ValueError, match=r"Got contraction=.*expected a float in \[0, 1\]"):
            bound(1.0, contraction, 10)


@pytest.mark.parametrize("n_iter", [0, -1, 1.5])
def test_a_length_that_is_none_is_refused(n_iter):
    with pytest.raises(ValueError, match="Got n_iter"):
        last_iterate_mu(1.0, 0.5, n_iter)
    with pytest.raises(ValueError, match="Got n_steps"):
        single_use_mu(1.0, n_iter)


@pytest.mark.parametrize("ratio", [-1.0, math.inf, math.nan])
def test_a_ratio_that_is_none_is_refused(ratio):
    with pytest.raises(ValueError, match="Got ratio"):
        last_iterate_mu(ratio, 0.5, 2)
    with pytest.raises(ValueError, match="Got ratio"):
        single_use_mu(ratio, 2)


def random_hessian(rng, low, high, p=3):
    """Symmetric, with eigenvalues in [low, high], both ends among them."""
    vectors = np.linalg.qr(rng.standard_normal((p, p)))[0]
    values = rng.uniform(low, high, p)
    values[:2] = low, high
    return (vectors * values) @ vectors.T


@given(
    st.integers(0, 2**32 - 1),
    st.floats(0.01, 10),
    st.floats(0, 3),
    st.floats(0, 5),
    st.floats(0.05, 1),
)
def test_constants_of_quadratics_are_met_and_not_exceeded(seed, step, low, width, relaxation):
    high = low + width
    hessian = random_hessian(np.random.default_rng(seed), low, high)
    eye = np.eye(3)
    reflected = 2 * np.linalg.inv(eye + step * hessian) - eye
    tau = reflected_prox_contraction(step, low, high)
    assert np.linalg.norm(reflected, 2) == pytest.approx(tau, abs=1e-12)
    relaxed = (1 - relaxation) * eye + relaxation * reflected
    c = averaged_admm_contraction(relaxation, tau)
    assert np.linalg.norm(relaxed, 2) <= c + 1e-12
    gradient = np.linalg.norm(eye - step * hessian, 2)
    assert gradient == pytest.approx(proximal_gradient_contraction(step, low, high), rel=1e-12)


def huberised(step, ridge, bend, limit):
    """Reflected prox of limit-Huber(bend w) + ridge w^2 / 2, elementwise."""

    def prox(v):
        inside = v / (1 + step * (ridge + bend))
        outside = (v - np.sign(v) * step * limit) / (1 + step * ridge)
        return np.where(np.abs(bend * inside) <= limit, inside, outside)

    return lambda v: 2 * prox(v) - v


@given(st.floats(0.05, 5), st.floats(0.01, 2), st.floats(0.01, 5), st.floats(0.1, 2))
def test_a_huberised_loss_has_the_constants_of_its_ridge_and_its_bend(step, ridge, bend, limit):
    reflect = huberised(step, ridge, bend, limit)
    tau = reflected_prox_contraction(step, ridge, ridge + bend)
    points = np.linspace(-20, 20, 4001)
    steepness = np.abs(np.diff(reflect(points)) / np.diff(points)).max()
    assert steepness <= tau + 1e-9


def test_an_elastic_net_beside_the_data_is_no_contraction():
    """Strongly convex, but not smooth: near zero its reflection is -1."""
    step, l1, ridge = 1.0, 0.5, 2.0

    def reflect(v):
        return 2 * np.sign(v) * np.maximum(np.abs(v) - step * l1, 0) / (1 + step * ridge) - v

    assert abs(reflect(0.1) - reflect(-0.1)) == pytest.approx(0.2)
    assert reflected_prox_contraction(step, ridge, math.inf) == 1.0
    assert averaged_admm_contraction(0.5, 1.0) == 1.0


def test_a_proximal_gradient_contracts_with_its_penalty_even_beside_an_l1_norm():
    rng = np.random.default_rng(0)
    low, high, step, a, l1 = 0.5, 3.0, 0.4, 0.7, 0.3
    hessian = random_hessian(rng, low, high)

    def update(w):
        v = w - step * hessian @ w
        return np.sign(v) * np.maximum(np.abs(v) - step * l1, 0) / (1 + step * a)

    c = proximal_gradient_contraction(step, low, high, a)
    assert c < 1
    for _ in range(2000):
        v, w = rng.standard_normal((2, 3)) * 10
        assert np.linalg.norm(update(v) - update(w)) <= c * np.linalg.norm(v - w) * (1 + 1e-12)


def test_an_intercept_without_penalty_and_a_step_too_long_do_not_contract():
    assert reflected_prox_contraction(1.0, 0.0, 1.0) == 1.0
    assert proximal_gradient_contraction(1.0, 0.0, 1.0) == 1.0
    assert proximal_gradient_contraction(1.0, 0.0, 3.0) > 2.0
    assert averaged_admm_contraction(0.5, reflected_prox_contraction(1.0, 1e-12, 1.0)) < 1.0


@pytest.mark.parametrize(
    ("function", "arguments", "name"),
    [
        (reflected_prox_contraction, (0.0, 0.0, 1.0), "step_size"),
        (reflected_prox_contraction, (1.0, -1.0, 1.0), "strong_convexity"),
        (reflected_prox_contraction, (1.0, 2.0, 1.0), "smoothness"),
        (reflected_prox_contraction, (1.0, 0.0, math.nan), "smoothness"),
        (proximal_gradient_contraction, (1.0, 0.0, math.inf), "smoothness"),
        (proximal_gradient_contraction, (1.0, 0.0, 1.0, -1.0), "penalty_strong_convexity"),
        (averaged_admm_contraction, (0.0, 0.5), "relaxation"),
        (averaged_admm_contraction, (1.1, 0.5), "relaxation"),
        (averaged_admm_contraction, (0.5, 1.1), "reflected"),
    ],
)
def test_constants_outside_their_theorem_are_refused(function, arguments, name):
    with pytest.raises(ValueError, match=f"Got {name}=.*expected"):
        function(*arguments)
