"""The clip of a derivative, scores that undo it, and probabilities that know their noise."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import brentq
from scipy.special import expit, log_expit, log_softmax

from skdpadmm.losses import LogisticLoss, MultinomialLoss, WeightedLoss, clip_derivative, moderate
from skdpadmm.losses._loss import balanced

LIMITS = st.one_of(st.floats(1e-250, 1e308), st.just(0.0), st.just(np.inf))


@given(derivative=arrays(np.float64, (3, 4), elements=st.floats()), limit=LIMITS)
def test_the_clip_is_bounded_for_every_float_and_leaves_alone_what_is_within(derivative, limit):
    scalars, vectors = derivative.ravel(), clip_derivative(derivative, np.full(3, limit))
    clipped = clip_derivative(scalars, limit)
    expected = np.where(np.isfinite(scalars), np.clip(scalars, -limit, limit), 0.0)
    np.testing.assert_array_equal(clipped, expected)
    for row, result in zip(derivative, vectors, strict=True):
        assert np.isfinite(result).all()
        # math.hypot neither overflows nor underflows before its result does.
        assert math.hypot(*result) <= (limit * (1 + 1e-12) if np.isfinite(row).all() else 0)
        if np.isfinite(row).all() and math.hypot(*row) <= limit * (1 - 1e-12):
            np.testing.assert_array_equal(result, row)


@pytest.mark.parametrize("size", [1e-300, 1e-200, 1.0, 1e200, 1e308])
def test_vectors_keep_their_direction_at_every_scale(size):
    derivative = size * np.array([[1.0, -1.0, 0.5, 0.0]])
    clipped = clip_derivative(derivative, size / 3)
    np.testing.assert_allclose(clipped / size, derivative / size / 4.5, rtol=1e-12)


def binary(margin):
    return np.column_stack([log_expit(-margin), log_expit(margin)])


@pytest.mark.parametrize("q", [0.3, 0.5, 0.62])
@pytest.mark.parametrize("bound", [0.45, 0.7, 2.0])
@pytest.mark.parametrize("weight", [1.0, 3.0])
def test_clipped_derivatives_balance_at_the_probability_that_comes_out(q, bound, weight):
    # Where a share q of the records is of class 1, and counts more, the clipped fit ends here.
    share = q / (weight + q * (1 - weight))

    def pull(margin):
        derivatives = np.array([-weight * expit(-margin), expit(margin)])
        up, down = clip_derivative(derivatives, bound)
        return share * up + (1 - share) * down

    margin = brentq(pull, -20, 20)
    bounds = bound / np.array([1.0, weight])
    p = np.exp(binary(np.array([margin])))
    found = balanced(p, 1.0 - p, bounds)[0, 1]
    assert found == pytest.approx(q, abs=1e-9)


LOSSES = [LogisticLoss(), MultinomialLoss(3), WeightedLoss(LogisticLoss(), (1.0, 3.0))]


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
def test_a_tighter_clip_has_stretched_scores_more_and_an_open_one_not_at_all(loss):
    k = max(loss.n_outputs, 2)
    covariance = 4.0 * np.eye(loss.n_outputs)
    scales = [loss.unclipped_scale(covariance, np.full(k, bound)) for bound in (9.0, 0.6, 0.4, 0.1)]
    assert scales[0] == 1.0
    assert scales == sorted(scales, reverse=True)
    assert 0.5 <= scales[-1] < scales[1] < 1.0


SCORES = st.lists(st.floats(-30, 30), min_size=2, max_size=6)


@given(scores=SCORES, variance=st.floats(0, 100))
def test_they_are_probabilities_in_the_order_of_the_scores(scores, variance):
    log_probability = log_softmax(np.array([scores]), axis=1)
    found = moderate(log_probability, variance)
    assert np.exp(found).sum() == pytest.approx(1)
    order = np.argsort(log_probability[0], kind="stable")
    assert np.all(np.diff(found[0][order]) >= -1e-9)


def test_noise_and_doubt_take_away_certainty_and_nothing_else_changes():
    log_probability = binary(np.linspace(-5, 5, 11))
    without = moderate(log_probability, 0.0)
    np.testing.assert_allclose(without, log_probability, atol=1e-12)
    for variance in (1.0, 10.0):
        odds = np.diff(moderate(log_probability, variance), axis=1)[:, 0]
        np.testing.assert_allclose(odds, np.linspace(-5, 5, 11) / np.sqrt(1 + np.pi * variance / 8))
    doubtful = np.exp(moderate(log_probability, 0.0, doubt=0.25))
    np.testing.assert_allclose(doubtful, 0.75 * np.exp(log_probability) + 0.125, rtol=1e-12)
