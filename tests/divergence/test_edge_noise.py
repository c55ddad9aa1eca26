"""Theorems about noise that pairs of agents add and subtract: who hides whom, and what cancels."""

import itertools
import math
from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from skdpadmm import DPDecentralizedRegressor, DPFedRidge
from skdpadmm.algorithms import DecentralizedGradientDescent, FederatedADMM, MultiStepADMM
from skdpadmm.audit import audit
from skdpadmm.network import Topology, _topology, honest_messages, resolve_topology
from skdpadmm.noise import noise_source
from skdpadmm.protocol import Gate
from tests.contract.harness import SilentGate
from tests.divergence.densities import QuickNoise


def graph_of(pairs, n_agents):
    return Topology(n_agents=n_agents, pairs=np.array(pairs, dtype=np.intp).reshape(-1, 2))


def named(graph):
    return resolve_topology(graph, np.arange(len(graph)))


def messages_that_hide(topology, coalition, ratio):
    """Of each other agent, by the joint law: noise is linear in numbers, and some are known."""
    n, (first, second) = topology.n_agents, topology.edges.T
    known = np.isin(topology.edges, list(coalition)).any(axis=1)
    loading = np.zeros((n, len(first)))
    loading[first, np.arange(len(first))] = math.sqrt(ratio)
    loading[second, np.arange(len(first))] = -math.sqrt(ratio)
    loading = np.hstack([np.eye(n), loading[:, ~known]])
    kept = np.delete(np.arange(n), list(coalition))
    covariance = loading[kept] @ loading[kept].T
    # What moves one message by 1 moves the mean by that, in units of the noise.
    moved = np.linalg.solve(np.linalg.cholesky(covariance), np.eye(len(kept)))
    return 1 / np.square(moved).sum(axis=0)


def worst(topology, n_dishonest, ratio):
    coalitions = itertools.combinations(range(topology.n_agents), n_dishonest)
    return min(messages_that_hide(topology, each, ratio).min() for each in coalitions)


def random_graph(rng):
    n = int(rng.integers(2, 7))
    while True:
        graph = nx.gnp_random_graph(n, rng.uniform(0.3, 1.0), seed=int(rng.integers(2**31)))
        if nx.is_connected(graph):
            return named(graph)


def test_no_coalition_learns_more_than_is_claimed_on_500_random_graphs(monkeypatch):
    rng = np.random.default_rng(0)
    for case in range(500):
        topology, ratio = random_graph(rng), float(10 ** rng.uniform(-1, 4))
        n_dishonest = int(rng.integers(0, topology.n_agents))
        exact = worst(topology, n_dishonest, ratio)
        claimed = honest_messages(topology, n_dishonest, ratio)
        assert claimed <= exact * (1 + 1e-9)
        # All coalitions of so small graphs are tried.
        assert claimed == pytest.approx(exact, rel=1e-6), case
        with monkeypatch.context() as patch:
            patch.setattr(_topology, "_MOST_WORK", 0)
            bound = honest_messages.__wrapped__(topology, n_dishonest, ratio)
        assert 1 <= bound <= exact * (1 + 1e-9)


def test_bounds_of_graphs_with_many_coalitions_are_of_use(monkeypatch):
    monkeypatch.setattr(_topology, "_MOST_WORK", 0)
    regular = named(nx.random_regular_graph(10, 100, seed=0))
    # The algebraic connectivity, and for more of them the neighbours that are left.
    assert honest_messages.__wrapped__(regular, 2, 1e4) > 97
    assert honest_messages.__wrapped__(regular, 6, 1e4) == pytest.approx(5, rel=1e-3)
    assert honest_messages.__wrapped__(regular, 10, 1e4) == 1


TABLE = [
    ("complete", nx.complete_graph(100), (0.105, 0.100, 0.100)),
    ("10-regular", nx.random_regular_graph(10, 100, seed=0), (0.144, 0.105, 0.100)),
    ("4-regular", nx.random_regular_graph(4, 100, seed=0), (0.215, 0.118, 0.100)),
    ("ring", nx.cycle_graph(100), (0.395, 0.223, 0.104)),
]


