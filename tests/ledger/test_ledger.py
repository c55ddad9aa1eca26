"""Sums of what was stored: data sets, observers, units, simulations, limits."""

from __future__ import annotations

import copy
import json
import math
import os
import pickle
import sqlite3
import struct

import numpy as np
import pytest

from skdpadmm import DPAdmmRidge
from skdpadmm.ledger import (
    LedgerEntry,
    LedgerError,
    PrivacyBudgetExceeded,
    PrivacyLedger,
    Summed,
    compose_all,
)
from skdpadmm.privacy import (
    GaussianDP,
    LaplaceDP,
    NonPrivate,
    Observer,
    PerturbedObjectiveDP,
    PoissonSubsampledGaussian,
    PrivacyReport,
    RenyiDP,
    Worst,
    compose,
    gaussian_mu,
)


def test_an_account_is_the_sum_of_its_fits(path, entry):
    ledger = PrivacyLedger(path)
    for mu in (0.3, 0.4):
        ledger.finish(ledger.reserve(entry(GaussianDP(mu))))
    assert ledger.guarantee() == GaussianDP(0.5)
    assert ledger.total(1e-6) == GaussianDP(0.5).epsilon(1e-6)
    assert PrivacyLedger(path).total(1e-6) == ledger.total(1e-6)


def test_other_guarantees_go_through_the_same_composition(path, entry):
    ledger = PrivacyLedger(path)
    parts = [
        PoissonSubsampledGaussian(0.1, 20.0, 100, "replace_one"),
        GaussianDP(0.1),
        LaplaceDP((0.1,)),
    ]
    for part in parts:
        ledger.reserve(entry(part))
    assert ledger.total(1e-6) == pytest.approx(compose(*parts).epsilon(1e-6), rel=1e-9)


def test_equal_fits_count_each_time(path, gaussian):
    ledger = PrivacyLedger(path)
    keys = {ledger.reserve(gaussian) for _ in range(9)}
    assert len(keys) == 9
    assert ledger.guarantee().mu == pytest.approx(0.3)


def test_a_fit_without_privacy_is_stored_and_voids_the_sum(path, entry):
    ledger = PrivacyLedger(path)
    ledger.reserve(entry(NonPrivate()))
    assert ledger.total(1e-6) == math.inf
    assert ledger.entries()[0]["epsilon"] == math.inf


def test_figures_of_each_class_of_estimators(path, entry):
    ledger = PrivacyLedger(path)
    for subject, mu in (("Lasso", 0.3), ("Ridge", 0.1), ("Lasso", 0.4)):
        ledger.reserve(entry(GaussianDP(mu), subject=subject))
    figures = ledger.epsilon_by_estimator(1e-6)
    assert list(figures) == ["Lasso", "Ridge"]
    assert figures["Lasso"] == GaussianDP(0.5).epsilon(1e-6)
    assert figures["Ridge"] == GaussianDP(0.1).epsilon(1e-6)


def test_data_sets_are_told_apart_and_what_has_no_name_overlaps_with_all(path, entry):
    PrivacyLedger(path).reserve(entry(GaussianDP(0.1)))
    PrivacyLedger(f"{path}::adult").reserve(entry(GaussianDP(0.2)))
    PrivacyLedger(f"{path}::bank").reserve(entry(GaussianDP(0.4)))
    ledger = PrivacyLedger(path)
    assert ledger.guarantee().mu == pytest.approx(math.hypot(0.1, 0.2, 0.4))
    assert ledger.guarantee("adult").mu == pytest.approx(math.hypot(0.1, 0.2))
    assert PrivacyLedger(f"{path}::adult").guarantee() == ledger.guarantee("adult")
    assert ledger.guarantee(disjoint=True).mu == pytest.approx(math.hypot(0.1, 0.4))
    with pytest.raises(ValueError, match=r"\['adult', 'bank'\]"):
        ledger.total(1e-6, "adlut")


