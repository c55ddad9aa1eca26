"""Weights between agents: means, waves of wake-ups, and weights made of features."""

import pickle
import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from skdpadmm import network
from skdpadmm.network import Similarity, resolve_similarity

PATH = np.array([[0, 1, 0], [1, 0, 0.5], [0, 0.5, 0]])


def similarity_of(matrix):
    return Similarity(n_agents=matrix.shape[0], matrix=matrix)


@st.composite
def similarities(draw):
    """Everybody alike, or a random tree and other edges with random weights."""
    n = draw(st.integers(1, 12))
    if draw(st.booleans()):
        return Similarity(n_agents=n)
    agent, matrix = st.integers(0, n - 1), np.zeros((n, n))
    extra = draw(st.lists(st.tuples(agent, agent), max_size=15))
    for i, j in [*((draw(st.integers(0, i - 1)), i) for i in range(1, n)), *extra]:
        matrix[i, j] = matrix[j, i] = draw(st.floats(1e-3, 1e3)) if i != j else 0.0
    return similarity_of(matrix)


@settings(max_examples=50)
@given(similarity=similarities(), trailing=st.sampled_from([(), (2,), (2, 3), (0,)]))
def test_the_mean_over_neighbours_is_a_product_with_rows_that_sum_to_one(similarity, trailing):
    n = similarity.n_agents
    values = np.random.default_rng(0).standard_normal((n, *trailing))
    weights = similarity.weights.toarray()
    sums = weights.sum(axis=1)
    np.testing.assert_allclose(similarity.degrees, sums, rtol=1e-12)
    assert similarity.n_neighbors.tolist() == (weights > 0).sum(axis=1).tolist()
    assert similarity.n_edges == (weights > 0).sum() // 2
    shares = weights / np.where(sums > 0, sums, 1)[:, None]
    expected = np.tensordot(shares, values, axes=1)
    for same in (values, np.asfortranarray(values)):
        np.testing.assert_allclose(similarity.neighbor_mean(same), expected, atol=1e-12)
    some = similarity.neighbor_mean(values, [n - 1, 0, 0])
    np.testing.assert_allclose(some, expected[[n - 1, 0, 0]], atol=1e-12)


@pytest.mark.parametrize("weight", [5e-324, 1e-310, 1e300])
def test_weights_of_any_finite_size_give_finite_means(weight):
    mean = similarity_of(weight * (1 - np.eye(4))).neighbor_mean(np.arange(4.0))
    np.testing.assert_allclose(mean, [2, 5 / 3, 4 / 3, 1])


@settings(max_examples=100)
@given(similarity=similarities(), data=st.data())
def test_waves_are_as_few_as_can_be_and_equal_one_wake_up_after_another(similarity, data):
    n = similarity.n_agents
    order = data.draw(st.lists(st.integers(0, n - 1), max_size=40))
    near = similarity.weights.toarray() + np.eye(n) > 0
    expected = []
    for k, agent in enumerate(order):
        before = [expected[e] for e in range(k) if near[agent, order[e]]]
        expected.append(1 + max(before, default=-1))
    assert similarity.wave_numbers(order).tolist() == expected
    waves = similarity.waves(order)
    assert len(waves) == max(expected, default=-1) + 1
    one_by_one = np.random.default_rng(2).standard_normal((n, 3))
    models = one_by_one.copy()
    for agent in order:
        one_by_one[agent] += np.tanh(similarity.neighbor_mean(one_by_one)[agent])
    for number, wave in enumerate(waves):
        assert wave.tolist() == [i for i, k in zip(order, expected, strict=True) if k == number]
        assert not (near[np.ix_(wave, wave)] & ~np.eye(len(wave), dtype=bool)).any()
        models[wave] += np.tanh(similarity.neighbor_mean(models, wave))
    np.testing.assert_allclose(models, one_by_one, rtol=1e-12)


def test_a_hundred_thousand_agents_need_no_dense_matrix():
    n = 100_000
    uniform, values = resolve_similarity("uniform", np.arange(n)), np.arange(1.0 * n)
    mean = uniform.neighbor_mean(values, [7])
    np.testing.assert_allclose(mean, np.delete(values, 7).mean())
    with pytest.raises(ValueError, match=re.escape("expected at most 2000 agents")):
        _ = uniform.weights


@given(similarity=similarities(), data=st.data())
def test_an_agent_never_seen_averages_by_its_own_similarities(similarity, data):
    row = np.array(data.draw(st.lists(st.floats(0, 1e308), min_size=similarity.n_agents)))
    row = np.append(row[: similarity.n_agents - 1], 1e-300)
    shares = similarity.average_for(row)
    assert shares.min() >= 0
    np.testing.assert_allclose(shares * (row / row.max()).sum(), row / row.max(), atol=1e-12)


