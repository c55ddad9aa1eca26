"""Sums of what was stored: data sets, observers, units, simulations, limits, streams."""

from __future__ import annotations

import json
import math
import pickle
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from skdpadmm import DPAdmmRidge
from skdpadmm.ledger import (
    LedgerEntry,
    LedgerError,
    PrivacyBudgetExceeded,
    PrivacyLedger,
    _ledger,
)
from skdpadmm.privacy import (
    GaussianDP,
    LaplaceDP,
    NonPrivate,
    Observer,
    PoissonSubsampledGaussian,
    Worst,
    compose,
    gaussian_mu,
)

WHOLE = gaussian_mu(1.0, 1e-6)
REPLACE_ONE = {"unit": "record", "neighboring": "replace_one"}


def test_an_account_is_the_sum_of_its_fits_by_estimator_and_in_all(ledger, path, entry):
    for subject, mu in (("Lasso", 0.3), ("Ridge", 0.1), ("Lasso", 0.4), ("Ridge", 0.1)):
        ledger.finish(ledger.reserve(entry(GaussianDP(mu), subject=subject)))
    total = GaussianDP(math.hypot(0.3, 0.4, 0.1, 0.1)).epsilon(1e-6)
    assert ledger.total(1e-6) == PrivacyLedger(path).total(1e-6) == pytest.approx(total, rel=1e-12)
    figures = ledger.epsilon_by_estimator(1e-6)
    assert list(figures) == ["Lasso", "Ridge"]
    assert figures["Lasso"] == pytest.approx(GaussianDP(0.5).epsilon(1e-6), rel=1e-12)
    other = [PoissonSubsampledGaussian(0.1, 20.0, 100, "replace_one"), LaplaceDP((0.1,))]
    for part in other:
        ledger.reserve(entry(part))
    total = compose(*other, *map(GaussianDP, (0.3, 0.4, 0.1, 0.1))).epsilon(1e-6)
    assert ledger.total(1e-6) == pytest.approx(total, rel=1e-9)
    ledger.reserve(entry(NonPrivate()))
    assert ledger.total(1e-6) == ledger.entries()[-1]["epsilon"] == math.inf


def test_data_sets_are_told_apart_and_what_has_no_name_overlaps_with_all(ledger, path, entry):
    ledger.reserve(entry(GaussianDP(0.1)))
    # Two spellings of one name in Unicode are one name.
    for name, mu in (("caf\u00e9", 0.1), ("cafe\u0301", 0.1), ("bank", 0.4)):
        PrivacyLedger(f"{path}::{name}").reserve(entry(GaussianDP(mu)))
    assert ledger.guarantee().mu == pytest.approx(math.hypot(0.1, 0.1, 0.1, 0.4))
    assert ledger.guarantee("caf\u00e9").mu == pytest.approx(0.1 * math.sqrt(3))
    assert PrivacyLedger(f"{path}::bank").guarantee() == ledger.guarantee("bank")
    assert ledger.guarantee(disjoint=True).mu == pytest.approx(math.hypot(0.1, 0.4))
    with pytest.raises(ValueError, match=r"\['bank', "):
        ledger.total(1e-6, "bnak")
    with pytest.warns(UserWarning, match=r"'bnak', expected one of \['bank', .* spelling"):
        PrivacyLedger(f"{path}::bnak").total(1e-6)
    with pytest.raises(LedgerError, match=r"expected 'bank', .* Use that spelling"):
        PrivacyLedger(f"{path}::BANK").reserve(entry(GaussianDP(0.1)))


def test_observers_by_name_and_the_adversary_of_each_fit(ledger, entry):
    server = Observer("server", "messages", "record", "replace_one", GaussianDP(0.5))
    ledger.reserve(entry(GaussianDP(0.1), others=(server,)))
    assert ledger.guarantee() == GaussianDP(0.1)
    assert ledger.guarantee(observer="server") == GaussianDP(0.5)
    ledger.reserve(entry(GaussianDP(0.1)))
    with pytest.raises(LedgerError, match="says nothing about it"):
        ledger.total(1e-6, observer="server")


def test_units_and_relations_are_converted_only_when_asked(ledger, entry):
    ledger.reserve(entry(GaussianDP(0.1)))
    ledger.reserve(entry(GaussianDP(0.1), neighboring="zero_out"))
    ledger.reserve(entry(GaussianDP(0.1), unit="agent"))
    with pytest.raises(LedgerError, match="3 kinds of neighbours"):
        ledger.total(1e-6)
    assert ledger.guarantee(**REPLACE_ONE).mu == pytest.approx(math.hypot(0.1, 0.2, 0.1))
    with pytest.raises(LedgerError, match="about agent, replace one"):
        ledger.guarantee(unit="agent", neighboring="replace_one")
    with pytest.raises(ValueError, match="together"):
        ledger.guarantee(unit="record")


