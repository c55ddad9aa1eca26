"""Ownership by labels, and of artificial agents: sizes, randomness, skew, what depends on data."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skdpadmm.network import (
    agent_sizes,
    condition_of,
    ownership_of_labels,
    partition_rows,
    positions_of_labels,
)

LABELS = [
    [0.5, -1.0, 0.5, 2.0],
    np.array(["b", "a", "b", "c"], dtype=object),
    pd.Series(["b", "a", "b", "c"], index=[9, 8, 7, 6], dtype="category"),
    pd.Series([5, -1, 5, 2], dtype="Int64"),
    ["a\0", "a", "a\0", "b"],
]


@pytest.mark.parametrize("labels", LABELS, ids=repr)
def test_labels_of_any_sortable_type_are_found_again_by_row(labels):
    ownership = ownership_of_labels(labels, n_samples=4)
    assert ownership.n_agents == 3
    assert ownership.labels.tolist() == sorted(set(ownership.labels.tolist()))
    expected = labels if isinstance(labels, list) else np.asarray(labels).tolist()
    assert ownership.labels[ownership.index].tolist() == expected
    assert ownership.index.dtype == ownership.sizes.dtype == np.intp


@given(labels=st.lists(st.integers(-3, 3), min_size=1, max_size=30))
def test_agents_share_the_rows_out_in_ascending_order(labels):
    ownership = ownership_of_labels(labels, n_samples=len(labels))
    everything = np.arange(len(labels))
    for agent in range(ownership.n_agents):
        rows = ownership.rows_of(agent)
        own = everything[rows]
        np.testing.assert_array_equal(own, np.flatnonzero(ownership.index == agent))
        assert len(own) == ownership.sizes[agent] >= 1
        # Neighbouring rows are a slice, so that indexing makes a view.
        assert isinstance(rows, slice) == (own[-1] - own[0] + 1 == len(own))


def test_agents_who_join_own_nothing_and_change_no_owner():
    ownership = ownership_of_labels(["b", "d", "b"], n_samples=3)
    joined = ownership.joined_by(["c", "a", "d"])
    assert joined.labels.tolist() == ["a", "b", "c", "d"]
    assert joined.sizes.tolist() == [0, 2, 0, 1]
    assert joined.labels[joined.index].tolist() == ["b", "d", "b"]
    assert ownership.joined_by(["b"]) is ownership


def test_positions_of_labels_are_those_among_the_known_ones():
    known = np.array(["a", "b", "c"])
    assert positions_of_labels(["c", "a", "c"], known, n_samples=3).tolist() == [2, 0, 2]
    with pytest.raises(ValueError, match=r"Got agents that hold no rows in the fit, expected"):
        positions_of_labels(["c", "x"], known, n_samples=2)


MISSING = [
    ["a", None, "b"],
    ["a", np.nan, "b"],
    pd.Series(["a", None, "b"], dtype="category"),
    pd.Series(["a", pd.NA, "b"], dtype="string"),
]
NO_SHAPE = [[1, 2], [[1], [2], [3]], 1]
UNSORTED = [[1, "a", 2], [{}, {}, {}]]


@pytest.mark.parametrize(
    ("labels", "error", "message"),
    [
        *[(labels, ValueError, "a missing label") for labels in MISSING],
        *[(labels, ValueError, r"^Got agents of shape .* shape \(3,\)") for labels in NO_SHAPE],
        *[(labels, TypeError, r"cannot be sorted, .* Convert them") for labels in UNSORTED],
    ],
)
def test_labels_that_do_not_say_who_owns_a_row_are_refused(labels, error, message):
    with pytest.raises(error, match=message):
        ownership_of_labels(labels, n_samples=3)


RULES = ["iid", "quantity", "dirichlet", "sorted"]
NUMBERS = np.random.default_rng(0).standard_cauchy(140)
EXTREME = np.array([-1.7e308, 0.0, 1.7e308])


def split(partition, n, n_agents=None, *, seed=0, y=NUMBERS, kind=False, X=None):
    y = y[:n] if y is NUMBERS else y
    facts = {"n_samples": n, "n_agents": n_agents, "is_classification": kind}
    return partition_rows(partition, seed=seed, X=X, y=y, **facts)


@given(
    rule=st.sampled_from(RULES),
    n_agents=st.integers(1, 40),
    spare=st.integers(0, 100),
    seed=st.integers(0, 2**70),
    data=st.data(),
)
def test_every_agent_owns_a_row_and_sizes_are_the_public_ones(rule, n_agents, spare, seed, data):
    n = n_agents + spare
    targets = NUMBERS[:n], np.resize(EXTREME, n), np.zeros(n), np.arange(n) % 3, np.arange(n)
    kind = data.draw(st.booleans())
    asked = {"seed": seed, "y": data.draw(st.sampled_from(targets)), "kind": kind}
    ownership = split(rule, n, n_agents, **asked)
    assert ownership.labels.tolist() == list(range(n_agents))
    assert ownership.index.dtype == ownership.sizes.dtype == np.intp
    assert (ownership.index.size, ownership.sizes.sum()) == (n, n)
    assert ownership.sizes.min() >= 1
    sizes = agent_sizes(rule, n_samples=n, n_agents=n_agents)
    assert sizes is None if rule == "dirichlet" else sizes.tolist() == ownership.sizes.tolist()
    np.testing.assert_array_equal(split(rule, n, n_agents, **asked).index, ownership.index)


def test_sizes_are_equal_up_to_one_or_fall_as_a_power_of_the_rank():
    assert sorted(agent_sizes("iid", n_samples=103, n_agents=10)) == [10] * 7 + [11] * 3
    sizes = agent_sizes("quantity", n_samples=100_000, n_agents=50)
    np.testing.assert_allclose(sizes * np.arange(1, 51), sizes[0], rtol=0.05)


@pytest.mark.parametrize("rule", RULES)
def test_ten_agents_or_one_for_each_of_fewer_rows_whom_the_seed_decides(rule):
    assert [split(rule, n).n_agents for n in (1, 2, 9, 10, 11)] == [1, 2, 9, 10, 10]
    one, other = (split(rule, 60, 5, seed=seed).index for seed in (3, 4))
    assert np.any(one != other) == (rule != "sorted")


@pytest.mark.parametrize("partition", ["iid", "quantity"])
def test_blind_partitions_never_look_at_the_data(partition):
    class Untouchable:
        def __getattribute__(self, name):
            raise AssertionError(name)

    blind = split(partition, 40, X=Untouchable(), y=Untouchable(), kind=True)
    np.testing.assert_array_equal(blind.index, split(partition, 40).index)
    assert condition_of(partition) == ""


@pytest.mark.parametrize("kind", [True, False])
def test_dirichlet_shares_have_the_moments_of_their_law(kind):
    n_classes, n_agents, size = 2000 if kind else 10, 4, 100
    y = np.tile(np.arange(n_classes), size)
    counts = np.zeros((1 if kind else 200, n_classes, n_agents))
    for seed, table in enumerate(counts):
        index = split("dirichlet", len(y), n_agents, y=y, kind=kind, seed=seed).index
        np.add.at(table, (y, index), 1)
    counts = counts.reshape(-1, n_agents)
    between_classes = 1 / (0.5 * n_agents + 1)
    variance = 1 / 4 * 3 / 4 * (between_classes + (1 - between_classes) / size)
    np.testing.assert_allclose((counts / size).mean(axis=0), 1 / 4, atol=0.03)
    np.testing.assert_allclose((counts / size).var(axis=0), variance, rtol=0.1)


def test_sorted_agents_own_consecutive_targets_and_keep_the_order_of_equal_ones():
    assert np.all(np.diff(split("sorted", 103).index[np.argsort(NUMBERS[:103])]) >= 0)
    assert split("sorted", 20, 4, y=np.zeros(20)).rows_of(1) == slice(5, 10)


def test_a_rule_without_a_name_is_an_error():
    with pytest.raises(ValueError, match="Got partition='random', expected one of"):
        split("random", 5)
