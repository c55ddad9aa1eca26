"""What the suite of the interface shares."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from skdpadmm import _fitting
from tests.interface.registry import ROWS


@pytest.fixture(params=ROWS)
def row(request):
    return ROWS[request.param]


@pytest.fixture
def plans(monkeypatch):
    """The plans that pass through the gate while fitting."""
    seen: list[Any] = []

    class Spy(_fitting.Gate):
        def __init__(self, plan, noise, **arrived):
            seen.append(plan)
            super().__init__(plan, noise, **arrived)

    monkeypatch.setattr(_fitting, "Gate", Spy)
    return seen


@pytest.fixture
def assert_unfitted():
    def check(model):
        assert set(vars(model)) == set(inspect.signature(type(model)).parameters)

    return check
