"""Uniform plus Laplace: the law and divergences of its translates, against other integrations."""

from __future__ import annotations

import json
import math
import sys
from functools import lru_cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad

from skdpadmm.privacy import (
    GaussianDP,
    LaplaceDP,
    UniformLaplace,
    UniformLaplaceDP,
    compose,
    compose_uniform_laplace,
    worst,
)
from skdpadmm.privacy._uniform_laplace import (
    fisher_ratio,
    hockey_stick,
    laplace_divergence,
    loss,
    mass,
    renyi_brackets,
    renyi_divergences,
)
from skdpadmm.privacy._uniform_laplace_dp import _composed, discretised_loss

mpmath = pytest.importorskip("mpmath")

WIDTHS = [1e-12, 1e-6, 1e-2, 0.5, 2.0, 30.0, 1e3, 1e6]
# width, rate, shift, order; of the mixture and of Laplace
DIVERGENCES = [
    (1.0, 2.0, 0.1, 2.0, 0.021489, 0.037015),
    (1.0, 2.0, 0.1, 8.0, 0.076874, 0.116290),
    (0.5, 5.0, 0.1, 2.0, 0.114386, 0.200304),
    (0.5, 5.0, 0.1, 8.0, 0.320032, 0.410268),
]
# epsilon; of the mixture with width 1, rate 2 and shift 0.1, and of Laplace
DELTAS = [
    (0.0, 0.06315, 0.09516),
    (0.05, 0.04243, 0.07226),
    (0.1, 0.02606, 0.04877),
    (0.15, 0.01226, 0.02469),
]
KAPPAS = [(0.5, 0.849), (1, 0.725), (2, 0.541), (3, 0.417), (5, 0.272), (10, 0.139)]

scales = st.floats(-3, 3).map(lambda exponent: 10**exponent)
moves = st.floats(-4, 1).map(lambda exponent: 10**exponent)


def exact_density(x, u):
    """In the arithmetic of mpmath, which has digits to lose; in units of the noise."""
    x, u = mpmath.mpf(x), mpmath.mpf(u)
    if x < 0:
        return mpmath.exp(x) * (1 - mpmath.exp(-u)) / (2 * u)
    if x > u:
        return exact_density(u - x, u)
    return (2 - mpmath.exp(-x) - mpmath.exp(x - u)) / (2 * u)


def pieces(u, s):
    """Where either density changes its form, and points that follow each of them."""
    ends = sorted({mpmath.mpf(e) for e in (0, u, s, u + s)})
    steps = [mpmath.mpf(step) for step in (1, 4, 16, 40)]
    near = [e + sign * d for e in ends for d in steps for sign in (1, -1)]
    return sorted({*ends, *(x for x in near if 0 < x < u + s)})


def exact_divergence(u, s, order):
    with mpmath.workdps(30):
        u, s, order = map(mpmath.mpf, (u, s, order))

        def gap(x):
            r = exact_density(x, u) / exact_density(x - s, u)
            return exact_density(x - s, u) * r**order

        edge = (1 - mpmath.exp(-u)) / (2 * u)
        tails = edge * (mpmath.exp((order - 1) * s) + mpmath.exp(-order * s))
        moment = tails + mpmath.quad(gap, pieces(u, s), maxdegree=5)
        return float(mpmath.log(moment) / (order - 1))


def exact_delta(u, s, epsilon):
    """The integral of the positive part, cut where bisection in many digits finds its sign."""
    with mpmath.workdps(30):
        u, s, factor = mpmath.mpf(u), mpmath.mpf(s), mpmath.exp(mpmath.mpf(epsilon))

        def gap(x):
            return exact_density(x, u) - factor * exact_density(x - s, u)

        low, high = mpmath.mpf(0), u + s
        for _ in range(90):
            middle = (low + high) / 2
            low, high = (middle, high) if gap(middle) > 0 else (low, middle)
        edge = (1 - mpmath.exp(-u)) / (2 * u) * (1 - factor * mpmath.exp(-s))
        cuts = [x for x in pieces(u, s) if x < low]
        return float(edge + mpmath.quad(gap, [*cuts, low], maxdegree=5))