@pytest.mark.parametrize("stored", ["a fit", "a limit"])
def test_a_name_in_a_path_that_nothing_has_is_warned_of(path, gaussian, stored):
    misspelt, adult = PrivacyLedger(f"{path}::adlut"), PrivacyLedger(f"{path}::adult")
    PrivacyLedger(path).reserve(gaussian)
    # The first one of a study has nobody to be compared with.
    assert misspelt.guarantee() == GaussianDP(0.1)
    if stored == "a fit":
        adult.reserve(gaussian)
    else:
        adult.limit(9.0, 1e-6)
    for ask in (misspelt.guarantee, lambda: misspelt.total(1e-6)):
        with pytest.warns(UserWarning, match=r"'adlut', expected one of \['adult'\].* spelling"):
            ask()
    with pytest.warns(UserWarning, match="spelling"):
        misspelt.epsilon_by_estimator(1e-6)
    adult.total(1e-6)
    PrivacyLedger(path).total(1e-6)
    misspelt.reserve(gaussian)
    misspelt.total(1e-6)


def test_one_name_in_two_spellings_is_one_data_set(path, gaussian):
    PrivacyLedger(f"{path}::caf\u00e9").reserve(gaussian)
    PrivacyLedger(f"{path}::cafe\u0301").reserve(gaussian)
    assert PrivacyLedger(path).guarantee(disjoint=True).mu == pytest.approx(0.1 * math.sqrt(2))


@pytest.mark.parametrize(
    "other",
    [
        "Adult",
        "ADULT",
        "\uff41\uff44\uff55\uff4c\uff54",
        "\uff21dult",
        "adult\ufe0f",
        "ad\u034fult",
        "adult\u3164",
    ],
)
@pytest.mark.parametrize("stored", ["a fit", "a limit"])
def test_a_name_that_a_reader_takes_for_another_is_refused(path, gaussian, other, stored):
    first, second = PrivacyLedger(f"{path}::adult"), PrivacyLedger(f"{path}::{other}")
    if stored == "a fit":
        first.reserve(gaussian)
    else:
        first.limit(9.0, 1e-6)
    for use in (
        lambda: second.reserve(gaussian),
        lambda: second.limit(1.0, 1e-6),
        lambda: second.total(1e-6),
        lambda: second.epsilon_by_estimator(1e-6),
    ):
        with pytest.raises(LedgerError, match=r"Got .*, expected 'adult', .* Use that spelling"):
            use()
    assert len(first.limits()) == (stored == "a limit")
    assert len(first.entries()) == (stored == "a fit")
    first.reserve(gaussian)
    PrivacyLedger(f"{path}::adult2").reserve(gaussian)
    PrivacyLedger(path).reserve(gaussian)


def test_a_search_under_another_spelling_is_refused_before_its_first_fit(path, gaussian):
    PrivacyLedger(f"{path}::stra\u00dfe").reserve(gaussian)
    name = f"{path}::STRASSE"
    model = DPAdmmRidge(ledger=name)
    with pytest.raises(LedgerError, match="Use that spelling"):
        PrivacyLedger(name).check(model, np.zeros((50, 2)), np.zeros(50))


def test_a_stream_takes_each_position_once(path, gaussian):
    ledger = PrivacyLedger(path)
    one, other = ledger.reserve(gaussian), ledger.reserve(gaussian)
    assert [ledger.advance(one, first) for first in (0, 10, 0, 10, np.int64(20))] == [
        True, True, False, False, True,
    ]  # fmt: skip
    assert PrivacyLedger(path).advance(other, 10)
    assert not PrivacyLedger(path).advance(one, 20)
    assert ledger.guarantee().mu == pytest.approx(0.1 * math.sqrt(2))
    with pytest.raises(LedgerError, match="expected one that reserve gave"):
        ledger.advance("0" * 32, 0)
    with pytest.raises(ValueError, match="Got first=-1, expected an int"):
        ledger.advance(one, -1)
    for bad in (1.0, "1", None, True):
        with pytest.raises(TypeError, match=r"Got first=.*, expected an int"):
            ledger.advance(one, bad)


def test_a_stream_of_a_ledger_that_is_not_there_makes_none(path):
    for use in (lambda: PrivacyLedger(path).advance("0" * 32, 0),
                lambda: PrivacyLedger(path).finish("0" * 32)):  # fmt: skip
        with pytest.raises(LedgerError, match="no such file"):
            use()
    assert not os.path.exists(path)


def test_a_limit_without_a_delta_lets_no_gaussian_fit_through(path, entry):
    ledger = PrivacyLedger(path)
    ledger.limit(50.0, 0.0)
    for part in (GaussianDP(1.0), GaussianDP(1e-3), Worst((GaussianDP(0.1), LaplaceDP((0.1,))))):
        with pytest.raises(PrivacyBudgetExceeded):
            ledger.reserve(entry(part))
    ledger.reserve(entry(LaplaceDP((30.0,))))
    ledger.reserve(entry(LaplaceDP((20.0,))))
    with pytest.raises(PrivacyBudgetExceeded):
        ledger.reserve(entry(LaplaceDP((0.1,))))


