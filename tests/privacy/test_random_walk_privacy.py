"""Claims about tokens that walk over a graph, for each of the three observers."""

from __future__ import annotations

import itertools
import math
import pickle
from dataclasses import replace

import numpy as np
import pytest

import skdpadmm.algorithms._random_walk_admm as walk_admm
import skdpadmm.algorithms._random_walk_proximal_point as walk_point
from skdpadmm import DPDecentralizedClassifier, DPDecentralizedRegressor
from skdpadmm.algorithms import RandomWalkADMM, RandomWalkProximalPoint
from skdpadmm.algorithms.planning._walks import (
    LARGEST_LAW,
    Hops,
    StatelessToken,
    direct_cost,
    draw_hops,
    token_walk,
    walk_costs,
)
from skdpadmm.engine import Engine
from skdpadmm.losses import LogisticLoss, MultinomialLoss, SquaredLoss
from skdpadmm.network import ownership_of_labels, resolve_topology
from skdpadmm.penalties import ElasticNet
from skdpadmm.privacy import GaussianDP, Mixture, Neighboring, WalkCost, compose
from skdpadmm.privacy._token_walk import MOST_AGENTS
from skdpadmm.protocol import Budget, Facts, Gate, Network, Problem
from skdpadmm.records import Rows, declared_coordinates, rounding_factor

NAMES = ["random-walk-admm", "random-walk-proximal-point"]
ALGORITHMS = [RandomWalkADMM, RandomWalkProximalPoint]
MODULES = {RandomWalkADMM: walk_admm, RandomWalkProximalPoint: walk_point}
LOSSES = [SquaredLoss(), LogisticLoss(), MultinomialLoss(3)]
OBSERVERS = ["eavesdropper", "peer", "model"]
OWNER = np.repeat([0, 1, 2, 3], [2, 9, 1, 4])
EXTREME = np.array([1e300, -1e300, 1.7e308])


class ReplayGate(Gate):
    """Lets out a fixed path whatever comes in, and keeps what came in, hop by hop."""

    def __init__(self, plan, path):
        super().__init__(plan, noise=None)
        self.path, self.values = iter(path), []

    def release(self, name, value, senders=None):
        self._pass(name)
        self.values.append(value.copy())
        return next(self.path)

    def skip(self, name):
        super().skip(name)
        next(self.path)
        self.values.append(None)

    def uniform(self, shape):
        return np.random.default_rng(0).random(shape)


def facts_of(
    owner, *, n_features=3, loss=None, topology="complete", coalition=1, neighboring="replace_one",
    max_iter=8, penalty=None,
):  # fmt: skip
    c = declared_coordinates(
        n_features=n_features,
        fit_intercept=True,
        feature_bounds=None,
        target_bounds=(-2, 2) if isinstance(loss, SquaredLoss) else None,
        has_target_scale=isinstance(loss, SquaredLoss),
    )
    ownership = ownership_of_labels(owner, n_samples=len(owner))
    return c, ownership, Facts(
        n_samples=len(owner),
        n_parameters=c.n_parameters,
        loss=loss or LogisticLoss(),
        penalty=penalty or ElasticNet(0.01, 0.02),
        neighboring=Neighboring(neighboring),
        row_norm=c.row_norm,
        rounding=rounding_factor(n_samples=len(owner), coordinates=c),
        max_iter=max_iter,
        agents=Network(
            agent_sizes=tuple(ownership.sizes.tolist()),
            topology=resolve_topology(topology, ownership.labels),
            coalition=coalition,
            sizes_matter=False,
        ),
    )  # fmt: skip


def replay(algorithm, X, y, owner, path, *, null_record=None, budget=None, **shape):
    """Exact values of all hops while what is released is held fixed; and the walk."""
    c, ownership, facts = facts_of(owner, n_features=X.shape[1], **shape)
    plan = algorithm.plan(facts, budget or Budget(epsilon=1.0, delta=1e-5, observer="peer"))
    rows = Rows(X, c)
    target = c.target(y) * rows.weight if c.has_target_scale else y
    if null_record is not None:
        rows.weight[null_record] = rows.squared_norm[null_record] = 0.0
    gate = ReplayGate(plan, path)
    with np.errstate(all="ignore"), Engine().running() as engine:
        problem = Problem(rows=rows, target=target, engine=engine, ownership=ownership)
        solution = algorithm.run(plan, problem, gate)
    gate.close()
    hops = draw_hops(facts, plan.settings.max_contributions, ReplayGate(plan, []))
    return plan, gate.values, solution.parameters, hops


