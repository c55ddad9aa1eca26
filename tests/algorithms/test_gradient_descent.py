"""Gradient descent without noise and with known noise, and what its guarantees rest on."""

from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.linear_model import ElasticNet as SklearnElasticNet
from sklearn.linear_model import LogisticRegression, Ridge

from skdpadmm import DPAdmmElasticNet, DPAdmmLogisticRegression, DPAdmmRidge
from skdpadmm.algorithms import GradientDescent
from skdpadmm.algorithms._gradient_descent import ITERATE, batch_order, batch_sizes
from skdpadmm.engine import Engine
from skdpadmm.losses import LogisticLoss, MultinomialLoss, SquaredLoss, clip_derivative
from skdpadmm.noise import CryptographicNoise
from skdpadmm.penalties import L1, ElasticNet, NoPenalty, SquaredL2
from skdpadmm.privacy import Neighboring, gaussian_mu, last_iterate_mu
from skdpadmm.protocol import Budget, Facts, Gate, HiddenPath, Problem
from skdpadmm.records import Rows, declared_coordinates

WIDE_OPEN = 1e8
BUDGET = Budget(epsilon=1.0, delta=1e-5)


class KnownNoise:
    """Adds noise that a test knows, by default none."""

    simulation = True

    def __init__(self, noise=None):
        self.noise, self.n_draws = noise, 0

    def add_gaussian(self, value, scale, stream):
        self.n_draws += 1
        return value if self.noise is None else value + self.noise[self.n_draws - 1]


def make_facts(coordinates, n, loss, penalty, max_iter, curvature=0.0):
    return Facts(
        n_samples=n,
        n_parameters=coordinates.n_parameters,
        loss=loss,
        penalty=penalty,
        neighboring=Neighboring.REPLACE_ONE,
        row_norm=coordinates.row_norm,
        rounding=1.0,
        max_iter=max_iter,
        penalty_curvature=curvature,
    )


def run(
    algorithm, X, y, *, loss, penalty=NoPenalty(), max_iter=5, fit_intercept=True, noise=None,  # noqa: B008
    curvature=0.0,
):  # fmt: skip
    c = declared_coordinates(
        n_features=X.shape[1], fit_intercept=fit_intercept, has_target_scale=False
    )
    plan = algorithm.plan(make_facts(c, len(X), loss, penalty, max_iter, curvature), BUDGET)
    gate = Gate(plan, noise or KnownNoise())
    with Engine().running() as engine:
        problem = Problem(rows=Rows(X, c), target=y, engine=engine)
        solution = algorithm.run(plan, problem, gate)
    gate.close()
    return solution, plan


def data(loss, n=60, p=3):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (n, p))
    scores = X @ rng.normal(size=(p, loss.n_outputs)) + 0.3
    if isinstance(loss, MultinomialLoss):
        return X, (scores + rng.gumbel(size=scores.shape)).argmax(axis=1)
    if isinstance(loss, LogisticLoss):
        return X, np.where(scores[:, 0] + rng.normal(size=n) > 0, 1.0, -1.0)
    return X, scores[:, 0] + 0.1 * rng.normal(size=n)


def soft(point, penalty, step, p):
    result = point.copy()
    if isinstance(penalty, ElasticNet):
        w = point[:p]
        shrunk = np.sign(w) * np.maximum(np.abs(w) - step * penalty.l1, 0)
        result[:p] = shrunk / (1 + step * penalty.l2)
    return result


def naive(X, y, loss, penalty, *, step, clip_norm, momentum, noise, step_of=None):
    """The algorithm of the docstring, one record at a time; returns all u."""
    A = np.column_stack([X, np.ones(len(X))])
    w = previous = np.zeros((A.shape[1], loss.n_outputs))
    path = []
    for k, drawn in enumerate(noise):
        point = w + momentum * (w - previous)
        total, count = np.zeros_like(w), 0
        for i, a in enumerate(A):
            if step_of is not None and step_of[i] != k:
                continue
            score = a @ point if loss.n_outputs > 1 else (a @ point)[:1]
            slope = np.atleast_1d(loss.derivative(np.atleast_2d(score) if loss.n_outputs > 1
                                                  else score, y[i : i + 1]).squeeze(0))  # fmt: skip
            gradient = np.outer(a, slope)
            total += gradient * min(1.0, clip_norm / np.linalg.norm(gradient))
            count += 1
        path.append(point - step * (total / count + clip_norm * drawn))
        previous, w = w, soft(path[-1], penalty, step, X.shape[1])
    return path