@pytest.mark.parametrize(("name", "graph", "ratios"), TABLE, ids=[row[0] for row in TABLE])
def test_what_a_hundred_agents_reveal_over_what_independent_noise_would(name, graph, ratios):
    topology = named(graph)
    found = [honest_messages(topology, 0, ratio) ** -0.5 for ratio in (10.0, 100.0, 1e4)]
    # Graphs that were drawn are others than those of the table.
    np.testing.assert_allclose(found, ratios, rtol=0.06 if "regular" in name else 0, atol=5e-4)
    coalition = np.random.default_rng(3).choice(100, 20, replace=False)
    left = messages_that_hide(topology, coalition, 1e4).min() ** -0.5
    # A ring falls to pieces.
    assert left == pytest.approx(1.0 if name == "ring" else 0.112, abs=1e-3)
    assert honest_messages(topology, 20, 1e4) ** -0.5 >= left * (1 - 1e-9)


# Plans.


def federated(**knobs):
    ratio = knobs.pop("edge_noise", "auto")
    return DPFedRidge(conditioning=None, algorithm=FederatedADMM(edge_noise=ratio), **knobs)


@pytest.mark.parametrize("unit", ["record", "agent"])
@pytest.mark.parametrize("epsilon", [1.0, [0.5, 1.0, 2.0, 4.0, 8.0]], ids=["one", "own"])
def test_a_server_and_its_allies_learn_what_the_noise_of_the_others_leaves(unit, epsilon):
    model = federated(epsilon=epsilon, privacy_unit=unit, n_honest=3, edge_noise=20.0, max_iter=7)
    plan = model.plan(400, 3, agent_sizes=[5, 40, 10, 300, 45])
    federation, (release,) = plan.facts.agents, plan.releases
    sizes = np.array(federation.agent_sizes, dtype=float)
    limits = np.minimum(sizes, 160) if unit == "agent" else np.ones(5)
    hides = worst(Topology(n_agents=5), 2, 20.0)
    for agent, kind in enumerate(federation.kind):
        moved = math.hypot(*release.sensitivities) * limits[agent] / limits.max()
        exact = moved / release.agent_noise_std[kind] / math.sqrt(hides)
        assert plan.guarantees("server")[kind].mu == pytest.approx(exact, rel=1e-9)
    budgets = np.atleast_1d(epsilon)
    spent = [plan.guarantees("server")[kind].epsilon(1e-5) for kind in federation.kind]
    assert max(spent / budgets) == pytest.approx(1, rel=1e-6)
    assert plan.guarantee("sums").mu <= plan.guarantee("server").mu


@pytest.mark.parametrize("unit", ["record", "agent"])
@pytest.mark.parametrize("coalition", [1, 2])
def test_peers_learn_what_the_noise_of_the_others_leaves(unit, coalition):
    algorithm = DecentralizedGradientDescent(edge_noise=50.0)
    model = DPDecentralizedRegressor(
        algorithm=algorithm, privacy_unit=unit, coalition=coalition, topology="hypercube",
        conditioning="private", max_iter=6,
    )  # fmt: skip
    plan = model.plan(400, 3, agent_sizes=[5, 40, 10, 200, 45, 50, 40, 10])
    network = plan.facts.agents
    hides = worst(network.topology, coalition, 50.0)
    sizes = np.array(network.agent_sizes, dtype=float) if unit == "agent" else np.ones(8)
    limits = np.minimum(sizes, 100)
    for agent, kind in enumerate(network.kind):
        costs = [
            math.hypot(*release.sensitivities) * most[agent] / most.max()
            / release.agent_noise_std[kind] / math.sqrt(hides)
            for release, most in zip(plan.releases, (sizes, limits), strict=True)
        ]  # fmt: skip
        for observer in network.observers:
            claimed = plan.guarantees(observer)[kind].mu
            assert claimed == pytest.approx(math.hypot(*costs), rel=1e-6)
            assert claimed >= math.hypot(*costs) * (1 - 1e-12)
    assert plan.guarantee().epsilon(1e-5) == pytest.approx(1, rel=1e-6)