# The plan comes before data.


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("adversary", ["eavesdropper", "peer"])
def test_neighbouring_and_shuffled_data_get_the_same_plan_and_the_same_trace(
    name, adversary, watch
):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((60, 3)), rng.standard_normal(60)
    agents = np.repeat(np.arange(4), [3, 7, 20, 30])
    neighbour = X.copy()
    neighbour[5] = [1e300, -1e300, 0.0]
    order = rng.permutation(60)
    model = DPDecentralizedRegressor(
        algorithm=name, adversary=adversary, topology="ring", max_iter=5, random_state=3
    )
    with watch() as tap:
        for rows, target, owner in (
            (X, y, agents),
            (neighbour, y, agents),
            (X[order], y[order], agents[order]),
        ):
            model.fit(rows, target, agents=owner)
    first, *others = tap.plans
    assert all(plan == first and plan.digest() == first.digest() for plan in others)
    assert all(gate.trace == tap.gates[0].trace for gate in tap.gates)
    planned = [(r.name, r.shape) for r in first.releases for _ in range(r.times)]
    assert tap.gates[0].trace == planned
    assert model.plan(60, 3, agent_sizes=[3, 7, 20, 30]) == first


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("scale", [None, "private"])
@pytest.mark.parametrize("adversary", ["eavesdropper", "peer"])
def test_the_budget_is_met_and_used_up(name, scale, adversary):
    for topology, epsilon in itertools.product(["complete", "ring"], [0.1, 1.0, 10.0]):
        model = DPDecentralizedRegressor(
            algorithm=name, epsilon=epsilon, scale=scale, adversary=adversary, topology=topology,
            n_agents=12, max_iter=10,
        )  # fmt: skip
        plan = model.plan(n_samples=600, n_features=3)
        assert 0.995 * epsilon < plan.guarantee(adversary).epsilon(1e-5) <= epsilon * (1 + 1e-9)
        assert plan.guarantee("peer").epsilon(1e-5) <= plan.guarantee("eavesdropper").epsilon(1e-5)
        assert plan.guarantee("model").epsilon(1e-5) <= plan.guarantee("peer").epsilon(1e-5)


@pytest.mark.parametrize("make", ALGORITHMS)
def test_noise_of_every_hop_is_that_of_the_plan(make, watch):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((60, 3)), rng.standard_normal(60)
    algorithm = make(max_contributions=20)
    model = DPDecentralizedRegressor(algorithm=algorithm, n_agents=4, max_iter=50, random_state=0)
    with watch() as tap:
        model.fit(X, y)
    release = tap.plans[0].releases[-1]
    noise = np.array(tap.released) - np.array(tap.exact)
    assert np.std(noise) == pytest.approx(release.noise_std, rel=0.1)
    assert np.abs(np.corrcoef(noise.reshape(len(noise), -1).T) - np.eye(4)).max() < 0.3
    if make is RandomWalkProximalPoint:
        # Hops without data pass the token on, with as much noise as the others.
        assert len(noise) == release.times == 200
        idle = np.isclose(tap.exact[1:], tap.released[:-1], rtol=1e-9, atol=0).all(axis=(1, 2))
        assert 80 < idle.sum() <= 120
        assert np.std(noise[1:][idle]) == pytest.approx(release.noise_std, rel=0.15)


# Sensitivities, by replay.


