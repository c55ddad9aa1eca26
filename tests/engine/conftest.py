"""The one dask cluster of these tests, and engines of every kind."""

from __future__ import annotations

import os
import time

import pytest
from distributed import Client, LocalCluster

from skdpadmm.engine import Engine


def answer_of_both(client):
    try:
        return len(client.run(os.getpid)) == 2
    except OSError:
        return False


@pytest.fixture(scope="session")
def wait_until():
    def wait(condition):
        for _ in range(400):
            if condition():
                return
            time.sleep(0.05)
        raise AssertionError("The condition never held.")

    return wait


@pytest.fixture(scope="session")
def client():
    # Port 0 is any free port: tests run next to each other.
    facts = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": "127.0.0.1:0"}
    with LocalCluster(**facts) as cluster, Client(cluster, set_as_default=False) as client:
        yield client


@pytest.fixture
def on_dask(client, wait_until):
    wait_until(lambda: answer_of_both(client))  # one may start again after the test before
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
