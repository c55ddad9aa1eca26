"""Where fixed blocks of work run, and in which order their results are added."""

from skdpadmm.engine._engine import Engine

__all__ = ["Engine"]
