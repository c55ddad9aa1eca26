"""Intervals: statistics at a model, the step from them, and what they cover."""

import math
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
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
    DPAdmmTweedieRegressor,
    DPFedLogisticRegression,
    DPFedRidge,
)
from skdpadmm.algorithms import FederatedADMM, GradientADMM, _debiased_step, _inference
from skdpadmm.algorithms._debiased_step import (
    covariance_of,
    hidden_tail,
    known_coefficients,
    second_order,
)
from skdpadmm.algorithms._inference import (
    ENDS,
    SHARES,
    Statistics,
    clip_beyond,
    curvature_at,
    detectable,
    gradients_at,
    gradients_of,
    lengths_at,
)
from skdpadmm.algorithms._preparations import packed, unpacked
from skdpadmm.engine import Engine
from skdpadmm.exceptions import WeakSignalWarning
from skdpadmm.inference import CoefficientInference, summary
from skdpadmm.losses import LogisticLoss, SquaredLoss, TweedieLoss
from skdpadmm.noise import grid_cell
from skdpadmm.protocol import Problem
from skdpadmm.records import Rows
from tests.algorithms.runs import coordinates_of
from tests.contract.harness import scale_of
from tests.contract.registry import BY_ID
from tests.contract.test_contract import replay_within_sensitivity

BOUNDS = {"feature_bounds": (-1, 1)}
RIDGE = {"target_bounds": (-4.0, 4.0), "alpha": 1e-9, **BOUNDS}
COUNTS, COSTS = TweedieLoss(1.0, 0.0, 9.0), TweedieLoss(2.0, 0.1, 9.0)
PLAIN = {"epsilon": math.inf, "intervals": True}


def table(n, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 2))
    X[:, 1] = (X[:, 0] + X[:, 1]) / 2
    scores = X @ [1.0, -0.5] + 0.2
    return X, scores, rng


