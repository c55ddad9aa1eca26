"""Decentralised estimators as users meet them: graphs, agents, pipelines, plans, errors, counts."""

from __future__ import annotations

import inspect
import io
import math
import pickle
import re
import struct
import sys
from contextlib import redirect_stderr

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import sklearn
from scipy import sparse
from sklearn import config_context
from sklearn.base import clone, is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils._param_validation import InvalidParameterError
from sklearn.utils.fixes import parse_version

from skdpadmm import DPDecentralizedClassifier, DPDecentralizedRegressor, DPFedRidge, _fitting
from skdpadmm.algorithms import ConsensusADMM, FederatedADMM, MultiStepADMM
from skdpadmm.network import TOPOLOGIES, named_graph

ESTIMATORS = [DPDecentralizedRegressor, DPDecentralizedClassifier]
OBSERVERS = ("eavesdropper", "peer", "model")
INVALID_EVERYWHERE = {
    "loss": ["squared", "", None, 1],
    "penalty": ["L2", "none", 3],
    "alpha": [-1e-9, math.nan, math.inf, None, "1"],
    "l1_ratio": [-0.1, 1.1, math.nan, "half", None],
    "epsilon": [0, -1.0, math.nan, "1", None],
    "delta": [0, 1, -1e-5, math.nan, None],
    "adversary": ["model", "server", "Peer", "", None],
    "coalition": [0, -1, 1.5, "all", None],
    "privacy_unit": ["row", "user", None],
    "partition": ["random", "", None, 1.5],
    "n_agents": [0, -1, 2.5, "2"],
    "agent_column": [1.5, ("a",)],
    "neighboring": ["replace-one", "add_remove", None],
    "fit_intercept": ["yes", None, 2],
    "algorithm": [3, None, object()],
    "max_iter": [0, -1, 1.5, None],
    "scale": ["auto", True],
    "conditioning": ["public", True],
    "sampler": ["OpenDP", None],
    "n_jobs": ["2", 1.5],
    "engine": ["joblib", "Dask", "", None],
    "ledger": [3, True, b"study.db"],
    "verbose": [-1, "yes", None],
}
INVALID = {
    DPDecentralizedRegressor: {"huber_threshold": [0, -1, math.nan, None]},
    DPDecentralizedClassifier: {"smoothing": [0, -1, math.nan, None], "classes": ["ab", 3]},
}
CHECKED_IN_FIT = {"feature_bounds", "target_bounds", "random_state", "topology"}
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
    # Classes can be told apart without an error: a weak penalty would mean a far optimum.
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


def parameters(model):
    return np.append(np.ravel(model.coef_), model.intercept_)


def plan_of(model, *args, **kwargs):
    if is_classifier(model):
        kwargs = {"n_classes": 2} | kwargs
    return model.plan(*args, **kwargs)


def small(**changed):
    settings = {"max_iter": 5, "random_state": 0, "conditioning": None, "alpha": 0.01}
    return DPDecentralizedRegressor(**(settings | changed))


def assert_unfitted(model):
    assert set(vars(model)) == set(inspect.signature(type(model)).parameters)


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


def without_links(*agents):
    graph = nx.complete_graph(10)
    graph.remove_nodes_from(agents)
    graph.add_nodes_from(agents)
    return graph


def linked(*entries, n=10):
    """A path as a matrix, with some entries changed."""
    matrix = nx.to_numpy_array(nx.path_graph(n))
    for i, j, value in entries:
        matrix[i, j] = value
    return matrix


BAD_GRAPHS = {
    "disconnected": (
        nx.disjoint_union(nx.path_graph(4), nx.path_graph(6)),
        "^Got a topology with 2 components, expected a connected graph",
    ),
    "isolated agents": (
        without_links(3, 7),
        r"^Got a topology with 3 components, agents without a neighbour: \[3, 7\], expected",
    ),
    "nobody talks": (np.zeros((10, 10)), "^Got a topology with 10 components"),
    "directed": (nx.complete_graph(10).to_directed(), "^Got a directed graph as topology"),
    "multigraph": (nx.MultiGraph(nx.path_graph(10)), "^Got a multigraph as topology"),
    "fewer nodes than agents": (nx.path_graph(4), "^Got a topology of 4 nodes for 10 agents"),
    "an agent without rows": (nx.path_graph(11), "^Got a topology of 11 nodes for 10 agents"),
    "no nodes": (nx.Graph(), "^Got a topology of 0 nodes for 10 agents"),
    "self loop": (nx.Graph([*nx.path_graph(10).edges, (4, 4)]), r"self loops at \[4\], expected"),
    "self loop in a matrix": (linked((2, 2, 1)), r"self loops at \[2\], expected"),
    "one direction": (linked((0, 5, 1)), r"links agents \[0, 5\] in one direction only"),
    "matrix of another size": (np.ones((9, 9)), r"^Got topology of shape \(9, 9\), expected"),
    "matrix that is not square": (np.ones((10, 9)), r"^Got topology of shape \(10, 9\)"),
    "missing entry": (linked((0, 1, math.nan), (1, 0, math.nan)), "NaN or infinite"),
    "words": (np.full((10, 10), "a"), "^Got topology of dtype"),
    "ragged": ([[0, 1], [1]], "^Got topology"),
    "one dimension": (np.ones(10), "^Got topology=.*expected one of"),
    "a number": (3, "^Got topology=3, expected one of"),
    "nothing": (None, "^Got topology=None, expected one of"),
    "unknown name": ("circle", "^Got topology='circle', expected one of"),
    "a name without such a size": ("hypercube", "^Got .*power of two"),
}
REFUSED = {
    **{name: ({"topology": graph}, message) for name, (graph, message) in BAD_GRAPHS.items()},
    "more peers together than there are": (
        {"coalition": 10}, r"^Got coalition=10, expected an int in \[1, 9\]"
    ),
    "epsilons too few": (
        {"epsilon": [1.0, 2.0]}, "^Got 2 values of epsilon for 10 agents, expected"
    ),
    "epsilons too many": ({"epsilon": [1.0] * 11}, "^Got 11 values of epsilon for 10 agents"),
    "no epsilons": ({"epsilon": []}, "^Got epsilon="),
    "epsilons in two dimensions": ({"epsilon": [[1.0] * 10]}, "^Got epsilon="),
    "an epsilon of zero": ({"epsilon": [0.0] + [1.0] * 9}, "^Got epsilon="),
    "a negative epsilon": ({"epsilon": [-1.0] + [1.0] * 9}, "^Got epsilon="),
    "an epsilon that is missing": ({"epsilon": [math.nan] + [1.0] * 9}, "^Got epsilon="),
    "some epsilons infinite": ({"epsilon": [math.inf] + [1.0] * 9}, "all of them finite or all"),
    "more agents than rows": ({"n_agents": 201}, "^Got n_agents=201 for 200 rows"),
    "no agents": ({"partition": 0}, "^Got partition=0, expected"),
    "two numbers of agents": ({"partition": 3, "n_agents": 3}, "^Got n_agents=3 with partition=3"),
    "a central algorithm": (
        {"algorithm": "consensus-admm"}, "^Got algorithm='consensus-admm' .*decentralized"
    ),
    "a central algorithm object": (
        {"algorithm": ConsensusADMM()}, "^Got algorithm=ConsensusADMM.*decentralized"
    ),
    "a federated algorithm": (
        {"algorithm": FederatedADMM()}, "^Got algorithm=FederatedADMM.*'multi-step-admm'"
    ),
    "an unknown algorithm": ({"algorithm": "admm"}, "^Got algorithm='admm'"),
    "a knob out of range": (
        {"algorithm": MultiStepADMM(inner_steps=0)}, "^Got inner_steps=0, expected an int"
    ),
}  # fmt: skip


