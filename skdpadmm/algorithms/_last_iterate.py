"""Releases of iterations: of the whole path, or of the last iterate alone.

A guarantee of the last iterate asks that no step moves two iterates apart. A gradient step has to
be short beside a public bound of the curvature, and a proximal step has to be non-expansive as it
is computed, in the metric of the algorithm: up to a rounding error that has a public bound too, and
counts like the rounding of iterates to a grid.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from skdpadmm.algorithms._algorithm import refuse
from skdpadmm.algorithms._certified_solves import typical_norm
from skdpadmm.noise import GRID_CELL
from skdpadmm.privacy import GaussianDP, Guarantee
from skdpadmm.protocol import MODEL, Facts, Release, View

# Bounds of curvature and of rows hold up to rounding.
SLACK = 1e-9
# Of a state that hidden steps have led to, a projection onto a public ball leaves all but what only
# draws that never come would give: signal and noise, each with room.
ROOM = 4.0
# A linear term longer than its typical length by this many standard deviations is never drawn: the
# chance is below 1e-42. It would void the bound of rounding errors, and is charged to delta.
LONGEST_DRAW = 14.0
# Rounding of the few sums of a step, each as long as a state.
SUMS = 2.0**-50
# Floats between these have all digits, and so have a few products and quotients of them.
SMALLEST, LARGEST = 1e-280, 1e280


def path_release(
    name: str, shape: tuple[int, ...], sensitivity: float, n_iter: int, mu: float
) -> Release:
    """A release that is seen in every step, by exact composition."""
    # A little more than enough noise, so that no rounding takes epsilon above the budget.
    noise_std = sensitivity * math.sqrt(n_iter) / mu * (1 + 1e-12)
    return Release(
        name=name, shape=shape, sensitivities=(sensitivity,) * n_iter, noise_std=noise_std
    )


def last_release(
    facts: Facts,
    name: str,
    sensitivities: tuple[float, ...],
    mu: float,
    *,
    unit: float,
    relative_error: float,
    worst: float,
    amplified: float,
    spread: float = 1.0,
) -> Release:
    """A release of which only the last is seen, ``amplified (worst / s + spread shift)``-GDP.

    The shift is how far rounding can move two iterates apart in a step, see `_shift`.
    """
    most, n_iter = mu / amplified, len(sensitivities)
    rounding = spread * _shift(facts, unit, relative_error, n_iter, most / worst)
    if not most - rounding > most / 2:
        raise ValueError(
            "Got a budget so small that rounding takes up half of it, expected a larger epsilon or"
            " fewer steps. Use guarantee='path', which rounding does not touch."
        )
    noise_std = worst / (most - rounding) * (1 + 1e-12)
    guarantee = GaussianDP(amplified * (worst / noise_std + rounding))
    return Release(
        name=name,
        shape=facts.model_shape,
        sensitivities=sensitivities,
        noise_std=noise_std,
        is_hidden=True,
        views=seen_in_model(guarantee),
    )


def seen_in_model(*guarantees: Guarantee) -> tuple[View]:
    """What the model reveals of a release; a second guarantee is that of the worst case."""
    average, worst = guarantees[:1], guarantees[1:]
    return (View(observer=MODEL, guarantees=average, worst_cases=worst),)


def _shift(
    facts: Facts, unit: float, relative_error: float, n_iter: int, inverse_noise: float
) -> float:
    """Distance of two hidden iterates by rounding in a step, in noise standard deviations.

    A gate rounds an iterate to its grid, by less than a cell between two data sets. Another cell is
    for the rounding errors of arithmetic, and more than one where they can be larger: each step is
    off by `relative_error` of the norm of a state. The longest step without noise is the `unit` of
    the state, and at most `inverse_noise` noise standard deviations.
    """
    n_entries = facts.n_parameters * facts.loss.n_outputs
    cell = GRID_CELL * math.sqrt(n_entries)
    # In noise standard deviations; twice, as both iterates are computed.
    radius = inverse_noise * state_radius(n_iter, 1.0 / inverse_noise, n_entries)
    noise = unit / inverse_noise
    scales = np.concatenate([np.ones(1), *_possible_scales(facts)])
    least, most = noise * GRID_CELL * scales.min(), noise * radius * scales.max()
    got = "steps and feature_bounds whose products are beyond what floats resolve"
    resolved = least > SMALLEST and most < LARGEST
    refuse("Bring steps and bounds closer to 1.", (not resolved, got, "floats with all digits"))
    return cell + max(cell, 2.0 * relative_error * radius)


def curvature_bound(facts: Facts) -> float:
    """Smoothness of a record's loss in public coordinates, for every record; so of their mean."""
    return facts.loss.smoothness * facts.row_norm**2 * (1 + SLACK)


