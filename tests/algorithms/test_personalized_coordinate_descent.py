"""Personalised models: the objective, wake-ups one by one, bounds and baselines."""

import math

import numpy as np
import pytest
from scipy import sparse

from skdpadmm.algorithms import (
    LocalModels,
    PersonalizedCoordinateDescent,
    PersonalizedOptimum,
    refit_at_home,
)
from skdpadmm.algorithms._clipped_sums import absolute_sums
from skdpadmm.algorithms._personalized_coordinate_descent import wake_order
from skdpadmm.algorithms._personalized_defaults import typical_curvature, wake_contraction
from skdpadmm.algorithms._tempered_path import FARTHEST_PULL, propagate
from skdpadmm.network import Similarity
from skdpadmm.penalties import NoPenalty, SquaredL2
from skdpadmm.privacy import gaussian_mu
from skdpadmm.records import Rows
from tests.algorithms import runs as helper
from tests.algorithms.runs import Watched, make_task, similarity_of, slopes, summed_gradient
from tests.algorithms.runs import run_agents as run

SIZES, STRENGTH, TRADE_OFF = (12, 5, 20, 8, 0, 15), 0.2, 1.5
COLD = SIZES.index(0)


def task_of(loss="squared", sizes=SIZES, **facts):
    facts = {"penalty": SquaredL2(STRENGTH), "fit_intercept": False, "max_iter": 100} | facts
    return make_task(loss, sizes, is_personal=True, **facts)


class Drawn(Watched):
    """Keeps uniform numbers as well."""

    def uniform(self, shape):
        if not hasattr(self, "drawn"):
            self.drawn = []
        self.drawn.append(super().uniform(shape))
        return self.drawn[-1]


def weights_of_edges(task):
    W = task.facts.agents.similarity.weights.toarray()
    return W, W.sum(axis=1)


def gradient_of(task, models):
    """Of the joint objective."""
    agents, (W, D) = task.facts.agents, weights_of_edges(task)
    gradient = np.tensordot(np.diag(D) - W, models, 1)
    for i, w in enumerate(models):
        gradient[i] += agents.trade_off * D[i] * agents.confidence[i] * own_gradient(task, i, w)
    return gradient


def propagation_limit(similarity, models, pull):
    """The linear system that propagation ends at."""
    own = similarity.degrees * pull
    system = np.diag(similarity.degrees + own) - similarity.weights.toarray()
    return np.linalg.solve(system, own[:, None] * models)


def own_gradient(task, i, w):
    """Of an agent's mean loss and its penalty; nothing without rows."""
    A, y = task.of(i)
    if not len(y):
        return np.zeros(w.shape)
    penalised = task.facts.penalty.strong_convexity * np.concatenate([w[:3], 0 * w[3:]])
    return A.T @ slopes(task.facts.loss, A @ w, y) / len(y) + penalised


def best_of(task):
    return run(PersonalizedOptimum(), task, epsilon=math.inf)[1].parameters_per_agent


@pytest.mark.parametrize("loss", ["squared", "logistic", "three"])
def test_optima_are_stationary_points_of_the_objective_and_of_agents_own_losses(loss, monkeypatch):
    task = task_of(loss, fit_intercept=loss == "three")
    best = best_of(task)
    assert np.abs(gradient_of(task, best)).max() < 1e-7
    monkeypatch.setattr("skdpadmm.algorithms._personalized_optimum.LARGEST_BLOCKS", 0)
    np.testing.assert_allclose(best_of(task), best, atol=1e-8)
    local = run(LocalModels(), task, epsilon=math.inf)[1].parameters_per_agent
    for i, w in enumerate(local):
        assert np.abs(own_gradient(task, i, w)).max() < 1e-7


