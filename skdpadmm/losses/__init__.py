"""Convex losses of the linear scores of a record, and the clip of their derivatives."""

from __future__ import annotations

from ._calibration import moderate, undo_clip
from ._clip import clip_derivative
from ._huber import HuberLoss
from ._logistic import LogisticLoss
from ._loss import Loss
from ._multinomial import MultinomialLoss
from ._smoothed_hinge import OneVsRestHinge, SmoothedHinge
from ._squared import SquaredLoss

__all__ = [
    "HuberLoss",
    "LogisticLoss",
    "Loss",
    "MultinomialLoss",
    "OneVsRestHinge",
    "SmoothedHinge",
    "SquaredLoss",
    "clip_derivative",
    "moderate",
    "undo_clip",
]