@pytest.mark.parametrize(("rate", "width"), [(2.0, 1.0), (5.0, 0.5), (0.3, 40.0), (10.0, 1e-3)])
def test_the_density_is_the_average_of_laplace_densities(rate, width):
    law = UniformLaplace(rate, width)
    for x in (-3.0 / rate, -1e-3, 0.0, 0.3 * width, width, width + 2.0 / rate):

        def one(y, x=x):
            return 0.5 * rate * math.exp(-rate * abs(x - y)) / width

        inside = [x] if 0 < x < width else None
        exact = quad(one, 0, width, points=inside, epsabs=1e-13)[0]
        assert float(law.density(x)) == pytest.approx(exact, rel=1e-9)
        assert float(law.log_density(x)) == pytest.approx(math.log(exact), abs=1e-9)


@pytest.mark.parametrize("u", WIDTHS)
def test_law_is_accurate_for_all_widths(u):
    law = UniformLaplace(1.0, u)
    points = np.array([-50.0, -1.0, -1e-9, 0.0, 1e-3 * u, 0.3 * u, 0.5 * u])
    with mpmath.workdps(40):
        wide = mpmath.mpf(u)
        for x in points.tolist():
            a = mpmath.mpf(x)
            density = exact_density(a, wide)
            below = density
            if a > 0:
                below = (2 * a + mpmath.exp(-a) - mpmath.exp(a - wide)) / (2 * wide)
            assert float(law.density(x)) == pytest.approx(float(density), rel=1e-13)
            assert float(law.log_density(x)) == pytest.approx(float(mpmath.log(density)), rel=1e-13)
            assert float(law.cdf(x)) == pytest.approx(float(below), rel=1e-13)
    # The mirror image loses what rounding takes from u - x.
    mirrored = law.survival(u - points)
    assert mirrored == pytest.approx(law.cdf(points), rel=1e-9, abs=1e-300)
    assert law.cdf(points) + law.survival(points) == pytest.approx(np.ones(7), rel=1e-14)


@pytest.mark.parametrize("u", [0.0, *WIDTHS])
def test_quantiles_invert_the_distribution(u):
    law = UniformLaplace(4.0, u / 4.0)
    q = np.array([1e-300, 1e-12, 0.01, 0.1, 0.3, 0.49, 0.5, 0.6, 0.99, 1 - 1e-9])
    assert law.cdf(law.quantile(q)) == pytest.approx(q, rel=1e-9)
    assert law.quantile([0.0, 1.0]).tolist() == [-math.inf, math.inf]
    assert np.all(np.diff(law.quantile(q)) >= 0)


def test_the_law_of_width_zero_is_laplace():
    law = UniformLaplace(2.0, 0.0)
    x = np.array([-3.0, -0.1, 0.0, 0.2, 5.0])
    assert law.density(x) == pytest.approx(np.exp(-2 * np.abs(x)), rel=1e-14)
    assert law.log_density([-1e4, 1e4]).tolist() == [-2e4, -2e4]
    assert law.survival(x) == pytest.approx(np.where(x > 0, 0.5 * np.exp(-2 * x), law.survival(x)))
    nearly = UniformLaplace(2.0, 1e-12)
    assert nearly.cdf(x) == pytest.approx(law.cdf(x), rel=1e-11)