def longest_non_expansive_step(facts: Facts) -> float:
    """The longest gradient step that moves no two iterates apart."""
    return 2.0 / curvature_bound(facts) / (1 + SLACK)


def relative_open_clip(facts: Facts) -> float:
    """A clip bound, in units of the typical norm, that no gradient reaches."""
    return facts.loss.lipschitz * facts.row_norm / typical_norm(facts) * (1 + SLACK)


def check_smooth_steps(facts: Facts, step_size: float, clip_norm: float, *, otherwise: str) -> None:
    """Refuse gradient steps that can move two iterates apart, for some data set.

    `clip_norm` is in units of the typical norm of a row; `otherwise` names the setting that asks
    for none of this.
    """
    curvature, n_outputs = curvature_bound(facts), facts.loss.n_outputs
    clips, too_long = not clip_norm >= relative_open_clip(facts), step_size > 2.0 / curvature
    refuse(
        "Otherwise steps can move two iterates apart, and the last is as little private as all of"
        f" them. Use 'auto', or {otherwise}.",
        (not math.isfinite(curvature), f"row_norm={facts.row_norm}", "a finite bound"),
        (
            n_outputs > 1 and clips,
            f"clip_norm={clip_norm:g} for {n_outputs} scores",
            f"at least {relative_open_clip(facts):.6g}, which never binds",
        ),
        (
            too_long,
            f"step_size={step_size:g} for a guarantee of the last iterate",
            f"a float in (0, {longest_non_expansive_step(facts):.6g}], at most 2 over the bound of"
            " the curvature",
        ),
    )


def certified_rounding(facts: Facts) -> float:
    """Relative rounding error of the penalty's proximal operator, in public coordinates.

    Refuses an operator that is not certified as non-expansive, to rounding.
    """
    rounding = proximal_rounding(facts)
    got = f"{facts.penalty!r} for a guarantee of the last iterate"
    certified = "a penalty whose proximal operator is certified to move no two points apart"
    refuse(
        "Bring feature_bounds closer to each other, or use guarantee='path'.",
        (not rounding < math.inf, got, f"{certified}, in the units of the features"),
    )
    return rounding


def premises(facts: Facts) -> tuple[str, ...]:
    """What a guarantee of the last iterate rests on, in words."""
    return "Nobody saw an iterate before the last.", non_expansive(facts)


def non_expansive(facts: Facts) -> str:
    """The premise of such a guarantee about the penalty, in words."""
    name = type(facts.penalty).__name__
    return (
        f"No step moves two iterates apart: the proximal operator of {name} is non-expansive as it"
        " is computed, which was checked from the declared bounds, up to rounding."
    )


def proximal_rounding(facts: Facts) -> float:
    """Relative rounding error of proximal steps, infinite where nothing is certified."""
    return max(facts.penalty.proximal_rounding(scale) for scale in _possible_scales(facts))


def _possible_scales(facts: Facts) -> list[NDArray[np.float64]]:
    """Scales of coefficients; of private scales, which are not known yet, the extremes."""
    coordinates, scale = facts.coordinates, facts.coordinates.coefficient_scale
    if facts.scaling is None:
        return [scale]
    return [np.where(coordinates.undeclared, scale * f, scale) for f in (1e-50, 1.0, 1e50)]


def state_radius(n_iter: int, noise_std: float, n_entries: int) -> float:
    """Bound of the norm of a hidden state, which as the noise is in units of the longest step."""
    return ROOM * n_iter * (1.0 + 4.0 * noise_std * math.sqrt(n_entries))


def within(radius: float, state: NDArray[np.float64]) -> NDArray[np.float64]:
    """A state projected onto a ball around zero, which takes no two states apart."""
    return state * min(1.0, radius / max(float(np.linalg.norm(state)), radius))
