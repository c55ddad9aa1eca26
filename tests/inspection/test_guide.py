"""What the guide of pictures shows is what the code does."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest

GUIDE = Path(__file__).parents[2] / "docs" / "user_guide" / "pictures.rst"
BLOCKS = [
    textwrap.dedent(found).strip()
    for found in re.findall(
        r"\.\. code-block:: python\n\n((?:   .*\n|\n)+)", GUIDE.read_text(encoding="utf-8")
    )
]


def test_the_guide_says_what_its_code_gives(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names, n_said = {}, 0
    for block in BLOCKS:
        exec(compile(block, GUIDE.name, "exec"), names)
        for line in block.splitlines():
            code, _, text = line.partition("  # ")
            if not line.startswith("display.") or not text or text.startswith("for each"):
                continue
            value, n_said = eval(code, names), n_said + 1
            if isinstance(value, float):
                assert value == pytest.approx(float(text), abs=0.6), code
            else:
                assert str(value) == text, code
    assert len(BLOCKS) == 4
    assert n_said == 6
    assert (tmp_path / "utility.png").is_file()
