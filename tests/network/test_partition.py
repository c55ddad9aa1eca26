"""Simulated agents: sizes, randomness, skew, and what reads the data."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skdpadmm.network import agent_sizes, partition_rows

RULES = ["iid", "quantity", "dirichlet", "sorted"]
BLIND = ["iid", "quantity"]
READS = ["dirichlet", "sorted"]


def targets(n_samples, is_classification=True, n_classes=3, seed=0):
    rng = np.random.default_rng(seed)
    if is_classification:
        return rng.integers(n_classes, size=n_samples)
    return rng.standard_cauchy(size=n_samples)


def split(partition, n_samples, n_agents=None, *, seed=0, y=None, is_classification=True, X=None):
    y = targets(n_samples, is_classification) if y is None else y
    return partition_rows(
        partition,
        n_samples=n_samples,
        n_agents=n_agents,
        seed=seed,
        X=X,
        y=y,
        is_classification=is_classification,
    )


def distance_from_uniform(index, classes):
    """Total variation between the classes of an agent and those of all, averaged over rows."""
    counts = np.zeros((index.max() + 1, classes.max() + 1))
    np.add.at(counts, (index, classes), 1)
    own = counts / counts.sum(axis=1, keepdims=True)
    overall = counts.sum(axis=0) / counts.sum()
    return np.average(0.5 * np.abs(own - overall).sum(axis=1), weights=counts.sum(axis=1))


@settings(deadline=None)
@given(
    rule=st.sampled_from(RULES),
    n_agents=st.integers(1, 40),
    spare=st.integers(0, 100),
    seed=st.integers(0, 2**70),
    is_classification=st.booleans(),
    n_classes=st.integers(1, 50),
)
def test_every_agent_owns_a_row_and_every_row_has_an_owner(
    rule, n_agents, spare, seed, is_classification, n_classes
):
    n = n_agents + spare
    y = targets(n, is_classification, n_classes)
    ownership = split(rule, n, n_agents, seed=seed, y=y, is_classification=is_classification)
    assert ownership.labels.tolist() == list(range(n_agents))
    assert ownership.index.shape == (n,)
    assert ownership.index.dtype == ownership.sizes.dtype == np.intp
    assert ownership.sizes.sum() == n
    assert ownership.sizes.min() >= 1
    assert ownership.sizes.shape == (n_agents,)


@pytest.mark.parametrize("partition", [7, *RULES])
@pytest.mark.parametrize("n_samples", [7, 8, 100])
def test_public_sizes_are_those_of_the_partition_for_every_seed(partition, n_samples):
    n_agents = None if partition == 7 else 7
    sizes = agent_sizes(partition, n_samples=n_samples, n_agents=n_agents)
    if partition == "dirichlet":
        assert sizes is None
        return
    assert sizes.dtype == np.intp
    for seed in range(3):
        np.testing.assert_array_equal(split(partition, n_samples, n_agents, seed=seed).sizes, sizes)


def test_sizes_of_a_callable_are_not_public():
    assert agent_sizes(lambda X, y: y, n_samples=3) is None


@pytest.mark.parametrize("rule", ["iid", "sorted"])
def test_equal_sizes_differ_by_one_at_most(rule):
    sizes = agent_sizes(rule, n_samples=103, n_agents=10)
    assert sizes.sum() == 103
    assert set(sizes.tolist()) == {10, 11}


def test_quantity_sizes_fall_as_a_power_of_the_rank():
    sizes = agent_sizes("quantity", n_samples=100_000, n_agents=50)
    assert np.all(np.diff(sizes) <= 0)
    np.testing.assert_allclose(sizes * np.arange(1, 51), sizes[0], rtol=0.05)
    assert sizes[0] > 40 * sizes[-1]


@pytest.mark.parametrize("partition", [5, *RULES])
@pytest.mark.parametrize("is_classification", [True, False])
def test_the_same_seed_gives_the_same_owners_and_another_seed_others(partition, is_classification):
    n_agents = None if partition == 5 else 5
    first, again, other = (
        split(partition, 60, n_agents, seed=seed, is_classification=is_classification).index
        for seed in (3, 3, 4)
    )
    np.testing.assert_array_equal(first, again)
    assert np.any(first != other) == (partition != "sorted")


def test_an_int_is_iid_with_that_many_agents():
    np.testing.assert_array_equal(split(5, 60, seed=1).index, split("iid", 60, 5, seed=1).index)


def test_owners_do_not_change_from_release_to_release():
    assert split("iid", 10, 3).index.tolist() == [0, 0, 2, 2, 1, 1, 2, 0, 0, 1]


@pytest.mark.parametrize("partition", [5, *BLIND])
def test_blind_partitions_never_look_at_the_data(partition):
    class Untouchable:
        def __getattribute__(self, name):
            raise AssertionError(name)

    blind, seeing = (
        partition_rows(partition, n_samples=40, X=X, y=y, is_classification=is_classification)
        for X, y, is_classification in [
            (Untouchable(), Untouchable(), True),
            (None, targets(40), False),
        ]
    )
    np.testing.assert_array_equal(blind.index, seeing.index)
    assert blind.condition == seeing.condition == ""


@pytest.mark.parametrize("partition", [*READS, lambda X, y: y])
def test_partitions_that_read_data_say_so_in_one_sentence(partition):
    condition = split(partition, 40).condition
    assert condition.startswith("The agents were formed by looking at the data")
    assert "conditional on the resulting ownership" in condition
    assert condition.count(".") == 1


@pytest.mark.parametrize("is_classification", [True, False])
def test_dirichlet_skews_the_labels(is_classification):
    n = 5000
    y = targets(n, is_classification)
    classes = y if is_classification else np.searchsorted(np.quantile(y, np.arange(1, 10) / 10), y)
    skewed, uniform = (
        distance_from_uniform(
            split(rule, n, y=y, is_classification=is_classification).index, classes
        )
        for rule in ("dirichlet", "iid")
    )
    assert uniform < 0.1
    assert skewed > 0.25


def test_dirichlet_shares_have_the_moments_of_their_law():
    n_classes, n_agents, size = 2000, 4, 100
    y = np.tile(np.arange(n_classes), size)
    counts = np.zeros((n_classes, n_agents))
    np.add.at(counts, (y, split("dirichlet", len(y), n_agents, y=y).index), 1)
    shares = counts / size
    between_classes = 1 / (0.5 * n_agents + 1)
    variance = 1 / 4 * 3 / 4 * (between_classes + (1 - between_classes) / size)
    np.testing.assert_allclose(shares.mean(axis=0), 1 / 4, atol=0.03)
    np.testing.assert_allclose(shares.var(axis=0), variance, rtol=0.1)


def test_dirichlet_hands_out_rare_classes_evenly():
    sizes = split("dirichlet", 4000, 4, y=np.arange(4000)).sizes
    np.testing.assert_allclose(sizes, 1000, atol=150)


def test_dirichlet_does_not_depend_on_the_names_of_classes():
    y = targets(50)
    names = np.array(["p", "q", "r"])[y]
    np.testing.assert_array_equal(
        split("dirichlet", 50, y=y).index, split("dirichlet", 50, y=names).index
    )


def test_dirichlet_of_a_regression_does_not_depend_on_units():
    y = targets(50, is_classification=False)
    a, b = (split("dirichlet", 50, y=v, is_classification=False).index for v in (y, 2.0**900 * y))
    np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("rule", READS)
@pytest.mark.parametrize("y", [np.zeros(20), np.array([-1.7e308, 1.7e308] * 10)])
def test_extreme_targets_are_handed_out_in_silence(rule, y):
    ownership = split(rule, 20, y=y, is_classification=False)
    assert ownership.sizes.min() >= 1


def test_sorted_agents_own_consecutive_targets():
    y = targets(103, is_classification=False)
    ownership = split("sorted", 103, y=y, is_classification=False)
    assert np.all(np.diff(ownership.index[np.argsort(y)]) >= 0)


def test_sorted_keeps_the_order_of_equal_targets():
    ownership = split("sorted", 20, 4, y=np.zeros(20))
    assert ownership.index.tolist() == np.repeat(range(4), 5).tolist()
    assert ownership.rows_of(1) == slice(5, 10)


def test_a_callable_gets_the_data_and_names_the_agents():
    X, y = np.array([[1.0], [3.0], [2.0]]), np.array([0, 1, 0])

    def by_both(seen_X, seen_y):
        assert seen_X is X
        assert seen_y is y
        return np.where(seen_X[:, 0] + seen_y > 1.5, "high", "low")

    ownership = split(by_both, 3, X=X, y=y)
    assert ownership.labels.tolist() == ["high", "low"]
    assert ownership.index.tolist() == [1, 0, 0]


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("n_samples", [1, 2, 9, 10, 11])
def test_ten_agents_or_one_for_each_of_fewer_rows(rule, n_samples):
    assert split(rule, n_samples).n_agents == min(10, n_samples)


@pytest.mark.parametrize("partition", [1, *RULES])
def test_one_row_has_one_owner(partition):
    assert split(partition, 1).index.tolist() == [0]
    assert split(partition, 1, is_classification=False).sizes.tolist() == [1]


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("is_classification", [True, False])
def test_as_many_agents_as_rows_own_one_row_each(rule, is_classification):
    ownership = split(rule, 30, 30, is_classification=is_classification)
    assert ownership.sizes.tolist() == [1] * 30


@pytest.mark.parametrize("rule", RULES)
def test_one_agent_owns_all(rule):
    assert split(rule, 30, 1).rows_of(0) == slice(0, 30)


@pytest.mark.parametrize("rule", RULES)
def test_many_agents_share_many_rows(rule):
    ownership = split(rule, 200_000, 10_000, is_classification=False)
    assert ownership.sizes.min() >= 1
    assert ownership.sizes.sum() == 200_000


@pytest.mark.parametrize(
    "call", [split, lambda p, n, a=None: agent_sizes(p, n_samples=n, n_agents=a)]
)
@pytest.mark.parametrize(
    ("partition", "n_samples", "n_agents", "message"),
    [
        ("random", 5, None, r"Got partition='random', expected an int, one of \['iid', 'quantity'"),
        (None, 5, None, "Got partition=None"),
        (True, 5, None, "Got partition=True, expected an int"),
        (2.0, 5, None, r"Got partition=2\.0, expected an int"),
        (0, 5, None, r"Got partition=0, expected an int in \[1, inf\)"),
        (-1, 5, None, r"Got partition=-1, expected an int in \[1, inf\)"),
        (6, 5, None, "Got partition=6 for 5 rows, expected at most one agent per row"),
        ("iid", 5, 6, "Got n_agents=6 for 5 rows"),
        ("iid", 5, 0, r"Got n_agents=0, expected an int in \[1, inf\)"),
        ("iid", 5, True, "Got n_agents=True"),
        ("iid", 5, 2.0, r"Got n_agents=2\.0"),
        (3, 5, 3, "Got n_agents=3 with partition=3, expected n_agents=None"),
        (len, 5, 3, "Got n_agents=3 with partition=<built-in"),
        ("iid", 0, None, "Got n_samples=0"),
    ],
)
def test_what_cannot_be_asked_for_is_an_error(call, partition, n_samples, n_agents, message):
    with pytest.raises(ValueError, match=message):
        call(partition, n_samples, n_agents)


@pytest.mark.parametrize("seed", [-1, 0.5, None, True])
def test_a_seed_is_a_non_negative_int(seed):
    with pytest.raises(ValueError, match=r"Got seed=.*, expected an int in \[0, inf\)"):
        split("iid", 5, seed=seed)


@pytest.mark.parametrize("rule", READS)
def test_targets_are_needed_by_what_reads_them(rule):
    with pytest.raises(ValueError, match=r"Got y=None, expected shape \(5,\)"):
        partition_rows(rule, n_samples=5, is_classification=True)
    with pytest.raises(ValueError, match=r"Got y of shape \(4,\), expected shape \(5,\)"):
        split(rule, 5, y=np.zeros(4))


def test_a_callable_must_name_the_owner_of_every_row():
    with pytest.raises(ValueError, match=r"Got labels from the callable .* shape \(4,\)"):
        split(lambda X, y: y[1:], 5)
    with pytest.raises(ValueError, match="a missing label"):
        split(lambda X, y: np.where(y >= 0, np.nan, 0.0), 5)
