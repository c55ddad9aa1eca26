"""Weights between agents: given, made of features, refused; means, and waves of wake-ups."""

from __future__ import annotations

import dataclasses
import pickle
import re
import subprocess
import sys
import time

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from skdpadmm.network import (
    SIMILARITIES,
    Similarity,
    _named_similarities,
    angle_similarity,
    gaussian_similarity,
    knn_similarity,
    labels_of_relation,
    resolve_similarity,
)
from skdpadmm.protocol._plan import _plain

LABELS = np.array(["a", "b", "c"])
PATH = np.array([[0, 1, 0], [1, 0, 0.5], [0, 0.5, 0]])
few = settings(max_examples=50, deadline=None)


def similarity_of(matrix):
    return Similarity(n_agents=len(matrix), matrix=np.asarray(matrix, dtype=float))


def complete(n, weight=1.0):
    return weight * (1 - np.eye(n))


@st.composite
def similarities(draw, least=1):
    """A random tree, and other edges, with random weights."""
    n = draw(st.integers(least, 12))
    if draw(st.booleans()):
        return Similarity(n_agents=n)
    weight, agent = st.floats(1e-3, 1e3), st.integers(0, n - 1)
    extra = draw(st.lists(st.tuples(agent, agent).filter(lambda p: p[0] != p[1]), max_size=15))
    matrix = np.zeros((n, n))
    tree = [(draw(st.integers(0, i - 1)), i) for i in range(1, n)]
    for i, j in [*tree, *(extra if n > 1 else [])]:
        matrix[i, j] = matrix[j, i] = draw(weight)
    return similarity_of(matrix)


@few
@given(similarity=similarities(), trailing=st.sampled_from([(), (2,), (2, 3), (0,)]))
def test_the_mean_over_neighbours_is_a_product_with_rows_that_sum_to_one(similarity, trailing):
    n = similarity.n_agents
    values = np.random.default_rng(0).standard_normal((n, *trailing))
    weights = similarity.weights.toarray()
    sums = weights.sum(axis=1)
    np.testing.assert_allclose(similarity.degrees, sums, rtol=1e-14)
    assert similarity.n_neighbors.tolist() == (weights > 0).sum(axis=1).tolist()
    assert similarity.n_edges == (weights > 0).sum() // 2
    shares = weights / np.where(sums > 0, sums, 1)[:, None]
    mean = similarity.neighbor_mean(values)
    assert mean.shape == values.shape
    np.testing.assert_allclose(mean, np.tensordot(shares, values, axes=1), atol=1e-12)
    assert np.array_equal(mean, similarity.neighbor_mean(np.asfortranarray(values)))


@few
@given(similarity=similarities(), data=st.data())
def test_the_mean_of_an_agent_has_the_same_bits_whoever_else_is_asked_for(similarity, data):
    n = similarity.n_agents
    agents = data.draw(st.lists(st.integers(0, n - 1), max_size=20))
    for trailing in [(), (1,), (3,)]:
        values = np.random.default_rng(1).standard_normal((n, *trailing))
        mean = similarity.neighbor_mean(values, agents)
        assert mean.shape == (len(agents), *trailing)
        assert np.array_equal(mean, similarity.neighbor_mean(values)[np.array(agents, dtype=int)])


def test_weights_of_any_finite_size_give_finite_means():
    for weight in [5e-324, 1e-310, 1e300]:
        mean = similarity_of(complete(4, weight)).neighbor_mean(np.arange(4.0))
        np.testing.assert_allclose(mean, [2, 5 / 3, 4 / 3, 1])


def one_by_one(similarity, order, models, act):
    for agent in order:
        models[agent] = act(models[agent], similarity.neighbor_mean(models)[agent])
    return models


@settings(max_examples=150, deadline=None)
@given(similarity=similarities(), data=st.data())
def test_waves_give_the_bits_of_one_wake_up_after_another(similarity, data):
    n = similarity.n_agents
    order = data.draw(st.lists(st.integers(0, n - 1), max_size=60))
    start = np.random.default_rng(2).standard_normal((n, 3))

    def act(own, mean):
        return 0.3 * own + 0.7 * np.tanh(mean) + 0.1

    expected = one_by_one(similarity, order, start.copy(), act)
    models = start.copy()
    waves = similarity.waves(order)
    for wave in waves:
        models[wave] = act(models[wave], similarity.neighbor_mean(models, wave))
    assert np.array_equal(models, expected)
    assert sorted(np.concatenate([*waves, []]).tolist()) == sorted(order)


