"""Gradient descent on shared sums: what it converges to, what it counts, and what it refuses."""

from __future__ import annotations

import dataclasses
import itertools
import math
import pickle
import struct

import networkx as nx
import numpy as np
import pytest
from scipy import sparse
from sklearn.linear_model import Lasso, LogisticRegression, Ridge

import skdpadmm._fitting as fitting
import skdpadmm.algorithms._secret_sharing_gradient_descent as sharing
import skdpadmm.protocol._gate as gate_module
import skdpadmm.secret_sharing._additive as additive
from skdpadmm import (
    DPAdmmLogisticRegression,
    DPAdmmRidge,
    DPDecentralizedClassifier,
    DPDecentralizedRegressor,
    DPFedElasticNet,
    DPFedLasso,
    DPFedLogisticRegression,
    DPFedRidge,
)
from skdpadmm.algorithms import (
    GradientDescent,
    SecretSharingGradientDescent,
    names_of_algorithms,
    resolve_algorithm,
)
from skdpadmm.algorithms.planning._messages import CERTAIN
from skdpadmm.network import named_graph
from skdpadmm.noise import grid_cell

NAME = "secret-sharing-gradient-descent"
FEDERATED = [DPFedRidge, DPFedLasso, DPFedElasticNet, DPFedLogisticRegression]
ESTIMATORS = [DPDecentralizedRegressor, DPDecentralizedClassifier, *FEDERATED]
WIDE = {"feature_bounds": (-1, 1), "conditioning": None}


def is_classifier(cls):
    return cls in (DPDecentralizedClassifier, DPFedLogisticRegression)


def data(n=120, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 3))
    return X, X @ [1.0, -2.0, 0.0] + 0.3 * rng.standard_normal(n)


def data_for(cls, n=120):
    X, y = data(n)
    return X, (y > 0.1).astype(int) if is_classifier(cls) else y


def parameters(model):
    return np.append(np.ravel(model.coef_), model.intercept_)


class NoNoise:
    simulation = True

    def add_gaussian(self, value, scale, stream):
        return value


class NoiseOfStreams:
    """Noise that depends on the stream alone, and not on the plan."""

    simulation = True

    def add_gaussian(self, value, scale, stream):
        drawn = np.random.default_rng(stream).standard_normal(value.shape)
        return value + np.rint(scale * drawn) if scale > 2**19 else value + scale * drawn


@pytest.fixture
def no_noise(monkeypatch):
    monkeypatch.setattr(fitting, "noise_source", lambda *arguments: NoNoise())
    # Nothing is thresholded that is small beside noise that is not there.
    monkeypatch.setattr(sharing, "drop_noise", lambda parameters, *rest: parameters)


@pytest.fixture
def noise_of_streams(monkeypatch):
    monkeypatch.setattr(fitting, "noise_source", lambda *arguments: NoiseOfStreams())


# What it converges to.


def test_it_is_found_by_name_in_networks_and_in_federations():
    assert isinstance(resolve_algorithm(NAME), SecretSharingGradientDescent)
    for setting in ("decentralized", "federated"):
        assert NAME in names_of_algorithms(setting)
    for setting in ("central", "personalized"):
        assert NAME not in names_of_algorithms(setting)


def strength(cls, alpha, n=120):
    """The parameter of a class for a penalty of that weight beside the mean loss."""
    if cls in (DPFedLogisticRegression, DPAdmmLogisticRegression):
        return {"C": 1 / (alpha * n)}
    return {"alpha": alpha * n if cls in (DPFedRidge, DPAdmmRidge) else alpha}


