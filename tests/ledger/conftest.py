"""Ledgers and fits for tests."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from skdpadmm.ledger import LedgerEntry
from skdpadmm.privacy import GaussianDP, Guarantee, Observer


def entry_of(
    guarantee: Guarantee,
    *,
    subject: str = "Lasso",
    unit: str = "record",
    neighboring: str = "replace_one",
    simulation: bool = False,
    digest: str = "0" * 64,
    others: tuple[Observer, ...] = (),
) -> LedgerEntry:
    first = Observer("model", "the model", unit, neighboring, guarantee)
    return LedgerEntry(subject, digest, 1e-6, (first, *others), simulation)


@pytest.fixture
def entry() -> Callable[..., LedgerEntry]:
    return entry_of


@pytest.fixture(name="store")
def store_by_sql() -> Callable[..., None]:
    return store


@pytest.fixture
def gaussian() -> LedgerEntry:
    return entry_of(GaussianDP(0.1))


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "study.db")


def store(path: str, promise: str, record: str, *, wait: bool = False) -> None:
    """Write a fit by SQL alone, and perhaps die with the lock in hand."""
    import hashlib
    import sqlite3
    import time
    import uuid

    values = (uuid.uuid4().hex, "", promise, record)
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    connection.execute(
        "INSERT INTO entries (key, dataset, promise, record, checksum) VALUES (?, ?, ?, ?, ?)",
        (*values, hashlib.sha256("\n".join(values).encode()).hexdigest()),
    )
    if wait:
        connection.execute("PRAGMA cache_spill = 1")
        print("inside", flush=True)
        time.sleep(600)
    connection.execute("COMMIT")
    connection.close()


PRELUDE = """
import os, sys, signal, time
from skdpadmm.ledger import LedgerEntry, PrivacyBudgetExceeded, PrivacyLedger
from skdpadmm.privacy import GaussianDP, Observer

path = sys.argv[1]

def entry(mu):
    world = Observer("model", "the model", "record", "replace_one", GaussianDP(mu))
    return LedgerEntry("Lasso", "0" * 64, 1e-6, (world,))

""" + inspect.getsource(store)


@pytest.fixture
def start() -> Callable[..., subprocess.Popen[str]]:
    """Start another process; it does not inherit what this one knows of ledgers."""
    started = []

    def run(script: str, *arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", PRELUDE + script, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield run
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()
