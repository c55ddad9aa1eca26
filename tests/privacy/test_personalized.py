"""Theorems about personal models: what turns cost, and budgets of agents."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from skdpadmm import DPPersonalizedRegressor
from skdpadmm.algorithms import LocalModels, PersonalizedCoordinateDescent
from skdpadmm.privacy import GaussianDP, LaplaceDP
from tests.contract.harness import moves, record, replay, scale_of
from tests.contract.registry import AGENTS, ROWS
from tests.privacy_accounting.attained import attained_delta

LAWS = ("gaussian", "laplace")


def steps_of(algorithm, **params):
    """What the turns of the first agent move by, in scales of its noise; and the plan."""
    (row,) = (row for row in ROWS if row.id == "personal-laplace")
    row = replace(row, params={"fit_intercept": False, "alpha": 0.0, **params})
    X, y = np.ones((row.n_samples, 2)), np.full(row.n_samples, 2.0)
    y2 = np.where(np.isin(np.arange(len(y)), row.first_unit), -2.0, y)
    model = row.make(algorithm=algorithm)
    recorded = record(row, X, y, model=model)
    replayed = replay(row, recorded, X, y2, model=row.make(algorithm=algorithm))
    found = [move for move in moves(recorded, replayed) if move.distance > 0]
    return [move.distance / move.scale for move in found], recorded.plan


@pytest.mark.parametrize("unit", ["record", "agent"])
@pytest.mark.parametrize("split", ["equal", "optimal"])
@pytest.mark.parametrize("law", LAWS)
def test_the_exact_divergence_of_turns_attains_the_claim(law, split, unit):
    algorithm = PersonalizedCoordinateDescent(
        turns=4, noise=law, clip_norm=1e-3, split=split, warm_start="propagation"
    )
    steps, plan = steps_of(algorithm, privacy_unit=unit)
    assert len(steps) == 4
    for level in (0.0, 0.3, 0.6, 0.9):
        claimed = plan.guarantee().delta(level)
        if law == "laplace":
            exact = attained_delta([(0.0, step, 1) for step in steps], level)
        else:
            exact = GaussianDP(math.hypot(*steps)).delta(level)
        assert exact <= claimed * (1 + 1e-9)
        assert exact == pytest.approx(claimed, rel=5e-3, abs=5e-4)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("algorithm", [PersonalizedCoordinateDescent, LocalModels])
def test_agents_with_budgets_of_their_own_spend_them(algorithm, law):
    epsilons = [0.5, 2.0, 1.0, 4.0]
    model = DPPersonalizedRegressor(
        algorithm=algorithm(turns=2, noise=law), epsilon=epsilons, max_iter=3
    )
    plan = model.plan(14, 2, agent_sizes=np.bincount(AGENTS))
    (release,) = plan.releases
    for agent, epsilon in enumerate(epsilons):
        steps = np.asarray(release.sensitivities) / scale_of(plan, release, agent=agent)
        one = GaussianDP(math.hypot(*steps)) if law == "gaussian" else LaplaceDP(tuple(steps))
        claimed = plan.guarantees("eavesdropper")[plan.facts.agents.kind[agent]]
        assert 0.99 * epsilon < one.epsilon(1e-5) <= claimed.epsilon(1e-5) <= epsilon * (1 + 1e-9)
