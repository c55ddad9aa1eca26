"""Attacks on the guarantees of estimators: what runs show, beside what is claimed.

A report of an audit of private data reveals them, and no guarantee covers it.
"""

from __future__ import annotations

from skdpadmm.audit._audit import AuditReport, audit
from skdpadmm.audit._replay import ReplayLine

__all__ = ["AuditReport", "ReplayLine", "audit"]
