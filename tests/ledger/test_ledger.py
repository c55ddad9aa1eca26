"""Sums of what was stored: data sets, observers, units, simulations, limits, streams."""

from __future__ import annotations

import copy
import json
import math
import pickle
import sqlite3
import struct
from contextlib import closing

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
    RenyiDP,
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


def test_a_name_that_a_reader_takes_for_another_is_refused_before_a_fit(path, gaussian):
    PrivacyLedger(f"{path}::adult").limit(9.0, 1e-6)
    for other in ("ADULT", "\uff21dult", "adult\ufe0f", "ad\u034fult"):
        second = PrivacyLedger(f"{path}::{other}")
        for use in (
            lambda second=second: second.reserve(gaussian),
            lambda second=second: second.limit(1.0, 1e-6),
            lambda second=second: second.total(1e-6),
        ):
            with pytest.raises(LedgerError, match=r"expected 'adult', .* Use that spelling"):
                use()
    model = DPAdmmRidge(ledger=f"{path}::Adult")
    with pytest.raises(LedgerError, match="Use that spelling"):
        PrivacyLedger(model.ledger).check(model, np.zeros((50, 2)), np.zeros(50))
    PrivacyLedger(f"{path}::adult2").reserve(gaussian)


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


def test_simulations_are_stored_count_in_limits_and_refuse_to_be_summed(ledger, path, entry):
    ledger.reserve(entry(GaussianDP(0.3)))
    ledger.reserve(entry(GaussianDP(0.4), simulation=True))
    for ask in (ledger.total, ledger.epsilon_by_estimator):
        with pytest.raises(LedgerError, match="include_simulated=True"):
            ask(1e-6)
    assert ledger.guarantee(include_simulated=True).mu == pytest.approx(0.5)
    assert [e["simulation"] for e in ledger.entries()] == [False, True]
    PrivacyLedger(f"{path}2::toy").reserve(entry(GaussianDP(0.3), simulation=True))
    adult = PrivacyLedger(f"{path}2::adult")
    adult.limit(1.0, 1e-6)
    with pytest.raises(PrivacyBudgetExceeded):
        adult.reserve(entry(GaussianDP(1.0), simulation=True))
    adult.reserve(entry(GaussianDP(0.1)))
    assert adult.guarantee() == GaussianDP(0.1)


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
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), vars(again)) == (str(error), vars(error))
    assert len(ledger.entries()) == 1
    ledger.reserve(entry(GaussianDP(gaussian_mu(error.epsilon_left, 1e-6))))
    assert ledger.total(1e-6) <= 1.0 + 1e-9


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-6), (0.1, 1e-9), (5.0, 1e-5)])
def test_a_budget_that_is_the_limit_fits_and_leaves_nothing(ledger, entry, epsilon, delta):
    ledger.limit(epsilon, delta)
    ledger.reserve(entry(GaussianDP(gaussian_mu(epsilon, delta))))
    with pytest.raises(PrivacyBudgetExceeded):
        ledger.reserve(entry(GaussianDP(0.001)))


def test_a_limit_is_checked_at_its_own_delta(path, entry):
    pure = PrivacyLedger(f"{path}0")
    pure.limit(50.0, 0.0)
    for part in (GaussianDP(1e-3), Worst((GaussianDP(0.1), LaplaceDP((0.1,)))), NonPrivate()):
        with pytest.raises(PrivacyBudgetExceeded):
            pure.reserve(entry(part))
    pure.reserve(entry(LaplaceDP((50.0,))))
    with pytest.raises(PrivacyBudgetExceeded):
        pure.reserve(entry(LaplaceDP((0.1,))))


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


