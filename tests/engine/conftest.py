"""Engines of every kind."""

import pytest

from skdpadmm.engine import Engine


@pytest.fixture
def on_dask(client, all_answer):
    all_answer()  # one may start again after the test before
    with Engine(backend="dask", client=client).running() as engine:
        yield engine


@pytest.fixture(params=[1, 2, pytest.param("dask", marks=pytest.mark.slow)])
def engine(request):
    """One thread, two threads, or two processes of dask."""
    if request.param == "dask":
        yield request.getfixturevalue("on_dask")
    else:
        with Engine(request.param).running() as engine:
            yield engine
