"""The thesis' average loss beside random weights: an average, and no epsilon."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad

from benchmarks.figures._expected_loss import expected_losses, loss_ceiling
from tests.privacy.attained import log_density


@settings(max_examples=40)
@given(st.floats(0.2, 20.0), st.floats(1e-3, 3.0), st.floats(1e-3, 2.0))
def test_the_expected_loss_of_the_worse_sign_is_below_its_ceiling_and_close(rate, width, shift):
    u, s = rate * width, rate * shift

    def term(x):
        here = float(log_density(x, u))
        return math.exp(here) * max(abs(here - float(log_density(x + t, u))) for t in (s, -s))

    cuts = sorted({-40.0, 0.0, min(s, u / 2), u / 2})
    exact = 2 * sum(quad(term, a, b, epsabs=1e-12)[0] for a, b in pairwise(cuts)) / s
    largest = exact * (math.expm1(s) / s) ** 2
    assert exact * (1 - 1e-7) <= float(loss_ceiling(rate, width, shift)) <= largest * (1 + 1e-6)


def test_ceilings_where_shifts_are_small_and_where_nothing_is_claimed():
    for u, limit in {0.5: 0.885, 1: 0.787, 2: 0.632, 3: 0.518, 5: 0.367, 10: 0.199}.items():
        assert float(loss_ceiling(7.0, u / 7.0, 0.0)) == pytest.approx(limit, abs=6e-4)
    far = [float(loss_ceiling(1.0, w, s)) for w in (1.0, math.inf) for s in (60.0, 1e300)]
    assert far == [1.0] * 4


def test_expected_losses_are_the_worst_case_for_equal_models_and_about_a_third_less_for_noise():
    rates, ring = np.full(20, 2.0), np.roll(np.eye(10), 1, axis=1) + np.roll(np.eye(10), -1, axis=1)
    worst = expected_losses(np.ones((20, 10, 4)), ring, rates, 1e-9)
    np.testing.assert_allclose(worst, 20 * 4 * 2.0 * 1e-9, rtol=1e-7)
    rng, path = np.random.default_rng(0), [np.zeros((10, 4))]
    for rate in rates:
        r, models = rng.random((10, 4)), path[-1]
        mix = r * models + (1 - r) * (ring @ models) / 2
        path.append(mix + rng.laplace(scale=1 / rate, size=mix.shape))
    shares = expected_losses(np.array(path[1:]), ring, rates, 1e-9) / worst
    assert 0.65 < shares.mean() < 0.8
    assert shares.max() < 0.9
