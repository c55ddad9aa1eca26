"""Gradients over a graph, mixed with random weights: equations, the dual sign, what mixes hide."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import kstest

import skdpadmm.algorithms._randomized_admm as randomized_admm
from skdpadmm.algorithms import (
    DecentralizedGradientDescent,
    RandomizedADMM,
    RandomizedGradientDescent,
    RandomizedSGD,
)
from skdpadmm.algorithms._randomized_gradient_descent import boxes_of
from skdpadmm.algorithms._randomized_sgd import groups_of_agents
from skdpadmm.network import TOPOLOGIES, mixing_matrix, resolve_topology
from skdpadmm.penalties import L1, NoPenalty, SquaredL2
from tests.algorithms.agents import (
    Watched,
    central_optimum,
    make_task,
    neighbors_of,
    run,
    shrunk,
    summed_gradient,
    weights_of,
)

MIXING = ["metropolis", "neighbors", "pair", "interval"]
CLIP = 0.3  # in public units: a typical row of four parameters has norm 2
ROUNDS = 5


def noisy_gradient(task, plan, gate, k, a, w, *, at=None):
    """Of F_a = (A / n) sum of losses, as agent a releases it in its turn k."""
    facts, release = task.facts, plan.releases[-1]
    share, n_entries = facts.agents.n_agents / facts.n_samples, w.size
    clip, order = CLIP, 2
    if getattr(release, "law", "gaussian") == "laplace":
        clip, order = CLIP * math.sqrt(n_entries), 1
    g = share * summed_gradient(task, a, w, clip, order=order)
    unit = share * clip
    if hasattr(release, "law") and facts.unit == "agent":
        unit *= min(facts.agents.agent_sizes[a], 2 * facts.n_samples / facts.agents.n_agents)
    # Turns are released times their weight, which is in their sensitivity.
    weights = np.asarray(release.sensitivities)
    weight = weights[k] / math.sqrt(np.mean(weights**2))
    return g + unit * gate.noise((at or (k, a))[0])[(at or (k, a))[1]] / weight


def averaged(path, points, task, step):
    """The second half of models; for sparse penalties a step from the points before them."""
    tail, (l1, l2) = -math.ceil(ROUNDS / 2), weights_of(task.facts.penalty)
    if not l1:
        return np.mean(path[tail:], axis=0)
    # Points are brought to the length of the mean step.
    mean = np.mean(step[tail:], axis=0).mean()
    longer = [w + mean / s * (v - w) for w, v, s in zip(path, points, step, strict=True)]
    return np.array([shrunk(v, l1, l2, mean) for v in np.mean(longer[tail:], axis=0)])


def prox_of(task, points, steps):
    l1, l2 = weights_of(task.facts.penalty)
    return np.array([shrunk(v, l1, l2, s) for v, s in zip(points, np.ravel(steps), strict=True)])


@pytest.mark.parametrize(
    ("loss", "unit", "topology", "noise", "aggregator", "penalty"),
    [
        ("squared", "record", "star", "laplace", "random", SquaredL2(0.1)),
        ("squared", "agent", "path", "gaussian", "fixed", L1(0.05)),
        ("logistic", "record", "path", "gaussian", "random", L1(0.02)),
        ("logistic", "agent", "complete", "laplace", "random", NoPenalty()),
        ("multinomial", "record", "complete", "laplace", "fixed", SquaredL2(0.1)),
        ("multinomial", "agent", "star", "gaussian", "random", SquaredL2(0.1)),
    ],
)
def test_randomised_admm_is_admm_on_edges_with_random_penalties(
    loss, unit, topology, noise, aggregator, penalty
):
    """Equation (2.2) with a dual for every edge, of which an agent's own is a signed sum."""
    task = make_task(loss, topology=topology, unit=unit, penalty=penalty, max_iter=ROUNDS)
    algorithm = RandomizedADMM(
        aggregator=aggregator, clip_norm=CLIP / 2, noise=noise, noise_decay=1.1, dual_step=0.7
    )
    plan, solution, gate = run(algorithm, task, epsilon=1e4, gate_class=Watched)
    links, n_agents = task.facts.agents.topology, 4
    near, D = neighbors_of(links), np.array(plan.settings.curvature)
    w = np.zeros((n_agents, task.facts.n_parameters, task.facts.loss.n_outputs))
    edge_duals, path, points = np.zeros((len(links.edges), *w.shape[1:])), [], []
    for k in range(ROUNDS):
        own_duals, v = np.zeros(w.shape), np.zeros(w.shape)
        for (i, j), dual in zip(links.edges, edge_duals, strict=True):
            own_duals[i] += dual
            own_duals[j] -= dual
        for a in range(n_agents):
            # Gamma / D is uniform, the rest of D is the penalty of the agent's edges.
            r = gate.drawn[k][a] if aggregator == "random" else 0.5
            mix = r * w[a] + (1 - r) * np.mean(w[near[a]], axis=0)
            v[a] = mix + (own_duals[a] - noisy_gradient(task, plan, gate, k, a, w[a])) / D[a]
        w = prox_of(task, v, 1 / D)
        for e, (i, j) in enumerate(links.edges):
            edge_duals[e] -= 0.7 * (w[i] - w[j])
        path.append(w)
        points.append(v)
    own = averaged(path, points, task, np.broadcast_to((1 / D)[:, None, None], (ROUNDS, 4, 1, 1)))
    np.testing.assert_allclose(solution.parameters_per_agent, own, rtol=0, atol=1e-9)
    assert np.abs(edge_duals).max() > 0.01


