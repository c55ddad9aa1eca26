"""The private records, seen through what is public about them.

A record enters every algorithm as an *augmented row*: its features in public coordinates, followed
by a constant one for the intercept, scaled as a whole (features, intercept and target together) so
that its Euclidean norm stays below a public bound. Nothing here copies ``X``: coordinates and
weights are applied on the fly, block by block, so that sparse input stays sparse and memory stays
O(n + p).
"""

from skdpadmm.records._coordinates import (
    UNDECLARED_TARGET_BOUNDS,
    Basis,
    Coordinates,
    Moments,
    declared_coordinates,
    declared_target_bounds,
    moments_of,
    standardising_coordinates,
    target_scale,
)
from skdpadmm.records._rows import (
    CANCELLATION,
    HUGE,
    Rows,
    block_size,
    clipped,
    feature_norms,
    rounding_factor,
)
from skdpadmm.records._segments import Segments, collect_agents, constants_of, prepare_agents

__all__ = [
    "CANCELLATION",
    "HUGE",
    "UNDECLARED_TARGET_BOUNDS",
    "Basis",
    "Coordinates",
    "Moments",
    "Rows",
    "Segments",
    "block_size",
    "clipped",
    "collect_agents",
    "constants_of",
    "declared_coordinates",
    "declared_target_bounds",
    "feature_norms",
    "moments_of",
    "prepare_agents",
    "rounding_factor",
    "standardising_coordinates",
    "target_scale",
]
