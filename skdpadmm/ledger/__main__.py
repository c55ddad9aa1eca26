"""Print the account of a ledger: ``python -m skdpadmm.ledger study.db``."""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Sequence

from skdpadmm.ledger._errors import LedgerError
from skdpadmm.ledger._ledger import PrivacyLedger
from skdpadmm.privacy import round_up, text_table

_COLUMNS = (
    "id",
    "dataset",
    "subject",
    "state",
    "observer",
    "unit",
    "neighboring",
    "epsilon",
    "delta",
    "guarantee",
    "reserved",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print fits, limits and the total.

    Parameters
    ----------
    arguments : sequence of str or None, default=None
        None: those of the command line.

    Returns
    -------
    int
        0, or 2 if the ledger cannot be read. A total that cannot be given is no failure: the reason
        is printed in its place.
    """
    parser = argparse.ArgumentParser(
        prog="python -m skdpadmm.ledger", description="What a study has cost so far."
    )
    parser.add_argument("path", help="study.db, or study.db::name for one data set")
    parser.add_argument("--delta", type=_probability, default=1e-6, help="default: 1e-6")
    parser.add_argument("--observer", default="adversary", help="default: each fit's adversary")
    parser.add_argument("--unit", choices=("record", "agent"), default=None)
    parser.add_argument("--neighboring", choices=("replace_one", "zero_out"), default=None)
    parser.add_argument(
        "--include-simulated", action="store_true", help="count fits with a seed as though real"
    )
    parser.add_argument(
        "--disjoint", action="store_true", help="data sets of different names share no unit"
    )
    asked = parser.parse_args(arguments)
    if (asked.unit is None) != (asked.neighboring is None):
        parser.error("--unit and --neighboring go together")
    try:
        ledger = PrivacyLedger(asked.path)
        entries, limits = ledger.entries(), ledger.limits()
    except (LedgerError, ImportError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    shown = [e for e in entries if not ledger.dataset or e["dataset"] in ("", ledger.dataset)]
    print(f"Ledger {ledger.path}")
    if shown:
        rows = [[_cell(entry, column) for column in _COLUMNS] for entry in shown]
        print("\n" + text_table(_COLUMNS, rows) + "\n")
    n_open = sum(entry["state"] == "reserved" for entry in shown)
    n_simulated = sum(entry["simulation"] for entry in shown)
    print(f"fits: {len(shown)}, of which not done: {n_open}, simulations: {n_simulated}")
    for limit in limits:
        about = f" of {limit['dataset']}" if limit["dataset"] else ""
        print(f"limit{about}: epsilon <= {limit['epsilon']:g} at delta={limit['delta']:g}")
    about = f" of {ledger.dataset}" if ledger.dataset else ""
    try:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            total = ledger.guarantee(
                observer=asked.observer,
                include_simulated=asked.include_simulated,
                disjoint=asked.disjoint,
                unit=asked.unit,
                neighboring=asked.neighboring,
            )
        for warning in said:
            print(warning.message)
        figure = round_up(total.epsilon(asked.delta))
        print(f"total{about}: epsilon={figure} at delta={asked.delta:g}, {total.describe()}")
    except (LedgerError, ImportError) as error:
        print(f"total{about}: none. {error}")
    return 0


def _probability(text: str) -> float:
    value = float(text)
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"Got {text}, expected a number in [0, 1].")
    return value


def _cell(entry: dict[str, object], column: str) -> str:
    value = entry[column]
    text = round_up(value) if isinstance(value, float) else str(value)
    return f"{text} (simulation)" if column == "state" and entry["simulation"] else text


if __name__ == "__main__":
    sys.exit(main())