@pytest.mark.parametrize("per_person", [1, 3])
@pytest.mark.parametrize("loss", [SquaredLoss(), LogisticLoss(), COUNTS, COSTS])
def test_statistics_are_those_of_a_loop_over_records_or_persons(loss, per_person):
    rng = np.random.default_rng(1)
    n, longest, clip = 12, 1.1, 0.4
    X, theta, basis = rng.uniform(-1, 1, (n, 2)), rng.normal(size=(3, 1)), rng.normal(size=(3, 3))
    y = rng.choice([-1.0, 1.0], n)
    y = rng.uniform(0.1, 9.0, n) if loss.has_log_link else y
    weights = np.tile([1.5, 1.5, 0.0], n // 3)
    persons = {"weights": weights, "per_person": 3} if per_person == 3 else {}
    rows = Rows(X, coordinates_of(2, True), per_unit=per_person)
    problem = Problem(rows=rows, target=y, engine=Engine(), **persons)
    H, g, S, counts = np.zeros((3, 3)), np.zeros(3), np.zeros((3, 3)), np.zeros(len(ENDS))
    for first in range(0, n, per_person):
        mean = np.zeros(3)
        for i in range(first, first + per_person):
            a, share = np.append(X[i], 1.0), weights[i] / 3 if persons else 1.0
            score = np.array([a @ theta[:, 0]])
            curved, squared = loss.curvature(score, y[i : i + 1])[0], a @ a
            if loss.has_log_link:
                # What is expected of a target whose rate is the predicted one.
                rate = math.exp(score[0])
                curved = rate ** (2 - loss.power) * (loss.lowest <= rate <= loss.largest)
                squared *= curved
            used = min(1.0, longest**2 / max(squared, 1e-300))
            H += share * used * curved * np.outer(a, a)
            v = used * loss.derivative(score, y[i : i + 1]) * (a @ basis)
            mean += share * v * min(1.0, clip / np.linalg.norm(v))
            if (bin_of := np.sum(np.linalg.norm(v) > ENDS * math.sqrt(3))) > 0:
                counts[bin_of - 1] += share
        g += mean
        S += np.outer(mean, mean)
    found = curvature_at(loss, longest, problem)(theta)
    np.testing.assert_allclose(unpacked(found), H, atol=1e-12)
    found = gradients_at(loss, longest, clip, problem)(theta, basis)
    np.testing.assert_allclose(found[:3], g, atol=1e-12)
    np.testing.assert_allclose(unpacked(found[3:]), S, atol=1e-12)
    found = lengths_at(loss, longest, problem)(theta, basis)
    np.testing.assert_allclose(found, counts, atol=1e-12)


@pytest.mark.parametrize(
    "row",
    [
        "intervals",
        "intervals-persons-conditioned",
        "intervals-records-weighted",
        "intervals-add-remove",
        "intervals-federated-alone",
        "intervals-poisson",
        "intervals-gamma-persons-zero-out",
    ],
)
def test_clips_that_bind_keep_each_release_within_its_sensitivity(row, monkeypatch):
    names = ("LEAST_OPENING", "NOISE", "LEAST_CLEARANCE", "BEYOND")
    for name, value in zip(names, (0.1, 0.0, 0.0, 0.1), strict=True):
        monkeypatch.setattr(_inference, name, value)
    replay_within_sensitivity(BY_ID[row])


def test_terms_are_within_their_bounds_whatever_a_model_and_a_loss_say():
    class Steep(LogisticLoss):
        smoothness, lipschitz = 0.25, 1.0

        def curvature(self, scores, target):
            return np.full(len(scores), 1e300)

    X = np.array([[1.0, 0.0], [-1.0, 1.0], [1e-320, -1.0]])
    rows = Rows(X, coordinates_of(2, True))
    problem = Problem(rows=rows, target=np.array([1.0, -1.0, 1.0]), engine=Engine())
    wild = [[1e308, 1e308, 1e308], [np.inf, np.inf, np.inf], [np.inf, 0.0, 1.0], [0.5, 0.1, 1.5]]
    for theta in np.array(wild)[:, :, None]:
        with np.errstate(all="ignore"):
            for loss in (Steep(), LogisticLoss(), SquaredLoss(), COUNTS, COSTS):
                found = curvature_at(loss, 0.7, problem)(theta)
                largest = 1.0 if loss.has_log_link else loss.smoothness
                assert np.linalg.norm(found) <= 3 * largest * 0.7**2 * (1 + 1e-12)
                found = lengths_at(loss, 0.7, problem)(theta, np.eye(3))
                assert found.sum() <= 3
                found = gradients_at(loss, 0.7, 0.4, problem)(theta, np.eye(3))
                assert np.linalg.norm(found[:3]) <= 3 * 0.4 * (1 + 1e-12)
                assert np.linalg.norm(found[3:]) <= 3 * 0.4**2 * (1 + 1e-12)


@pytest.mark.parametrize("loss", [COUNTS, COSTS])
def test_a_record_that_leaves_takes_one_count_of_lengths_with_it_and_moves_no_other(loss):
    rng, n, d = np.random.default_rng(0), 24, 33
    X, y, theta = rng.uniform(-1, 1, (n, d)), rng.uniform(0.1, 9.0, n), rng.normal(size=(d, 1))

    def problem(first, stop):
        rows = Rows(X[first:stop], coordinates_of(d, False))
        # As with a private number of records: the others come to lie elsewhere.
        rows.by_row = True
        return Problem(rows=rows, target=y[first:stop], engine=Engine())

    basis = rng.normal(size=(d, d))
    for k in range(1, n):
        gradient = gradients_of(loss, 1.1, problem(k, k + 1), 0, theta, basis)
        # The last bit says which side of an end it is on.
        at_end = basis * (ENDS[7] * math.sqrt(d) / np.linalg.norm(gradient))
        both, one = (lengths_at(loss, 1.1, problem(i, k + 1))(theta, at_end) for i in (k - 1, k))
        assert np.abs(both - one).sum() <= 1


def test_sensitivities_allow_for_rounding_where_bounds_are_far_from_zero():
    far = {"feature_bounds": (1e9, 1e9 + 1.0), "target_bounds": (-4.0, 4.0)}
    facts = DPAdmmRidge(intervals=True, **far).plan(n_samples=500, n_features=2).facts
    assert facts.working_rounding > 1.001
    found = [release.sensitivities[0] for release in facts.inference.releases]
    plain = [math.sqrt(2) / 500, 2 / 500, math.sqrt(2) / 500]
    np.testing.assert_allclose(found, np.array(plain) * facts.working_rounding, rtol=1e-10)


def test_a_triangle_has_the_norm_of_its_matrix():
    matrix = unpacked(np.arange(6.0))
    assert np.linalg.norm(packed(matrix)) == pytest.approx(np.linalg.norm(matrix))


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


def test_without_privacy_weighted_records_have_the_errors_of_a_weighted_sandwich():
    X, scores, rng = table(400)
    y = scores + rng.normal(size=400) * (0.2 + np.abs(X[:, 0]))
    weights = rng.gamma(2.0, 0.5, 400)
    found = DPAdmmRidge(**PLAIN, **RIDGE).fit(X, y, sample_weight=weights).inference_
    A = np.column_stack([X, np.ones(400)])
    bread = np.linalg.inv((A.T * weights) @ A)
    exact = bread @ (A.T * weights) @ y
    meat = (A.T * (weights * (y - A @ exact)) ** 2) @ A
    np.testing.assert_allclose(found.estimate, exact, atol=1e-9)
    np.testing.assert_allclose(found.covariance, bread @ meat @ bread, rtol=1e-6)


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


def test_intervals_of_agents_hold_the_truth_about_as_often_as_they_say():
    held, widths = [], []
    for seed in range(25):
        X, scores, rng = table(6000, seed)
        model = DPFedRidge(epsilon=3.0, intervals=True, random_state=seed, max_iter=30, **RIDGE)
        model.set_params(algorithm=FederatedADMM(edge_noise=0), partition="quantity")
        found = model.fit(X, scores + rng.normal(size=6000)).inference_
        assert found.known.all()
        low, high = found.interval().T
        held.append((low <= [1.0, -0.5, 0.2]) & ([1.0, -0.5, 0.2] <= high))
        widths.append(found.std_error)
    assert np.mean(held) >= 0.87
    # Most of it is noise: that of ten agents.
    exact = model.set_params(epsilon=math.inf, algorithm="federated-admm")
    plain = exact.fit(X, scores + rng.normal(size=6000)).inference_.std_error
    assert (np.median(widths, axis=0) > 2 * plain).all()


@pytest.mark.parametrize(
    "row",
    [
        "intervals-federated",
        "intervals-federated-alone",
        "intervals-federated-sums-zero-out",
        "intervals-federated-sharing",
    ],
)
def test_each_observer_is_told_what_all_messages_of_an_agent_cost(row):
    plan = BY_ID[row].plan()
    relation, rounding = plan.facts.neighboring, plan.facts.working_rounding
    for release in plan.facts.inference.releases:
        is_sum = release.shape == (plan.facts.n_parameters,)
        factor = relation.sensitivity_factor if is_sum else relation.second_moment_factor
        least = factor * rounding / plan.facts.n_samples
        if plan.facts.agents.n_curators:  # Both messages are rounded, by half a cell in an entry.
            least += grid_cell(release.agent_noise_std[0]) * math.sqrt(release.shape[0])
        assert least <= release.sensitivities[0] < least * (1 + 1e-4)
        assert release.fewest == plan.facts.agents.n_agents  # None of these messages is lost.
    assert {release.name for release in plan.releases} >= set(SHARES)
    for observer in plan.facts.observers:
        costs = [
            sensitivity / scale_of(plan, release, observer)
            for release in plan.releases
            for sensitivity in release.sensitivities
        ]
        assert plan.guarantee(observer).mu == pytest.approx(math.hypot(*costs), rel=1e-6)


@pytest.mark.parametrize(
    ("of_agents", "of_curator"),
    [(DPFedRidge, DPAdmmRidge), (DPFedLogisticRegression, DPAdmmLogisticRegression)],
)
def test_without_privacy_intervals_do_not_depend_on_who_holds_rows(of_agents, of_curator):
    X, scores, rng = table(400)
    y, params = scores + rng.normal(size=400), RIDGE
    if of_agents is DPFedLogisticRegression:
        y, params = (y > 0).astype(int), {"C": 1e6, **BOUNDS}
    found = of_agents(privacy_unit="record", **PLAIN, **params).fit(X, y).inference_
    expected = of_curator(**PLAIN, **params).fit(X, y).inference_
    np.testing.assert_allclose(found.estimate, expected.estimate, atol=1e-9)
    np.testing.assert_allclose(found.covariance, expected.covariance, rtol=1e-6)


@pytest.mark.parametrize("alpha", [1e-9, 0.3])
@pytest.mark.parametrize("power", [1.0, 1.5, 2.0])
def test_without_privacy_rates_have_a_sandwich_whatever_the_penalty(power, alpha):
    X, scores, rng = table(600)
    y = np.exp(scores) * rng.gamma(1.5, 1 / 1.5, 600)
    y = rng.poisson(y).astype(float) if power == 1 else y
    model = DPAdmmTweedieRegressor(power=power, alpha=alpha, target_bounds=(1e-3, 99), **PLAIN)
    found = model.set_params(**BOUNDS).fit(X, y).inference_
    A, y = np.column_stack([X, np.ones(600)]), np.clip(y, 1e-3, 99)
    exact = np.zeros(3)
    for _ in range(60):
        rate = np.exp(A @ exact)
        slopes, bread = (rate - y) * rate ** (1 - power), (A.T * rate ** (2 - power)) @ A
        exact -= np.linalg.solve(bread, A.T @ slopes)
    bread = np.linalg.inv(bread)
    covariance = bread @ ((A.T * slopes**2) @ A) @ bread
    np.testing.assert_allclose(found.estimate, exact, atol=1e-7)
    np.testing.assert_allclose(found.covariance, covariance, rtol=1e-6, atol=1e-9)
    assert summary(model).effect == "rate ratio"
    np.testing.assert_allclose(summary(model).table()[:, 1:], np.exp(found.interval()))


@pytest.mark.parametrize("model", [DPAdmmPoissonRegressor, DPAdmmGammaRegressor])
def test_intervals_of_skewed_rates_hold_the_truth_about_as_often_as_they_say(model):
    held = []
    for seed in range(25):
        X, scores, rng = table(6000, seed)
        # Their standard deviation is 1.4 to 2 times their mean, and one in a hundred is 7 times it.
        y = np.exp(scores) * rng.gamma(0.5, 2.0, 6000)
        low = 0.0 if model is DPAdmmPoissonRegressor else 1e-9
        y = rng.poisson(y).astype(float) if low == 0.0 else y
        bounds = {"target_bounds": (low, 25.0), **BOUNDS}
        fitted = model(alpha=1e-9, epsilon=3.0, intervals=True, random_state=seed, **bounds)
        found = fitted.fit(X, y).inference_
        low, high = found.interval().T
        held += [((low <= truth) & (truth <= high))[found.known] for truth in ([1.0, -0.5, 0.2],)]
    assert len(np.concatenate(held)) > 60
    assert np.mean(np.concatenate(held)) >= 0.87


def test_bounds_that_may_hold_a_tail_which_noise_hides_leave_no_interval():
    X, scores, rng = table(6000)
    y = np.exp(scores) * rng.gamma(0.5, 2.0, 6000)
    model = DPAdmmGammaRegressor(
        alpha=1e-9, epsilon=3.0, intervals=True, random_state=0, target_bounds=(1e-9, 25), **BOUNDS
    )
    assert model.fit(X, y).inference_.known.all()
    found = model.set_params(target_bounds=(1e-9, 600)).fit(X, y).inference_
    assert not found.known.any()
    assert "target_bounds leave room for a long tail" in found.reason
    classes = {"classes": [0, 1], "C": 0.01, "random_state": 0, "intervals": True, **BOUNDS}
    found = DPAdmmLogisticRegression(**classes).fit(X, scores > 0).inference_
    assert not found.known.any()
    assert found.reason.endswith("too far from the optimum for one step")


@pytest.mark.parametrize("power", [1.0, 1.5, 2.0])
def test_what_a_clip_may_cut_unseen_is_as_long_as_the_largest_target_makes_it(power):
    loss, H, model = TweedieLoss(power, 1e-3, 50.0), np.diag([1.0, 2.0, 4.0]), [0.3, 0.1, 0.4]
    H[0, 2] = H[2, 0] = 0.5
    found = statistics(np.eye(3), curvature=H, clip=6.0, lengths_std=7.0)
    # At the mean of the rows with weights h.
    rate = np.exp(0.3 * 0.5 / 4 + 0.4)
    longest = math.sqrt(3) * (50 - rate) * rate ** (1 - power) / math.sqrt(rate ** (2 - power))
    tail = hidden_tail(loss, found, np.array(model), np.array([0.0, 0.0, 1.0]))
    assert tail == pytest.approx(7 * (longest - 6))
    assert hidden_tail(loss, replace(found, clip=1e3), np.array(model), np.eye(3)[2]) == 0.0


def statistics(basis, **known):
    d = len(basis)
    noise = {f"{name}_std": 0.0 for name in ("curvature", "gradient", "squares", "lengths")}
    bounds = {"least": 0.1, "row_norm": math.inf, "clip": math.inf}
    sums = {"curvature": np.eye(d), "squares": np.eye(d), "gradient": np.zeros(d)}
    hidden = {"is_hidden": np.zeros(d, dtype=bool)}
    return Statistics(basis=basis, **{**noise, **bounds, **sums, **hidden, **known})


def test_a_covariance_adds_noise_of_each_release_and_what_noise_hides():
    rng = np.random.default_rng(0)
    basis, g, n = rng.normal(size=(3, 3)), np.array([0.3, -0.2, 0.1]), 50
    S, step = np.diag([3.0, 2.0, 1.0]) + 0.5, basis @ g
    noise = {"curvature_std": 0.1, "gradient_std": 0.2, "squares_std": 0.3}
    found = statistics(basis, gradient=g, squares=S, is_hidden=np.array([1, 0, 0]) > 0, **noise)
    covariance = basis @ covariance_of(found, step, n) @ basis.T
    inverse = basis @ basis.T  # Of H.
    expected = 0.2**2 * inverse + basis @ S @ basis.T / n + 0.3 * inverse / n
    expected += 0.1**2 * (step @ step) * inverse @ inverse
    expected += 0.3**2 * np.outer(basis[:, 0], basis[:, 0])
    np.testing.assert_allclose(covariance, expected, rtol=1e-12)


def test_a_coefficient_of_rates_whose_error_is_mostly_hidden_is_not_known():
    model = DPAdmmPoissonRegressor(target_bounds=(0, 9), intervals=True, **BOUNDS)
    facts, unknown = model.plan(n_samples=500, n_features=2).facts, np.array([0.4, 0.2, 0.0])
    found = known_coefficients(facts, statistics(np.eye(3)), np.eye(3), np.eye(3), unknown)
    assert found.tolist() == [False, True, True]


def test_a_clip_bound_of_rates_is_beyond_the_last_bin_that_is_seen():
    counts = np.zeros(len(ENDS))
    counts[[5, 9]], counts[[12, -1]] = 100.0, 20.0
    assert clip_beyond(counts, 6.0) == pytest.approx(2 * ENDS[10])
    assert clip_beyond(counts, 4.0) == pytest.approx(2 * ENDS[13])
    assert clip_beyond(np.zeros(len(ENDS)), 4.0) == pytest.approx(2 * ENDS[0])


def test_a_step_of_rates_is_of_second_order_for_gaussian_rows():
    rng = np.random.default_rng(0)
    A = np.column_stack([rng.normal(0.3, 0.5, 400_000), np.ones(400_000)])
    for size in (0.05, -0.05):
        off = size * np.array([1.0, 2.0])
        # Rates of 1 that are predicted as exp(a off), where curvatures are those predictions.
        rate = np.exp(A @ off)
        H, g = (A.T * rate) @ A / len(A), A.T @ (rate - 1) / len(A)
        step = np.linalg.solve(H, g)
        rest = second_order(step, np.array([0.0, 1.0]), H, 1e-9)
        assert np.abs(step + rest - off).max() < 0.2 * np.abs(step - off).max()


def rates(seed, X, truth, **params):
    y = np.random.default_rng(seed).poisson(np.exp(X @ truth[:-1] + truth[-1])).astype(float)
    model = DPAdmmPoissonRegressor(alpha=1e-9, target_bounds=(0, 60), intervals=True, **BOUNDS)
    return model.set_params(random_state=seed, **params).fit(X, y).inference_


def test_errors_of_rates_count_what_may_hide_in_directions_of_the_rows():
    rng, truth = np.random.default_rng(0), np.array([5.0, -4.0, 0.3, -0.5])
    age = rng.uniform(0.2, 1, 20_000)
    # The last column has a part of the direction that an age and its square share.
    bent = 12 * (age - 0.6) ** 2 - 0.3 + rng.uniform(-0.5, 0.5, 20_000)
    X = np.clip(np.column_stack([2 * age - 1, 2 * age**2 - 1, bent]), -1, 1)
    for seed in range(3):
        found = rates(seed, X, truth, epsilon=1.0)
        assert not found.known.any()
        errors = np.sqrt(np.diag(found.covariance))
        assert np.abs((found.estimate - truth) / errors).max() < 2.2


def test_a_long_step_of_rates_is_corrected_to_second_order(monkeypatch):
    X, truth = np.random.default_rng(0).uniform(-1, 1, (20_000, 3)), np.array([1, -0.5, 0.2, 0.5])
    exact = rates(0, X, truth, epsilon=math.inf).estimate
    found = rates(0, X, truth, epsilon=1e4, alpha=0.3).estimate
    monkeypatch.setattr(_debiased_step, "second_order", lambda step, *rest: 0 * step)
    straight = rates(0, X, truth, epsilon=1e4, alpha=0.3).estimate
    # Mostly of the intercept: these rows have symmetric columns.
    assert (np.abs(found - exact) < np.abs(straight - exact)).all()
    assert np.abs(found - exact)[-1] < 0.3 * np.abs(straight - exact)[-1]


def test_a_long_step_of_the_rates_of_few_rows_gives_no_interval():
    X, truth = np.random.default_rng(0).uniform(-1, 1, (20_000, 3)), np.array([1, -0.5, 0.2, 1.5])
    X[:, 0] = np.where(np.random.default_rng(1).random(20_000) < 0.01, 1.0, -1.0)
    found = rates(0, X, truth, epsilon=3.0, alpha=0.1)
    assert found.known.tolist() == [False, True, True, False]


def test_a_column_without_variance_has_no_interval_and_the_others_have():
    X, scores, rng = table(20_000)
    X = np.column_stack([X, 0.001 * rng.normal(size=20_000)])
    model = DPAdmmRidge(epsilon=3.0, intervals=True, random_state=0, **RIDGE)
    found = model.fit(X, scores + rng.normal(size=20_000)).inference_
    assert found.known[:3].tolist() == [True, True, False]
    assert np.isinf(found.interval()[2]).all()
    assert "noise hides" in repr(found)


def test_intervals_of_a_rare_class_hold_the_truth():
    errors, truth = [], [1.0, -0.5, -4.0]
    for seed in range(6):
        rng = np.random.default_rng(seed)
        X = rng.uniform(-1, 1, (50_000, 2))
        y = (X @ truth[:2] + truth[2] + rng.logistic(size=50_000) > 0).astype(int)
        model = DPAdmmLogisticRegression(
            C=1e6, epsilon=1.0, classes=[0, 1], intervals=True, random_state=seed, **BOUNDS
        )
        found = model.fit(X, y).inference_
        assert found.known.all()
        errors.append((found.estimate - truth) / found.std_error)
    # 18 of about normal errors.
    assert np.abs(errors).max() < 3.5


def test_a_rare_category_far_from_the_fit_has_no_interval_and_the_others_have():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (20_000, 2))
    X[:, 0] = np.where(rng.random(20_000) < 0.003, 1.0, -1.0)
    y = X @ [1.0, -0.5] + 0.5 * rng.normal(size=20_000)
    model = DPAdmmRidge(epsilon=3.0, intervals=True, random_state=0, **RIDGE)
    assert model.fit(X, y).inference_.known.all()
    assert model.set_params(alpha=100.0).fit(X, y).inference_.known.tolist() == [False, True, False]


