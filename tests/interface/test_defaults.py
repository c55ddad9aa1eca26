"""What defaults are worth: floors of accuracy, well below what was measured. Long ones are slow."""

from __future__ import annotations

import contextlib
import io
import re
import textwrap
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import sklearn
from scipy.special import expit
from sklearn import config_context
from sklearn.metrics import log_loss
from sklearn.utils.fixes import parse_version

from skdpadmm import DPPersonalizedClassifier, DPPersonalizedRegressor
from tests.interface.registry import DEFAULTS, ROWS

SIZES = {"AZ": 300, "CA": 2000, "NY": 1500, "OR": 200, "TX": 1800, "WA": 600}
ALIKE, APART = ["CA", "NY", "OR", "WA"], ["AZ", "TX"]
WEIGHTS = pd.DataFrame(0.02, index=sorted(SIZES), columns=sorted(SIZES))
for bloc in (ALIKE, APART):
    WEIGHTS.loc[bloc, bloc] = 1.0
WEIGHTS = WEIGHTS.where(~np.eye(len(SIZES), dtype=bool), 0.0)


@pytest.mark.parametrize("name", [*DEFAULTS, "stream"])
def test_private_defaults_learn_an_easy_problem(name):
    row = ROWS[name]
    rng = np.random.default_rng(1)
    X = rng.uniform(-1, 1, size=(5000, 3))
    scores = X @ [1.0, -1.0, 0.5] + 0.1 * rng.normal(size=5000)
    y = scores if row.n_classes == 1 else np.digitize(scores, [0, 0.5][: row.n_classes - 1])
    weak = {"C": 1.0} if "C" in row.estimator.get_params() else {"alpha": 1e-4}
    model = row.make(epsilon=8.0, feature_bounds=(-1, 1), max_iter=100, **weak).fit(X, y)
    assert model.score(X, y) > 0.7


# Personal models.


def states(n_scores, seed):
    """Rows to learn from and rows to judge by: four states are nearly alike, two are not."""
    rng = np.random.default_rng(seed)
    shared, other, third = rng.normal(size=(3, 5, n_scores))
    of_state = {name: shared + 0.1 * rng.normal(size=shared.shape) for name in ALIKE}
    of_state |= {"AZ": other, "TX": third}

    def rows(sizes):
        whose = np.repeat(list(sizes), list(sizes.values()))
        X = rng.uniform(-1, 1, size=(len(whose), 4))
        coefs = np.array([of_state[name] for name in whose])
        return X, np.einsum("ij,ijk->ik", X, coefs[:, :4]) + 0.4 * coefs[:, 4], whose

    return rows(SIZES), rows(dict.fromkeys(SIZES, 400)), rng


def states_of(n_classes, seed):
    *parts, rng = states(max(n_classes, 2) - 1 if n_classes < 3 else n_classes, seed)
    label = {
        1: lambda s: 0.5 * s[:, 0] + 0.15 * rng.normal(size=len(s)),
        2: lambda s: rng.random(len(s)) < expit(3 * s[:, 0]),
        3: lambda s: (3 * s + rng.gumbel(size=s.shape)).argmax(axis=1),
    }[n_classes]
    return [(X, label(s), whose) for X, s, whose in parts]


def personal(n_classes, **settings):
    settings = {"feature_bounds": (-1, 1)} | settings
    if n_classes == 1:
        return DPPersonalizedRegressor(**({"target_bounds": (-2.5, 2.5)} | settings))
    return DPPersonalizedClassifier(**settings)


def mean_score(model, task, seeds=range(4)):
    scores = []
    for seed in seeds:
        (X, y, whose), (X_test, y_test, whose_test) = task(seed)
        model.set_params(random_state=seed).fit(X, y, agents=whose)
        scores.append(model.score(X_test, y_test, agents=whose_test))
    return np.mean(scores)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n_classes", "epsilon", "floor"),
    [(1, 0.3, 0.3), (1, 10.0, 0.8), (2, 0.3, 0.68), (2, 10.0, 0.73), (3, 1.0, 0.7)],
)
def test_states_learn_from_those_they_are_like(n_classes, epsilon, floor):
    trade_off = 30.0 if n_classes == 1 else 100.0
    model = personal(n_classes, similarity=WEIGHTS, trade_off=trade_off, epsilon=epsilon)
    assert mean_score(model, lambda seed: states_of(n_classes, seed)) > floor


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 100.0])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_probabilities_are_not_worse_than_those_of_the_scores(epsilon, n_classes):
    losses = []
    for seed in range(3):
        (X, y, whose), (X_test, y_test, whose_test) = states_of(n_classes, seed)
        model = personal(n_classes, similarity=WEIGHTS, trade_off=100.0, epsilon=epsilon)
        model.set_params(random_state=seed).fit(X, y, agents=whose)
        scores = model.decision_function(X_test, agents=whose_test)
        plain = expit(scores) if n_classes == 2 else np.exp(scores)
        plain = plain if n_classes == 2 else plain / plain.sum(axis=1, keepdims=True)
        proba = model.predict_proba(X_test, agents=whose_test)
        losses.append([log_loss(y_test, proba), log_loss(y_test, plain)])
    corrected, plain = np.mean(losses, axis=0)
    # The second is guessing without any rows.
    assert corrected < min(plain + 0.01, np.log(n_classes) + 0.02)


@pytest.mark.slow
def test_the_code_of_the_guide_of_personal_models_runs_and_learns():
    guide = Path(__file__).parents[2] / "docs" / "user_guide" / "personalized.rst"
    text = guide.read_text(encoding="utf-8")
    names = {}
    # Scorers of one's own are asked for what they route since 1.9.
    routes = parse_version(sklearn.__version__) >= parse_version("1.9")
    with config_context(), contextlib.redirect_stdout(io.StringIO()) as printed:
        for block in re.findall(r"\.\. code-block:: python\n\n((?:   .*\n|\n)+)", text):
            if routes or "set_config" not in block:
                exec(compile(textwrap.dedent(block), guide.name, "exec"), names)
    assert "Privacy of DPPersonalizedClassifier" in printed.getvalue()
    X, y = names["X"], names["y"]
    assert names["model"].score(X, y) > 0.98
    assert np.all(names["search"].cv_results_["mean_test_score"] > 0.98)
    assert names["at_home"].score(names["west"], y[X["town"] == "west"]) > 0.98
