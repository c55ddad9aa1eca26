"""Gradient ADMM whose last state alone is seen: reference values, schedules, mixtures, ranges."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from skdpadmm.privacy import (
    AmplifiedIteration,
    GaussianDP,
    Mixture,
    StronglyConvexADMM,
    amplification_constant,
    contribution_mu,
    mixture_of_slots,
    strongly_convex_certificate,
    strongly_convex_step_range,
)
from skdpadmm.privacy._gaussian import gaussian_log_delta
from skdpadmm.privacy.literature import (
    gradient_admm_printed_stopping,
    gradient_admm_printed_zcdp,
)

DELTA = 1e-6
EPSILONS = (0.0, 0.3, 1.0, 3.0, 6.0)
STRONG = {
    "strong_convexity": 0.5,
    "smoothness": 0.5,
    "penalty_strong_convexity": 0.2,
    "coupling_norm": 1.0,
}
SINGULAR = {"smallest_singular_value": 1.0, "largest_singular_value": 1.0}


def made(ratio=1.0, kappa=1.0, **kwargs):
    return AmplifiedIteration(ratio, amplification_constant(kappa), **kwargs)


@pytest.mark.parametrize(("kappa", "value"), [(0.1, 20.512), (1.0, 2.618), (10.0, 1.110)])
def test_the_constant_is_the_largest_cost_of_a_pair_of_steps(kappa, value):
    def cost(angle, q):  # |x| = cos, sqrt(kappa) v = sin
        a, v = math.cos(angle), math.sin(angle) / math.sqrt(kappa)
        return v**2 + q * (a + v) ** 2

    angles = np.linspace(0, math.pi / 2, 200_001)
    assert amplification_constant(kappa) == pytest.approx(value, abs=5e-4)
    assert amplification_constant(kappa) == pytest.approx(max(cost(t, 1.0) for t in angles))
    assert amplification_constant(kappa) < max(2, 3 / kappa)  # what the paper has
    # With a square A a contribution and the second step shrink by 1 + kappa: the same constant.
    square = max(cost(t, (1 + kappa) ** -2) for t in angles) * (1 + kappa)
    assert square == pytest.approx(amplification_constant(kappa))


def test_what_a_contribution_costs_alone():
    assert made(0.3).local() == GaussianDP(0.3)
    assert made(0.3).first(1) == GaussianDP(0.3)
    assert made(0.25, grid_shift=0.125).local() == GaussianDP(0.375)
    assert made(0.25, grid_shift=0.125).path(4) == GaussianDP(0.75)
    assert contribution_mu(0.1, 4.0, 2.0, kappa=3.0) == pytest.approx(0.2)
    assert contribution_mu(0.1, 4.0, 2.0, kappa=3.0, square=True) == pytest.approx(0.05)


@pytest.mark.parametrize(
    ("ratio", "alone", "first", "random"),
    [
        (1.0, 4.887, (0.964, 0.281, 0.0820), (4.234, 3.651, 2.975)),
        (0.5, 2.254, (0.458, 0.134, 0.0389), (1.922, 1.623, 1.275)),
    ],
)
def test_reference_values_of_one_pass(ratio, alone, first, random):
    assert made(ratio).local().epsilon(DELTA) == pytest.approx(alone, abs=6e-4)
    for n, of_first, of_random in zip((100, 1000, 10_000), first, random, strict=True):
        assert made(ratio).first(n).epsilon(DELTA) == pytest.approx(of_first, abs=6e-4)
        mixture = mixture_of_slots(made(ratio).slots(np.arange(n), n))
        assert mixture.epsilon(DELTA) == pytest.approx(of_random, rel=2e-3)


@pytest.mark.parametrize("grid_shift", [0.0, 1e-4, 0.01, 1.0])
@pytest.mark.parametrize("kappa", [0.01, 1.0, 100.0, None])
@pytest.mark.parametrize("strong", [False, True])
def test_longer_is_never_worse_and_never_better_than_the_formula(grid_shift, kappa, strong):
    certificate = strongly_convex_certificate(1.75, 0.9, **STRONG, **SINGULAR) if strong else None
    constant = math.inf if kappa is None else amplification_constant(kappa)
    amplified = AmplifiedIteration(1.0, constant, grid_shift, certificate)
    n = np.arange(1, 3000)
    mu = amplified.mu_after(n)
    assert mu[0] == 1 + grid_shift
    assert np.all(np.diff(mu) <= 0)
    assert np.all(mu[2::2] == mu[1:-1:2])  # an odd step is for nothing
    pairs = np.maximum(n // 2, 1)
    bounds = [np.full(n.size, 1 + grid_shift)]
    factors = [constant / pairs] + ([certificate.squared(pairs)] if strong else [])
    bounds += [np.where(n > 1, np.sqrt(f) + grid_shift * np.sqrt(2 * pairs), 9) for f in factors]
    np.testing.assert_allclose(mu, np.minimum.accumulate(np.min(bounds, axis=0)), rtol=1e-13)
    # The shape is kept, a long run is no longer than it has to be.
    assert amplified.mu_after(np.full((2, 3), 10**9)).shape == (2, 3)
    assert amplified.mu_after(10**9) <= mu[-1]


def brute_force_slots(amplified, sequence, n_slots):
    result = []
    for slot in range(n_slots):
        own = [t for t, used in enumerate(sequence) if used == slot]
        ends = [*own[1:], len(sequence)]
        gaps = [end - t for t, end in zip(own, ends, strict=False)]
        result.append(amplified.participations(gaps).mu if own else 0.0)
    return result


@pytest.mark.parametrize("grid_shift", [0.0, 0.02])
def test_slots_are_the_sums_over_their_gaps(grid_shift):
    rng = np.random.default_rng(0)
    amplified = made(0.7, 0.8, grid_shift=grid_shift)
    for n_steps, n_slots in [(0, 1), (1, 1), (7, 3), (60, 5), (200, 150)]:
        sequence = rng.integers(-1, n_slots, n_steps)
        got = amplified.slots(sequence, n_slots)
        np.testing.assert_allclose(got, brute_force_slots(amplified, sequence, n_slots), rtol=1e-13)
    passes, n = 4, 10
    got = amplified.slots(np.tile(np.arange(n), passes), n)
    for slot in range(n):
        expected = amplified.participations([n] * (passes - 1) + [n - slot])
        assert got[slot] == pytest.approx(expected.mu, rel=1e-13)
    assert got.max() == got[-1]
    # No square underflows.
    assert AmplifiedIteration(1e-200, 1.0).slots([0, 0], 1)[0] == pytest.approx(
        math.sqrt(2) * 1e-200
    )
    assert np.all(AmplifiedIteration(0.0, 1.0).slots([0, 0], 1) == 0)


def test_a_path_that_is_seen_costs_as_much_as_contributions_without_steps_between():
    assert made().participations([1] * 9).mu == pytest.approx(made().path(9).mu) == 3.0
    assert made().participations([]).mu == made().path(0).mu == 0.0
    assert made(kappa=100.0).participations([50] * 9).mu < 1.0


def exact_mixture(mu, epsilon):
    return math.fsum(np.exp(gaussian_log_delta(mu, epsilon)).tolist()) / len(mu)


def test_a_mixture_of_few_values_is_exact():
    mu = np.repeat(made().mu_after(np.arange(1, 400)), 2)
    mixture = mixture_of_slots(mu)
    assert isinstance(mixture, Mixture)
    assert len(mixture.components) < 400
    for epsilon in EPSILONS:
        assert mixture.delta(epsilon) == pytest.approx(exact_mixture(mu, epsilon), rel=1e-12)
    assert mixture_of_slots([0.4, 0.4]).components == (GaussianDP(0.4),)


@pytest.mark.parametrize("kind", ["one pass", "passes", "sampling", "spread"])
@pytest.mark.parametrize("ratio", [0.1, 1.0, 5.0])
def test_a_mixture_of_many_slots_loses_little_and_nothing_of_the_bound(kind, ratio):
    n = 20_000
    rng = np.random.default_rng(0)
    if kind == "spread":
        mu = ratio * 10 ** rng.uniform(-6, 0, n)
    else:
        sequence = {
            "one pass": np.arange(n),
            "passes": np.tile(np.arange(n), 3),
            "sampling": rng.integers(n, size=2 * n),
        }[kind]
        mu = made(ratio, 3.0).slots(sequence, n)
    mixture = mixture_of_slots(mu)
    assert len(mixture.components) <= 1000
    assert mixture.components[0] == GaussianDP(float(mu.max()))
    for epsilon in EPSILONS:
        exact = exact_mixture(mu, epsilon)
        assert mixture.delta(epsilon) >= exact * (1 - 1e-12)
    for delta in (1e-3, 1e-5, 1e-7, 1e-9):
        epsilon = mixture.epsilon(delta)
        if epsilon > 0:
            assert exact_mixture(mu, epsilon / 1.01) > delta  # 1% of epsilon at most


def stopping_deltas(amplified, n, position, epsilon):
    """By enumeration of the time to stop."""
    times = range(n // 2 + 1, n + 1)
    deltas = [
        amplified.first(t - position + 1).delta(epsilon) if t >= position else 0 for t in times
    ]
    return math.fsum(deltas) / len(times)


def test_random_stopping_is_the_worst_position_and_no_worse():
    amplified = made(1.5, 4.0)
    for n in range(1, 41):
        guarantee = amplified.random_stopping(n)
        for epsilon in (0.0, 0.5, 2.0):
            each = [stopping_deltas(amplified, n, t, epsilon) for t in range(1, n + 1)]
            assert guarantee.delta(epsilon) == pytest.approx(max(each), rel=1e-10)
            assert np.argmax(each) <= n // 2 or each[n // 2] == pytest.approx(max(each))


def test_the_printed_law_of_random_stopping_forgets_the_last_record():
    n = 10
    for position in range(1, n + 1):
        steps, unused = gradient_admm_printed_stopping(n, position)
        times = np.arange(n // 2 + 1, n + 1)
        true = times[times >= position] - position + 1
        used = true.size / times.size
        if position > n // 2:
            assert 1 - unused == pytest.approx(used - 2 / n)
            assert len(steps) == len(true) - 1
        elif position > 1:
            assert true.min() < steps.min()
    assert gradient_admm_printed_stopping(n, n)[1] == 1.0
    assert stopping_deltas(made(), n, n, 1.0) == pytest.approx(2 / n * made().local().delta(1.0))


# Strongly convex problems ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("curvature", "beta", "step", "rate"),
    [
        (0.25, 0.9, 1.7531, 0.9474),
        (0.09, 0.5, 4.8113, 0.9149),
        (0.0225, 0.3, 20.0, 0.8571),
        (0.01, 0.15, 43.3013, 0.7992),
    ],
)
def test_reference_rates(curvature, beta, step, rate):
    strong = {**STRONG, "strong_convexity": 2 * curvature, "smoothness": 2 * curvature}
    low, high = strongly_convex_step_range(beta, **strong)
    assert (low + high) / 2 == pytest.approx(step, rel=1e-4)
    got = strongly_convex_certificate((low + high) / 2, beta, **strong, **SINGULAR)
    assert got.rate == pytest.approx(rate, abs=2e-4)


@pytest.mark.parametrize("square", [False, True])
def test_the_start_is_the_largest_over_the_spectrum(square):
    rng = np.random.default_rng(0)
    for _ in range(300):
        smoothness = math.exp(rng.uniform(-2, 2))
        strong = {
            "strong_convexity": smoothness * rng.uniform(0.05, 1),
            "smoothness": smoothness,
            "penalty_strong_convexity": math.exp(rng.uniform(-2, 3)),
            "coupling_norm": math.exp(rng.uniform(-1, 1)),
        }
        smallest = math.exp(rng.uniform(-2, 1))
        largest = smallest * math.exp(rng.uniform(0, 2))
        beta = math.exp(rng.uniform(-3, 2))
        low, high = strongly_convex_step_range(beta, **strong)
        step = low + (high - low) * rng.uniform(0.05, 0.95)
        got = strongly_convex_certificate(
            step,
            beta,
            **strong,
            smallest_singular_value=smallest,
            largest_singular_value=largest,
            square=square,
        )
        a = np.linspace(smallest if square else 0.0, largest, 20_001) ** 2
        spectrum = (got.R + step * beta * a) / (1 + step * beta * a) ** 2
        assert got.start >= spectrum.max() * (1 - 1e-12)
        assert got.start == pytest.approx(spectrum.max(), rel=1e-4)
        kappa = step * beta * smallest**2
        q = 1 - 2 * step * smoothness * strong["strong_convexity"] / (
            smoothness + strong["strong_convexity"]
        )
        q /= (1 + kappa) ** 2 if square else 1

        def cost(angle, R=got.R, kappa=kappa, q=q):
            a, v = math.cos(angle) / math.sqrt(R), math.sin(angle) / math.sqrt(kappa)
            return -(v**2 + q * (a + v) ** 2)

        best = -minimize_scalar(cost, bounds=(0, math.pi / 2), method="bounded").fun
        assert got.pair_constant == pytest.approx(best, rel=1e-6)
        if not square:  # the gradient step of the second of two steps contracts, too
            weight = got.R
            slack = (2 * weight - kappa + math.sqrt(4 * weight**2 + kappa**2)) / (2 * kappa)
            assert got.pair_constant <= (1 + slack) / weight * (1 + 1e-12)


def test_the_strongly_convex_bound_wins_in_the_long_run():
    certificate = strongly_convex_certificate(1.75, 0.9, **STRONG, **SINGULAR)
    general, strong = made(kappa=1.575), made(kappa=1.575, strong=certificate)
    assert strong.first(1) == general.first(1)
    assert strong.first(2).mu < general.first(2).mu
    assert strong.first(200).mu < 0.1 * general.first(200).mu
    np.testing.assert_allclose(
        certificate.squared([1, 5]),
        [
            certificate.amplification / sum(certificate.rate ** (-2 * t) for t in range(n))
            for n in (1, 5)
        ],
    )


def test_the_printed_exponent_is_too_small_for_an_iteration_that_has_all_it_asks_for():
    # z <- L z + noise contracts by L and tells C |z - z'|^2 with C = L^2 / (2 sigma^2) in a step.
    rate, n_pairs = 0.9, 20
    exact = 0.5 * rate ** (2 * n_pairs) / sum(rate ** (2 * t) for t in range(n_pairs))
    theorem = (
        0.5 * rate**2 * rate ** (2 * (n_pairs - 1)) * (1 - rate**2) / (1 - rate ** (2 * n_pairs))
    )
    as_printed = 0.5 * rate**2 * (rate**2) ** (n_pairs - 1) / n_pairs
    assert exact == pytest.approx(theorem)
    assert exact > 3.85 * as_printed


@pytest.mark.parametrize("n_pairs", [1, 2, 10, 100])
def test_the_printed_strongly_convex_divergence_is_below_what_its_proof_gives(n_pairs):
    got = strongly_convex_certificate(1.75, 0.9, **STRONG, **SINGULAR)
    kappa = 1.75 * 0.9
    printed = gradient_admm_printed_zcdp(n_pairs, 1.0, kappa, got.rate, got.R)
    # The lemmas before it: the start, one pair with a factor L, and the contraction L of a pair.
    start, pair = got.R + kappa, 0.5 * got.rate * max(2 / got.R, 3 / kappa)
    proven = start * pair / sum(got.rate ** (-2 * t) for t in range(n_pairs))
    factor = n_pairs * (1 - got.rate**2) / (1 - got.rate ** (2 * n_pairs))
    assert proven / printed == pytest.approx(factor)
    assert 1 <= factor * (1 + 1e-12)
    assert factor <= n_pairs * (1 + 1e-12)
    assert n_pairs == 1 or factor > 1.04


# What is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize("step_size", [1.0, 1.50, 2.0, 3.0])
def test_a_step_outside_of_the_range_is_told_the_range(step_size):
    low, high = strongly_convex_step_range(0.9, **STRONG)
    with pytest.raises(ValueError, match=f"strictly between {low!r} and {high!r}"):
        strongly_convex_certificate(step_size, 0.9, **STRONG, **SINGULAR)


@pytest.mark.parametrize("flat", ["strong_convexity", "penalty_strong_convexity"])
def test_an_empty_range_is_called_empty(flat):
    with pytest.raises(ValueError, match="range of step sizes is empty"):
        strongly_convex_certificate(1.75, 0.9, **{**STRONG, flat: 0.0}, **SINGULAR)


def test_what_certifies_nothing_is_refused():
    with pytest.raises(ValueError, match="use strongly_convex_certificate"):
        StronglyConvexADMM(0.9, 1.0, 0.95, 1.1, 0.8, 1.0, 1.0, 1.0)
    with pytest.raises(ValueError, match=r"Got rate=1\.0"):
        StronglyConvexADMM(0.9, 1.0, 0.9, 1.0, 1.0, 1.0, 1.0, 1.0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: amplification_constant(0.0), "Got kappa=0.0"),
        (lambda: amplification_constant(math.nan), "Got kappa=nan"),
        (lambda: AmplifiedIteration(-1.0, 1.0), "Got ratio=-1.0"),
        (lambda: AmplifiedIteration(1.0, 0.0), "Got amplification=0.0"),
        (lambda: AmplifiedIteration(1.0, 1.0, math.inf), "Got grid_shift=inf"),
        (lambda: made().first(0), "Got n_iterations=0, expected ints >= 1"),
        (lambda: made().mu_after([1.5]), "Got n_iterations of type float64"),
        (lambda: made().path(-1), "Got n_participations=-1"),
        (lambda: made().slots([0, 1], 1), "Got a slot=1"),
        (lambda: made().slots([[0]], 1), "Got sequence of dimension=2"),
        (lambda: made().slots([0], 0), "Got n_slots=0"),
        (lambda: made().random_stopping(0), "Got n=0"),
        (lambda: mixture_of_slots([]), "Got mu of shape"),
        (lambda: mixture_of_slots([-1.0]), "Got min"),
        (lambda: mixture_of_slots([math.nan]), "Got min"),
        (lambda: mixture_of_slots([math.inf]), "Got max"),
        (lambda: contribution_mu(1.0, 1.0, 0.0), "Got noise_std=0.0"),
    ],
)
def test_what_is_out_of_range_is_refused(call, message):
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        call()
