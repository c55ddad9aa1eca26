"""Sums of what was stored: data sets, observers, units, simulations, limits, streams, the file."""

import json
import math
import pickle
import sqlite3
from contextlib import closing
from functools import partial
from pathlib import Path
from xml.etree import ElementTree

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
from skdpadmm.ledger.__main__ import main
from skdpadmm.ledger._account import left_of
from skdpadmm.privacy import (
    GaussianDP,
    LaplaceDP,
    NonPrivate,
    Observer,
    PoissonSubsampledGaussian,
    Worst,
    compose,
    gaussian_mu,
    round_down,
    round_up,
)
from skdpadmm.privacy.claims import ASSUMED, KINDS
from tests.ledger.conftest import entry_of
from tests.test_guides import blocks

WHOLE = gaussian_mu(1.0, 1e-6)
REPLACE_ONE = {"unit": "record", "neighboring": "replace_one"}


def test_an_account_is_the_sum_of_its_fits_by_estimator_and_in_all(ledger, path, entry):
    for subject, mu in (("Ridge", 0.3), ("Lasso", 0.1), ("Ridge", 0.4), ("Lasso", 0.1)):
        ledger.finish(ledger.reserve(entry(GaussianDP(mu), subject=subject)))
    total = GaussianDP(math.hypot(0.3, 0.4, 0.1, 0.1)).epsilon(1e-6)
    same = PrivacyLedger(path).total(1e-6, kind="fixed")
    assert ledger.total(1e-6, kind="fixed") == same == pytest.approx(total, rel=1e-12)
    assert ledger.total(1e-6) > 1.1 * total
    figures = ledger.epsilon_by_estimator(1e-6)
    assert list(figures) == ["Ridge", "Lasso"]
    assert figures["Ridge"] == pytest.approx(GaussianDP(0.5).epsilon(1e-6), rel=1e-12)
    other = [PoissonSubsampledGaussian(0.1, 20.0, 100, "replace_one"), LaplaceDP(0.1)]
    for part in other:
        ledger.reserve(entry(part))
    total = compose(*other, *map(GaussianDP, (0.3, 0.4, 0.1, 0.1))).epsilon(1e-6)
    assert ledger.total(1e-6, kind="fixed") == pytest.approx(total, rel=1e-9)
    ledger.reserve(entry(NonPrivate()))
    assert ledger.total(1e-6, kind="fixed") == ledger.entries()[-1]["epsilon"] == math.inf


def test_data_sets_are_told_apart_and_what_has_no_name_overlaps_with_all(ledger, path, entry):
    ledger.reserve(entry(GaussianDP(0.1)))
    for name, mu in (("caf\u00e9", 0.1), ("bank", 0.4)):
        PrivacyLedger(f"{path}::{name}").reserve(entry(GaussianDP(mu), subject=name))
    assert ledger.guarantee().mu == pytest.approx(math.hypot(0.1, 0.1, 0.4))
    assert PrivacyLedger(f"{path}::caf\u00e9").guarantee().mu == pytest.approx(0.1 * math.sqrt(2))
    bank = PrivacyLedger(f"{path}::bank")
    assert list(bank.epsilon_by_estimator(1e-6)) == ["Lasso", "bank"]
    assert ledger.guarantee(disjoint=True).mu == pytest.approx(math.hypot(0.1, 0.4))
    with pytest.raises(LedgerError, match=r"'bnak', expected one of \['bank', 'caf"):
        PrivacyLedger(f"{path}::bnak").total(1e-6)


def test_observers_by_name_and_the_adversary_of_each_fit(ledger, entry):
    server = Observer("server", "messages", "record", "replace_one", GaussianDP(0.5))
    ledger.reserve(entry(GaussianDP(0.1), others=(server,)))
    assert ledger.guarantee() == GaussianDP(0.1)
    assert ledger.guarantee(observer="server") == GaussianDP(0.5)
    # Whoever a fit does not name counts as seeing what all do whom it names.
    ledger.reserve(entry(GaussianDP(0.2)))
    assert ledger.guarantee(observer="server").mu == pytest.approx(math.hypot(0.5, 0.2))
    assert ledger.guarantee().mu == pytest.approx(math.hypot(0.1, 0.2))
    # As the one that learns most. A limit is kept against each adversary, in any order of fits.
    peer = LedgerEntry(
        "Lasso", "0" * 64, 1e-6,
        (Observer("peer", "", "record", "replace_one", GaussianDP(0.01)),),
    )  # fmt: skip
    names = [ledger.reserve(peer)] and ledger.guarantee(observer="peer").mu
    assert names == pytest.approx(math.hypot(0.5, 0.2, 0.01))
    for first, second in ((peer, entry(GaussianDP(0.2), others=(server,))),) * 2:
        other = PrivacyLedger(f"{ledger.path}{first.observers[0].name}{id(second)}")
        other.limit(GaussianDP(0.4).epsilon(1e-6), 1e-6)
        other.reserve(first)
        with pytest.raises(PrivacyBudgetExceeded):
            other.reserve(second)
    with pytest.raises(LedgerError, match=r"observer='nobody', expected one of .*'server'"):
        ledger.total(1e-6, observer="nobody")


