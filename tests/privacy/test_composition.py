"""Labels that are revealed, random participation, worst cases, Renyi bounds and calibration."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr
from scipy.stats import binom, multinomial

from skdpadmm import privacy
from skdpadmm.privacy import (
    GaussianDP,
    LaplaceDP,
    Mixture,
    NonPrivate,
    RenyiDP,
    Worst,
    compose,
    compose_counts,
    worst,
)
from tests.privacy.attained import attained_delta

Composed, Sampled = privacy.Composed, privacy.PoissonSubsampledGaussian
calibrate_noise, all_rounds = privacy.calibrate_noise, privacy.worst_participation
pytest.importorskip("dp_accounting")


def slow(value):
    return pytest.param(value, marks=pytest.mark.slow)


SAMPLED = Sampled(0.1, 20.0, 100, "zero_out")
STEADY, NOTHING = GaussianDP(0.3), GaussianDP(0.0)
RARE = Mixture((0.9, 0.1), (NOTHING, GaussianDP(1.0)))
THREE = Mixture((0.2, 0.3, 0.5), tuple(map(GaussianDP, (0.1, 0.2, 0.4))))
SHARED = Mixture((0.9, 0.1), (GaussianDP(0.4), GaussianDP(0.7)))
EQUAL = Mixture((0.5, 0.25, 0.25, 0.0), (GaussianDP(0.1), STEADY, STEADY, GaussianDP(9.0)))


def exact_delta(mixtures, epsilon, mu=0.0):
    """Of mixtures of Gaussian guarantees, each a number of times, by all counts of labels."""
    law = {0.0: 1.0}  # of the sum of squares of mu
    for mixture, n in mixtures:
        labels, weights = [c.mu**2 for c in mixture.components], mixture.weights
        own = {}
        for counts in itertools.product(range(n + 1), repeat=len(labels) - 1):
            if (last := n - sum(counts)) >= 0:
                square = math.fsum(k * m for k, m in zip((*counts, last), labels, strict=True))
                weight = multinomial.pmf((*counts, last), n, weights)
                own[square] = own.get(square, 0.0) + float(weight)
        pairs = itertools.product(law.items(), own.items())
        law = {}
        for (one, weight), (other, more) in pairs:
            law[one + other] = law.get(one + other, 0.0) + weight * more
    return math.fsum(w * GaussianDP(math.sqrt(s + mu**2)).delta(epsilon) for s, w in law.items())


@pytest.mark.parametrize(
    "counts", [(1, 0, 0), (0, 5, 0), (2, 3, 1), (0, 0, 4), (0, 40, 0)], ids=str
)
def test_mixtures_compose_by_the_product_of_labels_rounded_upwards(counts):
    mixtures = [(m, n) for m, n in zip((SHARED, THREE, EQUAL), counts, strict=True) if n]
    composed = compose_counts([*mixtures, (GaussianDP(0.4), 1), (STEADY, 1)])
    for epsilon in (0.0, 0.5, 2.0, 6.0):
        exact = exact_delta(mixtures, epsilon, 0.5)
        assert exact * (1 - 1e-12) <= composed.delta(epsilon) <= exact * (1 + 5e-5) + 2e-12


@pytest.mark.parametrize("n", [2, 31])
@pytest.mark.parametrize("law", [(0.2, 0.3), (1e-9, 1e-3)])
def test_rare_labels_of_many_equal_mixtures_are_rounded_upwards(n, law):
    mixture = Mixture((*law, 1.0 - sum(law)), tuple(map(GaussianDP, (1.0, 0.1, 0.001))))
    composed = compose_counts([(mixture, n)])
    for epsilon in (0.0, 1.0, 5.0):
        exact = exact_delta([(mixture, n)], epsilon)
        assert exact <= composed.delta(epsilon) <= exact * (1 + 2e-3) + 2e-12


def random_composition(rng):
    """Return a multiset of guarantees, and its delta by another road."""
    mu = float(rng.choice([0.0, rng.exponential(0.5)]))
    if rng.random() < 0.5:
        mixtures = [
            (Mixture(rng.dirichlet(np.ones(k)), map(GaussianDP, rng.exponential(0.4, k))), int(n))
            for k, n in zip(rng.integers(2, 4, 2), rng.integers(1, 6, 2), strict=True)
        ]
        return [*mixtures, (GaussianDP(mu), 1)], lambda e: exact_delta(mixtures, e, mu)
    sizes = 10 ** rng.uniform(-2.0, 0.3, 2)
    steps = [(float(size), int(n)) for size, n in zip(sizes, rng.integers(1, 30, 2), strict=True)]
    parts = [(0.0, size, n) for size, n in steps]
    leaves = [(LaplaceDP(size), n) for size, n in steps]
    return [*leaves, (GaussianDP(mu), 1)], lambda e: attained_delta(parts, e, mu)


@pytest.mark.parametrize("seed", [*range(20), *(slow(seed) for seed in range(20, 200))])
def test_random_compositions_are_above_what_is_exact_or_attained(seed):
    pairs, exact = random_composition(np.random.default_rng(seed))
    composed = compose_counts(pairs)
    for epsilon in (0.0, 0.3, 1.5):
        attained, claimed = exact(epsilon), composed.delta(epsilon)
        assert attained * (1 - 1e-13) <= claimed <= attained * 1.03 + 1e-8


def test_mass_that_rounding_lost_stays_lost_and_no_guarantee_at_all_stays_none():
    leaky = Mixture((0.5, 0.5 - 4e-13), (GaussianDP(0.1), GaussianDP(0.2)))
    full = Mixture((0.5, 0.5), leaky.components)
    for delta in (leaky.delta(0.5), leaky.deltas(np.array([0.0, 0.5]))[1]):
        assert delta == pytest.approx(full.delta(0.5), rel=1e-14, abs=0.0)
    composed = compose(Mixture((0.5, 0.5), (SAMPLED, NonPrivate())), GaussianDP(0.1))
    assert composed.epsilon(0.4) == math.inf > composed.epsilon(0.6)
    hopeless = Mixture((0.5, 0.5), (GaussianDP(0.1), NonPrivate()))
    assert compose_counts([(hopeless, 100)]).delta(1.0) == 1.0


def test_counts_multiply_and_chords_are_straight_in_the_ratio_of_probabilities():
    three = compose_counts([(LaplaceDP(0.1), 3)])
    assert compose_counts([(three, 4)]) == compose(*[three] * 4)
    assert compose_counts([(three, 4)]).counts == (12,)
    points = np.linspace(0.0, 4.0, 3000)
    chords = privacy.Guarantee.deltas(LaplaceDP(4.0), points)
    assert np.all(chords >= LaplaceDP(4.0).deltas(points) - 1e-15)
    with pytest.raises(ValueError, match="counts=0"):
        compose_counts([(STEADY, 0)])


def test_a_bound_that_is_not_convex_composes_as_its_hull_in_both_directions():
    """At epsilon = 0 a true curve is below the line between its points at 1 / a and at a."""
    hump = Worst((RenyiDP((2.0, 30.0), (0.01, 0.15)), LaplaceDP(0.02)))
    alone = Composed((hump,), (1,))
    for epsilon in (0.0, 0.1, 0.3, 1.0):
        assert alone.delta(epsilon) <= hump.delta(epsilon) * (1 + 1e-3) + 2e-12
    assert alone.delta(0.0) < 0.999 * hump.delta(0.0)


# Random participation: the average over it, who may claim it, and who may not --------------------


def mixture_of(size, noise_std, probability, n_rounds, cap=None):
    sensitivities = size if isinstance(size, tuple) else (size,) * n_rounds
    named = {"probability": probability, "n_rounds": n_rounds, "cap": cap}
    return privacy.participation_mixture(sensitivities, noise_std, **named)


@settings(max_examples=60)
@given(
    st.sampled_from([1, 2, 7, 50, 300]),
    st.floats(1e-6, 0.999),
    st.floats(0.05, 5.0),
    st.floats(0.0, 4.0),
    st.integers(1, 400),
)
def test_the_mixture_is_the_average_over_the_rounds_taken_part_in(n, probability, mu, epsilon, cap):
    cap = min(cap, n)
    sizes = tuple(mu * (1.0 + 1.0 / (j + 1)) / math.sqrt(cap) for j in range(cap))
    claimed = mixture_of(sizes, 1.0, probability, n, cap).delta(epsilon)
    law = binom.pmf(np.arange(n + 1), n, probability)
    exact = math.fsum(
        weight * GaussianDP(math.hypot(*sizes[:k])).delta(epsilon)
        for k, weight in enumerate([*law[:cap], law[cap:].sum()])
    )
    # What rounding takes from a sum of weights is charged to delta.
    assert exact * (1 - 1e-9) - 1e-17 <= claimed <= exact * (1 + 1e-8) + 1e-15
    assert claimed <= all_rounds(sizes, 1.0, n_rounds=n, cap=cap).delta(epsilon) + 1e-15


@pytest.mark.parametrize("n_rounds", [1, 3, 1000, 100_000])
@pytest.mark.parametrize("probability", [5e-324, 1e-12, 0.01, 0.5, 1 - 1e-12, 1.0])
def test_the_weights_are_a_law_with_few_labels_that_ends_in_the_worst(n_rounds, probability):
    mixture = mixture_of(1.0, 9.0, probability, n_rounds)
    every = all_rounds((1.0,) * n_rounds, 9.0, n_rounds=n_rounds)
    assert every.mu == pytest.approx(math.sqrt(n_rounds) / 9.0, rel=1e-13)
    if probability == 1 or not isinstance(mixture, Mixture):
        assert mixture == every
        return
    assert abs(math.fsum(mixture.weights) - 1) <= 1e-12
    assert len(mixture.weights) <= 20 * math.sqrt(n_rounds * 0.25) + 50
    assert mixture.components[-1] == every


def test_a_record_is_not_hidden_by_the_sampling_of_its_client():
    """A large message that all neighbours share shows who took part, whatever the noise.

    The client's message is ``common`` or ``common + 1``. The bound for a sampled record, which
    nothing but sampling hides, promises delta(1) of the order 1e-14; its arithmetic charges 1e-12.
    """
    q, std, n_rounds, n_runs = 0.1, 22.2, 1000, 4000
    mixture = mixture_of(1.0, std, q, n_rounds)
    assert mixture.delta(1.0) == pytest.approx(3.4e-3, rel=0.02)
    # The exact loss where participation is not told, but a common message of 20 noise scales is.
    rng, common = np.random.default_rng(1), 20 * std
    present = rng.random((n_runs, n_rounds)) < q
    seen = np.where(present, common + 1, 0.0) + std * rng.standard_normal(present.shape)
    away = np.log1p(-q) - 0.5 * (seen / std) ** 2
    here, there = (
        np.logaddexp(away, math.log(q) - 0.5 * ((seen - message) / std) ** 2).sum(axis=1)
        for message in (common + 1, common)
    )
    gains = np.maximum(0.0, -np.expm1(1.0 - (here - there)))
    error = gains.std() / math.sqrt(n_runs)
    assert abs(gains.mean() - mixture.delta(1.0)) <= 4 * error
    assert gains.mean() - 4 * error > 1e-4
    assert Sampled(q, std, n_rounds, "zero_out").delta(1.0) < 1e-11
    # A client that is protected as a whole is hidden by its sampling.
    sampled = Sampled(0.1, 10.0, 1000, "zero_out")
    assert sampled.epsilon(1e-6) < mixture_of(1.0, 10.0, 0.1, 1000).epsilon(1e-6)


def test_a_mean_of_states_that_is_released_again_exceeds_the_average_over_participation():
    """A state that moved once is in every later mean: what counts is the first participation.

    A linear loss at relaxation 1/2 moves a state at its first participation, by the whole
    distance, and never again. A threshold on the sum of the means, blind to participation, already
    wins more than the average over the number of participations allows.
    """
    q, ratio, n_rounds = 0.01, 0.3, 100
    later = np.arange(n_rounds, -1, -1)  # releases from the first participation on
    law = np.append(q * (1 - q) ** np.arange(n_rounds), (1 - q) ** n_rounds)
    threshold = np.linspace(-2, 6, 2000)
    shift = ratio * later / math.sqrt(n_rounds)
    gain = (ndtr(shift - threshold[:, None]) @ law - math.e * ndtr(-threshold)).max()
    refuted = mixture_of(ratio, 1.0, q, n_rounds).delta(1.0)
    assert (refuted, gain) == pytest.approx((0.00134, 0.231), rel=4e-3)
    first = Mixture(tuple(law), tuple(GaussianDP(ratio * math.sqrt(n)) for n in later))
    assert gain <= first.delta(1.0) <= 0.36


# The weakest of several, Renyi bounds, calibration -----------------------------------------------


def test_the_worst_is_simplified_and_composes_as_the_largest_curve():
    assert worst(STEADY) is STEADY
    assert worst(*(GaussianDP(mu) for mu in (0.1, 0.5, 0.0, 0.5))) == GaussianDP(0.5)
    assert worst(RARE, STEADY, GaussianDP(0.2)) == Worst((RARE, STEADY))
    assert worst(RARE, worst(RARE, STEADY), STEADY) == Worst((RARE, STEADY))
    assert worst(RARE, NonPrivate(), STEADY) == worst(Worst((NonPrivate(),))) == NonPrivate()
    # What follows may choose the case by what was released: the larger of both does not hold.
    several, first = Worst((RARE, STEADY)), GaussianDP(0.4)
    cases = [compose(case, first).delta(1.0) for case in several.components]
    assert compose(several, first).delta(1.0) > max(cases)


def test_renyi_divergences_add_on_common_orders_and_take_a_gaussian_exactly():
    one, other = RenyiDP((2.0, 3.0, 4.0), (0.1, 0.2, 0.3)), RenyiDP((3.0, 4.0), (1.0, 2.0))
    composed = compose(one, other, GaussianDP(0.5))
    assert composed.orders == (3.0, 4.0)
    assert composed.divergences == pytest.approx((1.2 + 3 * 0.125, 2.3 + 4 * 0.125), rel=1e-13)
    apart = compose(one, RenyiDP((5.0,), (0.1,)))  # no order in common
    assert one.epsilon(1e-4) < apart.epsilon(1e-4) < math.inf


@pytest.mark.parametrize("mu", [0.01, 0.2, 1.0, 3.0])
def test_the_renyi_conversion_is_above_the_exact_curve_and_not_far(mu):
    orders = tuple(float(order) for order in range(2, 200))
    renyi, exact = RenyiDP(orders, tuple(a * mu**2 / 2 for a in orders)), GaussianDP(mu)
    assert exact.epsilon(1e-6) <= renyi.epsilon(1e-6) <= 2 * exact.epsilon(1e-6)
    for epsilon in (0.0, 0.5, 5.0):
        assert renyi.delta(epsilon) >= exact.delta(epsilon)


def test_renyi_limits():
    assert RenyiDP((2.0, 3.0), (0.0, 0.0)).delta(0.0) == 0.0
    assert RenyiDP((2.0,), (math.inf,)).epsilon(1e-6) == math.inf


@pytest.mark.parametrize("sensitivity", [1e-8, 1.0, 1e8])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.01, 1e-9), (1.0, 1e-6), (20.0, 1e-3)])
def test_calibration_returns_the_noisier_side_of_the_closed_form(sensitivity, epsilon, delta):
    scale = calibrate_noise(lambda scale: GaussianDP(sensitivity / scale), epsilon, delta)
    exact = sensitivity / privacy.gaussian_mu(epsilon, delta)
    assert GaussianDP(sensitivity / scale).delta(epsilon) <= delta
    assert exact * (1 - 1e-12) <= scale <= exact * (1 + 2e-6)


def test_calibration_of_jumps_the_worst_of_several_and_sampled_rounds_is_close():
    def jump(scale):
        return NOTHING if scale >= math.pi else NonPrivate()

    assert math.pi <= calibrate_noise(jump, 1.0, 1e-6) <= math.pi * (1 + 2e-6)

    def rare_or_steady(std):
        return worst(mixture_of(5.0, std, 0.1, 20), all_rounds((1.0,) * 20, std, n_rounds=20))

    for family in (rare_or_steady, lambda std: Sampled(0.1, std, 1000, "replace_one")):
        noise = calibrate_noise(family, 1.0, 1e-6)
        assert family(noise).delta(1.0) <= 1e-6 < family(noise * (1 - 1e-3)).delta(1.0)
