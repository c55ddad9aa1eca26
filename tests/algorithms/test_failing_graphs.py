"""Graphs that fail, change or are directed: naive loops, the optimum, and what stays the same."""

import math
from dataclasses import replace

import networkx as nx
import numpy as np
import pytest

from skdpadmm import DPDecentralizedRegressor, algorithms
from skdpadmm.algorithms import DecentralizedGradientDescent, MultiStepADMM
from skdpadmm.network import resolve_graphs
from skdpadmm.penalties import ElasticNet, NoPenalty, SquaredL2
from tests.algorithms import runs as agents
from tests.algorithms.runs import Watched, close, make_task
from tests.algorithms.runs import run_agents as run

SIZES = (8, 5, 4, 2, 3)
N = len(SIZES)
PAIRS = [nx.Graph([(0, 1), (2, 3)]), nx.Graph([(1, 2), (3, 4)]), nx.Graph([(4, 0)])]
for _graph in PAIRS:
    _graph.add_nodes_from(range(N))
ARCS = nx.DiGraph([(0, 1), (1, 2), (2, 3), (3, 4), (4, 0), (0, 3), (4, 2)])
FAILS = {"participation": 0.8, "dropout": 0.3}


def task_on(graphs, loss="squared", penalty=NoPenalty(), max_iter=6, **fails):  # noqa: B008
    """A network over graphs that take turns, which fails."""
    task = make_task(loss, SIZES, penalty=penalty, max_iter=max_iter)
    topology, links = resolve_graphs(graphs, np.arange(N))
    network = replace(task.facts.agents, topology=topology, graphs=links, **fails)
    return replace(task, facts=replace(task.facts, agents=network))


def rounds_of(task, gate, n_rounds):
    """For each round who is present, and the neighbours who hear each other; by their draws."""
    network, drawn = task.facts.agents, list(gate.drawn)
    here = np.ones((n_rounds, N), dtype=bool)
    if network.participation < 1:
        here = drawn.pop(0) < network.participation
    for k in range(n_rounds):
        links = network.links_in(k)
        alive = drawn[k] >= network.dropout if drawn else np.ones(links.n_edges, dtype=bool)
        near = [set() for _ in range(N)]
        for (a, b), lives in zip(links.edges.tolist(), alive, strict=True):
            if lives and here[k, a] and here[k, b]:
                near[a].add(b)
                near[b] |= set() if links.is_directed else {a}
        yield here[k], near


def assert_draws_come_first(gate):
    methods = [method for method, *_ in gate.passed]
    assert methods == sorted(methods, key=["uniform", "release"].index)


CASES = [
    (["ring"], FAILS, "squared", SquaredL2(0.1)),
    (["complete"], {"participation": 0.6}, "logistic", NoPenalty()),
    (["star"], {"dropout": 0.5}, "three", SquaredL2(0.1)),
    (PAIRS, {}, "squared", NoPenalty()),
    ([*PAIRS, "ring"], FAILS, "squared", ElasticNet(0.1, 0.05)),
]


@pytest.mark.parametrize(("graphs", "fails", "loss", "penalty"), CASES)
@pytest.mark.parametrize("weight", [None, 1.1])
def test_duals_change_on_links_that_live_at_both_ends_and_sum_to_zero(
    graphs, fails, loss, penalty, weight
):
    inner, clip, rho, n_rounds = 2, 0.9, 0.1, 10
    task = task_on(graphs, loss, penalty, n_rounds, **fails)
    knobs = {"proximal_weight": weight} if weight else {"step_size": 0.8}
    algorithm = MultiStepADMM(
        inner_steps=inner, clip_norm=clip / 2, penalty_weight=rho, tail_fraction=0.5, **knobs
    )
    _, solution, gate = run(algorithm, task, epsilon=30.0, gate_class=Watched)
    assert_draws_come_first(gate)
    w, v, gamma, anchor = (np.zeros(solution.parameters_per_agent.shape) for _ in range(4))
    # How many were heard in the last round in which anybody was.
    count = task.facts.agents.links_in(0).degrees.copy()
    c = np.ones(N)
    models, points, lengths, sent = [], [], [], 0
    for k, (here, near) in enumerate(rounds_of(task, gate, n_rounds)):
        total = np.zeros(w.shape)
        for s in range(k * inner, (k + 1) * inner):
            models.append(w.copy())
            points.append(v.copy())
            lengths.append(1 / c)
            for a in np.flatnonzero(here):
                noise = clip * gate.noise(s)[a]
                g = agents.summed_gradient(task, a, w[a], clip) + noise
                c[a] = 1 / 0.8 if weight is None else 2 * rho * count[a] + weight
                eta = c[a] - 2 * rho * count[a]
                g *= N / task.facts.n_samples
                v[a] = (eta * w[a] - g + 2 * gamma[a] + anchor[a]) / c[a]
                w[a] = agents.prox_of(task, v[[a]], [1 / c[a]])[0]
            total += w
        mean = total / inner
        for a in range(N):
            for b in near[a]:
                gamma[a] -= rho / 2 * (mean[a] - mean[b])
                sent += 1
            if near[a]:
                count[a], anchor[a] = len(near[a]), sum(rho * (mean[a] + mean[b]) for b in near[a])
        assert np.abs(gamma.sum(axis=0)).max() < 1e-12
    assert solution.n_messages == sent > 10
    if weight is None:
        agents.assert_tail(task, solution, models, points, 0.8)
    elif not penalty.is_sparse:
        close(solution.parameters_per_agent, np.mean(models[n_rounds:], axis=0), 1e-9)


