"""Additive secret sharing: sums are exact, and whoever misses a curator's shares learns no more."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

import skdpadmm.secret_sharing._additive as additive
from skdpadmm.secret_sharing import (
    Transcript,
    add_shares,
    centred,
    check_modulus,
    residues_of,
    share_and_sum,
    split,
    uniform_residues,
)

MODULI = [101, 97, 2**16, 2**61 - 1, 2**63 - 25, 2**63, 2**64]
# Chance of a false alarm of a test of uniformity.
ALARM = 1e-6


def lifted(number, modulus):
    """The integer in [-modulus / 2, modulus / 2) with that residue, by whole numbers alone."""
    residue = number % modulus
    return residue - modulus if 2 * residue >= modulus else residue


class Enumerated:
    """Hands out words that a test has chosen, in order."""

    def __init__(self, words):
        self.words, self.used = np.asarray(words, dtype=np.uint64), 0

    def __call__(self, size):
        drawn = self.words[self.used : self.used + size]
        assert len(drawn) == size
        self.used += size
        return drawn


# What is reconstructed.


@pytest.mark.parametrize("modulus", MODULI)
@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_sums_are_exact_whatever_the_modulus_the_curators_and_the_shares(modulus, data):
    n_agents = data.draw(st.integers(1, 6))
    half = min(modulus // 2 - 1, 2**63 - 1) // n_agents
    rows = data.draw(
        st.lists(
            st.lists(st.integers(-half, half), min_size=2, max_size=2),
            min_size=n_agents,
            max_size=n_agents,
        )
    )
    n_curators = data.draw(st.integers(1, 5))
    secrets, expected = (
        np.array(rows, dtype=np.int64),
        [sum(column) for column in zip(*rows, strict=True)],
    )
    residues = residues_of(secrets, modulus)
    assert residues.tolist() == [[value % modulus for value in row] for row in rows]
    shares = split(residues, n_curators, modulus)
    assert shares.shape == (n_agents, n_curators, 2)
    assert all(int(share) < modulus for share in shares.ravel())
    # Each message, by numbers that never wrap.
    found = [
        [lifted(sum(int(v) for v in shares[a, :, k]), modulus) for k in range(2)]
        for a in range(n_agents)
    ]
    assert found == rows
    assert centred(share_and_sum(residues, n_curators, modulus), modulus).tolist() == expected
    said = Transcript.of(secrets, modulus=modulus, n_curators=n_curators)
    assert said.total.tolist() == expected


@pytest.mark.parametrize("modulus", MODULI)
def test_residues_stand_for_the_integers_around_zero(modulus):
    top = (modulus - 1) // 2
    numbers = [0, 1, -1, top, -top, top - 1, 1 - top]
    numbers += [-modulus // 2] if modulus % 2 == 0 else []
    integers = np.array(numbers, dtype=np.int64)
    assert centred(residues_of(integers, modulus), modulus).tolist() == numbers
    # One more than the largest stands for the least.
    after = np.array([(top + 1) % modulus], dtype=np.uint64)
    assert centred(after, modulus).tolist() == [lifted(top + 1, modulus)]


def test_the_vector_of_the_specification():
    said = Transcript.of(np.array([[5], [-7], [4]]), modulus=101)
    assert said.total.tolist() == [2]
    assert sum(said.said.ravel().tolist()) % 101 == 2
    assert centred(np.array([99], dtype=np.uint64), 101).tolist() == [-2]
    assert residues_of(np.array([-2]), 101).tolist() == [99]


@pytest.mark.parametrize("modulus", MODULI)
@pytest.mark.parametrize("n_terms", [0, 1, 2, 3, 7, 64, 101])
def test_shares_are_added_exactly_along_any_axis(modulus, n_terms):
    top = np.uint64(modulus - 1)
    terms = np.full((2, n_terms, 3), top)
    terms[:, ::3] = uniform_residues((2, len(range(0, n_terms, 3)), 3), modulus)
    before = terms.copy()
    found = add_shares(terms, modulus, axis=1)
    expected = [[sum(terms[i, :, k].tolist()) % modulus for k in range(3)] for i in range(2)]
    assert found.tolist() == expected
    np.testing.assert_array_equal(terms, before)


@pytest.mark.parametrize("modulus", [97, 2**16, 2**61 - 1, 2**64])
@pytest.mark.parametrize("chunk", [1, 7, 30, 2**20])
def test_how_many_secrets_are_shared_at_once_changes_nothing(monkeypatch, modulus, chunk):
    monkeypatch.setattr(additive, "CHUNK", chunk)
    secrets = uniform_residues((11, 3), modulus)
    found = share_and_sum(secrets, 4, modulus)
    assert found.tolist() == [
        sum(column) % modulus for column in zip(*secrets.tolist(), strict=True)
    ]


def test_secrets_of_any_shape_are_shared():
    for shape in ((3,), (3, 0), (3, 2, 2)):
        secrets = np.arange(math.prod(shape), dtype=np.uint64).reshape(shape)
        for modulus in (10_007, 2**64):
            total = share_and_sum(secrets, 3, modulus)
            np.testing.assert_array_equal(total, secrets.sum(axis=0))
            assert total.shape == shape[1:]


@pytest.mark.parametrize(
    "modulus",
    [0, 1, -101, 2**63 + 1, 2**64 - 1, 2**64 + 1, 2**70, True, 101.0, "101", None, math.inf, [101]],
    ids=repr,
)
def test_a_bad_modulus_is_named(modulus):
    for use in (check_modulus, lambda m: Transcript.of(np.array([1]), modulus=m)):
        with pytest.raises(ValueError, match=r"^Got modulus=.*, expected an int in \[2, 2\*\*63\]"):
            use(modulus)


@pytest.mark.parametrize("modulus", [2, 3, 2**63, 2**64, np.int64(101), np.uint64(2**63)])
def test_a_good_modulus_is_a_plain_int(modulus):
    found = check_modulus(modulus)
    assert type(found) is int
    assert found == modulus


# Uniform shares.


@pytest.mark.parametrize("modulus", [2, 3, 5, 97, 101, 128])
def test_single_shares_are_uniform_whatever_the_secret(modulus):
    for secret in (0, 1, modulus - 1):
        secrets = np.full(20_000, secret, dtype=np.uint64)
        shares = split(secrets, 3, modulus)
        for curator in range(3):
            counts = np.bincount(shares[:, curator].astype(int), minlength=modulus)
            assert chisquare(counts).pvalue > ALARM


def test_words_that_would_favour_small_residues_are_drawn_again():
    # Words from 2**64 - 2**64 % m on would be one more for each residue below 2**64 % m.
    modulus = 10
    whole = 2**64 // modulus * modulus
    drawn = Enumerated([whole - 1, whole, 2**64 - 1, 3, whole + 2, 21, 17])
    found = uniform_residues((4,), modulus, drawn)
    # The second and the third are refused and drawn again, and one of these once more.
    assert drawn.used == 7
    assert found.tolist() == [9, 7, 1, 3]


def test_remainders_without_refusals_are_caught():
    modulus = 3 * 2**61
    words = np.frombuffer(np.random.default_rng(0).bytes(8 * 40_000), dtype=np.uint64)
    careless = (words % np.uint64(modulus) / (modulus / 12)).astype(int)
    assert chisquare(np.bincount(careless, minlength=12)).pvalue < 1e-12
    careful = (uniform_residues((40_000,), modulus) / (modulus / 12)).astype(int)
    assert chisquare(np.bincount(careful, minlength=12)).pvalue > ALARM


def test_shares_come_from_the_operating_system_and_are_fresh():
    secrets = np.zeros((2, 5), dtype=np.uint64)
    np.random.seed(0)  # noqa: NPY002 - what must not matter
    first = split(secrets, 3, 2**64)
    np.random.seed(0)  # noqa: NPY002
    second = split(secrets, 3, 2**64)
    assert not (first == second).any()


# Coalitions, exactly: every choice of the words is made once.


def views_of(secrets, modulus, n_curators, agents, curators):
    """How often a coalition sees each view, over all words that shares are made of."""
    n_agents = len(secrets)
    n_drawn = n_agents * (n_curators - 1)
    words = np.array(list(itertools.product(range(modulus), repeat=n_drawn)), dtype=np.uint64)
    # All of them at once: a run of the protocol for each, as entries of a vector.
    drawn = words.T.reshape(n_agents, n_curators - 1, -1)
    said = Transcript.of(
        np.repeat(np.array(secrets, dtype=np.int64)[:, None], len(words), axis=1),
        modulus=modulus,
        n_curators=n_curators,
        bits=lambda size: drawn.ravel() if drawn.size == size else pytest.fail("other words"),
    )
    return Counter(map(tuple, said.seen_by(agents, curators).T.tolist()))


def coalitions(n, sizes):
    return [set(c) for size in sizes for c in itertools.combinations(range(n), size)]


@pytest.fixture
def small_words(monkeypatch):
    """Words below the modulus, each residue once: what uniform words come down to."""

    def residues(shape, modulus, bits):
        drawn = bits(math.prod(shape))
        assert (drawn < modulus).all()
        return drawn.reshape(shape)

    monkeypatch.setattr(additive, "uniform_residues", residues)


def assert_views_tell_sums_alone(modulus, n_agents, n_curators, agents, curators, secrets):
    """Equal counts of all views for all honest secrets that have the same sum."""
    laws = {}
    for chosen in secrets:
        known = tuple(chosen[a] for a in sorted(agents))
        honest = sum(chosen[a] for a in range(n_agents) if a not in agents) % modulus
        law = views_of(chosen, modulus, n_curators, agents, curators)
        assert laws.setdefault((known, honest), law) == law
    # And other sums are told apart without fail: what everybody learns.
    for (one, law), (other, another) in itertools.combinations(laws.items(), 2):
        if one[0] == other[0] and one[1] != other[1]:
            assert not set(law) & set(another)


@pytest.mark.parametrize(("modulus", "n_agents"), [(2, 3), (3, 3), (2, 4)])
def test_no_coalition_that_leaves_two_learns_more_than_the_sum_of_the_others(
    small_words, modulus, n_agents
):
    # All agents are curators: one in the coalition gives away its secret and what it got.
    every = list(itertools.product(range(modulus), repeat=n_agents))
    secrets = every if n_agents == 3 else [s for s in every if s[0] == 0]
    for members in coalitions(n_agents, range(n_agents - 1)):
        if n_agents == 4 and members not in (set(), {0}, {0, 1}):
            continue  # All are alike but by name; the others are in the test by counts.
        assert_views_tell_sums_alone(modulus, n_agents, n_agents, members, members, secrets)


@pytest.mark.parametrize("modulus", [3, 4, 5])
def test_no_coalition_of_agents_and_some_servers_learns_more(small_words, modulus):
    secrets = [(a, b, 1) for a in range(modulus) for b in range(modulus)]
    for agents in coalitions(3, (0, 1)):
        for server in (set(), {0}, {1}):
            assert_views_tell_sums_alone(modulus, 3, 2, agents, server, secrets)


def test_all_servers_together_see_every_message(small_words):
    modulus = 3
    laws = {}
    for secrets in itertools.product(range(modulus), repeat=3):
        laws[secrets] = views_of(secrets, modulus, 2, set(), {0, 1})
    for one, other in itertools.combinations(laws, 2):
        assert not set(laws[one]) & set(laws[other])


def test_a_share_that_is_left_out_of_the_drawing_is_caught(small_words, monkeypatch):
    # One agent's shares that do not depend on chance: its secret is the last of them.
    modulus = 3

    def biased(secrets, n_curators, modulus, bits):
        shares = split(secrets, n_curators, modulus, bits)
        shares[0, :-1], shares[0, -1] = 0, secrets[0]
        return shares

    monkeypatch.setattr(additive, "split", biased)
    secrets = [(0, 0, 2), (0, 1, 1), (1, 0, 1), (2, 2, 1)]
    with pytest.raises(AssertionError):
        assert_views_tell_sums_alone(modulus, 3, 3, {2}, {2}, secrets)


# Coalitions, by counts: more agents than can be enumerated.


def codes_of_views(secrets, modulus, n_curators, agents, curators, n_runs):
    """Views of many runs, each as a number, without what others of its entries imply."""
    said = Transcript.of(
        np.repeat(np.array(secrets, dtype=np.int64)[:, None], n_runs, axis=1),
        modulus=modulus,
        n_curators=n_curators,
    )
    seen = said.seen_by(agents, curators).astype(np.int64)
    return np.ravel_multi_index(tuple(seen), (modulus,) * len(seen))


@pytest.mark.parametrize("n_agents", [3, 4])
@pytest.mark.parametrize("n_curators", [None, 2])
def test_views_of_all_coalitions_have_the_same_law_by_chi_square(n_agents, n_curators):
    modulus, n_runs = 2, 20_000
    rng = np.random.default_rng(0)
    count = n_agents if n_curators is None else n_curators
    for members in coalitions(n_agents, range(n_agents - 1)):
        curators = members if n_curators is None else {k for k in members if k < count}
        if len(curators) == count:
            continue
        first = rng.integers(0, modulus, n_agents)
        # Other secrets of the honest with the same sum: two bits are turned.
        second, honest = first.copy(), [a for a in range(n_agents) if a not in members]
        second[honest[:2]] = 1 - first[honest[:2]]
        assert (first - second)[honest].sum() % modulus == 0
        codes = [
            codes_of_views(chosen, modulus, count, members, curators, n_runs)
            for chosen in (first, second)
        ]
        values, places = np.unique(np.concatenate(codes), return_inverse=True)
        one, two = (np.bincount(p, minlength=len(values)) for p in np.split(places, 2))
        # Two samples of one law: each of a view's appearances is in either with chance a half.
        statistic = np.sum((one - two) ** 2 / (one + two))
        assert statistic < len(values) + 6 * math.sqrt(2 * len(values)) + 20
        # No view is more likely than another one.
        assert chisquare(one + two).pvalue > ALARM


def test_all_but_one_learn_the_secret_of_the_last_and_all_but_two_do_not():
    integers = np.array([[5, -1], [-7, 0], [4, 9], [11, -30]])
    said = Transcript.of(integers, modulus=1009)
    for victim in range(4):
        others = set(range(4)) - {victim}
        assert said.learned_by(others).tolist() == integers[victim].tolist()
        # From what they saw: all that is said, less what they sent the victim, and kept.
        sent = said.shares[sorted(others)].astype(np.int64).sum(axis=(0, 1))
        total = said.said.astype(np.int64).sum(axis=0) - sent
        assert [lifted(int(v), 1009) for v in total] == integers[victim].tolist()
        for left in others:
            pair = integers[victim] + integers[left]
            assert said.learned_by(others - {left}).tolist() == pair.tolist()


def test_pooled_curators_have_every_message_and_one_that_is_missing_hides_them():
    integers = np.array([[5], [-7], [4], [11]])
    for n_curators in (2, 3, 7):
        said = Transcript.of(integers, modulus=101, n_curators=n_curators)
        pooled = add_shares(said.shares, 101, axis=1)
        assert centred(pooled, 101).tolist() == integers.tolist()
    for missing in range(3):
        partial = []
        for secret in (-7, 30):
            secrets = np.full((20_000, 1), secret)
            said = Transcript.of(secrets, modulus=101, n_curators=3)
            known = np.delete(said.shares, missing, axis=1)
            partial.append(np.bincount(add_shares(known, 101, axis=1)[:, 0].astype(int)))
            assert chisquare(partial[-1]).pvalue > ALARM
        assert [len(counts) for counts in partial] == [101, 101]


def test_a_transcript_counts_what_is_seen():
    said = Transcript.of(np.arange(12).reshape(4, 3), modulus=97, n_curators=5)
    assert said.shares.shape == (4, 5, 3)
    assert said.said.shape == (5, 3)
    for agents, curators, n_shares in ((set(), set(), 0), ({1}, set(), 5), (set(), {0}, 4)):
        assert said.seen_by(agents, curators).shape == (n_shares + 5, 3)
    assert said.seen_by({0, 1}, {2}).shape == (10 + 2 + 5, 3)
    assert said.total.tolist() == [18, 22, 26]


@pytest.mark.parametrize("n_curators", [0, -1, 2.0, True, "2", math.nan])
def test_a_number_of_curators_that_is_none_is_refused(n_curators):
    with pytest.raises(ValueError, match=r"Got n_curators=.*, expected an int of at least 1\."):
        Transcript.of(np.array([[1], [2]]), modulus=97, n_curators=n_curators)


@pytest.mark.parametrize("secrets", [5, np.zeros((0, 2), int), [1.5, 2.0], [True, False], ["a"]])
def test_secrets_that_are_no_whole_numbers_of_agents_are_refused(secrets):
    with pytest.raises(ValueError, match=r"Got integers of shape .*, expected whole numbers"):
        Transcript.of(secrets, modulus=97)


@pytest.mark.parametrize("member", [-1, 3, 1.0, True, "0"])
def test_a_coalition_of_unknown_members_is_refused(member):
    said = Transcript.of(np.array([[1], [2], [3]]), modulus=97, n_curators=3)
    for learn in (said.learned_by, said.seen_by):
        with pytest.raises(ValueError, match=r"among agents, expected ints in \[0, 3\)"):
            learn([0, member])
    with pytest.raises(ValueError, match=r"among curators, expected ints in \[0, 3\)"):
        said.seen_by([], [member])
