"""Who holds which row: labels, columns, partitions, budgets, graphs, relations, messages."""

import networkx as nx
import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse

import skdpadmm as dp
from skdpadmm.algorithms import FederatedADMM, MultiStepADMM, RandomizedSGD
from skdpadmm.privacy import GaussianDP, gaussian_mu
from tests.interface.registry import (
    DEFAULTS,
    ROWS,
    SEES_POLARS,
    all_pairs,
    assert_alike,
    parameters,
    plan_of,
)

FAMILIES = ["fed ridge", "fed logistic", "network", "network of classes", "personal",
            "personal classes"]  # fmt: skip
THREE = ["fed ridge", "network of classes", "personal"]
AGENTS = np.resize([3, 1, 2, 1], 60)
TOWNS = np.array(["", "east", "north", "west"])[AGENTS]
NAMES = ["east", "north", "west"]


def unnamed(name, **changed):
    """An estimator without agents of its own making."""
    graph = {"topology": "complete"} if DEFAULTS[name].family == "decentralized" else {}
    return DEFAULTS[name].make(**({"n_agents": None} | graph | changed))


def raw_scores(model, X, **whose):
    """What is predicted, as numbers."""
    ask = getattr(model, "decision_function", model.predict)
    return ask(X, **whose)


LABELS = {
    "list": AGENTS.tolist(),
    "object": TOWNS.astype(object),
    "float": AGENTS / 2,
    "Series": pd.Series(AGENTS, index=np.arange(60)[::-1]),
    "dates": np.datetime64("2020-01-01") + AGENTS,
}


