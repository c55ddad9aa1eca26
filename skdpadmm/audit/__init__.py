"""Attacks on estimators, whose results are compared with the claimed guarantees.

A report of an audit with private data reveals the data, and no guarantee covers it.
"""

from __future__ import annotations

from skdpadmm.audit._audit import AuditReport, audit
from skdpadmm.audit._replay import ReplayLine

__all__ = ["AuditReport", "ReplayLine", "audit"]
