"""What defaults are worth: floors of accuracy, over tasks, budgets and means of seeds."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit
from sklearn.datasets import load_breast_cancer
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split

from skdpadmm import DPPersonalizedClassifier, DPPersonalizedRegressor

SIZES = {"AZ": 300, "CA": 2000, "NY": 1500, "OR": 200, "TX": 1800, "WA": 600}
ALIKE, APART = ["CA", "NY", "OR", "WA"], ["AZ", "TX"]
SEEDS = range(4)
# How large each measurement can be.
NUCLEUS = [50, 64, 400, 8000, 1, 1, 1, 1, 1, 1]
BOUNDS = (0, NUCLEUS + [u / 6 for u in NUCLEUS] + NUCLEUS)


def weights():
    found = pd.DataFrame(0.02, index=sorted(SIZES), columns=sorted(SIZES))
    for bloc in (ALIKE, APART):
        found.loc[bloc, bloc] = 1.0
    return found.where(~np.eye(len(SIZES), dtype=bool), 0.0)


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


def states_of_numbers(seed):
    *parts, rng = states(1, seed)
    return [(X, 0.5 * s[:, 0] + 0.15 * rng.normal(size=len(X)), whose) for X, s, whose in parts]


def states_of_classes(n_classes, seed):
    *parts, rng = states(1 if n_classes == 2 else n_classes, seed)
    if n_classes == 2:
        return [(X, rng.random(len(X)) < expit(3 * s[:, 0]), whose) for X, s, whose in parts]
    return [(X, (3 * s + rng.gumbel(size=s.shape)).argmax(axis=1), whose) for X, s, whose in parts]


def many(seed):
    """Sixty agents with twenty rows each, and one truth."""
    rng = np.random.default_rng(seed)
    whose, coef = np.repeat(np.arange(60), 20), rng.normal(size=4)

    def rows():
        X = rng.uniform(-1, 1, size=(len(whose), 4))
        return X, 0.5 * X @ coef + 0.1 * rng.normal(size=len(X)), whose

    return rows(), rows()


def off_centre(seed):
    rng = np.random.default_rng(seed)
    coef = rng.normal(size=4)

    def rows(n):
        X = rng.uniform(0.5, 1, size=(n, 4))
        scores = (X - 0.75) @ coef
        return X, scores + 0.05 * rng.normal(size=n), np.zeros(n, dtype=int)

    return rows(2000), rows(1000)


def hospitals(n_agents, seed):
    X, X_test, y, y_test = train_test_split(*load_breast_cancer(return_X_y=True), random_state=seed)
    rng = np.random.default_rng(seed)
    whose, whose_test = (
        rng.integers(n_agents, size=len(y)),
        rng.integers(n_agents, size=len(y_test)),
    )
    return (X, y, whose), (X_test, y_test, whose_test)


def mean_score(model, task, seeds=SEEDS):
    scores = []
    for seed in seeds:
        (X, y, whose), (X_test, y_test, whose_test) = task(seed)
        model.set_params(random_state=seed).fit(X, y, agents=whose)
        scores.append(model.score(X_test, y_test, agents=whose_test))
    return np.mean(scores)


def regressor(**settings):
    return DPPersonalizedRegressor(
        **({"feature_bounds": (-1, 1), "target_bounds": (-2.5, 2.5)} | settings)
    )


def classifier(**settings):
    return DPPersonalizedClassifier(**({"feature_bounds": (-1, 1)} | settings))


# Floors are well below what was measured, with the same defaults for all tasks.


@pytest.mark.parametrize(("epsilon", "floor"), [(0.3, 0.3), (1.0, 0.7), (10.0, 0.8)])
def test_states_learn_numbers(epsilon, floor):
    model = regressor(similarity=weights(), trade_off=30.0, epsilon=epsilon)
    assert mean_score(model, states_of_numbers) > floor


@pytest.mark.parametrize(
    ("n_classes", "epsilon", "floor"),
    [(2, 0.3, 0.68), (2, 1.0, 0.72), (2, 10.0, 0.73), (3, 1.0, 0.7), (3, 10.0, 0.74)],
)
def test_states_learn_classes(n_classes, epsilon, floor):
    model = classifier(similarity=weights(), trade_off=100.0, epsilon=epsilon)
    assert mean_score(model, lambda seed: states_of_classes(n_classes, seed)) > floor


@pytest.mark.slow
@pytest.mark.parametrize("trade_off", [0.1, 1.0, 10.0])
def test_agents_of_one_mind_pool_their_rows_whatever_the_trade_off(trade_off):
    model = regressor(trade_off=trade_off, epsilon=10.0)
    assert mean_score(model, many) > 0.6


def test_features_may_be_off_the_middle_of_their_bounds():
    def classes(seed):
        return [(X, t > 0, whose) for X, t, whose in off_centre(seed)]

    assert mean_score(regressor(target_bounds=(-1, 1), epsilon=1.0), off_centre) > 0.6
    assert mean_score(classifier(epsilon=1.0), classes) > 0.8


@pytest.mark.parametrize("n_agents", [1, 3])
def test_thirty_features_in_wide_bounds_need_a_budget_and_no_more(n_agents):
    model = classifier(feature_bounds=BOUNDS, epsilon=10.0)
    assert mean_score(model, lambda seed: hospitals(n_agents, seed)) > 0.8


@pytest.mark.parametrize("epsilon", [1e-6, 0.3, 1.0])
def test_where_noise_hides_all_models_stay_small(epsilon):
    model = regressor(similarity=weights(), trade_off=30.0, epsilon=epsilon, privacy_unit="agent")
    assert mean_score(model, states_of_numbers) > -0.4


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0, 4.0, 100.0])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_probabilities_are_not_worse_than_those_of_the_scores(epsilon, n_classes):
    losses = []
    for seed in range(3):
        (X, y, whose), (X_test, y_test, whose_test) = states_of_classes(n_classes, seed)
        model = classifier(similarity=weights(), trade_off=100.0, epsilon=epsilon)
        model.set_params(random_state=seed).fit(X, y, agents=whose)
        scores = model.decision_function(X_test, agents=whose_test)
        plain = expit(scores) if n_classes == 2 else np.exp(scores)
        if n_classes == 3:
            plain /= plain.sum(axis=1, keepdims=True)
        proba = model.predict_proba(X_test, agents=whose_test)
        losses.append([log_loss(y_test, proba), log_loss(y_test, plain)])
    corrected, plain = np.mean(losses, axis=0)
    assert corrected < plain + 0.01
    # Guessing without any rows.
    assert corrected < np.log(n_classes) + 0.02
