"""One debiased step after a fit, and its covariance: what intervals of coefficients are made of.

Sources of ideas: one-step estimators (Le Cam, 1956); the debiased lasso (Javanmard & Montanari,
JMLR 2014; van de Geer, Buhlmann, Ritov & Dezeure, Annals of Statistics 2014); covariances where the
model may be wrong (White, Econometrica 1980). At the released model theta, three more releases
follow: the mean gradient g, the mean curvature H, and the mean S of squared gradients. Then

    theta_1 = theta - H^-1 g,    Cov = H^-1 (s_g^2 I + S / n + s_H^2 |H^-1 g|^2 I) H^-1,

where s_g and s_H are the noise of an entry of g and of H. Slopes are clipped to c and rows have a
norm of at most R, so the sum of gradients has sensitivity 2 c R, half of it for zero-out. Terms of
H and S are positive semi-definite, ``h a a'`` with ``h <= h_max`` and ``d d a a'`` with ``|d| <=
c``, so in Frobenius norm those of two records differ by at most sqrt(2) h_max R^2 and sqrt(2) c^2
R^2, and zero-out changes one of them by h_max R^2 and c^2 R^2 (see `_preparations`).
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from skdpadmm.algorithms._messages import plan_release
from skdpadmm.losses import Loss, clip_derivative
from skdpadmm.privacy import gaussian_mu
from skdpadmm.protocol import (
    Budget,
    Debiased,
    Facts,
    Gate,
    Inference,
    Plan,
    Problem,
    Solution,
    Summand,
)

Array = NDArray[np.float64]
GRADIENT, CURVATURE, SPREAD = "gradient at the model", "curvature at the model", "squared gradients"
# Of mu^2: what is released at the model; the rest fits it.
SHARES = {GRADIENT: 0.35, CURVATURE: 0.2, SPREAD: 0.15}
# Slopes of a residual are clipped to so many units of the target.
RESIDUAL_CLIP = 0.6
# Eigenvalues of the curvature below so many noise edges say nothing.
DETECTED = 1.5
# A coefficient has no interval if more of its squared loading is on such directions,
LARGEST_LOADING = 0.05
# or if the step changes scores by more than this, in root mean square, and the loss is no square.
LARGEST_STEP = 0.3


def with_inference(facts: Facts, budget: Budget) -> Facts:
    """Facts with three releases at the model, each in units of the bound of a term."""
    is_known = facts.loss.n_outputs == 1 and math.isfinite(facts.loss.smoothness)
    has_bounds = facts.coordinates is not None and not facts.coordinates.undeclared.any()
    if not is_known or not has_bounds or facts.is_stream or facts.agents.n_agents:
        raise ValueError(
            f"Got intervals=True with loss={facts.loss!r}, expected one score with a bounded second"
            " derivative (two classes, or a regression), feature_bounds or row_norm, and no stream."
            " Declare the bounds, or leave intervals out."
        )
    if not budget.is_private:
        return facts
    d, total = facts.n_parameters, gaussian_mu(budget.epsilon, budget.delta)
    mean = facts.rounding / facts.n_samples
    sizes = {
        GRADIENT: (d, facts.neighboring.sensitivity_factor),
        CURVATURE: (d * (d + 1) // 2, facts.neighboring.second_moment_factor),
        SPREAD: (d * (d + 1) // 2, facts.neighboring.second_moment_factor),
    }
    gradient, curvature, spread = (
        plan_release(
            facts,
            budget,
            name=name,
            shape=(size,),
            sensitivity=factor * mean,
            mu=total * math.sqrt(SHARES[name]),
        )
        for name, (size, factor) in sizes.items()
    )
    return replace(facts, inference=Inference(releases=(gradient, curvature, spread)))


def slope_bound(loss: Loss, target_unit: float) -> float:
    """What slopes are clipped to: nothing where the loss bounds them, as of classes."""
    return min(loss.lipschitz, RESIDUAL_CLIP * target_unit if loss.is_of_residual else math.inf)


def statistics_at(loss: Loss, clip: float, longest: float, problem: Problem) -> Summand:
    """Sums of gradients, curvatures and squared gradients, in units of their bounds."""
    rows, size, d = problem.rows, problem.per_person, problem.rows.coordinates.n_parameters
    upper = np.triu_indices(d)
    length = np.where(upper[0] == upper[1], 1.0, math.sqrt(2.0))

    def total(parameters: Array) -> Array:
        def of_block(block: int) -> Array:
            A, own = rows.augmented(block) / longest, rows.slices[block]
            scores = longest * (A @ parameters[:, 0])
            slopes = clip_derivative(loss.derivative(scores, problem.target[own]), clip)
            slopes /= clip if clip < math.inf else 1.0
            curved = loss.curvature(scores, problem.target[own]) / loss.smoothness
            curved = np.clip(np.nan_to_num(curved), 0.0, 1.0)
            gradients = slopes[:, None] * A
            if problem.weights is not None:
                # Of persons: what is squared is the mean gradient of their rows.
                weights = problem.weights[own] / size
                curved = curved * weights
                gradients = (gradients * weights[:, None]).reshape(-1, size, d).sum(axis=1)
            matrices = ((A * curved[:, None]).T @ A, gradients.T @ gradients)
            flat = [matrix[upper] * length for matrix in matrices]
            return np.concatenate([gradients.sum(axis=0), *flat])

        return problem.engine.sum(of_block, rows.n_blocks)

    return total


def debiased(plan: Plan, problem: Problem, solution: Solution, gate: Gate) -> Solution:
    """The solution with one debiased step from it."""
    facts, loss, coordinates = plan.facts, plan.facts.loss, problem.rows.coordinates
    d, longest, clip = coordinates.n_parameters, 1.0, 1.0
    if facts.inference is not None:
        longest, clip = coordinates.row_norm, slope_bound(loss, coordinates.target_unit)
    at = partial(statistics_at, loss, clip if facts.inference else math.inf, longest)
    sums = problem.summed(at)(solution.parameters)
    values: list[Array] = [*np.split(sums / facts.n_samples, [d, d + d * (d + 1) // 2])]
    units, noise = (clip * longest, loss.smoothness * longest**2, (clip * longest) ** 2), [0.0] * 3
    if facts.inference is not None:
        releases = facts.inference.releases
        values = [gate.release(r.name, v) for r, v in zip(releases, values, strict=True)]
        noise = [u * r.noise_std for u, r in zip(units, releases, strict=True)]
    g, curvature, spread = (u * v for u, v in zip(units, values, strict=True))
    matrix, vectors, is_noise = detected(symmetric(curvature, d), noise[1])
    values, directions = np.linalg.eigh(symmetric(spread, d))
    meat = (directions * np.maximum(values, 0.0)) @ directions.T / facts.n_samples
    inverse = np.linalg.inv(matrix)
    step = inverse @ g
    meat += (noise[0] ** 2 + noise[1] ** 2 * float(step @ step)) * np.eye(d)
    # Rows have at least 1 / smoothness times the second moment of the curvature.
    moved = math.sqrt(max(float(step @ matrix @ step), 0.0) / loss.smoothness)
    known = np.square(vectors[:, is_noise]).sum(axis=1) <= LARGEST_LOADING
    return replace(
        solution,
        debiased=Debiased(
            parameters=solution.parameters - step[:, None],
            covariance=inverse @ meat @ inverse,
            known=known & (loss.is_of_residual or moved <= LARGEST_STEP),
        ),
    )


def symmetric(flat: Array, d: int) -> Array:
    """The matrix of an upper triangle whose entries off the diagonal are times sqrt(2)."""
    upper = np.triu_indices(d)
    matrix = np.zeros((d, d))
    matrix[upper] = flat / np.where(upper[0] == upper[1], 1.0, math.sqrt(2.0))
    return np.asarray(matrix + np.triu(matrix, 1).T)


def detected(matrix: Array, noise_std: float) -> tuple[Array, Array, NDArray[np.bool_]]:
    """A noisy curvature without eigenvalues that noise can make; directions, and which are such."""
    values, vectors = np.linalg.eigh(matrix)
    # The spectrum of noise alone ends at twice this (Wigner's semicircle).
    edge = noise_std * math.sqrt(len(matrix) / 2)
    least = max(DETECTED * 2 * edge, 1e-12)
    return (vectors * np.maximum(values, least)) @ vectors.T, vectors, values < least