def test_simulations_are_stored_count_in_limits_and_refuse_to_be_summed(ledger, entry):
    ledger.reserve(entry(GaussianDP(0.3)))
    ledger.reserve(entry(GaussianDP(0.4), simulation=True))
    for ask in (ledger.total, ledger.epsilon_by_estimator):
        with pytest.raises(LedgerError, match="include_simulated=True"):
            ask(1e-6)
    assert ledger.guarantee(include_simulated=True).mu == pytest.approx(0.5)
    assert [e["simulation"] for e in ledger.entries()] == [False, True]
    ledger.limit(3.0, 1e-6)
    with pytest.raises(PrivacyBudgetExceeded):
        ledger.reserve(entry(GaussianDP(1.0), simulation=True))


def test_a_limit_refuses_says_what_is_left_and_stores_nothing(ledger, entry):
    ledger.limit(3.0, 1e-6)
    ledger.limit(1.0, 1e-6)  # the last one holds
    ledger.reserve(entry(GaussianDP(0.6 * WHOLE)))
    with pytest.raises(PrivacyBudgetExceeded, match="Nothing was stored") as caught:
        ledger.reserve(entry(GaussianDP(0.81 * WHOLE)))
    error = caught.value
    assert error.epsilon_spent == GaussianDP(0.6 * WHOLE).epsilon(1e-6)
    assert error.epsilon_left == pytest.approx(GaussianDP(0.8 * WHOLE).epsilon(1e-6))
    assert (error.epsilon, error.delta) == (1.0, 1e-6)
    assert vars(pickle.loads(pickle.dumps(error))) == vars(error)
    assert len(ledger.entries()) == 1
    ledger.reserve(entry(GaussianDP(gaussian_mu(error.epsilon_left, 1e-6))))
    assert ledger.total(1e-6) <= 1.0 + 1e-9


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-6), (0.1, 1e-9)])
def test_a_budget_that_is_the_limit_fits_and_leaves_nothing(ledger, entry, epsilon, delta):
    ledger.limit(epsilon, delta)
    ledger.reserve(entry(GaussianDP(gaussian_mu(epsilon, delta))))
    with pytest.raises(PrivacyBudgetExceeded):
        ledger.reserve(entry(GaussianDP(0.001)))


def test_a_limit_is_checked_at_its_own_delta(ledger, entry):
    ledger.limit(50.0, 0.0)
    for part in (GaussianDP(1e-3), Worst((GaussianDP(0.1), LaplaceDP((0.1,)))), NonPrivate()):
        with pytest.raises(PrivacyBudgetExceeded):
            ledger.reserve(entry(part))
    ledger.reserve(entry(LaplaceDP((50.0,))))
    with pytest.raises(PrivacyBudgetExceeded):
        ledger.reserve(entry(LaplaceDP((0.1,))))


def test_limits_of_data_sets_and_of_everything(path, entry):
    adult, bank, all_of_it = (PrivacyLedger(path + name) for name in ("::adult", "::bank", ""))
    adult.limit(1.0, 1e-6)
    bank.reserve(entry(GaussianDP(2 * WHOLE)))
    adult.reserve(entry(GaussianDP(0.6 * WHOLE)))
    with pytest.raises(PrivacyBudgetExceeded, match="'adult'"):
        all_of_it.reserve(entry(GaussianDP(0.9 * WHOLE)))
    with pytest.warns(UserWarning, match="spent already, epsilon=2"):
        all_of_it.limit(1.0, 1e-6)
    with pytest.raises(PrivacyBudgetExceeded, match=r"Nothing is left\."):
        adult.reserve(entry(GaussianDP(0.01 * WHOLE)))
    # The bank is beyond it all the same, and adult is not.
    with pytest.warns(UserWarning, match="every fit that counts for it is refused"):
        all_of_it.limit(1.0, 1e-6, disjoint=True)
    adult.reserve(entry(GaussianDP(0.01 * WHOLE)))
    with pytest.raises(PrivacyBudgetExceeded):
        bank.reserve(entry(GaussianDP(0.01 * WHOLE)))
    assert [limit["dataset"] for limit in bank.limits()] == ["", "adult"]


def test_a_limit_knows_its_relation_and_one_that_cannot_be_checked_is_refused(ledger, entry):
    ledger.limit(3.0, 1e-6)
    ledger.reserve(entry(GaussianDP(0.1)))
    with pytest.raises(LedgerError, match="2 kinds"):
        ledger.reserve(entry(GaussianDP(0.01), neighboring="zero_out"))
    assert len(ledger.entries()) == 1
    ledger.limit(3.0, 1e-6, **REPLACE_ONE)
    ledger.reserve(entry(GaussianDP(0.01), neighboring="zero_out"))
    with pytest.raises(LedgerError, match="says something about"):
        ledger.limit(1.0, 1e-6, unit="agent", neighboring="zero_out")
    assert ledger.limits()[0]["epsilon"] == 3.0