@pytest.mark.parametrize("loss", [SquaredLoss(), LogisticLoss(), MultinomialLoss(3)], ids=repr)
@pytest.mark.parametrize("momentum", [0.0, 0.7])
def test_a_step_is_that_of_the_docstring(loss, momentum):
    X, y = data(loss)
    penalty = ElasticNet(0.02, 0.1)
    noise = 0.1 * np.random.default_rng(1).normal(size=(6, 4, loss.n_outputs))
    clip_norm = 0.6
    path = naive(X, y, loss, penalty, step=0.4, clip_norm=clip_norm, momentum=momentum, noise=noise)
    algorithm = GradientDescent(
        step_size=0.4, clip_norm=clip_norm / 2, momentum=momentum, tail_fraction=0.5
    )
    solution, _ = run(
        algorithm, X, y, loss=loss, penalty=penalty, max_iter=6, noise=KnownNoise(noise)
    )
    expected = soft(np.mean(path[3:], axis=0), penalty, 0.4, 3)
    np.testing.assert_allclose(solution.parameters, expected, atol=1e-12)


@pytest.mark.parametrize("schedule", ["full", "cyclic"])
def test_a_hidden_step_is_the_same_with_noise_on_the_iterate(schedule):
    loss, penalty = LogisticLoss(), ElasticNet(0.02, 0.1)
    X, y = data(loss)
    noise = 0.1 * np.random.default_rng(1).normal(size=(6, 4, 1))
    algorithm = GradientDescent(
        step_size=0.4, clip_norm=0.25, schedule=schedule, guarantee="last", order_seed=4
    )
    solution, plan = run(
        algorithm, X, y, loss=loss, penalty=penalty, max_iter=6, noise=KnownNoise(-noise)
    )
    order = batch_order(batch_sizes(60, plan.settings), 4) if schedule == "cyclic" else None
    path = naive(
        X, y, loss, penalty, step=0.4, clip_norm=0.5, momentum=0.0, noise=noise, step_of=order
    )
    np.testing.assert_allclose(solution.parameters, soft(path[-1], penalty, 0.4, 3), atol=1e-12)


def optimum(loss, penalty, X, y, fit_intercept):
    n = len(X)
    if isinstance(loss, SquaredLoss) and isinstance(penalty, SquaredL2):
        model = Ridge(alpha=n * penalty.strength, fit_intercept=fit_intercept, tol=1e-12)
    elif isinstance(loss, SquaredLoss):
        total = penalty.l1 + penalty.l2
        model = SklearnElasticNet(
            alpha=total, l1_ratio=penalty.l1 / total, tol=1e-14, fit_intercept=fit_intercept
        )
    else:
        model = LogisticRegression(
            C=1 / (n * penalty.strength),
            solver="newton-cg",
            tol=1e-12,
            max_iter=1000,
            fit_intercept=fit_intercept,
        )
    model.fit(X, y)
    coef = np.atleast_2d(model.coef_).T
    if not fit_intercept:
        return coef
    intercept = np.atleast_1d(model.intercept_)
    return np.vstack([coef, intercept - intercept.mean() * (len(intercept) > 1)])


