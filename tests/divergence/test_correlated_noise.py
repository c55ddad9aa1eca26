"""Theorems about noise that cancels: what releases tell of a record, and of copies of a stream."""

import copy
import dataclasses
import io
import math
import os
import pickle
import struct
from decimal import Decimal, localcontext

import cloudpickle
import joblib
import numpy as np
import pytest
from scipy.stats import norm
from sklearn.base import clone

from skdpadmm import DPAdmmLasso, DPAdmmLogisticRegression, DPAdmmRidge, _streaming
from skdpadmm._fitting import gates_by
from skdpadmm.algorithms import ClippedSum, DualAveraging
from skdpadmm.algorithms import _dual_averaging as dual_averaging
from skdpadmm.algorithms._dual_averaging import ExponentialSum, square_root
from skdpadmm.algorithms._preparations import SECOND_MOMENT
from skdpadmm.penalties import L1
from skdpadmm.protocol import Gate
from skdpadmm.records import rounding_factor
from tests.contract.harness import record, replay
from tests.contract.registry import BY_ID

# Coefficients.


def coefficients(memory, n_steps):
    """c_0 = 1 and then c_k, by the sum of the docstring."""
    decays, weights = np.array(memory.decays), np.array(memory.weights)
    return np.array([1.0, *(float(weights @ decays**k) for k in range(n_steps - 1))])


def released(memory, gradient_at, history):
    """The means of what is released, given what was released before."""
    buffers, means = np.zeros((len(memory.decays), 3)), []
    for t in range(len(history)):
        gradient = gradient_at(t, history[:t])
        means.append(gradient + memory.mixed(buffers))
        buffers = memory.after(buffers, gradient)
    return np.array(means)


def random_memory(rng):
    d = rng.integers(1, 8)
    weights = rng.exponential(size=d) / d
    return ExponentialSum(
        tuple(weights.tolist()), tuple((1 - 10 ** rng.uniform(-5, 0, d)).tolist())
    )


