"""Sums are computed before the lock is taken, and nothing that others add meanwhile is missed."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from skdpadmm.ledger import PrivacyBudgetExceeded, PrivacyLedger, _ledger
from skdpadmm.privacy import GaussianDP, gaussian_mu

WHOLE = gaussian_mu(1.0, 1e-6)


@pytest.fixture
def ledger(path):
    ledger = PrivacyLedger(path)
    ledger.limit(1.0, 1e-6)
    return ledger


@pytest.fixture
def meanwhile(monkeypatch):
    """Do something while a sum is computed, and count how often one is."""

    def watch(act):
        n_sums, decide = [0], _ledger.first_passed

        def first_passed(limits, counted, new):
            n_sums[0] += 1
            passed = decide(limits, counted, new)
            act(n_sums[0])
            return passed

        monkeypatch.setattr(_ledger, "first_passed", first_passed)
        return n_sums

    return watch


def is_free(path):
    with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as connection:
        try:
            connection.execute("BEGIN EXCLUSIVE")  # no reader either
        except sqlite3.OperationalError:
            return False
        connection.execute("ROLLBACK")
    return True


def test_nobody_waits_for_a_sum(ledger, path, entry, meanwhile):
    free = []
    n_sums = meanwhile(lambda i: free.append(is_free(path)))
    ledger.reserve(entry(GaussianDP(0.1 * WHOLE)))
    assert free == [True]
    assert n_sums == [1]
    with pytest.raises(PrivacyBudgetExceeded):
        ledger.reserve(entry(GaussianDP(2.0 * WHOLE)))
    assert free == [True, True]


def test_what_others_spend_during_a_sum_counts(ledger, path, entry, store, meanwhile):
    other = entry(GaussianDP(0.9 * WHOLE))

    def spend(i):
        if i == 1:
            store(path, other.promise(), other.record())

    n_sums = meanwhile(spend)
    with pytest.raises(PrivacyBudgetExceeded) as caught:
        ledger.reserve(entry(GaussianDP(0.9 * WHOLE)))
    assert n_sums == [2]
    assert caught.value.epsilon_spent == GaussianDP(0.9 * WHOLE).epsilon(1e-6)
    assert len(ledger.entries()) == 1


def test_a_limit_that_is_set_during_a_sum_counts(ledger, path, entry, meanwhile):
    n_sums = meanwhile(lambda i: PrivacyLedger(path).limit(0.1, 1e-6) if i == 1 else None)
    with pytest.raises(PrivacyBudgetExceeded):
        ledger.reserve(entry(GaussianDP(0.9 * WHOLE)))
    assert n_sums == [2]


def test_whoever_is_always_too_late_computes_under_the_lock(ledger, path, entry, store, meanwhile):
    other = entry(GaussianDP(0.1 * WHOLE))
    free = []

    def spend(i):
        free.append(is_free(path))
        if free[-1]:
            store(path, other.promise(), other.record())

    meanwhile(spend)
    ledger.reserve(entry(GaussianDP(0.9 * WHOLE)))
    assert free == [True] * _ledger._TRIES + [False]
    assert len(ledger.entries()) == _ledger._TRIES + 1
    assert ledger.total(1e-6) <= 1.0
