"""Model propagation: models that are smoothed over similar agents, in rounds and in turn."""

from __future__ import annotations

import numpy as np
import pytest

from skdpadmm.algorithms import propagate, propagate_in_turn, propagation_limit
from skdpadmm.network import Similarity

PATH = Similarity(n_agents=3, matrix=np.array([[0, 1, 0], [1, 0, 0.5], [0, 0.5, 0]]))


def similarity_of(n_agents, seed=1):
    """A ring with weights of its own, and a few chords."""
    rng = np.random.default_rng(seed)
    weights = np.zeros((n_agents, n_agents))
    for i in range(n_agents):
        weights[i, (i + 1) % n_agents] = rng.uniform(0.5, 2.0)
    weights[0, n_agents // 2] = 0.3
    return Similarity(n_agents=n_agents, matrix=weights + weights.T)


def test_propagation_has_the_vectors_of_the_path():
    models, pull = np.array([1.0, -1.0, 2.0]), 0.8 * np.array([0.2, 1.0, 0.5])
    fixed = [-0.31403859, -0.52428476, 0.19693945]
    np.testing.assert_allclose(propagation_limit(PATH, models, pull), fixed, atol=1e-8)
    np.testing.assert_allclose(propagate(PATH, models, pull)[0], fixed, atol=1e-8)
    woken = propagate_in_turn(PATH, models, pull, [0, 1, 2, 1], np.zeros(3))
    np.testing.assert_allclose(woken, [0.13793103, -0.33957037, 0.29045795], atol=1e-8)


@pytest.mark.parametrize("tolerance", [1e-3, 1e-8])
def test_propagation_ends_at_its_linear_system(tolerance):
    rng = np.random.default_rng(3)
    similarity, pull = similarity_of(12), rng.uniform(0.01, 2.0, 12)
    models = rng.normal(size=(12, 3, 2))
    limit = propagation_limit(similarity, models, pull)
    found, n_rounds = propagate(similarity, models, pull, tolerance=tolerance)
    again = propagate(similarity, np.zeros(models.shape), pull, tolerance=tolerance)[1]
    assert n_rounds == again
    scale = np.sqrt(similarity.degrees * (1 + pull))[:, None, None]
    error, before = scale * (found - limit), scale * (models - limit)
    assert np.linalg.norm(error) <= 1.01 * tolerance * np.linalg.norm(before)


def test_propagation_knows_uniform_weights_and_agents_that_are_alone():
    models, pull = np.arange(5.0), np.linspace(0.1, 1.0, 5)
    everybody = Similarity(n_agents=5)
    np.testing.assert_allclose(
        propagate(everybody, models, pull)[0],
        propagation_limit(everybody, models, pull),
        atol=1e-8,
    )
    alone, n_rounds = propagate(Similarity(n_agents=1), models[3:4], pull[:1])
    assert (alone.tolist(), n_rounds) == ([3.0], 0)
