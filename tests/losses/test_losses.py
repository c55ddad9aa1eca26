"""The contract of the losses: derivatives, constants, proximal derivatives, rows."""

import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, log_softmax
from sklearn.metrics import mean_tweedie_deviance

from skdpadmm.losses import (
    HuberLoss,
    LogisticLoss,
    MultinomialLoss,
    OneVsRestHinge,
    SmoothedHinge,
    SmoothedPinball,
    SquaredLoss,
    TweedieLoss,
    WeightedLoss,
    clip_derivative,
)

SCALAR = [SquaredLoss(), HuberLoss(threshold=1.3), LogisticLoss(), SmoothedHinge(smoothing=0.6)]
RATES = [TweedieLoss(1.0, 0.0, 5.0), TweedieLoss(1.4, 0.5, 4.0), TweedieLoss(2.0, 0.3, 4.0)]
SCALAR += [*RATES, SmoothedPinball(0.2, 0.6)]
WEIGHTED = [
    WeightedLoss(LogisticLoss(), (0.3, 7.0)),
    WeightedLoss(SmoothedHinge(0.6), (9.0, 1.0)),
    WeightedLoss(MultinomialLoss(3), (0.1, 5.0, 1.0)),
    WeightedLoss(OneVsRestHinge(3, smoothing=1.7), (0.1, 5.0, 1.0)),
]
SCALAR += WEIGHTED[:2]
LOSSES = [*SCALAR, *WEIGHTED[2:], MultinomialLoss(3), MultinomialLoss(10)]
LOSSES.append(OneVsRestHinge(4, smoothing=1.7))
ITERATED = [LogisticLoss(), MultinomialLoss(2), MultinomialLoss(10), MultinomialLoss(100)]
SEEDS, N = st.integers(0, 2**32 - 1), 64


def draw(loss, rng, n=N, scale=3.0):
    scores = scale * rng.normal(size=n if loss.n_outputs == 1 else (n, loss.n_outputs))
    if loss.n_outputs > 1:
        return scores, rng.integers(loss.n_outputs, size=n)
    two_classes = isinstance(loss.unweighted, LogisticLoss | SmoothedHinge)
    return scores, rng.choice([-1.0, 1.0], size=n) if two_classes else rng.normal(size=n)


def signs_of(loss, target):
    return 2.0 * np.eye(loss.n_outputs)[target] - 1.0


def far_from_kinks(loss, scores, target):
    """Records at which the derivative of the loss is itself differentiable."""
    loss = loss.unweighted
    if isinstance(loss, TweedieLoss):
        with np.errstate(divide="ignore"):
            ends = np.log([[loss.lowest], [loss.largest]])
        return np.abs(scores - ends).min(axis=0) > 1e-3
    if isinstance(loss, SmoothedPinball):
        return np.abs(np.abs(scores - target) - loss.smoothing / 2) > 1e-3
    if isinstance(loss, HuberLoss):
        return np.abs(np.abs(scores - target) - loss.threshold) > 1e-3
    if isinstance(loss, SmoothedHinge | OneVsRestHinge):
        margin = (target if loss.n_outputs == 1 else signs_of(loss, target)) * scores
        near = np.minimum(np.abs(margin - 1), np.abs(margin - 1 + loss.smoothing)) < 1e-3
        return ~near.reshape(len(scores), -1).any(axis=1)
    return np.ones(len(scores), bool)


def sizes(steps):
    return np.abs(steps) if steps.ndim == 1 else np.linalg.norm(steps, axis=1)


@pytest.fixture(params=LOSSES, ids=repr)
def loss(request):
    return request.param


@given(seed=SEEDS)
def test_derivative_and_curvature_are_slopes_within_the_public_constants(seed):
    rng, h = np.random.default_rng(seed), 1e-5
    for loss in LOSSES:
        scores, target = draw(loss, rng)
        direction, smooth = rng.normal(size=scores.shape), far_from_kinks(loss, scores, target)
        derivative, curvature = loss.derivative(scores, target), loss.curvature(scores, target)
        one = loss.n_outputs == 1
        bend = curvature * direction if one else np.einsum("nij,nj->ni", curvature, direction)
        along = (direction * derivative).reshape(N, -1).sum(axis=1)
        for method, expected in ((loss.value, along), (loss.derivative, bend)):
            change = method(scores + h * direction, target) - method(scores - h * direction, target)
            np.testing.assert_allclose(change[smooth] / (2 * h), expected[smooth], atol=1e-8)
        eigenvalues = curvature if one else np.linalg.eigvalsh(curvature)
        assert eigenvalues.max() <= loss.smoothness + 1e-14
        assert eigenvalues.min() >= -1e-14
        assert sizes(derivative).max() <= loss.lipschitz * (1 + 1e-14)


