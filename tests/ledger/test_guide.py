"""What the guide of ledgers shows is what the code does."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest

from skdpadmm.ledger import PrivacyBudgetExceeded, PrivacyLedger
from skdpadmm.ledger.__main__ import main

GUIDE = Path(__file__).parents[2] / "docs" / "user_guide" / "ledger.rst"


def block(language):
    (found,) = re.findall(
        rf"\.\. code-block:: {language}\n\n((?:   .*\n|\n)+)", GUIDE.read_text(encoding="utf-8")
    )
    return textwrap.dedent(found).strip()


def test_the_account_of_the_guide_is_what_it_says(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    *lines, refused = block("python").splitlines()
    names = {}
    exec(compile("\n".join(lines), GUIDE.name, "exec"), names)
    with pytest.raises(PrivacyBudgetExceeded):
        exec(compile(refused, GUIDE.name, "exec"), names)
    said = {line.split("  # ")[0]: line.split("  # ")[1] for line in lines if line[:7] == "ledger."}
    total = eval("ledger.total(1e-5)", names)
    assert said["ledger.total(1e-5)"].startswith(f"{total:.3f}:")
    by_class = eval("ledger.epsilon_by_estimator(1e-5)", names)
    assert said["ledger.epsilon_by_estimator(1e-5)"] == str(
        {name: round(epsilon, 6) for name, epsilon in by_class.items()}
    )
    command, *printed = block("console").splitlines()
    _, arguments = command.split("skdpadmm.ledger ")
    assert main(arguments.split()) == 0
    assert capsys.readouterr().out.splitlines()[-3:] == printed


def test_what_the_guide_says_of_data_sets_and_relations_can_be_asked(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {}
    code = block("python").splitlines()[:-1]
    exec(compile("\n".join(code).replace("study.db", "study.db::adult"), GUIDE.name, "exec"), names)
    ledger = PrivacyLedger("study.db")
    assert ledger.limits()[0]["dataset"] == "adult"
    total = ledger.total(1e-5, "adult")
    assert total == ledger.total(1e-5, disjoint=True) == ledger.total(1e-5, observer="model")
    assert total == ledger.total(1e-5, unit="record", neighboring="replace_one")
