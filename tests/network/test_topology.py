"""Graphs of agents: named, given, refused; mixing weights and walks on them."""

from __future__ import annotations

import pickle
import re
import subprocess
import sys
from itertools import pairwise

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from skdpadmm.network import (
    TOPOLOGIES,
    Topology,
    check_mixing,
    draw_walk,
    mixing_matrix,
    named_graph,
    resolve_topology,
)

SIZES = [1, 2, 3, 4, 5, 10, 16, 37]
RULES = ["metropolis", "max_degree", "laplacian"]
few = settings(max_examples=25, deadline=None)


def named(name, n, seed=0):
    return resolve_topology(name, np.arange(n), seed=seed)


def sizes_of(name):
    return [n for n in SIZES if name != "hypercube" or n.bit_count() == 1]


EVERY = [(name, n) for name in TOPOLOGIES for n in sizes_of(name)]


@st.composite
def topologies(draw):
    n = draw(st.integers(1, 12))
    parents = [draw(st.integers(0, i - 1)) for i in range(1, n)]
    agent = st.integers(0, n - 1)
    extra = draw(st.lists(st.tuples(agent, agent).filter(lambda p: p[0] != p[1]), max_size=20))
    pairs = [*zip(range(1, n), parents, strict=True), *(extra if n > 1 else [])]
    return Topology(n_agents=n, pairs=np.array(pairs, dtype=np.intp).reshape(-1, 2))


@pytest.mark.parametrize(("name", "n"), EVERY)
def test_every_name_gives_a_connected_simple_graph_that_mixes(name, n):
    topology = named(name, n)
    graph = nx.from_scipy_sparse_array(topology.adjacency)
    assert nx.is_connected(graph)
    assert nx.number_of_selfloops(graph) == 0
    assert topology.n_edges == len(topology.edges) == graph.number_of_edges()
    assert topology.degrees.tolist() == [graph.degree[i] for i in range(n)]
    assert topology.name == name
    same = Topology(n_agents=n, pairs=np.array(named_graph(name, n).edges).reshape(-1, 2))
    assert same == topology
    assert 0 < mixing_matrix(topology).spectral_gap <= 1


def isomorphic(topology, graph):
    return nx.is_isomorphic(nx.from_scipy_sparse_array(topology.adjacency), graph)


@pytest.mark.parametrize(
    ("name", "n", "graph"),
    [
        ("complete", 5, nx.complete_graph(5)),
        ("ring", 6, nx.cycle_graph(6)),
        ("star", 6, nx.star_graph(5)),
        ("path", 6, nx.path_graph(6)),
        ("grid", 12, nx.grid_2d_graph(3, 4)),
        ("grid", 7, nx.path_graph(7)),
        ("torus", 12, nx.grid_2d_graph(3, 4, periodic=True)),
        ("torus", 7, nx.cycle_graph(7)),
        ("hypercube", 8, nx.hypercube_graph(3)),
    ],
)
def test_fixed_graphs_are_what_their_name_says(name, n, graph):
    assert isomorphic(named(name, n), graph)


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_two_agents_share_one_edge_whatever_the_name(name):
    assert named(name, 2).edges.tolist() == [[0, 1]]
    assert named(name, 2) == named("complete", 2)
    assert named(name, 1).n_edges == 0


@pytest.mark.parametrize("degree", [3, 4, 8, 9])
def test_regular_graphs_have_the_degree_asked_for(degree):
    assert set(dict(named_graph("regular", 10, degree=degree).degree).values()) == {degree}


def test_parameters_reach_the_graphs():
    assert named_graph("erdos-renyi", 9, probability=1).number_of_edges() == 36
    assert named_graph("watts-strogatz", 9, degree=2, rewiring=0.0).number_of_edges() == 9
    assert named_graph("barabasi-albert", 9, links=1).number_of_edges() == 8
    assert named_graph("random-geometric", 9, radius=2.0).number_of_edges() == 36
    assert named_graph("grid", 12, shape=(2, 2, 3)).number_of_edges() == 20


def test_random_graphs_are_functions_of_the_seed_in_every_process():
    names = ["regular", "erdos-renyi", "watts-strogatz", "barabasi-albert", "random-geometric"]
    code = (
        "import numpy as np; from skdpadmm.network import resolve_topology as r\n"
        f"print(*[r(name, np.arange(30), seed=3).fingerprint for name in {names}])"
    )
    elsewhere = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout.split()
    assert elsewhere == [named(name, 30, seed=3).fingerprint for name in names]
    assert all(named(name, 30, seed=3) != named(name, 30, seed=4) for name in names)


