"""Limits of the federated estimators: no privacy, one agent, an agent for each row, any engine."""

from __future__ import annotations

import math
import os
import signal
import time
from contextlib import contextmanager, suppress

import numpy as np
import pytest
from distributed import Client, LocalCluster
from scipy import sparse
from sklearn.base import clone
from sklearn.linear_model import ElasticNet, Lasso, LogisticRegression, Ridge

from skdpadmm import (
    DPAdmmElasticNet,
    DPAdmmLasso,
    DPAdmmLogisticRegression,
    DPAdmmRidge,
    DPFedElasticNet,
    DPFedLasso,
    DPFedLogisticRegression,
    DPFedRidge,
    _fitting,
)
from skdpadmm.algorithms import ConsensusADMM, FederatedADMM
from skdpadmm.algorithms.blocks import _record_blocks

PAIRS = {
    "ridge": (DPFedRidge, DPAdmmRidge, {"alpha": 2.0}),
    "lasso": (DPFedLasso, DPAdmmLasso, {"alpha": 0.05}),
    "elastic net": (DPFedElasticNet, DPAdmmElasticNet, {"alpha": 0.1, "l1_ratio": 0.7}),
    "logistic": (DPFedLogisticRegression, DPAdmmLogisticRegression, {"C": 0.5}),
    "multinomial": (
        DPFedLogisticRegression,
        DPAdmmLogisticRegression,
        {"C": 0.5, "classes": [0, 1, 2]},
    ),
}


def data(name, n=120, p=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(n, p))
    scores = 0.3 + X @ np.resize([1.0, -2.0, 0.5], p) + 0.1 * rng.normal(size=n)
    if name == "multinomial":
        return X, np.digitize(scores, [-0.5, 0.8])
    return X, (scores > 0).astype(int) if name == "logistic" else scores


def parameters(model):
    return np.append(np.ravel(model.coef_), model.intercept_)


# Without privacy.


def by_first_feature(X, y):
    return np.where(X[:, 0] > 0, "right", "left")


PARTITIONS = [
    "iid",
    "quantity",
    "dirichlet",
    "sorted",
    1,
    7,
    pytest.param(by_first_feature, id="callable"),
]


@pytest.mark.parametrize("unit", ["record", "agent"])
@pytest.mark.parametrize("partition", PARTITIONS)
@pytest.mark.parametrize("name", PAIRS)
def test_without_privacy_a_federation_finds_what_a_curator_finds(name, partition, unit):
    federated, central, knobs = PAIRS[name]
    X, y = data(name)
    expected = parameters(central(epsilon=math.inf, **knobs).fit(X, y))
    model = federated(
        epsilon=math.inf, partition=partition, privacy_unit=unit, participation=1, **knobs
    )
    np.testing.assert_allclose(parameters(model.fit(X, y)), expected, rtol=0, atol=1e-8)
    assert model.n_messages_ == model.bytes_sent_ == 0
    assert all(math.isinf(model.privacy_.epsilon(o)) for o in ("server", "sums", "model"))


REFERENCES = {
    "ridge": Ridge(alpha=2.0),
    "lasso": Lasso(alpha=0.05, tol=1e-12),
    "elastic net": ElasticNet(alpha=0.1, l1_ratio=0.7, tol=1e-12),
    "logistic": LogisticRegression(C=0.5, tol=1e-12, solver="newton-cg"),
    "multinomial": LogisticRegression(C=0.5, tol=1e-12, solver="newton-cg"),
}


@pytest.mark.parametrize("name", PAIRS)
def test_without_privacy_a_federation_finds_what_scikit_learn_finds(name):
    federated, _, knobs = PAIRS[name]
    X, y = data(name)
    model, reference = federated(epsilon=math.inf, **knobs).fit(X, y), REFERENCES[name].fit(X, y)
    np.testing.assert_allclose(np.ravel(model.coef_), np.ravel(reference.coef_), atol=1e-6)
    np.testing.assert_allclose(model.predict(X), reference.predict(X), atol=1e-6)


