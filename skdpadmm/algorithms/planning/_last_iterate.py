"""What guarantees of a last iterate ask of a problem: curvature with a public bound."""

from __future__ import annotations

import math

from skdpadmm.protocol import Facts

# Bounds of curvature and of rows hold up to rounding.
SLACK = 1e-9


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
