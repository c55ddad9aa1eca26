"""Perturbed objectives minimised in rounds: exact Renyi divergences never exceed the bound."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import norm

from skdpadmm.privacy import GaussianDP, PerturbedObjectiveDP, compose, perturbed_objective_rdp

pytest.importorskip("dp_accounting")

ORDERS = (1.1, 2.0, 5.0, 20.0)


def log_density(losses, ridge, std, w):
    """Density of the minimiser of ``sum_i losses_i(w) + ridge w^2 / 2 + b w``, b ~ N(0, std^2)."""
    slope = ridge * w + sum(loss[0](w) for loss in losses)
    curvature = ridge + sum(loss[1](w) for loss in losses)
    return norm.logpdf(slope, scale=std) + np.log(curvature)


def logistic(y):
    def probability(w):
        return 1 / (1 + np.exp(y * w))

    return lambda w: -y * probability(w), lambda w: probability(w) * (1 - probability(w))


def huber(centre, size):
    def slope(w):
        return np.clip(w - centre, -size, size)

    return slope, lambda w: (np.abs(w - centre) <= size) * 1.0


def divergences(one, other, ridge, std, order):
    """Both directions, by integration."""
    reach = (14 * std * max(order, 2) + 4) / ridge
    w = np.linspace(-reach, reach, 40_001)
    p, q = (log_density(losses, ridge, std, w) for losses in (one, other))
    step = math.log(w[1] - w[0])
    return [
        (logsumexp(order * a + (1 - order) * b) + step) / (order - 1) for a, b in ((p, q), (q, p))
    ]


@pytest.mark.filterwarnings("ignore:overflow", "ignore:divide")
@pytest.mark.parametrize("ridge", [0.05, 1.0, 30.0])
@pytest.mark.parametrize("std", [1.0, 3.0, 10.0])
@pytest.mark.parametrize("relation", ["zero_out", "replace_one"])
def test_no_exact_divergence_of_logistic_losses_exceeds_the_bound(ridge, std, relation):
    common = [logistic(-1), logistic(1)]
    changed = [] if relation == "zero_out" else [logistic(-1)]
    for derivative in ("any", "one_sign", "logistic"):
        guarantee = PerturbedObjectiveDP(1 / std, 0.25 / ridge, relation, derivative)
        bound = perturbed_objective_rdp(guarantee, 1, ORDERS)
        for order, claimed in zip(ORDERS, bound.divergences, strict=True):
            exact = divergences([*common, logistic(1)], common + changed, ridge, std, order)
            assert max(exact) <= claimed * (1 + 1e-6)


@pytest.mark.parametrize("ridge", [0.3, 3.0, 100.0])
@pytest.mark.parametrize("centre", [0.0, 0.4])
def test_no_exact_divergence_of_losses_whose_sign_changes_exceeds_the_bound(ridge, centre):
    for size, std in ((0.2, 0.4), (0.2, 2.0), (1.0, 1.0)):
        guarantee = PerturbedObjectiveDP(size / std, 1 / ridge, "zero_out", "any")
        bound = perturbed_objective_rdp(guarantee, 1, ORDERS)
        replaced = PerturbedObjectiveDP(size / std, 1 / ridge, "replace_one", "any")
        twice = perturbed_objective_rdp(replaced, 1, ORDERS)
        empty = [(lambda w: 0 * w, lambda w: 0 * w)]
        other = [huber(-centre, size)]
        for order, claimed, doubled in zip(
            ORDERS, bound.divergences, twice.divergences, strict=True
        ):
            exact = divergences([huber(centre, size)], empty, ridge, std, order)
            # Kinks of the density cost the integral 1e-4.
            assert max(exact) <= claimed * (1 + 1e-3)
            assert max(divergences([huber(centre, size)], other, ridge, std, order)) <= doubled


@pytest.mark.parametrize("ratio", [0.01, 0.3, 2.0])
@pytest.mark.parametrize("curvature", [0.0, 1e-3, 1.0])
def test_it_is_never_above_the_bound_of_an_unknown_sign_in_every_draw(ratio, curvature):
    guarantee = PerturbedObjectiveDP(ratio, curvature, "zero_out", "any")
    bound = perturbed_objective_rdp(guarantee, 7, ORDERS)
    for order, claimed in zip(ORDERS, bound.divergences, strict=True):
        shift = order - 1
        moment = math.log(2) + (shift * ratio) ** 2 / 2 + norm.logcdf(shift * ratio)
        loose = math.log1p(curvature) + ratio**2 / 2 + moment / shift
        assert 0 < claimed <= 7 * loose * (1 + 1e-8)


@pytest.mark.parametrize(("relation", "factor"), [("zero_out", 1), ("replace_one", 2)])
def test_without_curvature_it_is_a_gaussian_release(relation, factor):
    guarantee = PerturbedObjectiveDP(0.2, 0.0, relation)
    bound = perturbed_objective_rdp(guarantee, 10, ORDERS)
    expected = [10 * order * (factor * 0.2) ** 2 / 2 for order in ORDERS]
    assert bound.divergences == pytest.approx(expected, rel=1e-8)


def test_gaussian_releases_are_counted_in_every_round():
    plain = PerturbedObjectiveDP(0.2, 0.1, "zero_out")
    together = perturbed_objective_rdp(compose(plain, GaussianDP(0.5)), 3, ORDERS)
    apart = compose(perturbed_objective_rdp(plain, 3, ORDERS), GaussianDP(0.5 * math.sqrt(3)))
    assert together.divergences == pytest.approx(apart.divergences, rel=1e-12)


def test_one_round_costs_little_more_than_its_exact_curve():
    one = PerturbedObjectiveDP(0.1, 1e-3, "zero_out", "one_sign")
    exact, converted = one.epsilon(1e-6), perturbed_objective_rdp(one).epsilon(1e-6)
    assert exact < converted < 1.3 * exact


def test_records_without_gradient_cost_nothing_but_their_curvature():
    bound = perturbed_objective_rdp(PerturbedObjectiveDP(0.0, 0.0, "zero_out"), 5)
    assert max(bound.divergences) == 0.0


def test_rounds_and_orders_outside_the_theorem_are_refused():
    one = PerturbedObjectiveDP(0.1, 0.1, "zero_out")
    with pytest.raises(ValueError, match="Got n_rounds=0"):
        perturbed_objective_rdp(one, 0)
    with pytest.raises(ValueError, match="Got orders"):
        perturbed_objective_rdp(one, 1, (1.0, 2.0))
