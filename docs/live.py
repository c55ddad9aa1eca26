"""Parts of the pages that are computed whenever they are built."""

from __future__ import annotations

import contextlib
import io
import re
import textwrap
from pathlib import Path

from docutils import nodes
from docutils.parsers.rst import Directive

STYLE = Path(__file__).parent / "gallery.mplstyle"
CODE = re.compile(r"(?m)^\.\. code-block:: python\n\n((?:   .*\n|\n)+)")


class HtmlOf(Directive):
    """What a notebook shows of an expression, after the Python code of the same page has run."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        page = Path(self.state.document.current_source).read_text(encoding="utf-8")
        names: dict[str, object] = {}
        with contextlib.redirect_stdout(io.StringIO()):
            for block in CODE.findall(page):
                exec(compile(textwrap.dedent(block), self.arguments[0], "exec"), names)
        shown = eval(self.arguments[0], names)._repr_html_()
        return [nodes.raw("", f'<div class="live">{shown}</div>', format="html")]


def gallery_style(gallery_conf: object, fname: str) -> None:
    """One style for the pictures of all examples."""
    from matplotlib import pyplot as plt

    plt.style.use(STYLE)


def setup(app) -> dict[str, bool]:
    app.add_directive("html-of", HtmlOf)
    return {"parallel_read_safe": True}
