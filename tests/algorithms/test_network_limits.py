"""Algorithms over a graph without noise: the optimum of all rows, whoever holds which of them."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest

from skdpadmm import algorithms as alg
from skdpadmm.penalties import L1, SquaredL2
from tests.algorithms.runs import central_optimum, make_task
from tests.algorithms.runs import run_agents as run

PENALTIES = {
    "ridge": ("squared", SquaredL2(0.2)), "lasso": ("squared", L1(0.05)),
    "logistic": ("logistic", SquaredL2(0.1)),
}  # fmt: skip
WIDE = {"clip_norm": 20.0, "tail_fraction": 1e-9}

multi = partial(alg.MultiStepADMM, penalty_weight=0.5, **WIDE)
mixed = partial(alg.RandomizedADMM, tail_fraction=1e-9)
WALK = alg.RandomWalkADMM(step_size=1.5, max_contributions=10**6, **WIDE)
LIMITS = [
    (multi(inner_steps=1, proximal_weight=4.0), "lasso", "star", 1000, 1e-7),
    (multi(inner_steps=2, proximal_weight=1.0), "logistic", "barabasi-albert", 400, 1e-7),
    (mixed(), "logistic", "grid", 800, 1e-7),
    (mixed(aggregator="fixed"), "logistic", "complete", 800, 1e-7),
    (WALK, "lasso", "complete", 200, 1e-5),
]


@pytest.mark.parametrize(("algorithm", "name", "topology", "rounds", "atol"), LIMITS)
def test_every_agent_ends_at_the_optimum_of_all_rows(algorithm, name, topology, rounds, atol):
    loss, penalty = PENALTIES[name]
    task = make_task(
        loss, sizes=(15,) * 8, topology=topology, penalty=penalty, max_iter=rounds,
        sort_by_target=name == "ridge",
    )  # fmt: skip
    # Walks plan with privacy alone.
    public = isinstance(algorithm, alg.RandomizedADMM)
    _, solution, _ = run(algorithm, task, epsilon=math.inf if public else 1e9)
    best = central_optimum(task)
    for own in (solution.parameters, *solution.parameters_per_agent):
        np.testing.assert_allclose(own, best, rtol=0, atol=atol)


ROUNDS = (alg.MultiStepADMM, alg.DecentralizedGradientDescent, alg.RandomizedADMM)
ALL = (*ROUNDS, alg.RandomizedSGD, alg.RandomWalkADMM, alg.RandomWalkProximalPoint)


@pytest.mark.parametrize("make", ALL)
def test_one_agent_two_and_agents_of_one_row_are_served(make):
    for sizes in ((9,), (5, 1), (1,) * 6):
        if len(sizes) == 1 and make is alg.RandomizedSGD:
            continue
        task = make_task(sizes=sizes, topology="path", n_features=1, max_iter=2)
        _, solution, _ = run(make(), task)
        assert np.isfinite(solution.parameters).all()
        if make in ROUNDS:
            assert solution.n_messages == 2 * (len(sizes) - 1) * solution.n_rounds
            assert solution.bytes_sent == 8 * 2 * solution.n_messages
