"""Averaged ADMM and objective perturbation: what they solve for all records at once, how well."""

import math
from dataclasses import replace

import numpy as np
import pytest

from skdpadmm import DPAdmmLogisticRegression
from skdpadmm.algorithms import AveragedADMM, ObjectivePerturbation
from skdpadmm.algorithms import _certified_solves as descent
from skdpadmm.algorithms._certified_solves import loss_bounds, settled_bounds
from skdpadmm.algorithms._objective_perturbation import LONGEST_DRAW, longest_solution
from skdpadmm.losses import HuberLoss, LogisticLoss, SmoothedHinge, SquaredLoss, clip_derivative
from skdpadmm.penalties import L1, ElasticNet, SquaredL2
from skdpadmm.privacy import LossDerivative, compose
from skdpadmm.protocol import Budget, Gate
from tests.algorithms import runs as direct
from tests.algorithms.runs import close, coordinates_of, data_for, facts_for, run

LOSSES = [SquaredLoss(), HuberLoss(0.5), SmoothedHinge(0.5), LogisticLoss()]


class GivenGate(Gate):
    """Hands out the linear term and the states that a test gives, and keeps what came in."""

    term, states = 0.0, None

    def hidden_term(self, name):
        return np.broadcast_to(self.term, (self._plan.facts.n_parameters, 1))

    def release(self, name, value):
        self.came.append(value)
        return value if self.states is None else self.states[len(self.came) - 1]

    def close(self):
        pass


def given(**what):
    return {"gate_class": type("Given", (GivenGate,), {"came": [], **what})}


# Averaged ADMM.


@pytest.mark.parametrize("loss", [SquaredLoss(), LogisticLoss()], ids=repr)
@pytest.mark.parametrize("hidden", [False, True])
@pytest.mark.parametrize("lam", [0.3, 1.0])
def test_an_iteration_is_that_of_the_paper_on_huberised_losses(loss, hidden, lam):
    (X, y), gamma, clip, l1, l2 = data_for(loss, n=15), 0.8, 0.4, 0.02, 0.1
    A, ridge = direct.augmented(X, not hidden), l2 if hidden else 0.0
    d, left = A.shape[1], ElasticNet(l1, l2 - ridge)
    noise, clip_norm = 0.05 * np.random.default_rng(1).normal(size=(5, d, 1)), clip * math.sqrt(d)
    u, path, unit = np.zeros((d, 1)), [], gamma * clip_norm / (1 + gamma * ridge)
    for k in range(5):
        z = direct.shrunk(u, left, gamma, 3)
        x = direct.exact_prox(loss, A, y, gamma, 2 * z - u, clip_norm=clip_norm, ridge=ridge)
        u = u + 2 * lam * (x - z) + 2 * lam * unit * noise[k]
        path.append(u)
    algorithm = AveragedADMM(
        step_size=gamma, clip_norm=clip, relaxation=lam, guarantee="last" if hidden else "path",
        tolerance=1e-6, tail_fraction="auto" if hidden else 0.4,
    )  # fmt: skip
    around = {"penalty": ElasticNet(l1, l2), "fit_intercept": not hidden, "noise": noise}
    result = run(algorithm, X, y, loss=loss, **around)
    tail = np.mean(path[-1 if hidden else -2 :], axis=0)
    close(result.solution.parameters, direct.shrunk(tail, left, gamma, 3), 1e-6)
    assert result.plan.releases[0].is_hidden == hidden


@pytest.mark.parametrize("loss", [SquaredLoss(), HuberLoss(0.3), LogisticLoss()], ids=repr)
@pytest.mark.parametrize("lam", [0.5, 1.0])
def test_an_update_contracts_as_fast_as_the_last_iterate_is_accounted_for(loss, lam):
    (X, y), rng = data_for(loss, n=40), np.random.default_rng(0)
    states = rng.normal(size=(9, 3, 1)) * 10 ** rng.uniform(-1, 1, size=(9, 1, 1))
    algorithm = AveragedADMM(
        step_size=0.7, clip_norm=0.3, relaxation=lam, guarantee="last", tolerance=1e-6
    )
    around = {"penalty": ElasticNet(0.05, 0.2), "fit_intercept": False, "max_iter": 9}
    result = run(algorithm, X, y, loss=loss, **around, **given(states=states))
    images, constant = result.gate.came[1:], result.plan.settings.contraction
    assert constant < 1
    for i in range(8):
        for j in range(i):
            apart = np.linalg.norm(states[i] - states[j])
            assert np.linalg.norm(images[i] - images[j]) <= constant * apart * (1 + 1e-9) + 1e-6


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
@pytest.mark.parametrize("clip_norm", [0.01, 0.3, 0.9, 3.0])
def test_bounds_of_a_clipped_loss_hold_on_a_grid(loss, clip_norm):
    bounds = loss_bounds(loss, row_norm=1.4, clip_norm=clip_norm)
    scores = np.linspace(-8, 8, 40_001)
    for norm in (0.3, 1.0, 1.4):
        for y in (-1.0, 1.0):
            slope = loss.derivative(scores.copy(), np.full_like(scores, y))
            slope = clip_derivative(slope, bounds.gradient_norm / norm)
            assert np.abs(slope).max() * norm <= bounds.gradient_norm * (1 + 1e-12)
            bend = np.diff(slope).max() / (scores[1] - scores[0])
            assert bend * norm**2 <= bounds.curvature * (1 + 1e-3)