@pytest.mark.parametrize(("epsilon", "delta"), [(-1, 0.1), (math.inf, 0.1), (1, -0.1), (1, 1)])
def test_limits_and_questions_out_of_range_are_refused(ledger, gaussian, epsilon, delta):
    ledger.reserve(gaussian)
    with pytest.raises(ValueError, match=r"Got .* expected a float in"):
        ledger.limit(epsilon, delta)
    for ask in (ledger.total, ledger.epsilon_by_estimator):
        with pytest.raises(ValueError, match=r"Got delta=.* expected a float in \[0, 1\]"):
            ask(math.nan)
        with pytest.raises(TypeError, match=r"Got \w+=.*, expected a float in .* Give a number"):
            ask("1")
    with pytest.raises(TypeError, match="Give a number"):
        ledger.limit(1.0, None)


def test_a_stream_takes_each_position_once(ledger, path, gaussian):
    one, other = ledger.reserve(gaussian), ledger.reserve(gaussian)
    assert [ledger.advance(one, first) for first in (0, 10, 0, 10, np.int64(20))] == [
        True, True, False, False, True,
    ]  # fmt: skip
    assert PrivacyLedger(path).advance(other, 10)
    assert not PrivacyLedger(path).advance(one, 20)
    assert ledger.guarantee().mu == pytest.approx(0.1 * math.sqrt(2))
    for bad, error in (((one, -1), ValueError), ((one, 1.0), TypeError), (("0", 0), LedgerError)):
        with pytest.raises(error, match=r"Got .*, expected"):
            ledger.advance(*bad)


def test_a_fit_is_counted_around_its_work(ledger, gaussian):
    with ledger.counting(gaussian) as key:
        assert [fit["state"] for fit in ledger.entries()] == ["reserved"]
    finished = ledger.entries()[0]["finished"]
    ledger.finish(key)
    assert ledger.entries()[0]["finished"] == finished
    with pytest.raises(LedgerError, match="key"):
        ledger.finish("0" * 32)
    with pytest.raises(FloatingPointError), ledger.counting(gaussian):
        raise FloatingPointError
    assert [fit["state"] for fit in ledger.entries()] == ["done", "reserved"]
    assert ledger.guarantee().mu == pytest.approx(0.1 * math.sqrt(2))
    with pytest.warns(UserWarning, match="above what was spent already"):
        ledger.limit(0.1, 1e-6)
    with pytest.raises(PrivacyBudgetExceeded), ledger.counting(gaussian):
        pytest.fail("the work began")


def test_copies_are_paths_and_entries_are_plain(path, entry):
    ledger = PrivacyLedger(f"{path}::adult")
    ledger.finish(ledger.reserve(entry(GaussianDP(0.3))))
    for again in (pickle.loads(pickle.dumps(ledger)), copy.deepcopy(ledger)):
        assert repr(again) == repr(ledger)
        assert again.guarantee() == ledger.guarantee()
    (plain,) = ledger.entries()
    json.dumps(plain, allow_nan=False)
    assert (plain["dataset"], plain["state"], plain["digest"]) == ("adult", "done", "0" * 64)
    assert plain["epsilon"] == GaussianDP(0.3).epsilon(1e-6)
    frame = ledger.to_frame()
    assert list(frame.columns) == list(plain)
    assert frame.loc[0, "guarantee"] == "GDP(mu=0.3)"


def test_the_file_is_json_in_sqlite_and_holds_nothing_of_the_data(ledger, path, entry):
    canary = 1234.56789012345
    X = np.random.default_rng(0).normal(size=(50, 3))
    X[7], y = canary, X[:, 0].copy()
    model = DPAdmmRidge(epsilon=1.0, delta=1e-6).fit(X, y)
    report = LedgerEntry.of_report(model.privacy_, model.plan(50, 3).digest().hex())
    own = entry(RenyiDP((2.0, 3.0), (np.float64(0.1), math.inf)))
    for made in (report, own):
        ledger.finish(ledger.reserve(made))
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute("SELECT * FROM entries").fetchall()
        stored = connection.execute("SELECT promise, record FROM entries").fetchall()
    assert not any(isinstance(cell, bytes) for row in rows for cell in row)
    for (promise, record), made in zip(stored, (report, own), strict=True):
        plain = json.loads(promise)
        assert plain["observers"][0]["guarantee"] == made.observers[0].guarantee.to_dict()
        fields = {"version", "subject", "digest", "delta", "host", "pid", "time"}
        assert set(json.loads(record)) == fields
    with open(path, "rb") as file:
        content = file.read()
    # How every pickle of protocol 2 to 5 begins.
    assert not any(b"\x80" + bytes([v]) in content for v in range(2, 6))
    for number in (*X.ravel().tolist(), *y.tolist(), *model.coef_.tolist()):
        written = [repr(number)[:8].encode(), *(struct.pack(f"{e}d", number) for e in "<>")]
        assert not any(text in content for text in written)


