"""Fail if a page of the built documentation links to a file or an anchor that does not exist.

python docs/check_links.py docs/_build/html        also prints the links that need the network
"""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    """The links and the anchors of one page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.anchors: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("href", "src") and value:
                self.links.add(value)
            elif name in ("id", "name") and value:
                self.anchors.add(value)


def main(root: Path) -> int:
    """Print what is broken, and the addresses that were not tried."""
    paths = [path for path in root.resolve().rglob("*.html") if "_static" not in path.parts]
    pages = {path: Page(path) for path in paths}
    broken: list[str] = []
    external: set[str] = set()
    for path, page in pages.items():
        for link in page.links:
            address = urlsplit(link)
            if address.scheme or address.netloc:
                external.add(link)
                continue
            target = (path.parent / unquote(address.path)).resolve() if address.path else path
            anchors = pages[target].anchors if target in pages else set()
            missing = address.fragment and target in pages and address.fragment not in anchors
            if missing or not target.exists():
                broken.append(f"{path.relative_to(root.resolve())}: {link}")
    print(*sorted(external), sep="\n")
    print(*sorted(broken), sep="\n", file=sys.stderr)
    return len(broken) > 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