@pytest.mark.parametrize("neighboring", ["replace_one", "zero_out"])
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
@pytest.mark.parametrize("make", ALGORITHMS)
def test_hops_move_by_at_most_their_sensitivity_and_only_where_the_owner_contributes(
    make, loss, neighboring, targets
):
    for agent, is_extreme, topology in (
        (0, True, "complete"),
        (1, False, "ring"),
        (2, True, "path"),
    ):
        rng = np.random.default_rng(agent)
        X = rng.standard_normal((16, 3)) * 10.0 ** rng.uniform(-2, 2, (16, 1))
        y = targets(loss, rng, 16)
        changed = np.flatnonzero(OWNER == agent)[-1]
        X2, y2, null = X.copy(), y.copy(), None
        X2[changed] = EXTREME if is_extreme else -5 * X[changed]
        y2[changed] = 1e308 if isinstance(loss, SquaredLoss) else targets(loss, rng, 1)[0]
        if neighboring == "zero_out":
            X, y, null = X2, y2, changed
        clip_norm = 0.3 if loss.n_outputs == 1 else "auto"
        algorithm = make(step_size=1.3, clip_norm=clip_norm, max_contributions=3, relaxation=0.7)
        path = 3.0 * rng.standard_normal((32, 4, loss.n_outputs)) * 10.0 ** rng.uniform(-1, 1)
        shape = {"loss": loss, "neighboring": neighboring, "topology": topology}
        plan, first, end, hops = replay(algorithm, X, y, OWNER, path, **shape)
        other, second, other_end, _ = replay(
            algorithm, X2, y2, OWNER, path, null_record=null, **shape
        )
        assert plan == other
        np.testing.assert_array_equal(end, other_end)
        n_moved = 0
        for hop, (a, b) in enumerate(zip(first, second, strict=True)):
            distance = 0.0 if a is None else np.linalg.norm(a - b)
            assert np.isfinite(distance)
            assert distance <= plan.releases[-1].sensitivities[hop]
            if hops.holder[hop] != agent or not hops.contributes[hop]:
                assert distance == 0.0
            n_moved += distance > 0
        assert n_moved <= 3


def linear(n_agents):
    """One feature that is 1 in all records, and a clip so low that losses are linear."""
    owner = np.repeat(np.arange(n_agents), 2)
    return np.ones((2 * n_agents, 1)), np.ones(2 * n_agents), owner


def moves(make, *, cap, n_agents=6, max_iter=8, **knobs):
    """How far one record moves each hop of agent 0 on linear losses, and the plan."""
    X, y, owner = linear(n_agents)
    y2 = y.copy()
    y2[0] = -1.0
    algorithm = make(step_size=1e-3, clip_norm=1e-3, max_contributions=cap, tolerance=1e-6, **knobs)
    shape = {"max_iter": max_iter, "topology": "ring"}
    path = 1e-3 * np.random.default_rng(0).standard_normal((n_agents * max_iter, 2, 1))
    plan, first, _, hops = replay(algorithm, X, y, owner, path, **shape)
    _, second, _, _ = replay(algorithm, X, y2, owner, path, **shape)
    pairs = zip(first, second, strict=True)
    return plan, hops, np.array([0.0 if a is None else np.linalg.norm(a - b) for a, b in pairs])


@pytest.mark.parametrize("make", ALGORITHMS)
def test_the_claim_against_the_eavesdropper_is_attained_on_linear_losses(make):
    plan, hops, found = moves(make, cap=3)
    assert np.sum(hops.holder == 0) > 3
    noise = plan.releases[-1].noise_std
    exact = math.sqrt(np.sum(np.square(found))) / noise
    claim = plan.guarantee("eavesdropper")
    assert isinstance(claim, GaussianDP)
    assert 0.9999 * claim.mu < exact <= claim.mu
    # Half the noise would not do, nor would replace-one counted as zero-out.
    assert 2 * exact > claim.mu
    assert max(found) > 0.9999 * plan.releases[-1].sensitivities[0] > 1.5


@pytest.mark.parametrize("make", ALGORITHMS)
def test_a_cap_that_is_ignored_is_caught(make, monkeypatch):
    def ignored(*arguments):
        hops = draw_hops(*arguments)
        return Hops(hops.holder, np.ones_like(hops.contributes))

    monkeypatch.setattr(MODULES[make], "draw_hops", ignored)
    plan, _, found = moves(make, cap=3)
    exact = math.sqrt(np.sum(np.square(found))) / plan.releases[-1].noise_std
    assert exact > 1.1 * plan.guarantee("eavesdropper").mu


# What peers learn of linear losses is known exactly, walk by walk.


def exact_mu(hops, watched, mu, *, forgets=False):
    """Mu of all that observers see of agent 0: the token whenever it reaches one, and at the end.

    Losses are linear and there is no penalty, so data shift the token and the shift stays. Between
    two sights it competes with the noise of all hops between them. If agent 0 has so much
    curvature that it takes every token to one point, the token forgets what was before.
    """
    total = shift = noise = 0.0
    for hop, (holder, contributes) in enumerate(zip(*hops, strict=True)):
        if hop and watched[holder]:
            total += shift**2 / noise if noise else (math.inf if shift else 0.0)
            shift = noise = 0.0
        if forgets and holder == 0 and contributes:
            shift = noise = 0.0
        shift += mu * (holder == 0 and contributes)
        noise += 1
    if noise:
        total += shift**2 / noise
    return math.sqrt(total)


