"""Composition, mixtures, Renyi bounds and calibration: closed forms where they exist."""

from __future__ import annotations

import itertools
import json
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skdpadmm.privacy import (
    Composed,
    GaussianDP,
    Guarantee,
    Mixture,
    Neighboring,
    NonPrivate,
    PoissonSubsampledGaussian,
    RenyiDP,
    _composition,
    calibrate_noise,
    compose,
    gaussian_mu,
    literature,
)

pytest.importorskip("dp_accounting")

ORDERS = tuple(float(order) for order in range(2, 200))
SAMPLED = PoissonSubsampledGaussian(0.1, 20.0, 100, "zero_out")


class Unknown(Guarantee):
    """A kind that nobody has a theorem for."""

    def delta(self, epsilon):
        return 0.0

    def to_dict(self):
        return {}

    def describe(self):
        return "unknown"


def gaussian_as_renyi(mu):
    return RenyiDP(ORDERS, tuple(order * mu**2 / 2 for order in ORDERS))


def test_nothing_composed_reveals_nothing():
    assert compose() == GaussianDP(0.0)


@pytest.mark.parametrize("guarantee", [GaussianDP(1.0), SAMPLED, NonPrivate()])
def test_a_single_guarantee_is_returned_as_it_is(guarantee):
    assert compose(guarantee) is guarantee


@given(st.lists(st.floats(0, 1e6), max_size=20))
def test_gaussians_compose_to_the_root_of_squares(mus):
    composed = compose(*map(GaussianDP, mus))
    assert composed.mu == pytest.approx(
        math.sqrt(math.fsum(mu**2 for mu in mus)), rel=1e-14, abs=1e-150
    )


def test_non_private_absorbs_everything():
    mixture = Mixture((1.0,), (GaussianDP(1.0),))
    for other in (GaussianDP(1.0), SAMPLED, mixture, gaussian_as_renyi(1.0), NonPrivate()):
        assert compose(other, NonPrivate()) == compose(NonPrivate(), other) == NonPrivate()


def test_a_mixture_reveals_its_label():
    mixture = Mixture((0.25, 0.75), (GaussianDP(2.0), GaussianDP(0.5)))
    for epsilon in (0.0, 0.3, 2.0):
        expected = 0.25 * GaussianDP(2.0).delta(epsilon) + 0.75 * GaussianDP(0.5).delta(epsilon)
        assert mixture.delta(epsilon) == pytest.approx(expected, rel=1e-14)
    assert mixture.delta(mixture.epsilon(1e-6)) <= 1e-6
    assert mixture.epsilon(1e-6) < GaussianDP(2.0).epsilon(1e-6)


def test_mixtures_compose_by_the_product_of_labels():
    first = Mixture((0.25, 0.75), (GaussianDP(3.0), GaussianDP(0.0)))
    second = Mixture((0.5, 0.5), (GaussianDP(4.0), GaussianDP(1.0)))
    composed = compose(first, second, GaussianDP(0.0))
    assert composed.weights == (0.125, 0.125, 0.375, 0.375)
    assert composed.components[0] == GaussianDP(5.0)
    expected = math.fsum(
        w * v * GaussianDP(math.hypot(c.mu, d.mu)).delta(1.0)
        for w, c in zip(first.weights, first.components, strict=True)
        for v, d in zip(second.weights, second.components, strict=True)
    )
    assert composed.delta(1.0) == pytest.approx(expected, rel=1e-14)


def test_a_mixture_is_not_composed_through_its_average_delta():
    """Two uses of a rare, bad label cost more than the same average spread evenly suggests."""
    rare = Mixture((0.01, 0.99), (GaussianDP(10.0), GaussianDP(0.0)))
    assert compose(rare, rare).delta(1.0) > 1 - 0.99**2 - 1e-6


def test_a_mixture_of_other_kinds_composes_within_each_label():
    mixture = Mixture((0.5, 0.5), (SAMPLED, NonPrivate()))
    composed = compose(mixture, GaussianDP(0.1))
    assert composed.components == (Composed((SAMPLED, GaussianDP(0.1))), NonPrivate())
    assert composed.epsilon(0.4) == math.inf
    assert composed.epsilon(0.6) < math.inf


@pytest.mark.parametrize("weights", [(0.5, 0.4), (0.5, 0.5 + 1e-9), (1.5, -0.5), (math.nan, 1.0)])
def test_weights_that_are_no_law_are_refused(weights):
    with pytest.raises(ValueError, match="weights"):
        Mixture(weights, (GaussianDP(1.0), GaussianDP(2.0)))


def test_a_mixture_needs_one_guarantee_for_each_weight():
    with pytest.raises(ValueError, match="Got 1 weights and 0 components"):
        Mixture((1.0,), ())
    with pytest.raises(TypeError, match="expected a Guarantee"):
        Mixture((1.0,), (0.5,))