def test_the_limit_of_a_sum_of_groups_is_checked_at_its_own_delta(path, entry):
    orders = tuple(float(a) for a in range(2, 64))
    parts = [
        RenyiDP(orders, tuple(0.01 * a for a in orders)),
        PerturbedObjectiveDP(0.1, 0.02, "replace_one", "one_sign"),
    ]
    spent = compose_all(*parts)
    assert isinstance(spent, Summed)
    for factor in (1.001, 0.99):
        name = f"{path}{factor}"
        PrivacyLedger(name).limit(factor * spent.epsilon(1e-6), 1e-6)
        PrivacyLedger(name).reserve(entry(parts[0]))
        if factor > 1:
            PrivacyLedger(name).reserve(entry(parts[1]))
            continue
        with pytest.raises(PrivacyBudgetExceeded):
            PrivacyLedger(name).reserve(entry(parts[1]))


def test_observers_by_name_and_the_adversary_of_each_fit(path, entry):
    ledger = PrivacyLedger(path)
    model = Observer("server", "messages", "record", "replace_one", GaussianDP(0.5))
    ledger.reserve(entry(GaussianDP(0.1), others=(model,)))
    assert ledger.guarantee() == GaussianDP(0.1)
    assert ledger.guarantee(observer="server") == GaussianDP(0.5)
    ledger.reserve(entry(GaussianDP(0.1)))
    with pytest.raises(LedgerError, match="says nothing about it"):
        ledger.total(1e-6, observer="server")


def test_units_and_relations_are_converted_only_when_asked(path, entry):
    ledger = PrivacyLedger(path)
    ledger.reserve(entry(GaussianDP(0.1)))
    ledger.reserve(entry(GaussianDP(0.1), neighboring="zero_out"))
    ledger.reserve(entry(GaussianDP(0.1), unit="agent"))
    with pytest.raises(LedgerError, match="3 kinds of neighbours"):
        ledger.total(1e-6)
    asked = {"unit": "record", "neighboring": "replace_one"}
    assert ledger.guarantee(**asked).mu == pytest.approx(math.hypot(0.1, 0.2, 0.1))
    with pytest.raises(LedgerError, match="about agent, replace one"):
        ledger.guarantee(unit="agent", neighboring="replace_one")
    with pytest.raises(ValueError, match="together"):
        ledger.guarantee(unit="record")


def test_simulations_are_stored_and_refuse_to_be_summed(path, entry):
    ledger = PrivacyLedger(path)
    ledger.reserve(entry(GaussianDP(0.3)))
    ledger.reserve(entry(GaussianDP(0.4), simulation=True))
    for ask in (ledger.total, ledger.epsilon_by_estimator):
        with pytest.raises(LedgerError, match="include_simulated=True"):
            ask(1e-6)
    assert ledger.guarantee(include_simulated=True) == GaussianDP(0.5)
    assert [e["simulation"] for e in ledger.entries()] == [False, True]


def test_simulations_of_another_data_set_disturb_nobody(path, entry):
    PrivacyLedger(f"{path}::toy").reserve(entry(GaussianDP(0.3), simulation=True))
    PrivacyLedger(f"{path}::adult").reserve(entry(GaussianDP(0.3)))
    assert PrivacyLedger(f"{path}::adult").guarantee() == GaussianDP(0.3)


def test_a_limit_refuses_says_what_is_left_and_stores_nothing(path, entry):
    ledger = PrivacyLedger(path)
    whole = gaussian_mu(1.0, 1e-6)
    ledger.limit(1.0, 1e-6)
    ledger.reserve(entry(GaussianDP(0.6 * whole)))
    with pytest.raises(PrivacyBudgetExceeded, match="Nothing was stored") as caught:
        ledger.reserve(entry(GaussianDP(0.81 * whole)))
    assert caught.value.epsilon_spent == GaussianDP(0.6 * whole).epsilon(1e-6)
    assert caught.value.epsilon_left == pytest.approx(GaussianDP(0.8 * whole).epsilon(1e-6))
    assert (caught.value.epsilon, caught.value.delta) == (1.0, 1e-6)
    assert len(ledger.entries()) == 1
    ledger.reserve(entry(GaussianDP(gaussian_mu(caught.value.epsilon_left, 1e-6))))
    assert ledger.total(1e-6) <= 1.0 + 1e-9