def average_delta(facts, cap, peers, mu, epsilon, *, n_walks=600, **planted):
    rng = np.random.default_rng(0)
    watched = np.isin(np.arange(facts.agents.n_agents), peers)

    class Dice:
        def uniform(self, shape):
            return rng.random(shape)

    found = [
        exact_mu(draw_hops(facts, cap, Dice()), watched, mu, **planted) for _ in range(n_walks)
    ]
    deltas = np.array([GaussianDP(m).delta(epsilon) if m < math.inf else 1.0 for m in found])
    return deltas.mean() - 4 * deltas.std() / math.sqrt(n_walks), deltas.mean()


def claims(n_agents, topology, coalition, cap, max_iter, epsilon=4.0):
    owner = np.repeat(np.arange(n_agents), 2)
    _, _, facts = facts_of(
        owner, n_features=1, topology=topology, coalition=coalition, max_iter=max_iter
    )
    algorithm = RandomWalkProximalPoint(max_contributions=cap)
    return facts, algorithm.plan(facts, Budget(epsilon=epsilon, delta=1e-3, observer="peer"))


CASES = [
    (6, "complete", 1, 1, 3),
    (6, "complete", 3, 1, 3),
    (6, "complete", 1, 5, 5),
    (6, "ring", 1, 1, 3),
    (6, "star", 1, 4, 4),
    (5, "path", 1, 2, 2),
    (2, "complete", 1, 2, 4),
]


@pytest.mark.parametrize(("n_agents", "topology", "coalition", "cap", "max_iter"), CASES)
def test_no_observer_learns_more_than_is_claimed_on_linear_losses(
    n_agents, topology, coalition, cap, max_iter
):
    facts, plan = claims(n_agents, topology, coalition, cap, max_iter)
    release = plan.releases[-1]
    mu = facts.neighboring.sensitivity_factor / release.noise_std
    coalitions = [c for c in itertools.combinations(range(1, n_agents), coalition)]
    if topology == "complete":
        coalitions = coalitions[:1]
    for epsilon, forgets in ((0.0, False), (0.5, True), (2.0, False), (2.0, True)):
        found, _ = average_delta(facts, cap, [], mu, epsilon, forgets=forgets)
        assert found <= plan.guarantee("model").delta(epsilon)
        for peers in coalitions:
            found, _ = average_delta(facts, cap, list(peers), mu, epsilon, forgets=forgets)
            assert found <= plan.guarantee("peer").delta(epsilon)
            if coalition == 1:
                pairs = release.view("peer").pairs
                assert found <= pairs.guarantee(0, *peers).delta(epsilon)


def test_planted_errors_of_the_walk_exceed_the_claim():
    facts, plan = claims(6, "complete", 3, 1, 3)
    mu = 2 / plan.releases[-1].noise_std
    claim = plan.guarantee("peer").delta(2.0)

    def truth(mu, **planted):
        return average_delta(facts, 1, [1, 2, 3], mu, 2.0, forgets=True, **planted)

    right, estimate = truth(mu)
    assert right <= claim < 2 * estimate
    assert truth(2 * mu)[0] > claim  # half the noise
    # A law in which the agent alone is met, where three peers are.
    walk = token_walk(facts.agents, plan.settings.n_hops, 1)
    assert right > walk.worst_cost(0).guarantee(mu).delta(2.0)


# Figures that depend on who looks.


def test_what_inner_solutions_and_rounding_add_is_paid_for():
    token = StatelessToken(n_hops=200, cap=10, drift=1e-3, grid=1e-5)
    exact = replace(token, drift=0.0, grid=0.0)
    cost = WalkCost((0.5, 0.5), (0.1, 10.0))
    mu, shift = 0.3, 1e-3 + 1e-5 / 0.3
    assert exact.guarantee(cost, mu) == cost.guarantee(mu)
    first, last = token.guarantee(cost, mu).components
    assert first.mu == pytest.approx(mu * math.sqrt(0.1 + 20 * shift + 200 * shift**2), rel=1e-12)
    assert last == token.direct(mu)
    assert last.mu == pytest.approx(mu * math.sqrt(10) * (1 + 1e-3), rel=1e-12)
    # By hand: a gap of m hops, each of which adds the drift, absorbed in equal parts.
    for m in (1, 7, 200):
        by_hand = math.sqrt(m) * (mu / m + mu * shift)
        one = replace(token, cap=1, n_hops=m)
        assert by_hand <= one.guarantee(WalkCost((1.0,), (1.0 / m,)), mu).mu * (1 + 1e-12) or m == 1


