"""Limits of the decentralised estimators: no privacy, no noise, one agent, any engine."""

from __future__ import annotations

import math

import networkx as nx
import numpy as np
import pytest
from distributed import Client, LocalCluster
from scipy import sparse
from scipy.optimize import minimize
from scipy.special import expit, log_softmax
from sklearn.linear_model import ElasticNet, Lasso, LinearRegression, LogisticRegression, Ridge

from skdpadmm import DPDecentralizedClassifier, DPDecentralizedRegressor, _fitting
from skdpadmm.algorithms import MultiStepADMM
from skdpadmm.algorithms.blocks import _network_steps
from skdpadmm.network import TOPOLOGIES, named_graph

PENALTIES = {
    "l2": {"penalty": "l2", "alpha": 0.1},
    "l1": {"penalty": "l1", "alpha": 0.02},
    "elastic net": {"penalty": "elasticnet", "alpha": 0.08, "l1_ratio": 0.3},
    "none": {"penalty": None},
}
LOSSES = {
    "squared_error": (DPDecentralizedRegressor, 1),
    "huber": (DPDecentralizedRegressor, 1),
    "log_loss": (DPDecentralizedClassifier, 2),
    "multinomial": (DPDecentralizedClassifier, 3),
    "smoothed_hinge": (DPDecentralizedClassifier, 2),
    "hinges": (DPDecentralizedClassifier, 3),
}
NAMES = {"multinomial": "log_loss", "hinges": "smoothed_hinge"}


def data(name, n=160, p=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(n, p))
    scores = 0.3 + X @ np.resize([1.0, -2.0, 0.5], p) + 0.5 * rng.logistic(size=n)
    n_classes = LOSSES[name][1]
    if n_classes == 3:
        return X, np.digitize(scores, [-0.5, 0.8])
    return X, (scores > 0).astype(int) if n_classes == 2 else scores


def estimator_of(name, penalty="l2", **changed):
    cls = LOSSES[name][0]
    return cls(**({"loss": NAMES.get(name, name), **PENALTIES[penalty]} | changed))


def parameters(model):
    return np.append(np.ravel(model.coef_), model.intercept_)


def comparable(model, penalty):
    """Parameters without what is free: all classes may move together where nothing penalises it."""
    coef, intercept = np.atleast_2d(model.coef_), np.ravel(model.intercept_)
    if len(intercept) > 1:
        intercept = intercept - intercept.mean()
        coef = coef - coef.mean(axis=0) if penalty == "none" else coef
    return np.append(coef.ravel(), intercept)


# Without privacy.


def hinge(margin, width):
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
        return np.mean(hinge(sign * one, 1.0))
    signs = np.where(np.arange(3) == np.asarray(y)[:, None], 1, -1)
    return np.mean(hinge(signs * scores, 1.0).sum(axis=1))


def objective(name, penalty, X, y, coef, intercept):
    knobs = PENALTIES[penalty]
    alpha, kind = knobs.get("alpha", 0.0), knobs["penalty"]
    share = {"l2": 0.0, "l1": 1.0, None: 0.0}.get(kind, knobs.get("l1_ratio", 0.0))
    strength = alpha * (share * np.abs(coef).sum() + (1 - share) * np.sum(coef**2) / 2)
    scores = X @ np.atleast_2d(coef).T + np.ravel(intercept)
    return mean_loss(name, scores, y) + strength


def scikit_learn(name, penalty, n):
    """What minimises the same objective, where scikit-learn has it."""
    alpha = PENALTIES[penalty].get("alpha", 0.0)
    if name == "squared_error":
        return {
            "l2": Ridge(alpha=alpha * n, solver="cholesky"),
            "l1": Lasso(alpha=alpha, tol=1e-14, max_iter=10**6),
            "elastic net": ElasticNet(alpha=alpha, l1_ratio=0.3, tol=1e-14, max_iter=10**6),
            "none": LinearRegression(),
        }[penalty]
    if name in ("log_loss", "multinomial") and penalty in ("l2", "none"):
        C = 1 / (alpha * n) if alpha else np.inf
        return LogisticRegression(C=C, solver="newton-cg", tol=1e-12, max_iter=1000)
    return None