def random_mix(links, mixing, seed):
    """Random weights and expected ones of each round, as matrices that models have no part in."""
    near, public = neighbors_of(links), np.random.Generator(np.random.Philox(seed))
    n, metropolis = links.n_agents, mixing_matrix(links).to_sparse().toarray()
    closed = [np.sort(np.append(near[a], a)) for a in range(n)]
    while True:
        low, high = np.zeros((n, n)), np.eye(n)
        if mixing == "neighbors":
            low = np.array([np.isin(range(n), near[a]) / len(near[a]) for a in range(n)])
        if mixing == "metropolis":
            low = metropolis
        if mixing == "pair":
            sizes = np.array([len(members) for members in closed])
            one = public.integers(sizes)
            other = (one + 1 + public.integers(np.maximum(sizes - 1, 1))) % sizes
            for a, members in enumerate(closed):
                low[a, members] = high[a, members] = 1 / len(members)
                pair = members[[one[a], other[a]]]
                # The two have 2 r / (d + 1) and 2 (1 - r) / (d + 1): rows sum to one.
                low[a, pair], high[a, pair] = [0, 2 / len(members)], [2 / len(members), 0]
        yield low, high


@pytest.mark.parametrize(
    ("mixing", "loss", "unit", "topology", "noise", "penalty"),
    [
        ("metropolis", "logistic", "record", "star", "laplace", SquaredL2(0.1)),
        ("metropolis", "squared", "agent", "path", "gaussian", L1(0.05)),
        ("neighbors", "multinomial", "record", "path", "gaussian", NoPenalty()),
        ("pair", "squared", "record", "star", "laplace", SquaredL2(0.1)),
        ("interval", "logistic", "agent", "path", "laplace", SquaredL2(0.1)),
        ("fixed", "multinomial", "record", "star", "gaussian", SquaredL2(0.1)),
        ("fixed", "squared", "agent", "path", "gaussian", L1(0.05)),
    ],
)
def test_gradient_descent_mixes_steps_and_shrinks(mixing, loss, unit, topology, noise, penalty):
    """Equation (3.8), Algorithm 2* ("interval"), and descent with weights that are fixed."""
    task = make_task(loss, topology=topology, unit=unit, penalty=penalty, max_iter=ROUNDS)
    knobs = {"step_size": 0.6, "clip_norm": CLIP / 2}
    algorithm = DecentralizedGradientDescent(**knobs)
    power = decay = 0.0
    if mixing != "fixed":
        power, decay = 0.5, 0.9
        algorithm = RandomizedGradientDescent(
            mixing=mixing, step_power=0.5, step_decay=0.9, noise=noise, noise_decay=0.9,
            order_seed=3, **knobs,
        )  # fmt: skip
    plan, solution, gate = run(algorithm, task, epsilon=1e4, gate_class=Watched)
    links, rounds = task.facts.agents.topology, random_mix(task.facts.agents.topology, mixing, 3)
    w = np.zeros((4, task.facts.n_parameters, task.facts.loss.n_outputs))
    closed = [np.append(near, a) for a, near in enumerate(neighbors_of(links))]
    path, points, steps = [], [], 0.6 * np.arange(1, ROUNDS + 1) ** -power
    steps = steps * (decay or 1.0) ** np.arange(ROUNDS)
    for k, (low, high) in zip(range(ROUNDS), rounds, strict=False):
        ends = [np.einsum("ab,bjk->ajk", low, w), np.einsum("ab,bjk->ajk", high, w)]
        if mixing == "interval":
            ends = [
                np.array([w[c].max(0) for c in closed]),
                np.array([w[c].min(0) for c in closed]),
            ]
        at, mix = w, np.einsum("ab,bjk->ajk", mixing_matrix(links).to_sparse().toarray(), w)
        if mixing != "fixed":
            mix = gate.drawn[k] * ends[1] + (1 - gate.drawn[k]) * ends[0]
        if mixing not in ("fixed", "interval"):
            # At the expected mix: what was drawn stays secret.
            at = (ends[0] + ends[1]) / 2
        v = np.array(
            [mix[a] - steps[k] * noisy_gradient(task, plan, gate, k, a, at[a]) for a in range(4)]
        )  # fmt: skip
        w = prox_of(task, v, np.full(4, steps[k]))
        path.append(w)
        points.append(v)
    own = averaged(
        path, points, task, np.broadcast_to(steps[:, None, None, None], (ROUNDS, 4, 1, 1))
    )
    np.testing.assert_allclose(solution.parameters_per_agent, own, rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    ("loss", "noise", "penalty"),
    [("logistic", "laplace", L1(0.02)), ("multinomial", "gaussian", SquaredL2(0.1))],
)
def test_a_single_pass_takes_one_gradient_of_every_agent(loss, noise, penalty):
    """Algorithm 2 with (2.3): two groups of agents a round, whose means are what is known."""
    task = make_task(loss, sizes=(5, 3, 2, 4, 5, 3, 4), penalty=penalty, max_iter=ROUNDS)
    algorithm = RandomizedSGD(rounds=3, step_size=0.5, clip_norm=CLIP / 2, noise=noise)
    plan, solution, gate = run(algorithm, task, epsilon=1e4, gate_class=Watched)
    groups, order = groups_of_agents(7, 3, 0), [p[3] for p in gate.passed if p[0] == "take_turns"]
    assert [len(group) for group in groups] == [1, 1, 1, 1, 1, 2]
    assert sorted(np.concatenate(order).tolist()) == list(range(7))
    steps, heard = 0.5 / np.sqrt([1, 2, 3]), np.zeros((2, 4, task.facts.loss.n_outputs))
    path, points = [], []
    for k, step in enumerate(steps):
        said = {}
        for i, a in enumerate(order[k]):
            mix = gate.drawn[k][i] * heard[0] + (1 - gate.drawn[k][i]) * heard[1]
            # One turn each: all have the same weight.
            g = noisy_gradient(task, plan, gate, 0, a, heard.mean(axis=0), at=(k, i))
            said[a] = mix - step * g
        v = np.array([np.mean([said[a] for a in group], axis=0) for group in groups[2 * k :][:2]])
        heard = prox_of(task, v, np.full(2, step))
        path.append(heard)
        points.append(v)
    steps = np.broadcast_to(steps[:, None, None, None], (3, 2, 1, 1))
    l1, l2 = weights_of(penalty)
    longer = [
        w + steps[1:].mean() / s * (v - w) for w, v, s in zip(path, points, steps, strict=True)
    ]
    expected = np.mean(path[1:], axis=(0, 1))
    if l1:
        expected = shrunk(np.mean(longer[1:], axis=(0, 1)), l1, l2, steps[1:].mean())
    kept = solution.parameters != 0
    np.testing.assert_allclose(solution.parameters[kept], expected[kept], rtol=0, atol=1e-9)
    assert kept.any()
    assert solution.parameters_per_agent is None


