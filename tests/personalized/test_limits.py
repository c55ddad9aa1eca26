"""Limits of the personalised estimators: no privacy, no noise, one agent, any container."""

from __future__ import annotations

import math

import networkx as nx
import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import minimize
from scipy.special import expit, log_softmax
from sklearn.linear_model import LogisticRegression, Ridge

from skdpadmm import (
    DPDecentralizedClassifier,
    DPPersonalizedClassifier,
    DPPersonalizedRegressor,
    _fitting,
)
from skdpadmm.algorithms import PersonalizedCoordinateDescent
from skdpadmm.network import named_graph

LOSSES = {
    "squared_error": (DPPersonalizedRegressor, 1),
    "huber": (DPPersonalizedRegressor, 1),
    "log_loss": (DPPersonalizedClassifier, 2),
    "multinomial": (DPPersonalizedClassifier, 3),
    "smoothed_hinge": (DPPersonalizedClassifier, 2),
    "hinges": (DPPersonalizedClassifier, 3),
}
NAMES = {"multinomial": "log_loss", "hinges": "smoothed_hinge"}
ALPHA = 0.1
AGENTS = np.resize([0, 1, 2, 1, 3, 1], 180)
WEIGHTS = np.array(
    [[0.0, 1.0, 0.2, 0.0], [1.0, 0.0, 0.0, 0.5], [0.2, 0.0, 0.0, 2.0], [0.0, 0.5, 2.0, 0.0]]
)


