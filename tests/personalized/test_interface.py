"""Personalised estimators as users meet them: whose model answers, routing, plans, errors."""

from __future__ import annotations

import inspect
import io
import math
import pickle
from contextlib import redirect_stderr

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import sklearn
from scipy import sparse
from scipy.special import expit, softmax
from sklearn import config_context
from sklearn.base import clone, is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import get_tags
from sklearn.utils._param_validation import InvalidParameterError
from sklearn.utils.fixes import parse_version

from skdpadmm import DPPersonalizedClassifier, DPPersonalizedRegressor, _fitting
from skdpadmm.algorithms import MultiStepADMM, PersonalizedCoordinateDescent
from skdpadmm.network import Similarity, knn_similarity, resolve_similarity
from skdpadmm.protocol import Neighborhood

ESTIMATORS = [DPPersonalizedRegressor, DPPersonalizedClassifier]
OBSERVERS = ("eavesdropper", "model")
INVALID_EVERYWHERE = {
    "loss": ["squared", "", None, 1],
    "alpha": [-1e-9, math.nan, math.inf, None, "1"],
    "trade_off": [0, -1.0, math.nan, math.inf, None, "1"],
    "confidence": [0.0, -0.5, 1.5, math.nan, "1"],
    "epsilon": [0, -1.0, math.nan, "1", None],
    "delta": [0, 1, -1e-5, math.nan, None],
    "privacy_unit": ["row", "user", None],
    "partition": ["random", "", 1.5],
    "n_agents": [0, -1, 2.5, "2"],
    "agent_column": [1.5, ("a",)],
    "neighboring": ["replace-one", "add_remove", None],
    "fit_intercept": ["yes", None, 2],
    "algorithm": [3, None, object()],
    "max_iter": [0, -1, 1.5, None],
    "sampler": ["OpenDP", None],
    "ledger": [3, True, b"study.db"],
    "verbose": [-1, "yes", None],
}
INVALID = {
    DPPersonalizedRegressor: {"huber_threshold": [0, -1, math.nan, None]},
    DPPersonalizedClassifier: {"smoothing": [0, -1, math.nan, None], "classes": ["ab", 3]},
}
CHECKED_IN_FIT = {
    "feature_bounds", "target_bounds", "random_state", "similarity", "agent_features",
}  # fmt: skip
CASES = [
    pytest.param(cls, name, value, id=f"{cls.__name__}-{name}={value!r:.12}")
    for cls in ESTIMATORS
    for name, values in (INVALID_EVERYWHERE | INVALID[cls]).items()
    for value in values
]
AGENTS = np.resize([3, 1, 2, 1], 200)
TOWNS = np.array(["", "east", "north", "west"])[AGENTS]


@pytest.fixture
def regression():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(200, 3))
    return X, X @ [1.0, -1.0, 0.5]


@pytest.fixture
def classification(regression):
    X, score = regression
    return X, (score > 0).astype(int)


@pytest.fixture(params=ESTIMATORS, ids=lambda cls: cls.__name__)
def estimator(request):
    return request.param(random_state=0, max_iter=10, alpha=0.01)


@pytest.fixture
def plans(monkeypatch):
    """The plans that pass through the gate while fitting."""
    seen = []

    class Spy(_fitting.Gate):
        def __init__(self, plan, noise):
            seen.append(plan)
            super().__init__(plan, noise)

    monkeypatch.setattr(_fitting, "Gate", Spy)
    return seen


def models(model):
    """Parameters of all agents, one row for each."""
    n = len(model.agent_labels_)
    coef, intercept = model.coef_per_agent_, model.intercept_per_agent_
    return np.column_stack([coef.reshape(n, -1), intercept.reshape(n, -1)])


def plan_of(model, *args, **kwargs):
    if is_classifier(model):
        kwargs = {"n_classes": 2} | kwargs
    return model.plan(*args, **kwargs)


def small(**changed):
    settings = {"max_iter": 5, "random_state": 0, "alpha": 0.01}
    return DPPersonalizedRegressor(**(settings | changed))


def scores_of(model, X, **whose):
    """What a model says of rows, as numbers."""
    ask = model.decision_function if is_classifier(model) else model.predict
    return ask(X, **whose)


def by_hand(X, row):
    """Scores of rows by the parameters of one agent with one output."""
    return X @ row[:-1] + row[-1]


def assert_unfitted(model):
    assert set(vars(model)) == set(inspect.signature(type(model)).parameters)


def frame(matrix, *names):
    return pd.DataFrame(np.array(matrix, dtype=float), index=names, columns=names)


# Parameters.


def test_every_parameter_of_a_constructor_has_its_case_here():
    for cls in ESTIMATORS:
        names = set(inspect.signature(cls).parameters)
        assert names == set(INVALID_EVERYWHERE | INVALID[cls]) | (CHECKED_IN_FIT & names)


@pytest.mark.parametrize(("cls", "name", "value"), CASES)
def test_an_invalid_parameter_is_named(cls, name, value, classification):
    model = cls(**{name: value})
    message = f"The '{name}' parameter of {cls.__name__} must be"
    with pytest.raises(InvalidParameterError, match=message):
        model.fit(*classification)
    with pytest.raises(InvalidParameterError, match=message):
        plan_of(model, 100, 3)
    assert_unfitted(model)


def linked(*entries, n=10):
    """A path as a matrix, with some entries changed."""
    matrix = nx.to_numpy_array(nx.path_graph(n))
    for i, j, value in entries:
        matrix[i, j] = value
    return matrix