@pytest.mark.parametrize("topology", ["ring", "complete"])
@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("name", LOSSES)
def test_without_privacy_a_network_finds_the_optimum(name, penalty, topology):
    X, y = data(name)
    model = estimator_of(name, penalty, epsilon=math.inf, topology=topology).fit(X, y)
    coef, intercept = model.coef_, np.ravel(model.intercept_)
    reference = scikit_learn(name, penalty, len(X))
    if reference is not None:
        reference.fit(X, y)
        found, expected = comparable(model, penalty), comparable(reference, penalty)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)
    # No direction lowers the objective of the docstring by more than its curvature explains.
    at = objective(name, penalty, X, y, coef, intercept)
    rng = np.random.default_rng(1)
    for size in (1e-2, 1e-4):
        for _ in range(50):
            moved = coef + size * rng.standard_normal(coef.shape)
            aside = intercept + size * rng.standard_normal(intercept.shape)
            assert objective(name, penalty, X, y, moved, aside) >= at - 1e-12


@pytest.mark.parametrize("name", ["huber", "smoothed_hinge", "log_loss"])
def test_without_privacy_smooth_objectives_are_solved_to_six_digits(name):
    X, y = data(name)
    model = estimator_of(name, epsilon=math.inf).fit(X, y)

    def value(w):
        return objective(name, "l2", X, y, w[None, :3], w[3:])

    start = np.zeros(4)
    best = minimize(value, start, method="BFGS", options={"gtol": 1e-10, "maxiter": 10**4}).x
    polished = minimize(value, best, method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-15})
    np.testing.assert_allclose(parameters(model), polished.x, rtol=0, atol=1e-6)


@pytest.mark.parametrize("unit", ["record", "agent"])
@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_without_privacy_no_graph_changes_the_answer(topology, unit):
    for name in ("squared_error", "multinomial"):
        X, y = data(name)
        model = estimator_of(
            name, epsilon=math.inf, n_agents=16, topology=topology, privacy_unit=unit
        ).fit(X, y)
        reference = scikit_learn(name, "l2", len(X)).fit(X, y)
        np.testing.assert_allclose(np.ravel(model.coef_), np.ravel(reference.coef_), atol=1e-6)
        assert model.n_messages_ == model.consensus_error_ == 0


@pytest.mark.parametrize("partition", ["iid", "quantity", "dirichlet", "sorted", 1, 7])
def test_without_privacy_no_partition_changes_the_answer(partition):
    X, y = data("log_loss")
    expected = parameters(estimator_of("log_loss", epsilon=math.inf).fit(X, y))
    found = parameters(estimator_of("log_loss", epsilon=math.inf, partition=partition).fit(X, y))
    np.testing.assert_array_equal(found, expected)
    budgets = [math.inf] * 3
    found = estimator_of("log_loss", epsilon=budgets, partition=3).fit(X, y)
    np.testing.assert_array_equal(parameters(found), expected)


# Other numbers for the same agents.


class NoNoise:
    simulation = True

    def add_gaussian(self, value, scale, stream):
        return value


class NoiseOfAgents:
    """Noise that depends on the step, and on nothing about agents but their mean message."""

    simulation = True

    def add_gaussian(self, value, scale, stream):
        return value + scale * np.random.default_rng(stream).standard_normal(value.shape[1:])