DIRECTED = [
    ([ARCS], {}, "squared", SquaredL2(0.1)),
    ([ARCS, "ring"], {}, "logistic", NoPenalty()),
]


@pytest.mark.parametrize(("graphs", "fails", "loss", "penalty"), [*CASES, *DIRECTED])
def test_descent_mixes_by_the_links_of_each_round_and_pushes_along_arcs(
    graphs, fails, loss, penalty
):
    clip, step, n_rounds = 0.9, 0.3, 10
    task = task_on(graphs, loss, penalty, n_rounds, **fails)
    algorithm = DecentralizedGradientDescent(step_size=step, clip_norm=clip / 2)
    _, solution, gate = run(algorithm, task, epsilon=30.0, gate_class=Watched)
    assert_draws_come_first(gate)
    w, v = (np.zeros(solution.parameters_per_agent.shape) for _ in range(2))
    mass, models, points, sent = np.ones(N), [], [], 0
    for k, (here, near) in enumerate(rounds_of(task, gate, n_rounds)):
        if task.facts.agents.is_directed:
            share = [1 / (1 + len(out)) for out in near]
            weights = np.array(
                [[share[b] * (a in near[b] or a == b) for b in range(N)] for a in range(N)]
            )
            np.testing.assert_allclose(weights.sum(axis=0), 1)
        else:
            weights = np.array(
                [[(b in near[a]) / (1 + max(len(near[a]), len(near[b]))) for b in range(N)]
                 for a in range(N)]
            )  # fmt: skip
            weights += np.diag(1 - weights.sum(axis=1))
        pushed, old = weights @ mass, w.copy()
        for a in np.flatnonzero(here):
            g = agents.summed_gradient(task, a, old[a], clip) + clip * gate.noise(k)[a]
            g *= N / task.facts.n_samples
            mixed = sum(weights[a, b] * mass[b] * old[b] for b in range(N))
            v[a] = (mixed - step * g) / pushed[a]
            w[a] = agents.prox_of(task, v[[a]], [step])[0]
        mass = pushed
        sent += sum(len(out) for out in near)
        models.append(w.copy())
        points.append(v.copy())
    assert mass.sum() == pytest.approx(N)
    assert solution.n_messages == sent > 10
    agents.assert_tail(task, solution, models, points, step)


AGENTS = 12
REGULAR = nx.random_regular_graph(4, AGENTS, seed=1)
CHANGING = [nx.cycle_graph(AGENTS), nx.empty_graph(AGENTS), REGULAR]


def differing(n_agents=AGENTS, n_rows=8):
    """Rows of agents whose own optima differ."""
    rng = np.random.default_rng(0)
    X, owner = rng.uniform(-1, 1, (n_agents * n_rows, 3)), np.repeat(np.arange(n_agents), n_rows)
    own = np.array([1.0, -1.0, 0.5]) + 0.5 * rng.standard_normal((n_agents, 3))
    return X, np.clip(np.einsum("ij,ij->i", X, own[owner]), -3, 3), owner


FREE = {
    "epsilon": math.inf, "alpha": 0.1, "feature_bounds": (-1, 1), "target_bounds": (-3, 3),
    "random_state": 0,
}  # fmt: skip