@settings(max_examples=150, deadline=None)
@given(similarity=similarities(), data=st.data())
def test_a_wake_up_comes_right_after_the_latest_one_near_it(similarity, data):
    n = similarity.n_agents
    order = data.draw(st.lists(st.integers(0, n - 1), max_size=40))
    near = similarity.weights.toarray() + np.eye(n) > 0
    expected = []
    for k, agent in enumerate(order):
        before = [expected[e] for e in range(k) if near[agent, order[e]]]
        expected.append(1 + max(before, default=-1))
    numbers = similarity.wave_numbers(order)
    assert numbers.dtype == np.intp
    assert numbers.tolist() == expected
    waves = similarity.waves(order)
    assert len(waves) == max(expected, default=-1) + 1
    for number, wave in enumerate(waves):
        assert wave.dtype == np.intp
        assert wave.tolist() == [i for i, k in zip(order, expected, strict=True) if k == number]
        together = near[np.ix_(wave, wave)]
        assert np.array_equal(together, np.eye(len(wave), dtype=bool))


def test_waves_of_a_path_can_be_seen_by_eye():
    path = similarity_of(np.diag(np.ones(4), 1) + np.diag(np.ones(4), -1))
    waves = path.waves(np.array([0, 2, 4, 1, 3, 4, 0]))
    assert [wave.tolist() for wave in waves] == [[0, 2, 4], [1, 3], [4, 0]]
    assert path.waves([]) == []
    assert [wave.tolist() for wave in Similarity(n_agents=3).waves([0, 2, 0])] == [[0], [2], [0]]
    assert [wave.tolist() for wave in Similarity(n_agents=1).waves([0, 0])] == [[0], [0]]


def test_a_million_wake_ups_of_a_hundred_thousand_agents_are_split():
    n, rng = 100_000, np.random.default_rng(3)
    steps = np.array([1, 2, 3, 4, 5])
    i = np.repeat(np.arange(n), len(steps))
    j = (i + np.tile(steps, n)) % n
    upper = sparse.coo_array((rng.random(len(i)) + 0.5, (i, j)), shape=(n, n))
    similarity = Similarity(n_agents=n, matrix=upper + upper.T)
    assert set(similarity.n_neighbors.tolist()) == {10}
    order = rng.integers(0, n, 1_000_000)
    start = time.perf_counter()
    waves = similarity.waves(order)
    print(f"{len(waves)} waves in {time.perf_counter() - start:.2f} s")
    assert sum(map(len, waves)) == len(order)
    assert len(waves) < 1000
    first = np.zeros(n)
    first[waves[0]] = 1
    assert first.sum() == len(waves[0])
    assert not similarity.neighbor_mean(first)[waves[0]].any()


@pytest.mark.parametrize(
    ("order", "message"),
    [
        ([[0, 1]], "Got order of shape (1, 2)"),
        ([0.0, 1.0], "dtype float64, expected a sequence of ints"),
        ([True], "dtype bool"),
        ([0, 3], "Got order with agents in [0, 3], expected agents in [0, 3)"),
        ([-1], "Got order with agents in [-1, -1]"),
    ],
)
def test_an_order_that_is_no_sequence_of_agents_is_refused(order, message):
    for similarity in [similarity_of(PATH), Similarity(n_agents=3)]:
        with pytest.raises(ValueError, match=re.escape(message)):
            similarity.waves(order)
        with pytest.raises(ValueError, match=re.escape(message)):
            similarity.wave_numbers(order)
        with pytest.raises(ValueError, match=re.escape(message.replace("Got order", "Got agents"))):
            similarity.neighbor_mean(np.ones(3), order)


def test_values_without_an_entry_for_each_agent_are_refused():
    for wrong in [np.ones(4), np.float64(1.0)]:
        with pytest.raises(ValueError, match=re.escape("expected (3, ...)")):
            similarity_of(PATH).neighbor_mean(wrong)


def test_equality_is_that_of_agents_and_weights_and_not_of_names():
    path = similarity_of(PATH)
    same = Similarity(n_agents=3, matrix=sparse.coo_array(PATH), name="mine")
    assert path == same
    assert hash(path) == hash(same)
    assert path != similarity_of(2 * PATH)
    assert path != similarity_of(PATH[::-1, ::-1])
    assert path != Similarity(n_agents=3)
    assert Similarity(n_agents=3) != Similarity(n_agents=4)
    assert Similarity(n_agents=3) != similarity_of(complete(3, 0.5))
    assert "fingerprint" not in repr(path)