def test_defaults_share_noise_where_all_messages_arrive_and_it_helps():
    def ratio(**knobs):
        return federated(**knobs).plan(400, 3).facts.agents.edge_noise

    assert ratio() == ratio(adversary="sums") == ratio(privacy_unit="agent") == 100
    assert ratio(edge_noise=0) == ratio(dropout=0.1) == ratio(participation=0.5) == 0
    assert ratio(n_honest=1) == ratio(n_agents=1) == ratio(n_agents=2) == 0
    assert ratio(dropout=0.1, edge_noise=1.0) == 1
    # One budget that is far smaller than others would set the noise of all.
    assert ratio(epsilon=[1.0] * 10) == 100
    assert ratio(epsilon=[0.1] + [1.0] * 9) == 0
    with pytest.raises(ValueError, match=r"Got edge_noise=1\.0, expected 0, or participation=1"):
        ratio(participation=0.5, edge_noise=1.0)
    with pytest.raises(ValueError, match="Got edge_noise=-1"):
        ratio(edge_noise=-1)


def test_reports_say_what_noise_of_pairs_rests_on():
    plan = federated(n_agents=20).plan(400, 3)
    text = "\n".join(plan.assumptions)
    assert "each pair of honest agents shares a secret seed" in text
    assert "no more than 9 of 20 agents, whoever they are" in text
    assert "computational" in text
    alone = federated(n_agents=20, edge_noise=0, adversary="sums").plan(400, 3)
    assert plan.releases[-1].noise_std == pytest.approx(alone.releases[-1].noise_std, rel=0.01)
    # Without friends an agent has its own noise left.
    left = alone.guarantee("server").epsilon(1e-5)
    (line,) = (line for line in plan.assumptions if line.startswith("server: if all other"))
    assert float(line.rstrip(".").rpartition("=")[2]) == pytest.approx(left, rel=0.01)
    assert "hides each message as secure sums of 10.9" in str(plan)
    network = graph_plan(topology="ring", n_agents=6, coalition=2).facts.agents
    assert network.sees("eavesdropper", "").endswith("edge, and what 2 of 6 agents know")
    assert plan.facts.agents.sees("server", "").endswith(
        ", and all that any 9 of the 20 agents know"
    )


# What passes the gate.


def graph_plan(**knobs):
    algorithm = DecentralizedGradientDescent(edge_noise=knobs.pop("edge_noise", 7.0))
    settings = {"conditioning": None, "scale": None, **knobs}
    return DPDecentralizedRegressor(algorithm=algorithm, **settings).plan(3000, 3)


class Shared(SilentGate):
    """Keeps what pairs share."""

    def deliver(self, method, release, repetition, value, out, *more):
        super().deliver(method, release, repetition, value, out, *more)
        return out


def shared_noise(plan, seed, n_times):
    """What agents add for their pairs, and to zeros in all, in cells: (n_times, n_agents, ...)."""
    gate, release = Shared(plan, noise_source(seed, plan.digest())), plan.releases[0]
    for _ in range(n_times):
        gate.release(release.name, np.zeros(release.shape))
    passed = [passage for passage in gate.passages if passage.method == "release"]
    found = []
    for numbers in ([p.value for p in passed], [p.out for p in passed]):
        cells = np.array(numbers) / release.noise_std * 2.0**20
        np.testing.assert_allclose(cells, np.rint(cells), atol=1e-6)
        found.append(np.rint(cells))
    return found


def test_noise_of_pairs_cancels_exactly_has_the_planned_law_and_is_never_used_twice():
    plan = graph_plan(topology="ring", n_agents=6, max_iter=300)
    shared, released = shared_noise(plan, 0, 300)
    # Whole cells, the same at both ends.
    assert not shared.sum(axis=1).any()
    own, shared = (released - shared) / 2.0**20, shared / 2.0**20
    numbers = shared.transpose(1, 0, 2, 3).reshape(6, -1)
    laplacian = 2 * np.eye(6) - plan.facts.agents.topology.adjacency.toarray()
    np.testing.assert_allclose(np.cov(numbers) / 7, laplacian, atol=0.35)
    own = own.transpose(1, 0, 2, 3).reshape(6, -1)
    np.testing.assert_allclose(np.cov(own), np.eye(6), atol=0.2)
    assert abs(np.corrcoef(own, numbers)[:6, 6:]).max() < 0.15
    # Rounds, agents, releases and fits.
    again = shared_noise(plan, 1, 1)[0]
    other = shared_noise(replace(plan, algorithm="another"), 0, 1)[0]
    rounds = np.concatenate([shared, again, other]).reshape(302, -1)
    cosines = np.corrcoef(rounds)[np.triu_indices(302, 1)]
    assert abs(cosines).max() < 0.999
    assert abs(np.corrcoef(rounds[:150].ravel(), rounds[150:300].ravel())[0, 1]) < 0.1


