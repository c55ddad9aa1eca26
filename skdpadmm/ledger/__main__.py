"""Print the account of a ledger: ``python -m skdpadmm.ledger study.db``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from skdpadmm._document import as_html, as_text
from skdpadmm.ledger._account import LedgerError
from skdpadmm.ledger._ledger import PrivacyLedger


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the total, limits and fits; return 1 if a limit is exceeded, 2 without a ledger."""
    parser = argparse.ArgumentParser(
        prog="python -m skdpadmm.ledger", description="What a study has cost so far."
    )
    parser.add_argument("path", help="study.db, or study.db::name for one data set")
    parser.add_argument("--delta", type=float, help="default: that of the limit, or of all fits")
    parser.add_argument("--observer", default="adversary", help="default: every adversary")
    parser.add_argument("--unit", choices=("record", "agent", "person"))
    parser.add_argument("--neighboring", choices=("replace_one", "zero_out", "add_remove"))
    parser.add_argument(
        "--include-simulated", action="store_true", help="count fits with a seed as though real"
    )
    parser.add_argument(
        "--disjoint",
        action="store_true",
        default=None,
        help="data sets of different names share no unit",
    )
    parser.add_argument("--html", metavar="FILE", help="write the account as a page, too")
    asked = vars(parser.parse_args(arguments))
    try:
        page = asked.pop("html")
        blocks = list(PrivacyLedger(asked.pop("path"))._blocks(**asked))
        print(as_text(blocks))
        if page is not None:
            html = f'<!doctype html><meta charset="utf-8"><title>Ledger</title>{as_html(blocks)}'
            Path(page).write_text(html, encoding="utf-8")
        lines = [line for block in blocks for line in block.head]
        # What could not be checked is not within its limit.
        return int(any(line.endswith(", EXCEEDED") or "left: unknown" in line for line in lines))
    except (LedgerError, ValueError, OSError) as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