def test_networkx_is_imported_only_when_a_random_graph_is_drawn():
    code = (
        "import sys, numpy as np, skdpadmm\n"
        "from skdpadmm.network import resolve_topology\n"
        "resolve_topology('torus', np.arange(12))\n"
        "assert 'networkx' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("name", "n", "parameters", "message"),
    [
        ("mesh", 4, {}, "Got topology='mesh', expected one of"),
        ("ring", 0, {}, "Got n_agents=0, expected an int at least 1"),
        ("ring", 4, {"degree": 2}, "'degree' for the graph 'ring', expected none"),
        ("regular", 4, {"links": 2}, "expected one of ['degree']"),
        ("hypercube", 10, {}, "expected a power of two, such as 8 or 16"),
        ("grid", 6, {"shape": (2, 2)}, "expected a tuple of positive ints with product 6"),
        ("grid", 6, {"shape": 6}, "Got shape=6"),
        ("regular", 5, {"degree": 3}, "even product of n_agents=5 and degree"),
        ("regular", 5, {"degree": 5}, "in [2, 4]"),
        ("regular", 5, {"degree": True}, "Got degree=True"),
        ("watts-strogatz", 8, {"degree": 3}, "even and in [2, 7]"),
        ("watts-strogatz", 8, {"rewiring": 1.5}, "Got rewiring=1.5, expected a float in [0, 1]"),
        ("barabasi-albert", 8, {"links": 8}, "in [1, 7]"),
        ("erdos-renyi", 8, {"probability": float("nan")}, "Got probability=nan"),
        ("random-geometric", 8, {"radius": 0}, "Got radius=0"),
        ("random-geometric", 8, {"radius": 1e-9}, "none of them connected"),
        ("erdos-renyi", 8, {"probability": 0.0, "seed": -1}, "Got seed=-1"),
    ],
)
def test_names_and_parameters_that_make_no_graph_are_refused(name, n, parameters, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        named_graph(name, n, **parameters)


def test_equality_is_that_of_agents_and_edges_and_not_of_names():
    ring = named("ring", 5)
    same = Topology(n_agents=5, pairs=np.array([[4, 0], [3, 4], [1, 2], [1, 0], [3, 2], [2, 3]]))
    assert ring == same
    assert hash(ring) == hash(same)
    assert ring != named("path", 5)
    assert ring != named("ring", 6)
    assert pickle.loads(pickle.dumps(ring)) == ring


def test_a_complete_graph_is_the_same_however_it_is_given():
    complete = named("complete", 4)
    ones = 1 - np.eye(4)
    for given_as in [nx.complete_graph(4), ones, sparse.csr_array(ones), "complete"]:
        topology = resolve_topology(given_as, np.arange(4))
        assert topology == complete
        assert topology.is_complete
    assert not named("ring", 4).is_complete


def test_ten_thousand_complete_agents_need_no_edges():
    topology = named("complete", 10_000)
    values = np.arange(10_000.0)[:, None]
    np.testing.assert_allclose(topology.neighbor_sum(values), values.sum() - values)
    mixing = mixing_matrix(topology)
    np.testing.assert_allclose(mixing.dot(values), values.mean())
    assert mixing.spectral_gap == 1
    assert topology.n_edges == 49_995_000
    assert "edges" not in vars(topology)


def test_arrays_of_a_topology_are_read_only():
    for topology in [named("ring", 5), named("complete", 5)]:
        with pytest.raises(ValueError, match="read-only"):
            topology.edges[0, 0] = 3
        with pytest.raises(ValueError, match="read-only"):
            topology.degrees[0] = 3


def test_nodes_of_a_graph_are_labels_or_positions():
    labels = np.array(["a", "b", "c"])
    by_label = resolve_topology(nx.Graph([("c", "a"), ("c", "b")]), labels)
    by_position = resolve_topology(nx.Graph([(2, 0), (2, 1)]), labels)
    assert by_label == by_position
    assert by_label.degrees.tolist() == [1, 1, 2]
    shifted = resolve_topology(nx.Graph([(1, 2), (2, 3)]), np.array([1, 2, 3]))
    assert shifted.degrees.tolist() == [1, 2, 1]


def test_a_matrix_counts_by_its_non_zero_entries():
    matrix = np.array([[0, 0.2, 0], [7, 0, 1], [0, 3, 0]])
    path = named("path", 3)
    assert resolve_topology(matrix, np.arange(3)) == path
    stored_zero = sparse.coo_array(([1, 1, 2, 2, 0], ([0, 1, 1, 2, 0], [1, 0, 2, 1, 2])))
    assert resolve_topology(stored_zero, np.arange(3)) == path
    assert resolve_topology((matrix != 0).tolist(), np.arange(3)) == path
    assert resolve_topology([[0]], np.array(["only"])).n_agents == 1
    assert np.array_equal(matrix, [[0, 0.2, 0], [7, 0, 1], [0, 3, 0]])


LABELS = np.array(["a", "b", "c"])


@pytest.mark.parametrize(
    ("topology", "message"),
    [
        ("mesh", "Got topology='mesh', expected one of"),
        ("hypercube", "Got 3 agents for a hypercube"),
        (None, "Got topology=None"),
        (3, "Got topology=3"),
        ([1, 2, 3], "expected one of"),
        ([[1], [1, 2]], "Got topology that is no matrix"),
        (np.ones((2, 2)), "Got topology of shape (2, 2), expected shape (3, 3)"),
        (np.ones((2, 3)), "Got topology of shape (2, 3)"),
        (np.eye(3), "self loops at ['a', 'b', 'c']"),
        (np.array([[0, 1, 0], [0, 0, 1], [0, 1, 0]]), "links agents ['a', 'b'] in one direction"),
        (np.array([[0, np.nan, 1], [1, 0, 1], [1, 1, 0]]), "NaN or infinite"),
        (np.array([[0, np.inf, 1], [1, 0, 1], [1, 1, 0]]), "NaN or infinite"),
        (np.array([["x"] * 3] * 3), "dtype <U1, expected a matrix of real numbers"),
        (np.ones((3, 3), dtype=complex), "dtype complex128"),
        (np.zeros((3, 3)), "3 components, agents without a neighbour: ['a', 'b', 'c']"),
        (np.array([[0, 1, 0], [1, 0, 0], [0, 0, 0]]), "without a neighbour: ['c']"),
        (nx.DiGraph([("a", "b"), ("b", "c")]), "Got a directed graph"),
        (nx.MultiGraph([("a", "b"), ("b", "c")]), "Got a multigraph"),
        (nx.Graph([("a", "b"), ("b", "x")]), "without agents ['c'] and with unknown nodes ['x']"),
        (nx.Graph([("a", "b")]), "Got a topology of 2 nodes for 3 agents, ['a', 'b', 'c']"),
        (nx.Graph([("a", "b"), ("b", "c"), ("c", "c")]), "self loops at ['c']"),
    ],
)
def test_what_is_no_connected_graph_of_the_agents_is_refused(topology, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        resolve_topology(topology, LABELS)


def test_components_are_counted_and_a_long_list_of_agents_is_cut():
    two = nx.disjoint_union(nx.path_graph(3), nx.path_graph(2))
    with pytest.raises(ValueError, match="2 components, expected a connected graph"):
        resolve_topology(two, np.arange(5))
    with pytest.raises(ValueError, match=re.escape("[0, 1, 2, 3, 4] and 3 more")):
        resolve_topology(np.zeros((8, 8)), np.arange(8))


@pytest.mark.parametrize(
    ("n", "pairs", "message"),
    [
        (0, None, "Got n_agents=0"),
        (3, [0, 1], "Got pairs of shape (2,)"),
        (3, [[0, 1], [1, 3]], "expected agents in [0, 3)"),
        (2, [[0, 1], [1, 1]], "self loops at [1]"),
        (3, [[0, 1]], "2 components, agents without a neighbour: [2]"),
    ],
)
def test_a_topology_cannot_be_made_of_wrong_pairs(n, pairs, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        Topology(n_agents=n, pairs=pairs if pairs is None else np.array(pairs))


def test_the_description_says_size_and_degrees():
    assert named("ring", 5).describe() == "ring, 5 edges, degree 2"
    assert named("path", 2).describe() == "path, 1 edge, degree 1"


@few
@given(topology=topologies(), trailing=st.sampled_from([(), (2,), (2, 3), (0,)]))
def test_the_sum_over_neighbours_is_a_product_with_the_adjacency(topology, trailing):
    values = np.random.default_rng(0).standard_normal((topology.n_agents, *trailing))
    expected = np.tensordot(topology.adjacency.toarray(), values, axes=1)
    result = topology.neighbor_sum(values)
    assert result.shape == values.shape
    np.testing.assert_allclose(result, expected, atol=1e-12)
    assert np.array_equal(result, topology.neighbor_sum(np.asfortranarray(values)))


@few
@given(topology=topologies(), data=st.data())
def test_relabelling_agents_relabels_sums_distances_and_mixing(topology, data):
    n = topology.n_agents
    order = np.array(data.draw(st.permutations(range(n))))
    moved = Topology(n_agents=n, pairs=order[topology.edges])
    values = np.arange(1.0, n + 1)
    shuffled = np.empty(n)
    shuffled[order] = values
    np.testing.assert_allclose(moved.neighbor_sum(shuffled)[order], topology.neighbor_sum(values))
    agent = data.draw(st.integers(0, n - 1))
    hops = moved.distances_from(int(order[agent]))
    assert hops[order].tolist() == topology.distances_from(agent).tolist()
    for rule in RULES:
        mixed = mixing_matrix(moved, rule).dot(shuffled)
        np.testing.assert_allclose(mixed[order], mixing_matrix(topology, rule).dot(values))


@few
@given(topology=topologies())
def test_distances_are_lengths_of_shortest_paths(topology):
    graph = nx.from_scipy_sparse_array(topology.adjacency)
    expected = nx.single_source_shortest_path_length(graph, 0)
    assert topology.distances_from(0).tolist() == [expected[i] for i in range(topology.n_agents)]


@pytest.mark.parametrize("agent", [-1, 5])
def test_distances_from_nobody_are_refused(agent):
    with pytest.raises(IndexError, match=f"Got agent={agent}, expected an int in"):
        named("ring", 5).distances_from(agent)


def test_values_without_an_entry_for_each_agent_are_refused():
    for wrong in [np.ones(4), np.float64(1.0)]:
        with pytest.raises(ValueError, match=re.escape("expected (5, ...)")):
            named("ring", 5).neighbor_sum(wrong)


@few
@given(topology=topologies(), rule=st.sampled_from(RULES))
def test_named_weights_are_symmetric_sum_to_one_and_mix(topology, rule):
    mixing = mixing_matrix(topology, rule)
    weights = mixing.to_sparse().toarray()
    n = topology.n_agents
    np.testing.assert_array_equal(weights, weights.T)
    np.testing.assert_allclose(weights.sum(axis=1), 1.0, atol=1e-12)
    off = weights - np.diag(np.diag(weights))
    assert np.array_equal(off > 0, topology.adjacency.toarray() > 0)
    if rule != "laplacian":
        assert weights.min() >= 0
    moduli = np.sort(np.abs(np.linalg.eigvalsh(weights - 1 / n)))
    np.testing.assert_allclose(mixing.spectral_gap, 1 - moduli[-1], atol=1e-9)
    assert 0 < mixing.spectral_gap <= 1
    values = np.random.default_rng(1).standard_normal((n, 2))
    np.testing.assert_allclose(mixing.dot(values), weights @ values, atol=1e-12)
    away = np.linalg.norm(mixing.dot(values) - values.mean(axis=0))
    before = np.linalg.norm(values - values.mean(axis=0))
    assert away <= (1 - mixing.spectral_gap) * before + 1e-9


def test_metropolis_weights_of_a_star_are_those_of_the_formula():
    weights = mixing_matrix(named("star", 4)).to_sparse().toarray()
    np.testing.assert_allclose(weights[0], 0.25)
    np.testing.assert_allclose(np.diag(weights), [0.25, 0.75, 0.75, 0.75])


@pytest.mark.parametrize("name", ["ring", "path", "star", "regular", "erdos-renyi"])
def test_no_constant_weight_mixes_faster_than_the_laplacian_rule(name):
    topology = named(name, 12)
    laplacian = np.diag(topology.degrees) - topology.adjacency.toarray()
    best = mixing_matrix(topology, "laplacian").spectral_gap
    for weight in np.linspace(0.01, 0.6, 60):
        moduli = np.abs(np.linalg.eigvalsh(np.eye(12) - weight * laplacian - 1 / 12))
        assert 1 - moduli.max() <= best + 1e-8


@pytest.mark.parametrize("n", [199, 200, 201, 2000])
def test_the_gap_of_a_ring_is_that_of_the_closed_form_at_every_size(n):
    gap = mixing_matrix(named("ring", n)).spectral_gap
    assert gap == pytest.approx(2 / 3 * (1 - np.cos(2 * np.pi / n)), rel=1e-6)


@pytest.mark.parametrize("name", ["regular", "grid", "star"])
def test_gaps_of_large_graphs_agree_with_dense_eigenvalues(name):
    mixing = mixing_matrix(named(name, 256))
    moduli = np.abs(np.linalg.eigvalsh(mixing.to_sparse().toarray() - 1 / 256))
    assert mixing.spectral_gap == pytest.approx(1 - moduli.max(), rel=1e-6)


def test_a_matrix_that_is_handed_out_can_be_changed_without_harm():
    mixing = mixing_matrix(named("ring", 5))
    mixing.to_sparse().data[:] = 0
    np.testing.assert_allclose(mixing.dot(np.ones(5)), 1.0)


LAZY_PATH = [[0.75, 0.25, 0], [0.25, 0.5, 0.25], [0, 0.25, 0.75]]


def test_own_weights_mix_and_compare_by_value():
    path = named("path", 3)
    own = mixing_matrix(path, LAZY_PATH)
    np.testing.assert_allclose(own.dot(np.array([4.0, 0, 0])), [3, 1, 0])
    assert own.spectral_gap == pytest.approx(0.25)
    assert own == mixing_matrix(path, sparse.coo_array(LAZY_PATH))
    assert hash(own) == hash(mixing_matrix(path, np.array(LAZY_PATH)))
    assert own != mixing_matrix(path, "metropolis")
    assert own != mixing_matrix(path, mixing_matrix(path, "metropolis").to_sparse())


def test_own_weights_may_leave_out_edges_of_a_complete_graph():
    weights = mixing_matrix(named("ring", 6)).to_sparse()
    mixing = mixing_matrix(named("complete", 6), weights)
    assert mixing.spectral_gap == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (np.eye(2), "Got mixing of shape (2, 2), expected shape (3, 3)"),
        (5.0, "Got mixing=5.0, expected 'metropolis'"),
        ([[0.5, 0.5, 0], [0.2, 0.3, 0.5], [0, 0.5, 0.5]], "not symmetric"),
        ([[1.5, -0.5, 0], [-0.5, 1, 0.5], [0, 0.5, 0.5]], "a mixing weight of -0.5"),
        ([[0.5, 0.2, 0], [0.2, 0.5, 0.2], [0, 0.2, 0.5]], "sum of 0.7 in row 0"),
        (np.full((3, 3), 1 / 3), "between agents 0 and 2, which are not linked"),
        (np.eye(3), "not connected"),
        ([[0.5, 0.5, 0], [0.5, 0.5, 0], [0, 0, 1]], "not connected"),
        ([[np.nan, 0, 0], [0, 1, 0], [0, 0, 1]], "NaN or infinite"),
    ],
)
def test_weights_that_do_not_average_over_the_graph_are_refused(matrix, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        check_mixing(matrix, named("path", 3))


@pytest.mark.parametrize("n", [4, 502])
def test_weights_that_swing_between_two_halves_are_refused(n):
    ring = named("ring", n)
    with pytest.raises(ValueError, match="second largest eigenvalue of modulus 1,"):
        mixing_matrix(ring, ring.adjacency / 2)


def test_a_large_matrix_of_two_separate_halves_is_refused():
    half = mixing_matrix(named("ring", 300)).to_sparse()
    with pytest.raises(ValueError, match="not connected"):
        mixing_matrix(named("complete", 600), sparse.block_diag([half, half]))


def test_an_unknown_rule_is_refused():
    with pytest.raises(ValueError, match="Got mixing='uniform', expected one of"):
        mixing_matrix(named("ring", 5), "uniform")


@few
@given(topology=topologies())
def test_a_hop_follows_the_row_of_the_metropolis_matrix(topology):
    n, steps = topology.n_agents, 4000
    weights = mixing_matrix(topology).to_sparse().toarray()
    numbers = (np.arange(steps) + 0.5) / steps
    start = n - 1
    place = (start + 0.5) / n
    reached = [int(draw_walk(topology, 1, np.array([place, u]))[0]) for u in numbers]
    shares = np.bincount(reached, minlength=n) / steps
    np.testing.assert_allclose(shares, weights[start], atol=2 / steps)


@pytest.mark.parametrize("name", ["complete", "ring", "star", "path", "barabasi-albert"])
def test_every_holder_of_the_token_has_the_uniform_law(name):
    topology, n_walks = named(name, 7), 3000
    rng = np.random.default_rng(5)
    walks = np.array([draw_walk(topology, 6, rng.random(7)) for _ in range(n_walks)])
    for holders in walks.T:
        counts = np.bincount(holders, minlength=7)
        statistic = ((counts - n_walks / 7) ** 2 / (n_walks / 7)).sum()
        assert statistic < 29.9  # chi-square with 6 degrees of freedom, 4e-5


@few
@given(topology=topologies(), seed=st.integers(0, 100))
def test_a_walk_stays_or_goes_to_a_neighbour_and_is_a_function_of_its_numbers(topology, seed):
    numbers = np.random.default_rng(seed).random(31)
    walk = draw_walk(topology, 30, numbers)
    assert walk.dtype == np.intp
    assert np.array_equal(walk, draw_walk(topology, 30, numbers))
    allowed = topology.adjacency.toarray() + np.eye(topology.n_agents)
    assert all(allowed[a, b] for a, b in pairwise(walk.tolist()))


def test_walks_of_no_hop_and_at_the_ends_of_the_unit_interval():
    almost_one = np.nextafter(1.0, 0.0)
    for name in ["ring", "star", "complete"]:
        topology = named(name, 9)
        assert draw_walk(topology, 0, np.array([0.3])).shape == (0,)
        for number in [0.0, almost_one]:
            walk = draw_walk(topology, 4, np.full(5, number))
            assert walk.min() >= 0
            assert walk.max() <= 8
    assert draw_walk(named("ring", 1), 2, np.full(3, 0.9)).tolist() == [0, 0]


@pytest.mark.parametrize(
    ("uniforms", "message"),
    [
        (np.zeros(3), "Got uniforms of shape (3,), expected shape (4,)"),
        (np.array([0, 0, 1.0, 0]), "outside [0, 1)"),
        (np.array([0, 0, np.nan, 0]), "outside [0, 1)"),
    ],
)
def test_numbers_that_are_no_uniforms_of_the_walk_are_refused(uniforms, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        draw_walk(named("ring", 5), 3, uniforms)


def test_a_data_frame_is_brought_into_the_order_of_the_agents():
    pandas = pytest.importorskip("pandas")
    labels = np.array(["a", "b", "c", "d"])
    star = pandas.DataFrame(0, index=list("dbca"), columns=list("cabd"))
    star.loc["d"], star["d"] = 1, 1
    star.loc["d", "d"] = 0
    assert resolve_topology(star, labels).degrees.tolist() == [1, 1, 1, 3]
    plain = pandas.DataFrame(star.loc[list("abcd"), list("abcd")].to_numpy())
    assert resolve_topology(plain, labels).degrees.tolist() == [1, 1, 1, 3]
    with pytest.raises(ValueError, match=r"^Got a topology with rows .* labels of the agents"):
        resolve_topology(star.rename(index={"a": "x"}), labels)


def test_numbers_that_are_no_labels_are_not_taken_for_positions():
    graph = nx.star_graph(3)  # 0, ..., 3, its hub is 0
    assert resolve_topology(graph, np.array(list("abcd"))).degrees.tolist() == [3, 1, 1, 1]
    assert resolve_topology(graph, np.arange(4)).degrees.tolist() == [3, 1, 1, 1]
    with pytest.raises(ValueError, match=r"^Got a topology without agents \[4\]"):
        resolve_topology(graph, np.array([1, 2, 3, 4]))


def test_negative_entries_are_refused():
    with pytest.raises(ValueError, match=r"^Got a topology with negative entries"):
        resolve_topology(np.array([[0.0, -1.0], [-1.0, 0.0]]), np.arange(2))
