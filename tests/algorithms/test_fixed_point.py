"""The noisy fixed-point iteration, and the algorithms that are instances of it."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit

from skdpadmm.algorithms import CoordinateDescent, GradientDescent
from skdpadmm.algorithms._coordinate_descent import block_schedule
from skdpadmm.engine import Engine
from skdpadmm.losses import LogisticLoss, SquaredLoss
from skdpadmm.penalties import NoPenalty
from skdpadmm.privacy import Neighboring
from skdpadmm.protocol import Budget, Facts, Gate, Problem
from skdpadmm.records import Rows, declared_coordinates


def noisy_fixed_point(operators, blocks, start, steps, *, relaxation, noise):
    """Algorithm 1 of Cyffers, Bellet & Basu (2023): ``u_b += lambda_b (R_b(u) + eta_b - u_b)``.

    All blocks of a step are evaluated at the same u. Noise, an array of shape (n_steps, dim), is
    multiplied by the relaxation. Returns the path, its start included.
    """
    factors = np.broadcast_to(np.asarray(relaxation, dtype=np.float64), (len(blocks),))
    path = np.empty((len(steps) + 1, len(start)))
    path[0] = start
    for k, updated in enumerate(steps):
        path[k + 1] = path[k]
        for b in updated:
            entries = blocks[b]
            target = operators[b](path[k]) + noise[k, entries]
            path[k + 1, entries] += factors[b] * (target - path[k, entries])
    return path


WIDE_OPEN = 1e8


class RecordedNoise:
    """Seeded noise that a test can read back, one vector for each release."""

    simulation = True

    def __init__(self, seed):
        self.rng, self.drawn = np.random.default_rng(seed), []

    def add_gaussian(self, value, scale, stream):
        # Large beside an honest scale: a clip bound that is wide open asks for no real noise here.
        self.drawn.append(self.rng.normal(size=value.shape))
        return value + self.drawn[-1] / WIDE_OPEN


def data(loss, n=40, p=4):
    rng = np.random.default_rng(3)
    X = rng.uniform(-1, 1, (n, p))
    scores = X @ rng.normal(size=p)
    return X, np.sign(scores) if isinstance(loss, LogisticLoss) else np.clip(scores, -2, 2)


def slopes(loss, scores, y):
    return scores - y if isinstance(loss, SquaredLoss) else -y * expit(-y * scores)


def fit(algorithm, X, y, loss, n_iter, noise):
    coordinates = declared_coordinates(
        n_features=X.shape[1], fit_intercept=False, has_target_scale=False
    )
    facts = Facts(
        n_samples=len(X),
        n_parameters=X.shape[1],
        loss=loss,
        penalty=NoPenalty(),
        neighboring=Neighboring.REPLACE_ONE,
        row_norm=coordinates.row_norm,
        rounding=1.0,
        max_iter=n_iter,
    )
    plan = algorithm.plan(facts, Budget(epsilon=1.0, delta=1e-5))
    gate = Gate(plan, noise)
    with Engine().running() as engine:
        problem = Problem(rows=Rows(X, coordinates), target=y, engine=engine)
        solution = algorithm.run(plan, problem, gate)
    gate.close()
    return solution.parameters[:, 0], plan


@pytest.mark.parametrize("loss", [SquaredLoss(), LogisticLoss()], ids=["squared", "logistic"])
def test_gradient_descent_is_the_iteration_with_one_block_as_proposition_1_says(loss):
    X, y = data(loss)
    n, p = X.shape
    # R = I - (2 / beta) grad F, relaxation gamma beta / 2.
    gamma = 0.3
    beta = loss.smoothness * np.linalg.norm(X, 2) ** 2 / n
    algorithm = GradientDescent(
        step_size=gamma, clip_norm=WIDE_OPEN / np.sqrt(p), momentum=0, tail_fraction=1e-9
    )

    def operator(u):
        return u - 2 / beta * X.T @ slopes(loss, X @ u, y) / n

    for n_iter in (1, 2, 3, 10):
        source = RecordedNoise(seed=1)
        found, _ = fit(algorithm, X, y, loss, n_iter, source)
        # A release in units of the clip bound has noise of 1 / WIDE_OPEN of it: of size 1.
        noise = -2 / beta * np.array(source.drawn)[:, :, 0]
        path = noisy_fixed_point(
            [operator],
            [np.arange(p)],
            np.zeros(p),
            block_schedule("all", n_blocks=1, n_passes=n_iter),
            relaxation=gamma * beta / 2,
            noise=noise,
        )
        np.testing.assert_allclose(found, path[-1], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("loss", [SquaredLoss(), LogisticLoss()], ids=["squared", "logistic"])
@pytest.mark.parametrize(("schedule", "blocks"), [("cyclic", "permutation"), ("random", "random")])
@pytest.mark.parametrize("own_steps", [False, True], ids=["one step", "steps of their own"])
def test_coordinate_descent_is_the_iteration_with_one_block_for_each_coordinate(
    loss, schedule, blocks, own_steps
):
    X, y = data(loss)
    n, p = X.shape
    beta = loss.smoothness
    gammas = np.array([0.3, 0.7, 1.0, 0.2]) / beta if own_steps else np.full(p, 0.5 / beta)
    algorithm = CoordinateDescent(
        step_size=(gammas * beta).tolist() if own_steps else 0.5,
        clip_norm=WIDE_OPEN,
        schedule=schedule,
        tail_fraction=1e-9,
        order_seed=5,
    )
    operators = [
        lambda u, j=j: u[[j]] - 2 / beta * X[:, [j]].T @ slopes(loss, X @ u, y) / n
        for j in range(p)
    ]
    for n_iter in (1, 2, 6):
        source = RecordedNoise(seed=2)
        found, _ = fit(algorithm, X, y, loss, n_iter, source)
        steps = block_schedule(blocks, n_blocks=p, n_passes=n_iter, seed=5)
        noise = np.repeat(-2 / beta * np.array(source.drawn), p, axis=1)
        path = noisy_fixed_point(
            operators,
            [np.array([j]) for j in range(p)],
            np.zeros(p),
            steps,
            relaxation=gammas * beta / 2,
            noise=noise,
        )
        np.testing.assert_allclose(found, path[-1], rtol=1e-12, atol=1e-12)


def test_all_blocks_of_a_step_see_the_same_point_and_noise_is_relaxed():
    swap = [lambda u: u[[1]], lambda u: u[[0]]]
    blocks = [np.array([0]), np.array([1])]
    start, noise = np.array([1.0, 3.0]), np.array([[10.0, 20.0]])
    both = block_schedule("all", n_blocks=2, n_passes=1)
    path = noisy_fixed_point(swap, blocks, start, both, relaxation=0.5, noise=noise)
    np.testing.assert_array_equal(path[1], [1 + 0.5 * (3 + 10 - 1), 3 + 0.5 * (1 + 20 - 3)])


def test_schedules_update_what_they_say():
    everything = block_schedule("all", n_blocks=3, n_passes=2)
    assert everything.tolist() == [[0, 1, 2]] * 2
    passes = block_schedule("permutation", n_blocks=5, n_passes=40).reshape(40, 5)
    assert all(sorted(order) == list(range(5)) for order in passes.tolist())
    assert len({tuple(order) for order in passes.tolist()}) > 10
    single = block_schedule("random", n_blocks=5, n_passes=400)
    assert single.shape == (2000, 1)
    assert np.all(np.abs(np.bincount(single[:, 0]) - 400) < 6 * np.sqrt(400))


def test_the_order_of_blocks_is_a_function_of_its_seed():
    for schedule in ("permutation", "random"):
        one, same, other = (
            block_schedule(schedule, n_blocks=9, n_passes=3, seed=seed) for seed in (1, 1, 2)
        )
        np.testing.assert_array_equal(one, same)
        assert not np.array_equal(one, other)


def test_an_unknown_schedule_is_refused():
    with pytest.raises(ValueError, match=r"^Got schedule='cyclic', expected 'all'"):
        block_schedule("cyclic", n_blocks=2, n_passes=1)
