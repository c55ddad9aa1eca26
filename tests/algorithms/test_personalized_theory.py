"""Bounds of personalised coordinate descent, against exact expectations on quadratics."""

from __future__ import annotations

import math

import numpy as np
import pytest

from skdpadmm.algorithms.planning._personalized_theory import (
    block_constants,
    coordinate_contraction,
    descent_bound,
    joint_strong_convexity,
    noisy_descent_bound,
    wake_contraction,
)
from skdpadmm.privacy import literature, split_budget

RING = np.array([[0, 1, 0, 1], [1, 0, 1, 0], [0, 1, 0, 1], [1, 0, 1, 0]], dtype=float)


class Quadratics:
    """Agents with local objectives curvature / 2 |theta - target|^2, alike in p entries."""

    def __init__(self, similarity, curvature, confidence, trade_off, n_entries=1):
        self.n_agents, self.n_entries = len(similarity), n_entries
        self.degrees = similarity.sum(axis=1)
        self.weights = trade_off * self.degrees * confidence
        self.public = {
            "degrees": self.degrees,
            "confidence": confidence,
            "trade_off": trade_off,
        }
        self.constants = block_constants(
            smoothness=curvature, strong_convexity=curvature, **self.public
        )
        self.hessian = np.diag(self.degrees + self.weights * curvature) - similarity
        self.contraction = coordinate_contraction(
            strong_convexity=joint_strong_convexity(similarity, self.weights * curvature),
            n_agents=self.n_agents,
            lipschitz=self.constants.lipschitz,
        )

    def exact_gap(self, error, noise_std):
        """E[Q - Q*] after len(noise_std) steps of uniform agents from a known error (n,)."""
        moment = np.outer(error, error)
        for stds in noise_std:
            following = np.zeros_like(moment)
            for i, lipschitz in enumerate(self.constants.lipschitz):
                step = np.eye(self.n_agents)
                step[i] -= self.hessian[i] / lipschitz
                moved = step @ moment @ step.T
                moved[i, i] += (self.weights[i] * stds[i] / lipschitz) ** 2
                following += moved / self.n_agents
            moment = following
        return 0.5 * self.n_entries * float(np.sum(self.hessian * moment))

    def bound(self, error, noise_scale, noise):
        return noisy_descent_bound(
            gap=0.5 * self.n_entries * float(error @ self.hessian @ error),
            contraction=self.contraction,
            n_steps=len(noise_scale),
            n_entries=self.n_entries,
            noise_scale=noise_scale,
            lipschitz=self.constants.lipschitz,
            noise=noise,
            **self.public,
        )


def ring(n_entries=5):
    """Curvatures for which a step contracts by 0.8."""
    return Quadratics(RING, np.ones(4), np.ones(4), 4.0, n_entries)


def irregular(seed, n_entries=3):
    rng = np.random.default_rng(seed)
    similarity = rng.uniform(0.1, 2.0, size=(5, 5))
    similarity = np.triu(similarity, 1) + np.triu(similarity, 1).T
    return Quadratics(
        similarity, rng.uniform(0.5, 4.0, 5), rng.uniform(0.1, 1.0, 5), 0.7, n_entries
    )


@pytest.mark.parametrize("seed", range(3))
def test_block_constants_are_the_curvature_of_the_blocks(seed):
    problem = irregular(seed)
    lipschitz, step, strong_convexity = problem.constants
    np.testing.assert_allclose(lipschitz, np.diag(problem.hessian), rtol=1e-14)
    np.testing.assert_allclose(step, problem.degrees / lipschitz, rtol=1e-14)
    smallest = np.linalg.eigvalsh(problem.hessian)[0]
    assert strong_convexity <= smallest * (1 + 1e-12)
    sharp = 1 - problem.contraction
    assert sharp * 5 * lipschitz.max() == pytest.approx(smallest, rel=1e-9)
    assert strong_convexity < 0.9 * smallest


def test_the_update_of_a_block_is_a_gradient_step():
    """(1 - alpha) theta_i + alpha (mean of neighbours - mu c gradient) is one of length 1 / L."""
    rng = np.random.default_rng(0)
    curvature, confidence, trade_off = np.array([1.0, 2.0, 0.5, 3.0]), np.full(4, 0.5), 2.0
    problem = Quadratics(RING, curvature, confidence, trade_off)
    models = rng.normal(size=4)
    gradient = problem.hessian @ models
    for i in range(4):
        alpha = problem.constants.step[i]
        mean = RING[i] @ models / problem.degrees[i]
        pulled = mean - trade_off * confidence[i] * curvature[i] * models[i]
        new = (1 - alpha) * models[i] + alpha * pulled
        assert new == pytest.approx(models[i] - gradient[i] / problem.constants.lipschitz[i])


def test_an_agent_without_an_edge_is_refused():
    with pytest.raises(ValueError, match=r"Got degrees=.*expected positive floats"):
        block_constants(
            smoothness=1.0, strong_convexity=1.0, degrees=[1, 0], confidence=1.0, trade_off=1.0
        )


def test_agents_without_records_are_only_averaged():
    constants = block_constants(
        smoothness=2.0, strong_convexity=1.0, degrees=[1, 2], confidence=[0, 1], trade_off=1.0
    )
    assert constants.step.tolist() == [1.0, 1 / 3]
    assert constants.strong_convexity == 0.0
    assert joint_strong_convexity([[0, 1], [1, 0]], [0.0, 2.0]) > 0.5


