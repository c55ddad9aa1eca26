"""What the last state alone reveals: contractions, single uses, gradient ADMM, random positions."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from skdpadmm import privacy
from skdpadmm.privacy import AmplifiedIteration, GaussianDP, last_iterate_mu, single_use_mu

mpmath = pytest.importorskip("mpmath")

reflected, gradient = privacy.reflected_prox_contraction, privacy.proximal_gradient_contraction
averaged, constant = privacy.averaged_admm_contraction, privacy.amplification_constant


@pytest.mark.parametrize("contraction", [1e-300, 1e-3, 0.5, 0.9, 1 - 1e-6, 1 - 1e-12, 1 - 2**-53])
def test_the_last_iterate_is_accurate_near_one_and_for_long_paths(contraction):
    for n_iter in (1, 2, 100, 10**9):
        with mpmath.workdps(80):
            c = mpmath.mpf(contraction)
            exact = mpmath.sqrt((1 - c**n_iter) * (1 + c) / ((1 + c**n_iter) * (1 - c)))
        assert last_iterate_mu(2.0, contraction, n_iter) == pytest.approx(2 * float(exact), 1e-13)


def linear_iteration(contraction, shifts):
    """Exact mu of the last of ``u <- c u + shift_k + N(0, 1)``, compared with no shifts."""
    mean = variance = 0.0
    for shift in shifts:
        mean, variance = contraction * mean + shift, contraction**2 * variance + 1.0
    return mean / math.sqrt(variance)


@given(st.floats(0, 1), st.integers(1, 40), st.floats(1e-3, 10))
def test_linear_maps_attain_both_bounds(contraction, n_steps, ratio):
    exact = linear_iteration(contraction, [ratio] * n_steps)
    assert last_iterate_mu(ratio, contraction, n_steps) == pytest.approx(exact, rel=1e-12)
    # Whatever was before, and its noise, is forgotten by a constant map at the record's step.
    exact = [linear_iteration(contraction, [ratio] + [0.0] * k) for k in range(n_steps)][::-1]
    assert single_use_mu(ratio, n_steps, contraction) == pytest.approx(exact, rel=1e-9, abs=1e-300)


def hessian_of(rng, low, high):
    """Symmetric, with eigenvalues in [low, high], both ends among them."""
    vectors = np.linalg.qr(rng.standard_normal((3, 3)))[0]
    return (vectors * [low, high, rng.uniform(low, high)]) @ vectors.T


seeds = st.integers(0, 2**32 - 1)


@given(seeds, st.floats(0.01, 10), st.floats(0, 3), st.floats(0, 5), st.floats(0.05, 1))
def test_constants_of_quadratics_are_met_and_not_exceeded(seed, step, low, width, relaxation):
    high, eye = low + width, np.eye(3)
    hessian = hessian_of(np.random.default_rng(seed), low, high)
    reflection, tau = 2 * np.linalg.inv(eye + step * hessian) - eye, reflected(step, low, high)
    assert np.linalg.norm(reflection, 2) == pytest.approx(tau, abs=1e-11)
    relaxed = (1 - relaxation) * eye + relaxation * reflection
    assert np.linalg.norm(relaxed, 2) <= averaged(relaxation, tau) + 1e-11
    exact = np.linalg.norm(eye - step * hessian, 2)
    for convexity in (0.0, 0.7):
        claimed = gradient(step, low, high, convexity)
        assert claimed == pytest.approx(exact / (1 + convexity * step), rel=1e-10, abs=1e-12)


def test_what_is_no_contraction_and_what_is_one():
    # An elastic net beside the data is strongly convex but not smooth: near zero it reflects.
    assert reflected(1.0, 2.0, math.inf) == averaged(0.5, 1.0) == 1.0
    # An intercept without penalty, and a step that is too long.
    assert reflected(1.0, 0.0, 1.0) == gradient(1.0, 0.0, 1.0) == 1.0
    assert gradient(1.0, 0.0, 3.0) >= 2.0


# Gradient ADMM -----------------------------------------------------------------------------------


def amplified(ratio=1.0, kappa=1.0, **kwargs):
    return AmplifiedIteration(ratio, constant(kappa), **kwargs)


def largest_pair_cost(R, kappa, q):
    """Of v^2 + q (a + v)^2 where R a^2 + kappa v^2 is 1, by a search."""

    def cost(angle):
        a, v = math.cos(angle) / math.sqrt(R), math.sin(angle) / math.sqrt(kappa)
        return -(v**2 + q * (a + v) ** 2)

    return -minimize_scalar(cost, bounds=(0, math.pi / 2), method="bounded").fun


@pytest.mark.parametrize(("kappa", "value"), [(0.1, 20.512), (1.0, 2.618), (10.0, 1.110)])
def test_the_constant_is_the_largest_cost_of_a_pair_of_steps(kappa, value):
    assert constant(kappa) == pytest.approx(value, abs=5e-4)
    assert constant(kappa) == pytest.approx(largest_pair_cost(1.0, kappa, 1.0))
    assert constant(kappa) < max(2, 3 / kappa)  # what the paper has
    # With a square A a contribution and the second step shrink by 1 + kappa: the same constant.
    square = largest_pair_cost(1.0, kappa, (1 + kappa) ** -2) * (1 + kappa)
    assert square == pytest.approx(constant(kappa))
    for is_square, shrunk in ((False, 1.0), (True, 1.0 + kappa)):
        mu = privacy.contribution_mu(0.1, 4.0, 2.0, kappa=kappa, square=is_square)
        assert mu == pytest.approx(0.2 / shrunk)


def test_reference_values_of_one_pass():
    one_pass = {(1.0, 10_000): (4.887, 0.0820, 2.975), (0.5, 1000): (2.254, 0.134, 1.623)}
    for (ratio, n), expected in one_pass.items():
        iteration = amplified(ratio)
        average = privacy.mixture_of_slots(iteration.slots(np.arange(n), n))
        found = [one.epsilon(1e-6) for one in (iteration.local(), iteration.first(n), average)]
        assert found == pytest.approx(expected, rel=4e-3)


@pytest.mark.parametrize("grid_shift", [0.0, 1e-4, 0.01, 1.0])
@pytest.mark.parametrize("kappa", [0.01, 1.0, 100.0])
def test_longer_is_never_worse_and_never_better_than_the_formula(grid_shift, kappa):
    iteration, n = amplified(kappa=kappa, grid_shift=grid_shift), np.arange(1, 3000)
    pairs = np.maximum(n // 2, 1)
    bound = np.sqrt(constant(kappa) / pairs) + grid_shift * np.sqrt(2 * pairs)
    bound = np.minimum(np.where(n > 1, bound, 9), 1 + grid_shift)
    best = np.minimum.accumulate(bound)
    np.testing.assert_allclose(iteration.mu_after(n), best, rtol=1e-12)
    assert np.all(iteration.mu_after(np.full((2, 3), 10**9)) <= np.full((2, 3), best[-1] + 1e-12))
    assert np.all(AmplifiedIteration(1.0, math.inf, grid_shift).mu_after(n) == 1 + grid_shift)


@pytest.mark.parametrize("grid_shift", [0.0, 0.02])
def test_slots_are_the_sums_over_their_gaps(grid_shift):
    rng, iteration = np.random.default_rng(0), amplified(0.7, 0.8, grid_shift=grid_shift)
    for n_steps, n_slots in [(0, 1), (1, 1), (7, 3), (60, 5), (200, 150)]:
        sequence = rng.integers(-1, n_slots, n_steps)
        used = [np.flatnonzero(sequence == slot).tolist() for slot in range(n_slots)]
        gaps = [np.diff([*own, n_steps]) for own in used]
        expected = [math.hypot(*iteration.mu_after(each)) for each in gaps]
        np.testing.assert_allclose(iteration.slots(sequence, n_slots), expected, rtol=1e-12)
    tiny = AmplifiedIteration(1e-200, 1.0).slots([0, 0], 1)[0]  # no square underflows
    assert tiny == pytest.approx(math.sqrt(2) * 1e-200)


@pytest.mark.parametrize(
    "kind", ["few", "passes", pytest.param("sampling", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("ratio", [0.1, 5.0])
def test_a_mixture_of_slots_loses_little_and_nothing_of_the_bound(kind, ratio):
    rng, n = np.random.default_rng(0), 4000
    mu = {
        "few": np.repeat(amplified(ratio).mu_after(np.arange(1, 400)), 2),
        "passes": amplified(ratio, 3.0).slots(np.tile(np.arange(n), 3), n),
        "sampling": amplified(ratio, 3.0).slots(rng.integers(n, size=2 * n), n),
    }[kind]
    mixture, (distinct, counts) = privacy.mixture_of_slots(mu), np.unique(mu, return_counts=True)

    def exact(epsilon):
        deltas = [GaussianDP(value).delta(epsilon) for value in distinct.tolist()]
        return math.fsum(counts / mu.size * deltas)

    assert len(mixture.components) <= 1000
    assert mixture.components[0] == GaussianDP(float(mu.max()))
    for delta in (1e-3, 1e-9):
        epsilon = mixture.epsilon(delta)
        assert mixture.delta(epsilon) >= exact(epsilon) * (1 - 1e-12)
        assert epsilon == 0 or exact(epsilon / 1.01) > delta  # 1% of epsilon at most


@pytest.mark.parametrize("n", [1, 2, 3, 8, 17, 40])
def test_random_stopping_is_the_worst_position_and_no_worse(n):
    iteration, times = amplified(1.5, 4.0), np.arange(n // 2 + 1, n + 1)
    for epsilon in (0.0, 0.5, 2.0):
        each = []
        for position in range(1, n + 1):
            lasting = [iteration.first(t - position + 1) for t in times.tolist() if t >= position]
            each.append(sum(one.delta(epsilon) for one in lasting) / times.size)
        assert iteration.random_stopping(n).delta(epsilon) == pytest.approx(max(each), rel=1e-10)
