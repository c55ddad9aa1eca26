"""The contract of the losses: derivatives, constants, proximal derivatives, rows."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import minimize, minimize_scalar
from scipy.special import expit, log_softmax, wrightomega

from skdpadmm.losses import (
    HuberLoss,
    LogisticLoss,
    MultinomialLoss,
    OneVsRestHinge,
    SmoothedHinge,
    SquaredLoss,
    clip_derivative,
)
from skdpadmm.losses._multinomial import _wright_omega

SCALAR = [SquaredLoss(), HuberLoss(threshold=1.3), LogisticLoss(), SmoothedHinge(smoothing=0.6)]
LOSSES = [
    *SCALAR,
    MultinomialLoss(n_classes=3),
    MultinomialLoss(n_classes=10),
    OneVsRestHinge(n_classes=4, smoothing=1.7),
]
N_ROWS = 64


def draw(loss, rng, n=N_ROWS, scale=3.0):
    scores = scale * rng.normal(size=n if loss.n_outputs == 1 else (n, loss.n_outputs))
    if loss.n_outputs > 1:
        return scores, rng.integers(loss.n_outputs, size=n)
    if isinstance(loss, LogisticLoss | SmoothedHinge):
        return scores, rng.choice([-1.0, 1.0], size=n)
    return scores, rng.normal(size=n)


def far_from_kinks(loss, scores, target):
    """Records at which the derivative of the loss is itself differentiable."""
    if isinstance(loss, HuberLoss):
        return np.abs(np.abs(scores - target) - loss.threshold) > 1e-3
    if isinstance(loss, SmoothedHinge | OneVsRestHinge):
        margin = target * scores if loss.n_outputs == 1 else signs_of(loss, target) * scores
        near = np.minimum(np.abs(margin - 1), np.abs(margin - 1 + loss.smoothing)) < 1e-3
        return ~near.reshape(len(scores), -1).any(axis=1)
    return np.ones(len(scores), bool)


def signs_of(loss, target):
    return 2.0 * np.eye(loss.n_outputs)[target] - 1.0


def sizes(steps):
    return np.abs(steps) if steps.ndim == 1 else np.linalg.norm(steps, axis=1)


def lifted(step, scores):
    return step if scores.ndim == 1 else step[:, None]


@pytest.fixture(params=LOSSES, ids=repr)
def loss(request):
    return request.param


def test_equal_parameters_make_equal_losses():
    assert HuberLoss(1.0) == HuberLoss(threshold=1.0) != HuberLoss(2.0)
    assert len({MultinomialLoss(3), MultinomialLoss(3), MultinomialLoss(4)}) == 2
    assert SquaredLoss() != LogisticLoss()


@pytest.mark.parametrize("threshold", [0.0, -1.0, np.inf, np.nan])
def test_a_huber_threshold_outside_its_range_is_refused(threshold):
    with pytest.raises(ValueError, match="Got threshold="):
        HuberLoss(threshold)


@pytest.mark.parametrize("smoothing", [0.0, -1.0, np.inf, np.nan])
def test_a_smoothing_outside_its_range_is_refused(smoothing):
    for make in (SmoothedHinge, lambda h: OneVsRestHinge(3, h)):
        with pytest.raises(ValueError, match=r"Got smoothing=.*, expected a float in \(0, inf\)"):
            make(smoothing)


@pytest.mark.parametrize("make", [MultinomialLoss, lambda k: OneVsRestHinge(k, smoothing=1.0)])
def test_fewer_than_two_classes_are_refused(make):
    with pytest.raises(ValueError, match="Got n_classes=1, expected an int >= 2"):
        make(1)
    with pytest.raises(TypeError):
        make(2.5)


@given(seed=st.integers(0, 2**32 - 1))
def test_derivative_is_the_slope_of_the_value(seed):
    rng = np.random.default_rng(seed)
    for loss in LOSSES:
        scores, target = draw(loss, rng)
        direction = rng.normal(size=scores.shape)
        h = 1e-5
        slope = loss.value(scores + h * direction, target)
        slope = (slope - loss.value(scores - h * direction, target)) / (2 * h)
        expected = (direction * loss.derivative(scores, target)).reshape(N_ROWS, -1).sum(axis=1)
        smooth = far_from_kinks(loss, scores, target)
        np.testing.assert_allclose(slope[smooth], expected[smooth], atol=1e-8)


@given(seed=st.integers(0, 2**32 - 1))
def test_curvature_is_the_slope_of_the_derivative(seed):
    rng = np.random.default_rng(seed)
    for loss in LOSSES:
        scores, target = draw(loss, rng)
        direction = rng.normal(size=scores.shape)
        h = 1e-5
        slope = loss.derivative(scores + h * direction, target)
        slope = (slope - loss.derivative(scores - h * direction, target)) / (2 * h)
        curvature = loss.curvature(scores, target)
        if loss.n_outputs == 1:
            expected = curvature * direction
        else:
            expected = np.einsum("nij,nj->ni", curvature, direction)
        smooth = far_from_kinks(loss, scores, target)
        np.testing.assert_allclose(slope[smooth], expected[smooth], atol=1e-8)


def test_curvature_stays_within_the_smoothness(loss):
    scores, target = draw(loss, np.random.default_rng(0), n=2000)
    curvature = loss.curvature(scores, target)
    if loss.n_outputs > 1:
        curvature = np.linalg.eigvalsh(curvature)
    assert curvature.max() <= loss.smoothness + 1e-15
    assert curvature.min() >= -1e-15


@pytest.mark.parametrize(
    ("loss", "scores", "target"),
    [
        (SquaredLoss(), np.zeros(1), np.zeros(1)),
        (HuberLoss(2.0), np.zeros(1), np.zeros(1)),
        (LogisticLoss(), np.zeros(1), np.ones(1)),
        (SmoothedHinge(0.3), np.array([0.9]), np.ones(1)),
        (MultinomialLoss(3), np.array([[0.0, 0.0, -800.0]]), np.zeros(1, int)),
        (OneVsRestHinge(3, 0.3), np.array([[0.9, 5.0, -5.0]]), np.zeros(1, int)),
    ],
    ids=repr,
)
def test_smoothness_is_attained(loss, scores, target):
    curvature = loss.curvature(scores, target)
    largest = np.linalg.eigvalsh(curvature).max() if curvature.ndim == 3 else curvature.max()
    assert largest == pytest.approx(loss.smoothness, rel=1e-14)


@pytest.mark.parametrize("loss", LOSSES[1:], ids=repr)
def test_lipschitz_constant_is_approached_and_never_exceeded(loss):
    scores, target = draw(loss, np.random.default_rng(0), n=2000, scale=1e4)
    norms = sizes(loss.derivative(scores, target))
    assert norms.max() == pytest.approx(loss.lipschitz, rel=1e-12)
    assert norms.max() <= loss.lipschitz * (1 + 1e-14)


def test_values_agree_with_scipy():
    rng = np.random.default_rng(0)
    scores, target = draw(MultinomialLoss(4), rng)
    expected = -log_softmax(scores, axis=1)[np.arange(N_ROWS), target]
    np.testing.assert_allclose(MultinomialLoss(4).value(scores, target), expected, rtol=1e-13)
    scores, target = draw(LogisticLoss(), rng)
    expected = np.logaddexp(0, -target * scores)
    np.testing.assert_allclose(LogisticLoss().value(scores, target), expected, rtol=1e-13)
    np.testing.assert_allclose(
        LogisticLoss().derivative(scores, target), -target * expit(-target * scores), rtol=1e-13
    )


@pytest.mark.parametrize("step_size", [1e-3, 1.0, 30.0])
def test_proximal_derivative_is_that_of_the_numerical_minimiser(loss, step_size):
    scores, target = draw(loss, np.random.default_rng(1), n=6)
    step = np.full(6, step_size)
    solution = loss.proximal_derivative(scores, target, step)
    for i in range(6):

        def objective(w, i=i):
            w = np.reshape(w, scores[i : i + 1].shape)
            penalty = np.square(w - scores[i]).sum() / (2 * step_size)
            return loss.value(w, target[i : i + 1])[0] + penalty

        if loss.n_outputs == 1:
            middle, reach = scores[i], step_size * 10
            found = minimize_scalar(
                objective, bounds=(middle - reach, middle + reach), options={"xatol": 1e-12}
            ).x
        else:
            found = minimize(objective, scores[i], tol=1e-12).x
        point = scores[i] - step_size * solution[i]
        np.testing.assert_allclose(point, found, atol=3e-5)
        assert objective(point) <= objective(found) + 1e-12


@settings(max_examples=50)
@given(seed=st.integers(0, 2**32 - 1), log_step=st.floats(-6, 6), log_scale=st.floats(-3, 6))
def test_proximal_derivative_solves_its_equation(seed, log_step, log_scale):
    rng = np.random.default_rng(seed)
    step = 10**log_step * rng.uniform(0.1, 1.0, size=N_ROWS)
    for loss in LOSSES:
        scores, target = draw(loss, rng, scale=10**log_scale)
        solution = loss.proximal_derivative(scores, target, step)
        point = scores - lifted(step, scores) * solution
        # A rounding error of the point moves the derivative by as much.
        tolerance = 1e-9 + 1e-14 * (np.abs(scores).max() + step.max())
        np.testing.assert_allclose(loss.derivative(point, target), solution, atol=tolerance)


@pytest.mark.parametrize("step_size", [0.1, 100.0, 1e6])
def test_cold_start_of_the_logistic_solver_is_accurate(step_size):
    loss, rng = LogisticLoss(), np.random.default_rng(0)
    scores = np.concatenate([5 * rng.normal(size=20_000), step_size * rng.uniform(-2, 2, 20_000)])
    target = rng.choice([-1.0, 1.0], size=scores.size)
    step = step_size * rng.uniform(1e-3, 1, scores.size)
    solution = loss.proximal_derivative(scores, target, step)
    # By bisection on the probability.
    low, high = np.zeros_like(scores), np.ones_like(scores)
    for _ in range(60):
        middle = 0.5 * (low + high)
        above = middle > expit(-target * scores - step * middle)
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    assert np.abs(solution + target * high).max() < 1e-10


@pytest.mark.parametrize(("change", "n_steps", "error"), [(0.1, 2, 1e-7), (1.0, 2, 1e-3)])
@pytest.mark.parametrize("step_size", [1.0, 100.0, 1e6])
def test_few_warm_steps_of_the_logistic_solver_suffice(change, n_steps, error, step_size):
    loss, rng = LogisticLoss(), np.random.default_rng(0)
    scores, target = draw(loss, rng, n=20_000)
    step = step_size * rng.uniform(1e-3, 1, scores.size)
    start = loss.proximal_derivative(scores, target, step)
    scores = scores + change * rng.uniform(-1, 1, scores.size)
    exact = loss.proximal_derivative(scores, target, step, n_steps=50)
    found = loss.proximal_derivative(scores, target, step, start, n_steps)
    assert np.abs(found - exact).max() < error


@pytest.mark.parametrize("n_classes", [2, 10, 100])
@pytest.mark.parametrize("step_size", [1e-2, 1.0, 1e2, 1e6])
def test_multinomial_solver_is_accurate_cold_and_warm(n_classes, step_size):
    loss, rng = MultinomialLoss(n_classes), np.random.default_rng(0)
    scores = rng.normal(size=(1000, n_classes)) * 10 ** rng.uniform(-1, 6, size=(1000, 1))
    target = rng.integers(n_classes, size=1000)
    step = step_size * rng.uniform(1e-3, 1, 1000)
    exact = loss.proximal_derivative(scores, target, step, n_steps=100)
    # Residual of the logarithmic form of the equation, where the probability is not negligible.
    probability = exact + np.eye(n_classes)[target]
    level = np.log(np.maximum(probability, 1e-300)) + step[:, None] * exact - scores
    level -= level[np.arange(1000), probability.argmax(axis=1)][:, None]
    scale = np.abs(scores).max() + step_size
    assert np.abs(level[probability > 1e-4]).max() < 1e-10 + 1e-13 * scale
    assert np.abs(loss.proximal_derivative(scores, target, step) - exact).max() < 1e-9
    start = loss.proximal_derivative(
        scores + rng.uniform(-0.1, 0.1, scores.shape), target, step, n_steps=100
    )
    warm = loss.proximal_derivative(scores, target, step, start, n_steps=2)
    assert np.abs(warm - exact).max() < 1e-10


@pytest.mark.parametrize("step_size", [1.0, 100.0, 1e6])
def test_solvers_converge_from_every_start(step_size):
    rng = np.random.default_rng(0)
    for loss in LOSSES[2:]:
        scores, target = draw(loss, rng, n=2000)
        if loss.n_outputs == 1:
            scores[:1000] = step_size * rng.uniform(-1.5, 1.5, size=1000)
        step = step_size * rng.uniform(0.1, 1, 2000)
        exact = loss.proximal_derivative(scores, target, step, n_steps=50)
        start = rng.uniform(-1, 1, scores.shape)
        found = loss.proximal_derivative(scores, target, step, start, n_steps=50)
        np.testing.assert_allclose(found, exact, atol=1e-11)


def test_closed_forms_of_the_squared_and_huber_losses():
    rng = np.random.default_rng(0)
    scores, target = draw(SquaredLoss(), rng)
    step = rng.uniform(0, 10, N_ROWS)
    expected = (scores - target) / (1 + step)
    solution = SquaredLoss().proximal_derivative(scores, target, step)
    np.testing.assert_allclose(solution, expected, rtol=1e-15)
    solution = HuberLoss(0.2).proximal_derivative(scores, target, step)
    np.testing.assert_allclose(solution, np.clip(expected, -0.2, 0.2), rtol=1e-15)


@pytest.mark.parametrize("smoothing", [1e-3, 0.5, 1.0, 4.0])
def test_smoothed_hinge_is_the_envelope_of_the_hinge(smoothing):
    margin = np.linspace(-6, 3, 181)
    # The envelope min_u max(0, 1 - u) + (u - m)^2 / (2 h), at its minimiser m + h, 1 or m.
    near = np.minimum(np.maximum(margin, 1.0), margin + smoothing)
    expected = np.maximum(0, 1 - near) + np.square(near - margin) / (2 * smoothing)
    loss = SmoothedHinge(smoothing)
    for sign in (-1.0, 1.0):
        value = loss.value(sign * margin, np.full(181, sign))
        np.testing.assert_allclose(value, expected, atol=1e-14)
    gap = np.maximum(0, 1 - margin) - expected
    assert gap.min() >= -1e-14
    assert gap.max() == pytest.approx(smoothing / 2)


def test_pieces_of_the_smoothed_hinge_join_smoothly():
    loss, ones = SmoothedHinge(0.5), np.ones(3)
    margins = np.array([1.0, 0.5, 0.5 - 1e-12])
    np.testing.assert_allclose(loss.value(margins, ones), [0, 0.25, 0.25], atol=1e-11)
    np.testing.assert_allclose(loss.derivative(margins, ones), [0, -1, -1], atol=1e-11)


@pytest.mark.parametrize("n_classes", [2, 5])
def test_one_against_the_rest_is_a_sum_of_binary_hinges(n_classes):
    rng, binary = np.random.default_rng(0), SmoothedHinge(0.8)
    loss = OneVsRestHinge(n_classes, smoothing=0.8)
    scores, target = draw(loss, rng)
    step, signs = rng.uniform(0, 10, N_ROWS), signs_of(loss, target)
    columns = range(n_classes)
    value = sum(binary.value(scores[:, k], signs[:, k]) for k in columns)
    np.testing.assert_allclose(loss.value(scores, target), value, rtol=1e-15)
    solution = loss.proximal_derivative(scores, target, step)
    curvature = loss.curvature(scores, target)
    for k in columns:
        alone = scores[:, k], signs[:, k]
        np.testing.assert_array_equal(
            loss.derivative(scores, target)[:, k], binary.derivative(*alone)
        )
        np.testing.assert_array_equal(curvature[:, k, k], binary.curvature(*alone))
        np.testing.assert_array_equal(solution[:, k], binary.proximal_derivative(*alone, step))
    assert np.count_nonzero(curvature * (1 - np.eye(n_classes))) == 0


def test_wright_omega_agrees_with_scipy():
    x = np.concatenate([np.linspace(-680, 1000, 5001), np.linspace(-20, 20, 5001), [1e10, 1e300]])
    omega = _wright_omega(x.copy(), np.empty((4, x.size)))
    np.testing.assert_allclose(omega, wrightomega(x), rtol=1e-13)


def test_step_zero_gives_the_derivative(loss):
    scores, target = draw(loss, np.random.default_rng(0))
    solution = loss.proximal_derivative(scores, target, np.zeros(N_ROWS))
    np.testing.assert_allclose(solution, loss.derivative(scores, target), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("with_start", [False, True])
def test_extreme_arguments_give_feasible_results_without_warnings(loss, with_start):
    extremes = np.array([0.0, 1e-300, -1e-300, 1.0, 700.0, -710.0, 1e6, -1e6, 1e300, -1e300])
    rng = np.random.default_rng(0)
    n = 3000
    scores, target = draw(loss, rng, n=n)
    scores = rng.choice(extremes, size=scores.shape)
    step = rng.choice([0.0, 1e-320, 1e-300, 1e-10, 1.0, 1e6, 1e15, 1e300, 1e308], size=n)
    start = None
    if with_start:
        start = rng.choice([0.0, 1.0, -1.0, 0.5, 1e300], size=scores.shape)
    with warnings.catch_warnings(), np.errstate(all="raise"):
        warnings.simplefilter("error")
        solution = loss.proximal_derivative(scores, target, step, start)
        derivative = loss.derivative(scores, target)
        value = loss.value(scores, target)
        curvature = loss.curvature(scores, target)
    assert np.isfinite(solution).all()
    assert np.isfinite(derivative).all()
    assert np.isfinite(curvature).all()
    assert (value >= 0).all()
    if not isinstance(loss, SquaredLoss):
        assert np.isfinite(value).all()
    assert (sizes(solution) <= loss.lipschitz * (1 + 1e-12)).all()


@pytest.mark.parametrize("n_steps", [0, 1, 2])
def test_too_few_steps_cost_accuracy_and_not_the_bound(loss, n_steps):
    rng = np.random.default_rng(0)
    scores, target = draw(loss, rng, scale=100.0)
    step = 10 ** rng.uniform(-6, 6, N_ROWS)
    start = 10 * rng.normal(size=scores.shape)
    for begin in (None, start):
        solution = loss.proximal_derivative(scores, target, step, begin, n_steps)
        assert np.isfinite(solution).all()
        assert (sizes(solution) <= loss.lipschitz * (1 + 1e-12)).all()


@given(seed=st.integers(0, 2**32 - 1), log_step=st.floats(-4, 4))
def test_proximal_operator_is_firmly_non_expansive(seed, log_step):
    rng = np.random.default_rng(seed)
    step = np.full(N_ROWS, 10**log_step)
    for loss in LOSSES:
        first, target = draw(loss, rng)
        second = first + rng.normal(size=first.shape)
        points = [
            scores - lifted(step, scores) * loss.proximal_derivative(scores, target, step)
            for scores in (first, second)
        ]
        moved = (points[0] - points[1]).reshape(N_ROWS, -1)
        given_ = (first - second).reshape(N_ROWS, -1)
        slack = 1e-9 * (1 + step)
        assert (np.square(moved).sum(axis=1) <= (moved * given_).sum(axis=1) + slack).all()


@given(seed=st.integers(0, 2**32 - 1), log_step=st.floats(-3, 3), limit=st.floats(1e-3, 2.0))
def test_clipped_proximal_derivative_is_that_of_the_huberised_loss(seed, log_step, limit):
    rng = np.random.default_rng(seed)
    step = np.full(N_ROWS, 10**log_step)
    for loss in SCALAR:
        scores, target = draw(loss, rng)
        found = clip_derivative(loss.proximal_derivative(scores, target, step), limit)
        # The Huberised loss has the derivative clip(loss'). Bisection on its prox equation.
        low, high = np.full(N_ROWS, -limit), np.full(N_ROWS, limit)
        for _ in range(60):
            middle = 0.5 * (low + high)
            slope = np.clip(loss.derivative(scores - step * middle, target), -limit, limit)
            low, high = (
                np.where(middle < slope, middle, low),
                np.where(middle < slope, high, middle),
            )
        np.testing.assert_allclose(found, high, atol=1e-9)


@pytest.mark.parametrize(
    "keep", [[0], [5], [63], [3, 40], list(range(31)), list(range(63, -1, -1))]
)
def test_a_row_does_not_depend_on_other_rows(loss, keep):
    keep = list(keep)
    rng = np.random.default_rng(0)
    scores, target = draw(loss, rng)
    step = 10 ** rng.uniform(-3, 3, N_ROWS)
    start = loss.proximal_derivative(scores + 0.1, target, step)

    def everything(scores, target, step, start):
        return [
            loss.value(scores, target),
            loss.derivative(scores, target),
            loss.curvature(scores, target),
            loss.proximal_derivative(scores, target, step),
            loss.proximal_derivative(scores, target, step, start, 2),
            clip_derivative(loss.derivative(scores, target), 0.3 * step),
        ]

    whole = everything(scores, target, step, start)
    alone = everything(scores[keep], target[keep], step[keep], start[keep])
    other = [scores + 1e6, target, step * 1e3, np.zeros_like(start)]
    for changed, original in zip(other, (scores, target, step, start), strict=True):
        changed[keep] = original[keep]
    among_others = everything(*other)
    for all_rows, some_rows, replaced in zip(whole, alone, among_others, strict=True):
        np.testing.assert_array_equal(all_rows[keep], some_rows)
        np.testing.assert_array_equal(all_rows[keep], replaced[keep])


def test_arguments_are_left_alone(loss):
    scores, target = draw(loss, np.random.default_rng(0))
    step = np.ones(N_ROWS)
    start = loss.derivative(scores, target)
    arguments = [scores, target, step, start]
    copies = [array.copy() for array in arguments]
    for method in (loss.value, loss.derivative, loss.curvature):
        method(scores, target)
    loss.proximal_derivative(scores, target, step, start, n_steps=2)
    clip_derivative(scores, step)
    for array, copy in zip(arguments, copies, strict=True):
        np.testing.assert_array_equal(array, copy)


@given(scores=arrays(np.float64, (5, 2), elements=st.floats(-50, 50)), log_step=st.floats(-3, 3))
def test_two_classes_agree_with_the_logistic_loss_of_the_difference(scores, log_step):
    loss, binary = MultinomialLoss(2), LogisticLoss()
    target = np.array([0, 1, 1, 0, 1])
    sign = 2.0 * target - 1.0
    difference = scores[:, 1] - scores[:, 0]
    np.testing.assert_allclose(
        loss.value(scores, target), binary.value(difference, sign), rtol=1e-12, atol=1e-13
    )
    derivative = binary.derivative(difference, sign)
    np.testing.assert_allclose(loss.derivative(scores, target)[:, 1], derivative, atol=1e-14)
    curvature = loss.curvature(scores, target)[:, 1, 1]
    np.testing.assert_allclose(curvature, binary.curvature(difference, sign), atol=1e-14)
    # A step on both scores moves their difference twice as far.
    step = np.full(5, 10**log_step)
    solution = loss.proximal_derivative(scores, target, step)
    expected = binary.proximal_derivative(difference, sign, 2 * step)
    np.testing.assert_allclose(solution[:, 1], expected, atol=1e-11)
    np.testing.assert_allclose(solution[:, 0], -expected, atol=1e-11)
