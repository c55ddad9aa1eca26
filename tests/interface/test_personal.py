"""Personal models: who is like whom, agents without rows, new agents, refits at home."""

import math
import pickle

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from scipy.special import expit, softmax
from sklearn.base import clone, is_classifier
from sklearn.exceptions import NotFittedError

from skdpadmm import DPPersonalizedClassifier, DPPersonalizedRegressor
from skdpadmm.network import knn_similarity, resolve_similarity
from tests.interface.registry import ROWS, assert_alike, plan_of
from tests.interface.test_agents import raw_scores
from tests.interface.test_limits import assert_minimum, comparable, mean_loss

TOWNS = np.array(["", "east", "north", "west"])[np.resize([3, 1, 2, 1], 60)]
NAMES = ["east", "north", "south", "west"]
WEIGHTS = np.array(
    [[0.0, 1.0, 0.2, 0.0], [1.0, 0.0, 0.0, 0.5], [0.2, 0.0, 0.0, 2.0], [0.0, 0.5, 2.0, 0.0]]
)
AGENTS = np.resize([0, 1, 2, 1, 3, 1], 180)
LOSSES = {
    "squared_error": ("ridge", DPPersonalizedRegressor, "squared_error"),
    "huber": ("ridge", DPPersonalizedRegressor, "huber"),
    "log_loss": ("logistic", DPPersonalizedClassifier, "log_loss"),
    "multinomial": ("multinomial", DPPersonalizedClassifier, "log_loss"),
    "smoothed_hinge": ("logistic", DPPersonalizedClassifier, "smoothed_hinge"),
    "hinges": ("multinomial", DPPersonalizedClassifier, "smoothed_hinge"),
}


@pytest.fixture(params=["personal", "personal classes"])
def estimator(request):
    return ROWS[request.param].make()


@pytest.fixture
def data(estimator):
    return ROWS["logistic" if is_classifier(estimator) else "ridge"].data()


def models(model):
    """Parameters of all agents, of shape (n_agents, n_outputs, n_features + 1)."""
    n, p = len(model.agent_labels_), model.coef_per_agent_.shape[-1]
    coef = model.coef_per_agent_.reshape(n, -1, p)
    return np.dstack([coef, model.intercept_per_agent_.reshape(n, -1)])


def by_hand(X, parameters):
    """Scores of rows by the parameters of one agent with one output."""
    return X @ parameters[0, :-1] + parameters[0, -1]


def frame(matrix, *names):
    return pd.DataFrame(np.array(matrix, dtype=float), index=names, columns=names)


# Whose model.


def test_without_agents_it_is_an_ordinary_estimator_and_with_them_it_asks_whose(estimator, data):
    X, y = data
    estimator.fit(X, y)
    assert estimator.agent_labels_.tolist() == [0]
    assert estimator.n_messages_ == 0
    np.testing.assert_allclose(raw_scores(estimator, X), by_hand(X, models(estimator)[0]))
    assert_alike(estimator.predict(X), estimator.predict(X, agents=[0] * 60))
    assert "made up" not in repr(estimator.privacy_)
    estimator.fit(X, y, agents=TOWNS)
    for ask in (estimator.predict, lambda X: estimator.score(X, y)):
        with pytest.raises(ValueError, match=r"^Got agents=None for the models of 3 agents.*'east"):
            ask(X)
    average = models(estimator).mean(axis=0)
    np.testing.assert_allclose(estimator.coef_.ravel(), average[0, :-1], rtol=1e-9)


# Agents without rows.


def test_an_agent_without_rows_gets_a_model_from_its_neighbours(estimator, data, plans):
    similarity = frame([[0, 0, 1, 0], [0, 0, 0, 2], [1, 0, 0, 3], [0, 2, 3, 0]], *NAMES)
    X, y = data
    estimator.set_params(similarity=similarity).fit(X, y, agents=TOWNS)
    assert estimator.agent_labels_.tolist() == NAMES
    assert plans[0].facts.agents.agent_sizes == (30, 15, 0, 15)
    by_label = {"west": 15, "east": 30, "north": 15}
    for sizes in ([30, 15, 0, 15], by_label, pd.Series(by_label | {"south": 0})):
        assert plans == [plan_of(estimator, 60, 3, agent_sizes=sizes)]
    found = raw_scores(estimator, X, agents=["south"] * 60)
    assert_alike(found, by_hand(X, models(estimator)[2]))
    assert estimator.privacy_.epsilon_per_agent().shape == (4,)
    east, _, south, west = models(estimator.set_params(epsilon=math.inf).fit(X, y, agents=TOWNS))
    np.testing.assert_allclose(south, 0.25 * east + 0.75 * west, rtol=0, atol=1e-6)
    for settings in ({}, {"n_agents": 4}):
        with pytest.raises(ValueError, match=r"^Got a similarity .*'east'.*labels of the agents"):
            clone(estimator).set_params(**settings).fit(X, y)


