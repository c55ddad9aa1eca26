"""Theorems about agents that mix at random: worst cases, and the law of what is said."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import kstest

from skdpadmm import DPDecentralizedClassifier
from skdpadmm.algorithms import RandomizedADMM
from skdpadmm.algorithms._random_aggregators import between, decay_weights
from skdpadmm.noise import noise_source
from skdpadmm.privacy import LaplaceDP
from skdpadmm.protocol import Gate
from tests.privacy_accounting.attained import distribution


def test_worst_cases_of_fixed_parameters_are_those_of_the_paper():
    rates, rounds = 1.02 ** np.arange(1, 101), np.arange(1, 101)
    steps = [np.full(100, 0.1), 0.93**rounds, 0.9**rounds]
    found = [LaplaceDP(tuple((rates * s * 14 * 0.01).tolist())).pure_epsilon for s in steps]
    np.testing.assert_allclose(found, [4.458677, 2.570536, 1.567015], atol=1e-6)
    for step, decay, worst in zip(steps, (1.02, 1.02 * 0.93, 1.02 * 0.9), found, strict=True):
        weights = decay_weights(decay, 100)
        total = 0.14 * weights.sum() * (rates * step)[0] / weights[0]
        assert total == pytest.approx(worst, abs=1e-6)


def broadcasts(width, *, uniform=None, n_runs=2000):
    """Many agents' entries, mixed between 0 and a width, with noise of scale one from the gate."""
    model = DPDecentralizedClassifier(
        algorithm=RandomizedADMM(clip_norm=0.3), fit_intercept=False, classes=[0, 1], max_iter=1,
        conditioning=None, n_agents=n_runs, feature_bounds=(-1, 1),
    )  # fmt: skip
    plan = model.plan(2 * n_runs, 2)
    gate, release = Gate(plan, noise_source(0, b"")), plan.releases[-1]
    said = gate.take_turns(release.name, np.arange(n_runs), np.zeros((n_runs, 2, 1)))
    box = between(np.full((n_runs, 2, 1), width), np.zeros((n_runs, 2, 1)))
    mixed = box.draw(gate.uniform if uniform is None else uniform)
    return (mixed + said / (release.noise_std / math.sqrt(2))).ravel()


def test_what_is_said_is_uniform_plus_laplace_and_weights_of_another_law_are_not():
    for width in (0.0, 1.0, 5.0):
        # By symmetry about the middle of the interval.
        def law(x, width=width):
            upper = distribution(np.maximum(x, width - x), width)
            return np.where(x >= width / 2, upper, 1 - upper)

        assert kstest(broadcasts(width), law).pvalue > 1e-3
    for weight in (0.5, 0.2):
        fixed = broadcasts(5.0, uniform=lambda shape, weight=weight: np.full(shape, weight))
        assert kstest(fixed, law).pvalue < 1e-6