@pytest.mark.parametrize("u", WIDTHS)
@pytest.mark.parametrize("length", [1e-12, 1e-3, 1.0, 100.0])
def test_masses_of_short_intervals_do_not_cancel(u, length):
    with mpmath.workdps(40):
        for start in (-2.0, -0.5 * length, 0.0, 0.25 * u, u - 0.5 * length, u + 1.0):
            a, b, wide = mpmath.mpf(start), mpmath.mpf(start) + mpmath.mpf(length), mpmath.mpf(u)

            def below(x, wide=wide):
                if x < 0:
                    return mpmath.exp(x) * (1 - mpmath.exp(-wide)) / (2 * wide)
                if x > wide:
                    return 1 - below(wide - x)
                return (2 * x + mpmath.exp(-x) - mpmath.exp(x - wide)) / (2 * wide)

            exact = float(below(b) - below(a))
            value = float(mass(np.array([start]), np.array([length]), u)[0])
            assert value == pytest.approx(exact, rel=1e-9 if u < 1e6 else 1e-6)


@pytest.mark.parametrize("u", WIDTHS)
@pytest.mark.parametrize("s", [1e-9, 1e-3, 0.5, 20.0, 400.0])
def test_losses_decrease_from_the_shift_to_zero_without_cancellation(u, s):
    shares = np.linspace(0, 1, 23)
    x = 0.5 * (u + s) * shares
    losses = loss(x, u, s)
    with mpmath.workdps(60):
        # Where s is lost beside u, the point itself is rounded: away from the ends it is fair.
        for at, value in list(zip(x.tolist(), losses.tolist(), strict=True))[:-2]:
            a = mpmath.mpf(at)
            exact = mpmath.log(exact_density(a, u) / exact_density(a - mpmath.mpf(s), u))
            assert value == pytest.approx(float(exact), rel=1e-8, abs=1e-12 * s)
    assert losses[0] == s
    assert losses[-1] <= 1e-9 * s
    assert np.all(np.diff(losses) <= 1e-15 * s)


@pytest.mark.parametrize(("u", "kappa"), KAPPAS)
def test_ratio_of_fisher_informations(u, kappa):
    assert fisher_ratio(u) == pytest.approx(kappa, abs=6e-4)
    assert UniformLaplace(4.0, u / 4.0).fisher_ratio == fisher_ratio(u)

    def information(x):
        slope = 0.5 * (math.exp(-x) - math.exp(x - u)) / u
        return slope**2 / (0.5 * (2 - math.exp(-x) - math.exp(x - u)) / u)

    edges = (1 - math.exp(-u)) / u
    assert fisher_ratio(u) == pytest.approx(edges + quad(information, 0, u)[0], rel=1e-10)
    # Better than plain noise of the same variance only far from u = 5 and above.
    assert renyi_divergences(u, 1e-4, (2.0,))[0] == pytest.approx(fisher_ratio(u) * 1e-8, rel=1e-3)


def test_limits_of_the_fisher_ratio():
    assert fisher_ratio(0.0) == 1.0
    assert fisher_ratio(1e-12) == pytest.approx(1.0, rel=1e-9)
    assert fisher_ratio(1e6) == pytest.approx(2 * math.log(2) / 1e6, rel=1e-12)
    assert fisher_ratio(1e300) > 0


@pytest.mark.parametrize(("width", "rate", "shift", "order", "mixed", "plain"), DIVERGENCES)
def test_reference_divergences(width, rate, shift, order, mixed, plain):
    one = UniformLaplaceDP((rate,), (width,), (shift,))
    assert one.renyi((order,)).divergences[0] == pytest.approx(mixed, abs=6e-7)
    assert laplace_divergence(rate * shift, order) == pytest.approx(plain, abs=6e-7)
    assert UniformLaplaceDP((rate,), (0.0,), (shift,)).renyi((order,)).divergences[
        0
    ] == pytest.approx(plain, abs=6e-7)


@pytest.mark.parametrize(("epsilon", "mixed", "plain"), DELTAS)
def test_reference_deltas(epsilon, mixed, plain):
    one = UniformLaplaceDP((2.0,), (1.0,), (0.1,))
    assert one.delta(epsilon) == pytest.approx(mixed, abs=6e-6)
    assert one.without_widths.delta(epsilon) == pytest.approx(plain, abs=6e-6)
    assert one.epsilon(one.delta(epsilon)) == pytest.approx(epsilon, abs=1e-9)


