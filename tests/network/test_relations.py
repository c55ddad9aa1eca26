"""What users give as a graph or as similarities of agents: names, matrices, tables, networkx."""

import re

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from skdpadmm import network
from skdpadmm.network import Similarity, resolve_similarity, resolve_topology

LABELS = np.array(["a", "b", "c"])
PATH = np.array([[0, 1, 0], [1, 0, 0.5], [0, 0.5, 0]])
HALF = {"weight": np.float32(0.5)}
FRAME = pd.DataFrame(PATH, index=LABELS, columns=LABELS)
ZEROS = sparse.coo_array(([1, 1, 0.5, 0.5, 0, 0], ([0, 1, 1, 2, 0, 2], [1, 0, 2, 1, 2, 0])))
PATHS = {
    "dense": PATH,
    "stored zeros": ZEROS,
    "frame in another order": FRAME.loc[["c", "a", "b"], ["b", "c", "a"]],
    "frame without labels": pd.DataFrame(PATH),
    "graph of labels": nx.Graph([("c", "b", HALF), ("a", "b")]),
    "similarity": Similarity(n_agents=3, matrix=PATH),
}


@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS)
def test_one_path_can_be_given_in_many_forms(path):
    similarity = resolve_similarity(path, LABELS)
    np.testing.assert_array_equal(similarity.weights.toarray(), PATH)
    assert similarity.labels == ("a", "b", "c")
    topology = resolve_topology(similarity.weights if path is PATHS["similarity"] else path, LABELS)
    assert topology.edges.tolist() == [[0, 1], [1, 2]]
    assert topology == resolve_topology("path", LABELS) == resolve_topology(topology, LABELS)


@pytest.mark.parametrize("resolve", [resolve_topology, resolve_similarity])
def test_numbers_that_are_labels_are_not_taken_for_positions(resolve):
    star, moved = nx.star_graph(3), nx.relabel_nodes(nx.star_graph(3), lambda i: i + 1)
    assert resolve(star, np.arange(4)) == resolve(moved, np.arange(1, 5))
    with pytest.raises(ValueError, match=r"no node for agents \[4\], no agent for nodes \[0\]"):
        resolve(star, np.arange(1, 5))


def mixing(matrix, labels):
    return network.mixing_matrix(resolve_topology("path", labels), np.array(matrix))


@pytest.mark.parametrize(
    ("resolve", "given", "message"),
    [
        (resolve_topology, 2.5, "Got a topology of shape () and dtype float64, expected a name"),
        (resolve_similarity, "mesh", "Got similarity='mesh', expected one of"),
        (resolve_similarity, None, "Got similarity=None, expected one of"),
        (resolve_similarity, nx.MultiGraph(["ab", "ab", "bc"]), "parallel edges, a MultiGraph"),
        (resolve_similarity, np.ones((2, 2)), "Got a similarity of shape (2, 2) and"),
        (resolve_topology, [[0, np.nan, 1], [np.nan, 0, 1], [1, 1, 0]], "NaN or infinite"),
        (resolve_similarity, 1.7e308 * (1 - np.eye(3)), "beyond 1e+300"),
        (resolve_topology, nx.DiGraph(["ab", "bc"]), "both directions, at agents ['a', 'b']"),
        (resolve_similarity, nx.Graph(["ab", "bx"]), "['c'], no agent for nodes ['x']"),
        (resolve_similarity, FRAME.rename(columns={"c": "x"}), "no agent for nodes ['x']"),
        (resolve_topology, np.eye(3), "self loops, at agents ['a', 'a']"),
        (resolve_similarity, -PATH, "entries below zero, at agents ['a', 'b']"),
        (resolve_topology, [[0, 1, 0], [1, 0, 0], [0, 0, 0]], "apart from all others: ['c']"),
        (mixing, [[0.5, 0.2, 0], [0.2, 0.5, 0.2], [0, 0.2, 0.5]], "sum of 0.7 in row 0"),
        (mixing, np.full((3, 3), 1 / 3), "that are not linked, at agents [0, 2]"),
    ],
)
def test_what_is_no_graph_no_similarity_and_no_mixing_is_refused(resolve, given, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        resolve(given, LABELS)


def test_everybody_alike_is_the_same_however_it_is_given_and_one_agent_is_alone():
    ones, labels = 1.0 - np.eye(4), np.arange(4)
    for given in (ones, ones.astype(bool), sparse.csr_array(ones), nx.complete_graph(4)):
        assert resolve_similarity(given, labels) == resolve_similarity("uniform", labels)
        assert resolve_topology(given, labels) == resolve_topology("complete", labels)
    for given in ("uniform", "knn", [[0]], nx.empty_graph(1)):
        assert resolve_similarity(given, np.array(["only"])) == Similarity(n_agents=1)


def test_labels_of_a_relation_are_those_that_it_was_given():
    for relation in (nx.path_graph(["b", "a"]), pd.DataFrame(index=["b", "a"])):
        assert network.labels_of_relation(relation) == ["b", "a"]
    assert network.labels_of_relation("knn") is None