def test_an_exact_step_minimises_an_agents_loss_beside_the_mix_and_the_duals():
    """Equation (3.1), of the first round: mixes and duals are zero."""
    task = make_task("logistic", penalty=SquaredL2(0.3), max_iter=1)
    algorithm = RandomizedADMM(
        local_step="exact", curvature=2.0, tolerance=1e-6, clip_norm=50.0, noise="gaussian"
    )
    _, solution, gate = run(algorithm, task, epsilon=1e4, gate_class=Watched)
    for a in range(4):
        A, y = task.of(a)

        def objective(w, A=A, y=y):
            losses = 4 / 25 * np.logaddexp(0, -y * (A @ w)).sum()
            return losses + 0.15 * w[:3] @ w[:3] + w @ w

        best = minimize(objective, np.zeros(4), tol=1e-12).x
        # Noise is in units of what a record moves the minimiser by.
        noisy = best + 50.0 * 2 * 4 / 25 / 2.0 * gate.noise(0)[a][:, 0]
        np.testing.assert_allclose(solution.parameters_per_agent[a, :, 0], noisy, atol=1e-4)


@pytest.mark.parametrize("aggregator", ["random", "fixed"])
def test_the_printed_sign_of_the_duals_diverges(monkeypatch, aggregator):
    task = make_task("logistic", sizes=(12,) * 10, penalty=SquaredL2(0.1), max_iter=300)
    algorithm = RandomizedADMM(aggregator=aggregator, tail_fraction=0.01)
    best, true = central_optimum(task, l2=0.1), randomized_admm.disagreement

    def error():
        own = run(algorithm, task, epsilon=math.inf)[1].parameters_per_agent
        return np.abs(own - best).max()

    assert error() < 1e-4
    monkeypatch.setattr(randomized_admm, "disagreement", lambda *args: -true(*args))
    assert not error() < 1e6


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_rows_of_random_weights_sum_to_one_and_their_means_are_doubly_stochastic(topology):
    """On irregular graphs by Metropolis weights alone; so "interval" needs none of them."""
    rng = np.random.default_rng(0)
    links = resolve_topology(topology, np.arange(16))
    allowed, one_hot = links.adjacency.toarray() + np.eye(16) > 0, np.eye(16)[:, :, None]
    for mixing in ("metropolis", "neighbors", "pair"):
        boxes = boxes_of(links, mixing, 0)
        for _ in range(5):
            box = boxes(one_hot)
            drawn = box.draw(lambda shape: np.broadcast_to(rng.random((16, 1, 1)), shape))[:, :, 0]
            mean = box.center[:, :, 0]
            np.testing.assert_allclose([drawn.sum(1), mean.sum(1)], 1.0, atol=1e-14)
            assert drawn.min() >= -1e-15
            assert np.abs(drawn[~allowed]).max(initial=0.0) < 1e-15
            fair = mixing == "metropolis" or len(np.unique(links.degrees)) == 1
            assert np.allclose(mean.sum(axis=0), 1.0, atol=1e-12) == fair


