"""A black-box attack on whole searches: worst-case neighbours, everything that is published."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import beta

from skdpadmm import DPAdmmRidge
from skdpadmm.model_selection import DPGridSearchCV
from skdpadmm.privacy import GaussianDP, gaussian_mu

N_RUNS, CONFIDENCE, EPSILON, DELTA = 1_500, 0.99, 2.0, 1e-2
TRAIN, VALIDATION = np.arange(6), np.arange(6, 12)

# Twelve rows: a score is mostly noise.
pytestmark = pytest.mark.filterwarnings("ignore:Got scores with noise:UserWarning")


def neighbours(part):
    """Two data sets that differ in one extreme row, which trains or validates."""
    X, y = np.ones((12, 1)), np.zeros(12)
    other = y.copy()
    row = TRAIN[0] if part == "train" else VALIDATION[0]
    y[row], other[row] = -1.0, 1.0
    return X, y, other


def search():
    model = DPAdmmRidge(
        feature_bounds=(-1, 1),
        target_bounds=(-1, 1),
        fit_intercept=False,
        conditioning=None,
        max_iter=1,
    )
    # Scores are made to reveal: they grow with what the differing row decides.
    return DPGridSearchCV(
        model,
        {"alpha": [0.0, 1e-3]},
        epsilon=EPSILON,
        delta=DELTA,
        n_trials=4,
        cv=[(TRAIN, VALIDATION)],
        scoring=reward,
        score_bounds=(-1, 1),
    )


def reward(estimator, X, y):
    """A row of the training part shows by predictions, one of the validation part by its target."""
    return np.where(y == 0, np.clip(10 * estimator.predict(X), -1, 1), y)


def published(y, n_runs):
    """The coefficient and the score of each run."""
    one, X = search(), np.ones((12, 1))
    found = []
    for _ in range(n_runs):
        one.fit(X, y)
        found.append((one.best_estimator_.coef_[0], one.best_score_))
    return np.array(found)


def lower_bound(p, q):
    """The epsilon that a threshold shows: chosen on one half, counted on the other."""
    best = -math.inf
    direction = p[::2].mean(axis=0) - q[::2].mean(axis=0)
    spread = np.vstack([p[::2], q[::2]]).std(axis=0) + 1e-12
    statistics = [np.array([1.0, 0.0]), np.array([0.0, 1.0]), direction / spread]
    for weights in statistics:
        a, b = p @ (weights / spread), q @ (weights / spread)
        for sign in (1, -1):
            for first, second in ((sign * a, sign * b), (sign * b, sign * a)):
                grid = np.quantile(np.concatenate([first[::2], second[::2]]), np.linspace(0, 1, 99))
                gains = [
                    math.log(max(np.mean(first[::2] > t) - DELTA, 1e-9))
                    - math.log(np.mean(second[::2] > t) + 10 / len(second))
                    for t in grid
                ]
                t = grid[int(np.argmax(gains))]
                best = max(best, counted(first[1::2] > t, second[1::2] > t))
    return best


def counted(hits, misses):
    n, k, m = len(hits), int(hits.sum()), int(misses.sum())
    # Twelve bounds on either side are looked at: the confidence is shared by all.
    level = (1 - CONFIDENCE) / 24
    low = beta.ppf(level, k, n - k + 1) if k else 0.0
    high = beta.ppf(1 - level, m + 1, n - m) if m < n else 1.0
    return math.log(max(low - DELTA, 1e-300) / high)


@pytest.fixture
def plan_once(monkeypatch):
    """All runs have the same plan, which sees no data: it is made once, and maybe bent."""

    def use(**bent):
        plan = replace(search().plan(12, 1), **bent)
        monkeypatch.setattr(
            "skdpadmm.model_selection._base_search.plan_search", lambda *_, **__: plan
        )

    return use


@pytest.mark.slow
@pytest.mark.parametrize("part", ["train", "validation"])
def test_no_attack_shows_more_than_the_search_claims(part, plan_once):
    plan_once()
    _, y, other = neighbours(part)
    shown = lower_bound(published(y, N_RUNS), published(other, N_RUNS))
    print(f"{part}: epsilon {shown:.3f} of {EPSILON:g}")
    assert shown < EPSILON  # planted bugs, below, show that it sees something


@pytest.mark.slow
def test_the_attack_sees_scores_with_a_fortieth_of_the_noise(plan_once):
    plan_once(score_std=0.025 * search().plan(12, 1).score_std)
    _, y, other = neighbours("validation")
    assert lower_bound(published(y, 800), published(other, 800)) > EPSILON


@pytest.mark.slow
def test_the_attack_sees_trials_that_each_spend_four_times_the_total(plan_once):
    spent = GaussianDP(gaussian_mu(4 * EPSILON, DELTA))
    plan_once(trial_epsilon=4 * EPSILON, fit_guarantee=spent)
    _, y, other = neighbours("train")
    # 500 runs show 2.1, give or take .2.
    assert lower_bound(published(y, N_RUNS), published(other, N_RUNS)) > EPSILON
