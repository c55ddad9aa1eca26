"""Objective perturbation: what is solved, how accurately, and what the plan says of it."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit
from sklearn.base import clone
from sklearn.linear_model import ElasticNet as SklearnElasticNet
from sklearn.linear_model import LogisticRegression, Ridge

from skdpadmm import (
    DPAdmmElasticNet,
    DPAdmmHuberRegressor,
    DPAdmmLasso,
    DPAdmmLinearSVC,
    DPAdmmLogisticRegression,
    DPAdmmRidge,
)
from skdpadmm.algorithms import ObjectivePerturbation, resolve_algorithm
from skdpadmm.algorithms._objective_perturbation import LONGEST_DRAW, longest_solution
from skdpadmm.engine import Engine
from skdpadmm.losses import HuberLoss, LogisticLoss, MultinomialLoss, SmoothedHinge, SquaredLoss
from skdpadmm.penalties import L1, Box, ElasticNet, NoPenalty, SquaredL2
from skdpadmm.privacy import LossDerivative, Neighboring, compose
from skdpadmm.protocol import Budget, Facts, Gate, HiddenTerm, Problem
from skdpadmm.records import Rows, declared_coordinates

BUDGET = Budget(epsilon=1.0, delta=1e-5)


class KnownTerm(Gate):
    """Hands out a linear term that a test knows, and lets the solution through without noise."""

    def __init__(self, plan, term):
        super().__init__(plan, None)
        self.term, self.passed = term, []

    def hidden_term(self, name):
        self.passed.append(name)
        return self.term

    def release(self, name, value):
        self.passed.append(name)
        self.value = value
        return value


def problem_data(loss, *, n=40, p=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(n, p))
    scores = X @ rng.normal(size=p) + 0.3
    if isinstance(loss, LogisticLoss | SmoothedHinge):
        return X, np.where(rng.random(n) < expit(2 * scores), 1.0, -1.0)
    return X, np.clip(scores + 0.1 * rng.normal(size=n), -3, 3)


def make_facts(X, loss, penalty, fit_intercept=True, relation="replace_one"):
    coordinates = declared_coordinates(
        n_features=X.shape[1],
        fit_intercept=fit_intercept,
        feature_bounds=None,
        has_target_scale=False,
    )
    facts = Facts(
        n_samples=len(X),
        n_parameters=coordinates.n_parameters,
        loss=loss,
        penalty=penalty,
        neighboring=Neighboring(relation),
        row_norm=coordinates.row_norm,
        rounding=1.0,
        max_iter=100,
        penalty_curvature=0.0 if fit_intercept else penalty.strong_convexity,
    )
    return facts, coordinates


def run(algorithm, X, y, *, loss, penalty, fit_intercept=True, term=0.0):
    facts, coordinates = make_facts(X, loss, penalty, fit_intercept)
    plan = algorithm.plan(facts, BUDGET)
    gate = KnownTerm(plan, np.broadcast_to(term, (facts.n_parameters, 1)))
    with Engine().running() as engine:
        problem = Problem(rows=Rows(X, coordinates), target=y, engine=engine)
        solution = algorithm.run(plan, problem, gate)
    assert gate.passed == ["linear term", "minimiser"]
    return solution.parameters[:, 0], plan, gate


def absolute_constants(plan):
    """L, beta and lambda of a run that is not conditioned."""
    from skdpadmm.algorithms._objective_perturbation import _bounds

    bounds = _bounds(plan.facts, plan.settings, None)
    return bounds.gradient_norm, bounds.curvature, plan.settings.ridge * bounds.curvature


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("loss", [SquaredLoss(), LogisticLoss(), SmoothedHinge(0.5)])
def test_the_solution_minimises_the_objective_as_documented(loss, fit_intercept):
    X, y = problem_data(loss)
    A = np.column_stack([X, np.ones(len(X))]) if fit_intercept else X
    p, penalty = 3, SquaredL2(0.05)
    b = np.random.default_rng(1).normal(size=(A.shape[1], 1)) * 3
    found, plan, _ = run(
        ObjectivePerturbation(clip_norm=50.0, ridge=2.0), X, y,
        loss=loss, penalty=penalty, fit_intercept=fit_intercept, term=b,
    )  # fmt: skip
    length, _, convexity = absolute_constants(plan)
    added = convexity - (0.0 if fit_intercept else len(X) * 0.05)

    def objective(w):
        slopes = loss.derivative(A @ w, y)
        coef = np.concatenate([w[:p], 0 * w[p:]])
        value = loss.value(A @ w, y).sum() + len(X) * 0.025 * coef @ coef
        value += added / 2 * w @ w + length * b[:, 0] @ w
        return value, A.T @ slopes + len(X) * 0.05 * coef + added * w + length * b[:, 0]

    best = minimize(objective, 0 * found, jac=True, method="BFGS", options={"gtol": 1e-10}).x
    unit = length / convexity
    assert np.linalg.norm(found - best) <= plan.settings.tolerance * unit * (1 + 1e-3)


@pytest.mark.parametrize(("l1", "l2"), [(0.0, 0.5), (0.05, 0.5)])
def test_without_a_linear_term_a_strong_penalty_gives_scikit_learns_optimum(l1, l2):
    """The penalty provides all of the ridge, so that none is added."""
    X, y = problem_data(SquaredLoss())
    algorithm = ObjectivePerturbation(clip_norm=1e3, ridge=1e-3)
    found, plan, _ = run(
        algorithm, X, y, loss=SquaredLoss(), penalty=ElasticNet(l1, l2), fit_intercept=False
    )
    assert absolute_constants(plan)[2] == pytest.approx(len(X) * l2, rel=1e-5)
    if l1:
        model = SklearnElasticNet(
            alpha=l1 + l2, l1_ratio=l1 / (l1 + l2), fit_intercept=False, tol=1e-14
        )
    else:
        model = Ridge(alpha=len(X) * l2, fit_intercept=False)
    length, _, convexity = absolute_constants(plan)
    accuracy = plan.settings.tolerance * length / convexity
    np.testing.assert_allclose(found, model.fit(X, y).coef_, atol=accuracy + 1e-6)


def test_without_a_linear_term_a_logistic_regression_is_scikit_learns():
    X, y = problem_data(LogisticLoss(), n=200)
    found, plan, _ = run(
        ObjectivePerturbation(clip_norm=10.0, ridge=1e-3), X, y,
        loss=LogisticLoss(), penalty=SquaredL2(0.2), fit_intercept=False,
    )  # fmt: skip
    model = LogisticRegression(C=1 / (200 * 0.2), fit_intercept=False, tol=1e-12).fit(X, y)
    length, _, convexity = absolute_constants(plan)
    accuracy = plan.settings.tolerance * length / convexity
    np.testing.assert_allclose(found, model.coef_[0], atol=accuracy + 1e-6)


@pytest.mark.parametrize("penalty", [L1(0.05), Box(-0.2, 0.3)], ids=["l1", "box"])
def test_a_penalty_that_is_not_smooth_is_solved_within_the_tolerance(penalty):
    X, y = problem_data(SquaredLoss())
    b = np.random.default_rng(2).normal(size=(3, 1))
    algorithm = ObjectivePerturbation(clip_norm=0.5, ridge=3.0)
    keywords = {"loss": SquaredLoss(), "penalty": penalty, "fit_intercept": False, "term": b}
    found, plan, _ = run(algorithm, X, y, **keywords)
    length, beta, convexity = absolute_constants(plan)
    limits = length / np.linalg.norm(X, axis=1)
    step, w = 1 / (len(X) * beta + convexity), np.zeros(3)
    for _ in range(20_000):
        slope = X.T @ np.clip(X @ w - y, -limits, limits) + convexity * w + length * b[:, 0]
        w = penalty.prox(w - step * slope, step * len(X))
    assert np.linalg.norm(found - w) <= plan.settings.tolerance * length / convexity * (1 + 1e-6)


@pytest.mark.parametrize(
    ("loss", "kind"),
    [
        (SquaredLoss(), LossDerivative.ANY),
        (HuberLoss(0.5), LossDerivative.ANY),
        (SmoothedHinge(0.5), LossDerivative.ONE_SIGN),
        (LogisticLoss(), LossDerivative.LOGISTIC),
    ],
)
def test_the_plan_composes_a_theorem_for_the_loss_with_the_noise_on_the_solution(loss, kind):
    facts, _ = make_facts(problem_data(loss)[0], loss, NoPenalty())
    plan = ObjectivePerturbation(clip_norm=0.7, ridge=5.0).plan(facts, BUDGET)
    term, release = plan.releases
    assert isinstance(term, HiddenTerm)
    assert term.guarantee.derivative is kind
    assert term.guarantee.curvature_ratio == pytest.approx(1 / 5)
    assert term.guarantee.gradient_ratio == pytest.approx(1 / term.noise_std)
    assert release.sensitivities == (2 * plan.settings.tolerance,)
    assert plan.guarantee() == compose(term.guarantee, release.guarantee)
    assert 0.9e-5 <= plan.guarantee().delta(1.0) <= 1e-5


def test_a_stronger_ridge_or_zero_out_needs_less_noise():
    X, _ = problem_data(SquaredLoss())
    noise = {}
    for ridge in (2.0, 200.0):
        for relation in ("replace_one", "zero_out"):
            facts, _ = make_facts(X, SquaredLoss(), NoPenalty(), relation=relation)
            plan = ObjectivePerturbation(ridge=ridge).plan(facts, BUDGET)
            noise[ridge, relation] = plan.releases[0].noise_std
    for relation in ("replace_one", "zero_out"):
        assert noise[200.0, relation] < noise[2.0, relation]
    for ridge in (2.0, 200.0):
        ratio = noise[ridge, "replace_one"] / noise[ridge, "zero_out"]
        assert ratio == pytest.approx(2, rel=0.1)


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ({"clip_norm": 0.0}, "Got clip_norm=0.0"),
        ({"ridge": -1.0}, "Got ridge=-1.0"),
        ({"ridge": "much"}, "Got ridge='much'"),
        ({"row_bound": 0}, "Got row_bound=0"),
    ],
)
def test_knobs_outside_their_range_are_refused(knobs, message):
    facts, _ = make_facts(problem_data(SquaredLoss())[0], SquaredLoss(), NoPenalty())
    with pytest.raises(ValueError, match=message):
        ObjectivePerturbation(**knobs).plan(facts, BUDGET)


def test_facts_outside_the_theorem_are_refused():
    facts, _ = make_facts(problem_data(SquaredLoss())[0], SquaredLoss(), NoPenalty())
    for changes, message in (
        ({"loss": MultinomialLoss(3)}, "Got 3 scores.*expected one"),
        ({"row_norm": math.inf}, "expected a finite bound"),
        ({"unit": "agent"}, "expected 'record'"),
        ({"penalty": Box(0.5, 1.0)}, "expected a penalty that is 0 at 0"),
    ):
        with pytest.raises(ValueError, match=message):
            ObjectivePerturbation().plan(replace(facts, **changes), BUDGET)


@pytest.mark.parametrize("loss", [SquaredLoss(), SmoothedHinge(0.5), LogisticLoss()])
def test_no_solution_is_longer_than_its_bound(loss):
    X, y = 10 * np.ones((40, 3)), np.ones(40)  # all records pull one way
    for b in (0.0, -20.0, 20.0):
        term = np.full((3, 1), b)
        _, plan, gate = run(
            ObjectivePerturbation(clip_norm=0.5, ridge=3.0), X, y * (1 if b < 0 else -1),
            loss=loss, penalty=L1(1e-3), fit_intercept=False, term=term,
        )  # fmt: skip
        noise_std = np.linalg.norm(term) / (math.sqrt(3) + LONGEST_DRAW)
        assert np.linalg.norm(gate.value) <= longest_solution(plan.facts, plan.settings, noise_std)


def test_more_records_than_floats_can_add_up_for_are_refused():
    facts, _ = make_facts(problem_data(SquaredLoss())[0], SquaredLoss(), NoPenalty())
    with pytest.raises(ValueError, match="to cover rounding errors"):
        ObjectivePerturbation(ridge=6.0).plan(replace(facts, n_samples=10**9), BUDGET)
    logistic = replace(facts, loss=LogisticLoss(), n_samples=10**6)
    assert ObjectivePerturbation().plan(logistic, BUDGET).settings.tolerance < 1


@pytest.mark.parametrize("loss", [SquaredLoss(), SmoothedHinge(0.5), LogisticLoss()])
def test_a_ridge_that_no_noise_makes_up_for_is_refused_with_the_way_out(loss):
    facts, _ = make_facts(problem_data(loss)[0], loss, NoPenalty())
    budget = Budget(epsilon=0.1, delta=1e-5)
    with pytest.raises(ValueError, match=r"Got ridge=1 at epsilon=0.1.*more than 20\."):
        ObjectivePerturbation(ridge=1.0).plan(facts, budget)
    assert ObjectivePerturbation(ridge=20.0).plan(facts, budget).guarantee().delta(0.1) <= 1e-5


@pytest.mark.filterwarnings("ignore:Got delta")
@pytest.mark.parametrize("shape", [(1, 1), (2, 1), (3, 5)])
def test_degenerate_sizes_give_finite_models(shape):
    rng = np.random.default_rng(0)
    X, y = rng.uniform(-1, 1, shape), rng.uniform(-1, 1, shape[0])
    model = DPAdmmRidge(algorithm="objective-perturbation").fit(X, y)
    assert np.isfinite(model.coef_).all()


@pytest.mark.parametrize("conditioning", ["private", None])
@pytest.mark.parametrize(
    "estimator",
    [
        DPAdmmElasticNet(alpha=1e-3, target_bounds=(-3, 3)),
        DPAdmmHuberRegressor(alpha=1e-3, target_bounds=(-3, 3)),
        DPAdmmLasso(alpha=1e-3, target_bounds=(-3, 3)),
        DPAdmmLinearSVC(classes=[0, 1]),
        DPAdmmLogisticRegression(classes=[0, 1]),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
def test_estimators_learn_with_it_by_name(estimator, conditioning):
    assert isinstance(resolve_algorithm("objective-perturbation"), ObjectivePerturbation)
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (3000, 3))
    scores = X @ [1.0, -1.0, 0.5]
    model = clone(estimator).set_params(
        algorithm="objective-perturbation", feature_bounds=(-1, 1), epsilon=4.0, random_state=0,
        conditioning=conditioning,
    )  # fmt: skip
    y = (scores > 0).astype(int) if hasattr(model, "classes") else scores + 0.1
    assert model.fit(X, y).score(X, y) > 0.9
    assert "perturbed objective" in str(model.privacy_)
