"""Networks of one agent, of two, and of agents with one row."""

from __future__ import annotations

import numpy as np
import pytest

from skdpadmm import algorithms as alg
from tests.algorithms.runs import make_task
from tests.algorithms.runs import run_agents as run

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