def test_an_infinite_epsilon_for_each_agent_is_no_privacy():
    X, y = data("ridge")
    expected = parameters(DPFedRidge(epsilon=math.inf, partition=3).fit(X, y))
    found = parameters(DPFedRidge(epsilon=[math.inf] * 3, partition=3).fit(X, y))
    np.testing.assert_array_equal(found, expected)


# One agent, and as many agents as rows.


class SameNoise:
    """Noise that depends on nothing but the position of a release in its plan."""

    simulation = True

    def add_gaussian(self, value, scale, stream):
        return value + scale * np.random.default_rng(stream).standard_normal(value.shape)


@pytest.fixture
def same_noise(monkeypatch):
    monkeypatch.setattr(_fitting, "noise_source", lambda *arguments: SameNoise())


def both(name, *, step="auto", relaxation=0.5, federation, **knobs):
    """A federated and a central fit with the same knobs, and their plans."""
    federated, central, own = PAIRS[name]
    X, y = data(name)
    knobs = {"epsilon": 3.0, "feature_bounds": (-1, 1), "max_iter": 30} | own | knobs
    one = federated(
        algorithm=FederatedADMM(local_step=step, relaxation=relaxation), **federation, **knobs
    )
    other = central(algorithm=ConsensusADMM(record_step=step, relaxation=relaxation), **knobs)
    plans = []
    for model in (one, other):
        model.fit(X, y)
        n_classes = {"n_classes": len(model.classes_)} if hasattr(model, "classes_") else {}
        plans.append(model.plan(*X.shape, **n_classes))
    return (one, other), plans


def assert_the_same_mechanism(plans):
    federated, central = plans
    assert federated.guarantee().mu == pytest.approx(central.guarantee().mu, rel=1e-9)
    assert federated.settings.step_size == pytest.approx(central.settings.step_size, rel=1e-12)
    assert federated.settings.clip_norm == pytest.approx(central.settings.clip_norm, rel=1e-12)
    assert len(federated.releases) == len(central.releases)
    for one, other in zip(federated.releases, central.releases, strict=True):
        assert one.sensitivities == other.sensitivities
        assert one.shape == other.shape
        assert one.noise_std == pytest.approx(other.noise_std, rel=1e-12)


@pytest.mark.parametrize("adversary", ["server", "sums", "model"])
@pytest.mark.parametrize("step", ["auto", "exact", "linearized"])
@pytest.mark.parametrize("conditioning", ["private", None])
@pytest.mark.parametrize("name", PAIRS)
def test_one_agent_with_all_rows_is_the_central_algorithm(
    name, conditioning, step, adversary, same_noise
):
    models, plans = both(
        name,
        step=step,
        conditioning=conditioning,
        federation={"partition": 1, "adversary": adversary},
    )
    assert_the_same_mechanism(plans)
    assert plans[0].settings.local_step == plans[1].settings.record_step
    np.testing.assert_allclose(*map(parameters, models), rtol=0, atol=1e-10)
    for observer in ("server", "sums", "model"):
        epsilon = models[0].privacy_.epsilon(observer)
        assert epsilon == pytest.approx(models[1].privacy_.epsilon(), rel=1e-9)


@pytest.mark.parametrize("relaxation", [0.2, 0.8])
def test_one_agent_is_the_central_algorithm_at_every_relaxation(relaxation, same_noise):
    models, plans = both("lasso", relaxation=relaxation, federation={"partition": 1})
    assert_the_same_mechanism(plans)
    np.testing.assert_allclose(*map(parameters, models), rtol=0, atol=1e-10)