def test_a_budget_that_is_the_limit_fits_exactly(path, entry):
    ledger = PrivacyLedger(path)
    for epsilon, delta in ((1.0, 1e-6), (0.1, 1e-9), (5.0, 1e-5)):
        ledger.limit(epsilon, delta)
        name = f"{path}::{epsilon}"
        PrivacyLedger(name).limit(epsilon, delta)
        one = PrivacyLedger(f"{path}{epsilon}")
        one.limit(epsilon, delta)
        one.reserve(entry(GaussianDP(gaussian_mu(epsilon, delta))))
        with pytest.raises(PrivacyBudgetExceeded):
            one.reserve(entry(GaussianDP(0.001)))


def test_the_error_survives_other_processes(path, entry):
    ledger = PrivacyLedger(path)
    ledger.limit(0.0, 0.0)
    with pytest.raises(PrivacyBudgetExceeded) as caught:
        ledger.reserve(entry(GaussianDP(0.1)))
    again = pickle.loads(pickle.dumps(caught.value))
    assert str(again) == str(caught.value)
    assert vars(again) == vars(caught.value)
    assert isinstance(again, RuntimeError)
    assert not isinstance(again, ValueError)


def test_limits_of_data_sets_and_of_everything(path, entry):
    whole = gaussian_mu(1.0, 1e-6)
    adult, bank, all_of_it = (PrivacyLedger(path + name) for name in ("::adult", "::bank", ""))
    adult.limit(1.0, 1e-6)
    bank.reserve(entry(GaussianDP(2 * whole)))
    adult.reserve(entry(GaussianDP(0.6 * whole)))
    with pytest.raises(PrivacyBudgetExceeded, match="'adult'"):
        all_of_it.reserve(entry(GaussianDP(0.9 * whole)))
    with pytest.warns(UserWarning, match="spent already, epsilon=2"):
        all_of_it.limit(1.0, 1e-6)
    with pytest.raises(PrivacyBudgetExceeded, match=r"Nothing is left\."):
        adult.reserve(entry(GaussianDP(0.01 * whole)))
    # The bank is beyond it all the same, and adult is not.
    with pytest.warns(UserWarning, match="every fit that counts for it is refused"):
        all_of_it.limit(1.0, 1e-6, disjoint=True)
    adult.reserve(entry(GaussianDP(0.01 * whole)))
    with pytest.raises(PrivacyBudgetExceeded):
        bank.reserve(entry(GaussianDP(0.01 * whole)))
    assert [limit["dataset"] for limit in bank.limits()] == ["", "adult"]


def test_a_limit_knows_its_relation(path, entry):
    ledger = PrivacyLedger(path)
    ledger.limit(1.0, 1e-6)
    ledger.reserve(entry(GaussianDP(0.1)))
    with pytest.raises(LedgerError, match="2 kinds"):
        ledger.reserve(entry(GaussianDP(0.01), neighboring="zero_out"))
    assert len(ledger.entries()) == 1
    ledger.limit(1.0, 1e-6, unit="record", neighboring="replace_one")
    ledger.reserve(entry(GaussianDP(0.01), neighboring="zero_out"))
    assert len(ledger.entries()) == 2


def test_a_limit_that_cannot_be_checked_is_refused_and_the_old_one_stays(path, entry):
    ledger = PrivacyLedger(path)
    ledger.limit(3.0, 1e-6)
    ledger.reserve(entry(LaplaceDP((0.1,)), neighboring="zero_out"))
    with pytest.raises(LedgerError, match="says something about"):
        ledger.limit(1.0, 1e-6, unit="record", neighboring="replace_one")
    assert ledger.limits()[0]["epsilon"] == 3.0


def test_no_privacy_passes_every_limit(path, entry):
    ledger = PrivacyLedger(path)
    ledger.limit(1e300, 0.999)
    with pytest.raises(PrivacyBudgetExceeded):
        ledger.reserve(entry(NonPrivate()))


