"""Gaussian differential privacy is exact, stable, and errs on the safe side."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skdpadmm.privacy import GaussianDP, Guarantee, NonPrivate, gaussian_mu

mpmath = pytest.importorskip("mpmath")

MU_AT_1E6 = {0.01: 0.003264, 0.1: 0.027545, 0.5: 0.124106, 1: 0.236704, 2: 0.448335}
MU_AT_1E6 |= {5: 1.020357, 10: 1.848132}
POINTS = {
    1e-8: (0.0, 1e-9, 1e-8, 2e-7),
    1e-4: (3e-3,),
    0.1: (1e-12, 0.65),
    0.6: (0.8,),
    1.0: (0.0, 0.5, 30.0),
    1.4: (0.001,),
    2.0: (4.0,),
    5.0: (12.4, 40.0),
    30.0: (450.0,),
    50.0: (1000.0,),
}
MU_AT_1E5 = {0.1: 0.032521, 1: 0.268051, 5: 1.121242}


def printed_formula(mu: float, epsilon: float) -> float:
    """log(Phi(mu/2 - eps/mu) - e^eps Phi(-mu/2 - eps/mu)), cancellation paid for in digits."""
    with mpmath.workdps(1500):
        m, e = mpmath.mpf(mu), mpmath.mpf(epsilon)
        value = mpmath.ncdf(m / 2 - e / m) - mpmath.exp(e) * mpmath.ncdf(-m / 2 - e / m)
        return float(mpmath.log(value))


@pytest.mark.parametrize(
    ("mu", "epsilon"), [(mu, epsilon) for mu, epsilons in POINTS.items() for epsilon in epsilons]
)
def test_log_delta_is_the_balle_wang_formula_in_1500_digits(mu, epsilon):
    exact = printed_formula(mu, epsilon)
    # The position eps/mu - mu/2 is rounded, and moves log delta by its slope.
    slope = abs(epsilon / mu - mu / 2) * (epsilon / mu + mu / 2)
    tolerance = 1e-15 * (10 + abs(exact) + slope)
    assert GaussianDP(mu).log_delta(epsilon) == pytest.approx(exact, abs=tolerance, rel=0)


@pytest.mark.parametrize("mu", [1e-300, 1e-8, 1.0, 1e3, 1e6, 1e300])
@pytest.mark.parametrize("epsilon", [0.0, 1e-300, 1.0, 1e3, 1e6, 1e300, math.inf])
def test_delta_is_a_probability_at_every_scale(mu, epsilon):
    assert 0 <= GaussianDP(mu).delta(epsilon) <= 1


def test_extremes_follow_the_asymptotics():
    assert GaussianDP(1e6).delta(1e3) == 1.0
    assert GaussianDP(1e6).delta(5e11) == pytest.approx(0.5, abs=1e-6)
    # M(a) - M(b) = mu / (a b) to first order in 1/a^2, here with a = 500, b = 1500.
    expected = -(500.0**2) / 2 - 0.5 * math.log(2 * math.pi) + math.log(1000 / 7.5e5)
    assert GaussianDP(1e3).log_delta(1e6) == pytest.approx(expected, abs=1e-5)


def test_delta_at_zero_is_the_total_variation():
    for mu in (1e-8, 0.3, 2.0, 7.0):
        expected = math.erf(mu / math.sqrt(8))
        assert GaussianDP(mu).delta(0.0) == pytest.approx(expected, rel=1e-14)


def test_mu_zero_reveals_nothing():
    assert GaussianDP(0.0).delta(0.0) == 0.0
    assert GaussianDP(0.0).log_delta(1.0) == -math.inf
    assert GaussianDP(0.0).epsilon(0.0) == 0.0


@pytest.mark.parametrize(
    ("delta", "table"), [(1e-6, MU_AT_1E6), (1e-5, MU_AT_1E5)], ids=["1e-6", "1e-5"]
)
def test_mu_reproduces_the_reference_table(delta, table):
    for epsilon, mu in table.items():
        assert gaussian_mu(epsilon, delta) == pytest.approx(mu, abs=6e-7)


@given(
    epsilon=st.one_of(st.just(0.0), st.floats(1e-12, 1e6)),
    log10_delta=st.floats(-300, -1e-3),
)
def test_mu_is_the_largest_that_meets_the_budget(epsilon, log10_delta):
    delta = 10.0**log10_delta
    mu = gaussian_mu(epsilon, delta)
    assert mu > 0
    assert GaussianDP(mu).delta(epsilon) <= delta
    # Rounding of eps/mu - mu/2 limits how sharply delta answers to mu.
    assert GaussianDP(mu * (1 + 1e-10)).delta(epsilon) > delta


@given(mu=st.floats(1e-6, 1e4), log10_delta=st.floats(-200, -1e-3))
def test_epsilon_is_the_safe_side_of_the_inverse(mu, log10_delta):
    delta = 10.0**log10_delta
    guarantee = GaussianDP(mu)
    epsilon = guarantee.epsilon(delta)
    assert guarantee.delta(epsilon) <= delta
    if epsilon > 0:
        assert guarantee.delta(epsilon * (1 - 1e-9)) > delta


@given(mu=st.floats(1e-3, 50), epsilon=st.floats(0, 100), step=st.floats(1e-3, 1))
def test_delta_falls_with_epsilon_and_grows_with_mu(mu, epsilon, step):
    smaller = GaussianDP(mu).log_delta(epsilon + step)
    assert smaller <= GaussianDP(mu).log_delta(epsilon)
    assert GaussianDP(mu).log_delta(epsilon) <= GaussianDP(mu + step).log_delta(epsilon)


def test_no_gaussian_mechanism_is_purely_private_even_where_delta_underflows():
    assert GaussianDP(0.9).delta(1e4) == 0.0
    assert GaussianDP(0.9).epsilon(0.0) == math.inf


def test_non_private_promises_nothing_at_any_finite_epsilon():
    assert NonPrivate().delta(0.0) == NonPrivate().delta(1e300) == 1.0
    assert NonPrivate().delta(math.inf) == 0.0
    assert NonPrivate().epsilon(0.999) == math.inf
    assert NonPrivate().epsilon(1.0) == 0.0


@pytest.mark.parametrize("mu", [-1.0, math.nan, math.inf])
def test_a_mu_that_is_no_guarantee_is_refused(mu):
    with pytest.raises(ValueError, match=r"Got mu=.*expected a float in \[0, inf\)"):
        GaussianDP(mu)


@pytest.mark.parametrize(
    ("epsilon", "delta"),
    [(-1.0, 1e-6), (math.inf, 1e-6), (math.nan, 1e-6), (1.0, 0.0), (1.0, 1.0), (1.0, math.nan)],
)
def test_a_budget_that_no_noise_meets_is_refused(epsilon, delta):
    with pytest.raises(ValueError, match=r"^Got (epsilon|delta)=.*expected a float in"):
        gaussian_mu(epsilon, delta)


@pytest.mark.parametrize("guarantee", [GaussianDP(1.0), NonPrivate()])
def test_points_outside_the_curve_are_refused(guarantee):
    for epsilon in (-0.1, math.nan):
        with pytest.raises(ValueError, match="Got epsilon"):
            guarantee.delta(epsilon)
    for delta in (-0.1, 1.1, math.nan):
        with pytest.raises(ValueError, match="Got delta"):
            guarantee.epsilon(delta)


def test_guarantees_are_values_and_describe_themselves_unflatteringly():
    assert GaussianDP(0.5) == GaussianDP(0.5)
    assert len({GaussianDP(0.5), GaussianDP(0.5), GaussianDP(0.6)}) == 2
    assert GaussianDP(np.float64(0.26801)).describe() == "GDP(mu=0.2681)"
    assert GaussianDP(1).to_dict() == {"kind": "gaussian", "mu": 1.0}


@given(mu=st.floats(1e-8, 1e3), log10_delta=st.floats(-300.0, -0.01))
def test_epsilon_is_what_a_search_without_derivatives_finds(mu, log10_delta):
    guarantee, delta = GaussianDP(mu), 10.0**log10_delta
    epsilon = guarantee.epsilon(delta)
    assert guarantee.delta(epsilon) <= delta
    assert epsilon == pytest.approx(Guarantee.epsilon(guarantee, delta), rel=1e-12, abs=0.0)


def test_epsilon_takes_few_looks_at_the_curve(monkeypatch):
    looks, log_delta = [], GaussianDP.log_delta

    def look(self, epsilon):
        looks.append(epsilon)
        return log_delta(self, epsilon)

    monkeypatch.setattr(GaussianDP, "log_delta", look)
    for mu in (1e-6, 1e-3, 0.1, 1.0, 10.0, 1e3):
        for delta in (0.5, 1e-3, 1e-6, 1e-12, 1e-100):
            looks.clear()
            GaussianDP(mu).epsilon(delta)
            assert len(looks) <= 20


@pytest.mark.parametrize("mu", [0.0, 1e-300, 1e-160, 1e8, 1e100, 1e160, 1e300])
@pytest.mark.parametrize("delta", [0.0, 5e-324, 1e-300, 1e-6, 0.5, 1.0 - 2.0**-53, 1.0])
def test_epsilon_at_the_ends_of_numbers_is_that_of_the_plain_search(mu, delta):
    guarantee = GaussianDP(mu)
    assert guarantee.epsilon(delta) == Guarantee.epsilon(guarantee, delta)
