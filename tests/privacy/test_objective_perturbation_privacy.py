"""Objective perturbation keeps its claim on exact densities, and planted bugs do not."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

import skdpadmm.algorithms._objective_perturbation as perturbation
import skdpadmm.algorithms.blocks._clipped_loss as clipped_loss
from skdpadmm import DPAdmmHuberRegressor, DPAdmmLogisticRegression, DPAdmmRidge
from skdpadmm.algorithms import ObjectivePerturbation, prepared
from skdpadmm.engine import Engine
from skdpadmm.losses import HuberLoss, LogisticLoss, SmoothedHinge, SquaredLoss
from skdpadmm.penalties import NoPenalty
from skdpadmm.privacy import Neighboring
from skdpadmm.protocol import Budget, Facts, Gate, Plan, PlanViolation, Problem
from skdpadmm.records import Rows, declared_coordinates, rounding_factor

BUDGET = Budget(epsilon=1.0, delta=1e-4)
LOSSES = [SquaredLoss(), HuberLoss(0.3), SmoothedHinge(0.5), LogisticLoss()]


class KnownTerm(Gate):
    """Hands out a linear term that a test knows, and lets the solution through without noise."""

    def hidden_term(self, name):
        return self.term

    def release(self, name, value):
        return value.copy()


def make_plan(algorithm, loss, n, relation, budget=BUDGET):
    coordinates = declared_coordinates(
        n_features=1, fit_intercept=False, feature_bounds=None, has_target_scale=False
    )
    facts = Facts(
        n_samples=n,
        n_parameters=1,
        loss=loss,
        penalty=NoPenalty(),
        neighboring=Neighboring(relation),
        row_norm=coordinates.row_norm,
        rounding=rounding_factor(n_samples=n, coordinates=coordinates),
        max_iter=1,
    )
    return algorithm.plan(facts, budget), coordinates


def solve(algorithm, plan, coordinates, x, y, terms):
    """Solutions of the perturbed problem for each linear term."""
    gate = KnownTerm(plan, None)
    rows = Rows(np.asarray(x)[:, None], coordinates)
    solutions = []
    with Engine().running() as engine:
        problem = Problem(rows=rows, target=np.asarray(y), engine=engine)
        for term in terms:
            gate.term = np.array([[term]])
            solutions.append(algorithm.run(plan, problem, gate).parameters[0, 0])
    return np.array(solutions)


def exact_delta(algorithm, plan, coordinates, one, other, epsilon, noise_std=None):
    """Delta of the algorithm as it runs, the larger of both directions.

    The solution w falls with the linear term b, so its density is that of b at b(w), times -b'(w).
    """
    noise_std = noise_std or plan.releases[0].noise_std
    terms = np.linspace(-8.5, 8.5, 1201) * noise_std
    w = [solve(algorithm, plan, coordinates, *data, terms) for data in (one, other)]
    assert all(np.all(np.diff(solution) < 0) for solution in w)
    grid = np.linspace(max(v.min() for v in w), min(v.max() for v in w), 200_001)
    logs = []
    for solution in w:
        b = np.interp(grid, solution[::-1], terms[::-1])
        slope = np.gradient(terms, solution)
        density = np.interp(grid, solution[::-1], np.log(-slope)[::-1])
        logs.append(density - 0.5 * (b / noise_std) ** 2)
    width = (grid[1] - grid[0]) / (noise_std * math.sqrt(2 * math.pi))
    return max(
        float(np.maximum(np.exp(p) - np.exp(epsilon + q), 0).sum()) * width
        for p, q in (logs, logs[::-1])
    )


def data_sets(relation):
    common_x, common_y = [0.6, -0.3, 0.0], [1.0, 1.0, -1.0]
    one = [1.0, *common_x], [1.0, *common_y]
    # A record of zeros has a loss that is constant: it is the zero function to the solver.
    other = ([0.0, *common_x], [1.0, *common_y])
    if relation == "replace_one":
        other = [1.0, *common_x], [-1.0, *common_y]
    return one, other


@pytest.mark.parametrize("relation", ["zero_out", "replace_one"])
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
def test_the_exact_divergence_of_a_run_stays_below_the_claim(loss, relation):
    algorithm = ObjectivePerturbation(clip_norm=0.6, ridge=12.0)
    plan, coordinates = make_plan(algorithm, loss, 4, relation)
    for epsilon in (0.3, 1.0):
        exact = exact_delta(algorithm, plan, coordinates, *data_sets(relation), epsilon)
        # Interpolation of a density with kinks errs by 1e-3.
        assert exact <= plan.releases[0].guarantee.delta(epsilon) * 1.01


def test_the_claim_is_met_by_a_logistic_loss_that_is_not_clipped():
    algorithm = ObjectivePerturbation(clip_norm=5.0, ridge=20.0)
    plan, coordinates = make_plan(algorithm, LogisticLoss(), 2, "zero_out")
    # A target that a long common tilt keeps misclassified makes the gradient as large as it gets.
    one, other = ([1.0, 0.0], [1.0, 1.0]), ([0.0, 0.0], [1.0, 1.0])
    exact = exact_delta(algorithm, plan, coordinates, one, other, 1.0)
    claimed = plan.releases[0].guarantee.delta(1.0)
    assert 0.02 * claimed < exact <= claimed


def saturated(noise=1.0):
    """A hinge that is linear wherever a solution can be: a Gaussian mechanism, almost."""
    loss, algorithm = SmoothedHinge(1e-3), ObjectivePerturbation(clip_norm=0.6, ridge=1e4)
    plan, coordinates = make_plan(algorithm, loss, 4, "replace_one")
    epsilon = BUDGET.epsilon
    std = plan.releases[0].noise_std * noise
    exact = exact_delta(algorithm, plan, coordinates, *data_sets("replace_one"), epsilon, std)
    return exact, plan.guarantee().delta(epsilon)


def test_a_linear_loss_comes_close_to_the_whole_budget():
    exact, claimed = saturated()
    assert 0.7 * claimed < exact <= claimed


def test_half_the_noise_is_caught():
    exact, claimed = saturated(noise=0.5)
    assert exact > 10 * claimed


def test_replace_one_calibrated_as_zero_out_is_caught(monkeypatch):
    monkeypatch.setattr(Neighboring, "sensitivity_factor", 1)
    exact, _ = saturated()
    assert exact > 10 * BUDGET.delta


def test_a_missing_clip_is_caught(monkeypatch):
    algorithm = ObjectivePerturbation(clip_norm=0.1, ridge=12.0)
    plan, coordinates = make_plan(algorithm, SquaredLoss(), 4, "replace_one")
    arguments = algorithm, plan, coordinates, *data_sets("replace_one"), 1.0
    assert exact_delta(*arguments) <= BUDGET.delta
    monkeypatch.setattr(clipped_loss, "clip_derivative", lambda derivative, limit: derivative)
    assert exact_delta(*arguments) > 10 * BUDGET.delta


def test_a_ridge_that_is_weaker_than_planned_is_caught():
    algorithm = ObjectivePerturbation(clip_norm=5.0, ridge=50.0)
    plan, coordinates = make_plan(algorithm, SmoothedHinge(2.0), 2, "zero_out")
    one, other = ([1.0, 0.0], [1.0, 1.0]), ([0.0, 0.0], [1.0, 1.0])
    arguments = algorithm, plan, coordinates, one, other, 1.0
    assert exact_delta(*arguments) <= BUDGET.delta
    weaker = dataclasses.replace(plan.settings, ridge=0.5)
    bug = dataclasses.replace(plan, settings=weaker)
    assert exact_delta(algorithm, bug, *arguments[2:]) > 10 * BUDGET.delta


@pytest.mark.parametrize("conditioned", [False, True])
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
def test_solutions_do_not_depend_on_more_steps_than_planned(loss, conditioned, monkeypatch):
    """The certified distance holds on rows of any size: many more steps move it by no more."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((12, 3)) * 10.0 ** rng.uniform(-2, 2, (12, 1))
    X[0] = [1e300, -1e300, 1e300]
    X[1] = [1e-200, -1e-200, 1e-308]
    y = rng.choice([-1.0, 1.0], 12)
    coordinates = declared_coordinates(
        n_features=3, fit_intercept=True, feature_bounds=None, has_target_scale=False
    )
    facts = Facts(
        n_samples=12,
        n_parameters=4,
        loss=loss,
        penalty=NoPenalty(),
        neighboring=Neighboring.REPLACE_ONE,
        row_norm=coordinates.row_norm,
        rounding=rounding_factor(n_samples=12, coordinates=coordinates),
        max_iter=1,
    )
    algorithm = ObjectivePerturbation()
    choice = "private" if conditioned else None
    facts = prepared(facts, BUDGET, algorithm, coordinates, scale=None, conditioning=choice)
    plan = algorithm.plan(facts, BUDGET)
    more = dataclasses.replace(plan.settings, n_steps=20 * plan.settings.n_steps)

    class Watch(KnownTerm):
        def release(self, name, value):
            self.value = value
            return value

    values = []
    for settings in (plan.settings, more):
        longer = dataclasses.replace(plan, settings=settings)
        gate = Watch(longer, None)
        gate.term = 3 * np.ones((4, 1))
        rows = Rows(X, coordinates)
        if conditioned:
            from skdpadmm.algorithms.preparations._conditioning import basis_of

            matrix = np.diag([0.4, 0.3, 0.05, 0.001])
            rows = rows.in_basis(basis_of(matrix, facts.conditioning), Engine().run)
        with Engine().running() as engine:
            algorithm.run(longer, Problem(rows=rows, target=y, engine=engine), gate)
        values.append(gate.value)
    assert np.isfinite(values).all()
    assert np.linalg.norm(values[0] - values[1]) <= plan.settings.tolerance