def test_binomial_weights_pass_as_they_come():
    weights = tuple(math.comb(1000, k) * 0.1**k * 0.9 ** (1000 - k) for k in range(1001))
    mixture = Mixture(weights, tuple(GaussianDP(0.05 * math.sqrt(k)) for k in range(1001)))
    assert 0 < mixture.delta(1.0) < GaussianDP(0.05 * math.sqrt(1000)).delta(1.0)


def test_equal_rounds_merge_and_composition_is_flat():
    assert compose(SAMPLED, SAMPLED) == PoissonSubsampledGaussian(0.1, 20.0, 200, "zero_out")
    other = PoissonSubsampledGaussian(0.2, 20.0, 10, "zero_out")
    nested = compose(compose(SAMPLED, GaussianDP(3.0)), compose(other, GaussianDP(4.0)), SAMPLED)
    merged = PoissonSubsampledGaussian(0.1, 20.0, 200, "zero_out")
    assert nested == Composed((merged, other, GaussianDP(5.0)))


@pytest.mark.parametrize("relation", list(Neighboring))
def test_a_loss_distribution_composes_gaussians_as_the_closed_form_does(relation):
    """With everybody sampled the composition is Gaussian, and known."""
    rounds = PoissonSubsampledGaussian(1.0, 50.0, 30, relation)
    mu = relation.sensitivity_factor * math.sqrt(30) / 50.0
    composed, exact = compose(rounds, GaussianDP(0.4)), GaussianDP(math.hypot(mu, 0.4))
    for delta in (1e-3, 1e-6, 1e-9):
        assert exact.epsilon(delta) <= composed.epsilon(delta) <= exact.epsilon(delta) * 1.001


def test_a_free_gaussian_costs_nothing():
    assert compose(SAMPLED, GaussianDP(0.0)) == SAMPLED
    assert Composed((SAMPLED, GaussianDP(0.0))).epsilon(1e-6) == SAMPLED.epsilon(1e-6)
    assert Composed((GaussianDP(0.0),)).delta(0.0) == 0.0
    assert Composed((GaussianDP(0.0),)).epsilon(0.0) == 0.0


def test_two_neighbouring_relations_do_not_compose():
    other = PoissonSubsampledGaussian(0.1, 20.0, 100, "replace_one")
    with pytest.raises(TypeError, match="two neighbouring relations"):
        compose(SAMPLED, other)


def test_a_composition_without_parts_or_of_other_kinds_is_refused():
    with pytest.raises(ValueError, match="Got no parts"):
        Composed(())
    with pytest.raises(TypeError, match="expected GaussianDP or PoissonSubsampledGaussian"):
        Composed((NonPrivate(),))


def test_unknown_kinds_raise_even_beside_non_private():
    for others in ((), (GaussianDP(1.0),), (NonPrivate(),)):
        with pytest.raises(TypeError, match="expected one of GaussianDP, Poisson"):
            compose(Unknown(), *others)


def test_renyi_with_subsampling_is_unknown():
    with pytest.raises(TypeError, match="expected one of the two"):
        compose(gaussian_as_renyi(1.0), SAMPLED)


def test_renyi_divergences_add_on_common_orders_and_take_a_gaussian_exactly():
    composed = compose(
        RenyiDP((2.0, 3.0, 4.0), (0.1, 0.2, 0.3)), RenyiDP((3.0, 4.0), (1.0, 2.0)), GaussianDP(0.5)
    )
    assert composed.orders == (3.0, 4.0)
    assert composed.divergences == pytest.approx((1.2 + 3 * 0.125, 2.3 + 4 * 0.125), rel=1e-15)
    with pytest.raises(ValueError, match="without a common order"):
        compose(RenyiDP((2.0,), (1.0,)), RenyiDP((3.0,), (1.0,)))


@pytest.mark.parametrize("mu", [0.01, 0.2, 1.0, 3.0])
def test_the_renyi_conversion_is_above_the_exact_curve_and_not_far(mu):
    renyi, exact = gaussian_as_renyi(mu), GaussianDP(mu)
    assert exact.epsilon(1e-6) <= renyi.epsilon(1e-6) <= 2 * exact.epsilon(1e-6)
    for epsilon in (0.0, 0.5, 5.0):
        assert renyi.delta(epsilon) >= exact.delta(epsilon)


