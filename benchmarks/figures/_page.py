"""What a paper claims beside what is found, as a section of the documentation."""

from __future__ import annotations

import re
import textwrap
import warnings
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import threadpoolctl
from matplotlib import pyplot as plt
from tqdm import tqdm

from skdpadmm.exceptions import PrivacyWarning

DOCS = Path(__file__).parents[2] / "docs"
# Where pictures go; `python -m figures --quick` changes it.
PICTURES = Path(__file__).parents[1] / "output"

HEAD = """\
Figures of the papers
=====================

This page reproduces the figures and tables of the five papers behind the algorithms, and measures
what their utility theorems bound. For each it shows the claim of the paper, the result under valid
accounting, and why the two differ.
``make figures`` writes every number in a column "Ours", every table and every picture.
:doc:`errata` lists statements that fail as printed, and :doc:`benchmarks` has other benchmarks.
"""


@dataclass(frozen=True)
class Comparison:
    """One figure, table or claim of a paper.

    Attributes
    ----------
    where : str
        "Figure 1", "Table 2", "Theorem 3".
    claim, ours, why : str
        A paragraph each, in reStructuredText: what the paper says, what was found (with numbers of
        this run), and why they differ.
    table : str
        A table of `rst_table` that goes below those cells.
    image : str or None
        File name of a picture, as `save` returns it.
    caption : str
        Alternative text of the picture.
    """

    where: str
    claim: str
    ours: str
    why: str
    table: str = ""
    image: str | None = None
    caption: str = ""


# --------------------------------------------------------------------------------------------------
# For the modules of papers


def run_all(
    function: Callable[..., Any], tasks: Iterable[Any], n_jobs: int, title: str
) -> list[Any]:
    """Results of a function of one argument, in order, from processes of one thread each."""
    tasks = list(tasks)
    with ProcessPoolExecutor(n_jobs, initializer=one_thread) as pool:
        found = tqdm(pool.map(function, tasks), total=len(tasks), desc=title, mininterval=5)
        return list(found)


def one_thread() -> None:
    """A worker is one core. That known seeds make simulations is no news here."""
    threadpoolctl.threadpool_limits(1)
    warnings.simplefilter("ignore", PrivacyWarning)


def rst_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of short cells."""
    cells = [list(map(str, head)), *(list(map(str, row)) for row in rows)]
    widths = [max(len(row[k]) for row in cells) for k in range(len(head))]
    rule = "  ".join("=" * max(width, 2) for width in widths)
    lines = [
        "  ".join(
            # A first cell that is empty would be read as a continuation.
            (cell or "\\").ljust(max(width, 2))
            for cell, width in zip(row, widths, strict=True)
        ).rstrip()
        for row in cells
    ]
    return "\n".join([rule, lines[0], rule, *lines[1:], rule])


def save(figure: Any, paper: str) -> str:
    """Write a picture that is 7 inches wide, which is 700 pixels on the page; its file name."""
    for axis in figure.axes:
        axis.spines[["top", "right"]].set_visible(False)
    PICTURES.mkdir(parents=True, exist_ok=True)
    figure.savefig(PICTURES / f"figures_{paper}.png", dpi=150)
    plt.close(figure)
    return f"figures_{paper}.png"


# --------------------------------------------------------------------------------------------------
# The page


def section(name: str, module: Any, comparisons: Iterable[Comparison]) -> str:
    """The section of one paper."""
    found = list(comparisons)
    lines = [f".. _figures-{name}:", "", module.TITLE, "-" * len(module.TITLE), ""]
    lines += [module.SOURCE.strip(), "", textwrap.dedent(module.SETTING).strip(), ""]
    lines += [".. list-table::", "   :header-rows: 1", "   :widths: 10 25 40 25", ""]
    for row in (Comparison("", "The paper", "Ours", "Why they differ"), *found):
        for k, cell in enumerate((row.where, row.claim, row.ours, row.why)):
            lead = "   * - " if k == 0 else "     - "
            lines += wrapped(cell, lead, " " * 7) or [lead.rstrip()]
    for each in found:
        if each.table:
            lines += ["", f"{each.where}:", "", each.table]
        if each.image:
            lines += ["", f".. image:: images/{each.image}", "   :width: 700px"]
            lines += [f"   :alt: {each.caption or each.where}"]
    return "\n".join(lines) + "\n"


def wrapped(text: str, first: str, later: str) -> list[str]:
    """A paragraph in lines of at most 100 characters."""
    return textwrap.wrap(
        " ".join(text.split()),
        100,
        initial_indent=first,
        subsequent_indent=later,
        break_long_words=False,
        break_on_hyphens=False,
    )


def write(path: Path, sections: dict[str, str], order: Iterable[str]) -> None:
    """Write the page; papers that did not run keep the sections that they have there."""
    before = path.read_text(encoding="utf-8") if path.exists() else ""
    parts = re.split(r"^(?=\.\. _figures-(\w+):$)", before, flags=re.MULTILINE)[1:]
    known = dict(zip(parts[::2], parts[1::2], strict=True)) | sections
    page = "\n".join([HEAD, *(known[name].rstrip("\n") + "\n" for name in order if name in known)])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page, encoding="utf-8")


def printed(comparisons: Iterable[Comparison]) -> str:
    """The same for a terminal."""
    blocks = []
    for each in comparisons:
        cells = {"paper": each.claim, "ours": each.ours, "why": each.why}
        texts = [
            line for name, text in cells.items() for line in wrapped(text, f"  {name:7}", " " * 9)
        ]
        blocks.append("\n".join([each.where, *texts, *filter(None, [each.table])]))
    return "\n\n".join(blocks)