def test_pairs_are_drawn_evenly_and_printed_weights_of_pairs_do_not_sum_to_one():
    boxes, rng = (
        boxes_of(resolve_topology("path", np.arange(3)), "pair", 0),
        np.random.default_rng(0),
    )
    drawn = np.array([boxes(np.eye(3)[:, :, None]).draw(rng.random)[1, :, 0] for _ in range(3000)])
    # The one in the middle has three pairs, and who is in none keeps a third.
    assert np.isclose(drawn, 1 / 3, atol=1e-12).mean(axis=0) == pytest.approx(1 / 3, abs=0.04)
    assert drawn.mean(axis=0) == pytest.approx(1 / 3, abs=0.02)
    r, d = 0.3, 2
    assert (2 * r + 2 * (1 - r) + (d - 1)) / (d + 1) == pytest.approx(1.0)
    assert (r + (1 - r) + (d - 1)) / (d + 1) == pytest.approx(2 / 3)


@pytest.mark.parametrize("algorithm", [RandomizedADMM(), RandomizedGradientDescent()], ids=repr)
def test_weights_are_uniform_and_fresh_for_each_entry_agent_and_round(algorithm):
    task = make_task(sizes=(12,) * 10, max_iter=80)
    drawn = np.array(run(algorithm, task)[2].drawn)
    assert drawn.shape == (80, 10, 4, 1)
    assert kstest(drawn.ravel(), "uniform").pvalue > 1e-3
    for axis in range(3):
        columns = np.moveaxis(drawn[..., 0], axis, 0).reshape(drawn.shape[axis], -1)
        apart = np.corrcoef(columns) - np.eye(len(columns))
        assert np.abs(apart).max() < 5.5 / math.sqrt(columns.shape[1])


