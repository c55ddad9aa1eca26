"""Bounds of personalised coordinate descent against exact expectations, and model propagation."""

from __future__ import annotations

import math

import numpy as np
import pytest

from skdpadmm.algorithms import propagate, propagate_in_turn, propagation_limit
from skdpadmm.algorithms.planning import _personalized_theory as theory
from skdpadmm.network import Similarity
from skdpadmm.privacy import literature, split_budget
from tests.algorithms.runs import similarity_of

RING = np.array([[0, 1, 0, 1], [1, 0, 1, 0], [0, 1, 0, 1], [1, 0, 1, 0]], dtype=float)


class Quadratics:
    """Agents with local objectives curvature / 2 |theta - target|^2, alike in p entries."""

    def __init__(self, similarity, curvature, confidence, trade_off, n_entries):
        self.n_entries, self.degrees = n_entries, similarity.sum(axis=1)
        self.weights = trade_off * self.degrees * confidence
        self.public = {"degrees": self.degrees, "confidence": confidence, "trade_off": trade_off}
        self.constants = theory.block_constants(
            smoothness=curvature, strong_convexity=curvature, **self.public
        )
        self.hessian = np.diag(self.degrees + self.weights * curvature) - similarity
        self.contraction = theory.coordinate_contraction(
            strong_convexity=theory.joint_strong_convexity(similarity, self.weights * curvature),
            n_agents=len(similarity),
            lipschitz=self.constants.lipschitz,
        )

    def gap(self, error):
        return 0.5 * self.n_entries * float(error @ self.hessian @ error)

    def exact_gap(self, error, noise_std):
        """E[Q - Q*] after len(noise_std) steps of uniform agents from a known error (n,)."""
        moment, n = np.outer(error, error), len(error)
        for stds in noise_std:
            following = np.zeros_like(moment)
            for i, lipschitz in enumerate(self.constants.lipschitz):
                step = np.eye(n)
                step[i] -= self.hessian[i] / lipschitz
                moved = step @ moment @ step.T
                moved[i, i] += (self.weights[i] * stds[i] / lipschitz) ** 2
                following += moved / n
            moment = following
        return 0.5 * self.n_entries * float(np.sum(self.hessian * moment))

    def bound(self, error, noise_scale, noise="laplace"):
        return theory.noisy_descent_bound(
            gap=self.gap(error), contraction=self.contraction, n_steps=len(noise_scale),
            n_entries=self.n_entries, noise_scale=noise_scale,
            lipschitz=self.constants.lipschitz, noise=noise, **self.public,
        )  # fmt: skip

    def printed(self, scales):
        return literature.coordinate_descent_printed_noise_term(
            scales, self.contraction, self.weights, self.constants.lipschitz
        )


def ring(n_entries=5):
    """Curvatures for which a step contracts by 0.8."""
    return Quadratics(RING, np.ones(4), np.ones(4), 4.0, n_entries)


def irregular(seed):
    rng = np.random.default_rng(seed)
    similarity = np.triu(rng.uniform(0.1, 2.0, size=(5, 5)), 1)
    curvature, confidence = rng.uniform(0.5, 4.0, 5), rng.uniform(0.1, 1.0, 5)
    return Quadratics(similarity + similarity.T, curvature, confidence, 0.7, 3)


@pytest.mark.parametrize("seed", range(3))
def test_block_constants_are_the_curvature_of_the_blocks_and_the_update_a_gradient_step(seed):
    problem = irregular(seed)
    lipschitz, step, strong_convexity = problem.constants
    np.testing.assert_allclose(lipschitz, np.diag(problem.hessian), rtol=1e-14)
    np.testing.assert_allclose(step, problem.degrees / lipschitz, rtol=1e-14)
    smallest = np.linalg.eigvalsh(problem.hessian)[0]
    assert strong_convexity <= smallest * (1 + 1e-12)
    sharp = (1 - problem.contraction) * 5 * lipschitz.max()
    assert sharp == pytest.approx(smallest, rel=1e-9)


@pytest.mark.parametrize("n_agents", [1, 4, 1000])
def test_the_contraction_between_wake_ups_is_an_expectation(n_agents):
    contraction, gaps = 1 - 0.7 / n_agents, np.arange(1, 60 * n_agents + 60)
    law = (1 - 1 / n_agents) ** (gaps - 1) / n_agents
    got = theory.wake_contraction(contraction=contraction, n_agents=n_agents)
    assert got == pytest.approx(float(law @ contraction**gaps), rel=1e-9)


