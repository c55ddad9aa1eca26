"""Theorems about tokens that walk over a graph, for each of the three observers."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from skdpadmm import DPDecentralizedClassifier, DPDecentralizedRegressor
from skdpadmm.algorithms import RandomWalkProximalPoint
from skdpadmm.algorithms._random_walks import draw_hops, walk_costs
from skdpadmm.privacy import GaussianDP, Mixture, StatelessToken, WalkCost, compose

# What peers learn of linear losses is known exactly, walk by walk.


def exact_mu(hops, watched, mu, *, forgets):
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
    return math.sqrt(total + (shift**2 / noise if noise else 0.0))


class Dice:
    def __init__(self):
        self.rng = np.random.default_rng(0)

    def uniform(self, shape):
        return self.rng.random(shape)


def average_delta(facts, cap, peers, mu, epsilon, *, forgets):
    """A lower bound of delta, over many walks."""
    watched, dice = np.isin(np.arange(facts.agents.n_agents), peers), Dice()
    hops = (draw_hops(facts, cap, dice) for _ in range(300))
    mus = [exact_mu(each, watched, mu, forgets=forgets) for each in hops]
    deltas = np.array([GaussianDP(m).delta(epsilon) if m < math.inf else 1.0 for m in mus])
    return deltas.mean() - 4 * deltas.std() / math.sqrt(300)


def plan_of(n_agents, topology, coalition, cap, max_iter):
    return DPDecentralizedClassifier(
        algorithm=RandomWalkProximalPoint(max_contributions=cap), adversary="peer", classes=[0, 1],
        topology=topology, coalition=coalition, n_agents=n_agents, max_iter=max_iter, epsilon=4.0,
        delta=1e-3, conditioning=None,
    ).plan(2 * n_agents, 1)  # fmt: skip


CASES = [
    (6, "complete", 3, 1, 3), (6, "complete", 1, 5, 5), (6, "ring", 1, 1, 3), (6, "star", 1, 4, 4),
    (2, "complete", 1, 2, 4),
]  # fmt: skip


@pytest.mark.parametrize(("n_agents", "topology", "coalition", "cap", "max_iter"), CASES)
def test_no_observer_learns_more_than_is_claimed_on_linear_losses(
    n_agents, topology, coalition, cap, max_iter
):
    plan = plan_of(n_agents, topology, coalition, cap, max_iter)
    facts, release = plan.facts, plan.releases[-1]
    mu = facts.neighboring.sensitivity_factor / release.noise_std
    coalitions = [list(c) for c in itertools.combinations(range(1, n_agents), coalition)]
    coalitions = coalitions[:1] if topology == "complete" else coalitions
    for epsilon, forgets in ((0.5, True), (2.0, False), (2.0, True)):
        for observer, peers in [("model", []), *(("peer", c) for c in coalitions)]:
            found = average_delta(facts, cap, peers, mu, epsilon, forgets=forgets)
            assert found <= plan.guarantee(observer).delta(epsilon)
            if len(peers) == 1:
                pairs = release.view("peer").pairs
                assert found <= pairs.guarantee(0, *peers).delta(epsilon)


# Figures that depend on the observer.


def test_drift_of_inner_solutions_and_rounding_are_paid_for():
    token = StatelessToken(n_hops=200, cap=10, drift=1e-3, grid=1e-5)
    exact = replace(token, drift=0.0, grid=0.0)
    cost, mu = WalkCost((0.5, 0.5), (0.1, 10.0)), 0.3
    shift = 1e-3 + 1e-5 / mu
    assert exact.guarantee(cost, mu) == cost.guarantee(mu)
    first, last = token.guarantee(cost, mu).components
    assert first.mu == pytest.approx(mu * math.sqrt(0.1 + 20 * shift + 200 * shift**2), rel=1e-12)
    # Never above what all tokens reveal.
    assert last == token.direct(mu)
    assert last.mu == pytest.approx(mu * math.sqrt(10) * (1 + 1e-3), rel=1e-12)
    # By hand: a gap of m hops, each of which adds the drift, absorbed in equal parts.
    for m in (7, 200):
        one = replace(token, cap=1, n_hops=m)
        by_hand = math.sqrt(m) * (mu / m + mu * shift)
        assert by_hand <= one.guarantee(WalkCost((1.0,), (1.0 / m,)), mu).mu * (1 + 1e-12)


def test_far_peers_learn_less_and_preparations_count_in_every_pair():
    for scale in (None, "private"):
        model = DPDecentralizedRegressor(
            algorithm="random-walk-proximal-point", adversary="peer", topology="ring", n_agents=8,
            max_iter=4, epsilon=3.0, scale=scale, random_state=0,
        )  # fmt: skip
        X = np.random.default_rng(0).standard_normal((80, 2))
        report = model.fit(X, X[:, 0]).privacy_
        near, middle, far = (report.pairwise(0, peer) for peer in (1, 2, 4))
        assert far < middle < near <= report.epsilon("peer") <= 3.0
        assert report.pairwise(3, 2) == pytest.approx(near)
        assert report.worst_case("peer").epsilon(1e-5) >= report.epsilon("eavesdropper") - 1e-9
    plan = model.plan(80, 2, agent_sizes=[10] * 8)
    pairs = plan.releases[-1].view("peer").pairs
    assert pairs.prior == plan.releases[0].view("peer").guarantees[0]
    token = pairs.token.guarantee(pairs.walk.cost(0, 4), pairs.mu)
    assert pairs.guarantee(0, 4) == compose(pairs.prior, token)
    with pytest.raises(ValueError, match="its own peer"):
        pairs.guarantee(2, 2)


def test_without_a_law_of_the_walk_peers_are_promised_what_the_eavesdropper_is():
    def plan(n_agents, **knobs):
        return DPDecentralizedClassifier(
            algorithm="random-walk-proximal-point", adversary="peer", classes=[0, 1],
            n_agents=n_agents, max_iter=2, epsilon=2.0, **knobs,
        ).plan(n_samples=700, n_features=2)  # fmt: skip

    assert isinstance(plan(8, topology="ring").guarantee("peer"), Mixture)
    pairs = plan(8, topology="ring", coalition=2)
    assert pairs.guarantee("peer") == pairs.guarantee("eavesdropper")
    assert isinstance(pairs.guarantee("model"), Mixture)
    assert any(line.startswith("peer: as for the eaves") for line in pairs.assumptions)
    large = plan(65, topology="ring")
    assert large.guarantee("peer") == large.guarantee("model") == large.guarantee("eavesdropper")
    assert any(line.startswith("peer, model: as for the eaves") for line in large.assumptions)
    large = plan(300)
    assert large.guarantee("peer").epsilon(1e-5) < large.guarantee("eavesdropper").epsilon(1e-5)
    alone = plan(1)
    assert walk_costs(alone.facts.agents, None, 3)["peer"] == WalkCost.direct(3)


def test_states_of_agents_are_never_promised_the_bound_of_a_token_without_any():
    for topology in ("complete", "ring"):
        plan = DPDecentralizedRegressor(
            algorithm="random-walk-admm", topology=topology, n_agents=9, max_iter=5
        ).plan(n_samples=90, n_features=2)
        release = plan.releases[-1]
        expected = GaussianDP(math.sqrt(5) * release.sensitivities[0] / release.noise_std)
        for observer in ("eavesdropper", "peer", "model"):
            assert plan.guarantees(observer) == plan.worst_cases(observer) == (expected,)
            assert release.view(observer).pairs is None
