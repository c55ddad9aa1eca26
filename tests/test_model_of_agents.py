"""What all estimators share whose rows are held by agents: budgets by label, sizes by label."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from skdpadmm import (
    DPDecentralizedClassifier,
    DPDecentralizedRegressor,
    DPFedLogisticRegression,
    DPFedRidge,
    DPPersonalizedClassifier,
    DPPersonalizedRegressor,
)

FEDERATED = {"adversary": "server"}
FAMILIES = [
    (DPFedRidge, FEDERATED),
    (DPFedLogisticRegression, FEDERATED),
    (DPDecentralizedRegressor, {}),
    (DPDecentralizedClassifier, {}),
    (DPPersonalizedRegressor, {}),
    (DPPersonalizedClassifier, {}),
]
STATES = np.resize(["WA", "AZ", "OR", "NY"], 80)
BUDGETS = {"WA": 5.0, "AZ": 0.5, "NY": 1.0, "OR": 2.0}
FORMS = {
    "dict": BUDGETS,
    "Series": pd.Series(BUDGETS),
    "Series in another order": pd.Series(BUDGETS).sort_values(),
    "list in the order of sorted labels": [0.5, 1.0, 2.0, 5.0],
}


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(80, 2))
    return X, (X[:, 0] > 0).astype(int)


def model_of(family, **parameters):
    cls, settings = family
    return cls(**settings, max_iter=3, random_state=0, **parameters)


@pytest.mark.parametrize("epsilon", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family[0].__name__)
def test_a_budget_goes_to_the_agent_that_it_names(family, epsilon, rows):
    model = model_of(family, epsilon=epsilon).fit(*rows, agents=STATES)
    for state, budget in BUDGETS.items():
        assert model.privacy_.epsilon_of(state) == pytest.approx(budget, rel=1e-3)
        assert model.privacy_.epsilon_of(state) <= budget


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family[0].__name__)
def test_a_budget_that_is_missing_or_of_nobody_is_refused(family, rows):
    for epsilon, message in [
        ({"WA": 5.0}, r"missing \['AZ', 'NY', 'OR'\]"),
        (BUDGETS | {"TX": 1.0}, r"unknown \['TX'\]"),
        (pd.Series([1.0, 2.0, 3.0, 4.0]), r"unknown \[0, 1, 2, 3\]"),
    ]:
        model = model_of(family, epsilon=epsilon)
        with pytest.raises(ValueError, match=rf"^Got epsilon by label \(.*{message}"):
            model.fit(*rows, agents=STATES)
        assert not hasattr(model, "coef_")


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family[0].__name__)
def test_a_plan_takes_sizes_by_label(family):
    sizes = {"WA": 10, "AZ": 40, "NY": 20, "OR": 10}
    more = {"n_classes": 2} if hasattr(family[0], "predict_proba") else {}
    model = model_of(family, epsilon=BUDGETS, privacy_unit="agent")
    by_label = model.plan(80, 2, **more, agent_sizes=pd.Series(sizes))
    assert by_label == model.plan(80, 2, **more, agent_sizes=sizes)
    assert by_label.facts.agents.agent_sizes == (40, 20, 10, 10)
    assert by_label.facts.agents.epsilons == (0.5, 1.0, 2.0, 5.0)
    with pytest.raises(ValueError, match=r"^Got .*expected"):
        model.plan(80, 2, **more, agent_sizes={name: 1.5 for name in sizes})


@pytest.mark.parametrize(("estimator", "parameters"), FAMILIES)
def test_a_plan_says_that_agents_are_formed_by_looking_at_the_data(rows, estimator, parameters):
    model = estimator(partition="sorted", max_iter=2, **parameters)
    classes = {"n_classes": 2} if hasattr(model, "classes") else {}
    planned = model.plan(80, 2, **classes).assumptions
    X, y = rows
    fitted = model.fit(X, (y > 0).astype(int) if classes else y).privacy_.assumptions
    (condition,) = {line for line in planned if "formed by looking at the data" in line}
    assert condition in fitted
    model.set_params(partition="iid")
    assert not any("formed" in line for line in model.plan(80, 2, **classes).assumptions)