@pytest.mark.parametrize("momentum", [0.0, 0.7])
@pytest.mark.parametrize("tail_fraction", [0.5, 1e-9])
@pytest.mark.parametrize("unit", ["record", "agent"])
def test_without_noise_it_takes_the_steps_of_a_curator_to_the_width_of_the_grid(
    no_noise, momentum, tail_fraction, unit
):
    # Gradients of records are cut, those of agents are not.
    clip_norm = 0.2 if unit == "record" else 20.0
    knobs = {
        "step_size": 0.4, "clip_norm": clip_norm, "momentum": momentum,
        "tail_fraction": tail_fraction,
    }  # fmt: skip
    shared = {"max_iter": 25, "epsilon": 100.0} | WIDE
    pairs = [
        (DPAdmmRidge, (DPDecentralizedRegressor, DPFedRidge), {"target_bounds": (-4, 4)}),
        (DPAdmmLogisticRegression, (DPDecentralizedClassifier, DPFedLogisticRegression), {}),
    ]
    for central, others, more in pairs:
        X, y = data_for(others[0])
        model = central(
            algorithm=GradientDescent(**knobs), **strength(central, 0.01), **shared, **more
        )
        expected = parameters(model.fit(X, y))
        assert np.abs(expected).max() > 0.05
        for cls in others:
            algorithm = SecretSharingGradientDescent(**knobs)
            model = cls(
                algorithm=algorithm, privacy_unit=unit, n_agents=5, **strength(cls, 0.01),
                **shared, **more,
            )  # fmt: skip
            found = parameters(model.fit(X, y))
            # A hundred times longer messages are on a grid that is as much wider.
            atol = 1e-5 if unit == "record" else 1e-4
            np.testing.assert_allclose(found, expected, rtol=0, atol=atol)


@pytest.mark.parametrize("cls", ESTIMATORS)
@pytest.mark.parametrize("unit", ["record", "agent"])
def test_without_noise_it_converges_to_what_scikit_learn_finds(no_noise, cls, unit):
    X, y = data_for(cls)
    algorithm = SecretSharingGradientDescent(
        step_size=0.5, clip_norm=20.0, tail_fraction=1e-9, momentum=0.8
    )
    shared = {"algorithm": algorithm, "max_iter": 1500, "privacy_unit": unit, "epsilon": 1e4}
    shared |= strength(cls, 0.05) | WIDE
    if is_classifier(cls):
        reference = LogisticRegression(C=1 / (0.05 * 120), tol=1e-10)
    else:
        shared["target_bounds"] = (-4, 4)
        shared |= {"penalty": "l1"} if cls is DPDecentralizedRegressor else {}
        shared |= {"l1_ratio": 1.0} if cls is DPFedElasticNet else {}
        is_ridge = cls is DPFedRidge
        reference = Ridge(alpha=0.05 * 120) if is_ridge else Lasso(alpha=0.05, tol=1e-12)
    model, reference = cls(**shared).fit(X, y), reference.fit(X, y)
    np.testing.assert_allclose(parameters(model), parameters(reference), rtol=0, atol=2e-4)


def test_it_converges_for_several_classes_and_robust_losses(no_noise):
    X, score = data(200)
    y = np.digitize(score, [-0.7, 0.7])
    algorithm = SecretSharingGradientDescent(
        step_size=0.5, clip_norm=20.0, tail_fraction=1e-9, momentum=0.8
    )
    shared = {"algorithm": algorithm, "max_iter": 2000, "epsilon": 1e4, "alpha": 0.05} | WIDE
    model = DPDecentralizedClassifier(**shared).fit(X, y)
    reference = LogisticRegression(C=1 / (0.05 * 200), tol=1e-10).fit(X, y)
    np.testing.assert_allclose(model.coef_, reference.coef_, rtol=0, atol=5e-4)
    regressor = {"target_bounds": (-4, 4), "loss": "huber"}
    model = DPDecentralizedRegressor(**regressor, **shared).fit(X, score)
    optimum = DPDecentralizedRegressor(alpha=0.05, epsilon=math.inf, loss="huber").fit(X, score)
    np.testing.assert_allclose(parameters(model), parameters(optimum), rtol=0, atol=5e-4)


@pytest.mark.parametrize("cls", ESTIMATORS)
def test_without_privacy_the_optimum_is_found_and_nothing_is_said(cls):
    X, y = data_for(cls)
    model = cls(algorithm=NAME, epsilon=math.inf, **strength(cls, 0.05)).fit(X, y)
    other = cls(epsilon=math.inf, **strength(cls, 0.05)).fit(X, y)
    np.testing.assert_array_equal(parameters(model), parameters(other))
    assert model.n_messages_ == model.bytes_sent_ == 0


