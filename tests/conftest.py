"""What all tests share: the profile of hypothesis, one cluster of dask, and a fast journal."""

import os
import sqlite3
import time
from contextlib import suppress
from functools import partial

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

# No test asserts a time, and every run tries the same examples.
settings.register_profile(
    "skdpadmm", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("skdpadmm")


class Unsynced(sqlite3.Connection):
    """A journal that a power cut may take away, as no test cuts the power: it waits for no disk."""

    def execute(self, statement, *values):
        if statement.startswith("PRAGMA synchronous"):
            statement = "PRAGMA synchronous = OFF"
        return super().execute(statement, *values)


@pytest.fixture(autouse=True, scope="session")
def no_disk_is_waited_for():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=Unsynced))
        yield


@pytest.fixture
def fixed_entropy(monkeypatch):
    """What the system would draw, from a seed: a test of what is drawn never fails by chance."""
    monkeypatch.setattr(os, "urandom", np.random.default_rng(0).bytes)


@pytest.fixture(scope="session")
def wait_until():
    """Wait for what a slow machine may take long for."""

    def wait(condition):
        last = time.monotonic() + 120
        while not condition():
            assert time.monotonic() < last, "The condition never held."
            time.sleep(0.05)

    return wait


@pytest.fixture(scope="session")
def client():
    distributed = pytest.importorskip("distributed")
    # Port 0 is any free port: tests run next to each other.
    facts = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": "127.0.0.1:0"}
    with distributed.LocalCluster(**facts) as cluster:
        with distributed.Client(cluster, set_as_default=False) as client:
            yield client


@pytest.fixture
def all_answer(client, wait_until):
    """Wait for a worker that died, which starts again."""

    def both():
        with suppress(OSError):
            return len(client.run(os.getpid)) == 2

    return lambda: wait_until(both)
