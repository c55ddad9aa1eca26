"""Engines of every kind."""

import pytest

from skdpadmm.engine import Engine


@pytest.fixture(params=[1, 2])
def engine(request):
    """One thread, or two."""
    with Engine(request.param).running() as engine:
        yield engine