@pytest.mark.parametrize(
    "knobs",
    [{"momentum": 0.0, "tail_fraction": 1e-9}, {"momentum": 0.8, "tail_fraction": 1e-9},
     {"guarantee": "last"}],
    ids=["plain", "momentum", "last"],
)  # fmt: skip
@pytest.mark.parametrize(
    ("loss", "penalty"),
    [
        (SquaredLoss(), SquaredL2(0.1)),
        (SquaredLoss(), ElasticNet(0.05, 0.05)),
        (LogisticLoss(), SquaredL2(0.1)),
        (MultinomialLoss(3), SquaredL2(0.1)),
    ],
    ids=["ridge", "elastic net", "logistic", "multinomial"],
)
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_without_noise_and_clipping_it_reaches_the_optimum_of_scikit_learn(
    loss, penalty, knobs, fit_intercept
):
    X, y = data(loss)
    step = 0.4 if isinstance(loss, SquaredLoss) else 0.9
    algorithm = GradientDescent(step_size=step, clip_norm=WIDE_OPEN, **knobs)
    solution, _ = run(
        algorithm, X, y, loss=loss, penalty=penalty, max_iter=2000, fit_intercept=fit_intercept
    )
    found = solution.parameters
    if loss.n_outputs > 1 and fit_intercept:
        found = np.vstack([found[:-1], found[-1:] - found[-1].mean()])
    np.testing.assert_allclose(found, optimum(loss, penalty, X, y, fit_intercept), atol=1e-6)


def test_plain_steps_converge_at_their_proven_rate():
    loss, penalty = SquaredLoss(), SquaredL2(0.5)
    X, y = data(loss)
    best = optimum(loss, penalty, X, y, False)
    step = 0.6
    rates = (1 - step * np.linalg.eigvalsh(X.T @ X / len(X))) / (1 + step * 0.5)
    distances = []
    for k in range(1, 12):
        algorithm = GradientDescent(step_size=step, clip_norm=WIDE_OPEN, guarantee="last")
        solution, _ = run(
            algorithm, X, y, loss=loss, penalty=penalty, max_iter=k, fit_intercept=False
        )
        distances.append(np.linalg.norm(solution.parameters - best))
    ratios = np.array(distances[1:]) / np.array(distances[:-1])
    assert np.all(ratios <= np.abs(rates).max() * (1 + 1e-6))


# The conditions of the theorems


@pytest.mark.parametrize("loss", [SquaredLoss(), LogisticLoss(), MultinomialLoss(3)], ids=repr)
@pytest.mark.parametrize("share", [0.3, 1.0])
def test_a_step_contracts_by_the_constant_that_is_claimed_for_any_data(loss, share):
    rng = np.random.default_rng(0)
    penalty = ElasticNet(0.1, 0.7)
    p = 3
    c = declared_coordinates(n_features=p, fit_intercept=False, has_target_scale=False)
    longest = 2 / (loss.smoothness * c.row_norm**2) / (1 + 1e-8)
    clip = 1e6 if loss.n_outputs > 1 else 0.5
    algorithm = GradientDescent(step_size=share * longest, clip_norm=clip, guarantee="last")
    plan = algorithm.plan(make_facts(c, 5, loss, penalty, 3, curvature=0.7), BUDGET)
    constant, step = plan.settings.contraction, plan.settings.step_size
    assert constant == pytest.approx(1 / (1 + 0.7 * step), rel=1e-6)
    worst = 0.0
    for _ in range(300):
        X = rng.normal(size=(5, p)) * rng.choice([0.1, 1, 10])
        X /= np.maximum(np.linalg.norm(X, axis=1, keepdims=True) / c.row_norm, 1)
        y = data(loss, n=5)[1]
        bound = clip * math.sqrt(p) / np.linalg.norm(X, axis=1)

        def one_step(u, X=X, y=y, bound=bound):
            w = soft(u, penalty, step, p)
            scores = X @ w if loss.n_outputs > 1 else (X @ w)[:, 0]
            slopes = clip_derivative(loss.derivative(scores, y), bound)
            return w - step * X.T @ slopes.reshape(5, -1) / 5

        u = rng.normal(size=(p, loss.n_outputs)) * rng.choice([0.1, 1, 10])
        v = u + rng.normal(size=u.shape) * rng.choice([1e-3, 1])
        worst = max(worst, np.linalg.norm(one_step(u) - one_step(v)) / np.linalg.norm(u - v))
    assert worst <= constant * (1 + 1e-9)
    assert worst > 0.8 * constant


