"""Averaged ADMM: each release moves as declared, linear losses meet the claim, bugs are caught."""

from __future__ import annotations

import math

import numpy as np
import pytest

import skdpadmm.algorithms._averaged_admm as averaged
import skdpadmm.algorithms.blocks._clipped_loss as clipped_loss
from skdpadmm import DPAdmmLogisticRegression, DPAdmmRidge
from skdpadmm.algorithms import AveragedADMM
from skdpadmm.engine import Engine
from skdpadmm.losses import HuberLoss, LogisticLoss, MultinomialLoss, SmoothedHinge, SquaredLoss
from skdpadmm.noise import CryptographicNoise
from skdpadmm.penalties import ElasticNet
from skdpadmm.privacy import Neighboring
from skdpadmm.protocol import Budget, Facts, Gate, Problem
from skdpadmm.records import Rows, declared_coordinates, rounding_factor

LOSSES = [SquaredLoss(), HuberLoss(0.2), SmoothedHinge(0.5), LogisticLoss(), MultinomialLoss(3)]
SECOND_MOMENT = np.array([0.5, 0, 0, 0, 0.3, 0, 0, 0.1, 0, 0.01])


def moves(first, second):
    return np.array(
        [np.linalg.norm(a - b) for a, b in zip(first.values, second.values, strict=True)]
    )


def declared(plan):
    return np.array([s for release in plan.releases for s in release.sensitivities])


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
@pytest.mark.parametrize("relaxation", [0.3, 1.0])
@pytest.mark.parametrize("neighboring", ["replace_one", "zero_out"])
@pytest.mark.parametrize("conditioned", [False, True])
def test_releases_move_by_at_most_their_declared_sensitivity(
    replay, random_path, targets, loss, relaxation, neighboring, conditioned
):
    rng = np.random.default_rng(1)
    clip = "auto" if loss.n_outputs > 1 else 0.35
    algorithm = AveragedADMM(relaxation=relaxation, step_size=2.0, clip_norm=clip)
    keywords = {"second_moment": SECOND_MOMENT if conditioned else None}
    for seed in range(3):
        X = rng.standard_normal((8, 3)) * 10.0 ** rng.uniform(-2, 2, (8, 1))
        y = targets(loss, rng, 8)
        X2, y2 = X.copy(), y.copy()
        null = None
        if neighboring == "replace_one":
            X2[0], y2[0] = -5 * X[0], targets(loss, rng, 1)[0]
        else:
            null = 0
        path = random_path(4, loss, seed)
        first = replay(algorithm, X, y, loss, path, neighboring=neighboring, **keywords)
        second = replay(
            algorithm, X2, y2, loss, path, neighboring=neighboring, null_record=null, **keywords
        )
        assert first.plan == second.plan
        assert np.all(moves(first, second) <= declared(first.plan))


EXTREME = {
    "huge, mixed signs": [1e300, -1e300, 1e300],
    "largest floats": [1.7e308, -1.7e308, 1.7e308],
    "tiny": [1e-200, -1e-200, 1e-308],
    "zero": [0.0, 0.0, 0.0],
}


@pytest.mark.parametrize("row", EXTREME.values(), ids=EXTREME.keys())
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
@pytest.mark.parametrize("conditioned", [False, True])
def test_rows_of_any_size_move_a_release_by_at_most_its_sensitivity(
    replay, random_path, targets, row, loss, conditioned
):
    rng = np.random.default_rng(2)
    X, y = rng.uniform(-1, 1, (6, 3)), targets(loss, rng, 6)
    X2, y2 = X.copy(), y.copy()
    X2[3] = row
    if isinstance(loss, SquaredLoss):
        y2[3] = -1e308
    path = random_path(4, loss)
    keywords = {"second_moment": SECOND_MOMENT if conditioned else None}
    first = replay(AveragedADMM(), X, y, loss, path, **keywords)
    second = replay(AveragedADMM(), X2, y2, loss, path, **keywords)
    assert all(np.isfinite(value).all() for value in second.values)
    assert np.all(moves(first, second) <= declared(first.plan))


def test_the_solution_is_a_function_of_the_released_path_alone(replay, random_path, targets):
    for loss in LOSSES:
        rng = np.random.default_rng(4)
        path = random_path(4, loss)
        one, other = (
            replay(AveragedADMM(), rng.standard_normal((9, 3)), targets(loss, rng, 9), loss, path)
            for _ in range(2)
        )
        np.testing.assert_array_equal(one.parameters, other.parameters)


LINEAR = {"step_size": 0.01, "clip_norm": 0.01, "tolerance": 1e-6}


