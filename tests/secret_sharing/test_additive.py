"""Additive secret sharing: sums are exact, and whoever misses a curator's shares learns no more."""

import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from skdpadmm import secret_sharing
from skdpadmm.secret_sharing import (
    add_shares,
    centred,
    residues_of,
    share_and_sum,
    split,
    uniform_residues,
)

MODULI = [16, 2**16, 2**61, 2**63, 2**64]
# Chance of a false alarm of a test of uniformity.
ALARM = 1e-6


@given(modulus=st.sampled_from(MODULI), n_curators=st.integers(1, 5), data=st.data())
def test_sums_are_exact_whatever_the_modulus_the_curators_and_the_shares(modulus, n_curators, data):
    n_agents = data.draw(st.integers(1, 6))
    half = min(modulus // 2 - 1, 2**63 - 1) // n_agents
    row = st.lists(st.integers(-half, half), min_size=2, max_size=2)
    rows = data.draw(st.lists(row, min_size=n_agents, max_size=n_agents))
    expected = [sum(column) for column in zip(*rows, strict=True)]
    secrets = np.array(rows, dtype=np.int64)
    residues = residues_of(secrets, modulus)
    assert residues.tolist() == [[value % modulus for value in row] for row in rows]
    shares = split(residues, n_curators, modulus)
    assert shares.shape == (n_agents, n_curators, 2)
    assert all(int(share) < modulus for share in shares.ravel())
    # Each message, by numbers that never wrap.
    messages = [[sum(column) % modulus for column in zip(*s, strict=True)] for s in shares.tolist()]
    assert messages == residues.tolist()
    assert centred(share_and_sum(residues, n_curators, modulus), modulus).tolist() == expected
    assert centred(add_shares(shares, modulus, axis=1), modulus).tolist() == rows


@pytest.mark.parametrize("modulus", MODULI)
def test_residues_stand_for_the_integers_around_zero(modulus):
    top, least = (modulus - 1) // 2, -(modulus // 2)
    numbers = np.array([0, 1, -1, top, -top, top - 1, least], dtype=np.int64)
    np.testing.assert_array_equal(centred(residues_of(numbers, modulus), modulus), numbers)
    # One more than the largest stands for the least.
    assert centred(np.array([top + 1], dtype=np.uint64), modulus).tolist() == [least]


@pytest.mark.parametrize("modulus", MODULI)
@pytest.mark.parametrize("chunk", [1, 7, 30])
def test_how_many_secrets_of_any_shape_are_shared_at_once_changes_nothing(
    monkeypatch, modulus, chunk
):
    monkeypatch.setattr(secret_sharing, "CHUNK", chunk)
    for shape in ((11,), (11, 0), (11, 2, 2)):
        secrets = uniform_residues(shape, modulus)
        found = share_and_sum(secrets, 4, modulus)
        np.testing.assert_array_equal(found, add_shares(secrets, modulus))


def test_residues_are_uniform():
    for modulus, n_classes in ((2, 2), (16, 16), (128, 128), (2**61, 32), (2**64, 64)):
        residues = uniform_residues((40_000,), modulus) // np.uint64(modulus // n_classes)
        assert chisquare(np.bincount(residues.astype(int), minlength=n_classes)).pvalue > ALARM


def test_shares_come_from_the_operating_system_and_are_fresh():
    shares = []
    for _ in range(2):
        np.random.seed(0)  # noqa: NPY002 - what must not matter
        shares.append(split(np.zeros((2, 5), dtype=np.uint64), 3, 2**64))
    assert not (shares[0] == shares[1]).any()


# Coalitions, exactly: every choice of the words is made once.


def views_of(secrets, modulus, n_curators, agents, curators):
    """How often a coalition sees each view, over all words that shares are made of."""
    every = itertools.product(range(modulus), repeat=len(secrets) * (n_curators - 1))
    # All of them at once: a run of the protocol for each, as entries of a vector.
    words = np.array(list(every), dtype=np.uint64).T
    repeated = np.repeat(np.array(secrets, dtype=np.uint64)[:, None], words.shape[1], axis=1)
    shares = split(repeated, n_curators, modulus, bits=lambda size: words.ravel())
    # Shares that agents sent or curators received, and the sums that all curators send.
    seen = np.zeros(shares.shape[:2], dtype=bool)
    seen[sorted(agents)] = True
    seen[:, sorted(curators)] = True
    views = np.concatenate([shares[seen], add_shares(shares, modulus)])
    return Counter(map(tuple, views.T.tolist()))


@pytest.mark.parametrize(
    ("modulus", "n_agents", "n_curators", "agents", "curators"),
    [
        # All agents are curators: one in the coalition reveals its secret and what it received.
        *[(m, 3, 3, members, members) for m in (2, 4) for members in (set(), {0}, {1}, {2})],
        *[(2, 4, 4, members, members) for members in (set(), {0}, {0, 1})],
        # Agents and some of two servers.
        *[(m, 3, 2, agents, {0}) for m in (2, 4, 8) for agents in (set(), {2})],
        *[(4, 3, 2, agents, {1}) for agents in (set(), {0})],
    ],
)
def test_no_coalition_learns_more_than_the_sum_of_the_others(
    modulus, n_agents, n_curators, agents, curators
):
    laws = {}
    every = itertools.product(range(modulus), repeat=n_agents)
    for secrets in every if n_agents == 3 else (s for s in every if s[0] == 0):
        known = tuple(secrets[a] for a in sorted(agents))
        honest = sum(secrets[a] for a in range(n_agents) if a not in agents) % modulus
        law = views_of(secrets, modulus, n_curators, agents, curators)
        assert laws.setdefault((known, honest), law) == law
    # Different sums are always distinguished: everybody learns the sum.
    for (one, law), (other, another) in itertools.combinations(laws.items(), 2):
        if one[0] == other[0]:
            assert not set(law) & set(another)