@pytest.mark.parametrize("epsilon", [3.0, math.inf])
@pytest.mark.parametrize("unit", ["record", "agent"])
@pytest.mark.parametrize("name", ["squared_error", "multinomial"])
def test_new_names_for_agents_change_only_rounding(name, unit, epsilon, monkeypatch):
    monkeypatch.setattr(_fitting, "noise_source", lambda *arguments: NoiseOfAgents())
    X, y = data(name)
    agents = np.resize([4, 0, 2, 3, 4, 1], 160)
    graph = named_graph("barabasi-albert", 5)
    model = estimator_of(
        name, epsilon=epsilon, privacy_unit=unit, max_iter=20, conditioning=None, topology=graph
    ).fit(X, y, agents=agents)
    expected, own = parameters(model), model.coef_per_agent_
    for order in ([4, 3, 2, 1, 0], [2, 0, 4, 1, 3]):
        renamed = dict(enumerate(order))
        model.set_params(topology=nx.relabel_nodes(graph, renamed))
        model.fit(X, y, agents=np.array(order)[agents])
        np.testing.assert_allclose(parameters(model), expected, rtol=0, atol=1e-10)
        np.testing.assert_allclose(model.coef_per_agent_[order], own, rtol=0, atol=1e-10)
    words = np.array(["ann", "bob", "cas", "dan", "eve"])
    model.set_params(topology=nx.relabel_nodes(graph, dict(enumerate(words.tolist()))))
    model.fit(X, y, agents=words[agents])
    np.testing.assert_allclose(parameters(model), expected, rtol=0, atol=1e-10)
    np.testing.assert_allclose(model.predict(X, words[agents]), model.predict(X, words[agents]))


# Noise that is left out, and one agent.


@pytest.fixture
def no_noise(monkeypatch):
    monkeypatch.setattr(_fitting, "noise_source", lambda *arguments: NoNoise())
    # Nothing is thresholded that is small beside noise that is not there.
    monkeypatch.setattr(_network_steps, "drop_noise", lambda parameters, *rest: parameters)


WIDE = {"feature_bounds": (-1, 1), "conditioning": None}


@pytest.mark.parametrize("penalty", ["l2", "l1", "elastic net"])
@pytest.mark.parametrize("name", LOSSES)
def test_without_noise_agents_meet_at_the_answer_without_privacy(name, penalty, no_noise):
    X, y = data(name)
    expected = comparable(estimator_of(name, penalty, epsilon=math.inf).fit(X, y), penalty)
    smoothness = 0.5 if name in ("log_loss", "multinomial") else 1.0
    targets = {"target_bounds": (-8, 8)} if name in ("squared_error", "huber") else {}
    algorithm = MultiStepADMM(
        inner_steps=2, step_size=1 / (3 * smoothness), clip_norm=1e4, tail_fraction=1e-9
    )
    model = estimator_of(
        name, penalty, n_agents=8, topology="grid", max_iter=2000, algorithm=algorithm, **targets,
        **WIDE,
    ).fit(X, y)  # fmt: skip
    np.testing.assert_allclose(comparable(model, penalty), expected, rtol=0, atol=1e-6)
    assert model.consensus_error_ < 1e-6
    for own in model.coef_per_agent_:
        np.testing.assert_allclose(np.ravel(own), np.ravel(model.coef_), rtol=0, atol=1e-6)


@pytest.mark.parametrize("conditioning", [None, "private"])
@pytest.mark.parametrize("penalty", PENALTIES)
def test_one_agent_is_a_curator_whatever_the_graph(penalty, conditioning, no_noise):
    X, y = data("squared_error")
    models = [
        estimator_of(
            "squared_error", penalty, n_agents=1, topology=topology, max_iter=30,
            conditioning=conditioning, feature_bounds=(-1, 1), target_bounds=(-8, 8),
            algorithm=MultiStepADMM(inner_steps=4, step_size=0.3, clip_norm=1e4, tail_fraction=1.0),
        ).fit(X, y)
        for topology in ("ring", [[0]])
    ]  # fmt: skip
    np.testing.assert_array_equal(*map(parameters, models))
    rounds = estimator_of(
        "squared_error", penalty, n_agents=1, max_iter=120, conditioning=conditioning,
        feature_bounds=(-1, 1), target_bounds=(-8, 8),
        algorithm=MultiStepADMM(inner_steps=1, step_size=0.3, clip_norm=1e4, tail_fraction=1.0),
    ).fit(X, y)  # fmt: skip
    # Alone, there is nothing to wait for: steps are steps.
    np.testing.assert_allclose(parameters(rounds), parameters(models[0]), rtol=0, atol=1e-9)


# The same bits on every engine.