def test_mu_is_that_of_a_numerical_gaussian_for_any_coefficients_and_adaptive_records():
    """The likelihood ratio of a path, given its past, is that of Gaussians with these means."""
    rng = np.random.default_rng(0)
    for _ in range(200):
        memory, n_steps = random_memory(rng), int(rng.integers(1, 60))
        bound, noise_std, at = rng.exponential(), rng.exponential() + 0.1, rng.integers(n_steps)
        history = rng.standard_normal((n_steps, 3))

        def gradients(sign, at=at, bound=bound):
            def gradient(t, past):
                # The adversary chooses records and the direction by all that it has seen.
                direction = np.cos(past.sum(axis=0) + t) if len(past) else np.ones(3)
                unit = direction / np.linalg.norm(direction)
                return sign * bound / 2 * unit if t == at else 100 * np.sin(7 * direction)

            return gradient

        first, second = (released(memory, gradients(sign), history) for sign in (1.0, -1.0))
        mu = np.linalg.norm(second - first) / noise_std
        exact = bound * np.linalg.norm(coefficients(memory, n_steps - at)) / noise_std
        claimed = bound * memory.norm(n_steps - at) / noise_std
        assert claimed == pytest.approx(exact, rel=1e-12)
        # What is added for rounding covers it, whatever was added to the buffers before.
        size = 100 * math.sqrt(3) + bound
        rounding = memory.rounding(size, n_steps) / noise_std
        assert mu <= claimed * (1 + 1e-12) + rounding
        assert mu >= claimed * (1 - 1e-12) - rounding
        assert bound * memory.norm() / noise_std >= claimed * (1 - 1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_rounding_of_buffers_is_within_its_bound(seed):
    """Floats against 60 digits: buffers drift apart by rounding, and stay within the bound."""
    rng, n_steps, size = np.random.default_rng(seed), 300, 256.0
    memory = dual_averaging.NOISE if seed == 0 else random_memory(rng)
    g = size * rng.choice([-1.0, 1.0 / 3, 1.0], n_steps)
    buffers, floats = np.zeros((len(memory.decays), 1)), []
    exact, sums = [Decimal(0)] * len(memory.decays), []
    with localcontext() as context:
        context.prec = 60
        weights, decays = ([Decimal(v) for v in each] for each in (memory.weights, memory.decays))
        for value in g:
            floats.append(float((value + memory.mixed(buffers))[0]))
            sums.append(Decimal(value) + sum(w * v for w, v in zip(weights, exact, strict=True)))
            buffers = memory.after(buffers, np.array([value]))
            exact = [v * w + Decimal(value) for v, w in zip(exact, decays, strict=True)]
        errors = [float(Decimal(a) - b) for a, b in zip(floats, sums, strict=True)]
    assert 0 < 2 * np.linalg.norm(errors) <= memory.rounding(size, n_steps)


# Standard deviation of the largest prefix sum, in units of the noise of one release.
TABLE = [
    (1000, 2, 2.0, 0.3, 3.407), (1000, 4, 0.5, 0.5, 3.267), (1000, 6, 0.3, 1.0, 3.265),
    (1000, 8, 0.3, 1.0, 3.265), (10_000, 2, 4.0, 0.3, 4.621), (10_000, 4, 1.0, 0.5, 4.006),
    (10_000, 6, 0.5, 1.0, 3.999), (10_000, 8, 0.3, 1.0, 3.998),
    pytest.param(100_000, 2, 4.0, 0.3, 7.047, marks=pytest.mark.slow),
    pytest.param(100_000, 4, 1.0, 0.3, 4.766, marks=pytest.mark.slow),
    pytest.param(100_000, 6, 0.5, 0.5, 4.734, marks=pytest.mark.slow),
    pytest.param(100_000, 8, 0.3, 1.0, 4.731, marks=pytest.mark.slow),
]  # fmt: skip


@pytest.mark.parametrize(("n_steps", "n_buffers", "slow", "fast", "expected"), TABLE)
def test_few_exponentials_are_nearly_as_good_as_the_square_root(
    n_steps, n_buffers, slow, fast, expected
):
    memory = square_root(n_steps, n_buffers, slow, fast)
    pending, total, squares = np.zeros((n_buffers, 1)), 0.0, 0.0
    for t in range(n_steps):
        new = float(t == 0) - float(memory.mixed(pending)[0])
        pending = memory.after(pending, np.array([new]))
        total += new
        squares += total**2
    assert math.sqrt(squares) * memory.norm(n_steps) == pytest.approx(expected, abs=2e-3)


# Steps.


def logistic(**params):
    defaults = {"classes": [0, 1], "feature_bounds": (-1, 1), "random_state": 0}
    return DPAdmmLogisticRegression(**{**defaults, "algorithm": DualAveraging(), **params})


def records(n=40, p=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, p))
    return X, (X[:, 0] + 0.1 * rng.standard_normal(n) > 0).astype(int)


@pytest.mark.parametrize("penalty", ["ridge", "lasso"])
def test_steps_are_those_of_the_docstring(penalty):
    """The first stage by a naive loop with the matrices A and C in place of buffers."""
    rng = np.random.default_rng(1)
    X = rng.uniform(-1, 1, (30, 2))
    y = np.clip(X @ [1.0, -0.5], -1, 1)
    algorithm = DualAveraging(step_size=0.002, clip_norm=0.2)
    make = DPAdmmRidge if penalty == "ridge" else DPAdmmLasso
    model = make(algorithm=algorithm, alpha=0.01, feature_bounds=(-1, 1), target_bounds=(-1, 1),
                 random_state=0, epsilon=20.0)  # fmt: skip
    row = BY_ID["dual-averaging"]
    recording = record(row, X, y, model=model, fit=lambda m, *data: m.partial_fit(*data))
    plan, h = recording.plan, np.array([p.out[:, 0] for p in recording.passages])
    rows, clip = np.column_stack([X, np.ones(len(X))]), 0.2 * math.sqrt(3)
    c = coefficients(dual_averaging.NOISE, 30)
    C = np.array([[c[i - j] if i >= j else 0.0 for j in range(30)] for i in range(30)])
    sums = clip * np.cumsum(np.linalg.solve(C, h), axis=0)
    w, mean, gradients = np.zeros(3), np.zeros(3), []
    for t in range(30):
        slope = np.clip(rows[t] @ w - y[t], *np.array([-1, 1]) * clip / np.linalg.norm(rows[t]))
        gradients.append(rows[t] * slope)
        exact = sum(c[t - j] * gradients[j] for j in range(t + 1)) / clip
        np.testing.assert_allclose(recording.passages[t].value[:, 0], exact, atol=1e-9)
        step = 0.002 * (t + 1)
        w = -0.002 * sums[t]
        if penalty == "ridge":
            w[:2] /= 1 + step * plan.facts.penalty.strength
        else:
            w[:2] = L1(0.01).proximal_operator(step)(w[:2])
        share = 5 / (t + 5)
        mean += share * (w - mean)
    state = model._arrived_.state
    np.testing.assert_allclose(state.model[:, 0], w, atol=1e-12)
    np.testing.assert_allclose(state.mean[:, 0], mean, atol=1e-12)
    assert state.n_steps == model.n_iter_ == 30


