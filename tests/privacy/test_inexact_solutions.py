"""Inner problems are not solved exactly: what a certified error can move is in every claim."""

from __future__ import annotations

import math

import pytest

import skdpadmm.algorithms._averaged_admm as averaged_admm
from skdpadmm import DPDecentralizedRegressor
from skdpadmm.algorithms import (
    DualPerturbationADMM,
    PrimalPerturbationADMM,
    RandomWalkADMM,
    RandomWalkProximalPoint,
)
from skdpadmm.algorithms.planning._walks import StatelessToken
from skdpadmm.privacy import PerturbedObjectiveDP, WalkCost
from skdpadmm.privacy._perturbed_rounds import _flat
from tests.contract.harness import moves, record, replay
from tests.contract.registry import ROWS

RELATIONS = ["replace_one", "zero_out"]


def planned(algorithm, neighboring, **parameters):
    model = DPDecentralizedRegressor(
        algorithm=algorithm, neighboring=neighboring, n_agents=5, max_iter=8, **parameters
    )
    plan = model.plan(n_samples=100, n_features=2)
    return plan, plan.facts.neighboring.sensitivity_factor, plan.facts.working_rounding


@pytest.mark.parametrize("neighboring", RELATIONS)
@pytest.mark.parametrize("tolerance", [0.01, 0.3])
def test_a_token_of_admm_moves_by_twice_the_tolerance_more(neighboring, tolerance):
    plan, c, rounding = planned(RandomWalkADMM(tolerance=tolerance), neighboring)
    release = plan.releases[-1]
    assert release.sensitivities[0] == pytest.approx(c * rounding + 2 * tolerance, rel=1e-12)
    claimed = math.sqrt(plan.settings.max_contributions) * release.sensitivities[0]
    for observer in plan.facts.observers:
        assert plan.guarantee(observer).mu == pytest.approx(claimed / release.noise_std, rel=1e-9)


@pytest.mark.parametrize("neighboring", RELATIONS)
@pytest.mark.parametrize("tolerance", [0.01, 0.3])
def test_a_stateless_token_moves_by_twice_the_tolerance_more(neighboring, tolerance):
    # The tolerance is relative to what one record moves if its agent had all the weight.
    plan, c, rounding = planned(RandomWalkProximalPoint(tolerance=tolerance), neighboring)
    release, absolute = plan.releases[-1], tolerance / 5
    assert plan.settings.tolerance == pytest.approx(absolute)
    assert release.sensitivities[0] == pytest.approx(c * rounding + 2 * absolute, rel=1e-12)
    claimed = math.sqrt(plan.settings.max_contributions) * release.sensitivities[0]
    assert plan.guarantee("eavesdropper").mu == pytest.approx(claimed / release.noise_std, rel=1e-9)
    token = release.view("peer").pairs.token
    assert token.drift == pytest.approx(2 * absolute / (c * rounding), rel=1e-12)


def test_drift_and_rounding_raise_what_a_walk_costs():
    token = StatelessToken(n_hops=1000, cap=10, drift=1e-4, grid=1e-5)
    mu, cost = 0.2, WalkCost((1.0,), (3.0,))
    excess = 1e-4 + 1e-5 / mu
    exact = 3.0 + 2 * 10 * excess + 1000 * excess**2
    assert token.guarantee(cost, mu).mu == pytest.approx(mu * math.sqrt(exact), rel=1e-12)
    # Never above what all tokens reveal.
    assert token.direct(mu).mu == pytest.approx(mu * math.sqrt(10) * (1 + 1e-4), rel=1e-12)


@pytest.mark.parametrize("neighboring", RELATIONS)
@pytest.mark.parametrize("tolerance", [0.01, 0.3])
def test_a_perturbed_solution_moves_by_twice_the_tolerance_more(neighboring, tolerance):
    plan, c, rounding = planned(PrimalPerturbationADMM(tolerance=tolerance), neighboring)
    release = plan.releases[-1]
    assert release.sensitivities[0] == pytest.approx(c * (rounding + 2 * tolerance), rel=1e-12)
    claimed = math.sqrt(release.times) * release.sensitivities[0] / release.noise_std
    assert plan.guarantee().mu == pytest.approx(claimed, rel=1e-9)