@pytest.mark.parametrize("cls", ESTIMATORS)
@pytest.mark.parametrize("unit", ["record", "agent"])
def test_defaults_learn_an_easy_problem(cls, unit):
    X, y = data_for(cls, n=20_000)
    who = {"n_agents": 10} if unit == "record" else {"n_agents": 1000, "max_iter": 30}
    if cls in FEDERATED:
        who["adversary"] = "model"
    scores = [
        cls(
            algorithm=SecretSharingGradientDescent(n_curators=3), epsilon=3.0, delta=1e-6,
            privacy_unit=unit, feature_bounds=(-1, 1), random_state=seed,
            **strength(cls, 1e-4, 20_000), **who,
        ).fit(X, y).score(X, y)
        for seed in range(3)
    ]  # fmt: skip
    assert np.median(scores) > 0.8


# What does not matter.


def test_neither_curators_nor_graphs_nor_moduli_change_the_model(noise_of_streams):
    X, y = data()
    knobs = {"max_iter": 10, "n_agents": 6, **WIDE}
    expected, traffic = None, set()
    for n_curators, graph in ((None, "complete"), (2, "ring"), (3, "star"), (6, "path")):
        for modulus in (2**64, 2**63, 2**61 - 1):
            algorithm = SecretSharingGradientDescent(n_curators=n_curators, modulus=modulus)
            model = DPDecentralizedRegressor(algorithm=algorithm, topology=graph, **knobs).fit(X, y)
            if expected is None:
                expected = parameters(model)
            np.testing.assert_array_equal(parameters(model), expected)
            traffic.add((model.n_messages_, model.bytes_sent_))
            assert f"among {n_curators or 6} curators" in str(model.privacy_)
    assert len(traffic) == 4
    federated = [
        DPFedRidge(
            algorithm=SecretSharingGradientDescent(n_curators=count), n_agents=6, max_iter=10,
            adversary="model", **WIDE,
        ).fit(X, y)
        for count in (None, 2, 4)
    ]  # fmt: skip
    assert len({model.bytes_sent_ for model in federated}) == 3
    for model in federated[1:]:
        np.testing.assert_array_equal(parameters(model), parameters(federated[0]))


def test_shares_are_fresh_in_every_fit_and_leave_no_trace_in_the_model(monkeypatch):
    X, y = data()
    model = DPDecentralizedRegressor(algorithm=NAME, max_iter=5, random_state=0)
    seen, split = [], additive.split

    def kept(*arguments):
        seen.append(split(*arguments))
        return seen[-1]

    monkeypatch.setattr(additive, "split", kept)
    first = parameters(model.fit(X, y))
    again = parameters(model.fit(X, y))
    np.testing.assert_array_equal(first, again)
    assert len(seen) == 10
    one, other = seen[:5], seen[5:]
    for a, b in zip(one, other, strict=True):
        # All but the last share of each message are drawn, and so the last is another one.
        assert not (a == b).any()
        np.testing.assert_array_equal(a.sum(axis=1), b.sum(axis=1))
    zeros = lambda shape, modulus, bits: np.zeros(shape, dtype=np.uint64)  # noqa: E731
    monkeypatch.setattr(additive, "uniform_residues", zeros)
    np.testing.assert_array_equal(parameters(model.fit(X, y)), first)


@pytest.mark.parametrize("convert", [sparse.csr_matrix, np.asfortranarray])
def test_the_container_and_the_number_of_jobs_change_only_rounding(convert):
    X, y = data()
    for unit in ("record", "agent"):
        model = DPDecentralizedRegressor(
            algorithm=NAME, max_iter=10, random_state=0, privacy_unit=unit, n_jobs=1
        )
        expected = parameters(model.fit(X, y))
        found = parameters(model.fit(convert(X), y))
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)
        np.testing.assert_array_equal(parameters(model.set_params(n_jobs=2).fit(X, y)), expected)


def test_new_names_for_agents_change_only_rounding(no_noise):
    X, y = data()
    agents = np.resize([4, 0, 2, 3, 4, 1], 120)
    graph = named_graph("barabasi-albert", 5)
    model = DPDecentralizedRegressor(algorithm=NAME, topology=graph, max_iter=20, **WIDE)
    expected = parameters(model.fit(X, y, agents=agents))
    for order in ([4, 3, 2, 1, 0], [2, 0, 4, 1, 3]):
        model.set_params(topology=nx.relabel_nodes(graph, dict(enumerate(order))))
        found = parameters(model.fit(X, y, agents=np.array(order)[agents]))
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-7)


