"""Convex losses of the linear scores of a record, and the clip of their derivatives."""

from __future__ import annotations

from skdpadmm.losses._loss import Loss, clip_derivative, clip_vectors, moderate
from skdpadmm.losses._margin import LogisticLoss, OneVsRestHinge, SmoothedHinge
from skdpadmm.losses._multinomial import MultinomialLoss
from skdpadmm.losses._residual import HuberLoss, SmoothedPinball, SquaredLoss
from skdpadmm.losses._tweedie import TweedieLoss
from skdpadmm.losses._weighted import WeightedLoss

__all__ = [
    "HuberLoss",
    "LogisticLoss",
    "Loss",
    "MultinomialLoss",
    "OneVsRestHinge",
    "SmoothedHinge",
    "SmoothedPinball",
    "SquaredLoss",
    "TweedieLoss",
    "WeightedLoss",
    "clip_derivative",
    "clip_vectors",
    "moderate",
]
