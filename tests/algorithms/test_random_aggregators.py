"""Gradients over a graph, mixed with random weights: equations, and what mixes hide."""

import math

import numpy as np
import pytest
from scipy.stats import kstest

from skdpadmm.algorithms import DecentralizedGradientDescent as FixedDescent
from skdpadmm.algorithms import RandomizedADMM, RandomizedSGD
from skdpadmm.algorithms import RandomizedGradientDescent as Descent
from skdpadmm.algorithms._random_aggregators import decay_weights, groups_of_agents
from skdpadmm.network import mixing_matrix
from skdpadmm.penalties import L1, NoPenalty, SquaredL2
from tests.algorithms import runs as agents
from tests.algorithms.runs import Watched, assert_tail, make_task, neighbors_of, prox_of
from tests.algorithms.runs import run_agents as run

FIXED = ("max_degree", "laplacian")
CLIP = 0.6  # in public units: a typical row of four parameters has norm 2
ROUNDS = 5


def noisy_gradient(task, plan, gate, k, a, w, *, turn=None):
    """Of F_a = (A / n) sum of losses, as agent a releases it in round k."""
    facts, release = task.facts, plan.releases[-1]
    share, clip, order = facts.agents.n_agents / facts.n_samples, CLIP, 2
    if release.law == "laplace":
        clip, order = CLIP * math.sqrt(w.size), 1
    unit = share * clip
    if release.door == "take_turns" and facts.unit == "agent":
        unit *= min(facts.agents.agent_sizes[a], 2 / share)
    # Turns are released times their weight, which is in their sensitivity.
    weights = np.asarray(release.sensitivities)
    weight = weights[k % len(weights)] / math.sqrt(np.mean(weights**2))
    noise = unit * gate.noise(k)[a if turn is None else turn] / weight
    return share * agents.summed_gradient(task, a, w, clip, order=order) + noise


