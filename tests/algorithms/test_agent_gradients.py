"""Gradients of all agents at once: equal to a loop, the same everywhere, bounded."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from distributed import Client, LocalCluster
from scipy import sparse

from skdpadmm.algorithms.blocks._agent_gradients import agent_gradients
from skdpadmm.engine import Engine
from skdpadmm.losses import LogisticLoss, MultinomialLoss, SquaredLoss, clip_derivative
from skdpadmm.network import ownership_of_labels
from skdpadmm.protocol import Problem
from skdpadmm.records import Rows, declared_coordinates

P = 4
LOSSES = {
    "squared": SquaredLoss(),
    "logistic": LogisticLoss(),
    "multinomial": MultinomialLoss(3),
}


def make_data(loss, n):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.5, 1.5, size=(n, P))
    y = rng.integers(0, 3, n) if loss.n_outputs > 1 else rng.choice([-1.0, 1.0], n)
    return X, y


def scattered(n, n_agents):
    return np.random.default_rng(2).permutation(np.arange(n) % n_agents)


def make_problem(X, y, owner, engine):
    coordinates = declared_coordinates(
        n_features=X.shape[1], fit_intercept=True, feature_bounds=(-1, 1), has_target_scale=False
    )
    ownership = ownership_of_labels(owner, n_samples=X.shape[0])
    return Problem(rows=Rows(X, coordinates), target=y, engine=engine, ownership=ownership)


def parameters_of(problem, loss):
    shape = (problem.ownership.n_agents, problem.rows.coordinates.n_parameters, loss.n_outputs)
    return 3 * np.random.default_rng(1).normal(size=shape)


def gradients(X, y, owner, *, loss, clip_norm=0.3, batch=None, engine=None):
    with (engine or Engine()).running() as running:
        problem = make_problem(X, y, owner, running)
        found = agent_gradients(problem, loss=loss, clip_norm=clip_norm)
        return found(parameters_of(problem, loss), batch)


def agent_by_agent(X, y, owner, *, loss, clip_norm=0.3, batch=None):
    problem = make_problem(X, y, owner, Engine())
    rows, parameters = problem.rows, parameters_of(problem, loss)
    seen = np.concatenate([rows.seen(block) for block in range(rows.n_blocks)])
    total = np.zeros(parameters.shape)
    for agent in range(len(parameters)):
        own = (problem.ownership.index == agent) & (True if batch is None else batch)
        scores = seen[own] @ parameters[agent]
        slopes = loss.derivative(scores if loss.n_outputs > 1 else scores[:, 0], y[own])
        bound = clip_norm / np.linalg.norm(seen[own], axis=1)
        slopes = clip_derivative(slopes, bound).reshape(scores.shape)
        total[agent] = seen[own].T @ slopes
    return total


@pytest.mark.parametrize("clip_norm", [0.3, np.inf])
@pytest.mark.parametrize("container", [np.asarray, sparse.csr_matrix])
@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_gradients_equal_a_loop_over_agents(loss, container, clip_norm):
    X, y = make_data(loss, 300)
    owner = scattered(300, 8)
    found = gradients(container(X), y, owner, loss=loss, clip_norm=clip_norm)
    expected = agent_by_agent(X, y, owner, loss=loss, clip_norm=clip_norm)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("n", "n_agents"), [(1, 1), (30, 1), (30, 30)])
def test_one_agent_and_agents_of_one_record(n, n_agents):
    loss = LogisticLoss()
    X, y = make_data(loss, n)
    owner = scattered(n, n_agents)
    found, expected = (f(X, y, owner, loss=loss) for f in (gradients, agent_by_agent))
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("container", [np.asarray, sparse.csr_matrix])
def test_a_batch_is_what_its_records_make_alone(container):
    loss = SquaredLoss()
    X, y = make_data(loss, 20_000)
    owner, batch = scattered(20_000, 20), np.random.default_rng(4).random(20_000) < 0.2
    batch &= owner != 7
    found = gradients(container(X), y, owner, loss=loss, batch=batch)
    expected = agent_by_agent(X, y, owner, loss=loss, batch=batch)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)
    assert not found[7].any()


EXTREME = {
    "target": ([0.5, 0.5, 0.5, 0.5], -1.0),
    "corner": ([1.0, -1.0, 1.0, -1.0], 1.0),
    "zeros": ([0.0, 0.0, 0.0, 0.0], 1.0),
    "huge": ([1e300, -1e300, 1e308, 0.0], -1.0),
    "tiny": ([1e-300, 0.0, 0.0, 1e-310], 1.0),
    "huge target": ([1.0, 0.0, 0.0, 0.0], 1e300),
}


@pytest.mark.parametrize("container", [np.asarray, sparse.csr_matrix])
@pytest.mark.parametrize("record", EXTREME.values(), ids=EXTREME)
def test_another_record_moves_its_agent_by_twice_the_clip_and_no_other(record, container):
    loss, clip_norm = SquaredLoss(), 0.3
    X, y = make_data(loss, 200)
    owner = scattered(200, 5)
    X2, y2 = X.copy(), y.copy()
    X2[17], y2[17] = record
    before, after = (
        gradients(container(A), b, owner, loss=loss, clip_norm=clip_norm)
        for A, b in ((X, y), (X2, y2))
    )
    moved = np.linalg.norm((after - before).reshape(5, -1), axis=1)
    others = np.arange(5) != owner[17]
    assert not moved[others].any()
    assert moved[owner[17]] <= 2 * clip_norm * (1 + 1e-9)


def test_the_clip_is_one_norm_of_all_outputs():
    loss, clip_norm = MultinomialLoss(3), 0.2
    X, y = make_data(loss, 12)
    found = gradients(X, y, np.arange(12), loss=loss, clip_norm=clip_norm)
    norms = np.linalg.norm(found.reshape(12, -1), axis=1)
    assert (norms <= clip_norm * (1 + 1e-9)).all()
    assert norms.max() == pytest.approx(clip_norm)


@pytest.mark.parametrize("record", [[1e308, 1e308, 0.0, 1.0], [0.0, 0.0, 0.0, 0.0]])
def test_an_open_clip_gives_finite_gradients(record):
    loss = LogisticLoss()
    X, y = make_data(loss, 50)
    X[3] = record
    assert np.isfinite(gradients(X, y, scattered(50, 4), loss=loss, clip_norm=np.inf)).all()


# --------------------------------------------------------------------------------------------------
# Engines


@pytest.fixture(scope="module")
def client():
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0") as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


@pytest.mark.parametrize("kind", ["scattered", "contiguous"])
@pytest.mark.parametrize("loss", [LogisticLoss(), MultinomialLoss(3)], ids=["1", "3"])
def test_every_number_of_workers_gives_the_same_bits(loss, kind, client):
    n = 60_000
    X, y = make_data(loss, n)
    owner = scattered(n, 90) if kind == "scattered" else np.arange(n) * 90 // n
    batch = np.random.default_rng(4).random(n) < 0.5
    engines = [Engine(n_jobs=2), Engine(n_jobs=4), Engine(backend="dask", client=client)]
    alone = gradients(X, y, owner, loss=loss, batch=batch)
    for engine in engines:
        found = gradients(X, y, owner, loss=loss, batch=batch, engine=engine)
        np.testing.assert_array_equal(found, alone)


def test_a_part_takes_along_its_own_rows_alone():
    loss = LogisticLoss()
    X, y = make_data(loss, 60_000)
    with Engine().running() as engine:
        problem = make_problem(X, y, scattered(60_000, 3), engine)
        parts = agent_gradients(problem, loss=loss, clip_norm=1.0).placed.parts
    assert len(parts) > 2
    per_row = sum(len(pickle.dumps(part)) for part in parts) / 60_000
    assert per_row < 8 * (P + 6)