def test_units_and_relations_are_converted_only_when_asked(ledger, entry):
    ledger.reserve(entry(GaussianDP(0.1)))
    ledger.reserve(entry(GaussianDP(0.1), neighboring="zero_out"))
    ledger.reserve(entry(GaussianDP(0.1), unit="agent"))
    with pytest.raises(ValueError, match="3 kinds of neighbours"):
        ledger.total(1e-6)
    assert ledger.guarantee(**REPLACE_ONE).mu == pytest.approx(math.hypot(0.1, 0.2, 0.1))
    with pytest.raises(ValueError, match="about agent, replace one"):
        ledger.guarantee(unit="agent", neighboring="replace_one")
    with pytest.raises(ValueError, match="together"):
        ledger.guarantee(unit="record")


def test_simulations_are_shown_apart_and_count_in_limits(ledger, entry):
    ledger.reserve(entry(GaussianDP(0.3)))
    ledger.reserve(entry(GaussianDP(0.4), simulation=True))
    with pytest.warns(UserWarning, match="with a seed are not in the total"):
        assert ledger.guarantee() == GaussianDP(0.3)
    assert ledger.guarantee(include_simulated=True).mu == pytest.approx(0.5)
    both = round_up(GaussianDP(0.5).epsilon(1e-6))
    assert f"total against model as though without a seed: epsilon={both} " in ledger.summary(1e-6)
    assert [e["simulation"] for e in ledger.entries()] == [False, True]
    ledger.limit(3.0, 1e-6)
    with pytest.raises(PrivacyBudgetExceeded):
        ledger.reserve(entry(GaussianDP(1.0), simulation=True))
    # An earlier one counts as well.
    ledger.limit(GaussianDP(0.55).epsilon(1e-6), 1e-6)
    with pytest.raises(PrivacyBudgetExceeded):
        ledger.reserve(entry(GaussianDP(0.3)))


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
    assert ledger.total() <= 1.0 + 1e-9  # at the delta of the limit


def test_a_limit_is_checked_at_its_own_delta(ledger, entry):
    ledger.limit(50.0, 0.0)
    for part in (GaussianDP(1e-3), Worst((GaussianDP(0.1), LaplaceDP(0.1))), NonPrivate()):
        with pytest.raises(PrivacyBudgetExceeded):
            ledger.reserve(entry(part))
    ledger.reserve(entry(LaplaceDP(50.0)))
    with pytest.raises(PrivacyBudgetExceeded):
        ledger.reserve(entry(LaplaceDP(0.1)))


def test_limits_of_data_sets_and_of_everything(path, entry):
    adult, bank, all_of_it = (PrivacyLedger(path + name) for name in ("::adult", "::bank", ""))
    adult.limit(1.0, 1e-6)
    bank.reserve(entry(GaussianDP(2 * WHOLE)))
    adult.reserve(entry(GaussianDP(0.6 * WHOLE)))
    with pytest.raises(PrivacyBudgetExceeded, match="'adult'"):
        all_of_it.reserve(entry(GaussianDP(0.9 * WHOLE)))
    with pytest.raises(ValueError, match="no limit"):
        all_of_it.total()
    with pytest.warns(UserWarning, match="spent already, epsilon=2"):
        all_of_it.limit(1.0, 1e-6)
    with pytest.raises(PrivacyBudgetExceeded, match=r"Nothing is left\."):
        adult.reserve(entry(GaussianDP(0.01 * WHOLE)))
    # The bank is beyond it all the same, and adult is not.
    with pytest.warns(UserWarning, match="fits that count for it are refused"):
        all_of_it.limit(1.0, 1e-6, disjoint=True)
    adult.reserve(entry(GaussianDP(0.01 * WHOLE)))
    for beyond in (bank, all_of_it):
        with pytest.raises(PrivacyBudgetExceeded):
            beyond.reserve(entry(GaussianDP(0.01 * WHOLE)))
    assert [limit["dataset"] for limit in bank.limits()] == ["", "adult"]