# What is counted.


@pytest.mark.parametrize("graph", ["ring", "star", "path", "complete", "barabasi-albert"])
@pytest.mark.parametrize("n_curators", [None, 2, 5])
@pytest.mark.parametrize("conditioning", [None, "private"])
def test_messages_of_a_network_are_those_of_every_hop_of_every_share(
    graph, n_curators, conditioning
):
    X, y = data()
    rounds, n_agents = 4, 7
    algorithm = SecretSharingGradientDescent(n_curators=n_curators)
    model = DPDecentralizedRegressor(
        algorithm=algorithm, topology=graph, n_agents=n_agents, max_iter=rounds,
        conditioning=conditioning, epsilon=20.0, random_state=0,
    ).fit(X, y)  # fmt: skip
    links = named_graph(graph, n_agents)
    messages = numbers = 0
    releases = model.plan(120, 3).releases
    for release in releases:
        size = math.prod(release.shape)
        for _ in range(release.times):
            for sender, curator in itertools.product(range(n_agents), range(n_curators or 7)):
                there = nx.shortest_path_length(links, sender, curator)
                back = nx.shortest_path_length(links, curator, sender)
                messages += there + back
                numbers += size * (there + back)
    assert len(releases) == (2 if conditioning else 1)
    assert (model.n_messages_, model.bytes_sent_) == (messages, 8 * numbers)
    assert model.n_rounds_ == model.n_iter_ == rounds


@pytest.mark.parametrize("conditioning", [None, "private"])
def test_messages_of_a_federation_go_to_and_from_all_curators(conditioning):
    X, y = data()
    for count in (None, 2, 4):
        model = DPFedRidge(
            algorithm=SecretSharingGradientDescent(n_curators=count), n_agents=5, max_iter=4,
            conditioning=conditioning, epsilon=20.0, random_state=0,
        ).fit(X, y)  # fmt: skip
        messages = numbers = 0
        for release in model.plan(120, 3).releases:
            # A share from everyone, the sum of them, and that to everyone.
            each = (count or 5) * (5 + 1 + 5)
            messages += release.times * each
            numbers += release.times * each * math.prod(release.shape)
        assert (model.n_messages_, model.bytes_sent_) == (messages, 8 * numbers)


# Users.


@pytest.mark.parametrize("cls", ESTIMATORS)
@pytest.mark.parametrize("unit", ["record", "agent"])
def test_models_predict_score_and_say_what_they_cost(cls, unit):
    X, y = data_for(cls)
    agents = np.resize([3, 1, 2, 1, 4], len(X))
    model = cls(algorithm=NAME, privacy_unit=unit, max_iter=5, epsilon=8.0)
    model.fit(X, y, agents=agents)
    assert model.predict(X).shape == (len(X),)
    assert math.isfinite(model.score(X, y))
    report = model.privacy_
    text = str(report)
    assert "by secret sharing" in text
    assert "among 4 curators through secure channels" in text
    assert "drops out" in text
    shape = {"n_samples": len(X), "n_features": 3, "agent_sizes": np.bincount(agents)[1:].tolist()}
    if is_classifier(cls):
        shape["n_classes"] = 2
    plan = model.plan(**shape)
    assert report.guarantee("model") == plan.guarantee("model")
    assert plan.algorithm == "SecretSharingGradientDescent"


def test_the_report_says_what_a_coalition_knows_and_when_it_knows_every_message():
    X, y = data()
    words = {}
    for coalition, n_curators in ((1, None), (3, None), (3, 3), (2, 3)):
        algorithm = SecretSharingGradientDescent(n_curators=n_curators)
        model = DPDecentralizedRegressor(
            algorithm=algorithm, coalition=coalition, max_iter=2, n_agents=5, random_state=0
        ).fit(X, y)
        words[coalition, n_curators] = str(model.privacy_)
    for key, text in words.items():
        assert ("all shares that 3 curators got" in text) == (key == (3, 3))
    assert "what one peer knows" in words[1, None]
    assert "what 3 peers know" in words[3, None]


