"""A token that walks over agents: the law of its cost, against enumerated and simulated walks."""

import math
from collections import Counter
from itertools import pairwise, product

import numpy as np
import pytest
from scipy.stats import binom

from skdpadmm.privacy import GaussianDP, TokenWalk, WalkCost, calibrate_noise
from skdpadmm.privacy._token_walk import MOST_AGENTS, visit_excess


def complete(n):
    return np.full((n, n), 1 / n)


def ring(n):
    return (np.eye(n) + np.roll(np.eye(n), 1, axis=0) + np.roll(np.eye(n), -1, axis=0)) / 3


def line(n):
    """Metropolis weights: the ends are visited as often as the middle."""
    matrix = np.diag(np.full(n - 1, 0.4), 1)
    matrix += matrix.T
    return matrix + np.diag(1 - matrix.sum(axis=1))


def walk_on(matrix, n_hops, cap):
    n = len(matrix)
    return TokenWalk(n, n_hops, cap, None if np.allclose(matrix, 1 / n) else matrix)


def cost_of_path(path, peers, cap):
    """The sum of reciprocal gaps of agent 0, the last one cut by the end of the walk."""
    seen = [t for t, holder in enumerate(path) if holder == 0 or holder in peers]
    ends = dict(pairwise([*seen, len(path)]))
    return math.fsum(1 / (ends[t] - t) for t in [t for t in seen if path[t] == 0][:cap])


def simulated_paths(matrix, n_hops, n_runs, rng):
    steps, paths = np.cumsum(matrix, axis=1), [rng.integers(len(matrix), size=n_runs)]
    for _ in range(n_hops - 1):
        holder = (steps[paths[-1]] < rng.random((n_runs, 1))).sum(axis=1)
        paths.append(np.minimum(holder, len(matrix) - 1))
    return np.array(paths).T


SMALL = [(complete(2), (1,)), (line(4), (3,)), (complete(3), (1, 2)), (line(3), (2,))]
SMALL += [(matrix, peers) for matrix in (complete(3), line(3)) for peers in ((), (1,))]


@pytest.mark.parametrize(("matrix", "peers"), SMALL)
def test_no_walk_of_few_hops_costs_more_on_average(matrix, peers):
    n, n_hops = len(matrix), {2: 9, 3: 7, 4: 8}[len(matrix)]
    paths = np.array(list(product(range(n), repeat=n_hops)))
    chances = matrix[paths[:, :-1], paths[:, 1:]].prod(axis=1) / n
    for cap in (1, 2, 3, 9):
        law = Counter()
        for path, chance in zip(paths[chances > 0].tolist(), chances[chances > 0], strict=True):
            law[round(cost_of_path(path, peers, cap), 12)] += float(chance)
        walk = walk_on(matrix, n_hops, cap)
        bounds = [walk.cost(0, *peers)] + ([walk.worst_cost(len(peers))] if len(peers) < 2 else [])
        for mu, epsilon, bound in product((0.3, 2.0), (0.0, 0.5, 2.0, 6.0), bounds):
            deltas = [
                c * GaussianDP(mu * math.sqrt(cost)).delta(epsilon) for cost, c in law.items()
            ]
            claimed = bound.guarantee(mu).delta(epsilon)
            # What rounding takes from a sum of weights is charged to delta.
            assert math.fsum(deltas) <= claimed * (1 + 1e-9)
            assert claimed <= bound.worst(mu).delta(epsilon) * (1 + 1e-9) + 1e-15


SIMULATED = [(complete(20), 1, 200, 20, 3.3), (complete(20), 1, 200, 5, 2.1)]
SIMULATED += [(ring(9), 1, 90, 18, 2.4), (ring(9), 4, 90, 4, 1.7), (line(6), 5, 60, 20, 3.0)]


@pytest.mark.parametrize(("matrix", "peer", "n_hops", "cap", "slack"), SIMULATED)
def test_the_simulated_average_is_below_the_bound_and_close(matrix, peer, n_hops, cap, slack):
    paths = simulated_paths(matrix, n_hops, 2000, np.random.default_rng(0)).tolist()
    mus = [0.6 * math.sqrt(cost_of_path(path, (peer,), cap)) for path in paths]
    bound = walk_on(matrix, n_hops, cap).cost(0, peer).guarantee(0.6)
    for epsilon in (0.5, 1.5):
        deltas = np.array([GaussianDP(mu).delta(epsilon) for mu in mus])
        error = deltas.std() / math.sqrt(len(mus))
        assert deltas.mean() + 4 * error < bound.delta(epsilon) < slack * deltas.mean()


@pytest.mark.parametrize("matrix", [complete(5), ring(6), line(4)], ids=len)
def test_the_chance_of_many_visits_is_bounded(matrix):
    n, n_hops = len(matrix), 60
    visits = (simulated_paths(matrix, n_hops, 5000, np.random.default_rng(2)) == 0).sum(axis=1)
    for cap in (0, 8, 15, 25, 59):
        bound, frequency = visit_excess(matrix, np.arange(n), n_hops, cap), (visits > cap).mean()
        assert frequency - 4 * math.sqrt(frequency / 5000) <= bound[0] <= 1
        if n == 5:
            exact = binom.sf(cap, n_hops, 1 / n)
            assert exact <= bound[0] <= 30 * exact


@pytest.mark.parametrize("transition", [None, ring(8)], ids=["complete", "ring"])
def test_the_guarantee_is_a_law_that_ends_in_the_worst_walk_and_calibrates(transition):
    cost = TokenWalk(8, 100, 30, transition).worst_cost()
    guarantee = cost.guarantee(0.2)
    assert len(guarantee.components) <= 300
    assert guarantee.components[-1] == cost.worst(0.2)
    assert cost.worst(0.2).mu == pytest.approx(0.2 * math.sqrt(30))
    assert list(cost.costs) == sorted(cost.costs)
    noise = calibrate_noise(lambda scale: cost.guarantee(1 / scale), 1.0, 1e-6)
    assert cost.guarantee(1 / noise).epsilon(1e-6) <= 1.0
    assert noise < 0.9 * calibrate_noise(lambda scale: cost.worst(1 / scale), 1.0, 1e-6)


def test_degenerate_walks_and_what_is_bounded_by_direct_hand_overs():
    assert TokenWalk(1, 5, 9).cost(0) == WalkCost((1.0,), (5.0,))
    assert TokenWalk(10, 1, 4).cost(2, 3) == WalkCost((1.0,), (1.0,))
    alternating = TokenWalk(2, 20, 4, [[0.0, 1.0], [1.0, 0.0]])
    assert alternating.cost(0, 1).worst(1.0).mu == pytest.approx(2.0)
    # Nobody else looks: two hops to return, one if the walk ends there.
    assert min(alternating.cost(0).costs) <= 2.5 * (1 + 1e-6)
    walk = TokenWalk(12, 120, 20, ring(12))
    found = [walk.cost(0, *peers).guarantee(0.2) for peers in ((), (6,), (1,), (1, 11))]
    found.insert(3, walk.worst_cost().guarantee(0.2))  # of every one peer
    epsilons = [guarantee.epsilon(1e-5) for guarantee in found]
    assert epsilons[:4] == sorted(epsilons[:4])
    assert epsilons[2] < epsilons[4]
    local, large = WalkCost((1.0,), (5.0,)), MOST_AGENTS + 1
    assert TokenWalk(6, 50, 5, ring(6)).worst_cost(2) == local
    assert TokenWalk(large, 50, 5, ring(large)).worst_cost() == local
    assert TokenWalk(6, 50, 5).worst_cost(2) != local
