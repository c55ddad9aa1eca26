"""Ownership that is stated by labels, and what is derived from it."""

from __future__ import annotations

from datetime import date

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skdpadmm.network import Ownership, ownership_of_labels


def labels_per_row(ownership):
    return ownership.labels[ownership.index].tolist()


def as_rows(ownership, agent):
    return np.arange(len(ownership.index))[ownership.rows_of(agent)]


LABELS = {
    "ints": [5, -1, 5, 2],
    "floats": [0.5, -1.0, 0.5, 2.0],
    "strings": ["b", "a", "b", "ü"],
    "int array": np.array([5, -1, 5, 2], dtype=np.int8),
    "string array": np.array(["b", "a", "b", "c"]),
    "object array": np.array(["b", "a", "b", "c"], dtype=object),
    "column of strings": pd.Series(["b", "a", "b", "c"], index=[9, 8, 7, 6]),
    "categories": pd.Series(["b", "a", "b", "c"], dtype="category"),
    "nullable ints": pd.Series([5, -1, 5, 2], dtype="Int64"),
    "dates": [date(2020, 1, 2), date(2020, 1, 1), date(2020, 1, 2), date(2021, 1, 1)],
    "timestamps": np.array(["2020-01-02", "2020-01-01", "2020-01-02", "2021-01-01"], "M8[ns]"),
    "huge ints": [2**63, -1, 2**63, 2**63 + 1],
    "trailing zeros": ["a\0", "a", "a\0", "b"],
}


@pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS)
def test_labels_of_any_sortable_type_are_found_again_by_row(labels):
    ownership = ownership_of_labels(labels, n_samples=4)
    assert ownership.n_agents == 3
    assert ownership.labels.tolist() == sorted(set(ownership.labels.tolist()))
    expected = labels if isinstance(labels, list) else np.asarray(labels).tolist()
    assert labels_per_row(ownership) == expected
    assert ownership.index.dtype == ownership.sizes.dtype == np.intp
    assert ownership.sizes.sum() == 4
    assert ownership.condition == ""


def test_tuples_in_an_object_array_are_labels():
    labels = np.empty(3, dtype=object)
    labels[:] = [("a", 1), ("a",), ("a", 1)]
    ownership = ownership_of_labels(labels, n_samples=3)
    assert ownership.labels.tolist() == [("a",), ("a", 1)]
    assert ownership.index.tolist() == [1, 0, 1]


@given(labels=st.lists(st.integers(-3, 3), min_size=1, max_size=30))
def test_agents_share_the_rows_out_in_ascending_order(labels):
    ownership = ownership_of_labels(labels, n_samples=len(labels))
    rows = [as_rows(ownership, agent) for agent in range(ownership.n_agents)]
    assert sorted(np.concatenate(rows).tolist()) == list(range(len(labels)))
    for agent, own in enumerate(rows):
        assert np.all(np.diff(own) > 0)
        assert np.all(ownership.index[own] == agent)
        assert len(own) == ownership.sizes[agent] >= 1


def test_neighbouring_rows_are_a_slice_and_scattered_rows_an_array():
    ownership = ownership_of_labels([0, 1, 1, 0, 2], n_samples=5)
    assert ownership.rows_of(1) == slice(1, 3)
    assert ownership.rows_of(2) == slice(4, 5)
    assert ownership.rows_of(0).tolist() == [0, 3]


def test_an_agent_without_rows_has_an_empty_slice():
    ownership = Ownership(labels=np.array(["a", "b", "c"]), index=np.array([2, 0]))
    assert ownership.sizes.tolist() == [1, 0, 1]
    assert as_rows(ownership, 1).tolist() == []


@pytest.mark.parametrize("agent", [-1, 2])
def test_an_agent_beyond_the_labels_is_an_error(agent):
    with pytest.raises(IndexError, match=rf"Got agent={agent}, expected an int in \[0, 2\)"):
        ownership_of_labels([0, 1], n_samples=2).rows_of(agent)


def test_what_is_cached_cannot_be_changed_through_a_view():
    rows = ownership_of_labels([0, 1, 0], n_samples=3).rows_of(0)
    with pytest.raises(ValueError, match="read-only"):
        rows[0] = 1


def test_one_row_has_one_owner():
    ownership = ownership_of_labels(["only"], n_samples=1)
    assert (ownership.n_agents, ownership.rows_of(0)) == (1, slice(0, 1))


@pytest.mark.parametrize("labels", [[1, 2], [[1], [2], [3]], 1, [], "abc"])
def test_labels_of_another_shape_than_the_rows_are_an_error(labels):
    with pytest.raises(ValueError, match=r"^Got agents of shape .*, expected shape \(3,\)"):
        ownership_of_labels(labels, n_samples=3)


@pytest.mark.parametrize(
    "labels",
    [
        ["a", None, "b"],
        ["a", np.nan, "b"],
        [1, None, 2],
        [1, float("nan"), 2],
        np.array([1.0, np.nan, np.nan]),
        np.array(["2020-01-01", "NaT", "2020-01-01"], dtype="M8[D]"),
        pd.Series(["a", pd.NA, "b"], dtype="string"),
        pd.Series([1, None, 2], dtype="Int64"),
        pd.Series(["a", None, "b"], dtype="category"),
        [None] * 3,
    ],
    ids=repr,
)
def test_a_missing_label_is_an_error(labels):
    with pytest.raises(ValueError, match="a missing label"):
        ownership_of_labels(labels, n_samples=3)


@pytest.mark.parametrize("labels", [[1, "a", 2], np.array(["a", 1, 2], object), [{}, {}, {}]])
def test_labels_that_cannot_be_sorted_are_an_error(labels):
    with pytest.raises(TypeError, match=r"cannot be sorted .* Convert them"):
        ownership_of_labels(labels, n_samples=3)