def test_a_fit_far_from_its_optimum_has_no_intervals_where_its_loss_is_no_square():
    X, scores, rng = table(20_000)
    y = scores + 0.1 * rng.normal(size=20_000)
    of_all = {"epsilon": 3.0, "intervals": True, "random_state": 0}
    huber = DPAdmmHuberRegressor(**of_all, **RIDGE)
    logistic = DPAdmmLogisticRegression(C=1e6, classes=[0, 1], **of_all, **BOUNDS)
    assert huber.fit(X, y).inference_.known.all()
    assert not huber.set_params(alpha=1e6).fit(X, y).inference_.known.any()
    y = (2 * scores + rng.logistic(size=20_000) > 0).astype(int)
    assert logistic.fit(X, y).inference_.known.all()
    assert not logistic.set_params(C=1e-5).fit(X, y).inference_.known.any()


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


def test_a_plan_warns_of_intervals_that_a_model_of_classes_or_rates_will_hardly_have():
    classes = DPAdmmLogisticRegression(epsilon=3.0, classes=[0, 1], intervals=True, **BOUNDS)
    rates = DPAdmmPoissonRegressor(epsilon=3.0, target_bounds=(0, 9), intervals=True, **BOUNDS)
    for model in (classes, rates):
        with pytest.warns(WeakSignalWarning, match="Few coefficients will have an interval"):
            model.plan(n_samples=2_000, n_features=12)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            model.plan(n_samples=20_000, n_features=12)
    assert rates.plan(n_samples=20_000, n_features=9).facts.inference.inflation < 2


