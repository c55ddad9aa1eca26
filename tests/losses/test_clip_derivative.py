"""The clip bounds every record's contribution, whatever the derivative."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from skdpadmm.losses import clip_derivative

ANY_FLOAT = st.floats(allow_nan=True, allow_infinity=True)
LIMITS = st.one_of(st.floats(0, 1e308), st.floats(1e-200, 10.0), st.just(0.0), st.just(np.inf))


@given(derivative=arrays(np.float64, 4, elements=ANY_FLOAT), limit=LIMITS)
def test_scalar_clip_is_bounded_for_every_float(derivative, limit):
    clipped = clip_derivative(derivative, limit)
    finite = np.isfinite(derivative)
    assert (np.abs(clipped) <= limit).all()
    assert np.isfinite(clipped).all()
    assert (clipped[~finite] == 0).all()
    within = finite & (np.abs(derivative) <= limit)
    np.testing.assert_array_equal(clipped[within], derivative[within])


@given(
    derivative=arrays(np.float64, (3, 4), elements=ANY_FLOAT),
    limit=st.one_of(st.floats(1e-250, 1e308), st.just(0.0), st.just(np.inf)),
)
def test_vector_clip_is_bounded_for_every_float(derivative, limit):
    clipped = clip_derivative(derivative, np.full(3, limit))
    assert np.isfinite(clipped).all()
    for row, result in zip(derivative, clipped, strict=True):
        if np.isfinite(row).all():
            # math.hypot neither overflows nor underflows before its result does.
            assert math.hypot(*result) <= limit * (1 + 1e-12)
            if math.hypot(*row) <= limit * (1 - 1e-12):
                np.testing.assert_array_equal(result, row)
        else:
            assert (result == 0).all()


@pytest.mark.parametrize("size", [1e-300, 1e-200, 1.0, 1e200, 1e308])
def test_vector_clip_keeps_the_direction_at_every_scale(size):
    derivative = size * np.array([[1.0, -1.0, 0.5, 0.0]])
    limit = size / 3
    clipped = clip_derivative(derivative, limit)
    np.testing.assert_allclose(clipped / size, derivative / size / 4.5, rtol=1e-12)


def test_every_record_has_its_own_limit():
    limit = np.array([0.0, 1.0, 2.0, np.inf])
    np.testing.assert_array_equal(clip_derivative(np.full(4, -9.0), limit), [0, -1, -2, -9])
    vectors = clip_derivative(np.tile([3.0, 4.0], (4, 1)), limit)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), [0, 1, 2, 5], rtol=1e-15)


def test_one_infinite_score_silences_its_record_only():
    clipped = clip_derivative(np.array([[1.0, np.inf], [0.3, 0.4], [np.nan, 0.0]]), 1.0)
    np.testing.assert_array_equal(clipped, [[0, 0], [0.3, 0.4], [0, 0]])
