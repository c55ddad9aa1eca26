"""Guarantees of iterates that nobody sees: what they ask of proximal steps and of rounding."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from skdpadmm import DPAdmmGeneralizedLasso, DPAdmmLasso, DPAdmmRidge
from skdpadmm.algorithms import AveragedADMM, GradientADMM, GradientDescent
from skdpadmm.algorithms._certified_solves import loss_bounds, score_rounding
from skdpadmm.noise import GRID_CELL
from skdpadmm.penalties import L1, LinearConstraint
from skdpadmm.records import Rows
from tests.algorithms.runs import BUDGET

HIDDEN = {
    "cyclic": DPAdmmLasso(algorithm=GradientDescent(schedule="cyclic")),
    "last": DPAdmmLasso(algorithm=GradientDescent(guarantee="last")),
    "averaged": DPAdmmRidge(algorithm=AveragedADMM(guarantee="last"), fit_intercept=False),
    "gradient ADMM": DPAdmmLasso(algorithm=GradientADMM()),
    "stopping": DPAdmmLasso(algorithm=GradientADMM(schedule="stopping")),
}
SEEN = {
    "gradient descent": DPAdmmLasso(algorithm=GradientDescent()),
    "averaged": DPAdmmRidge(algorithm=AveragedADMM()),
    "gradient ADMM": DPAdmmLasso(algorithm=GradientADMM(release="path")),
}
# The second feature is in both rows of differences, and outweighs the others.
FAR_APART = ([-1.0, -1e-8, -1.0], [1.0, 1e-8, 1.0])


def plan_of(model, n_samples=2000, n_features=3, **parameters):
    model.set_params(**({"feature_bounds": (-1, 1), "target_bounds": (-1, 1)} | parameters))
    return model.plan(n_samples=n_samples, n_features=n_features)


def shift_of(plan):
    """Shift of a step by rounding, in noise standard deviations, from the plan's own guarantee."""
    release = plan.releases[-1]
    signal = release.sensitivities[0] / release.noise_std
    return release.guarantee.mu / math.sqrt(plan.settings.n_iter) - signal


def test_a_report_names_both_premises_where_nobody_sees_iterates():
    for models, count in ((HIDDEN, 1), (SEEN, 0)):
        for model in models.values():
            lines = plan_of(model).assumptions
            assert sum("non-expansive" in line for line in lines) == count
            assert sum(line.startswith("Nobody s") for line in lines) == count


@pytest.mark.parametrize("knobs", [{"schedule": "cyclic"}, {"guarantee": "last"}])
def test_a_proximal_step_that_is_not_certified_is_refused_before_data(knobs):
    model = DPAdmmGeneralizedLasso(algorithm=GradientDescent(**knobs), alpha=1e-3)
    with pytest.raises(ValueError, match="certified to move no two points apart"):
        plan_of(model, feature_bounds=FAR_APART)
    # In other units, or where iterates are seen, there is nothing to certify.
    plan_of(model, feature_bounds=([-1e-3, -1e5, -1e-4], [1e-3, 1e5, 1e-4]))
    plan_of(model, algorithm=GradientDescent(), feature_bounds=FAR_APART)


def test_units_that_are_found_later_have_to_be_certified_before():
    algorithm = GradientDescent(schedule="cyclic")
    model = DPAdmmGeneralizedLasso(algorithm=algorithm, scale="private")
    facts = plan_of(model, feature_bounds=None).facts
    assert facts.scaling is not None
    # One feature declared: nobody knows what its unit will be beside those of the others.
    bound = np.array([np.inf, 1.0, np.inf])
    mixed = replace(facts.coordinates, lower=-bound, upper=bound)
    with pytest.raises(ValueError, match="certified to move no two points apart"):
        algorithm.plan(replace(facts, coordinates=mixed), BUDGET)


