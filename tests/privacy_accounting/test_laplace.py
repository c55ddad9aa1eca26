"""Laplace releases, labels and splits: bounds above what is attained, closed forms, references."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import binom

from skdpadmm import privacy
from skdpadmm.privacy import Composed, GaussianDP, LaplaceDP, _laplace, compose, split_budget
from tests.privacy_accounting.attained import attained_delta, log_density

FIVE = math.exp(-5)
# epsilon of a release, releases, delta; epsilon exact, of the third form of the bound
REFERENCES = [
    (0.1, 10, 1e-5, 0.990, 1.567),
    (0.1, 100, 1e-5, 4.220, 5.298),
    (0.05, 50, FIVE, 0.629, 1.181),
    (0.1, 10, FIVE, 0.535, 1.050),
    (0.02, 10, FIVE, 0.0569, 0.202),
]


@pytest.mark.parametrize(("size", "count", "delta", "exact", "third"), REFERENCES)
def test_reference_values_are_above_what_is_attained_and_close(size, count, delta, exact, third):
    pytest.importorskip("dp_accounting")
    steps = LaplaceDP((size,), (count,))
    assert steps.epsilon(delta) == pytest.approx(exact, rel=1.5e-3)
    assert steps.epsilon(0.0) == pytest.approx(size * count, rel=1e-13)
    mean, variance = steps.moments()
    assert mean + math.sqrt(2 * variance * math.log(1 / delta)) == pytest.approx(third, abs=1e-3)
    for epsilon in (0.0, 0.5 * exact, exact):
        attained = attained_delta([(0.0, size, count)], epsilon)
        assert attained <= steps.delta(epsilon) <= 1.02 * attained + 1e-11


@pytest.mark.parametrize("mu", [0.0, 0.1, 1.0])
def test_many_different_steps_and_a_gaussian_are_above_what_is_attained_and_close(mu):
    pytest.importorskip("dp_accounting")
    sizes = [0.01 * 1.15**k for k in range(20)]
    steps, composed = LaplaceDP(sizes), compose(LaplaceDP(sizes), GaussianDP(mu))
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
    steps = LaplaceDP((size,), (100,))
    for epsilon in (0.0, 5 * size, 20 * size):
        attained = attained_delta([(0.0, size, 100)], epsilon)
        assert attained <= steps.delta(epsilon) < 50 * size


@pytest.mark.parametrize("size", [1e-8, 0.3, 5.0])
def test_one_release_is_exact_and_two_entries_are_no_easier_to_see(size):
    one, entries = LaplaceDP((size,)), [(0.0, 0.2 * size, 1), (0.0, 0.8 * size, 1)]
    for share in (0.0, 0.3, 0.9):
        exact = -math.expm1((share - 1) * size / 2)
        assert one.delta(share * size) == pytest.approx(exact, rel=1e-12)
        attained = attained_delta([(0.0, size, 1)], share * size)
        assert attained <= exact <= attained * (1 + 1e-3) + 1e-11
        both = LaplaceDP((0.2 * size, 0.8 * size)).delta(share * size)
        assert attained_delta(entries, share * size) <= both <= exact * (1 + 1e-12)
    assert one.delta(size) == one.delta(2 * size) == 0.0
    assert one.epsilon(0.0) == size


def test_what_arithmetic_cannot_resolve_is_not_promised():
    tiny, large = LaplaceDP((1e-200,), (10,)), LaplaceDP((800.0, 900.0))
    for guarantee in (tiny, Composed((tiny,)), Composed((tiny, GaussianDP(1e-200)))):
        assert guarantee.epsilon(1e-300) > 0
    assert 0 < tiny.delta(0.0) <= 1e-199
    assert LaplaceDP((1e308,), (10,)).delta(1.0) == large.delta(1.0) == 1.0
    assert LaplaceDP((1e308, 9e307)).epsilon(1e-5) == math.inf
    assert large.epsilon(1e-5) <= 1700.0
    assert 0 < LaplaceDP((1e-4,), (10**6,)).epsilon(1e-6) < 1.0


def test_equal_steps_merge_in_any_order_and_composition_is_flat():
    steps = LaplaceDP((0.1, 0.2, 0.1, 0.0))
    assert steps == LaplaceDP((0.2, 0.1), (1, 2))
    assert (steps.epsilons, steps.counts, steps.n_releases) == ((0.2, 0.1), (1, 2), 3)
    first, second = LaplaceDP((0.1,), (10,)), LaplaceDP((0.1, 0.3))
    sampled = privacy.PoissonSubsampledGaussian(0.1, 20.0, 100, "zero_out")
    nested = compose(compose(first, GaussianDP(3.0)), sampled, compose(second, GaussianDP(4.0)))
    assert nested == Composed((sampled, LaplaceDP((0.3, 0.1), (1, 11)), GaussianDP(5.0)))
    assert compose(LaplaceDP(()), GaussianDP(0.5)) == GaussianDP(0.5)


@given(
    st.lists(st.floats(1e-3, 2.0), min_size=1, max_size=6),
    st.floats(-12, -0.1).map(lambda exponent: 10**exponent),
)
def test_the_closed_form_of_pure_steps_is_theorem_3_5_of_kairouz_oh_and_viswanath(sizes, delta):
    """The sum of squares is inside both roots."""
    mean = sum(e * math.expm1(e) / (math.exp(e) + 1) for e in sizes)
    squares = sum(e * e for e in sizes)
    logs = (math.log(math.e + math.sqrt(squares) / delta), math.log(1 / delta))
    forms = [sum(sizes), *(mean + math.sqrt(2 * squares * log) for log in logs)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_laplace, "smaller", lambda closed, _: closed)
        assert LaplaceDP(sizes).epsilon(delta) <= min(forms) * (1 + 1e-12)
        one = sum(sizes) + 2 * math.log1p(-delta)  # as though all were a single release
        assert LaplaceDP(sizes).epsilon(delta) >= min(*forms, one) * (1 - 1e-12)


@pytest.mark.parametrize(("size", "count"), [(0.02, 10), (0.1, 100), (1.0, 5), (0.5, 40)])
def test_closed_forms_hold_for_the_worst_pure_mechanism(size, count):
    """Randomised response composes exactly: binomial losses."""
    yes, moments = np.arange(count + 1), LaplaceDP((size,), (count,)).moments()
    losses = (2 * yes - count) * size
    law = binom.pmf(yes, count, 1 / (1 + math.exp(-size)))

    def exact(epsilon):
        return float(law @ np.maximum(0.0, -np.expm1(epsilon - losses)))

    for delta in (1e-10, 1e-5, FIVE, 0.3):
        assert exact(_laplace._kov_epsilon(*moments, delta)) <= delta * (1 + 1e-9) + 1e-14
    for level in np.linspace(0, 1.2 * size * count, 7):
        assert exact(level) <= _laplace._kov_delta(*moments, level) * (1 + 1e-9) + 1e-14


@pytest.mark.parametrize(("size", "count"), [(0.5, 1), (0.1, 4), (0.1, 100), (0.02, 100)])
@pytest.mark.parametrize("mu", [0.0, 0.05, 0.5, 2.0])
def test_without_the_library_closed_forms_are_above_what_is_attained(no_library, size, count, mu):
    """Either one may count: shifted by all that is pure, or by the tail of both losses."""
    steps, half, parts = LaplaceDP((size,), (count,)), GaussianDP(mu / 2**0.5), [(0, size, count)]
    both = Composed((steps, half, half)) if mu else steps
    pure, spread = steps.pure_epsilon, math.hypot(mu, size * math.sqrt(count))
    # Between, and well beyond, the means of both losses, where each bound is at its closest.
    for epsilon in (0.5 * pure, pure, pure + mu, *np.linspace(0.5, 5.0, 8) * spread):
        assert attained_delta(parts, epsilon, mu) <= both.delta(epsilon)
        shifted = GaussianDP(mu).delta(epsilon - pure) if epsilon >= pure else 1.0
        assert both.delta(epsilon) <= shifted * (1 + 1e-9)
    for delta in (0.05, 1e-3, 1e-6):
        epsilon = both.epsilon(delta)
        assert attained_delta(parts, epsilon, mu) <= delta
        assert both.delta(epsilon) <= delta * (1 + 1e-9)
    with pytest.raises(ImportError, match=r"needs dp-accounting: pip install 'skdpadmm\[acc"):
        compose(both, privacy.PoissonSubsampledGaussian(0.1, 20.0, 100, "zero_out")).delta(1.0)


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


# The expected absolute loss beside random weights: an average, and no epsilon ---------------------

ceiling = privacy.expected_privacy_loss_factor_ceiling


@settings(max_examples=40)
@given(st.floats(0.2, 20.0), st.floats(1e-3, 3.0), st.floats(1e-3, 2.0))
def test_the_expected_loss_of_the_worse_sign_is_below_its_ceiling_and_close(rate, width, shift):
    u, s = rate * width, rate * shift

    def term(x):
        here = float(log_density(x, u))
        return math.exp(here) * max(abs(here - float(log_density(x + t, u))) for t in (s, -s))

    cuts = sorted({-40.0, 0.0, min(s, u / 2), u / 2})
    exact = 2 * sum(quad(term, a, b, epsabs=1e-12)[0] for a, b in pairwise(cuts)) / s
    largest = exact * (math.expm1(s) / s) ** 2
    assert exact * (1 - 1e-7) <= float(ceiling(rate, width, shift)) <= largest * (1 + 1e-6)


def test_ceilings_where_shifts_are_small_and_where_nothing_is_claimed():
    for u, limit in {0.5: 0.885, 1: 0.787, 2: 0.632, 3: 0.518, 5: 0.367, 10: 0.199}.items():
        assert float(ceiling(7.0, u / 7.0, 0.0)) == pytest.approx(limit, abs=6e-4)
    assert [float(ceiling(1.0, w, s)) for w in (1.0, math.inf) for s in (60.0, 1e300)] == [1.0] * 4
