"""Laplace releases, labels and splits: bounds above what is attained, closed forms, references."""

import math

import numpy as np
import pytest

from skdpadmm import privacy
from skdpadmm.privacy import GaussianDP, LaplaceDP, compose, compose_counts, split_budget
from tests.privacy.attained import attained_delta

FIVE = math.exp(-5)
# epsilon of a release, releases, delta, epsilon exact
REFERENCES = [
    (0.1, 10, 1e-5, 0.990),
    (0.1, 100, 1e-5, 4.220),
    (0.05, 50, FIVE, 0.629),
    (0.1, 10, FIVE, 0.535),
    (0.02, 10, FIVE, 0.0569),
]


def releases(size, count):
    return compose_counts([(LaplaceDP(size), count)])


@pytest.mark.parametrize(("size", "count", "delta", "exact"), REFERENCES)
def test_reference_values_are_above_what_is_attained_and_close(size, count, delta, exact):
    pytest.importorskip("dp_accounting")
    steps = releases(size, count)
    assert steps.epsilon(delta) == pytest.approx(exact, rel=1.5e-3)
    assert steps.epsilon(0.0) == pytest.approx(size * count, rel=1e-13)
    for epsilon in (0.0, 0.5 * exact, exact):
        attained = attained_delta([(0.0, size, count)], epsilon)
        assert attained <= steps.delta(epsilon) <= 1.02 * attained + 1e-11


@pytest.mark.parametrize("mu", [0.0, 0.1, 1.0])
def test_many_different_steps_and_a_gaussian_are_above_what_is_attained_and_close(mu):
    pytest.importorskip("dp_accounting")
    sizes = [0.01 * 1.15**k for k in range(20)]
    steps = compose(*map(LaplaceDP, sizes))
    composed = compose(steps, GaussianDP(mu))
    for epsilon in (0.0, 0.5, 1.0):
        attained = attained_delta([(0.0, size, 1) for size in sizes], epsilon, mu)
        assert attained <= composed.delta(epsilon) <= 1.03 * attained + 1e-8
    epsilon = composed.epsilon(1e-6)
    assert max(steps.epsilon(1e-6), GaussianDP(mu).epsilon(1e-6)) <= epsilon
    assert mu == 0 or epsilon < steps.epsilon(5e-7) + GaussianDP(mu).epsilon(5e-7)
    assert mu == 0 or composed.epsilon(0.0) == math.inf


@pytest.mark.parametrize("size", [1e-9, 1e-7, 1e-5, 1e-3])
def test_losses_too_small_to_resolve_are_rounded_up(size):
    """A discretisation as fine as such losses would fall below the truth by rounding errors."""
    steps = releases(size, 100)
    for epsilon in (0.0, 5 * size, 20 * size):
        attained = attained_delta([(0.0, size, 100)], epsilon)
        assert attained <= steps.delta(epsilon) < 50 * size


@pytest.mark.parametrize("size", [1e-8, 0.3, 5.0])
def test_one_release_is_exact_and_two_entries_are_no_easier_to_see(size):
    one, entries = LaplaceDP(size), [(0.0, 0.2 * size, 1), (0.0, 0.8 * size, 1)]
    for share in (0.0, 0.3, 0.9):
        exact = -math.expm1((share - 1) * size / 2)
        assert one.delta(share * size) == pytest.approx(exact, rel=1e-12)
        attained = attained_delta([(0.0, size, 1)], share * size)
        assert attained <= exact <= attained * (1 + 1e-3) + 1e-11
        both = compose(LaplaceDP(0.2 * size), LaplaceDP(0.8 * size)).delta(share * size)
        assert attained_delta(entries, share * size) <= both <= exact * (1 + 1e-6) + 2e-12
    assert one.delta(size) == one.delta(2 * size) == 0.0
    assert one.epsilon(0.0) == size


def test_what_arithmetic_cannot_resolve_is_not_promised():
    tiny, large = releases(1e-200, 10), compose(LaplaceDP(800.0), LaplaceDP(900.0))
    for guarantee in (tiny, compose(tiny, GaussianDP(1e-200))):
        assert guarantee.epsilon(1e-300) > 0
        assert 0 < guarantee.delta(0.0) <= 2e-12
    assert releases(1e308, 10).delta(1.0) == large.delta(1.0) == 1.0
    assert releases(1e308, 10).epsilon(1e-5) == math.inf
    assert large.epsilon(1e-5) <= 1700.0
    assert 0 < releases(1e-4, 10**6).epsilon(1e-6) < 1.0


def test_equal_releases_merge_in_any_order_and_composition_is_flat():
    one, two = LaplaceDP(0.1), LaplaceDP(0.2)
    steps = compose(one, two, one, LaplaceDP(0.0))
    assert (steps.leaves, steps.counts) == ((one, two), (2, 1))
    sampled = privacy.PoissonSubsampledGaussian(0.1, 20.0, 100, "zero_out")
    nested = compose(compose(steps, GaussianDP(3.0)), sampled, compose(two, GaussianDP(4.0)))
    assert (nested.leaves, nested.counts) == ((one, two, sampled, GaussianDP(5.0)), (2, 2, 1, 1))
    assert compose(LaplaceDP(0.0), GaussianDP(0.5)) == GaussianDP(0.5)


def test_without_the_library_a_composition_names_the_extra(no_library):
    with pytest.raises(ImportError, match=r"needs dp-accounting: pip install 'skdpadmm\[acc"):
        compose(LaplaceDP(0.1), GaussianDP(0.1)).delta(0.05)


# A budget that is split over steps ---------------------------------------------------------------


@pytest.mark.parametrize(("noise", "power"), [("laplace", 2), ("gaussian", 1)])
@pytest.mark.parametrize("contraction", [0.3, 0.8, 1.0])
def test_no_split_beats_the_optimal_and_equal_beats_the_printed(noise, power, contraction):
    def error_left(shares):  # squared, with a budget of 1
        return np.sum(contraction ** np.arange(5, -1, -1) / shares**power)

    shares = split_budget("optimal", 6, contraction, noise)
    others = shares * np.exp(0.1 * np.random.default_rng(0).standard_normal((200, 6)))
    for other in others / others.sum(axis=1, keepdims=True):
        assert error_left(shares) < error_left(other)


def test_every_share_is_positive_and_all_are_the_whole_budget():
    for kind, contraction in (("equal", 1.0), ("optimal", 0.9), ("optimal", 1e-9)):
        shares = split_budget(kind, 50, contraction)
        assert shares.min() > 0
        assert shares.sum() == pytest.approx(1.0, rel=1e-12)