def test_renyi_limits():
    assert RenyiDP((2.0, 3.0), (0.0, 0.0)).delta(0.0) == 0.0
    assert RenyiDP((2.0,), (1e-30,)).delta(0.0) < 1e-7
    assert RenyiDP((2.0,), (math.inf,)).delta(1.0) == 1.0
    assert RenyiDP((2.0,), (math.inf,)).epsilon(1e-6) == math.inf
    assert RenyiDP((2.0,), (0.5,)).epsilon(0.0) == math.inf
    assert RenyiDP((2.0,), (0.5,)).delta(math.inf) == 0.0
    assert RenyiDP((2.0,), (math.inf,)).epsilon(1.0) == 0.0


@pytest.mark.parametrize(
    ("orders", "divergences"),
    [
        ((), ()),
        ((2.0,), ()),
        ((1.0,), (1.0,)),
        ((3.0, 2.0), (1.0, 1.0)),
        ((2.0,), (-1.0,)),
        ((2.0,), (math.nan,)),
        ((math.inf,), (1.0,)),
    ],
)
def test_renyi_curves_that_are_none_are_refused(orders, divergences):
    with pytest.raises(ValueError, match=r"^Got .*expected"):
        RenyiDP(orders, divergences)


@pytest.mark.parametrize("sensitivity", [1e-8, 1.0, 1e8])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.01, 1e-9), (1.0, 1e-6), (20.0, 1e-3)])
def test_calibration_returns_the_noisier_side_of_the_closed_form(sensitivity, epsilon, delta):
    scale = calibrate_noise(lambda scale: GaussianDP(sensitivity / scale), epsilon, delta)
    exact = sensitivity / gaussian_mu(epsilon, delta)
    assert GaussianDP(sensitivity / scale).delta(epsilon) <= delta
    assert exact * (1 - 1e-12) <= scale <= exact * (1 + 2e-6)


def test_calibration_handles_a_curve_with_jumps():
    def family(scale):
        return GaussianDP(0.0) if scale >= math.pi else NonPrivate()

    scale = calibrate_noise(family, 1.0, 1e-6)
    assert math.pi <= scale <= math.pi * (1 + 2e-6)


def test_calibration_spends_few_evaluations():
    calls = []

    def family(scale):
        calls.append(scale)
        return GaussianDP(1.0 / scale)

    calibrate_noise(family, 1.0, 1e-6)
    assert len(calls) <= 25


@pytest.mark.parametrize(
    ("constant", "outcome"), [(NonPrivate(), "no noise"), (GaussianDP(0.0), "every noise")]
)
def test_calibration_of_what_ignores_its_noise_is_refused(constant, outcome):
    with pytest.raises(ValueError, match=outcome):
        calibrate_noise(lambda scale: constant, 1.0, 1e-6)


@pytest.mark.parametrize(("epsilon", "delta"), [(-1.0, 0.1), (math.inf, 0.1), (1.0, 0.0)])
def test_calibration_to_no_budget_is_refused(epsilon, delta):
    with pytest.raises(ValueError, match="Got"):
        calibrate_noise(lambda scale: GaussianDP(1 / scale), epsilon, delta)


def test_every_guarantee_serialises_and_describes_itself():
    mixture = Mixture((1.0,), (GaussianDP(np.float64(1.0)),))
    many = Mixture((0.25,) * 4, (GaussianDP(1.0),) * 4)
    composed = Composed((PoissonSubsampledGaussian(0.1, 20.0, np.int64(3), "zero_out"),))
    infinite = RenyiDP((2.0,), (math.inf,))
    kinds = [GaussianDP(1.0), NonPrivate(), mixture, many, SAMPLED, composed, infinite]
    for guarantee in kinds:
        dictionary = guarantee.to_dict()
        assert json.loads(json.dumps(dictionary, allow_nan=False)) == dictionary
        assert "kind" in dictionary
        assert "\n" not in guarantee.describe()
        assert hash(guarantee) == hash(guarantee)
    assert many.describe() == "mixture of 4 guarantees"


def test_the_sensitivity_factor_is_the_diameter_in_clip_norms():
    assert [relation.sensitivity_factor for relation in Neighboring] == [2, 1]


def test_the_printed_consensus_bound_is_exceeded_by_linear_losses():
    """Exact divergence of the released mean: shift 4 lambda gamma L / n, std lambda s / sqrt n."""
    alpha, n_iter, lipschitz, step, std, n = 2.0, 10, 1.5, 0.3, 0.7, 50
    mu_squared = n_iter * (4 * step * lipschitz / n) ** 2 / (std**2 / n)
    exact = alpha * mu_squared / 2
    printed = literature.consensus_admm_printed_rdp(alpha, n_iter, lipschitz, step, std, n)
    assert exact == pytest.approx(n * printed, rel=1e-12)


