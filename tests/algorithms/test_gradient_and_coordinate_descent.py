"""Gradient and coordinate descent under known noise, and what their guarantees rest on."""

import itertools
import math

import numpy as np
import pytest

from skdpadmm import DPAdmmRidge
from skdpadmm.algorithms import CoordinateDescent, GradientDescent
from skdpadmm.algorithms._gradient_descent import batch_order, batch_sizes, coordinate_order
from skdpadmm.losses import LogisticLoss, SquaredLoss, clip_derivative
from skdpadmm.noise import CryptographicNoise
from skdpadmm.penalties import L1, ElasticNet
from skdpadmm.privacy import Composed, Neighboring, PoissonSubsampledGaussian
from skdpadmm.protocol import Budget
from tests.algorithms import runs as direct
from tests.algorithms.runs import close, coordinates_of, data_for, facts_for, run, slopes
from tests.contract.harness import SilentGate, runs_of
from tests.contract.registry import BY_ID, STEPS

PENALTY = ElasticNet(0.02, 0.1)


def naive_descent(
    X, y, loss, *, step, clip_norm, momentum, noise, step_of=None, batches=None, size=None
):
    """The algorithm of the docstring, one record at a time; returns all u."""
    A, path = direct.augmented(X), []
    w = previous = np.zeros((A.shape[1], loss.n_outputs))
    for k, drawn in enumerate(noise):
        point = w + momentum * (w - previous)
        used = range(len(A)) if step_of is None else np.flatnonzero(step_of == k)
        used = used if batches is None else np.flatnonzero(batches[k])
        gradient = sum(
            direct.clipped(
                np.outer(A[i], slopes(loss, A[i : i + 1] @ point, y[i : i + 1])), clip_norm
            )
            for i in used
        ) / (size or len(used))
        path.append(point - step * (gradient + clip_norm * drawn))
        previous, w = w, direct.shrunk(path[-1], PENALTY, step, X.shape[1])
    return path


CASES = [
    ("squared", {"momentum": 0.0}), ("logistic", {"momentum": 0.7}), ("three", {"momentum": 0.7}),
    ("squared", {"guarantee": "last"}), ("three", {"momentum": 0.0}),
    ("logistic", {"schedule": "cyclic", "order_seed": 4}),
    ("three", {"batch_fraction": 0.3, "momentum": 0.7}),
]  # fmt: skip


@pytest.mark.parametrize(("loss", "knobs"), CASES)
def test_a_gradient_step_is_that_of_the_docstring(loss, knobs):
    """Proposition 1: the noisy fixed-point iteration of I - (2 / beta) grad F, in one block."""
    loss, clip_norm = direct.LOSSES[loss], 0.6
    (X, y), rng = data_for(loss), np.random.default_rng(1)
    noise = 0.1 * rng.normal(size=(6, 4, loss.n_outputs))
    algorithm = GradientDescent(step_size=0.4, clip_norm=0.3, **knobs)
    watched = {"gate_class": direct.Watched, "noise": noise, "max_iter": 6}
    result = run(algorithm, X, y, loss=loss, penalty=PENALTY, **watched)
    settings, sampling = result.plan.settings, algorithm.batch_fraction
    hidden, cyclic = settings.guarantee == "last", settings.schedule == "cyclic"
    path = naive_descent(
        X, y, loss, step=0.4, clip_norm=clip_norm, momentum=settings.momentum,
        # Hidden steps have the noise on the iterate.
        noise=-noise if hidden else noise,
        step_of=batch_order(batch_sizes(60, settings), 4) if cyclic else None,
        batches=[drawn < 0.3 for drawn in result.gate.drawn] if sampling < 1 else None,
        size=18 if sampling < 1 else None,
    )  # fmt: skip
    expected = direct.shrunk(np.mean(path[-1 if hidden else 3 :], axis=0), PENALTY, 0.4, 3)
    close(result.solution.parameters, expected, 1e-12)


# Secret batches.


def sampled(**params):
    settings = {"algorithm": GradientDescent(batch_fraction=0.1), "conditioning": None}
    return DPAdmmRidge(**{**settings, "scale": None, "delta": 1e-6, **params}).plan(4000, 3)


