"""Print the account of a ledger: ``python -m skdpadmm.ledger study.db``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from skdpadmm.ledger._account import LedgerError
from skdpadmm.ledger._ledger import PrivacyLedger


def main(arguments: Sequence[str] | None = None) -> int:
    """Print fits, limits and the total; return 2 if the ledger cannot be read, 0 otherwise."""
    parser = argparse.ArgumentParser(
        prog="python -m skdpadmm.ledger", description="What a study has cost so far."
    )
    parser.add_argument("path", help="study.db, or study.db::name for one data set")
    parser.add_argument("--delta", type=float, help="default: that of the limit, or 1e-6")
    parser.add_argument("--observer", default="adversary", help="default: every adversary")
    parser.add_argument("--unit", choices=("record", "agent", "person"))
    parser.add_argument("--neighboring", choices=("replace_one", "zero_out"))
    parser.add_argument(
        "--include-simulated", action="store_true", help="count fits with a seed as though real"
    )
    parser.add_argument(
        "--disjoint", action="store_true", help="data sets of different names share no unit"
    )
    asked = vars(parser.parse_args(arguments))
    try:
        print(PrivacyLedger(asked.pop("path")).summary(**asked))
    except (LedgerError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
