"""Estimators for agents with models of their own, each pulled towards those of similar agents."""

from __future__ import annotations

from skdpadmm.personalized._classifier import DPPersonalizedClassifier
from skdpadmm.personalized._local_model import LocalClassifier, LocalRegressor
from skdpadmm.personalized._regressor import DPPersonalizedRegressor

__all__ = [
    "DPPersonalizedClassifier",
    "DPPersonalizedRegressor",
    "LocalClassifier",
    "LocalRegressor",
]
