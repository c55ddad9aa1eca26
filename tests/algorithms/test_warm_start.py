"""What a warm start sends, and that its public randomness is its own."""

from __future__ import annotations

import math

import numpy as np
import pytest

from skdpadmm import DPPersonalizedClassifier
from skdpadmm.algorithms import GossipADMM, LocalModels, PersonalizedCoordinateDescent
from skdpadmm.algorithms import _personalized_coordinate_descent as module

N_AGENTS, N_ROUNDS, N_TURNS, N_NEIGHBORS = 5, 7, 3, 4


def fitted(algorithm, **changed):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (200, 3))
    settings = {
        "algorithm": algorithm,
        "classes": [0, 1],
        "feature_bounds": (-1, 1),
        "random_state": 0,
    }
    model = DPPersonalizedClassifier(**(settings | changed))
    return model.fit(X, (X[:, 0] > 0).astype(int), agents=np.arange(200) % N_AGENTS)


@pytest.fixture
def smoothed(monkeypatch):
    """What is smoothed, in so many rounds."""
    seen = []

    def propagate(similarity, models, pull, *, tolerance):
        seen.append(models.copy())
        return models, N_ROUNDS

    monkeypatch.setattr(module, "propagate", propagate)
    return seen


def test_probes_are_sent_along_with_models(smoothed):
    model = fitted(PersonalizedCoordinateDescent(turns=N_TURNS, averaging_wakes=0))
    edges, n_parameters = N_AGENTS * N_NEIGHBORS, 4
    n_messages = edges * (N_ROUNDS + N_TURNS - 1)
    assert model.n_messages_ == n_messages
    of_probes = edges * N_ROUNDS * module.N_PROBES
    assert smoothed[0].shape == (N_AGENTS, n_parameters + module.N_PROBES)
    assert model.bytes_sent_ == 8 * (n_messages * n_parameters + of_probes)


def test_without_a_warm_start_models_alone_are_sent():
    model = fitted(PersonalizedCoordinateDescent(turns=N_TURNS, warm_start=None))
    assert model.bytes_sent_ == 8 * 4 * model.n_messages_


def test_probes_do_not_share_random_numbers_with_the_order_of_wake_ups(smoothed):
    fitted(PersonalizedCoordinateDescent(turns=2, order_seed=5))
    probes = smoothed[0][:, -module.N_PROBES :]
    scale = np.abs(probes).max()
    for start in ({"seed": 5}, {"seed": np.random.SeedSequence(5)}):
        same = np.random.Generator(np.random.Philox(**start)).standard_normal(probes.shape)
        assert np.abs(np.corrcoef(probes.ravel(), same.ravel())[0, 1]) < 0.6
    words = np.random.SeedSequence(5, spawn_key=(module.PROBE_STREAM,))
    drawn = np.random.Generator(np.random.Philox(words)).standard_normal(probes.shape)
    np.testing.assert_allclose(probes / scale, drawn / np.abs(drawn).max(), rtol=1e-12)


def test_gossip_from_local_models_starts_there_and_counts_what_is_told_first():
    """Pairs that hardly pull at each other stay near what they start from."""
    own = fitted(LocalModels(), epsilon=math.inf, trade_off=1e6)
    told = fitted(
        GossipADMM(start="local", penalty_weight=1e-6),
        epsilon=math.inf,
        trade_off=1e6,
        max_iter=1,
    )
    np.testing.assert_allclose(told.coef_per_agent_, own.coef_per_agent_, rtol=1e-3)
    edges = N_AGENTS * N_NEIGHBORS
    assert told.n_messages_ == edges + 2 * N_AGENTS
    assert told.bytes_sent_ == 8 * 4 * (edges + 4 * 2 * N_AGENTS)


def test_gossip_from_local_models_ends_at_the_optimum():
    settings = {"epsilon": math.inf, "alpha": 1.0, "trade_off": 1.0}
    best = fitted("personalized-coordinate-descent", **settings)
    model = fitted(GossipADMM(start="local"), max_iter=150, **settings)
    np.testing.assert_allclose(model.coef_per_agent_, best.coef_per_agent_, atol=1e-4)
    with pytest.raises(ValueError, match="start='there'"):
        fitted(GossipADMM(start="there"))
