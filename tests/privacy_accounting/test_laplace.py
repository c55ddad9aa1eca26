"""Laplace releases: reference values, exact curves from below, closed forms without a library."""

from __future__ import annotations

import json
import math
import sys
import time
from functools import lru_cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import dblquad, quad
from scipy.special import ndtr
from scipy.stats import binom

from skdpadmm.privacy import (
    Composed,
    GaussianDP,
    LaplaceDP,
    NonPrivate,
    PoissonSubsampledGaussian,
    RenyiDP,
    compose,
    kov_epsilon,
    worst,
)
from skdpadmm.privacy._laplace import _kov_delta

FIVE = math.exp(-5)
# epsilon of a release, releases, delta; epsilon exact, of the third form of the bound
REFERENCES = [
    (0.1, 10, 1e-5, 0.990, 1.567),
    (0.1, 100, 1e-5, 4.220, 5.298),
    (0.05, 50, FIVE, 0.629, 1.181),
    (0.1, 10, FIVE, 0.535, 1.050),
    (0.02, 10, FIVE, 0.0569, 0.202),
]


@pytest.fixture
def no_library(monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "dp_accounting"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    from skdpadmm.privacy import _pld

    _pld._composed.cache_clear()
    yield
    _pld._composed.cache_clear()


def lower_delta(steps, epsilon, gaussian_mu=0.0):
    """A delta that the composed releases do attain, nearly."""
    losses, mass = lower_law(tuple(steps), gaussian_mu)
    attained = mass @ np.maximum(0.0, -np.expm1(epsilon - losses))
    return float(attained) - 1e-12  # the error of the transform


@lru_cache(maxsize=2)
def lower_law(steps, gaussian_mu, n_cells=2**20):
    """Positive losses of the composed releases, and their law.

    Losses of a release in one number are rounded DOWN to a grid, which makes every level of the
    privacy profile smaller, and their laws are convolved on a circle that is long enough.
    """
    spread = 8 * gaussian_mu
    top = sum(size * count for size, count in steps) + spread + gaussian_mu**2
    cell = 2.001 * top / n_cells
    transform = np.ones(n_cells // 2 + 1, dtype=complex)

    def law(cdf, low, high):
        cells = np.arange(math.floor(low / cell), math.floor(high / cell) + 1)
        mass = np.zeros(n_cells)
        mass[cells % n_cells] = cdf((cells + 1) * cell) - cdf(cells * cell)
        return np.fft.rfft(mass)

    for size, count in steps:

        def laplace(x, size=size):
            """P(loss < x): the loss is size - 2 y for 0 < y < size, and has atoms at both ends."""
            inside = 0.5 * np.exp(0.5 * (np.clip(x, -size, size) - size))
            return np.where(x <= -size, 0.0, np.where(x > size, 1.0, inside))

        transform = transform * law(laplace, -size, size) ** count
    if gaussian_mu:
        mean = gaussian_mu**2 / 2

        def normal(x):
            return ndtr((x - mean) / gaussian_mu)

        transform = transform * law(normal, mean - spread, mean + spread)
    mass = np.fft.irfft(transform, n_cells)
    positive = np.arange(n_cells // 2)  # losses below zero count for nothing
    return positive * cell, mass[positive]


@pytest.mark.parametrize(("size", "count", "delta", "exact", "third"), REFERENCES)
def test_reference_values(size, count, delta, exact, third):
    pytest.importorskip("dp_accounting")
    steps = LaplaceDP((size,), (count,))
    assert steps.epsilon(delta) == pytest.approx(exact, rel=1.5e-3)
    assert steps.epsilon(0.0) == pytest.approx(size * count, rel=1e-15)
    mean, variance = steps.moments()
    assert mean + math.sqrt(2 * variance * math.log(1 / delta)) == pytest.approx(third, abs=1e-3)
    assert steps.epsilon(delta) <= kov_epsilon([size] * count, delta) <= third + 1e-3


@pytest.mark.parametrize(("size", "count", "delta", "exact", "third"), REFERENCES)
def test_the_bound_is_above_what_is_attained_and_close(size, count, delta, exact, third):
    pytest.importorskip("dp_accounting")
    steps = LaplaceDP((size,), (count,))
    for epsilon in (0.0, 0.5 * exact, exact):
        attained = lower_delta([(size, count)], epsilon)
        assert attained <= steps.delta(epsilon) <= 1.02 * attained + 1e-11


@pytest.mark.parametrize("size", [1e-9, 1e-7, 1e-5, 1e-3])
def test_losses_too_small_to_resolve_are_rounded_up(size):
    """A discretisation as fine as such losses would fall below the truth by rounding errors."""
    steps = LaplaceDP((size,), (100,))
    for epsilon in (0.0, 5 * size, 20 * size):
        assert lower_delta([(size, 100)], epsilon) <= steps.delta(epsilon) < 50 * size


def test_many_different_steps_are_above_what_is_attained_and_close():
    pytest.importorskip("dp_accounting")
    sizes = [0.01 * 1.15**k for k in range(30)]
    steps = LaplaceDP(sizes)
    assert steps.n_releases == 30
    for epsilon in (0.0, 0.5, 1.0, 2.0):
        attained = lower_delta([(size, 1) for size in sizes], epsilon)
        assert attained <= steps.delta(epsilon) <= 1.02 * attained


@pytest.mark.parametrize("size", [1e-8, 0.3, 5.0, 800.0])
def test_one_release_is_exact(size):
    one = LaplaceDP((size,))
    for share in (0.0, 0.3, 0.9):
        epsilon = share * size
        assert one.delta(epsilon) == pytest.approx(-math.expm1((epsilon - size) / 2), rel=1e-12)
    assert one.delta(size) == one.delta(2 * size) == one.delta(math.inf) == 0.0
    for delta in (1e-9, 1e-5, 0.1):
        attained = min(delta, one.delta(0.0))
        assert one.delta(one.epsilon(delta)) == pytest.approx(attained, rel=1e-6, abs=1e-13)
    assert one.epsilon(0.0) == size
    assert one.epsilon(1.0) == 0.0


@pytest.mark.parametrize("size", [0.3, 2.0])
def test_one_release_by_integration(size):
    def gap(x, epsilon):
        return max(0.0, math.exp(-abs(x)) - math.exp(epsilon - abs(x - size))) / 2

    for epsilon in (0.0, 0.5 * size):
        points = [0.0, (size - epsilon) / 2, size]
        exact = quad(gap, -40, 40, args=(epsilon,), points=points, limit=500)[0]
        assert LaplaceDP((size,)).delta(epsilon) == pytest.approx(exact, rel=1e-7)


@pytest.mark.parametrize(("first", "second"), [(0.5, 0.5), (0.2, 1.0)])
def test_a_shift_of_two_entries_is_no_easier_to_see_than_one_of_their_sum(first, second):
    def gap(y, x, epsilon):
        ratio = math.exp(epsilon - abs(x - first) - abs(y - second))
        return max(0.0, math.exp(-abs(x) - abs(y)) - ratio) / 4

    for epsilon in (0.0, 0.4):
        exact = dblquad(gap, -12, 12, -12, 12, args=(epsilon,), epsabs=1e-4)[0]
        together = LaplaceDP((first + second,)).delta(epsilon)
        two = LaplaceDP((first, second)).delta(epsilon)
        assert exact - 1e-3 <= two <= together + 1e-15
        assert two == pytest.approx(exact, abs=1e-3)


def test_equal_steps_are_one_entry_and_order_does_not_matter():
    steps = LaplaceDP((0.1, 0.2, 0.1, 0.0))
    assert steps == LaplaceDP((0.2, 0.1), (1, 2))
    assert (steps.epsilons, steps.counts, steps.n_releases) == ((0.2, 0.1), (1, 2), 3)
    assert hash(steps) == hash(LaplaceDP((0.2, 0.1, 0.1)))
    assert LaplaceDP((0.1,), (10**6,)).pure_epsilon == 1e5


def test_a_million_equal_steps_are_cheap():
    start = time.perf_counter()
    assert 0 < LaplaceDP((1e-4,), (10**6,)).epsilon(1e-6) < 1.0
    assert time.perf_counter() - start < 5.0


def test_nothing_released_reveals_nothing():
    nothing = LaplaceDP(())
    assert nothing == LaplaceDP((0.0,))
    assert nothing.delta(0.0) == nothing.epsilon(0.0) == nothing.epsilon(1e-5) == 0.0


def test_what_arithmetic_cannot_resolve_is_not_promised():
    tiny = LaplaceDP((1e-200,), (10,))
    assert tiny.epsilon(1e-300) > 0
    assert 0 < tiny.delta(0.0) <= 1e-199
    assert kov_epsilon([1e-200] * 10, 1e-5) == pytest.approx(1e-199)
    assert Composed((tiny,)).epsilon(1e-300) > 0
    assert Composed((tiny, GaussianDP(1e-200))).epsilon(1e-300) > 0
    assert LaplaceDP((1e308,), (10,)).delta(1.0) == 1.0
    assert LaplaceDP((1e308, 9e307)).epsilon(1e-5) == math.inf
    large = LaplaceDP((800.0, 900.0))
    assert large.delta(1.0) == 1.0
    assert large.epsilon(1e-5) <= 1700.0


@given(
    st.lists(st.floats(1e-3, 2.0), min_size=1, max_size=6),
    st.floats(0, 12),
)
def test_delta_decreases_and_ends_at_the_sum(sizes, epsilon):
    steps = LaplaceDP(tuple(sizes))
    smaller = LaplaceDP(tuple(size / 2 for size in sizes))
    bound = _kov_delta(*steps.moments(), epsilon)
    assert _kov_delta(*steps.moments(), epsilon + 0.1) <= bound
    assert _kov_delta(*smaller.moments(), epsilon) <= bound
    assert steps.delta(steps.pure_epsilon) == 0.0


@pytest.mark.parametrize("delta", [1e-10, 1e-5, FIVE, 0.3])
@pytest.mark.parametrize(("size", "count"), [(0.02, 10), (0.1, 100), (1.0, 5), (0.5, 40)])
def test_closed_forms_hold_for_the_worst_pure_mechanism(size, count, delta):
    """Randomised response composes exactly: binomial losses."""
    yes = np.arange(count + 1)
    losses = (2 * yes - count) * size
    law = binom.pmf(yes, count, 1 / (1 + math.exp(-size)))
    epsilon = kov_epsilon([size] * count, delta)
    exact = float(law @ np.maximum(0.0, -np.expm1(epsilon - losses)))
    assert exact <= delta * (1 + 1e-9) + 1e-14
    mean, variance = LaplaceDP((size,), (count,)).moments()
    assert law @ losses == pytest.approx(mean, rel=1e-9)
    for level in np.linspace(0, 1.2 * size * count, 7):
        exact = float(law @ np.maximum(0.0, -np.expm1(level - losses)))
        assert exact <= _kov_delta(mean, variance, level) * (1 + 1e-9) + 1e-14


def test_the_sum_of_squares_is_inside_the_roots():
    sizes = [0.3, 0.1, 0.2]
    mean = sum(e * math.expm1(e) / (math.exp(e) + 1) for e in sizes)
    for delta in (1e-5, 0.3):
        forms = [
            sum(sizes),
            mean + math.sqrt(2 * 0.14 * math.log(math.e + math.sqrt(0.14) / delta)),
            mean + math.sqrt(2 * 0.14 * math.log(1 / delta)),
        ]
        assert kov_epsilon(sizes, delta) == pytest.approx(min(forms), rel=1e-14)
    assert kov_epsilon(sizes, 0.0) == pytest.approx(0.6)
    assert kov_epsilon([], 1e-5) == 0.0


@pytest.mark.parametrize(
    ("size", "delta", "small"), [(0.0100, FIVE, 10), (0.0070, FIVE, 20), (0.0045, FIVE, 50)]
)
def test_where_advanced_composition_starts_to_pay(size, delta, small):
    """Per-step epsilons that cost 0.1 together, by the third form alone."""
    mean, variance = LaplaceDP((size,), (small,)).moments()
    third = mean + math.sqrt(2 * variance * math.log(1 / delta))
    assert third == pytest.approx(0.1, rel=0.03)
    assert (third < size * small) == (small > 10) or size * small == pytest.approx(third, rel=0.03)


def test_without_the_library_the_closed_forms_answer(no_library):
    for size, count, delta, exact, _ in REFERENCES:
        steps = LaplaceDP((size,), (count,))
        epsilon = steps.epsilon(delta)
        assert 0.999 * exact <= epsilon <= kov_epsilon([size] * count, delta)
        assert steps.delta(epsilon) <= delta * (1 + 1e-9)
        for level in (0.0, 0.3 * exact, exact):
            assert lower_delta([(size, count)], level) <= steps.delta(level)
    mixed = compose(LaplaceDP((0.1,), (100,)), GaussianDP(0.5))
    for epsilon in (1.0, 5.0, 11.0):
        assert lower_delta([(0.1, 100)], epsilon, 0.5) <= mixed.delta(epsilon) < 1
    assert mixed.epsilon(1e-5) < 10 + GaussianDP(0.5).epsilon(1e-5)
    with pytest.raises(ImportError, match="accounting"):
        compose(mixed, PoissonSubsampledGaussian(0.1, 20.0, 100, "zero_out")).delta(1.0)


@pytest.mark.parametrize(("size", "count"), [(0.5, 1), (0.1, 4), (0.1, 100), (0.02, 100)])
@pytest.mark.parametrize("mu", [0.05, 0.5, 2.0])
def test_closed_forms_with_a_gaussian_are_above_what_is_attained(no_library, size, count, mu):
    """Either one may count: shifted by all that is pure, or by the tail of both losses."""
    steps = LaplaceDP((size,), (count,))
    both = Composed((steps, GaussianDP(mu / math.sqrt(2)), GaussianDP(mu / math.sqrt(2))))
    pure, spread = steps.pure_epsilon, math.hypot(mu, size * math.sqrt(count))
    # Between, and well beyond, the means of both losses, where each bound is at its closest.
    for epsilon in (0.5 * pure, pure, pure + mu, *np.linspace(0.5, 5.0, 8) * spread):
        assert lower_delta([(size, count)], epsilon, mu) <= both.delta(epsilon)
    for delta in (0.05, 1e-3, 1e-6):
        epsilon = both.epsilon(delta)
        assert lower_delta([(size, count)], epsilon, mu) <= delta
        assert both.delta(epsilon) <= delta * (1 + 1e-9)


def test_the_library_and_the_closed_forms_agree_on_which_is_larger(no_library, monkeypatch):
    closed = [LaplaceDP((e,), (n,)).epsilon(delta) for e, n, delta, _, _ in REFERENCES]
    monkeypatch.undo()
    pytest.importorskip("dp_accounting")
    sharp = [LaplaceDP((e,), (n,)).epsilon(delta) for e, n, delta, _, _ in REFERENCES]
    assert all(a <= b for a, b in zip(sharp, closed, strict=True))


@pytest.mark.parametrize("mu", [0.1, 1.0])
def test_a_gaussian_start_composes_with_laplace_steps(mu):
    pytest.importorskip("dp_accounting")
    steps = LaplaceDP((0.1,), (40,))
    composed = compose(steps, GaussianDP(mu))
    assert composed == Composed((steps, GaussianDP(mu)))
    for epsilon in (0.0, 0.5, 2.0):
        attained = lower_delta([(0.1, 40)], epsilon, mu)
        assert attained <= composed.delta(epsilon) <= 1.03 * attained + 1e-8
    for delta in (1e-3, 1e-6):
        epsilon = composed.epsilon(delta)
        assert max(steps.epsilon(delta), GaussianDP(mu).epsilon(delta)) < epsilon
        assert epsilon < steps.epsilon(delta / 2) + GaussianDP(mu).epsilon(delta / 2)
        assert composed.delta(epsilon) <= delta * (1 + 1e-9)
    assert composed.epsilon(0.0) == math.inf
    assert composed.delta(math.inf) == 0.0
    assert composed.epsilon(1.0) == 0.0


def test_a_pure_start_adds_its_epsilon_to_a_gaussian_at_least():
    """The one closed form: a pure guarantee shifts every level."""
    composed = Composed((LaplaceDP((0.05,)), GaussianDP(0.2)))
    for epsilon in (0.05, 0.3, 1.0):
        assert composed.delta(epsilon) <= GaussianDP(0.2).delta(epsilon - 0.05) * (1 + 1e-12)
    assert composed.delta(0.01) <= 1.0


def test_composition_merges_and_stays_flat():
    first, second = LaplaceDP((0.1,), (10,)), LaplaceDP((0.1, 0.3))
    merged = LaplaceDP((0.3, 0.1), (1, 11))
    assert compose(first, second) == merged
    assert compose(first, GaussianDP(0.0)) == first
    assert compose(LaplaceDP(()), GaussianDP(0.0)) == GaussianDP(0.0)
    assert compose(LaplaceDP(()), GaussianDP(0.5)) == GaussianDP(0.5)
    assert compose(first) is first
    sampled = PoissonSubsampledGaussian(0.1, 20.0, 100, "zero_out")
    nested = compose(compose(first, GaussianDP(3.0)), sampled, compose(second, GaussianDP(4.0)))
    assert nested == Composed((sampled, merged, GaussianDP(5.0)))
    assert compose(first, NonPrivate()) == NonPrivate()


def test_sampled_and_laplace_releases_compose():
    pytest.importorskip("dp_accounting")
    sampled = PoissonSubsampledGaussian(0.1, 20.0, 100, "zero_out")
    both = compose(sampled, LaplaceDP((0.1,), (10,)))
    separate = sampled.epsilon(5e-7) + LaplaceDP((0.1,), (10,)).epsilon(5e-7)
    assert sampled.epsilon(1e-6) < both.epsilon(1e-6) < separate


def test_combinations_without_a_theorem_are_refused():
    with pytest.raises(TypeError, match="Got RenyiDP together with LaplaceDP"):
        compose(RenyiDP((2.0,), (0.1,)), LaplaceDP((0.1,)))


def test_what_dominates_is_plain():
    steps = LaplaceDP((0.3, 0.1), (2, 5))
    assert steps.dominates(steps)
    assert steps.dominates(LaplaceDP((0.2, 0.1), (2, 4)))
    assert not steps.dominates(LaplaceDP((0.31,)))
    assert not steps.dominates(LaplaceDP((0.3,), (3,)))
    assert not steps.dominates(LaplaceDP((0.01,), (1000,)))
    assert not steps.dominates(GaussianDP(0.1))
    assert LaplaceDP((1.0,)).dominates(LaplaceDP((0.1,), (10,)))
    assert not LaplaceDP((0.1,), (10,)).dominates(LaplaceDP((1.0,)))
    assert LaplaceDP(()).dominates(LaplaceDP(()))
    assert worst(steps, LaplaceDP((0.2,)), LaplaceDP((0.1,), (7,))) == steps


def test_a_guarantee_that_dominates_has_the_larger_delta():
    pytest.importorskip("dp_accounting")
    pairs = [
        (LaplaceDP((0.3, 0.1), (2, 5)), LaplaceDP((0.2, 0.1), (2, 4))),
        (LaplaceDP((1.0,)), LaplaceDP((0.1,), (10,))),
    ]
    for larger, smaller in pairs:
        for epsilon in (0.0, 0.2, 0.7, 1.0):
            assert larger.delta(epsilon) >= smaller.delta(epsilon)


def test_it_serialises_and_describes_itself():
    steps = LaplaceDP(np.array([0.1] * 10 + [0.25]))
    dictionary = steps.to_dict()
    assert json.loads(json.dumps(dictionary, allow_nan=False)) == dictionary
    assert dictionary == {"kind": "laplace", "epsilons": [0.25, 0.1], "counts": [1, 10]}
    assert steps.describe() == "Laplace(sum of epsilons=1.25), 11 releases"


@pytest.mark.parametrize("bad", [(-0.1,), (math.inf,), (math.nan,)])
def test_epsilons_that_are_none_are_refused(bad):
    with pytest.raises(ValueError, match=r"^Got epsilons=.*expected floats in \[0, inf\)"):
        LaplaceDP(bad)
    with pytest.raises(ValueError, match="Got epsilons="):
        kov_epsilon(bad, 1e-5)


@pytest.mark.parametrize("counts", [(0,), (1.5,), (-1,)])
def test_counts_that_are_none_are_refused(counts):
    with pytest.raises(ValueError, match=r"^Got counts=.*expected ints >= 1"):
        LaplaceDP((0.1,), counts)


def test_one_count_for_each_epsilon():
    with pytest.raises(ValueError, match="Got 1 epsilons and 2 counts"):
        LaplaceDP((0.1,), (1, 2))


@pytest.mark.parametrize("question", [-1.0, math.nan])
def test_questions_out_of_range_are_refused(question):
    with pytest.raises(ValueError, match="Got epsilon="):
        LaplaceDP((0.1,)).delta(question)
    with pytest.raises(ValueError, match="Got delta="):
        LaplaceDP((0.1,)).epsilon(question)
    with pytest.raises(ValueError, match="Got delta="):
        kov_epsilon([0.1], question)
