"""The clip of a derivative, the scale that undoes it, and probabilities of noisy scores."""

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
    p = np.exp(binary(np.array([margin])))
    found = balanced(p, 1.0 - p, bound / np.array([1.0, weight]))
    assert found[0, 1] == pytest.approx(q, abs=1e-9)


def scale(loss, size, bound):
    """Of scores of that standard deviation."""
    n = loss.n_outputs
    return loss.unclipped_scale(size**2 * np.eye(n), np.full(max(n, 2), bound))


LOSSES = [LogisticLoss(), MultinomialLoss(3), WeightedLoss(LogisticLoss(), (1.0, 0.5))]


@pytest.mark.parametrize("loss", LOSSES)
@given(size=st.floats(0.1, 30), bound=st.floats(1e-6, 3))
def test_a_tighter_clip_stretches_scores_more_and_by_no_more_than_twice(loss, size, bound):
    factors = [scale(loss, size, c) for c in (0.8 * bound, bound, 1.5, 1e300)]
    # No derivative of norm 1.5 is reached.
    assert factors[2] == pytest.approx(1.0, abs=1e-9)
    assert factors[3] == pytest.approx(1.0, abs=1e-9)
    assert 0.5 <= factors[0] <= factors[1] + 1e-9 <= 1 + 2e-9


@pytest.mark.parametrize("loss", LOSSES)
def test_a_derivative_of_ones_own_has_no_scale_that_undoes_its_clip(loss):
    class Own(type(loss)):
        smoothness, lipschitz = 4.0, 2.0

        def derivative(self, scores, target):
            return super().derivative(2 * scores, target)

    assert scale(loss, 2.0, 0.2) < 1.0
    own = Own(*vars(loss).values())
    assert scale(own, 2.0, 0.2) == 1.0


def test_scores_of_a_clipped_population_are_those_without_a_clip_after_the_scale():
    scores, weights = np.polynomial.hermite_e.hermegauss(64)
    truth, weights = expit(2 * scores), weights / weights.sum()

    def pull(slope, bound):
        up, down = (
            clip_derivative(d, bound) for d in (-expit(-slope * scores), expit(slope * scores))
        )
        return weights @ ((truth * up + (1 - truth) * down) * scores)

    for bound in (0.2, 0.4, 0.7):
        clipped = brentq(pull, 0.1, 20, args=(bound,))
        assert clipped > 2.0
        assert clipped * scale(LogisticLoss(), clipped, bound) == pytest.approx(2.0, rel=0.12)


@pytest.mark.parametrize("variance", [0.3, 2.0, 10.0])
def test_scores_of_a_fit_at_noisy_points_are_those_at_exact_ones_after_the_scale(variance):
    nodes, weights = np.polynomial.hermite_e.hermegauss(64)
    truth, noise = expit(2 * nodes), variance**0.5 * nodes

    def pull(slope):
        at_noisy_points = expit(slope * nodes[:, None] + noise) @ weights / weights.sum()
        return weights @ ((at_noisy_points - truth) * nodes)

    stretched = brentq(pull, 0.1, 50)
    assert stretched > 2.05
    for loss in (LogisticLoss(), WeightedLoss(LogisticLoss(), (2.0, 2.0))):
        factor = loss.unclipped_scale(np.array([[stretched**2]]), np.full(2, 1e9), variance)
        assert stretched * factor == pytest.approx(2.0, rel=0.05)


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
