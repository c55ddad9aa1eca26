"""Pipelines, grids, folds and routed metadata."""

from contextlib import suppress

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn import config_context
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.fixes import parse_version

from tests.interface.registry import ROWS, assert_alike

# Searches of scikit-learn 1.6 pass nothing on to scores.
ROUTES_SCORES = parse_version(sklearn.__version__) >= parse_version("1.9")
TOWNS = np.array(["", "east", "north", "west"])[np.resize([3, 1, 2, 1], 60)]
NAMES = ["east", "north", "west"]
WITH_AGENTS = ["fed ridge", "fed logistic", "network", "personal classes"]
WITH_MODELS = ["network", "network of classes", "personal", "personal classes"]


def requested(model):
    """With agents requested wherever they can be."""
    model.set_fit_request(agents=True)
    for method in ("predict", "score", "decision_function", "predict_proba"):
        ask = getattr(model, f"set_{method}_request", None)
        if ask is not None:
            with suppress(TypeError):
                ask(agents=True)
    return model


@pytest.mark.parametrize("name", WITH_AGENTS)
def test_agents_are_routed_to_fits_and_to_folds(name):
    X, y = ROWS[name].data()
    single = {"n_agents": None} | ({"topology": "ring"} if "network" in name else {})
    with config_context(enable_metadata_routing=True):
        routed = ROWS[name].make(epsilon=50.0, **single).set_fit_request(agents=True)
        if hasattr(routed, "set_score_request") and name in WITH_MODELS:
            routed.set_score_request(agents=ROWS[name].family == "personalized")
        pipeline = make_pipeline(StandardScaler(), routed).fit(X, y, agents=TOWNS)
        assert pipeline[-1].agent_labels_.tolist() == NAMES
        if ROWS[name].family == "personalized" and not ROUTES_SCORES:
            return
        step = pipeline.steps[-1][0]
        grid = {f"{step}__epsilon": [20.0]}
        search = GridSearchCV(clone(pipeline), grid, cv=3, error_score="raise")
        search.fit(X, y, agents=TOWNS)
        assert search.best_estimator_[-1].agent_labels_.tolist() == NAMES
        with pytest.raises(ValueError, match=r"agents.* not explicitly set as requested"):
            make_pipeline(StandardScaler(), ROWS[name].make()).fit(X, y, agents=TOWNS)


@pytest.mark.parametrize("name", WITH_MODELS)
def test_agents_are_routed_to_predictions_and_scores(name):
    X, y = ROWS[name].data()
    with config_context(enable_metadata_routing=True):
        routed = requested(ROWS[name].make(n_agents=None))
        pipeline = make_pipeline(StandardScaler(), routed).fit(X, y, agents=TOWNS)
        model, scaled = pipeline[-1], pipeline[:-1].transform(X)
        own = model.predict(scaled, agents=TOWNS)
        assert_alike(pipeline.predict(X, agents=TOWNS), own)
        score = model.score(scaled, y, agents=TOWNS)
        assert pipeline.score(X, y, agents=TOWNS) == pytest.approx(score)
        if ROUTES_SCORES:
            folds = cross_validate(
                routed, X, y, params={"agents": TOWNS}, cv=2, error_score="raise",
                return_estimator=True, return_indices=True,
            )  # fmt: skip
            for fitted, test, score in zip(
                folds["estimator"], folds["indices"]["test"], folds["test_score"], strict=True
            ):
                own = fitted.score(X[test], y[test], agents=TOWNS[test])
                assert score == pytest.approx(own)


@pytest.mark.parametrize("name", WITH_AGENTS)
def test_a_column_of_agents_needs_no_routing(name):
    X, y = ROWS[name].data()
    frame = pd.DataFrame(X, columns=["a", "b", "c"]).assign(town=TOWNS)
    model = ROWS[name].make(n_agents=None, agent_column="town")
    search = GridSearchCV(model, {"epsilon": [10.0, 50.0]}, cv=2, error_score="raise")
    search.fit(frame, y)
    assert search.best_estimator_.agent_labels_.tolist() == NAMES
    # Any scorer knows whose rows they are.
    assert search.score(frame, y) == pytest.approx(search.best_estimator_.score(frame, y))