def test_simulations_count_in_limits(path, entry):
    ledger = PrivacyLedger(path)
    ledger.limit(1.0, 1e-6)
    with pytest.raises(PrivacyBudgetExceeded):
        ledger.reserve(entry(GaussianDP(1.0), simulation=True))


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(-1, 0.1), (math.inf, 0.1), (math.nan, 0.1), (1, -0.1), (1, 1), (1, 2)]
)
def test_limits_out_of_range_are_refused(path, epsilon, delta):
    with pytest.raises(ValueError, match=r"Got .* expected a float in"):
        PrivacyLedger(path).limit(epsilon, delta)


def test_finishing_is_idempotent_and_needs_a_known_key(path, gaussian):
    ledger = PrivacyLedger(path)
    key = ledger.reserve(gaussian)
    ledger.finish(key)
    finished = ledger.entries()[0]["finished"]
    ledger.finish(key)
    assert ledger.entries()[0]["finished"] == finished
    with pytest.raises(LedgerError, match="key"):
        ledger.finish("0" * 32)


def test_an_account_copies_and_pickles_as_its_path(path, gaussian):
    ledger = PrivacyLedger(f"{path}::adult")
    ledger.reserve(gaussian)
    for again in (pickle.loads(pickle.dumps(ledger)), copy.deepcopy(ledger)):
        assert repr(again) == repr(ledger)
        assert again.guarantee() == ledger.guarantee()


def test_entries_are_plain_and_become_a_frame(path, entry):
    ledger = PrivacyLedger(f"{path}::adult")
    ledger.finish(ledger.reserve(entry(GaussianDP(0.3), digest="ab" * 32)))
    (plain,) = ledger.entries()
    json.dumps(plain, allow_nan=False)
    assert plain["dataset"] == "adult"
    assert plain["state"] == "done"
    assert plain["digest"] == "ab" * 32
    assert plain["epsilon"] == GaussianDP(0.3).epsilon(1e-6)
    frame = ledger.to_frame()
    assert list(frame.columns) == list(plain)
    assert frame.loc[0, "guarantee"] == "GDP(mu=0.3)"


def test_times_of_two_clocks_change_nothing(path, entry, monkeypatch):
    times = iter(["2031-01-01T00:00:00+00:00", "1999-01-01T00:00:00+00:00"])
    monkeypatch.setattr("skdpadmm.ledger._entry.now", lambda: next(times))
    ledger = PrivacyLedger(path)
    for subject in ("First", "Second"):
        ledger.reserve(entry(GaussianDP(0.3), subject=subject))
    assert [e["subject"] for e in ledger.entries()] == ["First", "Second"]
    assert ledger.guarantee().mu == pytest.approx(0.3 * math.sqrt(2))