def test_a_lost_message_leaves_the_noise_that_it_shared_in_the_sum():
    plan = federated(n_agents=10, dropout=0.2, edge_noise=3.0, max_iter=4000).plan(400, 1)
    gate, release = Gate(plan, QuickNoise()), plan.releases[0]
    senders = np.arange(10) < 8
    sums = [gate.release(release.name, np.zeros(release.shape), senders) for _ in range(3000)]
    own = release.agent_noise_std[0]
    # Own noise of 8, and 16 pairs of which one agent is missing.
    assert np.std(sums) == pytest.approx(own * math.sqrt(8 + 3 * 16), rel=0.05)
    arriving, together = 8.0, 10 * 9 * 0.8 * 0.2
    assert release.noise_std == pytest.approx(own * math.sqrt(arriving + 3 * together), rel=1e-9)
    # Nobody learns more of those who are there.
    full = federated(n_agents=10, edge_noise=3.0, max_iter=4000).plan(400, 1)
    assert plan.guarantee("server").mu == pytest.approx(full.guarantee("server").mu, rel=1e-9)


def rounded(cell, scale, shift):
    """Density of a Gaussian number and a uniform one of a cell: probabilities of rounded ones."""

    def density(x):
        edges = (np.asarray(x)[..., None] + np.array([-0.5, 0.5]) * cell - shift) / scale
        return np.diff(norm.cdf(edges), axis=-1)[..., 0]

    return density


@pytest.mark.parametrize(("first", "second"), [(0, 0), (3, -1), (-7, 9)])
def test_messages_on_a_grid_have_the_law_of_rounded_gaussian_messages(first, second):
    # Far coarser cells than those in use, so that there is something to see.
    cell, coarse, ratio = 0.25, 0.5, 4.0
    shared = rounded(coarse, math.sqrt(ratio), 0.0)
    own, other = rounded(cell, 1.0, 0.1), rounded(cell, 1.0, 0.0)

    def joint(e):
        return shared(e) * own(first * cell - e) * other(second * cell + e)

    exact = joint(np.arange(-80, 81) * coarse).sum()
    smooth = quad(lambda e: joint(np.array(e)), -40, 40, limit=400, points=[0.0])[0] / coarse
    width = 1 / math.sqrt(1 / ratio + 2) / coarse
    assert abs(exact / smooth - 1) <= 2.1 * math.exp(-2 * math.pi**2 * width**2) + 1e-9


def test_agents_share_no_noise_that_an_algorithm_does_not_add():
    plan = graph_plan(topology="ring", n_agents=6)
    with pytest.raises(ValueError, match=r"Got agents with edge_noise=7 for MultiStepADMM"):
        MultiStepADMM().plan(plan.facts, plan.budget)
    with pytest.raises(ValueError, match=r"expected 0 where messages are secret-shared"):
        replace(plan.facts.agents, n_curators=2)
    with pytest.raises(ValueError, match=r"expected 0 or at least 1"):
        graph_plan(edge_noise=0.5)
    # Drawing the noise of many pairs would take longer than all else.
    assert graph_plan(edge_noise="auto", n_agents=300).facts.agents.edge_noise == 0
    assert graph_plan(edge_noise="auto", topology="path", n_agents=6).facts.agents.edge_noise == 0
    assert (
        graph_plan(edge_noise="auto", topology="ring", n_agents=64).facts.agents.edge_noise == 1000
    )


def test_an_audit_of_a_fit_that_shares_noise_finds_nothing_wrong():
    algorithm = DecentralizedGradientDescent(edge_noise=30.0)
    model = DPDecentralizedRegressor(algorithm=algorithm, topology="ring", max_iter=10)
    assert not audit(model, random_state=0, confidence=0.9999).is_violation