def test_rows_too_long_for_floats_in_a_released_basis_are_scaled_down(monkeypatch):
    bounds = []

    def spy(clip, facts, problem):
        bounds.append(clip.row_norm / problem.rows.typical_norm)
        return gradient(clip, facts, problem)

    gradient = descent.LossBounds.gradient
    monkeypatch.setattr(descent.LossBounds, "gradient", spy)
    X, y = data_for(LogisticLoss(), n=400)
    for tolerance, is_shorter in ((1e-6, True), (0.01, False)):
        model = DPAdmmLogisticRegression(
            algorithm=AveragedADMM(step_size=100.0, tolerance=tolerance), epsilon=10.0, max_iter=2,
            feature_bounds=(-1, 1), conditioning="private", random_state=0,
        ).fit(X, y)  # fmt: skip
        assert (bounds[-1] < 1.99) == is_shorter
        assert model.privacy_.epsilon() == 10.0


# Objective perturbation.


PERTURBED = [
    (SquaredLoss(), SquaredL2(0.05), 50.0), (LogisticLoss(), SquaredL2(0.05), 50.0),
    (SmoothedHinge(0.5), SquaredL2(0.05), 0.5), (SquaredLoss(), L1(0.05), 0.5),
    (HuberLoss(0.5), L1(0.1), 0.5), (SquaredLoss(), ElasticNet(0.05, 0.5), 50.0),
]  # fmt: skip


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize(("loss", "penalty", "clip_norm"), PERTURBED, ids=repr)
def test_the_solution_minimises_the_perturbed_objective_within_the_tolerance(
    loss, penalty, clip_norm, fit_intercept
):
    """Sum of clipped losses + n r(w) + lambda / 2 |w|^2 + L b'w, by plain proximal steps."""
    X, y = data_for(loss, n=40)
    A, n = direct.augmented(X, fit_intercept), len(X)
    b = np.random.default_rng(1).normal(size=(A.shape[1], 1)) * 3
    algorithm = ObjectivePerturbation(clip_norm=clip_norm, ridge=2.0)
    around = {"penalty": penalty, "fit_intercept": fit_intercept} | given(term=b)
    result = run(algorithm, X, y, loss=loss, **around)
    settings = result.plan.settings
    bounds = settled_bounds(result.plan.facts, settings)
    length, convexity = bounds.gradient_norm, settings.ridge * bounds.curvature
    # A ridge of the penalty counts as part of lambda, where it is one of all parameters.
    added = convexity - (0.0 if fit_intercept else n * penalty.strong_convexity)
    limits, w = length / np.linalg.norm(A, axis=1), np.zeros(A.shape[1])
    step = 1 / (n * bounds.curvature + added)
    for _ in range(4000):
        slope = A.T @ np.clip(loss.derivative(A @ w, y), -limits, limits)
        w = w - step * (slope + added * w + length * b[:, 0])
        w[:3] = penalty.prox(w[:3], step * n)
    away = np.linalg.norm(result.solution.parameters[:, 0] - w)
    assert away <= settings.tolerance * length / convexity * (1 + 1e-3)
    # No draw makes a solution longer than the bound that rounding is accounted with.
    noise_std = np.linalg.norm(b) / (math.sqrt(len(b)) + LONGEST_DRAW)
    longest = longest_solution(result.plan.facts, settings, noise_std)
    assert np.linalg.norm(result.gate.came[0]) <= longest