@pytest.mark.parametrize(
    ("neighboring", "epsilon", "multiplier"),
    [("zero_out", 1.379, 10), ("replace_one", 2.92, 10), ("replace_one", 8.28, 4)],
)
def test_steps_on_secret_batches_are_subsampled_gaussians(neighboring, epsilon, multiplier):
    plan = sampled(neighboring=neighboring, epsilon=epsilon, max_iter=1000)
    guarantee, release = plan.guarantee(), plan.releases[-1]
    assert isinstance(guarantee, PoissonSubsampledGaussian)
    assert (guarantee.sampling_probability, guarantee.n_rounds) == (0.1, 1000)
    assert guarantee.neighboring == Neighboring(neighboring)
    assert guarantee.noise_multiplier == pytest.approx(multiplier, rel=2e-3)
    # Noise over what a record adds to a mean over the expected size of a batch.
    assert release.noise_std * 400 / plan.facts.rounding == pytest.approx(multiplier, rel=2e-3)
    factor = plan.neighboring.sensitivity_factor
    assert release.sensitivities[0] == pytest.approx(factor * plan.facts.rounding / 400)
    assert guarantee.epsilon(1e-6) <= epsilon
    assert any("only the curator knows" in line for line in plan.assumptions)


def test_no_batches_leave_plans_as_they_were_and_preparations_compose_with_batches():
    whole, nearly = (
        sampled(algorithm=GradientDescent(batch_fraction=share), max_iter=20)
        for share in (1.0, 1 - 1e-9)
    )
    assert "batch_fraction" not in dict(whole.settings)
    assert whole.digest() == sampled(algorithm=GradientDescent(), max_iter=20).digest()
    # As much noise, and steps as long.
    for one, other in zip(whole.releases, nearly.releases, strict=True):
        assert one.noise_std == pytest.approx(other.noise_std, rel=1e-3)
    for name in ("step_size", "clip_norm"):
        assert dict(whole.settings)[name] == pytest.approx(dict(nearly.settings)[name], rel=1e-3)
    plan = sampled(conditioning="private", epsilon=2.0, max_iter=20)
    assert isinstance(plan.guarantee(), Composed)
    assert 1.98 <= plan.guarantee().epsilon(1e-6) <= 2.0


@pytest.mark.parametrize("neighboring", ["zero_out", "replace_one"])
def test_the_exact_divergence_of_a_step_on_every_batch_is_what_is_claimed(neighboring):
    algorithm = GradientDescent(batch_fraction=0.3, clip_norm=1.0, step_size=1.0)
    # The other records add nothing, as in the worst case.
    X, y = np.array([[1.0], [0.0], [0.0]]), np.array([2.0, 1.0, -1.0])

    facts = facts_for(
        coordinates_of(1, fit_intercept=False), 3, SquaredLoss(), max_iter=1,
        neighboring=neighboring,
    )  # fmt: skip
    plan = algorithm.plan(facts, direct.BUDGET)

    def law(X, y):
        """For every batch its probability, and what it releases but for the noise."""
        for batch in itertools.product([0, 1], repeat=3):
            uniforms = np.where(batch, 0.29, 0.31)
            gate = direct.Silent(plan, direct.KnownNoise(uniforms=uniforms))
            direct.carried_out(algorithm, plan, gate, X, y)
            (value,) = (value for method, value, *_ in gate.passed if method == "release")
            yield 0.3 ** sum(batch) * 0.7 ** (3 - sum(batch)), float(value.squeeze())

    is_zero_out = neighboring == "zero_out"
    neighbour = (0 * X, y) if is_zero_out else (X, -y)
    s, budget = plan.releases[-1].noise_std, plan.budget
    grid = np.linspace(-30, 30, 400_001) * s
    one, other = (
        sum(p * np.exp(-np.square((grid - v) / s) / 2) for p, v in cases) / math.sqrt(2 * math.pi)
        for cases in (law(X, y), law(*neighbour))
    )
    for p, q in ((one, other), (other, one)):
        exact = np.maximum(p - math.exp(budget.epsilon) * q, 0).sum() * (grid[1] - grid[0]) / s
        assert exact <= plan.guarantee().delta(budget.epsilon) * (1 + 1e-6) <= budget.delta * 1.001
        # Of an absent record one direction is the worse one.
        assert exact >= 0.99 * budget.delta or (is_zero_out and p is other)


