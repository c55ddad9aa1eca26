"""What the suite of the interface shares."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from skdpadmm._fitting import gates_by
from skdpadmm.protocol import Gate
from tests.interface.registry import ROWS


@pytest.fixture(params=ROWS)
def row(request):
    return ROWS[request.param]


@pytest.fixture
def plans():
    """The plans of gates that fits make."""
    seen: list[Any] = []

    def make_gate(fit, plan, noise, n_arrived):
        seen.append(plan)
        return Gate(plan, noise, n_arrived)

    with gates_by(make_gate):
        yield seen


@pytest.fixture
def assert_unfitted():
    def check(model):
        assert set(vars(model)) == set(inspect.signature(type(model)).parameters)

    return check
