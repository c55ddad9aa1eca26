"""Splits of a budget: optimal where they say so, and never more than the budget."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import minimize

from skdpadmm.privacy import (
    GaussianDP,
    LaplaceDP,
    gaussian_mu,
    gaussian_steps,
    laplace_steps,
    literature,
    split_budget,
)


def error_left(shares, contraction, noise):
    """Squared error left of all steps, with a budget of 1."""
    later = np.arange(len(shares) - 1, -1, -1)
    return float(np.sum(contraction**later / shares ** (2 if noise == "laplace" else 1)))


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
@pytest.mark.parametrize("contraction", [0.3, 0.8, 1.0])
def test_the_optimal_split_is_what_a_solver_finds(noise, contraction):
    n_steps = 6
    shares = split_budget("optimal", n_steps, contraction, noise)

    def objective(logits):
        weights = np.exp(logits - logits.max())
        return math.log(error_left(weights / weights.sum(), contraction, noise))

    found = minimize(objective, np.zeros(n_steps), options={"gtol": 1e-9})
    assert math.log(error_left(shares, contraction, noise)) <= found.fun + 1e-9
    weights = np.exp(found.x - found.x.max())
    np.testing.assert_allclose(shares, weights / weights.sum(), rtol=1e-3)


@pytest.mark.parametrize(("noise", "power"), [("laplace", 3), ("gaussian", 2)])
def test_shares_grow_geometrically_and_noise_decreases(noise, power):
    shares = split_budget("optimal", 10, 0.7, noise)
    assert math.fsum(shares) == pytest.approx(1, abs=1e-15)
    np.testing.assert_allclose(shares[:-1] / shares[1:], 0.7 ** (1 / power), rtol=1e-12)


def test_the_printed_split_is_the_reverse_and_worse_than_equal_shares():
    """What contracts noise is what comes after it."""
    for contraction in (0.5, 0.8, 0.95):
        corrected = split_budget("optimal", 20, contraction)
        printed = literature.coordinate_descent_printed_split(20, contraction)
        np.testing.assert_allclose(printed, corrected[::-1], rtol=1e-9)
        equal = split_budget("equal", 20)
        left = [error_left(split, contraction, "laplace") for split in (corrected, equal, printed)]
        assert left[0] < left[1] < left[2]


def test_equal_steps_ignore_the_contraction():
    np.testing.assert_array_equal(split_budget("equal", 8, 0.3), np.full(8, 0.125))
    np.testing.assert_allclose(split_budget("optimal", 8, 1.0), np.full(8, 0.125), rtol=1e-15)
    np.testing.assert_array_equal(split_budget("optimal", 1, 0.3), [1.0])


def test_every_step_keeps_a_share():
    shares = split_budget("optimal", 1000, 1e-300)
    assert shares.min() > 1e-13
    assert np.all(np.isfinite(1 / laplace_steps(1.0, 0.0, shares)))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("best", 3), "Got kind='best'"),
        (("equal", 0), "Got n_steps=0"),
        (("equal", 2.0), "Got n_steps=2.0"),
        (("optimal", 3, 0.0), "Got contraction=0.0"),
        (("optimal", 3, 1.1), "Got contraction=1.1"),
        (("optimal", 3, math.nan), "Got contraction=nan"),
        (("optimal", 3, 0.5, "cauchy"), "Got noise='cauchy'"),
    ],
)
def test_splits_that_are_none_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        split_budget(*arguments)


@pytest.mark.parametrize("kind", ["equal", "optimal"])
@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 7.3])
@pytest.mark.parametrize("n_steps", [1, 7, 30])
def test_pure_steps_add_up_to_the_budget_and_not_beyond(kind, epsilon, n_steps):
    steps = laplace_steps(epsilon, 0.0, split_budget(kind, n_steps, 0.8))
    together = LaplaceDP(tuple(steps))
    assert epsilon * (1 - 1e-12) <= together.pure_epsilon <= epsilon
    assert together.epsilon(0.0) <= epsilon


@pytest.mark.parametrize("kind", ["equal", "optimal"])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-5), (1.0, 1e-5), (1.0, math.exp(-5))])
@pytest.mark.parametrize("n_steps", [1, 10, 40])
def test_steps_at_a_delta_meet_the_budget_closely(kind, epsilon, delta, n_steps):
    pytest.importorskip("dp_accounting")
    shares = split_budget(kind, n_steps, 0.8)
    steps = laplace_steps(epsilon, delta, shares)
    np.testing.assert_allclose(steps / steps.sum(), shares, rtol=1e-9)
    assert LaplaceDP(tuple(steps)).delta(epsilon) <= delta
    assert LaplaceDP(tuple(1.001 * steps)).delta(epsilon) > delta
    assert steps.sum() >= epsilon * (1 - 1e-12)


def test_the_reference_scale_of_ten_equal_steps():
    """epsilon 1, 10 wake-ups, 50 records, gradients of norm 1: sensitivity 2 / 50."""
    shares = split_budget("equal", 10)
    np.testing.assert_allclose(2 / 50 / laplace_steps(1.0, 0.0, shares), 0.4, rtol=1e-12)
    std = 2 / 50 / gaussian_steps(gaussian_mu(1.0, 1e-5), shares)
    np.testing.assert_allclose(std, 0.4719, atol=5e-5)


@pytest.mark.parametrize("kind", ["equal", "optimal"])
@pytest.mark.parametrize("n_steps", [1, 3, 50])
def test_gaussian_steps_add_their_squares(kind, n_steps):
    mu = gaussian_mu(1.0, 1e-5)
    steps = gaussian_steps(mu, split_budget(kind, n_steps, 0.8, "gaussian"))
    together = math.hypot(*steps)
    assert mu * (1 - 1e-12) <= together <= mu
    assert GaussianDP(together).delta(1.0) <= 1e-5
    np.testing.assert_allclose(
        steps**2 / mu**2, split_budget(kind, n_steps, 0.8, "gaussian"), rtol=1e-9
    )


def test_weights_need_no_scale():
    np.testing.assert_allclose(gaussian_steps(5.0, [9e300, 16e300]), [3.0, 4.0])
    np.testing.assert_allclose(laplace_steps(1.0, 0.0, [1e-300, 3e-300]), [0.25, 0.75])


@pytest.mark.parametrize("weights", [[], [0.0, 1.0], [-1.0], [math.inf], [math.nan], [[1.0]], 1.0])
def test_weights_that_are_none_are_refused(weights):
    for call in (lambda: laplace_steps(1.0, 0.0, weights), lambda: gaussian_steps(1.0, weights)):
        with pytest.raises(ValueError, match=r"Got weights=.*expected an array of shape"):
            call()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: laplace_steps(0.0, 0.0, [1.0]), "Got epsilon=0.0"),
        (lambda: laplace_steps(math.inf, 0.0, [1.0]), "Got epsilon=inf"),
        (lambda: laplace_steps(1.0, 1.0, [1.0]), "Got delta=1.0"),
        (lambda: laplace_steps(1.0, -0.1, [1.0]), "Got delta=-0.1"),
        (lambda: gaussian_steps(0.0, [1.0]), "Got mu=0.0"),
        (lambda: gaussian_steps(math.inf, [1.0]), "Got mu=inf"),
    ],
)
def test_budgets_that_are_none_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