def test_the_first_of_many_records_attains_the_claim_but_for_later_steps_and_its_second_moment():
    """Linear losses: the worst position is the first one of a stage, which most steps follow."""
    row, n = BY_ID["dual-averaging"], 30
    X, y = np.ones((n, 2)), np.full(n, 2.0)
    other = np.concatenate([[-2.0], y[1:]])
    params = {"epsilon": 1.0, "algorithm": {"clip_norm": 0.01, "step_size": 0.01}}

    def path(at):
        first, second = y.copy(), y.copy()
        second[at] = -2.0
        recorded = record(
            row, X, first, model=row.make(**params), fit=lambda m, *d: m.partial_fit(*d)
        )
        replayed = replay_of(row, recorded, X, second, row.make(**params))
        moved = [
            b.value - a.value for a, b in zip(recorded.passages, replayed.passages, strict=True)
        ]
        return recorded.plan, np.linalg.norm(moved) / recorded.plan.releases[-1].noise_std

    assert other[0] != y[0]
    plan, found = path(0)
    share = math.sqrt(1 - dual_averaging.CONDITIONING_SHARE)
    expected = plan.guarantee().mu * share
    expected *= dual_averaging.NOISE.norm(n) / dual_averaging.NOISE.norm()
    assert found == pytest.approx(expected, rel=1e-4)
    assert found < expected * (1 + 1e-9)
    assert path(20)[1] < found


def replay_of(row, recorded, X, y, model):
    """A replay of one `partial_fit`."""
    piece = type("Piece", (), {"fit": staticmethod(lambda m, *data: m.partial_fit(*data))})
    return replay(piece, recorded, X, y, model=model)


def test_a_stream_of_any_length_and_pieces_has_the_plan_of_one_record():
    X, y = records()
    plans = [logistic().plan(n, 3) for n in (1, 40, 10**9)]
    for sizes in ([40], [1] * 40, [1, 38, 1]):
        model = logistic()
        for rows in np.split(np.arange(40), np.cumsum(sizes)[:-1]):
            model.partial_fit(X[rows], y[rows])
        assert model.n_samples_seen_ == 40
        plans.append(model._arrived_.plan)
        assert model.privacy_.guarantee().mu == plans[0].guarantee().mu
    assert all(plan == plans[0] for plan in plans)
    assert plans[0].guarantee().epsilon(1e-5) == pytest.approx(1.0, rel=1e-6)
    # A piece of one is one step; a large one has steps of more records.
    assert logistic().fit(*records(500)).n_iter_ < 500


# What is hidden.

COPIES = {
    "pickle": lambda model: pickle.loads(pickle.dumps(model)),
    "cloudpickle": lambda model: pickle.loads(cloudpickle.dumps(model)),
    "joblib": lambda model: through_joblib(model),
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "vars": lambda model: restored(clone(model), vars(model)),
}


def through_joblib(model):
    file = io.BytesIO()
    joblib.dump(model, file)
    file.seek(0)
    return joblib.load(file)


def restored(model, attributes):
    vars(model).update(attributes)
    return model


def sums_after(model, X, y):
    """What is released of further records, without its noise."""
    row = BY_ID["dual-averaging"]
    recording = record(row, X, y, model=model, fit=lambda m, *data: m.partial_fit(*data))
    return np.array([p.value for p in recording.passages if p.name == dual_averaging.GRADIENTS])