def test_relations_with_labels_are_read_by_them():
    X, y = ROWS["personal"].data()
    model = ROWS["personal"].make()
    features = pd.DataFrame({"x": [3.0, 0.0, 2.0, 1.0]}, index=["west", "east", "south", "north"])
    model.set_params(similarity="gaussian", agent_features=features).fit(X, y, agents=TOWNS)
    assert model.agent_labels_.tolist() == NAMES
    assert model.similarity_ == resolve_similarity("gaussian", np.array(NAMES), features)
    model = ROWS["personal"].make(similarity=knn_similarity(features.iloc[1:], 2))
    with pytest.raises(ValueError, match=r"no node for agents \['west'\]"):
        model.fit(X, y, agents=TOWNS)
    with pytest.raises(ValueError, match=r"^Got a similarity of 3 nodes for 1 agents"):
        model.set_params(similarity=nx.path_graph(3)).fit(X, y)
    with pytest.raises(ValueError, match=r"makes up labels 0, 1, ...: pass agents"):
        ROWS["personal"].make(epsilon={"east": 1.0}).fit(X, y)


# At home.


def test_a_refit_at_home_is_an_estimator_that_stores_and_says_nothing(estimator, data, plans):
    X, y = data
    rows = pd.DataFrame(X, columns=["a", "b", "c"]).assign(town=TOWNS)
    with pytest.raises(NotFittedError):
        estimator.local_model("west", X, y)
    estimator.set_params(agent_column="town").fit(rows, y)
    plans.clear()
    before, own = dict(vars(estimator)), TOWNS == "west"
    west = rows[own]
    model = estimator.local_model("west", west, y[own])
    everybody = clone(estimator).set_params(n_jobs=2).fit(rows, y).local_models(rows, y)
    plans.clear()
    assert list(everybody) == sorted(set(TOWNS))
    assert estimator.local_models(rows, y)["west"].coef_.tolist() == model.coef_.tolist()
    assert not plans
    assert all(vars(estimator)[name] is before[name] for name in before)
    assert (model.agent_, model.n_features_in_, model.get_params()) == ("west", 4, {})
    assert is_classifier(model) == is_classifier(estimator)
    bare = west.drop(columns="town")
    expected = bare.to_numpy() @ np.ravel(model.coef_) + np.ravel(model.intercept_)
    assert_alike(raw_scores(model, west), expected)
    loaded = pickle.loads(pickle.dumps(model))
    assert_alike(loaded.predict(west), model.predict(west))
    for action, error, message in [
        (lambda: model.fit(X, y), TypeError, "local_model"),
        (lambda: clone(model).predict(west), NotFittedError, "not fitted"),
        (lambda: model.predict(west[["b", "a", "c", "town"]]), ValueError, "feature names"),
        (
            lambda: estimator.local_model("west", rows, y),
            ValueError,
            "^Got rows of other agents .*west",
        ),
        (lambda: estimator.local_model("south", rows, y), ValueError, "^Got an agent without rows"),
        (lambda: estimator.local_model("west", west, y), ValueError, "inconsistent numbers"),
    ]:
        with pytest.raises(error, match=message):
            action()


@pytest.mark.parametrize("name", ["logistic", "multinomial"])
def test_probabilities_are_those_of_agents_models_and_at_home_those_of_the_scores(name):
    X, y = ROWS[name].data()
    words = np.array(["no", "perhaps", "yes"])[y]
    fitted = ROWS["personal classes"].make().fit(X, words, agents=TOWNS)
    proba = fitted.predict_proba(X, agents=TOWNS)
    best = fitted.classes_[proba.argmax(axis=1)]
    np.testing.assert_array_equal(best, fitted.predict(X, agents=TOWNS))
    own = TOWNS == "west"
    model = fitted.local_model("west", X[own], words[own])
    scores = model.decision_function(X)
    expected = softmax(scores, axis=1) if scores.ndim == 2 else expit(scores)
    proba = model.predict_proba(X)
    np.testing.assert_allclose(proba if scores.ndim == 2 else proba[:, 1], expected)
    np.testing.assert_array_equal(model.classes_[proba.argmax(axis=1)], model.predict(X))
    with pytest.raises(ValueError, match=r"^Got labels in y that are not among"):
        fitted.local_model("west", X, np.where(own, "never", words))
    hinge = fitted.set_params(loss="smoothed_hinge").fit(X, words, agents=TOWNS)
    assert not hasattr(hinge, "predict_proba")
    assert not hasattr(hinge.local_model("west", X, words), "predict_proba")