def test_gradient_admm_refuses_steps_that_iterate_unless_they_are_seen():
    joint = LinearConstraint(B=np.array([[1.0, 1.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]))
    facts = replace(plan_of(DPAdmmLasso(algorithm=GradientADMM())).facts, penalty=L1(0.01))
    with pytest.raises(ValueError, match="diagonal B'B"):
        GradientADMM(constraint=joint).plan(facts, BUDGET)
    GradientADMM(constraint=joint, release="path").plan(facts, BUDGET)
    GradientADMM(constraint=LinearConstraint(B=np.diag([1.0, 2.0, 3.0]))).plan(facts, BUDGET)
    for constraint, kinds in ((joint, 0), (None, 3)):
        stream = GradientADMM(schedule="stream", constraint=constraint)
        plan = stream.plan(replace(facts, n_samples=1, is_stream=True), BUDGET)
        assert len(stream.unseen_guarantees(plan, 500)) == kinds


def test_rounding_counts_as_two_cells_and_more_where_arithmetic_needs_it():
    algorithm = GradientDescent(guarantee="last")
    cells = 2 * GRID_CELL * math.sqrt(4)
    usual = plan_of(DPAdmmLasso(algorithm=algorithm))
    assert shift_of(usual) == pytest.approx(cells, rel=1e-6)
    # Scores of features far from zero are rounded more: about 1e6 times as much.
    far = plan_of(DPAdmmLasso(algorithm=algorithm), feature_bounds=(1e6, 1e6 + 1))
    assert shift_of(far) > 1.5 * cells
    # So are proximal steps of differences of high order.
    trend = DPAdmmGeneralizedLasso(algorithm=algorithm, penalty_matrix="trend", alpha=1e-3)
    assert shift_of(plan_of(trend, n_features=40)) > 3 * GRID_CELL * math.sqrt(41)


FAR_AWAY = GradientADMM(constraint=LinearConstraint(c=np.full(3, 1e3)))
ROUNDED = [  # constraints that are badly conditioned, and that lead far from zero
    (DPAdmmGeneralizedLasso(algorithm=GradientADMM(schedule="stopping"), alpha=1e-3), 1e-5),
    (DPAdmmLasso(algorithm=FAR_AWAY), 1.0),
]


@pytest.mark.parametrize(("model", "unit"), ROUNDED)
def test_gradient_admm_counts_the_rounding_of_arithmetic(monkeypatch, model, unit):
    bounds = {"feature_bounds": ([-1.0, -unit, -1.0], [1.0, unit, 1.0])}
    counted = plan_of(model, **bounds).releases[-1].noise_std
    monkeypatch.setattr(GradientADMM, "_arithmetic", lambda *_: 0.0)
    assert counted > plan_of(model, **bounds).releases[-1].noise_std * (1 + 1e-6)


@pytest.mark.parametrize("centre", [0.0, 1e3, 1e7])
def test_the_error_of_scores_has_its_bound_wherever_bounds_are_centred(centre):
    rng, n, p = np.random.default_rng(0), 400, 3
    bounds = (centre - 1, centre + 1)
    plan = plan_of(HIDDEN["cyclic"], n_samples=n, n_features=p, feature_bounds=bounds)
    facts = plan.facts
    X = rng.uniform(*bounds, size=(n, p))
    rows = Rows(X, facts.coordinates)
    parameters = rng.standard_normal(p + 1)
    # The worst parameters let the centre cancel in the score.
    parameters[-1] = 0.0
    computed = rows.scores(0, rows.prepare(parameters))
    fraction = np.vectorize(Fraction, otypes=[object])
    centred = (fraction(X) - fraction(facts.coordinates.offset)) * fraction(rows.weight)[:, None]
    exact = centred @ fraction(parameters[:p])
    error = (fraction(computed) - exact).astype(float)
    bound = loss_bounds(facts.loss, row_norm=facts.row_norm, clip_norm=1e9)
    per_row = score_rounding(facts, bound) / n / bound.curvature * np.linalg.norm(parameters)
    assert np.abs(error).max() <= per_row * facts.row_norm
    # Without the centre the bound would be that of centred rows, which is less than what is found.
    plain = (p + 1 + 16) * 2.0**-52 * np.linalg.norm(parameters) * facts.row_norm
    assert (np.abs(error).max() > plain) == (centre >= 1e3)