def test_a_fitted_model_holds_no_rows_messages_or_shares(monkeypatch):
    X, y = data(40)
    kept = []

    class Spy(fitting.Gate):
        def share(self, name, value):
            kept.append(value.copy())
            return super().share(name, value)

    split = additive.split

    def tapped(*arguments):
        kept.append(split(*arguments))
        return kept[-1]

    monkeypatch.setattr(fitting, "Gate", Spy)
    monkeypatch.setattr(additive, "split", tapped)
    for cls in (DPDecentralizedRegressor, DPFedRidge):
        kept.clear()
        model = cls(algorithm=NAME, max_iter=3, n_agents=4).fit(X, y)
        stored = pickle.dumps(model)
        assert len(kept) == 6
        secrets = np.concatenate([np.ravel(v).view(np.uint64) for v in (X, y, *kept)])
        for word in secrets.tolist():
            if word > 2**20:  # Small words are in every pickle.
                assert struct.pack("<Q", word) not in stored
        own = np.ravel(model.coef_).view(np.uint64).tolist()
        assert all(struct.pack("<Q", word) in stored for word in own)
        again = pickle.loads(stored)
        np.testing.assert_array_equal(again.predict(X), model.predict(X))


# Bad input.

REFUSED = {
    "two agents": ({"n_agents": 2}, {}, "^Got 2 agents with n_samples=120 rows.*at least 3 agents"),
    "one agent": ({"n_agents": 1}, {}, "^Got 1 agents with n_samples=120 rows"),
    **{
        f"n_curators={count!r}": (
            {}, {"n_curators": count},
            r"^Got n_curators=.*, expected None or an int from 2 to the number of agents, 10\.",
        )
        for count in (0, 1, -1, 2.5, "3", "all", True, math.nan, math.inf, [3])
    },
    **{
        f"modulus={modulus!r}": ({}, {"modulus": modulus}, r"^Got modulus=.*, expected an int in")
        for modulus in (0, 1, 2**63 + 1, 2**65, 101.0, "101", None, True)
    },
    **{
        f"momentum={value!r}": ({}, {"momentum": value}, r"^Got momentum=.*float in \[0, 1\)")
        for value in (-0.1, 1.0, math.nan, "fast", None)
    },
    "no step": ({}, {"step_size": 0.0}, "^Got step_size="),
    "no clip": ({}, {"clip_norm": -1.0}, "^Got clip_norm="),
    "no tail": ({}, {"tail_fraction": 0.0}, "^Got tail_fraction="),
}  # fmt: skip