@pytest.mark.parametrize("epsilon", [1.0, math.inf])
@pytest.mark.parametrize(("parameters", "message"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_is_refused_by_fit_and_by_plan(
    estimator, parameters, message, epsilon, classification, plans
):
    estimator.set_params(**({"epsilon": epsilon} | parameters))
    with pytest.raises(ValueError, match=message):
        plan_of(estimator, 200, 3)
    with pytest.raises(ValueError, match=message):
        estimator.fit(*classification)
    assert_unfitted(estimator)
    assert not plans


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


@pytest.mark.parametrize("topology", [nx.path_graph(3), linked(n=3), sparse.csr_array(linked(n=3))])
def test_clone_and_pickle_keep_what_they_should(topology, estimator, classification):
    X, y = classification
    estimator.set_params(algorithm=MultiStepADMM(step_size=0.3), epsilon=[1.0, 2.0, 3.0])
    estimator.set_params(partition=3, topology=topology).fit(X, y)
    fresh = clone(estimator)
    assert_unfitted(fresh)
    assert fresh.get_params()["algorithm__step_size"] == 0.3
    np.testing.assert_array_equal(parameters(fresh.fit(X, y)), parameters(estimator))
    loaded = pickle.loads(pickle.dumps(estimator))
    np.testing.assert_array_equal(loaded.predict(X), estimator.predict(X))
    agents = np.resize([0, 1, 2], 200)
    np.testing.assert_array_equal(loaded.predict(X, agents), estimator.predict(X, agents))
    assert loaded.privacy_ == estimator.privacy_


def test_names_show_only_what_was_changed():
    assert repr(DPDecentralizedRegressor()) == "DPDecentralizedRegressor()"
    changed = DPDecentralizedClassifier(adversary="peer", topology="ring")
    assert repr(changed) == "DPDecentralizedClassifier(adversary='peer', topology='ring')"
    assert "topology" in repr(DPDecentralizedRegressor(topology=linked()))


def test_a_knob_of_a_string_is_an_error_that_says_what_to_do(estimator):
    with pytest.raises(ValueError, match=r"^Got algorithm__step_size with algorithm='multi-step"):
        estimator.set_params(algorithm__step_size=0.5)
    estimator.set_params(algorithm=MultiStepADMM(), algorithm__step_size=0.5)
    assert estimator.algorithm.step_size == 0.5


# Graphs.


@pytest.mark.parametrize("n_agents", [1, 2, 4])
@pytest.mark.parametrize("name", TOPOLOGIES)
def test_every_name_is_a_graph_of_a_few_agents(name, n_agents, estimator, classification):
    X, y = classification
    estimator.set_params(topology=name, n_agents=n_agents).fit(X, y)
    graph = named_graph(name, n_agents, seed=0)
    assert estimator.coef_per_agent_.shape[0] == n_agents
    assert estimator.n_messages_ % (2 * max(graph.number_of_edges(), 1)) == 0
    assert (estimator.n_messages_ == 0) == (n_agents == 1)


@pytest.mark.parametrize("unit", ["record", "agent"])
@pytest.mark.parametrize(
    "topology", [nx.empty_graph(1), [[0]], np.zeros((1, 1)), sparse.csr_array((1, 1)), "star"]
)
def test_one_agent_has_nobody_to_talk_to(topology, unit, estimator, classification):
    X, y = classification
    estimator.set_params(topology=topology, n_agents=1, privacy_unit=unit).fit(X, y)
    assert estimator.n_messages_ == estimator.bytes_sent_ == 0
    assert estimator.consensus_error_ == 0
    np.testing.assert_array_equal(np.ravel(estimator.coef_per_agent_), np.ravel(estimator.coef_))
    assert estimator.privacy_.epsilon() == pytest.approx(1.0, rel=1e-6)
    with pytest.raises(ValueError, match="Got agent 1"):
        estimator.privacy_.pairwise(0, 1)


FORMS = {
    "graph of labels": nx.Graph([("west", "east"), ("east", "north")]),
    "graph of positions": nx.Graph([(2, 0), (0, 1)]),
    "weighted graph": nx.Graph([("west", "east", {"weight": 7}), ("north", "east", {"weight": 0})]),
    "list": [[0, 1, 1], [1, 0, 0], [1, 0, 0]],
    "matrix": np.array([[0, 1, 1], [1, 0, 0], [1, 0, 0]]),
    "weights": np.array([[0, 0.5, 9], [2, 0, 0], [3, 0, 0]]),
    "booleans": np.array([[0, 1, 1], [1, 0, 0], [1, 0, 0]], dtype=bool),
    "sparse": sparse.coo_matrix([[0, 1, 1], [1, 0, 0], [1, 0, 0]]),
    "name": "star",
}


@pytest.mark.parametrize("topology", FORMS.values(), ids=FORMS)
def test_a_graph_in_any_form_is_the_same(topology, estimator, classification, plans):
    X, y = classification
    expected = parameters(estimator.set_params(topology="star").fit(X, y, agents=TOWNS))
    estimator.set_params(topology=topology).fit(X, y, agents=TOWNS)
    np.testing.assert_array_equal(parameters(estimator), expected)
    assert plans[0] == plans[1]
    assert plans[0] == plan_of(estimator, 200, 3, agent_sizes=[100, 50, 50])


def test_a_graph_of_other_towns_is_refused(estimator, classification):
    X, y = classification
    estimator.set_params(topology=nx.Graph([("east", "north"), ("north", "south")]))
    with pytest.raises(
        ValueError, match=r"without agents \['west'\] and with unknown nodes \['south'\]"
    ):
        estimator.fit(X, y, agents=TOWNS)
    assert_unfitted(estimator)


def test_a_graph_whose_nodes_are_no_labels_is_refused_before_any_data_too(estimator):
    estimator.set_params(topology=nx.grid_2d_graph(2, 2), n_agents=4)
    with pytest.raises(ValueError, match=r"^Got nodes of the topology .*expected"):
        plan_of(estimator, 200, 3)
    estimator.set_params(topology=nx.Graph([(0, "a"), ("a", 1), (1, 2.5)]))
    with pytest.raises(
        TypeError, match=r"^Got nodes of the topology .*expected labels of one type"
    ):
        plan_of(estimator, 200, 3)


def test_the_seed_draws_random_graphs_and_the_graph_is_in_the_report(estimator, classification):
    X, y = classification
    estimator.set_params(topology="erdos-renyi", n_agents=12)
    graphs = [plan_of(estimator.set_params(random_state=s), 200, 3) for s in (0, 0, 1, None)]
    assert graphs[0] == graphs[1] == graphs[3]
    assert graphs[0].facts.agents.topology != graphs[2].facts.agents.topology
    estimator.set_params(topology="ring", random_state=np.random.default_rng(0)).fit(X, y)
    assert "The graph is public: ring, 12 edges, degree 2." in repr(estimator.privacy_)


# Who holds which row.


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
    own = estimator.predict(X, agents=labels)
    by_hand = np.empty(200, dtype=own.dtype)
    for agent, label in enumerate(estimator.agent_labels_):
        mine = np.asarray(labels) == label
        scores = X[mine] @ np.atleast_2d(estimator.coef_per_agent_[agent]).T
        scores = scores[:, 0] + np.ravel(estimator.intercept_per_agent_[agent])
        by_hand[mine] = scores > 0 if is_classifier(estimator) else scores
    np.testing.assert_allclose(own, by_hand, rtol=1e-12, atol=1e-12)


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


@pytest.mark.parametrize("epsilon", [1.0, math.inf])
@pytest.mark.parametrize("labels", BAD_AGENTS.values(), ids=BAD_AGENTS)
def test_labels_that_name_no_owner_are_refused(labels, epsilon, estimator, classification, plans):
    X, y = classification
    with pytest.raises((ValueError, TypeError), match=r"^Got agents.*expected"):
        estimator.set_params(epsilon=epsilon).fit(X, y, agents=labels)
    assert_unfitted(estimator)
    assert not plans
    estimator.fit(X, y, agents=AGENTS)
    for ask in (estimator.predict, lambda X, agents: estimator.score(X, y, agents=agents)):
        with pytest.raises((ValueError, TypeError), match=r"^Got agents.*expected"):
            ask(X, agents=labels)


def test_models_of_unknown_agents_cannot_be_asked_for(estimator, classification):
    X, y = classification
    estimator.fit(X, y, agents=TOWNS)
    for unknown in (np.where(TOWNS == "east", "south", TOWNS), AGENTS, ["South"] * 200):
        with pytest.raises(
            ValueError, match=r"^Got agents .*expected labels of agents that hold rows"
        ):
            estimator.predict(X, agents=unknown)
    assert estimator.predict(X[:2], agents=["west", "east"]).shape == (2,)
    with pytest.raises(ValueError, match="features, but"):
        estimator.predict(X[:, :2], agents=TOWNS)


def test_agents_win_over_the_partition_and_epsilons_follow_their_order(regression, plans):
    X, y = regression
    model = small(epsilon=[4.0, 0.5, 1.0], partition="dirichlet", n_agents=7)
    model.fit(X, y, agents=np.array(["", "c", "a", "b"])[AGENTS])
    assert list(model.agent_labels_) == ["a", "b", "c"]
    for observer in OBSERVERS:
        epsilons = model.privacy_.epsilon_per_agent(observer)
        np.testing.assert_allclose(epsilons, [4.0, 0.5, 1.0], rtol=1e-6)
        assert np.all(epsilons <= [4.0, 0.5, 1.0])
    # Each agent adds noise of its own size, and the report says so.
    release = plans[0].releases[-1]
    shares = np.asarray(release.shares)[plans[0].facts.agents.kind]
    assert shares[1] > shares[2] > shares[0]
    assert "epsilon per agent from 0.5" in repr(model.privacy_)
    assert model.privacy_.pairwise("b", "a") == pytest.approx(0.5, rel=1e-6)


def test_a_partition_may_be_a_function_of_the_data(regression):
    X, y = regression
    model = small(partition=lambda X, y: X[:, 0] > 0).fit(X, y)
    assert list(model.agent_labels_) == [False, True]
    given = small().fit(X, y, agents=X[:, 0] > 0)
    np.testing.assert_array_equal(parameters(model), parameters(given))
    assert "conditional on the resulting ownership" in repr(model.privacy_)
    assert "conditional on the resulting ownership" not in repr(given.privacy_)


# Agents in a column.


@pytest.mark.parametrize(("where", "index"), [(3, -1), (0, 0), (1, 1)])
@pytest.mark.parametrize("kind", ["ndarray", "object", "list", "CSR", "frame", "frame by name"])
def test_a_column_of_agents_is_the_same_as_their_labels(
    kind, where, index, estimator, classification
):
    X, y = classification
    expected = parameters(estimator.fit(X, y, agents=AGENTS))
    own = estimator.predict(X, agents=AGENTS)
    names = ["a", "b", "c"]
    names.insert(where, "owner")

    def made(labels):
        number = np.insert(X, where, labels, axis=1)
        return {
            "ndarray": number,
            "object": np.insert(X.astype(object), where, labels, axis=1),
            "list": number.tolist(),
            "CSR": sparse.csr_matrix(number),
            "frame": pd.DataFrame(number, columns=names),
            "frame by name": pd.DataFrame(number, columns=names),
        }[kind]

    column = "owner" if kind == "frame by name" else index
    estimator.set_params(agent_column=column).fit(made(AGENTS), y)
    np.testing.assert_allclose(parameters(estimator), expected, rtol=1e-10, atol=1e-12)
    np.testing.assert_array_equal(estimator.agent_labels_, [1, 2, 3])
    assert estimator.n_features_in_ == 4
    assert estimator.coef_.shape[-1] == estimator.coef_per_agent_.shape[-1] == 3
    # The column is not read in predictions: whose model is asked for is said.
    predicted = np.asarray(estimator.predict(made(17)), float)
    np.testing.assert_allclose(predicted, np.asarray(estimator.predict(made(AGENTS)), float))
    found = estimator.predict(made(17), agents=AGENTS)
    np.testing.assert_allclose(np.asarray(found, float), np.asarray(own, float), atol=1e-10)


def test_agents_are_given_once(estimator, classification):
    X, y = classification
    with pytest.raises(ValueError, match=r"^Got agents and agent_column=2, expected one"):
        estimator.set_params(agent_column=2).fit(X, y, agents=AGENTS)
    assert_unfitted(estimator)


@pytest.mark.parametrize("column", [4, -5, "town"])
def test_a_column_that_is_not_there_is_refused(column, estimator, classification):
    X, y = classification
    with pytest.raises(ValueError, match=f"^Got agent_column={column!r}.* expected the index of"):
        estimator.set_params(agent_column=column).fit(np.column_stack([X, AGENTS]), y)
    assert_unfitted(estimator)


# Pipelines and grids.


def test_agents_are_routed_to_fits_predictions_and_scores(estimator, classification):
    X, y = classification
    with config_context(enable_metadata_routing=True):
        routed = clone(estimator).set_fit_request(agents=True)
        routed.set_predict_request(agents=True).set_score_request(agents=True)
        pipeline = make_pipeline(StandardScaler(), routed).fit(X, y, agents=TOWNS)
        model, scaled = pipeline[-1], pipeline[:-1].transform(X)
        assert list(model.agent_labels_) == ["east", "north", "west"]
        own = model.predict(scaled, agents=TOWNS)
        np.testing.assert_array_equal(pipeline.predict(X, agents=TOWNS), own)
        assert pipeline.score(X, y, agents=TOWNS) == model.score(scaled, y, agents=TOWNS)
        assert pipeline.score(X, y) == model.score(scaled, y)

        name = type(estimator).__name__.lower()
        grid = {f"{name}__epsilon": [20.0, 50.0], f"{name}__topology": ["ring", "star"]}
        search = GridSearchCV(clone(pipeline), grid, cv=3, error_score="raise")
        search.fit(X, y, agents=TOWNS)
        assert list(search.best_estimator_[-1].agent_labels_) == ["east", "north", "west"]
        best = search.best_estimator_.predict(X, agents=TOWNS)
        np.testing.assert_array_equal(search.predict(X), search.best_estimator_.predict(X))
        assert best.shape == (200,)
        # Searches of scikit-learn 1.6 pass nothing on to scores.
        if parse_version(sklearn.__version__) >= parse_version("1.9"):
            own_score = search.best_estimator_.score(X, y, agents=TOWNS)
            assert search.score(X, y, agents=TOWNS) == own_score


def test_scores_of_folds_are_those_of_agents_own_models(regression):
    X, y = regression
    with config_context(enable_metadata_routing=True):
        model = small(epsilon=50.0).set_fit_request(agents=True).set_score_request(agents=True)
        result = cross_validate(
            model, X, y, params={"agents": AGENTS}, cv=2, error_score="raise",
            return_estimator=True, return_indices=True,
        )  # fmt: skip
        tests = result["indices"]["test"]
        for fitted, test, score in zip(
            result["estimator"], tests, result["test_score"], strict=True
        ):
            assert score == fitted.score(X[test], y[test], agents=AGENTS[test])
            assert score != fitted.score(X[test], y[test])


def test_agents_that_are_held_out_are_scored_by_the_average_model_alone(regression):
    X, y = regression
    with config_context(enable_metadata_routing=True):
        request = small().set_fit_request(agents=True)
        params = {"agents": AGENTS, "groups": AGENTS}
        average = clone(request).set_score_request(agents=False)
        result = cross_validate(
            average, X, y, params=params, cv=GroupKFold(3), error_score="raise",
            return_estimator=True,
        )  # fmt: skip
        assert np.isfinite(result["test_score"]).all()
        held_out = [{1, 2, 3} - set(fitted.agent_labels_) for fitted in result["estimator"]]
        assert sorted(map(tuple, held_out)) == [(1,), (2,), (3,)]
        own = clone(request).set_score_request(agents=True)
        with pytest.raises(ValueError, match="expected labels of agents that hold rows"):
            cross_validate(own, X, y, params=params, cv=GroupKFold(3), error_score="raise")


def test_routing_asks_for_what_is_not_requested(regression):
    X, y = regression
    with (
        config_context(enable_metadata_routing=True),
        pytest.raises(ValueError, match=r"agents.* not explicitly set as requested"),
    ):
        make_pipeline(StandardScaler(), small()).fit(X, y, agents=AGENTS)


def test_agents_reach_a_model_without_routing_too(regression):
    X, y = regression
    pipeline = make_pipeline(StandardScaler(), small())
    pipeline.fit(X, y, dpdecentralizedregressor__agents=AGENTS)
    assert list(pipeline[-1].agent_labels_) == [1, 2, 3]
    assert pipeline.predict(X, agents=AGENTS).shape == (200,)
    search = GridSearchCV(small(), {"epsilon": [1.0, 2.0]}, cv=2, error_score="raise")
    assert list(search.fit(X, y, agents=AGENTS).best_estimator_.agent_labels_) == [1, 2, 3]


def test_a_grid_over_trust_and_graphs_is_a_grid(regression):
    grid = {
        "adversary": ["eavesdropper", "peer"],
        "privacy_unit": ["record", "agent"],
        "topology": ["ring", nx.path_graph(10), linked()],
        "epsilon": [1.0, math.inf],
    }
    search = GridSearchCV(small(alpha=1e-4), grid, cv=2, error_score="raise").fit(*regression)
    assert search.best_params_["epsilon"] == math.inf
    assert search.best_score_ > 0.99


# Plans.


SETTINGS = [
    {},
    {"partition": "quantity", "privacy_unit": "agent"},
    {"partition": 4, "adversary": "peer", "coalition": 3, "topology": "ring"},
    {"topology": "random-geometric", "conditioning": None, "neighboring": "zero_out"},
    {"epsilon": [1.0, 2.0, 3.0], "partition": 3, "scale": "private"},
    {"algorithm": MultiStepADMM(batch_fraction=0.3, inner_steps=1), "conditioning": None},
    {
        "algorithm": MultiStepADMM(
            proximal_weight="growing", diameter=4.0, penalty_weight=0.1, tail_fraction=1.0
        ),
        "topology": "star",
    },
]


@pytest.mark.parametrize("settings", SETTINGS, ids=range(len(SETTINGS)))
def test_the_plan_before_any_data_is_the_plan_inside_fit(settings, estimator, plans):
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(123, 3)), rng.integers(2, size=123)
    estimator.set_params(max_iter=4, **settings).fit(X, y)
    assert plans == [plan_of(estimator, 123, 3)]
    assert plans[0].digest() == plan_of(estimator, 123, 3).digest()


@pytest.mark.parametrize("given", ["agents", "column", "dirichlet"])
def test_a_plan_for_given_sizes_is_the_plan_inside_fit(given, estimator, classification, plans):
    X, y = classification
    if given == "agents":
        estimator.fit(X, y, agents=AGENTS)
    elif given == "column":
        estimator.set_params(agent_column=0).fit(np.insert(X, 0, AGENTS, axis=1), y)
    else:
        estimator.set_params(partition="dirichlet", n_agents=3).fit(X, y)
    sizes = plans[0].facts.agents.agent_sizes
    assert given == "dirichlet" or sizes == (100, 50, 50)
    for agent_sizes in (sizes, list(sizes), np.array(sizes)):
        assert plans == [plan_of(estimator, 200, 3, agent_sizes=agent_sizes)]


BAD_SIZES = {
    "too few rows": [10, 10],
    "too many rows": [100, 1],
    "an agent without rows": [100, 0],
    "less than none": [101, -1],
    "floats": [50.0, 50.0],
    "one number": 100,
    "none": [],
    "two dimensions": [[50, 50]],
    "words": ["50", "50"],
}


@pytest.mark.parametrize("topology", ["complete", "ring", nx.path_graph(2)], ids=str)
@pytest.mark.parametrize("sizes", BAD_SIZES.values(), ids=BAD_SIZES)
def test_sizes_that_cannot_be_are_refused(sizes, topology, estimator):
    with pytest.raises(ValueError, match=r"^Got .*expected"):
        plan_of(estimator.set_params(topology=topology), 100, 3, agent_sizes=sizes)


def test_the_plan_does_not_depend_on_the_values_in_the_data(estimator, plans):
    rng = np.random.default_rng(2)
    y = np.tile([0, 1], 50)
    for unit in ("record", "agent"):
        estimator.set_params(privacy_unit=unit)
        for X in (rng.normal(size=(100, 3)), 1e300 * rng.normal(size=(100, 3)), np.zeros((100, 3))):
            estimator.fit(X, y)
        estimator.fit(sparse.csr_matrix(X), y[::-1])
        assert plans[1:] == plans[:-1]
        plans.clear()


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
def test_a_failure_in_the_middle_of_the_rounds_stores_nothing(
    unit, estimator, classification, monkeypatch
):
    X, y = classification
    estimator.set_params(privacy_unit=unit, agent_column=0)
    fitted = clone(estimator).fit(X, y)
    before = dict(vars(fitted))
    released = []
    release = _fitting.Gate.release

    def fail_late(self, *args):
        released.append(args)
        if len(released) % 4 == 0:
            raise KeyboardInterrupt
        return release(self, *args)

    monkeypatch.setattr(_fitting.Gate, "release", fail_late)
    for model in (estimator, fitted):
        with pytest.raises(KeyboardInterrupt):
            model.fit(X[:, :2], y)
    assert vars(fitted) == before
    assert_unfitted(estimator)


def test_without_dask_its_engine_is_an_error_that_names_the_extra(
    estimator, classification, plans, monkeypatch
):
    monkeypatch.setitem(sys.modules, "distributed", None)
    estimator.set_params(engine="dask")
    with pytest.raises(ImportError, match=r"pip install 'skdpadmm\[dask\]'"):
        estimator.fit(*classification)
    with pytest.raises(ImportError, match=r"skdpadmm\[dask\]"):
        plan_of(estimator, 200, 3)
    assert not plans
    assert_unfitted(estimator)


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
@pytest.mark.parametrize("penalty", ["l2", "l1"])
@pytest.mark.parametrize("unit", ["record", "agent"])
@pytest.mark.parametrize("convert", [np.asarray, sparse.csr_matrix])
@pytest.mark.parametrize("case", edge_cases())
def test_an_edge_case_ends_in_a_finite_model(case, convert, unit, penalty, epsilon, estimator):
    X = edge_cases()[case]
    estimator.set_params(privacy_unit=unit, penalty=penalty, max_iter=4, topology="path")
    estimator.set_params(epsilon=epsilon).fit(convert(X), np.arange(len(X)) % 2)
    assert np.isfinite(parameters(estimator)).all()
    assert np.isfinite(estimator.coef_per_agent_).all()
    assert math.isfinite(estimator.consensus_error_)


@pytest.mark.parametrize("unit", ["record", "agent"])
@pytest.mark.parametrize("convert", [np.asarray, sparse.csr_matrix])
def test_rows_of_the_largest_floats_end_in_a_finite_private_model(convert, unit, estimator):
    X = np.vstack([np.full((30, 2), 1.7e308), np.full((30, 2), -1.7e308)])
    estimator.set_params(privacy_unit=unit).fit(convert(X), np.arange(60) % 2)
    assert np.isfinite(parameters(estimator)).all()


@pytest.mark.parametrize("step_size", [1e-100, 1e17, 1e100])
def test_no_step_size_makes_data_speak(step_size):
    X, y = np.ones((8, 2)), np.linspace(-1, 1, 8)
    for unit in ("record", "agent"):
        algorithm = MultiStepADMM(step_size=step_size)
        model = small(n_agents=3, privacy_unit=unit, max_iter=3, algorithm=algorithm)
        assert np.isfinite(model.fit(X, y).coef_).all()


@pytest.mark.parametrize("unit", ["record", "agent"])
def test_one_row_is_enough_for_a_regression(unit):
    model = small(privacy_unit=unit).fit([[0.5, 1.0]], [0.3])
    assert np.isfinite(parameters(model)).all()
    assert list(model.agent_labels_) == [0]


@pytest.mark.parametrize("loss", ["log_loss", "smoothed_hinge"])
@pytest.mark.parametrize("unit", ["record", "agent"])
def test_classes_may_be_absent_at_agents_and_everywhere(unit, loss, classification):
    X, y = classification
    knobs = {"loss": loss, "privacy_unit": unit, "max_iter": 5}
    model = DPDecentralizedClassifier(classes=[0, 1, 7], **knobs).fit(X, y, agents=y)
    assert model.coef_.shape == (3, 3)
    assert model.coef_per_agent_.shape == (2, 3, 3)
    assert model.intercept_per_agent_.shape == (2, 3)
    assert np.isfinite(parameters(model)).all()
    assert set(model.predict(X, agents=y)) <= {0, 1, 7}
    two = DPDecentralizedClassifier(classes=[0, 1], **knobs)
    assert set(two.fit(X, 0 * y, agents=AGENTS).predict(X)) <= {0, 1}


def test_a_hinge_has_no_probabilities(classification):
    X, y = classification
    logistic = DPDecentralizedClassifier(max_iter=5, random_state=0).fit(X, y)
    np.testing.assert_allclose(logistic.predict_proba(X).sum(axis=1), 1)
    hinge = clone(logistic).set_params(loss="smoothed_hinge").fit(X, y)
    assert not hasattr(hinge, "predict_proba")
    assert not hasattr(hinge, "predict_log_proba")
    assert set(hinge.predict(X)) <= {0, 1}
    # What belongs to probabilities does not stay behind.
    assert not any(name.startswith("_") for name in vars(clone(hinge).fit(X, y)))
    refitted = logistic.set_params(loss="smoothed_hinge").fit(X, y)
    np.testing.assert_array_equal(parameters(refitted), parameters(hinge))


@pytest.mark.parametrize("unit", ["record", "agent"])
def test_an_agent_may_hold_one_row_and_the_others_the_rest(unit, estimator, classification):
    X, y = classification
    agents = np.where(np.arange(200) == 9, 0, 1 + np.arange(200) % 3)
    estimator.set_params(privacy_unit=unit).fit(X, y, agents=agents)
    assert np.isfinite(parameters(estimator)).all()
    assert len(estimator.agent_labels_) == 4


def test_the_same_seed_gives_the_same_bits_and_another_seed_others(estimator, classification):
    expected = parameters(estimator.fit(*classification))
    np.testing.assert_array_equal(parameters(estimator.fit(*classification)), expected)
    other = parameters(estimator.set_params(random_state=1).fit(*classification))
    assert not np.array_equal(other, expected)


# What a fit leaves.


EDGES = {"complete": 10, "ring": 5, "star": 4, "path": 4}


@pytest.mark.parametrize("inner_steps", [1, 3])
@pytest.mark.parametrize("topology", EDGES)
def test_messages_are_two_along_each_edge_in_each_round(topology, inner_steps, regression):
    X, y = regression
    algorithm = MultiStepADMM(inner_steps=inner_steps)
    for unit in ("record", "agent"):
        model = small(partition=5, privacy_unit=unit, topology=topology, algorithm=algorithm)
        model.set_params(max_iter=4).fit(X, y)
        assert (model.n_rounds_, model.n_iter_) == (4, 4 * inner_steps)
        assert model.n_messages_ == 4 * 2 * EDGES[topology]
        assert model.bytes_sent_ == 4 * 2 * EDGES[topology] * 8 * 4  # 3 coefficients, an intercept


def test_messages_of_all_classes_and_of_preparations_are_counted(classification):
    X, y = classification
    model = DPDecentralizedClassifier(
        partition=5, classes=[0, 1, 2], max_iter=4, conditioning="private", scale="private",
        fit_intercept=False, topology="ring",
    ).fit(X, y)  # fmt: skip
    n_bins = model.privacy_.releases[0].shape[0]
    assert [line.shape for line in model.privacy_.releases] == [(n_bins,), (6,), (5, 3, 3)]
    # Each agent's part of a preparation is passed on along every edge, in both directions.
    assert model.n_messages_ == 4 * 10 + 2 * (5 * 10)
    # 3 coefficients of 3 classes; the triangle of a symmetric 3 x 3 matrix.
    assert model.bytes_sent_ == 8 * (4 * 10 * 9 + 5 * 10 * (n_bins + 6))


@pytest.mark.parametrize("penalty", ["l2", "l1", None])
@pytest.mark.parametrize("classes", [2, 3])
def test_agents_end_up_with_models_of_their_own(classes, penalty, estimator, classification):
    X, y = classification
    bounds = (-3, 1)
    estimator.set_params(penalty=penalty, epsilon=5.0, feature_bounds=bounds)
    if is_classifier(estimator):
        estimator.set_params(classes=range(classes))
    estimator.fit(X, y, agents=AGENTS)
    shape = estimator.coef_.shape
    assert estimator.coef_per_agent_.shape == (3, *shape)
    assert estimator.intercept_per_agent_.shape == (3, *np.shape(estimator.intercept_))
    distance = np.square(estimator.coef_per_agent_ - estimator.coef_).reshape(3, -1).sum(axis=1)
    gap = np.square(estimator.intercept_per_agent_ - estimator.intercept_).reshape(3, -1)
    expected = math.sqrt(np.mean(distance + gap.sum(axis=1)))
    assert estimator.consensus_error_ == pytest.approx(expected, rel=1e-12)
    assert estimator.consensus_error_ > 0
    if penalty != "l1":
        mean = estimator.coef_per_agent_.mean(axis=0)
        np.testing.assert_allclose(mean, estimator.coef_, rtol=1e-9, atol=1e-12)
        mean = estimator.intercept_per_agent_.mean(axis=0)
        np.testing.assert_allclose(mean, estimator.intercept_, rtol=1e-9, atol=1e-12)


def test_without_privacy_agents_agree_and_nothing_is_sent(estimator, classification):
    X, y = classification
    estimator.set_params(epsilon=math.inf).fit(X, y, agents=AGENTS)
    assert estimator.n_messages_ == estimator.bytes_sent_ == estimator.consensus_error_ == 0
    for own in estimator.coef_per_agent_:
        np.testing.assert_array_equal(own, estimator.coef_)
    np.testing.assert_array_equal(estimator.predict(X, agents=AGENTS), estimator.predict(X))
    assert "not private" in repr(estimator.privacy_)
    assert all(math.isinf(estimator.privacy_.epsilon(name)) for name in OBSERVERS)
    assert math.isinf(estimator.plan(200, 3, **({"n_classes": 2} if is_classifier(
        estimator) else {})).guarantee("peer").epsilon(1e-5))  # fmt: skip


LEARNED = {
    "coef_", "intercept_", "coef_per_agent_", "intercept_per_agent_", "consensus_error_", "n_iter_",
    "n_rounds_", "n_messages_", "bytes_sent_", "agent_labels_", "topology_", "privacy_",
    "n_features_in_", "expected_privacy_loss_",
}  # fmt: skip


@pytest.mark.parametrize("epsilon", [1.0, math.inf])
def test_nothing_is_stored_but_models_counts_and_the_report(epsilon, estimator, classification):
    X, y = classification
    estimator.set_params(epsilon=epsilon).fit(X, y)
    more = {"classes_", "_derivative_bound", "_doubt", "_score_variance"}
    expected = LEARNED | (more if is_classifier(estimator) else set())
    assert set(vars(estimator)) == set(estimator.get_params(deep=False)) | expected


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("unit", ["record", "agent"])
def test_no_value_of_a_canary_row_is_in_the_pickle(unit, dtype, estimator, classification):
    X, y = classification
    canary = np.array([0.1234567890123, -0.9876543210987, 0.5432109876543], dtype=dtype)
    X = X.astype(dtype)
    X[7] = canary
    values = list(canary)
    if not is_classifier(estimator):
        y = y.astype(float)
        y[7] = 0.7654321098765
        values.append(y[7])
    for seed in (None, 0):
        model = estimator.set_params(privacy_unit=unit, random_state=seed, n_jobs=2).fit(X, y)
        content = pickle.dumps(model)
        for value in values:
            for layout in ("<d", ">d", "<f", ">f"):
                assert struct.pack(layout, value) not in content
        for word in (b"Philox", b"PCG64", b"MT19937", b"Generator", b"Engine", b"Gate", b"Rows"):
            assert word not in content


@pytest.mark.parametrize("unit", ["record", "agent"])
def test_the_progress_bar_counts_rounds_and_says_nothing_else(unit, estimator, classification):
    def bar(X, y):
        text = io.StringIO()
        with redirect_stderr(text):
            estimator.set_params(verbose=1, max_iter=7, privacy_unit=unit).fit(X, y)
        # What is left without clock times and rates.
        lines = re.split(r"[\r\n]+", text.getvalue())
        return {re.sub(r"\[.*\]", "", line).strip() for line in lines}

    X, y = classification
    pattern = re.compile(rf"^({type(estimator).__name__}: +\d+%\|.*\| \d/7)?$")
    lines = bar(X, y)
    assert all(pattern.match(line) for line in lines)
    assert any(line.endswith("7/7") for line in lines)
    assert all(pattern.match(line) for line in bar(1e3 * X, 1 - y))


def test_a_quiet_fit_prints_nothing(estimator, classification, capfd):
    estimator.fit(*classification)
    assert capfd.readouterr() == ("", "")


# Reports.


@pytest.mark.parametrize("unit", ["record", "agent"])
@pytest.mark.parametrize("adversary", ["eavesdropper", "peer"])
def test_a_report_has_all_adversaries_with_one_figure(adversary, unit, estimator, classification):
    estimator.set_params(adversary=adversary, privacy_unit=unit, epsilon=0.7, delta=1e-6)
    report = estimator.fit(*classification).privacy_
    assert [observer.name for observer in report.observers] == list(OBSERVERS)
    assert report.epsilon() == report.epsilon(adversary) == pytest.approx(0.7, rel=1e-6)
    assert report.epsilon() <= 0.7 * (1 + 1e-9)
    for name in OBSERVERS:
        assert report.guarantee(name) == report.guarantee()
        np.testing.assert_array_equal(report.epsilon_per_agent(name), report.epsilon())
    assert all(observer.unit == unit for observer in report.observers)
    with pytest.raises(ValueError, match="Got observer='server'"):
        report.epsilon("server")


def test_against_an_eavesdropper_and_against_peers_the_plan_is_the_same(estimator):
    plans = [
        plan_of(estimator.set_params(adversary=adversary, coalition=coalition), 200, 3)
        for adversary, coalition in (("eavesdropper", 1), ("peer", 1), ("peer", 9))
    ]
    assert all(plan.releases == plans[0].releases for plan in plans)
    assert all(plan.settings == plans[0].settings for plan in plans)


def test_every_peer_learns_the_same_of_an_agent(estimator, classification):
    X, y = classification
    report = estimator.set_params(topology="path", partition=4).fit(X, y).privacy_
    pairs = [report.pairwise(a, b) for a in range(4) for b in range(4) if a != b]
    assert set(pairs) == {report.epsilon("peer")}
    assert report.pairwise(0, 3, delta=1e-3) < report.epsilon()
    for pair in ((0, 4), (4, 0), (-1, 0), (0, -1)):
        with pytest.raises(ValueError, match=r"^Got agent -?\d, expected one of \[0, 1, 2, 3\]"):
            report.pairwise(*pair)
    with pytest.raises(ValueError, match=r"^Got agent 2 as its own peer, expected two"):
        report.pairwise(2, 2)
    federated = DPFedRidge(random_state=0, max_iter=2).fit(X, y).privacy_
    with pytest.raises(ValueError, match=r"^Got observer='peer'"):
        federated.pairwise(0, 1)


@pytest.mark.parametrize(("n_agents", "most"), [(1, 1), (2, 1), (5, 4)])
def test_a_coalition_is_some_of_the_peers(n_agents, most, estimator, classification):
    X, y = classification
    for coalition in (1, most):
        estimator.set_params(n_agents=n_agents, coalition=coalition).fit(X, y)
        text = repr(estimator.privacy_)
        assert ("one peer" if coalition == 1 else f"{coalition} peers") in text
    with pytest.raises(ValueError, match=rf"^Got coalition={most + 1}, expected .*\[1, {most}\]"):
        plan_of(estimator.set_params(coalition=most + 1), 200, 3)


def test_agents_that_are_made_up_are_said_to_be(regression):
    X, y = regression
    made_up = "The agents are made up by partition='iid'"
    model = small()
    assert made_up in repr(model.plan(200, 3))
    assert made_up not in repr(model.plan(200, 3, agent_sizes=[100, 100]))
    assert made_up in repr(model.fit(X, y).privacy_)
    assert made_up not in repr(model.fit(X, y, agents=AGENTS).privacy_)


def test_a_plan_with_a_column_of_agents_asks_for_their_sizes():
    model = small(agent_column=0)
    with pytest.raises(ValueError, match=r"^Got agent_column=0 without agent_sizes"):
        model.plan(200, 2)
    assert model.plan(200, 2, agent_sizes=[50, 150]).facts.agents.agent_sizes == (50, 150)


def test_the_plan_prints_the_graph_and_what_each_agent_adds():
    text = repr(small(topology="star", epsilon=[1.0, 2.0, 4.0], partition=3).plan(300, 2))
    assert "topology: star, 2 edges, degrees 1 to 2" in text
    assert "gradients of agents (3, 3, 1)" in text
    assert re.search(r"of which each agent adds [\d.]+ to [\d.]+, to a message of its own", text)


def test_made_up_agents_are_told_of_whatever_type_their_number_has():
    for partition in (4, np.int64(4), "iid"):
        plan = small(partition=partition).plan(100, 2)
        assert any("made up" in line for line in plan.assumptions)
    plan = small(partition=lambda X, y: np.arange(len(X)) % 4).plan(100, 2, agent_sizes=[25] * 4)
    assert not any("made up" in line for line in plan.assumptions)


def test_a_batch_is_assumed_to_be_secret_where_there_is_one():
    plans = [
        small(algorithm=MultiStepADMM(batch_fraction=fraction)).plan(100, 2)
        for fraction in (1.0, 0.5)
    ]
    told = [any("batch" in line for line in plan.assumptions) for plan in plans]
    assert told == [False, True]


def test_the_graph_of_a_fit_can_be_used_again(estimator, classification):
    X, y = classification
    graph = estimator.set_params(topology="erdos-renyi", partition=6).fit(X, y).topology_
    assert estimator.set_params(topology=graph).fit(X, y).topology_ == graph
    with pytest.raises(ValueError, match=r"^Got a topology of 6 nodes for 5 agents"):
        estimator.set_params(partition=5).fit(X, y)