def test_equality_is_that_of_agents_and_weights_and_not_of_names_and_labels():
    path = similarity_of(PATH)
    same = Similarity(n_agents=3, matrix=sparse.coo_array(PATH), name="mine", labels=("a", 2, "c"))
    assert path == same == pickle.loads(pickle.dumps(path))
    assert (hash(path), path.fingerprint) == (hash(same), same.fingerprint)
    others = [similarity_of(2 * PATH), similarity_of(PATH[::-1, ::-1]), Similarity(n_agents=3)]
    assert len({path, *others, Similarity(n_agents=4)}) == 5
    assert path.describe() == "custom, 2 edges, 1 to 2 neighbours each, weights 0.5 to 1"


def test_weights_are_copied_read_only_and_symmetric_to_the_last_bit():
    mine = sparse.csr_array(PATH)
    mine.data[0] *= 1 + 1e-12
    path = similarity_of(mine)
    mine.data[:] = 7
    with pytest.raises(ValueError, match="read-only"):
        path.weights.data[0] = 3
    np.testing.assert_array_equal(path.weights.toarray(), path.weights.toarray().T)


X = np.random.default_rng(5).standard_normal((40, 3))
DISTANCES = np.sqrt(((X[:, None] - X[None]) ** 2).sum(axis=2))
UNIT = X / np.linalg.norm(X, axis=1, keepdims=True)


@pytest.mark.parametrize("n_neighbors", [4, 7, 100])
def test_nearest_neighbours_weigh_one_where_both_agree_and_half_where_one_does(n_neighbors):
    ranks = DISTANCES.argsort(axis=1).argsort(axis=1)
    near = ((ranks > 0) & (ranks <= n_neighbors)).astype(float)
    weights = network.knn_similarity(X, n_neighbors).weights.toarray()
    np.testing.assert_array_equal(weights, (near + near.T) / 2)


@pytest.mark.parametrize("threshold", [1e-3, 0.3])
def test_weights_of_distances_and_angles_are_those_of_the_formulas(threshold):
    tenth = float(np.median(np.sort(DISTANCES, axis=1)[:, 10]))
    cases = [
        (network.gaussian_similarity(X, 1.3, threshold), -(DISTANCES**2) / (2 * 1.3**2)),
        (network.gaussian_similarity(X, None, threshold), -(DISTANCES**2) / (2 * tenth**2)),
        (network.angle_similarity(X, 0.5, threshold), (UNIT @ UNIT.T - 1) / 0.5),
        (network.angle_similarity(1e-300 * X, 50.0, threshold), (UNIT @ UNIT.T - 1) / 50.0),
    ]
    for similarity, exponent in cases:
        expected = np.exp(exponent) * (1 - np.eye(40))
        expected[expected < threshold] = 0
        np.testing.assert_allclose(similarity.weights.toarray(), expected, rtol=1e-9)


TOWNS = ["west", "east", "north", "south"]


def test_weights_of_a_data_frame_keep_its_labels():
    facts = pd.DataFrame({"income": [5.0, 1.0, 0.0, 4.0]}, index=TOWNS)
    made = network.knn_similarity(facts, 2)
    assert (made.labels, made.name) == (tuple(TOWNS), "knn")
    for labels in (sorted(TOWNS), TOWNS, TOWNS[::-1]):
        found = resolve_similarity(made, np.array(labels))
        assert (found.labels, found.name) == (tuple(labels), "knn")
        assert found == network.knn_similarity(facts.loc[labels], 2)
        assert (found == made) == (labels == TOWNS)  # by position it would be another one
    assert network.knn_similarity(facts.reset_index(drop=True), 2).labels is None


FAR = pd.DataFrame({"x": [0.0, 1.0, 90.0, 91.0]}, index=TOWNS)


@pytest.mark.parametrize(
    ("make", "given", "message"),
    [
        (network.gaussian_similarity, (FAR, 1), r"\['west', 'east'\].* Raise bandwidth"),
        (network.gaussian_similarity, (np.zeros((3, 1)),), r"bandwidth=0\.0, .* in \(0, inf\)"),
        (network.angle_similarity, ([[1.0], [0.0]],), r"zero in rows \[1\]"),
        (similarity_of(PATH).average_for, ([1, -1, np.nan],), "negative, not finite"),
    ],
)
def test_what_gives_no_weights_is_refused(make, given, message):
    with pytest.raises(ValueError, match=message):
        make(*given)
