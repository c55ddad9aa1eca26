"""The guarantee is a property of the plan, and the plan is made before data."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import is_classifier

from skdpadmm import (
    DPAdmmElasticNet,
    DPAdmmHuberRegressor,
    DPAdmmLasso,
    DPAdmmLinearSVC,
    DPAdmmLogisticRegression,
    DPAdmmRidge,
)

ESTIMATORS = [
    DPAdmmElasticNet,
    DPAdmmHuberRegressor,
    DPAdmmLasso,
    DPAdmmLinearSVC,
    DPAdmmLogisticRegression,
    DPAdmmRidge,
]


def data(estimator, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((30, 3))
    y = np.arange(30) % 3 if is_classifier(estimator()) else rng.standard_normal(30)
    return X, y


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_neighbouring_and_shuffled_data_get_the_same_plan_and_the_same_trace(estimator, watch):
    X, y = data(estimator)
    neighbour = X.copy()
    neighbour[0] = [1e300, -1e300, 0.0]
    order = np.random.default_rng(1).permutation(30)
    with watch() as tap:
        estimator().fit(X, y)
        estimator().fit(neighbour, y)
        estimator().fit(X[order], y[order])
        estimator().fit(sparse.csr_array(X), y)
    first, *others = tap.plans
    assert all(plan == first and plan.digest() == first.digest() for plan in others)
    assert all(gate.trace == tap.gates[0].trace for gate in tap.gates)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_the_trace_of_the_gate_equals_the_plan(estimator, watch):
    with watch() as tap:
        estimator().fit(*data(estimator))
    planned = [(r.name, r.shape) for r in tap.plans[0].releases for _ in range(r.times)]
    assert tap.gates[0].trace == planned


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_a_plan_without_data_is_the_plan_of_the_fit(estimator, watch):
    with watch() as tap:
        model = estimator().fit(*data(estimator))
    shape = (30, 3, 3) if is_classifier(estimator()) else (30, 3)
    assert estimator().plan(*shape) == tap.plans[0]
    assert model.privacy_.guarantee() == tap.plans[0].guarantee()


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_after_data_is_touched_nothing_speaks(estimator, capsys):
    # Neither warnings nor output: both could depend on private values.
    X, y = data(estimator)
    X[:4] = [[1e300, -1e300, 1e300], [1.7e308] * 3, [1e-308] * 3, [0.0] * 3]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = estimator(n_jobs=2).fit(X, y)
    assert np.isfinite(model.coef_).all()
    assert capsys.readouterr() == ("", "")


def test_the_progress_bar_shows_iterations_and_nothing_else(capsys):
    outputs = []
    for seed in (0, 1):
        DPAdmmRidge(verbose=1, max_iter=3).fit(*data(DPAdmmRidge, seed))
        outputs.append(capsys.readouterr().err)
    assert "3/3" in outputs[0]
    for output in outputs:
        assert not any(word in output for word in ("loss", "objective", "residual", "coef"))
