"""What all tests share: the profile of hypothesis, and one cluster of dask."""

import os
import time
from contextlib import suppress

import pytest
from hypothesis import settings

# No test asserts a time: an example may take as long as a busy machine needs.
settings.register_profile("skdpadmm", deadline=None)
settings.load_profile("skdpadmm")


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