@settings(max_examples=25, deadline=None)
@given(scales, moves, st.floats(1.05, 30.0))
def test_divergences_by_another_integration(u, s, order):
    ((lower, upper),) = renyi_brackets(u, s, (order,), 1e-6)
    exact = exact_divergence(u, s, order)
    assert lower * (1 - 1e-9) - 1e-14 <= exact <= upper * (1 + 1e-9) + 1e-14
    assert upper <= lower * (1 + 2e-6) + 1e-14
    assert upper <= min(s, laplace_divergence(s, order))


@settings(max_examples=25, deadline=None)
@given(scales, moves, st.floats(0.0, 0.999))
def test_hockey_sticks_by_another_integration(u, s, share):
    value, exact = hockey_stick(u, s, share * s), exact_delta(u, s, share * s)
    assert exact * (1 - 1e-11) - 1e-17 <= value <= exact * (1 + 1e-9) + 1e-13 * s


@given(
    st.floats(-12, 6).map(lambda e: 10**e),
    st.floats(-6, 2.5).map(lambda e: 10**e),
    st.floats(1.01, 500.0),
    st.floats(0, 1),
)
@settings(deadline=None)
def test_nothing_ever_exceeds_laplace_noise_and_wider_is_better(u, s, order, share):
    plain = -math.expm1((share - 1) * s / 2)
    deltas = [hockey_stick(width, s, share * s) for width in (0.0, u, 1.3 * u)]
    assert deltas[0] == pytest.approx(plain, rel=1e-9, abs=1e-300)
    assert deltas[2] * (1 - 1e-9) - 1e-14 * s <= deltas[1] <= deltas[0]
    divergences = [renyi_divergences(width, s, (order,))[0] for width in (0.0, u, 1.3 * u)]
    assert divergences[2] * (1 - 2e-6) <= divergences[1] <= divergences[0]


@pytest.mark.parametrize("order", [1.01, 2.0, 32.0, 1e4])
def test_limits_of_divergences(order):
    for s in (1e-6, 0.3, 5.0):
        narrow = renyi_divergences(1e-12, s, (order,))[0]
        assert narrow == pytest.approx(laplace_divergence(s, order), rel=1e-4)
        wide = renyi_divergences(1e6, s, (order,))[0]
        assert 0 < wide < laplace_divergence(s, order)
    # A very wide interval is nothing but its two ends: what is small is of the order 1 / u.
    far, further = (renyi_divergences(u, 0.1, (2.0,))[0] for u in (1e5, 1e6))
    assert far == pytest.approx(10 * further, rel=1e-4)


def test_small_shifts_do_not_cancel():
    for u in (1e-3, 1.0, 30.0):
        for s in (1e-4, 1e-6, 1e-8):
            one = renyi_divergences(u, s, (3.0,))[0]
            assert one == pytest.approx(1.5 * fisher_ratio(u) * s * s, rel=2e-4)
            assert laplace_divergence(s, 3.0) == pytest.approx(1.5 * s * s, rel=2e-4)


@pytest.mark.parametrize("u", [1e-3, 1.0, 50.0])
@pytest.mark.parametrize("s", [100.0, 400.0, 501.0, 5000.0])
def test_large_shifts_stay_in_range(u, s):
    for order in (1.01, 2.0, 1e4):
        value = renyi_divergences(u, s, (order,))[0]
        assert 0 < value <= s
    assert 0 < hockey_stick(u, s, 0.5 * s) <= 1
    assert hockey_stick(u, s, s) == 0.0
    assert UniformLaplaceDP((1.0,), (u,), (s,), (3,)).delta(1.0) <= 1.0


