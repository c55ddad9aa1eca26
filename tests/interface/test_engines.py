"""Workers change no bit."""

import math

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone

from skdpadmm.algorithms import FederatedADMM, MultiStepADMM
from tests.interface.registry import ROWS, all_pairs, parameters

pytestmark = pytest.mark.slow
NAMES = ["fed lasso", "fed logistic", "network", "network of classes"]
CONTAINERS = [np.asarray, sparse.csr_matrix]


@pytest.mark.parametrize(
    ("name", "convert", "unit", "epsilon", "knobs"),
    all_pairs(NAMES, CONTAINERS, ["record", "agent"], [1.0, math.inf], range(3)),
)
def test_jobs_change_no_bit(name, convert, unit, epsilon, knobs):
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