@pytest.mark.parametrize("neighboring", RELATIONS)
def test_solutions_of_tilted_problems_are_covered_for_an_error_in_either_direction(neighboring):
    plan, _, _ = planned(DualPerturbationADMM(), neighboring)
    output = plan.releases[-1]
    assert output.sensitivities[0] >= 2 * plan.settings.tolerance > 0
    assert output.noise_std > 0


@pytest.mark.parametrize("exponent", [0.5, 3.0])
def test_a_gradient_that_is_nearly_constant_costs_what_is_proven(exponent):
    m, kappa = 0.3, 0.01
    determinant = math.log1p(kappa)
    common = {"gradient_ratio": m, "curvature_ratio": kappa}
    rest = 1 - 2 * exponent * kappa
    zero_out = PerturbedObjectiveDP(neighboring="zero_out", **common)
    assert _flat(zero_out, exponent) == pytest.approx(
        max(
            determinant + (1 + exponent) * m**2 / 2,
            m**2 / 2 + exponent * m**2 / (2 * rest) - math.log(rest) / (2 * exponent),
        ),
        rel=1e-12,
    )
    rest = 1 - 4 * exponent * kappa
    replace_one = PerturbedObjectiveDP(neighboring="replace_one", **common)
    # Cauchy-Schwarz: each record at twice the exponent, one in either direction.
    assert _flat(replace_one, exponent) == pytest.approx(
        determinant
        + 2 * m**2
        + exponent * m**2
        + exponent * m**2 / rest
        - math.log(rest) / (4 * exponent),
        rel=1e-12,
    )


def test_a_token_that_floats_cannot_resolve_is_refused():
    model = DPDecentralizedRegressor(
        algorithm=RandomWalkProximalPoint(), epsilon=10.0, delta=1e-12, n_agents=10
    )
    model.plan(n_samples=10**6, n_features=3)
    with pytest.raises(ValueError, match=r"^Got n_samples=1000000000 .* rounding of a token"):
        model.plan(n_samples=10**9, n_features=3)


@pytest.mark.parametrize(
    ("algorithm", "message"),
    [
        (
            PrimalPerturbationADMM(penalty_weight=1e-16),
            r"^Got penalty_weight=1e-16 and tolerance=0.01, expected a larger weight or tolerance:",
        ),
        (
            RandomWalkADMM(step_size=1e14),
            r"^Got step_size=1e\+14 and tolerance=0.01, expected a shorter step or a larger tol",
        ),
        (
            RandomWalkProximalPoint(step_size=1e14),
            r"^Got step_size=1e\+14 and tolerance=0.01, expected a shorter step or a larger tol",
        ),
    ],
)
def test_what_floats_cannot_solve_is_refused_in_terms_of_what_a_user_may_change(algorithm, message):
    with pytest.raises(ValueError, match=message):
        planned(algorithm, "replace_one")


def test_more_steps_than_planned_move_what_averaged_admm_releases_within_its_tolerance(monkeypatch):
    (row,) = (row for row in ROWS if row.id == "averaged-path")
    knobs = {"step_size": 50.0, "clip_norm": 3.0, "tolerance": 0.01}
    X, y = row.data()
    planned = averaged_admm.steps_to_reach
    recorded = record(row, X, y, algorithm=knobs)
    monkeypatch.setattr(
        averaged_admm, "steps_to_reach", lambda *args, **more: 20 * planned(*args, **more)
    )
    found = list(moves(recorded, replay(row, recorded, X, y, algorithm=knobs)))
    assert len(found) == 4
    # In units of the clip each record's solution is that near, on either side of it.
    assert all(move.distance <= 0.01 * 2 / row.n_samples for move in found)