@pytest.mark.parametrize(
    ("loss", "unit", "noise", "penalty"),
    [
        ("squared", "record", "gaussian", SquaredL2(STRENGTH)),
        ("squared", "agent", "laplace", NoPenalty()),
        ("logistic", "record", "laplace", SquaredL2(STRENGTH)),
        ("three", "agent", "gaussian", SquaredL2(STRENGTH)),
        ("three", "record", "laplace", NoPenalty()),
    ],
)
def test_wake_ups_equal_update_6_one_after_another(loss, unit, noise, penalty):
    """The noisy model is the state; steps go by the public bound of the curvature."""
    task = task_of(loss, unit=unit, penalty=penalty, fit_intercept=loss == "logistic")
    algorithm = PersonalizedCoordinateDescent(
        turns=4, averaging_wakes=2, noise=noise, split="optimal", clip_norm=0.2, warm_start=None,
        tempered=False,
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
    (W, D), woken = weights_of_edges(task), [0] * 6
    models = np.zeros((6, d, task.facts.loss.n_outputs))
    for i in wake_order(n_agents=6, n_wakes=6, seed=0):
        size, mean = SIZES[i], np.tensordot(W[i] / D[i], models, 1)
        pull = TRADE_OFF * agents.confidence[i] * (size > 0)
        if size and woken[i] < 4:
            value, out = turns[i][woken[i]]
            if unit == "record":
                mean_gradient = summed_gradient(task, i, models[i], clip, order=order) / size
            else:
                whole = summed_gradient(task, i, models[i], math.inf) / size
                mean_gradient = helper.clipped(whole, clip, order)
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
    assert (weights[-1] > weights[0]) == (penalty.strong_convexity > 0 and loss != "logistic")


@pytest.mark.parametrize("warm_start", [None, "propagation", "local"])
@pytest.mark.parametrize("delay", [0, pytest.param(3, marks=pytest.mark.slow)])
def test_descent_without_noise_ends_at_the_optimum(warm_start, delay):
    for loss in ("squared", "three"):
        task, algorithm = task_of(loss), PersonalizedCoordinateDescent(turns=500, delay=delay)
        found = run(algorithm.set_params(warm_start=warm_start), task, epsilon=math.inf)
        np.testing.assert_allclose(found[1].parameters_per_agent, best_of(task), atol=1e-5)


def test_a_local_start_is_update_5_from_local_models_with_the_curvature_of_own_rows():
    """Proposition 1: every wake-up descends, because a block's curvature bounds its own."""
    task, (W, D) = task_of("logistic"), weights_of_edges(task_of("logistic"))
    models = run(LocalModels(), task, epsilon=math.inf)[1].parameters_per_agent
    for turns in (1, 3):
        algorithm = PersonalizedCoordinateDescent(turns=turns, warm_start="local")
        _, solution, _ = run(algorithm, task, epsilon=math.inf)
        expected, woken = models.copy(), 0
        for i in wake_order(n_agents=6, n_wakes=turns, seed=0):
            A, y = task.of(i)
            pull = TRADE_OFF * task.facts.agents.confidence[i] * (len(y) > 0)
            bound = np.linalg.eigvalsh(A.T @ A / max(len(y), 1)).max() / 4 + STRENGTH
            slope = D[i] * expected[i] - np.tensordot(W[i], expected, 1)
            slope += D[i] * pull * own_gradient(task, i, expected[i])
            expected[i] -= slope / (D[i] * (1 + pull * bound))
            woken += 1
        np.testing.assert_allclose(solution.parameters_per_agent, expected, rtol=0, atol=1e-9)
        assert solution.n_rounds == turns + 1


def test_delayed_models_are_seen_as_they_were_and_never_in_the_wrong_order():
    """Whoever is late is seen as at the start of one of the last sweeps: a public choice."""
    task, (W, D), delay, sweeps = task_of(), weights_of_edges(task_of()), 2, 40
    algorithm = PersonalizedCoordinateDescent(
        turns=sweeps, warm_start=None, tempered=False, averaging_wakes=0, delay=delay
    )
    plan, solution, gate = run(algorithm, task, epsilon=math.inf, gate_class=Drawn)
    assert len(gate.drawn) == sweeps
    bound = task.facts.row_norm**2 + STRENGTH
    models, starts, lags = np.zeros((6, 3, 1)), [], np.full(6, -1)
    order = wake_order(n_agents=6, n_wakes=sweeps, seed=0).reshape(sweeps, 6)
    seen = set()
    for sweep, uniform in zip(order, gate.drawn, strict=True):
        starts.append(models.copy())
        lags = np.minimum((3 * uniform).astype(int), lags + 1)
        seen |= set(lags.tolist())
        for i in sweep:
            known = [models[j] if lag == 0 else starts[-lag][j] for j, lag in enumerate(lags)]
            pull = TRADE_OFF * task.facts.agents.confidence[i] * (SIZES[i] > 0)
            mean = np.tensordot(W[i] / D[i], np.array(known), 1)
            mean -= pull * own_gradient(task, i, models[i])
            models[i] = models[i] + (mean - models[i]) / (1 + pull * bound)
    np.testing.assert_allclose(solution.parameters_per_agent, models, rtol=0, atol=1e-9)
    assert seen == {0, 1, 2}
    assert "delay" in dict(plan.settings)
    without = PersonalizedCoordinateDescent(turns=2).plan(task.facts, helper.BUDGET)
    assert "delay" not in dict(without.settings)


def test_a_warm_start_smooths_a_step_from_zero_by_trust_and_is_a_turn_like_any_other():
    task = task_of("logistic")
    plan, solution, _ = run(PersonalizedCoordinateDescent(turns=1), task, epsilon=math.inf)
    curvature, confidence = typical_curvature(task.facts), np.array(task.facts.agents.confidence)
    relative = confidence * (np.array(SIZES) > 0) / confidence.max()
    first = np.array([summed_gradient(task, i, np.zeros((3, 1)), math.inf) for i in range(6)])
    first /= -curvature * np.maximum(SIZES, 1)[:, None, None]
    pull = max(TRADE_OFF * curvature, FARTHEST_PULL) * np.maximum(relative, 1e-3)
    expected = propagation_limit(task.facts.agents.similarity, first[..., 0], pull)
    np.testing.assert_allclose(solution.parameters_per_agent[..., 0], expected, rtol=0, atol=1e-3)
    local = run(LocalModels(turns=1, clip_norm=50.0), task)[1].parameters_per_agent
    np.testing.assert_allclose(local, first / (1 + STRENGTH / curvature), rtol=0, atol=1e-9)
    for warm_start in ("propagation", None):
        descent = PersonalizedCoordinateDescent(turns=3, warm_start=warm_start)
        plan, _, gate = run(descent, task, gate_class=Watched)
        assert sum(len(who) for *_, who in gate.passed) == 3 * 5
        assert plan.guarantee().mu == pytest.approx(gaussian_mu(1.0, 1e-5))


def test_all_agents_wake_up_equally_often_in_a_random_order():
    order = wake_order(n_agents=7, n_wakes=500, seed=3)
    assert np.bincount(order).tolist() == [500] * 7
    # Whoever has not woken up often enough is next with one chance: whoever was last.
    assert np.mean(order[1:1000] == order[:999]) == pytest.approx(1 / 7, abs=0.04)


def test_a_refit_without_rows_is_the_mean_of_the_neighbours():
    task, (W, D) = task_of("logistic"), weights_of_edges(task_of("logistic"))
    models = run(PersonalizedCoordinateDescent(turns=2), task)[1].parameters_per_agent
    rows = Rows(task.X[:0], task.facts.coordinates)
    found = refit_at_home(task.facts, rows, task.y[:0], agent=COLD, models=models)
    np.testing.assert_allclose(found, np.tensordot(W[COLD] / D[COLD], models, 1), atol=1e-7)


def test_the_expected_gap_contracts_from_one_wake_up_to_the_next_as_planned():
    """Proposition 1 of the paper, whatever curvature the facts allow, over a geometric time."""
    task, n, rng = task_of(), 6, np.random.default_rng(0)
    between = wake_contraction(task.facts)
    one, times = n * between / (1 + (n - 1) * between), np.arange(1, 400)
    assert between == pytest.approx(float((1 - 1 / n) ** (times - 1) / n @ one**times), rel=1e-9)
    (W, D), most = weights_of_edges(task), task.facts.row_norm**2 + STRENGTH
    pull = TRADE_OFF * np.array(task.facts.agents.confidence)
    lipschitz, vectors = D * (1 + pull * most), rng.normal(size=(200, n))
    for curvature in (STRENGTH, most, rng.uniform(STRENGTH, most, n)):
        hessian = np.diag(D * (1 + pull * curvature)) - W
        errors = np.concatenate([vectors, np.linalg.eigh(hessian)[1].T])
        after = np.zeros(len(errors))
        for i in range(n):
            moved = errors - np.outer(errors @ hessian[i] / lipschitz[i], np.eye(n)[i])
            after += np.einsum("ej,jk,ek->e", moved, hessian, moved) / n
        assert np.all(after <= one * np.einsum("ej,jk,ek->e", errors, hessian, errors))


def test_propagation_has_the_vectors_of_the_path():
    path = Similarity(n_agents=3, matrix=np.array([[0, 1, 0], [1, 0, 0.5], [0, 0.5, 0]]))
    models, pull = np.array([[1.0], [-1.0], [2.0]]), 0.8 * np.array([0.2, 1.0, 0.5])
    smoothed = propagate(path, models, pull, tolerance=1e-10)[0][:, 0]
    np.testing.assert_allclose(smoothed, [-0.31403859, -0.52428476, 0.19693945], atol=1e-8)


@pytest.mark.parametrize("similarity", [similarity_of(12), Similarity(n_agents=12)])
def test_propagation_ends_at_its_linear_system_after_a_public_number_of_rounds(similarity):
    rng, n = np.random.default_rng(3), similarity.n_agents
    models, pull = rng.normal(size=(n, 6)), rng.uniform(0.01, 2.0, n)
    limit = propagation_limit(similarity, models, pull)
    scale = np.sqrt(similarity.degrees * (1 + pull))[:, None]
    for tolerance in (1e-3, 1e-8):
        found, n_rounds = propagate(similarity, models, pull, tolerance=tolerance)
        assert n_rounds == propagate(similarity, 0 * models, pull, tolerance=tolerance)[1]
        before = np.linalg.norm(scale * (models - limit))
        assert np.linalg.norm(scale * (found - limit)) <= 1.01 * tolerance * before


@pytest.mark.parametrize("container", [np.asarray, sparse.csr_matrix])
def test_absolute_sums_are_those_of_centred_rows_rounded_up(container):
    coordinates = helper.coordinates_of(3, bounds=([-1, -3, 0], [5, 1, 8]))
    X = np.random.default_rng(0).uniform(coordinates.lower, coordinates.upper, (50, 3))
    centred = np.abs((X - coordinates.offset) / coordinates.scale).sum(axis=1) + 1.0
    sums = absolute_sums(Rows(container(X), coordinates))
    np.testing.assert_allclose(sums, centred, rtol=1e-11)
    assert (sums >= centred * (1 - 1e-15)).all()