@pytest.fixture(scope="module")
def client():
    with (
        # Port 0 is any free port: tests run next to each other.
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0") as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


CONTAINERS = {
    "dense": np.asarray,
    "float32": lambda X: X.astype(np.float32),
    "CSR": sparse.csr_matrix,
}


def on_many_blocks(name, unit, penalty="l2", batch_fraction=1.0):
    """A model, and data of several blocks of rows, of more agents than tasks."""
    model = estimator_of(
        name,
        penalty,
        privacy_unit=unit,
        n_agents=40,
        topology="watts-strogatz",
        max_iter=3,
        algorithm=MultiStepADMM(batch_fraction=batch_fraction),
        conditioning="private",
        random_state=0,
    )
    X, y = data(name, n=9000, p=20)
    X[np.abs(X) < 0.5] = 0.0
    return model, X, y


def everything(model):
    return np.concatenate(
        [parameters(model), model.coef_per_agent_.ravel(), model.intercept_per_agent_.ravel()]
    )


@pytest.mark.parametrize("unit", ["record", "agent"])
@pytest.mark.parametrize("convert", CONTAINERS.values(), ids=CONTAINERS)
@pytest.mark.parametrize("name", ["squared_error", "multinomial"])
def test_the_number_of_jobs_changes_no_bit(name, convert, unit):
    model, X, y = on_many_blocks(name, unit)
    X = convert(X)
    expected = everything(model.fit(X, y))
    for n_jobs in (1, 2, 4):
        found = everything(model.set_params(n_jobs=n_jobs).fit(X, y))
        np.testing.assert_array_equal(found, expected)


def assert_dask_changes_no_bit(client, model, X, y):
    expected = everything(model.fit(X, y))
    with client.as_current():
        model.set_params(engine="dask").fit(X, y)
    np.testing.assert_array_equal(everything(model), expected)


@pytest.mark.parametrize("unit", ["record", "agent"])
def test_workers_of_dask_change_no_bit(unit, client):
    model, X, y = on_many_blocks("squared_error", unit)
    assert_dask_changes_no_bit(client, model, X, y)


def test_workers_of_dask_see_the_same_batches(client):
    model, X, y = on_many_blocks("squared_error", "record", batch_fraction=0.2)
    model.set_params(conditioning=None)
    assert_dask_changes_no_bit(client, model, X, y)


@pytest.mark.slow
@pytest.mark.parametrize("penalty", ["l1", "none"])
@pytest.mark.parametrize("unit", ["record", "agent"])
@pytest.mark.parametrize("convert", CONTAINERS.values(), ids=CONTAINERS)
@pytest.mark.parametrize("name", LOSSES)
def test_workers_of_dask_change_no_bit_of_any_model(name, convert, unit, penalty, client):
    model, X, y = on_many_blocks(name, unit, penalty)
    assert_dask_changes_no_bit(client, model.set_params(n_agents=5), convert(X), y)


@pytest.mark.parametrize("unit", ["record", "agent"])
@pytest.mark.parametrize("penalty", ["l1", "l2"])
@pytest.mark.parametrize("name", LOSSES)
def test_the_container_changes_only_rounding(name, penalty, unit):
    X, y = data(name)
    X[np.abs(X) < 0.5] = 0.0
    model = estimator_of(
        name, penalty, privacy_unit=unit, n_agents=6, max_iter=10, topology="star", random_state=0
    )
    expected = parameters(model.fit(X, y))
    for convert in (np.asfortranarray, sparse.csr_matrix, sparse.csc_array):
        found = parameters(model.fit(convert(X), y))
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


# Defaults.


@pytest.mark.parametrize("topology", ["complete", "ring", "star"])
@pytest.mark.parametrize("name", ["squared_error", "log_loss"])
def test_defaults_learn_an_easy_problem_on_any_graph(name, topology):
    rng = np.random.default_rng(1)
    X = rng.uniform(-1, 1, size=(20_000, 5))
    score = X @ [1.0, -1.0, 0.5, 0.0, 0.5] + 0.1 * rng.normal(size=20_000)
    y = score if name == "squared_error" else rng.random(20_000) < expit(20 * score)
    scores = [
        estimator_of(
            name, alpha=1e-4, topology=topology, feature_bounds=(-1, 1), epsilon=3.0,
            random_state=seed,
        ).fit(X, y).score(X, y)
        for seed in range(5)
    ]  # fmt: skip
    assert np.median(scores) > 0.85
