"""An account book of guarantees: what a whole study has cost, in one SQLite file.

A fit reserves its planned cost before it touches data and marks it done afterwards, so that a
crash leaves it counted. A path is a plain string, which survives clones, pickles and other
processes. This room knows guarantees and no estimator.

``python -m skdpadmm.ledger study.db`` prints the account.
"""

from __future__ import annotations

from skdpadmm.ledger._account import Summed, compose_all
from skdpadmm.ledger._entry import LedgerEntry
from skdpadmm.ledger._errors import LedgerError, PrivacyBudgetExceeded
from skdpadmm.ledger._ledger import PrivacyLedger

__all__ = [
    "LedgerEntry",
    "LedgerError",
    "PrivacyBudgetExceeded",
    "PrivacyLedger",
    "Summed",
    "compose_all",
]
