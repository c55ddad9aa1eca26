"""Where fixed blocks and placed parts work, and in which order their results are added."""

from skdpadmm.engine._engine import N_TASKS, Engine, require_backend
from skdpadmm.engine._parts import PlacedParts, one_blas_thread

__all__ = ["N_TASKS", "Engine", "PlacedParts", "one_blas_thread", "require_backend"]