def test_intervals_of_a_target_without_declared_bounds_are_refused():
    model = DPAdmmRidge(intervals=True, feature_bounds=(-1, 1))
    with pytest.raises(ValueError, match=r"undeclared bounds, expected .* target_bounds"):
        model.plan(n_samples=500, n_features=2)
    model.set_params(target_bounds=(-3, 3)).plan(n_samples=500, n_features=2)


@pytest.mark.parametrize(
    ("model", "penalty"),
    [(DPAdmmRidge, {"alpha": 1e4}), (DPAdmmLogisticRegression, {"C": 1e-4, "classes": [0, 1]})],
)
def test_without_privacy_a_penalty_does_not_move_debiased_coefficients(model, penalty):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (500, 3))
    y = X @ [1.0, -1.0, 0.0] + rng.logistic(size=500)
    y = np.round(y > 0) if "C" in penalty else y
    known = {"epsilon": math.inf, "intervals": True, "feature_bounds": (-1, 1)}
    penalised, free = (
        model(**{**known, **more}).fit(X, y)
        for more in (penalty, {**penalty, **({"C": math.inf} if "C" in penalty else {"alpha": 0})})
    )
    for name in ("estimate", "std_error"):
        pair = (getattr(each.inference_, name) for each in (penalised, free))
        np.testing.assert_allclose(*pair, rtol=1e-6)
    assert np.abs(penalised.coef_).max() < 0.1 * np.abs(free.coef_).max()


