"""Intervals: statistics at a model, the step from them, and what they cover."""

import math

import numpy as np
import pytest
from scipy.special import expit

from skdpadmm import (
    DPAdmmGammaRegressor,
    DPAdmmHuberRegressor,
    DPAdmmLinearSVC,
    DPAdmmLogisticRegression,
    DPAdmmPoissonRegressor,
    DPAdmmQuantileRegressor,
    DPAdmmRidge,
)
from skdpadmm.algorithms import GradientADMM, _inference
from skdpadmm.algorithms._inference import (
    SHARES,
    curvature_at,
    detectable,
    flat,
    gradients_at,
    symmetric,
)
from skdpadmm.engine import Engine
from skdpadmm.inference import summary
from skdpadmm.losses import LogisticLoss, SquaredLoss
from skdpadmm.protocol import Problem
from skdpadmm.records import Rows
from tests.algorithms.runs import coordinates_of
from tests.contract.registry import BY_ID
from tests.contract.test_contract import replay_within_sensitivity

BOUNDS = {"feature_bounds": (-1, 1)}
RIDGE = {"target_bounds": (-4.0, 4.0), "alpha": 1e-9, **BOUNDS}
PLAIN = {"epsilon": math.inf, "intervals": True}


def table(n, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 2))
    X[:, 1] = (X[:, 0] + X[:, 1]) / 2
    scores = X @ [1.0, -0.5] + 0.2
    return X, scores, rng