def test_the_last_iterate_needs_less_noise_where_the_penalty_is_strongly_convex():
    plans = {
        (guarantee, fit_intercept): DPAdmmRidge(
            alpha=1000.0,  # of the sum over 1000 records: 1 of their mean
            feature_bounds=(-1, 1),
            conditioning=None,
            fit_intercept=fit_intercept,
            algorithm=GradientDescent(guarantee=guarantee, step_size=0.1),
        ).plan(1000, 4)
        for guarantee in ("path", "last")
        for fit_intercept in (True, False)
    }
    path, last = (plans[g, False].releases[-1] for g in ("path", "last"))
    c = plans["last", False].settings.contraction
    assert 0.85 < c < 0.95
    ratio = last_iterate_mu(1.0, c, 100) / math.sqrt(100)
    assert last.noise_std == pytest.approx(ratio * path.noise_std, rel=1e-3)
    # An intercept is not penalised: nothing contracts, and composition is what is left.
    path, last = (plans[g, True].releases[-1] for g in ("path", "last"))
    assert plans["last", True].settings.contraction == 1.0
    assert path.noise_std <= last.noise_std <= path.noise_std * 1.001


def test_units_that_are_found_privately_give_no_contraction():
    model = DPAdmmRidge(
        alpha=1.0,
        fit_intercept=False,
        scale="private",
        conditioning=None,
        algorithm=GradientDescent(guarantee="last"),
    )
    assert model.plan(1000, 4).settings.contraction == 1.0


def test_the_curvature_of_the_penalty_follows_the_units_of_features_and_target():
    model = DPAdmmRidge(
        alpha=2.0,
        fit_intercept=False,
        conditioning=None,
        feature_bounds=([-1, -4], [1, 4]),
        target_bounds=(-10, 10),
        algorithm=GradientDescent(guarantee="last"),
    )
    plan = model.plan(500, 2)
    penalty = plan.facts.penalty
    # In public coordinates theta the coefficients are target_scale * theta / scale.
    hessian = penalty.strong_convexity * (10 / np.array([1.0, 4.0])) ** 2
    assert plan.facts.penalty_curvature == pytest.approx(hessian.min())
    assert plan.facts.penalty_curvature <= hessian.min()


@pytest.mark.parametrize("guarantee", ["path", "last"])
@pytest.mark.parametrize("schedule", ["full", "cyclic"])
@pytest.mark.parametrize("n_samples", [1, 2, 3, 10, 1000])
def test_plans_spend_their_budget_and_no_more(guarantee, schedule, n_samples):
    if (guarantee, schedule) == ("path", "cyclic"):
        guarantee = "auto"
    c = declared_coordinates(n_features=3, fit_intercept=False, has_target_scale=False)
    facts = make_facts(c, n_samples, LogisticLoss(), SquaredL2(0.3), 20, curvature=0.3)
    plan = GradientDescent(schedule=schedule, guarantee=guarantee).plan(facts, BUDGET)
    total = gaussian_mu(1.0, 1e-5)
    assert total * (1 - 1e-9) <= plan.guarantee().mu <= total