@pytest.mark.parametrize(
    ("model", "n_classes"),
    [
        (DPAdmmRidge(intervals=True), None),
        (DPAdmmLogisticRegression(intervals=True, **BOUNDS), 3),
        (DPAdmmLogisticRegression(intervals=True, class_weight={0: 1.0, 1: 2.0}, **BOUNDS), 2),
        (DPAdmmLinearSVC(intervals=True, **BOUNDS), 2),
        (DPAdmmQuantileRegressor(intervals=True, **BOUNDS), None),
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


@pytest.mark.parametrize(
    "changed",
    [
        {"privacy_unit": "agent"},
        {"privacy_unit": "agent", "epsilon": math.inf},
        {"epsilon": [1, 2]},
    ],
)
def test_intervals_of_agents_as_units_or_with_own_budgets_are_refused(changed):
    model = DPFedRidge(intervals=True, n_agents=2, **RIDGE).set_params(**changed)
    with pytest.raises(ValueError, match=r"^Got intervals=True .* leave intervals out\.$"):
        model.plan(n_samples=500, n_features=2)


def test_a_perturbed_objective_has_no_intervals():
    model = DPAdmmRidge(intervals=True, algorithm="objective-perturbation", **RIDGE)
    with pytest.raises(ValueError, match="Use algorithm='consensus-admm'"):
        model.plan(n_samples=500, n_features=2)


def test_a_stream_has_no_intervals():
    model = DPAdmmRidge(intervals=True, algorithm=GradientADMM(schedule="stream"), **RIDGE)
    X, scores, _ = table(50)
    with pytest.raises(ValueError, match="for a stream"):
        model.partial_fit(X, scores)


def test_intervals_have_two_sides_and_sums_with_what_is_unknown_have_none():
    found = CoefficientInference(
        names=("a", "b"),
        units=("per 1", "per 1"),
        estimate=np.array([1.0, 2.0]),
        covariance=np.diag([4.0, 9.0]),
        known=np.array([True, False]),
    )
    np.testing.assert_allclose(found.interval(0.95)[0], 1.0 + 1.959964 * np.array([-2, 2]))
    assert np.isinf(found.interval(0.95)[1]).all()
    mapped = found._mapped(np.array([[2.0, 0.0], [1.0, 1.0]]))
    assert mapped.known.tolist() == [True, False]
    np.testing.assert_allclose(mapped.std_error[0], 4.0)


def test_a_fit_without_intervals_has_a_summary_without_them():
    X, scores, _ = table(200)
    found = summary(DPAdmmHuberRegressor(target_bounds=(-4, 4), **BOUNDS).fit(X, scores))
    assert not found.known.any()
    assert "without intervals=True" in repr(found)
    assert found.effect == "coefficient"


@pytest.mark.parametrize("intervals", [False, True])
def test_a_summary_has_no_coefficient_of_the_column_of_agents(intervals):
    X, scores, rng = table(200)
    X = pd.DataFrame({"site": rng.integers(0, 3, 200), "age": X[:, 0], "dose": X[:, 1]})
    params = {**RIDGE, **PLAIN, "intervals": intervals, "privacy_unit": "record"}
    model = DPFedRidge(agent_column="site", **params).fit(X, scores)
    assert summary(model).names == ("age", "dose", "intercept")
    assert summary(model).estimate.shape == (3,)


def test_a_summary_of_rates_has_their_ratios():
    X, scores, _ = table(200)
    model = DPAdmmGammaRegressor(epsilon=math.inf, target_bounds=(0.01, 99), **BOUNDS)
    found = summary(model.fit(X, np.exp(scores)))
    assert found.effect == "rate ratio"
    np.testing.assert_allclose(found.table()[:2, 0], np.exp(model.coef_))
    assert summary(model, exponentiate=False).effect == "coefficient"