@pytest.mark.parametrize("n_agents", [1, 4, 1000])
def test_the_contraction_between_wake_ups_is_an_expectation(n_agents):
    contraction = 1 - 0.7 / n_agents
    gaps = np.arange(1, 60 * n_agents + 60)
    law = (1 - 1 / n_agents) ** (gaps - 1) / n_agents
    expected = float(law @ contraction**gaps)
    got = wake_contraction(contraction=contraction, n_agents=n_agents)
    assert got == pytest.approx(expected, rel=1e-9)
    if n_agents == 1000:
        assert got == pytest.approx(1 / 1.7, rel=1e-3)
        assert got > contraction**n_agents


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("n_steps", [0, 1, 10, 60])
def test_without_noise_the_gap_contracts_as_promised(seed, n_steps):
    problem = irregular(seed)
    error = np.random.default_rng(seed).normal(size=5)
    gap = 0.5 * 3 * float(error @ problem.hessian @ error)
    exact = problem.exact_gap(error, np.zeros((n_steps, 5)))
    bound = descent_bound(gap=gap, contraction=problem.contraction, n_steps=n_steps)
    assert exact <= bound * (1 + 1e-12)
    if n_steps == 0:
        assert exact == pytest.approx(bound, rel=1e-12)


@pytest.mark.parametrize(("noise", "factor"), [("laplace", math.sqrt(2)), ("gaussian", 1.0)])
@pytest.mark.parametrize("schedule", ["constant", "growing", "shrinking"])
@pytest.mark.parametrize("seed", range(3))
def test_with_noise_the_gap_stays_below_the_bound(noise, factor, schedule, seed):
    problem = irregular(seed)
    rng = np.random.default_rng(seed)
    base = rng.uniform(0.1, 3.0, 5)
    for n_steps in (1, 12, 80):
        growth = {"constant": 1.0, "growing": 1.1, "shrinking": 0.9}[schedule]
        scales = base * growth ** np.arange(n_steps)[:, None]
        error = rng.normal(size=5)
        exact = problem.exact_gap(error, factor * scales)
        bound = problem.bound(error, scales, noise)
        assert exact <= bound * (1 + 1e-12)
        # Not vacuous, unless noise shrinks faster than the slowest direction contracts.
        assert exact > 0.05 * bound or (schedule == "shrinking" and n_steps > 1)


def test_one_step_from_the_optimum_meets_the_bound_and_breaks_the_printed_one():
    problem = ring(n_entries=10)
    scales = np.full((1, 4), 0.7)
    exact = problem.exact_gap(np.zeros(4), math.sqrt(2) * scales)
    assert exact == pytest.approx(problem.bound(np.zeros(4), scales, "laplace"), rel=1e-12)
    printed = literature.coordinate_descent_printed_noise_term(
        scales, problem.contraction, problem.weights, problem.constants.lipschitz
    )
    assert exact == pytest.approx(10 * printed, rel=1e-12)


def test_growing_noise_breaks_the_printed_order_with_one_entry_too():
    problem = ring(n_entries=1)
    scales = 1.3 ** np.arange(40)[:, None] * np.ones(4)
    exact = problem.exact_gap(np.zeros(4), math.sqrt(2) * scales)
    printed = literature.coordinate_descent_printed_noise_term(
        scales, problem.contraction, problem.weights, problem.constants.lipschitz
    )
    assert exact > 5 * printed
    assert exact <= problem.bound(np.zeros(4), scales, "laplace")


@pytest.mark.parametrize(
    ("n_steps", "printed", "corrected"), [(20, 3.48, 0.534), (40, 25.5, 0.214), (80, 2708.0, 0.059)]
)
def test_gaps_are_smallest_with_the_corrected_split(n_steps, printed, corrected):
    """Equal totals of epsilon; gaps are exact, and relative to equal steps."""
    problem = ring()
    assert problem.contraction == pytest.approx(0.8, rel=1e-12)
    gaps, bounds = [], []
    for shares in (
        split_budget("equal", n_steps),
        literature.coordinate_descent_printed_split(n_steps, problem.contraction),
        split_budget("optimal", n_steps, problem.contraction),
    ):
        scales = np.outer(1 / shares, np.ones(4))
        gaps.append(problem.exact_gap(np.zeros(4), math.sqrt(2) * scales))
        bounds.append(problem.bound(np.zeros(4), scales, "laplace"))
        assert gaps[-1] <= bounds[-1]
    assert gaps[2] < gaps[0] < gaps[1]
    assert bounds[2] < bounds[0] < bounds[1]
    assert gaps[1] / gaps[0] == pytest.approx(printed, rel=0.01)
    assert gaps[2] / gaps[0] == pytest.approx(corrected, rel=0.01)


def test_the_corrected_split_with_gaussian_noise_beats_equal_and_reversed_steps():
    problem, n_steps = ring(), 40
    optimal = split_budget("optimal", n_steps, problem.contraction, "gaussian")
    gaps = [
        problem.exact_gap(np.zeros(4), np.outer(shares**-0.5, np.ones(4)))
        for shares in (optimal, split_budget("equal", n_steps), optimal[::-1])
    ]
    assert gaps[0] < gaps[1] < gaps[2]


def test_constant_noise_has_a_limit():
    problem = ring()
    scales = np.full((500, 4), 0.5)
    bound = problem.bound(np.zeros(4), scales, "laplace")
    per_step = 5 / 4 * float(np.sum((problem.weights * 0.5) ** 2 / problem.constants.lipschitz))
    assert bound == pytest.approx(per_step / (1 - problem.contraction), rel=1e-12)


def test_an_unknown_noise_is_refused():
    with pytest.raises(ValueError, match="Got noise='cauchy', expected one of"):
        ring().bound(np.zeros(4), np.ones((1, 4)), "cauchy")
