"""Averaged ADMM under known noise: its iteration on Huberised losses, inner accuracy, rates."""

from __future__ import annotations

import math

import numpy as np
import pytest

from skdpadmm.algorithms import AveragedADMM
from skdpadmm.algorithms.blocks._clipped_loss import loss_bounds
from skdpadmm.losses import HuberLoss, LogisticLoss, SmoothedHinge, SquaredLoss, clip_derivative
from skdpadmm.penalties import L1, ElasticNet
from skdpadmm.protocol import Gate, HiddenPath
from tests.algorithms import direct_runs as direct
from tests.algorithms.direct_runs import close, data_for, run


@pytest.mark.parametrize("loss", [SquaredLoss(), LogisticLoss()], ids=repr)
@pytest.mark.parametrize("hidden", [False, True])
@pytest.mark.parametrize("lam", [0.3, 1.0])
def test_an_iteration_is_that_of_the_paper_on_huberised_losses(loss, hidden, lam):
    (X, y), gamma, clip, l1, l2 = data_for(loss, n=15), 0.8, 0.4, 0.02, 0.1
    A, ridge = direct.augmented(X, not hidden), l2 if hidden else 0.0
    d, left = A.shape[1], ElasticNet(l1, l2 - ridge)
    noise, clip_norm = 0.05 * np.random.default_rng(1).normal(size=(5, d, 1)), clip * math.sqrt(d)
    u, path, unit = np.zeros((d, 1)), [], gamma * clip_norm / (1 + gamma * ridge)
    for k in range(5):
        z = direct.shrunk(u, left, gamma, 3)
        x = direct.exact_prox(loss, A, y, gamma, 2 * z - u, clip_norm=clip_norm, ridge=ridge)
        u = u + 2 * lam * (x - z) + 2 * lam * unit * noise[k]
        path.append(u)
    algorithm = AveragedADMM(
        step_size=gamma, clip_norm=clip, relaxation=lam, guarantee="last" if hidden else "path",
        tolerance=1e-6, tail_fraction="auto" if hidden else 0.4,
    )  # fmt: skip
    around = {"penalty": ElasticNet(l1, l2), "fit_intercept": not hidden, "noise": noise}
    result = run(algorithm, X, y, loss=loss, **around)
    tail = np.mean(path[-1 if hidden else -2 :], axis=0)
    close(result.solution.parameters, direct.shrunk(tail, left, gamma, 3), 1e-6)
    assert isinstance(result.plan.releases[0], HiddenPath) == hidden


@pytest.mark.parametrize("loss", [SquaredLoss(), LogisticLoss()], ids=repr)
@pytest.mark.parametrize("tolerance", [1.0, 0.01])
def test_an_inner_solution_is_within_the_tolerance_that_the_sensitivity_counts(loss, tolerance):
    (X, y), gamma, clip = data_for(loss, n=30), 2.5, 0.3
    A, clip_norm, penalty = direct.augmented(X), 2 * clip, L1(0.02)
    noise = 2 * np.random.default_rng(2).normal(size=(4, 4, 1))
    algorithm = AveragedADMM(step_size=gamma, clip_norm=clip, tolerance=tolerance)
    result = run(algorithm, X, y, loss=loss, penalty=penalty, max_iter=4, noise=noise)
    allowed, u = tolerance * 2 / len(X) * gamma * clip_norm, np.zeros((4, 1))
    for k, value in enumerate(result.source.values):
        z = direct.shrunk(u, penalty, gamma, 3)
        x = 2 * z - u + gamma * clip_norm * value
        away = x - direct.exact_prox(loss, A, y, gamma, 2 * z - u, clip_norm=clip_norm)
        assert np.linalg.norm(away) <= allowed
        u = z + gamma * clip_norm * (value + noise[k])
    sensitivity = result.plan.releases[0].sensitivities[0]
    assert sensitivity == pytest.approx(2 / 30 * (1 + 2 * tolerance))


class GivenStates(Gate):
    """Sets the state to what a test gives, whatever comes in, and keeps what came in."""

    def __init__(self, plan, source):
        super().__init__(plan, source)
        self.images = []

    def release(self, name, value):
        self.images.append(value)
        return GivenStates.states[len(self.images) - 1]

    def close(self):
        pass


@pytest.mark.parametrize("loss", [SquaredLoss(), HuberLoss(0.3), LogisticLoss()], ids=repr)
@pytest.mark.parametrize("lam", [0.5, 1.0])
def test_an_update_contracts_as_fast_as_the_last_iterate_is_accounted_for(loss, lam, monkeypatch):
    (X, y), rng = data_for(loss, n=40), np.random.default_rng(0)
    states = rng.normal(size=(9, 3, 1)) * 10 ** rng.uniform(-1, 1, size=(9, 1, 1))
    monkeypatch.setattr(GivenStates, "states", states, raising=False)
    monkeypatch.setattr(direct, "Gate", GivenStates)
    algorithm = AveragedADMM(
        step_size=0.7, clip_norm=0.3, relaxation=lam, guarantee="last", tolerance=1e-6
    )
    around = {"penalty": ElasticNet(0.05, 0.2), "fit_intercept": False, "max_iter": 9}
    result = run(algorithm, X, y, loss=loss, **around)
    images, constant = result.gate.images[1:], result.plan.settings.contraction
    assert constant < 1
    for i in range(8):
        for j in range(i):
            apart = np.linalg.norm(states[i] - states[j])
            assert np.linalg.norm(images[i] - images[j]) <= constant * apart * (1 + 1e-9) + 1e-6


@pytest.mark.parametrize(
    "loss", [LogisticLoss(), SquaredLoss(), HuberLoss(0.5), SmoothedHinge(0.5)], ids=repr
)
@pytest.mark.parametrize("clip_norm", [0.01, 0.3, 0.9, 3.0])
def test_bounds_of_a_clipped_loss_hold_on_a_grid(loss, clip_norm):
    bounds, scores = (
        loss_bounds(loss, row_norm=1.4, clip_norm=clip_norm),
        np.linspace(-8, 8, 40_001),
    )
    for norm in (0.3, 1.0, 1.4):
        for y in (-1.0, 1.0):
            slope = loss.derivative(scores.copy(), np.full_like(scores, y))
            slope = clip_derivative(slope, bounds.gradient_norm / norm)
            assert np.abs(slope).max() * norm <= bounds.gradient_norm * (1 + 1e-12)
            bend = np.diff(slope).max() / (scores[1] - scores[0])
            assert bend * norm**2 <= bounds.curvature * (1 + 1e-3)
