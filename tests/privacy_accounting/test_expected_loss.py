"""The expected absolute privacy loss: other integrations, a printed bound, and what it is not."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad

from skdpadmm.privacy import (
    LaplaceDP,
    UniformLaplace,
    UniformLaplaceDP,
    expected_privacy_loss_factor,
    expected_privacy_loss_factor_bound,
    expected_privacy_loss_factor_ceiling,
    total_expected_privacy_loss_factor,
)
from skdpadmm.privacy.literature import random_aggregator_printed_average_loss

# rate, width, shift; exact
FACTORS = [
    (2.0, 0.1, 1e-3, 0.9526),
    (10.0, 0.1, 1e-3, 0.7906),
    (5.0, 0.5, 1e-3, 0.5720),
    (2.0, 1.0, 1e-3, 0.6327),
    (10.0, 1.0, 1e-3, 0.1993),
    (5.0, 0.5, 0.1, 0.6868),
    (5.0, 0.5, 0.3, 0.8576),
]
# rate, width, shift; exact, printed, corrected
BOUNDS = [
    (5.0, 0.5, 0.1, 0.6868, 0.6633, 0.7136),
    (5.0, 0.1, 0.001, 0.8869, 0.8851, None),
]
LIMITS = [(0.5, 0.885), (1, 0.787), (2, 0.632), (3, 0.518), (5, 0.367), (10, 0.199)]


def integrate(rate, width, shift, loss_of):
    """Average over the half below the middle, twice, in the arithmetic of floats."""
    law = UniformLaplace(rate, width)

    def term(x):
        return float(law.density(x)) * loss_of(law, x)

    ends = sorted({0.0, min(shift, 0.5 * width), 0.5 * width})
    low = quad(term, -40 / rate, 0.0, epsabs=1e-13)[0]
    inside = sum(quad(term, a, b, epsabs=1e-13)[0] for a, b in pairwise(ends) if a < b)
    return 2 * (low + inside) / (rate * shift)


@pytest.mark.parametrize(("rate", "width", "shift", "exact"), FACTORS)
def test_reference_factors(rate, width, shift, exact):
    assert expected_privacy_loss_factor(rate, width, shift) == pytest.approx(exact, abs=6e-5)


@pytest.mark.parametrize(("u", "limit"), LIMITS)
def test_the_limit_of_small_shifts_depends_on_the_product_alone(u, limit):
    for rate in (0.1, 1.0, 7.0):
        at_zero = expected_privacy_loss_factor(rate, u / rate, 0.0)
        assert at_zero == pytest.approx(-math.expm1(-u / 2) / (u / 2), rel=1e-14)
        assert at_zero == pytest.approx(limit, abs=6e-4)
        for shift in (1e-12, 1e-8, 1e-6):
            near = expected_privacy_loss_factor(rate, u / rate, shift)
            assert near == pytest.approx(at_zero, rel=1e-5)
        assert expected_privacy_loss_factor_bound(rate, u / rate, 0.0) == at_zero


@pytest.mark.parametrize("rate", np.linspace(2, 10, 5).tolist())
@pytest.mark.parametrize("width", np.linspace(0.1, 1.0, 4).tolist())
def test_the_factor_decreases_in_width_and_rate(rate, width):
    factor = expected_privacy_loss_factor(rate, width, 1e-3)
    assert expected_privacy_loss_factor(rate + 1, width, 1e-3) < factor
    assert expected_privacy_loss_factor(rate, width + 0.1, 1e-3) < factor
    assert factor == pytest.approx(expected_privacy_loss_factor(rate, width, 0.0), rel=0.01)


def worse_loss(shift):
    def loss_of(law, x):
        losses = [float(law.log_density(x) - law.log_density(x + s)) for s in (shift, -shift)]
        return max(map(abs, losses))

    return loss_of


@settings(max_examples=40, deadline=None)
@given(st.floats(0.2, 20.0), st.floats(1e-3, 3.0), st.floats(1e-3, 2.0))
def test_the_factor_by_another_integration_of_the_worse_sign(rate, width, shift):
    exact = integrate(rate, width, shift, worse_loss(shift))
    factor = expected_privacy_loss_factor(rate, width, shift)
    assert factor == pytest.approx(exact, rel=1e-7)
    assert factor <= expected_privacy_loss_factor_bound(rate, width, shift) * (1 + 1e-12)
    assert expected_privacy_loss_factor_bound(rate, width, shift) <= 1.0


@pytest.mark.parametrize(("rate", "width", "shift"), [(5.0, 0.5, 0.1), (2.0, 1.0, 0.5), (5, 1, 2)])
def test_the_factor_by_simulation(rate, width, shift):
    rng = np.random.default_rng(0)
    x = rng.uniform(0, width, 400_000) + rng.laplace(0, 1 / rate, 400_000)
    law = UniformLaplace(rate, width)
    here = law.log_density(x)
    losses = np.maximum(
        np.abs(here - law.log_density(x - shift)), np.abs(here - law.log_density(x + shift))
    )
    factor = expected_privacy_loss_factor(rate, width, shift)
    error = losses.std() / math.sqrt(x.size) / (rate * shift)
    assert losses.max() <= rate * shift * (1 + 1e-9)
    assert losses.mean() / (rate * shift) == pytest.approx(factor, abs=4 * error)
    if (rate, width, shift) == (5.0, 0.5, 0.1):
        printed = random_aggregator_printed_average_loss(rate, width, shift)
        assert losses.mean() / (rate * shift) > printed + 20 * error


@pytest.mark.parametrize(("rate", "width", "shift", "exact", "printed", "corrected"), BOUNDS)
def test_the_printed_bound_is_below_what_it_should_bound(
    rate, width, shift, exact, printed, corrected
):
    factor = expected_privacy_loss_factor(rate, width, shift)
    refuted = random_aggregator_printed_average_loss(rate, width, shift)
    valid = expected_privacy_loss_factor_bound(rate, width, shift)
    assert factor == pytest.approx(exact, abs=6e-5)
    assert refuted == pytest.approx(printed, abs=6e-5)
    assert refuted < factor < valid
    if corrected is not None:
        assert valid == pytest.approx(corrected, abs=6e-5)


def test_where_the_shift_is_large_the_printed_value_happens_to_hold():
    factor = expected_privacy_loss_factor(5.0, 0.5, 0.3)
    printed = random_aggregator_printed_average_loss(5.0, 0.5, 0.3)
    corrected = expected_privacy_loss_factor_bound(5.0, 0.5, 0.3)
    assert (factor, printed, corrected) == pytest.approx((0.8576, 0.8828, 0.8775), abs=6e-5)


def test_the_printed_bound_is_that_of_the_wrong_maximiser():
    """By Jensen's inequality for log(p(x + t) / p(x)), below the middle, where it is the smaller.

    It averages that loss on (0, (width - t) / 2) and takes the largest loss elsewhere.
    """
    rate, width, shift = 5.0, 0.5, 0.1
    law = UniformLaplace(rate, width)

    def wrong(law, x):
        if 0 < x < (width - shift) / 2:
            return float(law.log_density(x + shift) - law.log_density(x))
        return rate * shift

    def right(law, x):
        return float(law.log_density(x) - law.log_density(x - shift))

    # p increases below the middle, and less and less so: the step back is the larger one.
    for x in (0.01, 0.05, 0.1, 0.15):
        assert wrong(law, x) < right(law, x)
    inside = quad(
        lambda x: float(law.density(x)) * (right(law, x) - wrong(law, x)), 0, 0.2, points=[0.1]
    )[0]
    assert inside > 0
    exponential = integrate(
        rate, width, shift, lambda law, x: math.exp(wrong(law, x)) * rate * shift
    )
    printed = random_aggregator_printed_average_loss(rate, width, shift)
    assert printed == pytest.approx(math.log(exponential) / (rate * shift), rel=1e-6)


@pytest.mark.parametrize("width", [0.0, 1e-12, 1e-3, 1.0, 30.0, 1e6])
@pytest.mark.parametrize("shift", [1e-9, 1e-3, 1.0, 29.0, 31.0, 1000.0, 1e8])
def test_factors_stay_in_range(width, shift):
    factor = expected_privacy_loss_factor(1.0, width, shift)
    assert 0 < factor <= expected_privacy_loss_factor_bound(1.0, width, shift) * (1 + 1e-9) <= 1.01
    if width <= 1e-12:
        assert factor == pytest.approx(1.0, rel=1e-9)
    if shift > 1000 * (1 + width):
        assert factor == pytest.approx(1.0, abs=2e-3)


def test_the_total_weighs_rounds_by_their_largest_loss():
    rates, widths = np.array([1.0, 2.0, 4.0]), np.array([[0.0, 0.3], [1.0, 2.0], [0.1, 5.0]])
    shifts = np.array([0.1, 0.2, 0.05])
    losses = [
        expected_privacy_loss_factor(b, w, t) * b * t
        for b, row, t in zip(rates, widths, shifts, strict=True)
        for w in row
    ]
    expected = sum(losses) / (2 * float(rates @ shifts))
    total = total_expected_privacy_loss_factor(rates, widths, shifts)
    assert total == pytest.approx(expected, rel=1e-13)
    same = total_expected_privacy_loss_factor(rates, np.full((3, 2), 1e-14), 0.1)
    assert same == pytest.approx(1.0)
    assert (
        total_expected_privacy_loss_factor(1.02 ** np.arange(100), np.zeros((100, 14)), 1e-3) == 1
    )
    # Rounds that do not move weigh nothing.
    assert total_expected_privacy_loss_factor([1.0, 1.0], [[9.0], [0.0]], [0.0, 0.1]) == 1.0


def test_widths_of_the_scale_of_the_noise_lower_the_average_by_about_thirty_percent():
    rates = 1.02 ** np.arange(1, 101)
    rng = np.random.default_rng(0)
    spread = np.abs(rng.laplace(0, 1, (100, 14)) + rng.laplace(0, 0.5, (100, 14)))
    total = total_expected_privacy_loss_factor(rates, spread / rates[:, None], 1e-3)
    assert 0.6 < total < 0.85


def test_an_average_loss_is_no_epsilon():
    """The curve at gamma times the largest loss is far above zero: nothing is guaranteed there."""
    rate, width, shift = 2.0, 1.0, 0.1
    average = expected_privacy_loss_factor(rate, width, shift) * rate * shift
    assert UniformLaplaceDP((rate,), (width,), (shift,)).delta(average) > 0.015
    assert UniformLaplaceDP((rate,), (width,), (shift,)).pure_epsilon > 1.4 * average
    # And composed, it is far more than what plain noise without any width costs.
    pytest.importorskip("dp_accounting")
    many = LaplaceDP((0.002,), (1400,))
    assert many.epsilon(1e-5) < 0.2 * 1400 * 0.002 * expected_privacy_loss_factor(2.0, 1.0, 0.001)


@pytest.mark.parametrize(
    "function", [expected_privacy_loss_factor, expected_privacy_loss_factor_bound]
)
@pytest.mark.parametrize(
    "bad", [(0.0, 1, 1), (1, -1, 1), (1, 1, -1), (math.nan, 1, 1), (1, 1, math.inf)]
)
def test_parameters_out_of_range_are_refused(function, bad):
    with pytest.raises(ValueError, match=r"^Got (rate|width|shift)="):
        function(*bad)


def test_products_and_shapes_out_of_range_are_refused():
    with pytest.raises(ValueError, match=r"Got rate \* width="):
        expected_privacy_loss_factor(1e200, 1e200, 1.0)
    with pytest.raises(ValueError, match=r"Got rate \* shift="):
        expected_privacy_loss_factor(1e200, 1.0, 1e200)
    with pytest.raises(ValueError, match=r"Got widths.shape="):
        total_expected_privacy_loss_factor([1.0], [0.1], 0.1)
    with pytest.raises(ValueError, match="Got shifts="):
        total_expected_privacy_loss_factor([1.0], [[0.1]], 0.0)


def test_the_ceiling_is_above_the_exact_factor_and_tight_for_small_shifts():
    rng = np.random.default_rng(0)
    rates, widths = 10 ** rng.uniform(-2, 2, 60), 10 ** rng.uniform(-3, 2, 60)
    shifts = 10 ** rng.uniform(-4, 0.5, 60) / rates
    ceilings = expected_privacy_loss_factor_ceiling(rates, widths, shifts)
    for rate, width, shift, ceiling in zip(rates, widths, shifts, ceilings, strict=True):
        exact, s = expected_privacy_loss_factor(rate, width, shift), rate * shift
        assert exact <= ceiling * (1 + 1e-9)
        assert ceiling <= exact * (math.expm1(s) / s) ** 2 * (1 + 1e-6)
    assert ceilings.max() <= 1.0
    u = np.array([0.5, 1.0, 2.0, 3.0, 5.0, 10.0])
    gamma = [0.885, 0.787, 0.632, 0.518, 0.367, 0.199]
    np.testing.assert_allclose(expected_privacy_loss_factor_ceiling(1.0, u, 0.0), gamma, atol=6e-4)
    assert expected_privacy_loss_factor_ceiling(1.0, [0.0], [1.0]).tolist() == [1.0]


@pytest.mark.parametrize("shift", [60.0, 1e3, 1e30, 1e300])
def test_the_ceiling_claims_nothing_where_shifts_are_large(shift):
    for width in (0.0, 1.0, 1e25, math.inf):
        assert expected_privacy_loss_factor_ceiling(1.0, width, shift) == 1.0
    assert expected_privacy_loss_factor_ceiling(1e200, 1e200, 1e200) == 1.0
    assert expected_privacy_loss_factor_ceiling(1.0, math.inf, 1.0) == 0.0


@pytest.mark.parametrize(
    ("rates", "widths", "shifts", "message"),
    [
        ([1.0, 0.0], 1.0, 1.0, "rates"),
        (math.inf, 1.0, 1.0, "rates"),
        (1.0, [-1.0], 1.0, "widths"),
        (1.0, math.nan, 1.0, "widths"),
        (1.0, 1.0, [math.inf], "shifts"),
        (1.0, 1.0, -1.0, "shifts"),
        ([1.0, 1.0], [1.0, 1.0, 1.0], 1.0, "broadcast"),
    ],
)
def test_a_ceiling_of_what_is_out_of_range_is_refused(rates, widths, shifts, message):
    with pytest.raises(ValueError, match=message):
        expected_privacy_loss_factor_ceiling(rates, widths, shifts)


@pytest.mark.parametrize("shifts", [[0.1], [0.1, 0.1, 0.1], [[0.1, 0.1]]])
def test_shifts_of_other_rounds_are_refused(shifts):
    with pytest.raises(ValueError, match=r"Got shifts\.shape=\(.*n_rounds=2, that of rates"):
        total_expected_privacy_loss_factor([1.0, 1.0], [[0.1], [0.2]], shifts)