@pytest.mark.parametrize("n_samples", [1, 2, 3, 4, 5, 7, 50, 999])
@pytest.mark.parametrize("max_iter", [1, 2, 10, 1000])
def test_every_record_is_in_one_batch_and_no_batch_is_empty(n_samples, max_iter):
    c = declared_coordinates(n_features=2, fit_intercept=True, has_target_scale=False)
    facts = make_facts(c, n_samples, LogisticLoss(), NoPenalty(), max_iter)
    plan = GradientDescent(schedule="cyclic").plan(facts, Budget(epsilon=1.0, delta=1e-9))
    sizes = batch_sizes(n_samples, plan.settings)
    assert sizes.min() >= 1
    assert sizes.sum() == n_samples
    assert len(sizes) == plan.settings.n_iter == max(1, min(max_iter, n_samples // 2))
    order = batch_order(sizes, 3)
    np.testing.assert_array_equal(np.bincount(order, minlength=len(sizes)), sizes)


def test_batches_that_grow_protect_all_positions_alike():
    c = declared_coordinates(n_features=2, fit_intercept=True, has_target_scale=False)
    facts = make_facts(c, 100_000, LogisticLoss(), NoPenalty(), 100)
    plan = GradientDescent(schedule="cyclic").plan(facts, BUDGET)
    release = plan.releases[-1]
    left = np.arange(100, 0, -1)
    by_position = np.array(release.sensitivities) / release.noise_std / np.sqrt(left)
    assert by_position.max() <= plan.guarantee().mu
    assert by_position.min() > 0.98 * plan.guarantee().mu
    # At most twice the noise of as many steps over all records.
    full = GradientDescent(schedule="full").plan(facts, BUDGET).releases[-1]
    assert release.noise_std < 2 * full.noise_std


def test_a_hidden_iterate_lies_on_the_grid_of_the_gate():
    # Otherwise its last digits would carry what earlier steps released, without any noise.
    loss = LogisticLoss()
    X, y = data(loss)
    algorithm = GradientDescent(guarantee="last", step_size=0.1, clip_norm=0.3)
    solution, plan = run(
        algorithm, X, y, loss=loss, penalty=NoPenalty(), noise=CryptographicNoise()
    )
    cell = 2.0 ** (math.floor(math.log2(plan.releases[-1].noise_std)) - 20)
    in_cells = solution.parameters / (0.1 * 0.3 * math.sqrt(4)) / cell
    np.testing.assert_allclose(in_cells, np.rint(in_cells), atol=1e-3)
    assert np.abs(in_cells).max() > 100


def test_rounding_is_part_of_the_guarantee_of_a_hidden_path():
    c = declared_coordinates(n_features=3, fit_intercept=True, has_target_scale=False)
    facts = make_facts(c, 1000, LogisticLoss(), NoPenalty(), 50)
    for schedule in ("full", "cyclic"):
        plan = GradientDescent(schedule=schedule, guarantee="last").plan(facts, BUDGET)
        release = plan.releases[-1]
        assert isinstance(release, HiddenPath)
        assert release.name == ITERATE
        steps = np.arange(50, 0, -1) if schedule == "cyclic" else np.full(50, 1 / 50)
        without = (np.array(release.sensitivities) / np.sqrt(steps)).max() / release.noise_std
        assert without < release.guarantee.mu
        assert without == pytest.approx(release.guarantee.mu, rel=1e-2)


# What a user meets


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ({"step_size": 0.0}, "step_size=0.0"),
        ({"step_size": True}, "step_size=True"),
        ({"clip_norm": "wide"}, "clip_norm='wide'"),
        ({"clip_norm": math.nan}, "clip_norm=nan"),
        ({"momentum": 1.0}, "momentum=1.0"),
        ({"momentum": -0.1}, "momentum=-0.1"),
        ({"tail_fraction": 0.0}, "tail_fraction=0.0"),
        ({"schedule": "random"}, "schedule='random'"),
        ({"guarantee": "all"}, "guarantee='all'"),
        ({"order_seed": -1}, "order_seed=-1"),
        ({"schedule": "cyclic", "guarantee": "path"}, "guarantee='path' with schedule='cyclic'"),
        ({"guarantee": "last", "momentum": 0.5}, "momentum=0.5"),
        ({"schedule": "cyclic", "tail_fraction": 0.5}, ".*tail_fraction=0.5"),
        ({"guarantee": "last", "step_size": 100.0}, "step_size=100 for a guarantee of the last"),
    ],
)
def test_a_knob_outside_its_range_is_refused(knobs, message):
    model = DPAdmmRidge(algorithm=GradientDescent(**knobs), conditioning=None)
    with pytest.raises(ValueError, match=f"^Got {message}.*expected"):
        model.plan(100, 3)


