"""What the README shows is what the code does."""

from __future__ import annotations

import contextlib
import doctest
import io
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def block(language: str) -> str:
    """The only fenced block in a language."""
    (found,) = re.findall(rf"^```{language}\n(.*?)^```$", README, flags=re.DOTALL | re.MULTILINE)
    return found


def without_accuracy(text: str) -> tuple[str, float]:
    """The text with its accuracy cut out, and the accuracy."""
    (accuracy,) = re.findall(r"held-out rows: (\S+)", text)
    return text.replace(f"held-out rows: {accuracy}", "held-out rows:").rstrip(), float(accuracy)


def test_the_example_prints_what_the_readme_says_it_prints():
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(block("python"), "README.md", "exec"), {})
    text, accuracy = without_accuracy(printed.getvalue())
    expected_text, expected_accuracy = without_accuracy(block("text"))
    assert text == expected_text
    # Other libraries may round a score differently: one of 143 rows, not a draw of the noise.
    assert accuracy == pytest.approx(expected_accuracy, abs=0.011)


def test_the_account_of_a_study_is_what_the_readme_says_it_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {}
    with contextlib.redirect_stdout(io.StringIO()):
        exec(compile(block("python"), "README.md", "exec"), names)
    example = doctest.DocTestParser().get_doctest(block("pycon"), names, "README.md", None, None)
    failed, attempted = doctest.DocTestRunner().run(example)
    assert (failed, attempted) == (0, 4)


def test_every_file_that_the_readme_links_to_exists():
    links = re.findall(r"\]\(([^)#:]+)\)", README)
    assert "docs/images/quickstart.png" in links
    assert [link for link in links if not (ROOT / link).is_file()] == []


def test_every_make_target_that_the_readme_names_exists():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    named = set(re.findall(r"(?:^\$ |`)make ([a-z-]+)", README, flags=re.MULTILINE))
    assert named >= {"demo", "test"}
    assert named <= set(re.findall(r"^([a-z-]+):", makefile, flags=re.MULTILINE))
