"""Coordinate descent is as private as it says: sensitivities, divergences, an attack, bugs."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

import skdpadmm.algorithms._coordinate_descent as module
from skdpadmm import DPAdmmLasso, DPAdmmLogisticRegression, DPAdmmRidge
from skdpadmm.algorithms import CoordinateDescent
from skdpadmm.engine import Engine
from skdpadmm.losses import HuberLoss, LogisticLoss, MultinomialLoss, SquaredLoss
from skdpadmm.noise import CryptographicNoise
from skdpadmm.penalties import NoPenalty
from skdpadmm.privacy import Neighboring
from skdpadmm.protocol import Budget, Facts, Gate, Problem
from skdpadmm.records import Rows, declared_coordinates

LOSSES = [SquaredLoss(), HuberLoss(0.2), LogisticLoss(), MultinomialLoss(3)]


def moves(first, second):
    return np.array(
        [np.linalg.norm(a - b) for a, b in zip(first.values, second.values, strict=True)]
    )


def coordinate_path(loss, seed=0, n_steps=24, scale=0.3):
    rng = np.random.default_rng(seed)
    return [scale * rng.standard_normal(loss.n_outputs) for _ in range(n_steps)]


@pytest.mark.parametrize("schedule", ["cyclic", "random"])
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
@pytest.mark.parametrize("neighboring", ["replace_one", "zero_out"])
@pytest.mark.parametrize("clip_norm", [0.3, [0.1, 0.5, 2.0, 0.01]], ids=["one", "own"])
def test_releases_move_by_at_most_their_declared_sensitivity(
    replay, targets, schedule, loss, neighboring, clip_norm
):
    rng = np.random.default_rng(1)
    algorithm = CoordinateDescent(schedule=schedule, clip_norm=clip_norm)
    for seed in range(5):
        X = rng.standard_normal((8, 3)) * 10.0 ** rng.uniform(-2, 2, (8, 1))
        y = targets(loss, rng, 8)
        X2, y2, null = X.copy(), y.copy(), None
        if neighboring == "replace_one":
            X2[0], y2[0] = -5 * X[0], targets(loss, rng, 1)[0]
        else:
            null = 0
        path = coordinate_path(loss, seed)
        first = replay(algorithm, X, y, loss, path, neighboring=neighboring)
        second = replay(algorithm, X2, y2, loss, path, neighboring=neighboring, null_record=null)
        assert first.plan == second.plan
        assert np.all(moves(first, second) <= first.plan.releases[0].sensitivities)


EXTREME = {
    "huge, mixed signs": [1e300, -1e300, 1e300],
    "largest floats": [1.7e308, -1.7e308, 1.7e308],
    "tiny": [1e-200, -1e-200, 1e-308],
    "huge beside tiny": [1e300, 1e-300, 0.0],
    "zero": [0.0, 0.0, 0.0],
}


@pytest.mark.parametrize("row", EXTREME.values(), ids=EXTREME.keys())
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
@pytest.mark.parametrize("bounds", [None, (-1, 3)], ids=["undeclared", "declared"])
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix], ids=["dense", "sparse"])
def test_rows_of_any_size_move_a_release_by_at_most_its_sensitivity(
    replay, targets, row, loss, bounds, kind
):
    rng = np.random.default_rng(2)
    X, y = rng.uniform(-1, 1, (6, 3)), targets(loss, rng, 6)
    X2, y2 = X.copy(), y.copy()
    X2[3] = row
    if isinstance(loss, SquaredLoss):
        y2[3] = -1e308
    path = coordinate_path(loss)
    first = replay(CoordinateDescent(), kind(X), y, loss, path, feature_bounds=bounds)
    second = replay(CoordinateDescent(), kind(X2), y2, loss, path, feature_bounds=bounds)
    assert np.isfinite(second.values).all()
    assert np.all(moves(first, second) <= first.plan.releases[0].sensitivities)


def test_hidden_scores_depend_on_the_path_and_each_record_alone(replay, targets):
    for loss in LOSSES:
        rng = np.random.default_rng(4)
        path = coordinate_path(loss)
        X, y = rng.standard_normal((9, 3)), targets(loss, rng, 9)
        X2, y2 = X.copy(), y.copy()
        X2[1:], y2[1:] = 100 * rng.standard_normal((8, 3)), targets(loss, rng, 8)
        one, other = (replay(CoordinateDescent(), A, t, loss, path) for A, t in ((X, y), (X2, y2)))
        np.testing.assert_array_equal(one.parameters, other.parameters)
        alone = [
            np.subtract(
                full.values,
                replay(CoordinateDescent(), A, t, loss, path, null_record=0).values,
            )
            for full, A, t in ((one, X, y), (other, X2, y2))
        ]
        np.testing.assert_allclose(alone[0], alone[1], atol=1e-12)


@pytest.mark.parametrize("neighboring", ["replace_one", "zero_out"])
def test_it_is_exactly_as_private_as_it_claims_where_losses_are_linear(replay, neighboring):
    loss = LogisticLoss()
    X, y = np.ones((20, 1)), np.resize([1.0, -1.0], 20)
    y2 = y.copy()
    y2[0] = -1.0
    null = 0 if neighboring == "zero_out" else None
    # The clip is far below all derivatives; every entry of a row is one.
    algorithm = CoordinateDescent(step_size=0.01, clip_norm=0.01)
    path = coordinate_path(loss, n_steps=12, scale=1e-3)
    first = replay(algorithm, X, y, loss, path, neighboring=neighboring)
    second = replay(
        algorithm, X, y if null == 0 else y2, loss, path, neighboring=neighboring, null_record=null
    )
    release = first.plan.releases[0]
    exact_mu = np.linalg.norm(moves(first, second)) / release.noise_std
    claimed_mu = first.plan.guarantee().mu
    assert exact_mu <= claimed_mu
    assert exact_mu == pytest.approx(claimed_mu, rel=1e-6)


@pytest.mark.parametrize("schedule", ["cyclic", "random"])
@pytest.mark.parametrize("estimator", [DPAdmmLasso, DPAdmmLogisticRegression])
def test_neighbouring_and_shuffled_data_get_the_same_plan_and_the_trace_is_the_plan(
    watch, schedule, estimator
):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((30, 3))
    y = np.arange(30) % 3 if estimator is DPAdmmLogisticRegression else rng.standard_normal(30)
    neighbour = X.copy()
    neighbour[0] = [1e300, -1e300, 0.0]
    order = rng.permutation(30)
    with watch() as tap:
        for A, t in ((X, y), (neighbour, y), (X[order], y[order]), (sparse.csr_array(X), y)):
            estimator(algorithm=CoordinateDescent(schedule=schedule), max_iter=5).fit(A, t)
    first, *others = tap.plans
    assert all(plan == first and plan.digest() == first.digest() for plan in others)
    planned = [(r.name, r.shape) for r in first.releases for _ in range(r.times)]
    assert all(gate.trace == planned for gate in tap.gates)


# An attack on many runs, and the bugs that it finds


def planned():
    coordinates = declared_coordinates(
        n_features=1, fit_intercept=False, target_bounds=(-3, 3), has_target_scale=True
    )
    facts = Facts(
        n_samples=2,
        n_parameters=1,
        loss=SquaredLoss(),
        penalty=NoPenalty(),
        neighboring=Neighboring.REPLACE_ONE,
        row_norm=coordinates.row_norm,
        rounding=1.0,
        max_iter=3,
    )
    # One iterate of three is returned: it tells as much as the path where losses are linear.
    algorithm = CoordinateDescent(step_size=0.01, clip_norm=0.01, tail_fraction=1 / 3)
    return algorithm, coordinates, algorithm.plan(facts, Budget(epsilon=3.0, delta=1e-3))


def draws(neighbour, n_runs, source):
    algorithm, coordinates, plan = planned()
    rows = Rows(np.ones((2, 1)), coordinates)
    target = coordinates.target(np.array([2.9, -2.9 if neighbour else 2.9]))
    found = np.empty(n_runs)
    with Engine().running() as engine:
        problem = Problem(rows=rows, target=target, engine=engine)
        for i in range(n_runs):
            found[i] = algorithm.run(plan, problem, Gate(plan, source)).parameters[0, 0]
    return found


def attack(mu_lower_bound, n_runs=4000, source=CryptographicNoise):
    return mu_lower_bound(*(draws(neighbour, n_runs, source()) for neighbour in (False, True)))


def claim():
    return planned()[2].guarantee().mu


def test_attack_finds_no_more_than_the_claimed_mu(mu_lower_bound):
    assert attack(mu_lower_bound) <= claim()


@pytest.mark.slow
def test_attack_with_many_runs_comes_close_to_the_claimed_mu_and_not_above(mu_lower_bound):
    assert 0.85 * claim() <= attack(mu_lower_bound, n_runs=30_000) <= claim()


class HalfTheNoise(CryptographicNoise):
    def add_gaussian(self, value, scale, stream):
        return super().add_gaussian(value, scale / 2, stream)


def test_attack_catches_half_the_noise(mu_lower_bound):
    assert attack(mu_lower_bound, source=HalfTheNoise) > 1.2 * claim()


def test_attack_catches_a_missing_clip(monkeypatch, mu_lower_bound):
    monkeypatch.setattr(module, "clip_derivative", lambda derivative, limit: derivative)
    assert attack(mu_lower_bound) > 1.2 * claim()


def test_attack_catches_replace_one_calibrated_as_zero_out(monkeypatch, mu_lower_bound):
    honest = claim()
    monkeypatch.setattr(Neighboring, "sensitivity_factor", 1)
    assert attack(mu_lower_bound) > 1.2 * honest


def test_noise_is_fresh_in_every_step(watch, monkeypatch):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((50, 4)), rng.standard_normal(50)
    drawn = {}

    class SameNoiseInEveryRelease(CryptographicNoise):
        def add_gaussian(self, value, scale, stream):
            noise = drawn.setdefault("noise", super().add_gaussian(0 * value, scale, stream))
            return value + noise

    def spread():
        with watch() as tap:
            DPAdmmRidge(algorithm="coordinate-descent", max_iter=10).fit(X, y)
        return np.ptp(tap.noise()), np.unique(np.round(tap.noise(), 6)).size

    width, n_values = spread()
    assert width > 2
    assert n_values == 50
    monkeypatch.setattr("skdpadmm._fitting.noise_source", lambda *a: SameNoiseInEveryRelease())
    width, _ = spread()
    assert width < 1e-6