def test_the_constants_are_the_smallest_there_are():
    constants = {SquaredLoss(): (math.inf, 1), HuberLoss(2.0): (2, 1), LogisticLoss(): (1, 0.25)}
    constants |= {TweedieLoss(1, 0, 20): (20, 20), TweedieLoss(2, 0.5, 4): (7, 8)}
    constants |= {SmoothedPinball(0.2, 0.6): (0.8, 1 / 0.6)}
    constants |= {SmoothedHinge(0.3): (1, 1 / 0.3), OneVsRestHinge(3, 0.3): (3**0.5, 1 / 0.3)}
    constants |= {MultinomialLoss(3): (2**0.5, 0.5), WEIGHTED[0]: (7, 7 / 4)}
    for loss, expected in constants.items():
        assert (loss.lipschitz, loss.smoothness) == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize("loss", [*RATES, TweedieLoss(1.7, 1e-3, 50.0)], ids=repr)
def test_constants_of_rates_are_attained_at_the_ends_of_their_range(loss):
    least = max(loss.lowest, 1e-9)
    rates, targets = np.meshgrid(np.geomspace(least, loss.largest, 301), [-9.0, least, 1.0, 99.0])
    scores, targets = np.log(rates).ravel(), targets.ravel()
    inside = np.clip(scores, np.log(least) + 1e-12, np.log(loss.largest) - 1e-12)
    derivative, curvature = loss.derivative(scores, targets), loss.curvature(inside, targets)
    assert np.abs(derivative).max() == pytest.approx(loss.lipschitz, rel=1e-8)
    assert curvature.max() == pytest.approx(loss.smoothness, rel=1e-8)