@pytest.mark.parametrize("row_id", ["gradient-batches", "gradient-batches-persons-zero-out"])
def test_who_is_in_a_batch_is_what_the_gate_draws_with_the_planned_probability(row_id):
    row = BY_ID[row_id]
    X = np.ones((row.n_samples, 2))
    y = np.full(len(X), 2.0) if row.target == "number" else np.zeros(len(X), dtype=int)
    params = {"algorithm": STEPS, "conditioning": None, "scale": None, "max_iter": 60}
    # Without noise, and with short steps, all records stay clipped.
    _, recorded = runs_of(row.make(**params), X, y, fit=row.fit)(SilentGate, seed=0)
    drawn = [p.out for p in recorded.passages if p.method == "uniform"]
    released = [p.value for p in recorded.passages if p.method == "release"]
    n, guarantee = recorded.plan.facts.n_samples, recorded.plan.guarantee()
    share = guarantee.sampling_probability
    assert len(drawn) == len(released) == guarantee.n_rounds == 60
    assert len({uniform.tobytes() for uniform in drawn}) == 60
    assert abs(np.mean(np.less(drawn, share)) - share) < 4 * math.sqrt(share / (60 * n))
    # They are alike, so that a mean tells how many of them are in a batch.
    for uniform, value in zip(drawn, released, strict=True):
        assert np.shape(uniform) == (n,)
        expected = np.count_nonzero(uniform < share) / (share * n)
        assert np.linalg.norm(value) == pytest.approx(expected, rel=1e-9)


# Coordinates.


def naive_passes(X, y, loss, *, steps, clips, noise, order):
    """Coordinate descent of the docstring, one record at a time; the points u of each pass."""
    A, d, passes = direct.augmented(X), X.shape[1] + 1, []
    w, u = np.zeros((2, d, loss.n_outputs))
    for t, j in enumerate(order):
        total = sum(
            direct.clipped(a[j] * slopes(loss, (a @ w)[None], y[i : i + 1])[0], clips[j])
            for i, a in enumerate(A)
        )
        u[j] = w[j] - steps[j] * (total / len(X) + clips[j] * noise[t])
        w[j] = direct.shrunk(u[[j]], PENALTY, steps[j], int(j < X.shape[1]))[0]
        if (t + 1) % d == 0:
            passes.append(u.copy())
    return passes


@pytest.mark.parametrize("loss", direct.LOSSES.values(), ids=direct.LOSSES)
@pytest.mark.parametrize("schedule", ["cyclic", "random"])
def test_a_coordinate_step_is_that_of_the_docstring(loss, schedule):
    """Proposition 2: one block for each coordinate."""
    (X, y), rng = data_for(loss), np.random.default_rng(1)
    noise = 0.1 * rng.normal(size=(24, loss.n_outputs))
    steps, clips = np.array([0.5, 1.0, 0.7, 0.3]), np.array([0.2, 0.3, 0.1, 0.4])
    algorithm = CoordinateDescent(
        step_size=steps.tolist(), clip_norm=clips.tolist(), schedule=schedule, order_seed=7
    )
    result = run(algorithm, X, y, loss=loss, penalty=PENALTY, max_iter=6, noise=noise)
    order = coordinate_order(schedule, 4, 6, seed=7)
    steps = steps / loss.smoothness
    passes = naive_passes(X, y, loss, steps=steps, clips=clips, noise=noise, order=order)
    u = np.mean(passes[3:], axis=0)
    expected = [direct.shrunk(u[[j]], PENALTY, steps[j], int(j < 3))[0] for j in range(4)]
    close(result.solution.parameters, expected, 1e-12)


def test_coordinates_are_permuted_in_each_pass_or_drawn():
    passes = coordinate_order("cyclic", 5, 40, seed=0).reshape(40, 5).tolist()
    assert all(sorted(order) == list(range(5)) for order in passes)
    assert len({tuple(order) for order in passes}) > 10
    drawn = coordinate_order("random", 5, 400, seed=0)
    assert np.all(np.abs(np.bincount(drawn) - 400) < 6 * np.sqrt(400))


# Conditions of the theorems of a last iterate.