def test_the_tolerance_covers_the_rounding_of_the_linear_term_to_the_grid():
    """A lattice of linear terms has minimisers that another data set can not have."""
    algorithm = ObjectivePerturbation()
    plan, coordinates = make_plan(algorithm, LogisticLoss(), 4, "replace_one")
    term = plan.releases[0].noise_std * np.array([0.3, 0.3 + 2.0**-21])
    x, y = data_sets("replace_one")[0]
    unit = 0.7 / (
        plan.settings.ridge * perturbation._bounds(plan.facts, plan.settings, None).curvature
    )
    moved = np.diff(solve(algorithm, plan, coordinates, x, y, term)) / unit
    rounding = plan.releases[0].noise_std * 2.0**-21
    assert 0 < abs(moved[0]) <= rounding
    accuracy = plan.settings.tolerance - rounding
    assert accuracy > 0
    more = dataclasses.replace(plan.settings, n_steps=20 * plan.settings.n_steps)
    exact = dataclasses.replace(plan, settings=more)
    values = [solve(algorithm, p, coordinates, x, y, term[:1])[0] for p in (plan, exact)]
    assert abs(values[0] - values[1]) / unit <= accuracy


ESTIMATORS = [
    DPAdmmLogisticRegression(classes=[0, 1]),
    DPAdmmRidge(),
    DPAdmmHuberRegressor(),
]


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: type(e).__name__)
def test_plans_are_equal_for_neighbours_and_the_trace_is_the_plan(estimator, watch):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((30, 3)), np.arange(30) % 2
    neighbour = X.copy()
    neighbour[0] = [1e300, -1e300, 0.0]
    model = estimator.set_params(algorithm="objective-perturbation")
    with watch() as tap:
        model.fit(X, y)
        model.fit(neighbour, y)
        model.fit(X[::-1], y[::-1])
    assert all(plan == tap.plans[0] for plan in tap.plans)
    assert len({plan.digest() for plan in tap.plans}) == 1
    planned = [(r.name, r.shape) for r in tap.plans[0].releases for _ in range(r.times)]
    assert all(gate.trace == planned for gate in tap.gates)


