"""Documents made of blocks, written as plain text, Markdown or HTML, and the picture of a fit."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import Any, ClassVar, Literal, NamedTuple

# Colours are shades of the text's own: they suit light and dark notebooks.
_STYLE = (
    ".skdpadmm{max-width:72em;line-height:1.45;overflow-x:auto}"
    ".skdpadmm h4{margin:0 0 .5em;font-size:1.1em}.skdpadmm p{margin:.3em 0}"
    ".skdpadmm table{border-collapse:collapse;table-layout:auto;margin:.5em 0;font-size:.92em}"
    ".skdpadmm th,.skdpadmm td{text-align:left;vertical-align:top;padding:.25em 1.2em .25em 0;"
    "border:0;border-bottom:1px solid rgba(128,128,128,.35)}"
    ".skdpadmm th{font-weight:600}.skdpadmm thead th{white-space:nowrap}"
    ".skdpadmm details{margin:.3em 0}.skdpadmm summary{cursor:pointer;font-weight:600}"
    ".skdpadmm ul{margin:.3em 0;padding-left:1.6em}"
    ".skdpadmm .warning{border-left:4px solid #d97706;padding-left:.6em}"
    ".skdpadmm svg{display:block;min-width:34em;max-width:100%;height:auto;margin:.3em 0}"
)
# Of the picture: width of a box and of an arrow, height of a box, and of a line of text.
_BOX, _ARROW, _HEIGHT, _LINE = 90, 215, 34, 16


class Block(NamedTuple):
    """A part of a document.

    Its head is the title, lines of text, the header of a table, or the line before a list; its
    body the rows of a table, the items of a list, or pairs of a label and a text. In HTML it is
    folded below a summary where `fold` gives one. An image is SVG, and in HTML alone.
    """

    kind: Literal["title", "text", "warning", "table", "list", "pairs", "image"]
    head: Sequence[str] = ()
    body: Sequence[Any] = ()
    fold: str = ""


class Document(ABC):
    """What prints as text, and as HTML in notebooks."""

    _layout: ClassVar[tuple[str, str]] = ("\n\n", "")

    @abstractmethod
    def _blocks(self) -> Iterable[Block]:
        """Yield the parts, of which the first is the title."""

    def __repr__(self) -> str:
        return as_text(self._blocks(), *self._layout)

    def _repr_html_(self) -> str:
        return as_html(self._blocks())

    def _model_card(self, subject: str) -> str:
        title, *blocks = self._blocks()
        parts = [title._replace(head=["Privacy"]), Block("text", [f"Of {subject}."])]
        return as_markdown([*parts, *blocks])


def text_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write rows of cells below a header, each column as wide as its widest cell."""
    table = [header, *rows]
    widths = [max(len(row[column]) for row in table) for column in range(len(header))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in table
    )


def as_text(blocks: Iterable[Block], between: str = "\n\n", indent: str = "") -> str:
    """Write blocks as plain text; what follows the title is indented."""
    parts = []
    for kind, head, body, _ in _in_lines(blocks):
        if kind == "table":
            parts.append(text_table(head, body))
        elif kind != "image":
            lines = [f"- {item}" if kind == "list" else ": ".join(item) for item in body]
            parts.append("\n".join([*head, *(indent + line for line in lines)]))
    return between.join(filter(None, parts))


def as_markdown(blocks: Iterable[Block]) -> str:
    """Write blocks as Markdown, the title as a heading of the second level."""
    parts = []
    for kind, head, body, _ in _in_lines(blocks):
        lines = [_marked(line) for line in head]
        if kind == "table":
            rows = [lines, ["---"] * len(head), *(map(_marked, row) for row in body)]
            parts.append("\n".join(f"| {' | '.join(row)} |" for row in rows))
        elif kind != "image":
            shown = [f"## {line}" if kind == "title" else line for line in lines]
            items = (item if kind == "list" else ": ".join(item) for item in body)
            parts += [*shown, "\n".join(f"- {_marked(item)}" for item in items)]
    return "\n\n".join(filter(None, parts)) + "\n"


def as_html(blocks: Iterable[Block]) -> str:
    """Write blocks as a section of HTML with its own style: no script, nothing is loaded."""
    parts = [f"<style>{_STYLE}</style>"]
    for kind, head, body, fold in _in_lines(blocks):
        lines = [escape(line) for line in head]
        if kind == "image":
            html = "".join(head)
        elif kind == "table":
            header = "".join(f'<th scope="col">{cell}</th>' for cell in lines)
            html = f"<table><thead><tr>{header}</tr></thead><tbody>{_rows(body)}</tbody></table>"
        elif kind == "pairs":
            html = f"<table><tbody>{_rows(body, 'th')}</tbody></table>"
        elif kind == "list":
            items = "".join(f"<li>{escape(item)}</li>" for item in body)
            html = f"{'' if fold else f'<p>{lines[0]}</p>'}<ul>{items}</ul>"
        else:
            tag = {"title": "h4", "warning": 'p class="warning"'}.get(kind, "p")
            html = "".join(f"<{tag}>{line}</{tag.split()[0]}>" for line in lines)
        folded = f"<details><summary>{escape(fold)}</summary>{html}</details>"
        parts.append(folded if fold else html)
    return f'<section class="skdpadmm">{"".join(parts)}</section>'


