"""``python -m skdpadmm.ledger`` prints the account, as the guide shows it."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest

from skdpadmm.ledger import PrivacyBudgetExceeded, PrivacyLedger
from skdpadmm.ledger.__main__ import main
from skdpadmm.privacy import GaussianDP, round_up

GUIDE = Path(__file__).parents[2] / "docs" / "user_guide" / "ledger.rst"


def printed(capsys, *arguments):
    assert main(list(arguments)) == 0
    return capsys.readouterr().out.splitlines()


def test_it_shows_every_fit_every_limit_and_one_data_set_by_itself(ledger, path, entry, capsys):
    ledger.limit(3.0, 1e-6)
    ledger.finish(ledger.reserve(entry(GaussianDP(0.3))))
    ledger.reserve(entry(GaussianDP(0.4), subject="Ridge"))
    lines = printed(capsys, path)
    assert lines[2].split()[:4] == ["id", "dataset", "subject", "state"]
    assert "Lasso    done" in lines[3]
    assert "fits: 2, of which not done: 1, simulations: 0" in lines
    assert "limit: epsilon <= 3 at delta=1e-06" in lines
    assert lines[-1].startswith(f"total: epsilon={round_up(GaussianDP(0.5).epsilon(1e-6))} ")
    PrivacyLedger(f"{path}::bank").reserve(entry(GaussianDP(0.1), subject="OfBank"))
    text = "\n".join(printed(capsys, f"{path}::adult"))
    assert "total of adult: epsilon=" in text
    assert "OfBank" not in text


def test_what_does_not_add_up_says_why_and_can_be_asked_for(path, entry, capsys):
    PrivacyLedger(f"{path}::a").reserve(entry(GaussianDP(0.1), neighboring="zero_out"))
    PrivacyLedger(f"{path}::b").reserve(entry(GaussianDP(0.1), simulation=True))
    assert "total: none. Got a ledger with simulations" in "\n".join(printed(capsys, path))
    relation = ["--unit", "record", "--neighboring", "replace_one"]
    lines = printed(capsys, path, *relation, "--disjoint", "--include-simulated")
    assert "GDP(mu=0.2)" in lines[-1]


def test_what_is_no_ledger_and_bad_arguments_fail(path, capsys):
    assert main([path]) == 2
    assert "no such file" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        main([path, "--unit", "record"])


def block(language):
    text = GUIDE.read_text(encoding="utf-8")
    (found,) = re.findall(rf"\.\. code-block:: {language}\n\n((?:   .*\n|\n)+)", text)
    return textwrap.dedent(found).strip().splitlines()


def test_the_guide_says_what_its_code_gives(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    *lines, refused = block("python")
    names = {}
    exec(compile("\n".join(lines), GUIDE.name, "exec"), names)
    with pytest.raises(PrivacyBudgetExceeded):
        exec(compile(refused, GUIDE.name, "exec"), names)
    said = dict(line.split("  # ") for line in lines if line.startswith("ledger.") and "#" in line)
    total = eval("ledger.total(1e-5)", names)
    assert said["ledger.total(1e-5)"].startswith(f"{total:.3f}:")
    command, *expected = block("console")
    assert printed(capsys, *command.split("skdpadmm.ledger ")[1].split())[-3:] == expected