@pytest.mark.parametrize("way", COPIES)
def test_a_copy_goes_on_without_the_sums_of_earlier_records(way):
    """Neither a copy nor what follows it depends on earlier records but by what was released."""
    X, y = records()
    model = logistic().partial_fit(X[:12], y[:12])
    center = model.coef_.copy()
    copied = COPIES[way](model)
    np.testing.assert_array_equal(copied.coef_, center)
    assert copied not in _streaming._HIDDEN
    begun, on = sums_after(copied, X[12:], y[12:]), sums_after(model, X[12:], y[12:])
    # The first gradient is the same one: the copy releases it by itself.
    assert np.linalg.norm(begun[0]) <= 1 + 1e-9
    assert np.linalg.norm(on[0] - begun[0]) > 1e-3
    assert copied.privacy_.guarantee() == model.privacy_.guarantee()


def test_buffers_are_in_nothing_that_leaves_the_process():
    X, y = records()
    model = logistic(random_state=None).partial_fit(X, y)
    _, process, (buffers, square, n_hidden) = _streaming._HIDDEN[model]
    assert (process, n_hidden, buffers.any(), square.any()) == (os.getpid(), 40, True, True)
    file = io.BytesIO()
    joblib.dump(model, file)
    content = [pickle.dumps(model), cloudpickle.dumps(model), file.getvalue()]
    content += [pickle.dumps(model.privacy_), repr(vars(model)).encode(), repr(model).encode()]
    for value in (*buffers.ravel(), *square.ravel()):
        if value not in (0.0, 40.0):
            assert not any(struct.pack("<d", value) in each for each in content)
            assert not any(repr(float(value)).encode() in each for each in content)


def test_sums_are_used_once_by_the_model_the_state_and_the_process_they_belong_to():
    X, y = records()
    model = logistic().partial_fit(X[:12], y[:12])
    before = dict(vars(model))
    model.partial_fit(X[12:], y[12:])
    # A model that was set back must not use sums of records that it has not seen.
    vars(model).update(before)
    assert np.linalg.norm(sums_after(model, X[12:], y[12:])[0]) <= 1 + 1e-9
    # A piece that failed: what it has released is unknown.
    model = logistic().partial_fit(X[:12], y[:12])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dual_averaging.NOISE.__class__, "mixed", None)
        with pytest.raises(TypeError):
            model.partial_fit(X[12:], y[12:])
    assert np.linalg.norm(sums_after(model, X[12:], y[12:])[0]) <= 1 + 1e-9
    # A process that was forked.
    model = logistic().partial_fit(X[:12], y[:12])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "getpid", lambda: -1)
        assert np.linalg.norm(sums_after(model, X[12:], y[12:])[0]) <= 1 + 1e-9
    # A fit begins anew, and a model that is gone takes its sums along.
    kept = len(_streaming._HIDDEN)
    assert np.linalg.norm(sums_after(clone(model), X, y)[0]) <= 1 + 1e-9
    del model
    assert len(_streaming._HIDDEN) < kept


def test_after_a_copy_no_release_depends_on_a_record_of_before():
    """Two blocks: a record moves releases of its own one alone, so the claim is that of one."""
    row, (X, y) = BY_ID["dual-averaging-zero-out"], records()
    other = np.concatenate([[1 - y[0]], y[1:]])
    params = {"algorithm": DualAveraging(clip_norm=0.01, step_size=0.01)}

    def fit(model, X, y):
        model.partial_fit(X[:12], y[:12])
        going = pickle.loads(pickle.dumps(model))
        going.partial_fit(X[12:24], y[12:24])
        model.partial_fit(X[24:], y[24:])

    piece = type("Piece", (), {"fit": staticmethod(fit)})
    recorded = record(row, X, y, model=logistic(**params), fit=fit)
    replayed = replay(piece, recorded, X, other, model=logistic(**params))
    first, copied, original = (
        [np.linalg.norm(b.value - a.value) for a, b in zip(*gates, strict=True)]
        for gates in zip(
            *([gate.passages for gate in each.gates] for each in (recorded, replayed)), strict=True
        )
    )
    assert min(first) > 0 < min(original)
    assert max(copied) == 0
    release = recorded.plan.releases[-1]
    assert math.hypot(*first, *original) <= release.sensitivities[0] * (1 + 1e-9)


