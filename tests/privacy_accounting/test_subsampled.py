"""Poisson subsampling: reference values, exact special cases from below, both relations."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import log_ndtr, ndtr
from scipy.stats import norm

from skdpadmm.privacy import GaussianDP, Neighboring, PoissonSubsampledGaussian, calibrate_noise

pytest.importorskip("dp_accounting")

ZERO_OUT, REPLACE_ONE = Neighboring.ZERO_OUT, Neighboring.REPLACE_ONE


@pytest.mark.parametrize(
    ("q", "multiplier", "n_rounds", "zero_out", "replace_one"),
    [
        (0.1, 2.0, 1000, 9.18, 19.25),
        (0.1, 4.0, 1000, 3.87, 8.28),
        (0.1, 10.0, 1000, 1.379, 2.92),
        (0.1, 20.0, 100, 0.191, 0.397),
    ],
)
def test_epsilon_reproduces_the_reference_table(q, multiplier, n_rounds, zero_out, replace_one):
    for relation, expected in ((ZERO_OUT, zero_out), (REPLACE_ONE, replace_one)):
        sampled = PoissonSubsampledGaussian(q, multiplier, n_rounds, relation)
        # Half a unit of the printed digits, and the discretisation on top.
        assert sampled.epsilon(1e-6) == pytest.approx(expected, rel=2e-3)


def test_epsilon_at_one_percent_reproduces_the_reference():
    sampled = PoissonSubsampledGaussian(0.01, 1.0, 1000, ZERO_OUT)
    assert sampled.epsilon(1e-5) == pytest.approx(1.82824, abs=5e-5)


@pytest.mark.parametrize(("multiplier", "n_rounds"), [(1.0, 1), (5.0, 30), (40.0, 1000)])
@pytest.mark.parametrize("relation", list(Neighboring))
def test_everybody_sampled_is_gaussian_dp_with_the_shift_doubled_once(
    relation, multiplier, n_rounds
):
    """The library doubles the sensitivity itself under replace-one; doubling again shows here."""
    sampled = PoissonSubsampledGaussian(1.0, multiplier, n_rounds, relation)
    shift = {ZERO_OUT: 1.0, REPLACE_ONE: 2.0}[relation]
    exact = GaussianDP(shift * math.sqrt(n_rounds) / multiplier)
    for delta in (1e-3, 1e-6, 1e-9):
        assert exact.epsilon(delta) <= sampled.epsilon(delta) <= exact.epsilon(delta) * 1.001
    for epsilon in (0.0, 0.5, 2.0):
        assert sampled.delta(epsilon) >= exact.delta(epsilon)
        assert sampled.delta(epsilon) == pytest.approx(exact.delta(epsilon), rel=2e-3, abs=2e-12)


@pytest.mark.parametrize(("q", "multiplier"), [(0.1, 2.0), (0.5, 0.7), (0.01, 1.0)])
@pytest.mark.parametrize("epsilon", [0.0, 0.1, 0.4])
def test_one_zero_out_round_is_amplification_by_sampling(q, multiplier, epsilon):
    """Removal costs q delta(log(1 + (e^eps - 1)/q)), the larger direction."""
    amplified = math.log1p(math.expm1(epsilon) / q)
    exact = q * GaussianDP(1 / multiplier).delta(amplified)
    got = PoissonSubsampledGaussian(q, multiplier, 1, ZERO_OUT).delta(epsilon)
    assert exact <= got <= exact * 1.001 + 2e-12


@pytest.mark.parametrize(("q", "multiplier"), [(0.1, 2.0), (0.5, 0.7)])
@pytest.mark.parametrize("epsilon", [0.0, 0.1, 0.4])
def test_one_replace_one_round_is_the_antipodal_pair(q, multiplier, epsilon):
    def gap(x):
        common = (1 - q) * norm.pdf(x, 0, multiplier)
        first = common + q * norm.pdf(x, 1, multiplier)
        return first - math.exp(epsilon) * (common + q * norm.pdf(x, -1, multiplier))

    # The gap is negative left of its only root and positive right of it.
    low, high = -40 * multiplier, 40 * multiplier
    for _ in range(200):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if gap(middle) > 0 else (middle, high)
    exact = quad(gap, high, high + 30 * multiplier, epsabs=1e-14, limit=200)[0]
    got = PoissonSubsampledGaussian(q, multiplier, 1, REPLACE_ONE).delta(epsilon)
    assert exact * (1 - 1e-9) <= got <= exact * 1.001 + 2e-12


def test_composed_rounds_are_never_below_a_threshold_test():
    """The sum of the rounds is one test among many; no bound may be below what it achieves."""
    q, multiplier, n_rounds, epsilon = 0.2, 3.0, 20, 0.5
    counts = np.arange(n_rounds + 1)
    law = np.array([math.comb(n_rounds, k) * q**k * (1 - q) ** (n_rounds - k) for k in counts])
    std = multiplier * math.sqrt(n_rounds)
    threshold = np.linspace(-3 * std, 10 * std, 400)[:, None]
    present = (law * ndtr((counts - threshold) / std)).sum(axis=1)
    absent = np.exp(log_ndtr(-threshold[:, 0] / std))
    achieved = np.max(present - math.exp(epsilon) * absent)
    assert achieved > 1e-3
    bound = PoissonSubsampledGaussian(q, multiplier, n_rounds, ZERO_OUT).delta(epsilon)
    assert achieved <= bound


def test_replace_one_lies_between_zero_out_and_twice_its_shift():
    zero_out = PoissonSubsampledGaussian(0.1, 4.0, 100, ZERO_OUT)
    replace_one = PoissonSubsampledGaussian(0.1, 4.0, 100, REPLACE_ONE)
    assert replace_one.epsilon(1e-6) > zero_out.epsilon(1e-6)


def test_what_arithmetic_cannot_resolve_is_charged_not_promised():
    sampled = PoissonSubsampledGaussian(0.1, 20.0, 100, ZERO_OUT)
    assert sampled.delta(100.0) >= 1e-12
    assert sampled.epsilon(1e-12) == math.inf
    assert sampled.delta(1e6) == sampled.delta(700.0)
    assert sampled.delta(math.inf) == 0.0
    assert sampled.epsilon(1.0) == 0.0


@pytest.mark.parametrize("relation", list(Neighboring))
def test_hardly_any_noise_promises_nothing_instead_of_overflowing(relation):
    sampled = PoissonSubsampledGaussian(1.0, 1e-3, 1, relation)
    assert sampled.delta(1.0) == 1.0
    assert sampled.epsilon(1e-6) == math.inf


def test_large_losses_stay_accurate():
    sampled = PoissonSubsampledGaussian(1.0, 1.0, 1000, REPLACE_ONE)
    exact = GaussianDP(2 * math.sqrt(1000)).epsilon(1e-6)
    assert exact <= sampled.epsilon(1e-6) <= exact * 1.001


def test_the_object_keeps_its_parameters_and_no_distribution():
    sampled = PoissonSubsampledGaussian(0.1, 20.0, 100, "zero_out")
    before = dict(vars(sampled))
    sampled.epsilon(1e-6)
    assert vars(sampled) == before
    assert sampled == PoissonSubsampledGaussian(0.1, 20.0, 100, ZERO_OUT)
    assert sampled.neighboring is ZERO_OUT


def test_a_second_question_is_answered_from_the_cache():
    sampled = PoissonSubsampledGaussian(0.1, 2.0, 999, REPLACE_ONE)
    sampled.epsilon(1e-6)
    start = time.perf_counter()
    PoissonSubsampledGaussian(0.1, 2.0, 999, REPLACE_ONE).delta(1.0)
    assert time.perf_counter() - start < 0.5


def test_calibration_of_a_thousand_rounds_meets_the_budget_closely():
    def family(multiplier):
        return PoissonSubsampledGaussian(0.1, multiplier, 1000, REPLACE_ONE)

    multiplier = calibrate_noise(family, 1.0, 1e-6)
    assert family(multiplier).delta(1.0) <= 1e-6
    assert family(multiplier * 0.999).delta(1.0) > 1e-6


@pytest.mark.parametrize(
    "parameters",
    [
        (0.0, 1.0, 1),
        (1.1, 1.0, 1),
        (math.nan, 1.0, 1),
        (0.5, 0.0, 1),
        (0.5, math.inf, 1),
        (0.5, math.nan, 1),
        (0.5, 1.0, 0),
        (0.5, 1.0, 1.5),
    ],
)
def test_parameters_outside_the_theorem_are_refused(parameters):
    with pytest.raises(ValueError, match=r"^Got .*expected"):
        PoissonSubsampledGaussian(*parameters, ZERO_OUT)


def test_an_unknown_relation_is_refused():
    with pytest.raises(ValueError, match="add_one"):
        PoissonSubsampledGaussian(0.5, 1.0, 1, "add_one")


@pytest.mark.parametrize("multiplier", [1e2, 1e4, 1e6, 1e8, 1e12, 1e100])
@pytest.mark.parametrize("relation", list(Neighboring))
def test_losses_too_small_to_resolve_are_rounded_up(relation, multiplier):
    """A discretisation as fine as such losses falls below the truth by rounding errors."""
    sampled = PoissonSubsampledGaussian(1.0, multiplier, 100, relation)
    mu = relation.sensitivity_factor * 10 / multiplier
    for epsilon in (0.0, mu, 5 * mu):
        assert sampled.delta(epsilon) >= GaussianDP(mu).delta(epsilon)
