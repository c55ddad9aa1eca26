"""Constructors, clones, pickles, names, and what a fit stores."""

import collections
import inspect
import math
import re

import numpy as np
import pytest
from sklearn.base import clone

import skdpadmm
from skdpadmm.algorithms import ConsensusADMM
from tests.interface.registry import DEFAULTS, ROWS

# Of `local_model`, of probabilities and of streams.
UNLISTED = {
    "_facts_", "_coordinates_", "_public_models_", "_trusts_by_size_", "_doubt_",
    "_score_variance_", "_box_", "_arrived_", "n_samples_seen_", "_inverse_link_",
}  # fmt: skip
PROBABILITIES = {"_doubt_", "_score_variance_"}


# By errors of their own: see `test_errors.py`.
CHECKED_IN_FIT = {
    "feature_bounds", "target_bounds", "random_state", "topology", "similarity", "agent_features",
    "penalty_matrix", "confidence", "class_weight",
}  # fmt: skip


@pytest.mark.parametrize("name", DEFAULTS)
def test_every_parameter_is_named_and_has_a_constraint_and_a_description(name):
    model = DEFAULTS[name].estimator
    signature, constraints = inspect.signature(type(model)).parameters, model._parameter_constraints
    assert all(p.kind is p.KEYWORD_ONLY for p in signature.values())
    assert set(signature) == set(constraints)
    assert {name for name in signature if constraints[name] == "no_validation"} <= CHECKED_IN_FIT
    described = entries(type(model), "Parameters")
    assert set(described) == set(signature)
    for name, (kind, _) in described.items():
        default = kind.rpartition("default=")[2]
        assert eval(default, {"inf": math.inf}) == signature[name].default


# Of these each family says something of its own.
OF_FAMILIES = {
    "adversary", "coef_", "delta", "epsilon", "intervals", "loss", "max_iter", "n_agents",
    "neighboring", "partition", "participation", "dropout", "agent_labels_", "privacy_",
    "smoothing",
}  # fmt: skip


def entries(cls, section):
    """Names in a section of a docstring, with their types and descriptions."""
    text = inspect.getdoc(cls).split(f"{section}\n{'-' * len(section)}\n")[1]
    text = re.split(r"\n\n\S+.*\n---", text)[0]
    found = re.findall(r"^(\w[\w, ]*) : (.*)\n((?:    .*\n?)*)", text, flags=re.MULTILINE)
    return {name: (kind, " ".join(said.split())) for name, kind, said in found}


@pytest.mark.parametrize("section", ["Parameters", "Attributes"])
def test_what_estimators_share_is_described_alike(section):
    said = collections.defaultdict(set)
    for row in DEFAULTS.values():
        for name, (_, words) in entries(type(row.estimator), section).items():
            of = (row.family, row.n_classes > 1) if name in OF_FAMILIES else ()
            of += (type(row.estimator),) if name == "target_bounds" and row.is_rate else ()
            said[name, of].add(words)
    assert {key: words for key, words in said.items() if len(words) > 1} == {}


@pytest.mark.parametrize("name", ["network of classes", "personal classes"])
def test_a_fit_first_removes_what_an_earlier_fit_left(name):
    X, y = ROWS[name].data()
    model = ROWS[name].make().fit(X, y)
    assert set(vars(model)) >= PROBABILITIES
    model.set_params(loss="smoothed_hinge").fit(X, y)
    assert not PROBABILITIES & set(vars(model))


def test_knobs_of_an_algorithm_are_parameters_and_those_of_a_name_are_an_error():
    copy = clone(skdpadmm.DPAdmmRidge(algorithm=ConsensusADMM(step_size=0.3)))
    assert copy.get_params()["algorithm__step_size"] == 0.3
    copy.set_params(algorithm=ConsensusADMM(), algorithm__step_size=0.5)
    assert copy.algorithm.step_size == 0.5
    for name in ("ridge", "fed ridge", "network", "personal"):
        with pytest.raises(
            ValueError, match=r"^Got algorithm__step_size with algorithm='.*Pass an"
        ):
            ROWS[name].make().set_params(algorithm__step_size=0.5)


@pytest.mark.parametrize("epsilon", [1.0, math.inf])
def test_a_fit_stores_models_counts_and_the_report_in_their_shapes(row, epsilon):
    X, y = row.data()
    model = row.make(epsilon=epsilon).fit(X, y)
    listed = {name for names in entries(type(model), "Attributes") for name in names.split(", ")}
    known = set(model.get_params(deep=False)) | listed
    assert set(vars(model)) - UNLISTED == known - {"n_samples_seen_", "inference_"}
    is_stream = hasattr(model, "partial_fit") and math.isfinite(epsilon)
    assert ({"_arrived_", "n_samples_seen_"} <= set(vars(model))) == is_stream
    assert (set(vars(model)) >= PROBABILITIES) == hasattr(model, "predict_proba")
    outputs = {1: (), 2: (1,), 3: (3,)}[row.n_classes]
    assert model.coef_.shape == (*outputs, 3)
    assert np.shape(model.intercept_) == outputs
    assert model.coef_.dtype == np.float64
    assert model.n_features_in_ == 3
    assert model.n_iter_ >= 1
    assert isinstance(model.predict(X), np.ndarray)
    assert model.predict(X).shape == (60,)
    if row.family != "central":
        n_agents = 1 if row.family == "personalized" else 4
        assert model.agent_labels_.tolist() == list(range(n_agents))
        if row.family != "federated":
            assert model.coef_per_agent_.shape == (n_agents, *outputs, 3)
            assert model.intercept_per_agent_.shape == (n_agents, *outputs)
