"""Differentially private learning by ADMM, with scikit-learn's interface."""

from __future__ import annotations

from skdpadmm.central import (
    DPAdmmElasticNet,
    DPAdmmGeneralizedLasso,
    DPAdmmHuberRegressor,
    DPAdmmLasso,
    DPAdmmLinearSVC,
    DPAdmmLogisticRegression,
    DPAdmmRidge,
)
from skdpadmm.decentralized import DPDecentralizedClassifier, DPDecentralizedRegressor
from skdpadmm.federated import (
    DPFedElasticNet,
    DPFedLasso,
    DPFedLogisticRegression,
    DPFedRidge,
)
from skdpadmm.personalized import DPPersonalizedClassifier, DPPersonalizedRegressor

__version__ = "0.1.0.dev0"

__all__ = [
    "DPAdmmElasticNet",
    "DPAdmmGeneralizedLasso",
    "DPAdmmHuberRegressor",
    "DPAdmmLasso",
    "DPAdmmLinearSVC",
    "DPAdmmLogisticRegression",
    "DPAdmmRidge",
    "DPDecentralizedClassifier",
    "DPDecentralizedRegressor",
    "DPFedElasticNet",
    "DPFedLasso",
    "DPFedLogisticRegression",
    "DPFedRidge",
    "DPPersonalizedClassifier",
    "DPPersonalizedRegressor",
    "__version__",
]
