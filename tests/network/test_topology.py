"""Graphs of agents, mixing weights and walks on them."""

import pickle
import re

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skdpadmm.network import (
    TOPOLOGIES,
    Topology,
    draw_walk,
    mixing_matrix,
    named_graph,
    resolve_topology,
)

few = settings(max_examples=25)


def named(name, n, seed=0):
    return resolve_topology(name, np.arange(n), seed=seed)


def graph_of(topology):
    return nx.from_scipy_sparse_array(topology.adjacency)


@st.composite
def topologies(draw):
    """A random tree, and other edges."""
    n = draw(st.integers(1, 12))
    tree = [(draw(st.integers(0, i - 1)), i) for i in range(1, n)]
    agent = st.integers(0, n - 1)
    extra = draw(st.lists(st.tuples(agent, agent), max_size=20))
    pairs = [*tree, *(pair for pair in extra if pair[0] != pair[1])]
    return Topology(n_agents=n, pairs=np.array(pairs, dtype=np.intp).reshape(-1, 2))


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_every_name_gives_a_connected_simple_graph_that_mixes(name):
    for n in (1, 2, 4, 16) if name == "hypercube" else (1, 2, 3, 4, 5, 16, 37):
        topology, graph = named(name, n), named_graph(name, n)
        assert nx.is_connected(graph)
        assert nx.number_of_selfloops(graph) == 0
        assert nx.utils.edges_equal(graph_of(topology).edges, graph.edges)
        assert topology.n_edges == len(topology.edges) == graph.number_of_edges()
        assert topology.degrees.tolist() == [graph.degree[i] for i in range(n)]
        assert topology.name == name
        assert 0 < mixing_matrix(topology).spectral_gap <= 1
    assert named(name, 2) == named("complete", 2)


def test_lattices_are_the_most_square_ones():
    assert nx.is_isomorphic(named_graph("grid", 12), nx.grid_2d_graph(4, 3))
    assert nx.is_isomorphic(named_graph("torus", 12), nx.grid_2d_graph(4, 3, periodic=True))


