"""Rounds of perturbed objectives: exact Renyi divergences never exceed the bounds."""

import itertools
import math

import pytest
from scipy.special import logsumexp

from benchmarks.baselines._perturbed_rounds import perturbed_objective_rdp as rounds_of
from skdpadmm.privacy import GaussianDP, compose
from skdpadmm.privacy import PerturbedObjectiveDP as Objective
from tests.privacy.test_objective_perturbation import (
    NOBODY,
    RELATIONS,
    ROW,
    SHAPES,
    Scalar,
    densities,
    of_relations,
)

pytestmark = pytest.mark.filterwarnings("ignore:overflow", "ignore:divide")
ORDERS = (1.1, 2.0, 5.0, 20.0)


@pytest.mark.parametrize(
    ("loss", "ridges", "stds"),
    [
        (Scalar("logistic", 1.0), (0.05, 1.0, 30.0), (1.0, 3.0, 10.0)),
        (Scalar("huber", 0.0, 0.2), (0.3, 100.0), (0.4, 2.0)),
        (Scalar("huber", 0.4, 1.0), (0.3, 3.0), (1.0,)),
    ],
    ids=["logistic", "huber", "off centre"],
)
@of_relations
def test_no_exact_renyi_divergence_exceeds_the_bound(loss, ridges, stds, relation):
    other = Scalar(loss.kind, -loss.target, loss.size)
    common = [(ROW, loss), (ROW, other)] if loss.kind == "logistic" else []
    replaced = (NOBODY, loss) if relation == "zero_out" else (ROW, other)
    for ridge, std, order in itertools.product(ridges, stds, ORDERS):
        pair = [*common, (ROW, loss)], [*common, replaced]
        (p, q), cell = densities(*pair, ridge, std, 40_001, 14 * max(order, 2))
        moments = [logsumexp(order * a + (1 - order) * b) for a, b in ((p, q), (q, p))]
        exact = (max(moments) + math.log(cell)) / (order - 1)
        plain = loss.guarantee(ridge, std, relation)
        for shape in SHAPES if loss.kind == "logistic" else ["any"]:
            guarantee = Objective(plain.gradient_ratio, plain.curvature_ratio, relation, shape)
            assert exact <= rounds_of(guarantee, 1, (order,)).divergences[0] * (1 + 1e-3)


def test_rounds_add_up_with_their_gaussian_releases():
    for relation, factor in zip(RELATIONS, (1, 2), strict=True):
        found = rounds_of(Objective(0.2, 0.0, relation), 10, ORDERS).divergences
        expected = [10 * order * (factor * 0.2) ** 2 / 2 for order in ORDERS]
        assert found == pytest.approx(expected, rel=1e-8)  # without curvature: Gaussian
    plain, mu = Objective(0.2, 0.1, "zero_out"), GaussianDP(0.5 * math.sqrt(3))
    together = rounds_of(compose(plain, GaussianDP(0.5)), 3, ORDERS).divergences
    apart = compose(rounds_of(plain, 3, ORDERS), mu).divergences
    assert together == pytest.approx(apart, rel=1e-12)
    assert max(rounds_of(Objective(0.0, 0.0, "zero_out"), 5).divergences) == 0.0
    pytest.importorskip("dp_accounting")
    one = Objective(0.1, 1e-3, "zero_out", "one_sign")
    assert one.epsilon(1e-6) < rounds_of(one).epsilon(1e-6) < 1.3 * one.epsilon(1e-6)