@pytest.mark.parametrize("epsilon", [1.0, math.inf])
@pytest.mark.parametrize("cls", [DPDecentralizedRegressor, DPFedLogisticRegression])
@pytest.mark.parametrize(("parameters", "knobs", "message"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_is_refused_by_fit_and_by_plan(cls, parameters, knobs, message, epsilon):
    X, y = data_for(cls)
    algorithm = SecretSharingGradientDescent(**knobs)
    model = cls(algorithm=algorithm, epsilon=epsilon, **parameters)
    more = {"n_classes": 2} if is_classifier(cls) else {}
    with pytest.raises(ValueError, match=message):
        model.plan(n_samples=120, n_features=3, **more)
    with pytest.raises(ValueError, match=message):
        model.fit(X, y)
    assert not hasattr(model, "coef_")


@pytest.mark.parametrize("epsilon", [1.0, math.inf])
@pytest.mark.parametrize("cls", FEDERATED)
@pytest.mark.parametrize("absence", [{"dropout": 0.1}, {"participation": 0.5}], ids=str)
def test_agents_that_are_absent_are_refused(cls, absence, epsilon):
    X, y = data_for(cls)
    with pytest.raises(ValueError, match=r"^Got agents that sit rounds out or drop out, expected"):
        cls(algorithm=NAME, epsilon=epsilon, **absence).fit(X, y)


@pytest.mark.parametrize("epsilon", [1.0, math.inf])
def test_more_curators_than_agents_are_refused(epsilon):
    X, y = data()
    knobs = {"algorithm": SecretSharingGradientDescent(n_curators=11), "epsilon": epsilon}
    for cls in (DPDecentralizedRegressor, DPFedRidge):
        with pytest.raises(ValueError, match=r"^Got n_curators=11, expected None or an int from 2"):
            cls(**knobs).fit(X, y)


def test_a_modulus_that_the_second_moment_would_leave_is_refused():
    sizes = {"n_samples": 10_000, "n_features": 5}

    def plan(modulus, conditioning):
        algorithm = SecretSharingGradientDescent(modulus=modulus)
        model = DPDecentralizedRegressor(algorithm=algorithm, conditioning=conditioning)
        return model.plan(**sizes)

    for modulus in (3 * 10**9, 9 * 10**9):
        plan(modulus, None)
        with pytest.raises(ValueError, match=rf"^Got modulus={modulus}, expected at least \d+"):
            plan(modulus, "private")


def test_preparations_pay_for_the_grid_that_their_shares_are_on():
    def first(algorithm, n_samples=1_000_000, n_features=100):
        model = DPFedRidge(
            algorithm=algorithm, adversary="sums", conditioning="private", delta=1e-8
        )
        return model.plan(n_samples=n_samples, n_features=n_features).releases[0]

    shared, plain = first(NAME), first("federated-admm")
    mu = shared.guarantees("sums")[0].mu
    step = grid_cell(1.0) * math.sqrt(shared.shape[0])
    assert shared.sensitivities[0] / plain.sensitivities[0] >= (1 + step / mu) / CERTAIN
    assert shared.sensitivities[0] / plain.sensitivities[0] == pytest.approx(1 + step / mu, 1e-4)


def test_without_privacy_nothing_is_said_to_be_shared_out():
    X, y = data()
    report = DPDecentralizedRegressor(algorithm=NAME, epsilon=math.inf).fit(X, y).privacy_
    assert "shares" not in str(report)


def test_a_coalition_of_everybody_is_refused():
    X, y = data()
    for coalition, n_agents in ((10, 10), (3, 3)):
        with pytest.raises(ValueError, match=rf"^Got coalition={coalition}, expected an int in"):
            DPDecentralizedRegressor(algorithm=NAME, coalition=coalition, n_agents=n_agents).fit(
                X, y
            )


def test_a_modulus_too_small_is_refused_with_what_will_do():
    X, y = data()
    algorithm = SecretSharingGradientDescent(modulus=2**16)
    with pytest.raises(ValueError, match=r"^Got modulus=65536, expected at least \d+ \(2\*\*\d+ w"):
        DPDecentralizedRegressor(algorithm=algorithm).fit(X, y)


def test_other_estimators_refuse_it():
    X, y = data()
    with pytest.raises(ValueError, match=r"^Got algorithm='secret-sharing-gradient-descent'"):
        DPAdmmRidge(algorithm=NAME).fit(X, y)


def test_the_gate_alone_shares_messages_out():
    # Tests above replace it there.
    assert gate_module.share_and_sum is additive.share_and_sum


@pytest.mark.parametrize("n_curators", [0, 3, 10])
def test_facts_of_other_curators_are_refused(n_curators):
    algorithm = SecretSharingGradientDescent(n_curators=2)
    model = DPDecentralizedRegressor(algorithm=algorithm, coalition=5)
    plan = model.plan(n_samples=100, n_features=2)
    agents = dataclasses.replace(plan.facts.agents, n_curators=n_curators)
    facts = dataclasses.replace(plan.facts, agents=agents, scaling=None, conditioning=None)
    with pytest.raises(ValueError, match=rf"^Got facts of {n_curators} curators, expected 2"):
        algorithm.plan(facts, plan.budget)


@pytest.mark.parametrize("n_curators", [-3, 1, 11])
def test_agents_know_no_other_number_of_curators(n_curators):
    plan = DPDecentralizedRegressor(algorithm=NAME).plan(n_samples=100, n_features=2)
    with pytest.raises(ValueError, match=rf"^Got n_curators={n_curators} for 10 agents"):
        dataclasses.replace(plan.facts.agents, n_curators=n_curators)
