"""A token that walks over agents: the law of its cost, against simulated and exact walks."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from itertools import pairwise, product

import numpy as np
import pytest
from scipy.stats import binom

from skdpadmm.privacy import GaussianDP, Mixture, TokenWalk, WalkCost, calibrate_noise, compose
from skdpadmm.privacy._token_walk import (
    MOST_AGENTS,
    Gaps,
    _gather,
    _Law,
    _multiple,
    _reciprocal,
    _swap,
    geometric_gap,
    hitting_gaps,
    visit_excess,
    walk_cost,
)


def complete(n):
    return np.full((n, n), 1 / n)


def ring(n):
    matrix = np.zeros((n, n))
    for i in range(n):
        for j in (i - 1, i, i + 1):
            matrix[i, j % n] += 1 / 3
    return matrix


def path_graph(n):
    """Metropolis weights on a line: its ends are visited as often as its middle."""
    matrix = np.diag(np.full(n - 1, 0.4), 1)
    matrix += matrix.T
    return matrix + np.diag(1 - matrix.sum(axis=1))


def watched_set(n, *members):
    watched = np.zeros((1, n), dtype=bool)
    watched[0, list(members)] = True
    return watched


def gaps_of(matrix, agent, peers, horizon):
    watched = watched_set(len(matrix), agent, *peers)
    gaps = hitting_gaps(matrix, np.array([agent]), watched, horizon)
    return Gaps(gaps.inner[0], gaps.last[0])


def cost_of_path(path, agent, peers, cap):
    """The sum of reciprocal gaps, the last one cut by the end of the walk."""
    seen = [t for t, holder in enumerate(path) if holder == agent or holder in peers]
    visits = [t for t in seen if path[t] == agent][:cap]
    ends = dict(pairwise([*seen, len(path)]))
    return math.fsum(1 / (ends[t] - t) for t in visits)


def simulated_paths(matrix, n_hops, n_runs, rng):
    steps = np.cumsum(matrix, axis=1)
    holder = rng.integers(len(matrix), size=n_runs)
    paths = [holder]
    for _ in range(n_hops - 1):
        holder = (steps[holder] < rng.random((n_runs, 1))).sum(axis=1)
        paths.append(np.minimum(holder, len(matrix) - 1))
    return np.array(paths).T


def exact_law(matrix, agent, peers, n_hops, cap):
    """Chances of costs, from every path."""
    chances = defaultdict(float)
    for path in product(range(len(matrix)), repeat=n_hops):
        chance = math.prod([matrix[a, b] for a, b in pairwise(path)])
        cost = cost_of_path(path, agent, peers, cap)
        chances[round(cost, 12)] += chance / len(matrix)
    return [(chance, cost) for cost, chance in chances.items()]


def exact_delta(law, mu, epsilon):
    return math.fsum(
        chance * GaussianDP(mu * math.sqrt(cost)).delta(epsilon) for chance, cost in law
    )


@pytest.mark.parametrize("cap", [1, 2, 3, 9])
@pytest.mark.parametrize(
    ("matrix", "peers"),
    [
        (complete(3), (1,)),
        (complete(3), ()),
        (complete(3), (1, 2)),
        (path_graph(3), (2,)),
        (path_graph(3), (1,)),
        (path_graph(3), ()),
        (complete(2), (1,)),
    ],
)
def test_no_walk_of_few_hops_costs_more_on_average(matrix, peers, cap):
    n, n_hops = len(matrix), 7
    law = exact_law(matrix, 0, peers, n_hops, cap)
    transition = None if (matrix == 1 / n).all() else matrix
    cost = TokenWalk(n, n_hops, cap, transition).cost(0, *peers)
    bounds = [cost]
    if len(peers) < 2:
        bounds.append(TokenWalk(n, n_hops, cap, transition).worst_cost(len(peers)))
    for mu, epsilon, bound in product((0.3, 1.0, 3.0), (0.0, 0.5, 2.0, 6.0), bounds):
        exact = exact_delta(law, mu, epsilon)
        claimed = bound.guarantee(mu).delta(epsilon)
        assert exact <= claimed * (1 + 1e-9)
        # What rounding takes from a sum of weights is charged to delta.
        assert claimed <= bound.worst(mu).delta(epsilon) * (1 + 1e-9) + 1e-15


@pytest.mark.parametrize(
    ("matrix", "peer", "n_hops", "cap", "slack"),
    [
        (complete(20), 1, 200, 20, 3.3),
        (complete(20), 1, 200, 5, 2.1),
        (ring(9), 1, 90, 18, 2.4),
        (ring(9), 4, 90, 18, 2.5),
        (ring(9), 4, 90, 4, 1.7),
        (path_graph(6), 5, 60, 20, 3.0),
    ],
)
def test_the_simulated_average_over_walks_is_below_the_bound_and_close(
    matrix, peer, n_hops, cap, slack
):
    rng = np.random.default_rng(0)
    n, n_runs = len(matrix), 4000
    paths = simulated_paths(matrix, n_hops, n_runs, rng)
    costs = [cost_of_path(path, 0, (peer,), cap) for path in paths.tolist()]
    transition = None if (matrix == 1 / n).all() else matrix
    bound = TokenWalk(n, n_hops, cap, transition).cost(0, peer)
    for epsilon in (0.5, 1.5):
        mu = 0.6
        deltas = np.array([GaussianDP(mu * math.sqrt(c)).delta(epsilon) for c in costs])
        error = deltas.std() / math.sqrt(n_runs)
        claimed = bound.guarantee(mu).delta(epsilon)
        assert deltas.mean() + 4 * error < claimed
        assert claimed < slack * deltas.mean()


def test_gaps_that_only_the_agent_ends_are_too_long_where_a_peer_looks():
    """Geometric with 1/n in place of 2/n: the simulated average exceeds what it would promise."""
    n, n_hops, cap, mu, epsilon = 10, 200, 40, 0.5, 1.0
    rng = np.random.default_rng(0)
    paths = simulated_paths(complete(n), n_hops, 1000, rng)
    costs = [cost_of_path(path, 0, (1,), cap) for path in paths.tolist()]
    deltas = np.array([GaussianDP(mu * math.sqrt(c)).delta(epsilon) for c in costs])
    mean = deltas.mean() - 4 * deltas.std() / math.sqrt(len(deltas))
    planted = geometric_gap(1 / n, 4 * n)
    # Half as many contributions as the cap allows would still be the average.
    promised = walk_cost(Gaps(planted, planted), n_hops, 25, 0.0).guarantee(mu).delta(epsilon)
    assert mean > promised
    right = geometric_gap(2 / n, 4 * n)
    assert mean < walk_cost(Gaps(right, right), n_hops, 25, 0.0).guarantee(mu).delta(epsilon)


def test_the_law_seen_from_the_end_alone_is_not_enough_where_the_cap_binds():
    """The gap next to the end is long on the line; with a cap of one it is not the one that counts.

    Without the chance of more visits than the cap, the bound is exceeded by enumerated walks.
    """
    matrix, n_hops, mu, epsilon = path_graph(4), 9, 2.0, 2.0
    law = exact_law(matrix, 0, (3,), n_hops, 1)
    gaps = gaps_of(matrix, 0, (3,), n_hops)
    exact = exact_delta(law, mu, epsilon)
    assert exact <= TokenWalk(4, n_hops, 1, matrix).cost(0, 3).guarantee(mu).delta(epsilon)
    assert exact > walk_cost(gaps, n_hops, 1, 0.0).guarantee(mu).delta(epsilon)


@pytest.mark.parametrize("n", [2, 5, 30])
@pytest.mark.parametrize("n_peers", [0, 1])
def test_on_the_complete_graph_the_hitting_law_is_geometric(n, n_peers):
    gaps = gaps_of(complete(n), 0, tuple(range(1, 1 + n_peers)), 50)
    expected = geometric_gap((1 + n_peers) / n, 50)
    np.testing.assert_allclose(gaps.inner, expected, rtol=1e-10, atol=1e-15)
    np.testing.assert_allclose(gaps.last, expected, rtol=1e-10, atol=1e-15)


@pytest.mark.parametrize("n", [2, 10, 100])
def test_the_mean_reciprocal_gap_has_its_closed_form(n):
    gap = geometric_gap(1 / n, 60 * n)
    mean = gap @ (1 / np.arange(1, gap.size + 1))
    assert mean == pytest.approx(math.log(n) / (n - 1), rel=1e-9)
    assert math.fsum(gap) == pytest.approx(1, abs=1e-13)


@pytest.mark.parametrize(("matrix", "peers"), [(ring(7), (2,)), (path_graph(6), (3, 5))])
def test_both_laws_of_gaps_meet_their_frequencies(matrix, peers):
    """Gaps between visits, and the one next to the end, of long simulated walks."""
    rng = np.random.default_rng(1)
    horizon = 12
    inner, last = [], []
    for path in simulated_paths(matrix, 400, 2000, rng).tolist():
        seen = [t for t, holder in enumerate(path) if holder == 1 or holder in peers]
        ends = dict(pairwise([*seen, len(path)]))
        visits = [t for t in seen if path[t] == 1]
        inner.append(ends[visits[2]] - visits[2])
        last.append(ends[visits[-1]] - visits[-1])
    gaps = gaps_of(matrix, 1, peers, horizon)
    for sample, law in ((inner, gaps.inner), (last, gaps.last)):
        frequency = np.bincount(np.minimum(sample, horizon), minlength=horizon + 1)[1:] / 2000
        assert law.sum() == pytest.approx(1, abs=1e-13)
        assert np.abs(frequency - law).max() < 4 * math.sqrt(0.25 / 2000)


def test_a_near_observer_learns_more_than_a_far_one_and_the_common_bound_covers_both():
    walk = TokenWalk(12, 120, 20, ring(12))
    near, far = (walk.cost(0, j).guarantee(0.2).epsilon(1e-5) for j in (1, 6))
    model = walk.cost(0).guarantee(0.2).epsilon(1e-5)
    assert model < far < near <= walk.worst_cost().guarantee(0.2).epsilon(1e-5)
    assert near < walk.worst_cost().worst(0.2).epsilon(1e-5)
    coalition = walk.cost(0, 1, 11).guarantee(0.2).epsilon(1e-5)
    assert near < coalition


@pytest.mark.parametrize("matrix", [complete(5), ring(6), path_graph(4)])
def test_the_chance_of_many_visits_is_bounded(matrix):
    rng = np.random.default_rng(2)
    n, n_hops = len(matrix), 60
    visits = (simulated_paths(matrix, n_hops, 5000, rng) == 0).sum(axis=1)
    for cap in (0, 8, 15, 25, 59):
        bound = visit_excess(matrix, np.arange(n), n_hops, cap)
        frequency = (visits > cap).mean()
        assert bound.shape == (n,)
        assert frequency - 4 * math.sqrt(frequency / 5000) <= bound[0] <= 1
        if (matrix == 1 / n).all():
            exact = binom.sf(cap, n_hops, 1 / n)
            assert exact <= bound[0] <= 30 * exact
    assert visit_excess(matrix, np.arange(n), n_hops, n_hops).tolist() == [0.0] * n


def test_costs_are_rounded_up_and_by_little():
    n, count, step = 50, 4, 2.0**-14
    gap = geometric_gap(2 / n, 200)
    fine = np.zeros(2**14 + 1)
    np.add.at(fine, np.floor(2**14 / np.arange(1, 201)).astype(int), gap)
    law = fine
    for _ in range(count - 1):
        size = law.size + fine.size
        law = np.fft.irfft(np.fft.rfft(law, size) * np.fft.rfft(fine, size), size)
    positions = step * np.arange(law.size)
    cost = walk_cost(Gaps(gap, gap), 1000, count, 0.0)
    for t in (0.1, 0.2, 0.5, 1.05, 2.1):
        tail = np.dot(cost.weights, np.array(cost.costs) > t)
        # Rounded down, the reference is a lower bound; with its roundings added an upper one.
        assert law[positions > t].sum() - 1e-9 <= tail
        assert tail <= law[positions * 1.06 + count * step > t].sum() + 1e-9


@pytest.mark.parametrize("seed", range(20))
def test_the_swap_covers_every_smaller_chance(seed):
    rng = np.random.default_rng(seed)
    laws = [
        _Law(np.sort(rng.integers(1, 30, 6) + rng.random(6)), rng.dirichlet(np.ones(6)))
        for _ in range(2)
    ]
    probability = rng.random()
    swapped = _swap(*laws, probability)
    assert math.fsum(swapped.weights) == pytest.approx(1, abs=1e-13)
    grid = (np.arange(20_000) + 0.5) / 20_000

    def quantiles(law):
        place = np.searchsorted(np.cumsum(law.weights), grid)
        return law.values[np.minimum(place, law.values.size - 1)]

    back, forward = (quantiles(law) for law in laws)
    for chance in np.linspace(0, probability, 7):
        n_swapped = int(chance * grid.size)
        exact = np.sort(np.append(back[n_swapped:], forward[grid.size - n_swapped :]))
        assert (np.sort(quantiles(swapped)) >= exact - 1e-12).mean() > 0.998


@pytest.mark.parametrize("n_hops", [3, 12, 300])
def test_sums_keep_all_mass_and_the_chance_of_direct_hand_overs_only(n_hops):
    gap = geometric_gap(0.6, n_hops)
    law = _multiple(_reciprocal(gap), 5)
    assert math.fsum(law.weights) == pytest.approx(1, abs=1e-13)
    assert law.weights[law.values > 4.9].sum() == pytest.approx(0.6**5, rel=1e-10)
    assert (np.diff(law.values) > 0).all()


def test_gathering_never_lowers_a_tail():
    rng = np.random.default_rng(3)
    values, weights = np.exp(rng.normal(0, 3, 5000)), rng.dirichlet(np.full(5000, 0.1))
    law = _gather(values, weights, 100)
    assert law.values.size <= 100
    assert law.values[-1] == values.max()
    assert math.fsum(law.weights) == pytest.approx(1, abs=1e-13)
    for t in np.quantile(values, np.linspace(0, 1, 50)) * (1 - 1e-9):
        assert law.weights[law.values > t].sum() >= weights[values > t].sum() - 1e-15


@pytest.mark.parametrize("transition", [None, ring(8)])
def test_the_guarantee_is_a_law_that_ends_in_the_worst_walk_and_composes(transition):
    cost = TokenWalk(8, 100, 30, transition).worst_cost()
    guarantee = cost.guarantee(0.2)
    assert isinstance(guarantee, Mixture)
    assert len(guarantee.components) <= 300
    assert guarantee.components[-1] == cost.worst(0.2) == GaussianDP(0.2 * math.sqrt(30))
    assert list(cost.costs) == sorted(cost.costs)
    json.dumps(guarantee.to_dict())
    both = compose(guarantee, GaussianDP(0.3))
    assert both.delta(1.0) > max(guarantee.delta(1.0), GaussianDP(0.3).delta(1.0))


def test_two_walks_compose():
    once = TokenWalk(10, 9, 1, transition=None).worst_cost().guarantee(0.3)
    assert compose(once, once).epsilon(1e-4) > once.epsilon(1e-4)


def test_the_law_does_not_depend_on_the_noise_so_that_calibration_is_cheap():
    cost = TokenWalk(100, 2000, 40).worst_cost()
    noise = calibrate_noise(lambda scale: cost.guarantee(1 / scale), 1.0, 1e-6)
    assert cost.guarantee(1 / noise).epsilon(1e-6) <= 1.0
    assert noise < 0.5 * calibrate_noise(lambda scale: cost.worst(1 / scale), 1.0, 1e-6)


def test_degenerate_walks():
    assert TokenWalk(1, 5, 9).cost(0) == WalkCost((1.0,), (5.0,))
    assert TokenWalk(1, 5, 3, [[1.0]]).worst_cost(0).worst(2.0) == GaussianDP(2 * math.sqrt(3))
    one_hop = TokenWalk(10, 1, 4).cost(2, 3)
    assert one_hop == WalkCost((1.0,), (1.0,))
    everybody = TokenWalk(4, 50, 6).worst_cost(3)
    assert everybody.guarantee(0.1) == everybody.worst(0.1) == GaussianDP(0.1 * math.sqrt(6))
    swap = [[0.0, 1.0], [1.0, 0.0]]
    alternating = TokenWalk(2, 20, 4, swap)
    assert alternating.cost(0, 1).worst(1.0) == GaussianDP(2.0)
    # Nobody else looks: two hops to return, one if the walk ends there.
    assert min(alternating.cost(0).costs) <= 2.5 * (1 + 1e-6)
    assert TokenWalk(4, 10, 2).cost(1, 2, 2) == TokenWalk(4, 10, 2).cost(0, 3)


def test_what_is_not_computed_is_bounded_by_direct_hand_overs():
    local = WalkCost((1.0,), (5.0,))
    assert TokenWalk(6, 50, 5, ring(6)).worst_cost(2) == local
    large = MOST_AGENTS + 1
    assert TokenWalk(large, 50, 5, ring(large)).worst_cost() == local
    assert TokenWalk(6, 50, 5).worst_cost(2) != local


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ((0, 5, 1), "Got n_agents=0"),
        ((3, 0, 1), "Got n_hops=0"),
        ((3, 5, 0), "Got cap=0"),
        ((3, 5, 1.5), "Got cap=1.5"),
        ((3, 5, 1, np.eye(2)), r"Got a transition of shape \(2, 2\)"),
        ((2, 5, 1, np.eye(2)), "disconnected"),
        ((2, 5, 1, [[0.5, 0.4], [0.4, 0.6]]), "rows are not laws"),
        ((2, 5, 1, [[math.nan, 1.0], [1.0, 0.0]]), "rows are not laws"),
        ((2, 5, 1, [[-0.5, 1.5], [1.5, -0.5]]), "rows are not laws"),
        ((2, 5, 1, [[0.5, 0.5], [0.4, 0.6]]), "not symmetric"),
    ],
)
def test_walks_outside_the_theorem_are_refused(parameters, message):
    with pytest.raises(ValueError, match=message):
        TokenWalk(*parameters)


def test_observers_that_do_not_exist_or_know_the_rows_are_refused():
    walk = TokenWalk(4, 10, 2)
    with pytest.raises(ValueError, match="knows its own rows"):
        walk.cost(1, 1)
    with pytest.raises(ValueError, match="Got agent=4"):
        walk.cost(0, 4)
    with pytest.raises(ValueError, match="Got n_peers=4"):
        walk.worst_cost(4)


@pytest.mark.parametrize("n_between", [1, 3])
def test_the_divergence_of_linear_maps_is_what_one_gap_costs(n_between):
    """A linear loss shifts the token by Delta whatever it is: m noises mask it, no more."""
    delta, std = 0.7, 1.3
    shift, variance = delta, n_between * std**2
    exact = shift / math.sqrt(variance)
    assert WalkCost((1.0,), (1 / n_between,)).worst(delta / std).mu == pytest.approx(exact)
