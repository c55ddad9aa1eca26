"""Random linear terms of objectives: how long they get, and how a gate rounds them."""

from __future__ import annotations

from skdpadmm.noise import GRID_CELL

# A linear term longer than its typical length by this many standard deviations is never drawn: the
# chance is below 1e-42. It would void the bound of rounding errors, and is charged to delta.
LONGEST_DRAW = 14.0
NEVER = 1e-9
# A gate rounds noise to a grid of less than 2**-20 standard deviations: half a cell each way.
HALF_CELL = GRID_CELL / 2