BAD_SIMILARITIES = {
    "negative": (linked((0, 1, -1), (1, 0, -1)), r"between agents \[0, 1\], expected none below"),
    "asymmetric": (linked((0, 1, 2)), r"between agents \[0, 1\], expected a symmetric matrix"),
    "like themselves": (linked((4, 4, 1)), r"agents \[4\] to themselves"),
    "an agent like nobody": (linked((0, 1, 0), (1, 0, 0)), r"agents \[0\] are like nobody"),
    "nobody is like anybody": (np.zeros((10, 10)), "are like nobody"),
    "in two parts": (linked((4, 5, 0), (5, 4, 0)), "2 components.*expected a connected graph"),
    "missing": (linked((0, 1, math.nan), (1, 0, math.nan)), "NaN or infinite"),
    "infinite": (linked((0, 1, math.inf), (1, 0, math.inf)), "NaN or infinite"),
    "words": (np.full((10, 10), "a"), "^Got similarity of dtype"),
    "another size": (np.ones((9, 9)), r"^Got similarity of shape \(9, 9\), expected"),
    "a Similarity of others": (Similarity(n_agents=9), "^Got a similarity of 9 agents for 10"),
    "a graph of others": (nx.path_graph(11), "with unknown nodes"),
    "too few nodes": (nx.path_graph(4), "^Got a similarity without agents"),
    "directed": (nx.complete_graph(10).to_directed(), "^Got a directed graph"),
    "a number": (3, "^Got similarity=3, expected one of"),
    "nothing": (None, "^Got similarity=None, expected one of"),
    "an unknown name": ("cosine", "^Got similarity='cosine', expected one of"),
    "a name without features": ("knn", "^Got similarity='knn' without features"),
}
REFUSED = {
    **{name: ({"similarity": of}, message) for name, (of, message) in BAD_SIMILARITIES.items()},
    "features of others": (
        {"similarity": "gaussian", "agent_features": np.ones((9, 2))},
        r"^Got features of shape \(9, 2\)",
    ),
    "features that are missing": (
        {"similarity": "knn", "agent_features": np.full((10, 1), math.nan)}, "^Got features"
    ),
    "confidences too few": ({"confidence": [0.5, 1.0]}, "^Got 2 values of confidence for 10"),
    "a confidence of zero": ({"confidence": [1.0] * 9 + [0.0]}, "^Got confidence={9: 0.0}"),
    "a confidence above one": ({"confidence": [1.0] * 9 + [1.1]}, "^Got confidence={9: 1.1}"),
    "a confidence that is missing": (
        {"confidence": [1.0] * 9 + [math.nan]}, "^Got confidence={9: nan}, expected"
    ),
    "many confidences": ({"confidence": [2.0] * 10}, "4: 2.0} and others, expected"),
    "features that nobody looks at": (
        {"agent_features": np.ones((10, 2))}, "^Got features of the agents with similarity='unif"
    ),
    "neighbours that are everybody": (
        {"similarity": "knn", "agent_features": np.ones((10, 2))}, "^Got similarity='knn' for 10"
    ),
    "angles": ({"similarity": "angle"}, "angle_similarity"),
    "confidences in two dimensions": ({"confidence": [[1.0] * 10]}, "^Got confidence="),
    "confidences in words": ({"confidence": ["high"] * 10}, "^Got confidence="),
    "epsilons too few": ({"epsilon": [1.0, 2.0]}, "^Got 2 values of epsilon for 10 agents"),
    "an epsilon of zero": ({"epsilon": [0.0] + [1.0] * 9}, "^Got epsilon="),
    "some epsilons infinite": ({"epsilon": [math.inf] + [1.0] * 9}, "all of them finite or all"),
    "more agents than rows": ({"n_agents": 201}, "^Got n_agents=201 for 200 rows"),
    "no agents": ({"partition": 0, "n_agents": None}, "^Got partition=0, expected"),
    "two numbers of agents": ({"partition": 3, "n_agents": 3}, "^Got n_agents=3 with partition=3"),
    "another setting": (
        {"algorithm": "multi-step-admm"}, "^Got algorithm='multi-step-admm' .*personalized"
    ),
    "an object for another setting": (
        {"algorithm": MultiStepADMM()}, "^Got algorithm=MultiStepADMM.*'personalized-coordinate"
    ),
    "an unknown algorithm": ({"algorithm": "admm"}, "^Got algorithm='admm'"),
    "a knob out of range": (
        {"algorithm": PersonalizedCoordinateDescent(turns=0)}, "^Got turns=0, expected"
    ),
}  # fmt: skip