class OddRound(Watched):
    """All weights are one half, but for those of the fourth draw."""

    odd = 0.5

    def uniform(self, shape):
        is_odd = len(self.drawn) == 3
        super().uniform(shape)
        return np.full(shape, self.odd if is_odd else 0.5)


@pytest.mark.parametrize(
    "algorithm",
    [RandomizedADMM(), *(RandomizedGradientDescent(mixing=m) for m in MIXING)],
    ids=repr,
)
def test_what_meets_noise_does_not_depend_on_the_secret_mix_of_its_round(algorithm):
    found = []
    for odd in (0.01, 0.99):
        gate_class = type("Odd", (OddRound,), {"odd": odd})
        gate = run(algorithm, make_task(max_iter=6), epsilon=50.0, gate_class=gate_class)[2]
        found.append([value for method, value, _, _ in gate.passed if method == "take_turns"])
    first, second = map(np.array, found)
    np.testing.assert_allclose(first[:4], second[:4], rtol=1e-12, atol=1e-15)
    assert np.abs(first[4] - second[4]).max() > 0


def test_expected_losses_are_the_worst_case_for_fixed_weights_and_about_a_third_less_for_random():
    """In the setting of Figure 2-1(2b); nothing is known of Gaussian noise or exact steps."""
    task = make_task("logistic", sizes=(100,) * 10, topology="erdos-renyi", max_iter=20)
    shares = {}
    for aggregator in ("fixed", "random"):
        algorithm = RandomizedADMM(aggregator=aggregator, noise_decay=1.02)
        plan, solution, _ = run(algorithm, task, gate_class=Watched)
        release = plan.releases[-1]
        ratios = np.divide(release.sensitivities[1:], release.sensitivities[:-1])
        np.testing.assert_allclose(ratios, 1.02)
        worst = sum(release.sensitivities) * math.sqrt(2) / release.noise_std
        shares[aggregator] = solution.expected_privacy_loss / worst
        assert shares[aggregator].shape == (10,)
    np.testing.assert_allclose(shares["fixed"], 1.0, rtol=1e-12)
    assert 0.65 < shares["random"].mean() < 0.8
    assert shares["random"].max() < 0.9
    for algorithm in (RandomizedADMM(noise="gaussian"), RandomizedADMM(local_step="exact")):
        assert run(algorithm, make_task(), epsilon=1.0)[1].expected_privacy_loss is None
