"""Estimators with a trusted curator: the curator holds the rows, the world sees the model."""

from skdpadmm.central._elastic_net import DPAdmmElasticNet
from skdpadmm.central._generalized_lasso import DPAdmmGeneralizedLasso
from skdpadmm.central._huber_regressor import DPAdmmHuberRegressor
from skdpadmm.central._lasso import DPAdmmLasso
from skdpadmm.central._linear_svc import DPAdmmLinearSVC
from skdpadmm.central._logistic_regression import DPAdmmLogisticRegression
from skdpadmm.central._ridge import DPAdmmRidge

__all__ = [
    "DPAdmmElasticNet",
    "DPAdmmGeneralizedLasso",
    "DPAdmmHuberRegressor",
    "DPAdmmLasso",
    "DPAdmmLinearSVC",
    "DPAdmmLogisticRegression",
    "DPAdmmRidge",
]