@pytest.mark.parametrize(
    ("loss", "kind"), zip(LOSSES, ["ANY", "ANY", "ONE_SIGN", "LOGISTIC"], strict=True)
)
def test_the_plan_composes_a_theorem_for_the_loss_with_the_noise_on_the_solution(loss, kind):
    facts = facts_for(coordinates_of(3), 40, loss)
    plan = ObjectivePerturbation(clip_norm=0.7, ridge=5.0).plan(facts, direct.BUDGET)
    term, release = plan.releases
    (guarantee,) = term.view().guarantees
    assert guarantee.derivative is LossDerivative[kind]
    assert guarantee.curvature_ratio == pytest.approx(1 / 5)
    assert guarantee.gradient_ratio == pytest.approx(1 / term.noise_std)
    assert release.sensitivities == (2 * plan.settings.tolerance,)
    assert plan.guarantee() == compose(term.guarantee, release.guarantee)
    # A ridge that no noise makes up for, and records that floats cannot add up.
    with pytest.raises(ValueError, match=r"Got ridge=1 at epsilon=0.1.*more than 20\."):
        ObjectivePerturbation(ridge=1.0).plan(facts, Budget(epsilon=0.1, delta=1e-5))
    ObjectivePerturbation(ridge=20.0).plan(facts, Budget(epsilon=0.1, delta=1e-5))
    with pytest.raises(ValueError, match="to cover rounding errors"):
        ObjectivePerturbation(ridge=6.0).plan(replace(facts, n_samples=10**12), direct.BUDGET)


# A fixed number of accelerated steps ends within the certified distance of the minimiser.

ATTACKS = {  # directions of an error, given how far away from the minimiser an iterate is
    "alternating": lambda away, call: (-1) ** call * np.eye(4)[0],
    "outward": lambda away, call: -away,
    "inward": lambda away, call: away,
    "turned": lambda away, call: np.roll(away, 1),
    "random": lambda away, call: np.random.default_rng(call).standard_normal(4),
}


@pytest.mark.parametrize("relative", [False, True])
@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("kappa", [1.0, 1.5, 30.0, 3000.0])
def test_errors_of_the_gradient_are_covered_whatever_their_direction(attack, kappa, relative):
    bends, goal = np.geomspace(1.0, kappa, 4), np.random.default_rng(0).standard_normal(4)
    constants = {"strong_convexity": 1.0, "smoothness": kappa}
    name, start = "relative_error" if relative else "gradient_error", float(np.linalg.norm(goal))
    for error in (0.0, 0.125, 0.01) if relative else (1e-6, 1e-2, 1.0):
        for n_steps in (0, 1, 2, 5, 30, 300):
            calls = []

            def gradient(w, error=error, calls=calls):
                calls.append(w)
                size = np.linalg.norm(w - goal)
                direction = ATTACKS[attack]((w - goal) / max(size, 1e-300), len(calls))
                direction = direction / max(np.linalg.norm(direction), 1e-300)
                return bends * (w - goal) + error * (size if relative else 1.0) * direction

            found = descent.accelerated_gradient(gradient, np.zeros(4), n_steps, **constants)
            bound = descent.certified_distance(
                n_steps, **constants, initial_distance=start, **{name: error}
            )
            assert len(calls) == n_steps
            assert np.linalg.norm(found - goal) <= bound + 1e-14


def test_the_floor_covers_the_rounding_of_a_long_run_in_single_steps():
    # Far from the origin each step is rounded to units in the last place of the start.
    bends, goal = np.geomspace(1.0, 100.0, 3), 1e8 + np.array([0.1, 0.2, 0.3])
    constants = {"strong_convexity": 1.0, "smoothness": 100.0}
    found = descent.accelerated_gradient(
        lambda w: bends * (w - goal), np.full(3, 1e8), 2000, **constants
    )
    # Steps and gradients are rounded relative to the length of an iterate.
    rounding = descent.step_rounding(100.0) + 100.0 * 2.0**-52
    error = rounding * float(np.linalg.norm(goal))
    errors = {"gradient_error": error, "relative_error": rounding}
    bound = descent.certified_distance(2000, **constants, initial_distance=1.0, **errors)
    assert np.linalg.norm(found - goal) <= bound


@pytest.mark.parametrize("kappa", [1.0, 1.7, 1e3, 1e8])
@pytest.mark.parametrize("error", [0.0, 1e-16, 1e-13])
def test_the_steps_to_a_tolerance_are_the_fewest_and_none_below_the_rounding(kappa, error):
    constants = {"strong_convexity": 1.0, "smoothness": kappa, "gradient_error": error}
    for start, tolerance in ((1e-6, 1e-12), (1.0, 1e-6), (1e6, 1e-9), (1.0, 1e3)):
        constants["initial_distance"] = start
        n_steps = descent.steps_to_reach(tolerance, **constants)
        assert descent.certified_distance(n_steps, **constants) <= tolerance
        assert n_steps <= 1 or descent.certified_distance(n_steps - 1, **constants) > tolerance
    if error:
        floor = descent.certified_distance(10**6, **constants)
        with pytest.raises(ValueError, match=r"expected more than .*what rounding leaves"):
            descent.steps_to_reach(floor / 2, **constants)