@pytest.mark.parametrize("width", [0.0, 1.0, 100.0])
def test_no_width_lowers_the_largest_loss(width):
    """Beyond the interval the density is exactly exponential, and it is met with that mass."""
    one = UniformLaplaceDP((2.0,), (width,), (0.1,))
    assert one.pure_epsilon == one.epsilon(0.0) == pytest.approx(0.2)
    u = 2.0 * width
    edge = 0.5 if u == 0 else -math.expm1(-u) / (2 * u)
    near = 0.2 - 1e-4
    assert one.delta(near) >= edge * -math.expm1(-1e-4) * (1 - 1e-9) > 0
    assert float(UniformLaplace(2.0, width).cdf(0.0)) == pytest.approx(edge, rel=1e-14)


def test_a_wrong_maximiser_is_caught():
    """The loss log(p(x + s) / p(x)) in the place of log(p(x) / p(x - s)) is too small below."""
    u, s = 2.5, 0.5

    def wrong(epsilon):
        def gap(x):
            claimed = math.log(exact_density(x + s, u) / exact_density(x, u))
            return float(exact_density(x, u)) * max(0.0, -math.expm1(epsilon - abs(claimed)))

        return quad(gap, -30, 0.5 * u, points=[-s, 0.0], limit=200)[0]

    assert wrong(0.2) < exact_delta(u, s, 0.2) * 0.99
    assert hockey_stick(u, s, 0.2) == pytest.approx(exact_delta(u, s, 0.2), rel=1e-12)


