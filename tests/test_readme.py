"""What the README shows is what the code does."""

from __future__ import annotations

import contextlib
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


def scores(text: str) -> list[float]:
    return [float(line.split()[-1]) for line in text.splitlines()]


def test_the_example_prints_the_scores_that_the_readme_shows():
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(block("python"), "README.md", "exec"), {})
    constant, private, not_private = scores(printed.getvalue())
    shown = scores(block("text"))
    assert [constant, not_private] == pytest.approx([shown[0], shown[2]], abs=0.011)
    # Each fit draws other noise: the bar is six standard deviations wide.
    assert private == pytest.approx(shown[1], abs=0.1)


def test_every_file_that_the_readme_links_to_exists():
    links = re.findall(r"\]\(([^)#:]+)\)", README)
    assert "docs/images/quickstart.png" in links
    assert [link for link in links if not (ROOT / link).is_file()] == []


def test_every_make_target_that_the_readme_names_exists():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    named = set(re.findall(r"(?:^\$ |`)make ([a-z-]+)", README, flags=re.MULTILINE))
    assert named >= {"demo", "test"}
    assert named <= set(re.findall(r"^([a-z-]+):", makefile, flags=re.MULTILINE))
