"""Tokens on walks: hop by hop, caps, and certified inner solutions."""

import numpy as np
import pytest

from skdpadmm import algorithms as alg
from skdpadmm.algorithms import RandomWalkADMM, RandomWalkProximalPoint
from skdpadmm.algorithms._random_walks import draw_hops
from skdpadmm.noise import noise_source
from skdpadmm.penalties import L1
from skdpadmm.protocol import Gate
from tests.algorithms.runs import Watched, make_task, planned, shrunk
from tests.algorithms.runs import run_agents as run

ALGORITHMS = [RandomWalkADMM, RandomWalkProximalPoint]
FOUR = (20, 16, 14, 10)
GAMMA, RELAXED, KAPPA = 0.7, 0.6, 0.05


class Quadratic:
    """Agents' losses in closed form: proximal steps are linear systems."""

    def __init__(self, task):
        n_agents, n = task.facts.agents.n_agents, task.facts.n_samples
        parts = [task.of(a) for a in range(n_agents)]
        self.H = [n_agents / n * A.T @ A for A, _ in parts]
        self.b = [n_agents / n * A.T @ y for A, y in parts]

    def prox(self, agent, point):
        left = np.eye(len(point)) + GAMMA * self.H[agent]
        return np.linalg.solve(left, point + GAMMA * self.b[agent])


def hops_of(task, plan):
    gate = Gate(plan, noise_source(0, plan.digest()))
    return draw_hops(task.facts, plan.settings.max_contributions, gate)


@pytest.mark.parametrize("make", ALGORITHMS)
@pytest.mark.parametrize(("topology", "cap"), [("complete", 2), ("ring", 100), ("star", 2)])
def test_tokens_equal_their_docstring_hop_by_hop(make, topology, cap):
    """A4 corrected: the token carries the mean before the proximal step; noise meets updates."""
    task = make_task(sizes=FOUR, topology=topology, penalty=L1(KAPPA), max_iter=6)
    algorithm = make(
        step_size=GAMMA, relaxation=RELAXED, clip_norm=30.0, max_contributions=cap, tolerance=1e-6
    )
    plan, solution, gate = run(algorithm, task, epsilon=100.0, gate_class=Watched)
    agents, holder = Quadratic(task), hops_of(task, plan)
    released = iter([(v[:, 0], o[:, 0]) for m, v, o, _ in gate.passed if m == "release"])
    length = RELAXED * GAMMA * 30.0 * 2.0 * 4 / 60 * (2 if make is RandomWalkADMM else 1)
    u, own, token, tail = np.zeros((4, 4)), np.zeros((4, 4)), np.zeros(4), np.zeros(4)
    visits = np.zeros(4, dtype=int)
    for hop, (a, contributes) in enumerate(zip(*holder, strict=True)):
        assert contributes == (visits[a] < cap)
        visits[a] += 1
        if make is RandomWalkADMM:
            own[a] = z = shrunk(token, L1(KAPPA), GAMMA)
            if contributes:
                exact, noisy = next(released)
                update = 2 * RELAXED * (agents.prox(a, 2 * z - u[a]) - z)
                np.testing.assert_allclose(exact * length, update, atol=1e-5)
                u[a] += noisy * length
                token = token + noisy * length / 4
        else:
            if contributes:
                z = shrunk(token, L1(KAPPA), RELAXED * GAMMA)
                token = z + RELAXED * (agents.prox(a, z) - z)
            exact, noisy = next(released)
            np.testing.assert_allclose(exact * length, token, atol=1e-5)
            token = noisy * length
        tail += token / 12 * (hop >= 12)
    if make is RandomWalkADMM:
        np.testing.assert_allclose(token, u.mean(axis=0), atol=1e-9)
        np.testing.assert_allclose(solution.parameters_per_agent[..., 0], own, atol=1e-9)
        expected = shrunk(tail, L1(KAPPA), GAMMA)
    else:
        assert solution.parameters_per_agent is None
        expected = shrunk(token, L1(KAPPA), RELAXED * GAMMA)
    kept = solution.parameters[:, 0] != 0
    np.testing.assert_allclose(solution.parameters[kept, 0], expected[kept], atol=1e-9)
    moves = int(np.count_nonzero(np.diff(holder.holder)))
    assert (solution.n_messages, solution.bytes_sent) == (moves + 3, 8 * 4 * (moves + 3))


@pytest.mark.parametrize("make", ALGORITHMS)
def test_steps_that_inner_solutions_cannot_afford_are_refused(make):
    task = make_task(sizes=(10,) * 3)
    planned(make(step_size=1e2), task)
    with pytest.raises(ValueError, match=r"^Got step_size=100000, .* inner steps at each hop"):
        planned(make(step_size=1e5), task)


# Graphs of one agent, of two, and of agents with one row, for walks and for everyone at once.


OVER_GRAPHS = (
    alg.MultiStepADMM, alg.DecentralizedGradientDescent, alg.RandomizedADMM, alg.RandomizedSGD,
    alg.RandomWalkADMM, alg.RandomWalkProximalPoint,
)  # fmt: skip


@pytest.mark.parametrize("make", OVER_GRAPHS)
def test_one_agent_two_and_agents_of_one_row_are_served(make):
    for sizes in ((9,), (5, 1), (1,) * 6):
        if len(sizes) == 1 and make is alg.RandomizedSGD:
            continue
        task = make_task(sizes=sizes, topology="path", n_features=1, max_iter=2)
        assert np.isfinite(run(make(), task)[1].parameters).all()
