"""What a ledger holds, as it is counted: read and verified, and divided into accounts."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from skdpadmm.ledger._account import total_of
from skdpadmm.ledger._database import Database, Mark
from skdpadmm.ledger._entry import Claim, Promise, Relation, read_promise, read_record
from skdpadmm.privacy import Guarantee


class Counted(NamedTuple):
    """What is counted of one fit."""

    dataset: str
    subject: str
    promise: Promise


class _Memory(NamedTuple):
    """What this process has read of a ledger, and up to where."""

    mark: Mark
    counted: tuple[Counted, ...]
    # By their texts, so that equal ones are one object: long ones are read and hashed slowly.
    promises: dict[str, Promise]


_remembered: dict[str, _Memory] = {}


def read_counted(
    database: Database, connection: sqlite3.Connection, *, anew: bool
) -> tuple[Counted, ...]:
    """Return all fits, verified.

    Parameters
    ----------
    database : Database
    connection : sqlite3.Connection
        In a transaction.
    anew : bool
        False: those that this process has verified before are taken from its memory, if the ledger
        goes on from there, and only the others are read. Nothing that a later change of the file
        could make of them is believed.

    Returns
    -------
    tuple of Counted
    """
    known = None if anew else _remembered.get(database.path)
    if known is not None and not database.goes_on_from(connection, known.mark):
        known = None
    before = known.counted if known else ()
    promises = known.promises if known else {}
    rows = database.rows(connection, after=len(before))
    for row in rows:
        if row.promise not in promises:
            promises[row.promise] = read_promise(row.promise)
    counted = before + tuple(
        Counted(row.dataset, read_record(row.record)["subject"], promises[row.promise])
        for row in rows
    )
    _remembered[database.path] = _Memory(database.mark(connection), counted, promises)
    return counted


def accounts_of(counted: Iterable[Counted], dataset: str, disjoint: bool) -> list[list[Counted]]:
    """Return what counts for one data set, for each of those that are disjoint, or for all."""
    fits = list(counted)
    names = sorted({fit.dataset for fit in fits} - {""})
    if dataset:
        names = [dataset]
    elif not disjoint or not names:
        return [fits]
    return [[fit for fit in fits if fit.dataset in ("", name)] for name in names]


def sum_of(fits: Iterable[Counted], observer: str, relation: Relation | None) -> Guarantee:
    """Return what fits cost together, against one observer."""
    claims: Counter[Claim] = Counter()
    # By identity first: a promise is shared by all fits that made it, and long ones hash slowly.
    fits = list(fits)
    promises = Counter(id(fit.promise) for fit in fits)
    known = {id(fit.promise): fit.promise for fit in fits}
    for key, count in promises.items():
        claims[known[key].against(observer)] += count
    return total_of(claims.items(), relation)