def test_a_limit_knows_its_relation_and_one_that_cannot_be_checked_is_refused(ledger, entry):
    ledger.limit(3.0, 1e-6)
    ledger.reserve(entry(GaussianDP(0.1)))
    with pytest.raises(ValueError, match="2 kinds"):
        ledger.reserve(entry(GaussianDP(0.01), neighboring="zero_out"))
    assert len(ledger.entries()) == 1
    ledger.limit(3.0, 1e-6, **REPLACE_ONE)
    ledger.reserve(entry(GaussianDP(0.01), neighboring="zero_out"))
    with pytest.raises(ValueError, match="says something about"):
        ledger.limit(1.0, 1e-6, unit="agent", neighboring="zero_out")
    assert ledger.limits()[0]["epsilon"] == 3.0
    for epsilon, delta in ((math.inf, 0.1), (1, -0.1), (True, 0.1), ("1", 0.1)):
        with pytest.raises(ValueError, match=r"Got .* expected floats in"):
            ledger.limit(epsilon, delta)


def test_a_stream_takes_each_position_once(ledger, path, gaussian):
    one, other = ledger.reserve(gaussian), ledger.reserve(gaussian)
    assert [ledger.advance(one, first) for first in (0, 10, 0, 10)] == [True, True, False, False]
    assert PrivacyLedger(path).advance(other, np.int64(10))
    assert not PrivacyLedger(path).advance(one, 10)
    for bad, error in (((one, -1), ValueError), ((one, 1.0), ValueError), (("0", 0), LedgerError)):
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


def test_a_limit_is_checked_and_a_fit_is_stored_in_one_transaction(
    ledger, path, gaussian, monkeypatch
):
    checked = _ledger.keeps_limit

    def keeps(*asked):
        monkeypatch.setattr(_ledger, "keeps_limit", checked)
        monkeypatch.setattr(_ledger, "_PATIENCE", 0.1)
        with pytest.raises(LedgerError, match="locked"):
            PrivacyLedger(path).reserve(gaussian)
        assert not PrivacyLedger(path).entries()  # questions wait for nobody
        return checked(*asked)

    ledger.limit(1.0, 1e-6)
    monkeypatch.setattr(_ledger, "keeps_limit", keeps)
    ledger.reserve(gaussian)
    assert len(ledger.entries()) == 1


def test_entries_are_plain_and_the_file_holds_guarantees_and_nothing_of_the_data(path):
    X = np.random.default_rng(0).normal(size=(50, 3))
    ledger = PrivacyLedger(f"{path}::adult")
    model = DPAdmmRidge(epsilon=1.0, delta=1e-6, ledger=f"{path}::adult").fit(X, X[:, 0])
    assert pickle.loads(pickle.dumps(ledger)).guarantee() == model.privacy_.guarantee()
    (plain,) = ledger.entries()
    json.dumps(plain, allow_nan=False)
    assert (plain["dataset"], plain["state"], plain["observer"]) == ("adult", "done", "model")
    assert plain["epsilon"] == model.privacy_.guarantee().epsilon(1e-6) <= 1.0
    assert set(plain) == {
        *("id", "dataset", "subject", "state", "observer", "unit", "who", "neighboring"),
        "guarantee",
        *("epsilon", "delta", "simulation", "digest", "host", "pid", "reserved", "finished"),
    }
    assert ledger.to_frame().loc[0, list(plain)].to_dict() == plain
    content, values = Path(path).read_bytes(), (*X.ravel().tolist(), *model.coef_.tolist())
    assert not any(repr(x)[:8].encode() in content for x in values)


def test_entries_that_could_not_be_read_again_are_never_made():
    def observed(name="model", unit="record", neighboring="replace_one"):
        return {"observers": (Observer(name, "", unit, neighboring, GaussianDP(0.1)),)}

    good = {"subject": "Lasso", "digest": "0" * 64, "delta": 1e-6, **observed()}
    LedgerEntry(**good)
    for change in (
        *[{"subject": "a b\n"}, {"digest": "x"}, {"delta": math.nan}, {"observers": ()}],
        {"observers": observed()["observers"] * 2},
    ):
        with pytest.raises((LedgerError, ValueError), match=r"Got .*, expected"):
            LedgerEntry(**{**good, **change})
    with pytest.raises(ValueError, match="'replaced' is not a valid Neighboring"):
        observed(neighboring="replaced")


# The file.


@pytest.mark.parametrize("path", ["", "study.db::", ":memory:", "a.db::x\ny", None])
def test_paths_that_name_no_file_are_refused(path):
    with pytest.raises((TypeError, ValueError), match=r"Got .* expected|expected|bytes-like"):
        PrivacyLedger(path)


