"""Averaged ADMM without noise and with known noise: what it computes and where it goes."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit
from sklearn.base import clone
from sklearn.linear_model import ElasticNet as SklearnElasticNet
from sklearn.linear_model import LogisticRegression

from skdpadmm import DPAdmmElasticNet, DPAdmmLasso, DPAdmmLogisticRegression, DPAdmmRidge
from skdpadmm.algorithms import AveragedADMM, resolve_algorithm
from skdpadmm.algorithms._averaged_admm import remaining_prox
from skdpadmm.algorithms.blocks._clipped_loss import loss_bounds
from skdpadmm.engine import Engine
from skdpadmm.losses import HuberLoss, LogisticLoss, MultinomialLoss, SmoothedHinge, SquaredLoss
from skdpadmm.penalties import L1, ElasticNet, NoPenalty, SquaredL2
from skdpadmm.privacy import Neighboring
from skdpadmm.protocol import Budget, Facts, Gate, HiddenPath, Problem
from skdpadmm.records import Rows, declared_coordinates

WIDE_OPEN = 1e3


@dataclass
class KnownNoise:
    """Adds noise that a test knows, none by default, and remembers the values before it."""

    noise: np.ndarray | None = None
    simulation: bool = True
    values: list = field(default_factory=list)

    def add_gaussian(self, value, scale, stream):
        self.values.append(value)
        return value if self.noise is None else value + self.noise[len(self.values) - 1]


def problem_data(loss, *, n=40, p=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(n, p))
    scores = X @ rng.normal(size=(p, loss.n_outputs)) + 0.3
    if isinstance(loss, MultinomialLoss):
        return X, (scores + rng.gumbel(size=scores.shape)).argmax(axis=1)
    if isinstance(loss, LogisticLoss | SmoothedHinge):
        return X, np.where(rng.random(n) < expit(2 * scores[:, 0]), 1.0, -1.0)
    return X, np.clip(scores[:, 0] + 0.1 * rng.normal(size=n), -3, 3)


def make_facts(X, loss, penalty, max_iter, fit_intercept=True, relation="replace_one"):
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
        max_iter=max_iter,
        penalty_curvature=0.0 if fit_intercept else penalty.strong_convexity,
    )
    return facts, coordinates


def run(algorithm, X, y, *, loss, penalty, max_iter, fit_intercept=True, noise=None):
    """Run an algorithm without an estimator around it; targets are in public coordinates."""
    facts, coordinates = make_facts(X, loss, penalty, max_iter, fit_intercept)
    plan = algorithm.plan(facts, Budget(epsilon=1.0, delta=1e-5))
    source = noise or KnownNoise()
    gate = Gate(plan, source)
    with Engine().running() as engine:
        problem = Problem(rows=Rows(X, coordinates), target=y, engine=engine)
        solution = algorithm.run(plan, problem, gate)
    gate.close()
    return solution, plan, source


def augmented(X, fit_intercept):
    return np.column_stack([X, np.ones(len(X))]) if fit_intercept else X


def clipped_mean_loss(loss, A, y, clip_norm):
    """Value and gradient of the mean of Huberised losses, written out."""
    limits = clip_norm / np.linalg.norm(A, axis=1)

    def both(w):
        t = A @ w
        if isinstance(loss, SquaredLoss):
            r = t - y
            inner = np.minimum(np.abs(r), limits)
            return np.mean(inner * (np.abs(r) - inner / 2)), A.T @ np.clip(
                r, -limits, limits
            ) / len(y)
        # A logistic loss whose derivative stops at -limit: linear beyond the margin where it does.
        margin = y * t
        least = np.minimum(limits, 1 - 1e-16)
        corner = np.where(limits < 1, np.log((1 - least) / limits), -np.inf)
        bent = np.maximum(margin, corner)
        value = np.logaddexp(0, -bent) + np.minimum(limits, 1) * (bent - margin)
        slope = -y * np.minimum(expit(-margin), limits)
        return np.mean(value), A.T @ slope / len(y)

    return both


def exact_prox(loss, A, y, clip_norm, ridge, gamma, v):
    both = clipped_mean_loss(loss, A, y, clip_norm)

    def objective(w):
        value, gradient = both(w)
        return (
            value + ridge / 2 * w @ w + np.sum((w - v) ** 2) / (2 * gamma),
            gradient + ridge * w + (w - v) / gamma,
        )

    w, step = v, 1 / (1 / gamma + ridge + (A**2).sum(axis=1).max())
    for _ in range(20_000):
        move = step * objective(w)[1]
        w = w - move
        if np.abs(move).max() < 1e-16:
            break
    return w


def soft(v, step, l1, l2, p):
    w = v.copy()
    w[:p] = np.sign(v[:p]) * np.maximum(np.abs(v[:p]) - step * l1, 0) / (1 + step * l2)
    return w


@pytest.mark.parametrize("loss", [SquaredLoss(), LogisticLoss()], ids=["squared", "logistic"])
@pytest.mark.parametrize("guarantee", ["path", "last"])
@pytest.mark.parametrize("lam", [0.3, 0.5, 1.0])
def test_an_iteration_is_that_of_the_paper_on_huberised_losses(loss, guarantee, lam):
    X, y = problem_data(loss, n=15)
    gamma, clip, l1, l2 = 0.8, 0.4, 0.02, 0.1
    hidden = guarantee == "last"
    p, fit_intercept = X.shape[1], not hidden
    A = augmented(X, fit_intercept)
    d = A.shape[1]
    ridge = l2 if hidden else 0.0
    noise = 0.05 * np.random.default_rng(1).normal(size=(5, d, 1))
    clip_norm = clip * math.sqrt(d)
    unit = gamma * clip_norm / (1 + gamma * ridge)
    u, path = np.zeros(d), []
    for k in range(5):
        z = soft(u, gamma, l1, l2 - ridge, p)
        x = exact_prox(loss, A, y, clip_norm, ridge, gamma, 2 * z - u)
        u = u + 2 * lam * (x - z) + 2 * lam * unit * noise[k, :, 0]
        path.append(u)
    algorithm = AveragedADMM(
        step_size=gamma, clip_norm=clip, relaxation=lam, guarantee=guarantee, tolerance=1e-6,
        tail_fraction="auto" if hidden else 1e-9,
    )  # fmt: skip
    for k in (1, 2, 5):
        solution, plan, _ = run(
            algorithm, X, y, loss=loss, penalty=ElasticNet(l1, l2), max_iter=k,
            fit_intercept=fit_intercept, noise=KnownNoise(noise),
        )  # fmt: skip
        expected = soft(path[k - 1], gamma, l1, l2 - ridge, p)
        np.testing.assert_allclose(solution.parameters[:, 0], expected, atol=1e-6)
        assert solution.n_iter == k
        assert isinstance(plan.releases[0], HiddenPath) == hidden


@pytest.mark.slow
@pytest.mark.parametrize("loss", [SquaredLoss(), LogisticLoss()], ids=["squared", "logistic"])
@pytest.mark.parametrize("tolerance", [1.0, 0.01])
def test_an_inner_solution_is_within_the_planned_tolerance(loss, tolerance):
    X, y = problem_data(loss, n=30)
    A, gamma, clip = augmented(X, True), 2.5, 0.3
    clip_norm = 2 * clip
    noise = 2 * np.random.default_rng(2).normal(size=(4, 4, 1))
    algorithm = AveragedADMM(step_size=gamma, clip_norm=clip, tolerance=tolerance)
    _, plan, source = run(
        algorithm, X, y, loss=loss, penalty=L1(0.02), max_iter=4, noise=KnownNoise(noise)
    )
    allowed = tolerance * 2 / len(X) * gamma * clip_norm
    u = np.zeros(4)
    for k, value in enumerate(source.values):
        v = 2 * soft(u, gamma, 0.02, 0, 3) - u
        x = v + gamma * clip_norm * value[:, 0]
        assert np.linalg.norm(x - exact_prox(loss, A, y, clip_norm, 0, gamma, v)) <= allowed
        u = u + v + gamma * clip_norm * (value + noise[k])[:, 0] - soft(u, gamma, 0.02, 0, 3)
    assert plan.releases[0].sensitivities[0] == pytest.approx(2 / 30 * (1 + 2 * tolerance))


@pytest.mark.parametrize("guarantee", ["path", "last"])
def test_without_noise_a_lasso_or_an_elastic_net_reaches_scikit_learns_optimum(guarantee):
    X, y = problem_data(SquaredLoss())
    l1, l2 = 0.02, 0.05 if guarantee == "last" else 0.0
    reference = SklearnElasticNet(
        alpha=l1 + l2, l1_ratio=l1 / (l1 + l2), fit_intercept=guarantee == "path", tol=1e-14,
        max_iter=100_000,
    ).fit(X, y)  # fmt: skip
    solution, *_ = run(
        AveragedADMM(step_size=4.0, clip_norm=WIDE_OPEN, tolerance=1e-6, guarantee=guarantee),
        X, y, loss=SquaredLoss(), penalty=ElasticNet(l1, l2), max_iter=300,
        fit_intercept=guarantee == "path",
    )  # fmt: skip
    np.testing.assert_allclose(solution.parameters[:3, 0], reference.coef_, atol=1e-5)
    if guarantee == "path":
        assert solution.parameters[3, 0] == pytest.approx(reference.intercept_, abs=1e-5)


@pytest.mark.parametrize("loss", [LogisticLoss(), MultinomialLoss(3)], ids=["binary", "three"])
def test_without_noise_a_logistic_regression_reaches_scikit_learns_optimum(loss):
    X, y = problem_data(loss, n=60)
    strength = 0.05
    reference = LogisticRegression(C=1 / (strength * len(X)), tol=1e-12, max_iter=10_000).fit(X, y)
    clip = WIDE_OPEN if loss.n_outputs > 1 else 10.0
    solution, *_ = run(
        AveragedADMM(step_size=10.0, clip_norm=clip, tolerance=1e-6),
        X, y, loss=loss, penalty=SquaredL2(strength), max_iter=200,
    )  # fmt: skip
    scores = X @ solution.parameters[:3] + solution.parameters[3]
    expected = X @ reference.coef_.T + reference.intercept_
    centred = scores - scores.mean(axis=1, keepdims=True) * (loss.n_outputs > 1)
    np.testing.assert_allclose(centred, expected, atol=1e-4)


@pytest.mark.parametrize("ridge", [0.0, 0.1, 0.3])
def test_the_ridge_that_is_moved_leaves_the_penalty_without_it(ridge):
    X, _ = problem_data(SquaredLoss())
    penalty, step = ElasticNet(0.2, 0.3), 1.5
    facts, coordinates = make_facts(X, SquaredLoss(), penalty, 1, fit_intercept=False)
    apply = remaining_prox(facts, step, ridge, Rows(X, coordinates))
    for v in np.random.default_rng(0).normal(size=(5, 3)):

        def objective(w, v=v):
            return step * (penalty.value(w) - ridge / 2 * w @ w) + np.sum((w - v) ** 2) / 2

        w = apply(v[:, None])[:, 0]
        best = minimize(objective, w, method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-14})
        np.testing.assert_allclose(w, best.x, atol=1e-5)
        np.testing.assert_allclose(w, soft(v, step, 0.2, 0.3 - ridge, 3), atol=1e-12)


class GivenStates(Gate):
    """Sets the state to what a test gives, whatever comes in, and keeps what came in."""

    def __init__(self, plan, states):
        super().__init__(plan, KnownNoise())
        self.states, self.values = states, []

    def release(self, name, value):
        self.values.append(value)
        return self.states[len(self.values) - 1]


@pytest.mark.parametrize("loss", [SquaredLoss(), HuberLoss(0.3), LogisticLoss()])
@pytest.mark.parametrize("lam", [0.5, 1.0])
def test_an_update_contracts_as_fast_as_the_guarantee_of_the_last_iterate_says(loss, lam):
    X, y = problem_data(loss)
    algorithm = AveragedADMM(
        step_size=0.7, clip_norm=0.3, relaxation=lam, guarantee="last", tolerance=1e-6
    )
    facts, coordinates = make_facts(X, loss, ElasticNet(0.05, 0.2), 9, fit_intercept=False)
    plan = algorithm.plan(facts, Budget(epsilon=1.0, delta=1e-5))
    assert plan.settings.contraction < 1
    rng, images = np.random.default_rng(0), []
    states = rng.normal(size=(9, 3, 1)) * 10 ** rng.uniform(-1, 1, size=(9, 1, 1))
    gate = GivenStates(plan, states)
    with Engine().running() as engine:
        problem = Problem(rows=Rows(X, coordinates), target=y, engine=engine)
        algorithm.run(plan, problem, gate)
    images = gate.values[1:]  # of the states before the last
    for i in range(8):
        for j in range(i):
            moved = np.linalg.norm(images[i] - images[j])
            apart = np.linalg.norm(states[i] - states[j])
            assert moved <= plan.settings.contraction * apart * (1 + 1e-9) + 1e-6


def test_the_last_iterate_needs_less_noise_than_the_path_the_longer_it_is():
    X, _ = problem_data(SquaredLoss())
    noise = {}
    for guarantee in ("path", "last"):
        for max_iter in (10, 1000):
            facts, _ = make_facts(X, SquaredLoss(), SquaredL2(0.5), max_iter, fit_intercept=False)
            plan = AveragedADMM(guarantee=guarantee, step_size=1.0, clip_norm=0.1).plan(
                facts, Budget(epsilon=1.0, delta=1e-5)
            )
            noise[guarantee, max_iter] = plan.releases[0].noise_std
    assert noise["path", 1000] == pytest.approx(10 * noise["path", 10])
    assert noise["last", 1000] < 1.5 * noise["last", 10]
    assert noise["last", 10] < noise["path", 10]


def test_the_tail_is_averaged_and_then_put_through_the_penalty_once():
    X, y = problem_data(SquaredLoss())
    noise = 0.1 * np.random.default_rng(3).normal(size=(8, 4, 1))
    keywords = {"loss": SquaredLoss(), "penalty": L1(0.05), "noise": None}
    states = []
    for share in (1e-9, 0.5):
        algorithm = AveragedADMM(step_size=0.9, clip_norm=0.25, tail_fraction=share)
        keywords["noise"] = KnownNoise(noise)
        states.append(run(algorithm, X, y, max_iter=8, **keywords)[0].parameters)
        assert algorithm.plan(
            make_facts(X, SquaredLoss(), L1(0.05), 8)[0], Budget(epsilon=1.0, delta=1e-5)
        ).settings.n_averaged == (1 if share < 0.1 else 4)
    assert not np.allclose(*states)


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ({"step_size": 0.0}, "Got step_size=0.0"),
        ({"clip_norm": "big"}, "Got clip_norm='big'"),
        ({"relaxation": 1.5}, r"Got relaxation=1.5, expected a float in \(0, 1\]"),
        ({"relaxation": True}, "Got relaxation=True"),
        ({"row_bound": "auto"}, "Got row_bound='auto'"),
        ({"tail_fraction": 0.0}, "Got tail_fraction=0.0"),
        ({"tolerance": 0.0}, "Got tolerance=0.0"),
        ({"guarantee": "all"}, "expected one of .'path', 'last'."),
        ({"guarantee": "last", "tail_fraction": 0.5}, "an average is not the last iterate"),
    ],
)
def test_knobs_outside_their_range_are_refused(knobs, message):
    facts, _ = make_facts(problem_data(SquaredLoss())[0], SquaredLoss(), NoPenalty(), 5)
    with pytest.raises(ValueError, match=message):
        AveragedADMM(**knobs).plan(facts, Budget(epsilon=1.0, delta=1e-5))


@pytest.mark.parametrize(
    ("estimator", "message"),
    [
        (DPAdmmRidge(), "fit_intercept=False"),
        (DPAdmmLasso(fit_intercept=False), "one with a ridge"),
        (DPAdmmRidge(fit_intercept=False, scale="private"), "expected declared units"),
        (DPAdmmRidge(fit_intercept=False, conditioning="private"), "conditioning"),
    ],
)
def test_a_last_iterate_without_a_contraction_is_refused(estimator, message):
    model = clone(estimator).set_params(algorithm=AveragedADMM(guarantee="last"))
    with pytest.raises(ValueError, match=message):
        model.plan(n_samples=1000, n_features=3)


def test_several_scores_are_refused_where_their_clip_could_bind_or_the_last_iterate_counts():
    model = DPAdmmLogisticRegression(algorithm=AveragedADMM(clip_norm=0.1))
    with pytest.raises(ValueError, match="which never binds"):
        model.plan(1000, 3, 3)
    model.set_params(algorithm=AveragedADMM(guarantee="last"), fit_intercept=False)
    with pytest.raises(ValueError, match="expected one score"):
        model.plan(1000, 3, 3)


def test_other_units_and_rows_without_a_bound_are_refused():
    facts, _ = make_facts(problem_data(SquaredLoss())[0], SquaredLoss(), NoPenalty(), 5)
    budget = Budget(epsilon=1.0, delta=1e-5)
    with pytest.raises(ValueError, match="expected 'record'"):
        AveragedADMM().plan(replace(facts, unit="agent"), budget)
    with pytest.raises(ValueError, match="expected a finite bound"):
        AveragedADMM().plan(replace(facts, row_norm=math.inf), budget)


@pytest.mark.parametrize(
    "loss", [LogisticLoss(), SquaredLoss(), HuberLoss(0.5), SmoothedHinge(0.5)]
)
@pytest.mark.parametrize("clip_norm", [0.01, 0.3, 0.9, 3.0])
def test_bounds_of_a_clipped_loss_hold_on_a_grid(loss, clip_norm):
    from skdpadmm.losses import clip_derivative

    row_norm = 1.4
    bounds = loss_bounds(loss, row_norm=row_norm, clip_norm=clip_norm)
    for norm in (0.3, 1.0, row_norm):
        scores = np.linspace(-8, 8, 40_001)
        for y in (-1.0, 1.0):
            slope = loss.derivative(scores.copy(), np.full_like(scores, y))
            slope = clip_derivative(slope, bounds.gradient_norm / norm)
            assert np.abs(slope).max() * norm <= bounds.gradient_norm * (1 + 1e-12)
            bend = np.diff(slope).max() / (scores[1] - scores[0])
            assert bend * norm**2 <= bounds.curvature * (1 + 1e-3)


@pytest.mark.filterwarnings("ignore:Got delta")
@pytest.mark.parametrize("shape", [(1, 1), (2, 1), (3, 5)])
def test_degenerate_sizes_give_finite_models(shape):
    rng = np.random.default_rng(0)
    X, y = rng.uniform(-1, 1, shape), rng.uniform(-1, 1, shape[0])
    model = DPAdmmRidge(algorithm="averaged-admm", max_iter=3).fit(X, y)
    assert np.isfinite(model.coef_).all()


@pytest.mark.parametrize("conditioning", ["private", None])
def test_estimators_learn_with_it_by_name(conditioning):
    assert isinstance(resolve_algorithm("averaged-admm"), AveragedADMM)
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (3000, 3))
    scores = X @ [1.0, -1.0, 0.5]
    keywords = {
        "algorithm": "averaged-admm", "feature_bounds": (-1, 1), "epsilon": 4.0, "random_state": 0,
        "conditioning": conditioning, "max_iter": 30,
    }  # fmt: skip
    regression = DPAdmmElasticNet(alpha=1e-3, target_bounds=(-3, 3), **keywords)
    assert regression.fit(X, scores + 0.1).score(X, scores + 0.1) > 0.8
    binary = DPAdmmLogisticRegression(classes=[0, 1], **keywords)
    assert binary.fit(X, (scores > 0).astype(int)).score(X, scores > 0) > 0.9
    three = DPAdmmLogisticRegression(classes=[0, 1, 2], **keywords)
    y = np.digitize(scores, [-0.5, 0.5])
    assert three.fit(X, y).score(X, y) > 0.5