def test_the_file_is_json_in_sqlite_and_no_pickle(path, entry):
    ledger = PrivacyLedger(path)
    guarantees = [
        GaussianDP(np.float64(0.3)),
        Worst((LaplaceDP((0.1,)), GaussianDP(0.1))),
        RenyiDP((2.0, 3.0), (0.1, math.inf)),
    ]
    for guarantee in guarantees:
        ledger.finish(ledger.reserve(entry(guarantee)))
    ledger.limit(100.0, 1e-3)
    connection = sqlite3.connect(path)
    cells = [
        cell
        for (table,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        for row in connection.execute(f"SELECT * FROM {table}")
        for cell in row
    ]
    stored = connection.execute("SELECT promise, record FROM entries ORDER BY id").fetchall()
    connection.close()
    assert not any(isinstance(cell, bytes) for cell in cells)
    for (promise, record), guarantee in zip(stored, guarantees, strict=True):
        plain = json.loads(promise)
        assert plain["version"] == json.loads(record)["version"] == 1
        assert plain["observers"][0]["guarantee"] == guarantee.to_dict()
        fields = {"version", "subject", "digest", "delta", "host", "pid", "time"}
        assert set(json.loads(record)) == fields
    with open(path, "rb") as file:
        content = file.read()
    # How every pickle of protocol 2 to 5 begins and ends.
    assert not any(b"\x80" + bytes([v]) in content for v in range(2, 6))
    assert b"numpy" not in content


def test_the_file_holds_nothing_of_the_data(path):
    canary = 1234.56789012345
    X = np.random.default_rng(0).normal(size=(50, 3))
    X[7], y = canary, X[:, 0].copy()
    y[7] = -canary
    model = DPAdmmRidge(epsilon=1.0, delta=1e-6).fit(X, y)
    digest = model.plan(50, 3).digest().hex()
    ledger = PrivacyLedger(path)
    ledger.finish(ledger.reserve(LedgerEntry.of_report(model.privacy_, digest)))
    assert ledger.guarantee() == model.privacy_.guarantee()
    with open(path, "rb") as file:
        content = file.read()
    numbers = [*X.ravel().tolist(), *y.tolist(), *model.coef_.tolist(), float(model.intercept_)]
    for number in numbers:
        written = [repr(number)[:8].encode(), *(struct.pack(f"{e}d", number) for e in "<>")]
        assert not any(text in content for text in written)


def test_an_entry_comes_from_a_report(path):
    observers = (
        Observer("model", "the model", "record", "replace_one", GaussianDP(0.1)),
        Observer("server", "messages", "record", "replace_one", GaussianDP(0.5)),
    )
    report = PrivacyReport("Fed", observers, (), 1e-6, (), (), "seeded", adversary="server")
    made = LedgerEntry.of_report(report, "0" * 64)
    assert [o.name for o in made.observers] == ["server", "model"]
    assert made.simulation
    ledger = PrivacyLedger(path)
    ledger.reserve(made)
    assert ledger.guarantee(include_simulated=True) == GaussianDP(0.5)


@pytest.mark.parametrize(
    "change",
    [
        {"subject": ""},
        {"subject": "a b\n"},
        {"subject": None},
        {"digest": "0" * 63},
        {"digest": b"0" * 64},
        {"delta": -1.0},
        {"delta": math.nan},
        {"observers": ()},
        {"simulation": 1},
        {"observers": (Observer("adversary", "", "record", "replace_one", GaussianDP(0.1)),)},
        {"observers": (Observer("model", "", "record", "replaced", GaussianDP(0.1)),)},
        {"observers": (Observer("model", "", "records", "replace_one", GaussianDP(0.1)),)},
    ],
)
def test_entries_that_could_not_be_read_again_are_never_made(change):
    world = Observer("model", "the model", "record", "replace_one", GaussianDP(0.2))
    good = {"subject": "Lasso", "digest": "0" * 64, "delta": 1e-6, "observers": (world,)}
    LedgerEntry(**good)
    with pytest.raises((LedgerError, TypeError, ValueError)):
        LedgerEntry(**{**good, **change})


def test_a_guarantee_that_json_does_not_know_is_refused(path, entry):
    class Unknown(GaussianDP):
        def to_dict(self):
            return {"kind": "unknown"}

    with pytest.raises(LedgerError, match="cannot be read"):
        entry(Unknown(0.1))


def test_a_fit_is_counted_around_its_work(path, gaussian):
    ledger = PrivacyLedger(path)
    with ledger.counting(gaussian) as key:
        assert [fit["state"] for fit in ledger.entries()] == ["reserved"]
    assert [fit["state"] for fit in ledger.entries()] == ["done"]
    ledger.finish(key)
    with pytest.raises(FloatingPointError), ledger.counting(gaussian):
        raise FloatingPointError
    assert [fit["state"] for fit in ledger.entries()] == ["done", "reserved"]
    assert ledger.guarantee().mu == pytest.approx(0.1 * math.sqrt(2))
    with pytest.warns(UserWarning, match="above what was spent already"):
        ledger.limit(0.1, 1e-6)
    begun = []
    with pytest.raises(PrivacyBudgetExceeded), ledger.counting(gaussian):
        begun.append(1)
    assert not begun


@pytest.mark.parametrize("bad", ["1", None, b"1", [1.0], 1j])
def test_what_is_no_number_is_refused_in_words(path, gaussian, bad):
    ledger = PrivacyLedger(path)
    ledger.reserve(gaussian)
    for ask in (
        lambda: ledger.limit(bad, 1e-6),
        lambda: ledger.limit(1.0, bad),
        lambda: ledger.total(bad),
        lambda: ledger.epsilon_by_estimator(bad),
    ):
        with pytest.raises(TypeError, match=r"Got \w+=.*, expected a float in .* Give a number"):
            ask()
    assert ledger.limits() == []


@pytest.mark.parametrize("delta", [-1e-9, 1.5, math.nan])
def test_questions_out_of_range_are_refused(path, gaussian, delta):
    ledger = PrivacyLedger(path)
    ledger.reserve(gaussian)
    for ask in (ledger.total, ledger.epsilon_by_estimator):
        with pytest.raises(ValueError, match=r"Got delta=.* expected a float in \[0, 1\]"):
            ask(delta)
