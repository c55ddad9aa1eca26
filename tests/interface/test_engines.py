"""Workers of dask change no bit, and one that dies leaves nothing: one cluster for all."""

import math
import os
import signal
from contextlib import contextmanager

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone

from skdpadmm import _fitting
from skdpadmm.algorithms import FederatedADMM, MultiStepADMM
from tests.interface.registry import ROWS, all_pairs, parameters

pytestmark = pytest.mark.slow
NAMES = ["fed lasso", "fed logistic", "network", "network of classes"]
CONTAINERS = [np.asarray, sparse.csr_matrix]


@pytest.mark.parametrize(
    ("name", "convert", "unit", "epsilon", "knobs"),
    all_pairs(NAMES, CONTAINERS, ["record", "agent"], [1.0, math.inf], range(3)),
)
def test_neither_jobs_nor_workers_change_a_bit(name, convert, unit, epsilon, knobs, client):
    X, y = ROWS[name].data(n=9000, p=20)
    partial = {"algorithm": FederatedADMM(message="increment"), "participation": 0.5}
    choices = [{}, {"n_agents": 40}, partial]
    if name.startswith("network"):
        batches = {"algorithm": MultiStepADMM(batch_fraction=0.2), "conditioning": None}
        choices[2] = batches if unit == "record" else {"topology": "watts-strogatz", "n_agents": 40}
    model = ROWS[name].make(privacy_unit=unit, epsilon=epsilon, max_iter=3, **choices[knobs])
    X = convert(X)
    expected = parameters(model.fit(X, y))
    for n_jobs in (2, 4):
        found = parameters(clone(model).set_params(n_jobs=n_jobs).fit(X, y))
        np.testing.assert_array_equal(found, expected)
    with client.as_current():
        model.set_params(engine="dask").fit(X, y)
    np.testing.assert_array_equal(parameters(model), expected)


@pytest.mark.parametrize("unit", ["record", "agent"])
def test_a_worker_that_dies_in_mid_fit_is_an_error_that_stores_nothing(
    unit, client, all_answer, monkeypatch
):
    X, y = ROWS["fed ridge"].data(n=9000, p=20)
    model = ROWS["fed ridge"].make(privacy_unit=unit, max_iter=20)
    before, rounds = dict(vars(model.fit(X, y))), []

    @contextmanager
    def kill_a_worker(estimator, plan):
        def progress(done):
            rounds.append(done)
            if done == 3:
                os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL)

        yield progress

    monkeypatch.setattr(_fitting, "_progress", kill_a_worker)
    with client.as_current():
        with pytest.raises(RuntimeError, match=r"dask worker that died in round .* Nothing was st"):
            model.set_params(engine="dask").fit(X, y)
    assert 3 <= len(rounds) < 20
    assert vars(model) == before | {"engine": "dask"}
    all_answer()