@pytest.mark.parametrize("loss", RATES, ids=repr)
def test_losses_of_rates_are_half_of_deviances_and_do_not_depend_on_the_unit(loss):
    rng = np.random.default_rng(0)
    rates, target = rng.uniform(0.6, 4.0, (2, N))
    change = loss.value(np.log(rates), target) - loss.value(np.zeros(N), target)
    for k in range(N):
        deviances = [
            mean_tweedie_deviance(target[[k]], [rate], power=loss.power) for rate in (rates[k], 1)
        ]
        assert change[k] == pytest.approx((deviances[0] - deviances[1]) / 2, abs=1e-12)
    derivative = loss.in_units(7.0).derivative(np.log(rates / 7), target / 7)
    expected = loss.derivative(np.log(rates), target)
    np.testing.assert_allclose(7**loss.degree * derivative, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("q", [0.5, 0.1])
def test_a_smoothed_pinball_loss_is_a_mean_of_pinball_losses(q):
    loss, scores = SmoothedPinball(q, 0.6), np.linspace(-1, 1, 41)
    nearby = scores[:, None] + 0.6 * (np.arange(2000) + 0.5) / 2000 - 0.3
    expected = np.where(nearby > 0, (1 - q) * nearby, -q * nearby).mean(axis=1)
    np.testing.assert_allclose(loss.value(scores, np.zeros(41)), expected, atol=1e-7)
    sharp = np.where(scores > 0, (1 - q) * scores, -q * scores)
    assert (loss.value(scores, np.zeros(41)) - sharp).max() == pytest.approx(0.6 / 8)


def test_values_are_those_of_scipy_and_of_closed_forms():
    rng = np.random.default_rng(0)
    scores, target = draw(MultinomialLoss(4), rng)
    expected = -log_softmax(scores, axis=1)[np.arange(N), target]
    np.testing.assert_allclose(MultinomialLoss(4).value(scores, target), expected, rtol=1e-13)
    hinge = OneVsRestHinge(4, 0.8)
    alone = SmoothedHinge(0.8).value(scores.ravel(), signs_of(hinge, target).ravel())
    np.testing.assert_allclose(hinge.value(scores, target), alone.reshape(N, 4).sum(axis=1))
    scores, target = draw(LogisticLoss(), rng)
    expected = np.logaddexp(0, -target * scores)
    np.testing.assert_allclose(LogisticLoss().value(scores, target), expected, rtol=1e-13)
    np.testing.assert_allclose(SquaredLoss().value(scores, target), (scores - target) ** 2 / 2)
    # The envelope min_u max(0, 1 - u) + (u - m)^2 / (2 h), at its minimiser m + h, 1 or m.
    for smoothing, margin in ((0.001, target * scores), (4.0, target * scores)):
        near = np.minimum(np.maximum(margin, 1.0), margin + smoothing)
        expected = np.maximum(0, 1 - near) + np.square(near - margin) / (2 * smoothing)
        np.testing.assert_allclose(SmoothedHinge(smoothing).value(scores, target), expected)
    size = np.abs(scores - target)
    expected = np.where(size <= 1.3, size**2 / 2, 1.3 * (size - 0.65))
    np.testing.assert_allclose(HuberLoss(1.3).value(scores, target), expected, atol=1e-14)
    for loss in (HuberLoss(1.3), SquaredLoss(), SmoothedPinball(0.2, 0.6)):
        units = 7**loss.degree * loss.in_units(7.0).value(scores / 7, target / 7)
        np.testing.assert_allclose(units, loss.value(scores, target), rtol=1e-12)


@settings(max_examples=50)
@given(seed=SEEDS, log_step=st.floats(-6, 6), log_scale=st.floats(-3, 6), limit=st.floats(1e-3, 2))
def test_proximal_derivatives_solve_their_equations_with_and_without_a_clip(
    seed, log_step, log_scale, limit
):
    rng = np.random.default_rng(seed)
    step = 10**log_step * rng.uniform(0.0, 1.0, size=N) * rng.integers(0, 2, size=N)
    for loss in LOSSES:
        scores, target = draw(loss, rng, scale=10**log_scale)
        solution, lifted = loss.proximal_derivative(scores, target, step), step
        if loss.n_outputs > 1:
            lifted = step[:, None]
        # A rounding error of the point moves the derivative by as much.
        tolerance = 1e-9 + 1e-14 * (np.abs(scores).max() + step.max())
        found = loss.derivative(scores - lifted * solution, target)
        np.testing.assert_allclose(found, solution, atol=tolerance)
        if loss.n_outputs == 1:
            # The Huberised loss, with the derivative clip(loss'), has the clipped one.
            clipped = clip_derivative(solution, limit)
            slope = np.clip(loss.derivative(scores - step * clipped, target), -limit, limit)
            np.testing.assert_allclose(slope, clipped, atol=tolerance)


@pytest.mark.parametrize("step_size", [1e-2, 1.0, 100.0, 1e6])
@pytest.mark.parametrize("loss", ITERATED, ids=repr)
def test_iterated_solvers_are_accurate_cold_and_warm(loss, step_size):
    rng, n = np.random.default_rng(0), 400
    scores, target = draw(loss, rng, n=n)
    scores[: n // 2] *= step_size * 10 ** rng.uniform(-2, 0)
    step = step_size * rng.uniform(1e-3, 1, n)
    exact = loss.proximal_derivative(scores, target, step, n_steps=100)
    if loss.n_outputs == 1:  # by bisection on the probability
        low, high = np.zeros(n), np.ones(n)
        for _ in range(60):
            middle = 0.5 * (low + high)
            above = middle > expit(-target * scores - step * middle)
            low, high = np.where(above, low, middle), np.where(above, middle, high)
        np.testing.assert_allclose(exact, -target * high, atol=1e-12)
    else:  # log p + step p - s + step e_y is constant, where p is not negligible
        probability = exact + np.eye(loss.n_outputs)[target]
        level = np.log(np.maximum(probability, 1e-300)) + step[:, None] * exact - scores
        level -= level[np.arange(n), probability.argmax(axis=1)][:, None]
        scale = np.abs(scores).max() + step_size
        assert np.abs(level[probability > 1e-4]).max() < 1e-10 + 1e-13 * scale
    cold = loss.proximal_derivative(scores, target, step)
    np.testing.assert_allclose(cold, exact, atol=1e-9)
    nearby = scores + rng.uniform(-0.1, 0.1, scores.shape)
    near = loss.proximal_derivative(nearby, target, step, n_steps=100)
    warm = loss.proximal_derivative(scores, target, step, near, n_steps=2)
    np.testing.assert_allclose(warm, exact, atol=1e-7)


@pytest.mark.parametrize("n_steps", [0, 1, 2])
def test_extreme_arguments_and_few_steps_give_feasible_results_without_warnings(loss, n_steps):
    rng, n = np.random.default_rng(0), 3000
    scores, target = draw(loss, rng, n=n)
    extremes = [0.0, 1e-300, -1e-300, 1.0, 700.0, -710.0, 1e6, -1e6, 1e300, -1e300]
    scores = rng.choice(extremes, size=scores.shape)
    step = rng.choice([0.0, 1e-320, 1e-300, 1e-10, 1.0, 1e6, 1e15, 1e300, 1e308], size=n)
    start = rng.choice([0.0, 1.0, -1.0, 0.5, 1e300], size=scores.shape)
    with warnings.catch_warnings(), np.errstate(all="raise"):
        warnings.simplefilter("error")
        results = [loss.derivative(scores, target), loss.curvature(scores, target)]
        for begin in (None, start):
            results.append(loss.proximal_derivative(scores, target, step, begin, n_steps))
        value = loss.value(scores, target)
    assert all((sizes(r) <= loss.lipschitz * (1 + 1e-12)).all() for r in results[2:])
    assert all(np.isfinite(result).all() for result in results)
    # Of rates up to a constant of the target.
    assert loss.has_log_link or (value >= 0).all()
    assert loss == SquaredLoss() or np.isfinite(value).all()


@pytest.mark.parametrize("keep", [[0], [3, 40], [*range(63, -1, -1)]])
def test_a_row_does_not_depend_on_other_rows_and_arguments_are_left_alone(loss, keep):
    rng = np.random.default_rng(0)
    scores, target = draw(loss, rng)
    step = 10 ** rng.uniform(-3, 3, N)
    start = loss.proximal_derivative(scores + 0.1, target, step)

    def everything(scores, target, step, start):
        methods = (loss.value, loss.derivative, loss.curvature)
        solutions = [loss.proximal_derivative(scores, target, step, *w) for w in ((), (start, 2))]
        return [*(method(scores, target) for method in methods), *solutions]

    given = [scores, target, step, start]
    before = [array.copy() for array in given]
    alone = everything(*(array[keep] for array in given))
    for whole, some in zip(everything(*given), alone, strict=True):
        np.testing.assert_allclose(whole[keep], some, rtol=1e-12, atol=1e-14)
    for array, kept in zip(given, before, strict=True):
        np.testing.assert_array_equal(array, kept)


@pytest.mark.parametrize("loss", SCALAR, ids=repr)
def test_the_slope_of_one_record_has_the_bits_of_its_derivative(loss):
    class Doubled(type(loss)):
        smoothness = lipschitz = math.inf

        def derivative(self, scores, target):
            return 2.0 * super().derivative(scores, target)

    doubled = Doubled(**vars(loss))
    scores, target = draw(loss, np.random.default_rng(0), n=500, scale=300.0)
    pairs = list(zip(scores.tolist(), target.tolist(), strict=True))
    assert [loss.slope(*pair) for pair in pairs] == loss.derivative(scores, target).tolist()
    assert [doubled.slope(*pair) for pair in pairs] == doubled.derivative(scores, target).tolist()


@pytest.mark.parametrize("value", [0.0, -1.0, np.inf, np.nan])
def test_parameters_without_meaning_are_refused(value):
    for make in (HuberLoss, SmoothedHinge, lambda h: OneVsRestHinge(3, h)):
        with pytest.raises(ValueError, match=r"Got (threshold|smoothing)=.*\(0, inf\)"):
            make(value)
    with pytest.raises(ValueError, match="Got quantile="):
        SmoothedPinball(1.5 if value > 0 else value, 1.0)
    with pytest.raises(ValueError, match="Got power="):
        TweedieLoss(2.5 if value > 0 else value, 1.0, 2.0)
    for pair in ((0.0, 2.0), (2.0, 1.0), (-1.0, 1.0), (1.0, math.inf)):
        with pytest.raises(ValueError, match=r"Got target_bounds=\(.*unless power is 1"):
            TweedieLoss(1.5, *pair)
    for make in (MultinomialLoss, lambda k: OneVsRestHinge(k, smoothing=1.0)):
        with pytest.raises(ValueError, match="Got n_classes=1, expected an int >= 2"):
            make(1)