@pytest.mark.parametrize(
    ("topology", "fails"),
    [
        (REGULAR, {"participation": 0.5}),
        (REGULAR, {"dropout": 0.5}),
        (REGULAR, {"participation": 0.7, "dropout": 0.3}),
        (CHANGING, {}),
        (CHANGING, {"dropout": 0.5}),
        (lambda k: nx.random_regular_graph(2, AGENTS, seed=k), {"participation": 0.8}),
    ],
)
def test_admm_reaches_the_optimum_with_half_of_the_agents_or_links_down(topology, fails):
    X, y, owner = differing()
    exact = DPDecentralizedRegressor(**FREE, topology=topology, **fails).fit(X, y, agents=owner)
    assert exact.n_messages_ == 0
    algorithm = MultiStepADMM(inner_steps=1, tail_fraction=1e-9)
    model = DPDecentralizedRegressor(
        **FREE, topology=topology, algorithm=algorithm, max_iter=700, **fails
    ).fit(X, y, agents=owner)
    close(model.coef_per_agent_, np.tile(exact.coef_, (AGENTS, 1)), 1e-9)


@pytest.mark.parametrize(
    ("topology", "fails", "error"),
    [
        ("complete", {"participation": 0.5}, 0.02),
        pytest.param(CHANGING, {"dropout": 0.3}, 0.02, marks=pytest.mark.slow),
        (nx.DiGraph([(i, (i + d) % AGENTS) for i in range(AGENTS) for d in (1, 3)]), {}, 0.02),
        pytest.param(
            nx.DiGraph([*nx.cycle_graph(AGENTS, nx.DiGraph).edges, (0, 5), (2, 9), (7, 1)]),
            {},
            0.03,
            marks=pytest.mark.slow,
        ),
    ],
)
def test_descent_comes_close_to_the_optimum_and_shorter_steps_closer(topology, fails, error):
    X, y, owner = differing()
    exact = DPDecentralizedRegressor(**FREE).fit(X, y, agents=owner)
    off = []
    for step, n_rounds in ((0.1, 200), (0.02, 1500)):
        algorithm = DecentralizedGradientDescent(step_size=step)
        model = DPDecentralizedRegressor(
            **FREE, topology=topology, algorithm=algorithm, max_iter=n_rounds, **fails
        ).fit(X, y, agents=owner)
        off.append(np.abs(model.coef_ - exact.coef_).max())
    assert off[1] < min(off[0], error)


@pytest.mark.parametrize("algorithm", [MultiStepADMM(), DecentralizedGradientDescent()])
@pytest.mark.parametrize("batches", [1.0, 0.5])
def test_absences_change_no_release_and_no_guarantee(algorithm, batches):
    known = {
        "topology": "ring", "algorithm": algorithm.set_params(batch_fraction=batches),
        "feature_bounds": (-1, 1), "coalition": 2, "adversary": "peer",
    }  # fmt: skip
    sizes = {"n_samples": 2000, "n_features": 3, "agent_sizes": [400] * N}
    plan = DPDecentralizedRegressor(**known).plan(**sizes)
    for fails in (FAILS, {"dropout": 0.9}, {"topology": [*PAIRS, "ring"]}):
        failing = DPDecentralizedRegressor(**(known | fails)).plan(**sizes)
        assert failing.releases == plan.releases
        assert failing.settings == plan.settings or "topology" in fails
        for observer in plan.observers:
            assert failing.guarantees(observer) == plan.guarantees(observer)
        assert failing.digest() != plan.digest()
        words = " ".join(failing.assumptions)
        absent = "Who is absent, and which links fail, does not depend on data." in words
        assert absent == ("topology" not in fails)


