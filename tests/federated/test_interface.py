"""Federated estimators as users meet them: agents, columns, pipelines, plans, errors, counts."""

from __future__ import annotations

import inspect
import io
import math
import pickle
import re
import sys
from contextlib import redirect_stderr

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn import config_context
from sklearn.base import clone, is_classifier
from sklearn.compose import make_column_transformer
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_score, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils._param_validation import InvalidParameterError

from skdpadmm import (
    DPFedElasticNet,
    DPFedLasso,
    DPFedLogisticRegression,
    DPFedRidge,
    _fitting,
)
from skdpadmm.algorithms import ConsensusADMM, FederatedADMM, _federated_admm
from skdpadmm.preprocessing import BoundedScaler

ESTIMATORS = [DPFedRidge, DPFedLasso, DPFedElasticNet, DPFedLogisticRegression]
INVALID_EVERYWHERE = {
    "epsilon": [0, -1.0, math.nan, "1", None],
    "delta": [0, 1, -1e-5, math.nan, None],
    "adversary": ["world", "Server", "", None],
    "privacy_unit": ["row", "user", None],
    "partition": ["random", "", None, 1.5],
    "n_agents": [0, -1, 2.5, "2"],
    "agent_column": [1.5, ("a",)],
    "participation": [0, 0.0, -0.1, 1.5, math.nan, "all", None],
    "dropout": [1, 1.0, -0.1, math.nan, None],
    "n_honest": [0, -1, 1.5, "all"],
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
    DPFedRidge: {"alpha": [-1e-9, math.nan, math.inf, None]},
    DPFedLasso: {"alpha": [-1e-9, math.nan, math.inf, None]},
    DPFedElasticNet: {"alpha": [-1, None], "l1_ratio": [-0.1, 1.1, math.nan, "half"]},
    DPFedLogisticRegression: {"C": [0, -1.0, None], "l1_ratio": [-0.1, 1.1], "classes": ["ab", 3]},
}
CHECKED_IN_FIT = {"feature_bounds", "target_bounds", "random_state"}
CASES = [
    pytest.param(cls, name, value, id=f"{cls.__name__}-{name}={value!r:.12}")
    for cls in ESTIMATORS
    for name, values in (INVALID_EVERYWHERE | INVALID[cls]).items()
    for value in values
]
AGENTS = np.resize([3, 1, 2, 1], 200)


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
    # Classes can be told apart without an error: no penalty would mean no optimum.
    penalty = {"C": 1.0} if request.param is DPFedLogisticRegression else {}
    return request.param(random_state=0, max_iter=10, **penalty)


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
    return DPFedRidge(**({"max_iter": 5, "random_state": 0, "conditioning": None} | changed))


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