class Unknown(GaussianDP):
    def to_dict(self):
        return {"kind": "unknown"}


@pytest.mark.parametrize(
    "change",
    [
        {"subject": ""},
        {"subject": "a b\n"},
        {"digest": "0" * 63},
        {"delta": math.nan},
        {"observers": ()},
        {"simulation": 1},
        {"observers": (Observer("adversary", "", "record", "replace_one", GaussianDP(0.1)),)},
        {"observers": (Observer("model", "", "record", "replaced", GaussianDP(0.1)),)},
        {"observers": (Observer("model", "", "records", "replace_one", GaussianDP(0.1)),)},
        {"observers": (Observer("model", "", "record", "replace_one", Unknown(0.1)),)},
    ],
)
def test_entries_that_could_not_be_read_again_are_never_made(change, gaussian):
    good = {"subject": "Lasso", "digest": "0" * 64, "delta": 1e-6, "observers": gaussian.observers}
    LedgerEntry(**good)
    with pytest.raises((LedgerError, TypeError, ValueError)):
        LedgerEntry(**{**good, **change})


# Sums are computed before the lock is taken, and nothing that others add meanwhile is missed.


@pytest.fixture
def meanwhile(monkeypatch):
    """Do something while the first sums are computed, and say whether the file was free."""

    def watch(path, act, n_times=1):
        free, decide = [], _ledger.first_passed

        def first_passed(limits, counted, new):
            passed = decide(limits, counted, new)
            with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as connection:
                try:
                    connection.execute("BEGIN EXCLUSIVE")  # no reader either
                    free.append(True)
                except sqlite3.OperationalError:
                    free.append(False)
            if free[-1] and len(free) <= n_times:
                monkeypatch.setattr(_ledger, "first_passed", decide)
                act()
                monkeypatch.setattr(_ledger, "first_passed", first_passed)
            return passed

        monkeypatch.setattr(_ledger, "first_passed", first_passed)
        return free

    return watch


@pytest.mark.parametrize("act", ["reserve", "limit", "nothing"])
def test_nobody_waits_for_a_sum_and_what_others_do_meanwhile_counts(
    ledger, path, entry, meanwhile, act
):
    ledger.limit(1.0, 1e-6)
    acts = {
        "reserve": lambda: PrivacyLedger(path).reserve(entry(GaussianDP(0.9 * WHOLE))),
        "limit": lambda: PrivacyLedger(path).limit(0.1, 1e-6),
        "nothing": lambda: None,
    }
    free = meanwhile(path, acts[act])
    if act == "nothing":
        ledger.reserve(entry(GaussianDP(0.9 * WHOLE)))
        assert free == [True]
        return
    with pytest.raises(PrivacyBudgetExceeded):
        ledger.reserve(entry(GaussianDP(0.9 * WHOLE)))
    assert free == [True, True]
    assert len(ledger.entries()) == (act == "reserve")


def test_whoever_is_always_too_late_computes_under_the_lock(ledger, path, entry, meanwhile):
    ledger.limit(1.0, 1e-6)
    other = entry(GaussianDP(0.1 * WHOLE))
    free = meanwhile(path, lambda: PrivacyLedger(path).reserve(other), n_times=100)
    ledger.reserve(entry(GaussianDP(0.9 * WHOLE)))
    assert free == [True] * _ledger._TRIES + [False]
    assert len(ledger.entries()) == _ledger._TRIES + 1
    assert ledger.total(1e-6) <= 1.0
