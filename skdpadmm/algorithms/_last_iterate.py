"""What guarantees of a last iterate ask of a problem: that no step moves two iterates apart.

A gradient step has to be short beside a public bound of the curvature, and a proximal step has to
be non-expansive as it is computed, in the metric of the algorithm: up to a rounding error that has
a public bound too, and counts like the rounding of iterates to a grid.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from skdpadmm.noise import GRID_CELL
from skdpadmm.protocol import Facts

# Bounds of curvature and of rows hold up to rounding.
SLACK = 1e-9
# Of a state that hidden steps have led to, a projection onto a public ball leaves all but what only
# draws that never come would give: signal and noise, each with room.
ROOM = 4.0
# Rounding of the few sums of a step, each as long as a state.
SUMS = 2.0**-50
# Floats between these have all digits, and so have a few products and quotients of them.
SMALLEST, LARGEST = 1e-280, 1e280


def curvature_bound(facts: Facts) -> float:
    """Smoothness of a record's loss in public coordinates, for every record; so of their mean."""
    return facts.loss.smoothness * facts.row_norm**2 * (1 + SLACK)


def longest_step(facts: Facts) -> float:
    """The longest gradient step that moves no two iterates apart."""
    return 2.0 / curvature_bound(facts) / (1 + SLACK)


def open_clip(facts: Facts) -> float:
    """A clip bound, in units of the typical norm, that no gradient reaches."""
    return facts.loss.lipschitz * facts.row_norm / typical_norm(facts) * (1 + SLACK)


def typical_norm(facts: Facts) -> float:
    """What clip bounds of records are in units of: `Rows.typical_norm`, without a basis."""
    return min(facts.row_norm, math.sqrt(facts.n_parameters))


def check_smooth_steps(facts: Facts, step_size: float, clip_norm: float, *, otherwise: str) -> None:
    """Refuse steps that can move two iterates apart, for some data set.

    Parameters
    ----------
    facts : Facts
    step_size : float
        Of a gradient step.
    clip_norm : float
        In units of the typical norm of a row.
    otherwise : str
        The setting that asks for none of this.

    Raises
    ------
    ValueError
        Says what was expected.
    """
    if not math.isfinite(curvature_bound(facts)):
        raise ValueError(
            f"Got row_norm={facts.row_norm} for a guarantee of the last iterate, expected a finite"
            f" bound. Use {otherwise}."
        )
    if facts.loss.n_outputs > 1 and not clip_norm >= open_clip(facts):
        raise ValueError(
            f"Got clip_norm={clip_norm:g} for {facts.loss.n_outputs} scores and a guarantee of the"
            f" last iterate, expected at least {open_clip(facts):.6g}, which never binds: clipping"
            f" the norm of a vector is no contraction. Use 'auto', or {otherwise}."
        )
    if step_size > 2.0 / curvature_bound(facts):
        raise ValueError(
            f"Got step_size={step_size:g} for a guarantee of the last iterate, expected a float in"
            f" (0, {longest_step(facts):.6g}], at most 2 over the bound of the curvature: longer"
            f" steps can move two iterates apart. Use 'auto', or {otherwise}."
        )


def certified_rounding(facts: Facts, *, otherwise: str) -> float:
    """Relative rounding error of the penalty's proximal operator, in public coordinates.

    Parameters
    ----------
    facts : Facts
        Without conditioning.
    otherwise : str
        The setting that asks for none of this.

    Raises
    ------
    ValueError
        Where the operator is not certified as non-expansive, to rounding.
    """
    rounding = proximal_rounding(facts)
    if not rounding < math.inf:
        raise ValueError(
            f"Got {facts.penalty!r} for a guarantee of the last iterate, expected a penalty whose"
            " proximal operator is certified to move no two points apart, in the units of the"
            f" features: bring feature_bounds closer to each other, or use {otherwise}."
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
    """The same, infinite where nothing is certified."""
    return max(facts.penalty.proximal_rounding(scale) for scale in _possible_scales(facts))


def n_features(facts: Facts) -> int:
    """How many coefficients the penalty sees."""
    return facts.n_parameters if facts.coordinates is None else facts.coordinates.n_features


def _possible_scales(facts: Facts) -> list[NDArray[np.float64]]:
    """What a unit of each coefficient may be worth; of units that are found later, the extremes."""
    coordinates = facts.coordinates
    if coordinates is None:
        return [np.ones(n_features(facts))]
    scale = coordinates.coefficient_scale
    if facts.scaling is None:
        return [scale]
    return [np.where(coordinates.undeclared, scale * f, scale) for f in (1e-50, 1.0, 1e50)]


def state_radius(n_iter: int, noise_std: float, n_entries: int) -> float:
    """Bound of the norm of a hidden state, in units of the longest step without noise.

    Parameters
    ----------
    n_iter : int
    noise_std : float
        In the same units.
    n_entries : int
        Of the state.
    """
    return ROOM * n_iter * (1.0 + 4.0 * noise_std * math.sqrt(n_entries))


def within(radius: float, state: NDArray[np.float64]) -> NDArray[np.float64]:
    """A state projected onto a ball around zero, which takes no two states apart."""
    return state * min(1.0, radius / max(float(np.linalg.norm(state)), radius))


def hidden_shift(
    facts: Facts, *, unit: float, relative_error: float, n_iter: int, inverse_noise: float
) -> float:
    """How far rounding can move two hidden iterates apart in a step, in noise standard deviations.

    A gate rounds an iterate to its grid, by less than a cell between two data sets. Another cell is
    for the rounding errors of arithmetic, and more than one where they can be larger.

    Parameters
    ----------
    facts : Facts
    unit : float
        Of the state: the longest step without noise.
    relative_error : float
        Of a computed step, in units of the norm of a state.
    n_iter : int
    inverse_noise : float
        Bound of the longest step without noise, in noise standard deviations.

    Raises
    ------
    ValueError
        Where floats do not resolve the noise in the units of the features.
    """
    n_entries = facts.n_parameters * facts.loss.n_outputs
    cell = GRID_CELL * math.sqrt(n_entries)
    # In noise standard deviations; twice, as both iterates are computed.
    radius = inverse_noise * state_radius(n_iter, 1.0 / inverse_noise, n_entries)
    noise = unit / inverse_noise
    scales = np.concatenate([np.ones(1), *_possible_scales(facts)])
    if not (
        noise * GRID_CELL * scales.min() > SMALLEST and noise * radius * scales.max() < LARGEST
    ):
        raise ValueError(
            "Got steps and feature_bounds whose products are beyond what floats resolve, expected"
            " steps and bounds closer to 1."
        )
    return cell + max(cell, 2.0 * relative_error * radius)
