"""Objective perturbation: exact divergences never exceed the bounds, and meet them where tight."""

import itertools
import math
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from skdpadmm import privacy
from skdpadmm.privacy import GaussianDP, compose
from skdpadmm.privacy import PerturbedObjectiveDP as Objective
from tests.privacy.attained import gaussian_delta

pytestmark = pytest.mark.filterwarnings("ignore:overflow", "ignore:divide")
RELATIONS, SHAPES = ("zero_out", "replace_one"), list(privacy.LossDerivative)
ROW, NOBODY = np.ones(1), np.zeros(1)
of_relations = pytest.mark.parametrize("relation", RELATIONS)
of_shapes = pytest.mark.parametrize("shape", SHAPES)


@dataclass(frozen=True)
class Scalar:
    """A loss of one score, with the constants that a guarantee may use."""

    kind: str
    target: float
    size: float = 1.0

    def derivative(self, t):
        if self.kind == "huber":
            return np.clip(t - self.target, -self.size, self.size)
        if self.kind == "hinge":
            return -self.target * np.clip((1 - self.target * t) / self.size, 0, 1)
        return -self.target * np.minimum(1 / (1 + np.exp(self.target * t)), self.size)

    def curvature(self, t):
        if self.kind == "huber":
            return (np.abs(t - self.target) <= self.size) * 1.0
        if self.kind == "hinge":
            return (np.abs(1 - self.target * t - self.size / 2) <= self.size / 2) / self.size
        p = 1 / (1 + np.exp(self.target * t))
        return np.where(p <= self.size, p * (1 - p), 0.0)

    def guarantee(self, ridge, std, relation, mu=0.0):
        logistic = 0.25 if self.size >= 0.5 else self.size * (1 - self.size)
        lipschitz, smoothness, shape, saturation = {
            "huber": (self.size, 1.0, "any", 1.0),
            "hinge": (1.0, 1 / self.size, "one_sign", 1.0),
            "logistic": (self.size, logistic, "logistic", self.size),
        }[self.kind]
        return Objective(lipschitz / std, smoothness / ridge, relation, shape, saturation, mu)


def densities(one, other, ridge, std, side, spread=12):
    """Logarithms of both laws of the minimiser on a grid, and the volume of its cells."""
    reach = (spread * std + sum(np.linalg.norm(a) * max(f.size, 1) for a, f in one + other)) / ridge
    line, p = np.linspace(-reach, reach, side), len(one[0][0])
    points = np.stack(np.meshgrid(*[line] * p), axis=-1).reshape(-1, p)
    logs = []
    for records in (one, other):
        # The density of b times a determinant.
        slope = ridge * points
        hessian = ridge * np.eye(p) * np.ones((len(points), 1, 1))
        for row, loss in records:
            slope = slope + loss.derivative(points @ row)[:, None] * row
            hessian = hessian + loss.curvature(points @ row)[:, None, None] * np.outer(row, row)
        logs.append(norm.logpdf(slope, scale=std).sum(axis=1) + np.linalg.slogdet(hessian)[1])
    return logs, (line[1] - line[0]) ** p


def exact_delta(one, other, ridge, std, epsilon, mu=0.0, side=10_001):
    """Delta of the mechanism on two data sets, the larger of both directions, by integration.

    With mu, a Gaussian release on which nothing else depends is composed with it.
    """
    (first, second), cell = densities(one, other, ridge, std, side)
    return max(
        float(np.exp(d) @ gaussian_delta(mu, epsilon - (d - e))) * cell
        for d, e in ((first, second), (second, first))
    )


@of_relations
@pytest.mark.parametrize("kind", ["huber", "hinge", "logistic", "clipped logistic"])
@pytest.mark.parametrize(
    ("n_parameters", "n_trials", "side", "slack"),
    [
        (1, 20, 10_001, 3e-3),
        pytest.param(2, 8, 301, 2e-2, marks=pytest.mark.slow),
    ],
)
def test_no_exact_divergence_exceeds_the_bound(kind, relation, n_parameters, n_trials, side, slack):
    rng = np.random.default_rng(0)

    def drawn(size):
        target = 2 * rng.standard_normal() if kind == "huber" else rng.choice([-1.0, 1.0])
        row = rng.standard_normal(n_parameters)
        return row / np.linalg.norm(row), Scalar(kind.split()[-1], float(target), size)

    for _ in range(n_trials):
        size = 10 ** rng.uniform(-0.7, 0.7)
        if "logistic" in kind:
            size = rng.uniform(0.1, 1) if kind == "clipped logistic" else 1.0
        row, loss = drawn(size)
        plain = loss.guarantee(1.0, 1.0, relation)
        std = plain.gradient_ratio / 10 ** rng.uniform(-1.2, 0.6 if n_parameters == 1 else 0.2)
        ridge = plain.curvature_ratio / 10 ** rng.uniform(-2, 1 if n_parameters == 1 else 0.5)
        mu = float(rng.choice([0.0, plain.gradient_ratio / std * 10 ** rng.uniform(-1, 0.5)]))
        guarantee = loss.guarantee(ridge, std, relation, mu)
        common = [(rng.random() * a, f) for a, f in (drawn(size) for _ in range(rng.integers(3)))]
        replaced = drawn(size) if relation == "replace_one" else (0 * row, loss)
        factor = guarantee.neighboring.sensitivity_factor
        spread = math.hypot(factor * guarantee.gradient_ratio, mu)
        for deviations in (0.0, 1.5, 4.0)[: 3 if n_parameters == 1 else 2]:
            epsilon = math.log1p(guarantee.curvature_ratio) + spread * deviations + spread**2 / 2
            pair = [*common, (row, loss)], [*common, replaced]
            exact = exact_delta(*pair, ridge, std, epsilon, mu, side)
            assert exact <= guarantee.delta(epsilon) * (1 + slack)  # kinks cost the integral


