"""Exact values that reach the gate, for tests of releases beside a fit."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from skdpadmm.protocol import Gate, Plan


class Passed:
    """The plan of the last release, and the exact vector that noise was added to."""

    plan: Plan
    value: np.ndarray


@pytest.fixture
def passed(monkeypatch: pytest.MonkeyPatch) -> Passed:
    return recording(monkeypatch)


def recording(patch: pytest.MonkeyPatch) -> Passed:
    """Record what passes the gate from now on."""
    seen, honest = Passed(), Gate.deliver

    def deliver(gate, method, release, repetition, value, out, *rest):
        seen.plan = gate._plan
        if method == "release":
            seen.value = value
        return honest(gate, method, release, repetition, value, out, *rest)

    patch.setattr(Gate, "deliver", deliver)
    return seen


def largest_change(rows: list[np.ndarray], neighboring: str) -> float:
    """Of a sum over rows, which are contributions: by the worst replaced or removed one."""
    table = np.array(rows)
    if neighboring == "zero_out":
        return float(np.linalg.norm(table, axis=1).max())
    return float(max(np.linalg.norm(table - row, axis=1).max() for row in table))


Contribution = Callable[[object], np.ndarray]