# An audit.


@pytest.mark.slow
@pytest.mark.usefixtures("fixed_entropy")
def test_an_attack_on_the_first_record_finds_nearly_the_claim_and_never_more():
    """The best test of linear losses: the sum of all releases, each with its coefficient."""
    n, found = 40, []
    X, c = np.ones((n, 1)), coefficients(dual_averaging.NOISE, n)
    algorithm = DualAveraging(clip_norm=0.01, step_size=0.01)
    for target in (2.9, -2.9):
        y = np.full(n, 2.9)
        y[0] = target
        found.append([])
        for _ in range(1500):
            model = DPAdmmRidge(algorithm=algorithm, alpha=0.0, epsilon=3.0, delta=1e-3,
                                fit_intercept=False)  # fmt: skip
            fit = record(BY_ID["dual-averaging"], X, y, model=model, fit=lambda m, *d: m.fit(*d))
            passed = [p.out[0, 0] for p in fit.passages if p.name == dual_averaging.GRADIENTS]
            found[-1].append(c @ np.array(passed))
    without, having = map(np.array, found)
    claimed = fit.plan.guarantee().mu
    threshold = (without.mean() + having.mean()) / 2
    right = np.mean(np.concatenate([without < threshold, having > threshold]))
    right = max(right, 1 - right)
    spread = np.concatenate([without - without.mean(), having - having.mean()]).std()
    mu = abs(having.mean() - without.mean()) / spread
    share = math.sqrt(1 - dual_averaging.CONDITIONING_SHARE)
    expected = claimed * share * dual_averaging.NOISE.norm(n) / dual_averaging.NOISE.norm()
    # Four standard errors.
    assert 0.8 * expected < mu < 1.2 * expected
    assert norm.ppf(right - 4 * math.sqrt(0.25 / 3000)) * 2 <= claimed


# Second moments of stages.


def moments_released(X, y):
    """Second moments that pass the gate, where every release is the same whatever the rows."""
    seen = []

    class Forced(Gate):
        def deliver(self, method, release, repetition, value, out, *more):
            if release is not None and release.name == SECOND_MOMENT:
                seen.append(np.array(value))
            return np.zeros_like(out)

    model = DPAdmmRidge(
        algorithm="dual-averaging", epsilon=50.0, feature_bounds=(-1, 1), target_bounds=(-1, 1)
    )
    with gates_by(lambda fit, *facts: Forced(*facts)):
        for piece in np.split(np.arange(len(y)), [5, 6, 300]):
            model.partial_fit(X[piece], y[piece])
    return seen


@pytest.mark.parametrize("position", [0, 31, 40, 500])
def test_a_record_is_in_one_second_moment(position):
    X = np.random.default_rng(0).uniform(-1, 1, (2100, 2))
    other = X.copy()
    other[position] *= -0.5
    moments = moments_released(X, X[:, 0]), moments_released(other, X[:, 0])
    assert len(moments[0]) > 2
    changed = [not np.array_equal(one, two) for one, two in zip(*moments, strict=True)]
    assert sum(changed) == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_process_has_no_sums_whatever_its_number():
    model = DPAdmmRidge(algorithm="dual-averaging", feature_bounds=(-1, 1), target_bounds=(-1, 1))
    model.partial_fit(np.eye(2), np.ones(2))
    assert model in _streaming._HIDDEN
    if (child := os.fork()) == 0:
        os._exit(len(_streaming._HIDDEN))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_the_plan_counts_the_rounding_of_sums_of_steps():
    """A step may add up many records, each addition with an error of its own."""
    plan = BY_ID["dual-averaging"].plan()
    facts, (*_, sums) = plan.facts, plan.releases
    rounding = rounding_factor(n_samples=dual_averaging.LARGEST_STEP, coordinates=facts.coordinates)
    least = ClippedSum(dataclasses.replace(facts, rounding=rounding)).sensitivity
    assert least > ClippedSum(facts).sensitivity
    of_buffers = dual_averaging.NOISE.rounding(
        1.001 * dual_averaging.LARGEST_STEP, dual_averaging.LONGEST_STAGE
    )
    assert sums.sensitivities[0] - of_buffers >= least * dual_averaging.NOISE.norm()
