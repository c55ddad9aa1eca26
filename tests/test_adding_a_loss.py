"""The loss that the guide adds keeps its contract, and its estimator learns what is shown."""

from __future__ import annotations

import contextlib
import io
import re
import textwrap
from pathlib import Path

import numpy as np

GUIDE = Path(__file__).parents[1] / "docs" / "user_guide" / "adding_a_loss.rst"


def blocks(language):
    text = GUIDE.read_text(encoding="utf-8")
    found = re.findall(rf"\.\. code-block:: {language}\n\n((?:   .*\n|\n)+)", text)
    return [textwrap.dedent(block) for block in found]


def numbers(text):
    return [float(number) for number in re.findall(r"-?\d+\.\d*", text)]


def test_the_code_of_the_guide_prints_what_it_shows():
    # The second block checks the derivatives of the loss.
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile("".join(blocks("python")), GUIDE.name, "exec"), {})
    (shown,) = blocks("text")
    assert len(numbers(shown)) == 7
    np.testing.assert_allclose(numbers(printed.getvalue()), numbers(shown), atol=0.11)
