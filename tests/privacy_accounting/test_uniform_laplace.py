"""Uniform plus Laplace noise: exact pairs, composition, expected losses, budgets of divergence."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad

from skdpadmm import privacy
from skdpadmm.privacy import LaplaceDP, RenyiDP, RenyiFilter, UniformLaplace, UniformLaplaceDP
from skdpadmm.privacy.literature import random_aggregator_printed_average_loss
from tests.privacy_accounting.attained import attained_delta, log_density

mpmath = pytest.importorskip("mpmath")


def powers(low, high):
    return st.floats(low, high).map(lambda exponent: 10**exponent)


def one(width, shift, rate=1.0):
    return UniformLaplaceDP((rate,), (width,), (shift,))


def divergence(width, shift, order):
    return one(width, shift).renyi((order,)).divergences[0]


def exact_density(x, u):
    """In the arithmetic of mpmath, which has digits to lose; in units of the noise."""
    x, u = mpmath.mpf(x), mpmath.mpf(u)
    if x < 0:
        return mpmath.exp(x) * (1 - mpmath.exp(-u)) / (2 * u)
    return exact_density(u - x, u) if x > u else (2 - mpmath.exp(-x) - mpmath.exp(x - u)) / (2 * u)


def exact_integral(of_point, u, s, stop):
    """Over (0, stop), cut where either density changes its form and at points that follow."""
    ends = {mpmath.mpf(e) for e in (0, u, s, u + s)}
    near = {e + sign * d for e in ends for d in (1, 4, 16, 40) for sign in (1, -1)}
    cuts = sorted({x for x in ends | near if 0 <= x < stop} | {stop})
    return mpmath.quad(of_point, cuts, maxdegree=5)


@mpmath.workdps(30)
def exact_divergence(u, s, order):
    u, s, order = map(mpmath.mpf, (u, s, order))

    def moment(x):
        return exact_density(x, u) ** order * exact_density(x - s, u) ** (1 - order)

    edge = (1 - mpmath.exp(-u)) / (2 * u)
    tails = edge * (mpmath.exp((order - 1) * s) + mpmath.exp(-order * s))
    return float(mpmath.log(tails + exact_integral(moment, u, s, u + s)) / (order - 1))


@mpmath.workdps(30)
def exact_delta(u, s, epsilon):
    """The integral of the positive part, up to where bisection in many digits finds its sign."""
    u, s, factor = mpmath.mpf(u), mpmath.mpf(s), mpmath.exp(mpmath.mpf(epsilon))

    def gap(x):
        return exact_density(x, u) - factor * exact_density(x - s, u)

    low, high = mpmath.mpf(0), u + s
    for _ in range(90):
        middle = (low + high) / 2
        low, high = (middle, high) if gap(middle) > 0 else (low, middle)
    edge = (1 - mpmath.exp(-u)) / (2 * u) * (1 - factor * mpmath.exp(-s))
    return float(edge + exact_integral(gap, u, s, low))


@pytest.mark.parametrize("u", [1e-12, 1e-6, 1e-2, 0.5, 2.0, 30.0, 1e3, 1e6])
def test_law_is_accurate_for_all_widths(u):
    law, scaled = UniformLaplace(1.0, u), UniformLaplace(4.0, u / 4.0)
    points = np.array([-50.0, -1.0, -1e-9, 0.0, 1e-3 * u, 0.3 * u, 0.5 * u])
    for x in points.tolist():
        with mpmath.workdps(40):
            a, wide = mpmath.mpf(x), mpmath.mpf(u)
            density = below = exact_density(a, wide)
            if a > 0:
                below = (2 * a + mpmath.exp(-a) - mpmath.exp(a - wide)) / (2 * wide)
            exact = [float(density), float(mpmath.log(density)), float(below)]
        found = [float(f(x)) for f in (law.density, law.log_density, law.cdf)]
        assert found == pytest.approx(exact, rel=1e-13)
        assert float(scaled.density(x / 4)) == pytest.approx(4 * exact[0], rel=1e-12)
    # The mirror image loses what rounding takes from u - x.
    assert law.survival(u - points) == pytest.approx(law.cdf(points), rel=1e-9, abs=1e-300)
    q = np.array([1e-300, 1e-12, 0.01, 0.3, 0.49, 0.5, 0.6, 0.99, 1 - 1e-9])
    assert scaled.cdf(scaled.quantile(q)) == pytest.approx(q, rel=1e-9)
    plain = UniformLaplace(2.0, 0.0)
    assert plain.quantile([0.0, 1.0]).tolist() == [-math.inf, math.inf]
    assert plain.cdf(plain.quantile(q)) == pytest.approx(q, rel=1e-9)
    assert plain.log_density([-1e4, 0.5]) == pytest.approx([-2e4, -1.0])


def test_reference_values():
    for width, rate, order, expected in ((1.0, 2.0, 8.0, 0.076874), (0.5, 5.0, 8.0, 0.320032)):
        divergences = one(width, 0.1, rate).renyi((order,)).divergences
        assert divergences == pytest.approx((expected,), abs=6e-7)
    assert divergence(0.0, 0.5, 8.0) == pytest.approx(0.410268, abs=6e-7)
    for epsilon, *expected in ((0.0, 0.06315, 0.09516), (0.1, 0.02606, 0.04877)):
        found = [pair.delta(epsilon) for pair in (one(1.0, 0.1, 2.0), LaplaceDP((0.2,)))]
        assert found == pytest.approx(expected, abs=6e-6)
    kappas = {0.5: 0.849, 1: 0.725, 2: 0.541, 3: 0.417, 5: 0.272, 10: 0.139, 0.0: 1.0, 1e-12: 1.0}
    for u, kappa in kappas.items():
        assert UniformLaplace(4.0, u / 4.0).fisher_ratio == pytest.approx(kappa, abs=6e-4)


@settings(max_examples=12)
@given(powers(-3, 3), powers(-4, 1), st.floats(1.05, 30.0), st.floats(0.0, 0.999))
def test_divergences_and_hockey_sticks_by_another_integration(u, s, order, share):
    exact = exact_divergence(u, s, order)
    assert exact * (1 - 1e-9) - 1e-14 <= divergence(u, s, order) <= exact * (1 + 2e-6) + 1e-14
    exact, found = exact_delta(u, s, share * s), one(u, s).delta(share * s)
    assert exact * (1 - 1e-11) - 1e-17 <= found <= exact * (1 + 1e-9) + 1e-13 * s


@given(powers(-12, 6), powers(-6, 2.5), st.floats(1.01, 500.0), st.floats(0, 1))
def test_nothing_ever_exceeds_laplace_noise_and_wider_is_better(u, s, order, share):
    plain, narrow, wide = (one(width, s).delta(share * s) for width in (0.0, u, 1.3 * u))
    assert plain == pytest.approx(-math.expm1((share * s - s) / 2), rel=1e-9, abs=1e-300)
    assert wide * (1 - 1e-9) - 1e-14 * s <= narrow <= plain
    plain, narrow, wide = (divergence(width, s, order) for width in (0.0, u, 1.3 * u))
    assert wide * (1 - 2e-6) <= narrow <= plain <= s


PARTS = [((2.0, 0.2, 20),), ((0.5, 0.05, 100), (3.0, 0.3, 5)), ((10.0, 1.0, 3), (0.0, 0.4, 4))]
PARTS += [((0.3, 2.0, 4), (4.0, 0.1, 30), (1.0, 0.7, 2))]


@pytest.mark.parametrize("parts", PARTS)
def test_composed_releases_are_above_what_is_attained_and_close(parts):
    pytest.importorskip("dp_accounting")
    steps = UniformLaplaceDP((1.0,) * len(parts), *zip(*parts, strict=True))
    for epsilon in (0.0, 0.3, 1.0):
        attained = attained_delta(parts, epsilon)
        assert attained <= steps.delta(epsilon) <= 1.02 * attained + 1e-11
        assert steps.delta(epsilon) <= steps.without_widths.delta(epsilon)
    for delta in (1e-2, 1e-5):
        epsilon = steps.epsilon(delta)
        assert attained_delta(parts, epsilon) <= delta
        assert epsilon < steps.without_widths.epsilon(delta)
        assert epsilon <= steps.renyi(tuple(np.arange(1.5, 64.0, 4.5))).epsilon(delta)
    plain = [LaplaceDP((s,), (n,)) for u, s, n in parts if u == 0]
    wide = [UniformLaplaceDP((1.0,), (u,), (s,), (n,)) for u, s, n in parts if u > 0]
    assert privacy.compose_uniform_laplace(*plain, *wide) == steps
    assert steps.pure_epsilon == pytest.approx(sum(shift * count for _, shift, count in parts))


def test_without_the_library_the_laplace_bound_answers(no_library):
    steps = UniformLaplaceDP((1.0,), (5.0,), (0.1,), (100,))
    assert steps.delta(1.0) == steps.without_widths.delta(1.0)


@pytest.mark.parametrize("widths", [(1.0, 1.0), (0.5, 3.0), (0.0, 2.0), (10.0, 0.2)])
@pytest.mark.parametrize("shifts", [(0.2, 0.2), (0.05, 1.0)])
def test_a_vector_reveals_no_more_than_its_narrowest_entry_with_the_whole_move(widths, shifts):
    vector = UniformLaplaceDP.of_vectors([1.0], [widths], sum(shifts))
    assert vector == one(min(widths), sum(shifts))
    parts = tuple((u, s, 1) for u, s in zip(widths, shifts, strict=True))
    for epsilon in (0.0, 0.1, 0.4):
        assert attained_delta(parts, epsilon) <= vector.delta(epsilon)


# The expected absolute loss, by its largest one: an average, and no epsilon ----------------------

factor, above = privacy.expected_privacy_loss_factor, privacy.expected_privacy_loss_factor_bound
ceiling = privacy.expected_privacy_loss_factor_ceiling


@settings(max_examples=40)
@given(st.floats(0.2, 20.0), st.floats(1e-3, 3.0), st.floats(1e-3, 2.0))
def test_the_factor_by_another_integration_of_the_worse_sign(rate, width, shift):
    u, s = rate * width, rate * shift

    def term(x):
        here = float(log_density(x, u))
        return math.exp(here) * max(abs(here - float(log_density(x + t, u))) for t in (s, -s))

    cuts = sorted({-40.0, 0.0, min(s, u / 2), u / 2})
    exact = 2 * sum(quad(term, a, b, epsabs=1e-12)[0] for a, b in pairwise(cuts)) / s
    found = factor(rate, width, shift)
    assert found == pytest.approx(exact, rel=1e-7)
    assert found <= above(rate, width, shift) * (1 + 1e-12) <= 1 + 2e-12
    largest = found * (math.expm1(s) / s) ** 2
    assert found * (1 - 1e-9) <= float(ceiling(rate, width, shift)) <= largest * (1 + 1e-6)


def test_reference_factors_and_their_limits():
    found = [factor(5.0, 0.5, 0.1), factor(5.0, 0.5, 0.3), factor(10.0, 1.0, 1e-3)]
    assert found == pytest.approx([0.6868, 0.8576, 0.1993], abs=6e-5)
    for u, limit in {0.5: 0.885, 1: 0.787, 2: 0.632, 3: 0.518, 5: 0.367, 10: 0.199}.items():
        at_zero = [float(f(7.0, u / 7.0, 0.0)) for f in (factor, above, ceiling)]
        assert at_zero == pytest.approx([-math.expm1(-u / 2) / (u / 2)] * 3, rel=1e-12)
        assert [at_zero[0], factor(7.0, u / 7.0, 1e-8)] == pytest.approx([limit] * 2, abs=6e-4)
    # Where shifts are large nothing is claimed.
    assert [float(ceiling(1.0, w, s)) for w in (1.0, math.inf) for s in (60.0, 1e300)] == [1.0] * 4


def test_the_printed_bound_is_below_what_it_should_bound_and_an_average_is_no_epsilon():
    printed = random_aggregator_printed_average_loss
    for rate, width, shift, refuted in ((5.0, 0.5, 0.1, 0.6633), (5.0, 0.1, 0.001, 0.8851)):
        assert printed(rate, width, shift) == pytest.approx(refuted, abs=6e-5)
        assert refuted + 1e-3 < factor(rate, width, shift) < above(rate, width, shift)
    assert above(5.0, 0.5, 0.1) == pytest.approx(0.7136, abs=6e-5)
    assert printed(5.0, 0.5, 0.3) == pytest.approx(0.8828, abs=6e-5)  # here it happens to hold
    assert one(1.0, 0.1, 2.0).delta(factor(2.0, 1.0, 0.1) * 0.2) > 0.015


def test_the_total_weighs_rounds_by_their_largest_loss():
    rates, widths = np.array([1.0, 2.0, 4.0]), np.array([[0.0, 0.3], [1.0, 2.0], [0.1, 5.0]])
    shifts, losses = np.array([0.1, 0.2, 0.0]), 0.0  # a round that does not move weighs nothing
    for rate, row, shift in zip(rates, widths, shifts, strict=True):
        losses += sum(factor(rate, width, shift) * rate * shift for width in row)
    found = privacy.total_expected_privacy_loss_factor(rates, widths, shifts)
    assert found == pytest.approx(losses / (2 * float(rates @ shifts)), rel=1e-12)


# A budget of divergence that is spent on public widths -------------------------------------------


def test_the_cost_of_a_round_is_the_sum_over_entries_or_that_of_the_narrowest():
    budget, widths = RenyiFilter(8.0, 1.0), [0.3, 0.0, 2.0, 0.3]
    exact = sum(divergence(2 * w, 0.2, 8.0) for w in widths)
    assert budget.cost(2.0, widths, shift=0.1) == pytest.approx(exact, rel=2e-4)
    moves = ({"l1_shift": 0.15}, {"shift": 0.1}, {"shift": 0.1, "l1_shift": 0.15})
    narrow, separate, both = (budget.cost(1.0, [0.5, 3.0], **move) for move in moves)
    assert narrow == pytest.approx(divergence(0.5, 0.15, 8.0), rel=2e-4)
    assert both == pytest.approx(min(separate, narrow))
    assert budget.cost(1.0, [0.5] * 14, l1_shift=0.2) < budget.cost(1.0, [0.5] * 14, shift=0.1)
    assert budget.cost(0.0, [1.0], shift=0.2) == 0.0
    assert budget.cost(1e300, [1e300], shift=0.1) == math.inf


@settings(max_examples=10)
@given(st.lists(st.floats(0, 5), min_size=1, max_size=4), st.floats(1e-3, 1.0), st.floats(1e-4, 2))
def test_the_largest_rate_is_admitted_and_no_larger_one(widths, shift, amount):
    budget = RenyiFilter(6.0, amount)
    rate = budget.largest_rate(widths, shift=shift)
    assert budget.admits(rate, widths, shift=shift)
    assert not budget.admits(rate * 1.001, widths, shift=shift)
    after = budget.spend(rate, widths, shift=shift)
    assert 0.999 * amount <= after.spent <= amount
    assert after.remaining == pytest.approx(amount - after.spent)
    assert rate >= budget.largest_rate(np.zeros(len(widths)), shift=shift) * (1 - 1e-9)
    assert after.spend(0.0, widths, shift=shift) == after
    with pytest.raises(ValueError, match=r"^Got a round of divergence .*largest_rate tells which"):
        after.spend(rate, widths, shift=shift)
    assert after.guarantee == budget.guarantee == RenyiDP((6.0,), (amount,))


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-6), (1.0, 1e-5), (8.0, 1e-3)])
def test_a_target_is_met_by_its_whole_budget_and_its_order_leaves_most_room(epsilon, delta):
    pytest.importorskip("dp_accounting")
    chosen = RenyiFilter.of_target(epsilon, delta)
    for order in (chosen.order, 0.9 * chosen.order, 1.3 * chosen.order, 5 * chosen.order):
        budget = RenyiFilter.of_target(epsilon, delta, order)
        assert epsilon * (1 - 1e-6) <= budget.guarantee.epsilon(delta) <= epsilon
        assert budget.budget / order <= chosen.budget / chosen.order * (1 + 1e-9)
    with pytest.raises(ValueError, match="leaves no budget"):
        RenyiFilter.of_target(epsilon, delta, 1.0 + 1e-3)


@pytest.mark.parametrize("order", [2.0, 8.0])
def test_adaptive_rounds_stay_within_the_budget(order):
    """The second width, and rate, depend on what the first round released."""
    first = RenyiFilter(order, 0.2).spend(1.0, [1.0], shift=0.25)
    rates = [first.largest_rate([width], shift=0.25) for width in (0.2, 4.0)]
    x = np.linspace(-60, 62, 400_001)
    p, q = log_density(x, 1.0), log_density(x - 0.25, 1.0)

    def exact(widths):
        further = [divergence(r * w, 0.25 * r, order) for r, w in zip(rates, widths, strict=True)]
        moment = order * p + (1 - order) * q + (order - 1) * np.where(x <= 0.5, *further)
        return math.log(np.trapezoid(np.exp(moment), x)) / (order - 1)

    assert 0.995 * 0.2 < exact((0.2, 4.0)) <= 0.2 * (1 + 1e-6)
    # Were the interval narrower than the width that was counted, the budget would not hold.
    assert exact((0.0, 0.0)) > 0.2 * (1 + 1e-3)
