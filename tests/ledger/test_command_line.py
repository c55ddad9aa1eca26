"""``python -m skdpadmm.ledger`` prints the account."""

from __future__ import annotations

import subprocess
import sys

import pytest

from skdpadmm.ledger import PrivacyLedger
from skdpadmm.ledger.__main__ import main
from skdpadmm.privacy import GaussianDP, round_up


@pytest.fixture
def ledger(path, entry):
    ledger = PrivacyLedger(path)
    ledger.limit(3.0, 1e-6)
    ledger.finish(ledger.reserve(entry(GaussianDP(0.3))))
    ledger.reserve(entry(GaussianDP(0.4), subject="Ridge"))
    return ledger


def test_it_runs_as_a_module(ledger, path):
    done = subprocess.run(
        [sys.executable, "-m", "skdpadmm.ledger", path, "--delta", "1e-5"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    total = round_up(GaussianDP(0.5).epsilon(1e-5))
    assert f"total: epsilon={total} at delta=1e-05, GDP(mu=0.5)" in done.stdout


def test_it_shows_every_fit_and_every_limit(ledger, path, capsys):
    assert main([path]) == 0
    out = capsys.readouterr().out
    lines = out.splitlines()
    assert lines[0] == f"Ledger {path}"
    assert lines[2].split()[:4] == ["id", "dataset", "subject", "state"]
    assert "Lasso    done" in lines[3]
    assert "Ridge    reserved" in lines[4]
    assert "fits: 2, of which not done: 1, simulations: 0" in lines
    assert "limit: epsilon <= 3 at delta=1e-06" in lines
    assert lines[-1].startswith(f"total: epsilon={round_up(GaussianDP(0.5).epsilon(1e-6))} ")


def test_one_data_set_has_a_table_of_its_own(ledger, path, entry, capsys):
    PrivacyLedger(f"{path}::adult").reserve(entry(GaussianDP(0.1), subject="OfAdult"))
    PrivacyLedger(f"{path}::bank").reserve(entry(GaussianDP(0.1), subject="OfBank"))
    assert main([f"{path}::adult"]) == 0
    out = capsys.readouterr().out
    assert "OfAdult" in out
    assert "Ridge" in out
    assert "OfBank" not in out
    assert "total of adult: epsilon=" in out
    assert "spelling" not in out


def test_a_name_that_nothing_has_is_said_beside_its_total(ledger, path, entry, capsys):
    PrivacyLedger(f"{path}::adult").reserve(entry(GaussianDP(0.1)))
    assert main([f"{path}::adlut"]) == 0
    said, total = capsys.readouterr().out.splitlines()[-2:]
    assert said.startswith("Got a data set's name 'adlut', expected one of ['adult']")
    assert total.startswith("total of adlut: epsilon=")


def test_a_total_that_cannot_be_given_says_why(ledger, path, entry, capsys):
    ledger.reserve(entry(GaussianDP(0.1), simulation=True))
    assert main([path]) == 0
    out = capsys.readouterr().out
    assert "total: none. Got a ledger with simulations" in out
    assert "(simulation)" in out
    assert main([path, "--include-simulated"]) == 0
    assert "total: epsilon=" in capsys.readouterr().out


def test_conversions_and_disjoint_data_sets_can_be_asked_for(path, entry, capsys):
    PrivacyLedger(f"{path}::a").reserve(entry(GaussianDP(0.1), neighboring="zero_out"))
    PrivacyLedger(f"{path}::b").reserve(entry(GaussianDP(0.1)))
    asked = ["--unit", "record", "--neighboring", "replace_one", "--disjoint"]
    assert main([path, *asked]) == 0
    assert "GDP(mu=0.2)" in capsys.readouterr().out.splitlines()[-1]


def test_what_is_no_ledger_fails(path, tmp_path, capsys):
    assert main([path]) == 2
    assert "no such file" in capsys.readouterr().err
    (tmp_path / "bad.db").write_text("nothing" * 1000)
    assert main([str(tmp_path / "bad.db")]) == 2
    assert "no database" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--delta", "2"], ["--delta", "x"], ["--unit", "record"]])
def test_bad_arguments_fail(ledger, path, arguments, capsys):
    with pytest.raises(SystemExit, match="2"):
        main([path, *arguments])
