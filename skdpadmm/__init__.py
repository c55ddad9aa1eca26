"""Differentially private learning by ADMM, with scikit-learn's interface."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from skdpadmm.central import (
        DPAdmmElasticNet,
        DPAdmmGammaRegressor,
        DPAdmmGeneralizedLasso,
        DPAdmmHuberRegressor,
        DPAdmmLasso,
        DPAdmmLinearSVC,
        DPAdmmLogisticRegression,
        DPAdmmPoissonRegressor,
        DPAdmmQuantileRegressor,
        DPAdmmRidge,
        DPAdmmTweedieRegressor,
    )
    from skdpadmm.decentralized import DPDecentralizedClassifier, DPDecentralizedRegressor
    from skdpadmm.federated import DPFedElasticNet, DPFedLasso, DPFedLogisticRegression, DPFedRidge
    from skdpadmm.inspection import privacy_report
    from skdpadmm.personalized import DPPersonalizedClassifier, DPPersonalizedRegressor

__version__ = "0.1.0.dev0"

__all__ = [
    "DPAdmmElasticNet",
    "DPAdmmGammaRegressor",
    "DPAdmmGeneralizedLasso",
    "DPAdmmHuberRegressor",
    "DPAdmmLasso",
    "DPAdmmLinearSVC",
    "DPAdmmLogisticRegression",
    "DPAdmmPoissonRegressor",
    "DPAdmmQuantileRegressor",
    "DPAdmmRidge",
    "DPAdmmTweedieRegressor",
    "DPDecentralizedClassifier",
    "DPDecentralizedRegressor",
    "DPFedElasticNet",
    "DPFedLasso",
    "DPFedLogisticRegression",
    "DPFedRidge",
    "DPPersonalizedClassifier",
    "DPPersonalizedRegressor",
    "__version__",
    "privacy_report",
]

_FAMILIES = {
    "DPAdmm": "central",
    "DPFed": "federated",
    "DPDecentralized": "decentralized",
    "DPPersonalized": "personalized",
    "privacy_report": "inspection",
}


def __getattr__(name: str) -> Any:
    """Import a family where it is first asked for."""
    for prefix, family in _FAMILIES.items():
        if name == family:
            return import_module(f"skdpadmm.{family}")
        if name in __all__ and name.startswith(prefix):
            return getattr(import_module(f"skdpadmm.{family}"), name)
    raise AttributeError(f"module 'skdpadmm' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, *_FAMILIES.values()]
