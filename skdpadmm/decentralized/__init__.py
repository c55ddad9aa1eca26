"""Estimators for agents without a server, who talk along the edges of a graph."""

from __future__ import annotations

from skdpadmm.decentralized._classifier import DPDecentralizedClassifier
from skdpadmm.decentralized._regressor import DPDecentralizedRegressor

__all__ = ["DPDecentralizedClassifier", "DPDecentralizedRegressor"]