@pytest.mark.parametrize("algorithm", [MultiStepADMM(), DecentralizedGradientDescent()])
def test_noise_of_an_absent_agent_is_counted_and_never_used(algorithm):
    class Loud(Watched):
        """Far more noise for whoever is absent in the first round."""

        def deliver(self, method, release, repetition, value, out, *more):
            out = super().deliver(method, release, repetition, value, out, *more)
            if method == "release" and len(self.passed) == 1 + len(self.drawn):
                out = out + self.loud * (self.drawn[0][0] >= 0.5)[:, None, None]
            return out

    found = []
    for loud in (0.0, 1e6):
        task = task_on(["complete"], participation=0.5)
        _, solution, gate = run(algorithm, task, gate_class=type("L", (Loud,), {"loud": loud}))
        found.append(solution.parameters_per_agent)
        assert not (gate.drawn[0] < 0.5).all()
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize("name", sorted(algorithms.ALGORITHMS))
def test_other_algorithms_refuse_graphs_that_fail_change_or_are_directed(name):
    kind = algorithms.ALGORITHMS[name]
    if kind.setting != "decentralized" and "decentralized" not in kind.setting:
        return
    arcs = nx.DiGraph([(0, 1), (1, 2), (2, 0)])
    pairs = [nx.Graph([(0, 1)]), nx.Graph([(1, 2)])]
    for graph in pairs:
        graph.add_nodes_from(range(3))
    cases = {
        "absences": {"participation": 0.9}, "changes": {"topology": pairs},
        "directions": {"topology": arcs},
    }  # fmt: skip
    for need, more in cases.items():
        model = DPDecentralizedRegressor(algorithm=name, feature_bounds=(-1, 1), **more)
        if need in kind.supports:
            assert model.plan(300, 2, [100] * 3).guarantee().epsilon(1e-5) <= 1
            continue
        with pytest.raises(ValueError, match=f"^Got a graph with {need} for .*, expected one und"):
            model.plan(300, 2, [100] * 3)


def test_directed_graphs_without_a_theorem_or_a_stable_step_are_refused():
    ring = [(i, (i + 1) % 20) for i in range(20)]
    hub = nx.DiGraph([*ring, *((i, 0) for i in range(1, 19))])
    known = {"algorithm": "decentralized-gradient-descent", "feature_bounds": (-1, 1)}
    for more, message in [
        ({"topology": hub}, "the mass of an agent falls to .* of the average, expected at least"),
        ({"topology": nx.DiGraph(ring), "dropout": 0.1}, "directed graph with participation < 1"),
        ({"topology": nx.DiGraph(ring[:-1])}, r"agents \[19\] do not reach, or are not reached"),
        ({"dropout": 0.1, "algorithm": DecentralizedGradientDescent(mixing="laplacian")},
         "Got mixing='laplacian' for a graph with absences, expected 'metropolis'"),
        ({"topology": PAIRS[::2]}, "Got graphs of rounds over which agents"),
    ]:  # fmt: skip
        n_agents = 5 if more.get("topology") == PAIRS[::2] else 20
        with pytest.raises(ValueError, match=message):
            DPDecentralizedRegressor(**(known | more)).plan(2000, 2, [2000 // n_agents] * n_agents)


def test_graphs_of_rounds_can_be_given_in_many_forms():
    labels = ["a", "b", "c"]
    sizes = {"n_samples": 300, "n_features": 2, "agent_sizes": dict.fromkeys(labels, 100)}

    def agents_of(topology, max_iter=4):
        model = DPDecentralizedRegressor(
            topology=topology, max_iter=max_iter, feature_bounds=(-1, 1),
            algorithm="decentralized-gradient-descent",
        )  # fmt: skip
        return model.plan(**sizes).facts.agents

    one, other = nx.Graph([("a", "b")]), nx.Graph([("c", "b")])
    one.add_node("c")
    other.add_node("a")
    matrices = [nx.to_numpy_array(graph, labels) for graph in (one, other)]
    frames = [nx.to_pandas_adjacency(graph) for graph in (one, other)]
    turns = agents_of([one, other])
    for same in (matrices, tuple(frames), [m.tolist() for m in matrices], [one, matrices[1]]):
        assert agents_of(same) == turns
    assert agents_of(lambda k: (one, other)[k % 2]).graphs == 2 * turns.graphs
    assert turns.topology == agents_of("path").topology
    # One graph for all rounds is no graph that changes, and directions that all go back are none.
    path = nx.path_graph(labels)
    for same in (path, [path], path.to_directed(), nx.to_numpy_array(path).tolist(), "path"):
        assert agents_of(same) == agents_of("path")
    assert agents_of(["path"] * 3) == agents_of(lambda k: "path") == agents_of("path")
    assert agents_of(nx.DiGraph(["ab", "bc", "ca"])).needs == ("directions",)
    assert agents_of([one, nx.DiGraph(["ab", "bc", "ca"])]).needs == ("changes", "directions")
    with pytest.raises(ValueError, match="no node for agents"):
        agents_of(lambda k: [path, nx.Graph(["ab"])][k // 3])