def test_questions_make_no_file_and_no_directory_is_made(tmp_path, gaussian):
    ledger = PrivacyLedger(tmp_path / "study.db")
    missing = PrivacyLedger(tmp_path / "missing" / "study.db")
    for ask in (
        *(ledger.entries, ledger.limits, ledger.summary, lambda: ledger.advance("0" * 32, 0)),
        *(lambda: missing.reserve(gaussian), lambda: PrivacyLedger(tmp_path).reserve(gaussian)),
    ):
        with pytest.raises(
            LedgerError, match=r"^Cannot open the ledger .*(there is none|writable)"
        ):
            ask()
    assert "study.db" in ledger._repr_html_()
    assert not list(tmp_path.iterdir())


UNKNOWN = [
    "UPDATE costs SET cost = 'x', observers = replace(observers, 'gauss', '')",
    "UPDATE entries SET cost = 'x'",
]


@pytest.mark.parametrize(
    "statements",
    [None, ["PRAGMA application_id = 0"], ["PRAGMA user_version = 1"], UNKNOWN],
    ids=["no database", "another program", "an earlier format", "an unknown guarantee"],
)
def test_files_that_are_not_known_in_full_are_refused_and_stay_as_they_were(
    path, gaussian, statements
):
    if statements is None:
        Path(path).write_bytes(b"no database at all" * 100)
    else:
        PrivacyLedger(path).reserve(gaussian)
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            for statement in statements:
                connection.execute(statement)
    content, ledger = Path(path).read_bytes(), PrivacyLedger(path)
    for use in (lambda: ledger.limit(1.0, 1e-6), lambda: ledger.total(1e-6)):
        with pytest.raises(LedgerError, match=r"Got .*, expected"):
            use()
    assert Path(path).read_bytes() == content


def test_an_edited_cost_is_refused(ledger, path, entry):
    ledger.reserve(entry(GaussianDP(0.5)))
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("UPDATE costs SET observers = replace(observers, '0.5', '0.1')")
    for use in (ledger.guarantee, ledger.summary, ledger.entries):
        with pytest.raises(LedgerError, match="differs from its SHA-256"):
            use()


def test_damage_has_one_error(ledger, path, entry):
    ledger.limit(9.0, 1e-6)
    for mu in (0.1, 0.2):
        ledger.finish(ledger.reserve(entry(GaussianDP(mu))))
    content, rng, n_refused = Path(path).read_bytes(), np.random.default_rng(0), 0
    used = np.flatnonzero(np.frombuffer(content, np.uint8))
    for place in rng.choice(used, 250):
        damaged = bytearray(content)
        damaged[place] ^= 1 << rng.integers(8)
        Path(path).write_bytes(damaged)
        for use in (ledger.total, ledger.summary, ledger.entries, ledger.limits):
            try:
                use()
            except LedgerError as error:
                assert "expected a ledger" in str(error)  # noqa: PT017
                n_refused += 1
    assert n_refused > 100


# The command line, as the guide shows it.


def printed(capsys, *arguments):
    assert main(list(arguments)) == 0
    return capsys.readouterr().out.splitlines()


def test_the_command_line_shows_every_fit_limit_and_total(ledger, path, entry, capsys):
    ledger.limit(3.0, 1e-6)
    ledger.finish(ledger.reserve(entry(GaussianDP(0.3))))
    ledger.reserve(entry(GaussianDP(0.4), subject="Ridge"))
    lines = printed(capsys, path)
    spent, left = GaussianDP(0.5), round_down(left_of(GaussianDP(0.5), 3.0, 1e-6))
    limit = f"limit: epsilon <= 3 at delta=1e-06, left for one more Gaussian fit: epsilon={left}"
    assert lines[2] == "total against model: epsilon=3 at delta=1e-06, filter"
    figure = round_up(spent.epsilon(1e-6))
    assert lines[3].startswith(f"fixed total against model: epsilon={figure} at")
    assert lines[3].endswith(", attack accuracy at most 59.88 %")
    assert lines[4:7] == [
        limit,
        "unit: record, replace one",
        "fits: 2, of which not done: 1, simulations: 0",
    ]
    assert lines[8].split()[:4] == ["id", "dataset", "subject", "state"]
    assert "Lasso    done" in lines[9]
    texts = list(ElementTree.fromstring(ledger._repr_html_()).itertext())
    assert not {*lines[2:7], *KINDS, lines[-1]}.difference(texts)
    assert lines[-1] == f"A total assumes: {ASSUMED}"
    assert not {"Lasso", "done"}.difference(texts)
    PrivacyLedger(f"{path}2::a").reserve(entry(GaussianDP(0.1), neighboring="zero_out"))
    assert "total of a against model: epsilon=" in "\n".join(printed(capsys, f"{path}2::a"))
    relation = ["--unit", "record", "--neighboring", "replace_one"]
    lines = printed(
        capsys, f"{path}2", *relation, "--disjoint", "--include-simulated", "--delta", ".1"
    )
    assert lines[2].endswith("at delta=0.1, odometer")
    assert "at delta=0.1, GDP(mu=0.2)" in lines[3]
    assert main([f"{path}.missing"]) == 2
    assert "Cannot open the ledger" in capsys.readouterr().err


