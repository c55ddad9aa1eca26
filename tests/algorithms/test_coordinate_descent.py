"""Coordinate descent without noise and with known noise: what it computes and where it goes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import sparse
from sklearn.linear_model import ElasticNet as SklearnElasticNet
from sklearn.linear_model import LogisticRegression, Ridge

from skdpadmm import DPAdmmElasticNet, DPAdmmLasso, DPAdmmLogisticRegression, DPAdmmRidge
from skdpadmm.algorithms import CoordinateDescent
from skdpadmm.engine import Engine
from skdpadmm.losses import LogisticLoss, MultinomialLoss, SquaredLoss
from skdpadmm.penalties import Box, ElasticNet, GroupLasso, NonNegative, NoPenalty, SquaredL2
from skdpadmm.privacy import Neighboring, gaussian_mu
from skdpadmm.protocol import Budget, Facts, Gate, Problem
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


def run(
    algorithm, X, y, *, loss, penalty=NoPenalty(), max_iter=5, fit_intercept=True, noise=None,  # noqa: B008
    bounds=None,
):  # fmt: skip
    c = declared_coordinates(
        n_features=X.shape[1],
        fit_intercept=fit_intercept,
        feature_bounds=bounds,
        has_target_scale=False,
    )
    facts = Facts(
        n_samples=X.shape[0],
        n_parameters=c.n_parameters,
        loss=loss,
        penalty=penalty,
        neighboring=Neighboring.REPLACE_ONE,
        row_norm=c.row_norm,
        rounding=1.0,
        max_iter=max_iter,
    )
    plan = algorithm.plan(facts, BUDGET)
    gate = Gate(plan, noise or KnownNoise())
    rows = Rows(X, c)
    with Engine().running() as engine:
        solution = algorithm.run(plan, Problem(rows=rows, target=y, engine=engine), gate)
    gate.close()
    return solution, rows


def data(loss, n=60, p=3):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (n, p))
    scores = X @ rng.normal(size=(p, loss.n_outputs)) + 0.3
    if isinstance(loss, MultinomialLoss):
        return X, (scores + rng.gumbel(size=scores.shape)).argmax(axis=1)
    if isinstance(loss, LogisticLoss):
        return X, np.where(scores[:, 0] + rng.normal(size=n) > 0, 1.0, -1.0)
    return X, scores[:, 0] + 0.1 * rng.normal(size=n)


def optimum(loss, penalty, X, y):
    n = len(X)
    if isinstance(loss, SquaredLoss) and isinstance(penalty, SquaredL2):
        model = Ridge(alpha=n * penalty.strength, tol=1e-12)
    elif isinstance(loss, SquaredLoss):
        total = penalty.l1 + penalty.l2
        model = SklearnElasticNet(alpha=total, l1_ratio=penalty.l1 / total, tol=1e-14)
    else:
        model = LogisticRegression(
            C=1 / (n * penalty.strength), solver="newton-cg", tol=1e-12, max_iter=1000
        )
    model.fit(X, y)
    intercept = np.atleast_1d(model.intercept_)
    centred = intercept - intercept.mean() * (len(intercept) > 1)
    return np.vstack([np.atleast_2d(model.coef_).T, centred])


@pytest.mark.parametrize("schedule", ["cyclic", "random"])
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
@pytest.mark.parametrize("bounds", [None, (-1.5, 1.5), ([-1, -2, -4], [1, 2, 1])])
def test_without_noise_and_clipping_it_reaches_the_optimum_of_scikit_learn(
    loss, penalty, schedule, bounds
):
    X, y = data(loss)
    algorithm = CoordinateDescent(
        step_size=[0.8, 1.0, 1.0, 0.9], clip_norm=WIDE_OPEN, schedule=schedule, tail_fraction=1e-9
    )
    solution, rows = run(algorithm, X, y, loss=loss, penalty=penalty, max_iter=700, bounds=bounds)
    coef, intercept = rows.coordinates.to_user(solution.parameters)
    if loss.n_outputs > 1:
        intercept = intercept - intercept.mean()
    found = np.vstack([coef.T, intercept])
    np.testing.assert_allclose(found, optimum(loss, penalty, X, y), atol=1e-6)


def naive(X, y, loss, penalty, *, steps, clips, noise, order):
    """The algorithm of the docstring, one record at a time; the points u after each pass."""
    A = np.column_stack([X, np.ones(len(X))])
    d, K = A.shape[1], loss.n_outputs
    w, u, passes = np.zeros((d, K)), np.zeros((d, K)), []
    for t, j in enumerate(order):
        total = np.zeros(K)
        for i, a in enumerate(A):
            score = (a @ w)[None] if K > 1 else a @ w
            part = a[j] * np.atleast_1d(loss.derivative(score, y[i : i + 1]).squeeze(0))
            size = np.linalg.norm(part)
            total += part * min(1.0, clips[j] / size) if size else 0.0
        u[j] = w[j] - steps[j] * (total / len(X) + clips[j] * noise[t])
        w[j] = u[j]
        if j < X.shape[1]:
            shrunk = np.sign(u[j]) * np.maximum(np.abs(u[j]) - steps[j] * penalty.l1, 0)
            w[j] = shrunk / (1 + steps[j] * penalty.l2)
        if (t + 1) % d == 0:
            passes.append(u.copy())
    return passes


@pytest.mark.parametrize("loss", [SquaredLoss(), LogisticLoss(), MultinomialLoss(3)], ids=repr)
@pytest.mark.parametrize("schedule", ["cyclic", "random"])
def test_a_step_is_that_of_the_docstring(loss, schedule, monkeypatch):
    import skdpadmm.algorithms._coordinate_descent as module

    orders = []

    def remember(*args, **kwargs):
        orders.append(schedules(*args, **kwargs))
        return orders[-1]

    schedules = module.block_schedule
    monkeypatch.setattr(module, "block_schedule", remember)
    X, y = data(loss)
    penalty = ElasticNet(0.02, 0.1)
    noise = 0.1 * np.random.default_rng(1).normal(size=(24, loss.n_outputs))
    steps, clips = np.array([0.5, 1.0, 0.7, 0.3]), np.array([0.2, 0.3, 0.1, 0.4])
    algorithm = CoordinateDescent(
        step_size=steps.tolist(), clip_norm=clips.tolist(), schedule=schedule
    )
    solution, _ = run(
        algorithm, X, y, loss=loss, penalty=penalty, max_iter=6, noise=KnownNoise(noise)
    )
    passes = naive(
        X, y, loss, penalty, steps=steps / loss.smoothness, clips=clips, noise=noise,
        order=orders[0][:, 0],
    )  # fmt: skip
    u = np.mean(passes[3:], axis=0)
    expected = u.copy()
    step = steps[:3, None] / loss.smoothness
    expected[:3] = np.sign(u[:3]) * np.maximum(np.abs(u[:3]) - step * 0.02, 0) / (1 + step * 0.1)
    np.testing.assert_allclose(solution.parameters, expected, atol=1e-12)


@pytest.mark.parametrize("penalty", [Box(-0.2, 0.1), NonNegative()], ids=repr)
def test_constraints_hold_in_the_users_units(penalty):
    X, y = data(SquaredLoss())
    drawn = np.random.default_rng(0).normal(size=(20, 1))
    solution, rows = run(
        CoordinateDescent(clip_norm=1.0), X, y, loss=SquaredLoss(), penalty=penalty,
        bounds=([-3, -1, -2], [3, 1, 2]), noise=KnownNoise(drawn),
    )  # fmt: skip
    coef, _ = rows.coordinates.to_user(solution.parameters)
    assert penalty.value(coef.T) == 0.0


def test_a_penalty_that_couples_coefficients_is_refused():
    c = declared_coordinates(n_features=2, fit_intercept=True, has_target_scale=False)
    facts = Facts(
        n_samples=10,
        n_parameters=c.n_parameters,
        loss=SquaredLoss(),
        penalty=GroupLasso(strength=0.1, groups=((0, 1),)),
        neighboring=Neighboring.REPLACE_ONE,
        row_norm=c.row_norm,
        rounding=1.0,
        max_iter=5,
    )
    with pytest.raises(ValueError, match=r"^Got penalty GroupLasso.*expected one of.*Use"):
        CoordinateDescent().plan(facts, BUDGET)


def test_conditioning_is_refused_and_never_chosen():
    model = DPAdmmRidge(algorithm="coordinate-descent")
    assert model.plan(10_000, 4).facts.conditioning is None
    with pytest.raises(ValueError, match="expected 'auto' or None"):
        model.set_params(conditioning="private").plan(10_000, 4)


@pytest.mark.parametrize("schedule", ["cyclic", "random"])
def test_every_step_of_every_pass_is_a_release_of_one_coordinate(schedule):
    model = DPAdmmLasso(algorithm=CoordinateDescent(schedule=schedule), max_iter=7, epsilon=1.0)
    plan = model.plan(1000, 4)
    (release,) = plan.releases
    assert (release.times, release.shape) == (7 * 5, (1,))
    assert release.noise_std == pytest.approx(
        math.sqrt(35) * 2 / 1000 / gaussian_mu(1.0, plan.budget.delta), rel=1e-6
    )
    assert plan.guarantee().mu <= gaussian_mu(1.0, plan.budget.delta)


def test_clip_bounds_scale_noise_and_leave_the_plan_of_releases_as_it_is():
    plans = [
        DPAdmmLasso(algorithm=CoordinateDescent(clip_norm=clip)).plan(1000, 2)
        for clip in (0.1, [0.1, 5.0, 0.01])
    ]
    assert plans[0].releases == plans[1].releases
    assert plans[0] != plans[1]


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ({"step_size": 0.0}, "step_size=0.0"),
        ({"step_size": True}, "step_size=True"),
        ({"step_size": [1.0, 2.0]}, "step_size="),
        ({"step_size": "fast"}, "step_size='fast'"),
        ({"clip_norm": [1.0, 2.0, 3.0, math.nan]}, "clip_norm="),
        ({"clip_norm": [[1.0] * 4]}, "clip_norm="),
        ({"clip_norm": None}, "clip_norm=None"),
        ({"clip_norm": math.inf}, "clip_norm=inf"),
        ({"schedule": "all"}, "schedule='all'"),
        ({"tail_fraction": 0}, "tail_fraction=0"),
        ({"tail_fraction": "auto"}, "tail_fraction='auto'"),
        ({"order_seed": None}, "order_seed=None"),
    ],
)
def test_a_knob_outside_its_range_is_refused(knobs, message):
    with pytest.raises(ValueError, match=rf"^Got {message}.*expected"):
        DPAdmmRidge(algorithm=CoordinateDescent(**knobs)).plan(100, 3)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("bounds", [None, (-0.5, 0.6)], ids=["undeclared", "declared"])
def test_columns_are_those_of_the_augmented_rows(dtype, order, bounds):
    rng = np.random.default_rng(0)
    X = np.asarray(rng.normal(size=(50, 4)), dtype=dtype, order=order)
    X[0] = np.finfo(dtype).max
    X[1, 2] = 0.0
    c = declared_coordinates(
        n_features=4, fit_intercept=True, feature_bounds=bounds, has_target_scale=False
    )
    for data_ in (X, sparse.csr_matrix(X)):
        rows = Rows(data_, c)
        for block in range(rows.n_blocks):
            columns = rows.columns(block)
            found = np.column_stack([columns(j) for j in range(5)])
            np.testing.assert_allclose(found, rows.augmented(block), rtol=1e-14, atol=1e-300)


def test_columns_of_repeated_sparse_entries_are_their_sum():
    X = sparse.csr_matrix((np.ones(5), np.array([0, 0, 2, 1, 1]), np.array([0, 3, 5])), (2, 3))
    c = declared_coordinates(n_features=3, fit_intercept=False, has_target_scale=False)
    rows = Rows(X, c)
    found = np.column_stack([rows.columns(0)(j) for j in range(3)])
    np.testing.assert_allclose(found, rows.augmented(0))


def test_sparse_and_dense_rows_give_the_same_model():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 6)) * (rng.random((200, 6)) < 0.4)
    y = X @ rng.normal(size=6)
    model = DPAdmmRidge(algorithm="coordinate-descent", random_state=0, max_iter=10)
    dense = model.fit(X, y).coef_
    np.testing.assert_allclose(model.fit(sparse.csr_array(X), y).coef_, dense, rtol=1e-9)


def test_equal_seeds_give_equal_bits_for_every_number_of_workers():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(3000, 300)), rng.normal(size=3000)
    one, two = (
        DPAdmmRidge(algorithm="coordinate-descent", random_state=0, max_iter=1, n_jobs=jobs).fit(
            X, y
        )
        for jobs in (1, 2)
    )
    np.testing.assert_array_equal(one.coef_, two.coef_)


@pytest.mark.parametrize(
    "estimator", [DPAdmmRidge, DPAdmmElasticNet, DPAdmmLogisticRegression], ids=lambda e: e.__name__
)
@pytest.mark.parametrize(("n", "p"), [(1, 1), (2, 3), (3, 1), (40, 5)])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_estimators_fit_with_it_at_their_default_budget_whatever_the_size(
    estimator, n, p, n_classes
):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(n, p)), rng.normal(size=n)
    knobs = {"delta": 1e-6, "algorithm": "coordinate-descent"}
    if estimator is DPAdmmLogisticRegression:
        y, knobs["classes"] = np.arange(n) % n_classes, list(range(n_classes))
    model = estimator(**knobs).fit(X, y)
    assert np.isfinite(model.coef_).all()
    assert model.privacy_.epsilon() <= 1.0 + 1e-9


def test_it_finds_a_sparse_signal():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (5000, 10))
    y = np.clip(X[:, 0] - 2 * X[:, 1] + 0.1 * rng.normal(size=5000), -3, 3)
    model = DPAdmmLasso(
        alpha=0.02, epsilon=3.0, algorithm="coordinate-descent", feature_bounds=(-1, 1),
        target_bounds=(-3, 3), random_state=0,
    ).fit(X, y)  # fmt: skip
    assert model.score(X, y) > 0.9
    assert np.count_nonzero(model.coef_) < 10