@pytest.mark.parametrize(("noise", "factor"), [("laplace", math.sqrt(2)), ("gaussian", 1.0)])
@pytest.mark.parametrize("growth", [0.0, 1.0, 1.1, 0.9])
def test_exact_gaps_stay_below_the_corrected_bounds(noise, factor, growth):
    """Proposition 1, and Theorem 2 with every entry's noise, contracted by the steps after it."""
    for seed, n_steps in ((0, 1), (1, 12), (2, 80)):
        problem, rng = irregular(seed), np.random.default_rng(seed)
        scales = rng.uniform(0.1, 3.0, 5) * growth ** np.arange(n_steps)[:, None] * (growth > 0)
        error = rng.normal(size=5)
        exact = problem.exact_gap(error, factor * scales)
        bound = problem.bound(error, scales, noise)
        assert exact <= bound * (1 + 1e-12)
        # Not vacuous, unless noise shrinks faster than the slowest direction contracts.
        assert growth < 1 or exact > 0.05 * bound


def test_printed_noise_terms_lack_the_number_of_entries_and_discount_the_wrong_end():
    problem, scales = ring(n_entries=10), np.full((1, 4), 0.7)
    exact = problem.exact_gap(np.zeros(4), math.sqrt(2) * scales)
    assert exact == pytest.approx(problem.bound(np.zeros(4), scales), rel=1e-12)
    assert exact == pytest.approx(10 * problem.printed(scales), rel=1e-12)
    problem, scales = ring(n_entries=1), 1.3 ** np.arange(40)[:, None] * np.ones(4)
    exact = problem.exact_gap(np.zeros(4), math.sqrt(2) * scales)
    assert 5 * problem.printed(scales) < exact <= problem.bound(np.zeros(4), scales)


@pytest.mark.parametrize(
    ("n_steps", "printed", "corrected"), [(20, 3.48, 0.534), (80, 2708, 0.059)]
)
def test_gaps_are_smallest_with_the_corrected_split_and_largest_with_the_printed_one(
    n_steps, printed, corrected
):
    problem, gaps = ring(), []
    assert problem.contraction == pytest.approx(0.8, rel=1e-12)
    optimal = split_budget("optimal", n_steps, problem.contraction)
    of_print = literature.coordinate_descent_printed_split(n_steps, problem.contraction)
    for shares in (split_budget("equal", n_steps), of_print, optimal):
        scales = np.outer(1 / shares, np.ones(4))
        gaps.append(problem.exact_gap(np.zeros(4), math.sqrt(2) * scales))
        assert gaps[-1] <= problem.bound(np.zeros(4), scales)
    assert np.divide(gaps[1:], gaps[0]) == pytest.approx([printed, corrected], rel=0.01)


def test_propagation_has_the_vectors_of_the_path():
    path = Similarity(n_agents=3, matrix=np.array([[0, 1, 0], [1, 0, 0.5], [0, 0.5, 0]]))
    models, pull = np.array([1.0, -1.0, 2.0]), 0.8 * np.array([0.2, 1.0, 0.5])
    fixed = [-0.31403859, -0.52428476, 0.19693945]
    np.testing.assert_allclose(propagation_limit(path, models, pull), fixed, atol=1e-8)
    np.testing.assert_allclose(propagate(path, models, pull)[0], fixed, atol=1e-8)
    woken = propagate_in_turn(path, models, pull, [0, 1, 2, 1], np.zeros(3))
    np.testing.assert_allclose(woken, [0.13793103, -0.33957037, 0.29045795], atol=1e-8)


@pytest.mark.parametrize("similarity", [similarity_of(12), Similarity(n_agents=12)])
def test_propagation_ends_at_its_linear_system_after_a_public_number_of_rounds(similarity):
    rng, n = np.random.default_rng(3), similarity.n_agents
    models, pull = rng.normal(size=(n, 3, 2)), rng.uniform(0.01, 2.0, n)
    limit = propagation_limit(similarity, models, pull)
    scale = np.sqrt(similarity.degrees * (1 + pull))[:, None, None]
    for tolerance in (1e-3, 1e-8):
        found, n_rounds = propagate(similarity, models, pull, tolerance=tolerance)
        assert n_rounds == propagate(similarity, 0 * models, pull, tolerance=tolerance)[1]
        before = np.linalg.norm(scale * (models - limit))
        assert np.linalg.norm(scale * (found - limit)) <= 1.01 * tolerance * before