REFUSED = {
    "more honest agents than agents": (
        {"n_honest": 11}, r"^Got n_honest=11, expected an int in \[1, 10\]"
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
    "epsilons against sums": (
        {"epsilon": [1.0] * 10, "adversary": "sums"}, "adversary='sums', expected 'server'"
    ),
    "epsilons against the world": (
        {"epsilon": [1.0] * 10, "adversary": "model"}, "adversary='model', expected 'server'"
    ),
    "more agents than rows": ({"n_agents": 201}, "^Got n_agents=201 for 200 rows"),
    "a partition of more agents than rows": (
        {"partition": 201}, "^Got partition=201 for 200 rows"
    ),
    "no agents": ({"partition": 0}, "^Got partition=0, expected"),
    "two numbers of agents": ({"partition": 3, "n_agents": 3}, "^Got n_agents=3 with partition=3"),
    "a central algorithm": (
        {"algorithm": "consensus-admm"}, "^Got algorithm='consensus-admm' .*one that is federated"
    ),
    "a central algorithm object": (
        {"algorithm": ConsensusADMM()}, "^Got algorithm=ConsensusADMM.*one that is federated"
    ),
    "an unknown algorithm": ({"algorithm": "admm"}, "^Got algorithm='admm'"),
    "states that tell who took part": (
        {"algorithm": FederatedADMM(relaxation=0.4), "participation": 0.5}, "^Got relaxation=0.4"
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


def test_a_federated_algorithm_is_no_central_one(regression):
    from skdpadmm import DPAdmmRidge

    for algorithm in ("federated-admm", FederatedADMM()):
        with pytest.raises(ValueError, match=r"^Got algorithm=.* one that is central"):
            DPAdmmRidge(algorithm=algorithm).fit(*regression)


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


def test_clone_and_pickle_keep_what_they_should(estimator, classification):
    X, y = classification
    estimator.set_params(algorithm=FederatedADMM(step_size=0.3), epsilon=[1.0, 2.0, 3.0])
    estimator.set_params(partition=3).fit(X, y)
    fresh = clone(estimator)
    assert_unfitted(fresh)
    assert fresh.get_params()["algorithm__step_size"] == 0.3
    np.testing.assert_array_equal(parameters(fresh.fit(X, y)), parameters(estimator))
    loaded = pickle.loads(pickle.dumps(estimator))
    np.testing.assert_array_equal(loaded.predict(X), estimator.predict(X))
    assert loaded.privacy_ == estimator.privacy_


def test_names_show_only_what_was_changed():
    assert repr(DPFedRidge()) == "DPFedRidge()"
    assert repr(DPFedLasso(adversary="model", alpha=0.1)) == (
        "DPFedLasso(adversary='model', alpha=0.1)"
    )


def test_a_knob_of_a_string_is_an_error_that_says_what_to_do():
    with pytest.raises(ValueError, match=r"^Got algorithm__step_size with algorithm='federated-"):
        DPFedRidge().set_params(algorithm__step_size=0.5)
    both = DPFedRidge().set_params(algorithm=FederatedADMM(), algorithm__step_size=0.5)
    assert both.algorithm.step_size == 0.5


# Who holds which row.


LABELS = {
    "int": AGENTS,
    "list": AGENTS.tolist(),
    "negative": -AGENTS,
    "str": np.array(["", "east", "north", "west"])[AGENTS],
    "object": np.array(["", "east", "north", "west"], dtype=object)[AGENTS],
    "float": AGENTS / 2,
    "bool": AGENTS == 1,
    "Series": pd.Series(AGENTS, index=np.arange(200)[::-1]),
    "categories": pd.Series(np.array(["", "a", "b", "c"])[AGENTS]).astype("category"),
    "dates": np.datetime64("2020-01-01") + AGENTS,
}


@pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS)
def test_agents_are_labels_of_any_type(labels, estimator, classification):
    X, y = classification
    estimator.fit(X, y, agents=labels)
    np.testing.assert_array_equal(estimator.agent_labels_, np.unique(np.asarray(labels)))
    assert estimator.n_features_in_ == 3
    assert estimator.predict(X).shape == (200,)


BAD_AGENTS = {
    "too short": AGENTS[1:],
    "too long": np.append(AGENTS, 1),
    "two dimensions": AGENTS[:, None],
    "one label": "east",
    "a number": 3,
    "empty": [],
    "None among them": [None, *AGENTS[1:]],
    "NaN among them": np.where(np.arange(200) == 5, np.nan, AGENTS),
    "NaN among words": [math.nan] + ["a"] * 199,
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


def test_agents_win_over_the_partition_and_epsilons_follow_their_order(regression):
    X, y = regression
    model = small(epsilon=[4.0, 0.5, 1.0], partition="dirichlet", n_agents=7)
    model.fit(X, y, agents=np.array(["", "c", "a", "b"])[AGENTS])
    assert list(model.agent_labels_) == ["a", "b", "c"]
    server = next(o for o in model.privacy_.observers if o.name == "server")
    epsilons = [guarantee.epsilon(1e-5) for guarantee in server.per_agent]
    np.testing.assert_allclose(epsilons, [4.0, 0.5, 1.0], rtol=1e-6)


def test_a_partition_may_be_a_function_of_the_data(regression):
    X, y = regression
    model = small(partition=lambda X, y: X[:, 0] > 0).fit(X, y)
    assert list(model.agent_labels_) == [False, True]
    given = small().fit(X, y, agents=X[:, 0] > 0)
    np.testing.assert_array_equal(parameters(model), parameters(given))
    assert "conditional on the resulting ownership" in repr(model.privacy_)
    assert "conditional on the resulting ownership" not in repr(given.privacy_)


@pytest.mark.parametrize(
    ("labels", "error"),
    [(lambda X, y: y[1:], ValueError), (lambda X, y: [None] * len(y), ValueError)],
)
def test_a_function_that_returns_no_owners_is_refused(labels, error, regression):
    model = small(partition=labels)
    with pytest.raises(error, match=r"^Got labels from the callable partition"):
        model.fit(*regression)
    assert_unfitted(model)


def test_partitions_that_look_at_the_data_say_so(classification):
    for partition in ("iid", "quantity", "dirichlet", "sorted"):
        model = DPFedLogisticRegression(partition=partition, max_iter=3, random_state=0)
        looks = "formed by looking at the data" in repr(model.fit(*classification).privacy_)
        assert looks == (partition in ("dirichlet", "sorted"))


# Agents in a column.


def with_column(X, labels, where):
    return np.insert(X.astype(object), where, labels, axis=1)


COLUMNS = {
    "last": (3, -1),
    "first": (0, 0),
    "second": (1, 1),
    "first from the end": (0, -4),
}


@pytest.mark.parametrize(("where", "index"), COLUMNS.values(), ids=COLUMNS)
@pytest.mark.parametrize("kind", ["ndarray", "object", "list", "CSR", "frame", "frame by name"])
def test_a_column_of_agents_is_the_same_as_their_labels(
    kind, where, index, estimator, classification
):
    X, y = classification
    expected = parameters(estimator.fit(X, y, agents=AGENTS))
    number = np.insert(X, where, AGENTS, axis=1)
    names = ["a", "b", "c"]
    names.insert(where, "owner")
    data, column = {
        "ndarray": (number, index),
        "object": (with_column(X, AGENTS, where), index),
        "list": (number.tolist(), index),
        "CSR": (sparse.csr_matrix(number), index),
        "frame": (pd.DataFrame(number, columns=names), index),
        "frame by name": (pd.DataFrame(number, columns=names), "owner"),
    }[kind]
    estimator.set_params(agent_column=column).fit(data, y)
    np.testing.assert_allclose(parameters(estimator), expected, rtol=1e-10, atol=1e-12)
    np.testing.assert_array_equal(estimator.agent_labels_, [1, 2, 3])
    assert estimator.n_features_in_ == 4
    assert estimator.coef_.shape[-1] == 3
    if "frame" in kind:
        assert list(estimator.feature_names_in_) == names

    # Nothing but the features counts in predictions.
    predicted = estimator.predict(data)
    other = np.insert(X, where, 17, axis=1)
    data = {
        "CSR": lambda: sparse.csr_matrix(other),
        "frame": lambda: pd.DataFrame(other, columns=names),
        "frame by name": lambda: pd.DataFrame(other, columns=names),
    }.get(kind, lambda: other)()
    np.testing.assert_allclose(
        np.asarray(estimator.predict(data), float), np.asarray(predicted, float)
    )
    without = pd.DataFrame(X, columns=["a", "b", "c"]) if "frame" in kind else X
    with pytest.raises(ValueError, match=r"has 3 features, but|names should match"):
        estimator.predict(without)


def test_a_column_of_words_is_no_number(regression):
    X, y = regression
    words = np.array(["", "east", "north", "west"])[AGENTS]
    expected = parameters(small().fit(X, y, agents=words))
    frame = pd.DataFrame(X, columns=["a", "b", "c"]).assign(town=words)
    for model, data in (
        (small(agent_column="town"), frame),
        (small(agent_column="town"), frame.astype({"town": "category"})),
        (small(agent_column=3), with_column(X, words, 3)),
    ):
        np.testing.assert_allclose(parameters(model.fit(data, y)), expected, rtol=1e-12)
        assert list(model.agent_labels_) == ["east", "north", "west"]
        assert model.predict(data).shape == (200,)


BAD_COLUMNS = {
    "out of range": (4, "^Got agent_column=4.* expected the index of"),
    "out of range from the end": (-5, "^Got agent_column=-5.* expected the index of"),
    "a name of no column": (
        "town",
        "^Got agent_column='town', expected the index of a column, or the name",
    ),
}


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix, pd.DataFrame])
@pytest.mark.parametrize(("column", "message"), BAD_COLUMNS.values(), ids=BAD_COLUMNS)
def test_a_column_that_is_not_there_is_refused(column, message, kind, estimator, regression):
    X, y = regression
    with pytest.raises(ValueError, match=message):
        estimator.set_params(agent_column=column).fit(kind(np.column_stack([X, AGENTS])), y > 0)
    assert_unfitted(estimator)


def test_agents_are_given_once(estimator, classification):
    X, y = classification
    with pytest.raises(
        ValueError, match=r"^Got agents and agent_column=2, expected one of the two"
    ):
        estimator.set_params(agent_column=2).fit(X, y, agents=AGENTS)
    assert_unfitted(estimator)


@pytest.mark.parametrize("bad", [None, math.nan])
def test_a_column_with_a_missing_agent_is_refused(bad, regression):
    X, y = regression
    data = with_column(X, AGENTS, 3)
    data[7, 3] = bad
    model = small(agent_column=3)
    with pytest.raises(ValueError, match="missing label"):
        model.fit(data, y)
    assert_unfitted(model)


@pytest.mark.parametrize("bad", [math.nan, math.inf, "word"])
def test_features_beside_a_column_of_agents_are_validated(bad, regression):
    X, y = regression
    data = with_column(X, AGENTS, 3)
    data[7, 1] = bad
    model = small(agent_column=3)
    with pytest.raises(ValueError, match=r"NaN|infinity|could not convert"):
        model.fit(data, y)
    assert_unfitted(model)


@pytest.mark.parametrize("shape", ["one dimension", "only agents"])
def test_data_without_features_beside_the_agents_are_refused(shape, regression):
    _, y = regression
    X = AGENTS.astype(float) if shape == "one dimension" else AGENTS[:, None].astype(float)
    model = small(agent_column=0)
    with pytest.raises(ValueError, match=r"agent_column=0|0 feature|minimum of 1"):
        model.fit(X, y)
    assert_unfitted(model)


@pytest.mark.parametrize("column", ["owner", 1, -3])
def test_bounds_by_name_leave_the_column_of_agents_out(column, regression):
    X, y = regression
    bounds = {"c": (-2, 1), "a": (-1, 3), "b": (-1, 1)}
    frame = pd.DataFrame(np.insert(X, 1, AGENTS, axis=1), columns=["a", "owner", "b", "c"])
    model = small(agent_column=column, feature_bounds=bounds).fit(frame, y)
    by_position = small(feature_bounds=([-1, -1, -2], [3, 1, 1])).fit(X, y, agents=AGENTS)
    np.testing.assert_array_equal(parameters(model), parameters(by_position))
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(frame[["c", "owner", "b", "a"]])
    with pytest.raises(ValueError, match=r"^Got feature_bounds"):
        small(agent_column=column, feature_bounds=bounds | {"owner": (0, 9)}).fit(frame, y)


# Pipelines and grids.


def test_agents_are_routed_through_pipelines_grids_and_folds(regression):
    X, y = regression
    with config_context(enable_metadata_routing=True):
        routed = small(epsilon=50.0).set_fit_request(agents=True)
        pipeline = make_pipeline(StandardScaler(), routed).fit(X, y, agents=AGENTS)
        assert list(pipeline[-1].agent_labels_) == [1, 2, 3]
        assert math.isfinite(pipeline.score(X, y))
        grid = {"dpfedridge__epsilon": [20.0, 50.0]}
        for folds, more in ((3, {}), (GroupKFold(3), {"groups": AGENTS})):
            search = GridSearchCV(clone(pipeline), grid, cv=folds, error_score="raise")
            search.fit(X, y, agents=AGENTS, **more)
            assert list(search.best_estimator_[-1].agent_labels_) == [1, 2, 3]
        result = cross_validate(
            clone(pipeline), X, y, params={"agents": AGENTS, "groups": AGENTS}, cv=GroupKFold(3),
            error_score="raise", return_estimator=True,
        )  # fmt: skip
        held_out = [{1, 2, 3} - set(fitted[-1].agent_labels_) for fitted in result["estimator"]]
        assert sorted(map(tuple, held_out)) == [(1,), (2,), (3,)]
        with pytest.raises(ValueError, match=r"agents.* not explicitly set as requested"):
            make_pipeline(StandardScaler(), small()).fit(X, y, agents=AGENTS)


def test_a_score_takes_no_agents_and_says_so_where_metadata_are_routed(regression):
    X, y = regression
    with config_context(enable_metadata_routing=True):
        pipeline = make_pipeline(small().set_fit_request(agents=True)).fit(X, y, agents=AGENTS)
        with pytest.raises(TypeError, match="agents"):
            pipeline.score(X, y, agents=AGENTS)


def test_agents_reach_a_model_without_routing_too(regression):
    X, y = regression
    pipeline = make_pipeline(StandardScaler(), small()).fit(X, y, dpfedridge__agents=AGENTS)
    assert list(pipeline[-1].agent_labels_) == [1, 2, 3]
    search = GridSearchCV(small(), {"epsilon": [1.0, 2.0]}, cv=2, error_score="raise")
    assert list(search.fit(X, y, agents=AGENTS).best_estimator_.agent_labels_) == [1, 2, 3]


def test_a_column_of_agents_goes_through_pipelines_without_routing(regression):
    X, y = regression
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    frame["owner"] = np.array(["", "east", "north", "west"])[AGENTS]
    scaled = make_column_transformer(
        (BoundedScaler(lower=-1, upper=1), ["a", "b", "c"]), remainder="passthrough"
    )
    grid = {"dpfedridge__epsilon": [10.0, 50.0]}
    pipelines = {
        "by position": make_pipeline(clone(scaled), small(agent_column=-1)),
        "by name": make_pipeline(
            clone(scaled).set_params(verbose_feature_names_out=False).set_output(
                transform="pandas"
            ),
            small(agent_column="owner"),
        ),
    }  # fmt: skip
    for pipeline in pipelines.values():
        search = GridSearchCV(pipeline, grid, cv=3, error_score="raise").fit(frame, y)
        assert list(search.best_estimator_[-1].agent_labels_) == ["east", "north", "west"]
        assert search.best_estimator_[-1].coef_.shape == (3,)
        assert search.predict(frame).shape == (200,)
    folds = cross_val_score(
        pipelines["by position"], frame, y, cv=GroupKFold(3), groups=frame["owner"],
        error_score="raise",
    )  # fmt: skip
    assert np.isfinite(folds).all()


def test_a_grid_over_trust_is_a_grid(regression):
    grid = {
        "adversary": ["server", "sums", "model"],
        "privacy_unit": ["record", "agent"],
        "epsilon": [1.0, math.inf],
    }
    search = GridSearchCV(small(), grid, cv=2, error_score="raise").fit(*regression)
    assert search.best_params_["epsilon"] == math.inf
    assert search.best_score_ > 0.99


# Plans.


SETTINGS = [
    {},
    {"partition": "quantity", "privacy_unit": "agent"},
    {"partition": 4, "adversary": "sums", "n_honest": 2, "dropout": 0.2},
    {"adversary": "model", "participation": 0.5, "conditioning": None},
    {"epsilon": [1.0, 2.0, 3.0], "partition": 3, "scale": "private"},
    {"participation": 0.3, "algorithm": FederatedADMM(sampling="fixed", message="increment")},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_the_plan_before_any_data_is_the_plan_inside_fit(settings, estimator, plans):
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(123, 3)), rng.integers(2, size=123)
    estimator.set_params(**settings).fit(X, y)
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


@pytest.mark.parametrize("partition", ["dirichlet", lambda X, y: y])
def test_sizes_that_follow_from_data_have_to_be_told_to_a_plan(partition, estimator):
    estimator.set_params(partition=partition)
    with pytest.raises(ValueError, match=r"^Got partition=.* without agent_sizes, expected them"):
        plan_of(estimator, 100, 3)
    plan_of(estimator, 100, 3, agent_sizes=[50, 50])


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


@pytest.mark.parametrize("sizes", BAD_SIZES.values(), ids=BAD_SIZES)
def test_sizes_that_cannot_be_are_refused(sizes, estimator):
    with pytest.raises(ValueError, match=r"^Got .*expected"):
        plan_of(estimator, 100, 3, agent_sizes=sizes)


def test_the_plan_does_not_depend_on_the_values_in_the_data(estimator, plans):
    rng = np.random.default_rng(2)
    y = np.tile([0, 1], 50)
    for X in (rng.normal(size=(100, 3)), 1e300 * rng.normal(size=(100, 3)), np.zeros((100, 3))):
        estimator.set_params(privacy_unit="agent").fit(X, y)
    estimator.fit(sparse.csr_matrix(X), y[::-1])
    assert plans[1:] == plans[:-1]


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
    estimator.set_params(engine="local").fit(*classification)


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
@pytest.mark.parametrize(
    ("message", "epsilon"), [("state", 1.0), ("increment", 1.0), ("state", math.inf)]
)
@pytest.mark.parametrize("unit", ["record", "agent"])
@pytest.mark.parametrize("convert", [np.asarray, sparse.csr_matrix])
@pytest.mark.parametrize("case", edge_cases())
def test_an_edge_case_ends_in_a_finite_model(case, convert, unit, message, epsilon, estimator):
    X = edge_cases()[case]
    estimator.set_params(privacy_unit=unit, algorithm=FederatedADMM(message=message), max_iter=4)
    estimator.set_params(epsilon=epsilon).fit(convert(X), np.arange(len(X)) % 2)
    assert np.isfinite(parameters(estimator)).all()


@pytest.mark.parametrize("unit", ["record", "agent"])
@pytest.mark.parametrize("convert", [np.asarray, sparse.csr_matrix])
def test_rows_of_the_largest_floats_end_in_a_finite_private_model(convert, unit, estimator):
    X = np.vstack([np.full((30, 2), 1.7e308), np.full((30, 2), -1.7e308)])
    estimator.set_params(privacy_unit=unit).fit(convert(X), np.arange(60) % 2)
    assert np.isfinite(parameters(estimator)).all()


@pytest.mark.parametrize("unit", ["record", "agent"])
@pytest.mark.parametrize("trust", [{}, {"participation": 0.4}, {"dropout": 0.5}], ids=str)
def test_one_row_is_enough_for_a_regression(unit, trust):
    model = small(privacy_unit=unit, **trust).fit([[0.5, 1.0]], [0.3])
    assert np.isfinite(parameters(model)).all()
    assert list(model.agent_labels_) == [0]


@pytest.mark.parametrize("unit", ["record", "agent"])
def test_classes_may_be_absent_at_agents_and_everywhere(unit, classification):
    X, y = classification
    model = DPFedLogisticRegression(classes=[0, 1, 7], privacy_unit=unit, max_iter=5)
    model.fit(X, y, agents=y)  # one class at each
    assert model.coef_.shape == (3, 3)
    assert np.isfinite(parameters(model)).all()
    two = DPFedLogisticRegression(classes=[0, 1], privacy_unit=unit, max_iter=5)
    assert set(two.fit(X, 0 * y, agents=AGENTS).predict(X)) <= {0, 1}


@pytest.mark.parametrize("unit", ["record", "agent"])
@pytest.mark.parametrize("rest", [1, 3])
def test_an_agent_may_hold_one_row_and_the_others_the_rest(unit, rest, estimator, classification):
    X, y = classification
    agents = np.where(np.arange(200) == 9, 0, 1 + np.arange(200) % rest)
    estimator.set_params(privacy_unit=unit).fit(X, y, agents=agents)
    assert np.isfinite(parameters(estimator)).all()
    assert len(estimator.agent_labels_) == rest + 1


def test_the_same_seed_gives_the_same_bits_and_another_seed_others(estimator, classification):
    expected = parameters(estimator.set_params(participation=0.5).fit(*classification))
    np.testing.assert_array_equal(parameters(estimator.fit(*classification)), expected)
    other = parameters(estimator.set_params(random_state=1).fit(*classification))
    assert not np.array_equal(other, expected)


# What a fit counts and says.


ROUND_TRIP = 3 + 3  # of three agents: each is told, and each answers


def test_messages_are_counted_where_everyone_takes_part(regression):
    X, y = regression
    for unit in ("record", "agent"):
        model = small(partition=3, privacy_unit=unit, max_iter=4).fit(X, y)
        assert (model.n_rounds_, model.n_iter_) == (4, 4)
        assert model.n_messages_ == 4 * ROUND_TRIP
        assert model.bytes_sent_ == 4 * ROUND_TRIP * 8 * 4  # 3 coefficients and an intercept


def test_messages_of_all_classes_and_of_preparations_are_counted(classification):
    X, y = classification
    model = DPFedLogisticRegression(
        partition=3, classes=[0, 1, 2], max_iter=4, conditioning="private", fit_intercept=False
    ).fit(X, y)
    assert model.n_messages_ == 4 * ROUND_TRIP + ROUND_TRIP
    # 3 coefficients of 3 classes; the triangle of a symmetric 3 x 3 matrix.
    assert model.bytes_sent_ == 8 * (4 * ROUND_TRIP * 9 + ROUND_TRIP * 6)


@pytest.mark.parametrize(("adversary", "answers"), [("server", 1), ("sums", 3), ("model", 3)])
def test_messages_of_rounds_of_fixed_size_are_counted(adversary, answers, regression):
    X, y = regression
    model = small(
        partition=3, participation=1 / 3, adversary=adversary, max_iter=4,
        algorithm=FederatedADMM(sampling="fixed"),
    ).fit(X, y)  # fmt: skip
    assert model.n_rounds_ == 4
    # Where the noise of others counts, those who sit a round out send theirs.
    assert model.n_messages_ == 4 * (3 + answers)


@pytest.mark.parametrize("trust", [{"dropout": 0.4}, {"participation": 0.4}], ids=str)
def test_messages_that_arrive_are_counted(trust, regression, monkeypatch):
    schedules = []
    draw = _federated_admm.draw_schedule

    def spy(*args):
        schedules.append(draw(*args))
        return schedules[-1]

    monkeypatch.setattr(_federated_admm, "draw_schedule", spy)
    model = small(partition=3, max_iter=20, **trust).fit(*regression)
    arrived = sum(int(senders.sum()) for senders in schedules[0].sends)
    assert 0 < arrived < 60
    assert model.n_messages_ == 20 * 3 + arrived
    assert model.bytes_sent_ == model.n_messages_ * 8 * 4
    assert model.n_rounds_ == sum(senders.any() for senders in schedules[0].sends)


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
    name = type(estimator).__name__
    pattern = re.compile(rf"^({name}: +\d+%\|.*\| \d/7)?$")
    estimator.set_params(participation=0.3)
    lines = bar(X, y)
    assert all(pattern.match(line) for line in lines)
    assert any(line.endswith("7/7") for line in lines)
    assert all(pattern.match(line) for line in bar(1e3 * X, 1 - y))


def test_a_quiet_fit_prints_nothing(estimator, classification, capfd):
    estimator.set_params(participation=0.5, dropout=0.2).fit(*classification)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("unit", ["record", "agent"])
@pytest.mark.parametrize("adversary", ["server", "sums", "model"])
def test_a_report_has_all_adversaries_and_spends_the_budget_on_one(
    adversary, unit, estimator, classification
):
    estimator.set_params(adversary=adversary, privacy_unit=unit, epsilon=0.7, delta=1e-6)
    report = estimator.fit(*classification).privacy_
    assert report.epsilon(adversary) == pytest.approx(0.7, rel=1e-6)
    assert report.epsilon(adversary) <= 0.7 * (1 + 1e-9)
    assert report.epsilon("server") >= report.epsilon("sums") >= report.epsilon("model")
    assert all(observer.unit == unit for observer in report.observers)
    with pytest.raises(ValueError, match="Got"):
        report.epsilon("peer")


@pytest.mark.parametrize("unit", ["record", "agent"])
def test_the_report_of_a_fit_without_privacy_says_so(unit, estimator, classification):
    report = estimator.set_params(epsilon=math.inf, privacy_unit=unit).fit(*classification).privacy_
    assert "not private" in repr(report)
    assert all(math.isinf(report.epsilon(name)) for name in ("server", "sums", "model"))


def test_agents_that_are_made_up_are_said_to_be():
    made_up = "The agents are made up by partition='iid'"
    model = DPFedRidge(feature_bounds=(-1, 1), target_bounds=(-1, 1), random_state=0)
    assert made_up in repr(model.plan(200, 2))
    assert made_up not in repr(model.plan(200, 2, agent_sizes=[100, 100]))
    X, y = np.zeros((200, 2)), np.zeros(200)
    assert made_up in repr(model.fit(X, y).privacy_)
    assert made_up not in repr(model.fit(X, y, agents=np.arange(200) % 2).privacy_)


def test_a_plan_with_a_column_of_agents_asks_for_their_sizes():
    model = DPFedRidge(agent_column=0)
    with pytest.raises(ValueError, match=r"^Got agent_column=0 without agent_sizes"):
        model.plan(200, 2)
    assert model.plan(200, 2, agent_sizes=[50, 150]).facts.agents.agent_sizes == (50, 150)


@pytest.mark.parametrize(("n_agents", "n_honest"), [(1, 1), (2, 1), (3, 2), (10, 6)])
def test_by_default_no_agent_relies_on_its_own_honesty_alone(n_agents, n_honest):
    plan = DPFedRidge(n_agents=n_agents).plan(100, 2)
    assert plan.facts.agents.n_honest == n_honest


def test_the_default_figure_is_that_of_the_adversary():
    for adversary in ("server", "sums", "model"):
        model = DPFedRidge(adversary=adversary, random_state=0)
        plan = model.plan(500, 2)
        report = model.fit(np.zeros((500, 2)), np.zeros(500)).privacy_
        assert plan.guarantee() == plan.guarantee(adversary) == report.guarantee()
        assert report.epsilon() == report.epsilon(adversary) == pytest.approx(1.0, rel=1e-6)