def test_a_copy_that_was_pickled_is_equal_and_works():
    for similarity in [similarity_of(PATH), Similarity(n_agents=3)]:
        copy = pickle.loads(pickle.dumps(similarity))
        assert copy == similarity
        values = np.arange(3.0)
        assert np.array_equal(copy.neighbor_mean(values), similarity.neighbor_mean(values))
        assert [w.tolist() for w in copy.waves([0, 2])] == [
            w.tolist() for w in similarity.waves([0, 2])
        ]


def test_a_plan_can_hold_it_by_its_fingerprint():
    @dataclasses.dataclass(frozen=True)
    class Settings:
        similarity: Similarity

    path = similarity_of(PATH)
    plain = _plain(Settings(path))["similarity"]
    assert plain == {"type": "Similarity", "n_agents": 3, "fingerprint": path.fingerprint}
    assert len(path.fingerprint) == 64


def test_fingerprints_are_the_same_in_every_process():
    code = (
        "import numpy as np; from skdpadmm.network import *\n"
        "x = np.random.default_rng(0).random((30, 2))\n"
        "print(knn_similarity(x).fingerprint, gaussian_similarity(x).fingerprint,"
        " angle_similarity(x).fingerprint, Similarity(n_agents=4).fingerprint)"
    )
    elsewhere = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout.split()
    x = np.random.default_rng(0).random((30, 2))
    here = [knn_similarity(x), gaussian_similarity(x), angle_similarity(x), Similarity(n_agents=4)]
    assert elsewhere == [similarity.fingerprint for similarity in here]


def test_uniform_weights_are_the_same_however_they_are_given():
    ones = complete(4)
    for given_as in [ones, ones.astype(bool), sparse.csr_array(ones), nx.complete_graph(4)]:
        similarity = resolve_similarity(given_as, np.arange(4))
        assert similarity == resolve_similarity("uniform", np.arange(4))
        assert similarity.is_uniform
    assert np.array_equal(Similarity(n_agents=4).weights.toarray(), ones)
    assert not similarity_of(complete(4, 0.5)).is_uniform


def test_a_hundred_thousand_uniform_agents_need_no_matrix():
    n = 100_000
    uniform = resolve_similarity("uniform", np.arange(n))
    values = np.random.default_rng(4).random((n, 2))
    mean = uniform.neighbor_mean(values, [0, 7])
    np.testing.assert_allclose(mean[1], np.delete(values, 7, axis=0).mean(axis=0))
    assert uniform.n_edges == 4_999_950_000
    assert uniform.degrees[0] == n - 1
    assert uniform.describe() == f"uniform, 4999950000 edges, {n - 1} neighbours each, weights 1"
    with pytest.raises(ValueError, match=re.escape("expected at most 2000 agents")):
        _ = uniform.weights
    assert Similarity(n_agents=2000).weights.nnz == 2000 * 1999


def test_one_agent_has_nobody_to_be_like():
    for given_as in [*SIMILARITIES, [[0]], np.zeros((1, 1)), nx.empty_graph(1)]:
        alone = resolve_similarity(given_as, np.array(["only"]))
        assert alone == Similarity(n_agents=1)
        assert alone.neighbor_mean(np.ones((1, 2))).tolist() == [[0, 0]]
        assert alone.neighbor_mean(np.ones((1, 2)), [0, 0]).tolist() == [[0, 0], [0, 0]]
        assert alone.degrees.tolist() == [0]
        assert alone.n_neighbors.tolist() == [0]
        assert alone.weights.nnz == 0
        assert alone.average_for([0.2]).tolist() == [1]
        assert "one agent without neighbours" in alone.describe()
    for made in [knn_similarity, gaussian_similarity, angle_similarity]:
        assert made([[1.0, 2.0]]) == Similarity(n_agents=1)


def test_the_description_says_size_neighbours_and_weights():
    assert similarity_of(PATH).describe() == (
        "custom, 2 edges, 1 to 2 neighbours each, weights 0.5 to 1"
    )
    assert Similarity(n_agents=2).describe() == "custom, 1 edge, 1 neighbour each, weights 1"


def test_arrays_are_read_only_and_what_was_given_is_copied():
    mine = sparse.csr_array(PATH)
    path = Similarity(n_agents=3, matrix=mine)
    mine.data[:] = 7
    assert np.array_equal(path.weights.toarray(), PATH)
    for array in [path.weights.data, path.weights.indices, path.degrees, path.n_neighbors]:
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 3
    path.weights.data = np.full(4, 7.0)
    assert np.array_equal(path.weights.toarray(), PATH)