def test_a_clip_of_vectors_that_could_bind_is_refused_for_the_last_iterate():
    model = DPAdmmLogisticRegression(algorithm=GradientDescent(guarantee="last", clip_norm=0.1))
    assert model.plan(100, 3, 2)
    with pytest.raises(ValueError, match=r"^Got clip_norm=0.1 for 3 scores"):
        model.plan(100, 3, 3)
    model.algorithm = GradientDescent(guarantee="last")
    assert model.plan(100, 3, 3).settings.clip_norm >= math.sqrt(2)


def test_conditioning_serves_the_path_and_not_the_last_iterate():
    plan = DPAdmmRidge(conditioning="private", algorithm=GradientDescent()).plan(10_000, 4)
    assert plan.facts.conditioning is not None
    assert plan.settings.momentum == 0.0
    for knobs in ({"guarantee": "last"}, {"schedule": "cyclic"}):
        model = DPAdmmRidge(algorithm=GradientDescent(**knobs))
        assert model.plan(10_000, 4).facts.conditioning is None
        with pytest.raises(ValueError, match="conditioning"):
            model.set_params(conditioning="private").plan(10_000, 4)


def test_the_report_says_that_only_the_final_model_is_seen():
    X, y = data(SquaredLoss())
    for knobs, seen in (
        ({}, "everything that was released, and the final model"),
        ({"guarantee": "last"}, "the final model alone"),
        ({"schedule": "cyclic"}, "the final model alone"),
    ):
        model = DPAdmmRidge(algorithm=GradientDescent(**knobs), conditioning=None).fit(X, y)
        assert model.privacy_.observers[0].sees == seen
        assert ("releases the last of" in repr(model.plan(60, 3))) == bool(knobs)
    model.set_params(scale="private").fit(X, y)
    assert model.privacy_.observers[0].sees == "what prepared the fit, and the final model alone"


@pytest.mark.parametrize("name", ["gradient-descent", "last", "cyclic"])
@pytest.mark.parametrize(
    "estimator", [DPAdmmRidge, DPAdmmElasticNet, DPAdmmLogisticRegression], ids=lambda e: e.__name__
)
@pytest.mark.parametrize(("n", "p"), [(1, 1), (2, 3), (3, 1), (40, 5)])
def test_estimators_fit_with_it_at_their_default_budget_whatever_the_size(name, estimator, n, p):
    algorithm = {
        "last": GradientDescent(guarantee="last"),
        "cyclic": GradientDescent(schedule="cyclic"),
    }.get(name, name)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, p))
    knobs = {"delta": 1e-6, "algorithm": algorithm}
    y = rng.normal(size=n)
    if estimator is DPAdmmLogisticRegression:
        y, knobs["classes"] = np.arange(n) % 2, [0, 1]
    model = estimator(**knobs).fit(X, y)
    assert np.isfinite(model.coef_).all()
    assert model.privacy_.epsilon() <= 1.0 + 1e-9


def test_it_learns_something_on_iris():
    X, y = load_iris(return_X_y=True)
    for algorithm in ("gradient-descent", GradientDescent(schedule="cyclic")):
        model = DPAdmmLogisticRegression(
            epsilon=20.0, algorithm=algorithm, classes=[0, 1, 2], feature_bounds=(0, 8),
            delta=1e-4, random_state=0,
        ).fit(X, y)  # fmt: skip
        assert model.score(X, y) > 0.6


def test_equal_seeds_give_equal_bits_for_every_number_of_workers():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(3000, 300)), rng.normal(size=3000)
    for algorithm in (GradientDescent(), GradientDescent(schedule="cyclic")):
        one, two = (
            DPAdmmRidge(algorithm=algorithm, random_state=0, max_iter=5, n_jobs=jobs).fit(X, y)
            for jobs in (1, 2)
        )
        np.testing.assert_array_equal(one.coef_, two.coef_)


def test_a_penalty_that_is_not_strongly_convex_is_no_contraction():
    c = declared_coordinates(n_features=3, fit_intercept=False, has_target_scale=False)
    facts = make_facts(c, 100, SquaredLoss(), L1(0.1), 10)
    assert GradientDescent(guarantee="last").plan(facts, BUDGET).settings.contraction == 1.0