@lru_cache(maxsize=2)
def lower_law(parts, n_cells=2**18, n_points=200_001):
    """Positive losses of composed releases, each rounded DOWN, and their law."""
    top = sum(s * count for _, s, count in parts)
    cell = 2.001 * top / n_cells
    transform = np.ones(n_cells // 2 + 1, dtype=complex)
    for u, s, count in parts:
        x = np.linspace(-30, u + s + 30, n_points)
        below = UniformLaplace(1.0, u).cdf(x)
        logs = UniformLaplace(1.0, u).log_density(x)
        losses = logs - UniformLaplace(1.0, u).log_density(x - s)
        # In each cell the loss is at least that at its right end.
        cells = np.floor(losses[1:] / cell - 1e-6).astype(int)
        law = np.zeros(n_cells)
        np.add.at(law, cells % n_cells, np.diff(below))
        transform = transform * np.fft.rfft(law) ** count
    probabilities = np.fft.irfft(transform, n_cells)
    positive = np.arange(n_cells // 2)
    return positive * cell, probabilities[positive]


def lower_delta(parts, epsilon):
    losses, probabilities = lower_law(tuple(parts))
    return float(probabilities @ np.maximum(0.0, -np.expm1(epsilon - losses))) - 1e-12


@pytest.mark.parametrize(
    "parts",
    [
        ((2.0, 0.2, 20),),
        ((0.5, 0.05, 100), (3.0, 0.3, 5)),
        ((10.0, 1.0, 3), (0.0, 0.4, 4)),
        ((0.3, 2.0, 4), (4.0, 0.1, 30), (1.0, 0.7, 2)),
    ],
)
def test_composed_releases_are_above_what_is_attained_and_close(parts):
    pytest.importorskip("dp_accounting")
    us, ss, counts = zip(*parts, strict=True)
    steps = UniformLaplaceDP((1.0,) * len(parts), us, ss, counts)
    for epsilon in (0.0, 0.3, 1.0):
        attained = lower_delta(parts, epsilon)
        assert attained <= steps.delta(epsilon) <= 1.02 * attained + 1e-11
        assert steps.delta(epsilon) <= steps.without_widths.delta(epsilon)
    for delta in (1e-2, 1e-5):
        epsilon = steps.epsilon(delta)
        assert steps.delta(epsilon) <= delta * (1 + 1e-9)
        assert lower_delta(parts, epsilon) <= delta
        assert epsilon < steps.without_widths.epsilon(delta)
        assert epsilon <= steps.renyi(tuple(np.arange(1.5, 64.0, 1.5))).epsilon(delta)
    assert steps.epsilon(0.0) == steps.pure_epsilon
    assert steps.epsilon(1.0) == steps.delta(math.inf) == 0.0


@pytest.mark.parametrize("interval", [1e-4, 0.013, 0.2, 5.0])
@pytest.mark.parametrize(("u", "s"), [(2.0, 0.2), (1e-9, 1.0), (0.0, 1.0), (1e5, 0.7), (0.1, 30.0)])
def test_the_discretised_loss_dominates_the_exact_one(u, s, interval):
    lowest, probabilities = discretised_loss(u, s, interval)
    assert probabilities.min() >= 0
    assert probabilities.sum() == pytest.approx(1.0, abs=1e-13)
    losses = interval * (lowest + np.arange(probabilities.size))
    # Both laws of the pair keep their mass: the second one is exp(-loss) times the first.
    assert probabilities @ np.exp(-losses) == pytest.approx(1.0, abs=1e-9)
    for epsilon in np.linspace(0.0, s, 9):
        dominating = probabilities @ np.maximum(0.0, -np.expm1(epsilon - losses))
        exact = hockey_stick(u, s, float(epsilon))
        assert dominating >= exact * (1 - 1e-9) - 1e-15


def test_one_release_is_a_loss_distribution_too():
    pytest.importorskip("dp_accounting")
    law = _composed(((2.0, 0.2, 1),))
    for epsilon in (0.0, 0.05, 0.1, 0.15):
        exact = hockey_stick(2.0, 0.2, epsilon)
        assert exact <= law.get_delta_for_epsilon(epsilon) * (1 + 1e-12)
        assert law.get_delta_for_epsilon(epsilon) == pytest.approx(exact, rel=1e-6)


@pytest.mark.parametrize("widths", [(1.0, 1.0), (0.5, 3.0), (0.0, 2.0), (10.0, 0.2)])
@pytest.mark.parametrize("shifts", [(0.2, 0.2), (0.6, 0.1), (0.05, 1.0)])
def test_a_vector_reveals_no_more_than_its_narrowest_entry_with_the_whole_move(widths, shifts):
    vector = UniformLaplaceDP.of_vectors([1.0], [widths], sum(shifts))
    assert vector == UniformLaplaceDP((1.0,), (min(widths),), (sum(shifts),))
    parts = tuple((u, s, 1) for u, s in zip(widths, shifts, strict=True))
    for epsilon in (0.0, 0.1, 0.4):
        assert lower_delta(parts, epsilon) <= vector.delta(epsilon)
    for order in (1.5, 4.0, 30.0):
        apart = sum(renyi_brackets(u, s, (order,), 1e-6)[0][0] for u, s, _ in parts)
        assert apart <= vector.renyi((order,)).divergences[0]


def test_without_widths_it_is_laplace():
    one = UniformLaplaceDP((2.0, 4.0), (0.0, 0.0), (0.1, 0.2), (3, 2))
    laplace = LaplaceDP((0.2, 0.8), (3, 2))
    assert one.without_widths == laplace
    for epsilon in (0.0, 0.5, 1.0):
        assert one.delta(epsilon) == pytest.approx(laplace.delta(epsilon), rel=1e-4)
    assert one.pure_epsilon == laplace.pure_epsilon


def test_rounds_of_the_example_cost_what_is_known_of_plain_noise():
    """100 rounds, 14 entries, records moved by 0.01 / 10, and rates that grow by 2 percent."""
    rates = 1.02 ** np.arange(1, 101)
    wide = np.full((100, 14), 0.5)
    entries = UniformLaplaceDP(
        tuple(np.repeat(rates, 14)), tuple(wide.ravel()), (0.01 / 10,) * 1400
    )
    assert entries.pure_epsilon == pytest.approx(4.458677, abs=1e-6)
    vectors = UniformLaplaceDP.of_vectors(rates, wide, 2 * math.sqrt(14) / 100 / 10)
    assert vectors.pure_epsilon == pytest.approx(2.383, abs=5e-4)
    for decay, total in ((0.93 * 1.02, 2.570536), (0.9 * 1.02, 1.567015)):
        others = UniformLaplaceDP(tuple(decay ** np.arange(1, 101)), (0.0,) * 100, (0.14,) * 100)
        assert others.pure_epsilon == pytest.approx(total, abs=1e-6)
    pytest.importorskip("dp_accounting")
    # Composed, even plain noise costs much less than the sum; and the widths lower it further.
    plain = entries.without_widths.epsilon(1e-5)
    assert plain == pytest.approx(0.476, abs=0.002)
    assert entries.epsilon(1e-5) < 0.95 * plain


def test_many_small_releases_are_nearly_gaussian():
    pytest.importorskip("dp_accounting")
    steps = UniformLaplaceDP((2.0,), (1.0,), (0.001,), (1400,))
    gaussian = GaussianDP(steps.approximate_mu)
    assert steps.approximate_mu == pytest.approx(math.sqrt(1400 * 0.5412) * 0.002, rel=1e-3)
    assert steps.epsilon(1e-5) == pytest.approx(gaussian.epsilon(1e-5), rel=2e-3)


def test_plain_and_uniform_releases_compose():
    pytest.importorskip("dp_accounting")
    uniform, laplace = UniformLaplaceDP((2.0,), (1.0,), (0.1,), (10,)), LaplaceDP((0.3,), (4,))
    both = compose_uniform_laplace(uniform, laplace)
    assert both.n_releases == 14
    assert both.pure_epsilon == pytest.approx(uniform.pure_epsilon + laplace.pure_epsilon)
    assert both.without_widths == compose(uniform.without_widths, laplace)
    for epsilon in (0.0, 0.5, 1.5):
        attained = lower_delta(((2.0, 0.2, 10), (0.0, 0.3, 4)), epsilon)
        assert attained <= both.delta(epsilon) <= 1.02 * attained + 1e-11
        assert max(uniform.delta(epsilon), laplace.delta(epsilon)) <= both.delta(epsilon)
    assert compose_uniform_laplace().delta(0.0) == 0.0


def test_other_compositions_are_refused():
    one = UniformLaplaceDP((2.0,), (1.0,), (0.1,))
    with pytest.raises(TypeError, match="Got UniformLaplaceDP"):
        compose(one, GaussianDP(1.0))
    with pytest.raises(TypeError, match="expected UniformLaplaceDP or LaplaceDP"):
        compose_uniform_laplace(one, GaussianDP(1.0))
    # Divergences are another way, and a sound one.
    pytest.importorskip("dp_accounting")
    orders = tuple(range(2, 20))
    assert compose(one.renyi(orders), GaussianDP(1.0)).epsilon(1e-5) > GaussianDP(1.0).epsilon(1e-5)


def test_equal_releases_are_one_entry_and_those_that_do_not_move_none():
    steps = UniformLaplaceDP((1.0, 2.0, 1.0, 3.0), (1.0, 0.5, 1.0, 1.0), (0.1, 0.2, 0.1, 0.0))
    assert steps == UniformLaplaceDP((2.0, 1.0), (0.5, 1.0), (0.2, 0.1), (1, 2))
    assert hash(steps) == hash(UniformLaplaceDP((1.0, 2.0, 1.0), (1.0, 0.5, 1.0), (0.1, 0.2, 0.1)))
    assert steps.n_releases == 3
    nothing = UniformLaplaceDP((), (), ())
    assert nothing.delta(0.0) == nothing.epsilon(0.0) == nothing.epsilon(1e-5) == 0.0
    assert nothing.renyi((2.0,)).divergences == (0.0,)


def test_it_reads_back_from_json_and_describes_itself():
    steps = UniformLaplaceDP((2.0,), (1.0,), (0.1,), (5,))
    written = json.loads(json.dumps(steps.to_dict()))
    assert written.pop("kind") == "uniform_laplace"
    assert UniformLaplaceDP(**{name: tuple(values) for name, values in written.items()}) == steps
    assert steps.describe() == "uniform+Laplace(sum of epsilons=1, widths >= 1), 5 releases"
    assert UniformLaplaceDP((), (), ()).describe().endswith("0 releases")


def test_what_plainly_dominates():
    one = UniformLaplaceDP((2.0,), (1.0,), (0.1,), (5,))
    assert one.dominates(one)
    assert one.dominates(UniformLaplaceDP((2.0,), (1.5,), (0.1,), (4,)))
    assert not one.dominates(UniformLaplaceDP((2.0,), (0.5,), (0.1,)))
    assert not one.dominates(LaplaceDP((0.2,)))
    assert not one.dominates(GaussianDP(0.1))
    plain = UniformLaplaceDP((1.0,), (0.0,), (0.2,), (5,))
    assert plain.dominates(LaplaceDP((0.2,), (5,)))
    assert plain.dominates(one)
    assert worst(one, plain) == plain
    many = UniformLaplaceDP((2.0,), (1.0,), (1e-9,), (10**6,))
    assert many.dominates(many)
    assert not many.dominates(one)


@pytest.mark.parametrize("u", [0.5, 5.0])
def test_without_the_library_the_laplace_bound_answers(monkeypatch, u):
    for name in [name for name in sys.modules if name.partition(".")[0] == "dp_accounting"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    _composed.cache_clear()
    steps = UniformLaplaceDP((1.0,), (u,), (0.1,), (100,))
    assert steps.delta(1.0) == steps.without_widths.delta(1.0)
    assert steps.epsilon(1e-5) == steps.without_widths.epsilon(1e-5)
    single = UniformLaplaceDP((1.0,), (u,), (0.1,))
    assert single.epsilon(1e-3) < single.without_widths.epsilon(1e-3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (((0.0,), (1.0,), (0.1,)), "Got rates="),
        (((math.inf,), (1.0,), (0.1,)), "Got rates="),
        (((1.0,), (-1.0,), (0.1,)), "Got widths="),
        (((1.0,), (math.nan,), (0.1,)), "Got widths="),
        (((1.0,), (1.0,), (-0.1,)), "Got shifts="),
        (((1e200,), (1e200,), (0.1,)), r"Got rates \* widths="),
        (((1.0,), (1.0,), (0.1,), (0,)), "Got counts="),
        (((1.0,), (1.0, 2.0), (0.1,)), "Got 1 rates, 2 widths"),
    ],
)
def test_releases_out_of_range_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        UniformLaplaceDP(*arguments)


def test_laws_vectors_and_questions_out_of_range_are_refused():
    for rate, width in ((0.0, 1.0), (1.0, -1.0), (1.0, math.inf), (1e200, 1e200)):
        with pytest.raises(ValueError, match=r"Got rate|Got width"):
            UniformLaplace(rate, width)
    with pytest.raises(ValueError, match="Got probability="):
        UniformLaplace(1.0, 1.0).quantile([0.5, 1.5])
    with pytest.raises(ValueError, match=r"Got widths.shape="):
        UniformLaplaceDP.of_vectors([1.0, 2.0], [[1.0]], 0.1)
    with pytest.raises(ValueError, match="Got widths="):
        UniformLaplaceDP.of_vectors([1.0], [[1.0, math.nan]], 0.1)
    one = UniformLaplaceDP((2.0,), (1.0,), (0.1,))
    with pytest.raises(ValueError, match="Got epsilon="):
        one.delta(-1.0)
    with pytest.raises(ValueError, match="Got delta="):
        one.epsilon(2.0)
    with pytest.raises(ValueError, match="Got orders="):
        one.renyi((1.0, 2.0))
    with pytest.raises(ValueError, match="Got rtol="):
        one.renyi((2.0,), rtol=0.0)