def data(name, n=180, p=3, seed=0):
    """Rows of agents whose tasks differ."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(n, p))
    slopes = np.resize([1.0, -2.0, 0.5], p) + rng.normal(size=(4, p))
    own = np.resize(slopes, (n, p)) if n != len(AGENTS) else slopes[AGENTS]
    scores = 0.3 + (X * own).sum(axis=1) + 0.5 * rng.logistic(size=n)
    n_classes = LOSSES[name][1]
    if n_classes == 3:
        return X, np.digitize(scores, [-0.5, 0.8])
    return X, (scores > 0).astype(int) if n_classes == 2 else scores


def estimator_of(name, **changed):
    settings = {"loss": NAMES.get(name, name), "alpha": ALPHA, "random_state": 0}
    return LOSSES[name][0](**(settings | changed))


def exact(name, **changed):
    return estimator_of(name, epsilon=math.inf, **changed)


def models(model):
    """Parameters of all agents, of shape (n_agents, n_outputs, n_features + 1)."""
    n = len(model.agent_labels_)
    coef = model.coef_per_agent_.reshape(n, -1, model.coef_per_agent_.shape[-1])
    return np.dstack([coef, model.intercept_per_agent_.reshape(n, -1)])


def comparable(found):
    """Parameters without what is free: the intercepts of all classes may move together."""
    found = found.copy()
    if found.shape[1] > 1:
        found[:, :, -1] -= found[:, :, -1].mean(axis=1, keepdims=True)
    return found


# Without privacy, one agent.


def hinge(margin, width=1.0):
    return np.where(
        margin >= 1, 0.0,
        np.where(margin <= 1 - width, 1 - margin - width / 2, (1 - margin) ** 2 / (2 * width)),
    )  # fmt: skip


def mean_loss(name, scores, y):
    """The loss of the docstring, from scores of shape (n, K)."""
    one = scores[:, 0]
    sign = 2 * np.asarray(y) - 1
    if name == "squared_error":
        return np.mean((y - one) ** 2) / 2
    if name == "huber":
        r = np.abs(y - one)
        return np.mean(np.where(r <= 1.35, r**2 / 2, 1.35 * r - 1.35**2 / 2))
    if name == "log_loss":
        return np.mean(np.logaddexp(0, -sign * one))
    if name == "multinomial":
        return -np.mean(log_softmax(scores, axis=1)[np.arange(len(y)), y])
    if name == "smoothed_hinge":
        return np.mean(hinge(sign * one))
    signs = np.where(np.arange(3) == np.asarray(y)[:, None], 1, -1)
    return np.mean(hinge(signs * scores).sum(axis=1))


def own_objective(name, X, y, model):
    """The bracket of the docstring for parameters of shape (n_outputs, n_features + 1)."""
    scores = X @ model[:, :-1].T + model[:, -1]
    return mean_loss(name, scores, y) + ALPHA / 2 * np.sum(model[:, :-1] ** 2)


def objective(name, X, y, found, trade_off, weights=WEIGHTS, agents=AGENTS):
    """The objective of the docstring, where public units are those of the user."""
    differences = found[:, None] - found[None]
    # Each pair is there twice.
    value = 0.25 * np.sum(weights * np.sum(differences**2, axis=(2, 3)))
    sizes = np.bincount(agents, minlength=len(found))
    for i in np.flatnonzero(sizes):
        own = agents == i
        share = weights[i].sum() * sizes[i] / sizes.max()
        value += trade_off * share * own_objective(name, X[own], y[own], found[i])
    return value


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("name", ["squared_error", "log_loss", "multinomial"])
def test_without_privacy_one_agent_is_scikit_learn(name, fit_intercept):
    X, y = data(name)
    model = exact(name, fit_intercept=fit_intercept, feature_bounds=(-1, 1)).fit(X, y)
    n = len(X)
    reference = (
        Ridge(alpha=ALPHA * n, fit_intercept=fit_intercept, solver="cholesky")
        if name == "squared_error"
        else LogisticRegression(
            C=1 / (ALPHA * n), fit_intercept=fit_intercept, solver="newton-cg", tol=1e-12,
            max_iter=1000,
        )
    )  # fmt: skip
    reference.fit(X, y)
    np.testing.assert_allclose(model.coef_, reference.coef_, rtol=0, atol=1e-6)
    intercepts = np.ravel(model.intercept_) - np.mean(model.intercept_) * (name == "multinomial")
    expected = np.ravel(reference.intercept_)
    expected = expected - expected.mean() * (name == "multinomial")
    np.testing.assert_allclose(intercepts, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", ["huber", "smoothed_hinge"])
def test_without_privacy_one_agent_minimises_its_loss(name):
    X, y = data(name)
    model = exact(name).fit(X, y)

    def value(w):
        return own_objective(name, X, y, w[None])

    best = minimize(value, np.zeros(4), method="BFGS", options={"gtol": 1e-10, "maxiter": 10**4}).x
    polished = minimize(value, best, method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-15})
    np.testing.assert_allclose(models(model)[0, 0], polished.x, rtol=0, atol=1e-6)


# Without privacy, many agents.


@pytest.mark.parametrize("name", LOSSES)
def test_without_privacy_models_minimise_the_objective_of_the_docstring(name):
    X, y = data(name)
    # Bounds of one unit each: public units are those of the user.
    bounds = {"feature_bounds": (-1, 1)}
    if LOSSES[name][1] == 1:
        bounds["target_bounds"] = (-1, 1)
    model = exact(name, similarity=WEIGHTS, trade_off=5.0, **bounds).fit(X, y, agents=AGENTS)
    found = models(model)
    at = objective(name, X, y, found, 5.0)
    rng = np.random.default_rng(1)
    for size in (1e-2, 1e-4):
        for _ in range(100):
            moved = found + size * rng.standard_normal(found.shape)
            assert objective(name, X, y, moved, 5.0) >= at - 1e-12


@pytest.mark.parametrize("confidence", [None, 0.4, [1.0, 0.1, 0.5, 0.9]])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_without_privacy_squared_losses_are_a_linear_system_in_declared_units(
    fit_intercept, confidence
):
    X, y = data("squared_error")
    low, high = np.array([-1.0, -3.0, 0.0]), np.array([1.0, 5.0, 10.0])
    X = low + (X + 1) / 2 * (high - low)
    target = (-10.0, 30.0)
    model = exact(
        "squared_error", similarity=WEIGHTS, trade_off=2.0, feature_bounds=(low, high),
        target_bounds=target, fit_intercept=fit_intercept, confidence=confidence,
    ).fit(X, y, agents=AGENTS)  # fmt: skip
    if fit_intercept:
        offset, scale = (low + high) / 2, (high - low) / 2
        middle, unit = 10.0, 20.0
    else:
        offset, scale = np.zeros(3), np.maximum(np.abs(low), np.abs(high))
        middle, unit = 0.0, 30.0
    A = np.column_stack([(X - offset) / scale, np.ones(len(X))])[:, : 3 + fit_intercept]
    b = (y - middle) / unit
    d, sizes, degrees = A.shape[1], np.bincount(AGENTS), WEIGHTS.sum(axis=1)
    c = sizes / sizes.max() if confidence is None else np.resize(confidence, 4)
    # Of the penalty, in the units of these parameters.
    ridge = ALPHA * np.diag(np.append(1 / scale**2, 0.0)[:d])
    system = np.kron(np.diag(degrees) - WEIGHTS, np.eye(d))
    right = np.zeros(4 * d)
    for i in range(4):
        own, at = AGENTS == i, slice(i * d, (i + 1) * d)
        pull = 2.0 * degrees[i] * c[i]
        system[at, at] += pull * (A[own].T @ A[own] / sizes[i] + ridge)
        right[at] = pull * A[own].T @ b[own] / sizes[i]
    expected = np.linalg.solve(system, right).reshape(4, d)
    coef = unit * expected[:, :3] / scale
    np.testing.assert_allclose(model.coef_per_agent_, coef, rtol=0, atol=1e-7)
    intercept = middle + unit * expected[:, 3] - coef @ offset if fit_intercept else np.zeros(4)
    np.testing.assert_allclose(model.intercept_per_agent_, intercept, rtol=0, atol=1e-7)
    np.testing.assert_allclose(model.coef_, coef.mean(axis=0), rtol=0, atol=1e-7)


@pytest.mark.parametrize("name", LOSSES)
def test_agents_that_trust_themselves_learn_alone_and_others_learn_together(name):
    X, y = data(name)
    apart = exact(name, trade_off=1e8, similarity=WEIGHTS).fit(X, y, agents=AGENTS)
    for agent in range(4):
        own = AGENTS == agent
        declared = {} if LOSSES[name][1] == 1 else {"classes": apart.classes_}
        alone = exact(name, **declared).fit(X[own], y[own])
        np.testing.assert_allclose(
            apart.coef_per_agent_[agent], alone.coef_, rtol=0, atol=1e-5, err_msg=str(agent)
        )
    # Confidence is the share of rows: where all are alike it is the loss of all rows.
    together = exact(name, trade_off=1e-6).fit(X, y, agents=AGENTS)
    pooled = exact(name).fit(X, y)
    for own in together.coef_per_agent_:
        np.testing.assert_allclose(own, pooled.coef_, rtol=0, atol=1e-4)


@pytest.mark.parametrize("name", ["squared_error", "multinomial"])
def test_only_ratios_of_weights_count(name):
    X, y = data(name)
    expected = comparable(models(exact(name, similarity=WEIGHTS).fit(X, y, agents=AGENTS)))
    for factor in (1e-3, 7.0):
        again = exact(name, similarity=factor * WEIGHTS).fit(X, y, agents=AGENTS)
        found = comparable(models(again))
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-7)
    budgets = estimator_of(name, similarity=WEIGHTS, epsilon=[math.inf] * 4)
    found = comparable(models(budgets.fit(X, y, agents=AGENTS)))
    np.testing.assert_array_equal(found, expected)


# At home.


@pytest.mark.parametrize("name", LOSSES)
def test_a_refit_at_home_without_privacy_is_the_model_itself(name):
    X, y = data(name)
    model = exact(name, similarity=WEIGHTS, trade_off=5.0).fit(X, y, agents=AGENTS)
    for agent in range(4):
        own = AGENTS == agent
        again = model.local_model(agent, X[own], y[own])
        np.testing.assert_allclose(again.coef_, model.coef_per_agent_[agent], rtol=0, atol=1e-6)
        np.testing.assert_allclose(
            again.intercept_, model.intercept_per_agent_[agent], rtol=0, atol=1e-6
        )
        # A score is not lost among the digits of what all classes share.
        assert np.abs(again.intercept_).max() < 100
    alone = exact(name).fit(X, y)
    np.testing.assert_allclose(alone.local_model(0, X, y).coef_, alone.coef_, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", ["squared_error", "log_loss", "multinomial"])
def test_a_refit_at_home_minimises_over_one_model_beside_noisy_ones(name):
    X, y = data(name)
    bounds = {"feature_bounds": (-1, 1)}
    if name == "squared_error":
        bounds["target_bounds"] = (-1, 1)
    model = estimator_of(name, similarity=WEIGHTS, trade_off=5.0, **bounds)
    model.fit(X, y, agents=AGENTS)
    found, own = models(model), AGENTS == 2
    home = model.local_model(2, X[own], y[own])
    found[2] = np.column_stack([np.atleast_2d(home.coef_), np.ravel(home.intercept_)])
    at = objective(name, X, y, found, 5.0)
    rng = np.random.default_rng(1)
    for size in (1e-2, 1e-4):
        for _ in range(100):
            moved = found.copy()
            moved[2] += size * rng.standard_normal(moved[2].shape)
            assert objective(name, X, y, moved, 5.0) >= at - 1e-12
    # Rows beyond the bounds, too, are used as they are.
    wide = model.local_model(2, 3 * X[own], y[own])
    assert not np.allclose(
        wide.coef_, model.local_model(2, np.clip(3 * X[own], -1, 1), y[own]).coef_
    )


def test_a_refit_of_one_agent_is_the_answer_without_privacy():
    X, y = data("squared_error")
    private = estimator_of("squared_error", epsilon=0.1, target_bounds=(-1, 1)).fit(X, y)
    home = private.local_model(0, X, y)
    expected = exact("squared_error").fit(X, y)
    np.testing.assert_allclose(home.coef_, expected.coef_, rtol=0, atol=1e-7)
    assert not np.allclose(private.coef_, expected.coef_, atol=1e-3)


def test_an_agent_whose_rows_arrive_after_the_fit_can_refit_too():
    X, y = data("squared_error")
    graph = nx.Graph([(0, 1), (1, 2), (2, 3), (3, "new")])
    graph = nx.relabel_nodes(graph, {i: f"a{i}" for i in range(4)} | {"new": "b"})
    labels = np.array(["a0", "a1", "a2", "a3"])[AGENTS]
    model = exact("squared_error", similarity=graph, trade_off=1e6).fit(X, y, agents=labels)
    np.testing.assert_allclose(model.coef_per_agent_[4], model.coef_per_agent_[3], atol=1e-5)
    mine = AGENTS == 0
    home = model.local_model("b", X[mine], y[mine])
    np.testing.assert_allclose(home.coef_, model.coef_per_agent_[0], atol=1e-3)


# Other names, and no noise.


class NoNoise:
    simulation = True

    def add_gaussian(self, value, scale, stream):
        return value

    def add_laplace(self, value, scale, stream):
        return value


@pytest.mark.parametrize("unit", ["record", "agent"])
@pytest.mark.parametrize("name", ["squared_error", "multinomial"])
def test_new_names_for_agents_change_only_rounding(name, unit):
    X, y = data(name)
    agents = np.resize([4, 0, 2, 3, 4, 1], 180)
    graph = named_graph("barabasi-albert", 5)
    # With privacy the order in which agents wake up goes by their places.
    model = exact(name, privacy_unit=unit, similarity=graph).fit(X, y, agents=agents)
    expected = comparable(models(model))
    for order in ([4, 3, 2, 1, 0], [2, 0, 4, 1, 3]):
        model.set_params(similarity=nx.relabel_nodes(graph, dict(enumerate(order))))
        model.fit(X, y, agents=np.array(order)[agents])
        np.testing.assert_allclose(comparable(models(model))[order], expected, rtol=0, atol=1e-6)
    words = np.array(["ann", "bob", "cas", "dan", "eve"])
    model.set_params(similarity=nx.relabel_nodes(graph, dict(enumerate(words.tolist()))))
    model.fit(X, y, agents=words[agents])
    np.testing.assert_allclose(comparable(models(model)), expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", LOSSES)
def test_without_noise_agents_reach_the_answer_without_privacy(name, monkeypatch):
    X, y = data(name)
    bounds = {"feature_bounds": (-1, 1)}
    if LOSSES[name][1] == 1:
        bounds["target_bounds"] = (-8, 8)
    settings = {"similarity": WEIGHTS, "trade_off": 2.0} | bounds
    expected = comparable(models(exact(name, **settings).fit(X, y, agents=AGENTS)))
    monkeypatch.setattr(_fitting, "noise_source", lambda *arguments: NoNoise())
    algorithm = PersonalizedCoordinateDescent(
        turns=500, warm_start=None, clip_norm=1e3, tempered=False
    )
    # What is left is the grid that noise lies on, which is as fine as noise is small.
    model = estimator_of(name, algorithm=algorithm, epsilon=1e4, max_iter=500, **settings)
    found = comparable(models(model.fit(X, y, agents=AGENTS)))
    scale = 8.0 if LOSSES[name][1] == 1 else 1.0
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-3 * scale)


# Any container.


@pytest.mark.parametrize("epsilon", [1.0, math.inf])
@pytest.mark.parametrize("unit", ["record", "agent"])
@pytest.mark.parametrize("name", LOSSES)
def test_the_container_changes_only_rounding(name, unit, epsilon):
    X, y = data(name)
    X[np.abs(X) < 0.5] = 0.0
    model = estimator_of(name, privacy_unit=unit, similarity=WEIGHTS, epsilon=epsilon)
    expected = comparable(models(model.fit(X, y, agents=AGENTS)))
    for convert in (np.asfortranarray, sparse.csr_matrix, sparse.csc_array):
        found = comparable(models(model.fit(convert(X), y, agents=AGENTS)))
        np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-7)


# Defaults.


@pytest.mark.parametrize("name", ["squared_error", "log_loss"])
def test_defaults_learn_an_easy_problem_with_one_agent_and_with_many(name):
    rng = np.random.default_rng(1)
    X = rng.uniform(-1, 1, size=(20_000, 5))
    score = X @ [1.0, -1.0, 0.5, 0.0, 0.5] + 0.1 * rng.normal(size=20_000)
    y = score if name == "squared_error" else rng.random(20_000) < expit(20 * score)
    agents = np.resize(np.arange(10), 20_000)
    for whose in ({}, {"agents": agents}):
        scores = [
            estimator_of(
                name, alpha=1e-4, feature_bounds=(-1, 1), epsilon=3.0, random_state=seed,
            ).fit(X, y, **whose).score(X, y, **whose)
            for seed in range(5)
        ]  # fmt: skip
        assert np.median(scores) > 0.85


def test_agents_who_differ_are_served_better_by_models_of_their_own():
    rng = np.random.default_rng(2)
    X = rng.uniform(-1, 1, size=(20_000, 2))
    agents = np.resize(np.arange(4), 20_000)
    angle = np.array([0.0, 0.3, 2.8, 3.1])[agents]
    y = (np.cos(angle) * X[:, 0] + np.sin(angle) * X[:, 1] > 0).astype(int)
    alike = np.array([[0, 1, 0, 0.01], [1, 0, 0.01, 0], [0, 0.01, 0, 1], [0.01, 0, 1, 0]])
    settings = {"feature_bounds": (-1, 1), "random_state": 0}
    together = DPDecentralizedClassifier(**settings).fit(X, y, agents=agents)
    apart = DPPersonalizedClassifier(similarity=alike, trade_off=100.0, **settings)
    apart.fit(X, y, agents=agents)
    assert apart.score(X, y, agents=agents) > 0.9
    assert together.score(X, y) < 0.7