@pytest.mark.parametrize("neighboring", ["replace_one", "zero_out"])
@pytest.mark.parametrize("conditioning", ["private", None])
@pytest.mark.parametrize("step", ["exact", "linearized"])
@pytest.mark.parametrize("name", PAIRS)
def test_an_agent_for_each_row_is_the_central_algorithm(
    name, step, conditioning, neighboring, same_noise
):
    models, plans = both(
        name,
        step=step,
        conditioning=conditioning,
        neighboring=neighboring,
        federation={"partition": 120, "adversary": "model"},
    )
    assert_the_same_mechanism(plans)
    np.testing.assert_allclose(*map(parameters, models), rtol=0, atol=1e-10)


@pytest.mark.parametrize("conditioning", ["private", None])
@pytest.mark.parametrize("step", ["exact", "linearized"])
@pytest.mark.parametrize("name", PAIRS)
def test_agents_of_one_row_are_protected_and_solved_as_records_are(
    name, step, conditioning, same_noise, monkeypatch
):
    # Agents solve their problems to the end, records in a fixed number of steps: more of them here.
    monkeypatch.setattr(_record_blocks, "WARM_STEPS", 50)
    models, plans = both(
        name,
        step=step,
        conditioning=conditioning,
        max_iter=8,
        federation={"partition": 120, "adversary": "model", "privacy_unit": "agent"},
    )
    assert_the_same_mechanism(plans)
    np.testing.assert_allclose(*map(parameters, models), rtol=0, atol=1e-9)


def test_the_order_of_agents_and_their_names_change_only_rounding(same_noise):
    X, y = data("ridge")
    agents = np.resize([4, 0, 2], 120)
    for unit in ("record", "agent"):
        model = DPFedRidge(privacy_unit=unit, max_iter=20, epsilon=3.0)
        expected = parameters(model.fit(X, y, agents=agents))
        for renamed in (4 - agents, agents.astype(str), np.array(list("abcde"))[agents]):
            found = parameters(model.fit(X, y, agents=renamed))
            np.testing.assert_allclose(found, expected, rtol=0, atol=1e-10)


# The same bits on every engine.