# Without privacy.


def exact(name, **changed):
    row, cls, loss = LOSSES[name]
    X, y = ROWS[row].data(n=180)
    settings = {"loss": loss, "alpha": 0.1, "epsilon": math.inf, "random_state": 0}
    # Bounds of one unit each: public units are those of the user.
    settings["feature_bounds"] = (-1, 1)
    if row == "ridge":
        settings |= {"target_bounds": (-1, 1), "huber_threshold": 0.6}
    return cls(**(settings | changed)), X, y


def objective(name, X, y, found, trade_off, weights=WEIGHTS):
    """The objective of the docstring, where public units are those of the user."""
    differences = found[:, None] - found[None]
    # Each pair is there twice.
    value = 0.25 * np.sum(weights * np.sum(differences**2, axis=(2, 3)))
    sizes = np.bincount(AGENTS, minlength=len(found))
    for i in range(len(found)):
        own, w = AGENTS == i, found[i]
        loss = mean_loss(LOSSES[name][2], X[own] @ w[:, :-1].T + w[:, -1], y[own])
        share = weights[i].sum() * sizes[i] / sizes.max()
        value += trade_off * share * (loss + 0.05 * np.sum(w[:, :-1] ** 2))
    return value


def each(model):
    """What is determined of the models of all agents."""
    return np.array([comparable(found[:, :-1], found[:, -1]) for found in models(model)])


@pytest.mark.parametrize("name", LOSSES)
def test_without_privacy_models_minimise_the_objective_and_so_does_a_refit_at_home(name):
    model, X, y = exact(name, similarity=WEIGHTS, trade_off=5.0)
    model.fit(X, y, agents=AGENTS)
    assert_minimum(lambda found: objective(name, X, y, found, 5.0), models(model))
    own = AGENTS == 2
    home = model.local_model(2, X[own], y[own])
    np.testing.assert_allclose(
        comparable(home.coef_, home.intercept_), each(model)[2], rtol=0, atol=1e-6
    )
    # A score is not lost among the digits of what all classes share.
    assert np.abs(home.intercept_).max() < 100
    # Beside noisy models of others it minimises over its own, and rows beyond the bounds count.
    noisy = clone(model).set_params(epsilon=1.0).fit(X, y, agents=AGENTS)
    for scale in (1.0, 3.0):
        beside, wide = models(noisy), np.where(own[:, None], scale * X, X)
        home = noisy.local_model(2, wide[own], y[own])

        def value(w, beside=beside, wide=wide):
            found = beside.copy()
            found[2] = w
            return objective(name, wide, y, found, 5.0)

        assert_minimum(
            value, np.column_stack([np.atleast_2d(home.coef_), np.ravel(home.intercept_)])
        )


@pytest.mark.parametrize("confidence", [None, [1.0, 0.1, 0.5, 0.9]])
def test_without_privacy_squared_losses_are_a_linear_system_in_declared_units(confidence):
    low, high = np.array([-1.0, -3.0, 0.0]), np.array([1.0, 5.0, 10.0])
    model, X, y = exact(
        "squared_error", similarity=WEIGHTS, trade_off=2.0, feature_bounds=(low, high),
        target_bounds=(-10.0, 30.0), confidence=confidence,
    )  # fmt: skip
    X = low + (X + 1) / 2 * (high - low)
    model.fit(X, y, agents=AGENTS)
    offset, scale, middle, unit = (low + high) / 2, (high - low) / 2, 10.0, 20.0
    A, d = np.column_stack([(X - offset) / scale, np.ones(180)]), 4
    b = (y - middle) / unit
    sizes, degrees = np.bincount(AGENTS), WEIGHTS.sum(axis=1)
    c = sizes / sizes.max() if confidence is None else np.resize(confidence, 4)
    # Of the penalty, in the units of these parameters.
    ridge = 0.1 * np.diag(np.append(1 / scale**2, 0.0))
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
    intercept = middle + unit * expected[:, 3] - coef @ offset
    np.testing.assert_allclose(model.intercept_per_agent_, intercept, rtol=0, atol=1e-7)
    np.testing.assert_allclose(model.coef_, coef.mean(axis=0), rtol=0, atol=1e-7)
