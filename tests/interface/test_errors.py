"""What is refused, before data, in words that say what was got, what is expected and what to do."""

import inspect
import math
import re

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from scipy import sparse

import skdpadmm
from skdpadmm import DPAdmmLasso, DPAdmmLinearSVC, DPAdmmLogisticRegression, DPAdmmRidge
from skdpadmm.algorithms import FederatedADMM, MultiStepADMM
from tests.interface.registry import ROWS, plan_of

CENTRAL, FEDERATED, NETWORK, PERSONAL = "ridge", "fed logistic", "network", "personal classes"
CLASSES = (FEDERATED, PERSONAL)
OF_AGENTS = (FEDERATED, NETWORK, PERSONAL)
EVERYWHERE = (CENTRAL, *OF_AGENTS)


# Kinds of estimators, parameters, message. Every family with agents gets ten of them.
REFUSED = [
    (EVERYWHERE, {"algorithm": "admm"}, "^Got algorithm='admm', expected one of"),
    (EVERYWHERE, {"max_iter": True}, "^The 'max_iter' parameter of .* Got True"),
    (EVERYWHERE, {"feature_bounds": (1, -1)}, "^Got feature_bounds"),
    ((CENTRAL, NETWORK), {"target_bounds": (1, -1)}, "^Got target_bounds"),
    (CENTRAL, {"algorithm": FederatedADMM()}, "^Got algorithm=Fed.* a central algorithm object"),
    (FEDERATED, {"algorithm": "consensus-admm"}, "^Got algorithm='cons.*a federated algorithm"),
    (NETWORK, {"algorithm": MultiStepADMM(inner_steps=0)}, "^Got inner_steps=0, expected an int"),
    # Weights of classes.
    (CLASSES, {"class_weight": "balanced"}, "^Got class_weight='balanced'.* are private, so"),
    (CLASSES, {"class_weight": {0: 0.0}, "classes": [0, 1]}, r"expected a dict of .* \(0, inf\)"),
    (CLASSES, {"class_weight": {2: 2.0}, "classes": [0, 1]}, r"^Got class_weight for labels \[2\]"),
    # Budgets of agents.
    (OF_AGENTS, {"epsilon": [1.0, 2.0]}, "^Got 2 values of epsilon for 10 agents, expected"),
    (OF_AGENTS, {"epsilon": [0.0] + [1.0] * 9}, "^Got epsilon="),
    (OF_AGENTS, {"epsilon": [math.inf] + [1.0] * 9}, "all of them finite or all"),
    (FEDERATED, {"epsilon": [1.0] * 10, "adversary": "sums"}, "adversary='sums', expected 'serv"),
    # Agents, graphs, similarities and confidences.
    (OF_AGENTS, {"n_agents": 61}, "^Got n_agents=61 for 60 rows"),
    (OF_AGENTS, {"partition": max, "n_agents": 3}, "^Got n_agents=3 with a callable partition"),
    (FEDERATED, {"n_honest": 11}, r"^Got n_honest=11, expected an int in \[1, 10\]"),
    (NETWORK, {"coalition": 10}, r"^Got coalition=10, expected an int in \[1, 9\]"),
    (NETWORK, {"topology": nx.path_graph(4)}, "^Got n_agents=10 with a topology of 4 nodes"),
    (NETWORK, {"topology": "circle"}, "^Got topology='circle', expected one of"),
    (PERSONAL, {"similarity": "knn"}, "^Got similarity='knn' with features of shape"),
    (PERSONAL, {"agent_features": np.ones((10, 2))}, "^Got features of the agents with similar"),
    (PERSONAL, {"confidence": [0.5, 1.0]}, "^Got 2 values of confidence for 10"),
    (PERSONAL, {"confidence": [2.0] * 10}, r"^Got confidence=.* a float in \(0, 1\]"),
]
CASES = [
    pytest.param(name, given, message, id=f"{name}-{i}")
    for i, (names, given, message) in enumerate(REFUSED)
    for name in ([names] if isinstance(names, str) else names)
]


@pytest.mark.parametrize(("name", "given", "message"), CASES)
def test_what_cannot_be_is_refused_by_plan_and_by_fit_whatever_the_budget(
    name, given, message, plans, assert_unfitted
):
    ten = {} if name == CENTRAL else {"n_agents": 10}
    if name == NETWORK:
        ten["topology"] = "complete"
    for epsilon in (1.0, math.inf):
        model = ROWS[name].make(**(ten | {"epsilon": epsilon} | given))
        with pytest.raises(ValueError, match=message):
            plan_of(model, 60, 3)
        with pytest.raises(ValueError, match=message):
            model.fit(*ROWS[name].data())
        assert_unfitted(model)
    assert not plans


