"""Inner problems are not solved exactly: what a certified error can move is in every claim."""

import math

import pytest

import skdpadmm.algorithms._certified_solves as certified_solves
from skdpadmm import DPAdmmRidge, DPDecentralizedRegressor
from skdpadmm.algorithms import AveragedADMM, RandomWalkADMM, RandomWalkProximalPoint
from tests.contract.harness import moves, record, replay
from tests.contract.registry import ROWS


def planned(algorithm, neighboring, **parameters):
    model = DPDecentralizedRegressor(
        algorithm=algorithm, neighboring=neighboring, n_agents=5, max_iter=8, **parameters
    )
    plan = model.plan(n_samples=100, n_features=2)
    return plan, plan.facts.neighboring.sensitivity_factor, plan.facts.working_rounding


@pytest.mark.parametrize("neighboring", ["replace_one", "zero_out"])
@pytest.mark.parametrize("tolerance", [0.01, 0.3])
@pytest.mark.parametrize("kind", [RandomWalkADMM, RandomWalkProximalPoint])
def test_what_is_released_moves_by_twice_the_tolerance_more(kind, tolerance, neighboring):
    plan, c, rounding = planned(kind(tolerance=tolerance), neighboring)
    release = plan.releases[-1]
    # That of a stateless token is relative to what one record moves if its agent had all the
    # weight.
    lacks = {RandomWalkADMM: 1.0, RandomWalkProximalPoint: 1 / 5}[kind]
    moved = c * rounding + 2 * lacks * tolerance
    assert release.sensitivities[0] == pytest.approx(moved, rel=1e-12)
    times = getattr(plan.settings, "max_contributions", release.times)
    claimed = math.sqrt(times) * moved / release.noise_std
    assert plan.guarantee("eavesdropper").mu == pytest.approx(claimed, rel=1e-9)
    if kind is RandomWalkProximalPoint:
        drift = release.view("peer").pairs.token.drift
        assert drift == pytest.approx(2 * lacks * tolerance / (c * rounding), rel=1e-12)


def test_a_token_that_floats_cannot_resolve_is_refused():
    model = DPDecentralizedRegressor(
        algorithm=RandomWalkProximalPoint(), epsilon=10.0, delta=1e-12, n_agents=10, max_iter=5
    )
    model.plan(n_samples=10**6, n_features=3)
    with pytest.raises(ValueError, match=r"^Got n_samples=1000000000 .* rounding of a token"):
        model.plan(n_samples=10**9, n_features=3)


def test_more_steps_than_planned_move_what_averaged_admm_releases_within_its_tolerance(monkeypatch):
    (row,) = (row for row in ROWS if row.id == "averaged-path")
    knobs = {"step_size": 50.0, "clip_norm": 3.0, "tolerance": 0.01}
    X, y = row.data()
    planned = certified_solves.steps_to_reach
    recorded = record(row, X, y, algorithm=knobs)
    monkeypatch.setattr(
        certified_solves, "steps_to_reach", lambda *args, **more: 20 * planned(*args, **more)
    )
    found = list(moves(recorded, replay(row, recorded, X, y, algorithm=knobs)))
    assert len(found) == 4
    # In units of the clip each record's solution is that near, on either side of it.
    assert all(move.distance <= 0.01 * 2 / row.n_samples for move in found)


@pytest.mark.parametrize("neighboring", ["replace_one", "zero_out"])
@pytest.mark.parametrize("tolerance", [0.01, 0.3])
def test_twice_the_tolerance_of_averaged_admm_is_in_its_sensitivity(tolerance, neighboring):
    model = DPAdmmRidge(algorithm=AveragedADMM(tolerance=tolerance), neighboring=neighboring)
    plan = model.plan(n_samples=100, n_features=2)
    c, rounding = plan.facts.neighboring.sensitivity_factor, plan.facts.working_rounding
    moved = c / 100 * (rounding + 2 * tolerance)
    assert plan.releases[-1].sensitivities[0] == pytest.approx(moved, rel=1e-9)