def test_the_linear_term_is_drawn_once_from_its_own_stream_and_stays_hidden(monkeypatch):
    drawn = []
    honest = Gate.hidden_term

    def spy(self, name):
        drawn.append(honest(self, name))
        return drawn[-1]

    monkeypatch.setattr(Gate, "hidden_term", spy)
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((30, 3)), np.arange(30) % 2
    for _ in range(2):
        model = DPAdmmLogisticRegression(algorithm="objective-perturbation").fit(X, y)
        visible = repr(vars(model)) + str(model.privacy_)
        assert all(repr(float(number)) not in visible for number in drawn[-1].ravel())
    assert len(drawn) == 2
    assert not np.allclose(drawn[0], drawn[1])


def test_a_second_linear_term_or_a_solution_past_the_gate_is_caught(monkeypatch):
    X, y = np.ones((20, 1)), np.arange(20) % 2
    honest = ObjectivePerturbation.run

    def twice(self, plan, problem, gate):
        gate.hidden_term(perturbation.LINEAR_TERM)
        return honest(self, plan, problem, gate)

    monkeypatch.setattr(ObjectivePerturbation, "run", twice)
    with pytest.raises(PlanViolation, match="expected it 1 times"):
        DPAdmmLogisticRegression(algorithm="objective-perturbation").fit(X, y)

    def past(self, plan: Plan, problem, gate):
        release, gate.release = gate.release, lambda name, value: value
        solution = honest(self, plan, problem, gate)
        gate.release = release
        return solution

    monkeypatch.setattr(ObjectivePerturbation, "run", past)
    with pytest.raises(PlanViolation, match="0 times, expected 1"):
        DPAdmmLogisticRegression(algorithm="objective-perturbation").fit(X, y)