@pytest.mark.parametrize("name", CLASSES)
def test_a_plan_with_weights_of_classes_needs_to_know_them(name):
    X, y = ROWS[name].data()
    model = ROWS[name].make(class_weight={1: 2.0})
    with pytest.raises(ValueError, match=r"^Got class_weight for labels \[1\] with classes=None"):
        plan_of(model, 60, 3)
    seen = model.fit(X, y).coef_
    np.testing.assert_array_equal(model.set_params(classes=[0, 1]).fit(X, y).coef_, seen)


# What only data or their shape can bring up.


@pytest.mark.parametrize("name", EVERYWHERE)
def test_seeds_and_weights_that_no_noise_can_come_from_are_refused(name, plans, assert_unfitted):
    X, y = ROWS[name].data()
    for random_state in (-1, 2**32, 1.5):
        model = ROWS[name].make(random_state=random_state)
        with pytest.raises(ValueError, match="cannot be used to seed the noise"):
            model.fit(X, y)
        assert_unfitted(model)
    with pytest.raises(ValueError, match="expected random_state=None"):
        ROWS[name].make(sampler="opendp").fit(X, y)
    weights = {False: "Leave it out", True: r"Use class_weight={label: weight}"}
    message = rf"^Got sample_weight, expected .*\.fit\(X, y, .* {weights[name in CLASSES]}\.$"
    if name != CENTRAL:
        with pytest.raises(TypeError, match=message):
            ROWS[name].make().fit(X, y, sample_weight=np.ones(60))
    assert not plans


@pytest.mark.parametrize("name", EVERYWHERE)
def test_a_plan_that_gets_data_shows_the_call_with_their_shape(name):
    X, y = ROWS[name].data()
    more = ", n_classes=..." if name in CLASSES else ""
    message = f"plan reads no data: plan(n_samples=60, n_features=3{more})."
    model = ROWS[name].make()
    for data in (X, pd.DataFrame(X), sparse.csr_array(X)):
        for call in (lambda X=data: model.plan(X, y), lambda X=data: model.plan(X)):
            with pytest.raises(TypeError, match="^Got data, .* " + re.escape(message) + "$"):
                call()


@pytest.mark.parametrize(
    ("model", "instead"),
    [
        (DPAdmmRidge, "DPFedRidge, or DPDecentralizedRegressor"),
        (DPAdmmLogisticRegression, "DPFedLogisticRegression, or DPDecentralizedClassifier"),
        (DPAdmmLinearSVC, "DPDecentralizedClassifier(loss='smoothed_hinge')"),
        (type("Mine", (DPAdmmLasso,), {}), "DPFedLasso, or DPDecentralizedRegressor"),
    ],
)
def test_a_curator_who_gets_agents_names_the_estimator_of_agents(model, instead):
    assert all(hasattr(skdpadmm, word) for word in re.findall(r"DP\w+", instead))
    with pytest.raises(TypeError, match=rf"^Got agents, .*{re.escape(instead)}"):
        model().fit(np.ones((60, 3)), np.ones(60), agents=np.ones(60))


def test_a_fit_names_what_it_takes():
    X, y = ROWS[FEDERATED].data()
    with pytest.raises(TypeError, match=r"^Got persons, .* as agents, with privacy_unit='agent'"):
        ROWS[FEDERATED].make().fit(X, y, persons=y)
    with pytest.raises(
        TypeError, match=r"^Got groups, expected DPAdmmRidge.fit\(X, y, persons, sa"
    ):
        DPAdmmRidge().fit(X, y, groups=y)
    known = ["self", "X", "y", "persons", "sample_weight"]
    assert list(inspect.signature(DPAdmmRidge.fit).parameters) == known


@pytest.mark.parametrize("shape", [(0, 3), (100, -1)])
@pytest.mark.parametrize("name", EVERYWHERE)
def test_a_plan_for_data_without_rows_or_columns_is_refused(name, shape):
    with pytest.raises(ValueError, match=r"n_samples|n_features|for 0 rows"):
        plan_of(ROWS[name].make(), *shape)


