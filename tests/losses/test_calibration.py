"""Probabilities that undo the clip, and that know how noisy their scores are."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.special import log_expit, log_softmax

from skdpadmm.losses import clip_derivative, moderate, undo_clip


def binary(margin):
    return np.column_stack([log_expit(-margin), log_expit(margin)])


@pytest.mark.parametrize("q", [0.3, 0.5, 0.62])
@pytest.mark.parametrize("bound", [0.45, 0.7, 2.0])
def test_clipped_derivatives_balance_at_the_probability_that_comes_out(q, bound):
    # Where a share q of records is of class 1, the clipped fit ends at this margin.
    def pull(margin):
        up, down = -1 / (1 + np.exp(margin)), 1 / (1 + np.exp(-margin))
        return (
            q * clip_derivative(np.array([up]), bound)[0]
            + (1 - q) * clip_derivative(np.array([down]), bound)[0]
        )

    margin = brentq(pull, -20, 20)
    found = np.exp(undo_clip(binary(np.array([margin])), bound))[0, 1]
    assert found == pytest.approx(q, abs=2e-3)


@given(
    st.lists(st.floats(-30, 30), min_size=2, max_size=6),
    st.floats(1e-3, 10),
    st.floats(0, 100),
)
def test_they_are_probabilities_in_the_order_of_the_scores(scores, bound, variance):
    log_probability = log_softmax(np.array([scores]), axis=1)
    found = moderate(undo_clip(log_probability, bound), variance)
    assert np.exp(found).sum() == pytest.approx(1)
    order = np.argsort(log_probability[0], kind="stable")
    assert np.all(np.diff(found[0][order]) >= -1e-9)


def test_nothing_changes_without_clip_and_noise():
    log_probability = binary(np.linspace(-5, 5, 11))
    np.testing.assert_allclose(
        moderate(undo_clip(log_probability, np.inf), 0.0), log_probability, atol=1e-12
    )


def test_noise_takes_away_certainty():
    log_probability = binary(np.array([3.0]))
    sure = [np.exp(moderate(log_probability, v))[0, 1] for v in (0.0, 1.0, 10.0, 1e6)]
    assert sure == sorted(sure, reverse=True)
    assert sure[-1] == pytest.approx(0.5, abs=0.01)