def test_rounding_in_a_symmetric_matrix_is_taken_out():
    tilted = PATH.copy()
    tilted[0, 1] *= 1 + 1e-12
    weights = similarity_of(tilted).weights.toarray()
    assert np.array_equal(weights, weights.T)
    np.testing.assert_allclose(weights, PATH)
    assert similarity_of(tilted) == similarity_of(tilted.T)
    stored_zero = sparse.coo_array(([1, 1, 2, 2, 0, 0], ([0, 1, 1, 2, 0, 2], [1, 0, 2, 1, 2, 0])))
    assert Similarity(n_agents=3, matrix=stored_zero).n_edges == 2


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([[0, 1, 0], [1, 0, 0], [0, 0, 0]], "agents ['c'] are like nobody"),
        (np.zeros((3, 3)), "agents ['a', 'b', 'c'] are like nobody"),
        ([[0, 1, 0], [0.5, 0, 1], [0, 1, 0]], "similarities 1 and 0.5 between agents ['a', 'b']"),
        ([[0, 1, 2], [1, 0, 1], [0, 1, 0]], "similarities 2 and 0 between agents ['a', 'c']"),
        ([[0, 1, 0], [1, 0, -2], [0, -2, 0]], "similarity of -2 between agents ['b', 'c']"),
        ([[0, 1, 0], [1, 3, 1], [0, 1, 0]], "similarity of agents ['b'] to themselves"),
        ([[0, np.nan, 1], [np.nan, 0, 1], [1, 1, 0]], "NaN or infinite"),
        ([[0, np.inf, 1], [np.inf, 0, 1], [1, 1, 0]], "NaN or infinite"),
        (complete(3, 1.7e308), "weights of agents ['a', 'b', 'c'] that have no finite sum"),
        (np.ones((2, 2)), "Got similarity of shape (2, 2), expected shape (3, 3)"),
        ([1, 2, 3], "Got similarity=[1, 2, 3], expected one of ['uniform', 'knn', 'gaussian']"),
        ([[1], [1, 2]], "Got similarity that is no matrix"),
        (None, "Got similarity=None"),
        (2.5, "Got similarity=2.5"),
        ("angle", "Got similarity='angle', expected one of"),
        (np.array([["x"] * 3] * 3), "dtype <U1, expected a matrix of real numbers"),
        (np.ones((3, 3), dtype=complex), "dtype complex128"),
        (nx.DiGraph([("a", "b"), ("b", "c")]), "Got a directed graph as similarity"),
        (nx.MultiGraph([("a", "b"), ("b", "c")]), "Got a multigraph as similarity"),
        (nx.Graph([("a", "b"), ("b", "x")]), "without agents ['c'] and with unknown nodes ['x']"),
        (nx.Graph([("a", "b")]), "without agents ['c'] and with unknown nodes []"),
        (nx.Graph([("a", "b"), ("b", "c"), ("c", "c")]), "agents ['c'] to themselves"),
        (nx.Graph([("a", "b", {"weight": -1}), ("b", "c")]), "-1 between agents ['a', 'b']"),
        (nx.Graph([("a", "b", {"weight": "x"}), ("b", "c")]), "weight='x' of the edge between"),
        (nx.Graph([("a", "b", {"weight": np.nan}), ("b", "c")]), "NaN or infinite"),
        (nx.Graph([("a", "b", {"weight": 0}), ("b", "c")]), "agents ['a'] are like nobody"),
        (Similarity(n_agents=4), "of 4 agents for 3 agents, ['a', 'b', 'c']"),
    ],
)
def test_what_are_no_weights_of_the_agents_is_refused(entries, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        resolve_similarity(entries, LABELS)


def test_a_similarity_cannot_be_made_of_wrong_numbers():
    with pytest.raises(ValueError, match="Got n_agents=0, expected an int of at least 1"):
        Similarity(n_agents=0)
    with pytest.raises(ValueError, match=re.escape("agents [2] are like nobody")):
        similarity_of([[0, 1, 0], [1, 0, 0], [0, 0, 0]])
    with pytest.raises(ValueError, match=re.escape("expected shape (2, 2)")):
        Similarity(n_agents=2, matrix=sparse.csr_array(PATH))


def test_agents_of_a_small_component_are_named_and_a_long_list_is_cut():
    two = sparse.block_diag([complete(7), complete(2)])
    message = "2 components, one of them agents [7, 8], expected a connected graph"
    with pytest.raises(ValueError, match=re.escape(message)):
        resolve_similarity(two, np.arange(9))
    with pytest.raises(ValueError, match=re.escape("[0, 1, 2, 3, 4] and 3 more")):
        resolve_similarity(np.zeros((8, 8)), np.arange(8))


def test_nodes_of_a_graph_are_labels_or_positions_and_edges_have_weights():
    half = {"weight": np.float32(0.5)}
    expected = similarity_of(PATH)
    assert resolve_similarity(nx.Graph([("c", "b", half), ("a", "b")]), LABELS) == expected
    assert resolve_similarity(nx.Graph([(2, 1, half), (0, 1)]), LABELS) == expected
    assert resolve_similarity(nx.Graph([(3, 2, half), (1, 2)]), np.array([1, 2, 3])) == expected
    with pytest.raises(ValueError, match=re.escape("without agents [3] and with unknown nodes")):
        resolve_similarity(nx.Graph([(0, 1), (1, 2)]), np.array([1, 2, 3]))


def test_a_data_frame_is_read_by_its_labels():
    expected = similarity_of(PATH)
    frame = pd.DataFrame(PATH, index=LABELS, columns=LABELS)
    assert resolve_similarity(frame, LABELS) == expected
    assert resolve_similarity(frame.loc[["c", "a", "b"], ["b", "c", "a"]], LABELS) == expected
    assert resolve_similarity(pd.DataFrame(PATH), LABELS) == expected
    with pytest.raises(ValueError, match=re.escape("rows ['x', 'y', 'z']")):
        resolve_similarity(frame.set_axis(["x", "y", "z"]), LABELS)
    with pytest.raises(ValueError, match=re.escape("similarity of shape (2, 2)")):
        resolve_similarity(pd.DataFrame(np.ones((2, 2))).to_numpy(), LABELS)


def test_a_similarity_without_labels_takes_those_of_the_agents_in_their_order():
    path = similarity_of(PATH)
    found = resolve_similarity(path, LABELS)
    assert found == path
    assert found.labels == ("a", "b", "c")
    assert found.matrix is path.matrix
    assert path.labels is None
    with pytest.raises(ValueError, match="Got a similarity of 3 agents for 2 agents"):
        resolve_similarity(path, LABELS[:2])


TOWNS = ["west", "east", "north", "south"]
FACTS = pd.DataFrame({"income": [5.0, 1.0, 0.0, 4.0]}, index=TOWNS)


@pytest.mark.parametrize(
    "make",
    [
        lambda facts: knn_similarity(facts, n_neighbors=2),
        lambda facts: gaussian_similarity(facts, bandwidth=2.0, threshold=1e-6),
        lambda facts: angle_similarity(facts.assign(one=1.0), gamma=1.0),
    ],
    ids=["knn", "gaussian", "angle"],
)
def test_weights_of_a_data_frame_keep_its_labels(make):
    made = make(FACTS)
    assert made.labels == tuple(TOWNS)
    for labels in (sorted(TOWNS), TOWNS, TOWNS[::-1]):
        found = resolve_similarity(made, np.array(labels))
        assert found.labels == tuple(labels)
        assert found == make(FACTS.loc[labels])
        assert found.name == made.name
    # By position it would be another one.
    assert resolve_similarity(made, np.array(sorted(TOWNS))) != made
    plain = make(FACTS.reset_index(drop=True))
    assert plain.labels is None
    assert plain == made


def test_labels_of_others_and_labels_that_are_there_twice_are_refused():
    made = knn_similarity(FACTS, n_neighbors=2)
    message = "without agents ['centre'] and with unknown agents ['north', 'south']"
    with pytest.raises(ValueError, match=re.escape(message)):
        resolve_similarity(made, np.array(["centre", "east", "west"]))
    with pytest.raises(ValueError, match=re.escape("4 agents, ['west'] of them several times")):
        knn_similarity(FACTS.set_axis(["west", "west", "a", "b"]), n_neighbors=2)
    with pytest.raises(ValueError, match="Got 2 labels for 3 agents"):
        Similarity(n_agents=3, labels=("a", "b"))


def test_labels_are_no_part_of_equality_and_of_a_plan():
    named, plain = Similarity(n_agents=3, labels=("a", "b", "c")), Similarity(n_agents=3)
    assert named == plain
    assert named.fingerprint == plain.fingerprint
    assert _plain(named) == _plain(plain)
    assert pickle.loads(pickle.dumps(named)).labels == ("a", "b", "c")
    assert named.for_agents(["c", "b", "a"]).is_uniform


def test_errors_of_weights_by_name_say_who_is_apart_and_which_knob_to_turn():
    far = pd.DataFrame({"x": [0.0, 1.0, 90.0, 91.0]}, index=TOWNS)
    for make, apart, knob in [
        (
            lambda: knn_similarity(far, n_neighbors=1),
            "agents ['west', 'east']",
            "Raise n_neighbors",
        ),
        (
            lambda: gaussian_similarity(far, bandwidth=1.0),
            "agents ['west', 'east']",
            "Raise bandwidth or lower threshold",
        ),
        (
            lambda: angle_similarity(far.assign(y=[1.0, 1.0, -1e3, -1e3]), gamma=0.1),
            "agents ['west', 'east']",
            "Raise gamma or lower threshold",
        ),
    ]:
        with pytest.raises(ValueError, match=re.escape(apart)) as refused:
            make()
        assert knob in str(refused.value)
        assert ",," not in str(refused.value)
    spoiled = far.assign(x=[0.0, np.nan, 1.0, 2.0])
    with pytest.raises(ValueError, match=re.escape("beyond 1e+100 for agents ['east']")):
        knn_similarity(spoiled)
    wide = pd.DataFrame({"x": [0.0] * 12 + [1e6]}, index=[f"a{i:02}" for i in range(13)])
    wide["x"] += np.arange(13)
    with pytest.raises(ValueError, match=re.escape("agents ['a12'] are like nobody")) as refused:
        resolve_similarity("gaussian", wide.index.to_numpy(), wide)
    assert "gaussian_similarity(features, bandwidth=...)" in str(refused.value)


@pytest.mark.parametrize("n_agents", [2, 6, 11])
def test_nearest_neighbours_that_are_everybody_are_refused_by_name(n_agents):
    labels = np.arange(n_agents)
    with pytest.raises(ValueError, match=r"expected more than 11.*knn_similarity"):
        resolve_similarity("knn", labels, np.arange(n_agents)[:, None])
    # Who calls the function may have it so.
    assert knn_similarity(np.arange(n_agents)[:, None]).is_uniform


@pytest.mark.parametrize(
    "similarity", ["uniform", PATH, nx.path_graph(3), similarity_of(PATH), pd.DataFrame(PATH)]
)
def test_features_that_nothing_looks_at_are_refused(similarity):
    with pytest.raises(ValueError, match=r"^Got features of the agents with similarity=.*Leave"):
        resolve_similarity(similarity, LABELS, np.ones((3, 1)))


def test_a_name_of_angles_is_told_which_function_to_use():
    with pytest.raises(ValueError, match=r"Got similarity='angle'.*angle_similarity\(targets\)"):
        resolve_similarity("angle", LABELS)


@pytest.mark.parametrize(
    ("relation", "labels"),
    [
        ("knn", None),
        (PATH, None),
        (similarity_of(PATH), None),
        (knn_similarity(FACTS, 2), TOWNS),
        (FACTS, TOWNS),
        (nx.path_graph(["b", "a"]), ["b", "a"]),
    ],
)
def test_labels_of_a_relation_are_those_that_it_was_given(relation, labels):
    assert labels_of_relation(relation) == labels


FEATURES = np.random.default_rng(5).standard_normal((40, 3))


@pytest.mark.parametrize(
    ("name", "function"), [("knn", knn_similarity), ("gaussian", gaussian_similarity)]
)
def test_names_make_weights_of_features_by_label(name, function):
    labels = np.array([f"agent {i:02}" for i in range(40)])
    expected = function(FEATURES)
    assert expected.name == name
    made = resolve_similarity(name, labels, features=FEATURES)
    assert made == expected
    assert made.name == name
    frame = pd.DataFrame(FEATURES, index=labels).sample(frac=1, random_state=0)
    assert resolve_similarity(name, labels, features=frame) == expected
    assert resolve_similarity(name, labels, features=pd.DataFrame(FEATURES)) == expected
    assert made.labels == tuple(labels.tolist())


@pytest.mark.parametrize(
    ("features", "message"),
    [
        (None, "without features of the agents, expected public features of shape (3, n_features)"),
        (np.ones(3), "Got features of shape (3,)"),
        (np.ones((2, 1)), "Got features of shape (2, 1)"),
        (np.ones((3, 0)), "Got features of shape (3, 0)"),
        ([["x"], ["y"], ["z"]], "dtype <U1, expected real numbers of shape (3, n_features)"),
        ([[0], [np.nan], [np.inf]], "NaN, infinite or beyond 1e+100 for agents ['b', 'c']"),
        (pd.DataFrame({"f": [1, 2, 3]}, index=["a", "b", "x"]), "the index ['a', 'b', 'x']"),
    ],
)
@pytest.mark.parametrize("name", ["knn", "gaussian"])
def test_features_that_are_none_of_the_agents_are_refused(name, features, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        resolve_similarity(name, LABELS, features=features)


def distances(points):
    return np.sqrt(((points[:, None] - points[None]) ** 2).sum(axis=2))


@pytest.mark.parametrize("n_neighbors", [4, 7, 39, 100])
def test_nearest_neighbours_weigh_one_where_both_agree_and_half_where_one_does(n_neighbors):
    ranks = distances(FEATURES).argsort(axis=1).argsort(axis=1)
    near = ((ranks > 0) & (ranks <= n_neighbors)).astype(float)
    weights = knn_similarity(FEATURES, n_neighbors).weights.toarray()
    assert np.array_equal(weights, (near + near.T) / 2)


def test_agents_with_the_same_features_are_neighbours_and_never_their_own():
    weights = knn_similarity(np.zeros((6, 2)), 5).weights.toarray()
    assert np.array_equal(weights, complete(6))
    assert np.array_equal(gaussian_similarity(np.zeros((6, 2)), 1.0).weights.toarray(), complete(6))


@pytest.mark.parametrize("threshold", [1e-3, 0.3])
def test_gaussian_weights_are_those_of_the_formula_above_the_threshold(threshold, monkeypatch):
    monkeypatch.setattr(_named_similarities, "_PAIRS_AT_ONCE", 100)
    expected = np.exp(-(distances(FEATURES) ** 2) / (2 * 1.3**2))
    expected[(expected < threshold) | np.eye(40, dtype=bool)] = 0
    similarity = gaussian_similarity(FEATURES, 1.3, threshold)
    assert similarity.n_edges == (expected > 0).sum() // 2
    np.testing.assert_allclose(similarity.weights.toarray(), expected, rtol=1e-10)


def test_a_weight_just_below_the_threshold_is_dropped():
    threshold = np.exp(-0.5)
    assert gaussian_similarity([[0.0], [1 - 5e-10]], 1.0, threshold).n_edges == 1
    with pytest.raises(ValueError, match="are like nobody"):
        gaussian_similarity([[0.0], [1 + 5e-10]], 1.0, threshold)


def test_the_usual_bandwidth_is_the_median_distance_to_the_tenth_nearest():
    tenth = np.sort(distances(FEATURES), axis=1)[:, 10]
    expected = gaussian_similarity(FEATURES, float(np.median(tenth))).weights.toarray()
    usual = gaussian_similarity(FEATURES).weights.toarray()
    np.testing.assert_allclose(usual, expected, rtol=1e-9)
    pair = gaussian_similarity([[0.0], [3.0]]).weights.toarray()
    np.testing.assert_allclose(pair, complete(2, np.exp(-0.5)), rtol=1e-9)


@pytest.mark.parametrize(("gamma", "threshold"), [(0.1, 1e-3), (0.5, 0.2), (50.0, 0.5)])
def test_weights_of_angles_are_those_of_the_formula(gamma, threshold):
    unit = FEATURES / np.linalg.norm(FEATURES, axis=1, keepdims=True)
    expected = np.exp((unit @ unit.T - 1) / gamma)
    expected[(expected < threshold) | np.eye(40, dtype=bool)] = 0
    similarity = angle_similarity(FEATURES, gamma, threshold)
    assert similarity.name == "angle"
    np.testing.assert_allclose(similarity.weights.toarray(), expected, rtol=1e-9)
    scales = np.random.default_rng(6).uniform(0.1, 9, (40, 1))
    scaled = angle_similarity(scales * FEATURES, gamma, threshold).weights.toarray()
    np.testing.assert_allclose(scaled, expected, rtol=1e-9)


def test_angles_of_targets_of_any_finite_size_are_found():
    expected = angle_similarity(FEATURES).weights.toarray()
    for scale in [1e-300, 1e99]:
        weights = angle_similarity(scale * FEATURES).weights.toarray()
        np.testing.assert_allclose(weights, expected, rtol=1e-9)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: knn_similarity(FEATURES, 0), "Got n_neighbors=0, expected an int of at least 1"),
        (lambda: knn_similarity(FEATURES, 2.0), "Got n_neighbors=2.0"),
        (lambda: knn_similarity(FEATURES, True), "Got n_neighbors=True"),
        (lambda: knn_similarity([[0], [1], [9], [10]], 1), "one of them agents [0, 1]"),
        (lambda: knn_similarity([[0], [np.nan]]), "beyond 1e+100 for agents [1]"),
        (lambda: gaussian_similarity([[0], [1e101]]), "beyond 1e+100 for agents [1]"),
        (lambda: knn_similarity([1, 2]), "expected real numbers of shape (n_agents, n_features)"),
        (lambda: gaussian_similarity(FEATURES, 0.0), "Got bandwidth=0.0, expected a float in (0,"),
        (lambda: gaussian_similarity(FEATURES, np.nan), "Got bandwidth=nan"),
        (lambda: gaussian_similarity(FEATURES, "1"), "Got bandwidth='1'"),
        (lambda: gaussian_similarity(FEATURES, 1.0, 1.0), "threshold=1.0, expected a float in (0"),
        (lambda: gaussian_similarity([[0], [9]], 1.0), "agents [0, 1] are like nobody"),
        (lambda: gaussian_similarity(np.zeros((3, 1))), "same for most agents"),
        (lambda: angle_similarity([[1, 0], [0, 0]]), "targets that are zero for agents [1]"),
        (lambda: angle_similarity(FEATURES, -1), "Got gamma=-1"),
        (lambda: angle_similarity(FEATURES, 0.1, 0), "Got threshold=0"),
        (lambda: angle_similarity([1, 2]), "Got targets of shape (2,)"),
        (lambda: angle_similarity([[1, 0], [-1, 0]]), "agents [0, 1] are like nobody"),
    ],
)
def test_features_and_parameters_that_make_no_weights_are_refused(make, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        make()


def test_weights_for_too_many_pairs_are_refused_before_they_are_made(monkeypatch):
    monkeypatch.setattr(_named_similarities, "_MOST_PAIRS", 700)
    message = "for 780 pairs of 40 agents, expected at most 700 pairs"
    with pytest.raises(ValueError, match=re.escape(message)):
        gaussian_similarity(FEATURES, 100.0)


@few
@given(similarity=similarities(), data=st.data())
def test_an_agent_never_seen_averages_by_its_own_similarities(similarity, data):
    n = similarity.n_agents
    row = np.array(data.draw(st.lists(st.floats(0, 1e308), min_size=n, max_size=n)))
    row[data.draw(st.integers(0, n - 1))] += 1e-300
    shares = similarity.average_for(row)
    assert shares.sum() == pytest.approx(1)
    assert shares.min() >= 0
    np.testing.assert_allclose(shares * (row / row.max()).sum(), row / row.max(), atol=1e-12)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ([1, 2], "Got similarities of shape (2,)"),
        (["x", "y", "z"], "dtype <U1, expected 3 real numbers"),
        ([1, -1, np.nan], "negative or not finite to agents [1, 2]"),
        ([0, 0, 0], "all zero"),
    ],
)
def test_similarities_that_give_no_average_are_refused(row, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        similarity_of(PATH).average_for(row)


@few
@given(similarity=similarities(), data=st.data())
def test_relabelling_agents_relabels_means_and_waves(similarity, data):
    n = similarity.n_agents
    order = np.array(data.draw(st.permutations(range(n))))
    back = np.argsort(order)
    moved = similarity_of(similarity.weights.toarray()[np.ix_(back, back)])
    values = np.arange(1.0, n + 1)
    means = moved.neighbor_mean(values[back])[order]
    np.testing.assert_allclose(means, similarity.neighbor_mean(values))
    wakes = np.array(data.draw(st.lists(st.integers(0, n - 1), max_size=20)), dtype=int)
    assert np.array_equal(moved.wave_numbers(order[wakes]), similarity.wave_numbers(wakes))


def test_propagation_of_models_reaches_the_fixed_point_of_its_equations():
    weights = np.array([[0, 1, 0], [1, 0, 0.5], [0, 0.5, 0]])
    path, pull = similarity_of(weights), 0.8 * np.array([0.2, 1.0, 0.5])
    own, models = np.array([1.0, -1.0, 2.0]), np.zeros(3)
    wakes = [0, 1, 2, 1]
    for wave in path.waves(wakes):
        mean = path.neighbor_mean(models, wave)
        models[wave] = (mean + pull[wave] * own[wave]) / (1 + pull[wave])
    np.testing.assert_allclose(models, [0.13793103, -0.33957037, 0.29045795], atol=1e-8)
    for _ in range(200):
        models = (path.neighbor_mean(models) + pull * own) / (1 + pull)
    np.testing.assert_allclose(models, [-0.31403859, -0.52428476, 0.19693945], atol=1e-8)
    laplacian = np.diag(path.degrees) - weights
    exact = np.linalg.solve(laplacian + np.diag(path.degrees * pull), path.degrees * pull * own)
    np.testing.assert_allclose(models, exact, atol=1e-8)
