"""Exact values that reach the gate: what all releases have in common is in tests/contract."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from skdpadmm.protocol import Plan
from tests.contract.harness import Recording

RELATIONS = ["replace_one", "zero_out"]


def passed(release: Callable[..., Any], *args: Any, **known: Any) -> tuple[Plan, np.ndarray]:
    """The plan of a release, and the exact vector that noise is added to."""
    recording = Recording()
    with recording.watching():
        release(*args, **known)
    (passage,) = recording.passages
    return recording.plan, passage.value


def largest_change(rows: list[np.ndarray], neighboring: str) -> float:
    """Of a sum over rows, which are contributions: by the worst replaced or removed one."""
    table = np.array(rows)
    if neighboring == "zero_out":
        return float(np.linalg.norm(table, axis=1).max())
    return float(max(np.linalg.norm(table - row, axis=1).max() for row in table))
