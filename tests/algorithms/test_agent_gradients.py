"""Gradients of all agents at once: a loop over agents, bounded for every record."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from skdpadmm.algorithms.blocks._agent_gradients import agent_gradients
from skdpadmm.algorithms.blocks._agent_turns import absolute_sums
from skdpadmm.engine import Engine
from skdpadmm.network import Ownership
from skdpadmm.protocol import Problem
from skdpadmm.records import Rows, declared_coordinates
from tests.algorithms.runs import LOSSES, make_task, summed_gradient

CONTAINERS = [np.asarray, sparse.csr_matrix]


def problem_of(task, container=np.asarray):
    ownership = Ownership(labels=np.arange(task.facts.agents.n_agents), index=task.owner)
    rows = Rows(container(task.X), task.facts.coordinates)
    return Problem(rows=rows, target=task.y, engine=Engine(), ownership=ownership)


def gradients(task, models, clip, container=np.asarray, batch=None):
    problem = problem_of(task, container)
    with problem.engine.running(), np.errstate(all="ignore"):
        return agent_gradients(problem, loss=task.facts.loss, clip_norm=clip)(models, batch)


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("name", LOSSES)
def test_gradients_equal_a_loop_over_agents_and_records_of_a_batch(name, container):
    task = make_task(name, sizes=(150, 1, 30, 60), n_features=4)
    batch = np.random.default_rng(4).random(241) < 0.3
    batch &= task.owner != 2
    models = 3 * np.random.default_rng(1).normal(size=(4, 5, LOSSES[name].n_outputs))
    for chosen, clip in ((None, np.inf), (None, 0.3), (batch, 0.3)):
        found = gradients(task, models, clip, container, chosen)
        expected = [summed_gradient(task, a, w, clip, batch=chosen) for a, w in enumerate(models)]
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)
    assert not found[2].any()


@pytest.mark.parametrize("container", CONTAINERS)
def test_absolute_sums_are_those_of_centred_rows_rounded_up(container):
    coordinates = declared_coordinates(
        n_features=3, fit_intercept=True, feature_bounds=([-1, -3, 0], [5, 1, 8]),
        has_target_scale=False,
    )  # fmt: skip
    X = np.random.default_rng(0).uniform(coordinates.lower, coordinates.upper, (50, 3))
    centred = np.abs((X - coordinates.offset) / coordinates.scale).sum(axis=1) + 1.0
    sums = absolute_sums(Rows(container(X), coordinates))
    np.testing.assert_allclose(sums, centred, rtol=1e-11)
    assert (sums >= centred * (1 - 1e-15)).all()