def last_plan(n=5, max_iter=6, relation="replace_one"):
    """A plan and coordinates for a guarantee of the last iterate, on one feature."""
    coordinates = declared_coordinates(
        n_features=1, fit_intercept=False, feature_bounds=None, has_target_scale=False
    )
    facts = Facts(
        n_samples=n,
        n_parameters=1,
        loss=LogisticLoss(),
        penalty=ElasticNet(0.0, 5.0),
        neighboring=Neighboring(relation),
        row_norm=coordinates.row_norm,
        rounding=rounding_factor(n_samples=n, coordinates=coordinates),
        max_iter=max_iter,
        penalty_curvature=5.0,
    )
    algorithm = AveragedADMM(**LINEAR, guarantee="last")
    return algorithm, algorithm.plan(facts, Budget(epsilon=1.0, delta=1e-5)), coordinates


class Exact(Gate):
    """Lets everything through without noise."""

    def release(self, name, value):
        self.last = value
        return value


def test_opposite_labels_attain_the_claim_on_the_path(replay, random_path):
    # Labels far on the wrong side of a small clip: losses are linear.
    loss = LogisticLoss()
    X, y = np.ones((5, 1)), np.array([1.0, 1.0, -1.0, -1.0, 1.0])
    y2 = y.copy()
    y2[0] = -1.0
    path = random_path(2, loss, scale=1e-3)
    first, second = (
        replay(AveragedADMM(**LINEAR), X, target, loss, path, max_iter=6) for target in (y, y2)
    )
    shifts = moves(first, second)
    ratio = shifts / declared(first.plan)
    assert np.all(ratio <= 1)
    np.testing.assert_allclose(ratio, 1, rtol=1e-5)
    exact_mu = math.hypot(*shifts) / first.plan.releases[0].noise_std
    assert exact_mu == pytest.approx(first.plan.guarantee().mu, rel=1e-5)


@pytest.mark.parametrize("relation", ["replace_one", "zero_out"])
@pytest.mark.parametrize("max_iter", [1, 6, 40])
def test_opposite_labels_nearly_attain_the_claim_of_the_last_iterate(relation, max_iter):
    """The iteration is linear and contracts by one rate: its last state is exactly Gaussian."""
    algorithm, plan, coordinates = last_plan(max_iter=max_iter, relation=relation)
    y = np.array([1.0, 1.0, -1.0, -1.0, 1.0])
    means = []
    for change in (False, True):
        target = y.copy()
        x = np.ones((5, 1))
        if change and relation == "replace_one":
            target[0] = -1.0
        elif change:
            x[0] = 0.0
        gate = Exact(plan, None)
        with Engine().running() as engine:
            problem = Problem(rows=Rows(x, coordinates), target=target, engine=engine)
            algorithm.run(plan, problem, gate)
        means.append(gate.last[0, 0])
    # u <- c u + ... in units in which each step adds noise of the planned size.
    gamma, ridge = plan.settings.step_size, plan.settings.ridge
    rate = 1 - 0.5 * (1 - (1 - gamma * ridge) / (1 + gamma * ridge))
    std = plan.releases[0].noise_std * math.sqrt(sum(rate ** (2 * k) for k in range(max_iter)))
    exact_mu = abs(means[0] - means[1]) / std
    claimed = plan.guarantee().mu
    assert exact_mu <= claimed
    assert exact_mu == pytest.approx(claimed, rel=0.02)


def test_a_tolerance_that_is_not_reached_is_caught(replay, random_path, monkeypatch):
    """Planted bug: with too few inner steps the declared distance does not hold."""
    loss = SquaredLoss()
    rng = np.random.default_rng(0)
    X, y = rng.uniform(-1, 1, (6, 3)), rng.uniform(-2, 2, 6)
    algorithm = AveragedADMM(step_size=50.0, clip_norm=3.0, tolerance=0.01)
    path = random_path(4, loss)
    honest = replay(algorithm, X, y, loss, path)
    monkeypatch.setattr(averaged, "steps_to_reach", lambda *args, **keywords: 3)
    hasty = replay(algorithm, X, y, loss, path)
    allowed = algorithm.tolerance * 2 / 6 * 2
    assert np.any(moves(honest, hasty) > allowed)


def test_a_missing_clip_is_caught(replay, random_path, monkeypatch):
    loss = SquaredLoss()
    rng = np.random.default_rng(0)
    X, y = rng.uniform(-1, 1, (6, 3)), rng.uniform(-2, 2, 6)
    X2, y2 = X.copy(), y.copy()
    X2[0], y2[0] = [1.0, 1.0, 1.0], -2.0
    path = random_path(4, loss)
    algorithm = AveragedADMM(clip_norm=0.01)
    first, second = (replay(algorithm, *data, loss, path) for data in ((X, y), (X2, y2)))
    assert np.all(moves(first, second) <= declared(first.plan))
    monkeypatch.setattr(clipped_loss, "clip_derivative", lambda derivative, limit: derivative)
    first, second = (replay(algorithm, *data, loss, path) for data in ((X, y), (X2, y2)))
    assert np.any(moves(first, second) > declared(first.plan))


