"""An account of guarantees: what a whole study has cost, in one SQLite file.

A fit reserves its planned cost before it reads data and is marked as done afterwards, so that a
crash leaves it counted. A path is a plain string, which survives clones, pickles and other
processes. ``python -m skdpadmm.ledger study.db`` prints the account.
"""

from __future__ import annotations

from skdpadmm.ledger._account import LedgerError, PrivacyBudgetExceeded
from skdpadmm.ledger._ledger import LedgerEntry, PrivacyLedger

__all__ = ["LedgerEntry", "LedgerError", "PrivacyBudgetExceeded", "PrivacyLedger"]
