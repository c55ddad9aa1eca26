"""Ledgers, entries and other processes for tests."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from skdpadmm.ledger import LedgerEntry, PrivacyLedger
from skdpadmm.privacy import GaussianDP, Guarantee, Observer


def entry_of(
    guarantee: Guarantee,
    *,
    subject: str = "Lasso",
    unit: str = "record",
    neighboring: str = "replace_one",
    simulation: bool = False,
    others: tuple[Observer, ...] = (),
) -> LedgerEntry:
    first = Observer("model", "the model", unit, neighboring, guarantee)
    return LedgerEntry(subject, "0" * 64, 1e-6, (first, *others), simulation)


@pytest.fixture
def entry() -> Callable[..., LedgerEntry]:
    return entry_of


@pytest.fixture
def gaussian() -> LedgerEntry:
    return entry_of(GaussianDP(0.1))


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "study.db")


@pytest.fixture
def ledger(path: str) -> PrivacyLedger:
    return PrivacyLedger(path)


PRELUDE = """
import os, sys, time
from skdpadmm.ledger import LedgerEntry, PrivacyBudgetExceeded, PrivacyLedger
from skdpadmm.privacy import GaussianDP, Observer

path = sys.argv[1]

def entry(mu):
    world = Observer("model", "the model", "record", "replace_one", GaussianDP(mu))
    return LedgerEntry("Lasso", "0" * 64, 1e-6, (world,))
"""


@pytest.fixture
def start() -> Callable[..., subprocess.Popen[str]]:
    """Start another process; it does not inherit what this one knows of ledgers."""
    started = []

    def run(script: str, *arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", PRELUDE + script, *arguments],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        started.append(process)
        return process

    yield run
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()