@pytest.mark.parametrize(
    ("loss", "unit", "topology", "noise", "aggregator", "penalty"),
    [
        ("squared", "record", "star", "laplace", "random", SquaredL2(0.1)),
        ("squared", "agent", "path", "gaussian", "fixed", L1(0.05)),
        ("logistic", "record", "path", "gaussian", "random", L1(0.02)),
        ("logistic", "agent", "complete", "laplace", "random", NoPenalty()),
        ("three", "record", "complete", "laplace", "fixed", SquaredL2(0.1)),
        ("three", "agent", "star", "gaussian", "random", SquaredL2(0.1)),
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
    links, D = task.facts.agents.topology, np.array(plan.settings.curvatures)
    near, v = neighbors_of(links), np.zeros((4, 4, task.facts.loss.n_outputs))
    w, edge_duals, models, points = 0 * v, np.zeros((len(links.edges), *v.shape[1:])), [], []
    for k in range(ROUNDS):
        own_duals = 0 * v
        for (i, j), dual in zip(links.edges, edge_duals, strict=True):
            own_duals[i] += dual
            own_duals[j] -= dual
        for a in range(4):
            # Gamma / D is uniform, the rest of D is the penalty of the agent's edges.
            r = gate.drawn[k][a] if aggregator == "random" else 0.5
            mix = r * w[a] + (1 - r) * np.mean(w[near[a]], axis=0)
            v[a] = mix + (own_duals[a] - noisy_gradient(task, plan, gate, k, a, w[a])) / D[a]
        w = prox_of(task, v, 1 / D)
        edge_duals -= 0.7 * (w[links.edges[:, 0]] - w[links.edges[:, 1]])
        models.append(w)
        points.append(v.copy())
    assert_tail(task, solution, models, points, 1 / D)


def ends_of_mixes(links, mixing, models, public):
    """The two models between which each agent's mix is drawn."""
    near, ends = neighbors_of(links), []
    weights = mixing_matrix(links, mixing if mixing in FIXED else "metropolis")
    mean = np.tensordot(weights.to_sparse().toarray(), models, 1)
    closed = [np.sort(np.append(near[a], a)) for a in range(len(models))]
    sizes = np.array([len(members) for members in closed])
    one = public.integers(sizes)
    other = (one + 1 + public.integers(sizes - 1)) % sizes
    for a, members in enumerate(closed):
        received = models[members]
        # Of a pair one has 2 r / (d + 1) and the other 2 (1 - r) / (d + 1): rows sum to one.
        pair = received[[one[a], other[a]]]
        rest = received.sum(0) - pair.sum(0)
        ends.append({
            "metropolis": (mean[a], models[a]),
            "neighbors": (models[near[a]].mean(0), models[a]),
            "pair": tuple((rest + 2 * end) / len(members) for end in pair[::-1]),
            "interval": (received.max(0), received.min(0)),
        }.get(mixing, (mean[a], mean[a])))  # fmt: skip
    return np.moveaxis(np.array(ends), 1, 0)


@pytest.mark.parametrize(
    ("mixing", "loss", "unit", "topology", "noise", "penalty"),
    [
        ("metropolis", "logistic", "record", "star", "laplace", SquaredL2(0.1)),
        ("metropolis", "squared", "agent", "path", "gaussian", L1(0.05)),
        ("neighbors", "three", "record", "path", "gaussian", NoPenalty()),
        ("pair", "squared", "record", "star", "laplace", SquaredL2(0.1)),
        ("interval", "logistic", "agent", "path", "laplace", SquaredL2(0.1)),
        ("max_degree", "three", "record", "star", "gaussian", SquaredL2(0.1)),
        ("laplacian", "squared", "agent", "path", "gaussian", L1(0.05)),
    ],
)
def test_gradient_descent_mixes_steps_and_shrinks(mixing, loss, unit, topology, noise, penalty):
    """Equation (3.8), Algorithm 2* ("interval"), and descent with fixed weights."""
    task = make_task(loss, topology=topology, unit=unit, penalty=penalty, max_iter=ROUNDS)
    steps, is_fixed = np.full(ROUNDS, 0.6), mixing in FIXED
    if is_fixed:
        algorithm = FixedDescent(mixing=mixing, step_size=0.6, clip_norm=CLIP / 2, edge_noise=0)
    else:
        algorithm = Descent(
            mixing=mixing, step_size=0.6, step_power=0.5, step_decay=0.9, noise=noise,
            noise_decay=0.9, order_seed=3, clip_norm=CLIP / 2,
        )  # fmt: skip
        steps = 0.6 * np.arange(1, ROUNDS + 1) ** -0.5 * 0.9 ** np.arange(ROUNDS)
    plan, solution, gate = run(algorithm, task, epsilon=1e4, gate_class=Watched)
    links, public = task.facts.agents.topology, np.random.Generator(np.random.Philox(3))
    w, models, points = np.zeros((4, 4, task.facts.loss.n_outputs)), [], []
    for k, step in enumerate(steps):
        first, second = ends_of_mixes(links, mixing, w, public)
        at, mix = w, first
        if not is_fixed:
            mix = (1 - gate.drawn[k]) * first + gate.drawn[k] * second
            # What was drawn stays secret: the gradient is taken at the mix that is expected.
            at = w if mixing == "interval" else (first + second) / 2
        g = [noisy_gradient(task, plan, gate, k, a, at[a]) for a in range(4)]
        points.append(mix - step * np.array(g))
        w = prox_of(task, points[-1], [step] * 4)
        models.append(w)
    assert_tail(task, solution, models, points, steps[:, None])


@pytest.mark.parametrize(
    ("loss", "unit", "topology", "penalty"),
    [
        ("logistic", "record", "path", L1(0.02)),
        ("three", "agent", "complete", SquaredL2(0.1)),
        ("squared", "record", "ring", NoPenalty()),
    ],
)
def test_steps_that_share_noise_are_mixed_after_it_is_added(loss, unit, topology, penalty):
    task = make_task(loss, topology=topology, unit=unit, penalty=penalty, max_iter=ROUNDS)
    algorithm = FixedDescent(step_size=0.6, clip_norm=CLIP / 2, edge_noise=4.0)
    plan, solution, gate = run(algorithm, task, epsilon=1e4, gate_class=Watched)
    shared = [passed[2] for passed in gate.passed if passed[0] == "edge_noise"]
    mixing = mixing_matrix(task.facts.agents.topology)
    n_mixing, weights = math.ceil(1 / mixing.spectral_gap), mixing.to_sparse().toarray()
    unit_noise = plan.releases[-1].agent_noise_std[0] * CLIP * 4 / task.facts.n_samples
    w, models, points = np.zeros((4, 4, task.facts.loss.n_outputs)), [], []
    for k in range(ROUNDS):
        g = [noisy_gradient(task, plan, gate, k, a, w[a]) for a in range(4)]
        for (a, b), noise in zip(task.facts.agents.topology.edges, shared[k], strict=True):
            g[a] = g[a] + unit_noise * noise
            g[b] = g[b] - unit_noise * noise
        point = np.einsum(
            "ab,bjk->ajk", np.linalg.matrix_power(weights, n_mixing), w - 0.6 * np.array(g)
        )
        points.append(point)
        w = prox_of(task, point, [0.6] * 4)
        models.append(w)
    assert len(shared) == ROUNDS
    assert solution.n_rounds == ROUNDS * n_mixing
    assert_tail(task, solution, models, points, np.full((ROUNDS, 1), 0.6))


@pytest.mark.parametrize(
    ("loss", "noise", "penalty"),
    [("logistic", "laplace", L1(0.02)), ("three", "gaussian", SquaredL2(0.1))],
)
def test_a_single_pass_takes_one_gradient_of_every_agent(loss, noise, penalty):
    """Algorithm 2 with (2.3): two groups of agents a round, whose means are what is known."""
    task = make_task(loss, sizes=(5, 3, 2, 4, 5, 3, 4), penalty=penalty)
    algorithm = RandomizedSGD(rounds=3, step_size=0.5, clip_norm=CLIP / 2, noise=noise)
    plan, solution, gate = run(algorithm, task, epsilon=1e4, gate_class=Watched)
    groups, order = (groups_of_agents(7, 3, 0), [p[3] for p in gate.passed if p[0] == "take_turns"])
    assert [len(group) for group in groups] == [1, 1, 1, 1, 1, 2]
    assert sorted(np.concatenate(order).tolist()) == list(range(7))
    means, models, points = np.zeros((2, 4, task.facts.loss.n_outputs)), [], []
    steps = 0.5 / np.sqrt([1, 2, 3])
    for k, step in enumerate(steps):
        sent = {}
        for i, a in enumerate(order[k]):
            r, at = gate.drawn[k][i], means.mean(axis=0)
            g = noisy_gradient(task, plan, gate, k, a, at, turn=i)
            sent[a] = r * means[0] + (1 - r) * means[1] - step * g
        pair = [[sent[a] for a in group] for group in groups[2 * k : 2 * k + 2]]
        points.append(np.array([np.mean(group, axis=0) for group in pair]))
        means = prox_of(task, points[-1], [step] * 2)
        models.append(means)
    assert_tail(task, solution, models, points, steps[:, None], of_agents=False)


@pytest.mark.parametrize("algorithm", [RandomizedADMM(), Descent()], ids=repr)
def test_weights_are_uniform_and_fresh_for_each_entry_agent_and_round(algorithm):
    task = make_task(sizes=(12,) * 10, max_iter=80)
    drawn = np.array(run(algorithm, task)[2].drawn)
    assert drawn.shape == (80, 10, 4, 1)
    assert kstest(drawn.ravel(), "uniform").pvalue > 1e-3
    assert len(np.unique(drawn)) == drawn.size


def test_worst_cases_of_fixed_parameters_are_those_of_the_paper():
    rates, rounds = 1.02 ** np.arange(1, 101), np.arange(1, 101)
    steps = [np.full(100, 0.1), 0.93**rounds, 0.9**rounds]
    found = [float((rates * s * 14 * 0.01).sum()) for s in steps]
    np.testing.assert_allclose(found, [4.458677, 2.570536, 1.567015], atol=1e-6)
    for step, decay, worst in zip(steps, (1.02, 1.02 * 0.93, 1.02 * 0.9), found, strict=True):
        weights = decay_weights(decay, 100)
        total = 0.14 * weights.sum() * (rates * step)[0] / weights[0]
        assert total == pytest.approx(worst, abs=1e-6)
