"""Coefficients of private logistic fits approach those without privacy."""

import math
from dataclasses import replace
from functools import partial
from unittest import mock

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sklearn.metrics import log_loss, r2_score

import skdpadmm
from skdpadmm.algorithms import _defaults, without_stretch
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


# Defaults that have to arrive on rows of every shape: (estimator, parameters, classes).
ARRIVE = {
    "two classes": ("DPAdmmLogisticRegression", {}, 2),
    "three classes": ("DPAdmmLogisticRegression", {}, 3),
    "persons": ("DPAdmmLogisticRegression", {"max_rows_per_person": 1}, 2),
    "weights": ("DPAdmmLogisticRegression", {"max_weight": 1.0}, 2),
    "private number": ("DPAdmmLogisticRegression", {"neighboring": "add_remove"}, 2),
    "descent": ("DPAdmmLogisticRegression", {"algorithm": "gradient-descent"}, 2),
    "server": ("DPFedLogisticRegression", {"n_agents": 4}, 2),
    "sums": ("DPFedLogisticRegression", {"n_agents": 4, "adversary": "sums"}, 2),
    "graph": ("DPDecentralizedClassifier", {"n_agents": 4}, 2),
    "descent on a graph": (
        "DPDecentralizedClassifier",
        {"n_agents": 4, "algorithm": "decentralized-gradient-descent"},
        2,
    ),
    "squares": ("DPAdmmRidge", {}, 0),
    "Huber": ("DPAdmmHuberRegressor", {}, 0),
    "squares by a server": ("DPFedRidge", {"n_agents": 4}, 0),
    "squares on a graph": ("DPDecentralizedRegressor", {"n_agents": 4}, 0),
}
# Without a basis: on columns that fill their bounds.
FILLED = {
    "coordinates": ("DPAdmmLogisticRegression", {"algorithm": "coordinate-descent"}, 2),
    "exact records": ("DPAdmmLogisticRegression", {"conditioning": None}, 2),
    "personal": ("DPPersonalizedClassifier", {"n_agents": 1}, 2),
}
COLUMNS = {
    "uniform": lambda rng, n: rng.uniform(-1, 1, n),
    "signs": lambda rng, n: rng.choice([-1.0, 1.0], n),
    "half": lambda rng, n: 1.0 * (rng.random(n) < 0.4),
    "rare": lambda rng, n: 1.0 * (rng.random(n) < 0.05),
    "far": lambda rng, n: rng.uniform(0.7, 1.0, n),
    "heavy": lambda rng, n: np.clip(0.1 * rng.standard_t(2, n), -1, 1),
    "narrow": lambda rng, n: 0.05 * rng.standard_normal(n).clip(-4, 4),
}
# So large that no direction is hidden by noise, either of columns or of near copies.
FREE = 1e10


def table(kinds, copied, seed, n_classes, n=600):
    """Columns of those kinds, the last a near copy of the first if asked for, and targets."""
    rng = np.random.default_rng(seed)
    X = np.column_stack([COLUMNS[kind](rng, n) for kind in kinds])
    if copied and len(kinds) > 1:
        X[:, -1] = np.clip(X[:, 0] + 0.01 * rng.standard_normal(n), -1, 1)
    spread = np.maximum(X.std(axis=0), 0.5)
    score = (X - X.mean(axis=0)) / spread @ rng.uniform(-1, 1, len(kinds)) / len(kinds) ** 0.5
    if not n_classes:
        return X, np.clip(0.25 * score + 0.1 * rng.standard_normal(n), -1, 1)
    scores = np.stack([score, 0.2 - score, 0.3 + 0 * score][:n_classes], axis=1)
    return X, np.argmax(scores + rng.gumbel(size=scores.shape), axis=1)


def arrives(family, kinds, copied, seed):
    name, own, n_classes = (ARRIVE | FILLED)[family]
    X, y = table(kinds, copied, seed, n_classes)
    known = {"classes": list(range(n_classes))} if n_classes else {"target_bounds": (-1, 1)}
    make = partial(getattr(skdpadmm, name), feature_bounds=(-1, 1), random_state=seed, **known)
    more = {"persons": np.arange(len(X))} if family == "persons" else {}
    more |= {"sample_weight": np.ones(len(X))} if family == "weights" else {}
    private = make(epsilon=FREE, **own).fit(X, y, **more)
    exact = make(epsilon=np.inf, **{k: v for k, v in own.items() if k != "algorithm"})
    exact.fit(X, y, **more)
    if not n_classes:
        found, best = (r2_score(y, model.predict(X)) for model in (private, exact))
        assert found >= best - 0.005
        return
    found, best = (model.predict_proba(X) for model in (private, exact))
    assert log_loss(y, found) <= log_loss(y, best) + 0.002
    assert np.abs(found.mean(axis=0) - best.mean(axis=0)).max() <= 0.005


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


@pytest.mark.parametrize("family", ARRIVE)
@settings(max_examples=6)
@example(["signs"] * 8, False, 0)
@example(["half"], False, 0)
@example(["uniform", "half", "rare", "signs"], True, 0)
@given(
    st.lists(st.sampled_from(sorted(COLUMNS)), min_size=1, max_size=20),
    st.booleans(),
    st.integers(0, 1000),
)
def test_without_noise_defaults_arrive_on_every_shape(family, kinds, copied, seed):
    arrives(family, kinds, copied, seed)


def test_steps_are_stable_for_rows_that_are_cut(monkeypatch):
    # As where signal is short; the rows are twice as long as the cut.
    monkeypatch.setattr(_defaults, "OPEN_EDGE", 1e-9)
    for family in ("two classes", "three classes", "squares"):
        arrives(family, ["signs"] * 8, False, 0)


@pytest.mark.parametrize("family", FILLED)
@settings(max_examples=4)
@example(["signs"] * 8, 0)
@given(
    st.lists(st.sampled_from(["half", "signs", "uniform"]), min_size=1, max_size=8),
    st.integers(0, 1000),
)
def test_without_noise_defaults_without_a_basis_arrive(family, kinds, seed):
    arrives(family, kinds, False, seed)


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