@pytest.mark.parametrize("epsilon", [1.0, math.inf])
@pytest.mark.parametrize(("parameters", "message"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_is_refused_by_fit_and_by_plan(
    estimator, parameters, message, epsilon, classification, plans
):
    estimator.set_params(**({"epsilon": epsilon, "n_agents": 10} | parameters))
    with pytest.raises(ValueError, match=message):
        plan_of(estimator, 200, 3)
    with pytest.raises(ValueError, match=message):
        estimator.fit(*classification)
    assert_unfitted(estimator)
    assert not plans


@pytest.mark.parametrize("name", ["step_size", "learning_rate", "alphas"])
def test_nobody_can_ask_for_steps_that_look_at_data(name):
    with pytest.raises(TypeError, match=name):
        PersonalizedCoordinateDescent(**{name: 0.1})
    with pytest.raises(ValueError, match=name):
        small(algorithm=PersonalizedCoordinateDescent()).set_params(**{f"algorithm__{name}": 0.1})


def test_sample_weights_are_refused(estimator, classification):
    X, y = classification
    with pytest.raises(TypeError, match="sample_weight"):
        estimator.fit(X, y, sample_weight=np.ones(len(y)))


def test_constructors_are_keyword_only_and_only_assign(estimator):
    cls = type(estimator)
    names = inspect.signature(cls).parameters
    assert all(p.kind is p.KEYWORD_ONLY for p in names.values())
    marker = object()
    assert vars(cls(**dict.fromkeys(names, marker))) == dict.fromkeys(names, marker)


PATHS = [nx.path_graph(3), linked(n=3), sparse.csr_array(linked(n=3)), frame(linked(n=3), 0, 1, 2)]


@pytest.mark.parametrize("similarity", PATHS)
def test_clone_and_pickle_keep_what_they_should(similarity, estimator, classification):
    X, y = classification
    estimator.set_params(algorithm=PersonalizedCoordinateDescent(turns=2), epsilon=[1.0, 2.0, 3.0])
    estimator.set_params(partition=3, similarity=similarity).fit(X, y)
    fresh = clone(estimator)
    assert_unfitted(fresh)
    assert fresh.get_params()["algorithm__turns"] == 2
    np.testing.assert_array_equal(models(fresh.fit(X, y)), models(estimator))
    loaded, who = pickle.loads(pickle.dumps(estimator)), np.resize([0, 1, 2], 200)
    np.testing.assert_array_equal(loaded.predict(X, who), estimator.predict(X, who))
    assert loaded.privacy_ == estimator.privacy_
    assert loaded.similarity_ == estimator.similarity_
    np.testing.assert_array_equal(
        loaded.local_model(1, X, y).coef_, estimator.local_model(1, X, y).coef_
    )


def test_names_show_only_what_was_changed():
    assert repr(DPPersonalizedRegressor()) == "DPPersonalizedRegressor()"
    changed = DPPersonalizedClassifier(similarity="knn", trade_off=2.0)
    assert repr(changed) == "DPPersonalizedClassifier(similarity='knn', trade_off=2.0)"


# Whose model.


def test_without_agents_the_estimator_is_an_ordinary_one(estimator, classification):
    X, y = classification
    estimator.fit(X, y)
    assert estimator.agent_labels_.tolist() == [0]
    assert estimator.n_messages_ == estimator.bytes_sent_ == 0
    np.testing.assert_array_equal(np.ravel(estimator.coef_per_agent_), np.ravel(estimator.coef_))
    np.testing.assert_array_equal(
        np.ravel(estimator.intercept_per_agent_), np.ravel(estimator.intercept_)
    )
    expected = X @ np.ravel(estimator.coef_) + np.ravel(estimator.intercept_)
    np.testing.assert_allclose(scores_of(estimator, X), expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(estimator.predict(X), estimator.predict(X, agents=[0] * 200))
    assert "made up" not in repr(estimator.privacy_)
    assert estimator.privacy_.epsilon() == pytest.approx(1.0, rel=1e-6)


def test_with_agents_a_prediction_without_them_is_refused(estimator, classification):
    X, y = classification
    estimator.fit(X, y, agents=TOWNS)
    asks = [estimator.predict, lambda X: estimator.score(X, y)]
    if is_classifier(estimator):
        asks += [
            estimator.decision_function, estimator.predict_proba, estimator.predict_log_proba
        ]  # fmt: skip
    for ask in asks:
        with pytest.raises(ValueError, match=r"^Got agents=None for the models of 3 agents.*'east"):
            ask(X)
    assert estimator.score(X, y, agents=TOWNS) <= 1


LABELS = {
    "int": AGENTS,
    "list": AGENTS.tolist(),
    "negative": -AGENTS,
    "str": TOWNS,
    "object": TOWNS.astype(object),
    "float": AGENTS / 2,
    "bool": AGENTS == 1,
    "Series": pd.Series(AGENTS, index=np.arange(200)[::-1]),
    "categories": pd.Series(TOWNS).astype("category"),
    "dates": np.datetime64("2020-01-01") + AGENTS,
}


@pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS)
def test_agents_are_labels_of_any_type(labels, estimator, classification):
    X, y = classification
    estimator.fit(X, y, agents=labels)
    np.testing.assert_array_equal(estimator.agent_labels_, np.unique(np.asarray(labels)))
    found = scores_of(estimator, X, agents=labels)
    for agent, label in enumerate(estimator.agent_labels_):
        mine = np.asarray(labels) == label
        expected = by_hand(X[mine], models(estimator)[agent])
        np.testing.assert_allclose(found[mine], expected, rtol=1e-12, atol=1e-12)
    average = np.append(np.ravel(estimator.coef_), estimator.intercept_)
    np.testing.assert_allclose(average, models(estimator).mean(axis=0), rtol=1e-9, atol=1e-12)


BAD_AGENTS = {
    "too short": AGENTS[1:],
    "too long": np.append(AGENTS, 1),
    "two dimensions": AGENTS[:, None],
    "one label": "east",
    "a number": 3,
    "empty": [],
    "None among them": [None, *AGENTS[1:]],
    "NaN among them": np.where(np.arange(200) == 5, np.nan, AGENTS),
    "two types": [1] + ["a"] * 199,
}


@pytest.mark.parametrize("labels", BAD_AGENTS.values(), ids=BAD_AGENTS)
def test_labels_that_name_no_owner_are_refused(labels, estimator, classification, plans):
    X, y = classification
    with pytest.raises((ValueError, TypeError), match=r"^Got agents.*expected"):
        estimator.fit(X, y, agents=labels)
    assert_unfitted(estimator)
    assert not plans
    estimator.fit(X, y, agents=AGENTS)
    for ask in (estimator.predict, lambda X, agents: estimator.score(X, y, agents=agents)):
        with pytest.raises((ValueError, TypeError), match=r"^Got agents.*expected"):
            ask(X, agents=labels)


# Agents that a fit has not seen.


def test_a_new_agent_is_predicted_for_by_those_it_is_like(estimator, classification):
    X, y = classification
    estimator.fit(X, y, agents=TOWNS)
    east, north, west = models(estimator)
    labels = np.resize(["south", "east", "centre"], 200)
    expected = np.select(
        [labels == "south", labels == "east"],
        [by_hand(X, 0.25 * east + 0.75 * west), by_hand(X, east)],
        by_hand(X, north),
    )
    rows = pd.DataFrame(
        {"west": [9.0, 3.0, 0.0], "north": [9.0, 0.0, 2.0], "east": [9.0, 1.0, 0.0]},
        index=["west", "south", "centre"],
    )
    forms = {
        "frame": rows,
        "without who is not alike": rows.loc[["centre", "south"]].astype(int),
        # In the order of the sorted labels: centre, south.
        "array": np.array([[0.0, 2.0, 0.0], [1.0, 0.0, 3.0]]),
        "list": [[0, 1, 0], [10, 0, 30]],
    }
    for form in forms.values():
        found = scores_of(estimator, X, agents=labels, similarities=form)
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
    assert estimator.score(X, y, agents=labels, similarities=rows) <= 1
    # One column is enough where there is nobody else like it.
    one = pd.DataFrame({"west": [5.0]}, index=["south"])
    found = scores_of(estimator, X, agents=["south"] * 200, similarities=one)
    np.testing.assert_allclose(found, by_hand(X, west), rtol=1e-12, atol=1e-12)
    # Known agents have models of their own, whatever they are like.
    np.testing.assert_array_equal(
        scores_of(estimator, X, agents=TOWNS, similarities=rows),
        scores_of(estimator, X, agents=TOWNS),
    )


BAD_NEIGHBOURS = {
    "none": (None, r"^Got agents \['south'\], expected labels of agents in the fit.*similarities"),
    "too few columns": ([[1, 2]], r"^Got similarities of shape \(1, 2\), expected \(1, 3\)"),
    "too many rows": (np.ones((2, 3)), r"^Got similarities of shape \(2, 3\)"),
    "one dimension": ([1, 2, 3], r"^Got similarities of shape \(3,\)"),
    "all zero": (np.zeros((1, 3)), "^Got similarities that are all zero"),
    "negative": ([[1, -1, 1]], "^Got similarities that are negative"),
    "missing": ([[1, math.nan, 1]], "^Got similarities that are negative or not finite"),
    "words": ([["a", "b", "c"]], "^Got similarities of shape .* dtype"),
    "another row": (
        pd.DataFrame({"east": [1.0]}, index=["South"]), r"without rows of agents \['south'\]"
    ),
    "a row twice": (
        pd.DataFrame({"east": [1.0, 2.0]}, index=["south", "south"]), r"of agents \['south'\]"
    ),
    "an unknown column": (
        pd.DataFrame({"East": [1.0]}, index=["south"]), r"unknown columns \['East'\]"
    ),
}  # fmt: skip


@pytest.mark.parametrize(("given", "message"), BAD_NEIGHBOURS.values(), ids=BAD_NEIGHBOURS)
def test_a_new_agent_without_neighbours_is_refused(given, message, estimator, classification):
    X, y = classification
    estimator.fit(X, y, agents=TOWNS)
    with pytest.raises(ValueError, match=message):
        estimator.predict(X, agents=np.where(TOWNS == "east", "south", TOWNS), similarities=given)


# Agents without rows.


def with_graph(labels, weights):
    graph = nx.Graph()
    graph.add_nodes_from(labels)
    graph.add_weighted_edges_from(weights)
    return graph


ALIKE = [("east", "south", 1.0), ("south", "west", 3.0), ("north", "west", 2.0)]
NAMES = ["east", "north", "south", "west"]
COLD = {
    "graph": with_graph(NAMES, ALIKE),
    "graph in another order": with_graph(NAMES[::-1], ALIKE[::-1]),
    "frame": frame([[0, 0, 1, 0], [0, 0, 0, 2], [1, 0, 0, 3], [0, 2, 3, 0]], *NAMES),
}


@pytest.mark.parametrize("similarity", COLD.values(), ids=COLD)
def test_an_agent_without_rows_gets_a_model_from_its_neighbours(
    similarity, estimator, classification, plans
):
    X, y = classification
    estimator.set_params(similarity=similarity).fit(X, y, agents=TOWNS)
    assert estimator.agent_labels_.tolist() == NAMES
    assert estimator.similarity_.n_agents == 4
    assert plans[0].facts.agents.agent_sizes == (100, 50, 0, 50)
    assert plans == [plan_of(estimator, 200, 3, agent_sizes=[100, 50, 0, 50])]
    south = models(estimator)[2]
    assert south.any()
    found = scores_of(estimator, X, agents=["south"] * 200)
    np.testing.assert_allclose(found, by_hand(X, south), rtol=1e-12, atol=1e-12)
    assert estimator.privacy_.epsilon_per_agent().shape == (4,)
    estimator.set_params(epsilon=math.inf).fit(X, y, agents=TOWNS)
    east, _, south, west = models(estimator)
    np.testing.assert_allclose(south, 0.25 * east + 0.75 * west, rtol=0, atol=1e-6)


def test_features_of_agents_name_those_without_rows_too(estimator, classification):
    X, y = classification
    features = pd.DataFrame({"x": [3.0, 0.0, 2.0, 1.0]}, index=["west", "east", "south", "north"])
    estimator.set_params(similarity="gaussian", agent_features=features)
    estimator.fit(X, y, agents=TOWNS)
    assert estimator.agent_labels_.tolist() == NAMES
    expected = resolve_similarity("gaussian", np.array(NAMES), features)
    assert estimator.similarity_ == expected
    estimator.set_params(similarity="uniform")
    with pytest.raises(ValueError, match=r"^Got features of the agents with similarity='uniform'"):
        estimator.fit(X, y, agents=TOWNS)


def test_agents_that_are_made_up_have_rows(estimator, classification):
    X, y = classification
    estimator.set_params(similarity=nx.path_graph(4), partition=3)
    with pytest.raises(ValueError, match=r"unknown nodes \[3\]"):
        estimator.fit(X, y)
    with pytest.raises(ValueError, match="similarity"):
        plan_of(estimator, 200, 3)
    assert_unfitted(estimator)


def test_who_has_rows_and_is_in_no_relation_is_named(estimator, classification):
    X, y = classification
    estimator.set_params(similarity=nx.Graph([("east", "north"), ("north", "south")]))
    with pytest.raises(
        ValueError, match=r"without agents \['west'\] and with unknown nodes \['south'\]"
    ):
        estimator.fit(X, y, agents=TOWNS)
    assert_unfitted(estimator)


FORMS = {
    "graph of labels": nx.Graph([("west", "east"), ("east", "north")]),
    "graph of positions": nx.Graph([(2, 0), (0, 1)]),
    "list": [[0, 1, 1], [1, 0, 0], [1, 0, 0]],
    "matrix": np.array([[0, 1, 1], [1, 0, 0], [1, 0, 0]]),
    "sparse": sparse.coo_matrix([[0, 1, 1], [1, 0, 0], [1, 0, 0]]),
    "frame": frame([[0, 0, 1], [0, 0, 1], [1, 1, 0]], "west", "north", "east"),
    "frame without labels": frame([[0, 1, 1], [1, 0, 0], [1, 0, 0]], 0, 1, 2),
    "Similarity": Similarity(n_agents=3, matrix=np.array([[0, 1, 1], [1, 0, 0], [1, 0, 0]])),
}


@pytest.mark.parametrize("similarity", FORMS.values(), ids=FORMS)
def test_weights_in_any_form_are_the_same(similarity, estimator, classification, plans):
    X, y = classification
    estimator.set_params(similarity=FORMS["matrix"]).fit(X, y, agents=TOWNS)
    expected = models(estimator)
    estimator.set_params(similarity=similarity).fit(X, y, agents=TOWNS)
    np.testing.assert_array_equal(models(estimator), expected)
    assert plans[0] == plans[1] == plan_of(estimator, 200, 3, agent_sizes=[100, 50, 50])


@pytest.mark.parametrize("name", ["uniform", "knn", "gaussian"])
def test_names_of_relations(name, estimator, classification):
    X, y = classification
    features = None if name == "uniform" else np.arange(12.0)[:, None]
    estimator.set_params(similarity=name, agent_features=features, n_agents=12).fit(X, y)
    assert estimator.similarity_ == resolve_similarity(name, np.arange(12), features)
    assert f"is public and was not learnt from these rows: {name}," in repr(estimator.privacy_)


# Budgets and confidences.


BY_LABEL = {"dict": dict, "Series": pd.Series}


@pytest.mark.parametrize("container", BY_LABEL.values(), ids=BY_LABEL)
@pytest.mark.parametrize("order", [["west", "east", "north"], ["north", "west", "east"]])
def test_budgets_and_confidences_by_label_go_to_the_agents_they_name(
    container, order, estimator, classification, plans
):
    X, y = classification
    budgets, trust = (
        {"west": 4.0, "east": 1.0, "north": 0.5},
        {"west": 1, "east": 0.5, "north": 0.2},
    )
    epsilon = container({name: budgets[name] for name in order})
    confidence = container({name: trust[name] for name in order})
    estimator.set_params(epsilon=epsilon, confidence=confidence)
    assert estimator.get_params()["epsilon"] is epsilon
    estimator.fit(X, y, agents=TOWNS)
    assert plans[0].facts.agents.epsilons == (1.0, 0.5, 4.0)
    assert plans[0].facts.agents.confidence == (0.5, 0.2, 1.0)
    assert plans[0].budget.epsilon == 4.0
    for name, budget in budgets.items():
        assert estimator.privacy_.epsilon_of(name) == pytest.approx(budget, rel=1e-6)
        assert estimator.privacy_.epsilon_of(name, "model") <= budget
    shown = repr(estimator.privacy_)
    assert "agent  epsilon, eavesdropper" in shown
    assert "<td>north</td>" in estimator.privacy_._repr_html_()
    sizes = container({"west": 50, "east": 100, "north": 50})
    assert plans == [plan_of(estimator, 200, 3, agent_sizes=sizes)]
    # A plan that knows no labels takes them from the budgets.
    assert plans == [plan_of(estimator, 200, 3, agent_sizes=[100, 50, 50])]
    again = clone(estimator).fit(X, y, agents=TOWNS)
    np.testing.assert_array_equal(models(again), models(estimator))
    with pytest.raises(ValueError, match="expected one of"):
        estimator.privacy_.epsilon_of("south")


BAD_BUDGETS = {
    "missing": ({"east": 1.0, "north": 2.0}, r"missing \['west'\]"),
    "unknown": (
        {"east": 1.0, "north": 0.5, "west": 0.5, "south": 0.5}, r"unknown \['south'\]"
    ),
    "another type": ({1: 1.0, 2: 1.0, 3: 1.0}, r"unknown \[1, 2, 3\], missing \['east'"),
    "twice": (
        pd.Series([1.0, 0.5, 0.3, 0.2], ["east", "north", "west", "west"]), r"twice \['west'\]"
    ),
    "no labels": (pd.Series([1.0, 0.5, 0.3]), r"unknown \[0, 1, 2\]"),
}  # fmt: skip


@pytest.mark.parametrize("name", ["epsilon", "confidence"])
@pytest.mark.parametrize(("given", "message"), BAD_BUDGETS.values(), ids=BAD_BUDGETS)
def test_values_by_label_that_are_not_one_for_each_agent_are_refused(
    name, given, message, estimator, classification, plans
):
    X, y = classification
    estimator.set_params(**{name: given})
    with pytest.raises(ValueError, match=rf"^Got {name} by label \(.*{message}"):
        estimator.fit(X, y, agents=TOWNS)
    with pytest.raises(ValueError, match=message):
        plan_of(estimator, 200, 3, agent_sizes={"east": 100, "north": 50, "west": 50})
    assert_unfitted(estimator)
    assert not plans


def test_offending_confidences_are_shown_by_label(estimator, classification):
    X, y = classification
    for given in ([0.5, 1.5, 0.2], {"west": 0.2, "north": 1.5, "east": 1}):
        estimator.set_params(confidence=given)
        with pytest.raises(ValueError, match=r"^Got confidence=\{'north': 1.5\}, expected"):
            estimator.fit(X, y, agents=TOWNS)


def test_a_neighborhood_shows_who_has_no_valid_confidence():
    several = {"agent_sizes": (1,) * 9, "similarity": Similarity(n_agents=9), "trade_off": 1.0}
    wrong = (1.0,) * 7 + (2.0, math.nan)
    with pytest.raises(ValueError, match=r"^Got confidence=\{7: 2.0, 8: nan\} .* 2 of 9 agents"):
        Neighborhood(confidence=wrong, **several)
    with pytest.raises(ValueError, match=r"^Got 2 values of confidence for 9 agents"):
        Neighborhood(confidence=(1.0, 1.0), **several)


def test_sizes_by_label_leave_out_agents_without_rows(estimator, classification, plans):
    X, y = classification
    for similarity in COLD.values():
        estimator.set_params(similarity=similarity).fit(X, y, agents=TOWNS)
        for sizes in (
            {"west": 50, "east": 100, "north": 50},
            pd.Series({"north": 50, "south": 0, "west": 50, "east": 100}),
        ):
            assert plan_of(estimator, 200, 3, agent_sizes=sizes) == plans[-1]
        with pytest.raises(ValueError, match="centre"):
            plan_of(estimator, 200, 3, agent_sizes={"west": 50, "east": 100, "centre": 50})


def test_without_privacy_every_agent_has_an_infinite_epsilon(estimator, classification):
    X, y = classification
    report = estimator.set_params(epsilon=math.inf).fit(X, y, agents=TOWNS).privacy_
    assert report.epsilon_per_agent().tolist() == [math.inf] * 3
    assert report.epsilon_of("west") == math.inf
    assert report.to_dict()["observers"][0]["epsilon_per_agent"] == ["inf"] * 3


@pytest.mark.parametrize("relation", ["graph", "frame"])
def test_forgotten_labels_of_rows_are_asked_for(relation, estimator, classification):
    estimator.set_params(similarity=COLD[relation])
    for settings in ({}, {"n_agents": 4}):
        estimator.set_params(**settings)
        with pytest.raises(ValueError, match=r"^Got agents=None .*'east'.*Pass agents="):
            estimator.fit(*classification)
    estimator.set_params(n_agents=None, similarity=nx.path_graph(3))
    with pytest.raises(ValueError, match=r"^Got agents=None .*Pass agents="):
        estimator.fit(*classification)
    estimator.set_params(n_agents=3).fit(*classification)
    for weights in (np.ones((3, 3)) - np.eye(3), linked(n=4).tolist(), Similarity(n_agents=2)):
        estimator.set_params(n_agents=None, similarity=weights)
        with pytest.raises(ValueError, match=r"^Got agents=None .* of \d agents.*Pass agents="):
            estimator.fit(*classification)
    estimator.set_params(similarity="uniform", epsilon={"east": 1.0})
    with pytest.raises(ValueError, match=r"makes up labels 0, 1, ...: pass agents"):
        estimator.fit(*classification)


def test_a_similarity_with_labels_is_read_by_them(estimator, classification):
    X, y = classification
    facts = pd.DataFrame({"x": [5.0, 0.0, 1.0, 4.0]}, ["west", "east", "south", "north"])
    similarity = knn_similarity(facts, n_neighbors=2)
    estimator.set_params(similarity=similarity).fit(X, y, agents=TOWNS)
    assert estimator.agent_labels_.tolist() == NAMES == list(estimator.similarity_.labels)
    assert estimator.similarity_ == knn_similarity(facts.loc[NAMES], n_neighbors=2)
    with pytest.raises(ValueError, match=r"without agents \['west'\]"):
        estimator.set_params(similarity=knn_similarity(facts.iloc[1:], 2)).fit(X, y, agents=TOWNS)


def test_labels_that_cannot_be_sorted_are_called_by_where_they_are(estimator, classification):
    X, y = classification
    mixed = pd.DataFrame({"x": [0.0, 1.0]}, index=["east", 3])
    with pytest.raises(TypeError, match=r"^Got labels in agent_features that cannot be sorted"):
        estimator.set_params(similarity="gaussian", agent_features=mixed).fit(X, y, agents=TOWNS)
    relation = frame([[0, 1], [1, 0]], "east", 3)
    with pytest.raises(TypeError, match=r"^Got labels in similarity that cannot be sorted"):
        estimator.set_params(similarity=relation, agent_features=None).fit(X, y, agents=TOWNS)
    twice = frame([[0, 1], [1, 0]], "east", "east")
    with pytest.raises(ValueError, match=r"several rows of agents \['east'\]"):
        estimator.set_params(similarity=twice).fit(X, y, agents=TOWNS)


def test_budgets_and_confidences_follow_the_order_of_labels(regression, plans):
    X, y = regression
    model = small(epsilon=[4.0, 0.5, 1.0], confidence=[1.0, 0.25, 0.5], partition="dirichlet")
    model.fit(X, y, agents=np.array(["", "c", "a", "b"])[AGENTS])
    assert list(model.agent_labels_) == ["a", "b", "c"]
    agents = plans[0].facts.agents
    assert agents.confidence == (1.0, 0.25, 0.5)
    assert agents.agent_sizes == (50, 50, 100)
    for observer in OBSERVERS:
        epsilons = model.privacy_.epsilon_per_agent(observer)
        np.testing.assert_allclose(epsilons, [4.0, 0.5, 1.0], rtol=1e-6)
        assert np.all(epsilons <= [4.0, 0.5, 1.0])
    assert "epsilon per agent from 0.5" in repr(model.privacy_)
    small(confidence=0.3).fit(X, y, agents=TOWNS)
    assert plans[1].facts.agents.confidence == (0.3,) * 3
    cold = with_graph(NAMES, ALIKE)
    small(similarity=cold).fit(X, y, agents=TOWNS)
    assert plans[2].facts.agents.confidence == (1.0, 0.5, 0.005, 0.5)


def test_the_report_says_what_is_public(estimator, classification):
    X, y = classification
    estimator.fit(X, y, agents=TOWNS)
    report = repr(estimator.privacy_)
    for said in (
        "every message of every agent, and the final models of all agents",
        "Who is like whom is public and was not learnt from these rows: uniform, 3 edges",
        "The confidence of agents is public, and so is the order in which they wake up",
        "Wake-ups that only average cost nothing",
        "Which rows there are at which agent is public",
    ):
        assert said in report
    for observer in OBSERVERS:
        assert estimator.privacy_.epsilon(observer) == pytest.approx(1.0, rel=1e-6)


def test_what_was_assumed_for_lack_of_bounds_is_in_the_plan_and_in_the_report(regression):
    X, y = regression
    model = small()
    for said in (repr(model.plan(200, 3)), repr(model.fit(X, y).privacy_)):
        assert "target_bounds not declared: targets are clipped to [-3, 3]" in said
        assert "feature_bounds not declared" in said
    declared = small(feature_bounds=(-1, 1), target_bounds=(-3, 3)).fit(X, y)
    assert "not declared" not in repr(declared.privacy_)


def test_there_is_one_adversary_and_one_place_to_run(estimator, classification):
    assert not {"adversary", "engine", "n_jobs"} & set(estimator.get_params())
    assert estimator.fit(*classification).privacy_.adversary == "eavesdropper"


def test_a_partition_may_be_a_function_of_the_data(regression):
    X, y = regression
    model = small(partition=lambda X, y: X[:, 0] > 0).fit(X, y)
    assert list(model.agent_labels_) == [False, True]
    given = small().fit(X, y, agents=X[:, 0] > 0)
    np.testing.assert_array_equal(models(model), models(given))
    assert "conditional on the resulting ownership" in repr(model.privacy_)
    assert "conditional on the resulting ownership" not in repr(given.privacy_)


@pytest.mark.parametrize(
    ("settings", "n_agents"),
    [
        ({}, 1),
        ({"n_agents": 4}, 4),
        ({"partition": 5}, 5),
        ({"partition": "iid"}, 10),
        ({"partition": "quantity", "n_agents": 3}, 3),
    ],
)
def test_agents_are_made_up_where_that_is_asked_for(settings, n_agents, estimator, classification):
    estimator.set_params(**settings).fit(*classification)
    assert estimator.agent_labels_.tolist() == list(range(n_agents))
    assert ("made up" in repr(estimator.privacy_)) == bool(settings)


# Agents in a column.


@pytest.mark.parametrize(("where", "index"), [(3, -1), (0, 0), (1, 1)])
@pytest.mark.parametrize("kind", ["ndarray", "object", "list", "CSR", "frame", "frame by name"])
def test_a_column_says_whose_row_it_is_in_fits_and_in_predictions(
    kind, where, index, estimator, classification
):
    X, y = classification
    expected = models(estimator.fit(X, y, agents=AGENTS))
    own = scores_of(estimator, X, agents=AGENTS)
    names = ["a", "b", "c"]
    names.insert(where, "owner")
    number = np.insert(X, where, AGENTS, axis=1)
    made = {
        "ndarray": number,
        "object": np.insert(X.astype(object), where, AGENTS, axis=1),
        "list": number.tolist(),
        "CSR": sparse.csr_matrix(number),
        "frame": pd.DataFrame(number, columns=names),
        "frame by name": pd.DataFrame(number, columns=names),
    }[kind]
    column = "owner" if kind == "frame by name" else index
    estimator.set_params(agent_column=column).fit(made, y)
    np.testing.assert_allclose(models(estimator), expected, rtol=1e-10, atol=1e-10)
    np.testing.assert_array_equal(estimator.agent_labels_, [1, 2, 3])
    assert estimator.n_features_in_ == 4
    assert estimator.coef_per_agent_.shape[-1] == 3
    np.testing.assert_allclose(scores_of(estimator, made), own, rtol=1e-9, atol=1e-9)
    assert estimator.score(made, y) <= 1
    with pytest.raises(ValueError, match=r"^Got agents and agent_column="):
        estimator.predict(made, agents=AGENTS)
    with pytest.raises(ValueError, match=r"^Got rows of agents .* for agent=2, expected its own"):
        estimator.local_model(2, made, y)
    own_rows, own_y = np.flatnonzero(AGENTS == 2), y[AGENTS == 2]
    if hasattr(made, "iloc"):
        mine = estimator.local_model(2, made.iloc[own_rows], own_y)
        without = made.drop(columns="owner")
    else:
        rows = np.array(made, dtype=object)[own_rows] if kind == "list" else made[own_rows]
        mine = estimator.local_model(2, rows, own_y)
        without = X
    # With the column of agents and without.
    assert mine.n_features_in_ == 3
    assert without.shape[1] == 3
    np.testing.assert_allclose(mine.predict(made), mine.predict(without), rtol=1e-12)
    np.testing.assert_allclose(
        scores_of(mine, made), X @ np.ravel(mine.coef_) + mine.intercept_, rtol=1e-9, atol=1e-9
    )


def test_agents_are_given_once(estimator, classification):
    X, y = classification
    with pytest.raises(ValueError, match=r"^Got agents and agent_column=2, expected one"):
        estimator.set_params(agent_column=2).fit(X, y, agents=AGENTS)
    assert_unfitted(estimator)


# Pipelines and grids.


def test_agents_are_routed_to_fits_predictions_and_scores(estimator, classification):
    X, y = classification
    with config_context(enable_metadata_routing=True):
        routed = clone(estimator).set_fit_request(agents=True)
        routed.set_predict_request(agents=True, similarities=True)
        routed.set_score_request(agents=True, similarities=True)
        if is_classifier(routed):
            routed.set_decision_function_request(agents=True)
            routed.set_predict_proba_request(agents=True)
        pipeline = make_pipeline(StandardScaler(), routed).fit(X, y, agents=TOWNS)
        model, scaled = pipeline[-1], pipeline[:-1].transform(X)
        assert list(model.agent_labels_) == ["east", "north", "west"]
        own = model.predict(scaled, agents=TOWNS)
        np.testing.assert_array_equal(pipeline.predict(X, agents=TOWNS), own)
        assert pipeline.score(X, y, agents=TOWNS) == model.score(scaled, y, agents=TOWNS)
        new = {"agents": ["south"] * 200, "similarities": [[1, 0, 1]]}
        np.testing.assert_array_equal(pipeline.predict(X, **new), model.predict(scaled, **new))
        assert pipeline.score(X, y, **new) == model.score(scaled, y, **new)
        if is_classifier(model):
            np.testing.assert_array_equal(
                pipeline.predict_proba(X, agents=TOWNS), model.predict_proba(scaled, agents=TOWNS)
            )
        # Searches of scikit-learn 1.6 pass nothing on to scores: agent_column serves there.
        if parse_version(sklearn.__version__) < parse_version("1.9"):
            return
        name = type(estimator).__name__.lower()
        grid = {f"{name}__epsilon": [20.0, 50.0], f"{name}__trade_off": [0.1, 1.0]}
        search = GridSearchCV(clone(pipeline), grid, cv=3, error_score="raise")
        search.fit(X, y, agents=TOWNS)
        assert list(search.best_estimator_[-1].agent_labels_) == ["east", "north", "west"]
        own_score = search.best_estimator_.score(X, y, agents=TOWNS)
        assert search.score(X, y, agents=TOWNS) == own_score


def test_agents_that_are_held_out_learn_from_those_they_are_like(regression):
    X, y = regression
    everybody = frame(1 - np.eye(3), "east", "north", "west")
    with config_context(enable_metadata_routing=True):
        model = small(similarity=everybody).set_fit_request(agents=True)
        model.set_score_request(agents=True)
        result = cross_validate(
            model, X, y, params={"agents": TOWNS, "groups": TOWNS}, cv=GroupKFold(3),
            error_score="raise", return_estimator=True, return_indices=True,
        )  # fmt: skip
        assert np.isfinite(result["test_score"]).all()
        for fitted, test in zip(result["estimator"], result["indices"]["test"], strict=True):
            # Whoever is held out is in the relation, so there is a model for it.
            assert list(fitted.agent_labels_) == ["east", "north", "west"]
            (left_out,) = set(TOWNS[test])
            place = list(fitted.agent_labels_).index(left_out)
            found = fitted.predict(X[test], agents=TOWNS[test])
            np.testing.assert_allclose(found, by_hand(X[test], models(fitted)[place]), atol=1e-12)
        alone = small().set_fit_request(agents=True).set_score_request(agents=True)
        with pytest.raises(ValueError, match=r"^Got agents .*pass similarities"):
            cross_validate(
                alone, X, y, params={"agents": TOWNS, "groups": TOWNS}, cv=GroupKFold(3),
                error_score="raise",
            )  # fmt: skip


def test_routing_asks_for_what_is_not_requested(regression):
    X, y = regression
    with (
        config_context(enable_metadata_routing=True),
        pytest.raises(ValueError, match=r"agents.* not explicitly set as requested"),
    ):
        make_pipeline(StandardScaler(), small()).fit(X, y, agents=AGENTS)


def test_a_column_needs_no_routing(regression):
    X, y = regression
    rows = pd.DataFrame(X, columns=["a", "b", "c"]).assign(town=AGENTS)
    search = GridSearchCV(
        small(agent_column="town"), {"trade_off": [0.1, 10.0]}, cv=2, error_score="raise"
    ).fit(rows, y)
    assert list(search.best_estimator_.agent_labels_) == [1, 2, 3]
    assert search.score(rows, y) == search.best_estimator_.score(rows, y)
    # Any scorer knows whose rows they are, and so do predictions of the search.
    scored = clone(search).set_params(scoring=["neg_mean_absolute_error", "r2"], refit="r2")
    scored.fit(rows, y)
    assert np.isfinite(scored.cv_results_["mean_test_neg_mean_absolute_error"]).all()
    np.testing.assert_array_equal(scored.predict(rows), scored.best_estimator_.predict(rows))


# Plans.


SETTINGS = [
    {},
    {"partition": "quantity", "privacy_unit": "agent"},
    {"partition": 4, "neighboring": "zero_out"},
    {"epsilon": [1.0, 2.0, 3.0], "partition": 3, "similarity": linked(n=3)},
    {"n_agents": 12, "similarity": "knn", "agent_features": np.arange(12.0)[:, None]},
    {"algorithm": PersonalizedCoordinateDescent(noise="laplace"), "n_agents": 3},
    {"algorithm": PersonalizedCoordinateDescent(turns=3, split="optimal"), "n_agents": 5},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=range(len(SETTINGS)))
def test_the_plan_before_any_data_is_the_plan_inside_fit(settings, estimator, plans):
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(123, 3)), rng.integers(2, size=123)
    estimator.set_params(max_iter=4, **settings).fit(X, y)
    assert plans == [plan_of(estimator, 123, 3)]
    assert plans[0].digest() == plan_of(estimator, 123, 3).digest()
    assert repr(plans[0])


BAD_SIZES = {
    "too few rows": [10, 10],
    "too many rows": [100, 1],
    "less than none": [101, -1],
    "floats": [50.0, 50.0],
    "one number": 100,
    "none": [],
    "two dimensions": [[50, 50]],
    "words": ["50", "50"],
}


@pytest.mark.parametrize("similarity", ["uniform", nx.path_graph(2)], ids=str)
@pytest.mark.parametrize("sizes", BAD_SIZES.values(), ids=BAD_SIZES)
def test_sizes_that_cannot_be_are_refused(sizes, similarity, estimator):
    with pytest.raises(ValueError, match=r"^Got .*expected"):
        plan_of(estimator.set_params(similarity=similarity), 100, 3, agent_sizes=sizes)


def test_the_plan_does_not_depend_on_the_values_in_the_data(estimator, plans):
    rng = np.random.default_rng(2)
    y = np.tile([0, 1], 50)
    for unit in ("record", "agent"):
        estimator.set_params(privacy_unit=unit, n_agents=4)
        for X in (rng.normal(size=(100, 3)), 1e300 * rng.normal(size=(100, 3)), np.zeros((100, 3))):
            estimator.fit(X, y)
        estimator.fit(sparse.csr_matrix(X), y[::-1])
        assert plans[1:] == plans[:-1]
        plans.clear()


# At home.


def test_a_refit_at_home_stores_nothing_and_says_nothing(estimator, classification, plans):
    X, y = classification
    estimator.fit(X, y, agents=TOWNS)
    plans.clear()
    before, west = dict(vars(estimator)), TOWNS == "west"
    model = estimator.local_model("west", X[west], y[west])
    assert not plans
    assert set(vars(estimator)) == set(before)
    assert all(vars(estimator)[name] is before[name] for name in before)
    assert model.agent_ == "west"
    assert np.shape(model.coef_) == np.shape(estimator.coef_)
    assert np.shape(model.intercept_) == np.shape(estimator.intercept_)
    expected = X @ np.ravel(model.coef_) + np.ravel(model.intercept_)
    if is_classifier(estimator):
        np.testing.assert_allclose(model.decision_function(X), expected, atol=1e-12)
        expected = (expected > 0).astype(int)
    np.testing.assert_allclose(model.predict(X), expected, atol=1e-12)
    with pytest.raises(TypeError, match="local_model"):
        model.fit(X, y)
    # No noise: the same once more, and the same for sparse rows.
    again = estimator.local_model("west", sparse.csr_matrix(X[west]), y[west])
    np.testing.assert_allclose(again.coef_, model.coef_, rtol=0, atol=1e-7)


def test_a_refit_needs_an_agent_of_the_fit_and_valid_rows(estimator, classification):
    X, y = classification
    with pytest.raises(NotFittedError):
        estimator.local_model("west", X, y)
    estimator.fit(X, y, agents=TOWNS)
    with pytest.raises(ValueError, match=r"^Got agent='south', expected a label of an agent"):
        estimator.local_model("south", X, y)
    for bad_X, bad_y in [
        (X[:, :2], y),
        (X[1:], y),
        (np.where(X == X[0, 0], np.nan, X), y),
        (X[:0], y[:0]),
        (X, np.where(np.arange(200) == 0, np.nan, y)),
        (X, [None] * 200),
    ]:
        with pytest.raises((ValueError, TypeError)):
            estimator.local_model("west", bad_X, bad_y)
    with pytest.raises(ValueError, match=r"X has 4 features, but Local.* is expecting 3"):
        estimator.local_model("west", X, y).predict(np.ones((2, 4)))


def test_a_model_at_home_is_an_estimator_that_knows_its_columns(estimator, classification):
    X, y = classification
    rows = pd.DataFrame(X, columns=["a", "b", "c"]).assign(town=TOWNS)
    estimator.set_params(agent_column="town").fit(rows, y)
    west = rows[TOWNS == "west"]
    model = estimator.local_model("west", west, y[TOWNS == "west"])
    assert is_classifier(model) == is_classifier(estimator)
    assert model.get_params() == {}
    assert get_tags(model).input_tags.sparse
    assert model.feature_names_in_.tolist() == ["a", "b", "c"]
    bare = west.drop(columns="town")
    for form in (west, bare, west[["a", "town", "b", "c"]]):
        np.testing.assert_array_equal(model.predict(form), model.predict(bare))
    assert model.score(bare, y[TOWNS == "west"]) == model.score(west, y[TOWNS == "west"])
    for wrong in (bare[["b", "a", "c"]], bare.rename(columns={"a": "d"}), bare[["a", "b"]]):
        with pytest.raises(ValueError, match="feature names"):
            model.predict(wrong)
    loaded = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(loaded.predict(west), model.predict(west))
    with pytest.raises(NotFittedError):
        clone(model).predict(bare)
    with pytest.raises(ValueError, match=r"^Got rows of agents \['.*'\] for agent='west'"):
        estimator.local_model("west", rows, y)


def test_probabilities_at_home_are_those_of_the_scores(classification):
    X, y = classification
    for target in (y, np.digitize(X[:, 0], [-0.5, 0.5])):
        fitted = DPPersonalizedClassifier(random_state=0, max_iter=5).fit(X, target, agents=TOWNS)
        model = fitted.local_model("west", X[TOWNS == "west"], target[TOWNS == "west"])
        scores = model.decision_function(X)
        expected = softmax(scores, axis=1) if scores.ndim == 2 else expit(scores)
        proba = model.predict_proba(X)
        np.testing.assert_allclose(proba if scores.ndim == 2 else proba[:, 1], expected)
        np.testing.assert_allclose(model.predict_log_proba(X), np.log(proba))
        np.testing.assert_array_equal(model.classes_[proba.argmax(axis=1)], model.predict(X))
    fitted.set_params(loss="smoothed_hinge").fit(X, y, agents=TOWNS)
    assert not hasattr(fitted.local_model("west", X[:9], y[:9]), "predict_proba")


def test_a_refit_follows_the_parameters_of_the_fit(estimator, classification):
    X, y = classification
    estimator.set_params(similarity=COLD["graph"]).fit(X, y, agents=TOWNS)
    expected = estimator.local_model("south", X, y).coef_
    # What is set after a fit counts for the next one.
    estimator.set_params(confidence=0.01)
    np.testing.assert_array_equal(estimator.local_model("south", X, y).coef_, expected)


def test_an_agent_may_lack_classes(classification):
    X, y = classification
    y = np.where(TOWNS == "east", 1, y)
    words = np.array(["no", "yes"])[y]
    model = DPPersonalizedClassifier(random_state=0, max_iter=5).fit(X, words, agents=TOWNS)
    assert model.classes_.tolist() == ["no", "yes"]
    east = TOWNS == "east"
    assert set(model.local_model("east", X[east], words[east]).predict(X)) <= {"no", "yes"}
    with pytest.raises(ValueError, match=r"^Got y with one class"):
        model.fit(X[east], words[east], agents=TOWNS[east])
    declared = clone(model).set_params(classes=["no", "yes"])
    assert declared.fit(X[east], words[east], agents=TOWNS[east]).classes_.tolist() == ["no", "yes"]
    with pytest.raises(ValueError, match=r"^Got labels in y that are not among"):
        model.local_model("east", X, np.where(east, "perhaps", words))


def test_probabilities_are_those_of_agents_models(classification):
    X, y = classification
    for target in (y, np.digitize(X[:, 0], [-0.5, 0.5])):
        model = DPPersonalizedClassifier(random_state=0, max_iter=5).fit(X, target, agents=TOWNS)
        proba = model.predict_proba(X, agents=TOWNS)
        assert proba.shape == (200, len(model.classes_))
        np.testing.assert_allclose(proba.sum(axis=1), 1.0, rtol=1e-12)
        np.testing.assert_allclose(model.predict_log_proba(X, agents=TOWNS), np.log(proba))
        best = model.classes_[proba.argmax(axis=1)]
        np.testing.assert_array_equal(best, model.predict(X, agents=TOWNS))
    hinge = DPPersonalizedClassifier(loss="smoothed_hinge", random_state=0, max_iter=5)
    hinge.fit(X, y, agents=TOWNS)
    assert not hasattr(hinge, "predict_proba")
    assert not hasattr(hinge, "predict_log_proba")


# Bad data and failures.


@pytest.mark.parametrize("spoil", ["NaN in X", "NaN in y", "a row too few", "strings", "no rows"])
def test_bad_data_stores_nothing_and_leaves_an_earlier_fit_intact(
    spoil, estimator, classification, plans
):
    X, y = classification
    bad_X, bad_y = {
        "NaN in X": (np.where(X == X[0, 0], np.nan, X), y),
        "NaN in y": (X, np.where(np.arange(200) == 0, np.nan, y)),
        "a row too few": (X[1:], y),
        "strings": (np.full(X.shape, "a"), y),
        "no rows": (X[:0], y[:0]),
    }[spoil]
    with pytest.raises(ValueError):  # noqa: PT011
        estimator.fit(bad_X, bad_y)
    assert_unfitted(estimator)
    with pytest.raises(NotFittedError):
        estimator.predict(X)
    with pytest.raises(NotFittedError):
        estimator.predict(X, agents=AGENTS)
    assert not plans
    estimator.fit(X, y)
    before = dict(vars(estimator))
    with pytest.raises(ValueError):  # noqa: PT011
        estimator.fit(bad_X, bad_y)
    assert all(vars(estimator)[name] is before[name] for name in before)


@pytest.mark.parametrize("unit", ["record", "agent"])
def test_a_failure_in_the_middle_of_the_turns_stores_nothing(
    unit, estimator, classification, monkeypatch
):
    X, y = classification
    estimator.set_params(privacy_unit=unit, n_agents=8)
    estimator.set_params(algorithm=PersonalizedCoordinateDescent(turns=4))
    fitted = clone(estimator).fit(X, y)
    before = dict(vars(fitted))
    taken = []
    take_turns = _fitting.Gate.take_turns

    def fail_late(self, *args):
        taken.append(args)
        if len(taken) % 3 == 0:
            raise KeyboardInterrupt
        return take_turns(self, *args)

    monkeypatch.setattr(_fitting.Gate, "take_turns", fail_late)
    for model in (estimator, fitted):
        with pytest.raises(KeyboardInterrupt):
            model.fit(X[:, :2], y)
    assert vars(fitted) == before
    assert_unfitted(estimator)


def test_progress_is_shown_where_it_is_asked_for(estimator, classification):
    shown = io.StringIO()
    with redirect_stderr(shown):
        estimator.set_params(verbose=1, n_agents=3).fit(*classification)
    assert type(estimator).__name__ in shown.getvalue()


# Data of every kind.


def edge_cases():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(60, 4))
    return {
        "three rows": X[:3],
        "two rows": X[:2],
        "one column": X[:, :1],
        "more columns than rows": np.tile(X[:6], (1, 10)),
        "all zero": 0.0 * X,
        "one row many times": np.tile(X[:1], (60, 1)),
        "constant columns": np.full((60, 2), 1e3),
        "large rows": 1e30 * X,
        "huge rows": 1e99 * X,
        "tiny rows": 1e-200 * X,
    }