def test_far_peers_learn_less_and_preparations_count_in_every_pair():
    figures = {}
    for scale in (None, "private"):
        model = DPDecentralizedRegressor(
            algorithm="random-walk-proximal-point", adversary="peer", topology="ring", n_agents=8,
            max_iter=4, epsilon=3.0, scale=scale, random_state=0,
        )  # fmt: skip
        X = np.random.default_rng(0).standard_normal((80, 2))
        report = model.fit(X, X[:, 0]).privacy_
        figures[scale] = [report.pairwise(0, peer) for peer in (1, 2, 4)]
        near, middle, far = figures[scale]
        assert far < middle < near <= report.epsilon("peer") <= 3.0
        assert report.pairwise(3, 2) == pytest.approx(near)
        assert len(report.epsilon_per_agent("peer")) == 8
        assert report.worst_case("peer").epsilon(1e-5) >= report.epsilon("eavesdropper") - 1e-9
        again = pickle.loads(pickle.dumps(report))
        assert again.pairwise(0, 4) == far
    plan = model.plan(80, 2, agent_sizes=[10] * 8)
    pairs = plan.releases[-1].view("peer").pairs
    prior = plan.releases[0].guarantees("peer")[0]
    assert pairs.prior == prior
    assert pairs.guarantee(0, 4) == compose(
        prior, pairs.token.guarantee(pairs.walk.cost(0, 4), pairs.mu)
    )
    with pytest.raises(ValueError, match="its own peer"):
        pairs.guarantee(2, 2)


def test_without_a_law_of_the_walk_peers_are_promised_what_the_eavesdropper_is():
    assert LARGEST_LAW == MOST_AGENTS

    def plan(n_agents, **knobs):
        return DPDecentralizedClassifier(
            algorithm="random-walk-proximal-point", adversary="peer", classes=[0, 1],
            n_agents=n_agents, max_iter=2, epsilon=2.0, **knobs,
        ).plan(n_samples=700, n_features=2)  # fmt: skip

    ring = plan(8, topology="ring")
    assert isinstance(ring.guarantee("peer"), Mixture)
    assert not any("as for the eavesdropper" in line for line in ring.assumptions)
    assert any(line.startswith("peer, model: the token walks") for line in ring.assumptions)
    pairs = plan(8, topology="ring", coalition=2)
    assert pairs.guarantee("peer") == pairs.guarantee("eavesdropper")
    assert isinstance(pairs.guarantee("model"), Mixture)
    assert any(line.startswith("peer: as for the eaves") for line in pairs.assumptions)
    assert any(line.startswith("model: the token walks") for line in pairs.assumptions)
    for n_agents in (65, 300):
        large = plan(n_agents, topology="ring")
        assert (
            large.guarantee("peer") == large.guarantee("model") == large.guarantee("eavesdropper")
        )
        assert any(line.startswith("peer, model: as for the eaves") for line in large.assumptions)
    large = plan(300)
    assert large.guarantee("peer").epsilon(1e-5) < large.guarantee("eavesdropper").epsilon(1e-5)
    alone = plan(1)
    assert alone.guarantee("peer") == alone.guarantee("model")
    assert walk_costs(alone.facts.agents, None, 3)["peer"] == direct_cost(3)


def test_states_of_agents_are_never_promised_the_bound_of_a_token_without_any():
    for topology in ("complete", "ring"):
        plan = DPDecentralizedRegressor(
            algorithm="random-walk-admm", topology=topology, n_agents=9, max_iter=5
        ).plan(n_samples=90, n_features=2)
        release = plan.releases[-1]
        expected = GaussianDP(math.sqrt(5) * release.sensitivities[0] / release.noise_std)
        for observer in OBSERVERS:
            assert plan.guarantees(observer) == plan.worst_cases(observer) == (expected,)
            assert release.view(observer).pairs is None
