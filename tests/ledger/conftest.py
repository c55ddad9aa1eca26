"""Ledgers, entries and other processes for tests."""

from __future__ import annotations

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