def test_limits_and_questions_out_of_range_are_refused(ledger, gaussian):
    ledger.reserve(gaussian)
    for epsilon, delta in ((-1, 0.1), (math.inf, 0.1), (1, -0.1), (1, 1)):
        with pytest.raises(ValueError, match=r"Got .* expected a float in"):
            ledger.limit(epsilon, delta)
    for ask in (ledger.total, ledger.epsilon_by_estimator):
        with pytest.raises(ValueError, match=r"Got delta=.* expected a float in \[0, 1\]"):
            ask(math.nan)
    for ask in (lambda: ledger.total("1"), lambda: ledger.limit(1.0, None)):
        with pytest.raises(TypeError, match=r"Got \w+=.*, expected a float in .* Give a number"):
            ask()


def test_a_stream_takes_each_position_once(ledger, path, gaussian):
    one, other = ledger.reserve(gaussian), ledger.reserve(gaussian)
    assert [ledger.advance(one, first) for first in (0, 10, 0, 10)] == [True, True, False, False]
    assert PrivacyLedger(path).advance(other, np.int64(10))
    assert not PrivacyLedger(path).advance(one, 10)
    for bad, error in (((one, -1), ValueError), ((one, 1.0), TypeError), (("0", 0), LedgerError)):
        with pytest.raises(error, match=r"Got .*, expected"):
            ledger.advance(*bad)


def test_a_fit_is_counted_around_its_work(ledger, gaussian):
    with ledger.counting(gaussian):
        assert [fit["state"] for fit in ledger.entries()] == ["reserved"]
    with pytest.raises(LedgerError, match="key"):
        ledger.finish("0" * 32)
    with pytest.raises(FloatingPointError), ledger.counting(gaussian):
        raise FloatingPointError
    assert [fit["state"] for fit in ledger.entries()] == ["done", "reserved"]
    assert ledger.guarantee().mu == pytest.approx(0.1 * math.sqrt(2))


def test_copies_are_paths_and_entries_are_plain(path, entry):
    ledger = PrivacyLedger(f"{path}::adult")
    ledger.finish(ledger.reserve(entry(GaussianDP(0.3))))
    again = pickle.loads(pickle.dumps(ledger))
    assert (repr(again), again.guarantee()) == (repr(ledger), ledger.guarantee())
    (plain,) = ledger.entries()
    json.dumps(plain, allow_nan=False)
    assert (plain["dataset"], plain["state"], plain["digest"]) == ("adult", "done", "0" * 64)
    assert plain["epsilon"] == GaussianDP(0.3).epsilon(1e-6)
    assert ledger.to_frame().loc[0, list(plain)].to_dict() == plain


def test_the_file_holds_guarantees_and_nothing_of_the_data(ledger, path):
    X = np.random.default_rng(0).normal(size=(50, 3))
    model = DPAdmmRidge(epsilon=1.0, delta=1e-6, ledger=path).fit(X, X[:, 0])
    with closing(sqlite3.connect(path)) as connection:
        ((promise, record),) = connection.execute("SELECT promise, record FROM entries").fetchall()
    spent = json.loads(promise)["observers"][0]["guarantee"]
    assert spent == model.privacy_.guarantee().to_dict()
    fields = {"version", "subject", "digest", "delta", "host", "pid", "time"}
    assert set(json.loads(record)) == fields
    content = Path(path).read_bytes()
    assert not any(
        repr(x)[:8].encode() in content for x in (*X.ravel().tolist(), *model.coef_.tolist())
    )


def observed(name="model", unit="record", neighboring="replace_one"):
    return {"observers": (Observer(name, "", unit, neighboring, GaussianDP(0.1)),)}


def test_entries_that_could_not_be_read_again_are_never_made():
    good = {"subject": "Lasso", "digest": "0" * 64, "delta": 1e-6, **observed()}
    LedgerEntry(**good)
    for change in (
        *[{"subject": ""}, {"subject": "a b\n"}, {"digest": "0" * 63}, {"delta": math.nan}],
        *[{"observers": ()}, {"simulation": 1}, observed("adversary")],
        *[observed(neighboring="replaced"), observed(unit="records")],
    ):
        with pytest.raises((LedgerError, TypeError, ValueError)):
            LedgerEntry(**{**good, **change})


def test_what_others_reserve_while_a_sum_is_computed_counts(ledger, path, entry, monkeypatch):
    decide, theirs = _ledger.first_passed, entry(GaussianDP(0.9 * WHOLE))

    def first_passed(*asked):
        monkeypatch.setattr(_ledger, "first_passed", decide)
        with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as connection:
            connection.execute("BEGIN EXCLUSIVE")  # nobody waits for a sum
        PrivacyLedger(path).reserve(theirs)
        return decide(*asked)

    ledger.limit(1.0, 1e-6)
    monkeypatch.setattr(_ledger, "first_passed", first_passed)
    with pytest.raises(PrivacyBudgetExceeded):
        ledger.reserve(theirs)
    assert len(ledger.entries()) == 1
