"""Objective perturbation: what is solved, how accurately, and what the plan says of it."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from skdpadmm.algorithms import ObjectivePerturbation
from skdpadmm.algorithms._objective_perturbation import LONGEST_DRAW, _bounds, longest_solution
from skdpadmm.losses import HuberLoss, LogisticLoss, MultinomialLoss, SmoothedHinge, SquaredLoss
from skdpadmm.penalties import L1, Box, NoPenalty, SquaredL2
from skdpadmm.privacy import LossDerivative, compose
from skdpadmm.protocol import Budget, Gate, HiddenTerm
from tests.algorithms import direct_runs as direct
from tests.algorithms.direct_runs import coordinates_of, data_for, facts_for, run

FACTS = facts_for(coordinates_of(3), 40, SquaredLoss(), NoPenalty())


@pytest.fixture
def solve(monkeypatch):
    """Runs with a linear term that a test knows, and no noise on the solution."""

    def solved(algorithm, X, y, *, term=0.0, **around):
        class KnownTerm(Gate):
            def hidden_term(self, name):
                self.value = name
                return np.broadcast_to(term, (self._plan.facts.n_parameters, 1))

            def release(self, name, value):
                assert (self.value, name) == ("linear term", "minimiser")
                self.value = value
                return value

            def close(self):
                pass

        monkeypatch.setattr(direct, "Gate", KnownTerm)
        result = run(algorithm, X, y, **around)
        bounds = _bounds(result.plan.facts, result.plan.settings, None)
        constants = (bounds.gradient_norm, bounds.curvature)
        return result, *constants, result.plan.settings.ridge * bounds.curvature

    return solved


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize(
    ("loss", "penalty", "clip_norm"),
    [
        (SquaredLoss(), SquaredL2(0.05), 50.0), (LogisticLoss(), SquaredL2(0.05), 50.0),
        (SmoothedHinge(0.5), SquaredL2(0.05), 0.5), (SquaredLoss(), L1(0.05), 0.5),
        (SquaredLoss(), Box(-0.2, 0.3), 0.5),
    ],
    ids=repr,
)  # fmt: skip
def test_the_solution_minimises_the_perturbed_objective_within_the_tolerance(
    solve, loss, penalty, clip_norm, fit_intercept
):
    """Sum of clipped losses + n r(w) + lambda / 2 |w|^2 + L b'w, by plain proximal steps."""
    X, y = data_for(loss, n=40)
    A, n = direct.augmented(X, fit_intercept), len(X)
    b = np.random.default_rng(1).normal(size=(A.shape[1], 1)) * 3
    result, length, beta, convexity = solve(
        ObjectivePerturbation(clip_norm=clip_norm, ridge=2.0), X, y, term=b,
        loss=loss, penalty=penalty, fit_intercept=fit_intercept,
    )  # fmt: skip
    # A ridge of the penalty counts as part of lambda, where it is one of all parameters.
    added = convexity - (0.0 if fit_intercept else n * penalty.strong_convexity)
    limits, w = length / np.linalg.norm(A, axis=1), np.zeros(A.shape[1])
    step = 1 / (n * beta + added)
    for _ in range(4000):
        slope = A.T @ np.clip(loss.derivative(A @ w, y), -limits, limits)
        w = w - step * (slope + added * w + length * b[:, 0])
        w[:3] = penalty.prox(w[:3], step * n)
    allowed = result.plan.settings.tolerance * length / convexity
    assert np.linalg.norm(result.solution.parameters[:, 0] - w) <= allowed * (1 + 1e-3)


@pytest.mark.parametrize(
    ("loss", "kind"),
    [
        (SquaredLoss(), LossDerivative.ANY), (HuberLoss(0.5), LossDerivative.ANY),
        (SmoothedHinge(0.5), LossDerivative.ONE_SIGN), (LogisticLoss(), LossDerivative.LOGISTIC),
    ],
)  # fmt: skip
def test_the_plan_composes_a_theorem_for_the_loss_with_the_noise_on_the_solution(loss, kind):
    facts = replace(FACTS, loss=loss)
    plan = ObjectivePerturbation(clip_norm=0.7, ridge=5.0).plan(facts, direct.BUDGET)
    term, release = plan.releases
    assert isinstance(term, HiddenTerm)
    assert term.guarantee.derivative is kind
    assert term.guarantee.curvature_ratio == pytest.approx(1 / 5)
    assert term.guarantee.gradient_ratio == pytest.approx(1 / term.noise_std)
    assert release.sensitivities == (2 * plan.settings.tolerance,)
    assert plan.guarantee() == compose(term.guarantee, release.guarantee)


@pytest.mark.parametrize("loss", [SquaredLoss(), SmoothedHinge(0.5), LogisticLoss()], ids=repr)
def test_no_solution_is_longer_than_its_bound(solve, loss):
    X, y = 10 * np.ones((40, 3)), np.ones(40)  # all records pull one way
    for b in (0.0, -20.0, 20.0):
        algorithm, term = ObjectivePerturbation(clip_norm=0.5, ridge=3.0), np.full((3, 1), b)
        around = {"loss": loss, "penalty": L1(1e-3), "fit_intercept": False, "term": term}
        result, *_ = solve(algorithm, X, y * (1 if b < 0 else -1), **around)
        noise_std = np.linalg.norm(term) / (math.sqrt(3) + LONGEST_DRAW)
        longest = longest_solution(result.plan.facts, result.plan.settings, noise_std)
        assert np.linalg.norm(result.gate.value) <= longest


def test_facts_outside_the_theorem_are_refused():
    for changes, message in (
        ({"loss": MultinomialLoss(3)}, "Got 3 scores.*expected one"),
        ({"row_norm": math.inf}, "expected a finite bound"),
        ({"penalty": Box(0.5, 1.0)}, "expected a penalty that is 0 at 0"),
    ):
        with pytest.raises(ValueError, match=message):
            ObjectivePerturbation().plan(replace(FACTS, **changes), direct.BUDGET)
    with pytest.raises(ValueError, match="to cover rounding errors"):
        ObjectivePerturbation(ridge=6.0).plan(replace(FACTS, n_samples=10**9), direct.BUDGET)
    logistic = replace(FACTS, loss=LogisticLoss(), n_samples=10**6)
    assert ObjectivePerturbation().plan(logistic, direct.BUDGET).settings.tolerance < 1


@pytest.mark.parametrize("loss", [SquaredLoss(), SmoothedHinge(0.5), LogisticLoss()], ids=repr)
def test_a_ridge_that_no_noise_makes_up_for_is_refused_with_the_way_out(loss):
    facts, budget = replace(FACTS, loss=loss), Budget(epsilon=0.1, delta=1e-5)
    with pytest.raises(ValueError, match=r"Got ridge=1 at epsilon=0.1.*more than 20\."):
        ObjectivePerturbation(ridge=1.0).plan(facts, budget)
    assert ObjectivePerturbation(ridge=20.0).plan(facts, budget).guarantee().delta(0.1) <= 1e-5