def test_replace_one_calibrated_as_zero_out_is_caught(replay, random_path, monkeypatch):
    loss = LogisticLoss()
    X, y = np.ones((5, 1)), np.array([1.0, 1.0, -1.0, -1.0, 1.0])
    y2 = y.copy()
    y2[0] = -1.0
    path = random_path(2, loss, scale=1e-3)
    monkeypatch.setattr(Neighboring, "sensitivity_factor", 1)
    first, second = (replay(AveragedADMM(**LINEAR), X, target, loss, path) for target in (y, y2))
    assert np.all(moves(first, second) > 1.9 * declared(first.plan))


WORST = {"max_iter": 3, "delta": 1e-3, "epsilon": 3.0, "fit_intercept": False}


def example(neighbour, guarantee):
    X, y = np.array([[1.0], [1.0]]), np.array([1, 0 if neighbour else 1])
    tail = 1 / 3 if guarantee == "path" else "auto"
    algorithm = AveragedADMM(**LINEAR, guarantee=guarantee, tail_fraction=tail)
    strength = 1.0 if guarantee == "last" else np.inf
    model = DPAdmmLogisticRegression(C=strength, classes=[0, 1], algorithm=algorithm, **WORST)
    return model.fit(X, y).coef_[0, 0], model.privacy_.guarantee().mu


def attack(mu_lower_bound, guarantee, n_fits):
    results = [
        np.array([example(neighbour, guarantee) for _ in range(n_fits)])
        for neighbour in (False, True)
    ]
    return mu_lower_bound(results[0][:, 0], results[1][:, 0]), results[0][0, 1]


@pytest.mark.slow
@pytest.mark.parametrize("guarantee", ["path", "last"])
def test_an_attack_on_fits_comes_close_to_the_claim_and_not_above(mu_lower_bound, guarantee):
    found, claimed = attack(mu_lower_bound, guarantee, n_fits=2500)
    assert 0.5 * claimed <= found <= claimed


@pytest.mark.slow
@pytest.mark.parametrize("guarantee", ["path", "last"])
def test_an_attack_catches_half_the_noise(mu_lower_bound, guarantee, monkeypatch):
    class HalfTheNoise(CryptographicNoise):
        def add_gaussian(self, value, scale, stream):
            return super().add_gaussian(value, scale / 2, stream)

    monkeypatch.setattr("skdpadmm._fitting.noise_source", lambda *args: HalfTheNoise())
    found, claimed = attack(mu_lower_bound, guarantee, n_fits=2500)
    assert found > 1.1 * claimed


@pytest.mark.parametrize("guarantee", ["path", "last"])
def test_noise_that_is_used_twice_is_caught(watch, guarantee, monkeypatch):
    def largest_cosine():
        rng = np.random.default_rng(0)
        X, y = rng.standard_normal((50, 9)), rng.standard_normal(50)
        algorithm = AveragedADMM(guarantee=guarantee)
        with watch() as tap:
            DPAdmmRidge(
                algorithm=algorithm, conditioning=None, fit_intercept=False, max_iter=10, alpha=50.0
            ).fit(X, y)
        noise = np.array([(b - a).ravel() for a, b in zip(tap.exact, tap.released, strict=True)])
        directions = noise / np.linalg.norm(noise, axis=1, keepdims=True)
        return np.abs(directions @ directions.T - np.eye(10)).max()

    assert largest_cosine() < 0.999
    drawn = {}

    class SameNoise(CryptographicNoise):
        def add_gaussian(self, value, scale, stream):
            noise = drawn.setdefault("noise", super().add_gaussian(0 * value, scale, stream))
            return value + noise

    monkeypatch.setattr("skdpadmm._fitting.noise_source", lambda *args: SameNoise())
    assert largest_cosine() > 0.999


@pytest.mark.parametrize("guarantee", ["path", "last"])
def test_plans_are_equal_for_neighbours_and_the_trace_is_the_plan(guarantee, watch):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((30, 3)), rng.standard_normal(30)
    neighbour = X.copy()
    neighbour[0] = [1e300, -1e300, 0.0]
    algorithm = AveragedADMM(guarantee=guarantee)
    model = DPAdmmRidge(algorithm=algorithm, fit_intercept=guarantee == "path", max_iter=5)
    with watch() as tap:
        model.fit(X, y)
        model.fit(neighbour, y)
        model.fit(X[::-1], y[::-1])
    assert all(plan == tap.plans[0] for plan in tap.plans)
    assert len({plan.digest() for plan in tap.plans}) == 1
    planned = [(r.name, r.shape) for r in tap.plans[0].releases for _ in range(r.times)]
    assert all(gate.trace == planned for gate in tap.gates)


def test_a_report_says_that_only_the_last_iterate_is_seen():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((30, 3)), rng.standard_normal(30)
    algorithm = AveragedADMM(guarantee="last")
    model = DPAdmmRidge(algorithm=algorithm, fit_intercept=False, max_iter=5).fit(X, y)
    assert "the final model alone" in str(model.privacy_)
