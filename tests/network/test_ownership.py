"""Ownership that is stated by labels, and what is derived from it."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skdpadmm.network import ownership_of_labels, positions_of_labels

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
    with pytest.raises(ValueError, match=r"Got agents \['x'\], expected labels of agents that"):
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
        *[(labels, TypeError, r"cannot be sorted .* Convert them") for labels in UNSORTED],
    ],
)
def test_labels_that_do_not_say_who_owns_a_row_are_refused(labels, error, message):
    with pytest.raises(error, match=message):
        ownership_of_labels(labels, n_samples=3)