@pytest.mark.parametrize(
    ("name", "n", "message"),
    [("mesh", 6, "Got topology='mesh', expected one of"), ("hypercube", 6, "such as 4")],
)
def test_names_and_numbers_of_agents_that_make_no_graph_are_refused(name, n, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        named_graph(name, n)


def test_random_graphs_are_drawn_again_until_one_is_connected(monkeypatch):
    graphs = [nx.empty_graph(4)] * 3 + [nx.cycle_graph(4)]
    monkeypatch.setattr(nx, "barabasi_albert_graph", lambda *_: graphs.pop(0))
    assert named_graph("barabasi-albert", 4).number_of_edges() == 4
    monkeypatch.setattr(nx, "barabasi_albert_graph", lambda *_: nx.empty_graph(4))
    with pytest.raises(ValueError, match=r"100 draws .* none of them connected"):
        named_graph("barabasi-albert", 4)


def test_equality_is_that_of_agents_and_edges_and_not_of_names():
    ring = named("ring", 5)
    same = Topology(n_agents=5, pairs=np.array([[4, 0], [3, 4], [1, 2], [1, 0], [3, 2], [2, 3]]))
    assert ring == same == pickle.loads(pickle.dumps(ring))
    assert hash(ring) == hash(same)
    assert named("path", 5) != ring != named("ring", 6)
    assert ring.describe() == "ring, 5 edges, degree 2"
    with pytest.raises(ValueError, match="read-only"):
        ring.edges[0] = 3


def test_ten_thousand_complete_agents_need_no_edges():
    topology, values = named("complete", 10_000), np.arange(10_000.0)[:, None]
    np.testing.assert_allclose(topology.neighbor_sum(values), values.sum() - values)
    np.testing.assert_allclose(mixing_matrix(topology).dot(values), values.mean())
    assert (mixing_matrix(topology).spectral_gap, topology.n_edges) == (1, 49_995_000)
    assert "edges" not in vars(topology)


@few
@given(topology=topologies(), trailing=st.sampled_from([(), (2,), (2, 3), (0,)]))
def test_sums_and_distances_are_those_of_the_adjacency(topology, trailing):
    n, graph = topology.n_agents, graph_of(topology)
    values = np.random.default_rng(0).standard_normal((n, *trailing))
    expected = np.tensordot(nx.to_numpy_array(graph), values, axes=1)
    for same in (values, np.asfortranarray(values)):
        np.testing.assert_allclose(topology.neighbor_sum(same), expected, atol=1e-12)
    hops = nx.single_source_shortest_path_length(graph, 0)
    assert topology.distances_from(0).tolist() == [hops[i] for i in range(n)]


RING = named("ring", 5)


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda: Topology(n_agents=3, pairs=[[0, 1], [1, 3]]), "exceeds matrix dimension 3"),
        (lambda: RING.neighbor_sum(np.ones(4)), "expected (5, ...)"),
        (lambda: mixing_matrix(named("ring", 4), named("ring", 4).adjacency / 2), "of modulus 1,"),
    ],
)
def test_what_is_not_of_the_graph_is_refused(use, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        use()


@few
@given(topology=topologies())
def test_named_weights_are_those_of_the_formulas_doubly_stochastic_and_mix_by_their_gap(topology):
    n, linked, d = topology.n_agents, topology.adjacency.toarray(), topology.degrees
    laplacian = np.linalg.eigvalsh(np.diag(d) - linked)
    links = {
        "metropolis": 1 / (1 + np.maximum.outer(d, d)),
        "max_degree": 1 / (1 + d.max()),
        "laplacian": 2 / (laplacian[1] + laplacian[-1]) if n > 1 else 1,
    }
    for rule, link in links.items():
        mixing = mixing_matrix(topology, rule)
        weights = mixing.to_sparse().toarray()
        np.testing.assert_array_equal(weights, weights.T)
        np.testing.assert_allclose(weights.sum(axis=1), 1.0, atol=1e-12)
        own = np.diag(np.diag(weights))
        np.testing.assert_allclose(weights - own, linked * link, rtol=1e-9, atol=1e-15)
        moduli = np.abs(np.linalg.eigvalsh(weights - 1 / n))
        np.testing.assert_allclose(mixing.spectral_gap, 1 - moduli.max(), atol=1e-9)
        values = np.random.default_rng(1).standard_normal((n, 2))
        np.testing.assert_allclose(mixing.dot(values), weights @ values, atol=1e-12)


@pytest.mark.parametrize(("name", "n"), [("regular", 256), ("ring", 2000)])
def test_gaps_of_large_graphs_are_those_of_dense_eigenvalues_or_closed_forms(name, n):
    mixing = mixing_matrix(named(name, n))
    gap = 2 / 3 * (1 - np.cos(2 * np.pi / n))
    if name == "regular":
        gap = 1 - np.abs(np.linalg.eigvalsh(mixing.to_sparse().toarray() - 1 / n)).max()
    assert mixing.spectral_gap == pytest.approx(gap, rel=1e-6)


def test_own_weights_mix_and_may_leave_out_edges():
    path = named("path", 3)
    lazy = np.array([[0.75, 0.25, 0], [0.25, 0.5, 0.25], [0, 0.25, 0.75]])
    np.testing.assert_allclose(mixing_matrix(path, lazy).dot(np.array([4.0, 0, 0])), [3, 1, 0])
    ring = mixing_matrix(named("ring", 6)).to_sparse()
    assert mixing_matrix(named("complete", 6), ring).spectral_gap == pytest.approx(1 / 3)


@few
@given(topology=topologies(), data=st.data())
def test_a_hop_follows_the_row_of_the_metropolis_matrix(topology, data):
    n, steps = topology.n_agents, 1000
    start = data.draw(st.integers(0, n - 1))
    hops = ([(start + 0.5) / n, (k + 0.5) / steps] for k in range(steps))
    reached = [int(draw_walk(topology, np.array(hop))[0]) for hop in hops]
    weights = mixing_matrix(topology).to_sparse().toarray()[start]
    np.testing.assert_allclose(np.bincount(reached, minlength=n) / steps, weights, atol=2 / steps)