def test_equal_mixtures_compose_to_one_component_for_each_count_of_labels():
    mixture = Mixture((0.25, 0.75), (GaussianDP(0.1), GaussianDP(0.2)))
    composed = compose(*[mixture] * 30)
    assert len(composed.components) == 31
    assert composed.weights[0] == pytest.approx(0.25**30)
    assert math.fsum(composed.weights) == pytest.approx(1, abs=1e-13)
    worst = max(component.mu for component in composed.components)
    assert worst == pytest.approx(0.2 * math.sqrt(30))


def test_more_combinations_of_labels_than_memory_holds_are_refused():
    mixtures = [Mixture((0.5, 0.5), (GaussianDP(i + 1.0), GaussianDP(i + 1.5))) for i in range(20)]
    with pytest.raises(ValueError, match="more than 100000 combinations"):
        compose(*mixtures)


def product_of_labels(*guarantees):
    """Weights and mu of every choice of one label of each, none of them merged."""
    laws = [
        list(zip(g.weights, [c.mu for c in g.components], strict=True))
        if isinstance(g, Mixture)
        else [(1.0, g.mu)]
        for g in guarantees
    ]
    return [
        (math.prod(weight for weight, _ in chosen), math.hypot(*(mu for _, mu in chosen)))
        for chosen in itertools.product(*laws)
    ]


THREE = Mixture((0.2, 0.3, 0.5), tuple(map(GaussianDP, (0.1, 0.2, 0.4))))
SHARED = Mixture((0.9, 0.1), (GaussianDP(0.4), GaussianDP(0.7)))
ONE = Mixture((1.0, 0.0), (GaussianDP(0.3), GaussianDP(9.0)))
EQUAL = Mixture((0.25,) * 4, (GaussianDP(0.1), GaussianDP(0.2)) * 2)


@pytest.mark.parametrize(
    "guarantees",
    [
        [THREE] * 5,
        [THREE, SHARED, THREE, GaussianDP(0.4), SHARED, THREE],
        [ONE] * 3 + [THREE],
        [EQUAL] * 4 + [GaussianDP(0.1), GaussianDP(0.3)],
    ],
)
def test_counts_of_labels_are_their_product(guarantees):
    composed = compose(*guarantees)
    by_hand = product_of_labels(*guarantees)
    assert math.fsum(composed.weights) == pytest.approx(1.0, abs=1e-14)
    for epsilon in (0.0, 0.5, 2.0, 6.0):
        delta = math.fsum(weight * GaussianDP(mu).delta(epsilon) for weight, mu in by_hand)
        assert composed.delta(epsilon) == pytest.approx(delta, rel=1e-12)


@pytest.mark.parametrize("n", [2, 31, 150])
@pytest.mark.parametrize("law", [(0.2, 0.3, 0.5), (1e-9, 1e-3, 1 - 1e-9 - 1e-3)])
def test_weights_of_counts_are_those_of_the_multinomial_law(n, law):
    law = (*law[:2], 1.0 - law[0] - law[1])
    mus = (1.0, 1e-3, 1e-6)  # a sum of squares tells how often each occurs
    composed = compose(*[Mixture(law, tuple(map(GaussianDP, mus)))] * n)
    exact = [Fraction(weight) for weight in law]
    assert len(composed.components) == math.comb(n + 2, 2)
    for weight, component in zip(composed.weights, composed.components, strict=True):
        first = round(component.mu**2)
        second = round((component.mu**2 - first) * 1e6) if first == 0 else None
        if second is None:
            continue
        expected = math.comb(n, second) * exact[1] ** second * exact[2] ** (n - second)
        assert weight == pytest.approx(float(expected), rel=1e-11, abs=1e-300)


def test_mass_that_rounding_lost_stays_lost():
    leaky = Mixture((0.5, 0.5 - 4e-13), (GaussianDP(0.1), GaussianDP(0.2)))
    assert 1.0 - math.fsum(compose(leaky, leaky).weights) == pytest.approx(8e-13, rel=1e-3)
    with pytest.raises(ValueError, match="sum"):
        compose(*[leaky] * 10)


def test_a_combination_is_as_long_as_there_are_labels_and_not_fits(monkeypatch):
    lengths, together = [], _composition._together

    def count(chosen):
        lengths.append(len(chosen))
        return together(chosen)

    monkeypatch.setattr(_composition, "_together", count)
    n = 100
    composed = compose(*[THREE] * n, *[GaussianDP(0.01 * i) for i in range(n)])
    assert len(lengths) == len(composed.components) == math.comb(n + 2, 2)
    assert max(lengths) == 4


def test_equal_labels_together_are_never_below_one_by_one():
    for n in (2, 3, 7, 50, 1000):
        for mu in (1e-3, 0.1, 0.7, 3.0):
            assert _composition._together(((GaussianDP(mu), n),)).mu >= math.hypot(*[mu] * n)
