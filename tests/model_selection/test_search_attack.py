"""A black-box attack on whole searches: worst-case neighbours, everything that is published."""

from dataclasses import replace

import numpy as np
import pytest

from skdpadmm import DPAdmmRidge
from skdpadmm.audit._bounds import lower_bounds
from skdpadmm.model_selection import DPGridSearchCV

EPSILON, DELTA = 2.0, 1e-2
TRAIN, VALIDATION = np.arange(6), np.arange(6, 12)

# Twelve rows: a score is mostly noise.
pytestmark = [
    pytest.mark.filterwarnings("ignore:Got scores with noise:UserWarning"),
    pytest.mark.usefixtures("fixed_entropy"),
]


def search():
    model = DPAdmmRidge(
        feature_bounds=(-1, 1), target_bounds=(-1, 1), fit_intercept=False, conditioning=None,
        max_iter=1,
    )  # fmt: skip
    # Scores are made to reveal: they grow with what the differing row decides.
    return DPGridSearchCV(
        model, {"alpha": [0.0, 1e-3]}, epsilon=EPSILON, delta=DELTA, n_trials=4,
        cv=[(TRAIN, VALIDATION)], scoring=reward, score_bounds=(-1, 1),
    )  # fmt: skip


def reward(estimator, X, y):
    """A row of the training part shows by predictions, one of the validation part by its target."""
    return np.where(y == 0, np.clip(10 * estimator.predict(X), -1, 1), y)


def shown(part, n_runs):
    """The epsilon that the coefficient and the score show, by an event that other runs chose."""
    row, one, published = TRAIN[0] if part == "train" else VALIDATION[0], search(), []
    # Two data sets that differ in one extreme row, which trains or validates.
    for target in (-1.0, 1.0):
        y = np.where(np.arange(12) == row, target, 0.0)
        fits = (one.fit(np.ones((12, 1)), y) for _ in range(n_runs))
        published.append(np.array([(f.best_estimator_.coef_[0], f.best_score_) for f in fits]))
    return lower_bounds(*published, delta=DELTA, confidence=0.99, is_gaussian=False).epsilon


def plan_once(monkeypatch, **bent):
    """All runs have the same plan, which sees no data: it is made once, and maybe bent."""
    plan = replace(search().plan(12, 1), **bent)
    monkeypatch.setattr("skdpadmm.model_selection._search.plan_search", lambda *_, **__: plan)


@pytest.mark.slow
@pytest.mark.parametrize("part", ["train", "validation"])
def test_no_attack_shows_more_than_the_search_claims(part, monkeypatch):
    plan_once(monkeypatch)
    assert shown(part, 1_500) < EPSILON  # planted bugs, below, show that it sees something


@pytest.mark.slow
def test_the_attack_sees_scores_with_a_fortieth_of_the_noise(monkeypatch):
    plan_once(monkeypatch, score_std=0.025 * search().plan(12, 1).score_std)
    assert shown("validation", 800) > EPSILON