def test_a_limit_below_what_was_spent_is_loud_on_the_command_line(ledger, path, entry, capsys):
    ledger.reserve(entry(GaussianDP(WHOLE)))
    assert main([path]) == 0
    ledger.limit(2.0, 1e-6)
    assert main([path]) == 0
    assert "EXCEEDED" not in capsys.readouterr().out
    with pytest.warns(UserWarning, match="spent already"):
        ledger.limit(0.5, 1e-6)
    assert main([path]) == 1
    assert "\nlimit: epsilon <= 0.5 at delta=1e-06, EXCEEDED\n" in capsys.readouterr().out


def test_the_command_line_writes_a_page(ledger, path, gaussian, tmp_path, capsys):
    ledger.reserve(gaussian)
    page = tmp_path / "account.html"
    assert main([path, "--html", str(page)]) == 0
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert "<td>Lasso</td>" in page.read_text(encoding="utf-8")
    assert main([path, "--html", str(tmp_path / "missing" / "account.html")]) == 2
    assert "account.html" in capsys.readouterr().err


def test_a_total_is_about_what_its_limit_is_about(ledger, path, entry):
    ledger.reserve(entry(GaussianDP(0.1)))
    ledger.reserve(entry(GaussianDP(0.1), neighboring="zero_out"))
    with pytest.raises(ValueError, match="2 kinds of neighbours"):
        ledger.total(1e-6)
    ledger.limit(3.0, 1e-6, **REPLACE_ONE)
    assert ledger.total() == ledger.total(1e-6, **REPLACE_ONE)
    assert "\nunit: record, replace one\n" in ledger.summary()
    two = [PrivacyLedger(f"{path}2::{name}") for name in ("adult", "bank")]
    for each in two:
        each.reserve(entry(GaussianDP(0.3)))
    whole = PrivacyLedger(f"{path}2")
    whole.limit(3.0, 1e-6, disjoint=True)
    assert whole.guarantee() == GaussianDP(0.3)
    assert whole.guarantee(disjoint=False).mu == pytest.approx(math.hypot(0.3, 0.3))


def test_without_a_limit_a_summary_is_at_the_delta_of_all_fits(ledger, gaussian):
    (own,) = gaussian.observers
    for delta, stated in ((1e-4, 1e-4), (1e-3, 1e-6)):
        ledger.reserve(LedgerEntry("Lasso", "0" * 64, delta, (own,)))
        assert f" at delta={stated:g}, GDP" in ledger.summary()


def test_the_guide_says_what_its_code_gives(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    *lines, refused = blocks("ledger")[0].splitlines()
    names = {}
    exec(compile("\n".join(lines), "ledger.rst", "exec"), names)
    with pytest.raises(PrivacyBudgetExceeded):
        exec(compile(refused, "ledger.rst", "exec"), names)
    said = dict(line.split("  # ") for line in lines if line.startswith("ledger.") and "#" in line)
    for asked in ("ledger.total()", 'ledger.total(kind="fixed")'):
        assert said[asked].startswith(f"{eval(asked, names):.3f}:")
    command, *expected = blocks("ledger", "console")[0].splitlines()
    assert printed(capsys, *command.split("skdpadmm.ledger ")[1].split())[2:7] == expected


def test_what_is_counted_survives_a_power_cut(tmp_path, monkeypatch):
    asked = []

    class Listening(sqlite3.Connection):
        def execute(self, statement, *values):
            asked.append(statement)
            return super().execute(statement, *values)

    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=Listening))
    PrivacyLedger(tmp_path / "study.db").reserve(entry_of(GaussianDP(0.1)))
    # The file and its directory are synced.
    begun = [i for i, statement in enumerate(asked) if statement.startswith("BEGIN")]
    assert begun
    assert all(asked[i - 1] == "PRAGMA synchronous = EXTRA" for i in begun)
