"""Coefficients of private logistic fits approach those without privacy."""

import math
from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
from sklearn.metrics import log_loss

import skdpadmm
from skdpadmm.algorithms import without_stretch
from skdpadmm.losses import LogisticLoss, MultinomialLoss
from tests.contract.registry import ROWS

FITS = {
    "central": ("DPAdmmLogisticRegression", {}),
    "sums": ("DPFedLogisticRegression", {"n_agents": 5, "adversary": "sums"}),
    "server": ("DPFedLogisticRegression", {"n_agents": 5, "adversary": "server"}),
    "graph": ("DPDecentralizedClassifier", {"n_agents": 5}),
    # Whose models are far apart.
    "large graph": ("DPDecentralizedClassifier", {"n_agents": 20}),
}


def rows(n):
    rng = np.random.default_rng(n)
    X = rng.uniform(-1, 1, (n, 5))
    odds = np.exp(X @ [2.0, -1.5, 1.0, 0.5, 0.0] + 0.5)
    return X, (rng.uniform(size=n) < odds / (1 + odds)).astype(int)


def scores_and_model(kind, X, y, **budget):
    name, own = FITS[kind]
    model = getattr(skdpadmm, name)(classes=[0, 1], feature_bounds=(-1, 1), **own, **budget)
    model.fit(X, y)
    return X @ model.coef_.ravel(), model


@pytest.mark.parametrize("kind", FITS)
@pytest.mark.parametrize(
    ("n_rows", "epsilon", "bar"), [(50_000, 3.0, 0.05), (10_000, 1.0, 0.2)], ids=["50000", "10000"]
)
def test_coefficients_are_as_large_as_those_without_privacy(kind, n_rows, epsilon, bar):
    X, y = rows(n_rows)
    exact, _ = scores_and_model(kind, X, y, epsilon=np.inf)
    private = [scores_and_model(kind, X, y, epsilon=epsilon, random_state=k)[0] for k in range(3)]
    slopes = [np.polyfit(exact, scores, 1)[0] for scores in private]
    assert np.median(slopes) == pytest.approx(1.0, abs=bar)


@pytest.mark.parametrize("epsilon", [1.0, 10.0])
def test_exported_models_have_probabilities_about_as_good(epsilon):
    X, y = rows(5_000)
    loss = []
    for k in range(5):
        _, model = scores_and_model("central", X, y, epsilon=epsilon, random_state=k)
        models = (model, model.to_sklearn())
        loss.append([log_loss(y, each.predict_proba(X)) for each in models])
    own, exported = np.median(loss, axis=0)
    assert exported <= own + 0.005


@pytest.mark.parametrize("row", [row for row in ROWS if row.target != "number"], ids=lambda r: r.id)
def test_nothing_is_scaled_without_privacy_because_nothing_is_clipped(row, monkeypatch):
    X, y = row.data()
    scale = mock.Mock(return_value=0.5)
    for loss in (LogisticLoss, MultinomialLoss):
        monkeypatch.setattr(loss, "unclipped_scale", scale)
    # There is no stream without privacy.
    row = replace(row, pieces=())
    row.fit(row.make(epsilon=math.inf, max_iter=2), X, y)
    assert not scale.called


@pytest.mark.parametrize("row", [row for row in ROWS if row.target != "number"], ids=lambda r: r.id)
def test_only_a_path_that_is_released_says_how_far_its_noise_stretches_scores(row, monkeypatch):
    seen = []

    def spy(plan, problem, solution):
        seen.append(solution.path_variance)
        return without_stretch(plan, problem, solution)

    for module in ("_fitting", "_streaming"):
        monkeypatch.setattr(f"skdpadmm.{module}.without_stretch", spy)
    row.fit(row.make(max_iter=2), *row.data())
    assert not any(seen) or row.algorithm_with({}).releases_path


def test_a_plan_says_where_the_size_of_coefficients_is_uncertain():
    line = "coefficients: uncertain in size"
    model = skdpadmm.DPAdmmLogisticRegression(delta=1e-5, classes=[0, 1])
    assert line in repr(model.plan(1_000, 5))
    assert line not in repr(model.plan(10_000, 5))
    model.set_params(epsilon=math.inf)
    assert line not in repr(model.plan(1_000, 5))