def picture_of(figures: Mapping[str, str], adversary: str) -> Block:
    """Draw who receives what of a fit, with the figure of each observer at its arrow.

    Rows go to a curator, or messages of agents to a server or to each other, and a model to the
    world. The adversary is in bold.
    """
    is_network = not figures.keys().isdisjoint({"eavesdropper", "peer"})
    is_federation = not figures.keys().isdisjoint({"server", "sums"})
    middle = "peers" if is_network else "server" if is_federation else "curator"
    boxes = ("agents" if is_network or is_federation else "data", middle, "world")
    inside = [name for name in figures if is_network or is_federation if name != "model"]
    outside = [name for name in figures if name not in inside]
    top = _LINE * max(len(inside), len(outside), 1) + 6
    line, parts = top + _HEIGHT // 2, []
    for i, box in enumerate(boxes):
        x = 1 + i * (_BOX + _ARROW)
        frame = f'x="{x}" y="{top}" width="{_BOX}" height="{_HEIGHT}" rx="5"'
        parts.append(f'<rect {frame} fill="none" stroke="currentColor"/>')
        parts.append(_label(x + _BOX // 2, line + 5, box))
    for i, names in enumerate((inside, outside)):
        start, end = (i + 1) * _BOX + i * _ARROW + 6, (i + 1) * (_BOX + _ARROW) - 4
        heads = f"M{end - 8} {line - 5}L{end} {line}L{end - 8} {line + 5}"
        if is_network and i == 0:
            heads += f"M{start + 8} {line - 5}L{start} {line}L{start + 8} {line + 5}"
        path = f"M{start} {line}H{end}{heads}"
        parts.append(f'<path d="{path}" fill="none" stroke="currentColor" stroke-width="1.5"/>')
        for k, name in enumerate(names):
            y, is_bold = line - 8 - _LINE * (len(names) - 1 - k), name == adversary
            parts.append(_label((start + end) // 2, y, f"{name}: {figures[name]}", is_bold))
    width, height = 3 * _BOX + 2 * _ARROW + 2, top + _HEIGHT + 2
    frame = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img"'
    name = escape(" to ".join(boxes))
    return Block("image", [f'<svg {frame} aria-label="{name}">{"".join(parts)}</svg>'])


def frame_of(rows: Sequence[Mapping[str, Any]]) -> Any:
    """A pandas.DataFrame of rows, or an ImportError that says what to install."""
    try:
        import pandas
    except ImportError as error:
        raise ImportError("to_frame needs pandas: pip install pandas") from error
    return pandas.DataFrame(rows)


def _in_lines(blocks: Iterable[Block]) -> Iterator[Block]:
    """Yield blocks in which no name of a column, class or agent begins a line of its own."""
    for block in blocks:
        items = (
            [*map(_line, i)] if block.kind in ("table", "pairs") else _line(i) for i in block.body
        )
        lines = block.head if block.kind == "image" else [*map(_line, block.head)]
        yield block._replace(head=lines, body=list(items))


def _line(text: str) -> str:
    """Text in one line, without controls of terminals and of the direction of writing."""
    return " ".join("".join(each if each.isprintable() else " " for each in text).split())


def _rows(rows: Iterable[Sequence[str]], first: str = "td") -> str:
    """Rows of a table in HTML, whose first cells may be headers."""
    written = []
    for row in rows:
        tags = [first, *["td"] * (len(row) - 1)]
        cells = (f"<{tag}>{escape(cell)}</{tag}>" for tag, cell in zip(tags, row, strict=True))
        written.append(f"<tr>{''.join(cells)}</tr>")
    return "".join(written)


def _label(x: int, y: int, text: str, is_bold: bool = False) -> str:
    weight = ' font-weight="bold"' if is_bold else ""
    place = f'x="{x}" y="{y}" text-anchor="middle" font-size="12" fill="currentColor"'
    return f"<text {place}{weight}>{escape(text)}</text>"


def _marked(text: str) -> str:
    """Text in Markdown, where nothing in it is markup."""
    return re.sub(r"([\\`*\[\]|])", r"\\\1", escape(text, quote=False))