@pytest.mark.parametrize("sizes", [[10, 10], [30.0, 30.0], {"east": 1.5, "west": 58.5}], ids=str)
@pytest.mark.parametrize("name", OF_AGENTS)
def test_a_plan_for_sizes_that_cannot_be_is_refused(name, sizes):
    with pytest.raises(ValueError, match=r"^Got .*expected"):
        plan_of(ROWS[name].make(n_agents=None), 60, 3, agent_sizes=sizes)


@pytest.mark.parametrize("name", OF_AGENTS)
def test_a_plan_asks_for_sizes_that_follow_from_data(name):
    for partition in ("dirichlet", lambda X, y: y):
        model = ROWS[name].make(partition=partition, n_agents=None)
        with pytest.raises(ValueError, match=r"^Got agent_sizes=None with partition=.* expected"):
            plan_of(model, 60, 3)
        plan_of(model, 60, 3, agent_sizes=[30, 30])
    model = ROWS[name].make(agent_column=0, n_agents=None)
    with pytest.raises(ValueError, match=r"^Got agent_sizes=None .*agent_column=0, expected"):
        plan_of(model, 60, 3)
    assert plan_of(model, 60, 3, agent_sizes=[10, 50]).facts.agents.agent_sizes == (10, 50)


def test_a_classifier_needs_to_know_its_classes():
    X, y = ROWS["logistic"].data()
    with pytest.raises(ValueError, match=r"^Got n_classes=None and classes=None, expected one"):
        DPAdmmLogisticRegression().plan(100, 3)
    declared = DPAdmmLogisticRegression(classes=["x", "y", "z"])
    assert declared.plan(100, 3) == DPAdmmLogisticRegression().plan(100, 3, n_classes=3)
    with pytest.raises(ValueError, match=r"^Got n_classes=2 with 3 declared classes, expected"):
        declared.plan(100, 3, n_classes=2)
    with pytest.raises(ValueError, match=r"^Got y with one class, expected at least 2 classes\."):
        DPAdmmLogisticRegression().fit(X, np.zeros_like(y))
    with pytest.raises(ValueError, match=r"^Got classes=\[4, 4\], expected at least 2 classes"):
        DPAdmmLogisticRegression(classes=[4, 4]).fit(X, y)


LABELS = np.resize([3, 1, 2, 1], 60)
BAD_AGENTS = [LABELS[1:], [None, *LABELS[1:]]]


@pytest.mark.parametrize("labels", BAD_AGENTS, ids=["too short", "None"])
@pytest.mark.parametrize("name", OF_AGENTS)
def test_labels_that_name_no_owner_are_refused(name, labels, plans, assert_unfitted):
    X, y = ROWS[name].data()
    for epsilon in (1.0, math.inf):
        model = ROWS[name].make(epsilon=epsilon)
        with pytest.raises((ValueError, TypeError), match=r"^Got agents.*expected"):
            model.fit(X, y, agents=labels)
        assert_unfitted(model)
    assert not plans
    if name != FEDERATED:
        with pytest.raises((ValueError, TypeError), match=r"^Got agents.*expected"):
            model.fit(X, y, agents=LABELS).predict(X, agents=labels)
    model = ROWS[name].make(partition=lambda X, y: y[1:], n_agents=None)
    with pytest.raises(ValueError, match=r"^Got labels from the callable partition"):
        model.fit(X, y)


def beside(X, labels, where=3):
    """Rows with a column of labels."""
    return np.insert(X.astype(object), where, labels, axis=1)


BAD_COLUMNS = [
    (4, lambda X: np.column_stack([X, LABELS]), "^Got agent_column=4.* expected the index of"),
    ("town", lambda X: pd.DataFrame(X), "^Got agent_column='town', .* pass agents=labels to fit"),
    (3, lambda X: beside(X, [None, *LABELS[1:]]), "missing label"),
]


@pytest.mark.parametrize(("column", "spoil", "message"), BAD_COLUMNS)
@pytest.mark.parametrize("name", OF_AGENTS)
def test_a_column_that_names_no_owner_is_refused(
    name, column, spoil, message, plans, assert_unfitted
):
    X, y = ROWS[name].data()
    model = ROWS[name].make(agent_column=column)
    with pytest.raises(ValueError, match=message):
        model.fit(spoil(X), y)
    with pytest.raises(ValueError, match=r"^Got agents and agent_column=.*, expected one of"):
        ROWS[name].make(agent_column=2).fit(X, y, agents=LABELS)
    assert_unfitted(model)
    assert not plans
