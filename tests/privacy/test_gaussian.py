"""Gaussian releases, sampled or not: exact where it can be, and on the safe side."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import norm

from skdpadmm.privacy import GaussianDP, Neighboring, compose, gaussian_mu
from skdpadmm.privacy import PoissonSubsampledGaussian as Sampled

mpmath = pytest.importorskip("mpmath")
pytest.importorskip("dp_accounting")

POINTS = {1e-8: (0.0, 1e-9, 1e-8, 2e-7), 1e-4: (3e-3,), 0.1: (1e-12, 0.65), 0.6: (0.8,)}
POINTS |= {1.0: (0.0, 0.5, 30.0), 1.4: (0.001,), 2.0: (4.0,), 5.0: (12.4, 40.0)}
POINTS |= {30.0: (450.0,), 50.0: (1000.0,)}
MU_OF_EPSILON = {
    1e-6: {0.01: 0.003264, 0.1: 0.027545, 0.5: 0.124106, 1: 0.236704, 2: 0.448335}
    | {5: 1.020357, 10: 1.848132},
    1e-5: {0.1: 0.032521, 1: 0.268051, 5: 1.121242},
}
deltas = st.floats(-300, -1e-3).map(lambda exponent: 10.0**exponent)


@pytest.mark.parametrize("mu", POINTS)
def test_log_delta_is_the_balle_wang_formula_in_1500_digits(mu):
    for epsilon in POINTS[mu]:
        with mpmath.workdps(1500):  # cancellation is paid for in digits
            m, e = mpmath.mpf(mu), mpmath.mpf(epsilon)
            value = mpmath.ncdf(m / 2 - e / m) - mpmath.exp(e) * mpmath.ncdf(-m / 2 - e / m)
            exact = float(mpmath.log(value))
        # The position eps/mu - mu/2 is rounded, and moves log delta by its slope.
        slope = abs(epsilon / mu - mu / 2) * (epsilon / mu + mu / 2)
        tolerance = 1e-15 * (10 + abs(exact) + slope)
        assert GaussianDP(mu).log_delta(epsilon) == pytest.approx(exact, abs=tolerance, rel=0)


def test_extremes_follow_the_asymptotics():
    for mu in (1e-300, 1e-8, 1.0, 1e6, 1e300):
        for epsilon in (0.0, 1e-300, 1.0, 1e6, 1e300, math.inf):
            assert 0 <= GaussianDP(mu).delta(epsilon) <= 1
    assert GaussianDP(1e6).delta(1e3) == pytest.approx(1.0)
    assert GaussianDP(1e6).delta(5e11) == pytest.approx(0.5, abs=1e-6)
    # M(a) - M(b) = mu / (a b) to first order in 1/a^2, here with a = 500, b = 1500.
    expected = -(500.0**2) / 2 - 0.5 * math.log(2 * math.pi) + math.log(1000 / 7.5e5)
    assert GaussianDP(1e3).log_delta(1e6) == pytest.approx(expected, abs=1e-5)
    assert GaussianDP(0.0).log_delta(1.0) == -math.inf
    # Where delta underflows nothing is purely private.
    assert GaussianDP(0.9).delta(1e4) == 0.0
    assert GaussianDP(0.9).epsilon(0.0) == math.inf


def test_mu_reproduces_the_reference_table():
    for delta, table in MU_OF_EPSILON.items():
        for epsilon, mu in table.items():
            assert gaussian_mu(epsilon, delta) == pytest.approx(mu, abs=6e-7)


@given(epsilon=st.one_of(st.just(0.0), st.floats(1e-12, 1e6)), delta=deltas)
def test_mu_is_the_largest_that_meets_the_budget(epsilon, delta):
    mu = gaussian_mu(epsilon, delta)
    assert GaussianDP(mu).delta(epsilon) <= delta
    # Rounding of eps/mu - mu/2 limits how sharply delta answers to mu.
    assert GaussianDP(mu * (1 + 1e-10)).delta(epsilon) > delta


@given(mu=st.floats(1e-8, 1e4), delta=deltas, step=st.floats(1e-3, 1))
def test_epsilon_is_the_safe_side_of_the_smallest_and_delta_is_monotone(mu, delta, step):
    guarantee = GaussianDP(mu)
    epsilon = guarantee.epsilon(delta)
    assert guarantee.delta(epsilon) <= delta
    assert epsilon == 0 or guarantee.delta(epsilon * (1 - 1e-9)) > delta
    assert guarantee.log_delta(epsilon + step) <= guarantee.log_delta(epsilon)
    assert guarantee.log_delta(epsilon) <= GaussianDP(mu + step).log_delta(epsilon)


@given(st.lists(st.floats(0, 1e6), max_size=20))
def test_gaussians_compose_to_the_root_of_squares(mus):
    expected = math.sqrt(math.fsum(mu**2 for mu in mus))
    assert compose(*map(GaussianDP, mus)).mu == pytest.approx(expected, rel=1e-13, abs=1e-150)


# Poisson sampling --------------------------------------------------------------------------------

ZERO_OUT, REPLACE_ONE = Neighboring.ZERO_OUT, Neighboring.REPLACE_ONE
of_relations = pytest.mark.parametrize("relation", list(Neighboring))


def test_sampled_epsilons_reproduce_the_reference_tables():
    for q, multiplier, n_rounds, *expected in (
        (0.1, 2.0, 1000, 9.18, 19.25),
        (0.1, 4.0, 1000, 3.87, 8.28),
        (0.1, 10.0, 1000, 1.379, 2.92),
        (0.1, 20.0, 100, 0.191, 0.397),
    ):
        for relation, epsilon in zip((ZERO_OUT, REPLACE_ONE), expected, strict=True):
            sampled = Sampled(q, multiplier, n_rounds, relation)
            # Half a unit of the printed digits, and the discretisation on top.
            assert sampled.epsilon(1e-6) == pytest.approx(epsilon, rel=2e-3)
    assert Sampled(0.01, 1.0, 1000, ZERO_OUT).epsilon(1e-5) == pytest.approx(1.82824, abs=5e-5)


@of_relations
@pytest.mark.parametrize(("multiplier", "n_rounds"), [(1.0, 1), (5.0, 30), (40.0, 1000)])
def test_everybody_sampled_is_gaussian_dp_with_one_doubled_shift(relation, multiplier, n_rounds):
    """The library doubles the sensitivity itself under replace-one; doubling again shows here."""
    shift = 2.0 if relation is REPLACE_ONE else 1.0
    assert relation.sensitivity_factor == shift
    # |a a' - b b'| of rows in the unit ball, and of one row.
    assert relation.second_moment_factor == pytest.approx(math.sqrt(shift))
    sampled = Sampled(1.0, multiplier, n_rounds, relation)
    alone = shift * math.sqrt(n_rounds) / multiplier
    beside = compose(sampled, GaussianDP(0.4))
    for guarantee, mu in ((sampled, alone), (beside, math.hypot(alone, 0.4))):
        for delta in (1e-3, 1e-6, 1e-9):
            exact = GaussianDP(mu).epsilon(delta)
            assert exact <= guarantee.epsilon(delta) <= exact * 1.001
        for epsilon in (0.0, 0.5, 2.0):
            exact = GaussianDP(mu).delta(epsilon)
            assert exact <= guarantee.delta(epsilon) <= exact * (1 + 2e-3) + 2e-12


@pytest.mark.parametrize(("q", "multiplier"), [(0.1, 2.0), (0.5, 0.7)])
@pytest.mark.parametrize("epsilon", [0.0, 0.1, 0.4])
def test_one_round_is_amplification_by_sampling_or_the_antipodal_pair(q, multiplier, epsilon):
    # Removal costs q delta(log(1 + (e^eps - 1)/q)), the larger direction.
    removed = q * GaussianDP(1 / multiplier).delta(math.log1p(math.expm1(epsilon) / q))

    def gap(x):
        common, one, other = (norm.pdf(x, at, multiplier) for at in (0, 1, -1))
        return (1 - q) * common + q * one - math.exp(epsilon) * ((1 - q) * common + q * other)

    # The gap is negative left of its only root and positive right of it.
    low, high = -40 * multiplier, 40 * multiplier
    for _ in range(100):
        root = 0.5 * (low + high)
        low, high = (low, root) if gap(root) > 0 else (root, high)
    replaced = quad(gap, root, root + 30 * multiplier, epsabs=1e-14, limit=200)[0]
    for relation, exact in ((ZERO_OUT, removed), (REPLACE_ONE, replaced)):
        claimed = Sampled(q, multiplier, 1, relation).delta(epsilon)
        assert exact * (1 - 1e-9) <= claimed <= exact * 1.001 + 2e-12


def test_what_arithmetic_cannot_resolve_is_charged_not_promised():
    sampled = Sampled(0.1, 20.0, 100, "zero_out")
    twice = Sampled(0.1, 20.0, 200, ZERO_OUT)
    assert compose(sampled, sampled).epsilon(1e-6) == twice.epsilon(1e-6)
    assert sampled.delta(100.0) >= 1e-12
    assert sampled.epsilon(1e-12) == math.inf
    assert sampled.delta(1e6) == sampled.delta(700.0)
    for relation in Neighboring:
        hardly_any_noise = Sampled(1.0, 1e-3, 1, relation)
        assert hardly_any_noise.delta(1.0) == 1.0
        assert hardly_any_noise.epsilon(1e-6) == math.inf
        # A discretisation as fine as tiny losses would fall below the truth by rounding errors.
        for multiplier in (1.0, 1e2, 1e4, 1e8, 1e100):
            rounds = Sampled(1.0, multiplier, 100, relation)
            mu = relation.sensitivity_factor * 10 / multiplier
            for epsilon in (0.0, mu, 5 * mu, mu * mu):
                assert rounds.delta(epsilon) >= GaussianDP(mu).delta(epsilon)