@pytest.mark.parametrize(("name", "kind"), zip(FAMILIES[1:], LABELS, strict=True))
def test_agents_are_labels_of_any_type_and_each_has_its_model(name, kind):
    labels = LABELS[kind]
    X, y = ROWS[name].data()
    model = unnamed(name).fit(X, y, agents=labels)
    assert model.agent_labels_.tolist() == np.unique(np.asarray(labels)).tolist()
    if DEFAULTS[name].family == "federated":
        return
    scores = np.empty((60, model.coef_.size // 3))
    for agent, label in enumerate(model.agent_labels_):
        own = np.asarray(labels) == label
        scores[own] = X[own] @ np.atleast_2d(model.coef_per_agent_[agent]).T
        scores[own] += model.intercept_per_agent_[agent]
    expected = scores[:, 0] if scores.shape[1] == 1 else scores.argmax(axis=1)
    expected = expected > 0 if name == "personal classes" else expected
    assert_alike(model.predict(X, agents=labels), expected)


COLUMN_KINDS = {
    "array": lambda number, names: number,
    "CSR": lambda number, names: sparse.csr_matrix(number),
    "frame": lambda number, names: pd.DataFrame(number, columns=names),
    "frame by name": lambda number, names: pd.DataFrame(number, columns=names),
    "polars frame": lambda number, names: pl.DataFrame(number, schema=names),
    "polars frame by name": lambda number, names: pl.DataFrame(number, schema=names),
}


@pytest.mark.parametrize(
    ("name", "kind", "places"), all_pairs(THREE, COLUMN_KINDS, [(3, -1), (0, 0), (1, 1), (0, -4)])
)
def test_a_column_of_agents_is_the_same_as_their_labels(name, kind, places):
    if "polars" in kind and not SEES_POLARS:
        pytest.skip("This scikit-learn does not see the names of columns of this polars.")
    X, y = ROWS[name].data()
    where, index = places
    expected = unnamed(name).fit(X, y, agents=AGENTS)
    names = ["a", "b", "c"]
    names.insert(where, "owner")
    made, other = (
        COLUMN_KINDS[kind](np.insert(X, where, whose, axis=1), names) for whose in (AGENTS, 17)
    )
    model = unnamed(name, agent_column="owner" if "by name" in kind else index).fit(made, y)
    assert_alike(parameters(model), parameters(expected))
    assert model.agent_labels_.tolist() == [1, 2, 3]
    assert (model.n_features_in_, model.coef_.shape[-1]) == (4, 3)
    assert "frame" not in kind or list(model.feature_names_in_) == names
    if DEFAULTS[name].family == "personalized":
        found, own = raw_scores(model, made), raw_scores(expected, X, agents=AGENTS)
        with pytest.raises(ValueError, match=r"^Got agents and agent_column="):
            model.predict(made, agents=AGENTS)
    else:
        # Nothing but the features counts in predictions.
        found, own = raw_scores(model, other), raw_scores(expected, X)
    assert_alike(found, own)
    if "frame" in kind:
        bare = pd.DataFrame(X, columns=["a", "b", "c"])
        with pytest.raises(ValueError, match=r"has 3 features|names should match|agent_column"):
            model.predict(bare)


def test_a_column_of_words_is_no_number_and_bounds_by_name_leave_it_out():
    X, y = ROWS["fed ridge"].data()
    bounds = {"c": (-2, 1), "a": (-1, 3), "b": (-1, 1)}
    by_position = unnamed("fed ridge", feature_bounds=([-1, -1, -2], [3, 1, 1]))
    expected = parameters(by_position.fit(X, y, agents=TOWNS))
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    frame.insert(1, "town", TOWNS)
    categorical = frame.astype({"town": "category"})
    polars = pl.DataFrame(frame.to_dict("list"), schema_overrides={"town": pl.Categorical})
    frames = [("town", frame), (1, frame), (-3, categorical), ("town", polars)]
    for column, data in frames if SEES_POLARS else frames[:-1]:
        model = unnamed("fed ridge", agent_column=column, feature_bounds=bounds)
        np.testing.assert_allclose(parameters(model.fit(data, y)), expected, rtol=1e-9)
        assert model.agent_labels_.tolist() == NAMES
    with pytest.raises(ValueError, match=r"^Got feature_bounds"):
        model.set_params(feature_bounds=bounds | {"town": (0, 9)}).fit(frame, y)


# Partitions.


@pytest.mark.parametrize("name", THREE)
def test_a_partition_may_be_a_function_of_the_data_and_says_what_it_looked_at(name):
    X, y = ROWS[name].data()
    condition = "conditional on the resulting ownership"
    model = unnamed(name, partition=lambda X, y: X[:, 0] > 0).fit(X, y)
    given = unnamed(name).fit(X, y, agents=X[:, 0] > 0)
    np.testing.assert_array_equal(parameters(model), parameters(given))
    assert condition in repr(model.privacy_)
    assert condition not in repr(given.privacy_)
    assert "made up" not in repr(given.privacy_)
    for partition in ("iid", "dirichlet", "sorted"):
        model = unnamed(name, partition=partition).fit(X, y)
        looks = partition in ("dirichlet", "sorted")
        assert ("formed by looking at the data" in repr(model.privacy_)) == looks
        assert "made up" in repr(model.privacy_)
        sizes = {"agent_sizes": [30, 30]} if partition == "dirichlet" else {}
        planned = plan_of(model, 60, 3, **sizes).assumptions
        assert any("formed" in line for line in planned) == (partition == "sorted")
        assert any("made up" in line for line in planned) == (partition != "dirichlet")


# Budgets of agents.


def test_a_delta_of_each_agent_is_a_budget_at_one_delta():
    """As the guide of federations converts them: with Gaussian noise nothing is lost."""
    asked = {"a": (1.0, 1e-6), "b": (2.0, 1e-5), "c": (0.5, 1e-4)}
    known = {"feature_bounds": (-1, 1), "target_bounds": (-1, 1), "delta": 1e-5}
    epsilons = {
        agent: GaussianDP(gaussian_mu(epsilon, delta)).epsilon(1e-5)
        for agent, (epsilon, delta) in asked.items()
    }
    known |= {"conditioning": None, "algorithm": FederatedADMM(edge_noise=0)}
    model = dp.DPFedRidge(epsilon=epsilons, adversary="server", **known)
    X = np.random.default_rng(0).uniform(-1, 1, (60, 3))
    report = model.fit(X, X[:, 0], agents=np.resize(list(asked), 60)).privacy_
    for agent, (epsilon, delta) in asked.items():
        found = report.epsilon_of(agent, "server", delta)
        assert found == pytest.approx(epsilon, rel=1e-9)
        assert found <= epsilon


BUDGETS = {"west": 4.0, "east": 1.0, "north": 0.5}
FORMS = [BUDGETS, pd.Series(BUDGETS).sort_values(), [1.0, 0.5, 4.0]]


@pytest.mark.parametrize("form", FORMS, ids=["dict", "Series", "list of sorted labels"])
@pytest.mark.parametrize("name", THREE)
def test_a_budget_goes_to_the_agent_that_it_names(name, form, plans):
    X, y = ROWS[name].data()
    # Labels win over what makes agents up.
    model = unnamed(name, epsilon=form, partition="dirichlet", n_agents=7)
    report = model.fit(X, y, agents=TOWNS).privacy_
    assert plans[0].facts.agents.epsilons == (1.0, 0.5, 4.0)
    # A plan that knows no labels takes them from the budgets.
    assert plans == [plan_of(model, 60, 3, agent_sizes=[30, 15, 15])]
    for town, budget in BUDGETS.items():
        assert report.epsilon_of(town) == pytest.approx(budget, rel=1e-3)
        assert report.epsilon_of(town) <= budget
    np.testing.assert_allclose(report.epsilon_per_agent(), [1.0, 0.5, 4.0], rtol=1e-3)
    with pytest.raises(ValueError, match="expected one of"):
        report.epsilon_of("south")


BAD_BUDGETS = [
    ({"east": 1.0, "north": 2.0}, r"missing \['west'\]"),
    (BUDGETS | {"south": 0.5}, r"unknown \['south'\]"),
    (pd.Series([1.0, 0.5, 0.3, 0.2], [*NAMES, "west"]), r"twice \['west'\]"),
]


@pytest.mark.parametrize(("given", "message"), BAD_BUDGETS)
@pytest.mark.parametrize(
    ("name", "parameter"), [*((name, "epsilon") for name in THREE), ("personal", "confidence")]
)
def test_a_value_that_is_missing_or_of_nobody_is_refused(
    name, parameter, given, message, plans, assert_unfitted
):
    X, y = ROWS[name].data()
    model = unnamed(name, **{parameter: given})
    with pytest.raises(ValueError, match=rf"^Got {parameter} by label \(.*{message}"):
        model.fit(X, y, agents=TOWNS)
    with pytest.raises(ValueError, match=message):
        plan_of(model, 60, 3, agent_sizes={"east": 30, "north": 15, "west": 15})
    assert_unfitted(model)
    assert not plans


# Graphs.


@pytest.mark.parametrize(
    "graph",
    [nx.Graph([("west", "east"), ("east", "north")]), [[0, 1, 1], [1, 0, 0], [1, 0, 0]]],
    ids=["labels", "matrix"],
)
def test_a_graph_of_labels_or_positions_is_that_of_its_name(graph, plans):
    X, y = ROWS["network"].data()
    for topology in ("star", graph):
        model = unnamed("network", topology=topology).fit(X, y, agents=TOWNS)
    assert plans == [plan_of(model, 60, 3, agent_sizes=[30, 15, 15])] * 2
    model.set_params(topology=nx.Graph([("east", "north"), ("north", "south")]))
    message = r"no node for agents \['west'\], no agent for nodes \['south'\]"
    with pytest.raises(ValueError, match=message):
        model.fit(X, y, agents=TOWNS)


RING = nx.cycle_graph(7)


@pytest.mark.parametrize("graph", [RING, nx.to_numpy_array(RING), nx.to_pandas_adjacency(RING)])
def test_without_agents_a_graph_says_how_many_there_are(graph):
    X, y = ROWS["network"].data()
    model = unnamed("network", topology=graph).fit(X, y)
    assert model.agent_labels_.tolist() == list(range(7))
    assert plan_of(model, 60, 3).facts.agents.n_agents == 7
    assert plan_of(model, 60, 3) == plan_of(model.set_params(n_agents=7), 60, 3)
    model.set_params(n_agents=5)
    for action in (lambda: model.fit(X, y), lambda: plan_of(model, 60, 3)):
        with pytest.raises(ValueError, match=r"^Got n_agents=5 with a topology of 7 nodes, exp"):
            action()
    # Of agents that are given, n_agents says nothing.
    model.fit(X, y, agents=np.arange(60) % 7)


def test_the_seed_draws_random_graphs_and_that_of_a_fit_can_be_used_again():
    X, y = ROWS["network"].data()
    model = unnamed("network", topology="erdos-renyi", n_agents=6)
    graphs = [model.set_params(random_state=s).plan(60, 3) for s in (0, 0, 1, None)]
    assert graphs[0] == graphs[1] == graphs[3]
    assert graphs[0].facts.agents.topology != graphs[2].facts.agents.topology
    graph = model.set_params(random_state=0).fit(X, y).topology_
    assert model.set_params(topology=graph).fit(X, y).topology_ == graph
    model.set_params(topology="ring", random_state=np.random.default_rng(0)).fit(X, y)
    assert "The graph is public: ring, 6 edges, degree 2." in repr(model.privacy_)


def test_peers_and_coalitions():
    X, y = ROWS["network"].data()
    report = unnamed("network", topology="path", n_agents=4).fit(X, y).privacy_
    pairs = {report.pairwise(a, b) for a in range(4) for b in range(4) if a != b}
    assert pairs == {report.epsilon("peer")}
    assert report.pairwise(0, 3, delta=1e-3) < report.epsilon()
    with pytest.raises(ValueError, match=r"^Got agent=-?\d, expected one of \[0, 1, 2, 3\]"):
        report.pairwise(0, 4)
    with pytest.raises(ValueError, match=r"^Got agent 2 as its own peer, expected two"):
        report.pairwise(2, 2)
    with pytest.raises(ValueError, match=r"^Got observer='peer'"):
        unnamed("fed ridge").fit(X, y).privacy_.pairwise(0, 1)


# Messages.

SIX = 3 + 3  # messages of a round of three agents: each is told, and each answers


def test_messages_of_a_federation_are_counted():
    X, y = ROWS["fed ridge"].data()
    bare = {"conditioning": None, "max_iter": 4, "n_agents": 3}
    for unit in ("record", "agent"):
        model = unnamed("fed ridge", privacy_unit=unit, **bare).fit(X, y)
        assert (model.n_rounds_, model.n_iter_, model.n_messages_) == (4, 4, 4 * SIX)
        assert model.bytes_sent_ == 4 * SIX * 8 * 4  # 3 coefficients and an intercept
    classes = {"classes": [0, 1, 2], "fit_intercept": False, "conditioning": "private"}
    model = unnamed("fed logistic", **(bare | classes)).fit(X, np.arange(60) % 3)
    # 3 coefficients of 3 classes; the triangle of a symmetric 3 x 3 matrix.
    assert model.n_messages_ == 4 * SIX + SIX
    assert model.bytes_sent_ == 8 * (4 * SIX * 9 + SIX * 6)
    for adversary, answers in (("server", 1), ("sums", 3), ("model", 3)):
        # Where the noise of others counts, those who sit a round out send theirs.
        fixed = {"participation": 1 / 3, "algorithm": FederatedADMM(sampling="fixed")}
        model = unnamed("fed ridge", adversary=adversary, **fixed, **bare).fit(X, y)
        assert model.n_messages_ == 4 * (3 + answers)
    for absent in ({"dropout": 0.4}, {"participation": 0.4}):
        model = unnamed("fed ridge", **(bare | {"max_iter": 20} | absent)).fit(X, y)
        # Some of 60 answers were lost.
        assert model.n_rounds_ <= model.n_messages_ - 20 * 3 < 60


@pytest.mark.parametrize(
    ("topology", "edges", "inner_steps"), [("complete", 10, 1), ("ring", 5, 3), ("star", 4, 2)]
)
def test_messages_are_two_along_each_edge_in_each_round(topology, edges, inner_steps):
    X, y = ROWS["network"].data()
    knobs = {"n_agents": 5, "topology": topology, "max_iter": 4,
             "algorithm": MultiStepADMM(inner_steps=inner_steps)}  # fmt: skip
    for unit in ("record", "agent"):
        model = unnamed("network", conditioning=None, privacy_unit=unit, **knobs).fit(X, y)
        assert (model.n_rounds_, model.n_iter_) == (4, 4 * inner_steps)
        assert model.n_messages_ == 4 * 2 * edges
        assert model.bytes_sent_ == 4 * 2 * edges * 8 * 4
    # Each agent broadcasts its part of a preparation, along a spanning tree.
    model = unnamed("network", conditioning="private", **knobs).fit(X, y)
    assert model.n_messages_ == 4 * 2 * edges + 5 * 4
    assert model.bytes_sent_ == 8 * (4 * 2 * edges * 4 + 5 * 4 * 10)


def test_a_broadcast_takes_one_message_for_each_edge_of_a_spanning_tree():
    X, y = ROWS["network"].data()
    knobs = {"n_agents": 6, "topology": "complete", "conditioning": None}
    model = unnamed("network", algorithm=RandomizedSGD(), **knobs).fit(X, y)
    assert model.n_messages_ == 6 * 5
    assert model.bytes_sent_ == 8 * 4 * 6 * 5
