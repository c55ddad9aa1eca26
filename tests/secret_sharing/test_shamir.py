"""Shamir's shares: any `threshold` of them reconstruct a sum exactly, and fewer say nothing."""

import itertools
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from skdpadmm import secret_sharing
from skdpadmm.secret_sharing import (
    PRIME,
    add_shares,
    centred,
    reconstruct,
    residues_of,
    share_and_sum,
    split_by_polynomials,
    uniform_residues,
)

PRIMES = [5, 127, 2**31 - 1, 2**61 - 31, PRIME]
ALARM = 1e-6


def value_at_zero(points, values, prime):
    """Of the polynomial through some points, by fractions that are taken modulo the prime last."""
    total = 0
    for x, y in zip(points, values, strict=True):
        weight = Fraction(1)
        for other in points:
            weight *= Fraction(other, other - x) if other != x else 1
        total += y * weight.numerator * pow(weight.denominator, -1, prime)
    return total % prime


@given(prime=st.sampled_from(PRIMES), n_curators=st.integers(2, 4), data=st.data())
def test_any_threshold_of_curators_reconstruct_the_exact_sum(prime, n_curators, data):
    threshold = data.draw(st.integers(2, n_curators))
    n_agents = data.draw(st.integers(1, 6))
    edge = st.sampled_from([0, 1, prime // 2, prime - 1]) | st.integers(0, prime - 1)
    rows = data.draw(st.lists(st.tuples(edge, edge), min_size=n_agents, max_size=n_agents))
    secrets = np.array(rows, dtype=np.uint64)
    shares = split_by_polynomials(secrets, n_curators, threshold, prime)
    assert shares.shape == (n_agents, n_curators, 2)
    assert shares.max() < prime
    sums = add_shares(shares, prime)
    assert sums.tolist() == [
        [sum(column) % prime for column in zip(*of_one, strict=True)]
        for of_one in np.moveaxis(shares, 1, 0).tolist()
    ]
    expected = [sum(column) % prime for column in zip(*rows, strict=True)]
    for curators in itertools.permutations(range(n_curators), threshold):
        some = sums[list(curators)]
        assert reconstruct(some, curators, prime).tolist() == expected
        points = [curator + 1 for curator in curators]
        found = [value_at_zero(points, values, prime) for values in some.T.tolist()]
        assert found == expected
    assert share_and_sum(secrets, n_curators, prime, threshold).tolist() == expected


def views_of(secrets, prime, n_curators, threshold, curators, agents=()):
    """How often some curators and agents see each view, over all polynomials there are."""
    every = itertools.product(range(prime), repeat=len(secrets) * (threshold - 1))
    words = np.array(list(every), dtype=np.uint64).T
    repeated = np.repeat(np.array(secrets, dtype=np.uint64)[:, None], words.shape[1], axis=1)
    shares = split_by_polynomials(
        repeated, n_curators, threshold, prime, bits=lambda size: words.ravel()
    )
    # What curators got of everybody, what agents sent, and the sums that all curators send.
    seen = np.zeros(shares.shape[:2], dtype=bool)
    seen[:, list(curators)] = seen[list(agents)] = True
    views = np.concatenate([shares[seen], add_shares(shares, prime)])
    return Counter(map(tuple, views.T.tolist()))


@pytest.mark.parametrize(
    ("prime", "n_agents", "n_curators", "threshold"),
    [(5, 1, 4, 2), (5, 1, 4, 3), (7, 1, 3, 3), (5, 2, 3, 2), (3, 3, 2, 2), (5, 2, 4, 3)],
)
def test_fewer_curators_learn_the_sum_and_nothing_else(prime, n_agents, n_curators, threshold):
    for curators in itertools.combinations(range(n_curators), threshold - 1):
        laws = {}
        for secrets in itertools.product(range(prime), repeat=n_agents):
            law = views_of(secrets, prime, n_curators, threshold, curators)
            assert laws.setdefault(sum(secrets) % prime, law) == law
        # Of a single message the shares alone: uniform on all vectors there are.
        one = views_of((0,), prime, n_curators, threshold, curators)
        shares = Counter()
        for view, times in one.items():
            shares[view[: threshold - 1]] += times
        assert set(shares.values()) == {1}
        assert len(shares) == prime ** (threshold - 1)


@pytest.mark.parametrize("member", [0, 2])
def test_a_coalition_of_agents_who_are_curators_learns_the_sum_of_the_others(member):
    """Agents are the curators, as on a graph: one knows its secret and what it received."""
    laws = {}
    for secrets in itertools.product(range(5), repeat=3):
        law = views_of(secrets, 5, 3, 2, (member,), (member,))
        known = secrets[member], sum(secrets) % 5
        assert laws.setdefault(known, law) == law
    assert len({tuple(sorted(law.items())) for law in laws.values()}) == len(laws)


def test_two_sets_of_senders_in_one_round_reveal_a_message():
    """Why one set is agreed upon: the difference of two sums is what one has more."""
    secrets = residues_of(np.array([5, -7, 4]), PRIME)
    shares = split_by_polynomials(secrets, 3, 2)
    everyone, two = (reconstruct(add_shares(s, PRIME)[:2], (0, 1)) for s in (shares, shares[:2]))
    assert centred(add_shares(np.array([everyone, PRIME - int(two)], np.uint64), PRIME), PRIME) == 4
    # Sums over different sets do not reconstruct anything.
    mixed = np.stack([add_shares(shares, PRIME)[0], add_shares(shares[:2], PRIME)[1]])
    assert reconstruct(mixed, (0, 1)) not in (everyone, two)


def test_residues_of_a_prime_are_uniform_and_stand_for_integers():
    for prime, n_classes in ((3, 3), (5, 5), (127, 127), (PRIME, 64)):
        drawn = uniform_residues((40_000,), prime)
        assert drawn.max() < prime
        classes = drawn // np.uint64(-(-prime // n_classes))
        assert chisquare(np.bincount(classes.astype(int), minlength=n_classes)).pvalue > ALARM
        top = prime // 2
        numbers = np.array([0, 1, -1, top, -top], dtype=np.int64)
        np.testing.assert_array_equal(centred(residues_of(numbers, prime), prime), numbers)
    # A word that is too large is drawn again.
    words = iter([[7, 2, 6, 31, 5], [15, 1], [4]])
    drawn = uniform_residues((5,), 7, bits=lambda size: np.array(next(words), dtype=np.uint64))
    assert drawn.tolist() == [4, 2, 6, 1, 5]


@pytest.mark.parametrize("chunk", [1, 7, 40])
def test_how_many_secrets_are_shared_at_once_changes_nothing(monkeypatch, chunk):
    monkeypatch.setattr(secret_sharing, "CHUNK", chunk)
    for shape in ((11,), (11, 0), (11, 2, 2)):
        secrets = uniform_residues(shape, PRIME)
        found = share_and_sum(secrets, 4, PRIME, 3)
        np.testing.assert_array_equal(found, add_shares(secrets, PRIME))
