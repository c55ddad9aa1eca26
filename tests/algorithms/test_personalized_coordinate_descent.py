"""Personalised models: the objective, wake-ups one by one, paths that heed noise, baselines."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.stats import chisquare, kstest

from skdpadmm import DPPersonalizedClassifier
from skdpadmm.algorithms import (
    GossipADMM,
    LocalModels,
    PersonalizedCoordinateDescent,
    PersonalizedOptimum,
    PerturbedData,
    propagation_limit,
    refit_at_home,
)
from skdpadmm.algorithms import _personalized_coordinate_descent as module
from skdpadmm.algorithms.blocks._model_propagation import smooth_by_noise
from skdpadmm.algorithms.planning._personalized_defaults import pace_of_agents, typical_curvature
from skdpadmm.algorithms.planning._wake_ups import wake_order
from skdpadmm.network import Similarity
from skdpadmm.penalties import NoPenalty, SquaredL2
from skdpadmm.privacy import gaussian_mu
from skdpadmm.records import Rows
from tests.algorithms.agents import (
    Watched,
    budget,
    clipped,
    make_task,
    run,
    slopes,
    summed_gradient,
)

SIZES, STRENGTH, TRADE_OFF = (12, 5, 20, 8, 0, 15), 0.2, 1.5
COLD = SIZES.index(0)


def task_of(loss="squared", sizes=SIZES, **facts):
    facts = {"penalty": SquaredL2(STRENGTH), "fit_intercept": False, "max_iter": 100} | facts
    return make_task(loss, sizes, similarity=True, **facts)


def weights_of_edges(task):
    agents = task.facts.agents
    W = agents.similarity.weights.toarray() if agents.n_agents > 1 else np.zeros((1, 1))
    return W, W.sum(axis=1) if agents.n_agents > 1 else np.ones(1)


def objective(task, models):
    """The joint objective and its gradient, written out with sums over pairs."""
    agents, loss, (W, D) = task.facts.agents, task.facts.loss, weights_of_edges(task)
    value, gradient = 0.0, np.zeros(models.shape)
    for i, j in itertools.combinations(range(len(models)), 2):
        apart = models[i] - models[j]
        value += 0.5 * W[i, j] * np.sum(apart**2)
        gradient[i] += W[i, j] * apart
        gradient[j] -= W[i, j] * apart
    for i, w in enumerate(models):
        A, y = task.of(i)
        if len(y):
            weight = agents.trade_off * D[i] * agents.confidence[i]
            scores, penalised = A @ w, task.facts.penalty.strong_convexity * w
            penalised[3:] = 0.0
            of_one = scores[:, 0] if loss.n_outputs == 1 else scores
            value += weight * (loss.value(of_one, y).mean() + 0.5 * np.sum(penalised * w))
            gradient[i] += weight * (A.T @ slopes(loss, scores, y) / len(y) + penalised)
    return value, gradient


def best_of(task):
    return run(PersonalizedOptimum(), task, epsilon=math.inf)[1].parameters_per_agent


@pytest.mark.parametrize("loss", ["squared", "logistic", "multinomial"])
def test_optima_are_stationary_points_of_the_objective_and_of_agents_own_losses(loss, monkeypatch):
    task = task_of(loss, fit_intercept=loss == "multinomial")
    best = best_of(task)
    assert np.abs(objective(task, best)[1]).max() < 1e-7
    monkeypatch.setattr("skdpadmm.algorithms.blocks._joint_newton.LARGEST_BLOCKS", 0)
    np.testing.assert_allclose(best_of(task), best, atol=1e-8)
    local = run(LocalModels(), task, epsilon=math.inf)[1].parameters_per_agent
    for i, w in enumerate(local):
        A, y = task.of(i)
        own = STRENGTH * np.concatenate([w[:3], 0 * w[3:]])
        if len(y):
            own = own + A.T @ slopes(task.facts.loss, A @ w, y) / len(y)
        assert np.abs(own).max() < 1e-7


@pytest.mark.parametrize(
    ("loss", "unit", "noise", "clock", "penalty"),
    [
        ("squared", "record", "gaussian", "poisson", SquaredL2(STRENGTH)),
        ("squared", "agent", "laplace", "index", NoPenalty()),
        ("logistic", "record", "laplace", "index", SquaredL2(STRENGTH)),
        ("multinomial", "agent", "gaussian", "poisson", SquaredL2(STRENGTH)),
        ("multinomial", "record", "laplace", "poisson", NoPenalty()),
    ],
)
def test_wake_ups_equal_update_6_one_after_another(loss, unit, noise, clock, penalty):
    """The noisy model is the state; steps go by the public bound of the curvature."""
    task = task_of(loss, unit=unit, penalty=penalty, fit_intercept=loss == "logistic")
    algorithm = PersonalizedCoordinateDescent(
        turns=4, averaging_wakes=2, noise=noise, split="optimal", clip_norm=0.2, warm_start=None,
        tempered=False, clock=clock,
    )  # fmt: skip
    plan, solution, gate = run(algorithm, task, epsilon=5.0, gate_class=Watched)
    agents, d = task.facts.agents, task.facts.n_parameters
    turns, order = {i: [] for i in range(6)}, 1 if noise == "laplace" else 2
    for _, value, out, who in gate.passed:
        for row, agent in enumerate(who):
            turns[agent].append((value[row], out[row]))
    clip, weights = 0.2 * math.sqrt(d) ** (3 - order), plan.settings.weights
    curvature = np.full((d, 1), penalty.strong_convexity)
    curvature[3:] = 0.0
    bound = task.facts.loss.smoothness * task.facts.row_norm**2 + curvature.max()
    models, woken, (W, D) = (
        np.zeros((6, *gate.passed[0][1].shape[1:])),
        [0] * 6,
        weights_of_edges(task),
    )
    for i in wake_order(n_agents=6, n_wakes=6, clock=clock, seed=0):
        size, mean = SIZES[i], np.tensordot(W[i] / D[i], models, 1)
        pull = TRADE_OFF * agents.confidence[i] * (size > 0)
        if size and woken[i] < 4:
            value, out = turns[i][woken[i]]
            if unit == "record":
                mean_gradient = summed_gradient(task, i, models[i], clip, order=order) / size
            else:
                whole = summed_gradient(task, i, models[i], math.inf) / size
                mean_gradient = clipped(whole, clip, order)
            scale = clip / (size if unit == "record" else 1) / weights[woken[i]]
            np.testing.assert_allclose(scale * value, mean_gradient, rtol=0, atol=1e-9)
            mean = mean - pull * (scale * out + curvature * models[i])
        models[i] += (mean - models[i]) / (1 + pull * bound)
        woken[i] += 1
    np.testing.assert_allclose(solution.parameters_per_agent, models, rtol=0, atol=1e-9)
    assert [len(turns[i]) for i in range(6)] == [4 * (size > 0) for size in SIZES]
    edges = np.count_nonzero(W)
    assert (solution.n_rounds, solution.n_messages) == (6, 6 * edges)
    assert solution.bytes_sent == 8 * models[0].size * solution.n_messages
    assert np.all(np.diff(weights) >= 0)
    assert (weights[-1] > weights[0]) == (penalty.strong_convexity > 0 and loss != "logistic")


@pytest.mark.parametrize("knobs", [{"warm_start": None}, {"clock": "index"}])
def test_descent_without_noise_ends_at_the_optimum(knobs):
    for loss in ("squared", "multinomial"):
        task = task_of(loss)
        found = run(PersonalizedCoordinateDescent(turns=500, **knobs), task, epsilon=math.inf)
        np.testing.assert_allclose(found[1].parameters_per_agent, best_of(task), atol=1e-5)
    cold = task.facts.agents.similarity.neighbor_mean(
        found[1].parameters_per_agent, np.array([COLD])
    )
    np.testing.assert_allclose(found[1].parameters_per_agent[COLD], cold[0], atol=1e-6)


def test_a_tempered_path_with_hardly_any_noise_ends_at_the_optimum():
    task = task_of("logistic")
    descent = PersonalizedCoordinateDescent(turns=800, clip_norm=1.0)
    found = run(descent, task, epsilon=1e9)[1]
    np.testing.assert_allclose(found.parameters_per_agent, best_of(task), atol=2e-3)
    assert found.score_variance < 1e-6


def test_a_warm_start_smooths_a_step_from_zero_by_trust_and_is_a_turn_like_any_other():
    task = task_of("logistic")
    plan, solution, _ = run(PersonalizedCoordinateDescent(turns=1), task, epsilon=math.inf)
    curvature, confidence = typical_curvature(task.facts), np.array(task.facts.agents.confidence)
    relative = confidence * (np.array(SIZES) > 0) / confidence.max()
    first = np.array([summed_gradient(task, i, np.zeros((3, 1)), math.inf) for i in range(6)])
    first /= -curvature * np.maximum(SIZES, 1)[:, None, None]
    pull = max(TRADE_OFF * curvature, module.FARTHEST_PULL) * np.maximum(relative, 1e-3)
    expected = propagation_limit(task.facts.agents.similarity, first, pull)
    np.testing.assert_allclose(solution.parameters_per_agent, expected, rtol=0, atol=1e-3)
    for warm_start in ("propagation", None):
        descent = PersonalizedCoordinateDescent(turns=3, warm_start=warm_start)
        plan, _, gate = run(descent, task, gate_class=Watched)
        assert sum(len(who) for *_, who in gate.passed) == 3 * 5
        assert plan.guarantee().mu == pytest.approx(gaussian_mu(1.0, 1e-5))


def test_noise_of_equal_turns_is_that_of_the_formula():
    """std = 2 sqrt(T) / (m mu); with T = 10 and m = 50 it is .4718, and not without the 1 / m."""
    plan = PersonalizedCoordinateDescent(turns=10).plan(task_of().facts, budget())
    assert plan.releases[-1].noise_std / 50 == pytest.approx(0.4718, rel=1e-3)
    assert plan.releases[-1].noise_std >= 2 * math.sqrt(10) / gaussian_mu(1.0, 1e-5)


@pytest.mark.parametrize("clock", ["poisson", "index"])
def test_both_clocks_have_the_law_of_an_index_that_is_drawn_and_wake_all_equally_often(clock):
    # All orders of two agents that wake up twice each; one who is done is skipped.
    law = {"0011": 2, "0101": 1, "0110": 1, "1100": 2, "1010": 1, "1001": 1}
    found = dict.fromkeys(law, 0)
    for seed in range(2000):
        found["".join(map(str, wake_order(n_agents=2, n_wakes=2, clock=clock, seed=seed)))] += 1
    assert chisquare(list(found.values()), [250 * k for k in law.values()]).pvalue > 1e-3
    order = wake_order(n_agents=7, n_wakes=5, clock=clock, seed=3)
    assert np.bincount(order).tolist() == [5] * 7


@pytest.mark.parametrize("n_agents", [1, 40])
def test_steps_get_no_longer_with_noise(n_agents):
    facts = task_of(sizes=(30,) * n_agents).facts
    pull, calm = np.full(n_agents, TRADE_OFF), None
    for size in (0.0, 1e-3, 0.03, 1.0, 30.0):
        noise = np.full(n_agents, size)
        pace = pace_of_agents(
            facts, facts.agents.similarity, pull=pull, smoothness=2.0, noise=noise, n_turns=50
        )
        calm = calm or pace
        assert (pace.pull <= calm.pull).all()
        assert (pace.step * pace.pull <= calm.step * calm.pull * (1 + 1e-12)).all()
        assert ((pace.momentum >= 0.0) & (pace.momentum <= 0.9 + 1e-9)).all()
        # Nobody goes further than noise of the size of what there is to be learnt.
        travel = 50 * pace.step * pace.pull
        assert (np.minimum(travel, np.sqrt(travel)) * size).max() < 2.0
    np.testing.assert_allclose(calm.step, 1 / ((n_agents > 1) + 2.0 * TRADE_OFF))


def test_smoothing_takes_noise_away_and_leaves_signal():
    rng, everybody = np.random.default_rng(0), np.ones(200, dtype=bool)
    probes, noise = rng.normal(size=(200, 8)), rng.normal(size=(200, 5, 1))
    alike, apart = (
        np.repeat(rng.normal(size=(1, 5, 1)), 200, axis=0),
        5 * rng.normal(size=noise.shape),
    )
    uniform = Similarity(n_agents=200)
    for signal, most in ((alike, 0.15), (apart, 1.05 * np.square(noise).mean()), (0 * alike, 0.15)):
        found, *_ = smooth_by_noise(uniform, signal + noise, probes, everybody)
        assert np.square(found - signal).mean() < most
    same, left, factor = smooth_by_noise(uniform, apart, 0 * probes, everybody)
    np.testing.assert_array_equal(same, apart)
    assert (np.abs(left).max(), factor) == (0.0, 1.0)


def fitted(algorithm, **settings):
    X = np.random.default_rng(0).uniform(-1, 1, (200, 3))
    shared = {"classes": [0, 1], "feature_bounds": (-1, 1), "random_state": 0}
    model = DPPersonalizedClassifier(algorithm=algorithm, **(shared | settings))
    return model.fit(X, (X[:, 0] > 0).astype(int), agents=np.arange(200) % 5)


def test_public_probes_go_along_with_the_warm_start_and_have_random_numbers_of_their_own(
    monkeypatch,
):
    seen = []
    monkeypatch.setattr(
        module,
        "propagate",
        lambda _, models, pull, *, tolerance: (seen.append(models), (models, 7))[1],
    )
    model = fitted(PersonalizedCoordinateDescent(turns=3, averaging_wakes=0, order_seed=5))
    assert model.n_messages_ == 20 * (7 + 3 - 1)
    assert model.bytes_sent_ == 8 * (4 * model.n_messages_ + 20 * 7 * module.N_PROBES)
    probes = seen[0][:, -module.N_PROBES :].ravel()
    for start in ({"seed": 5}, {"seed": np.random.SeedSequence(5)}):
        same = np.random.Generator(np.random.Philox(**start)).standard_normal(probes.size)
        assert np.abs(np.corrcoef(probes, same)[0, 1]) < 0.6


def test_one_agent_alone_descends_and_a_refit_minimises_over_one_agent():
    alone = task_of(sizes=(40,))
    best = run(LocalModels(), alone, epsilon=math.inf)[1].parameters
    np.testing.assert_allclose(best_of(alone)[0], best, atol=1e-10)
    _, descent, _ = run(PersonalizedCoordinateDescent(turns=400), alone, epsilon=math.inf)
    np.testing.assert_allclose(descent.parameters, best, atol=1e-8)
    task = task_of("logistic")
    models = run(PersonalizedCoordinateDescent(turns=2), task)[1].parameters_per_agent
    for agent in (0, COLD):
        own = task.owner == agent
        changed = models.copy()
        changed[agent] = refit_at_home(
            task.facts, Rows(task.X[own], task.facts.coordinates), task.y[own], agent=agent,
            models=models,
        )  # fmt: skip
        assert np.abs(objective(task, changed)[1][agent]).max() < 1e-7


# Baselines.


@pytest.mark.parametrize("start", ["zero", "local"])
def test_gossip_between_pairs_ends_at_the_optimum_and_counts_copies_and_multipliers(start):
    task = task_of(max_iter=60)
    _, solution, _ = run(GossipADMM(start=start), task, epsilon=math.inf)
    np.testing.assert_allclose(solution.parameters_per_agent, best_of(task), atol=1e-3)
    first = np.count_nonzero(weights_of_edges(task)[0]) * (start == "local")
    assert solution.n_messages == first + 2 * 60 * 6
    assert solution.bytes_sent == 8 * 3 * (first + 4 * 2 * 60 * 6)


@pytest.mark.parametrize("models", ["joint", "local"])
@pytest.mark.parametrize(("loss", "noise"), [("squared", "laplace"), ("logistic", "gaussian")])
def test_models_of_perturbed_data_are_those_of_what_was_published(loss, noise, models):
    """Features meet noise of their own, labels a randomised response; nothing else is used."""
    algorithm = PerturbedData(models=models, noise=noise)
    reference = PersonalizedOptimum() if models == "joint" else LocalModels()
    task = task_of(loss, fit_intercept=True)
    np.clip(task.y, -1, 1, out=task.y)
    best = run(reference, task, epsilon=math.inf)[1].parameters_per_agent
    for epsilon, atol in ((math.inf, 1e-8), (1e9, 2e-3)):
        found = run(algorithm, task, epsilon=epsilon, gate_class=Watched)[1]
        np.testing.assert_allclose(found.parameters_per_agent, best, atol=atol)
    task = task_of(loss, sizes=(3000, 0, 2000), fit_intercept=True)
    _, _, gate = run(algorithm, task, epsilon=2.0, gate_class=Watched)
    value, out = gate.passed[0][1:3]
    spent, n_numbers = (2.0, 6) if loss == "squared" else (1.0, 3)
    scale = 2 * n_numbers / spent
    if noise == "gaussian":
        scale = 2 * math.sqrt(n_numbers) / gaussian_mu(spent, 1e-5)
    law = "laplace" if noise == "laplace" else "norm"
    assert kstest((out - value).ravel(), law, args=(0, scale)).pvalue > 1e-4
    if loss == "logistic":
        told, label = gate.passed[1][2], gate.passed[1][1]
        others = 5000 / (1 + math.exp(1.0))
        assert (
            chisquare(
                [np.sum(told != label), np.sum(told == label)], [others, 5000 - others]
            ).pvalue
            > 1e-4
        )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("loss", "unit", "law", "intercept", "epsilon"),
    [
        ("squared", "record", "gaussian", True, 1.0),
        ("logistic", "agent", "laplace", False, 1.0),
        ("logistic", "record", "gaussian", True, math.inf),
    ],
)
def test_compiled_wake_ups_make_the_same_models(loss, unit, law, intercept, epsilon):
    pytest.importorskip("numba")
    task = task_of(loss, unit=unit, fit_intercept=intercept)
    task.X[::7] *= 1e6
    task.X[3, 0] = 1e300
    knobs = {"turns": 5, "averaging_wakes": 2, "noise": law, "split": "optimal", "clip_norm": 0.5}
    waves, compiled = (
        run(
            PersonalizedCoordinateDescent(**knobs, compiled=c),
            task,
            epsilon=epsilon,
            gate_class=Watched,
        )
        for c in (False, True)
    )
    assert waves[1].n_messages == compiled[1].n_messages
    found, expected = compiled[1].parameters_per_agent, waves[1].parameters_per_agent
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10)