@pytest.fixture(scope="module")
def client():
    with (
        # Port 0 is any free port: tests run next to each other.
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0") as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


CONTAINERS = {
    "dense": np.asarray,
    "float32": lambda X: X.astype(np.float32),
    "CSR": sparse.csr_matrix,
}
SCHEDULES = {
    "everyone": {},
    "some": {"participation": 0.5, "dropout": 0.1},
}


def on_many_blocks(name, unit, schedule, message):
    """A model, and data of several blocks of rows, of more agents than tasks."""
    federated, _, knobs = PAIRS[name]
    model = federated(
        privacy_unit=unit,
        partition=40,
        max_iter=3,
        algorithm=FederatedADMM(message=message, local_step="exact"),
        random_state=0,
        **knobs,
        **SCHEDULES[schedule],
    )
    X, y = data(name, n=9000, p=20)
    X[np.abs(X) < 0.5] = 0.0
    return model, X, y


@pytest.mark.parametrize("message", ["state", "increment"])
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("unit", ["record", "agent"])
@pytest.mark.parametrize("convert", CONTAINERS.values(), ids=CONTAINERS)
def test_the_number_of_jobs_changes_no_bit(convert, unit, schedule, message):
    model, X, y = on_many_blocks("ridge", unit, schedule, message)
    X = convert(X)
    expected = parameters(model.fit(X, y))
    for n_jobs in (1, 2, 4):
        np.testing.assert_array_equal(
            parameters(model.set_params(n_jobs=n_jobs).fit(X, y)), expected
        )


def assert_dask_changes_no_bit(client, model, X, y):
    expected = parameters(model.fit(X, y))
    with client.as_current():
        model.set_params(engine="dask").fit(X, y)
    np.testing.assert_array_equal(parameters(model), expected)


@pytest.mark.parametrize("unit", ["record", "agent"])
def test_workers_of_dask_change_no_bit(unit, client):
    model, X, y = on_many_blocks("ridge", unit, "some", "increment")
    assert_dask_changes_no_bit(client, model, X, y)


@pytest.mark.slow
@pytest.mark.parametrize("message", ["state", "increment"])
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("unit", ["record", "agent"])
@pytest.mark.parametrize("convert", CONTAINERS.values(), ids=CONTAINERS)
@pytest.mark.parametrize("name", ["lasso", "logistic", "multinomial"])
def test_workers_of_dask_change_no_bit_of_any_model(name, convert, unit, schedule, message, client):
    model, X, y = on_many_blocks(name, unit, schedule, message)
    assert_dask_changes_no_bit(client, model.set_params(partition=5), convert(X), y)


@pytest.mark.parametrize("name", PAIRS)
def test_without_privacy_dask_changes_no_bit(name, client):
    federated, _, knobs = PAIRS[name]
    model = federated(epsilon=math.inf, **knobs)
    assert_dask_changes_no_bit(client, model, *data(name))


def wait_until_both_answer(client):
    """A worker that died starts again."""
    for _ in range(200):
        with suppress(OSError):
            if len(client.run(os.getpid)) == 2:
                return
        time.sleep(0.05)
    raise AssertionError("A worker did not start again.")


@pytest.mark.parametrize("unit", ["record", "agent"])
def test_a_worker_that_dies_in_mid_fit_is_an_error_that_stores_nothing(unit, client, monkeypatch):
    model, X, y = on_many_blocks("ridge", unit, "everyone", "state")
    model.set_params(partition=5, max_iter=20)
    before = dict(vars(model.fit(X, y)))
    rounds = []

    @contextmanager
    def kill_a_worker(estimator, plan):
        def progress(done):
            rounds.append(done)
            if done == 3:
                os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL)

        yield progress

    monkeypatch.setattr(_fitting, "_progress", kill_a_worker)
    with client.as_current():
        with pytest.raises(RuntimeError, match=r"dask worker that died in round .* Nothing was st"):
            clone(model).set_params(engine="dask").fit(X, y)
        rounds_of_one_fit = rounds[:]
        model.set_params(engine="dask")
        wait_until_both_answer(client)
        with pytest.raises(RuntimeError, match="dask worker that died"):
            model.fit(X, y)
    assert 3 <= len(rounds_of_one_fit) < 20
    assert vars(model) == before | {"engine": "dask"}
    wait_until_both_answer(client)


@pytest.mark.parametrize("message", ["state", "increment"])
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("unit", ["record", "agent"])
@pytest.mark.parametrize("name", PAIRS)
def test_the_container_changes_only_rounding(name, unit, schedule, message):
    federated, _, knobs = PAIRS[name]
    X, y = data(name)
    X[np.abs(X) < 0.5] = 0.0
    model = federated(
        privacy_unit=unit, partition=6, max_iter=10, random_state=0,
        algorithm=FederatedADMM(message=message), **knobs, **SCHEDULES[schedule],
    )  # fmt: skip
    expected = parameters(model.fit(X, y))
    for convert in (np.asfortranarray, sparse.csr_matrix, sparse.csc_array):
        found = parameters(model.fit(convert(X), y))
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


# Defaults.


@pytest.mark.parametrize("adversary", ["server", "sums", "model"])
@pytest.mark.parametrize("estimator", [DPFedRidge, DPFedLogisticRegression])
def test_defaults_learn_an_easy_problem_whoever_the_adversary_is(estimator, adversary):
    rng = np.random.default_rng(1)
    X = rng.uniform(-1, 1, size=(20_000, 5))
    y = X @ [1.0, -1.0, 0.5, 0.0, 0.5] + 0.1 * rng.normal(size=20_000)
    y = y > 0 if estimator is DPFedLogisticRegression else y
    scores = [
        estimator(adversary=adversary, feature_bounds=(-1, 1), random_state=seed)
        .fit(X, y)
        .score(X, y)
        for seed in range(10)
    ]
    assert np.median(scores) > 0.9