def test_bounds_are_attained_by_a_logistic_loss_and_nearly_by_two_hinges():
    loss = Scalar("logistic", 1.0)
    for delta in (1e-4, 1e-9):
        epsilon = loss.guarantee(0.1, 0.5, "zero_out").epsilon(delta)
        exact = exact_delta([(ROW, loss)], [(NOBODY, loss)], 0.1, 0.5, epsilon, side=50_001)
        assert exact == pytest.approx(delta, rel=1e-3)
    loss, other = Scalar("hinge", 1.0, 0.2), Scalar("hinge", -1.0, 0.2)
    epsilon = loss.guarantee(200.0, 0.4, "replace_one").epsilon(1e-5)
    exact = exact_delta([(ROW, loss)], [(ROW, other)], 200.0, 0.4, epsilon, side=50_001)
    assert 0.5e-5 <= exact <= 1.001e-5


@pytest.mark.parametrize(("m", "kappa", "w"), [(1.0, 0.8, 1.0), (2.0, 2.5, 0.95), (5.0, 13.0, 1.0)])
def test_the_floor_of_a_logistic_loss_is_the_largest_loss_short_of_saturation(m, kappa, w):
    """The largest loss over the gradient, of norm u L, at each of the noise, by a search."""
    loss, z, u = Scalar("logistic", 1.0, w), np.linspace(-9, 9, 4001), np.linspace(0, 1, 401)
    guarantee, u = loss.guarantee(w**2 / kappa, w / m, "zero_out"), u[:, None]
    bend, moved = u * (1 - u * w) * kappa / w, u * m * z + (u * m) ** 2 / 2
    losses, largest = bend + moved, (np.log1p(bend) + moved).max(axis=0)
    saturated = losses[-1]
    floor = losses.max(axis=0)[losses.argmax(axis=0) < 400].max()
    assert floor == pytest.approx(kappa - m**2 / 2, abs=0.03)
    for epsilon in (0.0, 0.5 * floor, floor, 2 * floor):
        mean, least = (
            np.trapezoid(norm.pdf(z) * np.maximum(0, -np.expm1(epsilon - y)), z)
            for y in (np.maximum(floor, saturated), largest)
        )
        claimed = guarantee.delta(epsilon)
        pair, scales = ([(ROW, loss)], [(NOBODY, loss)]), (w**2 / kappa, w / m)
        assert exact_delta(*pair, *scales, epsilon) <= least * (1 + 3e-3) <= claimed * (1 + 4e-3)
        assert claimed == pytest.approx(mean, rel=0.03)


@pytest.mark.parametrize("mu", [0.01, 0.3, 1.0])
@pytest.mark.parametrize("epsilon", [0.0, 0.4, 1.5])
def test_composition_with_gaussians_is_the_mean_of_their_curve(mu, epsilon):
    scale, z = 0.25, np.linspace(0.0, 38.0, 400_001)
    alone = Objective(scale, 0.0, "zero_out")
    guarantee = compose(GaussianDP(mu * 0.6), alone, GaussianDP(mu * 0.8))
    curve = gaussian_delta(mu, epsilon - scale * z - scale**2 / 2)
    exact = np.trapezoid(2 * norm.pdf(z) * curve, z)
    assert exact * (1 - 1e-5) <= guarantee.delta(epsilon) <= exact * (1 + 2e-3)


@of_relations
@of_shapes
def test_a_part_that_vanishes_changes_nothing_and_no_scale_breaks_a_curve(shape, relation):
    alone = Objective(0.2, 0.05, relation, shape)
    for epsilon in (0.01, 0.3, 3.0):
        beside = compose(alone, GaussianDP(1e-7)).delta(epsilon)
        assert alone.delta(epsilon) * (1 - 1e-7) <= beside <= alone.delta(epsilon) * (1 + 5e-3)
    beside = compose(Objective(0.0, 3.0, relation, shape), GaussianDP(0.3)).delta(1.0)
    assert beside == pytest.approx(GaussianDP(0.3).delta(1.0), rel=1e-8)
    ends = ((0.0, 1e-12, 1.0, 60.0), (0.0, 1e-9, 1e12), (0.0, 1e-9, 50.0))
    for ratio, bend, mu in itertools.product(*ends):
        guarantee = Objective(ratio, bend, relation, shape, gaussian_mu=mu)
        for epsilon in (0.0, 1e-300, 1.0, 800.0, 1e300, math.inf):
            assert 0 <= guarantee.delta(epsilon) <= 1


@settings(max_examples=40)
@given(
    st.tuples(st.floats(1e-3, 20), st.floats(0, 10), st.just(0.0) | st.floats(1e-3, 5)),
    st.floats(0, 30),
    st.sampled_from(RELATIONS),
    st.sampled_from(SHAPES),
)
def test_delta_is_above_that_of_a_linear_loss_and_grows_with_each(parts, epsilon, relation, shape):
    ratio, bend, mu = parts
    delta = Objective(ratio, bend, relation, shape, 1.0, mu).delta(epsilon)
    factor = 2 if relation == "replace_one" else 1
    assert GaussianDP(math.hypot(factor * ratio, mu)).delta(epsilon) <= delta + 1e-14
    for more in ((1.1 * ratio, bend, mu), (ratio, bend + 0.1, mu), (ratio, bend, mu + 0.1)):
        larger = Objective(*more[:2], relation, shape, 1.0, more[2])
        assert delta <= larger.delta(epsilon) * (1 + 2e-2) + 1e-14