@pytest.mark.parametrize("per_person", [1, 3])
@pytest.mark.parametrize("loss", [SquaredLoss(), LogisticLoss()])
def test_statistics_are_those_of_a_loop_over_records_or_persons(loss, per_person):
    rng = np.random.default_rng(1)
    n, longest, clip = 12, 1.1, 0.4
    X, theta, basis = rng.uniform(-1, 1, (n, 2)), rng.normal(size=(3, 1)), rng.normal(size=(3, 3))
    y = rng.choice([-1.0, 1.0], n)
    weights = np.tile([1.5, 1.5, 0.0], n // 3)
    persons = {"weights": weights, "per_person": 3} if per_person == 3 else {}
    rows = Rows(X, coordinates_of(2, True), per_unit=per_person)
    problem = Problem(rows=rows, target=y, engine=Engine(), **persons)
    H, g, S = np.zeros((3, 3)), np.zeros(3), np.zeros((3, 3))
    for first in range(0, n, per_person):
        mean = np.zeros(3)
        for i in range(first, first + per_person):
            a, share = np.append(X[i], 1.0), weights[i] / 3 if persons else 1.0
            used = min(1.0, longest**2 / (a @ a))
            score = np.array([a @ theta[:, 0]])
            H += share * used * loss.curvature(score, y[i : i + 1]) * np.outer(a, a)
            v = used * loss.derivative(score, y[i : i + 1]) * (a @ basis)
            mean += share * v * min(1.0, clip / np.linalg.norm(v))
        g += mean
        S += np.outer(mean, mean)
    found = curvature_at(loss, longest, problem)(theta)
    np.testing.assert_allclose(symmetric(found, 3), H, atol=1e-12)
    found = gradients_at(loss, longest, clip, problem)(theta, basis)
    np.testing.assert_allclose(found[:3], g, atol=1e-12)
    np.testing.assert_allclose(symmetric(found[3:], 3), S, atol=1e-12)


@pytest.mark.parametrize("row", ["intervals", "intervals-persons-conditioned"])
def test_clips_that_bind_keep_each_release_within_its_sensitivity(row, monkeypatch):
    monkeypatch.setattr(_inference, "LEAST_OPENING", 0.1)
    monkeypatch.setattr(_inference, "NOISE", 0.0)
    replay_within_sensitivity(BY_ID[row])


def test_a_triangle_has_the_norm_of_its_matrix():
    matrix = symmetric(np.arange(6.0), 3)
    assert np.linalg.norm(flat(matrix)) == pytest.approx(np.linalg.norm(matrix))


def test_without_privacy_a_ridge_has_the_errors_of_least_squares_with_a_sandwich():
    X, scores, rng = table(400)
    y = scores + rng.normal(size=400) * (0.2 + np.abs(X[:, 0]))
    found = DPAdmmRidge(**PLAIN, **RIDGE).fit(X, y).inference_
    A = np.column_stack([X, np.ones(400)])
    bread = np.linalg.inv(A.T @ A)
    exact = bread @ A.T @ y
    meat = (A.T * (y - A @ exact) ** 2) @ A
    np.testing.assert_allclose(found.estimate, exact, atol=1e-9)
    np.testing.assert_allclose(found.covariance, bread @ meat @ bread, rtol=1e-6)


def test_without_privacy_persons_have_the_errors_of_clusters():
    X, scores, rng = table(300)
    persons = np.repeat(np.arange(100), 3)
    y = scores + rng.normal(size=100)[persons] + 0.1 * rng.normal(size=300)
    model = DPAdmmRidge(max_rows_per_person=3, **PLAIN, **RIDGE).fit(X, y, persons=persons)
    A = np.column_stack([X, np.ones(300)])
    bread = np.linalg.inv(A.T @ A)
    residual = y - A @ (bread @ A.T @ y)
    meat = np.zeros((3, 3))
    for person in range(100):
        of_person = A[persons == person].T @ residual[persons == person]
        meat += np.outer(of_person, of_person)
    np.testing.assert_allclose(model.inference_.covariance, bread @ meat @ bread, rtol=1e-6)


def test_without_privacy_a_classifier_has_the_errors_of_a_logit_with_a_sandwich():
    X, scores, rng = table(2000)
    y = (scores + rng.logistic(size=2000) > 0).astype(int)
    model = DPAdmmLogisticRegression(C=1e9, classes=[0, 1], **PLAIN, **BOUNDS).fit(X, y)
    A = np.column_stack([X, np.ones(2000)])
    chance = expit(A @ np.append(model.coef_, model.intercept_))
    bread = np.linalg.inv((A.T * chance * (1 - chance)) @ A)
    covariance = bread @ ((A.T * (y - chance) ** 2) @ A) @ bread
    np.testing.assert_allclose(model.inference_.covariance, covariance, rtol=1e-4)
    np.testing.assert_allclose(model.inference_.estimate[:2], model.coef_[0], atol=1e-5)


@pytest.mark.parametrize("persons", [False, True])
def test_intervals_hold_the_truth_about_as_often_as_they_say(persons):
    held = []
    for seed in range(25):
        X, scores, rng = table(6000, seed)
        model = DPAdmmRidge(epsilon=3.0, intervals=True, random_state=seed, **RIDGE)
        who = {}
        noise = rng.normal(size=6000)
        if persons:
            who = {"persons": np.repeat(np.arange(3000), 2)}
            noise = np.repeat(noise[:3000], 2)
            model.set_params(max_rows_per_person=2)
        found = model.fit(X, scores + noise, **who).inference_
        assert found.known.all()
        low, high = found.interval().T
        held.append((low <= [1.0, -0.5, 0.2]) & ([1.0, -0.5, 0.2] <= high))
    # 75 intervals, of which 71 are expected to hold, three standard deviations below that.
    assert np.mean(held) >= 0.87


def test_a_column_without_variance_has_no_interval_and_the_others_have():
    X, scores, rng = table(20_000)
    X = np.column_stack([X, 0.001 * rng.normal(size=20_000)])
    model = DPAdmmRidge(epsilon=3.0, intervals=True, random_state=0, **RIDGE)
    found = model.fit(X, scores + rng.normal(size=20_000)).inference_
    assert found.known[:3].tolist() == [True, True, False]
    assert np.isinf(found.interval()[2]).all()
    assert "noise hides" in repr(found)


def test_eigenvalues_within_the_noise_of_as_many_directions_are_hidden():
    assert detectable(np.array([0.0, 10.0, 11.0]), 1.0) == pytest.approx(3.5 * math.sqrt(2))
    assert detectable(np.array([0.1, 0.1, 0.1]), 1.0) == pytest.approx(3.5 * math.sqrt(6))


def test_a_plan_says_what_intervals_cost_and_how_wide_they_will_be():
    model = DPAdmmRidge(epsilon=3.0, intervals=True, **RIDGE)
    plan = model.plan(n_samples=20_000, n_features=5)
    assert sum(SHARES.values()) == pytest.approx(plan.facts.inference.share)
    assert "70% of the squared budget; about 1.2 times as wide as without" in repr(plan)
    # Columns that fill their bounds as the plan assumes, with residuals of 0.3 half-widths.
    rng = np.random.default_rng(0)
    X = rng.choice([-0.5, 0.5], (20_000, 5))
    found = model.fit(X, X.sum(axis=1) + 1.2 * rng.normal(size=20_000)).inference_
    widths = found.std_error[:5] * 1.96 / 4
    assert 0.7 < np.median(widths) / plan.facts.inference.reach < 1.3


@pytest.mark.parametrize(
    ("model", "n_classes"),
    [
        (DPAdmmRidge(intervals=True), None),
        (DPAdmmLogisticRegression(intervals=True, **BOUNDS), 3),
        (DPAdmmLogisticRegression(intervals=True, class_weight={0: 1.0, 1: 2.0}, **BOUNDS), 2),
        (DPAdmmLinearSVC(intervals=True, **BOUNDS), 2),
        (DPAdmmQuantileRegressor(intervals=True, **BOUNDS), None),
        (DPAdmmPoissonRegressor(intervals=True, target_bounds=(0, 9), **BOUNDS), None),
    ],
)
def test_intervals_that_nobody_can_give_are_refused_before_there_are_data(model, n_classes):
    for epsilon in (1.0, math.inf):
        model.set_params(epsilon=epsilon)
        if n_classes is not None:
            model.set_params(classes=list(range(n_classes)))
        more = {} if n_classes is None else {"n_classes": n_classes}
        with pytest.raises(ValueError, match=r"^Got intervals=True .* leave intervals out\.$"):
            model.plan(n_samples=500, n_features=2, **more)


def test_a_perturbed_objective_has_no_intervals():
    model = DPAdmmRidge(intervals=True, algorithm="objective-perturbation", **RIDGE)
    with pytest.raises(ValueError, match="Use algorithm='consensus-admm'"):
        model.plan(n_samples=500, n_features=2)


def test_a_stream_has_no_intervals():
    model = DPAdmmRidge(intervals=True, algorithm=GradientADMM(schedule="stream"), **RIDGE)
    X, scores, _ = table(50)
    with pytest.raises(ValueError, match="no stream"):
        model.partial_fit(X, scores)


def test_a_fit_without_intervals_has_a_summary_without_them():
    X, scores, _ = table(200)
    found = summary(DPAdmmHuberRegressor(target_bounds=(-4, 4), **BOUNDS).fit(X, scores))
    assert not found.known.any()
    assert "without intervals=True" in repr(found)
    assert found.effect == "coefficient"


def test_a_summary_of_rates_has_their_ratios():
    X, scores, _ = table(200)
    model = DPAdmmGammaRegressor(epsilon=math.inf, target_bounds=(0.01, 99), **BOUNDS)
    found = summary(model.fit(X, np.exp(scores)))
    assert found.effect == "rate ratio"
    np.testing.assert_allclose(found.table()[:2, 0], np.exp(model.coef_))
    assert summary(model, exponentiate=False).effect == "coefficient"
