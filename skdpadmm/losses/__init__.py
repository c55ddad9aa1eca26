"""Convex losses of the linear scores of a record, and the clip of their derivatives."""

from __future__ import annotations

from ._loss import Loss, clip_derivative, clip_vectors, moderate, undo_clip
from ._margin import LogisticLoss, OneVsRestHinge, SmoothedHinge
from ._multinomial import MultinomialLoss
from ._residual import HuberLoss, SquaredLoss

__all__ = [
    "HuberLoss",
    "LogisticLoss",
    "Loss",
    "MultinomialLoss",
    "OneVsRestHinge",
    "SmoothedHinge",
    "SquaredLoss",
    "clip_derivative",
    "clip_vectors",
    "moderate",
    "undo_clip",
]