def test_where_no_step_is_certified_to_contract_composition_is_what_is_left():
    def plan(fit_intercept=False, **more):
        algorithm = GradientDescent(guarantee="last", step_size=0.1)
        model = DPAdmmRidge(fit_intercept=fit_intercept, alpha=1000.0, conditioning=None, **more)
        return model.set_params(algorithm=algorithm).plan(1000, 4)

    declared = {"feature_bounds": (-1, 1)}
    assert 0.85 < plan(**declared).settings.contraction < 0.95
    # An intercept, units that are found later, and an l1 norm: composition is what is left.
    facts = facts_for(coordinates_of(3, fit_intercept=False), 100, SquaredLoss(), L1(0.1))
    lasso = GradientDescent(guarantee="last").plan(facts, direct.BUDGET)
    for other in (plan(True, **declared), lasso, plan(scale="private")):
        assert other.settings.contraction == 1.0


@pytest.mark.parametrize("loss", direct.LOSSES.values(), ids=direct.LOSSES)
@pytest.mark.parametrize("share", [0.3, 1.0])
def test_a_step_contracts_by_the_constant_that_is_claimed_for_any_data(loss, share):
    rng, penalty, p, worst = np.random.default_rng(0), ElasticNet(0.1, 0.7), 3, 0.0
    c = coordinates_of(p, fit_intercept=False)
    longest = 2 / (loss.smoothness * c.row_norm**2) / (1 + 1e-8)
    clip = 1e6 if loss.n_outputs > 1 else 0.5
    algorithm = GradientDescent(step_size=share * longest, clip_norm=clip, guarantee="last")
    settings = algorithm.plan(facts_for(c, 5, loss, penalty), direct.BUDGET).settings
    constant, step = settings.contraction, settings.step_size
    assert constant == pytest.approx(1 / (1 + 0.7 * step), rel=1e-6)
    for _ in range(300):
        X, y = rng.normal(size=(5, p)) * rng.choice([0.1, 1, 10]), data_for(loss, n=5)[1]
        X /= np.maximum(np.linalg.norm(X, axis=1, keepdims=True) / c.row_norm, 1)
        bound = clip * math.sqrt(p) / np.linalg.norm(X, axis=1)

        def one_step(u, X=X, y=y, bound=bound):
            w = direct.shrunk(u, penalty, step, p)
            scores = X @ w if loss.n_outputs > 1 else (X @ w)[:, 0]
            clipped_slopes = clip_derivative(loss.derivative(scores, y), bound)
            return w - step * X.T @ clipped_slopes.reshape(5, -1) / 5

        u = rng.normal(size=(p, loss.n_outputs)) * rng.choice([0.1, 1, 10])
        v = u + rng.normal(size=u.shape) * rng.choice([1e-3, 1])
        worst = max(worst, np.linalg.norm(one_step(u) - one_step(v)) / np.linalg.norm(u - v))
    assert 0.8 * constant < worst <= constant * (1 + 1e-9)


@pytest.mark.parametrize("n_samples", [1, 2, 3, 4, 5, 7, 50, 999])
@pytest.mark.parametrize("max_iter", [1, 2, 10, 1000])
def test_every_record_is_in_one_batch_and_no_batch_is_empty(n_samples, max_iter):
    facts = facts_for(coordinates_of(2), n_samples, LogisticLoss(), max_iter=max_iter)
    algorithm = GradientDescent(schedule="cyclic")
    settings = algorithm.plan(facts, Budget(epsilon=1.0, delta=1e-9)).settings
    sizes = batch_sizes(n_samples, settings)
    assert sizes.min() >= 1
    assert sizes.sum() == n_samples
    assert len(sizes) == settings.n_iter == max(1, min(max_iter, n_samples // 2))
    order = batch_order(sizes, 3)
    np.testing.assert_array_equal(np.bincount(order, minlength=len(sizes)), sizes)


def test_a_hidden_iterate_lies_on_the_grid_of_the_gate():
    # Otherwise its last digits would carry what earlier steps released, without any noise.
    loss = direct.LOSSES["logistic"]
    X, y = data_for(loss)
    algorithm = GradientDescent(guarantee="last", step_size=0.1, clip_norm=0.3)
    result = run(algorithm, X, y, loss=loss, source=CryptographicNoise())
    cell = 2.0 ** (math.floor(math.log2(result.plan.releases[-1].noise_std)) - 20)
    in_cells = result.solution.parameters / (0.1 * 0.3 * math.sqrt(4)) / cell
    close(in_cells, np.rint(in_cells), 1e-3)
    assert np.abs(in_cells).max() > 100