@pytest.mark.filterwarnings("ignore:Got delta")
@pytest.mark.parametrize("epsilon", [1.0, math.inf])
@pytest.mark.parametrize("unit", ["record", "agent"])
@pytest.mark.parametrize("n_agents", [1, 2])
@pytest.mark.parametrize("convert", [np.asarray, sparse.csr_matrix])
@pytest.mark.parametrize("case", edge_cases())
def test_an_edge_case_ends_in_a_finite_model(case, convert, n_agents, unit, epsilon, estimator):
    X, y = convert(edge_cases()[case]), np.arange(len(edge_cases()[case])) % 2
    estimator.set_params(privacy_unit=unit, max_iter=4, n_agents=n_agents, epsilon=epsilon)
    estimator.fit(X, y)
    assert np.isfinite(models(estimator)).all()
    assert np.isfinite(estimator.local_model(0, X, y).coef_).all()


@pytest.mark.parametrize("unit", ["record", "agent"])
@pytest.mark.parametrize("convert", [np.asarray, sparse.csr_matrix])
def test_rows_of_the_largest_floats_end_in_a_finite_private_model(convert, unit, estimator):
    X = np.vstack([np.full((30, 2), 1.7e308), np.full((30, 2), -1.7e308)])
    estimator.set_params(privacy_unit=unit, n_agents=2).fit(convert(X), np.arange(60) % 2)
    assert np.isfinite(models(estimator)).all()


def test_float32_and_integers_are_used_as_they_are(estimator, classification):
    X, y = classification
    whole = np.round(10 * X)
    expected = models(estimator.fit(whole, y, agents=TOWNS))
    for dtype in (np.float32, np.int64):
        found = models(estimator.fit(whole.astype(dtype), y, agents=TOWNS))
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    rounded = estimator.local_model("west", whole.astype(int), y)
    np.testing.assert_allclose(rounded.coef_, estimator.local_model("west", whole, y).coef_)
